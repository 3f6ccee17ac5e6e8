"""Settings of logs (P8.7), and retention that their owners keep (P8.8), at the face."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from embedbk import (
    LogExists,
    LogSettings,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    Roll,
    StorageError,
    UsageError,
)
from embedbk.client import keeping, log_writer
from embedbk.client.renewing import Succession
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import (
    Begun,
    LedgerMetadata,
    LogList,
    decode_ledger_metadata,
    decode_log_list,
    ledger_key_path,
    log_key_path,
)
from embedbk.codec.log_settings import log_settings_path
from embedbk.codec.metadata_messages import Put
from embedbk.config import CUSTOM_BYTES_MAX, Quorum
from embedbk.testing import Cluster
from tests.scenarios.carried import end_log, id_of, keys_left

NAME = "one"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=101, bookies=5) as cluster:
        yield cluster


def listed(cluster: Cluster) -> LogList:
    return decode_log_list(cluster.world.committed("/logs/")[log_key_path(id_of(cluster, NAME))])


def newest(cluster: Cluster) -> LedgerMetadata:
    ledger_id = listed(cluster).segments[-1].ledger_id
    return decode_ledger_metadata(cluster.world.committed("/ledgers/")[ledger_key_path(ledger_id)])


def settings_of(cluster: Cluster) -> bytes | None:
    return cluster.world.committed("/logs/").get(log_settings_path(id_of(cluster, NAME)))


def test_a_log_is_made_with_settings_and_its_writers_follow_them(cluster: Cluster) -> None:
    client = cluster.client("a")
    assert not client.log_exists(NAME)
    log = client.create_log(
        NAME,
        ensemble_size=5,
        digest="xxh3",
        roll=Roll(entries=3),
        retention_s=60.0,
        properties={"team": b"billing"},
    )
    assert client.log_exists(NAME) and client.logs() == [NAME]
    told = log.settings()
    assert told[:6] == (5, 5, 4, None, "xxh3", Roll(entries=3))
    assert (told.retention_s, told.retention_bytes, told.properties) == (60.0, None, {"team": b"billing"})
    with pytest.raises(LogExists):
        client.create_log(NAME)
    with cluster.client("w").log(NAME).writer() as writer:
        for number in range(8):
            writer.append(b"%d" % number)
        cluster.run_for(1.0)
        assert newest(cluster).quorum.ensemble_size == 5 and newest(cluster).digest == 1
    assert len(listed(cluster).segments) >= 2, "it rolled by the setting"
    assert [bytes(entry) for entry in log.read()] == [b"%d" % number for number in range(8)]


def test_a_log_that_nobody_wrote_to_is_empty_and_there(cluster: Cluster) -> None:
    client = cluster.client("a")
    log = client.create_log(NAME)
    assert list(log.read()) == [] and log.segments() == [] and log.cursors() == []
    assert list(log.tail(0, idle_s=0.5)) == []
    assert log.cursor("c").set().offset == 0
    assert [(each.lag_entries, each.lag_bytes) for each in log.cursors()] == [(0, 0)]
    done = log.truncate(5, may_do_nothing=True)
    assert (done.reached, done.held_by) == (0, "last")
    with pytest.raises(NoSuchLedger):
        log.seal("enough")
    end_log(client, NAME)
    assert keys_left(cluster) == set() and not client.log_exists(NAME)
    with pytest.raises(NoSuchLedger):
        log.settings()
    with pytest.raises(NoSuchLedger):
        log.change(retention_s=1.0)


def test_an_argument_that_differs_from_a_setting_is_refused_before_anybody_is_fenced(
    cluster: Cluster,
) -> None:
    """ "A UsageError that names both"."""
    log = cluster.client("a").create_log(NAME, ensemble_size=3, durability="synced", roll=Roll(entries=5))
    writer = cluster.client("w").log(NAME).writer(ensemble_size=3, roll=Roll(entries=5))
    writer.append(b"0")
    before = settings_of(cluster)
    arguments: list[tuple[dict[str, Any], str]] = [
        ({"ensemble_size": 5}, "ensemble_size=5, and its setting is 3"),
        (
            {"write_quorum": 2, "ack_quorum": 1},
            "write_quorum=2, and its setting is 3; ack_quorum=1, and its setting is 2",
        ),
        ({"durability": "deferred"}, "durability='deferred', and its setting is 'synced'"),
        ({"roll": Roll(entries=6)}, "and its setting is Roll"),
    ]
    for given, text in arguments:
        with pytest.raises(UsageError, match=text) as told:
            cluster.client("b").log(NAME).writer(**given)
        assert "log.change()" in told.value.hint
    writer.append(b"1")  # Nobody was fenced.
    writer.renew()
    assert newest(cluster).quorum.ensemble_size == 3
    assert settings_of(cluster) == before and log.settings().digest is None
    writer.renew(ensemble_size=5)
    assert log.settings()[:3] == (5, 5, 4), "its owner asked for it"
    cluster.run_for(30.0)
    assert newest(cluster).quorum.ensemble_size == 5


def test_a_renewal_that_asks_for_no_sizes_changes_no_setting(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.7: "sizes that are given become the setting". What an operator changes meanwhile stays."""
    log = cluster.client("a").create_log(NAME, ensemble_size=3)
    writer = cluster.client("w").log(NAME).writer()
    writer.append(b"0")
    renew = Succession.renew

    async def renewed_before_a_change(line: Succession, quorum: Quorum) -> None:
        await renew(line, quorum)
        log.change(ensemble_size=5)

    monkeypatch.setattr(Succession, "renew", renewed_before_a_change)
    writer.renew()
    assert log.settings().ensemble_size == 5


def test_a_renewal_whose_sizes_do_not_become_the_setting_says_that_it_was_done(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its caller takes the log for one without a ledger, and wonders at the sizes that come back."""
    cluster.client("a").create_log(NAME, ensemble_size=3)
    writer = cluster.client("w").log(NAME).writer()
    writer.append(b"0")

    async def silent(*_: object) -> None:
        raise MetadataUnavailable("nobody answered", definite=True)

    with monkeypatch.context() as away:
        away.setattr(log_writer, "resized", silent)
        with pytest.raises(
            MetadataUnavailable, match=r"goes on in ledger .* of 5/5/4, .* nobody answered"
        ) as told:
            writer.renew(ensemble_size=5)
    assert not told.value.definite
    assert newest(cluster).quorum.ensemble_size == 5
    writer.append(b"1")


def test_of_a_log_without_settings_the_first_writers_arguments_become_them(cluster: Cluster) -> None:
    log = cluster.client("a").log(NAME)
    with cluster.client("w").log(NAME).writer():
        pass
    assert log.settings() == LogSettings(), "nothing was asked for"
    with cluster.client("w").log(NAME).writer(ack_quorum=1, digest="xxh3"):
        pass
    assert log.settings()[:6] == (3, 3, 1, None, "xxh3", None)
    with pytest.raises(UsageError, match="digest='crc32c', and its setting is 'xxh3'"):
        log.writer(digest="crc32c")
    other = cluster.client("a").log("other")
    with pytest.raises(NotEnoughBookies):
        other.writer(ensemble_size=6)
    assert log_settings_path(id_of(cluster, "other")) not in cluster.world.committed("/logs/"), (
        "it did not get the log"
    )


@pytest.mark.parametrize("age_s", [86_400 / 7, 1.001, 0.0015])
def test_arguments_are_what_they_have_become(cluster: Cluster, age_s: float) -> None:
    """P8.7: a program that is started again gives the same arguments, and settings keep an age in ms."""
    for _ in range(2):
        with cluster.client("w").log(NAME).writer(roll=Roll(age_s=age_s)):
            pass
    with pytest.raises(UsageError, match="and its setting is Roll"):
        cluster.client("w").log(NAME).writer(roll=Roll(age_s=age_s + 0.002))


def test_settings_are_changed_by_compare_and_set(cluster: Cluster) -> None:
    log, other = cluster.client("a").create_log(NAME), cluster.client("b").log(NAME)
    first = log.settings()
    second = log.change(revision=first.revision, properties={"a": b"1"}, retention_bytes=7)
    with pytest.raises(MetadataConflict) as told:
        other.change(revision=first.revision, properties={"a": b"2"})
    assert told.value.definite
    third = other.change(retention_s=2.5)
    assert third.revision > second.revision
    assert (third.properties, third.retention_bytes, third.retention_s) == ({"a": b"1"}, 7, 2.5)
    assert log.change(retention_bytes=None, retention_s=None, properties=None)[6:9] == (None, None, {})


def test_bad_settings_change_nothing(cluster: Cluster) -> None:
    """Settings that no bookie can satisfy are an error of whoever asks for a ledger; what is none is refused."""
    log = cluster.client("a").create_log(NAME)
    before = settings_of(cluster)
    bad: list[dict[str, Any]] = [
        {"ensemble_size": 2, "write_quorum": 3},
        {"ack_quorum": 2},
        {"ensemble_size": 1000},
        {"durability": "never"},
        {"durability": ["synced"]},
        {"ensemble_size": "3"},
        {"digest": "md5"},
        {"roll": 7},
        {"retention_s": 0},
        {"retention_s": True},
        {"retention_bytes": -1},
        {"retention_bytes": 1.5},
        {"properties": {"a": "text"}},
        {"properties": {"a": b"x" * CUSTOM_BYTES_MAX}},
        {"properties": {"\ud800": b""}},
    ]
    for wanted in bad:
        with pytest.raises(UsageError):
            log.change(**wanted)
    assert settings_of(cluster) == before
    log.change(ensemble_size=9)
    with pytest.raises(NotEnoughBookies):
        log.writer()
    put = Put(log_settings_path(id_of(cluster, NAME)), b"what is this")
    run_blocking(cluster.client("stranger")._runtime.transact([], [put], "a test"), "")
    for refused in (log.settings, log.writer, lambda: log.change(digest=None)):
        with pytest.raises(StorageError, match="are no settings"):
            refused()
    assert list(log.read()) == []


def test_an_owner_follows_a_change_at_its_next_entry(cluster: Cluster) -> None:
    """P8.7: "where its ledger was made by others it rolls", and says why; under one epoch."""
    with cluster.client("w").log(NAME).writer() as writer:
        writer.append(b"0")
        epoch, first = writer.epoch, writer.ledger_id
        log = cluster.client("a").log(NAME)
        log.change(ensemble_size=5, write_quorum=3, ack_quorum=2, roll=Roll(bytes=None, entries=4))
        cluster.run_for(15.0)
        assert (writer.epoch, writer.ledger_id != first) == (epoch, True)
        assert newest(cluster).quorum.ensemble_size == 5
        assert listed(cluster).segments[-1].begun == Begun.SETTINGS
        now = writer.ledger_id
        cluster.run_for(60.0)
        assert writer.ledger_id == now, "once"
        for number in range(12):
            writer.append(b"%d" % number)
            cluster.run_for(0.1)
        assert len(listed(cluster).segments) >= 4, "the bounds are others, too"
    assert [entry.offset for entry in log.read()] == list(range(13))


def test_an_owner_compresses_as_long_as_it_is_the_setting(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """P8.7: it rolls for this as for others; one that lacks the library says so, and stores entries as they are."""
    text, sizes = b"over and over again, " * 40, []
    with cluster.client("w").log(NAME).writer() as writer:
        writer.append(text)
        log = cluster.client("a").log(NAME)
        for compression in ("zstd", None, "zstd"):
            if len(sizes) == 2:
                monkeypatch.setattr(keeping, "is_installed", lambda: False)
            log.change(compression=compression)
            cluster.run_for(15.0)
            writer.append(text)
            sizes.append(writer.length < len(text))
        assert log.settings().compression == "zstd"
    assert sizes == [True, False, False]
    assert "is not installed here: its entries stay as they are (pip install 'embedbk[zstd]')" in caplog.text
    assert [bytes(entry) for entry in log.read()] == [text] * 4


def test_an_empty_ledger_stays_until_something_is_in_it(cluster: Cluster) -> None:
    with cluster.client("w").log(NAME).writer() as writer:
        cluster.client("a").log(NAME).change(ensemble_size=5, write_quorum=3, ack_quorum=2)
        cluster.run_for(30.0)
        assert newest(cluster).quorum.ensemble_size == 3
        writer.append(b"0")
        cluster.run_for(15.0)
        assert newest(cluster).quorum.ensemble_size == 5


def test_who_is_not_the_owner_any_more_follows_nothing(cluster: Cluster) -> None:
    writer = cluster.client("w").log(NAME).writer()
    writer.append(b"0")
    with cluster.client("v").log(NAME).writer() as later:
        later.append(b"1")
        cluster.client("a").log(NAME).change(ensemble_size=5, write_quorum=3, ack_quorum=2)
        cluster.run_for(30.0)
        assert newest(cluster).quorum.ensemble_size == 5
        assert later.epoch == listed(cluster).epoch > writer.epoch
    writer.release()


def test_retention_is_off_and_kept_by_the_owner_when_it_is_on(cluster: Cluster) -> None:
    """P8.8: "by age and by size, where both are set by both"."""
    cluster.client("w")._runtime.log_look_s = 1.0
    log = cluster.client("a").create_log(NAME, roll=Roll(bytes=None, entries=2))
    with cluster.client("w").log(NAME).writer() as writer:
        for number in range(20):
            writer.append(b"%02d" % number)
            cluster.run_for(0.2)
        cluster.run_for(8.0)
        assert listed(cluster).first_offset == 0, "off by default"
        log.change(retention_s=1.0, retention_bytes=1000)
        cluster.run_for(8.0)
        assert listed(cluster).first_offset == 0, "size does not allow it"
        log.change(retention_s=100_000.0, retention_bytes=0)
        cluster.run_for(8.0)
        assert listed(cluster).first_offset == 0, "age does not allow it"
        log.cursor("billing").set(9)
        log.change(retention_s=1.0, retention_bytes=10)
        cluster.run_for(8.0)
        front = listed(cluster).first_offset
        assert 0 < front <= 9, "a cursor holds"
        log.cursor("billing").delete()
        log.pin("copy", 11, ttl_s=10_000.0)
        cluster.run_for(8.0)
        assert front < listed(cluster).first_offset <= 11, "a pin holds"
        log.unpin("copy")
        cluster.run_for(8.0)
        left = [entry.offset for entry in log.read()]
        assert 2 * len(left) >= 10 and left[0] > 11 and left[-1] == 19
    before = listed(cluster).first_offset
    log.change(retention_s=0.5, retention_bytes=0)
    cluster.run_for(20.0)
    assert listed(cluster).first_offset == before, "no host of this cluster repairs, so none is elected"


def test_below_the_level_there_are_none(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.8: the build before does not follow them."""
    monkeypatch.setattr(Runtime, "has_level", lambda self, level: level < 6)
    log = cluster.client("a").log(NAME)
    with log.writer(ensemble_size=5, roll=Roll(entries=2)) as writer:
        writer.append(b"0")
    with pytest.raises(UsageError, match="level is below 6"):
        log.change(retention_s=1.0)
    with pytest.raises(UsageError, match="level is below 6"):
        cluster.client("a").create_log("two")
    assert not [key for key in cluster.world.committed("/logs/") if key.endswith("/settings")]
