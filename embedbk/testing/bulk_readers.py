"""Readers in bulk beside owners, truncators and faults: the result of each call follows the one before.

Decides what is asked for. The observers judge the entries and whether they may be shown; here it is judged that none is
left out or returned twice, across ledgers, gaps and errors (I97), and that the bounds are kept (CL22).
"""

from __future__ import annotations

import random
from itertools import groupby

from embedbk.client.batches import Batch
from embedbk.client.bulk import Bulk, BulkReading, Place
from embedbk.client.log_reading import LogReading
from embedbk.client.runtime import Runtime
from embedbk.errors import EmbedbkError, Truncated
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.plan import MS
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.squeezed import stored_of
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["reads_in_bulk"]


def reads_in_bulk(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random
) -> Steps:
    """Read a log call by call, from somewhere on."""
    start: Place = chance.choice(["earliest", "earliest", "latest", 0, 3])
    bulk = BulkReading(reading, start)
    due: int | None = start if isinstance(start, int) else None
    # P8.3: a reader that begins at the log's start, and was given nothing yet, begins at the start that there is by
    # then, whatever an empty answer told of it.
    is_before_first = start == "earliest"
    for _ in range(chance.randint(3, 20)):
        max_entries, max_bytes = chance.choice([1, 2, 7, 1_000]), chance.choice([1, 100, 100_000])
        wait_s, least = chance.choice([0.0, 0.0, 0.02, 1.0]), chance.choice([1, 1, 5])
        began_s = runtime.clock_s()
        try:
            found: Bulk = yield from awaited(runtime, bulk.read(max_entries, max_bytes, wait_s, least))
        except Truncated as gone:
            if gone.first_offset is not None and due is not None and gone.first_offset <= due:
                raise Violation("I97", f"{client} stands at offset {due}, and is told: {gone}") from None
            world.sometimes["bulk reader's place truncated"] += 1
            due = gone.first_offset
            bulk.seek("earliest" if due is None else due)
            is_before_first = due is None
        except EmbedbkError as error:
            world.note(f"{client}: reading in bulk: {type(error).__name__}: {error}")
        else:
            _look(client, found, due, max_entries, max_bytes)
            is_before_first &= not found
            due = None if is_before_first else found.next_offset
            _tell(world, client, found)
            if len({batch.ledger_id for batch in found.batches}) > 1:
                world.sometimes["bulk over ledgers"] += 1
            if found and runtime.clock_s() > began_s and wait_s:
                world.sometimes["bulk waited for"] += 1
        yield Sleep(chance.randint(0, 100) * MS)
    bulk.close()


def _look(client: str, found: Bulk, due: int | None, max_entries: int, max_bytes: int) -> None:
    if len(found) > max_entries or (found.byte_count > max_bytes and len(found) > 1):
        raise Violation(
            "CL22", f"{client} asked for {max_entries} entries, {max_bytes} bytes, and got {found}"
        )
    for batch in found.batches:
        first, last = batch.first_offset + batch.ids[0], batch.first_offset + batch.ids[-1]
        if due not in (None, first):
            raise Violation("I97", f"{client} read up to offset {due}, and then from {first} on")
        due = last + 1
    if due is not None and found.next_offset != due:  # None: an empty answer may say where it begins.
        raise Violation(
            "I97", f"{client} read up to offset {due}, and is told to go on at {found.next_offset}"
        )


def _tell(world: World, client: str, found: Bulk) -> None:
    for batch in found.batches:
        told = [
            (entry_id, stored_of(world, client, batch.ledger_id, entry_id, _payload(batch, rows)))
            for entry_id, rows in _entries(batch)
        ]
        world.tell("on_read", client, batch.ledger_id, told, False)


def _entries(batch: Batch) -> list[tuple[int, list[int]]]:
    """(entry id, its rows): an atomic batch has several."""
    return [
        (entry_id, list(rows)) for entry_id, rows in groupby(range(len(batch.ids)), batch.ids.__getitem__)
    ]


def _payload(batch: Batch, rows: list[int]) -> bytes:
    return bytes(batch.data[batch.ends[rows[0]] : batch.ends[rows[-1] + 1]])
