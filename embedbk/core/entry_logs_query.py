"""Asks one bookie for its entry logs, page by page; changes nothing and decides nothing.

The answers are for people and reports (views/VIEWS.md): what a bookie has on disk, and how much of it still counts.
"""

from __future__ import annotations

from typing import ClassVar

from embedbk.codec.messages import EntryLogRow, EntryLogsAnswer, EntryLogsRequest, Status
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import NotEnoughBookies
from embedbk.ids import Member

__all__ = ["EntryLogsQuery"]

ANSWER_NS = 5_000_000_000
TAG = "entry logs"


class EntryLogsQuery(Machine):
    """Ends with the EntryLogRow of each log, by ascending id; NotEnoughBookies where the bookie does not tell them."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.logs: list[EntryLogRow] = []
        self.until_ns: int | None = None

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
        after = self.logs[-1].log_id if self.logs else -1
        return [Send(self.member, EntryLogsRequest(self.member.incarnation, after), TAG)]

    def _on_answered(self, event: Answered) -> list[Effect]:
        answer = event.control
        if self.until_ns is None:
            return []
        if not isinstance(answer, EntryLogsAnswer):
            return self._end(getattr(answer, "text", "an answer of the wrong kind"))
        if answer.status != Status.OK:
            return self._end(Status(answer.status).name)
        ids = [-1, *(each.log_id for each in self.logs[-1:]), *(each.log_id for each in answer.logs)]
        if ids != sorted(set(ids)) or (answer.has_more and not answer.logs):
            return self._end("its answer names entry logs that do not ascend")
        self.logs += answer.logs
        if answer.has_more:
            return self._ask(event.now_ns)
        self.until_ns = None
        return [Ended(None, tuple(self.logs))]

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return self._end(event.reason) if self.until_ns is not None else []

    def _on_tick(self, event: Tick) -> list[Effect]:
        is_due = self.until_ns is not None and event.now_ns >= self.until_ns
        return self._end("no answer in time") if is_due else []

    def _end(self, reason: str) -> list[Effect]:
        self.until_ns = None
        why = f"bookie {self.member.bookie_id} does not tell its entry logs: {reason}"
        return [Ended(NotEnoughBookies(why), None)]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
