"""What a process that uses a log writes down of it, line by line: what it asks for, and what it is told.

Decides what a line says and how it is read. A process may be killed within a line, so the last one of a file may be
half; no other one may. Times are of CLOCK_MONOTONIC, which all processes of one machine share: `asked_ns` was taken
before something was asked for, `at_ns` behind the answer.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from embedbk.errors import UsageError

__all__ = [
    "AppendAsked",
    "AppendTold",
    "CursorCommitted",
    "CutAsked",
    "EntriesSeen",
    "LogCut",
    "LogEvent",
    "LogTaken",
    "ReadAsked",
    "ReadEnded",
    "events_in",
    "line_of",
]

Outcome = Literal["acknowledged", "refused", "unknown", "survived", "lost"]


class LogTaken(Struct, array_like=True, frozen=True, tag="taken"):
    """The process owns the log, and nobody who did before is told of anything behind first_offset (P8.1). tenure: its
    own number of this writer's handle. A writer that takes the log over from itself writes it again."""

    asked_ns: int
    at_ns: int
    tenure: int
    epoch: int
    first_offset: int


class AppendAsked(Struct, array_like=True, frozen=True, tag="append"):
    """One call that appends texts, an entry each. A text names its entry: only a producer, which may append its entry
    again, asks for one twice."""

    asked_ns: int
    call: int
    tenure: int
    texts: tuple[str, ...]
    has_producer: bool = False


class AppendTold(Struct, array_like=True, frozen=True, tag="told"):
    """The outcome of a call. refused: definitely not appended. survived and lost: what a ticket told later (P3.6).
    places: of each text (ledger, entry); offsets and epoch (0: none), as far as the call tells them."""

    at_ns: int
    call: int
    outcome: Outcome
    places: tuple[tuple[int, int], ...] = ()
    offsets: tuple[int, ...] = ()
    epoch: int = 0
    why: str = ""


class ReadAsked(Struct, array_like=True, frozen=True, tag="read"):
    """A reading begins. start None: where the log begins. cursor: by which a consumer reads; then start is where it
    stands, and at_ns when it knew. kind "final": all of the log, by its last owner, when everybody else has ended."""

    asked_ns: int
    at_ns: int
    read: int
    kind: Literal["read", "tail", "bulk", "consume", "final"]
    start: int | None
    cursor: str = ""


class EntriesSeen(Struct, array_like=True, frozen=True, tag="seen"):
    """Entries of one ledger that follow each other. times: of those that carry one, by their number here (P8.11)."""

    at_ns: int
    read: int
    offset: int
    ledger: int
    entry: int
    texts: tuple[str, ...]
    times: tuple[tuple[int, int], ...] = ()


class ReadEnded(Struct, array_like=True, frozen=True, tag="ended"):
    """end: nothing more may be read now. truncated: first_offset is where the log begins, as it was told."""

    at_ns: int
    read: int
    how: Literal["end", "left", "truncated", "failed"]
    first_offset: int | None = None
    why: str = ""


class CursorCommitted(Struct, array_like=True, frozen=True, tag="committed"):
    """The consumer of this reading was told that everything before the offset is committed."""

    at_ns: int
    read: int
    offset: int


class CutAsked(Struct, array_like=True, frozen=True, tag="cuts"):
    """A truncation begins, by which the log begins at most here."""

    asked_ns: int
    before: int


class LogCut(Struct, array_like=True, frozen=True, tag="cut"):
    """A truncation ended, and the log began at this offset."""

    at_ns: int
    reached: int


LogEvent = (
    LogTaken
    | AppendAsked
    | AppendTold
    | ReadAsked
    | EntriesSeen
    | ReadEnded
    | CursorCommitted
    | CutAsked
    | LogCut
)
_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[LogEvent] = msgspec.json.Decoder(LogEvent)


def line_of(event: LogEvent) -> bytes:
    """One line, with its end."""
    return _ENCODER.encode(event) + b"\n"


def events_in(data: bytes, what: str = "a history") -> list[LogEvent]:
    """The events of one process, in the order in which it wrote them; without a last line that is half.

    what: how a message names it. Raises UsageError for a line that is no event.
    """
    events: list[LogEvent] = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            events.append(_DECODER.decode(line))
        except msgspec.DecodeError as bad:
            raise UsageError(
                f"{what}, line {number} is no event of a log: {bad}",
                hint="only the last line may be half: give what one process wrote, as it wrote it",
            ) from None
    return events
