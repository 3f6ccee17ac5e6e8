"""The reads of a scrub in Spark's call order without a JVM: all is pickled, and nothing else comes of it (SCRUB.md)."""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle

from embedbk.client.client import Client
from embedbk.client.waiting import run_blocking
from embedbk.repair.copy_check import CopyCheckOptions
from embedbk.scrub import ScrubOptions
from embedbk.scrub.scrubbing import scrub_cluster
from embedbk.spark.scrubbing import ScrubSource, check_on, partitions_of


def through(thing: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(thing))


class _Row:
    def __init__(self, block: bytes) -> None:
        self.block = block


class _Spark:
    """A session's calls as `check_on` makes them, each partition read by another copy of the reader."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.tasks = 0

    @property
    def dataSource(self) -> _Spark:  # noqa: N802
        return self

    @property
    def read(self) -> _Spark:
        return self

    def register(self, source: type) -> None:
        assert source is ScrubSource

    def format(self, name: str) -> _Spark:
        assert name == ScrubSource.name()
        return self

    def option(self, key: str, value: str) -> _Spark:
        self.given[key] = value
        return self

    def load(self) -> _Spark:
        return self

    def collect(self) -> list[_Row]:
        source = ScrubSource(self.given)
        reader = through(source.reader(source.schema()))
        parts = reader.partitions()
        self.tasks += len(parts)
        return [_Row(through(row[0])) for part in parts for row in through(reader).read(through(part))]


def test_a_scrub_on_spark_reads_what_one_here_reads(bk: Client) -> None:
    with bk.log("scrubbed").writer() as writer:
        writer.append_many([b"entry %d" % number for number in range(5_000)])
    spark: Any = _Spark()
    assert bk.url is not None
    check = check_on(spark, bk.url, CopyCheckOptions())
    result = run_blocking(scrub_cluster(bk._runtime, ScrubOptions(), check), "scrub")
    here = run_blocking(scrub_cluster(bk._runtime, ScrubOptions()), "scrub")
    assert (result.findings, result.exit_code) == ([], 0)
    assert (result.copies, result.ledgers) == (here.copies, here.ledgers)
    assert result.copies >= 5_000
    assert spark.tasks >= 1


def test_the_tasks_of_a_bookie_share_its_rate_and_go_by_ledger(bk: Client) -> None:
    seen: list[Any] = []

    async def check(tasks: list[Any]) -> list[Any]:
        seen.extend(tasks)
        return []

    for number in range(3):
        with bk.create_ledger() as writer:
            writer.add(b"%d" % number)
    # Nothing is read, so all of it is looked at again: at once.
    run_blocking(scrub_cluster(bk._runtime, ScrubOptions(settle_s=0, rounds=1), check), "scrub")
    parts = partitions_of(list(dict.fromkeys(seen))[::-1], CopyCheckOptions(bytes_per_s=1000))
    assert [part.options.bytes_per_s for part in parts] == [500, 500]
    ledgers = [task.ledger_id for part in parts for task in part.tasks]
    assert ledgers == sorted(ledgers)
