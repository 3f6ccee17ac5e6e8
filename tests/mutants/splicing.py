"""Ready-made ledgers that are spliced into a log (P8.5, I98)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_SPLICING = "embedbk/core/log_splicing.py"
_SWEEPING = "embedbk/core/staging_sweeping.py"
_FACE = "embedbk/client/splicing.py"
_REQUESTS = "embedbk/client/splice_requests.py"
_DELETING = "embedbk/client/deleting.py"
_DELETING_LOGS = "embedbk/client/log_deleting.py"
_ENTRY_TIMES = "embedbk/client/entry_times.py"

_RULE = "tests/rules/test_p8_splicing.py::test_"
_SCENE = "tests/scenarios/test_splicing.py::test_"

MUTANTS = (
    Mutant(
        "a-transaction-of-an-old-number-is-spliced",
        "P8.5 I98",
        "a transaction that came to pass before is spliced again",
        (
            (
                _SPLICING,
                "        if before is not None and before.number >= self.splice.number:\n",
                "        if before is not None and before.number > self.splice.number:\n",
            ),
        ),
        (_RULE + "a_number_that_is_not_new_is_a_replay",),
    ),
    Mutant(
        "a-splice-beside-a-sweeper",
        "P8.5",
        "the transaction that splices does not compare what says that a ledger is staged",
        (
            (
                _SPLICING,
                '            when.append(Compare(staged_path(name, ledger_id), self.compares["mark", ledger_id]))\n',
                "",
            ),
        ),
        (_RULE + "one_transaction_compares_all_of_it_and_sets_all",),
    ),
    Mutant(
        "a-sweeper-beside-a-splice",
        "P8.5 I90",
        "who gives a staged ledger up does not compare what says that it is staged",
        (
            (
                _SWEEPING,
                "        when = [Compare(mark, self.mark_revision), Compare(ledger, revision)]\n",
                "        when = [Compare(ledger, revision)]\n",
            ),
        ),
        (_RULE + "a_sweeper_is_too_late_for_what_was_spliced",),
    ),
    Mutant(
        "a-sweeper-of-what-waits",
        "P8.5",
        "a staged ledger goes though its transaction is still to come",
        (
            (
                _SWEEPING,
                "        return done is not None and done.number >= mark.number\n",
                "        return done is not None\n",
            ),
        ),
        (_RULE + "what_is_given_up[999-None-False-goes0]",),
    ),
    Mutant(
        "a-splice-of-whoever-was-fenced",
        "P8.5 P9.1",
        "the transaction that splices does not compare the epoch",
        (
            (
                _SPLICING,
                "            Compare(log_owner_path(self.name), self.epoch),\n        ]\n        then: list",
                "        ]\n        then: list",
            ),
        ),
        (_RULE + "whoever_lost_the_log_splices_nothing",),
    ),
    Mutant(
        "a-splice-beside-an-open-ledger",
        "P8.5",
        "under an epoch of before, another owner's open ledger is recovered",
        (
            (
                _SPLICING,
                "        if self.kept_epoch and any(segment.last_entry is None for segment in self.segments):\n",
                "        if self.kept_epoch < 0:\n",
            ),
        ),
        (_RULE + "nothing_is_spliced_beside_an_open_ledger",),
    ),
    Mutant(
        "a-splice-that-landed-is-denied",
        "P8.5 P2.2",
        "whoever lost the log behind its splice says that nothing was spliced",
        (
            (
                _SPLICING,
                "        if is_done and not self.lists_next:\n",
                "        if is_done and not self.lists_next and self.is_ours_still:\n",
            ),
        ),
        (_RULE + "a_splice_that_landed_under_a_list_that_changed_since_is_known_by_its_record[True]",),
    ),
    Mutant(
        "an-owner-goes-on-in-front-of-a-splice",
        "P8.5 I93",
        "an owner's next ledger begins where what it spliced begins",
        (
            (
                _SPLICING,
                "        first_offset = first_free_offset((*self.segments, *self.staged))\n",
                "        first_offset = first_free_offset(self.segments)\n",
            ),
        ),
        (_RULE + "an_owner_lists_its_next_ledger_behind_what_it_splices",),
    ),
    Mutant(
        "a-request-that-was-withdrawn-is-carried-out",
        "P8.5",
        "an owner splices though nobody asks for it any more",
        (
            (
                _SPLICING,
                "        request = self.splice.request\n        if request is not None:\n",
                "        request = None\n        if request is not None:\n",
            ),
            (
                _SPLICING,
                "        name, request = self.name, self.splice.request\n",
                "        name, request = self.name, None\n",
            ),
            (_REQUESTS, "        if value is None or now != revision:\n", "        if value is None:\n"),
        ),
        (_SCENE + "an_owner_that_splices_too_late_is_refused",),
    ),
    Mutant(
        "a-request-that-is-not-withdrawn",
        "P8.5",
        "whoever waited for long enough says that nothing will be spliced, and leaves the request",
        (
            (
                _FACE,
                "            if is_late and await runtime.transact([Compare(key, revision)], [Delete(key)], what):\n",
                "            if is_late:\n",
            ),
        ),
        (_SCENE + "an_owner_that_does_not_answer_in_time_does_not_splice_later",),
    ),
    Mutant(
        "a-living-writer-is-fenced",
        "P8.5",
        "whoever splices takes the log over from a writer that lives",
        (
            (
                _FACE,
                "        if not kept and owner is not None:\n",
                "        if not kept and owner is not None and not owner:\n",
            ),
        ),
        (_SCENE + "beside_a_writer_that_lives_the_ledgers_stand_between_two_of_its_own",),
    ),
    Mutant(
        "a-staged-ledger-deleted-under-its-mark",
        "P8.5 P8.3",
        "a user deletes a staged ledger, and its mark stays",
        ((_DELETING, "        when += marked\n", "        marked = []\n"),),
        (_SCENE + "a_staged_ledger_that_a_user_deletes_leaves_no_mark",),
    ),
    Mutant(
        "what-was-staged-for-a-deleted-log-stays",
        "P8.5 L13",
        "a log is deleted, and what was staged for it is not",
        (
            (
                _DELETING_LOGS,
                "                await sweep(runtime, log_id, password, takes_all=True)\n",
                "                pass\n",
            ),
            (
                _DELETING_LOGS,
                '    await sweep(runtime, log_id, Password(b""), takes_all=True)\n',
                "",
            ),
        ),
        (_SCENE + "a_log_that_is_deleted_takes_along_what_was_staged_for_it",),
    ),
    Mutant(
        "spliced-entries-without-a-time",
        "P8.11",
        "what was spliced counts as older than all that has times",
        (
            (
                _ENTRY_TIMES,
                "            if segment.begun == Begun.SPLICE:",
                "            if segment.begun < 0:",
            ),
        ),
        (_SCENE + "a_writer_goes_on_behind_a_splice_and_pages_hold_both",),
    ),
    Mutant(
        "refused-once-is-refused",
        "P8.5",
        "an owner looks again and splices, and says that nothing was spliced",
        (
            (
                _SPLICING,
                "        self.unspliced = None  # A look before this one may have found what is otherwise by now.\n",
                "",
            ),
        ),
        ("tests/rules/test_p8_splicing.py::test_what_is_spliced_at_a_later_look_is_not_said_to_be_refused",),
    ),
)
