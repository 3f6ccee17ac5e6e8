"""What several metadata members must be able to do once faults have stopped: L5 to L7, I72."""

from __future__ import annotations

from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.operator import OPERATOR
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = [
    "agree_at_last",
    "catches_up",
    "ends_every_change",
    "gets_a_leader",
    "has_leader",
    "keeps_a_leader",
]

ELECTED_BASES = 20  # A leader's silence is noticed, votes are split now and then, absent members come back.
BEGUN_BASES = 60  # L5 is no promise of a network that loses: one world in 20,000 needed more than 20 of them.
# A member that lost its leader just before faults stopped may still ask for votes; links are dialled again.
SETTLED_BASES = 5
KEPT_NS = 3 * SECOND
ABOUT_ELECTIONS_MS = 500  # A base: worlds with a longer one are about something else.
CAUGHT_UP_NS = 60 * SECOND
CHANGED_NS = 120 * SECOND


def has_leader(world: World, within_bases: int = ELECTED_BASES) -> None:
    """L5: members that reach each other elect one of them."""
    base_ns = world.members.election_base_ms * MS
    if not world.run_until(lambda: world.members.leader is not None, within_bases * base_ns):
        raise Violation("L5", f"no leader within {within_bases} election bases: {world.members.describe()}")


def gets_a_leader(world: World) -> None:
    """At its beginning, when its network has its faults already: votes are lost and come seconds late."""
    has_leader(world, BEGUN_BASES)


def catches_up(world: World) -> None:
    """L6: every voter comes to hold what was committed when all was well again."""
    members = world.members
    has_leader(world)
    assert members.watch is not None
    agreed = members.watch.applied_index
    if not world.run_until(
        lambda: all(members.applied(name) >= agreed for name in members.voters), CAUGHT_UP_NS
    ):
        raise Violation("L6", f"entry {agreed} is not everywhere: {members.describe()}")


def keeps_a_leader(world: World) -> None:
    """L5: once faults have stopped there is no election without a cause."""
    members = world.members
    if members.first_base_ms > ABOUT_ELECTIONS_MS:
        return
    world.run_for(SETTLED_BASES * members.election_base_ms * MS)
    has_leader(world)
    term = members.term
    world.run_for(KEPT_NS)
    if members.term != term:
        raise Violation("L5", f"another election in a healed world, term {term}: {members.describe()}")


def ends_every_change(world: World) -> None:
    """L7: every change of the voters that an operator asked for comes to its end, and none is left half way."""
    operators = [actor for actor in world.actors.running if actor.client.startswith(OPERATOR)]
    if not operators:
        return
    if not world.run_until(lambda: all(actor.is_over for actor in operators), CHANGED_NS):
        waits = ", ".join(actor.client for actor in operators if not actor.is_over)
        raise Violation("L7", f"{waits}: the change does not end: {world.members.describe()}")


def agree_at_last(world: World) -> None:
    """I72: at the same entry every member's state is the same."""
    members = world.members
    has_leader(world)
    same = world.run_until(lambda: len({members.applied(name) for name in members.voters}) == 1, CAUGHT_UP_NS)
    if not same:
        raise Violation("L6", f"members do not come to one entry: {members.describe()}")
    sums = {name: world.nodes[name].core.catalog.fast_digest for name in members.voters}
    if len(set(sums.values())) != 1:
        raise Violation("I72", f"the sums of members that are at one entry differ: {sorted(sums)}")
    states = {name: world.nodes[name].core.catalog.digest() for name in members.voters}
    if len(set(states.values())) != 1:
        raise Violation(
            "I72", f"at entry {members.applied(members.voters[0])} states differ: {sorted(states)}"
        )
