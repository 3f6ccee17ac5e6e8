"""Rows of the Arrow C data interface once more in plain Python: two calls of `embedbk._native`, and what they return.

Values are `arrow_columns_twin`'s; this makes what stands beside them (native/wire/arrow_beside.h is what ships): an
attribute RECORDS for each row that has a key, a timestamp or headers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from embedbk.codec.arrow_columns_twin import (
    ArrowArrayStruct,
    ArrowSchemaStruct,
    ArrowStreamStruct,
    Child,
    RefusedColumn,
    bytes_rows,
    check,
    child_named,
    find_nulls,
    has_counts,
)
from embedbk.codec.arrow_rows import FAULTS_OF_A_COLUMN, ArrowFault, ArrowNames, Found
from embedbk.codec.attributes import encode_attributes
from embedbk.codec.entry_records import RECORDS_BYTES_MAX, EntryRecord, encode_records
from embedbk.codec.twins import HEADERS_MAX, is_header_name
from embedbk.config import ENTRY_BYTES_MAX
from embedbk.errors import UsageError

__all__ = ["TwinColumn", "twin_column", "twin_column_of_stream"]

_TIMES = {b"l": (1, 1), b"tss:": (1000, 1), b"tsm:": (1, 1), b"tsu:": (1, 1000), b"tsn:": (1, 1_000_000)}
_NULLS = b"n"  # A column of which every row is null, whatever it would be.
_pointer_of: Any = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class TwinColumn:
    """`ValueColumn` in plain Python: its rows are copied when it is made; then it needs no array."""

    def __init__(self, rows: list[bytes], attributes: list[bytes]) -> None:
        self._rows, self._attributes = rows, attributes
        sizes = [len(row) + len(beside) for row, beside in zip(rows, attributes, strict=True)]
        self.byte_count, self.largest = sum(sizes), max(sizes, default=0)
        self.has_records = any(attributes)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> bytes:
        return self._rows[row]

    def attribute(self, row: int) -> bytes:
        return self._attributes[row]


def twin_column(schema: object, array: object, *names: Any) -> Found:
    """As `arrow_column` of C."""
    its_schema = ArrowSchemaStruct.from_address(_pointer_of(schema, b"arrow_schema"))
    its_array = ArrowArrayStruct.from_address(_pointer_of(array, b"arrow_array"))
    return _column_from(its_schema, its_array, ArrowNames(*names))


def twin_column_of_stream(stream: object, *names: Any) -> Found | None:
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
        return _column_from(schema, array, ArrowNames(*names)) if array.release else None
    finally:
        if schema.release:
            schema.release(schema)


class _Which:
    """The column of `ArrowNames` that is looked at."""

    def __init__(self) -> None:
        self.number = 0


def _column_from(schema: ArrowSchemaStruct, array: ArrowArrayStruct, names: ArrowNames) -> Found:
    which = _Which()
    try:
        values = bytes_rows(child_named(schema, array, names.value.encode()), ENTRY_BYTES_MAX)
        rows = [row or b"" for row in values]
        return TwinColumn(rows, list(_attributes(schema, array, names, rows, which)))
    except RefusedColumn as refused:
        name = str(names[which.number]).encode()
        code = int(refused.fault) + FAULTS_OF_A_COLUMN * which.number
        return code, refused.row, _text_of(schema, name, refused.fault)
    finally:
        if array.release:
            array.release(array)


def _text_of(schema: ArrowSchemaStruct, name: bytes, fault: ArrowFault) -> str:
    if fault is ArrowFault.UNSOUND:
        return ""  # Its names may have gone with it.
    form = schema.format or b""
    if form != b"+s":
        return "" if fault is ArrowFault.NO_COLUMN else str(form.decode(errors="replace"))
    children = [schema.children[at].contents for at in range(schema.n_children)]
    if fault is ArrowFault.FORMAT:
        form = next(child.format for child in children if child.name == name)
        return str(form.decode(errors="replace"))
    return ", ".join((child.name or b"").decode(errors="replace") for child in children)


def _attributes(
    schema: ArrowSchemaStruct, array: ArrowArrayStruct, names: ArrowNames, rows: list[bytes], which: _Which
) -> Iterator[bytes]:
    """What stands beside each row; empty: nothing."""

    def child(number: int) -> Child | None:
        which.number = number
        if names[number] is None:
            return None
        found = child_named(schema, array, str(names[number]).encode())
        check(found.schema is not schema, 0, ArrowFault.NO_COLUMN)
        return None if found.schema.format == _NULLS else found

    count = len(rows)
    keys = bytes_rows(found) if (found := child(1)) is not None else [None] * count
    times = _times(found) if (found := child(2)) is not None else [None] * count
    headers = _maps(found) if (found := child(3)) is not None else [None] * count
    for row in range(count):
        key, time, named = keys[row], times[row], headers[row] or []
        which.number = 1
        check(key is None or 4 + len(key) <= RECORDS_BYTES_MAX, row, ArrowFault.BESIDE)
        which.number = 2
        check(time is None or 0 <= time < 2**63, row, ArrowFault.TIME)
        before_headers = 2 + (0 if key is None else 2 + len(key)) + (0 if time is None else 8)
        check(before_headers <= RECORDS_BYTES_MAX, row, ArrowFault.BESIDE)
        which.number = 3
        check(len(named) <= HEADERS_MAX, row, ArrowFault.MANY)
        seen: dict[str, bytes] = {}
        for name, value in named:
            check(name is not None and value is not None, row, ArrowFault.NULL)
            assert name is not None and value is not None
            check(is_header_name(name), row, ArrowFault.NAME)
            check(name.decode() not in seen, row, ArrowFault.TWICE)
            seen[name.decode()] = value
        try:
            encoded = encode_attributes(records=encode_records([EntryRecord(rows[row], key, time, seen)]))
        except UsageError as too_long:
            raise RefusedColumn(ArrowFault.BESIDE, row) from too_long
        which.number = 0
        is_one_entry = not encoded or len(rows[row]) + len(encoded) <= ENTRY_BYTES_MAX
        check(is_one_entry, row, ArrowFault.TOGETHER)
        yield encoded


def _times(child: Child) -> list[int | None]:
    """Times in ms since 1970; -1 where a row has none."""
    schema, array, first, count = child
    form = schema.format
    scale = _TIMES.get(form if form == b"l" else form[:4])
    check(scale is not None and not schema.dictionary and not array.dictionary, 0, ArrowFault.FORMAT)
    assert scale is not None
    check(array.n_buffers == 2)
    check(not count or array.buffers[1] is not None)
    nulls, times = find_nulls(array, first, count), list[int | None]()
    for row in range(count):
        if row in nulls:
            times.append(None)
            continue
        value = ctypes.c_int64.from_address(array.buffers[1] + 8 * (first + row)).value
        times.append(value * scale[0] // scale[1] if value >= 0 else -1)
    return times


def _maps(child: Child) -> list[list[tuple[bytes | None, bytes | None]] | None]:
    schema, array, first, count = child
    check(schema.format in (b"+m", b"+l", b"+L"), 0, ArrowFault.FORMAT)
    check(array.n_buffers == 2 and schema.n_children == 1 == array.n_children and bool(schema.children))
    pair_schema, pairs = schema.children[0].contents, array.children[0].contents
    check(pair_schema.format is not None and has_counts(pairs))
    check(pair_schema.format == b"+s" and pair_schema.n_children == 2, 0, ArrowFault.FORMAT)
    check(bool(pair_schema.children) and pairs.n_children == 2)
    if not count:
        return []
    check(array.buffers[1] is not None)
    kind: Any = ctypes.c_int64 if schema.format == b"+L" else ctypes.c_int32
    size = ctypes.sizeof(kind)
    ends = [kind.from_address(array.buffers[1] + size * (first + row)).value for row in range(count + 1)]
    for row in range(count):
        check(0 <= ends[row] <= ends[row + 1], row)
    check(ends[-1] <= pairs.length)
    base, number = ends[0], ends[-1] - ends[0]
    missing = find_nulls(pairs, pairs.offset + base, number)
    columns = [
        _of_pairs(pair_schema.children[at].contents, pairs.children[at].contents, pairs.offset + base, number)
        for at in range(2)
    ]
    both = [
        (None, None) if pair in missing else (columns[0][pair], columns[1][pair]) for pair in range(number)
    ]
    nulls = find_nulls(array, first, count)
    return [None if row in nulls else both[ends[row] - base : ends[row + 1] - base] for row in range(count)]


def _of_pairs(
    schema: ArrowSchemaStruct, array: ArrowArrayStruct, first: int, count: int
) -> list[bytes | None]:
    check(schema.format is not None and has_counts(array) and array.length >= first + count)
    try:
        return bytes_rows(Child(schema, array, array.offset + first, count))
    except RefusedColumn as refused:  # A pair is in no row yet.
        raise RefusedColumn(refused.fault, 0) from refused
