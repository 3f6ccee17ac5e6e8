"""Metadata put back from an older copy beside bookies that met the newer one (P7.7, P10.5)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import embedbk
from embedbk.config import Settings
from embedbk.errors import NotEnoughBookies

CALM = Settings(collect_s=900, open_timeout_s=120)
BUSY = Settings(collect_s=0.1, open_timeout_s=120)


def make(client: embedbk.Client, count: int, tag: str) -> list[int]:
    """Closed ledgers of three entries that say whose they are."""
    made = []
    for _ in range(count):
        ledger = client.create_ledger()
        ledger.add_many([f"{tag} {ledger.ledger_id} {number}".encode() for number in range(3)])
        ledger.close()
        made.append(ledger.ledger_id)
    return made


def put_back(root: Path, copy: Path) -> None:
    shutil.rmtree(root / "metadata")
    shutil.copytree(copy, root / "metadata")


def contents(client: embedbk.Client, ledger_id: int) -> list[bytes]:
    return [bytes(entry) for entry in client.open_ledger(ledger_id).read()]


def test_bookies_drop_nothing_and_take_nothing_beside_older_metadata(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """P7.7, P10.5: without this each round of collection raised the end of the ids, live ledgers were dropped on every
    bookie, and a new ledger got the id and the entries of a lost one. With the newer metadata all of it is there."""
    root, copy, newer = tmp_path / "d", tmp_path / "copy", tmp_path / "newer"
    with embedbk.open(root, bookies=3, settings=CALM) as client:
        before = make(client, 2, "kept")
    shutil.copytree(root / "metadata", copy)
    with embedbk.open(root, settings=CALM) as client:
        lost = make(client, 3, "kept")
    shutil.copytree(root / "metadata", newer)
    put_back(root, copy)
    for _ in range(3):
        with embedbk.open(root, settings=BUSY) as client:
            assert client.ledgers() == before
            client._runtime.settings = replace(
                BUSY, operation_timeout_s=2
            )  # A refusal comes at the end of it.
            with pytest.raises(NotEnoughBookies, match="read-only"):
                client.create_ledger()
            client._runtime.settings = BUSY
            assert contents(client, before[0]), "what is stored is read on"
    assert "has met newer metadata" in caplog.text
    put_back(root, newer)
    with embedbk.open(root, settings=BUSY) as client:
        for ledger_id in [*before, *lost]:
            assert contents(client, ledger_id)[0] == f"kept {ledger_id} 0".encode()
        make(client, 1, "new")
