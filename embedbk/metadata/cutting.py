"""A snapshot of the catalog, cut in slices while commands go on (METADATA.md, 2).

Decides what a snapshot holds, in which pieces, and how it stays the state of one moment: the walk goes through the
sessions and then through the keys in order, and a record that a command changes before the walk has reached it is set
aside first, as it was. So a write costs one more look-up, and the records set aside are bounded by what is written
meanwhile. Leaves to others: when a cut begins, when the next slice is taken (host/snapshotting.py), and where the
pieces go.

A slice is counted in keys and bytes, never by a clock: the same commands between the same slices give the same pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import merge
from operator import itemgetter
from typing import Protocol

import msgspec

from embedbk.codec.metadata_messages import Lineage, Record, Reign, Result
from embedbk.errors import ensure
from embedbk.metadata.digesting import record_digest
from embedbk.metadata.levels import LEVEL_FIRST
from embedbk.metadata.limits import KEPT_BYTES, kept_bytes, record_bytes, text_bytes
from embedbk.metadata.packed_records import PackedRecords
from embedbk.metadata.sorted_keys import SortedKeys

__all__ = [
    "PIECE_BYTES_MAX",
    "PIECE_VERSION",
    "CatalogCut",
    "Head",
    "Level",
    "Lineages",
    "Piece",
    "Records",
    "SessionImage",
    "Sessions",
    "Spared",
    "StartsPiece",
    "decode_piece",
]

PIECE_VERSION = 2  # A snapshot of version 1 is one array (catalog.py).
PIECE_BYTES_MAX = 1 << 20
SLICE_RECORDS = 1000  # Encoded in one slice: about a millisecond.
SLICE_BYTES = 256 << 10  # Bytes of records or sessions in one slice; the last one may exceed it.
SLICE_KEYS = (
    16_384  # Keys looked at in one slice: more than the commands of one turn can put in front of the walk.
)


class SessionImage(msgspec.Struct, frozen=True, array_like=True):
    session: int
    ttl_ms: int
    label: str
    done_below: int
    kept: list[tuple[int, Result]]
    secret: bytes = b""


class Head(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Always the first piece: the counters, and how many of each are to come. digest: that of the catalog that was
    cut (digesting.py); empty: the build had none."""

    version: int
    revision: int
    next_id: int
    sessions_started: int
    start_count: int
    sessions: int
    records: int
    starts: int
    spared: int
    digest: bytes = b""


class Level(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Right behind the head, where the level was raised: a build from before refuses the snapshot by this tag."""

    level: int


class Lineages(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """Right behind the level, all at once, if there are any; with the ids whose keys the last one made stale."""

    lineages: list[Lineage]
    stale: list[tuple[int, int]] = []


class Sessions(msgspec.Struct, frozen=True, array_like=True, tag=2):
    sessions: list[SessionImage]


class Records(msgspec.Struct, frozen=True, array_like=True, tag=3):
    records: list[Record]


class StartsPiece(msgspec.Struct, frozen=True, array_like=True, tag=4):
    starts: list[Reign]


class Spared(msgspec.Struct, frozen=True, array_like=True, tag=5):
    spared: list[tuple[int, int]]


Piece = Head | Level | Lineages | Sessions | Records | StartsPiece | Spared

_encode = msgspec.msgpack.Encoder().encode
decode_piece: msgspec.msgpack.Decoder[Piece] = msgspec.msgpack.Decoder(Piece)


class SessionState(Protocol):
    """A session in a snapshot; its keys follow from the records."""

    session: int
    ttl_ms: int
    label: str
    done_below: int
    kept: dict[int, Result]
    secret: bytes


def image_of(session: SessionState) -> SessionImage:
    """The session as it is now."""
    kept = list(session.kept.items())
    return SessionImage(
        session.session, session.ttl_ms, session.label, session.done_below, kept, session.secret
    )


class CatalogCut:
    """The state at the moment when this was made, piece by piece.

    The catalog calls `keep_record` or `keep_session` before each change. head, starts and spared are copies; sessions
    and records are the catalog's own.
    """

    def __init__(
        self,
        head: Head,
        sessions: Mapping[int, SessionState],
        records: PackedRecords,
        starts: list[Reign],
        spared: list[tuple[int, int]],
        records_sum: int,
        level: int = LEVEL_FIRST,
        lineages: Lineages | None = None,
    ) -> None:
        """records_sum: the sum of the records' digests, as the catalog keeps it. level: the cluster's. lineages:
        copies; None: there are none."""
        self._level, self._lineages = level, lineages
        self.head = head
        self._sum_left = records_sum  # The sum without the records that were cut.
        self._head: Head | None = head
        self._sessions = sessions
        self._records = records
        # By number, in the catalog's order: sessions that the walk has not reached; a value: as it was before a change.
        self._images: dict[int, SessionImage | None] = dict.fromkeys(sessions)
        self._order = deque(sessions)
        self._after = ""  # Keys up to this one were reached.
        self._left = head.records  # How many of the records at the cut are left.
        self._set_aside: dict[
            str, Record | None
        ] = {}  # Records, as they were, of keys that the walk has not reached; None: there was none.
        self._set_aside_keys = SortedKeys()  # The keys in it that existed: they may be deleted by now.
        self._starts, self._spared = deque(starts), deque(spared)

    @property
    def is_true(self) -> bool:
        """Whether, once all is cut, every record was as it had been put. If not, one has changed in memory (I72)."""
        return self._sum_left == 0

    @property
    def set_aside_count(self) -> int:
        return len(self._set_aside)

    def keep_record(self, key: str, before: Record | None) -> None:
        """This key is about to change; before: its record, None where there is none."""
        if self._left and key > self._after and key not in self._set_aside:
            self._set_aside[key] = before
            if before is not None:
                self._set_aside_keys.add(key)

    def keep_session(self, session: SessionState) -> None:
        """This session is about to change, or to end."""
        if session.session in self._images and self._images[session.session] is None:
            self._images[session.session] = image_of(session)

    def next_piece(self) -> bytes | None:
        """One slice of the walk, as bytes; None: the snapshot is whole."""
        for take in (
            self._take_head,
            self._take_level,
            self._take_lineages,
            self._take_sessions,
            self._take_records,
            self._take_starts,
            self._take_spared,
        ):
            piece = take()
            if piece is not None:
                data = _encode(piece)
                ensure(len(data) <= PIECE_BYTES_MAX, f"a piece of {len(data)} bytes")
                return data
        return None

    def _take_head(self) -> Head | None:
        head, self._head = self._head, None
        return head

    def _take_level(self) -> Level | None:
        level, self._level = self._level, LEVEL_FIRST
        return Level(level) if level > LEVEL_FIRST else None

    def _take_lineages(self) -> Lineages | None:
        lineages, self._lineages = self._lineages, None
        return lineages

    def _take_sessions(self) -> Sessions | None:
        images: list[SessionImage] = []
        size = 0
        while self._order and size < SLICE_BYTES:
            number = self._order.popleft()
            image = self._images.pop(number) or image_of(self._sessions[number])
            images.append(image)
            kept = sum(kept_bytes(result) for _, result in image.kept)
            size += kept + text_bytes(image.label) + KEPT_BYTES
        return Sessions(images) if images else None

    def _take_records(self) -> Records | None:
        if not self._left:
            return None
        taken: list[Record] = []
        reached: list[str] = []
        looked = size = 0
        for key, record in self._ahead():
            self._after = key
            if key in self._set_aside:
                record = self._set_aside.pop(key)
                if record is not None:
                    reached.append(key)
            if record is not None:
                taken.append(record)
                size += record_bytes(record)
            looked += 1
            is_whole = len(taken) == self._left
            if is_whole or len(taken) == SLICE_RECORDS or size >= SLICE_BYTES or looked == SLICE_KEYS:
                break
        ensure(looked > 0, "records of a snapshot are missing")
        self._left -= len(taken)
        self._sum_left -= sum(map(record_digest, taken))
        for key in reached:
            self._set_aside_keys.remove(key)
        if not self._left:
            self._set_aside, self._set_aside_keys = (
                {},
                SortedKeys(),
            )  # Sessions that were opened since come behind them.
        return Records(taken)

    def _ahead(self) -> Iterator[tuple[str, Record | None]]:
        """The keys that the walk has not reached, each once, in order: those there now, and those there when it
        began."""
        there = ((record.key, record) for record in self._records.begin("", self._after))
        if not self._set_aside:
            yield from there
            return
        last, gone = "", ((key, None) for key in self._set_aside_keys.begin("", self._after))
        for key, record in merge(there, gone, key=itemgetter(0)):
            if key != last:
                last = key
                yield key, record

    def _take_starts(self) -> StartsPiece | None:
        starts = [self._starts.popleft() for _ in range(min(SLICE_RECORDS, len(self._starts)))]
        return StartsPiece(starts) if starts else None

    def _take_spared(self) -> Spared | None:
        spared = [self._spared.popleft() for _ in range(min(SLICE_RECORDS, len(self._spared)))]
        return Spared(spared) if spared else None
