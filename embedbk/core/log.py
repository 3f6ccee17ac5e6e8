"""Taking a log over: epoch, list, recover-and-close, create, and one compare-and-set of the list (P8.1).

Decides the order, and that no write is served before the list names the new ledger. Any number of processes may believe
that they lead; of those at most one appends (P8.4). Runs `Recovery` and `Creation`
inside itself; their requests go out under ("sub", n, tag). Ledgers that closed empty leave the list in that transaction
(P8.3); `core.leaving` deletes them behind it.

    EPOCH -> LIST -> RECOVER each ledger not recorded as closed -> LEFT -> CREATE -> COMMIT -> ended
               ^---------------------- refused, and the epoch is still ours ------------'
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec.structs import replace

from embedbk.codec.digest import DigestType
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Durability,
    LedgerMetadata,
    LedgersLeft,
    LogList,
    LogSegment,
    decode_ledger_metadata,
    decode_ledgers_left,
    decode_log_list,
    encode_ledgers_left,
    encode_log_list,
    ledger_key_path,
    log_key_path,
    log_left_path,
    log_owner_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.config import (
    ANYWHERE,
    LEDGERS_LEFT_MAX,
    METADATA_VALUE_BYTES_MAX,
    Placement,
    Quorum,
)
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, Send, SendFailed
from embedbk.core.contending import back_off_ns
from embedbk.core.creation import NO_PATIENCE, Creation, Patience
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import (
    AllocateIds,
    IdsAllocated,
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.placement import Chance
from embedbk.core.recovery import Recovery, RecoveryOptions
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import (
    EmbedbkError,
    LedgerFenced,
    LogFull,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedger,
    StorageError,
    WrongPassword,
    ensure,
)
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = ["LogTakeover", "TakenOver", "first_free_offset"]

_RETRY_NS = 100_000_000
_ROUNDS_MAX = (
    50  # List read again this often while the epoch is ours: somebody rewrites it without owning it.
)
_UNDO_ROUNDS_MAX = 5  # The list moved on so often while who was refused deleted the ledger that it had made.


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The log is ours until a newer epoch fences us: append to this ledger."""

    epoch: int
    log_list: LogList
    list_revision: int
    metadata: LedgerMetadata
    revision: int

    @property
    def first_offset(self) -> int:
        return self.log_list.segments[-1].first_offset


class _Stage(enum.Enum):
    EPOCH = "epoch"
    LIST = "list"
    RECOVER = "recover"
    LEFT = "left"
    CREATE = "create"
    COMMIT = "commit"
    UNDO = "undo"
    ENDED = "ended"


def first_free_offset(segments: tuple[LogSegment, ...]) -> int:
    """The dense offset behind the last segment, all of which must be recorded as closed."""
    if not segments:
        return 0
    last = segments[-1]
    assert last.last_entry is not None
    return last.first_offset + last.last_entry + 1


class LogTakeover(Machine):
    """One process taking one log over. Ends with TakenOver, or with an error."""

    def __init__(
        self,
        name: str,
        owner: bytes,
        quorum: Quorum,
        ledger_key: bytes,
        password_verifier: bytes,
        created_ms: int,
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        durability: int = Durability.SYNCED,
        placement: Placement = ANYWHERE,
        digest: int = DigestType.CRC32C,
        mac_key: bytes = b"",
        patience: Patience = NO_PATIENCE,
        losses: int = 0,
        renews: int | None = None,
    ) -> None:
        """losses: how often this process lost the log lately, one after the other (core/contending.py).

        renews: the epoch of the owner who takes the log over from itself; if anybody else has it by now, it is fenced.
        `owner` is then a word that no other takeover has.
        """
        self.name = name
        self.renews = renews
        self.losses = losses
        self.patience = patience  # With bookies for the new ledger.
        self.digest_type = digest  # Of the new ledger.
        self.mac_key = mac_key  # By which the tags of those before are checked, where they have any.
        self.placement = placement
        self.owner = owner  # Who takes over, for people; the fencing token is the epoch.
        self.quorum = quorum
        self.ledger_key = ledger_key
        self.password_verifier = password_verifier
        self.created_ms = created_ms
        self.bookies = bookies
        self.chance = chance
        self.durability = durability  # Of the new ledger.
        self.stage = _Stage.EPOCH
        self.epoch = 0
        self.segments: tuple[LogSegment, ...] = ()
        self.list_revision = ABSENT
        self.left: tuple[int, ...] = ()  # That left the list before and are still to be deleted.
        self.left_revision = ABSENT
        self.leaving: frozenset[int] = frozenset()  # That leave it with our commit.
        self.rounds = 0
        self.commit_is_unknown = False
        self.undo_rounds = 0
        self.standing: tuple[bytes | None, int] = (None, ABSENT)  # The list that stood instead of ours.
        self.fenced = LedgerFenced(f"log {name!r} was taken over", definite=True)
        self.new_list: LogList | None = None  # What our last commit would publish.
        self.created: tuple[LedgerMetadata, int] | None = None
        self.sub: Recovery | Creation | None = None
        self.sub_number = 0
        self.retry_at: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return earliest(self.retry_at, self.sub.deadline_ns if self.sub else None)

    @property
    def waits_for(self) -> str:
        return "" if self.sub is None else self.sub.waits_for

    # Epoch and list.

    def _on_started(self, event: Started) -> list[Effect]:
        """Nobody hears of us before we have waited: whoever holds the log gets to write (P8.1)."""
        wait_ns = back_off_ns(self.losses, self.chance)
        if wait_ns:
            self.retry_at = event.now_ns + wait_ns
            return []
        return self._take_epoch()

    def _take_epoch(self) -> list[Effect]:
        """The revision of our own put is the epoch: cluster-wide, strictly rising (P9.2)."""
        path = log_owner_path(self.name)
        when = [] if self.renews is None else [Compare(path, self.renews)]
        return [Transact("epoch", when, [Put(path, self.owner)])]

    def _on_holder(self, event: KeyRead) -> list[Effect]:
        """The log was not taken over from itself: another owner has it, or an earlier put of ours landed."""
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

    def _read_list(self) -> list[Effect]:
        self.stage = _Stage.LIST
        self.rounds += 1
        if self.rounds > _ROUNDS_MAX:
            return self._end(
                MetadataConflict(f"log {self.name!r}: its list changed {_ROUNDS_MAX} times under its owner")
            )
        return [ReadKey("list", log_key_path(self.name))]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        kind = event.tag[0] if isinstance(event.tag, tuple) else event.tag
        if kind == "sub":
            return self._step_sub(event)
        if kind == "holder" and self.stage is _Stage.EPOCH:
            return self._on_holder(event)
        if kind == "list" and self.stage is _Stage.LIST:
            return self._on_list(event)
        if kind == "ledger" and self.stage is _Stage.RECOVER:
            return self._on_listed_ledger(event)
        if kind == "left" and self.stage is _Stage.LEFT:
            return self._on_left(event)
        if kind == "committed" and self.stage is _Stage.COMMIT:
            return self._on_committed_list(event)
        if kind == "standing" and self.stage is _Stage.UNDO:
            self.standing = (event.value, event.revision if event.value is not None else ABSENT)
            return self._undo(self.fenced)
        if kind == "owner" and self.stage is _Stage.COMMIT:
            return self._on_owner(event)
        return []

    def _on_list(self, event: KeyRead) -> list[Effect]:
        if self._is_ours(event.value):
            return self._taken_over(event.revision)  # An earlier commit, of which we did not hear.
        self.list_revision = event.revision if event.value is not None else ABSENT
        self.segments = ()
        if event.value is not None:
            try:
                self.segments = decode_log_list(event.value, self.name).segments
            except StorageError as unread:
                return self._end(unread)
        full = self._full([segment for segment in self.segments if segment.last_entry != NO_ENTRY])
        if full is not None:
            return self._end(full)  # Before anything is touched: whoever writes goes on.
        return self._recover_next(event.now_ns)

    def _full(self, staying: list[LogSegment]) -> LogFull | None:
        """Whether no ledger fits behind these, at the most that their ends may take."""
        most = [replace(s, last_entry=LEDGER_ID_MAX) if s.last_entry is None else s for s in staying]
        ours = LogSegment(LEDGER_ID_MAX, LEDGER_ID_MAX, None)
        size = len(encode_log_list(LogList(METADATA_VERSION, self.epoch, (*most, ours))))
        if size <= METADATA_VALUE_BYTES_MAX:
            return None
        return LogFull(
            f"log {self.name!r} is full: its list of {len(staying)} ledgers would have {size} bytes with one more, "
            f"allowed are {METADATA_VALUE_BYTES_MAX}; nothing was changed",
            hint="write to another log from now on; delete_log() deletes this one when it was read",
        )

    # Recover and close every ledger of the list that is not recorded there as closed.

    def _recover_next(self, now_ns: int) -> list[Effect]:
        self.stage = _Stage.RECOVER
        for segment in self.segments:
            if segment.last_entry is None:
                return [ReadKey(("ledger", segment.ledger_id), ledger_key_path(segment.ledger_id))]
        self.leaving = frozenset()
        if any(segment.last_entry == NO_ENTRY for segment in self.segments):
            self.stage = _Stage.LEFT
            return [ReadKey("left", log_left_path(self.name))]
        return self._create(now_ns)

    def _on_listed_ledger(self, event: KeyRead) -> list[Effect]:
        if event.value is None:
            # Gone meanwhile: the list must have changed. Read it again (P8.1).
            self.retry_at = event.now_ns + _RETRY_NS
            return []
        try:
            metadata = decode_ledger_metadata(event.value, event.tag[1])
        except StorageError as unread:
            return self._end(unread)  # What cannot be read cannot be recovered: the list stays as it is.
        if metadata.password_verifier != self.password_verifier:
            # Seen before anything of the ledger is touched: a wrong password changes nothing (P3.5).
            return self._end(
                WrongPassword(f"log {self.name!r}: its ledger {metadata.ledger_id} has another password")
            )
        nonce = self.chance.getrandbits(63)
        options = RecoveryOptions(placement=self.placement)
        recovery = Recovery(
            metadata, event.revision, self.ledger_key, nonce, self.bookies, self.chance, options, self.mac_key
        )
        return self._start_sub(recovery, event.now_ns)

    def _on_recovered(self, ended: Ended, now_ns: int) -> list[Effect]:
        if isinstance(ended.error, NoSuchLedger):
            self.retry_at = now_ns + _RETRY_NS
            return []
        if ended.error is not None:
            return self._end(ended.error)
        metadata, _ = ended.result
        ensure(metadata.is_closed, "a takeover goes on only behind closed ledgers")
        segments = list(self.segments)
        index = next(i for i, segment in enumerate(segments) if segment.ledger_id == metadata.ledger_id)
        # The front of a truncated log keeps its place; what stands before it is not listed any more (P8.3).
        first_offset = first_free_offset(self.segments[:index]) if index else segments[0].first_offset
        segments[index] = LogSegment(metadata.ledger_id, first_offset, metadata.last_entry)
        self.segments = tuple(segments)
        return self._recover_next(now_ns)

    # What leaves the list: ledgers that closed empty, of which nobody misses anything (P8.3).

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

    # The new ledger, and the list that names it.

    def _create(self, now_ns: int) -> list[Effect]:
        self.stage = _Stage.CREATE
        if self.created is not None:
            return self._commit()
        full = self._full(self._staying)
        if full is not None:
            return self._end(full)
        creation = Creation(
            self.quorum,
            self.password_verifier,
            self.created_ms,
            {"log": self.name.encode()},
            self.bookies,
            self.chance,
            self.durability,
            self.placement,
            self.digest_type,
            self.patience,
        )
        return self._start_sub(creation, now_ns)

    def _on_created(self, ended: Ended) -> list[Effect]:
        if ended.error is not None:
            return self._end(ended.error)
        self.created = ended.result
        return self._commit()

    def _commit(self) -> list[Effect]:
        """One transaction: the list is as read, the epoch is the newest, the ledger it names exists; what leaves the
        list is put where `core.leaving` finds it, also behind a crash (P8.3)."""
        assert self.created is not None
        self.stage = _Stage.COMMIT
        metadata, revision = self.created
        segment = LogSegment(metadata.ledger_id, first_free_offset(self.segments), None)
        self.new_list = LogList(METADATA_VERSION, self.epoch, (*self._staying, segment))
        when = [
            Compare(log_key_path(self.name), self.list_revision),
            Compare(log_owner_path(self.name), self.epoch),
            Compare(ledger_key_path(metadata.ledger_id), revision),
        ]
        then: list[Put | Delete] = [Put(log_key_path(self.name), encode_log_list(self.new_list))]
        if self.leaving:
            left = LedgersLeft(METADATA_VERSION, (*self.left, *sorted(self.leaving)))
            when.append(Compare(log_left_path(self.name), self.left_revision))
            then.append(Put(log_left_path(self.name), encode_ledgers_left(left)))
        return [Transact("commit", when, then)]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if isinstance(event.tag, tuple):
            return self._step_sub(event)
        if event.tag == "epoch" and self.stage is _Stage.EPOCH:
            if not event.is_done:
                return [ReadKey("holder", log_owner_path(self.name))]
            self.epoch = event.revision
            return self._read_list()
        if self.stage is _Stage.UNDO:
            self.undo_rounds += 1
            if event.is_done or self.undo_rounds == _UNDO_ROUNDS_MAX:
                return self._end(self.fenced)
            return [ReadKey("standing", log_key_path(self.name))]  # The list has moved on.
        if event.tag != "commit" or self.stage is not _Stage.COMMIT:
            return []
        if event.is_done:
            return self._taken_over(event.revision)
        self.commit_is_unknown = (
            False  # Refused now, so an earlier one landed or never will (same list revision).
        )
        return [ReadKey("committed", log_key_path(self.name))]

    def _on_unknown(self, event: TransactUnknown) -> list[Effect]:
        if isinstance(event.tag, tuple):
            return self._step_sub(event)
        if self.stage is _Stage.UNDO:
            return self._end(self.fenced)
        if event.tag == "epoch":
            self.retry_at = event.now_ns + _RETRY_NS  # A second put only gives a higher epoch.
            return []
        self.commit_is_unknown = True
        return [ReadKey("committed", log_key_path(self.name))]

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        """Not run, and never will be: said at once with what is full, not after a timeout."""
        if isinstance(event.tag, tuple):
            return self._step_sub(event)
        if self.stage is _Stage.UNDO:
            return self._end(self.fenced)
        return self._end(
            MetadataUnavailable(
                f"log {self.name!r} cannot be taken over: {event.reason}",
                definite=not self.commit_is_unknown,  # One before may have landed.
                hint="its entries can be read; make room in the metadata, then take it over again",
            )
        )

    def _on_committed_list(self, event: KeyRead) -> list[Effect]:
        """The commit was refused or is unknown: our own list standing there means done (P2.2)."""
        if self._is_ours(event.value):
            return self._taken_over(event.revision)
        self.standing = (event.value, event.revision if event.value is not None else ABSENT)
        return [ReadKey("owner", log_owner_path(self.name))]

    def _is_ours(self, value: bytes | None) -> bool:
        return self.new_list is not None and value == encode_log_list(self.new_list)

    def _on_owner(self, event: KeyRead) -> list[Effect]:
        if event.value is None or event.revision != self.epoch:
            self.fenced = LedgerFenced(
                f"log {self.name!r} was taken over by another process meanwhile",
                hint="one writer at a time: take it over again only if this process should be the one",
                definite=True,
            )
            return self._undo(self.fenced)
        if self.commit_is_unknown:
            return self._commit()
        self.retry_at = event.now_ns + _RETRY_NS
        return []

    def _undo(self, fenced: LedgerFenced) -> list[Effect]:
        """Delete the ledger that we made and that nobody will ever write to: our commit compares an epoch that is gone,
        and the list that stands, which is checked in the transaction, does not name it (P8.3)."""
        assert self.created is not None
        metadata, revision = self.created
        value, list_revision = self.standing
        try:
            listed = decode_log_list(value, self.name).segments if value is not None else ()
        except StorageError:
            return self._end(fenced)
        if any(segment.ledger_id == metadata.ledger_id for segment in listed):
            return self._end(fenced)  # It landed, and was taken over: it is part of the log.
        self.stage = _Stage.UNDO
        key = ledger_key_path(metadata.ledger_id)
        when = [Compare(log_key_path(self.name), list_revision), Compare(key, revision)]
        return [Transact("undo", when, [Delete(key)])]

    def _taken_over(self, list_revision: int) -> list[Effect]:
        assert self.created is not None
        assert self.new_list is not None
        self.stage = _Stage.ENDED
        metadata, revision = self.created
        return [Ended(None, TakenOver(self.epoch, self.new_list, list_revision, metadata, revision))]

    def _end(self, error: EmbedbkError) -> list[Effect]:
        self.stage = _Stage.ENDED
        self.sub = None
        self.retry_at = None
        return [Ended(error)]

    # The machines inside.

    def _start_sub(self, sub: Recovery | Creation, now_ns: int) -> list[Effect]:
        self.sub = sub
        self.sub_number += 1
        return self._wrap(sub.step(Started(now_ns)), now_ns)

    def _step_sub(self, event: Any) -> list[Effect]:
        """An event for the machine inside; one for an earlier one is dropped."""
        _, number, tag = event.tag
        if self.sub is None or number != self.sub_number:
            return []
        return self._wrap(self.sub.step(replace(event, tag=tag)), event.now_ns)

    def _wrap(self, effects: list[Effect], now_ns: int) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Ended):
                was, self.sub = self.sub, None
                out += (
                    self._on_recovered(effect, now_ns)
                    if isinstance(was, Recovery)
                    else self._on_created(effect)
                )
            elif isinstance(effect, Send | ReadKey | Transact | AllocateIds):
                out.append(replace(effect, tag=("sub", self.sub_number, effect.tag)))
        return out

    def _on_answer(self, event: Answered | SendFailed | IdsAllocated) -> list[Effect]:
        return self._step_sub(event)

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        if isinstance(event.tag, tuple) and event.tag[0] == "sub":
            return self._step_sub(event)
        if self.stage is _Stage.UNDO:
            return self._end(self.fenced)
        self.retry_at = event.now_ns + _RETRY_NS
        return []

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies = event.bookies
        return self._wrap(self.sub.step(event), event.now_ns) if self.sub is not None else []

    def _on_tick(self, event: Tick) -> list[Effect]:
        effects: list[Effect] = []
        if self.sub is not None and self.sub.deadline_ns is not None and event.now_ns >= self.sub.deadline_ns:
            effects += self._wrap(self.sub.step(event), event.now_ns)
        if self.retry_at is not None and event.now_ns >= self.retry_at:
            self.retry_at = None
            effects += self._try_again()
        return effects

    def _try_again(self) -> list[Effect]:
        if self.stage is _Stage.EPOCH:
            return self._take_epoch()
        if self.commit_is_unknown:
            # A commit may still be in flight: it lands, or winning another from the same list settles it (P2.2).
            return [ReadKey("committed", log_key_path(self.name))]
        return self._read_list()

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        KeyRead: _on_key_read,
        Transacted: _on_transacted,
        TransactRefused: _on_refused,
        TransactUnknown: _on_unknown,
        Answered: _on_answer,
        SendFailed: _on_answer,
        IdsAllocated: _on_answer,
        MetadataFailed: _on_metadata_failed,
        BookiesChanged: _on_bookies,
        Tick: _on_tick,
    }
