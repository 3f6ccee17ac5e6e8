"""Giving up what is lost for good: who may be gone, who can tell, and what readers get (P11.5)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_SEARCH = "embedbk/core/loss_search.py"
_VERB = "embedbk/client/giving_up.py"
_READER = "embedbk/core/reader.py"
_READING = "embedbk/client/reading.py"
_COPY = "embedbk/repair/fragment_copy.py"
_OWED = "embedbk/repair/owed.py"
_METADATA = "embedbk/codec/ledger_metadata.py"

_ASKED = "tests/repair/test_loss_search.py::test_"
_STORY = "tests/repair/test_giving_up.py::test_"

MUTANTS = (
    Mutant(
        "who-is-registered-counts-as-gone",
        "P11.5",
        "b1 was declared gone, serves all the same, and its copies are given up unasked",
        ((_SEARCH, "gone - frozenset(self.there)", "gone"),),
        (_ASKED + "who_is_registered_is_asked_whatever_was_said_of_it",),
    ),
    Mutant(
        "who-is-only-away-counts-as-gone",
        "P11.5",
        "b2 comes back with the entry that was given up",
        (
            (
                _SEARCH,
                'self._cannot_tell(member, self.wanted, "it is away, and not declared gone")',
                "continue",
            ),
        ),
        (_ASKED + "who_is_away_or_silent_and_not_gone_may_have_it",),
    ),
    Mutant(
        "limbo-is-a-negative-for-who-gives-up",
        "P7.4 P11.5",
        "a bookie in limbo has the entry behind its limbo, and it is given up",
        ((_SEARCH, '            self._cannot_tell(member, asked, "the ledger is in limbo there")\n', ""),),
        (_ASKED + "who_cannot_tell_has_not_said_no",),
    ),
    Mutant(
        "a-copy-that-cannot-be-read-is-given-up",
        "P7.1 P11.5",
        "what one read could not give is lost for ever",
        ((_SEARCH, '        self._cannot_tell(member, unsaid, "it cannot read it, or cannot tell")\n', ""),),
        (_ASKED + "a_copy_that_cannot_be_read_is_no_negative",),
    ),
    Mutant(
        "who-stays-silent-has-said-no",
        "P11.5",
        "b2 has no link for a while, and what it has is given up",
        (
            (
                _SEARCH,
                "            self._cannot_tell(member, self.wanted, why)\n            return",
                "            return",
            ),
        ),
        (_ASKED + "who_is_away_or_silent_and_not_gone_may_have_it",),
    ),
    Mutant(
        "nobody-without-a-seat-is-asked",
        "P11.5",
        "a good copy is left on a bookie whose seat was given away",
        (
            (
                _SEARCH,
                "for run in runs for member in self.there][::-1]",
                "for run in runs for member in ()][::-1]",
            ),
        ),
        (_ASKED + "a_copy_where_no_seat_is_keeps_its_entry",),
    ),
    Mutant(
        "a-given-up-ledger-ends-before-what-was-acknowledged",
        "P5.3 P11.5",
        "the LAC says 4, the ledger ends at 1, and nothing is said of 2 to 4",
        ((_SEARCH, "        self._know(answer.lac, answer.lac_length)\n", ""),),
        (_ASKED + "what_was_heard_acknowledged_is_never_beyond_the_end",),
    ),
    Mutant(
        "a-wide-gap-ends-the-ledger",
        "P5.3 P11.5",
        "what stands behind a gap of a window is cut off",
        ((_SEARCH, "            if self.end > before:\n", "            if False:\n"),),
        (_ASKED + "a_ledger_without_an_end_ends_behind_the_last_entry_that_anybody_has",),
    ),
    Mutant(
        "a-living-bookie-is-not-fenced-before",
        "P5.2b P11.5",
        "a writer goes on at a bookie that was not asked, behind the end",
        (
            (
                _SEARCH,
                "        self.queue = living[::-1]\n        return",
                "        self.queue = living[:1]\n        return",
            ),
        ),
        (_ASKED + "nobody_is_left_out_of_the_fence",),
    ),
    Mutant(
        "what-a-recovery-could-settle-is-given-up",
        "P11.5",
        "a gone bookie counts as no copy though those that are there have coverage",
        ((_SEARCH, "        if has_coverage(seats, self.quorum):", "        if False:"),),
        (_ASKED + "bookies_that_can_settle_it_do",),
    ),
    Mutant(
        "an-open-ledger-is-given-up",
        "P11.5",
        "a writer lives, and its ledger is closed under it by a word",
        ((_VERB, "    if metadata.state == LedgerState.OPEN:", "    if False:"),),
        (_STORY + "an_open_ledger_is_its_writers",),
    ),
    Mutant(
        "a-word-does-not-compare-the-ledger",
        "P10.6 P11.5",
        "a ledger that was repaired or given up meanwhile is written over",
        ((_VERB, "when = [Compare(key, shown.revision)]", "when: list[Compare] = []"),),
        (_STORY + "what_was_declared_meanwhile_is_looked_at_again",),
    ),
    Mutant(
        "a-word-is-taken-back",
        "P11.5",
        "what readers were told to be lost is there again, by a client of old metadata",
        ((_METADATA, "    if metadata.lost[: len(known.lost)] != known.lost:", "    if False:"),),
        ("tests/codec/test_lost_entries.py::test_what_was_given_up_stays_given_up",),
    ),
    Mutant(
        "what-is-lost-is-asked-for",
        "P11.5",
        "a reader waits for copies that nobody has, and calls that unreadable",
        ((_READER, "        if lost and not self.chunks and", "        if False and not self.chunks and"),),
        (_STORY + "what_only_bookies_had_that_are_gone_is_given_up_and_readers_are_told_so",),
    ),
    Mutant(
        "a-gap-is-passed-over-unasked",
        "P11.5",
        "a reader gets entries as if nothing was missing between",
        ((_READING, "                if not skip_lost:\n                    raise\n", ""),),
        (_STORY + "what_only_bookies_had_that_are_gone_is_given_up_and_readers_are_told_so",),
    ),
    Mutant(
        "repair-looks-for-what-was-given-up",
        "P11.2 P11.5",
        "the fragment stays without its copies for the sake of an entry that nobody has",
        ((_COPY, "                self._pass_lost(self._parts[-1])\n", ""),),
        (_STORY + "repair_and_health_ask_for_nothing_that_was_given_up",),
    ),
    Mutant(
        "what-was-given-up-is-owed",
        "P11.4 P11.5",
        "health never gets good, and bookies are filled with what nobody has",
        ((_OWED, "    if not metadata.lost:\n        yield", "    if True:\n        yield"),),
        (_STORY + "repair_and_health_ask_for_nothing_that_was_given_up",),
    ),
    Mutant(
        "any-lac-is-searched-for",
        "P11.5",
        "a bookie that claims an absurd LAC makes the search for lost entries go on without end",
        (
            (
                _SEARCH,
                "if self._is_tail and self.end > self.last >=",
                "if self.end < -9 <= self.last >=",
            ),
        ),
        (_ASKED + "a_lac_that_nothing_bears_out_ends_the_search_and_is_named",),
    ),
)
