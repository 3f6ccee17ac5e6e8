"""The values of Arrow data as rows that a packer takes without an object per entry; from any library that speaks Arrow.

Decides which column is taken, and what is no column of bytes; the contract is in
`arrow_rows`, the plain form is `arrow_columns_twin`. Nothing of pyarrow is imported.
"""

from __future__ import annotations

from typing import Any

from embedbk import _native
from embedbk._native import lib
from embedbk.codec.arrow_rows import Rows, ValueColumn, refuse_column
from embedbk.errors import UsageError

__all__ = ["rows_of"]

if lib.ebk_arrow_calls_install() != 0:
    raise MemoryError("no memory for the calls that take Arrow arrays")


def rows_of(data: Any, name: str) -> Rows:
    """The rows of column `name` of a record batch, table, data frame or stream of them, or of a column by itself.

    data: with `__arrow_c_array__` or `__arrow_c_stream__`; all of a stream is taken.

    Raises UsageError: no such data, no such column, a null, or a value that no entry can hold.
    """
    if not isinstance(name, str) or "\0" in name:
        raise UsageError(f"value={name!r}: the name of a column is allowed; nothing was appended")
    if hasattr(data, "__arrow_c_array__"):
        return Rows([_column(_native.arrow_column(*data.__arrow_c_array__(), name), name)])
    if not hasattr(data, "__arrow_c_stream__"):
        raise UsageError(
            f"{type(data).__name__} is no Arrow data: what has __arrow_c_array__ or __arrow_c_stream__ is, such as a "
            "pyarrow.RecordBatch; nothing was appended"
        )
    capsule, columns = data.__arrow_c_stream__(), []
    try:
        while (found := _native.arrow_column_of_stream(capsule, name)) is not None:
            columns.append(_column(found, name))
    except RuntimeError as failed:
        raise UsageError(f"{failed}; nothing was appended") from failed
    return Rows(columns)


def _column(found: Any, name: str) -> ValueColumn:
    if isinstance(found, tuple):
        raise refuse_column(found, name)
    column: ValueColumn = found
    return column
