"""Placement and quarantine (RP37 to RP45): who gets the seats of an ensemble. P2.4 holds for every policy."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from embedbk.config import ANYWHERE, Placement, Quorum
from embedbk.core.client_words import BookieInfo, BookiesChanged
from embedbk.core.creation import Creation, Patience
from embedbk.core.metadata_words import IdsAllocated, Transact
from embedbk.core.placement import WEIGHT_MULTIPLE_MAX, fill_seats, is_adherent
from embedbk.core.quarantine import BOOKIES_MAX, ERRORS_MAX, GOOD_ANSWERS, HELD_NS, WITHIN_NS, Quarantine
from embedbk.core.quorum import write_set
from embedbk.core.vocabulary import Started
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import NotEnoughBookies, UsageError
from embedbk.ids import Member
from tests.rules.world import Pen, World, member

RACKS = Placement(domain="rack")


def bookies(*racks: str, free_bytes: int = 0) -> tuple[BookieInfo, ...]:
    """b1, b2 ... in these places."""
    return tuple(
        BookieInfo(member(f"b{number}"), True, rack, free_bytes) for number, rack in enumerate(racks, 1)
    )


def choose(
    infos: tuple[BookieInfo, ...], quorum: Quorum, placement: Placement, seed: int = 0
) -> list[str | None]:
    filled = fill_seats([None] * quorum.ensemble_size, infos, (), quorum, placement, random.Random(seed))
    return [seat.bookie_id if seat else None for seat in filled]


def racks_of(names: list[str | None], infos: tuple[BookieInfo, ...], quorum: Quorum) -> list[int]:
    """How many racks each write set spans."""
    where = {info.member.bookie_id: info.location for info in infos}
    return [
        len({where[name] for seat in write_set(entry_id, quorum) if (name := names[seat])})
        for entry_id in range(quorum.ensemble_size)
    ]


@pytest.mark.parametrize(
    "placement", [ANYWHERE, RACKS, Placement(weighs_space=True), Placement(local=("b2",))]
)
def test_any_policy_seats_distinct_usable_bookies(placement: Placement) -> None:
    """P2.4, RP37: never one bookie twice, never a read-only or an excluded one; empty seats when there are too few."""
    infos = (*bookies("a", "b", "a"), BookieInfo(member("b4"), False, "c"))
    for seed in range(20):
        filled = fill_seats(
            [None, None, None], infos, {"b3"}, Quorum(3, 2, 2), placement, random.Random(seed)
        )
        names = [seat.bookie_id for seat in filled if seat]
        assert sorted(names) == ["b1", "b2"]


def test_the_same_seed_gives_the_same_seats() -> None:
    infos = bookies(*"aabbcc", free_bytes=5)
    for placement in (ANYWHERE, RACKS, Placement(domain="rack", weighs_space=True, local=("b5",))):
        assert choose(infos, Quorum(3, 3, 2), placement, 7) == choose(infos, Quorum(3, 3, 2), placement, 7)


@pytest.mark.parametrize(
    ("racks", "quorum"),
    [
        ("aaab", Quorum(3, 3, 2)),
        ("aabb", Quorum(4, 2, 2)),
        ("aabbcc", Quorum(5, 3, 2)),
        ("aaaabb", Quorum(6, 3, 2)),
    ],
)
def test_every_write_set_spans_two_racks_where_that_can_be_had(racks: str, quorum: Quorum) -> None:
    """RP38: each write set, not only the ensemble."""
    infos = bookies(*racks)
    for seed in range(30):
        assert min(racks_of(choose(infos, quorum, RACKS, seed), infos, quorum)) >= 2


def test_a_zone_is_what_stands_before_the_slash() -> None:
    """RP40: three zones desired; two racks of one zone are one place."""
    infos = bookies("z1/a", "z1/b", "z1/c", "z2/a", "z3/a")
    placement = Placement(domain="zone", domains_min=3, is_strict=True)
    for seed in range(20):
        names = choose(infos, Quorum(3, 3, 2), placement, seed)
        assert {"b4", "b5"} <= set(names)


def test_best_effort_or_nothing() -> None:
    """RP38, RP42: where the racks are too few, either as well as it goes or not at all."""
    infos = bookies("a", "a", "a", "a")
    assert None not in choose(infos, Quorum(3, 3, 2), RACKS)
    assert choose(infos, Quorum(3, 3, 2), Placement(domain="rack", is_strict=True)) == [None] * 3


def test_adherence_is_judged_write_set_by_write_set() -> None:
    """RP42."""
    seats = [member("b1"), member("b2"), member("b3"), member("b4")]
    where = dict(zip(seats, "aabb", strict=True))
    assert not is_adherent(seats, where, Quorum(4, 2, 2), RACKS)
    assert is_adherent(seats, where, Quorum(4, 3, 2), RACKS)
    assert is_adherent(seats, where, Quorum(4, 2, 2), ANYWHERE)


def test_who_has_a_seat_and_is_not_listed_stands_nowhere_unless_it_is_known() -> None:
    """RP40 (seed 70760253): it may stand in the very rack of all others."""
    quorum, strict = Quorum(3, 3, 2), Placement(domain="rack", is_strict=True)
    listed = bookies("z/3", "z/1", "z/1", "z/1")[3:]  # b4 in z/1; b2 and b3 are away for a moment.
    seats = [None, member("b2"), member("b3")]

    def filled(known: dict[Member, str]) -> list[str | None]:
        found = fill_seats(seats, listed, ("b2", "b3"), quorum, strict, random.Random(1), known=known)
        return [seat.bookie_id if seat else None for seat in found]

    assert filled({}) == filled({member("b2"): "z/1"}) == [None, "b2", "b3"]
    assert filled({member("b2"): "z/2"}) == ["b4", "b2", "b3"]


@pytest.mark.parametrize("third", ["z/1", "z/2"])
def test_a_writer_knows_where_those_stand_that_left_the_list(third: str) -> None:
    """RP40 (seed 70760253): b2 and b3 go on in their seats, and their sessions ended; b1 failed, and b4 alone is there
    to take its seat."""
    strict = Placement(domain="rack", is_strict=True)
    world, pen = World(4), Pen(1)
    infos = bookies("z/3", "z/1", third, "z/1")
    writer = world.writer(*world.create(), options=WriterOptions(placement=strict))
    core: Any = writer.core
    core.step(BookiesChanged(world.now_ns, infos))
    core.step(BookiesChanged(world.now_ns, infos[3:]))
    assert core.ensemble.candidates.unlisted == {info.member: info.location for info in infos[:3]}
    world.down.add("b1")
    world.add(writer, pen, b"one")
    world.settle()
    metadata, _ = world.catalog.metadata(pen.ledger_id)
    seated = [each.bookie_id for each in metadata.fragments[-1].members]
    assert seated == (["b1", "b2", "b3"] if third == "z/1" else ["b4", "b2", "b3"])
    core.step(BookiesChanged(world.now_ns, infos[1:]))
    assert core.ensemble.candidates.unlisted.keys() <= {infos[0].member}


def test_a_local_bookie_always_takes_one_seat() -> None:
    """RP41: one, and not all of them."""
    infos = bookies(*"aaaaaa")
    for seed in range(20):
        assert "b6" in choose(infos, Quorum(3, 3, 2), Placement(local=("b6",)), seed)
    both = Counter(
        len({"b5", "b6"} & set(choose(infos, Quorum(2, 2, 2), Placement(local=("b5", "b6")), seed)))
        for seed in range(50)
    )
    assert both[0] == 0
    assert both[1] > 0


def test_free_space_weighs_within_its_bound() -> None:
    """RP43: an empty newcomer gets more, and not everything."""
    infos = tuple(info._replace(free_bytes=100) for info in bookies(*"aaaaa"))
    infos = (*infos[:4], infos[4]._replace(free_bytes=10**12))
    counts = Counter(
        choose(infos, Quorum(1, 1, 1), Placement(weighs_space=True), seed)[0] for seed in range(1400)
    )
    others = sum(counts[f"b{number}"] for number in range(1, 5)) / 4
    assert 0.7 * WEIGHT_MULTIPLE_MAX < counts["b5"] / others < 1.4 * WEIGHT_MULTIPLE_MAX


def test_a_replacement_keeps_the_racks_apart() -> None:
    """RP38, P4.1: whoever stays counts."""
    infos = bookies(*"aabb")
    seats = [member("b1"), None, member("b2")]
    for seed in range(20):
        filled = fill_seats(seats, infos, {"b1", "b2"}, Quorum(3, 2, 2), RACKS, random.Random(seed))
        assert filled[1] in (member("b3"), member("b4"))
        assert filled[0] == member("b1")


def test_who_comes_last_is_taken_behind_all_others_in_its_order() -> None:
    """P4.5, RP45: behind those in quarantine too, with any placement."""
    plain = bookies("r1", "r2", "r3", "r1", "r2")
    infos = (plain[0], *(info._replace(is_quarantined=info is plain[1]) for info in plain[1:]))
    for placement in (ANYWHERE, RACKS):
        for count, expected in (
            (1, {"b3"}),
            (2, {"b3", "b2"}),
            (3, {"b3", "b2", "b5"}),
            (4, {"b3", "b2", "b5", "b1"}),
        ):
            filled = fill_seats(
                [None] * count,
                infos,
                {"b4"},
                Quorum(count, count, 1),
                placement,
                random.Random(0),
                ["b5", "b1"],
            )
            assert {member.bookie_id for member in filled if member is not None} == expected


def test_a_strict_placement_is_kept_by_those_who_come_last_where_it_cannot_be_kept_without() -> None:
    """RP40, RP45: the only bookie of another rack is in quarantine, or comes last: last is not never."""
    strict = Placement(domain="rack", is_strict=True)
    plain = bookies("r1", "r1", "r1", "r2")
    held = (*plain[:3], plain[3]._replace(is_quarantined=True))
    for infos, last in ((held, ()), (plain, ("b4",))):
        for seed in range(20):
            filled = fill_seats([None] * 2, infos, (), Quorum(2, 2, 1), strict, random.Random(seed), last)
            names = {member.bookie_id for member in filled if member is not None}
            assert len(names) == 2
            assert "b4" in names
    free = (*held, BookieInfo(Member("b5", b"5" * 16), True, "r2"))
    for seed in range(20):
        filled = fill_seats([None] * 2, free, (), Quorum(2, 2, 1), strict, random.Random(seed))
        assert "b4" not in {member.bookie_id for member in filled if member is not None}


def test_a_strict_placement_that_cannot_be_kept_creates_nothing() -> None:
    """RP38, CL01: refused for certain, with who stands where."""
    core = Creation(
        Quorum(3, 3, 2), bytes(32), 0, {}, bookies(*"aaa"), random.Random(0), 0,
        Placement(domain="rack", is_strict=True),
    )  # fmt: skip
    core.step(Started(0))
    (end,) = core.step(IdsAllocated(0, "id", 7))
    assert isinstance(end.error, NotEnoughBookies)
    assert end.error.definite
    assert "b2 in a" in str(end.error)


def test_a_strict_placement_waits_for_who_is_away() -> None:
    """RP38, CL01: the one bookie of another rack is known and not there just now."""
    core = Creation(
        Quorum(3, 3, 2), bytes(32), 0, {}, bookies(*"aaa"), random.Random(0), 0,
        Placement(domain="rack", is_strict=True), patience=Patience(10, ("b1", "b2", "b3", "b4")),
    )  # fmt: skip
    core.step(Started(0))
    assert core.step(IdsAllocated(0, "id", 7)) == []
    assert core.deadline_ns == 10
    (put,) = core.step(BookiesChanged(5, bookies(*"aaab")))
    assert isinstance(put, Transact)
    assert core.deadline_ns is None


def test_a_writer_replaces_by_its_ledger_s_placement() -> None:
    """RP38, P4.1: chosen per ledger."""
    world = World(5)
    racks = dict(zip(world.nodes, "aabab", strict=True))
    metadata, revision = world.create()  # b1 b2 b3 in a a b
    writer = world.writer(metadata, revision, options=WriterOptions(placement=RACKS))
    writer.core.changes.bookies = tuple(
        info._replace(location=racks[info.member.bookie_id]) for info in world.bookies
    )
    world.down.add("b3")
    world.add(writer, Pen(1), b"zero")
    world.settle()
    names = [m.bookie_id for m in world.catalog.metadata(1)[0].fragments[-1].members]
    assert names == ["b1", "b2", "b5"]


@pytest.mark.parametrize("given", [{"domain": "moon"}, {"domains_min": 0}, {"domains_min": "2"}])
def test_a_placement_that_there_is_not_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="allowed"):
        Placement(**given)  # type: ignore[arg-type]


# Quarantine (RP45).


def held_after(quarantine: Quarantine, errors: int, every_ns: int) -> bool:
    told = [quarantine.note_error("b1", number * every_ns) for number in range(errors)]
    return True in told


def test_many_errors_in_a_short_time_and_no_new_seat() -> None:
    """RP45: so many within a minute; fewer, or slower, are the writer's own business (P4.1)."""
    assert not held_after(Quarantine(), ERRORS_MAX - 1, 1)
    assert not held_after(Quarantine(), 3 * ERRORS_MAX, 1 + WITHIN_NS // (ERRORS_MAX - 1))
    assert held_after(Quarantine(), ERRORS_MAX, 1)


def test_quarantine_ends_in_time_or_early() -> None:
    """RP45: after its time, after good answers in a row, or with a new registration (early release)."""
    quarantine = Quarantine()
    held_after(quarantine, ERRORS_MAX, 0)
    assert quarantine.deadline_ns == HELD_NS
    assert not quarantine.expire(HELD_NS - 1)
    assert quarantine.expire(HELD_NS)
    held_after(quarantine, ERRORS_MAX, 0)
    assert True not in [quarantine.note_good("b1") for _ in range(GOOD_ANSWERS - 1)]
    quarantine.note_error("b1", 5)
    assert True not in [quarantine.note_good("b1") for _ in range(GOOD_ANSWERS - 1)]
    assert quarantine.note_good("b1")
    held_after(quarantine, ERRORS_MAX, 0)
    assert quarantine.release("b1")
    assert quarantine.is_idle


def test_what_quarantine_remembers_is_bounded() -> None:
    quarantine = Quarantine()
    for number in range(BOOKIES_MAX + 5):
        quarantine.note_error(f"b{number}", 0)
    assert len(quarantine.errors) == BOOKIES_MAX


@pytest.mark.parametrize("placement", [ANYWHERE, RACKS])
def test_who_is_in_quarantine_is_chosen_only_where_nobody_else_is_left(placement: Placement) -> None:
    """RP45."""
    infos = bookies(*"abab")
    infos = (infos[0]._replace(is_quarantined=True), *infos[1:])
    for seed in range(20):
        assert "b1" not in choose(infos, Quorum(3, 3, 2), placement, seed)
    assert sorted(map(str, choose(infos, Quorum(4, 2, 2), placement))) == ["b1", "b2", "b3", "b4"]


def test_a_member_is_known_by_its_place_also_in_another_incarnation() -> None:
    """P2.4: excluded by id, not by incarnation."""
    infos = (BookieInfo(Member("b1", bytes(16)), True, "a"), *bookies("a", "b"))
    filled = fill_seats([None], infos, {"b1"}, Quorum(1, 1, 1), RACKS, random.Random(0))
    assert filled == [member("b2")]
