"""P8.6: the older ledgers of a log's list stand in pages of their own, and the newest alone are needed to append."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Begun,
    LogList,
    LogPages,
    LogSegment,
    decode_log_list,
    encode_log_list,
    log_key_path,
    log_owner_path,
)
from embedbk.codec.log_pages import LogPage, decode_log_page, encode_log_page, log_page_path
from embedbk.codec.metadata_messages import Put
from embedbk.config import LOG_PAGE_LEDGERS, METADATA_VALUE_BYTES_MAX
from embedbk.core.log import LogTakeover
from embedbk.core.log_listing import NewLedger, TakenOver
from embedbk.core.log_paging import cut, search
from embedbk.core.log_rolling import LogPreparing, LogRecording
from embedbk.core.metadata_words import ReadKey, Transact
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY
from embedbk.metadata.limits import DEFAULT_LIMITS
from tests.rules.test_p8_logs import LOG, commit_of, listed, taken, write
from tests.rules.world import KEY, THREE, Client, World

PAGE = 4


def takeover(world: World, name: str = "p", page_ledgers: int = PAGE, *, has_level: bool = True) -> Client:
    new = NewLedger(
        THREE,
        bytes(16),
        0,
        Begun.TAKEOVER,
        has_level=has_level,
        page_ledgers=page_ledgers if has_level else 0,
    )
    return world.client(name, LogTakeover(LOG, name.encode(), new, KEY, world.bookies, world.chance))


def run(world: World, client: Client) -> Any:
    client.start()
    world.run(until=lambda: client.has_ended)
    return client


def roll(world: World, over: TakenOver, count: int, number: int) -> TakenOver:
    """The owner writes to its ledger, goes on in the next one, and records where the last one ended."""
    writer, _ = write(world, over, f"w{number}", count)
    new = NewLedger(THREE, bytes(16), 77, Begun.BYTES, page_ledgers=PAGE)
    core = LogPreparing(LOG, over.epoch, over.metadata.ledger_id, new, world.bookies, world.chance)
    prepared = taken(run(world, world.client(f"next {number}", core)))
    assert writer.confirmed == count - 1
    recording = LogRecording(LOG, over.epoch, over.metadata.ledger_id, count - 1, 5)
    assert run(world, world.client(f"behind {number}", recording)).ended.error is None
    return prepared.placed(over.first_offset + count)


def whole(world: World) -> tuple[LogSegment, ...]:
    """The ledgers of all pages and of the list, in their order."""
    log_list = listed(world)
    older: list[LogSegment] = []
    if log_list.pages is not None:
        for number in range(log_list.pages.first, log_list.pages.end):
            value, _ = world.catalog.values[log_page_path(LOG, log_list.pages, number)]
            older += decode_log_page(value, LOG, number).segments
    return (*older, *log_list.segments)


def closed(count: int, first_id: int = 1, first_offset: int = 0) -> tuple[LogSegment, ...]:
    return tuple(LogSegment(first_id + n, first_offset + 3 * n, 2) for n in range(count))


def test_a_log_that_rolls_keeps_a_short_list_and_every_ledger() -> None:
    """P8.6: "It is kept in pages; its newest page alone is needed to append"; I93 over all of them."""
    world = World()
    over = taken(run(world, takeover(world)))
    ids = [over.metadata.ledger_id]
    for number in range(11):
        over = roll(world, over, 2, number)
        ids.append(over.metadata.ledger_id)
    log_list = listed(world)
    assert log_list.pages == LogPages(ids[0], 0, 2, 0, 0, 8, 40, (ids[7], 1))
    assert [each.ledger_id for each in log_list.segments] == ids[8:]
    assert [(each.ledger_id, each.first_offset) for each in whole(world)] == [
        (ledger_id, 2 * number) for number, ledger_id in enumerate(ids)
    ]
    assert log_list.ledger_count == 12 and log_list.first_offset == 0


def test_a_takeover_of_a_paged_log_reads_the_list_alone() -> None:
    """P8.1: "the last two ledgers": no page is read, and what follows begins where the last one ended."""
    world = World()
    over = taken(run(world, takeover(world)))
    for number in range(9):
        over = roll(world, over, 1, number)
    write(world, over, "w", 3)
    before = whole(world)
    client = takeover(world, "rival")
    asked: list[str] = []
    step = client.core.step

    def noted(event: Any) -> Any:
        effects = step(event)
        asked.extend(effect.key for effect in effects if isinstance(effect, ReadKey))
        return effects

    client.core.step = noted  # type: ignore[method-assign]
    new = taken(run(world, client))
    assert not [key for key in asked if key.startswith("/log-pages/")]
    assert new.first_offset == 12
    assert [each.ledger_id for each in whole(world)] == [
        *(each.ledger_id for each in before),
        new.metadata.ledger_id,
    ]


def test_a_page_is_written_with_the_list_and_the_list_is_what_is_compared() -> None:
    """P8.6: pages go in the transaction that adds a ledger, which compares list, epoch and ledger as ever."""
    world = World()
    over = taken(run(world, takeover(world)))
    for number in range(4):
        over = roll(world, over, 1, number)
    write(world, over, "w", 1)
    takeover(world, "rival").start()
    commit = commit_of(world).effect
    assert isinstance(commit, Transact)
    puts = [change.key for change in commit.then if isinstance(change, Put)]
    pages = decode_log_list(commit.then[2].value).pages  # type: ignore[union-attr]
    assert pages is not None
    assert puts[1:] == [log_page_path(LOG, pages, 0), log_key_path(LOG)] and puts[0].startswith("/ledgers/")
    assert [compare.key for compare in commit.when[:2]] == [log_key_path(LOG), log_owner_path(LOG)]


def test_a_client_that_has_not_heard_of_the_level_keeps_the_pages() -> None:
    """P10.8: whoever writes a list with pages keeps them; else every ledger in them is lost to the log."""
    world = World()
    over = taken(run(world, takeover(world)))
    for number in range(6):
        over = roll(world, over, 1, number)
    before = listed(world).pages
    new = taken(run(world, takeover(world, "late", has_level=False)))
    assert before is not None and new.log_list.pages == before
    assert listed(world) == new.log_list


def test_below_its_level_a_list_is_one_value_as_it_was() -> None:
    """P10.8: without pages, lengths, or anything that the build before did not write."""
    world = World()
    for number in range(7):
        over = taken(run(world, takeover(world, f"p{number}", 0)))
        write(world, over, f"w{number}", 1)
    value, _ = world.catalog.values[log_key_path(LOG)]
    assert value == encode_log_list(LogList(METADATA_VERSION, over.epoch, listed(world).segments))
    assert len(listed(world).segments) == 7 and listed(world).pages is None
    assert all(each.length is None for each in listed(world).segments)


def test_a_list_of_the_build_before_goes_to_pages_when_it_grows() -> None:
    """P8.6: it opens as it is; at its bound it is not full any more, and moves in as many transactions as it takes,
    none larger than one may be."""
    world = World()
    world.catalog.next_id = 1 << 30
    older = closed(METADATA_VALUE_BYTES_MAX // 17, 1 << 20, 1 << 33)
    value = encode_log_list(LogList(METADATA_VERSION, 1, older), is_whole=False)
    assert 0.9 * METADATA_VALUE_BYTES_MAX < len(value) <= METADATA_VALUE_BYTES_MAX
    world.catalog.transact([], [Put(log_key_path(LOG), value)])
    rounds = 0
    while len(listed(world).segments) > 2 * LOG_PAGE_LEDGERS:
        client = takeover(world, f"p{rounds}", LOG_PAGE_LEDGERS)
        client.start()
        commit = commit_of(world)
        assert isinstance(commit.effect, Transact)
        size = sum(len(change.value) for change in commit.effect.then if isinstance(change, Put))
        assert size < DEFAULT_LIMITS.txn_bytes_max
        world.catalog.is_held = False
        world.run(until=lambda: client.has_ended)  # noqa: B023
        write(world, taken(client), f"w{rounds}", 1)
        rounds += 1
    assert rounds == 4
    assert whole(world)[: len(older)] == older


def test_the_newest_closed_ledger_stays_and_what_is_open_too() -> None:
    """P8.6: whoever reads at the log's end comes from there, and a takeover closes what is open without a page."""
    four = closed(4)
    for behind in (LogSegment(9, 12, None), LogSegment(9, None, None)):
        assert cut((*four, behind), None, 4) == ((*four, behind), None, ())
    five = closed(5)
    segments, pages, moved = cut((*five, LogSegment(9, 15, None)), None, 4)
    assert segments == (five[4], LogSegment(9, 15, None))
    assert pages == LogPages(1, 0, 1, 0, 0, 4, 0, (4, 2))
    assert moved == ((0, LogPage(METADATA_VERSION, four)),)
    unclosed = (*five[:3], LogSegment(4, 9, None), LogSegment(5, None, None))
    assert cut(unclosed, None, 1).moved == ((0, LogPage(1, five[:1])), (1, LogPage(1, five[1:2])))


def test_pages_say_whether_the_ids_along_them_rise() -> None:
    """P8.10: "splice, prepared ledgers and restore list those in any order"; a ledger is looked for by its id only
    where they rise, and what was said once stays."""
    two = (*closed(4, 10), *closed(5, 1, 12))
    after = cut(two, None, 2)
    assert after.pages is not None and after.pages.is_mixed and len(after.moved) == 4
    one = cut(closed(5, 10), None, 2)
    assert one.pages is not None and not one.pages.is_mixed
    behind = cut(closed(5, 3, 12), one.pages, 2)
    assert behind.pages is not None and behind.pages.is_mixed
    later = cut(closed(5, 30, 24), behind.pages, 2)
    assert later.pages is not None and later.pages.is_mixed
    told = LogList(METADATA_VERSION, 7, later.segments, later.pages)
    assert decode_log_list(encode_log_list(told)) == told


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 100])
def test_a_ledger_is_found_by_few_pages(count: int) -> None:
    """P8.6: as many reads as the logarithm of the number of pages, wherever it stands."""
    pages = LogPages(1, 3, 3 + count, 0, 0, 4 * count, 0)
    held = {3 + n: LogPage(1, closed(4, 1 + 4 * n, 12 * n)) for n in range(count)}
    for wanted in range(12 * count):
        steps = search(pages, lambda each: each.first_offset <= wanted)  # type: ignore[operator]  # noqa: B023
        number, reads = next(steps), 1
        while True:
            try:
                number, reads = steps.send(held[number]), reads + 1
            except StopIteration as found:
                told = found.value
                break
        assert told == (3 + wanted // 12, held[3 + wanted // 12])
        assert reads <= count.bit_length() + 1


@pytest.mark.parametrize(
    ("segments", "why"),
    [
        ((), "names no ledger"),
        ((LogSegment(1, 0, None),), "where ledger 1 begins and ends"),
        ((LogSegment(1, None, 2),), "where ledger 1 begins and ends"),
        ((LogSegment(1, 0, 2), LogSegment(2, 4, 2)), "ledger 2 does not begin where"),
        ((LogSegment(2, 0, 2), LogSegment(2, 3, 2)), "names a ledger twice"),
    ],
)
def test_a_page_that_none_can_be_is_refused(segments: tuple[LogSegment, ...], why: str) -> None:
    with pytest.raises(StorageError, match=f"page 7 of the list of log 'orders'.*{why}"):
        decode_log_page(encode_log_page(LogPage(METADATA_VERSION, segments)), "orders", 7)
    with pytest.raises(StorageError, match="version 2"):
        decode_log_page(encode_log_page(LogPage(2, segments)), "orders", 7)


@pytest.mark.parametrize(
    ("pages", "segments", "why"),
    [
        (LogPages(1, 3, 2, 0, 0, 0, 0), closed(1), "it names pages 3 to 2"),
        (LogPages(1, 2, 2, 1, 0, 0, 0), closed(1), "1 skipped"),
        (LogPages(1, 0, 2, 0, 0, 1, 0), closed(1), "of 1 ledgers"),
        (LogPages(1, 0, 1, 0, 0, 4, 0), (), "no ledger behind them"),
        (LogPages(1, 0, 1, 0, 9, 4, 0), closed(1), "begin at offset 9"),
    ],
)
def test_pages_that_no_list_has_are_refused(
    pages: LogPages, segments: tuple[LogSegment, ...], why: str
) -> None:
    with pytest.raises(StorageError, match=why):
        decode_log_list(encode_log_list(LogList(METADATA_VERSION, 1, segments, pages)), "orders")


def test_empty_ledgers_that_cannot_leave_go_to_pages_too() -> None:
    """P8.3, P8.6: a list does not fill with them where bookies are away; who reads passes over them."""
    empties = tuple(LogSegment(2 + n, 3, NO_ENTRY) for n in range(5))
    after = cut((*closed(1), *empties, LogSegment(9, 3, None)), None, 4)
    assert after.pages is not None and after.pages.last == (1, 2)
    assert [each.ledger_id for each in after.segments] == [5, 6, 9]
