"""One commit of a log's consumer (P8.8): its cursor advances, if no client has moved it and the consumer has the lease.

Decides what a refused or unknown change means. The transaction compares the lease, which a session holds under an
epoch, so that a consumer that lost its lease commits nothing, whatever it believes; and the cursor as it was last seen,
so that a cursor moved by hand is obeyed, and never overwritten.

    COMMIT -> ended, done
       '-- refused or unknown -> CURSOR -> ours stands there: done; set by hand: moved; else the LEASE: lost, or again
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.log_cursors import CursorRecord, cursor_path, decode_cursor, encode_cursor
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.core.machine import Effect, Handlers
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.retrying import Retrying
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import CursorLost, MetadataUnavailable, NoSuchCursor, StorageError

__all__ = ["CommitDone", "CursorCommit"]


class CommitDone(NamedTuple):
    """Where the cursor stands now, and whether that is where its consumer put it."""

    offset: int
    revision: int
    is_ours: bool


class CursorCommit(Retrying):
    """Ends with CommitDone, or with an error: CursorLost, NoSuchCursor, MetadataUnavailable, StorageError."""

    def __init__(
        self, log: str, name: str, lease_key: str, epoch: int, revision: int, offset: int, wall_ms: int
    ) -> None:
        """lease_key: the key of the consumer's lease; epoch: of this consumer. revision: of the cursor as it was last
        seen. offset: everything before it was consumed."""
        super().__init__()
        self.log = log
        self.name = name
        self.lease_key = lease_key
        self.epoch = epoch
        self.revision = revision
        self.record = CursorRecord(METADATA_VERSION, offset, epoch, wall_ms)
        self.is_unknown = False  # An earlier commit may still take effect.

    def _on_started(self, event: Started) -> list[Effect]:
        return self._commit()

    def _again(self) -> list[Effect]:
        return self._commit()

    def _commit(self) -> list[Effect]:
        path = cursor_path(self.log, self.name)
        when = [Compare(path, self.revision), Compare(self.lease_key, self.epoch)]
        return [Transact("commit", when, [Put(path, encode_cursor(self.record))])]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if event.is_done:
            return self._done(event.revision)
        # Both compared the same revision: an earlier commit landed, which is seen now, or never will.
        self.is_unknown = False
        return self._look()

    def _done(self, revision: int) -> list[Effect]:
        return [Ended(None, CommitDone(self.record.offset, revision, is_ours=True))]

    def _look(self) -> list[Effect]:
        return [ReadKey("cursor", cursor_path(self.log, self.name))]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        if event.tag == "lease":
            return self._on_lease(event)
        if event.value is None:
            return [Ended(NoSuchCursor(f"cursor {self.name!r} of log {self.log!r} was deleted"))]
        if event.value == encode_cursor(self.record):
            # Our own commit, whose outcome was lost; no other consumer has our epoch.
            return self._done(event.revision)
        try:
            record = decode_cursor(event.value, self.log, self.name)
        except StorageError as unread:
            return [Ended(unread)]
        if event.revision != self.revision and record.epoch == 0:
            return [Ended(None, CommitDone(record.offset, event.revision, is_ours=False))]
        if event.revision != self.revision and record.epoch == self.epoch:
            self.revision = event.revision  # An earlier commit of ours, whose outcome was lost.
            return self._commit()
        return [ReadKey("lease", self.lease_key)]

    def _on_lease(self, event: KeyRead) -> list[Effect]:
        if event.value is None or event.revision != self.epoch:
            return [
                Ended(
                    CursorLost(
                        f"cursor {self.name!r} of log {self.log!r}: the lease of epoch {self.epoch} is over; nothing "
                        "was committed",
                        definite=not self.is_unknown,
                    )
                )
            ]
        return self._pause(event)

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        return [
            Ended(
                MetadataUnavailable(
                    f"cursor {self.name!r} of log {self.log!r} cannot be moved: {event.reason}",
                    definite=not self.is_unknown,
                )
            )
        ]

    def _on_unknown(self, event: TransactUnknown) -> list[Effect]:
        """The outcome is unknown: the key as it stands settles it, or another commit from the same revision (P2.2)."""
        self.is_unknown = True
        return self._look()

    HANDLERS: ClassVar[Handlers] = {
        **Retrying.HANDLERS,
        Started: _on_started,
        KeyRead: _on_key_read,
        Transacted: _on_transacted,
        TransactRefused: _on_refused,
        TransactUnknown: _on_unknown,
        MetadataFailed: Retrying._pause,
    }
