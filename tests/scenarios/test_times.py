"""Times of a log's entries (P8.11): when they were made, never below the one before, and found by a few looks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import embedbk
from embedbk import Position, Roll
from embedbk.client.batches import Located
from embedbk.client.waiting import run_blocking
from embedbk.codec.attributes import last_time_in
from embedbk.metadata import levels
from embedbk.testing import Cluster
from embedbk.testing.sim_runtime import EPOCH_MS


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=104, bookies=3) as cluster:
        yield cluster


def skew(cluster: Cluster, client: str, ms: int) -> None:
    """Its wall clock is so far from the others'."""
    runtime: Any = cluster.client(client)._runtime
    runtime._skew_ms = ms


def times(log: embedbk.Log) -> list[int | None]:
    return [log.time_at(offset) for offset in range(log.end())]


def appended_at(cluster: Cluster) -> int:
    return EPOCH_MS + int(cluster.now_s * 1000)


def test_an_entry_has_the_time_at_which_its_writer_made_it(cluster: Cluster) -> None:
    """P8.11, across rolls: each has one, by its writer's clock."""
    skew(cluster, "w", 0)
    log = cluster.log("one", client="reader")
    made = []
    with cluster.log("one", client="w").writer(roll=Roll(bytes=None)) as writer:
        for number in range(12):
            cluster.run_for(0.25)
            made.append(appended_at(cluster))
            writer.append(b"%d" % number)
            if number % 4 == 3:
                writer.roll()
    found = times(log)
    assert None not in found
    assert all(abs(one - other) <= 2 for one, other in zip(found, made, strict=True))  # type: ignore[operator]
    assert found == sorted(found)  # type: ignore[type-var]
    assert log.time_at(Position(log.segments()[1].ledger_id, 2)) == found[6]
    with pytest.raises(embedbk.NoSuchEntry):
        log.time_at(12)


def test_no_time_is_below_the_one_before_it_across_takeovers_and_rolls(cluster: Cluster) -> None:
    """P8.11: "never below that of the entry before it in the log", whatever the clocks of writers show."""
    for client, ms in (("ahead", 60_000), ("behind", -60_000), ("right", 0)):
        skew(cluster, client, ms)
    given = 0
    for client in ("ahead", "behind", "right", "ahead", "behind"):
        with cluster.log("one", client=client).writer(roll=Roll(bytes=None)) as writer:
            writer.append_many([b"x"] * 3)
            writer.roll()
            cluster.run_for(0.01)
            writer.append_many([b"y"] * 70)
            given += 73
        with cluster.log("one", client=client).writer():
            pass  # An empty ledger between them.
    found = times(cluster.log("one", client="reader"))
    assert len(found) == given
    assert None not in found
    assert found == sorted(found)  # type: ignore[type-var]
    assert found[-1] - found[0] < 60_000  # type: ignore[operator]


def test_what_goes_over_to_a_next_ledger_keeps_the_order_of_times(cluster: Cluster) -> None:
    """P8.2, P8.11: the ledger fails, and what was outstanding is made anew in the next one."""
    skew(cluster, "w", 0)
    log = cluster.client("w").log("one")
    writer = log.writer()
    writer.append_many([b"x"] * 5)
    ledger_id = writer.ledger_id
    tickets = [writer.append_nowait(b"y") for _ in range(3)]
    with cluster.client("stray").open_ledger(ledger_id, recover=True):
        pass
    tickets += [writer.append_nowait(b"z") for _ in range(3)]
    for ticket in tickets:
        ticket.result()
    assert [ticket.offset for ticket in tickets] == list(range(5, 11))
    assert {ticket.epoch for ticket in tickets} == {writer.epoch}
    writer.close()
    assert len(log.segments()) == 2
    found = times(log)
    assert None not in found
    assert found == sorted(found)  # type: ignore[type-var]


def test_the_first_entry_at_or_behind_a_time_is_found(cluster: Cluster) -> None:
    """P8.11: for every time, whichever ledger it falls into; between two entries, before all, behind all."""
    skew(cluster, "w", 0)
    log = cluster.log("one", client="reader")
    with cluster.log("one", client="w").writer(roll=Roll(bytes=None)) as writer:
        for number in range(20):
            cluster.run_for(0.013 * (number % 3))  # Some at one time.
            writer.append_many([b"%d" % number] * (1 + number % 5))
            if number % 7 == 6:
                writer.roll()
    found: Any = times(log)
    end = log.end()
    assert end == len(found) == sum(1 + number % 5 for number in range(20))
    for ms in (0, *sorted({each + near for each in found for near in (-1, 0, 1)}), 2**62):
        expected = next((offset for offset, each in enumerate(found) if each >= ms), end)
        assert log.first_at(ms) == expected
    assert bytes(next(log.read(log.first_at(found[25])))) == bytes(next(log.read(found.index(found[25]))))


def test_a_time_is_looked_for_in_few_reads_however_long_the_log_is(cluster: Cluster) -> None:
    """P8.11: half of what is left is out at each look, and a look reads at most 64 entries."""
    log = cluster.log("one", client="reader")
    with cluster.log("one", client="w").writer() as writer:
        for _ in range(40):
            writer.append_many([b"x"] * 500)
            cluster.run_for(0.1)
    frames: list[Located] = []
    reading = embedbk.client.reading.LedgerReading  # type: ignore[attr-defined]
    plain = reading.frames

    async def counted(self: Any, first: int, last: int, *rest: Any, **more: Any) -> Any:
        assert last - first < 64
        async for located in plain(self, first, last, *rest, **more):
            frames.append(located)
            yield located

    reading.frames = counted
    try:
        middle = log.time_at(10_000)
        assert middle is not None
        assert log.time_at(log.first_at(middle)) == middle
    finally:
        reading.frames = plain
    assert len(frames) <= 2 * 17  # A look meets the end of a frame now and then.


def test_a_time_is_looked_for_beside_truncation(cluster: Cluster) -> None:
    """P8.11, P8.3: what is gone is older than what is there."""
    skew(cluster, "w", 0)
    log = cluster.log("one", client="reader")
    with cluster.log("one", client="w").writer(roll=Roll(bytes=None)) as writer:
        for _ in range(6):
            writer.append_many([b"x"] * 4)
            cluster.run_for(1)
            writer.roll()
    found: Any = times(log)
    log.truncate(12)
    assert log.first_at(0) == 12
    assert log.first_at(found[5]) == 12
    assert log.first_at(found[17]) == 16
    assert log.end() == 24
    with pytest.raises(embedbk.Truncated):
        log.time_at(5)


def test_times_may_be_told_as_people_tell_them(cluster: Cluster) -> None:
    """ms since 1970, or a datetime with its zone; what is none changes nothing."""
    skew(cluster, "w", 0)
    log = cluster.log("one", client="w")
    with log.writer() as writer:
        writer.append(b"x")
        cluster.run_for(5)
        writer.append(b"y")
    at = log.time_at(1)
    assert at is not None
    utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
    assert log.first_at(utc) == 1
    assert log.first_at(utc.astimezone(timezone(timedelta(hours=5)))) == 1
    assert log.first_at(utc + timedelta(microseconds=1)) == 2
    assert log.first_at(utc - timedelta(microseconds=1)) == 1
    for strange in (
        -1,
        1.5,
        True,
        "now",
        None,
        datetime(2026, 1, 1),
        2**63,
        datetime(1969, 1, 1, tzinfo=UTC),
    ):
        with pytest.raises(embedbk.UsageError, match="is no time"):
            log.first_at(strange)  # type: ignore[arg-type]


def test_a_log_that_is_not_there_has_no_end(cluster: Cluster) -> None:
    log = cluster.log("one", client="reader")
    for call in (log.end, lambda: log.first_at(5), lambda: log.time_at(0)):
        with pytest.raises(embedbk.NoSuchLedger):
            call()
    with cluster.log("one", client="w").writer():
        assert (log.end(), log.first_at(0)) == (0, 0)
        with pytest.raises(embedbk.NoSuchEntry):
            log.time_at(0)


def test_below_its_level_no_entry_carries_a_time(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """P8.11, P10.8: bookies and readers of the build before refuse an attribute that they do not know; so it is written
    only once the cluster's level allows it. What is from before has no time, and counts as older."""
    runtime: Any = cluster.client("w")._runtime
    monkeypatch.setattr(runtime, "has_level", lambda level: level < levels.LEVEL_OF_TIMES)
    log = cluster.log("one", client="reader")
    with cluster.log("one", client="w").writer(roll=Roll(bytes=None)) as writer:
        writer.append_many([b"x"] * 5)
        writer.roll()
        writer.append_many([b"x"] * 5)
        assert bare_times(log) == [None, None]
        monkeypatch.undo()
        writer.append(b"still without")  # Of this ledger none has one.
        writer.roll()
        writer.append(b"y")
    assert times(log) == [None] * 11 + [log.time_at(11)]
    assert log.time_at(11) is not None
    assert log.first_at(0) == 11
    with cluster.log("one", client="w").writer() as writer:
        writer.append(b"z")
    assert log.time_at(12) >= log.time_at(11)  # type: ignore[operator]


def test_an_owner_that_was_not_told_of_the_level_yet_sees_it_by_what_stands_there(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.11: no ledger without times stands behind one that has them; a level is never lowered (P10.8)."""
    with cluster.log("one", client="w").writer() as writer:
        writer.append(b"x")
    runtime: Any = cluster.client("v")._runtime
    monkeypatch.setattr(runtime, "has_level", lambda level: level < levels.LEVEL_OF_TIMES)
    with cluster.log("one", client="v").writer(roll=Roll(bytes=None)) as writer:
        writer.append(b"y")
        writer.roll()
        writer.append(b"z")
    found = times(cluster.log("one", client="reader"))
    assert None not in found
    assert found == sorted(found)  # type: ignore[type-var]


def bare_times(log: Any) -> list[int | None]:
    """By frame, as they are stored."""

    async def steps() -> list[int | None]:
        return [last_time_in(located.frame) async for located in log._reading.read(None, None)]

    return run_blocking(steps(), "nothing")


def test_a_takeover_goes_on_where_the_last_time_cannot_be_read(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """P8.11: nobody can tell, and that stops no writer: it says so, and goes on by its own clock."""
    with cluster.log("one", client="w").writer(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer:
        writer.append(b"x")
        runtime: Any = cluster.client("w")._runtime
        bookie = (
            runtime.node.metadata is not None and writer._appending.writing.metadata.fragments[0].members[0]
        )
    cluster.crash(bookie.bookie_id)
    with cluster.log("one", client="v").writer(ensemble_size=1, write_quorum=1, ack_quorum=1) as second:
        assert second.append(b"y").entry_id == 0
    assert any("the time of its last entry is not known" in each.getMessage() for each in caplog.records)
    assert cluster.log("one", client="v").time_at(1) is not None
