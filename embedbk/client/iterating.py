"""Iteration over what the coroutines of the handles yield, each item waited for in the caller's thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import TypeVar

from embedbk.client.waiting import run_blocking

__all__ = ["iterate"]

T = TypeVar("T")


def iterate(frames: AsyncGenerator[T, None], aio_twin: str) -> Iterator[T]:
    """The items of a generator; the thread that asks for one waits for it."""
    try:
        while True:
            try:
                yield run_blocking(frames.__anext__(), aio_twin)
            except StopAsyncIteration:
                return
    finally:
        _drop(frames)


def _drop(frames: AsyncGenerator[T, None]) -> None:
    """End such a generator. It waits for nothing, so a garbage collector may do this in any thread."""
    try:
        frames.aclose().send(None)
    except StopIteration:
        return
    raise AssertionError("a generator of frames waited while it was closed")
