"""What a recoverer may conclude from the answers it received: I2, I23 to I29."""

from __future__ import annotations

from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState
from embedbk.core.quorum import write_set
from embedbk.ids import Member
from embedbk.testing.ghost import Ghost, LedgerGhost, RecoveryGhost
from embedbk.testing.violation import Violation

__all__ = [
    "coverage_of_every_write_set",
    "end_has_its_negatives",
    "floor_is_right",
    "marking_changes_the_state_only",
    "read_where_it_was",
    "recovered_is_what_closed",
    "write_back_is_complete",
]


def coverage_of_every_write_set(ghost: Ghost, recovery: RecoveryGhost) -> None:
    """I23: coverage. Fencing is over only when in each write set of the last fragment fewer than Qa members have not
    said that their fence is durable; judged on members, never on a count of answers."""
    base = recovery.base
    assert base is not None
    first = base.fragments[-1].first_entry
    need = base.write_quorum - base.ack_quorum + 1
    for entry_id in range(first, first + base.ensemble_size):
        if (ghost.write_mask(base, entry_id) & recovery.fenced).bit_count() < need:
            raise Violation(
                "I23",
                f"recovery of ledger {base.ledger_id} by {recovery.node} went on without {need} durable fences in the "
                f"write set of {entry_id}",
            )


def floor_is_right(recovery: RecoveryGhost, first: int) -> None:
    """I27: recovery floor. It starts behind the highest LAC received, and never below the last fragment."""
    base = recovery.base
    assert base is not None
    wanted = max(recovery.lac, base.fragments[-1].first_entry - 1) + 1
    if first < wanted or (recovery.floor is None and first != wanted):
        raise Violation(
            "I27",
            f"recovery of ledger {base.ledger_id} by {recovery.node} reads from {first}, its floor is {wanted}",
        )


def read_where_it_was(ghost: Ghost, recovery: RecoveryGhost, member: Member, first: int) -> None:
    """I26: read where it was. Recovery reads go to the write set of the version that the recovery started from,
    whatever replacements it made itself (BK-355)."""
    base = recovery.base
    assert base is not None
    if not ghost.write_mask(base, first) & ghost.bit(member):
        raise Violation("I26", f"recovery of ledger {base.ledger_id} asked {member} for entry {first}")


def end_has_its_negatives(recovery: RecoveryGhost, end: int) -> None:
    """I24: negative needs coverage. The entry behind the end has (Qw - Qa) + 1 explicit negatives of its write set.

    I25: generous positive. No valid copy of it was shown before.
    """
    base = recovery.base
    assert base is not None
    absent = end + 1
    if absent in recovery.copies:
        raise Violation(
            "I25", f"recovery of ledger {base.ledger_id} ends at {end} and was shown entry {absent}"
        )
    members = base.fragments[-1].members
    said = {
        members[seat]
        for seat in write_set(absent, base.quorum)
        if any(first <= absent <= last for first, last in recovery.negatives.get(members[seat], ()))
    }
    need = base.write_quorum - base.ack_quorum + 1
    if len(said) < need:
        raise Violation(
            "I24",
            f"recovery of ledger {base.ledger_id} by {recovery.node} ends at {end}: {len(said)} of {need} said that "
            f"{absent} is not there",
        )


def marking_changes_the_state_only(old: LedgerMetadata | None, proposed: LedgerMetadata) -> None:
    """I28: recovery publishes once. Before its closing change a recovery publishes the state IN_RECOVERY, no more."""
    if proposed.state == LedgerState.CLOSED or old is None:
        return
    if proposed.with_changes(state=old.state) != old:
        raise Violation(
            "I28", f"ledger {proposed.ledger_id}: a recovery wants to publish more than IN_RECOVERY"
        )


def write_back_is_complete(ghost: Ghost, recovery: RecoveryGhost, proposed: LedgerMetadata) -> None:
    """I29: write-back complete. When recovery asks to close, every entry above its floor was written back to Qa members
    of its write set in the fragments it publishes; none is skipped."""
    last = proposed.last_entry
    assert last is not None
    if recovery.floor is None or recovery.end is None:
        raise Violation(
            "I29", f"ledger {proposed.ledger_id}: a recovery closes it and has not read to an end"
        )
    if last != recovery.end:
        raise Violation(
            "I29", f"ledger {proposed.ledger_id}: closes at {last}, the end found is {recovery.end}"
        )
    bits_of: dict[int, int] = {}
    for first, frame in recovery.frames.items():
        bits = 0
        for bit in recovery.confirmed.get(first, {}).values():
            bits |= bit
        for entry_id in range(first, frame.last_entry + 1):
            bits_of[entry_id] = bits
    for entry_id in range(recovery.floor + 1, last + 1):
        mask = ghost.write_mask(proposed, entry_id)
        if (mask & bits_of.get(entry_id, 0)).bit_count() < proposed.ack_quorum:
            raise Violation(
                "I29",
                f"ledger {proposed.ledger_id} closes at {last}: entry {entry_id} is not written back to a quorum",
            )


def recovered_is_what_closed(ledger: LedgerGhost, metadata: LedgerMetadata) -> None:
    """I2: one closer. Every recovery that ends well reports the end that closed the ledger first."""
    closed = ledger.closed
    if closed is None or (closed.last_entry, closed.length) != (metadata.last_entry, metadata.length):
        end = None if closed is None else closed.last_entry
        raise Violation(
            "I2", f"a recovery says that ledger {ledger.ledger_id} ends at {metadata.last_entry}, not {end}"
        )
