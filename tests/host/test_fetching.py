"""Snapshots that one member pulls from another: gone on with, believed when all of it is right, given up late."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from embedbk.codec.messages import decode_message, encode_message
from embedbk.host.fetching import ATTEMPTS_MAX
from embedbk.host.handing_out import IDLE_NS_MAX, PULLERS_MAX
from embedbk.host.member_links import FromMembers, MemberLinks
from embedbk.metadata.calibration import FETCH_NS
from embedbk.metadata.log_records import encode_configuration
from embedbk.metadata.patience import LIMIT_NS_MAX, LIMIT_NS_MIN, Patience
from embedbk.metadata.quorum import Configuration
from embedbk.metadata.raft_messages import PIECE_BYTES_MAX, SnapshotPiece, SnapshotPull
from embedbk.metadata.raft_vocabulary import Boot, FetchSnapshot, SnapshotFetched, SnapshotGivenUp
from embedbk.ports.links import Identity, LinkDown, LinkUp, Received
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import FETCHED_SUFFIX, SnapshotHeader
from embedbk.storage.snapshot_writer import SnapshotWriter
from embedbk.storage.snapshots import Named, Snapshots
from embedbk.transports.sim import SimNetwork
from embedbk.transports.sim_faults import CALM, DROP, Faults, Treatment
from tests.host.members import MS, configuration_of, member_of
from tests.storage.test_snapshots import Member

SECOND = 1000 * MS
TOKEN = b"t" * 16
PIECES = 5
CONFIGURATION = configuration_of("m1", "m2", "m3")


class Node:
    """A member as far as this is concerned: its snapshots' disk, and its links."""

    def __init__(self, world: Pulling, name: str, store: Member) -> None:
        self.world, self.name, self.store = world, name, store
        self.events: list[FromMembers] = []
        self.configuration = CONFIGURATION
        self.commit_index = 0
        self.start()

    def start(self) -> None:
        boot = Boot(member_of(self.name), self.world.chance.randbytes(8))
        who = Identity("metadata", self.name, boot.member.incarnation, TOKEN, boot.nonce)
        self.boot = boot
        self.transport = self.world.network.transport(who)
        self.transport.listen(f"sim://{self.name}")
        self.links = MemberLinks(self.transport, boot, TOKEN, self.snapshots)

    @property
    def snapshots(self) -> Snapshots:
        assert self.store.store.snapshots is not None
        return self.store.store.snapshots

    def restart(self) -> None:
        self.links.close()
        self.world.network.crash(self.name)
        self.store.restart()
        self.start()

    def step(self, now_ns: int) -> None:
        for event in self.transport.receive(now_ns):
            match event:
                case LinkUp():
                    self.links.on_link_up(now_ns, event)
                case LinkDown():
                    lost = self.links.on_link_down(now_ns, event)
                    if lost is not None:
                        self.events.append(lost)
                case Received(link, body):
                    self.links.on_control(now_ns, link, decode_message(body).control)
        self.events += self.links.step(now_ns, self.configuration, self.commit_index)

    def deadline_ns(self) -> int | None:
        due = [self.transport.deadline_ns(), self.links.deadline_ns()]
        return min((each for each in due if each is not None), default=None)

    def came(self) -> list[FromMembers]:
        return [each for each in self.events if isinstance(each, SnapshotFetched | SnapshotGivenUp)]

    def files(self) -> dict[str, bytes]:
        return {
            path.removeprefix("snapshots/"): content
            for path, content in self.store.disk.files(stable=False).items()
        }


class Pulling:
    """m1 has a snapshot of five pieces of 1 MiB and some bytes; m2 wants it."""

    def __init__(self, *, faults: Faults = CALM, seed: int = 1) -> None:
        self.network = SimNetwork(seed, faults)
        self.chance = random.Random(seed)
        self.pulled: list[tuple[int, int]] = []  # Offset of each pull that arrived, and when.
        self.network.on_delivery = self._look
        self.source = Node(self, "m1", Member())
        self.follower = Node(self, "m2", Member())
        self.named = write(self.source, 70, 3)
        self.wanted = FetchSnapshot(self.source.boot, 70, 3)

    def _look(self, now_ns: int, sender: str, receiver: str, body: bytes) -> None:
        control = decode_message(body).control if body[5] == 81 else None
        if isinstance(control, SnapshotPull) and control.bytes_max:
            self.pulled.append((control.offset, now_ns))

    @property
    def now_ns(self) -> int:
        return self.network.now_ns

    def run(self, ms: float) -> None:
        end_ns = self.now_ns + int(ms * MS)
        nodes = [self.source, self.follower]
        while True:
            due = [each for each in (node.deadline_ns() for node in nodes) if each is not None]
            next_ns = self.network.next_event_ns()
            due += [next_ns] if next_ns is not None else []
            at = max(min(due, default=end_ns), self.now_ns)
            if at >= end_ns:
                self.network.advance(end_ns)
                return
            self.network.advance(at)
            for node in nodes:
                deadline_ns = node.deadline_ns()
                if deadline_ns is not None and deadline_ns <= self.now_ns:
                    node.step(self.now_ns)

    def fetch(self) -> None:
        self.source.step(self.now_ns)
        self.follower.links.fetch(self.now_ns, self.wanted)
        self.follower.step(self.now_ns)

    def until_offset(self, offset: int) -> None:
        """So much is here."""
        for _ in range(20_000):
            self.run(0.5)
            fetching = self.follower.links.fetching
            assert fetching is not None
            if fetching.progress[0] >= offset:
                return
        raise AssertionError(self.pulled)

    def holds(self) -> bool:
        """The file of the source lies here, byte for byte, and durably."""
        name = self.named.name
        there = self.source.store.disk.read(f"snapshots/{name}")
        return self.follower.store.disk.files().get(f"snapshots/{name}{FETCHED_SUFFIX}") == there

    @property
    def is_pinned(self) -> bool:
        return self.source.snapshots._pins[self.named.name] > 0


def write(
    node: Node,
    index: int,
    term: int,
    *,
    token: bytes = TOKEN,
    config: bytes | None = None,
    fill: bytes = b"x",
) -> Named:
    """A whole snapshot in the node's directory, which its log names as far as others see."""
    configured = encode_configuration(CONFIGURATION) if config is None else config
    header = SnapshotHeader(token, member_of("m1").incarnation, index, term, 1, 0, 0, configured, 5)
    files = SnapshotFiles("snapshots", io=node.store.disk)
    writer = SnapshotWriter(files, header, lambda: None)
    for number in range(PIECES):
        writer.add(bytes([number]) + fill * (PIECE_BYTES_MAX - 100))
    writer.finish()
    assert writer.written is not None
    made = writer.written
    named = Named(index, term, made.file_bytes, made.digest)
    node.snapshots.kept.append(named)
    return named


@pytest.fixture
def world() -> Pulling:
    return Pulling()


def test_a_snapshot_is_pulled_whole_and_its_configuration_with_it(world: Pulling) -> None:
    world.fetch()
    world.run(2000)
    (event,) = world.follower.came()
    assert isinstance(event, SnapshotFetched)
    assert (event.index, event.term, event.configuration) == (70, 3, CONFIGURATION)
    assert world.holds()
    assert len(world.pulled) == PIECES + 1, "one question for each piece"


def test_it_goes_over_a_link_of_its_own_which_ends_with_it(world: Pulling) -> None:
    """RAFT.md, 8: bulk never stands before a heartbeat."""
    world.run(100)
    world.fetch()
    world.until_offset(PIECE_BYTES_MAX)
    bulk = [up for up in world.source.links.peers._links.values() if up.is_bulk]
    assert len(bulk) == 1
    process = world.source.links.peers._processes[world.follower.boot.member]
    assert process.best() not in bulk
    world.run(2000)
    assert world.follower.came()
    assert not [up for up in world.source.links.peers._links.values() if up.is_bulk]
    assert not world.follower.links.fetching._links  # type: ignore[union-attr]


def test_it_is_pinned_at_its_source_while_it_is_pulled(world: Pulling) -> None:
    """I81: two newer snapshots, and it stays until the puller is through."""
    world.fetch()
    world.until_offset(PIECE_BYTES_MAX)
    assert world.is_pinned
    for index in (80, 90, 100):
        write(world.source, index, 3)
    world.source.snapshots._let_go()
    world.run(2000)
    assert isinstance(world.follower.came()[0], SnapshotFetched)
    assert not world.is_pinned
    assert world.named not in world.source.snapshots.kept


def test_a_puller_that_asks_for_nothing_holds_no_snapshot_for_ever(world: Pulling) -> None:
    world.fetch()
    world.until_offset(PIECE_BYTES_MAX)
    world.network.add_rule(lambda sender, receiver, body: DROP if body[5] == 81 else None)
    fetching = world.follower.links.fetching
    assert fetching is not None
    assert fetching._task is not None
    fetching._task.patience.cost_ns = 1e15
    world.run(IDLE_NS_MAX / MS + 100)
    assert not world.is_pinned


@pytest.mark.parametrize("at", [1, PIECE_BYTES_MAX, 3 * PIECE_BYTES_MAX, PIECES * PIECE_BYTES_MAX - 1000])
def test_after_a_lost_link_it_goes_on_where_it_was(world: Pulling, at: int) -> None:
    """RAFT.md, 8: an attempt ends, what came stays."""
    world.fetch()
    world.until_offset(at)
    world.network.cut("m1", "m2")
    count = len(world.pulled)
    world.run(3000)
    assert world.holds()
    assert min(offset for offset, _ in world.pulled[count:]) >= at - at % PIECE_BYTES_MAX
    assert isinstance(world.follower.came()[0], SnapshotFetched)


def test_after_a_restart_it_goes_on_where_it_was(world: Pulling) -> None:
    """RAFT.md, 8: what is here lies under a name of its own, and a start leaves it alone."""
    world.fetch()
    world.until_offset(3 * PIECE_BYTES_MAX)
    for path, content in world.follower.store.disk.files(stable=False).items():
        world.follower.store.disk.put(path, content)
    world.follower.restart()
    world.pulled.clear()
    world.fetch()
    world.run(3000)
    assert world.pulled[0][0] >= 3 * PIECE_BYTES_MAX
    assert isinstance(world.follower.came()[-1], SnapshotFetched)
    assert world.holds()


@pytest.mark.parametrize("seed", range(5))
def test_what_a_loss_of_power_left_of_it_is_never_believed(world: Pulling, seed: int) -> None:
    """Scenario 73, I80: sectors that were not synced are gone or not; every sum is looked at before it
    counts."""
    world.fetch()
    world.until_offset(3 * PIECE_BYTES_MAX)
    world.follower.links.close()
    world.network.crash("m2")
    world.follower.store.disk.crash(seed)
    world.follower.store.restart()
    world.follower.start()
    world.fetch()
    world.run(10_000)
    assert isinstance(world.follower.came()[-1], SnapshotFetched)
    assert world.holds()


def test_one_that_is_whole_already_is_looked_at_and_not_pulled_again(world: Pulling) -> None:
    world.fetch()
    world.run(2000)
    world.follower.restart()
    world.follower.events.clear()
    world.pulled.clear()
    world.fetch()
    world.run(2000)
    assert isinstance(world.follower.came()[0], SnapshotFetched)
    assert world.pulled == [(world.named.file_bytes, world.pulled[0][1])]


def test_what_is_here_and_cannot_be_read_starts_it_anew(world: Pulling) -> None:
    """RAFT.md, 8: its source has all of it. Else: each attempt ends there, and leaves a descriptor open."""
    world.fetch()
    world.until_offset(2 * PIECE_BYTES_MAX)
    world.network.cut("m1", "m2")
    world.run(20)
    world.follower.store.disk.fail("read")
    world.run(5000)
    assert [type(each) for each in world.follower.came()] == [SnapshotFetched]
    assert world.holds()
    assert [offset for offset, _ in world.pulled].count(0) == 2


def test_a_byte_that_the_disk_damaged_starts_it_anew(world: Pulling) -> None:
    """I80: digest, sums, index and end are those of the file that the source's log names."""
    world.follower.store.disk.lie("write", "flipped", part=FETCHED_SUFFIX, nth=3, where=12345)
    world.fetch()
    world.run(5000)
    assert world.holds()
    assert [offset for offset, _ in world.pulled].count(0) == 2
    assert isinstance(world.follower.came()[0], SnapshotFetched)


def test_what_is_here_of_another_file_is_not_gone_on_with(world: Pulling) -> None:
    """The same entries in other bytes, of a source that cut them anew: nothing of the old ones stays."""
    world.fetch()
    world.until_offset(3 * PIECE_BYTES_MAX)
    world.source.store.disk.drop(f"snapshots/{world.named.name}")
    world.network.cut("m1", "m2")
    world.source.snapshots.kept.remove(world.named)
    world.source.snapshots._pins.clear()
    world.source.links.handing_out._pullers.clear()
    world.named = write(world.source, 70, 3, fill=b"y")
    world.run(5000)
    assert isinstance(world.follower.came()[0], SnapshotFetched)
    assert world.holds()


def test_when_its_source_has_it_no_more_it_is_given_up(world: Pulling) -> None:
    world.source.snapshots.kept.clear()
    world.fetch()
    world.run(1000)
    assert [type(each) for each in world.follower.came()] == [SnapshotGivenUp]
    assert not [name for name in world.follower.files() if name.endswith(FETCHED_SUFFIX)]


def test_when_its_source_is_gone_it_is_given_up_late_and_what_is_here_stays(world: Pulling) -> None:
    """RAFT.md, 8: whoever leads may offer another one then; this one is gone on with if it is the same."""
    world.fetch()
    world.until_offset(2 * PIECE_BYTES_MAX)
    world.network.crash("m1")
    world.run(60_000)
    assert [type(each) for each in world.follower.came()] == [SnapshotGivenUp]
    assert f"{world.named.name}{FETCHED_SUFFIX}" in world.follower.files()


def test_who_knows_no_address_pulls_over_the_link_of_its_messages(world: Pulling) -> None:
    """A learner has no configuration before it has the snapshot: it is spoken to, and asks back."""
    world.follower.configuration = Configuration(())
    world.run(100)
    world.fetch()
    world.until_offset(PIECE_BYTES_MAX)
    process = world.source.links.peers._processes[world.follower.boot.member]
    best = process.best()
    assert best is not None
    assert best.is_dialled
    count = len(world.follower.events)
    world.run(2000)
    assert [type(each) for each in world.follower.events[count:]] == [SnapshotFetched]
    assert world.holds()
    assert not world.is_pinned
    assert process.best() is best, "the link stands"


def test_a_shared_link_that_ends_costs_an_attempt_and_stays_others(world: Pulling) -> None:
    world.follower.configuration = Configuration(())
    world.run(100)
    world.fetch()
    world.until_offset(2 * PIECE_BYTES_MAX)
    world.network.cut("m1", "m2")
    world.run(5000)
    assert isinstance(world.follower.came()[0], SnapshotFetched)
    assert [offset for offset, _ in world.pulled].count(0) == 1


def test_from_a_source_that_has_moved_it_is_pulled_over_the_link_of_its_messages(world: Pulling) -> None:
    """RAFT.md, 8: "the source may have moved, and its place stand behind the snapshot"."""
    source = member_of("m1")
    before = tuple(
        (member, ("sim://before",) if member == source else endpoints)
        for member, endpoints in CONFIGURATION.addresses
    )
    world.follower.configuration = replace(CONFIGURATION, addresses=before)
    world.fetch()
    world.run(10_000)
    assert [type(each) for each in world.follower.came()] == [SnapshotFetched]
    assert world.holds()


def test_from_a_source_that_has_moved_and_made_no_link_it_is_pulled_where_join_says(world: Pulling) -> None:
    """RAFT.md, 8: "last it tries what `--join` gives". The link that was made from here is the only way back for the
    source's messages, and stays that."""
    world.source.configuration = Configuration(())
    world.follower.configuration = configuration_of("m2")
    seeds = ("sim://nobody", "sim://m1")
    world.follower.links = MemberLinks(
        world.follower.transport, world.follower.boot, TOKEN, world.follower.snapshots, seeds
    )
    world.fetch()
    world.run(10_000)
    assert [type(each) for each in world.follower.came()] == [SnapshotFetched]
    assert world.holds()


def test_no_link_that_was_made_here_is_left_to_pieces(world: Pulling) -> None:
    """RAFT.md, 8: "the link on which it is spoken to". Else: a source that knows no address of the puller has no way
    to it, as what it accepted is for pieces from then on."""
    world.source.configuration = Configuration(())
    world.run(10)
    world.source.step(world.now_ns)
    world.follower.step(world.now_ns)
    world.run(100)
    source = world.source.boot.member
    assert world.follower.links.hears(next(iter(world.follower.links.peers._links)))
    assert world.follower.links.peers.way_from(source) is None
    assert world.source.links.peers.way_from(world.follower.boot.member) is not None


def test_who_knows_nobody_gives_it_up(world: Pulling) -> None:
    world.source.configuration = world.follower.configuration = Configuration(())
    world.fetch()
    world.run(60_000)
    assert [type(each) for each in world.follower.came()] == [SnapshotGivenUp]
    fetching = world.follower.links.fetching
    assert fetching is not None
    assert "nobody knows where m1 listens" in fetching.trouble


def test_what_came_by_other_ways_is_fetched_no_more(world: Pulling) -> None:
    world.fetch()
    world.until_offset(PIECE_BYTES_MAX)
    world.follower.commit_index = 70
    world.run(100)
    assert [type(each) for each in world.follower.came()] == [SnapshotGivenUp]
    assert not [name for name in world.follower.files() if name.endswith(FETCHED_SUFFIX)]
    assert not world.is_pinned


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_fetched_in_vain_is_removed_when_its_member_is_beyond_it(
    world: Pulling, restarts: bool
) -> None:
    """A member that caught up by the log keeps no gigabytes of what it does not need; before, it may go on with it."""
    world.fetch()
    world.run(2000)
    if restarts:
        world.follower.restart()
    world.run(2000)
    assert f"{world.named.name}{FETCHED_SUFFIX}" in world.follower.files()
    world.follower.commit_index = 70
    world.follower.step(world.now_ns)
    assert not [name for name in world.follower.files() if name.endswith(FETCHED_SUFFIX)]


def test_a_newer_one_takes_the_place_of_what_is_fetched(world: Pulling) -> None:
    """Story 14: its leader has cut another meanwhile; what was pulled of the first is not mixed with it."""
    world.fetch()
    world.until_offset(2 * PIECE_BYTES_MAX)
    world.named = write(world.source, 90, 4)
    world.wanted = FetchSnapshot(world.source.boot, 90, 4)
    world.fetch()
    world.run(3000)
    (event,) = world.follower.came()
    assert isinstance(event, SnapshotFetched)
    assert event.index == 90
    assert [name for name in world.follower.files() if name.endswith(FETCHED_SUFFIX)] == [
        world.named.name + FETCHED_SUFFIX
    ]


def test_wanted_twice_it_is_pulled_once(world: Pulling) -> None:
    """FetchSnapshot: a second effect for the same one changes nothing."""
    for _ in range(3):
        world.fetch()
        world.run(1)
    world.run(2000)
    assert len(world.follower.came()) == 1
    assert len(world.pulled) == PIECES + 1


def test_a_snapshot_of_another_cluster_is_not_taken(world: Pulling) -> None:
    """P10.3, though its source speaks with this cluster's token."""
    world.source.snapshots.kept.clear()
    world.named = write(world.source, 71, 3, token=b"another cluster!")
    world.wanted = FetchSnapshot(world.source.boot, 71, 3)
    world.fetch()
    world.run(200_000)
    assert [type(each) for each in world.follower.came()] == [SnapshotGivenUp]
    fetching = world.follower.links.fetching
    assert fetching is not None
    assert "of the cluster" in fetching.trouble
    assert [offset for offset, _ in world.pulled].count(0) == ATTEMPTS_MAX


def test_one_from_before_there_were_configurations_names_its_only_voter(world: Pulling) -> None:
    world.source.snapshots.kept.clear()
    write(world.source, 71, 1, config=b"")
    world.wanted = FetchSnapshot(world.source.boot, 71, 1)
    world.fetch()
    world.run(3000)
    (event,) = world.follower.came()
    assert isinstance(event, SnapshotFetched)
    assert event.configuration == Configuration((member_of("m1"),))


@pytest.mark.parametrize("seed", range(4))
def test_pieces_that_are_lost_doubled_and_late_do_no_harm(seed: int) -> None:
    """RAFT.md, 8: a false stall costs one repeated question, not the transfer."""
    world = Pulling(seed=seed, faults=Faults(loss=0.1, duplication=0.2, reordering=0.2))
    world.fetch()
    world.run(300_000)
    assert isinstance(world.follower.came()[0], SnapshotFetched)
    assert world.holds()


def test_pieces_that_are_lost_doubled_and_late_are_pulled_once() -> None:
    """An answer that came twice is passed over: what is here is never put anywhere but behind what is here."""
    world = Pulling(faults=Faults(duplication=1.0, late_ns_max=3 * MS))
    world.fetch()
    world.run(4000)
    assert isinstance(world.follower.came()[0], SnapshotFetched)
    offsets = [offset for offset, _ in world.pulled]
    assert sorted(set(offsets)) == [number * PIECE_BYTES_MAX for number in range(PIECES)] + [
        PIECES * PIECE_BYTES_MAX
    ]


def test_a_full_disk_ends_an_attempt_and_room_goes_on_with_it(world: Pulling) -> None:
    """I53: what was here is removed, so that the log has its room; it is tried again later."""
    used = sum(map(len, world.follower.store.disk.files(stable=False).values()))
    world.follower.store.disk.limit(used + 2 * PIECE_BYTES_MAX)
    world.fetch()
    world.run(3000)
    assert not world.follower.came()
    assert not [name for name in world.follower.files() if name.endswith(FETCHED_SUFFIX)]
    world.follower.store.disk.limit(0)
    world.run(60_000)
    assert isinstance(world.follower.came()[0], SnapshotFetched)
    assert world.holds()


def test_a_failed_sync_is_never_tried_again_on_what_is_here(world: Pulling) -> None:
    """P7.6: what a sync refused may be gone; the file is pulled anew."""
    world.follower.store.disk.fail("sync")
    world.fetch()
    world.run(10_000)
    assert [offset for offset, _ in world.pulled].count(0) == 2
    assert world.holds()


def test_a_slow_source_is_waited_for_and_one_that_hangs_is_not(world: Pulling) -> None:
    """Story 14, RAFT.md, 8: patience is 2 s at least for a piece, doubled twice; then the attempt ends
    and what is here stays."""
    world.fetch()
    world.until_offset(2 * PIECE_BYTES_MAX)

    def hang(sender: str, receiver: str, body: bytes) -> Treatment | None:
        return DROP if body[5] == 82 else None

    world.network.add_rule(hang)
    world.pulled.clear()
    begin_ns = world.now_ns
    world.run(13_000)
    asked = [round((at - begin_ns) / SECOND) for _, at in world.pulled]
    assert asked in ([0, 2, 6], [2, 6])
    world.run(3000)
    world.network.remove_rule(hang)
    world.run(5000)
    assert isinstance(world.follower.came()[0], SnapshotFetched)
    assert world.pulled[0][0] >= 2 * PIECE_BYTES_MAX
    assert min(offset for offset, _ in world.pulled) >= 2 * PIECE_BYTES_MAX


def test_pullers_are_bounded(world: Pulling) -> None:
    handing = world.source.links.handing_out
    pull = SnapshotPull(world.follower.boot, world.source.boot.member, 70, 3, 0, 10)
    for link in range(100, 100 + PULLERS_MAX + 2):
        handing.on_pull(world.now_ns, link, pull)
    assert len(handing._pullers) == PULLERS_MAX
    for link in range(100, 100 + PULLERS_MAX):
        handing.on_link_down(link)
    assert not world.is_pinned


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": 10**12},
        {"offset": 2**63 - 1},
        {"bytes_max": 0},
        {"bytes_max": 2**63 - 1},
        {"index": 0},
        {"term": 2**63 - 1},
        {"receiver": member_of("m3")},
        {"sender": Boot(member_of("m3"), b"12345678")},
    ],
)
def test_a_source_bears_any_question(world: Pulling, wrong: dict[str, object]) -> None:
    """T10, T14: an answer has a bound, whatever is asked for."""
    who = Identity("metadata", "m9", member_of("m9").incarnation, TOKEN, b"stranger")
    transport = world.network.transport(who)
    link = transport.connect("sim://m1")
    world.run(20)
    asked = SnapshotPull(Boot(member_of("m9"), b"stranger"), member_of("m1"), 70, 3, 0, 10)
    transport.send(link, encode_message(0, replace(asked, **wrong)))
    world.run(20)
    for event in transport.receive(world.now_ns):
        if isinstance(event, Received):
            piece = decode_message(event.body).control
            assert isinstance(piece, SnapshotPiece)
            assert len(piece.data) <= PIECE_BYTES_MAX
    assert isinstance(world.source.links, MemberLinks)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sender": Boot(member_of("m3"), b"12345678")},
        {"receiver": member_of("m3")},
        {"data": b""},
        {"data": bytes(PIECE_BYTES_MAX + 1)},
        {"file_bytes": 5},
        {"digest": b"another"},
        {"offset": 3},
        {"index": 71},
    ],
)
def test_a_puller_bears_any_answer(world: Pulling, wrong: dict[str, object]) -> None:
    """T10: an answer that is none costs an attempt at most, and the file is right in the end."""
    left = [3]

    def lie(sender: str, receiver: str, body: bytes) -> Treatment | None:
        if body[5] != 82 or not left[0]:
            return None
        left[0] -= 1
        piece = decode_message(body).control
        return Treatment(body=b"".join(encode_message(0, replace(piece, **wrong))))

    world.network.add_rule(lie)
    world.fetch()
    world.run(60_000)
    assert isinstance(world.follower.came()[0], SnapshotFetched)
    assert world.holds()


@pytest.mark.parametrize("wrong", [{"digest": b"d" * 16}, {"file_bytes": 100}])
def test_what_its_source_says_of_it_is_what_it_must_be(world: Pulling, wrong: dict[str, object]) -> None:
    """I80: digest and size are those that the source's log names; a file that is whole and another one is not it."""

    def lie(sender: str, receiver: str, body: bytes) -> Treatment | None:
        if body[5] != 82:
            return None
        piece = decode_message(body).control
        return Treatment(body=b"".join(encode_message(0, replace(piece, **wrong))))

    world.network.add_rule(lie)
    world.fetch()
    world.run(400_000)
    assert [type(each) for each in world.follower.came()] == [SnapshotGivenUp]
    assert not [name for name in world.follower.files() if name.endswith(FETCHED_SUFFIX)]


# --- Patience ------------------------------------------------------------------------------------------------


def test_patience_follows_what_is_measured() -> None:
    """RAFT.md, 8: c + 4 d per MiB, twice; 2 s at least, 120 s at most; doubled at each stall in a row."""
    patience = Patience()
    assert patience.limit_ns(PIECE_BYTES_MAX) == LIMIT_NS_MIN
    for _ in range(100):
        patience.note_piece(PIECE_BYTES_MAX, 3 * SECOND)
    assert 6 * SECOND <= patience.limit_ns(PIECE_BYTES_MAX) < 7 * SECOND
    assert patience.limit_ns(PIECE_BYTES_MAX // 2) < 4 * SECOND
    assert patience.limit_ns(1000 * PIECE_BYTES_MAX) == LIMIT_NS_MAX
    usual = patience.limit_ns(PIECE_BYTES_MAX)
    assert [patience.note_stall(), patience.limit_ns(PIECE_BYTES_MAX)] == [False, 2 * usual]
    assert [patience.note_stall(), patience.limit_ns(PIECE_BYTES_MAX)] == [False, 4 * usual]
    assert patience.note_stall()


def test_a_false_stall_makes_it_more_patient_and_good_pieces_less_again() -> None:
    patience = Patience()
    patience.note_stall()
    patience.note_piece(PIECE_BYTES_MAX, SECOND)
    assert (patience.margin, patience.false_stalls, patience.stalls) == (4, 1, 0)
    for _ in range(20):
        patience.note_piece(PIECE_BYTES_MAX, SECOND)
    assert patience.margin == 2
    for _ in range(40):
        patience.note_stall()
        patience.note_piece(PIECE_BYTES_MAX, SECOND)
    assert patience.margin == 64


@pytest.mark.parametrize("took_ns", [FETCH_NS // 100, 100 * FETCH_NS])
def test_what_it_assumes_before_it_has_measured_is_forgotten_after_three_pieces(took_ns: int) -> None:
    """Story 16, RAFT.md, 8: a hundred times too much or too little. Three pieces later nobody is late who comes
    as the others did, and one that hangs is noticed within a few times what a piece takes, or 2 s."""
    patience = Patience()
    for _ in range(3):
        patience.note_piece(PIECE_BYTES_MAX, took_ns)
        assert patience.limit_ns(PIECE_BYTES_MAX) > took_ns
    assert patience.limit_ns(PIECE_BYTES_MAX) <= max(LIMIT_NS_MIN, 12 * took_ns)
    for _ in range(100):
        patience.note_piece(PIECE_BYTES_MAX, took_ns)
    assert patience.limit_ns(PIECE_BYTES_MAX) <= max(LIMIT_NS_MIN, 3 * took_ns)


def test_the_last_bytes_of_a_file_say_nothing_of_a_mebibyte() -> None:
    patience = Patience()
    patience.note_piece(10, MS)
    assert patience.limit_ns(PIECE_BYTES_MAX) == LIMIT_NS_MIN
