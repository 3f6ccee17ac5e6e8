"""The turns of a ZeroMQ transport in C: common bodies taken, counted and answered without an object each.

Decides when C may do it; C takes the common case only, in the order of arrival, and what it does not take is for
`zmq_intake`. Leaves the calls to `zmq_accepted` and `zmq_dialled`. Nothing is offered behind an event that the host has
not seen (P3.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from embedbk.codec.answers import Answers, Counting
from embedbk.errors import StorageError
from embedbk.ports.add_path import AddPath, WaitEnd, WaitTerms
from embedbk.ports.adds import AddSeat, AddTerms
from embedbk.transports import zmq_adds, zmq_dialled
from embedbk.transports.adds import AddsInC
from embedbk.transports.envelope import CREDIT_BYTES
from embedbk.transports.loop_wait import LoopWait, WaitEnded
from embedbk.transports.zmq_accepted import AcceptedLinks, address_of, open_accepted
from embedbk.transports.zmq_ends import Ends
from embedbk.transports.zmq_intake import BODIES_PER_RECEIVE_MAX, BYTES_PER_RECEIVE_MAX, ZmqIntake
from embedbk.transports.zmq_sockets import Link, Port, Sockets

__all__ = ["AcceptedTurns", "DialledTurns"]


class AcceptedTurns:
    """The turns of accepted links: their bodies are offered to an add path, in C once one was offered."""

    def __init__(self, sockets: Sockets, ends: Ends, intake: ZmqIntake) -> None:
        self.in_c: AcceptedLinks | None = None
        self.add_path: AddPath | None = None  # What the bodies of the next `receive` are offered to.
        self._sockets = sockets
        self._ends = ends
        self._intake = intake
        self._has_asked_for_c = False
        self._wait: LoopWait | None = None  # What `wait` waits on, for these descriptors of others.
        self._wait_filenos: Sequence[int] | None = None
        self._wait_ports: dict[int, Port] = {}  # By their number there.

    def offer(self, add_path: AddPath | None) -> None:
        self.add_path = add_path
        if add_path is not None and not self._has_asked_for_c:
            self._find_c()

    def _find_c(self) -> None:
        """Have C look at the bodies of accepted links from now on, where possible."""
        listening = next((port for port, _ in self._sockets.by_fileno.values() if port.is_listening), None)
        if listening is None:
            return
        self._has_asked_for_c = True
        self.in_c = open_accepted(listening.socket)
        for link in self._ends.links.values():
            self.on_up(link)

    def on_up(self, link: Link) -> None:
        if self.in_c is not None and link.route is not None and link.is_up:
            self.in_c.up(link.port.socket.underlying, link.number, link.route, link.data_prefix)
            self._ends.room_changed[link.number] = link

    def on_down(self, link: Link) -> None:
        if self.in_c is not None:
            self.in_c.down(link.number)

    def forget_wait(self) -> None:
        """Forget the wait: there are descriptors that it does not know."""
        self._wait = None

    def wait(self, terms: WaitTerms) -> WaitEnd | None:
        in_c = self.in_c
        if in_c is None:
            return None
        if self._wait is None or self._wait_filenos is not terms.filenos:
            try:
                self._wait = self._make_wait(in_c, terms)
            except StorageError:
                return None  # The host polls.
            self._wait_filenos = terms.filenos
        for link in self._ends.room_changed.values():
            in_c.set_room(
                link.number, max(0, self._ends.window_bytes - link.sent_bytes + link.credited_bytes)
            )
        self._ends.room_changed.clear()
        wait = self._wait
        why = wait.run(terms.until_ns, terms.duties_ns, CREDIT_BYTES, terms)
        for number, taken_bytes, sent_bytes in in_c.moved():
            link = self._ends.links[number]
            link.sent_bytes += sent_bytes
            if taken_bytes:
                link.heard_ns = wait.now_ns
                self._ends.count_received(link, taken_bytes)
        for port in self._wait_ports.values():
            self._sockets.unsettled[port] = None  # It may have more.
        if why == WaitEnded.HELD_ACCEPTED:
            self._intake.held = (self._wait_ports[wait.socket], *in_c.held())
        return WaitEnd(
            [fileno for fileno in wait.ready if fileno not in self._sockets.by_fileno],
            wait.unsent if why == WaitEnded.UNSENT else None,
        )

    def _make_wait(self, in_c: AcceptedLinks, terms: WaitTerms) -> LoopWait:
        """The epoll descriptor of this transport is for others; here each of its descriptors has its own meaning."""
        wait, journals = LoopWait(accepted=in_c.handle), terms.add_path.filenos()
        self._wait_ports = {}
        for fileno, (port, is_monitor) in self._sockets.by_fileno.items():
            if port.is_listening and not is_monitor:
                self._wait_ports[wait.accept(address_of(port.socket.underlying), fileno)] = port
            else:
                wait.other(fileno)
        for fileno in journals:
            wait.journal(fileno)
        for fileno in {*terms.filenos} - {self._sockets.fileno(), *journals, *self._sockets.by_fileno}:
            wait.other(fileno)
        return wait

    def drain(self, port: Port, in_c: AcceptedLinks, add_path: AddPath) -> None:
        """Take what is there, up to a bound. Behind the first body that becomes an event nothing is offered."""
        offered_to: AddPath | None = add_path
        count, size = 0, 0
        while port.is_open:
            # The last part may have gone beyond the bound of bytes, so that nothing is left of it.
            bytes_left = max(0, BYTES_PER_RECEIVE_MAX - size)
            found = in_c.drain(port.socket.underlying, offered_to, BODIES_PER_RECEIVE_MAX - count, bytes_left)
            if found is False:
                break
            if found is True:
                port.has_backlog = True
                self._sockets.unsettled[port] = None
                break
            route, part = found
            events = len(self._ends.events)
            size += self._intake.on_part(port, route, part)
            count += 1
            if len(self._ends.events) != events:
                offered_to = self.add_path = None
        for number, taken_bytes, _ in in_c.moved():
            link = self._ends.links[number]
            link.heard_ns = self._ends.now_ns
            self._ends.count_received(link, taken_bytes)

    def close(self) -> None:
        self._wait = self.in_c = None


class DialledTurns:
    """The turns of dialled links: their bodies are offered to what counts answers, in C where that counts in C."""

    def __init__(self, sockets: Sockets, ends: Ends, intake: ZmqIntake) -> None:
        self.in_c: zmq_dialled.DialledLinks | None = None
        self.listens = False  # The host waits by `listen_for`: it asks the sockets of those links first.
        self.is_heard = False  # It has asked them since, and nothing else is ready here.
        self._sockets = sockets
        self._ends = ends
        self._intake = intake
        self._answers: Answers | None = None  # What bodies of dialled links are offered to, if it is in C.
        self._wait: LoopWait | None = None  # What `listen_for` waits on, for these descriptors of others.
        self._wait_filenos: Sequence[int] | None = None
        self._wait_links: dict[int, Link] = {}  # By their number there.
        self.sender: zmq_adds.LinkSender | None = None  # Sends adds from C, where answers are counted.

    def count(self, answers: Counting) -> None:
        self._answers = answers if isinstance(answers, Answers) else None

    def on_up(self, link: Link) -> None:
        self.forget_wait()
        answers = self._answers
        if answers is not None and self.in_c is None:
            in_c = zmq_dialled.open_dialled(link.port.socket, answers)
            if in_c is not None:
                try:
                    self.sender = zmq_adds.LinkSender()
                except StorageError:
                    return  # No descriptor is left: the next link tries it again.
                self.in_c = in_c
                self._sockets.watch(self.sender.fileno())

    def on_down(self, link: Link) -> None:
        self.forget_wait()
        if self.sender is not None:
            self.sender.down(link.number)

    # Adds that are sent from C (`ports.adds.AddSending`).

    def open_adds(self, terms: AddTerms, seats: Sequence[AddSeat]) -> AddsInC | None:
        """As `AddSending.open_adds`. None: not over these links."""
        sender, answers = self.sender, self._answers
        if sender is None or answers is None:
            return None
        links = [self._ends.links.get(seat.link) for seat in seats]
        if any(link is None or not link.is_up or not link.port.sends_frames for link in links):
            return None
        adds = AddsInC(sender, sender.links, answers, terms, seats)
        sender.begin(adds)
        return adds

    def wake_adds(self) -> None:
        sender = self.sender
        if sender is not None:  # Else it is closed, and appends raise so.
            sender.wake()

    def send_adds(self, now_ns: int) -> None:
        """Give these adds a turn, outside of `listen_for`."""
        if self.sender is not None:
            self._show_room(self.sender)
            self.sender.take(now_ns)
            self._note_sent(self.sender)

    def _dialled(self) -> Iterator[Link]:
        return (link for link in self._ends.links.values() if link.is_up and link.port.dialled is link)

    def _show_room(self, sender: zmq_adds.LinkSender) -> None:
        if not sender.is_idle:
            for link in self._dialled():
                room = max(0, self._ends.window_bytes - link.sent_bytes + link.credited_bytes)
                sender.show(link.number, link.port.socket.underlying, link.data_prefix, room)

    def _note_sent(self, sender: zmq_adds.LinkSender) -> None:
        if not sender.is_idle:
            for link in self._dialled():
                sent_bytes = sender.sent(link.number)
                if sent_bytes:
                    link.sent_bytes += sent_bytes
                    self._sockets.unsettled[link.port] = None

    def forget_wait(self) -> None:
        """Forget the wait: there are links or descriptors that it does not know."""
        self._wait = None

    def close(self) -> None:
        """Close the wait in C: it has a descriptor of its own, and this object is in cycles with its transport."""
        self._wait = self.in_c = self.sender = None

    def listen_for(self, filenos: Sequence[int], until_ns: int, untold_ns: int) -> Sequence[int] | None:
        in_c, sender = self.in_c, self.sender
        if in_c is None or self._ends.events or any(port.is_listening for port in self._sockets.unsettled):
            return None
        assert sender is not None
        if self._wait is None or self._wait_filenos is not filenos:
            try:
                self._wait = self._make_wait(in_c, sender, filenos)
            except StorageError:
                return None  # The host polls.
            self._wait_filenos = filenos
        wait = self._wait
        self.listens = True
        self._show_room(sender)
        why = wait.run(until_ns, untold_ns, CREDIT_BYTES)
        self._note_sent(sender)
        for number, link in self._wait_links.items():
            taken_bytes = wait.taken(number)
            if taken_bytes:
                link.heard_ns = wait.now_ns
                self._ends.count_received(link, taken_bytes)
        ready = wait.ready
        others = [fileno for fileno in ready if fileno not in self._sockets.by_fileno]
        self.is_heard = wait.is_dry and len(others) == len(ready)
        if self.is_heard:
            for link in self._wait_links.values():
                self._sockets.unsettled.pop(link.port, None)
        elif why == WaitEnded.HELD_DIALLED:
            self._intake.held = (self._wait_links[wait.socket].port, b"", in_c.held())
        if not wait.is_dry:
            for link in self._wait_links.values():
                self._sockets.unsettled[link.port] = None
        return others

    def _make_wait(
        self, in_c: zmq_dialled.DialledLinks, sender: zmq_adds.LinkSender, filenos: Sequence[int]
    ) -> LoopWait:
        """The epoll descriptor of this transport is for others; here each of its descriptors has its own meaning."""
        wait = LoopWait(dialled=(in_c.handle, in_c.answers, sender.links), turns=sender.handle)
        apart = {self._sockets.fileno(), sender.fileno()}
        self._wait_links = {}
        for link in self._dialled():
            fileno = link.port.filenos[0]
            apart.add(fileno)
            socket = address_of(link.port.socket.underlying)
            self._wait_links[wait.dial(socket, fileno, link.number, link.data_prefix)] = link
        for fileno in {*filenos, *self._sockets.by_fileno} - apart:
            wait.other(fileno)
        return wait

    def drain(self, port: Port, link: Link, in_c: zmq_dialled.DialledLinks) -> None:
        """As for accepted links, once the link is up. After a body that is not taken nothing is offered, to keep the
        order."""
        found = in_c.drain(
            port.socket.underlying,
            link.number,
            link.data_prefix,
            BODIES_PER_RECEIVE_MAX,
            BYTES_PER_RECEIVE_MAX,
        )
        if in_c.taken_bytes:
            link.heard_ns = self._ends.now_ns
            self._ends.count_received(link, in_c.taken_bytes)
        if found == zmq_dialled.HELD:
            count, size = in_c.received
            self._intake.on_part(port, b"", in_c.held())
            self._intake.drain(port, count, size)
        elif found == zmq_dialled.BOUND:
            port.has_backlog = True
            self._sockets.unsettled[port] = None
