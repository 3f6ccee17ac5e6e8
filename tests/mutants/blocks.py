"""One number for many ledgers of a bookie, and rounds that pass over what did not change (P11.4)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_TABLE = "embedbk/core/ledger_table.py"
_NATIVE = "native/store/table.c"
_HOLDING = "embedbk/storage/holding.py"
_STARTS = "embedbk/storage/starts.py"
_NUMBERING = "embedbk/core/block_numbering.py"
_REPLIES = "embedbk/core/pending_replies.py"
_REQUESTS = "embedbk/host/bookie_requests.py"
_BLOCKS = "embedbk/repair/unchanged_blocks.py"
_ASKING = "embedbk/repair/block_questions.py"
_HOLDINGS = "embedbk/repair/holdings.py"
_AUDITOR = "embedbk/repair/auditor.py"
_LOOK = "embedbk/repair/copies_look.py"
_ROW = "tests/storage/test_ledger_table.py::test_"
_HELD = "tests/storage/test_holding.py::test_"
_TOLD = "tests/rules/test_p11_blocks.py::test_"
_PASSED = "tests/repair/test_unchanged_blocks.py::test_"
_ASKED = "tests/repair/test_block_questions.py::test_"

MUTANTS = (
    Mutant(
        "number-stays-behind-a-drop",
        "P11.4",
        "a dropped ledger that has a row again counts as the one that was loaded",
        ((_TABLE, "(row.last_token << 1 | row.is_dropped)", "(row.last_token << 1)"),),
        (_ROW + "a_dropped_ledger_never_has_the_number_of_one_that_was_loaded[make_plain]",),
    ),
    Mutant(
        "native-number-stays-behind-a-drop",
        "P11.4",
        "the same in C",
        ((_NATIVE, "(row->last_token << 1 | row->is_dropped)", "(row->last_token << 1)"),),
        (_ROW + "a_dropped_ledger_never_has_the_number_of_one_that_was_loaded[make_native]",),
    ),
    Mutant(
        "native-number-stays-behind-a-record",
        "P11.4",
        "the number says which ledgers there are, and not what was stored of them",
        ((_NATIVE, "(row->last_token << 1 | row->is_dropped)", "(uint64_t)row->is_dropped"),),
        (_ROW + "one_number_stands_for_the_ledgers_that_are_chosen[make_native]",),
    ),
    Mutant(
        "number-waits-for-no-record",
        "P11.4",
        "the highest token is that of the last ledger that was looked at",
        ((_TABLE, "last_token = max(last_token, row.last_token)", "last_token = row.last_token"),),
        (_ROW + "one_number_stands_for_the_ledgers_that_are_chosen[make_plain]",),
    ),
    Mutant(
        "number-stays-over-a-start",
        "P11.4",
        "a bookie that starts with less on its disk tells the number from before",
        ((_STARTS, 'own = self.kept.count.to_bytes(8, "little") + self.id', 'own = b""'),),
        (_TOLD + "a_start_changes_every_number",),
    ),
    Mutant(
        "number-stays-behind-a-scrubbers-find",
        "P11.4",
        "damage that is known changes no number",
        ((_HOLDING, "numbers.append(number if are_sound else None)", "numbers.append(number)"),),
        (
            _TOLD + "what_a_scrubber_found_bad_has_no_number",
            _HELD + "damage_leaves_a_block_without_a_number",
            _PASSED + "rot_is_repaired_though_hardly_a_round_is_full",
        ),
    ),
    Mutant(
        "number-comes-back-when-damage-is-forgotten",
        "P11.4",
        "a number that was told before damage was met is told again once that is forgotten",
        ((_HOLDING, "                    self._forgotten += 1\n", ""),),
        (_HELD + "damage_that_is_forgotten_gives_no_number_back",),
    ),
    Mutant(
        "number-is-told-before-it-is-durable",
        "P11.4",
        "a number stands for a copy that a power cut takes",
        ((_NUMBERING, "self._replies.reply_when(event.last_token,", "self._replies.reply_when(0,"),),
        (_TOLD + "it_leaves_when_what_was_accepted_is_durable_and_not_before",),
    ),
    Mutant(
        "number-is-told-behind-a-failed-sync",
        "P7.6",
        "numbers that waited for a record leave though it never will be durable",
        (
            (
                _REPLIES,
                "        control = LedgerBlocksAnswer(Status.UNKNOWN)\n",
                "        pass\n",
            ),
        ),
        (_TOLD + "of_what_will_never_be_durable_nothing_is_told",),
    ),
    Mutant(
        "number-is-told-of-an-older-copy",
        "P7.9",
        "a bookie that does not know whether it is an older copy tells numbers",
        (
            (
                _NUMBERING,
                "self._replies.failure is not None or not is_settled",
                "self._replies.failure is not None",
            ),
        ),
        (_TOLD + "another_disk_tells_none_and_an_older_copy_cannot_tell",),
    ),
    Mutant(
        "numbers-are-asked-for-below-their-level",
        "P10.8",
        "a bookie of a build before ends the link at a question that it does not know",
        ((_REQUESTS, "    LedgerBlocksRequest: LEVEL_OF_BLOCKS,\n", ""),),
        (_PASSED + "a_cluster_below_the_level_is_audited_as_before",),
    ),
    Mutant(
        "numbers-are-those-behind-the-look",
        "P11.4",
        "a block is remembered with the numbers that are told next, and not with those from before the look",
        (
            (
                _BLOCKS,
                "                self._clean[block] = state\n",
                '                self._clean[block] = b""\n',
            ),
            (_BLOCKS, "self._clean.get(block) == state:", 'self._clean.get(block) in (b"", state):'),
            (
                _BLOCKS,
                "                passed.add(block)\n",
                "                passed.add(block)\n                self._clean[block] = state\n",
            ),
        ),
        (_PASSED + "a_change_behind_a_question_is_found_in_the_next_round",),
    ),
    Mutant(
        "metadata-of-a-block-is-not-compared",
        "P11.4",
        "a ledger of which something else is owed by now is passed over",
        ((_BLOCKS, "        met.metadata.update(value)\n", ""),),
        (_PASSED + "metadata_that_changed_has_its_block_looked_at",),
    ),
    Mutant(
        "bookie-without-a-number-counts-as-unchanged",
        "P11.4",
        "who does not tell its number is left out",
        (
            (_BLOCKS, " or any(member not in numbers for member in self.masks)", ""),
            (_BLOCKS, "numbers[member]))", "numbers.get(member)))"),
        ),
        (_PASSED + "a_bookie_that_does_not_tell_its_number_has_its_ledgers_looked_at",),
    ),
    Mutant(
        "block-is-remembered-though-a-ledger-lacks",
        "P11.4",
        "what a look found is found once, and passed over from then on",
        ((_BLOCKS, "            self._looked_at.pop(block, None)\n", ""),),
        (_PASSED + "a_ledger_that_lacks_differs_or_is_untold_keeps_its_block_from_being_passed_over",),
    ),
    Mutant(
        "digests-that-were-not-told-are-sound",
        "P11.4",
        "what was not compared is passed over, until it is compared no more",
        ((_HOLDINGS, "if copies.is_told and not unlike", "if not unlike"),),
        (_PASSED + "a_ledger_that_lacks_differs_or_is_untold_keeps_its_block_from_being_passed_over",),
    ),
    Mutant(
        "copies-that-differ-are-sound",
        "P11.4",
        "a conflict is named once, and passed over from then on",
        ((_HOLDINGS, "not unlike and not differing:", "not unlike:"),),
        (_PASSED + "a_ledger_that_lacks_differs_or_is_untold_keeps_its_block_from_being_passed_over",),
    ),
    Mutant(
        "block-stays-remembered-behind-a-finding",
        "P11.4",
        "what is found in a ledger between two rounds changes nothing for the next one",
        (
            (
                _BLOCKS,
                "        for block in unclean:\n            self._clean.pop(block, None)\n",
                "        for block in unclean:\n",
            ),
        ),
        (_PASSED + "what_any_look_finds_has_its_block_forgotten",),
    ),
    Mutant(
        "part-of-a-block-is-remembered-as-the-block",
        "P11.4",
        "ledgers that were not looked at, since they were marked just then, count as seen",
        ((_BLOCKS, "        met.is_whole &= is_to_check\n", ""),),
        (_PASSED + "a_ledger_that_is_not_looked_at_keeps_its_block_from_being_remembered",),
    ),
    Mutant(
        "block-is-judged-before-all-of-it-was-met",
        "P11.4",
        "its ledgers of the next page are another block, and nothing is ever the same",
        ((_BLOCKS, "block < self.block_of(ledger_id)", "block <= self.block_of(ledger_id)"),),
        (_PASSED + "what_did_not_change_is_asked_about_by_numbers_alone",),
    ),
    Mutant(
        "open-ledgers-are-among-those-numbered",
        "P11.4",
        "a writer of one old ledger has its whole block looked at in each round",
        ((_BLOCKS, "if metadata is None or not metadata.is_closed:", "if metadata is None:"),),
        (_PASSED + "who_writes_to_an_open_ledger_of_a_block_changes_nothing",),
    ),
    Mutant(
        "no-round-is-full",
        "P11.4",
        "what no number tells of is never looked at again",
        ((_LOOK, "self._brief_rounds + 1 >= self._options.full_rounds", "False"),),
        (_PASSED + "every_so_many_rounds_everything_is_looked_at",),
    ),
    Mutant(
        "operators-round-passes-over-blocks",
        "P11.1",
        "who asks for an audit is told of what was seen before",
        ((_LOOK, "self._is_full = is_asked_for or ", "self._is_full = "),),
        (_PASSED + "an_operator_has_everything_looked_at",),
    ),
    Mutant(
        "next-auditor-believes-what-it-saw-in-another-office",
        "P11.4",
        "an auditor that is elected again goes on from what it remembers",
        ((_LOOK, "self._blocks, self._brief_rounds = UnchangedBlocks(self._options), 0", "pass"),),
        (_PASSED + "a_new_auditor_remembers_nothing",),
    ),
    Mutant(
        "questions-of-a-block-leave-in-one-moment",
        "P11.4",
        "a round asks more questions per second than it may",
        ((_AUDITOR, "self.options.page_ledgers if is_bounded else None", "None"),),
        ("tests/repair/test_auditor.py::test_questions_are_bounded_per_second",),
    ),
    Mutant(
        "blocks-that-are-gone-take-room",
        "P11.4",
        "an auditor that has met so many blocks remembers no newer ones",
        ((_LOOK, "        self._blocks.end_round()\n", ""),),
        (_PASSED + "blocks_that_are_gone_make_room",),
    ),
    Mutant(
        "numbers-of-another-question-are-believed",
        "P11.4",
        "an answer with fewer numbers than blocks ends the auditor",
        ((_ASKING, "if len(numbers) != len(asked.now):", "if not numbers:"),),
        (_ASKED + "what_is_no_answer_tells_nothing_and_that_bookie_is_asked_no_more",),
    ),
    Mutant(
        "silent-bookie-keeps-the-auditor",
        "P11.4",
        "a bookie that does not answer is waited for for ever",
        ((_ASKING, "        return self._end_if_over() if late else []\n", "        return []\n"),),
        (_ASKED + "the_last_silent_bookie_ends_it",),
    ),
)
