"""What the demo writes: the lines of a file, or of the Python that runs it, kept verbatim with their line ends.

Decides what a line is: everything up to and with its newline byte; what follows the last one is a line too. The lines
are copied once into two files, so that the writer processes and the comparison at the end see the same bytes whatever
happens to the source meanwhile.

    LINES        the lines, one behind the other
    LINES.ends   where each ends: uint64, native byte order
"""

from __future__ import annotations

import array
import mmap
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from embedbk.config import ENTRY_BYTES_MAX
from embedbk.errors import UsageError

__all__ = ["LINES_DEFAULT", "Lines", "copy_file", "copy_standard_library"]

LINES_DEFAULT = 300_000  # Lines of the standard library.
INPUT_BYTES_MAX = 1 << 30
_NOT_OURS = {"site-packages", "dist-packages"}


class Lines:
    """The copied lines, by number from 0."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ends = array.array("Q", path.with_name(path.name + ".ends").read_bytes())
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def byte_count(self) -> int:
        return self.ends[-1]

    def begin(self, number: int) -> int:
        """Where a line begins in the bytes of all of them."""
        return self.ends[number - 1] if number else 0

    def __getitem__(self, number: int) -> bytes:
        return self._data[self.begin(number) : self.ends[number]]

    def run(self, first: int, count: int) -> bytes:
        """The bytes of consecutive lines, of fewer at the end."""
        last = min(first + count, len(self)) - 1
        return self._data[self.begin(first) : self.ends[last]] if last >= first else b""


def copy_file(name: str, path: Path, count_max: int | None) -> Lines:
    """Copy the first lines of a file ("-": of standard input); all of them if count_max is None.

    Raises:
        UsageError: it cannot be read, is empty, too large, or has a line that no entry can take.
    """
    try:
        with sys.stdin.buffer if name == "-" else open(name, "rb") as file:
            return _copy(_lines_of(file, name), path, count_max, name)
    except IsADirectoryError:
        raise UsageError(
            f"{name} is a directory", hint="give a file; its lines are what is written"
        ) from None
    except OSError as refused:
        raise UsageError(
            f"{name} cannot be read: {refused.strerror}", hint="check the path and its permissions"
        ) from refused


def copy_standard_library(path: Path, count_max: int | None) -> Lines:
    """Copy the first lines of the running Python's own modules, in sorted path order, without site-packages."""
    root = Path(sysconfig.get_paths()["stdlib"])

    def lines() -> Iterator[bytes]:
        for module in sorted(root.rglob("*.py")):
            if not _NOT_OURS.intersection(module.relative_to(root).parts):
                try:
                    with module.open("rb") as file:
                        yield from _lines_of(file, str(module))
                except OSError as unreadable:
                    print(f"left out: {unreadable}", file=sys.stderr)

    return _copy(lines(), path, LINES_DEFAULT if count_max is None else count_max, f"{root}: no .py file; it")


def _lines_of(file: BinaryIO, name: str) -> Iterator[bytes]:
    for number, line in enumerate(iter(lambda: file.readline(ENTRY_BYTES_MAX + 1), b""), 1):
        if len(line) > ENTRY_BYTES_MAX:
            raise UsageError(
                f"line {number} of {name} has more than {ENTRY_BYTES_MAX} bytes, which is what one entry takes",
                hint="each line becomes one entry: give a file of shorter lines",
            )
        yield line


def _copy(lines: Iterator[bytes], path: Path, count_max: int | None, name: str) -> Lines:
    ends = array.array("Q")
    end = 0
    with path.open("wb", buffering=1 << 20) as copy:
        for line in lines:
            if len(ends) == count_max:
                break
            end += len(line)
            if end > INPUT_BYTES_MAX:
                raise UsageError(
                    f"{name} has more than {INPUT_BYTES_MAX} bytes", hint="--lines N takes its first N lines"
                )
            copy.write(line)
            ends.append(end)
    if not ends:
        raise UsageError(f"{name} is empty", hint="give a file with at least one line")
    with path.with_name(path.name + ".ends").open("wb") as file:
        ends.tofile(file)
    return Lines(path)
