"""An operator puts a bookie to read-only, and ends that: what both faces ask for (P11.3, P10.6).

Decides nothing but the transaction. The word stands in the bookie's placement beside a drain's, and whoever says it
raises that key: a client that chose the bookie before compares an older one, and nothing newly names it. The bookie
follows the key, lists itself as not writable with the reason, and serves on what it has: open ledgers keep their seats
and are added to, and nothing moves. It survives restarts. Repair copies nothing to it meanwhile.

A drain and this are apart. A drained bookie may be put to read-only, and one that is read-only may be drained: then it
is drained, and read-only still when the drain is cancelled. To take it out of the cluster ends both, and so do new
disks under its id.
"""

from __future__ import annotations

from msgspec.structs import replace

from embedbk.client.draining import BookieReport, no_such_bookie, report_on
from embedbk.client.runtime import Runtime
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.codec.registration import (
    ReadOnlyWord,
    cookie_path,
    decode_placement,
    decode_registration,
    encode_placement,
    placement_path,
    registration_path,
)
from embedbk.errors import MetadataConflict, UsageError
from embedbk.ids import check_bookie_id
from embedbk.metadata.levels import LEVEL_OF_READ_ONLY_WORDS

__all__ = ["put_to_read_only"]

_TRIES = 20  # Others changed what was read so often.
_WHY_CHARS, _WHO_CHARS = 300, 100


async def put_to_read_only(
    runtime: Runtime, bookie_id: str, *, why: str, is_over: bool = False
) -> BookieReport:
    """Let the bookie take no new ledger and no new seat, until is_over. Said again it changes nothing, nor the reason.

    Raises:
        UsageError: no such bookie; no reason; it is not read-only by such a word (is_over); it is listed without a
            placement; or the cluster's level is too low.
        StorageError: a later build wrote its placement.
        MetadataConflict: others changed it again and again. In each case nothing was changed.
    """
    check_bookie_id(bookie_id)
    what, key = f"putting bookie {bookie_id} to read-only", placement_path(bookie_id)
    if not is_over and not why.strip():
        raise UsageError("a decision needs its reason, for whoever reads it later; nothing was changed")
    value, revision = await runtime.get(key, what)
    if not runtime.has_level(LEVEL_OF_READ_ONLY_WORDS):
        raise UsageError(
            f"{what} needs level {LEVEL_OF_READ_ONLY_WORDS} of the cluster; nothing was changed",
            hint="raise it when all nodes run this build: embedbk quorum raise",
        )
    for _ in range(_TRIES):
        await _check_placed(runtime, bookie_id, revision, what)
        note = decode_placement(value or b"")
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
        if await runtime.transact([Compare(key, revision)], [Put(key, encode_placement(changed))], what):
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
