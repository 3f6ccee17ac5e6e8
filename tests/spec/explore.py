"""Walking the states of a specification: breadth first to the end, or at random along one path after another."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

__all__ = ["Explored", "Specification", "explore", "wander"]

S = TypeVar("S")


class Specification(Protocol[S]):
    def initial(self) -> S: ...
    def steps(self, state: S) -> list[tuple[str, S]]: ...
    def broken(self, state: S) -> str | None: ...


@dataclass
class Explored(Generic[S]):
    distinct: int
    generated: int  # With the initial state, and every repetition, as model checkers count them.
    depth: int  # States on the longest of the shortest paths.
    is_whole: bool  # No new state was left.
    broken: str | None = None
    path: list[str] = field(default_factory=list)  # The steps to the state that breaks it.


def explore(
    spec: Specification[S], states_max: int | None = None, only: Callable[[str, S], bool] | None = None
) -> Explored[S]:
    """Breadth first until no new state, the bound, or the first broken invariant, which has a shortest path then.

    only: leaves out the steps and states that a directed search is not about.
    """
    was_collecting = gc.isenabled()
    gc.disable()  # Nothing here is a cycle, and looking for some among millions of states takes half of the time.
    try:
        return _explore(spec, states_max, only)
    finally:
        if was_collecting:
            gc.enable()


def _explore(
    spec: Specification[S], states_max: int | None, only: Callable[[str, S], bool] | None
) -> Explored[S]:
    first = spec.initial()
    came_from: dict[S, S | None] = {first: None}
    frontier, depth, generated = [first], 1, 1
    while frontier:
        found: list[S] = []
        for state in frontier:
            for name, after in spec.steps(state):
                if only is not None and not only(name, after):
                    continue
                generated += 1
                if after in came_from:
                    continue
                came_from[after] = state
                found.append(after)
                broken = spec.broken(after)
                if broken is not None:
                    path = _path(spec, came_from, after)
                    return Explored(len(came_from), generated, depth + 1, False, broken, path)
            if states_max is not None and len(came_from) >= states_max:
                return Explored(len(came_from), generated, depth + 1, False)
        frontier = found
        depth += bool(found)
    return Explored(len(came_from), generated, depth, True)


def _path(spec: Specification[S], came_from: dict[S, S | None], state: S) -> list[str]:
    names: list[str] = []
    before = came_from[state]
    while before is not None:
        names.append(next(name for name, after in spec.steps(before) if after == state))
        state, before = before, came_from[before]
    return names[::-1]


def wander(spec: Specification[S], seed: int, walks: int, steps_max: int = 60) -> Explored[S]:
    """Random walks from the beginning; for worlds too wide to be explored whole."""
    chance = random.Random(f"wander {seed}")
    seen = 0
    for _ in range(walks):
        state, path = spec.initial(), []
        for _ in range(steps_max):
            allowed = spec.steps(state)
            if not allowed:
                break
            name, state = chance.choice(allowed)
            path.append(name)
            seen += 1
            broken = spec.broken(state)
            if broken is not None:
                return Explored(seen, seen, len(path) + 1, False, broken, path)
    return Explored(seen, seen, 0, False)
