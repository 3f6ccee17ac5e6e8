"""Users who rename, delete and bring back a log while owners write it, readers read it and others take it over (P8.12,
P8.13).

Decides what is asked for, and that every handle that has a log open goes on with it. Which names may point where, and
what a deleted log keeps, `invariants_names` judges by the metadata (I104, I105).
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

from embedbk.client.batches import entries_of
from embedbk.client.log_deleting import delete_log, deleted_logs, forget_deleted, undelete_log
from embedbk.client.log_identity import rename
from embedbk.client.log_names import log_names
from embedbk.client.log_reading import LogReading
from embedbk.client.runtime import Runtime
from embedbk.codec.log_list import decode_log_list, log_key_path
from embedbk.errors import EmbedbkError, Truncated
from embedbk.ids import NO_ENTRY
from embedbk.metadata.levels import LEVEL_OF_LOG_IDS
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.plan import MS
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["renames"]

TRIES = 5  # Tries to read a log that is truncated meanwhile.


def renames(world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random) -> Steps:
    """Once or more: the log gets another name, or none for a while."""
    name = reading.given
    other = f"{name}-2"
    for _ in range(chance.randint(1, 4)):
        yield Sleep(chance.randint(0, 500) * MS)
        try:
            act = chance.choice([_rename, _rename, _delete, _delete, _forget])
            yield from act(world, client, runtime, reading, chance, (name, other))
        except EmbedbkError as error:
            world.note(f"{client}: renaming: {type(error).__name__}: {error}")


Names = tuple[str, str]


def _rename(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random, names: Names
) -> Steps:
    """What is there before is there afterwards, by whatever name; a reader that stands in it goes on (P8.12)."""
    old, new = chance.sample(names, 2)
    of = LogReading(runtime, old, reading.password)
    first = yield from _read(runtime, of)
    yield from awaited(runtime, rename(runtime, old, new))
    recorded = _recorded(world, str(of.name))
    again = yield from _read(runtime, of)
    _is_kept(client, first, again, recorded)
    yield from awaited(runtime, log_names(runtime, ""))


def _delete(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random, names: Names
) -> Steps:
    """All that stood in it stands in it when it is brought back, also what a writer that lives appended meanwhile."""
    name = chance.choice(names)
    of = LogReading(runtime, name, reading.password)
    first = yield from _read(runtime, of)
    log_id = str(of.name)
    # Below the level force deletes an open ledger for ever, with what was acknowledged in it (CL30).
    force = chance.random() < 0.7 and runtime.has_level(LEVEL_OF_LOG_IDS)
    steps = delete_log(runtime, name, reading.password, force=force)
    yield from awaited(runtime, steps)
    yield Sleep(chance.choice([0, 10, 100, 1_500]) * MS)
    if chance.random() < 0.85:
        back = chance.choice([None, None, *names])
        is_there = {each.log_id for each in (yield from awaited(runtime, deleted_logs(runtime)))}
        if log_id not in is_there:
            return  # Somebody else was faster.
        called = yield from awaited(runtime, undelete_log(runtime, log_id, back, reading.password))
        again = LogReading(runtime, called, reading.password)
        recorded = _recorded(world, log_id)
        second = yield from _read(runtime, again)
        if str(again.name) == log_id:
            _is_kept(client, first, second, recorded)


def _forget(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random, names: Names
) -> Steps:
    yield from awaited(runtime, forget_deleted(runtime))


def _read(runtime: Runtime, reading: LogReading) -> Generator[Sleep | Until, Any, dict[int, bytes]]:
    """Payloads by offset, as far as may be read now. What is truncated under the reader is no end: it begins again
    behind that."""
    for _ in range(TRIES):
        found: dict[int, bytes] = {}
        frames = reading.read(None, None)
        try:
            while True:
                located = yield from awaited(runtime, frames.__anext__())
                found.update((entry.offset, bytes(entry)) for entry in entries_of(located))
        except StopAsyncIteration:
            return found
        except Truncated:
            continue
    return {}


def _recorded(world: World, log_id: str) -> int:
    """The last offset whose ledger's end the list records. How far one that is open may be read is what those bookies
    know that answer (P6.2): another handle may be told less."""
    found, value = NO_ENTRY, world.committed("/logs/").get(log_key_path(log_id))
    for each in () if value is None else decode_log_list(value).segments:
        if each.first_offset is not None and each.last_entry is not None:
            found = each.first_offset + each.last_entry
    return found


def _is_kept(client: str, first: dict[int, bytes], second: dict[int, bytes], recorded: int) -> None:
    """Everything read before and not truncated since is read again, the same, as far as may be read now."""
    if not second:
        return
    begins, ends = min(second), max(recorded, max(second))
    for offset, payload in first.items():
        if begins <= offset <= ends and second.get(offset) != payload:
            raise Violation(
                "I105", f"{client} read {payload!r} at offset {offset}, and then {second.get(offset)!r}"
            )
