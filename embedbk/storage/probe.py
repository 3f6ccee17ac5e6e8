"""The raw device, driven from C as a journal drives it: which way to sync is faster here, and what a journal costs.

Decides the sync method of the journals of a device, by trying: a write with O_DSYNC, or a write and
fdatasync. The other functions measure nothing; their callers take the times (benchmarks, `embedbk.doctor()`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import dataclass
from typing import Any

from embedbk.errors import StorageError
from embedbk.storage.journal import Journal
from embedbk.storage.native import check, ffi, lib, system_reason

__all__ = ["DeviceProbe", "SyncChoice", "choose_sync", "journal_replay", "journal_stream", "journal_writes"]

logger = logging.getLogger(__name__)

FILE_BYTES = 16 << 20
CHOICE_FILE = (
    "sync-probe"  # In the directory asked about; removed again, and by the next choice after a crash.
)
CHOICE_FILE_BYTES = 64 << 10
CHOICE_NS_MAX = 50_000_000  # For the whole choice.
CHOICE_ROUNDS = 8
CHOICE_GAIN = 0.9  # One call per commit is kept unless two of them take less than this part of its time.


@dataclass(frozen=True, slots=True)
class SyncChoice:
    """How the journals of a device commit, and why."""

    is_apart: bool  # A write, then fdatasync; else O_DSYNC.
    dsync_ns: int  # Median of a synced write of 4 KiB each way; 0: not tried.
    fdatasync_ns: int

    def __str__(self) -> str:
        if not self.dsync_ns:
            return "not measured"
        chosen = "fdatasync" if self.is_apart else "O_DSYNC"
        return f"O_DSYNC {self.dsync_ns // 1000} us, fdatasync {self.fdatasync_ns // 1000} us: {chosen}"


UNTRIED = SyncChoice(False, 0, 0)  # As for a file system without direct I/O, which has only one way.


class DeviceProbe:
    """Synced writes into a zero-filled file, each handed to a thread and back as a journal does.

    A file that is there already is taken as it is. direct: past the page cache. dsync: the write itself is synced; else
    fdatasync follows it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        write_bytes: int = 4096,
        file_bytes: int = FILE_BYTES,
        direct: bool = True,
        dsync: bool = True,
    ) -> None:
        out = ffi.new("struct ebk_probe **")
        table, name = lib.ebk_io_disk(), os.fsencode(path)
        code = lib.ebk_probe_open(table, name, file_bytes, write_bytes, direct, dsync, out)
        if code < 0:
            raise StorageError(f"{os.fspath(path)}: the probe's file cannot be made{system_reason(-code)}")
        self._probe: Any = ffi.gc(out[0], lib.ebk_probe_close)

    def writes(self, count: int) -> None:
        """Do `count` writes, one outstanding."""
        if lib.ebk_probe_writes(self._probe, count) < 0:
            raise StorageError("the probe's synced write failed", hint="look at the device")

    def stream(self, count: int) -> None:
        """Do `count` writes, the next one handed over while one is under way."""
        if lib.ebk_probe_stream(self._probe, count) < 0:
            raise StorageError("the probe's synced write failed", hint="look at the device")

    def close(self) -> None:
        ffi.release(self._probe)


_chosen: dict[int, SyncChoice] = {}  # By device: the bookies of a process try it once.


def choose_sync(directory: str | os.PathLike[str]) -> SyncChoice:
    """Try both ways of syncing in this directory, for 50 ms at most, once per device and process; logs the choice.

    A directory where that cannot be tried gets O_DSYNC, or what the journal finds that it can have.
    """
    path = os.fspath(directory)
    try:
        device = os.stat(path).st_dev
    except OSError:
        return UNTRIED  # Its owner will say what is wrong with it.
    choice = _chosen.get(device)
    if choice is None:
        try:
            choice = _try_both(path)
        except StorageError:
            choice = UNTRIED  # The journal's opening says what is wrong with the device.
        _chosen[device] = choice
        logger.info("journals in %s commit one synced write of 4 KiB each way: %s", path, choice)
    return choice


def _try_both(directory: str) -> SyncChoice:
    """Raises StorageError: it cannot be tried there."""
    end_ns = time.perf_counter_ns() + CHOICE_NS_MAX
    times: dict[bool, list[int]] = {True: [], False: []}  # By: O_DSYNC.
    with contextlib.ExitStack() as opened:
        probes, path = {}, os.path.join(directory, CHOICE_FILE)
        _remove(path)
        opened.callback(_remove, path)
        for dsync in times:
            probes[dsync] = DeviceProbe(path, file_bytes=CHOICE_FILE_BYTES, dsync=dsync)
            opened.callback(probes[dsync].close)
        for number in range(CHOICE_ROUNDS):
            for dsync in times if number % 2 else reversed(times):
                begin_ns = time.perf_counter_ns()
                probes[dsync].writes(1)
                times[dsync].append(time.perf_counter_ns() - begin_ns)
            if time.perf_counter_ns() > end_ns:
                break
    dsync_ns, apart_ns = (sorted(times[dsync])[len(times[dsync]) // 2] for dsync in (True, False))
    return SyncChoice(apart_ns < CHOICE_GAIN * dsync_ns, dsync_ns, apart_ns)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # Not there; or what stands in the way is found when the file is made.
        os.unlink(path)


def journal_writes(journal: Journal, body: bytes, count: int) -> None:
    """Append and await `count` records of this body, one outstanding, from C."""
    code = lib.ebk_probe_journal(journal.handle(), body, len(body), count)
    if code < 0:
        raise StorageError(f"journal {journal.directory} stopped: {journal.failed()}")


def journal_stream(journal: Journal, body: bytes, count: int) -> None:
    """Append `count` records of this body as fast as the journal takes them, from C; trims what is durable."""
    if lib.ebk_probe_journal_stream(journal.handle(), body, len(body), count) < 0:
        raise StorageError(f"journal {journal.directory} stopped: {journal.failed()}")


def journal_replay(journal: Journal, after: int) -> int:
    """Replay what is above `after`, in C; bytes of the bodies that were there."""
    return check(lib.ebk_probe_replay(journal.handle(), after), f"replay of {journal.directory}")
