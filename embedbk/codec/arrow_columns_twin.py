"""Columns of the Arrow C data interface once more in plain Python: what the C code must return, refusals included.

For tests and for reading by hand (native/wire/arrow_column.h is what ships). The interface's structs and capsules are
read with ctypes; nothing of pyarrow is needed. As in C, the producer's pointers are trusted.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from embedbk.codec.arrow_rows import ArrowFault

__all__ = [
    "ArrowArrayStruct",
    "ArrowSchemaStruct",
    "ArrowStreamStruct",
    "Child",
    "RefusedColumn",
    "bytes_rows",
    "check",
    "child_named",
    "find_nulls",
    "has_counts",
]

_ROWS_MAX = 1 << 48  # Far above what memory holds.
_VIEW_BYTES = 16
_INLINE_BYTES = 12  # A view of so few bytes holds them itself.


class ArrowSchemaStruct(ctypes.Structure):
    pass


class ArrowArrayStruct(ctypes.Structure):
    pass


class ArrowStreamStruct(ctypes.Structure):
    pass


ArrowSchemaStruct._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p), ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("children", ctypes.POINTER(ctypes.POINTER(ArrowSchemaStruct))),
    ("dictionary", ctypes.c_void_p), ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowSchemaStruct))),
    ("private_data", ctypes.c_void_p),
]  # fmt: skip
ArrowArrayStruct._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64), ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArrayStruct))), ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArrayStruct))), ("private_data", ctypes.c_void_p),
]  # fmt: skip
ArrowStreamStruct._fields_ = [
    ("get_schema",
     ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowStreamStruct), ctypes.POINTER(ArrowSchemaStruct))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowStreamStruct), ctypes.POINTER(ArrowArrayStruct))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ArrowStreamStruct))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowStreamStruct))), ("private_data", ctypes.c_void_p),
]  # fmt: skip


class RefusedColumn(Exception):
    """A column is refused; says why, and which row is the reason."""

    def __init__(self, fault: ArrowFault, row: int) -> None:
        super().__init__(fault, row)
        self.fault, self.row = fault, row


class Child(NamedTuple):
    """A column among others of the same array, and which of its rows are wanted."""

    schema: ArrowSchemaStruct
    array: ArrowArrayStruct
    first: int
    rows: int


def check(fact: bool, row: int = 0, fault: ArrowFault = ArrowFault.UNSOUND) -> None:
    if not fact:
        raise RefusedColumn(fault, row)


def child_named(schema: ArrowSchemaStruct, array: ArrowArrayStruct, name: bytes) -> Child:
    """The column `name` of an array of columns, or the array itself where it is no struct."""
    check(bool(schema.release) and schema.format is not None and has_counts(array))
    first, count = array.offset, array.length
    if schema.format != b"+s":
        return Child(schema, array, first, count)
    check(0 <= schema.n_children == array.n_children and (not schema.n_children or bool(schema.children)))
    found = [at for at in range(schema.n_children) if schema.children[at].contents.name == name]
    check(len(found) == 1, 0, ArrowFault.NO_COLUMN)
    _check_nulls(array, first, count)
    its_schema, its = schema.children[found[0]].contents, array.children[found[0]].contents
    check(its_schema.format is not None and has_counts(its) and its.length >= first + count)
    return Child(its_schema, its, its.offset + first, count)


def has_counts(array: ArrowArrayStruct) -> bool:
    numbers = (array.length, array.offset, array.n_buffers, array.n_children)
    has_all = (not array.n_buffers or bool(array.buffers)) and (not array.n_children or bool(array.children))
    return bool(array.release) and all(0 <= number <= _ROWS_MAX for number in numbers) and has_all


def find_nulls(array: ArrowArrayStruct, first: int, count: int) -> set[int]:
    """Those of `count` rows from `first` on that are null."""
    bits = array.buffers[0] if array.n_buffers else None
    if bits is None or array.null_count == 0:
        return set()
    places = range(first, first + count)
    valid = [ctypes.c_uint8.from_address(bits + place // 8).value >> (place % 8) & 1 for place in places]
    return {row for row in range(count) if not valid[row]}


def _check_nulls(array: ArrowArrayStruct, first: int, count: int) -> None:
    nulls = find_nulls(array, first, count)
    check(not nulls, min(nulls, default=0), ArrowFault.NULL)


def bytes_rows(child: Child, bytes_max: int | None = None) -> list[bytes | None]:
    """The rows of a column of bytes. bytes_max: of a row, and no row may be null; None: any may be, and is None."""
    schema, array, first, count = child
    form = schema.format
    is_known = form in (b"z", b"u", b"Z", b"U", b"vz", b"vu")
    check(is_known and not schema.dictionary and not array.dictionary, 0, ArrowFault.FORMAT)
    is_view = form in (b"vz", b"vu")
    check(array.n_buffers >= 3 if is_view else array.n_buffers == 3)
    if not count:
        return []
    check(array.buffers[1] is not None)
    if bytes_max is not None:
        _check_nulls(array, first, count)
    nulls = find_nulls(array, first, count)
    bound = 2**31 - 1 if bytes_max is None else bytes_max
    if is_view:
        return _rows_of_views(array, first, count, nulls, bound)
    kind = ctypes.c_int64 if form in (b"Z", b"U") else ctypes.c_int32
    rows = _rows_of_offsets(array, first, count, kind, bound)
    return [None if row in nulls else rows[row] for row in range(count)]


def _rows_of_offsets(array: ArrowArrayStruct, first: int, count: int, kind: Any, bound: int) -> list[bytes]:
    size, data = ctypes.sizeof(kind), array.buffers[2]
    ends = [kind.from_address(array.buffers[1] + size * (first + row)).value for row in range(count + 1)]
    check(ends[0] >= 0)
    for row in range(count):
        check(ends[row] <= ends[row + 1], row)
        check(ends[row + 1] - ends[row] <= bound, row, ArrowFault.TOO_LONG)
    check(data is not None or ends[0] == ends[-1], count - 1)
    return [_bytes_at(data, ends[row], ends[row + 1] - ends[row]) for row in range(count)]


def _rows_of_views(
    array: ArrowArrayStruct, first: int, count: int, nulls: set[int], bound: int
) -> list[bytes | None]:
    part_count, sizes = array.n_buffers - 3, array.buffers[array.n_buffers - 1]
    check(not part_count or sizes is not None)
    rows: list[bytes | None] = []
    for row in range(count):
        if row in nulls:
            rows.append(None)
            continue
        view = array.buffers[1] + _VIEW_BYTES * (first + row)
        size = ctypes.c_int32.from_address(view).value
        check(size >= 0, row)
        base, begin = view, 4
        if size > _INLINE_BYTES:
            part = ctypes.c_int32.from_address(view + 8).value
            begin = ctypes.c_int32.from_address(view + 12).value
            check(0 <= part < part_count and begin >= 0 and array.buffers[2 + part] is not None, row)
            part_size = ctypes.c_int64.from_address(sizes + 8 * part).value
            check(begin + size <= part_size, row)
            base = array.buffers[2 + part]
        check(size <= bound, row, ArrowFault.TOO_LONG)
        rows.append(_bytes_at(base, begin, size))
    return rows


def _bytes_at(base: int | None, begin: int, size: int) -> bytes:
    return ctypes.string_at(base + begin, size) if base is not None and size else b""
