"""A cluster with logs, and an archive beside it. Without pyarrow there is nothing to archive with."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import embedbk
from embedbk.client.client import Client

HAS_PYARROW = find_spec("pyarrow") is not None
collect_ignore_glob = [] if HAS_PYARROW else ["test_*.py"]


@pytest.fixture(scope="module")
def bk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)
    data = tmp_path_factory.mktemp("archived") / "data"
    with embedbk.open(data, bookies=3, listen="tcp://127.0.0.1:0", settings=settings) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A log of its own for each test."""
    kept = [letter if letter.isalnum() else "-" for letter in request.node.name]
    return "".join(kept)[-100:].strip("-")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "archive"
