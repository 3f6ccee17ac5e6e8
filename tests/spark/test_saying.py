"""An error of embedbk reaches Spark as a sentence (SPARK.md, what can fail), not at the end of a long stack."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from embedbk.client.client import Client
from embedbk.errors import EmbedbkError
from embedbk.spark.saying import briefly
from embedbk.spark.source import EmbedbkSource

CUT_AT = 2048  # Characters of a message that Spark Connect shows.


def of_source(given: dict[str, str]) -> None:
    source = EmbedbkSource(given)
    source.reader(source.schema()).partitions()


def of_stream(given: dict[str, str]) -> None:
    source = EmbedbkSource(given)
    source.streamReader(source.schema()).initialOffset()


def of_sink(given: dict[str, str]) -> None:
    source = EmbedbkSource(given)
    source.writer(source.schema(), True)


@pytest.mark.parametrize(
    ("ask", "more", "says"),
    [
        (of_source, {}, "no log 'nobody'"),
        (of_source, {"startingoffsets": "soon"}, 'allowed are "earliest"'),
        (of_stream, {}, "no log 'nobody'"),
        (of_sink, {}, '.mode("append")'),
    ],
)
def test_the_sentence_stands_within_what_spark_shows(
    bk: Client, ask: Callable[[dict[str, str]], None], more: dict[str, str], says: str
) -> None:
    with pytest.raises(EmbedbkError) as told:
        ask({"cluster": str(bk.url), "log": "nobody", **more})
    shown = "".join(traceback.format_exception(told.value))
    assert says in shown[:CUT_AT]
    assert "embedbk/client" not in shown


def test_rows_before_an_error_come_and_other_errors_keep_their_stack() -> None:
    @briefly
    def rows(error: Exception) -> Any:
        yield 1
        raise error

    read = rows(EmbedbkError("a sentence"))
    assert next(read) == 1
    with pytest.raises(EmbedbkError, match="a sentence"):
        next(read)

    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as told:
        briefly(broken)()
    assert "in broken" in "".join(traceback.format_exception(told.value))
