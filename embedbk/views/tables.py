"""Which tables there are, their columns, and where their rows come from. Reads alone: metadata, and what bookies tell.

A row is a tuple in the order of the columns; None is a null. Keys that cannot be read have no row: `log check`,
`health` and the space report name them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from embedbk.client.archiving import archive_records
from embedbk.client.bookie_states import bookie_states
from embedbk.client.client import Client
from embedbk.client.cursors import cursors
from embedbk.client.entry_logs import entry_logs, log_keepers
from embedbk.client.log_names import log_names
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.digest import DigestType
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    ledger_of_key,
)
from embedbk.codec.log_archives import ArchiveState
from embedbk.codec.log_list import Begun, LogList, LogSegment
from embedbk.codec.log_pages import decode_log_page, log_page_path
from embedbk.codec.log_splices import decode_log_splices, log_splices_path
from embedbk.errors import EmbedbkError, NoSuchLedger, NotEnoughBookies, StorageError, UsageError

__all__ = ["VIEWS", "MetadataView", "view"]

_ROUNDS_MAX = 20  # A list changed so often while its pages were read.

Row = tuple[Any, ...]
Rows = Callable[[Runtime], Coroutine[Any, Any, list[Row]]]


class MetadataView(NamedTuple):
    """A table: its columns with their types in Python, and its rows as they stand now."""

    name: str
    what: str
    columns: tuple[tuple[str, type], ...]
    read: Rows

    def rows(self, client: Client) -> list[Row]:
        """Raises MetadataUnavailable: no member answers."""
        return run_blocking(self.read(client._runtime), f"the view {self.name}")


def view(name: str) -> MetadataView:
    """The table of this name. Raises UsageError: there is none."""
    found = VIEWS.get(name)
    if found is None:
        raise UsageError(f"view {name!r}: allowed are {', '.join(VIEWS)}")
    return found


# --- Ledgers ---------------------------------------------------------------------------------------------


async def _all_ledgers(runtime: Runtime) -> list[LedgerMetadata]:
    found: list[LedgerMetadata] = []
    for record in await runtime.list_keys(LEDGERS_PREFIX, "reading the ledgers' metadata"):
        ledger_id = ledger_of_key(record.key)
        if ledger_id is not None:
            try:
                found.append(decode_ledger_metadata(record.value or b"", ledger_id))
            except StorageError:
                continue
    return found


async def _ledgers(runtime: Runtime) -> list[Row]:
    return [
        (
            each.ledger_id, each.custom["log"].decode(errors="replace") if "log" in each.custom else None,
            LedgerState(each.state).name, each.ensemble_size, each.write_quorum, each.ack_quorum, each.last_entry,
            each.length, each.created_ms, DigestType(each.digest).name, len(each.fragments), each.freed is not None,
        )
        for each in await _all_ledgers(runtime)
    ]  # fmt: skip


async def _replicas(runtime: Runtime) -> list[Row]:
    rows: list[Row] = []
    for each in await _all_ledgers(runtime):
        behind = [fragment.first_entry - 1 for fragment in each.fragments[1:]]
        for fragment, last in zip(each.fragments, [*behind, each.last_entry], strict=True):
            rows += [
                (each.ledger_id, fragment.first_entry, last, seat, bookie_id)
                for seat, (bookie_id, _) in enumerate(fragment.ensemble)
            ]
    return rows


async def _gaps(runtime: Runtime) -> list[Row]:
    return [
        (each.ledger_id, first, last, step, word.lost_ms, word.by, word.why)
        for each in await _all_ledgers(runtime)
        for word in each.lost
        for first, last, step in word.runs
    ]


# --- Logs ------------------------------------------------------------------------------------------------


async def _each_log(runtime: Runtime) -> list[LogReading]:
    found = []
    for name in await log_names(runtime, ""):
        reading = LogReading(runtime, name, Password(b""))
        try:
            await reading.found()
        except (NoSuchLedger, StorageError):
            continue  # Renamed or deleted since; or what the name leads to cannot be read.
        found.append(reading)
    return found


async def _whole_list(reading: LogReading) -> tuple[LogList, list[LogSegment]] | None:
    """The list with the ledgers of its pages; None: the log is gone, or its list cannot be read."""
    try:
        return await _as_it_stands(reading)
    except (NoSuchLedger, StorageError):
        return None


async def _as_it_stands(reading: LogReading) -> tuple[LogList, list[LogSegment]]:
    for _ in range(_ROUNDS_MAX):
        log_list = await reading.listed()
        segments: list[LogSegment] = []
        pages = log_list.pages
        for number in range(pages.first, pages.end) if pages is not None else ():
            assert pages is not None
            value, _ = await reading.runtime.get(
                log_page_path(reading.name, pages, number), "reading a list's page"
            )
            if value is None:
                break  # Truncated since: the list says another beginning by now.
            page = decode_log_page(value, reading.name, number).segments
            segments += page[pages.skipped :] if number == pages.first else page
        else:
            return log_list, [*segments, *log_list.segments]
    raise EmbedbkError(f"the list of log {reading.given!r} changed {_ROUNDS_MAX} times while it was read")


async def _logs(runtime: Runtime) -> list[Row]:
    rows: list[Row] = []
    for reading in await _each_log(runtime):
        if (found := await _whole_list(reading)) is not None:
            log_list, segments = found
            last = segments[-1] if segments else None
            end = None
            if last is not None and last.first_offset is not None and last.last_entry is not None:
                end = last.first_offset + last.last_entry + 1
            closed = [each.length for each in segments if each.last_entry is not None]
            payload = None if None in closed else sum(each or 0 for each in closed)
            seal = log_list.seal
            rows.append(
                (
                    reading.given, str(reading.name), log_list.epoch, len(segments), log_list.first_offset, end,
                    payload, None if seal is None else seal.reason,
                )
            )  # fmt: skip
    return rows


async def _segments(runtime: Runtime) -> list[Row]:
    return [
        (
            reading.given, each.ledger_id, each.first_offset, each.last_entry, each.length, each.created_ms or None,
            Begun(each.begun).name,
        )
        for reading in await _each_log(runtime)
        if (found := await _whole_list(reading)) is not None
        for each in found[1]
    ]  # fmt: skip


async def _cursors(runtime: Runtime) -> list[Row]:
    rows: list[Row] = []
    for reading in await _each_log(runtime):
        try:
            found = await cursors(reading, as_far_as_told=True)
        except (NoSuchLedger, StorageError):
            continue
        rows += [
            (
                reading.given, each.name, each.offset, each.holds, each.ended or None, each.moved_ms,
                each.consumer or None, each.lag_entries, each.lag_bytes, each.lag_s,
            )
            for each in found
        ]  # fmt: skip
    return rows


async def _archives(runtime: Runtime) -> list[Row]:
    return [
        (
            reading.given,
            ledger_id,
            ArchiveState(record.state).name,
            record.last_entry,
            record.manifest.hex() or None,
        )
        for reading in await _each_log(runtime)
        for ledger_id, record in sorted((await archive_records(runtime, reading.name)).items())
    ]


async def _transactions(runtime: Runtime) -> list[Row]:
    rows: list[Row] = []
    for reading in await _each_log(runtime):
        value, _ = await runtime.get(log_splices_path(reading.name), "reading what was spliced")
        try:
            spliced = () if value is None else decode_log_splices(value, reading.name).spliced
        except StorageError:
            continue
        rows += [
            (
                reading.given, each.application, each.number, each.first_offset, each.end, each.ledgers,
                each.spliced_ms,
            )
            for each in spliced
        ]  # fmt: skip
    return rows


# --- Bookies ---------------------------------------------------------------------------------------------


async def _bookies(runtime: Runtime) -> list[Row]:
    return [
        (
            each.bookie_id, each.state, each.why or None, each.location or None, each.free_bytes,
            each.endpoints[0] if each.endpoints else None, each.dark_logs,
        )
        for each in await bookie_states(runtime)
    ]  # fmt: skip


async def _entry_logs(runtime: Runtime) -> list[Row]:
    rows: list[Row] = []
    for bookie in await entry_logs(runtime):
        if bookie.why:
            rows.append((bookie.bookie_id, None, None, None, None, None, None, bookie.why))
        rows += [
            (
                bookie.bookie_id, log.log_id, log.directory, log.file_bytes, log.entries_bytes, log.live_bytes,
                log.is_damaged, None,
            )
            for log in bookie.logs
        ]  # fmt: skip
    return rows


async def _keepers(runtime: Runtime) -> list[Row]:
    """One question for each log that something keeps. One that goes meanwhile has no row."""
    rows: list[Row] = []
    for bookie in await entry_logs(runtime):
        why = bookie.why
        for log in bookie.logs:
            if bookie.member is None or not log.live_bytes or why:
                continue
            try:
                keepers = await log_keepers(runtime, bookie.member, log.log_id)
            except NotEnoughBookies as untold:
                why = str(untold.args[0])
                continue
            rows += [
                (bookie.bookie_id, log.log_id, each.ledger_id, each.live_entries, each.live_bytes, None)
                for each in keepers
            ]
        if why:
            rows.append((bookie.bookie_id, None, None, None, None, why))
    return rows


VIEWS: dict[str, MetadataView] = {
    each.name: each
    for each in (
        MetadataView(
            "logs",
            "a row for each log; end: None while its last ledger is open; payloadBytes: of closed ledgers, if recorded",
            (
                ("log", str), ("logId", str), ("epoch", int), ("ledgers", int), ("begin", int), ("end", int),
                ("payloadBytes", int), ("sealed", str),
            ),
            _logs,
        ),
        MetadataView(
            "segments",
            "a row for each ledger in the list of a log, oldest first; what is not recorded yet is None",
            (
                ("log", str), ("ledgerId", int), ("firstOffset", int), ("lastEntry", int), ("payloadBytes", int),
                ("createdMs", int), ("begun", str),
            ),
            _segments,
        ),
        MetadataView(
            "ledgers",
            "a row for each ledger; logId: of the log that it belongs to; lastEntry, payloadBytes: of a closed one",
            (
                ("ledgerId", int), ("logId", str), ("state", str), ("ensembleSize", int), ("writeQuorum", int),
                ("ackQuorum", int), ("lastEntry", int), ("payloadBytes", int), ("createdMs", int), ("digest", str),
                ("fragments", int), ("freed", bool),
            ),
            _ledgers,
        ),
        MetadataView(
            "replicas",
            "a row for each seat of each fragment: the bookie that is to hold its share of these entries",
            (("ledgerId", int), ("firstEntry", int), ("lastEntry", int), ("seat", int), ("bookie", str)),
            _replicas,
        ),
        MetadataView(
            "bookies",
            "a row for each bookie that the cluster ever had",
            (
                ("bookie", str), ("state", str), ("why", str), ("location", str), ("freeBytes", int),
                ("endpoint", str), ("darkLogs", int),
            ),
            _bookies,
        ),
        MetadataView(
            "entrylogs",
            "a row for each entry log of each bookie; liveBytes: what still counts; why: this bookie does not tell",
            (
                ("bookie", str), ("entryLog", int), ("directory", int), ("fileBytes", int), ("entriesBytes", int),
                ("liveBytes", int), ("damaged", bool), ("why", str),
            ),
            _entry_logs,
        ),
        MetadataView(
            "keepers",
            "a row for each ledger that keeps an entry log of a bookie; why: this bookie does not tell, or not all",
            (
                ("bookie", str), ("entryLog", int), ("ledgerId", int), ("liveEntries", int), ("liveBytes", int),
                ("why", str),
            ),
            _keepers,
        ),
        MetadataView(
            "cursors",
            "a row for each cursor of each log, and how far it is behind",
            (
                ("log", str), ("cursor", str), ("offset", int), ("holds", bool), ("ended", str), ("movedMs", int),
                ("consumer", str), ("lagEntries", int), ("lagBytes", int), ("lagSeconds", float),
            ),
            _cursors,
        ),
        MetadataView(
            "archives",
            "a row for each ledger that a job archives or archived, and how far that is",
            (("log", str), ("ledgerId", int), ("state", str), ("lastEntry", int), ("manifest", str)),
            _archives,
        ),
        MetadataView(
            "gaps",
            "a row for each run of entries that was given up for ever: each step-th from firstEntry to lastEntry",
            (
                ("ledgerId", int), ("firstEntry", int), ("lastEntry", int), ("step", int), ("lostMs", int),
                ("lostBy", str), ("why", str),
            ),
            _gaps,
        ),
        MetadataView(
            "txns",
            "a row for each application that spliced into a log: its newest transaction",
            (
                ("log", str), ("application", str), ("number", int), ("firstOffset", int), ("end", int),
                ("ledgers", int), ("splicedMs", int),
            ),
            _transactions,
        ),
    )
}  # fmt: skip
