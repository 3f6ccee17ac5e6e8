"""The requests of a metadata client that have no answer yet, from when the host asks to their outcome
(METADATA.md, 5; P2.2, P10.1). Pure.

Decides which are sent and in which order, when one is sent again, and what is known of one whose session is lost or
that nobody wants any more; `pacing` decides how many are under way. Leaves to `client` which session and link there
is, and which requests are taken at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from embedbk.codec.metadata_messages import (
    BUSY,
    AllocIds,
    Get,
    List,
    MetadataReply,
    MetadataRequest,
    Operation,
    Refusal,
    Result,
    Tell,
    Unwatch,
    Watch,
)
from embedbk.codec.quorum_messages import QuorumStatus
from embedbk.metadata.client_session import ClientSession
from embedbk.metadata.pacing import Pace
from embedbk.metadata.vocabulary import Completed, Send, Token
from embedbk.metadata.watching import StreamRequest

__all__ = ["UNKNOWN", "OutstandingRequests"]

UNKNOWN = "UNKNOWN"  # Refusal.code given by this core only, never by the quorum: may have been run, and may still be.
SEQUENCE_WINDOW = 256  # From the oldest unanswered sequence on: the quorum keeps no more answers (Limits).
RESEND_NS = 1_000_000_000  # A request without an answer for so long (or a third of the ttl) is sent again.
RESENT_AT_ONCE = 4  # Requests without an answer sent again at once; more might only add to a crowd.
_NEVER_NS = 1 << 62


@dataclass(slots=True)
class _Pending:
    """A request of the host, or of a watch (then `stream` is set)."""

    token: Token
    operation: Operation
    stream: StreamRequest | None = None
    sequence: int = 0  # 0: not sent under the present session.
    sent_ns: int = 0  # When it was first sent under the present session.
    times: int = 0  # How often it was sent again since the last answer.
    due_ns: int = 0  # When to send again.
    put_off: str = ""  # Why the quorum did not run it the last time.

    @property
    def is_repeatable(self) -> bool:
        """Whether running it twice does no harm: reads, and ids, whose first block is then a gap."""
        return isinstance(self.operation, Get | List | Tell | QuorumStatus | AllocIds)

    @property
    def is_of_stream(self) -> bool:
        """Whether it belongs to one link, and is never sent again over another."""
        return isinstance(self.operation, Watch | Unwatch)

    def begins(self, watch_id: int) -> bool:
        """Whether it asks for this stream."""
        return isinstance(self.operation, Watch) and self.operation.watch_id == watch_id


class OutstandingRequests:
    """Each method that has `effects` appends to them what the host is to do, in order."""

    def __init__(self) -> None:
        self.put_off = ""  # Why requests were not run lately; empty since one was answered.
        self.resend_ns: int | None = None  # When to look for requests that got no answer.
        self._pace = Pace()
        self._queue: deque[_Pending] = deque()  # Requests not sent under the present session.
        self._in_flight: dict[int, _Pending] = {}  # Requests by sequence, rising.
        self._again: deque[_Pending] = (
            deque()
        )  # Requests in flight that were not sent over the present link yet, in order.
        self._by_token: dict[Token, _Pending] = {}  # Those of the host.

    def __len__(self) -> int:
        """Those of the host."""
        return len(self._by_token)

    @property
    def oldest(self) -> int | None:
        """The sequence of the oldest one that was sent."""
        return next(iter(self._in_flight), None)

    # --- The host and its watches ---------------------------------------------------------------------------

    def add(self, token: Token, operation: Operation) -> None:
        assert token not in self._by_token, f"token {token!r} is in use"
        pending = _Pending(token, operation)
        self._by_token[token] = pending
        self._queue.append(pending)

    def add_streams(self, requests: Iterable[StreamRequest]) -> None:
        for stream in requests:
            if isinstance(stream.operation, Unwatch):
                self._forget_watch(stream.operation.watch_id)
            self._queue.append(_Pending(None, stream.operation, stream))

    def _forget_watch(self, watch_id: int) -> None:
        """The stream ends, so its Watch is not sent again: behind the Unwatch it would begin a stream that nobody
        ends."""
        for sequence in [at for at, pending in self._in_flight.items() if pending.begins(watch_id)]:
            del self._in_flight[sequence]
        self._queue = deque(pending for pending in self._queue if not pending.begins(watch_id))

    def cancel(self, token: Token, effects: list[Any]) -> None:
        pending = self._by_token.get(token)
        if pending is None:
            return  # Completed in the meantime.
        if not pending.sequence:
            self._queue.remove(pending)
            self._complete(pending, Refusal("UNAVAILABLE", "cancelled before it was sent"), effects)
            return
        # No caller wants it any more, so it is not sent again: once done_below is above it, it is never run.
        self._in_flight.pop(pending.sequence, None)
        self._again = deque(waiting for waiting in self._again if waiting is not pending)
        code = "UNAVAILABLE" if pending.is_repeatable else UNKNOWN
        text = "cancelled while it was under way" + f": {pending.put_off}" * bool(pending.put_off)
        self._complete(pending, Refusal(code, text), effects)

    # --- Links and sessions ---------------------------------------------------------------------------------

    def begin_link(self) -> None:
        """What was the pace over another link says nothing of this one."""
        self._pace = Pace()

    def send_all_again(self) -> None:
        """The session has another link: all are sent again by turns, as the window allows."""
        self._again = deque(self._in_flight.values())
        for pending in self._again:
            pending.due_ns = _NEVER_NS
        self.resend_ns = None

    def lose_link(self) -> None:
        self._again.clear()

    def lose_streams(self) -> None:
        """The streams of the session's link have ended."""
        self._queue = deque(waiting for waiting in self._queue if not waiting.is_of_stream)
        for sequence in [at for at, pending in self._in_flight.items() if pending.is_of_stream]:
            del self._in_flight[sequence]
        self._again = deque(pending for pending in self._again if not pending.is_of_stream)

    def lose_session(self, reason: str, effects: list[Any]) -> None:
        """What may be run twice moves to the next session; the outcome of the others is unknown (P2.2)."""
        again: list[_Pending] = []
        for pending in self._in_flight.values():
            if pending.is_repeatable:
                pending.sequence = 0
                again.append(pending)
            else:
                text = f"the session was lost while this was under way: {reason}"
                self._complete(pending, Refusal(UNKNOWN, text), effects)
        self._in_flight.clear()
        self._again.clear()
        self.resend_ns = None
        self._queue.extendleft(reversed(again))

    def refuse_queued(self, refusal: Refusal, effects: list[Any]) -> None:
        """Complete those that were not sent."""
        for pending in list(self._queue):
            self._complete(pending, refusal, effects)
        self._queue.clear()

    def end(self, refusal: Refusal, effects: list[Any]) -> None:
        """Complete all of them."""
        for pending in [*self._in_flight.values(), *self._queue]:
            is_open = pending.sequence > 0 and not pending.is_repeatable
            code = UNKNOWN if is_open else refusal.code if refusal.code != UNKNOWN else "UNAVAILABLE"
            self._complete(pending, Refusal(code, refusal.text), effects)
        self._in_flight.clear()
        self._again.clear()
        self._queue.clear()

    # --- Sending --------------------------------------------------------------------------------------------

    def pump(self, session: ClientSession, now_ns: int, effects: list[Any]) -> None:
        """Send waiting requests, as far as the window allows."""
        while self._again and len(self._in_flight) - len(self._again) < self._pace.window:
            pending = self._again.popleft()
            pending.sent_ns, pending.times = now_ns, 0
            self._send(session, pending, now_ns, effects)
        while self._queue and len(self._in_flight) < self._pace.window:
            oldest = next(iter(self._in_flight), session.next_sequence)
            if session.next_sequence - oldest >= SEQUENCE_WINDOW:
                break
            self._send_first(session, self._queue.popleft(), now_ns, effects)

    def send_at_once(
        self, session: ClientSession, operation: Operation, now_ns: int, effects: list[Any]
    ) -> int:
        """Send an operation of the client itself, whatever is under way; returns its sequence."""
        pending = _Pending(None, operation)
        self._send_first(session, pending, now_ns, effects)
        return pending.sequence

    def send_again(self, session: ClientSession, now_ns: int, effects: list[Any]) -> bool:
        """Send requests again that got no answer for long: the message or its answer may be lost, and a repeat does no
        harm. No more than RESENT_AT_ONCE, later each time. Returns whether there were any."""
        if self.resend_ns is None or now_ns < self.resend_ns:
            return False
        sent = 0
        for pending in self._in_flight.values():
            if pending.due_ns > now_ns:
                continue
            if sent == RESENT_AT_ONCE:
                pending.due_ns = now_ns + _resend_after_ns(session.ttl_ns)
                continue
            sent += 1
            pending.times += 1
            self._send(session, pending, now_ns, effects)
        self.resend_ns = min((pending.due_ns for pending in self._in_flight.values()), default=None)
        return sent > 0

    def _send_first(self, session: ClientSession, pending: _Pending, now_ns: int, effects: list[Any]) -> None:
        pending.sequence = session.take_sequence()
        pending.sent_ns, pending.times, pending.put_off = now_ns, 0, ""
        self._in_flight[pending.sequence] = pending
        self._send(session, pending, now_ns, effects)

    def _send(self, session: ClientSession, pending: _Pending, now_ns: int, effects: list[Any]) -> None:
        first_ns = _resend_after_ns(session.ttl_ns)
        pending.due_ns = self._pace.resend_at(first_ns, pending.times, now_ns)
        if self.resend_ns is None or pending.due_ns < self.resend_ns:
            self.resend_ns = pending.due_ns
        sequence, operation = pending.sequence, pending.operation
        done_below = next(iter(self._in_flight), sequence)
        effects.append(
            Send(MetadataRequest(session.session, sequence, done_below, operation, session.secret))
        )

    # --- Answers --------------------------------------------------------------------------------------------

    def take_answer(self, reply: MetadataReply, now_ns: int, effects: list[Any]) -> StreamRequest | None:
        """An answer came under the present session. Returns the request of a watch that it is for; the host has its
        own."""
        pending = self._in_flight.get(reply.sequence)
        if pending is None:
            return None
        if isinstance(reply.result, Refusal) and reply.result.code == BUSY:
            self._put_off(pending, reply.result.text, now_ns)
            return None
        self.put_off = ""
        self._pace.answered(pending.sent_ns, now_ns, len(self._in_flight))
        del self._in_flight[reply.sequence]
        self._complete(pending, reply.result, effects)
        return pending.stream

    def _put_off(self, pending: _Pending, reason: str, now_ns: int) -> None:
        """The quorum did not run it, and this is no answer: it may still be run, so it stays under way."""
        pending.put_off = self.put_off = reason
        pending.due_ns = self._pace.put_off(pending.sequence, pending.times, now_ns)
        if self.resend_ns is None or pending.due_ns < self.resend_ns:
            self.resend_ns = pending.due_ns

    def _complete(self, pending: _Pending, result: Result, effects: list[Any]) -> None:
        if pending.stream is None and self._by_token.get(pending.token) is pending:
            del self._by_token[pending.token]
            effects.append(Completed(pending.token, result))


def _resend_after_ns(ttl_ns: int) -> int:
    return min(ttl_ns // 3, RESEND_NS)
