"""Metadata from an older copy: who notices, what is kept for it, what a new generation spares."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_COLLECTOR = "embedbk/core/collector.py"
_WITNESS = "embedbk/core/witness.py"
_CATALOG = "embedbk/metadata/catalog.py"
_LOADING = "embedbk/metadata/loading.py"

_COLLECTING = "tests/host/test_collecting.py::test_"
_DROPPING = "tests/rules/test_p7_dropping.py::test_"
_RECOVERING = "embedbk/metadata/recovering.py"
_KEPT_FILE = "embedbk/storage/kept_metadata.py"
_BACKING = "embedbk/host/backing_up.py"

_KEPT = "tests/storage/test_kept_metadata.py::test_"
_BACKED = "tests/host/test_backing_up.py::test_"
_LINEAGES = "tests/metadata/test_lineages.py::test_"
_MET = "tests/rules/test_p10_witness.py::test_"
_USED = "tests/storage/test_member_notes.py::test_"

_BESIDE = "tests/rules/test_p10_beside_older.py::test_"
_DENIALS = "embedbk/core/denials.py"
_BOOKIE = "embedbk/core/bookie.py"
_READS = "embedbk/core/read_answering.py"

MUTANTS = (
    Mutant(
        "a-no-to-a-recovery-is-not-held",
        "P10.5",
        "a bookie denies an entry to a recovery before it has heard whether metadata is an older copy",
        (
            (
                _READS,
                "if absent and request.fence:",
                "if absent and request.fence and not may_deny:",
            ),
        ),
        (_BESIDE + "what_a_client_has_met_first_every_bookie_hears_of_before_it_denies",),
    ),
    Mutant(
        "an-older-question-answers-for-later-requests",
        "P10.5",
        "the answer to a question that was sent before a request came lets a no to that one leave",
        (
            (
                _DENIALS,
                "        answered, self._asked, self._is_asking = self._asked, [], False\n",
                "        answered, self._asked, self._is_asking = self._asked + self._later, [], False\n",
            ),
        ),
        (_BESIDE + "a_question_that_was_sent_before_a_request_came_answers_nothing_for_it",),
    ),
    Mutant(
        "a-no-is-given-without-an-answer",
        "P10.5",
        "a bookie that metadata does not answer denies all the same",
        (
            (
                _READS,
                "take_late(now_ns), now_ns, may_deny=False",
                "take_late(now_ns), now_ns, may_deny=True",
            ),
        ),
        (_BESIDE + "a_bookie_that_metadata_does_not_answer_says_neither_yes_nor_no",),
    ),
    Mutant(
        "a-doubt-is-not-heard",
        "P10.5",
        "a bookie denies an entry although the metadata that it asked is older",
        ((_BOOKIE, "is_known=not event.doubt)", "is_known=True)"),),
        (_BESIDE + "a_question_that_was_sent_before_a_request_came_answers_nothing_for_it",),
    ),
    Mutant(
        "a-no-is-given-behind-a-loss",
        "P7.9 P10.5",
        "a no that was held leaves though the bookie has learned that it may have lost entries",
        ((_BOOKIE, "is_known and self.is_serving and self._may_deny", "is_known and self._may_deny"),),
        (_BESIDE + "what_is_lost_meanwhile_is_not_denied",),
    ),
    Mutant(
        "a-copy-of-a-leader-that-nobody-hears",
        "P10.1 P10.3",
        "a leader that is cut off gives a copy without what another one has promised since",
        (
            (
                _BACKING,
                "newest.index >= asked.up_to and is_confirmed(asked.at_ns)",
                "newest.index >= asked.up_to",
            ),
        ),
        (
            "tests/host/test_several_members.py::test_a_copy_is_cut_by_whoever_led_for_certain_when_it_was_asked_for",
        ),
    ),
    Mutant(
        "whoever-forgets-one-id-forgets-its-range",
        "P7.7",
        "an operator lets one ledger of a lost future go, and bookies drop the others beside it",
        (("embedbk/codec/id_ranges.py", "(max(begin, end), stop)", "(stop, stop)"),),
        (
            _LINEAGES + "what_is_forgotten_is_spared_no_more_and_nothing_else",
            "tests/host/test_collecting.py::test_what_is_forgotten_of_a_lost_future_goes_and_nothing_else",
        ),
    ),
    Mutant(
        "what-is-spared-is-in-no-digest",
        "I72 P7.7",
        "a member that spares other ids than the others serves beside them",
        (
            (
                _CATALOG,
                "self.descent.lineages, self.descent.spared, self.descent.stale\n",
                "self.descent.lineages, [], self.descent.stale\n",
            ),
        ),
        (_LINEAGES + "what_is_forgotten_is_spared_no_more_and_nothing_else",),
    ),
    Mutant(
        "a-recovery-hears-the-first-that-answers",
        "P10.5",
        "a lineage that one bookie met and others did not is not given up, so that one doubts the recovery for ever",
        (
            (
                _RECOVERING,
                "    lineages = [Lineage(name, at) for name, at in met.items() if name not in known]\n",
                "    lineages = [Lineage(name, at) for name, at in met.items() if name not in known][:1]\n",
            ),
        ),
        (_KEPT + "everything_that_was_met_and_is_not_gone_on_from_is_given_up",),
    ),
    Mutant(
        "one-survivor-less-is-enough",
        "P10.3",
        "a recovery from fewer survivors than every commit quorum meets says that nothing is lost",
        (
            (
                _RECOVERING,
                "len(voters) - sizes.commit + 1\n",
                "len(voters) - sizes.commit\n",
            ),
        ),
        (_KEPT + "a_survivor_of_every_commit_quorum_is_needed",),
    ),
    Mutant(
        "a-survivor-that-lost-something-counts",
        "P10.3",
        "a survivor whose log has less than was used counts as one that has all that it acknowledged",
        (
            (
                _KEPT_FILE,
                "if each.member is not None and not each.missing]",
                "if each.member is not None]",
            ),
        ),
        (
            _KEPT + "of_survivors_the_later_term_counts_and_then_the_longer_log",
            _KEPT + "a_survivor_that_has_less_than_it_was_used_for_says_so",
        ),
    ),
    Mutant(
        "the-longest-survivor-counts",
        "P10.3",
        "of two survivors the one with more entries is taken, which nobody may have committed",
        (
            (
                _KEPT_FILE,
                "key=lambda each: (each.term, each.index))",
                "key=lambda each: (each.index, each.term))",
            ),
        ),
        (_KEPT + "of_survivors_the_later_term_counts_and_then_the_longer_log",),
    ),
    Mutant(
        "a-recovered-member-goes-on-as-if-nothing-was-lost",
        "P10.5",
        "the first start on a directory that was brought back begins no lineage",
        (
            (
                _KEPT_FILE,
                "        with (part / LOSS_FILE).open(",
                "        with (part / 'SAID').open(",
            ),
        ),
        (_KEPT + "a_new_member_goes_on_with_the_state_and_its_first_start_begins_a_lineage",),
    ),
    Mutant(
        "who-was-a-member-before-a-recovery-may-come-back",
        "P10.3",
        "members of before are not taken out, and may be let in again with what they forgot",
        ((_KEPT_FILE, "(*before.retired, *before.members)", "(*before.retired,)"),),
        (_KEPT + "a_new_member_goes_on_with_the_state_and_its_first_start_begins_a_lineage",),
    ),
    Mutant(
        "a-copy-is-the-newest-snapshot-that-is-there",
        "P10.3",
        "whoever asks for a copy is given one from before what was acknowledged last",
        ((_BACKING, "newest is not None and newest.index >= asked.up_to and", "newest is not None and"),),
        (_BACKED + "a_copy_has_everything_that_was_applied_when_it_was_asked_for",),
    ),
    Mutant(
        "any-higher-generation-goes-on-from-what-was-met",
        "P10.5",
        "of two recoveries of one copy the second is taken by whoever met the first",
        ((_WITNESS, "    if told.lineage != met.lineage and not told.descends:\n", "    if False:\n"),),
        (
            _LINEAGES + "whoever_met_one_of_two_recoveries_refuses_the_other_until_it_is_given_up",
            "tests/sim/test_older_metadata.py::test_an_older_copy_loses_nothing_and_gives_no_id_twice",
        ),
    ),
    Mutant(
        "everything-descends-from-every-lineage",
        "P10.5",
        "metadata says that it descends from a lineage of which it knows nothing",
        (
            (
                "embedbk/metadata/descent.py",
                "            not asked.lineage or any(",
                "            True or any(",
            ),
        ),
        (_LINEAGES + "everybody_is_told_the_newest_lineage_and_whether_it_descends_from_theirs",),
    ),
    Mutant(
        "what-is-given-up-is-forgotten",
        "P10.5",
        "a lineage does not descend from those that were given up for it, and is doubted for ever",
        (
            (
                "embedbk/metadata/descent.py",
                "        return [*given_up, Lineage(",
                "        return [Lineage(",
            ),
        ),
        (
            _LINEAGES + "what_it_descends_from_need_not_be_given_up_again",
            _LINEAGES + "whoever_met_one_of_two_recoveries_refuses_the_other_until_it_is_given_up",
        ),
    ),
    Mutant(
        "the-gap-of-one-generation-spares-many",
        "P10.5 P7.7",
        "ids that the lost future of a higher generation gave out are given out again",
        ((_CATALOG, "        gap = RESTORED_IDS_GAP * (", "        gap = RESTORED_IDS_GAP + 0 * ("),),
        (_LINEAGES + "a_lineage_begins_above_its_own_generation_and_above_all_that_is_given_up",),
    ),
    Mutant(
        "lineages-are-in-no-digest",
        "I72 P10.5",
        "a member that lacks a lineage serves beside those that have it",
        ((_CATALOG, "level=self.level, recovered=ranges)", "level=self.level)"),),
        (_LINEAGES + "lineages_are_in_snapshots_and_digests",),
    ),
    Mutant(
        "a-generation-of-a-raised-cluster-is-no-lineage",
        "P10.5",
        "a level that was raised behind the last snapshot is not seen when a generation begins",
        (
            (
                "embedbk/metadata/generation_start.py",
                "        level = max(level, self._level_behind_log)\n",
                "",
            ),
        ),
        (_LINEAGES + "a_generation_begins_as_a_lineage_where_the_level_knows_lineages",),
    ),
    Mutant(
        "lineages-stand-anywhere-in-a-snapshot",
        "P10.8",
        "a snapshot below their level, or that says them twice, is loaded",
        (
            (
                _LOADING,
                "            if number != 2 or catalog.level < LEVEL_OF_LINEAGES or not",
                "            if not",
            ),
        ),
        (_LINEAGES + "lineages_that_stand_elsewhere_or_below_their_level_are_no_snapshot",),
    ),
    Mutant(
        "older-metadata-that-caught-up-is-believed",
        "P10.5 P7.7",
        "other random bytes under a count that was met say nothing",
        ((_WITNESS, "    if told.asked.nonce != met.nonce:\n", "    if told.asked.nonce == b'':\n"),),
        (_MET + "an_older_copy_is_told_from_the_newest_for_ever",),
    ),
    Mutant(
        "a-copy-of-the-same-start-is-believed",
        "P10.5",
        "a copy of a member that ran on is not told by what happened since",
        (
            (
                _WITNESS,
                "    if told.asked.revision < met.revision or told.asked.ids_end < met.ids_end:\n",
                "    if told.asked.revision < 0:\n",
            ),
        ),
        (
            _MET + "an_older_copy_is_told_from_the_newest_for_ever",
            _COLLECTING + "a_copy_of_a_member_that_ran_is_told_by_what_happened_since",
        ),
    ),
    Mutant(
        "an-overtaken-answer-is-judged-by-what-came-before-it",
        "P10.5",
        "two questions of one bookie that are answered in another order make the newest metadata an older one",
        (
            (
                _WITNESS,
                "        doubt = doubt_of(event.tag, told)\n",
                "        doubt = doubt_of(self.met, told)\n",
            ),
        ),
        (_MET + "an_answer_that_was_overtaken_is_judged_by_what_was_known_when_it_was_asked",),
    ),
    Mutant(
        "an-answer-from-before-another-start-teaches",
        "P10.5",
        "of two copies that were asked about the same start a bookie takes both, one behind the other",
        ((_WITNESS, "        if _link(event.tag) != _link(self.met):\n", "        if event.tag is None:\n"),),
        (_MET + "of_two_copies_that_answer_late_the_second_is_not_taken",),
    ),
    Mutant(
        "an-answer-from-before-a-start-came-further-teaches",
        "P10.5",
        "a copy that left a start before it came as far as the bookie knows is taken, as its answer was late",
        ((_WITNESS, "            if event.tag != before:", "            if before is None:"),),
        (_MET + "a_copy_of_the_same_start_that_answers_late_is_not_taken",),
    ),
    Mutant(
        "a-start-is-met-before-it-is-durable",
        "P10.5",
        "a bookie that cannot keep which metadata it met goes on as if it had, and forgets it with a crash",
        (
            (
                _WITNESS,
                '        self.doubt, self.unkept, self.is_judged = "", event.refused, True\n',
                '        self.doubt, self.is_judged = "", True\n',
            ),
        ),
        (
            _MET + "nothing_is_done_under_a_start_that_is_not_durable",
            _COLLECTING + "nothing_is_done_under_metadata_that_cannot_be_kept",
        ),
    ),
    Mutant(
        "a-collector-hears-of-metadata-that-is-not-kept",
        "P7.7 P10.5",
        "a round of collection goes on by the word of metadata that the bookie could not keep",
        (
            (
                "embedbk/host/witnessing.py",
                "            if self.core.doubt or self.core.is_met(result):\n",
                "            if self.core.doubt or result:\n",
            ),
        ),
        (_COLLECTING + "nothing_is_done_under_metadata_that_cannot_be_kept",),
    ),
    Mutant(
        "metadata-changed-under-a-page",
        "P7.7 P10.5",
        "an older copy takes the place of the metadata between two reads of one ledger, and it is dropped",
        (
            (
                _COLLECTOR,
                "        if (before.count, before.nonce) != (event.told.count, event.told.nonce):\n",
                "        if before.count > event.told.count:\n",
            ),
        ),
        (_DROPPING + "metadata_that_began_anew_in_the_midst_of_a_page_drops_nothing",),
    ),
    Mutant(
        "collection-goes-on-beside-older-metadata",
        "P7.7 P10.5",
        "a collector asks which metadata it is and does not listen",
        (
            (
                _COLLECTOR,
                "        if event.doubt:\n",
                "        if event.doubt and before is None and not self.suspects:\n",
            ),
        ),
        (_DROPPING + "metadata_that_is_older_than_the_bookie_drops_nothing",),
    ),
    Mutant(
        "ids-of-a-lost-future-are-collected",
        "P7.7 P10.5",
        "what a new generation skipped counts as deleted",
        (
            (
                _COLLECTOR,
                "        return ledger_id < told.ids_end and not told.is_spared(ledger_id)\n",
                "        return ledger_id < told.ids_end\n",
            ),
        ),
        (
            _DROPPING + "ids_that_a_lost_future_may_have_given_out_are_never_collected",
            _COLLECTING + "a_new_generation_lets_no_bookie_drop_what_it_skipped",
        ),
    ),
    Mutant(
        "ids-in-creation-are-not-spared",
        "P7.7 P10.5",
        "a ledger whose id was given out before the copy and whose key was put behind it counts as deleted",
        (("embedbk/metadata/descent.py", "IN_CREATION_IDS = 4096\n", "IN_CREATION_IDS = 0\n"),),
        ("tests/metadata/test_catalog.py::test_a_generation_spares_what_a_lost_future_may_have_given_out",),
    ),
    Mutant(
        "more-is-noted-than-was-used",
        "P9.2 P2.1",
        "a clean stop notes a record that there is none of, and the member never starts again",
        (
            (
                "embedbk/storage/metadata_store.py",
                "                self._use.end(last, self._term, self._index)\n",
                "                self._use.end(last + 1, self._term, self._index)\n",
            ),
        ),
        (_USED + "an_owners_word_in_the_directory_is_heeded_once",),
    ),
)
