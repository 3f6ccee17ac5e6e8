"""Digests of what is held: one contract for the C store, in whatever place entries are, and for its twin (P11.4)."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from embedbk.codec.entry import encode_entry
from embedbk.codec.entry_digest import DIGEST_MASK, entry_digest
from embedbk.codec.frame import Frame, frame_of
from embedbk.codec.holdings_messages import Digests
from embedbk.errors import UsageError
from embedbk.ports.entry_store import EntriesFound, EntrySums, MemoryRefused
from embedbk.storage.holding import MET_MAX, SUM_BYTES_MAX, HoldingCount
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.memory import MemoryEntryStore
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.older_logs import as_version
from tests.storage.stored_entries import ids_in, make_frame
from tests.storage.test_entry_store import DIRECTORY, Place, flush, make_disk, open_store
from tests.storage.test_entry_store import place as place  # The fixture of the same places.

LITTLE, MUCH = 200, 1 << 20


def entry(ledger_id: int, entry_id: int, text: bytes) -> Frame:
    return frame_of(memoryview(encode_entry(ledger_id, entry_id, 10 * entry_id + len(text), text)), ledger_id)


def digests_of(
    frames: dict[int, Frame], first: int, last: int, modulus: int = 1, residues: int = 1
) -> list[int]:
    """By the words of the port, entry by entry."""
    sums = {each: 0 for each in range(modulus) if residues >> each & 1}
    for entry_id, frame in frames.items():
        if first <= entry_id <= last and entry_id % modulus in sums:
            sums[entry_id % modulus] += entry_digest(bytes(frame.body))
    return [each & DIGEST_MASK for each in sums.values()]


def ledger(ids: Any, ledger_id: int = 7, size: int = 20) -> dict[int, Frame]:
    return {each: make_frame(ledger_id, [each], size=size) for each in ids}


def test_runs_add_up_and_parts_of_them_too(place: Place) -> None:
    """P11.4: "a sum over ids and CRCs, so that runs add up"."""
    place.store.put(make_frame(7, range(3_000), size=20))
    frames, store = ledger(range(3_000)), place.settle()
    for first, last in ((0, 2_999), (0, 1_023), (1_024, 2_047), (5, 2_990), (7, 7), (2_990, 9_000)):
        assert store.sums(7, first, last, 1, 1, MUCH).digests == digests_of(frames, first, last)
    assert store.sums(7, 4_000, 9_000, 1, 1, MUCH) == EntrySums([0])
    assert store.sums(8, 0, 9, 1, 1, MUCH) == EntrySums([0])
    assert store.sums(7, 9, 8, 1, 1, MUCH) == EntrySums([0])


def test_each_residue_is_asked_for_by_itself(place: Place) -> None:
    """P3.7: seats of a striped ledger share one residue or another."""
    held = [each for each in range(900) if each % 5 in (0, 3, 4)]
    place.store.put(make_frame(7, held, size=20))
    frames, store = ledger(held), place.settle()
    for residues in (0b11001, 0b00001, 0b11111, 0b00110, 0):
        assert store.sums(7, 0, 899, 5, residues, MUCH).digests == digests_of(frames, 0, 899, 5, residues)
    assert store.sums(7, 0, 899, 1, 1, MUCH).digests == digests_of(frames, 0, 899)
    assert store.sums(7, 3, 800, 3, 0b101, MUCH).digests == digests_of(frames, 3, 800, 3, 0b101)


def test_another_entry_under_the_same_id_has_another_digest(place: Place) -> None:
    """I8: two copies of one entry are equal; two that are not have different digests, by content and by size."""
    other = MemoryEntryStore()
    for text in (b"what was written", b"what was Written", b"what was"):
        other.put(entry(7, 3, text))
    place.store.put(entry(7, 3, b"what was written"))
    assert place.settle().sums(7, 0, 9, 1, 1, MUCH) != other.sums(7, 0, 9, 1, 1, MUCH)
    assert len({entry_digest(bytes(entry(7, 3, text).body)) for text in (b"a", b"b", b"ab")}) == 3


def test_the_newest_copy_of_an_entry_counts(place: Place) -> None:
    """As for a read: several logs and the cache may hold one id."""
    place.store.put(make_frame(7, range(10), size=20))
    if place.kind in ("flushed", "reopened"):
        flush(place.store)
    place.store.put(entry(7, 4, b"a good copy"))
    frames = ledger(range(10)) | {4: entry(7, 4, b"a good copy")}
    store = place.settle()
    assert store.sums(7, 0, 9, 1, 1, MUCH).digests == digests_of(frames, 0, 9)
    assert store.sums(7, 0, 9, 1, 1, MUCH, by_bytes=True).digests == digests_of(frames, 0, 9)


def test_whole_runs_cost_no_read_and_bytes_have_a_bound() -> None:
    store = open_store(make_disk())
    store.put(make_frame(7, range(2_048), size=100))
    flush(store)
    frames = ledger(range(2_048), size=100)
    assert store.sums(7, 0, 2_047, 1, 1, 0) == EntrySums(digests_of(frames, 0, 2_047))
    part = store.sums(7, 0, 2_000, 1, 1, MUCH)
    assert part == EntrySums(digests_of(frames, 0, 2_000), bytes_read=977 * 152)
    assert store.sums(7, 0, 2_000, 1, 1, LITTLE).digests is None, "cannot tell is no digest"
    assert store.sums(7, 5, 5, 1, 1, 1) == EntrySums(digests_of(frames, 5, 5), bytes_read=152)
    assert store.sums(7, 0, 2_047, 1, 1, 1, by_bytes=True).digests is None
    store.close()


def test_any_pattern_of_puts_logs_copies_and_versions_has_the_digests_of_its_entries() -> None:
    """Both twins, by chance, against the entries themselves; also of what a compaction has copied."""
    chance = random.Random(11)
    for turn in range(24):
        disk = make_disk()
        store, twin, frames = open_store(disk), MemoryEntryStore(), dict[int, Frame]()
        marks = chance.randint(2, 6)
        for mark in range(1, marks):
            for _ in range(chance.randint(1, 4)):
                first, step = chance.randint(0, 150), chance.choice([1, 1, 2, 3, 70])
                ids = range(first, first + step * chance.randint(1, 40), step)
                chosen = [each for each in ids if chance.random() < 0.9] or [first]
                size = chance.choice([20, 40])
                for put in (store, twin):
                    put.put(make_frame(3, chosen, size=size))
                frames |= ledger(chosen, 3, size)
            flush(store, mark)
        if chance.random() < 0.5:
            store.begin_copy(sorted(store.entry_logs())[: chance.randint(1, marks - 1)])
            store.copy_slice(1 << 30, threaded=False)
            assert store.poll_copy()
            store.commit_copy(NativeLedgerTable())
        elif chance.random() < 0.5:
            store.close()
            logs = {path: content for path, content in disk.files().items() if path.endswith(".elog")}
            older = {path: as_version(1 + turn % 3, content) for path, content in logs.items()}
            store = open_store(MemoryDisk(older))
        for _ in range(12):
            first, modulus = chance.randint(0, 100), chance.choice([1, 1, 3, 5, 64])
            asked = (first, first + chance.randint(0, 300), modulus, chance.getrandbits(modulus))
            expected = digests_of(frames, *asked)
            for by_bytes in (False, True):
                assert store.sums(3, *asked, MUCH, by_bytes=by_bytes).digests == expected
                assert twin.sums(3, *asked, MUCH, by_bytes=by_bytes).digests == expected
        store.close()


def test_what_no_index_knows_is_read_once_and_remembered() -> None:
    """STORAGE.md 3: a compaction that copies part of a run does not know its digests."""
    store = open_store(make_disk())
    store.put(make_frame(7, range(100), size=100))
    flush(store, 1)
    store.put(make_frame(7, [99], size=100))
    flush(store, 2)
    store.begin_copy([1])
    store.copy_slice(1 << 20, threaded=False)
    assert store.poll_copy()
    store.commit_copy(NativeLedgerTable())
    expected = digests_of(ledger(range(100), size=100), 0, 99)
    assert store.sums(7, 0, 99, 1, 1, 0).digests is None
    assert store.sums(7, 0, 99, 1, 1, MUCH) == EntrySums(expected, bytes_read=99 * 152)
    assert store.sums(7, 0, 99, 1, 1, 0) == EntrySums(expected)
    store.close()


def rotten(version: int = 4) -> MemoryDisk:
    """Ten entries, of which 4 has rotted behind the index."""
    disk = make_disk()
    store = open_store(disk)
    store.put(make_frame(7, range(10), size=100))
    flush(store)
    store.close()
    content = disk.read(f"{DIRECTORY}/00000001.elog")
    at = content.index(make_frame(7, [4], size=100).body) + 60
    changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    return MemoryDisk(
        {f"{DIRECTORY}/00000001.elog": changed if version == 4 else as_version(version, changed)}
    )


def test_by_bytes_finds_what_the_index_cannot_know() -> None:
    """I55: an entry that fails its own check is named, and no digest is told."""
    store = open_store(rotten())
    assert store.sums(7, 0, 9, 1, 1, MUCH).digests == digests_of(ledger(range(10), size=100), 0, 9)
    assert store.sums(7, 0, 9, 1, 1, MUCH, by_bytes=True) == EntrySums(None, [4], 1_520)
    assert store.sums(7, 4, 4, 1, 1, MUCH, by_bytes=True) == EntrySums(None, [4], 152)
    store.close()
    for version in (1, 3):  # Of which no digests are known: all is read.
        older = open_store(rotten(version))
        assert older.sums(7, 0, 9, 1, 1, MUCH) == EntrySums(None, [4], 1_520)
        older.close()


def test_an_entry_that_no_descriptor_is_left_for_is_not_bad() -> None:
    """P11.4: its digest cannot be told now, and nothing else."""
    disk = make_disk()
    store = open_store(disk)
    store.put(make_frame(7, range(10), size=100))
    flush(store, 1)
    disk.fail("open", error=errno.EMFILE)
    assert store.sums(7, 0, 9, 1, 1, MUCH, by_bytes=True) == EntrySums(None, bytes_read=10 * 152)
    assert store.sums(7, 0, 9, 1, 1, MUCH, by_bytes=True).digests == digests_of(
        ledger(range(10), size=100), 0, 9
    )
    store.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_an_entry_that_no_descriptor_is_left_for_is_not_unreadable(error: int) -> None:
    """P7.1: no outcome is given; an empty one would mean that this copy cannot be read, and `embedbk scrub` said so of
    sound ones. What is found beside it is given, and the rest is asked for again."""
    disk = make_disk()
    store = open_store(disk)
    for first in (0, 10):
        store.put(make_frame(7, range(first, first + 10), size=100))
        flush(store, 1 + first)
    disk.fail("open", error=error)
    with pytest.raises(MemoryRefused, match="no descriptor or memory left"):
        store.read(7, 0, 9, MUCH)
    store.put(make_frame(7, range(20, 30), size=100))
    disk.fail("open", error=error, stays=True)
    found = store.read(7, 10, 29, MUCH)
    assert (ids_in(found.frame), found.absent) == (list(range(20, 30)), [])
    disk.fail("open", nth=0)
    assert ids_in(store.read(7, 0, 9, MUCH).frame) == list(range(10))
    disk.fail("open", error=error)  # The descriptor of the first log is given back for it.
    assert ids_in(store.read(7, 10, 19, MUCH).frame) == list(range(10, 20))
    assert ids_in(store.read(7, 0, 19, MUCH).frame) == list(range(20))
    disk.fail("read", error=errno.EIO, stays=True)
    assert store.read(7, 0, 9, MUCH) == EntriesFound(None, []), "of the device it is damage, as before"
    store.close()


def test_what_was_met_as_bad_counts_as_lacking_until_a_good_copy_is_there() -> None:
    """P11.4, I55: "a copy that fails its own check is bad"."""
    store, counting = open_store(rotten()), HoldingCount()
    held = counting.held(store, [], 7, 0, 9, 1, 1, [], Digests.BY_INDEX)
    assert held is not None and (held.count, len(held.digests)) == (10, 1)
    held = counting.held(store, [], 7, 4, 4, 1, 1, [], Digests.BY_BYTES)
    assert held is not None and (held.count, held.lacking, held.digests) == (0, [(4, 4)], [])
    held = counting.held(store, [], 7, 0, 9, 1, 1, [], Digests.NONE)
    assert held is not None and (held.count, held.lacking) == (9, [(4, 4)])
    store.put(make_frame(7, [4], size=100))
    held = counting.held(store, [], 7, 0, 9, 1, 1, [], Digests.BY_INDEX)
    assert held is not None and (held.count, held.lacking) == (10, [])
    assert held.digests == digests_of(ledger(range(10), size=100), 0, 9)
    store.close()


def test_parts_of_one_question_share_a_bound() -> None:
    """What is not told is None, part by part, and is asked again by itself."""
    store, counting = MemoryEntryStore(), HoldingCount()
    size = SUM_BYTES_MAX // 2
    for each in range(6):
        store.put(make_frame(7, [each], size=size))
    held = counting.held(store, [], 7, 0, 5, 2, 0b11, [1, 2, 3, 4, 5], Digests.BY_BYTES)
    assert held is not None and len(held.digests) == 12
    assert [each is None for each in held.digests] == [False] * 4 + [True] * 8


def test_only_so_many_bad_ones_are_remembered() -> None:
    store, counting = MemoryEntryStore(), HoldingCount()
    store.put(make_frame(7, range(MET_MAX + 5), size=10))
    store.unreadable |= {(7, each) for each in range(MET_MAX + 5)}
    for each in range(MET_MAX + 5):
        held = counting.held(store, [], 7, each, each, 1, 1, [], Digests.BY_BYTES)
        assert held is not None and held.count == 0
    held = counting.held(store, [], 7, 0, MET_MAX + 4, 1, 1, [], Digests.NONE)
    assert held is not None and held.count == 5


def test_a_question_without_sense_is_refused() -> None:
    store = open_store(make_disk())
    for asked in ((7, -1, 5, 1, 1), (7, 0, 5, 0, 1), (7, 0, 5, 65, 1), (7, 0, 5, 2, 4)):
        with pytest.raises(UsageError):
            store.sums(*asked, MUCH)
    store.close()
