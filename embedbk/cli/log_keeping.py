"""`embedbk log create | settings | truncate | roll | seal | cursors | pins`: what is kept with a log, and removed from
it.

Decides what is shown, and what has to be typed before something is fenced, or deleted for good.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import Any

from embedbk.cli.entries_out import PLACE_HELP, parse_place, place_in
from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.client.client import Client
from embedbk.client.cursors import CursorState
from embedbk.client.log import Log
from embedbk.client.log_settings import LogSettings
from embedbk.config import Roll
from embedbk.errors import EmbedbkError, NotTruncated, UsageError

__all__ = ["add_keeping"]

Reach = Callable[[], Client]
LogOf = Callable[[Client, argparse.Namespace], Log]
Add = Callable[[Commands, str, Any, str], argparse.ArgumentParser]
_ROLL = ("bytes", "entries", "age_s")
_PLAIN = (
    "ensemble_size",
    "write_quorum",
    "ack_quorum",
    "durability",
    "digest",
    "retention_s",
    "retention_bytes",
    "bytes_max",
    "at_bytes_max",
    "compression",
)


def add_keeping(
    commands: Commands, add: Add, log_of: LogOf, refuse_beside_a_writer: Callable[[Log], None]
) -> None:
    """add, log_of, refuse_beside_a_writer: as the other commands about a log have them."""
    keeping = _Keeping(log_of, refuse_beside_a_writer)
    made = commands.add(
        "create", keeping.create, "make a log with settings, before anybody writes to it", reach=client_of
    )
    made.add_argument("name", help="of the log")
    _add_settings(made)
    made = add(commands, "settings", keeping.settings, "its settings, which the options change")
    _add_settings(made)
    made.add_argument(
        "--usual",
        action="append",
        default=[],
        choices=[*map(_flag, _PLAIN), "roll"],
        help="as usual again; may be repeated",
    )
    made = add(commands, "truncate", keeping.truncate, "let go of its oldest entries, by whole ledgers")
    made.add_argument("--before", metavar="PLACE", help=f"that entry stays: {PLACE_HELP}")
    made.add_argument("--older-than-s", type=float, metavar="SECONDS", help="what was appended so long ago")
    made.add_argument("--keep-bytes", type=int, metavar="BYTES", help="at least so many payload bytes stay")
    made.add_argument(
        "--force", action="store_true", help="past cursors that hold it; they hold nothing then"
    )
    made = add(commands, "roll", keeping.roll, "close its last ledger; whoever writes next begins another")
    made.add_argument(
        "--take-over", action="store_true", help="also from a writer that may be at work, which is fenced"
    )
    made = add(commands, "seal", keeping.seal, "end it for ever: nobody writes to it any more")
    made.add_argument("reason", help="which everybody is told who would write")
    made.add_argument("--yes", action="store_true", help="it is meant; else it is said what would be")
    made = add(commands, "cursors", keeping.cursors, "where its consumers stand, and how far behind")
    made.add_argument("cursor", nargs="?", help="one of them, which the options change")
    made.add_argument("--set", dest="place", metavar="PLACE", help=f"put it there; it is made: {PLACE_HELP}")
    made.add_argument(
        "--no-hold", action="store_true", help="with --set: it does not hold the log against truncation"
    )
    made.add_argument("--delete", action="store_true")
    made = add(commands, "pins", keeping.pins, "what holds it against truncation for a while")
    made.add_argument("pin", nargs="?", help="one of them, which the options change")
    made.add_argument(
        "--from",
        dest="place",
        metavar="PLACE",
        help=f"hold everything from there on; it is made: {PLACE_HELP}",
    )
    made.add_argument(
        "--ttl-s", type=float, default=3600.0, metavar="SECONDS", help="with --from (default 3600)"
    )
    made.add_argument("--remove", action="store_true")


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _add_settings(made: argparse.ArgumentParser) -> None:
    for name in ("ensemble_size", "write_quorum", "ack_quorum", "retention_bytes", "bytes_max"):
        made.add_argument(f"--{_flag(name)}", type=int, metavar="N")
    made.add_argument("--durability", metavar="WORD", help="what appends wait for: synced, deferred")
    made.add_argument("--digest", metavar="WORD", help="crc32c, xxh3, hmac")
    made.add_argument(
        "--retention-s",
        type=float,
        metavar="SECONDS",
        help="older entries go: its owner, or the auditor, sees to it",
    )
    made.add_argument(
        "--at-bytes-max",
        metavar="WORD",
        help="at --bytes-max payload bytes: refuse (appends), or let_go (of the oldest, also past cursors)",
    )
    made.add_argument(
        "--compression", metavar="WORD", help="zstd: entries are stored compressed where that is smaller"
    )
    made.add_argument("--roll-bytes", type=int, metavar="N")
    made.add_argument("--roll-entries", type=int, metavar="N")
    made.add_argument("--roll-age-s", type=float, metavar="SECONDS")
    made.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", help="your own; may be repeated"
    )


def _wanted(options: argparse.Namespace, before: LogSettings) -> dict[str, Any]:
    """The settings of the options; bounds and properties are added to those that are there."""
    wanted: dict[str, Any] = {name: value for name in _PLAIN if (value := getattr(options, name)) is not None}
    bounds = {name: value for name in _ROLL if (value := getattr(options, f"roll_{name}")) is not None}
    if bounds:
        stands = before.roll if before.roll is not None else Roll(bytes=None)
        wanted["roll"] = Roll(**{name: bounds.get(name, getattr(stands, name)) for name in _ROLL})
    if options.property:
        properties = dict(before.properties)
        for given in options.property:
            name, is_one, value = given.partition("=")
            if not is_one or not name:
                raise UsageError(f"--property {given!r}: allowed is NAME=VALUE; nothing was changed")
            properties[name] = value.encode(errors="surrogateescape")
        wanted["properties"] = properties
    for name in getattr(options, "usual", []):
        wanted[name.replace("-", "_")] = None
    return wanted


def _told(name: str, settings: LogSettings) -> CommandResult:
    roll = None if settings.roll is None else {bound: getattr(settings.roll, bound) for bound in _ROLL}
    properties = {key: value.decode(errors="replace") for key, value in settings.properties.items()}
    plain = {key: getattr(settings, key) for key in _PLAIN}
    data = {"log": name, **plain, "roll": roll, "properties": properties, "revision": settings.revision}
    lines = [f"log {name}:"]
    lines += [f"  {_flag(key)}: {'as usual' if value is None else value}" for key, value in plain.items()]
    bounds = ", ".join(f"{key} {value}" for key, value in (roll or {}).items() if value is not None)
    lines.append(f"  roll: {'as usual' if roll is None else bounds or 'never'}")
    lines += [f"  {key}={value}" for key, value in properties.items()]
    return CommandResult(data, "\n".join(lines))


class _Keeping:
    """These commands, with what they share with the others."""

    def __init__(self, log_of: LogOf, refuse_beside_a_writer: Callable[[Log], None]) -> None:
        self._log_of = log_of
        self._refuse_beside_a_writer = refuse_beside_a_writer

    def create(self, reach: Reach, options: argparse.Namespace) -> CommandResult:
        wanted = _wanted(options, LogSettings())
        with reach() as client:
            return _told(options.name, client.create_log(options.name, **wanted).settings())

    def settings(self, reach: Reach, options: argparse.Namespace) -> CommandResult:
        with reach() as client:
            log = self._log_of(client, options)
            now = log.settings()
            wanted = _wanted(options, now)
            return _told(options.name, log.change(revision=now.revision, **wanted) if wanted else now)

    def truncate(self, reach: Reach, options: argparse.Namespace) -> CommandResult:
        before = parse_place(options.before)
        with reach() as client:
            try:
                log = self._log_of(client, options)
                done = log.truncate(
                    place_in(log, before),
                    older_than_s=options.older_than_s,
                    keep_bytes=options.keep_bytes,
                    force=options.force,
                )
                code = 0
            except NotTruncated as nothing:
                done, code = nothing.truncation, 1
        data = {"log": options.name, **done._asdict(), "passed": list(done.passed)}
        lines = [f"log {options.name} begins at offset {done.reached} now: {done.ledgers} ledgers went"]
        if not done.ledgers:
            lines = [f"log {options.name} still begins at offset {done.reached}: no ledger could go"]
        lines += [f"  {done.why}"]
        lines += [f"  cursor {name} holds nothing any more" for name in done.passed]
        return CommandResult(data, "\n".join(lines), code)

    def roll(self, reach: Reach, options: argparse.Namespace) -> CommandResult:
        with reach() as client:
            log = self._log_of(client, options)
            before = log.segments()
            if not options.take_over:
                self._refuse_beside_a_writer(log)
            was_open = [each.ledger_id for each in before if not each.is_closed]
            if was_open:
                log.writer().close()
            after = log.segments()
        end = after[-1].first_offset + after[-1].last_entry + 1 if after else 0
        data = {"log": options.name, "closed": was_open, "end": end}
        text = (
            f"its ledgers {', '.join(map(str, was_open))} are closed"
            if was_open
            else "all its ledgers were closed"
        )
        return CommandResult(data, f"log {options.name} ends at offset {end}: {text}")

    def seal(self, reach: Reach, options: argparse.Namespace) -> CommandResult:
        with reach() as client:
            log = self._log_of(client, options)
            if not options.yes:
                log.segments()  # That there is such a log.
                raise UsageError(
                    f"this would end log {options.name!r} for ever, and fence whoever writes it; nothing was changed",
                    hint="say that it is meant: --yes",
                )
            done = log.seal(options.reason)
        return CommandResult(
            {"log": options.name, **done._asdict()}, f"log {options.name} is sealed for ever: {done.reason}"
        )

    def cursors(self, reach: Reach, options: argparse.Namespace) -> CommandResult:
        place = parse_place(options.place)
        if options.cursor is None and (options.delete or options.place is not None):
            raise UsageError("--set and --delete are of one cursor: name it; nothing was changed")
        if options.delete and options.place is not None:
            raise UsageError("--set and --delete together; nothing was changed")
        with reach() as client:
            log = self._log_of(client, options)
            if options.delete:
                was_there = log.cursor(options.cursor).delete()
                data = {"log": options.name, "cursor": options.cursor, "deleted": was_there}
                text = "is deleted" if was_there else "was not there"
                return CommandResult(data, f"cursor {options.cursor} {text}", 0 if was_there else 1)
            beyond = 0
            if options.place is not None:
                moved = log.cursor(options.cursor, not options.no_hold).set(place_in(log, place))
                with contextlib.suppress(EmbedbkError):  # It was put there, whatever can be told of the log.
                    beyond = moved.offset - log.end()
            found = [each for each in log.cursors() if options.cursor in (None, each.name)]
            if options.cursor is not None and not found:
                log.cursor(options.cursor).get()  # It raises where there is none.
        data = {"log": options.name, "cursors": [each._asdict() for each in found]}
        lines = [_line(each) for each in found]
        if beyond > 0:
            lines.append(
                f"  that is {beyond} entries beyond what the log has now: those that are appended before it count as "
                "consumed"
            )
        return CommandResult(data, "\n".join(lines) if found else "no cursor")

    def pins(self, reach: Reach, options: argparse.Namespace) -> CommandResult:
        place = parse_place(options.place)
        if options.pin is None and (options.remove or options.place is not None):
            raise UsageError("--from and --remove are of one pin: name it; nothing was changed")
        if options.remove and options.place is not None:
            raise UsageError("--from and --remove together; nothing was changed")
        with reach() as client:
            log = self._log_of(client, options)
            if options.remove:
                was_there = log.unpin(options.pin)
                text = "is taken away" if was_there else "was not there"
                data = {"log": options.name, "pin": options.pin, "removed": was_there}
                return CommandResult(data, f"pin {options.pin} {text}", 0 if was_there else 1)
            if options.place is not None:
                log.pin(options.pin, place_in(log, place), ttl_s=options.ttl_s)
            found = [each for each in log.pins() if options.pin in (None, each.name)]
        lines = [f"{each.name}: offset {each.offset}, until {each.until_ms} ms since 1970" for each in found]
        return CommandResult(
            {"log": options.name, "pins": [each._asdict() for each in found]}, "\n".join(lines) or "no pin"
        )


def _line(state: CursorState) -> str:
    holds = "holds" if state.holds else f"holds no more ({state.ended})" if state.ended else "does not hold"
    lag = "lag not known"
    if state.lag_entries is not None:
        size = "" if state.lag_bytes is None else f", {state.lag_bytes} bytes"
        time = "" if not state.lag_s else f", {state.lag_s:.1f} s"
        lag = f"{state.lag_entries} entries{size}{time} behind"
    consumer = f", consumed by {state.consumer}" if state.consumer else ""
    return f"{state.name}: offset {state.offset}, {lag}, {holds}{consumer}"
