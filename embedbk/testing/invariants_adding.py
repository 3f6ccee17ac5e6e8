"""What a creator confirms, and how it changes ensembles: I3, I4, I13, I14, I15, I16, I17, I30, I39, L13."""

from __future__ import annotations

from typing import Any

from embedbk.codec.frame import Frame, split
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.lost_entries import is_lost
from embedbk.core.client_words import EnsembleChanged, Send
from embedbk.core.quorum import residues_of, write_set
from embedbk.testing.ghost import Ghost, HandleGhost, LedgerGhost, WriterGhost
from embedbk.testing.violation import Violation

__all__ = [
    "acknowledged_is_kept",
    "acknowledged_once_in_order",
    "acknowledgement_has_its_quorum",
    "change_is_proposed_at_the_lac",
    "metadata_comes_first",
    "never_both",
    "queues_stay_bounded",
    "replaced_is_forgotten",
    "replacements_get_everything",
    "sent_to_the_write_set",
]


def acknowledged_once_in_order(ledger: LedgerGhost, lac: int) -> None:
    """I13: ack rule. Acknowledgements come in entry order, once each.

    I3: no truncation. None comes for an entry beyond the end of the closed ledger, be the writer fenced or paused.
    """
    if lac <= ledger.acked:
        raise Violation("I13", f"ledger {ledger.ledger_id}: acknowledged up to {lac} after {ledger.acked}")
    if ledger.closed is not None and ledger.closed.last_entry is not None and lac > ledger.closed.last_entry:
        raise Violation(
            "I3",
            f"ledger {ledger.ledger_id}: entry {lac} was acknowledged behind its end {ledger.closed.last_entry}",
        )


def _quorum_lacking(
    ghost: Ghost, handle: HandleGhost, metadata: LedgerMetadata, first: int, last: int
) -> int | None:
    """The first of the frame's entries whose write set by this version has not confirmed it Qa times."""
    confirmed = handle.confirmed.get(first)
    bits = 0
    if confirmed:
        for bit in confirmed.values():
            bits |= bit
    if metadata.ensemble_size == metadata.write_quorum:
        if (ghost.write_mask(metadata, first) & bits).bit_count() < metadata.ack_quorum:
            return first
        if len(metadata.fragments) == 1 or metadata.fragments[-1].first_entry <= first:
            return None
    for entry_id in range(first, min(last, first + metadata.ensemble_size - 1) + 1):
        if (ghost.write_mask(metadata, entry_id) & bits).bit_count() < metadata.ack_quorum:
            return entry_id
    return None


def acknowledgement_has_its_quorum(ghost: Ghost, writer: WriterGhost, first: int, last: int) -> None:
    """I13: ack rule. Each entry was confirmed by Qa distinct members of its write set in the committed fragment."""
    metadata = writer.ledger.open
    assert metadata is not None
    lacking = _quorum_lacking(ghost, writer, metadata, first, last)
    if lacking is not None:
        raise Violation(
            "I13",
            f"ledger {writer.ledger.ledger_id}: entry {lacking} was acknowledged without {metadata.ack_quorum} of its "
            f"write set in {metadata.fragment_of(lacking).members}",
        )


def metadata_comes_first(ghost: Ghost, writer: WriterGhost, first: int, last: int) -> None:
    """I14: metadata first. While a proposed ensemble may still be published, an entry at or above its start needs its
    ack quorum there as well (P4.2, #1591). It never will be under a placement that has changed (P10.6)."""
    for sent in writer.proposals.values():
        proposed = sent.proposed
        if (
            sent.revision != writer.ledger.revision
            or proposed.is_closed
            or proposed.fragments[-1].first_entry > last
            or ghost.is_void(sent)
        ):
            continue
        lacking = _quorum_lacking(ghost, writer, proposed, first, last)
        if lacking is not None:
            raise Violation(
                "I14",
                f"ledger {writer.ledger.ledger_id}: entry {lacking} was acknowledged while "
                f"{proposed.fragments[-1].members}, of which too few have it, may become its ensemble",
            )


def acknowledged_is_kept(ghost: Ghost, ledger: LedgerGhost, first: int, last: int) -> None:
    """I4: acked is kept. Qa members of the write set that committed metadata names have it on their disks, less those
    whose disks the test destroyed, and at least one while fewer than Qa were."""
    metadata = ledger.metadata
    if metadata is None or ledger.deleted is not None or metadata.freed is not None:
        return  # If the ledger was freed, the archive's files have all entries (invariants_archives.py).
    for entry_id in range(first, last + 1):
        if is_lost(metadata.lost, entry_id):
            continue  # An operator gave it up (P11.5).
        good, destroyed = ghost.copies(ledger, metadata, entry_id)
        if good < metadata.ack_quorum - destroyed or (destroyed < metadata.ack_quorum and good < 1):
            raise Violation(
                "I4",
                f"ledger {ledger.ledger_id}: acknowledged entry {entry_id} has {good} stable copies, "
                f"{destroyed} were destroyed, promised are {metadata.ack_quorum}",
            )


def change_is_proposed_at_the_lac(
    ghost: Ghost, writer: WriterGhost, core: Any, proposed: LedgerMetadata, *, is_sent_again: bool
) -> None:
    """I15: ensemble change start. The writer proposes a fragment that starts at LAC+1; one that it proposes again may
    start lower, when the entries acknowledged since have their quorum there too (P4.2).

    I17: fragment shape. It does not newly choose a bookie that is not registered, or read-only. is_sent_again: the same
    change of the same version whose outcome is unknown (P2.2): its bookies were chosen, and judged, when it was sent
    first; or one that will not come to pass, sent while the writer does not know why it was refused (P10.6).
    """
    fragment, acked = proposed.fragments[-1], writer.ledger.acked
    is_short = any(
        (ghost.write_mask(proposed, e) & writer.ledger.stable.get(e, 0)).bit_count() < proposed.ack_quorum
        for e in range(fragment.first_entry, acked + 1)
    )
    if fragment.first_entry > acked + 1 or is_short:
        raise Violation(
            "I15",
            f"ledger {writer.ledger.ledger_id}: a change starts at {fragment.first_entry}, acknowledged is {acked}",
        )
    if is_sent_again:
        return
    usable = {bookie.member for bookie in core.bookies if bookie.is_writable}
    before = set(writer.ledger.open.fragments[-1].members) if writer.ledger.open is not None else set()
    for member in fragment.members:
        if member not in before and member not in usable:
            raise Violation(
                "I17", f"ledger {writer.ledger.ledger_id}: {member} was chosen, who is not writable"
            )


def replaced_is_forgotten(ghost: Ghost, writer: WriterGhost, changed: EnsembleChanged) -> None:
    """I16: ensemble change forget. Confirmations of a bookie that lost its seat count no more, also when it comes
    back."""
    seated = 0
    for member in changed.ensemble:
        seated |= ghost.bit(member)
    for confirmed in writer.confirmed.values():
        for seating in [number for number, bit in confirmed.items() if not bit & seated]:
            del confirmed[seating]


def replacements_get_everything(
    ghost: Ghost, writer: WriterGhost, before: LedgerMetadata, changed: EnsembleChanged, sends: list[Send]
) -> None:
    """I16: ensemble change forget. Every outstanding entry is sent to every replacement whose seat holds it."""
    quorum = before.quorum
    old = set(before.fragments[-1].members)
    fresh = [(seat, member) for seat, member in enumerate(changed.ensemble) if member not in old]
    if not fresh:
        return
    asked = {(send.member, send.tag[2]) for send in sends if send.tag[0] == "add"}
    for first, frame in writer.frames.items():
        if first <= writer.ledger.acked:
            continue
        seats = {s for e in residues_of(first, frame.last_entry, quorum) for s in write_set(e, quorum)}
        if quorum.ensemble_size == quorum.write_quorum:
            seats = set(range(quorum.ensemble_size))
        for seat, member in fresh:
            if seat in seats and (member, first) not in asked:
                raise Violation(
                    "I16",
                    f"ledger {writer.ledger.ledger_id}: entries from {first} were not sent to the new {member}",
                )


def sent_to_the_write_set(
    ghost: Ghost, handle: HandleGhost, send: Send, part: Frame, metadata: LedgerMetadata
) -> None:
    """I30: stripe. An entry is sent only to positions (e + i) mod E, i < Qw, of its fragment."""
    bit = ghost.bit(send.member)
    if metadata.ensemble_size == metadata.write_quorum:
        entries = [part.first_entry]
    else:
        entries = [entry_id for entry_id, _ in split(part)]
    for entry_id in entries:
        if not ghost.write_mask(metadata, entry_id) & bit:
            raise Violation(
                "I30",
                f"ledger {handle.ledger.ledger_id}: entry {entry_id} was sent to {send.member}, not of its write set",
            )


def never_both(ledger: LedgerGhost, lac: int) -> None:
    """I39: an error is a maybe, but one answer is the answer: nothing is acknowledged that was reported as failed."""
    if ledger.failed is not None and lac >= ledger.failed:
        raise Violation(
            "I39", f"ledger {ledger.ledger_id}: entry {lac} was told to have failed, and is acknowledged"
        )


def queues_stay_bounded(core: Any) -> None:
    """L13: bounded memory. Outstanding adds stay under the handle's own bounds."""
    if len(core.in_flight.pending) > core.options.inflight_frames_max:
        raise Violation("L13", f"ledger {core.ledger_id}: {len(core.in_flight.pending)} frames in flight")
