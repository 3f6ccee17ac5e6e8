"""Small quorums of the production core with free messages: each one that was ever sent may arrive at any time, never,
or again and again, in any order (RAFT.md, section 10).

Nothing that was sent goes away, so "lost" is a message that is not taken, "doubled" one that is taken twice, and a
state is the members beside the *set* of messages so far, without those of which nothing can come any more. A step is

    M takes X       any message to M that was ever sent
    M stands        its patience ends, and it asks for votes
    M beats         M, which leads, sends heartbeats
    M adds          M, which leads, takes one more entry
    M syncs         what M wrote is durable, if that is a step of its own
    M crashes       and starts with what is durable, and any part of the rest that was written first

walked breadth first. Any time may pass between two steps, so clocks do not count: whoever is asked for a vote has not
heard a leader for long, and a leader's own patience does not end (one that crashes stands for it).

What one member makes of one event depends on that member alone. So members are kept once each, by their bytes, with
what each event makes of them; a state is a few numbers, and is remembered by a digest of 64 bits: 10 million of them
take 256 MiB, what is still to be looked at some 60 bytes a state, and two that fall together hide one of them once in
about 300,000 such explorations.
"""

from __future__ import annotations

import pickle
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from embedbk.errors import InvariantError
from embedbk.metadata.quorum import Configuration, MemberId, Policy
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import (
    AppendReply,
    Boot,
    Durable,
    Event,
    HeartbeatReply,
    Message,
    Persist,
    PreVoteReply,
    Propose,
    Received,
    Send,
    Tick,
    VoteReply,
)
from tests.quorum.small_world import NAMES, Even, Image

__all__ = ["Free", "FreeBounds", "explore"]

BASE_MS = 1_000
BASE_NS = BASE_MS * 1_000_000
NOW_NS = 100 * BASE_NS  # Always.
LONG_AGO_NS = NOW_NS - 2 * BASE_NS
MESSAGES_MAX = 1 << 16
FIRST_TO_STAND = 0  # Members differ in their names alone, so it is always the same who stands first.


@dataclass(frozen=True)
class FreeBounds:
    voters: int
    policy: Policy
    terms: int
    entries: int
    crashes: int = 0
    beats: int = 0
    syncs_apart: bool = False
    states: int = 10_000_000


@dataclass
class Free:
    """What was found. is_whole: the last state was reached."""

    states: int
    depth: int
    broken: str = ""
    story: tuple[str, ...] = ()
    is_whole: bool = True


@dataclass
class Local:
    """One member: its process and its disk."""

    raft: Raft
    boot: Boot
    starts: int
    disk: Image = field(default_factory=Image)
    pending: tuple[Persist, ...] = ()


@dataclass(frozen=True)
class Shown:
    """What of a member counts for everybody, and for which steps it can take."""

    is_leader: bool
    term: int
    boot: Boot
    terms: tuple[int, ...]  # Of its entries.
    commit_index: int
    pending: int
    durable_term: int


Made = tuple[int, int, str]  # The member afterwards, the messages that it sent, what broke.


class Digests:
    """A set of numbers of 64 bits, 8 bytes each and at most half full."""

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 << 16))
        self.count = 0

    def add(self, number: int) -> bool:
        """False: it is there."""
        number = number & 0xFFFFFFFFFFFFFFFF or 1
        slots = self._slots
        place, last = number % len(slots), len(slots) - 1
        while found := slots[place]:
            if found == number:
                return False
            place = place + 1 if place < last else 0
        slots[place] = number
        self.count += 1
        if 2 * self.count > len(slots):
            self._grow()
        return True

    def _grow(self) -> None:
        old, self._slots = self._slots, array("Q", bytes(16 * len(self._slots)))
        self.count = 0
        for number in old:
            if number:
                self.add(number)


class Members:
    """Every member that was met, once, and what each event makes of it."""

    def __init__(self, bounds: FreeBounds) -> None:
        self.bounds = bounds
        self.names = tuple(MemberId(name, b"") for name in NAMES[: bounds.voters])
        self.configuration = Configuration(
            self.names, policy=bounds.policy, outgoing_policy=bounds.policy, election_base_ms=BASE_MS
        )
        self._numbers: dict[bytes, int] = {}
        self._bytes: list[bytes] = []
        self.shown: list[Shown] = []
        self.idle: list[int] = []  # Messages that change nothing in this member.
        self._dead: list[tuple[int, int]] = []  # Of so many messages: those that never will again.
        self._made: dict[tuple[int, int], Made] = {}
        self.messages: list[Message] = []
        self._message_numbers: dict[str, int] = {}
        self.to: list[int] = [0] * bounds.voters  # Messages to each.
        self.other_votes: list[int] = []  # Votes that cannot stand beside this one (I61).
        self.fresh = tuple(map(self._first, range(bounds.voters)))

    def _first(self, place: int) -> int:
        member = self.names[place]
        boot = Boot(member, b"\0\1")
        return self._number(Local(self._process(boot, Image()), boot, 1))

    def _process(self, boot: Boot, disk: Image) -> Raft:
        log = RaftLog(self.configuration, entries=disk.entries)
        return Raft(boot, log, term=disk.term, vote=disk.vote, now_ns=NOW_NS, chance=Even())

    def _number(self, local: Local) -> int:
        forget_time(local.raft, has_pending=bool(local.pending))
        key = pickle.dumps(local)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._bytes)
            self._bytes.append(key)
            raft = local.raft
            terms = tuple(entry.term for entry in raft.log.between(1, raft.log.last_index))
            is_leader = raft.role is Role.LEADER
            self.shown.append(
                Shown(
                    is_leader,
                    raft.term,
                    local.boot,
                    terms,
                    raft.commit_index,
                    len(local.pending),
                    local.disk.term,
                )
            )
            self.idle.append(0)
            self._dead.append((0, 0))
        return number

    def dead(self, member: int) -> int:
        """Messages that nothing comes of any more, whatever becomes of this member: as if they had not been sent."""
        looked, dead = self._dead[member]
        if looked < len(self.messages):
            shown = self.shown[member]
            for number in range(looked, len(self.messages)):
                dead |= is_dead(self.messages[number], shown) << number
            self._dead[member] = len(self.messages), dead
        return dead

    def _bit(self, message: Message) -> int:
        key = repr(message)
        number = self._message_numbers.get(key)
        if number is None:
            number = self._message_numbers[key] = len(self.messages)
            assert number < MESSAGES_MAX, "more messages than a state has room for: smaller bounds"
            self.messages.append(message)
            self.to[self.names.index(message.receiver)] |= 1 << number
            self.other_votes.append(0)
            for other, sent in enumerate(self.messages):
                if are_two_votes(message, sent):
                    self.other_votes[number] |= 1 << other
        return 1 << number

    # --- Events ------------------------------------------------------------------------------------------

    def take(self, member: int, message: int) -> Made:
        made = self._made.get((member, message))
        if made is None:
            event = Received(NOW_NS, self.messages[message])
            made = self._made[member, message] = self._step(member, event)
            if made[0] == member and not made[1]:
                self.idle[member] |= 1 << message
        return made

    def stand(self, member: int) -> Made:
        """Or, of a leader: it beats."""
        return self._remembered(member, -1, Tick(NOW_NS))

    def add(self, member: int) -> Made:
        return self._remembered(member, -2, Propose(NOW_NS, 0, (b"x",)))

    def sync(self, member: int) -> Made:
        return self._remembered(member, -3, None)

    def crash(self, member: int, kept: int) -> Made:
        """kept: so many of the records that were not durable are there all the same."""
        made = self._made.get((member, -4 - kept))
        if made is None:
            local: Local = pickle.loads(self._bytes[member])
            disk = local.disk
            for record in local.pending[:kept]:
                disk = disk.after(record)
            starts = local.starts + 1
            boot = Boot(local.boot.member, starts.to_bytes(2, "big"))
            made = self._number(Local(self._process(boot, disk), boot, starts, disk)), 0, ""
            self._made[member, -4 - kept] = made
        return made

    def _remembered(self, member: int, event: int, what: Event | None) -> Made:
        made = self._made.get((member, event))
        if made is None:
            made = self._made[member, event] = self._step(member, what)
        return made

    def _step(self, member: int, event: Event | None) -> Made:
        """event None: what was written is durable now."""
        local: Local = pickle.loads(self._bytes[member])
        sent = 0
        events = [event] if event is not None else []
        try:
            while events or (local.pending and (event is None or not self.bounds.syncs_apart)):
                if not events:
                    for record in local.pending:
                        local.disk = local.disk.after(record)
                    events.append(Durable(NOW_NS, local.pending[-1].sequence))
                    local.pending, event = (), Tick(0)
                for effect in local.raft.step(events.pop()):
                    if isinstance(effect, Persist):
                        local.pending = (*local.pending, effect)
                    elif isinstance(effect, Send):
                        sent |= self._bit(effect.message)
        except InvariantError as broken:
            return member, 0, str(broken)
        return self._number(local), sent, ""


def told(message: Message) -> str:
    return f"{message.body} of {message.sender.member.name}, term {message.term}"


def is_dead(message: Message, shown: Shown) -> bool:
    """Answers of a term that is over, those for a process that is gone, and a no that tells of no newer term."""
    body = message.body
    if message.receiver != shown.boot.member or message.term > shown.durable_term:
        return False
    if isinstance(body, VoteReply):
        return (
            not body.is_granted
            or body.candidate_nonce != shown.boot.nonce
            or message.term < shown.durable_term
        )
    if isinstance(body, PreVoteReply):
        return not body.is_granted or body.next_term <= shown.durable_term
    return isinstance(body, AppendReply | HeartbeatReply) and message.term < shown.durable_term


def are_two_votes(one: Message, other: Message) -> bool:
    """Of one voter in one term for two."""
    if not isinstance(one.body, VoteReply) or not isinstance(other.body, VoteReply):
        return False
    both = one.body.is_granted and other.body.is_granted
    same = (one.sender.member, one.term) == (other.sender.member, other.term)
    return (
        both
        and same
        and (one.receiver, one.body.candidate_nonce) != (other.receiver, other.body.candidate_nonce)
    )


def forget_time(raft: Raft, *, has_pending: bool) -> None:
    """As long as it wants has passed since its last step, and nothing is left of the way on which it came here."""
    state, leading = raft._state, raft._leading
    state.election_due_ns = NOW_NS
    state.heard_leader_ns = None if state.heard_leader_ns is None else LONG_AGO_NS
    raft._heard = {member: (raft._heard[member][0], LONG_AGO_NS) for member in sorted(raft._heard)}
    if raft._ballot is not None:
        raft._ballot.granted = dict.fromkeys(sorted(raft._ballot.granted))
    if leading is not None:
        leading._heartbeat_due_ns, leading._quorum_check_ns = NOW_NS, NOW_NS + BASE_NS
        leading._stood_since_ns = None
        leading._answered = {member: leading._answered[member] for member in sorted(leading._answered)}
        leading.progress = {member: leading.progress[member] for member in sorted(leading.progress)}
    if not has_pending and not state._held:
        state._sequence = state._durable_sequence = state._term_sequence = 0


# --- All of them together ----------------------------------------------------------------------------------


Committed = tuple[tuple[int, ...], tuple[tuple[int, Boot], ...]]  # Terms by index, and who led each term.


class Judge:
    """What any leader ever had committed, and who led: kept once each, like members."""

    def __init__(self, members: Members) -> None:
        self._shown = members.shown
        self._all: list[Committed] = [((), ())]
        self._numbers: dict[Committed, int] = {self._all[0]: 0}
        self._looked: dict[tuple[int, int], tuple[int, str]] = {}

    def look(self, known: int, member: int) -> tuple[int, str]:
        """I60, I65, I66: what is known behind this member's step, and what it breaks."""
        looked = self._looked.get((known, member))
        if looked is None:
            looked = self._looked[known, member] = self._look(self._all[known], self._shown[member])
        return looked

    def _look(self, known: Committed, shown: Shown) -> tuple[int, str]:
        (committed, leaders), broken = known, ""
        own = shown.terms[: shown.commit_index]
        shorter = min(len(own), len(committed))
        if own[:shorter] != committed[:shorter]:
            broken = f"I65: {shown.boot} commits {own}, committed are {committed}"
        if len(own) > len(committed):
            committed = own
        if shown.is_leader:
            led = dict(leaders)
            if led.setdefault(shown.term, shown.boot) != shown.boot:
                broken = f"I60: {led[shown.term]} and {shown.boot} both lead term {shown.term}"
            elif shown.term == max(led) and shown.terms[: len(committed)] != committed:
                broken = f"I66: {shown.boot} leads with terms {shown.terms}, committed are {committed}"
            leaders = tuple(sorted(led.items()))
        found = committed, leaders
        number = self._numbers.setdefault(found, len(self._all))
        if number == len(self._all):
            self._all.append(found)
        return number, broken


ROW = struct.Struct(
    f"<{len(NAMES)}IIBBBB"
)  # Members, what is known, what was spent, how many messages follow.


@dataclass(frozen=True)
class State:
    locals: tuple[int, ...]
    sent: int
    known: int
    added: int = 0
    crashes: int = 0
    beats: int = 0

    def digest(self) -> int:
        return hash((self.locals, self.sent, self.known, self.added, self.crashes, self.beats))

    def packed(self) -> bytes:
        places = (*self.locals, *(0,) * (len(NAMES) - len(self.locals)))
        sent = array("H", bits(self.sent))
        spent = self.added, self.crashes, self.beats
        return ROW.pack(*places, self.known, *spent, len(sent)) + sent.tobytes()


def rows(packed: bytearray, voters: int) -> Iterator[State]:
    at = 0
    while at < len(packed):
        *numbers, count = ROW.unpack_from(packed, at)
        at += ROW.size
        sent = array("H", packed[at : at + 2 * count])
        at += 2 * count
        places, (known, added, crashes, beats) = numbers[: len(NAMES)], numbers[len(NAMES) :]
        yield State(tuple(places[:voters]), sum(1 << bit for bit in sent), known, added, crashes, beats)


def explore(bounds: FreeBounds, *, remembers: bool = False) -> Free:
    """remembers: on which way it came to each state; without, what breaks is looked for once more, with it."""
    members = Members(bounds)
    judge, seen = Judge(members), Digests()
    first = State(members.fresh, 0, 0)
    ways: dict[int, tuple[int, str]] = {}
    seen.add(first.digest())
    level, depth = bytearray(first.packed()), 0
    while level:
        following = bytearray()
        for state in rows(level, bounds.voters):
            for place, (member, sent, broken), name, spent in steps(members, state, bounds, remembers):
                after, broke = reached(members, judge, state, place, member, sent, spent)
                if broken or broke:
                    if not remembers:
                        return explore(bounds, remembers=True)
                    return Free(seen.count, depth + 1, broken or broke, (*way(ways, state), name))
                digest = after.digest()
                if not seen.add(digest):
                    continue
                if remembers:
                    ways[digest] = state.digest(), name
                following += after.packed()
            if seen.count >= bounds.states:
                return Free(seen.count, depth + 1, is_whole=False)
        level, depth = following, depth + bool(following)
    return Free(seen.count, depth)


def way(ways: dict[int, tuple[int, str]], state: State) -> tuple[str, ...]:
    told, digest = list[str](), state.digest()
    while digest in ways:
        digest, name = ways[digest]
        told.append(name)
    return tuple(reversed(told))


NOTHING, ADD, CRASH, BEAT = range(4)
Step = tuple[int, Made, str, int]  # Whose, what it makes of it, its name, what it takes of the bounds.


def reached(
    members: Members, judge: Judge, state: State, place: int, member: int, sent: int, spent: int
) -> tuple[State, str]:
    locals_ = (*state.locals[:place], member, *state.locals[place + 1 :])
    known, broken = judge.look(state.known, member)
    fresh = sent & ~state.sent
    if fresh and not broken:
        broken = two_votes(members, fresh, state.sent | sent)
    there = state.sent | sent
    for each in locals_:
        there &= ~members.dead(each)
    after = State(
        locals_,
        there,
        known,
        state.added + (spent == ADD),
        state.crashes + (spent == CRASH),
        state.beats + (spent == BEAT),
    )
    return after, broken


def two_votes(members: Members, fresh: int, sent: int) -> str:
    for number in bits(fresh):
        for other in bits(members.other_votes[number] & sent):
            return f"I61: {members.messages[number]} and {members.messages[other]}"
    return ""


def bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def steps(members: Members, state: State, bounds: FreeBounds, named: bool) -> Iterator[Step]:
    is_begun = state.locals != members.fresh
    for place, member in enumerate(state.locals):
        shown, who = members.shown[member], NAMES[place]
        for number in bits(state.sent & members.to[place] & ~members.idle[member]):
            made = members.take(member, number)
            if made[0] != member or made[1] & ~state.sent or made[2]:
                name = f"{who} takes {told(members.messages[number])}" if named else ""
                yield place, made, name, NOTHING
        if shown.pending and bounds.syncs_apart:
            yield place, members.sync(member), f"{who} syncs", NOTHING
        if shown.is_leader:
            if state.added < bounds.entries:
                yield place, members.add(member), f"{who} adds", ADD
            if state.beats < bounds.beats:
                yield place, members.stand(member), f"{who} beats", BEAT
        elif shown.term < bounds.terms and (is_begun or place == FIRST_TO_STAND):
            yield place, members.stand(member), f"{who} stands", NOTHING
        if state.crashes < bounds.crashes and is_begun:
            for kept in range(shown.pending + 1):
                yield place, members.crash(member, kept), f"{who} crashes, {kept} records stay", CRASH
