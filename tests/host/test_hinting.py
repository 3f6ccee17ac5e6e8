"""Which writers of a client are hinted, and when (host/hinting.py; P6.2)."""

from __future__ import annotations

import random

from embedbk.codec.ledger_metadata import METADATA_VERSION, LedgerMetadata, LedgerState, first_fragments
from embedbk.codec.packer_twin import TwinPacker
from embedbk.core.client_words import FrameSealed, HintDue
from embedbk.core.writer import Writer
from embedbk.host.hinting import HINT_NS, HINTED_WRITERS_MAX, Hinting
from embedbk.host.writing import Writing
from embedbk.ids import Member
from tests.host.place import KEY, MS, SECOND, frame

MEMBERS = tuple(Member(name, name.encode() * 8) for name in ("b1", "b2", "b3"))


def paused(ledger_id: int, lac: int = 0) -> Writing:
    """A writer that had entries up to lac acknowledged, and has nothing under way."""
    metadata = LedgerMetadata(
        METADATA_VERSION,
        ledger_id,
        3,
        3,
        2,
        LedgerState.OPEN,
        None,
        None,
        bytes(16),
        0,
        {},
        first_fragments(MEMBERS),
    )
    core = Writer(metadata, 1, KEY, 1, (), random.Random(1))
    writing = Writing(core, TwinPacker(ledger_id), lambda _: None)
    move(writing, lac)
    return writing


def move(writing: Writing, lac: int) -> None:
    writing.core.lap = writing.core.in_flight.done = lac


def test_a_pause_is_told_when_it_is_long_enough() -> None:
    """P6.2: not before HINT_NS, and no pause twice."""
    hinting, writing = Hinting(), paused(1)
    hinting.note(SECOND, writing)
    assert hinting.deadline_ns == SECOND + HINT_NS
    assert hinting.take(SECOND + HINT_NS - 1) == []
    assert hinting.take(SECOND + HINT_NS) == [writing]
    assert hinting.deadline_ns is None
    writing.core.step(HintDue(SECOND + HINT_NS))
    hinting.note(SECOND + HINT_NS, writing)
    assert hinting.deadline_ns is None


def test_pauses_of_many_ledgers_are_told_together() -> None:
    """P6.2: those that are half as long go with one that is due."""
    hinting = Hinting()
    writings = [paused(n) for n in range(4)]
    for n, writing in enumerate(writings):
        hinting.note(SECOND + n * MS, writing)
    assert hinting.take(SECOND + HINT_NS) == writings[:3]
    assert hinting.take(SECOND + HINT_NS + 3 * MS) == writings[3:]


def test_a_writer_that_goes_on_is_not_told() -> None:
    """P6.2: a pause ends with the next frame, and begins anew when the LAC has moved."""
    hinting, writing = Hinting(), paused(1)
    hinting.note(SECOND, writing)
    move(writing, 1)
    hinting.note(SECOND + 3 * MS, writing)
    assert hinting.take(SECOND + HINT_NS) == []
    assert hinting.take(SECOND + HINT_NS + 3 * MS) == [writing]
    move(writing, 2)
    hinting.note(2 * SECOND, writing)
    writing.core.step(FrameSealed(2 * SECOND, frame(1, 3, [b"on"])))
    hinting.note(2 * SECOND, writing)
    assert hinting.take(2 * SECOND + HINT_NS) == []


def test_beyond_the_bound_nobody_is_told() -> None:
    """P6.2: HINTED_WRITERS_MAX writers that owe a LAC; more wait for the durable one."""
    hinting = Hinting()
    writings = [paused(n) for n in range(HINTED_WRITERS_MAX + 1)]
    for writing in writings:
        hinting.note(SECOND, writing)
    assert hinting.take(SECOND + HINT_NS) == []
    hinting.forget(writings[0])
    for n, writing in enumerate(writings[1:]):
        move(writing, n + 1)
        hinting.note(2 * SECOND, writing)
    assert hinting.take(2 * SECOND + HINT_NS) == writings[1:]
