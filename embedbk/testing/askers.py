"""Clients that ask the metadata alone, and the answers they received: a history to be judged (history.py; I73 to I75,
L8)."""

from __future__ import annotations

import random

from embedbk.codec.metadata_messages import (
    ABSENT,
    Acquire,
    AllocIds,
    Claimed,
    Compare,
    Delete,
    Get,
    List,
    Operation,
    Put,
    Release,
    Result,
    Txn,
    Value,
)
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.history import Call, check_history
from embedbk.testing.lock_history import check_locks
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["Askers"]

CLIENTS = 2
KEYS = tuple(f"/asked/{number}" for number in range(3))
LOCK = "asked"
AT_ONCE = 4  # Requests of one client that wait for answers.
ANSWERED_NS = 60 * SECOND  # Once faults have stopped.


class Askers:
    """The clients of one world, for so long."""

    def __init__(self, world: World, for_ns: int) -> None:
        self._world = world
        self._calls: list[Call] = []
        for number in range(1, CLIENTS + 1):
            name = f"asker-{number}"
            world.start_client(name)
            world.spawn(name, self._ask_on(name, random.Random(f"{name} {world.seed}"), for_ns))

    def check(self) -> None:
        """L8: with a quorum every call ends. I73 to I75: all answers fit one order of all that was done."""
        world, open_calls = self._world, [call for call in self._calls if call.answered_ns is None]
        if not world.run_until(lambda: all(call.answered_ns is not None for call in open_calls), ANSWERED_NS):
            late = next(call for call in open_calls if call.answered_ns is None)
            raise Violation("L8", f"{late.client} has no answer to {late.operation}")
        world.sometimes["history of metadata clients checked"] += check_history(self._calls) > 0
        world.sometimes["lock handed over"] += check_locks(self._calls) > 0

    def _ask_on(self, name: str, chance: random.Random, for_ns: int) -> Steps:
        link, begun = self._world.nodes[name].metadata, self._world.now_ns
        own: list[Call] = []
        while self._world.now_ns < begun + for_ns:
            own = [call for call in own if call.answered_ns is None]
            if len(own) < AT_ONCE and link.session:
                own.append(self._ask(name, self._draw(name, chance)))
            yield Sleep(chance.choice([1, 30, 150]) * MS)
        yield Until(lambda: all(call.answered_ns is not None for call in own), ANSWERED_NS)

    def _draw(self, name: str, chance: random.Random) -> Operation:
        """Each value is put by one call alone."""
        key, value = chance.choice(KEYS), f"{name} {len(self._calls)}".encode()
        shown = [call.result for call in self._calls if isinstance(call.result, Value)]
        seen = next((each.record for each in reversed(shown) if each.record is not None), None)
        kinds = ["put", "get", "get", "make", "swap", "delete", "list", "ids"]
        if chance.random() < 0.4:
            kinds = ["lock", "lock", "release"]
        match chance.choice(kinds):
            case "put":
                return Txn(
                    [], [Put(key, value), *([Put(f"{key}/also", value)] if chance.random() < 0.3 else [])]
                )
            case "make":
                return Txn([Compare(key, ABSENT)], [Put(key, value)])
            case "swap" if seen is not None:
                return Txn([Compare(seen.key, seen.revision)], [Put(seen.key, value)])
            case "delete":
                return Txn([], [Delete(key)])
            case "lock":
                return Acquire(LOCK, name.encode())
            case "release":
                return Release(LOCK, self._held(name) if chance.random() < 0.5 else 0)
            case "list":
                return List("/asked/", "", 100)
            case "ids":
                return AllocIds(chance.randint(1, 3))
        return Get(key)

    def _held(self, name: str) -> int:
        """The last epoch that this client received; 0: none."""
        own = [call.result for call in self._calls if call.client == name]
        return next((each.epoch for each in reversed(own) if isinstance(each, Claimed)), 0)

    def _ask(self, name: str, operation: Operation) -> Call:
        world = self._world
        call = Call(name, operation, world.now_ns)
        self._calls.append(call)

        def answered(now_ns: int, result: Result) -> None:
            call.answered_ns, call.result = world.now_ns, result

        world.nodes[name].metadata.request(world.now_of(name), operation, answered)
        world.wake(name)
        return call
