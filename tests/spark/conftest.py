"""One cluster for all tests here that read, and no client of the source left behind.

Without Spark there is nothing to drive: `./run check` collects all tests where only the tools are installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

import embedbk
from embedbk.client.client import Client
from embedbk.spark.clients import close_clients
from tests.campaigns import add_flag

collect_ignore = (
    []
    if find_spec("pyspark") is not None
    else [
        "test_connect.py",
        "test_pipeline_project.py",
        "test_saying.py",
        "test_scrubbing.py",
        "test_sink.py",
        "test_source.py",
        "test_standalone.py",
        "test_streaming.py",
        "test_tasks.py",
        "test_with_spark.py",
    ]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flag(parser, "--spark-kills", 1, "drivers of a streaming query that are killed; 50")


@pytest.fixture(scope="module")
def bk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)
    data = tmp_path_factory.mktemp("spark") / "data"
    with embedbk.open(data, bookies=1, listen="tcp://127.0.0.1:0", settings=settings) as client:
        yield client
        close_clients()
