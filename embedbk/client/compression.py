"""Entries that are stored compressed, by zstd: made where an entry is appended, unpacked where it is read (WIRE.md
section 1, ZSTD).

Decides which library does it, which entries are stored compressed, and which claims of a compressed entry are believed
before it is unpacked. Nothing between writer and reader unpacks it: bookies and repair store, check, copy and count the
bytes that the writer made. The unit is the entry: what is appended as one (a payload, an atomic batch) is compressed as
one, and needs no other entry to be read (P3.1).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from embedbk.client.batches import Located
from embedbk.codec import kernels
from embedbk.codec.arrow_rows import Rows
from embedbk.codec.attributes import (
    AttributeKind,
    ZstdClaim,
    claim_of,
    encode_claim,
    kinds_in,
    parted,
    without,
)
from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES
from embedbk.codec.entry_records import RecordRun
from embedbk.codec.frame import Frame, split
from embedbk.codec.log_settings import Compression
from embedbk.codec.packer import Packer, ToldPacker
from embedbk.codec.packer_twin import TwinPacker
from embedbk.codec.packing import Buffer
from embedbk.config import ENTRY_BYTES_MAX, FRAME_BYTES_MAX
from embedbk.errors import EntryUnreadable, PeerError, UsageError
from embedbk.metadata.levels import LEVEL_OF_COMPRESSION

if TYPE_CHECKING:
    from embedbk.client.runtime import Runtime

__all__ = [
    "SqueezingPacker",
    "ZstdPacker",
    "ZstdToldPacker",
    "ZstdTwinPacker",
    "check_compression",
    "compression_of",
    "is_installed",
    "plain",
    "squeezed",
    "squeezed_run",
    "unpacked",
]

_SQUEEZED_BYTES_MIN = (
    128  # Smaller entries are not worth the time: the attribute and the frame around it are some 20 bytes.
)
_MAGIC = b"\x28\xb5\x2f\xfd"  # The first bytes of a zstd frame that has content.
_WINDOW_LOG_MAX = (
    20  # A frame of an entry looks back over no more than an entry, so no more memory is given to it.
)
_CRC_BYTES = ENTRY_OVERHEAD_BYTES - ENTRY_HEADER.size
_ATTRIBUTES_BYTES_MAX = 0xFFFF  # Their size is a u16 of the header.
_INSIDE = (AttributeKind.PARTS, AttributeKind.RECORDS)  # Attributes that are compressed with the payload.
_OF_STORED = (AttributeKind.XXH3, AttributeKind.HMAC, AttributeKind.ZSTD)  # They are about the stored form.
_INSTALL = "pip install 'embedbk[zstd]'"
_of_thread = threading.local()


# --- The library -------------------------------------------------------------------------------------------


def _library() -> Any:
    """Raises ImportError."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def is_installed() -> bool:
    try:
        _library()
    except ImportError:
        return False
    return True


def _check_library() -> None:
    """Raises UsageError if nothing can be compressed here."""
    try:
        _library()
    except ImportError as missing:
        raise UsageError(
            f"compression='zstd': what compresses is not installed: {missing}; nothing was changed",
            hint=_INSTALL,
        ) from missing


def compression_of(runtime: Runtime, given: str | None) -> Compression | None:
    """What a writer's argument means. Raises UsageError: no such compression, or it cannot be used here, or not yet."""
    if given is None:
        return None
    names = {kind.name.lower(): kind for kind in Compression}
    if not isinstance(given, str) or given not in names:
        raise UsageError(
            f"compression={given!r}: allowed are {', '.join(map(repr, names))}, or None for none"
        )
    check_compression(runtime)
    return names[given]


def check_compression(runtime: Runtime) -> None:
    """Raises UsageError if entries cannot be compressed here, or not yet."""
    if not runtime.has_level(LEVEL_OF_COMPRESSION):
        raise UsageError(
            f"compression needs level {LEVEL_OF_COMPRESSION} of the cluster, and bookies and readers of builds before "
            "refuse compressed entries; nothing was changed",
            hint="when every node runs this build: embedbk quorum raise",
        )
    _check_library()


# --- Appending ---------------------------------------------------------------------------------------------


class Squeezed(NamedTuple):
    """The attributes and the payload of an entry, as a packer takes them."""

    attributes: bytes
    payload: Buffer


def squeezed(attributes: bytes, payload: Buffer) -> Squeezed | None:
    """The same entry compressed; PARTS and RECORDS go into the zstd frame with the payload. None: store it as it is,
    because that is no larger, or because it cannot become an entry, which the packer reports."""
    try:
        view = memoryview(payload)
    except TypeError:
        return None
    size = view.nbytes
    if not (size >= _SQUEEZED_BYTES_MIN and len(attributes) + size <= ENTRY_BYTES_MAX and view.c_contiguous):
        return None
    outside = without(attributes, *_INSIDE)
    inside = without(attributes, *(kind for kind in AttributeKind if kind not in _INSIDE))
    packed = _compress(inside + bytes(view) if inside else view)
    beside = outside + encode_claim(ZstdClaim(len(inside) + size, len(inside)))
    return Squeezed(beside, packed) if len(beside) + len(packed) < len(attributes) + size else None


def _compress(data: Buffer) -> bytes:
    zstd = _library()
    compressor = getattr(_of_thread, "compressor", None)
    if compressor is None:  # Making one costs as much as compressing some kilobytes.
        compressor = _of_thread.compressor = zstd.ZstdCompressor()
    packed: bytes = compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
    return packed


def squeezed_run(items: Sequence[Buffer] | RecordRun) -> Sequence[Buffer] | RecordRun:
    """The items of one call, each compressed where that makes it smaller; the argument itself where none is."""
    if isinstance(items, Rows) and all(column.largest < _SQUEEZED_BYTES_MIN for column in items.columns):
        return items
    if isinstance(items, RecordRun):
        values, attributes = list(items.values), list(items.attributes)
    elif isinstance(items, Rows):
        values, attributes = list(items), items.attributes()
    else:
        values, attributes = list(items), [b""] * len(items)
    has_any = False
    for place, (beside, value) in enumerate(zip(attributes, values, strict=True)):
        found = squeezed(beside, value)
        if found is not None:
            attributes[place], values[place], has_any = found.attributes, found.payload, True
    return RecordRun(values, attributes) if has_any else items


if TYPE_CHECKING:
    _Base = Any
else:
    _Base = object


class SqueezingPacker(_Base):  # type: ignore[misc]
    """A packer that compresses plain appends. Appends with attributes, or of many items, come compressed already: their
    caller does it once, and not again each time that there is no room."""

    __slots__ = ()

    def append(self, data: Buffer) -> tuple[int, bool]:
        found = squeezed(b"", data)
        taken: tuple[int, bool] = (
            super().append(data)
            if found is None
            else super().append_with(found.payload, found.attributes, -1)
        )
        return taken


class ZstdPacker(SqueezingPacker, Packer):
    __slots__ = ()


class ZstdToldPacker(SqueezingPacker, ToldPacker):
    __slots__ = ()


class ZstdTwinPacker(SqueezingPacker, TwinPacker):
    pass


# --- Reading -----------------------------------------------------------------------------------------------


def plain(located: Located) -> Iterable[Located]:
    """The same entries with nothing compressed, in as many frames as hold them: none of these is larger than a frame
    may be, so that a small one that was read cannot fill the memory.

    Raises EntryUnreadable, definite, behind the entries before: one cannot be unpacked, here or anywhere.
    """
    if not kernels.compressed(located.frame.body, located.frame.entry_count):
        return (located,)
    return _plain(located)


def _plain(located: Located) -> Iterator[Located]:
    frame, first_offset = located
    entries: list[Buffer] = []
    size = 0
    for entry_id, entry in split(frame):
        try:
            whole = _plain_entry(frame.ledger_id, entry_id, entry)
        except EntryUnreadable:
            if entries:
                yield Located(_framed(frame.ledger_id, entries), first_offset)
            raise
        if entries and size + len(whole) > FRAME_BYTES_MAX:
            yield Located(_framed(frame.ledger_id, entries), first_offset)
            entries, size = [], 0
        entries.append(whole)
        size += len(whole)
    yield Located(_framed(frame.ledger_id, entries), first_offset)


def _framed(ledger_id: int, entries: Sequence[Buffer]) -> Frame:
    first, last = ENTRY_HEADER.unpack_from(entries[0]), ENTRY_HEADER.unpack_from(entries[-1])
    return Frame(ledger_id, first[5], last[5], len(entries), last[6], memoryview(b"".join(entries)))


def _plain_entry(ledger_id: int, entry_id: int, entry: memoryview) -> Buffer:
    """A checked entry with nothing compressed. Its lengths stay those of what is stored (P3.1).

    Raises EntryUnreadable, definite.
    """
    version, flags, attributes_size, size, *numbers = ENTRY_HEADER.unpack_from(entry)
    begin = ENTRY_HEADER.size + attributes_size
    attributes = bytes(entry[ENTRY_HEADER.size : begin])
    claim = claim_of(attributes)
    if claim is None:
        return entry
    try:
        inside, payload = unpacked(entry[begin:-_CRC_BYTES], claim)
        before, behind = parted(inside, AttributeKind.RECORDS)
        attributes = before + without(attributes, *_OF_STORED) + behind
        if len(attributes) > _ATTRIBUTES_BYTES_MAX:
            raise PeerError(
                f"it has {len(attributes)} bytes of attributes; at most {_ATTRIBUTES_BYTES_MAX} are allowed"
            )
        size = len(attributes) + len(payload)
        head = ENTRY_HEADER.pack(version, flags, len(attributes), size, *numbers)
        whole = head + attributes + payload
        whole += kernels.crc32c(whole).to_bytes(_CRC_BYTES, "little")
        # The scan's rules decide whether its attributes are sound, as for entries that are not compressed.
        kernels.offsets(whole)
    except ImportError as missing:
        raise EntryUnreadable(
            f"entry {entry_id} of ledger {ledger_id} is compressed, and what unpacks it is not installed: {missing}",
            definite=True,
            hint=_INSTALL,
        ) from missing
    except PeerError as unsound:
        raise EntryUnreadable(
            f"entry {entry_id} of ledger {ledger_id} is compressed, and cannot be unpacked: {unsound}",
            definite=True,
            hint="its copies are as its writer made them: read on behind it",
        ) from unsound
    return whole


def unpacked(packed: memoryview, claim: ZstdClaim) -> tuple[bytes, bytes]:
    """(attributes, payload). Raises PeerError: it is not what it claims to be; ImportError."""
    zstd = _library()
    if bytes(packed[:4]) != _MAGIC:  # Views of Arrow's buffers have signed bytes, which equal no others.
        raise PeerError("it is no zstd frame")
    try:
        told = zstd.get_frame_info(packed)
        if told.dictionary_id:
            raise PeerError(f"its zstd frame needs the dictionary {told.dictionary_id}")
        if told.decompressed_size != claim.byte_count:
            raise PeerError(
                f"its zstd frame says {told.decompressed_size} bytes, and its attribute {claim.byte_count}"
            )
        options = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
        decompressor = zstd.ZstdDecompressor(options=options)
        # Ask for one byte more than allowed: getting it shows that the content is too long.
        data: bytes = decompressor.decompress(packed, claim.byte_count + 1)
    except zstd.ZstdError as broken:
        raise PeerError(f"its zstd frame is damaged: {broken}") from broken
    if not decompressor.eof or len(data) != claim.byte_count:
        raise PeerError(f"its zstd frame ends at {len(data)} bytes of {claim.byte_count}")
    if decompressor.unused_data:
        raise PeerError(f"{len(decompressor.unused_data)} bytes stand behind its zstd frame")
    attributes = data[: claim.attribute_bytes]
    if any(kind not in _INSIDE for kind in kinds_in(attributes)):
        raise PeerError("attributes are compressed in it that stand outside, or that are not sound")
    return attributes, data[claim.attribute_bytes :]
