"""Durable cursors at the face (P8.8): moved, held against truncation, and consumed by, one consumer at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from embedbk import (
    Consumer,
    CursorLost,
    MetadataConflict,
    NoSuchCursor,
    NoSuchLedger,
    NotTruncated,
    OperationTimeout,
    Position,
    Roll,
    StorageError,
    Truncated,
    UsageError,
)
from embedbk.client.cursors import Cursoring
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import METADATA_VERSION, decode_log_list, log_key_path
from embedbk.codec.log_cursors import (
    CURSORS_MAX,
    CursorHold,
    LogCursors,
    NamedCursor,
    cursor_path,
    decode_log_cursors,
    encode_log_cursors,
    log_cursors_path,
)
from embedbk.codec.metadata_messages import Put
from embedbk.testing import Cluster
from embedbk.testing.sim_runtime import awaited
from tests.scenarios.carried import carry_over, end_log, id_of, keys_left
from tests.scenarios.test_truncating import NAME, fill


@pytest.fixture(params=[4, 256], ids=["pages", "no pages"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(seed=91, bookies=3) as cluster:
        cluster.world.page_ledgers = request.param
        carry_over(cluster.client("carrier"), NAME)
        yield cluster


def took(entries: Consumer, count: int) -> list[int]:
    """The offsets of the next so many entries, all of which count as consumed."""
    offsets = []
    for entry in entries:
        if len(offsets) == count:
            break
        offsets.append(entry.offset)
    return offsets


def put(cluster: Cluster, key: str, value: bytes) -> None:
    """As any client may."""
    run_blocking(cluster.client("stranger")._runtime.transact([], [Put(key, value)], "a test"), "")


def first_offset(cluster: Cluster) -> int:
    return decode_log_list(cluster.world.committed("/logs/")[log_key_path(NAME)]).first_offset


def test_a_cursor_stands_where_it_was_put_and_moves_by_compare_and_set(cluster: Cluster) -> None:
    positions = fill(cluster)
    log = cluster.client("a").log(NAME)
    billing = log.cursor("billing")
    with pytest.raises(NoSuchCursor, match="no cursor 'billing'"):
        billing.get()
    made = billing.set(revision=0)
    assert (made.name, made.offset, made.epoch, made.holds, made.ended) == ("billing", 0, 0, True, "")
    with pytest.raises(MetadataConflict, match="it stays where it is") as told:
        billing.set(5, revision=0)
    assert told.value.definite
    on = billing.set(positions[7], revision=made.revision)
    assert on.offset == 7 and on.revision > made.revision and billing.get() == on
    with pytest.raises(MetadataConflict):
        billing.set(9, revision=made.revision)
    assert cluster.client("b").log(NAME).cursor("billing").set(3).offset == 3
    with pytest.raises(MetadataConflict):
        billing.delete(revision=on.revision)
    assert billing.delete() and not billing.delete()
    with pytest.raises(NoSuchCursor):
        billing.get()
    with pytest.raises(NoSuchLedger):
        cluster.client("a").log("another").cursor("billing").set()


def test_what_is_no_cursor_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    fill(cluster, 3)
    log = cluster.client("a").log(NAME)
    before = cluster.world.committed("/log")
    for refused in (
        lambda: log.cursor("no/name"),
        lambda: log.cursor(""),
        lambda: log.cursor("c", holds=1),  # type: ignore[arg-type]
        lambda: log.cursor("c", ends_after_s=0),
        lambda: log.cursor("c", ends_behind_bytes=True),
        lambda: log.cursor("c", holds=False, ends_after_s=3),
        lambda: log.cursor("c").set(-1),
        lambda: log.cursor("c").set(True),
        lambda: log.cursor("c").consume(commit_s=-1),
        lambda: log.cursor("c").consume(commit_s=None),  # type: ignore[arg-type]
        lambda: log.cursor("c").consume(idle_s=math.nan),
        lambda: log.cursor("c").consume().commit(),
    ):
        with pytest.raises(UsageError):
            refused()
    assert cluster.world.committed("/log") == before
    log.truncate(2)
    with pytest.raises(Truncated, match="below its start, 2") as told:
        log.cursor("c").set(1)
    assert told.value.first_offset == 2
    assert cluster.world.committed("/log-cursors/") == {}


def test_a_log_has_a_bounded_number_of_cursors(cluster: Cluster) -> None:
    """One transaction deletes all of them with their log."""
    fill(cluster, 2)
    log = cluster.client("a").log(NAME)
    for number in range(CURSORS_MAX):
        log.cursor(f"c{number}").set()
    with pytest.raises(UsageError, match=f"has {CURSORS_MAX} cursors, and may have {CURSORS_MAX}"):
        log.cursor("more").set()
    assert log.cursor("c7").set(1).offset == 1
    end_log(cluster.client("a"), NAME)
    assert keys_left(cluster) == set()
    fill(cluster, 1, name="w2")
    assert log.cursors() == []


def test_a_cursor_that_holds_is_not_passed_and_one_that_does_not_is(cluster: Cluster) -> None:
    """P8.8: "nothing from there on is truncated, unless by force"; it says what held."""
    fill(cluster)
    log = cluster.client("a").log(NAME)
    log.cursor("first", holds=False).set(0)
    log.cursor("billing").set(5)
    log.cursor("audit").set(9)
    done = log.truncate(20)
    assert (done.reached, done.held_by, done.cursor, done.pin, done.passed) == (
        4,
        "cursor",
        "billing",
        "",
        (),
    )
    with pytest.raises(NotTruncated, match="its cursor 'billing' holds what is left") as told:
        log.truncate(20)
    assert "force=True" in told.value.hint
    log.cursor("billing").set(8)
    assert log.truncate(20).reached == 8
    with pytest.raises(Truncated):
        log.cursor("billing").set(7)
    log.pin("copy", 12)
    done = log.truncate(20, force=True)
    assert (done.reached, done.held_by, done.pin) == (12, "pin", "copy")
    assert set(done.passed) == {"audit", "billing"}
    state = log.cursor("billing").get()
    assert (state.offset, state.holds, state.ended) == (8, False, "force")
    assert log.cursor("first").get().ended == ""
    log.unpin("copy")
    assert log.truncate(16).reached == 16, "what was passed holds nothing any more"
    assert log.cursor("billing").set(19).holds
    assert log.truncate(20).cursor == "billing"


def test_a_hold_ends_by_time_and_by_bytes_if_it_was_told(cluster: Cluster) -> None:
    """ "A cursor that holds data ends by time or by bytes behind, if told": by name, in the same transaction."""
    fill(cluster, 12)  # A byte or two in each entry.
    log = cluster.client("a").log(NAME)
    slow, idle = log.cursor("slow", ends_behind_bytes=12), log.cursor("idle", ends_after_s=30.0)
    slow.set(0)
    idle.set(4)
    done = log.truncate(22)
    assert (done.reached, done.cursor, done.passed) == (4, "idle", ("slow",))
    assert (slow.get().holds, slow.get().ended) == (False, "bytes")
    cluster.run_for(20.0)
    idle.set(5)  # Moved: its time begins anew.
    cluster.run_for(20.0)
    with pytest.raises(NotTruncated):
        log.truncate(22)
    cluster.run_for(11.0)
    done = log.truncate(22)
    assert (done.reached, done.passed) == (22, ("idle",))
    assert idle.get().ended == "time"


def test_a_cursor_that_comes_or_goes_back_beside_a_truncation_is_seen_or_sees_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two one sees the other: whichever is first, the other is refused and looks again."""
    fill(cluster)
    log = cluster.client("a").log(NAME)
    billing = log.cursor("billing")
    billing.set(15)
    transact = Runtime.transact
    done = []

    async def beside(runtime: Runtime, when: object, then: object, what: str) -> bool:
        if what.startswith("moving") and not done:
            done.append(log.truncate(10))
        return await transact(runtime, when, then, what)  # type: ignore[arg-type]

    monkeypatch.setattr(Runtime, "transact", beside)
    with pytest.raises(Truncated):
        billing.set(4)
    assert done[0].reached == 10 and billing.get().offset == 15


def test_a_cursor_that_is_named_and_stands_nowhere_stops_truncation_and_nothing_else(
    cluster: Cluster,
) -> None:
    """P2.5: every client may write the key; what cannot be read is not judged."""
    fill(cluster)
    log = cluster.client("a").log(NAME)
    named = LogCursors(METADATA_VERSION, (NamedCursor("ghost", CursorHold.HOLDS),))
    put(cluster, log_cursors_path(NAME), encode_log_cursors(named))
    with pytest.raises(StorageError, match="'ghost' stands nowhere"):
        log.truncate(4)
    put(cluster, cursor_path(NAME, "ghost"), b"what is this")
    with pytest.raises(StorageError):
        log.truncate(4)
    assert first_offset(cluster) == 0
    assert [entry.offset for entry in log.read(0, 3)] == [0, 1, 2]
    assert log.cursor("ghost").delete() and log.truncate(4).reached == 4


def test_a_consumer_goes_on_behind_what_was_committed(cluster: Cluster) -> None:
    """ "goes on behind what was committed, commits what was left behind by the loop"; the one that the loop was at when
    it was left comes again: at least once."""
    fill(cluster)
    log = cluster.client("a").log(NAME)
    with log.cursor("billing").consume(idle_s=0.5) as entries:
        assert (entries.position, entries.committed) == (0, 0)
        assert took(entries, 5) == [0, 1, 2, 3, 4]
        assert entries.position == 5
        assert took(entries, 3) == [5, 6, 7], "a second loop begins with what the first one was at"
    state = log.cursor("billing").get()
    assert (state.offset, state.epoch) == (8, entries.epoch) and state.holds
    with cluster.client("b").log(NAME).cursor("billing").consume(idle_s=0.5) as others:
        assert [entry.offset for entry in others] == list(range(8, 24))
        assert others.epoch > entries.epoch
    assert log.cursor("billing").get().offset == 24
    with pytest.raises(UsageError, match="entered once"), others:
        pass


def test_an_exception_commits_nothing_more(cluster: Cluster) -> None:
    fill(cluster)
    log = cluster.client("a").log(NAME)

    def fails() -> None:
        with log.cursor("c").consume(commit_s=math.inf) as entries:
            took(entries, 4)
            assert entries.commit()
            took(entries, 4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert log.cursor("c").get().offset == 4
    with log.cursor("c").consume(timeout_s=1.0) as entries:
        assert took(entries, 1) == [4]


def test_what_was_consumed_is_committed_while_the_loop_waits(cluster: Cluster) -> None:
    """So that a consumer which is done holds nothing, and its lag says so."""
    fill(cluster, 3)
    log = cluster.client("a").log(NAME)
    with log.cursor("c").consume(commit_s=2.0, idle_s=10.0) as entries:
        began_s = cluster.now_s
        for entry in entries:
            assert cluster.now_s < began_s + 1.5 and entries.committed == 0, entry
        assert entries.committed == 6
        assert cluster.client("b").log(NAME).cursor("c").get().offset == 6
    with log.cursor("d").consume(commit_s=0, idle_s=0.5) as entries:
        for entry in entries:
            assert log.cursor("d").get().offset == entry.offset


def test_a_consumer_obeys_a_cursor_that_another_moves(cluster: Cluster) -> None:
    """iggy 1435: "a consumer that runs obeys a cursor moved by another hand", at an entry and while it waits."""
    fill(cluster)
    log, other = cluster.client("a").log(NAME), cluster.client("b").log(NAME)
    seen = []
    with log.cursor("c").consume(idle_s=3.0) as entries:
        for entry in entries:
            seen.append(entry.offset)
            if seen == [0, 1, 2]:
                other.cursor("c").set(20)
                cluster.run_for(0.2)
            if entry.offset == 23 and seen.count(23) == 1:
                cluster.world.after(500_000_000, lambda: spawn_set(cluster, 22))
        assert seen == [0, 1, 2, 20, 21, 22, 23, 22, 23]
    assert other.cursor("c").get().offset == 24


def spawn_set(cluster: Cluster, offset: int) -> None:
    """From another process, while the consumer waits."""
    runtime = cluster.client("b")._runtime
    cursoring = Cursoring(LogReading(runtime, NAME, Password(b"")), "c", True, None, None)
    cluster.world.spawn("b", awaited(runtime, cursoring.set(offset, None)))


def test_a_commit_that_meets_a_move_is_not_made(cluster: Cluster) -> None:
    """The commit compares the cursor as it was last seen: what somebody put it to is never written over."""
    fill(cluster)
    log = cluster.client("a").log(NAME)
    with log.cursor("c").consume(commit_s=math.inf, idle_s=1.0) as entries:
        took(entries, 6)
        cluster.partition(["a"], ["metadata"])
        cluster.client("b").log(NAME).cursor("c").set(2)
        cluster.heal()
        assert not entries.commit() and entries.position == 2
        assert took(entries, 2) == [2, 3]
    assert log.cursor("c").get().offset == 4


@pytest.mark.parametrize("place", [0, 20])
def test_a_commit_in_the_loop_that_meets_a_move_goes_on_there(cluster: Cluster, place: int) -> None:
    """What the loop was at counts for nothing then: else it is committed in the place of the move (P8.8)."""
    with cluster.client("a").log(NAME).writer() as writer:
        writer.append_many([b"x"] * 24)
    log, other = cluster.client("a").log(NAME), cluster.client("b").log(NAME)
    seen: list[int] = []
    with log.cursor("c").consume(commit_s=math.inf, idle_s=1.0) as entries:
        for entry in entries:
            seen.append(entry.offset)
            if seen == [0, 1, 2]:
                other.cursor("c").set(place)
                assert not entries.commit() and entries.position == place
            if len(seen) == 6:
                break
        assert entries.position == place + 2
    assert seen == [0, 1, 2, place, place + 1, place + 2]
    assert other.cursor("c").get().offset == place + 2


def test_one_consumer_at_a_time_and_one_that_died_frees_it(cluster: Cluster) -> None:
    """ "leased to one consumer at a time by epoch"; "a consumer that died frees the lease with its session"."""
    fill(cluster)
    log = cluster.client("a").log(NAME)
    first = log.cursor("c").consume(commit_s=math.inf)
    first.__enter__()
    took(first, 3)
    first.commit()
    took(first, 3)
    with pytest.raises(UsageError, match="consumed by this client already"):
        log.cursor("c").consume().__enter__()
    other = cluster.client("b").log(NAME)
    with pytest.raises(OperationTimeout, match="consumed by another for more than 1 s") as told:
        other.cursor("c").consume(timeout_s=1.0).__enter__()
    assert told.value.definite
    cluster.crash("a")
    with other.cursor("c").consume() as entries:
        assert entries.epoch > first.epoch
        assert took(entries, 2) == [3, 4]


def test_a_consumer_that_slept_commits_nothing_and_is_told(cluster: Cluster) -> None:
    """Two consumers never both commit under one epoch: the commit compares the lease."""
    fill(cluster)
    log = cluster.client("a").log(NAME)
    sleeper = log.cursor("c").consume(commit_s=math.inf)
    sleeper.__enter__()
    took(sleeper, 3)
    cluster.pause("a")
    with cluster.client("b").log(NAME).cursor("c").consume(commit_s=math.inf) as entries:
        assert took(entries, 2) == [0, 1]
        assert entries.commit()
        cluster.resume("a")
        with pytest.raises(CursorLost):
            sleeper.commit()
        with pytest.raises(CursorLost):
            next(iter(sleeper))
    with pytest.raises(CursorLost):
        sleeper.__exit__(None, None, None)
    assert log.cursor("c").get()[1:4:2] == (2, entries.epoch)


def test_a_cursor_that_goes_under_its_consumer_is_said(cluster: Cluster) -> None:
    fill(cluster)
    log = cluster.client("a").log(NAME)
    other = cluster.client("b").log(NAME)
    entries = log.cursor("c").consume().__enter__()
    took(entries, 2)
    assert other.cursor("c").delete()
    cluster.run_for(0.2)
    with pytest.raises(NoSuchCursor):
        took(entries, 2)
    entries = log.cursor("d").consume(commit_s=math.inf).__enter__()
    took(entries, 2)
    cluster.partition(["a"], ["metadata"])
    assert other.cursor("d").delete()
    cluster.heal()
    with pytest.raises(NoSuchCursor):
        entries.commit()
    entries = log.cursor("e", holds=False).consume().__enter__()
    took(entries, 2)
    log.truncate(20)
    entries.commit()
    with pytest.raises(Truncated) as told:
        took(entries, 23)
    assert told.value.first_offset == 20


def test_lag_is_told_in_entries_and_bytes(cluster: Cluster) -> None:
    fill(cluster, 5)  # Offsets 0 to 9, a byte in each.
    log = cluster.client("a").log(NAME)
    log.cursor("old").set(0)
    log.cursor("mid").set(5)
    with cluster.client("w2").log(NAME).writer(roll=Roll(bytes=None)) as writer:
        writer.append(b"x" * 100)
        writer.append(b"y" * 100)
        cluster.run_for(0.5)
        with cluster.client("b").log(NAME).cursor("new", holds=False).consume(idle_s=0.5) as entries:
            took(entries, 11)
            entries.commit()
            told = log.cursors()
    assert [(each.name, each.lag_entries, each.lag_bytes) for each in told] == [
        ("mid", 7, 205),
        ("new", 1, 100),
        ("old", 12, 210),
    ]
    assert [each.consumer for each in told] == ["", "b", ""]
    assert [each.holds for each in told] == [True, False, True]
    cluster.crash("b2")
    cluster.crash("b3")
    assert log.cursors()[0].name == "mid"


def test_lag_is_told_in_time(cluster: Cluster) -> None:
    """P8.8, P8.11: for how long the oldest entry has been there that was not consumed; what was truncated in front of a
    cursor counts no more, and what no copy tells is not known, which is not 0."""
    log = cluster.client("a").log(NAME)
    for payload in (b"zero", b"one", b"two"):
        with cluster.client("w").log(NAME).writer() as writer:
            writer.append(payload)
        cluster.run_for(20)
    for name, offset in (("all", 3), ("last", 2), ("middle", 1)):
        log.cursor(name).set(offset)
    log.cursor("first", holds=False).set(0)

    def lags() -> dict[str, int | None]:
        told = {each.name: each.lag_s for each in log.cursors()}
        # The writer's clock is up to two seconds off.
        return {name: lag_s and round(lag_s / 10) * 10 for name, lag_s in told.items()}

    assert lags() == {"all": 0.0, "first": 60, "last": 20, "middle": 40}
    log.truncate(1)
    assert lags() == {"all": 0.0, "first": 40, "last": 20, "middle": 40}
    for name in ("b1", "b2", "b3"):
        cluster.crash(name)
    assert lags() == {"all": 0.0, "first": None, "last": None, "middle": None}


def test_below_the_level_nothing_is_written(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.8: "Until then the build before can come back", which truncates past cursors."""
    fill(cluster, 3)
    log = cluster.client("a").log(NAME)
    monkeypatch.setattr(Runtime, "has_level", lambda self, level: level < 6)
    for refused in (
        log.cursor("c").set,
        log.cursor("c").delete,
        lambda: log.cursor("c").consume().__enter__(),
    ):
        with pytest.raises(UsageError, match="level is below 6"):
            refused()
    assert cluster.world.committed("/log-cursors/") == {}
    assert log.cursors() == []


def test_positions_are_ordered_by_offset(cluster: Cluster) -> None:
    """I93: a place is an offset; of a position whose ledger was truncated the cursor says so."""
    positions = fill(cluster)
    log = cluster.client("a").log(NAME)
    assert log.cursor("c").set(Position(positions[6].ledger_id, 1)).offset == 7
    log.truncate(7)
    with pytest.raises(Truncated):
        log.cursor("d").set(positions[2])


def test_names_of_cursors_are_kept_with_the_log() -> None:
    with Cluster(seed=4, bookies=3) as cluster:
        fill(cluster, 2)
        cluster.client("a").log(NAME).cursor("c", ends_after_s=2.5, ends_behind_bytes=7).set()
        value = cluster.world.committed("/logs/")[log_cursors_path(id_of(cluster, NAME))]
        assert decode_log_cursors(value).cursors == (NamedCursor("c", CursorHold.HOLDS, 2500, 7),)
        assert cluster.client("b").logs() == [NAME]
