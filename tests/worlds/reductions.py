"""What of a small world makes no difference any more, so that worlds that differ only there are one.

Each is an argument about the cores, stated beside it, and all of them are checked together: the same small worlds
explored without any reduction show the same outcomes (test_reductions.py).

    canonical(core)        what a client's machine carries on and will never look at again is put to one value
    is_awaited(core, ...)  whether an answer to this request, or its failure, can still change the machine
    is_final(...)          whether a bookie that this request does not change will always answer it so
    orphan(effect)         a request that nobody waits for, by what it may do to its bookie alone
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.add_messages import AddRequest, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.ledger_metadata import LedgerState
from embedbk.codec.read_messages import ReadRequest
from embedbk.core.client_words import Send
from embedbk.core.ensemble_keeping import MayChange
from embedbk.core.in_flight import InFlight
from embedbk.core.metadata_words import Transact
from embedbk.core.publishing import Publishing
from embedbk.core.recovery import Phase, Recovery
from embedbk.core.writer import Writer, WriterState
from embedbk.errors import LedgerFenced
from embedbk.ids import NO_ENTRY

__all__ = ["canonical", "is_awaited", "is_final", "orphan"]

_FAILED = LedgerFenced("failed")


def canonical(core: Any) -> Any:
    """The machine, its dead data gone; in place. Time stands at 0, pauses are 0, and time limits never pass."""
    if isinstance(core, Recovery):
        _canonical_recovery(core)
    elif isinstance(core, Writer):
        _canonical_writer(core)
    return core


def _canonical_recovery(core: Recovery) -> None:
    core.reasons = {}  # For the words of an error that never comes.
    core.publishing.is_unsettled = False  # Likewise.
    core.avoid_until = {}  # Avoided until 0, which is now.
    if core.phase is Phase.ENDED:
        # Only what it ended with is looked at.
        core.in_flight, core.fragments = None, ()
        core.publishing = Publishing()
        core.next_seating = core.revision = core.round = 0
        core.retry_at, core.quorum = None, core.metadata.quorum
        core.base = core.metadata.fragments[-1]
    if core.phase is not Phase.FENCING:
        # A late fence changes nothing, and the start is the number of the next entry by now. What MARKING has of
        # them is new with the round that fencing begins.
        core.fenced, core.start, core.start_length = 0, NO_ENTRY, 0
    is_asking = core.phase is Phase.FENCING or (core.phase is Phase.READING and core.forward.end is None)
    forward = core.forward
    if not is_asking:
        core.asked, core.pause_until, forward.absent, forward.found = (
            {},
            {},
            {},
            {},
        )  # No read is asked or heard.
        forward.next_entry = 0
    else:
        # Only asked by key, and walked for sums and minima.
        core.asked = dict(sorted(core.asked.items()))
        core.pause_until = dict(sorted(core.pause_until.items()))
        forward.found = dict(sorted(forward.found.items()))
        forward.absent = {
            seat: sorted(set(forward.absent[seat])) for seat in sorted(forward.absent) if forward.absent[seat]
        }
    if core.in_flight is not None:
        _forget_reasons(core.in_flight)
    if core.in_flight is not None and core.phase is Phase.CLOSING:
        _forget_answers(
            core.in_flight
        )  # All is written back; a failed seat is replaced only for what is not.


def _canonical_writer(core: Writer) -> None:
    core.ensemble.candidates.failures = {}
    core.lac_publishing.published = NO_ENTRY  # Explicit LACs come after a pause that never passes.
    core.stall.until_ns = None  # So does the end of a stall.
    core.changes.count = 0  # Far from its bound.
    core.in_flight.times = None  # Nobody is late where time stands, and no answer takes any.
    _forget_reasons(core.in_flight)
    if core.changes.proposal is not None:
        for seating in core.changes.proposal.seatings:
            seating.failure = None if seating.failure is None else "failed"
    if core.error is not None:
        core.error = _FAILED  # That there is one is all that is asked.
        for seating in core.in_flight.seatings:
            seating.failure = None  # A failed handle replaces nobody.
    if core.state is WriterState.CLOSING and not core.in_flight.pending:
        core.error = None  # Nothing can fail any more but the close, which does not ask.
        core.ensemble.may_change = MayChange.FAILED  # Nor does it ask for this.
        _forget_answers(core.in_flight)
    if not core.in_flight.pending and core.state is not WriterState.OPEN:
        core.lap = core.lac  # It adds nothing more.
    if core.state is WriterState.ENDED:
        core.error = core.ensemble.retry_at = None
        core.stall.is_short = False
        core.changes.revision = core.in_flight.next_seating = 0
        core.changes.publishing = None
        core.in_flight.replace([])
        core.changes.metadata = core.metadata.with_changes(
            state=LedgerState.OPEN, last_entry=None, length=None, fragments=()
        )


def _forget_reasons(in_flight: InFlight) -> None:
    """Why a seat failed is asked only where change is delayed."""
    for seating in in_flight.seatings:
        seating.failure = None if seating.failure is None else "failed"


def _forget_answers(in_flight: InFlight) -> None:
    for seating in in_flight.seatings:
        seating.failure = None
        in_flight.frames.excuse(seating.slot)


def is_awaited(core: Any, effect: Any) -> bool:
    """False: neither an answer nor a failure of this request ever changes the machine again."""
    if not isinstance(effect, Send):
        return True  # Of the metadata one thing is asked at a time.
    kind, number = effect.tag[0], effect.tag[1]
    if isinstance(core, Writer):
        # A failed handle hears no adds; nor does one that has nothing left but its close; nor for a seat that it lost.
        is_deaf = core.error is not None or (core.state is WriterState.CLOSING and not core.in_flight.pending)
        return not is_deaf and core.in_flight.seating(number) is not None
    assert isinstance(core, Recovery)
    if kind == "add":
        # Answered or given up, or of an earlier round, whose numbers are not given out again.
        in_flight = core.in_flight
        seating = in_flight.seating(number) if in_flight is not None else None
        is_open = seating is not None and effect.tag[2] in seating.owed
        return core.phase is Phase.READING and is_open
    if number != core.round:
        return False
    if kind == "fence":
        return core.phase is Phase.FENCING
    return core.phase is Phase.READING and core.forward.end is None


def is_final(request: Any, answer: Any, is_fenced: bool, entry_count: int) -> bool:
    """Nothing changed with the answer, and no later one would be another. entry_count: of entries there can be."""
    if isinstance(request, AddRequest):
        # Held entries stay, and so does the fence; a normal add that is held already may be refused later.
        return answer.status == (Status.OK if request.recovery else Status.FENCED)
    if isinstance(request, FenceRequest):
        return True  # It was fenced: its LAC stands still.
    if isinstance(request, ReadRequest):
        # What is absent may be written back by somebody, unless nobody has it.
        return is_fenced and answer.status == Status.OK and all(f >= entry_count for f, _ in answer.absent)
    return False


def orphan(effect: Any) -> Any | None:
    """The request as one that nobody waits for, equal for all that do the same to their receiver; None: does nothing.

    Of two equal ones the second does nothing: bookies only gain fences and entries, and a compare-and-set wins once.
    """
    if isinstance(effect, Transact):
        return Transact("orphan", effect.when, effect.then)
    if not isinstance(effect, Send):
        return None
    control = effect.control
    if isinstance(control, AddRequest):
        control = AddRequest(control.incarnation, 0, 0, control.recovery)
        return Send(effect.member, control, "orphan", effect.frames)
    # A recovery read sets the same fence as a fence, and does nothing else.
    assert isinstance(control, FenceRequest | ReadRequest)
    return Send(
        effect.member, FenceRequest(control.incarnation, control.ledger_id, control.ledger_key), "orphan"
    )
