"""Which entries are lost, as ledger metadata says it (P11.5)."""

from __future__ import annotations

import random

import msgspec
import pytest

from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_changed_metadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from embedbk.codec.lost_entries import (
    Losses,
    RunBuilder,
    gap_at,
    is_lost,
    lost_count,
    next_kept,
    next_lost,
    unlost_parts,
)
from embedbk.errors import StorageError

SEATS = tuple((f"b{n}", bytes([n] * 16)) for n in range(3))
PLAIN = LedgerMetadata(1, 7, 3, 1, 1, LedgerState.CLOSED, 99, 990, b"", 1, {}, (Fragment(0, 0, SEATS),))


def words(*runs: tuple[int, int, int]) -> tuple[Losses, ...]:
    return tuple(Losses((run,), (SEATS[0],), 5, "me", "burnt") for run in runs)


@pytest.mark.parametrize("seed", range(12))
def test_each_question_agrees_with_the_set_of_lost_entries(seed: int) -> None:
    """A run stands for its entries, whatever is asked: one, the next, a gap, a count, or what is left of a share."""
    chance = random.Random(seed)
    size = chance.choice([1, 2, 3, 5])
    dead = {each for each in range(size) if chance.random() < 0.4}
    begin, end = sorted(chance.sample(range(100), 2))
    lost = [each for each in range(100) if begin <= each <= end and each % size in dead]
    lost += [each for each in range(100) if each not in lost and chance.random() < 0.05]
    builder = RunBuilder(size)
    for each in sorted(lost):
        builder.add(each)
    runs = builder.runs()
    said = (Losses(runs, (), 0),)
    assert len(runs) == builder.run_count <= len(lost) and builder.count == lost_count(said) == len(lost)
    assert [each for each in range(110) if is_lost(said, each)] == sorted(lost)
    for each in range(100):
        gap = gap_at(said, each)
        assert (gap is not None) == (each in lost)
        if gap is not None:
            assert gap[0] <= each <= gap[1] and all(e in lost for e in range(gap[0], gap[1] + 1))
            assert gap[0] - 1 not in lost and gap[1] + 1 not in lost
        assert next_lost(said, each, 90) == min([e for e in lost if each <= e <= 90], default=None)
        assert next_kept(said, each) == min(e for e in range(each, 120) if e not in lost)
        assert next_kept(said, each, size) == min(e for e in range(each, 120, size) if e not in lost)
        for residue in range(size):
            wanted = [e for e in lost if each <= e <= 90 and e % size == residue]
            assert next_lost(said, each, 90, size, residue) == min(wanted, default=None)
    for residues in (1, (1 << size) - 1):
        parts = list(unlost_parts(said, 3, 95, size, residues, size))
        held = [e for low, high, m, r in parts for e in range(low, high + 1) if r >> e % m & 1]
        assert sorted(held) == [e for e in range(3, 96) if residues >> e % size & 1 and e not in lost]


def test_words_about_each_residue_are_looked_at_word_by_word() -> None:
    """P11.5: one word for each bookie that is gone, and all entries of a ledger are lost. Whoever asks for a gap, or
    copies the rest, would go through each of them."""
    end = 3 * 10**15 - 1
    said = words(*((residue, end - 2 + residue, 3) for residue in range(3)), (end + 4, end + 4, 3))
    assert gap_at(said, 7) == (0, end) == gap_at(said, end)
    assert [next_kept(said, each) for each in (0, end, end + 1)] == [end + 1] * 3
    assert [next_kept(said, each, 3) for each in (0, 1, 5, end)] == [end + 1, end + 2, end + 3, end + 3]
    assert next_kept(said, end + 4, 3) == end + 7 and next_kept(said, end + 4) == end + 5
    assert next_kept((), 5) == next_kept((), 5, 3) == 5


def test_a_ledger_that_lost_nothing_is_written_as_earlier_builds_write_it() -> None:
    """P10.8: only a word adds a field, behind the level."""
    assert len(msgspec.msgpack.decode(encode_ledger_metadata(PLAIN))) == 14
    lost = PLAIN.with_changes(lost=words((3, 9, 3)))
    assert decode_ledger_metadata(encode_ledger_metadata(lost), 7) == lost
    assert decode_ledger_metadata(encode_ledger_metadata(PLAIN), 7) == PLAIN


@pytest.mark.parametrize("run", [(9, 3, 1), (0, 100, 1), (0, 5, 3), (0, 4, 2)])
def test_what_no_ledger_can_have_lost_is_refused(run: tuple[int, int, int]) -> None:
    """P2.5: every client may write any key."""
    with pytest.raises(StorageError, match="lost entries"):
        decode_ledger_metadata(encode_ledger_metadata(PLAIN.with_changes(lost=words(run))), 7)


def test_an_open_ledger_lost_nothing() -> None:
    """P11.5."""
    opened = PLAIN.with_changes(state=LedgerState.OPEN, last_entry=None, length=None, lost=words((0, 3, 1)))
    with pytest.raises(StorageError, match="OPEN, and entries of it were given up"):
        decode_ledger_metadata(encode_ledger_metadata(opened), 7)


def test_what_was_given_up_stays_given_up() -> None:
    """P11.5: a later word is put behind the earlier ones."""
    first, both = words((3, 9, 3)), words((3, 9, 3), (20, 30, 1))
    known, later = PLAIN.with_changes(lost=first), PLAIN.with_changes(lost=both)
    assert decode_changed_metadata(encode_ledger_metadata(later), known) == later
    for back in (known, PLAIN, PLAIN.with_changes(lost=both[::-1])):
        with pytest.raises(StorageError, match="there again"):
            decode_changed_metadata(encode_ledger_metadata(back), later)
