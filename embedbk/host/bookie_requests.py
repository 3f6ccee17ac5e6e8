"""Sends the requests of a client's cores to bookies, and turns each answer, or the loss of its link, into their event.

Decides what is sent to nobody, and which answers speak for a bookie or against it (RP45). Each request has exactly one
outcome (`Answered` or `SendFailed`), unless nobody waits for it. Leaves to `bookie_links` where bookies are dialled and
what leaves together, to `counted_answers` which answers are counted beside the cores, and to `quarantine` what follows
for a bookie.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from embedbk.codec.add_messages import AddAnswer, AddRequest, CopiesAnswer, ReplaceRequest, is_final
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry_log_messages import EntryLogsRequest, LogKeepersRequest
from embedbk.codec.frame import FrameHeader
from embedbk.codec.holdings_messages import HoldingsRequest, LedgerBlocksRequest
from embedbk.codec.lac_messages import ExplicitLacRequest, is_answered
from embedbk.codec.messages import Control, encode_message
from embedbk.core.client_words import BELOW_LEVEL, Answered, Send, SendFailed
from embedbk.core.machine import Event
from embedbk.host.bookie_links import REGISTERED_ELSEWHERE, BookieLink, BookieLinks
from embedbk.host.counted_answers import CountedAnswers
from embedbk.host.operations import Operation
from embedbk.metadata.client import Client
from embedbk.metadata.levels import (
    LEVEL_OF_BLOCKS,
    LEVEL_OF_CHOICES,
    LEVEL_OF_ENTRY_LOGS,
    LEVEL_OF_HOLDINGS,
    LEVEL_OF_KEEPERS,
)

__all__ = ["BookieRequests"]

UNANSWERED_MAX = 1 << 17  # Requests to one bookie that it has not answered yet; more fail at once.

# The level of the cluster from which on bookies know such a request; the others they always did.
_LEVEL_NEEDED: dict[type, int] = {
    HoldingsRequest: LEVEL_OF_HOLDINGS,
    LedgerBlocksRequest: LEVEL_OF_BLOCKS,
    EntryLogsRequest: LEVEL_OF_ENTRY_LOGS,
    LogKeepersRequest: LEVEL_OF_KEEPERS,
    ReplaceRequest: LEVEL_OF_CHOICES,
}


class BookieRequests:
    """The requests of one client node. Called on the host's thread only.

    Args:
        client: knows the cluster's level.
        counted: what counts answers beside the cores; None: nothing does.
        tell: delivers an event to an operation's core.
        note_good: a bookie has answered well (RP45).
        note_error: (now_ns, bookie id): it has failed.
    """

    def __init__(
        self,
        links: BookieLinks,
        client: Client,
        counted: CountedAnswers | None,
        tell: Callable[[Operation, Event], None],
        note_good: Callable[[str], None],
        note_error: Callable[[int, str], None],
    ) -> None:
        self._links = links
        self._client = client
        self._counted = counted
        self._tell = tell
        self._note_good = note_good
        self._note_error = note_error
        requests = itertools.count(1)
        self._next_request: Callable[[], int] = (
            requests.__next__ if counted is None else counted.answers.next_request
        )

    def send(self, now_ns: int, operation: Operation, effect: Send) -> None:
        """Send a request, or tell its operation why it cannot be sent."""
        is_awaited = is_answered(effect.control)
        if self._client.cluster_level < _LEVEL_NEEDED.get(type(effect.control), 0):
            # A bookie of a build before would end its link, and with it what others are asking over it.
            self._tell(operation, SendFailed(now_ns, effect.tag, effect.member, BELOW_LEVEL))
            return
        if type(effect.control) is ExplicitLacRequest and not is_awaited:
            self._links.put_lac(now_ns, effect.member, effect.control)
            return
        peer = self._links.by_member.get(effect.member)
        if peer is None:
            dialled = self._links.dial(now_ns, effect.member)
            if isinstance(dialled, str):
                if is_awaited:
                    has_other_disk = dialled == REGISTERED_ELSEWHERE
                    self._tell(
                        operation, SendFailed(now_ns, effect.tag, effect.member, dialled, has_other_disk)
                    )
                return
            peer = dialled
        if len(peer.outstanding) >= UNANSWERED_MAX:
            self._tell(
                operation, SendFailed(now_ns, effect.tag, effect.member, "it leaves too much unanswered")
            )
            return
        request_id = self._next_request()
        pieces = encode_message(request_id, effect.control, effect.frames)
        if is_awaited:
            peer.outstanding[request_id] = (operation, effect.tag)
        counted = self._counted
        if counted is not None and counted.sealing is not None and type(effect.control) is AddRequest:
            counted.expect(peer, request_id, effect.control, effect.frames[0][1])
        self._links.put(now_ns, peer, request_id, pieces)

    def answer(
        self,
        now_ns: int,
        peer: BookieLink,
        request_id: int,
        control: Control,
        frames: list[tuple[FrameHeader, memoryview]],
    ) -> None:
        """Tell the operation that asked; of an answer that is not final, another one follows."""
        if is_final(control):
            asked = peer.outstanding.pop(request_id, None)
        else:
            asked = peer.outstanding.get(request_id)
        if asked is None:
            return  # Delivered twice: it answered already.
        operation, tag = asked
        self._note_answer(now_ns, peer.member.bookie_id, request_id, control)
        self._tell(operation, Answered(now_ns, tag, peer.member, control, frames))

    def _note_answer(self, now_ns: int, bookie_id: str, request_id: int, control: Control) -> None:
        """Keep count of failures by bookie (RP45): adds only, since they are what new seats are for."""
        if isinstance(control, CopiesAnswer):
            if any(copy.status == Status.UNKNOWN for copy in control.copies):
                self._note_error(now_ns, bookie_id)
            elif any(copy.status == Status.OK for copy in control.copies):
                self._note_good(bookie_id)
        elif isinstance(control, AddAnswer):
            if control.status == Status.OK:
                if self._counted is not None:
                    self._counted.answers.answered(request_id)
                self._note_good(bookie_id)
            elif control.status == Status.UNKNOWN:
                self._note_error(now_ns, bookie_id)

    def fail(self, now_ns: int, peer: BookieLink, reason: str, *, has_other_disk: bool) -> None:
        """The link is down: tell the failure of all that was asked over it, in the order of asking."""
        for operation, tag in peer.outstanding.values():
            self._tell(operation, SendFailed(now_ns, tag, peer.member, reason, has_other_disk))
