"""One session of a metadata client, as its client knows it: until when it certainly lives, and when it is renewed
(METADATA.md, 1 and 5; P10.1). Pure.

The quorum has its own time for the session, which is over later (`lifetimes`). Leaves to `client` when a keep-alive is
sent beside those that are due, and what is lost with the session.
"""

from __future__ import annotations

from embedbk.codec.metadata_messages import KeepAlive, MetadataRequest, SessionOpened

__all__ = ["ClientSession"]


class ClientSession:
    """A session that was opened, and its keep-alives over the present link."""

    __slots__ = (
        "_keep_alives",
        "_next_sequence",
        "_renewal_ns",
        "keep_alive_ns",
        "lease_until_ns",
        "secret",
        "session",
        "ttl_ns",
    )

    def __init__(self, opened: SessionOpened, sent_ns: int, now_ns: int) -> None:
        """sent_ns: when the request that opened it was sent."""
        self.session = opened.session
        self.secret = opened.secret
        self.ttl_ns = opened.ttl_ms * 1_000_000
        # The quorum cannot have ended the session before this time.
        self.lease_until_ns = self._leased_until_ns(sent_ns)
        self._renewal_ns = now_ns - sent_ns  # How long the last renewal took.
        self._next_sequence = 1
        self._keep_alives: dict[int, int] = {}  # Sequence -> when it was sent.
        self.keep_alive_ns = sent_ns + self._renew_after_ns(now_ns)  # When the next keep-alive is due.

    def is_leased(self, now_ns: int) -> bool:
        """Whether it certainly lives at this time."""
        return now_ns < self.lease_until_ns

    @property
    def next_sequence(self) -> int:
        return self._next_sequence

    def take_sequence(self) -> int:
        self._next_sequence += 1
        return self._next_sequence - 1

    def keep_alive(self, level: int, oldest: int | None, now_ns: int) -> MetadataRequest:
        """One more keep-alive. level: that this build knows. oldest: the oldest request that has no answer."""
        self.keep_alive_ns = now_ns + self._renew_after_ns(now_ns)
        sequence = self.take_sequence()
        self._keep_alives[sequence] = now_ns
        done_below = sequence if oldest is None else oldest
        return MetadataRequest(
            self.session, sequence, done_below, KeepAlive(level, gathers=True), self.secret
        )

    def take_keep_alive(self, sequence: int) -> int | None:
        """When the keep-alive was sent that an answer is for; None: it is for none."""
        sent_ns = self._keep_alives.pop(sequence, None)
        if sent_ns is not None:
            for earlier in [known for known in self._keep_alives if known < sequence]:
                del self._keep_alives[earlier]  # Links keep order: they were lost, or are of no use any more.
        return sent_ns

    def renewed(self, sent_ns: int, now_ns: int) -> None:
        """A request that renews it, sent at sent_ns, was answered."""
        self._renewal_ns = now_ns - sent_ns
        self.lease_until_ns = max(self.lease_until_ns, self._leased_until_ns(sent_ns))

    def lose_link(self) -> None:
        """No answer to a keep-alive comes any more."""
        self._keep_alives.clear()

    def _leased_until_ns(self, sent_ns: int) -> int:
        """A sixteenth before its ttl, counted from when the last answered keep-alive was SENT, the session is lost:
        the quorum waits a sixteenth longer from when it received it, so ours is always over first."""
        return sent_ns + self.ttl_ns * 15 // 16

    def _renew_after_ns(self, now_ns: int) -> int:
        """A third of the lease without the time that a renewal takes: so answers that are late by most of a ttl end no
        session, and three quick ones in a row may be lost."""
        oldest_ns = next(iter(self._keep_alives.values()), now_ns)
        takes_ns = max(self._renewal_ns, now_ns - oldest_ns)
        return max((self.ttl_ns - takes_ns) // 3, self.ttl_ns // 12)
