"""Readers of a log whose empty ledgers leave its list and are deleted while they stand in them (P8.3, P6.6)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedbk.client import log_writer as logs
from embedbk.client.creating import traits_of
from embedbk.client.password import Password
from embedbk.client.tickets import Fate
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    LogList,
    LogSegment,
    decode_log_list,
    encode_log_list,
    ledger_key_path,
    log_key_path,
    log_left_path,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.config import Quorum
from embedbk.errors import NoSuchEntry, NoSuchLedger, Truncated
from embedbk.ids import Position
from embedbk.log import Log
from embedbk.testing import Cluster
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.sim_runtime import awaited
from tests.scenarios.carried import carry_over

NAME = "one"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=83, bookies=3) as cluster:
        carry_over(cluster.client("carrier"), NAME)
        yield cluster


def write(cluster: Cluster, client: str, *payloads: bytes) -> int:
    """By a writer of its own, which ends; the ledger's id."""
    with cluster.log(NAME, client=client).writer() as writer:
        for payload in payloads:
            writer.append(payload)
        return writer.ledger_id


def take_over_soon(cluster: Cluster, client: str, *payloads: bytes) -> None:
    """While somebody waits: a takeover by another process, and its deletion of what left the list."""
    runtime = cluster.client(client)._runtime
    traits = traits_of(runtime, "synced", None, delays_change=False, digest="crc32c")

    def steps() -> Steps:
        yield Sleep(500_000_000)
        taking = logs.take_over(runtime, NAME, Password(b""), Quorum(3, 3, 2), traits)
        appending = (yield from awaited(runtime, taking)).appending
        yield Sleep(2_000_000_000)  # What left is deleted, and every reader has heard of it.
        for payload in payloads:
            yield from awaited(runtime, appending.append(payload))

    cluster.world.spawn(client, steps())


def is_there(cluster: Cluster, ledger_id: int) -> bool:
    return ledger_key_path(ledger_id) in cluster.world.committed("/ledgers/")


def until_deleted(cluster: Cluster) -> None:
    assert cluster.run_until(lambda: log_left_path(NAME) not in cluster.world.committed("/logs/"))


def listed(cluster: Cluster) -> tuple[LogSegment, ...]:
    return decode_log_list(cluster.world.committed("/logs/")[log_key_path(NAME)]).segments


def change_list(cluster: Cluster, *segments: LogSegment) -> None:
    """Put another list there, as truncation will; without segments: delete it."""
    runtime = cluster.client("operator")._runtime
    key = log_key_path(NAME)
    change = Put(key, encode_log_list(LogList(METADATA_VERSION, 1, segments))) if segments else Delete(key)
    assert run_blocking(runtime.transact([], [change], "a test"), "nothing")
    cluster.run_for(1.0)  # Until every reader has heard of it.


def read(log: Log, start: Position | int | None = None, end: Position | int | None = None) -> list[bytes]:
    return [bytes(entry) for entry in log.read(start, end)]


# Standing in an empty ledger.


def test_a_tail_inside_an_empty_ledger_goes_on_with_the_next(cluster: Cluster) -> None:
    """P6.6: the ledger that it waits in is closed empty, leaves the list and is deleted; it is given what comes behind,
    and not `Truncated`."""
    write(cluster, "w0", b"zero")
    waited_in = cluster.log(NAME, client="w1").writer()
    tail = cluster.log(NAME, client="reader").tail(0, idle_s=10)
    assert bytes(next(tail)) == b"zero"
    take_over_soon(cluster, "w2", b"one")
    assert bytes(next(tail)) == b"one"
    assert not is_there(cluster, waited_in.ledger_id)
    waited_in.release()


def test_a_tail_from_now_on_inside_an_empty_ledger_misses_nothing(cluster: Cluster) -> None:
    """P6.6: the same where it began there: the first entry of the next ledger is the first that comes."""
    write(cluster, "w0", b"before")
    waited_in = cluster.log(NAME, client="w1").writer()
    tail = cluster.log(NAME, client="reader").tail(idle_s=10)
    take_over_soon(cluster, "w2", b"one", b"two")
    assert [bytes(next(tail)), bytes(next(tail))] == [b"one", b"two"]
    assert not is_there(cluster, waited_in.ledger_id)
    waited_in.release()


def test_a_read_whose_next_ledger_was_deleted_meanwhile_goes_on_behind_it(cluster: Cluster) -> None:
    """P6.6: it read the list when an empty ledger stood in it; `segments` likewise."""
    log = cluster.log(NAME, client="reader")
    write(cluster, "w0", b"zero")
    empty = write(cluster, "w1")
    reading = log.read()
    assert bytes(next(reading)) == b"zero"
    write(cluster, "w2", b"one")
    until_deleted(cluster)
    assert not is_there(cluster, empty)
    assert list(reading) == []  # What the list named when it began was read to its end.
    assert read(log) == [b"zero", b"one"]
    assert [segment.last_entry for segment in log.segments()] == [0, 0]


@pytest.mark.parametrize("entry_id", [-1, 0])
def test_a_place_in_a_ledger_that_left_is_the_begin_of_the_next(cluster: Cluster, entry_id: int) -> None:
    """P6.6: who kept "the next entry of this ledger" as its place goes on there, also at the front of the log."""
    front, middle = write(cluster, "w0"), 0
    write(cluster, "w1", b"zero")
    middle = write(cluster, "w2")
    write(cluster, "w3", b"one")
    until_deleted(cluster)
    log = cluster.log(NAME, client="reader")
    assert read(log, Position(front, entry_id)) == [b"zero", b"one"]
    assert read(log, Position(middle, entry_id)) == [b"one"]
    assert read(log, None, Position(middle, 0)) == [b"zero"]
    tail = log.tail(Position(middle, entry_id), idle_s=1)
    assert [bytes(entry) for entry in tail] == [b"one"]
    with pytest.raises(NoSuchEntry):
        read(log, Position(middle, 1))  # No ledger of this log between these had an entry.


def test_a_tail_from_now_on_begins_with_the_next_entry(cluster: Cluster) -> None:
    """P6.6: nothing of what was there when it was first asked, and the very first that came afterwards."""
    with cluster.log(NAME, client="w0").writer() as writer:
        writer.append(b"before")
        tail = cluster.log(NAME, client="reader").tail(idle_s=5)
        cluster.world.after(500_000_000, lambda: writer.append_nowait(b"one"))
        assert bytes(next(tail)) == b"one"
        writer.append(b"two")
        assert [(entry.offset, bytes(entry)) for entry in tail] == [(2, b"two")]


def test_the_fate_of_what_never_arrived_is_told_when_its_ledger_is_gone(cluster: Cluster) -> None:
    """P3.6: the ledger closed empty, left the list and was deleted: what was appended to it is lost, for certain. A
    log that was deleted as a whole says no such thing."""
    write(cluster, "w0", b"zero")
    writer = cluster.log(NAME, client="w1").writer()
    stop = cluster.drop_messages("AddRequest", sender="w1")
    ticket = writer.append_nowait(b"never")
    cluster.run_for(0.01)
    assert ticket.fate() is Fate.UNKNOWN
    write(cluster, "w2", b"one")
    until_deleted(cluster)
    stop()
    assert not is_there(cluster, writer.ledger_id)
    assert ticket.fate() is Fate.LOST
    cluster.client("operator").delete_log(NAME)
    with pytest.raises(NoSuchLedger):
        ticket.fate()
    write(cluster, "w3", b"of another log")
    with pytest.raises(NoSuchLedger):
        ticket.fate()
    writer.release()


# What is missing is told.


def test_a_place_below_the_start_of_a_log_is_truncated(cluster: Cluster) -> None:
    """P6.6: by offset and by position, for each way of reading; the first entry that is left is read."""
    first = write(cluster, "w0", b"gone", b"gone too")
    second = write(cluster, "w1", b"two")
    (_, kept) = listed(cluster)
    change_list(cluster, kept)
    log = cluster.log(NAME, client="reader")
    for place in (0, 1, Position(first, 0), Position(first, 1)):
        with pytest.raises(Truncated) as told:
            read(log, place)
        assert told.value.definite
        with pytest.raises(Truncated):
            next(log.tail(place, idle_s=1))
        with pytest.raises(Truncated):
            next(log.read_batches(place))
    assert read(log, 2) == read(log, Position(second, 0)) == [b"two"]
    assert [entry.offset for entry in log.read()] == [2]


def test_a_tail_that_truncation_overtakes_is_told(cluster: Cluster) -> None:
    """P6.6: what stands between where it is and where the list begins now is gone: that is no empty ledger."""
    write(cluster, "w0", b"zero")
    tail = cluster.log(NAME, client="reader").tail(0, idle_s=5)
    assert bytes(next(tail)) == b"zero"
    for number in (1, 2, 3):
        write(cluster, f"w{number}", b"%d" % number)
    change_list(cluster, *listed(cluster)[2:])
    with pytest.raises(Truncated):
        next(tail)


def test_a_tail_that_waits_while_its_log_goes_is_told(cluster: Cluster) -> None:
    """P8.3: a log that was deleted, or was begun anew under its name, is not the one that it reads."""
    write(cluster, "w0", b"zero")
    tail = cluster.log(NAME, client="reader").tail(0, idle_s=5)
    assert bytes(next(tail)) == b"zero"
    change_list(cluster)
    write(cluster, "w1", b"of another log")
    with pytest.raises(NoSuchLedger, match="begun anew"):
        next(tail)
