"""P6: reading. From any good copy, in order; a missing copy is never an end; the LAC of a ledger that is still open."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from embedbk.codec.add_messages import AddRequest, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import split
from embedbk.codec.lac_messages import ExplicitLacRequest, LacAnswer, LacRequest
from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.messages import ErrorAnswer, decode_message, encode_message
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import LAC_WAIT_MS_MAX, Quorum
from embedbk.core.bookie_words import LinkLost
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.lac_reader import LacRead, LacWait
from embedbk.core.metadata_words import KeyRead, ReadKey
from embedbk.core.quorum import write_set
from embedbk.core.read_health import (
    BOOKIES_MAX,
    FAILURE_MEMORY_NS,
    PATIENCE_NS_MAX,
    PATIENCE_NS_MIN,
    ReadHealth,
)
from embedbk.core.reader import RangeRead, ReadOptions
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import EntryUnreadable, NoSuchLedger, NotEnoughBookies, PeerError
from embedbk.ids import NO_ENTRY
from embedbk.storage.memory import Survivors
from tests.rules.scenes import but
from tests.rules.world import KEY, MS, THREE, Client, Hold, Packet, Pen, World

STRIPED = Quorum(5, 3, 2)


class Scene(NamedTuple):
    world: World
    writer: Client
    pen: Pen

    @property
    def ledger_id(self) -> int:
        return self.pen.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        return self.world.catalog.metadata(self.ledger_id)[0]

    def read(self, first: int, last: int, hold: Hold = lambda packet: False, **options: object) -> Client:
        reader = self.world.reader(self.ledger_id, first, last, **options)
        reader.start()
        self.world.run(until=lambda: reader.has_ended, hold=hold)
        return reader

    def payloads(self, first: int, last: int) -> list[tuple[int, bytes]]:
        return [(entry_id, b"entry %d" % entry_id) for entry_id in range(first, last + 1)]


def scene(quorum: Quorum = THREE, bookies: int = 0, entries: int = 10, per_frame: int = 1) -> Scene:
    """A ledger with some entries on all their copies."""
    world = World(bookies or quorum.ensemble_size)
    metadata, revision = world.create(quorum)
    it = Scene(world, world.writer(metadata, revision), Pen(metadata.ledger_id))
    for first in range(0, entries, per_frame):
        payloads = [b"entry %d" % e for e in range(first, min(first + per_frame, entries))]
        world.add(it.writer, it.pen, *payloads)
        world.settle()
    return it


# P6.1: ranges.


@pytest.mark.parametrize("quorum", [THREE, STRIPED, Quorum(2, 1, 1), Quorum(6, 2, 2)])
@pytest.mark.parametrize("per_frame", [1, 7])
def test_a_range_is_read_in_order_without_gaps(quorum: Quorum, per_frame: int) -> None:
    """P6.1, P6.4: whatever the striping and the frames they came in."""
    it = scene(quorum, entries=23, per_frame=per_frame)
    for first, last in ((0, 22), (0, 0), (3, 9), (22, 22)):
        reader = it.read(first, last)
        assert reader.ended.error is None
        assert reader.read == it.payloads(first, last)


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
def test_a_range_is_read_across_fragments(quorum: Quorum) -> None:
    """P6.1: each entry from its own fragment's write set."""
    world, writer, pen = it = scene(quorum, quorum.ensemble_size + 3)
    for number, name in enumerate(("b1", "b3")):
        world.down.add(name)
        for entry_id in range(10 + 5 * number, 15 + 5 * number):
            world.add(writer, pen, b"entry %d" % entry_id)
        world.settle()
    world.down.clear()
    assert len(it.metadata.fragments) == 3
    assert it.read(0, 19).read == it.payloads(0, 19)


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
@pytest.mark.parametrize("seat", [0, 1, 2])
def test_one_copy_is_asked_at_a_time(quorum: Quorum, seat: int) -> None:
    """P6.1: no read amplification where bookies answer: each entry is sent once."""
    it = scene(quorum)
    reader = it.world.reader(it.ledger_id, 0, 9, seat=seat)
    reader.start()
    asked = 0
    while it.world.wire:
        asked += sum(packet.frames[0][0].entry_count for packet in it.world.packets(kind=ReadAnswer))
        for packet in list(it.world.wire):
            it.world.deliver(packet)
    assert reader.read == it.payloads(0, 9)
    assert asked == 10


@pytest.mark.parametrize("quorum", [THREE, STRIPED, Quorum(4, 2, 1)])
@pytest.mark.parametrize(
    "fault", ["down", "silent", "unreadable", "absent", "limbo", "digest", "incarnation"]
)
def test_a_failed_copy_is_skipped(quorum: Quorum, fault: str) -> None:
    """P6.1: a digest mismatch, and a NoSuchEntry for an id <= last, is a failed copy, never an end."""
    world, _, _ = it = scene(quorum, entries=20)
    node = world.nodes["b2"]
    hold: Hold = lambda packet: False  # noqa: E731
    if fault == "down":
        world.down.add("b2")
    elif fault == "silent":
        hold = but("b2")
    elif fault == "unreadable":
        for entry_id in node.holds(it.ledger_id):
            node.storage.make_unreadable(it.ledger_id, entry_id)
    elif fault == "absent":
        node.storage.store.entries[it.ledger_id].clear()
        node.storage.store.ids[it.ledger_id].clear()
    elif fault == "limbo":
        row = node.storage.table.get(it.ledger_id)
        assert row is not None
        row.in_limbo = 1
        node.storage.store.ids[it.ledger_id].clear()
    elif fault == "incarnation":
        world.disks_lost += 1
        node.lose_disk()
    else:

        def hold(packet: Packet) -> bool:
            if packet.bookie_id == "b2" and packet.frames and not packet.is_request:
                header, body = packet.frames[0]
                packet.frames[0] = (header, memoryview(bytes(body[:-1]) + bytes([body[-1] ^ 1])))
            return False

    for seat in range(3):
        reader = it.read(0, 19, hold, seat=seat)
        assert reader.ended.error is None
        assert reader.read == it.payloads(0, 19)


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
def test_a_slow_copy_is_asked_past_after_a_while(quorum: Quorum) -> None:
    """P6.1: speculatively after a delay; the first good answer counts, a later one changes nothing."""
    it = scene(quorum)
    reader = it.world.reader(it.ledger_id, 0, 9)
    reader.start()
    slow = it.world.packets(is_request=True)[0].bookie_id
    it.world.run(until=lambda: reader.has_ended, hold=but(slow))
    assert reader.read == it.payloads(0, 9)
    assert it.world.now_ns <= 2 * 300 * MS
    it.world.settle()
    assert reader.read == it.payloads(0, 9)


def test_time_never_runs_in_place() -> None:
    """Two copies asked, a third one left: the next deadline lies ahead. The world's tick asserts it."""
    world, _, _ = it = scene()
    reader = world.reader(it.ledger_id, 0, 9)
    reader.start()
    deadlines = []
    for _ in range(3):
        deadline_ns = reader.core.deadline_ns
        assert deadline_ns is not None
        world.now_ns = deadline_ns
        deadlines.append(deadline_ns // MS)
        world.tick(reader)
    assert deadlines == [300, 600, 5000]


def test_a_part_that_was_answered_is_not_asked_for_again() -> None:
    """Striped: one residue is in, the others are awaited past the time limit: the good one stays good."""
    world, _, _ = it = scene(STRIPED)
    reader = world.reader(it.ledger_id, 0, 9)
    reader.start()
    requests = world.packets(is_request=True)
    world.deliver(requests[0])
    world.deliver(world.packets(is_request=False)[0])
    asked = {requests[0].tag[2]: 1}
    for _ in range(6):
        deadline_ns = reader.core.deadline_ns
        assert deadline_ns is not None
        world.now_ns = deadline_ns
        world.tick(reader)
    for packet in world.packets(is_request=True):
        if packet.tag[1] == 1:
            asked[packet.tag[2]] = asked.get(packet.tag[2], 0) + 1
    assert asked[requests[0].tag[2]] == 1
    world.run(until=lambda: reader.has_ended)
    assert reader.read == it.payloads(0, 9)


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
def test_all_copies_failed_reads_the_metadata_again_and_tries_once_more(quorum: Quorum) -> None:
    """P6.1: repair may have moved the copies; then fail, with everybody's reason. In between nothing is asked."""
    world, _, _ = it = scene(quorum)
    world.down |= set(world.nodes)
    reader = it.read(0, 9)
    error = reader.ended.error
    assert isinstance(error, EntryUnreadable)
    assert not error.definite
    assert "no link" in str(error)
    assert reader.read == []

    world.down.clear()
    again = world.reader(it.ledger_id, 0, 9)
    again.start()
    world.down |= set(world.nodes)
    world.settle()
    assert again.core.deadline_ns == world.now_ns + 200 * MS
    world.down.clear()
    world.run(until=lambda: again.has_ended)
    assert again.read == it.payloads(0, 9)


def test_each_failure_of_all_copies_reads_the_metadata_again() -> None:
    """P6.1: that repair moved copies once, early in a long read, says nothing of the next time."""
    world, _, _ = it = scene(STRIPED)
    options = ReadOptions(chunk_entries=5, ahead_bytes=1)
    reader = world.reader(it.ledger_id, 0, 9, options=options)
    reader.start()
    for expected in (5, 10):
        world.down |= set(world.nodes)
        world.settle()
        assert not reader.has_ended
        world.down.clear()
        world.run(until=lambda expected=expected: len(reader.read) == expected, seconds=2)
        assert len(reader.read) == expected
        world.down |= set(world.nodes)
        world.consume(reader, 1 << 20)
    assert reader.read == it.payloads(0, 9)
    assert reader.ended.error is None


@pytest.mark.parametrize("silent", [True, False])
def test_two_parts_that_fail_in_one_tick_are_one_failure(silent: bool) -> None:
    """P6.1: all seats of several residues run out of time together: the chunk begins again, once."""
    world, _, _ = it = scene(Quorum(4, 1, 1), 4)
    reader = world.reader(it.ledger_id, 0, 9)
    reader.start()
    lost = world.packets(is_request=True)
    assert len(lost) == 4
    for packet in lost:
        world.lose(packet) if silent else world.fail(packet)
    if silent:
        world.now_ns = 5_000 * MS
        world.tick(reader)
    assert not reader.has_ended
    world.run(until=lambda: reader.has_ended)
    assert reader.read == it.payloads(0, 9)


def test_repair_is_found_in_the_second_round() -> None:
    """P6.1: the copies moved to b4 while the reader knew the old metadata."""
    world, _, _ = it = scene(bookies=4)
    old = world.reader(it.ledger_id, 0, 9)
    b4 = world.nodes["b4"]
    b4.boot(Survivors(b4.member.incarnation, (), tuple(world.nodes["b1"].storage.records)))
    fragment = it.metadata.fragments[0]
    moved = Fragment(0, 0, (tuple(b4.member), *fragment.ensemble[1:]))
    key = ledger_key_path(it.ledger_id)
    world.catalog.history.pop(key)
    world.catalog.transact(
        [], [Put(key, encode_ledger_metadata(it.metadata.with_changes(fragments=(moved,))))]
    )
    world.down |= {"b1", "b2", "b3"}
    old.start()
    world.run(until=lambda: old.has_ended)
    assert old.read == it.payloads(0, 9)


def test_a_reader_of_a_deleted_ledger_is_told_so() -> None:
    """P2.2."""
    world, _, _ = it = scene()
    world.down |= set(world.nodes)
    reader = world.reader(it.ledger_id, 0, 9)
    world.catalog.transact([], [Delete(ledger_key_path(it.ledger_id))])
    reader.start()
    world.run(until=lambda: reader.has_ended)
    assert isinstance(reader.ended.error, NoSuchLedger)


def test_metadata_that_does_not_answer_does_not_end_a_read() -> None:
    """P10.4: the copies named before are tried once more all the same."""
    world, _, _ = it = scene()
    reader = world.reader(it.ledger_id, 0, 9)
    world.catalog.is_held = True
    world.down |= set(world.nodes)
    reader.start()
    world.run(seconds=1)
    world.down.clear()
    world.consume(reader, 0)
    assert world.packets(reader) == []  # While the read of the metadata is open nothing else begins.
    world.catalog.fail(world.catalog.waiting[0])
    world.settle()
    assert reader.read == it.payloads(0, 9)


def test_an_answer_of_the_wrong_kind_is_a_failed_copy() -> None:
    world, _, _ = it = scene()
    reader = world.reader(it.ledger_id, 0, 9)
    reader.start()
    packet = world.packet(reader)
    world.lose(packet)
    reader.step(Answered(0, packet.tag, packet.member, ErrorAnswer("what?")))
    world.settle()
    assert reader.read == it.payloads(0, 9)


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
def test_an_answer_in_many_frames_is_a_failed_copy(quorum: Quorum) -> None:
    """P6.1: a bookie answers with one frame at most; what else a peer sends ends its copy and nothing more."""
    world, _, _ = it = scene(quorum)
    reader = world.reader(it.ledger_id, 0, 9)
    reader.start()
    question = world.packets(reader)[0]
    world.deliver(question)
    answer = next(packet for packet in world.packets(reader) if not packet.is_request)
    world.lose(answer)
    reader.step(Answered(0, answer.tag, answer.member, answer.control, answer.frames * 100))
    world.settle()
    assert reader.read == it.payloads(0, 9)


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
def test_no_more_is_read_ahead_than_the_user_takes(quorum: Quorum) -> None:
    """ahead_bytes: given and not consumed; above it nothing more is asked for."""
    world = World(quorum.ensemble_size)
    metadata, revision = world.create(quorum)
    writer, pen = world.writer(metadata, revision), Pen(metadata.ledger_id)
    for _ in range(12):
        world.add(writer, pen, b"x" * 300_000)
    world.settle()
    reader = world.reader(pen.ledger_id, 0, 11, options=ReadOptions(ahead_bytes=1 << 20))
    reader.start()
    world.settle()
    core = reader.core
    assert isinstance(core, RangeRead)
    before = len(reader.read)
    assert before < 12
    assert core.deadline_ns is None
    while not reader.has_ended:
        assert core.unread_bytes <= 3 << 20
        world.consume(reader, core.unread_bytes)
        world.settle()
    assert len(reader.read) == 12


def test_damaged_entries_of_one_copy_do_not_hide_the_rest() -> None:
    """P6.1, scenario 54: b1 is asked first, gives 0..3, cannot read 4; the others go on; every entry comes once."""
    world, _, _ = it = scene(per_frame=10)
    world.nodes["b1"].storage.make_unreadable(it.ledger_id, 4)
    world.nodes["b2"].storage.make_unreadable(it.ledger_id, 6)
    assert it.read(0, 9).read == it.payloads(0, 9)


# P6.2: the LAC of an open ledger.


def lac_read(it: Scene, hold: Hold = lambda packet: False) -> Client:
    reader = it.world.client("lac", LacRead(it.metadata))
    reader.start()
    it.world.run(until=lambda: reader.has_ended, hold=hold)
    return reader


def test_the_lac_is_learnt_without_fencing() -> None:
    """P6.2: an explicit poll, by the coverage rule, and the writer goes on."""
    world, writer, pen = it = scene()
    assert lac_read(it).ended.result == (8, len(b"entry 0") * 9, False)  # As the last frame carried it.
    world.run(seconds=1)  # The idle writer tells the rest.
    assert lac_read(it).ended.result == (9, len(b"entry 0") * 10, False)
    world.add(writer, pen, b"entry 10")
    world.settle()
    assert writer.confirmed == 10


def test_a_lac_that_was_published_to_an_ack_quorum_is_never_missed() -> None:
    """P6.2: whichever seats answer, coverage meets every ack quorum; fewer answers are no answer."""
    it = scene()
    world = it.world
    for name in ("b1", "b2", "b3"):
        world.down = {"b1", "b2", "b3"} - {name}
        assert isinstance(lac_read(it).ended.error, NotEnoughBookies)
        world.down = {name}
        assert lac_read(it).ended.result[0] == 8
    world.down.clear()
    silent = lac_read(it, hold=but("b1", "b2"))
    assert isinstance(silent.ended.error, NotEnoughBookies)
    assert not silent.ended.error.definite
    told = str(silent.ended.error)
    assert "how far it may be read is not known: 2 of the 3 bookies" in told
    assert "(b1: no answer in time, b2: no answer in time)" in told
    assert "recover" not in told  # Nothing is recovered by reading.


def test_coverage_of_a_lac_is_judged_on_each_write_set() -> None:
    """P6.2, scenario 7."""
    it = scene(STRIPED)
    it.world.down = {"b3", "b4"}
    assert isinstance(lac_read(it).ended.error, NotEnoughBookies)
    it.world.down = {"b3"}
    assert lac_read(it).ended.error is None


def test_a_bookie_that_may_have_lost_data_gives_no_lac() -> None:
    """P6.2, P7.4, scenario 14 (#2612): limbo and another incarnation cannot complete the coverage."""
    world, _, _ = it = scene()
    row = world.nodes["b1"].storage.table.get(it.ledger_id)
    assert row is not None
    row.in_limbo = 1
    assert lac_read(it, hold=but("b3")).ended.error is not None
    assert lac_read(it).ended.error is None
    world.disks_lost += 1
    world.nodes["b2"].lose_disk()
    assert isinstance(lac_read(it).ended.error, NotEnoughBookies)


def test_the_lac_of_an_empty_fragment_is_what_is_before_it() -> None:
    """P6.2, P5.2b: never below the last fragment's first entry - 1."""
    it = scene(entries=0)
    assert lac_read(it).ended.result == (NO_ENTRY, 0, False)


def test_a_poll_says_whether_the_ledger_is_fenced() -> None:
    """P6.2: the reader then watches the metadata."""
    world, _, _ = it = scene()
    world.ask("b2", FenceRequest(world.nodes["b2"].member.incarnation, it.ledger_id, KEY))
    world.settle()
    assert lac_read(it, hold=but("b3")).ended.result[2]


# P6.2: the long poll.


def lac_wait(it: Scene, after_lac: int, wait_ms: int = 1000) -> Client:
    waiter = it.world.client("wait", LacWait(it.metadata, after_lac, wait_ms, 0))
    waiter.start()
    it.world.settle()
    return waiter


def test_a_long_poll_is_answered_when_the_lac_advances() -> None:
    """P6.2, and not before."""
    world, writer, pen = it = scene()
    waiter = lac_wait(it, 8)
    assert not waiter.has_ended
    world.add(writer, pen, b"entry 10")  # Carries LAC 9.
    world.settle()
    assert waiter.ended.result[0] == 9


def test_a_long_poll_is_answered_by_an_explicit_lac_and_by_a_fence() -> None:
    """P6.2."""
    world, _, _ = it = scene()
    incarnation = world.nodes["b1"].member.incarnation
    first = lac_wait(it, 8)
    world.ask("b1", ExplicitLacRequest(incarnation, it.ledger_id, KEY, 9, 70))
    world.settle()
    assert first.ended.result == (9, 70, False)
    second, far = lac_wait(it, 9), lac_wait(it, 99)
    world.ask("b1", FenceRequest(incarnation, it.ledger_id, KEY))
    world.settle()
    assert second.ended.result == far.ended.result == (9, 70, True)
    assert lac_wait(it, 9).ended.result[2]  # A fenced ledger is told at once, and not polled on (L12).


def test_a_long_poll_ends_with_its_time_and_says_what_is_known() -> None:
    world, writer, _ = it = scene()
    writer.is_gone = True
    waiter = lac_wait(it, 8, 250)
    assert world.nodes["b1"].core.deadline_ns == 250 * MS
    world.run(until=lambda: waiter.has_ended)
    assert world.now_ns == 250 * MS
    assert waiter.ended.result == (8, 63, False)
    assert world.nodes["b1"].core.deadline_ns is None


def test_a_long_poll_on_a_ledger_without_entries_waits_too() -> None:
    """P6.2, L12: a reader of a new ledger does not go in a circle; the first LAC wakes it."""
    world, writer, pen = it = scene(entries=0)
    waiter = lac_wait(it, NO_ENTRY)
    assert not waiter.has_ended
    world.add(writer, pen, b"entry 0")
    world.settle()
    assert waiter.ended.result == (0, 7, False)
    other = scene(entries=0)
    idle = lac_wait(other, NO_ENTRY, 100)
    other.world.run(until=lambda: idle.has_ended)
    assert idle.ended.result == (NO_ENTRY, 0, False)
    assert other.world.now_ns == 100 * MS


def test_a_long_poll_asks_another_bookie_when_one_does_not_answer() -> None:
    world, _, _ = it = scene()
    world.down = {"b1"}
    waiter = lac_wait(it, 3)
    assert waiter.ended.result[0] == 8
    world.down = set(world.nodes)
    assert lac_wait(it, 8).ended.result == (NO_ENTRY, 0, False)
    world.down = set()
    silent = world.client("silent", LacWait(it.metadata, 7, 100, 0))
    silent.start()
    world.run(until=lambda: silent.has_ended, hold=but("b1"))
    assert silent.ended.result[0] == 9  # The idle writer told it meanwhile.


def test_a_poll_waits_no_longer_than_its_bound() -> None:
    """LAC_WAIT_MS_MAX."""
    world, _, _ = it = scene()
    world.ask("b1", LacRequest(world.nodes["b1"].member.incarnation, it.ledger_id, 8, 10**9))
    assert world.nodes["b1"].core.deadline_ns == LAC_WAIT_MS_MAX * MS


def test_polls_of_a_lost_link_are_forgotten() -> None:
    world, _, _ = it = scene()
    node = world.nodes["b1"]
    world.ask("b1", LacRequest(node.member.incarnation, it.ledger_id, 8, 1000))
    node.perform(node.core.step(LinkLost(0, 2)))
    assert node.core.parked.poll_count
    node.perform(node.core.step(LinkLost(0, 1)))
    assert not node.core.parked.poll_count
    world.run(seconds=2)
    assert world.heard() == []


def test_the_lac_of_a_bookie_never_falls() -> None:
    """I11: an older explicit LAC, or an older frame, changes nothing."""
    world, _, _ = it = scene()
    incarnation = world.nodes["b1"].member.incarnation
    for lac, length in ((9, 70), (3, 28)):
        world.ask("b1", ExplicitLacRequest(incarnation, it.ledger_id, KEY, lac, length))
    world.settle()
    world.heard()
    world.ask("b1", LacRequest(incarnation, it.ledger_id))
    assert world.heard() == [LacAnswer(Status.OK, it.ledger_id, 9, 70, False)]
    held = but("b1")
    world.add(it.writer, it.pen, b"ten")
    world.settle(held)
    world.add(it.writer, it.pen, b"eleven")
    world.settle(held)
    late, newer = world.packets(it.writer, to="b1", kind=AddRequest)
    world.deliver(newer)  # It carries LAC 10; the one that is late carries 9.
    world.deliver(late)
    world.settle()
    world.ask("b1", LacRequest(incarnation, it.ledger_id))
    assert world.heard() == [LacAnswer(Status.OK, it.ledger_id, 10, 73, False)]


def test_a_lac_that_readers_saw_survives_all_bookies() -> None:
    """P6.2, scenario 13 (#1527): told by an explicit LAC, then every bookie restarts."""
    world, _, _ = it = scene()
    world.run(seconds=1)
    for node in world.nodes.values():
        node.crash()
        node.restart()
    assert lac_read(it).ended.result[0] == 9
    assert it.read(0, 9).read == it.payloads(0, 9)


def test_a_read_of_an_impossible_range_is_refused() -> None:
    world, _, _ = it = scene()
    incarnation = world.nodes["b1"].member.incarnation
    for request in (
        ReadRequest(incarnation, it.ledger_id, 5, 4, 1000),
        ReadRequest(incarnation, it.ledger_id, 0, 4, 0),
    ):
        world.ask("b1", request)
        assert [type(answer) for answer in world.heard()] == [ErrorAnswer]
    for request in (
        ReadRequest(incarnation, it.ledger_id, -1, 4, 1000),
        ReadRequest(incarnation, it.ledger_id, 0, 4, 1000, modulus=0),
        ReadRequest(incarnation, it.ledger_id, 0, 4, 1000, modulus=65),
    ):
        with pytest.raises(PeerError):  # Not even decoded.
            decode_message(b"".join(encode_message(1, request)))


# Whom to ask, and for how long to wait (RP27, RP28, RP29).


def reads_asked(it: Scene, reader: Client) -> list[str]:
    return [packet.bookie_id for packet in it.world.packets(reader, kind=ReadRequest, is_request=True)]


def test_patience_follows_what_was_observed_within_its_bounds() -> None:
    """RP27: from the smoothed latency and how far it strays; a fixed delay only before anything was measured."""
    health = ReadHealth()
    assert health.patience_ns(300 * MS) == 300 * MS
    for _ in range(50):
        health.note_good("b1", 20 * MS)
    assert 20 * MS <= health.patience_ns(300 * MS) < 25 * MS
    for _ in range(50):
        health.note_good("b1", MS // 10)
    assert health.patience_ns(300 * MS) == PATIENCE_NS_MIN
    for _ in range(50):
        health.note_good("b1", 60_000 * MS)
    assert health.patience_ns(300 * MS) == PATIENCE_NS_MAX


def test_a_slow_copy_is_left_behind_at_the_pace_of_the_others() -> None:
    """P6.1, RP27: what other reads of the client measured counts here too."""
    it = scene()
    health = ReadHealth()
    for _ in range(20):
        health.note_good("b2", 10 * MS)
    reader = it.world.reader(it.ledger_id, 0, 9, health=health)
    reader.start()
    assert reads_asked(it, reader) == ["b1"]
    assert it.world.tick(reader, 9 * MS) == []
    assert reads_asked(it, reader) == ["b1"]
    it.world.tick(reader, 5 * MS)
    assert reads_asked(it, reader) == ["b1", "b2"]
    it.world.settle(hold=but("b1"))
    assert reader.read == it.payloads(0, 9)


def test_a_bookie_that_failed_lately_is_asked_after_the_others() -> None:
    """RP28: also by other reads of the client, until it answers well or a minute is over."""
    it = scene()
    health = ReadHealth()
    it.world.down.add("b1")
    first = it.world.reader(it.ledger_id, 0, 9, "first", health=health)
    first.start()
    it.world.settle()
    assert first.read == it.payloads(0, 9)
    it.world.down.clear()
    for after_ns, asked in ((0, "b2"), (FAILURE_MEMORY_NS, "b1")):
        it.world.now_ns += after_ns
        other = it.world.reader(it.ledger_id, 0, 9, f"after {after_ns}", health=health)
        other.start()
        assert reads_asked(it, other) == [asked]
        it.world.settle()
        assert other.ended.error is None


def test_a_read_stays_with_the_copy_that_works() -> None:
    """RP29: one bookie's read-ahead serves the whole read, chunk after chunk; of the same content (P6.4)."""
    it = scene(entries=30)
    reader = it.world.reader(it.ledger_id, 0, 29, seat=1, options=ReadOptions(ahead_bytes=1))
    reader.start()
    asked: set[str] = set()
    while not reader.has_ended:
        asked.update(reads_asked(it, reader))
        it.world.settle()
        it.world.consume(reader, 1 << 20)
    assert asked == {"b2"}
    assert reader.read == it.payloads(0, 29)


def test_what_failed_is_bounded() -> None:
    health = ReadHealth()
    for number in range(BOOKIES_MAX + 10):
        health.note_failed(f"b{number}", number)
    assert len(health.failed_ns) == BOOKIES_MAX


# Read repair (RP32).


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
@pytest.mark.parametrize("fault", ["unreadable", "absent", "limbo"])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_bad_copy_is_written_again_from_a_good_one(quorum: Quorum, fault: str, is_closed: bool) -> None:
    """RP32: missing or damaged, of a closed ledger or below the LAC; verbatim, and durable."""
    world, writer, _ = it = scene(quorum)
    if is_closed:
        world.close(writer)
        world.settle()
    node = world.nodes["b1"]
    mine = node.holds(it.ledger_id)
    if fault == "unreadable":
        for entry_id in mine:
            node.storage.make_unreadable(it.ledger_id, entry_id)
    else:
        node.storage.store.entries[it.ledger_id].clear()
        node.storage.store.ids[it.ledger_id].clear()
    if fault == "limbo":
        row = node.storage.table.get(it.ledger_id)
        assert row is not None
        row.in_limbo = row.is_fenced = 1
    for seat in range(3):  # Whichever bookie the reader begins with, b1 is asked by one of these.
        reader = it.read(0, 9, seat=seat, repair_key=KEY)
        assert reader.read == it.payloads(0, 9)
    world.settle()
    assert node.holds(it.ledger_id) == mine
    found = node.storage.read(it.ledger_id, 0, 9, 1 << 20)
    assert found.frame is not None
    for entry_id, raw in split(found.frame):
        assert bytes(raw) == world.sent[it.ledger_id, entry_id]
    assert not node.storage.store.unreadable


def test_only_the_bad_copy_is_written_and_only_with_the_key() -> None:
    """RP32, P3.5: no repair of bookies that are away or slow, none without the ledger's key, a bounded number."""
    world, _, _ = it = scene()
    world.nodes["b1"].storage.make_unreadable(it.ledger_id, 0)
    assert it.read(0, 9).ended.error is None
    assert world.packets(kind=AddRequest) == []
    assert world.nodes["b1"].storage.store.unreadable  # Nor was one delivered.
    world.down.add("b2")
    reader = world.reader(it.ledger_id, 0, 9, "repairing", repair_key=KEY)
    reader.start()
    for packet in world.packets(reader, "b1"):
        world.deliver(packet)
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    (repair,) = world.packets(kind=AddRequest)
    assert (repair.bookie_id, repair.control.recovery) == ("b1", True)
    assert not repair.frames[0][0].has_lac
    none = world.reader(it.ledger_id, 0, 0, "bounded", repair_key=KEY, options=ReadOptions(repairs_max=0))
    none.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    assert none.ended.error is None
    assert world.packets(kind=AddRequest) == [repair]


def test_a_repair_that_fails_fails_no_read() -> None:
    """RP32: what was read is right whatever becomes of the repair."""
    world, _, _ = it = scene()
    world.nodes["b1"].storage.make_unreadable(it.ledger_id, 0)
    reader = world.reader(it.ledger_id, 0, 9, repair_key=KEY, options=ReadOptions(ahead_bytes=1))
    reader.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    (repair,) = world.packets(kind=AddRequest)
    world.fail(repair)
    world.consume(reader, 1 << 20)
    world.settle()
    assert reader.read == it.payloads(0, 9)
    assert (reader.core.repairs_asked, reader.core.repaired) == (1, 0)


# Beyond the LAC (P6.3), and the LAC that every answer carries.


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
def test_unconfirmed_entries_are_read_only_where_asked_for(quorum: Quorum) -> None:
    """P6.3: entries on one copy only, never acknowledged; the read ends where nobody has more."""
    world, writer, pen = it = scene(quorum)
    for number in range(10, 14):
        world.add(writer, pen, b"entry %d" % number)
    seen: dict[int, str] = {}
    for packet in world.packets(writer, kind=AddRequest):
        entry_id = packet.frames[0][0].first_entry
        if seen.setdefault(entry_id, packet.bookie_id) == packet.bookie_id:
            world.deliver(packet)
        else:
            world.lose(packet)
    for node in world.nodes.values():
        node.sync()
    assert writer.confirmed == 9
    reader = it.read(0, 1 << 40, is_unconfirmed=True)
    assert reader.ended.error is None
    assert reader.read == it.payloads(0, 13)
    assert it.read(14, 1 << 40, is_unconfirmed=True).read == []


def test_a_read_beyond_the_lac_never_takes_silence_for_the_end() -> None:
    """P6.3, P7.1: a bookie that cannot tell may hold the entry."""
    world, _, _ = it = scene()
    world.down.add("b3")
    reader = it.read(10, 1 << 40, is_unconfirmed=True)
    assert isinstance(reader.ended.error, EntryUnreadable)


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
@pytest.mark.parametrize("why", ["limbo", "unreadable"])
def test_a_read_beyond_the_lac_takes_an_answer_that_cannot_tell_for_no_end(quorum: Quorum, why: str) -> None:
    """P6.3, P7.1: all answer, and one answers neither with the entry nor with a no: it has lost it, or its copy cannot
    be read. It may have been acknowledged; so the read fails, and ends nowhere."""
    world, writer, pen = it = scene(quorum)
    unsure = world.nodes[it.metadata.fragments[-1].members[write_set(10, quorum)[1]].bookie_id]
    if why == "limbo":
        row = unsure.storage.table.get(it.ledger_id)
        assert row is not None
        row.in_limbo = row.is_fenced = 1
    else:
        world.add(writer, pen, b"entry 10")
        world.deliver(world.packet(writer, unsure.bookie_id, AddRequest))
        unsure.sync()
        unsure.storage.make_unreadable(it.ledger_id, 10)
        world.wire.clear()
    reader = it.read(10, 1 << 40, is_unconfirmed=True)
    assert isinstance(reader.ended.error, EntryUnreadable)
    assert reader.read == []


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
def test_below_the_end_of_a_ledger_that_was_closed_meanwhile_nothing_may_be_missing(quorum: Quorum) -> None:
    """I38, P6.1: a read beyond the LAC lost all links and hears of the close. From then on a no of every copy is a
    loss, and no end of what there is."""
    world, writer, _ = it = scene(quorum)
    reader = world.reader(it.ledger_id, 8, 1 << 40, is_unconfirmed=True)
    world.down |= set(world.nodes)
    reader.start()
    world.settle()
    world.close(writer)
    world.settle()
    assert it.metadata.last_entry == 9
    world.down.clear()
    for node in world.nodes.values():
        node.storage.store.entries[it.ledger_id].clear()
        node.storage.store.ids[it.ledger_id].clear()
    world.run(until=lambda: reader.has_ended)
    assert isinstance(reader.ended.error, EntryUnreadable)


def test_a_read_beyond_the_lac_that_finds_the_ledger_closed_stops_at_its_end() -> None:
    """I38, P6.3: it lost every copy, asks where they are, and hears of the close: what lies beyond is for nobody."""
    metadata = scene().read(0, 0).core.metadata
    core = RangeRead(metadata, 10, 1 << 40, 0, ReadOptions(), is_unconfirmed=True)
    effects = core.step(Started(0))
    while sends := [each for each in effects if isinstance(each, Send)]:
        effects = [
            out for each in sends for out in core.step(SendFailed(0, each.tag, each.member, "link lost"))
        ]
    assert core.deadline_ns is not None
    assert any(isinstance(each, ReadKey) for each in core.step(Tick(core.deadline_ns)))
    closed = metadata.with_changes(state=LedgerState.CLOSED, last_entry=9, length=90)
    told = core.step(KeyRead(0, "read", encode_ledger_metadata(closed), 9))
    assert told == [Ended()]


def test_every_read_answer_carries_the_lac() -> None:
    """P6.2, CL28: a reader's LAC advances without asking."""
    it = scene()
    it.world.run(seconds=1)  # Told explicitly while the writer idles.
    assert it.read(0, 3).core.lac == 9


def test_one_answer_with_news_is_enough_where_that_is_asked_for() -> None:
    """CL26: the first LAC above the known one; without news, coverage as ever (P6.2)."""
    it = scene()
    it.world.run(seconds=1)
    quick = it.world.client("quick", LacRead(it.metadata, above=4))
    quick.start()
    it.world.settle(hold=but("b1", "b2"))
    assert quick.ended.result[0] == 9
    slow = it.world.client("slow", LacRead(it.metadata, above=9))
    slow.start()
    it.world.settle(hold=but("b1", "b2"))
    assert not slow.has_ended
    it.world.settle()
    assert slow.ended.result[0] == 9
