"""What is appended, in the form in which its ledger stores it: payloads, records, batches and runs of them.

Decides with which packer a handle makes its entries, and what each entry has as payload and as attributes: keys,
timestamps and headers where the cluster's level allows them, the parts of a batch, and all of it compressed where the
handle compresses and that is smaller (`compression`). Leaves to the packer whether an entry is allowed at all.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any

from embedbk.client.compression import ZstdPacker, ZstdToldPacker, ZstdTwinPacker, squeezed, squeezed_run
from embedbk.client.many_append import Items
from embedbk.client.runtime import Runtime
from embedbk.codec.arrow_rows import Rows
from embedbk.codec.attributes import encode_attributes
from embedbk.codec.digest import DigestType
from embedbk.codec.entry_records import EntryRecord, RecordRun, encode_records
from embedbk.codec.log_settings import Compression
from embedbk.codec.packer import Packer, ToldPacker
from embedbk.codec.packer_twin import TwinPacker
from embedbk.codec.packing import Buffer, Packing, refuse_payload
from embedbk.core.writer import Writer
from embedbk.errors import UsageError
from embedbk.metadata.levels import LEVEL_OF_RECORDS

if TYPE_CHECKING:
    from embedbk.client.appending import Appending

__all__ = ["as_record", "batch_of", "packer_of", "records_of", "run_of", "stored"]


def packer_of(runtime: Runtime, core: Writer, compression: Compression | None, mac_key: bytes) -> Packing:
    """The packer of a new handle. mac_key: the key of the ledger's tags, if it has any."""
    digest = core.metadata.digest
    bound = runtime.settings.append_bytes_max
    is_told, is_squeezed = runtime.told_ms is not None, compression is not None
    kind: type[Packer] = ToldPacker if is_told else Packer
    if is_squeezed:
        kind = ZstdToldPacker if is_told else ZstdPacker
    packer: Packing = kind(core.ledger_id, bytes_max=bound)
    if digest != DigestType.CRC32C:
        # Tags are made entry by entry in Python: only a ledger that asks for them pays for them.
        packer = (ZstdTwinPacker if is_squeezed else TwinPacker)(
            core.ledger_id, bytes_max=bound, lock=threading.RLock(), digest=digest, mac_key=mac_key
        )
    return packer


def stored(handle: Appending, data: Buffer | EntryRecord) -> tuple[Buffer, bytes]:
    """The payload and the attributes of an entry, compressed where the handle compresses."""
    attributes = b""
    if isinstance(data, EntryRecord):
        attributes = encode_attributes(records=records_of(handle, [data]))
        data = data.value
    if handle.compression is not None:
        attributes, data = squeezed(attributes, data) or (attributes, data)
    return data, attributes


def as_record(item: Buffer | EntryRecord) -> EntryRecord:
    return item if isinstance(item, EntryRecord) else EntryRecord(item)


def records_of(handle: Appending, records: Sequence[EntryRecord]) -> bytes:
    """The keys, timestamps and headers of these records, encoded as they are appended."""
    encoded = encode_records(records)
    if encoded:
        _check_may_have_records(handle)
    return encoded


def _check_may_have_records(handle: Appending) -> None:
    if not handle.runtime.has_level(LEVEL_OF_RECORDS):
        raise UsageError(
            f"{handle.what}: keys, timestamps and headers need level {LEVEL_OF_RECORDS} of the cluster, and builds "
            "that cannot read them may come back; nothing was appended",
            hint="when every node runs this build: embedbk quorum raise",
        )


def batch_of(handle: Appending, parts: Sequence[Buffer | EntryRecord]) -> tuple[bytes, list[int], bytes]:
    """A batch as one entry: the bytes of all parts, where each part ends, and what the parts have as records."""
    is_one = isinstance(parts, bytes | bytearray | memoryview | str | EntryRecord)
    if is_one or not isinstance(parts, Iterable) or not isinstance(parts, Sized) or not len(parts):
        raise UsageError("a batch is a list of at least one record; nothing was appended")
    records = list(map(as_record, parts))
    for record in records:
        value = record.value
        if not isinstance(value, bytes | bytearray | memoryview) or not memoryview(value).c_contiguous:
            refuse_payload(value)
    # Taken once: another thread may change them, and ends that are not those of the bytes end the handle.
    values = [bytes(record.value) for record in records]
    ends = list(itertools.accumulate(map(len, values)))
    return b"".join(values), ends, records_of(handle, records)


def run_of(handle: Appending, items: Sequence[Buffer | EntryRecord]) -> Items:
    """The items of one call, as consecutive entries; no object per entry is made where they are payloads that stay as
    they are."""
    if isinstance(items, bytes | bytearray | memoryview | str):
        raise UsageError(
            f"append_many takes a list of payloads; this is one {type(items).__name__}",
            hint="append takes one",
        )
    if not isinstance(items, Iterable):
        raise UsageError(f"append_many takes a list of payloads; this is {items!r:.80}")
    run: Any = items if isinstance(items, list | tuple | Rows) else list(items)
    if len(run) and not isinstance(run, Rows) and isinstance(run[0], EntryRecord):
        run = _record_run(handle, run)
    if isinstance(run, Rows) and run.has_records:
        _check_may_have_records(handle)
    if handle.compression is not None:
        run = squeezed_run(run)
    as_stored: Items = run
    return as_stored


def _record_run(handle: Appending, items: Sequence[Buffer | EntryRecord]) -> RecordRun:
    records = list(map(as_record, items))
    attributes = [encode_attributes(records=records_of(handle, [record])) for record in records]
    return RecordRun([record.value for record in records], attributes)
