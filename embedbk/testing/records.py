"""Entries with keys, timestamps and headers (WIRE.md 1, RECORDS): what users append, and what readers have to find.

What stands beside a value follows from the value, so that every reader of every entry can tell whether it is the
record's own, wherever the entry was moved, copied or recovered to.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from embedbk.client.batches import Entry
from embedbk.codec.arrow_columns import rows_of
from embedbk.codec.arrow_rows import ArrowNames, Rows
from embedbk.codec.attributes import AttributeKind, value_of
from embedbk.codec.entry_records import NO_HEADERS, EntryRecord
from embedbk.testing.arrow_bytes import FORMATS, ArrowBytes
from embedbk.testing.violation import Violation

__all__ = ["are_records_right", "arrow_rows", "dressed"]


def dressed(payload: bytes, chance: random.Random | None) -> Any:
    """The payload, or a record of it. chance None: as it is."""
    if chance is None or chance.random() < 0.5:
        return payload
    return _record_of(payload, chance.choice([1, 2, 3, 4, 5, 6, 7]))


def arrow_rows(payloads: Sequence[bytes], arrows: random.Random, chance: random.Random | None) -> Rows:
    """The payloads as rows of Arrow data in some layout, some with their keys. chance None: as they are."""
    form = arrows.choice(FORMATS)
    if chance is None or chance.random() < 0.5:
        return rows_of(ArrowBytes(payloads, form, chunk=3), ArrowNames(""))
    keys = [payload[:40] if chance.random() < 0.7 else None for payload in payloads]
    return rows_of(ArrowBytes(payloads, form, name="value", keys=keys, chunk=3), ArrowNames("value", "key"))


def _record_of(value: bytes, kinds: int) -> EntryRecord:
    """kinds: bits; has a key, a timestamp, headers."""
    return EntryRecord(
        value,
        value[:40] if kinds & 1 else None,
        len(value) if kinds & 2 else None,
        {"first": value[:1], "last": value[-300:]} if kinds & 4 else NO_HEADERS,
    )


def are_records_right(entry: Entry, attributes: Any) -> int:
    """How many records of the entry have something beside their values. Raises Violation (I7): it is not theirs."""
    if value_of(attributes, AttributeKind.RECORDS) is None:
        return 0
    found: Sequence[EntryRecord] = entry.records
    for record in found:
        kinds = (record.key is not None) + 2 * (record.timestamp is not None) + 4 * bool(record.headers)
        if record != _record_of(bytes(record.value), kinds):
            raise Violation(
                "I7", f"entry {entry.position}: a record has what is not its own beside its value"
            )
    if all(record.is_bare for record in found):
        raise Violation("I7", f"entry {entry.position}: its records lost what stood beside their values")
    return sum(not record.is_bare for record in found)
