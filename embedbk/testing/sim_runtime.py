"""The faces' own logic in a simulated client: a runtime whose time is the world's, and how its coroutines are driven.

`embedbk.Client` and its handles are coroutines over `Wait` objects (embedbk/client/waiting.py). `Cluster` lets time
pass while one waits; an actor of a world hands its waits to the world with `awaited`, so that many run beside each
other.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

from embedbk.client.archived import ClosableSource
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import FutureResult, Moved, Passed, Settled, Wait
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.config import Settings
from embedbk.errors import OperationTimeout
from embedbk.host.client_node import ClientNode
from embedbk.host.operations import Operation
from embedbk.host.writing import Writing
from embedbk.testing.actors import Sleep, Until
from embedbk.testing.archived import ArchivedInMemory
from embedbk.testing.clocks import SECOND
from embedbk.testing.impatience import GaveUp
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["Narrow", "SimRuntime", "awaited"]

EPOCH_MS = 1_767_225_600_000  # The time of wall clocks at the beginning: 2026-01-01.
FOREVER_NS = 100_000 * SECOND  # A wait without a limit; the world looks for hangs itself (L2).


class _SimLoop:
    """Stands where the host's thread stands: what is asked of it happens at once, in virtual time."""

    def __init__(self, world: World, client: str) -> None:
        self.failure: BaseException | None = None
        self._world = world
        self._client = client

    def now_ns(self) -> int:
        return self._world.now_of(self._client)

    def call(self, function: Callable[[], None]) -> None:
        function()
        if self._client in self._world.nodes:
            self._world.turn_soon(self._client)

    def stop(self) -> None:
        """The process ends in good order."""
        node = self._world.nodes.get(self._client)
        if node is not None:
            self._world.leave(self._client)


@dataclass(frozen=True)
class Narrow(Settings):
    """Settings of a handle with room for a few entries only; less than an application may ask for."""

    append_bytes_max: int = 2_000

    def __post_init__(self) -> None:
        pass


class SimRuntime(Runtime):
    """The runtime of a client whose time is the world's."""

    def __init__(self, world: World, client: str, node: ClientNode, settings: Settings | None = None) -> None:
        loop: Any = _SimLoop(world, client)
        super().__init__(loop, node, settings or Settings(), f"the simulated client {client!r}")
        self.chance = random.Random(f"client {client} {world.seed}")
        self.core_chance = random.Random(f"writers of {client} {world.seed}")
        self._world = world
        self._client = client
        self.page_ledgers = world.page_ledgers
        # Clocks on walls are apart by more than they drift in a run.
        self._skew_ms = random.Random(f"wall of {client} {world.seed}").choice([0, 0, 3, -3, 2_000, -2_000])
        self.told_ms = self._told_ms
        self.handle_look_s, self.fill_look_s = 1.0, 0.2
        if "settings" in world.features:
            self.log_look_s = 0.3  # Else no log of a world has any.

    def start(self, operation: Operation) -> None:
        if isinstance(operation, Writing):
            self._world.writings[self._client][operation] = -1
        super().start(operation)

    def forget(self, operation: Operation) -> None:
        super().forget(operation)
        if not operation.is_shrunk:  # Its core has nothing under way.
            self._world.tell("on_forgotten", self._client, operation.core)

    def read_archived(self, metadata: LedgerMetadata, first: int, last: int) -> ClosableSource:
        return ArchivedInMemory(self._world, metadata, first, last)

    def behind(self, steps: Coroutine[Any, Any, None]) -> None:
        """Run it beside the present step, never as a part of it."""

        def begin() -> None:
            self._world.not_begun.discard(steps)
            if self._world.nodes.get(self._client) is self.node:
                self._world.spawn(self._client, awaited(self, steps, is_call=False))
            else:
                steps.close()  # Its process is gone.

        self._world.not_begun.add(steps)
        self._world.after(0, begin)

    def patience_ns(self) -> int | None:
        """How long the caller of this client bears the wait that begins now. None: as long as it takes."""
        return self._world.impatience.patience_ns(self._client)

    def on_given_up(self, steps: Coroutine[Any, Any, Any]) -> None:
        """A caller interrupts one of its calls."""
        self._world.sometimes["call given up by its caller"] += 1
        self._world.note(f"{self._client}: gives up {_name_of(steps)}")

    def on_filled(self, ledger_id: int, copies: int) -> None:
        self._world.sometimes["missed copies made"] += 1

    def on_stuck(self, state: str) -> None:
        raise Violation("L16", f"{self._client}: it could go on and does not: {state}")

    def on_limit(self, reader: object, ledger_id: int, limit: int, *, is_closed: bool) -> None:
        self._world.tell("on_reader_lac", self._client, ledger_id, limit, is_closed, reader)

    def clock_s(self) -> float:
        return self.now_ns() / SECOND

    def wall_ms(self) -> int:
        return EPOCH_MS + self.now_ns() // 1_000_000

    def _told_ms(self) -> int:
        return self.wall_ms() + self._skew_ms

    def owner(self) -> str:
        return self._client


class _Gone(BaseException):
    """The process of a coroutine is gone. A GeneratorExit would not do: in CPython 3.11 it ends an asynchronous
    generator before the one that it waits for, which is then "already running" for the code that ends that."""


def awaited(
    runtime: Runtime, steps: Coroutine[Any, Any, Any], *, is_call: bool = True
) -> Generator[Sleep | Until, Any, Any]:
    """Drive a handle's coroutine as part of an actor; its result, or what it raises. is_call: an application made this
    call, and may interrupt it while it waits.

    Raises:
        OperationTimeout: it did; what becomes of the call is not known.
    """
    impatient = runtime if is_call and isinstance(runtime, SimRuntime) else None  # Until it gave up.
    try:
        wait = steps.send(None)
        while True:
            patience_ns = None if impatient is None else impatient.patience_ns()
            try:
                outcome = yield from _outcome(wait, patience_ns)
            except GaveUp as interruption:
                assert impatient is not None
                impatient.on_given_up(steps)
                impatient = None
                wait = steps.throw(interruption)
            except GeneratorExit:
                runtime.is_closed = True  # The process is gone: what cleans up cleans up nothing any more.
                with contextlib.suppress(_Gone, StopIteration, StopAsyncIteration):
                    steps.throw(_Gone())
                raise
            except Exception as error:  # noqa: BLE001  Handed into the coroutine, which decides.
                wait = steps.throw(error)
            else:
                wait = steps.send(outcome)
    except StopIteration as done:
        return done.value
    except GaveUp:
        raise OperationTimeout(f"{_name_of(steps)} was given up by its caller; it may still happen") from None
    finally:
        steps.close()


def _outcome(wait: Wait[Any], patience_ns: int | None) -> Generator[Sleep | Until, Any, Any]:
    if isinstance(wait, Moved):
        return (yield from _until(wait.predicate, wait.timeout_s, patience_ns))
    if isinstance(wait, Passed):
        watermark, entry_id = wait.watermark, wait.entry_id
        return (yield from _until(lambda: watermark.mark >= entry_id, wait.timeout_s, patience_ns))
    if isinstance(wait, Settled):
        return (yield from _until(wait.future.done, wait.timeout_s, patience_ns))
    assert isinstance(wait, FutureResult), wait
    is_done = yield from _until(wait.future.done, wait.timeout_s, patience_ns)
    if not is_done:
        raise OperationTimeout(f"{wait.what}: not done within {wait.timeout_s:g} s; it may still happen")
    return wait.future.result()


def _until(
    is_reached: Callable[[], bool], timeout_s: float | None, patience_ns: int | None
) -> Generator[Sleep | Until, Any, bool]:
    """Rounded up: a wait that ends before its time would be begun again at the same moment, without end."""
    limit_ns = FOREVER_NS if timeout_s is None else max(1, math.ceil(timeout_s * SECOND))
    if patience_ns is None or patience_ns >= limit_ns:
        return bool((yield Until(is_reached, limit_ns)))
    if (yield Until(is_reached, patience_ns)):
        return True
    raise GaveUp


def _name_of(steps: Any) -> str:
    """Also of the next step of an asynchronous generator, which has no name of its own."""
    return getattr(steps, "__qualname__", type(steps).__name__)
