"""Entries by ledger and id, and what is said of those that were asked for."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, field

from embedbk.codec.frame import Frame
from embedbk.errors import StorageError

__all__ = [
    "DeviceFull",
    "EntriesFound",
    "EntriesHeld",
    "EntryStore",
    "EntrySums",
    "MemoryRefused",
]


class EntriesFound(Struct):
    """A verdict per id: in frame = held; in absent (first, last ranges, both included) = proven not held;
    neither = unreadable, or beyond what fitted."""

    frame: Frame | None
    absent: list[tuple[int, int]] = field(default_factory=list)


class EntriesHeld(Struct):
    """How many of the entries that were asked for are held; and ranges (first, last), both included, of whose asked ids
    none is: the first ones, as far as they were listed. Nothing of it proves that an entry never was here (P7.1).
    digests: where they were asked for, part by part one for each residue, ascending; None: they are not known just
    now."""

    count: int
    lacking: list[tuple[int, int]] = field(default_factory=list)
    digests: list[int | None] = field(default_factory=list)


class EntrySums(Struct):
    """The digests of entries that are held (codec/entry_digest.py), one sum for each residue, ascending; None: too
    much would have to be read, or something of it is bad. bad: the first ids whose bytes were read and are not what the
    index says. bytes_read: what it cost."""

    digests: list[int] | None
    bad: list[int] = field(default_factory=list)
    bytes_read: int = 0


class MemoryRefused(StorageError):
    """The system gave no memory or no descriptor for this call, which changed nothing and may be made again."""


class DeviceFull(StorageError):
    """A flush found no room on the device, or its process had nothing to write with: no descriptor, thread or memory.
    It is made again, and puts wait meanwhile (I53)."""


class EntryStore(Protocol):
    """Entries by (ledger, entry): the write cache and the entry logs with their index, as one."""

    def put(self, frame: Frame) -> memoryview:
        """Take the (checked) frame's entries into the write cache; a stored entry of the same id is replaced.
        Returns the copy of frame.body, unchanged and alive until its entries are in an entry log."""
        ...

    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        bytes_max: int,
        modulus: int = 1,
        residues: int = 1,
        *,
        from_memory: bool = False,
    ) -> EntriesFound:
        """Entries of first..last with id % modulus in residues, ascending, digests checked, as one frame of at
        most bytes_max (the first entry always fits). from_memory: what the last flush wrote may be answered from
        the write cache while it still stands there; that says nothing about the copy in the entry log."""
        ...

    def held(self, ledger_id: int, first: int, last: int, modulus: int = 1, residues: int = 1) -> EntriesHeld:
        """Which of first..last with id % modulus in residues it holds, as far as the index knows: no entry is read."""
        ...

    def sums(
        self,
        ledger_id: int,
        first: int,
        last: int,
        modulus: int,
        residues: int,
        bytes_max: int,
        *,
        by_bytes: bool = False,
    ) -> EntrySums:
        """The digests of what is held of these. At most bytes_max are read where neither index nor write cache knows
        them, but one entry always; by_bytes: all of it is read and checked."""
        ...

    def cached_bytes(self) -> int:
        """Bytes in the write cache that no entry log holds yet."""
        ...

    def close(self) -> None: ...
