"""The client core against a real member: sessions, re-sending, outcomes, watches."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from embedbk.codec.metadata_messages import (
    ABSENT,
    Acknowledged,
    Acquire,
    Allocated,
    AllocIds,
    Claimed,
    CloseSession,
    Compare,
    Delete,
    Get,
    KeepAlive,
    List,
    Listed,
    MetadataReply,
    MetadataRequest,
    OpenSession,
    Put,
    Record,
    Refusal,
    Release,
    SessionOpened,
    Txn,
    TxnDone,
    Value,
    Watch,
    WatchEvents,
)
from embedbk.codec.repair_messages import (
    EndRepairs,
    FailRepairs,
    MarkRepairs,
    RepairsMarked,
    RepairsTaken,
    TakeRepairs,
)
from embedbk.metadata import client as client_module
from embedbk.metadata.catalog import Limits
from embedbk.metadata.client import Client, is_unknown
from embedbk.metadata.levels import LEVEL
from embedbk.metadata.pacing import IN_FLIGHT_MAX, WINDOW_START
from embedbk.metadata.vocabulary import (
    Closed,
    Completed,
    Connected,
    MessageReceived,
    Requested,
    RequestReceived,
    Send,
    Tick,
    WatchChanged,
    WatchRequested,
)
from embedbk.metadata.watches import MARKS_MAX
from embedbk.metadata.watching import WATCHES_MAX
from tests.metadata.world import MS, SECOND, Peer, World

CREATE = Txn([Compare("/a", ABSENT)], [Put("/a", b"1")])


def put(key: str, value: bytes = b"", *, ephemeral: bool = False) -> Txn:
    return Txn([], [Put(key, value, ephemeral)])


def view(peer: Peer, prefix: str) -> dict[str, bytes | None]:
    return {key: record.value for key, record in peer.views[prefix].items()}


def test_requests_wait_for_the_session() -> None:
    world = World()
    peer = world.peer("a", connect=False)
    write, read = world.ask(peer, CREATE), world.ask(peer, Get("/a"))
    assert peer.sent == []
    world.connect(peer)
    world.settle()
    assert peer.results[write] == TxnDone(True, 1)
    found = peer.results[read]
    assert isinstance(found, Value)
    assert found.record is not None
    assert found.record.value == b"1"
    assert isinstance(peer.sent[0].operation, OpenSession)


def test_what_was_not_answered_is_sent_again_under_its_sequence() -> None:
    """I74: the answer of the first run comes, whether the first link lost the request or the answer."""
    world = World()
    peer = world.peer("a")
    lost_request, lost_answer = world.ask(peer, CREATE), world.ask(peer, put("/b"))
    world.deliver_request(peer)
    world.commit()  # The first is done; its answer is on the way, the second request too.
    world.disconnect(peer)
    world.connect(peer)
    world.settle()
    assert peer.results == {lost_request: TxnDone(True, 1), lost_answer: TxnDone(True, 2)}
    writes = [request for request in peer.sent if isinstance(request.operation, Txn)]
    assert [request.sequence for request in writes] == [1, 2, 1, 2]
    assert len(peer.sessions) == 1


def test_a_crash_before_the_sync_runs_it_anew_and_after_it_not_again() -> None:
    """P2.2: an outcome is unknown only when the session is lost; a restart of the member loses none."""
    world = World()
    peer = world.peer("a")
    world.is_committing = False
    for is_durable in (False, True):
        key = f"/{is_durable}"
        token = world.ask(peer, Txn([Compare(key, ABSENT)], [Put(key, b"")]))
        world.deliver_request(peer)
        if is_durable:
            world.journal.commit()
        world.restart_member()
        world.connect(peer)
        for _ in range(2):  # The log, which holds the session; then what is asked again.
            world.settle()
            world.commit()
        world.settle()
        result = peer.results[token]
        assert isinstance(result, TxnDone)
        assert result.is_done
    assert world.member.catalog.revision == 2


def test_the_client_gives_its_session_up_before_the_quorum_does() -> None:
    """METADATA.md: the client stops at ttl * 15/16 after it SENT the last answered keep-alive, the leader goes on
    to ttl * 17/16 after it heard it."""
    world = World()
    holder, other = world.peer("a", ttl_ms=16_000), world.peer("b")
    assert world.do(holder, put("/lock", ephemeral=True)) == TxnDone(True, 1)
    world.advance(60 * SECOND)
    assert (holder.lost, len(holder.sessions)) == ([], 1)  # Keep-alives at a third of the ttl keep it.
    world.disconnect(holder)
    holds_until = None
    for _ in range(200):
        world.advance(100 * MS)
        found = world.do(other, Get("/lock"))
        assert isinstance(found, Value)
        if holder.lost and holds_until is None:
            holds_until = world.now_ns
        if found.record is None:
            break
        assert world.now_ns < 200 * SECOND
    assert holds_until is not None, "the lock was given away while its holder believed to have it"
    assert holds_until < world.now_ns


def test_a_session_is_kept_through_a_short_outage() -> None:
    world = World()
    peer = world.peer("a", ttl_ms=16_000)
    world.do(peer, put("/lock", ephemeral=True))
    for _ in range(3):
        world.disconnect(peer)
        world.advance(8 * SECOND)
        world.connect(peer)
        world.settle()
        world.advance(20 * SECOND)
    assert (peer.lost, len(peer.sessions)) == ([], 1)
    assert isinstance(world.do(peer, Get("/lock")), Value)


def test_no_session_is_lost_while_the_disk_of_the_member_stands_still() -> None:
    """METADATA.md: a sync that takes ten ttls ends no session: keep-alives go on, and what was asked for is done
    afterwards, under the session that asked."""
    world = World()
    peer, other = world.peer("a", ttl_ms=6_000), world.peer("b", ttl_ms=6_000)
    world.watch(other, "/eph")
    world.do(peer, put("/eph", ephemeral=True))
    world.is_committing = False
    late = world.ask(peer, put("/late"))
    world.advance(60 * SECOND)
    assert late not in peer.results
    world.is_committing = True
    world.advance(20 * SECOND)
    assert peer.results[late] == TxnDone(True, 2)
    assert ([*peer.lost, *other.lost], len(peer.sessions)) == ([], 1)
    assert [(record.key, record.value) for record in other.changes["/eph"]] == [("/eph", b"")]  # Never gone.


@pytest.mark.parametrize("stall_s", [3, 30])
def test_a_session_asked_for_while_the_disk_stood_still_is_one_that_can_live(stall_s: int) -> None:
    """METADATA.md: the client counts from when it asked. An answer later than that lease opens nothing; the answer to
    a later asking, which comes with it, does."""
    world = World()
    world.is_committing = False
    peer = world.peer("a", ttl_ms=6_000)
    world.advance(stall_s * SECOND)
    assert peer.sessions == []
    world.is_committing = True
    world.settle()
    [session] = peer.sessions
    world.advance(30 * SECOND)
    assert (peer.lost, peer.sessions) == ([], [session])
    assert list(world.member.catalog.sessions) == [session]  # Those that nobody uses have expired.


def test_sent_writes_of_a_lost_session_are_unknown_and_the_rest_moves_on() -> None:
    """P2.2: unknown is still in flight; whatever was certainly not run, or may be run twice, is run."""
    world = World()
    peer = world.peer("a")
    world.is_committing = False
    write = world.ask(peer, CREATE)
    world.deliver_request(peer)
    read, ids = world.ask(peer, Get("/b")), world.ask(peer, AllocIds(1))
    world.disconnect(peer)
    later = world.ask(peer, put("/b"))
    world.advance(30 * SECOND)
    assert is_unknown(peer.results[write])
    assert read not in peer.results
    world.is_committing = True
    world.connect(peer)
    world.settle()
    assert len(peer.sessions) == 2
    assert isinstance(peer.results[read], Value)
    assert isinstance(peer.results[ids], Allocated)
    assert isinstance(peer.results[later], TxnDone)
    assert world.member.catalog.get("/a").record is not None  # Unknown, and it came to pass.


def test_a_write_refused_with_its_session_is_unknown() -> None:
    """P2.2: where messages may be doubled, a refusal of the second copy says nothing of the first."""
    world = World()
    peer = world.peer("a")
    session = peer.sessions[0]
    _end_session(world, session)
    write, read, ids = world.ask(peer, CREATE), world.ask(peer, Get("/a")), world.ask(peer, AllocIds(2))
    world.settle()
    assert peer.lost == [session]
    assert is_unknown(peer.results[write])
    assert isinstance(peer.results[read], Value)
    assert peer.results[ids] == Allocated(1, 2)
    assert world.do(peer, CREATE) == TxnDone(True, 1)


def test_whoever_waits_for_a_lock_sees_its_turn_and_its_epoch() -> None:
    """P9.3: a client that is gone gives its lock to who asked next, in the change that ends it; a watch tells."""
    world = World()
    one, two, three = (world.peer(name) for name in ("a", "b", "c"))
    two.views.clear()
    held = world.do(one, Acquire("auditor", b"one"))
    waits = [world.do(each, Acquire("auditor")) for each in (two, three)]
    assert [each.epoch for each in (held, *waits) if isinstance(each, Claimed)] == [1, 0, 0]
    for each in (two, three):
        world.watch(each, "/locks/auditor")
    world.settle()
    world.disconnect(one)
    world.advance(30 * SECOND)
    for each in (two, three):
        record = each.views["/locks/auditor"]["/locks/auditor"]
        assert (record.session, record.created) == (two.sessions[0], 2)
        assert record.revision == world.member.catalog.revision
    world.close(two)
    world.settle()
    assert three.views["/locks/auditor"]["/locks/auditor"].session == three.sessions[0]
    assert world.do(three, Release("auditor")) == TxnDone(True, world.member.catalog.revision)


def test_repairs_that_were_asked_for_and_lost_with_their_session_are_unknown() -> None:
    """P2.2, P9.1: whether they were done nobody can tell; what was held went with the session; a refusal is typed."""
    world = World()
    world.member.catalog.level = LEVEL
    peer = world.peer("a")
    assert world.do(peer, MarkRepairs(((7, ("b1",)),))) == RepairsMarked(1)
    taken = world.do(peer, TakeRepairs(1))
    assert taken == RepairsTaken(2, 2, 2, ((7, 1, 0),), (("b1",),))
    refusal = world.do(peer, TakeRepairs(41))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, is_unknown(refusal)) == ("BAD_REQUEST", False)
    world.is_committing = False
    asked = [
        world.ask(peer, each) for each in (EndRepairs(((7, 2, 1),)), FailRepairs(((7, 2),)), TakeRepairs(1))
    ]
    for _ in asked:
        world.deliver_request(peer)
    world.disconnect(peer)
    world.advance(30 * SECOND)
    assert all(is_unknown(peer.results[each]) for each in asked)
    world.is_committing = True
    world.connect(peer)
    world.advance(30 * SECOND)
    assert world.member.catalog.page("/repair").records == []


def test_an_acquire_that_was_sent_and_lost_with_its_session_is_unknown() -> None:
    """P2.2: the next session asks by its own word, behind all who wait then."""
    world = World()
    peer = world.peer("a")
    world.is_committing = False
    asked = world.ask(peer, Acquire("auditor"))
    world.deliver_request(peer)
    world.disconnect(peer)
    world.advance(30 * SECOND)
    assert is_unknown(peer.results[asked])
    world.is_committing = True
    world.connect(peer)
    world.advance(30 * SECOND)
    assert world.member.catalog.get("/locks/auditor").record is None


def _end_session(world: World, session: int) -> None:
    """End a session at the quorum while its client is alive, as an operator may."""
    secret = world.member.catalog.sessions[session].secret
    request = MetadataRequest(session, 1000, 1000, CloseSession(), secret)
    world.member_step(RequestReceived(world.now_ns, 999, request))
    world.settle()


def test_a_re_sent_write_of_an_ended_session_is_unknown() -> None:
    """It may have been run before the session ended: only its answer was lost."""
    world = World()
    peer = world.peer("a", ttl_ms=10_000)
    token = world.ask(peer, CREATE)
    world.deliver_request(peer)
    world.commit()
    world.disconnect(peer)
    _end_session(world, peer.sessions[0])
    world.connect(peer)
    world.settle()
    assert is_unknown(peer.results[token])
    assert len(peer.sessions) == 2


def test_ephemeral_keys_are_put_again_after_a_lost_session() -> None:
    """METADATA.md: session expired: register anew, never exit. The host hears SessionLost, then SessionReady."""
    world = World()
    peer, other = world.peer("a"), world.peer("b")
    world.watch(other, "/bookies/")
    world.do(peer, put("/bookies/b1", b"1", ephemeral=True))
    world.disconnect(peer)
    world.advance(60 * SECOND)
    assert view(other, "/bookies/") == {}
    world.connect(peer)
    world.settle()
    world.do(peer, put("/bookies/b1", b"2", ephemeral=True))
    assert view(other, "/bookies/") == {"/bookies/b1": b"2"}
    assert [record.value for record in other.changes["/bookies/"]] == [b"1", None, b"2"]


def test_a_watch_shows_all_keys_first_and_then_each_change() -> None:
    world = World()
    peer, other = world.peer("a"), world.peer("b")
    world.do(peer, put("/w/old"))
    world.watch(other, "/w/")
    world.watch(other, "/empty/")
    world.settle()
    assert view(other, "/w/") == {"/w/old": b""}
    assert view(other, "/empty/") == {}  # Told, also when there is nothing.
    world.do(peer, put("/w/new", b"1"))
    world.do(peer, Txn([], [Delete("/w/old"), Put("/w/new", b"2")]))
    assert view(other, "/w/") == {"/w/new": b"2"}
    assert [record.revision for record in other.changes["/w/"]] == [1, 2, 3, 3]
    assert other.client.watched("/w/") == other.views["/w/"]
    world.unwatch(other, "/w/")
    world.do(peer, put("/w/new", b"3"))
    assert view(other, "/w/") == {"/w/new": b"2"}


def test_a_watch_resumes_where_it_was() -> None:
    """I82: in order, no gap it is not told about, none twice; also over links, restarts and sessions."""
    world = World()
    peer, other = world.peer("a"), world.peer("b")
    world.watch(other, "/w/")
    for n in range(5):
        world.do(peer, put(f"/w/{n}"))
        world.disconnect(other)
        world.do(peer, put(f"/w/{n}", b"again"))
        if n == 2:
            world.restart_member()
            world.connect(peer)
        if n == 3:
            world.advance(60 * SECOND)
        world.connect(other)
        world.settle()
    assert [record.revision for record in other.changes["/w/"]] == list(range(1, 11))
    lists = [request for request in other.sent if isinstance(request.operation, List)]
    assert len(lists) == 1  # Never from the start again.


def test_a_lost_message_is_sent_again_over_the_same_link() -> None:
    """I74, also where a link loses single messages, as the simulated one may: request, answer, opening."""
    world = World()
    peer = world.peer("a", connect=False)
    world.connect(peer)
    peer.to_member.clear()  # The opening.
    token = world.ask(peer, CREATE)
    world.advance(2 * SECOND)
    assert peer.results[token] == TxnDone(True, 1)
    lost_request = world.ask(peer, put("/b"))
    peer.to_member.clear()
    lost_answer = world.ask(peer, put("/c"))
    world.deliver_request(peer)
    world.commit()
    peer.to_client.clear()
    world.advance(3 * SECOND)
    assert (peer.results[lost_answer], peer.results[lost_request]) == (TxnDone(True, 2), TxnDone(True, 3))
    assert len(peer.sessions) == 1


def test_a_watch_sees_that_a_message_is_missing() -> None:
    """I82: no gap it is not told about: each message says where it begins, and keep-alives show a lost last one."""
    world = World()
    peer, other = world.peer("a"), world.peer("b")
    world.watch(other, "/w/")
    world.settle()
    for is_last in (False, True):
        world.ask(peer, put("/w/lost", b"%d" % is_last))
        world.deliver_request(peer)
        world.commit()
        other.to_client.clear()
        if not is_last:
            world.do(peer, put("/w/next"))
        world.advance(5 * SECOND)
        assert view(other, "/w/")["/w/lost"] == b"%d" % is_last
    assert [record.revision for record in other.changes["/w/"]] == [1, 2, 3]
    assert len([request for request in other.sent if isinstance(request.operation, List)]) == 1


def test_a_doubled_or_late_message_of_a_watch_changes_nothing() -> None:
    world = World()
    peer, other = world.peer("a"), world.peer("b")
    world.watch(other, "/w/")
    world.settle()
    kept = []
    for operation in (put("/w/a", b"1"), Txn([], [Delete("/w/a")]), put("/w/b")):
        world.ask(peer, operation)
        world.deliver_request(peer)
        world.commit()
        kept += list(other.to_client)
        world.settle()
    for message in kept:
        world.step(other, MessageReceived(world.now_ns, message))
    assert view(other, "/w/") == {"/w/b": b""}
    assert len(other.changes["/w/"]) == 3


def test_a_watch_that_missed_too_much_lists_again_and_sees_the_deletes() -> None:
    """METADATA.md: on COMPACTED re-list and diff, so that deletes are seen (level-triggered)."""
    world = World(limits=Limits(history_bytes_max=2000))
    peer, other = world.peer("a"), world.peer("b")
    for key in ("/w/stays", "/w/goes", "/w/changes", "/w/often"):
        world.do(peer, put(key))
    world.watch(other, "/w/")
    world.settle()
    world.disconnect(other)
    world.do(peer, Txn([], [Delete("/w/goes"), Put("/w/changes", b"2"), Put("/w/new", b"")]))
    for n in range(50):
        world.do(peer, put("/w/often", b"%d" % n))
    world.connect(other)
    world.settle()
    assert view(other, "/w/") == {"/w/stays": b"", "/w/changes": b"2", "/w/new": b"", "/w/often": b"49"}
    told = other.changes["/w/"][4:]
    assert sorted((record.key, record.value) for record in told) == [
        ("/w/changes", b"2"),
        ("/w/goes", None),
        ("/w/new", b""),
        ("/w/often", b"49"),
    ]
    assert len([request for request in other.sent if isinstance(request.operation, List)]) == 2


def test_an_idle_watch_needs_no_new_list_after_a_long_silence() -> None:
    world = World(limits=Limits(history_bytes_max=2000))
    peer, other = world.peer("a"), world.peer("b")
    world.watch(other, "/idle/")
    world.settle()
    for n in range(100):
        world.do(peer, put(f"/elsewhere/{n}"))
    world.advance(5 * SECOND)  # A keep-alive brings the mark.
    world.disconnect(other)
    world.connect(other)
    world.settle()
    assert len([request for request in other.sent if isinstance(request.operation, List)]) == 1


def test_a_list_of_many_pages_shows_no_mixture() -> None:
    """Pages are of different revisions; the watch tells nothing before it has reached the last one's."""
    world = World(limits=Limits(list_records_max=2))
    peer, other = world.peer("a"), world.peer("b")
    for n in range(5):
        world.do(peer, put(f"/w/{n}"))
    world.watch(other, "/w/")
    changes = iter(
        [
            Txn([], [Delete("/w/0"), Delete("/w/3")]),  # One was listed, one will be missing from the list.
            Txn([], [Put("/w/1", b"2"), Put("/w/5", b"")]),
            Txn([], [Put("/w/9", b"")]),
        ]
    )
    while other.to_member:
        world.deliver_request(other)  # One page.
        assert "/w/" not in other.views
        if (change := next(changes, None)) is not None:
            world.ask(peer, change)
            world.deliver_request(peer)
            world.commit()
        while other.to_client:
            world.deliver_answer(other)
    world.settle()
    assert view(other, "/w/") == {"/w/1": b"2", "/w/2": b"", "/w/4": b"", "/w/5": b"", "/w/9": b""}


def test_a_cancelled_request_says_whether_it_may_be_run() -> None:
    world = World()
    peer = world.peer("a", connect=False)
    token = world.ask(peer, CREATE)
    world.cancel(peer, token)
    result = peer.results[token]
    assert isinstance(result, Refusal)
    assert result.code == "UNAVAILABLE"  # Never sent: certainly not run.
    world.connect(peer)
    world.settle()
    write, read = world.ask(peer, CREATE), world.ask(peer, Get("/a"))
    world.cancel(peer, write)
    world.cancel(peer, read)
    assert is_unknown(peer.results[write])
    assert not is_unknown(peer.results[read])
    world.settle()
    assert world.do(peer, CREATE) == TxnDone(False, 1)  # It was run after all.


def test_closing_lets_ephemeral_keys_go_at_once() -> None:
    world = World()
    peer, other = world.peer("a"), world.peer("b")
    world.do(peer, put("/bookies/b1", ephemeral=True))
    last = world.ask(peer, put("/last"))
    world.close(peer)
    refused = world.ask(peer, put("/too-late"))
    world.settle()
    assert peer.is_closed
    assert peer.results[last] == TxnDone(True, 2)
    result = peer.results[refused]
    assert isinstance(result, Refusal)
    assert result.code == "UNAVAILABLE"
    found = world.do(other, List("/"))
    assert isinstance(found, Listed)
    assert [record.key for record in found.records] == ["/last"]


def test_closing_without_a_link_ends_at_once() -> None:
    world = World()
    peer = world.peer("a", connect=False)
    token = world.ask(peer, CREATE)
    world.close(peer)
    assert peer.is_closed
    assert not is_unknown(peer.results[token])
    linked = world.peer("b")
    sent = world.ask(linked, CREATE)
    world.close(linked)
    world.disconnect(linked)
    assert linked.is_closed
    assert is_unknown(linked.results[sent])


def test_another_cluster_is_refused() -> None:
    """P10.3: the cluster token is checked; a client that knows its cluster takes no other."""
    client = Client(ttl_ms=1000, label="x", cluster_token=b"mine")
    client.step(Requested(0, 1, Get("/a")))
    [opening] = client.step(Connected(0))
    assert isinstance(opening, Send)
    opened = MetadataReply(0, opening.request.sequence, SessionOpened(5, 1000, b"theirs"))
    completed, closed = client.step(MessageReceived(0, opened))
    assert isinstance(completed, Completed)
    assert isinstance(completed.result, Refusal)
    assert completed.result.code == "WRONG_TOKEN"
    assert isinstance(closed, Closed)


def test_a_request_that_cannot_be_right_is_refused_at_once() -> None:
    world = World()
    peer = world.peer("a", connect=False)
    for operation in (Txn([], [Put("bad", b"")]), KeepAlive(), OpenSession(1, "")):
        token = world.ask(peer, operation)
        result = peer.results[token]
        assert isinstance(result, Refusal)
        assert result.code == "BAD_REQUEST"


def test_waiting_requests_are_bounded() -> None:
    """REQUESTS_MAX, and WINDOW_START of them under way at first."""
    world = World()
    peer = world.peer("a")
    for _ in range(client_module.REQUESTS_MAX):
        world.ask(peer, AllocIds(1))
    assert len(peer.to_member) == WINDOW_START
    refused = world.ask(peer, AllocIds(1))
    result = peer.results[refused]
    assert isinstance(result, Refusal)
    assert result.code == "BUSY"  # Not run now; asked again later, it may be.
    world.settle()
    first_ids = [
        result.first_id for token, result in sorted(peer.results.items()) if isinstance(result, Allocated)
    ]
    assert first_ids == list(range(1, client_module.REQUESTS_MAX + 1))  # In the order asked.


def test_answers_of_a_session_before_are_not_mistaken() -> None:
    world = World()
    peer = world.peer("a")
    world.do(peer, put("/x"))
    stale = MetadataReply(peer.sessions[0] + 1, 2, TxnDone(True, 77))
    token = world.ask(peer, CREATE)
    world.step(peer, MessageReceived(world.now_ns, stale))
    assert token not in peer.results
    world.settle()
    assert peer.results[token] == TxnDone(True, 2)


@pytest.mark.parametrize("sessions_max", [1])
def test_a_full_quorum_is_asked_again(sessions_max: int) -> None:
    world = World(limits=Limits(sessions_max=sessions_max))
    first = world.peer("a", ttl_ms=1000)
    second = world.peer("b", ttl_ms=1000)
    token = world.ask(second, Get("/a"))
    world.advance(5 * SECOND)
    assert token not in second.results
    assert "1 sessions are open, allowed are 1: close clients" in second.refused[-1]
    world.close(first)
    world.advance(2 * SECOND)
    assert isinstance(second.results[token], Value)


def answer(peer: Peer, world: World, code: str) -> None:
    """The member's next request of a peer is answered with a refusal instead."""
    request = peer.to_member.popleft()
    reply = MetadataReply(request.session, request.sequence, Refusal(code, "it is full: 7 wait"))
    world.step(peer, MessageReceived(world.now_ns, reply))


def test_what_was_refused_once_is_never_run() -> None:
    """I74: the catalog was full; the answer waited for the disk, the client asked again, and there was room."""
    world = World(limits=Limits(catalog_bytes_max=300, session_share_bytes=0))
    one, two = world.peer("a", ttl_ms=6_000), world.peer("b", ttl_ms=6_000)
    for n in range(3):
        world.do(two, put(f"/b/{n}", bytes(20)))
    world.is_committing = False
    world.ask(two, put("/b/0", bytes(20)))
    world.settle()
    refused = world.ask(one, put("/a", bytes(30)))
    world.settle()
    world.ask(two, Txn([], [Delete("/b/1")]))
    world.settle()
    world.advance(1100 * MS)
    world.disconnect(one)
    world.connect(one)  # And over another link.
    world.is_committing = True
    world.settle()
    result = one.results[refused]
    assert isinstance(result, Refusal)
    assert result.code == "UNAVAILABLE"
    assert world.member.catalog.get("/a").record is None


def test_what_is_put_off_is_sent_again_later_each_time_and_run_once() -> None:
    """METADATA.md, 5: BUSY is no answer."""
    world = World()
    peer = world.peer("a", ttl_ms=60_000)
    token = world.ask(peer, CREATE)
    waits = []
    for _ in range(6):
        put_off_at = world.now_ns
        answer(peer, world, "BUSY")
        assert token not in peer.results
        while not peer.to_member or isinstance(peer.to_member[0].operation, KeepAlive):
            peer.to_member.clear()
            world.now_ns += 10 * MS
            world.tick_what_is_due()
        waits.append(world.now_ns - put_off_at)
    assert all(later > 1.5 * sooner for sooner, later in zip(waits, waits[1:], strict=False))
    world.settle()
    assert peer.results[token] == TxnDone(True, 1)
    assert len({request.sequence for request in peer.sent if isinstance(request.operation, Txn)}) == 1


def test_an_end_of_a_session_that_is_put_off_is_no_end() -> None:
    """METADATA.md, 5: BUSY is no answer: the session would hold its locks for all of its ttl."""
    world = World()
    one, two = world.peer("a", ttl_ms=60_000), world.peer("b", ttl_ms=60_000)
    world.do(one, Acquire("/l"))
    world.ask(two, Acquire("/l"))
    world.settle()
    world.close(one)
    answer(one, world, "BUSY")
    assert not one.is_closed
    world.advance(SECOND)
    world.settle()
    assert one.is_closed

    assert list(world.member.catalog.sessions) == [two.sessions[0]]


def test_who_gives_up_on_what_was_put_off_hears_what_was_full() -> None:
    world = World()
    peer = world.peer("a")
    write, read = world.ask(peer, CREATE), world.ask(peer, Get("/a"))
    answer(peer, world, "BUSY")
    answer(peer, world, "BUSY")
    for token, code in ((write, "UNKNOWN"), (read, "UNAVAILABLE")):
        world.cancel(peer, token)
        result = peer.results[token]
        assert isinstance(result, Refusal)
        assert result.code == code
        assert "it is full: 7 wait" in result.text


def test_what_nobody_waits_for_is_not_sent_again_and_never_run_later() -> None:
    """Issue 11: resends carry what is still wanted. Below the done_below of what follows it is refused for ever."""
    world = World()
    peer = world.peer("a", ttl_ms=60_000)
    token = world.ask(peer, CREATE)
    late = peer.to_member.popleft()
    world.cancel(peer, token)
    assert is_unknown(peer.results[token])
    world.advance(50 * SECOND)
    assert [request for request in peer.sent if isinstance(request.operation, Txn)] == [late]
    assert world.do(peer, put("/b")) == TxnDone(True, 1)
    peer.to_member.append(late)
    world.settle()
    assert world.member.catalog.get("/a").record is None


def test_resends_come_later_each_time() -> None:
    """Clients that asked again every second made of a crowd twice the crowd."""
    world = World()
    peer = world.peer("a", ttl_ms=600_000)
    world.is_committing = False
    world.ask(peer, CREATE)
    world.advance(120 * SECOND)
    writes = [request for request in peer.sent if isinstance(request.operation, Txn)]
    assert 5 <= len(writes) <= 13


def test_many_lost_messages_are_soon_sent_again_all_the_same() -> None:
    """A client that had seen late answers took more than a minute for a handful of lost requests."""
    world = World()
    peer = world.peer("a", ttl_ms=600_000)
    for _ in range(3):
        tokens = [world.ask(peer, AllocIds(1)) for _ in range(16)]
        world.now_ns += 20 * SECOND  # Late, all of them.
        world.settle()
    for _ in range(40):
        tokens = [world.ask(peer, AllocIds(1)) for _ in range(40)]
        world.settle()
    tokens = [world.ask(peer, AllocIds(1)) for _ in range(40)]
    peer.to_member.clear()
    world.advance(30 * SECOND)
    assert all(token in peer.results for token in tokens)


def test_the_window_follows_how_long_answers_take() -> None:
    world = World()
    peer = world.peer("a", ttl_ms=60_000)
    for _ in range(600):
        world.ask(peer, AllocIds(1))
    world.settle()
    assert peer.client._requests._pace.window == IN_FLIGHT_MAX
    for _ in range(8):
        for _ in range(200):
            world.ask(peer, AllocIds(1))
        world.now_ns += 800 * MS  # Each crowd is answered late.
        world.settle()
    assert peer.client._requests._pace.window < IN_FLIGHT_MAX // 4
    for _ in range(3000):
        world.ask(peer, AllocIds(1))
    world.settle()
    assert peer.client._requests._pace.window > IN_FLIGHT_MAX // 4


def test_a_stream_refused_while_the_list_is_under_way_ends_nothing() -> None:
    """A lost message, a stream that was compacted, and a refusal: an assertion in the client core was reached."""
    client = Client(ttl_ms=6_000, label="x")

    def sent(event: object) -> list[MetadataRequest]:
        effects = client.step(event)  # type: ignore[arg-type]
        return [effect.request for effect in effects if isinstance(effect, Send)]

    def heard(message: MetadataReply | WatchEvents) -> list[MetadataRequest]:
        return sent(MessageReceived(SECOND, message))

    [opening] = sent(Connected(SECOND))
    heard(MetadataReply(0, opening.sequence, SessionOpened(7, 6_000, b"t" * 16, b"s")))
    [listing] = sent(WatchRequested(SECOND, "w", "/k/"))
    [watch] = heard(MetadataReply(7, listing.sequence, Listed([], False, 5)))
    heard(MetadataReply(7, watch.sequence, Acknowledged(5)))
    assert isinstance(watch.operation, Watch)
    stream = watch.operation.watch_id
    [again] = heard(WatchEvents(7, stream, 9, [], False, 8))  # One message before it was lost.
    [relisting] = heard(WatchEvents(7, stream, 20, [], True, 9))
    assert heard(MetadataReply(7, again.sequence, Refusal("UNAVAILABLE", "no room"))) == []
    page = Listed([Record("/k/a", b"", 15, 15)], False, 20)
    [follow] = heard(MetadataReply(7, relisting.sequence, page))
    assert isinstance(follow.operation, Watch)
    assert list(client.watched("w")) == ["/k/a"]


def test_nothing_of_a_list_that_ended_half_way_is_shown() -> None:
    """METADATA.md 1: "a watch shows every key under a prefix and then every change". The stream has begun with the
    first page of the list, and what it brings is no whole list."""
    client = Client(ttl_ms=6_000, label="x")

    def step(event: object) -> list[object]:
        return list(client.step(event))  # type: ignore[arg-type]

    def sent(event: object) -> list[MetadataRequest]:
        return [effect.request for effect in step(event) if isinstance(effect, Send)]

    def heard(message: MetadataReply | WatchEvents) -> list[MetadataRequest]:
        return sent(MessageReceived(SECOND, message))

    def page(key: str, revision: int, *, has_more: bool) -> Listed:
        return Listed([Record(key, b"", 3, 3)], has_more, revision)

    [opening] = sent(Connected(SECOND))
    heard(MetadataReply(0, opening.sequence, SessionOpened(7, 6_000, b"t" * 16, b"s")))
    [first] = sent(WatchRequested(SECOND, "w", "/k/"))
    watch, second = sorted(
        heard(MetadataReply(7, first.sequence, page("/k/a", 5, has_more=True))),
        key=lambda request: isinstance(request.operation, List),
    )
    assert isinstance(watch.operation, Watch)
    heard(MetadataReply(7, second.sequence, Refusal("UNAVAILABLE", "no room")))
    heard(MetadataReply(7, watch.sequence, Acknowledged(5)))
    events = WatchEvents(7, watch.operation.watch_id, 6, [Record("/k/b", b"", 6, 6)], False, 5)
    assert not step(MessageReceived(SECOND, events)), "half a list was shown as a whole one"
    [again] = [each for each in sent(Tick(2 * SECOND)) if isinstance(each.operation, List)]
    last = heard(MetadataReply(7, again.sequence, page("/k/a", 6, has_more=True)))
    [rest] = [each for each in last if isinstance(each.operation, List)]
    told = step(MessageReceived(SECOND, MetadataReply(7, rest.sequence, page("/k/c", 6, has_more=False))))
    [shown] = [each for each in told if isinstance(each, WatchChanged)]
    assert [record.key for record in shown.records] == ["/k/a", "/k/c"]


def test_a_stream_whose_end_was_lost_on_the_way_is_asked_for_again() -> None:
    """I82: "if changes are not kept any more, the stream is told so; nothing is skipped". The member ended the stream
    with that message, and it was lost: nothing else would have come for as long as the link lived."""
    world = World(limits=Limits(history_changes_max=1))
    peer, other = world.peer("a"), world.peer("b")
    world.watch(other, "/k/")
    world.settle()
    world.disconnect(other)
    for n in range(4):
        world.do(peer, put(f"/k/{n}"))
    world.connect(other)
    lost = 0
    while other.to_member or other.to_client:
        if not other.to_client:
            world.deliver_request(other)
            world.commit()
        elif isinstance(first := other.to_client[0], WatchEvents) and first.is_compacted:
            other.to_client.popleft()
            lost += 1
        else:
            world.deliver_answer(other)
    assert lost == 1
    assert other.views["/k/"] == {}
    world.advance(20 * SECOND)
    assert sorted(other.views["/k/"]) == [f"/k/{n}" for n in range(4)]


def test_a_stream_that_is_told_how_far_it_is_is_not_asked_for_again() -> None:
    """Each stream of a link is marked in its turn: those of a link with many hear less often."""
    world = World()
    peer = world.peer("a")
    for n in range(5 * MARKS_MAX):
        world.watch(peer, f"/{n}/")
    world.settle()
    asked = len([request for request in peer.sent if isinstance(request.operation, Watch)])
    world.advance(60 * SECOND)
    assert len([request for request in peer.sent if isinstance(request.operation, Watch)]) == asked


@pytest.mark.parametrize("is_put_off", [True, False])
def test_a_stream_that_was_ended_is_not_asked_for_again(is_put_off: bool) -> None:
    """METADATA.md, 5: "a request that no caller waits for any more is not sent again": its Watch, behind the Unwatch,
    began a stream that nobody ends; 4,096 of these, and a link has no watch any more."""
    world = World()
    peer = world.peer("a", ttl_ms=60_000)
    world.watch(peer, "/k/")
    while not isinstance(peer.to_member[0].operation, Watch):
        world.deliver_request(peer)
        world.deliver_answer(peer)
    if is_put_off:
        answer(peer, world, "BUSY")
    else:
        peer.to_member.clear()  # Or its answer comes later than it is asked for again.
    world.unwatch(peer, "/k/")
    world.settle()
    world.advance(10 * SECOND)
    assert world.member._streams.watches.total == 0
    assert len([request for request in peer.sent if isinstance(request.operation, Watch)]) == 1


def test_the_stream_begins_with_the_first_page_and_not_behind_the_last() -> None:
    """A list of 400 pages was never shown while 25 MB/s were put elsewhere: by its end, its beginning was forgotten."""
    world = World(limits=Limits(list_records_max=1, history_changes_max=3))
    peer, other = world.peer("a"), world.peer("b")
    for n in range(20):
        world.do(peer, put(f"/k/{n:02}"))
    world.watch(other, "/k/")
    for n in range(60):
        world.ask(peer, put(f"/k/{n % 20:02}", b"%d" % n))  # Even in its own folder.
        world.deliver_request(peer)
        world.commit()
        world.deliver_answer(peer)
        if other.to_member:
            world.deliver_request(other)
        while other.to_client:
            world.deliver_answer(other)
    world.settle()
    assert {key: record.value for key, record in other.views["/k/"].items()} == {
        f"/k/{n % 20:02}": b"%d" % n for n in range(40, 60)
    }
    assert len([request for request in other.sent if isinstance(request.operation, List)]) <= 22


def test_a_page_of_a_list_before_is_nobodys() -> None:
    """A page that was asked for when a list began anew belongs to the list before, and would end the new one before
    its first page."""
    world = World(limits=Limits(list_records_max=2, history_changes_max=1))
    peer, other = world.peer("a"), world.peer("b")
    for n in range(4):
        world.do(peer, put(f"/k/{n}"))
    world.watch(other, "/k/")
    world.deliver_request(other)
    world.deliver_answer(other)  # The first page; the second is asked for, and the stream.
    stale = next(request for request in other.to_member if isinstance(request.operation, List))
    watch_id = next(iter(other.client._watching._streams))
    session = other.sessions[0]
    world.step(other, MessageReceived(world.now_ns, WatchEvents(session, watch_id, 9, [], True, 4)))
    rest = Listed([], False, 4)
    world.step(other, MessageReceived(world.now_ns, MetadataReply(session, stale.sequence, rest)))
    world.settle()
    assert sorted(other.views["/k/"]) == [f"/k/{n}" for n in range(4)]


def test_watches_of_a_client_are_bounded_and_its_host_is_told() -> None:
    """WATCHES_MAX: beyond it a client listed and watched every 200 ms for ever, and nobody was told."""
    world = World()
    peer = world.peer("a")
    for n in range(WATCHES_MAX + 1):
        world.watch(peer, f"/w/{n}")
    refused = peer.results[f"/w/{WATCHES_MAX}"]
    assert isinstance(refused, Refusal)
    assert "4096 keys and prefixes are followed, allowed are 4096: end some" in refused.text
    world.settle()
    sent = len(peer.sent)
    world.advance(10 * SECOND)
    assert len(peer.sent) - sent <= 5


def test_a_stream_that_is_refused_is_asked_for_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quorum has no room for more watches: this one still shows what lists show."""
    monkeypatch.setattr("embedbk.metadata.streams.WATCHES_MAX", 3)
    world = World()
    peer, other = world.peer("a"), world.peer("b", ttl_ms=600_000)
    world.watch(other, "/k/")
    world.settle()
    world.do(peer, put("/k/a"))
    sent = len(other.sent)
    world.advance(60 * SECOND)
    assert sorted(other.views["/k/"]) == ["/k/a"]
    assert len(other.sent) - sent < 30
    assert 3 <= len(other.put_off) < 12
    assert (
        "0 watches on this link and 0 on all, allowed are 4096 and 3, and now 0 on one link"
        in other.put_off[0][1]
    )
    monkeypatch.undo()
    world.advance(31 * SECOND)
    world.do(peer, put("/k/b"))
    assert sorted(other.views["/k/"]) == ["/k/a", "/k/b"]


def lines_of(call: Callable[[], object]) -> int:
    """How many lines a call runs, each pass of a loop counted."""
    lines = 0

    def trace(_frame: object, event: str, _what: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def test_what_a_turn_costs_does_not_grow_with_what_is_followed() -> None:
    """A client has a watch for each ledger that it reads and that is open: its turns are no longer for that."""
    costs = []
    for count in (3, 300):
        world = World()
        peer = world.peer("a")
        for number in range(count):
            world.watch(peer, f"/{number:03}/")
        world.settle()
        core, now_ns = peer.client, world.now_ns
        costs.append(lines_of(lambda core=core, now_ns=now_ns: (core.step(Tick(now_ns)), core.deadline_ns)))
        event = MessageReceived(now_ns, WatchEvents(core.session, 1, 0, [], False, 0))
        costs.append(lines_of(lambda core=core, event=event: core.step(event)))
    assert costs[:2] == costs[2:]
