"""Interrupts a call at each point at which CPython runs signal handlers: where a function begins, and behind a call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import embedbk

__all__ = ["Interrupted", "interruptions"]

_LIBRARY = str(Path(embedbk.__file__).parent)


class Interrupted(KeyboardInterrupt):
    """What the handler raises."""


def _interrupted(call: Callable[[], object], point: int) -> Interrupted | None:
    """What came of the call where the handler raised at its point; None: it was done before that."""
    seen = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal seen
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(_LIBRARY):
            seen += 1
            if seen == point:
                sys.setprofile(None)
                raise Interrupted

    before = sys.getprofile()
    try:
        sys.setprofile(look)
        call()
    except Interrupted as stopped:
        return stopped
    finally:
        sys.setprofile(before)
    assert seen < point, "what a signal handler raises is the caller's"
    return None


def interruptions(call: Callable[[int], object], begin: int = 1) -> Iterator[tuple[int, Interrupted]]:
    """Call call(point) again and again, each time stopped at a later point, until it is done before that."""
    point = begin
    while (stopped := _interrupted(lambda: call(point), point)) is not None:  # noqa: B023
        yield point, stopped
        point += 1
