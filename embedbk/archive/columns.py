"""Entries as columns of an archive, and columns as the entries that they were, byte for byte.

Decides what stands in a row, and which columns are enough to make each entry anew with its header, its attributes and
its CRC32C. So the scan of a frame checks an archive, too (P3.1), and no fact about an entry has only the archive's
word. Python objects are made only for entries that carry attributes.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from embedbk import arrow
from embedbk.codec import kernels
from embedbk.codec.attributes import claim_of, time_of
from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES, ENTRY_VERSION
from embedbk.errors import PeerError

__all__ = [
    "BODY_BYTES_MAX",
    "SCHEMA",
    "SCHEMA_WITH_STORED",
    "body_of",
    "bytes_in",
    "digest_sum",
    "in_each_row",
    "payload_sum",
    "rows_of",
]

BODY_BYTES_MAX = 1 << 30  # Bytes of the entries of one row group; Arrow's offsets are int32.

# The source's columns (spark/SPARK.md), then all else that an entry has. `log` is the log's id: names change.
# A row is a record; what belongs to the entry stands in each row of an atomic batch, but `attributes` in the first one
# only: they have the end of each part, so copies in 8,192 rows would be 8,192 times as large.
SCHEMA = pa.schema(
    [
        ("log", pa.string()),
        ("ledgerId", pa.int64()),
        ("entryId", pa.int64()),
        ("slot", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("time", pa.timestamp("ms", tz="UTC")),  # Null: from before entries had times (P8.11).
        ("crc32c", pa.uint32()),  # CRC of the whole entry, header and attributes included.
        ("attributes", pa.binary()),  # Null: none, or not the first row of its entry.
        ("length", pa.int64()),  # Payload bytes of the ledger up to and including this entry.
        ("lac", pa.int64()),  # As the entry's writer knew it, and the length up to it.
        ("lacLength", pa.int64()),
    ]
)
# Schema of a file with entries that are stored compressed: `value` holds what was appended; `stored` holds the
# compressed bytes in the first row of such an entry, and is null elsewhere.
SCHEMA_WITH_STORED = SCHEMA.append(pa.field("stored", pa.binary()))
_AT_LENGTH, _AT_LAC, _AT_LAC_LENGTH = 24, 32, 40  # In the header.
_HEAD_BYTES_MAX = ENTRY_HEADER.size + (1 << 16)  # Header and attributes; their size is a u16.
_CRC_BYTES = ENTRY_OVERHEAD_BYTES - ENTRY_HEADER.size

assert sys.byteorder == "little"  # Columns are views of bytes of entries.


def rows_of(
    body: memoryview,
    log_id: str,
    ledger_id: int,
    first_offset: int,
    time_ms: int | None,
    plain: memoryview | None = None,
) -> tuple[pa.RecordBatch, int | None]:
    """The rows of a run of entries that was checked, and the time of the last one.

    first_offset: that of the ledger's entry 0. time_ms: the time of the entry in front, which this run's first entry
    has if it carries none of its own (P8.11). plain: the same entries with none compressed, for SCHEMA_WITH_STORED;
    None: no entry is compressed, for SCHEMA.
    """
    ids, spans = kernels.offsets(body)
    count = len(ids)
    begins = _contiguous(spans[::2])
    ends = pc.add(begins, _contiguous(spans[1::2]))
    # The body in pieces: header with attributes, payload, CRC, header with attributes, ...
    bounds = memoryview(bytearray(4 * (3 * count + 1))).cast("I")
    bounds[1::3] = _view(begins, "I")
    bounds[2::3] = _view(ends, "I")
    bounds[3::3] = _view(pc.add(ends, pa.scalar(_CRC_BYTES, pa.uint32())), "I")
    pieces = pa.Array.from_buffers(pa.binary(), 3 * count, [None, pa.py_buffer(bounds), pa.py_buffer(body)])
    place = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(3, pa.int32()), count)), 3)
    heads = pieces.take(place)
    crcs = _numbers(pieces.take(pc.add(place, 2)), pa.uint32())
    attributes = pc.binary_slice(heads, ENTRY_HEADER.size, _HEAD_BYTES_MAX)
    attributes = pc.if_else(
        pc.equal(pc.binary_length(attributes), 0), pa.scalar(None, pa.binary()), attributes
    )
    times, last_ms = _times(body, bounds, count, time_ms)
    stored: pa.Array | None = None
    if plain is not None:
        stored = _stored(body, bounds, pieces.take(pc.add(place, 1)))
    of_entries = [
        times,
        crcs,
        attributes,
        *(
            _numbers(pc.binary_slice(heads, at, at + 8), pa.int64())
            for at in (_AT_LENGTH, _AT_LAC, _AT_LAC_LENGTH)
        ),
    ]
    record_ids, record_ends, data, _ = kernels.values(body if plain is None else plain)
    records = len(record_ids)
    entry_ids = pa.Array.from_buffers(pa.int64(), records, [None, pa.py_buffer(record_ids)])
    values = pa.Array.from_buffers(
        pa.binary(), records, [None, pa.py_buffer(record_ends), pa.py_buffer(data)]
    )
    slots = arrow.slots(entry_ids)
    if records != count:
        distinct = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(ids)])
        which = pc.index_in(entry_ids, value_set=distinct)
        of_first = pc.if_else(pc.equal(slots, 0), which, pa.scalar(None, pa.int32()))
        of_entries = [column.take(of_first if column is attributes else which) for column in of_entries]
        stored = None if stored is None else stored.take(of_first)
    columns = [
        pa.repeat(pa.scalar(log_id, pa.string()), records),
        pa.repeat(pa.scalar(ledger_id, pa.int64()), records),
        entry_ids,
        slots,
        pc.add(entry_ids, first_offset),
        values,
        *of_entries,
    ]
    if stored is None:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA), last_ms
    columns.append(stored)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_STORED), last_ms


def in_each_row(rows: pa.RecordBatch, byte_count: int | None = None) -> pa.RecordBatch | None:
    """The same rows with the attributes of an entry in each of its rows, as earlier builds wrote them. byte_count: None
    is returned where the attributes have another size then, which may be more than fits the memory."""
    first = pc.subtract(pc.cumulative_sum(pc.equal(rows.column("slot"), 0).cast(pa.int32())), 1)
    firsts = rows.column("attributes").filter(pc.equal(rows.column("slot"), 0))
    if byte_count is not None and bytes_in(firsts, first) != byte_count:
        return None
    at = rows.schema.get_field_index("attributes")
    return rows.set_column(at, rows.schema.field(at), firsts.take(first))


def bytes_in(values: Any, places: pa.Array | None = None) -> int:
    """Bytes of all values of a binary column, or of those at these places."""
    sizes = pc.fill_null(pc.binary_length(values), 0).cast(pa.int64())
    total: int | None = pc.sum(sizes if places is None else sizes.take(places)).as_py()
    return total or 0


def _stored(body: memoryview, bounds: memoryview, payloads: pa.Array) -> pa.Array:
    """The stored payloads of compressed entries; null for the others."""
    are_compressed = [False] * len(payloads)
    for place in kernels.attributed(body, len(payloads)).tolist():
        attributes = body[bounds[3 * place] + ENTRY_HEADER.size : bounds[3 * place + 1]]
        are_compressed[place] = claim_of(attributes) is not None
    return pc.if_else(pa.array(are_compressed), payloads, pa.scalar(None, pa.binary()))


def _times(
    body: memoryview, bounds: memoryview, count: int, before_ms: int | None
) -> tuple[pa.Array, int | None]:
    """The times of the entries; one that carries none has that of the entry in front."""
    told: list[int | None] = [None] * count
    for place in kernels.attributed(body, count).tolist():
        told[place] = time_of(body[bounds[3 * place] + ENTRY_HEADER.size : bounds[3 * place + 1]])
    if told[0] is None:
        told[0] = before_ms
    times = pc.fill_null_forward(pa.array(told, pa.int64()))
    return times.cast(pa.timestamp("ms", tz="UTC")), times[-1].as_py()


def body_of(rows: pa.Table) -> memoryview:
    """The entries that these rows are: a frame's body, to be scanned. The rows are not trusted.

    Raises PeerError: they are no entries.
    """
    if not (rows.schema.equals(SCHEMA) or rows.schema.equals(SCHEMA_WITH_STORED)):
        raise PeerError(f"columns are {rows.schema.names}, want {SCHEMA.names} with their types")
    try:
        return _body_of(rows)
    except (pa.ArrowException, OverflowError, ValueError) as impossible:
        raise PeerError(f"columns are no entries: {impossible}") from impossible


def _body_of(rows: pa.Table) -> memoryview:
    column = {name: _one(rows.column(name)) for name in rows.schema.names}
    needed = [name for name in SCHEMA.names if name not in ("time", "attributes")]
    without = [name for name in needed if column[name].null_count]
    if without or not rows.num_rows:
        raise PeerError(f"{rows.num_rows} rows, with nulls in {without}")
    is_first = pc.equal(column["slot"], 0)
    payloads = column["value"]
    if not is_first[0].as_py():
        raise PeerError("the first row is not the first one of its entry")
    if not pc.all(is_first).as_py():
        firsts = pc.indices_nonzero(is_first)
        bounds = pa.Array.from_buffers(pa.int32(), rows.num_rows + 1, [None, payloads.buffers()[1]])
        bounds = pa.concat_arrays([bounds.take(firsts), bounds[-1:]])
        data = payloads.buffers()[2]
        payloads = pa.Array.from_buffers(pa.binary(), len(firsts), [None, bounds.buffers()[1], data])
        column = {name: each.take(firsts) for name, each in column.items()}
    if "stored" in column:
        payloads = pc.coalesce(column["stored"], payloads)
    count = len(payloads)
    attributes = pc.fill_null(column["attributes"], b"")
    attribute_sizes = pc.binary_length(attributes)
    sizes = pc.add(attribute_sizes, pc.binary_length(payloads))
    if pc.max(attribute_sizes).as_py() >= 1 << 16 or _total(sizes, count) > BODY_BYTES_MAX:
        raise PeerError(f"{count} entries of {_total(sizes, count)} bytes in one row group")
    joined = pc.binary_join_element_wise(
        pa.repeat(pa.scalar(bytes((ENTRY_VERSION, 0))), count),
        _bytes(attribute_sizes.cast(pa.uint16()), 2),
        _bytes(sizes.cast(pa.uint32()), 4),
        *(_bytes(column[name], 8) for name in ("ledgerId", "entryId", "length", "lac", "lacLength")),
        attributes,
        payloads,
        _bytes(column["crc32c"], 4),
        b"",
    )
    assert joined.offset == 0
    return memoryview(joined.buffers()[2])[: _total(sizes, count)]


def _total(sizes: pa.Array, count: int) -> int:
    payload_bytes: int = pc.sum(sizes.cast(pa.int64())).as_py()
    return payload_bytes + count * ENTRY_OVERHEAD_BYTES


def digest_sum(body: memoryview) -> int:
    """The sum of the entries' digests (codec/entry_digest.py), modulo 2^64, of a body that was scanned."""
    ids, spans = kernels.offsets(body)
    count = len(ids)
    ends = pc.add(_contiguous(spans[::2]), _contiguous(spans[1::2]))
    bounds = memoryview(bytearray(4 * (2 * count + 1))).cast("I")
    bounds[1::2] = _view(ends, "I")
    bounds[2::2] = _view(pc.add(ends, pa.scalar(_CRC_BYTES, pa.uint32())), "I")
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(body)])
    place = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(2, pa.int32()), count)), 2)
    crcs = _numbers(pieces.take(pc.add(place, 1)), pa.uint32()).cast(pa.uint64())
    sizes = pc.add(pc.binary_length(pieces.take(place)), _CRC_BYTES).cast(pa.uint64())
    numbers = pa.Array.from_buffers(pa.uint64(), count, [None, pa.py_buffer(ids)])
    mixed = _mix(pc.add(numbers, _u64(0x9E3779B97F4A7C15)))
    mixed = _mix(pc.bit_wise_xor(mixed, pc.bit_wise_or(pc.shift_left(sizes, _u64(32)), crcs)))
    total: int = pc.sum(mixed).as_py()
    return total


def payload_sum(body: memoryview) -> int:
    """Payload bytes of a body that was scanned, as they are stored: what lengths count."""
    _, spans = kernels.offsets(body)
    total: int = pc.sum(_contiguous(spans[1::2]).cast(pa.int64())).as_py()
    return total


def _mix(number: pa.Array) -> pa.Array:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        number = pc.multiply(pc.bit_wise_xor(number, pc.shift_right(number, _u64(33))), _u64(factor))
    return pc.bit_wise_xor(number, pc.shift_right(number, _u64(33)))


def _u64(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())


def _contiguous(numbers: memoryview) -> pa.Array:
    """Every second of the uint32 numbers, as an array of its own."""
    own = memoryview(bytearray(4 * len(numbers))).cast("I")
    own[:] = numbers
    return pa.Array.from_buffers(pa.uint32(), len(own), [None, pa.py_buffer(own)])


def _view(numbers: pa.Array, kind: Any) -> memoryview:
    assert numbers.offset == 0
    return memoryview(numbers.buffers()[1])[: numbers.nbytes].cast(kind)


def _numbers(binary: pa.Array, kind: pa.DataType) -> pa.Array:
    """Consecutive values of a fixed size, as numbers."""
    assert binary.offset == 0
    return pa.Array.from_buffers(kind, len(binary), [None, binary.buffers()[2]])


def _bytes(numbers: pa.Array, width: int) -> pa.Array:
    fixed = pa.Array.from_buffers(
        pa.binary(width), len(numbers), [None, numbers.buffers()[1]], offset=numbers.offset
    )
    return fixed.cast(pa.binary())


def _one(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array that begins where its buffers begin."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks)
    return whole if whole.offset == 0 else pa.concat_arrays([whole[:0], whole])
