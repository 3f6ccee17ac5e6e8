"""What one bookie has of a part of a ledger; changes nothing and decides nothing (P6.1, P7.1).

For people who want to see one copy, whatever the ensemble says. A reader takes whatever copy is whole, and would never
show that one is missing. It asks one question: the caller continues behind what was answered.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from embedbk.codec.bookie_fields import Status
from embedbk.codec.digest import check_tags
from embedbk.codec.frame import Frame, frame_of, split
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import NotEnoughBookies, PeerError
from embedbk.ids import Member

__all__ = ["CopyPart", "CopyRead"]

COPY_READ_NS = 5_000_000_000
TAG = "copy"


class CopyPart(NamedTuple):
    """The answer for the entries first..next_entry - 1. frames: may hold entries before first or behind that."""

    frames: tuple[Frame, ...]
    absent: tuple[tuple[int, int], ...]  # Ranges (first, last) that it denies to have.
    # Ranges about which it cannot tell: unreadable there, damaged, or the ledger is in limbo.
    unknown: tuple[tuple[int, int], ...]
    next_entry: int


class CopyRead(Machine):
    """Ends with a CopyPart; NotEnoughBookies where the bookie does not answer."""

    def __init__(
        self, metadata: LedgerMetadata, member: Member, first: int, last: int, mac_key: bytes
    ) -> None:
        self.metadata, self.mac_key = metadata, mac_key
        self.member, self.first, self.last = member, first, last
        self.until_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.until_ns

    def _on_started(self, event: Started) -> list[Effect]:
        self.until_ns = event.now_ns + COPY_READ_NS
        request = ReadRequest(
            self.member.incarnation, self.metadata.ledger_id, self.first, self.last, FRAME_BYTES_MAX
        )
        return [Send(self.member, request, TAG)]

    def _on_answered(self, event: Answered) -> list[Effect]:
        answer = event.control
        if self.until_ns is None:
            return []
        if not isinstance(answer, ReadAnswer):
            return self._end(getattr(answer, "text", "an answer of the wrong kind"))
        if answer.status == Status.NO_SUCH_LEDGER:
            return self._told(CopyPart((), ((self.first, self.last),), (), self.last + 1))
        if answer.status == Status.IN_LIMBO:
            return self._told(CopyPart((), (), ((self.first, self.last),), self.last + 1))
        if answer.status != Status.OK:
            return self._end(Status(answer.status).name)
        try:
            frames = [frame_of(body, self.metadata.ledger_id) for _, body in event.frames]
        except PeerError as broken:
            return self._end(str(broken))
        return self._told(self._part(frames, [(first, last) for first, last in answer.absent]))

    def _part(self, frames: list[Frame], absent: list[tuple[int, int]]) -> CopyPart:
        """The part that the answer covers. Entries neither returned whole nor denied, up to the last one mentioned, are
        unknown."""
        sound = tuple(frame for frame in frames if self._is_sound(frame))
        denied = [
            (max(a, self.first), min(b, self.last)) for a, b in absent if a <= self.last and b >= self.first
        ]
        given = [(entry_id, entry_id) for frame in sound for entry_id, _ in split(frame)]
        spoken = sorted(denied + [each for each in given if self.first <= each[0] <= self.last])
        tops = [high for _, high in spoken] + [min(each.last_entry, self.last) for each in frames]
        top = max((each for each in tops if each >= self.first), default=self.last)
        unknown, expected = list[tuple[int, int]](), self.first
        for low, high in [*spoken, (top + 1, top + 1)]:
            if expected < low:
                unknown.append((expected, low - 1))
            expected = max(expected, high + 1)
        return CopyPart(sound, tuple(sorted(denied)), tuple(unknown), top + 1)

    def _is_sound(self, frame: Frame) -> bool:
        """Whether the copy is sound; if not, it is a failed copy (P3.1)."""
        try:
            check_tags(frame, self.metadata.digest, self.mac_key)
        except PeerError:
            return False
        return True

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return self._end(event.reason) if self.until_ns is not None else []

    def _on_tick(self, event: Tick) -> list[Effect]:
        is_due = self.until_ns is not None and event.now_ns >= self.until_ns
        return self._end("no answer in time") if is_due else []

    def _told(self, part: CopyPart) -> list[Effect]:
        self.until_ns = None
        return [Ended(None, part)]

    def _end(self, reason: str) -> list[Effect]:
        self.until_ns = None
        return [
            Ended(
                NotEnoughBookies(f"bookie {self.member.bookie_id} does not say what it has: {reason}"), None
            )
        ]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
