"""What a reader knows of its ledger's metadata, and when its watch ends (P2.3, P6.2, P8.14)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from embedbk.client.followed_metadata import FollowedMetadata
from embedbk.client.runtime import FollowedKey, Runtime
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
)
from embedbk.codec.lost_entries import Losses
from embedbk.errors import MetadataUnavailable, NoSuchLedger
from tests.codec.test_lost_entries import PLAIN, SEATS

OPEN = PLAIN.with_changes(state=LedgerState.OPEN, last_entry=None, length=None)
GROWN = OPEN.with_changes(fragments=(*OPEN.fragments, Fragment(5, 5, SEATS)))
LOST = PLAIN.with_changes(lost=(Losses(((0, 0, 1),), (SEATS[0],), 5, "me", "burnt"),))
FREED = PLAIN.with_changes(freed=Freed(bytes(16), "/archive", bytes(32)), fragments=(Fragment(0, 0, ()),))


class Watch:
    """What a watch shows, and whether it is followed still."""

    def __init__(self) -> None:
        self.state: tuple[bytes | None, int] | None = None
        self.is_over = False

    @property
    def revision(self) -> int:
        return self.state[1] if self.state is not None else 0

    def show(self, metadata: LedgerMetadata | None, revision: int) -> None:
        self.state = (None if metadata is None else encode_ledger_metadata(metadata), revision)

    def end(self) -> None:
        self.is_over = True


class Member:
    """Answers with what is in the metadata; None: it does not answer."""

    def __init__(self, metadata: LedgerMetadata | None, revision: int = 0) -> None:
        self.metadata, self.revision = metadata, revision

    async def get(self, key: str, what: str) -> tuple[bytes | None, int]:
        if self.metadata is None:
            raise MetadataUnavailable(what)
        return encode_ledger_metadata(self.metadata), self.revision


def following(metadata: LedgerMetadata = OPEN, revision: int = 10) -> tuple[FollowedMetadata, Watch]:
    known, watch = FollowedMetadata(metadata, revision), Watch()
    known.followed = cast(FollowedKey, watch)
    return known, watch


def is_back(known: FollowedMetadata, member: Member) -> bool:
    steps = known.is_back(cast(Runtime, member), known.latest)
    with pytest.raises(StopIteration) as done:
        cast(Any, steps).send(None)
    return cast(bool, done.value.value)


def test_what_was_taken_is_not_set_back_by_a_watch_that_shows_less() -> None:
    """A watch begins with what its member knows, which may be older than what the ledger was opened by."""
    known, watch = following(GROWN)
    watch.show(OPEN, 9)
    assert not known.has_newer and known.now() is GROWN
    watch.show(None, 9)
    assert known.now() is GROWN, "it was made since"


def test_a_look_takes_what_the_watch_shows_and_only_then_it_is_no_news_any_more() -> None:
    known, watch = following()
    watch.show(GROWN, 11)
    assert known.has_newer and known.latest is OPEN
    assert known.now() == GROWN and (known.latest, known.revision) == (GROWN, 11)
    assert not known.has_newer and not watch.is_over


def test_nothing_follows_a_ledger_that_is_closed_and_one_that_is_gone_is_said_to_be() -> None:
    known, watch = following()
    watch.show(PLAIN, 11)
    assert known.now() == PLAIN and watch.is_over and known.followed is None
    assert known.has_newer, "nobody would tell"
    known, watch = following()
    watch.show(None, 11)
    for _ in range(2):
        with pytest.raises(NoSuchLedger):
            known.now()


def test_what_a_read_found_counts_where_it_says_more() -> None:
    """Copies that were given up: unless a watch tells by itself; entries that were: unless fewer are known to it."""
    known = FollowedMetadata(PLAIN, 10)
    known.take_freed(FREED)
    assert known.now() is FREED
    known, _ = following()
    known.take_freed(FREED)
    assert known.now() is OPEN
    known = FollowedMetadata(PLAIN, 10)
    known.take_lost(LOST)
    known.take_lost(PLAIN)
    assert known.now() is LOST


def test_files_that_cannot_be_read_count_until_the_metadata_names_other_copies() -> None:
    known = FollowedMetadata(FREED, 10)
    assert not is_back(known, Member(None)) and known.latest is FREED, "nobody could tell"
    assert not is_back(known, Member(FREED, 11)), "these files are its copies still"
    assert is_back(known, Member(PLAIN, 12)) and (known.now(), known.revision) == (PLAIN, 12)
