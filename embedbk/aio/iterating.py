"""Async iteration over what the coroutines of the handles yield, run in the caller's event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

from embedbk.client.batches import Entry, Located, entries_of
from embedbk.client.waiting import run_async

__all__ = ["each", "entries_one_by_one"]


T = TypeVar("T")
Given = TypeVar("Given")


async def each(frames: AsyncGenerator[Given, None], make: Callable[[Given], T]) -> AsyncGenerator[T, None]:
    try:
        while True:
            try:
                located = await run_async(frames.__anext__())
            except StopAsyncIteration:
                return
            yield make(located)
    finally:
        await run_async(frames.aclose())


async def entries_one_by_one(frames: AsyncGenerator[Located, None]) -> AsyncGenerator[Entry, None]:
    async for entries in each(frames, entries_of):
        for entry in entries:
            yield entry
