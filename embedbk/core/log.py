"""Taking a log over: epoch, list, recover-and-close, create, and one compare-and-set of the list (P8.1).

Decides the order, and that no write is served before the list names the new ledger. Any number of processes may believe
that they lead; of those at most one appends (P8.4). Ledgers that closed empty leave the list in the transaction that
names the new one (P8.3); `core.leaving` deletes them behind it. How that ledger is made and listed stands in
`core.log_listing`.

    EPOCH -> LIST -> RECOVER each ledger not recorded as closed -> LEFT -> CREATE -> COMMIT -> ended
               ^---------------------- refused, and the epoch is still ours ------------'
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_list import (
    LedgersLeft,
    LogSegment,
    decode_ledgers_left,
    encode_ledgers_left,
    log_left_path,
    log_owner_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.config import LEDGERS_LEFT_MAX
from embedbk.core.client_words import BookieInfo
from embedbk.core.contending import back_off_ns
from embedbk.core.log_listing import Listing, NewLedger, Stage, first_free_offset
from embedbk.core.machine import Effect, Handlers
from embedbk.core.metadata_words import KeyRead, ReadKey, Transact, Transacted, TransactUnknown
from embedbk.core.placement import Chance
from embedbk.core.recovery import Recovery, RecoveryOptions
from embedbk.core.retrying import RETRY_NS
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import (
    LedgerFenced,
    MetadataConflict,
    NoSuchLedger,
    StorageError,
    WrongPassword,
    ensure,
)
from embedbk.ids import NO_ENTRY

__all__ = ["LogMoved", "LogTakeover"]


class LogMoved(MetadataConflict):
    """The name does not lead to the log any more; nobody was fenced. A takeover asks again where the
    name leads (P8.12)."""


class LogTakeover(Listing):
    """One process taking one log over. Ends with TakenOver, or with an error."""

    CANNOT = "cannot be taken over"

    def __init__(
        self,
        name: str,
        owner: bytes,
        new: NewLedger,
        ledger_key: bytes,
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        *,
        mac_key: bytes = b"",
        losses: int = 0,
        renews: int | None = None,
        guard: tuple[Compare, ...] = (),
    ) -> None:
        """owner: the name of the new owner, for people; the fencing token is the epoch. mac_key: by which the tags of
        the ledgers before are checked, where they have any. losses: how often this process lost the log lately, one
        after the other (core/contending.py).

        renews: the epoch of the owner who takes the log over from itself; if anybody else has it by now, it is fenced.
        `owner` is then a word that no other takeover has.

        guard: that the name by which it is taken over still leads to this log, compared with the epoch's put: nobody
        gets an epoch of a log that was deleted (P8.12). An owner who renews needs none: the deletion takes the epoch.
        """
        super().__init__(name, 0, new, bookies, chance)
        self.renews = renews
        self.guard = guard
        self.losses = losses
        self.mac_key = mac_key
        self.owner = owner
        self.ledger_key = ledger_key
        self.stage = Stage.EPOCH
        self.left: tuple[int, ...] = ()  # Ledgers that left the list before and are still to be deleted.
        self.left_revision = ABSENT
        self.leaving: frozenset[int] = frozenset()  # Ledgers that leave the list with our commit.

    # Epoch and list.

    def _on_started(self, event: Started) -> list[Effect]:
        """Wait before any other process notices this takeover, so that the present owner gets to write (P8.1)."""
        wait_ns = back_off_ns(self.losses, self.chance)
        if wait_ns:
            self.retry_at = event.now_ns + wait_ns
            return []
        return self._take_epoch()

    def _take_epoch(self) -> list[Effect]:
        """The revision of our own put is the epoch: cluster-wide, strictly rising (P9.2)."""
        path = log_owner_path(self.name)
        when = [*self.guard] if self.renews is None else [Compare(path, self.renews)]
        return [Transact("epoch", when, [Put(path, self.owner)])]

    def _on_holder(self, event: KeyRead) -> list[Effect]:
        """The renewal was refused: another owner has the log, or an earlier put of ours landed."""
        if event.value == self.owner:
            self.renews = event.revision
            return self._take_epoch()
        return self._end(
            LedgerFenced(
                f"log {self.name!r} was taken over: the fencing token of this writer is {self.renews}, and "
                f"{event.revision} has the log",
                hint="one writer at a time: open a new writer only if this process should be the one",
                definite=True,
            )
        )

    def _on_own_key(self, event: KeyRead) -> list[Effect]:
        kind = event.tag[0] if isinstance(event.tag, tuple) else event.tag
        if kind == "holder" and self.stage is Stage.EPOCH:
            return self._on_holder(event)
        if kind == "ledger" and self.stage is Stage.RECOVER:
            return self._on_listed_ledger(event)
        if kind == "left" and self.stage is Stage.LEFT:
            return self._on_left(event)
        return []

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if event.tag != "epoch" or self.stage is not Stage.EPOCH:
            return super()._on_transacted(event)
        if not event.is_done and self.renews is None:
            return self._end(LogMoved(f"log {self.name!r} was renamed or deleted just now", definite=True))
        if not event.is_done:
            return [ReadKey("holder", log_owner_path(self.name))]
        self.epoch = event.revision
        return self._read_list()

    def _on_unknown(self, event: TransactUnknown) -> list[Effect]:
        if event.tag == "epoch":
            self.retry_at = event.now_ns + RETRY_NS  # A second put only gives a higher epoch.
            return []
        return super()._on_unknown(event)

    def _try_again(self) -> list[Effect]:
        return self._take_epoch() if self.stage is Stage.EPOCH else super()._try_again()

    def _on_segments(self, now_ns: int) -> list[Effect]:
        full = self._full([segment for segment in self.segments if segment.last_entry != NO_ENTRY])
        if full is not None:
            return self._end(full)  # Before anything is touched: the present writer goes on.
        return self._recover_next(now_ns)

    # Recover and close every ledger of the list that is not recorded there as closed.

    def _recover_next(self, now_ns: int) -> list[Effect]:
        self.stage = Stage.RECOVER
        for segment in self.segments:
            if segment.last_entry is None:
                return [ReadKey(("ledger", segment.ledger_id), ledger_key_path(segment.ledger_id))]
        return self._all_closed(now_ns)

    def _all_closed(self, now_ns: int) -> list[Effect]:
        """Whether every ledger of the list that we know is recorded as closed."""
        self.leaving = frozenset()
        if any(segment.last_entry == NO_ENTRY for segment in self.segments):
            self.stage = Stage.LEFT
            return [ReadKey("left", log_left_path(self.name))]
        return self._create(now_ns)

    def _on_listed_ledger(self, event: KeyRead) -> list[Effect]:
        if event.value is None:
            # Gone meanwhile: the list must have changed. Read it again (P8.1).
            self.retry_at = event.now_ns + RETRY_NS
            return []
        try:
            metadata = decode_ledger_metadata(event.value, event.tag[1])
        except StorageError as unread:
            return self._end(unread)  # What cannot be read cannot be recovered: the list stays as it is.
        if metadata.password_verifier != self.new.password_verifier:
            # Seen before anything of the ledger is touched: a wrong password changes nothing (P3.5).
            return self._end(
                WrongPassword(f"log {self.name!r}: its ledger {metadata.ledger_id} has another password")
            )
        nonce = self.chance.getrandbits(63)
        options = RecoveryOptions(placement=self.new.placement)
        recovery = Recovery(
            metadata, event.revision, self.ledger_key, nonce, self.bookies, self.chance, options, self.mac_key
        )
        return self._start_sub(recovery, event.now_ns)

    def _on_recovered(self, ended: Ended, now_ns: int) -> list[Effect]:
        if isinstance(ended.error, NoSuchLedger):
            self.retry_at = now_ns + RETRY_NS
            return []
        if ended.error is not None:
            return self._end(ended.error)
        metadata, _ = ended.result
        ensure(metadata.is_closed, "a takeover goes on only behind closed ledgers")
        segments = list(self.segments)
        index = next(i for i, segment in enumerate(segments) if segment.ledger_id == metadata.ledger_id)
        # The front of a truncated log keeps its place; what stands before it is not listed any more (P8.3).
        first_offset = first_free_offset(self.segments[:index]) if index else segments[0].first_offset
        segments[index] = replace(
            segments[index],
            first_offset=first_offset,
            last_entry=metadata.last_entry,
            length=metadata.length if self.new.page_ledgers else None,
        )
        self.segments = tuple(segments)
        return self._recover_next(now_ns)

    # What leaves the list: ledgers that closed empty, in which no reader misses anything (P8.3).

    def _on_left(self, event: KeyRead) -> list[Effect]:
        self.left_revision = event.revision if event.value is not None else ABSENT
        try:
            self.left = decode_ledgers_left(event.value).ledger_ids if event.value is not None else ()
        except StorageError:
            return self._create(event.now_ns)  # Not ours to write over: nothing leaves this time.
        room = max(0, LEDGERS_LEFT_MAX - len(self.left))
        empty = [segment.ledger_id for segment in self.segments if segment.last_entry == NO_ENTRY]
        self.leaving = frozenset(empty[:room])
        return self._create(event.now_ns)

    @property
    def _staying(self) -> list[LogSegment]:
        return [segment for segment in self.segments if segment.ledger_id not in self.leaving]

    # The transaction.

    def _segment_of(self, ledger_id: int) -> LogSegment:
        first_offset = first_free_offset(self.segments)
        return LogSegment(ledger_id, first_offset, None, self.new.created_ms, self.new.begun)

    def _with_commit(self) -> tuple[list[Compare], list[Put | Delete]]:
        """What leaves the list is put where `core.leaving` finds it, also behind a crash (P8.3)."""
        if not self.leaving:
            return [], []
        left = LedgersLeft(METADATA_VERSION, (*self.left, *sorted(self.leaving)))
        path = log_left_path(self.name)
        return [Compare(path, self.left_revision)], [Put(path, encode_ledgers_left(left))]

    HANDLERS: ClassVar[Handlers] = {
        **Listing.HANDLERS,
        Started: _on_started,
        Transacted: _on_transacted,
        TransactUnknown: _on_unknown,
    }
