"""Repair of many small ledgers side by side: what one of them may not do to the others (P11.2)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_SMALL = "embedbk/repair/small_repairs.py"
_WORKER = "embedbk/repair/worker.py"
_TESTS = "tests/repair/test_small_repairs.py::test_"
_OF_THE_WORKER = "tests/repair/test_worker.py::test_"

MUTANTS = (
    Mutant(
        "small-repairs-published-though-a-copy-failed",
        "I36",
        "a ledger whose copies are not durable is published with the others",
        ((_SMALL, 'each.is_alone = copying.result.kind != "done"', "each.is_alone = False"),),
        (_TESTS + "nothing_is_published_before_its_copy_is_durable",),
    ),
    Mutant(
        "small-repairs-published-before-all-are-durable",
        "I36",
        "the first durable copy publishes all of them",
        (
            (
                _SMALL,
                "while not self.asked and not self.is_over and not effects and not self.due:",
                "while not self.asked and not self.is_over and not effects:",
            ),
        ),
        (_TESTS + "nothing_is_published_before_its_copy_is_durable",),
    ),
    Mutant(
        "small-repairs-end-what-was-refused",
        "P11.2",
        "a transaction that was refused counts as done for all of its ledgers",
        (
            (
                _SMALL,
                "        if not event.is_done:\n            return self._halve",
                "        if False:\n            return self._halve",
            ),
        ),
        (_TESTS + "one_that_changed_keeps_none_of_the_others_back",),
    ),
    Mutant(
        "small-repairs-leave-the-others-of-a-refusal",
        "P11.2",
        "one that has changed sends all of its transaction to the single road",
        ((_SMALL, "if len(about) == 1 or self.refused > _REFUSED_MAX:", "if True:"),),
        (_TESTS + "one_that_changed_keeps_none_of_the_others_back",),
    ),
    Mutant(
        "small-repairs-copy-before-the-mark-names-the-target",
        "P7.7",
        "no target is written into the marks",
        ((_SMALL, "if each.marked is not each.mark]", "if False]"),),
        (_TESTS + "no_copy_is_sent_before_the_target_stands_in_its_mark",),
    ),
    Mutant(
        "small-repairs-without-the-epoch",
        "P9.1",
        "who lost its hold publishes all the same",
        (
            (
                _SMALL,
                "    return Compare(hold, each.epoch), Compare(mark, each.mark_revision)\n",
                "    return Compare(mark, each.mark_revision), Compare(mark, each.mark_revision)\n",
            ),
        ),
        (_TESTS + "forty_are_marked_published_and_ended_by_one_transaction_each",),
    ),
    Mutant(
        "small-repairs-without-the-mark",
        "P7.7",
        "copies are published though the mark that kept them is another",
        (
            (
                _SMALL,
                "    return Compare(hold, each.epoch), Compare(mark, each.mark_revision)\n",
                "    return Compare(hold, each.epoch), Compare(hold, each.epoch)\n",
            ),
        ),
        (_TESTS + "one_that_changed_keeps_none_of_the_others_back",),
    ),
    Mutant(
        "small-repairs-without-placements",
        "P10.6",
        "a bookie is named that was put to read-only since it was chosen",
        ((_SMALL, "                if number is not None\n", "                if False\n"),),
        (_TESTS + "if_everything_is_refused_the_single_road_is_taken_soon",),
    ),
    Mutant(
        "small-repairs-without-a-pace",
        "AR12",
        "small ledgers are read as fast as it goes, whatever the limit",
        (
            (
                _SMALL,
                "each.metadata, 0, each.holders, away, self.nonce, self.pace, self.options, numbers",
                "each.metadata, 0, each.holders, away, self.nonce, CopyPace(0), self.options, numbers",
            ),
        ),
        (_TESTS + "copies_keep_to_the_bytes_per_second_of_the_process",),
    ),
    Mutant(
        "small-repairs-believe-the-unknown",
        "P2.2",
        "a transaction of unknown outcome counts as done",
        (
            (
                _SMALL,
                "        for each in about:\n            each.is_alone = True\n",
                "        for each in about:\n            each.is_repaired = True\n",
            ),
        ),
        (_TESTS + "what_is_not_known_to_be_published_is_not_ended",),
    ),
    Mutant(
        "worker-keeps-what-it-did-not-begin",
        "P11.2",
        "ledgers that wait for their turn stay locked while repair is switched off",
        ((_WORKER, "            self.returned[held.ledger_id] = held.epoch\n", "            pass\n"),),
        (_OF_THE_WORKER + "what_was_not_begun_when_repair_is_switched_off_is_given_back",),
    ),
    Mutant(
        "worker-takes-forty-of-any-size",
        "P11.2",
        "a worker holds forty large ledgers, and others have nothing to do",
        ((_WORKER, "self.is_wide = not result.alone", "self.is_wide = True"),),
        (_OF_THE_WORKER + "once_all_were_small_it_takes_as_many_as_one_request_may",),
    ),
    Mutant(
        "worker-begins-any-number-of-ledgers",
        "AR12",
        "the bound of ledgers per second is not counted",
        ((_WORKER, "        if now_ns < self.free_ns:\n", "        if False:\n"),),
        (_OF_THE_WORKER + "so_many_ledgers_are_begun_per_second",),
    ),
    Mutant(
        "worker-saves-up-ledgers",
        "AR12",
        "an hour without marks lets a worker begin an hour's worth at once",
        ((_WORKER, "self.free_ns = max(self.free_ns, now_ns) + len", "self.free_ns = self.free_ns + len"),),
        (_OF_THE_WORKER + "so_many_ledgers_are_begun_per_second",),
    ),
)
