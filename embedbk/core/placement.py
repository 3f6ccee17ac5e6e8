"""Which bookies get the seats of an ensemble. Random among the writable, not-avoided ones (RP37).

Leaves to others: when to choose (creation, ensemble change, recovery). Chance is the caller's seeded generator.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from embedbk.core.vocabulary import BookieInfo
from embedbk.ids import Member

__all__ = ["Chance", "choose_bookies"]


class Chance(Protocol):
    """The part of `random.Random` that cores use."""

    def sample(self, population: Sequence[Member], k: int) -> list[Member]: ...

    def getrandbits(self, k: int, /) -> int: ...


def choose_bookies(
    bookies: Sequence[BookieInfo], count: int, exclude: Collection[str], chance: Chance
) -> list[Member]:
    """Up to `count` distinct writable bookies whose id is not excluded; fewer when there are not enough.

    Excluded by id, not by member: a bookie in a new incarnation is still the same machine, and one ensemble
    must not count it twice (P2.4).
    """
    usable = [info.member for info in bookies if info.is_writable and info.member.bookie_id not in exclude]
    return chance.sample(usable, min(count, len(usable)))
