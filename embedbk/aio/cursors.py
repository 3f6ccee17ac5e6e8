"""A cursor and its consumer, awaited."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Self

from embedbk.aio.opening import Closing
from embedbk.client.batches import Entry, entries_of
from embedbk.client.consuming import Consuming
from embedbk.client.cursors import Cursoring, CursorState
from embedbk.client.log_places import Start
from embedbk.client.runtime import refuse_pickling
from embedbk.client.waiting import run_async

__all__ = ["Consumer", "Cursor"]


class Consumer(Closing):
    """As `embedbk.Consumer`: `async with` it, and `async for` over it."""

    def __init__(self, consuming: Consuming) -> None:
        self._consuming = consuming

    @property
    def epoch(self) -> int:
        return self._consuming.epoch

    @property
    def position(self) -> int:
        return self._consuming.position

    @property
    def committed(self) -> int:
        return self._consuming.committed

    async def commit(self) -> bool:
        """As `embedbk.Consumer.commit`."""
        return await run_async(self._consuming.commit())

    async def __aiter__(self) -> AsyncGenerator[Entry, None]:
        consuming = self._consuming
        consuming.again()
        while (located := await run_async(consuming.next())) is not None:
            for entry in entries_of(located):
                yield entry
                consuming.passed(entry)
                if consuming.needs_look and await run_async(consuming.look()):
                    break

    async def __aenter__(self) -> Self:
        await run_async(self._consuming.begin())
        return self

    async def _leave(self, is_normal: bool) -> None:
        if is_normal:
            await run_async(self._consuming.end())
        else:
            self._consuming.let_go()

    def __reduce__(self) -> Any:
        refuse_pickling("a consumer", "open the log there and call consume()")


class Cursor:
    """As `embedbk.Cursor`."""

    def __init__(self, cursoring: Cursoring) -> None:
        self._cursoring = cursoring

    @property
    def name(self) -> str:
        return self._cursoring.name

    async def get(self) -> CursorState:
        return await run_async(self._cursoring.get())

    async def set(self, place: Start = None, *, revision: int | None = None) -> CursorState:
        return await run_async(self._cursoring.set(place, revision))

    async def delete(self, *, revision: int | None = None) -> bool:
        return await run_async(self._cursoring.delete(revision))

    def consume(
        self, *, timeout_s: float | None = None, idle_s: float | None = None, commit_s: float = 1.0
    ) -> Consumer:
        """As `embedbk.Cursor.consume`."""
        return Consumer(Consuming(self._cursoring, timeout_s, idle_s, commit_s))

    def __reduce__(self) -> Any:
        refuse_pickling(
            "a cursor handle", "send the client's url and the names of log and cursor, and open it there"
        )
