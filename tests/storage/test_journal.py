"""The journal's face: tokens, completions, restart, trimming, refusals. Crash tests stand in tests/crash."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import select
import warnings

import pytest

from embedbk.errors import StorageError, UsageError
from embedbk.storage.journal import COPY_BYTES_MAX, SLOT_COUNT, Journal
from embedbk.storage.memory_disk import MemoryDisk

FILE_BYTES = 65536


@pytest.fixture
def disk():
    return MemoryDisk()


def stepped(disk, **settings):
    """A journal without threads on a disk in memory: the same commit, one step at a time."""
    settings = {"file_bytes": FILE_BYTES, "identity": b"i" * 16, **settings}
    return Journal("j", io=disk, threaded=False, **settings)


def drain(journal):
    while journal.step():
        pass
    return journal.durable()


def contents(journal, after=0):
    return [(token, kind, ledger_id, bytes(body)) for token, kind, ledger_id, body in journal.replay(after)]


# --- Writing and completions -------------------------------------------------------------------------------


def test_nothing_is_durable_before_its_group_is_written(disk):
    """P3.2: durable() answers for the device, not for the queue."""
    journal = stepped(disk)
    assert [journal.append(1, 7, b"a"), journal.append(1, 7, b"b")] == [1, 2]
    assert journal.durable() == 0
    assert journal.queued_bytes() == 2
    assert journal.step() == 2  # One group: whatever has arrived goes with one write.
    assert journal.durable() == 2
    assert journal.queued_bytes() == 0
    journal.close()


def test_a_group_is_one_write_and_no_sync(disk):
    """O_DSYNC makes the write itself durable."""
    journal = stepped(disk)
    writes, syncs = disk.calls("write"), disk.calls("sync")
    for size in (0, 1, 100, 5000):
        journal.append(1, 7, bytes(size))
    journal.step()
    assert (disk.calls("write"), disk.calls("sync")) == (writes + 1, syncs)
    journal.close()


def test_records_come_back_as_they_were(disk):
    sizes = [0, 1, 7, 8, 9, COPY_BYTES_MAX, COPY_BYTES_MAX + 1, 4000, 4096, 30000]
    journal = stepped(disk)
    written = [
        (journal.append(kind, 2**63 - 1 - kind, bytes([kind]) * size), kind, size)
        for kind, size in enumerate(sizes)
    ]
    drain(journal)
    journal.close()
    with stepped(disk) as journal:
        expected = [(token, kind, 2**63 - 1 - kind, bytes([kind]) * size) for token, kind, size in written]
        assert contents(journal) == expected


def test_tokens_rise_across_restarts_and_replay_begins_behind_the_mark(disk):
    """A token is also the log mark: it means the same record for ever."""
    for round_ in range(3):
        with stepped(disk) as journal:
            assert journal.next_token() == 1 + 2 * round_
            journal.append(1, round_, b"first")
            journal.append(1, round_, b"second")
            drain(journal)
    with stepped(disk) as journal:
        assert [token for token, *_ in contents(journal)] == [1, 2, 3, 4, 5, 6]
        assert [token for token, *_ in contents(journal, after=3)] == [4, 5, 6]
        assert contents(journal, after=6) == []
        assert journal.durable() == 6


def test_close_commits_what_is_queued(disk):
    with stepped(disk) as journal:
        journal.append(1, 7, b"late")
    with stepped(disk) as journal:
        assert [body for *_, body in contents(journal)] == [b"late"]


def test_a_mutable_body_is_copied_unless_it_is_borrowed(disk):
    """I52: the caller scribbles over its buffer right after the call."""
    journal = stepped(disk)
    for size in (10, COPY_BYTES_MAX + 1):
        body = bytearray(b"a" * size)
        journal.append(1, 7, body)
        body[:] = b"z" * size
    drain(journal)
    assert {
        bytes(body[:1]) for *_, body in journal.replay(0)
    } == set()  # Replay shows what was there at open.
    journal.close()
    with stepped(disk) as journal:
        assert {bytes(body[:1]) for *_, body in journal.replay(0)} == {b"a"}


def test_a_borrowed_body_that_changes_does_not_break_the_journal(disk):
    """Sums are taken over the copy that is written: a broken promise costs its own record, not the journal."""
    journal = stepped(disk)
    body = bytearray(b"a" * 1000)
    journal.append(1, 7, body, borrowed=True)
    with pytest.raises(BufferError):
        body.clear()  # Pinned until durable.
    body[:] = b"z" * 1000
    drain(journal)
    body.clear()
    journal.close()
    with stepped(disk) as journal:
        assert contents(journal)[0][3] == b"z" * 1000


def test_every_slot_taken_is_a_definite_refusal(disk):
    """The queue is bounded; nothing of the refused record is queued."""
    journal = stepped(disk, file_bytes=1 << 20)
    for _ in range(SLOT_COUNT):
        journal.append(1, 7, b"")
    with pytest.raises(StorageError, match="wait to be written") as caught:
        journal.append(1, 7, b"")
    assert caught.value.definite
    count = journal.next_token() - 1
    assert drain(journal) == count == SLOT_COUNT
    assert journal.append(1, 7, b"") == count + 1
    journal.close()


@pytest.mark.parametrize(
    ("kind", "ledger_id", "size"),
    [(65536, 1, 1), (-1, 1, 1), (1, -1, 1), (1, 1, FILE_BYTES), (1, 1, 1 << 22)],
)
def test_a_record_out_of_bounds_is_refused_with_the_bounds(disk, kind, ledger_id, size):
    with stepped(disk) as journal:
        with pytest.raises(UsageError, match=r"allowed are|must not be negative"):
            journal.append(kind, ledger_id, bytes(size))
        assert journal.append(1, 1, b"still works") == 1


def test_a_group_stays_below_its_cap(disk):
    """At most 1 MiB goes with one write, so that one sync does not delay all."""
    journal = stepped(disk, file_bytes=4 << 20)
    for _ in range(30):
        journal.append(1, 7, bytes(100_000), borrowed=True)
    assert journal.step() == 10
    assert journal.step() == 10
    journal.close()


def test_the_largest_record_fits_a_group_alone(disk):
    journal = stepped(disk, file_bytes=4 << 20)
    journal.append(1, 7, bytes(1179648))
    journal.append(1, 7, b"next")
    assert journal.step() == 1
    assert journal.step() == 1
    journal.close()


# --- Files -------------------------------------------------------------------------------------------------


def fill_files(journal, count):
    """Append until `count` more files were begun; returns the last token."""
    target = journal.facts().generation + count
    while journal.facts().generation < target:
        journal.append(1, 7, bytes(20000))
        drain(journal)
    return journal.durable()


def test_a_file_is_prepared_before_it_is_needed(disk):
    """Never on the commit path: an idle step makes the next file, the roll is then no call at all."""
    journal = stepped(disk)
    assert journal.step() == 0
    assert journal.facts().is_file_ready
    fill_files(journal, 1)
    assert journal.facts().is_file_ready
    journal.close()


def test_trimmed_files_are_written_again_in_place(disk):
    """P7.5: the journal stays small, and only files wholly below the mark are used again."""
    journal = stepped(disk)
    for _ in range(6):
        journal.trim(fill_files(journal, 1))
    allocations = disk.calls("allocate")
    for _ in range(6):
        journal.trim(fill_files(journal, 1))
    assert disk.calls("allocate") == allocations
    assert len(disk.files()) <= 5
    last = journal.durable()
    journal.close()
    with stepped(disk) as journal:
        assert journal.next_token() == last + 1


def test_excess_trimmed_files_are_unlinked(disk):
    journal = stepped(disk)
    last = fill_files(journal, 10)
    journal.trim(last)
    assert journal.facts().trimmed_count <= 2
    journal.close()


def test_a_large_file_that_is_dropped_gives_its_room_back_in_pieces(disk):
    """A file system that tells the device what is free does so in one command for what is freed at once, and no
    commit goes past that."""
    journal = stepped(disk, file_bytes=5 << 20)
    last = fill_files(journal, 5)
    assert disk.calls("shrink") == 0
    journal.trim(last)
    assert journal.facts().trimmed_count == 2
    assert disk.calls("shrink") == 2 * 3, "three files of 5 MiB, by 2 MiB"
    journal.close()


def test_no_power_cut_leaves_a_part_of_a_file_that_was_dropped(disk):
    """Rule P7.5: a journal's file is whole or gone, at every call of dropping it: a part of one would be damage."""
    settings = {"file_bytes": 3 << 20}
    with stepped(disk, **settings) as journal:
        last = fill_files(journal, 4)
    files, cut, is_over = disk.files(), 0, False
    while not is_over:
        cut += 1
        disk = MemoryDisk(files)
        journal = stepped(disk, **settings)
        calls = disk.calls()
        disk.halt(cut)
        journal.trim(last)
        is_over = disk.calls() - calls < cut
        journal.close()
        disk.crash(seed=cut)
        with stepped(disk, **settings) as journal:  # Refused if a file is cut short.
            assert journal.next_token() == last + 1
    assert cut > 2 * 3, "two files, each by an unlink, the directory's sync and a shrink"


def test_trimming_keeps_every_record_above_the_mark(disk):
    journal = stepped(disk)
    last = fill_files(journal, 5)
    journal.trim(last - 4)
    drain(journal)
    journal.close()
    with stepped(disk) as journal:
        assert [token for token, *_ in contents(journal, after=last - 4)] == [
            last - 3,
            last - 2,
            last - 1,
            last,
        ]


@pytest.mark.parametrize("above", [5, 20, 80])
def test_a_file_with_a_record_above_the_mark_is_never_used_again(disk, above):
    """Rule P7.5: trimmed files are written over soon; one that holds a single record above the mark is none of them."""
    journal = stepped(disk)
    mark = max(0, fill_files(journal, 5) - above)
    journal.trim(mark)
    end = fill_files(journal, 6)
    drain(journal)
    journal.close()
    with stepped(disk) as journal:
        assert [token for token, *_ in contents(journal, after=mark)] == list(range(mark + 1, end + 1))


def test_replay_below_what_was_trimmed_is_refused(disk):
    """P7.1: a record that is gone is never passed over in silence."""
    journal = stepped(disk)
    journal.trim(fill_files(journal, 8))
    drain(journal)
    journal.close()
    with stepped(disk) as journal, pytest.raises(StorageError, match="oldest record"):
        journal.replay(0)


def test_a_journal_that_ends_below_the_mark_is_refused(disk):
    """#544: an empty journal directory beside entry logs that know of records is not a new bookie."""
    with stepped(disk) as journal:
        assert list(journal.replay(0)) == []
        with pytest.raises(StorageError, match="below the log mark 5"):
            journal.replay(5)


def test_the_bound_on_files_makes_what_is_queued_wait_for_a_trim(disk):
    """I53: nothing of it was promised, so nothing has to end."""
    journal = stepped(disk, file_count_max=3)
    for _ in range(40):
        journal.append(1, 7, bytes(20000))
        journal.step()
    assert journal.failed() is None
    assert journal.is_next_refused()
    durable = journal.durable()
    assert durable < 40
    with pytest.raises(StorageError, match="no room for what is queued"):
        journal.wait(40)
    while journal.durable() < 40:
        journal.trim(journal.durable())
        journal.step()
    assert not journal.is_next_refused()
    journal.close()
    with stepped(disk, file_count_max=3) as journal:
        assert journal.next_token() == 41


def test_files_of_another_size_are_read_and_replaced(disk):
    """The size of a file is a setting of files to come."""
    with stepped(disk) as journal:
        fill_files(journal, 2)
    with stepped(disk, file_bytes=2 * FILE_BYTES) as journal:
        for _ in range(8):
            journal.trim(fill_files(journal, 1))
        last = journal.durable()
    assert {len(content) for path, content in disk.files().items() if "journal-" in path} == {2 * FILE_BYTES}
    with stepped(disk) as journal:
        assert journal.next_token() == last + 1


def test_files_grow_with_what_is_written(disk):
    """An idle journal stays small; a busy one gets large files, which are recycled once they all are."""
    settings = {"file_bytes": 8 * FILE_BYTES, "first_file_bytes": FILE_BYTES}
    sizes = []
    with stepped(disk, **settings) as journal:
        while journal.facts().generation < 8:
            journal.trim(fill_files(journal, 1))
            sizes.append(len(disk.read(f"j/journal-{journal.facts().generation:016x}")) // FILE_BYTES)
        allocations = disk.calls("allocate")
        for _ in range(6):
            journal.trim(fill_files(journal, 1))
        assert disk.calls("allocate") == allocations
        last = journal.durable()
    assert sizes == [2, 4, 8, 8, 8, 8, 8]
    assert {len(content) for path, content in disk.files().items() if "journal-" in path} == {8 * FILE_BYTES}
    with stepped(disk, **settings) as journal:
        assert journal.next_token() == last + 1
        assert journal.facts().file_count <= 4


# --- Failure -----------------------------------------------------------------------------------------------


def test_a_failed_write_is_final(disk):
    """P7.6: it stops acknowledging, says why, and never tries again; what was durable stays."""
    journal = stepped(disk)
    journal.append(1, 7, b"kept")
    drain(journal)
    disk.fail("write", error=errno.EIO)
    journal.append(1, 7, b"lost")
    assert journal.step() == 0
    assert "could not be written" in journal.failed()
    assert "errno 5" in journal.failed()
    writes = disk.calls("write")
    assert journal.step() == 0
    assert disk.calls("write") == writes
    assert journal.durable() == 1
    with pytest.raises(StorageError, match="could not be written") as caught:
        journal.append(1, 7, b"more")
    assert not caught.value.definite
    journal.close()
    disk.crash()
    with stepped(disk) as journal:
        assert [body for *_, body in contents(journal)] == [b"kept"]
        assert journal.append(1, 7, b"again") == 2


def test_a_failed_sync_is_final_and_not_retried(disk):
    """P7.6, without direct I/O: the pages of a failed sync are undefined."""
    disk.refuse_direct()
    journal = stepped(disk)
    journal.append(1, 7, b"lost")
    disk.fail("sync", error=errno.EIO)
    journal.step()
    assert "could not be synced" in journal.failed()
    syncs = disk.calls("sync")
    journal.step()
    assert disk.calls("sync") == syncs
    assert journal.durable() == 0
    journal.close()


def test_a_failed_sync_of_a_note_is_final_whatever_its_error(disk):
    """P7.6: also want of room. The write of a note may find none and wait; its sync is not made once more."""
    disk.refuse_direct()
    journal = stepped(disk)
    journal.step()  # The next file is there.
    for _ in range(FILE_BYTES // 4096 - 1):
        journal.append(1, 7, bytes(4000))
        journal.step()
    durable = journal.durable()
    journal.append(1, 7, b"the first record of the next file")
    disk.fail("sync", error=errno.ENOSPC)
    journal.step()
    assert "could not be noted: No space left" in journal.failed()
    syncs = disk.calls("sync")
    journal.step()
    assert (disk.calls("sync"), journal.durable()) == (syncs, durable)
    journal.close()


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("call", ["open", "write", "sync", "allocate", "rename", "sync_directory"])
def test_a_next_file_that_cannot_be_made_is_told_before_it_is_needed(disk, call, nth):
    """I53: the file in use is the reserve; when it is full as well, the journal stops with the reason."""
    journal = stepped(disk)
    disk.fail(call, nth=nth, error=errno.ENOSPC, stays=True)
    journal.step()
    if nth == 2 and call in {"sync", "allocate", "rename", "sync_directory"}:
        assert journal.facts().is_file_ready  # Made once for a new file.
        journal.close()
        return
    assert "No space left" in journal.facts().prepare_failure
    disk.fail(call, nth=0)
    assert journal.append(1, 7, b"a reserve is left") == 1
    assert drain(journal) == 1
    journal.trim(0)  # The host made room: the next idle step tries again.
    journal.step()
    assert journal.facts().is_file_ready
    assert fill_files(journal, 2) > 1
    journal.close()
    with stepped(disk) as journal:
        assert len(contents(journal)) == journal.next_token() - 1


def test_a_next_file_stays_refused_while_it_is_tried_again(disk):
    """Rule P7.8, ST27: a try that runs is no success, so the list of bookies does not turn back and forth with it."""
    journal = stepped(disk)
    disk.fail("allocate", error=errno.ENOSPC, stays=True)
    journal.step()
    for _ in range(3):
        journal.trim(0)
        assert journal.is_next_refused()
        journal.step()
        assert journal.is_next_refused()
    disk.fail("allocate", nth=0)
    journal.trim(0)
    assert journal.is_next_refused()
    journal.step()
    assert not journal.is_next_refused()
    journal.close()


@pytest.mark.parametrize("ends", ["room", "close", "crash"])
@pytest.mark.parametrize("call", ["allocate", "write"])
def test_what_finds_no_room_waits_and_goes_on_when_there_is_some(disk, call, ends):
    """I53, P7.6: at the end of its file or in its midst; nothing durable is concerned, and nothing is given up."""
    journal = stepped(disk)
    journal.append(1, 7, b"before")
    drain(journal)
    disk.fail(call, error=errno.ENOSPC, stays=True)
    bodies = [bytes([number]) * 20000 for number in range(10)]
    for body in bodies:
        journal.append(1, 7, body)
        journal.step()
    durable = journal.durable()
    assert 1 <= durable < 8
    assert journal.failed() is None
    assert journal.is_next_refused() and journal.facts().prepare_failure is not None
    with pytest.raises(StorageError, match="no room for what is queued"):
        journal.wait(11)
    if ends == "close":
        journal.close()
    disk.fail(call, nth=0)
    if ends == "crash":
        disk.crash(seed=3)
        with contextlib.suppress(StorageError):
            journal.close()
    if ends != "room":
        with stepped(disk) as journal:
            assert len(contents(journal)) == durable
        return
    while journal.durable() < 11:
        assert journal.step() > 0
    journal.append(1, 7, b"behind")
    drain(journal)
    assert not journal.is_next_refused()
    journal.close()
    with stepped(disk) as journal:
        assert [body for *_, body in contents(journal)] == [b"before", *bodies, b"behind"]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_finds_no_descriptor_for_the_next_file_waits_as_well(disk, error):
    """I53, P7.6: nothing of what is queued was promised, and what is wanting is this process's."""
    journal = stepped(disk)
    disk.fail("open", error=error, stays=True)
    bodies = [bytes([number]) * 20000 for number in range(10)]
    for body in bodies:
        journal.append(1, 7, body)
        journal.step()
    assert 1 <= journal.durable() < 10
    assert journal.failed() is None
    assert journal.is_next_refused()
    with pytest.raises(StorageError, match=f"no room for what is queued: it waits .*{os.strerror(error)}"):
        journal.wait(10)
    disk.fail("open", nth=0)
    while journal.durable() < 10:
        assert journal.step() > 0
    assert not journal.is_next_refused()
    journal.close()
    with stepped(disk) as journal:
        assert [body for *_, body in contents(journal)] == bodies


def test_a_thread_that_finds_no_room_goes_on_by_itself(disk):
    """I53: nobody has to start it again, also where groups were built ahead; who waits meanwhile is told."""
    with Journal("j", io=disk, file_bytes=8 << 20) as journal:
        journal.wait(journal.append(1, 7, b"before"))
        disk.fail("write", error=errno.ENOSPC, stays=True)
        for number in range(12):
            journal.append(1, 7, bytes([number]) * 200_000)
        with pytest.raises(StorageError, match="no room for what is queued"):
            journal.wait(13)
        assert (journal.durable(), journal.failed()) == (1, None)
        disk.fail("write", nth=0)
        while journal.durable() < 13:
            select.select([journal.fileno()], [], [])
        assert journal.failed() is None
    with Journal("j", io=disk, file_bytes=8 << 20) as journal:
        assert [body[:1] for *_, body in journal.replay(1)] == [bytes([number]) for number in range(12)]


def test_a_journal_opens_on_a_device_without_a_free_block(disk):
    """I53: what was durable is served; its file has room for fences, and the next one waits."""
    with stepped(disk) as journal:
        journal.append(1, 7, b"kept")
        drain(journal)
        was_direct = journal.direct
    disk.limit(1)
    with stepped(disk) as journal:
        assert journal.direct == was_direct
        assert [body for *_, body in contents(journal)] == [b"kept"]
        journal.append(2, 7, b"a fence")
        assert drain(journal) == 2
        assert journal.failed() is None


@pytest.mark.parametrize(("at_open", "at_write"), [(True, False), (False, True)])
def test_a_file_system_that_refuses_direct_io_is_used_with_syncs_and_a_warning(
    disk, caplog, at_open, at_write
):
    disk.refuse_direct(at_open=at_open, at_write=at_write)
    with stepped(disk) as journal:
        assert not journal.direct
        assert journal.facts().sync_method == "fdatasync"
        assert "refuses direct I/O" in caplog.text
        syncs = disk.calls("sync")
        journal.append(1, 7, b"x")
        assert drain(journal) == 1
        assert disk.calls("sync") > syncs
    disk.crash()
    with stepped(disk) as journal:
        assert len(contents(journal)) == 1


@pytest.mark.parametrize(
    "call", ["open", "read", "write", "sync", "allocate", "rename", "sync_directory", "list"]
)
def test_opening_survives_any_call_that_fails(disk, call):
    """Each call of a first and of a second open fails in turn: a clear error, nothing left open, and nothing lost."""
    with stepped(disk) as journal:
        journal.append(1, 7, b"kept")
    refusals = []
    for image in ({}, disk.files()):
        for nth in range(1, 20):
            broken = MemoryDisk(image)
            broken.fail(call, nth=nth)
            try:
                stepped(broken).close()
            except StorageError as error:
                refusals.append(error)
            broken.fail(call, nth=0)
            with stepped(broken) as journal:  # The lock was given back.
                assert len(contents(journal)) == (1 if image else 0)
    assert refusals
    assert all("errno 5" in str(error) and error.hint for error in refusals)


# --- Directories of others ---------------------------------------------------------------------------------


def test_a_directory_opened_twice_is_an_error_that_says_so(disk, tmp_path):
    for settings in ({"io": disk, "threaded": False}, {}):
        path = "j" if settings else tmp_path / "j"
        first = Journal(path, file_bytes=FILE_BYTES, **settings)
        with pytest.raises(StorageError, match="another handle or process has it open"):
            Journal(path, file_bytes=FILE_BYTES, **settings)
        first.close()
        Journal(path, file_bytes=FILE_BYTES, **settings).close()


def test_a_file_that_is_no_journal_is_refused(disk):
    disk.put("j/journal-0000000000000001", b"something else" * 8000)
    with pytest.raises(StorageError, match="does not begin as a journal"):
        stepped(disk)


def test_a_name_that_no_journal_gives_is_refused(disk):
    disk.put("j/journal-latest", b"")
    with pytest.raises(StorageError, match="journal-latest") as refused:
        stepped(disk)
    assert "move files that are not this journal's out of its directory" in refused.value.hint


def test_a_file_of_another_journal_is_refused(disk):
    """The identity in each header ties a file to its journal, whatever its name says."""
    other = MemoryDisk()
    with stepped(other, identity=b"o" * 16) as journal:
        fill_files(journal, 1)
    with stepped(disk) as journal:
        journal.append(1, 7, b"x")
    disk.put("j/journal-0000000000000002", other.read("j/journal-0000000000000002"))
    with pytest.raises(StorageError, match="belongs to another journal"):
        stepped(disk)


def test_a_replay_that_was_left_does_not_outlive_its_journal(disk):
    """A traceback may keep the loop; what it read from is given back with the journal all the same."""
    with stepped(disk) as journal:
        journal.append(1, 7, b"x")
    journal = stepped(disk)
    records = journal.replay(0)
    next(records)
    journal.close()
    with pytest.raises(StorageError, match="is closed"):
        next(records)


def test_a_renamed_file_is_refused(disk):
    with stepped(disk) as journal:
        journal.append(1, 7, b"x")
    disk.put("j/journal-0000000000000009", disk.read("j/journal-0000000000000001"))
    with pytest.raises(StorageError, match="was renamed"):
        stepped(disk)


def test_an_unknown_version_is_refused_with_its_number(disk):
    """Every format carries a version; the header's checksum is right, only the number is from the future."""
    from embedbk.storage.native import ffi, lib

    with stepped(disk):
        pass
    content = bytearray(disk.read("j/journal-0000000000000001"))
    content[8:10] = (7).to_bytes(2, "little")
    content[0:4] = lib.ebk_crc32c(0, ffi.from_buffer(content)[4:64], 60).to_bytes(4, "little")
    disk.put("j/journal-0000000000000001", bytes(content))
    with pytest.raises(StorageError, match="version 7; this program knows 1"):
        stepped(disk)


def test_a_missing_parent_and_an_unreadable_place_are_said(tmp_path):
    with pytest.raises(StorageError, match="No such file or directory"):
        Journal(tmp_path / "missing" / "j")
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StorageError, match="Not a directory"):
        Journal(tmp_path / "file")


@pytest.mark.parametrize(
    "settings",
    [
        {"file_bytes": 4096},
        {"file_bytes": 100_000},
        {"file_count_max": 2},
        {"first_file_bytes": 5000},
        {"file_bytes": 5 << 30, "first_file_bytes": FILE_BYTES},
    ],
)
def test_settings_out_of_bounds_name_what_is_allowed(disk, settings):
    with pytest.raises(UsageError, match="allowed is"):
        stepped(disk, **settings)


def test_files_of_others_in_the_directory_are_left_alone(disk):
    disk.put("j/IDENT", b"bookie")
    with stepped(disk) as journal:
        fill_files(journal, 2)
    assert disk.read("j/IDENT") == b"bookie"


# --- Threads, on the real disk -------------------------------------------------------------------------------


def test_the_commit_thread_makes_records_durable_and_says_so(tmp_path):
    journal = Journal(tmp_path / "j", file_bytes=FILE_BYTES)
    for _ in range(50):
        token = journal.append(1, 7, b"x" * 3000)
        readable, _, _ = select.select([journal.fileno()], [], [], 10)
        assert readable
        while journal.durable() < token:
            select.select([journal.fileno()], [], [], 10)
    assert journal.failed() is None
    journal.close()
    with Journal(tmp_path / "j", file_bytes=FILE_BYTES) as journal:
        assert len(contents(journal)) == 50


def test_a_threaded_journal_rolls_and_recycles_while_it_is_full_of_work(tmp_path):
    journal = Journal(tmp_path / "j", file_bytes=FILE_BYTES)
    body = os.urandom(9000)
    for _ in range(300):
        token = journal.append(1, 7, body, kick=False)
        if token % 20 == 0:
            journal.wait(token)
            journal.trim(journal.durable())
    journal.close()  # Commits the rest, rolling as it goes.
    with Journal(tmp_path / "j", file_bytes=FILE_BYTES) as journal:
        assert journal.next_token() == 301
        assert all(record[3] == body for record in contents(journal, after=journal.facts().first_token - 1))
        assert len(os.listdir(tmp_path / "j")) < 12


def test_groups_that_are_built_ahead_keep_their_order(disk):
    """I40: the next group is built while one is written; records become durable in order, one write at a time.

    Judged from where everything is queued, however many groups were written by then: only the first one, and the first
    of each file, has none before it that it could be built beside."""
    journal = Journal("j", io=disk, file_bytes=4 << 20)
    bodies = [token.to_bytes(4, "little") * 256 for token in range(1, 12_001)]
    seen = 0
    for body in bodies:
        journal.append(1, 7, body, kick=False)
    before = journal.facts()
    journal.kick()
    while seen < len(bodies):
        select.select([journal.fileno()], [], [], 10)
        assert journal.durable() >= seen
        seen = journal.durable()
    after = journal.facts()
    alone = (after.group_count - before.group_count) - (after.overlap_count - before.overlap_count)
    assert alone <= after.generation - before.generation + 2
    journal.close()
    with Journal("j", io=disk, file_bytes=4 << 20, threaded=False) as journal:
        assert [bytes(body) for *_, body in journal.replay(0)] == bodies


@pytest.mark.parametrize("nth", [1, 2, 3, 7])
def test_a_failed_write_keeps_the_group_that_was_built_ahead(disk, nth):
    """P7.6, I50: what is built behind a group that was not written never reaches the device, nor an acknowledgement."""
    with Journal("j", io=disk, file_bytes=16 << 20, threaded=False) as journal:
        journal.step()  # The next file is there: the writes below are groups.
    journal = Journal("j", io=disk, file_bytes=16 << 20)
    disk.fail("write", nth=nth, stays=False)
    with pytest.raises(
        StorageError, match="could not be written"
    ):  # Said by an append already, or by the wait.
        journal.wait([journal.append(1, 7, bytes(1024), kick=False) for _ in range(12_000)][-1])
    durable = journal.durable()
    journal.close()
    disk.fail("write", nth=0)
    disk.crash()
    with Journal("j", io=disk, file_bytes=16 << 20, threaded=False) as journal:
        assert journal.durable() == durable
        assert len(contents(journal)) == durable


def test_a_failure_in_the_thread_wakes_the_host(disk):
    journal = Journal("j", io=disk, file_bytes=FILE_BYTES)
    disk.fail("write", stays=True)
    token = journal.append(1, 7, b"x")
    with pytest.raises(StorageError, match="stopped"):
        journal.wait(token)
    readable, _, _ = select.select([journal.fileno()], [], [], 10)
    assert readable
    assert journal.failed()
    journal.close()


def test_a_forked_child_that_lets_go_disturbs_nobody(tmp_path):
    """P9 of the faults: the child has the descriptors and none of the threads; closing must not wait for those."""
    journal = Journal(tmp_path / "j", file_bytes=FILE_BYTES)
    journal.wait(journal.append(1, 7, b"before"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Forking beside threads is what this is about.
        child = os.fork()
    if child == 0:
        journal.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    journal.wait(journal.append(1, 7, b"after"))
    with pytest.raises(StorageError, match="has it open"):
        Journal(tmp_path / "j", file_bytes=FILE_BYTES)
    journal.close()


def test_waiting_for_a_token_that_was_not_given_out_is_refused(disk):
    with stepped(disk) as journal, pytest.raises(UsageError, match="was not given out"):
        journal.wait(1)


def test_step_is_refused_where_a_thread_commits(disk):
    with (
        Journal("j", io=disk, file_bytes=FILE_BYTES) as journal,
        pytest.raises(UsageError, match="threaded=False"),
    ):
        journal.step()


def test_a_closed_journal_and_a_pickle_are_refused_with_a_sentence(disk):
    journal = stepped(disk)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(journal)
    journal.close()
    journal.close()
    for call in (journal.durable, journal.facts, journal.failed, lambda: journal.append(1, 1, b"")):
        with pytest.raises(StorageError, match="is closed"):
            call()
