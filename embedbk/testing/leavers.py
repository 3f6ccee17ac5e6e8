"""Writers that leave their ledgers open, and writers that only rest, at the end of a run (P11.2, AR08).

A bookie of both ledgers is lost. The one whose writer is gone is closed by whoever repairs, with all that was
acknowledged, and has all of its copies. The other is fenced by nobody, however long its writer is silent: its own
client gives the seat away (P4.1), and it goes on where it was.
"""

from __future__ import annotations

import random
from functools import partial

from embedbk.client.living import writer_name
from embedbk.client.password import NO_PASSWORD, OPENER
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    ledger_key_path,
)
from embedbk.config import Quorum
from embedbk.core.creation import Creation
from embedbk.host.bookie_node import BookieNode
from embedbk.host.writing import Writing
from embedbk.metadata.levels import LEVEL_OF_WRITERS
from embedbk.testing import process_faults, workload
from embedbk.testing.actors import Steps, Until
from embedbk.testing.clocks import SECOND
from embedbk.testing.drainers import able_bookies
from embedbk.testing.healers import HEALED_NS, Healers
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World
from embedbk.testing.writing_handles import append, close_writing, write_ledger

__all__ = ["Leavers"]

READY_NS = 20 * SECOND
MADE_NS = 60 * SECOND
ENTRIES = 5
LEAVES, RESTS = "leaver", "rester"


def _is_written(writing: Writing, count: int) -> bool:
    return writing.lac == count - 1 or writing.error is not None


class Leavers:
    """The two writers of one world."""

    def __init__(self, world: World, healers: Healers) -> None:
        self._world, self._healers = world, healers
        self._chance = random.Random(f"leavers {world.seed}")
        self._made: dict[str, tuple[int, Writing]] = {}  # By client.

    def check(self, quorum: Quorum) -> None:
        """AR08: what nobody closes is closed, and what is written is not."""
        world = self._world
        if quorum.ack_quorum == 1:
            return  # Without one bookie of it no recovery ends: what was acknowledged may be there alone.
        if len(able_bookies(world)) <= quorum.ensemble_size or self._healers.is_rotten_unseen():
            return
        for client in (LEAVES, RESTS):
            world.start_client(client)
            actor = world.spawn(client, self._write(client, quorum))
            if not world.run_until(lambda actor=actor: actor.is_over, MADE_NS) or actor.error is not None:  # type: ignore[misc]
                raise Violation("AR08", f"{client} makes no ledger: {actor.error}")
        if len(self._made) < 2:
            return
        named = {name: self._bookies(ledger_id) for name, (ledger_id, _) in self._made.items()}
        both = sorted(named[LEAVES] & named[RESTS] & {*able_bookies(world)})
        # One that is there and can deny nothing counts for a recovery as one that is lost (ST38): two are too many.
        dark = {
            name
            for name, node in world.nodes.items()
            if isinstance(node, BookieNode) and node.rebuild.dark_count
        }
        both = [name for name in both if not dark & (named[LEAVES] - {name})]
        if not both:
            return
        victim = self._chance.choice(both)
        for name in self._chance.sample([LEAVES, victim], 2):
            world.crash(name)
            world.run_for(self._chance.choice([1, 3]) * SECOND)
        self._wait(victim)
        actor = world.spawn(RESTS, self._go_on(quorum))
        if not world.run_until(lambda: actor.is_over, MADE_NS) or actor.error is not None:
            raise Violation("AR08", f"{RESTS} cannot go on: {actor.error}")
        if victim not in world.nodes:
            process_faults.restart(world, victim)
        world.sometimes["ledger of a writer that is gone closed"] += 1
        if left := self._healers.heal():
            raise Violation("L9", f"behind {victim}, which came back: {'; '.join(left[:3])}")

    def _write(self, client: str, quorum: Quorum) -> Steps:
        world, node = self._world, self._world.nodes[client]
        yield Until(lambda: node.is_ready and bool(node.bookies), READY_NS)
        runtime = SimRuntime(world, client, node)
        yield from awaited(runtime, runtime.get("/nothing", "the level"))
        if not runtime.has_level(LEVEL_OF_WRITERS):
            return
        name = yield from awaited(runtime, writer_name(runtime))
        if not name:
            return
        chance = random.Random(self._chance.getrandbits(63))
        creation = Creation(quorum, NO_PASSWORD, 0, {}, node.bookies, chance, writer=name)
        metadata, revision = yield from workload.result_of(world, client, creation)
        writing = write_ledger(world, client, metadata, revision, key=OPENER.key)
        for number in range(ENTRIES):
            append(world, client, writing, b"left %d" % number)
        yield Until(partial(_is_written, writing, ENTRIES), READY_NS)
        if writing.error is None:
            self._made[client] = (metadata.ledger_id, writing)

    def _metadata(self, ledger_id: int) -> LedgerMetadata:
        return decode_ledger_metadata(self._world.committed(LEDGERS_PREFIX)[ledger_key_path(ledger_id)])

    def _bookies(self, ledger_id: int) -> set[str]:
        return {member.bookie_id for member in self._metadata(ledger_id).fragments[-1].members}

    def _wait(self, victim: str) -> None:
        """Until both ledgers name the bookie no more. What the world starts again by itself is not lost."""
        world = self._world
        left, rests = (self._made[client][0] for client in (LEAVES, RESTS))
        give_up_ns = world.now_ns + HEALED_NS
        while world.now_ns < give_up_ns:
            if self._metadata(rests).state != LedgerState.OPEN:
                raise Violation("AR08", f"ledger {rests} was fenced, and its writer lives")
            if victim in world.nodes or not any(victim in self._bookies(each) for each in (left, rests)):
                break
            world.run_for(SECOND)
        else:
            stuck = [each for each in (left, rests) if victim in self._bookies(each)]
            states = [f"{each} ({LedgerState(self._metadata(each).state).name})" for each in stuck]
            raise Violation("AR08", f"ledger {' and '.join(states)} names {victim}, which is lost")
        metadata = self._metadata(left)
        if victim not in world.nodes and (metadata.last_entry is None or metadata.last_entry < ENTRIES - 1):
            raise Violation("AR08", f"ledger {left} ends at {metadata.last_entry}, and its writer is gone")

    def _go_on(self, quorum: Quorum) -> Steps:
        _, writing = self._made[RESTS]
        append(self._world, RESTS, writing, b"behind")
        yield Until(partial(_is_written, writing, ENTRIES + 1), READY_NS)
        if writing.error is not None:
            raise Violation("AR08", f"whoever rested cannot append: {writing.error}")
        close_writing(self._world, RESTS, writing)
        yield Until(writing.closed.done, READY_NS)
