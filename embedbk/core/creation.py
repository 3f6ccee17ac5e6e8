"""Making a new ledger: an id never used before, an ensemble, and its metadata if the key is absent (P2.1, CL01).

Where too few bookies are writable just now, it waits for those that the cluster is known to have: one that was
restarted, or that found no room for a moment, is back in the list soon. Nothing is written before there are enough.

An id that may have been put is put no second time: while the outcome was unknown the ledger may have been made, closed
by others and deleted, and would come back. Then another id is taken (P2.1).

A log's ledger is made and listed in one transaction: the list and the log's owner are compared beside it (P8.2). Where
those are not as compared, no ledger is made, and the creation ends: what follows from that, its log decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from embedbk.codec.digest import DigestType
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import (
    Durability,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
    first_fragments,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.config import ANYWHERE, Placement, Quorum
from embedbk.core.client_words import BookieInfo, BookiesChanged
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import (
    AllocateIds,
    Alongside,
    IdsAllocated,
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
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import MetadataConflict, MetadataUnavailable, NotEnoughBookies
from embedbk.ids import Member

__all__ = ["NO_PATIENCE", "AlongsideChanged", "Creation", "Patience"]

_RETRY_NS = 200_000_000


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for bookies, and for which."""

    until_ns: int = 0  # Wait until then at most; 0: do not wait when there are too few.
    known: tuple[str, ...] = ()  # Every bookie that the cluster ever had: a creation waits for no others.


NO_PATIENCE = Patience()


class AlongsideChanged(MetadataConflict):
    """What was to be compared beside the ledger has changed. No ledger was made by the last transaction; one of unknown
    outcome before it made its ledger, or never will."""


class Creation(Machine):
    """Creates one ledger. Ends with (metadata, revision)."""

    def __init__(
        self,
        quorum: Quorum,
        password_verifier: bytes,
        created_ms: int,
        custom: dict[str, bytes],
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        durability: int = Durability.SYNCED,
        placement: Placement = ANYWHERE,
        digest: int = DigestType.CRC32C,
        patience: Patience = NO_PATIENCE,
        beside: Callable[[int], Alongside] | None = None,
        writer: str = "",
    ) -> None:
        """beside: what else is in the transaction that makes the ledger, by its id. writer: as LedgerMetadata has it.
        Ends with AlongsideChanged as well, where something is compared there."""
        self.beside = beside
        # The transaction under way compares more than its ledger and its bookies.
        self.compares_beside = False
        self.writer = writer
        self.placement = placement
        self.patience = patience
        self.started_ns = 0
        self.is_short = False  # Waiting for bookies, until patience.until_ns.
        self.ledger_id: int | None = None
        self.quorum = quorum
        self.password_verifier = password_verifier
        self.created_ms = created_ms
        self.custom = custom
        self.bookies = bookies
        self.chance = chance
        self.durability = durability
        self.digest_type = digest
        self.metadata: LedgerMetadata | None = None
        self.naming = Naming()
        self.is_unsettled = (
            False  # A transaction came back unknown: it may have been done, or may still be (P2.2).
        )
        self.is_refused = False  # The last transaction: something was not as compared.
        self.retry_at: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return earliest(self.retry_at, self.patience.until_ns if self.is_short else None)

    @property
    def waits_for(self) -> str:
        return f"bookies: {', '.join(self._away())}" if self.is_short else ""

    def _on_started(self, event: Started) -> list[Effect]:
        self.started_ns = event.now_ns
        return self._go_on(event.now_ns)

    def _on_ids(self, event: IdsAllocated) -> list[Effect]:
        self.ledger_id = event.first_id
        return self._go_on(event.now_ns)  # Bookies may have gone while the id was fetched.

    def _go_on(self, now_ns: int) -> list[Effect]:
        """Begin when there are enough bookies; else wait for more, and refuse before any write (CL01)."""
        self.is_short = False
        if self._writable_count() < self.quorum.ensemble_size:
            return self._wait(now_ns, self._too_few)
        if self.ledger_id is None:
            return [AllocateIds("id", 1)]
        usable = self.naming.usable(self.bookies)
        seats = fill_seats(
            [None] * self.quorum.ensemble_size, usable, (), self.quorum, self.placement, self.chance
        )
        members = [member for member in seats if member is not None]
        if len(members) < len(seats):
            return self._wait(now_ns, self._no_strict_placement)
        return self._make(self.ledger_id, tuple(members))

    def _writable_count(self) -> int:
        return sum(1 for info in self.naming.usable(self.bookies) if info.is_writable)

    def _wait(self, now_ns: int, error: Callable[[int], NotEnoughBookies]) -> list[Effect]:
        away = self._away()
        are_known = bool(away) and self._writable_count() + len(away) >= self.quorum.ensemble_size
        if are_known and now_ns < self.patience.until_ns:
            self.is_short = True
            return []
        return [Ended(error(now_ns))]

    def _away(self) -> list[str]:
        """The known bookies that take no new ledgers, with the reasons as far as they are known here."""
        listed = {info.member.bookie_id: info.is_writable for info in self.naming.usable(self.bookies)}
        return [
            f"{bookie_id} is {'read-only' if bookie_id in listed else 'not registered'}"
            for bookie_id in sorted({*self.patience.known, *listed})
            if not listed.get(bookie_id)
        ]

    def _too_few(self, now_ns: int) -> NotEnoughBookies:
        waited_ns = now_ns - self.started_ns
        waited = f", and no more came within {waited_ns / 1e9:.1f} s" if waited_ns else ""
        away = self._away()
        told = f" ({', '.join(away)})" if away else ""
        hint = "start more bookies, or ask for a smaller ensemble"
        if away:
            hint = "bring back those that are away (their logs say why), " + hint
        return NotEnoughBookies(
            f"an ensemble of {self.quorum.ensemble_size} was asked for; {self._writable_count()} writable bookies are "
            f"registered{told}{waited}",
            definite=not self.is_unsettled,
            hint=hint,
        )

    def _no_strict_placement(self, now_ns: int) -> NotEnoughBookies:
        where = ", ".join(
            f"{info.member.bookie_id} in {info.location or 'no place'}" for info in self.bookies
        )
        return NotEnoughBookies(
            f"no ensemble of {self.quorum.ensemble_size} spans {self.placement.domains_min} "
            f"{self.placement.domain}s in every write set: {', '.join([where, *self._away()])}",
            definite=not self.is_unsettled,
            hint="start bookies elsewhere, or ask for a placement that is not strict",
        )

    def _make(self, ledger_id: int, members: tuple[Member, ...]) -> list[Effect]:
        self.naming.choose(members, self.bookies)
        self.metadata = LedgerMetadata(
            METADATA_VERSION,
            ledger_id,
            self.quorum.ensemble_size,
            self.quorum.write_quorum,
            self.quorum.ack_quorum,
            LedgerState.OPEN,
            None,
            None,
            self.password_verifier,
            self.created_ms,
            self.custom,
            first_fragments(members),
            self.durability,
            self.digest_type,
            writer=self.writer,
        )
        return self._put()

    def _put(self) -> list[Effect]:
        assert self.metadata is not None
        key = ledger_key_path(self.metadata.ledger_id)
        when = [Compare(key, ABSENT), *self.naming.compares((), self.metadata.fragments)]
        then: list[Put | Delete] = [Put(key, encode_ledger_metadata(self.metadata))]
        if self.beside is not None:
            beside = self.beside(self.metadata.ledger_id)
            self.compares_beside = bool(beside.when)
            when, then = [*beside.when, *when], [*then, *beside.then]
        self.is_refused = False
        return [Transact("create", when, then)]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        assert self.metadata is not None
        if event.is_done:
            return [Ended(None, (self.metadata, event.revision))]
        self.is_refused = True
        return [*self.naming.ask()] or [ReadKey("created", ledger_key_path(self.metadata.ledger_id))]

    def _on_unknown(self, event: TransactUnknown) -> list[Effect]:
        assert self.metadata is not None
        self.is_unsettled = True
        return [ReadKey("created", ledger_key_path(self.metadata.ledger_id))]

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        return [
            Ended(
                MetadataUnavailable(
                    f"no ledger could be made: {event.reason}",
                    definite=not self.is_unsettled,
                    hint="open ledgers go on; try again when there is room in the metadata",
                )
            )
        ]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        """The id is ours alone, so a value under it is our own lost success; after an unknown outcome an absent key
        proves nothing: another id. Read after a refusal, and a placement that has changed, it proves that nothing was
        made, nor will be: others are chosen (P10.6)."""
        assert self.metadata is not None
        if self.naming.is_mine(event):
            is_last = self.naming.take(event)
            return [ReadKey("created", ledger_key_path(self.metadata.ledger_id))] if is_last else []
        if event.value is not None:
            return self._on_made(self.metadata, event)
        if self.is_refused and self.compares_beside and not self.naming.is_outdated:
            return [Ended(AlongsideChanged("what a new ledger goes by has changed", definite=True))]
        if self.is_unsettled:
            return self._take_another_id(event.now_ns)
        return self._go_on(event.now_ns) if self.naming.is_outdated else self._put()

    def _on_made(self, metadata: LedgerMetadata, event: KeyRead) -> list[Effect]:
        if event.value == encode_ledger_metadata(metadata):
            return [Ended(None, (metadata, event.revision))]
        if self.compares_beside and self.is_unsettled:
            # It was made and listed, and others have changed it since: what the list says by now, its log has to see.
            return [Ended(AlongsideChanged(f"ledger {metadata.ledger_id} is another client's by now"))]
        return [Ended(MetadataConflict(f"ledger id {metadata.ledger_id} was handed out twice"))]

    def _take_another_id(self, now_ns: int) -> list[Effect]:
        self.ledger_id = self.metadata = None
        return self._go_on(now_ns)

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        if self.metadata is None and not self.is_unsettled:
            return [Ended(MetadataUnavailable(f"no ledger id could be had: {event.reason}", definite=True))]
        # Our put may have landed, which only another read shows; or the next id is asked for again.
        self.retry_at = event.now_ns + _RETRY_NS
        return []

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies = event.bookies
        self.naming.listed(event.bookies)
        return self._go_on(event.now_ns) if self.is_short else []

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.is_short and event.now_ns >= self.patience.until_ns:
            return self._go_on(event.now_ns)
        if self.retry_at is None or event.now_ns < self.retry_at:
            return []
        self.retry_at = None
        if self.metadata is None:
            return self._go_on(event.now_ns)
        return [ReadKey("created", ledger_key_path(self.metadata.ledger_id))]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        IdsAllocated: _on_ids,
        Transacted: _on_transacted,
        TransactRefused: _on_refused,
        TransactUnknown: _on_unknown,
        KeyRead: _on_key_read,
        MetadataFailed: _on_metadata_failed,
        BookiesChanged: _on_bookies,
        Tick: _on_tick,
    }
