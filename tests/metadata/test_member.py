"""A quorum of one: what is durable before it is answered, sessions and their ends, watches and their bounds."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.metadata_messages import (
    ABSENT,
    BUSY,
    Acknowledged,
    Allocated,
    AllocIds,
    CloseSession,
    Compare,
    Delete,
    Get,
    KeepAlive,
    List,
    MetadataReply,
    MetadataRequest,
    OpenSession,
    Operation,
    Put,
    Refusal,
    Result,
    SessionOpened,
    Txn,
    TxnDone,
    Unwatch,
    Value,
    Watch,
    WatchEvents,
)
from embedbk.metadata import openings, pending_requests, timed_commands
from embedbk.metadata import streams as streams_module
from embedbk.metadata.agreed_log import AgreedLog
from embedbk.metadata.catalog import GENERATION_BITS, Catalog, Limits
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import BeginGeneration, StartSession
from embedbk.metadata.lifetimes import AWAY_NS
from embedbk.metadata.member import Member
from embedbk.metadata.raft_vocabulary import Durable, Persist
from embedbk.metadata.vocabulary import (
    Halted,
    JournalFailed,
    LinkLost,
    Remark,
    Reply,
    RequestReceived,
    SendEvents,
    Tick,
    TurnEnded,
)
from tests.metadata.alone import log_of_one
from tests.metadata.world import MS, SECOND, TOKEN

LINK = 1


class Desk:
    """A member at a desk: requests by hand, a disk that syncs when told."""

    def __init__(
        self, catalog: Catalog | None = None, now_ns: int = 0, *, log: AgreedLog | None = None
    ) -> None:
        self.now_ns = now_ns
        self.log = log or log_of_one(now_ns)
        self.sequence = 1  # Of the last record.
        self.member = Member(
            catalog or Catalog(), log=self.log, now_ns=now_ns, cluster_token=TOKEN, chance=random.Random(1)
        )
        self.sequences: dict[int, int] = {}
        self.secrets: dict[int, bytes] = {}
        self.sent: list[Reply | SendEvents] = []

    def step(self, event: object) -> list[object]:
        """Also the end of the turn. Without what is only said for people."""
        effects = self.member.step(event)  # type: ignore[arg-type]
        if self.log.has_gathered:
            effects += self.member.step(TurnEnded(self.now_ns))
        self.sequence += sum(isinstance(effect, Persist) for effect in effects)
        self.sent += [effect for effect in effects if isinstance(effect, Reply | SendEvents)]
        return [effect for effect in effects if not isinstance(effect, Remark)]

    def ask(
        self, operation: Operation, session: int = 0, *, link: int = LINK, repeat: int = 0
    ) -> list[object]:
        sequence = repeat or self.sequences.get(session, 0) + 1
        self.sequences[session] = max(sequence, self.sequences.get(session, 0))
        request = MetadataRequest(session, sequence, 1, operation, self.secrets.get(session, b""))
        return self.step(RequestReceived(self.now_ns, link, request))

    def sync(self) -> list[object]:
        effects = self.step(Durable(self.now_ns, self.sequence))
        while self.log.deadline_ns == 0:  # Much is applied in slices.
            effects += self.step(Tick(self.now_ns))
        return effects

    def do(self, operation: Operation, session: int = 0, *, link: int = LINK, repeat: int = 0) -> Result:
        first = self.ask(operation, session, link=link, repeat=repeat)
        [reply] = [effect for effect in [*first, *self.sync()] if isinstance(effect, Reply)]
        return reply.reply.result

    def open(self, ttl_ms: int = 10_000) -> int:
        result = self.do(OpenSession(ttl_ms, "test"))
        assert isinstance(result, SessionOpened)
        self.secrets[result.session] = result.secret
        return result.session

    def tick(self, after_ns: int) -> list[object]:
        """Let time pass, with a Tick at every deadline on the way, as a host does."""
        effects = []
        until = self.now_ns + after_ns
        while (at := self.member.deadline_ns) is not None and at <= until:
            self.now_ns = max(at, self.now_ns)
            effects += self.step(Tick(self.now_ns))
        self.now_ns = until
        return effects

    def events(self, watch_id: int) -> list[WatchEvents]:
        found = [
            effect.events
            for effect in self.sent
            if isinstance(effect, SendEvents) and effect.events.watch_id == watch_id
        ]
        self.sent = [sent for sent in self.sent if not isinstance(sent, SendEvents)]
        return found


def put(key: str, value: bytes = b"", *, ephemeral: bool = False) -> Txn:
    return Txn([], [Put(key, value, ephemeral)])


def kinds(effects: list[object]) -> list[type]:
    return [type(effect) for effect in effects]


def code_of(result: Result) -> str:
    assert isinstance(result, Refusal)
    return result.code


def test_an_answer_leaves_in_the_step_that_hears_of_durability() -> None:
    """P10.1 and ARCHITECTURE 3: an answer that promises durability is produced by the step that hears of it."""
    desk = Desk()
    session = desk.open()
    assert kinds(desk.ask(put("/a"), session)) == [Persist]
    assert desk.step(Durable(0, desk.sequence - 1)) == []
    assert desk.sync() == [Reply(LINK, MetadataReply(session, 1, TxnDone(True, 1)))]


def test_a_read_waits_for_the_changes_it_has_seen() -> None:
    """P10.1: linearizable; nobody sees a value that a crash could take back."""
    desk = Desk()
    session = desk.open()
    assert [type(effect) for effect in desk.ask(Get("/a"), session)] == [Reply]  # Nothing is under way.
    desk.ask(put("/a", b"1"), session)
    assert desk.ask(Get("/a"), session) == []
    assert desk.ask(List("/"), session) == []
    write, get, listed = desk.sync()
    assert isinstance(write, Reply)
    assert isinstance(get, Reply)
    assert isinstance(listed, Reply)
    assert isinstance(get.reply.result, Value)
    assert get.reply.result.record is not None
    assert get.reply.result.record.value == b"1"
    assert get.reply.result.revision == 1


def test_many_requests_share_one_sync() -> None:
    desk = Desk()
    session = desk.open()
    for n in range(50):
        assert kinds(desk.ask(put(f"/{n}"), session)) == [Persist]
    replies = desk.sync()
    assert [reply.reply.sequence for reply in replies if isinstance(reply, Reply)] == list(range(1, 51))


def test_a_repeat_is_not_logged_and_waits_for_its_first_run() -> None:
    """I74: a retried command changes state at most once, also when its first answer was never sent."""
    desk = Desk()
    session = desk.open()
    create = Txn([Compare("/a", ABSENT)], [Put("/a", b"")])
    desk.ask(create, session)
    desk.step(LinkLost(0, LINK))
    assert desk.ask(create, session, link=2, repeat=1) == []
    assert desk.sync() == [Reply(2, MetadataReply(session, 1, TxnDone(True, 1)))]
    assert kinds(desk.ask(create, session, link=2, repeat=1)) == [Reply], "its answer is known"
    assert desk.do(create, session, link=2, repeat=1) == TxnDone(True, 1)
    assert desk.do(create, session, link=2) == TxnDone(False, 1)


def test_a_bad_request_is_answered_and_not_logged() -> None:
    desk = Desk()
    session = desk.open()
    assert kinds(desk.ask(Txn([], [Put("no path", b"")]), session)) == [Reply]
    assert kinds(desk.ask(List("/", "", 0), session)) == [Reply]
    assert code_of(desk.do(AllocIds(0), session)) == "BAD_REQUEST"
    assert desk.do(AllocIds(2), session) == Allocated(1, 2)


def test_without_a_session_one_can_only_read() -> None:
    desk = Desk()
    assert isinstance(desk.do(Get("/a")), Value)
    for operation in (put("/a"), AllocIds(1), CloseSession()):
        assert code_of(desk.do(operation)) == "SESSION_GONE"
    for operation in (put("/a"), AllocIds(1), KeepAlive(), Watch(1, "/", 0), CloseSession()):
        assert code_of(desk.do(operation, session=77)) == "SESSION_GONE"


def test_a_session_ttl_is_kept_within_bounds() -> None:
    desk = Desk()
    results = [desk.do(OpenSession(ttl_ms, "x")) for ttl_ms in (1, 5_000, 10**9)]
    assert [result.ttl_ms for result in results if isinstance(result, SessionOpened)] == [200, 5_000, 600_000]
    assert len({result.session for result in results if isinstance(result, SessionOpened)}) == 3


def test_a_silent_session_expires_after_its_ttl_and_a_sixteenth() -> None:
    """METADATA.md: the leader expires no earlier than ttl * 17/16 after it last heard; expiry is a log entry."""
    desk = Desk()
    session = desk.open(ttl_ms=16_000)
    desk.do(put("/eph", ephemeral=True), session)
    assert desk.tick(17 * SECOND - 1) == []
    [expiry] = desk.tick(1)
    assert isinstance(expiry, Persist)
    assert desk.ask(KeepAlive(), session) == []  # Its outcome waits for the expiry's.
    [reply] = desk.sync()
    assert isinstance(reply, Reply)
    assert code_of(reply.reply.result) == "SESSION_GONE"
    found = desk.do(Get("/eph"))
    assert isinstance(found, Value)
    assert found.record is None


def test_whatever_a_session_asks_keeps_it_alive() -> None:
    desk = Desk()
    session = desk.open(ttl_ms=16_000)
    for operation in (KeepAlive(), Get("/a"), put("/a"), KeepAlive()):
        assert desk.tick(16 * SECOND) == []
        desk.do(operation, session)
    assert kinds(desk.tick(17 * SECOND)) == [Persist]


def test_a_start_gives_every_session_a_fresh_ttl() -> None:
    """METADATA.md: a new leader cannot know how long nobody was there to hear them (Chubby's grace)."""
    first = Desk()
    session = first.open(ttl_ms=16_000)
    catalog = Catalog.restore(first.member.catalog.snapshot())
    desk = Desk(catalog, now_ns=1000 * SECOND)
    assert desk.tick(17 * SECOND - 1) == []
    assert kinds(desk.tick(1)) == [Persist]
    assert session in catalog.sessions, "until that is committed"
    desk.sync()
    assert session not in catalog.sessions


def test_a_member_that_slept_expires_nobody() -> None:
    """P9.1: a stopped process heard nobody; that says nothing of them."""
    desk = Desk()
    desk.open(ttl_ms=16_000)
    desk.now_ns = 60 * SECOND
    assert desk.step(Tick(desk.now_ns)) == []
    assert desk.tick(17 * SECOND - 1) == []
    assert kinds(desk.tick(1)) == [Persist]


def test_a_session_lives_through_a_disk_that_stands_still() -> None:
    """METADATA.md: keep-alives are not logged. They show nothing that a crash could take back, so they wait for no
    sync: a client that is heard keeps its session and its keys for as long as the disk takes."""
    desk = Desk()
    session = desk.open(ttl_ms=16_000)
    desk.do(put("/eph", ephemeral=True), session)
    revision = desk.member.catalog.revision
    desk.ask(put("/late"), session)  # Its record waits for the disk from now on.
    for _ in range(10):
        desk.tick(6 * SECOND)
        [answer] = desk.ask(KeepAlive(), session)
        assert isinstance(answer, Reply)
        assert answer.reply.result == Acknowledged(revision)  # Of what is durable.
    assert desk.ask(Get("/eph"), session) == []  # A read may show what is not: it waits (P10.1).
    read = desk.sync()[-1]
    assert isinstance(read, Reply)
    assert isinstance(read.reply.result, Value)
    assert read.reply.result.record is not None


def test_a_keep_alive_passes_any_number_of_answers_that_wait() -> None:
    """REPLIES_WAITING_MAX: what waits for the disk is bounded, and no session ends by that bound."""
    desk = Desk()
    session = desk.open()
    desk.ask(put("/a"), session)
    for _ in range(pending_requests.REPLIES_WAITING_MAX):
        desk.ask(Get("/a"), session)
    [answer] = desk.ask(KeepAlive(), session)
    assert isinstance(answer, Reply)
    assert isinstance(answer.reply.result, Acknowledged)


def test_a_member_that_turns_late_while_its_log_stands_still_waits_for_its_log() -> None:
    """METADATA.md: no time is counted while nothing can be committed, so no session is due: a turn that comes shortly
    behind one that was due, when the log stood still for long before it, is not followed by another at once."""
    desk = Desk()
    silent, other = desk.open(ttl_ms=16_000), desk.open(ttl_ms=160_000)
    desk.tick(16 * SECOND + SECOND // 2)
    desk.ask(put("/late"), other)  # Never durable here.
    desk.now_ns += AWAY_NS + SECOND // 10
    desk.step(Tick(desk.now_ns))  # Its end was due 0.6 s ago, which is no absence.
    assert silent in desk.member.catalog.sessions
    due_ns = desk.member.deadline_ns
    assert due_ns is None or due_ns > desk.now_ns


def test_nobody_expires_while_nothing_can_be_committed() -> None:
    """METADATA.md: time in which no renewal and no new session could be committed counts against nobody: who comes
    back while the disk stands still finds its session, and afterwards each has its whole ttl again."""
    desk = Desk()
    gone, back = desk.open(ttl_ms=16_000), desk.open(ttl_ms=16_000)
    desk.ask(put("/late"), back)
    assert desk.tick(100 * SECOND) == []
    [answer] = desk.ask(KeepAlive(), back)
    assert isinstance(answer, Reply)
    assert isinstance(answer.reply.result, Acknowledged)
    desk.sync()
    assert desk.tick(17 * SECOND - 1) == []
    assert kinds(desk.tick(1)) == [Persist]  # Of both.
    desk.sync()
    assert {gone, back}.isdisjoint(desk.member.catalog.sessions)


def test_a_session_that_waited_for_the_disk_has_its_whole_ttl_from_then_on() -> None:
    """METADATA.md: it was granted when it was asked for; nobody could know of it before its record was durable."""
    desk = Desk()
    [append] = desk.ask(OpenSession(16_000, "test"))
    assert isinstance(append, Persist)
    desk.tick(60 * SECOND)
    [opened] = desk.sync()
    assert isinstance(opened, Reply)
    assert isinstance(opened.reply.result, SessionOpened)
    assert desk.tick(17 * SECOND - 1) == []
    assert kinds(desk.tick(1)) == [Persist]


def test_a_busy_member_still_expires_who_is_silent() -> None:
    """METADATA.md: only a disk that stands still is an excuse. One that always has something on its way and goes on
    keeps nobody alive."""
    desk = Desk()
    silent, busy = desk.open(ttl_ms=16_000), desk.open(ttl_ms=16_000)
    desk.ask(put("/0"), busy)
    for number in range(34):
        assert silent in desk.member.catalog.sessions
        desk.tick(SECOND // 2)
        durable = desk.sequence
        desk.ask(put(f"/{number}"), busy)
        desk.step(Durable(desk.now_ns, durable))  # The next is queued already.
    assert silent not in desk.member.catalog.sessions
    assert busy in desk.member.catalog.sessions


def test_mass_expiry_takes_several_steps() -> None:
    """EXPIRIES_PER_TICK_MAX: many sessions that end at once do not hold up the others."""
    desk = Desk()
    for _ in range(timed_commands.EXPIRIES_PER_TICK_MAX + 1):
        desk.open()
    desk.now_ns = desk.member.deadline_ns or 0
    for count in (timed_commands.EXPIRIES_PER_TICK_MAX, 1):
        assert desk.member.deadline_ns == desk.now_ns
        [record] = desk.step(Tick(desk.now_ns))
        assert isinstance(record, Persist)
        assert len(record.entries) == count


def test_a_watch_gets_every_change_once_it_is_durable() -> None:
    """I82: each key's versions in order, none twice, nothing that could be taken back."""
    desk = Desk()
    session = desk.open()
    desk.do(put("/w/early"), session)
    desk.do(Watch(7, "/w/", 0), session)
    assert [event.key for events in desk.events(7) for event in events.records] == ["/w/early"]
    effects = desk.ask(Txn([], [Put("/w/a", b"1"), Put("/x", b""), Put("/w/b", b"")]), session)
    assert kinds(effects) == [Persist]
    assert kinds(desk.sync()) == [
        SendEvents,
        Reply,
    ]  # Events first: a client sees its change before it is told.
    [events] = desk.events(7)
    assert (events.revision, [record.key for record in events.records]) == (2, ["/w/a", "/w/b"])
    desk.do(Txn([], [Delete("/w/a")]), session)
    [events] = desk.events(7)
    assert [(record.key, record.value, record.revision) for record in events.records] == [("/w/a", None, 3)]
    first = desk.sequence + 1
    desk.ask(put("/w/c"), session)
    desk.ask(put("/w/d"), session)
    desk.step(Durable(desk.now_ns, first))  # The disk has the first of two so far.
    assert [record.key for events in desk.events(7) for record in events.records] == ["/w/c"]
    desk.sync()
    assert [record.key for events in desk.events(7) for record in events.records] == ["/w/d"]
    desk.do(Unwatch(7), session)
    desk.do(put("/w/late"), session)
    assert desk.events(7) == []


def test_changes_that_fell_out_of_the_history_are_said_to_be() -> None:
    """METADATA.md: COMPACTED; nothing is ever skipped silently."""
    desk = Desk(Catalog(Limits(history_bytes_max=500)))
    session = desk.open()
    for n in range(10):
        desk.do(put(f"/w/{n}", bytes(100)), session)
    floor = desk.member.catalog.history.floor
    for watch_id, from_revision, is_compacted in (
        (1, 0, True),
        (2, floor - 1, True),
        (3, floor, False),
        (4, 99, True),
    ):
        desk.do(Watch(watch_id, "/w/", from_revision), session)
        [events] = desk.events(watch_id)
        assert (events.is_compacted, bool(events.records)) == (is_compacted, not is_compacted)
    desk.do(put("/w/more"), session)
    assert [effect.events.watch_id for effect in desk.sent if isinstance(effect, SendEvents)] == [3]


def test_a_burst_that_outruns_the_history_is_given_whole() -> None:
    """METADATA.md: what is not shown yet never leaves the history, however much one sync commits; behind it the history
    is back within its bound."""
    desk = Desk(Catalog(Limits(history_bytes_max=500)))
    session = desk.open()
    desk.do(Watch(1, "/w/", 0), session)
    desk.events(1)
    for n in range(10):
        desk.ask(put(f"/w/{n}", bytes(100)), session)
    desk.sync()
    desk.tick(0)
    [events] = desk.events(1)
    assert ([record.revision for record in events.records], events.is_compacted) == (
        list(range(1, 11)),
        False,
    )
    assert desk.member.catalog.history.count == 1


def test_a_long_way_to_catch_up_comes_in_batches() -> None:
    """WATCH_BATCH_BYTES: a watcher far behind is fed step by step, in order and without a gap."""
    desk = Desk()
    session = desk.open()
    for n in range(20):
        desk.do(put(f"/w/{n:02}", bytes(200 << 10)), session)
    desk.do(Watch(1, "/w/", 0), session)
    desk.ask(put("/w/late"), session)  # In the middle of it.
    desk.sync()
    desk.tick(0)
    batches = desk.events(1)
    assert len(batches) >= 4
    assert all(sum(len(record.value or b"") for record in batch.records) < 2 << 20 for batch in batches)
    assert [record.revision for batch in batches for record in batch.records] == list(range(1, 22))
    assert [batch.revision for batch in batches] == sorted({batch.revision for batch in batches})


def test_a_burst_for_a_live_watch_comes_in_batches_too() -> None:
    desk = Desk()
    session = desk.open()
    desk.do(Watch(1, "/w/", 0), session)
    desk.events(1)
    for n in range(20):
        desk.ask(put(f"/w/{n:02}", bytes(200 << 10)), session)
    desk.sync()
    desk.tick(0)
    batches = desk.events(1)
    assert len(batches) >= 4
    assert [record.revision for batch in batches for record in batch.records] == list(range(1, 21))


def test_overlapping_watches_each_get_their_own() -> None:
    desk = Desk()
    session = desk.open()
    for watch_id, prefix in enumerate(("", "/", "/a", "/a/b", "/a/b/long/prefix", "/c")):
        desk.do(Watch(watch_id, prefix, 0), session)
        desk.events(watch_id)
    desk.do(Txn([], [Put("/a/b", b""), Put("/a/x", b"")]), session)
    got = {
        effect.events.watch_id: [record.key for record in effect.events.records]
        for effect in desk.sent
        if isinstance(effect, SendEvents)
    }
    both = ["/a/b", "/a/x"]
    assert got == {0: both, 1: both, 2: both, 3: ["/a/b"]}


def test_keep_alives_tell_idle_watches_how_far_they_are() -> None:
    """METADATA.md: an idle watcher gets a mark, so that it can resume after the history has moved on."""
    desk = Desk()
    session = desk.open()
    desk.do(Watch(1, "/w/", 0), session)
    for n in range(5):
        desk.do(put(f"/elsewhere/{n}"), session)
    desk.events(1)
    desk.do(KeepAlive(), session)
    assert [(events.revision, events.records) for events in desk.events(1)] == [(5, [])]


def test_watches_end_with_their_link_and_their_session() -> None:
    desk = Desk()
    session, other = desk.open(), desk.open()
    desk.do(Watch(1, "/", 0), session, link=1)
    desk.do(Watch(1, "/", 0), session, link=2)
    desk.do(Watch(2, "/", 0), other, link=2)
    desk.sent.clear()
    desk.step(LinkLost(0, 1))
    desk.do(put("/a"), other, link=2)
    assert [effect.link for effect in desk.sent if isinstance(effect, SendEvents)] == [2, 2]
    desk.do(CloseSession(), session, link=2)
    desk.sent.clear()
    desk.do(put("/b"), other, link=2)
    assert [effect.events.watch_id for effect in desk.sent if isinstance(effect, SendEvents)] == [2]


def test_watches_of_a_link_are_bounded() -> None:
    desk = Desk()
    session = desk.open()
    for watch_id in range(streams_module.WATCHES_PER_LINK_MAX):
        desk.ask(Watch(watch_id, "/w", 0), session)
    assert code_of(desk.do(Watch(-1, "/w", 0), session)) == "UNAVAILABLE"


def test_requests_that_wait_for_the_disk_are_bounded() -> None:
    """REPLIES_WAITING_MAX, WAITING_SHARE: a stuck disk puts requests off instead of gathering them, at once, and says
    what is full; no link takes all the places; what was put off was not run and may be run later."""
    desk = Desk()
    session = desk.open()
    desk.ask(put("/a"), session)
    waiting = 1
    while desk.ask(Get("/a"), session) == []:
        waiting += 1
    assert waiting == 819  # A fifth of one half.
    [told] = desk.ask(put("/b"), session, repeat=77_777)
    assert isinstance(told, Reply)
    assert code_of(told.reply.result) == BUSY
    assert f"{waiting} of them on this link; allowed are 8192" in told.reply.result.text  # type: ignore[union-attr]
    for link in range(2, 1025):
        assert desk.ask(Get("/a"), session, link=link) == [], "each link has its places"
        while desk.ask(Get("/a"), session, link=link) == []:
            waiting += 1
        waiting += 1
    assert 7000 < waiting <= pending_requests.REPLIES_WAITING_MAX
    replies = [reply for reply in desk.sync() if isinstance(reply, Reply)]
    assert len(replies) == waiting
    found = desk.do(Get("/b"), session)
    assert isinstance(found, Value)
    assert found.record is None
    assert desk.do(put("/b"), session, repeat=77_777) == TxnDone(True, 2)


def test_a_failed_journal_ends_the_member() -> None:
    """P7.6: it never retries the sync; nothing that was not durable is ever answered."""
    desk = Desk()
    session = desk.open()
    desk.ask(put("/a"), session)
    [halted] = desk.step(JournalFailed(0, "EIO"))
    assert isinstance(halted, Halted)
    assert "EIO" in halted.reason
    assert desk.step(Durable(0, desk.sequence)) == []
    assert desk.ask(Get("/a"), session) == []
    assert desk.member.deadline_ns is None


def test_a_copy_goes_its_own_way() -> None:
    desk = Desk()
    session = desk.open()
    twin = desk.member.copy()
    desk.do(put("/a"), session)
    assert desk.member.catalog.revision == 1
    assert twin.catalog.revision == 0
    assert twin.step(Tick(20 * MS)) == []


def test_who_asks_again_while_the_disk_stands_still_opens_one_session() -> None:
    """METADATA.md, 1: each request would leave a session behind that nobody knows. Both answers are of the same one,
    which lives on from the last request; the next attempt opens another, and so does any other link."""
    desk = Desk()
    opening = OpenSession(16_000, "b1", 1)
    desk.ask(opening)
    desk.now_ns += 2 * SECOND
    assert desk.ask(opening) == [], "nothing more to be logged"
    other = desk.ask(opening, link=2)
    assert len(other) == 1
    desk.ask(OpenSession(16_000, "b1", 2))
    assert not desk.member.catalog.sessions
    desk.step(Durable(desk.now_ns, desk.sequence))
    assert len(desk.member.catalog.sessions) == 3
    answers = [(each.link, each.reply.result) for each in desk.sent if isinstance(each, Reply)]
    first, again, elsewhere, next_one = (
        result.session for _, result in answers if isinstance(result, SessionOpened)
    )
    assert first == again
    assert len({first, elsewhere, next_one}) == 3
    desk.now_ns += 16 * SECOND  # A ttl after the second request; 17/16 of it are not over.
    desk.step(Tick(desk.now_ns))
    assert first in desk.member.catalog.sessions
    desk.ask(OpenSession(16_000, "b1", 2))
    assert len(desk.member.catalog.sessions) == 3, "told already, and asked again all the same"
    desk.do(OpenSession(16_000, "b1"))
    assert len(desk.member.catalog.sessions) == 4


def test_a_session_belongs_to_its_link_or_its_secret_and_not_to_its_number() -> None:
    """Records name their session to everybody: whoever read it could end it, or disable it with sequence 2^63 - 1."""
    desk = Desk()
    session = desk.open(ttl_ms=16_000)
    desk.do(put("/eph", ephemeral=True), session)
    secret = desk.secrets.pop(session)
    for operation in (put("/by-another"), CloseSession(), KeepAlive(), Watch(1, "/", 0)):
        assert code_of(desk.do(operation, session, link=2, repeat=2**63 - 1)) == "SESSION_GONE"
    desk.secrets[session] = b"guessed"
    assert code_of(desk.do(put("/by-another"), session, link=2, repeat=2**63 - 1)) == "SESSION_GONE"
    desk.tick(10 * SECOND)
    desk.do(KeepAlive(), session, link=2, repeat=5)
    assert desk.do(put("/own"), session, repeat=2) == TxnDone(
        True, 2
    )  # Over its own link, where it was opened.
    desk.secrets[session] = secret
    assert desk.do(put("/own"), session, link=3, repeat=3) == TxnDone(
        True, 3
    )  # Over another, with its secret.
    twin = Desk(Catalog.restore(desk.member.catalog.snapshot()), now_ns=desk.now_ns)
    assert code_of(twin.do(put("/by-another"), session, repeat=4)) == "SESSION_GONE"
    twin.secrets[session] = secret
    assert twin.do(put("/own"), session, repeat=4) == TxnDone(True, 4)  # Also after a restart.
    twin.secrets.clear()
    twin.tick(10 * SECOND)
    twin.do(KeepAlive(), session, repeat=7)  # Heard from a stranger: it renews nothing.
    assert kinds(twin.tick(17 * SECOND - 10 * SECOND)) == [Persist]


@pytest.mark.parametrize("stall_ms", [900, 1100, 5000])
def test_a_dead_session_expires_though_the_disk_stands_still_again_and_again(stall_ms: int) -> None:
    """METADATA.md: such time is not counted; it is not a fresh ttl for everybody. Every 5 s 1.1 s of it kept the keys
    of dead clients for ever."""
    desk = Desk()
    dead, live = desk.open(ttl_ms=6_000), desk.open(ttl_ms=6_000)
    stood = 0
    for number in range(20):
        desk.tick(5 * SECOND)
        desk.ask(KeepAlive(), live)
        desk.ask(put(f"/{number}"), live)
        desk.tick(stall_ms * MS)
        stood += 1
        desk.sync()
        desk.sync()
        if dead not in desk.member.catalog.sessions:
            break
    assert stood <= 2
    assert live in desk.member.catalog.sessions


def test_a_process_that_is_stopped_again_and_again_keeps_no_dead_session() -> None:
    desk = Desk()
    dead, live = desk.open(ttl_ms=6_000), desk.open(ttl_ms=6_000)
    for _ in range(10):
        for _ in range(4):
            desk.tick(SECOND)
            desk.ask(KeepAlive(), live)
        desk.now_ns += 1100 * MS
        desk.ask(KeepAlive(), live)  # What waited in the sockets is read before anybody is ended.
        desk.tick(0)
        desk.sync()
    assert dead not in desk.member.catalog.sessions
    assert live in desk.member.catalog.sessions


def test_who_was_stopped_hears_what_waited_before_it_ends_anybody() -> None:
    """P9.1: whatever is read first after a sleep, an hour of it counts against nobody."""
    desk = Desk()
    first, second = desk.open(ttl_ms=6_000), desk.open(ttl_ms=6_000)
    desk.now_ns += 3600 * SECOND
    desk.ask(KeepAlive(), first)
    assert desk.step(Tick(desk.now_ns)) == []
    desk.tick(SECOND)
    [answer] = desk.ask(KeepAlive(), second)
    assert isinstance(answer, Reply)
    assert isinstance(answer.reply.result, Acknowledged)


def test_what_is_asked_again_while_the_disk_stands_still_waits_once() -> None:
    """Refusals waited too: 140,800 answers were seen where 8,192 were allowed."""
    desk = Desk()
    session = desk.open()
    for _ in range(50):
        for sequence in range(1, 11):
            desk.ask(put(f"/{sequence}"), session, repeat=sequence)
            desk.ask(Get("/1"), session, repeat=100 + sequence)
    assert desk.member._pending.count == 20
    assert len([effect for effect in desk.sync() if isinstance(effect, Reply)]) == 20
    assert desk.member._pending.of_link == {}


def test_commands_that_wait_for_the_disk_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_requests, "WAITING_BYTES_MAX", 4 << 20)
    desk = Desk()
    session = desk.open()
    asked = 1
    while kinds(told := desk.ask(put(f"/{asked}", bytes(256 << 10)), session)) == [Persist]:
        asked += 1
    [busy] = told
    assert isinstance(busy, Reply)
    assert code_of(busy.reply.result) == BUSY
    assert asked == 17
    desk.sync()
    assert desk.member._pending.bytes == 0
    assert desk.do(put("/again"), session) == TxnDone(True, asked)


def test_one_link_takes_no_more_than_its_share_of_sessions() -> None:
    """One link took all 10,000, and the next user read "nobody answered"."""
    desk = Desk()
    opened = [desk.do(OpenSession(600_000, "hog")) for _ in range(openings.SESSIONS_PER_LINK_MAX + 1)]
    assert code_of(opened[-1]) == "UNAVAILABLE"
    assert "128 sessions that were opened over this link live, allowed are 128" in opened[-1].text  # type: ignore[union-attr]
    assert isinstance(desk.do(OpenSession(6_000, "honest"), link=2), SessionOpened)
    first = opened[0]
    assert isinstance(first, SessionOpened)
    desk.do(CloseSession(), first.session)
    assert isinstance(desk.do(OpenSession(600_000, "hog")), SessionOpened)


def test_all_watches_are_bounded_and_each_link_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "WATCHES_MAX", 100)
    desk = Desk()
    session = desk.open()
    counts = []
    for link in range(1, 5):
        count = 0
        while isinstance(result := desk.do(Watch(count, "/w", 0), session, link=link), Acknowledged):
            count += 1
        assert isinstance(result, Refusal)
        assert f"{count} watches on this link" in result.text
        counts.append(count)
    assert counts == [20, 16, 13, 10]
    desk.step(LinkLost(0, 1))
    assert isinstance(desk.do(Watch(0, "/w", 0), session, link=9), Acknowledged)
    desk.do(CloseSession(), session)
    assert desk.member._streams.watches.total == 0


def test_five_thousand_keys_of_sessions_that_end_at_once_hold_nobody_up() -> None:
    """Story 19: 500 sessions with ten ephemeral keys each are silent from one moment on. They end a slice a step, what
    another session asks between two steps is answered in the next sync, and in the end all keys are gone."""
    desk, slices = Desk(), 0
    for number in range(500):
        keys = [Put(f"/e/{number}/{n}", b"", True) for n in range(10)]
        link = number // openings.SESSIONS_PER_LINK_MAX
        opened = desk.do(OpenSession(10_000, "test"), link=link)
        assert isinstance(opened, SessionOpened)
        desk.do(Txn([], list(keys)), opened.session, link=link)
    opened = desk.do(OpenSession(60_000, "test"), link=99)
    assert isinstance(opened, SessionOpened)
    living = opened.session
    desk.now_ns = desk.member.deadline_ns or 0
    while any(record.session for record in desk.member.catalog.page("/e/").records):
        [record] = [effect for effect in desk.step(Tick(desk.now_ns)) if isinstance(effect, Persist)]
        assert len(record.entries) <= timed_commands.EXPIRIES_PER_TICK_MAX
        assert isinstance(desk.do(put("/living", b"%d" % slices), living, link=99), TxnDone)
        slices += 1
    assert slices >= 500 // timed_commands.EXPIRIES_PER_TICK_MAX
    assert list(desk.member.catalog.sessions) == [living]


def test_a_session_with_many_keys_has_a_step_of_its_own() -> None:
    """EXPIRED_KEYS_PER_TICK: its keys go in one revision; the next session's in the next step."""
    desk = Desk()
    for name in "ab":
        session = desk.open()
        for part in range(4):
            changes = [Put(f"/{name}/{part}/{n}", b"", True) for n in range(128)]
            desk.do(Txn([], list(changes)), session)
    desk.now_ns = desk.member.deadline_ns or 0
    assert kinds(desk.step(Tick(desk.now_ns))) == [Persist]
    desk.sync()
    assert len(desk.member.catalog.page("/").records) == 512
    assert desk.member.deadline_ns == desk.now_ns
    assert kinds(desk.step(Tick(desk.now_ns))) == [Persist]
    desk.sync()
    assert not desk.member.catalog.page("/").records
    assert len(desk.member.catalog.history.at(10)) == 512


def test_marks_go_in_turns() -> None:
    """MARKS_MAX: a keep-alive of a link with 4,096 watches tells a slice of them how far they are."""
    desk = Desk()
    session = desk.open()
    for watch_id in range(300):
        desk.do(Watch(watch_id, f"/w/{watch_id}", 0), session)
    desk.do(put("/elsewhere"), session)
    told: list[int] = []
    for _ in range(3):
        desk.sent.clear()
        desk.ask(KeepAlive(), session)
        marks = [effect.events.watch_id for effect in desk.sent if isinstance(effect, SendEvents)]
        assert len(marks) == 128
        told += marks
    assert set(told) == set(range(300))


def test_streams_that_are_behind_are_fed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs that stop the loop: a storm of watches that come back looks at so many changes in one step."""
    desk = Desk()
    session = desk.open()
    for n in range(50):
        desk.do(put(f"/w/{n}"), session)
    monkeypatch.setattr("embedbk.metadata.watches.CAUGHT_UP_COST_MAX", 120)
    desk.sent.clear()
    for watch_id in range(20):
        desk.member._streams.watches.add(LINK, session, watch_id, "/w/", 0)
    sizes = []
    while desk.member._streams.watches.is_lagging:
        assert desk.member.deadline_ns == 0
        effects = desk.step(Tick(desk.now_ns))
        sizes.append(sum(len(effect.events.records) for effect in effects if isinstance(effect, SendEvents)))
    assert max(sizes) <= 150
    assert sum(sizes) == 20 * 50


def test_a_session_is_numbered_by_its_place_in_the_log() -> None:
    """Unique for ever: a count in the high half ran over after 2^31 sessions, or 128 generations, each of which skipped
    2^24 of it."""
    catalog = Catalog()
    for generation in range(200):
        if generation:
            catalog.apply(BeginGeneration(), generation, FIRST_TERM)
        desk = Desk(catalog)
        numbers = [desk.open(), desk.open()]
        assert numbers == [generation << GENERATION_BITS | 2, generation << GENERATION_BITS | 3]
    assert len(catalog.sessions) == 400


def test_a_session_of_an_older_log_lives_on_beside_the_new_ones() -> None:
    """Their numbers were drawn: (count << 32 | chance). They stay valid with their secrets; a new one that met such a
    number by chance is refused, and its client asks again at another place of the log."""
    catalog = Catalog()
    for number in (1 << 32 | 77, 4):
        catalog.apply(StartSession(number, 16_000, "old", b"secret"), number & 0xFF, FIRST_TERM)
    desk = Desk(Catalog.restore(catalog.snapshot()))
    assert (desk.open(), desk.open()) == (2, 3)
    assert code_of(desk.do(OpenSession(10_000, "test"))) == "UNAVAILABLE"
    assert desk.open() == 5
    desk.secrets[1 << 32 | 77] = b"secret"
    assert desk.do(put("/old", ephemeral=True), 1 << 32 | 77) == TxnDone(True, 1)
    assert sorted(desk.member.catalog.sessions) == [2, 3, 4, 5, 1 << 32 | 77]
