"""Adopting a ledger through a client: who is asked, what has to be so before anybody is fenced (P7.7, P10.5)."""

from __future__ import annotations

import pytest

from embedbk.client import Client
from embedbk.client.adopting import adopt
from embedbk.client.password import Password
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.codec.registration import cookie_path
from embedbk.core.adopting import AdoptionOptions
from embedbk.errors import (
    MetadataConflict,
    MetadataUnavailable,
    RecoveryInconclusive,
    StorageError,
    UsageError,
    WrongPassword,
)
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.levels import LEVEL_OF_ADOPTION
from embedbk.testing import Cluster
from embedbk.testing.member_names import METADATA

NONE = Password(b"")
OPTIONS = AdoptionOptions(by="somebody")


def catalog_of(cluster: Cluster) -> Catalog:
    catalog: Catalog = cluster.world.nodes[METADATA].core.catalog
    return catalog


def lost_ledger(cluster: Cluster) -> tuple[Client, int]:
    """Written, closed, and of a lost future: its key is gone, and its id is spared."""
    client = cluster.client("operator")
    with client.create_ledger() as writer:
        writer.add(b"zero")
    transact(client, Delete(ledger_key_path(writer.ledger_id)))
    catalog_of(cluster).descent.spared.append((writer.ledger_id, writer.ledger_id + 1))
    cluster.run_for(5)
    return client, writer.ledger_id


def transact(client: Client, change: Put | Delete) -> None:
    run_blocking(client._runtime.transact([], [change], "changing it"), "transact")


def is_fenced(cluster: Cluster, ledger_id: int) -> bool:
    tables = [disk.storage.table for disk in cluster.world.disks.values() if disk.storage is not None]
    rows = [table.get(ledger_id) for table in tables]
    return any(row is not None and row.is_fenced for row in rows)


def test_a_ledger_that_is_adopted_is_read_like_any_other() -> None:
    with Cluster(seed=1, bookies=4) as cluster:
        client, ledger_id = lost_ledger(cluster)
        plan = adopt(client, ledger_id, NONE, (), OPTIONS)
        assert plan.metadata.last_entry == 0
        assert [bytes(each) for each in client.open_ledger(ledger_id).read()] == [b"zero"]
        assert catalog_of(cluster).descent.spared == []
        told = str(client.explain(ledger_id))
        assert "P10.5: adopted from what bookies hold, by somebody at 1970-01-01" in told
        with pytest.raises(MetadataConflict, match="is in the metadata already"):
            adopt(client, ledger_id, NONE, (), OPTIONS)


def test_who_is_away_is_asked_for_before_anybody_is_fenced() -> None:
    """P10.5: b4 has a cookie and is away: nobody knows whether it had a seat."""
    with Cluster(seed=2, bookies=4) as cluster:
        client, ledger_id = lost_ledger(cluster)
        cluster.crash("b4")
        cluster.run_for(60)
        assert all(each.member.bookie_id != "b4" for each in client._runtime.bookies)
        with pytest.raises(RecoveryInconclusive, match=r"b4 may have entries of ledger .*, and is away"):
            adopt(client, ledger_id, NONE, (), OPTIONS)
        assert not is_fenced(cluster, ledger_id)
        plan = adopt(client, ledger_id, NONE, ("b4",), OPTIONS)
        assert [name for name, _ in plan.record.gone] == ["b4"]
        assert "not waited for: b4" in str(client.explain(ledger_id))


def test_only_bookies_of_the_cluster_are_called_gone() -> None:
    with Cluster(seed=3, bookies=3) as cluster:
        client, ledger_id = lost_ledger(cluster)
        with pytest.raises(
            UsageError, match="--gone b9: no bookie of this cluster has that name; there are b1, b2"
        ):
            adopt(client, ledger_id, NONE, ("b9",), OPTIONS)
        assert not is_fenced(cluster, ledger_id)


def test_a_cookie_that_cannot_be_read_is_nobodys_no() -> None:
    """P2.5: it may be of a bookie that had a seat."""
    with Cluster(seed=4, bookies=3) as cluster:
        client, ledger_id = lost_ledger(cluster)
        transact(client, Put(cookie_path("b7"), b"strange"))
        with pytest.raises(StorageError, match="the cookie of bookie b7 cannot be read"):
            adopt(client, ledger_id, NONE, (), OPTIONS)
        assert not is_fenced(cluster, ledger_id)


def test_what_is_of_no_lost_future_is_not_adopted() -> None:
    """P7.7: bookies may drop it at any moment."""
    with Cluster(seed=5, bookies=3) as cluster:
        client, ledger_id = lost_ledger(cluster)
        catalog_of(cluster).descent.spared.clear()
        with pytest.raises(
            UsageError, match="is of no lost future: it was deleted, forgotten, or never made"
        ):
            adopt(client, ledger_id, NONE, (), OPTIONS)
        assert not is_fenced(cluster, ledger_id)


def test_below_its_level_nobody_is_fenced_for_an_adoption() -> None:
    """P10.8: "What a level brings is refused before"; a look needs no level."""
    with Cluster(seed=6, bookies=3) as cluster:
        client, ledger_id = lost_ledger(cluster)
        client._runtime.node.metadata.client.cluster_level = LEVEL_OF_ADOPTION - 1
        with pytest.raises(UsageError, match="ledgers are adopted at level 9"):
            adopt(client, ledger_id, NONE, (), OPTIONS)
        assert not is_fenced(cluster, ledger_id)
        assert adopt(client, ledger_id, NONE, (), AdoptionOptions(is_dry=True)).metadata.last_entry == 0


def changed_behind_a_copy(cluster: Cluster) -> tuple[Client, int]:
    """A ledger as a copy of the metadata has it: its first ensemble holds one entry of three. Its writer has gone."""
    writing, operator = cluster.client("writer"), cluster.client("operator")
    writer = writing.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    writer.add(b"zero")
    key = ledger_key_path(writer.ledger_id)
    older, _ = run_blocking(operator._runtime.get(key, "reading it"), "get")
    assert older is not None
    seats = decode_ledger_metadata(older).fragments[0].ensemble
    for name, _ in seats[:2]:
        cluster.crash(name)
    writer.add(b"one")
    writer.add(b"two")
    for name, _ in seats[:2]:
        cluster.restart(name)
    cluster.crash("writer")
    cluster.run_for(30)
    transact(operator, Put(key, older))
    catalog = catalog_of(cluster)
    catalog.descent.stale = [(1, catalog.next_id)]
    return operator, writer.ledger_id


def test_a_ledger_that_was_open_in_the_copy_is_closed_by_an_adoption_alone() -> None:
    """P10.5: "Else" e1 and e2 are acknowledged by b4 and b5, which the copy does not name; b1 and b2 say no."""
    with Cluster(seed=7, bookies=6) as cluster:
        client, ledger_id = changed_behind_a_copy(cluster)
        with pytest.raises(MetadataUnavailable, match=f"embedbk ledger adopt {ledger_id}"):
            client.open_ledger(ledger_id, recover=True)
        plan = adopt(client, ledger_id, NONE, (), OPTIONS)
        assert plan.is_known
        assert [bytes(each) for each in client.open_ledger(ledger_id).read()] == [b"zero", b"one", b"two"]


def test_what_a_recovery_by_the_copy_would_lose() -> None:
    """The scene above is one: with the key believed, two acknowledged entries are beyond the end."""
    with Cluster(seed=7, bookies=6) as cluster:
        client, ledger_id = changed_behind_a_copy(cluster)
        catalog_of(cluster).descent.stale = []
        value, _ = run_blocking(client._runtime.get(ledger_key_path(ledger_id), "reading it"), "get")
        assert value is not None
        cluster.crash(
            decode_ledger_metadata(value).fragments[0].ensemble[2][0]
        )  # Who has a seat in both ensembles.
        reader = client.open_ledger(ledger_id, recover=True)
        assert [bytes(each) for each in reader.read()] == [b"zero"]


def test_another_password_adopts_nothing() -> None:
    with Cluster(seed=8, bookies=6) as cluster:
        client, ledger_id = changed_behind_a_copy(cluster)
        with pytest.raises(WrongPassword):
            adopt(client, ledger_id, Password(b"another"), (), OPTIONS)
        assert not is_fenced(cluster, ledger_id)
