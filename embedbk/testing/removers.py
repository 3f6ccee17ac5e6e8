"""Applications that delete ledgers and logs, bring them back and forget them, beside others that use them."""

from __future__ import annotations

import random

from embedbk.client import deleting, log_deleting
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.renewing import Succession
from embedbk.client.runtime import Runtime
from embedbk.config import Quorum, Settings
from embedbk.errors import EmbedbkError
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.drawn_terms import all_ledgers, password_of, ready, runtime_of, traits_drawn
from embedbk.testing.owners import WatchedOwner
from embedbk.testing.plan import MS
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.users import REMOVED
from embedbk.testing.visitors import take
from embedbk.testing.world import World

__all__ = ["remover"]

BRIEF_LOG = "brief"  # The ledgers that removers write, read and delete.
GRACE_S = 1.0


def remover(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    yield from ready(world, client)
    runtime = runtime_of(world, client, Settings(delete_grace_s=GRACE_S))
    own_chance = random.Random(f"logs of {client} {world.seed}")
    for _ in range(chance.randint(1, 6)):
        mine = [metadata for metadata in all_ledgers(world) if REMOVED in metadata.custom]
        try:
            if mine:
                metadata = chance.choice(mine)
                password = password_of(metadata)
                assert password is not None
                yield from awaited(
                    runtime, deleting.delete(runtime, metadata.ledger_id, password, force=False)
                )
                yield Sleep(chance.randint(0, 3_000) * MS)
                if chance.random() < 0.5:
                    yield from awaited(runtime, deleting.undelete(runtime, metadata.ledger_id, password))
                else:
                    yield from awaited(runtime, log_deleting.forget_deleted(runtime))
            if own_chance.random() < 0.4:
                yield from _use_and_delete_a_log(world, client, runtime, own_chance, quorum)
        except EmbedbkError as error:
            world.note(f"{client}: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 300) * MS)


def _use_and_delete_a_log(
    world: World, client: str, runtime: Runtime, chance: random.Random, quorum: Quorum
) -> Steps:
    """A log that others take over and delete at the same time; reading it meanwhile."""
    password = Password(b"")
    if chance.random() < 0.7:
        # Each ledger of it is watched: one that fails is followed by another, which takes what was outstanding (P8.2).
        owning = WatchedOwner(
            world, client, runtime, BRIEF_LOG, password, quorum, traits_drawn(world, runtime, chance)
        )
        appending = Succession(owning, (yield from awaited(runtime, owning.take_over()))).appending
        for _ in range(chance.choice([0, 0, 1, 5])):
            yield from awaited(runtime, appending.append(b"%s in brief" % client.encode()))
        yield from awaited(runtime, appending.close())
    if chance.random() < 0.4:
        yield from take(world, client, runtime, LogReading(runtime, BRIEF_LOG, password).read(None, None))
    if chance.random() < 0.6:
        yield from awaited(runtime, log_deleting.delete_log(runtime, BRIEF_LOG, password, force=False))
