"""Bugs in what bookies read for each class of reads, and in readers that are told to wait (P6.7)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_BUDGET = "embedbk/core/read_budget.py"
_BOOKIE = "embedbk/core/bookie.py"
_READER = "embedbk/core/reader.py"
_COPY = "embedbk/repair/fragment_copy.py"
_WAITING = "embedbk/host/reading.py"
_RULES = "tests/rules/test_p6_read_classes.py::test_"
_BOUNDS = "tests/repair/test_read_bounds.py::test_"

MUTANTS = (
    Mutant(
        "a-recovery-waits-for-a-budget",
        "P6.7",
        "a job's bound delays the fences of a takeover",
        (
            (
                "embedbk/core/lookups.py",
                "if not isinstance(request, ReadRequest) or request.fence:",
                "if not isinstance(request, ReadRequest):",
            ),
        ),
        (_RULES + "beyond_its_bound_a_class_is_told_to_wait_and_nothing_is_looked_up",),
    ),
    Mutant(
        "reads-that-wait-together-are-counted-late",
        "P6.7",
        "a thousand readers that ask at once are all let in",
        ((_BUDGET, "self._free_ns[kind] = now_ns + self._ns(kind, FRAME_BYTES_MAX)", "pass"),),
        (_RULES + "however_many_read_together_the_bound_is_kept[0]",),
    ),
    Mutant(
        "a-small-read-costs-a-whole-frame",
        "P6.7",
        "a bookie reads a hundredth of what the operator allows",
        ((_BUDGET, "FRAME_BYTES_MAX - byte_count", "0"),),
        (_RULES + "beyond_its_bound_a_class_is_told_to_wait_and_nothing_is_looked_up",),
    ),
    Mutant(
        "a-busy-bookie-is-a-failed-copy",
        "P6.7",
        "bounds of three bookies make an entry unreadable",
        (
            (
                _READER,
                "is_bounded and isinstance(answer, ReadAnswer) and answer.status == Status.BUSY",
                "False",
            ),
        ),
        (_RULES + "a_reader_that_is_told_to_wait_asks_another_copy_and_no_copy_failed",),
    ),
    Mutant(
        "a-bookie-puts-the-tail-off-for-ever",
        "P6.7",
        "a bookie that says BUSY to everything keeps each read that meets it last for ever",
        ((_READER, "is_bounded = part.reads_as != ReadClass.TAIL", "is_bounded = True"),),
        (_RULES + "a_bookie_that_puts_the_tail_off_is_a_failed_copy",),
    ),
    Mutant(
        "a-part-that-waits-is-given-up",
        "P6.7",
        "one copy waits, the other two fail, and the read ends in an error",
        ((_READER, "return [] if part.asked or part.waiting else", "return [] if part.asked else"),),
        (_RULES + "a_part_that_waits_does_not_fail_when_the_last_other_copy_does",),
    ),
    Mutant(
        "repair-asks-a-busy-source-without-a-pause",
        "P6.7",
        "repair and a bounded bookie keep each other busy",
        ((_COPY, "if is_due and now_ns >= part.later_ns and", "if is_due and"),),
        (_RULES + "repair_that_is_told_to_wait_asks_another_source_then",),
    ),
    Mutant(
        "a-job-uses-up-a-turn",
        "P6.7",
        "a job that reads a cold log keeps the tail waiting",
        ((_WAITING, "kind in TURN_BYTES and self._read[kind] >= TURN_BYTES[kind]", "False"),),
        (_RULES + "a_turn_serves_the_classes_in_their_order_and_each_has_a_share",),
    ),
    Mutant(
        "what-waits-for-a-turn-waits-for-room",
        "P6.7",
        "after each share a bookie rests for 2 ms",
        ((_WAITING, "self._is_used_up(kind) and any(", "False and any("),),
        (_RULES + "a_turn_serves_the_classes_in_their_order_and_each_has_a_share",),
    ),
    Mutant(
        "new-disks-keep-the-bounds-of-old-ones",
        "P11.5",
        "a bookie on new disks is slow, and nobody remembers why",
        (
            (
                "embedbk/client/retiring.py",
                "read_bounds = note.read_bounds if incarnation else UNBOUNDED",
                "read_bounds = note.read_bounds",
            ),
        ),
        (_BOUNDS + "new_disks_under_its_id_have_no_bounds",),
    ),
)
