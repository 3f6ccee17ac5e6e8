"""`embedbk entrylog cat` and `embedbk index cat`: the entries of an entry log, and the index in its footer."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from embedbk.cli.offline import Shown, existing_directory, tell
from embedbk.codec.entry import read_entry
from embedbk.core.ledger_table import LEDGER_STATE, STATE_RANGE
from embedbk.errors import UsageError
from embedbk.storage.directory_discovery import ledger_directories
from embedbk.storage.entry_log_reader import (
    EntryLog,
    Whose,
    is_entry,
    parse_log_name,
    read_entry_log,
    why_no_entry,
)
from embedbk.storage.findings import Findings
from embedbk.storage.raw_files import DiskDirectory

__all__ = ["entry_log_cat", "index_cat"]

_SHOWN_BYTES = 24  # Bytes of a payload in the text for people.
_FLAGS = ((1, "fenced"), (2, "in limbo"), (4, "dropped"))


def entry_log_cat(options: argparse.Namespace) -> int:
    shown = Shown(options.json)
    findings = Findings()
    path = _existing_entry_log(options.path)
    with DiskDirectory(path.parent).open(path.name) as file:
        log = _read_log(file, path, findings)
        if log is None:
            return tell(findings, shown)
        _show_descriptor(shown, log)
        for ledger_id, entry_id, offset, size in log.located():
            if options.ledger not in (None, ledger_id):
                continue
            try:
                raw = file.read(offset, size)
                why = "" if is_entry(raw, ledger_id, entry_id) else why_no_entry(raw)
            except OSError as refused:
                why = f"cannot be read: {refused.strerror}"
            if why:
                findings.damage(str(path), why, offset=offset, ledger_id=ledger_id, first_entry=entry_id)
                continue
            entry = read_entry(memoryview(raw))
            data: dict[str, Any] = {
                "ledger_id": ledger_id,
                "entry_id": entry_id,
                "offset": offset,
                "bytes": size,
                "payload_bytes": len(entry.data),
                "length": entry.length,
                "lac": entry.lac,
            }
            if options.payload:
                import base64

                data["payload"] = base64.b64encode(entry.data).decode()
            body = _short(repr(bytes(entry.data[: _SHOWN_BYTES + 1])), _SHOWN_BYTES)
            shown.line(
                data, f"ledger {ledger_id} entry {entry_id}  at {offset}  {len(entry.data)} bytes  {body}"
            )
    return tell(findings, shown)


def index_cat(options: argparse.Namespace) -> int:
    shown = Shown(options.json)
    findings = Findings()
    for path in _entry_logs(options.path):
        try:
            with DiskDirectory(path.parent).open(path.name) as file:
                log = _read_log(file, path, findings)
        except OSError as refused:  # The other files can still be shown.
            findings.damage(str(path), f"the file cannot be read: {refused.strerror}")
            continue
        if log is None:
            continue
        _show_descriptor(shown, log)
        for state in LEDGER_STATE.iter_unpack(log.states):
            if options.ledger in (None, state[0]):
                _show_state(shown, log.name, state)
        for run in log.runs:
            if options.ledger not in (None, run.ledger_id):
                continue
            data = {
                "log": log.name,
                "ledger_id": run.ledger_id,
                "first_entry": run.first,
                "last_entry": run.last,
                "entries": run.count,
                "offset": run.offset,
                "bytes": run.size,
                "modulus": run.modulus,
                "residues": run.residues,
            }
            pattern = "" if run.modulus == 1 else f"  every id with id % {run.modulus} in {run.residues:#b}"
            if run.modulus == 0:
                pattern = "  ids one by one"
            shown.line(
                data,
                f"  run    ledger {run.ledger_id}  entries {run.first}..{run.last} ({run.count})  at {run.offset}  "
                f"{run.size} bytes{pattern}",
            )
    return tell(findings, shown)


def _show_descriptor(shown: Shown, log: EntryLog) -> None:
    found = log.descriptor
    data = {
        "log": log.name,
        "previous": found.previous_id,
        "incarnation": found.incarnation.hex(),
        "log_mark": found.mark,
        "journal_marks": log.marks,
        "part": found.part,
        "part_count": found.part_count,
        "ledgers": found.ledger_count,
        "entries": found.entry_count,
        "runs": found.run_count,
        "states": found.states_size // LEDGER_STATE.size - found.roll_count - found.journal_count,
        "bytes": found.file_size,
        "is_index_whole": log.is_index_whole,
    }
    of_flush = f" (part {found.part + 1} of {found.part_count})" if found.part_count > 1 else ""
    marks = f" ({' + '.join(map(str, log.marks))})" if log.marks else ""
    shown.line(
        data,
        f"{log.name}{of_flush}: after {found.previous_id:08x}, log mark {found.mark}{marks}, "
        f"{found.entry_count} entries of {found.ledger_count} ledgers in {found.run_count} runs, "
        f"{data['states']} ledger states, "
        f"{found.file_size} bytes",
    )


def _show_state(shown: Shown, name: str, state: tuple[Any, ...]) -> None:
    ledger_id, last_entry, lac, lac_length, _, flags, _ = state
    said = [word for bit, word in _FLAGS if flags & bit]
    data = {
        "log": name,
        "state_of": ledger_id,
        "last_entry": last_entry,
        "lac": lac,
        "lac_length": lac_length,
        "flags": said,
        "has_key": bool(flags & 8),
    }
    if flags & STATE_RANGE:
        del data["last_entry"], data["lac"], data["lac_length"]
        data["last_state_of"] = last_entry
        shown.line(data, f"  state  ledgers {ledger_id}..{last_entry}  {', '.join(said)}")
        return
    tail = f"  {', '.join(said)}" if said else ""
    shown.line(
        data, f"  state  ledger {ledger_id}  last entry {last_entry}  lac {lac} with {lac_length} bytes{tail}"
    )


def _existing_entry_log(path: Path) -> Path:
    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint="give one of its files NNNNNNNN.elog")
    try:
        with DiskDirectory(path.parent).open(path.name):
            pass
    except OSError as refused:
        raise UsageError(f"{path} cannot be read: {refused.strerror}") from refused
    return path


def _entry_logs(path: Path) -> list[Path]:
    if not path.is_dir():
        return [_existing_entry_log(path)]
    insides = [path]
    if not any(_is_finished(name) for name in os.listdir(existing_directory(path))):
        insides = ledger_directories(path) or [path]  # The directory of a whole bookie.
    found = [inside / name for inside in insides for name in os.listdir(inside) if _is_finished(name)]
    found.sort(key=lambda log: log.name)
    if not found:
        raise UsageError(
            f"directory {path} holds no entry logs",
            hint="a bookie that was never flushed has all in its journal",
        )
    return found


def _is_finished(name: str) -> bool:
    parsed = parse_log_name(name)
    return parsed is not None and not parsed[1]


def _read_log(file: Any, path: Path, findings: Findings) -> EntryLog | None:
    parsed = parse_log_name(path.name)
    if parsed is None:
        raise UsageError(f"{path} is not named as an entry log", hint="they are called NNNNNNNN.elog")
    try:
        return read_entry_log(file, path.name, parsed[0], Whose(), findings)
    except OSError as refused:
        raise UsageError(f"{path} cannot be read: {refused.strerror}") from refused


def _short(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 3] + "..."
