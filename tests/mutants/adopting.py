"""Taking ledgers of a lost future back into the metadata: who has to be asked, and what is no "no"."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_ADOPTING = "embedbk/core/adopting.py"
_COMMIT = "embedbk/core/adoption_commit.py"
_SURVEY = "embedbk/core/survey.py"
_FITTING = "embedbk/core/fitting.py"
_BOOKIE = "embedbk/core/bookie.py"
_LIMBO = "embedbk/core/limbo.py"
_CATALOG = "embedbk/metadata/catalog.py"
_CLIENT = "embedbk/client/adopting.py"
_ASKING = "embedbk/host/asking.py"
_RESTORING = "embedbk/client/restoring.py"

_KEYS = "embedbk/metadata/stale_keys.py"
_GOVERNING = "embedbk/metadata/governing.py"

_RULES = "tests/rules/test_p10_adopting.py::test_"
_STALE = "tests/rules/test_p10_stale_keys.py::test_"
_REFUSED = "tests/metadata/test_stale_keys.py::test_"
_METADATA = "tests/metadata/test_adopting.py::test_"
_SCENES = "tests/scenarios/test_adopting.py::test_"
_BACK = "tests/scenarios/test_restoring.py::test_"

MUTANTS = (
    Mutant(
        "who-cannot-tell-has-said-no",
        "P10.5 P7.1",
        "a ledger is adopted without an entry that a bookie has, and cannot read just now",
        (
            (
                _SURVEY,
                "if each.is_needed and not each.says_no(entry_id)]",
                "if each.is_needed and not each.next_entry]",
            ),
        ),
        (
            _RULES + "limbo_cannot_tell_and_is_not_taken_for_no",
            _RULES + "an_entry_that_is_unreadable_where_it_lies_is_not_absent",
        ),
    ),
    Mutant(
        "the-first-fence-is-enough-to-adopt",
        "P5.2f",
        "a bookie that is not fenced yet acknowledges what nobody looks for any more",
        (
            (
                _ADOPTING,
                "if self.phase is AdoptionPhase.FENCING and all(each.is_fenced for each in self.survey.answering):",
                "if self.phase is AdoptionPhase.FENCING and any(each.is_fenced for each in self.survey.answering):",
            ),
        ),
        (_RULES + "its_writer_is_acknowledged_nothing_more",),
    ),
    Mutant(
        "who-is-silent-counts-as-gone",
        "P10.5 P11.5",
        "a bookie that is away for a moment is not waited for, though nobody called it gone",
        (
            (
                _ADOPTING,
                "if holding.is_needed or (is_listed",
                "if holding.is_fenced or (is_listed",
            ),
        ),
        (_RULES + "who_does_not_answer_has_not_said_no",),
    ),
    Mutant(
        "whoever-is-called-gone-has-one-try",
        "P5.2c P11.5",
        "the first answer of a bookie that is called gone is lost, and what it alone has is given up",
        (
            (
                _ADOPTING,
                "(is_listed and now_ns < holding.failing_ns + self.options.gone_ns):",
                "(is_listed and now_ns < holding.failing_ns):",
            ),
        ),
        (_RULES + "who_is_called_gone_and_answers_late_is_heard",),
    ),
    Mutant(
        "a-lac-that-was-told-is-no-reason",
        "P5.3 P10.5",
        "a ledger ends before an entry that was acknowledged, and what stands behind it goes with it",
        (
            (
                _SURVEY,
                "                if entry_id > self.lac:\n",
                "                if entry_id > self.lac or not self.lost:\n",
            ),
        ),
        (_RULES + "acknowledged_entries_that_nobody_has_are_given_up_by_name_only",),
    ),
    Mutant(
        "lost-entries-are-given-up-unasked",
        "P11.5",
        "acknowledged entries that nobody has are given up, though no operator said so",
        (
            (
                _ADOPTING,
                "if lost and not (self.options.accepts_loss or self.options.is_dry):",
                "if lost and not (self.options.accepts_loss or self.options.is_dry or self.options.by):",
            ),
        ),
        (_RULES + "acknowledged_entries_that_nobody_has_are_given_up_by_name_only",),
    ),
    Mutant(
        "a-tombstone-is-adopted-over",
        "CL32 P7.7",
        "a ledger that was deleted is adopted beside its tombstone, which is brought back over it",
        (
            (
                _COMMIT,
                "            Compare(tombstone_path(self._ledger_id), ABSENT),\n",
                "",
            ),
        ),
        (_RULES + "a_deleted_ledger_is_not_adopted",),
    ),
    Mutant(
        "an-adoption-unheard-is-done",
        "P2.2",
        "an operator is told that a ledger is adopted, and the transaction never came to pass",
        (
            (
                _COMMIT,
                "        if isinstance(event, TransactUnknown):\n            self._is_unsettled = True\n",
                "        if isinstance(event, TransactUnknown):\n            return AdoptionSettled([], revision=0)\n",
            ),
        ),
        (_RULES + "an_unknown_outcome_is_settled_before_anything_is_said",),
    ),
    Mutant(
        "whoever-has-copies-by-now-is-named",
        "P10.6",
        "a bookie that went read-only while it got its copies is named, and may be emptied",
        (
            (
                _ADOPTING,
                "return {info.member: info.placement for info in self.bookies} | self.chosen",
                "return {info.member: info.placement for info in self.bookies}",
            ),
        ),
        (_RULES + "another_that_goes_read_only_while_it_gets_its_copies_is_not_named",),
    ),
    Mutant(
        "a-bookie-that-comes-meanwhile-is-not-asked",
        "P10.5",
        "a bookie of the lost future registers while a ledger is adopted, and what it has is dropped",
        (
            (
                _ADOPTING,
                "        if not fresh or self.phase is AdoptionPhase.ENDED:\n",
                "        if not fresh or self.phase is not AdoptionPhase.FENCING or self.open:\n",
            ),
        ),
        (_RULES + "a_bookie_that_comes_meanwhile_is_asked_too",),
    ),
    Mutant(
        "two-entries-of-one-id-are-chosen-between",
        "I8",
        "of two sound copies that differ the first is taken, and the other dropped",
        (
            (
                _SURVEY,
                "(self.sums[entry_id], self.lengths[entry_id]) != (total, length):",
                "self.sums[entry_id] == 0:",
            ),
        ),
        (_RULES + "different_entries_under_one_id_are_never_chosen_between",),
    ),
    Mutant(
        "a-copy-is-believed-without-its-tag",
        "P3.1",
        "an entry that its writer did not make is adopted with the ledger",
        (
            (
                _SURVEY,
                "        except PeerError:\n            return False\n",
                "        except PeerError:\n            return True\n",
            ),
        ),
        (_RULES + "a_copy_with_a_wrong_tag_is_a_failed_copy",),
    ),
    Mutant(
        "behind-a-loss-a-lost-futures-ledger-is-denied",
        "P7.4 P10.5",
        "a bookie that forgot an entry of a ledger that no listing names denies it",
        (
            (
                "embedbk/core/limbo_entering.py",
                "told is not None and told.is_spared(ledger_id)",
                "told is not None and told.is_spared(-1)",
            ),
        ),
        (_RULES + "a_bookie_that_forgot_the_ledger_does_not_deny_it",),
    ),
    Mutant(
        "behind-a-loss-nothing-is-left-of-a-lost-futures-ledger",
        "P7.4 P10.5",
        "a bookie that forgot all of a ledger that a lost future made says that it never had it",
        ((_LIMBO, "sorted([*singles, *((first", "sorted([*singles, *told.spared, *((first"),),
        (
            _RULES + "a_bookie_that_forgot_the_ledger_does_not_deny_it",
            "tests/rules/test_p7_bookie.py::test_a_ledger_that_is_gone_takes_no_adds_from_who_forgot_it",
        ),
    ),
    Mutant(
        "only-spared-ids-are-forgotten",
        "P10.5",
        "a copy that an operator believes is answered, and its keys stay stale: nothing is proposed for them",
        ((_GOVERNING, "(*catalog.descent.spared, *catalog.descent.stale)", "catalog.descent.spared"),),
        (_REFUSED + "an_operator_believes_a_key_whose_id_is_not_spared",),
    ),
    Mutant(
        "whatever-is-absent-is-adopted",
        "P7.7",
        "a ledger that was deleted for good is adopted while its bookies drop it",
        (
            (
                _CATALOG,
                "        if not is_within(self.descent.spared, ledger_id):\n            text",
                "        if not self.descent.spared and ledger_id < 0:\n            text",
            ),
        ),
        (
            _METADATA + "an_id_that_is_not_spared_is_not_adopted",
            _METADATA + "who_forgets_first_was_first",
        ),
    ),
    Mutant(
        "an-id-is-spared-no-more-though-nothing-was-done",
        "P10.5",
        "a transaction that was refused ends the sparing of an id, and bookies drop its ledger",
        (
            (
                _CATALOG,
                "        result = self._change(session, asked, rules)\n        if isinstance(result, TxnDone):\n",
                "        result = self._change(session, asked, rules)\n        if result is not None:\n",
            ),
        ),
        (_METADATA + "a_full_catalog_spares_on",),
    ),
    Mutant(
        "adopted-by-a-plain-transaction",
        "P10.5",
        "an adopted ledger's id is spared for ever, so that once deleted it is kept by every bookie",
        ((_ASKING, "            if effect.adopts:\n", "            if effect.adopts < 0:\n"),),
        (_SCENES + "a_ledger_that_is_adopted_is_read_like_any_other",),
    ),
    Mutant(
        "only-listed-bookies-are-asked",
        "P10.5",
        "a bookie that is away is not missed, and what it alone has is dropped when it comes back",
        (
            (
                _CLIENT,
                "    for record in await runtime.list_keys(COOKIES_PREFIX, what):\n",
                "    for record in (await runtime.list_keys(COOKIES_PREFIX, what))[:0]:\n",
            ),
        ),
        (
            _SCENES + "who_is_away_is_asked_for_before_anybody_is_fenced",
            _SCENES + "a_cookie_that_cannot_be_read_is_nobodys_no",
        ),
    ),
    Mutant(
        "a-fragment-begins-where-its-first-entry-ends",
        "P2.1 I37",
        "a fragment says that more bytes stand before it than do",
        (
            (
                "embedbk/core/adoption_plan.py",
                "length_before = survey.begins[seats.first] if seats.first else 0",
                "length_before = survey.lengths[seats.first] if seats.first else 0",
            ),
        ),
        (_RULES + "seats_follow_who_has_the_entries",),
    ),
    Mutant(
        "the-key-before-the-last-copy",
        "I6 P5.2d",
        "a ledger is adopted while a bookie that it names lacks entries",
        (
            (
                "embedbk/core/adoption_copying.py",
                "        return bool(self._owed)\n",
                "        return len(self._owed) > 1\n",
            ),
        ),
        (_RULES + "copies_that_lack_are_made_before_the_key",),
    ),
    Mutant(
        "seats-never-change-hands",
        "P2.4",
        "whoever took another's seat is not seen, and all its entries are copied back to that other one",
        (
            (
                _FITTING,
                "missed, since, limits = [0] * size, [0] * size, [MISSED_MAX] * size",
                "missed, since, limits = [0] * size, [0] * size, [1 << 40] * size",
            ),
        ),
        (_RULES + "seats_follow_who_has_the_entries",),
    ),
    Mutant(
        "metadata-of-an-open-ledger-is-put-back",
        "P2.3 P5.2",
        "an older ensemble of an open ledger comes back, and a recovery by it ends the ledger too early",
        ((_RESTORING, "    if not kept.is_closed:\n", "    if not kept.is_closed and is_dry:\n"),),
        (_BACK + "a_closed_ledger_follows_its_open_one_and_no_other",),
    ),
    Mutant(
        "a-later-end-is-no-reason",
        "P5.3",
        "metadata with an earlier end is put back, and what was acknowledged behind it is dropped",
        (
            (
                _RESTORING,
                "        if seat.lac > kept.last_entry:\n",
                "        if seat.lac > kept.last_entry + 9:\n",
            ),
        ),
        (_BACK + "a_bookie_that_knows_a_later_end_refuses",),
    ),
    Mutant(
        "one-bookie-says-where-it-ends",
        "P5.2b",
        "metadata is put back though those that know a later end are away",
        ((_RESTORING, "    if not has_coverage(answered, kept.quorum):\n", "    if not answered:\n"),),
        (_BACK + "too_few_bookies_say_where_it_ends",),
    ),
    Mutant(
        "what-was-kept-is-put-over-what-is-newer",
        "P2.3",
        "a closed ledger gets another end",
        (
            (
                _RESTORING,
                "    decode_changed_metadata(value, known)\n",
                "    decode_changed_metadata(present, known)\n",
            ),
        ),
        (_BACK + "a_closed_ledger_follows_its_open_one_and_no_other",),
    ),
    Mutant(
        "what-was-forgotten-is-put-back",
        "P7.7",
        "a ledger that bookies drop just now is in the metadata again",
        ((_RESTORING, "        elif not is_lost:\n", "        elif not is_lost and is_dry:\n"),),
        (
            _BACK + "a_lost_futures_ledger_comes_back_with_its_seats",
            _BACK + "one_that_was_deleted_is_not_put_back_beside_its_tombstone",
        ),
    ),
    Mutant(
        "a-recovery-that-had-begun-ends-it-by-the-copy",
        "P10.5",
        "a ledger that was in recovery in the copy is closed by what its older ensemble has",
        ((_KEYS, "(LedgerState.OPEN, LedgerState.IN_RECOVERY)", "(LedgerState.OPEN,)"),),
        (_REFUSED + "who_asks_only_whom_the_copy_names_ends_no_ledger",),
    ),
    Mutant(
        "only-the-first-change-is-looked-at",
        "P10.5",
        "a transaction with several changes closes a ledger by what the copy says",
        ((_KEYS, "    for change in asked.then:\n", "    for change in asked.then[:1]:\n"),),
        (_REFUSED + "who_asks_only_whom_the_copy_names_ends_no_ledger",),
    ),
    Mutant(
        "what-was-made-later-is-stale",
        "P10.5",
        "no ledger that is made behind a restore can be recovered",
        (
            (
                _CATALOG,
                "self.descent.stale = [(1, self.next_id)]",
                "self.descent.stale = [(1, self.next_id + gap)]",
            ),
        ),
        (_REFUSED + "ledgers_that_are_made_later_are_not_stale",),
    ),
    Mutant(
        "stale-keys-are-in-no-snapshot",
        "P10.5 I72",
        "a member that starts from a snapshot lets recoveries end ledgers by what the copy says",
        (
            (
                _CATALOG,
                "Lineages(list(self.descent.lineages), list(self.descent.stale))",
                "Lineages(list(self.descent.lineages))",
            ),
        ),
        (_REFUSED + "it_is_part_of_the_state",),
    ),
    Mutant(
        "whole-though-something-is-given-up",
        "P10.5",
        "a lineage that somebody met is given up, and its ledgers end where the copy says",
        ((_CATALOG, "is_whole=command.is_whole and not gives_up_others", "is_whole=command.is_whole"),),
        (_REFUSED + "a_state_that_lacks_nothing_makes_no_key_stale",),
    ),
    Mutant(
        "an-adoption-ends-what-is-stale",
        "P7.7 P10.5",
        "copies that a lost future made are dropped as soon as one ledger beside them is adopted",
        (
            (
                _CATALOG,
                "            return self._change(session, asked, rules)\n        if not is_within(self.descent.spared",
                (
                    "            self.descent.stale = []\n            return self._change(session, asked, rules)\n"
                    "        if not is_within(self.descent.spared"
                ),
            ),
        ),
        (_REFUSED + "an_adopted_key_stays_stale_until_an_operator_believes_it",),
    ),
    Mutant(
        "a-stale-keys-copies-are-collected",
        "P7.7 P10.5",
        "a bookie drops the copy that a lost future moved to it, and the copy's bookies have none",
        (
            (
                "embedbk/core/collector.py",
                "        if is_listed and self.told.is_stale(ledger_id):\n",
                "        if not is_listed and self.told.is_stale(ledger_id):\n",
            ),
        ),
        ("tests/rules/test_p7_dropping.py::test_copies_that_a_stale_key_does_not_name_are_never_collected",),
    ),
    Mutant(
        "behind-a-loss-a-stale-ledger-is-denied",
        "P7.4 P10.5",
        "a bookie that forgot an entry of an ensemble that the copy does not know denies it",
        (
            (
                "embedbk/host/limbo.py",
                "or (is_stale and not metadata.is_closed):",
                "or (is_stale and metadata.is_closed):",
            ),
        ),
        (
            "tests/host/test_limbo_asking.py::test_behind_a_loss_a_ledger_whose_key_is_stale_is_in_limbo_whomever_it_names",
        ),
    ),
    Mutant(
        "a-closed-ledger-ends-again",
        "I2 P10.5",
        "a ledger that was closed before the copy gets entries behind its end",
        ((_ADOPTING, "            self.survey.closed_at = known.last_entry\n", "            pass\n"),),
        (_STALE + "a_ledger_ends_once",),
    ),
    Mutant(
        "what-the-copy-knows-was-acknowledged-may-be-absent",
        "P5.3 P10.5",
        "entries before the copy's last fragment, which nobody has, are behind the end and not lost",
        (
            (
                _ADOPTING,
                "        self.survey.learn_lac(last.first_entry - 1, last.length_before)\n",
                "        self.survey.learn_lac(-1, last.length_before)\n",
            ),
        ),
        (_STALE + "everything_before_the_copys_last_fragment_was_acknowledged",),
    ),
    Mutant(
        "a-stale-key-is-adopted-over-whatever-stands-there",
        "P2.2 P10.5",
        "two operators close one ledger, the later one over the earlier",
        (
            (
                _COMMIT,
                "ABSENT if self._stale_revision is None else self._stale_revision",
                "ABSENT if self._stale_revision is None else ANY",
            ),
            (_COMMIT, "import ABSENT, Compare, Put", "import ABSENT, ANY, Compare, Put"),
        ),
        (_STALE + "who_changed_the_key_meanwhile_was_first",),
    ),
    Mutant(
        "a-key-as-before-was-refused",
        "P2.2",
        "an adoption whose transaction may still land says that it did nothing",
        (
            (
                _COMMIT,
                '        if is_as_before and kind == "read":\n',
                '        if is_as_before and kind == "read" and self._stale_revision is None:\n',
            ),
        ),
        (_STALE + "an_unknown_outcome_is_settled_by_reading",),
    ),
    Mutant(
        "beside-older-metadata-it-says-no",
        "P10.5",
        "a recovery by an older copy of the metadata closes a ledger before what was acknowledged since",
        (
            (
                "embedbk/core/bookie.py",
                "return self.is_settled and not self.is_beside_older",
                "return self.is_settled",
            ),
        ),
        ("tests/rules/test_p10_beside_older.py::test_no_recovery_ends_by_what_older_metadata_says",),
    ),
    Mutant(
        "a-bookie-does-not-hear-that-metadata-is-older",
        "P10.5",
        "the doubt of a bookie makes it read-only, and it denies entries all the same",
        (
            (
                "embedbk/host/witnessing.py",
                "            self._on_older(event.now_ns, bool(self.core.doubt))\n",
                "            pass\n",
            ),
        ),
        ("tests/sim/test_seeds.py::test_full_seeds_that_found_something_stay_clean[70183506]",),
    ),
)
