"""The disk under each simulated bookie: a Python twin (twin_disk.py), or the production storage (native_disk.py).

It decides what survives a crash and which bytes are bad; the world decides what becomes durable, and when (`sync`).
Both kinds have the same interface, so that a run under one seed is the same protocol on either.

Faults of disks by number (TESTING.md, section 5), and who has them:

    D1 unsynced writes lost, any subset ... both (twin: a prefix of records; native: per sector)
    D2 torn write ......................... native (`tear`), twin: records of a group commit
    D3 unreadable ......................... both
    D4 to D7 rot, misdirected, lost, stale  native, at work and at rest (harm.py): refused, or what is bad is unreadable
    D8 sync fails once, then works ........ both
    D9 full ............................... both
    D10 short transfers ................... inside the I/O table, which carries them on
    D11 slow, stalled ..................... the world's: when it calls `sync`
    D12 file missing, cut, extended ....... native, at rest
    D13 wiped, swapped; an older copy ..... both (`lose`; `remember`, `doubt`)
    D14 D15 names not synced, old content . native, by what `MemoryDisk.crash(seed)` leaves
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Protocol

from embedbk.ids import START_ID_BYTES
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.limits import Limits
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.storage.kept_metadata import KeptMetadata, kept_in
from embedbk.storage.member_notes import Used
from embedbk.storage.memory_journal import MemoryJournal, MemoryRecord
from embedbk.storage.metadata_log import read_log
from embedbk.storage.raw_files import PictureDirectory
from embedbk.storage.snapshot_format import SNAPSHOT_DIRECTORY

__all__ = ["NO_START_ID", "BookieDisk", "MetadataCopy"]

NO_START_ID = bytes(START_ID_BYTES)


class BookieDisk(Protocol):
    """One bookie's device; `storage` is what is open on it, None while the process is down."""

    incarnation: bytes
    is_harmed: bool  # Its bytes were changed behind its back, so that it may refuse to start.
    # It holds less than it did, and the bookie was not informed (P7.9): it must find out, and be in limbo.
    is_less: bool

    @property
    def storage(self) -> DurableBookie | None: ...

    def start(self, start_id: bytes = ...) -> DurableBookie:
        """Open it as a starting process does, with the random number of this start. Raises StorageError: it is damaged,
        and the bookie must not serve."""
        ...

    def survived(self) -> int:
        """Token, as the process before counted them, up to which every record was read by the start. Some above it may
        have been read as well: what they brought is in `storage`."""
        ...

    def is_pending(self) -> bool:
        """Whether something was queued and is not durable."""
        ...

    def sync(self) -> int:
        """One group commit; the highest durable token."""
        ...

    def crash(self, chance: random.Random) -> None:
        """Power off: what is durable stays, of the rest chance decides as far as this disk knows parts."""
        ...

    def fail_sync(self, chance: random.Random) -> None:
        """D8: the next sync fails."""
        ...

    def damage(self, chance: random.Random) -> tuple[int, int] | None:
        """D3, D4: one stored entry is unreadable from now on; which, or None when there is none to hit."""
        ...

    def harm(self, kind: str, chance: random.Random, before: Any) -> str:
        """D4 to D7, D12, while it is down: which bytes changed, in words; empty where there are no such bytes.
        before: of `remember`."""
        ...

    def lie(self, kind: str, chance: random.Random) -> bool:
        """D4 to D6, while it works: a coming call is answered OK and does something else. Whether one was laid."""
        ...

    def remember(self) -> Any:
        """A copy of what is durable now."""
        ...

    def doubt(self, before: Any) -> None:
        """While it is down: its next start is declared as one that may have lost something. before: only that copy of
        `remember` is left (D13); None: what is there."""
        ...

    def restore(self, before: Any) -> None:
        """D13, while it is down: as `doubt(before)`, but the next start does not declare it."""
        ...

    def drop_newest(self) -> bool:
        """D12, while it is down: the file that a journal notes as used last is gone, with groups in it. False: there is
        none."""
        ...

    def copy(self) -> BookieDisk:
        """Another disk with all that is durable now on this one, its identity too."""
        ...

    def fill(self, is_full: bool) -> None:
        """D9: no room from now on, or room again."""
        ...

    def fail_flush(self) -> None:
        """D8: the next entry log cannot be written; work beside it continues."""
        ...

    def is_short(self) -> bool:
        """Whether something waits for room."""
        ...

    def failed_flushes(self) -> int:
        """The failed flushes of the process that runs, or ran last, so far."""
        ...

    def calm(self) -> None:
        """A fault that was laid and has not struck yet never will."""
        ...

    def lose(self, incarnation: bytes) -> None:
        """D13: everything is gone; what starts next is an empty disk of another incarnation. While it is down."""
        ...

    def close(self) -> None:
        """The world is over."""
        ...


@dataclass(frozen=True, slots=True)
class MetadataCopy:
    """A member's whole directory. limits: by which its commands were decided."""

    records: tuple[MemoryRecord, ...]
    used: Used | None
    snapshots: dict[str, bytes]  # Their files, by path.
    limits: Limits

    def catalog(self) -> Catalog:
        return self.kept().catalog

    def kept(self) -> KeptMetadata:
        """As an operator reads it who brings the metadata back."""
        journal = MemoryJournal(self.records)
        snapshots = PictureDirectory(SNAPSHOT_DIRECTORY, self.snapshots)
        return kept_in(read_log(journal, journal.first_token(), snapshots, self.limits), "a copy")
