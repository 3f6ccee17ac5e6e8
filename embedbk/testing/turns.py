"""The time of a world. A turn moves it to the next thing that happens anywhere, and steps only the nodes that it
concerns; disks sync when the world decides.

    network ── something arrived ──▶ step its node ──▶ its disk has something ──▶ sync later
    timers ── deadline of a node, sync of a disk, an actor that sleeps, a fault of the plan
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from embedbk.host.bookie_node import BookieNode
from embedbk.testing.bookie_processes import tell_found
from embedbk.testing.clocks import MS, SECOND, TRUE, Clock
from embedbk.testing.disks import BookieDisk
from embedbk.testing.process_names import bookie_of
from embedbk.testing.violation import Violation
from embedbk.testing.writing_handles import tell_of_appends

if TYPE_CHECKING:
    from embedbk.testing.world import World

__all__ = ["WorldTurns"]

STEPS_MAX = 2_000_000  # The bound of one run: a protocol that spins is a failure, not a slow run (L14).
SAME_TIME_MAX = 100_000  # Timers at one moment: more are a wait that begins itself again (L14).
SYNC_NS = (50_000, 2 * MS)


class WorldTurns:
    """When each node of a world is stepped, and when each disk syncs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._network = world.network
        self.steps = 0
        self._timers: list[tuple[int, int, Callable[[], object]]] = []
        self._timer_count = 0
        self._due: dict[str, int] = {}  # The next turn of a node for which a timer stands.
        self._syncing: set[str] = set()

    def at(self, when_ns: int, act: Callable[[], object]) -> None:
        """Do this when the world's time is when_ns."""
        self._timer_count += 1
        heapq.heappush(self._timers, (max(when_ns, self._network.now_ns), self._timer_count, act))

    def after(self, delay_ns: int, act: Callable[[], object]) -> None:
        self.at(self._network.now_ns + delay_ns, act)

    def run_until(self, is_reached: Callable[[], bool], within_ns: int = 60 * SECOND) -> bool:
        """Run until the fact holds; False when it does not within that time."""
        give_up = self._network.now_ns + within_ns
        while not is_reached():
            if self._network.now_ns >= give_up:
                return False
            self.turn(give_up)
        return True

    def run_for(self, duration_ns: int) -> None:
        end = self._network.now_ns + duration_ns
        while self._network.now_ns < end:
            self.turn(end)

    def turn(self, latest_ns: int) -> None:
        """Everything of the next moment at which anything happens, at the latest of latest_ns."""
        when = latest_ns
        if self._timers and self._timers[0][0] < when:
            when = self._timers[0][0]
        arrival = self._network.next_event_ns()
        if arrival is not None and arrival < when:
            when = arrival
        self._network.advance(max(when, self._network.now_ns))
        for name in self._network.take_ready():
            self._turn_of(name)
        timers, fired = self._timers, 0
        while timers and timers[0][0] <= when:
            heapq.heappop(timers)[2]()
            fired += 1
            if fired > SAME_TIME_MAX:
                raise Violation(
                    "L14", f"time stands still at {when} ns: something is begun again without end"
                )

    def _turn_of(self, name: str) -> None:
        """A node has something to do: now, or after a while if it is slow."""
        if name not in self._world.nodes or name in self._world.paused:
            return
        slow_ns = self._world.slow_ns.get(name)
        if slow_ns:
            self.plan_turn(name, self._network.now_ns + slow_ns)
        else:
            self.step(name)

    def step(self, name: str) -> None:
        """One turn of a node, now."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise Violation("L14", f"the cluster does not come to rest: {STEPS_MAX} steps")
        node = self._world.nodes[name]
        clock = self._world.clocks.get(name, TRUE)
        if self._world.has_near and name in self._world.writings:
            self._world.near.turn(name)  # The loop waited until now.
        # No event tells of a copy of a bookie that has no place in the list.
        was_dark = isinstance(node, BookieNode) and bookie_of(name) == name and node.rebuild.is_looking
        node.step(clock.local(self._network.now_ns))
        if was_dark:
            tell_found(self._world, name, node.storage, "on_found_late")
        if name in self._world.writings:
            self._world.near.tell_stored(name)
            tell_of_appends(self._world, name)
            self._world.actors.on_turn(name)
            if self._world.has_near and name in self._world.writings and self._world.near.turn(name):
                self._world.near.tell_stored(name)
        elif name not in self._syncing and self.has_pending(name):
            self.plan_sync(name)
        if self._world.nodes.get(name) is node:
            self.plan_deadline(name, node, clock)

    def plan_deadline(self, name: str, node: Any, clock: Clock) -> None:
        if node.transport.has_events():
            self.plan_turn(name, self._network.now_ns)
            return
        deadline = node.deadline_ns()
        if deadline is not None:
            self.plan_turn(name, max(clock.time(deadline), self._network.now_ns))

    def plan_turn(self, name: str, when_ns: int) -> None:
        due = self._due.get(name)
        if due is not None and due <= when_ns:
            return  # It is stepped before, and asked again then.
        self._due[name] = when_ns
        self.at(when_ns, partial(self._timed_turn, name, when_ns))

    def _timed_turn(self, name: str, when_ns: int) -> None:
        if self._due.get(name) != when_ns:
            return
        del self._due[name]
        if name in self._world.nodes and name not in self._world.paused:
            self.step(name)

    # Syncs of disks.

    def has_pending(self, name: str) -> bool:
        if name in self._world.members:
            return self._world.members.is_pending(name)
        disk = self.disk_of(name)
        return disk is not None and disk.is_pending()

    def disk_of(self, name: str) -> BookieDisk | None:
        """Under the process of this name."""
        return self._world.disks.get(name) or self._world.twins.disk(name)

    def plan_sync(self, name: str) -> None:
        if name in self._syncing:
            return
        self._syncing.add(name)
        self.after(
            self._world.chance.randint(*self._world.sync_ns.get(name, SYNC_NS)),
            partial(self._sync, name, self._world.nodes[name]),
        )

    def hurry_syncs(self) -> None:
        """Syncs that a slow disk has under way take no longer than on any other from now on."""
        names = sorted(self._syncing)
        self._syncing.clear()
        for name in names:
            self.plan_sync(name)

    def _sync(self, name: str, node: Any) -> None:
        if self._world.nodes.get(name) is not node:
            return  # The process has crashed since.
        self._syncing.discard(name)
        if name in self._world.paused:
            return  # Planned again when it continues.
        if name in self._world.members:
            self._world.members.sync(name)
        else:
            disk = self.disk_of(name)
            assert disk is not None
            token = disk.sync()
            if bookie_of(name) == name:
                self._world.tell("on_durable", name, token)
                self._world.near.on_durable(name, self._world.nodes[name], token)
        self.step(name)

    def forget(self, name: str) -> None:
        """The process of this name ended, or is another one now."""
        self._due.pop(name, None)
        self._syncing.discard(name)
