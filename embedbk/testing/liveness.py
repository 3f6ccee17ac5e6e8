"""What a healed world must still be able to do, and must have put away: L3, L12, L13, L15, L18, L19.

Each check runs once faults have stopped. Safety is checked in invariants.py; here it is progress.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from embedbk.config import Quorum
from embedbk.core.client_words import Send
from embedbk.core.creation import Creation
from embedbk.core.lac_reader import LacRead, LacWait
from embedbk.host.bookie_node import BookieNode
from embedbk.host.client_node import ClientNode
from embedbk.host.writing import Writing
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.observer import Observer
from embedbk.testing.violation import Violation
from embedbk.testing.workload import is_ready, result_of
from embedbk.testing.world import KEPT_FRAME_BYTES, World
from embedbk.testing.writing_handles import append, close_writing, write_ledger

__all__ = [
    "QuietReaders",
    "keeps_acknowledging",
    "lists_are_fresh",
    "nothing_is_held",
    "say_no",
    "tells_its_last",
    "waits_for_no_slow_seat",
]

APPENDS = 8
APPEND_NS = 30 * SECOND  # An add waits for its time limit, a replacement, and not for ever.
REST_NS = 30 * SECOND
SLOW_APPENDS = 128
# The time of an ack quorum in a calm network, with a sync of its disks; and the wait at the bound besides.
BELOW_BOUND_NS = 15 * MS
AT_BOUND_NS = BELOW_BOUND_NS + 300 * MS
# A bookie starts, and the longest pause before it is told again ends, within this time (core/lac_retelling.py).
LAST_NS = 20 * SECOND
# A bookie that goes leaves the list when its session ends.
LIST_NS = 60 * SECOND
SENDS_MAX = 400  # Requests for the LAC of one ledger by one client in one virtual second.


def keeps_acknowledging(
    world: World, client: str, quorum: Quorum, restart: Callable[[World, str], None]
) -> Steps:
    """L3: a writer goes on while any Qw-Qa bookies of its ensemble are down, whether others can replace them or not."""
    yield from is_ready(world, client)
    node = world.nodes[client]
    healthy = {name for name in world.disks if name in world.nodes and name not in world.lost}
    # The list of bookies drops dead ones when their sessions end; no other is usable. Until then it also shows the
    # process before of a bookie that serves only when it is in limbo (P7.4).
    known = yield Until(lambda: not _idle(world, healthy) and _listed(node) == healthy, APPEND_NS)
    if not known and (idle := _idle(world, healthy)):
        raise Violation("L3", f"{', '.join(idle)}: started, and never serves")
    if not known or _writable(node) < quorum.ensemble_size:
        return
    chance = random.Random(f"L3 {world.seed}")
    metadata, revision = yield from result_of(
        world, client, Creation(quorum, b"", 0, {}, node.bookies, random.Random(chance.getrandbits(63)))
    )
    writing = write_ledger(world, client, metadata, revision)
    down, stopped = list[str](), list[str]()
    for number in range(APPENDS):
        if number == APPENDS // 4:
            ensemble = [member.bookie_id for member in metadata.fragments[-1].members]
            down = chance.sample(ensemble, quorum.write_quorum - quorum.ack_quorum)
            stopped = [name for name in down if name in world.nodes]
            for name in stopped:
                world.crash(name)
        entry_id = append(world, client, writing, b"L3 %d" % number)
        if entry_id is None:
            break
        told = yield _settled(writing, entry_id)
        if not told or writing.error is not None:
            raise Violation(
                "L3",
                f"ledger {metadata.ledger_id}, {quorum}: entry {number} with {down} down: {writing.error}",
            )
    if down:
        world.sometimes["went on without some"] += 1
    _start_again(world, stopped, restart)
    close_writing(world, client, writing)
    yield Until(writing.closed.done, 60 * SECOND)
    if writing.error is not None and writing.lac < APPENDS - 1:
        raise Violation("L3", f"ledger {metadata.ledger_id}: {writing.error}")


def waits_for_no_slow_seat(world: World, client: str, quorum: Quorum) -> Steps:
    """L15: with Qa seats of each write set answering, no append waits for the others below the bound of what is kept
    for them, nor longer than 0.3 s at it. Here Qw-Qa of the ensemble stand still, for 0.2 to 3 s."""
    yield from is_ready(world, client)
    node, chance = world.nodes[client], random.Random(f"L15 {world.seed}")
    slow_count = quorum.write_quorum - quorum.ack_quorum
    if not slow_count or not (yield Until(lambda: _writable(node) >= quorum.ensemble_size, APPEND_NS)):
        return
    metadata, revision = yield from result_of(
        world, client, Creation(quorum, b"", 0, {}, node.bookies, random.Random(chance.getrandbits(63)))
    )
    writing = write_ledger(world, client, metadata, revision, add_timeout_ns=5 * SECOND)
    for number in range(SLOW_APPENDS // 8):
        yield from _append_in(world, client, writing, number, APPEND_NS)
    seated = [member.bookie_id for member in writing.core.in_flight.members]
    # One that has just started again answers BUSY until metadata knows of its start, and one that said so before has no
    # frames until the writer tries it again: such a seat is one of the others, too.
    in_flight = writing.core.in_flight
    if not (
        yield Until(
            lambda: not _idle(world, set(seated)) and in_flight.is_at_rest and not in_flight.has_failed,
            APPEND_NS,
        )
    ):
        return
    slow = chance.sample(seated, slow_count)
    for name in slow:
        world.pause(name)
    until_ns = world.now_ns + chance.randint(200, 3_000) * MS
    for number in range(SLOW_APPENDS):
        if world.now_ns >= until_ns or writing.error is not None:
            break
        limit_ns = AT_BOUND_NS if _is_at_bound(world, writing) else BELOW_BOUND_NS
        yield from _append_in(world, client, writing, number, limit_ns)
        yield Sleep(chance.choice([0, 0, 1, 20]) * MS)
    for name in slow:
        if name in world.paused:
            world.resume(name)
    world.sometimes["slow seat waited for by nobody"] += 1
    close_writing(world, client, writing)
    yield Until(writing.closed.done, 60 * SECOND)
    if writing.error is not None and writing.lac != writing.packer.last_entry:
        raise Violation("L15", f"ledger {metadata.ledger_id}: {writing.error}")


def tells_its_last(world: World, client: str, quorum: Quorum, restart: Callable[[World, str], None]) -> Steps:
    """L18: the bookies of a writer that idles get its LAC and keep it, also where power went at all of them while they
    were told."""
    yield from is_ready(world, client)
    node, chance = world.nodes[client], random.Random(f"L18 {world.seed}")
    if not (yield Until(lambda: _writable(node) >= quorum.ensemble_size, APPEND_NS)):
        return
    metadata, revision = yield from result_of(
        world, client, Creation(quorum, b"", 0, {}, node.bookies, random.Random(chance.getrandbits(63)))
    )
    writing = write_ledger(world, client, metadata, revision, add_timeout_ns=5 * SECOND)
    for number in range(3):
        yield from _append_in(world, client, writing, number, APPEND_NS)
    seated = [member.bookie_id for member in writing.core.in_flight.members]
    if chance.random() < 0.5:
        yield Sleep(chance.randint(0, 250) * MS)
    else:
        yield Until(lambda: not writing.core.owes_lac, SECOND)  # It is on its way, and no disk has it.
    for name in seated:
        world.crash(name)
    yield Sleep(chance.choice([0, 50, 500]) * MS)
    _start_again(world, seated, restart)
    told = yield Until(lambda: not _untold(world, writing, seated), LAST_NS)
    if not told and writing.error is None:
        names = ", ".join(_untold(world, writing, seated))
        raise Violation("L18", f"ledger {metadata.ledger_id}: {names} not told of entry {writing.lac}")
    world.sometimes["LAC known behind a power cut"] += 1
    close_writing(world, client, writing)
    yield Until(writing.closed.done, 60 * SECOND)


def _start_again(world: World, names: list[str], restart: Callable[[World, str], None]) -> None:
    """Start those that ran until a moment ago, also one that lost its disk before and has a new one since, which nobody
    else would: what follows wants each of them in its place."""
    for name in names:
        if name in world.lost:
            world.start_bookie(name)
        else:
            restart(world, name)


def _untold(world: World, writing: Writing, names: list[str]) -> list[str]:
    """Of these bookies those that keep their seats, serve, and do not know the writer's LAC."""
    kept = {member.bookie_id for member in writing.core.in_flight.members}
    rows = {
        name: world.nodes[name].storage.table.get(writing.core.ledger_id)
        for name in names
        if name in kept and name in world.nodes and world.nodes[name].failure is None
    }
    return [name for name, row in rows.items() if row is None or row.lac < writing.lac]


def _is_at_bound(world: World, writing: Writing) -> bool:
    """One frame more is allowed. Frames kept in C are not all reported yet."""
    in_flight, backlog = writing.core.in_flight, writing.core.in_flight.backlog
    kept = in_flight.behind_bytes if backlog is None else max(in_flight.behind_bytes, backlog.kept_bytes)
    return kept + KEPT_FRAME_BYTES >= in_flight.behind_max


def _append_in(world: World, client: str, writing: Writing, number: int, limit_ns: int) -> Steps:
    entry_id = append(world, client, writing, b"L15 %d" % number)
    if entry_id is None:
        return
    told = yield Until(lambda: writing.lac >= entry_id or writing.error is not None, limit_ns)
    if not told or writing.error is not None:
        raise Violation(
            "L15",
            f"ledger {writing.core.ledger_id}: entry {entry_id} within {limit_ns // MS} ms: {writing.error}",
        )


def _writable(node: Any) -> int:
    return sum(1 for info in node.bookies if info.is_writable)


def _listed(node: Any) -> set[str]:
    return {info.member.bookie_id for info in node.bookies}


def _idle(world: World, names: set[str]) -> list[str]:
    """The bookies that neither serve nor have a reason not to."""
    nodes = {name: world.nodes[name] for name in sorted(names)}
    able = {name: node for name, node in nodes.items() if not (node.failure or node.registering.is_foreign)}
    return [name for name, node in able.items() if not (node.is_registered and node.core.is_serving)]


def say_no(world: World) -> bool:
    """Whether every bookie that can serve says what it lacks, too: the metadata knows of its start (P7.9)."""
    names = {name for name in world.disks if name in world.nodes and name not in world.lost}
    nodes = [world.nodes[name] for name in names]
    return not _idle(world, names) and all(
        node.core.is_settled for node in nodes if not (node.failure or node.registering.is_foreign)
    )


def _settled(writing: Writing, entry_id: int) -> Until:
    return Until(lambda: writing.lac >= entry_id or writing.error is not None, APPEND_NS)


def nothing_is_held(world: World) -> None:
    """L13: bounded memory. At rest no bookie holds an answer back or waits for a lookup, and no link owes answers; what
    is on its way just now has time to end."""
    world.run_until(lambda: not _held(world), REST_NS)
    if left := _held(world):
        raise Violation("L13", f"held at rest: {', '.join(left)}")


def lists_are_fresh(world: World) -> None:
    """L19: each client that has not closed shows the bookies that are registered."""
    world.run_until(lambda: not _stale(world), LIST_NS)
    if stale := _stale(world):
        raise Violation("L19", f"lists of bookies that are not those of the metadata: {', '.join(stale)}")


def _stale(world: World) -> list[str]:
    registered = {
        name for name, node in world.nodes.items() if isinstance(node, BookieNode) and node.is_registered
    }
    return [
        f"{name} lists {' '.join(sorted(node.listed.registrations))}"
        for name, node in world.nodes.items()
        if isinstance(node, ClientNode)
        and name not in world.paused
        and not node.metadata.is_closed
        and node.listed.registrations.keys() != registered
    ]


def _held(world: World) -> list[str]:
    left: list[str] = []
    for name, node in world.nodes.items():
        if name not in world.disks or node.failure is not None:
            continue
        core, polls = node.core, node.core.parked.poll_count
        for what, count in (
            ("answers that wait for its disk", len(core.replies.by_token)),
            ("lookups", len(core.looks.open)),
            ("requests without an answer", sum(node.clients.unanswered.values()) - polls),
        ):
            left += [f"{count} {what} by {name}"] if count > 0 else []
    return left


class QuietReaders(Observer):
    """L12: a reader that waits for a fenced ledger that is not closed does not spin, also not with one poll after
    another."""

    def __init__(self) -> None:
        # (client, ledger) -> (second, requests in it).
        self._sent: dict[tuple[str, int], tuple[int, int]] = {}

    def on_step(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        if type(core) is not LacWait and type(core) is not LacRead:
            return
        sends = sum(1 for effect in effects if type(effect) is Send)
        if not sends:
            return
        key, now = (node, core.metadata.ledger_id), event.now_ns // SECOND
        second, count = self._sent.get(key, (now, 0))
        count = count + sends if second == now else sends
        self._sent[key] = (now, count)
        if count > SENDS_MAX:
            raise Violation("L12", f"{node} asked {count} times for the LAC of ledger {key[1]} in one second")
