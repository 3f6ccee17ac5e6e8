"""Applications that look at what others wrote: they open, recover, read and tail ledgers and the log, by every road.

What they are given goes to the observers, frame by frame; they judge what only they see: times that never fall (P8.11),
parts that are the bytes of their entry, entry logs that have what they count.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise

from embedbk.client.batches import Located, entries_of
from embedbk.client.entry_times import first_at
from embedbk.client.log_following import LogFollowing
from embedbk.client.log_reading import LogReading
from embedbk.client.reading import LedgerReading
from embedbk.client.runtime import Runtime
from embedbk.codec.attributes import time_of
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.config import Quorum
from embedbk.core.entry_logs_query import EntryLogsQuery, LogKeepersQuery
from embedbk.errors import EmbedbkError
from embedbk.metadata.levels import LEVEL_OF_ENTRY_LOGS, LEVEL_OF_KEEPERS
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.archivers import archives
from embedbk.testing.bulk_readers import reads_in_bulk
from embedbk.testing.consumers import uses_cursors
from embedbk.testing.drawn_terms import all_ledgers, log_password, password_of, ready, runtime_of
from embedbk.testing.handle_askers import asks_for_handles
from embedbk.testing.owners import LOG
from embedbk.testing.plan import MS
from embedbk.testing.records import are_records_right
from embedbk.testing.renamers import renames
from embedbk.testing.sealers import seals
from embedbk.testing.settlers import changes_settings
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.splicers import splices_in
from embedbk.testing.squeezed import stored_of
from embedbk.testing.told_appends import watched
from embedbk.testing.truncators import pin_and_read, truncates
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["take", "visitor"]


def visitor(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    yield from ready(world, client)
    runtime = runtime_of(world, client)
    world.spawn(client, asks_for_handles(world, client, runtime))
    truncating = random.Random(f"truncates of {client} {world.seed}")
    settling = random.Random(f"settings of {client} {world.seed}")
    sealing = random.Random(f"seals of {client} {world.seed}")
    consuming = random.Random(f"consumes of {client} {world.seed}")
    own_times = random.Random(f"times of {client} {world.seed}")
    splicing = random.Random(f"splices of {client} {world.seed}")
    renaming = random.Random(f"renames of {client} {world.seed}")
    archiving = random.Random(f"archives of {client} {world.seed}")
    if "archives" in world.features and archiving.random() < 0.8:
        reading = LogReading(runtime, LOG, log_password(world))
        world.spawn(client, archives(world, client, runtime, reading, archiving))
    if "bulk" in world.features:
        own = random.Random(f"bulk of {client} {world.seed}")
        reading = LogReading(runtime, LOG, log_password(world))
        world.spawn(client, reads_in_bulk(world, client, runtime, reading, own))
    listing = random.Random(f"entry logs of {client} {world.seed}")
    if listing.random() < 0.3:
        world.spawn(client, _asks_for_entry_logs(world, client, runtime, listing))
    if "renames" in world.features and renaming.random() < 0.7:
        reading = LogReading(runtime, LOG, log_password(world))
        world.spawn(client, renames(world, client, runtime, reading, renaming))
    for _ in range(chance.randint(1, 6)):
        known = all_ledgers(world)
        try:
            if known and chance.random() < 0.7:
                yield from _visit(
                    world, client, runtime, chance.choice([known[-1], chance.choice(known)]), chance
                )
            else:
                reading = LogReading(runtime, LOG, log_password(world))
                if "truncates" in world.features and truncating.random() < 0.7:
                    act = truncating.choice([truncates, truncates, pin_and_read])
                    yield from act(world, client, runtime, reading, truncating)
                    continue
                if "settings" in world.features and settling.random() < 0.4:
                    yield from changes_settings(world, client, runtime, reading, settling, quorum)
                    continue
                if "seals" in world.features and sealing.random() < 0.4:
                    yield from seals(world, client, runtime, reading, quorum)
                    continue
                if "splices" in world.features and splicing.random() < 0.5:
                    yield from splices_in(
                        world,
                        client,
                        runtime,
                        reading,
                        splicing,
                        quorum,
                        lambda made: watched(world, client, made),
                    )
                    continue
                if "cursors" in world.features and consuming.random() < 0.7:
                    yield from uses_cursors(world, client, runtime, reading, consuming)
                    continue
                if "times" in world.features and own_times.random() < 0.4:
                    yield from _look_for_times(world, client, runtime, reading, own_times)
                    continue
                located = (
                    LogFollowing(reading).tail(0, 1.0) if chance.random() < 0.3 else reading.read(None, None)
                )
                yield from take(world, client, runtime, located)
        except EmbedbkError as error:
            world.note(f"{client}: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 300) * MS)


def _visit(
    world: World, client: str, runtime: Runtime, metadata: LedgerMetadata, chance: random.Random
) -> Steps:
    ledger_id = metadata.ledger_id
    password = password_of(metadata)
    if password is None:
        return  # The ledger of a writer below the faces.
    steps = LedgerReading.open(runtime, ledger_id, password, recover=chance.random() < 0.3)
    reading = yield from awaited(runtime, steps)
    try:
        if "unconfirmed" in world.features and chance.random() < 0.4:
            frames = reading.read_unconfirmed(0, None)
            yield from take(world, client, runtime, frames, lambda: not reading.is_closed)
        elif chance.random() < 0.3:
            yield from awaited(runtime, reading.try_limit())
        yield from take(world, client, runtime, reading.read(0, None))
    finally:
        reading.close()


def _look_for_times(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random
) -> Steps:
    """P8.11: times never fall along the log, and looking for one finds where they pass it."""
    known: list[tuple[int, int]] = []  # (offset, time), as entries carry them.
    frames = reading.read(None, None)
    while True:
        try:
            located = yield from awaited(runtime, frames.__anext__())
        except StopAsyncIteration:
            break
        for entry in entries_of(located):
            told = time_of(entry._attributes)
            known += [] if told is None else [(entry.offset, told)]
    for (before, one), (offset, other) in pairwise(known):
        if other < one:
            raise Violation(
                "P8.11", f"{client}: offset {before} is of {one} ms, and offset {offset} of {other}"
            )
    if not known:
        return
    wanted = chance.choice(known)[1] + chance.choice([-1, 0, 0, 1])
    found = yield from awaited(runtime, first_at(reading, wanted))
    world.sometimes["time looked for in a log"] += 1
    for offset, told in known:
        if (told >= wanted) != (offset >= found):
            # A log truncated meanwhile begins behind it, whatever its time.
            first = (yield from awaited(runtime, reading.listed())).first_offset
            if offset >= first:
                raise Violation(
                    "P8.11", f"{client}: {wanted} ms begins at {found}, and offset {offset} is of {told}"
                )


def _asks_for_entry_logs(world: World, client: str, runtime: Runtime, chance: random.Random) -> Steps:
    """As the view of entry logs does, beside compaction and collection."""
    for _ in range(chance.randint(1, 4)):
        yield Sleep(chance.randint(0, 1_500) * MS)
        bookies = world.nodes[client].bookies
        if not bookies or not runtime.has_level(LEVEL_OF_ENTRY_LOGS):
            continue
        member = chance.choice(bookies).member
        try:
            logs = yield from awaited(runtime, runtime.run(EntryLogsQuery(member), "asking for entry logs"))
        except EmbedbkError as untold:
            world.note(f"{client}: {untold}")
            continue
        world.sometimes["entry logs told"] += 1
        for each in logs:
            if not 0 <= each.live_bytes <= each.entries_bytes <= each.file_bytes:
                raise Violation(
                    "views", f"{member} tells of an entry log that has not what it counts: {each}"
                )
        if not logs or not runtime.has_level(LEVEL_OF_KEEPERS):
            continue
        asked = LogKeepersQuery(member, logs[-1].log_id)
        try:
            keepers = yield from awaited(runtime, runtime.run(asked, "asking for what keeps an entry log"))
        except EmbedbkError as untold:
            world.note(f"{client}: {untold}")
            continue
        world.sometimes["keepers of an entry log told"] += 1
        for each in keepers:
            if not each.live_bytes > each.live_entries > 0:
                raise Violation("views", f"{member} names a ledger that keeps nothing: {each}")


def take(
    world: World,
    client: str,
    runtime: Runtime,
    frames: AsyncGenerator[Located, None],
    is_unconfirmed: Callable[[], bool] = lambda: False,
) -> Steps:
    """Yield everything that comes, reported frame by frame.

    is_unconfirmed: asked with each, since a handle that reads beyond the LAC may learn meanwhile that its ledger was
    closed, and then it ends there like any other (I38).
    """
    while True:
        try:
            located = yield from awaited(runtime, frames.__anext__())
        except StopAsyncIteration:
            return
        entries, ledger_id = list(entries_of(located)), located.frame.ledger_id
        told = [
            (entry.entry_id, stored_of(world, client, ledger_id, entry.entry_id, bytes(entry)))
            for entry in entries
        ]
        world.tell("on_read", client, ledger_id, told, is_unconfirmed())
        for entry in entries:
            if b"".join(entry.parts) != bytes(entry.data):
                raise Violation("batch", f"entry {entry.position}: its parts are not its bytes")
            world.sometimes["record read with its key"] += are_records_right(entry, entry._attributes)
