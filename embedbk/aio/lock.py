"""A lock, awaited."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Self

from embedbk.aio.iterating import each
from embedbk.aio.opening import Closing
from embedbk.client.locking import Holder, Locking
from embedbk.client.waiting import run_async

__all__ = ["Lock"]


class Lock(Closing):
    """As `embedbk.Lock`; hold it with `async with`."""

    def __init__(self, locking: Locking) -> None:
        self._locking = locking

    @property
    def name(self) -> str:
        return self._locking.name

    @property
    def epoch(self) -> int:
        return self._locking.epoch

    @property
    def is_held(self) -> bool:
        return self._locking.is_held

    def check(self) -> None:
        self._locking.check()

    async def acquire(self, timeout_s: float | None = None) -> int:
        return await run_async(self._locking.acquire(timeout_s))

    async def release(self) -> None:
        await run_async(self._locking.release())

    async def until_lost(self, timeout_s: float | None = None) -> bool:
        return await run_async(self._locking.until_lost(timeout_s))

    async def holder(self) -> Holder | None:
        return await run_async(self._locking.holder())

    async def holders(self) -> AsyncGenerator[Holder | None, None]:
        async for holder in each(self._locking.holders(), lambda holder: holder):
            yield holder

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def _leave(self, is_normal: bool) -> None:
        if is_normal:
            await self.release()
        else:
            self._locking.let_go()

    def __reduce__(self) -> Any:
        self._locking.refuse_pickling()
