"""What fails again and again is told once and then rarely, with how often."""

from __future__ import annotations

import errno
import logging
import shutil
from pathlib import Path

import pytest

from embedbk.repeating import Repeating
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.stored_entries import make_frame
from tests.storage.test_bookie_storage import commit, on_memory, put


def test_a_failure_is_told_at_first_at_each_tenfold_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P7.8: a soak on a full disk told one sentence 442 times, and hid all others in it."""
    caplog.set_level(logging.INFO)
    failing = Repeating(logging.getLogger("embedbk"))
    failing.ended("nothing had failed")
    for number in range(1000):
        failing.met(f"file {number} cannot be written", "write")
    failing.ended("it is written again")
    failing.met("file 7 cannot be written", "write")
    failing.met("it cannot be read")
    assert [record.getMessage() for record in caplog.records] == [
        "file 0 cannot be written",
        "file 9 cannot be written (met 10 times)",
        "file 99 cannot be written (met 100 times)",
        "file 999 cannot be written (met 1000 times)",
        "it is written again, after it was met 1000 times",
        "file 7 cannot be written",
        "it cannot be read",
    ]


def test_a_note_of_the_scrubber_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """STORAGE.md 5: it is a note; the passes go on, and say so again when it is written."""
    caplog.set_level(logging.INFO)
    storage = BookieStorage(tmp_path / "b1", "b1", b"T" * 16, threaded=False, journal_file_bytes=2 << 20)
    storage.put_frame(make_frame(1, range(20), size=100))
    commit(storage)
    storage.flushes.begin()
    storage.flushes.wait()
    blocker = tmp_path / "b1" / "SCRUB.tmp"
    blocker.mkdir()
    for _ in range(5):
        assert storage.begin_scrub(1 << 20)
        assert storage.finish_scrub() is not None
    told = [record for record in caplog.records if "SCRUB" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING]
    shutil.rmtree(blocker)
    assert storage.begin_scrub(1 << 20)
    assert storage.finish_scrub() is not None
    assert "is written again, after it was met 5 times" in caplog.text
    storage.close()


def test_a_flush_that_finds_no_room_is_told_once_whatever_its_file_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """I53: each attempt has a file of its own, and is the same sentence all the same."""
    caplog.set_level(logging.INFO)
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 1, range(5))
    commit(bookie)
    disk.fail("allocate", error=errno.ENOSPC, stays=True)
    for _ in range(9):
        bookie.flushes.unflushed_bytes = bookie.flushes.due_bytes
        assert bookie.begin_flush_if_due()
        assert not bookie.finish_flush()
    disk.fail("allocate", nth=0)
    bookie.flushes.unflushed_bytes = bookie.flushes.due_bytes
    assert bookie.begin_flush_if_due()
    assert bookie.finish_flush()
    told = [record.getMessage() for record in caplog.records if " flush " in record.getMessage()]
    assert len(told) == 2, told
    assert "a flush is done, after it was met 9 times" in told[1]
    bookie.close()
