r"""The owner's next ledger (P8.2): listed while writes go on in the one of now, and that one recorded as closed behind.

Decides whether the log is still this owner's, by its epoch and by its own ledger standing where it put it. That nothing
is sent to the next ledger before all adds of the one before are done, `client/renewing.py` decides.

    Preparing    LIST, unless it is known -> own ledger is the last -> CREATE -> ended
                     \-> own ledger, and one behind it that we listed before -> ADOPT -> ended
    Recording    LIST -> own ledger's end and the next one's first offset, in one change -> ended
"""

from __future__ import annotations

from typing import ClassVar

from embedbk.codec.ledger_metadata import LedgerState, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_list import LogList, LogSegment, decode_log_list, log_key_path, log_owner_path
from embedbk.core.client_words import BookieInfo
from embedbk.core.creation import AlongsideChanged
from embedbk.core.end_recording import recording, with_end
from embedbk.core.log_listing import Listing, NewLedger, Stage
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
from embedbk.core.placement import Chance
from embedbk.core.retrying import Retrying
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import LedgerFenced, StorageError

__all__ = ["LogPreparing", "LogRecording"]


class LogPreparing(Listing):
    """An owner listing its next ledger. Ends with TakenOver, whose ledger has no offset yet, or with an error."""

    CANNOT = "gets no further ledger"

    def __init__(
        self,
        name: str,
        epoch: int,
        ledger_id: int,
        new: NewLedger,
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        known: tuple[LogList, int] | None = None,
    ) -> None:
        """ledger_id: that the owner writes to now, which is the last of the list. known: the list and its revision, as
        the owner published it last: it is read only where it has changed since."""
        super().__init__(name, epoch, new, bookies, chance)
        self.ledger_id = ledger_id
        self.known = known

    def _on_started(self, event: Started) -> list[Effect]:
        if self.known is None or self.known[0].segments[-1].ledger_id != self.ledger_id:
            self.known = None  # Our ledger came behind it: a failed one was replaced since.
            return self._read_list()
        log_list, self.list_revision = self.known
        self.segments, self.pages = log_list.segments, log_list.pages
        return self._create(event.now_ns)

    def _on_created(self, ended: Ended) -> list[Effect]:
        if self.known is None or not isinstance(ended.error, AlongsideChanged):
            return super()._on_created(ended)
        # Nothing is known but that it is another list or another epoch by now: the list tells which.
        self.known = self.new_list = None
        return self._read_list()

    def _on_segments(self, now_ns: int) -> list[Effect]:
        ids = [segment.ledger_id for segment in self.segments]
        if ids[-1:] == [self.ledger_id]:
            return self._create(now_ns)
        if ids[-2:-1] != [self.ledger_id] or self.segments[-1].first_offset is not None:
            return self._lose()
        # Only the owner lists a ledger without an offset, and no client took over since: it is one of ours, whose
        # commit's outcome came too late, and nothing was ever sent to it.
        self.stage = Stage.ADOPT
        return [ReadKey("adopted", ledger_key_path(ids[-1]))]

    def _on_own_key(self, event: KeyRead) -> list[Effect]:
        if event.tag != "adopted" or self.stage is not Stage.ADOPT:
            return []
        if event.value is None:
            return self._lose()
        try:
            metadata = decode_ledger_metadata(event.value, self.segments[-1].ledger_id)
        except StorageError as unread:
            return self._end(unread)
        if metadata.state != LedgerState.OPEN:
            return self._lose()  # Another client recovers it.
        self.created = (metadata, event.revision)
        self.new_list = decode_log_list(self.standing[0] or b"", self.name)
        return self._taken_over(self.list_revision)

    def _segment_of(self, ledger_id: int) -> LogSegment:
        return LogSegment(ledger_id, None, None, self.new.created_ms, self.new.begun)

    HANDLERS: ClassVar[Handlers] = {**Listing.HANDLERS, Started: _on_started}


class LogRecording(Retrying):
    """An owner recording where its ledger ended, where the transaction that closed it did not. Ends with the list that
    it put and its revision; with None when the list has it already, or does not name the ledger; with LedgerFenced when
    another client owns the log, which records it then."""

    def __init__(
        self,
        name: str,
        epoch: int,
        ledger_id: int,
        last_entry: int,
        length: int | None = None,
    ) -> None:
        """length: its payload bytes; None where lists do not record it yet (LEVEL_OF_PAGES)."""
        super().__init__()
        self.name = name
        self.epoch = epoch
        self.ledger_id = ledger_id
        self.last_entry = last_entry
        self.length = length
        self.recorded: LogList | None = None  # What was put last.

    def _on_started(self, event: Started) -> list[Effect]:
        return self._again()

    def _again(self) -> list[Effect]:
        return [ReadKey("list", log_key_path(self.name))]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        if event.tag == "owner":
            return self._on_owner(event)
        try:
            log_list = decode_log_list(event.value, self.name) if event.value is not None else None
        except StorageError as unread:
            return [Ended(unread)]
        return [Ended(None)] if log_list is None else self._record(log_list, event.revision)

    def _record(self, log_list: LogList, revision: int) -> list[Effect]:
        self.recorded = recorded = with_end(log_list, self.ledger_id, self.last_entry, self.length)
        if recorded is None:
            return [Ended(None)]
        put = recording(self.name, self.epoch, revision, recorded)
        return [Transact("record", list(put.when), list(put.then))]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if event.is_done:
            assert self.recorded is not None
            return [Ended(None, (self.recorded, event.revision))]
        return [ReadKey("owner", log_owner_path(self.name))]

    def _on_owner(self, event: KeyRead) -> list[Effect]:
        if event.value is None or event.revision != self.epoch:
            return [Ended(LedgerFenced(f"log {self.name!r} was taken over", definite=True))]
        return self._pause(event)

    def _on_unknown(self, event: TransactUnknown | TransactRefused | MetadataFailed) -> list[Effect]:
        """Read the list again later: only the next roll waits for it, and it then shows whether the change landed."""
        return self._pause(event)

    HANDLERS: ClassVar[Handlers] = {
        **Retrying.HANDLERS,
        Started: _on_started,
        KeyRead: _on_key_read,
        Transacted: _on_transacted,
        TransactUnknown: _on_unknown,
        TransactRefused: _on_unknown,
        MetadataFailed: _on_unknown,
    }
