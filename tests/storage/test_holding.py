"""How many entries of a range are held: one contract for the C store, cached and flushed, and for its twin (P11.4)."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.holdings_messages import Digests
from embedbk.core.ledger_table import LedgerTable
from embedbk.core.quorum import count_ids
from embedbk.errors import UsageError
from embedbk.ports.entry_store import EntriesHeld
from embedbk.ports.upkeep import ScrubDamage
from embedbk.storage.holding import DAMAGED_MAX, LACKING_MAX, MET_MAX, HoldingCount, without_damaged
from embedbk.storage.memory import MemoryEntryStore
from tests.storage.stored_entries import make_frame
from tests.storage.test_entry_store import Place, flush, make_disk, open_store
from tests.storage.test_entry_store import place as place  # The fixture of the same places.


def expected(ids: set[int], first: int, last: int, modulus: int, residues: int) -> tuple[int, list[int]]:
    """By the words of the port, id by id: how many are held, and which asked ids are not."""
    asked = [each for each in range(first, last + 1) if residues >> each % modulus & 1]
    return len([each for each in asked if each in ids]), [each for each in asked if each not in ids]


def ids_of(held: EntriesHeld, modulus: int, residues: int) -> list[int]:
    ranges = [range(first, last + 1) for first, last in held.lacking]
    return [each for ids in ranges for each in ids if residues >> each % modulus & 1]


def test_what_is_held_is_counted_and_what_lacks_is_named(place: Place) -> None:
    """P11.4: "a bookie answers count of (ledger, residue, first, last) from its own index"."""
    place.store.put(make_frame(7, range(5)))
    place.store.put(make_frame(7, range(8, 20)))
    store = place.settle()
    assert store.held(7, 0, 19) == EntriesHeld(17, [(5, 7)])
    assert store.held(7, 0, 30) == EntriesHeld(17, [(5, 7), (20, 30)])
    assert store.held(7, 8, 19) == EntriesHeld(12, [])
    assert store.held(7, 10, 12) == EntriesHeld(3, [])
    assert store.held(7, 5, 7) == EntriesHeld(0, [(5, 7)])
    assert store.held(8, 0, 9) == EntriesHeld(0, [(0, 9)])
    assert store.held(7, 9, 8) == EntriesHeld(0, [])


def test_only_the_residues_that_are_asked_for_count(place: Place) -> None:
    """P3.7: a seat of a striped ledger holds its part, with gaps; nobody misses what it does not owe."""
    place.store.put(make_frame(7, [each for each in range(30) if each % 5 in (0, 1, 3) and each != 11]))
    store = place.settle()
    assert store.held(7, 0, 29, 5, 0b01001) == EntriesHeld(12, [])
    assert store.held(7, 0, 29, 5, 0b01011) == EntriesHeld(17, [(11, 12)])
    assert store.held(7, 12, 29, 5, 0b01011) == EntriesHeld(10, [])
    assert store.held(7, 0, 29, 5, 0b00100).count == 0


def test_an_entry_that_is_stored_twice_is_one(place: Place) -> None:
    """An entry may stand in several logs and in the cache: each counts once."""
    place.store.put(make_frame(7, range(10)))
    if place.kind in ("flushed", "reopened"):
        flush(place.store)
    place.store.put(make_frame(7, range(4, 6)))
    place.store.put(make_frame(7, [6, 9, 12]))
    assert place.settle().held(7, 0, 12) == EntriesHeld(11, [(10, 11)])


def test_any_pattern_of_puts_and_logs_is_counted_right() -> None:
    """Both twins, by chance, against a set of ids."""
    chance = random.Random(5)
    for _ in range(60):
        store, twin, ids = open_store(make_disk()), MemoryEntryStore(), set[int]()
        for mark in range(1, chance.randint(2, 6)):
            for _ in range(chance.randint(1, 4)):
                first, step = chance.randint(0, 150), chance.choice([1, 1, 2, 3, 70])
                put = range(first, first + step * chance.randint(1, 20), step)
                chosen = [each for each in put if chance.random() < 0.9] or [first]
                ids |= set(chosen)
                store.put(make_frame(3, chosen, size=chance.choice([0, 40])))
                twin.put(make_frame(3, chosen))
            if chance.random() < 0.6:
                flush(store, mark)
        for _ in range(12):
            first, modulus = chance.randint(0, 100), chance.choice([1, 1, 3, 5, 64])
            asked = (3, first, first + chance.randint(0, 300), modulus, chance.getrandbits(modulus))
            held = store.held(*asked)
            assert held == twin.held(*asked)
            assert (held.count, ids_of(held, *asked[3:])) == expected(ids, *asked[1:])
        store.close()


def test_ranges_have_a_bound_and_the_count_has_none(place: Place) -> None:
    place.store.put(make_frame(7, range(0, 400, 2)))
    held = place.settle().held(7, 0, 399)
    assert (held.count, len(held.lacking)) == (200, LACKING_MAX)
    assert held.lacking[0] == (1, 1)


def test_ledgers_with_the_highest_ids_are_counted(place: Place) -> None:
    top = 2**63 - 2
    store = place.settle()
    assert store.held(7, top - 3, top) == EntriesHeld(0, [(top - 3, top)])


def test_a_question_without_sense_is_refused() -> None:
    store = open_store(make_disk())
    for asked in ((7, -1, 5, 1, 1), (7, 0, 5, 0, 1), (7, 0, 5, 65, 1)):
        with pytest.raises(UsageError):
            store.held(*asked)
    store.close()


def test_what_the_scrubber_found_bad_is_lacking_until_a_good_copy_is_there() -> None:
    """P11.4, I55: the finding stays, as the file does; the entry counts again when it reads well."""
    store = MemoryEntryStore()
    store.put(make_frame(7, range(10)))
    store.unreadable |= {(7, 4), (7, 6)}
    damages = [
        ScrubDamage("f", 0, "bad", 7, 4, 4),
        ScrubDamage("f", 0, "bad", 8, 1, 1),
        ScrubDamage("f", 1, "x"),
    ]
    assert without_damaged(store, damages, 7, 0, 9, 1, 1) == EntriesHeld(9, [(4, 4)])
    assert without_damaged(store, damages, 7, 5, 9, 1, 1) == EntriesHeld(5, [])
    assert without_damaged(store, damages, 7, 0, 9, 2, 0b10) == EntriesHeld(5, [])
    store.put(make_frame(7, [4]))
    assert without_damaged(store, damages, 7, 0, 9, 1, 1) == EntriesHeld(10, [])
    # What is not there at all is not counted twice.
    assert without_damaged(store, [ScrubDamage("f", 0, "bad", 7, 9, 12)], 7, 0, 12, 1, 1) == EntriesHeld(
        10, [(10, 12)]
    )


def test_too_much_damage_is_no_count() -> None:
    """ "Cannot tell" is never a number."""
    store = MemoryEntryStore()
    store.put(make_frame(7, range(10)))
    wide = [ScrubDamage("f", 0, "bad", 7, 0, DAMAGED_MAX)]
    assert without_damaged(store, wide, 7, 0, 5_000, 1, 1) is None
    assert without_damaged(store, wide, 7, 0, DAMAGED_MAX - 1, 1, 1) is not None


def test_damage_leaves_a_block_without_a_number() -> None:
    """P11.4: the number of ledgers says nothing of them while a scrubber's find may change what is held; what is found
    in another ledger, or in none, changes nothing."""
    table, counting = LedgerTable(), HoldingCount()
    for ledger_id in (6, 7, 8):
        table.create(ledger_id).last_token = ledger_id
    blocks = [(0, b"\x40"), (7, b"\x01"), (7, b"\x02"), (0, b"\xff\x01")]
    numbers, last_token = counting.numbers(table, [], 5, blocks)
    assert None not in numbers and len(set(numbers)) == 4 and last_token == 8
    found = [ScrubDamage("f", 0, "bad", 7, 4, 4), ScrubDamage("f", 1, "the index is damaged")]
    damaged, _ = counting.numbers(table, found, 5, blocks)
    assert damaged == [numbers[0], None, numbers[2], None]
    assert counting.numbers(table, [], 5, blocks)[0] == numbers


def test_damage_that_is_forgotten_gives_no_number_back() -> None:
    """P11.4: what a digest met is remembered for so many entries; a number that was told before must not hide it."""
    table, counting, store = LedgerTable(), HoldingCount(), MemoryEntryStore()
    table.create(7).last_token = 1
    store.put(make_frame(7, range(MET_MAX + 1)))
    before, _ = counting.numbers(table, [], 5, [(7, b"\x01"), (8, b"\x01")])
    for entry_id in range(MET_MAX + 1):
        store.unreadable.add((7, entry_id))
        counting.held(store, [], 7, entry_id, entry_id, 1, 1, [], Digests.BY_BYTES)
        assert counting.numbers(table, [], 5, [(7, b"\x01")])[0] == [None]
    table.create(9)
    assert counting.numbers(table, [], 5, [(9, b"\x01")]) != HoldingCount().numbers(
        table, [], 5, [(9, b"\x01")]
    )
    assert before[0] is not None


def test_ids_are_counted_by_arithmetic() -> None:
    chance = random.Random(2)
    for _ in range(200):
        first, modulus = chance.randint(0, 40), chance.randint(1, 9)
        last, residues = first + chance.randint(-1, 40), chance.getrandbits(modulus)
        assert count_ids(first, last, modulus, residues) == sum(
            residues >> each % modulus & 1 for each in range(first, last + 1)
        )
