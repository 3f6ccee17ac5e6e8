"""Adds to bookies of the same loop, without messages: what is acknowledged, and who decides what is uncommon.

Two clusters live through the same story, one whose writers reach the bookies past all messages and one whose do not.
The cores are the definition: at rest both have acknowledged the same, and both have stored the same.
"""

from __future__ import annotations

import os
import random
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.codec.add_messages import FenceAnswer, FenceRequest
from embedbk.codec.frame import iter_entries
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.ledger_metadata import LedgerState, decode_ledger_metadata, ledger_key_path
from embedbk.codec.packer import Packer
from embedbk.config import FRAME_BYTES_MAX, Quorum
from embedbk.core.client_words import SendFailed
from embedbk.core.creation import Creation
from embedbk.core.writer import Writer
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import LedgerFenced
from embedbk.host import courses
from embedbk.host.writing import Writing
from embedbk.ids import Member
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.transports.near import NativeNear, NearPoll
from tests.host.place import KEY, MS, SECOND, THREE, DiskStorage, Place

ADD_TIMEOUT_NS = 5 * SECOND
OPTIONS = WriterOptions(add_timeout_ns=ADD_TIMEOUT_NS)
NAMES = ("b1", "b2", "b3", "b4")


def on_memory(name: str, cache_bytes_max: int, disk: MemoryDisk | None = None) -> DiskStorage:
    disk = disk or MemoryDisk()
    return DiskStorage(disk, name, cache_bytes_max=cache_bytes_max, incarnation=name.encode() * 8)


class Side:
    """A cluster of four bookies, and a client on their loop."""

    def __init__(
        self, *, is_near: bool, bookies: int = 4, cache_bytes_max: int = 4 * FRAME_BYTES_MAX
    ) -> None:
        self.place = Place(bookies=0)
        self.storages = {name: on_memory(name, cache_bytes_max) for name in NAMES[:bookies]}
        for name, storage in self.storages.items():
            self.place.start_bookie(name, storage=storage)
        self.poll = NearPoll()
        nears: dict[Member, NativeNear] = {}
        for name, storage in self.storages.items():
            assert storage.add_path is not None
            near = nears[Member(name, storage.incarnation)] = NativeNear(storage.add_path)
            self.place.bookie(name).near = near
        self.place.until(lambda: all(self.place.bookie(name).is_registered for name in self.storages))
        self.client = self.place.start_client()
        self.place.until(lambda: len(self.client.bookies) == bookies)
        if is_near:
            self.client.add_locally(self.poll, nears)

    def write(self, quorum: Any = THREE) -> Writing:
        # The first three in the list of bookies: both sides begin with the same ensemble.
        three = tuple(sorted(self.client.bookies))[: quorum.ensemble_size]
        creation = Creation(quorum, b"", 0, {}, three, random.Random(1))
        metadata, revision = self.place.result(self.client, creation)
        core = Writer(metadata, revision, KEY, 7, self.client.bookies, random.Random(1), OPTIONS)
        writing = Writing(core, Packer(metadata.ledger_id), self.client.wake_writing)
        self.client.run(self.place.now_ns, writing)
        return writing

    def course(self, writing: Writing) -> Writing:
        """A writer whose adds go past all messages by now."""
        for _ in range(3):
            self.append(writing)
            self.rest()
        assert self.is_on_course(writing)
        return writing

    def is_on_course(self, writing: Writing) -> bool:
        assert self.client.courses is not None
        return self.client.courses.wake(writing)

    def append(self, writing: Writing, *sizes: int) -> None:
        for size in sizes or (100,):
            writing.try_append(writing.packer.next_entry.to_bytes(4, "big") * (size // 4))

    def turn(self) -> None:
        """Waiting comes behind the nodes' steps, and the disks sync meanwhile."""
        for node in list(self.place.nodes.values()):
            node.step(self.place.now_ns)
        self.wait()
        for name, disk in self.place.disks.items():
            if name not in self.place.held:
                disk.commit()
        self.wait()

    def wait(self) -> None:
        """What `self.poll` does while it waits, by the clock of this place."""
        self.poll.turns.take(self.place.now_ns)

    def rest(self, turns: int = 14) -> None:
        for _ in range(turns):
            self.turn()
            self.place.now_ns += MS

    def pass_time(self, duration_ns: int) -> None:
        end_ns = self.place.now_ns + duration_ns
        while self.place.now_ns < end_ns:
            for _ in range(3):
                self.turn()
            self.place.now_ns += 50 * MS

    def close_ledger(self, writing: Writing) -> int:
        self.client.close_writing(self.place.now_ns, writing)
        self.rest(30)
        return writing.closed.result()

    def metadata(self, writing: Writing) -> Any:
        records = self.place.metadata.core.catalog.page(
            ledger_key_path(writing.core.ledger_id), "", 1
        ).records
        return decode_ledger_metadata(records[0].value or b"")

    def held_after_power_loss(self, writing: Writing, entry_id: int) -> int:
        """How many bookies have an entry when the power goes now."""
        count = 0
        for name, storage in self.storages.items():
            again = on_memory(name, 4 * FRAME_BYTES_MAX, MemoryDisk(storage.disk.files()))
            found = again.read(writing.core.ledger_id, entry_id, entry_id, FRAME_BYTES_MAX)
            count += found.frame is not None
            again.close()
        return count

    def close(self) -> None:
        self.place.close()


@pytest.fixture
def side() -> Any:
    side = Side(is_near=True)
    yield side
    side.close()


def test_an_append_is_acknowledged_when_an_ack_quorum_is_durable(side: Side) -> None:
    """Rule P3.2: two of three; what one alone has synced, or all have only stored, is not acknowledged."""
    writing = side.course(side.write())
    side.place.held = {"b1", "b2", "b3"}
    side.append(writing)
    side.rest()
    assert writing.core.lap == writing.lac == 2
    side.place.held = {"b2", "b3"}
    side.rest()
    assert writing.lac == 2
    side.place.held = {"b3"}
    side.rest()
    assert writing.lac == 3
    assert side.is_on_course(writing)


def test_the_lac_waits_for_the_gap(side: Side) -> None:
    """Rule P3.3: entries are acknowledged in their order, whichever bookies have them first."""
    writing = side.course(side.write())
    for held in ({"b2", "b3"}, {"b1", "b3"}):
        side.place.held = held
        side.append(writing)
        side.turn()
        side.turn()
    side.place.held = {"b3"}
    seen = [writing.lac]
    for _ in range(6):
        side.turn()
        seen.append(writing.lac)
    assert sorted(seen) == seen
    assert seen[-1] == 4


def test_no_message_carries_what_goes_this_way(side: Side) -> None:
    """The shortcut is one: hundreds of entries later the bookies' cores have seen no add of them."""
    writing = side.course(side.write())
    before = side.client._requests._next_request()
    for _ in range(200):
        side.append(writing)
        side.turn()
        side.turn()
    side.rest()
    assert writing.lac == 202
    assert side.is_on_course(writing)
    assert side.client._requests._next_request() - before < 40, "hints of the LAC are all that leaves"


def test_acknowledged_entries_outlive_the_power(side: Side) -> None:
    """I40: at each moment every acknowledged entry is on the disks of an ack quorum."""
    writing = side.course(side.write())
    chance = random.Random(5)
    for _ in range(12):
        side.place.held = set(chance.sample(NAMES, chance.randrange(3)))
        side.append(writing, *(chance.choice([8, 400, 20_000]) for _ in range(chance.randint(1, 4))))
        side.turn()
        assert side.held_after_power_loss(writing, writing.lac) >= 2


def test_a_fence_ends_it(side: Side) -> None:
    """Rule P5.2f: behind the fence of a recovery nothing is stored as a normal add, and the writer hears of it."""
    writing = side.course(side.write())
    for name in ("b1", "b2"):
        peer = side.place.peer(name)
        incarnation = side.storages[name].incarnation
        answer = peer.ask(FenceRequest(incarnation, writing.core.ledger_id, KEY))
        assert isinstance(answer, FenceAnswer)
    side.append(writing)
    side.rest()
    assert writing.lac == 2
    assert isinstance(writing.error, LedgerFenced)


def test_a_bookie_that_is_read_only_stores_nothing(side: Side) -> None:
    """Rule P7.8: its answer is the core's, to a message; the writer replaces it."""
    writing = side.course(side.write())
    side.place.bookie("b1").spacing.set_read_only(side.place.now_ns, True)
    side.append(writing)
    side.rest(30)
    assert writing.lac == 3
    assert [entry_id for entry_id, _ in stored(side.storages["b1"], writing)] == [0, 1, 2]
    members = [member.bookie_id for member in side.metadata(writing).fragments[-1].members]
    assert sorted(members) == ["b2", "b3", "b4"]


def test_striped_entries_go_by_messages(side: Side) -> None:
    """Rule P3.7: with write sets of their own, entries are cut out for each bookie; here every bookie gets all."""
    writing = side.write(Quorum(4, 3, 2))
    for _ in range(4):
        side.append(writing)
        side.rest()
    assert writing.lac == 3
    assert not side.is_on_course(writing)


def test_closing_waits_for_what_is_under_way(side: Side) -> None:
    """Rule P5.1: everything that was appended before the close is in the closed ledger."""
    writing = side.course(side.write())
    side.place.held = {"b1", "b2", "b3"}
    side.append(writing, *[300] * 5)
    side.rest()
    assert writing.lac == 2
    side.client.close_writing(side.place.now_ns, writing)
    side.rest()
    assert side.metadata(writing).state == LedgerState.OPEN
    side.place.held = set()
    side.rest(30)
    assert writing.closed.result() == 7
    assert side.metadata(writing).last_entry == 7


def test_a_bookie_whose_disk_fails_is_replaced(side: Side) -> None:
    """Rules P7.6, P4.2: its silence counts for nothing, and the spare one gets what is not acknowledged."""
    writing = side.course(side.write())
    side.storages["b1"].disk.fail("write", stays=True)
    side.place.held = {"b2"}
    side.append(writing)
    side.turn()
    side.turn()
    assert writing.lac == 2
    side.place.held = set()
    for _ in range(5):
        side.append(writing, 500)
        side.rest()
    side.pass_time(SECOND)
    assert writing.lac == 8
    assert writing.error is None
    members = [member.bookie_id for member in side.metadata(writing).fragments[-1].members]
    assert sorted(members) == ["b2", "b3", "b4"]
    assert side.close_ledger(writing) == 8


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_a_bookie_that_stores_and_never_syncs_is_replaced(side: Side, is_busy: bool) -> None:
    """Rule P4.1: silence for as long as an add may take is a failure, also where the ack quorum goes on without it."""
    writing = side.course(side.write())
    side.place.held = {"b3"}
    side.append(writing)
    side.rest()
    assert writing.lac == 3
    for _ in range(12):
        if is_busy:
            side.append(writing)
        side.pass_time(ADD_TIMEOUT_NS // 10)
    members = [member.bookie_id for member in side.metadata(writing).fragments[-1].members]
    assert sorted(members) == ["b1", "b2", "b4"]
    assert writing.lac == (15 if is_busy else 3)


def test_slowness_within_the_time_limit_replaces_nobody(side: Side) -> None:
    """Rule P4.1: a bookie that gets durable late, again and again, has not failed."""
    writing = side.course(side.write())
    for _ in range(8):
        side.place.held = {"b3"}
        side.append(writing)
        side.pass_time(ADD_TIMEOUT_NS // 4)
        side.place.held = set()
        side.pass_time(200 * MS)
    assert len(side.metadata(writing).fragments) == 1
    assert writing.lac == 10


def test_a_full_write_cache_holds_writers_back_and_loses_nothing() -> None:
    """RP34: with no room in a bookie nothing is stored at the others alone, and all goes on when there is room."""
    side = Side(is_near=True, cache_bytes_max=2 * FRAME_BYTES_MAX + 1)
    writing = side.course(side.write())
    side.place.held = {"b3"}
    for _ in range(60):
        side.append(writing, *[50_000] * 4)
        side.turn()
    side.place.held = set()
    side.rest(200)
    assert writing.error is None
    assert writing.lac == 2 + 240
    assert side.close_ledger(writing) == 242
    side.close()


def test_a_reader_that_waits_hears_of_the_next_entry(side: Side) -> None:
    """Rule P6.2: who polls for the LAC is answered by the add that raises it, or by the hint behind it."""
    writing = side.course(side.write())
    peer = side.place.peer("b2")
    request = LacRequest(side.storages["b2"].incarnation, writing.core.ledger_id, 2, 10_000)
    asked = peer.send(request)
    side.rest()
    for _ in range(2):
        side.append(writing)
        side.rest()
    peer.look()
    answers = [message for message in peer.messages if message.request_id == asked]
    assert [type(message.control) for message in answers] == [LacAnswer]
    assert answers[0].control.lac >= 3  # type: ignore[union-attr]


def test_a_turn_ends_where_a_reader_waits_and_answers_of_before_are_missing(side: Side) -> None:
    """L14, P6.2: a bookie of this loop says at each question that a reader waits. What its core had sent before the
    course began is not answered yet, so each event for the core asks again."""
    writing = side.course(side.write())
    assert side.client.courses is not None
    side.place.held = {"b1", "b2", "b3"}
    side.client.courses.end(side.place.now_ns, writing)
    side.append(writing)
    side.rest()
    assert not side.is_on_course(writing)
    request = LacRequest(side.storages["b2"].incarnation, writing.core.ledger_id, 3, 10_000)
    side.place.peer("b2").send(request)
    steps = 0

    def count(core: Any, event: Any, effects: Any) -> None:
        nonlocal steps
        steps += 1
        assert steps < 10_000, "a turn does not end"

    side.client.on_step, side.client.is_sending_watched = count, True
    for _ in range(300):
        side.append(writing)
        side.rest(1)
        if side.is_on_course(writing):
            break
    assert side.is_on_course(writing)
    (course,) = side.client.courses._courses.values()
    assert course.lac < course.began_lap
    side.append(writing)
    side.rest()
    (seating,) = [each for each in writing.core.in_flight.seatings if each.member.bookie_id == "b2"]
    assert seating.awaited_until_ns > side.place.now_ns
    side.place.held = set()
    side.rest(30)
    assert writing.lac == writing.packer.next_entry - 1


def test_the_idle_lac_becomes_known(side: Side) -> None:
    """Rule P6.2: a writer that idles tells its bookies the LAC, whichever way its adds went."""
    writing = side.course(side.write())
    side.append(writing)
    side.rest(400)
    for name in ("b1", "b2", "b3"):
        row: Any = side.storages[name].table.get(writing.core.ledger_id)
        assert row.lac == writing.lac == 3


def test_another_event_finds_the_core_as_if_it_had_waited(side: Side) -> None:
    """Before its core hears of anything, it is told what went on, and sends what is not acknowledged itself."""
    writing = side.course(side.write())
    side.place.held = {"b1", "b2", "b3"}
    side.append(writing, 100, 100)
    side.rest()
    number = writing.core.in_flight.seatings[0].number
    side.client.tell(writing, SendFailed(side.place.now_ns, ("add", number, 3), Member("b1", b""), "test"))
    side.turn()
    assert not side.is_on_course(writing)
    assert writing.core.lap == 4
    side.place.held = set()
    side.rest(30)
    assert writing.lac == 4


def test_writers_beyond_the_bound_go_by_messages(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """`WRITERS_MAX`: each wait looks at all of them; one that is idle leaves its place to one that is not."""
    monkeypatch.setattr(courses, "WRITERS_MAX", 2)
    first, second, third = (side.write() for _ in range(3))
    side.course(first)
    side.course(second)
    for _ in range(4):
        side.append(third)
        side.rest()
    assert third.lac == 3
    assert not side.is_on_course(third)
    ways = side.client.courses
    assert ways is not None and ways._is_full(side.place.now_ns)  # Found without a look at each of them.
    side.pass_time(courses.IDLE_NS)
    side.course(third)
    assert not side.is_on_course(first)
    side.append(first)
    side.rest()
    assert (first.lac, third.lac) == (3, 6)


def test_who_leaves_keeps_no_block(side: Side) -> None:
    """A handle that is released while frames are under way gives their memory back."""
    writing = side.course(side.write())
    side.place.held = {"b1", "b2", "b3"}
    side.append(writing, *[1000] * 3)
    side.rest()
    assert writing.packer.unreleased_bytes > 0
    side.client.release(writing)
    assert writing.packer.unreleased_bytes == 0


# --- Users' threads --------------------------------------------------------------------------------------


class Waiting:
    """A thread that waits for an entry."""

    def __init__(self, writing: Writing, entry_id: int) -> None:
        self.answers: list[bool] = []
        self.thread = threading.Thread(target=lambda: self.answers.append(writing.wait_locally(entry_id)))
        self.thread.start()

    def answer(self) -> bool:
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.answers[0]


def test_a_thread_is_woken_by_the_acknowledgement_itself(side: Side) -> None:
    """Rule P3.2: not before the ack quorum is durable; then at once, and the handle shows the same LAC before its core
    was told."""
    writing = side.course(side.write())
    side.place.held = {"b2", "b3"}
    side.append(writing)
    side.turn()
    waiting = Waiting(writing, 3)
    side.turn()
    assert waiting.answers == []
    assert (writing.lac, writing.received) == (2, 2)
    side.place.disks["b2"].commit()
    side.poll.poll(0)
    assert waiting.answer()
    assert (writing.lac, writing.received, writing.core.lac) == (3, 3, 2)
    assert writing.length == 400
    assert side.poll.poll(30_000) == [(side.poll.fileno(), select.POLLIN)], "the core is told soon"
    side.turn()
    assert (writing.core.lac, writing.lac, writing.length) == (3, 3, 400)


def test_a_thread_that_waits_is_told_when_nothing_comes_this_way(side: Side) -> None:
    """It waits for what the core says then; and the LAC that was shown does not fall."""
    writing = side.course(side.write())
    side.place.held = {"b1", "b2", "b3"}
    side.append(writing)
    side.turn()
    waiting = Waiting(writing, 3)
    assert side.client.courses is not None
    side.client.courses.end(side.place.now_ns, writing)
    assert not waiting.answer()
    assert not writing.wait_locally(3)
    assert writing.lac == 2
    side.place.held = set()
    side.rest(30)
    assert writing.wait(3, 0)


def test_threads_of_one_writer_each_get_their_own(tmp_path: Path) -> None:
    """Appends of several threads, and tickets that are waited for meanwhile: each is there when its call returns."""
    with embedbk.open(tmp_path, bookies=3) as bk, bk.log("threads").writer() as writer:
        wrong: list[Any] = []

        def append(number: int) -> None:
            seen = -1
            for count in range(60):
                if number == 0:
                    position = writer.append_nowait(b"submitted").result(30)
                else:
                    position = writer.append(b"%d %d" % (number, count))
                lac = writer.lac
                if lac < position.entry_id or lac < seen:
                    wrong.append((number, count, position, lac, seen))
                seen = lac

        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert wrong == []
        assert writer.lac == 4 * 60 - 1


# --- The wait --------------------------------------------------------------------------------------------


def test_the_wait_tells_ready_descriptors_and_ends_in_time() -> None:
    """As `select.poll`: nothing ready, nothing told; a descriptor is told as long as it is ready."""
    poll = NearPoll()
    event = os.eventfd(0, os.EFD_NONBLOCK)
    poll.register(event, select.POLLIN)
    assert poll.poll(0) == []
    assert poll.poll(2) == []
    os.eventfd_write(event, 1)
    assert poll.poll(-1) == poll.poll(0) == [(event, select.POLLIN)]
    os.eventfd_read(event)
    poll.wake_adds()
    poll.wake_adds()
    assert poll.poll(1) == [], "nobody has adds: a wake-up alone concerns no node"
    os.close(event)


def test_a_descriptor_that_ends_the_wait_keeps_no_acknowledgement_back(side: Side) -> None:
    """Rule P3.2: what became durable while the wait slept is counted before any node is stepped for something else."""
    writing = side.course(side.write())
    side.place.held = {"b2", "b3"}
    side.append(writing)
    side.turn()
    event = os.eventfd(0, os.EFD_NONBLOCK)
    side.poll.register(event, select.POLLIN)
    waits = threading.Event()

    def commit_and_knock() -> None:
        waits.wait(30)
        side.place.disks["b2"].commit()
        os.eventfd_write(event, 1)

    knocking = threading.Thread(target=commit_and_knock)
    knocking.start()
    waits.set()
    assert (event, select.POLLIN) in side.poll.poll(30_000)
    assert writing.lac == 3
    knocking.join(30)
    os.close(event)


# --- With and without ------------------------------------------------------------------------------------


class Twice:
    """The same story where writers reach the bookies past all messages, and where they do not."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.sides = [Side(is_near=True), Side(is_near=False)]
        self.writings = [[side.write() for _ in range(3)] for side in self.sides]
        self.courses = 0

    def both(self, act: Callable[[Side, list[Writing]], None]) -> None:
        for side, writings in zip(self.sides, self.writings, strict=True):
            act(side, writings)

    def append(self) -> None:
        number = self.chance.randrange(3)
        sizes = [self.chance.choice([4, 100, 2000, 40_000]) for _ in range(self.chance.randint(1, 8))]

        def act(side: Side, writings: list[Writing]) -> None:
            if writings[number].error is None:
                side.append(writings[number], *sizes)

        self.both(act)

    def hold(self) -> None:
        """Fewer than an ack quorum waits: so at rest both sides have acknowledged all."""
        held = set(self.chance.sample(NAMES, self.chance.randrange(2)))
        self.both(lambda side, _: setattr(side.place, "held", held))

    def turn(self) -> None:
        self.both(lambda side, _: side.turn())

    def poll(self) -> None:
        number, name = self.chance.randrange(3), self.chance.choice(NAMES[:3])

        def act(side: Side, writings: list[Writing]) -> None:
            ledger_id = writings[number].core.ledger_id
            side.place.peer(name).send(
                LacRequest(side.storages[name].incarnation, ledger_id, writings[number].lac, 50)
            )

        self.both(act)

    def rest(self) -> None:
        self.both(lambda side, _: side.rest(30))
        ours, core = (
            [(each.lac, each.length, each.received, type(each.error)) for each in writings]
            for writings in self.writings
        )
        assert ours == core
        self.courses += sum(self.sides[0].is_on_course(each) for each in self.writings[0])

    def fence(self) -> None:
        """The whole ensemble of one ledger, so that at rest nobody is undecided."""
        number = self.chance.randrange(3)

        def act(side: Side, writings: list[Writing]) -> None:
            side.place.held = set()
            ledger_id = writings[number].core.ledger_id
            for member in writings[number].core.in_flight.members:
                side.place.peer(member.bookie_id).ask(FenceRequest(member.incarnation, ledger_id, KEY))

        self.rest()
        self.both(act)


@pytest.mark.parametrize("seed", range(8))
def test_the_same_story_has_the_same_acknowledgements(seed: int) -> None:
    """P3.2, P3.3: with the shortcut and without, at rest the same entries are acknowledged, and every bookie has the
    same entries after a loss of power."""
    chance = random.Random(f"local adds {seed}")
    twice = Twice(chance)
    story: list[tuple[int, Callable[[], None]]] = [
        (40, twice.append), (8, twice.hold), (60, twice.turn), (3, twice.poll), (10, twice.rest), (1, twice.fence),
    ]  # fmt: skip
    weights, acts = zip(*story, strict=True)
    for act in chance.choices(acts, weights, k=150):
        act()
    twice.both(lambda side, _: setattr(side.place, "held", set()))
    twice.rest()
    assert twice.courses > 5, "the story hardly went past messages"
    for side in twice.sides:
        side.rest(60)
    ours, core = (
        {
            (name, number): stored(storage, writing)
            for name, storage in side.storages.items()
            for number, writing in enumerate(writings)
            if writing.error is None
        }
        for side, writings in zip(twice.sides, twice.writings, strict=True)
    )
    assert ours == core
    for side in twice.sides:
        side.close()


def stored(storage: DiskStorage, writing: Writing) -> list[tuple[int, bytes]]:
    """Ids and payloads that a bookie has of a ledger. The LAC that an entry carries is as old as its frame."""
    found: list[tuple[int, bytes]] = []
    while True:
        first = found[-1][0] + 1 if found else 0
        held = storage.read(writing.core.ledger_id, first, first + 10_000, FRAME_BYTES_MAX)
        if held.frame is None:
            return found
        found += [(entry.entry_id, bytes(entry.data)) for entry in iter_entries(held.frame)]
