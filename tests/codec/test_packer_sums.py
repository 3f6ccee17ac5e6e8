"""Digests that a packer adds up: both packers tell the same, at every place where a frame ends (P11.4)."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.entry_digest import DIGEST_MASK, entry_digest
from embedbk.codec.frame import Frame, split
from embedbk.codec.packer import Packing
from embedbk.ids import NO_ENTRY
from tests.codec.test_packer import Make, make

__all__ = ["make"]

LEDGER = 7


def sealed(packer: Packing) -> list[Frame]:
    frames = []
    while (frame := packer.seal()) is not None:
        frames.append(frame)
    return frames


@pytest.mark.parametrize("modulus", [1, 3, 7, 64])
def test_the_sum_is_known_wherever_a_frame_ends_and_nowhere_else(make: Make, modulus: int) -> None:
    """P11.4: "by residue, a sum over the digests of all entries": also where many frames wait, and where none does."""
    chance = random.Random(modulus)
    packer = make(LEDGER, block_bytes=4096)
    packer.begin_sums(modulus)
    wanted, known = [0] * modulus, {NO_ENTRY: (0,) * modulus}
    ends: list[int] = []
    assert packer.sums_through(NO_ENTRY) == known[NO_ENTRY]
    for _ in range(400):
        for _ in range(chance.randrange(1, 30)):
            packer.append(bytes(chance.randrange(700)))
        for frame in sealed(packer):
            for entry_id, entry in split(frame):
                place = entry_id % modulus
                wanted[place] = wanted[place] + entry_digest(entry) & DIGEST_MASK
            known[frame.last_entry] = tuple(wanted)
            ends.append(frame.last_entry)
        if chance.random() < 0.7:
            place = chance.randrange(len(ends))
            end, ends = ends[place], ends[place:]
            if chance.random() < 0.5:
                packer.set_lac(end, 0)
            if end - 1 not in known:
                assert packer.sums_through(end - 1) == (), "no frame ends there"
            assert packer.sums_through(end) == known[end]
    assert len(known) > 400


def test_nothing_is_told_where_nobody_asked_for_sums_or_of_a_place_that_was_passed(make: Make) -> None:
    """P11.4: "where anything cannot be told nothing is published"."""
    packer = make(LEDGER)
    packer.append(b"a")
    sealed(packer)
    assert packer.sums_through(0) == ()
    packer = make(LEDGER)
    packer.begin_sums(1)
    packer.append(b"a")
    sealed(packer)
    packer.append(b"b")
    sealed(packer)
    assert len(packer.sums_through(1)) == 1
    assert packer.sums_through(0) == ()


def test_a_frame_that_is_open_is_in_no_sum(make: Make) -> None:
    """P11.4: "of entries that are acknowledged, and of no other"."""
    packer = make(LEDGER)
    packer.begin_sums(1)
    packer.append(b"a")
    (frame,) = sealed(packer)
    packer.append(b"b")
    ((_, entry),) = split(frame)
    assert packer.sums_through(0) == (entry_digest(entry),)
    assert packer.sums_through(1) == ()


def test_a_packer_at_rest_keeps_its_sum(make: Make) -> None:
    """P11.4: all frames are done and given back, and the next one begins: the sum up to the last of them is known."""
    packer, wanted = make(LEDGER), [0, 0]
    packer.begin_sums(2)
    packer.append(b"0")
    for last in range(6):
        (frame,) = sealed(packer)
        ((_, entry),) = split(frame)
        wanted[last % 2] = wanted[last % 2] + entry_digest(entry) & DIGEST_MASK
        packer.set_lac(last, 0)
        del entry
        packer.release(frame)
        assert packer.sums_through(last) == tuple(wanted)
        packer.append(b"%d" % last)
        assert packer.sums_through(last) == tuple(wanted)
        assert packer.sums_through(last + 1) == ()
