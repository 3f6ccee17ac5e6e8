"""Which way to sync a device's journals: tried at start, bounded, and never in the way of a start (D16)."""

from __future__ import annotations

import errno
import logging
import os
import resource
import tempfile
import time
from pathlib import Path

import pytest

from embedbk.storage import probe
from embedbk.storage.journal import Journal
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.probe import CHOICE_FILE, DeviceProbe, SyncChoice, choose_sync


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_chosen", {})


def test_both_ways_are_tried_once_per_device_and_nothing_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A log line says what was measured and chosen; a crash's leftover is in nobody's way."""
    (tmp_path / CHOICE_FILE).write_bytes(b"left by a crash")
    with caplog.at_level(logging.INFO):
        choice = choose_sync(tmp_path)
        assert choose_sync(tmp_path) is choice
    assert list(tmp_path.iterdir()) == []
    if choice.dsync_ns:  # Else this file system has no direct I/O.
        assert choice.is_apart == (choice.fdatasync_ns < probe.CHOICE_GAIN * choice.dsync_ns)
        assert "O_DSYNC" in caplog.text
    assert caplog.text.count(str(choice)) == 1


def test_a_directory_where_it_cannot_be_tried_is_left_to_the_journal(tmp_path: Path) -> None:
    """D16: what is wrong with it is said by whoever opens it, with a reason."""
    assert choose_sync(tmp_path / "absent") == SyncChoice(False, 0, 0)
    (tmp_path / CHOICE_FILE).mkdir()
    assert choose_sync(tmp_path) == SyncChoice(False, 0, 0)
    assert [path.name for path in tmp_path.iterdir()] == [CHOICE_FILE]


def test_a_device_that_refuses_a_write_of_the_probe_is_left_to_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D16: also where the probe's file could be made, as on a device that fills up or copies what is written."""
    bounds, clock, calls = resource.getrlimit(resource.RLIMIT_FSIZE), time.perf_counter_ns, list[int]()

    def refusing_once_it_is_made() -> int:
        calls.append(0)
        if len(calls) > 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, bounds[1]))
        return clock()

    monkeypatch.setattr(time, "perf_counter_ns", refusing_once_it_is_made)
    try:
        assert choose_sync(tmp_path) == SyncChoice(False, 0, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, bounds)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dsync", [True, False])
def test_a_probe_writes_each_way(tmp_path: Path, dsync: bool) -> None:
    for direct in (False, True):
        raw = DeviceProbe(
            tmp_path / f"raw-{direct}", file_bytes=64 << 10, direct=direct and dsync, dsync=dsync
        )
        raw.writes(20)
        raw.stream(40)
        raw.close()
        assert (tmp_path / f"raw-{direct}").read_bytes() == b"\x5a" * (64 << 10)


def test_with_a_sync_apart_every_group_is_written_and_synced() -> None:
    """P7.6, I50: direct I/O without O_DSYNC: what was written and not synced is nobody's, and no second try."""
    disk = MemoryDisk()
    journal = Journal("j", io=disk, threaded=False, file_bytes=65536, sync_apart=True)
    assert journal.facts().sync_method == "O_DIRECT and fdatasync"
    syncs = disk.calls("sync")
    for _ in range(3):
        journal.append(1, 7, b"kept")
        journal.step()
    assert (journal.durable(), disk.calls("sync")) == (3, syncs + 3)
    disk.fail("sync", error=errno.EIO)
    journal.append(1, 7, b"lost")
    journal.step()
    assert journal.durable() == 3
    assert "could not be synced" in (journal.failed() or "")
    journal.close()
    disk.crash()
    with Journal("j", io=disk, threaded=False, file_bytes=65536) as journal:
        assert journal.facts().sync_method == "O_DIRECT|O_DSYNC"  # A choice of this start, not of the files.
        assert journal.durable() == 3


def test_a_journal_in_memory_backed_files_works_or_says_why() -> None:
    """D16: a file system in memory may refuse direct I/O, at open or at the first write: then commits are synced."""
    place = Path("/dev/shm")
    if not place.is_dir() or not os.access(place, os.W_OK):
        pytest.skip("no file system in memory here")
    with tempfile.TemporaryDirectory(dir=place) as directory:
        choice = choose_sync(directory)
        for _ in range(2):
            with Journal(Path(directory) / "j", file_bytes=65536, sync_apart=choice.is_apart) as journal:
                facts = journal.facts()
                assert facts.direct == (facts.sync_method != "fdatasync")
                journal.wait(journal.append(1, 7, b"x" * 5000))
        with Journal(Path(directory) / "j", file_bytes=65536) as journal:
            assert [token for token, *_ in journal.replay(0)] == [1, 2]
