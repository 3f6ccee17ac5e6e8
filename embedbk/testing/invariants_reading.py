"""Checks of what readers receive: I5, I9, I10, I11, I12, I38, I100, L12."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from embedbk.codec.lost_entries import is_lost
from embedbk.codec.read_messages import ReadAnswer, ReadClass, ReadRequest
from embedbk.errors import NoSuchEntry
from embedbk.ids import NO_ENTRY
from embedbk.testing.ghost import Ghost, LedgerGhost
from embedbk.testing.violation import Violation

__all__ = [
    "acknowledged_is_readable",
    "copies_are_there",
    "may_be_told_to_wait",
    "nothing_is_unread_again",
    "nothing_past_the_end",
    "own_appends_are_shown",
    "parked_reader_is_quiet",
    "read_is_clean",
    "read_is_repeatable",
    "reader_lac_is_true",
    "reader_lac_rises",
]

PARKED_SENDS_MAX = 200  # Requests of one waiting reader in one virtual second.


def read_is_clean(ledger: LedgerGhost, entry_id: int) -> None:
    """I9: no dirty read. A reader that did not ask for unconfirmed entries gets none above what was acknowledged, or
    above the end of the closed ledger."""
    if entry_id <= ledger.acked:
        return
    closed = ledger.closed
    if closed is None or closed.last_entry is None or entry_id > closed.last_entry:
        raise Violation(
            "I9",
            f"a reader got entry {entry_id} of ledger {ledger.ledger_id}, acknowledged is up to {ledger.acked}",
        )


def may_be_told_to_wait(
    bounds: Sequence[int], request: ReadRequest, answer: ReadAnswer, frame_count: int
) -> None:
    """P6.7: only where an operator bounded the class of the read, never the tail, nor a recovery; nothing is said of
    any entry."""
    kind = min(request.reads_as, ReadClass.UPKEEP)
    if kind == ReadClass.TAIL or request.fence or not bounds[kind]:
        raise Violation("P6.7", f"a read was told to wait that nothing bounds: {request}, bounds {bounds}")
    if answer.absent or frame_count or not answer.wait_ms:
        raise Violation(
            "P6.7", f"a read was told to wait and something besides, or not for how long: {answer}"
        )


def copies_are_there(ghost: Ghost, client: str, ledger: LedgerGhost, entry_id: int, count: int) -> None:
    """I4: what a ticket counts is durable on so many bookies, or was, on disks that were lost or harmed since."""
    if ledger.deleted is not None:
        return  # Its copies go.
    there = ledger.stable.get(entry_id, 0) | ledger.damaged.get(entry_id, 0) | ghost.lost
    if there.bit_count() < count:
        raise Violation(
            "I4",
            f"{client} is told of {count} copies of entry {entry_id} of ledger {ledger.ledger_id}: there are "
            f"{there.bit_count()}",
        )


def nothing_past_the_end(ledger: LedgerGhost, entry_id: int) -> None:
    """I38: past the end. No reader gets entries beyond a closed ledger's last entry, wherever they still lie."""
    closed = ledger.closed
    if closed is not None and closed.last_entry is not None and entry_id > closed.last_entry:
        raise Violation(
            "I38",
            f"a reader got entry {entry_id} of ledger {ledger.ledger_id}, which ends at {closed.last_entry}",
        )


def read_is_repeatable(ledger: LedgerGhost, entry_id: int, payload: bytes) -> None:
    """I10: repeatable read. The same entry has the same bytes, for every reader, at any time.

    I7: content. They are those that the application gave.
    """
    given = ledger.given.get(entry_id)
    if given is not None and given != payload:
        raise Violation(
            "I7", f"a reader got other bytes than were given for ledger {ledger.ledger_id} entry {entry_id}"
        )
    if ledger.read.setdefault(entry_id, payload) != payload:
        raise Violation("I10", f"ledger {ledger.ledger_id} entry {entry_id} was read twice, and differs")


def nothing_is_unread_again(ledger: LedgerGhost, entry_id: int, error: Exception | None) -> None:
    """I10: repeatable read. An entry that was read as confirmed is never "no such entry", nor behind the end, later."""
    if error is not None and not isinstance(error, NoSuchEntry):
        return
    if ledger.deleted is None and entry_id <= ledger.read_last and entry_id in ledger.read:
        raise Violation(
            "I10", f"ledger {ledger.ledger_id} entry {entry_id} was read before, and is said to be absent"
        )


def reader_lac_is_true(client: str, ledger: LedgerGhost, lac: int, *, is_closed: bool) -> None:
    """I12: LAC is true. No reader is shown a LAC above what was acknowledged, or another end than the ledger has."""
    closed = ledger.closed
    if is_closed and (closed is None or closed.last_entry != lac):
        end = None if closed is None else closed.last_entry
        raise Violation("I12", f"{client} was shown the end {lac} of ledger {ledger.ledger_id}; it is {end}")
    if not is_closed and lac > ledger.acked:
        raise Violation(
            "I12",
            f"{client} was shown LAC {lac} of ledger {ledger.ledger_id}, acknowledged is {ledger.acked}",
        )


def reader_lac_rises(ghost: Ghost, client: str, ledger: LedgerGhost, lac: int, handle: Hashable) -> None:
    """I11: LAC monotone. A reader's handle never shows less than it showed before, be it a LAC or the end. (A fresh
    handle may receive less than an older one of the same client.)"""
    key = (client, ledger.ledger_id, handle)
    before = ghost.known_lac.get(key, NO_ENTRY)
    if lac < before:
        raise Violation(
            "I11", f"a reader of {client} showed LAC {before} of ledger {ledger.ledger_id}, then {lac}"
        )
    ghost.known_lac[key] = lac


def own_appends_are_shown(client: str, ledger: LedgerGhost, lac: int) -> None:
    """I100: own appends are shown. The readers of a process may read its acknowledged appends from then on."""
    told = ledger.acked_to.get(client, NO_ENTRY)
    if lac < told:
        raise Violation(
            "I100",
            f"{client} may read ledger {ledger.ledger_id} up to {lac}, and was acknowledged {told} of it",
        )


def acknowledged_is_readable(ledger: LedgerGhost) -> None:
    """I5: acked is readable. Once all is healed, a fresh reader was given every acknowledged entry."""
    if ledger.deleted is not None or ledger.closed is None or ledger.is_refused:
        return
    for entry_id in range(ledger.acked + 1):
        is_given_up = ledger.metadata is not None and is_lost(ledger.metadata.lost, entry_id)
        if entry_id not in ledger.read_healed and not is_given_up:
            raise Violation(
                "I5", f"ledger {ledger.ledger_id}: nobody could read the acknowledged entry {entry_id}"
            )


def parked_reader_is_quiet(ledger_id: int, sends: int) -> None:
    """L12: a reader that waits on a fenced, never closed ledger does not spin (#2052)."""
    if sends > PARKED_SENDS_MAX:
        raise Violation("L12", f"a waiting reader of ledger {ledger_id} sent {sends} requests in one second")


def everything_came_to_rest(ledger: LedgerGhost) -> None:
    """L1: once all is healed, a ledger that clients want closed is closed."""
    metadata = ledger.metadata
    if metadata is not None and ledger.deleted is None and not ledger.is_refused and not metadata.is_closed:
        raise Violation("L1", f"ledger {ledger.ledger_id} is in state {metadata.state} at the end")
