"""P6.1, RP29: a read that turns out to be sequential asks ahead. Order, bounds and failures stay what they were."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import FRAME_BYTES_MAX, Quorum
from embedbk.core.reader import RangeRead, ReadOptions
from embedbk.errors import EntryUnreadable
from tests.rules.world import THREE, Client, Packet, Pen, World

STRIPED = Quorum(5, 3, 2)
DEFAULTS = ReadOptions()
LARGE = 300_000  # Three entries of this size fit into one answer.


class Scene(NamedTuple):
    world: World
    pen: Pen
    sizes: Sequence[int]

    def read(self, options: ReadOptions = DEFAULTS, *, seat: int = 0) -> tuple[Client, RangeRead]:
        reader = self.world.reader(self.pen.ledger_id, 0, len(self.sizes) - 1, options=options, seat=seat)
        reader.start()
        assert isinstance(reader.core, RangeRead)
        return reader, reader.core

    def check(self, reader: Client) -> None:
        """Everything, once, in order, as it was written (P6.4)."""
        assert reader.ended.error is None
        assert reader.read == [(number, payload(number, size)) for number, size in enumerate(self.sizes)]

    def asked(self, reader: Client) -> list[Packet]:
        return self.world.packets(reader, kind=ReadRequest)


def payload(number: int, size: int) -> bytes:
    return number.to_bytes(4, "little") * (size // 4)


def scene(sizes: Sequence[int], quorum: Quorum = THREE) -> Scene:
    world = World(quorum.ensemble_size)
    metadata, revision = world.create(quorum)
    writer, pen = world.writer(metadata, revision), Pen(metadata.ledger_id)
    for number, size in enumerate(sizes):
        world.add(writer, pen, payload(number, size))
        world.settle()
    world.settle()
    return Scene(world, pen, sizes)


def answer(it: Scene, reader: Client) -> None:
    """The oldest question is asked and answered."""
    it.world.deliver(it.asked(reader)[0])
    it.world.deliver(it.world.packets(reader, kind=ReadAnswer)[0])


def test_two_full_answers_make_a_read_sequential() -> None:
    """RP29: before that one question is out at a time; then several, each of as much as one answer holds."""
    it = scene([LARGE] * 24)
    reader, core = it.read(ReadOptions(ahead_bytes=64 << 20))
    for _ in range(2):
        assert len(it.asked(reader)) == 1
        assert it.asked(reader)[0].control.last_entry == 23  # type: ignore[attr-defined]
        answer(it, reader)
    ranges = [(p.control.first_entry, p.control.last_entry) for p in it.asked(reader)]  # type: ignore[attr-defined]
    assert ranges == [(6, 8), (9, 11), (12, 14)]
    assert len(ranges) * FRAME_BYTES_MAX <= core.options.pipeline_bytes
    answer(it, reader)
    assert len(it.asked(reader)) == 3
    it.world.settle()
    it.check(reader)


def test_a_random_read_asks_for_nothing_ahead() -> None:
    """RP29: what is asked for by itself, or ends with its first answers, costs no more than itself."""
    it = scene([LARGE] * 7)
    reader, _ = it.read()
    while not reader.has_ended:
        assert len(it.asked(reader)) == 1
        answer(it, reader)
    it.check(reader)


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
def test_what_came_before_its_turn_waits(quorum: Quorum) -> None:
    """P6.4: answers in reverse order; the user gets entries in theirs."""
    it = scene([LARGE] * 30, quorum)
    reader, core = it.read(ReadOptions(ahead_bytes=64 << 20, chunk_entries=6))
    while not reader.has_ended:
        for packet in it.world.packets(reader, kind=ReadRequest)[::-1]:
            it.world.deliver(packet)
        for packet in it.world.packets(reader, kind=ReadAnswer)[::-1]:
            before = len(reader.read)
            it.world.deliver(packet)
            assert [entry_id for entry_id, _ in reader.read[before:]] == list(range(before, core.next_entry))
    it.check(reader)


@pytest.mark.parametrize("quorum", [THREE, STRIPED])
def test_what_is_asked_for_here_and_unread_is_bounded(quorum: Quorum) -> None:
    """P6.1: a slow consumer does not fill memory; `ahead_bytes` is what it may cost, and one answer."""
    it = scene([LARGE] * 40, quorum)
    options = ReadOptions(ahead_bytes=3 << 20)
    reader, core = it.read(options)
    chance = random.Random(1)
    while not reader.has_ended:
        packets = it.world.packets(reader)
        if packets:
            it.world.deliver(chance.choice(packets))
        else:
            it.world.consume(reader, core.unread_bytes)
        here = sum(len(chunk.frame.body) for chunk in core.chunks if chunk.frame is not None)
        open_chunks = sum(chunk.frame is None for chunk in core.chunks)
        assert core.unread_bytes + here <= options.ahead_bytes + FRAME_BYTES_MAX
        assert core.unread_bytes + here + (open_chunks - 1) * FRAME_BYTES_MAX < options.ahead_bytes
    it.check(reader)


def test_entries_that_do_not_fit_are_asked_for_again_in_place() -> None:
    """P6.1: sizes change, so an answer may hold fewer than were asked for; no gap comes of it."""
    sizes = [20_000] * 150 + [700_000] * 5 + [20_000] * 30 + [900_000] * 3
    it = scene(sizes)
    reader, _ = it.read(ReadOptions(ahead_bytes=64 << 20))
    it.world.settle()
    it.check(reader)


def test_only_what_is_at_its_turn_can_fail_a_read() -> None:
    """P6.1: copies that cannot be had ahead are given up and asked for again when they are next."""
    it = scene([LARGE] * 24)
    reader, core = it.read(ReadOptions(ahead_bytes=64 << 20))
    answer(it, reader)
    answer(it, reader)
    head, *ahead = it.asked(reader)
    while behind := [packet for packet in it.asked(reader) if packet is not head]:
        it.world.fail(behind[0])  # Every copy of both chunks ahead.
    assert not reader.has_ended
    assert core.retry_at is None
    assert len(ahead) == 2
    it.world.settle()
    it.check(reader)


def test_a_read_fails_where_it_stands_and_not_before() -> None:
    """P6.1: everything before the entry that nobody can give is given."""
    it = scene([LARGE] * 24)
    for node in it.world.nodes.values():
        node.storage.make_unreadable(it.pen.ledger_id, 13)
    reader, _ = it.read(ReadOptions(ahead_bytes=64 << 20))
    it.world.run(until=lambda: reader.has_ended)
    assert isinstance(reader.ended.error, EntryUnreadable)
    assert "entry 13" in str(reader.ended.error)
    assert [entry_id for entry_id, _ in reader.read] == list(range(13))


def test_asking_ahead_is_not_taken_for_slowness() -> None:
    """RP27: answers of one bookie come one after the other; the third is not late because it waits for the first."""
    it = scene([LARGE] * 30)
    reader, core = it.read(ReadOptions(ahead_bytes=64 << 20))
    ms = 1_000_000
    while not reader.has_ended:
        it.world.now_ns += 4 * ms  # For each answer.
        if core.deadline_ns is not None and core.deadline_ns <= it.world.now_ns:
            it.world.tick(reader)
        assert {packet.bookie_id for packet in it.asked(reader)} <= {"b1"}, "a copy was asked as well"
        if it.asked(reader):
            answer(it, reader)
    it.check(reader)


@pytest.mark.parametrize("quorum", [THREE, STRIPED, Quorum(4, 2, 1)])
@pytest.mark.parametrize("seed", range(6))
def test_in_any_weather_everything_comes_once_and_in_order(quorum: Quorum, seed: int) -> None:
    """P6.1, P6.4: sizes, orders, losses and a damaged copy as they come."""
    chance = random.Random(seed)
    sizes = [4 * chance.randrange(chance.choice((10, 50_000, 200_000))) for _ in range(60)]
    it = scene(sizes, quorum)
    bad = it.world.nodes[chance.choice(sorted(it.world.nodes))]
    for entry_id in chance.sample(range(60), 5):
        bad.storage.make_unreadable(it.pen.ledger_id, entry_id)
    options = ReadOptions(ahead_bytes=chance.choice((1, 3 << 20, 64 << 20)), chunk_entries=9)
    reader, core = it.read(options, seat=seed)
    losses = 12
    for _ in range(10_000):
        if reader.has_ended:
            break
        packets = it.world.packets(reader)
        if packets and losses and chance.random() < 0.1:
            losses -= 1
            it.world.fail(chance.choice(packets))
        elif packets:
            it.world.deliver(chance.choice(packets))
        elif core.unread_bytes and chance.random() < 0.8:
            it.world.consume(reader, core.unread_bytes)
        else:
            it.world.run(seconds=1)
    it.check(reader)
