"""The packer in C and its plain twin: one set of tests for both, then both against each other; then what only C has."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import warnings
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedbk._native import ffi, lib
from embedbk.codec.attributes import (
    Producer,
    encode_attributes,
    encode_time,
    last_time_in,
    producers_in,
    time_of,
)
from embedbk.codec.digest import DigestType, check_tags
from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES
from embedbk.codec.entry_records import EntryRecord, encode_records
from embedbk.codec.frame import Frame, frame_of, iter_entries, split
from embedbk.codec.kernels import crc32c
from embedbk.codec.packer import (
    PACKER_CONFLICT,
    PACKER_FULL,
    PACKER_STOPPED,
    Packer,
    Packing,
    ToldPacker,
    pool_bytes_used,
)
from embedbk.codec.packer_twin import _NOTE_ALIGN, TwinPacker
from embedbk.codec.packing import NOTE_BYTES
from embedbk.config import ENTRY_BYTES_MAX, FRAME_BLOCK_BYTES, FRAME_BYTES_MAX, PACKER_POOL_BYTES_MAX
from embedbk.errors import PeerError, UsageError

LEDGER = 7
OVERHEAD = 52

Make = Callable[..., Packing]


def make_twin(ledger_id: int, **settings: Any) -> Packing:
    return TwinPacker(ledger_id, lock=threading.RLock(), **settings)


@pytest.fixture(params=[Packer, make_twin], ids=["c", "python"])
def make(request: pytest.FixtureRequest) -> Make:
    kind: Make = request.param
    return kind


def drain(packer: Packing) -> Iterator[Frame]:
    """Every frame that waits, each scanned: what C says of it is what is in it."""
    while (frame := packer.seal()) is not None:
        assert frame == frame_of(frame.body, packer.ledger_id)
        assert not frame.has_gaps
        yield frame


def payloads_of(frame: Frame) -> list[bytes]:
    return [bytes(entry.data) for entry in iter_entries(frame)]


class TestPacker:
    def test_entries_get_dense_ids_and_become_one_frame(self, make: Make) -> None:
        """P3.1: ids are given densely, from 0; the entry carries its length and the LAC known at that moment."""
        packer = make(LEDGER)
        assert packer.last_entry == -1
        assert [packer.append(data)[0] for data in (b"zero", bytearray(b""), memoryview(b"two"))] == [0, 1, 2]
        packer.set_lac(1, 4)
        assert packer.append(b"three")[0] == 3
        assert (packer.next_entry, packer.last_entry, packer.length) == (4, 3, 12)
        (frame,) = drain(packer)
        assert (frame.first_entry, frame.last_entry, frame.entry_count, frame.length) == (0, 3, 4, 12)
        assert payloads_of(frame) == [b"zero", b"", b"two", b"three"]
        assert [(entry.lac, entry.lac_length) for entry in iter_entries(frame)] == [(-1, 0)] * 3 + [(1, 4)]

    def test_a_packer_goes_on_from_where_the_ledger_ends(self, make: Make) -> None:
        packer = make(LEDGER, next_entry=40, length=1000)
        assert packer.append(b"x") == (40, True)
        (frame,) = drain(packer)
        assert (frame.first_entry, frame.length) == (40, 1001)

    def test_the_host_is_woken_only_when_there_is_something_new(self, make: Make) -> None:
        """A first entry, and a first full frame; between them appends are silent."""
        packer = make(LEDGER, block_bytes=NOTE_BYTES + 3 * (OVERHEAD + 10))
        wakes = [packer.append(bytes(10))[1] for _ in range(10)]
        assert wakes == [True, False, False, True, False, False, False, False, False, False]
        assert packer.has_full()
        assert packer.seal() is not None
        assert packer.append(bytes(10))[1] is False  # Others still wait.
        list(drain(packer))
        assert (packer.open_count(), packer.has_full()) == (0, False)
        assert packer.append_many([b"x", b"y"]) == (11, 2, True)
        assert packer.append_many([b"z"]) == (13, 1, False)

    def test_full_frames_come_first_and_in_order(self, make: Make) -> None:
        packer = make(LEDGER, block_bytes=NOTE_BYTES + 2 * (OVERHEAD + 1))
        first, taken, _ = packer.append_many([b"%d" % i for i in range(7)])
        assert (first, taken) == (0, 7)
        assert (packer.has_full(), packer.open_count()) == (True, 1)
        frames = list(drain(packer))
        assert [(frame.first_entry, frame.last_entry) for frame in frames] == [(0, 1), (2, 3), (4, 5), (6, 6)]
        assert packer.seal() is None

    def test_a_large_entry_gets_a_block_of_its_own(self, make: Make) -> None:
        packer = make(LEDGER)
        sizes = [10, FRAME_BLOCK_BYTES, 10, ENTRY_BYTES_MAX, 10]
        assert packer.append_many([bytes(size) for size in sizes])[1] == 5
        frames = list(drain(packer))
        assert [frame.entry_count for frame in frames] == [1, 1, 1, 1, 1]
        assert max(len(frame.body) for frame in frames) == ENTRY_BYTES_MAX + OVERHEAD <= FRAME_BYTES_MAX

    def test_frames_are_as_large_as_a_block_when_appends_are_faster(self, make: Make) -> None:
        packer = make(LEDGER)
        packer.append_many([bytes(100)] * 10_000)
        sizes = [len(frame.body) for frame in drain(packer)]
        assert len(sizes) == 10_000 * (100 + ENTRY_OVERHEAD_BYTES) // FRAME_BLOCK_BYTES + 1
        assert all(FRAME_BLOCK_BYTES - 300 < size <= FRAME_BLOCK_BYTES for size in sizes[:-1])

    def test_what_no_entry_can_hold_is_refused_and_nothing_is_appended(self, make: Make) -> None:
        packer = make(LEDGER)
        too_large = bytes(ENTRY_BYTES_MAX + 1)
        with pytest.raises(UsageError, match="1048577 bytes: at most 1048576"):
            packer.append(too_large)
        with pytest.raises(UsageError, match="at most 1048576"):
            packer.append_many([b"good", bytearray(too_large)])
        with pytest.raises(UsageError, match="not str"):
            packer.append("text")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="not int"):
            packer.append_many([b"good", 5])  # type: ignore[list-item]
        with pytest.raises(UsageError, match="contiguous"):
            packer.append(memoryview(b"abcd")[::2])
        assert (packer.next_entry, packer.open_count()) == (0, 0)
        assert packer.append(b"good") == (0, True)

    def test_an_entry_with_attributes_stands_among_the_others(self, make: Make) -> None:
        """P3.1: its attributes are in it, and in no length."""
        packer = make(LEDGER)
        attributes = encode_attributes([1, 3], Producer(7, 1))
        assert packer.append(b"zero") == (0, True)
        assert packer.append_with(memoryview(b"one"), attributes, -1) == (1, False)
        assert packer.append_with(b"", b"", -1) == (2, False)
        assert packer.append(b"three") == (3, False)
        assert packer.length == 12
        (frame,) = drain(packer)
        assert payloads_of(frame) == [b"zero", b"one", b"", b"three"]
        assert [bytes(entry.attributes) for entry in iter_entries(frame)] == [b"", attributes, b"", b""]

    def test_an_append_under_a_condition_is_done_under_that_id_or_not_at_all(self, make: Make) -> None:
        packer = make(LEDGER)
        assert packer.append_with(b"x", b"", 1) == (PACKER_CONFLICT, False)
        assert packer.append_with(b"x", b"", 0) == (0, True)
        assert packer.append_with(b"x", b"", 0) == (PACKER_CONFLICT, False)
        assert packer.next_entry == 1
        packer.stop()
        assert packer.append_with(b"x", b"", 9) == (PACKER_STOPPED, False)

    def test_the_time_stands_between_the_attributes_in_the_order_of_kinds(self, make: Make) -> None:
        """WIRE.md 1: kinds ascend, whoever put them in; so a reader of each kind finds it (P8.11)."""
        packer = make(LEDGER) if make is make_twin else ToldPacker(LEDGER)
        packer.begin_times(0, lambda: 7)
        records = encode_records([EntryRecord(b"", b"key")])
        attributes = encode_attributes([2], Producer(7, 1), records)
        assert packer.append_with(b"ab", attributes, -1)[0] == 0
        assert packer.append_with(b"ab", encode_attributes(records=records), -1)[0] == 1
        (frame,) = drain(packer)
        first, second = (bytes(entry.attributes) for entry in iter_entries(frame))
        assert (
            first == encode_attributes([2], Producer(7, 1)) + encode_time(7) + attributes[-len(records) - 4 :]
        )
        assert second == encode_attributes(records=records), "its time is that of the entry before it"
        again = make(LEDGER + 1) if make is make_twin else ToldPacker(LEDGER + 1)
        again.begin_times(9, lambda: 9)
        assert again.append_again(frame, 0, 2) == 2
        (moved,) = drain(again)
        assert [bytes(entry.attributes) for entry in iter_entries(moved)] == [
            first.replace(encode_time(7), encode_time(9)),
            second,
        ]

    def test_many_entries_are_appended_each_with_its_attributes(self, make: Make) -> None:
        """P3.1: as one call appends payloads; a refused one means that none was appended."""
        packer = make(LEDGER, bytes_max=4 * (OVERHEAD + 12))
        beside = [encode_attributes(records=encode_records([EntryRecord(b"", key)])) for key in (b"", b"k")]
        assert packer.append_many([b"one", b"two"], 5, beside) == (0, 2, True)
        assert packer.append_many([b"three", b"four", b"five"], 5, [beside[1], b"", beside[0]])[1] == 2
        assert packer.append(b"x") == (PACKER_FULL, False), "the rest of that call comes first"
        (frame,) = drain(packer)
        assert [bytes(entry.attributes) for entry in iter_entries(frame)] == [*beside, beside[1], b""]
        assert payloads_of(frame) == [b"one", b"two", b"three", b"four"]
        packer.release(frame)
        assert packer.append_many([b"five"], 5, [b""])[1] == 1
        with pytest.raises(UsageError, match="and its attributes"):
            packer.append_many([b"", bytes(ENTRY_BYTES_MAX)], 5, [b"", beside[0]])
        with pytest.raises((TypeError, ValueError)):
            packer.append_many([b"", b""], 5, [b"\x00\x00"])
        assert packer.last_entry == 4

    def test_attributes_count_for_the_limit(self, make: Make) -> None:
        packer = make(LEDGER)
        attributes = encode_attributes(producer=Producer(7, 1))
        assert packer.append_with(bytes(ENTRY_BYTES_MAX - len(attributes)), attributes, -1)[0] == 0
        with pytest.raises(UsageError, match="and its attributes: at most 1048576"):
            packer.append_with(bytes(ENTRY_BYTES_MAX - len(attributes) + 1), attributes, -1)
        with pytest.raises(UsageError, match="and its attributes: at most 1048576"):
            packer.append_with(b"", bytes(1 << 16), -1)
        with pytest.raises(UsageError, match="not str"):
            packer.append_with("text", attributes, -1)  # type: ignore[arg-type]
        assert packer.next_entry == 1

    def test_an_array_of_numbers_is_appended_as_its_bytes(self, make: Make) -> None:
        packer = make(LEDGER)
        numbers = memoryview(array("I", [1, 2, 3]))
        packer.append(numbers)
        packer.append_many([numbers, numbers])
        (frame,) = drain(packer)
        assert payloads_of(frame) == [numbers.tobytes()] * 3
        assert packer.length == 36

    def test_a_buffer_with_sizes_is_appended_in_one_call(self, make: Make) -> None:
        packer = make(LEDGER)
        assert packer.append_buffer(b"zerotwo", memoryview(array("I", [4, 0, 3]))) == (0, 3, True)
        assert packer.append_buffer(b"", memoryview(array("I"))) == (3, 0, False)
        (frame,) = drain(packer)
        assert payloads_of(frame) == [b"zero", b"", b"two"]
        for data, sizes in ((b"zero", [5]), (b"zero", [3]), (b"", [2**32 - 1]), (b"x", [2**32 - 1, 2])):
            with pytest.raises(UsageError, match="sizes"):
                packer.append_buffer(data, memoryview(array("I", sizes)))
        with pytest.raises(UsageError, match="sizes"):
            packer.append_buffer(bytes(ENTRY_BYTES_MAX + 1), memoryview(array("I", [ENTRY_BYTES_MAX + 1])))
        assert packer.next_entry == 3

    def test_an_entry_of_a_log_carries_its_time_where_it_is_another(self, make: Make) -> None:
        """P8.11: a time that is not that of the entry before it stands in the entry; of others each 64th has it, and
        each of 4 KiB or more, so that whoever looks for one reads little. None is below the one before it."""
        now = [1_000]
        packer = make(LEDGER) if make is make_twin else ToldPacker(LEDGER)
        packer.append(b"without")
        packer.begin_times(500, lambda: now[0])
        assert packer.time_ms in (500, 1_000)
        for now[0] in (1_000, 1_000, 1_007, 900, 1_007):
            packer.append(b"x")
        now[0] = 2**40
        packer.append_many([b"x"] * 60)
        packer.append_with(b"y", encode_attributes([1], Producer(1, 2)), -1)
        packer.append(bytes(4096))
        packer.append_buffer(b"z", memoryview(array("I", [1])))
        assert packer.time_ms == 2**40
        frames = list(drain(packer))
        told = {
            entry_id: told_ms
            for frame in frames
            for entry_id, (_, entry) in enumerate(split(frame))
            if (told_ms := time_of(entry[48 : 48 + int.from_bytes(entry[2:4], "little")])) is not None
        }
        assert told == {1: 1_000, 3: 1_007, 6: 2**40, 64: 2**40, 67: 2**40}
        assert [last_time_in(frame) for frame in frames] == [2**40]
        (frame,) = frames
        assert [bytes(entry.data) for entry in iter_entries(frame)][66:] == [b"y", bytes(4096), b"z"]
        assert dict(producers_in(frame)) == {66: Producer(1, 2)}
        assert packer.unreleased_bytes == len(frame.body)

    def test_no_time_is_below_the_floor_that_was_given(self, make: Make) -> None:
        """P8.11: a writer whose clock is behind goes on with the time of what stands before it."""
        packer = make(LEDGER) if make is make_twin else ToldPacker(LEDGER)
        packer.begin_times(5_000, lambda: 3)
        packer.append(b"x")
        packer.append_many([b"y"])
        (frame,) = drain(packer)
        assert last_time_in(frame) == 5_000
        assert len(frame.body) == 2 * (OVERHEAD + 1) + 12

    def test_the_largest_entry_has_room_for_its_time(self, make: Make) -> None:
        """P8.11: what was allowed without a time is allowed with one."""
        packer = make(LEDGER) if make is make_twin else ToldPacker(LEDGER)
        packer.begin_times(1, lambda: 1)
        producer = encode_attributes((), Producer(1, 2))
        assert packer.append(bytes(ENTRY_BYTES_MAX))[0] == 0
        assert packer.append_with(bytes(ENTRY_BYTES_MAX - len(producer)), producer, -1)[0] == 1
        with pytest.raises(UsageError, match="at most"):
            packer.append(bytes(ENTRY_BYTES_MAX + 1))
        assert [last_time_in(frame) for frame in drain(packer)] == [1, 1]

    def test_what_is_appended_again_has_a_time_of_its_new_place(self, make: Make) -> None:
        """P8.2, P8.11: the time that an entry took from the one before stands in another ledger; here it is made anew,
        once, and never below what stands before it here."""
        before, packer = ((ToldPacker if make is Packer else make)(ledger) for ledger in (LEDGER, LEDGER + 1))
        before.begin_times(0, lambda: 1_000)
        before.append_many([b"%d" % number for number in range(6)])
        before.append_with(b"six", encode_attributes((), Producer(3, 4)), -1)
        frame = before.seal()
        assert frame is not None
        packer.begin_times(before.time_ms, lambda: 900)
        assert packer.append_again(frame, 2, 5) == 5
        (again,) = drain(packer)
        assert [bytes(entry.data) for entry in iter_entries(again)] == [b"2", b"3", b"4", b"5", b"six"]
        assert last_time_in(again) == 1_000
        assert len(again.body) == 5 * OVERHEAD + 4 + 3 + 12 + 20  # One time, one producer.
        assert dict(producers_in(again)) == {4: Producer(3, 4)}
        untimed = make(LEDGER + 2)
        assert untimed.append_again(frame, 0, 7) == 7
        (plain,) = drain(untimed)
        assert last_time_in(plain) is None

    def test_nobody_appends_between_the_entries_of_one_call_that_found_no_room_for_all(
        self, make: Make
    ) -> None:
        """P3.1, P3.3: `append_many` tells a range by its first id and its count, and waits for the last of it: with
        another's entry in between it would name entries of others, and be told before its own last one is durable."""
        whole = OVERHEAD + 100
        packer = make(LEDGER, bytes_max=3 * whole)
        one, two, nobody = 1, 2, 3
        assert packer.append_many([bytes(100)] * 5, one) == (0, 3, True)
        frame = packer.seal()
        assert frame is not None
        packer.release(frame)
        assert packer.append(bytes(100)) == (PACKER_FULL, False)
        assert packer.append_with(bytes(100), b"", -1) == (PACKER_FULL, False)
        assert packer.append_buffer(bytes(100), memoryview(array("I", [100])))[1] == 0
        assert packer.append_many([bytes(100)], two) == (3, 0, False)
        packer.give_up_rest(nobody)
        assert packer.append_many([bytes(100)]) == (3, 0, False)
        assert packer.append_many([bytes(100)] * 2, one) == (3, 2, True)
        assert packer.append(bytes(100)) == (5, False)  # All of the first caller's are there.
        assert packer.append_many([bytes(100)], two) == (6, 0, False)  # No room, and nothing begun.
        list(drain(packer))
        assert packer.append_many([bytes(100)] * 4, two) == (6, 3, True)
        packer.give_up_rest(two)
        list(drain(packer))
        assert packer.append(bytes(100)) == (9, True)
        list(drain(packer))
        assert packer.append_many([bytes(100)] * 4, two) == (10, 3, True)
        packer.stop()
        assert packer.append(bytes(100)) == (PACKER_STOPPED, False)

    def test_appends_are_refused_over_the_bound_until_frames_are_released(self, make: Make) -> None:
        """Back-pressure: bytes_max counts what was appended until the frame with it is released."""
        whole = OVERHEAD + 100
        packer = make(LEDGER, bytes_max=3 * whole)
        assert packer.append_many([bytes(100)] * 5) == (0, 3, True)
        assert packer.append(bytes(100)) == (PACKER_FULL, False)
        assert packer.append_many([bytes(100)]) == (3, 0, False)
        assert packer.append_buffer(bytes(100), memoryview(array("I", [100])))[1] == 0
        frame = packer.seal()
        assert frame is not None
        assert packer.append(bytes(100))[0] == PACKER_FULL  # Sealed is not released.
        assert packer.unreleased_bytes == 3 * whole
        packer.release(frame)
        assert packer.unreleased_bytes == 0
        assert packer.append(bytes(100)) == (3, True)

    def test_an_entry_always_fits_an_empty_packer(self, make: Make) -> None:
        packer = make(LEDGER, bytes_max=10)
        assert packer.append(bytes(1000)) == (0, True)
        assert packer.append(b"") == (PACKER_FULL, False)

    def test_a_frame_is_released_with_the_last_reference_to_its_bytes(self, make: Make) -> None:
        packer = make(LEDGER)
        packer.append(b"zero")
        frame = packer.seal()
        assert frame is not None
        part = frame.body[48:52]
        del frame
        gc.collect()
        assert packer.unreleased_bytes == OVERHEAD + 4
        packer.append_many([b"later" * 1000] * 100)
        assert bytes(part) == b"zero"
        list(drain(packer))
        del part
        gc.collect()
        assert packer.unreleased_bytes == 0

    def test_a_release_leaves_the_bytes_to_whoever_still_has_them(self, make: Make) -> None:
        packer = make(LEDGER)
        packer.append(b"zero")
        frame = packer.seal()
        assert frame is not None
        sent = bytearray().join([frame.body])
        part = frame.body[48:52]
        packer.release(frame)
        with pytest.raises(ValueError, match="released"):
            bytes(frame.body)
        assert bytes(part) == sent[48:52] == b"zero"
        assert packer.unreleased_bytes == len(sent)

    def test_a_frame_that_is_exported_is_released_by_the_export(self, make: Make) -> None:
        packer = make(LEDGER)
        packer.append(b"zero")
        frame = packer.seal()
        assert frame is not None
        export = memoryview(frame.body)
        held = _Export(frame.body)
        packer.release(frame)
        assert bytes(held.view[48:52]) == b"zero"
        assert packer.unreleased_bytes == OVERHEAD + 4
        held.view.release()
        export.release()
        packer.release(frame)
        assert packer.unreleased_bytes == 0

    def test_frames_outlive_their_packer(self, make: Make) -> None:
        packer = make(LEDGER)
        packer.append(b"zero")
        frame = packer.seal()
        packer.append(b"never taken")
        del packer
        gc.collect()
        assert frame is not None
        assert payloads_of(frame) == [b"zero"]

    def test_a_body_cannot_be_written(self, make: Make) -> None:
        packer = make(LEDGER)
        packer.append(b"zero")
        frame = packer.seal()
        assert frame is not None
        assert frame.body.readonly

    def test_after_a_stop_nothing_is_appended_and_the_rest_can_be_taken(self, make: Make) -> None:
        packer = make(LEDGER)
        packer.append(b"zero")
        packer.stop()
        assert packer.is_stopped
        assert packer.append(b"one") == (PACKER_STOPPED, False)
        assert packer.append_many([b"one"]) == (1, 0, False)
        assert packer.append_buffer(b"one", memoryview(array("I", [3]))) == (1, 0, False)
        (frame,) = drain(packer)
        assert payloads_of(frame) == [b"zero"]

    def test_what_another_packer_made_is_appended_again_with_numbers_of_its_own(self, make: Make) -> None:
        """P8.2: entries carry ledger, id, length, LAC and digest, so they are packed anew."""
        before, packer = make(LEDGER, block_bytes=400), make(LEDGER + 1, bytes_max=1)
        produced = encode_attributes([2, 3], Producer(5, 6))
        payloads = [b"", b"two", b"y" * 300, b"z" * 700]
        before.append(payloads[0])
        before.append_with(payloads[1], produced, -1)
        before.append(payloads[2])
        before.append(payloads[3])
        frames = list(drain(before))
        packer.append(b"first")
        packer.set_lac(0, 5)
        taken = [packer.append_again(frame, 0, frame.entry_count) for frame in frames]
        assert sum(taken) == 4
        assert packer.append(b"x") == (PACKER_FULL, False), "its bound refuses others only"
        entries = [entry for frame in drain(packer) for entry in iter_entries(frame)]
        assert [bytes(entry.data) for entry in entries] == [b"first", *payloads]
        assert [entry.entry_id for entry in entries] == [0, 1, 2, 3, 4]
        assert [entry.length for entry in entries] == [5, 5, 8, 308, 1008]
        assert [(entry.lac, entry.lac_length) for entry in entries[1:]] == [(0, 5)] * 4
        assert [bytes(entry.attributes) for entry in entries] == [b"", b"", produced, b"", b""]

    @pytest.mark.parametrize("digest", [DigestType.XXH3, DigestType.HMAC])
    @pytest.mark.parametrize("is_timed", [False, True])
    def test_a_tag_does_not_come_along_into_a_ledger_without_tags(
        self, make: Make, digest: DigestType, is_timed: bool
    ) -> None:
        """P8.2, P3.1: it covers the place that the entry had. A log's ledger may fail after its digest was changed; its
        frame was then one that every bookie refuses, and with E > Qw its error ended the host (seed 35100061)."""
        before, packer = TwinPacker(LEDGER, digest=digest, mac_key=b"key"), make(LEDGER + 1)
        records = encode_records([EntryRecord(b"", b"key"), EntryRecord(b"")])
        attributes = encode_attributes([1, 4], Producer(5, 6), records)
        if is_timed:
            before.begin_times(0, lambda: 1_234)
        before.append(b"one")
        before.append_with(b"four", attributes, -1)
        (frame,) = drain(before)
        assert packer.append_again(frame, 0, 2) == 2
        (moved,) = drain(packer)
        entries = list(iter_entries(frame_of(moved.body)))
        assert [bytes(entry.attributes) for entry in entries] == [b"", attributes]

    def test_a_part_of_a_frame_is_appended_again(self, make: Make) -> None:
        before, packer = make(LEDGER), make(LEDGER + 1)
        before.append_many([b"%d" % number for number in range(6)])
        (frame,) = drain(before)
        assert packer.append_again(frame, 4, 2) == 2
        assert packer.append_again(frame, 1, 2) == 2
        assert packer.append_again(frame, 3, 0) == 0
        (again,) = drain(packer)
        assert payloads_of(again) == [b"4", b"5", b"1", b"2"]
        packer.stop()
        assert packer.append_again(frame, 0, 6) == 0

    def test_who_was_given_fewer_than_all_goes_on_in_another_packer(self, make: Make) -> None:
        """P3.1 across ledgers (P8.2): nobody's entry comes between what one call appended there and its rest here."""
        before, packer = make(LEDGER, bytes_max=100), make(LEDGER + 1)
        assert before.held_by == 0
        assert before.append_many([bytes(10)] * 3, 9)[1] == 1
        assert before.held_by == 9
        packer.hold_for(before.held_by)
        assert packer.append(b"between") == (PACKER_FULL, False)
        assert packer.append_many([b"rest"], 9) == (0, 1, True)
        assert packer.append(b"behind") == (1, False)

    def test_impossible_settings_are_refused(self, make: Make) -> None:
        for settings in (
            {"ledger_id": -1},
            {"ledger_id": 2**63},
            {"next_entry": -1},
            {"length": -1},
            {"block_bytes": 99},
            {"block_bytes": FRAME_BYTES_MAX + 49},
            {"bytes_max": 0},
        ):
            with pytest.raises(UsageError, match="no packer"):
                make(**{"ledger_id": LEDGER, **settings})

    def test_threads_append_while_the_host_seals(self, make: Make) -> None:
        """Ids are dense, every frame scans clean, frames come in order, and each thread's entries in its own order."""
        thread_count, rounds = 4, 300
        packer = make(LEDGER, block_bytes=4096, bytes_max=64 << 10)
        has_news = threading.Event()
        has_room = threading.Condition()
        given: list[dict[int, bytes]] = [{} for _ in range(thread_count)]

        def user(number: int) -> None:
            for i in range(rounds):
                many = [b"%d/%d/%d/" % (number, i, k) + bytes(37 * k) for k in range(i % 5)]
                while many:
                    if len(many) == 1:
                        entry_id, wakes = packer.append(many[0])
                        first, taken = entry_id, int(entry_id >= 0)
                    else:
                        first, taken, wakes = packer.append_many(many)
                    given[number].update(enumerate(many[:taken], first))
                    many = many[taken:]
                    if wakes:
                        has_news.set()
                    if many:
                        with has_room:
                            has_room.wait_for(lambda: packer.unreleased_bytes < 32 << 10, 10)

        users = [threading.Thread(target=user, args=(number,)) for number in range(thread_count)]
        for thread in users:
            thread.start()
        found: list[bytes] = []
        while any(thread.is_alive() for thread in users) or packer.open_count() or packer.has_full():
            has_news.wait(0.01)
            has_news.clear()
            for frame in drain(packer):
                assert frame.first_entry == len(found)
                found += payloads_of(frame)
                packer.set_lac(frame.last_entry, frame.length)
                packer.release(frame)
                with has_room:
                    has_room.notify_all()
        for thread in users:
            thread.join()
        together = {entry_id: data for one in given for entry_id, data in one.items()}
        assert [together[entry_id] for entry_id in range(len(together))] == found
        assert all(list(one) == sorted(one) for one in given)
        assert len(found) == thread_count * sum(i % 5 for i in range(rounds))
        assert packer.unreleased_bytes == 0


class _Export:
    """Somebody who asked a frame's memoryview for its buffer, as a socket does."""

    def __init__(self, body: memoryview) -> None:
        self.view = memoryview(ffi.buffer(ffi.from_buffer(body)))


# --- Both against each other --------------------------------------------------------------------------------

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 700)),
        st.tuples(st.just("append_many"), st.lists(st.integers(0, 700), max_size=6)),
        st.tuples(st.just("append_buffer"), st.lists(st.integers(0, 700), max_size=6)),
        st.tuples(
            st.just("append_all"), st.tuples(st.integers(1, 2), st.lists(st.integers(0, 700), max_size=6))
        ),
        st.tuples(st.just("give_up_rest"), st.integers(1, 2)),
        st.tuples(st.just("seal"), st.none()),
        st.tuples(st.just("release"), st.none()),
        st.tuples(st.just("set_lac"), st.none()),
        st.tuples(st.just("time"), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(_STEPS, st.sampled_from([101, 400, 1500]), st.sampled_from([1, 2000, 10**6]))
def test_both_cut_the_same_frames_and_give_the_same_answers(
    steps: list[tuple[str, Any]], block_bytes: int, bytes_max: int
) -> None:
    def run(packer: Packing) -> list[object]:
        seen: list[object] = []
        frames: list[Frame] = []
        now = [0]
        for number, (step, argument) in enumerate(steps):
            fill = bytes([number])
            if step == "append":
                seen.append(packer.append(fill * argument))
            elif step == "append_many":
                seen.append(packer.append_many([fill * size for size in argument]))
            elif step == "append_all":
                caller, many = argument
                seen.append(packer.append_many([fill * size for size in many], caller))
            elif step == "give_up_rest":
                packer.give_up_rest(argument)
            elif step == "append_buffer":
                seen.append(packer.append_buffer(fill * sum(argument), memoryview(array("I", argument))))
            elif step == "seal" and (frame := packer.seal()) is not None:
                frames.append(frame)
                seen.append((frame.first_entry, frame.last_entry, frame.length, bytes(frame.body)))
            elif step == "release" and frames:
                packer.release(frames.pop(len(frames) // 2))
            elif step == "time":
                now[0] = argument
                packer.begin_times(0, lambda: now[0])
            elif step == "set_lac" and packer.next_entry:
                packer.set_lac(packer.last_entry, packer.length)
            seen.append((packer.open_count(), packer.has_full(), packer.length, packer.unreleased_bytes))
        seen.extend((frame.first_entry, bytes(frame.body)) for frame in drain(packer))
        return seen

    settings = {"block_bytes": block_bytes, "bytes_max": bytes_max}
    assert run(ToldPacker(LEDGER, **settings)) == run(make_twin(LEDGER, **settings))


@pytest.mark.parametrize("digest", [1, 2])
def test_a_tag_covers_the_time_behind_it(digest: int) -> None:
    """P3.1, P8.11: the tag stands in front of the time, and whoever changes either is found out."""
    packer = TwinPacker(LEDGER, digest=digest, mac_key=b"key")
    packer.begin_times(0, lambda: 1_234)
    packer.append(b"one")
    packer.append_with(b"two", encode_attributes([3]), -1)
    (frame,) = drain(packer)
    check_tags(frame, digest, b"key")
    assert last_time_in(frame) == 1_234
    again = TwinPacker(LEDGER + 1, digest=digest, mac_key=b"key")
    again.begin_times(0, lambda: 2_000)
    assert again.append_again(frame, 0, 2) == 2
    (moved,) = drain(again)
    check_tags(moved, digest, b"key")
    assert last_time_in(moved) == 2_000
    changed = bytearray(frame.body)
    at = changed.index((1_234).to_bytes(8, "little"))
    changed[at] ^= 1
    whole = next(iter_entries(frame)).size
    changed[whole - 4 : whole] = crc32c(changed[: whole - 4]).to_bytes(4, "little")
    with pytest.raises(PeerError):
        check_tags(frame_of(memoryview(bytes(changed))), digest, b"key")


def test_c_reads_the_clock_on_the_wall_itself() -> None:
    """P8.11: in production nobody tells a packer what time it is."""
    packer = Packer(LEDGER)
    packer.begin_times(-1, None)
    before = time.time_ns() // 1_000_000
    packer.append(b"x")
    assert before <= packer.time_ms <= time.time_ns() // 1_000_000
    (frame,) = drain(packer)
    assert last_time_in(frame) == packer.time_ms


# --- What only C has ----------------------------------------------------------------------------------------


def test_what_is_appended_again_passes_the_bound_of_all_packers() -> None:
    """P8.2: the frame it comes from counts there, and is released next. Else: all writers of a process fail together,
    and each waits for another to give a block back."""
    before, packer = Packer(LEDGER), Packer(LEDGER + 1)
    before.append_many([bytes(1000)] * 10)
    (frame,) = drain(before)
    lib.ebk_pool_set_bytes_max(pool_bytes_used())
    try:
        assert packer.append(b"x") == (PACKER_FULL, False)
        assert packer.append_again(frame, 0, 10) == 10
        before.release(frame)
        assert packer.append(b"x") == (10, False)
    finally:
        lib.ebk_pool_set_bytes_max(PACKER_POOL_BYTES_MAX)


def test_what_is_no_frame_is_not_appended_again() -> None:
    packer, done = Packer(LEDGER), ffi.new("struct ebk_appended *")
    before = Packer(LEDGER)
    before.append(b"whole")
    (frame,) = drain(before)
    body = bytes(frame.body)
    longer = body[:4] + b"\xff" + body[5:]
    for broken in (body[:-1], longer, body[:4] + bytes([1]) + body[5:51], body[:2] + b"\x09" + body[3:]):
        answer = lib.ebk_packer_append_again(packer.handle, broken, len(broken), 0, 1, done)
        assert (answer, done.taken) == (lib.EBK_USAGE, 0)
    assert packer.next_entry == 0


def test_the_numbers_of_the_twin_are_those_of_c() -> None:
    assert (lib.EBK_FULL, lib.EBK_FAILED) == (PACKER_FULL, PACKER_STOPPED)
    assert (lib.EBK_NOTE_BYTES, lib.EBK_NOTE_ALIGN) == (NOTE_BYTES, _NOTE_ALIGN)
    assert lib.EBK_POOL_BLOCK_BYTES == FRAME_BLOCK_BYTES


def test_small_frames_share_a_block_and_blocks_are_used_again() -> None:
    """A writer that waits for every entry stays in warm memory; one that has nothing on its way holds none."""
    before = pool_bytes_used()
    packer = Packer(LEDGER)
    frames = []
    for _ in range(100):
        packer.append(bytes(100))
        frames.append(packer.seal())
    assert pool_bytes_used() - before == FRAME_BLOCK_BYTES
    frames.clear()
    assert pool_bytes_used() == before
    for _ in range(10_000):
        packer.append(bytes(100))
        assert pool_bytes_used() - before == FRAME_BLOCK_BYTES
        packer.seal()
    assert pool_bytes_used() == before
    assert lib.ebk_pool_kept_bytes() >= FRAME_BLOCK_BYTES


def test_the_pool_has_a_bound_that_all_packers_share() -> None:
    """Reaching it is back-pressure like any other, and ends when somebody else lets go."""
    packers = [Packer(LEDGER), Packer(LEDGER + 1)]
    lib.ebk_pool_set_bytes_max(pool_bytes_used() + 2 * FRAME_BLOCK_BYTES)
    try:
        first, taken, should_wake = packers[0].append_many([bytes(1000)] * 1000)
        assert (first, should_wake) == (0, True)
        assert 0 <= 2 * FRAME_BLOCK_BYTES // (1000 + ENTRY_OVERHEAD_BYTES) - taken <= 2
        assert packers[1].append(b"x")[0] == PACKER_FULL
        assert packers[1].next_entry == 0
        while packers[0].seal() is not None:
            pass
        assert packers[1].append(b"x") == (0, True)
    finally:
        lib.ebk_pool_set_bytes_max(PACKER_POOL_BYTES_MAX)


def test_a_child_process_cannot_use_the_packer_of_its_parent() -> None:
    """Not even when a thread of the parent held the mutex; the child may have packers of its own."""
    packer = Packer(LEDGER)
    packer.append(b"parent")
    frame = packer.seal()
    assert frame is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of threads, which is the point here.
        child = os.fork()
    if child == 0:
        own = Packer(LEDGER)
        outcome = (
            packer.append(b"child") == (PACKER_STOPPED, False)
            and packer.append_many([b"child"])[1] == 0
            and packer.seal() is None
            and packer.release(frame) is None
            and own.append(b"child") == (0, True)
            and own.seal() is not None
        )
        os._exit(0 if outcome else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert packer.append(b"parent") == (1, True)


def test_open_ledgers_that_are_not_written_to_hold_no_block() -> None:
    """More handles than the pool has blocks, each written to once, and there is room for the next."""
    before = pool_bytes_used()
    packers = [Packer(number) for number in range(PACKER_POOL_BYTES_MAX // FRAME_BLOCK_BYTES + 10)]
    for packer in packers:
        assert packer.append(b"entry") == (0, True)
        frame = packer.seal()
        assert frame is not None
        packer.release(frame)
    assert pool_bytes_used() == before


def test_sizes_that_another_thread_changes_reach_no_byte_beyond_the_data() -> None:
    """Either the sizes add up to the bytes, and these are what is appended, or nothing is."""
    count, size = 20_000, 10
    data, sizes = bytes(count * size), array("I", [size] * count)
    is_over = threading.Event()

    def change() -> None:
        while not is_over.is_set():
            sizes[-1] = 1 << 19
            sizes[-1] = size

    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range(200):
            packer = Packer(1)
            with contextlib.suppress(UsageError):
                packer.append_buffer(data, memoryview(sizes))
            assert packer.length in (0, len(data))
    finally:
        is_over.set()
        changer.join()
