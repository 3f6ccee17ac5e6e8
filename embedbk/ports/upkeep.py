"""What a bookie's storage reads through beside its work, piece by piece: to find what has rotted, and to make an index
anew that was lost."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

__all__ = ["RebuildLeft", "RebuildPiece", "ScrubDamage", "ScrubPiece"]


class ScrubDamage(Struct, frozen=True):
    """Something that was stored and is not there any more as it was (I55)."""

    path: str
    offset: int
    what: str
    ledger_id: int | None = None
    first_entry: int | None = None  # With last_entry: which entries, both included.
    last_entry: int | None = None


class ScrubPiece(Struct, frozen=True):
    """What was read of everything that is stored, since the piece before."""

    bytes_read: int
    damages: tuple[ScrubDamage, ...] = ()
    is_pass_end: bool = False  # Everything was read once; the next piece begins anew.


class RebuildLeft(NamedTuple):
    """What is left to be looked through of entry logs of which no index is whole: so many of them, so many bytes."""

    logs: int
    bytes_left: int


class RebuildPiece(Struct, frozen=True):
    """What became of the piece that was begun. has_more: a part of what was found is taken in, and the rest of this
    says nothing yet. is_log_over: all of its log was looked through; is_whole: and nothing is hidden in it."""

    bytes_read: int
    has_more: bool = False
    is_log_over: bool = False
    is_whole: bool = False
