"""Runs a signal handler at each point of a call at which CPython runs them: where a function begins, and behind a
call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import embedbk

__all__ = ["Interrupted", "handled", "interruptions"]

_LIBRARY = str(Path(embedbk.__file__).parent)


class Interrupted(KeyboardInterrupt):
    """What the handler raises."""


def _stop() -> None:
    raise Interrupted


def handled(call: Callable[[], object], point: int, handler: Callable[[], object]) -> bool:
    """Whether the call came to its point, at which this thread ran the handler. Raises what either raises."""
    seen = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal seen
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(_LIBRARY):
            seen += 1
            if seen == point:
                sys.setprofile(None)
                handler()

    before = sys.getprofile()
    try:
        sys.setprofile(look)
        call()
    finally:
        sys.setprofile(before)
    return seen >= point


def interruptions(call: Callable[[int], object]) -> Iterator[tuple[int, Interrupted]]:
    """Call call(point) again and again, each time stopped at a later point, until it is done before that."""
    point = 1
    while True:
        try:
            came = handled(lambda: call(point), point, _stop)  # noqa: B023
        except Interrupted as stopped:
            yield point, stopped
        else:
            assert not came, "what a signal handler raises is the caller's"
            return
        point += 1
