"""Whole clusters under seeds: whatever fails, every acknowledged entry is readable and a ledger has one end."""

from __future__ import annotations

import pytest

from embedbk.codec.frame import iter_entries
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Get
from embedbk.config import Quorum
from embedbk.core.reader import RangeRead
from embedbk.core.recovery import Recovery
from embedbk.errors import EmbedbkError, LedgerFenced
from embedbk.host.operations import Reading, Writing
from embedbk.transports.sim import CALM, ROUGH, Faults
from tests.sim.simulation import KEY, MS, SECOND, Simulation

QUORUMS = [Quorum(3, 3, 2), Quorum(3, 3, 2), Quorum(2, 2, 1), Quorum(4, 2, 2), Quorum(5, 3, 2)]


def metadata_of(world: Simulation, client: str, ledger_id: int) -> tuple[LedgerMetadata, int]:
    """Linearizable read of a ledger's metadata."""
    results = []
    node = world.nodes[client]
    node.metadata.request(
        world.network.now_ns, Get(ledger_key_path(ledger_id)), lambda _, result: results.append(result)
    )
    world.run_until(lambda: bool(results))
    return decode_ledger_metadata(results[0].record.value), results[0].record.revision


def recover(world: Simulation, client: str, ledger_id: int) -> LedgerMetadata:
    metadata, revision = metadata_of(world, client, ledger_id)
    node = world.nodes[client]
    nonce = world.chance.getrandbits(63)
    closed, _ = world.result(client, Recovery(metadata, revision, KEY, nonce, node.bookies, world.chance))
    return closed


def read_all(world: Simulation, client: str, metadata: LedgerMetadata) -> list[bytes]:
    if metadata.last_entry < 0:
        return []
    node = world.nodes[client]
    core = RangeRead(metadata, 0, metadata.last_entry, world.chance.getrandbits(8))
    reading = Reading(core, lambda reading, size: None)
    node.run(world.network.now_ns, reading)
    world.run_until(lambda: reading.is_over)
    if reading.error is not None:
        raise reading.error
    return [bytes(entry.data) for frame in reading.frames for entry in iter_entries(frame)]


def check_at_the_end(world: Simulation, ledgers: set[int]) -> None:
    """Faults stop, everything comes back: I5 acked is readable, I2 one end, P6.4 the same bytes for all readers."""
    world.network.faults = CALM
    world.network.heal()
    for name in sorted(world.paused):
        world.resume(name)
    if "metadata" not in world.nodes:
        world.start_metadata()
    for name in sorted(world.survivors):
        world.start_bookie(name)
    for name in ("reader-1", "reader-2"):
        node = world.start_client(name)
        world.run_until(lambda node=node: len(node.bookies) == len(world.storages))
    for ledger_id in sorted(ledgers):
        one, other = recover(world, "reader-1", ledger_id), recover(world, "reader-2", ledger_id)
        assert one == other, f"seed {world.seed}: two ends of ledger {ledger_id}"
        entries = read_all(world, "reader-2", one)
        assert one.length == sum(len(entry) for entry in entries)  # I37
        for entry_id, entry in enumerate(entries):
            assert entry == world.sent[ledger_id, entry_id], (
                f"seed {world.seed}: entry {entry_id} has other bytes"
            )
    for (ledger_id, entry_id), payload in world.acked.items():
        metadata, _ = metadata_of(world, "reader-1", ledger_id)
        assert entry_id <= metadata.last_entry, (
            f"seed {world.seed}: acknowledged entry {entry_id} was truncated"
        )
        assert payload == world.sent[ledger_id, entry_id]


def test_a_cluster_without_faults_keeps_order(seed: int) -> None:
    """P3.3, P5.1: every append is acknowledged in order, the writer's own close ends the ledger at its LAC."""
    world = Simulation(seed, bookies=4)
    world.start_client("writer")
    writing = world.take_over("writer")
    for number in range(50):
        world.append("writer", writing, b"entry %d" % number)
    world.run_until(lambda: writing.lac == 49)
    world.note_acks(writing)
    world.nodes["writer"].close_writing(world.network.now_ns, writing)
    world.run_until(writing.closed.done)
    assert writing.closed.result() == 49
    check_at_the_end(world, {writing.core.ledger_id})


def test_faults_of_every_kind_lose_nothing_acknowledged(seed: int) -> None:
    """P5.3: persistence, through crashes, restarts, pauses, partitions, loss, duplication and reordering."""
    faults = (CALM, ROUGH, Faults(duplication=0.1, reordering=0.1), Faults(loss=0.03))[seed % 4]
    world = Simulation(seed, bookies=5, faults=faults)
    quorum = QUORUMS[seed % len(QUORUMS)]
    writers: list[Writing] = []
    ledgers: set[int] = set()
    for generation in range(3):
        client = f"writer-{generation}"
        world.start_client(client)
        try:
            writing = world.take_over(client, quorum=quorum)
        except EmbedbkError:
            continue  # Too much is down at the moment; a later one tries again.
        writers.append(writing)
        ledgers.add(writing.core.ledger_id)
        for number in range(world.chance.randint(20, 120)):
            if (
                world.append(client, writing, b"%d/%d " % (generation, number) * world.chance.randint(1, 40))
                is None
            ):
                break
            if world.chance.random() < 0.3:
                world.run_for(world.chance.randint(0, 20 * MS))
            if world.chance.random() < 0.05:
                do_harm(world)
            world.note_acks(writing)
        if world.chance.random() < 0.5:
            world.run_for(world.chance.randint(0, 1 * SECOND))
        world.note_acks(writing)
        if generation < 2 and world.chance.random() < 0.4:
            world.crash(client)
        # Else it goes on beside its successor, and must not be acknowledged once it was fenced.
    check_at_the_end(world, ledgers)


def do_harm(world: Simulation) -> None:
    """One fault at random, so that a quorum can come back: at most two bookies are down or cut off at a time."""
    chance = world.chance
    up = sorted(name for name in world.storages if name not in world.paused)
    down = sorted(world.survivors)
    kind = chance.choice(["crash", "restart", "pause", "resume", "partition", "heal", "metadata", "cut"])
    if kind == "crash" and len(down) + len(world.paused) < 2:
        world.crash(chance.choice(up))
    elif kind == "restart" and down:
        world.start_bookie(chance.choice(down))
    elif kind == "pause" and len(down) + len(world.paused) < 2:
        world.pause(chance.choice(up))
    elif kind == "resume" and world.paused:
        world.resume(chance.choice(sorted(world.paused)))
    elif kind == "partition":
        clients = sorted(name for name in world.nodes if name.startswith("writer"))
        world.network.partition([chance.choice(clients)], [chance.choice(up)])
    elif kind == "heal":
        world.network.heal()
    elif kind == "metadata":
        world.crash("metadata")
        world.start_metadata()
    elif kind == "cut" and up:
        world.network.cut(chance.choice(sorted(world.nodes)), chance.choice(up))


def test_a_paused_writer_is_fenced_and_never_acknowledged_again(seed: int) -> None:
    """P8.4: after the takeover the old writer's appends get LedgerFenced and appear nowhere."""
    world = Simulation(seed, bookies=4)
    world.start_client("old")
    world.start_client("new")
    old = world.take_over("old")
    for number in range(20):
        world.append("old", old, b"old %d" % number)
    world.run_until(lambda: old.lac >= 10)
    world.note_acks(old)
    world.pause("old")
    new = world.take_over("new")
    world.append("new", new, b"new")
    world.run_until(lambda: new.lac == 0)
    world.note_acks(new)
    world.resume("old")
    before = old.lac
    closed, _ = metadata_of(world, "new", old.core.ledger_id)
    entry_id = world.append("old", old, b"too late")
    world.run_until(lambda: old.error is not None)
    assert isinstance(old.error, LedgerFenced)
    world.note_acks(old)
    assert old.lac <= max(before, closed.last_entry)
    assert entry_id is None or entry_id > closed.last_entry
    check_at_the_end(world, {old.core.ledger_id, new.core.ledger_id})


def test_the_same_seed_gives_the_same_run() -> None:
    """Determinism: nothing may depend on hashes, clocks or the order of sets."""
    traces = []
    for _ in range(2):
        world = Simulation(7, bookies=4, faults=ROUGH)
        world.start_client("writer")
        writing = world.take_over("writer")
        for number in range(30):
            world.append("writer", writing, b"entry %d" % number)
        world.run_until(lambda writing=writing: writing.lac == 29)
        traces.append((world.network.now_ns, world.steps, writing.core.digest()))
    assert traces[0] == traces[1]


@pytest.mark.parametrize("down", [1, 2])
def test_without_enough_bookies_creation_says_so(down: int) -> None:
    """CL01: refused before any write, with what was asked for and what there is."""
    world = Simulation(1, bookies=2)
    world.start_client("writer")
    with pytest.raises(EmbedbkError, match="ensemble of 3"):
        world.take_over("writer")
