"""Applications that repair as if bookies were lost that live: by the production machines (P11.2).

So seats move beside writers, closers, recoverers and deleters in every world of theirs, and I36 is asked of each.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator
from typing import Any, ClassVar

from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, LedgerMetadata, decode_ledger_metadata
from embedbk.codec.metadata_messages import Result
from embedbk.codec.repair_messages import MarkRepairs, Repairing, RepairsTaken, TakeRepairs
from embedbk.config import FRAME_BYTES_MAX, Quorum
from embedbk.core.client_words import BookiesChanged
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.repair_words import HeldMark
from embedbk.errors import StorageError
from embedbk.ids import Member
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import CopyOptions
from embedbk.repair.ledger_repair import LedgerRepair
from embedbk.repair.small_repairs import SmallRepairs
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.world import World

__all__ = ["mender"]

READY_NS = 20 * SECOND


def mender(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    """Marks ledgers, takes marks, and repairs as if the bookies that a mark names were lost (P11.2)."""
    if "repairers" in world.features:
        return  # They count who ends each mark (repairers.py).
    node = world.nodes[client]
    yield Until(lambda: node.is_ready and bool(node.bookies), READY_NS)
    for _ in range(chance.randint(1, 4)):
        known = _known(world)
        if known:
            metadata = chance.choice(known)
            lost: Member = chance.choice(sorted(_members(metadata)))
            # Often several at once, which are repaired side by side then.
            others = [
                each
                for each in known
                if lost in _members(each)
                and each is not metadata
                and each.is_closed
                and len(each.fragments) == 1
            ]
            marked = [metadata, *chance.sample(others, min(len(others), chance.choice([0, 3, 8])))]
            marks = sorted((each.ledger_id, (lost.bookie_id,)) for each in marked)
            yield from _asked(world, client, MarkRepairs(tuple(marks)))
            taken = yield from _asked(world, client, TakeRepairs(chance.choice([2, 8])))
            if isinstance(taken, RepairsTaken):
                yield from _work_off(world, client, chance, taken)
        yield Sleep(chance.randint(0, 500) * MS)
    yield from _asked(world, client, TakeRepairs(0))
    # A mark that it was handed in a lost answer goes with its session.
    node.metadata.close(world.now_of(client))
    world.wake(client)


def _members(metadata: LedgerMetadata) -> set[Member]:
    return {member for fragment in metadata.fragments for member in fragment.members}


def _work_off(world: World, client: str, chance: random.Random, taken: RepairsTaken) -> Steps:
    done = set[int]()
    core: Machine
    if len(taken.marks) > 1 and chance.random() < 0.8:
        core = _PretendingBeside(
            frozenset(name for names in taken.missing for name in names),
            [HeldMark(ledger_id, taken.epoch, mark) for ledger_id, mark, _ in taken.marks],
            world.nodes[client].bookies,
            world.chance.getrandbits(63),
            random.Random(chance.getrandbits(63)),
            CopyPace(0),
            options=CopyOptions(
                SECOND,
                SECOND,
                frame_bytes=200,
                window_bytes=900,
                small_bytes=100_000,
                together_bytes=random.Random(f"together {world.seed}").choice([700, FRAME_BYTES_MAX]),
            ),
        )
        operation = world.start(client, core)
        yield Until(operation.future.done, 30 * SECOND)
        if not operation.future.done() or operation.future.exception() is not None:
            return
        result = operation.future.result()
        done = {outcome.ledger_id for outcome in result.outcomes}
        world.sometimes["small ledgers repaired side by side"] += len(done) > 1
        world.sometimes["small ledgers asked for in halves"] += result.refused > 0
        world.sometimes["ledger was not small"] += bool(result.alone)
    for ledger_id, mark, place in taken.marks:
        if ledger_id in done:
            continue
        frame_bytes = chance.choice([200, 1_000])
        core = _Pretending(
            frozenset(taken.missing[place]),
            ledger_id,
            taken.epoch,
            mark,
            world.nodes[client].bookies,
            world.chance.getrandbits(63),
            random.Random(chance.getrandbits(63)),
            CopyPace(0),
            options=CopyOptions(SECOND, SECOND, frame_bytes=frame_bytes, window_bytes=900),
        )
        operation = world.start(client, core)
        yield Until(operation.future.done, 30 * SECOND)
        if operation.future.done() and operation.future.exception() is None:
            world.sometimes["mended"] += operation.future.result().kind == "repaired"


class _Pretending(LedgerRepair):
    """Bookies with these names count as lost."""

    def __init__(self, lost: frozenset[str], *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.lost = lost
        known = self.bookies
        known.listed = tuple(info for info in known.listed if info.member.bookie_id not in lost)

    def _on_some_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies.listed = tuple(info for info in event.bookies if info.member.bookie_id not in self.lost)
        return []

    HANDLERS: ClassVar[Handlers] = {**LedgerRepair.HANDLERS, BookiesChanged: _on_some_bookies}


class _PretendingBeside(SmallRepairs):
    """The same, of several ledgers side by side."""

    def __init__(self, lost: frozenset[str], *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.lost = lost
        self.bookies = tuple(info for info in self.bookies if info.member.bookie_id not in lost)

    def _on_some_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies = tuple(info for info in event.bookies if info.member.bookie_id not in self.lost)
        return []

    HANDLERS: ClassVar[Handlers] = {**SmallRepairs.HANDLERS, BookiesChanged: _on_some_bookies}


def _asked(world: World, client: str, operation: Repairing) -> Generator[Any, Any, Result | None]:
    results: list[Result] = []
    world.nodes[client].metadata.request(
        world.now_of(client), operation, lambda _, result: results.append(result)
    )
    world.wake(client)
    yield Until(lambda: bool(results), 30 * SECOND)
    return results[0] if results else None


def _known(world: World) -> list[LedgerMetadata]:
    known: list[LedgerMetadata] = []
    for value in world.committed(LEDGERS_PREFIX).values():
        with contextlib.suppress(StorageError):  # A stranger's.
            known.append(decode_ledger_metadata(value))
    return [each for each in known if each.freed is None]
