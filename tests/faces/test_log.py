"""Logs through the blocking face: takeover, reading across ledgers, the tail (P6.2, P6.6, P8.1)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator

import pytest

import embedbk
from embedbk import Position
from embedbk.client.batches import Located, entries_of
from embedbk.client.waiting import run_blocking
from embedbk.codec.attributes import Producer, encode_attributes
from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import frame_of
from embedbk.codec.ledger_metadata import (
    LogList,
    LogSegment,
    decode_log_list,
    encode_log_list,
    log_key_path,
)
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.config import METADATA_VALUE_BYTES_MAX


def fill(bk: embedbk.Client, name: str, ledgers: int, entries: int) -> list[bytes]:
    """Entries in so many ledgers of a log, each written by a writer of its own."""
    given = [b"%d-%d" % (ledger, entry) for ledger in range(ledgers) for entry in range(entries)]
    for begin in range(0, len(given), entries):
        with bk.log(name).writer() as writer:
            writer.append_many(given[begin : begin + entries])
    return given


def test_a_log_is_one_sequence_over_its_ledgers(bk: embedbk.Client, log_name: str) -> None:
    """P1: offsets are dense over the whole log, positions ascend."""
    given = fill(bk, log_name, ledgers=3, entries=40)
    entries = list(bk.log(log_name).read())
    assert [bytes(entry) for entry in entries] == given
    assert [entry.offset for entry in entries] == list(range(120))
    assert [entry.position for entry in entries] == sorted(entry.position for entry in entries)
    segments = bk.log(log_name).segments()
    assert [(segment.first_offset, segment.last_entry) for segment in segments] == [
        (0, 39),
        (40, 39),
        (80, 39),
    ]
    assert all(segment.is_closed for segment in segments)
    assert [segment.length for segment in segments] == [sum(map(len, given[n : n + 40])) for n in (0, 40, 80)]
    for start, count in ((0, 3), (39, 3), (40, 2), (119, 1), (120, 1)):
        assert bk.log(log_name).segments(start) == segments[3 - count :]
    with bk.log(log_name).writer() as writer:
        assert bk.log(log_name).segments(120)[-1][2:] == (-1, False, 0)
        writer.append(b"four")
        assert bk.log(log_name).segments(120)[-1][2:4] == (0, False)
    assert bk.log(log_name).segments(120)[-1][2:] == (0, True, 4)


@pytest.fixture(scope="module")
def parts(bk: embedbk.Client) -> list[bytes]:
    return fill(bk, "parts", ledgers=3, entries=40)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (0, 1), (39, 41), (40, 80), (79, None), (119, 400), (120, None), (None, 7)]
)
def test_a_part_is_read_by_offsets_and_by_positions(
    bk: embedbk.Client, parts: list[bytes], start: int | None, end: int | None
) -> None:
    """start is included, end is left out, whichever way they are named."""
    log = bk.log("parts")
    given = parts
    assert [bytes(entry) for entry in log.read(start, end)] == given[start:end]
    batches = list(log.read_batches(start, end))
    assert sum(batch.entry_count for batch in batches) == len(given[start:end])
    positions = [entry.position for entry in log.read()]

    def named(offset: int | None) -> Position | int | None:
        return offset if offset is None or offset >= len(positions) else positions[offset]

    assert [bytes(entry) for entry in log.read(named(start), named(end))] == given[start:end]


def test_batches_lie_as_arrow_wants_them(bk: embedbk.Client, log_name: str) -> None:
    given = fill(bk, log_name, ledgers=2, entries=10)
    found = []
    for batch in bk.log(log_name).read_batches():
        ends = batch.ends
        found += [bytes(batch.data[ends[i] : ends[i + 1]]) for i in range(batch.entry_count)]
        assert batch.first_offset + batch.ids[-1] == len(found) - 1
    assert found == given


@pytest.mark.parametrize("marked", [[], [0], [7], [0, 1, 5], range(12), [11], range(0, 12, 2), [3, 11]])
def test_entries_are_cut_out_of_a_frame_wherever_attributes_stand(marked: Iterable[int]) -> None:
    """Few, many or none have some: each entry has its own payload, its own attributes, its own place."""
    bodies, length = [], 0
    for number in range(12):
        producer = Producer(9, number) if number in marked else None
        length += number
        attributes = encode_attributes(producer=producer)
        bodies.append(encode_entry(7, number, length, b"%c" % number * number, attributes=attributes))
    entries = list(entries_of(Located(frame_of(memoryview(b"".join(bodies))), 100)))
    assert [(entry.offset, bytes(entry)) for entry in entries] == [
        (100 + n, b"%c" % n * n) for n in range(12)
    ]
    assert [entry.producer for entry in entries] == [
        Producer(9, n) if n in marked else None for n in range(12)
    ]


def test_a_ticket_says_where_in_the_log_and_under_which_epoch(bk: embedbk.Client, log_name: str) -> None:
    """Issue: the ticket is the receipt. Offsets go on over takeovers and rolls, and are those that readers see."""
    log = bk.log(log_name)
    with log.writer(roll=embedbk.Roll(bytes=None)) as writer:
        tickets = [writer.append_nowait(b"a"), writer.append_nowait(b"b")]
        first_epoch = writer.epoch
        writer.roll()
        tickets.append(writer.append_nowait(b"c"))
    with log.writer() as writer:
        tickets.append(writer.append_nowait(b"d"))
        assert writer.epoch > first_epoch
        writer.renew()
        tickets.append(writer.append_nowait(b"e"))
        assert [ticket.epoch for ticket in tickets[:3]] == [first_epoch] * 3
        assert first_epoch < tickets[3].epoch < tickets[4].epoch == writer.epoch  # type: ignore[operator]
    assert [ticket.offset for ticket in tickets] == [0, 1, 2, 3, 4]
    assert [entry.offset for entry in log.read()] == [0, 1, 2, 3, 4]
    assert [entry.position for entry in log.read()] == [ticket.position for ticket in tickets]
    with bk.create_ledger() as ledger:
        ticket = ledger.add_nowait(b"x")
        assert (ticket.offset, ticket.epoch) == (ticket.entry_id, None)


def test_a_takeover_fences_the_writer_before(bk: embedbk.Client, log_name: str) -> None:
    """P8.1: what was acknowledged stays, the old writer's next append is refused and appears nowhere."""
    first = bk.log(log_name).writer()
    first.append_many([b"a", b"b"])
    second = bk.log(log_name).writer()
    assert second.epoch > first.epoch
    assert second.first_offset == 2
    with pytest.raises(embedbk.LedgerFenced) as refused:
        first.append(b"lost")
    assert refused.value.definite, "its ledger was read to be closed before it (P3.6)"
    assert "take the log over" in refused.value.hint
    second.append(b"c")
    second.close()
    first.release()
    assert [bytes(entry) for entry in bk.log(log_name).read()] == [b"a", b"b", b"c"]


def test_an_entry_of_an_open_log_is_read_at_once(bk: embedbk.Client, log_name: str) -> None:
    """P6.2: the LAC is asked for without fencing; the writer goes on."""
    with bk.log(log_name).writer() as writer:
        writer.append(b"one")
        seen: list[bytes] = []
        while not seen:
            seen = [bytes(entry) for entry in bk.log(log_name).read()]
        assert seen == [b"one"]
        writer.append(b"two")


def test_the_tail_follows_takeovers_and_ends_only_when_idle(bk: embedbk.Client, log_name: str) -> None:
    """P6.6: a ledger is left when it is CLOSED and read to its end, then comes the next of the list."""
    seen: list[bytes] = []
    arrived = threading.Condition()

    def follow() -> None:
        for entry in bk.log(log_name).tail(0, idle_s=20):
            with arrived:
                seen.append(bytes(entry))
                arrived.notify()
            if entry.data == b"last":
                return

    def wait_for(data: bytes) -> None:
        with arrived:
            assert arrived.wait_for(lambda: bool(seen) and seen[-1] == data, 20), seen

    follower = threading.Thread(target=follow)
    follower.start()  # Before the log exists.
    first = bk.log(log_name).writer()
    first.append(b"first")
    wait_for(b"first")
    first.append_many([b"1", b"2"])
    wait_for(b"2")
    second = bk.log(log_name).writer()  # The first one's ledger is recovered under the reader.
    second.append(b"second")
    wait_for(b"second")
    second.close()
    with bk.log(log_name).writer() as third:
        third.append(b"last")
    follower.join(20)
    assert seen == [b"first", b"1", b"2", b"second", b"last"]
    first.release()


def test_a_tail_begins_at_the_end_unless_told_otherwise(bk: embedbk.Client, log_name: str) -> None:
    fill(bk, log_name, ledgers=1, entries=5)
    assert list(bk.log(log_name).tail(idle_s=0.01)) == []
    assert [entry.offset for entry in bk.log(log_name).tail(3, idle_s=0.01)] == [3, 4]


def test_a_reader_that_is_dropped_early_stops_reading(bk: embedbk.Client, log_name: str) -> None:
    given = [bytes(1000) for _ in range(5000)]
    with bk.log(log_name).writer() as writer:
        writer.append_many(given)
    reader: Iterator[embedbk.Entry] = bk.log(log_name).read()
    assert len(next(reader)) == 1000
    del reader
    assert sum(1 for _ in bk.log(log_name).read()) == 5000


def test_a_failed_block_leaves_the_log_to_the_next_writer(bk: embedbk.Client, log_name: str) -> None:
    """An exception releases the log without touching it; the next writer recovers what was acknowledged."""
    writer = bk.log(log_name).writer()

    def fail() -> None:
        with writer:
            writer.append(b"kept")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with bk.log(log_name).writer() as after:
        assert after.first_offset == 1


def lengthen(bk: embedbk.Client, name: str, share: float) -> None:
    """As if the log had been taken over so often that its list has used this share of its bytes."""
    runtime, key = bk._runtime, log_key_path(bk.log(name).log_id())

    async def steps() -> None:
        value, revision = await runtime.get(key, "a test")
        assert value is not None
        *closed, last = decode_log_list(value).segments
        size = len(encode_log_list(LogList(1, 0, (LogSegment(1 << 30, 1 << 30, 0),)))) - 4
        count = int(METADATA_VALUE_BYTES_MAX * share) // size
        many = [LogSegment((1 << 30) + len(closed) + number, 1 << 30, 0) for number in range(count)]
        while (
            len(longer := encode_log_list(LogList(1, 0, (*closed, *many, last)))) > METADATA_VALUE_BYTES_MAX
        ):
            many.pop()
        assert await runtime.transact([Compare(key, revision)], [Put(key, longer)], "a test")

    run_blocking(steps(), "nothing")


def test_a_list_of_ledgers_that_grows_long_is_told_in_time(
    bk: embedbk.Client,
    log_name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P8.1: from 80 % of its bytes on, once at each takeover, with log, figures and what to do."""
    caplog.set_level(logging.WARNING, logger="embedbk.client.log")
    monkeypatch.setattr(bk._runtime, "page_ledgers", 0)  # As below level 5.
    fill(bk, log_name, ledgers=2, entries=1)
    assert caplog.records == []
    lengthen(bk, log_name, 0.7)
    fill(bk, log_name, ledgers=1, entries=1)
    assert caplog.records == []
    lengthen(bk, log_name, 0.15)
    with bk.log(log_name).writer() as writer:
        (told,) = [record.getMessage() for record in caplog.records]
        writer.append(b"and it goes on")
    assert f"log '{log_name}'" in told
    assert f"of at most {METADATA_VALUE_BYTES_MAX} bytes" in told
    assert "delete this one" in told


def test_a_log_whose_list_is_full_says_so_at_once(
    bk: embedbk.Client, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.1: definite, with log and size; nobody is fenced, nothing is left behind; the way out is to delete it."""
    monkeypatch.setattr(bk._runtime, "page_ledgers", 0)  # As below level 5.
    writer = bk.log(log_name).writer()
    writer.append(b"before")
    lengthen(bk, log_name, 1.0)
    before = bk.ledgers()
    for _ in range(3):
        with pytest.raises(embedbk.LogFull, match=f"log '{log_name}' is full: .*allowed are 262144") as told:
            bk.log(log_name).writer()
        assert told.value.definite
        assert "delete_log" in told.value.hint
    # Those of other tests that closed empty may be deleted behind them just now (P8.3).
    assert not {*bk.ledgers()} - {*before}
    writer.append(b"goes on")
    writer.close()
    bk.delete_log(log_name)
    assert log_name not in bk.logs()
    with bk.log(log_name).writer() as anew:
        assert anew.first_offset == 0


def test_a_strange_place_is_unknown(bk: embedbk.Client, log_name: str) -> None:
    """P6.6: a ledger that the log never had, with entries that none of its own could have had."""
    fill(bk, log_name, ledgers=1, entries=1)
    ledger_id = bk.log(log_name).segments()[0].ledger_id
    with pytest.raises(embedbk.Truncated):
        list(bk.log(log_name).read(Position(ledger_id - 1, 1)))
    with pytest.raises(embedbk.NoSuchEntry):
        list(bk.log(log_name).read(Position(ledger_id + 1_000_000, 0)))


def test_a_log_that_is_opened_often_without_an_append_does_not_grow(
    bk: embedbk.Client, log_name: str
) -> None:
    """P8.3: each writer that appends nothing leaves no ledger behind, neither in the list nor in the metadata."""
    fill(bk, log_name, ledgers=1, entries=3)
    before = bk.ledgers()
    for _ in range(20):
        with bk.log(log_name).writer() as writer:
            assert writer.first_offset == 3
    assert len(bk.log(log_name).segments()) == 2
    for _ in range(200):  # Nobody waits for the deletion.
        if len(bk.ledgers()) <= len(before) + 1:
            break
        bk.log(log_name).segments()
    assert len(bk.ledgers()) == len(before) + 1
    fill(bk, log_name, ledgers=1, entries=2)
    assert [entry.offset for entry in bk.log(log_name).read()] == [0, 1, 2, 3, 4]


def test_a_ledger_of_a_log_is_not_deleted_under_it(bk: embedbk.Client, log_name: str) -> None:
    fill(bk, log_name, ledgers=1, entries=1)
    ledger_id = bk.log(log_name).segments()[0].ledger_id
    with pytest.raises(embedbk.UsageError, match=f"part of log '{log_name}'"):
        bk.delete_ledger(ledger_id)
    assert len(list(bk.log(log_name).read())) == 1
