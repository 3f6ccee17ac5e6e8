r"""The owner's next ledger behind one that failed (P8.2): where that one ended, and the next one listed behind it.

Decides whether the log is still this owner's: by its epoch, and never by its ledger, which others may fence or close
without having the log. Decides where the failed ledger ended, if its writer could not close it: only then it is certain
which entries are in it, and which go to the next one. Sending those again is `client/replacing.py`'s.

    HOLDER -> the epoch is ours -> RECOVER (unless its writer closed it) -> LIST -> CREATE or ADOPT -> COMMIT -> ended
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from embedbk.codec.ledger_metadata import LedgerState, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_list import Begun, LogSegment, decode_log_list, log_owner_path
from embedbk.core.client_words import BookieInfo
from embedbk.core.log_listing import Listing, NewLedger, Stage
from embedbk.core.machine import Effect, Handlers
from embedbk.core.metadata_words import KeyRead, ReadKey
from embedbk.core.placement import Chance
from embedbk.core.recovery import Recovery, RecoveryOptions
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import NoSuchLedger, StorageError, ensure

__all__ = ["LogReplacing"]


class LogReplacing(Listing):
    """An owner replacing a ledger that failed. Ends with TakenOver, whose list says where the failed one ended, or with
    an error; LedgerFenced when the log is another's."""

    CANNOT = "gets no further ledger"

    def __init__(
        self,
        name: str,
        epoch: int,
        ledger_id: int,
        confirmed: int,
        ended: int | None,
        new: NewLedger,
        ledger_key: bytes,
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        mac_key: bytes = b"",
        length: int | None = None,
    ) -> None:
        """ledger_id: that failed. confirmed: its LAC, as its writer knows it. ended: where its writer closed it;
        None: it could not, so that metadata or a recovery has to say where. length: payload bytes up to there."""
        super().__init__(name, epoch, new._replace(begun=Begun.FAILURE), bookies, chance)
        self.ledger_id = ledger_id
        self.confirmed = confirmed
        self.ended = ended
        self.length = length
        self.ledger_key = ledger_key
        self.mac_key = mac_key
        self.stage = Stage.EPOCH
        self.prepared: LogSegment | None = None  # What stands behind the failed one already.

    # The log's owner, and where the ledger ended.

    def _on_started(self, event: Started) -> list[Effect]:
        return [ReadKey("holder", log_owner_path(self.name))]

    def _on_own_key(self, event: KeyRead) -> list[Effect]:
        if event.tag == "holder" and self.stage is Stage.EPOCH:
            return self._on_holder(event)
        if event.tag == "failed" and self.stage is Stage.RECOVER:
            return self._on_failed_ledger(event)
        if event.tag == "adopted" and self.stage is Stage.ADOPT:
            return self._on_prepared(event)
        return []

    def _on_holder(self, event: KeyRead) -> list[Effect]:
        if event.value is None or event.revision != self.epoch:
            return self._lose()
        if self.ended is not None:
            return self._read_list()
        self.stage = Stage.RECOVER
        return [ReadKey("failed", ledger_key_path(self.ledger_id))]

    def _on_failed_ledger(self, event: KeyRead) -> list[Effect]:
        if event.value is None:
            return self._end(self._gone())
        try:
            metadata = decode_ledger_metadata(event.value, self.ledger_id)
        except StorageError as unread:
            return self._end(unread)
        nonce = self.chance.getrandbits(63)
        options = RecoveryOptions(placement=self.new.placement)
        recovery = Recovery(
            metadata, event.revision, self.ledger_key, nonce, self.bookies, self.chance, options, self.mac_key
        )
        return self._start_sub(recovery, event.now_ns)

    def _on_recovered(self, ended: Ended, now_ns: int) -> list[Effect]:
        if ended.error is not None:
            return self._end(self._gone() if isinstance(ended.error, NoSuchLedger) else ended.error)
        metadata, _ = ended.result
        ensure(metadata.is_closed, "a ledger is replaced only behind its end")
        if metadata.last_entry < self.confirmed:  # Somebody's word in the metadata (P2.5), by no rule (P5.3).
            return self._end(
                StorageError(
                    f"log {self.name!r}: its ledger {self.ledger_id} is closed at entry {metadata.last_entry}, and "
                    f"{self.confirmed} was acknowledged"
                )
            )
        self.ended, self.length = metadata.last_entry, metadata.length
        return self._read_list()

    def _gone(self) -> NoSuchLedger:
        return NoSuchLedger(
            f"log {self.name!r}: its ledger {self.ledger_id} was deleted while it was written",
            definite=False,
            hint="what was acknowledged in it is gone with it; open a new writer",
        )

    def _try_again(self) -> list[Effect]:
        if self.stage is Stage.EPOCH:
            return [ReadKey("holder", log_owner_path(self.name))]
        if self.stage is Stage.RECOVER:
            return [ReadKey("failed", ledger_key_path(self.ledger_id))]
        return super()._try_again()

    # The list.

    def _on_segments(self, now_ns: int) -> list[Effect]:
        ids = [segment.ledger_id for segment in self.segments]
        if ids[-1:] == [self.ledger_id]:
            self.prepared = None
            return self._create(now_ns)
        if ids[-2:-1] != [self.ledger_id] or not self._is_under_our_epoch():
            return self._lose()
        # Nobody else lists anything under our epoch: it was prepared for a roll, or by a commit of which we did not
        # hear, and nothing was ever sent to it.
        self.stage = Stage.ADOPT
        self.prepared = self.segments[-1]
        return [ReadKey("adopted", ledger_key_path(ids[-1]))]

    def _is_under_our_epoch(self) -> bool:
        value, _ = self.standing
        return value is not None and decode_log_list(value, self.name).epoch == self.epoch

    def _on_prepared(self, event: KeyRead) -> list[Effect]:
        assert self.prepared is not None
        if event.value is None:
            return self._lose()
        try:
            metadata = decode_ledger_metadata(event.value, self.prepared.ledger_id)
        except StorageError as unread:
            return self._end(unread)
        if metadata.state != LedgerState.OPEN:
            return self._lose()  # Another client recovers it.
        self.created = (metadata, event.revision)
        return self._commit()

    @property
    def _staying(self) -> list[LogSegment]:
        """The segments that stay: a prepared ledger gets its place, and the failed one its end."""
        before = [segment for segment in self.segments if segment != self.prepared]
        length = self.length if self.new.page_ledgers else None  # Before, lists do not say so.
        return [*before[:-1], replace(before[-1], last_entry=self.ended, length=length)]

    def _segment_of(self, ledger_id: int) -> LogSegment:
        """The segment of the new ledger: the failed one has ended already, so its place is known."""
        failed, ended = self._staying[-1], self.ended
        ensure(failed.first_offset is not None, "the one before a ledger that failed is recorded as closed")
        assert failed.first_offset is not None and ended is not None
        begun_ms = self.new.created_ms if self.prepared is None else self.prepared.created_ms
        return LogSegment(ledger_id, failed.first_offset + ended + 1, None, begun_ms, self.new.begun)

    HANDLERS: ClassVar[Handlers] = {**Listing.HANDLERS, Started: _on_started}
