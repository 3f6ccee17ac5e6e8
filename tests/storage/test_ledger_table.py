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
    """Growing the table moves no row: core and add path hold on to them."""
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
    row.is_fenced, row.in_limbo, row.is_dropped = 1, 1, 1
    row.last_entry, row.lac, row.lac_length, row.last_token = 41, 40, 4000, 9
    table.set_key(row, KEY)
    table.mark_dirty(row)
    other.load(table.take_dirty())
    found = other.get(77)
    assert (found.is_fenced, found.in_limbo, found.is_dropped) == (1, 1, 1)
    assert (found.last_entry, found.lac, found.lac_length, found.last_token) == (41, 40, 4000, 0)
    assert other.key(found) == KEY
    assert other.take_dirty() == b"", "what came from a footer is in a footer already"


def state(ledger_id: int, last: int, lac: int, length: int, flags: int, key: bytes = bytes(16)) -> bytes:
    return LEDGER_STATE.pack(ledger_id, last, lac, length, key, flags, bytes(7))


def test_loading_never_lifts_a_fence_nor_lowers_the_lac_pair(make: Any) -> None:
    """P7.3: a fence is never forgotten; I11: the LAC pair never falls; limbo ends when a later state says so."""
    table = make()
    table.load(state(1, 10, 8, 800, 1 | 2 | 8, KEY))
    table.load(state(1, 5, 3, 300, 0))
    row = table.get(1)
    assert (row.is_fenced, row.in_limbo, row.last_entry, row.lac, row.lac_length) == (1, 0, 10, 8, 800)
    assert table.key(row) == KEY


@pytest.mark.parametrize(
    "states",
    [
        b"\0" * 55,
        state(2, 0, 0, 0, 0) + state(1, 0, 0, 0, 16),
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


def test_loading_stops_at_the_bound(make: Any) -> None:
    table = make(ledgers_max=1)
    with pytest.raises(StorageError, match="full"):
        table.load(state(1, 0, 0, 0, 0) + state(2, 0, 0, 0, 0))


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
