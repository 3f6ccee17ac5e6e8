"""Sealing logs at the face (P8.9): nobody writes any more, readers end, and all else goes on."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from embedbk import LedgerFenced, LogSealed, NoSuchLedger, StorageError, UsageError, WrongPassword
from embedbk.client.creating import traits_of
from embedbk.client.log_reading import LogReading
from embedbk.client.owning import Owning
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.sealing import seal
from embedbk.codec.ledger_metadata import (
    SEAL_REASON_MAX,
    LogList,
    LogSeal,
    LogSegment,
    decode_log_list,
    encode_log_list,
    log_key_path,
    log_owner_path,
)
from embedbk.config import Quorum
from embedbk.testing import Cluster
from embedbk.testing.sim_runtime import awaited
from tests.scenarios.carried import carry_over
from tests.scenarios.test_truncating import NAME, fill


@pytest.fixture(params=[4, 256], ids=["pages", "no pages"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(seed=97, bookies=3) as cluster:
        cluster.world.page_ledgers = request.param
        carry_over(cluster.client("carrier"), NAME)
        yield cluster


def listed(cluster: Cluster) -> LogList:
    return decode_log_list(cluster.world.committed("/logs/")[log_key_path(NAME)])


def test_nobody_takes_a_sealed_log_over_and_the_error_says_why(cluster: Cluster) -> None:
    """P8.9: "no takeover succeeds"; what was acknowledged is there as ever."""
    fill(cluster)
    log = cluster.client("a").log(NAME)
    assert log.sealed() is None
    done = log.seal("moved to invoices")
    assert (done.reason, done.by) == ("moved to invoices", "a") and log.sealed() == done
    before = listed(cluster)
    for name in ("a", "w", "b"):
        with pytest.raises(LogSealed, match="sealed for ever: moved to invoices") as told:
            cluster.client(name).log(NAME).writer()
        assert told.value.definite and told.value.reason == "moved to invoices"
    with pytest.raises(LogSealed) as told:
        log.seal("another reason")
    assert told.value.reason == "moved to invoices"
    assert listed(cluster) == before and before.seal is not None
    assert [entry.offset for entry in log.read()] == list(range(24))


def test_whoever_writes_is_fenced_and_told(cluster: Cluster) -> None:
    """ "It takes the epoch, recovers and closes": no append is acknowledged behind the seal."""
    writer = cluster.client("w").log(NAME).writer()
    writer.append(b"0")
    log = cluster.client("a").log(NAME)
    log.seal("enough")
    with pytest.raises(LedgerFenced):
        writer.append(b"1")
    assert writer.lost(1.0)
    with pytest.raises((LedgerFenced, LogSealed)):
        writer.renew()
    with pytest.raises((LedgerFenced, LogSealed)):
        writer.roll()
    assert [bytes(entry) for entry in log.read()] == [b"0"]
    assert all(each.last_entry is not None for each in listed(cluster).segments)


def test_an_owner_that_renews_itself_hears_of_the_seal(cluster: Cluster) -> None:
    """It may not have heard of its fence: its takeover from itself meets the list."""
    writer = cluster.client("w").log(NAME).writer()
    writer.append(b"0")
    cluster.client("a").log(NAME).seal("enough")
    with pytest.raises((LedgerFenced, LogSealed)):
        writer.renew()
    assert writer.lost(1.0)


def test_readers_end_where_the_log_ends(cluster: Cluster) -> None:
    """ "Every reader ends at the log's end, also one that waits there"."""
    fill(cluster, 3)
    log = cluster.client("a").log(NAME)
    runtime = cluster.client("b")._runtime
    reading = LogReading(runtime, NAME, Password(b""))
    cluster.world.after(
        2_000_000_000, lambda: cluster.world.spawn("b", awaited(runtime, seal(reading, "enough")))
    )
    assert [entry.offset for entry in log.tail(2)] == [2, 3, 4, 5], "a tail without a limit"
    assert cluster.now_s < 60
    assert list(log.tail()) == []
    with log.cursor("billing").consume() as entries:
        assert [entry.offset for entry in entries] == list(range(6))
    assert log.cursor("billing").get().offset == 6
    assert cluster.now_s < 60


def test_it_is_truncated_consumed_and_deleted_as_ever(cluster: Cluster) -> None:
    fill(cluster)
    log = cluster.client("a").log(NAME)
    done = log.seal("enough")
    log.cursor("billing").set(9)
    assert log.truncate(20).reached == 8
    assert log.sealed() == done and listed(cluster).first_offset == 8
    with pytest.raises(LogSealed):
        cluster.client("w").log(NAME).writer()
    cluster.client("a").delete_log(NAME)
    fill(cluster, 1, name="w2")
    assert log.sealed() is None, "another log under the same name"


def test_what_is_no_reason_seals_nothing(cluster: Cluster) -> None:
    fill(cluster, 2)
    log = cluster.client("a").log(NAME)
    before = cluster.world.committed("/logs/")
    for reason in ("", "x" * (SEAL_REASON_MAX + 1), 7, None, "\ud800"):
        with pytest.raises(UsageError, match="reason="):
            log.seal(reason)  # type: ignore[arg-type]
    with pytest.raises(NoSuchLedger):
        cluster.client("a").log("another").seal("enough")
    assert cluster.world.committed("/logs/") == before, "nobody was fenced"
    assert log.seal("x" * SEAL_REASON_MAX).reason == "x" * SEAL_REASON_MAX


def test_another_password_seals_nothing(cluster: Cluster) -> None:
    with cluster.client("w").log(NAME, password=b"sesame").writer() as writer:
        writer.append(b"0")
        with pytest.raises(WrongPassword):
            cluster.client("a").log(NAME, password=b"wrong").seal("enough")
        assert listed(cluster).seal is None


def test_below_the_level_nothing_is_sealed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.8: the build before would take it over."""
    fill(cluster, 2)
    before = cluster.world.committed("/logs/")
    monkeypatch.setattr(Runtime, "has_level", lambda self, level: level < 6)
    with pytest.raises(UsageError, match="level is below 6"):
        cluster.client("a").log(NAME).seal("enough")
    assert cluster.world.committed("/logs/") == before


def test_a_takeover_that_was_begun_before_the_seal_leaves_nothing(cluster: Cluster) -> None:
    """Of both one is first: a takeover that has the epoch, and not the list, makes no ledger."""
    fill(cluster, 2)
    log, world = cluster.client("a").log(NAME), cluster.world
    runtime = cluster.client("t")._runtime
    traits = traits_of(runtime, "synced", None, delays_change=False, digest="crc32c")
    before, owner = set(world.committed("/ledgers/")), world.committed(log_owner_path(NAME))
    taking = Owning(runtime, NAME, Password(b""), Quorum(3, 3, 2), traits)
    actor = world.spawn("t", awaited(runtime, taking.take_over()))
    assert cluster.run_until(lambda: world.committed(log_owner_path(NAME)) != owner)
    cluster.pause("t")
    log.seal("enough")
    cluster.resume("t")
    assert cluster.run_until(lambda: actor.is_over)
    assert isinstance(actor.error, LogSealed)
    assert cluster.run_until(lambda: set(world.committed("/ledgers/")) == before)
    assert listed(cluster).seal is not None


@pytest.mark.parametrize("takeovers", [4, 5])
def test_a_sealing_that_loses_the_log_again_and_again_gives_up(cluster: Cluster, takeovers: int) -> None:
    """P8.9, P8.1: each time another client took the log over between its epoch and its list. Nothing is sealed then,
    and the error says that the log was lost; asked again it seals."""
    fill(cluster, 2)
    world, runtime = cluster.world, cluster.client("a")._runtime
    reading = LogReading(runtime, NAME, Password(b""))
    actor = world.spawn("a", awaited(runtime, seal(reading, "enough")))
    for _ in range(takeovers):
        owner = world.committed(log_owner_path(NAME))
        assert cluster.run_until(lambda: world.committed(log_owner_path(NAME)) != owner)  # noqa: B023
        assert not actor.is_over
        cluster.pause("a")
        cluster.client("b").log(NAME).writer().close()
        cluster.resume("a")
    assert cluster.run_until(lambda: actor.is_over)
    if takeovers == 4:
        assert actor.error is None and listed(cluster).seal is not None
        return
    assert isinstance(actor.error, LedgerFenced)
    assert listed(cluster).seal is None
    assert cluster.client("a").log(NAME).seal("enough").reason == "enough"


def test_a_seal_is_kept_with_pages_and_without(cluster: Cluster) -> None:
    """WIRE.md: fields are appended; a list that is not sealed is as builds before write it."""
    closed = LogSegment(1, 0, 4, 5, 1, 9)
    sealed = LogList(1, 7, (closed,), None, LogSeal("enough", 12, "me"))
    assert decode_log_list(encode_log_list(sealed)) == sealed
    assert decode_log_list(encode_log_list(sealed, is_whole=False)) == sealed
    fill(cluster)
    assert len(_raw(cluster)) == (4 if listed(cluster).has_pages else 3)
    with pytest.raises(StorageError, match="is sealed"):
        decode_log_list(encode_log_list(LogList(1, 7, (LogSegment(1, 0, None),), None, sealed.seal)))
    assert log_owner_path(NAME) in cluster.world.committed("/logs/")


def _raw(cluster: Cluster) -> list[object]:
    raw: list[object] = msgspec.msgpack.decode(cluster.world.committed("/logs/")[log_key_path(NAME)])
    return raw
