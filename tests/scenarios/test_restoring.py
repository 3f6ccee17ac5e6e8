"""The metadata of one ledger in a file, and back: what it may take the place of (P2.2, P2.3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from embedbk.cli.dump import _read, _write
from embedbk.client import Client
from embedbk.client.restoring import keep, put_back
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.errors import NoSuchLedger, RecoveryInconclusive, StorageError, UsageError
from embedbk.testing import Cluster
from tests.scenarios.test_adopting import catalog_of, transact


def closed_ledger(cluster: Cluster) -> tuple[Client, int, bytes]:
    client = cluster.client("operator")
    with client.create_ledger() as writer:
        writer.add_many([b"zero", b"one"])
    return client, writer.ledger_id, keep(client, writer.ledger_id).value


def put(client: Client, ledger_id: int, value: bytes) -> None:
    transact(client, Put(ledger_key_path(ledger_id), value))


def entries_of(client: Client, ledger_id: int) -> list[bytes]:
    return [bytes(each) for each in client.open_ledger(ledger_id).read()]


def changed(value: bytes, change: Callable[[LedgerMetadata], LedgerMetadata]) -> bytes:
    return encode_ledger_metadata(change(decode_ledger_metadata(value)))


def test_what_nobody_can_read_is_put_right() -> None:
    """P2.5: a stranger wrote over its key; what was kept of it is right for ever."""
    with Cluster(seed=1, bookies=3) as cluster:
        client, ledger_id, value = closed_ledger(cluster)
        put(client, ledger_id, b"strange")
        assert put_back(client, ledger_id, value, is_dry=True).last_entry == 1
        with pytest.raises(StorageError):
            client.open_ledger(ledger_id)
        assert put_back(client, ledger_id, value, is_dry=False).last_entry == 1
        assert entries_of(client, ledger_id) == [b"zero", b"one"]
        assert put_back(client, ledger_id, value, is_dry=False).last_entry == 1, "it is so already"


def test_a_lost_futures_ledger_comes_back_with_its_seats() -> None:
    """P10.5, P7.7: its id is spared no more, by the same command."""
    with Cluster(seed=2, bookies=5) as cluster:
        client, ledger_id, value = closed_ledger(cluster)
        transact(client, Delete(ledger_key_path(ledger_id)))
        with pytest.raises(UsageError, match="was deleted or forgotten: bookies may have dropped"):
            put_back(client, ledger_id, value, is_dry=False)
        catalog_of(cluster).descent.spared.append((ledger_id, ledger_id + 1))
        put_back(client, ledger_id, value, is_dry=False)
        assert catalog_of(cluster).descent.spared == []
        assert keep(client, ledger_id).value == value
        assert entries_of(client, ledger_id) == [b"zero", b"one"]


def test_a_closed_ledger_follows_its_open_one_and_no_other() -> None:
    """P2.3: "The end of a closed ledger never changes", and its state goes forward."""
    with Cluster(seed=3, bookies=3) as cluster:
        client, ledger_id, value = closed_ledger(cluster)
        before = changed(
            value, lambda each: each.with_changes(state=LedgerState.OPEN, last_entry=None, length=None)
        )
        with pytest.raises(UsageError, match="was OPEN when its metadata was kept"):
            put_back(client, ledger_id, before, is_dry=False)
        put(client, ledger_id, before)
        put_back(client, ledger_id, value, is_dry=False)
        assert keep(client, ledger_id).value == value
        elsewhere = changed(value, lambda each: each.with_changes(last_entry=0, length=4))
        with pytest.raises(StorageError, match="went back from CLOSED at"):
            put_back(client, ledger_id, elsewhere, is_dry=False)
        other = changed(value, lambda each: each.with_changes(password_verifier=bytes(32)))
        with pytest.raises(StorageError, match="it was made with"):
            put_back(client, ledger_id, other, is_dry=False)
        assert keep(client, ledger_id).value == value


def test_a_bookie_that_knows_a_later_end_refuses() -> None:
    """P5.3: "An acknowledged entry is never beyond the last entry of its closed ledger"."""
    with Cluster(seed=4, bookies=3) as cluster:
        client = cluster.client("operator")
        writer = client.create_ledger()
        writer.add_many([b"zero", b"one", b"two"])
        cluster.run_for(1)
        value = keep(client, writer.ledger_id).value
        short = changed(
            value, lambda each: each.with_changes(state=LedgerState.CLOSED, last_entry=0, length=4)
        )
        with pytest.raises(RecoveryInconclusive, match="knows that entry 2 was acknowledged"):
            put_back(client, writer.ledger_id, short, is_dry=False)
        assert keep(client, writer.ledger_id).value == value


def test_too_few_bookies_say_where_it_ends() -> None:
    """P5.2b: of three two have to say so; who is away has not said that there is no more."""
    with Cluster(seed=5, bookies=3) as cluster:
        client, ledger_id, value = closed_ledger(cluster)
        put(client, ledger_id, b"strange")
        cluster.crash("b2")
        assert put_back(client, ledger_id, value, is_dry=True).last_entry == 1, "two of three are enough"
        cluster.crash("b1")
        with pytest.raises(RecoveryInconclusive, match="too few bookies say where it ends"):
            put_back(client, ledger_id, value, is_dry=False)
        assert keep(client, ledger_id).value == b"strange"


def test_one_that_was_deleted_is_not_put_back_beside_its_tombstone() -> None:
    """CL32: it is brought back by undelete, in one transaction with its tombstone."""
    with Cluster(seed=6, bookies=3) as cluster:
        client, ledger_id, value = closed_ledger(cluster)
        client.delete_ledger(ledger_id)
        with pytest.raises(UsageError, match="was deleted or forgotten"):
            put_back(client, ledger_id, value, is_dry=False)
        with pytest.raises(NoSuchLedger):
            keep(client, ledger_id)
        with pytest.raises(StorageError):
            put_back(client, ledger_id + 1, value, is_dry=False)


def test_a_file_is_read_as_it_was_written_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    facts = {"cluster_token": "00", "ledger_id": 7, "value": "6162", "format": "embedbk ledger metadata"}
    whole = {**facts, "version": 1, "digest": "7c8ba0c95bfcbe4b0a3b4ea7c0c9a3f4"}
    _write(path, json.dumps(whole).encode())
    with pytest.raises(UsageError, match="its digest is another one"):
        _read(path)
    with pytest.raises(UsageError, match="nothing is written over it"):
        _write(path, b"")
    for wrong in (b"", b"{}", b"[]", b"7", json.dumps({**whole, "version": 2}).encode(), b"[" * 100_000):
        path.unlink()
        _write(path, wrong)
        with pytest.raises(UsageError, match="is no file of `embedbk ledger dump`"):
            _read(path)
    with pytest.raises(UsageError, match="cannot be read"):
        _read(tmp_path / "none")
