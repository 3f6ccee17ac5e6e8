"""Arrow data as a packer sees it: rows of bytes, one column after another; and the reasons to refuse a column.

The contract of `arrow_columns`, which takes them out of Arrow's arrays in C, and of `arrow_columns_twin`, which does it
in plain Python.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Protocol

from embedbk.config import ENTRY_BYTES_MAX
from embedbk.errors import UsageError

__all__ = ["ArrowFault", "Found", "Rows", "ValueColumn", "refuse_column"]


class ArrowFault(enum.IntEnum):
    """Why a column is refused; the numbers are those of native/wire/arrow_column.h."""

    NO_COLUMN = 1
    FORMAT = 2
    NULL = 3
    TOO_LONG = 4
    UNSOUND = 5


class ValueColumn(Protocol):
    """The rows of one column of bytes, none of them null or longer than an entry may be. It keeps its array alive."""

    @property
    def byte_count(self) -> int: ...
    @property
    def largest(self) -> int:
        """Bytes of its longest row."""
        ...

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> bytes: ...


# What the C functions return: a column, or (fault, row, the value found instead).
Found = ValueColumn | tuple[int, int, str]


def refuse_column(found: tuple[int, int, str], name: str) -> UsageError:
    """The error for a column that is refused; nothing was appended."""
    fault, row, text = found
    said = {
        ArrowFault.NO_COLUMN: f"no single column {name!r} is there, but: {text}",
        ArrowFault.FORMAT: f"column {name!r} has the Arrow format {text!r}: binary and string are allowed, "
        "plain, large and as views",
        ArrowFault.NULL: f"row {row} of column {name!r} is null: an entry has a value, be it an empty one",
        ArrowFault.TOO_LONG: f"row {row} of column {name!r} has more than the {ENTRY_BYTES_MAX} bytes of an entry",
        ArrowFault.UNSOUND: f"row {row} of column {name!r}: this is no Arrow array, or was taken already",
    }
    return UsageError(f"{said[ArrowFault(fault)]}; nothing was appended")


class Rows(Sequence[bytes]):
    """The rows of columns, one behind the other, from one of them on; sliced at its beginning without a copy."""

    def __init__(self, columns: Sequence[ValueColumn], begin: int = 0) -> None:
        self.columns = tuple(columns)
        self.begin = begin
        self._count = sum(len(column) for column in self.columns)

    def __len__(self) -> int:
        return self._count - self.begin

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
