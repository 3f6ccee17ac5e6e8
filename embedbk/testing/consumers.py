"""Consumers of a log by its cursors, and clients that move and delete these cursors meanwhile (P8.8).

Decides what is asked for. `invariants_cursors` judges by the metadata which consumer commits what, and that the entries
that a cursor holds are there; here it is judged that a consumer gets every entry from its place on, once and in order
(I97).
"""

from __future__ import annotations

import random

from embedbk.client.batches import entries_of
from embedbk.client.consuming import Consuming
from embedbk.client.cursors import Cursoring, cursors
from embedbk.client.log_reading import LogReading
from embedbk.client.runtime import Runtime
from embedbk.client.truncating import truncate
from embedbk.errors import CursorLost, EmbedbkError, NoSuchCursor, OperationTimeout, Truncated
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.plan import MS
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.truncators import noted
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["uses_cursors"]

_NAMES = (
    "billing",
    "billing",
    "billing",
    "audit",
)  # Cursors; several consumers want one of them at the same time.
_BESIDE = "beside"  # A cursor that holds nothing.


def _cursoring(reading: LogReading, chance: random.Random) -> Cursoring:
    name = chance.choice([*_NAMES, _BESIDE])
    if name == _BESIDE:
        return Cursoring(reading, name, False, None, None)
    ends_after_s = chance.choice([None, None, 0.3])
    return Cursoring(reading, name, True, ends_after_s, chance.choice([None, None, 200]))


def uses_cursors(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random
) -> Steps:
    """Some rounds, beside what others do with the same cursors."""
    for _ in range(chance.randint(1, 6)):
        act = chance.choice([_consumes, _consumes, _moves])
        try:
            yield from act(world, client, runtime, reading, chance)
        except EmbedbkError as error:
            world.note(f"{client}: cursors: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 100) * MS)


def _consumes(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random
) -> Steps:
    """One consumer, until nothing comes for a while, or something ends it."""
    cursoring = _cursoring(reading, chance)
    commit_s = chance.choice([0.0, 0.02, 0.3, float("inf")])
    consuming = Consuming(cursoring, chance.choice([0.2, 5.0]), chance.choice([0.05, 0.6]), commit_s)
    try:
        yield from awaited(runtime, consuming.begin())
        yield from _consume(world, client, runtime, consuming, chance)
        if chance.random() < 0.7:
            yield from awaited(runtime, consuming.end())
    except OperationTimeout:
        world.sometimes["consumer waited in vain"] += 1
    except CursorLost as lost:
        world.sometimes["consumer lost its lease"] += 1
        world.note(f"{client}: {lost}")
    except NoSuchCursor:
        world.sometimes["cursor deleted under its consumer"] += 1
    except Truncated as gone:
        world.note(f"{client}: {gone}")
    finally:
        consuming.let_go()


def _consume(
    world: World, client: str, runtime: Runtime, consuming: Consuming, chance: random.Random
) -> Steps:
    leaves_at = chance.choice([3, 30, 1_000])
    pause_ms = chance.choice([0, 0, 5, 40])
    given = 0
    while given < leaves_at:
        located = yield from awaited(runtime, consuming.next())
        if located is None:
            return
        for entry in entries_of(located):
            if entry.offset != consuming.position:
                raise Violation(
                    "I97", f"{client} consumed up to offset {consuming.position}, and is given {entry.offset}"
                )
            given += 1
            if given >= leaves_at and chance.random() < 0.5:
                break  # Left inside of a loop: this one was not consumed.
            consuming.passed(entry)
            if pause_ms:
                yield Sleep(chance.randint(0, pause_ms) * MS)
            if chance.random() < 0.05 and not (yield from awaited(runtime, consuming.commit())):
                world.sometimes["commit met a move"] += 1
                break
            if consuming.needs_look and (yield from awaited(runtime, consuming.look())):
                world.sometimes["cursor moved under its consumer"] += 1
                break


def _moves(world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random) -> Steps:
    """Put a cursor somewhere, delete it, look how far all are behind, or truncate as far as they allow."""
    for _ in range(chance.randint(1, 5)):
        cursoring = _cursoring(reading, chance)
        try:
            act = chance.choice(["set", "set", "back", "delete", "look", "truncate"])
            if act == "delete":
                yield from awaited(runtime, cursoring.delete(None))
            elif act == "look":
                yield from awaited(runtime, cursors(reading))
            elif act == "truncate":
                log_list = yield from awaited(runtime, reading.listed())
                before = max((each.first_offset or 0 for each in log_list.segments), default=0)
                steps = truncate(
                    reading, before, None, None, may_do_nothing=True, force=chance.random() < 0.2
                )
                done = yield from noted(world, runtime, steps)
                world.sometimes["cursor held a truncation"] += bool(done.cursor)
            else:
                log_list = yield from awaited(runtime, reading.listed())
                first = log_list.first_offset
                ends = max((each.first_offset or 0 for each in log_list.segments), default=0)
                place = chance.randint(first, max(first, ends)) if act == "set" else first
                yield from awaited(runtime, cursoring.set(place, None))
        except EmbedbkError as error:
            world.note(f"{client}: cursors: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 60) * MS)
