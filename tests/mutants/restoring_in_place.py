"""Freed ledgers that come back to bookies (P8.14)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CORE = "embedbk/core/restoring_in_place.py"
_COPIES = "embedbk/core/copying_in_place.py"
_STEPS = "embedbk/client/restoring_in_place.py"
_READING = "embedbk/client/reading.py"
_HEALTH = "embedbk/repair/health.py"

_RULE = "tests/rules/test_p8_restoring_in_place.py::test_"
_WHOLE = "tests/repair/test_restoring_in_place.py::test_"
_BACK = "tests/archive/test_freeing.py::test_"

MUTANTS = (
    Mutant(
        "a-rate-in-place-is-not-kept",
        "P8.14",
        "what is copied back to bookies is not counted, and no piece waits for the rate",
        (
            (
                _STEPS,
                "                copied_bytes += sum(len(frame.body) for frame in frames)\n",
                "                copied_bytes += 0\n",
            ),
        ),
        (_WHOLE + "a_rate_is_kept_and_the_mark_stays_meanwhile",),
    ),
    Mutant(
        "a-mark-ends-while-a-rate-is-waited-for",
        "P8.14 P7.7",
        "a job that waits for its rate does not put its mark again: a worker ends it, and all is begun anew",
        (
            (
                _STEPS,
                "min(left, RENEW_NS) / 1e9)\n            await self._renew_if_due()\n",
                "min(left, RENEW_NS) / 1e9)\n",
            ),
        ),
        (_WHOLE + "a_rate_is_kept_and_the_mark_stays_meanwhile",),
    ),
    Mutant(
        "copies-that-come-back-are-under-a-mark-that-a-worker-takes",
        "P8.14 P7.7",
        "a worker ends the mark at once, and collectors drop the copies",
        ((_CORE, "self.wall_ms, _HOLD_TRIES, True)", "self.wall_ms, _HOLD_TRIES, False)"),),
        (_RULE + "a_mark_names_all_targets_before_the_first_copy_and_no_worker_may_take_it",),
    ),
    Mutant(
        "a-ledger-comes-back-though-its-mark-was-gone",
        "P8.14 P7.7",
        "what publishes the seats does not compare the mark: bookies may have dropped the copies",
        ((_CORE, "            Compare(mark, plan.mark_revision),\n", ""),),
        (
            _RULE + "publishing_compares_all_that_was_looked_at",
            _RULE + "what_came_in_between_publishes_nothing",
        ),
    ),
    Mutant(
        "a-ledger-comes-back-to-a-bookie-that-shall-be-emptied",
        "P8.14 P10.6",
        "the placements of the chosen bookies are not compared",
        ((_CORE, "            *self.naming.compares((), restored.fragments),\n", ""),),
        (
            _RULE + "publishing_compares_all_that_was_looked_at",
            _RULE + "what_came_in_between_publishes_nothing",
        ),
    ),
    Mutant(
        "a-mark-is-renewed-that-was-another-meanwhile",
        "P8.14 P2.2",
        "a mark that was taken away is taken for the one that was renewed",
        ((_CORE, "        if event.value != self.plan.mark:\n", "        if False:\n"),),
        (_RULE + "a_mark_that_is_another_is_not_renewed",),
    ),
    Mutant(
        "coming-back-of-unknown-outcome-is-a-no",
        "P8.14 P2.2",
        "a job says that a ledger is certainly in its files, and the transaction may still take effect",
        (
            (
                _CORE,
                "        if self.is_unknown:\n            why.definite = False\n",
                "        if False:\n            why.definite = False\n",
            ),
        ),
        (_RULE + "publishing_that_may_have_landed_is_no_definite_no",),
    ),
    Mutant(
        "a-copy-counts-that-a-bookie-cannot-tell-of",
        "P8.14 P3.2",
        "any answer to a copy is taken for a durable one",
        (
            (
                _COPIES,
                "        if status != Status.OK or not self._is_of(answer, owed, number):\n",
                "        if not isinstance(answer, AddAnswer):\n",
            ),
        ),
        (
            _RULE + "any_answer_but_ok_is_a_bookie_that_failed",
            _RULE + "an_answer_to_another_copy_counts_for_nothing",
        ),
    ),
    Mutant(
        "a-bookie-that-failed-a-copy-is-chosen-again",
        "P8.14",
        "a job goes in a circle with a bookie that takes no copies",
        ((_CORE, "info.is_writable and info.member not in self.excluded", "info.is_writable"),),
        (_RULE + "one_that_failed_is_not_chosen_again",),
    ),
    Mutant(
        "a-job-that-fails-leaves-its-mark",
        "P8.14 P7.7",
        "copies of a ledger that did not come back stay on their bookies until its mark may be taken",
        (
            (
                _STEPS,
                "            except EmbedbkError:\n                await self._take_mark_away()\n",
                "            except EmbedbkError:\n",
            ),
        ),
        (_BACK + "what_cannot_come_back_stays_in_its_files",),
    ),
    Mutant(
        "a-mark-is-not-put-again-while-files-hang",
        "P8.14",
        "a worker ends the mark of a job that waits for a disk, and the copying begins anew",
        (
            (
                _STEPS,
                "RENEW_NS / 1e9)\n            await self._renew_if_due()\n",
                "RENEW_NS / 1e9)\n",
            ),
        ),
        (_WHOLE + "a_ledger_comes_back_beside_workers_and_collectors_however_slow_its_files_are",),
    ),
    Mutant(
        "a-ledger-comes-back-in-part",
        "P8.14 I6",
        "files that end early are taken for all of a ledger",
        (
            (
                _STEPS,
                "        if (following - 1, length) != (ledger.last_entry, ledger.length):\n",
                "        if False:\n",
            ),
        ),
        (_WHOLE + "files_that_are_not_all_of_it_bring_nothing_back",),
    ),
    Mutant(
        "a-handle-of-files-that-are-gone-asks-no-bookie",
        "P8.14 P6.1",
        "a handle that was opened while a ledger was freed fails where bookies have it again",
        (
            (
                _READING,
                "                    if not await self._known.is_back(self.runtime, metadata):\n",
                "                    if True:\n",
            ),
        ),
        (_BACK + "freed_ledgers_come_back_to_bookies_and_every_reader_goes_on",),
    ),
)
