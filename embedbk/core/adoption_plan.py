"""What an adoption makes of what bookies hold: seats, further copies, and the ledger's metadata (P10.5).

Decides who gets which seat, which entries are copied to whom, and what the key and the record of the adoption say. Pure
but for the chance that it is given; leaves to `adopting` when there is enough to plan by, and carrying it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from embedbk.codec.adopted import ADOPTED_VERSION, AdoptedLedger
from embedbk.codec.digest import DigestType
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from embedbk.config import Quorum
from embedbk.core.client_words import BookieInfo
from embedbk.core.fitting import Seats, fit, guess_quorum, lacking
from embedbk.core.placement import Chance
from embedbk.core.survey import Survey
from embedbk.errors import EmbedbkError, NotEnoughBookies, StorageError
from embedbk.ids import Member

__all__ = [
    "AdoptionPlan",
    "AdoptionCopies",
    "PlannedAdoption",
    "StaleKey",
    "plan_adoption",
]

NAMED_MAX = 120  # Bookies that one transaction can compare beside two keys.


class AdoptionPlan(NamedTuple):
    """What bookies hold of the ledger, and what adopting makes of it."""

    metadata: LedgerMetadata  # CLOSED.
    record: AdoptedLedger
    entries_of: dict[str, int]  # By bookie: how many entries up to the end it has.
    silent: list[str]  # Bookies that count as gone, and did not answer at all.
    revision: int = 0  # The key's revision; 0: this was only a plan.
    is_known: bool = False  # A copy of the metadata has it as it was before.


class StaleKey(NamedTuple):
    """A key of the ledger, as the copy of the metadata has it."""

    metadata: LedgerMetadata
    revision: int


class AdoptionCopies(NamedTuple):
    """Entries, ascending, that one bookie lacks; the same others have all of them."""

    target: Member
    bit: int
    sources: tuple[Member, ...]
    entry_ids: list[int]


class PlannedAdoption(NamedTuple):
    """The plan, and what has to be done for it first."""

    plan: AdoptionPlan
    # Those that get a seat and had nothing: their placement when they were chosen (P10.6).
    chosen: dict[Member, int | None]
    copying: list[AdoptionCopies]  # The first run is the last one.


def plan_adoption(
    ledger_id: int,
    survey: Survey,
    lost: list[tuple[int, int]],
    stale: StaleKey | None,
    bookies: Sequence[BookieInfo],
    chance: Chance,
    verifier: bytes,
    *,
    quorum: Quorum | None,
    by: str,
    wall_ms: int,
) -> PlannedAdoption | EmbedbkError:
    """Find seats, list copies, and put the metadata with them; or say why that cannot be.

    lost: ranges of entries that are given up. verifier: of the ledger's key, for the metadata. quorum: the one that the
    ledger was made with; None: the key's, or a guess by what is there. by, wall_ms: who adopts it and when, for people.
    """
    masks = survey.found()
    known = stale.metadata if stale is not None else None
    info_of = {info.member: info for info in bookies}
    seatable = [each for each in survey.answering if each.is_needed]
    usable = sum(
        1 << survey.bits[each.member.bookie_id] for each in seatable if each.member.bookie_id in survey.bits
    )
    fresh = [
        each.member
        for each in seatable
        if each.member.bookie_id not in survey.bits
        and (info := info_of.get(each.member)) is not None
        and info.is_writable
    ]
    quorum = quorum or (
        known.quorum if known is not None else guess_quorum(masks, usable, usable.bit_count() + len(fresh))
    )
    needed = max(0, quorum.ensemble_size - usable.bit_count())
    if needed > len(fresh):
        return NotEnoughBookies(
            f"ledger {ledger_id} is to have {quorum.ensemble_size} seats, and {usable.bit_count()} bookies "
            f"that may have one hold entries of it, {len(fresh)} more are writable",
            hint="bring bookies back, or ask for fewer seats with --quorum E/QW/QA",
        )
    chosen = chance.sample(fresh, needed)
    placements = {member: info_of[member].placement for member in chosen}
    spare = [survey.bit_of(member.bookie_id) for member in chosen]
    seats = fit(masks, quorum, usable, spare)
    member_of = {bit: survey.holdings[name].member for name, bit in survey.bits.items()}
    fragments = tuple(_fragment(survey, each, member_of) for each in seats)
    named = {member for fragment in fragments for member in fragment.members}
    if len(named) > NAMED_MAX:
        return StorageError(f"ledger {ledger_id} would name {len(named)} bookies, allowed are {NAMED_MAX}")
    copying = _copies(masks, seats, quorum, member_of)
    assert survey.end is not None
    of_unknown = LedgerMetadata(
        version=METADATA_VERSION,
        ledger_id=ledger_id,
        ensemble_size=quorum.ensemble_size,
        write_quorum=quorum.write_quorum,
        ack_quorum=quorum.ack_quorum,
        state=LedgerState.OPEN,
        last_entry=None,
        length=None,
        password_verifier=verifier,
        created_ms=0,
        custom={},
        fragments=fragments,
        digest=DigestType.CRC32C if survey.digest is None else survey.digest,
    )
    metadata = (known or of_unknown).with_changes(
        ensemble_size=quorum.ensemble_size,
        write_quorum=quorum.write_quorum,
        ack_quorum=quorum.ack_quorum,
        state=LedgerState.CLOSED,
        last_entry=survey.end,
        length=survey.length(),
        fragments=fragments,
    )
    gone = tuple(
        (each.member.bookie_id, each.member.incarnation)
        for each in survey.holdings.values()
        if not each.is_needed
    )
    record = AdoptedLedger(
        ADOPTED_VERSION,
        ledger_id,
        wall_ms,
        by,
        survey.lac,
        gone,
        tuple(lost),
        sum(len(each.entry_ids) for each in copying),
        tuple(each.member.bookie_id for each in survey.answering),
    )
    entries_of = {name: sum(mask >> bit & 1 for mask in masks) for name, bit in sorted(survey.bits.items())}
    silent = sorted(name for name, each in survey.holdings.items() if each.is_silent)
    plan = AdoptionPlan(metadata, record, entries_of, silent, is_known=known is not None)
    return PlannedAdoption(plan, placements, copying)


def _fragment(survey: Survey, seats: Seats, member_of: dict[int, Member]) -> Fragment:
    length_before = survey.begins[seats.first] if seats.first else 0
    return Fragment(seats.first, length_before, tuple(member_of[bit] for bit in seats.bits))


def _copies(
    masks: Sequence[int], seats: Sequence[Seats], quorum: Quorum, member_of: dict[int, Member]
) -> list[AdoptionCopies]:
    """The entries that each bookie lacks, in runs that the same other bookies have; the first run is the last
    one."""
    runs: list[AdoptionCopies] = []
    latest: dict[int, tuple[int, AdoptionCopies]] = {}  # By bit: the holders of its latest run.
    for entry_id, bit in lacking(masks, seats, quorum):
        mask = masks[entry_id]
        if bit in latest and latest[bit][0] == mask:
            latest[bit][1].entry_ids.append(entry_id)
            continue
        sources = tuple(member_of[each] for each in range(mask.bit_length()) if mask >> each & 1)
        run = AdoptionCopies(member_of[bit], bit, sources, [entry_id])
        latest[bit] = (mask, run)
        runs.append(run)
    return runs[::-1]
