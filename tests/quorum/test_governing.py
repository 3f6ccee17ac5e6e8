"""Who asks for a change of the members, and what is answered (RAFT.md, section 7; P10.3)."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import msgspec
import pytest

from embedbk.codec.metadata_messages import (
    Acknowledged,
    MetadataRequest,
    NotLeader,
    Operation,
    Refusal,
    Result,
)
from embedbk.codec.quorum_messages import (
    ChangeLearners,
    ChangeVoters,
    Governance,
    JoinAsLearner,
    MemberName,
    QuorumStatus,
    QuorumTold,
    TransferLeadership,
)
from embedbk.errors import OperationTimeout
from embedbk.metadata.governing import (
    REFUSED,
    RETIRED,
    TAKEN,
    TAKEN_OUT_BYTES_MAX,
    WAITING_MAX,
    Governing,
)
from embedbk.metadata.log_records import encode_configuration
from embedbk.metadata.membership import CONFIGURATION_BYTES_MAX
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_vocabulary import Boot, ChangeEnded, Durable, Event, Persist, Tick
from embedbk.quorum import Quorum, Seen
from embedbk.storage.snapshot_format import SnapshotHeader
from tests.quorum.world import Image, Member, Snapshot, World

TOKEN = b"t" * 16
NOBODY = NotLeader("")


def name_of(member: MemberId) -> MemberName:
    return MemberName(member.name, member.incarnation)


def at(name: str) -> tuple[str, ...]:
    return (f"sim://{name}",)


class Office:
    """The governing of each member of a world."""

    def __init__(self, names: str = "a") -> None:
        self.world = World(1, names)
        self.governing = {name: Governing(TOKEN, at(name)) for name in "abcdefgh"}
        self.world.run(3000)

    def leader(self) -> Member:
        [found] = [m for m in self.world.members.values() if m.raft is not None and m.raft.role == "leader"]
        return found

    def begin(
        self, member: Member, operation: Governance, link: int = 1
    ) -> tuple[Event | None, Result | None]:
        assert member.raft is not None
        governing = self.governing[member.member.name]
        request = MetadataRequest(0, 7, 1, operation)
        event, reply = governing.ask(self.world.now_ns, link, request, member.raft, NOBODY)
        return event, reply.reply.result if reply is not None else None

    def ask(self, operation: Governance, member: Member | None = None) -> Result:
        """Ask, and let the world go on until the change ended."""
        member = member or self.leader()
        event, result = self.begin(member, operation)
        if event is not None:
            before = len(self.world.changes)
            member.step(event)
            self.world.run(2000)
            if result is None:
                assert len(self.world.changes) == before + 1
                ended = ChangeEnded(event.token, self.world.changes[-1])  # type: ignore[union-attr]
                reply = self.governing[member.member.name].hear(ended)
                assert reply is not None
                assert (reply.link, reply.reply.sequence) == (1, 7)
                result = reply.reply.result
        assert result is not None
        return result

    def status(self, member: Member | None = None) -> QuorumTold:
        told = self.ask(QuorumStatus(), member or self.leader())
        assert isinstance(told, QuorumTold)
        return told

    def newcomer(self, name: str) -> Member:
        """A member with an empty disk that knows nobody."""
        member = MemberId(name, os.urandom(16))
        made = Member(self.world, member, Image(Snapshot(0, 0, Configuration(()), ())))
        self.world.members[member] = made
        made.start()
        return made

    def join(
        self,
        joiner: Member,
        *,
        token: bytes = TOKEN,
        member: MemberName | None = None,
        nonce: bytes | None = None,
        at: tuple[str, ...] | None = None,
    ) -> JoinAsLearner:
        here = (f"sim://{joiner.member.name}",)
        return JoinAsLearner(
            token,
            member or name_of(joiner.member),
            joiner.boot.nonce if nonce is None else nonce,
            here if at is None else at,
        )


def refused(result: Result) -> tuple[str, str]:
    assert isinstance(result, Refusal)
    return result.code, result.text


def test_one_grows_to_three_by_one_change_and_everybody_can_be_asked_how_it_stands() -> None:
    """RAFT.md, 7: two learners, then one joint change {A} to {A, B, C}; all addresses are known, also of who was
    alone."""
    office = Office()
    b, c = office.newcomer("b"), office.newcomer("c")
    assert office.ask(office.join(b)) == Acknowledged(0)
    assert office.ask(office.join(c)) == Acknowledged(0)
    told = office.status()
    assert [(each.member.name, each.role, each.endpoints) for each in told.members] == [
        ("a", "voter", at("a")),
        ("b", "learner", at("b")),
        ("c", "learner", at("c")),
    ]
    assert all(each.is_heard and each.index == told.last_index for each in told.members)
    voters = tuple(each.member for each in told.members)
    assert office.ask(ChangeVoters(told.configuration, voters)) == Acknowledged(0)
    told = office.status()
    assert [each.role for each in told.members] == ["voter"] * 3
    assert (told.role, told.leader, told.is_joint, told.policy) == ("leader", "a", False, "majority")
    seen = office.status(b)
    assert (seen.role, seen.leader, seen.members[0].endpoints) == ("follower", "a", at("a"))
    assert office.ask(ChangeVoters(told.configuration, voters), b) == NOBODY
    assert office.ask(TransferLeadership(voters[2])) == Acknowledged(0)
    assert office.leader() is c


def test_the_only_voter_leaves_for_nobody_who_does_not_vote_beside_it() -> None:
    """RAFT.md, 7: a leader that leaves hands leadership over, which only a voter can have."""
    office = Office()
    joined = office.newcomer("b")
    assert office.ask(office.join(joined)) == Acknowledged(0)
    office.world.run(2000)
    wanted = ChangeVoters(office.status().configuration, (name_of(joined.member),))
    assert "let one of them vote beside it first" in refused(office.ask(wanted))[1]


def test_who_asks_twice_changes_nothing() -> None:
    office = Office()
    b = office.newcomer("b")
    leader = office.leader()
    event, result = office.begin(leader, office.join(b))
    assert result is None
    assert event is not None
    leader.step(event)
    again = office.ask(office.join(b))
    assert again == Acknowledged(0), "effective when appended"
    office.world.run(1000)
    configuration = office.status().configuration
    assert office.ask(office.join(b)) == Acknowledged(0)
    assert office.status().configuration == configuration
    b.crash()
    b.start()
    office.world.run(
        600
    )  # Its process before is not heard any more, which its links would have told at once.
    assert office.ask(office.join(b, at=("sim://b", "sim://b2"))) == Acknowledged(0)
    assert office.status().members[1].endpoints == ("sim://b", "sim://b2"), "it moved"


def test_who_must_not_join_is_told_why_and_what_to_do() -> None:
    """Story 6, P10.3, P7.9: another cluster's, a name that is heard, a copy of a directory, whoever was
    taken out."""
    office = Office("abc")
    leader = office.leader()
    d = office.newcomer("d")
    assert refused(office.ask(office.join(d, token=b"x" * 16)))[0] == "WRONG_TOKEN"
    assert refused(office.ask(office.join(d, token=b"")))[0] == "WRONG_TOKEN"
    assert (
        "'d d' is not allowed" in refused(office.ask(office.join(d, member=MemberName("d d", b"i" * 16))))[1]
    )
    assert "3 bytes" in refused(office.ask(office.join(d, member=MemberName("d", b"inc"))))[1]
    assert "0 endpoints" in refused(office.ask(office.join(d, at=())))[1]
    assert "allowed are 1 to 8" in refused(office.ask(office.join(d, at=tuple("123456789"))))[1]
    other = next(m for m in office.world.members.values() if m.raft is not None and m not in (leader, d))
    code, text = refused(office.ask(office.join(d, member=MemberName(other.member.name, b"i" * 16))))
    assert code == TAKEN
    assert "choose another with --name" in text
    for copied in (leader, other):
        code, text = refused(office.ask(office.join(copied, nonce=b"another!", at=("sim://copy",))))
        assert code == TAKEN
        assert "the same directory or a copy of it" in text
    assert office.ask(office.join(d)) == Acknowledged(0)
    told = office.status()
    assert office.ask(ChangeLearners(told.configuration, ())) == Acknowledged(0)
    assert refused(office.ask(office.join(d)))[0] == RETIRED


@pytest.mark.parametrize(
    "nobody",
    [
        MemberName("x", b"short"),
        MemberName("x", b""),
        MemberName("", b"i" * 16),
        MemberName("a/b", b"i" * 16),
    ],
)
def test_what_can_be_no_member_is_refused_before_it_is_logged(nobody: MemberName) -> None:
    """METADATA.md, 2: a start refuses a log with it, so the only member would never serve again."""
    office = Office()
    before = office.status()
    voters = (name_of(office.leader().member), nobody)
    for asked in (
        ChangeLearners(before.configuration, (nobody,)),
        ChangeVoters(before.configuration, voters, "", allows_even=True),
    ):
        refused = office.ask(asked)
        assert isinstance(refused, Refusal)
        assert refused.code == "BAD_REQUEST" and refused.text.endswith("nothing was changed")
    assert office.status().last_index == before.last_index


def test_a_wiped_member_comes_back_under_its_name_as_another_learner() -> None:
    """P10.3: its old self is not heard any more, and keeps its vote until an operator replaces it."""
    office = Office("abc")
    leader = office.leader()
    old = next(m for m in office.world.members.values() if m is not leader)
    office.world.crash(old)
    office.world.run(2000)
    fresh = office.newcomer(old.member.name)
    del office.world.members[old.member]
    assert office.ask(office.join(fresh)) == Acknowledged(0)
    told = office.status()
    assert [each.role for each in told.members] == ["voter"] * 3 + ["learner"]
    voters = tuple(
        name_of(fresh.member) if each.member == name_of(old.member) else each.member
        for each in told.members
        if each.role == "voter"
    )
    assert office.ask(ChangeVoters(told.configuration, voters)) == Acknowledged(0)
    assert office.status().members[-1].role == "voter"


def test_a_change_that_is_refused_says_why_and_one_under_a_lost_leadership_is_asked_elsewhere() -> None:
    office = Office("abc")
    leader = office.leader()
    told = office.status()
    voters = tuple(each.member for each in told.members)
    two = tuple(sorted(voters, key=lambda each: each.name != leader.member.name)[:2])
    code, text = refused(office.ask(ChangeVoters(told.configuration + 1, voters)))
    assert code == REFUSED
    assert "look again" in text
    assert "even number" in refused(office.ask(ChangeVoters(told.configuration, two)))[1]
    assert "allowed are majority" in refused(office.ask(ChangeVoters(told.configuration, voters, "most")))[1]
    stranger = MemberName("x", b"x" * 16)
    assert "x is no voter" in refused(office.ask(TransferLeadership(stranger)))[1]
    others = [each for each in voters if each.name != leader.member.name]
    office.world.crash(office.world.named(others[0].name))
    office.world.run(600)
    assert "is not heard" in refused(office.ask(TransferLeadership(others[0])))[1]
    event, result = office.begin(leader, ChangeVoters(told.configuration, voters), link=5)
    assert (event is not None, result) == (True, None)
    [reply] = office.governing[leader.member.name].lose(NOBODY)
    assert (reply.link, reply.reply.result) == (5, NOBODY)
    assert office.governing[leader.member.name].lose(NOBODY) == []
    for _ in range(WAITING_MAX):
        office.begin(leader, ChangeVoters(told.configuration, voters), link=6)
    assert "try again later" in refused(office.begin(leader, ChangeVoters(0, ()))[1] or NOBODY)[1]
    office.governing[leader.member.name].end_link(6)
    assert office.begin(leader, ChangeVoters(0, ()))[1] is None


def test_a_change_that_was_refused_until_the_end_says_why_and_not_that_nobody_answered() -> None:
    """RAFT.md, 7: the last question may be cut short by the time limit."""
    told = Office().status()
    results = [Refusal(REFUSED, "another change is under way"), None]

    class Late(Quorum):
        def look_for_leader(self) -> tuple[Seen, QuorumTold]:
            return Seen({told.member: told}, told, {}), told

        def ask(
            self, endpoints: Sequence[str], operation: Operation, *, is_patient: bool = True
        ) -> Result | None:
            result = results.pop(0)
            self._until_ns = 0 if result is None else self._until_ns
            return result

    quorum = Late(["tcp://127.0.0.1:1"], 60.0)
    with pytest.raises(OperationTimeout, match="was not done in time: another change is under way"):
        quorum.change(lambda leader: ChangeLearners(leader.configuration, ()), "the change")


def test_leadership_goes_to_nobody_that_lags() -> None:
    """RAFT.md, 7: while a transfer waits for a member nothing is proposed; who asks for it again and again, as the
    command does, would let nothing be committed."""
    office = Office("abc")
    leader, world = office.leader(), office.world
    slow = next(each for each in world.members.values() if each is not leader)
    slow.sync_ms = 60_000
    for _ in range(5):
        world.propose()
        world.run(500)
    for _ in range(5):
        assert f"{slow.member.name} lags" in refused(office.ask(TransferLeadership(name_of(slow.member))))[1]
        assert leader.raft is not None and leader.raft.why_full(1, 0) == ""
    slow.sync_ms = 1
    slow.sync()
    world.run(2000)
    assert office.ask(TransferLeadership(name_of(slow.member))) == Acknowledged(0)
    world.run(2000)
    assert office.leader() is slow


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 4, 6, 8, 12, 20])
def test_a_leader_that_is_killed_while_others_join_leaves_a_change_that_is_whole_or_was_none(
    after_ms: float,
) -> None:
    """Story 8, P10.3, I77: at whatever moment; asking again makes it so, and nobody votes whom no
    change let in."""
    office = Office("abc")
    d, e = office.newcomer("d"), office.newcomer("e")
    leader = office.leader()
    event, _ = office.begin(leader, office.join(d))
    assert event is not None
    leader.step(event)
    office.world.run(after_ms)
    office.world.crash(leader)
    office.world.run(3000)
    for joiner in (d, e):
        assert office.ask(office.join(joiner)) == Acknowledged(0)
    leader.start()
    office.world.run(1000)
    told = office.status()
    assert sorted(each.role for each in told.members) == ["learner"] * 2 + ["voter"] * 3
    everybody = tuple(each.member for each in told.members)
    leader = office.leader()
    event, _ = office.begin(leader, ChangeVoters(told.configuration, everybody))
    assert event is not None
    leader.step(event)
    office.world.run(after_ms)
    office.world.crash(leader)
    office.world.run(3000)
    told = office.status()
    assert not told.is_joint
    assert sum(each.role == "voter" for each in told.members) in (3, 5)
    assert office.ask(ChangeVoters(told.configuration, everybody)) == Acknowledged(0)
    assert [each.role for each in office.status().members] == ["voter"] * 5


ENOUGH = 64  # Members that are more than what is left below a bound has room for.
NAMED_BYTES = len(msgspec.msgpack.encode(MemberId("b", bytes(16))))


class Crowded:
    """The only voter of a cluster that took so many members out, all of one name."""

    def __init__(self, taken_out: int) -> None:
        self.own = MemberId("a", b"a" * 16)
        gone = tuple(MemberId("b", number.to_bytes(16, "big")) for number in range(taken_out))
        log = RaftLog(Configuration((self.own,), retired=gone))
        boot = Boot(self.own, b"start")
        self.raft = Raft(boot, log, term=0, vote=None, now_ns=0, chance=random.Random(0))
        self.governing = Governing(TOKEN, at("a"))
        self.step(Tick(0))

    @property
    def size(self) -> int:
        return len(encode_configuration(self.raft.configuration))

    def step(self, event: Event) -> list[ChangeEnded]:
        """With a disk that syncs at once."""
        ended: list[ChangeEnded] = []
        effects = self.raft.step(event)
        while effects:
            ended += [each for each in effects if isinstance(each, ChangeEnded)]
            records = [each for each in effects if isinstance(each, Persist)]
            effects = [each for record in records for each in self.raft.step(Durable(0, record.sequence))]
        return ended

    def ask(self, operation: Governance) -> Result:
        request = MetadataRequest(0, 1, 1, operation)
        event, reply = self.governing.ask(0, 1, request, self.raft, NOBODY)
        if event is not None:
            (ended,) = self.step(event)
            reply = self.governing.hear(ended)
        assert reply is not None
        return reply.reply.result

    def begin_empty(self, name: str) -> Result:
        """A member of this name starts with an empty directory, and asks to be let in."""
        return self.ask(JoinAsLearner(TOKEN, MemberName(name, os.urandom(16)), b"start", at(name)))

    def change(self) -> Result:
        """An operator has the voter that is there vote alone, which takes nobody out, yet asks for a joint change."""
        voters = tuple(map(name_of, self.raft.configuration.voters))
        return self.ask(ChangeVoters(self.raft.log.configuration_index, voters))


def test_a_learner_that_begins_empty_again_and_again_fills_no_snapshot() -> None:
    """RAFT.md, 9 (TAKEN_OUT_BYTES_MAX): everybody who was taken out is named in the configuration for good, and a
    snapshot has 64 KiB for it: beyond them none could be written any more, and the log would grow for ever."""
    crowded = Crowded((TAKEN_OUT_BYTES_MAX - 400) // NAMED_BYTES)
    answers = [crowded.begin_empty("b")]
    while answers[-1] == Acknowledged(0) and len(answers) < ENOUGH:
        answers.append(crowded.begin_empty("b"))
    assert crowded.size < TAKEN_OUT_BYTES_MAX + 100
    assert len(answers) > 2
    code, text = refused(answers[-1])
    assert code == REFUSED
    assert f"allowed are {TAKEN_OUT_BYTES_MAX}" in text and "another name with --name" in text
    assert crowded.begin_empty("c") == Acknowledged(0), "another name takes nobody out"
    expected = crowded.raft.log.configuration_index
    assert crowded.ask(ChangeLearners(expected, ())) == Acknowledged(0), "an operator still can"
    assert crowded.change() == Acknowledged(0)


def test_no_change_makes_a_configuration_that_no_snapshot_could_hold() -> None:
    """RAFT.md, 9 (CONFIGURATION_BYTES_MAX): the member that cuts the snapshot could not write it."""
    crowded = Crowded((CONFIGURATION_BYTES_MAX - 400) // NAMED_BYTES)
    for _ in range(ENOUGH):
        assert crowded.begin_empty("c") == Acknowledged(0)
        learners = crowded.raft.configuration.learners
        answer = crowded.ask(ChangeLearners(crowded.raft.log.configuration_index, ()))
        if answer != Acknowledged(0):
            break
    for each in (answer, crowded.change()):
        code, text = refused(each)
        assert code == REFUSED
        assert f"allowed are {CONFIGURATION_BYTES_MAX}" in text and "empty directories" in text
    assert crowded.raft.configuration.learners == learners, "nothing was changed"
    config = encode_configuration(crowded.raft.configuration)
    assert SnapshotHeader(TOKEN, crowded.own.incarnation, 1, 1, 1, 0, 0, config).encode()
