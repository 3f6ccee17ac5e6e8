"""The core of a metadata client: one session and its requests, over one link at a time (P10.1, I74).

Decides what is sent and sent again, when the session is kept alive and when it counts as lost, and when a member is
left for another (which one: `seeking`). `watching` decides what is asked for watches, and what they show. The host
dials, brings messages, and carries `Send` out in order.

A request keeps its sequence for the life of the session, so after a reconnect, or when no answer came for long, it
is simply sent again, later each time: the quorum gives a repeated one its first answer, whichever member leads by then.
Over another link all requests under way go first, in the order in which they were first sent. A request for which the
quorum has no room now (BUSY) has no answer yet and is sent again too. Only when the session is lost can the outcome of
a sent transaction be unknown, and then it may even still be run (P2.2). All other requests move to the next session.
Links deliver in order or end, but nothing here relies on it: messages may be lost, doubled or late.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from embedbk.codec.metadata_messages import (
    BUSY,
    Acknowledged,
    Acquire,
    AllocIds,
    CloseSession,
    Get,
    KeepAlive,
    List,
    MetadataReply,
    MetadataRequest,
    NotLeader,
    OpenSession,
    Operation,
    Record,
    Refusal,
    Release,
    Result,
    SessionOpened,
    Tell,
    Txn,
    Unwatch,
    Watch,
    WatchEvents,
)
from embedbk.codec.quorum_messages import QuorumStatus
from embedbk.codec.repair_messages import Repairing
from embedbk.metadata.catalog import check_operation
from embedbk.metadata.levels import LACKING, LEVEL, LEVEL_FIRST
from embedbk.metadata.pacing import IN_FLIGHT_MAX, Pace
from embedbk.metadata.seeking import Seeker
from embedbk.metadata.vocabulary import (
    Cancelled,
    Closed,
    CloseRequested,
    Completed,
    Connected,
    Dial,
    Disconnected,
    HangUp,
    MessageReceived,
    Requested,
    Send,
    SessionLost,
    SessionReady,
    SessionRefused,
    Tick,
    Token,
    WatchCancelled,
    WatchRequested,
)
from embedbk.metadata.watching import StreamRequest, WatchEffect, Watching

__all__ = ["IN_FLIGHT_MAX", "UNKNOWN", "Client", "ClientEffect", "ClientEvent", "is_unknown"]

UNKNOWN = "UNKNOWN"  # Refusal.code given by this core only, never by the quorum: may have been run, and may still be.
REQUESTS_MAX = 4096  # Requests of the host that are not completed; more are refused.
SEQUENCE_WINDOW = 256  # From the oldest unanswered sequence on: the quorum keeps no more answers (Limits).
RESEND_NS = 1_000_000_000  # A request without an answer for so long (or a third of the ttl) is sent again.
RESENT_AT_ONCE = 4  # Requests without an answer sent again at once; more might only add to a crowd.
OPEN_AGAIN_NS_MIN = (
    100_000_000  # Or a twelfth of the ttl, so that answers late by most of it still open a session.
)
OPEN_REFUSED_NS = 1_000_000_000
DIAL_NS = 1_000_000_000  # Time until a member that was dialled, or asked for a session, is left; it grows.
SILENT_NS = 1_000_000_000  # The same for a member that owes a renewal (or a sixth of the ttl).
_NEVER_NS = 1 << 62

ClientEvent = (
    Connected | Disconnected | MessageReceived | Tick | Requested | Cancelled | WatchRequested | WatchCancelled
    | CloseRequested
)  # fmt: skip
ClientEffect = WatchEffect | SessionReady | SessionLost | SessionRefused | Closed


def is_unknown(result: Result) -> bool:
    """Whether the request may have been run, and may still be (P2.2)."""
    return isinstance(result, Refusal) and result.code == UNKNOWN


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


@dataclass(slots=True)
class _Session:
    session: int
    ttl_ns: int
    lease_until_ns: int  # The quorum cannot have ended the session before this time.
    keep_alive_ns: int  # When the next keep-alive is due.
    renewal_ns: int  # How long the last renewal took.
    secret: bytes
    next_sequence: int = 1


class Client:
    """One session at a time with a metadata quorum. `step` takes one event and gives what is to be done, in order."""

    def __init__(self, *, ttl_ms: int, label: str, cluster_token: bytes = b"", level: int = LEVEL) -> None:
        """cluster_token: that of the cluster that must answer; empty: the first cluster that does. level: the newest
        that this build knows (P10.8)."""
        self.level = level
        self.cluster_level = LEVEL_FIRST  # The highest that a member sent: a level never falls (P10.8).
        self.ttl_ms = ttl_ms
        self.label = label
        self.cluster_token = cluster_token
        self._seeker = Seeker(())
        self._is_leaving = False  # A link was hung up, and has not ended yet.
        self._owed_ns: int | None = None  # Since when the peer owes an answer, and how long it may take.
        self._patience_ns: int | None = None
        self.put_off = ""  # Why requests were not run lately; empty since one was answered.
        self._is_connected = False
        self._session: _Session | None = None
        self._opening: dict[int, int] = {}  # Sequence of each OpenSession on this link -> when it was sent.
        self._open_count = 0
        self._attempt = 0  # The attempt to open a session; repeats under the same one open the same session.
        self._pace = Pace()
        self._open_retry_ns: int | None = None
        self._resend_ns: int | None = None  # When to look for requests that got no answer.
        self._keep_alives: dict[int, int] = {}  # Sequence -> when it was sent.
        self._queue: deque[_Pending] = deque()  # Requests not sent under the present session.
        self._in_flight: dict[int, _Pending] = {}  # Requests by sequence, rising.
        self._again: deque[_Pending] = (
            deque()
        )  # Requests in flight that were not sent over the present link yet, in order.
        self._outstanding: dict[Token, _Pending] = {}
        self._watching = Watching()
        self._closing_sequence: int | None = None
        self._ended: Refusal | None = None

    def step(self, event: ClientEvent) -> list[ClientEffect]:
        effects: list[ClientEffect] = []
        self._check_lease(event.now_ns, effects)
        if isinstance(event, Connected | Disconnected | MessageReceived) and event.is_for_streams:
            self._watching.on_follower(event, effects)
        else:
            self._HANDLERS[type(event)](self, event, effects)
        has_ended = self._ended is not None
        self._watching.place_streams(event.now_ns, self._seeker, self.session, effects, has_ended=has_ended)
        self._take_stream_requests()
        self._pump(event.now_ns, effects)
        self._seek(event.now_ns, effects)
        return effects

    def seek(self, endpoints: Sequence[str]) -> None:
        """Look for the leader by itself, from these addresses on: it gives `Dial` and `HangUp` from now on."""
        self._seeker = Seeker(endpoints)

    @property
    def members(self) -> tuple[str, ...]:
        """The addresses of all members, as the last leader sent them; empty before."""
        return self._seeker.learnt

    @property
    def deadline_ns(self) -> int | None:
        deadlines = []
        if (watching_ns := self._watching.deadline_ns) is not None:
            deadlines.append(watching_ns)
        if self._session is not None:
            deadlines.append(self._session.lease_until_ns)
            if self._is_connected:
                deadlines.append(self._session.keep_alive_ns)
                if self._resend_ns is not None:
                    deadlines.append(self._resend_ns)
        elif self._open_retry_ns is not None:
            deadlines.append(self._open_retry_ns)
        if self._ended is None and not self._is_leaving:
            if self._seeker.dial_at_ns is not None:
                deadlines.append(self._seeker.dial_at_ns)
            elif self._owed_ns is not None and self._patience_ns is not None:
                deadlines.append(self._owed_ns + self._patience_ns)
        return min(deadlines, default=None)

    @property
    def session(self) -> int:
        """The session's number, 0 without one."""
        return self._session.session if self._session else 0

    def watched(self, token: Token) -> dict[str, Record]:
        """The keys of a watch as last known, by key; not to be changed."""
        return self._watching.known(token)

    def copy(self) -> Self:
        return copy.deepcopy(self)

    # --- Link and session --------------------------------------------------------------------------------

    def _on_connected(self, event: Connected, effects: list[ClientEffect]) -> None:
        if self._is_connected:
            self._forget_link()
        if self._ended is not None or self._is_leaving:
            return
        self._is_connected = True
        self._owed_ns = None
        self._pace = Pace()
        session = self._session
        if session is None:
            self._attempt += 1
            self._open(event.now_ns, effects)
            return
        self._keep_alive(session, event.now_ns, effects)
        self._again = deque(self._in_flight.values())
        for pending in self._again:
            pending.due_ns = _NEVER_NS  # Sent again by turns, as the window allows.
        self._resend_ns = None
        self._watching.stream_all(event.now_ns, effects)

    def _on_disconnected(self, event: Disconnected, effects: list[ClientEffect]) -> None:
        self._forget_link()
        self._seeker.left(event.now_ns)
        was_leaving, self._is_leaving = self._is_leaving, False
        if self._closing_sequence is not None and not was_leaving:
            self._end(Refusal(UNKNOWN, "the client was closed"), "closed; its session will expire", effects)

    def _forget_link(self) -> None:
        """The link is lost, and with it its streams, keep-alives, and attempts to open a session."""
        self._is_connected = False
        self._owed_ns = None
        self._opening.clear()
        self._open_retry_ns = None
        self._again.clear()
        self._forget_streams()

    def _forget_streams(self) -> None:
        """Forget the streams of the session's link."""
        self._keep_alives.clear()
        self._watching.lose_streams()
        self._queue = deque(waiting for waiting in self._queue if not waiting.is_of_stream)
        for sequence in [at for at, pending in self._in_flight.items() if pending.is_of_stream]:
            del self._in_flight[sequence]
        self._again = deque(pending for pending in self._again if not pending.is_of_stream)

    def _open(self, now_ns: int, effects: list[ClientEffect]) -> None:
        self._open_count += 1
        self._opening[self._open_count] = now_ns
        self._open_retry_ns = now_ns + max(self.ttl_ms * 1_000_000 // 12, OPEN_AGAIN_NS_MIN)
        self._owe(now_ns, DIAL_NS)
        opening = OpenSession(self.ttl_ms, self.label, self._attempt, self.level, gathers=True)
        effects.append(Send(MetadataRequest(0, self._open_count, 1, opening)))

    def _on_opened(
        self, sent_ns: int, opened: SessionOpened, now_ns: int, effects: list[ClientEffect]
    ) -> None:
        if self.cluster_token and opened.cluster_token != self.cluster_token:
            text = (
                f"this is another cluster: its token is {opened.cluster_token.hex()}, "
                f"expected was {self.cluster_token.hex()}"
            )
            self._end(Refusal("WRONG_TOKEN", text), text, effects)
            return
        self.cluster_token = opened.cluster_token
        ttl_ns = opened.ttl_ms * 1_000_000
        lease_until_ns = sent_ns + ttl_ns * 15 // 16
        if now_ns >= lease_until_ns:
            return  # It ended before its answer arrived; a later request's answer follows.
        self._open_retry_ns = (
            None  # Requests that were sent meanwhile stay in _opening: their answers renew the session.
        )
        self._session = _Session(
            opened.session, ttl_ns, lease_until_ns, now_ns, now_ns - sent_ns, opened.secret
        )
        self._session.keep_alive_ns = sent_ns + self._renew_after_ns(self._session, now_ns)
        effects.append(SessionReady(opened.session, opened.cluster_token))
        self._watching.stream_all(now_ns, effects)

    def _keep_alive(self, session: _Session, now_ns: int, effects: list[ClientEffect]) -> None:
        session.keep_alive_ns = now_ns + self._renew_after_ns(session, now_ns)
        sequence = self._take_sequence(session)
        self._keep_alives[sequence] = now_ns
        self._owe(now_ns, min(session.ttl_ns // 6, SILENT_NS))
        done_below = next(iter(self._in_flight), sequence)
        request = MetadataRequest(
            session.session, sequence, done_below, KeepAlive(self.level, gathers=True), session.secret
        )
        effects.append(Send(request))

    def _renew_after_ns(self, session: _Session, now_ns: int) -> int:
        """A third of the lease without the time that a renewal takes: so answers that are late by most of a ttl end no
        session, and three quick ones in a row may be lost."""
        oldest_ns = next(iter(self._keep_alives.values()), now_ns)
        takes_ns = max(session.renewal_ns, now_ns - oldest_ns)
        return max((session.ttl_ns - takes_ns) // 3, session.ttl_ns // 12)

    def is_leased(self, now_ns: int) -> bool:
        """Whether the session certainly lives at this time, which may be later than that of the last step."""
        session = self._session
        return session is not None and now_ns < session.lease_until_ns

    def _check_lease(self, now_ns: int, effects: list[ClientEffect]) -> None:
        """A sixteenth before its ttl, counted from when the last answered keep-alive was SENT, the session is lost:
        the quorum waits a sixteenth longer from when it received it, so ours is always over first."""
        if self._session is not None and now_ns >= self._session.lease_until_ns:
            self._lose_session("it was not renewed in time", effects)

    def _lose_session(self, reason: str, effects: list[ClientEffect]) -> None:
        assert self._session is not None
        effects.append(SessionLost(self._session.session, reason))
        self._session = None
        self._attempt += 1
        self._opening.clear()
        self._forget_streams()
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
        self._resend_ns = None
        self._queue.extendleft(reversed(again))
        if self._closing_sequence is not None:
            self._end(Refusal(UNKNOWN, "the client was closed"), "closed", effects)

    def _on_tick(self, event: Tick, effects: list[ClientEffect]) -> None:
        session = self._session
        if session is not None and self._is_connected and event.now_ns >= session.keep_alive_ns:
            self._keep_alive(session, event.now_ns, effects)
        if session is not None and self._is_connected:
            self._resend(session, event.now_ns, RESENT_AT_ONCE, effects)
        self._watching.tick(event.now_ns)

    def _resend(self, session: _Session, now_ns: int, most: int, effects: list[ClientEffect]) -> None:
        """Send requests again that got no answer for long: the message or its answer may be lost, and a repeat does no
        harm. No more than `most` at once, later each time."""
        if self._resend_ns is None or now_ns < self._resend_ns:
            return
        sent = 0
        for pending in self._in_flight.values():
            if pending.due_ns > now_ns:
                continue
            if sent == most:
                pending.due_ns = now_ns + _resend_after_ns(session.ttl_ns)
                continue
            sent += 1
            pending.times += 1
            self._send(session, pending, now_ns, effects)
        self._resend_ns = min((pending.due_ns for pending in self._in_flight.values()), default=None)
        if sent and self._owed_ns is None:
            self._keep_alive(
                session, now_ns, effects
            )  # A member that is alive answers this at once, however slow its disk is.

    # --- Requests ----------------------------------------------------------------------------------------

    def _on_requested(self, event: Requested, effects: list[ClientEffect]) -> None:
        refusal = self._ended or check_operation(event.operation)
        if not isinstance(
            event.operation,
            Get | List | Tell | QuorumStatus | Txn | AllocIds | Acquire | Release | Repairing,
        ):
            refusal = Refusal("BAD_REQUEST", f"{type(event.operation).__name__} is not for hosts to ask")
        elif refusal is None and len(self._outstanding) >= REQUESTS_MAX:
            text = f"{len(self._outstanding)} requests of this client wait, allowed are {REQUESTS_MAX}"
            refusal = Refusal(BUSY, f"{text}: wait for some, or use another client")
        elif self._closing_sequence is not None:
            refusal = refusal or Refusal("UNAVAILABLE", "the client is being closed")
        if refusal is not None:
            effects.append(Completed(event.token, refusal))
            return
        assert event.token not in self._outstanding, f"token {event.token!r} is in use"
        pending = _Pending(event.token, event.operation)
        self._outstanding[event.token] = pending
        self._queue.append(pending)

    def _on_cancelled(self, event: Cancelled, effects: list[ClientEffect]) -> None:
        pending = self._outstanding.get(event.token)
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

    def _take_stream_requests(self) -> None:
        for stream in self._watching.requests:
            if isinstance(stream.operation, Unwatch):
                self._forget_watch(stream.operation.watch_id)
            self._queue.append(_Pending(None, stream.operation, stream))
        self._watching.requests.clear()

    def _forget_watch(self, watch_id: int) -> None:
        """The stream ends, so its Watch is not sent again: behind the Unwatch it would begin a stream that nobody
        ends."""
        for sequence in [at for at, pending in self._in_flight.items() if pending.begins(watch_id)]:
            del self._in_flight[sequence]
        self._queue = deque(pending for pending in self._queue if not pending.begins(watch_id))

    def _on_watch_requested(self, event: WatchRequested, effects: list[ClientEffect]) -> None:
        self._watching.watch(event, self._ended, effects)

    def _on_watch_cancelled(self, event: WatchCancelled, effects: list[ClientEffect]) -> None:
        self._watching.cancel(event, effects)

    def _pump(self, now_ns: int, effects: list[ClientEffect]) -> None:
        """Send waiting requests, as far as the window allows; without a session, open one."""
        if not self._is_connected or self._ended is not None:
            return
        session = self._session
        if session is None:
            if self._open_retry_ns is None or now_ns >= self._open_retry_ns:
                self._open(now_ns, effects)
            return
        while self._again and len(self._in_flight) - len(self._again) < self._pace.window:
            pending = self._again.popleft()
            pending.sent_ns, pending.times = now_ns, 0
            self._send(session, pending, now_ns, effects)
        while self._queue and len(self._in_flight) < self._pace.window:
            oldest = next(iter(self._in_flight), session.next_sequence)
            if session.next_sequence - oldest >= SEQUENCE_WINDOW:
                break
            self._send_first(session, self._queue.popleft(), now_ns, effects)

    def _take_sequence(self, session: _Session) -> int:
        session.next_sequence += 1
        return session.next_sequence - 1

    def _send_first(
        self, session: _Session, pending: _Pending, now_ns: int, effects: list[ClientEffect]
    ) -> None:
        pending.sequence = self._take_sequence(session)
        pending.sent_ns, pending.times, pending.put_off = now_ns, 0, ""
        self._in_flight[pending.sequence] = pending
        self._send(session, pending, now_ns, effects)

    def _send(self, session: _Session, pending: _Pending, now_ns: int, effects: list[ClientEffect]) -> None:
        first_ns = _resend_after_ns(session.ttl_ns)
        pending.due_ns = self._pace.resend_at(first_ns, pending.times, now_ns)
        if self._resend_ns is None or pending.due_ns < self._resend_ns:
            self._resend_ns = pending.due_ns
        sequence, operation = pending.sequence, pending.operation
        done_below = next(iter(self._in_flight), sequence)
        effects.append(
            Send(MetadataRequest(session.session, sequence, done_below, operation, session.secret))
        )

    def _complete(self, pending: _Pending, result: Result, effects: list[ClientEffect]) -> None:
        if pending.stream is None and self._outstanding.get(pending.token) is pending:
            del self._outstanding[pending.token]
            effects.append(Completed(pending.token, result))

    # --- Answers -----------------------------------------------------------------------------------------

    def _on_message(self, event: MessageReceived, effects: list[ClientEffect]) -> None:
        if not self._is_connected:
            return
        self._owed_ns = None
        if isinstance(event.message, WatchEvents):
            self._watching.take_events(event.message, event.now_ns, effects)
        elif isinstance(event.message.result, NotLeader):
            self._on_not_leader(event.message.result, effects)
        else:
            self._seeker.answered()
            self._on_reply(event.message, event.now_ns, effects)

    def _on_not_leader(self, told: NotLeader, effects: list[ClientEffect]) -> None:
        """The member ran nothing; all requests stay under way, for another member."""
        self._seeker.redirected(told.endpoints, told.members)
        who = f"{told.leader} leads" if told.leader else "it knows of no leader"
        self._hang_up(f"{self._seeker.at or 'the member'} does not lead: {who}", effects)

    def _on_reply(self, reply: MetadataReply, now_ns: int, effects: list[ClientEffect]) -> None:
        if reply.session == 0:
            self._on_opening_reply(reply, now_ns, effects)
            return
        session = self._session
        if session is None or reply.session != session.session:
            return  # For an earlier session; its requests were settled when it was lost.
        code = reply.result.code if isinstance(reply.result, Refusal) else ""
        is_gone = code == "SESSION_GONE"
        if reply.sequence == self._closing_sequence and code != BUSY:
            self._session = None
            self._end(Refusal(UNKNOWN, "the client was closed"), "closed", effects)
        elif is_gone:
            self._lose_session("the quorum ended it", effects)
        elif (sent_ns := self._keep_alives.pop(reply.sequence, None)) is not None:
            for sequence in [known for known in self._keep_alives if known < reply.sequence]:
                del self._keep_alives[
                    sequence
                ]  # Links keep order: earlier requests to open were lost, or are of no use any more.
            if isinstance(reply.result, Acknowledged):
                self._seeker.learn(reply.result.members)
                self.cluster_level = max(self.cluster_level, reply.result.level)
                self._watching.note_leader_revision(now_ns, reply.result.revision, effects)
            self._renewed(session, sent_ns, now_ns)
        elif (pending := self._in_flight.get(reply.sequence)) is not None:
            if isinstance(reply.result, Refusal) and reply.result.code == BUSY:
                self._put_off(pending, reply.result.text, now_ns)
                return
            self.put_off = ""
            self._pace.answered(pending.sent_ns, now_ns, len(self._in_flight))
            del self._in_flight[reply.sequence]
            if pending.stream is not None:
                self._watching.take_answer(pending.stream, reply.result, now_ns, effects)
            else:
                self._complete(pending, reply.result, effects)

    def _on_opening_reply(self, reply: MetadataReply, now_ns: int, effects: list[ClientEffect]) -> None:
        sent_ns = self._opening.pop(reply.sequence, None)
        if sent_ns is None:
            return
        opened, session = reply.result, self._session
        if isinstance(opened, Refusal):
            if opened.code == LACKING:
                self._end(opened, opened.text, effects)  # For good: this build will never know it.
            elif session is None:
                self._open_retry_ns = now_ns + OPEN_REFUSED_NS
                effects.append(SessionRefused(opened.text))
        elif isinstance(opened, SessionOpened):
            self._seeker.learn(opened.members)
            self.cluster_level = max(self.cluster_level, opened.level)
            if session is None:
                self._on_opened(sent_ns, opened, now_ns, effects)
            elif opened.session == session.session:
                self._renewed(session, sent_ns, now_ns)

    def _renewed(self, session: _Session, sent_ns: int, now_ns: int) -> None:
        session.renewal_ns = now_ns - sent_ns
        session.lease_until_ns = max(session.lease_until_ns, sent_ns + session.ttl_ns * 15 // 16)

    def _put_off(self, pending: _Pending, reason: str, now_ns: int) -> None:
        """The quorum did not run it, and this is no answer: it may still be run, so it stays under way."""
        pending.put_off = self.put_off = reason
        pending.due_ns = self._pace.put_off(pending.sequence, pending.times, now_ns)
        if self._resend_ns is None or pending.due_ns < self._resend_ns:
            self._resend_ns = pending.due_ns

    # --- Which member ------------------------------------------------------------------------------------

    def _owe(self, now_ns: int, first_ns: int) -> None:
        """The peer owes an answer from now on, unless it already did."""
        if self._owed_ns is None:
            self._owed_ns, self._patience_ns = now_ns, self._seeker.patience_ns(now_ns, first_ns)

    def _seek(self, now_ns: int, effects: list[ClientEffect]) -> None:
        """Dial the member whose turn it is; leave a member that was silent for too long."""
        if self._ended is not None or self._is_leaving:
            return
        endpoint = self._seeker.dial(now_ns)
        if endpoint is not None:
            effects.append(Dial(endpoint))
            self._owe(now_ns, DIAL_NS)
            return
        owed_ns, patience_ns = self._owed_ns, self._patience_ns
        if owed_ns is not None and patience_ns is not None and now_ns >= owed_ns + patience_ns:
            silent_s = (now_ns - owed_ns) / 1e9
            self._hang_up(f"{self._seeker.at} said nothing for {silent_s:.1f} s", effects)

    def _hang_up(self, reason: str, effects: list[ClientEffect]) -> None:
        """Leave this member; `Disconnected` follows, and then another is dialled."""
        self._forget_link()
        self._is_leaving = True
        effects.append(HangUp(reason))

    # --- End ---------------------------------------------------------------------------------------------

    def _on_close(self, event: CloseRequested, effects: list[ClientEffect]) -> None:
        if self._ended is not None or self._closing_sequence is not None:
            return
        for pending in list(self._queue):
            self._complete(pending, Refusal("UNAVAILABLE", "the client was closed"), effects)
        self._queue.clear()
        self._forget_streams()
        self._watching.cancel_all()
        if self._session is None or not self._is_connected:
            self._end(Refusal(UNKNOWN, "the client was closed"), "closed without a session", effects)
            return
        closing = _Pending(None, CloseSession())
        self._send_first(self._session, closing, event.now_ns, effects)
        self._closing_sequence = closing.sequence

    def _end(self, refusal: Refusal, reason: str, effects: list[ClientEffect]) -> None:
        """Complete all requests; every later one is refused."""
        for pending in [*self._in_flight.values(), *self._queue]:
            is_open = pending.sequence > 0 and not pending.is_repeatable
            code = UNKNOWN if is_open else refusal.code if refusal.code != UNKNOWN else "UNAVAILABLE"
            self._complete(pending, Refusal(code, refusal.text), effects)
        self._in_flight.clear()
        self._again.clear()
        self._queue.clear()
        self._watching.cancel_all()
        self._session = None
        self._opening.clear()
        self._open_retry_ns = None
        self._closing_sequence = None
        self._ended = Refusal("UNAVAILABLE" if refusal.code == UNKNOWN else refusal.code, refusal.text)
        effects.append(Closed(reason))

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any, list[ClientEffect]], None]]] = {
        Connected: _on_connected,
        Disconnected: _on_disconnected,
        MessageReceived: _on_message,
        Tick: _on_tick,
        Requested: _on_requested,
        Cancelled: _on_cancelled,
        WatchRequested: _on_watch_requested,
        WatchCancelled: _on_watch_cancelled,
        CloseRequested: _on_close,
    }


def _resend_after_ns(ttl_ns: int) -> int:
    return min(ttl_ns // 3, RESEND_NS)
