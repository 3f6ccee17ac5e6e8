"""The disk in memory: it forgets what was not synced, and every call can be made to fail."""

from __future__ import annotations

import errno

import pytest

from embedbk.errors import StorageError, UsageError
from embedbk.storage.journal import Journal
from embedbk.storage.memory_disk import MemoryDisk


def journal_on(disk, **settings):
    return Journal("j", io=disk, threaded=False, file_bytes=65536, identity=bytes(16), **settings)


def test_files_put_on_the_disk_are_there_after_a_crash():
    disk = MemoryDisk({"a/x": b"one", "a/y": b""})
    disk.put("b/z", b"two")
    disk.drop("a/y")
    disk.crash()
    assert disk.files() == {"a/x": b"one", "b/z": b"two"}
    assert disk.files(stable=False) == disk.files()


def test_a_missing_file_is_said_to_be_missing():
    with pytest.raises(StorageError, match="No such file"):
        MemoryDisk().read("nothing")


def test_a_fault_needs_a_call_that_exists():
    with pytest.raises(UsageError, match="sync_directory"):
        MemoryDisk().fail("fsnyc")


def test_names_are_durable_only_after_their_directory_was_synced():
    """I49: a new file is there for readers at once, and after a crash only when its directory was synced."""
    disk = MemoryDisk()
    disk.fail("sync_directory", nth=2, stays=True)  # The first one syncs the directory above.
    with pytest.raises(StorageError, match="cannot be opened"):
        journal_on(disk)
    assert "j/LOCK" in disk.files(stable=False)
    assert disk.files() == {}
    disk.crash()
    assert disk.files(stable=False) == {}


def test_the_same_crash_seed_leaves_the_same_disk():
    """A simulation failure is replayed from its seed; another seed may keep other sectors."""

    def crashed(seed):
        disk = MemoryDisk()
        disk.refuse_direct()
        journal = journal_on(disk)
        for _ in range(3):
            journal.append(1, 1, bytes(range(256)) * 40)
        disk.fail("sync")  # The group was written and never synced.
        journal.step()
        assert journal.failed()
        image = disk.files(stable=False)
        journal.close()
        disk.crash(seed)
        return disk.files(), image

    assert crashed(0)[0] != crashed(0)[1]
    outcomes = [crashed(seed)[0] for seed in range(1, 6)]
    assert outcomes == [crashed(seed)[0] for seed in range(1, 6)]
    assert any(outcome != outcomes[0] for outcome in outcomes)


def test_a_full_disk_refuses_and_makes_room_again():
    disk = MemoryDisk()
    disk.limit(1000)
    with pytest.raises(StorageError, match="No space left"):
        journal_on(disk)
    disk.limit(0)
    journal_on(disk).close()


def test_a_torn_write_ends_everything_until_the_crash():
    disk = MemoryDisk()
    journal = journal_on(disk)
    journal.append(1, 1, b"lost")
    disk.tear(sectors=0)
    journal.step()
    journal.close()
    with pytest.raises(StorageError, match=f"errno {errno.EIO}"):
        journal_on(disk)
    disk.crash()
    with journal_on(disk) as journal:
        assert list(journal.replay(0)) == []


def test_calls_are_counted():
    disk = MemoryDisk()
    journal = journal_on(disk)
    before = disk.calls("write")
    journal.append(1, 1, b"x")
    journal.step()
    assert disk.calls("write") == before + 1
    journal.close()
