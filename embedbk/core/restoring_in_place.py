"""Bringing one freed ledger back to bookies, at its place (P8.14): which bookies get its copies, and when they are its
seats.

Decides what stands in the metadata before the first copy, while copies are made, and behind the last. Leaves to others
that every entry comes from files that are sound (`archive/reading.py`), the copies (`copying_in_place.py`), and how
often that is begun (`client/restoring_in_place.py`).

    NamingInPlace:     LOCK -> LEDGER, freed -> bookies are chosen -> MARK of repair, postponed, which names them
    copying, beside RenewingInPlace: the same mark put again, so that it stays postponed
    PublishingInPlace: the ledger with these seats and without its files; the mark goes, in the same transaction

The mark keeps the copies on their bookies (P7.7), as it does for a repair (P11.2). It is one that no worker may take:
it is postponed, and made so anew. No protection follows from that time: the last transaction compares the mark's
revision, so a mark that was gone, or that a worker could take, publishes nothing. If this job dies, the wait of the
mark ends; a worker finds that no seat lacks anything, ends it, and then each bookie drops what no fragment names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from msgspec.structs import replace

from embedbk.codec.freed_ledger import Freed
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.codec.repair_mark import (
    MARK_VERSION,
    MarkProgress,
    RepairMark,
    decode_repair_mark,
    encode_repair_mark,
    repair_mark_path,
    with_progress,
)
from embedbk.config import Placement
from embedbk.core.client_words import BookieInfo, BookiesChanged
from embedbk.core.machine import Effect, Handlers
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.naming import Naming
from embedbk.core.placement import Chance, fill_seats
from embedbk.core.retrying import Retrying
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import (
    EmbedbkError,
    LockLost,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    StorageError,
)
from embedbk.ids import Member

__all__ = ["RENEW_NS", "ArchiveHold", "InPlacePlan", "NamingInPlace", "PublishingInPlace", "RenewingInPlace"]

_HOLD_TRIES = (
    4  # A mark that says so is postponed for 40 s behind each time that it is put (METADATA.md, 11).
)
RENEW_NS = 10_000_000_000
_MISSING_MAX = 8  # Bookies that the mark calls missing; all of them are its targets.


class ArchiveHold(NamedTuple):
    """The lock of the log's archive, under whose epoch a job works."""

    log_id: str
    key: str
    epoch: int

    @property
    def compared(self) -> Compare:
        return Compare(self.key, self.epoch)


class InPlacePlan(NamedTuple):
    """Which bookies get the copies, as the mark says it. ledger: as it stands, freed."""

    ledger: LedgerMetadata
    revision: int
    ensemble: tuple[Member, ...]
    mark: bytes
    mark_revision: int

    @property
    def restored(self) -> LedgerMetadata:
        """One ensemble in all fragments, whose starts stay: a write set follows from the entry and E alone (P1)."""
        seats = tuple((member.bookie_id, member.incarnation) for member in self.ensemble)
        fragments = tuple(replace(each, ensemble=seats) for each in self.ledger.fragments)
        return self.ledger.with_changes(fragments=fragments, freed=None)


class _InPlace(Retrying):
    """Base of the three cores below: an error that follows an unknown outcome is not definite."""

    def __init__(self, ledger_id: int, hold: ArchiveHold) -> None:
        super().__init__()
        self.ledger_id = ledger_id
        self.hold = hold
        self.is_unknown = False

    def _lost_lock(self) -> LockLost:
        why = f"the archive lock of log {self.hold.log_id!r}, held under epoch {self.hold.epoch}, is lost"
        return LockLost(f"{why}; ledger {self.ledger_id} is not brought back by this job")

    def _is_held(self, event: KeyRead) -> bool:
        return event.value is not None and event.revision == self.hold.epoch

    def _gone(self) -> NoSuchLedger:
        return NoSuchLedger(f"ledger {self.ledger_id} of log {self.hold.log_id!r} is gone", definite=True)

    def _changed(self, why: str) -> MetadataConflict:
        return MetadataConflict(f"ledger {self.ledger_id} is not brought back: {why}", definite=True)

    def _fail(self, why: EmbedbkError) -> list[Effect]:
        if self.is_unknown:
            why.definite = False
        return [Ended(why)]

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        what = f"ledger {self.ledger_id} is not brought back: {event.reason}"
        return self._fail(MetadataUnavailable(what, definite=True))

    def _on_unknown(self, event: TransactUnknown) -> list[Effect]:
        """The outcome is unknown: what stands there settles it, or another change from the same revision (P2.2)."""
        self.is_unknown = True
        return self._pause(event)

    def _on_read(self, event: KeyRead) -> list[Effect]:
        """Each of the three reads on in its own way. What it raises ends it."""
        raise NotImplementedError

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        try:
            return self._on_read(event)
        except (StorageError, MetadataConflict, NotEnoughBookies, NoSuchLedger, LockLost) as refused:
            return self._fail(refused)

    HANDLERS: ClassVar[Handlers] = {
        **Retrying.HANDLERS,
        KeyRead: _on_key_read,
        TransactRefused: _on_refused,
        TransactUnknown: _on_unknown,
        MetadataFailed: Retrying._pause,
    }


class NamingInPlace(_InPlace):
    """Ends with an InPlacePlan, or with None: bookies have the ledger. Errors: LockLost, NoSuchLedger,
    MetadataConflict (its files are others than were looked at), NotEnoughBookies, MetadataUnavailable, StorageError."""

    def __init__(
        self,
        ledger_id: int,
        hold: ArchiveHold,
        freed: Freed,
        naming: Naming,
        bookies: Sequence[BookieInfo],
        excluded: frozenset[Member],
        placement: Placement,
        chance: Chance,
        wall_ms: int,
    ) -> None:
        """naming: of all tries together. excluded: those that failed in an earlier one."""
        super().__init__(ledger_id, hold)
        self.freed = freed
        self.naming = naming
        self.bookies = tuple(bookies)
        self.excluded = excluded
        self.placement = placement
        self.chance = chance
        self.wall_ms = wall_ms
        self.plan: InPlacePlan | None = None

    def _on_started(self, event: Started) -> list[Effect]:
        return self._again()

    def _again(self) -> list[Effect]:
        return [ReadKey("lock", self.hold.key)]

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if event.tag == "lock":
            if not self._is_held(event):
                raise self._lost_lock()
            return [ReadKey("ledger", ledger_key_path(self.ledger_id))]
        if event.tag == "ledger":
            return self._on_ledger(event)
        return self._on_mark(event)

    def _on_ledger(self, event: KeyRead) -> list[Effect]:
        if event.value is None:
            raise self._gone()
        ledger = decode_ledger_metadata(event.value, self.ledger_id)
        if ledger.freed is None:
            return [Ended(None, None)]
        if ledger.freed != self.freed:
            raise self._changed("its files are others by now than those that were looked at")
        ensemble = self._choose(ledger)
        self.plan = InPlacePlan(ledger, event.revision, ensemble, self._mark(ensemble), ABSENT)
        return [ReadKey("mark", repair_mark_path(self.ledger_id))]

    def _choose(self, ledger: LedgerMetadata) -> tuple[Member, ...]:
        usable = [
            info._replace(is_writable=info.is_writable and info.member not in self.excluded)
            for info in self.naming.usable(self.bookies)
        ]
        quorum, writable = ledger.quorum, sum(info.is_writable for info in usable)
        seats = fill_seats([None] * quorum.ensemble_size, usable, (), quorum, self.placement, self.chance)
        ensemble = tuple(member for member in seats if member is not None)
        if len(ensemble) < quorum.ensemble_size:
            failed = ", ".join(sorted(member.bookie_id for member in self.excluded))
            raise NotEnoughBookies(
                f"ledger {self.ledger_id} needs an ensemble of {quorum.ensemble_size}; {writable} bookies take copies"
                + (f", and {failed} failed" if failed else ""),
                definite=True,
                hint="start more bookies; its files are read until then",
            )
        self.naming.choose(ensemble, usable)
        return ensemble

    def _mark(self, ensemble: tuple[Member, ...]) -> bytes:
        names = tuple(sorted(member.bookie_id for member in ensemble)[:_MISSING_MAX])
        mark = RepairMark(MARK_VERSION, names, self.wall_ms, _HOLD_TRIES, True)
        why = f"its copies come back from the archive in {self.freed.path!r}, under epoch {self.hold.epoch}"
        targets = tuple((member.bookie_id, member.incarnation) for member in ensemble)
        return encode_repair_mark(with_progress(mark, MarkProgress(targets, why)))

    def _on_mark(self, event: KeyRead) -> list[Effect]:
        """Replace a mark that is there, left by a job that died, say: nothing of a freed ledger can be missing."""
        assert self.plan is not None
        if event.value is not None:
            decode_repair_mark(event.value)  # What cannot be read stays as it is (P2.5).
        when = [
            self.hold.compared,
            Compare(ledger_key_path(self.ledger_id), self.plan.revision),
            Compare(repair_mark_path(self.ledger_id), ABSENT if event.value is None else event.revision),
        ]
        return [Transact("mark", when, [Put(repair_mark_path(self.ledger_id), self.plan.mark)])]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        assert self.plan is not None
        if event.is_done:
            return [Ended(None, self.plan._replace(mark_revision=event.revision))]
        return self._pause(event)  # Something has changed: look again.

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies = event.bookies
        self.naming.listed(event.bookies)
        return []

    HANDLERS: ClassVar[Handlers] = {
        **_InPlace.HANDLERS,
        Started: _on_started,
        Transacted: _on_transacted,
        BookiesChanged: _on_bookies,
    }


class RenewingInPlace(_InPlace):
    """Ends with the mark's revision, at which it is as postponed as when it was put first; or with LockLost,
    MetadataUnavailable, or MetadataConflict: it is not that mark any more, and copies may be dropped."""

    def __init__(self, plan: InPlacePlan, hold: ArchiveHold) -> None:
        super().__init__(plan.ledger.ledger_id, hold)
        self.plan = plan

    def _on_started(self, event: Started) -> list[Effect]:
        return self._renew()

    def _renew(self) -> list[Effect]:
        key = repair_mark_path(self.ledger_id)
        when = [self.hold.compared, Compare(key, self.plan.mark_revision)]
        return [Transact("renew", when, [Put(key, self.plan.mark)])]

    def _again(self) -> list[Effect]:
        return [ReadKey("lock", self.hold.key)]

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if event.tag == "lock":
            if not self._is_held(event):
                raise self._lost_lock()
            return [ReadKey("mark", repair_mark_path(self.ledger_id))]
        if event.value != self.plan.mark:
            raise self._changed("the mark that keeps its copies is gone, or another")
        if event.revision == self.plan.mark_revision:
            return self._renew()  # Or the one whose outcome is unknown comes first: then this one is refused.
        return [Ended(None, event.revision)]  # It compared the revision: the mark was there all the time.

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        return [Ended(None, event.revision)] if event.is_done else self._again()

    HANDLERS: ClassVar[Handlers] = {**_InPlace.HANDLERS, Started: _on_started, Transacted: _on_transacted}


class PublishingInPlace(_InPlace):
    """Ends with the ledger's metadata, which names bookies; or with LockLost, NoSuchLedger, MetadataUnavailable, or
    MetadataConflict: something was not as it was when they were chosen, and nothing was published, nor will be."""

    def __init__(self, plan: InPlacePlan, hold: ArchiveHold, naming: Naming) -> None:
        super().__init__(plan.ledger.ledger_id, hold)
        self.plan = plan
        self.naming = naming
        self.is_settled = False  # The transaction was refused: it never comes to pass.

    def _on_started(self, event: Started) -> list[Effect]:
        return self._publish()

    def _publish(self) -> list[Effect]:
        plan, key, mark = self.plan, ledger_key_path(self.ledger_id), repair_mark_path(self.ledger_id)
        restored = plan.restored
        when = [
            self.hold.compared,
            Compare(key, plan.revision),
            Compare(mark, plan.mark_revision),
            *self.naming.compares((), restored.fragments),
        ]
        return [Transact("publish", when, [Put(key, encode_ledger_metadata(restored)), Delete(mark)])]

    def _again(self) -> list[Effect]:
        return [ReadKey("ledger", ledger_key_path(self.ledger_id))]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if event.is_done:
            return [Ended(None, self.plan.restored)]
        # One that was sent before, of unknown outcome, compared the same: it landed before this one, or never does.
        self.is_settled = True
        return [*self.naming.ask()] or self._again()

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if self.naming.is_mine(event):
            return self._again() if self.naming.take(event) else []
        if event.tag == "lock":
            self.is_unknown = False
            raise self._changed("something else has changed") if self._is_held(event) else self._lost_lock()
        if event.value is None:
            raise self._gone()
        ledger = decode_ledger_metadata(event.value, self.ledger_id)
        if ledger.freed is None:
            return [Ended(None, ledger)]
        if self.is_settled:
            return [ReadKey("lock", self.hold.key)]
        if event.revision != self.plan.revision:
            self.is_unknown = False  # It compared the revision of before.
            raise self._changed("its metadata has changed")
        return self._publish()

    HANDLERS: ClassVar[Handlers] = {**_InPlace.HANDLERS, Started: _on_started, Transacted: _on_transacted}
