"""Retention of logs that nobody writes, by one elected host (P8.8)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_KEEPER = "embedbk/repair/log_keeping.py"
_TESTS = "tests/repair/test_log_keeping.py::test_"

MUTANTS = (
    Mutant(
        "every-host-keeps-retention",
        "P8.8",
        "hosts that were not elected look at all logs, too",
        (
            (
                _KEEPER,
                "        is_ours = event.value == self.name\n",
                '        is_ours = event.value != b""\n',
            ),
        ),
        (_TESTS + "who_is_not_the_auditor_looks_at_no_log",),
    ),
    Mutant(
        "answers-about-another-log",
        "P8.8 P8.3",
        "an answer that comes late is taken for one about the log under way",
        (
            (
                _KEEPER,
                "event.tag[:2] != (_OF_PART, self.questions):",
                "event.tag[:1] != (_OF_PART,):",
            ),
        ),
        (_TESTS + "a_log_that_answers_nothing_is_given_up_and_its_answers_are_no_others",),
    ),
    Mutant(
        "a-log-without-retention-is-truncated",
        "P8.8",
        "settings that ask for no retention let all of a log go",
        (
            (
                _KEEPER,
                "        if record is None or not record.has_retention:\n",
                "        if record is None:\n",
            ),
        ),
        (_TESTS + "a_round_costs_a_question_a_log_and_so_many_logs_a_second",),
    ),
    Mutant(
        "a-keeper-goes-by-settings-of-before",
        "P8.8",
        "the elected host truncates by settings that were changed since it read them",
        ((_KEEPER, "record.retention_bytes, settings_at=event.revision)", "record.retention_bytes)"),),
        (_TESTS + "what_retention_truncates_is_compared_with_the_settings_that_ask_for_it",),
    ),
    Mutant(
        "a-log-that-was-deleted-is-kept",
        "P8.8 P8.13",
        "the elected host looks at logs that were deleted",
        (
            (
                _KEEPER,
                "state == LogIdentityState.NAMED\n",
                "state >= LogIdentityState.NAMED\n",
            ),
        ),
        (_TESTS + "what_is_deleted_or_cannot_be_read_is_passed_over",),
    ),
    Mutant(
        "a-keeper-goes-by-the-clock-of-its-start",
        "P8.8",
        "a host that began before its clock was right lets go of what is young, as long as it runs",
        (
            (
                "embedbk/host/repairing.py",
                "                core.wall_offset_ms = offset_ms\n",
                "                pass\n",
            ),
        ),
        (_TESTS + "a_host_whose_clock_is_set_later_goes_by_it",),
    ),
    Mutant(
        "one-election-for-ever",
        "P8.8",
        "a host that was elected once reads all pages of a round, whoever is elected by then",
        (
            (
                _KEEPER,
                "        if self.has_more:\n            return self._pause(now_ns, self.options.pace_ns)\n",
                "        if self.has_more:\n            return self._on_lock(KeyRead(now_ns, None, self.name, 1))\n",
            ),
        ),
        (_TESTS + "who_is_elected_no_more_stops_before_the_next_page",),
    ),
)
