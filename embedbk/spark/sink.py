"""`df.write.format("embedbk")` and `df.writeStream.format("embedbk")`: rows become entries of a log, exactly once.

Tasks stage ledgers, or send few rows in their messages; the driver's commit splices all of them into the log in one
transaction (P8.5). Spark makes the writer of a micro-batch anew for its commit, which gets the query's id from the
messages only; both ids are those of before when a driver is started again, so that a replay is recognised.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    CharType,
    DatetimeType,
    DayTimeIntervalType,
    NumericType,
    StringType,
    StructType,
    VarcharType,
)

from embedbk.client.splicing import Staging
from embedbk.errors import EmbedbkError, UsageError
from embedbk.spark import sinking
from embedbk.spark.saying import briefly
from embedbk.spark.sink_options import SinkOptions, sink_options
from embedbk.spark.sinking import VALUE, Output

__all__ = ["EmbedbkStreamWriter", "EmbedbkWriter", "batch_writer", "stream_writer"]

_JOB_BYTES = 16
# What Arrow sorts as Spark does. A variant would be sorted by its encoding, a months' interval cannot be.
ORDERED = (
    NumericType, BooleanType, StringType, CharType, VarcharType, BinaryType, DatetimeType, DayTimeIntervalType,
)  # fmt: skip
# The columns that a sink takes beside the value, and Spark's types of them.
RECORD_TYPES = {
    "key": ("binary", "string"),
    "timestamp": ("bigint", "timestamp", "timestamp_ntz"),
    "headers": ("map<string,binary>", "map<string,string>"),
}


@dataclass
class OutputMessage(WriterCommitMessage):
    """The message of one task to the driver."""

    output: Output
    query: str = ""  # For a stream: the query of the micro-batch.


def batch_writer(options: dict[str, str], schema: StructType, *, overwrite: bool) -> EmbedbkWriter:
    if overwrite:
        raise UsageError(
            "a log is appended to, and never written over; nothing was done",
            hint='.mode("append"); delete_log() deletes a log, truncate() lets its oldest entries go',
        )
    checked = sink_options(options, is_stream=False)
    check_schema(schema, checked.order_by)
    return EmbedbkWriter(checked)


def stream_writer(options: dict[str, str], schema: StructType) -> EmbedbkStreamWriter:
    checked = sink_options(options, is_stream=True)
    check_schema(schema, checked.order_by)
    return EmbedbkStreamWriter(checked)


def check_schema(schema: StructType, order_by: str) -> None:
    """Raises UsageError, on the driver, for rows that cannot be entries."""
    types = {field.name: field.dataType for field in schema.fields}
    if not isinstance(types.get(VALUE), BinaryType | StringType):
        there = types[VALUE].simpleString() if VALUE in types else f"one of {', '.join(types)}"
        raise UsageError(
            f"a column {VALUE}, binary or string, is what is written, and there is {there}; nothing was written",
            hint='df.selectExpr("to_json(struct(*)) AS value"), say',
        )
    if order_by and order_by not in types:
        raise UsageError(
            f"option orderBy={order_by!r} names no column of {', '.join(types)}; nothing was written"
        )
    if order_by and not isinstance(types[order_by], ORDERED):
        raise UsageError(
            f"option orderBy={order_by!r}: a column of {types[order_by].simpleString()} says no order; nothing was "
            "written"
        )
    for name, allowed in RECORD_TYPES.items():
        if name in types and not any(types[name].simpleString() == each for each in allowed):
            raise UsageError(
                f"column {name} is {' or '.join(allowed)}, and there is {types[name].simpleString()}; nothing was "
                "written"
            )
    more = sorted(set(types) - {VALUE, order_by, *RECORD_TYPES})
    if more:
        raise UsageError(
            f"columns {', '.join(more)} would be lost: an entry has {VALUE}, {', '.join(RECORD_TYPES)}; nothing was "
            "written",
            hint='df.select("key", "value")',
        )


class EmbedbkWriter(DataSourceArrowWriter):
    """Made once on the driver, and pickled to tasks and commit: all of them have one job."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        job = os.urandom(_JOB_BYTES)
        expires_ms = int((time.time() + options.staged_s) * 1000)
        is_once = not options.application
        application = options.application or f"spark-batch-{job.hex()}"
        self.staging = Staging(options.log, application, options.number, job, expires_ms, is_once)

    @briefly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> OutputMessage:
        return OutputMessage(sinking.write(self.options, self.staging, iterator))

    @briefly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raises EmbedbkError: a task gave no message; nothing was written."""
        sinking.commit(self.options, self.staging, _outputs(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        sinking.call_off(self.options, self.staging)


class EmbedbkStreamWriter(DataSourceStreamArrowWriter):
    """Holds nothing that its commit could rely on: another instance is asked for that."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    @briefly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> OutputMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if not query or batch is None:
            raise UsageError(
                "this task belongs to no micro-batch of a query: nothing tells a replay from news"
            )
        return OutputMessage(sinking.write(self.options, self._staging(query, int(batch)), iterator), query)

    @briefly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        outputs, query = _outputs(messages), _query_of(messages)
        if query:
            staging = self._staging(query, batchId)
            sinking.commit(self.options, staging, outputs, partial(_job_of, query))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        query = _query_of(messages)
        if query:  # Else no task came to its end, and what is staged ends by its time.
            sinking.call_off(self.options, self._staging(query, batchId))

    def _staging(self, query: str, batch: int) -> Staging:
        """The same in every task of a micro-batch and in its commit, also behind a driver that was killed."""
        application = self.options.application or query
        expires_ms = int((time.time() + self.options.staged_s) * 1000)
        return Staging(self.options.log, application, batch, _job_of(query, batch), expires_ms)


def _job_of(query: str, batch: int) -> bytes:
    return hashlib.sha256(f"{query}/{batch}".encode()).digest()[:_JOB_BYTES]


def _outputs(messages: list[WriterCommitMessage | None]) -> list[Output]:
    """Raises EmbedbkError: one is None, as Spark has it of a task that failed; whatever its rows were, they lack."""
    outputs = [message.output for message in messages if isinstance(message, OutputMessage)]
    if len(outputs) < len(messages):
        raise EmbedbkError(
            f"{len(messages) - len(outputs)} of {len(messages)} tasks gave no answer, and nobody can tell which rows "
            "they had; nothing was written",
            hint="run the job again",
        )
    return outputs


def _query_of(messages: list[WriterCommitMessage | None]) -> str:
    return next((message.query for message in messages if isinstance(message, OutputMessage)), "")
