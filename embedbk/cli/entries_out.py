"""Entries on standard output: as they are, a line each, or as JSON; and places of a log as people write them.

Decides the bytes that `embedbk log read | tail` and `embedbk ledger read` write, and what --from and --to mean.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from embedbk.cli.entries_json import as_json
from embedbk.client.batches import Entry
from embedbk.client.log import Log
from embedbk.client.times import parse_time
from embedbk.errors import Lost, UsageError
from embedbk.ids import LEDGER_ID_MAX, Position

__all__ = [
    "PLACE_HELP",
    "add_format",
    "add_places",
    "parse_place",
    "place_in",
    "write_entries",
    "write_entry",
]

# Help text of an option that takes a place.
PLACE_HELP = "OFFSET, LEDGER:ENTRY, or a time (2026-11-26T08:30:00Z): the first entry at or behind it"
_PLACE = re.compile(r"([0-9]{1,19})(?::([0-9]{1,19}))?", re.ASCII)


def add_format(made: argparse.ArgumentParser) -> None:
    made.add_argument("--places", action="store_true", help="OFFSET LEDGER:ENTRY in front of each entry")
    made.add_argument(
        "--raw", action="store_true", help="the bytes alone, without an end of line behind each"
    )
    made.add_argument(
        "--skip-lost",
        action="store_true",
        help="go on behind entries that were given up for ever, and name them; then 1 is the exit status",
    )


def add_places(made: argparse.ArgumentParser) -> None:
    for name, what in (
        ("from", "the first entry that is read"),
        ("to", "the first that is not read any more"),
    ):
        made.add_argument(f"--{name}", dest=f"{name}_place", metavar="PLACE", help=f"{what}: {PLACE_HELP}")


def parse_place(text: str | None) -> Position | int | datetime | None:
    """An offset, a position, or a time. Raises UsageError: the text is none of these."""
    if text is None:
        return None
    match = _PLACE.fullmatch(text)
    if match is None and (time := parse_time(text)) is not None:
        return time
    if match is None or any(int(number) > LEDGER_ID_MAX for number in match.groups() if number):
        raise UsageError(
            f"{text[:80]!r} is no place of a log",
            hint="an offset, as 17, a position, as 3:17, or a time, as 2026-11-26T08:30:00Z",
        )
    return int(match[1]) if match[2] is None else Position(int(match[1]), int(match[2]))


def place_in(log: Log, place: Position | int | datetime | None) -> Position | int | None:
    """The place in the log; for a time, that of the first entry at or behind it, or the end of the log."""
    return log.first_at(place) if isinstance(place, datetime) else place


def write_entries(
    read: Callable[[Any], Iterable[Entry]], place: Position | int | None, options: argparse.Namespace
) -> int:
    """Write entries from this place on, and on request also behind each gap. Returns how many gaps there were."""
    gaps = 0
    while True:
        try:
            for entry in read(place):
                write_entry(entry, options)
        except Lost as gap:
            if not options.skip_lost:
                raise
            gaps += 1
            place = gap.next_offset
            _write_lost(gap, options)
        else:
            return gaps


def _write_lost(gap: Lost, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({"ledger": gap.ledger_id, "lost": [gap.first_entry, gap.last_entry]}), flush=True)
        return
    sys.stdout.flush()
    print(f"embedbk: {gap}", file=sys.stderr)


def write_entry(entry: Entry, options: argparse.Namespace) -> None:
    out = sys.stdout.buffer
    if options.json:
        out.write(json.dumps(as_json(entry)).encode() + b"\n")
        return
    if options.places:
        out.write(f"{entry.offset} {entry.ledger_id}:{entry.entry_id} ".encode())
    out.write(entry.data)
    if not options.raw:
        out.write(b"\n")
