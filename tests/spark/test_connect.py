"""The same source and sink through a session of Spark Connect, whose server is started on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from embedbk.client.client import Client
from tests.spark import connect_program
from tests.spark.connect_program import ROWS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]


def test_spark_connect_writes_reads_and_streams(bk: Client, tmp_path: Path) -> None:
    """Nothing but packages is needed for it: pyspark brings the server, `spark-connect` the client's side."""
    command = [sys.executable, "-P", connect_program.__file__, str(bk.url), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(ended.stdout)
    assert told["session"] == "pyspark.sql.connect.session"
    assert (told["rows_behind"], told["has_ended"]) == (ROWS - 100, True)
    assert "no log 'nobody'" in told["failed"], told["failed"]
    values = [str(number).encode() for number in range(ROWS)]
    assert [bytes(entry) for entry in bk.log("lines").read()] == values
    assert [bytes(entry) for entry in bk.log("copy").read()] == values
    assert "Failed to set" not in ended.stderr
