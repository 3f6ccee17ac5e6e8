"""Asks whether a bookie answers in one incarnation; changes nothing and decides nothing.

An operator is about to say that its disks are gone (P11.5). The end of its session says that metadata does not hear it;
clients may still be acknowledged by it.
"""

from __future__ import annotations

from typing import ClassVar

from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry_log_messages import LAST_LOG_ID, EntryLogsAnswer, EntryLogsRequest
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member

__all__ = ["PRESENCE_NS", "PresenceQuery"]

PRESENCE_NS = (
    2_000_000_000  # As of two that claim one identity (P7.9): a stopped process takes connections as well.
)
TAG = "presence"


class PresenceQuery(Machine):
    """Ends with True if the bookie answered within PRESENCE_NS, with False if not."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.until_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.until_ns

    @property
    def wants_bookies(self) -> bool:
        return False

    def _on_started(self, event: Started) -> list[Effect]:
        self.until_ns = event.now_ns + PRESENCE_NS
        return [Send(self.member, EntryLogsRequest(self.member.incarnation, LAST_LOG_ID), TAG)]

    def _on_answered(self, event: Answered) -> list[Effect]:
        answer = event.control
        return self._end(isinstance(answer, EntryLogsAnswer) and answer.status == Status.OK)

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return self._end(False)

    def _on_tick(self, event: Tick) -> list[Effect]:
        is_over = self.until_ns is not None and event.now_ns >= self.until_ns
        return self._end(False) if is_over else []

    def _end(self, is_there: bool) -> list[Effect]:
        if self.until_ns is None:
            return []
        self.until_ns = None
        return [Ended(None, is_there)]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
