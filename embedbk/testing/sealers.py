"""Clients that seal the log that owners write, beside them (P8.9).

Decides what must follow: no client takes it over any more, and a reader at its end ends. `invariants_logs` judges that
nothing is listed behind the seal.
"""

from __future__ import annotations

from embedbk.client import log_writer
from embedbk.client.creating import traits_of
from embedbk.client.log_following import LogFollowing
from embedbk.client.log_reading import LogReading
from embedbk.client.runtime import Runtime
from embedbk.client.sealing import seal
from embedbk.config import Quorum
from embedbk.errors import LedgerFenced, LogSealed
from embedbk.testing.actors import Steps
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["seals"]

REASON = "moved elsewhere"
_LONG_S = 1_000.0  # A reader that waits so long has not ended.


def seals(world: World, client: str, runtime: Runtime, reading: LogReading, quorum: Quorum) -> Steps:
    try:
        yield from awaited(runtime, seal(reading, REASON))
        world.sometimes["log sealed"] += 1
    except LogSealed as before:
        if before.reason != REASON:
            raise Violation("P8.9", f"{client} is told that {reading.name} is sealed: {before}") from before
    except LedgerFenced as lost:
        world.sometimes["sealing lost to a takeover"] += 1
        world.note(f"{client}: {lost}")
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
