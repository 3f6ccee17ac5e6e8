"""Arrow data as a packer sees it: rows of bytes, one column after another; and the reasons to refuse a column.

The contract of `arrow_columns`, which takes them out of Arrow's arrays in C, and of `arrow_twin`, which does
it in plain Python.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from embedbk.codec.entry_records import RECORDS_BYTES_MAX
from embedbk.codec.twins import HEADERS_MAX
from embedbk.config import ENTRY_BYTES_MAX
from embedbk.errors import UsageError

__all__ = ["FAULTS_OF_A_COLUMN", "ArrowFault", "ArrowNames", "Found", "Rows", "ValueColumn", "refuse_column"]

FAULTS_OF_A_COLUMN = 16  # The faults of the next column of `ArrowNames` have numbers that are so much higher.


class ArrowNames(NamedTuple):
    """The names of the columns that make a record: its value, and what stands beside it; None: no such column."""

    value: str
    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None


class ArrowFault(enum.IntEnum):
    """Why a column is refused; the numbers are those of native/wire/arrow_column.h."""

    NO_COLUMN = 1
    FORMAT = 2
    NULL = 3
    TOO_LONG = 4
    UNSOUND = 5
    TIME = 6
    NAME = 7
    TWICE = 8
    MANY = 9
    BESIDE = 10
    TOGETHER = 11


class ValueColumn(Protocol):
    """The rows of one column of bytes, none of them null or longer than an entry may be. It keeps its array alive."""

    @property
    def byte_count(self) -> int:
        """Bytes of all rows, with what they have beside their values."""
        ...

    @property
    def largest(self) -> int:
        """Bytes of its longest row, likewise."""
        ...

    @property
    def has_records(self) -> bool:
        """Whether something stands beside the value of a row."""
        ...

    def attribute(self, row: int, /) -> bytes:
        """What stands beside the value of a row, as an attribute of the kind RECORDS; empty: nothing."""
        ...

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> bytes: ...


# What the C functions return: a column, or (fault, row, the value found instead).
Found = ValueColumn | tuple[int, int, str]

_FORMATS = ArrowNames(
    value="binary and string are allowed, plain, large and as views",
    key="binary and string are allowed, plain, large and as views",
    timestamp="a timestamp is allowed, or int64 with ms since 1970",
    headers="a map is allowed, or a list of structs of two, of binary or string to binary or string",
)


def refuse_column(found: tuple[int, int, str], names: ArrowNames) -> UsageError:
    """The error for a column that is refused; nothing was appended."""
    code, row, text = found
    which, number = divmod(code, FAULTS_OF_A_COLUMN)
    fault, name = ArrowFault(number), names[which]
    there = text or "one column by itself, which is the value"
    is_null = "an entry has a value, be it an empty one" if which == 0 else "a header has a name and a value"
    where = f"row {row} of column {name!r}"
    said = {
        ArrowFault.NO_COLUMN: f"no single column {name!r} is there, but: {there}",
        ArrowFault.FORMAT: f"column {name!r} has the Arrow format {text!r}: {_FORMATS[which]}",
        ArrowFault.NULL: f"{where} is null: {is_null}",
        ArrowFault.TOO_LONG: f"{where} has more than the {ENTRY_BYTES_MAX} bytes of an entry",
        ArrowFault.UNSOUND: f"{where}: this is no Arrow array, or was taken already",
        ArrowFault.TIME: f"{where} is no time: ms since 1970 from 0 to 2^63 - 1 are allowed",
        ArrowFault.NAME: f"{where}: a header is named by 1 to 255 printable ASCII characters without a blank",
        ArrowFault.TWICE: f"{where} has two headers of one name",
        ArrowFault.MANY: f"{where} has more than {HEADERS_MAX} headers",
        ArrowFault.BESIDE: f"{where}: key and headers of an entry have at most {RECORDS_BYTES_MAX} bytes together",
        ArrowFault.TOGETHER: f"{where}, and what stands beside it, have more than {ENTRY_BYTES_MAX} bytes",
    }
    return UsageError(f"{said[fault]}; nothing was appended")


class Rows(Sequence[bytes]):
    """The rows of columns, one behind the other, from one of them on; sliced at its beginning without a copy."""

    def __init__(self, columns: Sequence[ValueColumn], begin: int = 0) -> None:
        self.columns = tuple(columns)
        self.begin = begin
        self._count = sum(len(column) for column in self.columns)

    def __len__(self) -> int:
        return self._count - self.begin

    @property
    def has_records(self) -> bool:
        """Whether something stands beside the value of a row."""
        return any(column.has_records for column in self.columns)

    def places(self) -> Iterator[tuple[ValueColumn, int]]:
        """Each row, as its column and its number there."""
        begin = self.begin
        for column in self.columns:
            for row in range(min(begin, len(column)), len(column)):
                yield column, row
            begin = max(0, begin - len(column))

    def attributes(self) -> list[bytes]:
        """What stands beside each value; an object for each row."""
        return [column.attribute(row) for column, row in self.places()]

    def __iter__(self) -> Iterator[bytes]:
        return (column[row] for column, row in self.places())

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            assert at.stop is None and at.step is None and at.start >= 0
            return Rows(self.columns, self.begin + at.start)
        row = self.begin + (at if at >= 0 else len(self) + at)
        for column in self.columns:
            if row < len(column):
                return column[row]
            row -= len(column)
        raise IndexError("no such row")
