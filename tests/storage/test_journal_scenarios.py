"""Known bugs of journals as directed tests; scenario 48 stands in tests/crash/test_journal_salvage.py.

Scenarios 43 and 44 need several journals or several ledger directories.
"""

from __future__ import annotations

import contextlib
import random
from itertools import pairwise

import pytest

from embedbk.codec.journal_records import RecordKind
from embedbk.errors import StorageError
from embedbk.storage.journal import COPY_BYTES_MAX, Journal
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.journal_pages import BLOCK_BYTES, read_file, size_of, table
from tests.storage.stored_entries import make_frame
from tests.storage.test_bookie_storage import SIZE, commit, flush, held, on_memory, put

FILE_BYTES = 65536
KEY = b"k" * 16


def stepped(disk: MemoryDisk) -> Journal:
    return Journal("j", io=disk, threaded=False, file_bytes=FILE_BYTES, identity=b"i" * 16)


def generations(disk: MemoryDisk) -> list[int]:
    return sorted(int(path.rpartition("-")[2], 16) for path in disk.files() if "/journal-" in path)


def test_names_of_files_rise_whatever_is_gone_or_trimmed() -> None:
    """Scenario 40: names come from the names that are there, not from a clock; the newest file is never removed, and
    with it tokens and names go on. Scenario 39, I48: a file that exists is not overwritten."""
    disk = MemoryDisk()
    newest, tokens = 0, 0
    for _ in range(6):
        with stepped(disk) as journal:
            assert journal.next_token() == tokens + 1
            for _ in range(8):
                tokens = journal.append(1, 1, bytes(20_000))
                journal.step()
            journal.trim(tokens)
        found = generations(disk)
        assert found[-1] > newest
        newest = found[-1]
    for path in [f"j/journal-{number:016x}" for number in generations(disk)[:-2]]:
        disk.drop(path)  # Somebody cleared up the old end.
    before = disk.files()
    with stepped(disk) as journal:
        assert journal.next_token() == tokens + 1
        for _ in range(8):
            journal.append(1, 1, bytes(20_000))
            journal.step()
    assert generations(disk)[-1] > newest
    for path, content in before.items():
        if "/journal-" in path:
            assert disk.files().get(path, content)[:BLOCK_BYTES] == content[:BLOCK_BYTES]


@pytest.mark.parametrize("is_flushed", [False, True])
def test_the_key_of_a_ledger_lives_as_long_as_its_entries(is_flushed: bool) -> None:
    """Scenario 41: the record of a new ledger stands in the journal, the mark moves past it, the power goes: the key is
    there. Scenario 42: it was only in memory and in the journal: it is there as well, also after a second restart."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    row = bookie.table.create(5)
    bookie.table.set_key(row, KEY)
    bookie.table.mark_dirty(row)
    bookie.append(RecordKind.BIRTH, 5, KEY)
    put(bookie, 5, range(4))
    commit(bookie)
    if is_flushed:
        flush(bookie)
        assert bookie.log_mark() == 2
    for _ in range(3):
        disk.crash()
        bookie = on_memory(disk)
        row = bookie.table.get(5)
        assert row is not None
        assert bookie.table.key(row) == KEY
        assert held(bookie, 5) == list(range(4))


def test_the_smallest_mark_covers_nothing_and_marks_compare_as_numbers() -> None:
    """Scenario 45: mark 0 sorts before every record; a replay above mark m begins with m + 1, for every m."""
    disk = MemoryDisk()
    with stepped(disk) as journal:
        for _ in range(40):
            last = journal.append(1, 1, bytes(5000))
            journal.step()
    with stepped(disk) as journal:
        for mark in range(last + 1):
            assert [token for token, *_ in journal.replay(mark)] == list(range(mark + 1, last + 1))


def test_restarts_without_new_writes_lose_nothing_when_old_files_go() -> None:
    """Scenario 46: replay without new writes, a clean stop, twice; the mark is the end of the replay then, and a third
    start needs no older file."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    for number in range(12):
        put(bookie, 5, range(number * 4, number * 4 + 4))
        commit(bookie)
    last = bookie.next_token() - 1
    disk.crash()
    for _ in range(2):
        bookie = on_memory(disk)
        assert bookie.next_token() == last + 1
        bookie.close()
    bookie = on_memory(disk)
    assert bookie.log_mark() == last
    bookie.close()
    used = [path for path in sorted(disk.files()) if "/journal-" in path and read_file(disk.read(path))[1]]
    for path in used[:-1]:  # The newest one with records says where tokens go on.
        disk.drop(path)
    bookie = on_memory(disk)
    assert bookie.next_token() == last + 1
    assert held(bookie, 5) == list(range(48))


@pytest.mark.parametrize("size", [0, 1, 2**31 - 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("is_last", [True, False])
def test_a_length_of_any_value_is_a_tail_or_damage_and_never_followed(size: int, is_last: bool) -> None:
    """Scenario 47: in the last group it ends the journal; before the end it is damage. Nothing of the claimed size is
    read or allocated (under the sanitizers in tests/crash as well)."""
    disk = MemoryDisk()
    with stepped(disk) as journal:
        for _ in range(3):
            journal.append(1, 1, bytes(300))
            journal.step()
    path = "j/journal-0000000000000001"
    groups = read_file(disk.read(path))[1]
    group = groups[-1 if is_last else 1]
    content = bytearray(disk.read(path))
    at = group.position + size_of("group") + table("record")["size"][0]
    content[at : at + 4] = size.to_bytes(4, "little")
    disk.put(path, bytes(content))
    if is_last:
        with stepped(disk) as journal:
            assert [token for token, *_ in journal.replay(0)] == [1, 2]
    else:
        with pytest.raises(StorageError, match="a group is not what was written"):
            stepped(disk)


def test_a_cut_inside_a_length_is_a_tail() -> None:
    """Scenario 47: each byte of the length field of the last record."""
    disk = MemoryDisk()
    with stepped(disk) as journal:
        for _ in range(2):
            journal.append(1, 1, bytes(300))
            journal.step()
    path = "j/journal-0000000000000001"
    content = disk.read(path)
    last = read_file(content)[1][-1]
    at = last.position + size_of("group") + table("record")["size"][0]
    for cut in range(at, at + 5):
        torn = MemoryDisk({**disk.files(), path: content[:cut] + bytes(len(content) - cut)})
        with stepped(torn) as journal:
            assert [token for token, *_ in journal.replay(0)] == [1]


def test_old_bytes_behind_the_end_that_look_like_records_are_not_replayed() -> None:
    """Scenario 49: a recycled file holds whole groups of its earlier use, and the bodies of new records are copies of
    groups, at places where a group might begin; sum, generation and position tell all of them apart."""
    disk = MemoryDisk()
    journal = stepped(disk)
    for _ in range(80):
        journal.append(1, 1, bytes(9000))
        while journal.step():
            pass
        journal.trim(journal.durable())
    path = f"j/journal-{journal.facts().generation:016x}"
    stolen = disk.read(path)[BLOCK_BYTES : 4 * BLOCK_BYTES]
    head = BLOCK_BYTES - size_of("group") - size_of("record")  # Then the copy begins at a block.
    journal.append(1, 1, bytes(head) + stolen)
    while journal.step():
        pass
    last = journal.durable()
    journal.close()
    content = disk.read(f"j/journal-{generations(disk)[-1]:016x}")
    assert content.count(b"EBKG") > len(read_file(content)[1])
    with stepped(disk) as journal:
        assert journal.next_token() == last + 1
        tokens = [token for token, *_ in journal.replay(journal.facts().first_token - 1)]
        assert tokens[-1] == last
        assert all(after == before + 1 for before, after in pairwise(tokens))


def test_a_caller_may_use_its_buffer_again_at_once() -> None:
    """Scenario 50, I52: what was in the buffer at the call is stored, in the journal and in entry logs."""
    disk = MemoryDisk()
    chance = random.Random(3)
    with stepped(disk) as journal:
        sent = []
        buffer = bytearray(4 * COPY_BYTES_MAX)
        for size in (1, COPY_BYTES_MAX, COPY_BYTES_MAX + 1, 4 * COPY_BYTES_MAX):
            buffer[:size] = chance.randbytes(size)
            sent.append(bytes(buffer[:size]))
            journal.append(1, 1, memoryview(buffer)[:size])
            buffer[:] = b"\xee" * len(buffer)
        while journal.step():
            pass
    with stepped(disk) as journal:
        assert [bytes(body) for *_, body in journal.replay(0)] == sent
    disk = MemoryDisk()
    bookie = on_memory(disk)
    row = bookie.table.create(5)
    row.last_entry = 3
    bookie.table.mark_dirty(row)
    frame = make_frame(5, range(4), size=SIZE, lac=-1)
    borrowed = bytearray(frame.body)
    bookie.put_frame(type(frame)(5, 0, 3, 4, frame.length, memoryview(borrowed)))
    borrowed[:] = b"\xee" * len(borrowed)
    commit(bookie)
    assert held(bookie, 5) == list(range(4))
    flush(bookie)
    disk.crash()
    assert held(on_memory(disk), 5) == list(range(4))


def test_no_file_holds_what_is_durable_before_its_name_is() -> None:
    """I49: at every acknowledgement, what a power cut would leave now replays to exactly that, by name too."""
    disk = MemoryDisk()
    journal = stepped(disk)
    for _ in range(60):
        journal.append(1, 1, bytes(7000))
        journal.step()
        with stepped(MemoryDisk(disk.files(stable=True))) as left:
            assert left.durable() == journal.durable()
            assert len(list(left.replay(0))) == journal.durable()
    assert journal.facts().generation > 5
    journal.close()


def test_a_file_of_a_killed_process_has_its_name_for_good_before_it_is_used() -> None:
    """I49: a process is killed at any call; the next one tells that records are durable, and the power goes. They
    are there, also where their file got its name from the process before, which did not sync it."""
    for call in range(1, 60):
        disk = MemoryDisk()
        disk.halt(call)
        with contextlib.suppress(StorageError), stepped(disk) as journal:
            for _ in range(6):
                journal.append(1, 1, bytes(20_000))
                journal.step()
                journal.step()  # Makes the next file.
        disk.kill()
        journal = stepped(disk)
        for _ in range(3):
            journal.append(1, 1, bytes(20_000))
            journal.step()
        durable = journal.durable()
        assert durable == journal.next_token() - 1
        disk.crash()
        journal.close()
        with stepped(disk) as journal:
            assert journal.next_token() - 1 == durable, call
