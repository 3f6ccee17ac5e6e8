"""What works while the metadata has no quorum, and what comes back with it: P10.4, L8.

Losing the quorum stops creation, opening, closing and the publication of ensemble changes, and nothing else: open
ledgers are appended to and read as before. How it is lost is drawn: members crash, stand still, or cannot be reached.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.config import Quorum
from embedbk.core.creation import Creation
from embedbk.core.lac_reader import LacRead
from embedbk.host.writing import Writing
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.liveness import say_no
from embedbk.testing.violation import Violation
from embedbk.testing.workload import is_ready, read_range, result_of
from embedbk.testing.world import World
from embedbk.testing.writing_handles import append, close_writing, write_ledger

__all__ = ["goes_on_without_quorum", "lose_quorum"]

READY_NS = 30 * SECOND
APPEND_NS = 300 * MS  # The time of one entry, in a calm network, with all bookies there.
SETTLED_NS = 100 * MS  # Requests on their way when the quorum went are done or lost by then.
BACK_NS = 60 * SECOND  # Time for a new quorum to elect, and for waiting clients to be answered.


def lose_quorum(world: World, chance: random.Random) -> Callable[[], None]:
    """So many members are gone that the rest is no quorum; returns what brings them back."""
    names = world.members.voters
    gone = chance.sample(names, chance.randint((len(names) + 1) // 2, len(names)))
    how = chance.choice(["crash", "pause", "cut"])
    world.note(f"no quorum: {how} {' '.join(gone)}")
    if how == "crash":
        for name in gone:
            world.crash(name)
        return world.members.start_all
    if how == "pause":
        for name in gone:
            world.pause(name)

        def resume() -> None:
            for name in gone:
                world.resume(name)

        return resume
    others = (*world.members.names, *world.disks, *world.writings)
    pairs = [(one, other) for one in gone for other in others if one != other]
    for one, other in pairs:
        world.network.block(one, other)
        world.network.block(other, one)

    def unblock() -> None:
        for one, other in pairs:
            world.network.unblock(one, other)
            world.network.unblock(other, one)

    return unblock


def goes_on_without_quorum(world: World, writer: str, reader: str, quorum: Quorum) -> Steps:
    """P10.4: adds and reads of what is open go on, and no ledger comes to be. L8: with the quorum whatever waited ends.
    The reader's client runs beside the writer's."""
    yield from is_ready(world, writer)
    node, chance = world.nodes[writer], random.Random(f"P10.4 {world.seed}")
    enough = yield Until(
        lambda: (
            world.nodes[reader].is_ready
            and say_no(world)
            and sum(info.is_writable for info in node.bookies) >= quorum.ensemble_size
        ),
        READY_NS,
    )
    if not enough:
        return
    metadata, revision = yield from result_of(world, writer, _creation(world, writer, quorum, chance))
    writing = write_ledger(world, writer, metadata, revision, add_timeout_ns=5 * SECOND)
    yield from _append(world, writer, writing, READY_NS)
    bring_back = lose_quorum(world, chance)
    yield Sleep(SETTLED_NS)
    creation = world.start(writer, _creation(world, writer, quorum, chance))
    until_ns = world.now_ns + chance.choice([300, 3_000, 8_000]) * MS
    while world.now_ns < until_ns:
        yield from _append(world, writer, writing, APPEND_NS)
        if chance.random() < 0.3:
            yield from _read(world, reader, metadata)
        yield Sleep(chance.choice([5, 50, 400]) * MS)
        if creation.future.done() and creation.future.exception() is None:
            raise Violation("P10.4", "a ledger was made while the metadata had no quorum")
    bring_back()
    ended = yield Until(creation.future.done, BACK_NS)
    if not ended:
        raise Violation(
            "L8", "a ledger that was asked for without a quorum is neither made nor refused with it"
        )
    world.sometimes["went on without a quorum"] += 1
    close_writing(world, writer, writing)
    closed = yield Until(writing.closed.done, BACK_NS)
    if not closed or writing.closed.exception() is not None:
        why = writing.closed.exception() if closed else "it does not end"
        raise Violation("L8", f"ledger {metadata.ledger_id} is not closed with the quorum back: {why}")


def _creation(world: World, client: str, quorum: Quorum, chance: random.Random) -> Creation:
    own = random.Random(chance.getrandbits(63))
    return Creation(quorum, b"", 0, {}, world.nodes[client].bookies, own)


def _append(world: World, client: str, writing: Writing, within_ns: int) -> Steps:
    entry_id = append(world, client, writing, b"P10.4 %d" % world.now_ns)
    if entry_id is None:
        raise Violation("P10.4", f"ledger {writing.core.ledger_id}: {writing.error}")
    told = yield Until(lambda: writing.lac >= entry_id or writing.error is not None, within_ns)
    if not told or writing.error is not None:
        raise Violation(
            "P10.4",
            f"ledger {writing.core.ledger_id}: entry {entry_id} within {within_ns // MS} ms, without a quorum of the "
            f"metadata: {writing.error}",
        )


def _read(world: World, client: str, metadata: LedgerMetadata) -> Steps:
    lac, _, _ = yield from result_of(world, client, LacRead(metadata), APPEND_NS)
    world.tell("on_reader_lac", client, metadata.ledger_id, lac, False, "without quorum")
    yield from read_range(world, client, metadata, 0, lac)
