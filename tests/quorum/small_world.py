"""Small quorums of the production core, explored to the last state: elections and replications are single steps.

Between two steps nothing is on its way: what a step sends beyond those that it reaches is lost, and every link is
cut and made anew. So a state is what disks hold and what each process knows, a step is one of

    elect M, R      the patience of M and R ends, M stands, and they speak until nobody has anything to say
    add M, R        M, which leads, takes one more entry and speaks with R
    speak M, R      M, which leads, speaks with R
    quit M          M, which leads, notices that it hears nobody
    crash M         the process of M ends and another begins on the same disk
    forget M        the same, on an older state of its disk: any that it ever had

and every order of them is walked, breadth first, so that the first broken promise has the shortest story. Two states
count as one when disks, roles, commit indexes and what leaders know of others are alike; clocks do not count.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, permutations

from embedbk.metadata.quorum import Configuration, MemberId, Policy
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import (
    Boot,
    Durable,
    Entry,
    Event,
    PeerLost,
    Persist,
    Propose,
    Received,
    Send,
    Tick,
)

__all__ = ["Bounds", "Explored", "explore"]

BASE_MS = 1_000
BASE_NS = BASE_MS * 1_000_000
NAMES = "abcde"
TURNS_MAX = 400


@dataclass(frozen=True)
class Bounds:
    voters: int
    policy: Policy
    terms: int
    entries: int
    crashes: int = 0
    forgets: int = 0
    states: int = 1_000_000


@dataclass(frozen=True)
class Image:
    """What a disk holds."""

    term: int = 0
    vote: Boot | None = None
    entries: tuple[Entry, ...] = ()

    def after(self, record: Persist) -> Image:
        return Image(record.term, record.vote, (*self.entries[: record.keep_index], *record.entries))


class Even:
    """No chance: who stands is a step of the world."""

    def random(self) -> float:
        return 0.0


@dataclass
class State:
    rafts: dict[MemberId, Raft] = field(default_factory=dict)
    boots: dict[MemberId, Boot] = field(default_factory=dict)
    clocks: dict[MemberId, int] = field(default_factory=dict)
    disks: dict[MemberId, Image] = field(default_factory=dict)
    pasts: dict[MemberId, tuple[Image, ...]] = field(default_factory=dict)  # What each disk ever held.
    committed: tuple[int, ...] = ()  # The term of each committed entry, as some leader once had it.
    leaders: dict[int, Boot] = field(default_factory=dict)
    broken: str = ""
    added: int = 0
    crashes: int = 0
    forgets: int = 0
    starts: int = 0

    def copied(self) -> State:
        after = copy.copy(self)
        for name in ("rafts", "boots", "clocks", "disks", "pasts", "leaders"):
            setattr(after, name, dict(getattr(self, name)))
        return after

    def key(self, bounds: Bounds) -> tuple[object, ...]:
        """Alike for states that differ in the names of members alone: of all orders of the members the least key."""
        return min(self._key(bounds, order) for order in permutations(self.rafts))

    def _key(self, bounds: Bounds, order: tuple[MemberId, ...]) -> tuple[object, ...]:
        numbers: dict[bytes, int] = {}
        place = {member: number for number, member in enumerate(order)}

        def number(boot: Boot | None) -> tuple[int, ...]:
            return () if boot is None else (place[boot.member], numbers.setdefault(boot.nonce, len(numbers)))

        def shown(disk: Image) -> tuple[object, ...]:
            return disk.term, number(disk.vote), tuple(entry.term for entry in disk.entries)

        members = [
            (
                number(self.boots[member]),
                raft.role.value,
                -1 if raft.leader is None else place[raft.leader],
                raft.commit_index,
                shown(self.disks[member]),
                tuple(map(shown, self.pasts[member])) if self.forgets < bounds.forgets else (),
                known_of(raft, order),
            )
            for member, raft in ((member, self.rafts[member]) for member in order)
        ]
        leaders = tuple((term, number(boot)) for term, boot in sorted(self.leaders.items()))
        return tuple(members), self.committed, leaders, self.added, self.crashes, self.forgets


def known_of(raft: Raft, order: tuple[MemberId, ...]) -> tuple[tuple[int, int], ...]:
    """What a leader counts on."""
    leading = raft._leading
    if leading is None:
        return ()
    known = [leading.progress.get(member) for member in order]
    return tuple((-1, -1) if each is None else (each.match_index, each.known_index) for each in known)


@dataclass
class Explored:
    states: int
    depth: int
    broken: str = ""
    story: tuple[str, ...] = ()
    is_whole: bool = True


def explore(bounds: Bounds) -> Explored:
    first = begin(bounds)
    seen = {first.key(bounds)}
    queue: deque[tuple[State, tuple[str, ...]]] = deque([(first, ())])
    depth = 0
    while queue:
        state, story = queue.popleft()
        for name, after in steps(state, bounds):
            told = (*story, name)
            if after.broken:
                return Explored(len(seen), len(told), after.broken, told)
            key = after.key(bounds)
            if key in seen:
                continue
            seen.add(key)
            depth = max(depth, len(told))
            if len(seen) >= bounds.states:
                return Explored(len(seen), depth, is_whole=False)
            queue.append((after, told))
    return Explored(len(seen), depth)


def begin(bounds: Bounds) -> State:
    members = tuple(MemberId(name, b"") for name in NAMES[: bounds.voters])
    state = State()
    configuration = Configuration(
        members, policy=bounds.policy, outgoing_policy=bounds.policy, election_base_ms=BASE_MS
    )
    for member in members:
        state.disks[member], state.pasts[member], state.clocks[member] = Image(), (Image(),), 0
        start(state, member, configuration)
    return state


def start(state: State, member: MemberId, configuration: Configuration) -> None:
    disk = state.disks[member]
    state.starts += 1
    boot = Boot(member, state.starts.to_bytes(2, "big"))
    log = RaftLog(configuration, entries=disk.entries)
    now_ns = state.clocks[member]
    state.boots[member] = boot
    state.rafts[member] = Raft(boot, log, term=disk.term, vote=disk.vote, now_ns=now_ns, chance=Even())


def steps(state: State, bounds: Bounds) -> Iterator[tuple[str, State]]:
    for member, raft in state.rafts.items():
        others = [other for other in state.rafts if other != member]
        for reached in (some for size in range(len(others) + 1) for some in combinations(others, size)):
            names = "".join(other.name for other in reached)
            if raft.role is not Role.LEADER:
                if reached and raft.term < bounds.terms:
                    yield f"elect {member.name} by {names}", elect(state, member, reached)
                continue
            if state.added < bounds.entries:
                yield f"add at {member.name} and {names or 'nobody'}", lead(state, member, reached, adds=True)
            if reached:
                yield f"{member.name} speaks with {names}", lead(state, member, reached, adds=False)
        if raft.role is Role.LEADER:
            yield f"{member.name} quits", elect(state, member, ())
        if state.crashes < bounds.crashes:
            after = restart(state, member, state.disks[member])
            after.crashes += 1
            yield f"{member.name} crashes", after
        if state.forgets < bounds.forgets:
            for past in state.pasts[member]:
                if past != state.disks[member]:
                    after = restart(state, member, past)
                    after.forgets += 1
                    yield (
                        f"{member.name} forgets all but {len(past.entries)} entries, term {past.term}",
                        after,
                    )


def restart(state: State, member: MemberId, disk: Image) -> State:
    after = state.copied()
    lost = after.boots[member]
    after.disks[member] = disk
    start(after, member, after.rafts[member].configuration)
    for other in after.rafts:
        if other != member:
            after.rafts[other] = copy.deepcopy(state.rafts[other])
            step(after, other, PeerLost(after.clocks[other], lost), deque())
    return after


def elect(state: State, member: MemberId, reached: tuple[MemberId, ...]) -> State:
    """Nobody of them heard a leader for long; whoever leads among them still does, as far as it knows."""
    after = entered(state, (member, *reached))
    for each in (member, *reached):
        if each == member or after.rafts[each].role is not Role.LEADER:
            after.clocks[each] += 3 * BASE_NS
    return speak(after, member, reached, [Tick(after.clocks[member])])


def lead(state: State, member: MemberId, reached: tuple[MemberId, ...], *, adds: bool) -> State:
    after = entered(state, (member, *reached))
    after.clocks[member] = max(after.clocks[member], after.rafts[member].deadline_ns or 0)
    events: list[Event] = [Tick(after.clocks[member])]
    if adds:
        after.added += 1
        events.append(Propose(after.clocks[member], 0, (b"x",)))
    return speak(after, member, reached, events)


def entered(state: State, inside: tuple[MemberId, ...]) -> State:
    after = state.copied()
    for each in inside:
        after.rafts[each] = copy.deepcopy(state.rafts[each])
    return after


def speak(after: State, member: MemberId, reached: tuple[MemberId, ...], events: list[Event]) -> State:
    messages: deque[Send] = deque()
    for event in events:
        step(after, member, event, messages)
    for _ in range(TURNS_MAX):
        if not messages or after.broken:
            return after
        message = messages.popleft().message
        if message.receiver == member or message.receiver in reached:
            step(after, message.receiver, Received(after.clocks[message.receiver], message), messages)
    raise AssertionError("they speak for ever")


def step(state: State, member: MemberId, event: Event, messages: deque[Send]) -> None:
    raft = state.rafts[member]
    events: deque[Event] = deque([event])
    while events:
        for effect in raft.step(events.popleft()):
            if isinstance(effect, Persist):
                disk = state.disks[member] = state.disks[member].after(effect)
                if disk not in state.pasts[member]:
                    state.pasts[member] = (*state.pasts[member], disk)
                events.append(Durable(event.now_ns, effect.sequence))
            elif isinstance(effect, Send):
                messages.append(effect)
    if raft.role is Role.LEADER:
        look(state, raft, state.boots[member])


def look(state: State, raft: Raft, boot: Boot) -> None:
    """A leader at every moment: I60, I65, I66."""
    terms = tuple(entry.term for entry in raft.log.between(1, raft.log.last_index))
    if state.leaders.setdefault(raft.term, boot) != boot:
        state.broken = f"I60: {state.leaders[raft.term]} and {boot} both lead term {raft.term}"
    elif raft.term == max(state.leaders) and terms[: len(state.committed)] != state.committed:
        state.broken = f"I66: {boot} leads with terms {terms}, committed are {state.committed}"
    known = terms[: raft.commit_index]
    shorter = min(len(known), len(state.committed))
    if known[:shorter] != state.committed[:shorter]:
        state.broken = f"I65: {boot} commits {known}, committed are {state.committed}"
    if len(known) > len(state.committed):
        state.committed = known
