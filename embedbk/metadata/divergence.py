"""Whether this member's state is still that of the others: compared through the log (METADATA.md, 2; I72). Pure.

A leader proposes `CheckDigest` every so many entries, or after a while. A member that applies one notes the digest of
its own state, and compares the digest it noted at the one before with the leader's for that place: both had applied
the same entries then, so the two must be equal. A member that differs cannot know which of the two is wrong: it must
not serve.
"""

from __future__ import annotations

from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import CheckDigest

__all__ = ["DIGEST_ENTRIES", "DIGEST_NS", "Divergence"]

DIGEST_ENTRIES = 10_000  # At most so many entries between two comparisons.
DIGEST_NS = 60_000_000_000  # And at most so long, if anything was applied meanwhile.


class Divergence:
    """The comparisons of one member."""

    def __init__(self, entries: int = DIGEST_ENTRIES) -> None:
        self._entries = entries
        self._applied = 0  # Entries since the last comparison.
        self._since_ns = 0
        self._noted = CheckDigest(0, b"")  # This member's digest at the last comparison.
        self._is_asked = False  # A comparison is proposed and not applied yet.

    def begin_to_lead(self, now_ns: int) -> None:
        self._since_ns, self._is_asked = now_ns, False

    def forget(self) -> None:
        """Another member's state replaced this one: forget what was noted."""
        self._noted = CheckDigest(0, b"")

    @property
    def due_ns(self) -> int | None:
        """When a leader is to propose; None: nothing was applied, or it is under way."""
        if self._is_asked or not self._applied:
            return None
        return self._since_ns if self._applied >= self._entries else self._since_ns + DIGEST_NS

    def propose(self, now_ns: int) -> CheckDigest:
        self._is_asked, self._since_ns = True, now_ns
        return self._noted

    def apply(self, index: int, command: object, catalog: Catalog) -> str:
        """Note an entry that was applied; returns why this member must not serve, empty: it may."""
        if not isinstance(command, CheckDigest):
            self._applied += 1
            return ""
        before, self._noted = self._noted, CheckDigest(index, catalog.fast_digest)
        self._applied, self._is_asked = 0, False
        if before.index != command.index or before.digest == command.digest:
            return ""
        return (
            f"at entry {command.index} this member's state was {before.digest.hex()}, and that of the leader "
            f"{command.digest.hex()}: one of them is wrong, in memory or on its disk. Start this member again; if it "
            "says so again, compare with a third member, and let the one that differs join anew with an empty directory"
        )
