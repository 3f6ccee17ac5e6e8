"""The demo's last act, with a real Spark: what SQL counts is what the reader has read."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_counts_the_lines_that_the_reader_found() -> None:
    command = [sys.executable, "-m", "embedbk", "demo", "--json", "--lines", "5000"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)  # One object: Spark says nothing on standard output.
    assert told["holds"]
    assert told["spark_rows"] == told["lines"] == 5000
    assert "Spark SQL counts and groups" in ended.stderr
    assert ended.stderr.count("  ledger ") == told["ledgers"]
