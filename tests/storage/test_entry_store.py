"""Entries by (ledger, entry): one test class for the C store, cached and flushed, and for the simulator's twin."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from typing import Any

import pytest

from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import frame_of
from embedbk.errors import StorageError, UsageError
from embedbk.ports.entry_store import EntryStore
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.memory import MemoryEntryStore
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.stored_entries import ids_in, make_frame, payload, payloads_in

TOKEN, INCARNATION = b"T" * 16, b"I" * 16
DIRECTORY = "/bookie/entries"


def make_disk() -> MemoryDisk:
    return MemoryDisk({f"{DIRECTORY}/.made": b""})


def open_store(disk: MemoryDisk, **settings: Any) -> NativeEntryStore:
    return NativeEntryStore(
        [DIRECTORY],
        TOKEN,
        INCARNATION,
        io=disk,
        half_bytes_max=settings.pop("half_bytes_max", 8 << 20),
        **settings,
    )


def flush(store: NativeEntryStore, mark: int = 1, states: bytes = b"") -> None:
    """Everything put so far into one more entry log, by hand."""
    assert store.freeze(states, mark)
    store.flush(threaded=False)
    assert store.finish_flush()
    store.release()


class Place:
    """A store, and what to do between puts: nothing, or bring them into entry logs, or start again from those."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.disk = make_disk()
        self.store: Any = MemoryEntryStore() if kind == "twin" else open_store(self.disk)

    def settle(self) -> EntryStore:
        if self.kind in ("flushed", "reopened"):
            flush(self.store)
        if self.kind == "reopened":
            self.store.close()
            self.store = open_store(self.disk)
            assert self.store.reports() == []
        if self.kind == "frozen":
            self.store.freeze(b"", 1)
        return self.store


@pytest.fixture(params=["twin", "cached", "frozen", "flushed", "reopened"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(request.param)
    yield place
    place.store.close()


def test_what_was_put_is_read_verbatim(place: Place) -> None:
    """P3.1: entries are stored and served verbatim; P5.2c: a verdict per id."""
    frame = make_frame(7, range(10))
    place.store.put(frame)
    found = place.settle().read(7, 0, 9, 1 << 20)
    assert found.frame is not None
    assert bytes(found.frame.body) == bytes(frame.body)
    assert (found.frame.first_entry, found.frame.last_entry, found.frame.entry_count) == (0, 9, 10)
    assert found.frame.length == frame.length
    assert found.absent == []


def test_an_unknown_ledger_is_absent_whole(place: Place) -> None:
    place.store.put(make_frame(7, range(3)))
    assert place.settle().read(8, 0, 50, 1 << 20).absent == [(0, 50)]


def test_ranges_around_and_between_are_absent(place: Place) -> None:
    """P7.1: absent only where the index proves it."""
    place.store.put(make_frame(7, range(5, 8)))
    place.store.put(make_frame(7, range(20, 22)))
    store = place.settle()
    found = store.read(7, 0, 30, 1 << 20)
    assert ids_in(found.frame) == [5, 6, 7, 20, 21]
    assert found.absent == [(0, 4), (8, 19), (22, 30)]
    assert store.read(7, 6, 6, 1 << 20).absent == []
    assert store.read(7, 8, 19, 1 << 20).absent == [(8, 19)]


def test_a_read_fills_its_bytes_and_the_first_entry_always_fits(place: Place) -> None:
    for first in range(0, 30, 3):
        place.store.put(make_frame(7, range(first, first + 3), size=100))
    store = place.settle()
    found = store.read(7, 0, 29, 5 * 152)
    assert ids_in(found.frame) == [0, 1, 2, 3, 4]
    assert found.absent == []
    assert ids_in(store.read(7, 4, 29, 10).frame) == [4]


def test_nothing_is_said_beyond_what_fitted(place: Place) -> None:
    place.store.put(make_frame(7, [0, 1, 5, 9], size=100))
    found = place.settle().read(7, 0, 20, 3 * 152)
    assert ids_in(found.frame) == [0, 1, 5]
    assert found.absent == [(2, 4), (6, 8)]


def test_striped_entries_keep_their_gaps_exactly(place: Place) -> None:
    """P1: entry e is on positions (e + i) mod E; E=5, Qw=3: a member holds three of five."""
    held = [entry_id for entry_id in range(4000) if (2 - entry_id) % 5 < 3]
    for begin in range(0, len(held), 300):
        place.store.put(make_frame(7, held[begin : begin + 300], size=20))
    store = place.settle()
    found = store.read(7, 0, 600, 1 << 20)
    assert ids_in(found.frame) == [entry_id for entry_id in held if entry_id <= 600]
    assert [gap for first, last in found.absent for gap in range(first, last + 1)] == [
        entry_id for entry_id in range(601) if entry_id not in set(held)
    ]
    assert ids_in(store.read(7, 3996, 4100, 1 << 20).frame) == held[-2:]


def test_a_read_of_residues_gives_those_alone(place: Place) -> None:
    place.store.put(make_frame(7, range(30)))
    place.store.put(make_frame(7, [32, 33]))
    found = place.settle().read(7, 0, 40, 1 << 20, 3, 0b101)
    assert ids_in(found.frame) == [entry_id for entry_id in [*range(30), 32, 33] if entry_id % 3 != 1]
    assert found.absent == [(30, 31), (34, 40)], "held ids that were not asked for are not absent"


def test_a_later_put_of_an_id_replaces_it(place: Place) -> None:
    """P3.4c: a valid copy replaces one that fails its digest; the newest is served."""
    place.store.put(make_frame(7, range(10), size=50))
    place.settle()
    newer = b"".join(encode_entry(7, entry_id, 50 * entry_id + 50, bytes(50)) for entry_id in (3, 4, 12))
    if place.kind == "frozen":
        place.store.put(frame_of(memoryview(newer)))
    else:
        place.store.put(frame_of(memoryview(newer)))
        place.settle()
    found = payloads_in(place.store.read(7, 0, 20, 1 << 20).frame)
    assert found == {**{i: payload(7, i, 50) for i in range(10)}, 3: bytes(50), 4: bytes(50), 12: bytes(50)}


def test_interleaved_frames_are_one_ascending_run(place: Place) -> None:
    for ids in ([10, 14, 18], [11, 12, 13, 15], [16, 17, 19, 25], [0, 1, 2], [5, 30], [10, 11], [19]):
        place.store.put(make_frame(7, ids, size=40))
    found = place.settle().read(7, 0, 30, 1 << 20)
    assert ids_in(found.frame) == [0, 1, 2, 5, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 25, 30]
    assert found.absent == [(3, 4), (6, 9), (20, 24), (26, 29)]


def test_entries_that_do_not_go_on_from_each_other_come_in_two_reads(place: Place) -> None:
    """WIRE.md 2: the lengths in a frame grow by the payload; the reader asks on from where the frame ended."""
    place.store.put(make_frame(7, range(3), size=100))
    stranger = encode_entry(7, 3, 1234, bytes(10))
    place.store.put(frame_of(memoryview(stranger)))
    place.store.put(frame_of(memoryview(encode_entry(7, 6, 5000, bytes(10)))))
    store = place.settle()
    found = store.read(7, 0, 9, 1 << 20)
    assert ids_in(found.frame) == [0, 1, 2]
    assert found.absent == []
    found = store.read(7, 3, 9, 1 << 20)
    assert ids_in(found.frame) == [3, 6]
    assert found.absent == [(4, 5), (7, 9)]


def test_random_puts_read_as_a_dict_would(place: Place) -> None:
    """The twin of all twins: a dict. Frames with and without gaps, doubled and interleaved, over several flushes."""
    chance = random.Random(5)
    held: dict[int, set[int]] = {ledger_id: set() for ledger_id in (1, 2, 2**62)}
    for step in range(120):
        ledger_id = chance.choice(list(held))
        first = chance.randrange(300)
        ids = sorted(chance.sample(range(first, first + 60), chance.randrange(1, 40)))
        if chance.random() < 0.5:
            ids = list(range(first, first + chance.randrange(1, 30)))
        place.store.put(make_frame(ledger_id, ids, size=chance.choice([30, 30, 30])))
        held[ledger_id].update(ids)
        if place.kind in ("flushed", "reopened") and step % 17 == 0:
            place.settle()
    store = place.settle()
    for _ in range(200):
        ledger_id = chance.choice(list(held))
        first = chance.randrange(400)
        last = first + chance.randrange(200)
        found = store.read(ledger_id, first, last, 1 << 20)
        expected = {i for i in held[ledger_id] if first <= i <= last}
        assert payloads_in(found.frame) == {i: payload(ledger_id, i, 30) for i in sorted(expected)}
        absent = {i for begin, end in found.absent for i in range(begin, end + 1)}
        assert absent == set(range(first, last + 1)) - expected


def test_highest_ids_are_no_border(place: Place) -> None:
    top = 2**63 - 1
    frame = frame_of(memoryview(encode_entry(2**63 - 1, top, 5, b"12345")))
    place.store.put(frame)
    found = place.settle().read(2**63 - 1, 0, top, 1000)
    assert ids_in(found.frame) == [top]
    assert found.absent == [(0, top - 1)]


# --- Of the C store alone ------------------------------------------------------------------------------------


def test_a_full_write_cache_refuses_and_goes_on_after_a_flush() -> None:
    """The bound `half_bytes_max`; what was refused was not taken."""
    store = open_store(make_disk(), half_bytes_max=1 << 16)
    frame = make_frame(1, range(10), size=3000)
    store.put(frame)
    store.put(make_frame(1, range(10, 20), size=3000))
    with pytest.raises(StorageError, match="write cache is full") as caught:
        store.put(make_frame(1, range(20, 30), size=3000))
    assert caught.value.definite
    assert store.read(1, 20, 29, 1000).absent == [(20, 29)]
    flush(store)
    store.put(make_frame(1, range(20, 30), size=3000))
    assert ids_in(store.read(1, 0, 29, 1 << 20).frame) == list(range(30))
    store.close()


def test_cached_bytes_fall_when_the_entry_log_is_durable() -> None:
    store = open_store(make_disk())
    store.put(make_frame(1, range(10), size=1000))
    assert store.cached_bytes() >= 10_000
    assert store.freeze(b"", 1)
    assert not store.freeze(b"", 1), "one frozen half at a time"
    store.put(make_frame(1, range(10, 12), size=1000))
    assert store.cached_bytes() >= 12_000
    assert store.active_bytes() < 3000
    store.flush(threaded=False)
    assert store.finish_flush()
    assert not store.finish_flush()
    assert store.cached_bytes() < 3000
    assert ids_in(store.read(1, 0, 20, 1 << 20).frame) == list(range(12))
    store.release()
    assert ids_in(store.read(1, 0, 20, 1 << 20).frame) == list(range(12))
    store.close()


def test_the_view_of_a_put_stays_while_more_is_put() -> None:
    """I52: the journal borrows it; nothing moves it before its half is released."""
    store = open_store(make_disk())
    frames = [make_frame(1, range(i * 4, i * 4 + 4), size=500) for i in range(100)]
    views = [store.put(frame) for frame in frames]
    store.freeze(b"", 1)
    store.put(make_frame(1, range(400, 500), size=500))
    store.flush(threaded=False)
    store.finish_flush()
    assert [bytes(view) for view in views] == [bytes(frame.body) for frame in frames]
    store.close()


def test_a_read_block_outlives_the_store() -> None:
    store = open_store(make_disk())
    store.put(make_frame(1, range(3)))
    frame = store.read(1, 0, 2, 1000).frame
    store.close()
    store.close()
    assert ids_in(frame) == [0, 1, 2]


@pytest.mark.parametrize("call", [{"first": -1}, {"modulus": 0}, {"modulus": 65}])
def test_reads_that_make_no_sense_are_refused(call: dict[str, int]) -> None:
    store = open_store(make_disk())
    with pytest.raises(UsageError):
        store.read(**{"ledger_id": 1, "first": 0, "last": 1, "bytes_max": 100, **call})
    store.close()


def test_many_gaps_end_a_read_early() -> None:
    """The bound of absent ranges: what lies beyond is neither held nor absent, and is asked for again."""
    store = open_store(make_disk())
    held = list(range(0, 3000, 2))
    store.put(make_frame(1, held, size=10))
    seen: list[int] = []
    absent: list[int] = []
    first = 0
    while first <= 2999:
        found = store.read(1, first, 2999, 1 << 20)
        seen += ids_in(found.frame)
        absent += [i for begin, end in found.absent for i in range(begin, end + 1)]
        first = max([*seen, *absent]) + 1
    assert seen == held
    assert absent == list(range(1, 3000, 2))
    store.close()


def test_more_entry_logs_than_open_files_are_read() -> None:
    """The bound of open entry logs (64): the one used longest ago is closed, and opened again when it is wanted."""
    disk = make_disk()
    store = open_store(disk)
    for number in range(70):
        store.put(make_frame(1, [number], size=20))
        flush(store, mark=number + 1)
    store.close()
    store = open_store(disk)
    opened = disk.calls("open")
    for _ in range(2):
        assert ids_in(store.read(1, 0, 99, 1 << 20).frame) == list(range(70))
    assert disk.calls("open") == opened + 140, "in this order each is closed before it is wanted again"
    assert ids_in(store.read(1, 69, 99, 1 << 20).frame) == [69]
    assert disk.calls("open") == opened + 140
    store.close()


def test_what_stands_near_is_fetched_by_one_read() -> None:
    """A catch-up read becomes one read per run, also of some residues only."""
    disk = make_disk()
    store = open_store(disk)
    store.put(make_frame(1, range(300), size=100))
    flush(store)
    reads = disk.calls("read")
    assert len(ids_in(store.read(1, 0, 299, 1 << 20).frame)) == 300
    assert disk.calls("read") == reads + 1
    assert len(ids_in(store.read(1, 0, 299, 1 << 20, 5, 0b00101).frame)) == 120
    assert disk.calls("read") == reads + 2
    disk.fail("read", nth=1)
    assert len(ids_in(store.read(1, 0, 299, 1 << 20, 5, 0b00001).frame)) == 60, (
        "one by one after a failed read"
    )
    store.close()


def test_a_flush_runs_in_its_own_thread(tmp_path: Any) -> None:
    """The descriptor becomes readable when a flush has ended; reads and puts go on meanwhile. On the real disk."""
    import select

    store = NativeEntryStore([tmp_path], TOKEN, INCARNATION, half_bytes_max=64 << 20)
    for number in range(50):
        store.put(make_frame(number % 5, range(number // 5 * 64, number // 5 * 64 + 64), size=1000))
    assert store.freeze(b"", 9)
    store.flush()
    store.put(make_frame(77, range(3)))
    assert ids_in(store.read(3, 0, 99, 1 << 20).frame) == list(range(100))
    assert select.select([store.fileno()], [], [], 60)[0]
    assert store.finish_flush()
    assert not select.select([store.fileno()], [], [], 0)[0]
    store.release()
    store.close()
    again = NativeEntryStore([tmp_path], TOKEN, INCARNATION, half_bytes_max=64 << 20)
    assert again.log_mark() == 9
    for ledger_id in range(5):
        found = again.read(ledger_id, 0, 700, 1 << 20)
        assert ids_in(found.frame) == list(range(640))
        assert found.absent == [(640, 700)]
    assert again.read(77, 0, 5, 1000).absent == [(0, 5)], (
        "that one was only in the write cache, and in the journal"
    )
    again.close()


def test_an_idle_ledger_takes_little_memory(tmp_path: Any) -> None:
    """Costs grow with work, not with history: of a ledger with one entry, the write cache keeps a row of 56 bytes and
    its number, the index behind a flush a row, one run and its head. Counted by allocated blocks."""
    ledgers = 12_000
    store = NativeEntryStore([tmp_path], TOKEN, INCARNATION, half_bytes_max=8 << 20)
    before = allocated_bytes()
    for ledger_id in range(ledgers):
        store.put(make_frame(ledger_id, [0]))
    cached = allocated_bytes() - before
    flush(store)
    indexed = allocated_bytes() - before
    store.close()
    assert cached / ledgers < 32, "beside the row, which is no allocated block"
    assert indexed / ledgers < 240


def allocated_bytes() -> int:
    """By malloc, in this process: in its heap and in mappings of their own."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("this C library does not tell what is allocated")
    libc.mallinfo2.restype = MallocInfo
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


class MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    )


# --- Behind a flush (ST45) -------------------------------------------------------------------------------------


def spoil(disk: MemoryDisk) -> None:
    """Make every byte of every entry log zero, under a store that has read their indexes."""
    for path, content in disk.files(stable=False).items():
        if path.endswith(".elog"):
            disk.put(path, bytes(len(content)))


def test_the_newest_entries_are_read_from_memory_behind_a_flush_too() -> None:
    """ST45: "answered from memory behind a flush too, without a look-up"; until the next freeze takes their room."""
    disk = make_disk()
    store = open_store(disk)
    frame = make_frame(7, range(10))
    store.put(frame)
    flush(store)
    reads = disk.calls("read")
    for first, last in ((0, 9), (3, 5), (9, 9)):
        found = store.read(7, first, last, 1 << 20, from_memory=True)
        assert ids_in(found.frame) == list(range(first, last + 1))
    assert disk.calls("read") == reads
    spoil(disk)
    found = store.read(7, 0, 12, 1 << 20, from_memory=True)
    assert found.frame is not None
    assert bytes(found.frame.body) == bytes(frame.body)
    assert found.absent == [(10, 12)]
    assert store.freeze(b"", 2)
    found = store.read(7, 0, 12, 1 << 20, from_memory=True)
    assert (found.frame, found.absent) == (None, [(10, 12)])
    store.close()


def test_what_was_flushed_counts_by_its_entry_log_alone() -> None:
    """P7.1, P11.4: what stands in memory beside its entry log is gone with the process, so no verdict, count or sum is
    made of it; from the moment in which the log counts, also while the journals still borrow the half."""
    disk = make_disk()
    store = open_store(disk)
    store.put(make_frame(7, range(10)))
    assert store.freeze(b"", 1)
    store.flush(threaded=False)
    assert store.finish_flush()
    spoil(disk)
    for is_released in (False, True):
        if is_released:
            store.release()
        found = store.read(7, 0, 9, 1 << 20)
        assert (found.frame, found.absent) == (None, []), "unreadable, never absent"
        assert store.sums(7, 0, 9, 1, 1, 1 << 20, by_bytes=True).bad == list(range(10))
        assert store.sums(7, 0, 9, 1, 1, 1 << 20).digests is not None, "by the index"
        assert len(ids_in(store.read(7, 0, 9, 1 << 20, from_memory=True).frame)) == 10
    assert store.cached_bytes() == 0
    store.close()


def test_a_newer_copy_and_a_drop_go_before_what_was_flushed() -> None:
    store = open_store(make_disk())
    store.put(make_frame(7, range(10)))
    flush(store)
    newer = make_frame(7, [4], size=77)
    store.put(newer)
    found = store.read(7, 4, 4, 1 << 20, from_memory=True).frame
    assert found is not None
    assert bytes(found.body) == bytes(newer.body)
    store.drop(7)
    assert store.read(7, 0, 9, 1 << 20, from_memory=True).absent == [(0, 9)]
    store.put(make_frame(7, [5]))
    found = store.read(7, 0, 9, 1 << 20, from_memory=True).frame
    assert ids_in(found) == [5], "it came back, and nothing else of it"
    store.close()


def test_the_index_is_asked_for_whatever_no_span_in_memory_has() -> None:
    """Newest place first, and older ones for what is left: in a range that goes on in front of a span or behind it,
    and between the ids of one that has gaps."""
    store = open_store(make_disk())
    older = {**dict.fromkeys(range(20), 30), 21: 30, 23: 30}
    for entry_id, size in older.items():
        store.put(make_frame(7, [entry_id], size=size))
    flush(store)
    flush(store, 2)
    store.put(make_frame(7, range(5, 9), size=40))
    store.put(make_frame(7, [20, 22, 24], size=40))
    for from_memory in (False, True):
        for first, last in ((0, 24), (5, 8), (5, 9), (4, 8), (6, 7), (20, 24), (20, 21), (22, 23)):
            asked, found = first, []
            while asked <= last:  # Frames end where lengths do not go on.
                frame = store.read(7, asked, last, 1 << 20, from_memory=from_memory).frame
                assert frame is not None
                found += ids_in(frame)
                asked = found[-1] + 1
            assert found == list(range(first, last + 1))
    store.close()


def test_a_half_that_grew_far_beyond_what_is_kept_is_given_back_at_once() -> None:
    """Memory is bounded: `half_bytes_kept`, and an eighth more while it can be read."""
    disk = make_disk()
    store = open_store(disk, half_bytes_kept=64 << 10)
    frames = [make_frame(7, range(first, first + 10), size=1000) for first in (0, 10, 20, 30, 40, 50)]
    for frame in frames:
        store.put(frame)
    flush(store)
    assert ids_in(store.read(7, 50, 59, 1 << 20, from_memory=True).frame) == list(range(50, 60))
    for frame in (*frames, make_frame(7, range(60, 80), size=1000)):
        store.put(frame)
    flush(store, 2)
    spoil(disk)
    assert store.read(7, 50, 79, 1 << 20, from_memory=True).frame is None
    store.close()
