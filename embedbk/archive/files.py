"""One file of an archive: a run of entries of one ledger as Parquet, written and looked through.

Decides what a sound file is: Parquet whose pages fit their checksums, whose rows are entries that pass the scan of a
frame, without a gap from the first to the last one, and which are the rows that these very entries give. Leaves to
`place` how it gets its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from embedbk.archive.columns import (
    BODY_BYTES_MAX,
    SCHEMA,
    SCHEMA_WITH_STORED,
    body_of,
    bytes_in,
    digest_sum,
    in_each_row,
    payload_sum,
    rows_of,
)
from embedbk.client.batches import Located
from embedbk.client.compression import plain
from embedbk.codec import kernels
from embedbk.codec.entry_digest import DIGEST_MASK
from embedbk.codec.frame import Frame, frame_of, merge
from embedbk.errors import PeerError, StorageError

__all__ = ["EntryRun", "HasCompressed", "Summed", "sound_bodies", "sound_rows", "summed", "write_rows"]

_ENTRY_ID = SCHEMA.get_field_index("entryId")
ROW_GROUP_BYTES = 16 << 20  # Bytes of entries in a row group: held in memory while a file is written or read.


class EntryRun(NamedTuple):
    """Entries first..last, both included, of a ledger whose entry 0 has this offset in its log."""

    log_id: str
    ledger_id: int
    first: int
    last: int
    first_offset: int


class HasCompressed(Exception):
    """A run has an entry that is stored compressed, so its file needs one column more."""


class Summed(NamedTuple):
    """Sums over a whole run, as a file or bookies hold it."""

    rows: int
    payload_bytes: int  # Payload bytes as they are stored.
    digest: int


def write_rows(
    file: Any,
    run: EntryRun,
    located: Iterable[Located],
    time_ms: int | None,
    facts: dict[str, str],
    *,
    has_stored: bool = False,
) -> Summed:
    """Write the entries of a run, as they come in order, as one Parquet file. facts: for its metadata.

    time_ms: the time of the entry in front of the run. has_stored: write SCHEMA_WITH_STORED.

    Raises:
        StorageError: other entries came.
        HasCompressed: an entry is compressed, and has_stored is False; the file's content is void.
        EntryUnreadable: a compressed entry cannot be unpacked.
    """
    rows = payload_bytes = digest = 0
    following, held_bytes, held = run.first, 0, list[pa.RecordBatch]()
    writer = pq.ParquetWriter(
        file,
        SCHEMA_WITH_STORED if has_stored else SCHEMA,
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=["log", "ledgerId"],
    )

    def write_out() -> None:
        nonlocal held_bytes, rows
        if held:
            table = pa.Table.from_batches(held)
            writer.write_table(table, row_group_size=table.num_rows)
            rows += table.num_rows
            held.clear()
            held_bytes = 0

    try:
        for frame, first_offset in located:
            first, last, count, _, ledger_id = kernels.scan(frame.body)
            is_next = first == following and last - first + 1 == count and last <= run.last
            if not is_next or ledger_id != run.ledger_id or first_offset != run.first_offset:
                raise StorageError(
                    f"entries {first}..{last} of ledger {ledger_id} came, and {following} of {run.ledger_id} is next"
                )
            if not has_stored and kernels.compressed(frame.body, count):
                raise HasCompressed
            for stored, unpacked in _unpacked(frame):
                given = unpacked if has_stored else None
                batch, time_ms = rows_of(stored, run.log_id, ledger_id, first_offset, time_ms, given)
                held.append(batch)
                held_bytes += len(unpacked)
                if held_bytes >= ROW_GROUP_BYTES:
                    write_out()
            following = last + 1
            payload_bytes += payload_sum(frame.body)
            digest = (digest + digest_sum(frame.body)) & DIGEST_MASK
        if following != run.last + 1:
            raise StorageError(
                f"ledger {run.ledger_id}: of the entries {run.first}..{run.last} those up to {following - 1} could "
                "be read",
                hint="try again when more of its bookies answer",
            )
        write_out()
        counts = {"embedbk.rows": str(rows), "embedbk.digest": f"{digest:016x}"}
        writer.add_key_value_metadata({**facts, **counts})
    finally:
        writer.close()
    return Summed(rows, payload_bytes, digest)


def _unpacked(frame: Frame) -> Iterator[tuple[memoryview, memoryview]]:
    """The entries of a frame as they are stored, and the same with none of them compressed, in pieces that are no
    larger than a frame when they are unpacked."""
    for piece, _ in plain(Located(frame, 0)):
        if piece is frame:
            yield frame.body, frame.body
            continue
        run = merge([frame], piece.first_entry, piece.last_entry)
        assert run is not None
        yield run.body, piece.body


def _row_groups(file: Any, first: int | None = None, last: int | None = None) -> Iterator[pa.Table]:
    """The rows of a file, a row group at a time; each begins with the first row of an entry. first, last: only groups
    with an entry of these, as far as the file says which have one.

    Raises PeerError: it is no Parquet, a page does not fit its checksum, or a row group is larger than in any archive.
    """
    try:
        parquet = pq.ParquetFile(file, page_checksum_verification=True)
        for number in range(parquet.num_row_groups):
            if parquet.metadata.row_group(number).total_byte_size > BODY_BYTES_MAX:
                raise PeerError(f"row group {number} is larger than any of an archive")
            if first is None or last is None or _may_have(parquet, number, first, last):
                yield parquet.read_row_group(number)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as unread:
        if isinstance(unread, OSError) and unread.errno is not None:
            raise  # The device failed, not the file.
        raise PeerError(f"it is no sound Parquet: {unread}") from unread


def _may_have(parquet: pq.ParquetFile, number: int, first: int, last: int) -> bool:
    """Whether a row group may have an entry of first..last. Only of a file whose hash was checked: pyarrow ends the
    process where a damaged footer says impossible things of a column."""
    told = parquet.metadata.row_group(number).column(_ENTRY_ID).statistics
    return told is None or not told.has_min_max or (told.min <= last and told.max >= first)


def summed(file: Any, run: EntryRun) -> Summed:
    """The sums of a file of this run. Raises PeerError: anything is wrong with it."""
    row_count = payload_bytes = digest = 0
    for rows, body in sound_rows(file, run):
        row_count += rows.num_rows
        payload_bytes += payload_sum(body)
        digest = (digest + digest_sum(body)) & DIGEST_MASK
    return Summed(row_count, payload_bytes, digest)


def sound_rows(file: Any, run: EntryRun) -> Iterator[tuple[pa.Table, memoryview]]:
    """The rows of a file of this run, checked, and the entries that they are, as bodies of frames.

    Raises PeerError: anything is wrong with it; the message says what. EntryUnreadable: it has compressed entries, and
    one cannot be unpacked here.
    """
    following, time_ms = run.first, None
    for rows in _row_groups(file):
        body = body_of(rows)
        first, last, count, _, ledger_id = kernels.scan(body)
        if first != following or last - first + 1 != count or last > run.last or ledger_id != run.ledger_id:
            raise PeerError(
                f"it has {count} entries {first}..{last} of ledger {ledger_id} where entry {following} of "
                f"{run.ledger_id} is next, up to {run.last}"
            )
        if following == run.first > 0:
            time_ms = rows.column("time").cast(pa.int64())[0].as_py()  # That of an entry in another file.
        has_stored, at = rows.schema.equals(SCHEMA_WITH_STORED), 0
        differs = f"its columns are not those of the entries {first}..{last} that stand in it"
        if not has_stored and kernels.compressed(body, count):
            raise PeerError(differs)
        for stored, unpacked in _unpacked(frame_of(body)):
            given = unpacked if has_stored else None
            anew, time_ms = rows_of(stored, run.log_id, ledger_id, run.first_offset, time_ms, given)
            there = rows.slice(at, anew.num_rows)
            if not (_is(anew, there) or _is(in_each_row(anew, bytes_in(there.column("attributes"))), there)):
                raise PeerError(differs)
            at += anew.num_rows
        if at != rows.num_rows:
            raise PeerError(differs)
        following = last + 1
        yield rows, body
    if following != run.last + 1:
        raise PeerError(f"it ends at entry {following - 1}, want {run.last}")


def _is(rows: pa.RecordBatch | None, there: pa.Table) -> bool:
    return rows is not None and bool(pa.Table.from_batches([rows]).equals(there))


def sound_bodies(file: Any, run: EntryRun, first: int, last: int) -> Iterator[memoryview]:
    """The entries first..last of a file of this run, checked, as bodies of frames; more may come along in front and
    behind. Other columns are not checked.

    Raises PeerError: one of them is not there, whole.
    """
    following: int | None = None
    for rows in _row_groups(file, first, last):
        body = body_of(rows)
        begin, end, count, _, ledger_id = kernels.scan(body)
        is_next = begin <= first if following is None else begin == following
        if not is_next or end - begin + 1 != count or end > run.last or ledger_id != run.ledger_id:
            raise PeerError(
                f"it has {count} entries {begin}..{end} of ledger {ledger_id} where entry "
                f"{first if following is None else following} of {run.ledger_id} is next, up to {run.last}"
            )
        following = end + 1
        yield body
        if following > last:
            return
    raise PeerError(f"it ends at entry {first - 1 if following is None else following - 1}, want {last}")
