"""Settings of a log, kept with it (P8.7), for both faces: made, shown, changed, and what they mean to a writer.

Decides what a writer's arguments may be beside them. That an owner follows a change, `keeping` decides.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from embedbk.client.compression import check_compression
from embedbk.client.creating import Traits, quorum_of, traits_of
from embedbk.client.cursors import check_level
from embedbk.client.log_identity import NamedLog, find, make, named
from embedbk.client.log_reading import LogReading
from embedbk.client.runtime import Runtime
from embedbk.codec.digest import DigestType
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import Durability
from embedbk.codec.log_list import LogList, encode_log_list, log_key_path, log_owner_path
from embedbk.codec.log_settings import (
    NO_SETTINGS,
    SETTINGS_KEY,
    AtBound,
    Compression,
    RollRecord,
    SettingsRecord,
    decode_log_settings,
    encode_log_settings,
    log_settings_path,
    properties_bytes,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.config import CUSTOM_BYTES_MAX, USUAL_ROLL, Placement, Quorum, Roll, quorum_for
from embedbk.errors import LogExists, MetadataConflict, UsageError
from embedbk.ids import LEDGER_ID_MAX, is_text
from embedbk.metadata.levels import LEVEL_OF_BOUNDS, LEVEL_OF_CURSORS

__all__ = [
    "KEEP",
    "WriterArguments",
    "Keep",
    "LogSettings",
    "WriterTerms",
    "adopt",
    "change",
    "create_log",
    "log_exists",
    "record_of",
    "renewal_quorum",
    "resized",
    "roll_from",
    "roll_of",
    "settings",
    "writer_terms",
]

_ROUNDS_MAX = 20


class Keep(enum.Enum):
    """Stands for a setting that stays as it is."""

    KEEP = "keep"

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Final = Keep.KEEP


class LogSettings(NamedTuple):
    """The settings that a log's writers follow; None: the default."""

    ensemble_size: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None
    durability: str | None = None
    digest: str | None = None
    roll: Roll | None = None
    # The log's owner truncates what is older than this, and beyond so many payload bytes; both must allow it.
    retention_s: float | None = None
    retention_bytes: int | None = None
    properties: Mapping[str, bytes] = {}
    # The revision of the last change, which `change(revision=)` compares; 0: there were none.
    revision: int = 0
    archive: str | None = None  # The directory where it is archived (P8.14).
    # Payload bytes that the log may have, and what happens then: "refuse" appends, or "let_go" of the oldest ledgers.
    bytes_max: int | None = None
    at_bytes_max: str | None = None
    compression: str | None = None  # "zstd"; None: entries are stored as they are.


class WriterArguments(NamedTuple):
    """What a caller asks of a writer, or puts into settings; None: nothing."""

    ensemble_size: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None
    durability: str | None = None
    digest: str | None = None
    roll: Roll | None = None
    compression: str | None = None


def roll_of(given: Roll | None) -> Roll:
    """None: the usual bounds. Raises UsageError for anything else that is no Roll."""
    if given is None:
        return USUAL_ROLL
    if not isinstance(given, Roll):
        raise UsageError(f"roll={given!r}: allowed is embedbk.Roll(...), or None for the usual bounds")
    return given


# --- Shown and changed --------------------------------------------------------------------------------------


async def record_of(runtime: Runtime, name: str) -> tuple[SettingsRecord | None, int]:
    value, revision = await runtime.get(log_settings_path(name), f"reading the settings of log {name!r}")
    if value is None:
        return None, ABSENT
    return decode_log_settings(value, name), revision


async def settings(reading: LogReading) -> LogSettings:
    await reading.listed()  # That there is such a log.
    record, revision = await record_of(reading.runtime, reading.name)
    return _shown(record or NO_SETTINGS, revision)


def _shown(record: SettingsRecord, revision: int) -> LogSettings:
    return LogSettings(
        record.ensemble_size,
        record.write_quorum,
        record.ack_quorum,
        None if record.durability is None else Durability(record.durability).name.lower(),
        None if record.digest is None else DigestType(record.digest).name.lower(),
        None if record.roll is None else roll_from(record.roll),
        None if record.retention_ms is None else record.retention_ms / 1000,
        record.retention_bytes,
        dict(record.properties),
        revision,
        None if record.archive is None else record.archive.path,
        record.bytes_max,
        None if record.at_bytes_max is None else AtBound(record.at_bytes_max).name.lower(),
        None if record.compression is None else Compression(record.compression).name.lower(),
    )


def roll_from(record: RollRecord) -> Roll:
    return Roll(record.bytes, record.entries, None if record.age_ms is None else record.age_ms / 1000)


async def change(reading: LogReading, revision: int | None, wanted: Mapping[str, Any]) -> LogSettings:
    """wanted: by the names of LogSettings; KEEP leaves one as it is, None makes it as usual."""
    check_level(reading)
    runtime = reading.runtime
    for _ in range(_ROUNDS_MAX):
        _, list_revision = await reading.listed_at()
        name = reading.name
        record, at = await record_of(runtime, name)
        if revision is not None and at != revision:
            raise MetadataConflict(
                f"the settings of log {name!r} were changed at revision {at}, and {revision} was given; they stay",
                hint="settings() says what they are",
            )
        changed = _changed(record or NO_SETTINGS, wanted)
        _check_levels(runtime, name, changed, wanted)
        when = [Compare(log_settings_path(name), at), Compare(log_key_path(name), list_revision)]
        then = Put(log_settings_path(name), encode_log_settings(changed))
        if await runtime.transact(when, [then], f"changing the settings of log {name!r}"):
            record, at = await record_of(runtime, name)
            return _shown(record or NO_SETTINGS, at)
    raise MetadataConflict(
        f"log {reading.name!r} changed {_ROUNDS_MAX} times meanwhile; its settings stay", definite=True
    )


def _changed(record: SettingsRecord, wanted: Mapping[str, Any]) -> SettingsRecord:
    """Raises UsageError for what no setting can be; nothing is looked up."""
    given = {name: value for name, value in wanted.items() if value is not KEEP}
    sizes = ("ensemble_size", "write_quorum", "ack_quorum")
    if any(name in given for name in sizes):
        three = tuple(given.get(name, getattr(record, name)) for name in sizes)
        if three == (None, None, None):
            record = replace(record, ensemble_size=None, write_quorum=None, ack_quorum=None)
        elif three[0] is None and three[1] is None:
            raise UsageError(f"ack_quorum={three[2]} says nothing without ensemble_size; nothing was changed")
        else:
            sized = quorum_for(0, *three)  # Says what of it is not allowed.
            e, qw, qa = sized.ensemble_size, sized.write_quorum, sized.ack_quorum
            record = replace(record, ensemble_size=e, write_quorum=qw, ack_quorum=qa)
    numbered: tuple[tuple[str, type[enum.IntEnum]], ...] = (
        ("durability", Durability),
        ("digest", DigestType),
        ("compression", Compression),
    )
    for name, kinds in numbered:
        if name in given:
            record = replace(record, **{name: _number(given[name], name, kinds)})
    if "roll" in given:
        record = replace(record, roll=None if given["roll"] is None else _roll_record(roll_of(given["roll"])))
    if "retention_s" in given:
        value = _bounded("retention_s", given["retention_s"], int | float, 0.001, 1e12)
        record = replace(record, retention_ms=None if value is None else max(1, int(value * 1000)))
    if "retention_bytes" in given:
        record = replace(
            record,
            retention_bytes=_bounded("retention_bytes", given["retention_bytes"], int, 0, LEDGER_ID_MAX),
        )
    if "bytes_max" in given or "at_bytes_max" in given:
        record = _bound(record, given)
    if "properties" in given:
        record = replace(record, properties=_properties(given["properties"]))
    if "archive" in given:
        record = replace(record, archive=given["archive"])
    return record


def _bound(record: SettingsRecord, given: Mapping[str, Any]) -> SettingsRecord:
    """A bound without a word what happens then refuses; one that is taken away takes the word with it."""
    bytes_max = _bounded("bytes_max", given.get("bytes_max", record.bytes_max), int, 1, LEDGER_ID_MAX)
    at_bytes_max = record.at_bytes_max
    if "at_bytes_max" in given:
        at_bytes_max = _number(given["at_bytes_max"], "at_bytes_max", AtBound)
        if at_bytes_max is not None and bytes_max is None:
            raise UsageError(
                f"at_bytes_max={given['at_bytes_max']!r} says nothing without bytes_max; nothing was changed"
            )
    if bytes_max is None:
        return replace(record, bytes_max=None, at_bytes_max=None)
    return replace(
        record, bytes_max=bytes_max, at_bytes_max=AtBound.REFUSE if at_bytes_max is None else at_bytes_max
    )


def _check_levels(runtime: Runtime, name: str, record: SettingsRecord, wanted: Mapping[str, Any]) -> None:
    if wanted.get("compression", KEEP) not in (None, KEEP):
        check_compression(runtime)
    if record.bytes_max is not None and not runtime.has_level(LEVEL_OF_BOUNDS):
        raise UsageError(
            f"log {name!r}: a bound of its bytes needs level {LEVEL_OF_BOUNDS} of the cluster, and owners of builds "
            "before do not keep it; nothing was changed",
            hint="when every node runs this build: embedbk quorum raise",
        )


def _number(given: Any, what: str, kinds: type[enum.IntEnum]) -> int | None:
    if given is None:
        return None
    names = {kind.name.lower(): int(kind) for kind in kinds}
    if not isinstance(given, str) or given not in names:
        raise UsageError(
            f"{what}={given!r}: allowed are {', '.join(map(repr, names))}, or None for the usual one"
        )
    return names[given]


def _bounded(what: str, value: Any, kind: Any, low: float, high: float) -> Any:
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high
    ):
        raise UsageError(f"{what}={value!r}: allowed are numbers from {low:g} on, or None for no such bound")
    return value


def _roll_record(roll: Roll) -> RollRecord:
    return RollRecord(
        roll.bytes, roll.entries, None if roll.age_s is None else max(1, int(roll.age_s * 1000))
    )


def _properties(given: Any) -> dict[str, bytes]:
    if given is None:
        return {}
    is_map = isinstance(given, Mapping) and all(
        isinstance(name, str) and is_text(name) and isinstance(value, bytes) for name, value in given.items()
    )
    if not is_map:
        raise UsageError("properties: allowed is a map of text to bytes")
    properties = dict(given)
    if (size := properties_bytes(properties)) > CUSTOM_BYTES_MAX:
        raise UsageError(f"properties of {size} bytes, allowed are {CUSTOM_BYTES_MAX}; nothing was changed")
    return properties


# --- Made ---------------------------------------------------------------------------------------------------


async def create_log(reading: LogReading, wanted: Mapping[str, Any]) -> LogSettings:
    check_level(reading)
    runtime, name = reading.runtime, reading.given
    record = _changed(NO_SETTINGS, wanted)
    _check_levels(runtime, name, record, wanted)
    for _ in range(_ROUNDS_MAX):
        found = await named(runtime, name, carries=True)
        if found is not None and not isinstance(found, NamedLog):  # Below the level: the name is the log.
            when = [*found, Compare(log_key_path(name), ABSENT), Compare(log_settings_path(name), ABSENT)]
            empty = encode_log_list(LogList(METADATA_VERSION, 0, ()))
            then = [
                Put(log_key_path(name), empty),
                Put(log_settings_path(name), encode_log_settings(record)),
            ]
            is_made = await runtime.transact(when, then, f"creating log {name!r}")
        else:
            more = [(SETTINGS_KEY, encode_log_settings(record))]
            is_made = found is None and await make(runtime, name, more) is not None
        if is_made:
            return await settings(LogReading(runtime, name, reading.password))
        if await log_exists(runtime, name):
            break
    raise LogExists(
        f"there is a log {name!r} already; nothing was changed", hint="log.change() changes its settings"
    )


async def log_exists(runtime: Runtime, name: str) -> bool:
    log_id = await find(runtime, name)
    if log_id is None:
        return False
    value, _ = await runtime.get(log_key_path(log_id), f"asking for log {name!r}")
    return value is not None


# --- What they mean to a writer -----------------------------------------------------------------------------


class WriterTerms(NamedTuple):
    quorum: Quorum
    traits: Traits
    roll: Roll
    revision: int  # The revision of the settings that these follow; ABSENT: there are none.
    record: SettingsRecord  # The settings that the arguments make of them.


async def writer_terms(
    runtime: Runtime, name: str, given: WriterArguments, placement: Placement | None, *, delays_change: bool
) -> WriterTerms:
    """How a log is written by these arguments. Raises UsageError where one of them differs from a setting."""
    record, revision = (None, ABSENT)
    log_id = await find(runtime, name) if runtime.has_level(LEVEL_OF_CURSORS) else None
    if log_id is not None:
        record, revision = await record_of(runtime, log_id)
    settings = _shown(record or NO_SETTINGS, revision)
    kept = WriterArguments(*(getattr(settings, what) for what in WriterArguments._fields))
    roll_of(given.roll)
    differing = [
        f"{what}={ours!r}, and its setting is {theirs!r}"
        for what, ours, theirs in zip(WriterArguments._fields, given, kept, strict=True)
        if ours is not None and theirs is not None and _as_kept(ours) != _as_kept(theirs)
    ]
    if differing:
        raise UsageError(
            f"log {name!r}: {'; '.join(differing)}; nothing was changed",
            hint="leave it out, or change the setting: log.change()",
        )
    used = WriterArguments(*map(_either, given, kept))
    quorum = await quorum_of(runtime, used.ensemble_size, used.write_quorum, used.ack_quorum)
    durability, digest = _either(used.durability, "synced"), _either(used.digest, "crc32c")
    traits = traits_of(
        runtime,
        durability,
        placement,
        delays_change=delays_change,
        digest=digest,
        compression=used.compression,
    )
    # Each writer chooses what its appends wait for, unless the log has a setting for it.
    wanted: dict[str, Any] = {
        what: value
        for what, value in zip(WriterArguments._fields, given, strict=True)
        if value is not None and what != "durability"
    }
    if any(value is not None for value in given[:3]):
        wanted |= dict(
            zip(
                WriterArguments._fields[:3],
                (quorum.ensemble_size, quorum.write_quorum, quorum.ack_quorum),
                strict=True,
            )
        )
    return WriterTerms(quorum, traits, roll_of(used.roll), revision, _changed(record or NO_SETTINGS, wanted))


def _as_kept(value: Any) -> Any:
    """Settings keep an age in ms: else a writer would differ from the settings that its own arguments have become."""
    return _roll_record(value) if isinstance(value, Roll) else value


def _either(ours: Any, theirs: Any) -> Any:
    return theirs if ours is None else ours


async def adopt(runtime: Runtime, name: str, terms: WriterTerms, epoch: int) -> None:
    """Make the arguments of a writer the settings of a log that has none, once the writer has the log. A later owner,
    or settings put meanwhile, take precedence."""
    if terms.revision != ABSENT or terms.record == NO_SETTINGS or not runtime.has_level(LEVEL_OF_CURSORS):
        return
    when = [Compare(log_settings_path(name), ABSENT), Compare(log_owner_path(name), epoch)]
    put = Put(log_settings_path(name), encode_log_settings(terms.record))
    await runtime.transact(when, [put], f"putting the settings of log {name!r}")


async def renewal_quorum(
    runtime: Runtime, name: str, ensemble_size: int | None, write_quorum: int | None, ack_quorum: int | None
) -> Quorum:
    """The sizes of the ledger that an owner proceeds to: what it asks for, else the log's setting, else the default."""
    if (ensemble_size, write_quorum, ack_quorum) == (None, None, None) and runtime.has_level(
        LEVEL_OF_CURSORS
    ):
        record, _ = await record_of(runtime, name)
        if record is not None and record.quorum is not None:
            return record.quorum
    return await quorum_of(runtime, ensemble_size, write_quorum, ack_quorum)


async def resized(runtime: Runtime, name: str, quorum: Quorum, epoch: int) -> None:
    """An owner proceeded to a ledger of these sizes: where the settings have others, put these. A later owner takes
    precedence."""
    if not runtime.has_level(LEVEL_OF_CURSORS):
        return
    for _ in range(_ROUNDS_MAX):
        record, at = await record_of(runtime, name)
        _, owner = await runtime.get(log_owner_path(name), f"asking who owns log {name!r}")
        if record is None or record.quorum in (None, quorum) or owner != epoch:
            return
        e, qw, qa = quorum.ensemble_size, quorum.write_quorum, quorum.ack_quorum
        sized = replace(record, ensemble_size=e, write_quorum=qw, ack_quorum=qa)
        when = [Compare(log_settings_path(name), at), Compare(log_owner_path(name), epoch)]
        put = Put(log_settings_path(name), encode_log_settings(sized))
        if await runtime.transact(when, [put], f"putting the settings of log {name!r}"):
            return
