"""Benchmarks, one file per question: `./run bench NAME [--only PATTERN] [--json]`, or `all` of them.

A file `benchmarks/NAME.py` has `measure() -> Iterator[Row]` and yields each row once it is measured. What a row
is compared with (a bare probe, the device, a peer) is this machine's own, measured in the same run, and stands
only in the fields of the row. Progress belongs on stderr.
"""

from __future__ import annotations

import contextlib
import fnmatch
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Row", "is_wanted", "want", "workplace"]


@dataclass(frozen=True, slots=True)
class Row:
    work: str  # What was done: append/zmq/1KiB/many.
    value: float
    unit: str  # entries/s, us, MB/s.
    ceiling: float | None = None  # What the machine can do, in the same unit.
    cpu_us_per_entry: float | None = None  # User and system time of all processes under test, per entry.
    peer: str | None = (
        None  # The system measured beside ours in the same run; the name says the version and the profile.
    )
    peer_value: float | None = None  # In the same unit.
    foreign: float | None = (
        None  # Share of the processors that others had meanwhile; above 0.1 it is no result.
    )

    @property
    def ratio(self) -> float | None:
        return self.value / self.ceiling if self.ceiling else None

    @property
    def peer_ratio(self) -> float | None:
        return self.value / self.peer_value if self.peer_value else None


_patterns: list[str] = []


def want(patterns: Sequence[str]) -> None:
    """Measure only rows whose work matches one of these, as a shell matches names; all of them when there is none."""
    _patterns[:] = patterns


def is_wanted(*works: str) -> bool:
    """Whether one of these rows was asked for. Asked before the work is done, which is what takes the time."""
    return not _patterns or any(fnmatch.fnmatchcase(work, pattern) for work in works for pattern in _patterns)


@contextlib.contextmanager
def workplace(name: str) -> Iterator[Path]:
    """An empty directory on the project's disk, gone afterwards: a temporary directory may be no real disk.

    Of a benchmark that fails, what processes wrote to their logs stays, in `.run/NAME-logs`, and stderr says so."""
    place = Path(__file__).parents[1] / ".run"
    place.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=place))
    try:
        yield directory
    except BaseException:
        _keep_logs(directory, place / f"{name}-logs")
        raise
    finally:
        shutil.rmtree(directory)


def _keep_logs(directory: Path, kept: Path) -> None:
    """Every log below directory, under its path; those of an earlier failure go."""
    shutil.rmtree(kept, ignore_errors=True)
    for log in directory.rglob("*.log"):
        copy = kept / log.relative_to(directory)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, copy)
    print(
        f"what its processes said is in {kept}" if kept.exists() else "its processes said nothing",
        file=sys.stderr,
    )
