"""Making a new ledger: an id never used before, an ensemble, and its metadata if the key is absent (P2.1, CL01)."""

from __future__ import annotations

from typing import ClassVar

from embedbk.codec.digest import DigestType
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Durability,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
    first_fragments,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.config import ANYWHERE, Placement, Quorum
from embedbk.core.machine import Handlers, Machine
from embedbk.core.placement import Chance, fill_seats
from embedbk.core.vocabulary import (
    AllocateIds,
    BookieInfo,
    BookiesChanged,
    Effect,
    Ended,
    IdsAllocated,
    KeyRead,
    MetadataFailed,
    ReadKey,
    Started,
    Tick,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.errors import MetadataConflict, MetadataUnavailable, NotEnoughBookies

__all__ = ["Creation"]

_RETRY_NS = 200_000_000


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
    ) -> None:
        self.placement = placement
        self.quorum = quorum
        self.password_verifier = password_verifier
        self.created_ms = created_ms
        self.custom = custom
        self.bookies = bookies
        self.chance = chance
        self.durability = durability
        self.digest_type = digest
        self.metadata: LedgerMetadata | None = None
        self.retry_at: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.retry_at

    def _on_started(self, event: Started) -> list[Effect]:
        return self._refuse() or [AllocateIds("id", 1)]

    def _refuse(self) -> list[Effect]:
        """Too few writable bookies: refused before any write (CL01). Empty: there are enough."""
        writable = sum(1 for info in self.bookies if info.is_writable)
        if writable >= self.quorum.ensemble_size:
            return []
        return [
            Ended(
                NotEnoughBookies(
                    f"an ensemble of {self.quorum.ensemble_size} was asked for; {writable} writable bookies are "
                    "registered",
                    definite=True,
                    hint="start more bookies, or ask for a smaller ensemble",
                )
            )
        ]

    def _no_strict_placement(self) -> NotEnoughBookies:
        where = ", ".join(
            f"{info.member.bookie_id} in {info.location or 'no place'}" for info in self.bookies
        )
        return NotEnoughBookies(
            f"no ensemble of {self.quorum.ensemble_size} spans {self.placement.domains_min} "
            f"{self.placement.domain}s in every write set: {where}",
            definite=True,
            hint="start bookies elsewhere, or ask for a placement that is not strict",
        )

    def _on_ids(self, event: IdsAllocated) -> list[Effect]:
        if refused := self._refuse():
            return refused  # Bookies went while the id was fetched.
        seats = fill_seats(
            [None] * self.quorum.ensemble_size, self.bookies, (), self.quorum, self.placement, self.chance
        )
        members = [member for member in seats if member is not None]
        if len(members) < len(seats):
            return [Ended(self._no_strict_placement())]
        self.metadata = LedgerMetadata(
            METADATA_VERSION,
            event.first_id,
            self.quorum.ensemble_size,
            self.quorum.write_quorum,
            self.quorum.ack_quorum,
            LedgerState.OPEN,
            None,
            None,
            self.password_verifier,
            self.created_ms,
            self.custom,
            first_fragments(tuple(members)),
            self.durability,
            self.digest_type,
        )
        return self._put()

    def _put(self) -> list[Effect]:
        assert self.metadata is not None
        key = ledger_key_path(self.metadata.ledger_id)
        return [Transact("create", [Compare(key, ABSENT)], [Put(key, encode_ledger_metadata(self.metadata))])]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        assert self.metadata is not None
        if event.is_done:
            return [Ended(None, (self.metadata, event.revision))]
        return [ReadKey("created", ledger_key_path(self.metadata.ledger_id))]

    def _on_unknown(self, event: TransactUnknown) -> list[Effect]:
        assert self.metadata is not None
        return [ReadKey("created", ledger_key_path(self.metadata.ledger_id))]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        """The id is ours alone, so what stands there is our own lost success; absent proves nothing: put again."""
        assert self.metadata is not None
        if event.value is None:
            return self._put()
        if event.value == encode_ledger_metadata(self.metadata):
            return [Ended(None, (self.metadata, event.revision))]
        return [Ended(MetadataConflict(f"ledger id {self.metadata.ledger_id} was handed out twice"))]

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        if self.metadata is None:
            return [Ended(MetadataUnavailable(f"no ledger id could be had: {event.reason}", definite=True))]
        self.retry_at = event.now_ns + _RETRY_NS  # Our put may have landed: only another read tells.
        return []

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies = event.bookies
        return []

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.retry_at is None or event.now_ns < self.retry_at:
            return []
        assert self.metadata is not None
        self.retry_at = None
        return [ReadKey("created", ledger_key_path(self.metadata.ledger_id))]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        IdsAllocated: _on_ids,
        Transacted: _on_transacted,
        TransactUnknown: _on_unknown,
        KeyRead: _on_key_read,
        MetadataFailed: _on_metadata_failed,
        BookiesChanged: _on_bookies,
        Tick: _on_tick,
    }
