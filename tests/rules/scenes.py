"""A world with one ledger and its writer, and ways to hold, overwrite and ask: what stories of P4 and P5 begin with."""

from __future__ import annotations

from typing import NamedTuple

from embedbk.codec.ledger_metadata import LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Put
from embedbk.config import Quorum
from embedbk.core.writer import Writer
from embedbk.core.writer_options import WriterOptions
from tests.rules.world import THREE, Client, Hold, Operation, Packet, Pen, World


class Scene(NamedTuple):
    world: World
    writer: Client
    pen: Pen

    @property
    def core(self) -> Writer:
        assert isinstance(self.writer.core, Writer)
        return self.writer.core

    @property
    def ledger_id(self) -> int:
        return self.pen.ledger_id

    @property
    def last_entry(self) -> int | None:
        return self.world.catalog.metadata(self.ledger_id)[0].last_entry

    def change(self) -> Operation:
        """The one compare-and-set in flight."""
        (operation,) = self.world.catalog.waiting
        return operation

    def ensembles(self) -> list[tuple[int, list[str]]]:
        """The published fragments: first entry, bookies."""
        metadata, _ = self.world.catalog.metadata(self.ledger_id)
        return [(f.first_entry, [m.bookie_id for m in f.members]) for f in metadata.fragments]

    def recover(self, hold: Hold = lambda packet: False, name: str = "r") -> Client:
        """One recovery from start to end; the writer hears nothing meanwhile."""
        recovery = self.world.recovery(self.ledger_id, name)
        recovery.start()
        self.world.run(until=lambda: recovery.has_ended, hold=hold)
        return recovery


def scene(quorum: Quorum = THREE, bookies: int = 3) -> Scene:
    world = World(bookies)
    metadata, revision = world.create(quorum)
    return Scene(world, world.writer(metadata, revision), Pen(metadata.ledger_id))


def delaying(quorum: Quorum = THREE, bookies: int = 5, **options: int) -> Scene:
    """With a writer that replaces nobody at once (P4.6)."""
    world = World(bookies)
    metadata, revision = world.create(quorum)
    writer = world.writer(metadata, revision, options=WriterOptions(delays_change=True, **options))
    return Scene(world, writer, Pen(metadata.ledger_id))


def everything(_: Packet) -> bool:
    return True


def but(*names: str) -> Hold:
    """Hold what these bookies get and say."""
    return lambda packet: packet.bookie_id in names


def all_but(*packets: Packet) -> Hold:
    return lambda packet: packet not in packets


def metadata_is(world: World, ledger_id: int, state: LedgerState) -> bool:
    return world.catalog.metadata(ledger_id)[0].state == state


def overwrite(world: World, ledger_id: int, **changes: object) -> None:
    """Somebody else publishes."""
    metadata, _ = world.catalog.metadata(ledger_id)
    value = encode_ledger_metadata(metadata.with_changes(**changes))
    world.catalog.transact([], [Put(ledger_key_path(ledger_id), value)])
