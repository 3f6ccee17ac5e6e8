"""Repair in its place: a worker, a candidate for auditor, and a keeper of retention (P8.8) in a client node (P11). It
carries their decisions out.

In every process that hosts bookies, unless a setting says otherwise. The repairs that the worker begins are operations
of the same node, so that their copies travel like everything else of it.
"""

from __future__ import annotations

import logging
import os
import random
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from embedbk.config import ANYWHERE, Placement, Settings
from embedbk.core.machine import Effect
from embedbk.core.repair_words import (
    BeginRepair,
    BeginSmallRepairs,
    RepairOutcome,
    RepairOver,
    Retained,
    SmallRepaired,
    SmallRepairsOver,
)
from embedbk.core.vocabulary import Ended
from embedbk.host.client_node import ClientNode
from embedbk.host.loop import clock_ns, unix_ms
from embedbk.host.operations import Operation
from embedbk.metadata.levels import LEVEL_OF_SHAPES
from embedbk.repair.auditor import Auditor, AuditorOptions
from embedbk.repair.balancing import Balancer, BalancerOptions
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import CopyOptions
from embedbk.repair.ledger_repair import LedgerRepair
from embedbk.repair.log_keeping import LogKeeper, LogKeeperOptions
from embedbk.repair.orphan_closing import LedgerKey
from embedbk.repair.small_repairs import SmallRepairs
from embedbk.repair.worker import RepairWorker, WorkerOptions

__all__ = ["RepairOptions", "RepairService", "begin_repairing", "repair_options"]

logger = logging.getLogger(__name__)

LOOK_NS_MAX = 2_000_000_000
CLOCK_SET_MS = 1_000  # A wall clock that went so far beside the monotonic one was set. Nothing rests on less.


@dataclass(frozen=True, slots=True)
class RepairOptions:
    auditor: AuditorOptions = field(default_factory=AuditorOptions)
    worker: WorkerOptions = field(default_factory=WorkerOptions)
    copying: CopyOptions = field(default_factory=CopyOptions)
    bytes_per_s: int = 0  # Read by this process for copies; 0: as fast as it goes.
    placement: Placement = ANYWHERE
    logs: LogKeeperOptions | None = None  # None: this host keeps no retention of logs.
    opener: LedgerKey | None = None  # None: no ledger is closed that its writer left.
    balancer: BalancerOptions | None = (
        None  # None: this host moves no copies to bookies with more room (P11.6).
    )


def repair_options(settings: Settings, opener: LedgerKey) -> RepairOptions:
    """opener: of ledgers without a password."""
    grace_ns = int(settings.repair_grace_s * 1e9)
    look_ns = min(LOOK_NS_MAX, grace_ns // 4)  # Soon enough to see a short grace end.
    return RepairOptions(
        AuditorOptions(
            grace_ns=grace_ns,
            round_ns=int(settings.audit_s * 1e9),
            look_ns=look_ns,
            settle_ns=min(AuditorOptions().settle_ns, grace_ns),
        ),
        WorkerOptions(
            look_ns=min(look_ns, WorkerOptions().look_ns), ledgers_per_s=settings.repair_ledgers_per_s
        ),
        bytes_per_s=settings.repair_bytes_per_s,
        placement=settings.placement,
        logs=LogKeeperOptions(opener.verifier, grace_ms=int(settings.delete_grace_s * 1000)),
        opener=opener,
        balancer=_balancing(settings, look_ns),
    )


def _balancing(settings: Settings, look_ns: int) -> BalancerOptions | None:
    rate, round_ns = settings.balance_bytes_per_s, int(settings.audit_s * 1e9)
    usual = BalancerOptions()
    look_ns = min(usual.look_ns, 5 * look_ns, round_ns)
    return replace(usual, bytes_per_s=rate, round_ns=round_ns, look_ns=look_ns) if rate else None


class _Standing(Operation):
    """A core that never ends, and what it begins."""

    def __init__(
        self,
        core: RepairWorker | Auditor | LogKeeper | Balancer,
        begin: Callable[[BeginRepair | BeginSmallRepairs], None],
        retained: Callable[[Retained], None],
        wall_offset_ms: Callable[[], int],
    ) -> None:
        """wall_offset_ms: the wall clock's time when now_ns is 0, by what that clock shows at this moment."""
        super().__init__(core)
        self._begin = begin
        self._retained = retained
        self._wall_offset_ms = wall_offset_ms

    def on_effect(self, effect: Effect) -> None:
        super().on_effect(effect)
        if isinstance(effect, BeginRepair | BeginSmallRepairs):
            self._begin(effect)
        elif isinstance(effect, Retained):
            self._retained(effect)

    def publish(self) -> None:
        """Follow a wall clock that was set since: a host may begin before its clock is right, and runs for years."""
        super().publish()
        core = self.core
        if isinstance(core, Auditor | LogKeeper | Balancer):
            offset_ms = self._wall_offset_ms()
            if abs(offset_ms - core.wall_offset_ms) >= CLOCK_SET_MS:
                core.wall_offset_ms = offset_ms


class _Repair(Operation):
    """The repair of one ledger, or of several side by side, until it is over."""

    def __init__(self, core: LedgerRepair | SmallRepairs, over: Callable[[Any], None]) -> None:
        super().__init__(core)
        self._over = over

    def on_effect(self, effect: Effect) -> None:
        super().on_effect(effect)
        if isinstance(effect, Ended) and effect.error is None:
            self._over(effect.result)


class RepairService:
    """Worker and auditor of one client node; begun once, they end with it."""

    def __init__(
        self,
        node: ClientNode,
        name: str,
        options: RepairOptions,
        chance: random.Random,
        now_ns: Callable[[], int],
        unix_ms: Callable[[], int],
    ) -> None:
        """name: shown to people. chance: for targets and nonces. now_ns: the time of the node."""
        self.outcomes: Counter[str] = Counter()  # Repairs that ended, by their kind.
        self.copies = self.copied_bytes = self.filled = self.moved = 0
        # Repaired side by side; of those that were to be, to be repaired each by itself; and refused transactions.
        self.beside = self.alone = self.refused = 0
        self.retained = 0  # Ledgers that left their logs by retention.
        self._node = node
        self._options = options
        self._chance = chance
        self._now_ns = now_ns
        self._pace = CopyPace(options.bytes_per_s)
        token = b"%s %016x" % (name.encode(), chance.getrandbits(64))

        def offset_ms() -> int:
            return unix_ms() - now_ns() // 1_000_000

        self.worker = RepairWorker(node.bookies, options.worker)
        self.auditor = Auditor(token, node.bookies, options.auditor, offset_ms())
        self._working = _Standing(self.worker, self._begin, self._tell_retained, offset_ms)
        node.run(now_ns(), self._working)
        node.run(now_ns(), _Standing(self.auditor, self._begin, self._tell_retained, offset_ms))
        if options.logs is not None:
            keeper = LogKeeper(token, node.bookies, options.logs, offset_ms())
            node.run(now_ns(), _Standing(keeper, self._begin, self._tell_retained, offset_ms))
        self.balancer: Balancer | None = None
        if options.balancer is not None:
            self.balancer = Balancer(token, node.bookies, options.balancer, options.placement, offset_ms())
            node.run(now_ns(), _Standing(self.balancer, self._begin, self._tell_retained, offset_ms))

    def _begin(self, effect: BeginRepair | BeginSmallRepairs) -> None:
        if isinstance(effect, BeginSmallRepairs):
            self._begin_small(effect)
            return
        core = LedgerRepair(
            effect.ledger_id,
            effect.epoch,
            effect.mark_revision,
            self._node.bookies,
            self._chance.getrandbits(63),
            random.Random(self._chance.getrandbits(63)),
            self._pace,
            self._options.placement,
            self._options.copying,
            may_reshape=self._may_reshape,
            opener=self._options.opener,
        )
        self._node.begin(self._now_ns(), _Repair(core, self._over))

    def _begin_small(self, effect: BeginSmallRepairs) -> None:
        core = SmallRepairs(
            effect.held,
            self._node.bookies,
            self._chance.getrandbits(63),
            random.Random(self._chance.getrandbits(63)),
            self._pace,
            self._options.placement,
            self._options.copying,
            may_reshape=self._may_reshape,
        )
        self._node.begin(self._now_ns(), _Repair(core, self._small_over))

    @property
    def _may_reshape(self) -> bool:
        return self._node.metadata.client.cluster_level >= LEVEL_OF_SHAPES

    def _tell_retained(self, done: Retained) -> None:
        self.retained += done.ledgers
        logger.info(
            "log %s: %d ledgers went by its retention; it begins at offset %d now",
            done.log,
            done.ledgers,
            done.reached,
        )
        for pin_name in done.expired:
            logger.warning(
                "log %s: the time of its pin %r is over; the pin was taken away", done.log, pin_name
            )
        for cursor_name, hold in done.ended:
            logger.warning(
                "log %s: its cursor %r holds nothing any more, and what it held is truncated (%s)",
                done.log, cursor_name, hold.name,
            )  # fmt: skip

    def _over(self, outcome: RepairOutcome) -> None:
        self._count(outcome)
        self._node.tell(self._working, RepairOver(self._now_ns(), outcome))

    def _small_over(self, result: SmallRepaired) -> None:
        for outcome in result.outcomes:
            self._count(outcome)
        self.beside += len(result.outcomes)
        self.alone += len(result.alone)
        self.refused += result.refused
        self._node.tell(self._working, SmallRepairsOver(self._now_ns(), result))

    def _count(self, outcome: RepairOutcome) -> None:
        self.outcomes[outcome.kind] += 1
        self.copies += outcome.copies
        self.copied_bytes += outcome.copied_bytes
        self.filled += outcome.filled
        self.moved += outcome.moved
        if outcome.kind == "unrepairable":
            logger.warning("ledger %d cannot be repaired: %s", outcome.ledger_id, outcome.why)
        else:
            why = f": {outcome.why}" if outcome.why else ""
            logger.info(
                "ledger %d: %s, %d copies of %d bytes%s",
                outcome.ledger_id, outcome.kind, outcome.copies, outcome.copied_bytes, why,
            )  # fmt: skip


def begin_repairing(node: ClientNode, name: str, settings: Settings, opener: LedgerKey) -> None:
    """On the thread of the node's loop. name: of the process, for people. opener: as `repair_options` takes it."""
    where = f"{name} of {socket.gethostname()}:{os.getpid()}"
    RepairService(node, where, repair_options(settings, opener), random.Random(), clock_ns, unix_ms)
