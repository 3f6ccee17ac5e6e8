"""Taking a bookie out of service: what both faces ask for (P11.3, P10.6).

Decides when a drain may begin, and when a bookie may be removed. One transaction over what was read decides both, never
a client that looked before. A drain raises the bookie's placement, so that no new ledger names it, and compares the
placements of the bookies that are to take its copies, so that two concurrent drains do not count on each other. A
listing that began after the raise and finds no ledger that names the bookie is final; removal compares that the
placement is still the one of that time. Copies are moved by auditor and workers (`repair/`), open ledgers by their
writers.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from embedbk.client.bookie_states import BookieState, bookie_states
from embedbk.client.presence import answers
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put, Tell, Told
from embedbk.codec.registration import (
    BOOKIES_PREFIX,
    PLACEMENTS_PREFIX,
    RETIRED_MAX,
    UNBOUNDED,
    PlacementNote,
    ReadBounds,
    ReadOnlyWord,
    Registration,
    RetiredDirectories,
    cookie_path,
    decode_cookie,
    decode_placement,
    decode_registration,
    encode_placement,
    placement_path,
    registration_path,
)
from embedbk.codec.repair_mark import REPAIR_PREFIX
from embedbk.codec.repair_state import UNREPAIRABLE_PREFIX
from embedbk.codec.tombstone import DELETED_PREFIX
from embedbk.errors import MetadataConflict, NotEnoughBookies, PeerError, StorageError, UsageError
from embedbk.ids import Member, check_bookie_id, check_why
from embedbk.metadata.claims import REPAIRING_PREFIX
from embedbk.metadata.levels import LEVEL_OF_DRAINS
from embedbk.repair.bookie_use import (
    UNREADABLE,
    ClusterKeys,
    LedgerOnBookie,
    incarnations_of,
    ledgers_on,
    without_taker,
)

__all__ = [
    "BookieReport",
    "cancel_drain",
    "cluster_keys",
    "decommission",
    "drain",
    "no_such_bookie",
    "registered_now",
    "report_on",
    "retire",
]

SHOWN_MAX = 1_000  # Ledgers that are named; all are counted.
NAMED_MAX = 8  # Ledgers named in one sentence.
TAKERS_MAX = 100  # One drain compares the placements of so many other bookies; they are enough.
_TRIES = 20  # Tries while others change what was read.
_WHY_CHARS = 300


class BookieReport(NamedTuple):
    """A bookie, and what it waits for. is_draining: nothing is placed there, and what is there moves off. why, by,
    since_ms: of that decision. ledgers: those that name it, at most 1,000; ledger_count: all of them. incarnation: of
    the directories that its id is bound to, in hexadecimal digits; empty: of none. read_only: which
    operator put it to read-only, why and when, also while it is drained; None: nobody did. read_bounds: bytes per
    second that it reads for each class of reads at most; 0: as fast as it goes (P6.7)."""

    bookie: BookieState
    is_draining: bool
    why: str
    by: str
    since_ms: int
    ledgers: tuple[LedgerOnBookie, ...]
    ledger_count: int
    incarnation: str = ""
    read_only: ReadOnlyWord | None = None
    read_bounds: ReadBounds = UNBOUNDED

    @property
    def is_empty(self) -> bool:
        """Whether no ledger names it. While it is drained that stays so, and it may be decommissioned."""
        return self.ledger_count == 0


async def report_on(runtime: Runtime, bookie_id: str) -> BookieReport:
    """Raises UsageError: the cluster never had a bookie of this id, or has it no more."""
    check_bookie_id(bookie_id)
    what = f"looking at bookie {bookie_id}"
    state = {each.bookie_id: each for each in await bookie_states(runtime)}.get(bookie_id)
    if state is None:
        raise no_such_bookie(bookie_id)
    note, _ = await _note(runtime, bookie_id, what)
    return await _report(runtime, state, note, what)


async def _report(runtime: Runtime, state: BookieState, note: PlacementNote, what: str) -> BookieReport:
    there = await registered_now(runtime, what)
    found = ledgers_on(state.bookie_id, await cluster_keys(runtime, what), set(_members(there)))
    told = (note.why, note.by, note.changed_ms) if note.is_draining else ("", "", 0)
    cookie, _ = await runtime.get(cookie_path(state.bookie_id), what)
    bound = decode_cookie(cookie).incarnation.hex() if cookie is not None else ""
    return BookieReport(
        state,
        note.is_draining,
        *told,
        tuple(found[:SHOWN_MAX]),
        len(found),
        bound,
        note.read_only,
        note.read_bounds,
    )


async def drain(runtime: Runtime, bookie_id: str, *, why: str = "") -> BookieReport:
    """Place nothing on the bookie any more, and move what it has to others; it still serves what it has. Draining a
    drained bookie changes nothing.

    Raises:
        UsageError: no such bookie; or the cluster's level is too low.
        NotEnoughBookies: no other bookie can take the copies of some ledgers, so the drain could not end.
        MetadataConflict: others kept changing what was read. In each case nothing was changed.
    """
    check_bookie_id(bookie_id)
    check_why(why)
    what = f"draining bookie {bookie_id}"
    await _check_level(runtime, bookie_id, what)
    for _ in range(_TRIES):
        # Placements first: a bookie that is listed as writable after that, and still has the same placement, takes
        # copies.
        placements = {each.key: each for each in await runtime.list_keys(PLACEMENTS_PREFIX, what)}
        registered = await registered_now(runtime, what)
        record = placements.get(placement_path(bookie_id))
        note = decode_placement(record.value or b"") if record is not None else PlacementNote()
        if note.is_draining:
            break
        await _check_known(runtime, bookie_id, registered, what)
        own = registered.get(bookie_id)
        if own is not None and own.placement is None:
            raise UsageError(
                f"bookie {bookie_id} is listed without a placement, for want of room in the metadata: who names it "
                "compares nothing; nothing was changed",
                hint="delete ledgers or logs; it gets one by itself within 10 s of room",
            )
        takers = {
            name: placements[placement_path(name)].revision
            for name, each in registered.items()
            if name != bookie_id and each.is_writable and placement_path(name) in placements
        }
        ledgers = {each.key: each.value or b"" for each in await runtime.list_keys(LEDGERS_PREFIX, what)}
        _check_takers(bookie_id, ledgers, takers)
        new = replace(
            note, is_draining=True, why=why[:_WHY_CHARS], by=_who(runtime), changed_ms=runtime.wall_ms()
        )
        when = [Compare(placement_path(bookie_id), ABSENT if record is None else record.revision)]
        when += [Compare(placement_path(name), revision) for name, revision in _some(takers)]
        if await runtime.transact(when, [Put(placement_path(bookie_id), encode_placement(new))], what):
            break
    else:
        raise MetadataConflict(f"{what}: others changed placements {_TRIES} times; nothing was changed")
    return await report_on(runtime, bookie_id)


def _some(takers: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(takers.items())[:TAKERS_MAX]


def _check_takers(bookie_id: str, ledgers: dict[str, bytes], takers: dict[str, int]) -> None:
    stuck = without_taker(bookie_id, ledgers, [name for name, _ in _some(takers)])
    if stuck:
        count = len(takers)
        raise NotEnoughBookies(
            f"bookie {bookie_id} cannot be drained: {len(stuck)} ledgers ({_named(stuck)}) have copies on it that none "
            f"of the {count} other writable bookies can take, as each of those has its seat in them already; "
            "nothing was changed",
            definite=True,
            hint="start another bookie first",
        )


async def cancel_drain(runtime: Runtime, bookie_id: str, *, why: str = "") -> None:
    """The bookie takes new ledgers again, unless an operator put it to read-only; what moved off it stays where it is.

    Raises:
        UsageError: it is not drained, or there is no such bookie; nothing was changed.
    """
    check_bookie_id(bookie_id)
    check_why(why)
    what = f"cancelling the drain of bookie {bookie_id}"
    key = placement_path(bookie_id)
    for _ in range(_TRIES):
        value, revision = await runtime.get(key, what)
        note = _readable(value or b"")
        if note is not None and not note.is_draining:
            raise UsageError(f"bookie {bookie_id} is not drained; nothing was changed")
        new = replace(
            note or PlacementNote(),
            is_draining=False,
            why=why[:_WHY_CHARS],
            by=_who(runtime),
            changed_ms=runtime.wall_ms(),
        )
        if await runtime.transact([Compare(key, revision)], [Put(key, encode_placement(new))], what):
            return
    raise MetadataConflict(f"{what}: others changed it {_TRIES} times; nothing was changed")


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
    await _check_level(runtime, bookie_id, what)
    was, own = b"", b""  # Its placement before and after this call raised it; empty: it did not.
    for _ in range(_TRIES):
        value, revision = await runtime.get(key, what)
        note = decode_placement(value or b"")
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
            set(_members(await registered_now(runtime, what))),
        )
        if on_it:
            if own and own == value:
                await runtime.transact([Compare(key, revision)], [Put(key, was)], what)
            raise _still_named(bookie_id, on_it)
        if not note.is_draining:
            # The process is dead: what is listed from now on is final.
            raised = replace(
                note, is_draining=True, why=why[:_WHY_CHARS], by=_who(runtime), changed_ms=runtime.wall_ms()
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
            retired=_retired(note, known, there, bookie_id, runtime.wall_ms(), _who(runtime), why),
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
        f"{what}: others changed what was read {_TRIES} times", hint="look at it, and try again"
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
    what, key = f"retiring bookie {bookie_id}", placement_path(bookie_id)
    check_why(why, is_needed=bool(incarnation))
    await _check_level(runtime, bookie_id, what)
    for _ in range(_TRIES):
        value, revision = await runtime.get(key, what)
        note = decode_placement(value or b"")
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
            for each in ledgers_on(bookie_id, keys, set(_members(registered)))
            if each.is_last or each.state == UNREADABLE
        ]
        if last and not accepts_loss:
            raise UsageError(
                f"of {len(last)} ledgers ({_named(last)}) nobody else who is there has a copy, or their metadata "
                "cannot be read; nothing was changed",
                hint="bring other bookies back first; or accept the loss (--accept-loss)",
            )
        is_known = any(each.incarnation == gone for each in note.retired)
        new = RetiredDirectories(gone, runtime.wall_ms(), _who(runtime), why[:_WHY_CHARS])
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
    raise MetadataConflict(f"{what}: others changed what was read {_TRIES} times; nothing was changed")


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
        RetiredDirectories(each, now_ms, by, why[:_WHY_CHARS], was_empty=True)
        for each in sorted(incarnations)
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


def _still_named(bookie_id: str, found: list[LedgerOnBookie]) -> UsageError:
    last = [each.ledger_id for each in found if each.is_last]
    only = f"; of {_named(last)} nobody else who is there has a copy" if last else ""
    return UsageError(
        f"bookie {bookie_id} is still named by {len(found)} ledgers ({_named([each.ledger_id for each in found])})"
        f"{only}; nothing was changed",
        hint=f"embedbk bookie show {bookie_id} says what each waits for",
    )


def no_such_bookie(bookie_id: str) -> UsageError:
    return UsageError(
        f"the cluster has no bookie {bookie_id}; nothing was changed",
        hint="embedbk bookie list names all that it has",
    )


async def _check_known(
    runtime: Runtime, bookie_id: str, registered: dict[str, Registration], what: str
) -> None:
    if bookie_id not in registered and (await runtime.get(cookie_path(bookie_id), what))[0] is None:
        raise no_such_bookie(bookie_id)


async def _check_level(runtime: Runtime, bookie_id: str, what: str) -> None:
    await runtime.get(placement_path(bookie_id), what)  # After any answer the level is known.
    if not runtime.has_level(LEVEL_OF_DRAINS):
        raise UsageError(
            f"{what} needs level {LEVEL_OF_DRAINS} of the cluster; nothing was changed",
            hint="raise it when all nodes run this build: embedbk quorum raise",
        )


async def _note(runtime: Runtime, bookie_id: str, what: str) -> tuple[PlacementNote, int]:
    value, revision = await runtime.get(placement_path(bookie_id), what)
    return decode_placement(value or b""), revision


def _readable(value: bytes) -> PlacementNote | None:
    try:
        return decode_placement(value)
    except StorageError:
        return None


async def registered_now(runtime: Runtime, what: str) -> dict[str, Registration]:
    """The registrations by a linearizable read, unlike the list that clients follow. A bookie whose registration cannot
    be read counts as away."""
    found: dict[str, Registration] = {}
    for record in await runtime.list_keys(BOOKIES_PREFIX, what):
        bookie_id = record.key.removeprefix(BOOKIES_PREFIX)
        try:
            found[bookie_id] = decode_registration(record.value or b"", bookie_id)
        except StorageError:
            continue
    return found


def _members(registered: dict[str, Registration]) -> list[Member]:
    return [Member(bookie_id, each.incarnation) for bookie_id, each in registered.items()]


async def cluster_keys(runtime: Runtime, what: str) -> ClusterKeys:
    """Ledgers, then deleted ones: a client that brings a ledger back in between raises the placements of the drained
    bookies that it names, which removal finds (`deleting.placements_now`)."""

    async def keys(prefix: str) -> dict[str, bytes]:
        return {each.key: each.value or b"" for each in await runtime.list_keys(prefix, what)}

    ledgers = await keys(LEDGERS_PREFIX)
    deleted = await keys(DELETED_PREFIX)
    marks, given_up = await keys(REPAIR_PREFIX), await keys(UNREPAIRABLE_PREFIX)
    return ClusterKeys(ledgers, deleted, marks, given_up, set(await keys(REPAIRING_PREFIX)))


def _who(runtime: Runtime) -> str:
    return runtime.owner()[:100]


def _named(ledger_ids: list[int]) -> str:
    more = f" and {len(ledger_ids) - NAMED_MAX} more" if len(ledger_ids) > NAMED_MAX else ""
    return ", ".join(map(str, ledger_ids[:NAMED_MAX])) + more
