"""What the oldest entry of a writer that is not acknowledged waits for, by the rule that says so, for people who ask.

Computed from the state that the writer's core holds; nothing is kept for it. Decides nothing of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from embedbk.core.frame_table import Marks
from embedbk.core.quorum import has_ack_quorum, residues_of, write_set_mask
from embedbk.core.seating import Seating
from embedbk.core.writer import Writer, WriterState

__all__ = ["AddsWait", "adds_wait"]


class AddsWait(NamedTuple):
    """rule: its number in PROTOCOL.md. text: "answers of b2, ...", as it continues "it waits for". since_ns: by the
    clock of the core's events. can_go_on: nothing is missing, so that it goes on within a moment, or never."""

    rule: str
    text: str
    since_ns: int
    can_go_on: bool = False


def adds_wait(core: Writer, *, has_unsent: bool) -> AddsWait | None:
    """has_unsent: entries were appended that stand in no frame yet. Returns None when nothing is outstanding."""
    in_flight = core.in_flight
    if core.state is WriterState.CLOSING and core.changes.proposed is not None:
        return AddsWait("P5.1", "the metadata to close the ledger", core.last_active_ns)
    oldest = in_flight.frames.oldest() if in_flight.pending_count else None
    if oldest is not None:
        return _frame_waits(core, oldest)
    if not has_unsent:
        return None
    if in_flight.is_pressed():
        behind = _names(each for each in in_flight.seatings if each.failure is None and each.owed)
        text = f"room: so much is kept for {behind or 'bookies of other ledgers'} that nothing more is sent"
        return AddsWait("P4.5", text, core.last_active_ns)
    return AddsWait("P3.1", "its next frame to be sealed", core.last_active_ns, can_go_on=True)


def _frame_waits(core: Writer, oldest: Marks) -> AddsWait:
    in_flight, stall = core.in_flight, core.stall
    seatings, entry_id = in_flight.seatings, oldest.first_entry
    sent = [each.owed[entry_id] for each in seatings if entry_id in each.owed]
    since_ns = min(sent, default=core.last_active_ns)
    if stall.is_short:
        failed = "; ".join(f"{each.member.bookie_id}: {each.failure}" for each in seatings if each.failure)
        text = f"bookies: fewer than {core.quorum.ack_quorum} can be used in some write set ({failed})"
        return AddsWait("P4.5", text, since_ns if stall.since_ns is None else stall.since_ns)
    is_done = _has_quorum(core, oldest, seatings)
    proposal = core.changes.proposal
    proposed = None if proposal is None else proposal.seatings
    is_changing = proposed is not None and not (is_done and _has_quorum(core, oldest, proposed))
    # Where enough of those that sit can be used it waits for their answers, and not for the change.
    if is_changing and (is_done or not in_flight.has_usable_quorum()):
        return AddsWait("P4.2", "an ensemble change that the metadata has not settled", since_ns)
    if is_done:
        return AddsWait("P3.3", f"entry {entry_id} to be confirmed", since_ns, can_go_on=True)
    mask = 0
    for residue in residues_of(oldest.first_entry, oldest.last_entry, core.quorum):
        mask |= write_set_mask(residue, core.quorum)
    silent = [each for each in seatings if mask >> each.seat & 1 and not oldest.acked >> each.slot & 1]
    usable = [each for each in silent if each.failure is None]
    if in_flight.is_deferred and in_flight.received >= oldest.last_entry:
        return AddsWait("P3.2", f"the disks of {_names(usable)}; appends do not wait for them", since_ns)
    if usable and all(each.busy is not None for each in usable):
        return AddsWait("P7.8", f"room at {_names(usable)}, which answer that they are busy", since_ns)
    text = f"answers of {_names(usable)}: entry {entry_id} needs {core.quorum.ack_quorum} of its write set"
    return AddsWait("P3.3", text, since_ns)


def _has_quorum(core: Writer, oldest: Marks, seatings: Iterable[Seating]) -> bool:
    seats = sum(1 << each.seat for each in seatings if oldest.acked >> each.slot & 1)
    return has_ack_quorum(seats, residues_of(oldest.first_entry, oldest.last_entry, core.quorum), core.quorum)


def _names(seatings: Iterable[Seating]) -> str:
    return ", ".join(each.member.bookie_id for each in seatings)
