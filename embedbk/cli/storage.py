"""The commands that read what is stored, offline: `storage check`, `journal cat`, `entrylog cat`, `index cat`; and two
that write one file, the read-only marker of a bookie: `storage read-only`, `storage writable`.

Decide how what was read is shown: results on standard output, one line each or with --json one object a line, all else
on standard error. Exit code 0: clean; 1: damage was found; 2: the arguments or the path make no sense, or the result
cannot be written; 141: nobody reads it any more, so nothing is concluded. Nothing else is written anywhere
(embedbk/storage/CHECKING.md).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from embedbk.cli import let_go_of_output
from embedbk.cli.metadata_records import describe_metadata_record
from embedbk.codec.entry import read_entry
from embedbk.codec.frame import frame_of, iter_entries
from embedbk.codec.journal_records import (
    HELD_AGAIN,
    LIMBO_ENDS,
    RecordKind,
    decode_explicit_lac,
    decode_gone,
)
from embedbk.core.ledger_table import LEDGER_STATE, STATE_RANGE
from embedbk.errors import PeerError, StorageError, UsageError
from embedbk.storage.checking import MetadataFacts
from embedbk.storage.directory_discovery import (
    DirectoryReport,
    check_place,
    find_places,
    hold_place,
    ledger_directories,
)
from embedbk.storage.entry_log_reader import (
    EntryLog,
    Whose,
    is_entry,
    parse_log_name,
    read_entry_log,
    why_no_entry,
)
from embedbk.storage.findings import Finding, Findings
from embedbk.storage.journal_reader import JournalRecord, look_at_journal, walk_records
from embedbk.storage.raw_files import DiskDirectory
from embedbk.storage.read_only_marker import end_read_only, keep_read_only

__all__ = ["run_storage"]

_CLEAN, _DAMAGED, _USAGE = 0, 1, 2
_TELL_S = 1.0  # A check that takes longer prints its progress.
_SHOWN_BYTES = 24  # Bytes of a payload in the text for people.
_FLAGS = ((1, "fenced"), (2, "in limbo"), (4, "dropped"))


_READ_ONLY = (
    "a bookie, running or not, shall take no normal adds until `writable` is said: its open ledgers leave it, where "
    "others can take their seats; embedbk bookie read-only is a word in the metadata, and lets them stay"
)


def run_storage(noun: str, arguments: Sequence[str]) -> int:
    """Run one of the commands; its exit code."""
    options = _parser(noun).parse_args(arguments)
    run = {
        ("storage", "check"): _check,
        ("storage", "read-only"): _read_only,
        ("storage", "writable"): _writable,
        ("journal", "cat"): _journal_cat,
        ("entrylog", "cat"): _entry_log_cat,
        ("index", "cat"): _index_cat,
    }[noun, options.verb]
    try:
        code = run(options)
        sys.stdout.flush()  # What nobody could read is no result.
    except BrokenPipeError:
        raise
    except (UsageError, StorageError, OSError) as wrong:
        let_go_of_output()
        told = f"the system refuses: {wrong}" if isinstance(wrong, OSError) else str(wrong)
        print(f"embedbk {noun} {options.verb}: {told}", file=sys.stderr)
        return _USAGE
    return code


def _read_only(options: argparse.Namespace) -> int:
    keep_read_only(_bookie_root(options.path), options.reason)
    print(f"{options.path}: read-only; a running bookie sees it within seconds")
    return _CLEAN


def _writable(options: argparse.Namespace) -> int:
    had_word = end_read_only(_bookie_root(options.path))
    print(
        f"{options.path}: {'writable again, as far as it has room' if had_word else 'nobody had said read-only'}"
    )
    return _CLEAN


def _bookie_root(path: Path) -> Path:
    """The directory of one bookie."""
    places = find_places(path)
    if [(place.kind, place.root) for place in places] != [("bookie", path)]:
        raise UsageError(
            f"{path} is no directory of one bookie", hint="give what `embedbk bookie --dir` was given"
        )
    for purpose, part in places[0].parts.items():
        if part == path:  # A bookie never looks for a marker there.
            raise UsageError(
                f"{path} is the {purpose} directory of a bookie, not its own",
                hint="give what `embedbk bookie --dir` was given; with embedbk.open, the bookie's folder in the "
                "cluster's directory",
            )
    return path


def _parser(noun: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"embedbk {noun}", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    if noun == "storage":
        verb = verbs.add_parser(
            "check",
            allow_abbrev=False,
            help="read every byte of a stopped bookie, member or cluster and say what is damaged",
            description="Read every byte of the directories of a bookie, of a metadata member, or of a directory that "
            "holds several, and say what is damaged. Trusts nothing and writes nothing. "
            "Exit code 0: clean; 1: damaged; 2: cannot be checked.",
        )
        verb.add_argument(
            "path", type=Path, metavar="DIR", help="of one bookie or member, or of several together"
        )
        verb.add_argument(
            "--journal-dir",
            type=Path,
            action="append",
            default=[],
            help="the bookie's journal, when it is elsewhere; several in their order",
        )
        verb.add_argument(
            "--ledger-dir",
            type=Path,
            action="append",
            default=[],
            help="a directory of the bookie's entry logs, when they are elsewhere; several in their order",
        )
        verb.add_argument(
            "--in-use",
            action="store_true",
            help="also while a process has it in use: what is being written looks bad",
        )
        verb.add_argument("--quiet", action="store_true", help="no notes, only damage and the result")
        for name, says in (
            ("read-only", _READ_ONLY),
            ("writable", "the bookie may take normal adds again"),
        ):
            word = verbs.add_parser(name, allow_abbrev=False, help=says, description=says.capitalize() + ".")
            word.add_argument("path", type=Path, metavar="DIR", help="of the bookie")
            if name == "read-only":
                word.add_argument("--reason", default="", help="for people: it stands in DIR/READ_ONLY")
    elif noun == "journal":
        verb = verbs.add_parser(
            "cat", allow_abbrev=False, help="the records of a bookie's or member's journal"
        )
        verb.add_argument("path", type=Path, metavar="DIR", help="that holds the files journal-...")
        verb.add_argument(
            "--after", type=int, default=0, metavar="TOKEN", help="only records above this token"
        )
        verb.add_argument("--ledger", type=int, metavar="ID", help="only records of this ledger")
    elif noun == "entrylog":
        verb = verbs.add_parser("cat", allow_abbrev=False, help="the entries of one entry log")
        verb.add_argument("path", type=Path, metavar="FILE", help="NNNNNNNN.elog")
        verb.add_argument("--ledger", type=int, metavar="ID", help="only entries of this ledger")
        verb.add_argument("--payload", action="store_true", help="with --json: the payloads too, in base64")
    else:
        verb = verbs.add_parser(
            "cat", allow_abbrev=False, help="the index in the footers of entry logs: runs and states"
        )
        verb.add_argument(
            "path", type=Path, metavar="DIR|FILE", help="a directory of entry logs, or one of them"
        )
        verb.add_argument("--ledger", type=int, metavar="ID", help="only of this ledger")
    verb.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


class _Shown:
    """Results on standard output, damage and notes where they belong."""

    def __init__(self, is_json: bool) -> None:
        self.is_json = is_json

    def line(self, data: dict[str, Any], text: str) -> None:
        print(json.dumps(data, separators=(",", ":")) if self.is_json else text)

    def finding(self, finding: Finding) -> None:
        self.line(finding.as_data(), f"{'DAMAGE' if finding.is_damage else 'note'}  {finding}")


# --- storage check ------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> int:
    shown = _Shown(options.json)
    damages = 0
    reports: list[DirectoryReport] = []
    places = find_places(options.path, options.journal_dir, options.ledger_dir)
    with ExitStack() as stack:
        if not options.in_use:
            for place in places:
                hold_place(place, stack)
        for place in places:
            report = check_place(place, progress=_Progress())
            reports.append(report)
            if place is places[-1]:
                _check_cookies(reports)
                _note_missing(reports)
    for report in reports:
        for finding in report.findings.found:
            if finding.is_damage or not options.quiet:
                shown.finding(finding)
        shown.line({"result": "check", **report.as_data()}, _summary(report))
        damages += report.findings.damage_count
    return _DAMAGED if damages else _CLEAN


def _check_cookies(reports: list[DirectoryReport]) -> None:
    """The metadata's record of each bookie, where both are here (P7.2, P7.9)."""
    for facts in [each.facts for each in reports if isinstance(each.facts, MetadataFacts)]:
        for report in reports:
            if report.place.kind != "bookie" or not report.incarnation:
                continue
            known = facts.cookies.get(report.node_id)
            if facts.cluster_token and report.cluster_token != facts.cluster_token:
                report.findings.damage(
                    str(report.place.root),
                    f"it belongs to the cluster {report.cluster_token.hex()}, the metadata beside it to "
                    f"{facts.cluster_token.hex()}",
                )
            elif known is not None and known.incarnation != report.incarnation:
                report.findings.damage(
                    str(report.place.root),
                    f"the cluster knows {report.node_id!r} with incarnation {known.incarnation.hex()}: wiped or "
                    "swapped disks?",
                )
            elif known is not None and known.starts and not report.starts.has(known.starts, known.start):
                report.findings.damage(
                    str(report.place.root),
                    f"the cluster knows start number {known.starts} of {report.node_id!r} at {known.place}, which is "
                    "none of these directories': an older copy, or copied (P7.9)",
                )


def _note_missing(reports: list[DirectoryReport]) -> None:
    """Bookies that the metadata knows and that are not here: elsewhere, or gone (P7.2)."""
    here = {report.node_id for report in reports if report.place.kind == "bookie"}
    for report in reports if here else ():
        if isinstance(report.facts, MetadataFacts):
            for bookie_id in sorted(report.facts.cookies.keys() - here):
                report.findings.note(
                    str(report.place.root),
                    f"the cluster knows bookie {bookie_id!r}, whose directory is not here",
                )


def _summary(report: DirectoryReport) -> str:
    facts, findings = report.facts, report.findings
    if isinstance(facts, MetadataFacts):
        read = f"{facts.records} records, revision {facts.revision}"
    else:
        read = (
            f"{facts.entries} entries in {facts.entry_logs} entry logs, {facts.journal_records} journal records above "
            f"the log mark {facts.log_mark}, {facts.ledgers} ledgers, {facts.fenced} fenced"
        )
    state = f"{findings.damage_count} DAMAGED" if findings.damage_count else "clean"
    name = (
        f"{report.place.kind} {report.node_id}" if report.node_id != report.place.kind else report.place.kind
    )
    return f"{name} in {report.place.root}: {state}; {read}"


class _Progress:
    """Says on a terminal's standard error where a long check is."""

    def __init__(self) -> None:
        self._bytes = 0
        self._told_at = time.monotonic()

    def __call__(self, path: str, size: int) -> None:
        self._bytes += size
        if time.monotonic() - self._told_at >= _TELL_S and sys.stderr.isatty():
            self._told_at = time.monotonic()
            print(f"embedbk storage check: {self._bytes >> 20} MiB read, in {path}", file=sys.stderr)


# --- journal cat --------------------------------------------------------------------------------------------


def _journal_cat(options: argparse.Namespace) -> int:
    shown = _Shown(options.json)
    path = _existing_directory(options.path)
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
    return _tell(findings, shown)


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


# --- entrylog cat, index cat --------------------------------------------------------------------------------


def _entry_log_cat(options: argparse.Namespace) -> int:
    shown = _Shown(options.json)
    findings = Findings()
    path = _existing_entry_log(options.path)
    with DiskDirectory(path.parent).open(path.name) as file:
        log = _read_log(file, path, findings)
        if log is None:
            return _tell(findings, shown)
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
    return _tell(findings, shown)


def _index_cat(options: argparse.Namespace) -> int:
    shown = _Shown(options.json)
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
    return _tell(findings, shown)


def _show_descriptor(shown: _Shown, log: EntryLog) -> None:
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


def _show_state(shown: _Shown, name: str, state: tuple[Any, ...]) -> None:
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


# --- Paths and ends -----------------------------------------------------------------------------------------


def _existing_directory(path: Path) -> Path:
    try:
        os.listdir(path)
    except NotADirectoryError:
        raise UsageError(f"{path} is not a directory", hint="give the directory that it stands in") from None
    except OSError as refused:
        raise UsageError(f"directory {path} cannot be read: {refused.strerror}") from refused
    return path


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
    if not any(_is_finished(name) for name in os.listdir(_existing_directory(path))):
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


def _tell(findings: Findings, shown: _Shown) -> int:
    """Damage and notes behind the results; in text on standard error, so that results can be piped."""
    for finding in findings.found:
        if shown.is_json:
            shown.finding(finding)
        else:
            print(f"{'DAMAGE' if finding.is_damage else 'note'}  {finding}", file=sys.stderr)
    return _DAMAGED if findings.damage_count else _CLEAN


def _short(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 3] + "..."
