"""The counting of common answers once more in plain Python, and the contract of both (native/road/answers.h).

It decides nothing: an answer is counted when it says OK to exactly what was asked, on the link on which it was asked;
what was counted is delivered to the cores, which count again by their own rules (P3.3, P3.7, P3.8). What is judged here
is when they need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from embedbk.codec.add_messages import AddAnswer, AddAnswers
from embedbk.codec.bookie_fields import Status
from embedbk.codec.messages import decode_message
from embedbk.errors import PeerError

__all__ = ["ANSWERS_SLOTS_MAX", "ANSWERS_UNTOLD_MAX", "Asked", "Counting", "TwinAnswers"]

ANSWERS_SLOTS_MAX = 262_144  # Requests expected at a time; the answers to older ones are passed.
ANSWERS_UNTOLD_MAX = 1024  # More of them are news by themselves.
_SLOTS_MIN = 64

Buffer = bytes | bytearray | memoryview


class Asked(NamedTuple):
    """One request: a frame sent to one seat."""

    link: int
    request_id: int  # They rise, and are never used again.
    group: int  # The first request of the same frame, perhaps this one.
    needed: int  # So many answers of the group are news.
    nonce: int
    seating: int
    ledger_id: int
    first_entry: int
    last_entry: int


class Counting(Protocol):
    """What a client node needs of the counting of answers. All calls from the host's thread."""

    is_eager: bool  # Every answer is news.

    @property
    def is_due(self) -> bool:
        """Whether the cores need the answers that are untold."""
        ...

    @property
    def untold(self) -> int:
        """How many answers were counted and not delivered to the cores."""
        ...

    @property
    def counted(self) -> int:
        """How many answers were ever counted."""
        ...

    def next_request(self) -> int:
        """An id for the next request; those of frames that are sent from C come from the same count."""
        ...

    def expect(self, asked: Asked) -> None:
        """Expect the answer to a request that was sent, or will be: it may be counted."""
        ...

    def answered(self, request_id: int) -> None:
        """Note an expected request that was answered OK in a message that was passed: it counts for its group, and is
        not told again."""
        ...

    def take(self, link: int, message: Buffer) -> bool:
        """Offer a message of a link. False: it is not what was expected, nothing was counted, and it is the core's."""
        ...

    def tell(self) -> list[tuple[int, int, bool]]:
        """(link, request id, is_followed) of the untold answers, in the order of arrival; this call delivers them."""
        ...


@dataclass(slots=True)
class _Slot:
    asked: Asked
    group_count: int = 0
    is_answered: bool = False


class TwinAnswers:
    """`Counting` in plain Python."""

    def __init__(self) -> None:
        self.is_eager = False
        self.is_due = False
        self.counted = 0
        self._last_request = 0
        self._slot_count = _SLOTS_MIN
        self._slots: dict[int, _Slot] = {}
        self._untold: list[tuple[int, int, bool]] = []

    @property
    def untold(self) -> int:
        return len(self._untold)

    def next_request(self) -> int:
        self._last_request += 1
        return self._last_request

    def expect(self, asked: Asked) -> None:
        assert asked.request_id
        while self._is_taken(asked.request_id) and self._slot_count < ANSWERS_SLOTS_MAX:
            self._slot_count *= 2
            slots = self._slots.values()
            self._slots = {slot.asked.request_id % self._slot_count: slot for slot in slots}
        self._slots[asked.request_id % self._slot_count] = _Slot(asked)

    def _is_taken(self, request_id: int) -> bool:
        slot = self._slots.get(request_id % self._slot_count)
        return slot is not None and not slot.is_answered

    def take(self, link: int, message: Buffer) -> bool:
        try:
            decoded = decode_message(bytes(message))
            control = decoded.control
            if isinstance(control, AddAnswers):
                answers = control.unpack()
            elif isinstance(control, AddAnswer):
                answers = [(decoded.request_id, control)]
            else:
                return False
        except PeerError:
            return False
        if decoded.frames or not all(self._is_expected(link, *answer) for answer in answers):
            return False
        for request_id, answer in answers:
            if self._is_expected(link, request_id, answer):  # Else said twice in one message.
                self._count(self._slots[request_id % self._slot_count], answer.is_followed)
        return True

    def _is_expected(self, link: int, request_id: int, answer: AddAnswer) -> bool:
        slot = self._slots.get(request_id % self._slot_count)
        if slot is None or slot.is_answered or answer.status != Status.OK or answer.recovery:
            return False
        asked = slot.asked
        said = (link, request_id, answer.nonce, answer.seating)
        return said == (asked.link, asked.request_id, asked.nonce, asked.seating) and asked[6:] == (
            answer.ledger_id,
            answer.first_entry,
            answer.last_entry,
        )

    def answered(self, request_id: int) -> None:
        slot = self._slots.get(request_id % self._slot_count)
        if slot is not None and slot.asked.request_id == request_id and not slot.is_answered:
            self._count_in_group(slot)

    def _count(self, slot: _Slot, is_followed: bool) -> None:
        self._untold.append((slot.asked.link, slot.asked.request_id, is_followed))
        self.counted += 1
        is_news = self._count_in_group(slot)
        if is_news or self.is_eager or len(self._untold) >= ANSWERS_UNTOLD_MAX:
            self.is_due = True

    def _count_in_group(self, slot: _Slot) -> bool:
        """Count an answer for its frame; returns whether it is the one that the frame needed."""
        slot.is_answered = True
        head = self._slots.get(slot.asked.group % self._slot_count)
        if head is None or head.asked.request_id != slot.asked.group:
            return True  # It gave way, so none was counted: then each is news.
        head.group_count += 1
        return head.group_count == slot.asked.needed

    def tell(self) -> list[tuple[int, int, bool]]:
        told, self._untold, self.is_due = self._untold, [], False
        return told
