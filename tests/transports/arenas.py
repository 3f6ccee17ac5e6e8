"""Where transports of ours meet in tests, one arena a kind: their public suite, and what is theirs alone."""

from __future__ import annotations

import socket
from typing import Any

from embedbk.ports.links import Identity
from embedbk.ports.transport import Transport
from embedbk.transports.conformance import PATIENCE_NS, RealTimeArena
from embedbk.transports.local import LocalTransport
from embedbk.transports.zmq import ZmqTransport


class LocalArena(RealTimeArena):
    opens: type[LocalTransport] = LocalTransport

    def make(self, identity: Identity, **settings: Any) -> Transport:
        return self.opens(identity, **settings)

    def endpoint(self) -> str:
        return "local://*"

    def nowhere(self) -> str:
        return "local://nobody"


class TcpArena(RealTimeArena):
    opens: type[ZmqTransport] = ZmqTransport
    skipped_ns = 0  # That nobody waited for.

    def now_ns(self) -> int:
        return super().now_ns() + self.skipped_ns

    def make(self, identity: Identity, **settings: Any) -> Transport:
        return self.opens(identity, **settings)

    def endpoint(self) -> str:
        return "tcp://127.0.0.1:0"

    def nowhere(self) -> str:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return f"tcp://127.0.0.1:{server.getsockname()[1]}"


class QuietTcpArena(TcpArena):
    """For tests of single waits and turns: no link asks for a sign of life while one lasts. On a slow machine a ping is
    due at any moment; it ends a wait, and what came behind it is the host's."""

    def make(self, identity: Identity, **settings: Any) -> Transport:
        return super().make(
            identity, **{"heartbeat_ns": PATIENCE_NS, "timeout_ns": 3 * PATIENCE_NS, **settings}
        )
