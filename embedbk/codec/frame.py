"""A frame: a run of entries of one ledger that travels and is journaled as one piece (WIRE.md section 2; P3.1, P3.7).

A frame only carries; every rule holds entry by entry. Its header has its own CRC32C and is not stored; the body, the
entries verbatim, is. Unstriped, one frame serves every member; striped, `cut` takes each member's entries out of it,
whose ids then ascend with gaps.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from embedbk.codec import kernels
from embedbk.codec.entry import ENTRY_HEADER, ENTRY_LENGTH_MAX, ENTRY_OVERHEAD_BYTES, Entry, read_entry
from embedbk.config import FRAME_BYTES_MAX
from embedbk.errors import PeerError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "FRAME_HEADER_BYTES",
    "FRAME_MAGIC",
    "FRAME_VERSION",
    "LEDGER_KEY_BYTES",
    "Frame",
    "FrameHeader",
    "cut",
    "decode_frame_header",
    "encode_frame_header",
    "frame_of",
    "is_same",
    "iter_entries",
    "merge",
    "parts",
    "split",
]

FRAME_MAGIC = b"EBKF"
FRAME_VERSION = 1
FRAME_HEADER_BYTES = 80
LEDGER_KEY_BYTES = 16
FLAG_LAC = 1  # The header carries a LAC and the length up to it; never set on a recovery add (I12).
FLAG_GAPS = 2  # Entry ids ascend with gaps: one member's part of a striped frame.
# An entry that travels has at most this id, half of the range: no answer and no metadata can name a higher one.
_HIGHEST_ENTRY = LEDGER_ID_MAX // 2

# magic, version, flags, header_size, entry_count, body_size, ledger_id, first, last, lac, lac_length, key, reserved
_HEADER = struct.Struct("<4sBBHIIQqqqQ16sI")
_CRC = struct.Struct("<I")

assert _HEADER.size + _CRC.size == FRAME_HEADER_BYTES


@dataclass(slots=True)
class Frame:
    """Entries first..last of one ledger, verbatim in body. Not changed after it is made.

    body is borrowed from where the frame was made (packer block, received message, read block) and keeps that alive.
    """

    ledger_id: int
    first_entry: int
    last_entry: int
    entry_count: int
    length: int  # Payload bytes of the ledger up to and including last_entry.
    body: memoryview

    def __deepcopy__(self, memo: object) -> Frame:
        return self  # Never changed, so copies of a core's state may share it.

    @property
    def has_gaps(self) -> bool:
        return self.entry_count != self.last_entry - self.first_entry + 1


@dataclass(slots=True)
class FrameHeader:
    """The fields of a frame's header; checked by its own CRC32C, not stored."""

    ledger_id: int
    first_entry: int
    last_entry: int
    entry_count: int
    body_size: int
    lac: int
    lac_length: int
    has_lac: bool
    ledger_key: bytes


def encode_frame_header(
    frame: Frame, ledger_key: bytes, lac: int | None = None, lac_length: int = 0
) -> bytes:
    """The 80 bytes before the body. lac None: the frame carries no LAC (recovery adds, answers to reads)."""
    assert len(ledger_key) == LEDGER_KEY_BYTES
    flags = (FLAG_LAC if lac is not None else 0) | (FLAG_GAPS if frame.has_gaps else 0)
    head = _HEADER.pack(
        FRAME_MAGIC, FRAME_VERSION, flags, FRAME_HEADER_BYTES, frame.entry_count, len(frame.body), frame.ledger_id,
        frame.first_entry, frame.last_entry, NO_ENTRY if lac is None else lac, lac_length, ledger_key, 0,
    )  # fmt: skip
    return head + _CRC.pack(kernels.crc32c(head))


def decode_frame_header(block: memoryview, offset: int = 0) -> FrameHeader:
    """The frame header at offset, checked; its body is not looked at here.

    Raises:
        PeerError: cut short, foreign, unknown version or flags, wrong digest or impossible numbers.
    """
    if len(block) - offset < FRAME_HEADER_BYTES:
        raise PeerError(f"frame header at offset {offset} is cut short: {len(block) - offset} bytes are left")
    (
        magic,
        version,
        flags,
        header_size,
        entry_count,
        body_size,
        ledger_id,
        first,
        last,
        lac,
        lac_length,
        key,
        zero,
    ) = _HEADER.unpack_from(block, offset)
    if magic != FRAME_MAGIC or version != FRAME_VERSION or header_size != FRAME_HEADER_BYTES:
        raise PeerError(
            f"no frame of version {FRAME_VERSION} at offset {offset}: {magic!r} version {version}"
        )
    (stored,) = _CRC.unpack_from(block, offset + _HEADER.size)
    if kernels.crc32c(block[offset : offset + _HEADER.size]) != stored:
        raise PeerError(f"frame header at offset {offset} fails its digest")
    if flags & ~(FLAG_LAC | FLAG_GAPS) or zero:
        raise PeerError(f"frame header at offset {offset} has unknown flags {flags:#x}")
    dense = last - first + 1
    if (
        ledger_id > LEDGER_ID_MAX
        or first < 0
        or not first <= last <= _HIGHEST_ENTRY
        or not 0 < entry_count <= dense
        or body_size > FRAME_BYTES_MAX
    ):
        raise PeerError(
            f"frame at offset {offset} has impossible numbers: entries {first}..{last}, count {entry_count}"
        )
    if (entry_count != dense) != bool(flags & FLAG_GAPS):
        raise PeerError(f"frame at offset {offset}: its count {entry_count} and its gap flag disagree")
    has_lac = bool(flags & FLAG_LAC)
    # A frame is sent while none of it is done, so its LAC is below it (P3.3).
    is_possible = NO_ENTRY <= lac < first and lac_length <= ENTRY_LENGTH_MAX
    if not is_possible or (not has_lac and (lac != NO_ENTRY or lac_length)):
        raise PeerError(f"frame at offset {offset} has an impossible LAC {lac}, {lac_length} bytes up to it")
    return FrameHeader(ledger_id, first, last, entry_count, body_size, lac, lac_length, has_lac, key)


def frame_of(body: memoryview, ledger_id: int | None = None) -> Frame:
    """The frame whose body this is, every entry in it checked (digest, ledger, ascending ids).

    Raises:
        PeerError: an entry is wrong, ids do not ascend, or another ledger's entry stands among them.
    """
    first, last, count, length, found = kernels.scan(body)
    if ledger_id is not None and found != ledger_id:
        raise PeerError(f"frame of ledger {found} where ledger {ledger_id} was expected")
    return Frame(found, first, last, count, length, body)


def is_same(left: memoryview, right: memoryview) -> bool:
    """Whether two runs of bytes are equal. Python compares views item by item, some thirty times slower than copies."""
    return len(left) == len(right) and bytes(left) == bytes(right)


def split(frame: Frame) -> Iterator[tuple[int, memoryview]]:
    """(entry id, the whole entry verbatim) one by one, of a frame that was checked before."""
    offset = 0
    while offset < len(frame.body):
        *_, payload_size, _, entry_id, _, _, _ = ENTRY_HEADER.unpack_from(frame.body, offset)
        end = offset + ENTRY_OVERHEAD_BYTES + payload_size
        yield entry_id, frame.body[offset:end]
        offset = end


def parts(frame: Frame, first: int, bytes_max: int) -> Iterator[Frame]:
    """The entries of a checked frame without gaps, from `first` on, in frames of at most bytes_max or of one entry."""
    assert frame.first_entry <= first <= frame.last_entry and not frame.has_gaps
    spans = kernels.offsets(frame.body).spans
    ends = [0, *(begin + size + _CRC.size for begin, size in zip(spans[::2], spans[1::2], strict=True))]
    place = first - frame.first_entry
    while place < frame.entry_count:
        until = max(place + 1, bisect_right(ends, ends[place] + bytes_max) - 1)
        yield frame_of(frame.body[ends[place] : ends[until]], frame.ledger_id)
        place = until


def iter_entries(frame: Frame) -> Iterator[Entry]:
    """The entries of a frame one by one, each checked; for people and tests, not for the hot path."""
    offset = 0
    while offset < len(frame.body):
        entry = read_entry(frame.body, offset)
        yield entry
        offset += entry.size


def merge(frames: Sequence[Frame], first: int, last: int) -> Frame | None:
    """The entries first, first + 1 ... last as far as they follow without a gap, out of checked frames of one ledger;
    None when `first` is in none of them."""
    merged = kernels.merge([frame.body for frame in frames], first, last)
    if merged is None:
        return None
    last = first + merged.entry_count - 1
    return Frame(frames[0].ledger_id, first, last, merged.entry_count, merged.length, merged.body)


def cut(frame: Frame, ensemble_size: int, write_quorum: int, seat: int) -> Frame | None:
    """The entries of frame that the seat holds, as a frame with gaps; None when it holds none (striping, P3.7)."""
    body = kernels.cut(frame.body, ensemble_size, write_quorum, seat)
    return frame_of(memoryview(body), frame.ledger_id) if body else None
