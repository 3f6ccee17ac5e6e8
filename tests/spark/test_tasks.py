"""Functions as tasks of Spark, against a fake of its call order: everything is pickled, nothing is shared."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import pytest

from embedbk.errors import OperationTimeout, UsageError
from embedbk.spark.tasks import TaskReader, each


class Row(NamedTuple):
    task: int
    answer: bytes


class FakeSpark:
    """`spark.read.format(...).option(...).load().collect()`, the last tasks first."""

    def __init__(self) -> None:
        self.read = self.dataSource = self
        self.reader: Any = None

    def register(self, _source: type) -> None: ...

    def format(self, _name: str) -> FakeSpark:
        return self

    def option(self, _name: str, work: str) -> FakeSpark:
        self.reader = pickle.loads(pickle.dumps(TaskReader(work)))
        return self

    def load(self) -> FakeSpark:
        return self

    def collect(self) -> list[Row]:
        parts = pickle.loads(pickle.dumps(self.reader.partitions()))
        return [
            Row(**row)
            for part in reversed(parts)
            for batch in self.reader.read(part)
            for row in batch.to_pylist()
        ]


def halved(number: int) -> int:
    if number % 2:
        raise UsageError(f"{number} is odd", hint="give an even one")
    return number // 2


def unknown(_number: int) -> int:
    error = OperationTimeout("nobody knows", definite=False)
    error.ticket = lambda: None  # As a handle's: no other process can have it.
    raise error


def broken(number: int) -> float:
    return 1 / number


def test_answers_come_in_the_order_of_the_tasks() -> None:
    assert list(each(FakeSpark(), halved, [4, 2, 8])) == [2, 1, 4]
    assert list(each(FakeSpark(), halved, [])) == []


def test_an_error_of_a_task_is_raised_as_it_is() -> None:
    """A sentence on the driver that says what to do, and no Java stack of a worker."""
    with pytest.raises(UsageError, match="3 is odd") as refused:
        each(FakeSpark(), halved, [4, 3, 5])
    assert refused.value.hint == "give an even one"


def test_an_error_leaves_its_ticket_where_it_is() -> None:
    with pytest.raises(OperationTimeout, match="nobody knows") as lost:
        each(FakeSpark(), unknown, [1])
    assert lost.value.ticket is None and not lost.value.definite


def test_an_error_of_the_program_is_sparks() -> None:
    """Spark tries the task again, and shows where it failed."""
    with pytest.raises(ZeroDivisionError):
        each(FakeSpark(), broken, [0])
