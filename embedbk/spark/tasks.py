"""Running plain functions in executors, one partition for each task, without pandas and without an RDD.

A data source is what Spark hands to executors in every mode, Spark Connect too: a partition is a task, and its one row
is the pickled answer. Decides how functions, tasks and answers travel; they are pickled by their names.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from embedbk.errors import EmbedbkError

__all__ = ["TaskSource", "each"]

T = TypeVar("T")
R = TypeVar("R")

_FORMAT = "embedbk-tasks"
_WORK = "work"
_SCHEMA = pa.schema([("task", pa.int64()), ("answer", pa.binary())])


def each(spark: Any, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
    """The answers in the order of the tasks. function: picklable, and as often as Spark runs a task.

    Raises: what the first task raised that failed with one of embedbk's errors, as it is, and no stack of Java's.
    """
    if not tasks:
        return iter(())
    spark.dataSource.register(TaskSource)
    work = base64.b64encode(pickle.dumps((function, list(tasks)))).decode()
    rows = spark.read.format(_FORMAT).option(_WORK, work).load().collect()
    found = {row.task: bytes(row.answer) for row in rows}
    answers = [pickle.loads(found[number]) for number in range(len(tasks))]
    for answer in answers:
        if isinstance(answer, _Failure):
            raise answer.error
    return iter(answers)


@dataclass(frozen=True)
class _Failure:
    """The answer of a task that ended with an error which says what to do."""

    error: EmbedbkError


def _answer(function: Callable[[T], R], task: T) -> bytes:
    try:
        return pickle.dumps(function(task))
    except EmbedbkError as failed:
        failed.ticket = None  # It is a handle of this process.
        return pickle.dumps(_Failure(failed))


@dataclass(frozen=True)
class TaskPartition(InputPartition):
    number: int


class TaskSource(DataSource):
    """The format; only `each` reads it."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> StructType | str:
        return "task LONG, answer BINARY"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TaskReader(self.options[_WORK])


class TaskReader(DataSourceReader):
    def __init__(self, work: str) -> None:
        self.work = work

    def partitions(self) -> list[InputPartition]:
        _, tasks = pickle.loads(base64.b64decode(self.work))
        return [TaskPartition(number) for number in range(len(tasks))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        function, tasks = pickle.loads(base64.b64decode(self.work))
        assert isinstance(partition, TaskPartition)
        answer = _answer(function, tasks[partition.number])
        yield pa.RecordBatch.from_pydict({"task": [partition.number], "answer": [answer]}, schema=_SCHEMA)
