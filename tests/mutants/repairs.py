"""Marks for repair in the metadata (P11.1; METADATA.md, 11)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_KEYS = "embedbk/metadata/key_space.py"
_COMMANDS = "embedbk/metadata/commands.py"
_RECORDS = "embedbk/metadata/record_table.py"
_REPAIRING = "embedbk/metadata/repairing.py"
_INDEX = "embedbk/metadata/repair_index.py"
_MEMBER = "embedbk/metadata/member.py"
_TESTS = "tests/metadata/test_repairing.py::test_"
_MODEL = "tests/metadata/test_repairs_and_a_model.py::test_"
_OF_A_MEMBER = "tests/metadata/test_repairs_of_a_member.py::test_"
_STOPS = "tests/repair/test_audits.py::test_"

MUTANTS = (
    Mutant(
        "repair-mark-forgets-what-was-missing",
        "P11.1",
        "marking a ledger again replaces what its mark names",
        ((_REPAIRING, "{*known.missing, *missing}", "set(missing)"),),
        (_TESTS + "a_mark_is_merged_and_keeps_when_it_was_made",),
    ),
    Mutant(
        "repair-ended-though-more-is-missing",
        "I74",
        "a mark that changed since it was taken is deleted by whoever worked off the older one",
        ((_REPAIRING, "mark is None or mark.revision == worked_off", "True"),),
        (_TESTS + "a_mark_that_changed_is_only_unlocked",),
    ),
    Mutant(
        "repair-ended-under-an-older-epoch",
        "P9.1",
        "whoever holds a ledger ends and fails it under whatever epoch it names",
        (
            (
                _REPAIRING,
                "(hold.session, hold.revision) == (view.session, epoch)",
                "hold.session == view.session",
            ),
        ),
        (_TESTS + "who_lost_its_hold_ends_and_fails_nothing",),
    ),
    Mutant(
        "repair-ended-for-another",
        "P9.1",
        "who knows an epoch ends the repair of whoever holds it",
        ((_REPAIRING, "(hold.session, hold.revision) == (view.session, epoch)", "hold.revision == epoch"),),
        (_TESTS + "who_lost_its_hold_ends_and_fails_nothing",),
    ),
    Mutant(
        "repair-is-free-behind-a-session",
        "P11.1",
        "what comes free is handed to nobody who waits",
        ((_KEYS, "            self._hand_repairs(revision, changed)\n", "            pass\n"),),
        (_TESTS + "a_hold_ends_with_its_session",),
    ),
    Mutant(
        "repair-handed-to-who-cannot",
        "P11.1",
        "whoever waits first is handed a ledger, whatever it said it cannot repair",
        ((_INDEX, "if has_room and waiter.not_with.isdisjoint(missing):", "if has_room:"),),
        (_TESTS + "who_may_not_repair_a_mark_is_passed_over_and_keeps_its_place",),
    ),
    Mutant(
        "repair-that-failed-is-tried-at-once",
        "METADATA.md",
        "a postponed mark may be taken like any other",
        ((_INDEX, "        if known.is_postponed:\n", "        if False:\n"),),
        (_TESTS + "a_repair_that_failed_waits_twice_as_long_each_time_up_to_five_minutes",),
    ),
    Mutant(
        "repair-waits-as-long-each-time",
        "METADATA.md",
        "a failure is not counted in its mark",
        ((_REPAIRING, "min(known.tries + 1, LEDGER_ID_MAX)", "max(known.tries, 1)"),),
        (_TESTS + "a_repair_that_failed_waits_twice_as_long_each_time_up_to_five_minutes",),
    ),
    Mutant(
        "repair-goes-on-by-an-older-word",
        "METADATA.md",
        "a leader's word lets a mark go on that has failed again since",
        ((_REPAIRING, "record is None or record.revision != revision", "record is None"),),
        (_TESTS + "a_repair_that_failed_waits_twice_as_long_each_time_up_to_five_minutes",),
    ),
    Mutant(
        "repair-index-lost-by-a-restart",
        "I65",
        "a catalog that was read from a snapshot finds no marks, where others do",
        ((_RECORDS, "                self._note_repair(record.key, record)\n", "                pass\n"),),
        (_MODEL + "repairs_come_out_right_whatever_happens",),
    ),
    Mutant(
        "repair-hold-outlives-its-end-in-the-index",
        "P11.1",
        "a hold that goes is not noticed by the index, so its ledger is never given out again",
        ((_RECORDS, "            self._note_repair(key, None)\n", "            pass\n"),),
        (_MODEL + "repairs_come_out_right_whatever_happens",),
    ),
    Mutant(
        "repair-mark-that-comes-alone-is-not-found",
        "P11.1",
        "a mark that a transaction puts is not noticed by the index",
        (
            (
                _RECORDS,
                "        self._note_repair(record.key, record)\n\n    def remove(",
                "\n    def remove(",
            ),
        ),
        (_MODEL + "repairs_come_out_right_whatever_happens",),
    ),
    Mutant(
        "repair-drops-what-later-builds-wrote",
        "P10.8",
        "a mark is written anew without the fields that this build does not know",
        (("embedbk/codec/repair_mark.py", ", *map(msgspec.Raw, mark.rest)]", "]"),),
        (_TESTS + "fields_of_a_later_build_are_kept_by_every_change_of_the_mark",),
    ),
    Mutant(
        "transactions-take-repairs",
        "P11.1",
        "a transaction may put a hold, and so repair what another holds",
        ((_COMMANDS, "level < LEVEL_OF_REPAIRS:", "True:"),),
        (_TESTS + "a_transaction_changes_no_hold_and_no_place",),
    ),
    Mutant(
        "repair-keys-decided-anew-below-their-level",
        "P10.8",
        "a transaction that the build before takes is refused before the level is raised",
        ((_COMMANDS, "level < LEVEL_OF_REPAIRS:", "False:"),),
        (_TESTS + "below_their_level_repairs_are_refused_and_their_keys_are_keys_like_others",),
    ),
    Mutant(
        "repair-answers-without-end",
        "METADATA.md",
        "an answer names all missing bookies, so that kept ones do not fit a piece of a snapshot",
        ((_REPAIRING, "if missing not in sets and size > left:", "if False:"),),
        (_TESTS + "kept_answers_of_one_session_fit_a_piece_of_a_snapshot",),
    ),
    Mutant(
        "repair-goes-on-once",
        "METADATA.md",
        "the leader lets marks go on once, and then none any more",
        (
            (
                _MEMBER,
                "case ResumeRepairs() if proposed is not None:\n                self._timed.repairs_resumed()\n",
                "case ResumeRepairs() if proposed is not None:\n                pass\n",
            ),
        ),
        (_OF_A_MEMBER + "the_leader_lets_a_failed_mark_go_on_and_who_waits_has_it",),
    ),
    Mutant(
        "repair-goes-on-by-the-time-of-an-earlier-leadership",
        "METADATA.md",
        "whoever leads again counts the time since it led before, also for what failed under another",
        (
            (
                "embedbk/metadata/postponing.py",
                "self._samples = [(revision, now_ns)]",
                "self._samples = self._samples or [(revision, now_ns)]",
            ),
        ),
        (_TESTS + "who_leads_again_counts_anew",),
    ),
    Mutant(
        "repair-handed-beyond-room",
        "METADATA.md",
        "a session is handed more than it may have keys",
        ((_INDEX, "min(waiter.count, room_of(waiter.session))", "waiter.count"),),
        (_TESTS + "a_full_session_catalog_or_queue_has_no_room",),
    ),
    Mutant(
        "marks-take-the-whole-reserve",
        "P10.7",
        "a mark for each ledger leaves no room in which ledgers can be closed",
        (
            (
                "embedbk/metadata/room.py",
                "reserve = reserve // 2 if is_reserved else 0",
                "reserve = reserve if is_reserved else 0",
            ),
        ),
        (_TESTS + "a_mark_has_room_in_half_of_the_reserve",),
    ),
    Mutant(
        "no-marks-in-a-full-catalog",
        "P10.7",
        "a mark for repair needs room like any other key",
        (("embedbk/metadata/room.py", "reserve = reserve // 2 if is_reserved else 0", "reserve = 0"),),
        (_TESTS + "a_mark_has_room_in_half_of_the_reserve",),
    ),
    Mutant(
        "gone-incarnations-are-remembered-for-ever",
        "P11.1",
        "behind thousands of bookies that came back empty none is found gone any more",
        (
            (
                "embedbk/repair/away_bookies.py",
                "unnamed = self.gone - self._named\n",
                "unnamed = set[Member]()\n",
            ),
        ),
        (
            "tests/repair/test_auditor.py::test_incarnations_that_no_ledger_names_do_not_use_up_what_is_remembered",
        ),
    ),
    Mutant(
        "stop-of-repair-never-ends",
        "P11.1",
        "repair that was stopped for an hour stays off for ever",
        (
            (
                "embedbk/repair/auditor.py",
                "self._wall_ms(event.now_ns) >= ends_ms:",
                "False:",
            ),
        ),
        (_STOPS + "a_stop_of_repair_ends_by_itself_and_says_who_why_and_until_when",),
    ),
    Mutant(
        "stop-of-repair-ends-at-once",
        "P11.1",
        "copies are made in the middle of the maintenance for which repair was stopped",
        (
            (
                "embedbk/repair/auditor.py",
                "self._wall_ms(event.now_ns) >= ends_ms:",
                "True:",
            ),
        ),
        (_STOPS + "a_stop_of_repair_ends_by_itself_and_says_who_why_and_until_when",),
    ),
    Mutant(
        "an-earlier-time-ends-a-later-stop",
        "P11.1",
        "a stop without an end inherits that of the one before, which was ended by hand",
        (
            (
                "embedbk/client/repair_state.py",
                "until_ms=control.until_ms if stopped is None else until_ms,",
                "until_ms=until_ms or control.until_ms,",
            ),
        ),
        (_STOPS + "a_stop_without_a_time_and_a_start_before_it_are_an_operators",),
    ),
    Mutant(
        "racks-of-the-whole-ensemble",
        "AR06",
        "health praises a striped ledger of which some entries are on one rack alone",
        (
            (
                "embedbk/repair/rack_spread.py",
                "if mask >> seat & 1",
                "if mask",
            ),
        ),
        ("tests/repair/test_rack_spread.py::test_the_fewest_racks_of_any_write_set_count",),
    ),
    Mutant(
        "a-bookie-without-a-place-is-a-rack",
        "AR06",
        "bookies that say nothing of where they are count as one rack more",
        (
            (
                "embedbk/repair/rack_spread.py",
                '0 if "" in where else _of_fragment(where, metadata)',
                "_of_fragment(where, metadata)",
            ),
        ),
        ("tests/repair/test_rack_spread.py::test_the_fewest_racks_of_any_write_set_count",),
    ),
)
