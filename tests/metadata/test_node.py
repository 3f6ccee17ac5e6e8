"""The member in its place: the real journal, a real transport inside the process, stepped by hand."""

from __future__ import annotations

import errno
import random
import select

import pytest

from embedbk.cli import quorum
from embedbk.codec.lac_messages import LacRequest
from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.metadata_messages import (
    Get,
    KeepAlive,
    MetadataReply,
    MetadataRequest,
    OpenSession,
    Operation,
    Put,
    SessionOpened,
    Tell,
    Told,
    Txn,
    TxnDone,
    Value,
    WatchEvents,
)
from embedbk.codec.quorum_messages import QuorumStatus, QuorumTold
from embedbk.host.loop import clock_ns
from embedbk.host.metadata_node import MetadataNode
from embedbk.metadata import catalog as catalog_module
from embedbk.metadata import cutting
from embedbk.metadata.catalog import GENERATION_BITS, Limits
from embedbk.metadata.levels import LEVEL
from embedbk.ports.links import Identity, LinkDown, LinkUp, Received
from embedbk.quorum import Seen
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MemberIdentity
from embedbk.transports.local import LocalTransport

IDENTITY = MemberIdentity(b"t" * 16, b"i" * 16)
SMALL = Limits(txn_bytes_max=8 << 10, txn_operations_max=16)


class Place:
    """One member on a disk in memory, and a client's end of one link."""

    def __init__(self, disk: MemoryDisk, *, begins_generation: bool = False, seed: int = 1) -> None:
        self.disk = disk
        store = open_metadata_store(
            "m",
            io=disk,
            file_bytes=64 << 10,
            threaded=False,
            limits=SMALL,
            snapshot_due_bytes=4000,
            new_identity=IDENTITY,
            may_have_lost=begins_generation,
        )
        own = Identity("metadata", "m1", store.identity.incarnation, store.identity.cluster_token)
        self.node = MetadataNode(
            store,
            LocalTransport(own),
            ["local://*"],
            now_ns=0,
            chance=random.Random(seed),
        )
        self.transport = LocalTransport(Identity("client", "c1", b"c" * 16, b""))
        self.sequence = 0
        self.session = 0
        self.secret = b""
        self.messages: list[MetadataReply | WatchEvents] = []
        self.downs: list[str] = []
        self.link = self.dial()

    def dial(self) -> int:
        link = self.transport.connect(self.node.endpoints[0])
        self.turn()
        return link

    def turn(self, now_ns: int = 0) -> None:
        self.node.step(now_ns)
        for event in self.transport.receive(now_ns):
            if isinstance(event, Received):
                control = decode_message(event.body).control
                assert isinstance(control, MetadataReply | WatchEvents)
                self.messages.append(control)
            elif isinstance(event, LinkDown):
                self.downs.append(event.reason)
            else:
                assert isinstance(event, LinkUp)

    def ask(self, operation: Operation) -> None:
        self.sequence += 1
        request = MetadataRequest(self.session, self.sequence, self.sequence, operation, self.secret)
        assert self.transport.send(self.link, encode_message(self.sequence, request))
        self.turn()

    def sync(self) -> None:
        while self.node.store._journal.step():  # type: ignore[attr-defined]
            pass
        self.turn()

    def do(self, operation: Operation) -> object:
        self.ask(operation)
        self.sync()
        reply = self.messages.pop()
        assert isinstance(reply, MetadataReply)
        assert not self.messages
        if isinstance(reply.result, SessionOpened):
            self.session, self.secret = reply.result.session, reply.result.secret
        return reply.result

    def close(self) -> None:
        self.node.close()
        self.transport.close()


@pytest.fixture
def place():
    places = [Place(MemoryDisk())]
    yield places[0]
    places[0].close()


def put(key: str, size: int = 10) -> Txn:
    return Txn([], [Put(key, bytes(size))])


def test_nothing_is_answered_before_the_journal_has_it(place: Place) -> None:
    """P10.1: the answer leaves in the turn that hears of durability, over the real journal."""
    assert isinstance(place.do(OpenSession(1000, "x", 0, LEVEL)), SessionOpened)
    place.ask(put("/a"))
    place.turn()
    assert place.messages == []
    place.sync()
    [reply] = place.messages
    assert isinstance(reply, MetadataReply)
    assert reply.result == TxnDone(True, 1)


def test_a_session_of_a_new_cluster_is_never_told_the_level_before(place: Place) -> None:
    """METADATA.md, 8: "it stands in the log before any session". Where the first sync took long, bookies and client had
    their sessions before the level, and for a third of a session whatever a level brings was refused."""
    place.ask(OpenSession(1000, "x", 0, LEVEL))
    assert place.messages == []
    place.sync()
    opened = place.messages.pop().result
    assert isinstance(opened, SessionOpened)
    assert opened.level == LEVEL


def test_every_start_is_a_link_that_is_durable_before_anything_is_answered(place: Place) -> None:
    """P10.5: a start that nobody can have heard of leaves no trace, any other stays in the chain."""
    place.ask(Tell(0))
    assert place.messages == [], "the link itself is on its way to the disk"
    place.sync()
    first = place.messages.pop().result
    assert isinstance(first, Told)
    assert (first.cluster_token, first.count) == (IDENTITY.cluster_token, 1)
    place.close()
    again = Place(place.disk, seed=2)
    told = again.do(Tell(1))
    assert isinstance(told, Told)
    assert (told.count, told.asked.nonce) == (2, first.nonce)
    assert told.nonce != first.nonce
    assert again.do(Tell(2)).asked.nonce == told.nonce
    again.close()


def test_a_generation_begins_by_its_owners_word_only(place: Place) -> None:
    """P9.2, P10.5: above every revision and id of the log it begins in; a later start goes on in it."""
    place.do(OpenSession(1000, "x", 0, LEVEL))
    place.do(put("/a"))
    before = place.do(Tell(1))
    place.close()
    for word, seed in ((True, 2), (False, 3)):
        again = Place(place.disk, begins_generation=word, seed=seed)
        told = again.do(Tell(1))
        assert isinstance(told, Told)
        assert (told.revision >> GENERATION_BITS, told.count) == (1, seed)
        assert told.spared == [(before.ids_end, told.ids_end)]
        assert told.asked == before.asked, "as far as it came before the generation began"
        again.session, again.secret, again.sequence = place.session, place.secret, 10 * seed
        assert again.do(put("/a")).revision == told.revision + 1
        again.close()


def test_a_restart_keeps_values_and_sessions(place: Place) -> None:
    """P10.4: nothing is lost, through snapshots too; the session goes on where it was."""
    place.do(OpenSession(1000, "x", 0, LEVEL))
    for n in range(60):
        assert place.do(put(f"/k/{n % 5}", 200)) == TxnDone(True, n + 1)
    assert place.node.store.snapshots.kept
    place.close()
    again = Place(place.disk)
    again.session, again.secret, again.sequence = place.session, place.secret, place.sequence
    found = again.do(Get("/k/4"))
    assert isinstance(found, Value)
    assert found.record is not None
    assert found.record.revision == 60
    assert again.do(put("/more")) == TxnDone(True, 61)
    assert again.node.store.identity == IDENTITY
    again.close()


def test_a_snapshot_is_cut_a_slice_a_turn_and_requests_are_run_between(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """METADATA.md, 2: what is put meanwhile is answered meanwhile, and is not in it."""
    monkeypatch.setattr(cutting, "SLICE_RECORDS", 2)
    place.do(OpenSession(1000, "x", 0, LEVEL))
    snapshots = place.node.store.snapshots
    assert snapshots is not None
    index = count = answered = 0
    while not snapshots.is_under_way:
        count, index = count + 1, place.node.core.applied_index  # Without the put that is only logged.
        place.do(put(f"/k/{count}", 100))
    while place.node._snapshotting._cut is not None:
        assert place.node.deadline_ns() == 0
        place.do(put(f"/new/{answered}"))
        answered += 1
    assert answered > 3
    place.sync()
    place.sync()
    assert [each.index for each in snapshots.kept] == [index]
    assert place.node.deadline_ns() != 0
    place.close()
    again = Place(place.disk)
    found = again.do(Get(f"/new/{answered - 1}"))
    assert isinstance(found, Value)
    assert found.record is not None, "from the log behind it"
    again.close()


def test_a_snapshot_that_finds_no_room_is_told_and_tried_again_later_each_time(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """I53: a full disk costs the snapshot and nothing else."""
    place.do(OpenSession(600_000, "x", 0, LEVEL))
    snapshots = place.node.store.snapshots
    assert snapshots is not None
    second = 1_000_000_000
    place.disk.break_device("m/snapshots", errno.EDQUOT)
    for n in range(60):
        place.do(put(f"/k/{n}", 200))
    place.turn()
    assert "tried again in 10 s" in caplog.text
    assert snapshots.kept == []
    for now_s, is_tried in [(9, False), (10, True), (29, False), (31, True), (69, False), (72, True)]:
        caplog.clear()
        for _ in range(8):
            place.turn(now_s * second)
        assert ("snapshot not written" in caplog.text) == is_tried, now_s
        assert "quota exceeded" in caplog.text or not is_tried
    assert place.do(put("/more")).is_done
    place.disk.break_device("m/snapshots", 0)
    for _ in range(8):
        place.turn(200 * second)
        place.sync()
    assert len(snapshots.kept) == 1


def test_a_log_that_finds_no_room_is_told_and_so_is_its_end(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """I53: nothing fails and nothing is lost, but everybody waits: an operator must learn why."""
    place.do(OpenSession(600_000, "x", 0, LEVEL))
    second = 1_000_000_000
    place.turn(second)
    place.disk.break_device("m", errno.ENOSPC)
    asked = 0
    while place.node.store.why_waiting() == "" or not place.node.store._journal.is_next_refused():  # type: ignore[attr-defined]
        place.ask(put(f"/k/{asked}", 2000))
        place.node.store._journal.step()  # type: ignore[attr-defined]
        place.turn(second)
        asked += 1
    for now_s in range(2, 8):
        assert ("nothing more of its log is durable: there is no room for it" in caplog.text) == (now_s > 5)
        place.turn(now_s * second)
    place.ask(QuorumStatus())
    place.turn(7 * second)
    reply = place.messages.pop()
    assert isinstance(reply, MetadataReply)
    told = reply.result
    assert isinstance(told, QuorumTold)
    assert told.stands.startswith("there is no room for it (make room on the device")
    text = quorum._as_text(Seen({told.member: told}, told, {}))
    assert "leader, stands still" in text
    assert "m1: nothing more of its log becomes durable, and commits wait for that: there is no room" in text
    place.disk.break_device("m", 0)
    place.sync()
    place.turn(9 * second)
    assert "its log goes on" in caplog.text
    done = [each for each in place.messages if isinstance(each, MetadataReply)]
    assert [isinstance(each.result, TxnDone) for each in done] == [True] * asked


@pytest.mark.parametrize(
    "body",
    [
        b"not a message" * 10,
        b"".join(bytes(piece) for piece in encode_message(1, LacRequest(b"i" * 16, 1))),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_dropped_and_nobody_else(place: Place, body: bytes) -> None:
    """A PeerError costs the peer its link, not the node."""
    place.do(OpenSession(1000, "x", 0, LEVEL))
    assert place.transport.send(place.link, [body])
    place.turn()
    place.turn()
    assert len(place.downs) == 1
    place.link = place.dial()
    assert place.do(put("/a")) == TxnDone(True, 1)


def test_a_client_of_another_cluster_is_dropped(place: Place) -> None:
    """P10.3, P7.2: the cluster token is checked on every connection."""
    stranger = LocalTransport(Identity("client", "c2", b"d" * 16, b"another cluster!"))
    stranger.connect(place.node.endpoints[0])
    place.turn()
    events = stranger.receive(0)
    assert isinstance(events[-1], LinkDown)
    stranger.close()


def test_a_failed_journal_ends_the_service_and_says_why(place: Place) -> None:
    """P7.6: after a failed write nothing is answered any more; clients see their links end."""
    place.do(OpenSession(1000, "x", 0, LEVEL))
    place.disk.fail("write", error=errno.EIO)
    place.ask(put("/a"))
    place.sync()
    place.turn()
    assert "errno 5" in str(place.node.failure)
    assert place.messages == []
    assert len(place.downs) == 1
    place.dial()
    place.turn()
    assert len(place.downs) == 2
    assert place.node.deadline_ns() is None


def test_an_idle_member_asks_for_no_turn_before_a_session_may_expire(place: Place) -> None:
    assert place.node.deadline_ns() is None
    place.do(OpenSession(16_000, "x", 0, LEVEL))
    assert place.node.deadline_ns() == 17 * 1_000_000_000
    place.turn(now_ns=17 * 1_000_000_000)
    place.sync()
    place.ask(KeepAlive())
    assert "SESSION_GONE" in str(place.messages.pop())


def test_a_threaded_journal_wakes_the_loop(tmp_path: object) -> None:
    """filenos(): a host that polls them learns of requests and of durability, with no time limit of its own."""
    store = open_metadata_store(f"{tmp_path}/m")
    token = store.identity.cluster_token
    node = MetadataNode(
        store,
        LocalTransport(Identity("metadata", "m1", store.identity.incarnation, token)),
        ["local://*"],
        now_ns=clock_ns(),
    )
    client = LocalTransport(Identity("client", "c1", b"c" * 16, token))
    link = client.connect(node.endpoints[0])
    poll = select.poll()
    for fileno in (*node.filenos(), *client.filenos()):
        poll.register(fileno, select.POLLIN)
    request = MetadataRequest(0, 1, 1, OpenSession(1000, "x", 0, LEVEL))
    answered = None
    is_sent = False
    while answered is None:
        # Nodes of one thread do not wake each other through a descriptor: a host asks first, as its loop does.
        assert node.has_news() or client.has_events() or poll.poll(20_000), "nothing woke the loop"
        node.step(clock_ns())
        for event in client.receive(clock_ns()):
            if isinstance(event, Received):
                answered = decode_message(event.body).control
        if not is_sent:
            is_sent = client.send(link, encode_message(1, request))
    assert isinstance(answered, MetadataReply)
    assert isinstance(answered.result, SessionOpened)
    assert answered.result.cluster_token == token
    node.close()
    client.close()


def test_a_member_that_is_told_to_begin_one_generation_too_many_stops(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GENERATIONS_MAX: whoever gave the word is told why; started without it, the member serves as before."""
    monkeypatch.setattr(catalog_module, "GENERATIONS_MAX", 2)
    place.do(OpenSession(1000, "x", 0, LEVEL))
    place.close()
    for word, has_failed in ((True, False), (True, True), (False, False)):
        again = Place(place.disk, begins_generation=word)
        again.sync()
        assert (again.node.failure is not None) == has_failed
        if has_failed:
            assert "generation 2 would begin, and the last there is is 1" in str(again.node.failure)
        else:
            told = again.do(Tell(1))
            assert isinstance(told, Told)
            assert told.revision >> GENERATION_BITS == 1
        again.close()
