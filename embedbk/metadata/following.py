"""The state of one watch of a client: a list in pages, and the stream of changes since its first page (I82).

The stream begins with the first page, not behind the last: so however long the list takes, the quorum has to
keep no more than one round trip of changes for it. Pages are of different revisions; nothing is shown before the
stream has reached the last one's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from embedbk.codec.metadata_messages import Listed, Record, WatchEvents
from embedbk.metadata.vocabulary import Token, WatchChanged

__all__ = ["RETRY_NS_MIN", "FollowedPrefix"]

RETRY_NS_MIN = 200_000_000  # Pause after the quorum had no room for a watch; doubles up to the most.
RETRY_NS_MAX = 30_000_000_000


@dataclass(slots=True)
class FollowedPrefix:
    """A prefix that is followed. `watching` decides what is asked of the quorum for it, and when."""

    token: Token
    prefix: str
    may_lag: bool = False  # A member may stream it that does not lead.
    is_lagging: bool = False  # Its stream is asked for over the link for streams that may lag.
    known: dict[str, Record] = field(default_factory=dict)  # The keys as of `revision`, or later for some.
    revision: int = 0  # The stream was taken up to here.
    whole_at: int = 0  # Revision of the last page: nothing is shown before the stream has reached it.
    unshown: list[Record] = field(default_factory=list)
    is_shown: bool = False
    listing: dict[str, Record] | None = None  # While listing: what the pages gave so far.
    changed: dict[str, Record] = field(default_factory=dict)  # While listing: the last change of each key.
    is_begun: bool = False  # The first page is there: the stream can begin.
    list_count: int = 0  # Lists so far: a page of an earlier list is ignored.
    watch_id: int = 0  # The id of the stream on the present link; 0: there is none.
    is_asking: bool = False  # A Watch for the stream is queued or under way.
    silence: int = 0  # Answers to keep-alives on its link since the stream was asked for or heard of last.
    retry_ns: int | None = None
    retry_wait_ns: int = RETRY_NS_MIN

    def begin_list(self) -> None:
        self.listing, self.changed = {}, {}
        self.is_begun = False
        self.list_count += 1

    def put_off(self, now_ns: int) -> None:
        """The quorum refused the stream. A list under way goes on."""
        self.watch_id = 0
        self.is_asking = False
        self.retry_ns = now_ns + self.retry_wait_ns
        self.retry_wait_ns = min(2 * self.retry_wait_ns, RETRY_NS_MAX)

    def take_page(self, page: Listed) -> None:
        """The next page; the last one ends the list."""
        assert self.listing is not None
        if not self.is_begun:
            self.is_begun = True
            self.revision = page.revision
        self.listing.update((record.key, record) for record in page.records)
        if page.has_more:
            return
        self.whole_at = page.revision
        for key, record in self.changed.items():
            found = self.listing.get(key)
            if found is not None and found.revision >= record.revision:
                continue  # The page has a newer state of the key.
            if record.value is not None:
                self.listing[key] = (
                    record  # Or gone again before the page: then the stream is about to say so.
                )
            elif found is not None:
                del self.listing[key]
        before, self.known = self.known, self.listing
        self.listing, self.changed = None, {}
        self.unshown.extend(self._difference(before))

    def take_events(self, events: WatchEvents) -> None:
        """The next message of the stream, which begins no later than where the one before it ended."""
        for record in events.records:
            if self.listing is not None:
                if record.revision > self.revision:
                    self.changed[record.key] = record
                continue
            known = self.known.get(record.key)
            if record.revision <= max(self.revision, known.revision if known else 0):
                continue  # Received before, or a later page had it already.
            if record.value is not None:
                self.known[record.key] = record
            elif self.known.pop(record.key, None) is None:
                continue  # Deleted before the page that would have shown it.
            self.unshown.append(record)
        self.revision = max(self.revision, events.revision)

    def show(self) -> WatchChanged | None:
        """The change to report to the host, once the keys are those of one revision."""
        if self.listing is not None or self.revision < self.whole_at or (self.is_shown and not self.unshown):
            return None
        records = self.unshown if self.is_shown else [self.known[key] for key in sorted(self.known)]
        change = WatchChanged(self.token, records, self.revision, not self.is_shown)
        self.unshown = []
        self.is_shown = True
        return change

    def _difference(self, before: dict[str, Record]) -> list[Record]:
        """The changes from one list to the next, so that deletes are seen also when their events are gone. Their
        revisions are unknown: later than the last change reported of the key, and before all that the stream will
        send."""
        changed = [record for key, record in self.known.items() if before.get(key) != record]
        deleted = [
            Record(key, None, record.created, max(self.revision, record.revision + 1))
            for key, record in before.items()
            if key not in self.known
        ]
        return [*changed, *deleted]
