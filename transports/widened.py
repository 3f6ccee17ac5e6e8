"""Links inside one process, and links with other processes once they are wanted: `local`, widened by `tcp` or `ipc`.

Decides which of two transports carries a link. The wider one is made when it is first wanted: a cluster that is alone
in its process pays for no sockets. A link's number says which transport has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embedbk.errors import UsageError
from embedbk.ports.add_path import AddPath
from embedbk.ports.links import Buffer, Identity, LinkDown, LinkUp, Received, TransportEvent
from embedbk.ports.transport import Transport
from embedbk.transports.local import SCHEME, LocalTransport

__all__ = ["WidenedTransport"]

_FIRST_WIDE = 1 << 48  # Links inside the process are below: they are numbered from 1.


class WidenedTransport(Transport):
    """A Transport (embedbk.ports) of a node that is reached in its process, and may be from elsewhere.

    Args:
        identity: what this node says in Hello.
        widen: makes the transport for an endpoint that is not `local`; called once. Raises UsageError: it cannot.
        local: for links inside the process; one with the usual settings if None.
    """

    def __init__(
        self,
        identity: Identity,
        widen: Callable[[str, Identity], Transport],
        local: LocalTransport | None = None,
    ) -> None:
        self.identity = identity
        self.on_widened: Callable[[], None] = lambda: None  # It has more descriptors now (`Loop.look_again`).
        self._widen = widen
        self._local = local or LocalTransport(identity)
        self._wide: Transport | None = None

    def listen(self, endpoint: str) -> str:
        return self._of(endpoint).listen(endpoint)

    def connect(self, endpoint: str, expect: Identity | None = None) -> int:
        carrier = self._of(endpoint)
        link = carrier.connect(endpoint, expect)
        return link if carrier is self._local else link + _FIRST_WIDE

    def _of(self, endpoint: str) -> Transport:
        if endpoint.startswith(SCHEME):
            return self._local
        if self._wide is None:
            try:
                self._wide = self._widen(endpoint, self.identity)
            except (OSError, ImportError) as refused:  # No descriptor is left, to import it or for it.
                raise UsageError(
                    f"endpoint {endpoint!r}: nothing here carries it now: {refused}"
                ) from refused
            self.on_widened()
        return self._wide

    def send(self, link: int, pieces: Sequence[Buffer]) -> bool:
        if link < _FIRST_WIDE:
            return self._local.send(link, pieces)
        return self._wide is not None and self._wide.send(link - _FIRST_WIDE, pieces)

    def has_room(self, link: int, size: int) -> bool:
        if link < _FIRST_WIDE:
            return self._local.has_room(link, size)
        return self._wide is not None and self._wide.has_room(link - _FIRST_WIDE, size)

    def drop(self, link: int, reason: str) -> None:
        if link < _FIRST_WIDE:
            self._local.drop(link, reason)
        elif self._wide is not None:
            self._wide.drop(link - _FIRST_WIDE, reason)

    def offer(self, add_path: AddPath | None) -> None:
        self._local.offer(
            add_path
        )  # Bodies of others are events: links of two transports have no common order.

    def receive(self, now_ns: int) -> list[TransportEvent]:
        events = self._local.receive(now_ns)
        if self._wide is not None:
            events += map(_numbered, self._wide.receive(now_ns))
        return events

    def has_events(self) -> bool:
        return self._local.has_events() or (self._wide is not None and self._wide.has_events())

    def deadline_ns(self) -> int | None:
        here = self._local.deadline_ns()
        there = self._wide.deadline_ns() if self._wide is not None else None
        return min((each for each in (here, there) if each is not None), default=None)

    def filenos(self) -> list[int]:
        return [*self._local.filenos(), *(self._wide.filenos() if self._wide is not None else ())]

    def close(self) -> None:
        self._local.close()
        if self._wide is not None:
            self._wide.close()


def _numbered(event: TransportEvent) -> TransportEvent:
    link = event.link + _FIRST_WIDE
    match event:
        case LinkUp(_, peer):
            return LinkUp(link, peer)
        case LinkDown(_, reason):
            return LinkDown(link, reason)
        case Received(_, body):
            return Received(link, body)
