"""An operator bounds what a bookie reads per second for each class of reads: what both faces ask for (P6.7).

The bounds stand in the bookie's placement beside an operator's other decisions. The bookie follows the key, so that it
obeys within a second or so, and after a restart as soon as it is registered. A writer that chose the bookie before
compares an older placement and chooses again; nothing else comes of the change.
"""

from __future__ import annotations

from msgspec.structs import replace

from embedbk.client.bookie_reports import BookieReport, no_such_bookie, note_of, report_on
from embedbk.client.runtime import Runtime
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.codec.registration import (
    cookie_path,
    encode_placement,
    placement_path,
    registration_path,
)
from embedbk.config import READ_BYTES_PER_S_MAX, READ_BYTES_PER_S_MIN
from embedbk.errors import MetadataConflict, UsageError
from embedbk.ids import check_bookie_id
from embedbk.metadata.levels import LEVEL_OF_READ_BOUNDS

__all__ = ["bound_reads"]

_TRIES = 20  # Others changed what was read so often.
_WHO_CHARS = 100


async def bound_reads(
    runtime: Runtime,
    bookie_id: str,
    *,
    catch_up: int | None = None,
    batch: int | None = None,
    upkeep: int | None = None,
) -> BookieReport:
    """Let the bookie read at most so many bytes per second for readers that go forward, for jobs, and for repair and
    scrubs. 0: as fast as it goes. None: as before.

    Raises:
        UsageError: a bound that is none; no such bookie; it has no placement; or the cluster's level is too low.
        StorageError: a later build wrote its placement.
        MetadataConflict: others changed it again and again. In each case nothing was changed.
    """
    check_bookie_id(bookie_id)
    given = {"catch_up": catch_up, "batch": batch, "upkeep": upkeep}
    wanted = {name: _checked(name, bound) for name, bound in given.items() if bound is not None}
    what, key = f"bounding what bookie {bookie_id} reads", placement_path(bookie_id)
    value, revision = await runtime.get(key, what)
    if not runtime.has_level(LEVEL_OF_READ_BOUNDS):
        raise UsageError(
            f"{what} needs level {LEVEL_OF_READ_BOUNDS} of the cluster; nothing was changed",
            hint="raise it when all nodes run this build: embedbk quorum raise",
        )
    for _ in range(_TRIES):
        if not revision:
            raise await _unplaced(runtime, bookie_id, what)
        note = note_of(bookie_id, value)
        bounds = replace(note.read_bounds, **wanted)
        if bounds == note.read_bounds:
            return await report_on(runtime, bookie_id)
        bounds = replace(bounds, by=runtime.owner()[:_WHO_CHARS], since_ms=runtime.wall_ms())
        changed = encode_placement(replace(note, read_bounds=bounds))
        if await runtime.transact([Compare(key, revision)], [Put(key, changed)], what):
            return await report_on(runtime, bookie_id)
        value, revision = await runtime.get(key, what)
    raise MetadataConflict(f"{what}: others changed it {_TRIES} times; nothing was changed")


def _checked(name: str, bound: int) -> int:
    is_number = isinstance(bound, int) and not isinstance(bound, bool)
    if not is_number or not (bound == 0 or READ_BYTES_PER_S_MIN <= bound <= READ_BYTES_PER_S_MAX):
        raise UsageError(
            f"{name}={bound!r}: allowed are bytes per second, {READ_BYTES_PER_S_MIN} to {READ_BYTES_PER_S_MAX}, or 0 "
            "for as fast as it goes; nothing was changed"
        )
    return bound


async def _unplaced(runtime: Runtime, bookie_id: str, what: str) -> UsageError:
    known, _ = await runtime.get(cookie_path(bookie_id), what)
    there, _ = await runtime.get(registration_path(bookie_id), what)
    if known is None and there is None:
        return no_such_bookie(bookie_id)
    return UsageError(
        f"bookie {bookie_id} is listed without a placement, where bounds would stand; nothing was changed",
        hint="it gets one by itself when it registers and the metadata has room",
    )
