"""What the host of a metadata member is built from: its durable side, and the snapshots of it (RAFT.md, section 8).

`storage.metadata_store` and `storage.snapshots` are what ships. All calls from the host's thread.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from embedbk.codec.metadata_messages import Lineage
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.quorum import Configuration
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_vocabulary import Boot, Doubt, Persist

__all__ = [
    "Beginning",
    "FetchedSnapshot",
    "KeptSnapshot",
    "MemberStore",
    "SnapshotHead",
    "SnapshotStore",
    "StoredIdentity",
]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The state that a member starts with. catalog: as of log.snapshot_index, nothing behind it is applied."""

    catalog: Catalog
    log: RaftLog
    term: int
    vote: Boot | None
    doubt: Doubt | None


class StoredIdentity(Protocol):
    """The identity of a member, as its log says."""

    @property
    def name(self) -> str: ...

    @property
    def incarnation(self) -> bytes: ...

    @property
    def cluster_token(self) -> bytes: ...


class SnapshotHead(Protocol):
    """What a snapshot stands for, and the file that it is."""

    @property
    def index(self) -> int: ...

    @property
    def term(self) -> int: ...

    @property
    def incarnation(self) -> bytes:
        """The incarnation of the member that cut it."""
        ...

    @property
    def config(self) -> bytes:
        """The quorum's configuration, encoded; empty in a quorum of one."""
        ...

    @property
    def file_bytes(self) -> int: ...

    @property
    def digest(self) -> bytes: ...


class KeptSnapshot(Protocol):
    """A snapshot that the log names."""

    @property
    def name(self) -> str: ...

    @property
    def index(self) -> int: ...

    @property
    def term(self) -> int: ...

    @property
    def file_bytes(self) -> int: ...

    @property
    def digest(self) -> bytes: ...


class FetchedSnapshot(Protocol):
    """A snapshot of another member on its way here. A thread may write it: what it sets is looked at behind `wake`."""

    @property
    def name(self) -> str: ...

    @property
    def offset(self) -> int:
        """How many bytes were added so far."""
        ...

    @property
    def header(self) -> SnapshotHead | None:
        """The header of what was here already; None: nothing was."""
        ...

    @property
    def whole(self) -> SnapshotHead | None:
        """The snapshot, once everything is here, right and durable; None: not yet."""
        ...

    @property
    def damage(self) -> str:
        """Why what is here can never be right, so that it was removed; empty: no damage is known."""
        ...

    @property
    def failure(self) -> OSError | None:
        """What the disk refused, so that what was here was removed; empty: nothing."""
        ...

    def has_room(self) -> bool:
        """Whether the next piece may be added now."""
        ...

    def add(self, piece: bytes) -> None: ...

    def finish(self) -> None:
        """All pieces were added: `whole`, `damage` or `failure` follows."""
        ...

    def stop(self, *, keep: bool = True) -> None:
        """Nothing more is written. keep: what is here stays for the next attempt."""
        ...


class SnapshotStore(Protocol):
    """The snapshots of one member."""

    @property
    def kept(self) -> Sequence[KeptSnapshot]:
        """The kept snapshots, the oldest first."""
        ...

    @property
    def is_under_way(self) -> bool:
        """Whether a snapshot is being written."""
        ...

    @property
    def newest_index(self) -> int:
        """The highest index that a snapshot stands for, or will: nothing up to it is ever taken back."""
        ...

    def has_room(self) -> bool:
        """Whether the next piece of what is under way may be added now."""
        ...

    def add(self, piece: bytes) -> None: ...

    def end(self) -> None:
        """Called after the last piece was added."""
        ...

    def failure(self) -> str:
        """Why what is under way cannot be written; empty: no failure is known."""
        ...

    def pin(self, name: str) -> None:
        """Keep it until it is unpinned as often. Raises UsageError: no such snapshot is kept."""
        ...

    def unpin(self, name: str) -> None: ...

    def read_kept(self, index: int, term: int, offset: int, size: int) -> bytes:
        """Bytes of the file of a kept snapshot; fewer at its end. Raises OSError or UsageError: it cannot be read."""
        ...

    def fetch(self, index: int, term: int) -> FetchedSnapshot:
        """Begin, or go on with, the one snapshot that is fetched. Raises OSError or UsageError."""
        ...

    def newest_fetched(self) -> int | None:
        """The index of what was fetched, whole or in part; None: nothing was, or it cannot be read."""
        ...

    def remove_fetched(self) -> None:
        """Remove what was fetched and not installed."""
        ...


class MemberStore(Protocol):
    """Log and snapshots of one member. Opening has read what is durable."""

    @property
    def identity(self) -> StoredIdentity: ...

    @property
    def boot(self) -> Boot:
        """This process of the member."""
        ...

    @property
    def beginning(self) -> Beginning:
        """The state that it starts with; the caller owns it."""
        ...

    @property
    def begins_generation(self) -> bool: ...

    @property
    def gives_up(self) -> tuple[Lineage, ...]:
        """The lineages that its owner named as lost."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether its owner declared that nothing was lost."""
        ...

    @property
    def level(self) -> int:
        """The cluster's level, behind the whole log."""
        ...

    @property
    def index(self) -> int:
        """The index of the last entry in the log; the first has 1."""
        ...

    @property
    def snapshots(self) -> SnapshotStore | None:
        """Its snapshots; None: it keeps none."""
        ...

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the newest snapshot; 0: there is none."""
        ...

    def persist(self, record: Persist, *, kick: bool = True) -> None:
        """Queue what one step changed; `durable` returns its sequence later. Raises StorageError: the member cannot go
        on (P7.6)."""
        ...

    def kick(self) -> None:
        """Wake the thread that writes, for what was queued without that."""
        ...

    def durable(self) -> int:
        """The sequence of the last record of `persist` that is on the device, and all before it. Never falls."""
        ...

    def why_waiting(self) -> str:
        """Why records of `persist` are not durable yet, for people; empty: all are."""
        ...

    def saved(self) -> tuple[int, int] | None:
        """A snapshot that came to count since the last call: the index that it stands for, and that of the first entry
        which the log keeps."""
        ...

    def end_doubt(self) -> None:
        """End the doubt: the lost entries are here again, durably."""
        ...

    def failed(self) -> str | None:
        """Why the log stopped for good, or None (P7.6)."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors that become readable when `durable` has something to return."""
        ...

    def is_snapshot_due(self) -> bool: ...

    def begin_snapshot(
        self,
        index: int,
        term: int,
        configuration: Configuration,
        configuration_index: int,
        revision: int,
        record_count: int,
        session_count: int,
    ) -> SnapshotStore:
        """Begin a snapshot of the catalog as it is behind entry `index` of this term, where this configuration held."""
        ...

    def abandon_snapshot(self) -> None:
        """Give up the snapshot under way, which cannot be written: the next is as due as it was."""
        ...

    def install(self, index: int, term: int, *, keeps_entries: bool) -> None:
        """Put a fetched snapshot in the place of everything up to index. Raises StorageError."""
        ...

    def load(self, index: int, term: int) -> Generator[None, None, Catalog]:
        """The catalog of a snapshot that is here, a piece at each step. Raises StorageError: it is not whole."""
        ...

    def close(self) -> None: ...
