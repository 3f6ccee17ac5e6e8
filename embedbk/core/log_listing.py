"""Putting one more ledger behind a log's list: made and published as the last in one transaction (P8.1, P8.2).

Decides what becomes of a commit whose outcome is not known. A ledger that stands already, or whose list changes with
too much else, is published in a transaction of its own; if that was made for the log and is not listed, it is deleted.
What must hold of the list before, its kinds decide: `core.log`, a takeover, `core.log_rolling`, the owner's next
ledger, and `core.log_replacing`, that behind one which failed. Runs other machines inside itself; their requests go out
under ("sub", n, tag).

    LIST -> (the kind's own steps) -> CREATE, which lists it as well -> ended
     |  ^---- refused, and the epoch is ours -------'------- refused, and it is not ---------------> ended
     '--> the ledger stands, or is made by itself -> COMMIT -> ended
        ^---- refused, and the epoch is ours ----------'---- refused, and it is not -> UNDO -> ended
"""

from __future__ import annotations

import enum
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from msgspec.structs import replace

from embedbk.codec.digest import DigestType
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import Durability, LedgerMetadata, ledger_key_path
from embedbk.codec.log_identity import log_deleted_path
from embedbk.codec.log_list import (
    Begun,
    LogList,
    LogPages,
    LogSeal,
    LogSegment,
    decode_log_list,
    encode_log_list,
    log_key_path,
    log_owner_path,
)
from embedbk.codec.log_pages import encode_log_page, log_page_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.config import ANYWHERE, METADATA_VALUE_BYTES_MAX, Placement, Quorum
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, Send, SendFailed
from embedbk.core.creation import NO_PATIENCE, AlongsideChanged, Creation, Patience
from embedbk.core.log_paging import Cut, cut
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
from embedbk.core.placement import Chance
from embedbk.core.recovery import Recovery
from embedbk.core.retrying import RETRY_NS
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import (
    EmbedbkError,
    LedgerFenced,
    LogFull,
    LogSealed,
    MetadataConflict,
    MetadataUnavailable,
    StorageError,
)
from embedbk.ids import LEDGER_ID_MAX

__all__ = ["Listing", "NewLedger", "Stage", "TakenOver", "first_free_offset"]

_ROUNDS_MAX = (
    50  # List read again this often while the epoch is ours: another client rewrites it without owning it.
)
_UNDO_ROUNDS_MAX = 5  # The list moved on so often while a refused client deleted the ledger that it had made.


class NewLedger(NamedTuple):
    """The terms of the ledger that comes behind the others. has_level: the cluster's level allows all that a list may
    hold but pages (LEVEL_OF_LOGS, P10.8); else it is written as the builds before read it. page_ledgers: of which size
    pages are made of a list that grows (LEVEL_OF_PAGES); 0: none are. writer: as LedgerMetadata has it."""

    quorum: Quorum
    password_verifier: bytes
    created_ms: int
    begun: Begun
    durability: int = Durability.SYNCED
    placement: Placement = ANYWHERE
    digest: int = DigestType.CRC32C
    patience: Patience = NO_PATIENCE
    has_level: bool = True
    page_ledgers: int = 0
    writer: str = ""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The log is ours until a newer epoch fences us: append to the last ledger of the list."""

    epoch: int
    log_list: LogList
    list_revision: int
    metadata: LedgerMetadata
    revision: int

    @property
    def first_offset(self) -> int:
        first_offset = self.log_list.segments[-1].first_offset
        assert first_offset is not None, (
            "a prepared ledger has no offset before the one before it took its last entry"
        )
        return first_offset

    def placed(self, first_offset: int) -> TakenOver:
        """The same for a prepared ledger, now that the end of the one before it is known."""
        *before, ours = self.log_list.segments
        segments = (*before, replace(ours, first_offset=first_offset))
        return TakenOver(
            self.epoch,
            replace(self.log_list, segments=segments),
            self.list_revision,
            self.metadata,
            self.revision,
        )


class Stage(enum.Enum):
    EPOCH = "epoch"
    LIST = "list"
    RECOVER = "recover"
    LEFT = "left"
    ADOPT = "adopt"
    STAGED = "staged"
    CREATE = "create"
    COMMIT = "commit"
    UNDO = "undo"
    ENDED = "ended"


def first_free_offset(segments: tuple[LogSegment, ...]) -> int:
    """The dense offset behind the last segment, which must be recorded as closed, as all before it."""
    if not segments:
        return 0
    last = segments[-1]
    assert last.last_entry is not None
    assert last.first_offset is not None
    return last.first_offset + last.last_entry + 1


class Listing(Machine):
    """One process putting one ledger behind a log's list. Ends with TakenOver, or with an error."""

    def __init__(
        self, name: str, epoch: int, new: NewLedger, bookies: tuple[BookieInfo, ...], chance: Chance
    ) -> None:
        """epoch: under which it is done; 0: not known yet."""
        self.name = name
        self.epoch = epoch
        self.new = new
        self.bookies = bookies
        self.chance = chance
        self.stage = Stage.LIST
        self.segments: tuple[LogSegment, ...] = ()  # In the list itself; those before stand in its pages.
        self.pages: LogPages | None = None
        self.list_revision = ABSENT
        self.rounds = 0
        self.unread = ""  # Why the list could not be read, while it cannot.
        self.commit_is_unknown = False
        self.undo_rounds = 0
        self.standing: tuple[bytes | None, int] = (None, ABSENT)  # The list that stood instead of ours.
        self.refusal: EmbedbkError = LedgerFenced(
            f"log {name!r} was taken over", definite=True
        )  # Reported after UNDO.
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

    # What each kind decides.

    @abstractmethod
    def _on_segments(self, now_ns: int) -> list[Effect]:
        """The list was read, and does not name our ledger: what comes before it is made, or its commit."""

    @abstractmethod
    def _segment_of(self, ledger_id: int) -> LogSegment:
        """The segment by which the list names our ledger."""

    @property
    def _staying(self) -> list[LogSegment]:
        """The segments that stay listed before our ledger."""
        return list(self.segments)

    def _with_commit(self) -> tuple[list[Compare], list[Put | Delete]]:
        """What else the transaction that publishes our ledger compares and puts."""
        return [], []

    # Whether the transaction that makes our ledger lists it as well. Bounds of a transaction decide it.
    LISTS_AT_ONCE: ClassVar[bool] = True

    def _on_own_key(self, event: KeyRead) -> list[Effect]:
        """Handle the value of a key that only this kind of listing reads."""
        return []

    def _on_recovered(self, ended: Ended, now_ns: int) -> list[Effect]:
        """Never called here: only a takeover and a replacing begin a recovery, and they say what follows it."""
        raise NotImplementedError

    # The list.

    def _read_list(self) -> list[Effect]:
        self.stage = Stage.LIST
        self.rounds += 1
        if self.rounds > _ROUNDS_MAX and self.unread:
            return self._end(self._not_now(self.unread, is_definite=not self.commit_is_unknown))
        if self.rounds > _ROUNDS_MAX:
            return self._end(
                MetadataConflict(f"log {self.name!r}: its list changed {_ROUNDS_MAX} times under its owner")
            )
        return [ReadKey("list", log_key_path(self.name))]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        kind = event.tag[0] if isinstance(event.tag, tuple) else event.tag
        if kind == "sub":
            return self._step_sub(event)
        if kind == "list" and self.stage is Stage.LIST:
            return self._on_list(event)
        if kind == "committed" and self.stage is Stage.COMMIT:
            return self._on_committed_list(event)
        if kind == "standing" and self.stage is Stage.UNDO:
            self._note_standing(event)
            return self._undo()
        if kind == "owner" and self.stage is Stage.COMMIT:
            return self._on_owner(event)
        return self._on_own_key(event)

    def _on_list(self, event: KeyRead) -> list[Effect]:
        self.unread = ""
        if self._is_ours(event.value):
            return self._taken_over(event.revision)  # An earlier commit, of which we did not hear.
        self._note_standing(event)
        self.list_revision = event.revision if event.value is not None else ABSENT
        self.segments, self.pages = (), None
        if event.value is not None:
            try:
                log_list = decode_log_list(event.value, self.name)
            except StorageError as unread:
                return self._end(unread)
            if log_list.seal is not None:
                return self._refuse_sealed(log_list.seal)
            self.segments, self.pages = log_list.segments, log_list.pages
        return self._on_segments(event.now_ns)

    def _refuse_sealed(self, seal: LogSeal) -> list[Effect]:
        """Delete what was made for it; the log stays as it is, whatever epoch a client has of it (P8.9)."""
        self.refusal = sealed = LogSealed(
            f"log {self.name!r} was sealed for ever: {seal.reason}", definite=True
        )
        sealed.reason = seal.reason
        return self._undo()

    def _note_standing(self, event: KeyRead) -> None:
        self.standing = (event.value, event.revision if event.value is not None else ABSENT)

    def _full(self, staying: list[LogSegment]) -> LogFull | None:
        """Whether no ledger fits behind these, at the most that their ends may take."""
        ours = LogSegment(LEDGER_ID_MAX, LEDGER_ID_MAX, None, self.new.created_ms, self.new.begun)
        after = self._cut((*staying, ours))
        most = tuple(
            replace(each, last_entry=LEDGER_ID_MAX) if each.last_entry is None else each
            for each in after.segments[:-1]
        )
        size = len(self._encoded(LogList(METADATA_VERSION, self.epoch, (*most, ours), after.pages)))
        if size <= METADATA_VALUE_BYTES_MAX:
            return None
        return LogFull(
            f"log {self.name!r} is full: its list of {len(staying)} ledgers would have {size} bytes with one more, "
            f"allowed are {METADATA_VALUE_BYTES_MAX}; nothing was changed",
            hint="write to another log from now on; delete_log() deletes this one when it was read",
        )

    def _cut(self, segments: tuple[LogSegment, ...]) -> Cut:
        """The list as it is to be, with as much of it in pages as may be."""
        return cut(segments, self.pages, self.new.page_ledgers)

    def _encoded(self, log_list: LogList) -> bytes:
        return encode_log_list(log_list, is_whole=self.new.has_level)

    # The new ledger, and the list that names it.

    def _create(self, now_ns: int) -> list[Effect]:
        self.stage = Stage.CREATE
        if self.created is not None:
            return self._commit()
        full = self._full(self._staying)
        if full is not None:
            return self._end(full)
        new = self.new
        creation = Creation(
            new.quorum,
            new.password_verifier,
            new.created_ms,
            {"log": self.name.encode()},
            self.bookies,
            self.chance,
            new.durability,
            new.placement,
            new.digest,
            new.patience,
            self._listing_of if self.LISTS_AT_ONCE else None,
            new.writer,
        )
        return self._start_sub(creation, now_ns)

    def _on_created(self, ended: Ended) -> list[Effect]:
        if isinstance(ended.error, AlongsideChanged):
            # The ledger was not made, or is another client's by now: the list is not taken for ours.
            self.stage, self.new_list = Stage.COMMIT, None
            return [ReadKey("committed", log_key_path(self.name))]
        if isinstance(ended.error, MetadataUnavailable):
            return self._end(self._not_now(str(ended.error.args[0]), is_definite=ended.error.definite))
        if ended.error is not None:
            return self._end(ended.error)
        self.created = ended.result
        _, revision = ended.result
        return self._taken_over(revision) if self.LISTS_AT_ONCE else self._commit()

    def _listing_of(self, ledger_id: int) -> Alongside:
        """What names this ledger as the last, if the list is as read and the epoch is the newest. What grew beyond a
        page of the list moves there in the same transaction: a reader of the list in between finds all of it (P8.6)."""
        after = self._cut((*self._staying, self._segment_of(ledger_id)))
        self.new_list = LogList(METADATA_VERSION, self.epoch, after.segments, after.pages)
        when = [
            Compare(log_key_path(self.name), self.list_revision),
            Compare(log_owner_path(self.name), self.epoch),
        ]
        then: list[Put | Delete] = []
        for number, page in after.moved:
            assert after.pages is not None
            then.append(Put(log_page_path(self.name, after.pages, number), encode_log_page(page)))
        then.append(Put(log_key_path(self.name), self._encoded(self.new_list)))
        more_when, more_then = self._with_commit()
        return Alongside(when + more_when, then + more_then)

    def _commit(self) -> list[Effect]:
        """Publish a ledger that stands: it still does, as it was read or made."""
        assert self.created is not None
        self.stage = Stage.COMMIT
        metadata, revision = self.created
        listing = self._listing_of(metadata.ledger_id)
        when = [*listing.when, Compare(ledger_key_path(metadata.ledger_id), revision)]
        return [Transact("commit", when, list(listing.then))]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if isinstance(event.tag, tuple):
            return self._step_sub(event)
        if self.stage is Stage.UNDO:
            self.undo_rounds += 1
            if event.is_done or self.undo_rounds == _UNDO_ROUNDS_MAX:
                return self._end(self.refusal)
            return [ReadKey("standing", log_key_path(self.name))]  # The list has moved on.
        if event.tag != "commit" or self.stage is not Stage.COMMIT:
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
        if self.stage is Stage.UNDO:
            return self._end(self.refusal)
        self.commit_is_unknown = True
        return [ReadKey("committed", log_key_path(self.name))]

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        """The commit was not run, and never will be: end at once, and say what is full, not after a timeout."""
        if isinstance(event.tag, tuple):
            return self._step_sub(event)
        if self.stage is Stage.UNDO:
            return self._end(self.refusal)
        # One before may have landed.
        return self._end(self._not_now(event.reason, is_definite=not self.commit_is_unknown))

    def _not_now(self, reason: str, *, is_definite: bool) -> MetadataUnavailable:
        return MetadataUnavailable(
            f"log {self.name!r} {self.CANNOT}: {reason}",
            definite=is_definite,
            hint="its entries can be read; make room in the metadata, then try again",
        )

    CANNOT: ClassVar[str]  # Be done, in words.

    def _on_committed_list(self, event: KeyRead) -> list[Effect]:
        """The commit was refused or is unknown: our own list standing there means done (P2.2)."""
        if self._is_ours(event.value):
            return self._taken_over(event.revision)
        self._note_standing(event)
        return [ReadKey("owner", log_owner_path(self.name))]

    def _is_ours(self, value: bytes | None) -> bool:
        return self.new_list is not None and value == self._encoded(self.new_list)

    def _on_owner(self, event: KeyRead) -> list[Effect]:
        if event.value is None or event.revision != self.epoch:
            return self._lose()
        if self.commit_is_unknown:
            return self._commit()
        self.retry_at = event.now_ns + RETRY_NS
        return []

    def _lose(self) -> list[Effect]:
        """Another process has the log: delete what was made for it."""
        self.refusal = LedgerFenced(
            f"log {self.name!r} was taken over by another process meanwhile",
            hint="one writer at a time: take it over again only if this process should be the one",
            definite=True,
        )
        return self._undo()

    def _undo(self) -> list[Effect]:
        """Delete the ledger that we made and that nobody will ever write to: our commit compares an epoch that is gone,
        and the list that stands, which is checked in the transaction, does not name it (P8.3). Where the log is deleted
        and may be brought back, its list stands elsewhere and may name it: then it stays (P8.13)."""
        if self.created is None:
            return self._end(self.refusal)
        metadata, revision = self.created
        value, list_revision = self.standing
        try:
            listed = decode_log_list(value, self.name).segments if value is not None else ()
        except StorageError:
            return self._end(self.refusal)
        if any(segment.ledger_id == metadata.ledger_id for segment in listed):
            return self._end(self.refusal)  # It landed, and was taken over: it is part of the log.
        self.stage = Stage.UNDO
        key = ledger_key_path(metadata.ledger_id)
        when = [
            Compare(log_key_path(self.name), list_revision),
            Compare(log_deleted_path(self.name), ABSENT),
            Compare(key, revision),
        ]
        return [Transact("undo", when, [Delete(key)])]

    def _taken_over(self, list_revision: int) -> list[Effect]:
        assert self.created is not None
        assert self.new_list is not None
        self.stage = Stage.ENDED
        metadata, revision = self.created
        return [Ended(None, TakenOver(self.epoch, self.new_list, list_revision, metadata, revision))]

    def _end(self, error: EmbedbkError) -> list[Effect]:
        self.stage = Stage.ENDED
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
        if self.stage is Stage.UNDO:
            return self._end(self.refusal)
        self.unread = event.reason
        self.retry_at = event.now_ns + RETRY_NS
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
        if self.commit_is_unknown:
            # A commit may still be in flight: it lands, or winning another from the same list settles it (P2.2).
            return [ReadKey("committed", log_key_path(self.name))]
        return self._read_list()

    HANDLERS: ClassVar[Handlers] = {
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
