"""The watches of one metadata client: which are listed anew, which have a stream, and which member sends it (I82).

Decides what is asked of the quorum for each watch and when; `following` keeps what one watch knows and shows. The
client sends the requests that gather in `requests`, passes the answers back, and reports links that were lost. Streams
that may lag come from a follower while there is one (`follower_link`), the others from the leader, with the session's
link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from embedbk.codec.metadata_messages import List, Listed, Record, Refusal, Result, Unwatch, Watch, WatchEvents
from embedbk.metadata.catalog import DEFAULT_LIMITS, check_operation
from embedbk.metadata.follower_link import FollowerLink
from embedbk.metadata.following import RETRY_NS_MIN, FollowedPrefix
from embedbk.metadata.seeking import Seeker
from embedbk.metadata.vocabulary import (
    Completed,
    Connected,
    Dial,
    Disconnected,
    HangUp,
    MessageReceived,
    Send,
    Token,
    WatchCancelled,
    WatchChanged,
    WatchPutOff,
    WatchRequested,
)
from embedbk.metadata.watches import MARKS_MAX

__all__ = ["SILENT_MAX", "WATCHES_MAX", "StreamRequest", "WatchEffect", "Watching"]

WATCHES_MAX = 4096  # As many as the quorum has for one link.
SILENT_MAX = 2  # Marks of a stream that may be missing, one after the other.

WatchEffect = Send | Completed | WatchChanged | WatchPutOff | Dial | HangUp


class WatchEffects(Protocol):
    """The part of a list of the client's effects that is used here."""

    def append(self, effect: WatchEffect, /) -> None: ...


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A request to the leader for a watch. list_count: the number of the list that this asks a page of."""

    operation: List | Watch | Unwatch
    watch: FollowedPrefix
    list_count: int = 0


class Watching:
    """Each method that has `effects` appends to them what the host is to do, in order."""

    def __init__(self) -> None:
        self.requests: list[StreamRequest] = []  # For the client to take and send, in this order.
        self._watches: dict[Token, FollowedPrefix] = {}
        # Those of them that may lag, and those that are listed again later. A client with very many open handles has as
        # many watches, and is asked for its deadline in each turn: no step goes through all of them.
        self._may_lag: dict[Token, FollowedPrefix] = {}
        self._put_off: dict[Token, FollowedPrefix] = {}
        self._streams: dict[int, FollowedPrefix] = {}  # By watch id, on the present links.
        self._stream_count = 0
        self._follower = FollowerLink()
        self._uses_follower = False  # The follower sends the streams that may lag.

    @property
    def deadline_ns(self) -> int | None:
        deadlines = [watch.retry_ns for watch in self._put_off.values() if watch.retry_ns is not None]
        if (follower_ns := self._follower.deadline_ns) is not None:
            deadlines.append(follower_ns)
        return min(deadlines, default=None)

    def known(self, token: Token) -> dict[str, Record]:
        """The keys of a watch as last known, by key; not to be changed."""
        return self._watches[token].known

    # --- The host ----------------------------------------------------------------------------------------

    def watch(self, event: WatchRequested, ended: Refusal | None, effects: WatchEffects) -> None:
        """ended: why the client takes no request any more."""
        refusal = ended or check_operation(Watch(0, event.prefix, 0))
        if refusal is None and len(self._watches) >= WATCHES_MAX:
            text = f"{len(self._watches)} keys and prefixes are followed, allowed are {WATCHES_MAX}"
            refusal = Refusal("UNAVAILABLE", f"{text}: end some, or use another client")
        if refusal is not None:
            effects.append(Completed(event.token, refusal))
            return
        assert event.token not in self._watches, f"watch {event.token!r} exists"
        watch = FollowedPrefix(event.token, event.prefix, event.may_lag)
        self._watches[event.token] = watch
        if watch.may_lag:
            self._may_lag[event.token] = watch
        self._list_again(watch)

    def cancel(self, event: WatchCancelled, effects: WatchEffects) -> None:
        watch = self._watches.pop(event.token, None)
        if watch is not None:
            self._may_lag.pop(event.token, None)
            self._put_off.pop(event.token, None)
            self._end_stream(watch, effects)

    def cancel_all(self) -> list[Token]:
        """The client closes, or is refused: no watch shows anything any more. Returns those that there were."""
        tokens = list(self._watches)
        for watches in (self._watches, self._may_lag, self._put_off):
            watches.clear()
        self._streams.clear()
        self.requests.clear()
        return tokens

    def tick(self, now_ns: int) -> None:
        """Watches that the quorum refused or could not list are listed again when their time has come."""
        for watch in list(self._put_off.values()):
            if watch.retry_ns is not None and now_ns >= watch.retry_ns:
                watch.retry_ns = None
                del self._put_off[watch.token]
                self._list_again(watch)

    # --- The session's link ------------------------------------------------------------------------------

    def stream_all(self, now_ns: int, effects: WatchEffects) -> None:
        """The session is on a new link: ask for every stream that is not a follower's."""
        for watch in self._watches.values():
            if not watch.is_lagging:
                self._follow(watch, now_ns, effects)

    def lose_streams(self) -> None:
        """The session's link or the session is lost, and its streams with it."""
        for watch in self._watches.values():
            if not watch.is_lagging:
                self._streams.pop(watch.watch_id, None)
                watch.watch_id = 0
                watch.is_asking = False

    def take_answer(self, request: StreamRequest, result: Result, now_ns: int, effects: WatchEffects) -> None:
        operation, watch = request.operation, request.watch
        if self._watches.get(watch.token) is not watch:
            return  # Cancelled.
        if isinstance(operation, Watch):
            if operation.watch_id != watch.watch_id:
                return  # For a stream that ended.
            watch.is_asking = False
            if isinstance(result, Refusal):
                del self._streams[watch.watch_id]
                watch.put_off(now_ns)
                self._put_off[watch.token] = watch
                effects.append(WatchPutOff(watch.token, result.text))
            else:
                watch.retry_wait_ns = RETRY_NS_MIN
        elif isinstance(operation, List) and request.list_count == watch.list_count:
            if isinstance(result, Listed):
                self._take_page(watch, result, now_ns, effects)
            else:  # It stays a list under way, so that nothing of half a list is shown.
                watch.retry_ns = now_ns + watch.retry_wait_ns
                self._put_off[watch.token] = watch

    def take_events(self, events: WatchEvents, now_ns: int, effects: WatchEffects) -> None:
        watch = self._streams.get(events.watch_id)
        if watch is None:
            return  # For a stream that ended.
        watch.silence = 0
        if events.is_compacted:
            del self._streams[events.watch_id]
            watch.watch_id, watch.is_asking, watch.is_lagging = 0, False, False
            self._list_again(watch)
        elif events.after_revision > watch.revision:
            # A message before this one is missing: ask for the stream from the revision that is known.
            self._follow(watch, now_ns, effects)
        else:
            watch.take_events(events)
            self._show(watch, effects)

    # --- The follower's link -----------------------------------------------------------------------------

    def on_follower(self, event: Connected | Disconnected | MessageReceived, effects: WatchEffects) -> None:
        if isinstance(event, Connected):
            self._follower.connected(event.now_ns, effects)
        elif isinstance(event, Disconnected):
            self._follower.disconnected(event.now_ns)
        elif isinstance(event.message, WatchEvents):
            watch = self._streams.get(event.message.watch_id)
            if watch is not None and watch.is_lagging:
                self.take_events(event.message, event.now_ns, effects)
        elif self._follower.take(event.message, event.now_ns, effects):
            self._follow_silent(event.now_ns, effects, is_lagging=True)

    def renewed(self, now_ns: int, revision: int, effects: WatchEffects) -> None:
        """The leader has answered a keep-alive, at this revision: a follower whose streams stay below it for long is
        left."""
        self._follow_silent(now_ns, effects, is_lagging=False)
        self._follower.heard_leader(now_ns, revision, effects)

    def _follow_silent(self, now_ns: int, effects: WatchEffects, *, is_lagging: bool) -> None:
        """Ask anew, from where its watch stands, for each stream that heard nothing though its member answered: before
        such an answer it marks its streams, each in its turn (`Watches.marks`). It may have ended this one, and the
        message that said so was lost: nothing else would ever come."""
        streams = [watch for watch in self._streams.values() if watch.is_lagging == is_lagging]
        turn = 1 + len(streams) // MARKS_MAX
        for watch in streams:
            watch.silence += 1
            if watch.silence > SILENT_MAX * turn:
                self._follow(watch, now_ns, effects)

    def place_streams(
        self, now_ns: int, seeker: Seeker, session: int, effects: WatchEffects, *, has_ended: bool
    ) -> None:
        """Move the streams that may lag to a follower while there is one, else to the leader, from where they stand.

        Args:
            seeker: knows the members, and which of them leads.
            session: the number of the present one, 0: there is none.
            has_ended: the client has closed, so no follower is looked for.
        """
        if not self._watches and not self._uses_follower and self._follower.is_idle:
            return  # No stream may lag, and there is no follower to leave.
        is_wanted = bool(seeker.given and self._may_lag) and not has_ended
        members = seeker.learnt if is_wanted else ()
        self._follower.seek(now_ns, members, seeker.at, session, effects)
        if self._uses_follower == self._follower.is_up:
            return
        self._uses_follower = self._follower.is_up
        for watch in self._may_lag.values():
            self._end_stream(watch, effects)
            if session or self._uses_follower:
                self._follow(watch, now_ns, effects)

    # --- One watch ---------------------------------------------------------------------------------------

    def _follow(self, watch: FollowedPrefix, now_ns: int, effects: WatchEffects) -> None:
        """Ask for a stream from where the watch stands, when it has none and its first page was received."""
        if not watch.is_begun or watch.retry_ns is not None or watch.is_asking:
            return
        if not watch.watch_id:
            self._stream_count += 1
            watch.watch_id = self._stream_count
            self._streams[watch.watch_id] = watch
        watch.is_asking, watch.silence = True, 0
        watch.is_lagging = watch.may_lag and self._uses_follower
        if watch.is_lagging:
            self._follower.follow(watch, now_ns, effects)
        else:
            self._ask(Watch(watch.watch_id, watch.prefix, watch.revision), watch)

    def _end_stream(self, watch: FollowedPrefix, effects: WatchEffects) -> None:
        if not watch.watch_id:
            return
        del self._streams[watch.watch_id]
        if watch.is_lagging:
            self._follower.unfollow(watch.watch_id, effects)
        else:
            self._ask(Unwatch(watch.watch_id), watch)
        watch.watch_id, watch.is_asking, watch.is_lagging = 0, False, False

    def _list_again(self, watch: FollowedPrefix) -> None:
        watch.begin_list()
        self._ask_page(watch, "")

    def _ask_page(self, watch: FollowedPrefix, after: str) -> None:
        self._ask(List(watch.prefix, after, DEFAULT_LIMITS.list_records_max), watch, watch.list_count)

    def _ask(self, operation: List | Watch | Unwatch, watch: FollowedPrefix, list_count: int = 0) -> None:
        self.requests.append(StreamRequest(operation, watch, list_count))

    def _take_page(self, watch: FollowedPrefix, page: Listed, now_ns: int, effects: WatchEffects) -> None:
        watch.take_page(page)
        if page.has_more:
            self._ask_page(watch, page.records[-1].key)
        else:
            self._show(watch, effects)
        self._follow(watch, now_ns, effects)

    def _show(self, watch: FollowedPrefix, effects: WatchEffects) -> None:
        change = watch.show()
        if change is not None:
            effects.append(change)
