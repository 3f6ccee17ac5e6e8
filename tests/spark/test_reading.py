"""What executors read is what was planned, without Spark: the ranges of a log, and each range whole or an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import embedbk
from embedbk.errors import EntryUnreadable
from embedbk.spark.reading import LedgerRange, ReadPlace, plan, read


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadPlace]:
    """A log of two ledgers with entries, and one without."""
    settings = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)
    data = tmp_path_factory.mktemp("spark") / "data"
    with embedbk.open(data, bookies=1, listen="tcp://127.0.0.1:0", settings=settings) as bk:
        for count in (7, 5):
            with bk.log("orders").writer() as writer:
                writer.append_many([b"%d" % number for number in range(count)])
        with bk.log("orders").writer():
            pass
        yield ReadPlace(bk.url, "orders")


def test_ranges_are_planned_for_what_is_there_and_read_whole(place: ReadPlace) -> None:
    ranges = plan(place)
    assert [(part.first_entry, part.last_entry) for part in ranges] == [(0, 6), (0, 4)]
    for part in ranges:
        assert [entry for batch in read(place, part) for entry in batch.ids] == list(range(part.entry_count))
    some = LedgerRange(ranges[0].ledger_id, 2, 4)
    assert [entry for batch in read(place, some) for entry in batch.ids] == [2, 3, 4]


@pytest.mark.parametrize(("first", "last"), [(0, 7), (5, 9), (7, 8)])
def test_fewer_rows_than_were_planned_are_an_error(place: ReadPlace, first: int, last: int) -> None:
    """A LAC may be heard lower than at planning: rows that were planned are never left out in silence."""
    whole = plan(place)[0]
    with pytest.raises(EntryUnreadable, match=f"{first}..{last} could be read") as told:
        for _ in read(place, LedgerRange(whole.ledger_id, first, last)):
            pass
    assert told.value.hint
