"""What a reader knows of its ledger's metadata: by a watch while the ledger is open, and by what its reads find out.

Decides which of several metadata is the newest, and when nothing follows it any more. An open ledger is followed by
watch, never polled; CLOSED never changes its end.
"""

from __future__ import annotations

from embedbk.client.ledger_ids import no_such_ledger
from embedbk.client.runtime import FollowedKey, Runtime
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_changed_metadata, ledger_key_path
from embedbk.errors import MetadataUnavailable, StorageError

__all__ = ["FollowedMetadata"]


class FollowedMetadata:
    """The metadata of one ledger, for one reading handle."""

    __slots__ = ("followed", "latest", "revision")

    def __init__(self, metadata: LedgerMetadata, revision: int) -> None:
        self.latest = metadata  # As it was taken last, without a look at the watch.
        self.revision = revision
        self.followed: FollowedKey | None = None  # Its watch; None: nothing follows it.

    @property
    def has_newer(self) -> bool:
        """Whether the watch shows other metadata than was taken, or there is none. From any thread; changes nothing."""
        followed = self.followed
        return followed is None or followed.revision > self.revision

    def now(self) -> LedgerMetadata:
        """As the watch shows it; CLOSED never changes its end, so nothing follows it then.

        Raises NoSuchLedger once the ledger was deleted.
        """
        followed = self.followed
        if followed is not None and followed.state is not None:
            value, revision = followed.state
            if value is None and revision > self.revision:
                raise no_such_ledger(self.latest.ledger_id)
            if value is not None and revision > self.revision:
                self.latest = decode_changed_metadata(value, self.latest)
                self.revision = revision
            if self.latest.is_closed:
                self.stop_following()
        return self.latest

    def take_freed(self, found: LedgerMetadata) -> None:
        """A read found that its bookies gave their copies up (P8.14); a watch tells by itself."""
        if self.followed is None:
            self.latest = found

    def take_lost(self, found: LedgerMetadata) -> None:
        """A read ended by this metadata, which may say more of entries that were given up (P11.5)."""
        if len(found.lost) > len(self.latest.lost):
            self.latest = found  # It was read again, and says more.

    async def is_back(self, runtime: Runtime, known: LedgerMetadata) -> bool:
        """Whether files that cannot be read are not its copies any more (P8.14): bookies have them again, or others."""
        ledger_id = known.ledger_id
        try:
            value, revision = await runtime.get(ledger_key_path(ledger_id), f"reading ledger {ledger_id}")
            now = decode_changed_metadata(value, known) if value is not None else known
        except (MetadataUnavailable, StorageError):
            return False  # Nobody can tell: what the files said stands.
        self.latest, self.revision = now, revision
        return now.freed != known.freed

    def stop_following(self) -> None:
        followed, self.followed = self.followed, None
        if followed is not None:
            followed.end()
