"""Entries as JSON, a line each: what `embedbk log read --json` writes, and `embedbk log append --from-json` takes.

    {"value": TEXT or "base64": ..., "key": BYTES, "timestamp": MS, "headers": {NAME: BYTES}}
    {"records": [the same, ...]}    an atomic batch

BYTES: a string where they are text, else {"base64": ...}. What is read says where it stood, too (offset, ledger_id,
entry_id); what is appended gets a place of its own.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from embedbk.client.batches import Entry
from embedbk.codec.entry_records import NO_HEADERS, EntryRecord
from embedbk.codec.packing import Buffer
from embedbk.errors import UsageError

__all__ = ["as_json", "parse_line"]

_PLACE = {"offset", "ledger_id", "entry_id"}
_BASE64 = "base64"


def as_json(entry: Entry) -> dict[str, Any]:
    """The value as text where it is text, else in base64; and what stands beside it. An atomic batch: its records."""
    told: dict[str, Any] = {
        "offset": entry.offset,
        "ledger_id": entry.ledger_id,
        "entry_id": entry.entry_id,
    }
    records = entry.records
    if len(records) > 1:
        return told | {"records": list(map(_of_record, records))}
    return told | _of_record(records[0])


def _of_record(record: EntryRecord) -> dict[str, Any]:
    value = _as_text(record.value)
    told: dict[str, Any] = {"value": value} if isinstance(value, str) else {**value}
    if record.key is not None:
        told["key"] = _as_text(record.key)
    if record.timestamp is not None:
        told["timestamp"] = record.timestamp
    if record.headers:
        told["headers"] = {name: _as_text(value) for name, value in record.headers.items()}
    return told


def _as_text(data: Buffer) -> str | dict[str, str]:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}


def parse_line(line: bytes) -> EntryRecord | list[EntryRecord]:
    """What a line says: one record, or those of an atomic batch. Raises UsageError: it is neither, and why."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError) as wrong:
        raise UsageError(f"{_shown(line)} is no JSON: {wrong}") from wrong
    if not isinstance(told, dict):
        raise UsageError(f"{_shown(line)} is no JSON object")
    left = {name: value for name, value in told.items() if name not in _PLACE}
    if "records" not in left:
        return _record(left)
    records = left.pop("records")
    if left or not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise UsageError(f"{_shown(line)}: records is a list of objects, and nothing stands beside it")
    return [_record(each) for each in records]


def _record(told: dict[str, Any]) -> EntryRecord:
    if ("value" in told) == (_BASE64 in told):
        raise UsageError("a record has either value or base64")
    if unknown := told.keys() - {"value", _BASE64, "key", "timestamp", "headers"}:
        raise UsageError(f"{sorted(unknown)[0]!r} is nothing that a record has")
    value = told["value"] if "value" in told else {_BASE64: told[_BASE64]}
    key, headers = told.get("key"), told.get("headers", NO_HEADERS)
    if not isinstance(headers, Mapping):
        raise UsageError("headers is an object of names and bytes")
    return EntryRecord(
        _as_bytes(value),
        None if key is None else _as_bytes(key),
        told.get("timestamp"),
        {name: _as_bytes(value) for name, value in headers.items()},
    )


def _as_bytes(told: Any) -> bytes:
    if isinstance(told, str):
        try:
            return told.encode()
        except UnicodeEncodeError as half:
            raise UsageError(f"{_shown(ascii(told).encode())} is no text in UTF-8") from half
    if isinstance(told, dict) and told.keys() == {_BASE64} and isinstance(told[_BASE64], str):
        try:
            return base64.b64decode(told[_BASE64], validate=True)
        except (binascii.Error, ValueError) as wrong:
            raise UsageError(f"{_shown(told[_BASE64].encode(errors='replace'))} is no base64") from wrong
    raise UsageError('bytes are a string, or {"base64": ...}')


def _shown(line: bytes) -> str:
    return repr(line[:60].decode(errors="replace"))
