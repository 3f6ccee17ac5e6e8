"""Which streams a member's links may have (METADATA.md, 6): how many watches, on one link and on all, and how many
links with streams that may lag.

A stream with a session shows what is promised, and its session's requests are answered by the member. One without a
session may lag: it shows what this member has applied, so the member need not be sure that it leads.
Leaves to `watches` what each stream is sent, and to `member` who may ask, and when streams are fed.
"""

from __future__ import annotations

from embedbk.codec.metadata_messages import Acknowledged, KeepAlive, Refusal, Result, Unwatch, Watch
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.vocabulary import SendEvents
from embedbk.metadata.watches import Watches

__all__ = ["FOLLOWING_LINKS_MAX", "WATCHES_MAX", "WATCHES_PER_LINK_MAX", "Streams"]

WATCHES_MAX = 65_536
WATCHES_PER_LINK_MAX = 4096
WATCHES_SHARE = 4  # One link may have at most this part of the watches that are free.
# Links with streams that may lag; the others are for sessions, if this member leads next.
FOLLOWING_LINKS_MAX = 256


class Streams:
    """The streams of one member, by link."""

    def __init__(self, revision: int) -> None:
        """revision: of the catalog; what was before it is for streams that ask for it."""
        self.watches = Watches(revision)
        self._following_links: dict[int, None] = {}  # Links with streams that may lag.

    def begin(self, link: int, session: int, watch: Watch, revision: int) -> Result:
        """Begin a stream; what it is sent comes with the next feed. revision: of the catalog, for the answer."""
        count, total = self.watches.count(link), self.watches.total
        allowed = min(WATCHES_PER_LINK_MAX, (WATCHES_MAX - total) // WATCHES_SHARE)
        if count >= allowed:
            return Refusal(
                "UNAVAILABLE",
                f"{count} watches on this link and {total} on all, allowed are {WATCHES_PER_LINK_MAX} and "
                f"{WATCHES_MAX}, and now {allowed} on one link: end some",
            )
        self.watches.add(link, session, watch.watch_id, watch.prefix, watch.from_revision)
        return Acknowledged(revision)

    def serve_following(
        self, link: int, operation: Watch | Unwatch | KeepAlive, catalog: Catalog, *, may_lag: bool
    ) -> tuple[list[SendEvents], Result]:
        """Do what a request without a session asks of streams that may lag. Returns what is sent before the answer, and
        the answer. may_lag: as in `feed`."""
        if isinstance(operation, KeepAlive):
            return self.watches.marks(link), Acknowledged(catalog.revision)
        if isinstance(operation, Unwatch):
            self.watches.remove(link, operation.watch_id)
            return [], Acknowledged(catalog.revision)
        if link not in self._following_links and len(self._following_links) >= FOLLOWING_LINKS_MAX:
            text = (
                f"{FOLLOWING_LINKS_MAX} links have streams that may lag, and no more may: ask another member"
            )
            return [], Refusal("UNAVAILABLE", text)
        self._following_links[link] = None
        result = self.begin(link, 0, operation, catalog.revision)
        return self.feed(catalog, may_lag=may_lag), result

    def feed(self, catalog: Catalog, *, may_lag: bool) -> list[SendEvents]:
        """What streams are sent of the catalog.

        may_lag: revisions that it does not have may exist. A leader that has applied all that earlier leaders promised
            knows every one.
        """
        self.watches.may_lag = may_lag
        return self.watches.feed(catalog.history, catalog.revision)

    def lose_link(self, link: int) -> None:
        self.watches.remove_link(link)
        self._following_links.pop(link, None)

    def follow_another(self, revision: int) -> None:
        """Go on over a catalog that takes the place of the one before."""
        self.watches = self.watches.follow_another(revision)
