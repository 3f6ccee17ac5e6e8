"""Announce to the leader that this member is here, and where, until the configuration names that place (RAFT.md, 7;
P10.3).

A member that joins asks to receive the log; one that listens at a new address announces that. Decides which member to
ask (as a client does: `metadata.seeking`), when again, and when a refusal is final.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence

from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.metadata_messages import Acknowledged, MetadataReply, MetadataRequest, NotLeader, Refusal
from embedbk.codec.quorum_messages import JoinAsLearner
from embedbk.errors import EmbedbkError, PeerError, UsageError
from embedbk.host.reminders import Reminders
from embedbk.metadata.governing import RETIRED, TAKEN
from embedbk.metadata.levels import LACKING
from embedbk.metadata.seeking import Seeker
from embedbk.ports.links import LinkDown, LinkUp, Received
from embedbk.ports.transport import Transport

__all__ = ["Announcing"]

logger = logging.getLogger(__name__)

AGAIN_NS = 300_000_000
PATIENCE_NS = 2_000_000_000  # How long it waits for an answer.
TAKEN_NS = 10_000_000_000  # For so long an earlier process of this member may still be believed to run.
_FOR_GOOD = ("WRONG_TOKEN", "BAD_REQUEST", RETIRED, LACKING)


class Announcing:
    """A node of a loop, beside the member's own. It announces nothing while is_known() is true."""

    def __init__(
        self,
        transport: Transport,
        seeds: Sequence[str],
        operation: JoinAsLearner,
        is_known: Callable[[], bool],
    ) -> None:
        self.failure: EmbedbkError | None = None
        self.on_failed: Callable[[], None] = lambda: None  # Called when it is known.
        self._transport = transport
        self._seeker = Seeker(seeds)
        self._operation = operation
        self._is_known = is_known
        self._link: int | None = None
        self._due_ns = 0  # When to ask again, or to give up the link.
        self._sequences = itertools.count(1)
        self._asked = 0  # Sequence under way.
        self._taken_since_ns: int | None = None
        self._trouble = "nobody answered yet"
        self._reminders = Reminders(logger)

    def step(self, now_ns: int) -> None:
        for event in self._transport.receive(now_ns):
            if event.link != self._link:
                continue
            if isinstance(event, LinkUp):
                self._ask(now_ns)
            elif isinstance(event, LinkDown):
                self._link, self._trouble = None, event.reason
                self._seeker.left(now_ns)
            else:
                assert isinstance(event, Received)
                self._take(now_ns, event)
        name = self._operation.member.name
        if self._is_known():
            self._reminders.over(now_ns, "joining", f"metadata member {name} is in the configuration")
            if self._link is not None:
                self._transport.drop(self._link, "done")
            return
        if self.failure is None:
            text = f"metadata member {name} waits to be let in by the leader: {self._trouble}"
            self._reminders.lasts(now_ns, "joining", text)
            self._go_on(now_ns)

    def _go_on(self, now_ns: int) -> None:
        if self._link is None:
            endpoint = self._seeker.dial(now_ns)
            if endpoint is not None:
                self._due_ns = now_ns + PATIENCE_NS
                try:
                    self._link = self._transport.connect(endpoint)
                except UsageError as refused:
                    self._trouble = str(refused)
                    self._seeker.left(now_ns)
        elif now_ns >= self._due_ns:
            if self._asked:
                self._transport.drop(self._link, f"{self._seeker.at} did not answer")
            else:
                self._ask(now_ns)

    def _ask(self, now_ns: int) -> None:
        assert self._link is not None
        self._asked = next(self._sequences)
        self._due_ns = now_ns + PATIENCE_NS
        request = MetadataRequest(0, self._asked, 1, self._operation)
        if not self._transport.send(self._link, encode_message(self._asked, request)):
            self._transport.drop(self._link, "its queue is full")

    def _take(self, now_ns: int, event: Received) -> None:
        try:
            control = decode_message(event.body).control
        except PeerError as broken:
            self._transport.drop(event.link, str(broken))
            return
        if not isinstance(control, MetadataReply) or control.sequence != self._asked:
            return
        result, self._asked, self._due_ns = control.result, 0, now_ns + AGAIN_NS
        match result:
            case NotLeader(leader, endpoints, members):
                self._trouble = f"{self._seeker.at} does not lead" + (f", {leader} does" if leader else "")
                self._seeker.redirected(endpoints, members)
                self._transport.drop(event.link, self._trouble)
            case Acknowledged():
                self._seeker.answered()
                self._trouble, self._taken_since_ns = "the leader has let it in; its log is on the way", None
            case Refusal(code, text):
                self._seeker.answered()
                self._refused(now_ns, code, text)

    def _refused(self, now_ns: int, code: str, text: str) -> None:
        self._trouble = text
        if code != TAKEN:
            self._taken_since_ns = None
        elif self._taken_since_ns is None:
            self._taken_since_ns = now_ns
        is_over = self._taken_since_ns is not None and now_ns - self._taken_since_ns >= TAKEN_NS
        if code in _FOR_GOOD or is_over:
            self.failure = UsageError(text)
            self.on_failed()

    def has_news(self) -> bool:
        return self._transport.has_events()

    def deadline_ns(self) -> int | None:
        due: list[int | None] = [self._transport.deadline_ns()]
        if not self._is_known() and self.failure is None:
            due.append(self._due_ns if self._link is not None else self._seeker.dial_at_ns)
        return min((each for each in due if each is not None), default=None)

    def filenos(self) -> list[int]:
        return self._transport.filenos()

    def close(self, failure: BaseException | None = None) -> None:
        self._transport.close()
