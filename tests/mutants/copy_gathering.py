"""Small ledgers whose reads and copies travel in one message: what one of them may not do to the others (P11.2)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_ADDS = "embedbk/core/add_storing.py"
_GATHERING = "embedbk/repair/copy_gathering.py"
_READING = "embedbk/host/reading.py"
_SEVERAL = "embedbk/core/several.py"
_OF_THE_BOOKIE = "tests/rules/test_p11_several.py::test_"
_TESTS = "tests/repair/test_copy_gathering.py::test_"

MUTANTS = (
    Mutant(
        "copies-of-nothing-are-answered",
        "WIRE-3",
        "a message of copies without a frame gets an answer that no peer can read",
        ((_SEVERAL, "if not frames or not (request.recovery", "if not (request.recovery"),),
        (_OF_THE_BOOKIE + "copies_without_a_frame_are_refused",),
    ),
    Mutant(
        "several-copies-answered-before-they-are-durable",
        "I40",
        "the answer to copies of several ledgers waits for no record",
        ((_SEVERAL, "self.wait_token = max(self.wait_token, wait_token)", "pass"),),
        (_OF_THE_BOOKIE + "the_answer_leaves_when_every_copy_is_durable_and_not_before",),
    ),
    Mutant(
        "several-copies-wait-for-the-last-alone",
        "I40",
        "the answer waits for the record of the frame that was judged last, and not for the highest one",
        (
            (
                _SEVERAL,
                "self.wait_token = max(self.wait_token, wait_token)",
                "self.wait_token = wait_token",
            ),
        ),
        (_OF_THE_BOOKIE + "one_that_is_refused_last_lets_the_others_wait_for_their_records",),
    ),
    Mutant(
        "several-copies-refused-with-one",
        "P11.2",
        "one frame that is refused ends the message, and what follows it is not stored",
        (
            (
                _ADDS,
                "                several.take(place, frame)\n                continue\n",
                "                several.take(place, frame)\n                break\n",
            ),
        ),
        (_OF_THE_BOOKIE + "one_that_is_refused_or_bad_changes_nothing_of_the_others",),
    ),
    Mutant(
        "several-normal-adds-taken",
        "P3.2",
        "an add that is no copy may have several frames",
        (
            (
                _SEVERAL,
                "    if not frames or not (request.recovery and request.is_copy) or request.deferred:\n",
                "    if False:\n",
            ),
        ),
        (_OF_THE_BOOKIE + "only_copies_by_repair_have_several_frames",),
    ),
    Mutant(
        "several-reads-say-absent-in-limbo",
        "P7.4",
        "of several ledgers one in limbo says that an entry is not there",
        (
            (
                "embedbk/core/read_answering.py",
                "several.take(place, _absent(row, found[1], may_deny=may_deny))",
                "several.take(place, found[1])",
            ),
        ),
        (_OF_THE_BOOKIE + "what_may_have_been_lost_is_called_absent_in_no_part",),
    ),
    Mutant(
        "several-reads-without-a-bound",
        "P11.2",
        "what several ledgers have is read however much it is",
        ((_READING, "        room -= size\n", "        room -= 0\n"),),
        (_OF_THE_BOOKIE + "all_ranges_together_have_the_room_of_the_request",),
    ),
    Mutant(
        "gathered-beyond-a-message",
        "P11.2",
        "copies are put into one message whatever their bytes",
        ((_GATHERING, "or byte_count + size > self.options.together_bytes", "or False"),),
        (_TESTS + "a_message_has_a_bound_of_ledgers_and_of_bytes",),
    ),
    Mutant(
        "gathered-answer-of-another-message-counts",
        "P3.8",
        "an answer to other copies says that these are durable",
        (
            (
                _GATHERING,
                "if (control.nonce, control.seating) == (self.nonce, event.tag[1]):",
                "if True:",
            ),
        ),
        (_TESTS + "an_answer_counts_for_what_it_is_about_and_nothing_else",),
    ),
    Mutant(
        "gathered-verdict-on-another-ledger-counts",
        "P7.1",
        "a verdict on another ledger than was asked for says that an entry is not there",
        (
            (
                _GATHERING,
                'if getattr(send.control, "ledger_id", None) != part.ledger_id:',
                "if False:",
            ),
        ),
        (_TESTS + "a_verdict_on_another_ledger_is_none",),
    ),
    Mutant(
        "gathered-copies-for-a-build-before",
        "P11.2",
        "a bookie that answers for one ledger alone is sent several again and again",
        ((_GATHERING, "            self.one_by_one.add(event.member)\n", "            pass\n"),),
        (_TESTS + "a_bookie_is_known_to_be_of_the_build_before_from_its_first_answer_on",),
    ),
    Mutant(
        "gathered-rest-forgotten",
        "P11.2",
        "what a bookie of the build before did not answer is not sent again",
        ((_GATHERING, "        return events, left\n", "        return events, ()\n"),),
        (_TESTS + "a_bookie_of_the_build_before_is_asked_one_by_one",),
    ),
)
