"""An operator who has everything checked once it is healed, by the commands that an operator has: `embedbk log check`
finds nothing in any log (L20), and `embedbk storage check` no damage on a disk that nobody harmed (I42)."""

from __future__ import annotations

from embedbk.client.log_checking import check_log
from embedbk.client.log_names import log_names
from embedbk.errors import NoSuchLedger
from embedbk.testing.actors import Steps
from embedbk.testing.clocks import SECOND
from embedbk.testing.native_disk import NativeDisk
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.violation import Violation
from embedbk.testing.workload import is_ready
from embedbk.testing.world import World

__all__ = ["disks_are_whole", "logs_fit"]

CLIENT = "l20"
CHECK_NS = 60 * SECOND


def logs_fit(world: World) -> None:
    """L20: each log's list fits the ledgers that it names, and no ledger names a log that does not list it."""
    world.start_client(CLIENT)
    actor = world.spawn(CLIENT, _check_all(world))
    over = world.run_until(lambda: actor.is_over, CHECK_NS)
    if not over or actor.error is not None:
        raise Violation("L20", f"a check of all logs does not come to its end: {actor.error}")


def disks_are_whole(world: World) -> None:
    """I42: what a power cut would leave now, of a disk that kept its promises, is never taken for damage."""
    for name, disk in world.disks.items():
        if isinstance(disk, NativeDisk) and not disk.is_harmed:
            if found := disk.found_by_a_check():
                raise Violation("I42", f"a check of {name} finds damage that nobody did: {found[0]}")
            world.sometimes["disk checked"] += 1


def _check_all(world: World) -> Steps:
    yield from is_ready(world, CLIENT)
    runtime = SimRuntime(world, CLIENT, world.nodes[CLIENT])
    names = yield from awaited(runtime, log_names(runtime, ""))
    for name in names:
        try:
            found = yield from awaited(runtime, check_log(runtime, name))
        except NoSuchLedger:
            continue  # It was deleted meanwhile.
        if found:
            raise Violation("L20", f"log {name}: {found[0].ledger_id}: {found[0].text}")
        world.sometimes["log checked"] += 1
