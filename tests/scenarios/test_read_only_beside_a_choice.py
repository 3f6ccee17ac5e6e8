"""A bookie goes read-only between the choice of it and the transaction that names it: nothing lands there (P10.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, decode_ledger_metadata
from embedbk.codec.registration import PLACEMENTS_PREFIX
from embedbk.core.creation import Creation
from embedbk.core.metadata_words import Transact
from embedbk.core.recovery import Recovery
from embedbk.core.writer import Writer
from embedbk.errors import MetadataConflict
from embedbk.testing import Cluster
from embedbk.testing.invariants import Invariants
from embedbk.testing.observer import Observer

MS = 1_000_000


class Beside(Observer):
    """The first transaction of this core that newly names somebody is held back until one of these is read-only."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.cluster: Cluster | None = None
        self.gone = ""
        self.ensembles: list[list[str]] = []  # As the only ledger's metadata has them.

    def on_metadata(self, revision: int, key: str, old: bytes | None, new: bytes | None) -> None:
        if key.startswith(LEDGERS_PREFIX) and new is not None:
            fragments = decode_ledger_metadata(new).fragments
            self.ensembles = [[bookie_id for bookie_id, _ in each.ensemble] for each in fragments]

    def on_step(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        if self.gone or self.cluster is None or type(core) is not self.kind:
            return
        keys = [each.key for effect in effects if type(effect) is Transact for each in effect.when]
        named = [key.removeprefix(PLACEMENTS_PREFIX) for key in keys if key.startswith(PLACEMENTS_PREFIX)]
        if not named:
            return
        world, self.gone = self.cluster.world, named[0]
        world.network.block(node, "metadata")
        world.nodes[self.gone].core.is_writable = False
        world.after(800 * MS, lambda: world.network.unblock(node, "metadata"))


def beside(kind: type, bookies: int) -> tuple[Cluster, Beside, Invariants]:
    watch, seen = Beside(kind), Invariants()
    return Cluster(seed=3, bookies=bookies, observers=[watch, seen]), watch, seen


def was_refused(seen: Invariants) -> bool:
    return seen.sometimes.reached["placement was another"] > 0


def test_a_ledger_is_created_on_the_others() -> None:
    """P10.6: creation."""
    opened, watch, seen = beside(Creation, 4)
    with opened as cluster:
        one = cluster.client("one")
        watch.cluster = cluster
        with one.create_ledger() as writer:
            writer.add(b"zero")
        assert was_refused(seen)
        assert watch.gone not in watch.ensembles[-1]


def test_an_ensemble_change_seats_another_one() -> None:
    """P10.6: ensemble change; what was acknowledged stays, and the writer goes on."""
    opened, watch, seen = beside(Writer, 5)
    with opened as cluster:
        one = cluster.client("one")
        watch.cluster = cluster
        writer = one.create_ledger()
        writer.add(b"zero")
        cluster.crash(watch.ensembles[-1][0])
        writer.add(b"one")
        assert cluster.run_until(lambda: len(watch.ensembles) > 1)
        writer.close()
        assert was_refused(seen)
        assert watch.gone not in watch.ensembles[-1]


def test_a_recovery_closes_with_another_one() -> None:
    """P10.6: recovery's close; who was written back to and is read-only by then is not named."""
    opened, watch, seen = beside(Recovery, 5)
    with opened as cluster:
        watch.cluster = cluster
        writer = cluster.client("one").create_ledger()
        writer.add(b"zero")
        cluster.crash(watch.ensembles[-1][0])
        cluster.crash("one")
        found = cluster.client("two").open_ledger(writer.ledger_id, recover=True)
        assert [bytes(entry) for entry in found.read()] == [b"zero"]
        assert was_refused(seen)
        assert watch.gone not in watch.ensembles[-1]


def test_a_ledger_is_brought_back_beside_a_bookie_that_goes_read_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P10.6: undelete compares whom it names, too. One that is read-only has the copies: it is looked at again, and
    then the ledger comes back."""
    transact, rounds = Runtime.transact, list[int]()
    with Cluster(seed=4, bookies=3) as cluster:
        one = cluster.client("one")
        with one.create_ledger() as writer:
            writer.add(b"zero")
        one.delete_ledger(writer.ledger_id)

        async def late(self: Runtime, when: Any, then: Any, what: str) -> bool:
            rounds.append(sum(each.key.startswith(PLACEMENTS_PREFIX) for each in when))
            if len(rounds) == 1:
                node = cluster.world.nodes["b2"]
                node.core.is_writable = False
                cluster.run_until(lambda: not node.registering._is_writable)
                cluster.run_for(1)
            return await transact(self, when, then, what)

        monkeypatch.setattr(Runtime, "transact", late)
        one.undelete_ledger(writer.ledger_id)
        assert rounds == [3, 3]
        assert [bytes(entry) for entry in one.open_ledger(writer.ledger_id).read()] == [b"zero"]


def test_a_ledger_of_more_bookies_than_one_transaction_compares_is_refused_and_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P10.6: a clear error, and nothing lost."""
    with Cluster(seed=4, bookies=3) as cluster:
        one = cluster.client("one")
        with one.create_ledger() as writer:
            writer.add(b"zero")
        one.delete_ledger(writer.ledger_id)
        monkeypatch.setattr("embedbk.client.deleting._NAMED_MAX", 2)
        with pytest.raises(MetadataConflict, match="names 3 bookies"):
            one.undelete_ledger(writer.ledger_id)
        assert [each.ledger_id for each in one.deleted_ledgers()] == [writer.ledger_id]
