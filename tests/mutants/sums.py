"""What writers publish of fragments that end, and what audits and repair make of it (P11.4, I56)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_TABLE = "native/wire/packer_sums.c"
_SUMS = "native/wire/packer_sums.h"
_TWIN = "embedbk/codec/packer_twin.py"
_FRAGMENTS = "embedbk/core/fragment_sums.py"
_CHANGES = "embedbk/core/change_publishing.py"
_PUBLISHED = "embedbk/repair/published.py"
_HOLDINGS = "embedbk/repair/holdings.py"
_COPY = "embedbk/repair/fragment_copy.py"
_RULES = "tests/rules/test_p11_sums.py::test_"
_ARCHIVE = "tests/archive/test_verifying.py::test_"
_COPYING = "tests/repair/test_copying.py::test_"
_PACKED = "tests/codec/test_packer_sums.py::test_"
_CHANGED = _RULES + "a_change_publishes_what_ended_and_what_is_sent_again_counts_once"
_CLOSED = _RULES + "a_close_publishes_the_digests_of_what_is_in_the_last_fragment"

MUTANTS = (
    Mutant(
        "sums-swap-a-residue",
        "I56",
        "an entry is added to the sum of the residue behind its own",
        (
            (
                _SUMS,
                "sums->now[sums->residue] += digest;",
                "sums->now[(sums->residue + 1) % sums->modulus] += digest;",
            ),
        ),
        (_CLOSED, _PACKED + "the_sum_is_known_wherever_a_frame_ends_and_nowhere_else"),
        seeds=30,
    ),
    Mutant(
        "sums-include-what-is-on-its-way",
        "I56",
        "the sum of all that was packed is told, acknowledged or not",
        (
            (
                _TWIN,
                "return self._sums_done[1] if self._sums_done[0] == entry_id else ()",
                "return tuple(self._sums)",
            ),
            (_TABLE, "if (sums->is_broken || sums->done_entry != entry) return false;", "(void)entry;"),
            (_TABLE, "sums->row_count > 0 ? row_at(sums, 0) + 1 : sums->now;", "sums->now;"),
        ),
        (_PACKED + "a_frame_that_is_open_is_in_no_sum",),
    ),
    Mutant(
        "a-packer-at-rest-begins-without-what-was-done",
        "I56",
        "where nothing was on its way, the first frame's entries are in the sum up to the entry in front of it",
        (
            (
                "native/wire/packer_entry.c",
                "    if (packer->sums != NULL) ebk_packer_sums_begin(packer->sums);\n",
                "",
            ),
            (
                _TABLE,
                "    EBK_ASSERT(last_entry > sums->done_entry);\n",
                "    ebk_packer_sums_begin(sums);\n",
            ),
        ),
        (_PACKED + "a_packer_at_rest_keeps_its_sum",),
    ),
    Mutant(
        "sums-count-what-is-sent-again-twice",
        "I56",
        "the sum of an ended fragment is not taken off the next one's",
        (
            (
                _FRAGMENTS,
                "total = tuple((a - b) & DIGEST_MASK for a, b in zip(total, each.digests, strict=True))",
                "total = tuple(total)",
            ),
        ),
        (_CHANGED,),
        seeds=200,
    ),
    Mutant(
        "sums-of-a-change-are-taken-when-it-is-sent",
        "I56",
        "a change publishes the newest sum, not that of the entries in front of the new fragment",
        (
            (
                _CHANGES,
                "sums = sums_with(self.metadata, proposal.first_entry - 1, proposal.sums)",
                (
                    "done = self.in_flight.done\n"
                    "        sums = sums_with(self.metadata, done, self.in_flight.sums_through(done))"
                ),
            ),
        ),
        (_RULES + "a_change_is_sent_again_with_the_sums_of_its_place",),
    ),
    Mutant(
        "sums-of-a-part-count-as-those-of-the-ledger",
        "P11.4",
        "where an earlier fragment was not published, the sums of all are published as those of the last one",
        ((_FRAGMENTS, "if not total or last < first or begin != first:", "if not total or last < first:"),),
        (_RULES + "sums_are_of_a_fragment_and_of_nothing_that_cannot_be_told",),
    ),
    Mutant(
        "sums-are-not-looked-at-by-audits",
        "I56",
        "copies are compared with each other only",
        (
            (
                _HOLDINGS,
                "if unlike := unlike_published(self._ledgers[ledger_id], copies.told):",
                "if unlike := unlike_published(self._ledgers[ledger_id], {}):",
            ),
        ),
        (_RULES + "the_auditor_names_the_bookie_where_both_copies_agree_on_a_wrong_thing",),
    ),
    Mutant(
        "sums-of-half-a-fragment-are-a-difference",
        "P7.1",
        "a bookie that told a part only is named, as its sum is another one",
        (
            (
                _PUBLISHED,
                "    return total if wanted == last_entry + 1 else None\n",
                "    return total\n",
            ),
        ),
        (_RULES + "parts_add_up_and_what_was_not_told_whole_is_no_party",),
    ),
    Mutant(
        "sums-are-not-looked-at-by-repair",
        "P11.4",
        "what was copied takes its seat, whatever its writer published",
        (
            (
                _COPY,
                'self.result = self._why_unlike() or CopyResult("done")',
                'self.result = CopyResult("done")',
            ),
        ),
        (_RULES + "a_copy_that_is_not_what_was_published_takes_no_seat",),
    ),
    Mutant(
        "an-archive-of-something-else-is-recorded",
        "P11.4 P8.14",
        "a ledger counts as archived though its writer published other digests",
        (
            (
                "embedbk/archive/jobs.py",
                "            if unlike := why_not_as_written(metadata, parts):\n",
                "            if (unlike := why_not_as_written(metadata, parts)) and not parts:\n",
            ),
        ),
        (_ARCHIVE + "what_is_not_what_its_writer_published_is_not_archived",),
    ),
    Mutant(
        "what-is-something-else-is-taken-the-next-time",
        "P11.4 P8.14",
        "files of entries that were not written so stay, and the next job takes them",
        (
            (
                "embedbk/archive/jobs.py",
                "                self._put_aside(segment.ledger_id, parts)\n",
                "",
            ),
        ),
        (_ARCHIVE + "what_is_not_what_its_writer_published_is_not_archived",),
    ),
    Mutant(
        "an-archive-of-something-else-is-verified",
        "P11.4 P8.14",
        "bookies give copies up for files of which their writer published other digests",
        (
            (
                "embedbk/archive/verifying.py",
                "    elif metadata is not None and (unlike",
                "    elif metadata is None and (unlike",
            ),
        ),
        (_ARCHIVE + "an_archive_that_is_not_what_was_published_frees_nothing",),
    ),
    Mutant(
        "sums-of-a-part-are-those-of-the-ledger",
        "P11.4",
        "an archive is compared with what was published of some fragments",
        (
            (
                _PUBLISHED,
                "    return _total(0, metadata.last_entry, parts)\n",
                "    return sum(each[2] for each in parts) & DIGEST_MASK\n",
            ),
        ),
        (_RULES + "the_sum_of_a_whole_ledger_is_known_where_all_of_it_was_published",),
    ),
    Mutant(
        "whoever-has-something-else-is-read-first",
        "P11.4",
        "repair reads sources in any order, whatever they say that they have",
        ((_COPY, "key=lambda seat: seat in self._doubted", "key=lambda seat: seat not in self._doubted"),),
        (_COPYING + "who_has_something_else_is_read_last",),
    ),
    Mutant(
        "whoever-failed-is-read-behind-whoever-is-wrong",
        "P11.4",
        "behind one entry that a source lacks, the rest is read from one that has something else",
        (
            (
                _COPY,
                ("        part.seats.append(seat)  # Asked last from now on.\n        self._order(part)\n"),
                "        part.seats.append(seat)  # Asked last from now on.\n",
            ),
        ),
        (_COPYING + "who_has_something_else_is_read_where_nobody_else_has_the_entry",),
    ),
    Mutant(
        "one-read-is-copied-whatever-it-has",
        "P11.4 P3.4c",
        "a target gets wrong copies of a small ledger, which are in the way of the right ones",
        (
            (
                _COPY,
                "        is_all = frame.first_entry == part.first and",
                "        is_all = frame.first_entry < 0 and",
            ),
        ),
        (_COPYING + "what_one_read_has_is_compared_before_it_is_copied",),
    ),
    Mutant(
        "a-source-that-lacks-something-is-wrong",
        "P7.1 P11.4",
        "the digest of a bookie that lacks an entry is compared with that of all",
        (("embedbk/repair/source_check.py", "if count < owed.entries or not parts", "if not parts"),),
        (_COPYING + "a_source_that_does_not_tell_is_neither_right_nor_wrong[short]",),
    ),
)
