"""The jobs of an archive as tasks of Spark: what they leave is what the same jobs leave without it (P8.14)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.archive.jobs import directory_of, set_place
from embedbk.archive.place import create_place
from embedbk.archive.verifying import verify_archive
from embedbk.spark import archiving
from embedbk.spark.clients import close_clients

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

LINES = [b"line %d" % number for number in range(3_000)]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = embedbk.spark.session("embedbk tests", master="local[2]")
    yield session
    session.stop()


@pytest.fixture
def bk(tmp_path: Path) -> Iterator[Any]:
    with embedbk.open(tmp_path / "data", bookies=3, listen="tcp://127.0.0.1:0") as client:
        for _ in range(2):
            with client.log("lines").writer() as writer:
                writer.append_many(LINES)
        yield client
        close_clients()


def test_executors_copy_verify_and_restore(spark: Any, bk: Any, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    create_place(place)
    set_place(bk, "lines", place)
    report = archiving.archive(spark, bk.url, "lines", slice_bytes=10_000)
    assert report.is_whole and [each.entries for each in report.ledgers] == [3_000, 3_000]
    assert sum(each.files for each in report.ledgers) == len(list(place.rglob("*.parquet"))) > 2
    found = archiving.verify_archive(spark, bk.url, "lines", against_bookies=True)
    assert (found.code, found.entries, len(found.verified)) == (0, 6_000, 2)

    rows = spark.read.parquet(str(place)).select("offset", "value").orderBy("offset").collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == list(enumerate(LINES + LINES))

    reading, directory = directory_of(bk, "lines", b"")
    done = archiving.restore(spark, bk.url, "again", directory, str(reading.name), application="a", number=1)
    assert done.entries == 6_000
    assert [bytes(entry) for entry in bk.log("again").read()] == LINES + LINES

    path = next(place.rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    found = archiving.verify_archive(spark, bk.url, "lines")
    assert {each.file for each in found.findings} == {path.name} and found.code == 2
    assert verify_archive(bk, "lines").findings == found.findings
