"""The transaction that adopts a ledger, until its outcome is known (P2.2, P10.5).

Decides what it compares, and whether the ledger is adopted, surely will not be, or is somebody else's by now. An
unknown outcome is never taken for a no: the same again wins, or is refused. Leaves to others what the key and the
record say (`adoption_plan`), and until when it may try (`adopting`).

    put --> IN FLIGHT --done----------------------------------------------------> adopted
              ^  |
              |  '--not done, unknown--> the key is read --what was put---------> adopted
              |                            |  |  |---------another key----------> somebody else adopted it
              '---as before, after unknown-'  |  '---------none: its tombstone--> deleted
                                              '-as before, after not done-------> a bookie may not be named
"""

from __future__ import annotations

from typing import Any, NamedTuple

from embedbk.codec.adopted import AdoptedLedger, adopted_path, encode_adopted
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.codec.registration import placement_path
from embedbk.codec.tombstone import tombstone_path
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import (
    KeyRead,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.errors import (
    EmbedbkError,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedger,
    RecoveryInconclusive,
    StorageError,
)
from embedbk.ids import Member

__all__ = ["AdoptionCommit", "AdoptionSettled"]

_Placements = dict[Member, int | None]


class AdoptionSettled(NamedTuple):
    """What an event says. revision: of the key, under which the ledger is adopted. error: it is not, and will not be.
    Neither: that is open, and the effects ask on."""

    effects: list[Effect]
    revision: int | None = None
    error: EmbedbkError | None = None


class AdoptionCommit:
    """The transactions of one adoption, one at a time: each puts the same."""

    __slots__ = (
        "_is_unsettled",
        "_ledger_id",
        "_metadata",
        "_number",
        "_record",
        "_refused",
        "_retry_ns",
        "_stale_revision",
        "due_ns",
    )

    def __init__(self, ledger_id: int, stale_revision: int | None, retry_ns: int) -> None:
        """stale_revision: of the key in the older copy, which is changed; None: there is none."""
        self._ledger_id = ledger_id
        self._stale_revision = stale_revision
        self._retry_ns = retry_ns
        self._metadata: LedgerMetadata | None = None
        self._record: AdoptedLedger | None = None
        self._number = 0  # Of the transaction that is open.
        self._is_unsettled = False  # One came back unknown: it is still in flight (P2.2).
        self._refused = ""  # Why the last one was not run, behind one that is unsettled.
        self.due_ns: int | None = None  # When the ledger's key is to be read.

    def getstate(self) -> dict[str, Any]:
        """The state for digests."""
        return {name: getattr(self, name) for name in self.__slots__}

    def begin(self, metadata: LedgerMetadata, record: AdoptedLedger, placements: _Placements) -> list[Effect]:
        """placements: of each bookie that may be named."""
        self._metadata, self._record = metadata, record
        return self._put(placements)

    def on_outcome(self, event: Transacted | TransactUnknown) -> AdoptionSettled:
        if event.tag != ("adopt", self._number):
            return AdoptionSettled([])
        if isinstance(event, TransactUnknown):
            self._is_unsettled = True
        elif event.is_done:
            return AdoptionSettled([], revision=event.revision)
        else:
            return AdoptionSettled([self._read("why")])
        return AdoptionSettled([self._read("read")])

    def on_refused(self, event: TransactRefused) -> AdoptionSettled:
        if event.tag != ("adopt", self._number):
            return AdoptionSettled([])
        if self._is_unsettled:  # One before may have landed, and then its id is spared no more.
            self._refused = event.reason
            return AdoptionSettled([self._read("why")])
        return AdoptionSettled(
            [],
            error=MetadataUnavailable(
                f"ledger {self._ledger_id} was not adopted: {event.reason}", definite=True
            ),
        )

    def on_key(self, event: KeyRead, placements: _Placements) -> AdoptionSettled:
        kind, number = event.tag
        if number != self._number:
            return AdoptionSettled([])
        if kind == "deleted":
            return AdoptionSettled([], error=self._why_refused(event))
        is_as_before = event.value is None
        if self._stale_revision is not None:
            is_as_before = event.value is not None and event.revision == self._stale_revision
        if is_as_before and kind == "read":
            # Proves nothing: the same again wins, or is refused.
            return AdoptionSettled(self._put(placements))
        if event.value is None:
            return AdoptionSettled([ReadKey(("deleted", self._number), tombstone_path(self._ledger_id))])
        if is_as_before:
            return AdoptionSettled([], error=self._why_not_named())
        assert self._metadata is not None
        if event.value == encode_ledger_metadata(self._metadata):
            return AdoptionSettled([], revision=event.revision)
        return AdoptionSettled([], error=self._adopted_by_another(event))

    def on_failed(self, now_ns: int) -> None:
        """The metadata could not be asked."""
        self.due_ns = now_ns + self._retry_ns

    def on_time(self, now_ns: int) -> list[Effect]:
        if self.due_ns is None or now_ns < self.due_ns:
            return []
        self.due_ns = None
        return [self._read("read")]

    def _put(self, placements: _Placements) -> list[Effect]:
        assert self._metadata is not None and self._record is not None
        self._number += 1
        fragments = self._metadata.fragments
        named = sorted({member for fragment in fragments for member in fragment.members})
        when = [
            Compare(
                ledger_key_path(self._ledger_id),
                ABSENT if self._stale_revision is None else self._stale_revision,
            ),
            Compare(tombstone_path(self._ledger_id), ABSENT),
        ]
        for member in named:
            placement = placements.get(member)
            if placement is not None:  # A bookie of an older build has no placement to compare (P10.6).
                when.append(Compare(placement_path(member.bookie_id), placement))
        then = [
            Put(ledger_key_path(self._ledger_id), encode_ledger_metadata(self._metadata)),
            Put(adopted_path(self._ledger_id), encode_adopted(self._record)),
        ]
        return [Transact(("adopt", self._number), when, list(then), self._ledger_id)]

    def _read(self, kind: str) -> ReadKey:
        return ReadKey((kind, self._number), ledger_key_path(self._ledger_id))

    def _adopted_by_another(self, event: KeyRead) -> EmbedbkError:
        try:
            found = decode_ledger_metadata(event.value or b"", self._ledger_id)
        except StorageError as unread:
            return unread
        state = LedgerState(found.state).name
        return MetadataConflict(
            f"ledger {self._ledger_id} is in the metadata by now, {state}, last entry {found.last_entry}",
            hint="somebody else adopted it; nothing is to be done",
        )

    def _why_refused(self, event: KeyRead) -> EmbedbkError:
        if event.value is not None:
            return MetadataConflict(
                f"ledger {self._ledger_id} was deleted, and can be brought back: embedbk ledger undelete"
            )
        if self._stale_revision is not None:
            return NoSuchLedger(f"ledger {self._ledger_id} was deleted meanwhile")
        return self._why_not_named()

    def _why_not_named(self) -> EmbedbkError:
        read_only = "a bookie that it would name went read-only since it was asked (P10.6)"
        return RecoveryInconclusive(
            f"ledger {self._ledger_id} was not adopted: {self._refused or read_only}",
            hint="nothing is lost; adopt it again",
        )
