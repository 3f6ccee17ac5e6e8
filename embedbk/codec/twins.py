"""The kernels once more in plain Python: what the C code must give, byte for byte.

Both pass the same tests (`tests/codec/test_kernels.py`), refusals included: the same fault at the same offset. Entry
sizes are computed here from the header without `entry.read_entry`, because that module itself stands on the kernels.
"""

from __future__ import annotations

import enum
import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import crcmod.predefined
import xxhash

from embedbk.config import ENSEMBLE_SIZE_MAX, ENTRY_BYTES_MAX, STORED_BYTES_MAX
from embedbk.errors import PeerError, UsageError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "Fault",
    "HEADERS_MAX",
    "Merged",
    "Offsets",
    "RECORD_HAS_KEY",
    "RECORD_HAS_TIMESTAMP",
    "Values",
    "are_records_sound",
    "attributed",
    "check_merge",
    "check_seat",
    "compressed",
    "crc32c",
    "cut",
    "digest_of",
    "digests",
    "is_tag_right",
    "gather",
    "is_header_name",
    "merge",
    "message_head",
    "mix",
    "offsets",
    "parts_of",
    "refusal",
    "scan",
    "values",
]

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct("<BBHIQqQqQ")
_CRC = struct.Struct("<I")
_OVERHEAD = _HEADER.size + _CRC.size
_VERSION = 1
_ATTRIBUTE = struct.Struct("<BBH")  # kind, 0, size of the value behind it
_PARTS = 1
_XXH3 = 3
_TIME = 5
_RECORDS = 6
_ZSTD = 7
RECORD_HAS_KEY, RECORD_HAS_TIMESTAMP = 1, 2  # Flags of a record.
HEADERS_MAX = 255  # In one record.
_RECORD_HEAD = struct.Struct("<BB")  # flags, count of headers
_SIZE = struct.Struct("<H")
_CLAIM = struct.Struct(
    "<IH"
)  # In a compressed entry: its bytes when unpacked, and how many of them are attributes.
_SIZES = {2: 16, 3: 8, 4: 32, _TIME: 8}  # Sizes of the values of the other kinds: producer, XXH3, HMAC, time.
_LENGTH_MAX = 2**63 - 1  # A length is an int64 in everything that is built on it (Arrow, index).
_BODY_BYTES_MAX = 2**32 - 1  # The most that the offsets of `offsets` can name.
_DIGEST_MASK = 2**64 - 1
_VALUES_BYTES_MAX = 2**31 - 1  # The most that the offsets of an Arrow binary array can name.
_crc = crcmod.predefined.mkPredefinedCrcFun("crc-32c")


class Fault(enum.IntEnum):
    """Faults of a body; the numbers are those of native/wire/frame.h."""

    EMPTY = 1
    CUT_SHORT = 2
    UNKNOWN = 3
    TOO_LONG = 4
    DIGEST = 5
    IMPOSSIBLE = 6
    ORDER = 7
    LARGE = 8


_TEXT_OF = {
    Fault.EMPTY: "holds no entry",
    Fault.CUT_SHORT: "is cut short",
    Fault.UNKNOWN: f"has a version other than {_VERSION}, or flags or attributes that are not known or not sound",
    Fault.TOO_LONG: f"claims more payload than is there, or than the {STORED_BYTES_MAX} bytes that are allowed",
    Fault.DIGEST: "fails its digest",
    Fault.IMPOSSIBLE: "has impossible numbers",
    Fault.ORDER: "does not continue the entry before it",
    Fault.LARGE: "is too large to be read out in one piece",
}


class Offsets(NamedTuple):
    """Where the entries of a body stand: ids[i], and its payload at body[spans[2i] : spans[2i] + spans[2i + 1]]."""

    ids: memoryview  # int64
    spans: memoryview  # uint32: offset in the body, size; offset, size; ...


class Merged(NamedTuple):
    """Consecutive entries, verbatim, out of several bodies."""

    body: memoryview
    entry_count: int
    length: int  # Payload bytes of the ledger up to and including the last.


class Values(NamedTuple):
    """The records of a body in the layout of an Arrow binary array: record i is data[ends[i] : ends[i + 1]].

    An entry is one record, or with parts as many as it has, each under the entry's id.
    """

    ids: memoryview  # int64
    ends: memoryview  # int32, one more than ids
    data: memoryview
    has_records: bool  # An entry has the attribute RECORDS.


def refusal(fault: int, offset: int, body: Buffer) -> PeerError:
    """The error for a fault at an offset; names the entry where its header is there to be read."""
    where = f"frame body of {len(body)} bytes"
    if fault not in (Fault.EMPTY, Fault.LARGE):
        where = f"frame body: entry at offset {offset}"
        if len(body) - offset >= _OVERHEAD:
            head = _HEADER.unpack_from(body, offset)
            where += f" (ledger {head[4]}, entry {head[5]}, {head[3]} payload bytes)"
    return PeerError(f"{where} {_TEXT_OF[Fault(fault)]}")


def crc32c(data: Buffer, crc: int = 0) -> int:
    """CRC32C of data, going on from crc."""
    return int(_crc(bytes(data), crc))


def gather(pieces: tuple[Buffer, ...]) -> Buffer:
    """All pieces, one behind the other."""
    return b"".join(pieces)


def message_head(kind: int, frame_count: int, control: bytes, frames_size: int, request_id: int) -> bytes:
    """Header and control part of a message (WIRE.md 3)."""
    head = struct.pack("<4sBBHIIQ", b"EBKM", 1, kind, frame_count, len(control), frames_size, request_id)
    return head + crc32c(control, crc32c(head)).to_bytes(4, "little") + bytes(4) + control


def scan(body: Buffer) -> tuple[int, int, int, int, int]:
    """Check every entry of a frame's body. Returns (first, last, count, length, ledger_id).

    Raises:
        PeerError: empty, an entry cut short, a wrong digest, unknown version or flags, ids that do not ascend,
            lengths that do not grow by the payload where ids are consecutive, or two ledgers in one body.
    """
    block = memoryview(body)
    count, first, last, total, ledger = 0, NO_ENTRY, NO_ENTRY, 0, 0
    for offset, end in _walk(block):
        attributes, size, ledger_id, entry_id, length, lac, lac_length = _HEADER.unpack_from(block, offset)[
            2:
        ]
        size -= attributes
        checked = end - _CRC.size
        if _CRC.unpack_from(block, checked)[0] != crc32c(block[offset:checked]):
            raise refusal(Fault.DIGEST, offset, block)
        if attributes and not is_tag_right(block[offset:checked], attributes):
            raise refusal(Fault.DIGEST, offset, block)
        in_range = entry_id >= 0 and ledger_id <= LEDGER_ID_MAX and size <= length <= _LENGTH_MAX
        if not (in_range and NO_ENTRY <= lac < entry_id and lac_length <= length):
            raise refusal(Fault.IMPOSSIBLE, offset, block)
        if count:
            is_next = entry_id == last + 1
            grown = length - total
            if ledger_id != ledger or entry_id <= last or grown < size or (is_next and grown != size):
                raise refusal(Fault.ORDER, offset, block)
        else:
            first, ledger = entry_id, ledger_id
        last, total = entry_id, length
        count += 1
    if not count:
        raise refusal(Fault.EMPTY, 0, block)
    return first, last, count, total, ledger


def cut(body: Buffer, ensemble_size: int, write_quorum: int, seat: int) -> bytes | bytearray:
    """The entries of a checked body whose write set has the seat: (seat - entry) mod E < Qw (P1).

    Raises:
        PeerError: the body is no run of entries (digests are not looked at here).
        UsageError: the seat is not one of the ensemble.
    """
    check_seat(ensemble_size, write_quorum, seat)
    block = memoryview(body)
    parts = []
    for offset, end in _walk(block):
        entry_id = _HEADER.unpack_from(block, offset)[5]
        if entry_id < 0:
            raise refusal(Fault.IMPOSSIBLE, offset, block)
        if (seat - entry_id) % ensemble_size < write_quorum:
            parts.append(block[offset:end])
    return b"".join(parts)


def merge(bodies: Sequence[Buffer], first: int, last: int) -> Merged | None:
    """The entries first, first + 1 ... last as far as they follow without a gap and their lengths go on, out of 1 to 64
    checked bodies of one ledger; None when there is no entry `first`. Where several have one, any of them."""
    check_merge(bodies)
    held: dict[int, tuple[memoryview, int, int]] = {}
    for body in bodies:
        block = memoryview(body)
        for offset, end in _walk(block):
            attributes, size, _, entry_id, length = _HEADER.unpack_from(block, offset)[2:7]
            held.setdefault(entry_id, (block[offset:end], length, size - attributes))
    run: list[memoryview] = []
    total = 0
    while first + len(run) <= last and (found := held.get(first + len(run))) is not None:
        entry, length, grown = found
        if run and length != total + grown:
            break
        run.append(entry)
        total = length
    return Merged(memoryview(b"".join(run)), len(run), total) if run else None


def check_merge(bodies: Sequence[Buffer]) -> None:
    """Raises UsageError unless there are as many bodies as members may have given."""
    if not 1 <= len(bodies) <= ENSEMBLE_SIZE_MAX:
        raise UsageError(f"{len(bodies)} bodies to be merged: 1 to {ENSEMBLE_SIZE_MAX} are allowed")


def check_seat(ensemble_size: int, write_quorum: int, seat: int) -> None:
    """Raises UsageError unless 0 <= seat < E and 1 <= Qw <= E."""
    if not 0 <= seat < ensemble_size < 2**31 or not 1 <= write_quorum <= ensemble_size:
        raise UsageError(
            f"seat {seat} of ensemble size {ensemble_size}, write quorum {write_quorum}: no such seat"
        )


def offsets(body: Buffer) -> Offsets:
    """Where each payload of a checked body stands, so that entries are handed out as slices of it.

    Raises PeerError when the body is no run of entries (digests are not looked at here).
    """
    block = memoryview(body)
    if len(block) > _BODY_BYTES_MAX:
        raise refusal(Fault.LARGE, 0, block)
    ids, spans = array("q"), array("I")
    for offset, end in _walk(block):
        head = _HEADER.unpack_from(block, offset)
        ids.append(head[5])
        begin = offset + _HEADER.size + head[2]
        spans.extend((begin, end - _CRC.size - begin))
    return Offsets(memoryview(ids), memoryview(spans))


def attributed(body: Buffer, count: int) -> memoryview:
    """Which of the `count` entries of a checked body have attributes, counted from 0: uint32, ascending."""
    block = memoryview(body)
    heads = [_HEADER.unpack_from(block, offset) for offset, _ in _walk(block)]
    assert len(heads) == count
    return memoryview(array("I", [place for place, head in enumerate(heads) if head[2]]))


def compressed(body: Buffer, count: int) -> int:
    """How many of the `count` entries of a checked body are compressed."""
    block = memoryview(body)
    heads = [(offset, _HEADER.unpack_from(block, offset)[2]) for offset, _ in _walk(block)]
    assert len(heads) == count
    begins = [(offset + _HEADER.size, size) for offset, size in heads]
    return sum(_ZSTD in _kinds_of(block[begin : begin + size]) for begin, size in begins)


def mix(number: int) -> int:
    """The last steps of MurmurHash3 (fmix64)."""
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _DIGEST_MASK
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _DIGEST_MASK
    return number ^ number >> 33


def digest_of(entry_id: int, size: int, crc: int) -> int:
    """The digest of an entry of so many bytes (`entry_digest`)."""
    return mix(mix(entry_id + 0x9E3779B97F4A7C15 & _DIGEST_MASK) ^ (size << 32 | crc))


def digests(body: Buffer, first: int, last: int, modulus: int) -> tuple[memoryview, memoryview]:
    """For the entries first..last of a checked body, by residue of their ids: the sums of their digests, and their
    counts; uint64 both."""
    block = memoryview(body)
    sums, counts = array("Q", bytes(8 * modulus)), array("Q", bytes(8 * modulus))
    for offset, end in _walk(block):
        entry_id: int = _HEADER.unpack_from(block, offset)[5]
        if first <= entry_id <= last:
            (crc,) = _CRC.unpack_from(block, end - _CRC.size)
            residue = entry_id % modulus
            sums[residue] = sums[residue] + digest_of(entry_id, end - offset, crc) & _DIGEST_MASK
            counts[residue] += 1
    return memoryview(sums), memoryview(counts)


def values(body: Buffer) -> Values:
    """The payloads of a checked body behind each other, with ids and offsets as an Arrow binary array wants them.

    Raises PeerError when the body is no run of entries (digests are not looked at here).
    """
    block = memoryview(body)
    ids, ends, data, has_records = array("q"), array("i", [0]), bytearray(), False
    for offset, end in _walk(block):
        head = _HEADER.unpack_from(block, offset)
        begin = offset + _HEADER.size + head[2]
        attributes = block[offset + _HEADER.size : begin]
        has_records |= _RECORDS in _kinds_of(attributes)
        parts = parts_of(attributes) or (end - _CRC.size - begin,)
        ids.extend([head[5]] * len(parts))
        ends.extend(len(data) + part_end for part_end in parts)
        data += block[begin : end - _CRC.size]
        if len(data) > _VALUES_BYTES_MAX:
            raise refusal(Fault.LARGE, 0, block)
    return Values(memoryview(ids), memoryview(ends), memoryview(data), has_records)


def are_attributes_sound(attributes: Buffer, payload_size: int) -> bool:
    """Are these attributes known, in order, and right about a payload of so many bytes?"""
    view, last_kind, records = memoryview(attributes), 0, 1
    says_records = False  # A compressed entry has PARTS and RECORDS compressed with its payload.
    while view:
        if len(view) < _ATTRIBUTE.size:
            return False
        kind, zero, size = _ATTRIBUTE.unpack_from(view)
        value, view = view[_ATTRIBUTE.size : _ATTRIBUTE.size + size], view[_ATTRIBUTE.size + size :]
        if kind <= last_kind or zero or len(value) != size:
            return False
        if kind == _PARTS:
            ends = struct.unpack(f"<{size // 4}I", value) if size % 4 == 0 else ()
            if not ends or any(a > b for a, b in pairwise(ends)) or ends[-1] != payload_size:
                return False
            records, says_records = len(ends), True
        elif kind == _RECORDS:
            if not are_records_sound(value, records):
                return False
            says_records = True
        elif kind == _ZSTD:
            if size != _CLAIM.size or says_records or not is_claim_sound(*_CLAIM.unpack(value)):
                return False
        elif _SIZES.get(kind) != size or (kind == _TIME and value[-1] & 0x80):
            return False  # No time is below 0.
        last_kind = kind
    return True


def is_claim_sound(byte_count: int, attribute_bytes: int) -> bool:
    """Whether an entry may claim so many bytes when it is unpacked, and so many of them as attributes. A claim beyond
    the bound of an append is refused here, by all who check the entry, before anybody unpacks a byte of it."""
    return attribute_bytes <= byte_count <= ENTRY_BYTES_MAX


def are_records_sound(value: Buffer, count: int) -> bool:
    """Whether the value of RECORDS has a set for each of so many records, and nothing behind."""
    at, view = 0, bytes(value)
    try:
        for _ in range(count):
            flags, headers = _RECORD_HEAD.unpack_from(view, at)
            at += _RECORD_HEAD.size
            if flags & ~(RECORD_HAS_KEY | RECORD_HAS_TIMESTAMP):
                return False
            if flags & RECORD_HAS_KEY:
                at += _SIZE.size + _SIZE.unpack_from(view, at)[0]
            if flags & RECORD_HAS_TIMESTAMP:
                at += 8
                if at > len(view) or view[at - 1] & 0x80:
                    return False  # No timestamp is below 0.
            last_name = b""
            for _ in range(headers):
                name = view[at + 1 : at + 1 + view[at]]
                if len(name) != view[at] or not is_header_name(name) or name <= last_name:
                    return False
                at, last_name = at + 1 + len(name), name
                at += _SIZE.size + _SIZE.unpack_from(view, at)[0]
    except (struct.error, IndexError):
        return False  # Cut short.
    return at == len(view)


def is_header_name(name: bytes) -> bool:
    """1 to 255 printable ASCII characters without a blank."""
    return 0 < len(name) <= 255 and all(0x21 <= each <= 0x7E for each in name)


def is_tag_right(entry: memoryview, attributes_size: int) -> bool:
    """Is the XXH3 tag of an entry (without its CRC32C) right, where it has one among its sound attributes?"""
    at, end = _HEADER.size, _HEADER.size + attributes_size
    while at < end:
        kind, _, size = _ATTRIBUTE.unpack_from(entry, at)
        at += _ATTRIBUTE.size
        if kind == _XXH3:
            covered = bytes(entry[:at]) + bytes(entry[at + size :])
            return xxhash.xxh3_64_digest(covered) == entry[at : at + size]
        at += size
    return True


def _kinds_of(attributes: Buffer) -> Iterator[int]:
    """The kinds in attributes that are known to be sound."""
    at = 0
    while at < len(attributes):
        kind, _, size = _ATTRIBUTE.unpack_from(attributes, at)
        yield kind
        at += _ATTRIBUTE.size + size


def parts_of(attributes: Buffer) -> tuple[int, ...]:
    """Where the parts end in the payload of a checked entry with these attributes; empty when it is one record."""
    if not attributes or attributes[0] != _PARTS:
        return ()
    _, _, size = _ATTRIBUTE.unpack_from(attributes)
    return struct.unpack_from(f"<{size // 4}I", attributes, _ATTRIBUTE.size)


def _walk(block: memoryview) -> Iterator[tuple[int, int]]:
    """(offset, end) of each entry, its layout checked."""
    offset = 0
    while offset < len(block):
        left = len(block) - offset
        if left < _OVERHEAD:
            raise refusal(Fault.CUT_SHORT, offset, block)
        version, flags, attributes_size, size = _HEADER.unpack_from(block, offset)[:4]
        if version != _VERSION or flags:
            raise refusal(Fault.UNKNOWN, offset, block)
        if size > STORED_BYTES_MAX or size > left - _OVERHEAD:
            raise refusal(Fault.TOO_LONG, offset, block)
        begin = offset + _HEADER.size
        if attributes_size > size or not are_attributes_sound(
            block[begin : begin + attributes_size], size - attributes_size
        ):
            raise refusal(Fault.UNKNOWN, offset, block)
        end = offset + _OVERHEAD + size
        yield offset, end
        offset = end
