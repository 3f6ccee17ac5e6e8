"""Readers: what is confirmed, what a copy that is missing or bad means."""

# ruff: noqa: E501, ISC004 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_LAC_READER = "embedbk/core/lac_reader.py"
_READER = "embedbk/core/reader.py"

_P3 = "tests/rules/test_p3_adding.py::test_"
_P6 = "tests/rules/test_p6_reading.py::test_"
_P6_TAIL = "tests/rules/test_p6_tailing.py::test_"

MUTANTS = (
    # Reading.
    Mutant(
        "reader-ends-at-a-missing-copy",
        "P6.1 P6.4",
        "an entry that one bookie does not hold is the end of the ledger",
        (
            (
                _READER,
                "            return self._no_copy(chunk, part, seat, first, answer, now_ns)\n",
                "            self.is_over = True\n            return [Ended()]\n",
            ),
        ),
        (_P6 + "a_failed_copy_is_skipped",),
    ),
    Mutant(
        "lac-of-one-bookie",
        "P6.2 I13",
        "the LAC is what the first bookie says",
        (
            (
                _LAC_READER,
                "        if not is_news and not has_coverage(self.answered, self.metadata.quorum):\n",
                "        if not is_news and not self.answered:\n",
            ),
        ),
        (_P6 + "a_lac_that_was_published_to_an_ack_quorum_is_never_missed",),
    ),
    Mutant(
        "tail-beyond-the-lac",
        "P6.2 I9",
        "entries that come along with a LAC are given whatever it allows",
        (
            (
                _LAC_READER,
                "        if frame.first_entry == self.after_lac + 1 and frame.last_entry <= lac and not frame.has_gaps:\n",
                "        if frame.first_entry == self.after_lac + 1 and not frame.has_gaps:\n",
            ),
        ),
        (_P6_TAIL + "what_comes_along_is_checked_like_every_answer",),
    ),
    # Digests.
    Mutant(
        "tags-unchecked-by-readers",
        "P3.1",
        "a reader takes copies whose tag is wrong",
        (
            (
                _READER,
                "                check_tags(frame, self.metadata.digest, self.mac_key)\n",
                "                assert frame\n",
            ),
        ),
        (_P3 + "a_copy_with_a_wrong_tag_is_a_failed_copy",),
    ),
    # Read repair.
    Mutant(
        "read-repair-as-a-normal-add",
        "P6.1 RP32",
        "a reader repairs by an add that fences refuse",
        (
            (
                _READER,
                "AddRequest(member.incarnation, 0, 0, recovery=True)",
                "AddRequest(member.incarnation, 0, 0, recovery=False)",
            ),
        ),
        (_P6 + "a_bad_copy_is_written_again_from_a_good_one",),
    ),
    Mutant(
        "read-repair-without-a-bound",
        "RP32",
        "one read repairs as many copies as it finds bad",
        (
            (
                _READER,
                "                if self.repairs_asked < self.options.repairs_max:\n",
                "                if self.repairs_asked >= 0:\n",
            ),
        ),
        (_P6 + "only_the_bad_copy_is_written_and_only_with_the_key",),
    ),
    Mutant(
        "read-repair-is-waited-for",
        "P6.1 RP32",
        "a repair that fails is a failed copy of the read",
        (
            (
                _READER,
                '        chunk, part = self._find(number, residue) if kind == "read" else (None, None)\n',
                '        if kind == "repair":\n'
                "            return self._fail(EntryUnreadable(event.reason))\n"
                "        chunk, part = self._find(number, residue)\n",
            ),
        ),
        (_P6 + "a_repair_that_fails_fails_no_read",),
    ),
    Mutant(
        "an-answer-is-a-no",
        "P6.3 P7.1",
        "a read beyond the LAC counts every bookie that answers without the entry as one that has none",
        (
            (
                _READER,
                "        part.no_count += answer.status == Status.NO_SUCH_LEDGER or is_absent\n",
                "        part.no_count += answer.status in (Status.NO_SUCH_LEDGER, Status.OK) or is_absent\n",
            ),
        ),
        (_P6 + "a_read_beyond_the_lac_takes_an_answer_that_cannot_tell_for_no_end",),
    ),
    Mutant(
        "unconfirmed-though-closed",
        "P6.1 I38",
        "a read beyond the LAC goes on as one when the ledger turns out closed: what is lost below the end ends it quietly",
        (
            (
                _READER,
                "self.last, self.is_unconfirmed = min(self.last, self.metadata.last_entry), False\n",
                "self.last = min(self.last, self.metadata.last_entry)\n",
            ),
        ),
        (_P6 + "below_the_end_of_a_ledger_that_was_closed_meanwhile_nothing_may_be_missing",),
    ),
    Mutant(
        "one-second-chance",
        "P6.1",
        "a read whose copies were moved once fails at the next time without reading where they are",
        (
            (
                _READER,
                "            self.second_round, self.retry_at = False, None\n",
                "            self.retry_at = None\n",
            ),
        ),
        (_P6 + "each_failure_of_all_copies_reads_the_metadata_again",),
    ),
)
