"""One real session over one real cluster: what SQL says of a log is what its reader says."""

from __future__ import annotations

from pathlib import Path

import pytest

import embedbk

ENTRIES = 5_000


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
def test_spark_reads_a_log_of_two_ledgers_straight_from_the_bookies(tmp_path: Path) -> None:
    """One ledger is closed, the other still open: read up to what is confirmed (P6.2)."""
    lines = [f"line {number}".encode() for number in range(2 * ENTRIES)]
    with embedbk.open(tmp_path / "data", bookies=3, listen="tcp://127.0.0.1:0") as bk:
        with bk.log("lines").writer() as writer:
            writer.append_many(lines[:ENTRIES])
        with bk.log("lines").writer() as writer:
            writer.append_many(lines[ENTRIES:])
            spark = embedbk.spark.session("embedbk tests", master="local[2]")
            try:
                log = spark.read.format("embedbk").option("cluster", bk.url).option("log", "lines")
                log.option("maxRowsPerPartition", "2000").load().createOrReplaceTempView("lines")
                rows = spark.sql("SELECT offset, value FROM lines ORDER BY offset").collect()
                groups = spark.sql(
                    "SELECT ledgerId, count(*), min(entryId), max(entryId), min(offset) FROM lines "
                    "WHERE log = 'lines' GROUP BY ledgerId ORDER BY ledgerId"
                ).collect()
            finally:
                spark.stop()
        read = [(entry.position, bytes(entry.data)) for entry in bk.log("lines").read()]

    assert [row.offset for row in rows] == list(range(2 * ENTRIES))
    assert [bytes(row.value) for row in rows] == lines == [data for _, data in read]
    ledgers = sorted({position.ledger_id for position, _ in read})
    assert [tuple(group) for group in groups] == [
        (ledgers[0], ENTRIES, 0, ENTRIES - 1, 0),
        (ledgers[1], ENTRIES, 0, ENTRIES - 1, ENTRIES),
    ]
