"""The demo with a real Spark: the log, its copy and its archive have the same rows, whichever process is killed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_driver_killed_between_both_commits_doubles_and_loses_nothing() -> None:
    """I98: the same micro-batch runs again, and is recognised. Then the archive, and a damaged copy that is found."""
    command = [sys.executable, "-m", "embedbk", "demo", "--json", "--lines", "5000"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)  # One object: Spark says nothing on standard output.
    assert told["holds"]
    assert told["spark_rows"] == told["copied_rows"] == told["archived_rows"] == told["lines"] == 5000
    assert (told["copied_duplicated"], told["scrub_found"]) == (0, 1)
    assert 0 < told["copied_when_killed"] < 5000
    assert len(told["spark_words"]) == 3
    assert "the sink has committed micro-batch 1, Spark has not" in ended.stderr
    assert ended.stderr.count("  ledger ") == told["ledgers"]
    for act in (
        "Spark SQL counts",
        "Spark SQL looks",
        "copied by",
        "is archived to Parquet",
        "is read by tasks",
    ):
        assert act in ended.stderr
