"""Clusters for the faces' tests: whole, in this process, on small journal files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import embedbk
from tests.campaigns import add_flag

SETTINGS = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flag(parser, "--gone-ledgers", 8_000, "ledgers made and deleted in tests/faces/test_growth")


@pytest.fixture(scope="session")
def settings() -> embedbk.Settings:
    return SETTINGS


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(scope="module")
def bk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedbk.Client]:
    """One cluster of three for a whole module: each test takes a log or ledger of its own."""
    with embedbk.open(tmp_path_factory.mktemp("shared") / "data", settings=SETTINGS) as client:
        yield client


@pytest.fixture
def log_name(request: pytest.FixtureRequest) -> str:
    return request.node.name[:100].replace("[", "-").replace("]", "")
