"""Reading a log in bulk (CL22, LG24): what a call gives, waits for and leaves to the next; ledgers and gaps (I97)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import embedbk
from embedbk import Position, Roll
from embedbk.client.batches import Batch
from embedbk.client.bulk import Bulk
from embedbk.testing import Cluster

SECOND = 1_000_000_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=22, bookies=3) as cluster:
        yield cluster


def payloads(bulk: Bulk) -> list[bytes]:
    """By row: an atomic batch has several."""
    return [
        bytes(batch.data[batch.ends[i] : batch.ends[i + 1]])
        for batch in bulk.batches
        for i in range(len(batch.ids))
    ]


def offsets(bulk: Bulk) -> list[int]:
    return [batch.first_offset + entry_id for batch in bulk.batches for entry_id in batch.ids]


def read_on(reader: embedbk.LogReader, seen: list[bytes]) -> None:
    while bulk := reader.read_bulk(2, wait_s=1):
        seen += payloads(bulk)


def fill(cluster: Cluster, ledgers: int = 4, entries: int = 5, *, client: str = "w") -> list[bytes]:
    given = [b"%d" % number for number in range(ledgers * entries)]
    with cluster.log("one", client=client).writer(roll=Roll(bytes=None)) as writer:
        for begin in range(0, len(given), entries):
            writer.append_many(given[begin : begin + entries])
            if begin + entries < len(given):
                writer.roll()
    return given


def test_one_call_gives_what_is_there_across_ledgers(cluster: Cluster) -> None:
    """CL22, LG24: as much as there is at once, in runs of one ledger each; the next call goes on behind it."""
    given = fill(cluster)
    with cluster.log("one", client="reader").reader() as reader:
        assert reader.next_offset is None
        bulk = reader.read_bulk()
        assert payloads(bulk) == given
        assert offsets(bulk) == list(range(20))
        assert len({batch.ledger_id for batch in bulk.batches}) == 4
        assert (len(bulk), bulk.byte_count, bulk.next_offset) == (20, sum(map(len, given)), 20)
        assert not reader.read_bulk()
        assert reader.next_offset == 20


@pytest.mark.parametrize("max_entries", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("max_bytes", [1, 2, 5, 1000])
def test_bounds_are_kept_and_nothing_is_left_out(cluster: Cluster, max_entries: int, max_bytes: int) -> None:
    """CL22: "may return fewer, never gaps; ... first entry is returned even if larger"."""
    given = fill(cluster)
    seen: list[bytes] = []
    reader = cluster.log("one", client="reader").reader(0)
    while bulk := reader.read_bulk(max_entries, max_bytes):
        assert len(bulk) <= max_entries
        assert bulk.byte_count <= max_bytes or len(bulk) == 1
        seen += payloads(bulk)
        assert reader.next_offset == bulk.next_offset == len(seen)
    assert seen == given


def test_an_atomic_batch_is_given_whole(cluster: Cluster) -> None:
    """An entry with parts is one entry, be it larger than the bound: half of it is given to nobody."""
    with cluster.log("one", client="w").writer() as writer:
        writer.append(b"a")
        writer.append_batch([b"b" * 10, b"", b"c" * 10])
        writer.append(b"d")
    reader = cluster.log("one", client="reader").reader()
    assert payloads(reader.read_bulk(max_bytes=5)) == [b"a"]
    bulk = reader.read_bulk(max_bytes=5)
    assert (payloads(bulk), len(bulk), offsets(bulk)) == ([b"b" * 10, b"", b"c" * 10], 1, [1, 1, 1])
    assert payloads(reader.read_bulk(max_bytes=5)) == [b"d"]
    reader.seek(0)
    assert payloads(reader.read_bulk(max_bytes=11)) == [b"a"]
    reader.seek(0)
    assert len(payloads(reader.read_bulk(2))) == 4


def test_it_waits_for_the_first_and_takes_what_comes_with_it(cluster: Cluster) -> None:
    """LG24: "bulk waits up to T for N records": for one, unless more are asked for."""
    writer = cluster.log("one", client="w").writer()
    reader = cluster.log("one", client="reader").reader()
    began_s = cluster.now_s
    assert not reader.read_bulk(wait_s=2)
    assert 2 <= cluster.now_s - began_s < 2.5
    for number in range(4):
        cluster.world.after((number + 1) * SECOND, lambda number=number: writer.append_nowait(b"%d" % number))
    began_s = cluster.now_s
    assert payloads(reader.read_bulk(wait_s=60)) == [b"0"]
    assert cluster.now_s - began_s < 2
    assert payloads(reader.read_bulk(wait_s=60, min_entries=2)) == [b"1", b"2"]
    began_s = cluster.now_s
    assert payloads(reader.read_bulk(wait_s=5, min_entries=2)) == [b"3"]  # As many as came in time.
    assert 5 <= cluster.now_s - began_s < 6
    cluster.world.after(SECOND, lambda: writer.append_nowait(b"last"))
    assert payloads(reader.read_bulk(1, wait_s=None, min_entries=9)) == [b"last"]


def test_without_waiting_it_asks_for_what_is_new(cluster: Cluster) -> None:
    """P6.2: a call that does not wait asks the bookies: what was acknowledged to a writer elsewhere is given."""
    writer = cluster.log("one", client="w").writer()
    reader = cluster.log("one", client="reader").reader()
    for number in range(5):
        writer.append(b"%d" % number)
        cluster.run_for(1)
        assert payloads(reader.read_bulk()) == [b"%d" % number]
        assert not reader.read_bulk()


def test_it_begins_before_the_log_does(cluster: Cluster) -> None:
    """Nothing is there yet: no error, whoever comes first."""
    reader = cluster.log("one", client="reader").reader()
    assert not reader.read_bulk()
    assert not reader.read_bulk(wait_s=1)
    given = fill(cluster)
    assert payloads(reader.read_bulk(wait_s=1)) == given


@pytest.mark.parametrize("wait_s", [0.0, 1.0])
def test_latest_gives_what_comes_from_the_first_call_on(cluster: Cluster, wait_s: float) -> None:
    """Also when that call gave nothing, and whatever ended it."""
    fill(cluster)
    reader = cluster.log("one", client="reader").reader("latest")
    assert not reader.read_bulk(wait_s=wait_s)
    assert reader.next_offset == 20
    with cluster.log("one", client="w").writer() as writer:
        writer.append(b"new")
    cluster.run_for(1)
    bulk = reader.read_bulk(wait_s=wait_s)
    assert (payloads(bulk), offsets(bulk)) == ([b"new"], [20])


def test_a_place_may_be_a_position_or_still_ahead(cluster: Cluster) -> None:
    given = fill(cluster)
    log = cluster.log("one", client="reader")
    third = log.segments()[2].ledger_id
    reader = log.reader(Position(third, 3))
    assert payloads(reader.read_bulk(2)) == given[13:15]
    assert offsets(reader.read_bulk(1)) == [15]
    reader.seek(23)
    assert (bool(reader.read_bulk()), reader.next_offset) == (False, 23)
    with cluster.log("one", client="w").writer() as writer:
        writer.append_many([b"%d" % number for number in range(20, 26)])
    cluster.run_for(1)
    assert payloads(reader.read_bulk(wait_s=1)) == [b"23", b"24", b"25"]
    reader.seek("earliest")
    assert payloads(reader.read_bulk(1)) == given[:1]


def test_it_goes_on_through_rolls_takeovers_and_recovery(cluster: Cluster) -> None:
    """P6.6, I97: every entry once, in order, while ledgers end under it."""
    reader = cluster.log("one", client="reader").reader()
    seen: list[bytes] = []
    given: list[bytes] = []
    for turn in range(4):
        writer = cluster.log("one", client=f"w{turn}").writer(
            roll=Roll(bytes=None)
        )  # The one before is recovered.
        for _ in range(3):
            given += (run := [b"%d" % (len(given) + number) for number in range(4)])
            writer.append_many(run)
            seen += payloads(reader.read_bulk(3, wait_s=1))
            writer.roll()
    while bulk := reader.read_bulk(5, wait_s=2):
        seen += payloads(bulk)
    assert seen == given


def test_what_was_truncated_in_front_of_it_is_a_typed_gap(cluster: Cluster) -> None:
    """P6.6, LG28: `Truncated` with the offset where the log begins now; behind it nothing is missing."""
    given = fill(cluster)
    log = cluster.log("one", client="reader")
    behind, in_front = log.reader(), log.reader()
    assert payloads(behind.read_bulk(2)) == given[:2]
    assert payloads(in_front.read_bulk(12)) == given[:12]
    cluster.log("one", client="w").truncate(10)
    cluster.run_for(5)
    seen: list[bytes] = []
    with pytest.raises(embedbk.Truncated) as gone:
        read_on(behind, seen)  # What it had read ahead it may give.
    assert seen == given[2 : 2 + len(seen)]
    with pytest.raises(embedbk.Truncated):
        behind.read_bulk()  # It stays where it is until it is told otherwise.
    assert gone.value.first_offset == 10
    behind.seek(gone.value.first_offset)
    assert payloads(behind.read_bulk()) == given[10:]
    assert payloads(in_front.read_bulk()) == given[12:]


def test_a_log_that_was_deleted_says_so(cluster: Cluster) -> None:
    fill(cluster)
    reader = cluster.log("one", client="reader").reader()
    assert reader.read_bulk(3)
    reader.seek(20)
    assert not reader.read_bulk()
    cluster.client("w").delete_log("one")
    cluster.run_for(1)
    with pytest.raises(embedbk.NoSuchLedger, match="deleted"):
        reader.read_bulk(wait_s=1)


def test_an_error_behind_the_first_entry_shortens_the_answer(cluster: Cluster) -> None:
    """CL22: "an error after the first entry just shortens the answer"; the next call meets it, and goes on behind it
    when it is over."""
    given = fill(cluster)
    reader = cluster.log("one", client="reader").reader()
    bulk = reader.read_bulk(7)  # The second ledger is open, its rest read already; the third is not.
    for name in ("b1", "b2", "b3"):
        cluster.crash(name)
    seen = payloads(bulk)
    began_s = cluster.now_s
    with pytest.raises(embedbk.EntryUnreadable):
        read_on(reader, seen)
    assert cluster.now_s - began_s < 20
    assert 7 <= len(seen) < 20
    assert reader.next_offset == len(seen)
    for name in ("b1", "b2", "b3"):
        cluster.restart(name)
    cluster.run_for(2)
    while bulk := reader.read_bulk(wait_s=2):
        seen += payloads(bulk)
    assert seen == given


def test_who_is_interrupted_has_missed_nothing(cluster: Cluster) -> None:
    """A call that raises has given nothing: the next one begins at the same entry, whatever was gathered already."""
    given = fill(cluster)
    reader = cluster.log("one", client="reader").reader()
    assert payloads(reader.read_bulk(6)) == given[:6]

    def interrupt() -> None:
        raise KeyboardInterrupt

    cluster.world.after(SECOND, interrupt)
    with pytest.raises(KeyboardInterrupt):
        reader.read_bulk(wait_s=60, min_entries=1000)
    assert reader.next_offset == 6
    assert payloads(reader.read_bulk()) == given[6:]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda reader: reader.read_bulk(0), "max_entries=0"),
        (lambda reader: reader.read_bulk(True), "max_entries=True"),
        (lambda reader: reader.read_bulk(1, 0), "max_bytes=0"),
        (lambda reader: reader.read_bulk(1, 2.5), "max_bytes=2.5"),
        (lambda reader: reader.read_bulk(min_entries=0), "min_entries=0"),
        (lambda reader: reader.read_bulk(wait_s=-1), "wait_s"),
        (lambda reader: reader.seek(-1), "-1 is no place"),
        (lambda reader: reader.seek(None), "None is no place"),
        (lambda reader: reader.seek("middle"), "'middle' is no place"),
        (lambda reader: reader.seek(True), "True is no place"),
    ],
)
def test_what_is_no_bound_or_place_is_refused_and_changes_nothing(
    cluster: Cluster, call: Any, said: str
) -> None:
    given = fill(cluster)
    reader = cluster.log("one", client="reader").reader()
    assert payloads(reader.read_bulk(3)) == given[:3]
    with pytest.raises(embedbk.UsageError, match=said):
        call(reader)
    assert payloads(reader.read_bulk(3)) == given[3:6]


def test_one_call_at_a_time(cluster: Cluster) -> None:
    """Two would share what comes; the second is refused, and the first goes on."""
    fill(cluster)
    reader: Any = cluster.log("one", client="reader").reader(20)
    steps = reader._reading.read(10, 10, 1.0, 1)
    steps.send(None)
    with pytest.raises(embedbk.UsageError, match="another call reads"):
        reader.read_bulk()
    with pytest.raises(embedbk.UsageError, match="another call reads"):
        reader.seek(0)
    reader.close()
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())
    assert reader._reading._frames is None, "it lets go at the end of the call that was under way"
    with pytest.raises(embedbk.UsageError, match="was closed"):
        reader.read_bulk()


def test_a_call_that_is_dropped_leaves_the_reader_whole(cluster: Cluster) -> None:
    """As when an event loop ends under it."""
    given = fill(cluster)
    reader: Any = cluster.log("one", client="reader").reader()
    assert payloads(reader.read_bulk(3)) == given[:3]
    steps = reader._reading.read(100, 100, 1.0, 100)
    steps.send(None)
    steps.close()
    assert payloads(reader.read_bulk()) == given[3:]


def test_a_part_of_a_frame_is_no_copy(cluster: Cluster) -> None:
    """The bytes of a run that is cut at a bound are where they were read: no entry costs an object."""
    fill(cluster, ledgers=1)
    reader = cluster.log("one", client="reader").reader()
    one: Batch = reader.read_bulk(2).batches[0]
    two: Batch = reader.read_bulk(2).batches[0]
    assert one.data.obj is two.data.obj
    assert one.ends[-1] == two.ends[0]
