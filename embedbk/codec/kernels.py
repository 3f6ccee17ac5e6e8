"""The pure functions of the C module: checksums, frame scan, striping, read-out of entries.

Each has a plain form of the same name in `twins`, which passes the same tests and is imported from there. The
GIL is kept (native/base/gil.h): a frame is summed in microseconds. Results in new buffers belong to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from embedbk import _native
from embedbk._native import ffi, lib
from embedbk.codec.twins import Fault, Merged, Offsets, Values, check_merge, check_seat, refusal

__all__ = [
    "Merged",
    "Offsets",
    "Values",
    "attributed",
    "compressed",
    "crc32c",
    "cut",
    "digests",
    "gather",
    "keep_freed_memory",
    "message_head",
    "merge",
    "offsets",
    "scan",
    "values",
]

Buffer = bytes | bytearray | memoryview

_BODY_BYTES_MAX = 2**32 - 1
_VALUES_BYTES_MAX = 2**31 - 1


# Bound here once; the packer's module needs the installed calls as well.
if lib.ebk_python_calls_install() != 0 or lib.ebk_gather_install() != 0:
    raise MemoryError("the calls of the C module could not be installed")
crc32c: Callable[..., int] = _native.crc32c  # crc32c(data, crc=0): CRC32C of data, going on from crc.
# gather(tuple of buffers): all of them, one behind the other, in a block that is used again when no view of it is left.
gather: Callable[[tuple[Buffer, ...]], Buffer] = _native.gather
# message_head(kind, frame count, control part, bytes of frames, request id): header and control part (WIRE.md 3).
message_head: Callable[[int, int, bytes, int, int], bytes] = _native.message_head


def scan(body: Buffer) -> tuple[int, int, int, int, int]:
    """Check every entry of a frame's body. Returns (first, last, count, length, ledger_id).

    Raises:
        PeerError: empty, an entry cut short, a wrong digest, unknown version or flags, ids that do not ascend,
            lengths that do not grow by the payload where ids are consecutive, or two ledgers in one body.
    """
    facts = ffi.new("struct ebk_frame_facts *")
    with ffi.from_buffer(body) as source:
        fault = lib.ebk_frame_scan(source, len(source), facts)
    if fault:
        raise refusal(fault, facts.fault_at, body)
    return facts.first_entry, facts.last_entry, facts.count, facts.length, facts.ledger_id


def cut(body: Buffer, ensemble_size: int, write_quorum: int, seat: int) -> bytes | bytearray:
    """The entries of a checked body whose write set has the seat: (seat - entry) mod E < Qw (P1).

    Raises:
        PeerError: the body is no run of entries (digests are not looked at here).
        UsageError: the seat is not one of the ensemble.
    """
    check_seat(ensemble_size, write_quorum, seat)
    facts = ffi.new("struct ebk_frame_facts *")
    taken = ffi.new("size_t *")
    with ffi.from_buffer(body) as source:
        part = bytearray(len(source))
        fault = lib.ebk_frame_cut(
            source, len(source), ensemble_size, write_quorum, seat, ffi.from_buffer(part), taken, facts
        )
    if fault:
        raise refusal(fault, facts.fault_at, body)
    del part[taken[0] :]
    return part


def merge(bodies: Sequence[Buffer], first: int, last: int) -> Merged | None:
    """The entries first, first + 1 ... last as far as they follow without a gap and their lengths go on, out of 1 to 64
    checked bodies of one ledger; None when there is no entry `first`. Where several have one, any of them."""
    check_merge(bodies)
    facts = ffi.new("struct ebk_frame_facts *")
    with ExitStack() as held:
        sources = [held.enter_context(ffi.from_buffer(body)) for body in bodies]
        pointers = ffi.new("const uint8_t *[]", sources)
        sizes = ffi.new("size_t[]", [len(source) for source in sources])
        to = bytearray(sum(sizes))
        used = lib.ebk_frame_merge(pointers, sizes, len(sources), first, last, ffi.from_buffer(to), facts)
    if not used:
        return None
    return Merged(memoryview(to)[:used].toreadonly(), facts.count, facts.length)


def offsets(body: Buffer) -> Offsets:
    """Where each payload of a checked body stands, so that entries are handed out as slices of it.

    Raises PeerError when the body is no run of entries (digests are not looked at here).
    """
    with ffi.from_buffer(body) as source:
        if len(source) > _BODY_BYTES_MAX:
            raise refusal(Fault.LARGE, 0, body)
        count = _count(source, body).count
        ids, spans = bytearray(8 * count), bytearray(8 * count)
        lib.ebk_frame_offsets(
            source, count, ffi.from_buffer("int64_t[]", ids), ffi.from_buffer("uint32_t[]", spans)
        )
    return Offsets(memoryview(ids).cast("q"), memoryview(spans).cast("I"))


def attributed(body: Buffer, count: int) -> memoryview:
    """Which of the `count` entries of a checked body have attributes, counted from 0: uint32, ascending."""
    places = bytearray(4 * count)
    found = lib.ebk_frame_attributed(ffi.from_buffer(body), count, ffi.from_buffer("uint32_t[]", places))
    return memoryview(places).cast("I")[:found]


def compressed(body: Buffer, count: int) -> int:
    """How many of the `count` entries of a checked body are compressed."""
    return int(lib.ebk_frame_compressed(ffi.from_buffer(body), count))


def digests(body: Buffer, first: int, last: int, modulus: int) -> tuple[memoryview, memoryview]:
    """For the entries first..last of a checked body, by residue of their ids: the sums of their digests, and their
    counts; uint64 both."""
    sums, counts = bytearray(8 * modulus), bytearray(8 * modulus)
    with ffi.from_buffer(body) as source:
        lib.ebk_frame_digests(
            source,
            len(source),
            first,
            last,
            modulus,
            ffi.from_buffer("uint64_t[]", sums),
            ffi.from_buffer("uint64_t[]", counts),
        )
    return memoryview(sums).cast("Q"), memoryview(counts).cast("Q")


def values(body: Buffer) -> Values:
    """The records of a checked body behind each other, with ids and offsets as an Arrow binary array wants them: its
    payloads, those with parts part by part under the id of their entry.

    Raises PeerError when the body is no run of entries (digests are not looked at here).
    """
    with ffi.from_buffer(body) as source:
        facts = _count(source, body)
        if facts.payload_bytes > _VALUES_BYTES_MAX:
            raise refusal(Fault.LARGE, 0, body)
        records = facts.records
        ids, ends, data = bytearray(8 * records), bytearray(4 * (records + 1)), bytearray(facts.payload_bytes)
        lib.ebk_frame_values(
            source,
            facts.count,
            ffi.from_buffer("int64_t[]", ids),
            ffi.from_buffer("int32_t[]", ends),
            ffi.from_buffer(data),
        )
    return Values(
        memoryview(ids).cast("q"), memoryview(ends).cast("i"), memoryview(data), facts.with_records > 0
    )


def _count(source: Any, body: Buffer) -> Any:
    """What ebk_frame_count() tells of a body, its layout checked."""
    facts = ffi.new("struct ebk_frame_facts *")
    fault = lib.ebk_frame_count(source, len(source), facts)
    if fault:
        raise refusal(fault, facts.fault_at, body)
    return facts


def keep_freed_memory() -> None:
    """Have malloc keep freed memory for what comes in next, instead of giving its pages back each time.

    For processes of our own: in a user's process that is the user's to decide.
    """
    lib.ebk_keep_freed_memory()
