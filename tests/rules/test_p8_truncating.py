"""P8.3, P8.8: the list first, then the ledgers; what a refused or unknown change means, and what may go at all."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Begun,
    LedgersLeft,
    LogList,
    LogPages,
    LogSegment,
    decode_ledgers_left,
    encode_ledger_metadata,
    encode_ledgers_left,
    encode_log_list,
    ledger_key_path,
    log_key_path,
    log_truncated_path,
)
from embedbk.codec.log_cursors import CursorHold, log_cursors_path
from embedbk.codec.log_pages import log_page_path
from embedbk.codec.log_pins import LogPins, PinRecord, encode_log_pins, log_pins_path
from embedbk.codec.log_settings import AtBound, SettingsRecord, encode_log_settings, log_settings_path
from embedbk.codec.metadata_messages import Put
from embedbk.codec.tombstone import decode_tombstone, tombstone_path
from embedbk.core.dropping import Dropping
from embedbk.core.log_listing import TakenOver
from embedbk.core.metadata_words import Transact
from embedbk.core.truncating import LogTruncating, Round
from embedbk.core.truncation import Held, HoldingCursor, Terms, TruncationVerdict, judge, without
from embedbk.errors import MetadataUnavailable, StorageError
from tests.rules.test_p8_logs import LOG, listed
from tests.rules.test_p8_pages import closed, roll, run, takeover, whole
from tests.rules.test_p8_pages import taken as over_of
from tests.rules.world import Client, Operation, World

NOW_MS = 1_000_000


def rolled(world: World, ledgers: int) -> TakenOver:
    """A log of so many ledgers of two entries each and an open one; closed as metadata says it, too."""
    over = over_of(run(world, takeover(world)))
    for number in range(ledgers):
        before = over
        over = roll(world, over, 2, number)
        key = ledger_key_path(before.metadata.ledger_id)
        metadata, _ = world.catalog.metadata(before.metadata.ledger_id)
        ended = metadata.with_changes(state=3, last_entry=1, length=5)
        world.catalog.transact([], [Put(key, encode_ledger_metadata(ended))])
    return over


def truncating(world: World, before: int, name: str = "t") -> Client:
    return world.client(name, LogTruncating(LOG, Terms(before), bytes(16), NOW_MS, 500))


def came_to(client: Client) -> Round:
    assert client.ended.error is None
    assert isinstance(client.ended.result, Round)
    return client.ended.result


def truncate(world: World, before: int, name: str = "t") -> Round:
    return came_to(run(world, truncating(world, before, name)))


def held_at(world: World, tag: str) -> Operation:
    """Settle until a transaction of this tag is in flight, and nothing else."""
    world.catalog.is_held = True
    for _ in range(1000):
        world.run(until=lambda: bool(world.catalog.waiting))
        operation = world.catalog.waiting[0]
        if isinstance(operation.effect, Transact) and operation.effect.tag == tag:
            return operation
        world.catalog.answer(operation)
    raise AssertionError(f"no {tag}")


def truncated(world: World) -> tuple[int, ...]:
    value, _ = world.catalog.values.get(log_truncated_path(LOG), (None, 0))
    return decode_ledgers_left(value).ledger_ids if value is not None else ()


def is_there(world: World, ledger_id: int) -> bool:
    return ledger_key_path(ledger_id) in world.catalog.values


def put_pin(world: World, offset: int, until_ms: int = NOW_MS + 1) -> None:
    value = encode_log_pins(LogPins(METADATA_VERSION, (PinRecord("batch", offset, 7, until_ms),)))
    world.catalog.transact([], [Put(log_pins_path(LOG), value)])


def test_the_list_goes_first_and_says_what_is_to_be_deleted() -> None:
    """P8.3: "CAS the list, then delete": one transaction checks list and pins, and puts the ids down."""
    world = World()
    rolled(world, 3)
    client = truncating(world, 4)
    client.start()
    cut = held_at(world, "cut").effect
    assert isinstance(cut, Transact)
    assert [compare.key for compare in cut.when] == [
        log_key_path(LOG),
        log_pins_path(LOG),
        log_cursors_path(LOG),
        log_truncated_path(LOG),
    ]
    assert [change.key for change in cut.then] == [log_key_path(LOG), log_truncated_path(LOG)]
    assert is_there(world, 1) and is_there(world, 2)
    world.catalog.answer(world.catalog.waiting[0])
    assert truncated(world) == (1, 2) and listed(world).first_offset == 4
    drop = held_at(world, "drop").effect
    assert isinstance(drop, Transact)
    assert [compare.key for compare in drop.when[:2]] == [log_key_path(LOG), log_truncated_path(LOG)]
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert came_to(client) == Round(0, 4, 2, Held.REACHED)
    assert not is_there(world, 1) and not is_there(world, 2) and truncated(world) == ()
    stone = decode_tombstone(world.catalog.values[tombstone_path(1)][0])
    assert (stone.deleted_ms, stone.until_ms) == (NOW_MS, NOW_MS + 500)


@pytest.mark.parametrize("lands", [True, False, None])
def test_a_change_of_unknown_outcome_is_counted_once_if_it_lands(lands: bool | None) -> None:
    """P2.2: what is read next says whether it came to pass; the ledgers are deleted in either case."""
    world = World()
    rolled(world, 3)
    client = truncating(world, 4)
    client.start()
    cut = held_at(world, "cut")
    world.catalog.tell_unknown(cut, lands=lands)
    if lands is None:
        again = held_at(world, "cut")
        assert world.catalog.land(cut)
        world.catalog.answer(again)  # Refused, by our own one before it.
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert came_to(client) == Round(0, 4, 2, Held.REACHED)
    assert not is_there(world, 1) and not is_there(world, 2) and truncated(world) == ()


def test_a_pin_that_comes_between_holds() -> None:
    """P8.8: "the transaction refuses, whoever asks": the cut compares the pins that it has looked at."""
    world = World()
    rolled(world, 3)
    client = truncating(world, 4)
    client.start()
    held_at(world, "cut")
    put_pin(world, 3)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert came_to(client) == Round(0, 2, 1, Held.PIN, "batch")
    assert is_there(world, 2)


def put_settings(world: World, at_bytes_max: AtBound) -> int:
    """Their revision."""
    record = SettingsRecord(METADATA_VERSION, bytes_max=10, at_bytes_max=at_bytes_max)
    world.catalog.transact([], [Put(log_settings_path(LOG), encode_log_settings(record))])
    return world.catalog.values[log_settings_path(LOG)][1]


@pytest.mark.parametrize("moment", ["before", "between", "never"])
def test_settings_that_are_others_by_now_let_nothing_go(moment: str) -> None:
    """P8.8: "the transaction of retention and of a bound compares the settings"."""
    world = World()
    rolled(world, 3)
    revision = put_settings(world, AtBound.LET_GO)
    terms = Terms(0, fits_bytes=0, settings_at=revision)
    client = world.client("t", LogTruncating(LOG, terms._replace(before=None), bytes(16), NOW_MS, 500))
    if moment == "before":
        put_settings(world, AtBound.REFUSE)
    client.start()
    if moment == "between":
        held_at(world, "cut")
        put_settings(world, AtBound.REFUSE)
        world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    came = came_to(client)
    assert (came.reached, came.ledgers > 0) == ((0, False) if moment != "never" else (6, True))


def test_a_pin_whose_time_is_over_goes_with_the_truncation_and_not_before() -> None:
    """P8.8: "it expires by name": what stands in the metadata decides."""
    world = World()
    rolled(world, 3)
    put_pin(world, 0, NOW_MS)
    assert truncate(world, 0).expired == ()
    assert log_pins_path(LOG) in world.catalog.values
    assert truncate(world, 4, "u") == Round(0, 4, 2, Held.REACHED, "", ("batch",))
    value, _ = world.catalog.values[log_pins_path(LOG)]
    assert value == encode_log_pins(LogPins(METADATA_VERSION, ()))


def test_pages_go_when_all_of_them_is_truncated() -> None:
    """P8.6: a page never changes: the list says how many of its ledgers went, and it goes with the last of them."""
    world = World()
    over = rolled(world, 10)  # Two pages of four, and three ledgers in the list.
    ids = [each.ledger_id for each in whole(world)]
    first = log_page_path(LOG, listed(world).pages or LogPages(0, 0, 0, 0, 0, 0, 0), 0)
    page = world.catalog.values[first]
    assert truncate(world, 7) == Round(0, 6, 3, Held.REACHED)
    assert listed(world).pages == LogPages(1, 0, 2, 3, 6, 5, 25, (ids[7], 1))
    assert world.catalog.values[first] == page
    assert truncate(world, 13, "u") == Round(6, 8, 1, None)
    assert first not in world.catalog.values
    assert truncate(world, 13, "v") == Round(8, 12, 2, Held.REACHED)
    assert truncate(world, 99, "w") == Round(12, 16, 2, None)
    assert truncate(world, 99, "x") == Round(16, 20, 2, Held.LAST)
    pages = listed(world).pages
    assert pages == LogPages(1, 2, 2, 0, 20, 0, 0, (ids[9], 1))
    assert [each.ledger_id for each in listed(world).segments] == [over.metadata.ledger_id]
    assert not [key for key in world.catalog.values if key.startswith("/log-pages/")]
    roll(world, over, 1, 99)
    assert listed(world).first_offset == 20


def test_only_what_metadata_itself_calls_closed_and_this_logs_is_deleted() -> None:
    """P2.5, P8.3: every client may write the key; what the list names, what is open and what is another's stays."""
    world = World()
    over = rolled(world, 2)
    metadata, _ = world.catalog.metadata(1)
    others = metadata.with_changes(ledger_id=700, custom={"log": b"another"})
    world.catalog.transact([], [Put(ledger_key_path(700), encode_ledger_metadata(others))])
    world.catalog.values[ledger_key_path(701)] = (b"what is this", world.catalog.revision)
    ids = (1, over.metadata.ledger_id, 700, 701, 702)
    value = encode_ledgers_left(LedgersLeft(METADATA_VERSION, ids))
    world.catalog.transact([], [Put(log_truncated_path(LOG), value)])
    client = run(world, world.client("d", Dropping(LOG, NOW_MS, 500)))
    assert client.ended.error is None
    assert all(is_there(world, each) for each in ids[:4])
    assert truncated(world) == (701,)


def test_a_list_that_moves_on_holds_no_deletion_up() -> None:
    """P8.3: the deletion compares the list at the version read; an owner that rolls beside it changes that."""
    world = World()
    over = rolled(world, 3)
    client = truncating(world, 4)
    client.start()
    drop = held_at(world, "drop")
    segments = listed(world)
    world.catalog.transact([], [Put(log_key_path(LOG), encode_log_list(segments))])
    world.catalog.answer(drop)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert came_to(client).reached == 4 and not is_there(world, 1)
    assert is_there(world, over.metadata.ledger_id)


def test_metadata_that_is_full_is_told_at_once() -> None:
    """P2.2: what is not run at all is an error, definite; nothing was changed."""
    world = World()
    rolled(world, 3)
    world.catalog.refuses = "the catalog is full"
    client = run(world, truncating(world, 4))
    assert isinstance(client.ended.error, MetadataUnavailable) and client.ended.error.definite
    assert listed(world).first_offset == 0 and is_there(world, 1)


@pytest.mark.parametrize("key", ["list", "pins", "truncated", "page"])
def test_what_cannot_be_read_is_not_judged(key: str) -> None:
    """P2.5: named, and nothing was changed."""
    world = World()
    rolled(world, 6)
    pages = listed(world).pages
    assert pages is not None
    path = log_page_path(LOG, pages, 0) if key == "page" else f"/logs/{LOG}/{key}"
    world.catalog.transact([], [Put(path, b"\xc1")])
    before = dict(world.catalog.values)
    client = run(world, truncating(world, 4))
    assert isinstance(client.ended.error, StorageError)
    assert world.catalog.values == before


# What may go.


def segments(*begun: tuple[int, int]) -> tuple[LogSegment, ...]:
    """Closed ledgers of three entries and ten bytes, by (created_ms, why), and an open one."""
    *older, last = begun
    return (
        *(LogSegment(1 + n, 3 * n, 2, ms, why, 10) for n, (ms, why) in enumerate(older)),
        LogSegment(1 + len(older), 3 * len(older), None, last[0], last[1]),
    )


def test_a_ledger_that_was_listed_ahead_does_not_say_when_the_one_before_it_ended() -> None:
    """P8.8, P8.2 (i), (iv): appends go on while the next one is listed; the one after it comes behind their end."""
    rolling = segments((10, Begun.TAKEOVER), (20, Begun.BYTES), (30, Begun.BYTES), (40, Begun.BYTES))

    def by(ms: int) -> int:
        return judge(rolling, 4, Terms(begun_before_ms=ms), (), 30, has_more=False).going

    assert [by(ms) for ms in (10, 20, 29, 30, 39, 40, 1000)] == [0, 0, 0, 1, 1, 2, 2]
    taken = segments((10, Begun.TAKEOVER), (20, Begun.TAKEOVER), (0, Begun.UNKNOWN))
    assert judge(taken, 3, Terms(begun_before_ms=20), (), 30, has_more=False) == TruncationVerdict(
        1, Held.REACHED
    )
    assert judge(taken, 3, Terms(begun_before_ms=99), (), 30, has_more=False) == TruncationVerdict(
        1, Held.REACHED
    )


def test_a_time_of_a_wrong_clock_says_nothing_of_when_a_ledger_ended() -> None:
    """P8.8: "a time that is below that of the ledger itself, or has not come yet, is of a wrong clock: the next ledger
    that has none of these tells it"."""

    def going(begun_before_ms: int, *times: int) -> int:
        window = segments(*((ms, Begun.TAKEOVER) for ms in times))
        count = len(window)
        terms = Terms(begun_before_ms=begun_before_ms)
        return judge(window, count, terms, (), 0, has_more=False, now_ms=1000).going

    assert [going(ms, 100, 1, 200, 300, 400) for ms in (1, 50, 199, 200, 299, 300)] == [0, 0, 0, 2, 2, 3]
    assert [going(ms, 100, 5000, 200, 300, 400) for ms in (1, 199, 200, 300, 400)] == [0, 0, 2, 3, 4]
    assert [going(ms, 5000, 200, 300) for ms in (199, 200, 300)] == [0, 1, 2]
    assert [going(ms, 100, 1) for ms in (1, 1000)] == [0, 0]
    assert [going(ms, 100, 5000) for ms in (1, 1000)] == [0, 0]


def test_so_many_bytes_stay() -> None:
    """P8.8: at least as many as were asked for, of what is recorded; what has no length stays."""
    window = segments((1, 1), (1, 1), (1, 1), (1, 1))
    for keep, going in ((0, 3), (1, 2), (10, 2), (11, 1), (20, 1), (21, 0), (99, 0)):
        assert judge(window, 4, Terms(keep_bytes=keep), (), 30, has_more=False).going == going
    assert judge(closed(3), 3, Terms(keep_bytes=0), (), 0, has_more=True) == TruncationVerdict(
        0, Held.REACHED
    )


def test_so_many_bytes_may_stay_and_cursors_do_not_hold_more() -> None:
    """P8.8: "truncates the oldest ledgers until at most 3/4 are left": past cursors, whose holds end by that, and no
    pin."""
    window = segments((1, 1), (1, 1), (1, 1), (1, 1))
    for fits, going in ((99, 0), (30, 0), (29, 1), (20, 1), (19, 2), (1, 3), (0, 3)):
        assert judge(window, 4, Terms(fits_bytes=fits), (), 30, has_more=False).going == going
    holders = (HoldingCursor("far", 8, False, None), HoldingCursor("slow", 1, False, None))
    verdict = judge(window, 4, Terms(fits_bytes=19), (), 30, holders, has_more=False)
    assert verdict == TruncationVerdict(2, Held.REACHED, "", (("slow", CursorHold.ENDED_BY_BOUND),))
    pins = (PinRecord("low", 3, 1, 1),)
    verdict = judge(window, 4, Terms(fits_bytes=0), pins, 30, holders, has_more=False)
    assert verdict == TruncationVerdict(1, Held.PIN, "low", (("slow", CursorHold.ENDED_BY_BOUND),))


def test_the_lowest_pin_holds_whatever_is_asked() -> None:
    """P8.8: below it nothing is kept, from it on everything."""
    window = segments((1, 1), (1, 1), (1, 1), (1, 1))
    for offset, going in ((0, 0), (2, 0), (3, 1), (5, 1), (6, 2), (9, 3)):
        pins = (PinRecord("high", 9, 1, 1), PinRecord("low", offset, 1, 1))
        verdict = judge(window, 4, Terms(before=99), pins, 30, has_more=False)
        assert verdict.going == going
        assert verdict == TruncationVerdict(going, Held.PIN, "low") or going == 3
    assert judge(window, 4, Terms(before=99), (), 30, has_more=False) == TruncationVerdict(3, Held.LAST)
    assert judge(window[:3], 3, Terms(before=99), (), 30, has_more=True) == TruncationVerdict(3, None)


def test_a_log_that_had_no_page_keeps_where_it_stands() -> None:
    """I93: the last entry in front of what is left is known, and the next page begins where the list begins."""
    window = segments((1, 1), (1, 1), (1, 1))
    new = without(LogList(METADATA_VERSION, 1, window), window, 2)
    assert new.segments == window[2:] and new.first_offset == 6
    assert new.pages == LogPages(1, 0, 0, 0, 6, 0, 0, (2, 2))
