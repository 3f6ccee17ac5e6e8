"""The core of a metadata client: one session and its requests, over one link at a time (P10.1, I74).

Decides when a session is opened, kept alive and lost (for how long it certainly lives: `client_session`), which
requests are taken, and when a member is left for another (which one: `seeking`). `outstanding_requests` decides what is
sent and sent again, `watching` what is asked for watches, and what they show. The host dials, brings messages, and
carries `Send` out in order.

A request keeps its sequence for the life of the session, so after a reconnect, or when no answer came for long, it
is simply sent again, later each time: the quorum gives a repeated one its first answer, whichever member leads by then.
Over another link all requests under way go first, in the order in which they were first sent. A request for which the
quorum has no room now (BUSY) has no answer yet and is sent again too. Only when the session is lost can the outcome of
a sent transaction be unknown, and then it may even still be run (P2.2). All other requests move to the next session.
Links deliver in order or end, but nothing here relies on it: messages may be lost, doubled or late.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from embedbk.codec.metadata_messages import (
    BUSY,
    Acknowledged,
    Acquire,
    AllocIds,
    CloseSession,
    Get,
    List,
    MetadataReply,
    MetadataRequest,
    NotLeader,
    OpenSession,
    Record,
    Refusal,
    Release,
    Result,
    SessionOpened,
    Tell,
    Txn,
    WatchEvents,
)
from embedbk.codec.quorum_messages import QuorumStatus
from embedbk.codec.repair_messages import Repairing
from embedbk.metadata.catalog import check_operation
from embedbk.metadata.client_session import ClientSession
from embedbk.metadata.levels import LACKING, LEVEL, LEVEL_FIRST
from embedbk.metadata.outstanding_requests import UNKNOWN, OutstandingRequests
from embedbk.metadata.pacing import IN_FLIGHT_MAX
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
from embedbk.metadata.watching import WatchEffect, Watching

__all__ = ["IN_FLIGHT_MAX", "UNKNOWN", "Client", "ClientEffect", "ClientEvent", "is_unknown"]

TAKES_NO_MORE = "wait for some, or use another client"
REQUESTS_MAX = 4096  # Requests of the host that are not completed; more are refused.
OPEN_AGAIN_NS_MIN = (
    100_000_000  # Or a twelfth of the ttl, so that answers late by most of it still open a session.
)
OPEN_REFUSED_NS = 1_000_000_000
DIAL_NS = 1_000_000_000  # Time until a member that was dialled, or asked for a session, is left; it grows.
SILENT_NS = 1_000_000_000  # The same for a member that owes a renewal (or a sixth of the ttl).

ClientEvent = (
    Connected | Disconnected | MessageReceived | Tick | Requested | Cancelled | WatchRequested | WatchCancelled
    | CloseRequested
)  # fmt: skip
ClientEffect = WatchEffect | SessionReady | SessionLost | SessionRefused | Closed


def is_unknown(result: Result) -> bool:
    """Whether the request may have been run, and may still be (P2.2)."""
    return isinstance(result, Refusal) and result.code == UNKNOWN


class Client:
    """One session at a time with a metadata quorum. `step` takes one event and gives what is to be done, in order."""

    def __init__(self, *, ttl_ms: int, label: str, cluster_token: bytes = b"", level: int = LEVEL) -> None:
        """cluster_token: that of the cluster that must answer; empty: the first cluster that does. level: the newest
        that this build knows (P10.8)."""
        self.level = level
        self.cluster_level = LEVEL_FIRST  # The highest that a member sent: a level never falls (P10.8).
        self.requests_max = REQUESTS_MAX
        self.ttl_ms = ttl_ms
        self.label = label
        self.cluster_token = cluster_token
        self._seeker = Seeker(())
        self._is_leaving = False  # A link was hung up, and has not ended yet.
        self._owed_ns: int | None = None  # Since when the peer owes an answer, and how long it may take.
        self._patience_ns: int | None = None
        self._is_connected = False
        self._session: ClientSession | None = None
        self._opening: dict[int, int] = {}  # Sequence of each OpenSession on this link -> when it was sent.
        self._open_count = 0
        self._attempt = 0  # The attempt to open a session; repeats under the same one open the same session.
        self._open_retry_ns: int | None = None
        self._requests = OutstandingRequests()
        self._watching = Watching()
        self._closing_sequence: int | None = None
        self._ended: Refusal | None = None

    def step(self, event: ClientEvent) -> list[ClientEffect]:
        effects: list[ClientEffect] = []
        if self._session is not None and event.now_ns >= self._session.lease_until_ns:
            self._lose_session("it was not renewed in time", effects)
        if isinstance(event, Connected | Disconnected | MessageReceived) and event.is_for_streams:
            self._watching.on_follower(event, effects)
        else:
            self._HANDLERS[type(event)](self, event, effects)
        has_ended = self._ended is not None
        self._watching.place_streams(event.now_ns, self._seeker, self.session, effects, has_ended=has_ended)
        if self._watching.requests:
            self._requests.add_streams(self._watching.requests)
            self._watching.requests.clear()
        self._pump(event.now_ns, effects)
        if self._seeker.dial_at_ns is not None or self._owed_ns is not None:
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
                if self._requests.resend_ns is not None:
                    deadlines.append(self._requests.resend_ns)
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

    @property
    def put_off(self) -> str:
        """Why requests were not run lately; empty since one was answered."""
        return self._requests.put_off

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
        self._requests.begin_link()
        session = self._session
        if session is None:
            self._attempt += 1
            self._open(event.now_ns, effects)
            return
        self._keep_alive(session, event.now_ns, effects)
        self._requests.send_all_again()
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
        self._requests.lose_link()
        self._forget_streams()

    def _forget_streams(self) -> None:
        """Forget the streams of the session's link."""
        if self._session is not None:
            self._session.lose_link()
        self._watching.lose_streams()
        self._requests.lose_streams()

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
        session = ClientSession(opened, sent_ns, now_ns)
        if not session.is_leased(now_ns):
            return  # It ended before its answer arrived; a later request's answer follows.
        self._open_retry_ns = (
            None  # Requests that were sent meanwhile stay in _opening: their answers renew the session.
        )
        self._session = session
        effects.append(SessionReady(opened.session, opened.cluster_token))
        self._watching.stream_all(now_ns, effects)

    def _keep_alive(self, session: ClientSession, now_ns: int, effects: list[ClientEffect]) -> None:
        request = session.keep_alive(self.level, self._requests.oldest, now_ns)
        self._owe(now_ns, min(session.ttl_ns // 6, SILENT_NS))
        effects.append(Send(request))

    def is_leased(self, now_ns: int) -> bool:
        """Whether the session certainly lives at this time, which may be later than that of the last step."""
        session = self._session
        return session is not None and session.is_leased(now_ns)

    def _lose_session(self, reason: str, effects: list[ClientEffect]) -> None:
        assert self._session is not None
        effects.append(SessionLost(self._session.session, reason))
        self._session = None
        self._attempt += 1
        self._opening.clear()
        self._forget_streams()
        self._requests.lose_session(reason, effects)
        if self._closing_sequence is not None:
            self._end(Refusal(UNKNOWN, "the client was closed"), "closed", effects)

    def _on_tick(self, event: Tick, effects: list[ClientEffect]) -> None:
        session = self._session
        if session is not None and self._is_connected and event.now_ns >= session.keep_alive_ns:
            self._keep_alive(session, event.now_ns, effects)
        if session is not None and self._is_connected:
            was_sent = self._requests.send_again(session, event.now_ns, effects)
            # A member that is alive answers a keep-alive at once, however slow its disk is.
            if was_sent and self._owed_ns is None:
                self._keep_alive(session, event.now_ns, effects)
        self._watching.tick(event.now_ns)

    # --- Requests ----------------------------------------------------------------------------------------

    def _on_requested(self, event: Requested, effects: list[ClientEffect]) -> None:
        refusal = self._ended or check_operation(event.operation)
        if not isinstance(
            event.operation,
            Get | List | Tell | QuorumStatus | Txn | AllocIds | Acquire | Release | Repairing,
        ):
            refusal = Refusal("BAD_REQUEST", f"{type(event.operation).__name__} is not for hosts to ask")
        elif refusal is None and len(self._requests) >= self.requests_max:
            text = f"{len(self._requests)} requests of this client wait, allowed are {self.requests_max}"
            refusal = Refusal(BUSY, f"{text}: {TAKES_NO_MORE}")
        elif self._closing_sequence is not None:
            refusal = refusal or Refusal("UNAVAILABLE", "the client is being closed")
        if refusal is not None:
            effects.append(Completed(event.token, refusal))
            return
        self._requests.add(event.token, event.operation)

    def _on_cancelled(self, event: Cancelled, effects: list[ClientEffect]) -> None:
        self._requests.cancel(event.token, effects)

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
        self._requests.pump(session, now_ns, effects)

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
        elif (sent_ns := session.take_keep_alive(reply.sequence)) is not None:
            if isinstance(reply.result, Acknowledged):
                self._seeker.learn(reply.result.members)
                self.cluster_level = max(self.cluster_level, reply.result.level)
                self._watching.renewed(now_ns, reply.result.revision, effects)
            session.renewed(sent_ns, now_ns)
        elif (stream := self._requests.take_answer(reply, now_ns, effects)) is not None:
            self._watching.take_answer(stream, reply.result, now_ns, effects)

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
                session.renewed(sent_ns, now_ns)

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
        self._requests.refuse_queued(Refusal("UNAVAILABLE", "the client was closed"), effects)
        self._forget_streams()
        self._watching.cancel_all()
        if self._session is None or not self._is_connected:
            self._end(Refusal(UNKNOWN, "the client was closed"), "closed without a session", effects)
            return
        self._closing_sequence = self._requests.send_at_once(
            self._session, CloseSession(), event.now_ns, effects
        )

    def _end(self, refusal: Refusal, reason: str, effects: list[ClientEffect]) -> None:
        """Complete all requests, and watches that nobody cancelled; every later one is refused."""
        self._requests.end(refusal, effects)
        watches = self._watching.cancel_all()
        self._session = None
        self._opening.clear()
        self._open_retry_ns = None
        self._closing_sequence = None
        self._ended = Refusal("UNAVAILABLE" if refusal.code == UNKNOWN else refusal.code, refusal.text)
        effects.append(Closed(reason))
        effects += [Completed(token, self._ended) for token in watches]

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
