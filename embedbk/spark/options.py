"""The options of `format("embedbk")` for reading: each is checked before any cluster is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embedbk.client.address import endpoints_of, is_address
from embedbk.client.times import ms_of, parse_time
from embedbk.errors import UsageError
from embedbk.ids import LEDGER_ID_MAX, check_cursor_name, check_log_name
from embedbk.spark.reading import EARLIEST, LATEST, ReadPlace, Starting

__all__ = [
    "COLUMN_NAMES",
    "DIGITS_MAX",
    "OF_BATCH",
    "OF_BOTH",
    "RECORD_COLUMNS",
    "SECONDS_MAX",
    "SourceOptions",
    "cluster_of",
    "columns_of",
    "read_options",
]

COLUMN_NAMES = ("log", "ledgerId", "entryId", "slot", "offset", "value")  # Without the option `columns`.
RECORD_COLUMNS = ("key", "timestamp", "headers")
ROWS_PER_PARTITION_MAX = 250_000  # A second of work or so: enough to be worth a task, little to repeat.
PIN_SECONDS = 3600.0
POLL_WAIT_MS = 100
SECONDS_MAX = 999_999_999  # Pins and staged ledgers have the same bound; milliseconds have it as well.
DIGITS_MAX = 19  # A number with more is not looked at.

# As the user writes them; Spark hands them over in lower case.
OF_BOTH = (
    "cluster", "log", "logs", "logPrefix", "password", "columns", "payload", "startingOffsets", "maxRowsPerPartition",
    "startingTimestamp", "onNoMatch", "failOnDataLoss", "pinSeconds",
)  # fmt: skip
OF_BATCH = ("view", "endingOffsets", "endingTimestamp", "pushdown", "readPolicy")
OF_STREAM = ("maxRowsPerTrigger", "maxBytesPerTrigger", "pollWaitMs")
_CURSOR = "cursor:"
WHICH = ("log", "logs", "logPrefix")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read, and how; plain data, as it is sent to the executors."""

    place: ReadPlace
    names: tuple[str, ...]  # Empty: those that begin with `prefix`.
    prefix: str
    columns: tuple[str, ...]
    is_text: bool
    start: Starting
    end: Starting
    rows_per_partition: int
    rows_per_trigger: int | None
    bytes_per_trigger: int | None
    poll_wait_s: float
    may_lose: bool
    pin_s: float
    pushes_down: bool
    is_archive_first: bool = False


def read_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Raises UsageError: an option is missing, unknown or not allowed."""
    known = {name.lower(): name for name in OF_BOTH + OF_BATCH + OF_STREAM}
    allowed = OF_BOTH + (OF_STREAM if is_stream else OF_BATCH)
    given = {name.lower(): value for name, value in options.items()}
    for name in sorted(given):
        if known.get(name) not in allowed:
            where = "a stream" if is_stream else "a batch"
            elsewhere = name in known
            what = f"option {known[name]} is not one of {where}" if elsewhere else f"unknown option {name}"
            raise UsageError(f"{what}: allowed are {', '.join(allowed)}")
    cluster = cluster_of(given)
    names, prefix = _which(given)
    columns, is_text = columns_of(given)
    return SourceOptions(
        place=ReadPlace(cluster, given.get("password", "").encode()),
        names=names,
        prefix=prefix,
        columns=columns,
        is_text=is_text,
        start=_starting(given, "starting", LATEST if is_stream else EARLIEST, names),
        end=_starting(given, "ending", LATEST, names),
        rows_per_partition=_count(given, "maxRowsPerPartition") or ROWS_PER_PARTITION_MAX,
        rows_per_trigger=_count(given, "maxRowsPerTrigger"),
        bytes_per_trigger=_count(given, "maxBytesPerTrigger"),
        poll_wait_s=_seconds(given, "pollWaitMs", POLL_WAIT_MS) / 1000,
        may_lose=_one_of(given, "failOnDataLoss", "true", "false") == "false",
        pin_s=_seconds(given, "pinSeconds", PIN_SECONDS),
        pushes_down=_one_of(given, "pushdown", "false", "true") == "true",
        is_archive_first=not is_stream
        and _one_of(given, "readPolicy", "archive-first", "any") == "archive-first",
    )


def cluster_of(given: Mapping[str, str]) -> str:
    """An address: what Spark's workers, which are other processes, can reach."""
    cluster = given.get("cluster", "")
    if not cluster:
        raise UsageError(
            "option cluster missing: an embedbk:// address",
            hint='spark.read.format("embedbk").option("cluster", url).option("log", name).load()',
        )
    if not is_address(cluster):
        raise UsageError(
            f"option cluster={cluster!r} is no embedbk:// address: Spark's workers are other processes, and "
            "cannot read an embedded cluster by its directory",
            hint='open it with listen="tcp://127.0.0.1:0" and give Spark the url of what you opened',
        )
    endpoints_of(cluster)
    return cluster


def _which(given: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    said = [
        name for name in WHICH if given.get(name.lower()) or (name == "logPrefix" and "logprefix" in given)
    ]
    if len(said) != 1:
        what = "log missing" if not said else f"options {' and '.join(said)} beside each other"
        raise UsageError(
            f"{what}: exactly one of log, logs (names with commas) and logPrefix says what is read"
        )
    value = given[said[0].lower()]
    if said[0] == "logPrefix":
        return (), value
    names = [value] if said[0] == "log" else [name.strip() for name in value.split(",")]
    if len(set(names)) != len(names):
        raise UsageError(f"option logs={value!r} names a log twice")
    return tuple(check_log_name(name) for name in names), ""


def columns_of(options: Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """The columns that are asked for, and whether the value is text."""
    given = {name.lower(): value for name, value in options.items()}
    is_text = _one_of(given, "payload", "binary", "string") == "string"
    value = given.get("columns")
    if value is None:
        return COLUMN_NAMES, is_text
    columns = tuple(name.strip() for name in value.split(","))
    if len(set(columns)) != len(columns) or not set(columns) <= {*COLUMN_NAMES, *RECORD_COLUMNS}:
        raise UsageError(
            f"option columns={value!r}: allowed are names with commas between them, each once, of "
            f"{', '.join(COLUMN_NAMES + RECORD_COLUMNS)}"
        )
    return columns, is_text


def _starting(given: Mapping[str, str], side: str, default: str, names: tuple[str, ...]) -> Starting:
    """side: "starting" or "ending"."""
    name, by_time = f"{side}Offsets", f"{side}Timestamp"
    may_miss = _one_of(given, "onNoMatch", "error", "latest") == "latest" or side == "ending"
    if (time := given.get(by_time.lower())) is not None:
        if name.lower() in given:
            raise UsageError(f"options {name} and {by_time} beside each other: one says where it is")
        return Starting(default, {}, time_ms=_time(by_time, time.strip()), may_miss=may_miss)
    value = given.get(name.lower(), default).strip()
    if value in (EARLIEST, LATEST):
        return Starting(value, {})
    if value.startswith(_CURSOR):
        return Starting(default, {}, cursor=check_cursor_name(value.removeprefix(_CURSOR)))
    try:
        said = json.loads(value)
    except (ValueError, RecursionError):
        said = None
    if _is_offset(said) and len(names) == 1:
        return Starting(default, {names[0]: said})
    if isinstance(said, dict) and said and all(map(_is_offset, said.values())):
        for log in said:
            check_log_name(log)
            if names and log not in names:
                raise UsageError(f"option {name} names the log {log!r}, which is not read")
        return Starting(default, said)
    raise UsageError(
        f'option {name}={value!r:.200}: allowed are "{EARLIEST}", "{LATEST}", the offset of an entry (of one log), '
        f'offsets by log: {{"orders": 42}}, or "{_CURSOR}NAME"'
    )


def _time(name: str, value: str) -> int:
    """ms since 1970."""
    if value.isdecimal() and len(value) <= DIGITS_MAX:
        return ms_of(int(value))
    if (time := parse_time(value)) is None:
        raise UsageError(
            f"option {name}={value!r:.80}: ms since 1970 are allowed, or a time: 2026-11-26T08:30:00Z"
        )
    return ms_of(time)


def _is_offset(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LEDGER_ID_MAX


def _one_of(given: Mapping[str, str], name: str, default: str, other: str) -> str:
    value = given.get(name.lower(), default).lower()
    if value not in (default, other):
        raise UsageError(f"option {name}={value!r}: allowed are {default} and {other}")
    return value


def _count(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    if not value.isdecimal() or len(value) > DIGITS_MAX or int(value) < 1:
        raise UsageError(f"option {name}={value!r:.80}: a whole number of at least 1 is allowed")
    return int(value)


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    value = given.get(name.lower())
    if value is None:
        return default
    if not value.isdecimal() or len(value) > DIGITS_MAX or int(value) > SECONDS_MAX:
        raise UsageError(f"option {name}={value!r:.80}: a whole number from 0 to {SECONDS_MAX} is allowed")
    return float(value)
