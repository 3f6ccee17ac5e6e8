"""A member on a log that several agree on: what is promised at once, what goes in together, who may renew."""

from __future__ import annotations

import random
from typing import Any

import pytest

from embedbk.codec.metadata_messages import (
    BUSY,
    Acknowledged,
    Acquire,
    Claimed,
    Get,
    KeepAlive,
    MetadataReply,
    MetadataRequest,
    NotLeader,
    OpenSession,
    Operation,
    Put,
    Refusal,
    Release,
    SessionOpened,
    Txn,
    TxnDone,
    Value,
)
from embedbk.metadata import leading as leading_module
from embedbk.metadata import pending_requests
from embedbk.metadata.agreed_log import AgreedLog
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.command_log import Committed, LeadershipChanged, ReadIndexed
from embedbk.metadata.commands import StartMember, StartSession, decode_command, encode_command
from embedbk.metadata.levels import LEVEL
from embedbk.metadata.member import Member
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_vocabulary import (
    Append,
    AppendReply,
    Body,
    Boot,
    Durable,
    Entry,
    Heartbeat,
    HeartbeatReply,
    Message,
    Persist,
    PreVoteReply,
    Received,
    Send,
    TransferRequested,
    VoteReply,
)
from embedbk.metadata.vocabulary import (
    DropLinks,
    MemberStarted,
    RaiseRequested,
    Reply,
    RequestReceived,
    Tick,
    TurnEnded,
)
from tests.metadata.world import MS, TOKEN

BASE_MS = 500


class Stand:
    """One member of one or three, whose disk and whose others do what the test says."""

    def __init__(self, voters: int = 3) -> None:
        self.now_ms = 1_000.0
        ids = [MemberId(name, name.encode() * 4) for name in "abc"[:voters]]
        self.own, self.others = (
            Boot(ids[0], b"own"),
            [Boot(each, b"x" + each.incarnation) for each in ids[1:]],
        )
        configuration = Configuration(tuple(ids), election_base_ms=BASE_MS)
        self.raft = Raft(
            self.own, RaftLog(configuration), term=0, vote=None, now_ns=self.now_ns, chance=random.Random(1)
        )
        self.log = AgreedLog(self.raft)
        self.member = Member(
            Catalog(), log=self.log, now_ns=self.now_ns, cluster_token=TOKEN, chance=random.Random(2)
        )
        self.records: list[Persist] = []
        self.sent: list[Message] = []
        self.told: list[MetadataReply] = []
        self.links_ended = 0
        self.secrets: dict[int, bytes] = {}
        self.step(MemberStarted(self.now_ns))

    @property
    def now_ns(self) -> int:
        return int(self.now_ms * MS)

    def step(self, event: Any) -> None:
        for effect in self.member.step(event):
            match effect:
                case Persist():
                    self.records.append(effect)
                case Send(message):
                    self.sent.append(message)
                case Reply(_, reply):
                    self.told.append(reply)
                case DropLinks():
                    self.links_ended += 1

    def end_turn(self) -> None:
        self.step(TurnEnded(self.now_ns))

    def sync(self) -> None:
        self.step(Durable(self.now_ns, self.records[-1].sequence))

    def hear(self, body: Body, other: int = 0, term: int | None = None) -> None:
        message = Message(self.raft.term if term is None else term, self.others[other], self.own.member, body)
        self.step(Received(self.now_ns, message))

    def tick(self, after_ms: float = 0) -> None:
        self.now_ms += after_ms
        self.step(Tick(self.now_ns))

    def lead(self) -> None:
        """Elected by itself and one other, and what it begins with is committed by both."""
        self.tick(2 * BASE_MS)
        if self.others:
            self.hear(PreVoteReply(self.raft.term + 1, True))
            self.sync()
            self.hear(VoteReply(True, self.own.nonce))
        self.end_turn()
        self.commit()

    def commit(self) -> None:
        """Everything that was proposed."""
        self.end_turn()
        self.sync()
        if self.others:
            self.hear(AppendReply(True, self.raft.log.last_index))

    def confirm(self) -> None:
        """One other answers the newest round."""
        rounds = [each.body.round for each in self.sent if isinstance(each.body, Heartbeat)]
        self.hear(HeartbeatReply(rounds[-1], self.raft.log.last_index, False))

    def ask(self, operation: Operation, session: int = 0, sequence: int = 1) -> None:
        request = MetadataRequest(session, sequence, 1, operation, self.secrets.get(session, b""))
        self.step(RequestReceived(self.now_ns, 1, request))

    def open(self) -> int:
        self.ask(OpenSession(10_000, "test"))
        self.commit()
        opened = self.told.pop().result
        assert isinstance(opened, SessionOpened)
        self.secrets[opened.session] = opened.secret
        return opened.session


def put(key: str) -> Txn:
    return Txn([], [Put(key, b"")])


def test_what_is_proposed_in_one_turn_is_one_record_and_one_message() -> None:
    """METADATA.md, 1: appends, syncs and messages are shared by everything that came in one turn."""
    stand = Stand()
    stand.lead()
    session = stand.open()
    stand.sent.clear()
    before = len(stand.records)
    for sequence in range(1, 65):
        stand.ask(put(f"/{sequence}"), session, sequence)
    assert len(stand.records) == before
    assert stand.member.deadline_ns == 0, "the turn has to end"
    stand.end_turn()
    [record] = stand.records[before:]
    assert len(record.entries) == 64
    appends = [each.body for each in stand.sent if isinstance(each.body, Append) and each.body.entries]
    assert [len(body.entries) for body in appends if body is not None] == [64]
    stand.commit()
    assert [reply.result for reply in stand.told] == [TxnDone(True, n) for n in range(1, 65)]


def test_ten_thousand_proposals_of_one_turn_are_all_applied_in_slices() -> None:
    """APPLIED_PER_STEP, APPLY_BYTES_MAX: nothing holds the loop for long, and nothing is lost on the way."""
    stand = Stand(1)
    stand.lead()
    stand.end_turn()
    effects: list[Any] = []
    indexes = [stand.log.propose(b"%d" % n, "", effects) for n in range(10_000)]
    news = stand.log.step(TurnEnded(stand.now_ns), effects)
    [record] = [each for each in effects if isinstance(each, Persist)]
    news += stand.log.step(Durable(stand.now_ns, record.sequence), effects)
    while stand.log.deadline_ns == 0:
        news += stand.log.step(Tick(stand.now_ns), effects)
    entries = [entry for each in news if isinstance(each, Committed) for entry in each.entries]
    assert [(entry.index, entry.body) for entry in entries] == [(i, b"%d" % n) for n, i in enumerate(indexes)]


def test_the_only_voter_answers_a_read_at_once_and_wants_no_turns() -> None:
    """A quorum of one costs an idle member nothing, and a read no turn."""
    stand = Stand(1)
    assert stand.member.deadline_ns is not None, "it elects itself"
    stand.lead()
    assert stand.member.deadline_ns is None
    stand.ask(Get("/a"))
    assert [type(reply.result) for reply in stand.told] == [Value]


def test_the_only_voter_answers_nothing_before_it_knows_what_is_committed() -> None:
    """I75: what its log holds counts when its own first entry does."""
    stand = Stand(1)
    stand.tick()
    stand.ask(Get("/a"))
    stand.end_turn()
    assert not stand.told
    stand.sync()
    stand.end_turn()
    stand.sync()
    assert [type(reply.result) for reply in stand.told] == [Value]


def test_reads_of_one_turn_share_a_round() -> None:
    stand = Stand()
    stand.lead()
    stand.sent.clear()
    for _ in range(5):
        stand.ask(Get("/a"))
    stand.end_turn()
    rounds = {each.body.round for each in stand.sent if isinstance(each.body, Heartbeat)}
    assert len(rounds) == 1
    assert not stand.told
    stand.confirm()
    assert len(stand.told) == 5


def test_a_read_that_was_asked_in_the_turn_in_which_leadership_is_lost_is_not_answered() -> None:
    """I75: its round began, and whoever leads now may have committed since."""
    stand = Stand()
    stand.lead()
    session = stand.open()
    stand.ask(put("/a"), session, 1)
    stand.ask(Get("/a"))
    stand.hear(Heartbeat(0, 1), term=stand.raft.term + 1)
    stand.end_turn()
    assert stand.told == []
    assert stand.links_ended == 1
    stand.ask(Get("/a"))
    assert [reply.result for reply in stand.told] == [NotLeader("b")]


def test_what_was_proposed_before_leadership_is_lost_in_the_same_turn_stands_where_it_was_promised() -> None:
    """P10.1: nothing reaches the Raft before what was gathered, so an index that was promised is never another's."""
    stand = Stand()
    stand.lead()
    session = stand.open()
    last, term = stand.raft.log.last_index, stand.raft.term
    stand.ask(put("/a"), session, 1)
    stand.hear(Heartbeat(0, 1), term=term + 1)
    assert stand.raft.log.last_index == last + 1
    assert stand.raft.log.last_term == term
    assert not stand.member._proposals


def test_whoever_begins_to_lead_shows_and_renews_nothing_before_its_own_command_is_applied() -> None:
    """P7.7, METADATA.md, 1: until then it may lack what others have promised, the end of a session too."""
    stand = Stand()
    stand.lead()
    session = stand.open()
    stand.hear(Heartbeat(stand.raft.commit_index, 1), term=stand.raft.term + 1)
    stand.sync()
    stand.tick(2 * BASE_MS)
    stand.hear(PreVoteReply(stand.raft.term + 1, True))
    stand.sync()
    stand.hear(VoteReply(True, stand.own.nonce))
    stand.told.clear()
    stand.tick()
    stand.confirm()
    stand.ask(KeepAlive(), session, 1)
    stand.ask(Get("/a"))
    stand.end_turn()
    stand.confirm()
    assert stand.told == []
    stand.commit()
    stand.tick(BASE_MS / 10)
    stand.confirm()
    assert [type(reply.result) for reply in stand.told] == [Acknowledged, Value]
    last = stand.raft.log.between(stand.raft.log.last_index, stand.raft.log.last_index)[0]
    assert isinstance(last.body, bytes)
    assert isinstance(decode_command(last.body), StartMember)


def test_what_came_before_its_session_was_known_is_run_before_what_came_behind_it() -> None:
    """METADATA.md, 6: "So the operations of a session stand in the log in its order, whichever members led." Else the
    release of a caller that gave up overtakes its Acquire, and the lock is held by nobody that wants it."""
    stand = Stand()
    start = encode_command(StartSession(0, 10_000, "test", b"secret", LEVEL))
    before = (Entry(1, 1, None), Entry(session := 2, 1, start))
    stand.hear(Append(0, 0, before, 0), term=1)
    stand.sync()
    stand.tick(2 * BASE_MS)
    stand.hear(PreVoteReply(2, True))
    stand.sync()
    stand.hear(VoteReply(True, stand.own.nonce))
    stand.end_turn()
    stand.sync()
    stand.secrets[session] = b"secret"
    stand.ask(put("/before"), session, 1)
    stand.ask(Acquire("lock", b""), session, 2)
    stand.end_turn()
    assert session not in stand.member.catalog.sessions
    stand.hear(AppendReply(True, stand.raft.log.last_index - 1))
    assert session in stand.member.catalog.sessions, "known now, and what came before still waits"
    stand.ask(Release("lock", 0), session, 3)
    for _ in range(4):
        stand.commit()
        stand.tick(BASE_MS / 10)
        stand.confirm()
    told = [(reply.sequence, type(reply.result)) for reply in stand.told]
    assert told == [(1, TxnDone), (2, Claimed), (3, TxnDone)]
    assert stand.member.catalog.get("/locks/lock").record is None
    stand.ask(put("/behind"), session, 4)
    stand.commit()
    assert stand.told[-1].result == TxnDone(True, stand.member.catalog.revision), "nothing waits any more"


def test_a_leader_that_is_cut_off_renews_nobody() -> None:
    """METADATA.md, 1: half an election base after it was last confirmed another may have been elected."""
    stand = Stand()
    stand.lead()
    session = stand.open()
    stand.tick(BASE_MS / 10)
    stand.confirm()
    stand.ask(KeepAlive(), session, 1)
    assert [type(reply.result) for reply in stand.told] == [Acknowledged]
    stand.tick(BASE_MS / 2)
    stand.ask(KeepAlive(), session, 2)
    assert len(stand.told) == 2, "half a base is not over"
    stand.now_ms += 1
    stand.ask(KeepAlive(), session, 3)
    stand.end_turn()
    assert len(stand.told) == 2
    stand.confirm()
    assert len(stand.told) == 3, "it waited for the next word of the others"


def test_an_answer_to_an_older_round_confirms_that_round_and_no_later_one() -> None:
    stand = Stand()
    stand.lead()
    stand.tick(BASE_MS / 10)
    first = [each.body.round for each in stand.sent if isinstance(each.body, Heartbeat)][-1]
    begun_ns = stand.now_ns
    stand.tick(BASE_MS / 10)
    stand.hear(HeartbeatReply(first, 0, False))
    assert stand.raft.is_confirmed(begun_ns)
    assert not stand.raft.is_confirmed(begun_ns + 1)


def test_what_has_no_room_in_the_log_is_put_off_and_not_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """UNCOMMITTED_BYTES_MAX: said before anything is promised; what was gathered counts."""
    monkeypatch.setattr(leading_module, "UNCOMMITTED_BYTES_MAX", 150)
    stand = Stand()
    stand.lead()
    session = stand.open()
    for sequence in range(1, 30):
        stand.ask(put(f"/{sequence}"), session, sequence)
    busy = [reply for reply in stand.told if isinstance(reply.result, Refusal) and reply.result.code == BUSY]
    assert 0 < len(busy) < 29
    assert busy == stand.told
    stand.told.clear()
    stand.commit()
    assert len(stand.told) == 29 - len(busy)
    stand.ask(put("/again"), session, 30)
    stand.commit()
    assert isinstance(stand.told[-1].result, TxnDone)


def test_a_read_that_was_put_off_is_no_more_when_its_round_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was told BUSY at once; the word of the others for it ended the member."""
    monkeypatch.setattr(pending_requests, "REPLIES_WAITING_MAX", 2)
    stand = Stand()
    stand.lead()
    for _ in range(6):
        stand.ask(Get("/a"))
    busy = len(stand.told)
    assert 0 < busy < 6
    stand.end_turn()
    stand.confirm()
    assert [type(reply.result) for reply in stand.told[busy:]] == [Value] * (6 - busy)


def test_while_leadership_is_handed_over_changes_are_put_off() -> None:
    stand = Stand()
    stand.lead()
    session = stand.open()
    stand.step(TransferRequested(stand.now_ns, stand.others[0].member))
    stand.ask(put("/a"), session, 1)
    [reply] = stand.told
    assert isinstance(reply.result, Refusal)
    assert reply.result.code == BUSY
    assert "leadership goes to b" in reply.result.text
    stand.now_ms += 20_000
    stand.end_turn()
    assert stand.member.deadline_ns is not None
    assert stand.raft.deadline_ns == stand.member.deadline_ns, "no end of a session is due meanwhile"


def test_while_leadership_is_handed_over_no_level_is_begun() -> None:
    """What is promised an index is logged there: the refusal of a level that nobody asked for ended the member (seed
    64000591)."""
    stand = Stand()
    stand.lead()
    stand.step(TransferRequested(stand.now_ns, stand.others[0].member))
    last = stand.raft.log.last_index
    stand.step(RaiseRequested(stand.now_ns, LEVEL))
    stand.end_turn()
    assert stand.raft.log.last_index == last


def test_a_log_tells_its_member_of_reads_and_of_who_leads() -> None:
    stand = Stand()
    effects: list[Any] = []
    stand.lead()
    assert stand.log.read_index(7, effects) is None
    news = stand.log.step(TurnEnded(stand.now_ns), effects)
    [sent] = {each.message.body.round for each in effects if isinstance(each, Send)}
    answer = Message(stand.raft.term, stand.others[0], stand.own.member, HeartbeatReply(sent, 0, False))
    news = stand.log.step(Received(stand.now_ns, answer), effects)
    assert news == [ReadIndexed(7, stand.raft.commit_index)]
    over = Message(stand.raft.term + 1, stand.others[1], stand.own.member, Heartbeat(0, 1))
    news = stand.log.step(Received(stand.now_ns, over), effects)
    assert news == [LeadershipChanged()]
    assert stand.log.term == 0
    assert stand.log.not_leader == NotLeader("c")
