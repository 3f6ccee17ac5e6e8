"""Asks one bookie for its entry logs, or for the ledgers that keep one of them, page by page; decides nothing.

The answers are for people and reports (views/VIEWS.md): what a bookie has on disk, how much of it still counts, and
whose that is.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry_log_messages import (
    EntryLogRow,
    EntryLogsAnswer,
    EntryLogsRequest,
    LogKeeperRow,
    LogKeepersAnswer,
    LogKeepersRequest,
)
from embedbk.codec.messages import Control
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import NotEnoughBookies
from embedbk.ids import Member

__all__ = ["EntryLogsQuery", "LogKeepersQuery", "PagedQuery"]

ANSWER_NS = 5_000_000_000


class PagedQuery(Machine):
    """One question to one bookie, asked again behind the last row until no more follow. Ends with all rows, by
    ascending id; NotEnoughBookies where the bookie does not tell them."""

    TAG: ClassVar[str]  # What it asks for, in words.

    def __init__(self, member: Member) -> None:
        self.member = member
        self.rows: list[Any] = []
        self.until_ns: int | None = None

    @abstractmethod
    def asks(self, after: int) -> Control:
        """The request for what stands behind this id."""

    @abstractmethod
    def told(self, answer: Control) -> tuple[Status, list[Any], bool] | None:
        """Status, rows, and whether others follow; None: it is no answer to this."""

    @abstractmethod
    def id_of(self, row: Any) -> int:
        """By which the rows ascend."""

    @property
    def deadline_ns(self) -> int | None:
        return self.until_ns

    @property
    def wants_bookies(self) -> bool:
        return False

    def _on_started(self, event: Started) -> list[Effect]:
        return self._ask(event.now_ns)

    def _ask(self, now_ns: int) -> list[Effect]:
        self.until_ns = now_ns + ANSWER_NS
        after = self.id_of(self.rows[-1]) if self.rows else -1
        return [Send(self.member, self.asks(after), self.TAG)]

    def _on_answered(self, event: Answered) -> list[Effect]:
        if self.until_ns is None:
            return []
        told = self.told(event.control)
        if told is None:
            return self._end(getattr(event.control, "text", "an answer of the wrong kind"))
        status, rows, has_more = told
        if status != Status.OK:
            return self._end(Status(status).name)
        ids = [-1, *map(self.id_of, self.rows[-1:]), *map(self.id_of, rows)]
        if ids != sorted(set(ids)) or (has_more and not rows):
            return self._end("its answer names ids that do not ascend")
        self.rows += rows
        if has_more:
            return self._ask(event.now_ns)
        self.until_ns = None
        return [Ended(None, tuple(self.rows))]

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return self._end(event.reason) if self.until_ns is not None else []

    def _on_tick(self, event: Tick) -> list[Effect]:
        is_due = self.until_ns is not None and event.now_ns >= self.until_ns
        return self._end("no answer in time") if is_due else []

    def _end(self, reason: str) -> list[Effect]:
        self.until_ns = None
        why = f"bookie {self.member.bookie_id} does not tell its {self.TAG}: {reason}"
        return [Ended(NotEnoughBookies(why), None)]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }


class EntryLogsQuery(PagedQuery):
    """The EntryLogRow of each entry log."""

    TAG = "entry logs"

    def asks(self, after: int) -> Control:
        return EntryLogsRequest(self.member.incarnation, after)

    def told(self, answer: Control) -> tuple[Status, list[Any], bool] | None:
        return (answer.status, answer.logs, answer.has_more) if isinstance(answer, EntryLogsAnswer) else None

    def id_of(self, row: EntryLogRow) -> int:
        return row.log_id


class LogKeepersQuery(PagedQuery):
    """The LogKeeperRow of each ledger that keeps this entry log."""

    TAG = "entry logs' ledgers"

    def __init__(self, member: Member, log_id: int) -> None:
        super().__init__(member)
        self.log_id = log_id

    def asks(self, after: int) -> Control:
        return LogKeepersRequest(self.member.incarnation, self.log_id, after)

    def told(self, answer: Control) -> tuple[Status, list[Any], bool] | None:
        if not isinstance(answer, LogKeepersAnswer) or (
            answer.status == Status.OK and answer.log_id != self.log_id
        ):
            return None
        return answer.status, answer.keepers, answer.has_more

    def id_of(self, row: LogKeeperRow) -> int:
        return row.ledger_id
