"""A client that counts common answers beside its cores, and one whose cores hear each: the same story and ends."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from embedbk.codec.answers import Answers, Counting
from embedbk.codec.answers_twin import TwinAnswers
from embedbk.codec.ledger_metadata import Durability
from embedbk.config import Quorum
from embedbk.core.client_words import AddsAnswered, Answered
from embedbk.core.recovery import Recovery
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import EmbedbkError
from embedbk.host.writing import Writing
from tests.host.place import KEY, MS, Place

QUORUMS = [Quorum(3, 3, 2), Quorum(3, 3, 3), Quorum(3, 3, 1), Quorum(4, 3, 2), Quorum(1, 1, 1)]
OPTIONS = [WriterOptions(), WriterOptions(delays_change=True), WriterOptions(add_timeout_ns=40 * MS)]
SIDES: list[Callable[[], Counting] | None] = [Answers, TwinAnswers, None]


class Side:
    """One cluster with one client that writes and one that takes over."""

    def __init__(self, counting: Callable[[], Counting] | None) -> None:
        self.place = Place(bookies=5)
        self.client = self.place.start_client(counting=counting)
        self.other = self.place.start_client("c2")
        self.writings: list[Writing] = []
        self.kinds = {Answered: 0, AddsAnswered: 0}
        self.client.on_step = self.note

    def note(self, core: Any, event: Any, effects: Any) -> None:
        if type(event) in self.kinds:
            self.kinds[type(event)] += 1

    def told(self) -> list[Any]:
        """What each handle's user may know."""
        return [
            (writing.lac, writing.received, writing.length, writing.is_over, writing.ensemble_changes,
             type(writing.error), writing.core.metadata, writing.core.lap)
            for writing in self.writings
        ]  # fmt: skip


class Thrice:
    """The same story on every side."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.sides = [Side(counting) for counting in SIDES]
        self.down: dict[str, list[Any]] = {}

    def each(self, do: Callable[[Side], None]) -> None:
        for side in self.sides:
            do(side)

    def open(self) -> None:
        if len(self.sides[0].writings) < 20 and not self.down:
            quorum, options = self.chance.choice(QUORUMS), self.chance.choice(OPTIONS)
            durability = self.chance.choice([Durability.SYNCED, Durability.SYNCED, Durability.DEFERRED])
            held = list(self.sides[0].place.held)
            self.each(lambda side: side.place.held.clear())

            def do(side: Side) -> None:
                writing = side.place.write(side.client, quorum, options, durability)
                writing.core.ensemble.candidates.chance = random.Random(
                    len(side.writings)
                )  # Handles fail in no order.
                side.writings.append(writing)

            self.each(do)
            self.each(lambda side: side.place.held.update(held))

    def append(self) -> None:
        if not self.sides[0].writings:
            return
        number = self.chance.randrange(len(self.sides[0].writings))
        payloads = [
            self.chance.randbytes(self.chance.choice([0, 3, 900])) for _ in range(self.chance.randint(1, 4))
        ]

        def do(side: Side) -> None:
            with contextlib.suppress(EmbedbkError):  # It failed, or is being closed: the same on every side.
                for payload in payloads:
                    side.writings[number].try_append(payload)

        self.each(do)

    def hold(self) -> None:
        name = f"b{self.chance.randint(1, 5)}"
        self.each(lambda side: side.place.held.symmetric_difference_update({name}))

    def crash(self) -> None:
        name = next(iter(self.down), f"b{self.chance.randint(1, 5)}")
        if name in self.down:
            survivors = self.down.pop(name)
            for side, left in zip(self.sides, survivors, strict=True):
                side.place.start_bookie(name, left)
        elif not self.down:
            self.down[name] = [side.place.crash(name) for side in self.sides]

    def take_over(self) -> None:
        if self.sides[0].writings and self.chance.random() < 0.3:
            number = self.chance.randrange(len(self.sides[0].writings))

            def do(side: Side) -> None:
                core = side.writings[number].core
                recovery = Recovery(
                    core.metadata, core.changes.revision, KEY, 77, side.other.bookies, random.Random(1)
                )
                side.place.start(side.other, recovery)

            self.each(do)

    def close(self) -> None:
        if self.sides[0].writings and self.chance.random() < 0.3:
            number = self.chance.randrange(len(self.sides[0].writings))
            self.each(lambda side: side.client.close_writing(side.place.now_ns, side.writings[number]))

    def pass_time(self) -> None:
        passed_ns = self.chance.choice([1, 6, 50, 300]) * MS
        self.each(lambda side: setattr(side.place, "now_ns", side.place.now_ns + passed_ns))

    def turn(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            self.each(lambda side: side.place.turn())
            ends = [side.told() for side in self.sides]
            assert ends[0] == ends[2], "counted in C, and by the cores alone"
            assert ends[1] == ends[2], "counted in Python, and by the cores alone"


@pytest.mark.parametrize("seed", range(8))
def test_the_same_acknowledgements_with_and_without(seed: int) -> None:
    """P3.3, P3.6, P3.8, P4: whatever happens, the users of both hear the same, turn by turn."""
    chance = random.Random(f"counted {seed}")
    thrice = Thrice(chance)
    story: list[tuple[int, Callable[[], None]]] = [
        (6, thrice.open), (60, thrice.append), (40, thrice.turn), (6, thrice.hold), (2, thrice.crash),
        (1, thrice.take_over), (1, thrice.close), (6, thrice.pass_time),
    ]  # fmt: skip
    weights, acts = zip(*story, strict=True)
    for act in [thrice.open, thrice.open, *chance.choices(acts, weights, k=600)]:
        act()
    thrice.each(lambda side: side.place.held.clear())
    for _ in range(12):
        thrice.turn()
        thrice.pass_time()
    counted, twin, alone = thrice.sides
    assert counted.kinds == twin.kinds
    assert counted.kinds[AddsAnswered] > 8, "the story hardly counted"
    assert alone.kinds[AddsAnswered] == 0
    over = [side.client._counted for side in thrice.sides if all(w.is_over for w in side.writings)]
    assert not any(counted.uncommon for counted in over if counted is not None)
    thrice.each(lambda side: side.place.close())


def test_an_answer_beyond_the_quorum_waits_for_other_news() -> None:
    """P3.3: two of three make an entry; the third is told with what comes next, or soon: it frees a frame's memory."""
    place = Place()
    client = place.start_client()
    writing = place.write(
        client, options=WriterOptions(explicit_lac_ns=100 * MS)
    )  # Nothing else is due soon.
    place.held.add("b3")
    writing.try_append(b"x")
    place.turns()
    assert writing.lac == 0
    place.held.clear()
    place.turns()
    (untold,) = [seating for seating in writing.core.in_flight.seatings if seating.owed]
    assert untold.member.bookie_id == "b3"
    due = client.deadline_ns()
    assert due is not None and due <= place.now_ns + 5 * MS
    place.now_ns += 6 * MS
    place.turns()
    assert not any(seating.owed for seating in writing.core.in_flight.seatings)
    assert all(not peer.outstanding for peer in client._links.by_member.values())
    place.close()


@pytest.mark.parametrize("counting", SIDES)
def test_a_failed_seat_makes_every_answer_news(counting: Callable[[], Counting] | None) -> None:
    """P4.2: from when a change is under way, a frame may need the answer that it had no need of before."""
    place = Place(bookies=4)
    client = place.start_client(counting=counting)
    writing = place.write(client)
    held = [member.bookie_id for member in writing.core.metadata.fragments[-1].members][:2]
    place.held.update(held)
    writing.try_append(b"x")
    place.turns()
    assert writing.lac == -1
    place.crash(held[0])
    place.held.discard(held[0])
    place.until(lambda: writing.lac == 0)
    assert writing.ensemble_changes == 1
    writing.try_append(b"y")
    place.held.clear()
    place.until(lambda: writing.lac == 1)
    assert not (client._counted and client._counted.uncommon) and writing.is_common
    place.close()


def test_while_a_change_is_under_way_every_answer_is_news() -> None:
    """P4.2: until its outcome is settled, and for what was sent before."""
    place = Place(bookies=4)
    client = place.start_client()
    writing = place.write(client)
    assert client._answers is not None
    first = writing.core.metadata.fragments[-1].members[0].bookie_id
    place.held.add("metadata")
    place.crash(first)
    writing.try_append(b"x")
    place.turns()
    assert writing.core.changes.proposal is not None
    assert client._answers.is_eager and not writing.is_common
    place.held.clear()
    place.until(lambda: writing.ensemble_changes == 1)
    writing.try_append(b"y")
    place.until(lambda: writing.lac == 1)
    assert not client._answers.is_eager and writing.is_common
    place.close()


def test_answers_before_the_end_of_a_link_count() -> None:
    """What was counted is told before the failure of what the link still owed."""
    place = Place(bookies=3)
    client = place.start_client()
    writing = place.write(client, Quorum(3, 3, 3))
    names = [member.bookie_id for member in writing.core.metadata.fragments[-1].members]
    place.held.update(names[1:])
    writing.try_append(b"x")
    place.turns()
    assert client._answers is not None and client._answers.untold == 1
    place.crash(names[0])
    place.turns(2)
    (pending,) = writing.core.in_flight.pending.values()
    assert pending.acked.bit_count() == 1
    place.close()
