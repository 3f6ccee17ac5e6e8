"""`spark.readStream.format("embedbk")`: micro-batches of logs, each between two points that never change.

An offset of the checkpoint is, for each log, how many entries are behind it, where the last of them stands, and the id
of the log; so a log that was deleted and begun anew is distinguished from the one that was read. Between calls nothing
is kept that a restart would need: Spark makes the reader again and continues from its checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from embedbk.client.batches import Segment
from embedbk.codec.log_identity import is_log_id
from embedbk.errors import EmbedbkError, NoSuchLedger, Truncated, UsageError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY
from embedbk.spark import reading
from embedbk.spark.options import SourceOptions
from embedbk.spark.partitions import RangePartition, logs_of, read_partition, split
from embedbk.spark.reading import LogPoint
from embedbk.spark.saying import briefly

__all__ = ["EmbedbkStreamReader"]

logger = logging.getLogger("embedbk.spark")

VERSION = 1  # The version of an offset in the checkpoint.

Points = dict[str, LogPoint]


class EmbedbkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """On the driver one lives as long as its query; another is pickled to the tasks, which only read."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._pin_name = f"spark-stream-{uuid.uuid4().hex}"
        self._pinned_s: dict[str, float] = {}
        self._target: Points | None = None  # The end of a query that reads what is available now.
        self._checked: dict[str, LogPoint] = {}
        self._reached: Points = {}

    # Called by Spark on the driver.

    @briefly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        place, start = self.options.place, self.options.start
        return _encode({name: reading.started(place, name, start) for name in logs_of(self.options)})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark knows no limit of both; where both are given, `latestOffset` keeps the other one, too."""
        if self.options.rows_per_trigger is not None:
            return ReadMaxRows(self.options.rows_per_trigger)
        if self.options.bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.bytes_per_trigger)
        return ReadAllAvailable()

    @briefly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {name: reading.end_of(self.options.place, name)[0] for name in logs_of(self.options)}

    @briefly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch. An error here would end the query: a passing one is logged, and nothing is
        new meanwhile."""
        points = self._points(start)
        try:
            return _encode(self._latest(points, limit))
        except EmbedbkError as error:
            # One of several was deleted behind the listing, which does not have it next time.
            is_one_less = isinstance(error, NoSuchLedger) and self.options.may_lose and not self.options.names
            if error.definite and not is_one_less:
                raise
            logger.warning("nothing new is read for now: %s", error)
            return start

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return _encode(self._reached) if self._reached else None

    @briefly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        options, began = self.options, self._points(start)
        found: list[InputPartition] = []
        for name, last in self._points(end).items():
            if began.get(name) == last and not self._is_asked_for(name):
                continue  # Of before the options changed: it may be gone.
            try:
                found += self._ranges(name, began.get(name), last)
            except NoSuchLedger as gone:
                if not options.may_lose:
                    raise
                if began.get(name) != last:
                    logger.warning(
                        "log %r: what was to be read up to offset %d is lost: %s", name, last.offset, gone
                    )
        return found

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has this in its checkpoint. Pins follow with the next `latestOffset`, which knows as much."""

    def stop(self) -> None:
        """Spark seldom calls it, so pins end by themselves, too."""
        for name in self._pinned_s:
            with contextlib.suppress(EmbedbkError):
                self.options.place.log(name).unpin(self._pin_name)

    # Called by Spark in a task.

    @briefly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RangePartition):  # None: there is nothing to read.
            yield from read_partition(self.options, partition)

    # Inside.

    def _points(self, offset: dict[str, Any]) -> Points:
        """Raises UsageError: it is no offset of this source, or one of other logs, of which nothing is read here."""
        points = _decode(offset)
        if points and self.options.names and not points.keys() & set(self.options.names):
            raise UsageError(
                f"the checkpoint is one of {', '.join(sorted(points))}, and {', '.join(self.options.names)} is to be "
                "read; nothing was read",
                hint="use a checkpoint directory of its own for each query",
            )
        return points

    def _is_asked_for(self, name: str) -> bool:
        names = self.options.names
        return name in names if names else name.startswith(self.options.prefix)

    def _standing(self, name: str, point: LogPoint | None) -> LogPoint:
        """Where reading continues behind a point of the checkpoint: usually there."""
        if point is None:
            return reading.begin(self.options.place, name)  # A log that has come since.
        if point.log_id and self._checked.get(name) == point:  # `_look` compares the id of the log each time.
            return point
        found = reading.standing(self.options.place, name, point, may_lose=self.options.may_lose)
        if found == point:
            self._checked[name] = point
        return found

    def _ranges(self, name: str, began: LogPoint | None, last: LogPoint) -> list[RangePartition]:
        """What one log has for the micro-batch from a point of the checkpoint on, in parts.

        Raises NoSuchLedger: it is not there any more, also where nothing of it is read.
        """
        options = self.options
        is_new = self._checked.get(name) == last  # `_latest` has just found it; else Spark runs it again.
        first = self._first(name, began, last)
        # Where another log has its name by now the next micro-batch begins with that, and here is nothing to read.
        if first.offset >= last.offset or not (is_new or self._still_stands(name, last)):
            return []
        segments = options.place.log(name).segments(first.offset)
        pinned_s = self._pinned_s.get(name, 0.0)
        return [
            RangePartition(part, self._pin_name, first.offset, pinned_s)
            for whole in reading.plan(name, segments, first, last)
            for part in split(whole, options.rows_per_partition)
        ]

    def _first(self, name: str, began: LogPoint | None, last: LogPoint) -> LogPoint:
        """Where the rows of a micro-batch begin, also of one that runs again: the same rows, or an error."""
        if last.begin is not None and last != began:
            if began is not None and not self.options.may_lose:
                self._standing(
                    name, began
                )  # A loss was passed over, which the options do not allow any more.
            return self._standing(name, LogPoint(last.begin, log_id=last.log_id))
        first = self._standing(name, began)
        if began is None and first.offset > 0 and last.entry_id != NO_ENTRY and not self.options.may_lose:
            error = Truncated(
                f"log {name!r} begins at offset {first.offset}, and was new in a micro-batch that an earlier build "
                "planned: from which offset on it had its rows nobody can tell",
                hint='read on from where it begins: option("failOnDataLoss", "false")',
            )
            error.first_offset = first.offset
            raise error
        return first

    def _still_stands(self, name: str, point: LogPoint) -> bool:
        """Whether the log is the one that the point was taken from. Not kept: the next micro-batch begins there."""
        found = reading.standing(self.options.place, name, point, may_lose=self.options.may_lose)
        return found == point

    def _latest(self, before: Points, limit: ReadLimit) -> Points:
        began, points = self._began(before)
        for name, point in began.items():
            self._keep(name, point)
        found = self._look(began)
        if not _rows(began, found) and self._target is None:
            self._wait(began)
            found = self._look(began)
        self._reached = {name: end for name, (end, _) in found.items()}
        rows, byte_count = self._limits(limit)
        if isinstance(limit, ReadMinRows) and _rows(began, found) < limit.min_rows and self._target is None:
            return before
        total = _rows(began, found)
        taken = {
            name: replace(point, begin=point.offset)
            for name, point in began.items()
            if point != points.get(name)
        }
        for name, (end, segments) in found.items():
            share = (end.offset - began[name].offset) / total if total else 0.0
            if share > 0:
                shares = [None if most is None else max(1, int(most * share)) for most in (rows, byte_count)]
                end = reading.admitted(segments, began[name], end, *shares)
                taken[name] = replace(end, begin=taken[name].begin if name in taken else None)
                # The admitted end begins the next batch: no need to look it up again.
                self._checked[name] = taken[name]
        return {**points, **taken}

    def _began(self, points: Points) -> tuple[Points, Points]:
        """Where reading goes on in each log; and the points without those of a log that has another name by now. It is
        new under that name, and goes on where it was read up to."""
        began = {name: self._standing(name, points.get(name)) for name in logs_of(self.options)}
        formerly = {each.log_id: name for name, each in points.items() if each.log_id}
        left = set()
        for name, point in began.items():
            if name not in points and (former := formerly.get(point.log_id)) is not None:
                began[name] = self._standing(name, points[former])
                left.add(former)
        left -= began.keys()
        return began, {name: point for name, point in points.items() if name not in left}

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """Rows and bytes. Where Spark takes all, no limit of ours holds."""
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self.options.bytes_per_trigger
        if isinstance(limit, ReadMaxBytes):
            return self.options.rows_per_trigger, limit.max_bytes
        return None, None

    def _look(self, began: Points) -> dict[str, tuple[LogPoint, list[Segment]]]:
        found = {}
        for name, point in began.items():
            try:
                end, segments = reading.end_of(self.options.place, name, point)
            except NoSuchLedger:
                self._checked.pop(name, None)
                raise
            target = None if self._target is None else self._target.get(name, point)
            if target is not None and target.log_id != end.log_id and end.log_id:
                target = point  # It has come, or was begun anew, since the query began.
            if target is not None and target.offset < end.offset:
                end = target if target.offset > point.offset else point
            found[name] = end, segments
        return found

    def _wait(self, began: Points) -> None:
        """For news, which comes by itself in a log alone; of several each is looked at again a little later."""
        if len(began) == 1:
            ((name, point),) = began.items()
            tail = self.options.place.log(name).tail(point.offset, idle_s=self.options.poll_wait_s)
            with contextlib.closing(tail):  # type: ignore[type-var]
                next(tail, None)
        else:
            time.sleep(self.options.poll_wait_s)

    def _keep(self, name: str, point: LogPoint) -> None:
        """A pin where this micro-batch begins, renewed when a quarter of its time is over."""
        now_s = time.time()
        if now_s - self._pinned_s.get(name, 0.0) > self.options.pin_s / 4:
            reading.pin(self.options.place, name, self._pin_name, point, self.options.pin_s)
            self._pinned_s[name] = now_s


def _rows(began: Points, found: dict[str, tuple[LogPoint, list[Segment]]]) -> int:
    return sum(end.offset - began[name].offset for name, (end, _) in found.items())


def _encode(points: Points) -> dict[str, Any]:
    logs = {}
    for name, each in sorted(points.items()):
        told: dict[str, Any] = {"offset": each.offset, "ledger": each.ledger_id, "entry": each.entry_id}
        if each.log_id:
            told["id"] = each.log_id
        if each.begin is not None:
            told["begin"] = each.begin
        logs[name] = told
    return {"v": VERSION, "logs": logs}


def _decode(offset: dict[str, Any]) -> Points:
    """Raises UsageError: it is no offset of this source."""
    try:
        if offset["v"] != VERSION:
            raise UsageError(
                f"the checkpoint has an offset of version {offset['v']}, and this build knows version {VERSION}",
                hint="read on with the build that wrote it, or begin with a new checkpoint",
            )
        return {
            str(name): LogPoint(
                _number(each["offset"], 0),
                _number(each["ledger"], NO_ENTRY),
                _number(each["entry"], NO_ENTRY),
                _log_id(each.get("id", "")),
                None if each.get("begin") is None else _number(each["begin"], 0),
            )
            for name, each in offset["logs"].items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as not_ours:
        raise UsageError(
            f"the checkpoint has the offset {offset!r}, which is none of this source",
            hint="use a checkpoint directory of its own for each query",
        ) from not_ours


def _log_id(told: object) -> str:
    """Raises ValueError: no id of a log, and not empty, as what an earlier build wrote."""
    if not isinstance(told, str) or (told and not is_log_id(told)):
        raise ValueError(told)
    return told


def _number(told: object, least: int) -> int:
    """Raises ValueError: no offset, ledger or entry."""
    if not isinstance(told, int) or isinstance(told, bool) or not least <= told <= LEDGER_ID_MAX:
        raise ValueError(told)
    return told
