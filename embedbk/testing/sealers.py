"""Clients that seal the log that owners write, beside them (P8.9), now and then against one that takes it over as often
as it can.

Decides what must follow: no client takes it over any more, and a reader at its end ends. `invariants_logs` judges that
nothing is listed behind the seal.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from embedbk.client import log_writer
from embedbk.client.creating import traits_of
from embedbk.client.log_following import LogFollowing
from embedbk.client.log_reading import LogReading
from embedbk.client.runtime import Runtime
from embedbk.client.sealing import seal
from embedbk.config import Quorum
from embedbk.errors import EmbedbkError, LedgerFenced, LogSealed
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.drawn_terms import ready, runtime_of
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["seals"]

REASON = "moved elsewhere"
_LONG_S = 1_000.0  # A reader that waits so long has not ended.
CONTENDED = 0.5  # In so many cases another client wants the log just then.
_TAKEOVERS_MAX = 100


def seals(world: World, client: str, runtime: Runtime, reading: LogReading, quorum: Quorum) -> Steps:
    takeovers, is_over = 0, False

    def goes_on() -> bool:
        nonlocal takeovers
        takeovers += 1
        return not is_over

    if random.Random(f"contended seal of {client} {world.seed}").random() < CONTENDED:
        rival = f"{client}-rival"
        if rival not in world.nodes:
            world.start_client(rival)
        world.spawn(rival, _takes_over(world, rival, reading, quorum, goes_on))
        yield Until(lambda: takeovers > 1, SECOND)
    try:
        yield from _seal_and_look(world, client, runtime, reading, quorum)
    finally:
        is_over = True


def _takes_over(
    world: World, client: str, reading: LogReading, quorum: Quorum, goes_on: Callable[[], bool]
) -> Steps:
    """Take the log over again and again, as processes do that each were started for it and do not know of the one
    before: who remembers a loss waits (P8.1)."""
    yield from ready(world, client)
    for _ in range(_TAKEOVERS_MAX):
        if not goes_on():
            return
        runtime = runtime_of(world, client)
        traits = traits_of(runtime, "synced", None, delays_change=False, digest="crc32c")
        try:
            steps = log_writer.take_over(runtime, reading.given, reading.password, quorum, traits)
            taken = yield from awaited(runtime, steps)
            yield from awaited(runtime, taken.close())
        except LogSealed:
            return
        except EmbedbkError:
            yield Sleep(MS)


def _seal_and_look(world: World, client: str, runtime: Runtime, reading: LogReading, quorum: Quorum) -> Steps:
    lost = runtime.contending.losses(reading.name, runtime.now_ns())
    try:
        yield from awaited(runtime, seal(reading, REASON))
        world.sometimes["log sealed"] += 1
        is_behind_another = runtime.contending.losses(reading.name, runtime.now_ns()) > lost
        world.sometimes["sealed behind a takeover"] += is_behind_another
    except LogSealed as before:
        if before.reason != REASON:
            raise Violation("P8.9", f"{client} is told that {reading.name} is sealed: {before}") from before
    except LedgerFenced as taken_over:
        world.sometimes["sealing lost to a takeover"] += 1
        world.note(f"{client}: {taken_over}")
        return
    frames, begun_s = LogFollowing(reading).tail(None, _LONG_S), runtime.clock_s()
    try:
        located = yield from awaited(runtime, frames.__anext__())
        raise Violation("P8.9", f"{client} reads {located} behind the end of {reading.name}, which is sealed")
    except StopAsyncIteration:
        if runtime.clock_s() - begun_s >= _LONG_S:
            raise Violation("P8.9", f"{client} waits at the end of {reading.name}, which is sealed") from None
    traits = traits_of(runtime, "synced", None, delays_change=False, digest="crc32c")
    steps = log_writer.take_over(runtime, reading.given, reading.password, quorum, traits)
    try:
        taken = yield from awaited(runtime, steps)
    except LogSealed:
        return
    if taken.owning.name == reading.name:
        raise Violation("P8.9", f"{client} has taken over {reading.name}, which is sealed")
    # The sealed log has another name by now, or is deleted (P8.12): this is the one that has its name.
    world.note(f"{client}: {reading.given} is another log by now")
    yield from awaited(runtime, taken.close())
