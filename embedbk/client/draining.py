"""Draining a bookie: what both faces ask for (P11.3, P10.6).

Decides when a drain may begin. One transaction over what was read decides it, never a client that looked before. A
drain raises the bookie's placement, so that no new ledger names it, and compares the placements of the bookies that are
to take its copies, so that two concurrent drains do not count on each other. Copies are moved by auditor and workers
(`repair/`), open ledgers by their writers. When a bookie may be removed, `retiring` decides.
"""

from __future__ import annotations

from msgspec.structs import replace

from embedbk.client.bookie_reports import (
    BookieReport,
    named,
    no_such_bookie,
    note_of,
    registered_now,
    report_on,
)
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.codec.registration import (
    PLACEMENTS_PREFIX,
    Registration,
    cookie_path,
    encode_placement,
    placement_path,
)
from embedbk.errors import MetadataConflict, NotEnoughBookies, UsageError
from embedbk.ids import check_bookie_id, check_why
from embedbk.metadata.levels import LEVEL_OF_DRAINS
from embedbk.repair.bookie_use import without_taker

__all__ = ["TRIES", "WHY_CHARS", "cancel_drain", "check_level", "drain", "who"]

TAKERS_MAX = 100  # One drain compares the placements of so many other bookies; they are enough.
TRIES = 20  # Tries while others change what was read.
WHY_CHARS = 300


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
    await check_level(runtime, bookie_id, what)
    for _ in range(TRIES):
        # Placements first: a bookie that is listed as writable after that, and still has the same placement, takes
        # copies.
        placements = {each.key: each for each in await runtime.list_keys(PLACEMENTS_PREFIX, what)}
        registered = await registered_now(runtime, what)
        record = placements.get(placement_path(bookie_id))
        note = note_of(bookie_id, record.value if record is not None else None)
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
            note, is_draining=True, why=why[:WHY_CHARS], by=who(runtime), changed_ms=runtime.wall_ms()
        )
        when = [Compare(placement_path(bookie_id), ABSENT if record is None else record.revision)]
        when += [Compare(placement_path(name), revision) for name, revision in _some(takers)]
        if await runtime.transact(when, [Put(placement_path(bookie_id), encode_placement(new))], what):
            break
    else:
        raise MetadataConflict(f"{what}: others changed placements {TRIES} times; nothing was changed")
    return await report_on(runtime, bookie_id)


def _some(takers: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(takers.items())[:TAKERS_MAX]


def _check_takers(bookie_id: str, ledgers: dict[str, bytes], takers: dict[str, int]) -> None:
    stuck = without_taker(bookie_id, ledgers, [name for name, _ in _some(takers)])
    if stuck:
        count = len(takers)
        raise NotEnoughBookies(
            f"bookie {bookie_id} cannot be drained: {len(stuck)} ledgers ({named(stuck)}) have copies on it that none "
            f"of the {count} other writable bookies can take, as each of those has its seat in them already; "
            "nothing was changed",
            definite=True,
            hint="start another bookie first",
        )


async def cancel_drain(runtime: Runtime, bookie_id: str, *, why: str = "") -> None:
    """The bookie takes new ledgers again, unless an operator put it to read-only; what moved off it stays where it is.

    Raises:
        UsageError: it is not drained, or there is no such bookie; nothing was changed.
        StorageError: a later build wrote its placement; nothing was changed.
    """
    check_bookie_id(bookie_id)
    check_why(why)
    what = f"cancelling the drain of bookie {bookie_id}"
    key = placement_path(bookie_id)
    for _ in range(TRIES):
        value, revision = await runtime.get(key, what)
        note = note_of(bookie_id, value)
        if not note.is_draining:
            raise UsageError(f"bookie {bookie_id} is not drained; nothing was changed")
        new = replace(
            note,
            is_draining=False,
            why=why[:WHY_CHARS],
            by=who(runtime),
            changed_ms=runtime.wall_ms(),
        )
        if await runtime.transact([Compare(key, revision)], [Put(key, encode_placement(new))], what):
            return
    raise MetadataConflict(f"{what}: others changed it {TRIES} times; nothing was changed")


async def _check_known(
    runtime: Runtime, bookie_id: str, registered: dict[str, Registration], what: str
) -> None:
    if bookie_id not in registered and (await runtime.get(cookie_path(bookie_id), what))[0] is None:
        raise no_such_bookie(bookie_id)


async def check_level(runtime: Runtime, bookie_id: str, what: str) -> None:
    """Raises UsageError: the cluster's level is too low for drains."""
    await runtime.get(placement_path(bookie_id), what)  # After any answer the level is known.
    if not runtime.has_level(LEVEL_OF_DRAINS):
        raise UsageError(
            f"{what} needs level {LEVEL_OF_DRAINS} of the cluster; nothing was changed",
            hint="raise it when all nodes run this build: embedbk quorum raise",
        )


def who(runtime: Runtime) -> str:
    """Who decides, as a placement notes it."""
    return runtime.owner()[:100]
