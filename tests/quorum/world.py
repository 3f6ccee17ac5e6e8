"""A quorum in one process: members on disks that forget what was not synced, a network that loses and reorders.

Everything is drawn from one seed. What must hold is looked at after every step (`Judge`), against what *all* members
ever had on their disks and ever applied, which no member knows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from embedbk.codec.messages import decode_message
from embedbk.metadata.basing import BASE_RULES
from embedbk.metadata.quorum import Configuration, MemberId, Policy
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_messages import MemberMessage, checked, encode_member_message
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import (
    Apply,
    Boot,
    ChangeEnded,
    ChangeRequested,
    Doubt,
    Durable,
    Effect,
    Entry,
    Event,
    FetchSnapshot,
    InstallSnapshot,
    LeaderChanged,
    LearnersRequested,
    Message,
    NoticeDamaged,
    PeerLost,
    Persist,
    Propose,
    Proposed,
    ReadReady,
    ReadRequested,
    Received,
    Refused,
    Send,
    SnapshotFetched,
    SnapshotGivenUp,
    SnapshotInstalled,
    SnapshotSaved,
    Tick,
    TransferRequested,
)

MS = 1_000_000


@dataclass
class Snapshot:
    """The state after entry `index`: what was applied, in order."""

    index: int
    term: int
    configuration: Configuration
    state: tuple[bytes, ...]


@dataclass
class Image:
    """What a disk holds."""

    snapshot: Snapshot
    term: int = 0
    vote: Boot | None = None
    entries: list[Entry] = field(default_factory=list)

    def copy(self) -> Image:
        return Image(self.snapshot, self.term, self.vote, list(self.entries))

    def write(self, record: Persist | tuple[Snapshot, bool]) -> None:
        if isinstance(record, Persist):
            self.term, self.vote = record.term, record.vote
            del self.entries[max(0, record.keep_index - self.snapshot.index) :]
            self.entries.extend(entry for entry in record.entries if entry.index > self.snapshot.index)
        else:
            snapshot, keeps = record
            gone = snapshot.index - self.snapshot.index
            self.entries = self.entries[gone:] if keeps else []
            self.snapshot = snapshot

    def holds(self, entry: Entry) -> bool:
        """That very entry, or a snapshot that stands for it."""
        place = entry.index - self.snapshot.index - 1
        return place < 0 or (place < len(self.entries) and self.entries[place] == entry)


class Member:
    """One directory, and the process on it while there is one."""

    def __init__(self, world: World, member: MemberId, image: Image) -> None:
        self.world = world
        self.member = member
        self.disk = image
        self.unsynced: list[Persist | tuple[Snapshot, bool]] = []
        self.raft: Raft | None = None
        self.state: list[bytes] = []
        self.fetched: dict[int, Snapshot] = {}
        self.sync_ms = 1.0
        self.sync_due_ms: float | None = None
        self.paused_until_ms = 0.0
        self.reads: dict[int, int] = {}  # Token: how much was acknowledged when it was asked.
        self.ready: list[ReadReady] = []

    def start(self, doubt: Doubt | None = None) -> None:
        image, world = self.disk, self.world
        log = RaftLog(
            image.snapshot.configuration,
            snapshot_index=image.snapshot.index,
            snapshot_term=image.snapshot.term,
            configuration_index=image.snapshot.index,
            entries=image.entries,
        )
        boot = Boot(self.member, world.chance.randbytes(8))
        self.raft = Raft(
            boot,
            log,
            term=image.term,
            vote=image.vote,
            now_ns=world.now_ns,
            chance=random.Random(world.chance.getrandbits(32)),
            doubt=doubt,
            base_rules=world.base_rules,
        )
        self.boot = boot
        self.state = list(image.snapshot.state)
        self.fetched = {image.snapshot.index: image.snapshot}
        self.reads, self.ready = {}, []

    def crash(self) -> None:
        """Some of what was not synced is on the disk all the same; never something behind what is not."""
        for record in self.unsynced[: self.world.chance.randrange(len(self.unsynced) + 1)]:
            self.disk.write(record)
        self.unsynced, self.sync_due_ms, self.raft = [], None, None

    def step(self, event: Event) -> None:
        if self.raft is None:
            return
        effects = self.raft.step(event)
        self.world.judge.look(self, event, effects)
        for effect in effects:
            self._do(effect)
        self._answer_reads()

    def _do(self, effect: Effect) -> None:
        world = self.world
        match effect:
            case Persist():
                self._write(effect)
            case Send(message):
                world.carry(message)
            case Apply(entries):
                for entry in entries:
                    world.judge.applied(self, entry)
                    if isinstance(entry.body, bytes):
                        self.state.append(entry.body)
            case Proposed(token, first, term):
                world.judge.proposed[token] = (first, term, self.boot)
            case ReadReady():
                self.ready.append(effect)
            case FetchSnapshot(source, index, _):
                world.fetch(self, source, index)
            case InstallSnapshot(index, _, keeps):
                snapshot = self.fetched[index]
                self._write((snapshot, keeps))
                world.later(0.5, lambda: self._install(snapshot))
            case ChangeEnded(_, refusal):
                world.changes.append(refusal)
            case NoticeDamaged():
                world.met["damage noticed"] = True
            case Refused() | LeaderChanged():
                pass

    def _write(self, record: Persist | tuple[Snapshot, bool]) -> None:
        self.unsynced.append(record)
        if self.sync_due_ms is None:
            self.sync_due_ms = self.world.now_ms + self.sync_ms * self.world.chance.uniform(0.5, 2)

    def _install(self, snapshot: Snapshot) -> None:
        if self.raft is not None and self.raft.applied_index < snapshot.index <= self.raft.commit_index:
            self.state = list(snapshot.state)
            self.step(SnapshotInstalled(self.world.now_ns, snapshot.index))

    def sync(self) -> None:
        """Everything that was written when it began: here, all that is written."""
        records, self.unsynced, self.sync_due_ms = self.unsynced, [], None
        for record in records:
            self.disk.write(record)
        sequences = [record.sequence for record in records if isinstance(record, Persist)]
        if sequences:
            self.step(Durable(self.world.now_ns, sequences[-1]))

    def save_snapshot(self) -> None:
        """At once and durable, of what is applied; as many entries before it stay as chance has it."""
        raft = self.raft
        if raft is None or raft.applied_index <= self.disk.snapshot.index or self.unsynced:
            return
        index = raft.applied_index
        term = raft.log.term_at(index)
        assert term is not None
        configuration = raft.log.configuration_at(index)
        snapshot = Snapshot(index, term, configuration, tuple(self.state))
        self.disk.write((snapshot, True))
        self.fetched = {index: snapshot}
        first = self.world.chance.randint(raft.log.first_index, index + 1)
        self.step(SnapshotSaved(self.world.now_ns, index, first))

    def _answer_reads(self) -> None:
        if self.raft is None:
            return
        for ready in [ready for ready in self.ready if ready.index <= self.raft.applied_index]:
            self.ready.remove(ready)
            for token in ready.tokens:
                self.world.judge.read(self, self.reads.pop(token))


class Judge:
    """What must hold, by what really happened."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.committed: list[Entry] = []  # By index, from 1.
        self.leaders: dict[int, Boot] = {}
        self.votes: dict[tuple[MemberId, int], Boot] = {}
        self.commit_of: dict[Boot, int] = {}
        self.proposed: dict[int, tuple[int, int, Boot]] = {}  # Token: (index, term, by whom).
        self.bodies: dict[int, bytes] = {}
        self.known_addresses: set[MemberId] = set()  # Of those that a committed configuration knew ever.
        self.acknowledged: list[int] = []  # Tokens, in the order in which they were.

    def look(self, member: Member, event: Event, effects: list[Effect]) -> None:
        raft = member.raft
        assert raft is not None
        self._one_leader(member, raft)
        self._one_vote(member, effects)
        before = self.commit_of.get(member.boot, 0)
        assert raft.commit_index >= before, "I71: the commit index fell"
        if raft.role is Role.LEADER and raft.commit_index > before:
            self._is_on_a_quorum(raft, before + 1)
        self.commit_of[member.boot] = raft.commit_index

    def _one_leader(self, member: Member, raft: Raft) -> None:
        if raft.role is not Role.LEADER or member.disk.term < raft.term:
            return  # Alone it leads at once, and nobody hears of it before its disk has the term.
        is_new = raft.term not in self.leaders
        assert self.leaders.setdefault(raft.term, member.boot) == member.boot, "I60: two leaders in one term"
        if is_new:
            for entry in self.committed:
                own = raft.log.term_at(entry.index)
                assert own is None or own == entry.term, f"I66: the new leader lacks {entry}"
            assert raft.log.last_index >= len(self.committed), "I66: the new leader's log is too short"

    def _one_vote(self, member: Member, effects: list[Effect]) -> None:
        disk = member.disk
        if disk.vote is not None and member.member not in self.world.forgetful:
            key = (member.member, disk.term)
            assert self.votes.setdefault(key, disk.vote) == disk.vote, "I61: a second vote in one term"
        for effect in effects:
            if isinstance(effect, Send):
                assert effect.message.term <= disk.term, "I62: a message of a term that its disk may forget"

    def _is_on_a_quorum(self, raft: Raft, first: int) -> None:
        """I68, I69: looked at on the disks themselves."""
        for index in range(max(first, raft.log.first_index), raft.commit_index + 1):
            entry = raft.log.between(index, index)[0]
            holders = {m.member for m in self.world.members.values() if m.disk.holds(entry)}
            forgot = len(self.world.forgetful)
            for voters, sizes in raft.configuration.halves():
                held = sum(voter in holders for voter in voters)
                assert held + forgot >= sizes.commit, f"I68: {entry} is committed on {held} disks"

    def applied(self, member: Member, entry: Entry) -> None:
        place = entry.index - 1
        assert place <= len(self.committed), "I72: applied with a gap"
        if place == len(self.committed):
            self.committed.append(entry)
            if isinstance(
                entry.body, Configuration
            ):  # In their order; who comes back applies them once more.
                self._keeps_addresses(entry.body)
        assert self.committed[place] == entry, (
            f"I65: {entry} was applied where others have {self.committed[place]}"
        )
        assert member.disk.holds(entry), "I72: a state runs ahead of its own log"
        assert member.raft is not None
        if member.raft.role is Role.LEADER:
            self._acknowledge(member, entry)

    def _keeps_addresses(self, configuration: Configuration) -> None:
        known, members = dict(configuration.addresses).keys(), set(configuration.members)
        assert known <= members, "whoever left, left its address"
        assert self.known_addresses & members <= known, "a change forgot an address"
        assert set(configuration.learners) <= known, "a learner came without its address"
        self.known_addresses |= known

    def _acknowledge(self, member: Member, entry: Entry) -> None:
        """The process that proposed it answers whoever asked for it."""
        for token in [
            t for t, where in self.proposed.items() if where == (entry.index, entry.term, member.boot)
        ]:
            assert entry.body == self.bodies[token]
            del self.proposed[token]
            self.acknowledged.append(token)

    def read(self, member: Member, acknowledged: int) -> None:
        """I75: what was acknowledged before the read was asked is in the state that answers it."""
        there = set(member.state)
        for token in self.acknowledged[:acknowledged]:
            assert self.bodies[token] in there, "I75: a read does not show what was acknowledged before it"
        self.world.reads_answered += 1

    def end(self) -> None:
        there = {entry.body for entry in self.committed}
        for token in self.acknowledged:
            assert self.bodies[token] in there


def over_a_link(message: Message) -> Message:
    """What a member sends has bytes, and its receiver believes them."""
    control = decode_message(b"".join(encode_member_message(message))).control
    assert isinstance(control, MemberMessage)
    return checked(control)


def address_of(member: MemberId) -> tuple[str, ...]:
    return (f"sim://{member.name}",)


class World:
    """Virtual milliseconds; the next thing that is due happens next."""

    def __init__(
        self, seed: int, names: str = "abc", policy: Policy = Policy.MAJORITY, base_ms: int = 500
    ) -> None:
        self.chance = random.Random(seed)
        self.base_rules = BASE_RULES  # Of members that start from now on.
        self.now_ms = 0.0
        self.judge = Judge(self)
        self.members: dict[MemberId, Member] = {}
        self.forgetful: dict[MemberId, None] = {}
        self.changes: list[str] = []
        self.reads_answered = 0
        self.met: dict[str, bool] = {}
        self.loss = 0.0
        self.doubling = 0.0
        self.delay_ms = (0.1, 2.0)
        self._cut: dict[tuple[str, str], None] = {}  # (from, to) of directions that are down.
        self._agenda: list[tuple[float, int, object]] = []
        self._count = 0
        self._tokens = 0
        voters = tuple(MemberId(name, self.chance.randbytes(16)) for name in names)
        configuration = Configuration(voters, policy=policy, outgoing_policy=policy, election_base_ms=base_ms)
        genesis = Snapshot(0, 0, configuration, ())
        for voter in voters:
            self.members[voter] = Member(self, voter, Image(genesis))
            self.members[voter].start()

    @property
    def now_ns(self) -> int:
        return int(self.now_ms * MS)

    # --- The network -------------------------------------------------------------------------------------

    def carry(self, message: Message) -> None:
        if (
            message.sender.member.name,
            message.receiver.name,
        ) in self._cut or self.chance.random() < self.loss:
            return
        message = over_a_link(message)
        for _ in range(2 if self.chance.random() < self.doubling else 1):
            self.later(self.chance.uniform(*self.delay_ms), lambda: self._deliver(message))

    def _deliver(self, message: Message) -> None:
        for member in self.members.values():
            if member.member.name == message.receiver.name and member.raft is not None:
                if member.paused_until_ms > self.now_ms:
                    self.later(member.paused_until_ms - self.now_ms + 0.1, lambda: self._deliver(message))
                    return
                member.step(Received(self.now_ns, message))

    def fetch(self, member: Member, source: Boot, index: int) -> None:
        boot = member.boot

        def arrive() -> None:
            holder = self.members.get(source.member)
            if member.raft is None or member.boot != boot:
                return
            snapshot = holder.fetched.get(index) if holder is not None and holder.raft is not None else None
            if snapshot is None:
                member.step(SnapshotGivenUp(self.now_ns))
                return
            member.fetched[index] = snapshot
            member.step(SnapshotFetched(self.now_ns, index, snapshot.term, snapshot.configuration))

        self.later(self.chance.uniform(1, 2000), arrive)

    def cut(self, one: str, other: str, *, both: bool = True) -> None:
        self._cut[one, other] = None
        if both:
            self._cut[other, one] = None

    def heal(self) -> None:
        self._cut.clear()

    # --- Time --------------------------------------------------------------------------------------------

    def later(self, after_ms: float, act: object) -> None:
        self._count += 1
        self._agenda.append((self.now_ms + after_ms, self._count, act))

    def _due(self) -> Iterator[tuple[float, int, object]]:
        yield from self._agenda
        for member in self.members.values():
            if member.raft is None:
                continue
            if member.sync_due_ms is not None:
                yield max(member.sync_due_ms, member.paused_until_ms), -1, member.sync
            if (deadline_ns := member.raft.deadline_ns) is not None:
                yield max(self.now_ms, deadline_ns / MS + 0.001, member.paused_until_ms), 0, member

    def run(self, for_ms: float) -> None:
        end_ms = self.now_ms + for_ms
        while True:
            due = min(self._due(), key=lambda each: each[:2], default=None)
            if due is None or due[0] > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, due[0])
            if due in self._agenda:
                self._agenda.remove(due)
            act = due[2]
            if isinstance(act, Member):
                act.step(Tick(self.now_ns))
            else:
                act()  # type: ignore[operator]

    # --- What users and operators do -----------------------------------------------------------------------

    def leader(self) -> Member | None:
        """Of the newest term, if its process lives."""
        leaders = [m for m in self.members.values() if m.raft is not None and m.raft.role is Role.LEADER]
        return max(leaders, key=lambda m: m.raft.term if m.raft is not None else 0, default=None)

    def all_leaders(self) -> list[Member]:
        return [m for m in self.members.values() if m.raft is not None and m.raft.role is Role.LEADER]

    def token(self) -> int:
        self._tokens += 1
        return self._tokens

    def propose(self, to: Member | None = None) -> int:
        to = to or self.leader()
        token = self.token()
        if to is not None:
            body = f"{token}".encode()
            self.judge.bodies[token] = body
            to.step(Propose(self.now_ns, token, (body,)))
        return token

    def read(self, to: Member | None = None) -> None:
        to = to or self.leader()
        if to is not None:
            token = self.token()
            to.reads[token] = len(self.judge.acknowledged)
            to.step(ReadRequested(self.now_ns, (token,)))

    def crash(self, member: Member) -> None:
        boot = member.boot
        member.crash()
        for other in self.members.values():
            if other is not member and self.chance.random() < 0.5:
                other.step(PeerLost(self.now_ns, boot))

    def pause(self, member: Member, for_ms: float) -> None:
        member.paused_until_ms = self.now_ms + for_ms

    def wipe(self, member: Member) -> Member:
        """Its directory is emptied: who starts there is another member of the same name, with nothing and no vote."""
        if member.raft is not None:
            self.crash(member)
        del self.members[member.member]
        own = MemberId(member.member.name, self.chance.randbytes(16))
        # It learns of the database from the others, and stands in no configuration yet.
        known = next(iter(self.members.values())).disk.snapshot.configuration
        fresh = Member(self, own, Image(Snapshot(0, 0, known, ())))
        self.members[own] = fresh
        return fresh

    def roll_back(self, member: Member, image: Image) -> None:
        """Its directory is put back from an older copy, identity and all: it forgot, and does not know."""
        if member.raft is not None:
            self.crash(member)
        member.disk = image.copy()
        self.forgetful[member.member] = None

    def admit(self, *members: Member) -> None:
        leader = self.leader()
        if leader is not None and leader.raft is not None:
            raft = leader.raft
            wanted = tuple(member.member for member in members)
            told = tuple((member, address_of(member)) for member in wanted)
            leader.step(
                LearnersRequested(self.now_ns, self.token(), raft.log.configuration_index, wanted, told)
            )

    def change(
        self,
        *voters: Member,
        policy: Policy | None = None,
        allows_even: bool = False,
        accepts_risk: bool = True,
    ) -> None:
        leader = self.leader()
        if leader is not None and leader.raft is not None:
            raft = leader.raft
            leader.step(
                ChangeRequested(
                    self.now_ns,
                    self.token(),
                    raft.log.configuration_index,
                    tuple(voter.member for voter in voters),
                    policy or raft.configuration.policy,
                    allows_even,
                    accepts_risk=accepts_risk,
                )
            )

    def transfer(self, to: Member) -> None:
        leader = self.leader()
        if leader is not None:
            leader.step(TransferRequested(self.now_ns, to.member))

    def named(self, name: str) -> Member:
        return next(member for member in self.members.values() if member.member.name == name)
