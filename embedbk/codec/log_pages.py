"""The pages of a log's list: what stands in them and under which keys (P8.6), as values of the metadata quorum.

A page holds older ledgers of a log, all closed, in the order of the log. It is written once, in the transaction that
takes them off the list itself, and goes when all of them were truncated; it never changes in between.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.log_list import LogPages, LogSegment
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError

__all__ = ["LogPage", "decode_log_page", "encode_log_page", "log_page_path", "log_pages_prefix"]


class LogPage(msgspec.Struct, frozen=True, array_like=True):
    """Ledgers of a log, one behind the other; all are recorded as closed, with their places."""

    version: int
    segments: tuple[LogSegment, ...]


def log_pages_prefix(name: str) -> str:
    return f"/log-pages/{name}/"


def log_page_path(name: str, pages: LogPages, number: int) -> str:
    return f"{log_pages_prefix(name)}{pages.series:016x}/{number:016x}"


def encode_log_page(page: LogPage) -> bytes:
    return msgspec.msgpack.encode(page)


def decode_log_page(data: bytes, name: str, number: int) -> LogPage:
    """Raises StorageError for bytes that are no page of a version this code knows, and for ledgers with a gap between
    them, or of which one is named twice: every search for a position or a ledger relies on this."""
    what = f"page {number} of the list of log {name!r}"
    page = unpack(_decoder, data, StorageError, f"{what}: these {len(data)} bytes are none")
    if page.version != METADATA_VERSION:
        raise StorageError(
            f"{what} has version {page.version}; this embedbk knows {METADATA_VERSION}",
            hint="use a newer embedbk for this log; nothing of it was changed",
        )
    if not page.segments:
        raise StorageError(f"{what} names no ledger")
    for segment in page.segments:
        if segment.first_offset is None or segment.last_entry is None:
            raise StorageError(f"{what} does not tell where ledger {segment.ledger_id} begins and ends")
    if len({segment.ledger_id for segment in page.segments}) != len(page.segments):
        raise StorageError(f"{what} names a ledger twice")
    for one, other in pairwise(page.segments):
        assert one.first_offset is not None
        assert one.last_entry is not None
        if one.first_offset + one.last_entry + 1 != other.first_offset:
            raise StorageError(
                f"{what}: ledger {other.ledger_id} does not begin where the one before it ends"
            )
    return page


_decoder = msgspec.msgpack.Decoder(LogPage)
