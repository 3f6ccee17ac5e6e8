"""Bookies that failed in their seats: which may be tolerated, which are asked whether they are there again, and which
are taken back or seated again (P4.5, P4.6).

Decides by the handle's seatings, by the failures that it knows (`avoided`) and by the list of bookies; it changes
nothing. Leaves to the writer when each of these questions is put, and what follows. Pure: the times come with events.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.core import avoided
from embedbk.core.avoided import Failures
from embedbk.core.client_words import BookieInfo
from embedbk.core.in_flight import InFlight
from embedbk.core.seating import Seating
from embedbk.ids import Member

__all__ = ["come_last", "stays_any_away", "there_again", "to_ask"]


def stays_any_away(seatings: Sequence[Seating], bookies: Sequence[BookieInfo]) -> bool:
    """Whether a bookie that failed in its seat says that it stays away: read-only, in limbo, another disk, however the
    writer learns of it (P4.6, RP09)."""
    listed = {info.member.bookie_id: info for info in bookies}
    for seating in seatings:
        if seating.failure is not None:
            info = listed.get(seating.member.bookie_id)
            is_gone = info is not None and (info.member != seating.member or not info.is_writable)
            if seating.stays_away or is_gone:
                return True
    return False


def to_ask(
    failures: Failures,
    seatings: Sequence[Seating],
    bookies: Sequence[BookieInfo],
    now_ns: int,
    *,
    is_short: bool,
    delays_change: bool,
) -> list[tuple[str, Member | None]]:
    """The bookies to be asked now whether they are there, by id and as they are registered: None where a bookie is not
    registered as writable, which counts as asked.

    is_short: adds wait for any bookie; else only those of failed seats are asked. delays_change: these may have been
    tolerated. Where neither is so, a bookie is left alone for a while (`there_again`), unless it has another disk.
    """
    listed = {info.member.bookie_id: info.member for info in bookies if info.is_writable}
    failed = {each.member.bookie_id: each for each in seatings if each.failure is not None}
    seated = {each.member.bookie_id for each in seatings}
    # Those who sit first: to go on with them nothing has to be published.
    others = [bookie_id for bookie_id in failures if bookie_id not in seated] if is_short else []
    asked: list[tuple[str, Member | None]] = []
    for bookie_id in (*failed, *others):
        if not avoided.is_due(failures, bookie_id, now_ns):
            continue
        member, seating = listed.get(bookie_id), failed.get(bookie_id)
        is_elsewhere = seating is not None and member != seating.member
        if is_short or delays_change or is_elsewhere:
            asked.append((bookie_id, member))
    return asked


def there_again(
    failures: Failures, bookies: Sequence[BookieInfo], now_ns: int, *, by_answer: bool
) -> set[Member]:
    """The bookies that may go on in their seats: those that are writable, and were left alone for a while (P4.5).

    by_answer: also each that has answered since it failed, as adds wait for one, or it was only tolerated.
    """
    there = set(avoided.in_turn(failures, now_ns)) if by_answer else set()
    left_alone = set(avoided.avoided(failures, now_ns))
    return {
        info.member
        for info in bookies
        if info.is_writable and (info.member.bookie_id in there or info.member.bookie_id not in left_alone)
    }


def come_last(failures: Failures, in_flight: InFlight, now_ns: int) -> list[str]:
    """The avoided bookies that are there again: in a shortage they come last instead of never (P4.5), and a seat of
    their own, on another disk, has gone to no other bookie (P4.1)."""
    there = avoided.in_turn(failures, now_ns)
    if in_flight.has_usable_quorum():
        failed = {in_flight.seatings[seat].member.bookie_id for seat in in_flight.failed_seats}
        there = [bookie_id for bookie_id in there if bookie_id in failed]
    return there
