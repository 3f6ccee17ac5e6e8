"""What bookies say that they hold, who is believed, and what is copied to them (P11.4)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_READ = "native/store/store_held.c"
_HOLDING = "embedbk/storage/holding.py"
_BOOKIE = "embedbk/core/bookie.py"
_HOLDINGS = "embedbk/repair/holdings.py"
_OWED = "embedbk/repair/owed.py"
_AUDITOR = "embedbk/repair/auditor.py"
_YOUNG = "embedbk/repair/young_ledgers.py"
_FILL = "embedbk/repair/seat_fill.py"
_REPAIR = "embedbk/repair/ledger_repair.py"
_PLAN = "embedbk/repair/repair_plan.py"
_HEALTH = "embedbk/repair/health.py"
_REQUESTS = "embedbk/host/bookie_requests.py"
_COUNTED = "tests/storage/test_holding.py::test_"
_SAID = "tests/rules/test_p11_holdings.py::test_"
_CHECKED = "tests/repair/test_holdings.py::test_"
_AUDITED = "tests/repair/test_auditor.py::test_"
_FILLED = "tests/repair/test_filling.py::test_"
_SEAT = "tests/repair/test_seat_fill.py::test_"
_OPEN = "embedbk/repair/open_ledger_fill.py"
_MISSED = "embedbk/client/missed_copies.py"
_OPEN_FILLED = "tests/repair/test_open_ledger_fill.py::test_"
_HEALTHY = "tests/repair/test_health.py::test_"
_KEEPERS = "tests/views/test_log_keepers.py::test_"
_LOGS = "tests/views/test_entry_logs.py::test_"

_OTHER_DISK = """            status = Status.WRONG_INCARNATION
        elif self._replies.failure is not None:
            status = Status.UNKNOWN
        asked: tuple[HoldingsRequest | HoldingsRange, ...] = (request, *request.others)
"""
_COUNT = "embedbk/core/held_count.py"
_COUNTING = "embedbk/core/holdings_counting.py"

MUTANTS = (
    Mutant(
        "an-audit-ends-with-the-round-before",
        "P11.1",
        "what an operator waits for was looked at before he asked",
        (
            (
                "embedbk/client/repair_state.py",
                "(note := _note_in(followed)).triggers < triggers:",
                "(note := _note_in(followed)).triggers < triggers - 1:",
            ),
        ),
        ("tests/repair/test_audits.py::test_a_round_that_began_before_counts_for_no_audit",),
    ),
    Mutant(
        "a-grace-for-bookies-alone",
        "P11.1 AR02",
        "a grace that an operator sets does nothing",
        (
            (
                _AUDITOR,
                "        return grace_ms * 1_000_000 or self.options.grace_ns\n",
                "        return self.options.grace_ns\n",
            ),
        ),
        ("tests/repair/test_audits.py::test_the_grace_is_changed_while_the_cluster_runs",),
    ),
    Mutant(
        "a-switch-forgets-the-grace",
        "P11.1 AR02",
        "who stops or starts repair takes back the grace that another operator set",
        (
            (
                "embedbk/client/repair_state.py",
                "control.grace_ms if grace_s is None else int(grace_s * 1000)",
                "int((grace_s or 0) * 1000)",
            ),
        ),
        ("tests/repair/test_audits.py::test_each_word_of_the_switch_stands_for_itself",),
    ),
    Mutant(
        "a-ledger-without-a-log-is-never-filled-up",
        "P8.7",
        "a bookie that was away for a moment lacks entries of an open ledger for as long as it is written",
        (
            (
                "embedbk/client/creating.py",
                "    appending.writing.on_missed = runtime.on_missed\n",
                "",
            ),
        ),
        (_OPEN_FILLED + "who_was_away_gets_what_it_missed_while_the_ledger_is_written_to",),
    ),
    Mutant(
        "only-the-last-fragment-is-filled-up",
        "P8.7",
        "what was acknowledged before a seat was replaced keeps fewer copies",
        (
            (
                _OPEN,
                "            if fragment.first_entry <= lac:\n",
                "            if number == len(self.metadata.fragments) - 1:\n",
            ),
        ),
        (_OPEN_FILLED + "a_bookie_that_was_replaced_gets_what_it_missed_of_its_own_fragment_alone",),
    ),
    Mutant(
        "who-is-away-counts-as-filled-up",
        "P8.7",
        "nobody comes back to a bookie that was away when its copies were due",
        ((_MISSED, "if not outcome.left and self._noticed", "if self._noticed"),),
        (_OPEN_FILLED + "a_bookie_that_stays_away_is_tried_again_ever_more_rarely",),
    ),
    Mutant(
        "what-was-missed-meanwhile-is-forgotten",
        "P8.7",
        "entries that a bookie misses while others are copied to it stay missing",
        ((_MISSED, "not outcome.left and self._noticed.get(writing) == tries + 1", "not outcome.left"),),
        (_OPEN_FILLED + "what_is_missed_while_copies_are_made_is_not_forgotten",),
    ),
    Mutant(
        "a-bookie-that-stays-away-is-asked-for-ever",
        "P8.7",
        "each open ledger asks all of its bookies every ten seconds, for as long as one of them is away",
        ((_MISSED, "        self._noticed[writing] = tries + 1\n", ""),),
        (_OPEN_FILLED + "a_bookie_that_stays_away_is_tried_again_ever_more_rarely",),
    ),
    Mutant(
        "a-read-only-bookie-is-filled-up",
        "P7.8",
        "copies are sent to a bookie that has no room for them",
        ((_OPEN, "if info.is_writable and not info.is_leaving", ""),),
        (_OPEN_FILLED + "who_takes_no_entries_is_left_out_and_named",),
    ),
    Mutant(
        "a-closed-ledger-is-filled-up-by-its-writer",
        "P8.7",
        "a client goes on copying for a ledger that repair looks after, or that is gone",
        (
            (
                _MISSED,
                "            if writing.is_over or writing.error is not None:\n",
                "            if False:\n",
            ),
        ),
        (_OPEN_FILLED + "a_ledger_that_was_closed_or_that_failed_is_left_to_others",),
    ),
    Mutant(
        "entry-logs-are-asked-for-from-the-first-again",
        "L14",
        "each page of a bookie's entry logs is the first one",
        (
            (
                "embedbk/core/entry_logs_query.py",
                "        after = self.id_of(self.rows[-1]) if self.rows else -1\n",
                "        after = -1\n",
            ),
        ),
        (_LOGS + "more_logs_than_one_answer_names_are_asked_for_page_by_page",),
    ),
    Mutant(
        "keepers-of-another-log-are-taken",
        "VIEWS.md",
        "a bookie that answers about another entry log is believed",
        (
            (
                "embedbk/core/entry_logs_query.py",
                "(\n            answer.status == Status.OK and answer.log_id != self.log_id\n        )",
                "False",
            ),
        ),
        (_KEEPERS + "an_answer_that_cannot_be_is_none",),
    ),
    Mutant(
        "keepers-end-with-the-first-page",
        "L14",
        "of very many ledgers that keep a log the first ones are shown as all",
        (
            (
                "embedbk/host/telling.py",
                "rows, len(rows) == LOG_KEEPERS_MAX)",
                "rows, False)",
            ),
        ),
        (_KEEPERS + "a_bookie_tells_so_many_at_once",),
    ),
    Mutant(
        "dropped-ledgers-keep-a-log",
        "VIEWS.md",
        "ledgers that were written into a log are shown, whether something of them still counts or not",
        (
            (
                "native/store/store_keepers.c",
                "        if (keeper.live_entries > 0) keepers[count++] = keeper;\n",
                "        keepers[count++] = keeper;\n",
            ),
        ),
        (_KEEPERS + "keepers_have_what_is_live_in_a_log_and_nothing_else",),
    ),
    Mutant(
        "keepers-of-a-damaged-log-as-they-come",
        "VIEWS.md L14",
        "pages of what keeps a damaged log repeat ledgers, or pass some over",
        (
            (
                "native/store/store_keepers.c",
                "at > 0 && keepers[at - 1].ledger_id > keeper->ledger_id; at--",
                "at > most; at--",
            ),
        ),
        (_KEEPERS + "what_keeps_a_damaged_log_is_told_by_the_whole_index",),
    ),
    Mutant(
        "silent-bookie-has-no-entry-logs",
        "VIEWS.md",
        "a bookie that does not tell its entry logs is left out of the view",
        (
            (
                "embedbk/client/entry_logs.py",
                "            found.append(BookieLogs(each.bookie_id, member, why=str(untold.args[0])))\n",
                "            del untold\n",
            ),
        ),
        (_LOGS + "a_bookie_that_is_away_or_silent_has_a_row_that_says_so",),
    ),
    Mutant(
        "holdings-count-an-entry-once-for-each-log",
        "P11.4",
        "an entry that stands in two logs counts twice, which hides one that lacks",
        (
            (
                _READ,
                "while (ebk_cursor_has(&reading.cursors[i]) && reading.cursors[i].id <= end)",
                "while (false)",
            ),
        ),
        (
            _COUNTED + "an_entry_that_is_stored_twice_is_one",
            _COUNTED + "any_pattern_of_puts_and_logs_is_counted_right",
        ),
    ),
    Mutant(
        "holdings-count-what-was-not-asked-for",
        "P3.7",
        "a block of entries counts whole, whatever residues were asked for",
        (
            (
                _READ,
                "held->count += count_asked(id, end < last ? end : last, modulus, residues);",
                "held->count += (uint64_t)((end < last ? end : last) - id) + 1;",
            ),
        ),
        (_COUNTED + "any_pattern_of_puts_and_logs_is_counted_right",),
    ),
    Mutant(
        "holdings-count-what-is-damaged",
        "P11.4",
        "an entry that the scrubber found bad counts as held",
        ((_HOLDING, "        held.count -= len(bad)\n", ""),),
        (_COUNTED + "what_the_scrubber_found_bad_is_lacking_until_a_good_copy_is_there",),
    ),
    Mutant(
        "holdings-miss-what-was-damaged-once",
        "P11.4",
        "a finding of the scrubber counts for ever, also when a good copy was stored again",
        ((_HOLDING, "if found.frame is None and not found.absent:", "if not found.absent:"),),
        (_COUNTED + "what_the_scrubber_found_bad_is_lacking_until_a_good_copy_is_there",),
    ),
    Mutant(
        "holdings-take-too-much-damage-for-a-count",
        "P11.4",
        "where too much is damaged to be read again, the index is believed",
        (
            (
                _HOLDING,
                "        if high - low >= DAMAGED_MAX:\n            return None\n",
                "        if high - low >= DAMAGED_MAX:\n            continue\n",
            ),
        ),
        (_COUNTED + "too_much_damage_is_no_count",),
    ),
    Mutant(
        "holdings-are-told-before-they-are-durable",
        "I40",
        "what was accepted and is not synced counts as held",
        (
            (
                _COUNTING,
                "Lookup(event.link, event.request_id, request, row.ledger_id, row.last_token)",
                "Lookup(event.link, event.request_id, request, row.ledger_id, 0)",
            ),
        ),
        (_SAID + "what_was_accepted_is_counted_when_it_is_durable_and_not_before",),
    ),
    Mutant(
        "holdings-that-cannot-be-told-are-none",
        "P7.1",
        "a bookie that cannot count says that it holds nothing",
        (
            (
                _COUNTING,
                "part = HeldRange(Status.UNKNOWN, look.ledger_id)",
                "part = HeldRange(Status.OK, look.ledger_id)",
            ),
        ),
        (_SAID + "a_count_that_cannot_be_told_is_unknown",),
    ),
    Mutant(
        "holdings-of-another-disk-are-told",
        "P7.2",
        "a bookie counts for an incarnation that it is not",
        (
            (
                _COUNTING,
                _OTHER_DISK,
                _OTHER_DISK.replace("WRONG_INCARNATION", "NO_SUCH_LEDGER"),
            ),
        ),
        (_SAID + "another_disk_and_an_unknown_ledger_are_told",),
    ),
    Mutant(
        "audit-takes-cannot-tell-for-no",
        "P11.4",
        "a bookie that cannot tell counts as one that holds nothing",
        (
            (
                _OWED,
                "        raise PeerError(Status(answer.status).name)\n",
                "        return 0, [(owed.first, owed.last)]\n",
            ),
        ),
        (_CHECKED + "an_answer_that_says_nothing_is_neither_yes_nor_no",),
    ),
    Mutant(
        "audit-believes-impossible-counts",
        "P2.5",
        "a count above what was asked for, or that its ranges contradict, is believed",
        (
            (
                _OWED,
                "if answer.count > owed.entries or (answer.count < owed.entries) != bool(named):",
                "if False:",
            ),
        ),
        (_CHECKED + "an_answer_that_says_nothing_is_neither_yes_nor_no",),
    ),
    Mutant(
        "audit-asks-a-bookie-for-all-stripes",
        "P3.7",
        "a seat of a striped ledger owes every entry",
        (
            (
                _OWED,
                "    if size == quorum.write_quorum:\n        return 1, 1\n",
                "    if size:\n        return 1, 1\n",
            ),
        ),
        (
            _CHECKED + "a_bookie_owes_the_entries_of_its_write_sets_and_no_others",
            _FILLED + "a_seat_of_a_striped_ledger_gets_its_part",
        ),
    ),
    Mutant(
        "audit-waits-for-a-silent-bookie-each-time",
        "P11.4",
        "who left one question unanswered is asked the next one",
        ((_HOLDINGS, "        self.silent[member] = why\n", ""),),
        (_CHECKED + "who_is_silent_or_cannot_be_reached_is_asked_nothing_more_and_did_not_say",),
    ),
    Mutant(
        "holdings-of-several-wait-for-one-record",
        "P11.4, I40",
        "the answer for several ranges leaves when what was accepted of the first is durable",
        (
            (
                _COUNT,
                "self.wait_token = max(self.wait_token, wait_token)",
                "self.wait_token = self.wait_token or wait_token",
            ),
        ),
        (_SAID + "an_answer_for_several_ledgers_waits_for_all_of_them",),
    ),
    Mutant(
        "holdings-of-several-in-another-order",
        "P11.4",
        "what is held of one range is told of another",
        ((_COUNT, "self.parts[place] = part", "self.parts[self.left - 1] = part"),),
        (_SAID + "several_are_answered_in_the_order_of_the_question",),
    ),
    Mutant(
        "holdings-of-several-are-bounded-one-by-one",
        "P11.4",
        "a question of many ranges lets a bookie count 128 times as many ids as one may span",
        ((_COUNT, "ids += max(span, 0)", "ids = max(span, 0)"),),
        (_SAID + "several_ranges_that_are_none_or_too_wide_are_refused",),
    ),
    Mutant(
        "holdings-read-the-bytes-of-many-ranges",
        "P11.4",
        "one question lets a bookie read the bytes of 128 ranges",
        ((_COUNT, "if len(asked) > 1 and request.wants == Digests.BY_BYTES:", "if False:"),),
        (_SAID + "several_ranges_that_are_none_or_too_wide_are_refused",),
    ),
    Mutant(
        "holdings-of-several-fail-as-held",
        "P7.6",
        "behind a failed sync the further ranges of a question count as not held, which is no answer",
        (
            (
                "embedbk/core/pending_replies.py",
                "others = [HeldRange(Status.UNKNOWN, each.ledger_id) for each in control.others]",
                "others = control.others",
            ),
        ),
        (_SAID + "an_answer_for_several_ledgers_waits_for_all_of_them",),
    ),
    Mutant(
        "audit-forgets-what-a-build-before-did-not-answer",
        "P10.8",
        "a bookie that answers the first of several questions alone counts as one that was asked all",
        (
            (
                _HOLDINGS,
                "self._questions = itertools.chain(questions[len(told) :], self._questions)",
                "[self._settle(each) for each in questions[len(told) :]]",
            ),
        ),
        (_CHECKED + "a_bookie_of_a_build_before_is_asked_one_by_one",),
    ),
    Mutant(
        "audit-asks-a-build-before-together-for-ever",
        "P10.8",
        "each message to a bookie of a build before asks all that is left again, and one of it is answered",
        ((_HOLDINGS, "                self._one_by_one.add(event.member)\n", ""),),
        (_CHECKED + "a_bookie_of_a_build_before_is_asked_one_by_one",),
    ),
    Mutant(
        "audit-gives-up-one-question-of-a-silent-message",
        "P11.4",
        "of several questions that got no answer one is unknown, and the others count as answered",
        (
            (
                _HOLDINGS,
                "        for question in questions:\n            self._note",
                "        for question in questions[:1]:\n            self._note",
            ),
        ),
        (_CHECKED + "what_is_asked_together_is_unknown_together",),
    ),
    Mutant(
        "audit-takes-who-is-away-for-whole",
        "P11.4",
        "a bookie that is not there counts as one that has everything",
        (
            (
                _HOLDINGS,
                "        if why:\n            self._note_untold(question, why)\n",
                "        if why:\n",
            ),
        ),
        (
            _CHECKED + "who_is_not_there_did_not_say",
            _FILLED + "who_was_away_when_it_was_closed_is_asked_when_it_is_back",
        ),
    ),
    Mutant(
        "auditor-asks-who-did-not-say-in-an-hour",
        "P11.4",
        "a ledger of which a bookie did not say what it holds waits for the next round",
        (
            (
                _AUDITOR,
                "            self.young.meet(ledger_id, now_ns, is_closed=True)\n",
                "            pass\n",
            ),
        ),
        (_AUDITED + "who_does_not_say_is_not_marked_and_is_asked_again",),
    ),
    Mutant(
        "auditor-asks-before-copies-have-arrived",
        "P11.4",
        "a ledger is asked about in the moment in which it is seen as closed",
        ((_YOUNG, "if metadata.is_closed and closed_ns != _OPEN:", "if metadata.is_closed:"),),
        (_AUDITED + "a_ledger_that_was_closed_lately_is_asked_about_soon",),
    ),
    Mutant(
        "auditor-asks-without-bound",
        "P11.4",
        "questions to bookies are not counted by the pace of a round",
        (
            (
                _AUDITOR,
                "self.spent_ns = found.questions * _SECOND // self.options.questions_per_s",
                "self.spent_ns = 0",
            ),
        ),
        (_AUDITED + "questions_are_bounded_per_second",),
    ),
    Mutant(
        "auditor-takes-its-time-when-asked",
        "P11.1",
        "a round that an operator asks for is as slow as any other",
        (
            (
                _AUDITOR,
                "is_bounded = self.is_round and not self.is_asked_for",
                "is_bounded = self.is_round",
            ),
            (_AUDITOR, "spent_ns = 0 if self.is_asked_for else self.spent_ns", "spent_ns = self.spent_ns"),
        ),
        (_AUDITED + "a_round_that_an_operator_asks_for_waits_for_answers_alone",),
    ),
    Mutant(
        "fill-copies-more-than-lacks",
        "P11.4",
        "a bookie that lacks one entry gets all behind it",
        (
            (
                _FILL,
                "            self._range,\n",
                "            (self._range[0], self.metadata.last_entry or 0),\n",
            ),
        ),
        (_FILLED + "what_a_bookie_lacks_is_copied_to_it_and_nothing_else",),
    ),
    Mutant(
        "fill-is-done-with-the-first-ranges",
        "P11.4",
        "the bookie is not asked again behind the copies",
        (
            (
                _FILL,
                "        if not self._lacking:\n            return self._ask(now_ns)\n",
                "        if not self._lacking:\n            return self._next_part(now_ns)\n",
            ),
        ),
        (_FILLED + "many_gaps_are_filled_round_by_round",),
    ),
    Mutant(
        "fill-copies-for-ever",
        "L14",
        "who acknowledges copies and does not count them gets them again and again",
        ((_FILL, "        if count <= self._held:\n", "        if count < 0:\n"),),
        (_SEAT + "who_acknowledges_copies_and_does_not_have_them_is_not_asked_for_ever",),
    ),
    Mutant(
        "fill-believes-late-answers",
        "P3.8",
        "an answer to an earlier question counts for this one",
        ((_FILL, 'event.tag == ("held", self.numbers)', 'event.tag[0] == "held"'),),
        (_SEAT + "no_answer_in_time_cannot_be_told_and_a_late_one_counts_for_nothing",),
    ),
    Mutant(
        "repair-ends-a-mark-that-nobody-could-look-into",
        "P11.4",
        "a bookie that does not say what it lacks counts as whole",
        ((_REPAIR, 'if result.kind in ("cannot tell", "target failed"):', "if False:"),),
        (_FILLED + "marks_of_a_bookie_that_does_not_say_are_tried_again",),
    ),
    Mutant(
        "repair-passes-by-who-is-there",
        "P11.4",
        "a bookie that the mark names and that is there is not asked what it lacks",
        ((_PLAN, "if not metadata.is_closed:\n            return None\n", "return None\n"),),
        (
            _FILLED + "what_a_bookie_lacks_is_copied_to_it_and_nothing_else",
            "tests/testing/test_healers.py::test_a_copy_that_was_lost_on_the_way_is_there_when_faults_have_stopped",
        ),
    ),
    Mutant(
        "health-calls-untold-good",
        "P11.4",
        "what a bookie did not say counts as well",
        (
            (
                _HEALTH,
                "if not short and not silent and not differing and not strange:",
                "if not short and not differing and not strange:",
            ),
        ),
        (_HEALTHY + "where_a_bookie_does_not_say_nothing_is_good",),
    ),
    Mutant(
        "holdings-are-asked-of-older-builds",
        "P10.8",
        "a question that builds before do not know is sent to them",
        (
            (
                _REQUESTS,
                "    HoldingsRequest: LEVEL_OF_HOLDINGS,\n",
                "",
            ),
        ),
        (_FILLED + "below_its_level_nobody_is_asked_and_repair_is_as_before",),
    ),
    Mutant(
        "repair-fills-who-is-read-only",
        "P7.8",
        "what a bookie has left for fences is filled with copies",
        ((_PLAN, "if member in writable:", "if True:"),),
        (_FILLED + "a_bookie_that_is_read_only_gets_nothing_until_it_is_writable",),
    ),
    Mutant(
        "who-does-not-say-keeps-others-from-being-filled",
        "P11.2",
        "a repair ends at the first seat that cannot be told about",
        (
            (
                _REPAIR,
                (
                    "            self.plan.put_off_fill(self.filling, result.why)\n"
                    "            return self._next_fragment(now_ns)\n"
                ),
                "            return self._postpone(result.why)\n",
            ),
        ),
        (_FILLED + "a_bookie_that_does_not_say_keeps_no_other_from_being_filled",),
    ),
    Mutant(
        "given-up-ledgers-are-not-looked-into",
        "P11.4 AR10",
        "where one seat cannot be taken, nobody finds what other bookies lack",
        (
            (
                "embedbk/repair/standing_marks.py",
                "return Judged(set(), named | {*record.missing})",
                "return Judged(set())",
            ),
        ),
        (
            _FILLED + "what_a_bookie_lacks_is_copied_though_nobody_can_take_another_seat",
            _AUDITED + "what_others_lack_is_found_beside_a_mark_and_beside_what_nobody_can_repair",
        ),
    ),
    Mutant(
        "what-is-named-is-marked-again",
        "AR10",
        "what a mark or a record names is marked in each round",
        (
            (
                "embedbk/repair/copies_look.py",
                "if unnamed := bookies.keys() - named[ledger_id]:",
                "if unnamed := bookies.keys():",
            ),
        ),
        (_AUDITED + "what_others_lack_is_found_beside_a_mark_and_beside_what_nobody_can_repair",),
    ),
    Mutant(
        "judged-of-metadata-that-was-not-looked-at",
        "AR10",
        "a repair that found no good copy says so of metadata that others changed since",
        (
            (
                _REPAIR,
                "        if not self.held.is_known(event.value):\n",
                "        if event.value is None:\n",
            ),
        ),
        ("tests/repair/test_ledger_repair.py::test_what_was_judged_of_other_metadata_is_judged_again",),
    ),
    Mutant(
        "judged-under-what-came-later",
        "AR10",
        "a repair that found nobody says that it judged with those who came since",
        ((_PLAN, "if any(each.under != self._bookies.found_under for each in self.stopped):", "if False:"),),
        ("tests/repair/test_ledger_repair.py::test_what_was_judged_before_somebody_came_is_judged_again",),
    ),
)
