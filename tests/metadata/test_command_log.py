"""A member and the log that its commands stand in: of a quorum of one, and one that loses what was proposed."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from embedbk.codec.metadata_messages import (
    ABSENT,
    Allocated,
    AllocIds,
    CloseSession,
    Compare,
    Get,
    KeepAlive,
    MetadataReply,
    MetadataRequest,
    NotLeader,
    OpenSession,
    Operation,
    Put,
    Refusal,
    Result,
    SessionOpened,
    Tell,
    Told,
    Txn,
    TxnDone,
    Value,
    Watch,
)
from embedbk.metadata import member as member_module
from embedbk.metadata.catalog import GENERATION_BITS, Catalog
from embedbk.metadata.command_log import Committed, Entry, LeadershipChanged, LogNews, ReadIndexed
from embedbk.metadata.commands import ExpireSession, Run, decode_command, encode_command
from embedbk.metadata.member import Member
from embedbk.metadata.raft_vocabulary import Durable, Persist
from embedbk.metadata.vocabulary import (
    DropLinks,
    LinkLost,
    MemberStarted,
    Reply,
    RequestReceived,
    SendEvents,
    Tick,
    TurnEnded,
)
from tests.metadata.alone import log_of_one
from tests.metadata.world import SECOND, TOKEN


@dataclass
class News:
    """What the log of the test has to tell."""

    now_ns: int
    news: list[LogNews]


@dataclass
class LossyLog:
    """One of a quorum of several, as far as its member sees it: the test says what is committed, in which term, and
    what is lost."""

    term: int = 1
    committed_index: int = 0
    members: tuple[str, ...] = ()
    entries: list[Entry] = field(default_factory=list)  # Of them, those above committed_index may be lost.
    rounds: list[int] = field(default_factory=list)  # Reads that wait for a word.
    deadline_ns: int | None = None
    grace_ns: int = 0
    session_ns_min: int = 0
    is_confirmed: bool = True
    full: str = ""
    not_leader: ClassVar[NotLeader] = NotLeader("m2")

    def propose(self, body: bytes, said: str, effects: list[Any]) -> int:
        assert self.term
        self.entries.append(Entry(len(self.entries) + 1, self.term, body))
        return len(self.entries)

    def may_renew(self, now_ns: int) -> bool:
        return self.is_confirmed

    def why_full(self, size: int) -> str:
        return self.full

    def read_index(self, token: int, effects: list[Any]) -> int | None:
        self.rounds.append(token)
        return None

    def step(self, event: Any, effects: list[Any]) -> list[LogNews]:
        return event.news if isinstance(event, News) else []


class Stand:
    """A member on such a log; links keep what they were told."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.log = LossyLog()
        self.member = Member(Catalog(), log=self.log, now_ns=0, cluster_token=TOKEN, chance=random.Random(1))
        self.told: list[tuple[int, MetadataReply]] = []
        self.sent: list[SendEvents] = []
        self.sent_away: list[
            tuple[int, int]
        ] = []  # (session, sequence) of whoever was told that another leads.
        self.links_ended = 0
        self.secrets: dict[int, bytes] = {}

    def step(self, event: object) -> None:
        for effect in self.member.step(event):  # type: ignore[arg-type]
            if isinstance(effect, Reply) and isinstance(effect.reply.result, NotLeader):
                assert not self.log.term
                self.sent_away.append((effect.reply.session, effect.reply.sequence))
            elif isinstance(effect, DropLinks):
                self.links_ended += 1
            elif isinstance(effect, Reply):
                self.told.append((effect.link, effect.reply))
            else:
                assert isinstance(effect, SendEvents)
                self.sent.append(effect)

    def ask(
        self, operation: Operation, session: int = 0, sequence: int = 1, *, link: int = 1, below: int = 1
    ) -> None:
        request = MetadataRequest(session, sequence, below, operation, self.secrets.get(session, b""))
        self.step(RequestReceived(self.now_ns, link, request))

    def commit(self, count: int | None = None) -> None:
        """So many more entries of the log, all when None."""
        begin = self.log.committed_index
        end = len(self.log.entries) if count is None else begin + count
        self.log.committed_index = end
        self.step(News(self.now_ns, [Committed(self.log.entries[begin:end])]))
        self.confirm()

    def confirm(self) -> None:
        """The reads that wait are told up to where."""
        news: list[LogNews] = [ReadIndexed(token, self.log.committed_index) for token in self.log.rounds]
        self.log.rounds.clear()
        self.step(News(self.now_ns, news))

    def depose(self, keep: int = 0) -> None:
        """Another member leads; so many of what is not committed stand in its log, before its first entry."""
        del self.log.entries[self.log.committed_index + keep :]
        self.log.entries.append(Entry(len(self.log.entries) + 1, self.log.term + 1, None))
        self.log.rounds.clear()
        term, self.log.term = self.log.term, 0
        self.step(News(self.now_ns, [LeadershipChanged()]))
        self.next_term = term + 2

    def lead(self) -> None:
        self.log.term = self.next_term
        self.log.entries.append(Entry(len(self.log.entries) + 1, self.log.term, None))
        self.step(News(self.now_ns, [LeadershipChanged()]))

    def results(self) -> list[Result]:
        found = [reply.result for _, reply in self.told]
        self.told.clear()
        return found

    def open(self, ttl_ms: int = 16_000, link: int = 1) -> int:
        self.ask(OpenSession(ttl_ms, "test"), link=link)
        self.commit()
        [opened] = self.results()
        assert isinstance(opened, SessionOpened)
        self.secrets[opened.session] = opened.secret
        return opened.session


def put(key: str, value: bytes = b"") -> Txn:
    return Txn([], [Put(key, value)])


def create(key: str) -> Txn:
    return Txn([Compare(key, ABSENT)], [Put(key, b"")])


def value_of(result: Result) -> bytes | None:
    assert isinstance(result, Value)
    return result.record.value if result.record is not None else None


def code_of(result: Result) -> str:
    assert isinstance(result, Refusal)
    return result.code


def test_a_command_is_applied_when_it_is_committed_and_not_before() -> None:
    """P10.1: a deposed leader has nothing to take back."""
    stand = Stand()
    session = stand.open()
    digest = stand.member.catalog.digest()
    stand.ask(put("/a"), session, 1)
    stand.ask(AllocIds(5), session, 2)
    stand.ask(CloseSession(), session, 3)
    stand.ask(OpenSession(1000, "other"), link=2)
    assert stand.member.catalog.digest() == digest
    assert stand.results() == []
    stand.commit(1)
    assert stand.results() == [TxnDone(True, 1)]
    assert stand.member.catalog.next_id == 1


def test_what_was_lost_with_the_leadership_is_answered_by_nobody_and_run_once() -> None:
    """I74: it may come to pass or not; whoever asked asks again, and then it is run if it was not."""
    stand = Stand()
    session = stand.open()
    stand.ask(create("/kept"), session, 1)
    stand.ask(create("/lost"), session, 2)
    stand.ask(Get("/kept"), session, 3)
    stand.depose(keep=1)
    stand.commit()
    assert stand.results() == [], "applied, and told to nobody"
    assert stand.member.catalog.get("/kept").record is not None
    assert stand.member.catalog.get("/lost").record is None
    stand.ask(create("/kept"), session, 1)
    assert stand.results() == []
    assert stand.sent_away == [(session, 1)], "who does not lead says who does"
    stand.lead()
    for link in (1, 2):
        stand.ask(create("/kept"), session, 1, link=link)
        stand.ask(create("/lost"), session, 2, link=link)
    stand.commit()
    assert sorted(stand.results(), key=repr) == [TxnDone(True, 1)] * 2 + [TxnDone(True, 2)] * 2
    runs = [
        entry for entry in stand.log.entries if entry.body and isinstance(decode_command(entry.body), Run)
    ]
    assert len(runs) == 2


def test_a_request_that_two_leaders_logged_is_run_once() -> None:
    """I74: its client asked again while the first entry was not yet known to be committed."""
    stand = Stand()
    session = stand.open()
    stand.ask(AllocIds(5), session, 1)
    stand.depose(keep=1)
    stand.lead()
    stand.ask(AllocIds(5), session, 1)
    stand.commit()
    assert stand.results() == [Allocated(1, 5)]
    assert stand.member.catalog.next_id == 6


def test_what_stands_in_the_place_of_a_proposal_is_what_is_applied() -> None:
    """Another leader's entry has the index; the one that was proposed is not confirmed by it."""
    stand = Stand()
    session = stand.open()
    stand.ask(put("/own"), session, 1)
    other = encode_command(Run(session, 9, 1, put("/other"), 2))
    stand.log.entries[-1] = Entry(len(stand.log.entries), 2, other)
    stand.commit()
    assert stand.results() == []
    assert [record.key for record in stand.member.catalog.page("/").records] == ["/other"]


def test_a_read_waits_for_what_was_committed_when_it_came_and_for_no_more() -> None:
    """P10.1: linearizable. The log says up to where; what is only proposed by others is not waited for."""
    stand = Stand()
    one, other = stand.open(), stand.open(link=2)
    stand.ask(put("/a", b"1"), one, 1)
    stand.ask(Get("/a"), other, 1, link=2)
    stand.ask(Get("/a"))
    assert stand.results() == [], "it is not known yet who leads"
    stand.confirm()
    assert [value_of(result) for result in stand.results()] == [None, None]
    stand.ask(Get("/a"), other, 2, link=2)
    token = stand.log.rounds.pop()
    stand.step(News(0, [ReadIndexed(token, len(stand.log.entries))]))  # Committed, and not heard of here.
    assert stand.results() == []
    stand.commit()
    assert [value_of(result) for result in stand.results() if isinstance(result, Value)] == [b"1"]


def test_a_session_reads_what_it_wrote() -> None:
    """Operations of a session are served in the order in which they came: a read, a list and a watch behind a write of
    the same session wait for it, though everything committed could be shown."""
    stand = Stand()
    session = stand.open()
    stand.ask(put("/a", b"1"), session, 1)
    stand.ask(Get("/a"), session, 2)
    stand.ask(Watch(1, "/", 0), session, 3)
    stand.confirm()
    assert stand.results() == []
    stand.ask(put("/a", b"2"), session, 4)
    stand.commit(1)
    first, read, _ = stand.results()
    assert (first, value_of(read)) == (TxnDone(True, 1), b"1")
    stand.commit()
    assert [record.value for each in stand.sent for record in each.events.records] == [b"1", b"2"]


def test_reads_that_were_not_confirmed_are_dropped_with_the_leadership() -> None:
    """I75: an ex-leader answers nothing that a newer one may have changed."""
    stand = Stand()
    session = stand.open()
    stand.ask(Get("/a"), session, 1)
    stand.ask(put("/b"), session, 2)
    stand.ask(Get("/b"), session, 3)
    stand.confirm()
    stand.results()
    stand.ask(Get("/a"), session, 4)
    stand.depose()
    stand.commit()
    assert stand.results() == []
    assert stand.member._pending.count == stand.member._pending.bytes == 0
    assert stand.member._pending.of_link == {}


def test_what_others_committed_is_shown_to_watchers() -> None:
    """METADATA.md, 1: a watch on any member, of what is applied there."""
    stand = Stand()
    session = stand.open()
    stand.ask(Watch(1, "/", 0), session, 1)
    stand.confirm()
    stand.depose()
    stand.log.entries.append(
        Entry(len(stand.log.entries) + 1, 2, encode_command(Run(session, 1, 1, put("/a"), 2)))
    )
    stand.commit()
    assert [record.key for each in stand.sent for record in each.events.records] == ["/a"]


def test_an_expiry_that_lands_in_another_term_is_void() -> None:
    """METADATA.md, 1: by then another leader may have heard the session."""
    stand = Stand()
    session = stand.open()
    stand.now_ns = 17 * SECOND
    stand.step(Tick(stand.now_ns))
    expiry = stand.log.entries[-1]
    assert expiry.body is not None
    assert decode_command(expiry.body) == ExpireSession(session, 1)
    stand.depose()
    stand.log.entries.append(Entry(len(stand.log.entries) + 1, 2, expiry.body))
    stand.commit()
    assert session in stand.member.catalog.sessions
    stand.lead()
    stand.commit()
    stand.now_ns += 17 * SECOND - 1
    assert stand.member.deadline_ns == stand.now_ns + 1, "a whole ttl from the new leader on"
    stand.now_ns += 1
    stand.step(Tick(stand.now_ns))
    stand.commit()
    assert session not in stand.member.catalog.sessions


def test_nothing_renews_a_session_whose_end_is_proposed() -> None:
    """METADATA.md, 1: its client would count on a lease that the log may already have ended."""
    stand = Stand()
    session = stand.open()
    stand.now_ns = 17 * SECOND
    stand.step(Tick(stand.now_ns))
    stand.ask(KeepAlive(), session, 1)
    stand.ask(OpenSession(16_000, "test"))
    stand.confirm()
    assert not [result for result in stand.results() if not isinstance(result, SessionOpened)]
    stand.commit()
    gone, opened = stand.results()
    assert code_of(gone) == "SESSION_GONE"
    assert isinstance(opened, SessionOpened)
    assert opened.session != session


def test_who_opens_again_what_is_ending_is_told_when_it_has_ended() -> None:
    stand = Stand()
    stand.ask(OpenSession(16_000, "test", 5))
    stand.commit()
    [first] = stand.results()
    assert isinstance(first, SessionOpened)
    stand.now_ns = 17 * SECOND
    stand.step(Tick(stand.now_ns))
    stand.ask(OpenSession(16_000, "test", 5))
    stand.confirm()
    assert stand.results() == []
    stand.commit()
    stand.commit()
    [second] = stand.results()
    assert isinstance(second, SessionOpened)
    assert second.session != first.session


def test_one_sync_that_commits_much_is_applied_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """APPLIED_PER_STEP: nothing holds the loop for long; no snapshot is taken in between."""
    monkeypatch.setattr(member_module, "APPLIED_PER_STEP", 3)
    stand = Stand()
    session = stand.open()
    for sequence in range(1, 9):
        stand.ask(put("/a"), session, sequence)
    stand.step(News(0, [Committed(stand.log.entries[1:])]))
    counts = [len(stand.results())]
    while not stand.member.is_caught_up:
        assert stand.member.deadline_ns == 0
        stand.step(Tick(0))
        counts.append(len(stand.results()))
    assert counts == [3, 3, 2]


def test_a_generation_is_there_before_anything_is_shown() -> None:
    """P10.5: its start and its generation are two commands, of which the disk may have one."""
    log = log_of_one()
    member = Member(Catalog(), log=log, now_ns=0, cluster_token=TOKEN, chance=random.Random(1))
    started = member.step(MemberStarted(0, True))
    assert started == []
    [start] = member.step(TurnEnded(0))
    assert isinstance(start, Persist)
    assert len(start.entries) == 2
    tell = RequestReceived(0, 1, MetadataRequest(0, 1, 1, Tell(1)))
    assert member.step(tell) == []
    [reply] = member.step(Durable(0, start.sequence))
    assert isinstance(reply, Reply)
    assert isinstance(reply.reply.result, Told)
    assert reply.reply.result.revision >> GENERATION_BITS == 1


def test_a_read_beside_a_disk_that_stands_still_waits_for_nobody_elses_write() -> None:
    """What is committed can be shown: another client's reads go on while its writes wait for the disk."""
    member = Member(Catalog(), log=log_of_one(), now_ns=0, cluster_token=TOKEN, chance=random.Random(1))
    member.step(RequestReceived(0, 1, MetadataRequest(0, 1, 1, OpenSession(1000, "a"))))
    assert isinstance(member.step(TurnEnded(0))[0], Persist)
    assert len(member.step(RequestReceived(0, 2, MetadataRequest(0, 1, 1, Get("/a"))))) == 1


class Crowd:
    """Clients that ask until they are answered, of a member that leads, is deposed and leads again."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.stand = Stand()
        self.sessions = [self.stand.open(ttl_ms=600_000, link=link) for link in (1, 2, 3)]
        self.open: dict[tuple[int, int], Operation] = {}
        self.done: dict[tuple[int, int], Result] = {}
        self.asked: deque[tuple[int, tuple[int, int]]] = deque()  # (link, key) that wait for an answer.
        self.next_of = dict.fromkeys(self.sessions, 1)

    def act(self) -> None:
        stand, chance = self.stand, self.chance
        kind = chance.choices(["new", "again", "commit", "confirm", "depose", "link"], [6, 4, 4, 3, 1, 1])[0]
        if kind == "new":
            session = chance.choice(self.sessions)
            sequence = self.next_of[session]
            if sequence - self.below(session) < 100:
                self.next_of[session] += 1
                self.open[session, sequence] = chance.choice(
                    [AllocIds(1), create(f"/{session}/{sequence}"), Get(f"/{session}/{sequence - 1}")]
                )
                self.ask((session, sequence))
        elif kind == "again" and self.open:
            self.ask(chance.choice(list(self.open)))
        elif kind == "commit":
            stand.commit(chance.randint(0, len(stand.log.entries) - stand.log.committed_index))
        elif kind == "confirm":
            stand.confirm()
        elif kind == "depose" and stand.log.term:
            stand.depose(chance.randint(0, len(stand.log.entries) - stand.log.committed_index))
            self.asked.clear()
        elif kind == "depose":
            stand.lead()
        elif kind == "link":
            link = chance.choice([1, 2, 3])
            stand.step(LinkLost(0, link))
            self.asked = deque(each for each in self.asked if each[0] != link)
        self.hear()

    def below(self, session: int) -> int:
        return min((at for owner, at in self.open if owner == session), default=self.next_of[session])

    def ask(self, key: tuple[int, int]) -> None:
        link = self.chance.choice([1, 2, 3])
        if self.stand.log.term and (link, key) not in self.asked:
            self.asked.append((link, key))
        self.stand.ask(self.open[key], *key, link=link, below=self.below(key[0]))

    def hear(self) -> None:
        committed = {
            (command.session, command.sequence)
            for entry in self.stand.log.entries[: self.stand.log.committed_index]
            if entry.body and isinstance(command := decode_command(entry.body), Run)
        }
        for link, reply in self.stand.told:
            key = (reply.session, reply.sequence)
            assert (link, key) in self.asked, "an answer that nobody waits for, or a second one"
            self.asked.remove((link, key))
            if not isinstance(reply.result, Value):
                assert key in committed, "answered and not committed"
                assert self.done.setdefault(key, reply.result) == reply.result
            operation = self.open.pop(key, None)
            if isinstance(operation, Get) and operation.key.rpartition("/")[2] != "0":
                session, sequence = key
                before = self.done.get((session, sequence - 1))
                if isinstance(before, TxnDone):
                    assert isinstance(reply.result, Value)
                    assert reply.result.record is not None, "an answered write is not shown"
        self.stand.told.clear()

    def finish(self) -> None:
        if not self.stand.log.term:
            self.stand.lead()
        while self.open:
            for key in list(self.open):
                self.ask(key)
            self.stand.commit()
            self.hear()


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_lost_is_asked_again_and_run_once(seed: int) -> None:
    """I74, I75: nothing is answered that is not committed, no request of a link twice, and each is run once."""
    crowd = Crowd(seed)
    for _ in range(400):
        crowd.act()
    crowd.finish()
    member = crowd.stand.member
    ids = [result.first_id for result in crowd.done.values() if isinstance(result, Allocated)]
    assert sorted(ids) == list(range(1, member.catalog.next_id)), "each run once, and each is told"
    created = [result for result in crowd.done.values() if isinstance(result, TxnDone)]
    assert sorted(result.revision for result in created) == list(range(1, member.catalog.revision + 1))
    assert all(result.is_done for result in created)
    assert member._pending.of_link == member._proposals._runs == member._proposals._last_of == {}
    assert (member._pending.count, member._pending.bytes, len(member._proposals.queue)) == (0, 0, 0)
    twin = Catalog()
    for entry in crowd.stand.log.entries:
        if entry.body:
            twin.apply(decode_command(entry.body), entry.index, entry.term)
    assert twin.digest() == member.catalog.digest()
