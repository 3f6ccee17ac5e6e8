"""Deleting whole logs: list first, then the ledgers; cut short anywhere, nothing names a ledger that is gone (P8.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import (
    decode_log_list,
    ledger_key_path,
    log_deleting_path,
    log_key_path,
    log_left_path,
    log_owner_path,
)
from embedbk.errors import (
    LedgerFenced,
    MetadataUnavailable,
    NoSuchLedger,
    UsageError,
    WrongPassword,
)
from embedbk.metadata.levels import LEVEL_OF_LOG_IDS
from embedbk.testing import Cluster

NAME = "one"


@pytest.fixture(autouse=True)
def _below_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a log is its name, and ends at once; what comes before that from the level on, `test_log_identity` has."""
    monkeypatch.setattr(Runtime, "has_level", lambda self, level: level < LEVEL_OF_LOG_IDS)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=84, bookies=3) as cluster:
        yield cluster


def fill(cluster: Cluster, *payloads: bytes, password: bytes = b"") -> list[int]:
    """A ledger for each, and an empty one at the end; their ids."""
    ids = []
    for number, payload in enumerate(payloads):
        with cluster.client(f"w{number}").log(NAME, password=password).writer() as writer:
            writer.append(payload)
            ids.append(writer.ledger_id)
    with cluster.client("last").log(NAME, password=password).writer() as writer:
        ids.append(writer.ledger_id)
    return ids


def keys(cluster: Cluster) -> set[str]:
    return set(cluster.world.committed("/logs/"))


def state(cluster: Cluster) -> dict[str, bytes]:
    return cluster.world.committed("/logs/") | cluster.world.committed("/ledgers/")


def names_nothing_that_is_gone(cluster: Cluster) -> bool:
    value = cluster.world.committed("/logs/").get(log_key_path(NAME))
    named = decode_log_list(value).segments if value is not None else ()
    ledgers = cluster.world.committed("/ledgers/")
    return all(ledger_key_path(segment.ledger_id) in ledgers for segment in named)


def ids_in(cluster: Cluster, prefix: str) -> list[int]:
    return [int(key.rpartition("/")[2], 16) for key in sorted(cluster.world.committed(prefix))]


def before_each_change(patch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Told the number of each transaction of any client before it is sent."""
    transact, count = Runtime.transact, [0]

    async def counted(self: Runtime, when: Any, then: Any, what: str) -> bool:
        count[0] += 1
        act(count[0])
        return await transact(self, when, then, what)

    patch.setattr(Runtime, "transact", counted)


def test_a_log_goes_with_its_ledgers(cluster: Cluster) -> None:
    """P8.3, CL31: nothing of it is left but tombstones, by which each ledger can be brought back; its name is free."""
    ids = fill(cluster, b"zero", b"one")
    client = cluster.client("owner")
    client.delete_log(NAME)
    assert keys(cluster) == set()
    assert client.ledgers() == []
    assert [each.ledger_id for each in client.deleted_ledgers()] == ids
    with pytest.raises(NoSuchLedger, match="no log 'one'"):
        list(client.log(NAME).read())
    with pytest.raises(NoSuchLedger, match="no log 'one'"):
        client.delete_log(NAME)
    client.undelete_ledger(ids[0])
    assert [bytes(entry) for entry in client.open_ledger(ids[0]).read()] == [b"zero"]
    with client.log(NAME).writer() as writer:
        assert writer.first_offset == 0
        writer.append(b"another")
    assert [bytes(entry) for entry in client.log(NAME).read()] == [b"another"]


def test_a_log_that_is_written_is_deleted_only_by_force(cluster: Cluster) -> None:
    """CL30: nothing was changed before; with force it is gone, and its writer hears that it is no more its own."""
    fill(cluster, b"zero")
    writer = cluster.client("writer").log(NAME).writer()
    writer.append(b"one")
    client = cluster.client("owner")
    cluster.run_for(1.0)  # Until the takeover has deleted what closed empty before it (P8.3).
    before = state(cluster)
    with pytest.raises(UsageError, match=r"open writer.*is OPEN; nothing was changed"):
        client.delete_log(NAME)
    assert state(cluster) == before
    client.delete_log(NAME, force=True)
    assert keys(cluster) == set()
    assert client.ledgers() == []
    assert writer.ledger_id not in [each.ledger_id for each in client.deleted_ledgers()]
    with pytest.raises(LedgerFenced):
        writer.close()


def test_a_wrong_password_changes_nothing(cluster: Cluster) -> None:
    fill(cluster, b"zero", password=b"sesame")
    before = state(cluster)
    for force in (False, True):
        with pytest.raises(WrongPassword):
            cluster.client("thief").delete_log(NAME, force=force)
    assert state(cluster) == before
    cluster.client("owner").delete_log(NAME, password=b"sesame")
    assert keys(cluster) == set()


@pytest.mark.parametrize("at", range(1, 6))
def test_a_deletion_that_is_cut_short_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """P8.3: the process ends before its n-th change. The list names nothing that is gone, at no moment; a second call
    deletes what is left, also beside a log that was begun anew under the name."""
    ids = fill(cluster, b"zero", b"one")

    def end(number: int) -> None:
        assert names_nothing_that_is_gone(cluster)
        if number == at:
            raise MetadataUnavailable("the process ends here")

    with monkeypatch.context() as patch:
        before_each_change(patch, end)
        with pytest.raises(MetadataUnavailable):
            cluster.client("owner").delete_log(NAME)
    is_begun = at > 1
    assert (log_key_path(NAME) in keys(cluster)) == (not is_begun)
    assert (log_deleting_path(NAME) in keys(cluster)) == is_begun
    assert ids_in(cluster, "/ledgers/") == ids[max(0, at - 2) :]
    if is_begun:
        with cluster.client("new").log(NAME).writer() as writer:
            writer.append(b"another")
        ids.append(writer.ledger_id)
    cluster.client("again").delete_log(NAME)
    assert keys(cluster) == set()
    assert ids_in(cluster, "/ledgers/") == []
    assert ids_in(cluster, "/deleted/") == ids


def test_a_takeover_on_its_way_finds_that_the_log_is_gone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.1, P8.3: it has its epoch and reads the list, the log is deleted, it would publish its ledger: refused. And
    where the takeover comes first, the deletion looks again."""
    with cluster.client("first").log(NAME).writer() as first:
        first.append(b"zero")
    cluster.client("rival")

    def take_over(number: int) -> None:
        if number == 1:
            with cluster.client("rival").log(NAME).writer() as writer:
                writer.append(b"one")

    with monkeypatch.context() as patch:
        before_each_change(patch, take_over)
        cluster.client("owner").delete_log(NAME)
    assert keys(cluster) == set()
    assert ids_in(cluster, "/ledgers/") == []
    assert log_owner_path(NAME) not in keys(cluster)


def test_what_left_the_list_goes_with_the_log(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """P8.3: ledgers of which a takeover had not deleted the keys yet."""
    monkeypatch.setattr(
        "embedbk.client.owning.Owning._delete_left", lambda *_: None
    )  # As after a crash behind the takeover.
    fill(cluster)
    fill(cluster)
    assert log_left_path(NAME) in keys(cluster)
    cluster.client("owner").delete_log(NAME)
    assert keys(cluster) == set()
    assert ids_in(cluster, "/ledgers/") == []


def test_a_tail_of_a_log_that_is_deleted_is_told(cluster: Cluster) -> None:
    """P6.6: no silence for ever, and no entry of the next log of that name."""
    fill(cluster, b"zero")
    tail = cluster.log(NAME, client="reader").tail(0, idle_s=60)
    assert bytes(next(tail)) == b"zero"
    cluster.client("owner").delete_log(NAME)
    with pytest.raises(NoSuchLedger, match="log 'one'"):
        next(tail)


def test_a_ledger_of_a_log_that_is_being_deleted_is_nobody_elses(cluster: Cluster) -> None:
    """CL30: its list is gone, so it is deleted like any other ledger; the rest of the deletion goes on without it."""
    first, *_ = fill(cluster, b"zero", b"one")
    client = cluster.client("owner")
    with pytest.raises(UsageError, match="part of log"):
        client.delete_ledger(first)
    client.delete_log(NAME)
    with pytest.raises(NoSuchLedger):
        client.delete_ledger(first)
