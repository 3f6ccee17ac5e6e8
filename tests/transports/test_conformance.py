"""Every transport of ours passes the public suite (embedbk.transports.conformance)."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

from embedbk.ports.links import Identity
from embedbk.ports.transport import Transport
from embedbk.transports.conformance import Arena, TransportConformance
from embedbk.transports.local import LocalTransport
from embedbk.transports.sim import SimNetwork
from embedbk.transports.sim_faults import CALM
from embedbk.transports.sim_transport import SimTransport
from embedbk.transports.widened import WidenedTransport
from embedbk.transports.zmq import ZmqTransport
from tests.transports.arenas import LocalArena, TcpArena
from tests.transports.offering import OfferingLocal, OfferingZmq


class IpcArena(TcpArena):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.numbers = itertools.count()

    def endpoint(self) -> str:
        return f"ipc://{self.folder.name}/{next(self.numbers)}"

    def nowhere(self) -> str:
        return f"ipc://{self.folder.name}/nobody"

    def close(self) -> None:
        super().close()
        assert list(Path(self.folder.name).iterdir()) == []  # Nothing of a closed transport is left.
        self.folder.cleanup()


class SimArena(Arena):
    def __init__(self) -> None:
        super().__init__()
        self.network = SimNetwork(7, CALM)

    def make(self, identity: Identity, window_bytes: int | None = None, **settings: Any) -> Transport:
        if window_bytes is not None:
            self.network.window_bytes = window_bytes
        return self.network.transport(identity, **settings)

    def endpoint(self) -> str:
        return "sim://*"

    def nowhere(self) -> str:
        return "sim://nobody"

    def now_ns(self) -> int:
        return self.network.now_ns

    def wait(self, transports: list[Transport]) -> None:
        due = [when for each in transports if (when := each.deadline_ns()) is not None]
        if (next_ns := self.network.next_event_ns()) is not None:
            due.append(next_ns)
        assert due, "nothing will ever happen again"
        self.network.advance(min(due))

    def kill(self, transport: Transport) -> None:
        assert isinstance(transport, SimTransport)
        self.network.crash(transport.identity.node_id)


class OfferingTcpArena(TcpArena):
    opens = OfferingZmq


class OfferingLocalArena(LocalArena):
    opens = OfferingLocal


class WidenedTcpArena(TcpArena):
    def make(self, identity: Identity, **settings: Any) -> Transport:
        return WidenedTransport(identity, lambda _, who: ZmqTransport(who, **settings))


class WidenedLocalArena(LocalArena):
    def make(self, identity: Identity, **settings: Any) -> Transport:
        local = LocalTransport(identity, **settings)
        return WidenedTransport(identity, lambda _, who: ZmqTransport(who), local)


class TestWidenedByTcp(TransportConformance):
    arena_type = WidenedTcpArena


class TestWidenedInside(TransportConformance):
    arena_type = WidenedLocalArena


class TestLocal(TransportConformance):
    arena_type = LocalArena


class TestTcp(TransportConformance):
    arena_type = TcpArena


class TestIpc(TransportConformance):
    arena_type = IpcArena


class TestSim(TransportConformance):
    arena_type = SimArena


class TestTcpWithAnAddPath(TransportConformance):
    """What the add path passes went through C, and is what it is without."""

    arena_type = OfferingTcpArena


class TestLocalWithAnAddPath(TransportConformance):
    arena_type = OfferingLocalArena
