"""One node's connection with the metadata quorum: dials the members, feeds the client core, hands out results.

Decides only when and whom to dial. Sessions, re-sending and watches are the client core's (`metadata.client`).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from embedbk.codec.messages import Message, encode_message
from embedbk.codec.metadata_messages import MetadataReply, Operation, Record, Result, WatchEvents
from embedbk.core.machine import earliest
from embedbk.metadata.client import Client, ClientEvent
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
    WatchCancelled,
    WatchChanged,
    WatchRequested,
)
from embedbk.ports import Transport

__all__ = ["MetadataLink", "WatchCallback"]

logger = logging.getLogger(__name__)

REDIAL_NS = 100_000_000  # Pause before a member is dialled again.

WatchCallback = Callable[[list[Record], int, bool], None]


class MetadataLink:
    """Requests to and watches on the metadata quorum, over one link of the node's transport.

    All calls from the host's thread; callbacks run in the step in which the outcome arrives.
    """

    def __init__(
        self,
        transport: Transport,
        endpoints: Sequence[str],
        client: Client,
        *,
        on_session: Callable[[int, bytes], None] | None = None,
    ) -> None:
        """on_session(session, cluster_token): a session was opened; ephemeral keys must be put again."""
        assert endpoints
        self.transport = transport
        self.endpoints = list(endpoints)
        self.client = client
        self.link: int | None = None
        self.is_up = False
        self.is_closed = False
        self.session = 0
        self._turn = 0
        self._dial_at = 0
        self._tokens = itertools.count(1)
        self._results: dict[int, Callable[[int, Result], None]] = {}
        self._watchers: dict[int, WatchCallback] = {}
        self._on_session = on_session
        self._message_ids = itertools.count(1)
        self._client_deadline_ns = client.deadline_ns

    def request(self, now_ns: int, operation: Operation, done: Callable[[int, Result], None]) -> int:
        """Run an operation; done(now_ns, result) follows exactly once. Returns a token to cancel it with."""
        token = next(self._tokens)
        self._results[token] = done
        self._step(Requested(now_ns, token, operation), now_ns)
        return token

    def cancel(self, now_ns: int, token: int) -> None:
        """Wait no longer for a request's outcome; its callback runs now."""
        if token in self._results:
            self._step(Cancelled(now_ns, token), now_ns)

    def watch(self, now_ns: int, prefix: str, changed: WatchCallback) -> int:
        """Follow all keys under prefix: changed(records, revision, is_first) with all of them first, then changes."""
        token = next(self._tokens)
        self._watchers[token] = changed
        self._step(WatchRequested(now_ns, token, prefix), now_ns)
        return token

    def unwatch(self, now_ns: int, token: int) -> None:
        if self._watchers.pop(token, None) is not None:
            self._step(WatchCancelled(now_ns, token), now_ns)

    def close(self, now_ns: int) -> None:
        """End the session, so that its ephemeral keys go at once, as far as the quorum can be reached."""
        if not self.is_closed:
            self.is_closed = True
            self._step(CloseRequested(now_ns), now_ns)

    # What the node tells.

    def on_link_up(self, now_ns: int) -> None:
        self.is_up = True
        self._step(Connected(now_ns), now_ns)

    def on_link_down(self, now_ns: int, reason: str) -> None:
        was_up, self.link, self.is_up = self.is_up, None, False
        self._dial_at = now_ns + REDIAL_NS
        self._turn += 1
        logger.info("metadata link down: %s", reason)
        if was_up:
            self._step(Disconnected(now_ns), now_ns)

    def on_message(self, now_ns: int, message: Message) -> None:
        control = message.control
        if isinstance(control, MetadataReply | WatchEvents):
            self._step(MessageReceived(now_ns, control), now_ns)

    def tick(self, now_ns: int) -> None:
        """Dial when there is no link, and let the core do what is due."""
        if self.link is None and not self.is_closed and now_ns >= self._dial_at:
            self.link = self.transport.connect(self.endpoints[self._turn % len(self.endpoints)])
        deadline = self._client_deadline_ns
        if deadline is not None and now_ns >= deadline:
            self._step(Tick(now_ns), now_ns)

    def deadline_ns(self) -> int | None:
        if self.link is None and not self.is_closed:
            return earliest(self._dial_at, self._client_deadline_ns)
        return self._client_deadline_ns

    def _step(self, event: ClientEvent, now_ns: int) -> None:
        effects = self.client.step(event)
        self._client_deadline_ns = (
            self.client.deadline_ns
        )  # Changes in a step only, and is asked for every turn.
        self._carry_out(effects, now_ns)

    def _carry_out(self, effects: Sequence[Any], now_ns: int) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._send(effect)
                case Completed():
                    self._results.pop(effect.token)(now_ns, effect.result)
                case WatchChanged():
                    changed = self._watchers.get(effect.token)
                    if changed is not None:
                        changed(effect.records, effect.revision, effect.is_first)
                case SessionReady():
                    self.session = effect.session
                    if self._on_session is not None:
                        self._on_session(now_ns, effect.cluster_token)
                case SessionLost():
                    logger.warning("metadata session %d lost: %s", effect.session, effect.reason)
                    self.session = 0
                case Closed():
                    self.is_closed = True
                case _:
                    raise AssertionError(effect)

    def _send(self, effect: Send) -> None:
        if self.link is None or not self.is_up:
            return  # The core sends it again when a link is up.
        if not self.transport.send(self.link, encode_message(next(self._message_ids), effect.request)):
            self.transport.drop(self.link, "its queue is full")
