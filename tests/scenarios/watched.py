"""The small world of tests/rules with every invariant on: each directed scenario is also a test of all promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from embedbk.codec.frame import iter_entries
from embedbk.codec.journal_records import RecordKind
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.config import Quorum
from embedbk.core.bookie_words import JournalAppend, JournalDurable
from embedbk.core.client_words import EntriesReady
from embedbk.core.machine import Machine
from embedbk.core.reader import RangeRead
from embedbk.core.vocabulary import Tick
from embedbk.storage.memory import Survivors
from embedbk.testing.invariants import Invariants
from tests.rules.world import THREE, Catalog, Client, Node, Packet, Pen, World

__all__ = ["Watched", "WatchedNode", "but", "only", "scene"]


class WatchedNode(Node):
    world: Watched

    def boot(self, survivors: Survivors, *, may_have_lost: bool = False) -> None:
        super().boot(survivors, may_have_lost=may_have_lost)
        watch, storage = self.world.invariants, self.storage
        watch.on_started(
            self.bookie_id, "bookie", self.member.incarnation, storage.durable(), storage.may_have_lost
        )
        for ledger_id in sorted(storage.table):
            row = storage.table.get(ledger_id)
            assert row is not None
            watch.on_found(self.bookie_id, ledger_id, bool(row.is_fenced), self.holds(ledger_id))
        self.world.attach(self.bookie_id, self.core)

    def crash(self) -> None:
        self.world.invariants.on_stopped(self.bookie_id)
        super().crash()

    def lose(self, records: int | None = None, *, entry_logs: int = 0) -> None:
        self.world.invariants.on_stopped(self.bookie_id)
        super().lose(records, entry_logs=entry_logs)

    def lose_disk(self) -> None:
        self.world.invariants.on_disk_lost(self.bookie_id)
        super().lose_disk()


class WatchedCatalog(Catalog):
    def __init__(self, watch: Invariants) -> None:
        super().__init__()
        self.watch = watch

    def transact(self, when: Any, then: Any) -> tuple[bool, int]:
        before = {change.key: self.values.get(change.key, (None, 0))[0] for change in then}
        is_done, revision = super().transact(when, then)
        if is_done:
            for key, old in before.items():
                self.watch.on_metadata(revision, key, old, self.values.get(key, (None, 0))[0])
        return is_done, revision


class Watched(World):
    """`World`, told to `Invariants` step by step."""

    def __init__(self, bookie_count: int = 3, seed: int = 0) -> None:
        self.invariants = Invariants()
        super().__init__(0, seed)
        self.catalog = WatchedCatalog(self.invariants)
        for number in range(1, bookie_count + 1):
            self.nodes[f"b{number}"] = WatchedNode(self, f"b{number}")

    def attach(self, name: str, core: Machine) -> None:
        """Show every step of this core to the invariants, before its effects are carried out."""
        step, watch = core.step, self.invariants

        def watched(event: Any) -> list[Any]:
            if isinstance(event, JournalDurable):
                watch.on_durable(name, event.token)
            effects = step(event)
            watch.on_step(name, core, event, effects)
            if isinstance(core, RangeRead):
                for effect in effects:
                    if isinstance(effect, EntriesReady):
                        entries = [(e.entry_id, bytes(e.data)) for e in iter_entries(effect.frame)]
                        watch.on_read(name, core.ledger_id, entries, False)
            return effects

        core.step = watched  # type: ignore[method-assign]

    def client(self, name: str, core: Machine) -> Client:
        self.attach(name, core)
        self.invariants.ghost.up.add(name)
        return super().client(name, core)

    def damage(self, bookie_id: str, ledger_id: int, entry_id: int) -> None:
        self.nodes[bookie_id].storage.make_unreadable(ledger_id, entry_id)
        self.invariants.on_damaged(bookie_id, ledger_id, entry_id)

    def put_in_limbo(self, bookie_id: str, ledger_id: int) -> None:
        """As after a start that found that acknowledged data may be lost: fence and limbo are durable (P7.4)."""
        node = self.nodes[bookie_id]
        assert isinstance(node, WatchedNode)
        effects = []
        for kind, body in ((RecordKind.FENCE, b""), (RecordKind.LIMBO, b"\1")):
            token = node.storage.append(kind, ledger_id, body)
            effects.append(JournalAppend(token, kind, ledger_id, body))
        self.invariants.on_step(bookie_id, node.core, Tick(self.now_ns), effects)
        node.storage.commit()
        node.crash()
        node.restart()

    def kill(self, client: Client) -> None:
        """Its process ends: it hears nothing more, and what it had on the wire is lost."""
        client.is_gone = True
        self.invariants.on_stopped(client.name)
        self.wire = [packet for packet in self.wire if packet.client is not client]

    def end(self, *ledger_ids: int) -> None:
        """All is healed: recover what is open, read everything, ask the end checks."""
        self.invariants.on_healed()
        for ledger_id in ledger_ids:
            if not self.catalog.metadata(ledger_id)[0].is_closed:
                recovery = self.recovery(ledger_id, "last")
                recovery.start()
                self.run(lambda recovery=recovery: recovery.has_ended)  # type: ignore[misc]
            self.check_end(ledger_id)
        self.invariants.at_end({}, ledger_ids)


class Scene:
    """One ledger, its writer and its pen."""

    def __init__(self, world: Watched, metadata: LedgerMetadata, writer: Client) -> None:
        self.world, self.writer, self.pen = world, writer, Pen(metadata.ledger_id)
        self.ledger_id = metadata.ledger_id

    def add(self, *payloads: bytes) -> None:
        self.world.add(self.writer, self.pen, *payloads)

    @property
    def metadata(self) -> LedgerMetadata:
        return self.world.catalog.metadata(self.ledger_id)[0]

    def recover(
        self, hold: Callable[[Packet], bool] = lambda _: False, name: str = "r", seconds: float = 60
    ) -> Client:
        recovery = self.world.recovery(self.ledger_id, name)
        recovery.start()
        self.world.run(until=lambda: recovery.has_ended, hold=hold, seconds=seconds)
        return recovery


def scene(quorum: Quorum = THREE, bookies: int = 3, ensemble: Iterable[str] = (), **options: Any) -> Scene:
    world = Watched(bookies)
    metadata, revision = world.create(quorum, ensemble)
    return Scene(world, metadata, world.writer(metadata, revision, **options))


def but(*names: str) -> Callable[[Packet], bool]:
    """Hold what these bookies get and say."""
    return lambda packet: packet.bookie_id in names


def only(*packets: Packet) -> Callable[[Packet], bool]:
    """Hold everything else."""
    return lambda packet: packet not in packets
