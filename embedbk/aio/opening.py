"""How awaited handles are opened and closed: by `await`, or by `async with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

__all__ = ["Closing", "Opening"]


class Closing(ABC):
    """A handle that is closed at the end of its block by `_leave`."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(kind is None)

    @abstractmethod
    async def _leave(self, is_normal: bool) -> None: ...


Handle = TypeVar("Handle", bound=Closing)


class Opening(Generic[Handle]):
    """Something on its way open: await it, or enter it with `async with`. Once."""

    def __init__(self, steps: Coroutine[Any, Any, Handle]) -> None:
        self._steps = steps
        self._handle: Handle | None = None

    def __await__(self) -> Generator[Any, None, Handle]:
        return self._steps.__await__()

    async def __aenter__(self) -> Handle:
        self._handle = await self._steps
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._handle is not None
        await self._handle.__aexit__(kind, error, trace)
