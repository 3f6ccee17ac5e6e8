"""The streams of one member to its watchers: which watcher receives which change (METADATA.md; I82).

Each stream gets every change under its prefix above the revision it asked for, in order, once, all of one revision
together. If changes are not kept any more, the stream is told so (`is_compacted`); nothing is skipped. Streams live as
long as their link and their session, if they have one: after a reconnect the client asks again from the revision it
has. A member that may lag lets a stream wait that begins at a revision which it has not applied yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from embedbk.codec.metadata_messages import Record, WatchEvents
from embedbk.metadata.history import History
from embedbk.metadata.limits import event_bytes
from embedbk.metadata.vocabulary import SendEvents

__all__ = ["MARKS_MAX", "WATCH_BATCH_BYTES", "Watches"]

WATCH_BATCH_BYTES = 1 << 20  # Bytes of one message to a watcher; one revision always fits, however large.
CAUGHT_UP_COST_MAX = 5000  # Changes looked at in one feed for lagging watchers; the rest follow in the next.
MARKS_MAX = 128  # Streams marked with one keep-alive; the others of that link have their turn with the next.


@dataclass(slots=True)
class _Stream:
    link: int
    session: int
    watch_id: int
    prefix: str
    sent_revision: (
        int  # Every change up to here was sent. Kept only while lagging, else `Watches.fed_revision`.
    )
    is_lagging: bool = True

    def send(self, revision: int, records: list[Record], *, is_compacted: bool = False) -> SendEvents:
        """The next message of the stream, up to revision; it begins where the one before it ended."""
        after, self.sent_revision = self.sent_revision, revision
        events = WatchEvents(self.session, self.watch_id, revision, records, is_compacted, after)
        return SendEvents(self.link, events)


class Watches:
    """All streams of a member. `feed` gives what is to be sent after the durable revision moved."""

    def __init__(self, fed_revision: int) -> None:
        self.fed_revision = fed_revision  # Streams that do not lag were sent every change up to here.
        self.may_lag = False  # Revisions that this catalog does not have may come.
        self.total = 0
        self._links: dict[int, dict[int, _Stream]] = {}  # By watch id.
        self._sessions: dict[int, dict[tuple[int, int], None]] = {}
        self._by_prefix: dict[str, dict[tuple[int, int], _Stream]] = {}
        self._lengths: dict[int, int] = {}  # Length of a prefix -> prefixes of that length, to look keys up.
        self._lagging: dict[tuple[int, int], _Stream] = {}
        self._ahead: dict[
            tuple[int, int], _Stream
        ] = {}  # Streams that wait until this member has applied more.

    @property
    def is_lagging(self) -> bool:
        """Some stream has more to be sent than one batch took: feed again soon."""
        return len(self._lagging) > len(self._ahead)

    def count(self, link: int) -> int:
        return len(self._links.get(link, ()))

    def add(self, link: int, session: int, watch_id: int, prefix: str, from_revision: int) -> None:
        """Begin a stream; one of the same link and id ends."""
        self.remove(link, watch_id)
        stream = _Stream(link, session, watch_id, prefix, from_revision)
        key = (link, watch_id)
        self.total += 1
        self._links.setdefault(link, {})[watch_id] = self._lagging[key] = stream
        self._sessions.setdefault(session, {})[key] = None
        if prefix not in self._by_prefix:
            self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
        self._by_prefix.setdefault(prefix, {})[key] = stream

    def remove(self, link: int, watch_id: int) -> None:
        key = (link, watch_id)
        stream = self._links.get(link, {}).pop(watch_id, None)
        if stream is None:
            return
        self.total -= 1
        self._lagging.pop(key, None)
        self._ahead.pop(key, None)
        if not self._links[link]:
            del self._links[link]
        del self._sessions[stream.session][key]
        if not self._sessions[stream.session]:
            del self._sessions[stream.session]
        same = self._by_prefix[stream.prefix]
        del same[key]
        if not same:
            del self._by_prefix[stream.prefix]
            self._lengths[len(stream.prefix)] -= 1
            if not self._lengths[len(stream.prefix)]:
                del self._lengths[len(stream.prefix)]

    def remove_link(self, link: int) -> None:
        for watch_id in list(self._links.get(link, ())):
            self.remove(link, watch_id)

    def remove_session(self, session: int) -> None:
        for link, watch_id in list(self._sessions.get(session, ())):
            self.remove(link, watch_id)

    def marks(self, link: int) -> list[SendEvents]:
        """Tell idle streams of a link how far they are: they can resume from there after a long silence, and see
        whether a message of theirs was lost. Each has its turn."""
        streams = self._links.get(link, {})
        for watch_id in list(islice(streams, MARKS_MAX)) if len(streams) > MARKS_MAX else ():
            streams[watch_id] = streams.pop(watch_id)  # To the end: those are told now.
        told = list(streams.values())[-MARKS_MAX:]
        return [stream.send(self.fed_revision, []) for stream in told if not stream.is_lagging]

    def feed(self, history: History, until: int) -> list[SendEvents]:
        """The messages to send now that every change up to `until` is durable; at most one batch per stream, and to
        lagging streams no more at once than a slice of the loop allows."""
        if self.fed_revision == until and not self._lagging:
            return []  # No stream waits for changes.
        for key in [key for key, stream in self._ahead.items() if not self._is_ahead(stream, until)]:
            del self._ahead[key]
        # Those that begin to lag in this very feed wait for the next.
        behind = [key for key in self._lagging if key not in self._ahead]
        effects = self._feed_live(history, until)
        cost = 0
        for key in behind:
            if cost >= CAUGHT_UP_COST_MAX:
                break
            if self._is_ahead(self._lagging[key], until):
                self._ahead[key] = self._lagging[key]
                continue
            stream = self._lagging.pop(key)
            event, looked_at = self._catch_up(stream, history, until)
            effects.append(event)
            cost += looked_at + len(event.events.records)
            if stream.is_lagging and not event.events.is_compacted:
                self._lagging[key] = stream  # Behind the others.
        return effects

    def follow_another(self, catalog_revision: int) -> Watches:
        """The same streams over a catalog that takes the place of the one before: each looks for what is left to it."""
        follows = Watches(catalog_revision)
        follows.may_lag = self.may_lag
        for link, streams in self._links.items():
            for stream in streams.values():
                seen = stream.sent_revision if stream.is_lagging else self.fed_revision
                follows.add(link, stream.session, stream.watch_id, stream.prefix, seen)
        return follows

    def _is_ahead(self, stream: _Stream, until: int) -> bool:
        return self.may_lag and stream.sent_revision > until

    def _feed_live(self, history: History, until: int) -> list[SendEvents]:
        if self.fed_revision == until:
            return []
        if (
            self.fed_revision < history.floor
        ):  # Only where a generation began: each looks for what is left to it.
            for streams in self._links.values():
                for stream in streams.values():
                    if not stream.is_lagging:
                        self._lag(stream)
            self.fed_revision = until
            return []
        batches: dict[tuple[int, int], list[Record]] = {}
        sizes: dict[tuple[int, int], int] = {}
        reached: dict[tuple[int, int], int] = {}
        for revision, records in history.after(self.fed_revision, until):
            for key, (stream, wanted) in self._live_matches(records).items():
                if sizes.get(key, 0) > WATCH_BATCH_BYTES:
                    self._lag(stream)
                    continue
                batches.setdefault(key, []).extend(wanted)
                sizes[key] = sizes.get(key, 0) + event_bytes(wanted)
                reached[key] = revision
        self.fed_revision = until
        effects = []
        for key, batch in batches.items():
            stream = self._links[key[0]][key[1]]
            effects.append(stream.send(reached[key] if stream.is_lagging else until, batch))
        return effects

    def _lag(self, stream: _Stream) -> None:
        stream.is_lagging = True
        self._lagging[stream.link, stream.watch_id] = stream

    def _live_matches(
        self, records: tuple[Record, ...]
    ) -> dict[tuple[int, int], tuple[_Stream, list[Record]]]:
        """The streams that want some of these records, each with those, by looking up every prefix that is watched."""
        found: dict[tuple[int, int], tuple[_Stream, list[Record]]] = {}
        for record in records:
            for length in self._lengths:
                if length > len(record.key):
                    continue
                for key, stream in self._by_prefix.get(record.key[:length], {}).items():
                    if not stream.is_lagging:
                        found.setdefault(key, (stream, []))[1].append(record)
        return found

    def _catch_up(self, stream: _Stream, history: History, until: int) -> tuple[SendEvents, int]:
        """The next message of a stream that is behind, and how many changes were looked at for it."""
        if stream.sent_revision == until:
            stream.is_lagging = False
            return stream.send(until, []), 1
        part = None
        if stream.sent_revision < until:
            part = history.part(stream.prefix, stream.sent_revision, until, WATCH_BATCH_BYTES)
        if part is None:
            # Too old for the history, or from a future that this catalog does not know (restored from a copy).
            self.remove(stream.link, stream.watch_id)
            return stream.send(until, [], is_compacted=True), 1
        stream.is_lagging = part.revision < until
        return stream.send(part.revision, part.records), part.cost
