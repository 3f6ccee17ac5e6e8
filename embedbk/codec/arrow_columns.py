"""Arrow data as rows that a packer takes without an object per entry; from any library that speaks Arrow.

Decides which columns are taken, and what is no column of bytes; the contract is in `arrow_rows`, the plain form is
`arrow_twin`. Nothing of pyarrow is imported.
"""

from __future__ import annotations

from typing import Any

from embedbk import _native
from embedbk._native import lib
from embedbk.codec.arrow_rows import ArrowNames, Rows, ValueColumn, refuse_column
from embedbk.errors import UsageError

__all__ = ["rows_of"]

if lib.ebk_arrow_calls_install() != 0:
    raise MemoryError("no memory for the calls that take Arrow arrays")


def rows_of(data: Any, names: ArrowNames) -> Rows:
    """The rows of these columns of a record batch, table, data frame or stream of them, or of a column by itself.

    data: with `__arrow_c_array__` or `__arrow_c_stream__`; all of a stream is taken.

    Raises UsageError: no such data, no such column, a null, or a record that no entry can hold.
    """
    for role, name in zip(ArrowNames._fields, names, strict=True):
        if not _is_name(name) and (name is not None or role == "value"):
            raise UsageError(f"{role}={name!r}: the name of a column is allowed; nothing was appended")
    if hasattr(data, "__arrow_c_array__"):
        return Rows([_column(_native.arrow_column(*data.__arrow_c_array__(), *names), names)])
    if not hasattr(data, "__arrow_c_stream__"):
        raise UsageError(
            f"{type(data).__name__} is no Arrow data: what has __arrow_c_array__ or __arrow_c_stream__ is, such as a "
            "pyarrow.RecordBatch; nothing was appended"
        )
    capsule, columns = data.__arrow_c_stream__(), []
    while (found := _next_of(capsule, names)) is not None:
        columns.append(_column(found, names))
    return Rows(columns)


def _next_of(capsule: Any, names: ArrowNames) -> Any:
    try:
        return _native.arrow_column_of_stream(capsule, *names)
    except (RuntimeError, ValueError) as failed:  # It failed, or was taken already.
        raise UsageError(f"{failed}; nothing was appended") from failed


def _is_name(name: Any) -> bool:
    """C takes text of UTF-8 that ends with its first NUL."""
    return isinstance(name, str) and "\0" not in name and name.encode(errors="ignore").decode() == name


def _column(found: Any, names: ArrowNames) -> ValueColumn:
    if isinstance(found, tuple):
        raise refuse_column(found, names)
    column: ValueColumn = found
    return column
