"""The routes that a ROUTER gives to its connections: a zero, then numbers one above the other (T4).

Decides which routes are its own. A peer may name one itself, as it likes; then it is no peer of ours. Should it name a
number that the ROUTER is about to give, libzmq ends the process (`zmq_assert` in `router_t::identify_peer`): so
where the numbers begin is secret, a peer that tries is hung up on, and `zmq_before_hello` bounds how long one may try.
"""

from __future__ import annotations

import itertools

import zmq

__all__ = ["ROUTE_BYTES", "Routes"]

ROUTE_BYTES = 5
_NUMBERS = 1 << 32

_names = itertools.count()


class Routes:
    """The routes of one ROUTER that nobody is connected to yet."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], router: zmq.Socket[bytes]) -> None:
        self.accepted_count = 0  # Connections, ever; each gets one number at most.
        name = f"inproc://routes-{next(_names)}"
        router.bind(name)
        probe = context.socket(zmq.DEALER)
        try:
            probe.setsockopt(zmq.LINGER, 0)
            probe.connect(name)  # Within this context, so that no other process is between.
            probe.send(b"")
            self._first = int.from_bytes(router.recv()[1:], "big")
            router.recv()
        finally:
            probe.close(0)
            router.unbind(name)

    def are_given(self, route: bytes) -> bool:
        """Whether the ROUTER gave this route to a connection that it accepted so far."""
        if len(route) != ROUTE_BYTES or route[0]:
            return False
        number = (int.from_bytes(route[1:], "big") - self._first) % _NUMBERS
        return 0 < number <= self.accepted_count
