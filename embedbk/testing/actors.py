"""Applications in the processes of simulated clients: generators that wait for a time or for a fact about their node.

An actor's steps run between its node's turns, by its client's clock. They stand still while the process is paused, and
end with it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from embedbk.errors import EmbedbkError
from embedbk.testing.clocks import SECOND

if TYPE_CHECKING:
    from embedbk.testing.world import World

__all__ = ["Actor", "Actors", "Sleep", "Steps", "Until"]


@dataclass(frozen=True, slots=True)
class Sleep:
    """An actor yields this to continue later, by its client's own clock."""

    duration_ns: int


@dataclass(frozen=True, slots=True)
class Until:
    """An actor yields this to continue when a fact about its client's node holds: it is sent True, or False when the
    time was over first."""

    is_reached: Callable[[], bool]
    timeout_ns: int = 60 * SECOND


Steps = Generator[Sleep | Until, Any, None]


class Actor:
    """An application in a client's process: its steps run between the node's turns, and end with the process."""

    def __init__(self, client: str, steps: Steps) -> None:
        self.client = client
        self.steps = steps
        self.waits: Until | None = None
        self.turn = 0  # Tells a timer that it is of an earlier wait.
        self.is_over = False
        self.error: Exception | None = None


class Actors:
    """The applications of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.running: list[Actor] = []
        # Actions of a paused client's actors, put off.
        self._deferred: dict[str, list[Callable[[], None]]] = {}

    def spawn(self, client: str, steps: Steps) -> Actor:
        """Run an application's steps in a client's process."""
        actor = Actor(client, steps)
        self.running.append(actor)
        self._go_on(actor, actor.turn, None)
        return actor

    def on_turn(self, client: str) -> None:
        """Its node has had a turn: let those go on whose fact holds."""
        for actor in self.running:
            if actor.client == client and actor.waits is not None and actor.waits.is_reached():
                self._go_on(actor, actor.turn, True)

    def _go_on(self, actor: Actor, turn: int, value: Any) -> None:
        if actor.is_over or actor.turn != turn:
            return
        if actor.client in self._world.paused:
            self._deferred.setdefault(actor.client, []).append(partial(self._go_on, actor, turn, value))
            return
        actor.turn += 1
        while True:
            actor.waits = None
            try:
                wish = actor.steps.send(value)
            except StopIteration:
                actor.is_over = True
            except (EmbedbkError, TimeoutError) as error:
                actor.is_over, actor.error = True, error
                self._world.note(f"{actor.client}: ends with {type(error).__name__}: {error}")
            if actor.is_over:
                self.running = [other for other in self.running if other is not actor]
                return
            clock = self._world.clock(actor.client)
            now = self._world.network.now_ns
            if isinstance(wish, Sleep):
                due = clock.time(clock.local(now) + wish.duration_ns)
                self._world.at(due, partial(self._go_on, actor, actor.turn, None))
                return
            if not wish.is_reached():
                actor.waits = wish
                due = clock.time(clock.local(now) + wish.timeout_ns)
                self._world.at(due, partial(self._time_over, actor, actor.turn))
                return
            value = True

    def _time_over(self, actor: Actor, turn: int) -> None:
        if not actor.is_over and actor.turn == turn and actor.waits is not None:
            self._go_on(actor, turn, actor.waits.is_reached())

    def on_resumed(self, client: str) -> None:
        for act in self._deferred.pop(client, []):
            self._world.after(0, act)

    def on_crash(self, client: str) -> None:
        """Its process ended, and its applications with it."""
        self._deferred.pop(client, None)
        for actor in self.running:
            if actor.client == client and not actor.is_over:
                actor.is_over = True
                actor.turn += 1
                actor.steps.close()
        self.running = [actor for actor in self.running if not actor.is_over]

    def close(self) -> None:
        for actor in self.running:
            if not actor.is_over:
                actor.is_over = True
                actor.steps.close()
