"""Replaces one bookie's copy of an entry by the one that an operator chose, and nothing else (P11.5).

Decides what an answer means. The bookie compares: it keeps what it holds unless that has the digest that the operator
was shown, or is the chosen copy already. Asking again changes nothing more, so whoever got no answer may ask again.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from embedbk.codec.add_messages import ReplaceAnswer, ReplaceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.frame import LEDGER_KEY_BYTES, Frame, encode_frame_header
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member

__all__ = ["CopyReplacing", "ReplacedCopy"]

REPLACING_NS = 10_000_000_000
_NO_KEY = bytes(LEDGER_KEY_BYTES)  # Nobody's key is compared, as with copies by repair.


class ReplacedCopy(NamedTuple):
    """is_done: the bookie holds the chosen copy, durably. why: else why it does not, or why that is not known."""

    is_done: bool
    why: str = ""


class CopyReplacing(Machine):
    """Ends with `ReplacedCopy`."""

    def __init__(self, member: Member, frame: Frame, replaces: int) -> None:
        """frame: the chosen entry alone, checked. replaces: the digest of the copy that goes."""
        assert frame.entry_count == 1
        self.member, self.frame, self.replaces = member, frame, replaces
        self.until_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.until_ns

    def _on_started(self, event: Started) -> list[Effect]:
        self.until_ns = event.now_ns + REPLACING_NS
        frame = self.frame
        request = ReplaceRequest(self.member.incarnation, frame.ledger_id, frame.first_entry, self.replaces)
        return [Send(self.member, request, "replace", [(encode_frame_header(frame, _NO_KEY), frame)])]

    def _on_answered(self, event: Answered) -> list[Effect]:
        if self.until_ns is None:
            return []
        answer, asked = event.control, (self.frame.ledger_id, self.frame.first_entry)
        if not isinstance(answer, ReplaceAnswer) or (answer.ledger_id, answer.entry_id) != asked:
            return self._end(ReplacedCopy(False, getattr(answer, "text", "it answered something else")))
        if answer.status == Status.OK and answer.held == entry_digest(self.frame.body):
            return self._end(ReplacedCopy(True))
        if answer.status == Status.CONFLICT:
            held = f"{answer.held:016x}" if answer.held else "none that can be read"
            return self._end(ReplacedCopy(False, f"its copy is another one by now: {held}"))
        return self._end(ReplacedCopy(False, Status(answer.status).name))

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return self._end(ReplacedCopy(False, event.reason)) if self.until_ns is not None else []

    def _on_tick(self, event: Tick) -> list[Effect]:
        is_due = self.until_ns is not None and event.now_ns >= self.until_ns
        return self._end(ReplacedCopy(False, "no answer in time")) if is_due else []

    def _end(self, result: ReplacedCopy) -> list[Effect]:
        self.until_ns = None
        return [Ended(None, result)]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
