"""A whole cluster in virtual time whose processes repair as production does, with a short grace."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from embedbk.client.password import OPENER
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.core.client_words import Send
from embedbk.host.repairing import RepairOptions, RepairService
from embedbk.repair.auditor import AuditorOptions
from embedbk.repair.fragment_copy import CopyOptions
from embedbk.repair.worker import WorkerOptions
from embedbk.testing import Cluster
from embedbk.testing.invariants import Invariants

MS = 1_000_000
GRACE_S = 3.0
OPTIONS = RepairOptions(
    AuditorOptions(grace_ns=int(GRACE_S * 1e9), round_ns=60_000 * MS, look_ns=200 * MS, page_ledgers=2),
    WorkerOptions(look_ns=100 * MS, retry_ns=200 * MS),
    CopyOptions(frame_bytes=400, window_bytes=1_500, read_timeout_ns=500 * MS, write_timeout_ns=500 * MS),
    opener=OPENER,
)


class Healed:
    def __init__(self, cluster: Cluster, reached: Counter[str] | None = None) -> None:
        """reached: the facts of `sometimes` that are met."""
        self.cluster, self.world = cluster, cluster.world
        self.reached = Counter[str]() if reached is None else reached

    def repairer(self, name: str = "healer", options: RepairOptions = OPTIONS) -> RepairService:
        world = self.world
        node = world.start_client(name)
        began_ns = world.now_of(name)

        def wall_ms() -> int:
            return world.wall_ms + (world.now_of(name) - began_ns) // MS

        service = RepairService(node, name, options, random.Random(7), lambda: world.now_of(name), wall_ms)
        world.wake(name)
        return service

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        return decode_ledger_metadata(self.world.committed("/ledgers/")[ledger_key_path(ledger_id)])

    def named(self, ledger_id: int) -> set[str]:
        return {name for fragment in self.metadata(ledger_id).fragments for name, _ in fragment.ensemble}

    def marks(self) -> list[str]:
        return list(self.world.committed("/ur/"))

    def given_up(self) -> dict[str, bytes]:
        return self.world.committed("/unrepairable/")

    def is_healed(self, ledger_id: int, without: str) -> bool:
        return without not in self.named(ledger_id) and not self.marks()

    def sends_of(self, node: str) -> list[Send]:
        """Filled from now on with what this client sends."""
        sends: list[Send] = []
        before = self.world.nodes[node].on_step

        def look(core: object, event: object, effects: list[object]) -> None:
            sends.extend(effect for effect in effects if isinstance(effect, Send))
            if before is not None:
                before(core, event, effects)

        self.world.nodes[node].on_step = look
        return sends


@contextmanager
def healed(bookies: int = 4, seed: int = 1) -> Iterator[Healed]:
    invariants = Invariants()
    with Cluster(seed=seed, bookies=bookies, observers=[invariants]) as cluster:
        cluster.client()
        yield Healed(cluster, invariants.sometimes.reached)
