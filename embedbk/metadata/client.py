"""The core of a metadata client: one session, its requests, its watches, over whatever link there is (P10.1, I74).

Decides what is sent and sent again, when the session is kept alive and when it counts as lost, and what a watch
shows. The host brings links and messages, and carries `Send` out in order.

A request keeps its sequence for the life of the session, so after a reconnect, or when no answer came for long, it
is simply sent again: the quorum gives a repeated one its first answer. Only when the session is lost can the outcome
of a sent transaction be unknown, and then it may even still come to pass (P2.2). Everything else is moved to the next
session. Links deliver in order or end, but nothing here counts on it: messages may be lost, doubled or late.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from embedbk.codec.metadata_messages import (
    AllocIds,
    CloseSession,
    Get,
    KeepAlive,
    List,
    Listed,
    MetadataReply,
    MetadataRequest,
    OpenSession,
    Operation,
    Record,
    Refusal,
    Result,
    SessionOpened,
    Tell,
    Txn,
    Unwatch,
    Watch,
    WatchEvents,
)
from embedbk.metadata.catalog import DEFAULT_LIMITS, check_operation
from embedbk.metadata.vocabulary import (
    Cancelled,
    Closed,
    CloseRequested,
    Completed,
    Connected,
    Disconnected,
    MessageReceived,
    Requested,
    Send,
    SessionLost,
    SessionReady,
    Tick,
    Token,
    WatchCancelled,
    WatchChanged,
    WatchRequested,
)

__all__ = ["UNKNOWN", "Client", "ClientEffect", "ClientEvent", "is_unknown"]

UNKNOWN = "UNKNOWN"  # Refusal.code given by this core only, never by the quorum: may have been run, and may still be.
REQUESTS_MAX = 4096  # Requests of the host that are not completed; more are refused.
IN_FLIGHT_MAX = 128  # Sent and not answered.
SEQUENCE_WINDOW = 256  # From the oldest unanswered sequence on: the quorum keeps no more answers (Limits).
RESEND_NS_MAX = (
    1_000_000_000  # Without an answer for so long (or a third of the ttl), a request is sent again.
)
WATCH_RETRY_NS = 200_000_000  # After the quorum had no room for a list or a watch.

ClientEvent = (
    Connected | Disconnected | MessageReceived | Tick | Requested | Cancelled | WatchRequested | WatchCancelled
    | CloseRequested
)  # fmt: skip
ClientEffect = Send | Completed | WatchChanged | SessionReady | SessionLost | Closed


def is_unknown(result: Result) -> bool:
    """Whether the request may have been run, and may still be (P2.2)."""
    return isinstance(result, Refusal) and result.code == UNKNOWN


@dataclass(slots=True)
class _Pending:
    """A request of the host, or of a watch (then `watch` is set)."""

    token: Token
    operation: Operation
    watch: _WatchedPrefix | None = None
    sent_ns: int | None = None  # Last; None: not under the present session.
    is_abandoned: bool = False  # Nobody waits for the answer any more.

    @property
    def is_repeatable(self) -> bool:
        """To run it twice does no harm: reads, and ids, of which the first block is then a gap."""
        return isinstance(self.operation, Get | List | Tell | AllocIds)

    @property
    def is_of_stream(self) -> bool:
        """Of one link only: never sent again over another."""
        return isinstance(self.operation, Watch | Unwatch)


@dataclass(slots=True)
class _WatchedPrefix:
    """A prefix that is followed: listed, then streamed from the list's first revision on."""

    token: Token
    prefix: str
    known: dict[str, Record] = field(default_factory=dict)  # The keys as of `revision`, or later for some.
    revision: int = 0
    whole_at: int = 0  # Pages of one list are of different revisions: nothing is shown before this one.
    unshown: list[Record] = field(default_factory=list)
    is_shown: bool = False
    listing: dict[str, Record] | None = None  # While listing: what the pages gave so far.
    watch_id: int = 0  # Of the stream on the present link, 0: none.
    is_asking: bool = False  # A Watch for the stream is queued or under way.
    retry_ns: int | None = None


@dataclass(slots=True)
class _Session:
    session: int
    ttl_ns: int
    lease_until_ns: int  # The quorum cannot have ended the session before this time.
    keep_alive_ns: int  # When the next keep-alive is due.
    next_sequence: int = 1


class Client:
    """One session at a time with a metadata quorum. `step` takes one event and gives what is to be done, in order."""

    def __init__(self, *, ttl_ms: int, label: str, cluster_token: bytes = b"") -> None:
        """cluster_token: of the cluster that must answer; empty takes the first that does."""
        self.ttl_ms = ttl_ms
        self.label = label
        self.cluster_token = cluster_token
        self._is_connected = False
        self._session: _Session | None = None
        self._opening: dict[int, int] = {}  # Sequence of each OpenSession on this link -> when it was sent.
        self._open_count = 0
        self._open_retry_ns: int | None = None
        self._resend_ns: int | None = None  # When to look for requests that got no answer.
        self._keep_alives: dict[int, int] = {}  # Sequence -> when it was sent.
        self._queue: deque[_Pending] = deque()  # Not sent under the present session.
        self._in_flight: dict[int, _Pending] = {}  # By sequence, rising.
        self._outstanding: dict[Token, _Pending] = {}
        self._watches: dict[Token, _WatchedPrefix] = {}
        self._streams: dict[int, _WatchedPrefix] = {}  # By watch id, on the present link.
        self._watch_count = 0
        self._closing_sequence: int | None = None
        self._ended: Refusal | None = None

    def step(self, event: ClientEvent) -> list[ClientEffect]:
        effects: list[ClientEffect] = []
        self._check_lease(event.now_ns, effects)
        self._HANDLERS[type(event)](self, event, effects)
        self._pump(event.now_ns, effects)
        return effects

    @property
    def deadline_ns(self) -> int | None:
        deadlines = [watch.retry_ns for watch in self._watches.values() if watch.retry_ns is not None]
        if self._session is not None:
            deadlines.append(self._session.lease_until_ns)
            if self._is_connected:
                deadlines.append(self._session.keep_alive_ns)
                if self._resend_ns is not None:
                    deadlines.append(self._resend_ns)
        elif self._open_retry_ns is not None:
            deadlines.append(self._open_retry_ns)
        return min(deadlines, default=None)

    @property
    def session(self) -> int:
        """The session's number, 0 without one."""
        return self._session.session if self._session else 0

    def watched(self, token: Token) -> dict[str, Record]:
        """The keys of a watch as last known, by key; not to be changed."""
        return self._watches[token].known

    def copy(self) -> Self:
        return copy.deepcopy(self)

    # --- Link and session --------------------------------------------------------------------------------

    def _on_connected(self, event: Connected, effects: list[ClientEffect]) -> None:
        if self._is_connected:
            self._forget_link()
        if self._ended is not None:
            return
        self._is_connected = True
        session = self._session
        if session is None:
            self._open(event.now_ns, effects)
            return
        self._keep_alive(session, event.now_ns, effects)
        for sequence, pending in self._in_flight.items():
            self._send(sequence, pending, event.now_ns, effects)
        self._stream_all()

    def _on_disconnected(self, event: Disconnected, effects: list[ClientEffect]) -> None:
        self._forget_link()
        if self._closing_sequence is not None:
            self._end(Refusal(UNKNOWN, "the client was closed"), "closed; its session will expire", effects)

    def _forget_link(self) -> None:
        """What belongs to a link dies with it: streams, keep-alives, and attempts to open a session."""
        self._is_connected = False
        self._opening.clear()
        self._open_retry_ns = None
        self._forget_streams()

    def _forget_streams(self) -> None:
        self._keep_alives.clear()
        self._streams.clear()
        for watch in self._watches.values():
            watch.watch_id = 0
            watch.is_asking = False
        self._queue = deque(waiting for waiting in self._queue if not waiting.is_of_stream)
        for sequence in [at for at, pending in self._in_flight.items() if pending.is_of_stream]:
            del self._in_flight[sequence]

    def _open(self, now_ns: int, effects: list[ClientEffect]) -> None:
        self._open_count += 1
        self._opening[self._open_count] = now_ns
        self._open_retry_ns = now_ns + _resend_after_ns(self.ttl_ms * 1_000_000)
        effects.append(Send(MetadataRequest(0, self._open_count, 1, OpenSession(self.ttl_ms, self.label))))

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
            return  # Over before it is heard of. One that was asked for later is on its way, or asked for soon.
        self._opening.clear()
        self._open_retry_ns = None
        self._session = _Session(opened.session, ttl_ns, lease_until_ns, sent_ns + ttl_ns // 3)
        effects.append(SessionReady(opened.session, opened.cluster_token))
        self._stream_all()

    def _keep_alive(self, session: _Session, now_ns: int, effects: list[ClientEffect]) -> None:
        session.keep_alive_ns = now_ns + session.ttl_ns // 3
        sequence = self._take_sequence(session)
        self._keep_alives[sequence] = now_ns
        done_below = next(iter(self._in_flight), sequence)
        effects.append(Send(MetadataRequest(session.session, sequence, done_below, KeepAlive())))

    def _check_lease(self, now_ns: int, effects: list[ClientEffect]) -> None:
        """A sixteenth before its ttl, counted from when the last answered keep-alive was SENT, the session is lost:
        the quorum waits a sixteenth longer from when it heard it, so ours is always over first."""
        if self._session is not None and now_ns >= self._session.lease_until_ns:
            self._lose_session("it was not renewed in time", effects)

    def _lose_session(self, reason: str, effects: list[ClientEffect]) -> None:
        assert self._session is not None
        effects.append(SessionLost(self._session.session, reason))
        self._session = None
        self._forget_streams()
        again: list[_Pending] = []
        for pending in self._in_flight.values():
            if pending.is_repeatable:
                pending.sent_ns = None
                if not pending.is_abandoned:
                    again.append(pending)
            else:
                text = f"the session was lost while this was under way: {reason}"
                self._complete(pending, Refusal(UNKNOWN, text), effects)
        self._in_flight.clear()
        self._resend_ns = None
        self._queue.extendleft(reversed(again))
        if self._closing_sequence is not None:
            self._end(Refusal(UNKNOWN, "the client was closed"), "closed", effects)

    def _on_tick(self, event: Tick, effects: list[ClientEffect]) -> None:
        session = self._session
        if session is not None and self._is_connected and event.now_ns >= session.keep_alive_ns:
            self._keep_alive(session, event.now_ns, effects)
        if session is not None and self._is_connected:
            self._resend(session, event.now_ns, effects)
        for watch in self._watches.values():
            if watch.retry_ns is not None and event.now_ns >= watch.retry_ns:
                watch.retry_ns = None
                self._list_again(watch)

    def _resend(self, session: _Session, now_ns: int, effects: list[ClientEffect]) -> None:
        """Send again what got no answer for long: the message or its answer may be lost, and a repeat does no harm."""
        if self._resend_ns is None or now_ns < self._resend_ns:
            return
        after_ns = _resend_after_ns(session.ttl_ns)
        for sequence, pending in self._in_flight.items():
            if pending.sent_ns is None or now_ns - pending.sent_ns >= after_ns:
                self._send(sequence, pending, now_ns, effects)
        self._resend_ns = now_ns + after_ns if self._in_flight else None

    # --- Requests ----------------------------------------------------------------------------------------

    def _on_requested(self, event: Requested, effects: list[ClientEffect]) -> None:
        refusal = self._ended or check_operation(event.operation)
        if not isinstance(event.operation, Get | List | Tell | Txn | AllocIds):
            refusal = Refusal("BAD_REQUEST", f"{type(event.operation).__name__} is not for hosts to ask")
        elif refusal is None and len(self._outstanding) >= REQUESTS_MAX:
            refusal = Refusal("UNAVAILABLE", f"{REQUESTS_MAX} requests wait already; try again later")
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
        if pending.sent_ns is None:
            self._queue.remove(pending)
            self._complete(pending, Refusal("UNAVAILABLE", "cancelled before it was sent"), effects)
            return
        code = "UNAVAILABLE" if pending.is_repeatable else UNKNOWN
        self._complete(pending, Refusal(code, "cancelled while it was under way"), effects)
        pending.is_abandoned = True  # Its sequence stays taken until it is answered.

    def _pump(self, now_ns: int, effects: list[ClientEffect]) -> None:
        """Send what waits, as far as the window allows; without a session, see that one is opened."""
        if not self._is_connected or self._ended is not None:
            return
        session = self._session
        if session is None:
            if self._open_retry_ns is None or now_ns >= self._open_retry_ns:
                self._open(now_ns, effects)
            return
        while self._queue and len(self._in_flight) < IN_FLIGHT_MAX:
            oldest = next(iter(self._in_flight), session.next_sequence)
            if session.next_sequence - oldest >= SEQUENCE_WINDOW:
                break
            pending = self._queue.popleft()
            sequence = self._take_sequence(session)
            self._in_flight[sequence] = pending
            self._send(sequence, pending, now_ns, effects)
            if self._resend_ns is None:
                self._resend_ns = now_ns + _resend_after_ns(session.ttl_ns)

    def _take_sequence(self, session: _Session) -> int:
        session.next_sequence += 1
        return session.next_sequence - 1

    def _send(self, sequence: int, pending: _Pending, now_ns: int, effects: list[ClientEffect]) -> None:
        assert self._session is not None
        pending.sent_ns = now_ns
        done_below = next(iter(self._in_flight), sequence)
        effects.append(Send(MetadataRequest(self._session.session, sequence, done_below, pending.operation)))

    def _complete(self, pending: _Pending, result: Result, effects: list[ClientEffect]) -> None:
        if pending.watch is None and not pending.is_abandoned:
            del self._outstanding[pending.token]
            effects.append(Completed(pending.token, result))

    # --- Answers -----------------------------------------------------------------------------------------

    def _on_message(self, event: MessageReceived, effects: list[ClientEffect]) -> None:
        if not self._is_connected:
            return
        if isinstance(event.message, WatchEvents):
            self._on_watch_events(event.message, effects)
        else:
            self._on_reply(event.message, event.now_ns, effects)

    def _on_reply(self, reply: MetadataReply, now_ns: int, effects: list[ClientEffect]) -> None:
        if reply.session == 0:
            sent_ns = self._opening.pop(reply.sequence, None)
            if sent_ns is None or self._session is not None:
                return
            if isinstance(reply.result, SessionOpened):
                self._on_opened(sent_ns, reply.result, now_ns, effects)
            return  # Refused for lack of room: tried again when the retry is due.
        session = self._session
        if session is None or reply.session != session.session:
            return  # Of a session before; its requests were settled when it was lost.
        is_gone = isinstance(reply.result, Refusal) and reply.result.code == "SESSION_GONE"
        if reply.sequence == self._closing_sequence:
            self._session = None
            self._end(Refusal(UNKNOWN, "the client was closed"), "closed", effects)
        elif is_gone:
            self._lose_session("the quorum ended it", effects)
        elif (sent_ns := self._keep_alives.pop(reply.sequence, None)) is not None:
            session.lease_until_ns = max(session.lease_until_ns, sent_ns + session.ttl_ns * 15 // 16)
        elif (pending := self._in_flight.pop(reply.sequence, None)) is not None:
            if pending.watch is not None:
                self._on_watch_reply(pending, pending.watch, reply.result, now_ns, effects)
            else:
                self._complete(pending, reply.result, effects)

    # --- Watches -----------------------------------------------------------------------------------------

    def _on_watch_requested(self, event: WatchRequested, effects: list[ClientEffect]) -> None:
        refusal = self._ended or check_operation(Watch(0, event.prefix, 0))
        if refusal is not None:
            effects.append(Completed(event.token, refusal))
            return
        assert event.token not in self._watches, f"watch {event.token!r} exists"
        watch = _WatchedPrefix(event.token, event.prefix)
        self._watches[event.token] = watch
        self._list_again(watch)

    def _on_watch_cancelled(self, event: WatchCancelled, effects: list[ClientEffect]) -> None:
        watch = self._watches.pop(event.token, None)
        if watch is not None and watch.watch_id:
            del self._streams[watch.watch_id]
            self._queue.append(_Pending(None, Unwatch(watch.watch_id), watch))

    def _stream_all(self) -> None:
        for watch in self._watches.values():
            self._follow(watch)

    def _follow(self, watch: _WatchedPrefix) -> None:
        """Go on where the watch stands: with its list, which is under way already, or with a stream."""
        if watch.listing is not None or watch.retry_ns is not None or watch.is_asking:
            return
        if not watch.watch_id:
            self._watch_count += 1
            watch.watch_id = self._watch_count
            self._streams[watch.watch_id] = watch
        watch.is_asking = True
        self._queue.append(_Pending(None, Watch(watch.watch_id, watch.prefix, watch.revision), watch))

    def _list_again(self, watch: _WatchedPrefix, after: str = "") -> None:
        if not after:
            watch.listing = {}
        self._queue.append(_Pending(None, List(watch.prefix, after, DEFAULT_LIMITS.list_records_max), watch))

    def _on_watch_reply(
        self,
        pending: _Pending,
        watch: _WatchedPrefix,
        result: Result,
        now_ns: int,
        effects: list[ClientEffect],
    ) -> None:
        if self._watches.get(watch.token) is not watch:
            return  # Cancelled.
        if isinstance(pending.operation, Watch) and pending.operation.watch_id == watch.watch_id:
            watch.is_asking = False
        if isinstance(result, Refusal):
            watch.listing = None  # From the start, at a later revision.
            self._streams.pop(watch.watch_id, None)
            watch.watch_id = 0
            watch.retry_ns = now_ns + WATCH_RETRY_NS
        elif isinstance(result, Listed):
            self._on_page(watch, result, effects)

    def _on_page(self, watch: _WatchedPrefix, page: Listed, effects: list[ClientEffect]) -> None:
        assert watch.listing is not None
        if not watch.listing:
            watch.revision = page.revision  # The stream begins at the first page; later pages are newer.
        watch.listing.update((record.key, record) for record in page.records)
        watch.whole_at = page.revision
        if page.has_more:
            self._list_again(watch, after=page.records[-1].key)
            return
        before, watch.known, watch.listing = watch.known, watch.listing, None
        watch.unshown.extend(_difference(before, watch.known, page.revision))
        self._show(watch, effects)
        self._follow(watch)

    def _on_watch_events(self, events: WatchEvents, effects: list[ClientEffect]) -> None:
        watch = self._streams.get(events.watch_id)
        if watch is None:
            return  # Of a stream that ended.
        if events.is_compacted:
            del self._streams[events.watch_id]
            watch.watch_id = 0
            watch.is_asking = False
            self._list_again(watch)
            return
        if events.after_revision > watch.revision:
            self._follow(watch)  # A message before this one is missing: ask from what is known.
            return
        for record in events.records:
            known = watch.known.get(record.key)
            if record.revision <= max(watch.revision, known.revision if known else 0):
                continue  # Told before, or a later page showed it already.
            if record.value is not None:
                watch.known[record.key] = record
            elif watch.known.pop(record.key, None) is None:
                continue  # Gone before the page that would have shown it.
            watch.unshown.append(record)
        watch.revision = max(watch.revision, events.revision)
        self._show(watch, effects)

    def _show(self, watch: _WatchedPrefix, effects: list[ClientEffect]) -> None:
        """Tell the host, once the keys are those of one revision."""
        if watch.revision < watch.whole_at or (watch.is_shown and not watch.unshown):
            return
        records = watch.unshown if watch.is_shown else [watch.known[key] for key in sorted(watch.known)]
        effects.append(WatchChanged(watch.token, records, watch.revision, not watch.is_shown))
        watch.unshown = []
        watch.is_shown = True

    # --- End ---------------------------------------------------------------------------------------------

    def _on_close(self, event: CloseRequested, effects: list[ClientEffect]) -> None:
        if self._ended is not None or self._closing_sequence is not None:
            return
        for pending in list(self._queue):
            self._complete(pending, Refusal("UNAVAILABLE", "the client was closed"), effects)
        self._queue.clear()
        self._watches.clear()
        self._forget_streams()
        if self._session is None or not self._is_connected:
            self._end(Refusal(UNKNOWN, "the client was closed"), "closed without a session", effects)
            return
        self._closing_sequence = sequence = self._take_sequence(self._session)
        self._in_flight[sequence] = closing = _Pending(None, CloseSession(), is_abandoned=True)
        self._send(sequence, closing, event.now_ns, effects)
        if self._resend_ns is None:
            self._resend_ns = event.now_ns + _resend_after_ns(self._session.ttl_ns)

    def _end(self, refusal: Refusal, reason: str, effects: list[ClientEffect]) -> None:
        """Complete everything; from here on every request is refused."""
        for pending in [*self._in_flight.values(), *self._queue]:
            is_open = pending.sent_ns is not None and not pending.is_repeatable
            code = UNKNOWN if is_open else refusal.code if refusal.code != UNKNOWN else "UNAVAILABLE"
            self._complete(pending, Refusal(code, refusal.text), effects)
        self._in_flight.clear()
        self._queue.clear()
        self._watches.clear()
        self._streams.clear()
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
    return min(ttl_ns // 3, RESEND_NS_MAX)


def _difference(before: dict[str, Record], after: dict[str, Record], revision: int) -> list[Record]:
    """What changed from one list to the next, so that deletes are seen also when their events are gone."""
    changed = [record for key, record in after.items() if before.get(key) != record]
    deleted = [
        Record(key, None, record.created, revision) for key, record in before.items() if key not in after
    ]
    return [*changed, *deleted]
