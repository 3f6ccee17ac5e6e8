"""A lost index is made again while the bookie serves: dark until then, never absent, newest copies first (ST38)."""

from __future__ import annotations

import errno
import random
import select
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES, encode_entry
from embedbk.codec.frame import frame_of, iter_entries
from embedbk.codec.holdings_messages import Digests
from embedbk.core.ledger_table import LEDGER_STATE
from embedbk.errors import StorageError
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.lost_indexes import LostIndexes
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.log_places import places_in
from tests.storage.looking_through import look_through, look_through_all
from tests.storage.older_logs import as_version
from tests.storage.small_bookie import INCARNATION, TOKEN
from tests.storage.stored_entries import ids_in
from tests.storage.test_bookie_storage import held, on_memory, put
from tests.storage.test_compaction import KEPT, check, compact, facts, fill, logs_on
from tests.storage.test_dropping import drop

STATE = LEDGER_STATE.pack(1, 0, -1, 0, bytes(16), 0, bytes(7))
ENTRIES = "/b1/entries"


def spoiled(content: bytes, *more: int) -> bytes:
    """Both copies of its index are other bytes; and those at `more`, which count from the begin of the entries."""
    changed, places = bytearray(content), places_in(content)
    for begin, end in places.index_ranges():
        changed[begin:end] = bytes(each ^ 0xA5 for each in content[begin:end])
    for at in more:
        changed[places.entries + at] ^= 1
    return bytes(changed)


def spoil(disk: MemoryDisk, *log_ids: int) -> None:
    for log_id in log_ids:
        path = f"{ENTRIES}/{log_id:08x}.elog"
        disk.put(path, spoiled(disk.read(path)))


def damaged_bookie(*log_ids: int) -> tuple[MemoryDisk, BookieStorage]:
    """That of test_compaction.py, started on these logs without indexes."""
    disk = MemoryDisk()
    fill(disk)
    disk.crash()
    spoil(disk, *log_ids)
    return disk, on_memory(disk)


def seen(bookie: BookieStorage) -> dict[int, tuple[list[int], list[tuple[int, int]]]]:
    found = {ledger_id: bookie.read(ledger_id, 0, 99, 1 << 20) for ledger_id in (*KEPT, 2, 6, 8)}
    return {each: (ids_in(read.frame), read.absent) for each, read in found.items()}


def test_what_is_dark_is_unreadable_until_it_is_found() -> None:
    """ST38, P7.1, I31: the start reads no entry; until the scan has passed nothing is absent, and behind it all is as
    before."""
    disk, whole = MemoryDisk(), MemoryDisk()
    before = seen(fill(whole))
    bookie = fill(disk)
    bookie._release()
    disk.crash()
    spoil(disk, 1, 2, 3, 4)
    bookie = on_memory(disk)
    assert bookie.rebuild_left().logs == 4
    assert bookie.rebuild_left().bytes_left == sum(
        log.entries_bytes for log in bookie.log_facts() if log.log_id < 5
    )
    assert any("the others are looked for while the bookie serves" in line for line in bookie.reports())
    last_held = 0
    for ledger_id, (ids, absent) in seen(bookie).items():
        assert (ids, absent) == ([], []), ledger_id
    while bookie.begin_rebuild(600):
        assert bookie.finish_rebuild() is not None
        now = seen(bookie)
        assert sum(len(ids) for ids, _ in now.values()) >= last_held
        last_held = sum(len(ids) for ids, _ in now.values())
        for ledger_id, (ids, absent) in now.items():
            assert set(ids) <= set(before[ledger_id][0])
            assert not any(first <= each <= last for first, last in absent for each in before[ledger_id][0])
    assert seen(bookie) == before
    assert bookie.rebuild_left() == (0, 0)
    verdicts = {(log.is_damaged, log.is_rescued) for log in bookie.log_facts() if log.log_id < 5}
    assert verdicts == {(False, True)}
    check(bookie)
    bookie.close()


def test_an_open_reads_no_entries() -> None:
    """ST38: the bookie is away no longer than it takes to read indexes and ledger states."""
    disk = MemoryDisk()
    fill(disk)._release()
    disk.crash()
    reads = []
    for log_ids in ((), (1, 2, 3, 4)):
        spoil(disk, *log_ids)
        before = disk.calls("read")
        store = NativeEntryStore([ENTRIES], TOKEN, INCARNATION, io=disk, half_bytes_max=1 << 20)
        reads.append(disk.calls("read") - before)
        store.close()
    blocks = 4 * 2 * 2  # Both copies of each index, which fit into two blocks.
    assert reads[1] - reads[0] <= blocks


def other_frame(ledger_id: int, ids: Iterable[int], version: int) -> memoryview:
    """Entries that are each whole by themselves, and differ from those of another version."""
    return memoryview(
        b"".join(encode_entry(ledger_id, each, 8 * each + 8, b"%03d.%04d" % (version, each)) for each in ids)
    )


def written(versions: Iterable[Iterable[tuple[int, Iterable[int]]]]) -> dict[str, bytes]:
    """An entry log of each list of (ledger, ids), whose copies are of its own version."""
    disk = MemoryDisk({"/e/.made": b""})
    store = NativeEntryStore(["/e"], TOKEN, INCARNATION, io=disk, half_bytes_max=1 << 20)
    for version, puts in enumerate(versions, 1):
        for ledger_id, ids in puts:
            store.put(frame_of(other_frame(ledger_id, ids, version)))
        assert store.freeze(STATE, version)
        store.flush(threaded=False)
        assert store.finish_flush()
        store.release()
    store.close()
    return {path: content for path, content in disk.files().items() if path.endswith(".elog")}


def opened(files: Mapping[str, bytes]) -> NativeEntryStore:
    return NativeEntryStore(["/e"], TOKEN, INCARNATION, io=MemoryDisk(files), half_bytes_max=1 << 20)


def copies(store: NativeEntryStore, ledger_id: int, last: int = 60) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for entry_id in range(last + 1):
        frame = store.read(ledger_id, entry_id, entry_id, 1 << 20).frame
        found |= (
            {each.entry_id: bytes(each.data) for each in iter_entries(frame)} if frame is not None else {}
        )
    return found


@pytest.mark.parametrize("lost", [(1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)])
def test_the_newest_copy_wins_in_whatever_order_it_is_found(lost: tuple[int, ...]) -> None:
    """ST38: runs that are found late stand beneath those of newer logs and above those of older ones."""
    files = written(
        [[(7, range(30)), (8, range(5))], [(7, range(10, 40)), (9, range(3))], [(7, range(20, 25))]]
    )
    truth = {each: copies(opened(files), each) for each in (7, 8, 9)}
    assert {each[:3] for each in truth[7].values()} == {b"001", b"002", b"003"}
    for log_id in lost:
        path = f"/e/{log_id:08x}.elog"
        files[path] = spoiled(files[path])
    for slice_bytes in (1, 500, 1 << 20):
        store = opened(files)
        look_through(store, slice_bytes)
        assert {each: copies(store, each) for each in (7, 8, 9)} == truth
        store.close()


@pytest.mark.parametrize("seed", range(12))
def test_no_order_of_logs_losses_and_puts_gives_another_copy(seed: int) -> None:
    """ST38, P7.1: logs of chance, some without indexes; puts and flushes between the slices. What is read then is what
    the same puts leave on a whole disk."""
    chance = random.Random(f"lost indexes {seed}")
    versions = []
    for _ in range(chance.randint(2, 7)):
        puts = []
        for ledger_id in sorted(chance.sample(range(1, 6), chance.randint(1, 4))):
            step, first = chance.choice([1, 1, 3]), chance.randrange(40)
            puts.append((ledger_id, range(first, min(60, first + chance.randint(1, 40)), step)))
        versions.append(puts)
    files = written(versions)
    lost = {path: spoiled(files[path]) for path in sorted(files) if chance.random() < 0.6}
    store, whole = opened({**files, **lost}), opened(files)
    indexes = LostIndexes(store.handle, "memory", threaded=False)
    turn = 0
    while indexes.begin(chance.choice([1, 60, 700])):
        turn += 1
        while (piece := indexes.finish(None)) is not None and piece.has_more:
            pass
        if turn < 5 and chance.random() < 0.5:
            body = other_frame(chance.randint(1, 5), range(turn, 60, 7), 100 + turn)
            for each in (store, whole):
                each.put(frame_of(body))
                if turn % 2:
                    assert each.freeze(STATE, 100 + turn)
                    each.flush(threaded=False)
                    assert each.finish_flush()
                    each.release()
    for ledger_id in range(1, 7):
        assert copies(store, ledger_id) == copies(whole, ledger_id)
        assert store.held(ledger_id, 0, 99) == whole.held(ledger_id, 0, 99)
    read = [data[:3] for ledger_id in range(1, 6) for data in copies(store, ledger_id).values()]
    for log in store.log_facts():
        served = (
            read.count(b"%03d" % log.log_id) * (ENTRY_OVERHEAD_BYTES + 8)
            if log.log_id <= len(versions)
            else 0
        )
        assert served <= log.live_bytes <= log.entries_bytes, log
    store.close()
    whole.close()


def test_a_ledger_that_is_dropped_meanwhile_stays_out() -> None:
    """ST38, P7.3: its entries are found, and not put; the log counts as whole all the same."""
    _, bookie = damaged_bookie(1, 2, 3, 4)
    drop(bookie, 3)
    assert bookie.begin_rebuild(700)
    assert bookie.finish_rebuild() is not None
    drop(bookie, 4)  # Part of it was found before that.
    look_through_all(bookie, 700)
    assert held(bookie, 3) == held(bookie, 4) == []
    assert held(bookie, 1) == KEPT[1]
    assert all(log.is_rescued for log in bookie.log_facts() if log.log_id < 5)
    assert facts(bookie)[4].live_bytes < facts(bookie)[4].entries_bytes
    bookie.close()


def test_an_id_that_is_put_meanwhile_is_the_newest() -> None:
    """ST38: adds are taken as ever; what is found later of the same id is the older copy, also behind a flush."""
    files = written([[(7, range(30))]])
    store = opened({path: spoiled(content) for path, content in files.items()})
    store.put(frame_of(other_frame(7, range(5, 9), 2)))
    assert store.freeze(STATE, 2)
    store.flush(threaded=False)
    assert store.finish_flush()
    store.release()
    store.put(frame_of(other_frame(7, range(8, 12), 3)))
    assert sorted(copies(store, 7)) == list(range(5, 12))
    look_through(store, 100)
    found = copies(store, 7)
    assert [found[each][:3] for each in range(30)] == [b"001"] * 5 + [b"002"] * 3 + [b"003"] * 4 + [
        b"001"
    ] * 18
    store.close()


@pytest.mark.parametrize("slices", [0, 1, 2, 5, 40])
def test_a_stop_in_the_middle_begins_anew(slices: int) -> None:
    """ST38: nothing is written before a compaction, so whenever a stop comes, the next start finds all of it."""
    disk, bookie = damaged_bookie(1, 3)
    left, files = (
        bookie.rebuild_left(),
        {path: raw for path, raw in disk.files().items() if path.endswith(".elog")},
    )
    for _ in range(slices):
        if bookie.begin_rebuild(900):
            bookie.finish_rebuild()
    bookie._release()
    disk.crash()
    assert {path: raw for path, raw in disk.files().items() if path.endswith(".elog")} == files
    bookie = on_memory(disk)
    assert bookie.rebuild_left() == left
    look_through_all(bookie)
    check(bookie)
    bookie.close()


def test_a_log_that_is_whole_again_is_put_right_by_a_copy() -> None:
    """ST38: nothing is hidden in it, so it may be compacted; the next start finds no damage and looks for nothing."""
    disk, bookie = damaged_bookie(1, 3)
    with pytest.raises(StorageError):
        bookie.begin_copy([1])
    look_through_all(bookie)
    compact(bookie, 1, 3, slice_bytes=4000)
    assert not any(log.is_rescued or log.is_damaged for log in bookie.log_facts())
    for _ in range(2):
        check(bookie)
        assert not {f"{ENTRIES}/00000001.elog", f"{ENTRIES}/00000003.elog"} & set(logs_on(disk))
        disk.crash()
        bookie = on_memory(disk)
        assert (bookie.rebuild_left(), bookie.reports()) == ((0, 0), [])
    bookie.close()


@pytest.mark.parametrize("call", ["open", "read", "write", "sync", "rename", "unlink", "sync_directory"])
def test_a_crash_at_any_call_of_that_copy_leaves_every_entry(call: str) -> None:
    """ST38, I47: until the copy is durable the damaged log is there, and is looked through once more."""
    for nth in range(1, 30):
        disk, bookie = damaged_bookie(1, 3)
        look_through_all(bookie)
        disk.fail(call, nth=nth, error=errno.EIO, stays=True)
        try:
            compact(bookie, 1, 3, slice_bytes=4000)
            is_done = True
        except (StorageError, AssertionError):
            is_done = False
        disk.crash(nth)
        bookie = on_memory(disk)
        look_through_all(bookie)
        check(bookie)
        bookie.close()
        if is_done:
            break


def test_a_log_that_keeps_something_dark_stays_as_it_is() -> None:
    """P7.1, ST38: one entry is bad too: nobody knows what stood there, so the log is never compacted, and each start
    says so."""
    disk = MemoryDisk()
    fill(disk)._release()
    disk.crash()
    path = f"{ENTRIES}/00000001.elog"
    disk.put(path, spoiled(disk.read(path), 5000))
    for _ in range(2):
        bookie = on_memory(disk)
        look_through_all(bookie, 700)
        assert (facts(bookie)[1].is_damaged, facts(bookie)[1].is_rescued) == (True, False)
        assert any("of its entries are damaged or cut off" in line for line in bookie.reports())
        assert any("69 of 70 entries were found by a scan" in line for line in bookie.reports())
        assert bookie.read(8, 0, 99, 1000).absent == [], "it may have stood there"
        with pytest.raises(StorageError):
            bookie.begin_copy([1])
        bookie.close()
        disk.crash()


def test_a_log_beneath_one_that_is_looked_through_is_not_copied() -> None:
    """ST38: the copy would be the newest log, and win over the newer entry that is still in the dark."""
    _, bookie = damaged_bookie(3)
    assert {log_id: log.is_held_back for log_id, log in facts(bookie).items() if log_id < 5} == {
        1: True, 2: True, 3: False, 4: False
    }  # fmt: skip
    for log_id in (1, 2, 3):
        with pytest.raises(StorageError):
            bookie.begin_copy([log_id])
    compact(bookie, 4)
    look_through_all(bookie)
    assert not any(log.is_held_back for log in bookie.log_facts())
    compact(bookie, 1, 2, 3)
    check(bookie)
    bookie.close()


def test_what_cannot_be_told_yet_is_no_lack() -> None:
    """P11.4, P7.1: a bookie does not say what it holds of ids that may stand in the dark, and has no number for their
    block; then it says what it said before."""
    before = fill(MemoryDisk())
    _, bookie = damaged_bookie(2)
    block = (0, bytes([0xFF]))
    assert before.held(3, 0, 99) is not None
    assert bookie.held(3, 60, 89) is None
    assert bookie.held(3, 60, 89, wants=Digests.BY_INDEX) is None
    assert bookie.block_numbers([block])[0] == [None]
    look_through_all(bookie)
    for ledger_id in KEPT:
        asked = (ledger_id, 0, 99)
        now, then = bookie.held(*asked), before.held(*asked)
        assert now is not None and then is not None and (now.count, now.lacking) == (then.count, then.lacking)
    assert bookie.block_numbers([block])[0] != [None]
    bookie.close()
    before.close()


def test_runs_around_a_hole_are_told_meanwhile() -> None:
    """P11.4: only what may stand in the hole is not told: one run of one ledger was lost twice."""
    disk = MemoryDisk()
    fill(disk)._release()
    disk.crash()
    path = f"{ENTRIES}/00000001.elog"
    content = bytearray(disk.read(path))
    for begin, _ in places_in(content).index_ranges():
        content[begin + 9] ^= 1  # The first run: ledger 1.
    disk.put(path, bytes(content))
    bookie = on_memory(disk)
    assert bookie.rebuild_left().logs == 1
    assert bookie.held(1, 0, 29) is None
    found = bookie.held(5, 0, 99)
    assert found is not None and found.count == len(KEPT[5])
    assert held(bookie, 5) == KEPT[5]
    assert bookie.block_numbers([(0, bytes([0b1000]))])[0] != [None], "ledger 3"
    assert bookie.block_numbers([(0, bytes([0b1010]))])[0] == [None], "with ledger 1"
    look_through_all(bookie)
    check(bookie)
    bookie.close()


def test_what_was_found_has_its_digests() -> None:
    """P11.4: the bytes were read anyway, so nothing is read once more for an audit."""
    files = written([[(7, range(30)), (8, range(5, 50, 3))]])
    whole, store = opened(files), opened({path: spoiled(content) for path, content in files.items()})
    look_through(store, 300)
    for ledger_id in (7, 8):
        sums = store.sums(ledger_id, 0, 99, 1, 1, 1)
        assert (sums.digests, sums.bytes_read) == (whole.sums(ledger_id, 0, 99, 1, 1, 1).digests, 0)
    store.close()
    whole.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_logs_of_older_versions_are_put_right_too(version: int) -> None:
    """ST38, STORAGE.md section 5: versions 1 and 2 have one index; all of its ids are dark until they are found."""
    disk = MemoryDisk()
    fill(disk)._release()
    disk.crash()
    path = f"{ENTRIES}/00000003.elog"
    disk.put(path, spoiled(as_version(version, disk.read(path))))
    bookie = on_memory(disk)
    assert bookie.rebuild_left().logs == 1
    look_through_all(bookie, 500)
    check(bookie)
    compact(bookie, 3)
    check(bookie)
    disk.crash()
    bookie = on_memory(disk)
    assert bookie.rebuild_left().logs == 0
    check(bookie)
    bookie.close()


def test_a_device_that_fails_leaves_it_dark_until_the_next_start() -> None:
    """P7.1: what cannot be read is not absent, and the scan ends; the next start begins anew."""
    disk, bookie = damaged_bookie(1)
    disk.fail("read", stays=True)
    look_through_all(bookie)
    disk.fail("read", nth=0)
    assert (facts(bookie)[1].is_damaged, facts(bookie)[1].is_rescued) == (True, False)
    assert bookie.read(8, 0, 9, 1000).absent == []
    with pytest.raises(StorageError):
        bookie.begin_copy([1])
    bookie.close()
    disk.crash()
    bookie = on_memory(disk)
    look_through_all(bookie)
    check(bookie)
    bookie.close()


def test_one_read_that_fails_is_made_again_block_by_block() -> None:
    """P7.1: a device's one error costs no entry."""
    disk, bookie = damaged_bookie(1)
    disk.fail("read")
    look_through_all(bookie)
    check(bookie)
    assert facts(bookie)[1].is_rescued
    bookie.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_descriptor_that_is_refused_is_asked_for_later(error: int) -> None:
    """That is no damage: the scan waits, and nothing stays dark because of it."""
    disk, bookie = damaged_bookie(1)
    disk.fail("open", error=error)
    assert bookie.begin_rebuild(1000)
    with pytest.raises(StorageError, match=r"00000001\.elog cannot be opened"):
        bookie.finish_rebuild()
    assert bookie.rebuild_left().logs == 1
    look_through_all(bookie)
    check(bookie)
    bookie.close()


def test_a_file_that_is_gone_ends_the_scan_in_the_dark() -> None:
    """P7.1, D12: else each log that is older waited for ever to be compacted."""
    disk, bookie = damaged_bookie(4)
    disk.drop(f"{ENTRIES}/00000004.elog")
    look_through_all(bookie)
    assert bookie.rebuild_left() == (0, 0)
    assert (facts(bookie)[4].is_damaged, facts(bookie)[4].is_rescued) == (True, False)
    assert bookie.read(4, 90, 99, 1 << 20).absent == []
    assert not facts(bookie)[1].is_held_back
    bookie.close()


def test_what_is_found_is_taken_in_a_part_at_a_time() -> None:
    """ST38: a slice may find more runs than the loop's thread puts into the index at once; requests come between."""
    files = written([[(ledger_id, [0]) for ledger_id in range(1, 3001)]])
    store = opened({path: spoiled(content) for path, content in files.items()})
    indexes = LostIndexes(store.handle, "memory", threaded=False)
    assert indexes.begin(1 << 20)
    parts = 0
    while (piece := indexes.finish(None)) is not None and piece.has_more:
        parts += 1
        assert indexes.begin(1 << 20), "it is under way"
        assert store.held(3000, 0, 0).count == 0
    assert (parts, piece is not None and piece.is_whole) == (2, True)
    assert store.held(3000, 0, 0).count == 1
    store.close()


def test_a_thread_reads_beside_the_loop(tmp_path: Path) -> None:
    """ST38: the loop is woken when a slice has ended; a stop waits for the one that runs."""
    bookie = BookieStorage(tmp_path, "b1", TOKEN)
    for first in range(0, 4000, 100):
        put(bookie, 5, range(first, first + 100))
    bookie.close()
    path = next((tmp_path / "entries").glob("*.elog"))
    path.write_bytes(spoiled(path.read_bytes()))
    bookie = BookieStorage(tmp_path, "b1", TOKEN)
    assert bookie.begin_rebuild(64 << 10)
    bookie.close()
    bookie = BookieStorage(tmp_path, "b1", TOKEN)
    fileno = bookie._open_lost().fileno()
    assert fileno in bookie.filenos()
    while bookie.begin_rebuild(64 << 10):
        assert select.select([fileno], [], [], 60)[0]
        while (piece := bookie.finish_rebuild()) is None or piece.has_more:
            pass
    assert held(bookie, 5, last=3999) == list(range(4000))
    bookie.close()


def test_damage_that_looks_like_entries_ends_a_slice_early() -> None:
    """ST38: each byte of a damaged place may look like an entry; what is summed for that bounds a slice too."""
    bait = struct.pack("<BBHI", 1, 0, 0, 200_000) * 60_000  # Each says that 200,000 bytes follow.
    body = memoryview(b"".join(encode_entry(7, each, len(bait) * (each + 1), bait) for each in range(2)))
    disk = MemoryDisk({"/e/.made": b""})
    store = NativeEntryStore(["/e"], TOKEN, INCARNATION, io=disk, half_bytes_max=8 << 20)
    store.put(frame_of(body))
    assert store.freeze(STATE, 1)
    store.flush(threaded=False)
    assert store.finish_flush()
    store.release()
    store.close()
    path = "/e/00000001.elog"
    store = opened({path: spoiled(disk.read(path), 20)})
    indexes = LostIndexes(store.handle, "memory", threaded=False)
    assert indexes.begin(100_000) and indexes.finish(None) is not None  # The front ends at once.
    assert indexes.begin(100_000)
    piece = indexes.finish(None)
    assert piece is not None and 0 < piece.bytes_read < 100_000
    store.close()


def test_one_large_entry_in_the_place_of_two_is_noticed() -> None:
    """P7.1, I31: a misdirected write of a valid entry that is as long as two, in order: the number of all is wrong, so
    the hole stays dark."""
    one, other = (encode_entry(7, each, 8 * each + 8, b"12345678") for each in (1, 2))
    large = encode_entry(7, 1, 8 + 68, b"x" * (len(one) + len(other) - ENTRY_OVERHEAD_BYTES))
    assert len(large) == len(one) + len(other)
    ((path, content),) = written([[(7, range(4))]]).items()
    at = places_in(content).entries + len(one)
    changed = spoiled(content[:at] + large + content[at + len(large) :])
    store = opened({path: changed})
    look_through(store)
    assert ids_in(store.read(7, 0, 0, 1000).frame) == [0]
    assert store.read(7, 2, 2, 1000).absent == []
    assert (store.log_facts()[0].is_damaged, store.log_facts()[0].is_rescued) == (True, False)
    store.close()


def test_more_damage_than_is_told_says_so() -> None:
    """A bound that is reached says so: of very many damaged logs the last line that is kept tells of more."""
    files = {
        path: spoiled(content) for path, content in written([[(7, [each])] for each in range(70)]).items()
    }
    store = opened(files)
    assert len(store.reports()) == 64
    assert store.reports()[-1] == "more was met in entry logs than is told: 64 lines are kept"
    assert LostIndexes(store.handle, "memory").left().logs == 70
    look_through(store)
    assert sorted(copies(store, 7, 69)) == list(range(70))
    store.close()
