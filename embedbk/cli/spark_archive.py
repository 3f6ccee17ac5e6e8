"""`embedbk spark archive | verify-archive | free | restore`: jobs over a log's archive, on Spark or in this process.

Decides how a job is asked for and what is shown; each job stands in a module of its own, which is imported when it is
asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from embedbk.cli.log import password_of
from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.client.client import Client
from embedbk.client.splicing import SpliceOutcome
from embedbk.errors import UsageError

__all__ = ["add_archive", "add_job", "appended", "session_of"]


def add_archive(commands: Commands) -> None:
    made = add_job(commands, "archive", _archive, "copy closed ledgers of a log to Parquet files")
    made.add_argument("log")
    made.add_argument(
        "--create", metavar="DIR", help="make an archive there, and archive the log in it from now on"
    )
    made.add_argument("--place", metavar="DIR", help="archive the log in this archive from now on")
    made.add_argument("--older-than-s", type=float, default=0.0, metavar="SECONDS")
    made.add_argument(
        "--min-size", type=int, default=0, metavar="BYTES", help="only ledgers that have so many"
    )
    made.add_argument("--rate", type=float, metavar="BYTES", help="a second, of each task")
    made.add_argument(
        "--anew", type=int, action="append", default=[], metavar="LEDGER", help="also if it was copied"
    )
    made.add_argument("--dry-run", action="store_true")
    made = add_job(
        commands,
        "verify-archive",
        _verify,
        "read what is archived, and say what is wrong: JSON lines; exit 2",
    )
    made.add_argument("log")
    made.add_argument(
        "--sample", type=float, default=1.0, metavar="SHARE", help="of files; below 1 none is verified"
    )
    made.add_argument("--against-bookies", action="store_true")
    made = add_job(
        commands,
        "free",
        _free,
        "bookies drop what is archived and verified; readers go on in the files; restore --in-place is the way back",
    )
    made.add_argument("log")
    made.add_argument(
        "--keep-lag-s",
        default=None,
        metavar="SECONDS",
        help="so long an archive has to have been verified (default: four hours); or never",
    )
    made.add_argument("--ledger", type=int, action="append", metavar="LEDGER", help="only this one")
    made.add_argument("--dry-run", action="store_true", help="files are read; nothing is changed")
    made.add_argument("--rate", type=float, metavar="BYTES", help="of files, a second")
    made = add_job(
        commands,
        "restore",
        _restore,
        "append what is archived to a log, once; or bring freed ledgers back to bookies",
    )
    made.add_argument("into", help="the log that gets it")
    made.add_argument(
        "--in-place",
        action="store_true",
        help="freed ledgers of this log are copied back to bookies: same ledgers, positions and offsets",
    )
    made.add_argument(
        "--truncated",
        action="store_true",
        help="ledgers that truncation took off this log stand in front of it again, in their files: same ledgers, "
        "positions and offsets, down to --from; then --in-place gives them to bookies",
    )
    made.add_argument(
        "--ledger", type=int, action="append", metavar="LEDGER", help="with --in-place: only this one"
    )
    made.add_argument(
        "--dry-run", action="store_true", help="with --in-place or --truncated: nothing is changed"
    )
    made.add_argument("--rate", type=float, metavar="BYTES", help="with --in-place or --truncated: a second")
    made.add_argument("--log", help="the archived log, by its name; or --place and --log-id")
    made.add_argument("--place", metavar="DIR")
    made.add_argument("--log-id")
    made.add_argument("--from", dest="begin", type=int, metavar="OFFSET")
    made.add_argument("--to", dest="end", type=int, metavar="OFFSET", help="left out")
    made.add_argument("--application", help="with --number: done once, however often it is asked for")
    made.add_argument("--number", type=int, default=0)


def add_job(commands: Commands, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    made = commands.add(name, run, text, reach=client_of)
    made.add_argument("--no-spark", action="store_true", help="in this process, without Java")
    made.add_argument("--master", default="local[*]", help="of Spark (default: local[*])")
    made.add_argument("--password-file", metavar="FILE", help="holds the log's password")
    return made


def session_of(options: argparse.Namespace, client: Client) -> tuple[Any, str]:
    """A session, and the address by which executors find the cluster."""
    from embedbk.spark.session import session

    if client.url is None:
        raise UsageError(
            f"--at {options.at}: Spark's workers are other processes, and cannot reach a cluster by its directory",
            hint="--no-spark; or open it with listen=",
        )
    return session("embedbk spark", master=options.master), client.url


def _archive(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    from embedbk.archive import jobs
    from embedbk.archive.place import create_place

    given: dict[str, Any] = {
        "password": password_of(options),
        "older_than_s": options.older_than_s,
        "bytes_min": options.min_size,
        "bytes_per_s": options.rate,
        "anew": options.anew,
        "dry_run": options.dry_run,
    }
    with reach() as client:
        place = options.place
        if options.create:
            place = create_place(options.create).path
        if place:
            jobs.set_place(client, options.log, place, password=password_of(options))
        if options.no_spark or options.dry_run:
            report = jobs.archive(client, options.log, **given)
        else:
            from embedbk.spark import archiving

            spark, url = session_of(options, client)
            report = archiving.archive(spark, url, options.log, **given)
    lines = [
        f"  ledger {each.ledger_id}: {each.outcome}, {each.entries} entries, {each.payload_bytes} bytes in "
        f"{each.file_bytes} bytes of {each.files} files" + (f" ({each.why})" if each.why else "")
        for each in report.ledgers
    ]
    head = f"log {options.log}, archive {report.place}: {len(report.ledgers)} ledgers, {report.before} before"
    data = {
        "log_id": report.log_id,
        "place": report.place,
        "before": report.before,
        "ledgers": [vars(each) for each in report.ledgers],
    }
    return CommandResult(data, "\n".join([head, *lines]), 0 if report.is_whole else 3)


def _verify(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    from embedbk.archive.verifying import verify_archive

    given = {
        "password": password_of(options),
        "sample": options.sample,
        "against_bookies": options.against_bookies,
    }
    with reach() as client:
        if options.no_spark:
            report = verify_archive(client, options.log, **given)
        else:
            from embedbk.spark import archiving

            spark, url = session_of(options, client)
            report = archiving.verify_archive(spark, url, options.log, **given)
    for each in report.findings:
        print(json.dumps(each._asdict()))
    for ledger_id, why in report.incomplete:
        print(json.dumps({"ledger_id": ledger_id, "kind": "incomplete", "file": "", "why": why}))
    verified = len(report.verified)
    summary = f"{report.files} files, {report.entries} entries read, {verified} ledgers verified"
    print(f"{summary}, {len(report.findings)} findings, {len(report.incomplete)} incomplete", file=sys.stderr)
    return CommandResult(None, code=report.code)


def _free(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    from embedbk.archive.freeing import KEEP_LAG_S, free

    given: dict[str, Any] = {
        "password": password_of(options),
        "keep_lag_s": _keep_lag_s(options.keep_lag_s, KEEP_LAG_S),
        "ledgers": options.ledger,
        "dry_run": options.dry_run,
        "bytes_per_s": options.rate,
    }
    with reach() as client:
        if options.no_spark:
            report = free(client, options.log, **given)
        else:
            from embedbk.spark import archiving

            spark, url = session_of(options, client)
            report = archiving.free(spark, url, options.log, **given)
    lines = [
        f"  ledger {each.ledger_id}: {each.outcome}, {each.entries} entries, {each.payload_bytes} bytes"
        + (f" ({each.why})" if each.why else "")
        for each in report.ledgers
    ]
    head = f"log {options.log}, archive {report.place}: {len(report.freed)} ledgers freed, {report.before} before"
    data = {
        "log_id": report.log_id,
        "place": report.place,
        "before": report.before,
        "ledgers": [vars(each) for each in report.ledgers],
    }
    return CommandResult(data, "\n".join([head, *lines]), report.code)


def _keep_lag_s(given: str | None, usual_s: float) -> float | None:
    if given is None or given == "never":
        return usual_s if given is None else None
    try:
        return float(given)
    except ValueError:
        raise UsageError(f"--keep-lag-s {given}: seconds are allowed, or never") from None


def _restore(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    from embedbk.archive import jobs
    from embedbk.archive.place import ArchiveDirectory, find_place
    from embedbk.archive.restoring import restore

    if options.truncated:
        return _restore_truncated(reach, options)
    if options.in_place:
        return _restore_in_place(reach, options)
    if options.ledger or options.dry_run or options.rate:
        raise UsageError(
            "--ledger, --dry-run and --rate go with --in-place or --truncated; nothing was changed"
        )
    given = {
        "password": password_of(options),
        "begin": options.begin,
        "end": options.end,
        "application": options.application,
        "number": options.number,
    }
    with reach() as client:
        if options.log and not (options.place or options.log_id):
            reading, directory = jobs.directory_of(client, options.log, password_of(options))
            log_id = str(reading.name)
        elif options.place and options.log_id and not options.log:
            directory, log_id = ArchiveDirectory(find_place(options.place)), options.log_id
        else:
            raise UsageError("which archive? --log NAME, or --place DIR and --log-id ID")
        if options.no_spark:
            done = restore(client, options.into, directory, log_id, **given)
        else:
            from embedbk.spark import archiving

            spark, url = session_of(options, client)
            done = archiving.restore(spark, url, options.into, directory, log_id, **given)
    return appended(options.into, "entries", done.entries, done.outcome)


def _refuse_others(options: argparse.Namespace, mode: str, **others: Any) -> None:
    """Raises UsageError: an option was given that says nothing in this mode."""
    for name, value in {
        "log": options.log,
        "log-id": options.log_id,
        "place": options.place,
        **others,
    }.items():
        if value:
            raise UsageError(
                f"{mode} works on the ledgers of {options.into!r} as its metadata names them: it takes no --{name}; "
                "nothing was changed"
            )


def _restore_truncated(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    """Restore truncated ledgers, always in this process: it reads files, and changes metadata."""
    from embedbk.archive.restoring_truncated import restore_truncated

    more = {"in-place": options.in_place, "ledger": options.ledger, "to": options.end is not None}
    number = {"application": options.application, "number": options.number}
    _refuse_others(options, "--truncated", **more, **number)
    with reach() as client:
        report = restore_truncated(
            client,
            options.into,
            password=password_of(options),
            from_offset=options.begin or 0,
            dry_run=options.dry_run,
            bytes_per_s=options.rate,
        )
    lines = [
        f"  ledger {each.ledger_id}: {each.outcome}, {each.entries} entries from offset {each.first_offset} on, "
        f"{each.payload_bytes} bytes"
        for each in report.ledgers
    ]
    lines += [f"  not read: {each}" for each in report.unread]
    lines += [f"  it goes no further: {report.why}"] if report.why else []
    head = (
        f"log {options.into}, archive {report.place}: it began at offset {report.began}, and begins at "
        f"{report.begins}"
    )
    data = {
        "log_id": report.log_id,
        "place": report.place,
        "began": report.began,
        "begins": report.begins,
        "why": report.why,
        "unread": report.unread,
        "ledgers": [vars(each) for each in report.ledgers],
    }
    return CommandResult(data, "\n".join([head, *lines]), report.code)


def _restore_in_place(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    """Restore in place, always in this process: it sends the entries to bookies."""
    from embedbk.archive.restoring_in_place import restore_in_place

    more = {"from": options.begin is not None, "to": options.end is not None}
    number = {"application": options.application, "number": options.number}
    _refuse_others(options, "--in-place", **more, **number)
    with reach() as client:
        report = restore_in_place(
            client,
            options.into,
            password=password_of(options),
            ledgers=options.ledger,
            dry_run=options.dry_run,
            bytes_per_s=options.rate,
        )
    lines = [
        f"  ledger {each.ledger_id}: {each.outcome}, {each.entries} entries, {each.payload_bytes} bytes"
        + (f" ({each.why})" if each.why else "")
        for each in report.ledgers
    ]
    head = (
        f"log {options.into}, archive {report.place}: {len(report.restored)} ledgers restored in place, bookies had "
        f"{report.with_bookies}"
    )
    data = {
        "log_id": report.log_id,
        "place": report.place,
        "with_bookies": report.with_bookies,
        "ledgers": [vars(each) for each in report.ledgers],
    }
    return CommandResult(data, "\n".join([head, *lines]), report.code)


def appended(into: str, what: str, count: int, outcome: SpliceOutcome | None) -> CommandResult:
    """The result of a job that put so many entries or rows into a log."""
    data = {
        what: count,
        "first_offset": None if outcome is None else outcome.first_offset,
        "end": None if outcome is None else outcome.end,
        "is_replay": outcome is not None and outcome.is_replay,
    }
    where = "" if outcome is None else f", offsets {outcome.first_offset} to {outcome.end - 1}"
    again = ", which was done before" if data["is_replay"] else ""
    return CommandResult(data, f"log {into}: {count} {what} appended{where}{again}")
