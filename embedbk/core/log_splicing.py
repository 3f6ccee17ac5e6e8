"""Splicing ready-made ledgers into a log (P8.5): behind its closed last ledger, by one transaction, or not at all.

Decides what is spliced: only ledgers that are CLOSED and still staged for this very transaction, whose number is above
every one of its application, so that it comes to pass once however often it is tried. The process that splices owns the
log: an owner that writes does it in a roll of its own, a takeover from itself that lists its next ledger behind the
staged ones in the same transaction; another process takes the log over first, and lists nothing of its own
(`LogHolding`).

    holding      EPOCH -> LIST -> RECOVER each ledger not recorded as closed -> COMMIT their ends -> ended
    splicing     LIST -> STAGED: what was spliced, each staged ledger -> COMMIT -> ended
    a writer's   EPOCH -> LIST -> RECOVER -> STAGED -> LEFT -> CREATE -> COMMIT -> ended
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_list import Begun, LogList, LogSegment, log_key_path, log_owner_path
from embedbk.codec.log_pages import encode_log_page, log_page_path
from embedbk.codec.log_splices import (
    APPLICATIONS_MAX,
    ONCE_KEPT,
    LogSplices,
    SplicedRecord,
    decode_log_splices,
    decode_staged,
    encode_log_splices,
    log_splices_path,
    staged_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.core.client_words import BookieInfo
from embedbk.core.log import LogTakeover
from embedbk.core.log_listing import NewLedger, Stage, first_free_offset
from embedbk.core.machine import Effect, Handlers
from embedbk.core.metadata_words import KeyRead, ReadKey, Transact
from embedbk.core.placement import Chance
from embedbk.core.retrying import RETRY_NS
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import EmbedbkError, LedgerFenced, StorageError, UsageError, WrongPassword, ensure
from embedbk.ids import NO_ENTRY

__all__ = ["SPLICE_LEDGERS_MAX", "LogHolding", "LogSplicing", "Splice", "Spliced"]

# Ledgers in one transaction: it compares each twice, beside list, owner, what was spliced and a request (Limits).
SPLICE_LEDGERS_MAX = 60


class Splice(NamedTuple):
    """One transaction: these ledgers, in this order. request: (key, revision) of the request that asks for it, which
    goes with it; None: no client asked."""

    application: str
    number: int
    job: bytes
    ledger_ids: tuple[int, ...]
    is_once: bool = False
    request: tuple[str, int] | None = None


class Spliced(NamedTuple):
    """The outcome of a splice. is_replay: it, or a newer one of its application, was done before, by another attempt or
    this one; the offsets are those of the newest."""

    record: SplicedRecord
    is_replay: bool
    epoch: int = 0  # The epoch under which it was done; 0: it was not done.


class LogHolding(LogTakeover):
    """A process taking a log over to splice into it; nothing is listed. Ends with the epoch."""

    CANNOT = "cannot be spliced into"

    def _all_closed(self, now_ns: int) -> list[Effect]:
        return self._commit() if self.segments else self._hold()

    def _commit(self) -> list[Effect]:
        """One transaction: the list is as read, and the epoch is the newest."""
        self.stage = Stage.COMMIT
        self.new_list = LogList(METADATA_VERSION, self.epoch, self.segments, self.pages)
        when = [
            Compare(log_key_path(self.name), self.list_revision),
            Compare(log_owner_path(self.name), self.epoch),
        ]
        return [Transact("commit", when, [Put(log_key_path(self.name), self._encoded(self.new_list))])]

    def _taken_over(self, list_revision: int) -> list[Effect]:
        return self._hold()

    def _hold(self) -> list[Effect]:
        self.stage = Stage.ENDED
        return [Ended(None, self.epoch)]


class LogSplicing(LogTakeover):
    """Ends with Spliced, or with an error; as an owner's (`lists_next`) with TakenOver, and `spliced` or `unspliced`
    tells what became of the splice."""

    CANNOT = "cannot be spliced into"

    # A transaction may compare 128 keys, of which 60 staged ledgers take 120: an owner's next ledger is made before it.
    LISTS_AT_ONCE = False

    def __init__(
        self,
        name: str,
        owner: bytes,
        new: NewLedger,
        ledger_key: bytes,
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        splice: Splice,
        *,
        mac_key: bytes = b"",
        losses: int = 0,
        renews: int | None = None,
        kept_epoch: int = 0,
        lists_next: bool = False,
        guard: tuple[Compare, ...] = (),
    ) -> None:
        """new: whose password the ledgers have, and, of an owner, as what its next ledger is made. kept_epoch: which
        this process got by an earlier splice; it is fenced if that is not the newest any more. renews, with
        `lists_next`: as of LogTakeover."""
        super().__init__(
            name,
            owner,
            new,
            ledger_key,
            bookies,
            chance,
            mac_key=mac_key,
            losses=losses,
            renews=renews,
            guard=guard,
        )
        ensure(0 < len(splice.ledger_ids) <= SPLICE_LEDGERS_MAX, "a splice is of a bounded number of ledgers")
        self.splice = splice
        self.kept_epoch = kept_epoch
        self.lists_next = lists_next
        self.spliced: Spliced | None = None
        self.unspliced: EmbedbkError | None = None  # Why an owner did not do it and goes on without it.
        self.splices = LogSplices(METADATA_VERSION, ())  # As the log has them now.
        self.splices_revision = ABSENT
        self.reading: set[tuple[str, int]] = set()
        self.compares: dict[tuple[str, int], int] = {}  # The revisions read, for each staged ledger.
        self.ledgers: dict[int, LedgerMetadata] = {}
        self.staged: tuple[LogSegment, ...] = ()  # As the list is to name them; empty: none is, this time.
        self.record: SplicedRecord | None = None  # What our last commit would leave.
        self.is_ours_still = False  # The epoch, when it was read last.

    def _on_started(self, event: Started) -> list[Effect]:
        if not self.kept_epoch:
            return super()._on_started(event)
        self.epoch = self.kept_epoch
        return self._read_list()

    def _on_segments(self, now_ns: int) -> list[Effect]:
        if self.kept_epoch and any(segment.last_entry is None for segment in self.segments):
            return self._lose()  # Only another owner lists an open one.
        return super()._on_segments(now_ns)

    # What is to be spliced, and whether it was.

    def _all_closed(self, now_ns: int) -> list[Effect]:
        self.stage = Stage.STAGED
        self.staged, self.record = (), None
        self.unspliced = None  # A look before this one may have found what is otherwise by now.
        self.compares.clear()
        self.ledgers.clear()
        return [ReadKey("splices", log_splices_path(self.name))]

    def _on_own_key(self, event: KeyRead) -> list[Effect]:
        if event.tag == "splices" and self.stage is Stage.STAGED:
            return self._on_splices(event)
        if event.tag == "spliced now" and self.stage is Stage.COMMIT:
            return self._on_spliced_now(event)
        if isinstance(event.tag, tuple) and event.tag[:1] == ("staged",) and self.stage is Stage.STAGED:
            return self._on_staged(event)
        return super()._on_own_key(event)

    def _decoded(self, event: KeyRead) -> LogSplices:
        return (
            LogSplices(METADATA_VERSION, ())
            if event.value is None
            else decode_log_splices(event.value, self.name)
        )

    def _on_splices(self, event: KeyRead) -> list[Effect]:
        try:
            self.splices = self._decoded(event)
        except StorageError as unread:
            return self._refuse(unread, event.now_ns)
        self.splices_revision = event.revision if event.value is not None else ABSENT
        before = self.splices.of(self.splice.application)
        if before is not None and before.number >= self.splice.number:
            return self._replayed(before, event.now_ns)
        named = sum(not each.is_once for each in self.splices.spliced)
        if before is None and not self.splice.is_once and named >= APPLICATIONS_MAX:
            return self._refuse(
                UsageError(
                    f"log {self.name!r} knows {named} applications that splice into it, and may know "
                    f"{APPLICATIONS_MAX}; nothing was changed",
                    hint="forget_application() lets one go that never splices again",
                ),
                event.now_ns,
            )
        ids = self.splice.ledger_ids
        self.reading = {(kind, ledger_id) for ledger_id in ids for kind in ("mark", "ledger")}
        request = self.splice.request
        if request is not None:
            self.reading.add(("request", request[1]))
        return [
            *([ReadKey(("staged", "request", request[1]), request[0])] if request is not None else []),
            *(ReadKey(("staged", "mark", each), staged_path(self.name, each)) for each in ids),
            *(ReadKey(("staged", "ledger", each), ledger_key_path(each)) for each in ids),
        ]

    def _on_staged(self, event: KeyRead) -> list[Effect]:
        _, kind, ledger_id = event.tag
        if (kind, ledger_id) not in self.reading:
            return []
        self.reading.discard((kind, ledger_id))
        why = self._why_not(kind, ledger_id, event)
        if why is not None:
            return self._refuse(why, event.now_ns)
        self.compares[kind, ledger_id] = event.revision
        return [] if self.reading else self._all_staged(event.now_ns)

    def _why_not(self, kind: str, ledger_id: int, event: KeyRead) -> EmbedbkError | None:
        if kind == "request":  # Then the number is the revision that it had.
            gone = f"log {self.name!r}: the request to splice was withdrawn; nothing was spliced"
            return None if event.revision == ledger_id else UsageError(gone, definite=True)
        what = f"log {self.name!r}: ledger {ledger_id}"
        hint = "stage it anew, and splice that"
        if event.value is None:
            given_up = f"{what} is not staged any more: it was given up, or spliced; nothing was spliced"
            return UsageError(given_up, definite=True, hint=hint)
        try:
            if kind == "mark":
                mark = decode_staged(event.value, self.name, ledger_id)
                if (mark.application, mark.number, mark.job) != self.splice[:3]:
                    said = f"{what} is staged for transaction {mark.number} of {mark.application!r}"
                    return UsageError(
                        f"{said}, by another attempt; nothing was spliced", definite=True, hint=hint
                    )
                return None
            metadata = decode_ledger_metadata(event.value, ledger_id)
        except StorageError as unread:
            return unread
        if not metadata.is_closed or metadata.last_entry == NO_ENTRY:
            how = "empty" if metadata.is_closed else "not closed"
            return UsageError(f"{what} is staged and {how}; nothing was spliced", definite=True, hint=hint)
        if metadata.password_verifier != self.new.password_verifier:
            return WrongPassword(f"{what} is staged with another password; nothing was spliced")
        self.ledgers[ledger_id] = metadata
        return None

    def _all_staged(self, now_ns: int) -> list[Effect]:
        """All staged ledgers were read: place them behind what is closed, in the order that was asked for."""
        offset = begin = first_free_offset(self.segments)
        segments = []
        for ledger_id in self.splice.ledger_ids:
            metadata = self.ledgers[ledger_id]
            assert metadata.last_entry is not None
            segments.append(
                LogSegment(
                    ledger_id,
                    offset,
                    metadata.last_entry,
                    self.new.created_ms,
                    Begun.SPLICE,
                    metadata.length,
                )
            )
            offset += metadata.last_entry + 1
        self.staged = tuple(segments)
        splice = self.splice
        self.record = SplicedRecord(
            splice.application,
            splice.number,
            splice.job,
            begin,
            offset,
            len(segments),
            self.new.created_ms,
            splice.is_once,
        )
        return self._go_on(now_ns)

    def _go_on(self, now_ns: int) -> list[Effect]:
        return super()._all_closed(now_ns) if self.lists_next else self._commit()

    def _replayed(self, before: SplicedRecord, now_ns: int) -> list[Effect]:
        self.spliced = Spliced(before, True, self.epoch)
        return self._go_on(now_ns) if self.lists_next else self._end_with(self.spliced)

    def _refuse(self, why: EmbedbkError, now_ns: int) -> list[Effect]:
        """Refuse the splice. An owner, which has closed its ledger, gets its next one all the same."""
        if not self.lists_next:
            return self._end(why)
        self.unspliced = why
        self.reading.clear()
        return self._go_on(now_ns)

    def _end_with(self, result: Any) -> list[Effect]:
        self.stage = Stage.ENDED
        self.retry_at = None
        return [Ended(None, result)]

    # The transaction.

    @property
    def _staying(self) -> list[LogSegment]:
        return [*super()._staying, *self.staged]

    def _segment_of(self, ledger_id: int) -> LogSegment:
        """An owner's next ledger stands behind what is spliced."""
        first_offset = first_free_offset((*self.segments, *self.staged))
        return LogSegment(ledger_id, first_offset, None, self.new.created_ms, self.new.begun)

    def _with_commit(self) -> tuple[list[Compare], list[Put | Delete]]:
        when, then = super()._with_commit()
        if self.record is None:
            return when, then
        name, request = self.name, self.splice.request
        when = [*when, Compare(log_splices_path(name), self.splices_revision)]
        then = [*then, Put(log_splices_path(name), encode_log_splices(self._splices_behind(self.record)))]
        if request is not None:  # A client that withdrew it was told that it will never be done.
            when.append(Compare(*request))
            then.append(Delete(request[0]))
        for ledger_id in self.splice.ledger_ids:
            when.append(Compare(staged_path(name, ledger_id), self.compares["mark", ledger_id]))
            when.append(Compare(ledger_key_path(ledger_id), self.compares["ledger", ledger_id]))
            then.append(Delete(staged_path(name, ledger_id)))
        return when, then

    def _splices_behind(self, record: SplicedRecord) -> LogSplices:
        others = [each for each in self.splices.spliced if each.application != record.application]
        once = [each for each in others if each.is_once]
        forgotten = {each.application for each in once[: max(0, len(once) + record.is_once - ONCE_KEPT)]}
        kept = tuple(each for each in others if each.application not in forgotten)
        return LogSplices(METADATA_VERSION, (*kept, record))

    def _commit(self) -> list[Effect]:
        """One transaction: list and epoch are as read, and each staged ledger is there and still staged."""
        ensure(
            all(segment.last_entry is not None for segment in self.segments),
            "nothing is spliced in beside an open ledger",
        )
        if self.lists_next:
            return super()._commit()
        full = self._full(self._staying)
        if full is not None:
            return self._end(full)
        self.stage = Stage.COMMIT
        after = self._cut(tuple(self._staying))
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
        return [Transact("commit", when + more_when, then + more_then)]

    def _on_owner(self, event: KeyRead) -> list[Effect]:
        """Refused, or its outcome is unknown, and our list does not stand there: it may have, and been changed since.
        What was spliced tells, when it is read behind the epoch: under another one no commit of ours comes any more."""
        if self.record is None:
            return super()._on_owner(event)
        self.is_ours_still = event.value is not None and event.revision == self.epoch
        return [ReadKey("spliced now", log_splices_path(self.name))]

    def _on_spliced_now(self, event: KeyRead) -> list[Effect]:
        try:
            now = self._decoded(event).of(self.splice.application)
        except StorageError as unread:
            return self._end(unread)
        is_done = now is not None and now.number >= self.splice.number
        if is_done and not self.lists_next:
            assert now is not None
            is_own = self.record is not None and now == self.record
            return self._end_with(
                Spliced(now, not is_own, self.epoch if is_own and self.is_ours_still else 0)
            )
        if not self.is_ours_still:
            if is_done:
                assert now is not None
                self.spliced = Spliced(now, True)
            return self._lose()
        if self.commit_is_unknown and not is_done:
            return self._commit()
        self.retry_at = event.now_ns + RETRY_NS
        return []

    def _lose(self) -> list[Effect]:
        if self.lists_next or self.created is not None:
            return super()._lose()
        return self._end(
            LedgerFenced(
                f"log {self.name!r} was taken over by another process meanwhile; nothing was spliced",
                hint="splice again: it comes to pass once",
                definite=True,
            )
        )

    def _taken_over(self, list_revision: int) -> list[Effect]:
        if self.record is not None:
            self.spliced = Spliced(self.record, False, self.epoch)
        if self.lists_next:
            return super()._taken_over(list_revision)
        return self._end_with(self.spliced)

    HANDLERS: ClassVar[Handlers] = {**LogTakeover.HANDLERS, Started: _on_started}
