"""A copy that differs from the others and is whole by itself, planted when all is healed (I56).

No protocol makes one, no bookie can find it, and no reader may meet it: so it is planted behind everything that a run
checks. The auditor must name it within a round, and nothing may be copied over it. A scrub finds nothing before, and
that one entry then. At last an operator says which copy is right (P11.5): all bookies hold that one from then on.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from embedbk.client.copy_choosing import EntryCopies, choose_copy, entry_copies
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.codec.digest import DigestType
from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES
from embedbk.codec.kernels import crc32c
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.log_archives import (
    ARCHIVES_PREFIX,
    ArchiveState,
    archived_ledger,
    decode_archive_record,
)
from embedbk.codec.repair_mark import REPAIR_PREFIX
from embedbk.core.fragment_sums import modulus_of
from embedbk.core.quorum import write_set
from embedbk.errors import EmbedbkError, StorageError
from embedbk.host.bookie_node import BookieNode
from embedbk.host.repairing import RepairService
from embedbk.ids import Member
from embedbk.metadata.levels import LEVEL_OF_CHOICES
from embedbk.repair.copy_comparison import cuts_of
from embedbk.scrub.options import ScrubOptions
from embedbk.scrub.scrubbing import scrub_cluster
from embedbk.storage.memory import MemoryBookieStorage
from embedbk.testing.actors import Steps
from embedbk.testing.archived import FilesInMemory
from embedbk.testing.clocks import SECOND
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["closed_ledgers", "copies_owed", "differing_copy_is_found", "scrub_finds", "whole_copies"]

FOUND_NS = 120 * SECOND  # A round begins each 30 seconds.
CHANCE = 0.3
READY_NS = 60 * SECOND
SCRUBBED_NS = 600 * SECOND
TRIES = 5
OPERATOR = "scrubber"
_Result = TypeVar("_Result")


def differing_copy_is_found(
    world: World, services: Mapping[str, RepairService], chance: random.Random, *, is_start: bool
) -> None:
    """I56: all copies of a closed ledger have one digest, or those that have not are named. is_start: the bookie tells
    other numbers of its ledgers from then on, as if it had met this copy at a start.

    None moves meanwhile: nobody would owe the one that differs (P11.6)."""
    balancers = [each.balancer for each in services.values() if each.balancer is not None]
    names = [balancer.name for balancer in balancers]
    for balancer in balancers:
        balancer.name = b""  # The auditor is another host.
    world.run_until(lambda: not world.committed(REPAIR_PREFIX), FOUND_NS)
    _differ(world, services, chance, is_start=is_start)
    for balancer, name in zip(balancers, names, strict=True):
        balancer.name = name


def _differ(
    world: World, services: Mapping[str, RepairService], chance: random.Random, *, is_start: bool
) -> None:
    places = sorted(whole_copies(world), key=lambda place: (place[0], place[1], place[2]))
    if not places or chance.random() >= CHANCE:
        return
    scrub_finds(world, set(), "before a copy was made to differ")
    ledger_id, entry_id, name = chance.choice(places)
    storage = world.nodes[name].storage
    entries = storage.store.entries[ledger_id]
    held = entries[entry_id]
    other = entries[entry_id] = _other(held)
    if is_start:
        storage.starts.seed ^= 1
    give_up_ns = world.now_ns + FOUND_NS
    while not _is_named(world, services, ledger_id, entry_id) and world.now_ns < give_up_ns:
        world.run_for(SECOND)
    if not _is_named(world, services, ledger_id, entry_id):
        raise Violation(
            "I56", f"nobody names entry {entry_id} of ledger {ledger_id}, which differs on {name}"
        )
    if entries[entry_id] != other:
        raise Violation("I56", f"a copy of entry {entry_id} of ledger {ledger_id} was overwritten by a guess")
    _check_published(world, services, ledger_id, entry_id, name)
    world.sometimes["differing copy named"] += 1
    scrub_finds(world, {(ledger_id, entry_id)}, f"behind another copy on {name}")
    world.sometimes["differing copy found by a scrub"] += 1
    if not world.nodes[name].metadata.client.cluster_level >= LEVEL_OF_CHOICES or chance.random() < 0.3:
        entries[entry_id] = held
        return
    _choose(world, ledger_id, entry_id, held, chance)


def _runtime(world: World) -> SimRuntime:
    node = world.nodes.get(OPERATOR) or world.start_client(OPERATOR)
    world.run_until(lambda: node.is_ready and bool(node.bookies), READY_NS)
    return SimRuntime(world, OPERATOR, node)


def _run(world: World, steps: Callable[[Runtime], Coroutine[Any, Any, _Result]]) -> _Result:
    """Drive an operator's coroutine until it ends. Raises what it raises."""
    results: list[_Result | EmbedbkError] = []
    runtime = _runtime(world)

    def act() -> Steps:
        try:
            results.append((yield from awaited(runtime, steps(runtime))))
        except EmbedbkError as refused:
            results.append(refused)

    world.spawn(OPERATOR, act())
    if not world.run_until(lambda: bool(results), SCRUBBED_NS):
        raise Violation("L2", f"{OPERATOR} has no answer from a command")
    (result,) = results
    if isinstance(result, EmbedbkError):
        raise result
    return result


def scrub_finds(world: World, expected: set[tuple[int, int]], when: str) -> None:
    """Nothing but these entries, whose copies differ, one of them from the archive too, where there is one; and copies
    that rot before their bookie's own scrubber came by: where a ledger has no more copies than its ack quorum, one of
    them leaves fewer than that (seed 64010048). What belongs to lists and strangers is not of copies."""
    rotten = set(_rotten(world))
    files = FilesInMemory(world)
    result = _run(world, lambda runtime: scrub_cluster(runtime, ScrubOptions(settle_s=2.0), files=files))
    found = {
        (each.kind, each.ledger_id, each.first)
        for each in result.findings
        if each.kind not in ("orphan-ledger", "dangling-segment")
        and not (each.kind in ("crc", "under-Qw", "under-Qa") and (each.ledger_id, each.first) in rotten)
    }
    archived = {place for place in expected if place[0] in _verified(world)}
    wanted = {("replicas-differ", *place) for place in expected}
    wanted |= {("archive-differs", *place) for place in archived}
    if found != wanted:
        raise Violation("I55", f"a scrub {when} found {[str(each) for each in result.findings[:4]]}")


def _verified(world: World) -> set[int]:
    """Ledgers of which another job than their writer's has read all files (P8.14)."""
    found: set[int] = set()
    for key, value in world.committed(ARCHIVES_PREFIX).items():
        ledger_id = archived_ledger(key, key.removeprefix(ARCHIVES_PREFIX).rpartition("/")[0])
        if ledger_id is not None:
            with contextlib.suppress(StorageError):
                if decode_archive_record(value, ledger_id).state == ArchiveState.VERIFIED:
                    found.add(ledger_id)
    return found


def _choose(world: World, ledger_id: int, entry_id: int, made: bytes, chance: random.Random) -> None:
    """An operator's word, given until it is carried out: every copy is the one that its writer made then (I7)."""

    def look(runtime: Runtime) -> Coroutine[Any, Any, EntryCopies]:
        return entry_copies(runtime, ledger_id, entry_id, Password(b""))

    for _ in range(TRIES):
        shown = _run(world, look)
        right = [each.member.bookie_id for each in shown.copies if each.entry == made]
        if right and not shown.is_conflict and len(right) == len(shown.copies):
            world.sometimes["copy chosen by an operator"] += 1
            return
        if right and shown.is_conflict:
            word = partial(choose_copy, shown=shown, bookie_id=chance.choice(right), why="it is said so")
            _run(world, word)
        world.run_for(SECOND)
    raise Violation("I56", f"a copy of entry {entry_id} of ledger {ledger_id} was chosen, and others stay")


def _check_published(
    world: World, services: Mapping[str, RepairService], ledger_id: int, entry_id: int, name: str
) -> None:
    """I56, P11.4: where the writer published sums, they tell whose copy it is; those of other residues than copies lie
    by since the ledger got other numbers of them (P2.6) tell nothing, and nobody is named by them."""
    metadata = decode_ledger_metadata(world.committed(LEDGERS_PREFIX)[ledger_key_path(ledger_id)])
    covering = [each for each in metadata.sums if each.first_entry <= entry_id <= each.last_entry]
    modulus = modulus_of(metadata.quorum)
    wanted = {name} if any(modulus in (1, len(each.digests)) for each in covering) else set()
    if not covering:
        return
    told = {
        each.bookie_id
        for which, service in services.items()
        if which in world.nodes
        for each in service.auditor.look.unlike.get(ledger_id, ())
    }
    if told != wanted:
        raise Violation(
            "I56", f"entry {entry_id} of ledger {ledger_id} differs on {name}; told of {sorted(told)}"
        )
    world.sometimes["differing copy told by published sums"] += bool(wanted)


def _is_named(world: World, services: Mapping[str, RepairService], ledger_id: int, entry_id: int) -> bool:
    return any(
        conflict.entry_id == entry_id
        for name, service in services.items()
        if name in world.nodes
        for conflict in service.auditor.look.conflicts.get(ledger_id, ())
    )


def _other(raw: bytes) -> bytes:
    """A whole entry of the same size and place, with another payload."""
    body = raw[:-5] + bytes([raw[-5] ^ 1])
    return body + crc32c(body).to_bytes(4, "little")


def closed_ledgers(world: World) -> Iterator[LedgerMetadata]:
    """What the metadata says of ledgers that are CLOSED, and of which bookies owe copies (P8.14); a stranger's value is
    none."""
    for value in world.committed(LEDGERS_PREFIX).values():
        with contextlib.suppress(StorageError):
            metadata = decode_ledger_metadata(value)
            if metadata.is_closed and metadata.freed is None:
                yield metadata


def copies_owed(metadata: LedgerMetadata) -> Iterator[tuple[int, tuple[Member, ...]]]:
    """Each entry of a CLOSED ledger, and the members of its write set."""
    assert metadata.last_entry is not None
    ends = [*cuts_of(metadata, 0, metadata.last_entry), metadata.last_entry + 1]
    for fragment, end in zip(metadata.fragments, ends, strict=False):
        for entry_id in range(fragment.first_entry, end):
            yield entry_id, tuple(fragment.members[seat] for seat in write_set(entry_id, metadata.quorum))


def _rotten(world: World) -> Iterator[tuple[int, int]]:
    """(ledger, entry) of copies that their bookies can neither return nor deny."""
    storage_of = {
        Member(name, node.storage.incarnation): node.storage
        for name, node in world.nodes.items()
        if isinstance(node, BookieNode)
    }
    for metadata in closed_ledgers(world):
        for entry_id, members in copies_owed(metadata):
            for member in members:
                if (storage := storage_of.get(member)) is not None:
                    found = storage.read(metadata.ledger_id, entry_id, entry_id, 1)
                    if found.frame is None and not found.absent:
                        yield metadata.ledger_id, entry_id


def whole_copies(world: World) -> Iterator[tuple[int, int, str]]:
    """(ledger, entry, bookie) of a copy beside which all others are there, sound."""
    nodes = {
        Member(name, node.storage.incarnation): node.storage
        for name, node in world.nodes.items()
        if isinstance(node, BookieNode) and isinstance(node.storage, MemoryBookieStorage)
    }
    for metadata in closed_ledgers(world):
        if metadata.digest != DigestType.XXH3:  # Else its tag is wrong: it is not whole.
            yield from _places_of(metadata, nodes)


def _places_of(
    metadata: LedgerMetadata, nodes: Mapping[Member, MemoryBookieStorage]
) -> Iterator[tuple[int, int, str]]:
    for entry_id, members in copies_owed(metadata):
        held = [
            member.bookie_id
            for member in members
            if member in nodes
            and len(nodes[member].store.entries.get(metadata.ledger_id, {}).get(entry_id, b""))
            > ENTRY_OVERHEAD_BYTES
            and (metadata.ledger_id, entry_id) not in nodes[member].store.unreadable
        ]
        if len(held) == len(members) > 1:
            yield metadata.ledger_id, entry_id, held[0]
