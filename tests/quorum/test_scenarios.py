"""Stories of a quorum, one at a time: what must not be lost, and who may lead (RAFT.md; I60 to I81)."""

from __future__ import annotations

import random
from itertools import combinations, permutations

import pytest
from msgspec.structs import replace

from embedbk.metadata.quorum import Configuration, MemberId, Policy
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import (
    Append,
    AppendReply,
    Boot,
    Doubt,
    Durable,
    Entry,
    Heartbeat,
    HeartbeatReply,
    LeaderChanged,
    LearnersRequested,
    Message,
    NoticeDamaged,
    NoticeRetired,
    PeerLost,
    Persist,
    PreVote,
    PreVoteReply,
    Propose,
    ReadReady,
    ReadRequested,
    Received,
    Refused,
    RequestVote,
    Retired,
    Send,
    SnapshotSaved,
    Tick,
    VoteReply,
)
from tests.quorum.world import MS, Image, Member, Snapshot, World

BASE_MS = 500


def settled(names: str = "abc", policy: Policy = Policy.MAJORITY, seed: int = 1) -> World:
    """A world with a leader that has committed."""
    world = World(seed, names, policy)
    world.run(4 * BASE_MS)
    assert world.leader() is not None
    return world


def lead(world: World, name: str) -> Member:
    """Let this member lead."""
    member = world.named(name)
    for _ in range(5):
        if world.leader() is member:
            return member
        world.transfer(member)
        world.run(BASE_MS)
    raise AssertionError(f"{name} does not come to lead")


def commit(world: World, count: int = 1) -> list[int]:
    tokens = [world.propose() for _ in range(count)]
    world.run(BASE_MS)
    assert set(tokens) <= set(world.judge.acknowledged)
    return tokens


# --- Disks that were wiped -----------------------------------------------------------------------------------


def wiped_while_away(seed: int, order: tuple[str, ...]) -> None:
    """A and B commit while C is down; A is wiped; then members start in any order, B last, or when it comes."""
    chance = random.Random(seed)
    world = settled(seed=seed)
    lead(world, "a")
    world.crash(world.named("c"))
    tokens = commit(world, chance.randint(1, 4))
    for name in chance.sample("ab", 2):
        world.crash(world.named(name))
        world.run(chance.uniform(0, 700))
    fresh = world.wipe(world.named("a"))
    for name in order:
        world.named(name).start()
        world.run(chance.uniform(0, 5 * BASE_MS))
        if world.named("b").raft is None:
            world.run(3 * BASE_MS)
            assert world.leader() is None, "a quorum without anybody who remembers"
    world.run(6 * BASE_MS)
    leader = world.leader()
    assert leader is not None
    assert leader.member.name == "b", "only b has everything"
    world.admit(fresh)
    world.run(2 * BASE_MS)
    world.change(world.named("b"), world.named("c"), fresh)
    world.run(4 * BASE_MS)
    assert world.changes[-1] == ""
    commit(world)
    assert fresh.state == leader.state
    assert set(tokens) <= set(world.judge.acknowledged)
    world.judge.end()


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_a_wiped_member_helps_nobody_to_forget(order: tuple[str, ...], pytestconfig: pytest.Config) -> None:
    """Scenario 78, story 1, I79: A and B committed x (C down); A loses its disk. A and C form no
    quorum, in any start order; x is there when B returns, and A comes back as a learner under another
    incarnation."""
    for seed in range(pytestconfig.getoption("--wiped-seeds") // 6):
        wiped_while_away(seed, order)


def rolled_back(policy: Policy, names: str, seed: int) -> World:
    """A commits with just enough others; then one of those is put back to before, and only it and the rest start."""
    world = settled(names, policy, seed)
    a = lead(world, "a")
    assert a.raft is not None
    commit(world)
    world.run(BASE_MS)
    old = {member.member: member.disk.copy() for member in world.members.values()}
    sizes = next(a.raft.configuration.halves())[1]
    for name in names[sizes.commit :]:
        world.crash(world.named(name))
    commit(world, 3)
    for name in names[: sizes.commit]:
        world.crash(world.named(name))
    victim = world.named(names[1])
    world.roll_back(victim, old[victim.member])
    for name in names[1:]:
        if name == victim.member.name or name in names[sizes.commit :]:
            world.named(name).start()
    return world


def test_a_majority_forgets_with_a_voter_that_was_put_back() -> None:
    """Story 2, C1 with w = 1 and 2 of 3: this is what `majority` does not promise, and the judge of
    these worlds sees it."""
    with pytest.raises(AssertionError, match=r"I66|I65|I60"):  # noqa: PT012
        world = rolled_back(Policy.MAJORITY, "abc", 1)
        world.run(10 * BASE_MS)
        world.propose()
        world.run(10 * BASE_MS)


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        (Policy.ROLLBACK_1, "abc"),
        (Policy.ROLLBACK_1, "abcd"),
        (Policy.ROLLBACK_1, "abcde"),
        (Policy.SUPERMAJORITY, "abc"),
        (Policy.SUPERMAJORITY, "abcd"),
        (Policy.SUPERMAJORITY, "abcde"),
    ],
)
def test_larger_quorums_remember_for_a_voter_that_was_put_back(policy: Policy, names: str) -> None:
    """Story 3, C1, C2: with w >= 1 nothing is lost, whoever was put back; when all are there again,
    they go on."""
    for seed in range(5):
        world = rolled_back(policy, names, seed)
        world.run(10 * BASE_MS)
        for member in world.members.values():
            if member.raft is None:
                member.start()
        world.run(10 * BASE_MS)
        commit(world)
        world.judge.end()


# --- One member, by hand -------------------------------------------------------------------------------------

A, B, C = (MemberId(name, name.encode()) for name in "abc")
THREE = Configuration((A, B, C))


def alone(
    member: MemberId = A,
    *,
    entries: tuple[Entry, ...] = (),
    term: int = 0,
    doubt: Doubt | None = None,
    vote: Boot | None = None,
) -> Raft:
    log = RaftLog(THREE, entries=entries)
    boot = Boot(member, b"own")
    return Raft(boot, log, term=term, vote=vote, now_ns=0, chance=random.Random(1), doubt=doubt)


def told(
    raft: Raft, sender: MemberId, term: int, body: object, *, at_ms: float = 1, nonce: bytes = b"1"
) -> list[Message]:
    """Deliver a message; what the member sends when its disk has everything."""
    message = Message(term, Boot(sender, nonce), A, body)  # type: ignore[arg-type]
    return sent(raft, raft.step(Received(int(at_ms * MS), message)), at_ms)


def sent(raft: Raft, effects: list[object], at_ms: float) -> list[Message]:
    effects = list(effects)
    for effect in effects:
        if isinstance(effect, Persist):
            effects.extend(raft.step(Durable(int(at_ms * MS), effect.sequence)))
    return [effect.message for effect in effects if isinstance(effect, Send)]


def votes(raft: Raft, sender: MemberId, term: int, **given: object) -> list[bool]:
    request = RequestVote(given.pop("last_index", 0), given.pop("last_term", 0), is_transfer=False)  # type: ignore[arg-type]
    answers = told(raft, sender, term, request, **given)  # type: ignore[arg-type]
    return [answer.body.is_granted for answer in answers if isinstance(answer.body, VoteReply)]


def test_a_vote_is_told_when_it_is_durable() -> None:
    """I61: term and vote are on the disk before the answer leaves."""
    raft = alone()
    asked = Message(3, Boot(B, b"1"), A, RequestVote(0, 0, is_transfer=False))
    effects = raft.step(Received(MS, asked))
    records = [effect for effect in effects if isinstance(effect, Persist)]
    assert [(record.term, record.vote) for record in records] == [(3, Boot(B, b"1"))]
    assert not any(isinstance(effect, Send) for effect in effects)
    assert any(isinstance(effect, Send) for effect in raft.step(Durable(2 * MS, records[-1].sequence)))


def test_one_vote_in_a_term_and_its_repeat_to_the_same_process_only() -> None:
    """C3: a vote belongs to (member, incarnation, boot nonce); the next process of the same member has none."""
    raft = alone()
    assert votes(raft, B, 3) == [True]
    assert votes(raft, B, 3) == [True]
    assert votes(raft, C, 3) == [False]
    assert votes(raft, B, 3, nonce=b"2", at_ms=5000) == [False]
    assert votes(raft, C, 4) == [True]


def test_a_vote_outlives_a_step_down_in_its_term() -> None:
    """Scenario 82, I61: a candidate that gives up its candidacy, or hears its term's leader, has given
    its vote."""
    raft = alone()
    sent(raft, raft.step(Tick(2000 * MS)), 2000)
    told(raft, B, 0, PreVoteReply(1, is_granted=True), at_ms=2001)
    assert (raft.role, raft.term) == (Role.CANDIDATE, 1)
    sent(raft, raft.step(Tick(4000 * MS)), 4000)
    assert (raft.role, raft.term) == (Role.FOLLOWER, 1)
    assert votes(raft, B, 1, at_ms=4001) == [False]
    told(raft, C, 1, Heartbeat(0, 1), at_ms=4002)
    assert votes(raft, B, 1, at_ms=6000) == [False]


def test_a_newer_log_is_never_voted_down() -> None:
    """I67: term of the last entry first, then its index."""
    entries = (Entry(1, 1, None), Entry(2, 3, b"x"))
    for last, expected in [((2, 3), True), ((1, 3), False), ((9, 2), False), ((1, 4), True), ((3, 3), True)]:
        raft = alone(entries=entries, term=3)
        assert votes(raft, B, 5, last_index=last[0], last_term=last[1]) == [expected], last


def test_a_question_without_consequences_raises_no_term() -> None:
    """PreVote: nobody's term rises before a quorum would vote."""
    raft = alone(term=3)
    answers = told(raft, B, 3, PreVote(4, 0, 0), at_ms=1000)
    assert [(m.term, m.body) for m in answers] == [(3, PreVoteReply(4, is_granted=True))]
    assert (raft.term, raft.vote) == (3, None)


def test_who_hears_a_leader_helps_nobody_else() -> None:
    """I78: within one election base of a heartbeat neither question nor vote, and the term stays."""
    raft = alone(term=3)
    told(raft, B, 3, Heartbeat(0, 1), at_ms=100)
    assert told(raft, C, 3, PreVote(4, 9, 3), at_ms=500)[0].body == PreVoteReply(4, is_granted=False)
    assert votes(raft, C, 7, last_index=9, last_term=3, at_ms=550) == []
    assert raft.term == 3
    assert votes(raft, C, 7, last_index=9, last_term=3, at_ms=601) == [True]


def test_a_doubtful_disk_votes_for_nobody_until_it_has_all_again() -> None:
    """I79, I81: it grants nothing and asks for nothing; under a leader of the same term it needs all it had."""
    raft = alone(term=3, entries=(Entry(1, 3, b"x"),), doubt=Doubt(3, 3))
    assert votes(raft, B, 4, last_index=9, last_term=3) == [False]
    sent(raft, raft.step(Tick(9000 * MS)), 9000)
    assert raft.role is Role.FOLLOWER
    told(raft, B, 4, Append(1, 3, (Entry(2, 3, b"y"),), 2), at_ms=9001)
    assert raft.has_doubt
    told(raft, B, 4, Append(2, 3, (Entry(3, 3, b"z"), Entry(4, 4, None)), 4), at_ms=9002)
    assert not raft.has_doubt, "it holds a committed entry of a newer term"


def test_a_leader_whose_process_is_gone_is_not_waited_for() -> None:
    """RAFT.md, 4: a link that is gone is no silence. Who hears so helps others at once, and stands within three
    quarters of a base, as long as it hears nothing of that leader again."""
    raft = alone(term=3)
    told(raft, B, 3, Heartbeat(0, 1), at_ms=100)
    told(raft, C, 3, PreVote(4, 0, 0), at_ms=101)
    raft.step(PeerLost(101 * MS, Boot(C, b"1")))
    assert told(raft, C, 3, PreVote(4, 0, 0), at_ms=102)[0].body == PreVoteReply(4, is_granted=False)
    raft.step(PeerLost(103 * MS, Boot(B, b"before")))
    assert told(raft, C, 3, PreVote(4, 0, 0), at_ms=104)[0].body == PreVoteReply(4, is_granted=False)
    raft.step(PeerLost(110 * MS, Boot(B, b"1")))
    assert told(raft, C, 3, PreVote(4, 0, 0), at_ms=111)[0].body == PreVoteReply(4, is_granted=True)
    assert raft.deadline_ns is not None
    assert 110 + BASE_MS // 4 <= raft.deadline_ns // MS <= 110 + BASE_MS * 3 // 4
    told(raft, B, 3, Heartbeat(0, 1), at_ms=130)
    assert raft.deadline_ns >= (130 + BASE_MS) * MS, "it is linked again"
    assert told(raft, C, 3, PreVote(4, 0, 0), at_ms=131)[0].body == PreVoteReply(4, is_granted=False)


def test_a_link_that_flaps_calls_no_election() -> None:
    """I78: one follower loses its leader again and again; the other hears it, and helps nobody."""
    world = settled()
    leader = world.leader()
    assert leader is not None
    assert leader.raft is not None
    term, other = leader.raft.term, world.named(next(name for name in "abc" if name != leader.member.name))
    for _ in range(20):
        world.cut(leader.member.name, other.member.name)
        other.step(PeerLost(world.now_ns, leader.boot))
        world.run(0.9 * BASE_MS)
        world.heal()
        world.run(0.1 * BASE_MS)
    assert (world.leader(), leader.raft.term) == (leader, term)
    commit(world)


def test_the_next_leader_comes_within_a_base_when_the_last_one_is_killed() -> None:
    """Those that are left hear that its links are gone."""
    took = []
    for seed in range(20):
        world = settled(seed=seed)
        leader = world.leader()
        assert leader is not None
        boot = leader.boot
        leader.crash()
        for other in world.members.values():
            if other is not leader:
                other.step(PeerLost(world.now_ns, boot))
        began_ms = world.now_ms
        while world.leader() is None:
            world.run(5)
        took.append((world.now_ms - began_ms) / BASE_MS)
    took.sort()
    assert took[10] <= 0.75, took
    assert took[18] <= 2.5, took


def test_a_split_vote_is_over_within_a_base() -> None:
    """RAFT.md, 4: who stood and did not win asks again within three quarters of a base; a vote it gave stays given."""
    raft = alone()
    sent(raft, raft.step(Tick(2000 * MS)), 2000)
    told(raft, B, 0, PreVoteReply(1, is_granted=True), at_ms=2001)
    assert raft.role is Role.CANDIDATE
    told(raft, C, 1, VoteReply(False, b"own"), at_ms=2002)
    assert raft.deadline_ns is not None
    assert 2001 + BASE_MS // 4 <= raft.deadline_ns // MS <= 2001 + BASE_MS * 3 // 4
    asked = sent(raft, raft.step(Tick(raft.deadline_ns)), raft.deadline_ns / MS)
    assert {message.body for message in asked} == {PreVote(2, 0, 0)}


def test_who_would_vote_for_another_lets_it_stand_first_and_does_not_wait_for_ever() -> None:
    """RAFT.md, 4: so that two do not stand at once; a member that asks and cannot win keeps nobody from standing."""
    raft = alone(term=3)
    told(raft, B, 3, Heartbeat(0, 1), at_ms=100)
    raft.step(PeerLost(110 * MS, Boot(B, b"1")))
    due_ns = raft.deadline_ns
    assert due_ns is not None
    at_ms = due_ns // MS - 1
    assert told(raft, C, 3, PreVote(4, 0, 0), at_ms=at_ms)[0].body == PreVoteReply(4, is_granted=True)
    assert raft.deadline_ns == (at_ms + BASE_MS // 4) * MS
    sent(raft, raft.step(Tick(raft.deadline_ns)), raft.deadline_ns / MS)
    later_ns = raft.deadline_ns
    assert later_ns > due_ns + BASE_MS * MS, "it asks now, and again much later"
    assert told(raft, C, 3, PreVote(4, 0, 0), at_ms=due_ns / MS + 200)[0].body.is_granted  # type: ignore[union-attr]
    assert raft.deadline_ns == later_ns, "who has long to wait is not put off further"


def test_who_refuses_to_help_another_waits_no_longer_for_it() -> None:
    """RAFT.md, 4: a member with an older log than this one's keeps it from nothing."""
    raft = alone(term=3, entries=(Entry(1, 3, b"x"),))
    told(raft, B, 3, Heartbeat(0, 1), at_ms=100)
    raft.step(PeerLost(110 * MS, Boot(B, b"1")))
    due_ns = raft.deadline_ns
    assert due_ns is not None
    assert not told(raft, C, 3, PreVote(4, 0, 0), at_ms=due_ns / MS - 1)[0].body.is_granted  # type: ignore[union-attr]
    assert raft.deadline_ns == due_ns


def test_a_leader_is_awaited_for_a_while() -> None:
    """METADATA.md, 6: behind its last word, or a start; not while one is heard, and not by who is cut off for long."""
    raft = alone(term=3)
    assert raft.awaits_leader(MS)
    told(raft, B, 3, Heartbeat(0, 1), at_ms=100)
    assert not raft.awaits_leader(101 * MS)
    raft.step(PeerLost(110 * MS, Boot(B, b"1")))
    assert raft.awaits_leader(111 * MS)
    assert raft.awaits_leader((100 + 3 * BASE_MS) * MS - 1)
    assert not raft.awaits_leader((100 + 3 * BASE_MS) * MS)


def test_a_message_for_another_incarnation_is_nobodys() -> None:
    """P10.3: who was here before is somebody else."""
    raft = alone()
    message = Message(3, Boot(B, b"1"), MemberId("a", b"before"), RequestVote(0, 0, is_transfer=False))
    assert raft.step(Received(MS, message)) == []


def test_of_two_processes_of_one_member_the_one_that_is_heard_stays() -> None:
    """P7.9: a copy of its directory is not heard until the first was silent for an election base."""
    raft = alone()
    assert votes(raft, B, 3, at_ms=100, nonce=b"1") == [True]
    assert told(raft, B, 9, RequestVote(0, 0, is_transfer=False), at_ms=300, nonce=b"2") == []
    assert raft.term == 3
    assert votes(raft, B, 9, at_ms=900, nonce=b"2") == [True]


def test_a_term_below_the_last_entry_is_raised() -> None:
    """Scenario 83: seaweedfs 2026: the stored term is below the last entry's: the vote that stood
    beside it is not used."""
    raft = alone(term=2, vote=Boot(C, b"1"), entries=(Entry(1, 5, b"x"),))
    assert (raft.term, raft.vote) == (5, None)


def test_who_was_taken_out_hears_so() -> None:
    """I78: it asks for votes, hears that it is out, and stands no more."""
    gone = MemberId("c", b"older")
    raft = Raft(
        Boot(A, b"own"),
        RaftLog(Configuration((A,), retired=(gone,)), configuration_index=0),
        term=1,
        vote=None,
        now_ns=0,
        chance=random.Random(1),
    )
    answers = told(raft, gone, 9, PreVote(10, 5, 5))
    assert [answer.body for answer in answers] == [Retired(0)]
    assert raft.term == 1
    left = alone()
    notices = left.step(Received(MS, Message(1, Boot(B, b"1"), A, Retired(7))))
    assert NoticeRetired(B) in notices
    left.step(Tick(9000 * MS))
    assert left.role is Role.FOLLOWER


def elected(raft: Raft, at_ms: float = 2000) -> list[Message]:
    """By b's vote; what the new leader sends."""
    sent(raft, raft.step(Tick(int(at_ms * MS))), at_ms)
    told(raft, B, raft.term, PreVoteReply(raft.term + 1, is_granted=True), at_ms=at_ms + 1)
    messages = told(raft, B, raft.term, VoteReply(is_granted=True, candidate_nonce=b"own"), at_ms=at_ms + 2)
    assert raft.role is Role.LEADER
    return messages


def test_a_vote_for_the_process_before_elects_nobody() -> None:
    """C3: an answer to the candidate's earlier process is not counted."""
    raft = alone()
    sent(raft, raft.step(Tick(2000 * MS)), 2000)
    told(raft, B, 0, PreVoteReply(1, is_granted=True), at_ms=2001)
    told(raft, B, 1, VoteReply(is_granted=True, candidate_nonce=b"before"), at_ms=2002)
    assert raft.role is Role.CANDIDATE


def test_entries_of_earlier_terms_are_committed_by_one_of_the_own() -> None:
    """Scenario 81, I70, figure 8: an old entry on a majority may still be replaced; the leader's own
    first entry commits it."""
    raft = alone(term=2, entries=(Entry(1, 2, b"old"),))
    elected(raft)
    assert raft.log.last_index == 2
    told(raft, B, raft.term, AppendReply(is_accepted=True, index=1), at_ms=2003)
    assert raft.commit_index == 0
    told(raft, B, raft.term, AppendReply(is_accepted=True, index=2), at_ms=2004)
    assert raft.commit_index == 2


def test_a_lost_answer_is_had_again_though_its_entry_went_behind_a_snapshot() -> None:
    """L6, RAFT.md 5: what is in flight and not answered is asked for again with each round. Where its entry has gone
    behind a snapshot nothing can be asked of it: then the follower gets what follows what it has, or the snapshot."""
    raft = alone()
    elected(raft)
    for other in (B, C):
        told(raft, other, 1, AppendReply(is_accepted=True, index=1), at_ms=2003)
    for number, body in ((1, b"x"), (2, b"y")):
        sent(raft, raft.step(Propose(2004 * MS, number, (body,))), 2004)
    told(raft, B, 1, AppendReply(is_accepted=True, index=3), at_ms=2005)  # Those of c are lost; it has both.
    raft.step(SnapshotSaved(2006 * MS, 3, 4))
    bodies = [
        message.body
        for round_ in range(1, 9)
        for message in told(raft, C, 1, HeartbeatReply(round_, 3, is_installing=False), at_ms=2008 + round_)
        if message.receiver == C
    ]
    assert any(isinstance(body, Append) and body.previous_index == 3 for body in bodies), bodies


def test_a_disk_with_less_than_it_said_is_named_though_the_first_question_was_lost() -> None:
    """Scenario 85, P10.3, RAFT.md 4: another process of C, on an older image, has taken nothing from
    this leader yet, and its answers to heartbeats say so. It is asked again at the same place, and
    tells what is missing, before that is filled up."""
    raft = alone()
    elected(raft)
    for number in range(3):
        sent(raft, raft.step(Propose(2003 * MS, number, (b"x",))), 2003)
    for other in (B, C):
        told(raft, other, 1, AppendReply(is_accepted=True, index=4), at_ms=2004)
    raft.step(PeerLost(2005 * MS, Boot(C, b"1")))
    for round_ in range(1, 4):
        asked = told(
            raft, C, 1, HeartbeatReply(round_, 0, is_installing=False), at_ms=2005 + round_, nonce=b"2"
        )
    assert [m.body.previous_index for m in asked if m.receiver == C and isinstance(m.body, Append)] == [4]
    refused = AppendReply(is_accepted=False, index=2, hint_term=1)
    effects = raft.step(Received(2010 * MS, Message(1, Boot(C, b"2"), A, refused)))
    assert [each.told_index for each in effects if isinstance(each, NoticeDamaged)] == [2]


def test_a_leader_counts_itself_when_its_own_disk_has_it() -> None:
    """I69: with two of three, one other and a leader whose disk stands commit nothing."""
    raft = alone()
    elected(raft)
    told(raft, B, 1, AppendReply(is_accepted=True, index=1), at_ms=2003)
    effects = raft.step(Propose(2004 * MS, 1, (b"x",)))
    record = next(effect for effect in effects if isinstance(effect, Persist))
    raft.step(Received(2005 * MS, Message(1, Boot(B, b"1"), A, AppendReply(is_accepted=True, index=2))))
    assert raft.commit_index == 1
    raft.step(Durable(2006 * MS, record.sequence))
    assert raft.commit_index == 2


def test_a_learner_counts_nowhere() -> None:
    """A learner's acknowledgement commits nothing, and its vote elects nobody."""
    learner = MemberId("d", b"d")
    log = RaftLog(Configuration((A, B, C), learners=(learner,)))
    raft = Raft(Boot(A, b"own"), log, term=0, vote=None, now_ns=0, chance=random.Random(1))
    elected(raft)
    told(raft, learner, 1, AppendReply(is_accepted=True, index=1), at_ms=2003)
    assert raft.commit_index == 0


def test_an_acknowledgement_waits_for_the_disk() -> None:
    """A follower says that it has an entry when its own disk has it."""
    raft = alone()
    message = Message(1, Boot(B, b"1"), A, Append(0, 0, (Entry(1, 1, b"x"),), 0))
    effects = raft.step(Received(MS, message))
    assert not any(isinstance(effect, Send) for effect in effects)
    record = next(effect for effect in effects if isinstance(effect, Persist))
    answers = [
        effect.message.body
        for effect in raft.step(Durable(2 * MS, record.sequence))
        if isinstance(effect, Send)
    ]
    assert answers == [AppendReply(is_accepted=True, index=1)]


def test_a_read_is_answered_when_others_say_that_nobody_newer_leads() -> None:
    """I75: not by the leader alone, and not by an answer that was on its way before the read came."""
    raft = alone()
    elected(raft)
    told(raft, B, 1, AppendReply(is_accepted=True, index=1), at_ms=2003)
    effects = raft.step(ReadRequested(2004 * MS, (7,)))
    rounds = [
        e.message.body.round for e in effects if isinstance(e, Send) and isinstance(e.message.body, Heartbeat)
    ]
    assert len(rounds) == 2, "a read begins a round at once"

    stale = HeartbeatReply(rounds[0] - 1, 1, is_installing=False)
    assert not raft.step(Received(2005 * MS, Message(1, Boot(C, b"1"), A, stale)))
    current = HeartbeatReply(rounds[0], 1, is_installing=False)
    effects = raft.step(Received(2006 * MS, Message(1, Boot(C, b"1"), A, current)))
    assert ReadReady((7,), 1) in effects


def test_who_does_not_lead_says_who_does() -> None:
    raft = alone()
    told(raft, B, 1, Heartbeat(0, 1))
    for event in (Propose(2 * MS, 1, (b"x",)), ReadRequested(2 * MS, (1,))):
        refused = raft.step(event)
        assert refused == [Refused(1, "a does not lead: b leads", B)]


def test_who_does_not_stand_forgets_a_leader_that_is_silent() -> None:
    """A learner sends nobody to a leader that it has not heard for two election bases."""
    learner = MemberId("d", b"d")
    raft = Raft(Boot(learner, b"own"), RaftLog(THREE), term=0, vote=None, now_ns=0, chance=random.Random(1))
    raft.step(Received(MS, Message(1, Boot(B, b"1"), learner, Heartbeat(0, 1))))
    assert raft.leader == B
    assert LeaderChanged(1, None) in raft.step(Tick(2000 * MS))
    assert (raft.leader, raft.role) == (None, Role.FOLLOWER)


def test_a_learner_that_was_taken_out_hears_so() -> None:
    """I78: nobody sends it anything any more, so it asks as voters do; it never stands, and asks until it is told."""
    learner = MemberId("d", b"d")
    configuration = replace(THREE, learners=(learner,))
    raft = Raft(
        Boot(learner, b"own"), RaftLog(configuration), term=0, vote=None, now_ns=0, chance=random.Random(1)
    )
    sent(raft, raft.step(Received(MS, Message(1, Boot(B, b"1"), learner, Heartbeat(0, 1)))), 1)
    asked = sent(raft, raft.step(Tick(2000 * MS)), 2000)
    assert [message.body for message in asked] == [PreVote(2, 0, 0)] * 3
    for voter in (A, B, C):
        answer = PreVoteReply(2, is_granted=True)
        raft.step(Received(2001 * MS, Message(1, Boot(voter, b"1"), learner, answer)))
    assert (raft.role, raft.term) == (Role.FOLLOWER, 1), "whoever says yes"
    notices = raft.step(Received(2002 * MS, Message(1, Boot(B, b"1"), learner, Retired(7))))
    assert NoticeRetired(B) in notices
    assert sent(raft, raft.step(Tick(9000 * MS)), 9000) == []


# --- Whole quorums -------------------------------------------------------------------------------------------


def test_who_comes_back_disturbs_nobody() -> None:
    """A member that was cut off for a minute returns: term and leader stay (PreVote, I78)."""
    world = settled("abcde")
    leader = world.leader()
    assert leader is not None
    assert leader.raft is not None
    term, lonely = leader.raft.term, next(m for m in world.members.values() if m is not leader)
    for other in world.members.values():
        world.cut(lonely.member.name, other.member.name)
    world.run(60_000)
    world.heal()
    world.run(5 * BASE_MS)
    assert world.leader() is leader
    assert leader.raft.term == term


def is_fine(world: World, linked: set[frozenset[str]]) -> bool:
    """Whether some majority is fully connected."""
    names = [member.member.name for member in world.members.values()]
    return any(
        all(frozenset(pair) in linked for pair in combinations(some, 2))
        for some in combinations(names, len(names) // 2 + 1)
    )


def graphs(names: str) -> list[set[frozenset[str]]]:
    pairs = [frozenset(pair) for pair in combinations(names, 2)]
    return [set(some) for size in range(len(pairs) + 1) for some in combinations(pairs, size)]


def partly_cut(names: str, linked: set[frozenset[str]], seed: int) -> None:
    world = settled(names, seed=seed)
    if not is_fine(world, linked):
        return
    for one, other in combinations(names, 2):
        if frozenset((one, other)) not in linked:
            world.cut(one, other)
    world.run(10 * BASE_MS)
    leader = world.leader()
    assert leader is not None, f"no leader among {linked}"
    assert leader.raft is not None
    term, commit_index = leader.raft.term, leader.raft.commit_index
    token = world.propose(leader)
    world.run(20 * BASE_MS)
    newest = max(member.raft.term for member in world.members.values() if member.raft is not None)
    assert newest <= term + 1, f"terms rise among {linked}"
    assert world.judge.committed[-1].index > commit_index
    assert token in world.judge.acknowledged


def test_partial_partitions_of_three_keep_a_leader() -> None:
    """L5: every graph of links on three members in which some majority is whole."""
    for seed, linked in enumerate(graphs("abc")):
        partly_cut("abc", linked, seed)


def test_partial_partitions_of_five_keep_a_leader(pytestconfig: pytest.Config) -> None:
    """Scenario 86, story 10, L5, Cloudflare 2020: of five, some here, all 1,024 by flag; terms do not
    rise without bound."""
    found = graphs("abcde")
    chosen = random.Random(5).sample(found, min(pytestconfig.getoption("--partitions"), len(found)))
    for seed, linked in enumerate(chosen):
        partly_cut("abcde", linked, seed)


def test_a_leader_whose_disk_stands_lets_another_lead() -> None:
    """The others go on, and its own disk makes nothing durable for an election base."""
    world = settled()
    leader = world.leader()
    assert leader is not None
    leader.sync_ms = 60_000
    for _ in range(40):
        world.propose(leader)
        world.run(50)
    assert world.leader() is not leader
    commit(world)


def test_a_leader_that_nobody_hears_stops_leading() -> None:
    """I75: not heard by a commit quorum for an election base, it steps down, and says so to who asks."""
    world = settled()
    leader = world.leader()
    assert leader is not None
    assert leader.raft is not None
    for other in world.members.values():
        world.cut(leader.member.name, other.member.name)
    world.run(2.5 * BASE_MS)
    assert leader.raft.role is Role.FOLLOWER
    world.run(3 * BASE_MS)
    assert world.leader() not in (None, leader)


def test_a_leader_that_slept_answers_no_read_of_before() -> None:
    """etcd 20418: paused beyond the election time-out with a queued read, it wakes and answers nothing stale."""
    world = settled()
    old = world.leader()
    assert old is not None
    world.pause(old, 5_000)
    world.run(4_000)
    commit(world)
    before = world.reads_answered
    world.read(old)  # The judge checks what an answer shows.
    world.run(5_000)
    assert old.raft is not None
    assert old.raft.role is Role.FOLLOWER
    assert world.reads_answered == before


def test_one_grows_to_three_and_five_and_back() -> None:
    """Stories 8 and 17, RAFT.md, 7: one joint change each, no step of two or four, appends go on, each
    phase with a crash and a start."""
    world = settled("a")
    tokens: list[int] = []

    def under_load(for_ms: float) -> None:
        for _ in range(int(for_ms / 20)):
            if world.leader() is not None:
                tokens.append(world.propose())
            world.run(20)

    first = world.named("a")
    joined = []
    for name in "bcde":
        fresh = Member(
            world,
            MemberId(name, 16 * name.encode()),
            Image(Snapshot(0, 0, first.disk.snapshot.configuration, ())),
        )
        world.members[fresh.member] = fresh
        fresh.start()
        joined.append(fresh)
    for newcomers in (joined[:2], joined[2:]):
        world.admit(*newcomers)
        under_load(BASE_MS)
        leader = world.leader()
        assert leader is not None
        assert leader.raft is not None
        voters = [world.members[each] for each in leader.raft.configuration.voters]
        world.change(*voters, *newcomers)
        under_load(BASE_MS)
        assert world.changes[-2:] == ["", ""]
        down = next(
            member for member in world.members.values() if member is not world.leader() and member.raft
        )
        world.crash(down)
        under_load(BASE_MS)
        down.start()
        under_load(BASE_MS)
    leader = world.leader()
    assert leader is not None
    keep = [leader, *(member for member in world.members.values() if member is not leader)]
    for count in (3, 1):
        world.change(*keep[:count])
        under_load(2 * BASE_MS)
        assert world.changes[-1] == ""
    assert leader.raft is not None
    assert [voter.name for voter in leader.raft.configuration.voters] == [leader.member.name]
    commit(world)
    assert len(set(tokens) & set(world.judge.acknowledged)) > 100
    world.judge.end()


@pytest.mark.parametrize(
    ("voters", "reason"),
    [
        ("abcd", "4 voters bear no more crashes than 3"),
        ("ab", "2 voters bear no more crashes than 1"),
        ("", "allowed are 1 to 7"),
        ("abcde", "does not receive the log yet"),
        ("aabb", "a name stands twice"),
    ],
)
def test_a_change_that_makes_it_weaker_is_refused(voters: str, reason: str) -> None:
    """Refused with the reason, and nothing is appended."""
    world = settled("abc")
    a = lead(world, "a")
    assert a.raft is not None
    for name in "de":
        fresh = Member(world, MemberId(name, bytes(16)), Image(a.disk.snapshot))
        world.members[fresh.member] = fresh
        fresh.start()
    last = a.raft.log.last_index
    world.change(*(world.named(name) for name in voters))
    assert reason in world.changes[-1]
    assert a.raft.log.last_index == last


@pytest.mark.parametrize(("voters", "is_begun"), [("bc", False), ("bde", False), ("b", True)])
def test_a_leader_hands_over_for_a_change_that_can_begin_only(voters: str, is_begun: bool) -> None:
    """RAFT.md, 7: one that would leave by a change which is refused leads on, and the reason is told."""
    world = settled("abc")
    a = lead(world, "a")
    assert a.raft is not None
    for name in "de":
        fresh = Member(world, MemberId(name, bytes(16)), Image(a.disk.snapshot))
        world.members[fresh.member] = fresh
        fresh.start()
    world.change(*(world.named(name) for name in voters))
    assert ("a would leave; b will lead" in world.changes[-1]) == is_begun
    world.run(2 * BASE_MS)
    assert (world.leader() is a) != is_begun


def test_a_configuration_says_where_its_members_listen() -> None:
    """P10.3: newcomers bring their addresses, who moved tells it, and whoever leaves takes its own along."""
    world = settled("abc")
    a = lead(world, "a")
    fresh = Member(world, MemberId("d", bytes(16)), Image(a.disk.snapshot))
    world.members[fresh.member] = fresh
    fresh.start()
    world.admit(fresh)
    world.run(2 * BASE_MS)
    assert a.raft is not None
    assert a.raft.configuration.endpoints_of(fresh.member) == ("sim://d",)
    assert a.raft.configuration.endpoints_of(a.member) == ()

    def learners(*addresses: tuple[MemberId, tuple[str, ...]]) -> str:
        assert a.raft is not None
        index = a.raft.log.configuration_index
        a.step(LearnersRequested(world.now_ns, world.token(), index, (fresh.member,), addresses))
        world.run(BASE_MS)
        return world.changes[-1]

    assert learners((a.member, ("sim://elsewhere",))) == ""
    assert a.raft.configuration.endpoints_of(a.member) == ("sim://elsewhere",)
    assert a.raft.configuration.endpoints_of(fresh.member) == ("sim://d",)
    assert "neither voter nor learner" in learners((MemberId("x", b""), ("sim://x",)))
    assert "allowed are 1 to 8" in learners((a.member, ()))
    assert "allowed are 1 to 8" in learners((a.member, ("sim://a",) * 9))
    assert "of 255" in learners((a.member, ("sim://" + 250 * "a",)))

    world.change(a, world.named("b"), fresh)
    world.run(2 * BASE_MS)
    assert world.changes[-1] == ""
    world.admit()
    world.run(2 * BASE_MS)
    assert a.raft.configuration.addresses == (
        (a.member, ("sim://elsewhere",)),
        (fresh.member, ("sim://d",)),
    )
    world.change(a)
    world.run(2 * BASE_MS)
    assert a.raft.configuration.addresses == ((a.member, ("sim://elsewhere",)),)


def test_a_change_without_those_it_needs_is_refused() -> None:
    """Fewer than the new quorums are alive and current: it would stop at once."""
    world = settled("abcde")
    lead(world, "a")
    for name in "bc":
        world.crash(world.named(name))
    world.run(2 * BASE_MS)
    world.change(*(world.named(name) for name in "abc"))
    assert "1 of the 3 new voters are up to date" in world.changes[-1]


def test_a_wiped_incarnation_is_never_admitted_again() -> None:
    """KAFKA-19850: who was replaced stays out, also under its old name."""
    world = settled()
    lead(world, "b")
    old = world.named("a").member
    fresh = world.wipe(world.named("a"))
    fresh.start()
    world.admit(fresh)
    world.run(2 * BASE_MS)
    world.change(fresh, world.named("b"), world.named("c"))
    world.run(2 * BASE_MS)
    assert world.changes[-1] == ""
    world.members[old] = Member(world, old, Image(Snapshot(0, 0, Configuration((old,)), ())))
    world.admit(world.members[old])
    assert "never comes back" in world.changes[-1]


def test_a_snapshot_that_takes_long_counts_however_late() -> None:
    """Story 14, RAFT.md, 8: the follower loads for minutes; nobody stops it, nobody starts it over, and
    the leader keeps its place."""
    world = settled()
    lead(world, "a")
    world.crash(world.named("c"))
    commit(world, 5)
    for name in "ab":
        member = world.named(name)
        member.save_snapshot()
        assert member.raft is not None
        member.raft.log.let_go(member.raft.log.snapshot_index, member.raft.log.snapshot_index + 1)
    c = world.named("c")
    fetches: list[int] = []
    fetch = world.fetch
    world.fetch = lambda member, source, index: (
        fetches.append(index)
        or world.later(  # type: ignore[method-assign]
            60_000, lambda: fetch(member, source, index)
        )
    )
    c.start()
    world.run(30_000)
    assert world.leader() is world.named("a")
    world.run(60_000)
    assert c.state == world.named("a").state
    assert len(set(fetches)) == 1


def test_what_a_cut_takes_back_takes_its_configuration_back() -> None:
    """I77: the newest configuration in the log holds; when its entry is cut, the one before holds again."""
    log = RaftLog(THREE)
    other = Configuration((A,))
    log.append([Entry(1, 1, b"x"), Entry(2, 1, other)])
    assert log.configuration == other
    log.cut(1)
    assert log.configuration == THREE
    assert log.configuration_index == 0
