"""P6.7: what a read is for, what a bookie reads in a second, and what its reader does when it is told to wait."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import frame_of
from embedbk.codec.read_messages import ReadAnswer, ReadClass, ReadRequest
from embedbk.config import FRAME_BYTES_MAX, READ_WAIT_MS_MAX
from embedbk.core.bookie_words import ReadBoundsSet, ReadEntries
from embedbk.core.client_words import Answered
from embedbk.core.read_budget import ReadBudget, read_class
from embedbk.core.reader import ReadOptions
from embedbk.core.vocabulary import Started, Tick
from embedbk.host.reading import TURN_BYTES, WaitingReads
from embedbk.repair.copy_check import CopiesCheck, CopyTask
from tests.repair.test_copy_check import B1, LEDGER, owed
from tests.repair.test_copying import ENTRIES, copying, read
from tests.rules.test_p6_reading_ahead import LARGE, Scene, answer, scene
from tests.rules.world import MS

SECOND = 1_000_000_000
BATCH = ReadOptions(reads_as=ReadClass.BATCH)


def bounded(
    it: Scene, *, catch_up: int = 0, batch: int = 0, upkeep: int = 0, names: Sequence[str] = ()
) -> None:
    for name, node in it.world.nodes.items():
        if not names or name in names:
            node.core.step(ReadBoundsSet(it.world.now_ns, (0, catch_up, batch, upkeep)))


def test_a_read_catches_up_once_it_is_sequential_and_a_job_reads_as_one_from_its_first_entry_on() -> None:
    it = scene([LARGE] * 12)
    reader, _ = it.read(ReadOptions(ahead_bytes=64 << 20))
    asked = []
    while not reader.has_ended:
        asked.append(it.asked(reader)[0].control.reads_as)  # type: ignore[union-attr]
        answer(it, reader)
    assert asked[0] == ReadClass.TAIL
    assert asked[-1] == ReadClass.CATCH_UP
    job, _ = it.read(BATCH)
    assert {packet.control.reads_as for packet in it.asked(job)} == {ReadClass.BATCH}  # type: ignore[union-attr]


def test_beyond_its_bound_a_class_is_told_to_wait_and_nothing_is_looked_up() -> None:
    """ "Beyond its bound a read is answered BUSY, with how long to wait, before anything is looked up"."""
    it = scene([LARGE] * 4)
    bounded(it, batch=100_000)
    node, ledger_id = it.world.nodes["b1"], it.pen.ledger_id

    def ask(kind: int, *, fence: bool = False) -> ReadAnswer:
        it.world.ask(
            "b1",
            ReadRequest(
                node.member.incarnation,
                ledger_id,
                0,
                3,
                FRAME_BYTES_MAX,
                fence,
                bytes(range(16)),
                reads_as=kind,
            ),
        )
        it.world.settle()
        (told,) = it.world.heard()
        assert isinstance(told, ReadAnswer)
        return told

    assert ask(ReadClass.BATCH).status == Status.OK
    looked_up = node.core.looks.next_id
    told = ask(ReadClass.BATCH)
    assert (told.status, told.absent, told.lac) == (Status.BUSY, [], -1)
    assert 8_500 < told.wait_ms <= 9_100, "three entries of 300 kB were read, at 100 kB/s"
    assert node.core.looks.next_id == looked_up
    assert ask(ReadClass.CATCH_UP).status == Status.OK, "a class of its own"
    assert ask(ReadClass.TAIL).status == Status.OK
    assert ask(ReadClass.BATCH, fence=True).status == Status.OK, "a recovery waits for no budget"
    it.world.now_ns += told.wait_ms * MS
    assert ask(ReadClass.BATCH).status == Status.OK
    bounded(it)
    assert ask(ReadClass.BATCH).status == Status.OK, "the bound was taken away"


def test_a_number_of_a_later_build_counts_as_the_last_class() -> None:
    """ "a higher number, up to 255, counts as 3" (WIRE)."""
    assert [read_class(each) for each in (0, 1, 2, 3, 4, 255)] == [0, 1, 2, 3, 3, 3]


def test_readers_get_the_newest_entries_from_memory_and_checks_ask_the_entry_logs() -> None:
    """ "Behind a flush the tail and readers that catch up are still answered from the write cache ...; batches, upkeep,
    and whatever compares or counts copies, ask the entry logs" (ST45)."""
    it = scene([8] * 4)
    node, ledger_id = it.world.nodes["b1"], it.pen.ledger_id

    def has_second(kind: ReadClass) -> bool:
        it.world.ask(
            "b1",
            ReadRequest(
                node.member.incarnation, ledger_id, 1, 1, 1000, False, bytes(range(16)), reads_as=kind
            ),
        )
        it.world.settle()
        (packet,) = it.world.packets(it.world.nobody)
        it.world.wire.remove(packet)
        assert isinstance(packet.control, ReadAnswer)
        assert packet.control.absent == []
        return bool(packet.frames)

    node.storage.begin_flush_if_due(is_due=True)
    node.storage.finish_flush()
    node.storage.make_unreadable(ledger_id, 1)
    assert [has_second(kind) for kind in ReadClass] == [True, True, False, False]
    copy = frame_of(memoryview(node.storage.store.entries[ledger_id][1]))
    it.world.ask("b1", AddRequest(node.member.incarnation, 1, 1, recovery=True, is_copy=True), copy)
    it.world.settle()
    assert [answer.status for answer in it.world.heard()] == [Status.OK]
    assert [has_second(kind) for kind in ReadClass] == [True] * 4, "a copy is compared with the entry log's"
    node.storage.begin_flush_if_due(is_due=True)
    node.storage.make_unreadable(ledger_id, 1)
    assert [has_second(kind) for kind in ReadClass] == [False] * 4, "the next flush takes the room"


@pytest.mark.parametrize("seed", range(5))
def test_however_many_read_together_the_bound_is_kept(seed: int) -> None:
    chance = random.Random(seed)
    budget, rate, now_ns, read_bytes, waiting = ReadBudget(), 1_000_000, 5 * SECOND, 0, []
    budget.set_bounds((0, 0, rate, 0))
    began_ns = now_ns
    for _ in range(3_000):
        if waiting and chance.random() < 0.5:
            size = waiting.pop(chance.randrange(len(waiting)))
            budget.settle(ReadClass.BATCH, size)
            read_bytes += size
        elif not budget.take(now_ns, ReadClass.BATCH):
            waiting.append(chance.randrange(FRAME_BYTES_MAX + 1))
        now_ns += chance.randrange(20 * MS)
    most = (now_ns - began_ns) * rate // SECOND
    assert read_bytes <= most + FRAME_BYTES_MAX
    assert read_bytes >= most // 4, "and it is made use of"


def test_a_reader_that_is_told_to_wait_asks_another_copy_and_no_copy_failed() -> None:
    """P6.7: "that is no failed copy ... another bookie of the write set is asked meanwhile"."""
    it = scene([LARGE] * 24)
    bounded(it, batch=100_000)
    reader, core = it.read(BATCH)
    while not reader.has_ended:
        it.world.settle()
        it.world.consume(reader, core.unread_bytes)
        if not it.world.packets(reader) and core.deadline_ns is not None:
            it.world.tick(reader, max(0, core.deadline_ns - it.world.now_ns))
    it.check(reader)
    assert not core.bad_seats
    assert not core.reasons
    assert core.repairs_asked == 0
    assert not any(core.health.has_failed(name, it.world.now_ns) for name in it.world.nodes)
    assert it.world.now_ns > 5 * SECOND, "7.2 MB from three bookies, each at 100 kB/s"


def test_where_one_bookie_has_time_nobody_waits() -> None:
    it = scene([LARGE] * 6)
    bounded(it, batch=100_000, names=("b1", "b2"))
    began_ns = it.world.now_ns
    reader, core = it.read(BATCH)
    while not reader.has_ended:
        it.world.settle()
        it.world.consume(reader, core.unread_bytes)
    it.check(reader)
    assert it.world.now_ns == began_ns


def test_a_part_that_waits_does_not_fail_when_the_last_other_copy_does() -> None:
    it = scene([100])
    reader, core = it.read(BATCH)
    busy = it.asked(reader)[0]
    it.world.wire.remove(busy)
    later = ReadAnswer(Status.BUSY, it.pen.ledger_id, wait_ms=50)
    reader.step(Answered(it.world.now_ns, busy.tag, busy.member, later, []))
    for _ in range(2):
        it.world.fail(it.asked(reader)[0])
    assert not core.second_round
    assert not reader.has_ended
    it.world.tick(reader, 50 * MS)
    assert [packet.bookie_id for packet in it.asked(reader)] == [busy.bookie_id]
    it.world.settle()
    it.check(reader)


def test_a_bookie_that_puts_the_tail_off_is_a_failed_copy() -> None:
    """P6.7: "each class but the first". Else one bookie, by saying BUSY for ever, could keep a read for ever."""
    it = scene([100])
    reader, core = it.read()
    packet = it.asked(reader)[0]
    it.world.wire.remove(packet)
    busy = ReadAnswer(Status.BUSY, it.pen.ledger_id, wait_ms=50)
    reader.step(Answered(it.world.now_ns, packet.tag, packet.member, busy, []))
    assert core.reasons == {packet.bookie_id: "BUSY"}
    it.world.settle()
    it.check(reader)


def test_a_reader_waits_no_longer_than_its_bound() -> None:
    it = scene([LARGE])
    budget = ReadBudget()
    budget.set_bounds((0, 0, 65_536, 0))
    for _ in range(2):
        wait_ms = budget.take(SECOND, ReadClass.BATCH)
    assert wait_ms == 1000 * FRAME_BYTES_MAX // 65_536 == 17_000
    budget.set_bounds((0, 0, 1, 0))
    assert [budget.take(SECOND, ReadClass.BATCH) for _ in range(2)] == [0, READ_WAIT_MS_MAX]
    reader, core = it.read(BATCH)
    for _ in range(3):
        packet = it.asked(reader)[0]
        it.world.wire.remove(packet)
        busy = ReadAnswer(Status.BUSY, it.pen.ledger_id, wait_ms=READ_WAIT_MS_MAX)
        reader.step(Answered(it.world.now_ns, packet.tag, packet.member, busy, []))
    assert core.deadline_ns == it.world.now_ns + READ_WAIT_MS_MAX * MS


def test_repair_that_is_told_to_wait_asks_another_source_then() -> None:
    core, (asked,) = copying()
    assert isinstance(asked.control, ReadRequest)
    assert asked.control.reads_as == ReadClass.UPKEEP
    busy = ReadAnswer(Status.BUSY, 7, wait_ms=300)
    assert core.on_answered(Answered(SECOND, asked.tag, asked.member, busy, [])) == []
    assert core.deadline_ns == SECOND + 300 * MS
    assert core.on_tick(SECOND + 299 * MS) == []
    (again,) = core.on_tick(SECOND + 300 * MS)
    assert again.member != asked.member  # type: ignore[union-attr]
    assert core.result is None
    (copy,) = read(core, again, b"".join(ENTRIES), SECOND + 300 * MS)  # type: ignore[arg-type]
    assert copy.frames[0][1].entry_count == 6


def test_a_scrub_that_is_told_to_wait_asks_the_same_again() -> None:
    core = CopiesCheck([CopyTask(LEDGER, B1, owed(0, 9), 0)])
    (asked,) = core.step(Started(0))
    assert asked.control.reads_as == ReadClass.UPKEEP  # type: ignore[union-attr]
    busy = ReadAnswer(Status.BUSY, LEDGER, wait_ms=300)
    assert core.step(Answered(SECOND, asked.tag, B1, busy, [])) == []  # type: ignore[union-attr]
    assert core.deadline_ns == SECOND + 300 * MS
    (again,) = core.step(Tick(SECOND + 300 * MS))
    assert again.control == asked.control  # type: ignore[union-attr]
    assert not core.blocks


class Links:
    """What waiting reads ask a transport for. full: links without room."""

    def __init__(self) -> None:
        self.full: set[int] = set()

    def has_room(self, link: int, size: int) -> bool:
        return link not in self.full


def lookup(number: int, link: int, kind: ReadClass) -> ReadEntries:
    return ReadEntries(number, 7, 0, 9, FRAME_BYTES_MAX, 1, 1, link, kind)


def made(reads: WaitingReads, size: int = 1 << 20) -> list[tuple[int, ReadClass]]:
    """Everything that this turn makes."""
    told = []
    while (read := reads.next()) is not None:
        reads.found(read, size)
        told.append((read.read_id, read.reads_as))
    return told


def test_a_turn_serves_the_classes_in_their_order_and_each_has_a_share() -> None:
    """ "A bookie serves them in this order, and each class but the first has a share of a turn, so that none waits for
    ever"."""
    reads = WaitingReads(Links())  # type: ignore[arg-type]
    for kind in reversed(ReadClass):
        for number in range(20):
            reads.add(lookup(number, 1, kind))
    first = made(reads)
    kinds = [kind for _, kind in first]
    assert kinds == sorted(kinds)
    assert [kinds.count(kind) for kind in ReadClass] == [20, 8, 2, 2]
    assert [kinds.count(kind) << 20 for kind in TURN_BYTES] == list(TURN_BYTES.values())
    assert reads.has_more()
    assert made(reads) == []
    reads.begin_turn()
    reads.add(lookup(99, 1, ReadClass.TAIL))
    second = made(reads)
    assert second[0] == (99, ReadClass.TAIL)
    assert len(second) == 13
    assert [number for number, kind in first + second if kind == ReadClass.BATCH] == [0, 1, 2, 3]


def test_links_of_a_class_take_turns_and_one_without_room_keeps_none_waiting() -> None:
    links = Links()
    reads = WaitingReads(links)  # type: ignore[arg-type]
    for number in range(6):
        reads.add(lookup(number, number % 3, ReadClass.BATCH))
    links.full = {0, 1, 2}
    assert made(reads) == []
    assert not reads.has_more(), "it waits for room"
    links.full = {0}
    assert [number for number, _ in made(reads)] == [1, 2]
    reads.begin_turn()
    assert [number for number, _ in made(reads)] == [4, 5]
    assert [each.read_id for each in reads.end_link(0)] == [0, 3]
    assert not reads
