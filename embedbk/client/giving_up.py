"""An operator gives up entries of a ledger that are lost for good (P11.5).

`core/loss_search` finds these entries, anew each time: a bookie that is declared gone (`embedbk bookie gone`, or
`replace`) counts as no copy; every other one has to say for certain that it has none. Decides when the word may be
given: nobody writes the ledger, it is as it was shown, and so are the declarations about its bookies. Then one
transaction puts it into the ledger's metadata, for ever.

    looked for ─▶ shown, confirmed ─▶ one transaction: which entries, who, when, why; CLOSED, where it was not
"""

from __future__ import annotations

from typing import NamedTuple

from embedbk.client.bookie_reports import registered_now
from embedbk.client.ledger_ids import check_ledger_id, no_such_ledger
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.lost_entries import LOSSES_MAX, TEXT_CHARS, Losses
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.codec.registration import PLACEMENTS_PREFIX, decode_placement, placement_path
from embedbk.core.loss_search import LossPlan, LossSearch
from embedbk.errors import MetadataConflict, StorageError, UsageError
from embedbk.ids import Member, check_why
from embedbk.metadata.levels import LEVEL_OF_LOSSES

__all__ = ["LostEntries", "give_up", "lost_entries"]

_COMPARED_MAX = 100  # Placements that one transaction compares.


class LostEntries(NamedTuple):
    """What would be given up. runs: lost entries as (first, last, step); entry_count of them. last_entry, length: the
    ledger's then. gone: bookies (id, incarnation in hexadecimal digits) whose copies count as lost. is_end_named: the
    ledger is not closed, and would be."""

    ledger_id: int
    runs: tuple[tuple[int, int, int], ...]
    entry_count: int
    last_entry: int
    length: int
    gone: tuple[tuple[str, str], ...]
    is_end_named: bool
    plan: LossPlan
    revision: int  # The revision of the ledger's key.
    placements: dict[str, int]  # Revisions of the placements of the gone bookies, as they were read.


async def lost_entries(runtime: Runtime, ledger_id: int, password: Password) -> LostEntries:
    """Look for the entries of a ledger that are lost for good. Reads all of it, and changes nothing but that a ledger
    that is not closed is fenced.

    Raises:
        NoSuchLedger, WrongPassword.
        UsageError: nothing is lost; the ledger is OPEN; bookies that are there can settle it by themselves; a bookie
            without a seat for an entry has a copy of it; or the cluster's level is too low.
        RecoveryInconclusive: a bookie that may have an entry is away and not declared gone, or cannot tell.
    """
    check_ledger_id(ledger_id)
    what = f"looking for what is lost of ledger {ledger_id}"
    value, revision = await runtime.get(ledger_key_path(ledger_id), what)
    if value is None:
        raise no_such_ledger(ledger_id)
    if not runtime.has_level(LEVEL_OF_LOSSES):
        raise UsageError(
            f"entries are given up at level {LEVEL_OF_LOSSES}, and the cluster's level is lower; nothing was changed",
            hint="embedbk quorum raise, when all nodes know it",
        )
    metadata = decode_ledger_metadata(value, ledger_id)
    password.check(metadata)
    if metadata.freed is not None:
        raise UsageError(
            f"the copies of ledger {ledger_id} are files of the archive in {metadata.freed.path!r}, and no bookie has "
            "to have any: nothing of it is given up",
            hint="put files that are missing or damaged back from a copy of the archive",
        )
    if metadata.state == LedgerState.OPEN:
        raise UsageError(
            f"ledger {ledger_id} is open: its writer may live, and bookies that are there may have all of it; nothing "
            "was changed",
            hint=f"embedbk ledger recover {ledger_id} fences its writer; give up what that cannot settle",
        )
    if len(metadata.lost) >= LOSSES_MAX:
        raise UsageError(
            f"of ledger {ledger_id} entries were given up {LOSSES_MAX} times already, which is the most"
        )
    gone, placements = await _gone(runtime, metadata, what)
    there = [Member(name, each.incarnation) for name, each in (await registered_now(runtime, what)).items()]
    core = LossSearch(metadata, gone, there, password.key, password.mac_key)
    plan: LossPlan = await runtime.run_to_its_end(core, what)
    closed = plan.metadata
    assert closed.last_entry is not None and closed.length is not None
    return LostEntries(
        ledger_id,
        plan.runs,
        plan.entry_count,
        closed.last_entry,
        closed.length,
        tuple((name, incarnation.hex()) for name, incarnation in plan.gone),
        plan.is_end_named,
        plan,
        revision,
        placements,
    )


async def _gone(
    runtime: Runtime, metadata: LedgerMetadata, what: str
) -> tuple[frozenset[Member], dict[str, int]]:
    """The bookies in the ledger's fragments that operators declared gone, and the revisions of these declarations.

    Raises StorageError where a declaration cannot be read."""
    named = {member for each in metadata.fragments for member in each.members}
    gone: set[Member] = set()
    placements: dict[str, int] = {}
    for record in await runtime.list_keys(PLACEMENTS_PREFIX, what):
        name = record.key.removeprefix(PLACEMENTS_PREFIX)
        if name not in {member.bookie_id for member in named}:
            continue
        try:
            retired = decode_placement(record.value or b"").retired
        except StorageError as unread:
            raise StorageError(f"what was declared of bookie {name} cannot be read: {unread}") from unread
        of_it = {Member(name, each.incarnation) for each in retired} & named
        if of_it:
            gone |= of_it
            placements[name] = record.revision
    return frozenset(gone), placements


async def give_up(runtime: Runtime, shown: LostEntries, *, why: str, by: str = "") -> LedgerMetadata:
    """Give these entries up, for ever: readers get `Lost` for them, and nothing looks for copies any more.

    Raises:
        UsageError: no reason was given; nothing was changed.
        MetadataConflict: the ledger, or a declaration about its bookies, has changed since; nothing was changed.
    """
    if not isinstance(shown, LostEntries):
        raise UsageError(f"shown={shown!r:.80}: what lost_entries showed is allowed; nothing was changed")
    check_why(why, is_needed=True)
    plan, what = shown.plan, f"giving up entries of ledger {shown.ledger_id}"
    word = Losses(
        plan.runs,
        tuple((name, incarnation) for name, incarnation in plan.gone),
        runtime.wall_ms(),
        (by or runtime.owner())[:TEXT_CHARS],
        why[:TEXT_CHARS],
        plan.is_end_named,
    )
    decided = plan.metadata.with_changes(lost=(*plan.metadata.lost, word))
    key = ledger_key_path(shown.ledger_id)
    when = [Compare(key, shown.revision)]
    when += [
        Compare(placement_path(name), shown.placements[name])
        for name in dict.fromkeys(name for name, _ in plan.gone)
    ][:_COMPARED_MAX]
    if not await runtime.transact(when, [Put(key, encode_ledger_metadata(decided))], what):
        raise MetadataConflict(
            f"{what}: the ledger, or what was declared of its bookies, is another by now; nothing was changed",
            hint="look again what is lost",
        )
    return decided
