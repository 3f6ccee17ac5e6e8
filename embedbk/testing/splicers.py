"""Clients that stage ledgers for a log and splice them in, beside owners, takeovers, truncation and each other (P8.5).

Decides what must follow (I98): of one transaction, however many attempts there are at it, the entries of one attempt
stand in the log, all of them, once, one behind the other. `invariants_logs` judges which changes of a list are allowed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from embedbk.client import splicing
from embedbk.client.appending import Appending
from embedbk.client.batches import entries_of
from embedbk.client.log_reading import LogReading
from embedbk.client.runtime import Runtime
from embedbk.config import Quorum
from embedbk.errors import EmbedbkError, OperationTimeout, Truncated, UsageError
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.plan import MS
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["splices_in"]

_HEAD = b"splice/"
_TRIES = 3


def splices_in(
    world: World,
    client: str,
    runtime: Runtime,
    reading: LogReading,
    chance: random.Random,
    quorum: Quorum,
    watched: Callable[[Appending], Appending],
) -> Steps:
    application, number = chance.choice(["a", "a", "b"]), chance.randint(0, 3)
    ttl_s = chance.choice([0.3, 1_000.0, 1_000.0])
    terms = splicing.staging(runtime, reading.given, application, number, ttl_s)
    ids: list[int] = []
    count = chance.randint(1, 3)
    for part in range(count):
        appending = watched((yield from awaited(runtime, splicing.stage(reading, terms))))
        if appending.writing.core.quorum.ack_quorum < quorum.ack_quorum:
            # The log has no settings yet. This ledger has fewer copies than the plan's losses leave one of (atlas).
            yield from awaited(runtime, appending.close())
            yield from awaited(runtime, splicing.unstage(reading, terms))
            return
        ids.append(appending.ledger_id)
        of = b"%s%s/%d/%s/%d of %d" % (
            _HEAD,
            application.encode(),
            number,
            terms.job.hex().encode(),
            part,
            count,
        )
        size = chance.randint(1, 4)
        payloads = [b"%s/%d of %d " % (of, entry, size) for entry in range(size)]
        yield from awaited(runtime, appending.append_many(payloads))
        if chance.random() < 0.1:
            appending.release()  # Left open: it is never spliced.
        else:
            yield from awaited(runtime, appending.close())
    if chance.random() < 0.15 and (yield from awaited(runtime, splicing.unstage(reading, terms))):
        world.sometimes["staged ledger given up"] += 1
    for _ in range(_TRIES):
        try:
            timeout_s = chance.choice([0.05, 5.0, None])
            done = yield from awaited(runtime, splicing.splice(reading, terms, ids, timeout_s))
            world.sometimes["splice recognised as a replay" if done.is_replay else "ledgers spliced"] += 1
            break
        except UsageError as refused:
            world.sometimes["splice refused"] += 1
            world.note(f"{client}: {refused}")
            break
        except EmbedbkError as error:
            if isinstance(error, OperationTimeout) and error.definite:
                world.sometimes["splice withdrawn"] += 1
            world.note(f"{client}: splicing: {type(error).__name__}: {error}")
            yield Sleep(chance.randint(0, 200) * MS)
    yield from _each_comes_once(client, runtime, reading)


def _each_comes_once(client: str, runtime: Runtime, reading: LogReading) -> Steps:
    """I98, as a reader sees it; what was truncated meanwhile is not judged."""
    frames = reading.read(None, None)
    seen: dict[tuple[bytes, bytes], bytes] = {}  # Transaction -> the attempt that stands in the log.
    latest: dict[bytes, int] = {}
    # (attempt, part, parts, entry, entries) that comes next.
    expected: tuple[bytes, int, int, int, int] | None = None
    is_first = True
    while True:
        try:
            located = yield from awaited(runtime, frames.__anext__())
        except (StopAsyncIteration, Truncated):
            return
        for entry in entries_of(located):
            payload = bytes(entry)
            if not payload.startswith(_HEAD):
                if expected is not None:
                    raise Violation("I98", f"{client}: {expected} is missing at offset {entry.offset}")
                is_first = False
                continue
            _, application, number, job, part_of, entry_of = payload.strip().split(b"/")
            part, parts = map(int, part_of.split(b" of "))
            one, size = map(int, entry_of.split(b" of "))
            found = (job, part, parts, one, size)
            if expected is not None and (found[:4] != expected[:4]):
                raise Violation("I98", f"{client}: {found} at offset {entry.offset}, want {expected}")
            if expected is None:
                transaction = (application, number)
                if not is_first and (part, one) != (0, 0):
                    raise Violation("I98", f"{client}: {found} begins at offset {entry.offset}")
                if transaction in seen or int(number) <= latest.get(application, -1):
                    raise Violation("I98", f"{client}: {transaction} comes twice or late: {found}, {seen}")
                seen[transaction] = job
                latest[application] = int(number)
            is_first = False
            if one + 1 < size:
                expected = (job, part, parts, one + 1, size)
            elif part + 1 < parts:
                expected = (job, part + 1, parts, 0, 0)
            else:
                expected = None
