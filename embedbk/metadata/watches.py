"""The streams of one member to its watchers: who is sent which change (METADATA.md; I82).

Each stream gets every change under its prefix above the revision it asked for, in order, once, all of one revision
together. What cannot be given any more is said (`is_compacted`), never skipped. Streams live as long as their link
and their session: after a reconnect the client asks again from the revision it has.
"""

from __future__ import annotations

from dataclasses import dataclass

from embedbk.codec.metadata_messages import Record, WatchEvents
from embedbk.metadata.catalog import History, event_bytes
from embedbk.metadata.vocabulary import SendEvents

__all__ = ["WATCH_BATCH_BYTES", "Watches"]

WATCH_BATCH_BYTES = 1 << 20  # Of one message to a watcher; one revision always fits, however large.


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

    def wanted(self, records: tuple[Record, ...]) -> list[Record]:
        return [record for record in records if record.key.startswith(self.prefix)]

    def send(self, revision: int, records: list[Record], *, is_compacted: bool = False) -> SendEvents:
        """The next message of the stream, up to revision; it begins where the one before it ended."""
        after, self.sent_revision = self.sent_revision, revision
        events = WatchEvents(self.session, self.watch_id, revision, records, is_compacted, after)
        return SendEvents(self.link, events)


class Watches:
    """All streams of a member. `feed` gives what is to be sent after the durable revision moved."""

    def __init__(self, fed_revision: int) -> None:
        self.fed_revision = fed_revision  # Streams that do not lag were sent every change up to here.
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._by_prefix: dict[str, dict[tuple[int, int], _Stream]] = {}
        self._lengths: dict[int, int] = {}  # Length of a prefix -> prefixes of that length, to look keys up.
        self._lagging: dict[tuple[int, int], _Stream] = {}

    @property
    def is_lagging(self) -> bool:
        """Some stream has more to be sent than one batch took: feed again soon."""
        return bool(self._lagging)

    def count(self, link: int) -> int:
        return sum(1 for stream in self._streams.values() if stream.link == link)

    def add(self, link: int, session: int, watch_id: int, prefix: str, from_revision: int) -> None:
        """Begin a stream; one of the same link and id ends."""
        self.remove(link, watch_id)
        stream = _Stream(link, session, watch_id, prefix, from_revision)
        key = (link, watch_id)
        self._streams[key] = self._lagging[key] = stream
        if prefix not in self._by_prefix:
            self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
        self._by_prefix.setdefault(prefix, {})[key] = stream

    def remove(self, link: int, watch_id: int) -> None:
        key = (link, watch_id)
        stream = self._streams.pop(key, None)
        if stream is None:
            return
        self._lagging.pop(key, None)
        same = self._by_prefix[stream.prefix]
        del same[key]
        if not same:
            del self._by_prefix[stream.prefix]
            self._lengths[len(stream.prefix)] -= 1
            if not self._lengths[len(stream.prefix)]:
                del self._lengths[len(stream.prefix)]

    def remove_link(self, link: int) -> None:
        for stream in [stream for stream in self._streams.values() if stream.link == link]:
            self.remove(link, stream.watch_id)

    def remove_session(self, session: int) -> None:
        for stream in [stream for stream in self._streams.values() if stream.session == session]:
            self.remove(stream.link, stream.watch_id)

    def marks(self, link: int) -> list[SendEvents]:
        """Tell the idle streams of a link how far they are: they can resume from there after a long silence, and see
        whether a message of theirs was lost."""
        return [
            stream.send(self.fed_revision, [])
            for stream in self._streams.values()
            if stream.link == link and not stream.is_lagging
        ]

    def feed(self, history: History, until: int) -> list[SendEvents]:
        """What is to be sent now that every change up to `until` is durable; at most one batch per stream."""
        behind = list(self._lagging.items())  # Those that begin to lag in this very feed wait for the next.
        effects = self._feed_live(history, until)
        for key, stream in behind:
            effects.append(self._catch_up(stream, history, until))
            if not stream.is_lagging:
                self._lagging.pop(key, None)
        return effects

    def _feed_live(self, history: History, until: int) -> list[SendEvents]:
        if self.fed_revision == until:
            return []
        if self.fed_revision < history.floor:  # A burst outran the history before it was durable.
            for key, stream in self._streams.items():
                if not stream.is_lagging:
                    self._lag(key, stream)
            self.fed_revision = until
            return []
        batches: dict[tuple[int, int], list[Record]] = {}
        sizes: dict[tuple[int, int], int] = {}
        reached: dict[tuple[int, int], int] = {}
        for revision, records in history.after(self.fed_revision, until):
            for key, stream in self._live_matches(records):
                if sizes.get(key, 0) > WATCH_BATCH_BYTES:
                    self._lag(key, stream)
                    continue
                wanted = stream.wanted(records)
                batches.setdefault(key, []).extend(wanted)
                sizes[key] = sizes.get(key, 0) + event_bytes(wanted)
                reached[key] = revision
        self.fed_revision = until
        effects = []
        for key, batch in batches.items():
            stream = self._streams[key]
            effects.append(stream.send(reached[key] if stream.is_lagging else until, batch))
        return effects

    def _lag(self, key: tuple[int, int], stream: _Stream) -> None:
        stream.is_lagging = True
        self._lagging[key] = stream

    def _live_matches(self, records: tuple[Record, ...]) -> list[tuple[tuple[int, int], _Stream]]:
        """The streams that want some of these records, each once, by looking up every prefix that is watched."""
        found: dict[tuple[int, int], _Stream] = {}
        for record in records:
            for length in self._lengths:
                if length <= len(record.key):
                    found.update(self._by_prefix.get(record.key[:length], {}))
        return [(key, stream) for key, stream in found.items() if not stream.is_lagging]

    def _catch_up(self, stream: _Stream, history: History, until: int) -> SendEvents:
        if stream.sent_revision == until:
            stream.is_lagging = False
            return stream.send(until, [])
        if not history.floor <= stream.sent_revision < until:
            # Too old for the history, or from a future that this catalog does not know (restored from a copy).
            self.remove(stream.link, stream.watch_id)
            return stream.send(until, [], is_compacted=True)
        batch: list[Record] = []
        size = 0
        reached = stream.sent_revision
        for revision, records in history.after(stream.sent_revision, until):
            if size > WATCH_BATCH_BYTES:
                break
            wanted = stream.wanted(records)
            batch.extend(wanted)
            size += event_bytes(wanted)
            reached = revision
        stream.is_lagging = reached < until
        return stream.send(reached, batch)
