"""The rows that issues ask figures of are there, and the page says what each of them is."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import log, repair, spark

PAGE = (Path(__file__).parents[1] / "benchmarks" / "README.md").read_text()


def test_the_rows_of_logs() -> None:
    """Issue 14, figures."""
    asked = "append_many append_arrow/100B read_bulk/1KiB takeover rolling rolling_p99 tail_roll 10k/memory 10k/visits"
    assert set(log.WORKS) == {f"log/{name}" for name in asked.split()}


def test_the_rows_of_repair() -> None:
    """Issue 15, figures; and "the auditor of a cluster in which nothing changes", which is `idle`."""
    asked = "repair/copy repair/small_ledgers repair/foreground_p99 health/deleted_entry audit/100k audit/100k/idle"
    assert set(repair.WORKS) == {*asked.split()}


def test_the_rows_of_spark() -> None:
    """Issue 16, figures: reads, writes and micro-batches, which stand beside Kafka too."""
    beside_kafka = "spark/read/100B spark/read/1KiB spark/write/1KiB spark/microbatch"
    assert set(spark.BESIDE_PEER) == {*beside_kafka.split()}
    assert set(spark.WORKS) == {*beside_kafka.split(), "spark/archive", "spark/scrub_digests"}


@pytest.mark.parametrize("work", [*log.WORKS, *repair.WORKS, *spark.WORKS])
def test_the_page_says_what_a_row_is_and_what_is_asked_of_it(work: str) -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith(f"| `{work}` |")]
    assert lines, f"benchmarks/README.md has no line `{work}`"
    _, _, what, bar, _ = lines[0].split("|")
    assert what.strip() and bar.strip()
