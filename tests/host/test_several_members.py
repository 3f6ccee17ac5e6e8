"""Several whole metadata members in their places: production nodes, stores and links in virtual time (RAFT.md)."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from msgspec.structs import replace

from embedbk.codec import kernels
from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import encode_frame_header, frame_of
from embedbk.codec.messages import MESSAGE_HEADER_BYTES, ErrorAnswer, decode_message, encode_message
from embedbk.codec.metadata_messages import (
    Get,
    MetadataReply,
    MetadataRequest,
    NotLeader,
    OpenSession,
    Put,
    SessionOpened,
    Txn,
    TxnDone,
)
from embedbk.codec.quorum_messages import CutSnapshot, SnapshotCut
from embedbk.host.metadata_node import MetadataNode
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_messages import encode_member_message
from embedbk.metadata.raft_vocabulary import (
    Boot,
    Entry,
    Heartbeat,
    LearnersRequested,
    Message,
    Persist,
    TransferRequested,
)
from embedbk.metadata.vocabulary import JournalFailed
from embedbk.ports.links import Identity, LinkDown, Received
from embedbk.storage.member_notes import MemoryNotes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.transports.sim import SimNetwork
from embedbk.transports.sim_faults import CALM

MS = 1_000_000
TOKEN = b"t" * 16
NAMES = ("m1", "m2", "m3")


def member_of(name: str) -> MemberId:
    return MemberId(name, name.encode() * 8)


class Place:
    """A member's directory, and the process on it."""

    def __init__(self, house: House, name: str, *, is_blank: bool = False) -> None:
        """is_blank: it knows the cluster's token and nobody in it."""
        self.house, self.name = house, name
        self.journal, self.notes, self.disk = MemoryJournal(), MemoryNotes(), MemoryDisk()
        self.starts = 0
        self.has_failed = False  # It is meant to.
        self.node: MetadataNode | None = None
        if is_blank:
            return
        store = self._open()
        store.persist(Persist(1, FIRST_TERM, None, 0, (Entry(1, FIRST_TERM, house.configuration),)))
        self.journal.commit()
        store.close()
        self.journal = MemoryJournal(self.journal.records)

    def _open(self) -> MetadataStore:
        self.starts += 1
        identity = MemberIdentity(TOKEN, member_of(self.name).incarnation, self.name, is_founder=False)
        store = MetadataStore(
            self.journal,
            self.journal.first_token(),
            new_identity=identity,
            notes=self.notes,
            snapshots=SnapshotFiles("snapshots", io=self.disk),
            snapshot_due_bytes=3000,
            start_nonce=self.starts.to_bytes(8, "big"),
        )
        self.journal.commit()
        return store

    def start(self) -> None:
        store, house = self._open(), self.house
        boot = store.boot
        own = Identity("metadata", self.name, boot.member.incarnation, TOKEN, start=boot.nonce)
        self.node = MetadataNode(
            store,
            house.network.transport(own),
            [f"sim://{self.name}"],
            now_ns=house.now_ns,
            chance=random.Random(f"{self.name} {self.starts}"),
        )

    def crash(self) -> None:
        assert self.node is not None
        self.house.network.crash(self.name)
        self.node = None
        self.journal = MemoryJournal(self.journal.crash())
        self.disk.crash()

    def turn(self, now_ns: int) -> None:
        if self.node is not None:
            self.node.step(now_ns)
            self.journal.commit()
            self.node.step(now_ns)
            assert self.node.failure is None or self.has_failed


class House:
    """Three places, and a client's end of links."""

    def __init__(self) -> None:
        self.network = SimNetwork(1, CALM)
        members = tuple(map(member_of, NAMES))
        self.configuration = Configuration(
            members, addresses=tuple((each, (f"sim://{each.name}",)) for each in members)
        )
        self.places = {name: Place(self, name) for name in NAMES}
        self.client = self.network.transport(Identity("client", "c1", b"c" * 16, b""))
        self.replies: list[MetadataReply] = []
        self.link: int | None = None
        self.session: SessionOpened | None = None
        self.sequence = 0

    @property
    def now_ns(self) -> int:
        return self.network.now_ns

    def run(self, for_ms: float, until: Any = lambda: False) -> None:
        end_ns = self.now_ns + int(for_ms * MS)
        while self.now_ns < end_ns and not until():
            self.network.advance(min(end_ns, self.now_ns + 2 * MS))
            for place in self.places.values():
                place.turn(self.now_ns)
            for event in self.client.receive(self.now_ns):
                if isinstance(event, Received):
                    self.replies.append(decode_message(event.body).control)

    def leader(self) -> Place:
        def leading() -> list[Place]:
            return [place for place in self.places.values() if place.node is not None and place.node.log.term]

        self.run(10_000, lambda: bool(leading()))
        return max(leading(), key=lambda place: place.node.log.term if place.node is not None else 0)

    def dial(self, name: str) -> None:
        self.link = self.client.connect(f"sim://{name}")
        self.run(20)

    def ask(self, operation: Any) -> MetadataReply:
        assert self.link is not None
        self.sequence += 1
        number, secret = (self.session.session, self.session.secret) if self.session is not None else (0, b"")
        request = MetadataRequest(number, self.sequence, self.sequence, operation, secret)
        self.replies.clear()
        self.client.send(self.link, encode_message(self.sequence, request))
        self.run(3_000, lambda: bool(self.replies))
        return self.replies[0]

    def open(self) -> None:
        self.dial(self.leader().name)
        opened = self.ask(OpenSession(60_000, "c1")).result
        assert isinstance(opened, SessionOpened)
        self.session, self.sequence = opened, 0

    def digests(self) -> set[bytes]:
        return {place.node.core.catalog.digest() for place in self.places.values() if place.node is not None}


@pytest.fixture
def house() -> House:
    house = House()
    for place in house.places.values():
        place.start()
    return house


def test_three_members_elect_one_and_all_apply_what_it_takes(house: House) -> None:
    """P10.1: and who does not lead says who does, with the addresses."""
    house.open()
    assert isinstance(house.ask(Txn([], [Put("/a", b"1")])).result, TxnDone)
    house.run(200)
    assert len(house.digests()) == 1
    leader = house.leader().name
    other = next(name for name in NAMES if name != leader)
    house.dial(other)
    refused = house.ask(Txn([], [Put("/b", b"1")])).result
    voters = tuple(f"sim://{name}" for name in NAMES)
    assert refused == NotLeader(leader, (f"sim://{leader}",), voters)


def test_when_the_leader_is_gone_another_leads_and_nothing_is_lost(house: House) -> None:
    """I66, I74: its clients come with their sessions, which live on."""
    house.open()
    assert isinstance(house.ask(Txn([], [Put("/a", b"1")])).result, TxnDone)
    first = house.leader()
    first.crash()
    second = house.leader()
    assert second is not first
    house.dial(second.name)
    assert house.ask(Txn([], [Put("/b", b"1")])).result == TxnDone(True, 2)
    first.start()
    house.run(2_000)
    assert len(house.digests()) == 1


def test_who_asks_while_nobody_leads_is_answered_when_somebody_does(house: House) -> None:
    """METADATA.md, 6: by whoever is elected itself it is run, in order; by another it is sent there, at once."""
    house.open()
    house.run(200)
    house.leader().crash()
    house.run(20)
    links = {name: house.client.connect(f"sim://{name}") for name in NAMES if house.places[name].node}
    house.run(20)
    assert house.session is not None
    for sequence, (name, link) in itertools.product((1, 2), enumerate(links.values())):
        put = Txn([], [Put(f"/{name}", b"%d" % sequence)])
        at = 2 * name + sequence
        request = MetadataRequest(house.session.session, at, 1, put, house.session.secret)
        house.client.send(link, encode_message(at, request))
    house.replies.clear()
    house.run(60)
    assert house.replies == [], "nobody leads yet"
    leader = house.leader()
    leads_ns = house.now_ns
    house.run(2000, lambda: len(house.replies) == 3)
    assert house.now_ns - leads_ns <= 60 * MS, "not when its time was over"
    done = [reply for reply in house.replies if isinstance(reply.result, TxnDone)]
    [sent_on] = [reply for reply in house.replies if isinstance(reply.result, NotLeader)]
    first = 1 + 2 * list(links).index(leader.name)
    assert [reply.sequence for reply in done] == [first, first + 1]
    assert sent_on.result.leader == leader.name  # type: ignore[union-attr]
    assert leader.node is not None
    [record] = leader.node.core.catalog.page("/", "", 10).records  # type: ignore[union-attr]
    assert record.value == b"2"


def test_who_asks_a_member_that_is_cut_off_for_long_is_told_at_once(house: House) -> None:
    """METADATA.md, 6: nobody is kept waiting where no leader is to be expected, nor anybody for long."""
    house.open()
    first = house.leader()
    others = [name for name in NAMES if name != first.name]
    first.crash()
    house.places[others[0]].crash()
    house.run(100)
    house.dial(others[1])
    began_ns = house.now_ns
    assert isinstance(house.ask(Get("/a")).result, NotLeader)
    assert 400 * MS <= house.now_ns - began_ns <= 600 * MS
    house.run(1500)
    house.dial(others[1])
    began_ns = house.now_ns
    assert isinstance(house.ask(Get("/a")).result, NotLeader)
    assert house.now_ns - began_ns <= 20 * MS


def test_a_leader_whose_disk_failed_is_linked_with_nobody_and_another_leads(house: House) -> None:
    """P7.6, L5: a member that has failed says and hears nothing more; the others choose without it."""
    house.open()
    house.run(500)
    first = house.leader()
    assert first.node is not None
    first.has_failed = True
    first.node._step_core(JournalFailed(house.now_ns, "a sync was refused"))
    assert first.node.failure is not None
    others = [place for place in house.places.values() if place is not first]

    def another_leads() -> bool:
        return any(place.node is not None and place.node.log.term for place in others)

    house.run(3_000, another_leads)
    assert another_leads()
    assert not first.node.members.peers.linked()


def test_a_leader_that_hands_over_drops_the_links_of_its_clients(house: House) -> None:
    house.open()
    first = house.leader()
    other = next(name for name in NAMES if name != first.name)
    assert first.node is not None
    first.node._step_core(TransferRequested(house.now_ns, member_of(other)))
    house.run(500)
    assert house.leader().name == other
    assert not first.node._links


def test_a_member_that_was_away_for_long_is_put_to_a_snapshot(house: House) -> None:
    """L6, I80: the others let go of the entries that it lacks; it pulls the snapshot, stands at it, and goes on; also
    when it crashes on the way, and from its disk afterwards."""
    house.open()
    away = next(place for place in house.places.values() if place is not house.leader())
    away.crash()
    for number in range(60):
        assert isinstance(house.ask(Txn([], [Put(f"/{number % 4}", bytes(300))])).result, TxnDone)
    leader = house.leader().node
    assert leader is not None
    assert leader.log.raft.log.first_index > 5, "the log was let go behind snapshots"
    for after_ms in (30, 2_000):
        away.start()
        house.run(after_ms)
        if after_ms < 2_000:
            away.crash()
    assert len(house.digests()) == 1
    assert away.node is not None
    assert away.node.log.raft.log.first_index > 5, "it stands behind the snapshot"
    assert isinstance(house.ask(Txn([], [Put("/more", b"1")])).result, TxnDone)
    house.run(200)
    assert len(house.digests()) == 1
    away.crash()
    away.start()
    house.run(2_000)
    assert len(house.digests()) == 1


def test_who_joins_behind_a_trimmed_log_learns_of_all_others_by_a_snapshot(house: House) -> None:
    """P10.3: a learner has no configuration, so it dials nobody and pulls over the link on which it is spoken to."""
    house.open()
    for number in range(60):
        assert isinstance(house.ask(Txn([], [Put(f"/{number % 4}", bytes(300))])).result, TxnDone)
    leader = house.leader().node
    assert leader is not None
    raft = leader.log.raft
    assert raft.log.first_index > 5, "the log was let go behind snapshots"
    fresh = house.places["m4"] = Place(house, "m4", is_blank=True)
    fresh.start()
    learner = member_of("m4")
    index, address = raft.log.configuration_index, (learner, ("sim://m4",))
    leader._step_core(LearnersRequested(house.now_ns, -5, index, (learner,), (address,)))
    house.run(3_000)
    assert fresh.node is not None
    assert learner in fresh.node.log.raft.configuration.learners
    assert len(house.digests()) == 1
    assert len(fresh.node.members.peers.linked()) == 3, "it knows all addresses now"
    assert not [path for path in fresh.disk.files(stable=False) if path.endswith(".fetched")]


def test_a_learner_that_hears_no_leader_is_known_to_nobody_and_a_voter_stands_for_election(
    house: House,
) -> None:
    """L7: the entry that lets a learner in reaches it before the leader's own disk has it. A leader that loses the
    entry knows of no learner, and this one waits for ever, unless it asks to be let in again."""
    leader = house.leader().node
    house.run(500)
    fresh = house.places["m4"] = Place(house, "m4", is_blank=True)
    fresh.start()
    learner = member_of("m4")
    assert fresh.node is not None and leader is not None
    assert not fresh.node.is_known
    index, address = leader.log.raft.log.configuration_index, (learner, ("sim://m4",))
    leader._step_core(LearnersRequested(house.now_ns, -5, index, (learner,), (address,)))
    house.run(1_000)
    assert fresh.node.is_known
    for name in NAMES[1:]:
        house.places[name].crash()
    first = house.places[NAMES[0]].node
    assert first is not None
    house.run(2_000)
    assert not first.log.term and first.is_known, (
        "it has a vote: it stands for election and need not be let in"
    )
    first_index = fresh.node.log.raft.log.configuration_index
    assert not fresh.node.is_known, "nobody leads"
    for name in NAMES[1:]:
        house.places[name].start()
    house.leader()
    house.run(1_000)
    assert fresh.node.is_known and fresh.node.log.raft.log.configuration_index == first_index


def test_a_copy_is_cut_by_whoever_led_for_certain_when_it_was_asked_for(house: House) -> None:
    """METADATA.md, 10: a leader that nobody hears any more may lack what another one has promised since."""
    house.open()
    assert isinstance(house.ask(Txn([], [Put("/a", b"1")])).result, TxnDone)
    house.run(500)
    leader = house.leader()
    assert leader.node is not None
    cut = house.ask(CutSnapshot()).result
    assert isinstance(cut, SnapshotCut) and cut.index >= leader.node.core.promised_index
    others = [place for place in house.places.values() if place is not leader]
    house.dial(others[0].name)
    house.session = None
    refused = house.ask(CutSnapshot()).result
    assert isinstance(refused, NotLeader) and refused.leader == leader.name
    house.dial(leader.name)
    for place in others:
        place.crash()
    request = MetadataRequest(0, 99, 1, CutSnapshot())
    house.replies.clear()
    assert house.link is not None
    house.client.send(house.link, encode_message(99, request))
    house.run(2_000)
    assert not [each for each in house.replies if isinstance(each.result, SnapshotCut)]


# --- Strangers -----------------------------------------------------------------------------------------------


def knock(house: House, body: list[Any], **changes: Any) -> tuple[str, int]:
    """Somebody who says that it is a member: why its link to the leader ended, and the leader's term before."""
    leader = house.leader()
    assert leader.node is not None
    term = leader.node.log.raft.term
    who = Identity("metadata", "m9", b"m9" * 8, TOKEN, b"stranger")
    transport = house.network.transport(replace(who, **changes))
    link = transport.connect(f"sim://{leader.name}")
    house.run(20)
    for each in body:
        transport.send(link, each)
    house.run(50)
    ended = [event.reason for event in transport.receive(house.now_ns) if isinstance(event, LinkDown)]
    transport.close()
    house.run(50)
    return (ended[0] if ended else ""), term


def said_by(sender: MemberId, to: MemberId) -> list[bytes | memoryview]:
    return encode_member_message(Message(1000, Boot(sender, b"stranger"), to, Heartbeat(0, 1)))


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("noise", "no message of version"),
        ("empty", "message of 0 bytes"),
        ("answer", "a ErrorAnswer is not for another metadata member"),
        ("request", "a MetadataRequest is not for another metadata member"),
        ("frames", "a MemberMessage with frames"),
        ("foreign", "over a link of"),
        ("elsewhere", "and here is"),
    ],
)
def test_what_no_member_says_ends_its_link_and_nothing_behind_it_is_heard(
    house: House, what: str, reason: str
) -> None:
    """T10, P10.3: by whoever has the token and says that it is a member; the others go on."""
    house.open()
    stranger = MemberId("m9", b"m9" * 8)
    leader = member_of(house.leader().name)
    bodies: dict[str, list[bytes | memoryview]] = {
        "noise": [b"no message at all, and long enough to be one"],
        "empty": [b""],
        "answer": encode_message(1, ErrorAnswer("x")),
        "request": encode_message(1, MetadataRequest(0, 1, 1, OpenSession(1000, "c"))),
        "frames": with_a_frame(said_by(stranger, leader)),
        "foreign": said_by(member_of("m2" if leader.name != "m2" else "m3"), leader),
        "elsewhere": said_by(stranger, MemberId(leader.name, bytes(16))),
    }
    ended, term = knock(house, [bodies[what], said_by(stranger, leader)])
    assert reason in ended
    after = house.leader().node
    assert after is not None
    assert after.log.raft.term == term, "what came behind it was heard"
    assert isinstance(house.ask(Txn([], [Put("/on", b"1")])).result, TxnDone)


def with_a_frame(pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """The same control part, and an entry behind it."""
    control = b"".join(pieces)[MESSAGE_HEADER_BYTES:]
    entry = encode_entry(7, 2, 12, b"hello", 0, 3)
    frame = frame_of(memoryview(entry))
    header = encode_frame_header(frame, bytes(16))
    return [bytes(kernels.message_head(80, 1, control, len(header) + len(entry), 0)), header, entry]


def test_a_client_that_speaks_as_a_member_is_dropped(house: House) -> None:
    """T10: Hello's role says whose link it is."""
    house.open()
    leader = member_of(house.leader().name)
    stranger = MemberId("m9", b"m9" * 8)
    for changes in ({"role": "client"}, {"cluster_token": b""}, {"start": b""}):
        ended, term = knock(house, [said_by(stranger, leader)], **changes)
        assert "a MemberMessage is not for a metadata member" in ended
        after = house.leader().node
        assert after is not None
        assert after.log.raft.term == term
