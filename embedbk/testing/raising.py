"""An operator who raises the cluster's level while nodes of an older build run (METADATA.md, 8; P10.8).

An older build is this one, configured to know an older level: it announces that, and treats newer formats as an older
build does. Decides which nodes are older when, and which are upgraded: those that a leader names as blocking the raise,
one by one.
"""

from __future__ import annotations

from embedbk.codec.metadata_messages import Refusal
from embedbk.codec.quorum_messages import RaiseLevel
from embedbk.metadata.levels import LEVEL, LEVEL_FIRST
from embedbk.testing import stranger
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.clocks import MS
from embedbk.testing.operator import Operator
from embedbk.testing.world import World

__all__ = ["Raiser", "upgrade_all"]

AWAY_NS = 20 * MS  # Time from the end of one build to the start of the other.
STALE_NS = 700 * MS  # How long somebody runs the older build by mistake.


class Raiser(Operator):
    """Goes on until the level is raised, or cannot be."""

    def begin(self) -> None:
        """All run the build before: some are upgraded before anybody asks for the level."""
        world, chance = self._world, self._chance
        share = chance.choice([0.2, 0.5, 1.0])
        for name in [*self._members.names, *world.disks]:
            if chance.random() >= share:
                self._upgrade(name)
        self.go_on()

    def go_on(self) -> None:
        """The operator of one world, which knows the build of each node."""
        self._world.spawn(self.name, self._raise())

    def _raise(self) -> Steps:
        world = self._world
        while True:
            told = yield from self._look()
            if told is not None and told.level >= LEVEL:
                break
            if told is not None:
                results = yield from self.ask([self._endpoint_of(told)], RaiseLevel(LEVEL))
                refused = [each.text for each in results if isinstance(each, Refusal)]
                world.sometimes["level not raised over older builds"] += any(
                    f"knows level {LEVEL_FIRST}" in text for text in refused
                )
                if world.is_healed and any(f" {stranger.LABEL} (" in text for text in refused):
                    return  # Its session lives for ten minutes, and proves nothing.
                if refused and not world.is_healed:
                    self._upgrade_one(refused[0])
            if world.is_healed and len(self._members.voters) < len(self._members.configuration.voters):
                return  # A voter has lost its directory for good, and no member takes its vote.
            yield Sleep(self._chance.choice([30, 100, 400]) * MS)
        world.sometimes["level raised"] += 1
        names = [name for name in (*self._members.names, *world.disks) if name in world.nodes]
        if names and not world.is_healed:
            name = self._chance.choice(names)
            self._restart(name, LEVEL_FIRST)
            yield Sleep(STALE_NS)
            self._upgrade(name)

    def _upgrade_one(self, refused: str) -> None:
        """One of the older nodes that was named, else any: a member that does not run is not named by its build."""
        older = [name for name, level in self._world.levels.items() if level < LEVEL]
        named = [name for name in older if f" {name} (" in refused]
        if older and (named or self._chance.random() < 0.3):
            self._upgrade((named or older)[0])

    def _upgrade(self, name: str) -> None:
        if self._world.levels.get(name, LEVEL) < LEVEL and not self._world.is_healed:
            self._restart(name, LEVEL)

    def _restart(self, name: str, level: int) -> None:
        """Restart it on the same disk, with another build; a node that is down starts with it when its time comes."""
        world = self._world
        if name in world.paused:
            return
        world.levels[name] = level
        if name not in world.nodes:
            return
        world.crash(name)
        world.after(AWAY_NS, lambda: self._come_back(name))

    def _come_back(self, name: str) -> None:
        """A bookie whose disk is harmed stays down until all heals."""
        world = self._world
        if world.is_healed or name in world.nodes:
            return
        if name in self._members:
            self._members.start(name)
        elif name not in world.lost:
            world.start_bookie(name)


def upgrade_all(world: World) -> None:
    """No node runs an older build any more; those that did are down."""
    for name, level in world.levels.items():
        if level < LEVEL and name in world.nodes:
            world.crash(name)
    world.levels.clear()
