"""A blank member's listener: it answers requests, and holds nothing (RAFT.md, 11; metadata/forming.py).

Decides that each request is answered at once and nothing of it is kept. `Forming` decides the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.metadata_messages import MetadataReply, MetadataRequest
from embedbk.errors import PeerError
from embedbk.metadata.forming import Forming
from embedbk.ports.links import Received
from embedbk.ports.transport import Transport

__all__ = ["BlankMember"]


class BlankMember:
    """A node of a loop."""

    def __init__(
        self,
        transport: Transport,
        listen: Sequence[str],
        name: str,
        promised: Callable[[Sequence[str]], None],
    ) -> None:
        """promised: called with the places of the members with which it forms a cluster."""
        self.endpoints = [transport.listen(endpoint) for endpoint in listen]
        self.forming = Forming(name, self.endpoints)
        self._transport = transport
        self._promised = promised

    def step(self, now_ns: int) -> None:
        for event in self._transport.receive(now_ns):
            if not isinstance(event, Received):
                continue
            try:
                request = decode_message(event.body).control
                if not isinstance(request, MetadataRequest):
                    raise PeerError(f"a {type(request).__name__} is not for a blank metadata member")
            except PeerError as broken:
                self._transport.drop(event.link, str(broken))
                continue
            result = self.forming.answer(now_ns, request.operation)
            reply = MetadataReply(request.session, request.sequence, result)
            if not self._transport.send(event.link, encode_message(reply.sequence, reply)):
                self._transport.drop(event.link, "its queue is full")
        if self.forming.others:
            self._promised(self.forming.others)

    def has_news(self) -> bool:
        return self._transport.has_events()

    def deadline_ns(self) -> int | None:
        return self._transport.deadline_ns()

    def filenos(self) -> list[int]:
        return self._transport.filenos()

    def close(self, failure: BaseException | None = None) -> None:
        self._transport.close()
