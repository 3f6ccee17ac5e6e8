"""Applications that ask what their client's open handles wait for, beside all that goes on there.

Decides when it is asked, and judges what is told: a wait has a rule, words and a time that fit together. That a handle
which could go on does so is judged by the client's own looks (L16).
"""

from __future__ import annotations

from embedbk.client.handles import handles
from embedbk.client.runtime import Runtime
from embedbk.errors import EmbedbkError
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.plan import MS
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["asks_for_handles"]

_ROUNDS = 6
_PAUSE_NS = 150 * MS


def asks_for_handles(world: World, client: str, runtime: Runtime) -> Steps:
    """A few times, at a pace of its own."""
    for _ in range(_ROUNDS):
        yield Sleep(_PAUSE_NS)
        try:
            states = yield from awaited(runtime, handles(runtime))
        except EmbedbkError as error:
            world.note(f"{client}: asking for handles: {type(error).__name__}: {error}")
            return
        for state in states:
            is_waiting = bool(state.rule)
            if (
                is_waiting != bool(state.waits_for)
                or state.waited_s < 0
                or (state.waited_s and not is_waiting)
            ):
                raise Violation("L16", f"{client} is told: {state!r}")
            if is_waiting:
                world.sometimes["handle told what it waits for"] += 1
