"""Applications that make ledgers of their own and append to them: with every term, by every call, some of them several
at a time.

Judges what only the one who appends can: an append that was repeated has its old position, a condition that holds is no
conflict, each run stands together where its call returned it (P3.1). The observers are told what readers get of it.
"""

from __future__ import annotations

import random
from typing import Any

from embedbk.client import creating
from embedbk.client.appending import Appending
from embedbk.client.password import Password
from embedbk.client.reading import LedgerReading
from embedbk.client.runtime import Runtime
from embedbk.client.tickets import AppendTerms, all_acknowledged
from embedbk.config import Quorum
from embedbk.errors import AppendConflict, EmbedbkError, UsageError
from embedbk.ids import Position
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.drawn_terms import (
    password_drawn,
    ready,
    records_of,
    runtime_of,
    traits_drawn,
    variety_of,
)
from embedbk.testing.plan import MS
from embedbk.testing.records import dressed
from embedbk.testing.sim_runtime import Narrow, awaited
from embedbk.testing.squeezed import varied
from embedbk.testing.told_appends import watched
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["REMOVED", "append_all", "user"]

REMOVED = "app"  # Custom metadata of ledgers that a remover may delete: no log lists them.


def user(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    yield from ready(world, client)
    runtime = runtime_of(world, client, Narrow() if "crowds" in world.features else None)
    for _ in range(chance.randint(1, 3)):
        traits, password = traits_drawn(world, runtime, chance), password_drawn(world, chance)
        custom = {REMOVED: client.encode()}
        if "custom" in world.features:
            custom |= {
                f"note {n}": chance.randbytes(chance.randint(0, 40)) for n in range(chance.randint(0, 4))
            }
        steps = creating.create(runtime, quorum, password, custom, traits)
        try:
            appending = watched(world, client, (yield from awaited(runtime, steps)))
            for number in range(2 if "crowds" in world.features else 0):
                world.spawn(client, _append_runs(world, client, runtime, appending, number))
            yield from append_all(world, client, runtime, appending, chance, {}, 0, password)
        except EmbedbkError as error:
            world.note(f"{client}: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 200) * MS)


def append_all(
    world: World,
    client: str,
    runtime: Runtime,
    appending: Appending,
    chance: random.Random,
    placed: dict[int, Position],
    producer: int,
    password: Password,
) -> Steps:
    """placed: sequence -> its position, as far as it was returned. producer 0: this ledger's own."""
    # Generators of their own, so that what is appended does not depend on them.
    looks = random.Random(appending.ledger_id)
    beside = records_of(world, client)
    varies = variety_of(world, client)
    pause_ns, size = chance.choice([0, 1, 5, 30]) * MS, chance.choice([1, 1, 30, 300])
    is_producing = "producers" in world.features and chance.random() < 0.7
    sequence = min((s for s in range(len(placed) + 1) if s not in placed), default=0)
    if not producer:
        producer = 1_000 + appending.ledger_id
    for _ in range(chance.choice([0, 3, 10, 40])):
        mark = b"%d#%d " % (producer, sequence) if is_producing else b"%s " % client.encode()
        payload = varied(mark + chance.randbytes(4).hex().encode() * chance.randint(1, size), varies)
        if is_producing:
            given = dressed(payload, beside)
            yield from _produce(world, client, runtime, appending, chance, placed, producer, sequence, given)
            sequence += 1
        elif "conditional" in world.features and chance.random() < 0.3:
            is_alone = "crowds" not in world.features
            given = dressed(payload, beside)
            yield from _append_if(runtime, appending, chance, given, is_alone=is_alone)
        elif "batches" in world.features and chance.random() < 0.4:
            parts = [payload[begin : begin + 7] for begin in range(0, len(payload), 7)][:500]
            yield from awaited(runtime, appending.append_batch([dressed(part, beside) for part in parts]))
        elif chance.random() < 0.3:
            many = [payload] * chance.randint(1, 20)
            run = [dressed(payload, beside), *(dressed(each, beside) for each in many[1:])]
            yield from awaited(runtime, appending.append_many(many if run[0] is payload else run))
        else:
            appending.try_append(dressed(payload, beside))
        if pause_ns:
            yield Sleep(chance.randint(0, 2 * pause_ns))
        if chance.random() < 0.1:
            is_synced = chance.choice([True, False])
            yield from awaited(runtime, all_acknowledged(appending, is_synced=is_synced))
        if looks.random() < 0.1:
            yield from _look_at_own(runtime, appending, password)
    ends = chance.choice(["close", "close", "force", "release"])
    if ends == "release":
        appending.release()
    else:
        forced = ends == "force"
        ending = all_acknowledged(appending, is_synced=True) if forced else appending.close()
        yield from awaited(runtime, ending)


def _append_runs(world: World, client: str, runtime: Runtime, appending: Appending, number: int) -> Steps:
    """Append beside others that use this handle: each run stands together, where its call returned (P3.1)."""
    name = f"{client}.{appending.ledger_id}.{number}"
    chance = random.Random(f"runs {name} {world.seed}")
    sent: Any = appending.writing
    for turn in range(chance.randint(1, 8)):
        size = chance.choice([1, 100, 700])
        run = [b"%s %d %d " % (name.encode(), turn, at) + b"z" * size for at in range(chance.randint(1, 12))]
        try:
            appended = yield from awaited(runtime, appending.append_many(run))
        except EmbedbkError as error:
            world.note(f"{name}: {type(error).__name__}: {error}")
            return
        if sent.lac < appended.last_entry and appending.durability == "synced":
            raise Violation("P3.3", f"{name}: told of {appended.last_entry}, and the LAC is {sent.lac}")
        if [sent.packer.taken.get(at) for at in range(appended.first_entry, appended.last_entry + 1)] != run:
            raise Violation("P3.1", f"{name}: what it appended does not stand at {appended}")
        yield Sleep(chance.randint(0, 20) * MS)


def _look_at_own(runtime: Runtime, appending: Appending, password: Password) -> Steps:
    """Open a ledger that this client writes itself, and read as far as allowed: `promises` checks how far that must be
    (I100)."""
    steps = LedgerReading.open(runtime, appending.ledger_id, password, recover=False)
    reading = yield from awaited(runtime, steps)
    try:
        yield from awaited(runtime, reading.limit())
    finally:
        reading.close()


def _produce(
    world: World,
    client: str,
    runtime: Runtime,
    appending: Appending,
    chance: random.Random,
    placed: dict[int, Position],
    producer: int,
    sequence: int,
    payload: Any,
) -> Steps:
    """Append under a sequence, and now and then once more: it must stand where it stood."""
    terms = AppendTerms(producer=(producer, sequence))
    while True:
        at = yield from awaited(runtime, appending.append(payload, terms))
        if placed.setdefault(sequence, at) != at:
            raise Violation(
                "idempotence", f"{client}: sequence {sequence} stands at {placed[sequence]} and at {at}"
            )
        if chance.random() < 0.8 or "truncates" in world.features:
            return  # A truncated append is not known under its sequence any more.
        earlier = chance.choice(list(placed)[-20:])
        try:
            at = yield from awaited(
                runtime, appending.append(b"again", AppendTerms(producer=(producer, earlier)))
            )
        except UsageError as forgotten:
            world.note(f"{client}: {forgotten}")
            return
        if at != placed[earlier]:
            raise Violation(
                "idempotence", f"{client}: sequence {earlier} stands at {placed[earlier]} and at {at}"
            )


def _append_if(
    runtime: Runtime, appending: Appending, chance: random.Random, payload: Any, *, is_alone: bool
) -> Steps:
    """The condition that holds is no conflict; one that does not appends nothing. Beside others either may come true or
    false meanwhile, and what was appended stands behind what was named."""
    last, is_right = appending.last_position, chance.random() < 0.5
    if not is_right:
        last = Position(appending.ledger_id, appending.writing.packer.last_entry + chance.randint(1, 5))
    try:
        at = yield from awaited(runtime, appending.append(payload, AppendTerms(after=last)))
    except AppendConflict:
        if is_right and is_alone:
            raise Violation("condition", f"not appended behind {last}, which stands there") from None
        return
    # What was named may have been outstanding when its ledger failed: it moved, and what was appended with it (P8.2).
    if last.ledger_id == appending.ledger_id:
        handle, entry_id = appending.now(last.entry_id)
        last = Position(handle.ledger_id, entry_id)
    behind = last.entry_id + 1 if last.ledger_id == at.ledger_id else 0  # The first of a next ledger (P8.2).
    if at.entry_id != behind or (is_alone and not is_right):
        raise Violation("condition", f"appended behind {last}, and stands at {at}")
