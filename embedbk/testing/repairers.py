"""Clients that mark ledgers for repair and work marks off, under all faults, and the answers they received (P11.1).

Nothing is copied: only the queue in the metadata is checked. No client makes these ledgers, so that their marks keep no
bookie from anything. Each marking names a bookie of its own, so it changes its mark: a mark that the client which ended
the repair did not see must be there still.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from embedbk.codec.metadata_messages import Refusal, Result
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.repair_messages import (
    EndRepairs,
    FailRepairs,
    MarkRepairs,
    Repairing,
    RepairsEnded,
    RepairsMarked,
    RepairsTaken,
    TakeRepairs,
)
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.claims import REPAIRERS_PREFIX, REPAIRING_PREFIX
from embedbk.metadata.repairing import RETURNED, SETTLED
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["RepairCall", "Repairers", "check_repairs"]

AUDITOR, WORKERS = "auditor-1", ("repairer-1", "repairer-2", "repairer-3")
FIRST_LEDGER, LEDGERS = 1 << 40, 6  # None that anybody makes.
ANSWERED_NS = 60 * SECOND
# Once faults have stopped: marks may be postponed for five minutes, again behind each leader.
EMPTY_NS = 1_800 * SECOND


@dataclass(slots=True)
class RepairCall:
    """A request of one of them, and its outcome; None: not known."""

    client: str
    operation: Repairing
    result: Result | None = None


def check_repairs(calls: list[RepairCall], *, is_empty: bool) -> int:
    """How many repairs were ended. is_empty: no mark is left.

    Raises:
        Violation: two clients got one hold, a mark was handed out that had been ended, or one that was ended had
            changed since it was taken.
    """
    holders: dict[tuple[int, int], str] = {}
    marked: dict[int, list[int]] = {}  # Ledger id -> revisions at which its mark changed by a request.
    worked_off: dict[int, list[tuple[int, int]]] = {}  # Ledger id -> (revision of its mark, of the end).
    unheard: dict[int, int] = {}  # Ledger id -> the newest mark that may have been ended unheard.
    taken: list[tuple[str, int, int, int]] = []
    for call in calls:
        match call.operation, call.result:
            case MarkRepairs(marks), RepairsMarked(revision, left):
                for ledger_id, _ in marks:
                    if ledger_id not in left:
                        marked.setdefault(ledger_id, []).append(revision)
            case TakeRepairs(), RepairsTaken(epoch, _, revision, held):
                for ledger_id, mark, _ in held:
                    if holders.setdefault((ledger_id, epoch), call.client) != call.client:
                        both = f"{call.client} and {holders[ledger_id, epoch]}"
                        raise Violation("I73", f"{both} hold {ledger_id} under {epoch}")
                    taken.append((call.client, ledger_id, mark, revision))
            case EndRepairs(ended), RepairsEnded(revision, outcomes):
                for (ledger_id, epoch, mark), outcome in zip(ended, outcomes, strict=True):
                    if outcome and holders.get((ledger_id, epoch), call.client) != call.client:
                        raise Violation(
                            "I73", f"{call.client} ended {ledger_id} under {epoch}, another's hold"
                        )
                    if outcome == SETTLED:
                        worked_off.setdefault(ledger_id, []).append((mark, revision))
            case EndRepairs(ended), result if result is None or isinstance(result, Refusal):
                for ledger_id, _, mark in ended:
                    unheard[ledger_id] = max(mark, unheard.get(ledger_id, 0))
    for ledger_id, ends in worked_off.items():
        for mark, ended_at in ends:
            for revision in marked.get(ledger_id, ()):
                if mark < revision < ended_at:
                    text = f"{ledger_id}: marked at {revision}, ended at {ended_at} as the mark of {mark}"
                    raise Violation("I74", text)
            for client, again, of_mark, revision in taken:
                if again == ledger_id and of_mark <= mark and revision > ended_at:
                    raise Violation(
                        "I73", f"{client} was given {ledger_id} of {of_mark} behind its end at {ended_at}"
                    )
    for ledger_id, revisions in marked.items() if is_empty else ():
        last = max(revisions)
        seen = max((mark for mark, _ in worked_off.get(ledger_id, ())), default=0)
        if last > max(seen, unheard.get(ledger_id, 0)):
            raise Violation("I74", f"{ledger_id} was marked at {last}, and nobody worked that off")
    return sum(map(len, worked_off.values()))


class Repairers:
    """The repairers of one world, for so long."""

    def __init__(self, world: World, for_ns: int) -> None:
        self._world = world
        self._until_ns = world.now_ns + for_ns
        self._calls: list[RepairCall] = []
        self._count = 0
        chance = random.Random(f"repairers {world.seed}")
        world.start_client(AUDITOR)
        world.spawn(AUDITOR, self._audit(AUDITOR, random.Random(chance.getrandbits(32))))
        for name in WORKERS:
            world.start_client(name)
            world.spawn(name, self._work(name, random.Random(chance.getrandbits(32))))
        if chance.random() < 0.5:
            world.after(chance.randint(0, for_ns), lambda: self._kill(WORKERS[0]))

    def _kill(self, name: str) -> None:
        """Its holds end with its session, and others have them."""
        if name in self._world.nodes:
            self._world.crash(name)

    def check(self) -> None:
        """Everything marked is repaired in the end (L8): no mark, no hold and no waiting client is left. I73, I74: all
        answers fit one order."""
        world, name = self._world, "repairer-last"
        world.start_client(name)
        self._until_ns = world.now_ns + EMPTY_NS
        actor = world.spawn(name, self._work(name, random.Random(0), is_last=True))
        if not world.run_until(lambda: actor.is_over, EMPTY_NS + ANSWERED_NS) or actor.error is not None:
            raise Violation("L8", f"the last repairer does not come to its end: {actor.error}")
        if left := self._left():
            raise Violation("L8", f"behind all repairs there is {left[0]}")
        ended = check_repairs(self._calls, is_empty=True)
        taken = [
            call.result for call in self._calls if isinstance(call.result, RepairsTaken) and call.result.epoch
        ]
        returned = [call.result for call in self._calls if isinstance(call.result, RepairsEnded)]
        world.sometimes["repair ended"] += ended > 0
        world.sometimes["repair handed on"] += any(each.asked < each.epoch for each in taken)
        world.sometimes["repair given back changed"] += any(RETURNED in each.outcomes for each in returned)

    def _catalog(self) -> Catalog:
        world = self._world
        nodes = [world.nodes[name] for name in world.members.names if name in world.nodes]
        catalog: Catalog = max(nodes, key=lambda node: node.core.applied_index).core.catalog
        return catalog

    def _left(self) -> list[str]:
        catalog = self._catalog()
        keys = [repair_mark_path(FIRST_LEDGER + number) for number in range(LEDGERS)]
        there = [key for key in keys if catalog.get(key).record is not None]
        prefixes = (REPAIRING_PREFIX, REPAIRERS_PREFIX)
        return there + [record.key for prefix in prefixes for record in catalog.page(prefix).records]

    # --- The applications -----------------------------------------------------------------------------------

    def _ask(self, name: str, operation: Repairing) -> RepairCall:
        world, call = self._world, RepairCall(name, operation)
        self._calls.append(call)
        answers: list[Result] = []

        def answered(now_ns: int, result: Result) -> None:
            answers.append(result)
            call.result = result

        world.nodes[name].metadata.request(world.now_of(name), operation, answered)
        world.wake(name)
        return call

    def _asked(self, name: str, operation: Repairing) -> Generator[Any, Any, Result | None]:
        call = self._ask(name, operation)
        yield Until(lambda: call.result is not None, ANSWERED_NS)
        return call.result

    def _audit(self, name: str, chance: random.Random) -> Steps:
        while self._world.now_ns < self._until_ns:
            chosen = chance.sample(range(LEDGERS), chance.randint(1, 2))
            self._count += 1
            marks = tuple((FIRST_LEDGER + number, (f"n{self._count}",)) for number in sorted(chosen))
            yield from self._asked(name, MarkRepairs(marks, self._count))
            yield Sleep(chance.choice([1, 30, 300, 1_000]) * MS)

    def _work(self, name: str, chance: random.Random, *, is_last: bool = False) -> Steps:
        link = self._world.nodes[name].metadata
        while self._world.now_ns < self._until_ns:
            taken = yield from self._asked(name, TakeRepairs(chance.randint(1, 3)))
            asked = taken.asked if isinstance(taken, RepairsTaken) and not taken.epoch else 0
            while (
                asked and self._world.now_ns < self._until_ns and not (is_last and not self._left_but(name))
            ):
                yield Sleep(chance.choice([10, 100, 500]) * MS)
                taken = yield from self._asked(name, TakeRepairs(0, (), asked))
                asked = taken.asked if isinstance(taken, RepairsTaken) and not taken.epoch else 0
            if is_last and not self._left_but(name):
                break
            if not isinstance(taken, RepairsTaken) or not taken.epoch or not link.session:
                yield Sleep(100 * MS)
                continue
            yield Sleep(chance.choice([1, 20, 200, 3_000]) * MS)
            drawn, epoch = chance.random(), taken.epoch
            if drawn < 0.7 or is_last:
                ended = tuple((ledger_id, epoch, mark) for ledger_id, mark, _ in taken.marks)
                yield from self._asked(name, EndRepairs(ended))
            elif drawn < 0.95:
                failed = tuple((ledger_id, epoch) for ledger_id, _, _ in taken.marks)
                yield from self._asked(name, FailRepairs(failed, drawn < 0.85))
            else:
                yield Sleep(2 * SECOND)  # Forgotten; it goes with the session, or is given back below.
                yield from self._asked(
                    name, FailRepairs(tuple((each, epoch) for each, _, _ in taken.marks), False)
                )
        yield from self._asked(name, TakeRepairs(0))
        # Marks that it was handed meanwhile, or holds by a lost answer, go with its session.
        link.close(self._world.now_of(name))
        self._world.wake(name)

    def _left_but(self, name: str) -> list[str]:
        """Everything left but the place of this client, which waits."""
        session = self._world.nodes[name].metadata.session
        catalog = self._catalog()
        return [
            key
            for key in self._left()
            if (found := catalog.get(key).record) is None or found.session != session
        ]
