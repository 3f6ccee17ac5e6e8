"""Leaves the disk to settle between two turns: what one side has written and not synced is not the other's to pay.

Settled: sync(2) has returned, next to nothing of the page cache is dirty or on its way, and the device writes next to
nothing by itself (what the systems under test move in the background, past the page cache too). Bounded: on a machine
where others write all the time it goes on without, and says so.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks._load import device_of

__all__ = ["settle", "settled"]

T = TypeVar("T")

TIMEOUT_S = 30.0
LOOK_S = 0.25
DIRTY_KB_MAX = 32 << 10
WRITTEN_KB_MAX = 4 << 10  # Between two looks.
SECTORS_PER_KB = 2
_SECTORS_WRITTEN_AT = 6  # Field of /sys/dev/block/*/stat.


def settled(directory: Path, turn: Callable[[], T]) -> Callable[[], T]:
    """The turn, begun on a disk that is at rest."""

    def after_settling() -> T:
        settle(directory)
        return turn()

    return after_settling


def settle(directory: Path) -> bool:
    """Whether the device of this directory came to rest within TIMEOUT_S."""
    end = time.monotonic() + TIMEOUT_S
    sync = subprocess.Popen(
        ["sync"]
    )  # By itself: it waits in the kernel, and may do so for longer than we want.
    device = device_of(directory)
    before_kb = _written_kb(device)
    while time.monotonic() < end:
        time.sleep(LOOK_S)
        now_kb = _written_kb(device)
        is_quiet = now_kb - before_kb <= WRITTEN_KB_MAX
        if sync.poll() is not None and is_quiet and _dirty_kb() <= DIRTY_KB_MAX:
            return True
        before_kb = now_kb
    print(f"the disk is not at rest after {TIMEOUT_S:g} s: {_dirty_kb()} kB are dirty", file=sys.stderr)
    sync.wait()  # Else they would pile up.
    return False


def _dirty_kb() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) for name in ("Dirty", "Writeback"))


def _written_kb(device: Path | None) -> int:
    if device is None:
        return 0
    return int((device / "stat").read_text().split()[_SECTORS_WRITTEN_AT]) // SECTORS_PER_KB
