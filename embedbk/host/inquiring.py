"""Ask metadata members one thing, each over a link of its own and without a session, until the caller has enough.
Bookies are asked which metadata they met, and which ledgers they hold.

For processes that are no clients: a blank member that looks for its cluster, and the commands of operators. Decides
when a member is asked again. The caller decides what follows from the answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.metadata_messages import MetadataReply, MetadataRequest, Operation, Result
from embedbk.codec.quorum_messages import AskHeld, AskMet, CutSnapshot
from embedbk.errors import PeerError, UsageError
from embedbk.ports.links import LinkDown, LinkUp, Received
from embedbk.ports.transport import Transport

__all__ = ["Inquiry"]

AGAIN_NS = 200_000_000  # After an answer, or a link that could not be had.
PATIENCE_NS = 2_000_000_000  # How long it waits for an answer; then the link is given up.
# For a snapshot, which is answered when it is written. Asked again it would be of a later state: while commands go on,
# one that takes longer than that to write would never be had.
CUT_PATIENCE_NS = 3_600_000_000_000


@dataclass(slots=True)
class _Asked:
    endpoint: str
    link: int | None = None
    is_up: bool = False
    due_ns: int = 0  # To dial or ask, or to give the link up.
    sequence: int = 0  # Under way; 0: none.
    is_told: bool = False  # Answered, or could not be reached, at least once.


class Inquiry:
    """A node of a loop. heard(endpoint, result) is called for each answer, missed(endpoint, reason) for a failure."""

    def __init__(
        self,
        transport: Transport,
        endpoints: Iterable[str],
        operation: Operation,
        heard: Callable[[str, Result], None],
        missed: Callable[[str, str], None] = lambda _endpoint, _reason: None,
    ) -> None:
        self.until_ns: int | None = None  # A time at which the loop is to turn.
        self._transport = transport
        self._operation = operation
        self._patience_ns = CUT_PATIENCE_NS if isinstance(operation, CutSnapshot) else PATIENCE_NS
        self._heard, self._missed = heard, missed
        self._asked: dict[str, _Asked] = {}
        self._links: dict[int, _Asked] = {}
        self._sequences = itertools.count(1)
        self.also(endpoints)

    def also(self, endpoints: Iterable[str]) -> None:
        """Ask these too."""
        for endpoint in endpoints:
            if endpoint not in self._asked:
                self._asked[endpoint] = _Asked(endpoint)

    @property
    def has_asked_all(self) -> bool:
        """Whether each endpoint answered, or could not be reached, at least once."""
        return all(each.is_told for each in self._asked.values())

    # As a node of the loop.

    def step(self, now_ns: int) -> None:
        for event in self._transport.receive(now_ns):
            asked = self._links.get(event.link)
            if asked is None:
                continue
            if isinstance(event, LinkUp):
                self._take_link(now_ns, asked, event)
            elif isinstance(event, LinkDown):
                del self._links[event.link]
                asked.link, asked.is_up, asked.sequence = None, False, 0
                self._miss(now_ns, asked, event.reason)
            else:
                assert isinstance(event, Received)
                self._take_answer(now_ns, asked, event)
        for asked in list(self._asked.values()):
            if now_ns >= asked.due_ns:
                self._go_on(now_ns, asked)

    def _take_link(self, now_ns: int, asked: _Asked, event: LinkUp) -> None:
        if event.peer.role != "metadata" and not isinstance(self._operation, AskMet | AskHeld):
            self._transport.drop(
                event.link, f"{event.peer.node_id} is a {event.peer.role}, not a metadata member"
            )
            return
        asked.is_up, asked.due_ns = True, now_ns

    def _take_answer(self, now_ns: int, asked: _Asked, event: Received) -> None:
        try:
            control = decode_message(event.body).control
        except PeerError as broken:
            self._transport.drop(event.link, str(broken))
            return
        if isinstance(control, MetadataReply) and control.sequence == asked.sequence:
            asked.sequence, asked.is_told, asked.due_ns = 0, True, now_ns + AGAIN_NS
            self._heard(asked.endpoint, control.result)

    def _go_on(self, now_ns: int, asked: _Asked) -> None:
        asked.due_ns = now_ns + PATIENCE_NS
        if asked.link is None:
            try:
                asked.link = self._transport.connect(asked.endpoint)
            except UsageError as refused:
                self._miss(now_ns, asked, str(refused))
                return
            self._links[asked.link] = asked
        elif asked.is_up and not asked.sequence:
            asked.sequence, asked.due_ns = next(self._sequences), now_ns + self._patience_ns
            request = MetadataRequest(0, asked.sequence, 1, self._operation)
            if not self._transport.send(asked.link, encode_message(asked.sequence, request)):
                self._transport.drop(asked.link, "its queue is full")
        else:
            self._transport.drop(
                asked.link,
                f"{asked.endpoint} did not answer within "
                f"{(self._patience_ns if asked.sequence else PATIENCE_NS) / 1e9:.0f} s",
            )

    def _miss(self, now_ns: int, asked: _Asked, reason: str) -> None:
        asked.is_told, asked.due_ns = True, now_ns + AGAIN_NS
        self._missed(asked.endpoint, reason)

    def has_news(self) -> bool:
        return self._transport.has_events()

    def deadline_ns(self) -> int | None:
        due = [self._transport.deadline_ns(), self.until_ns, *(each.due_ns for each in self._asked.values())]
        return min((each for each in due if each is not None), default=None)

    def filenos(self) -> list[int]:
        return self._transport.filenos()

    def close(self, failure: BaseException | None = None) -> None:
        self._transport.close()
