"""The link over which a client has watches streamed by a member that need not lead (METADATA.md, 6; I82). Pure.

Decides which member the client dials for that, what it asks, and when it leaves. A member streams what it has applied,
so it may lag. Each renewal shows the client how far the leader is; it leaves a member that has not applied as much a
second later, or is silent for as long. `following` keeps what a watch knows and shows; `watching` decides where its
list comes from, and which member streams it meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from embedbk.codec.metadata_messages import (
    BUSY,
    Acknowledged,
    KeepAlive,
    MetadataReply,
    MetadataRequest,
    Operation,
    Refusal,
    Unwatch,
    Watch,
)
from embedbk.metadata.following import FollowedPrefix
from embedbk.metadata.vocabulary import Dial, HangUp, Send

__all__ = ["AGAIN_NS_MAX", "AGAIN_NS_MIN", "ASKED_MAX", "LAG_NS", "FollowerLink"]

LAG_NS = 1_000_000_000  # From the dial to the first answer; from the leader's revision to having applied it.
LOOKS = 5  # Questions in that time.
AGAIN_NS_MIN = 1_000_000_000  # Before another is dialled; doubles where it was left sooner than the most.
AGAIN_NS_MAX = 60_000_000_000
ASKED_MAX = 64  # Streams that are asked for and not acknowledged; others wait.


class Effects(Protocol):
    """The part of a list of the client's effects that is used here."""

    def append(self, effect: Dial | HangUp | Send, /) -> None: ...


class FollowerLink:
    """At most one link of one client, beside that of its session."""

    def __init__(self) -> None:
        self.at = ""  # The address that was dialled, until its link has ended.
        self.is_up = False  # It takes requests for streams.
        self._is_leaving = False
        self._is_wanted = False
        self._dial_at_ns = 0
        self._dial_count = 0
        self._again_ns = AGAIN_NS_MIN
        self._since_ns = 0  # When it was dialled.
        self._leader_revision = 0  # The revision that the leader last reported.
        self._due_ns: int | None = None  # When it is left, unless it has applied that revision by then.
        self._look_ns: int | None = None  # When to ask it next how far it is.
        self._count = 0  # The number of requests on this link.
        self._looks: dict[int, None] = {}  # Sequences of those that ask how far it is.
        self._asked: dict[
            int, tuple[FollowedPrefix, int, int]
        ] = {}  # By sequence: with the stream's id, and when.
        self._unasked: deque[tuple[FollowedPrefix, int]] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether there is no link, and none is needed."""
        return not self.at and not self._is_wanted and not self._is_leaving

    @property
    def deadline_ns(self) -> int | None:
        if self._is_leaving:
            return None
        if not self.at:
            return self._dial_at_ns if self._is_wanted else None
        return min((at for at in (self._due_ns, self._look_ns) if at is not None), default=None)

    def seek(
        self,
        now_ns: int,
        members: Sequence[str],
        leader: str,
        number: int,
        effects: Effects,
    ) -> None:
        """Dial, ask and leave when it is time. members: addresses of all; empty: no stream may lag. leader: the address
        of the client's own link. number: of its session; 0: it has none, and dials no other member."""
        others = [each for each in members if each != leader]
        self._is_wanted = bool(others) and number > 0
        if self._is_leaving:
            return
        if not self.at:
            if self._is_wanted and now_ns >= self._dial_at_ns:
                self.at = others[(number + self._dial_count) % len(others)]
                self._dial_count += 1
                self._since_ns, self._due_ns = now_ns, now_ns + LAG_NS
                effects.append(Dial(self.at, is_for_streams=True))
        elif self.at not in members:
            self._leave(now_ns, f"{self.at} is needed for no stream any more", effects)
        elif self._due_ns is not None and now_ns >= self._due_ns:
            self._leave(now_ns, f"{self.at} lags, or says nothing", effects)
        elif self._look_ns is not None and now_ns >= self._look_ns:
            self._look(now_ns, effects)

    def connected(self, now_ns: int, effects: Effects) -> None:
        if self.at and not self._is_leaving:
            self._due_ns = now_ns + LAG_NS
            self._look(now_ns, effects)

    def disconnected(self, now_ns: int) -> None:
        if not self._is_leaving:
            self._forget(now_ns)
        self.at, self._is_leaving = "", False

    def heard_leader(self, now_ns: int, revision: int, effects: Effects) -> None:
        """The leader is at this revision: this member must soon answer that it has applied it."""
        self._leader_revision = max(self._leader_revision, revision)
        if self.is_up:
            if self._due_ns is None:
                self._due_ns = now_ns + LAG_NS
            self._look(now_ns, effects)

    def follow(self, watch: FollowedPrefix, now_ns: int, effects: Effects) -> None:
        """Begin a stream, of the watch's present id, from where it stands."""
        self._unasked.append((watch, watch.watch_id))
        self._ask(now_ns, effects)

    def unfollow(self, watch_id: int, effects: Effects) -> None:
        if self.is_up:
            self._send(Unwatch(watch_id), effects)

    def take(self, reply: MetadataReply, now_ns: int, effects: Effects) -> bool:
        """Whether it answers how far it is."""
        result = reply.result
        if not self.at or self._is_leaving:
            return False
        asked = self._asked.pop(reply.sequence, None)
        if isinstance(result, Refusal) and result.code == BUSY:
            if asked is not None:
                self._unasked.append(asked[:2])  # Asked for again when the member next says how far it is.
        elif not isinstance(result, Acknowledged):
            told = result.text if isinstance(result, Refusal) else "it does not lead, and streams nothing"
            self._leave(now_ns, f"{self.at}: {told}", effects)
        elif asked is not None:
            if asked[0].watch_id == asked[1]:
                asked[0].is_asking = False
            self._ask(now_ns, effects)
        elif reply.sequence in self._looks:
            self._take_look(reply.sequence, result.revision, now_ns, effects)
            return True
        return False

    def _take_look(self, sequence: int, revision: int, now_ns: int, effects: Effects) -> None:
        """The member answers how far it is."""
        for before in [each for each in self._looks if each <= sequence]:
            del self._looks[before]
        if revision < self._leader_revision:
            return  # It is asked again.
        self.is_up = True
        self._due_ns = self._look_ns = None
        for late in [each for each, (_, _, at_ns) in self._asked.items() if now_ns >= at_ns + LAG_NS]:
            self._unasked.append(self._asked.pop(late)[:2])  # The request or its answer was lost on the way.
        self._ask(now_ns, effects)

    def _look(self, now_ns: int, effects: Effects) -> None:
        self._looks[self._send(KeepAlive(), effects)] = None
        self._look_ns = now_ns + LAG_NS // LOOKS

    def _ask(self, now_ns: int, effects: Effects) -> None:
        while self._unasked and self.is_up and len(self._asked) < ASKED_MAX:
            watch, watch_id = self._unasked.popleft()
            if watch.watch_id == watch_id:  # Otherwise that stream was ended.
                sequence = self._send(Watch(watch_id, watch.prefix, watch.revision), effects)
                self._asked[sequence] = watch, watch_id, now_ns

    def _send(self, operation: Operation, effects: Effects) -> int:
        self._count += 1
        effects.append(Send(MetadataRequest(0, self._count, 1, operation), is_for_streams=True))
        return self._count

    def _leave(self, now_ns: int, reason: str, effects: Effects) -> None:
        self._forget(now_ns)
        self._is_leaving = True
        effects.append(HangUp(reason, is_for_streams=True))

    def _forget(self, now_ns: int) -> None:
        """The link is gone; another member is dialled later."""
        self.is_up = False
        self._due_ns = self._look_ns = None
        self._looks.clear()
        self._asked.clear()
        self._unasked.clear()
        if now_ns - self._since_ns >= AGAIN_NS_MAX:
            self._again_ns = AGAIN_NS_MIN
        self._dial_at_ns = now_ns + self._again_ns
        self._again_ns = min(2 * self._again_ns, AGAIN_NS_MAX)
