"""Arrow data made by hand: what any producer may hand over, without pyarrow; and what none should.

Arrays of the Arrow C data interface with all layouts of bytes, whose numbers may be spoilt before they are taken.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from embedbk.codec.arrow_columns_twin import ArrowArrayStruct, ArrowSchemaStruct, ArrowStreamStruct

__all__ = ["FORMATS", "ArrowBytes"]

FORMATS = ("z", "u", "Z", "U", "vz", "vu")

_KEPT: dict[int, Any] = {}  # Memory that an array that was taken uses, until it is released.
_capsule: Any = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

_IN_ARRAY: dict[str, Any] = {field[0]: field[1] for field in ArrowArrayStruct._fields_}
_IN_SCHEMA: dict[str, Any] = {field[0]: field[1] for field in ArrowSchemaStruct._fields_}
_IN_STREAM: dict[str, Any] = {field[0]: field[1] for field in ArrowStreamStruct._fields_}


def _release(array: Any) -> None:
    array.contents.release = _IN_ARRAY["release"]()
    _KEPT.pop(array.contents.private_data, None)


def _release_names(schema: Any) -> None:
    schema.contents.release = _IN_SCHEMA["release"]()


_release_array, _release_schema = _IN_ARRAY["release"](_release), _IN_SCHEMA["release"](_release_names)


class ArrowBytes:
    """Values as Arrow data: a column by itself, or under a name in a struct; with chunk=, a stream of such.

    keys: of a struct, a column `key` beside the values, null where they are None; not beside front=. front: rows before
    the values that a slice leaves out; where it is a struct, half of them by the struct's own offset.
    spoil: called with the array of the values before it is handed over. nulls: rows that are null.
    """

    def __init__(
        self,
        values: Sequence[bytes],
        form: str = "z",
        *,
        name: str | None = None,
        keys: Sequence[bytes | None] = (),
        front: int = 0,
        nulls: Sequence[int] = (),
        chunk: int | None = None,
        error: str = "",
        spoil: Callable[[Any], None] = lambda array: None,
    ) -> None:
        self._values, self._form, self._name = list(values), form, name
        self._front, self._nulls, self._spoil, self._error = front, nulls, spoil, error
        self._keys = list(keys)
        if chunk is None:
            self.__arrow_c_array__ = self._as_array
        else:
            self._chunk = chunk
            self.__arrow_c_stream__ = self._as_stream

    def _as_array(self, requested_schema: object = None) -> tuple[Any, Any]:
        schema, array = self._schema(), self._array(self._values, self._keys)
        self.held: Any = (schema, array)  # Until they are taken.
        return (
            _capsule(ctypes.addressof(schema), b"arrow_schema", None),
            _capsule(ctypes.addressof(array), b"arrow_array", None),
        )

    def _as_stream(self, requested_schema: object = None) -> Any:
        """Chunk by chunk, each an array of its own; then the end, or an error."""
        chunks = [
            (self._values[at : at + self._chunk], self._keys[at : at + self._chunk])
            for at in range(0, len(self._values), self._chunk)
        ]
        error = ctypes.create_string_buffer(self._error.encode())

        def get_schema(stream: Any, out: Any) -> int:
            return _move(self._schema(), out)

        def get_next(stream: Any, out: Any) -> int:
            if chunks:
                return _move(self._array(*chunks.pop(0)), out)
            ctypes.memset(out, 0, ctypes.sizeof(ArrowArrayStruct))
            return 5 if self._error else 0

        calls = (
            _IN_STREAM["get_schema"](get_schema),
            _IN_STREAM["get_next"](get_next),
            _IN_STREAM["get_last_error"](lambda _: ctypes.addressof(error)),
            _IN_STREAM["release"](_ignore),
        )
        stream = ArrowStreamStruct(*calls, None)
        self.held = (stream, error, calls)
        return _capsule(ctypes.addressof(stream), b"arrow_array_stream", None)

    def _schema(self) -> Any:
        form = self._form.encode()
        schema = ArrowSchemaStruct(
            format=form, name=(self._name or "").encode(), flags=2, release=_release_schema
        )
        self._schemas: list[Any] = [schema]
        if self._name is None:
            return schema
        key = ArrowSchemaStruct(format=b"z", name=b"key", flags=2, release=_release_schema)
        columns = [schema, key] if self._keys else [schema]
        children = (ctypes.POINTER(ArrowSchemaStruct) * len(columns))(*map(ctypes.pointer, columns))
        whole = ArrowSchemaStruct(
            format=b"+s", name=b"", n_children=len(columns), children=ctypes.cast(children, _CHILDREN_OF_SCHEMA),
            release=_release_schema,
        )  # fmt: skip
        self._schemas += [whole, key, children]
        return whole

    def _array(self, values: list[bytes], keys: list[bytes | None]) -> Any:
        own_front = self._front // 2 if self._name is not None else self._front
        rows = [b"left out"] * self._front + values
        bits = bytearray(b"\xff" * (len(rows) // 8 + 1))
        for row in self._nulls:
            bits[(self._front + row) // 8] &= ~(1 << (self._front + row) % 8)
        buffers = [bytes(bits), *_LAYOUTS[self._form](rows)]
        array, kept = _struct(buffers, len(rows) - own_front, own_front, len(self._nulls))
        self._spoil(array)
        if self._name is not None:
            columns = [array]
            if keys:
                own, kept_key = _keys_array(keys)
                columns.append(own)
                kept += kept_key
            children = (ctypes.POINTER(ArrowArrayStruct) * len(columns))(*map(ctypes.pointer, columns))
            whole, kept_whole = _struct([None], len(values), self._front - own_front, 0)
            whole.n_children, whole.children = len(columns), ctypes.cast(children, _CHILDREN)
            kept += [*columns, children, *kept_whole]
            array = whole
        address = ctypes.addressof(kept[0])
        array.private_data = address
        _KEPT[address] = kept
        return array


_CHILDREN = ctypes.POINTER(ctypes.POINTER(ArrowArrayStruct))
_CHILDREN_OF_SCHEMA = ctypes.POINTER(ctypes.POINTER(ArrowSchemaStruct))


def _ignore(_: Any) -> None:
    """The capsule's owner keeps what stands behind a stream."""


def _move(made: Any, out: Any) -> int:
    ctypes.memmove(out, ctypes.addressof(made), ctypes.sizeof(made))
    return 0


def _keys_array(keys: list[bytes | None]) -> tuple[Any, list[Any]]:
    bits = bytearray(len(keys) // 8 + 1)
    for row, key in enumerate(keys):
        bits[row // 8] |= (key is not None) << row % 8
    return _struct([bytes(bits), *_by_offsets([key or b"" for key in keys], "i")], len(keys), 0, -1)


def _struct(
    buffers: Sequence[bytes | None], length: int, offset: int, null_count: int
) -> tuple[Any, list[Any]]:
    held = [None if data is None else ctypes.create_string_buffer(data, len(data) or 1) for data in buffers]
    pointers = (ctypes.c_void_p * len(held))(
        *(None if one is None else ctypes.addressof(one) for one in held)
    )
    array = ArrowArrayStruct(
        length, null_count, offset, len(held), 0, ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p)),
        release=_release_array,
    )  # fmt: skip
    return array, [pointers, *held]


def _by_offsets(rows: list[bytes], code: str) -> list[bytes]:
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row))
    return [struct.pack(f"={len(ends)}{code}", *ends), b"".join(rows)]


def _by_views(rows: list[bytes]) -> list[bytes]:
    """Long ones in two parts, in turns."""
    views, parts = b"", [bytearray(), bytearray()]
    for number, row in enumerate(rows):
        if len(row) <= 12:
            views += struct.pack("=i12s", len(row), row)
            continue
        part = parts[number % 2]
        views += struct.pack("=i4sii", len(row), row[:4], number % 2, len(part))
        part += row
    sizes = struct.pack(f"={len(parts)}q", *map(len, parts))
    return [views, *map(bytes, parts), sizes]


_LAYOUTS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "z": lambda rows: _by_offsets(rows, "i"), "u": lambda rows: _by_offsets(rows, "i"),
    "Z": lambda rows: _by_offsets(rows, "q"), "U": lambda rows: _by_offsets(rows, "q"),
    "vz": _by_views, "vu": _by_views,
}  # fmt: skip
