"""One seed, whole: safety mode while faults act, then liveness mode; what came out; and a smaller run that still fails.

plan ──▶ faults and applications (anything may fail, nothing may be wrong) ──▶ faults stop, everything heals
     ──▶ every ledger is recovered by two, read by both: one end, the bytes that were sent, all that was acknowledged
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_key_path
from embedbk.config import Quorum
from embedbk.core.collector import CollectorOptions
from embedbk.errors import EmbedbkError, InvariantError
from embedbk.host.bookie_node import USUAL_COLLECTION, BookieNode
from embedbk.metadata.basing import BASE_RULES
from embedbk.metadata.intake import REQUESTS_WAITING_MAX
from embedbk.metadata.limits import DEFAULT_LIMITS, Limits
from embedbk.testing import faults, owners, process_faults, workload
from embedbk.testing.actors import Steps, Until
from embedbk.testing.aftermath import aftermath
from embedbk.testing.askers import Askers
from embedbk.testing.bounders import begin_bounding
from embedbk.testing.checkers import disks_are_whole, logs_fit
from embedbk.testing.clocks import Clock
from embedbk.testing.drainers import Drainers
from embedbk.testing.healers import Healers
from embedbk.testing.invariants import Invariants
from embedbk.testing.leavers import Leavers
from embedbk.testing.liveness import (
    QuietReaders,
    keeps_acknowledging,
    lists_are_fresh,
    nothing_is_held,
    tells_its_last,
    waits_for_no_slow_seat,
)
from embedbk.testing.member_names import member_names
from embedbk.testing.members import HASTY_BASE
from embedbk.testing.members_liveness import (
    agree_at_last,
    catches_up,
    ends_every_change,
    gets_a_leader,
    keeps_a_leader,
)
from embedbk.testing.observer import Observer
from embedbk.testing.plan import SECOND, Plan, Step
from embedbk.testing.promises import Promises
from embedbk.testing.reached_events import ReachedEvents
from embedbk.testing.repairers import Repairers
from embedbk.testing.reshapers import Reshapers
from embedbk.testing.restarters import Restarters
from embedbk.testing.retirers import Retirers
from embedbk.testing.scarcity import FEW_REQUESTS, LITTLE_ROOM, RESERVED_ROOM, has_room, has_room_for_marks
from embedbk.testing.truncators import room_is_given_back
from embedbk.testing.violation import Violation
from embedbk.testing.without_quorum import goes_on_without_quorum
from embedbk.testing.world import World

__all__ = ["Outcome", "observers", "replay_line", "run_plan", "shrink"]

APPLICATIONS_NS = 400 * SECOND  # Time for every application to end once faults have stopped (L2).
REST_NS = 240 * SECOND  # Time for every ledger to be recovered and read (L1).
TWINS_NS = 4 * SECOND  # Time for a paused process to be asked (P7.9), and to continue.
SETTLE_NS = 120 * SECOND  # Time for adds to end that no application waits for.
SHRINK_S = 20.0
LIVENESS_CLIENTS = ("l3", "l13", "l15", "l18", "p10", "p10-reader", "end-1", "end-2", "l20")
# After which a writer gives away the seat of a bookie that is not registered: soon, so that seeds meet it.
SEAT_GRACES_NS = (3 * SECOND, 12 * SECOND, 40 * SECOND)
PAGE_LEDGERS = 4  # Ledgers in one page of a log's list: few, so that a short run has pages.
BUSY_COLLECTION = CollectorOptions(interval_ns=SECOND, pace_ns=SECOND // 200, page_ledgers=3)

# Given the counter of what was met: observers that watch from the first moment on.
MakeObservers = Callable[[Counter[str]], Sequence[Observer]]


@dataclass
class Outcome:
    """The result of one run."""

    plan: Plan
    violation: str = ""  # Empty: every promise was kept.
    invariant: str = ""
    events: int = 0  # Bodies delivered.
    steps: int = 0
    simulated_ns: int = 0
    digest: str = ""
    refusals: int = 0  # Ledgers that could not be closed or read, where the plan allows that.
    ledgers: int = 0
    acked: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    sometimes: Counter[str] = field(default_factory=Counter)


def observers(seen: Counter[str]) -> list[Observer]:
    """Those that watch every run beside the plain promises: what must be met sometimes, and the invariants."""
    invariants = Invariants()
    invariants.sometimes.reached = seen
    return [ReachedEvents(seen), QuietReaders(), invariants]


def _uneven(plan: Plan) -> dict[str, dict[str, Any]]:
    """The room of bookies' devices, and their racks, in some worlds: copies move for these (P11.6)."""
    chance, names = (
        random.Random(f"uneven {plan.seed}"),
        [f"b{number}" for number in range(1, plan.bookies + 1)],
    )
    rooms = {name: chance.choice([2, 20, 200]) << 30 for name in names}
    racks = {name: chance.choice(["z/1", "z/2", "z/3"]) for name in names}
    return {
        "rooms": rooms if chance.random() < 0.3 else {},
        "racks": racks if chance.random() < 0.2 or "placements" in plan.features else {},
    }


def run_plan(
    plan: Plan, *, make_observers: MakeObservers = observers, prepare: Callable[[World], None] | None = None
) -> Outcome:
    """Run it. prepare(world) is called before anything happens, as to add a trace or a targeted rule."""
    outcome = Outcome(plan)
    promises = Promises()
    seen: Counter[str] = Counter()
    clocks = {
        name: Clock(plan.seed % 7 * SECOND, plan.drift_ppm.get(name, 0))
        for name in [
            *member_names(plan.members),
            *(f"b{n}" for n in range(1, plan.bookies + 1)),
            *_clients(plan),
        ]
    }
    world = World(
        plan.seed, bookies=plan.bookies, faults=plan.network, is_native=plan.is_native,
        devices=plan.devices, has_courses=plan.has_courses, near_clients=plan.near_clients,
        kept_frames=plan.kept_frames, members=plan.members, first_members=plan.first_members, policy=plan.policy,
        election_base_ms=plan.election_base_ms,
        observers=[promises, *make_observers(seen)], clocks=clocks,
        metadata_limits=_limits(plan),
        requests_waiting_max=FEW_REQUESTS if "metadata-crowd" in plan.on else REQUESTS_WAITING_MAX,
        collector=BUSY_COLLECTION if {"deletion", "archives"} & {*plan.features} else USUAL_COLLECTION,
        base_rules=HASTY_BASE if plan.follows_measured else BASE_RULES,
        seat_grace_ns=random.Random(f"seat grace {plan.seed}").choice(SEAT_GRACES_NS),
        begins_older=any(step.kind == "level-raise" for step in plan.steps),
        **_uneven(plan),
    )  # fmt: skip
    world.sometimes, world.features = seen, frozenset(plan.features)
    if plan.has_repairers:
        world.features |= {"repairers"}
    world.page_ledgers = PAGE_LEDGERS
    world.history_changes = plan.history_changes
    world.goes_back = any(step.kind == "older-metadata" for step in plan.steps)
    try:
        if prepare is not None:
            prepare(world)
        askers, repairers, healers, drainers = _safety(world, plan)
        _liveness(world, plan, promises, outcome, drainers)
        if askers is not None:
            askers.check()
        if repairers is not None:
            repairers.check()
        _applications_leave(world, plan)
        is_whole = not plan.is_outside and not outcome.refusals  # Else one cannot be closed.
        if healers is not None and is_whole and has_room_for_marks(world):
            healers.check()
            if drainers is not None:
                if _is_drawn(plan, "rolling restarts"):
                    Restarters(world).check(plan.quorum)
                if _is_drawn(plan, "other numbers of copies"):
                    Reshapers(world, healers).check(plan.quorum)
                if _is_drawn(plan, "writers that leave"):
                    Leavers(world, healers).check(plan.quorum)
                drainers.check(plan.quorum)
                Retirers(world, healers).check(plan.quorum)
        _no_refusal_without_harm(world)
        _aftermath(world, plan, promises, outcome)
        if healers is not None:
            healers.note_rounds()
    except Violation as found:
        outcome.violation, outcome.invariant = str(found), found.invariant
    except (InvariantError, AssertionError) as broken:
        outcome.violation = f"{type(broken).__name__}: {broken}"
        outcome.invariant = "assert"
        outcome.violation += _where(broken)
    except Exception as escaped:  # noqa: BLE001 - Told by the seed's number, whatever it is; a campaign goes on.
        outcome.violation, outcome.invariant = f"escaped: {type(escaped).__name__}: {escaped}", "escape"
        outcome.violation += _where(escaped)
    outcome.events, outcome.steps = world.network.delivered_bodies, world.turns.steps
    outcome.simulated_ns, outcome.digest = world.now_ns, world.trace_digest()
    outcome.faults, outcome.sometimes = world.faults_done, world.sometimes
    outcome.faults.update(_network_faults(plan))
    if any(isinstance(node, BookieNode) and node.registering.is_foreign for node in world.nodes.values()):
        outcome.sometimes["foreign disk refused"] += 1
    outcome.acked = sum(lac + 1 for lac in promises.acked.values())
    world.close()
    return outcome


def _limits(plan: Plan) -> Limits:
    """A catalog may have no room beside a reserve, and none at all; it may list few keys at once."""
    limits = DEFAULT_LIMITS
    if "metadata-full" in plan.on:
        limits = RESERVED_ROOM if plan.seed % 2 else LITTLE_ROOM
    return dataclasses.replace(limits, list_records_max=plan.page_records or limits.list_records_max)


def _no_refusal_without_harm(world: World) -> None:
    """I42: what a crash leaves of a disk that keeps its promises is never taken for damage."""
    for name, refusal in world.refused.items():
        if name not in world.nodes and name not in world.lost:
            raise Violation("I42", f"{name} refuses a disk that nobody harmed: {refusal}")


def _clients(plan: Plan) -> list[str]:
    return [step.target for step in plan.steps if not step.is_fault]


def _network_faults(plan: Plan) -> dict[str, int]:
    rates = {
        kind: getattr(plan.network, kind) for kind in ("loss", "duplication", "reordering", "corruption")
    }
    found = {kind: 1 for kind, rate in rates.items() if rate}
    if plan.drift_ppm:
        found["drift"] = 1
    return found


def _where(error: BaseException) -> str:
    """The innermost line, for the report."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    return f" ({code.co_qualname}, {code.co_filename.rpartition('/')[2]}:{trace.tb_lineno})"


def _safety(
    world: World, plan: Plan
) -> tuple[Askers | None, Repairers | None, Healers | None, Drainers | None]:
    askers = None
    if plan.members > 1:
        gets_a_leader(world)
        if plan.has_askers:
            askers = Askers(world, plan.duration_ns)
    repairers = Repairers(world, plan.duration_ns) if plan.has_repairers else None
    healers = Healers(world, plan.duration_ns) if plan.has_healers else None
    # Beside an older copy of the metadata a drain that was cancelled stands again.
    drainers = Drainers(world, plan.duration_ns) if plan.has_healers and not world.goes_back else None
    if not world.goes_back:
        begin_bounding(world, plan.duration_ns)
    begun = world.now_ns
    for step in plan.steps:
        if step.is_fault:
            world.at(begun + step.at_ns, partial(faults.begin, world, step))
        else:
            world.at(begun + step.at_ns, partial(_begin_application, world, step, plan.quorum))
    world.run_for(plan.duration_ns)
    if world.twins.any():
        world.run_for(TWINS_NS)
    return askers, repairers, healers, drainers


def _begin_application(world: World, step: Step, quorum: Quorum) -> None:
    workload.begin(world, step, quorum)


def _liveness(
    world: World, plan: Plan, promises: Promises, outcome: Outcome, drainers: Drainers | None
) -> None:
    faults.heal(world)
    if drainers is not None:
        drainers.settle()
    may_stall = _may_stall(world, plan)
    if plan.members > 1:
        ends_every_change(world)
        catches_up(world)
        if _is_drawn(plan, "keeps a leader"):
            keeps_a_leader(world)
    over = world.run_until(lambda: not world.actors.running and has_room(world), APPLICATIONS_NS)
    if not over and not may_stall:
        raise Violation(
            "L2", f"applications never end: {', '.join(actor.client for actor in world.actors.running)}"
        )
    if not may_stall:
        world.start_client("l3")
        actor = world.spawn("l3", keeps_acknowledging(world, "l3", plan.quorum, process_faults.restart))
        over = world.run_until(lambda: actor.is_over, APPLICATIONS_NS)
        if not over or actor.error is not None:
            raise Violation("L3", f"a new writer does not come to its end: {actor.error}")
        if _is_drawn(plan, "slow seat"):
            _beside_a_slow_seat(world, plan)
        if _is_drawn(plan, "power cut under a LAC"):
            _behind_a_power_cut(world, plan)
        if _is_drawn(plan, "without quorum"):
            _without_quorum(world, plan)
        if "truncates" in plan.features:
            world.start_client("l13")
            actor = world.spawn("l13", room_is_given_back(world, "l13", owners.LOG))
            if not world.run_until(lambda: actor.is_over, APPLICATIONS_NS) or actor.error is not None:
                raise Violation("L13", f"what was truncated is not deleted: {actor.error}")
    ledgers = _ledger_ids(world)
    outcome.ledgers = len(ledgers)
    refusals: list[str] = []
    for name in ("end-1", "end-2"):
        world.start_client(name)
        actor = world.spawn(name, _read_everything(world, name, ledgers, promises, refusals))
        over = world.run_until(lambda actor=actor: actor.is_over, REST_NS)  # type: ignore[misc]
        if not over:
            raise Violation("L1", f"{name} does not get to the end of ledgers {ledgers}")
        if actor.error is not None:
            raise Violation("L1", f"{name}: {actor.error}")
    outcome.refusals = len(refusals)
    if refusals and not may_stall:
        raise Violation("L1", f"after everything healed: {refusals[0]}")
    # The invariants check whether they were.
    world.run_until(lambda: _are_settled(world, promises), SETTLE_NS)
    nothing_is_held(world)
    lists_are_fresh(world)
    if _is_drawn(plan, "check of all logs"):
        logs_fit(world)
    disks_are_whole(world)
    if plan.members > 1:
        agree_at_last(world)
    if not refusals:  # Else some ledger is not closed, as so many lost disks allow.
        storages = {name: disk.storage for name, disk in world.disks.items() if disk.storage is not None}
        # A writer that nobody closed may have gone on in a next ledger since, as copies lacked.
        world.tell("at_end", storages, frozenset(ledgers))


def _applications_leave(world: World, plan: Plan) -> None:
    """What follows needs none of these clients. A client that is idle costs as much as one that works."""
    for name in [*_clients(plan), *LIVENESS_CLIENTS]:
        if name in world.nodes:
            world.crash(name)


def _is_drawn(plan: Plan, what: str) -> bool:
    """In one of four worlds: checks of a healed cluster that need little of what happened in it cost more than all
    that faults did, so that seeds which leave them out find more in the same time."""
    return random.Random(f"{what} {plan.seed}").random() >= 0.75


def _beside_a_slow_seat(world: World, plan: Plan) -> None:
    """L15."""
    world.start_client("l15")
    actor = world.spawn("l15", waits_for_no_slow_seat(world, "l15", plan.quorum))
    over = world.run_until(lambda: actor.is_over, APPLICATIONS_NS)
    if not over or actor.error is not None:
        raise Violation("L15", f"a new writer does not come to its end: {actor.error}")


def _behind_a_power_cut(world: World, plan: Plan) -> None:
    """L18."""
    world.start_client("l18")
    actor = world.spawn("l18", tells_its_last(world, "l18", plan.quorum, process_faults.restart))
    over = world.run_until(lambda: actor.is_over, APPLICATIONS_NS)
    if not over or actor.error is not None:
        raise Violation("L18", f"a writer that idles does not come to its end: {actor.error}")


def _without_quorum(world: World, plan: Plan) -> None:
    """P10.4."""
    for name in ("p10", "p10-reader"):
        world.start_client(name)
    actor = world.spawn("p10", goes_on_without_quorum(world, "p10", "p10-reader", plan.quorum))
    over = world.run_until(lambda: actor.is_over, APPLICATIONS_NS)
    if not over or actor.error is not None:
        raise Violation("P10.4", f"a writer without a quorum does not come to its end: {actor.error}")


def _aftermath(world: World, plan: Plan, promises: Promises, outcome: Outcome) -> None:
    """D13: an older copy of the metadata after everything was read; until then no node met one."""
    for name, node in world.nodes.items():
        if isinstance(node, BookieNode) and node.witnessing.is_doubted:
            raise Violation(
                "P10.5", f"{name} takes the only metadata for an older one: {node.witnessing.core.doubt}"
            )
    step = next((step for step in plan.steps if step.kind == "older-metadata"), None)
    if step is None or world.metadata_copy is None or plan.is_outside or outcome.refusals:
        return

    ledgers = _ledger_ids(world)

    def read_again() -> None:
        refusals: list[str] = []
        world.start_client("again")
        actor = world.spawn("again", _read_everything(world, "again", ledgers, promises, refusals))
        over = world.run_until(lambda: actor.is_over, REST_NS)
        if not over or actor.error is not None or refusals:
            raise Violation("I5", f"with the newest metadata again: {refusals[:1] or actor.error}")

    aftermath(world, world.metadata_copy, random.Random(step.seed), plan.quorum, read_again, promises)


def _ledger_ids(world: World) -> list[int]:
    return sorted(
        decode_ledger_metadata(value).ledger_id for value in world.committed(workload.LEDGERS_PREFIX).values()
    )


def _are_settled(world: World, promises: Promises) -> bool:
    """Whether every add of a process that still lives has ended, also of one whose application waits no longer."""
    return all(
        writing.error is not None or writing.lac + 1 >= len(promises.sent.get(writing.core.ledger_id, ()))
        for writings in world.writings.values()
        for writing in writings
    )


def _may_stall(world: World, plan: Plan) -> bool:
    """Whether so many disks are gone that a ledger cannot be closed again: then a refusal is what is promised."""
    lost = len(world.lost)
    has_spare = plan.bookies - lost >= plan.quorum.ensemble_size
    return plan.is_outside or (lost > plan.quorum.write_quorum - plan.quorum.ack_quorum and not has_spare)


def _read_everything(
    world: World, client: str, ledgers: list[int], promises: Promises, refusals: list[str]
) -> Steps:
    node = world.nodes[client]
    running = sum(1 for name in world.disks if name not in world.lost)
    yield Until(lambda: node.is_ready and len(node.bookies) >= running, 30 * SECOND)
    produced: list[tuple[bytes, bytes, int]] = []  # Log, producer, sequence.
    for ledger_id in ledgers:
        try:
            closed = yield from workload.recover(world, client, ledger_id)
            if closed is None:
                if ledger_key_path(ledger_id) in promises.deleted:
                    continue
                raise Violation("I3", f"ledger {ledger_id} is gone")
            entries = yield from workload.read_range(world, client, closed, 0, closed.last_entry)
        except (EmbedbkError, TimeoutError) as refusal:
            refusals.append(f"ledger {ledger_id}: {type(refusal).__name__}: {refusal}")
            continue
        log_id = closed.custom.get("log", b"")
        appended = [world.squeezed.get((ledger_id, entry_id), (payload,))[0] for entry_id, payload in entries]
        sequences = map(owners.sequence_of, appended if log_id else [])
        # A producer may have made its append again while this ledger was truncated: then both stand (P8.15). Within it
        # none stands twice.
        came_back = ledger_key_path(ledger_id) in promises.brought_back
        within = b"ledger %d" % ledger_id if came_back else log_id
        produced += [(within, *sequence) for sequence in sequences if sequence]
        if len(entries) != closed.last_entry + 1 or closed.last_entry < promises.acked.get(ledger_id, -1):
            raise Violation(
                "I5", f"ledger {ledger_id}: {len(entries)} entries of {closed.last_entry + 1} read"
            )
    twice = [sequence for sequence, count in Counter(produced).items() if count > 1]
    if twice:
        raise Violation("idempotence", f"logs hold appends twice: {sorted(twice)[:5]}")


# --- After a failure ---------------------------------------------------------------------------------------


def replay_line(plan: Plan, without: Sequence[int] = ()) -> str:
    """The command that shows the same failure again."""
    left_out = f" --without {','.join(map(str, without))}" if without else ""
    outside = " --outside" if plan.is_outside else ""
    return f"./run sim --first-seed {plan.seed} --seeds 1{outside}{left_out}"


def shrink(
    failed: Outcome, *, make_observers: MakeObservers = observers, seconds: float = SHRINK_S
) -> tuple[Outcome, list[int]]:
    """A run with fewer steps that breaks the same promise, and the numbers that were left out; in bounded time.

    Halves first, then smaller groups, then single steps (ddmin). The first writer may go as well.
    """
    give_up = time.monotonic() + seconds
    best, without = failed, list[int]()
    kept = [step.number for step in failed.plan.steps]
    size = max(1, len(kept) // 2)
    while size >= 1 and time.monotonic() < give_up:
        is_smaller = False
        for begin in range(0, len(kept), size):
            group = kept[begin : begin + size]
            tried = sorted([*without, *group])
            if not group or time.monotonic() > give_up:
                break
            outcome = run_plan(failed.plan.without(tried), make_observers=make_observers)
            if outcome.invariant == failed.invariant:
                best, without, is_smaller = outcome, tried, True
                kept = [number for number in kept if number not in group]
                break
        if not is_smaller:
            size //= 2
        size = min(size, max(1, len(kept)))
        if not kept:
            break
    return best, without
