"""Digests of what bookies hold: how they are made, kept and told (P11.4)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_HELD = "native/store/store_held.c"
_RUNS = "native/store/store_runs.c"
_DIGEST = "native/wire/entry_digest.h"
_HOLDING = "embedbk/storage/holding.py"
_BOOKIE = "embedbk/core/bookie.py"
_SUMMED = "tests/storage/test_digests.py::test_"
_SAID = "tests/rules/test_p11_holdings.py::test_"
_COMPARISON = "embedbk/repair/copy_comparison.py"
_COUNT = "embedbk/core/held_count.py"
_HOLDINGS = "embedbk/repair/holdings.py"
_OWED = "embedbk/repair/owed.py"
_LOOK = "embedbk/repair/copies_look.py"
_HEALTH = "embedbk/repair/health.py"
_COMPARED = "tests/repair/test_copy_comparison.py::test_"
_NAMED = "tests/repair/test_conflicts.py::test_"
_WRITTEN = "tests/storage/test_entry_log_format.py::test_"

MUTANTS = (
    Mutant(
        "digests-leave-the-crc-out",
        "P11.4",
        "two copies of one entry with other bytes and one size have the same digest",
        ((_DIGEST, "(uint64_t)size << 32 | crc", "(uint64_t)size << 32 | (crc & 0)"),),
        (_WRITTEN + "a_run_has_a_digest_for_each_of_its_residues",),
    ),
    Mutant(
        "digests-take-a-run-that-another-log-has-replaced-in-part",
        "P11.4",
        "the digest of a whole run counts, though a newer copy of one of its entries is elsewhere",
        (
            (
                _HELD,
                "other != cursor && ebk_cursor_has(other) && other->id <= run->last",
                "false && other == NULL",
            ),
        ),
        (_SUMMED + "the_newest_copy_of_an_entry_counts",),
    ),
    Mutant(
        "digests-take-a-run-beyond-what-was-asked",
        "P11.4",
        "the whole run counts where a part of it was asked for",
        ((_HELD, "    if (run->last > last) return false;\n", "    (void)last;\n"),),
        (_SUMMED + "runs_add_up_and_parts_of_them_too",),
    ),
    Mutant(
        "digests-of-a-copied-part-count-as-known",
        "P11.4",
        "a run that a compaction copied in part is said to be summed, with zeros",
        (
            (
                _RUNS,
                "maker->is_summed = entry != NULL && (maker->count == 0 || maker->is_summed);",
                "maker->is_summed = true;",
            ),
        ),
        (_SUMMED + "what_no_index_knows_is_read_once_and_remembered",),
    ),
    Mutant(
        "digests-are-told-of-half",
        "P7.1",
        "where more would have to be read than is allowed, the sum of what was read is told",
        (
            (
                _HELD,
                "refused == EBK_OK && !summing.is_over && sums->bad_count == 0",
                "refused == EBK_OK && sums->bad_count == 0",
            ),
        ),
        (_SUMMED + "whole_runs_cost_no_read_and_bytes_have_a_bound",),
    ),
    Mutant(
        "digests-pass-over-what-is-bad",
        "I55",
        "an entry that fails its own check is left out of the sum, and nobody hears of it",
        ((_HELD, "else if (sums->bad_count < EBK_BAD_MAX) sums->bad[sums->bad_count++] = piece->id;\n", ""),),
        (_SUMMED + "by_bytes_finds_what_the_index_cannot_know",),
    ),
    Mutant(
        "digests-forget-what-was-bad",
        "I55",
        "what was read and is bad counts as held with the next question",
        ((_HOLDING, "                self._met[ledger_id, entry_id] = damage\n", ""),),
        (_SUMMED + "what_was_met_as_bad_counts_as_lacking_until_a_good_copy_is_there",),
    ),
    Mutant(
        "digests-take-any-parts",
        "P2.5",
        "parts that do not ascend are summed as they come",
        ((_COUNT, "        if not are_parts or (", "        if False or ("),),
        (_SAID + "parts_that_are_none_are_refused",),
    ),
    Mutant(
        "conflicts-are-not-looked-for",
        "I56",
        "digests that differ are not narrowed down",
        (
            (
                _HOLDINGS,
                "self._differing += [(ledger_id, each) for each in differing]",
                "pass",
            ),
        ),
        (
            _COMPARED + "two_sound_copies_that_differ_are_a_conflict_that_is_named_and_nobody_lacks_anything",
            _NAMED + "the_auditor_and_health_name_a_conflict_and_nobody_overwrites_it",
        ),
    ),
    Mutant(
        "conflicts-are-judged-by-the-index",
        "P11.4",
        "of the one entry that differs no bookie reads its copy",
        (
            (
                _COMPARISON,
                "return Digests.BY_BYTES if self.is_one else Digests.BY_INDEX",
                "return Digests.BY_INDEX",
            ),
        ),
        (_COMPARED + "a_copy_that_fails_its_own_check_is_bad_and_lacks",),
    ),
    Mutant(
        "conflicts-take-the-majority-for-right",
        "P11.4",
        "whoever differs from most others lacks the entry, and a guess is copied over it",
        (
            (
                _HOLDINGS,
                "            self.conflicts.setdefault(ledger_id, []).append(compared.conflict)\n",
                "            self.short.setdefault(ledger_id, {})[compared.conflict.copies[0][0]] = Shortage(1)\n",
            ),
        ),
        (
            _COMPARED + "two_sound_copies_that_differ_are_a_conflict_that_is_named_and_nobody_lacks_anything",
            _NAMED + "the_auditor_and_health_name_a_conflict_and_nobody_overwrites_it",
        ),
    ),
    Mutant(
        "conflicts-end-with-the-first-part",
        "P11.4",
        "of the parts that differ only the first is looked at",
        (
            (
                _COMPARISON,
                "    return Compared(found)\n",
                "    return Compared(found[:1])\n",
            ),
        ),
        (_COMPARED + "any_conflicts_are_found_and_no_others",),
    ),
    Mutant(
        "conflicts-leave-out-what-was-not-told",
        "P7.1",
        "a part of which a bookie could not tell the digest counts as equal",
        ((_COMPARISON, "(len(known) > 1 or None in told.values())", "len(known) > 1"),),
        (_COMPARED + "a_part_that_was_not_told_is_asked_for_again",),
    ),
    Mutant(
        "conflicts-are-good-health",
        "P11.4",
        "health says that all is well where copies differ",
        (
            (
                _HEALTH,
                "if not short and not silent and not differing and not strange:",
                "if not short and not silent:",
            ),
        ),
        (_NAMED + "the_auditor_and_health_name_a_conflict_and_nobody_overwrites_it",),
    ),
    Mutant(
        "parts-are-cut-where-each-bookie-begins",
        "P11.4",
        "bookies that owe alike from different entries on are asked for different ranges, which nobody can compare",
        (
            (
                _OWED,
                "min(last, first - first % ids_max + ids_max - 1)",
                "min(last, first + ids_max - 1)",
            ),
        ),
        (_COMPARED + "who_joined_later_is_compared_with_who_was_there_before",),
    ),
    Mutant(
        "conflicts-are-named-for-ever",
        "P11.4",
        "the auditor names a conflict that is over",
        ((_LOOK, "                self.conflicts.pop(ledger_id, None)\n", "                pass\n"),),
        (_NAMED + "the_auditor_and_health_name_a_conflict_and_nobody_overwrites_it",),
    ),
)
