"""One client for each process and cluster, and what a worker of Spark is spared behind each task."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.spark.clients import client_of, close_clients


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "c", bookies=1, settings=embedbk.Settings(journal_file_bytes=2 << 20)) as cluster:
        yield cluster
        close_clients()


@pytest.mark.parametrize("name", ["pyspark.daemon", "pytest"])
def test_only_a_worker_of_spark_keeps_what_is_loaded_out_of_collections(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector belongs to the application in any other process."""
    main = types.SimpleNamespace(__spec__=types.SimpleNamespace(name=name))
    monkeypatch.setitem(sys.modules, "__main__", main)  # type: ignore[arg-type]
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    client = client_of(cluster.url)
    assert client_of(cluster.url) is client
    assert frozen == [True] * (name == "pyspark.daemon")
