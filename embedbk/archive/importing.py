"""Files of other programs put into a log: a record for each row, all of them at once, once (P8.5).

Decides which columns a record is made of, that rows come in the order of the files and of the rows in them, and that
nothing is appended if one row cannot be a record. pyarrow reads the files.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from embedbk.archive.record_rows import append_rows
from embedbk.archive.transactions import answered, done_before, given_up_unless_done, is_done_by_another
from embedbk.client.client import Client
from embedbk.client.log import Log
from embedbk.client.splicing import SpliceOutcome, Staging
from embedbk.core.log_splicing import SPLICE_LEDGERS_MAX
from embedbk.errors import EmbedbkError, OperationTimeout, UsageError

__all__ = ["FORMATS", "ImportTask", "Imported", "RecordColumns", "import_files", "stage_rows"]

FORMATS = ("parquet", "arrow", "csv", "json")  # json: an object in each line.
_ROWS_AT_ONCE = 8_192


@dataclass(frozen=True)
class RecordColumns:
    """Which columns of a file a record is made of; None: it has none of these."""

    value: str = "value"
    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None

    def named(self) -> dict[str, str]:
        """The parts that a record has, each with its column."""
        named = {"value": self.value, "key": self.key, "timestamp": self.timestamp, "headers": self.headers}
        return {part: column for part, column in named.items() if column is not None}


@dataclass(frozen=True)
class ImportTask:
    """Files whose rows become one staged ledger, in this order; plain data."""

    staging: Staging
    files: tuple[str, ...]
    file_format: str
    columns: RecordColumns


@dataclass(frozen=True)
class Imported:
    """The records' place in the log; None: there were none. rows: those of this transaction; 0: it was done before."""

    outcome: SpliceOutcome | None
    rows: int


# The ledgers that tasks have staged, and the rows in them, in the order of the tasks.
ImportRunner = Callable[[Log, Sequence[ImportTask]], Iterable[tuple[int, int]]]


def import_files(
    client: Client,
    into: str,
    paths: Sequence[str | os.PathLike[str]],
    *,
    file_format: str = "parquet",
    columns: RecordColumns | None = None,
    password: bytes = b"",
    application: str | None = None,
    number: int = 0,
    run: ImportRunner | None = None,
) -> Imported:
    """Append the rows of files to a log as records, in order and all at once.

    Args:
        paths: files, or directories: all files in them, in the order of their names, except names that begin with "_"
            or "."; subdirectories are not read.
        file_format: one of FORMATS.
        columns: None: the column `value`, and no other. Values and keys are binary or text, timestamps are numbers of
            ms since 1970 or Arrow's own, headers are maps of text to binary or text.
        application, number: the same ones again, or a lower number, append nothing (`Log.staging`); None: a
            transaction that is not run again.
        run: how tasks are run; None: one after the other, in this process.

    Raises:
        UsageError: a file is not there or not of this format, a column is not there or of another type, a row has no
            value, or one that no record can have. The message names the file. Nothing was appended.
        What `Log.splice` raises.
    """
    if file_format not in FORMATS:
        raise UsageError(f"format {file_format!r}: it is one of {', '.join(FORMATS)}")
    files = list(_files(paths))
    log = client.log(into, password=password)
    terms = log.staging(application, number)
    done = done_before(log, application, number)
    if done is not None:
        return Imported(done, 0)
    groups = min(len(files), SPLICE_LEDGERS_MAX)
    tasks = [
        ImportTask(
            terms,
            tuple(files[len(files) * group // groups : len(files) * (group + 1) // groups]),
            file_format,
            columns or RecordColumns(),
        )
        for group in range(groups)
    ]
    with given_up_unless_done(log, terms):
        answers = answered((run or run_here)(log, tasks), tasks)
        staged = [(ledger_id, rows) for ledger_id, rows in answers if rows]
        outcome = log.splice(terms, [ledger_id for ledger_id, _ in staged]) if staged else None
    if len(staged) < len(tasks):
        with contextlib.suppress(
            EmbedbkError
        ):  # Files without a row: their ledgers are given up in time anyway.
            log.unstage(terms)
    if outcome is not None and is_done_by_another(outcome, terms):
        return Imported(outcome, 0)
    return Imported(outcome, sum(rows for _, rows in staged))


def run_here(log: Log, tasks: Sequence[ImportTask]) -> Iterator[tuple[int, int]]:
    for task in tasks:
        yield stage_rows(log, task)


def _files(paths: Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    if not paths:
        raise UsageError("no file was named")
    for path in map(os.path.abspath, paths):
        try:
            mode = os.stat(path).st_mode
            names = sorted(os.listdir(path)) if stat.S_ISDIR(mode) else None
        except OSError as absent:
            raise UsageError(f"{path!r} cannot be read: {absent}; nothing was appended") from absent
        if names is None and not stat.S_ISREG(mode):
            raise UsageError(f"{path!r} is neither a file nor a directory; nothing was appended")
        if names is None:
            yield path
            continue
        found = [os.path.join(path, name) for name in names if name[0] not in "_."]
        files = [each for each in found if os.path.isfile(each)]
        if not files:
            raise UsageError(f"directory {path!r} has no file; nothing was appended")
        yield from files


def stage_rows(log: Log, task: ImportTask) -> tuple[int, int]:
    """Stage one task's rows; return the ledger, durable and closed, and the number of rows."""
    rows = 0
    with log.stage(task.staging) as writer:
        for path in task.files:
            before = rows
            try:
                for batch in _batches(path, task):
                    append_rows(writer, batch)
                    rows += batch.num_rows
            except UsageError as refused:
                raise UsageError(f"{path!r}, behind row {rows - before}: {refused}") from refused
            except OperationTimeout:
                raise  # It is an OSError, and no fault of the file: what was appended was not acknowledged in time.
            except (pa.ArrowException, OSError, ValueError) as unread:
                raise UsageError(
                    f"{path!r}, behind row {rows - before}: it cannot be read as {task.file_format}: {unread}"
                ) from unread
    return writer.ledger_id, rows


def _batches(path: str, task: ImportTask) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in order, in columns named as the parts of a record."""
    named = task.columns.named()
    source = pyarrow.dataset.dataset(path, format=_format_of(task))
    absent = sorted(set(named.values()) - set(source.schema.names))
    if absent:
        raise UsageError(f"it has no column {', '.join(absent)}; there are {', '.join(source.schema.names)}")
    for part, column in named.items():
        kind = source.schema.field(column).type
        if not _ALLOWED[part](kind):
            raise UsageError(f"column {column} is {kind}, and a record's {part} is {_WANTED[part]}")
    scanned = source.to_batches(
        columns=list(dict.fromkeys(named.values())),
        batch_size=_ROWS_AT_ONCE,
        batch_readahead=2,
        fragment_readahead=1,
    )
    for batch in scanned:
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(
                [batch.column(column) for column in named.values()], names=list(named)
            )


def _format_of(task: ImportTask) -> Any:
    """Values and keys of a CSV file are its bytes, also where they look like numbers, and have lines of their own."""
    if task.file_format != "csv":
        return task.file_format
    texts = {column: pa.binary() for column in (task.columns.value, task.columns.key) if column is not None}
    return pyarrow.dataset.CsvFileFormat(
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=texts),
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
    )


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind))


def _is_headers(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) and pa.types.is_string(kind.key_type) and _is_bytes(kind.item_type)


_ALLOWED: dict[str, Callable[[pa.DataType], bool]] = {
    "value": _is_bytes,
    "key": _is_bytes,
    "timestamp": _is_time,
    "headers": _is_headers,
}
_WANTED = {
    "value": "binary or text",
    "key": "binary or text",
    "timestamp": "a number of ms since 1970, or a timestamp",
    "headers": "a map of text to binary or text",
}
