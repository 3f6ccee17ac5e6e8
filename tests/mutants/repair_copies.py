"""Repair of what was lost: workers, copies, the auditor, and who may be copied to without a key (P11)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_PLAN = "embedbk/repair/repair_plan.py"
_COPY = "embedbk/repair/fragment_copy.py"
_TARGETS = "embedbk/repair/target_choice.py"
_AUDITOR = "embedbk/repair/auditor.py"
_AWAY = "embedbk/repair/away_bookies.py"
_OWED = "embedbk/repair/owed.py"
_COLLECTOR = "embedbk/core/collector.py"
_ADDS = "embedbk/core/add_storing.py"
_REPAIRED = "tests/repair/test_repaired.py::test_"
_COPYING = "tests/repair/test_copying.py::test_"
_AUDITED = "tests/repair/test_auditor.py::test_"
_PACE = "embedbk/repair/copy_pace.py"
_OF_PACE = "tests/repair/test_copy_pace.py::test_"

MUTANTS = (
    Mutant(
        "copies-yield-to-nobody",
        "AR12",
        "copies are read at their full rate while appends wait for the same bookies",
        (
            (
                _PACE,
                "            self._rate = max(self._rate // 2, self._least)\n",
                "            self._rate = self._bound\n",
            ),
        ),
        (_OF_PACE + "it_falls_by_half_while_reads_are_late_and_never_stops",),
    ),
    Mutant(
        "copies-stop-for-a-busy-cluster",
        "AR12",
        "a ledger that lost a copy is not repaired as long as others append",
        (
            (
                _PACE,
                "            self._rate = max(self._rate // 2, self._least)\n",
                "            self._rate = max(self._rate // 2, 1)\n",
            ),
        ),
        (_OF_PACE + "it_falls_by_half_while_reads_are_late_and_never_stops",),
    ),
    Mutant(
        "a-paced-copy-takes-the-largest-frame",
        "AR12",
        "a bookie works on a megabyte at a time for a repair that may read little",
        ((_COPY, "min(self.options.frame_bytes, self.pace.frame_bytes)", "self.options.frame_bytes"),),
        (_COPYING + "a_read_asks_for_no_more_than_the_pace_allows_at_once",),
    ),
    Mutant(
        "no-about-another-ledger-is-a-negative",
        "P7.1",
        "a bookie that says no about another ledger counts as one that lacks the entry",
        (
            (
                "embedbk/repair/fragment_copy.py",
                "        if isinstance(answer, ReadAnswer) and answer.ledger_id != self.metadata.ledger_id:\n",
                "        if answer is None:\n",
            ),
        ),
        ("tests/repair/test_copying.py::test_a_no_about_another_ledger_is_no_negative",),
    ),
    Mutant(
        "repair-stops-at-the-entry-before-the-last",
        "P11.2",
        "the last entry that a seat owes is not copied",
        ((_OWED, "    return metadata.last_entry\n", "    return metadata.last_entry - 1\n"),),
        (_REPAIRED + "what_a_lost_bookie_had_is_copied_whole",),
    ),
    Mutant(
        "repair-published-before-copies-are-durable",
        "I36",
        "a fragment is published when everything was read, whatever was answered to the copies",
        ((_COPY, "if self.result is None and not self._copies and all(", "if self.result is None and all("),),
        (_COPYING + "all_is_durable_before_it_is_done",),
    ),
    Mutant(
        "repair-copies-before-the-mark-names-the-target",
        "P7.7",
        "the target is never written into the mark",
        ((_TARGETS, "if all(each in known.targets for each in chosen):", "if True:"),),
        (_REPAIRED + "the_target_stands_in_the_mark_before_the_first_copy",),
    ),
    Mutant(
        "repair-publishes-without-its-mark",
        "P7.7",
        "copies are published though the mark that kept them is gone",
        (
            (
                "embedbk/repair/held_ledger.py",
                "when = [*self.compared(), Compare(self.ledger_key",
                "when = [*self.compared()[:1], Compare(self.ledger_key",
            ),
        ),
        (_REPAIRED + "a_mark_that_is_taken_away_keeps_what_was_copied_from_being_published",),
    ),
    Mutant(
        "repair-moves-the-writers-seats",
        "P11.2",
        "the last fragment of an open ledger is repaired like any other",
        (
            (
                _PLAN,
                "if number == len(metadata.fragments) - 1 and not metadata.is_closed:",
                "if number == len(metadata.fragments) and not metadata.is_closed:",
            ),
        ),
        (_REPAIRED + "the_last_fragment_of_an_open_ledger_is_its_writers",),
    ),
    Mutant(
        "repair-copies-for-who-came-back",
        "AR11",
        "a seat counts as lost though its bookie is registered again",
        (
            (
                _TARGETS,
                "if member.bookie_id in missing and member not in staying",
                "if member.bookie_id in missing",
            ),
        ),
        (_REPAIRED + "nothing_is_copied_before_the_grace_is_over_nor_behind_a_return",),
    ),
    Mutant(
        "repair-takes-silence-for-absence",
        "P11.2",
        "an entry of which somebody did not answer counts as one without a good copy",
        ((_COPY, 'kind = "cannot tell" if part.silent else "no good copy"', 'kind = "no good copy"'),),
        (_COPYING + "nobody_has_it_and_nobody_knows_are_two_things",),
    ),
    Mutant(
        "repair-believes-any-answer-to-a-copy",
        "P3.8",
        "an OK to another add counts for this one",
        (
            (
                _COPY,
                "if status != Status.OK or not self._is_of(answer, frame, number):",
                "if status != Status.OK:",
            ),
        ),
        (_COPYING + "an_answer_that_is_no_ok_of_this_copy_makes_the_target_fail",),
    ),
    Mutant(
        "repair-checks-the-ledgers-key",
        "P3.5",
        "a copy without a key is refused by a bookie that knows one",
        ((_ADDS, " and not _is_copy(request):", ":"),),
        ("tests/repair/test_keyless_copies.py::test_a_copy_passes_the_key_and_binds_none",),
    ),
    Mutant(
        "repair-binds-a-key-of-zeros",
        "P3.5",
        "a copy binds the key in its header, and the ledger's own is wrong there ever after",
        (
            (
                _ADDS,
                "            None if _is_copy(request) else header.ledger_key,\n",
                "            header.ledger_key,\n",
            ),
        ),
        ("tests/repair/test_keyless_copies.py::test_a_copy_passes_the_key_and_binds_none",),
    ),
    Mutant(
        "repair-opens-normal-adds",
        "P3.5",
        "a normal add that says it is a copy passes without the ledger's key",
        ((_ADDS, "return request.is_copy and request.recovery", "return request.is_copy"),),
        ("tests/repair/test_keyless_copies.py::test_a_normal_add_that_says_it_is_a_copy_is_checked",),
    ),
    Mutant(
        "collector-drops-what-was-given-up",
        "P7.7",
        "copies of a stopped repair go, which may be the last good ones",
        ((_COLLECTOR, "                Compare(unrepairable_path(ledger_id), ABSENT),\n", ""),),
        ("tests/repair/test_keyless_copies.py::test_what_was_given_up_is_kept_by_every_collector",),
    ),
    Mutant(
        "auditor-without-a-grace",
        "AR02",
        "who is away is gone at once",
        ((_AWAY, "if now_ns - since >= self.grace_ns", "if now_ns >= since"),),
        (_AUDITED + "a_bookie_is_gone_behind_the_grace_and_not_before",),
    ),
    Mutant(
        "auditor-counts-on-behind-a-return",
        "AR02",
        "who came back is away since it was away first",
        ((_AWAY, "            self.since.pop(member, None)\n", "            pass\n"),),
        (_AUDITED + "who_comes_back_is_not_gone_and_its_grace_begins_anew",),
    ),
    Mutant(
        "auditor-loops-over-the-impossible",
        "AR10",
        "what nobody could repair is marked again in each round",
        (
            (
                "embedbk/repair/standing_marks.py",
                "if record.judged == circumstances(value, bookies) and not is_asked_for:",
                "if False:",
            ),
        ),
        (_AUDITED + "what_could_not_be_repaired_is_marked_when_something_changed",),
    ),
    Mutant(
        "auditor-takes-a-failed-round-for-a-whole-one",
        "P11.1",
        "behind a round that failed nobody is looked at again for an hour",
        (
            (
                _AUDITOR,
                "self.away.fail_round()\n            self.round_due_ns = now_ns + self.options.retry_ns",
                "self.round_due_ns = now_ns + self.options.round_ns",
            ),
        ),
        (_AUDITED + "a_round_that_fails_is_begun_again",),
    ),
    Mutant(
        "a-rotten-entry-stays-unnamed",
        "P11.2",
        "a ledger that cannot be repaired is written down with that nobody can take a seat, and not with its bad entry",
        ((_PLAN, "min(self.stopped, key=lambda each: each.entry_id == NO_ENTRY)", "self.stopped[0]"),),
        (
            "tests/repair/test_rotten_everywhere.py::test_it_is_named_by_health_marks_and_explain_with_its_ledger",
        ),
    ),
    Mutant(
        "health-does-not-name-the-rotten-entry",
        "P11.2",
        "health calls the ledger given up, and names no entry",
        (
            (
                "embedbk/repair/health.py",
                '"given up", found.why, no_copy=found.entry_id)',
                '"given up", found.why)',
            ),
        ),
        (
            "tests/repair/test_rotten_everywhere.py::test_it_is_named_by_health_marks_and_explain_with_its_ledger",
        ),
    ),
)
