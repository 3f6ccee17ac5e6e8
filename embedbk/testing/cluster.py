"""`Cluster`: your own code against a whole cluster in memory, whose faults and whose time are yours.

    with Cluster(seed=7, bookies=5) as cluster:
        with cluster.client().log("orders").writer() as orders:
            orders.append(b"one")
            cluster.crash("b2")
            orders.append(b"two")          # acknowledged by the others; b2 is replaced when its silence is noticed

The clients are the real ones (`embedbk.Client`), the nodes are the real ones; only network, disks and clocks are
simulated. A call that waits lets virtual time pass: nothing here sleeps, and nothing happens between your calls. One
thread only, and no `embedbk.aio`: its event loop has a clock of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import Token
from types import TracebackType
from typing import Any, Self

from embedbk.client import Client
from embedbk.client.embedded import Opened
from embedbk.client.log import Log
from embedbk.client.waiting import drive_waits
from embedbk.config import Settings
from embedbk.errors import MetadataUnavailable, UsageError
from embedbk.metadata.quorum import VOTERS_MAX
from embedbk.storage.directories import LEDGER_DIRECTORIES_MAX
from embedbk.testing import faults, network_faults
from embedbk.testing.clocks import SECOND
from embedbk.testing.observer import Observer
from embedbk.testing.sim_runtime import SimRuntime
from embedbk.testing.trace import Trace
from embedbk.testing.world import World
from embedbk.transports.sim_faults import CALM, DROP, Faults, Treatment

__all__ = ["Cluster"]

FOREVER_S = 3_600.0  # Virtual seconds after which a wait without a limit is a hang.


class Cluster:
    """Metadata members and bookies b1, b2 ... in one process, under one seed.

    Args:
        seed: for every delay and every chance; the same seed and the same calls give the same run.
        bookies: how many.
        members: of the metadata: one is called "metadata", several m1, m2 ...
        faults: random faults of messages; set `cluster.network.faults` to change them during the run.
        native: bookies on the storage in C, on a disk in memory, instead of its Python twin.
        devices: journals and ledger directories of each bookie on the storage in C.
        observers: notified of everything (embedbk.testing.Observer).
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        bookies: int = 3,
        members: int = 1,
        faults: Faults = CALM,
        native: bool = False,
        devices: int = 1,
        observers: Sequence[Observer] = (),
    ) -> None:
        if bookies < 1:
            raise UsageError(f"bookies={bookies}: a whole number from 1 on is allowed")
        if not 1 <= members <= VOTERS_MAX:
            raise UsageError(f"members={members}: 1 to {VOTERS_MAX} are allowed")
        if devices != 1 and not (native and 1 <= devices <= LEDGER_DIRECTORIES_MAX):
            raise UsageError(
                f"devices={devices}: 1 to {LEDGER_DIRECTORIES_MAX} are allowed, and with native=True more than 1"
            )
        self.world = World(
            seed,
            bookies=bookies,
            members=members,
            faults=faults,
            is_native=native,
            devices=devices,
            observers=observers,
        )
        self.network = self.world.network
        self._trace = Trace()
        self._trace.attach(self.world)
        self._clients: dict[str, Client] = {}
        self._rules: list[Any] = []
        self._token: Token[Any] | None = None

    def __enter__(self) -> Self:
        self._token = drive_waits.set(self._wait)
        registered = self.world.run_until(self._is_complete, 60 * SECOND)
        if not registered:
            raise MetadataUnavailable(
                "the simulated bookies do not register", hint="fewer faults at the start?"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for client in list(self._clients.values()):
                client.close()
        finally:
            assert self._token is not None
            drive_waits.reset(self._token)
            self.world.close()

    def _is_complete(self) -> bool:
        return all(
            self.world.nodes[name].is_registered for name in self.world.disks if name in self.world.nodes
        )

    # Clients.

    def client(self, name: str = "client", settings: Settings | None = None) -> Client:
        """A client in a process of its own (of this name); where it is there already, the same one."""
        self._check()
        if name in self._clients:
            return self._clients[name]
        if name in self.world.nodes:
            raise UsageError(f"{name!r} is a node of the cluster; give the client another name")
        node = self.world.start_client(name)
        runtime = SimRuntime(self.world, name, node, settings)
        opened = Opened(runtime, {}, None)
        ready = self.world.run_until(lambda: node.is_ready, 60 * SECOND)
        if not ready:
            raise MetadataUnavailable(f"client {name!r}: the metadata member does not answer", definite=True)
        client = self._clients[name] = Client(opened)
        return client

    def log(self, name: str, *, client: str = "client") -> Log:
        """Short for `client(client).log(name)`."""
        return self.client(client).log(name)

    # Faults. Names: "b1", "metadata" (of several members "m1"), or that of a client.

    def leader(self) -> str:
        """The metadata member that leads; waits for one.

        Raises:
            MetadataUnavailable: no member is elected.
        """
        self._check()
        if not self.world.run_until(lambda: self.world.members.leader is not None, 60 * SECOND):
            raise MetadataUnavailable(
                f"no metadata member leads: {self.world.members.describe()}", definite=True
            )
        leader = self.world.members.leader
        assert leader is not None
        return leader

    def crash(self, name: str) -> None:
        """Kill the process; what its disk had not synced is gone."""
        self._known(name)
        self.world.crash(name)
        client = self._clients.pop(name, None)
        if client is not None:
            client._runtime.is_closed = True  # Its process is gone, and its handles with it.

    def restart(self, name: str) -> None:
        """Start a crashed bookie or the metadata member again, on its disk."""
        self._check()
        if name in self.world.nodes:
            raise UsageError(f"{name!r} is running", hint="crash it first")
        if name in self.world.members:
            self.world.members.start(name)
        elif name in self.world.disks:
            if not self.world.start_bookie(name):
                raise self.world.refused[name]
        else:
            raise UsageError(
                f"{name!r} is no bookie", hint="a crashed client does not come back: open another"
            )

    def lose_disk(self, name: str) -> None:
        """Crash a bookie and take its disk away, for good."""
        self._bookie(name)
        self.world.lose_disk(name)

    def pause(self, name: str) -> None:
        """SIGSTOP: the process stands still while the world goes on."""
        self._known(name)
        self.world.pause(name)

    def resume(self, name: str) -> None:
        self.world.resume(name)

    def partition(self, some: Sequence[str], others: Sequence[str]) -> None:
        """Nothing passes between the two groups, until `heal`."""
        self.network.partition(some, others)

    def heal(self) -> None:
        """End all partitions, pauses, network faults and rules; crashed bookies start again."""
        faults.heal(self.world)

    def fail_sync(self, name: str) -> None:
        """The next sync of this bookie's journal fails, and with it the journal (P7.6)."""
        self._bookie(name)
        self.world.disks[name].fail_sync(self.world.chance)

    def damage(self, name: str, ledger_id: int, entry_id: int) -> None:
        """The bookie's copy of this entry is unreadable from now on (Python disks only)."""
        storage = self.world.disks[self._bookie(name)].storage
        make_unreadable = getattr(storage, "make_unreadable", None)
        if make_unreadable is None:
            raise UsageError(
                "single entries can be damaged on Python disks only", hint="Cluster(native=False)"
            )
        make_unreadable(ledger_id, entry_id)
        self.world.tell("on_damaged", name, ledger_id, entry_id)

    def drop_messages(
        self,
        kind: str = "",
        *,
        sender: str = "",
        receiver: str = "",
        ledger_id: int | None = None,
        nth: int = 0,
        verdict: Treatment = DROP,
    ) -> Callable[[], None]:
        """Lose the messages of a kind (AddRequest, AddAnswer, FenceAnswer ...) from, to, of a ledger; the nth only, or
        all. Returns a function that ends it."""
        rule = network_faults.rule_for(
            verdict, kind=kind, sender=sender, receiver=receiver, ledger_id=ledger_id, nth=nth
        )
        self.network.add_rule(rule)
        return lambda: self.network.remove_rule(rule)

    # Time.

    @property
    def now_s(self) -> float:
        """Virtual seconds since the cluster began."""
        return self.world.now_ns / SECOND

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.world.run_for(int(seconds * SECOND))

    def run_until(self, is_reached: Callable[[], bool], within_s: float = 60.0) -> bool:
        """Let virtual time pass until a fact holds; False when it does not in that time."""
        return self.world.run_until(is_reached, int(within_s * SECOND))

    # Looking.

    def trace(self) -> list[str]:
        """The messages with sender and receiver, one line each."""
        return list(self._trace.lines())

    @property
    def trace_digest(self) -> str:
        """Equal for equal runs."""
        return self.world.trace_digest()

    def _wait(self, is_reached: Callable[[], bool], timeout_s: float | None) -> bool:
        limit_s = FOREVER_S if timeout_s is None else timeout_s
        return self.world.run_until(is_reached, max(1, math.ceil(limit_s * SECOND)))

    def _check(self) -> None:
        if self._token is None:
            raise UsageError("use the cluster in a with block")

    def _known(self, name: str) -> None:
        self._check()
        if name not in self.world.nodes:
            raise UsageError(f"{name!r} is not running; there are {', '.join(self.world.nodes)}")

    def _bookie(self, name: str) -> str:
        if name not in self.world.disks:
            raise UsageError(f"{name!r} is no bookie; there are {', '.join(self.world.disks)}")
        return name

    def __repr__(self) -> str:
        return f"Cluster(seed={self.world.seed}, {len(self.world.disks)} bookies, {self.now_s:g} s)"
