"""What will happen in one run: a plan, drawn whole from the seed before anything runs.

A plan is a list of numbered steps, so that a failing run shrinks by leaving steps out (`without`): each fault brings
its own end, and no step's random numbers depend on another step being there. Swarm testing (S5): every seed switches a
random subset of the kinds of faults on, each at a rate of its own, since kinds that always act together hide each
other.

The atlas (S4) keeps a plan inside the promised fault model, per write set of every ledger:

    copies lost or made unreadable for good   < ack quorum, by choosing the victims once per run
    everything else (crash, pause, cut, delay, loss of messages, failed syncs, full disks, clocks)  without bound,
    since it all ends: safety must hold while it lasts, progress when it is over

A plan `outside` loses more disks than that; it must end in refusals, never in a ledger that is silently shorter.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Container
from dataclasses import dataclass, field

from embedbk.config import Quorum
from embedbk.metadata.quorum import Policy
from embedbk.testing.harm import HARMS, INDEX_ROT
from embedbk.testing.member_names import METADATA, member_names
from embedbk.testing.member_plan import MORE_MEMBER_KINDS, draw_more, draw_raise
from embedbk.transports.sim_faults import CALM, Faults

__all__ = ["FAULT_KINDS", "Plan", "Step", "make_plan"]

MS = 1_000_000
SECOND = 1_000 * MS

QUORUMS = [
    Quorum(3, 3, 2), Quorum(3, 3, 2), Quorum(3, 3, 2), Quorum(2, 2, 1), Quorum(3, 2, 2), Quorum(4, 3, 2),
    Quorum(5, 3, 2), Quorum(4, 2, 2), Quorum(3, 3, 3), Quorum(1, 1, 1),
]  # fmt: skip

# Kind -> the fault of TESTING.md, section 5, that it is.
FAULT_KINDS = {
    "loss": "N1", "lose-nth": "N1", "duplication": "N2", "reordering": "N3", "clog": "N4", "partition": "N5",
    "one-way": "N6", "chain": "N7", "silence": "N8", "corruption": "N9", "slow-receiver": "N10", "wipe": "N11",
    "misroute": "N12",
    "crash": "P1", "crash-loop": "P2", "power-cut": "P3", "pause": "P4", "slow": "P5", "half-dead": "P6",
    "writer-crash": "P10", "metadata-crash": "P1", "busy": "L13", "metadata-stall": "D11", "slow-seat": "P4",
    "torn": "D2", "unreadable": "D3", "sync-fails": "D8", "full": "D9", "slow-disk": "D11", "lost-disk": "D13",
    "wall": "C1", "drift": "C2", "jump": "C3", "gives-up": "P9",
    "no-room": "D9", "no-descriptors": "P7", "flush-fails": "D8",
    "rot": "D4", "misdirected": "D5", "lost-write": "D6", "stale": "D7", "file-harm": "D12", "old-copy": "D13",
    "older-metadata": "D13", "stranger": "T10",
    "older-disk": "D13", "newest-gone": "D12", "clone": "D13", "index-rot": "D4",
    "metadata-full": "D9", "snapshot-fails": "D9", "metadata-crowd": "L13", "client-crowd": "L13", "stop": "P1",
    "leader-crash": "P1", "leader-pause": "P4", "leader-stall": "D11", "member-crash": "P1", "member-pause": "P4",
    "member-slow": "P5", "member-slow-disk": "D11", "members-apart": "N7", "member-one-way": "N6",
    "member-wipe": "D13", "member-old-disk": "D13",
    **MORE_MEMBER_KINDS,
}  # fmt: skip
# Features that applications may use; each seed switches some on.
_FIRST_FEATURES = (
    "deferred", "delayed", "digests", "passwords", "custom", "producers", "conditional", "batches", "unconfirmed",
    "deletion", "repair",
)  # fmt: skip
FEATURES = (
    *_FIRST_FEATURES,
    "rolls",
    "crowds",
    "truncates",
    "failures",
    "cursors",
    "seals",
    "settings",
    "bulk",
    "arrow",
    "times",
    "splices",
    "renames",
    "records",
    "archives",
    "compressed",
    "placements",
)
# Drawn by a chance of their own, so that a plain plan (is_plain) stays what it was before they came.
LESS_KINDS = ("older-disk", "newest-gone")  # The bookie is not informed (P7.9).
LATER_KINDS = ("old-copy", *LESS_KINDS, *HARMS, INDEX_ROT)
_APART_KINDS = (
    "busy",
    "client-crowd",
    "metadata-crowd",
    "metadata-full",
    "metadata-stall",
    "snapshot-fails",
    "older-metadata",
    "slow-seat",
    "stop",
    "stranger",
    "no-room",
    "no-descriptors",
    "flush-fails",
    "clone",
    *LESS_KINDS,
    INDEX_ROT,
)
# For worlds with several metadata members.
MEMBER_KINDS = (
    "leader-crash", "leader-pause", "leader-stall", "member-crash", "member-pause", "member-slow", "member-slow-disk",
    "members-apart", "member-one-way", "member-wipe", "member-old-disk",
)  # fmt: skip
_GIVES_UP = "gives-up"
_OWN_CHANCE = (*LATER_KINDS, *_APART_KINDS, *MEMBER_KINDS, *MORE_MEMBER_KINDS, _GIVES_UP)
_HARMFUL = {
    "lost-disk",
    "wipe",
    "unreadable",
    "torn",
    "clone",
    *LATER_KINDS,
}  # Copies that do not come back: victims only.


@dataclass(frozen=True, slots=True)
class Step:
    """One thing of a plan. number: its name in `--without`."""

    number: int
    at_ns: int
    kind: str  # A kind of fault, or what an application does: "writer", "recoverer", "reader", "tail".
    target: str = ""  # A bookie, a client, a metadata member.
    other: str = ""
    for_ns: int = 0
    seed: int = 0  # The seed of its own random numbers.

    @property
    def is_fault(self) -> bool:
        return self.kind in FAULT_KINDS

    def __str__(self) -> str:
        what = " ".join(word for word in (self.kind, self.target, self.other) if word)
        lasting = f" for {self.for_ns / MS:g} ms" if self.for_ns else ""
        return f"[{self.number}] {self.at_ns / MS:g} ms: {what}{lasting}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, decided."""

    seed: int
    bookies: int
    quorum: Quorum
    is_native: bool
    network: Faults
    drift_ppm: dict[str, int]
    steps: tuple[Step, ...]
    duration_ns: int
    is_outside: bool = False
    on: tuple[str, ...] = field(default=())  # The kinds of faults that this seed switched on.
    features: tuple[str, ...] = ()  # The features that its applications use (users.py).
    has_courses: bool = False  # Clients seal, send and count in C where they can.
    devices: int = 1  # Journals and ledger directories of each bookie, where it is native.
    kept_frames: int = 0  # Frames that a handle keeps for seats that are behind; 0: as usual.
    near_clients: tuple[str, ...] = ()  # On one loop with the bookies, where they store in C what they can.
    members: int = 1  # Metadata members.
    policy: Policy = Policy.MAJORITY
    election_base_ms: int = 500
    has_askers: bool = False  # Clients that ask the metadata alone.
    first_members: int = 0  # So many of them vote from the beginning; 0: all.
    follows_measured: bool = False  # Their election base changes by what little they have measured.
    has_repairers: bool = False  # Clients that mark ledgers for repair and work marks off.
    has_healers: bool = False  # Processes that repair what is lost, as production has them.
    history_changes: int = 0  # Changes that the metadata keeps for watches that resume; 0: as usual.
    page_records: int = 0  # Keys of one page of a list of the metadata; 0: as usual.

    def without(self, numbers: Container[int]) -> Plan:
        """The same run with these steps left out."""
        kept = tuple(step for step in self.steps if step.number not in numbers)
        return dataclasses.replace(self, steps=kept)

    def calmed(self) -> Plan:
        """The same run on a network that keeps its contract, with true clocks."""
        return dataclasses.replace(self, network=CALM, drift_ppm={})


def make_plan(
    seed: int, *, is_native: bool | None = None, is_outside: bool = False, is_plain: bool = False
) -> Plan:
    """The plan of a seed. is_native None: the seed decides on which disks. is_plain: without what came later than the
    first kinds of faults, so that seeds that found something can be kept."""
    chance = random.Random(f"plan {seed}{' outside' if is_outside else ''}")
    bookies = chance.choice([3, 4, 5, 5, 6])
    quorum = chance.choice([quorum for quorum in QUORUMS if quorum.ensemble_size <= bookies])
    duration_ns = chance.choice([500, 1_000, 2_000, 4_000]) * MS
    native = chance.random() < 0.1 if is_native is None else is_native  # Harm needs bytes: see below.
    more = random.Random(f"more {seed}{' outside' if is_outside else ''}")
    features, users = _users(more, duration_ns) if not is_plain else ((), [])
    share = chance.choice([0.0, 0.2, 0.4, 0.7])
    on = tuple(kind for kind in FAULT_KINDS if kind not in _OWN_CHANCE and chance.random() < share)
    later = _later_kinds(more) if not is_plain else ()
    native = native or (is_native is None and any(kind in HARMS for kind in later))
    network = _network(chance, on)
    names = [f"b{number}" for number in range(1, bookies + 1)]
    steps = _workload(chance, duration_ns)
    clients = [step.target for step in [*steps, *users]]
    victims, faults = _faults(chance, on, duration_ns, names, clients, quorum, is_outside)
    steps += faults
    for kind in later:
        for _ in range(more.choice([1, 1, 2])):
            step = _fault(more, kind, duration_ns, names, clients, victims)
            steps += [step] if step is not None else []
    on += later
    for kind in () if is_plain else _APART_KINDS:
        if kind in (INDEX_ROT, "no-descriptors") and not native:
            continue  # There are no bytes, and no files.
        apart = _steps_apart(kind, seed, duration_ns, names, victims)
        on += (kind,) if apart else ()
        steps += apart
    steps += users
    given_up = _given_up(seed, duration_ns, users)
    on += (_GIVES_UP,) if given_up else ()
    steps += given_up
    drift = {}
    if "drift" in on:
        drift = {name: chance.randint(-300_000, 300_000) for name in [*names, METADATA, *clients]}
    quorum_of = _members(seed, duration_ns, steps, drift) if not is_plain else _QuorumPlan()
    steps += quorum_of.steps
    on += tuple(dict.fromkeys(step.kind for step in quorum_of.steps))
    numbered = tuple(
        Step(number, step.at_ns, step.kind, step.target, step.other, step.for_ns, step.seed)
        for number, step in enumerate(sorted(steps, key=lambda step: step.at_ns))
    )
    # Drawn from a generator of its own, so that nothing else of a plan changed when it came.
    devices = random.Random(f"devices {seed}").choice([1, 1, 2, 3]) if native and not is_plain else 1
    has_courses = not is_plain and random.Random(f"past the core {seed}").random() < 0.5
    near = random.Random(f"near {seed}")
    near_clients: tuple[str, ...] = ()
    if native and not is_plain and near.random() < 0.5:
        near_clients = tuple(name for name in clients if name[0] in "wuo" and near.random() < 0.7)
    has_repairers = random.Random(f"repairers of {seed}").random() < 0.25
    memory = random.Random(f"metadata memory {seed}")
    kept_frames = 0 if is_plain else random.Random(f"kept {seed}").choice([0, 0, 4, 20, 100])
    return Plan(
        seed,
        bookies,
        quorum,
        native,
        network,
        drift,
        numbered,
        duration_ns,
        is_outside,
        on,
        features,
        has_courses,
        devices,
        kept_frames,
        near_clients,
        quorum_of.members,
        quorum_of.policy,
        quorum_of.election_base_ms,
        quorum_of.has_askers,
        quorum_of.first_members,
        quorum_of.follows_measured,
        has_repairers,
        # Not beside those clients, which hold marks and places for ever.
        not (is_plain or has_repairers) and random.Random(f"healers of {seed}").random() < 0.3,
        0 if is_plain else memory.choice([0, 0, 0, 1, 10, 40]),
        0 if is_plain else memory.choice([0, 0, 0, 2, 7]),
    )


@dataclass(slots=True)
class _QuorumPlan:
    members: int = 1
    policy: Policy = Policy.MAJORITY
    election_base_ms: int = 500
    has_askers: bool = False
    steps: list[Step] = field(default_factory=list)
    first_members: int = 0
    follows_measured: bool = False


def _members(seed: int, duration_ns: int, steps: list[Step], drift: dict[str, int]) -> _QuorumPlan:
    """Draw how many metadata members there are, and their faults, from a generator of its own, so that worlds of one
    stay the same. Other faults of the metadata strike one of its members, in `steps` and `drift`."""
    chance = random.Random(f"members {seed}")
    plan = _QuorumPlan(chance.choice([1] * 8 + [3] * 7 + [5]))
    if plan.members == 1:
        return plan
    names = member_names(plan.members)
    for at, step in enumerate(steps):
        target = chance.choice(names) if step.target == METADATA else step.target
        others = [name for name in names if name != target]
        other = chance.choice(others) if step.other == METADATA else step.other
        steps[at] = dataclasses.replace(step, target=target, other=other)
    if METADATA in drift:
        del drift[METADATA]
        drift.update({name: chance.randint(-300_000, 300_000) for name in names})
    if chance.random() < 0.2:
        plan.policy = Policy.ROLLBACK_1
    share = chance.choice([0.0, 0.0, 0.2, 0.5])
    for kind in MEMBER_KINDS:
        if chance.random() < share and (kind != "member-old-disk" or plan.policy is Policy.ROLLBACK_1):
            for _ in range(chance.choice([1, 1, 2])):
                target, other = chance.sample(names, 2)
                for_ns = chance.choice([50, 300, 1_500, 2_000]) * MS
                at_ns, own = chance.randint(0, duration_ns), chance.getrandbits(31)
                plan.steps.append(Step(0, at_ns, kind, target, other, for_ns, own))
    more = draw_more(seed, plan.members, plan.policy, duration_ns)
    plan.steps += [Step(0, *each) for each in more.steps]
    plan.members, plan.first_members = more.members, more.first_members
    # Idle heartbeats at a short base cost more than what such a world is about.
    plan.election_base_ms = 500 if plan.steps else 2_000
    plan.follows_measured = random.Random(f"measured {seed}").random() < 0.3
    plan.has_askers = chance.random() < (0.6 if plan.steps else 0.1)
    plan.steps += [Step(0, *each) for each in draw_raise(seed, member_names(plan.members), duration_ns)]
    return plan


def _network(chance: random.Random, on: tuple[str, ...]) -> Faults:
    slowest = chance.choice([1, 1, 3, 20]) * MS
    return Faults(
        delay_ns_max=slowest,
        loss=chance.choice([0.002, 0.02, 0.1]) if "loss" in on else 0.0,
        duplication=chance.choice([0.02, 0.2]) if "duplication" in on else 0.0,
        reordering=chance.choice([0.02, 0.2]) if "reordering" in on else 0.0,
        corruption=chance.choice([0.001, 0.01]) if "corruption" in on else 0.0,
        late_ns_max=chance.choice([20, 200, 2_000]) * MS,
    )


def _workload(chance: random.Random, duration_ns: int) -> list[Step]:
    steps = [Step(0, 0, "writer", "w1", seed=chance.getrandbits(31))]
    for number in range(2, chance.randint(2, 4)):
        at_ns = chance.randint(duration_ns // 10, duration_ns)
        steps.append(Step(0, at_ns, "writer", f"w{number}", seed=chance.getrandbits(31)))
    for kind, letter, most in (("recoverer", "r", 3), ("reader", "q", 3), ("tail", "t", 2)):
        for number in range(1, chance.randint(0, most) + 1):
            at_ns = chance.randint(0, duration_ns)
            steps.append(Step(0, at_ns, kind, f"{letter}{number}", seed=chance.getrandbits(31)))
    return steps


def _faults(
    chance: random.Random,
    on: tuple[str, ...],
    duration_ns: int,
    bookies: list[str],
    clients: list[str],
    quorum: Quorum,
    is_outside: bool,
) -> tuple[list[str], list[Step]]:
    steps: list[Step] = []
    # The atlas: copies that do not come back are hit on these bookies only, fewer than every acknowledged
    # entry has copies. Those also stay out of a write quorum that could not do without them.
    victims = chance.sample(bookies, min(quorum.ack_quorum - 1, len(bookies)))
    if is_outside:
        victims = chance.sample(bookies, min(quorum.write_quorum, len(bookies)))
        steps += [
            Step(0, chance.randint(duration_ns // 2, duration_ns), "lost-disk", name) for name in victims
        ]
    for kind in on:
        if kind in ("loss", "duplication", "reordering", "corruption", "drift"):
            continue  # The whole run long.
        for _ in range(chance.choice([1, 1, 2, 4])):
            step = _fault(chance, kind, duration_ns, bookies, clients, victims)
            if step is not None:
                steps.append(step)
    return victims, steps


_LETTERS = {"remover": "x", "mender": "y"}  # m1 is a metadata member.


def _users(more: random.Random, duration_ns: int) -> tuple[tuple[str, ...], list[Step]]:
    """Draw the features that the applications of this seed use, and applications that use them."""
    share = more.choice([0.0, 0.0, 0.3, 0.8])  # They make a world twice as long: half of them do without.
    features = tuple(feature for feature in _FIRST_FEATURES if more.random() < share)
    if not features:
        return (), []
    if random.Random(f"rolls {features} {duration_ns}").random() < 0.5:
        features += ("rolls",)  # By a chance of its own: no other plan changed when it came.
    if random.Random(f"crowds {features} {duration_ns}").random() < 0.2:
        features += ("crowds",)
    if random.Random(f"truncates {features} {duration_ns}").random() < 0.4:
        features += ("truncates",)
    if random.Random(f"failures {features} {duration_ns}").random() < 0.4:
        features += ("failures",)
    if random.Random(f"cursors {features} {duration_ns}").random() < 0.4:
        features += ("cursors",)
    if random.Random(f"seals {features} {duration_ns}").random() < 0.15:
        features += ("seals",)
    if random.Random(f"settings {features} {duration_ns}").random() < 0.3:
        features += ("settings",)
    if random.Random(f"bulk {features} {duration_ns}").random() < 0.4:
        features += ("bulk",)
    if random.Random(f"arrow {features} {duration_ns}").random() < 0.4:
        features += ("arrow",)
    if random.Random(f"times {features} {duration_ns}").random() < 0.4:
        features += ("times",)
    if random.Random(f"splices {features} {duration_ns}").random() < 0.4:
        features += ("splices",)
    if random.Random(f"renames {features} {duration_ns}").random() < 0.4:
        features += ("renames",)
    if random.Random(f"records {features} {duration_ns}").random() < 0.4:
        features += ("records",)
    if random.Random(f"archives {features} {duration_ns}").random() < 0.3:
        features += ("archives",)
    if random.Random(f"compressed {features} {duration_ns}").random() < 0.4:
        features += ("compressed",)
    if random.Random(f"placements {features} {duration_ns}").random() < 0.3:
        features += ("placements",)
    most = {"user": 2, "owner": 2, "visitor": 2, "remover": 2, "mender": 2}
    most["remover"] *= "deletion" in features
    most["mender"] *= "repair" in features
    steps = []
    for kind, count in most.items():
        for number in range(1, more.randint(kind == "user", count) + 1 if count else 1):
            at_ns = more.randint(0, duration_ns)
            letter = _LETTERS.get(kind, kind[0])
            steps.append(Step(0, at_ns, kind, f"{letter}{number}", seed=more.getrandbits(31)))
    return features, steps


def _steps_apart(
    kind: str, seed: int, duration_ns: int, bookies: list[str], victims: list[str]
) -> list[Step]:
    """Drawn from a generator of its own, so that nothing else of a plan changed when this kind came."""
    chance = random.Random(f"{kind} {seed}")
    is_rare = kind in ("older-metadata", "clone", *LESS_KINDS)
    often = [0, 0, 0, 1, 1, 2] if kind == INDEX_ROT else [0, 0, 0, 1, 2, 6]
    count = chance.choice([0, 0, 0, 0, 0, 1] if is_rare else often)
    steps = [_fault(chance, kind, duration_ns, bookies, [], victims) for _ in range(count)]
    return [step for step in steps if step is not None]


def _given_up(seed: int, duration_ns: int, users: list[Step]) -> list[Step]:
    """Which applications interrupt their calls, and when: drawn from a generator of its own, so that nothing else of a
    plan changed when this kind came."""
    chance = random.Random(f"{_GIVES_UP} {seed}")
    steps = []
    for _ in range(chance.choice([0, 0, 0, 1, 2, 4]) if users else 0):
        user = chance.choice(users)
        at_ns = min(user.at_ns + chance.randint(0, 500) * MS, duration_ns)
        for_ns = chance.choice([50, 300, 1_500, 5_000]) * MS
        steps.append(Step(0, at_ns, _GIVES_UP, user.target, for_ns=for_ns, seed=chance.getrandbits(31)))
    return steps


def _later_kinds(more: random.Random) -> tuple[str, ...]:
    kinds = HARMS if more.random() < 0.2 else ()
    return tuple(kind for kind in ("old-copy", *kinds) if more.random() < 0.3)


def _fault(
    chance: random.Random,
    kind: str,
    duration_ns: int,
    bookies: list[str],
    clients: list[str],
    victims: list[str],
) -> Step | None:
    at_ns = chance.randint(0, duration_ns)
    for_ns = chance.choice([5, 50, 300, 1_500, 5_000]) * MS
    seed = chance.getrandbits(31)
    bookie = chance.choice(bookies)
    anybody = chance.choice([*bookies, *clients, METADATA])
    other = chance.choice([*bookies, METADATA])
    match kind:
        case _ if kind in _HARMFUL:
            if not victims:
                return None
            if kind == "clone" and chance.random() < 0.7:
                at_ns = duration_ns - MS  # After the others: no other step stops or starts it meanwhile.
            if kind in LATER_KINDS:
                for_ns = min(for_ns, 300 * MS)  # Before everything heals.
            return Step(0, at_ns, kind, chance.choice(victims), for_ns=for_ns, seed=seed)
        case (
            "crash"
            | "crash-loop"
            | "sync-fails"
            | "full"
            | "no-room"
            | "no-descriptors"
            | "flush-fails"
            | "busy"
            | "slow-seat"
            | "stop"
            | "slow-disk"
            | "half-dead"
        ):
            return Step(0, at_ns, kind, bookie, for_ns=for_ns, seed=seed)
        case (
            "metadata-stall"
            | "metadata-full"
            | "metadata-crowd"
            | "client-crowd"
            | "older-metadata"
            | "stranger"
        ):
            return Step(0, at_ns, kind, for_ns=for_ns, seed=seed)
        case "snapshot-fails":
            return Step(0, at_ns, kind, METADATA, for_ns=for_ns, seed=seed)
        case "power-cut" | "metadata-crash":
            return Step(0, at_ns, kind, for_ns=min(for_ns, 1_500 * MS), seed=seed)
        case "writer-crash":
            writers = [name for name in clients if name[0] in "wuo"]
            return Step(0, at_ns, kind, chance.choice(writers), seed=seed)
        case "pause" | "slow" | "silence" | "jump":
            return Step(0, at_ns, kind, anybody, for_ns=for_ns, seed=seed)
        case "lose-nth" | "misroute" | "slow-receiver" | "chain" | "wall":
            return Step(0, at_ns, kind, bookie, for_ns=for_ns, seed=seed)
        case _:  # Between two: clog, partition, one-way.
            if anybody == other:
                return None
            return Step(0, at_ns, kind, anybody, other, for_ns, seed)
