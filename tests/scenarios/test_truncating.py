"""Truncating logs at the face (P8.3, P8.8): what goes and what holds it; pins, readers and writers beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from embedbk import Position, Roll
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import (
    LogList,
    LogSegment,
    decode_ledgers_left,
    decode_log_list,
    ledger_key_path,
    log_key_path,
    log_truncated_path,
)
from embedbk.codec.log_pins import PINS_MAX, LogPins, PinRecord, encode_log_pins, log_pins_path
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.config import METADATA_VALUE_BYTES_MAX
from embedbk.core.truncating import LogTruncating
from embedbk.core.truncation import Terms
from embedbk.errors import (
    NoSuchLedger,
    NotTruncated,
    Truncated,
    UsageError,
    WrongPassword,
)
from embedbk.testing import Cluster
from tests.scenarios.carried import carry_over, end_log, keys_left

NAME = "one"


@pytest.fixture(params=[4, 256], ids=["pages", "no pages"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(seed=83, bookies=3) as cluster:
        cluster.world.page_ledgers = request.param
        carry_over(cluster.client("carrier"), NAME)
        yield cluster


def fill(
    cluster: Cluster, ledgers: int = 12, first: int = 0, *, name: str = "w", pause_s: float = 0.0
) -> list[Position]:
    """Two entries in each ledger, by a writer that rolls; their positions."""
    positions = []
    with cluster.client(name).log(NAME).writer(roll=Roll(bytes=None)) as writer:
        for number in range(first, first + ledgers):
            positions += [writer.append(b"%d" % (2 * number)), writer.append(b"%d" % (2 * number + 1))]
            cluster.run_for(pause_s)
            if number + 1 < first + ledgers:
                writer.roll()
    return positions


def listed(cluster: Cluster) -> LogList:
    return decode_log_list(cluster.world.committed("/logs/")[log_key_path(NAME)])


def left(cluster: Cluster) -> tuple[int, ...]:
    value = cluster.world.committed("/logs/").get(log_truncated_path(NAME))
    return () if value is None else decode_ledgers_left(value).ledger_ids


def there(cluster: Cluster, positions: list[Position]) -> list[int]:
    """Of these ledgers those that are there."""
    ledgers = cluster.world.committed("/ledgers/")
    ids = list(dict.fromkeys(position.ledger_id for position in positions))
    return [number for number, ledger_id in enumerate(ids) if ledger_key_path(ledger_id) in ledgers]


def test_whole_ledgers_before_a_place_go_and_offsets_stay(cluster: Cluster) -> None:
    """P8.3, I93, I96: "from the front, only CLOSED ledgers, never the last"; the rest is where it was."""
    positions = fill(cluster)
    client = cluster.client("another")
    log = client.log(NAME)
    done = log.truncate(positions[7])
    assert done == (7, 0, 6, 3, "reached", "", done.why, "", ())
    assert there(cluster, positions) == list(range(3, 12))
    assert left(cluster) == ()
    assert [each.ledger_id for each in client.deleted_ledgers()] == [p.ledger_id for p in positions[:6:2]]
    assert [(entry.offset, entry.position) for entry in log.read()] == list(enumerate(positions))[6:]
    assert [entry.offset for entry in log.read(6, 8)] == [6, 7]
    for start in (5, positions[5], positions[0]):
        with pytest.raises(Truncated, match="below its start, offset 6") as told:
            list(log.read(start))
        assert told.value.first_offset == 6
    assert log.truncate(20).reached == 20
    assert fill(cluster, 2, 12, name="next")[0].ledger_id > positions[-1].ledger_id
    assert [entry.offset for entry in log.read()] == list(range(20, 28))
    assert listed(cluster).first_offset == 20


@pytest.mark.parametrize("way", ["read", "read from 0", "in bulk", "asked for too late"])
def test_a_reader_from_the_start_begins_where_the_log_begins_by_then(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """P8.3: who asks for the start of a log asks for no offset; its front may go between a look at the list and the
    first ledger. Behind an entry, and from an offset, it is `Truncated`, as what comes next is missing."""
    fill(cluster)
    log, other = cluster.client("reader").log(NAME), cluster.client("another").log(NAME)
    right, places = LogReading.open_ledger, [20, 8]

    async def late(self: LogReading, segment: LogSegment, first: int = 0) -> Any:
        if places and (way != "asked for too late" or segment.first_offset == 4):
            other.truncate(places.pop())
        return await right(self, segment, first)

    monkeypatch.setattr(LogReading, "open_ledger", late)
    if way in ("read from 0", "asked for too late"):
        with pytest.raises(Truncated) as gone:
            list(log.read(0 if way == "read from 0" else None))
        assert gone.value.first_offset == 8
        return
    if way == "read":
        found = [entry.offset for entry in log.read()]
    else:
        with log.reader() as reader:
            bulks = [reader.read_bulk(100, wait_s=1.0) for _ in range(4)]
            batches = [batch for bulk in bulks for batch in bulk.batches]
            found = [batch.first_offset + each for batch in batches for each in batch.ids]
    assert found == list(range(20, 24))


def test_a_ledger_that_the_list_names_and_that_is_gone_is_told_at_once(cluster: Cluster) -> None:
    """P8.3: the log begins nowhere else, however long anybody waits for that."""
    positions = fill(cluster)
    gone = [Delete(ledger_key_path(positions[0].ledger_id))]
    run_blocking(cluster.client("another")._runtime.transact([], gone, "a stranger"), "")
    log = cluster.client("reader").log(NAME)
    begun_ns = cluster.world.now_ns
    with pytest.raises(Truncated, match="of its list was deleted"):
        list(log.read())
    with log.reader() as reader, pytest.raises(Truncated, match="of its list was deleted"):
        reader.read_bulk(100)
    assert cluster.world.now_ns - begun_ns < 5 * 10**9


def test_the_last_ledger_and_an_open_one_stay(cluster: Cluster) -> None:
    """P8.3: "never the last"; P8.8: it tells what held it."""
    positions = fill(cluster, 6)
    log = cluster.client("another").log(NAME)
    done = log.truncate(1000)
    assert (done.reached, done.ledgers, done.held_by) == (10, 5, "last")
    assert there(cluster, positions) == [5]
    with pytest.raises(
        NotTruncated, match="still begins at offset 10: the next ledger is the last one"
    ) as told:
        log.truncate(1000)
    assert told.value.definite and told.value.truncation.held_by == "last"
    assert log.truncate(1000, may_do_nothing=True).ledgers == 0
    with pytest.raises(NotTruncated, match="a ledger goes whole"):
        log.truncate(positions[-2])
    with cluster.client("w2").log(NAME).writer() as writer:
        assert writer.first_offset == 12
        assert log.truncate(12).reached == 12  # Of a log whose only other ledger is empty and open.
        assert writer.append(b"12").entry_id == 0
    assert [bytes(entry) for entry in log.read()] == [b"12"]
    assert cluster.client("w3").log(NAME).writer().first_offset == 13


def test_what_an_owner_is_about_to_leave_is_open(cluster: Cluster) -> None:
    """P8.3: a ledger that its owner has left and not recorded as closed yet is not judged by the next one."""
    with cluster.client("w").log(NAME).writer(roll=Roll(bytes=None, entries=100)) as writer:
        writer.append_many([b"x"] * 85)  # The next one is prepared at four fifths; no jitter is so large.
        cluster.run_for(0.5)
        assert len(listed(cluster).segments) == 2
        with pytest.raises(NotTruncated, match="not recorded as closed") as told:
            cluster.client("another").log(NAME).truncate(100)
        assert told.value.truncation.held_by == "open"


def test_a_pin_holds_everybody_and_goes_by_its_name_or_time(cluster: Cluster) -> None:
    """P8.8: "below which nothing is truncated; it expires by name"."""
    positions = fill(cluster)
    holder, other = cluster.client("holder").log(NAME), cluster.client("other").log(NAME)
    first = holder.pin("batch", positions[5], ttl_s=60.0)
    assert (first.name, first.offset) == ("batch", 5)
    done = other.truncate(20)
    assert (done.reached, done.held_by, done.pin) == (4, "pin", "batch")
    assert [entry.offset for entry in holder.read(5, 8)] == [5, 6, 7]
    with pytest.raises(NotTruncated, match="pin 'batch' holds") as told:
        other.truncate(20)
    assert "unpin" in (told.value.hint or "")
    second = holder.pin("batch", 9, ttl_s=60.0)
    assert second.epoch > first.epoch and holder.pins() == [second]
    assert other.pin("copy", ttl_s=5.0).offset == 4
    assert other.unpin("batch") and not other.unpin("batch")
    cluster.run_for(6.0)
    done = other.truncate(20)
    assert (done.reached, done.held_by) == (20, "reached")
    assert other.pins() == []
    with pytest.raises(Truncated, match="offset 5 is below its start, 20") as late:
        holder.pin("late", 5)
    assert late.value.first_offset == 20


def test_a_log_has_a_bounded_number_of_pins(cluster: Cluster) -> None:
    """BOUNDS.md: one more is refused, and what is there may still be moved."""
    fill(cluster, 3)
    log, runtime = cluster.client("holder").log(NAME), cluster.client("holder")._runtime
    many = tuple(PinRecord(f"pin-{number:04d}-{'x' * 118}", 0, number, 1 << 62) for number in range(PINS_MAX))
    value = encode_log_pins(LogPins(1, many))
    assert len(value) < METADATA_VALUE_BYTES_MAX

    async def put() -> None:
        await runtime.transact([], [Put(log_pins_path(NAME), value)], "a test")

    run_blocking(put(), "nothing")
    with pytest.raises(UsageError, match="has 1000 pins, and may have 1000"):
        log.pin("one-more")
    assert log.pin(many[0].name, 2).offset == 2
    assert len(log.pins()) == PINS_MAX


def test_a_pin_that_is_made_beside_a_truncation_holds_it_or_comes_too_late(cluster: Cluster) -> None:
    """P8.8: both compare what the other changes, so that in either order one of them sees the other."""
    positions = fill(cluster, 8)
    holder, verifier = cluster.client("holder").log(NAME), Password(b"").verifier
    transact, begun = Runtime.transact, list[Any]()

    async def with_a_truncation(self: Runtime, when: Any, then: Any, what: str) -> bool:
        if "pins" in what and not begun:
            begun.append(cluster.world.start("other", LogTruncating(NAME, Terms(10), verifier, 0, 1000)))
            cluster.run_for(1.0)
            assert begun[0].future.done()
        return await transact(self, when, then, what)

    cluster.client("other")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "transact", with_a_truncation)
        with pytest.raises(Truncated, match="below its start"):
            holder.pin("late", positions[3])
    assert holder.pins() == []


def test_by_time_and_by_size(cluster: Cluster) -> None:
    """P8.8: by what the list says of when its ledgers were begun and how many bytes they have; all must allow."""
    fill(cluster, 12, pause_s=1.0)  # A second between ledgers; 2 to 4 bytes in each.
    log = cluster.client("another").log(NAME)
    with pytest.raises(NotTruncated):
        log.truncate(older_than_s=30)
    done = log.truncate(older_than_s=5.5)
    assert 8 <= done.reached <= 14
    before = done.reached
    with pytest.raises(NotTruncated, match="entries that are to stay"):
        log.truncate(1000, older_than_s=30)
    size = sum(len(bytes(entry)) for entry in log.read())
    last = sum(len(bytes(entry)) for entry in log.read(22))
    done = log.truncate(keep_bytes=4)
    assert done.reached > before
    kept = sum(len(bytes(entry)) for entry in log.read(done.reached, 22))
    assert size - last >= kept >= 4 or done.held_by == "last"
    for wrong in (
        {}, {"keep_bytes": -1}, {"older_than_s": True}, {"before": -1}, {"before": "all"},
        {"older_than_s": math.nan}, {"older_than_s": math.inf}, {"keep_bytes": math.nan},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            log.truncate(**wrong)  # type: ignore[arg-type]


def test_bad_input_changes_nothing(cluster: Cluster) -> None:
    fill(cluster, 3)
    before = cluster.world.committed("/")
    with pytest.raises(WrongPassword, match="nothing was changed"):
        cluster.client("another").log(NAME, password=b"sesame").truncate(4)
    with pytest.raises(NoSuchLedger, match="no log 'two'"):
        cluster.client("another").log("two").truncate(4)
    with pytest.raises(NoSuchLedger, match="no log 'two'"):
        cluster.client("another").log("two").pin("a")
    for name, ttl_s in (("", 1.0), ("a b", 1.0), ("a", 0.0), ("a", True)):
        with pytest.raises(UsageError):
            cluster.client("another").log(NAME).pin(name, ttl_s=ttl_s)
    after = {
        key: value for key, value in cluster.world.committed("/").items() if key.startswith(("/logs", "/led"))
    }
    assert after == {key: value for key, value in before.items() if key.startswith(("/logs", "/led"))}


@pytest.mark.parametrize("stops", [1, 2, 3])
def test_what_a_crash_leaves_between_is_deleted_by_the_next_takeover(cluster: Cluster, stops: int) -> None:
    """P8.3: "CAS the list, then delete"; a crash in between leaves ledgers, never a list that names a missing one."""
    positions = fill(cluster, 40)
    runtime: Any = cluster.client("truncator")._runtime
    core = LogTruncating(NAME, Terms(70), Password(b"").verifier, runtime.wall_ms(), 1000)
    step, count = core.step, [0]

    def dies(event: Any) -> Any:
        effects = step(event)
        count[0] += sum(type(effect).__name__ == "Transact" for effect in effects)
        return [] if count[0] > stops else effects

    core.step = dies  # type: ignore[method-assign]
    cluster.world.start("truncator", core)
    cluster.run_for(2.0)
    gone = [number for number in range(40) if number not in there(cluster, positions)]
    begins = listed(cluster).first_offset // 2
    assert 0 < begins <= 35 and gone == list(range(len(gone))) and len(gone) <= begins
    assert bool(left(cluster)) == (len(gone) < begins)
    with cluster.client("next").log(NAME).writer() as writer:
        assert writer.first_offset == 80
        cluster.run_for(2.0)
    assert left(cluster) == ()
    assert there(cluster, positions) == list(range(begins, 40))


def test_readers_ahead_survive_and_those_behind_are_told(cluster: Cluster) -> None:
    """I96, I97: "a reader below the new start gets truncated, not silence and not other data"."""
    fill(cluster)
    log = cluster.client("reader").log(NAME)
    ahead, behind, tail = log.read(15), log.read(), log.tail(9, idle_s=2.0)
    tail_behind = log.tail(0, idle_s=2.0)
    assert next(ahead).offset == 15
    assert [next(behind).offset for _ in range(4)] == [0, 1, 2, 3]
    assert [next(tail_behind).offset for _ in range(4)] == [0, 1, 2, 3]
    assert next(tail).offset == 9
    assert cluster.client("another").log(NAME).truncate(15).reached == 14
    assert [entry.offset for entry in ahead] == list(range(16, 24))
    for reading in (behind, tail_behind):
        with pytest.raises(Truncated) as told:
            list(reading)
        assert told.value.first_offset == 14
    with pytest.raises(Truncated):
        list(tail)


@pytest.mark.parametrize("first", [23, 24, 25])
@pytest.mark.parametrize("way", ["read", "tail", "in bulk"])
def test_who_begins_behind_what_is_truncated_misses_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, way: str, first: int
) -> None:
    """I97: at the end of the log a reader stands in the last ledger, with an entry that it does not have. When that
    ledger goes before it is opened, nothing is missing of what the reader wants (seed 40020100)."""
    fill(cluster)
    log, other = cluster.client("reader").log(NAME), cluster.client("another").log(NAME)
    right, places = LogReading.open_ledger, [24]

    async def late(self: LogReading, segment: LogSegment, first: int = 0) -> Any:
        if places:
            place = places.pop()
            fill(cluster, 2, 12, name="next")
            other.truncate(place)
        return await right(self, segment, first)

    monkeypatch.setattr(LogReading, "open_ledger", late)

    def found() -> list[int]:
        if way != "in bulk":
            return [
                entry.offset for entry in (log.read(first) if way == "read" else log.tail(first, idle_s=1.0))
            ]
        with log.reader(first) as reader:
            return [
                batch.first_offset + each
                for batch in reader.read_bulk(100, wait_s=1.0).batches
                for each in batch.ids
            ]

    if first < 24:
        with pytest.raises(Truncated):
            found()
    else:  # A read ends where the log ended when it looked at the list.
        assert found() == ([] if way == "read" else list(range(first, 28)))


def test_an_owner_goes_on_beside_it(cluster: Cluster) -> None:
    """P8.3: whoever truncates takes nothing from whoever writes: its rolls find the list changed, and go on."""
    log = cluster.client("another").log(NAME)
    with cluster.client("w").log(NAME).writer(roll=Roll(bytes=None)) as writer:
        for number in range(20):
            writer.append(b"%d" % number)
            writer.roll()
            cluster.run_for(0.2)
            if number > 3:
                assert log.truncate(number - 2).reached == number - 2
        assert writer.append(b"20").entry_id == 0
        epoch = writer.epoch
    assert [bytes(entry) for entry in log.read()] == [b"%d" % number for number in range(17, 21)]
    assert listed(cluster).epoch == epoch


def test_a_truncated_ledger_is_not_named_and_may_be_brought_back_by_itself(cluster: Cluster) -> None:
    """CL31: within the grace it can be read again by its id; the log begins where it began."""
    positions = fill(cluster, 6)
    client = cluster.client("another")
    client.log(NAME).truncate(6)
    client.undelete_ledger(positions[2].ledger_id)
    assert [bytes(entry) for entry in client.open_ledger(positions[2].ledger_id).read()] == [b"2", b"3"]
    assert [entry.offset for entry in client.log(NAME).read()] == list(range(6, 12))
    with pytest.raises(Truncated):
        list(client.log(NAME).read(positions[2]))
    client.delete_ledger(positions[2].ledger_id)
    end_log(client, NAME)
    assert keys_left(cluster) == set()
    assert client.ledgers() == []


def test_below_its_level_nothing_is_truncated_or_pinned() -> None:
    """P10.8: what only later builds can read is not written."""
    with Cluster(seed=83, bookies=3) as cluster, pytest.MonkeyPatch.context() as patch:
        fill(cluster, 3)
        patch.setattr(Runtime, "has_level", lambda self, level: level < 5)
        log = cluster.client("another").log(NAME)
        for act in (lambda: log.truncate(2), lambda: log.pin("a"), lambda: log.unpin("a")):
            with pytest.raises(UsageError, match="level is below 5"):
                act()
