"""Compaction: copy, sync, index, delete, in this order; a crash at any call leaves every live entry (I47)."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from embedbk.core.compactor import Compactor, CompactorOptions
from embedbk.core.upkeep_words import (
    CopyFailed,
    CopyLogs,
    CopySlice,
    ListLogs,
    LogFacts,
    LogsListed,
    SliceCopied,
)
from embedbk.core.vocabulary import Started, Tick
from embedbk.errors import StorageError
from embedbk.host.compacting import Compacting
from embedbk.ids import NO_ENTRY
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.log_places import places_in
from tests.storage.looking_through import look_through_all
from tests.storage.small_bookie import INCARNATION, TOKEN
from tests.storage.stored_entries import make_frame
from tests.storage.test_bookie_storage import commit, fence, flush, held, is_fenced, on_memory, put
from tests.storage.test_checking import check as check_files
from tests.storage.test_dropping import bring_back, drop

SECOND = 1_000_000_000
CALLS = ("open", "read", "write", "sync", "allocate", "rename", "unlink", "sync_directory")
KEPT = {1: [*range(30)], 3: [*range(60, 90)], 4: [*range(5), *range(90, 100)], 5: [*range(0, 90, 3)]}


def logs_on(disk: MemoryDisk) -> list[str]:
    return sorted(name for name in disk.files(stable=False) if name.endswith(".elog"))


def fill(disk: MemoryDisk) -> BookieStorage:
    """Four entry logs with entries of ledgers of which 2 and 6 are dropped then, and a fence that only one log has."""
    bookie = on_memory(disk)
    put(bookie, 1, range(30))
    put(bookie, 2, range(40))
    fence(bookie, 77)
    commit(bookie)
    flush(bookie)
    put(bookie, 2, range(40, 60))
    put(bookie, 3, range(60, 90))
    bookie.put_frame(make_frame(5, range(0, 90, 3), size=500))
    commit(bookie)
    flush(bookie)
    put(bookie, 4, range(5))
    put(bookie, 6, range(50))
    commit(bookie)
    flush(bookie)
    put(bookie, 4, range(90, 100))
    bookie.put_frame(make_frame(1, range(10, 14), size=500))  # Held by two logs; the newer counts.
    commit(bookie)
    flush(bookie)
    drop(bookie, 2)
    drop(bookie, 6)
    return bookie


def check(bookie: BookieStorage) -> None:
    for ledger_id, ids in KEPT.items():
        assert held(bookie, ledger_id) == ids
    assert bookie.read(3, 0, 59, 1 << 20).absent == [(0, 59)]
    for ledger_id in (2, 6):
        assert held(bookie, ledger_id) == []
        row = bookie.table.get(ledger_id)
        assert row is not None and row.is_dropped
    assert is_fenced(bookie, 77)


def compact(bookie: BookieStorage, *log_ids: int, slice_bytes: int = 1 << 20) -> int:
    """As a host does it, to the end; how many slices it took."""
    bookie.begin_copy(log_ids)
    slices = 0
    while True:
        bookie.copy_slice(slice_bytes)
        ended = bookie.poll_copy()
        assert ended is not None
        slices += 1
        if ended[1]:
            break
    commit(bookie)  # Else the frozen half of the flush before may not be free.
    bookie.finish_flush()
    assert bookie.begin_flush_if_due()
    assert bookie.finish_flush()
    return slices


def facts(bookie: BookieStorage) -> dict[int, LogFacts]:
    return {log.log_id: log for log in bookie.log_facts()}


@pytest.mark.parametrize("sources", [(1,), (2,), (1, 2), (3, 1), (1, 2, 3, 4)])
def test_what_lives_is_copied_and_the_sources_go(sources: tuple[int, ...]) -> None:
    """ST31, ST32: everything is found as before, after restarts as well, fences and dropped ledgers too."""
    disk = MemoryDisk()
    bookie = fill(disk)
    before = len(logs_on(disk))
    assert compact(bookie, *sources) >= 1
    assert len(logs_on(disk)) == before - len(sources) + 2  # The copy, and the flush that told of it.
    for _ in range(3):
        check(bookie)
        assert not any(f"{number:08x}.elog" in name for name in logs_on(disk) for number in sources)
        disk.crash()
        bookie = on_memory(disk)
    check(bookie)
    bookie.close()


def test_without_an_id_for_its_log_a_compaction_is_given_up() -> None:
    """ST35: as a flush fails then: the host carries on, as with any copying that cannot be."""
    disk = MemoryDisk()
    bookie = fill(disk)
    bookie.close()
    disk.put("/b1/entries/ffffffff.elog.tmp", b"")  # Behind it there are no ids for new ones.
    bookie = on_memory(disk)
    compacting = Compacting("b1", CompactorOptions(bytes_per_s=1 << 40, gain_bytes_min=1), bookie)
    for now_ns in range(0, 100_000 * SECOND, 60 * SECOND):
        compacting.step(now_ns)
    check(bookie)
    with pytest.raises(StorageError, match="entry log ids are used up"):
        bookie.begin_copy((1,))
    bookie.close()


def test_a_log_in_which_nothing_lives_goes_whole() -> None:
    """ST19: no entry is copied for it; its ledger states are carried all the same (P7.3)."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 2, range(40))
    fence(bookie, 77)
    commit(bookie)
    flush(bookie)
    drop(bookie, 2)
    assert facts(bookie)[1].live_bytes == 0
    compact(bookie, 1)
    assert logs_on(disk) == ["/b1/entries/00000003.elog"]
    for _ in range(2):
        assert is_fenced(bookie, 77)
        assert held(bookie, 2) == [] and bookie.table.get(2).is_dropped  # type: ignore[union-attr]
        disk.crash()
        if "/b1/entries/00000001.elog" in disk.files():
            disk.drop("/b1/entries/00000001.elog")  # Its deletion was not durable by chance; now it is.
        bookie = on_memory(disk)
    bookie.close()


def test_live_bytes_follow_what_is_dropped() -> None:
    """ST31: the live share of a log is what decides; nothing is read for it."""
    disk = MemoryDisk()
    bookie = fill(disk)
    found = facts(bookie)
    assert [found[number].live_bytes == found[number].entries_bytes for number in (1, 2, 3, 4)] == [
        False, False, False, True
    ]  # fmt: skip
    assert found[1].live_bytes == make_frame(1, range(30), size=500).body.nbytes
    disk.crash()
    bookie = on_memory(disk)
    assert {number: log.live_bytes for number, log in facts(bookie).items() if number < 5} == {
        number: log.live_bytes for number, log in found.items()
    }
    bookie.close()


def test_writes_go_on_beside_a_compaction() -> None:
    """Scenario 51: flush, drop and copy of the same ledgers at once: nothing is lost, nothing comes back."""
    disk = MemoryDisk()
    bookie = fill(disk)
    bookie.begin_copy([1, 2])
    bookie.copy_slice(8000)
    ended = bookie.poll_copy()
    assert ended is not None and ended[0] >= 8000 and not ended[1]
    drop(bookie, 3)
    put(bookie, 4, range(100, 140))
    commit(bookie)
    flush(bookie)
    is_over = False
    while not is_over:
        bookie.copy_slice(2000)
        ended = bookie.poll_copy()
        assert ended is not None
        is_over = ended[1]
    put(bookie, 4, range(140, 150))
    commit(bookie)
    flush(bookie)
    for _ in range(2):
        assert held(bookie, 3) == []
        assert held(bookie, 1) == KEPT[1] and held(bookie, 5) == KEPT[5]
        assert held(bookie, 4) == [*KEPT[4], *range(100, 150)]
        disk.crash()
        bookie = on_memory(disk)
    bookie.close()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("seed", [0, 7])
def test_a_crash_at_any_call_leaves_every_live_entry(call: str, seed: int) -> None:
    """Scenario 35 (BK-530, BK-926, #1534), I47: the process dies at each call between copy, sync, index and delete; of
    what was not synced any part may survive. The next compaction ends what this one began."""
    nth = 0
    while True:
        nth += 1
        disk = MemoryDisk()
        bookie = fill(disk)
        disk.fail(call, nth=nth, error=errno.EIO, stays=True)
        try:
            compact(bookie, 1, 2, slice_bytes=4000)
            is_done = True
        except (StorageError, AssertionError):
            is_done = False
        disk.crash(seed * nth)
        bookie = on_memory(disk)
        check(bookie)
        dead = [log.log_id for log in bookie.log_facts() if log.live_bytes < log.file_bytes // 2]
        compact(bookie, *dead)
        check(bookie)
        disk.crash()
        bookie = on_memory(disk)
        check(bookie)
        bookie.close()
        if is_done:
            break
    assert nth > 1 or call in ("unlink",), "the call is part of a compaction"


def test_a_corrupt_log_is_left_alone_and_the_rest_goes_on() -> None:
    """Scenario 62 (#4544, #2373), ST35, I35: what cannot be believed is not copied and never deleted."""
    disk = MemoryDisk()
    bookie = fill(disk)
    path = "/b1/entries/00000001.elog"
    content = bytearray(disk.read(path))
    at = 4096 + int.from_bytes(content[56:64], "little") + 5000
    content[at] ^= 1
    disk.put(path, bytes(content))
    bookie.begin_copy([1, 2])
    bookie.copy_slice(1 << 20)
    with pytest.raises(StorageError, match=r"00000001\.elog: an entry is not what its index says"):
        bookie.poll_copy()
    assert facts(bookie)[1].is_damaged and not facts(bookie)[2].is_damaged
    with pytest.raises(StorageError):
        bookie.begin_copy([1])
    compact(bookie, 2, 3)
    assert path in logs_on(disk)
    assert not any(name.endswith(".tmp") for name in disk.files(stable=False))
    for ledger_id in (3, 4, 5):
        assert held(bookie, ledger_id) == KEPT[ledger_id]
    bookie.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_process_without_descriptors_blames_no_log(error: int) -> None:
    """ST35: what is wanting is this process's, so the same logs are copied later."""
    disk = MemoryDisk()
    bookie = fill(disk)
    bookie.begin_copy([1, 2])
    disk.fail("open", nth=2, error=error)  # The first one makes the new log.
    bookie.copy_slice(1 << 20)
    with pytest.raises(StorageError, match=rf"00000001\.elog: cannot be opened: {os.strerror(error)}"):
        bookie.poll_copy()
    assert not any(log.is_damaged for log in bookie.log_facts())
    compact(bookie, 1, 2)
    check(bookie)
    bookie.close()


def test_a_log_whose_index_was_lost_is_never_compacted() -> None:
    """Scenario 36 (#4607), ST13, P7.1: it is scanned; what the damage hides is dark, and must not become absent, while
    it is looked through and behind that."""
    disk = MemoryDisk()
    fill(disk).close()
    disk.crash()
    path = "/b1/entries/00000001.elog"
    content = bytearray(disk.read(path))
    places = places_in(content)
    for at in (*places.indexes, places.entries + 5000):
        content[at + 3] ^= 1
    disk.put(path, bytes(content))
    bookie = on_memory(disk)
    for _ in range(2):
        assert facts(bookie)[1].is_damaged
        with pytest.raises(StorageError):
            bookie.begin_copy([1, 2])
        look_through_all(bookie)
    dark = [entry_id for entry_id in KEPT[1] if entry_id not in held(bookie, 1)]
    assert dark and not any(first <= dark[0] <= last for first, last in bookie.read(1, 0, 29, 1 << 20).absent)
    bookie.close()


@pytest.mark.parametrize("call", ["allocate", "write", "sync", "rename"])
def test_a_flush_that_is_done_again_behind_a_copy_names_the_sources_still(call: str) -> None:
    """ST32, P7.3: its states were taken before the copy was; a source that its roll left out would take a fence
    with it, of which no other log knows."""
    disk = MemoryDisk()
    bookie = fill(disk)
    put(bookie, 7, range(3))
    commit(bookie)
    bookie.flushes.unflushed_bytes = bookie.flushes.flush_bytes
    disk.fail(call)
    assert bookie.begin_flush_if_due()
    assert not bookie.finish_flush()
    sources = [log.log_id for log in facts(bookie).values()][:2]
    bookie.begin_copy(sources)
    bookie.copy_slice(1 << 20)
    ended = bookie.poll_copy()
    assert ended is not None and ended[1]
    bookie.flushes.unflushed_bytes += bookie.flushes.flush_bytes
    assert bookie.begin_flush_if_due()
    assert bookie.finish_flush()
    assert {f"/b1/entries/{log_id:08x}.elog" for log_id in sources} <= set(logs_on(disk))
    disk.crash()
    bookie = on_memory(disk)
    assert is_fenced(bookie, 77)
    assert {ledger_id: held(bookie, ledger_id) for ledger_id in KEPT} == KEPT
    bookie.close()


def test_where_the_newest_log_cannot_be_read_that_is_said_and_nothing_of_older_ones() -> None:
    """I47: the roll before it names logs that were compacted since. None of these is missing."""
    disk = MemoryDisk()
    bookie = fill(disk)
    compact(bookie, 1, 2)
    bookie.close()
    for number in (1, 2):
        disk.drop(f"/b1/entries/{number:08x}.elog")  # Their deletion is durable.
    newest = logs_on(disk)[-1]
    assert newest.endswith("00000006.elog")
    disk.fail("open", error=errno.EMFILE)
    with pytest.raises(StorageError, match=r"00000006\.elog could not be read, and could be a moment later"):
        on_memory(disk)
    disk.fail("open", error=errno.EMFILE, stays=True)
    with pytest.raises(StorageError, match=r"00000006\.elog: cannot be opened: Too many open files"):
        on_memory(disk)
    disk.fail("open", nth=0)
    whole = disk.read(newest)
    for content, says in (
        (bytes(len(whole)), "neither descriptor is whole"),
        (whole[:4096] + bytes(len(whole) - 4096 - 128) + whole[-128:], "both copies of the ledger states"),
    ):
        disk.put(newest, content)
        with pytest.raises(StorageError, match=rf"00000006\.elog: at offset.*{says}"):
            on_memory(disk)
    disk.put(newest, whole)
    bookie = on_memory(disk)
    check(bookie)
    bookie.close()


def test_a_full_disk_ends_a_compaction_and_nothing_else() -> None:
    """I53, D9: no half log, and the next one works."""
    disk = MemoryDisk()
    bookie = fill(disk)
    disk.limit(1)
    bookie.begin_copy([1, 2])
    bookie.copy_slice(1 << 20)
    with pytest.raises(StorageError, match="no space"):
        bookie.poll_copy()
    disk.limit(0)
    assert not any(log.is_damaged for log in bookie.log_facts())
    assert not any(name.endswith(".tmp") for name in disk.files(stable=False))
    compact(bookie, 1, 2)
    check(bookie)
    bookie.close()


def test_sources_stay_until_a_flush_behind_the_copy_has_ended() -> None:
    """I47, ST32: a flush that was frozen before the copy was taken in carries no states of the sources."""
    disk = MemoryDisk()
    bookie = fill(disk)
    bookie.begin_copy([1])
    put(bookie, 4, range(100, 110))
    commit(bookie)
    bookie.flushes.unflushed_bytes = bookie.flushes.flush_bytes
    assert bookie.begin_flush_if_due()
    bookie.copy_slice(1 << 20)
    assert bookie.poll_copy()
    assert bookie.finish_flush()
    assert "/b1/entries/00000001.elog" in logs_on(disk)
    disk.crash()
    bookie = on_memory(disk)
    assert is_fenced(bookie, 77) and held(bookie, 1) == KEPT[1]
    bookie.close()


def test_a_store_that_is_closed_waits_for_the_slice_that_is_copied() -> None:
    """I47: its thread names the new log by the directory, which is there until that thread has ended."""
    disk = MemoryDisk({"/entries/.made": b""})
    store = NativeEntryStore(["/entries"], TOKEN, INCARNATION, io=disk)
    for ledger_id in range(24):
        store.put(make_frame(ledger_id, [0], size=1 << 20))  # As much as takes longer than to close.
    assert store.freeze(b"", 1)
    store.flush(threaded=False)
    assert store.finish_flush()
    store.begin_copy([1])
    store.copy_slice(1 << 30)
    store.close()
    assert logs_on(disk) == ["/entries/00000001.elog", "/entries/00000002.elog"]


def test_the_child_of_a_fork_takes_no_file_away_that_is_copied(tmp_path: Path) -> None:
    """I47: it may let go of what it has of its parent's store, and the parent copies on."""
    store = NativeEntryStore([tmp_path], TOKEN, INCARNATION)
    for ledger_id in range(3):
        store.put(make_frame(ledger_id, [0], size=1 << 20))
    assert store.freeze(b"", 1)
    store.flush(threaded=False)
    assert store.finish_flush()
    store.begin_copy([1])
    store.copy_slice(1 << 20, threaded=False)
    assert store.poll_copy() == (pytest.approx(1 << 20, abs=4096), False)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # "multi-threaded, use of fork()": that is the point
        child = os.fork()
    if child == 0:
        store.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    store.copy_slice(1 << 30, threaded=False)
    ended = store.poll_copy()
    assert ended is not None and ended[1]
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001.elog", "00000002.elog"]


def test_a_slice_that_gets_no_thread_ends_its_compaction_and_no_later_one() -> None:
    """ST35: what was planned is given up, and the next one begins anew."""
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_THREADS],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert told.stdout.splitlines() == ["compaction in /b1/entries: memory was refused", "compacted"]


WITHOUT_THREADS = """
import resource
from embedbk.errors import StorageError
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.test_compaction import check, compact, fill

bookie = fill(MemoryDisk())
bookie.begin_copy((1, 2))
bookie.threaded = True
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used, before[1]))  # No room for a thread's stack.
try:
    bookie.copy_slice(1 << 20)
except StorageError as refused:
    resource.setrlimit(resource.RLIMIT_AS, before)
    print(refused.args[0])
bookie.threaded = False
compact(bookie, 1, 2)
check(bookie)
print("compacted")
"""


def test_a_failed_flush_keeps_the_sources() -> None:
    """ST32: the sources go only with a flush that carries their ledgers' states; a failed one carries nothing."""
    disk = MemoryDisk()
    bookie = fill(disk)
    bookie.begin_copy([1])
    bookie.copy_slice(1 << 20)
    assert bookie.poll_copy()
    disk.fail("sync", error=errno.EIO)
    assert bookie.begin_flush_if_due()
    assert not bookie.finish_flush()
    assert "/b1/entries/00000001.elog" in logs_on(disk)
    disk.crash()
    bookie = on_memory(disk)
    check(bookie)
    bookie.close()


@pytest.mark.parametrize("seed", range(6))
def test_any_compactions_keep_any_ledgers(seed: int) -> None:
    """I47, I44: random puts, drops, flushes, compactions, crashes, against a dictionary."""
    chance = random.Random(seed)
    disk = MemoryDisk()
    bookie = on_memory(disk)
    durable: dict[int, set[int]] = {}
    queued: list[tuple[int, list[int]]] = []
    gone: set[int] = set()
    for _ in range(120):
        act, ledger_id = chance.random(), chance.randrange(40)
        if act < 0.5 and ledger_id not in gone:
            first = chance.randrange(200)
            ids = sorted(chance.sample(range(first, first + 70), chance.randrange(1, 40)))
            row = bookie.table.get(ledger_id) or bookie.table.create(ledger_id)
            bookie.table.mark_dirty(row)
            bookie.put_frame(make_frame(ledger_id, ids, size=500))
            queued.append((ledger_id, ids))
        elif act < 0.6:
            commit(bookie)
            for each, ids in queued:
                durable.setdefault(each, set()).update(ids)
            queued.clear()
        elif act < 0.72:
            commit(bookie)
            for each, ids in queued:
                durable.setdefault(each, set()).update(ids)
            queued.clear()
            flush(bookie)
        elif act < 0.78 and ledger_id in durable:
            commit(bookie)
            for each, ids in queued:
                durable.setdefault(each, set()).update(ids)
            queued.clear()
            drop(bookie, ledger_id)
            gone.add(ledger_id)
            del durable[ledger_id]
        elif act < 0.93 and bookie.log_facts():
            logs = [log.log_id for log in bookie.log_facts()]
            compact(bookie, *chance.sample(logs, chance.randrange(1, len(logs) + 1)), slice_bytes=9000)
        else:
            disk.crash(chance.getrandbits(20) * chance.randrange(2))
            queued.clear()
            bookie = on_memory(disk)
        for each, ids in durable.items():
            assert set(held(bookie, each)) >= ids
        assert all(held(bookie, each) == [] for each in gone)
    bookie.close()


# When, and how fast.

S = 1_000_000_000
OPTIONS = CompactorOptions(
    look_ns=10 * S, minor_ns=100 * S, minor_share=0.2, major_ns=1000 * S, major_share=0.8, gain_bytes_min=100,
    sources_max=3, output_bytes_max=1000, slice_bytes=500, bytes_per_s=1000,
)  # fmt: skip


def log(log_id: int, live: int, *, file_bytes: int = 1000, damaged: bool = False) -> LogFacts:
    return LogFacts(log_id, file_bytes, file_bytes, live, damaged)


def look(compactor: Compactor, now_s: int, *logs: LogFacts) -> list[Any]:
    compactor.due_ns = now_s * S
    assert compactor.step(Tick(now_s * S)) == [ListLogs()]
    return compactor.step(LogsListed(now_s * S, list(logs)))


def fresh() -> Compactor:
    compactor = Compactor(OPTIONS)
    assert compactor.step(Started(0)) == [] and compactor.deadline_ns == 10 * S
    return compactor


def test_dead_logs_go_at_once_others_by_their_share() -> None:
    """ST19, ST31: nothing lives: at every look; less than a fifth: minor; less than four fifths: major."""
    logs = [log(1, 700), log(2, 0), log(3, 150), log(4, 900)]
    assert look(fresh(), 10, *logs)[0] == CopyLogs([2])
    assert look(fresh(), 100, *logs)[0] == CopyLogs([2, 3])
    assert look(fresh(), 1000, *logs)[0] == CopyLogs([2, 3, 1])
    assert look(fresh(), 1000, log(4, 900)) == []


def test_the_emptiest_go_first_within_bounds() -> None:
    """ST31: at most so many logs, and at most so many live bytes, in one copying."""
    many = [log(number, 100 + number) for number in range(1, 9)]
    assert look(fresh(), 1000, *reversed(many))[0] == CopyLogs([1, 2, 3])
    assert look(fresh(), 1000, log(1, 3000, file_bytes=5000), log(2, 2000, file_bytes=5000))[0] == CopyLogs(
        [2]
    )


def test_little_gain_is_not_worth_a_flush() -> None:
    assert look(fresh(), 1000, log(1, 0, file_bytes=99)) == []


def test_a_damaged_log_is_not_chosen_and_a_failed_copy_goes_on_with_others() -> None:
    """ST35, L10: collection makes progress after a corrupt file was quarantined."""
    compactor = fresh()
    assert look(compactor, 10, log(1, 0), log(2, 0))[0] == CopyLogs([1, 2])
    assert compactor.step(CopyFailed(11 * S, "entry log 1 is bad")) == []
    assert look(compactor, 21, log(1, 0, damaged=True), log(2, 0))[0] == CopyLogs([2])


def test_slices_keep_to_the_rate() -> None:
    """ST31: so many bytes a second, whatever a slice takes."""
    compactor = fresh()
    assert look(compactor, 10, log(1, 0))[1:] == [CopySlice(500)]
    assert compactor.deadline_ns is None, "one slice at a time"
    compactor.step(SliceCopied(12 * S, 2000, False))
    assert compactor.deadline_ns == 14 * S
    assert compactor.step(Tick(13 * S)) == []
    assert compactor.step(Tick(14 * S)) == [CopySlice(500)]
    compactor.step(SliceCopied(15 * S, 500, True))
    assert compactor.deadline_ns == 25 * S, "the next look"
    assert compactor.step(Tick(25 * S)) == [ListLogs()]


def test_logs_without_entries_are_gathered() -> None:
    """L14: a compaction ends with a flush, which may make such a log: one at a time would never come to rest."""
    bare = [LogFacts(number, 8192, 0, 0, False) for number in range(1, 17)]
    assert look(fresh(), 10, *bare[:15]) == []
    assert look(fresh(), 10, *bare)[0] == CopyLogs([1, 2, 3])
    assert look(fresh(), 10, *bare[:15], log(20, 0))[0] == CopyLogs([20])


def test_the_compactor_takes_rescued_logs_first_and_none_that_is_held_back() -> None:
    """ST38: a log whose index is lost on disk is written anew at the next look, whatever lives in it and however little
    that gains; one beneath a log that is still looked through waits."""
    rescued, dead = log(3, 1000)._replace(is_rescued=True), log(2, 0)
    assert look(fresh(), 10, dead, rescued)[0] == CopyLogs([3, 2])
    assert look(fresh(), 10, rescued)[0] == CopyLogs([3])
    assert look(fresh(), 10, dead._replace(is_held_back=True)) == []
    assert look(fresh(), 10, rescued._replace(is_held_back=True), log(7, 0))[0] == CopyLogs([7])
    assert look(fresh(), 10, rescued._replace(is_damaged=True)) == []


@pytest.mark.parametrize("log_goes", [False, True])
def test_what_was_dropped_of_a_ledger_that_came_back_is_missing_to_nobody(log_goes: bool) -> None:
    """P7.1, P7.3, I42: a check looks for the last entry that came since, also where a compaction left out those before
    (seed 70672574)."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 4, range(20))
    put(bookie, 5, range(20))
    commit(bookie)
    flush(bookie)
    row = bookie.table.get(5)
    assert row is not None
    bookie.table.mark_dirty(row)
    put(bookie, 4, range(20, 25))
    commit(bookie)
    flush(bookie)  # This log has a state of the ledger, and none of its entries.
    drop(bookie, 5)
    row.last_entry = NO_ENTRY  # As a bookie's core says when it gives the entries up.
    bring_back(bookie, 5)
    bookie.put_frame(make_frame(5, range(3, 6), size=500))
    row.last_entry = 5
    commit(bookie)
    flush(bookie)
    if log_goes:
        compact(bookie, 1)
        put(bookie, 4, range(25, 30))
        commit(bookie)
        flush(bookie)
    assert ("/b1/entries/00000001.elog" in disk.files()) is not log_goes
    assert check_files(disk.files()).found == []
    disk.crash()
    bookie = on_memory(disk)
    again = bookie.table.get(5)
    assert again is not None and again.last_entry == 5
    bookie.table.mark_dirty(again)
    put(bookie, 4, range(30, 35))
    commit(bookie)
    flush(bookie)
    assert check_files(disk.files()).found == []
    bookie.close()
