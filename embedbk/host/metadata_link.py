"""One node's connection with the metadata quorum: feeds the client core, hands out results.

Decides nothing: whom to dial and when to leave, sessions, re-sending and watches are the client core's
(`metadata.client`).
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence

from embedbk.codec.gathering import encode_requests
from embedbk.codec.messages import Message, encode_message
from embedbk.codec.metadata_messages import (
    MetadataReplies,
    MetadataReply,
    MetadataRequest,
    Operation,
    Record,
    Refusal,
    Result,
    WatchEvents,
)
from embedbk.errors import UsageError
from embedbk.host.reminders import Reminders
from embedbk.metadata.client import UNKNOWN, Client, ClientEffect, ClientEvent
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
    WatchCancelled,
    WatchChanged,
    WatchPutOff,
    WatchRequested,
)
from embedbk.ports.links import Identity
from embedbk.ports.transport import Transport

__all__ = ["MetadataLink", "WatchCallback"]

logger = logging.getLogger(__name__)

_NEVER_NS = sys.maxsize

WatchCallback = Callable[[list[Record], int, bool], None]


class MetadataLink:
    """Requests to and watches on the metadata quorum, over one link of the node's transport at a time, and one more for
    watches that may lag.

    All calls from the host's thread. Callbacks run one after the other, never one inside another: what a callback
    asks for is carried out when it has returned.
    """

    def __init__(
        self,
        transport: Transport,
        endpoints: Sequence[str],
        client: Client,
        *,
        on_session: Callable[[int, bytes], None] | None = None,
        on_refused: Callable[[int, str], None] | None = None,
    ) -> None:
        """endpoints: of members, any of them; the others are learnt.

        on_session(now_ns, cluster_token): a session was opened; ephemeral keys must be put again.

        on_refused(now_ns, reason): the quorum refused a session for good, as this build is too old (P10.8).
        """
        assert endpoints
        self.transport = transport
        self.endpoints = list(endpoints)  # As given; the client core knows more.
        self.client = client
        client.seek(self.endpoints)
        self.link: int | None = None
        self.streams_link: int | None = None  # For watches that may lag; never for requests.
        self._is_streaming = False  # That link is up.
        self.is_up = False
        self.is_closed = False  # No session will be opened any more.
        self.session = 0  # 0 while there is none.
        self.trouble = ""  # Why no member could be reached last; for messages.
        self.refusal = ""  # Why the quorum refuses this build, if it does.
        self._due_ns = 0  # The core's deadline: it moves in its steps only.
        self._knows_due = True
        self._gathers = False  # The other end takes several requests in one message.
        self._unsent: list[MetadataRequest] = []  # Requests that wait for the end of this turn.
        self._tokens = itertools.count(1)
        self._results: dict[int, Callable[[int, Result], None]] = {}
        self._watchers: dict[int, WatchCallback] = {}
        self._refused: dict[int, Callable[[str], None]] = {}  # Callbacks of watchers that want to know.
        self.session_ends: set[Callable[[str], None]] = set()  # Called with why a session ended or may have.
        self._on_session = on_session
        self._on_refused = on_refused
        self._message_ids = itertools.count(1)
        self._effects: deque[tuple[int, ClientEffect]] = deque()  # With the time of their step.
        self._is_carrying_out = False
        self._end_reason: str | None = None
        self._reminders = Reminders(logger)
        self._is_watch_put_off = False  # Said once.

    @property
    def why_late(self) -> str:
        """Why an answer does not come, as far as it was reported; else empty. From any thread."""
        return self.trouble or self.client.put_off

    def request(self, now_ns: int, operation: Operation, done: Callable[[int, Result], None]) -> int:
        """Run an operation; done(now_ns, result) follows exactly once. Returns a token to cancel it with."""
        token = next(self._tokens)
        if self._end_reason is not None:
            done(now_ns, Refusal("UNAVAILABLE", self._end_reason))
            return token
        self._results[token] = done
        self._step(Requested(now_ns, token, operation))
        return token

    def cancel(self, now_ns: int, token: int) -> None:
        """Wait no longer for a request's outcome; its callback runs now."""
        if token in self._results:
            self._step(Cancelled(now_ns, token))

    def watch(
        self,
        now_ns: int,
        prefix: str,
        changed: WatchCallback,
        refused: Callable[[str], None] | None = None,
        *,
        may_lag: bool = False,
    ) -> int:
        """Follow all keys under prefix: changed(records, revision, is_first) with all of them first, then changes.
        refused(reason): nothing will come. may_lag: behind what other answers show, too."""
        token = next(self._tokens)
        self._watchers[token] = changed
        if refused is not None:
            self._refused[token] = refused
        self._step(WatchRequested(now_ns, token, prefix, may_lag))
        return token

    def unwatch(self, now_ns: int, token: int) -> None:
        if self._watchers.pop(token, None) is not None:
            self._refused.pop(token, None)
            self._step(WatchCancelled(now_ns, token))

    def is_leased(self, now_ns: int, session: int) -> bool:
        """Whether this session certainly lives at this time, even if the core has not received that yet. From any
        thread."""
        return self.session == session and self.client.is_leased(now_ns)

    def close(self, now_ns: int) -> None:
        """End the session, so that its ephemeral keys go at once, as far as the quorum can be reached."""
        if not self.is_closed:
            self.is_closed = True
            self._step(CloseRequested(now_ns))
            self._send_unsent()

    def end(self, reason: str) -> None:
        """No answer will come any more: every request has its outcome when this returns, later ones are refused."""
        self.close(0)
        self._end_reason = reason
        results, self._results = self._results, {}
        for done in results.values():
            done(0, Refusal(UNKNOWN, reason))

    # Called by the node.

    def owns(self, link: int) -> bool:
        return link in (self.link, self.streams_link)

    def on_link_up(self, now_ns: int, link: int, peer: Identity) -> None:
        if link == self.streams_link:
            if peer.role != "metadata" or peer.cluster_token != self.client.cluster_token:
                self.transport.drop(link, f"{peer.node_id} is a {peer.role}, or of another cluster")
                return
            self._is_streaming = True
            self._step(Connected(now_ns, is_for_streams=True))
            return
        if peer.role != "metadata":
            assert self.link is not None
            self.transport.drop(self.link, f"{peer.node_id} is a {peer.role}, not a metadata member")
            return
        self.is_up, self._gathers = True, False
        self.trouble = ""
        self._step(Connected(now_ns))

    def on_link_down(self, now_ns: int, link: int, reason: str) -> None:
        if link == self.streams_link:
            self.streams_link, self._is_streaming = None, False
            logger.debug("link for streams of the metadata down: %s", reason)
            self._step(Disconnected(now_ns, is_for_streams=True))
            return
        self.link, self.is_up = None, False
        self._unsent.clear()  # The core sends it again.
        self._be_troubled(reason)
        self._step(Disconnected(now_ns))

    def on_message(self, now_ns: int, link: int, message: Message) -> None:
        control = message.control
        if isinstance(control, MetadataReply | WatchEvents):
            self._step(MessageReceived(now_ns, control, link == self.streams_link))
        elif isinstance(control, MetadataReplies) and link == self.link:
            self._gathers = True
            for reply in control.replies:
                if link == self.link and self.is_up:  # One before may have ended it.
                    self._step(MessageReceived(now_ns, reply))
        else:
            self.transport.drop(link, f"a {type(control).__name__} is not for a client of the metadata")

    def tick(self, now_ns: int) -> None:
        """Let the core do what is due."""
        if not self.session and not self.is_closed:
            why = self.trouble or "nobody answered yet"
            text = f"{self.client.label} waits for a metadata member at {', '.join(self.endpoints)}: {why}"
            self._reminders.lasts(now_ns, "session", text)
        if now_ns >= self._core_due_ns():
            self._step(Tick(now_ns))
        self._send_unsent()

    def deadline_ns(self) -> int | None:
        if self._unsent:
            return 0  # At once: what was asked for behind the last `tick`.
        due_ns = self._core_due_ns()
        return None if due_ns == _NEVER_NS else due_ns

    def _core_due_ns(self) -> int:
        if not self._knows_due:
            deadline = self.client.deadline_ns
            self._due_ns, self._knows_due = _NEVER_NS if deadline is None else deadline, True
        return self._due_ns

    def _dial(self, now_ns: int, endpoint: str, *, is_for_streams: bool) -> None:
        try:
            link = self.transport.connect(endpoint)
        except UsageError as refused:  # An address that this transport may not dial, or no link left to have.
            if not is_for_streams:
                self._be_troubled(str(refused))
            self._step(Disconnected(now_ns, is_for_streams))
            return
        if is_for_streams:
            self.streams_link = link
        else:
            self.link = link

    def _hang_up(self, now_ns: int, reason: str, *, is_for_streams: bool) -> None:
        if is_for_streams:
            self._is_streaming = False
            if self.streams_link is not None:
                self.transport.drop(self.streams_link, reason)
            return
        self._be_troubled(reason)
        self.is_up = False
        self._unsent.clear()
        if self.link is not None:
            self.transport.drop(self.link, reason)
        else:
            self._step(Disconnected(now_ns))

    def _be_troubled(self, reason: str) -> None:
        if reason != self.trouble:
            logger.debug("metadata link down: %s", reason)
        self.trouble = reason

    # The core.

    def _step(self, event: ClientEvent) -> None:
        self._knows_due = False
        for effect in self.client.step(event):
            self._effects.append((event.now_ns, effect))
        if self._is_carrying_out:
            return  # Asked for by a callback: behind what is being carried out.
        self._is_carrying_out = True
        try:
            while self._effects:
                self._carry_out(*self._effects.popleft())
        finally:
            self._is_carrying_out = False

    def _carry_out(self, now_ns: int, effect: ClientEffect) -> None:
        match effect:
            case Send():
                self._send(effect.request, is_for_streams=effect.is_for_streams)
            case Dial():
                self._dial(now_ns, effect.endpoint, is_for_streams=effect.is_for_streams)
            case HangUp():
                self._hang_up(now_ns, effect.reason, is_for_streams=effect.is_for_streams)
            case Completed():
                done = self._results.pop(effect.token, None)
                if done is not None:
                    done(now_ns, effect.result)
                elif self._watchers.pop(effect.token, None) is not None:
                    reason = effect.result.text if isinstance(effect.result, Refusal) else str(effect.result)
                    if not self.refusal:  # Else each of very many is, for one reason, which is known.
                        logger.warning("a watch was refused: %s", reason)
                    refused = self._refused.pop(effect.token, None)
                    if refused is not None:
                        refused(reason)
            case WatchPutOff():
                if not self._is_watch_put_off:
                    logger.warning("a watch is late: %s", effect.reason)
                self._is_watch_put_off = True
            case WatchChanged():
                changed = self._watchers.get(effect.token)
                if changed is not None:
                    changed(effect.records, effect.revision, effect.is_first)
            case SessionReady():
                self.session, self.trouble = effect.session, ""
                self._reminders.over(
                    now_ns, "session", f"{self.client.label} has a session with the metadata"
                )
                if self._on_session is not None:
                    self._on_session(now_ns, effect.cluster_token)
            case SessionRefused():
                if effect.reason != self.trouble:
                    logger.warning("no metadata session: %s", effect.reason)
                self.trouble = effect.reason
            case SessionLost():
                logger.warning("metadata session %d lost: %s", effect.session, effect.reason)
                self.session = 0
                self._tell_end(effect.reason)
            case Closed():
                self.session = 0
                self._tell_end(effect.reason)
                self.trouble = effect.reason
                if not self.is_closed:
                    self.is_closed, self.refusal = True, effect.reason
                    if self._on_refused is not None:
                        self._on_refused(now_ns, effect.reason)

    def _tell_end(self, reason: str) -> None:
        for tell in list(self.session_ends):
            tell(reason)

    def _send(self, request: MetadataRequest, *, is_for_streams: bool) -> None:
        link, is_up = (self.streams_link, self._is_streaming) if is_for_streams else (self.link, self.is_up)
        if link is None or not is_up:
            return  # The core sends it again when a link is up.
        if self._gathers and not is_for_streams and (self._unsent or len(self._results) > 1):
            self._unsent.append(request)  # Others wait for answers: what is asked in this turn goes together.
            return
        if not self.transport.send(link, encode_message(next(self._message_ids), request)):
            self.transport.drop(link, "its queue is full")

    def _send_unsent(self) -> None:
        """Send the requests of this turn, in as few messages as possible."""
        if not self._unsent:
            return
        unsent, self._unsent = self._unsent, []
        link = self.link
        for pieces in encode_requests(unsent, next(self._message_ids)):
            if link is None or not self.is_up:
                return  # The core sends it again when a link is up.
            if not self.transport.send(link, pieces):
                self.transport.drop(link, "its queue is full")
                return
