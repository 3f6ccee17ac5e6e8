"""Arrow record batches of what is read: one after the other, and as a stream for all that speak Arrow.

Decides how frames become a stream of the Arrow C stream interface. pyarrow is imported when it is needed, so that
reading without it costs nothing and needs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from embedbk.client.batches import Batch, Located, batch_of
from embedbk.config import check_flag
from embedbk.errors import EmbedbkError, UsageError

__all__ = ["RecordBatches", "record_batch_maker", "stream_of"]


def _arrow() -> Any:
    """The module that needs pyarrow. Raises UsageError where that is not installed."""
    try:
        from embedbk import arrow
    except ImportError as missing:
        raise UsageError(
            "record batches need pyarrow, which is not installed", hint="pip install 'embedbk[arrow]'"
        ) from missing
    return arrow


def record_batch_maker(*, with_records: bool) -> Callable[[Located], Any]:
    """A function that makes an Arrow record batch of a frame.

    Raises UsageError where pyarrow is not installed.
    """
    check_flag(with_records, "with_records")
    arrow = _arrow()
    return lambda located: arrow.record_batch(batch_of(located), with_records=with_records)


def stream_of(batches: Iterator[Batch], requested_schema: object) -> Any:
    """A capsule of the Arrow C stream interface; a batch is made when its holder asks for the next."""
    arrow = _arrow()
    return arrow.stream(map(arrow.record_batch, batches), arrow.SCHEMA, requested_schema)


class RecordBatches(Iterator[Any]):
    """The record batches of a log or ledger, in order, to be iterated once; or a stream, for whatever takes one:
    `pyarrow.table(batches)`, and likewise polars, DuckDB, pandas. The stream is read as its taker asks for more, in the
    taker's thread.

    Attributes:
        schema: of every batch, `embedbk.arrow.SCHEMA` or `SCHEMA_WITH_RECORDS`.
        next_offset: the dense offset behind the last row that was given; None before the first.
        error: what ended it early. Iterating raises it as it is, each time: what was not read never looks like an end.
            The C interface carries its text only, so the consumer of the stream finds the error itself here.
    """

    def __init__(self, frames: Iterator[Located], *, with_records: bool) -> None:
        check_flag(with_records, "with_records")
        self._arrow = _arrow()
        self._with_records = with_records
        self._frames = frames
        self.next_offset: int | None = None
        self.error: EmbedbkError | None = None

    @property
    def schema(self) -> Any:
        return self._arrow.SCHEMA_WITH_RECORDS if self._with_records else self._arrow.SCHEMA

    def __next__(self) -> Any:
        if self.error is not None:
            raise self.error
        try:
            located = next(self._frames)
        except EmbedbkError as failed:
            self.error = failed
            raise
        except (StopIteration, ValueError):
            raise  # The end; or another thread reads with it just now.
        except BaseException as other:
            self.error = _ended_by(other)
            raise
        try:
            made = self._arrow.record_batch(batch_of(located), with_records=self._with_records)
        except BaseException as other:
            self.error = _ended_by(other)
            raise
        self.next_offset = located.first_offset + located.frame.last_entry + 1
        return made

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self._arrow.stream(self, self.schema, requested_schema)


def _ended_by(other: BaseException) -> UsageError:
    """The error for what ended the process or its waiting: reading cannot go on behind it."""
    return UsageError(
        f"these record batches were ended by {type(other).__name__}", hint="make others, from next_offset on"
    )
