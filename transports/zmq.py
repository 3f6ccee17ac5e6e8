"""Links between processes over ZeroMQ: one ROUTER per listening endpoint, one DEALER per dialled link (tcp, ipc).

Decides what a host's turn does in which order, and composes the parts: `zmq_sockets`, `zmq_ends` (links),
`zmq_before_hello` (connections without one), `zmq_intake` (input in Python), `zmq_turns` (in C). Leaves the bytes of
envelope and Hello to `envelope`, and what may be bound or dialled to `endpoints`. Carries P7.2 (Hello, nonces) and the
threats T4, T10 and T13.

What ZeroMQ would do behind our back is switched off: a DEALER that loses its connection is closed with all that it
had queued, never reconnected, so nothing is sent twice or late. What peers send is checked here and may end their
link; it never raises to the host.

Readiness: a ZeroMQ descriptor tells of changes, not of states, and a send may swallow the change. So every socket
that was used since is asked again in `deadline_ns`, which a host calls before it sleeps; it then says "at once".
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from zmq.backend import zmq_poll

from embedbk.codec.answers_twin import Counting
from embedbk.config import MESSAGE_BYTES_MAX
from embedbk.errors import UsageError
from embedbk.ports.add_path import AddPath, WaitEnd, WaitTerms
from embedbk.ports.adds import AddSending
from embedbk.ports.links import Buffer, Identity, TransportEvent
from embedbk.transports.endpoints import check_endpoint, check_ipc_path_is_free
from embedbk.transports.envelope import NONCE_BYTES, PROTOCOL_VERSIONS, Hello, check_settings
from embedbk.transports.zmq_accepted import HeldPart
from embedbk.transports.zmq_before_hello import BeforeHello
from embedbk.transports.zmq_ends import Counters, Ends, Patience
from embedbk.transports.zmq_intake import ZmqIntake
from embedbk.transports.zmq_send import can_send_frames
from embedbk.transports.zmq_sockets import Link, Port, Sockets
from embedbk.transports.zmq_turns import AcceptedTurns, DialledTurns

__all__ = ["Counters", "ZmqTransport"]


class ZmqTransport:
    """A Transport (embedbk.ports) over ZeroMQ, with a context and one I/O thread of its own.

    Args:
        identity: what this node says in Hello; may be set again when the cluster token was learnt.
        allow_non_loopback: bind and dial addresses of other machines; links are not encrypted.
        heartbeat_ns: a link on which nothing was heard for so long is asked for a sign of life, by who dialled it.
        timeout_ns: a link on which nothing was heard for so long is down. At least three heartbeats.
        connect_timeout_ns: from `connect` to LinkUp.
        window_bytes: sent on one link and not yet received by the peer; `send` says False beyond it.
        protocols: oldest and newest protocol version that the node speaks.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        allow_non_loopback: bool = False,
        heartbeat_ns: int = 200_000_000,
        timeout_ns: int = 2_000_000_000,
        connect_timeout_ns: int = 2_000_000_000,
        window_bytes: int = 16 << 20,
        protocols: tuple[int, int] = PROTOCOL_VERSIONS,
    ) -> None:
        check_settings(identity, protocols, window_bytes)
        if not 0 < 3 * heartbeat_ns <= timeout_ns or connect_timeout_ns <= 0:
            raise UsageError(
                f"heartbeat_ns={heartbeat_ns}, timeout_ns={timeout_ns}, connect_timeout_ns={connect_timeout_ns}: "
                "all above 0, and timeout_ns at least three heartbeats"
            )
        self.identity = identity
        self._protocols = protocols
        self._allow_non_loopback = allow_non_loopback
        self._timeout_ns = timeout_ns
        self._sockets = Sockets()
        patience = Patience(heartbeat_ns, timeout_ns, connect_timeout_ns)
        self._ends = Ends(self._sockets, patience, window_bytes, self._on_up, self._on_down)
        self._before_hello = BeforeHello(self._ends, self._hello)
        self._intake = ZmqIntake(self._sockets, self._ends, self._before_hello, self._hello)
        self._accepted = AcceptedTurns(self._sockets, self._ends, self._intake)
        self._dialled = DialledTurns(self._sockets, self._ends, self._intake)
        self._is_alone = False  # The last `receive` told what had ended a wait, and looked no further.
        self._links = self._ends.links
        self.counters = self._ends.counters

    # --- The port ------------------------------------------------------------------------------------

    def listen(self, endpoint: str) -> str:
        self._check_open()
        check_endpoint(endpoint, is_listening=True, allow_non_loopback=self._allow_non_loopback)
        if endpoint.startswith("ipc://"):
            check_ipc_path_is_free(endpoint)
        port = self._sockets.listen(endpoint)
        self._on_new_port()
        return port.endpoint

    def connect(self, endpoint: str, expect: Identity | None = None) -> int:
        self._check_open()
        check_endpoint(endpoint, is_listening=False, allow_non_loopback=self._allow_non_loopback)
        if self._ends.is_full:
            most = self._ends.links_max
            raise UsageError(
                f"this transport has {most} links already, allowed are {most}: use another client"
            )
        port = self._sockets.dial(endpoint)
        self._on_new_port()
        port.sends_frames = can_send_frames(port.socket)
        link = port.dialled = self._ends.begin(port, None, os.urandom(NONCE_BYTES))
        link.expect = expect
        self._ends.due_ns = self._ends.now_ns  # The next `receive` starts its time.
        return link.number

    def send(self, link: int, pieces: Sequence[Buffer]) -> bool:
        end = self._links.get(link)
        if end is None or not end.is_up:
            return False
        size = 0
        for piece in pieces:
            size += piece.nbytes if type(piece) is memoryview else len(piece)
        if size > MESSAGE_BYTES_MAX:
            raise UsageError(f"body has {size} bytes; a link carries at most {MESSAGE_BYTES_MAX}")
        ends = self._ends
        if not ends.has_room(end, size) or not ends.put_body(end, pieces, size):
            return False
        end.sent_bytes += size
        if end.route is not None:
            ends.room_changed[link] = end
        return True

    def has_room(self, link: int, size: int) -> bool:
        end = self._links.get(link)
        return end is not None and end.is_up and self._ends.has_room(end, size)

    def drop(self, link: int, reason: str) -> None:
        end = self._links.get(link)
        if end is not None:
            self._ends.break_off(end, reason)

    def offer(self, add_path: AddPath | None) -> None:
        self._accepted.offer(add_path)

    def wait(self, terms: WaitTerms) -> WaitEnd | None:
        return None if self.has_events() else self._accepted.wait(terms)

    def count(self, answers: Counting) -> None:
        self._dialled.count(answers)

    def listen_for(self, filenos: Sequence[int], until_ns: int, untold_ns: int) -> Sequence[int] | None:
        others = self._dialled.listen_for(filenos, until_ns, untold_ns)
        return self._stop_listening() if others is None else others

    def _stop_listening(self) -> Sequence[int] | None:
        """The host has to wait by itself; unless sockets that `deadline_ns` did not ask have something."""
        if not self._dialled.listens:
            return None
        self._dialled.listens = False
        due_ns = self.deadline_ns()
        return [] if due_ns is not None and due_ns <= self._ends.now_ns else None

    def adds(self) -> AddSending | None:
        return None if self._dialled.sender is None else self._dialled

    def receive(self, now_ns: int) -> list[TransportEvent]:
        sockets, ends = self._sockets, self._ends
        if not sockets.is_open:
            return []
        blind_ns = now_ns - ends.now_ns
        ends.now_ns = now_ns
        if blind_ns > self._timeout_ns // 2:
            ends.excuse(blind_ns)
            self._before_hello.excuse(blind_ns)
        held = self._intake.held
        # What ended a client's wait is returned alone: the next wait receives the rest, in C. Only every other time, or
        # a link on which bodies come without a pause would hide all others.
        self._is_alone = held is not None and self._dialled.listens and not self._is_alone
        if held is not None:
            self._take_held(*held)
        is_heard, self._dialled.is_heard = self._dialled.is_heard, False
        if not self._is_alone:
            if not is_heard:
                sockets.look()
            ports, sockets.unsettled = sockets.unsettled, {}
            for port in ports:
                if port.is_open:
                    self._drain(port)
        if sockets.unseen:  # After what came before the end.
            unseen, sockets.unseen = sockets.unseen, {}
            for port in unseen:
                if port.is_open:
                    self._before_hello.look_for_ends(port)
        if ends.due_ns is not None and now_ns >= ends.due_ns:
            due_ns = min(ends.keep_time(), self._before_hello.keep_time())
            ends.due_ns = due_ns if self._links or self._before_hello.silent else None
        events, ends.events = ends.events, []
        return events

    def has_events(self) -> bool:
        return bool(self._ends.events) or self._intake.held is not None

    def deadline_ns(self) -> int | None:
        if self.has_events():
            return self._ends.now_ns
        if self._sockets.unsettled:
            listens = self._dialled.listens
            # All in one call. It asks each as `state` does, so descriptors will tell of anything from then on.
            asked = [
                (port.socket, port.awaited)
                for port in self._sockets.unsettled
                if port.is_open and not (listens and port.dialled is not None and port.dialled.is_up)
            ]
            if asked and zmq_poll(asked, 0):
                return self._ends.now_ns
            if not listens:
                self._sockets.unsettled.clear()
        return self._ends.due_ns

    def filenos(self) -> list[int]:
        return [self._sockets.fileno()] if self._sockets.is_open else []

    def close(self) -> None:
        if not self._sockets.is_open:
            return
        self._intake.held = None
        self._accepted.close()
        self._dialled.close()
        self._sockets.close()
        self._ends.close()

    # --- The parts -----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._sockets.is_open:
            raise UsageError(f"the transport of {self.identity.node_id} is closed")

    def _hello(self) -> Hello:
        return Hello(self.identity, self._protocols)

    def _on_new_port(self) -> None:
        """Forget both waits in C: a new port has descriptors that they do not know."""
        self._accepted.forget_wait()
        self._dialled.forget_wait()

    def _on_up(self, link: Link) -> None:
        if link.route is None:
            self._dialled.on_up(link)
        else:
            self._accepted.on_up(link)

    def _on_down(self, link: Link) -> None:
        self._dialled.on_down(link)
        if link.route is None:
            self._accepted.forget_wait()
        else:
            self._accepted.on_down(link)
            self._before_hello.await_end(link)

    def _take_held(self, port: Port, route: bytes, part: HeldPart) -> None:
        """Take what ended the last wait. Nothing is offered behind an event that the host has not seen."""
        self._intake.held = None
        if port.is_open:
            size = self._intake.on_part(port, route, part)
            if not port.is_listening and not self._is_alone:
                self._sockets.unsettled.pop(port, None)
                self._intake.drain(port, 1, size)
            if self._ends.events:
                self._accepted.add_path = None

    def _drain(self, port: Port) -> None:
        """Take what is there, up to a bound; what is left makes `deadline_ns` say "at once"."""
        port.has_backlog = False
        accepted, dialled = self._accepted, self._dialled
        if port.is_listening and accepted.in_c is not None and accepted.add_path is not None:
            accepted.drain(port, accepted.in_c, accepted.add_path)
        elif dialled.in_c is not None and port.dialled is not None and port.dialled.is_up:
            dialled.drain(port, port.dialled, dialled.in_c)
        else:
            self._intake.drain(port, 0, 0)
