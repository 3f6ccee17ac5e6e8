"""`embedbk journal cat`: the records of a journal."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from embedbk.cli.metadata_records import describe_metadata_record
from embedbk.cli.offline import Shown, existing_directory, tell
from embedbk.codec.frame import frame_of, iter_entries
from embedbk.codec.journal_records import HELD_AGAIN, LIMBO_ENDS, RecordKind, decode_explicit_lac, decode_gone
from embedbk.errors import PeerError, StorageError, UsageError
from embedbk.storage.findings import Findings
from embedbk.storage.journal_reader import JournalRecord, look_at_journal, walk_records
from embedbk.storage.raw_files import DiskDirectory

__all__ = ["journal_cat"]


def journal_cat(options: argparse.Namespace) -> int:
    shown = Shown(options.json)
    path = existing_directory(options.path)
    if not any(name.startswith("journal-") for name in os.listdir(path)):
        inner = path / "journal"
        raise UsageError(
            f"directory {path} holds no journal",
            hint=f"give {inner}" if inner.is_dir() else "give the directory that holds the files journal-...",
        )
    if options.after < 0:
        raise UsageError(f"--after {options.after}: tokens are 0 or more")
    findings = Findings()
    directory = DiskDirectory(path)
    picture = look_at_journal(directory, findings)
    describe = _describe_bookie_record if _is_bookies(path) else describe_metadata_record
    after = max(options.after, picture.first_token - 1)
    if after <= picture.last_token:
        for record in walk_records(directory, picture, after, findings):
            if options.ledger in (None, record.ledger_id):
                data, text = describe(record)
                shown.line(
                    {"token": record.token, "kind": record.kind, "bytes": len(record.body), **data},
                    f"{record.token:>10}  {text}",
                )
    return tell(findings, shown)


def _is_bookies(path: Path) -> bool:
    return (path / "IDENTITY").exists() or (path.parent / "entries").is_dir()


def _describe_bookie_record(record: JournalRecord) -> tuple[dict[str, Any], str]:
    ledger = record.ledger_id
    try:
        kind = RecordKind(record.kind)
    except ValueError:
        return {"ledger_id": ledger, "name": None}, f"kind {record.kind}, which this version does not know"
    data: dict[str, Any] = {"name": kind.name, "ledger_id": ledger}
    text = f"{kind.name:<12}  ledger {ledger}"
    try:
        if kind == RecordKind.FRAME:
            frame = frame_of(record.body, ledger)
            data |= {
                "first_entry": frame.first_entry,
                "last_entry": frame.last_entry,
                "entries": frame.entry_count,
                "lac": max(entry.lac for entry in iter_entries(frame)),
            }
            text += f"  entries {frame.first_entry}..{frame.last_entry} ({frame.entry_count}, {len(record.body)} bytes)"
        elif kind == RecordKind.EXPLICIT_LAC:
            data["lac"], data["lac_length"] = decode_explicit_lac(record.body)
            text += f"  lac {data['lac']} with {data['lac_length']} bytes"
        elif kind == RecordKind.GONE:
            data["last_ledger"] = decode_gone(ledger, record.body)
            text += f" to {data['last_ledger']}"
        elif kind == RecordKind.LIMBO:
            data["begins"] = bytes(record.body) != LIMBO_ENDS
            data["held_again"] = bytes(record.body) == HELD_AGAIN
            text += "  held again" if data["held_again"] else "  begins" if data["begins"] else "  ends"
    except (PeerError, StorageError) as broken:
        data["broken"] = str(broken)
        text += f"  BROKEN: {broken}"
    return data, text
