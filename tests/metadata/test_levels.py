"""The level of a cluster: what it lets through, whom it leaves out, and who stands in the way of raising it (P10.8)."""

from __future__ import annotations

from typing import get_args

import pytest

from embedbk.codec.metadata_messages import (
    BUSY,
    Acknowledged,
    Acquire,
    Claimed,
    KeepAlive,
    MetadataReply,
    MetadataRequest,
    OpenSession,
    Refusal,
    SessionOpened,
)
from embedbk.codec.quorum_messages import (
    IN_THE_WAY_MAX,
    ChangeVoters,
    Governance,
    JoinAsLearner,
    QuorumTold,
    RaiseLevel,
)
from embedbk.codec.repair_messages import MarkRepairs, RepairsTaken, TakeRepairs
from embedbk.errors import StorageError
from embedbk.metadata import commands
from embedbk.metadata.catalog import Catalog, Limits
from embedbk.metadata.client import Client
from embedbk.metadata.commands import (
    LEVEL_OF,
    RULES,
    Changing,
    Command,
    RaiseTo,
    Run,
    StartSession,
    encode_command,
)
from embedbk.metadata.governing import REFUSED, Governing
from embedbk.metadata.levels import LACKING, LEVEL, LEVEL_FIRST
from embedbk.metadata.loading import load
from embedbk.metadata.quorum import MemberId
from embedbk.metadata.raft_vocabulary import Entry
from embedbk.metadata.vocabulary import (
    Closed,
    Completed,
    Connected,
    Halted,
    MemberStarted,
    MessageReceived,
    RaiseRequested,
    Reply,
    Send,
    Tick,
    WatchCancelled,
    WatchRequested,
)
from tests.metadata.alone import log_of_one
from tests.metadata.test_member import LINK, Desk
from tests.quorum.test_governing import Office, name_of, refused

OLDER = Limits(level_known=LEVEL_FIRST)
REQUEST = MetadataRequest(0, 7, 1, RaiseLevel(LEVEL))


def pieces(catalog: Catalog) -> list[bytes]:
    cut = catalog.cut()
    found = list(iter(cut.next_piece, None))
    catalog.end_cut()
    return found


# --- The catalog ------------------------------------------------------------------------------------------


def test_a_level_is_raised_once_and_never_lowered() -> None:
    """I83: "which never falls"; P10.8: "one transaction has raised the cluster's level"."""
    catalog = Catalog()
    assert catalog.level == LEVEL_FIRST
    for level in (LEVEL, LEVEL, LEVEL_FIRST):
        assert catalog.apply(RaiseTo(level), 1, 1) == Acknowledged(0)
        assert catalog.level == LEVEL


def test_until_it_is_raised_the_build_before_reads_everything_and_then_nothing() -> None:
    """P10.8: "Until then the build before can come back"; METADATA.md, 8: "refuses its own log or snapshot"."""
    catalog = Catalog()
    catalog.apply(StartSession(0, 1000, "a", b"s", LEVEL), 1, 1)
    before = pieces(catalog)
    assert load(before, OLDER).fast_digest == catalog.fast_digest
    catalog.apply(RaiseTo(LEVEL), 2, 1)
    after = pieces(catalog)
    assert after[0] != before[0], "the digest of the head"
    assert (len(after), after[2:]) == (len(before) + 1, before[1:])
    restored = load(after)
    assert (restored.level, restored.digest()) == (LEVEL, catalog.digest())
    for broken in (lambda: load(after, OLDER), lambda: Catalog(OLDER).apply(RaiseTo(LEVEL), 1, 1)):
        with pytest.raises(
            StorageError, match=f"raised to {LEVEL}; this embedbk knows levels 1 to 1: start the"
        ):
            broken()


def test_a_level_that_is_none_or_stands_elsewhere_is_no_snapshot() -> None:
    catalog = Catalog()
    catalog.apply(RaiseTo(LEVEL), 1, 1)
    head, level = pieces(catalog)
    for wrong in ([head, level, level], [head, level.replace(bytes([LEVEL]), b"\x01")], [head]):
        with pytest.raises(StorageError):
            load(wrong)


def test_states_that_differ_in_the_level_alone_are_told_apart() -> None:
    """I72: a member that did not apply the command must not serve beside those that did."""
    one, other = Catalog(), Catalog()
    other.apply(RaiseTo(LEVEL), 1, 1)
    assert one.fast_digest != other.fast_digest
    assert one.digest() != other.digest()


def test_who_does_not_know_the_level_in_force_gets_no_session_at_the_last_look_either() -> None:
    """P10.8: decided where the command stands in the log, whatever a leader thought when it proposed it."""
    catalog = Catalog()
    catalog.apply(RaiseTo(LEVEL), 1, 1)
    result = catalog.apply(StartSession(0, 1000, "old", b"s"), 2, 1)
    code, text = refused(result)
    assert code == LACKING
    assert text.startswith(
        f"old knows levels 1 to 1, and the cluster's level is {LEVEL}: start a build that knows it"
    )
    assert not catalog.sessions
    assert catalog.apply(StartSession(0, 1000, "new", b"s", LEVEL), 3, 1) == Acknowledged(0)


def test_every_command_and_operation_says_which_level_brings_it() -> None:
    """P10.8: the next command tag has a row before it has a reader."""
    assert set(LEVEL_OF) == {*get_args(Command), *get_args(Changing)}
    assert all(LEVEL_FIRST <= level <= LEVEL for level in LEVEL_OF.values())


def test_what_a_level_brings_is_refused_before_it_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.8: "a feature is used only after one transaction has raised the cluster's level"."""
    monkeypatch.setitem(commands.LEVEL_OF, Acquire, LEVEL)
    catalog = Catalog()
    catalog.apply(StartSession(0, 1000, "a", b"s", LEVEL), 1, 1)
    first = catalog.apply(Run(1, 1, 1, Acquire("x", b""), commands.RULES), 2, 1)
    text = f"Acquire needs level {LEVEL}, and the cluster's level is 1: embedbk quorum raise, when all nodes know it"
    assert refused(first) == (LACKING, text)
    assert catalog.revision == 0
    catalog.apply(RaiseTo(LEVEL), 3, 1)
    assert isinstance(catalog.apply(Run(1, 1, 1, Acquire("x", b""), commands.RULES), 4, 1), Claimed)


# --- A leader and its clients ------------------------------------------------------------------------------


def raised(desk: Desk) -> tuple[str, str] | None:
    """What an operator is told; None: it is done."""
    effects = desk.step(RaiseRequested(desk.now_ns, LEVEL, LINK, REQUEST))
    [reply] = [each for each in [*effects, *desk.sync()] if isinstance(each, Reply)]
    if isinstance(reply.reply.result, Refusal):
        return refused(reply.reply.result)
    assert isinstance(reply.reply.result, Acknowledged)
    return None


def test_a_client_of_an_older_build_stands_in_the_way_by_its_name() -> None:
    """P10.8: "when all nodes have them"; a session belongs to one process, so what it said counts while it lives."""
    desk = Desk()
    session = desk.open()
    assert desk.member.lacking(LEVEL) == ["test (knows level 1)"]
    said = (LACKING, f"the level cannot be raised to {LEVEL}: in the way are test (knows level 1)")
    assert raised(desk) == said
    assert desk.member.catalog.level == LEVEL_FIRST
    desk.do(KeepAlive(LEVEL), session)
    assert raised(desk) is None
    assert desk.member.catalog.level == LEVEL


def test_a_session_that_is_being_opened_stands_in_the_way_too() -> None:
    """P10.8: its command stands before the one that raises the level, and no look at the catalog shows it."""
    desk = Desk()
    assert desk.do(OpenSession(1000, "first", 0, LEVEL))
    desk.ask(OpenSession(1000, "late"))
    assert desk.member.lacking(LEVEL) == ["late (not heard yet)"]


def test_a_leader_believes_nobody_whom_it_has_not_heard() -> None:
    """METADATA.md, 8: what clients know is in no state that an older member could have lost."""
    desk = Desk()
    session = desk.do(OpenSession(10_000, "b1", 0, LEVEL))
    assert isinstance(session, SessionOpened)
    assert desk.member.lacking(LEVEL) == []
    after = Desk(desk.member.catalog)
    after.secrets[session.session] = session.secret
    assert after.member.lacking(LEVEL) == ["b1 (not heard yet)"]
    after.do(KeepAlive(LEVEL), session.session)
    assert after.member.lacking(LEVEL) == []


def test_an_older_client_is_refused_at_once_and_writes_nothing() -> None:
    """P10.8: "refuses to serve": a leader that knows the level logs no command for whoever does not."""
    desk = Desk()
    assert raised(desk) is None
    last = desk.log.raft.log.last_index
    assert refused(desk.do(OpenSession(1000, "old")))[0] == LACKING
    assert desk.log.raft.log.last_index == last


def test_a_client_that_is_too_old_ends_and_says_why() -> None:
    """METADATA.md, 8: "LACKING; its client ends": this build will never know the level, so it does not ask again."""
    client = Client(ttl_ms=1000, label="old", level=LEVEL_FIRST)
    [sent] = [each for each in client.step(Connected(0)) if isinstance(each, Send)]
    assert sent.request.operation == OpenSession(1000, "old", 1, LEVEL_FIRST, gathers=True)
    refusal = Refusal(LACKING, "too old")
    effects = client.step(MessageReceived(1, MetadataReply(0, sent.request.sequence, refusal)))
    assert effects == [Closed("too old")]
    assert client.deadline_ns is None


def test_who_watches_is_told_that_its_client_is_too_old() -> None:
    """METADATA.md, 8: "its client ends": a tail would wait for ever for the next ledger of its log. The reason comes
    first, so that one line says it, however many watch."""
    client = Client(ttl_ms=1000, label="old", level=LEVEL_FIRST)
    client.step(WatchRequested(0, "gone", "/j/"))
    client.step(WatchRequested(0, "w", "/k/"))
    client.step(WatchCancelled(0, "gone"))
    sent = [each for each in client.step(Connected(0)) if isinstance(each, Send)]
    refusal = Refusal(LACKING, "too old")
    effects = client.step(MessageReceived(1, MetadataReply(0, sent[0].request.sequence, refusal)))
    assert effects == [Closed("too old"), Completed("w", refusal)]


def test_a_member_that_does_not_know_the_level_serves_no_more() -> None:
    """P10.8: whoever skipped the command would have another state; so would whoever knows no such command."""
    unknown = encode_command(RaiseTo(LEVEL)).replace(
        b"\x14", b"\x7e"
    )  # The tag, 20, as one of a later build.
    for body in (encode_command(RaiseTo(LEVEL)), unknown):
        desk = Desk(Catalog(OLDER))
        desk.log.propose(body, "", [])
        [halted] = [
            each
            for each in [*desk.step(RaiseRequested(0, LINK, REQUEST, 1)), *desk.sync()]
            if isinstance(each, Halted)
        ]
        assert "this embedbk knows levels 1 to 1" in halted.reason or "no metadata command" in halted.reason
        assert desk.member.catalog.level == LEVEL_FIRST


# --- Members ------------------------------------------------------------------------------------------------


class Levels:
    """What the members of an office say they know, and what its leader answers."""

    def __init__(self, names: str = "abc") -> None:
        self.office, self.catalog = Office(names), Catalog()
        self.known: dict[MemberId, int] = dict.fromkeys(self.office.world.members, LEVEL)
        self.clients: list[str] = []
        self.office.governing = {
            name: Governing(b"t" * 16, (), lambda: self.catalog, lambda: self.known, lambda _: self.clients)
            for name in "abcdef"
        }

    def ask(self, operation: Governance) -> tuple[str, str] | None:
        """None: it is proposed, or done."""
        event, result = self.office.begin(self.office.leader(), operation)
        assert (event is None) != (result is None)
        return refused(result) if isinstance(result, Refusal) else None

    def in_the_way(self) -> tuple[str, ...]:
        return self.office.status().in_the_way

    @property
    def follower(self) -> MemberId:
        return next(each for each in self.office.world.members if each != self.office.leader().member)


def test_every_voter_has_to_be_heard_and_to_know_it() -> None:
    """P10.8: "when all have it"; "cannot tell" is never "no"."""
    levels = Levels()
    told = levels.office.status()
    assert (told.level, told.level_known, told.in_the_way) == (LEVEL_FIRST, LEVEL, ())
    levels.known[levels.follower] = LEVEL_FIRST
    older = f"member {levels.follower.name} (knows level 1)"
    assert levels.in_the_way() == (older,)
    text = f"the level cannot be raised to {LEVEL}: in the way are {older}"
    assert levels.ask(RaiseLevel(LEVEL)) == (LACKING, text)
    del levels.known[levels.follower]
    refusal = levels.ask(RaiseLevel(LEVEL))
    assert refusal == (REFUSED, text.replace("knows level 1", "not heard")), "it may be asked again"
    levels.known[levels.follower] = LEVEL
    levels.office.world.crash(levels.office.world.members[levels.follower])
    levels.office.world.run(3000)
    assert levels.in_the_way() == (f"member {levels.follower.name} (not heard)",), (
        "a level of a process that is gone"
    )


def test_a_level_that_nobody_knows_is_refused_and_one_that_stands_is_done() -> None:
    """P10.8: what was given, what is allowed."""
    levels = Levels("a")
    for wrong in (0, LEVEL + 1):
        text = f"level {wrong}: a, which leads, knows levels 1 to {LEVEL}"
        assert levels.ask(RaiseLevel(wrong)) == ("BAD_REQUEST", text)
    levels.catalog.apply(RaiseTo(LEVEL), 1, 1)
    levels.clients = ["old (knows level 1)"]
    assert levels.ask(RaiseLevel(LEVEL)) is None
    assert levels.ask(RaiseLevel(LEVEL_FIRST)) is None
    assert levels.in_the_way() == ()


def test_a_new_cluster_begins_with_the_newest_level_that_all_know() -> None:
    """METADATA.md, 8: "its leader proposes the newest level by itself, under the same conditions, once in a term, as
    long as no ledger id was given out"."""

    def begun(levels: Levels) -> object:
        leader = levels.office.leader()
        assert leader.raft is not None
        return levels.office.governing[leader.member.name].begin_level(7, leader.raft)

    levels = Levels()
    levels.known[levels.follower] = LEVEL_FIRST
    assert begun(levels) is None
    levels.known[levels.follower] = LEVEL
    levels.clients = ["old (knows level 1)"]
    assert begun(levels) is None
    levels.clients = []
    assert begun(levels) == RaiseRequested(7, LEVEL)
    assert begun(levels) is None, "twice in one term"
    used = Levels()
    used.catalog.next_id += 1
    assert begun(used) is None, "the build before may come back to a ledger"
    raised_before = Levels()
    raised_before.catalog.apply(RaiseTo(LEVEL), 1, 1)
    assert begun(raised_before) is None


def test_a_level_that_nobody_asked_for_is_proposed_and_told_to_clients() -> None:
    """METADATA.md, 8: "The answers to OpenSession and KeepAlive tell each client the level"."""
    desk = Desk()
    assert desk.step(RaiseRequested(desk.now_ns, LEVEL)), "it is logged"
    desk.sync()
    assert desk.member.catalog.level == LEVEL
    opened = desk.do(OpenSession(10_000, "new", 0, LEVEL))
    assert isinstance(opened, SessionOpened)
    assert opened.level == LEVEL
    alive = desk.do(KeepAlive(LEVEL), opened.session)
    assert isinstance(alive, Acknowledged)
    assert alive.level == LEVEL
    older = Desk()
    older.open()
    older.step(RaiseRequested(older.now_ns, LEVEL))
    older.sync()
    assert older.member.catalog.level == LEVEL_FIRST, "a session of an older build stands in the way"


def test_a_leader_that_has_not_applied_the_log_before_it_raises_nothing() -> None:
    """METADATA.md, 8: "Before it has applied what stood in the log when it began to lead, it does not even know whom to
    hear, and raises nothing": a client of the build before may have its session there."""
    desk = Desk(log=log_of_one(entries=(Entry(1, 0, None),)))
    desk.step(MemberStarted(desk.now_ns))
    desk.step(RaiseRequested(desk.now_ns, LEVEL))
    assert raised(desk) == (
        LACKING,
        f"the level cannot be raised to {LEVEL}: in the way are clients of the leader before (not heard yet)",
    )
    desk.sync()
    assert desk.member.catalog.level == LEVEL_FIRST
    desk.step(RaiseRequested(desk.now_ns, LEVEL))
    desk.sync()
    assert desk.member.catalog.level == LEVEL


def test_a_leader_refuses_nothing_by_a_level_that_its_log_may_raise() -> None:
    """METADATA.md, 8: "A leader that has not applied what stood in the log when it began to lead puts it off instead".
    Seed 37100801: a worker was told LACKING, its request stood in the log, and what it was handed nobody repaired."""
    before = (
        RaiseTo(LEVEL),
        StartSession(0, 10_000, "worker", b"s" * 16, LEVEL),
        Run(3, 1, 1, MarkRepairs(((7, ("b1",)),)), RULES),
        Run(3, 2, 1, TakeRepairs(1), RULES),
    )
    entries = [Entry(1, 1, None), *(Entry(at, 1, encode_command(each)) for at, each in enumerate(before, 2))]
    desk = Desk(log=log_of_one(commits=False, entries=entries))
    desk.sequence = 0  # Nothing was written yet.
    desk.step(MemberStarted(desk.now_ns))
    desk.step(Tick(desk.now_ns))  # It is elected.
    desk.secrets[3] = b"s" * 16
    (put_off,) = desk.ask(TakeRepairs(1), 3, repeat=2)
    assert isinstance(put_off, Reply)
    assert isinstance(put_off.reply.result, Refusal)
    assert put_off.reply.result.code == BUSY
    desk.sync()
    (answered,) = desk.ask(TakeRepairs(1), 3, repeat=2)
    assert isinstance(answered, Reply)
    assert isinstance(answered.reply.result, RepairsTaken)
    assert [ledger_id for ledger_id, _, _ in answered.reply.result.marks] == [7]


def test_a_member_of_an_older_build_neither_joins_nor_votes_once_it_is_raised() -> None:
    """P10.8, D13: one that was wiped comes back with the build before: it is told so before it receives the log."""
    levels = Levels("a")
    levels.catalog.apply(RaiseTo(LEVEL), 1, 1)
    b = levels.office.newcomer("b")
    joins = levels.office.join(b)
    assert joins.level == LEVEL_FIRST
    text = f"member b knows levels 1 to 1, and the cluster's level is {LEVEL}: start a build that knows it; a level is "
    assert levels.ask(joins) == (LACKING, text + "never lowered")
    newer = JoinAsLearner(joins.cluster_token, joins.member, joins.nonce, joins.endpoints, LEVEL)
    assert levels.office.ask(newer) == Acknowledged(0)
    told = levels.office.status()
    change = ChangeVoters(told.configuration, (*(each.member for each in told.members),), "", True)
    assert levels.ask(change) == (LACKING, text + "never lowered"), (
        "the process that is linked is of the build before"
    )
    levels.known[b.member] = LEVEL
    assert levels.office.ask(change) == Acknowledged(0)
    assert name_of(b.member) in [
        each.member for each in levels.office.status().members if each.role == "voter"
    ]


def test_a_leader_names_a_bounded_number_of_those_in_the_way() -> None:
    """A message has room for so many, and a sentence for a few."""
    levels = Levels("a")
    levels.clients = [f"c{number} (knows level 1)" for number in range(100)]
    told = levels.office.status()
    assert isinstance(told, QuorumTold)
    assert len(told.in_the_way) == IN_THE_WAY_MAX
    refusal = levels.ask(RaiseLevel(LEVEL))
    assert refusal is not None
    assert refusal[1].endswith("c7 (knows level 1) and 92 more")
