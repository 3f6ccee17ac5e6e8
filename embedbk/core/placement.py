"""Which bookies get the seats of an ensemble: random, local first, over racks or zones, by free space (RP37 to RP45).

Leaves to others: when to choose (creation, ensemble change, recovery), and which are in quarantine
(core/quarantine.py). Chance is the caller's seeded generator. A location is text like "zone/rack"; bookies without one
count as in one common place. One that has a seat and is not listed may stand anywhere, so it adds no rack to its write
sets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from embedbk.config import ANYWHERE, Placement, Quorum
from embedbk.core.client_words import BookieInfo
from embedbk.core.quorum import write_set
from embedbk.ids import Member

__all__ = ["Chance", "choose_bookies", "fill_seats", "is_adherent", "span_of"]

# A new and empty bookie gets at most so many times the chance of the median one (RP43).
WEIGHT_MULTIPLE_MAX = 3
DRAWS_MAX = 16  # Tries to find seats that keep the racks apart, before it is done as well as it goes.

Seats = Sequence[Member | None]


class Chance(Protocol):
    """The part of `random.Random` that cores use."""

    def sample(self, population: Sequence[Member], k: int) -> list[Member]: ...

    def getrandbits(self, k: int, /) -> int: ...


def choose_bookies(
    bookies: Sequence[BookieInfo],
    count: int,
    exclude: Collection[str],
    chance: Chance,
    last: Sequence[str] = (),
) -> list[Member]:
    """Up to `count` distinct writable bookies whose id is not excluded; fewer when there are not enough.

    Excluded by id, not by member: a bookie in a new incarnation is still the same machine, and one ensemble
    must not count it twice (P2.4). Bookies in quarantine are taken only when the others are not enough (RP45), and
    those in `last` after them, in that order.
    """
    chosen: list[Member] = []
    for _, infos in _by_turn(_usable(bookies, exclude), last):
        members = [info.member for info in infos]
        chosen += chance.sample(members, min(count - len(chosen), len(members)))
        if len(chosen) == count:
            break
    return chosen


def fill_seats(
    seats: Seats,
    bookies: Sequence[BookieInfo],
    exclude: Collection[str],
    quorum: Quorum,
    placement: Placement,
    chance: Chance,
    last: Sequence[str] = (),
    known: Mapping[Member, str] = {},
) -> list[Member | None]:
    """The seats with as many of the empty ones filled as bookies can be found for; none, where a strict placement
    cannot be kept.

    last: ids of bookies that come behind all others, also behind those in quarantine, in this order. Where a strict
    placement cannot be kept without those in quarantine, or these, it is kept with them. known: locations of bookies
    that are not among these, and have seats.
    """
    vacant = [seat for seat, member in enumerate(seats) if member is None]
    usable = _usable(bookies, exclude)
    if placement == ANYWHERE:
        return _seated(seats, vacant, choose_bookies(bookies, len(vacant), exclude, chance, last))
    locations = {member: _domain(location, placement) for member, location in known.items()}
    locations |= {info.member: _domain(info.location, placement) for info in bookies}
    if not placement.is_strict:
        filled, _ = _best_draw(seats, vacant, usable, locations, quorum, placement, chance, last)
        return filled
    allowed: list[BookieInfo] = []
    for _, infos in _by_turn(usable, last):
        allowed += infos
        drawn = _best_draw(seats, vacant, allowed, locations, quorum, placement, chance, last, is_level=True)
        if drawn.is_adherent and None not in drawn.seats:
            return drawn.seats
    # No bookie is left to improve it: fill as many seats as possible, if they keep the placement.
    drawn = _best_draw(seats, vacant, usable, locations, quorum, placement, chance, last)
    return drawn.seats if drawn.is_adherent else list(seats)


class _Drawn(NamedTuple):
    seats: list[Member | None]
    is_adherent: bool


def _best_draw(
    seats: Seats,
    vacant: list[int],
    usable: list[BookieInfo],
    locations: Mapping[Member, str],
    quorum: Quorum,
    placement: Placement,
    chance: Chance,
    last: Sequence[str],
    *,
    is_level: bool = False,
) -> _Drawn:
    """The first of some draws that spans what it should, else the one that comes nearest. is_level: what they span
    counts before whose turn it is."""
    best: list[Member | None] | None = None
    for _ in range(DRAWS_MAX if placement.domain != "none" else 1):
        filled = _draw(seats, vacant, usable, locations, quorum, placement, chance, last, is_level=is_level)
        _exchange(filled, vacant, locations, quorum, placement)
        if is_adherent(filled, locations, quorum, placement):
            return _Drawn(filled, True)
        if best is None or _spread(filled, locations, quorum, placement) > _spread(
            best, locations, quorum, placement
        ):
            best = filled
    assert best is not None
    return _Drawn(best, False)


def is_adherent(seats: Seats, locations: Mapping[Member, str], quorum: Quorum, placement: Placement) -> bool:
    """Whether every write set spans as many racks or zones as it should (RP38, RP40, RP42)."""
    if placement.domain == "none":
        return True
    wanted = min(placement.domains_min, quorum.write_quorum)
    return all(len(domains) >= wanted for domains in _domains_of_write_sets(seats, locations, quorum))


def span_of(seats: Seats, bookies: Iterable[BookieInfo], quorum: Quorum, placement: Placement) -> int:
    """How near the write sets of these seats are to spanning as many racks or zones as they should; more is nearer."""
    locations = {info.member: _domain(info.location, placement) for info in bookies}
    return 0 if placement.domain == "none" else _spread(seats, locations, quorum, placement)


def _usable(bookies: Sequence[BookieInfo], exclude: Collection[str]) -> list[BookieInfo]:
    return [info for info in bookies if info.is_writable and info.member.bookie_id not in exclude]


def _by_turn(
    infos: Sequence[BookieInfo], last: Sequence[str]
) -> list[tuple[tuple[int, int], list[BookieInfo]]]:
    """The preferred bookies, then those in quarantine (RP45), then those of `last` one by one."""
    places = {bookie_id: place for place, bookie_id in enumerate(last)}
    turns: dict[tuple[int, int], list[BookieInfo]] = {}
    for info in infos:
        place = places.get(info.member.bookie_id)
        turn = (0, int(info.is_quarantined)) if place is None else (1, place)
        turns.setdefault(turn, []).append(info)
    return sorted(turns.items())


def _domain(location: str, placement: Placement) -> str:
    return location.partition("/")[0] if placement.domain == "zone" else location


def _seated(seats: Seats, vacant: Sequence[int], chosen: Iterable[Member]) -> list[Member | None]:
    filled = list(seats)
    for seat, member in zip(vacant, chosen, strict=False):
        filled[seat] = member
    return filled


def _draw(
    seats: Seats,
    vacant: list[int],
    usable: list[BookieInfo],
    locations: Mapping[Member, str],
    quorum: Quorum,
    placement: Placement,
    chance: Chance,
    last: Sequence[str],
    *,
    is_level: bool,
) -> list[Member | None]:
    """Choose seat by seat: a local bookie, then the one that brings most write sets nearer to what they should span,
    then by chance."""
    filled, left = list(seats), list(usable)
    for seat in vacant:
        if not left:
            break
        fit = left if is_level else _by_turn(left, last)[0][1]
        has_local = any(member is not None and member.bookie_id in placement.local for member in filled)
        local = [info for info in left if info.member.bookie_id in placement.local]
        if local and not has_local:
            fit = local  # One seat is always ours, even in quarantine (RP41).
        if placement.domain != "none":
            gains = [_gain(filled, seat, info.member, locations, quorum, placement) for info in fit]
            fit = [info for info, gain in zip(fit, gains, strict=True) if gain == max(gains)]
        fit = _by_turn(fit, last)[0][1]
        info = _weighted(fit, placement, chance)
        filled[seat] = info.member
        left.remove(info)
    return filled


def _gain(
    seats: Seats,
    seat: int,
    member: Member,
    locations: Mapping[Member, str],
    quorum: Quorum,
    placement: Placement,
) -> int:
    """How many write sets of the seat, short of what they should span, would span one domain more."""
    gain = 0
    for entry_id in range(quorum.ensemble_size):
        in_set = write_set(entry_id, quorum)
        if seat in in_set:
            domains = {locations[m] for at in in_set if (m := seats[at]) is not None and m in locations}
            gain += len(domains) < placement.domains_min and locations[member] not in domains
    return gain


def _weighted(infos: Sequence[BookieInfo], placement: Placement, chance: Chance) -> BookieInfo:
    weights = [1] * len(infos)
    if placement.weighs_space:
        median = sorted(info.free_bytes for info in infos)[len(infos) // 2]
        bound = max(1, median * WEIGHT_MULTIPLE_MAX)
        weights = [max(1, min(info.free_bytes, bound)) for info in infos]
    ticket = chance.getrandbits(64) % sum(weights)
    for info, weight in zip(infos, weights, strict=True):
        if ticket < weight:
            return info
        ticket -= weight
    raise AssertionError("a ticket beyond the sum")


def _exchange(
    seats: list[Member | None],
    vacant: list[int],
    locations: Mapping[Member, str],
    quorum: Quorum,
    placement: Placement,
) -> None:
    """Let two newly filled seats change places where that helps: seat by seat, few racks are used up too soon."""
    spread = _spread(seats, locations, quorum, placement)
    for index, seat in enumerate(vacant):
        for other in vacant[:index]:
            if is_adherent(seats, locations, quorum, placement):
                return
            seats[seat], seats[other] = seats[other], seats[seat]
            changed = _spread(seats, locations, quorum, placement)
            if changed > spread:
                spread = changed
            else:
                seats[seat], seats[other] = seats[other], seats[seat]


def _spread(seats: Seats, locations: Mapping[Member, str], quorum: Quorum, placement: Placement) -> int:
    """How near the write sets are to what they should span, together."""
    return sum(
        min(len(domains), placement.domains_min)
        for domains in _domains_of_write_sets(seats, locations, quorum)
    )


def _domains_of_write_sets(seats: Seats, locations: Mapping[Member, str], quorum: Quorum) -> list[set[str]]:
    return [
        {
            locations[member]
            for seat in write_set(entry_id, quorum)
            if (member := seats[seat]) is not None and member in locations
        }
        for entry_id in range(quorum.ensemble_size)
    ]
