"""What does the device give to three bookies that write every entry twice? The bound of `append` with large entries.

Three journals write groups of 1 MiB, synced, into files that were written before, each one at a time; three entry logs
write chunks of 1 MiB into new files, synced at their end: the writes that appends of three copies cause, and nothing
else.
`device/both` is the rate of entries, with their headers, that all six sustain: each byte of them is written once by
every journal and once by every log. Divided by the size of an entry it is what `append/.../many` cannot pass for long;
a burst passes it, because its entry logs are written behind it.

New files are rows of their own because on a disk that is thinly provisioned, as that of most virtual machines, a block
that was never written, or was discarded since, costs its making.
"""

from __future__ import annotations

import mmap
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import Row, is_wanted, workplace
from benchmarks._load import Load

COPIES = 3
WRITE_BYTES = 1 << 20
FILE_BYTES = 64 << 20
BYTES = 192 << 20  # Bytes per writer in one run.
RUNS = 5
JOURNALS, LOGS, BOTH = "device/journals", "device/logs", "device/both"

Writer = Callable[[], None]


def measure() -> Iterator[Row]:
    """`device/journals`, `device/logs`, `device/both`: MB/s of the entries of one client, 3/3/2."""
    if not is_wanted(JOURNALS, LOGS, BOTH):
        return
    with workplace("device") as directory:
        yield from rows(directory, [work for work in (JOURNALS, LOGS, BOTH) if is_wanted(work)])


def both_row(directory: Path) -> Row:
    """`device/both`, as the ceiling of another benchmark. The directory is made."""
    directory.mkdir()
    (found,) = rows(directory, [BOTH])
    for path in directory.iterdir():
        path.unlink()
    return found


def rows(directory: Path, works: Sequence[str]) -> Iterator[Row]:
    block = mmap.mmap(-1, WRITE_BYTES)  # Aligned, as direct I/O wants it.
    block.write(os.urandom(WRITE_BYTES))
    journals = [Journal(directory / f"journal{number}", block) for number in range(COPIES)]
    logs = [Log(directory / f"log{number}", block) for number in range(COPIES)]
    writers: dict[str, list[Writer]] = {
        JOURNALS: [each.write for each in journals],
        LOGS: [each.write for each in logs],
        BOTH: [each.write for each in (*journals, *logs)],
    }
    for work in works:
        yield row(work, writers[work], directory)
    for journal in journals:
        journal.close()


def row(work: str, writers: list[Writer], directory: Path) -> Row:
    rates, foreign = [], []
    with ThreadPoolExecutor(len(writers)) as pool:
        for _ in range(RUNS):
            with Load(directory) as load:
                begin = time.perf_counter()
                for writing in [pool.submit(write) for write in writers]:
                    writing.result()
                rates.append(BYTES / 1e6 / (time.perf_counter() - begin))
            foreign.append(load.foreign)
    print(f"{work}: " + " ".join(f"{rate:.0f}" for rate in rates), file=sys.stderr)
    return Row(work, round(statistics.median(rates), 1), "MB/s", foreign=round(statistics.median(foreign), 3))


class Journal:
    """One file, written over and over."""

    def __init__(self, path: Path, block: mmap.mmap) -> None:
        self._block = block
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_DSYNC, 0o600)
        for at in range(0, FILE_BYTES, WRITE_BYTES):
            os.pwrite(self._file, block, at)

    def write(self) -> None:
        for at in range(0, BYTES, WRITE_BYTES):
            os.pwrite(self._file, self._block, at % FILE_BYTES)

    def close(self) -> None:
        os.close(self._file)


class Log:
    """A new file after the other, each reserved at once as an entry log is; they stay until the end, as those do."""

    def __init__(self, path: Path, block: mmap.mmap) -> None:
        self._path, self._block, self._count = path, block, 0

    def write(self) -> None:
        for _ in range(0, BYTES, FILE_BYTES):
            self._count += 1
            file = os.open(f"{self._path}.{self._count}", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
            os.posix_fallocate(file, 0, FILE_BYTES)
            for at in range(0, FILE_BYTES, WRITE_BYTES):
                os.pwrite(file, self._block, at)
            os.fdatasync(file)
            os.close(file)
