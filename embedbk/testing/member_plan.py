"""Plans for metadata members beside `plan.py`: changes of the voters, and faults while they are under way.

Drawn from a generator of its own, so that plans without any of it stay the same. A world in which voters change has
room for five members, of which one, three or five are there at first; the others are made by its operators
(operator.py).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from embedbk.metadata.quorum import Policy
from embedbk.testing.member_names import member_names

__all__ = ["MORE_MEMBER_KINDS", "Drawn", "More", "draw_more", "draw_raise"]

MS = 1_000_000
MOST = 5

# Kind -> the fault of TESTING.md, section 5, that it is.
MORE_MEMBER_KINDS = {
    "voters-change": "L7", "joint-wipe": "D13", "joint-crash": "P1", "member-rejoin": "D13",
    "beside-pause": "P4", "slow-follower": "P5", "member-duplication": "N2", "member-slow-apply": "P5",
    "follower-old-disk": "D13", "level-raise": "L7", "member-copy": "D13", "member-torn": "D2", "member-flip": "D4",
}  # fmt: skip
_OF_CHANGES = ("joint-wipe", "joint-crash")
_OF_DISKS = (
    "member-copy",
    "member-torn",
    "member-flip",
)  # Drawn from a generator of their own: they came later.
_REST = ("member-rejoin", "beside-pause", "slow-follower", "member-duplication", "member-slow-apply")


class Drawn(NamedTuple):
    """A step of a plan without its number."""

    at_ns: int
    kind: str
    target: str
    other: str
    for_ns: int
    seed: int


@dataclass(slots=True)
class More:
    """members: of the world then; first_members: so many are there at first, 0: all."""

    members: int
    first_members: int = 0
    steps: list[Drawn] = field(default_factory=list)


def draw_more(seed: int, members: int, policy: Policy, duration_ns: int) -> More:
    """For a world of several members. Under `rollback-1` the voters stay: three of them elect no leader after a
    loss."""
    chance = random.Random(f"more of members {seed}")
    more, share = More(members), chance.choice([0.0, 0.0, 0.15, 0.4])
    may_change = policy is Policy.MAJORITY
    if may_change and chance.random() < 0.3:
        more.first_members, more.members = chance.choice([1, 3, 5]), MOST
        names = member_names(MOST)
        at_ns = 0
        for _ in range(chance.choice([1, 2, 3])):
            at_ns += chance.randint(0, max(1, duration_ns // 3))
            more.steps.append(_step(chance, "voters-change", at_ns, names))
            for kind in _OF_CHANGES:
                if chance.random() < 0.4:
                    more.steps.append(_step(chance, kind, at_ns, names))
    if policy is Policy.ROLLBACK_1 and chance.random() < 0.6:
        names = member_names(members)
        more.steps.append(_step(chance, "follower-old-disk", chance.randint(0, duration_ns // 2), names))
    for kind in _REST:
        if chance.random() < share and (may_change or kind != "member-rejoin"):
            for _ in range(chance.choice([1, 1, 2])):
                names = member_names(more.members)
                more.steps.append(_step(chance, kind, chance.randint(0, duration_ns), names))
    disks = random.Random(f"disks of members {seed}")
    share = disks.choice([0.0, 0.0, 0.15, 0.4])
    for kind in _OF_DISKS:
        if disks.random() < share:
            for _ in range(disks.choice([1, 1, 2])):
                at_ns = disks.randint(0, duration_ns)
                more.steps.append(_step(disks, kind, at_ns, member_names(more.members)))
    return more


def draw_raise(seed: int, names: tuple[str, ...], duration_ns: int) -> list[Drawn]:
    """In one of eight worlds the level is raised, while nodes of the build before run."""
    chance = random.Random(f"levels {seed}")
    if chance.random() >= 1 / 8:
        return []
    return [_step(chance, "level-raise", chance.randint(0, duration_ns // 2), names)]


def _step(chance: random.Random, kind: str, at_ns: int, names: tuple[str, ...]) -> Drawn:
    target, other = chance.sample(names, 2)
    return Drawn(
        at_ns, kind, target, other, chance.choice([50, 300, 1_500, 2_000]) * MS, chance.getrandbits(31)
    )
