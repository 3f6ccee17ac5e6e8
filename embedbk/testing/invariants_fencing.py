"""Checks of what a bookie stores, promises and answers: I7, I8, I11, I12, I19 to I22, I31 to I34, I40."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from embedbk.codec.add_messages import AddAnswer, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import Frame, FrameHeader, split
from embedbk.codec.lac_messages import LacAnswer
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.ids import NO_ENTRY
from embedbk.testing.ghost import BookieGhost, Ghost, LedgerGhost
from embedbk.testing.violation import Violation

__all__ = [
    "acknowledged_is_stable",
    "carried_lac_is_true",
    "content_is_what_was_sent",
    "denied_behind_a_question",
    "entries_of",
    "fence_answer_is_durable",
    "fence_creates_the_ledger",
    "fence_is_sticky",
    "identity_is_checked",
    "limbo_comes_first",
    "limbo_ends_complete",
    "limbo_gives_nothing_away",
    "lookup_is_honest",
    "negative_is_final",
    "negative_is_honest",
    "normal_add_stops_at_the_fence",
    "row_lac_is_true_and_rises",
]


def content_is_what_was_sent(bookie: BookieGhost, ledger: LedgerGhost, frame: Frame) -> tuple[int, ...]:
    """I7: content. Bytes taken for (ledger, entry) are those that its writer made, never another entry's.

    I8: no divergence. Where we did not see a ledger's writer, all other copies must equal the first one seen.
    """
    sent = ledger.sent
    known = len(sent)
    entries = []
    for entry_id, raw in split(frame):
        entries.append(entry_id)
        if entry_id < known:
            if sent[entry_id] != raw:
                raise Violation(
                    "I7",
                    f"{bookie.member} took other bytes than were sent for ledger {ledger.ledger_id} entry {entry_id}",
                )
        elif (
            ledger.given.setdefault(-1 - entry_id, bytes(raw)) != raw
        ):  # Below 0: whole entries, not payloads.
            raise Violation(
                "I8", f"two bookies hold different bytes for ledger {ledger.ledger_id} entry {entry_id}"
            )
    return tuple(entries)


def row_lac_is_true_and_rises(bookie: BookieGhost, ledger: LedgerGhost, row: Any) -> None:
    """I11: LAC monotone. The LAC that a bookie holds never falls while it runs.

    I12: LAC is true. No bookie holds a LAC above what was acknowledged.
    """
    lac = row.lac
    before = bookie.lacs.get(ledger.ledger_id, NO_ENTRY)
    if lac == before:
        return
    if lac < before:
        raise Violation(
            "I11", f"{bookie.member}: the LAC of ledger {ledger.ledger_id} fell from {before} to {lac}"
        )
    if lac > ledger.acked:
        raise Violation(
            "I12",
            f"{bookie.member} holds LAC {lac} of ledger {ledger.ledger_id}, acknowledged is {ledger.acked}",
        )
    bookie.lacs[ledger.ledger_id] = lac


def carried_lac_is_true(ledger: LedgerGhost, header: FrameHeader, *, is_recovery: bool) -> None:
    """I12: LAC is true. An add carries no LAC above what was acknowledged, and a recovery add carries none (#343)."""
    if not header.has_lac:
        return
    if is_recovery:
        raise Violation("I12", f"a recovery add of ledger {ledger.ledger_id} carries LAC {header.lac}")
    if header.lac > ledger.acked:
        raise Violation(
            "I12",
            f"an add of ledger {ledger.ledger_id} carries LAC {header.lac}, acknowledged is {ledger.acked}",
        )


def fence_answer_is_durable(bookie: BookieGhost, ledger_id: int, step: int) -> None:
    """I19: fence is sticky. The flag is on the disk before its acknowledgement leaves."""
    if ledger_id not in bookie.stable_fences:
        raise Violation(
            "I19", f"{bookie.member} acknowledged a fence of ledger {ledger_id} that is not on its disk"
        )
    bookie.fences.setdefault(ledger_id, step)


def fence_is_sticky(bookie: BookieGhost, ledger_id: int, row: Any) -> None:
    """I19: fence is sticky. Once acknowledged, the ledger is fenced at every later moment of this incarnation."""
    if ledger_id in bookie.fences and (row is None or not row.is_fenced):
        raise Violation("I19", f"{bookie.member} forgot the fence of ledger {ledger_id}")


def fence_creates_the_ledger(bookie: BookieGhost, request: Any, answer: FenceAnswer) -> None:
    """I20: fence without ledger. A fence of an unknown ledger makes it known; it is never "no such ledger"."""
    if answer.status == Status.NO_SUCH_LEDGER:
        raise Violation(
            "I20", f"{bookie.member} answered a fence of ledger {request.ledger_id} with NO_SUCH_LEDGER"
        )


def normal_add_stops_at_the_fence(bookie: BookieGhost, answer: AddAnswer, row: Any) -> None:
    """I21: fenced means fenced. Behind an acknowledged fence no normal add is acknowledged.

    I34: deleted is dead. Neither is one of a ledger whose data was dropped here.
    """
    if answer.recovery or answer.status != Status.OK:
        return
    if answer.ledger_id in bookie.fences:
        raise Violation(
            "I21",
            f"{bookie.member} acknowledged a normal add of ledger {answer.ledger_id}, entries {answer.first_entry}.."
            f"{answer.last_entry}, behind its fence",
        )
    if row is not None and row.is_dropped:
        raise Violation(
            "I34", f"{bookie.member} acknowledged an add of the dropped ledger {answer.ledger_id}"
        )


def negative_is_final(
    bookie: BookieGhost, ledger: LedgerGhost, entries: tuple[int, ...], *, is_recovery: bool
) -> None:
    """I22: negative is final. An entry that a recovery read got as absent is never taken by a normal add later."""
    if is_recovery:
        return
    for first, last in bookie.negatives.get(ledger.ledger_id, ()):
        for entry_id in entries:
            if first <= entry_id <= last:
                raise Violation(
                    "I22",
                    f"{bookie.member} took entry {entry_id} of ledger {ledger.ledger_id} after it told a recovery "
                    "that it is not there",
                )


def lookup_is_honest(bookie: BookieGhost, ledger: LedgerGhost, absent: list[tuple[int, int]]) -> None:
    """I31: honest negative. The entry store finds nothing absent that is on the bookie's disk."""
    entry_id = _first_held(bookie, ledger, absent)
    if entry_id is not None:
        raise Violation(
            "I31",
            f"{bookie.member} did not find entry {entry_id} of ledger {ledger.ledger_id}, which it holds",
        )


def negative_is_honest(
    bookie: BookieGhost,
    ledger: LedgerGhost,
    request: ReadRequest,
    answer: ReadAnswer,
    row: Any,
    found_absent: list[tuple[int, int]],
) -> None:
    """I31: honest negative. Only an entry that was not stored here at the lookup is answered as absent, and never out
    of limbo; bad copies, I/O errors and overload are unknown."""
    if answer.status == Status.NO_SUCH_LEDGER:
        ranges = [(request.first_entry, request.last_entry)]
    elif answer.status == Status.OK and answer.absent:
        ranges = answer.absent
    else:
        return
    if row is not None and (row.in_limbo or row.is_dropped):
        raise Violation(
            "I31",
            f"{bookie.member} said that entries {ranges} of ledger {ledger.ledger_id} are absent: limbo",
        )
    if ranges is found_absent:
        return
    asked = [(max(first, request.first_entry), min(last, request.last_entry)) for first, last in ranges]
    entry_id = _first_held(bookie, ledger, asked)
    if entry_id is not None and not any(first <= entry_id <= last for first, last in found_absent):
        raise Violation(
            "I31",
            f"{bookie.member} said that entry {entry_id} of ledger {ledger.ledger_id} is absent; it holds it",
        )


def denied_behind_a_question(bookie: BookieGhost, ledger_id: int, questions_before: int) -> None:
    """P10.5: to a recovery an entry is denied behind a question to metadata that was sent when its request had come,
    and whose answer said that metadata is not older than what the bookie met."""
    if bookie.known_by <= questions_before:
        raise Violation(
            "P10.5",
            f"{bookie.member} denied an entry of ledger {ledger_id} to a recovery, and had not asked since it came "
            "whether metadata is an older copy",
        )


def _first_held(bookie: BookieGhost, ledger: LedgerGhost, ranges: list[tuple[int, int]]) -> int | None:
    stable, bit, top = ledger.stable, bookie.bit, ledger.top
    for first, last in ranges:
        for entry_id in range(first, min(last, top) + 1):
            if stable.get(entry_id, 0) & bit:
                return entry_id
    return None


def limbo_comes_first(ghost: Ghost, bookie: BookieGhost, table: Any) -> None:
    """I32: limbo. After an unclean start no client is served before every ledger that was not closed and named the
    bookie is durably fenced and in limbo; one that was closed meanwhile is fenced.

    I19: fence is sticky. Fences that it may have forgotten are there again, also of ledgers that name others by now.
    """
    queued = set(bookie.promises.values())  # Asked, not walked.
    for ledger_id in bookie.owed_limbo or ():
        ledger, row = ghost.ledger(ledger_id), table.get(ledger_id)
        if ledger.deleted is not None or ledger.metadata is None:
            continue
        in_limbo = row is not None and (row.in_limbo or ledger.metadata.is_closed)
        if row is None or not row.is_fenced or not in_limbo or ledger_id in queued:
            raise Violation(
                "I32",
                f"{bookie.member} serves after an unclean start, and ledger {ledger_id} is not in durable limbo",
            )
    for ledger_id in list(bookie.fences):
        if ghost.ledger(ledger_id).deleted is None:
            fence_is_sticky(bookie, ledger_id, table.get(ledger_id))
        else:  # No listing shows it, and nothing depends on it.
            del bookie.fences[ledger_id]
            bookie.negatives.pop(ledger_id, None)


def limbo_gives_nothing_away(bookie: BookieGhost, row: Any, answer: Any) -> None:
    """I32: limbo. A bookie in limbo acknowledges no normal add and gives no LAC."""
    if row is None or not row.in_limbo:
        return
    if isinstance(answer, AddAnswer):
        if answer.status == Status.OK and not answer.recovery:
            raise Violation(
                "I32", f"{bookie.member} in limbo acknowledged an add of ledger {answer.ledger_id}"
            )
    elif (
        isinstance(answer, FenceAnswer | LacAnswer) and answer.status == Status.OK and answer.lac != NO_ENTRY
    ):
        raise Violation("I32", f"{bookie.member} in limbo gave LAC {answer.lac} of ledger {answer.ledger_id}")


def limbo_ends_complete(ghost: Ghost, bookie: BookieGhost, ledger: LedgerGhost) -> None:
    """I32: limbo. It ends only when the ledger is CLOSED and the bookie holds again every entry it owes."""
    metadata = ledger.metadata
    if metadata is None or ledger.deleted is not None:
        return
    if not metadata.is_closed or metadata.last_entry is None:
        raise Violation(
            "I32", f"{bookie.member} left limbo of ledger {ledger.ledger_id}, which is not closed"
        )
    for entry_id in range(metadata.last_entry + 1):
        owed = ghost.write_mask(metadata, entry_id) & bookie.bit
        if owed and not ledger.stable.get(entry_id, 0) & bookie.bit:
            raise Violation(
                "I32", f"{bookie.member} left limbo of ledger {ledger.ledger_id} without entry {entry_id}"
            )


def identity_is_checked(bookie: BookieGhost, request: Any, answer: Any) -> None:
    """I33: identity. A request for another disk incarnation is answered WRONG_INCARNATION, and with nothing else."""
    wanted = getattr(request, "incarnation", None)
    if wanted is None or wanted == bookie.member.incarnation:
        return
    # An ErrorAnswer has none, and promises nothing.
    parts = [answer, *getattr(answer, "others", ()), *getattr(answer, "copies", ())]
    for status in (getattr(part, "status", Status.WRONG_INCARNATION) for part in parts):
        if status != Status.WRONG_INCARNATION:
            raise Violation(
                "I33", f"{bookie.member} answered {Status(status).name} to a request for another incarnation"
            )


def entries_of(answer: AddAnswer, header: FrameHeader) -> Sequence[int]:
    """The entries that the answer to this frame covers; for a frame with gaps only its ends, as the answer names no
    others."""
    first, last = answer.first_entry, answer.last_entry
    return range(first, last + 1) if header.entry_count == last - first + 1 else (first, last)


def acknowledged_is_stable(
    bookie: BookieGhost, ledger: LedgerGhost, answer: AddAnswer, header: FrameHeader
) -> None:
    """I40: ack means stable. When a positive answer leaves, every entry it covers is on the disk."""
    stable, bit = ledger.stable, bookie.bit
    for entry_id in entries_of(answer, header):
        if not stable.get(entry_id, 0) & bit:
            raise Violation(
                "I40",
                f"{bookie.member} acknowledged entry {entry_id} of ledger {ledger.ledger_id} before it was durable",
            )


def is_fencing(request: Any) -> bool:
    """Does a positive answer to it promise a durable fence (P5.2b, P5.2f)?"""
    return isinstance(request, FenceRequest) or (isinstance(request, ReadRequest) and request.fence)
