"""Taking a bookie out of the cluster, and giving directories up for ever: what both faces ask for (P11.3, P11.5).

Decides when a bookie may be removed, and which directories are refused from then on. One transaction over what was read
decides it, never a client that looked before. A listing that began after the bookie's placement was raised (`draining`)
and finds no ledger that names the bookie is final; removal compares that the placement is still the one of that time.
"""

from __future__ import annotations

from msgspec.structs import replace

from embedbk.client.bookie_reports import (
    cluster_keys,
    members_of,
    named,
    no_such_bookie,
    note_of,
    registered_now,
)
from embedbk.client.draining import TRIES, WHY_CHARS, check_level, who
from embedbk.client.presence import answers
from embedbk.client.runtime import Runtime
from embedbk.codec.metadata_messages import Compare, Delete, Put, Tell, Told
from embedbk.codec.registration import (
    RETIRED_MAX,
    UNBOUNDED,
    PlacementNote,
    Registration,
    RetiredDirectories,
    cookie_path,
    decode_cookie,
    decode_registration,
    encode_placement,
    placement_path,
    registration_path,
)
from embedbk.config import check_flag
from embedbk.errors import MetadataConflict, PeerError, UsageError
from embedbk.ids import Member, check_bookie_id, check_why
from embedbk.repair.bookie_use import UNREADABLE, ClusterKeys, LedgerOnBookie, incarnations_of, ledgers_on

__all__ = ["decommission", "retire"]


async def decommission(runtime: Runtime, bookie_id: str, *, why: str = "") -> None:
    """Remove the bookie from the cluster, once no ledger names it: its registration, and at last its cookie. Its
    directories are refused for ever; a process that still runs ends. Decommissioning it again changes nothing.

    Raises:
        UsageError: no such bookie; it is there and not drained, or answers though it is not registered; it is embedded;
            a ledger names it; or the metadata was brought back from a copy and bookies may have ledgers that it does
            not know. Nothing was changed.
        MetadataConflict: others changed what was read again and again.
    """
    check_bookie_id(bookie_id)
    check_why(why)
    what, key = f"decommissioning bookie {bookie_id}", placement_path(bookie_id)
    await check_level(runtime, bookie_id, what)
    was, own = b"", b""  # Its placement before and after this call raised it; empty: it did not.
    for _ in range(TRIES):
        value, revision = await runtime.get(key, what)
        note = note_of(bookie_id, value)
        known, cookie_revision = await runtime.get(cookie_path(bookie_id), what)
        there, registration_revision = await runtime.get(registration_path(bookie_id), what)
        if known is None and there is None:
            if note.retired:
                return
            raise no_such_bookie(bookie_id)
        if there is not None:
            _check_may_go(bookie_id, decode_registration(there, bookie_id), note)
        elif known is not None and not own:
            await _check_silent(runtime, bookie_id, known, decode_cookie(known).incarnation)
        # Adopting names bookies that hold copies; once no id is spared or stale, no adoption can succeed any more.
        await _check_nothing_lost(runtime, bookie_id, what)
        on_it = ledgers_on(
            bookie_id,
            await cluster_keys(runtime, what),
            set(members_of(await registered_now(runtime, what))),
        )
        if on_it:
            if own and own == value:
                await runtime.transact([Compare(key, revision)], [Put(key, was)], what)
            raise _stillnamed(bookie_id, on_it)
        if not note.is_draining:
            # The process is dead: what is listed from now on is final.
            raised = replace(
                note, is_draining=True, why=why[:WHY_CHARS], by=who(runtime), changed_ms=runtime.wall_ms()
            )
            was, own = value or b"", encode_placement(raised)
            await runtime.transact([Compare(key, revision)], [Put(key, own)], what)
            continue
        gone = replace(
            note,
            is_draining=False,
            read_only=None,
            read_bounds=UNBOUNDED,
            changed_ms=runtime.wall_ms(),
            retired=_retired(note, known, there, bookie_id, runtime.wall_ms(), who(runtime), why),
        )
        when = [
            Compare(key, revision),
            Compare(registration_path(bookie_id), registration_revision),
            Compare(cookie_path(bookie_id), cookie_revision),
        ]
        then: list[Put | Delete] = [Put(key, encode_placement(gone))]
        then += [Delete(registration_path(bookie_id))] if there is not None else []
        then += [Delete(cookie_path(bookie_id))] if known is not None else []
        if await runtime.transact(when, then, what):
            return
    raise MetadataConflict(
        f"{what}: others changed what was read {TRIES} times", hint="look at it, and try again"
    )


async def retire(
    runtime: Runtime, bookie_id: str, incarnation: str = "", *, why: str = "", accepts_loss: bool = False
) -> str:
    """Retire directories for ever: a bookie that starts on them is refused. incarnation: which, in hexadecimal digits;
    empty: those that the id is bound to, which then may be bound to others (`replace`). What ledgers have on them
    counts as lost, and is copied from other bookies, as when a bookie stays away. Returns the incarnation that was
    retired.

    why: the reason, kept for later readers; needed where an incarnation is named. accepts_loss: also where no other
    bookie that is there has a copy.

    Raises:
        UsageError: no such bookie or incarnation; no reason; it is registered, or answers where it was; or no other
            bookie that is there has a copy of some ledger. Nothing was changed.
        MetadataConflict: others changed what was read again and again.
    """
    check_bookie_id(bookie_id)
    if not isinstance(incarnation, str):
        raise UsageError(
            f"incarnation={incarnation!r:.80}: hexadecimal digits are allowed; nothing was changed",
            hint="as bookie(bookie_id).incarnation says",
        )
    what, key = f"retiring bookie {bookie_id}", placement_path(bookie_id)
    check_why(why, is_needed=bool(incarnation))
    check_flag(accepts_loss, "accepts_loss")
    await check_level(runtime, bookie_id, what)
    for _ in range(TRIES):
        value, revision = await runtime.get(key, what)
        note = note_of(bookie_id, value)
        cookie, cookie_revision = await runtime.get(cookie_path(bookie_id), what)
        there, registration_revision = await runtime.get(registration_path(bookie_id), what)
        keys, registered = await cluster_keys(runtime, what), await registered_now(runtime, what)
        bound = decode_cookie(cookie).incarnation if cookie is not None else b""
        gone = _meant(bookie_id, incarnation, bound, note, keys)
        if there is not None and decode_registration(there, bookie_id).incarnation == gone:
            raise UsageError(
                f"bookie {bookie_id} is registered with these directories; nothing was changed",
                hint="stop it; of one that was just killed the session ends soon",
            )
        if there is None:
            await _check_silent(runtime, bookie_id, cookie, gone)
        last = [
            each.ledger_id
            for each in ledgers_on(bookie_id, keys, set(members_of(registered)))
            if each.is_last or each.state == UNREADABLE
        ]
        if last and not accepts_loss:
            raise UsageError(
                f"of {len(last)} ledgers ({named(last)}) nobody else who is there has a copy, or their metadata "
                "cannot be read; nothing was changed",
                hint="bring other bookies back first; or accept the loss (--accept-loss)",
            )
        is_known = any(each.incarnation == gone for each in note.retired)
        new = RetiredDirectories(gone, runtime.wall_ms(), who(runtime), why[:WHY_CHARS])
        retired = note.retired if is_known else (*note.retired, new)[-RETIRED_MAX:]
        is_draining = note.is_draining and bool(incarnation)
        # Decisions about disks that were replaced are void.
        read_only = note.read_only if incarnation else None
        read_bounds = note.read_bounds if incarnation else UNBOUNDED
        changed = replace(
            note,
            is_draining=is_draining,
            changed_ms=runtime.wall_ms(),
            retired=retired,
            read_only=read_only,
            read_bounds=read_bounds,
        )
        when = [
            Compare(key, revision),
            Compare(cookie_path(bookie_id), cookie_revision),
            Compare(registration_path(bookie_id), registration_revision),
        ]
        then: list[Put | Delete] = [Put(key, encode_placement(changed))]
        if not incarnation:
            then.append(Delete(cookie_path(bookie_id)))
        if await runtime.transact(when, then, what):
            return gone.hex()
    raise MetadataConflict(f"{what}: others changed what was read {TRIES} times; nothing was changed")


async def _check_silent(runtime: Runtime, bookie_id: str, cookie: bytes | None, incarnation: bytes) -> None:
    """Raises UsageError: the bookie answers in this incarnation, though its session ended. Metadata does not hear it;
    clients may, and may still be acknowledged by it."""
    if cookie is None:
        return
    known = decode_cookie(cookie)
    if known.incarnation != incarnation:
        return
    if await answers(runtime, Member(bookie_id, incarnation), known.endpoints):
        raise UsageError(
            f"bookie {bookie_id} answers at {', '.join(known.endpoints)} with these directories, though it is not "
            "registered; nothing was changed",
            hint="stop its process first, or find out why it does not reach the metadata",
        )


def _meant(bookie_id: str, incarnation: str, bound: bytes, note: PlacementNote, keys: ClusterKeys) -> bytes:
    """Raises UsageError: neither the id nor a ledger knows such directories."""
    if not incarnation:
        if not bound:
            raise no_such_bookie(bookie_id)
        return bound
    known = {bound, *incarnations_of(bookie_id, keys), *(each.incarnation for each in note.retired)} - {b""}
    meant = next((each for each in known if each.hex() == incarnation.lower()), None)
    if meant is None:
        names = ", ".join(sorted(each.hex() for each in known)) or "none"
        raise UsageError(
            f"bookie {bookie_id} has no incarnation {incarnation!r}; nothing was changed",
            hint=f"it has {names}",
        )
    return meant


def _retired(
    note: PlacementNote,
    cookie: bytes | None,
    registration: bytes | None,
    bookie_id: str,
    now_ms: int,
    by: str,
    why: str,
) -> tuple[RetiredDirectories, ...]:
    """Raises StorageError for a cookie that cannot be read, since it alone says whose directories these are."""
    incarnations: set[bytes] = set()
    if cookie is not None:
        incarnations.add(decode_cookie(cookie).incarnation)
    if registration is not None:
        incarnations.add(decode_registration(registration, bookie_id).incarnation)
    new = tuple(
        RetiredDirectories(each, now_ms, by, why[:WHY_CHARS], was_empty=True) for each in sorted(incarnations)
    )
    return (*note.retired, *new)[-RETIRED_MAX:]


def _check_may_go(bookie_id: str, there: Registration, note: PlacementNote) -> None:
    if any(each.startswith("local://") for each in there.endpoints):
        raise UsageError(
            f"bookie {bookie_id} is one of an embedded cluster, whose process starts all of its bookies; nothing was "
            "changed",
            hint="let bookies of their own processes join, drain this one, and leave it empty",
        )
    if not note.is_draining:
        raise UsageError(
            f"bookie {bookie_id} is there, at {', '.join(there.endpoints)}, and is not drained; nothing was changed",
            hint=f"embedbk bookie drain {bookie_id} moves what it has to others; of one that was just killed the "
            "session ends soon",
        )


async def _check_nothing_lost(runtime: Runtime, bookie_id: str, what: str) -> None:
    told = await runtime.ask(Tell(0), what)
    if not isinstance(told, Told):
        raise PeerError(f"{what}: the metadata member answered with a {type(told).__name__}")
    if told.spared or told.stale:
        raise UsageError(
            f"the metadata was brought back from an older copy, and bookie {bookie_id} may have ledgers, or entries of "
            "ledgers, that it does not know of; nothing was changed",
            hint="embedbk ledger lost names them; adopt takes them back, and forget lets them go",
        )


def _stillnamed(bookie_id: str, found: list[LedgerOnBookie]) -> UsageError:
    last = [each.ledger_id for each in found if each.is_last]
    only = f"; of {named(last)} nobody else who is there has a copy" if last else ""
    return UsageError(
        f"bookie {bookie_id} is still named by {len(found)} ledgers ({named([each.ledger_id for each in found])})"
        f"{only}; nothing was changed",
        hint=f"embedbk bookie show {bookie_id} says what each waits for",
    )
