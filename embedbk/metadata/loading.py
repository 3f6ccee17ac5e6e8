"""A catalog from the pieces of a snapshot, one piece at a time (METADATA.md, 2).

Decides whether the pieces are a snapshot: their order, their counts, and that keys ascend. Leaves to others where they
come from and when the next one is taken: a start takes all at once, a member with links takes one now and then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.metadata.catalog import DEFAULT_LIMITS, Catalog, Limits
from embedbk.metadata.cutting import (
    PIECE_VERSION,
    Head,
    Level,
    Lineages,
    Piece,
    Records,
    Sessions,
    Spared,
    StartsPiece,
    decode_piece,
)
from embedbk.metadata.descent import LINEAGES_MAX
from embedbk.metadata.levels import LEVEL_FIRST, LEVEL_OF_LINEAGES, too_new

__all__ = ["load", "load_in_slices"]


def load(pieces: Iterable[bytes], limits: Limits = DEFAULT_LIMITS) -> Catalog:
    """Load all pieces at once. Raises StorageError: the pieces are no snapshot."""
    slices = load_in_slices(pieces, limits)
    while True:
        try:
            next(slices)
        except StopIteration as whole:
            catalog: Catalog = whole.value
            return catalog


def load_in_slices(
    pieces: Iterable[bytes], limits: Limits = DEFAULT_LIMITS
) -> Generator[None, None, Catalog]:
    """Takes a piece at each step, and returns the catalog.

    Raises:
        StorageError: the pieces are no snapshot, or one of a version that this code does not know.
    """
    catalog, head = Catalog(limits), None
    left: list[int] = []  # How many of each kind are to come, in the order of _KINDS.
    for number, data in enumerate(pieces):
        piece: Piece = unpack(
            decode_piece, data, StorageError, f"piece {number} of a metadata snapshot holds none"
        )
        if isinstance(piece, Head):
            if number:
                raise StorageError(f"piece {number} of a metadata snapshot is another head")
            if piece.version != PIECE_VERSION:
                raise StorageError(
                    f"metadata snapshot has version {piece.version}; this embedbk knows 1 and {PIECE_VERSION}"
                )
            head, left = piece, [piece.sessions, piece.records, piece.starts, piece.spared]
            catalog.take_counters(piece.revision, piece.next_id, piece.sessions_started, piece.start_count)
        elif head is None:
            raise StorageError("a metadata snapshot begins without its head")
        elif isinstance(piece, Level):
            if number != 1 or piece.level <= LEVEL_FIRST:
                raise StorageError(f"piece {number} of a metadata snapshot says level {piece.level}")
            if piece.level > limits.level_known:
                raise StorageError(f"metadata snapshot: {too_new(piece.level, limits.level_known)}")
            catalog.level = piece.level
        elif isinstance(piece, Lineages):
            count = len(piece.lineages)
            if number != 2 or catalog.level < LEVEL_OF_LINEAGES or not 0 < count <= LINEAGES_MAX:
                raise StorageError(
                    f"piece {number} of a metadata snapshot of level {catalog.level} says {count} lineages"
                )
            catalog.descent.lineages, catalog.descent.stale = piece.lineages, piece.stale
        else:
            kind = _KINDS.index(type(piece))
            if any(left[:kind]):
                raise StorageError(f"piece {number} of a metadata snapshot comes before its time")
            left[kind] -= _take(catalog, piece)
            if left[kind] < 0:
                raise StorageError(f"piece {number} of a metadata snapshot holds more than its head says")
        yield
    if head is None or any(left):
        raise StorageError("a metadata snapshot ends before it is whole")
    catalog.record_table.repairs.loaded()
    if head.digest and head.digest != catalog.fast_digest:
        raise StorageError("a metadata snapshot holds other records than the catalog that it was cut from")
    return catalog


_KINDS = [Sessions, Records, StartsPiece, Spared]


def _take(catalog: Catalog, piece: Sessions | Records | StartsPiece | Spared) -> int:
    """Put a piece into the catalog; returns how many items it had."""
    match piece:
        case Sessions(sessions):
            catalog.session_table.load(sessions)
            return len(sessions)
        case Records(records):
            catalog.take_records(records)
            return len(records)
        case StartsPiece(starts):
            catalog.descent.starts += starts
            return len(starts)
        case Spared(spared):
            catalog.descent.spared += spared
            return len(spared)
