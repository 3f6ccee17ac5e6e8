"""`spark.read.format("embedbk")`: a log as a table of Arrow record batches, one partition per range of a ledger.

Rows are the confirmed entries at the time of planning: immutable, so a task that runs again reads the same. No
Python object is made per entry: ids, ends and bytes of a frame become the columns. Reader and partitions hold plain
data only, for Spark pickles them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from embedbk import arrow
from embedbk.client.address import endpoints_of, is_address
from embedbk.client.batches import Batch
from embedbk.errors import UsageError
from embedbk.ids import check_log_name
from embedbk.spark import reading
from embedbk.spark.reading import LedgerRange, ReadPlace

__all__ = ["EmbedbkReader", "EmbedbkSource", "RangePartition", "split"]

COLUMNS = (
    StructType()
    .add("log", StringType())
    .add("ledgerId", LongType())
    .add("entryId", LongType())
    .add("offset", LongType())
    .add("value", BinaryType())
)

# Spark compares the first batch with its own Arrow schema exactly: order, type (no large_string) and nullability.
SCHEMA = pa.schema([("log", pa.string()), *arrow.SCHEMA])

ROWS_PER_PARTITION_MAX = 250_000  # A second of work or so: enough to be worth a task, little to repeat.

# As Spark hands the names over: in lower case.
REQUIRED = ("cluster", "log")
OPTIONS = (*REQUIRED, "password", "maxrowsperpartition")

Plan = Callable[[ReadPlace], Sequence[LedgerRange]]
Read = Callable[[ReadPlace, LedgerRange], Iterator[Batch]]


@dataclass(frozen=True)
class RangePartition(InputPartition):
    range: LedgerRange


class EmbedbkSource(DataSource):
    """The format; Spark makes one for every `load()`."""

    @classmethod
    def name(cls) -> str:
        return "embedbk"

    def schema(self) -> StructType:
        return COLUMNS

    def reader(self, schema: StructType) -> EmbedbkReader:
        return EmbedbkReader(self.options)


class EmbedbkReader(DataSourceReader):
    """Plans on the driver, reads in the workers.

    Args:
        options: cluster (an embedbk:// address), log; password and maxRowsPerPartition where needed.
        plan, read: where ranges and entries come from.

    Raises:
        UsageError: an option is missing, unknown or not allowed.
    """

    def __init__(
        self, options: Mapping[str, str], plan: Plan = reading.plan, read: Read = reading.read
    ) -> None:
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(set(given) - set(OPTIONS)):
            raise UsageError(
                f"unknown option {', '.join(unknown)}: allowed are cluster, log, password, maxRowsPerPartition"
            )
        if missing := [name for name in REQUIRED if not given.get(name)]:
            raise UsageError(
                f"option {' and '.join(missing)} missing",
                hint='spark.read.format("embedbk").option("cluster", url).option("log", name).load()',
            )
        _check_address(given["cluster"])
        password = given.get("password", "").encode()
        self.place = ReadPlace(given["cluster"], check_log_name(given["log"]), password)
        self.rows_max = _rows_max(given.get("maxrowsperpartition"))
        self._plan = plan
        self._read = read

    def partitions(self) -> list[InputPartition]:
        """A list, as Spark demands; where it is empty Spark reads one partition None."""
        ranges = self._plan(self.place)
        return [RangePartition(part) for whole in ranges for part in split(whole, self.rows_max)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RangePartition):
            for batch in self._read(self.place, partition.range):
                yield _record_batch(self.place.log, batch)


def split(whole: LedgerRange, rows_max: int) -> Iterator[LedgerRange]:
    """The range in parts of at most rows_max entries, as even as they can be."""
    parts = -(-whole.entry_count // rows_max)
    for part in range(parts):
        begin = whole.entry_count * part // parts
        end = whole.entry_count * (part + 1) // parts
        yield LedgerRange(whole.ledger_id, whole.first_entry + begin, whole.first_entry + end - 1)


def _record_batch(log: str, batch: Batch) -> pa.RecordBatch:
    """The columns stand on the buffers of `batch` (embedbk/arrow.py); the name of the log is put before them."""
    name = pa.repeat(pa.scalar(log, pa.string()), len(batch.ids))
    return pa.RecordBatch.from_arrays([name, *arrow.columns(batch)], schema=SCHEMA)


def _check_address(cluster: str) -> None:
    """Of a cluster that other processes can reach; a directory is not one."""
    if not is_address(cluster):
        raise UsageError(
            f"option cluster={cluster!r} is no embedbk:// address: Spark's workers are other processes, and "
            "cannot read an embedded cluster by its directory",
            hint='open it with listen="tcp://127.0.0.1:0" and give Spark the url of what you opened',
        )
    endpoints_of(cluster)


def _rows_max(given: str | None) -> int:
    if given is None:
        return ROWS_PER_PARTITION_MAX
    if not given.isdecimal() or int(given) < 1:
        raise UsageError(f"option maxRowsPerPartition={given!r}: a whole number of at least 1 is allowed")
    return int(given)
