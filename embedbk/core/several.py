"""Requests that a bookie gets for several ledgers in one message, gathered ledger by ledger (P11.2): what is read of
each, and what is stored of each.

Each ledger has a verdict of its own, as if it had been asked for by itself: what is refused, unknown or damaged of one
says nothing of the others. One answer has all verdicts. It leaves when the last one is known, and behind the last
record that any of them waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embedbk.codec.add_messages import AddRequest, CopiesAnswer, CopyTaken
from embedbk.codec.bookie_fields import Status
from embedbk.codec.read_messages import ReadAnswer, ReadPart, ReadRange, ReadRequest

__all__ = [
    "parts_of",
    "SeveralAdds",
    "SeveralReads",
    "as_unknown_copies",
    "ranges_of",
    "why_not_copied",
    "why_not_read",
]

_NO_ROOM_WAIT_MS = 1  # The others of its message filled the answer: it can be asked for again at once.


@dataclass(slots=True)
class SeveralReads:
    """The answer to a read of several ledgers."""

    parts: list[ReadPart]  # In the order of the request.
    places: list[int]  # Those of them that are looked up.

    @property
    def answer(self) -> ReadAnswer:
        own, *others = self.parts
        return ReadAnswer(own.status, own.ledger_id, own.absent, wait_ms=own.wait_ms, others=others)

    def take(self, place: int, absent: list[tuple[int, int]] | None) -> None:
        """What was found missing of one that was looked up; None: the others left no room for it."""
        ledger_id = self.parts[place].ledger_id
        if absent is None:
            self.parts[place] = ReadPart(Status.BUSY, ledger_id, wait_ms=_NO_ROOM_WAIT_MS)
        else:
            self.parts[place] = ReadPart(Status.OK, ledger_id, absent)


@dataclass(slots=True)
class SeveralAdds:
    """The answer to copies of several ledgers."""

    request: AddRequest
    copies: list[CopyTaken]  # In the order of the frames.
    wait_token: int = 0  # The highest of the records that its answer waits for.
    left: int = 0  # Frames that are compared with what is held, and of which that is not known yet.

    @property
    def answer(self) -> CopiesAnswer:
        return CopiesAnswer(self.request.nonce, self.request.seating, self.copies)

    def take(self, place: int, status: Status, wait_token: int = 0) -> None:
        """wait_token: the record that makes an OK true."""
        copy = self.copies[place]
        self.copies[place] = CopyTaken(status, copy.ledger_id, copy.first_entry, copy.last_entry)
        self.wait_token = max(self.wait_token, wait_token)


def as_unknown_copies(answer: CopiesAnswer) -> CopiesAnswer:
    """The same answer where nothing can be promised any more (P7.6)."""
    unknown = [
        CopyTaken(Status.UNKNOWN, each.ledger_id, each.first_entry, each.last_entry) for each in answer.copies
    ]
    return CopiesAnswer(answer.nonce, answer.seating, unknown)


def parts_of(answer: ReadAnswer) -> list[ReadAnswer | ReadPart]:
    """All verdicts of an answer, that on the request's own range first."""
    return [answer, *answer.others]


def ranges_of(request: ReadRequest) -> list[ReadRange]:
    """All ranges of a read, its own first."""
    own = ReadRange(
        request.ledger_id, request.first_entry, request.last_entry, request.modulus, request.residues
    )
    return [own, *request.others]


def why_not_read(request: ReadRequest, ranges: Sequence[ReadRange]) -> str:
    """Why nothing is read for this request for several ledgers; empty: it is."""
    if request.fence:
        return f"a read of {len(ranges)} ledgers with a fence: a fence is for one"
    if len({each.ledger_id for each in ranges}) < len(ranges):
        return f"a read of {len(ranges)} ranges that names a ledger twice: each is allowed once"
    if any(each.first_entry > each.last_entry for each in ranges):
        return "a read of an impossible range"
    return ""


def why_not_copied(request: AddRequest, frames: Sequence[tuple[object, object]], frames_max: int) -> str:
    """Why nothing is stored for this request with several frames; empty: it is."""
    if not frames or not (request.recovery and request.is_copy) or request.deferred:
        return f"an add has one frame, not {len(frames)}"
    if len(frames) > frames_max:
        return f"copies in {len(frames)} frames: at most {frames_max} are allowed"
    return ""
