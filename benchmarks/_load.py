"""What a measurement cost, and what disturbed it: processor time, foreign load, flushes of the device.

    with Load(directory, pids) as load:
        ...
    load.cpu_s, load.foreign, load.flushes

Processor time is that of whole processes, with threads that ended meanwhile. Foreign is what others had of all
processors, the hypervisor's share (steal) included. Flushes are counted by the device itself: who was answered
"durable" while this number stood still was told a lie.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Load", "device_of"]

_FLUSHES_AT = 15  # Field of /sys/dev/block/*/stat: flush requests completed.
# Fields of the first line of /proc/stat: user nice system idle iowait irq softirq steal.
_BUSY = (0, 1, 2, 5, 6, 7)


class Load:
    """The load of these processes and of this one, from entering to leaving."""

    def __init__(
        self, directory: Path | None = None, pids: Iterable[int] = (), *, has_tree: bool = False
    ) -> None:
        """directory: stands on the device whose flushes count. has_tree: all processes below this one instead of
        `pids`, also those that come and go meanwhile; in ticks of the kernel's clock (10 ms)."""
        self._has_tree = has_tree
        # As clock_getcpuclockid(3) makes the number of another process's clock.
        self._clocks = [(~pid << 3) | 2 for pid in (os.getpid(), *pids)]
        self._stat = _stat_of(directory) if directory is not None else None
        self.cpu_s = self.foreign = self.wall_s = 0.0
        self.flushes: int | None = None  # None: the device does not say.

    def __enter__(self) -> Self:
        self._began = time.monotonic(), self._own_s(), _busy_s(), self._flush_count()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        began, own_s, busy_s, flushes = self._began
        self.wall_s = time.monotonic() - began
        self.cpu_s = self._own_s() - own_s
        others_s = max(0.0, _busy_s() - busy_s - self.cpu_s)
        self.foreign = min(1.0, others_s / (self.wall_s * (os.cpu_count() or 1)))
        now = self._flush_count()
        self.flushes = None if now is None or flushes is None else now - flushes

    def check_flushes(self, least: int) -> None:
        """Raises when so many acknowledgements, each behind the one before, came with fewer flushes."""
        if self.flushes is None:
            print("flushes: this device does not count them", file=sys.stderr)
        elif self.flushes < least:
            raise RuntimeError(
                f"{least} commits were acknowledged and the device flushed {self.flushes} times"
            )

    def _own_s(self) -> float:
        if self._has_tree:
            return _tree_ticks(os.getpid()) / os.sysconf("SC_CLK_TCK")
        return sum(time.clock_gettime(clock) for clock in self._clocks)

    def _flush_count(self) -> int | None:
        if self._stat is None:
            return None
        fields = self._stat.read_text().split()
        return int(fields[_FLUSHES_AT]) if len(fields) > _FLUSHES_AT else None


def _busy_s() -> float:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(fields[field]) for field in _BUSY) / os.sysconf("SC_CLK_TCK")


def _tree_ticks(pid: int) -> int:
    """Processor ticks of a process, of those below it, and of those that it has waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return 0  # It has just ended; its time is added to the process that waited for it.
    children: list[int] = []
    for thread in threads:
        # A thread that has just ended is no reason to leave out its process, which goes on.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children += map(int, (thread / "children").read_text().split())
    ticks = sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks + sum(_tree_ticks(child) for child in children)


def device_of(directory: Path) -> Path | None:
    """What the kernel tells of the whole device under a directory; None where it has no device."""
    number = directory.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        return None
    device = device.resolve()
    return device.parent if (device / "partition").exists() else device


def _stat_of(directory: Path) -> Path | None:
    """The counters of that device; None where there is none, or one that never flushes."""
    device = device_of(directory)
    if device is None:
        return None
    cache = device / "queue/write_cache"
    has_cache = not cache.exists() or cache.read_text().strip() == "write back"
    return device / "stat" if has_cache else None
