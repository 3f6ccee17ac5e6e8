"""Giving up staged ledgers that no transaction splices any more (P8.5): the mark and the ledger go in one transaction.

Decides which: those whose transaction, or a newer one of its application, was done without them; those whose time is
over; and those of a job that was called off. The transaction that splices a ledger deletes its mark, and this one
compares that mark: only one of the two succeeds. So nothing that a list names is ever given up. Only a closed ledger
goes, so that no writer is acknowledged anything behind it (P2.3): the result names the others, which the caller
recovers first.

    SPLICES: what came to pass -> for each ledger: its MARK -> its LEDGER -> DROP both -> ended with how many
"""

from __future__ import annotations

from typing import ClassVar

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_splices import (
    LogSplices,
    StagedRecord,
    decode_log_splices,
    decode_staged,
    log_splices_path,
    staged_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete
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
from embedbk.core.retrying import Retrying
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import MetadataUnavailable, StorageError

__all__ = ["StagingSweeping"]


class StagingSweeping(Retrying):
    """Ends with (how many ledgers were given up, those that are to be closed first), or with an error."""

    def __init__(
        self,
        name: str,
        ledger_ids: tuple[int, ...],
        wall_ms: int,
        job: bytes | None = None,
        *,
        takes_all: bool = False,
    ) -> None:
        """ledger_ids: that have marks, as a listing showed. wall_ms: now, by the clock on the wall. job: called off.
        takes_all: the log is gone, whatever they were staged for."""
        super().__init__()
        self.name = name
        self.waiting = list(ledger_ids)
        self.wall_ms = wall_ms
        self.job = job
        self.takes_all = takes_all
        self.splices = LogSplices(METADATA_VERSION, ())
        self.mark_revision = ABSENT
        self.given_up = 0
        self.unclosed: list[int] = []

    def _on_started(self, event: Started) -> list[Effect]:
        return self._again()

    def _again(self) -> list[Effect]:
        return [ReadKey("splices", log_splices_path(self.name))]

    def _next(self) -> list[Effect]:
        if not self.waiting:
            return [Ended(None, (self.given_up, tuple(self.unclosed)))]
        return [ReadKey("mark", staged_path(self.name, self.waiting[0]))]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        try:
            if event.tag == "splices":
                if event.value is not None:
                    self.splices = decode_log_splices(event.value, self.name)
                return self._next()
            return self._on_mark(event) if event.tag == "mark" else self._on_ledger(event)
        except StorageError as unread:
            if event.tag == "splices":
                return [Ended(unread)]
            return self._leave()  # Metadata that cannot be read is not judged.

    def _on_mark(self, event: KeyRead) -> list[Effect]:
        if event.value is None:
            return self._leave()  # Spliced, or given up by another.
        if not self._is_over(decode_staged(event.value, self.name, self.waiting[0])):
            return self._leave()
        self.mark_revision = event.revision
        return [ReadKey("ledger", ledger_key_path(self.waiting[0]))]

    def _is_over(self, mark: StagedRecord) -> bool:
        if self.takes_all or mark.job == self.job or mark.expires_ms <= self.wall_ms:
            return True
        done = self.splices.of(mark.application)
        return done is not None and done.number >= mark.number

    def _on_ledger(self, event: KeyRead) -> list[Effect]:
        """Give this ledger up: only this log would name it, and does not as long as the mark stands."""
        if event.value is not None and not decode_ledger_metadata(event.value, self.waiting[0]).is_closed:
            self.unclosed.append(self.waiting[0])
            return self._leave()
        mark, ledger = staged_path(self.name, self.waiting[0]), ledger_key_path(self.waiting[0])
        revision = event.revision if event.value is not None else ABSENT
        when = [Compare(mark, self.mark_revision), Compare(ledger, revision)]
        return [Transact("drop", when, [Delete(mark), *([Delete(ledger)] if revision else [])])]

    def _leave(self) -> list[Effect]:
        self.waiting.pop(0)
        return self._next()

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if not event.is_done:
            return self._next()  # Another client was quicker: look again at what stands there now.
        self.given_up += 1
        return self._leave()

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        return [
            Ended(
                MetadataUnavailable(
                    f"ledgers that were staged for log {self.name!r} are not given up: {event.reason}",
                    definite=False,
                    hint="make room in the metadata; they are looked for again",
                )
            )
        ]

    HANDLERS: ClassVar[Handlers] = {
        **Retrying.HANDLERS,
        Started: _on_started,
        KeyRead: _on_key_read,
        Transacted: _on_transacted,
        TransactRefused: _on_refused,
        TransactUnknown: Retrying._pause,
        MetadataFailed: Retrying._pause,
    }
