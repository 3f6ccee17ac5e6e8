"""Deleting and bringing back while somebody else does the same: what was looked at may be another thing by then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from embedbk.client import Client
from embedbk.client.runtime import Runtime
from embedbk.errors import MetadataConflict, NoSuchLedger
from embedbk.testing import Cluster


def then(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Once, right behind the next look at the metadata, let this happen."""
    get, is_armed = Runtime.get, [True]

    async def looked(self: Runtime, key: str, what: str) -> Any:
        found = await get(self, key, what)
        if is_armed:
            is_armed.clear()
            act()
        return found

    patch.setattr(Runtime, "get", looked)


def two_clients_of_a_closed_ledger(cluster: Cluster) -> tuple[Client, Client, int]:
    one, other = cluster.client("one"), cluster.client("other")
    with one.create_ledger() as writer:
        writer.add(b"zero")
    return one, other, writer.ledger_id


def test_what_changed_since_it_was_looked_at_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """P2.2, CL30: another client deletes it first: the second is told that it is gone, and renews no grace."""
    with Cluster(seed=5, bookies=3) as cluster:
        one, other, ledger_id = two_clients_of_a_closed_ledger(cluster)
        then(monkeypatch, lambda: other.delete_ledger(ledger_id))
        with pytest.raises(NoSuchLedger):
            one.delete_ledger(ledger_id)
        assert [each.ledger_id for each in one.deleted_ledgers()] == [ledger_id]


def test_of_two_that_bring_a_ledger_back_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL32, P2.2: the other is told so; the ledger is there once, with what it held."""
    with Cluster(seed=6, bookies=3) as cluster:
        one, other, ledger_id = two_clients_of_a_closed_ledger(cluster)
        one.delete_ledger(ledger_id)
        then(monkeypatch, lambda: other.undelete_ledger(ledger_id))
        with pytest.raises(MetadataConflict):
            one.undelete_ledger(ledger_id)
        assert one.deleted_ledgers() == []
        assert [bytes(entry) for entry in one.open_ledger(ledger_id).read()] == [b"zero"]


def test_a_ledger_that_is_forgotten_beside_it_is_not_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL32, P7.7, P2.2: its tombstone was there when it was looked at. Behind that its grace was over for another
    client, and from then on bookies may drop what it held: it does not come back without its entries."""
    with Cluster(seed=8, bookies=3) as cluster:
        one, other, ledger_id = two_clients_of_a_closed_ledger(cluster)
        one._runtime.settings = replace(one._runtime.settings, delete_grace_s=0)
        one.delete_ledger(ledger_id)
        cluster.run_for(1)
        then(monkeypatch, other.forget_deleted)
        with pytest.raises(MetadataConflict):
            one.undelete_ledger(ledger_id)
        with pytest.raises(NoSuchLedger):
            one.open_ledger(ledger_id)


def test_a_ledger_that_is_deleted_again_has_all_of_its_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL31, CL32, P7.7: its grace was over when the deleted ledgers were listed; behind that it was brought back and
    deleted again. The tombstone that stands there now is another one, which nobody forgets yet."""
    with Cluster(seed=7, bookies=3) as cluster:
        one, other, ledger_id = two_clients_of_a_closed_ledger(cluster)
        one._runtime.settings = replace(one._runtime.settings, delete_grace_s=0)
        one.delete_ledger(ledger_id)
        cluster.run_for(1)
        list_keys = Runtime.list_keys

        async def listed(self: Runtime, prefix: str, what: str) -> Any:
            found = await list_keys(self, prefix, what)
            monkeypatch.undo()
            other.undelete_ledger(ledger_id)
            other.delete_ledger(ledger_id)
            return found

        monkeypatch.setattr(Runtime, "list_keys", listed)
        assert one.forget_deleted() == []
        assert [each.ledger_id for each in one.deleted_ledgers()] == [ledger_id]
        other.undelete_ledger(ledger_id)
        assert [bytes(entry) for entry in one.open_ledger(ledger_id).read()] == [b"zero"]
