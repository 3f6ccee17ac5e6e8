"""The ledger table in plain Python and in C: one test class for both."""

from __future__ import annotations

import random
from typing import Any

import pytest

from embedbk.core.ledger_table import LEDGER_STATE, LedgerTable
from embedbk.errors import StorageError, UsageError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY
from embedbk.storage.ledger_table import NativeLedgerTable

KEY = bytes(range(16))
RANGE = 1 | 2 | 4 | 16


def make_plain(ledgers_max: int = 1000) -> Any:
    return LedgerTable(ledgers_max)


def make_native(ledgers_max: int = 1000) -> Any:
    return NativeLedgerTable(ledgers_max)


@pytest.fixture(params=[make_plain, make_native])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_an_unknown_ledger_has_no_row(make: Any) -> None:
    table = make()
    assert table.get(7) is None
    assert len(table) == 0
    assert list(table) == []


def test_a_new_row_says_that_nothing_is_stored(make: Any) -> None:
    """P1: before the first entry, last entry and LAC are NO_ENTRY; P3.5: no key is bound yet."""
    table = make()
    row = table.create(7)
    assert (row.ledger_id, row.last_entry, row.lac, row.lac_length, row.last_token) == (
        7,
        NO_ENTRY,
        NO_ENTRY,
        0,
        0,
    )
    assert (row.is_fenced, row.in_limbo, row.is_dropped) == (0, 0, 0)
    assert table.key(row) is None
    assert len(table) == 1


def test_rows_are_changed_in_place_and_stay_where_they_are(make: Any) -> None:
    """Growing the table moves no row: only a dropped ledger's is taken away, when it is retired."""
    table = make(5000)
    held = table.create(0)
    held.last_entry = 12
    for ledger_id in range(1, 4000):
        table.create(ledger_id).last_token = ledger_id
    held.is_fenced = 1
    assert table.get(0).is_fenced == 1
    assert table.get(0).last_entry == 12
    assert all(table.get(ledger_id).last_token == ledger_id for ledger_id in range(1, 4000))


def test_ledgers_come_in_ascending_order(make: Any) -> None:
    table = make()
    ids = [*random.Random(4).sample(range(LEDGER_ID_MAX), 300), 0, LEDGER_ID_MAX]
    for ledger_id in ids:
        table.create(ledger_id)
    assert list(table) == sorted(ids)


def test_a_key_is_sixteen_bytes(make: Any) -> None:
    """P3.5: the ledger key is compared whole."""
    table = make()
    row = table.create(1)
    with pytest.raises(UsageError, match="16 are allowed"):
        table.set_key(row, b"short")
    table.set_key(row, KEY)
    assert table.key(row) == KEY


def test_the_table_has_a_bound(make: Any) -> None:
    table = make(ledgers_max=3)
    for ledger_id in range(3):
        table.create(ledger_id)
    with pytest.raises(StorageError, match="knows 3 ledgers") as caught:
        table.create(3)
    assert caught.value.definite
    assert table.get(2) is not None


def test_dirty_states_are_taken_once_in_ledger_order(make: Any) -> None:
    """P7.5: what the journal says of a ledger is in the next entry log's footer, exactly once."""
    table = make()
    for ledger_id in (9, 3, 5):
        row = table.create(ledger_id)
        if ledger_id != 5:
            table.mark_dirty(row)
            table.mark_dirty(row)
    states = table.take_dirty()
    assert [state[0] for state in LEDGER_STATE.iter_unpack(states)] == [3, 9]
    assert table.take_dirty() == b""
    table.mark_dirty(table.get(9))
    assert len(table.take_dirty()) == LEDGER_STATE.size


def test_a_loaded_state_is_the_state_that_was_taken(make: Any) -> None:
    table, other = make(), make()
    row = table.create(77)
    row.is_fenced, row.in_limbo = 1, 1
    row.last_entry, row.lac, row.lac_length, row.last_token = 41, 40, 4000, 9
    table.set_key(row, KEY)
    table.mark_dirty(row)
    other.load(table.take_dirty())
    found = other.get(77)
    assert (found.is_fenced, found.in_limbo, found.is_dropped) == (1, 1, 0)
    assert (found.last_entry, found.lac, found.lac_length, found.last_token) == (41, 40, 4000, 0)
    assert other.key(found) == KEY
    assert other.take_dirty() == b"", "what came from a footer is in a footer already"


def state(ledger_id: int, last: int, lac: int, length: int, flags: int, key: bytes = bytes(16)) -> bytes:
    return LEDGER_STATE.pack(ledger_id, last, lac, length, key, flags, bytes(7))


def test_loading_never_lifts_a_fence_nor_lowers_the_lac_pair(make: Any) -> None:
    """P7.3: a fence is never forgotten; I11: the LAC pair never falls; limbo ends when a later state says so, and what
    was dropped before it is behind a last entry that is lower."""
    table = make()
    table.load(state(1, 10, 8, 800, 1 | 2 | 8, KEY))
    table.load(state(1, 5, 3, 300, 0))
    row = table.get(1)
    assert (row.is_fenced, row.in_limbo, row.last_entry, row.lac, row.lac_length) == (1, 0, 5, 8, 800)
    assert table.key(row) == KEY


@pytest.mark.parametrize(
    "states",
    [
        b"\0" * 55,
        state(2, 0, 0, 0, 0) + state(1, 0, 0, 0, 32),
        state(1, 5, -1, 0, 16),
        state(5, 4, -1, 0, RANGE),
        state(1, -2, 0, 0, 0),
        state(1, 0, -2, 0, 0),
        state(2**63, 0, 0, 0, 0),
        LEDGER_STATE.pack(1, 0, 0, 0, KEY, 0, b"\0\0\0\0\0\0\1"),
    ],
)
def test_states_that_are_none_are_refused_whole(make: Any, states: bytes) -> None:
    table = make()
    with pytest.raises(StorageError):
        table.load(states)
    assert len(table) == 0


def test_loading_stops_at_the_bound_behind_the_reserve(make: Any) -> None:
    """What was taken from the reserve before a restart is there after it, too."""
    table = make(ledgers_max=16)
    table.load(b"".join(state(ledger_id, 0, 0, 0, 0) for ledger_id in range(18)))
    with pytest.raises(StorageError, match="full"):
        table.load(state(18, 0, 0, 0, 0))


def test_a_full_table_keeps_a_reserve_for_those_that_must_not_be_refused(make: Any) -> None:
    """Rule P7.8: too full for another ledger, and not too full to fence: a sixteenth of the rows is kept for that."""
    table = make(ledgers_max=32)
    for ledger_id in range(32):
        table.create(ledger_id)
    with pytest.raises(StorageError, match="full"):
        table.create(100)
    for ledger_id in range(100, 103):
        table.create(ledger_id, from_reserve=True)
    with pytest.raises(StorageError, match="full"):
        table.create(103, from_reserve=True)


def drop(table: Any, ledger_id: int, token: int = 1) -> None:
    row = table.get(ledger_id) or table.create(ledger_id)
    row.is_fenced = row.in_limbo = row.is_dropped = 1
    row.last_token = token
    table.mark_dirty(row)


def test_a_dropped_ledger_is_an_id_in_a_range_and_answers_for_ever(make: Any) -> None:
    """Rule P7.3: a dropped ledger stays fenced, in limbo and without data, kept as intervals of ids."""
    table = make()
    for ledger_id in (4, 6, 5, 9):
        drop(table, ledger_id)
    assert table.ranges() == [] and len(table) == 4
    table.retire(1)
    assert table.ranges() == [(4, 6), (9, 9)] and len(table) == 0
    row = table.get(5)
    assert (row.is_fenced, row.in_limbo, row.is_dropped, row.last_entry) == (1, 1, 1, NO_ENTRY)
    assert table.get(7) is None
    table.retire(1)
    assert len(table) == 0 and table.ranges() == [(4, 6), (9, 9)]
    other = make()
    other.load(table.take_dirty())
    assert other.ranges() == [(4, 6), (9, 9)] and len(other) == 0
    assert other.take_dirty() == table.take_dirty() == b""


def test_a_row_is_retired_only_when_its_drop_is_durable(make: Any) -> None:
    """P5.2f: who fences a ledger whose drop is only queued has to wait for that record, so its token stays."""
    table = make()
    drop(table, 4, token=7)
    table.retire(6)
    assert table.get(4).last_token == 7 and table.ranges() == []
    assert len(table.take_dirty()) == LEDGER_STATE.size
    table.retire(7)
    assert table.ranges() == [(4, 4)] and len(table) == 0


def test_a_ledger_that_came_back_is_in_no_range(make: Any) -> None:
    """P7.3: repair may move a ledger back; a range that is written again later must not drop it once more."""
    table = make()
    for ledger_id in range(4, 9):
        drop(table, ledger_id)
    table.retire(1)
    whole = table.take_dirty()
    back = table.get(6)
    back.is_dropped = 0
    table.mark_dirty(back)
    newer = table.take_dirty()
    assert table.ranges() == [(4, 5), (7, 8)]
    table.touch(whole)
    again = [item[:2] for item in LEDGER_STATE.iter_unpack(table.take_dirty())]
    assert again == [(4, 5), (7, 8)]
    other = make()
    for states in (whole, newer):
        other.load(states)
    assert other.ranges() == [(4, 5), (7, 8)] and other.get(6).in_limbo == 1


def test_ledgers_that_are_gone_are_dropped_but_for_those_with_rows(make: Any) -> None:
    """P7.4: of a ledger that has a row other records tell; also where the range is wider than the table has rows."""
    for last in (6, 600):
        table = make()
        table.load(state(4, 3, 2, 20, 8, KEY))
        drop(table, 9)
        table.drop_range(2, last)
        parts = [(2, 3), (5, 6)] if last == 6 else [(2, 3), (5, 8), (10, 600)]
        assert table.ranges() == parts
        assert table.get(4).is_dropped == 0 and table.get(9).is_dropped == 1
        other = make()
        other.load(state(4, 3, 2, 20, 8, KEY) + table.take_dirty())
        assert other.get(4).is_dropped == 0 and other.get(3).in_limbo == other.get(5).is_fenced == 1
        assert all(any(first <= a and b <= end for first, end in other.ranges()) for a, b in parts)


def test_what_stands_behind_a_ledger_that_came_back_is_written_too(make: Any) -> None:
    """P7.3: a range is to be written once more, as its entry log goes, and one of its ledgers comes back before."""
    table = make()
    for ledger_id in range(4, 12):
        drop(table, ledger_id)
    table.retire(1)
    whole = table.take_dirty()
    table.touch(whole)
    for ledger_id in (6, 9):
        back = table.get(ledger_id)
        back.is_dropped = 0
        table.mark_dirty(back)
    other = make()
    other.load(table.take_dirty())
    assert table.ranges() == other.ranges() == [(4, 5), (7, 8), (10, 11)]


def test_an_older_row_gives_way_to_a_newer_range(make: Any) -> None:
    """P7.3: the states of entry logs are taken in oldest first, and the newest counts."""
    for ids in ([6], [*range(200, 240), 6]):  # A narrow range, and one that is wider than the table has rows.
        table = make()
        table.load(b"".join(state(ledger_id, 3, 2, 20, 8, KEY) for ledger_id in sorted(ids)))
        table.load(state(5, 90, -1, 0, RANGE))
        assert len(table) == len(ids) - 1
        assert table.get(6).is_dropped == 1
        assert table.key(table.get(6)) is None


def test_what_is_of_stored_states_is_taken_once_more(make: Any) -> None:
    """ST32: before an entry log goes, the newest state of each ledger of it is carried into a newer one."""
    table = make()
    table.load(state(1, 3, 2, 20, 0) + state(2, 5, 2, 20, 1))
    table.get(2).in_limbo = 1
    table.touch(state(2, 1, 0, 2, 0) + state(77, 1, 0, 2, 0))
    assert table.take_dirty() == state(2, 5, 2, 20, 3)


def test_limbo_is_listed_without_the_dropped(make: Any) -> None:
    """P7.4: limbo ends for what is listed; a dropped ledger stays in limbo for ever (P7.3)."""
    table = make()
    for ledger_id in (9, 3, 5, 4):
        row = table.create(ledger_id)
        row.in_limbo = ledger_id != 4
    drop(table, 5)
    assert table.limbo() == [3, 9]


@pytest.mark.parametrize("seed", range(6))
def test_both_twins_keep_the_same_ranges(seed: int) -> None:
    """The same drops, returns, retirements and loads, in any order, give the same table."""
    chance = random.Random(seed)
    plain, native = make_plain(), make_native()
    written: list[bytes] = []
    for _ in range(400):
        ledger_id, act = chance.randrange(60), chance.random()
        durable = chance.randrange(4)
        for table in (plain, native):
            row = table.get(ledger_id)
            if act < 0.35:
                drop(table, ledger_id, token=ledger_id % 4)
            elif act < 0.55 and row is not None and row.is_dropped:
                row.is_dropped = 0
                table.mark_dirty(row)
            elif act < 0.65 and row is None:
                table.create(ledger_id).in_limbo = ledger_id % 2
            elif act < 0.7:
                table.drop_range(ledger_id, ledger_id + durable * 5)
            elif act < 0.8:
                table.retire(durable)
            elif act < 0.9 and written:
                table.touch(written[ledger_id % len(written)])
        if act >= 0.9:
            written.append(plain.take_dirty())
            assert native.take_dirty() == written[-1]
        assert plain.ranges() == native.ranges()
        assert list(plain) == list(native)
        assert plain.limbo() == native.limbo()
        mask = chance.randbytes(8)
        assert plain.number(3, mask, seed) == native.number(3, mask, seed)
    written.append(plain.take_dirty())
    assert native.take_dirty() == written[-1]
    both = make_plain(), make_native()
    for table in both:
        for states in written:
            table.load(states)
    assert both[0].ranges() == both[1].ranges() and list(both[0]) == list(both[1])
    for ledger_id in range(60):  # And what was written says what is.
        row, loaded = plain.get(ledger_id), both[0].get(ledger_id)
        if row is not None and loaded is not None:
            assert row.is_dropped == loaded.is_dropped


def test_one_number_stands_for_the_ledgers_that_are_chosen(make: Any) -> None:
    """P11.4: it is another one behind a record or a drop of one of them, behind nothing else, and with another seed."""
    table = make()
    seed, mask = 2**64 - 3, bytes([0b1000_0001, 0b10])  # Ledgers 5, 12 and 14.
    assert table.number(5, mask, seed) == (0, 0)
    for ledger_id in (5, 6, 12, 14, 400):
        table.create(ledger_id)
    first = table.number(5, mask, seed)
    assert first[1] == 0 and 0 < first[0] < 2**64
    assert table.number(5, mask, 7) != first
    assert table.number(5, bytes([0b1]), seed)[0] != first[0]
    table.get(6).last_token = 9  # Not chosen.
    table.get(12).lac = 8  # No bookie is asked for it.
    assert table.number(5, mask, seed) == first
    numbers = {first[0]}
    for ledger_id, token in ((5, 10), (12, 11), (14, 12), (5, 13)):
        table.get(ledger_id).last_token = token
        numbers.add(table.number(5, mask, seed)[0])
        assert table.number(5, mask, seed)[1] == max(token, 0)
    assert len(numbers) == 5
    assert table.number(2**63 - 1, bytes(127) + b"\x80", seed) == (0, 0)


def test_a_dropped_ledger_never_has_the_number_of_one_that_was_loaded(make: Any) -> None:
    """P11.4: a row that comes back from a range has token 0, as one has that was there when the bookie started."""
    table = make()
    table.create(7)
    before = table.number(7, b"\x01", 1)
    drop(table, 7, token=3)
    assert table.number(7, b"\x01", 1) != before
    table.retire(3)
    assert table.get(7).last_token == 0
    assert table.number(7, b"\x01", 1) != before


def test_the_plain_twin_copies_and_digests_its_state() -> None:
    """ARCHITECTURE 3: state is plain data with copy() and digest()."""
    table = make_plain()
    row = table.create(3)
    twin = table.copy()
    assert twin.digest() == table.digest()
    row.is_fenced = 1
    assert twin.digest() != table.digest()
    assert twin.get(3).is_fenced == 0


def test_a_row_in_c_stays_below_128_bytes() -> None:
    table = make_native(1 << 20)
    for ledger_id in range(70_000):
        table.create(ledger_id)
    assert table.resident_bytes() / 70_000 < 128


def test_both_twins_pack_the_same_bytes() -> None:
    """The state of a row is a stored format: it may not depend on who packed it."""
    chance = random.Random(11)
    plain, native = make_plain(), make_native()
    for ledger_id in chance.sample(range(LEDGER_ID_MAX), 200):
        numbers = [chance.randrange(2**40) for _ in range(3)]
        flags = [chance.randrange(2) for _ in range(5)]
        flags[2] = 0  # A dropped ledger leaves its row when its state is loaded.
        for table in (plain, native):
            row = table.create(ledger_id)
            row.last_entry, row.lac, row.lac_length = numbers
            row.is_fenced, row.in_limbo, row.is_dropped = flags[:3]
            if flags[3]:
                table.set_key(row, KEY)
            if flags[4]:
                table.mark_dirty(row)
    states = plain.take_dirty()
    assert states == native.take_dirty()
    again = make_native()
    again.load(states)
    for ledger_id in again:
        again.mark_dirty(again.get(ledger_id))
    assert again.take_dirty() == states
