"""Growth is offered: what is there and not made use of, in words (RAFT.md, 11)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import embedbk
from embedbk.client.embedded import Opened
from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import AllocIds, Operation, Put, Txn
from embedbk.codec.registration import BOOKIES_PREFIX
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import Run, StartSession
from embedbk.metadata.growing import NEWEST_LEDGERS, Growth, growth_of, offers


class Grown:
    """A catalog into which is put what a cluster has."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self._index = 1
        self.catalog.apply(StartSession(0, 1000, "", b"secret"), 1, 1)
        (self._session,) = self.catalog.sessions
        self.do(AllocIds(2 * NEWEST_LEDGERS))

    def do(self, operation: Operation) -> None:
        self._index += 1
        run = Run(self._session, self._index, self._index, operation)  # type: ignore[arg-type]
        self.catalog.apply(run, self._index, 1)

    def bookies(self, count: int) -> None:
        self.do(Txn([], [Put(f"{BOOKIES_PREFIX}b{each}", b"x") for each in range(count)]))

    def ledger(self, ledger_id: int, copies: int, state: LedgerState = LedgerState.OPEN) -> None:
        ensemble = tuple((f"b{each}", bytes(16)) for each in range(copies))
        last, length = (0, 1) if state == LedgerState.CLOSED else (None, None)
        metadata = LedgerMetadata(
            *(1, ledger_id, copies, copies, copies, int(state), last, length),
            *(bytes(32), 0, {}, (Fragment(0, 0, ensemble),)),
        )
        self.do(Txn([], [Put(ledger_key_path(ledger_id), encode_ledger_metadata(metadata))]))


def test_open_ledgers_with_fewer_copies_than_new_ones_are_counted() -> None:
    """Restate's operator, 195: replication was not raised when the cluster grew, and nobody was told."""
    grown = Grown()
    grown.bookies(1)
    grown.ledger(2 * NEWEST_LEDGERS, 1)
    assert growth_of(grown.catalog) == Growth(1, 0), "as many as there can be"
    grown.bookies(3)
    assert growth_of(grown.catalog) == Growth(3, 1)
    grown.ledger(2 * NEWEST_LEDGERS - 1, 1, LedgerState.CLOSED)  # That one waits for repair.
    grown.ledger(2 * NEWEST_LEDGERS - 2, 3)
    grown.ledger(1, 1)  # Of long ago: no more than the newest are looked at.
    grown.do(Txn([], [Put("/ledgers/strange", b"x"), Put(ledger_key_path(2 * NEWEST_LEDGERS - 3), b"x")]))
    assert growth_of(grown.catalog) == Growth(3, 1)


def test_what_is_offered_says_what_does_it() -> None:
    assert offers([], Growth(3, 0)) == []
    assert offers(["m2"], Growth()) == [
        "m2 learns and has no vote: embedbk quorum join lets all of them vote"
    ]
    learners, copies = offers(["m2", "m3"], Growth(4, 2))
    assert learners.startswith("m2, m3 learn and have no vote")
    assert (
        "4 bookies are there, and 2 of" in copies and "fewer than 3 copies" in copies and "renew()" in copies
    )


def test_open_says_it_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens is told, and goes on; a cluster that makes use of all is told nothing."""
    with caplog.at_level(logging.WARNING), embedbk.open(tmp_path / "data", bookies=1):
        assert "no vote" not in caplog.text
    ready = Opened.ready

    async def with_learners(self: Opened) -> None:
        self.offers = lambda: offers(["m2"], Growth())
        await ready(self)

    monkeypatch.setattr(Opened, "ready", with_learners)
    with caplog.at_level(logging.WARNING), embedbk.open(tmp_path / "data"):
        assert caplog.text.count("m2 learns and has no vote") == 1
