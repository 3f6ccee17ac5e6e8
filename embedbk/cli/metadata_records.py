"""How a record of a metadata member's log is shown (`embedbk journal cat`).

Decides nothing: every record is printed, and one that cannot be read is printed as such.
"""

from __future__ import annotations

from typing import Any

from embedbk.errors import StorageError
from embedbk.metadata.commands import decode_command
from embedbk.metadata.log_records import decode_persist
from embedbk.metadata.raft_vocabulary import Entry
from embedbk.storage.journal_reader import JournalRecord
from embedbk.storage.metadata_log import (
    KIND_COMMAND,
    KIND_IDENTITY,
    KIND_SALVAGED,
    KIND_SNAPSHOT,
    KIND_STEP,
    decode_identity,
)
from embedbk.storage.snapshots import KIND_NAMED, Named

__all__ = ["describe_metadata_record"]

SHOWN_CHARS = 160

_NAMES = {
    KIND_COMMAND: "COMMAND",
    KIND_SNAPSHOT: "SNAPSHOT",
    KIND_IDENTITY: "IDENTITY",
    KIND_NAMED: "NAMED",
    KIND_STEP: "STEP",
    KIND_SALVAGED: "SALVAGED",
}


def describe_metadata_record(record: JournalRecord) -> tuple[dict[str, Any], str]:
    """Fields for JSON, and a line for people."""
    name = _NAMES.get(record.kind)
    data: dict[str, Any] = {"name": name, "index": record.ledger_id}
    label = f"{name or f'kind {record.kind}'} {record.ledger_id}"
    try:
        more, text = _describe(record)
    except StorageError as broken:
        return {**data, "broken": str(broken)}, f"{label}  BROKEN: {broken}"
    return {**data, **more}, f"{label}  {text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + '...'}"


def _describe(record: JournalRecord) -> tuple[dict[str, Any], str]:
    if record.kind == KIND_COMMAND:
        command = decode_command(record.body)
        return {"command": type(command).__name__, "shown": repr(command)}, repr(command)
    if record.kind == KIND_STEP:
        step = decode_persist(record.body)
        vote = f"{step.vote.member.name}/{step.vote.nonce.hex()}" if step.vote is not None else None
        entries = [_describe_entry(entry) for entry in step.entries]
        data = {"term": step.term, "vote": vote, "keep_index": step.keep_index, "entries": entries}
        shown = "; ".join(f"{entry['index']}: {entry['shown']}" for entry in entries)
        return data, f"term {step.term} vote {vote} behind {step.keep_index}  {shown}"
    if record.kind == KIND_IDENTITY:
        identity, start = decode_identity(record.token, record.body)
        data = {"member": identity.name, "incarnation": identity.incarnation.hex()}
        data["start"] = start.count if start is not None else None
        return data, f"{identity.name}/{identity.incarnation.hex()} start {data['start']}"
    if record.kind == KIND_NAMED:
        named = Named.decode(record.token, record.ledger_id, record.body)
        return {"term": named.term, "file": named.name}, named.name
    return {}, f"{len(record.body)} bytes"


def _describe_entry(entry: Entry) -> dict[str, Any]:
    body = decode_command(entry.body) if isinstance(entry.body, bytes) else entry.body
    kind = type(body).__name__ if body is not None else None
    return {"index": entry.index, "term": entry.term, "kind": kind, "shown": repr(body)}
