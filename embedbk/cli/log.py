"""`embedbk log VERB [NAME] --at CLUSTER`: what people do with a log at a terminal.

Decides what is shown of logs, and what has to be typed before something is fenced or deleted. The cluster may be one
that runs, or a directory: one that a process has open is reached through that process.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from embedbk.cli import INTERRUPTED
from embedbk.cli.entries_json import parse_line
from embedbk.cli.entries_out import (
    PLACE_HELP,
    add_format,
    add_places,
    parse_place,
    place_in,
    write_entries,
)
from embedbk.cli.log_keeping import add_keeping
from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.client.batches import Entry
from embedbk.client.client import Client
from embedbk.client.log import Log
from embedbk.client.log_checking import check_log, known_ledgers
from embedbk.client.log_writer import LogWriter
from embedbk.client.waiting import run_blocking
from embedbk.codec.entry_records import EntryRecord
from embedbk.errors import EmbedbkError, NoSuchLedger, UsageError
from embedbk.ids import Position

__all__ = ["run_log"]

Given = bytes | EntryRecord | list[EntryRecord]  # One entry, or an atomic batch, to be appended.
Reach = Callable[[], Client]
# Entries appended before the command waits for them; the writer waits by itself if room ends first.
FLUSH_ENTRIES = 10_000


def run_log(arguments: Sequence[str]) -> int:
    commands = Commands("log", "Logs of a cluster.")
    made = commands.add("list", _list, "the names of all logs", reach=client_of)
    made.add_argument("prefix", nargs="?", default="", help="only names that begin so")
    _add(commands, "show", _show, "its ledgers, and how many entries it has")
    made = _add(commands, "append", _append, "append each line of standard input, or what is given")
    made.add_argument("entries", nargs="*", metavar="ENTRY", help="instead of standard input")
    made.add_argument("--whole", action="store_true", help="all of standard input is one entry")
    made.add_argument(
        "--from-json",
        action="store_true",
        help="each line is JSON, as read --json writes it: keys and headers, too",
    )
    made.add_argument(
        "--take-over", action="store_true", help="also from a writer that may be at work, which is fenced"
    )
    made = _add(commands, "read", _read, "its entries, as far as they are acknowledged")
    add_places(made)
    add_format(made)
    made = _add(commands, "tail", _tail, "entries as they come, until it is interrupted")
    made.add_argument("--from", dest="from_place", metavar="PLACE", help=f"{PLACE_HELP} (default: its end)")
    made.add_argument("--idle-s", type=float, help="end when nothing came for so long")
    add_format(made)
    add_keeping(commands, _add, _log, _refuse_beside_a_writer)
    made = commands.add(
        "check", _check, "what of their lists does not fit their ledgers; changes nothing", reach=client_of
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="of logs (default: all)")
    made = _add(commands, "rename", _rename, "give it another name; handles that have it open go on")
    made.add_argument("new_name")
    made = _add(commands, "undelete", _undelete, "bring it back, as long as it is among the deleted ones")
    made.add_argument("--as", dest="new_name", metavar="NAME", help="by another name than it had")
    made.add_argument(
        "--from",
        dest="from_place",
        metavar="PLACE",
        help="of a log that is there: put what was truncated back, until it begins there: LEDGER:ENTRY or OFFSET",
    )
    commands.add(
        "deleted", _deleted, "those that can be brought back, and until when for certain", reach=client_of
    )
    made = _add(commands, "delete", _delete, "delete it with its ledgers; it can be brought back for a while")
    made.add_argument("--force", action="store_true", help="also one that is written, or was not closed")
    made.add_argument("--yes", action="store_true", help="it is meant; else it is said what would go")
    return commands.run(arguments)


def _add(
    commands: Commands, name: str, run: Callable[[Reach, argparse.Namespace], CommandResult], text: str
) -> argparse.ArgumentParser:
    made = commands.add(name, run, text, reach=client_of)
    made.add_argument("name", help="of the log")
    made.add_argument("--password-file", metavar="FILE", help="holds the password of its ledgers")
    return made


def password_of(options: argparse.Namespace) -> bytes:
    """The file's content, without the end of its last line. Raises UsageError: it cannot be read."""
    if options.password_file is None:
        return b""
    try:
        with open(options.password_file, "rb") as file:
            return file.read().rstrip(b"\r\n")
    except OSError as refused:
        raise UsageError(f"--password-file {options.password_file} cannot be read: {refused}") from refused


def _log(client: Client, options: argparse.Namespace) -> Log:
    return client.log(options.name, password=password_of(options))


def _list(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        names = client.logs(options.prefix)
    return CommandResult({"logs": names}, "\n".join(names) if names else "no log")


def _check(reach: Reach, options: argparse.Namespace) -> CommandResult:
    """Check a log. Exit status 1: something does not fit."""
    with reach() as client:
        names = options.names or client.logs()
        what = "embedbk log check"
        known = run_blocking(known_ledgers(client._runtime, what), what)
        found = {name: run_blocking(check_log(client._runtime, name, known), what) for name in names}
    data = {
        name: [{"ledger_id": each.ledger_id, "text": each.text} for each in findings]
        for name, findings in found.items()
    }
    lines = []
    for name, findings in found.items():
        lines += [f"log {name}: {len(findings)} findings" if findings else f"log {name}: sound"]
        for each in findings:
            where = "its list" if each.ledger_id is None else f"ledger {each.ledger_id}"
            lines.append(f"  {where}: {each.text}")
    return CommandResult({"logs": data}, "\n".join(lines) or "no log", 1 if any(found.values()) else 0)


def _show(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        log = _log(client, options)
        segments, seal, log_id = log.segments(), log.sealed(), log.log_id()
    rows: list[dict[str, Any]] = [
        {
            "ledger_id": each.ledger_id,
            "first_offset": each.first_offset,
            "entries": each.last_entry + 1,
            "state": "CLOSED" if each.is_closed else "OPEN",
        }
        for each in segments
    ]
    end = segments[-1].first_offset + segments[-1].last_entry + 1 if segments else 0
    first = segments[0].first_offset if segments else 0
    data = {
        "log": options.name,
        "log_id": log_id,
        "first_offset": first,
        "end": end,
        "ledgers": rows,
        "sealed": seal and seal.reason,
    }
    lines = [
        f"log {options.name}: offsets {first} to {end - 1}" if end > first else f"log {options.name}: empty"
    ]
    lines += [
        f"  ledger {row['ledger_id']}: {row['entries']} entries from offset {row['first_offset']}, {row['state']}"
        for row in rows
    ]
    if seal is not None:
        lines.append(f"  sealed for ever by {seal.by}: {seal.reason}")
    return CommandResult(data, "\n".join(lines))


def _append(reach: Reach, options: argparse.Namespace) -> CommandResult:
    if (options.entries and (options.whole or options.from_json)) or (options.whole and options.from_json):
        raise UsageError("--whole or --from-json is for standard input; nothing was appended")
    lines = _Lines()
    with reach() as client:
        log = _log(client, options)
        if not options.take_over:
            _refuse_beside_a_writer(log)
        with log.writer() as writer:
            first = writer.first_offset
            count, refused = _appended(writer, _given(options, lines), lines)
    if refused is not None:
        raise type(refused)(
            f"entry {count + 1}: {refused.args[0]}; the {count} before it are appended",
            definite=True,
            hint=refused.hint,
        ) from refused
    data = {"log": options.name, "appended": count, "first_offset": first, "end": first + count}
    where = f", offsets {first} to {first + count - 1}" if count else ""
    text = f"{count} entries appended{where}"
    if lines.is_interrupted:
        return CommandResult(data, f"interrupted: {text}", INTERRUPTED)
    return CommandResult(data, text)


def _appended(writer: LogWriter, entries: Iterable[Given], lines: _Lines) -> tuple[int, EmbedbkError | None]:
    """How many entries were appended, and why no more: the next one is none, or certainly not appended, as at the
    log's bound."""
    count: int = 0
    refused: EmbedbkError | None = None
    try:
        for entry in entries:
            try:
                if isinstance(entry, list):
                    writer.append_batch(entry)
                else:
                    writer.append_nowait(entry)
            except EmbedbkError as error:
                if not error.definite:
                    raise
                refused = error
                break
            count += 1
            if count % FLUSH_ENTRIES == 0:
                writer.flush()
    except UsageError as error:
        refused = error
    try:
        writer.flush()
    except KeyboardInterrupt:  # The signal ends the writer of the lines, too, so that their end comes first.
        lines.is_interrupted = True
        writer.flush()
    return count, refused


def _given(options: argparse.Namespace, lines: Iterable[bytes]) -> Iterable[Given]:
    if options.entries:
        return [entry.encode(errors="surrogateescape") for entry in options.entries]
    if options.whole:
        return [sys.stdin.buffer.read()]
    return map(parse_line, lines) if options.from_json else lines


class _Lines:
    """Lines of standard input. An interruption while the next one is waited for is their end: those before it are
    appended, and the person who typed them is told so."""

    def __init__(self) -> None:
        self.is_interrupted = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            for line in sys.stdin.buffer:
                yield line.removesuffix(b"\n")
        except KeyboardInterrupt:
            self.is_interrupted = True


def _refuse_beside_a_writer(log: Log) -> None:
    """An open ledger means that a client writes, or ended without closing it: which of both is not known."""
    try:
        segments = log.segments()
    except NoSuchLedger:
        return
    if segments and not segments[-1].is_closed:
        raise UsageError(
            f"log {log.name!r} may be written now: ledger {segments[-1].ledger_id} is open; nothing was done",
            hint="--take-over fences whoever writes it, for good",
        )


def _read(reach: Reach, options: argparse.Namespace) -> CommandResult:
    first, end = parse_place(options.from_place), parse_place(options.to_place)
    with reach() as client:
        log = _log(client, options)
        begin, until = place_in(log, first), place_in(log, end)
        gaps = write_entries(lambda place: log.read(place, until), begin, options)
    return CommandResult(None, "", 1 if gaps else 0)


def _tail(reach: Reach, options: argparse.Namespace) -> CommandResult:
    first = parse_place(options.from_place)
    with reach() as client:
        log = _log(client, options)
        begin = place_in(log, first)
        gaps = write_entries(lambda place: _flushed(log.tail(place, idle_s=options.idle_s)), begin, options)
    return CommandResult(None, "", 1 if gaps else 0)


def _flushed(entries: Iterator[Entry]) -> Iterator[Entry]:
    """Flush after each entry, so that a tail shows it as soon as it arrives."""
    for entry in entries:
        yield entry
        sys.stdout.buffer.flush()


def _rename(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        log = _log(client, options)
        log.rename(options.new_name)
        data = {"log": log.name, "log_id": log.log_id(), "was": options.name}
    return CommandResult(data, f"log {options.name} is called {options.new_name} now")


def _undelete(reach: Reach, options: argparse.Namespace) -> CommandResult:
    if options.from_place is not None:
        return _undelete_truncated(reach, options)
    with reach() as client:
        log = client.undelete_log(options.name, new_name=options.new_name, password=password_of(options))
        data = {"log": log.name, "log_id": log.log_id()}
    return CommandResult(data, f"log {data['log']} is back")


def _undelete_truncated(reach: Reach, options: argparse.Namespace) -> CommandResult:
    place = parse_place(options.from_place)
    if options.new_name is not None or not isinstance(place, int | Position):
        raise UsageError(
            f"--from {options.from_place!r}: allowed is LEDGER:ENTRY or an OFFSET, without --as; nothing was changed"
        )
    with reach() as client:
        done = _log(client, options).undelete(place)
    text = f"log {options.name} begins at offset {done.reached} now: {done.ledgers} ledgers are back"
    if done.why:
        text += f"\n  {done.why}"
    return CommandResult({"log": options.name, **done._asdict()}, text, 1 if done.why else 0)


def _deleted(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        found = client.deleted_logs()
    lines = [f"{each.name}: {each.log_id}, until {each.until_ms} ms since 1970" for each in found]
    return CommandResult({"logs": [each._asdict() for each in found]}, "\n".join(lines) or "no deleted log")


def _delete(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        if not options.yes:
            count = len(_log(client, options).segments())
            raise UsageError(
                f"this would delete log {options.name!r} with its {count} ledgers; nothing was changed",
                hint="say that it is meant: --yes",
            )
        client.delete_log(options.name, password=password_of(options), force=options.force)
    return CommandResult({"deleted": options.name}, f"log {options.name} is deleted")
