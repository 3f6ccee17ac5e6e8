"""What applications do in a run: writers that take logs over, recoverers, readers, tailing readers.

Each is a generator in its client's process (world.Actor); the answers it receives go to the observers. Nothing is
judged.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

from embedbk.codec.frame import Frame, iter_entries
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Get, Result, Value
from embedbk.config import FRAME_BYTES_MAX, Quorum
from embedbk.core.lac_reader import LacRead, LacWait
from embedbk.core.machine import Machine
from embedbk.core.reader import RangeRead
from embedbk.core.recovery import Recovery
from embedbk.errors import EmbedbkError
from embedbk.host.operations import Reading
from embedbk.host.writing import Writing
from embedbk.ids import NO_ENTRY
from embedbk.testing.actors import Actor, Sleep, Steps, Until
from embedbk.testing.applications import APPLICATIONS
from embedbk.testing.archived import frames_in_memory
from embedbk.testing.drawn_terms import keys_of
from embedbk.testing.plan import MS, SECOND, Step
from embedbk.testing.sim_runtime import SimRuntime
from embedbk.testing.world import World
from embedbk.testing.writing_handles import append, close_writing, delete_left, open_writing, takeover_core

__all__ = ["LEDGERS_PREFIX", "LOG", "begin", "metadata_of", "read_range", "recover"]

LOG = "orders"
LEDGERS_PREFIX = ledger_key_path(0)[: -len(ledger_key_path(0).rpartition("/")[2])]
READY_NS = 20 * SECOND

Asking = Generator[Sleep | Until, Any, Any]


def begin(world: World, step: Step, quorum: Quorum) -> Actor:
    """Start the client that a step names, and its application."""
    chance = random.Random(step.seed)
    world.note(f"{step}")
    world.start_client(step.target)
    applications = {
        "writer": _writer,
        "recoverer": _recoverer,
        "reader": _reader,
        "tail": _tail,
        **APPLICATIONS,
    }
    return world.spawn(step.target, applications[step.kind](world, step.target, chance, quorum))


# --- Parts -------------------------------------------------------------------------------------------------


def is_ready(world: World, client: str) -> Asking:
    node = world.nodes[client]
    return (yield Until(lambda: node.is_ready and len(node.bookies) > 0, READY_NS))


def result_of(world: World, client: str, core: Machine, timeout_ns: int = 120 * SECOND) -> Asking:
    """The result of a core, or its error raised; TimeoutError: it did not end."""
    operation = world.start(client, core)
    done = yield Until(operation.future.done, timeout_ns)
    if not done:
        raise TimeoutError(f"{type(core).__name__} did not end within {timeout_ns / SECOND:g} s")
    return operation.future.result()


def metadata_of(world: World, client: str, ledger_id: int) -> Asking:
    """(metadata, revision) by a linearizable read; None: there is no such ledger. TimeoutError: no answer came."""
    results: list[Result] = []
    node = world.nodes[client]
    key = ledger_key_path(ledger_id)
    node.metadata.request(world.now_of(client), Get(key), lambda _, result: results.append(result))
    yield Until(lambda: bool(results), READY_NS)
    if not results or not isinstance(results[0], Value):
        raise TimeoutError(f"{client}: nobody tells what ledger {ledger_id} is: {results}")
    record = results[0].record
    if record is None:
        return None
    return decode_ledger_metadata(record.value or b""), record.revision


def recover(world: World, client: str, ledger_id: int) -> Asking:
    """The closed metadata, None: there is no such ledger; raises what recovery ended with."""
    found = yield from metadata_of(world, client, ledger_id)
    if found is None:
        return None
    metadata, revision = found
    nonce, chance = world.chance.getrandbits(63), random.Random(world.chance.getrandbits(63))
    keys, bookies = keys_of(metadata), world.nodes[client].bookies
    core = Recovery(metadata, revision, keys.key, nonce, bookies, chance, mac_key=keys.mac_key)
    try:
        closed, _ = yield from result_of(world, client, core)
    except (EmbedbkError, TimeoutError) as error:
        world.tell("on_recovered", client, ledger_id, None, error)
        raise
    world.tell("on_recovered", client, ledger_id, closed, None)
    world.tell("on_reader_lac", client, ledger_id, closed.last_entry, True, nonce)
    return closed


def read_range(
    world: World, client: str, metadata: LedgerMetadata, first: int, last: int, seat: int = 0
) -> Asking:
    """[(entry id, payload)] of first..last; reported to the observers as it comes."""
    if last < first:
        return []
    ledger_id = metadata.ledger_id
    if metadata.freed is not None:
        return _read_archived(world, client, metadata, first, last)
    core = RangeRead(metadata, first, last, seat, mac_key=keys_of(metadata).mac_key)
    reading = Reading(core, lambda reading, size: None)
    world.run(client, reading)
    done = yield Until(lambda: reading.is_over, 120 * SECOND)
    entries = [pair for frame in reading.frames for pair in payloads_of(frame)]
    world.tell("on_read", client, ledger_id, entries, False)
    if core.metadata.freed is not None and reading.error is None and first + len(entries) <= last:
        return entries + _read_archived(world, client, core.metadata, first + len(entries), last)
    if not done:
        raise TimeoutError(f"reading {first}..{last} of ledger {ledger_id} did not end")
    if reading.error is not None:
        world.tell("on_read_failed", client, ledger_id, first + len(entries), reading.error)
        raise reading.error
    return entries


def _read_archived(
    world: World, client: str, metadata: LedgerMetadata, first: int, last: int
) -> list[tuple[int, bytes]]:
    """Its bookies gave their copies up (P8.14)."""
    frames = frames_in_memory(world, metadata, first, last)
    entries = [pair for frame in frames for pair in payloads_of(frame)]
    world.tell("on_read", client, metadata.ledger_id, entries, False)
    return entries


def payloads_of(frame: Frame) -> list[tuple[int, bytes]]:
    return [(entry.entry_id, bytes(entry.data)) for entry in iter_entries(frame)]


def _ledgers(world: World) -> list[int]:
    """Ids of the ledgers that exist, ascending, as a client that lists them would learn."""
    found = world.committed(LEDGERS_PREFIX)
    return sorted(decode_ledger_metadata(value).ledger_id for value in found.values())


# --- Applications ------------------------------------------------------------------------------------------


def _writer(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    yield from is_ready(world, client)
    core = takeover_core(world, client, LOG, quorum)
    taken = yield from result_of(world, client, core)
    delete_left(world, client, LOG, taken)
    add_timeout_ns = chance.choice([100 * MS, 1 * SECOND, 1 * SECOND, 5 * SECOND])
    writing = open_writing(world, client, taken, add_timeout_ns)
    # A ledger without a log has no next one, in which all copies would be there (P8.7).
    writing.on_missed = SimRuntime(world, client, world.nodes[client]).on_missed
    most, burst = chance.choice([0, 5, 50, 300]), chance.choice([1, 1, 4, 32])
    pause_ns = chance.choice([0, 1, 5, 30]) * MS
    size = chance.choice([1, 1, 40, 400])
    count = 0
    while count < most and writing.error is None:
        for _ in range(chance.randint(1, burst)):
            if count < most:
                payload = b"%s/%d/%d " % (client.encode(), writing.core.ledger_id, count)
                if append(world, client, writing, payload * chance.randint(1, size)) is None:
                    break
                count += 1
        if pause_ns:
            yield Sleep(chance.randint(0, 2 * pause_ns))
        if chance.random() < 0.2:
            yield _settled(writing, count)
    ends = chance.choice(["close", "close", "wait", "leave"])
    if ends == "leave":
        return
    settled = yield _settled(writing, count, 300 * SECOND)
    if not settled:
        raise TimeoutError(f"{client}: an add neither succeeds nor fails")
    if ends == "close":
        close_writing(world, client, writing)
        yield Until(writing.closed.done, 120 * SECOND)
        writing.closed.result()


def _settled(writing: Writing, count: int, timeout_ns: int = 60 * SECOND) -> Until:
    """Wait until each of the first count entries was acknowledged or has failed."""
    return Until(lambda: writing.lac >= count - 1 or writing.error is not None, timeout_ns)


def _recoverer(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    yield from is_ready(world, client)
    for _ in range(chance.randint(1, 4)):
        ledgers = _ledgers(world)
        if ledgers:
            ledger_id = chance.choice([ledgers[-1], chance.choice(ledgers)])
            closed = None
            try:
                closed = yield from recover(world, client, ledger_id)
            except (EmbedbkError, TimeoutError) as error:
                world.note(f"{client}: recovery of {ledger_id}: {error}")
            if closed is not None and chance.random() < 0.5:
                yield from read_range(world, client, closed, 0, closed.last_entry, chance.getrandbits(3))
        yield Sleep(chance.randint(0, 500) * MS)


def _reader(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    """Without recovery: as far as the LAC of an open ledger, or the end of a closed one."""
    yield from is_ready(world, client)
    known: dict[int, int] = {}  # A handle never shows a lower LAC than it showed before (P6.2).
    for _ in range(chance.randint(1, 8)):
        ledgers = _ledgers(world)
        if ledgers:
            ledger_id = chance.choice([ledgers[-1], chance.choice(ledgers)])
            try:
                found = yield from metadata_of(world, client, ledger_id)
                if found is not None:
                    yield from _read_known(world, client, chance, found[0], known)
            except (EmbedbkError, TimeoutError) as error:
                world.note(f"{client}: reading {ledger_id}: {error}")
        yield Sleep(chance.randint(0, 300) * MS)


def _read_known(
    world: World, client: str, chance: random.Random, metadata: LedgerMetadata, known: dict[int, int]
) -> Steps:
    if metadata.last_entry is not None:
        last = metadata.last_entry
    else:
        last, _, _ = yield from result_of(world, client, LacRead(metadata))
        last = known[metadata.ledger_id] = max(last, known.get(metadata.ledger_id, -1))
    world.tell("on_reader_lac", client, metadata.ledger_id, last, metadata.is_closed, "reader")
    first = chance.randint(0, max(0, last)) if chance.random() < 0.5 else 0
    yield from read_range(world, client, metadata, first, last, chance.getrandbits(3))


def _tail(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    """Follows the newest ledger entry by entry, by long polls, until it is closed; then the next one."""
    yield from is_ready(world, client)
    begun = world.now_ns
    ledger_id, next_entry, heard = -1, 0, NO_ENTRY
    while world.now_ns - begun < 20 * SECOND:
        ledgers = _ledgers(world)
        if not ledgers:
            yield Sleep(50 * MS)
            continue
        if ledger_id < 0:
            ledger_id = ledgers[-1]
        try:
            found = yield from metadata_of(world, client, ledger_id)
            if found is None:
                yield Sleep(50 * MS)
                continue
            metadata = found[0]
            last = metadata.last_entry
            if not metadata.is_closed:
                seat = chance.getrandbits(3)
                mac_key = keys_of(metadata).mac_key
                wait = LacWait(
                    metadata, next_entry - 1, 300, seat, bytes_max=FRAME_BYTES_MAX, mac_key=mac_key
                )
                told, _, _ = yield from result_of(world, client, wait)
                # Where a read failed it asks again from there, and another bookie may know less (I11).
                last = heard = max(heard, told)
                if last >= next_entry:
                    world.tell("on_reader_lac", client, ledger_id, last, False, "tail")
                if wait.frame is not None:
                    world.tell("on_read", client, ledger_id, payloads_of(wait.frame), False)
                    next_entry = wait.frame.last_entry + 1
            yield from read_range(world, client, metadata, next_entry, last, chance.getrandbits(3))
        except (EmbedbkError, TimeoutError) as error:
            world.note(f"{client}: tailing {ledger_id}: {error}")
            yield Sleep(100 * MS)
            continue
        next_entry = max(next_entry, last + 1)
        if metadata.is_closed:
            later = [other for other in _ledgers(world) if other > ledger_id]
            if not later:
                return
            ledger_id, next_entry, heard = later[0], 0, NO_ENTRY
        else:
            yield Sleep(chance.randint(1, 50) * MS)
