"""What both faces ask of repair: how healthy the cluster is, and the switch."""

from __future__ import annotations

import contextlib

from msgspec.structs import replace

from embedbk.client.runtime import FollowedKey, Runtime
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.codec.registration import BOOKIES_PREFIX, decode_registration
from embedbk.codec.repair_mark import REPAIR_PREFIX
from embedbk.codec.repair_state import (
    AUDIT_KEY,
    AUDITOR_LOCK,
    CONTROL_KEY,
    UNREPAIRABLE_PREFIX,
    AuditNote,
    RepairControl,
    decode_audit_note,
    decode_repair_control,
    encode_repair_control,
)
from embedbk.config import GRACE_S_MAX, GRACE_S_MIN, check_seconds
from embedbk.errors import MetadataConflict, OperationTimeout, StorageError, UsageError
from embedbk.ids import Member, check_why
from embedbk.metadata.claims import REPAIRING_PREFIX, lock_path
from embedbk.metadata.levels import LEVEL_OF_COPIES, LEVEL_OF_GRACES, LEVEL_OF_HOLDINGS, LEVEL_OF_KEEPERS
from embedbk.repair.copy_comparison import Conflict
from embedbk.repair.health import Health, judge, with_holdings, with_settings
from embedbk.repair.holdings import Checked, CheckOptions, HoldingCheck
from embedbk.repair.log_shapes import LogShapes
from embedbk.repair.published import Unlike
from embedbk.repair.rack_spread import fewest_racks
from embedbk.repair.reshaping import log_of

__all__ = ["ASKED_AT_ONCE", "ask_bookies", "audit", "health_of", "set_grace", "switch_repair"]

SHOWN_MAX = 1_000  # Ledgers that are named; all are counted.
ASKED_AT_ONCE = 1_000  # Ledgers whose bookies are asked within one time limit, and questions on their way.
_TRIES = 5
STOP_S_MAX = 30 * 86_400  # Repair is stopped for no longer by a time.


async def health_of(runtime: Runtime) -> Health:
    """Raises MetadataUnavailable: no member answers, so nothing is known."""
    runtime.check()
    what = "the health of the cluster"

    async def keys(prefix: str) -> dict[str, bytes]:
        return {each.key: each.value or b"" for each in await runtime.list_keys(prefix, what)}

    # Marks first, and ledgers behind them: a repair that ends in between is seen as done, or not at all.
    marks, given_up, held = (
        await keys(REPAIR_PREFIX),
        await keys(UNREPAIRABLE_PREFIX),
        await keys(REPAIRING_PREFIX),
    )
    ledgers = await keys(LEDGERS_PREFIX)
    told_ms = runtime.wall_ms()
    there: list[Member] = []
    racks: dict[str, str] = {}
    leaving: list[str] = []
    read_only: list[tuple[str, str]] = []
    for key, value in (await keys(BOOKIES_PREFIX)).items():
        bookie_id = key.removeprefix(BOOKIES_PREFIX)
        try:
            registration = decode_registration(value, bookie_id)
        except StorageError:
            continue  # It counts as away: no client can reach it there.
        there.append(Member(bookie_id, registration.incarnation))
        racks[bookie_id] = registration.location
        leaving += [bookie_id] if registration.is_leaving else []
        if not registration.is_writable and not registration.is_leaving:
            read_only.append((bookie_id, registration.why))
    health = judge(ledgers, there, marks, given_up, held, SHOWN_MAX, leaving)
    closed = _closed(ledgers)
    if runtime.has_level(LEVEL_OF_HOLDINGS):
        checked = await ask_bookies(runtime, closed, frozenset(there), what)
        await _forget_changed(runtime, ledgers, closed, checked, what)
        health = with_holdings(health, checked, closed, marks, held, SHOWN_MAX)
    else:
        lower = f"entries are not counted below the cluster's level {LEVEL_OF_HOLDINGS}: embedbk quorum raise"
        health = health._replace(why_uncounted=lower)
    writable = len(there) - len(leaving) - len(read_only)
    logs = LogShapes(log for metadata in closed.values() if (log := log_of(metadata)) is not None)
    health = with_settings(health, closed.values(), await runtime.run(logs, what), writable)
    auditor = await runtime.get(lock_path(AUDITOR_LOCK), what)
    note = await _note(runtime, what)
    control, _ = await _control(runtime, what)
    return health._replace(
        is_stopped=control.is_stopped,
        stopped_by=control.by if control.is_stopped else "",
        stopped_why=control.why if control.is_stopped else "",
        stopped_until_ms=control.ends_ms or 0,
        auditor=(auditor[0] or b"").decode("utf-8", "replace"),
        audited_ms=note.ended_ms,
        grace_s=control.grace_ms / 1000,
        read_only=tuple(read_only),
        racks=fewest_racks(closed.values(), racks),
        told_ms=told_ms,
    )


def _closed(ledgers: dict[str, bytes]) -> dict[int, LedgerMetadata]:
    """CLOSED ledgers; one that cannot be read counts as lacking already."""
    closed: dict[int, LedgerMetadata] = {}
    for key, value in ledgers.items():
        ledger_id = ledger_of_key(key)
        with contextlib.suppress(StorageError):
            if ledger_id is not None and (found := decode_ledger_metadata(value, ledger_id)).is_closed:
                closed[ledger_id] = found
    return closed


async def ask_bookies(
    runtime: Runtime, closed: dict[int, LedgerMetadata], there: frozenset[Member], what: str
) -> Checked:
    """So many ledgers at a time, each in the time of one operation."""
    whole, conflicts = Checked({}, {}, 0), dict[int, list[Conflict]]()
    unlike: dict[int, list[Unlike]] = {}
    for begin in range(0, len(closed), ASKED_AT_ONCE):
        part = dict(list(closed.items())[begin : begin + ASKED_AT_ONCE])
        found: Checked = await runtime.run(
            HoldingCheck(part, there, CheckOptions(at_once=ASKED_AT_ONCE, is_brief=False)), what
        )
        whole.short.update(found.short)
        whole.untold.update(found.untold)
        conflicts.update(found.conflicts)
        unlike.update(found.unlike)
    return whole._replace(conflicts=conflicts, unlike=unlike)


async def _forget_changed(
    runtime: Runtime,
    ledgers: dict[str, bytes],
    closed: dict[int, LedgerMetadata],
    checked: Checked,
    what: str,
) -> None:
    """A ledger that was deleted, or repaired, while its bookies were asked: what they said is of another one."""
    for ledger_id in sorted({*checked.short, *checked.untold, *checked.conflicts, *checked.unlike})[
        :SHOWN_MAX
    ]:
        key = ledger_key_path(ledger_id)
        value, _ = await runtime.get(key, what)
        if value is None:
            del closed[ledger_id]
        elif value != ledgers[key]:
            checked.short.pop(ledger_id, None)
            checked.untold[ledger_id] = {"": "it was changed meanwhile"}


async def _note(runtime: Runtime, what: str) -> AuditNote:
    value, _ = await runtime.get(AUDIT_KEY, what)
    try:
        return AuditNote() if value is None else decode_audit_note(value)
    except StorageError:
        return AuditNote()


async def _control(runtime: Runtime, what: str) -> tuple[RepairControl, int]:
    value, revision = await runtime.get(CONTROL_KEY, what)
    if value is None:
        return RepairControl(), ABSENT
    return decode_repair_control(value), revision


async def audit(runtime: Runtime, timeout_s: float | None) -> Health:
    """Have all ledgers looked at, and wait until they were; then the health.

    Raises:
        UsageError: repair is switched off, or the cluster's level is too low.
        OperationTimeout: it was not over in timeout_s, or nobody is the auditor; it goes on.
    """
    runtime.check()
    check_seconds(timeout_s, "timeout_s")
    what = "an audit"
    await runtime.get(CONTROL_KEY, what)  # Behind an answer the level is known.
    _check_level(runtime, LEVEL_OF_GRACES, what)
    control, _ = await _control(runtime, what)
    if control.is_stopped:
        raise UsageError(
            f"repair is switched off by {control.by or 'somebody'} ({control.why}), and the auditor with it",
            hint="embedbk repair start, or bk.start_repair()",
        )
    triggers = (await switch_repair(runtime, triggers=True)).triggers
    until_s = None if timeout_s is None else runtime.clock_s() + timeout_s
    followed = await runtime.follow(AUDIT_KEY)
    try:
        while (note := _note_in(followed)).triggers < triggers:
            look_s = runtime.settings.operation_timeout_s
            left_s = look_s if until_s is None else min(look_s, until_s - runtime.clock_s())
            has_moved = left_s > 0 and await followed.beyond(followed.revision, left_s)
            runtime.check()
            if has_moved:
                continue
            auditor, _ = await runtime.get(lock_path(AUDITOR_LOCK), what)
            if auditor is None or (until_s is not None and runtime.clock_s() >= until_s):
                raise _not_over(note, auditor, look_s if timeout_s is None else timeout_s)
    finally:
        followed.end()
    return await health_of(runtime)


def _not_over(note: AuditNote, auditor: bytes | None, waited_s: float) -> OperationTimeout:
    named = "nobody" if auditor is None else auditor.decode("utf-8", "replace")
    return OperationTimeout(
        f"the audit was not over in {waited_s:g} s; it goes on. The auditor is {named}, and the last ledger that it "
        f"looked at is {note.after if note.after >= 0 else 'none of this round'}",
        hint="a process that hosts a bookie is the auditor, where Settings.repairs is True"
        if auditor is None
        else "",
    )


def _note_in(followed: FollowedKey) -> AuditNote:
    value = None if followed.state is None else followed.state[0]
    try:
        return AuditNote() if value is None else decode_audit_note(value)
    except StorageError:
        return AuditNote()


def _check_level(runtime: Runtime, level: int, what: str) -> None:
    if not runtime.has_level(level):
        raise UsageError(
            f"{what} needs level {level} of the cluster; nothing was changed",
            hint="raise it when all nodes run this build: embedbk quorum raise",
        )


async def switch_repair(
    runtime: Runtime,
    *,
    stopped: bool | None = None,
    triggers: bool = False,
    grace_s: float | None = None,
    why: str = "",
    for_s: float | None = None,
) -> RepairControl:
    """Switch repair off or on for the whole cluster (None: as it is), or have all ledgers looked at now. grace_s: how
    long a bookie is away before it counts as gone, from now on; 0: as each host is set. for_s: after so long the
    auditor switches it on again.

    Raises:
        UsageError: the cluster's level is too low for repair.
        StorageError: a later build wrote what stands there.
        MetadataConflict: others changed it again and again.
    """
    runtime.check()
    check_why(why)
    what = "the switch of repair"
    await runtime.get(CONTROL_KEY, what)  # Behind an answer the level is known.
    _check_level(runtime, LEVEL_OF_COPIES, "repair")
    if grace_s is not None:
        _check_level(runtime, LEVEL_OF_GRACES, "a grace for the whole cluster")
    if for_s is not None:
        check_seconds(for_s, "for_s")
        if not 1 <= for_s <= STOP_S_MAX:
            raise UsageError(f"for_s={for_s!r}: allowed are 1 to {STOP_S_MAX}, and None; nothing was changed")
        _check_level(runtime, LEVEL_OF_KEEPERS, "a time for which repair is stopped")
    until_ms = 0 if for_s is None else runtime.wall_ms() + int(for_s * 1000)
    for _ in range(_TRIES):
        control, revision = await _control(runtime, what)
        # Who stopped repair, and why, is said as long as it is stopped, whatever else is asked for meanwhile.
        stays = stopped is None and control.is_stopped
        changed = replace(
            control,
            is_stopped=control.is_stopped if stopped is None else stopped,
            triggers=control.triggers + triggers,
            changed_ms=control.changed_ms if stays else runtime.wall_ms(),
            by=control.by if stays else runtime.owner()[:100],
            why=control.why if stays else why[:400],
            grace_ms=control.grace_ms if grace_s is None else int(grace_s * 1000),
            until_ms=control.until_ms if stopped is None else until_ms,
        )
        put = Put(CONTROL_KEY, encode_repair_control(changed))
        if await runtime.transact([Compare(CONTROL_KEY, revision)], [put], what):
            return changed
    raise MetadataConflict(f"{what} was changed by others {_TRIES} times; nothing was changed")


async def set_grace(runtime: Runtime, grace_s: float | None, why: str) -> None:
    if grace_s is not None:
        check_seconds(grace_s, "grace_s")
        if not GRACE_S_MIN <= grace_s <= GRACE_S_MAX:
            raise UsageError(f"grace_s={grace_s!r}: allowed are {GRACE_S_MIN} to {GRACE_S_MAX}, and None")
    await switch_repair(runtime, grace_s=grace_s or 0.0, why=why)
