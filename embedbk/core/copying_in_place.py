"""Making the copies of some entries on the bookies that get a ledger's seats, from entries that are at hand (P8.14).

Decides what each seat gets (its write sets' entries, P3.7) and when all of it is durable. By recovery adds without a
key, as repair makes its copies (P11.2): they pass a fence, and a bookie that dropped the ledger takes it again, in
limbo (P7.3). Leaves to others: where the entries come from, that they were checked, and whose seats these become
(`restoring_in_place.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import LEDGER_KEY_BYTES, Frame, cut, encode_frame_header
from embedbk.config import Quorum
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member

__all__ = ["BUSY_NS", "WRITE_NS", "CopyingInPlace", "PieceCopied"]

WRITE_NS = 10_000_000_000  # A bookie that has not answered a copy for so long has failed.
BUSY_NS = 100_000_000  # Pause after a BUSY before the same copy is sent again.
_NO_KEY = bytes(LEDGER_KEY_BYTES)  # No key is compared (P3.5).


class PieceCopied(NamedTuple):
    """failed: the bookie that did not take a copy, and why; None: every copy is durable."""

    failed: Member | None
    why: str = ""
    copies: int = 0


@dataclass(slots=True)
class _Owed:
    member: Member
    frame: Frame
    sent_ns: int
    again_ns: int | None = None  # When to send it again to a bookie that was busy.


class CopyingInPlace(Machine):
    """Ends with PieceCopied."""

    def __init__(
        self, quorum: Quorum, ensemble: Sequence[Member], frames: Sequence[Frame], nonce: int
    ) -> None:
        """frames: without gaps, checked, each of at most FRAME_BYTES_MAX. nonce: of this machine alone."""
        self.quorum = quorum
        self.ensemble = tuple(ensemble)
        self.frames = tuple(frames)
        self.nonce = nonce
        self.owed: dict[int, _Owed] = {}  # By the number of the copy.
        self.copies = 0
        self.is_over = False

    @property
    def deadline_ns(self) -> int | None:
        if self.is_over:
            return None
        busy = (each.again_ns for each in self.owed.values())
        return earliest(*busy, *(each.sent_ns + WRITE_NS for each in self.owed.values()))

    def _on_started(self, event: Started) -> list[Effect]:
        quorum, effects = self.quorum, list[Effect]()
        for frame in self.frames:
            for seat, member in enumerate(self.ensemble):
                is_striped = quorum.ensemble_size > quorum.write_quorum
                part = cut(frame, quorum.ensemble_size, quorum.write_quorum, seat) if is_striped else frame
                if part is not None:
                    number = len(self.owed) + 1
                    self.owed[number] = _Owed(member, part, event.now_ns)
                    effects.append(self._send(number))
        return effects or self._end(None)

    def _send(self, number: int) -> Effect:
        owed = self.owed[number]
        request = AddRequest(owed.member.incarnation, self.nonce, number, recovery=True, is_copy=True)
        return Send(
            owed.member, request, ("copy", number), ((encode_frame_header(owed.frame, _NO_KEY), owed.frame),)
        )

    def _on_answered(self, event: Answered) -> list[Effect]:
        number, answer = event.tag[1], event.control
        owed = self.owed.get(number)
        if self.is_over or owed is None or event.member != owed.member:
            return []
        status = answer.status if isinstance(answer, AddAnswer) else Status.UNKNOWN
        if status == Status.BUSY:
            owed.again_ns = event.now_ns + BUSY_NS
            return []
        if status != Status.OK or not self._is_of(answer, owed, number):
            return self._end(owed.member, status.name)
        del self.owed[number]
        self.copies += owed.frame.entry_count
        return [] if self.owed else self._end(None)

    def _is_of(self, answer: object, owed: _Owed, number: int) -> bool:
        """Whether the answer is to this very add (P3.8)."""
        frame = owed.frame
        wanted = (self.nonce, number, True, frame.ledger_id, frame.first_entry, frame.last_entry)
        return isinstance(answer, AddAnswer) and wanted == (
            answer.nonce,
            answer.seating,
            answer.recovery,
            answer.ledger_id,
            answer.first_entry,
            answer.last_entry,
        )

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        """Note a failure: it is unknown whether the bookie has the copy, so that copy does not count (P8.14)."""
        owed = self.owed.get(event.tag[1])
        return [] if self.is_over or owed is None else self._end(owed.member, event.reason)

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.is_over:
            return []
        effects: list[Effect] = []
        for number, owed in self.owed.items():
            if event.now_ns >= owed.sent_ns + WRITE_NS:
                return self._end(owed.member, "no answer in time")
            if owed.again_ns is not None and event.now_ns >= owed.again_ns:
                owed.again_ns = None
                effects.append(self._send(number))
        return effects

    def _end(self, failed: Member | None, why: str = "") -> list[Effect]:
        self.is_over = True
        return [Ended(None, PieceCopied(failed, why, self.copies))]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
