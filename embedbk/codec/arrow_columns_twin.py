"""Columns of the Arrow C data interface once more in plain Python: what the C code must return, refusals included.

For tests and for reading by hand (native/wire/arrow_column.h is what ships). The interface's structs and capsules are
read with ctypes; nothing of pyarrow is needed. As in C, the producer's pointers are trusted.
"""

from __future__ import annotations

import ctypes
from typing import Any

from embedbk.codec.arrow_rows import ArrowFault, Found
from embedbk.config import ENTRY_BYTES_MAX

__all__ = [
    "ArrowArrayStruct",
    "ArrowSchemaStruct",
    "ArrowStreamStruct",
    "TwinColumn",
    "twin_column",
    "twin_column_of_stream",
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

_pointer_of: Any = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class _Refused(Exception):
    def __init__(self, fault: ArrowFault, row: int) -> None:
        super().__init__(fault, row)
        self.fault, self.row = fault, row


class TwinColumn:
    """`ValueColumn` in plain Python: its rows are copied when it is made, behind which it needs no array."""

    def __init__(self, rows: list[bytes]) -> None:
        self._rows = rows
        self.byte_count = sum(map(len, rows))
        self.largest = max(map(len, rows), default=0)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> bytes:
        return self._rows[row]


def twin_column(schema: object, array: object, name: str) -> Found:
    """As `arrow_column` of C."""
    its_schema = ArrowSchemaStruct.from_address(_pointer_of(schema, b"arrow_schema"))
    its_array = ArrowArrayStruct.from_address(_pointer_of(array, b"arrow_array"))
    return _column_from(its_schema, its_array, name)


def twin_column_of_stream(stream: object, name: str) -> Found | None:
    """As `arrow_column_of_stream` of C."""
    its = ArrowStreamStruct.from_address(_pointer_of(stream, b"arrow_array_stream"))
    if not its.release:
        raise ValueError("the stream was released")
    schema, array = ArrowSchemaStruct(), ArrowArrayStruct()
    error = its.get_schema(its, schema) or its.get_next(its, array)
    try:
        if error:
            at = its.get_last_error(its)
            text = "" if at is None else ctypes.string_at(at).decode(errors="replace")
            raise RuntimeError(f"the stream failed: {text}")
        return _column_from(schema, array, name) if array.release else None
    finally:
        if schema.release:
            schema.release(schema)


def _column_from(schema: ArrowSchemaStruct, array: ArrowArrayStruct, name: str) -> Found:
    try:
        return TwinColumn(_rows(schema, array, name.encode()))
    except _Refused as refused:
        return int(refused.fault), refused.row, _text_of(schema, name.encode(), refused.fault)
    finally:
        if array.release:
            array.release(array)


def _text_of(schema: ArrowSchemaStruct, name: bytes, fault: ArrowFault) -> str:
    form = schema.format or b""
    if form != b"+s":
        return str(form.decode(errors="replace"))
    children = [schema.children[at].contents for at in range(schema.n_children)]
    if fault is ArrowFault.FORMAT:
        form = next(child.format for child in children if child.name == name)
        return str(form.decode(errors="replace"))
    return ", ".join((child.name or b"").decode(errors="replace") for child in children)


def _check(fact: bool, row: int = 0, fault: ArrowFault = ArrowFault.UNSOUND) -> None:
    if not fact:
        raise _Refused(fault, row)


def _rows(schema: ArrowSchemaStruct, array: ArrowArrayStruct, name: bytes) -> list[bytes]:
    _check(bool(schema.release) and schema.format is not None and _has_counts(array))
    first, count = array.offset, array.length
    if schema.format != b"+s":
        return _bytes_rows(schema, array, first, count)
    _check(0 <= schema.n_children == array.n_children)
    found = [at for at in range(schema.n_children) if schema.children[at].contents.name == name]
    _check(len(found) == 1, 0, ArrowFault.NO_COLUMN)
    _check_nulls(array, first, count)
    its_schema, its = schema.children[found[0]].contents, array.children[found[0]].contents
    _check(its_schema.format is not None and _has_counts(its) and its.length >= first + count)
    return _bytes_rows(its_schema, its, its.offset + first, count)


def _has_counts(array: ArrowArrayStruct) -> bool:
    numbers = (array.length, array.offset, array.n_buffers, array.n_children)
    has_all = (not array.n_buffers or bool(array.buffers)) and (not array.n_children or bool(array.children))
    return bool(array.release) and all(0 <= number <= _ROWS_MAX for number in numbers) and has_all


def _check_nulls(array: ArrowArrayStruct, first: int, count: int) -> None:
    bits = array.buffers[0] if array.n_buffers else None
    if bits is None or array.null_count == 0:
        return
    for row in range(count):
        byte = ctypes.c_uint8.from_address(bits + (first + row) // 8).value
        _check(bool(byte >> ((first + row) % 8) & 1), row, ArrowFault.NULL)


def _bytes_rows(schema: ArrowSchemaStruct, array: ArrowArrayStruct, first: int, count: int) -> list[bytes]:
    form = schema.format
    is_known = form in (b"z", b"u", b"Z", b"U", b"vz", b"vu")
    _check(is_known and not schema.dictionary and not array.dictionary, 0, ArrowFault.FORMAT)
    is_view = form in (b"vz", b"vu")
    _check(array.n_buffers >= 3 if is_view else array.n_buffers == 3)
    if not count:
        return []
    _check(array.buffers[1] is not None)
    _check_nulls(array, first, count)
    if is_view:
        return _rows_of_views(array, first, count)
    return _rows_of_offsets(array, first, count, ctypes.c_int64 if form in (b"Z", b"U") else ctypes.c_int32)


def _rows_of_offsets(array: ArrowArrayStruct, first: int, count: int, kind: Any) -> list[bytes]:
    size, data = ctypes.sizeof(kind), array.buffers[2]
    ends = [kind.from_address(array.buffers[1] + size * (first + row)).value for row in range(count + 1)]
    _check(ends[0] >= 0)
    for row in range(count):
        _check(ends[row] <= ends[row + 1], row)
        _check(ends[row + 1] - ends[row] <= ENTRY_BYTES_MAX, row, ArrowFault.TOO_LONG)
    _check(data is not None or ends[0] == ends[-1], count - 1)
    return [_bytes_at(data, ends[row], ends[row + 1] - ends[row]) for row in range(count)]


def _rows_of_views(array: ArrowArrayStruct, first: int, count: int) -> list[bytes]:
    part_count, sizes = array.n_buffers - 3, array.buffers[array.n_buffers - 1]
    _check(not part_count or sizes is not None)
    rows: list[tuple[int, int, int]] = []
    for row in range(count):
        view = array.buffers[1] + _VIEW_BYTES * (first + row)
        size = ctypes.c_int32.from_address(view).value
        _check(size >= 0, row)
        base, begin = view, 4
        if size > _INLINE_BYTES:
            part = ctypes.c_int32.from_address(view + 8).value
            begin = ctypes.c_int32.from_address(view + 12).value
            _check(0 <= part < part_count and begin >= 0 and array.buffers[2 + part] is not None, row)
            part_size = ctypes.c_int64.from_address(sizes + 8 * part).value
            _check(begin + size <= part_size, row)
            base = array.buffers[2 + part]
        _check(size <= ENTRY_BYTES_MAX, row, ArrowFault.TOO_LONG)
        rows.append((base, begin, size))
    return [_bytes_at(*row) for row in rows]


def _bytes_at(base: int | None, begin: int, size: int) -> bytes:
    return ctypes.string_at(base + begin, size) if base is not None and size else b""
