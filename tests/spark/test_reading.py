"""What executors read is what was planned, without Spark: the ranges of a log, and each range whole or an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from embedbk.client.client import Client
from embedbk.errors import EntryUnreadable, NoSuchLedger, Truncated, UsageError
from embedbk.spark.reading import (
    EARLIEST,
    LATEST,
    LedgerRange,
    LogPoint,
    ReadPlace,
    Starting,
    admitted,
    begin,
    end_of,
    plan,
    read,
    standing,
    stretch,
)

ALL = Starting(EARLIEST, {}), Starting(LATEST, {})


def write(bk: Client, log: str, *counts: int) -> ReadPlace:
    """So many entries of 10 bytes, a ledger for each count; the last one stays empty."""
    for count in counts:
        with bk.log(log).writer() as writer:
            writer.append_many([b"%010d" % number for number in range(count)])
    with bk.log(log).writer():
        pass
    assert bk.url is not None
    return ReadPlace(bk.url)


def ranges(place: ReadPlace, log: str) -> list[LedgerRange]:
    start, end, segments = stretch(place, log, *ALL)
    return plan(log, segments, start, end)


def test_ranges_are_planned_for_what_is_there_and_read_whole(bk: Client) -> None:
    place = write(bk, "whole", 7, 5)
    found = ranges(place, "whole")
    assert [(part.first_entry, part.last_entry, part.first_offset) for part in found] == [
        (0, 6, 0),
        (0, 4, 7),
    ]
    for part in found:
        assert [entry for batch in read(place, part) for entry in batch.ids] == list(range(part.entry_count))
    some = LedgerRange("whole", found[0].ledger_id, 2, 4, 0)
    assert [entry for batch in read(place, some) for entry in batch.ids] == [2, 3, 4]


@pytest.mark.parametrize(("first", "last"), [(0, 7), (5, 9), (7, 8)])
def test_fewer_rows_than_were_planned_are_an_error(bk: Client, first: int, last: int) -> None:
    """A LAC may be heard lower than at planning: rows that were planned are never left out in silence."""
    place = write(bk, f"fewer-{first}", 7)
    whole = ranges(place, f"fewer-{first}")[0]
    with pytest.raises(EntryUnreadable, match=f"{first}..{last}") as told:
        for _ in read(place, LedgerRange(whole.log, whole.ledger_id, first, last, 0)):
            pass
    assert told.value.hint


def test_an_atomic_batch_is_one_entry_of_several_rows(bk: Client) -> None:
    place = write(bk, "atomic", 2)
    with bk.log("atomic").writer() as writer:
        writer.append_batch([b"a", b"b", b"c"])
        writer.append(b"d")
    parts = ranges(place, "atomic")
    assert [part.entry_count for part in parts] == [2, 2]
    assert [entry for batch in read(place, parts[1]) for entry in batch.ids] == [0, 0, 0, 1]


def test_a_stretch_begins_and_ends_inside_ledgers(bk: Client) -> None:
    place = write(bk, "inside", 7, 5)
    start, end, segments = stretch(
        place, "inside", Starting(EARLIEST, {"inside": 5}), Starting(LATEST, {"inside": 9})
    )
    assert [(part.first_entry, part.last_entry) for part in plan("inside", segments, start, end)] == [
        (5, 6),
        (0, 1),
    ]


@pytest.mark.parametrize(("start", "end"), [(5, 4), (0, 13), (13, 13)])
def test_places_that_are_no_stretch_are_refused(bk: Client, start: int, end: int) -> None:
    place = write(bk, f"no-stretch-{start}-{end}", 7, 5)
    name = f"no-stretch-{start}-{end}"
    with pytest.raises(UsageError, match="up to 12"):
        stretch(place, name, Starting(EARLIEST, {name: start}), Starting(LATEST, {name: end}))


def test_a_plan_that_misses_entries_is_an_error(bk: Client) -> None:
    place = write(bk, "misses", 7, 5)
    start, end, segments = stretch(place, "misses", *ALL)
    with pytest.raises(EntryUnreadable, match="offsets 0 to 11 the ledgers that are listed have 5"):
        plan("misses", segments[1:], start, end)


@pytest.mark.parametrize(
    ("rows", "byte_count", "offset"),
    [
        (None, None, 12),
        (3, None, 3),
        (9, None, 9),
        (7, None, 7),
        (None, 30, 3),
        (None, 1, 1),
        (None, 100, 10),
        (9, 40, 4),
        (2, 40, 2),
    ],
)
def test_a_micro_batch_keeps_both_limits_and_takes_at_least_one_entry(
    bk: Client, rows: int | None, byte_count: int | None, offset: int
) -> None:
    """Bytes are those of an average entry; every entry here has 10."""
    name = f"admitted-{rows}-{byte_count}"
    place = write(bk, name, 7, 5)
    end, segments = end_of(place, name)
    assert [each.length for each in segments] == [70, 50, 0]
    reached = admitted(segments, LogPoint(0), end, rows, byte_count)
    assert reached.offset == offset
    assert standing(place, name, reached, may_lose=False) == reached


def test_the_point_of_a_log_that_was_truncated_says_what_is_lost(bk: Client) -> None:
    place = write(bk, "cut", 7, 5)
    early, last_gone = LogPoint(3, ranges(place, "cut")[0].ledger_id, 2), end_of(place, "cut", LogPoint(0))[0]
    at_cut = admitted(end_of(place, "cut")[1], LogPoint(0), last_gone, 7, None)
    bk.log("cut").truncate(7)
    assert standing(place, "cut", at_cut, may_lose=False) == at_cut  # Nothing behind it is lost.
    with pytest.raises(Truncated, match="offsets 3 to 6 were truncated") as told:
        standing(place, "cut", early, may_lose=False)
    assert told.value.first_offset == 7 and "failOnDataLoss" in told.value.hint
    assert standing(place, "cut", early, may_lose=True) == LogPoint(7, log_id=bk.log("cut").log_id())


def test_a_log_that_was_begun_anew_is_told_from_the_one_that_was_read(bk: Client) -> None:
    """It may have as many entries by now, under the same name."""
    place = write(bk, "anew", 7)
    point = end_of(place, "anew")[0]
    bk.delete_log("anew")
    write(bk, "anew", 9)
    for each in (point, replace(point, log_id="")):  # As an earlier build noted it.
        with pytest.raises(NoSuchLedger, match="deleted and begun anew"):
            standing(place, "anew", each, may_lose=False)
    start = LogPoint(0, log_id=bk.log("anew").log_id())
    assert standing(place, "anew", point, may_lose=True) == begin(place, "anew") == start
    with pytest.raises(NoSuchLedger, match="is not the log with the id") as moment:
        end_of(place, "anew", point)
    assert not moment.value.definite, "the next look tells what follows"


def test_a_plan_whose_end_another_ledger_has_is_none(bk: Client) -> None:
    """The log was begun anew since the end was looked up: what stands at its offsets now was not planned."""
    place = write(bk, "swapped", 7)
    end, _ = end_of(place, "swapped")
    bk.delete_log("swapped")
    write(bk, "swapped", 9)
    segments = bk.log("swapped").segments()
    with pytest.raises(NoSuchLedger, match=f"ledger {end.ledger_id}, up to which it was read, is not in it"):
        plan("swapped", segments, LogPoint(0), end)
