"""Several ledger directories for one bookie: each flush deals its ledgers to them, and counts when all of its logs do
(I45, scenario 44); a full or failed one takes no new entries while the others serve (I53, P7.8)."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from typing import Any

import pytest

from embedbk.errors import EmbedbkError, StorageError, UsageError
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.checking import check_bookie
from embedbk.storage.directories import FULL_RESTS, LEDGER_DIRECTORIES_MAX, RESERVE_BYTES, Directories
from embedbk.storage.entry_log_reader import Whose
from embedbk.storage.entry_logs import EntryLogs, LogVerdict
from embedbk.storage.findings import Findings
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.native import lib
from embedbk.storage.raw_files import PictureDirectory
from tests.storage.log_places import places_in
from tests.storage.small_bookie import INCARNATION, TOKEN, commit, flush, held, open_disk
from tests.storage.stored_entries import ids_in, make_frame

PLACES = ["/b1/entries", "/b1/entries-2"]
LEDGERS = range(1, 10)  # 1 and 9 go to the second of two, the others to the first.


def start(disk: MemoryDisk, places: list[str] = PLACES, **settings: Any) -> BookieStorage:
    return open_disk(disk, ledger_directories=places, **settings)


def after_a_flush() -> tuple[MemoryDisk, BookieStorage]:
    """A bookie with entries 0..3 of every ledger in both directories."""
    disk = MemoryDisk()
    storage = start(disk)
    put(storage, 0)
    flush(storage)
    return disk, storage


def restarted(disk: MemoryDisk, storage: BookieStorage, places: list[str] = PLACES) -> BookieStorage:
    """The process is gone, the disk keeps what it had, and the next one begins."""
    storage._release()
    return start(disk, places)


def put(storage: BookieStorage, first: int, ledgers: Any = LEDGERS) -> None:
    for ledger_id in ledgers:
        row = storage.table.get(ledger_id) or storage.table.create(ledger_id)
        storage.put_frame(make_frame(ledger_id, range(first, first + 4), size=50))
        row.last_entry = max(row.last_entry, first + 3)
        storage.table.mark_dirty(row)
    commit(storage)


def logs_in(disk: MemoryDisk, place: str, *, stable: bool = True) -> list[str]:
    return sorted(
        path.rpartition("/")[2]
        for path in disk.files(stable=stable)
        if path.startswith(f"{place}/") and path.endswith(".elog")
    )


def test_each_flush_deals_its_ledgers_to_all_directories() -> None:
    """STORAGE.md 1: one log in each directory that gets a ledger, ids one behind the other; all is found again."""
    disk = MemoryDisk()
    storage = start(disk)
    for first in (0, 4, 8):
        put(storage, first)
        flush(storage)
    put(storage, 12, [1])  # Of the second directory alone.
    flush(storage)
    assert logs_in(disk, PLACES[0]) == [f"{each:08x}.elog" for each in (1, 3, 5)]
    assert logs_in(disk, PLACES[1]) == [f"{each:08x}.elog" for each in (2, 4, 6, 7)]
    mark = storage.log_mark()
    assert mark == storage.next_token() - 1
    storage = restarted(disk, storage)
    assert storage.log_mark() == mark
    for ledger_id in LEDGERS:
        assert held(storage, ledger_id) == list(range(16 if ledger_id == 1 else 12))
    storage._release()


def test_power_lost_at_any_call_of_a_flush_moves_the_mark_only_when_every_directory_is_durable() -> None:
    """Scenario 44, I45: given two ledger directories, only one flushed, when power fails, then the mark is as before
    and the journal has what the other directory lost; whatever of the unsynced survives."""
    disk, storage = after_a_flush()
    before = storage.log_mark()
    put(storage, 4)
    storage.flushes._freeze()
    calls = disk.calls()
    storage.flushes._flush()
    count = disk.calls() - calls
    after = storage.next_token() - 1
    storage._release()
    seen = set()
    for call in range(1, count + 2):
        for seed in range(6):
            disk, storage = after_a_flush()
            put(storage, 4)
            storage.flushes._freeze()
            disk.halt(call)
            storage.flushes._flush()
            with contextlib.suppress(EmbedbkError):
                storage.finish_flush()
            disk.crash(seed)
            storage._release()
            is_whole = len(logs_in(disk, PLACES[0])) == len(logs_in(disk, PLACES[1])) == 2
            storage = start(disk)
            expected = after if is_whole else before
            assert storage._store is not None
            # A start replays above the mark, and flushes nothing in between: it is as the logs say.
            assert storage.log_mark() == expected, (call, seed)
            seen.add((len(logs_in(disk, PLACES[0])), len(logs_in(disk, PLACES[1]))))
            assert all(held(storage, ledger_id) == list(range(8)) for ledger_id in LEDGERS)
            put(storage, 8)
            flush(storage)
            disk.crash(seed + 100)
            storage = restarted(disk, storage)
            assert all(held(storage, ledger_id) == list(range(12)) for ledger_id in LEDGERS)
            assert storage.log_mark() == storage.next_token() - 1
            storage._release()
    assert {(1, 1), (2, 1), (2, 2)} <= seen


@pytest.mark.parametrize("lost", [[], [0], [1], [0, 1]])
def test_whichever_logs_of_a_flush_are_durable_the_mark_is_that_of_all_of_them(lost: list[int]) -> None:
    """Scenario 44, I45: threads make the logs of a flush durable in any order; here each subset of them."""
    disk, storage = after_a_flush()
    before = storage.log_mark()
    put(storage, 4)
    storage.flushes._freeze()
    storage.flushes._flush()  # Ended, and never told to the journal.
    storage._release()
    for number in lost:
        disk.drop(f"{PLACES[number]}/{3 + number:08x}.elog")
    for _ in range(2):  # A start that flushes nothing leaves it so.
        storage = start(disk)
        assert storage.log_mark() == (before if lost else storage.next_token() - 1)
        assert all(held(storage, ledger_id) == list(range(8)) for ledger_id in LEDGERS)
        storage._release()
    storage = start(disk)
    put(storage, 8)
    flush(storage)
    assert storage.log_mark() == storage.next_token() - 1
    storage = restarted(disk, storage)
    assert all(held(storage, ledger_id) == list(range(12)) for ledger_id in LEDGERS)
    storage._release()


def test_a_flush_that_lost_one_of_its_logs_and_whose_journal_is_gone_is_refused() -> None:
    """I45, P7.5: the mark of half a flush is not believed, and a journal trimmed up to it says so."""
    disk = MemoryDisk()
    storage = start(disk)
    for first in range(0, 1600, 4):
        put(storage, first, [1, 2])
    flush(storage)
    put(storage, 1600, [1, 2])
    flush(storage)
    storage._release()
    for name in logs_in(disk, PLACES[1]):
        files = dict(disk.files())
        del files[f"{PLACES[1]}/{name}"]
        harmed = MemoryDisk({**files, f"{PLACES[1]}/.made": b""})
        if name == "00000002.elog":
            with pytest.raises(StorageError, match=r"00000002\.elog is missing here"):
                start(harmed)
        else:  # The newest: what it held is in the journal still, and nothing is lost.
            storage = start(harmed)
            assert held(storage, 1) == held(storage, 2) == list(range(1604))
            storage._release()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_directory_that_fails_takes_no_new_entries_while_the_other_serves(error: int) -> None:
    """I53, P7.6: the flush is done once more where there is room, at once; the bookie stays writable."""
    disk, storage = after_a_flush()
    disk.break_device(PLACES[1], error)
    for first in (4, 8):
        put(storage, first)
        flush(storage)
    assert [len(logs_in(disk, each)) for each in PLACES] == [3, 1], "what the first try left is gone"
    assert not storage.is_full()
    assert storage.failed() is None
    assert storage.log_mark() == storage.next_token() - 1
    readable = [each for each in LEDGERS if error == errno.ENOSPC or each not in (1, 9)]
    assert all(held(storage, ledger_id) == list(range(12)) for ledger_id in readable)
    if error == errno.EIO:
        found = storage.read(1, 0, 11, 1 << 20)
        assert ids_in(found.frame) == list(range(4, 12)), "the first entries are on the device that is gone"
        assert found.absent == [], "unreadable, never absent (P7.1)"
    disk.break_device(PLACES[1], 0)
    storage = restarted(disk, storage)
    assert all(held(storage, ledger_id) == list(range(12)) for ledger_id in LEDGERS)
    put(storage, 12)
    flush(storage)
    assert len(logs_in(disk, PLACES[1])) == 2, "a new start uses it again"
    storage._release()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("call", ["open", "rename", "sync_directory"])
def test_a_process_without_descriptors_puts_no_directory_aside(call: str, error: int) -> None:
    """P7.6, P7.8: that the system refused a descriptor or memory for a moment says nothing of a device, so the next
    flush writes to all of them; one had taken no more entries until the next start."""
    disk, storage = after_a_flush()
    put(storage, 4)
    disk.fail(call, error=error)
    with pytest.raises(StorageError, match="no descriptor or memory left"):
        flush(storage)
    assert [each.failure for each in storage._open_store().directories.all] == ["", ""]
    storage.flushes.wait()
    put(storage, 8)
    flush(storage)
    assert [len(logs_in(disk, each)) for each in PLACES] == [3, 3]
    assert all(held(storage, ledger_id) == list(range(12)) for ledger_id in LEDGERS)
    storage._release()


def test_only_when_no_directory_is_left_the_bookie_is_full() -> None:
    """ST26, I53: read-only for want of room when every directory is full, and writable again when one is not."""
    disk = MemoryDisk()
    storage = start(disk)
    put(storage, 0)
    disk.break_device("/b1/entries", errno.ENOSPC)  # Both: the name of the one begins that of the other.
    storage.flushes._freeze()
    storage.flushes._flush()
    assert not storage.finish_flush()
    assert storage.is_full()
    assert logs_in(disk, PLACES[0], stable=False) == logs_in(disk, PLACES[1], stable=False) == []
    disk.break_device("/b1/entries", 0)
    storage.retry_flush()
    assert storage.finish_flush()
    assert not storage.is_full()
    assert all(held(storage, ledger_id) == list(range(4)) for ledger_id in LEDGERS)
    storage._release()


def test_a_directory_that_joins_takes_part_from_the_next_flush_on() -> None:
    """ST21: reads look where the index says, so a ledger lives in several directories after a change."""
    disk = MemoryDisk()
    storage = start(disk, PLACES[:1])
    put(storage, 0)
    flush(storage)
    storage = restarted(disk, storage)
    put(storage, 4)
    flush(storage)
    storage = restarted(disk, storage, [*PLACES, "/b1/entries-3"])
    put(storage, 8)
    flush(storage)
    storage = restarted(disk, storage, [*PLACES, "/b1/entries-3"])
    assert [len(logs_in(disk, each)) for each in (*PLACES, "/b1/entries-3")] == [3, 2, 1]
    assert all(held(storage, ledger_id) == list(range(12)) for ledger_id in LEDGERS)
    assert storage._open_store().reports() == []
    storage._release()


def test_one_log_in_two_directories_is_refused() -> None:
    """I48: an id is never used twice; which of the two is right nobody can tell."""
    disk, storage = after_a_flush()
    storage._release()
    files = disk.files()
    harmed = MemoryDisk({**files, f"{PLACES[1]}/00000001.elog": files[f"{PLACES[0]}/00000001.elog"]})
    with pytest.raises(StorageError, match=r"00000001\.elog is in /b1/entries and in /b1/entries-2"):
        start(harmed)


def test_compaction_copies_over_all_directories_and_deletes_where_the_sources_were() -> None:
    """I47: sources of several directories into one log; a start finds everything."""
    disk = MemoryDisk()
    storage = start(disk)
    for first in (0, 4):
        put(storage, first)
        flush(storage)
    dead = range(2, 9)
    for ledger_id in dead:
        row = storage.table.get(ledger_id)
        assert row is not None
        row.is_fenced = row.is_dropped = 1
        storage.table.mark_dirty(row)
        storage.drop(ledger_id)
    storage.begin_copy([facts.log_id for facts in storage.log_facts()])
    storage.copy_slice(1 << 20)
    assert storage.poll_copy() == (2 * 2 * 4 * (50 + 52), True)
    assert storage.begin_flush_if_due()
    assert storage.finish_flush()
    assert [*logs_in(disk, PLACES[0], stable=False), *logs_in(disk, PLACES[1], stable=False)] == [
        "00000005.elog",
        "00000006.elog",
    ]
    storage = restarted(disk, storage)
    assert held(storage, 1) == held(storage, 9) == list(range(8))
    storage._release()


def test_a_compaction_without_room_goes_elsewhere_the_next_time() -> None:
    """I53: the directory of the first source is full; nothing is lost, and the copy is made in another one."""
    disk = MemoryDisk()
    storage = start(disk)
    for first in (0, 4):
        put(storage, first)
        flush(storage)
    disk.break_device(PLACES[1], errno.ENOSPC)
    storage.begin_copy([2, 4])
    storage.copy_slice(1 << 20)
    with pytest.raises(StorageError, match="No space left"):
        storage.poll_copy()
    storage.begin_copy([2, 4])
    storage.copy_slice(1 << 20)
    assert storage.poll_copy() == (2 * 2 * 4 * (50 + 52), True)
    assert storage.begin_flush_if_due()
    assert storage.finish_flush()
    assert logs_in(disk, PLACES[1], stable=False) == []
    storage = restarted(disk, storage)
    assert held(storage, 1) == held(storage, 9) == list(range(8))
    storage._release()


def test_half_a_flush_takes_no_log_away() -> None:
    """I47, I45: sources of a compaction leave with a flush; if that is cut off in one directory, its roll is nothing,
    and the flush before it, whose logs they are, still holds the mark up to which the journal was trimmed."""
    disk = MemoryDisk()
    storage = start(disk)
    for first in range(0, 1600, 4):
        put(storage, first, [1, 2])
    flush(storage)
    storage.begin_copy([1])
    storage.copy_slice(8 << 20)
    assert storage.poll_copy() is not None
    put(storage, 1600, [1, 2])
    storage.flushes._freeze()
    storage.flushes._flush()  # Logs 4 and 5, told to nobody: their roll is without log 1.
    storage._release()
    disk.drop(f"{PLACES[1]}/00000005.elog")
    storage = start(disk)
    assert held(storage, 1) == held(storage, 2) == list(range(1604))
    assert logs_in(disk, PLACES[0])[0] == "00000001.elog"
    storage._release()


def test_the_scrubber_reads_all_directories() -> None:
    """I55: damage is found with the path of the directory that it is in."""
    disk, storage = after_a_flush()
    path = f"{PLACES[1]}/00000002.elog"
    content = bytearray(disk.read(path))
    content[places_in(content).entries + 60] ^= 1
    disk.put(path, bytes(content))
    found = []
    for _ in range(10):
        assert storage.begin_scrub(1 << 20)
        piece = storage.finish_scrub()
        assert piece is not None
        found += piece.damages
        if piece.is_pass_end:
            break
    assert [damage.path for damage in found] == [path]
    assert (found[0].ledger_id, found[0].first_entry) == (1, 0)
    storage._release()


def test_the_second_reader_agrees_at_every_crash() -> None:
    """I31, I45: the reader in Python, from the page alone, says of every cut-off flush what the store in C says."""
    for call in range(1, 40):
        disk, storage = after_a_flush()
        put(storage, 4)
        storage.flushes._freeze()
        disk.halt(call)
        storage.flushes._flush()
        disk.crash(call)
        storage._release()
        files = disk.files()
        findings = Findings()
        directories = [PictureDirectory(each, files) for each in PLACES]
        logs = EntryLogs(directories, Whose(TOKEN, INCARNATION), findings)
        storage = start(disk)
        assert not logs.is_refused
        assert logs.mark == storage.log_mark()
        for ledger_id in LEDGERS:
            for entry_id in range(4):
                assert logs.verdict(ledger_id, entry_id) is not LogVerdict.ABSENT
        facts = check_bookie([PictureDirectory("/b1/journal", files)], directories, Whose(), findings)
        assert facts.log_mark == storage.log_mark()
        assert findings.damage_count == 0, [str(each) for each in findings.found]
        storage._release()


# --- Which of them take part --------------------------------------------------------------------------------


def test_a_full_directory_rests_and_is_tried_again() -> None:
    """I53: FULL_RESTS flushes go past it; the last one that is left is always tried."""
    directories = Directories(["a", "b"])
    assert directories.choose() == [0, 1]
    assert not directories.has_others(), "whatever failed, it was none of them"
    directories.saw_full(1)
    assert directories.has_others()
    assert [directories.choose() for _ in range(FULL_RESTS)] == [[0]] * FULL_RESTS
    assert directories.choose() == [0, 1]
    directories.saw_full(0)
    directories.saw_full(1)
    assert not directories.has_others()
    assert directories.choose() == [0, 1]
    directories.saw_failure(0, "gone")
    assert directories.choose() == [1]
    directories.saw_failure(1, "gone too")
    assert directories.choose() == [0, 1], "better one that may work than none"


def test_a_directory_with_little_room_is_passed_over_while_another_has_more() -> None:
    """P7.8, ST28: what is below the reserve is kept for what frees room."""
    directories = Directories(["a", "b", "c"])
    low, high = RESERVE_BYTES - 1, RESERVE_BYTES * 2
    for each, free in zip(directories.all, (low, high, high + 1), strict=True):
        each.free_bytes = free
    assert directories.choose() == [1, 2]
    assert directories.free_bytes() == high + 1
    assert (directories.choose_one(1), directories.choose_one(0)) == (1, 2)
    for each in directories.all:
        each.free_bytes = low
    assert directories.choose() == [0, 1, 2]
    assert directories.free_bytes() == low


def test_so_many_directories_are_allowed_as_c_has_room_for(tmp_path: Path) -> None:
    assert lib.EBK_DIRECTORIES_MAX == LEDGER_DIRECTORIES_MAX
    places = [tmp_path / str(number) for number in range(LEDGER_DIRECTORIES_MAX + 1)]
    with pytest.raises(UsageError, match=f"17 ledger directories; at most {LEDGER_DIRECTORIES_MAX}"):
        BookieStorage(tmp_path, "b1", TOKEN, ledger_directories=places)
    storage = BookieStorage(tmp_path, "b1", TOKEN, ledger_directories=places[1:])
    for ledger_id in LEDGERS:
        token = storage.put_frame(make_frame(ledger_id, range(4), size=50))
    storage._open_journals().wait(token)
    storage.close()
    storage = BookieStorage(tmp_path, "b1", TOKEN, ledger_directories=places[1:])
    assert all(held(storage, ledger_id) == list(range(4)) for ledger_id in LEDGERS)
    assert storage.free_bytes() > 0
    storage.close()


def test_a_bookie_all_of_whose_parts_are_elsewhere_keeps_its_notes_in_its_directory(tmp_path: Path) -> None:
    """P7.4: the note of a loss stands where the owner looks for it, whatever the devices are."""
    parts: dict[str, Any] = {
        "journal_directories": [tmp_path / "disk1" / "journal"],
        "ledger_directories": [tmp_path / "disk2" / "ledgers", tmp_path / "disk3" / "ledgers"],
    }
    storage = BookieStorage(tmp_path / "b1", "b1", TOKEN, may_have_lost=True, **parts)
    storage.close()
    assert (tmp_path / "b1" / "MAY_HAVE_LOST").exists()
    storage = BookieStorage(tmp_path / "b1", "b1", TOKEN, **parts)
    assert storage.may_have_lost
    storage.end_loss()
    storage.close()
    storage = BookieStorage(tmp_path / "b1", "b1", TOKEN, **parts)
    assert not storage.may_have_lost
    storage.close()


def test_a_place_for_notes_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="file cannot be made"):
        BookieStorage(
            tmp_path / "file",
            "b1",
            TOKEN,
            journal_directories=[tmp_path / "j"],
            ledger_directories=[tmp_path / "e"],
        )
