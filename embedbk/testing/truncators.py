"""Clients that truncate logs, and that pin them, beside owners and readers (P8.3, P8.8); and what must be left at the
end.

Decides what is asked for. `invariants_logs` judges by the list what may go; the holder of a pin reads what it holds,
and must get it (I96).
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Generator
from typing import Any

from embedbk.client.log_identity import find
from embedbk.client.log_places import Start
from embedbk.client.log_reading import LogReading
from embedbk.client.runtime import Runtime
from embedbk.client.truncating import pin, truncate, unpin
from embedbk.client.undeleting import undelete
from embedbk.codec.log_list import log_truncated_path
from embedbk.core.dropping import Dropping
from embedbk.errors import EmbedbkError, NoSuchLedger, NotTruncated, Truncated, UsageError
from embedbk.ids import Position
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.plan import MS, SECOND
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["noted", "pin_and_read", "room_is_given_back", "truncates"]


def noted(
    world: World, runtime: Runtime, steps: Coroutine[Any, Any, Any]
) -> Generator[Sleep | Until, Any, Any]:
    """Drive a truncation, of which those beside it know: they may report what it did."""
    world.truncations_under_way += 1
    world.truncations_begun += 1
    try:
        return (yield from awaited(runtime, steps))
    finally:
        world.truncations_under_way -= 1


def truncates(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random
) -> Steps:
    """Let the front of the log go, once or more."""
    for _ in range(chance.randint(1, 3)):
        was_alone = world.truncations_under_way == 0
        world.truncations_under_way += 1
        turn = world.truncations_begun = world.truncations_begun + 1
        try:
            before, older_than_s, keep_bytes = yield from _asked(runtime, reading, chance)
            steps = truncate(reading, before, older_than_s, keep_bytes, may_do_nothing=chance.random() < 0.5)
            done = yield from awaited(runtime, steps)
            if done.ledgers:
                world.sometimes["log truncated"] += 1
                yield from _some_come_back(world, client, runtime, reading, done.reached)
            if done.pin:
                world.sometimes["pin held a truncation"] += 1
            # Beside another truncation it reports how far both came; retention and bounds begin theirs at any time.
            is_own = was_alone and world.truncations_begun == turn and "settings" not in world.features
            if is_own and done.asked is not None and done.reached > max(done.asked, done.began):
                raise Violation(
                    "I96", f"{client} asked for offset {done.asked}, and it reached {done.reached}"
                )
        except NotTruncated as nothing:
            if nothing.truncation.pin:
                world.sometimes["pin held a truncation"] += 1
        except EmbedbkError as error:
            world.note(f"{client}: truncating: {type(error).__name__}: {error}")
        finally:
            world.truncations_under_way -= 1
        yield Sleep(chance.randint(0, 200) * MS)


def _some_come_back(world: World, client: str, runtime: Runtime, reading: LogReading, reached: int) -> Steps:
    """Put some of what was truncated back in front of the log (P8.15), at times; what must hold, the lists' invariants
    say. Its own chance leaves that of the truncations as it is."""
    chance = random.Random(f"{client} {reached} {world.truncations_begun}")
    if chance.random() < 0.2:
        return
    yield Sleep(chance.randint(0, 300) * MS)
    from_ = chance.choice([None, chance.randint(0, reached)])
    begun = world.truncations_begun
    try:
        done = yield from awaited(runtime, undelete(reading, from_))
    except UsageError:
        return  # Below the level.
    if done.ledgers:
        world.sometimes["truncated ledgers put back"] += 1
    # Another truncation, retention and bounds take off what they may, also meanwhile.
    is_alone = world.truncations_under_way == 1 and world.truncations_begun == begun
    is_alone = is_alone and "settings" not in world.features
    if is_alone and done.reached > max(done.asked or 0, done.began):
        raise Violation("I96", f"{client} put ledgers back, and the log begins at {done.reached}: {done}")


def _asked(
    runtime: Runtime, reading: LogReading, chance: random.Random
) -> Generator[Sleep | Until, Any, tuple[Start, float | None, int | None]]:
    """(before, older_than_s, keep_bytes)"""
    segments = (yield from awaited(runtime, reading.listed())).segments
    end = max((each.first_offset or 0 for each in segments), default=0)
    kind = chance.choice(["offset", "offset", "offset", "position", "time", "size", "both"])
    before: Start = None
    if kind in ("offset", "both"):
        before = chance.choice([end, end + 5, chance.randint(0, end)])
    elif kind == "position" and segments:  # A log that was only given settings has no ledger.
        before = Position(chance.choice(segments).ledger_id, chance.choice([0, 0, 3]))
    older_than_s = chance.choice([0.0, 0.5]) if kind in ("time", "both") else None
    return before, older_than_s, chance.choice([0, 50, 500]) if kind == "size" else None


def pin_and_read(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random
) -> Steps:
    """Every entry from a pin on is there for as long as the pin stands."""
    ttl_s = chance.choice([0.2, 1_000_000.0])
    at: Start = None
    if chance.random() < 0.5:
        first = (yield from awaited(runtime, reading.listed())).first_offset
        at = max(0, first + chance.choice([-1, 0, 1, 3]))
    try:
        held = yield from awaited(runtime, pin(reading, f"of-{client}", at, ttl_s))
    except Truncated:
        world.sometimes["pin came too late"] += 1
        return
    world.sometimes["log pinned"] += 1
    frames, offset = reading.read(held.offset, None), held.offset
    while True:
        try:
            located = yield from awaited(runtime, frames.__anext__())
        except StopAsyncIteration:
            break
        except Truncated as gone:
            if ttl_s > 1_000:
                raise Violation("I96", f"{client} pinned offset {held.offset}, and is told: {gone}") from None
            return
        if located.first_offset + located.frame.first_entry != offset:
            raise Violation("I97", f"{client} read up to offset {offset}, and then {located}")
        offset += located.frame.entry_count
        yield Sleep(chance.randint(0, 20) * MS)
    if chance.random() < 0.8:
        yield from awaited(runtime, unpin(reading, held.name))


def room_is_given_back(world: World, client: str, log: str) -> Steps:
    """L13: ledgers that truncation took off the list are deleted in the end, even if the client that began it died."""
    node = world.nodes[client]
    yield Until(lambda: node.is_ready, 20 * SECOND)
    runtime = SimRuntime(world, client, node)
    log = (yield from awaited(runtime, find(runtime, log))) or log
    yield from awaited(runtime, runtime.run(Dropping(log, runtime.wall_ms(), 1_000), "dropping"))
    try:
        value, _ = yield from awaited(runtime, runtime.get(log_truncated_path(log), "looking"))
    except NoSuchLedger:
        return
    if value is not None:
        raise Violation("L13", f"ledgers that left log {log!r} are not deleted")
