"""An operator puts a bookie to read-only, and ends that: what both faces ask for (P11.3, P10.6).

Decides whether enough others take entries: no fewer than any ledger has seats that is open, or that is a log's newest,
whose next one has as many. It is decided by the transaction, which compares the placements of those others, so that two
such words do not count on each other's bookie. The word stands in the bookie's placement beside a drain's, and whoever
says it raises that key: a client that chose the bookie before compares an older one, and nothing newly names it. The
bookie follows the key, lists itself as not writable with the reason, and serves on what it has: open ledgers keep their
seats and are added to, and nothing moves. It survives restarts. Repair copies nothing to it meanwhile.

A drain and this are apart. A drained bookie may be put to read-only, and one that is read-only may be drained: then it
is drained, and read-only still when the drain is cancelled. To take it out of the cluster ends both, and so do new
disks under its id.
"""

from __future__ import annotations

from msgspec.structs import replace

from embedbk.client.bookie_reports import BookieReport, no_such_bookie, note_of, registered_now, report_on
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.codec.registration import (
    PLACEMENTS_PREFIX,
    ReadOnlyWord,
    cookie_path,
    decode_placement,
    decode_registration,
    encode_placement,
    placement_path,
    registration_path,
)
from embedbk.config import check_flag
from embedbk.errors import MetadataConflict, NotEnoughBookies, StorageError, UsageError
from embedbk.ids import check_bookie_id, check_why
from embedbk.metadata.levels import LEVEL_OF_READ_ONLY_WORDS
from embedbk.repair.bookie_use import seats_needed

__all__ = ["put_to_read_only"]

_TRIES = 20  # Others changed what was read so often.
_WHY_CHARS, _WHO_CHARS = 300, 100
_NAMED_MAX = 8  # Ledgers in one sentence.


async def put_to_read_only(
    runtime: Runtime, bookie_id: str, *, why: str, is_over: bool = False, force: bool = False
) -> BookieReport:
    """Let the bookie take no new ledger and no new seat, until is_over. Said again it changes nothing, nor the reason.
    force: also if too few others take entries.

    Raises:
        NotEnoughBookies: fewer others take entries than some ledger that is open, or a log's next one, has seats.
        UsageError: no such bookie; no reason; it is not read-only by such a word (is_over); it is listed without a
            placement; or the cluster's level is too low.
        StorageError: a later build wrote its placement.
        MetadataConflict: others changed it again and again. In each case nothing was changed.
    """
    check_bookie_id(bookie_id)
    what, key = f"putting bookie {bookie_id} to read-only", placement_path(bookie_id)
    check_why(why, is_needed=not is_over)
    check_flag(force, "force")
    value, revision = await runtime.get(key, what)
    if not runtime.has_level(LEVEL_OF_READ_ONLY_WORDS):
        raise UsageError(
            f"{what} needs level {LEVEL_OF_READ_ONLY_WORDS} of the cluster; nothing was changed",
            hint="raise it when all nodes run this build: embedbk quorum raise",
        )
    for _ in range(_TRIES):
        await _check_placed(runtime, bookie_id, revision, what)
        note = note_of(bookie_id, value)
        if is_over and note.read_only is None:
            raise UsageError(
                f"bookie {bookie_id} is not read-only by an operator's word; nothing was changed",
                hint=f"embedbk bookie show {bookie_id} says why it takes no entries, if it takes none; a word that "
                "stands in its directory ends by embedbk storage writable",
            )
        if not is_over and note.read_only is not None:
            return await report_on(runtime, bookie_id)
        word = ReadOnlyWord(runtime.owner()[:_WHO_CHARS], why[:_WHY_CHARS], runtime.wall_ms())
        changed = replace(note, read_only=None if is_over else word)
        when = [Compare(key, revision)]
        if not is_over and not force:
            when += await _check_others(runtime, bookie_id, what)
        if await runtime.transact(when, [Put(key, encode_placement(changed))], what):
            return await report_on(runtime, bookie_id)
        value, revision = await runtime.get(key, what)
    raise MetadataConflict(f"{what}: others changed it {_TRIES} times; nothing was changed")


async def _check_placed(runtime: Runtime, bookie_id: str, revision: int, what: str) -> None:
    """Without a placement nobody who names the bookie compares anything (P10.6)."""
    known, _ = await runtime.get(cookie_path(bookie_id), what)
    there, _ = await runtime.get(registration_path(bookie_id), what)
    if known is None and there is None:
        raise no_such_bookie(bookie_id)
    has_none = there is not None and decode_registration(there, bookie_id).placement is None
    if has_none or not revision:
        raise UsageError(
            f"bookie {bookie_id} is listed without a placement: who names it compares nothing; nothing was changed",
            hint="it gets one by itself when it registers and the metadata has room",
        )


async def _check_others(runtime: Runtime, bookie_id: str, what: str) -> list[Compare]:
    """The placements of those who take entries beside it, of as many as are needed: the transaction compares them.

    Raises NotEnoughBookies: they are fewer than some ledger needs."""
    # Placements first: who is listed as writable behind that, and has the same placement then, takes entries. One that
    # was put away just now lists itself so only later.
    placements = {
        each.key: each.revision
        for each in await runtime.list_keys(PLACEMENTS_PREFIX, what)
        if not _is_put_away(each.value or b"")
    }
    registered = await registered_now(runtime, what)
    others = sorted(
        name
        for name, each in registered.items()
        if name != bookie_id and each.is_writable and placement_path(name) in placements
    )
    ledgers = {each.key: each.value or b"" for each in await runtime.list_keys(LEDGERS_PREFIX, what)}
    seats, ledger_ids = seats_needed(ledgers)
    if len(others) < seats:
        named = ", ".join(map(str, ledger_ids[:_NAMED_MAX]))
        more = f" and {len(ledger_ids) - _NAMED_MAX} more" if len(ledger_ids) > _NAMED_MAX else ""
        raise NotEnoughBookies(
            f"bookie {bookie_id} cannot be put to read-only: {len(others)} other bookies take entries "
            f"({', '.join(others) or 'none'}), and {seats} are needed by ledgers that are open, or the newest of their "
            f"logs ({named}{more}); nothing was changed",
            definite=True,
            hint="start another bookie first; or --force: then nobody begins a ledger of so many seats until one comes",
        )
    return [Compare(placement_path(name), placements[placement_path(name)]) for name in others[:seats]]


def _is_put_away(value: bytes) -> bool:
    """By an operator's word; one that cannot be read counts as put away."""
    try:
        note = decode_placement(value)
    except StorageError:
        return True
    return note.is_draining or note.read_only is not None
