"""Copies of closed ledgers that move: which, where, how fast, and who judges again (P11.6)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_BALANCING = "embedbk/repair/balancing.py"
_CHOICE = "embedbk/repair/target_choice.py"
_REPAIR = "embedbk/repair/ledger_repair.py"
_HEALTH = "embedbk/repair/health.py"
_MARK = "embedbk/codec/repair_mark.py"
_TESTS = "tests/repair/test_balancing.py::test_"

MUTANTS = (
    Mutant(
        "each-restart-begins-a-pass",
        "P11.6 AR06",
        "all ledgers are looked at whenever a bookie of a cluster with racks goes or comes back",
        ((_BALANCING, "and racks <= self.seen:", "and racks == self.seen:"),),
        (_TESTS + "a_pass_for_racks_begins_when_a_bookie_is_somewhere_new",),
    ),
    Mutant(
        "an-unknown-room-is-none",
        "P11.6",
        "a bookie that cannot measure its device gives all of its copies away",
        ((_BALANCING, "if info.free_bytes and not info.is_leaving]", "if not info.is_leaving]"),),
        (_TESTS + "a_full_bookie_gives_and_one_that_cannot_tell_its_room_counts_for_nothing",),
    ),
    Mutant(
        "a-full-bookie-keeps-what-it-has",
        "P11.6 P7.8",
        "a bookie that became read-only for want of room stays so",
        (
            (
                _BALANCING,
                "if info.free_bytes and not info.is_leaving]",
                "if info.free_bytes and info.is_writable]",
            ),
        ),
        (_TESTS + "a_full_bookie_gives_and_one_that_cannot_tell_its_room_counts_for_nothing",),
    ),
    Mutant(
        "a-move-takes-a-rack-away",
        "P11.6 AR06",
        "copies go to a bookie with more room in a rack that has one already",
        (
            (
                _CHOICE,
                "if span_of(with_target, bookies, quorum, placement) >= span_of(seats, bookies, quorum, placement):",
                "if True:",
            ),
        ),
        (_TESTS + "a_seat_moves_only_where_both_are_there_and_no_rack_is_lost",),
    ),
    Mutant(
        "two-seats-for-the-emptiest",
        "P2.4",
        "one bookie gets two seats of a fragment",
        ((_CHOICE, "target is None or target.bookie_id in seated:", "target is None:"),),
        (_TESTS + "a_seat_moves_only_where_both_are_there_and_no_rack_is_lost",),
    ),
    Mutant(
        "moves-are-not-counted",
        "P11.6 AR21",
        "a pass moves everything that the fullest bookie has, as its room does not rise at once",
        ((_BALANCING, "                    self.rooms.note(gives, takes, share)\n", ""),),
        (_TESTS + "no_more_moves_than_evens_the_rooms",),
    ),
    Mutant(
        "a-pass-for-room-begins-at-once-again",
        "P11.6 AR21",
        "the next pass finds the room that the last one was about to even",
        (
            (_BALANCING, "if now_ns < self.round_due_ns and racks <= self.seen:", "if False:"),
            (_BALANCING, "            self.rooms.gives.clear()\n", "            pass\n"),
        ),
        (_TESTS + "the_next_pass_for_room_comes_when_the_round_is_over",),
    ),
    Mutant(
        "marks-do-not-wait-for-bytes",
        "P11.6 AR21",
        "no rate bounds what is moved",
        ((_BALANCING, "wanted.size * _SECOND // self.options.bytes_per_s", "0"),),
        (_TESTS + "marks_wait_for_the_bytes_of_those_before",),
    ),
    Mutant(
        "any-number-of-marks",
        "P11.6",
        "each ledger of a cluster is marked while workers are away",
        ((_BALANCING, "if len(self.marked) >= self.options.marks_max:", "if False:"),),
        (_TESTS + "only_so_many_marks_are_there_at_a_time",),
    ),
    Mutant(
        "a-move-over-another-mark",
        "P11.6 P11.2",
        "a mark of lost copies is replaced by one that only moves a seat",
        ((_BALANCING, "            Compare(key, ABSENT),\n", ""),),
        (_TESTS + "marks_wait_for_the_bytes_of_those_before",),
    ),
    Mutant(
        "every-host-balances",
        "P11.1",
        "as many times the rate as there are hosts",
        ((_BALANCING, "if event.value != self.name:", "if False:"),),
        (_TESTS + "a_host_that_may_not_moves_nothing",),
    ),
    Mutant(
        "an-open-ledger-moves",
        "P11.6 P4.1",
        "a mark is made for a ledger that its writer writes to",
        (
            (
                _BALANCING,
                "if not metadata.is_closed or metadata.freed is not None:",
                "if metadata.freed is not None:",
            ),
        ),
        (_TESTS + "what_is_open_freed_or_lacks_a_bookie_is_left",),
    ),
    Mutant(
        "a-ledger-with-a-lost-bookie-moves",
        "P11.6",
        "room is evened before lost copies are made again",
        (
            (
                _BALANCING,
                "        if not all(there.issuperset(fragment.members) for fragment in metadata.fragments):\n",
                "        if False:\n",
            ),
        ),
        (_TESTS + "what_is_open_freed_or_lacks_a_bookie_is_left",),
    ),
    Mutant(
        "an-unknown-mark-is-forgotten",
        "P2.2 P11.6",
        "a mark that was made, though its answer was lost, counts for neither rate nor number",
        (
            (
                _BALANCING,
                "        self._note_marked(event.now_ns, self.wanted.pop(0))\n",
                "        self.wanted.pop(0)\n",
            ),
        ),
        (_TESTS + "what_comes_of_a_mark",),
    ),
    Mutant(
        "moving-copies-are-bad-health",
        "P11.6",
        "a cluster that evens its rooms is never good",
        ((_HEALTH, "{*leaving, *moves_of(known)}.issuperset", "{*leaving}.issuperset"),),
        (_TESTS + "health_calls_a_ledger_good_whose_copies_move",),
    ),
    Mutant(
        "moves-of-bookies-that-the-mark-does-not-name",
        "P11.6",
        "a seat moves that nobody's mark is about",
        ((_MARK, " if bookie_id in mark.missing}", "}"),),
        (_TESTS + "a_mark_keeps_its_moves_beside_every_other_word",),
    ),
    Mutant(
        "the-first-seat-moves",
        "P11.6 AR21",
        "a bookie with nearly enough room gives its copies away, and the one that has least keeps them",
        (
            (
                _BALANCING,
                "key=lambda each: -self.rooms.gives.get(seats[each].bookie_id, 0)",
                "key=lambda each: self.rooms.gives.get(seats[each].bookie_id, 0)",
            ),
        ),
        (_TESTS + "a_new_bookie_gets_copies_of_closed_ledgers",),
    ),
)
