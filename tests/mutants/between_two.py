"""Mutants between two sides: what Python and C keep together, and two rare events in either order."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "a-collector-does-not-see-adds-in-c",
        "P7.7 I35",
        (
            "an add that is taken in C leaves no trace for a collector: the ledger is "
            "dropped for what metadata said before it"
        ),
        (("native/road/add_path.c", "    row->last_token = (uint64_t)token;\n", ""),),
        ("tests/host/test_add_path.py::test_the_same_requests_have_the_same_answers",),
    ),
    Mutant(
        "rows-of-adds-in-c-are-not-written-again",
        "P3.4b P7.5",
        (
            "what an add in C changed of a ledger's row stands in the journal only, "
            "and goes when that is trimmed"
        ),
        (("native/road/add_path.c", "    ebk_table_mark_dirty(settings->table, row);\n", ""),),
        ("tests/host/test_add_path.py::test_the_same_requests_have_the_same_answers",),
    ),
    Mutant(
        "adds-in-c-of-a-disk-before",
        "P7.2 P3.8",
        "an add that was meant for the disk before is taken in C",
        (
            (
                "native/road/add_path.c",
                "    ebk_read_incarnation(control, path->settings.incarnation);\n",
                "    (void)ebk_read_bytes(control, EBK_INCARNATION_BYTES);\n",
            ),
        ),
        ("tests/host/test_add_path.py::test_the_same_requests_have_the_same_answers",),
    ),
    Mutant(
        "a-poll-is-told-another-ledgers-lac",
        "P6.2 I11",
        (
            "where readers of two ledgers are woken in one turn, the one before is "
            "answered with the LAC of the one behind"
        ),
        (
            (
                "native/road/tail_path.c",
                ("    if (count > 0) (void)ebk_parked_at(tail->settings.parked, last, &first);\n"),
                "    (void)last;\n",
            ),
        ),
        (
            "tests/host/test_tail_path.py::test_each_ledgers_readers_are_told_its_own_lac_where_one_turn_wakes_both",
        ),
    ),
    Mutant(
        "lacs-use-up-the-queue",
        "P7.8 RP33",
        ("a message of many LACs is taken in C when the journal has room for one: fences wait behind it"),
        (
            (
                "native/road/lac_path.c",
                "!ebk_journals_has_room(terms->journals, terms->slots_kept + count)",
                "!ebk_journals_has_room(terms->journals, 1)",
            ),
        ),
        ("tests/host/test_lac_path.py::test_lacs_leave_a_part_of_the_journal_to_fences",),
    ),
    Mutant(
        "slow-is-silent-over-links",
        "P4.5 P4.7",
        (
            "at the bound of what is kept, a seat that answers one frame after the "
            "other is as silent as its oldest one is old"
        ),
        (
            (
                "native/road/link_adds.c",
                (
                    "        silent_ns[seat] = sent_ns > adds->heard_ns[seat] ? sent_ns : "
                    "adds->heard_ns[seat];\n"
                ),
                "        silent_ns[seat] = sent_ns;\n",
            ),
        ),
        ("tests/transports/test_link_adds.py::test_who_answers_slowly_at_the_bound_is_not_silent",),
    ),
    Mutant(
        "others-backlog-stops-who-owes-nothing",
        "RP33 P4.5",
        (
            "what the process keeps for others' slow bookies stops also a writer over "
            "links whose bookies are all there"
        ),
        (
            (
                "native/road/in_flight.c",
                "    return table->state.behind_bytes > 0 && backlog != NULL &&",
                "    return backlog != NULL &&",
            ),
        ),
        ("tests/transports/test_link_adds.py::test_what_others_keep_stops_nobody_who_keeps_nothing",),
    ),
    Mutant(
        "needed-seats-are-failed-over-links",
        "P4.5 P4.6",
        (
            "at the bound every silent seat is failed over links, also those without "
            "which there is no ack quorum"
        ),
        (
            (
                "embedbk/host/link_adds.py",
                (
                    "        found = found[: core.quorum.write_quorum - "
                    "core.quorum.ack_quorum]  # Whom it can go on without.\n"
                ),
                "",
            ),
        ),
        ("tests/host/test_link_adds.py::test_at_the_bound_only_who_is_not_needed_is_gone_on_without",),
    ),
    Mutant(
        "closed-bookies-are-added-to-nearby",
        "P7.8 P7.4",
        ("a writer on the bookies' loop goes on storing where the core takes no normal adds any more"),
        (
            ("native/road/seat.c", "if (!ebk_near_is_open(near)) return EBK_SEAT_GONE;", ""),
            (
                "native/road/link_adds.c",
                "        if (near != NULL && !ebk_near_is_open(near)) adds->is_ending = true;",
                "        (void)near;",
            ),
        ),
        ("tests/host/test_local_adds.py::test_a_bookie_that_is_read_only_stores_nothing",),
    ),
    Mutant(
        "a-dropped-ledger-is-back-after-a-start",
        "P7.3 P3.4a",
        ("an older state of a ledger outlives the newer one that says that it was dropped"),
        (
            (
                "native/store/table_states.c",
                "            if (row != NULL) ebk_table_remove_row(table, row);\n",
                "            (void)row;\n",
            ),
        ),
        ("tests/storage/test_ledger_table.py::test_both_twins_keep_the_same_ranges",),
    ),
    Mutant(
        "a-loss-is-noted-away",
        "P7.9 P7.4",
        (
            "a journal that has less than it was used for notes what it has: the start "
            "behind this one knows of no loss"
        ),
        (
            (
                "native/journal/journal_used.c",
                ("    if (!is_blank || journal->opened_token + 1 < used.first_token) return EBK_OK;\n"),
                "    if (!is_blank) return EBK_OK;\n",
            ),
        ),
        ("tests/storage/test_less_than_used.py::test_the_file_before_a_blank_one_is_missed",),
    ),
    Mutant(
        "a-drop-ends-after-the-ledger-came-back",
        "P7.3 P7.7",
        ("a ledger that a recovery brought back while its drop became durable loses the entries that came"),
        (
            (
                "embedbk/core/drops.py",
                ("            if row is not None and row.is_dropped:\n                row.last_entry"),
                ("            if row is not None:\n                row.last_entry"),
            ),
        ),
        ("tests/rules/test_p7_dropping.py::test_recovery_brings_a_dropped_ledger_back",),
    ),
    Mutant(
        "last-entry-of-before-the-drop",
        "P7.1 P7.3",
        "a ledger that came back shows the last entry of what was dropped, and a check misses it",
        (
            (
                "embedbk/core/drops.py",
                "                row.last_entry = NO_ENTRY",
                "                row.last_entry = row.last_entry",
            ),
        ),
        (
            "tests/rules/test_p7_dropping.py::test_the_last_entry_of_a_ledger_that_came_back_is_among_what_came",
        ),
    ),
    Mutant(
        "last-entry-only-rises-in-c",
        "P7.1 P7.3",
        "of several states of a ledger that came back the highest last entry counts, as before the drop",
        (
            (
                "native/store/table_states.c",
                "    row->last_entry = last;",
                "    if (last > row->last_entry) row->last_entry = last;",
            ),
        ),
        ("tests/storage/test_ledger_table.py::test_loading_never_lifts_a_fence_nor_lowers_the_lac_pair",),
    ),
    Mutant(
        "dropped-under-its-answers",
        "P7.7 I34 I40",
        "a ledger is dropped while answers wait that acknowledge what goes with it",
        (
            (
                "embedbk/core/drops.py",
                (
                    "        if token > self._replies.durable:\n"
                    "            return []  # Answers wait for it: they would acknowledge what "
                    "was dropped meanwhile (I34, I40).\n"
                ),
                "",
            ),
        ),
        ("tests/rules/test_p7_dropping.py::test_an_add_whose_answer_waits_for_the_disk_keeps_the_ledger",),
    ),
    Mutant(
        "dropped-under-a-look",
        "P7.7 P3.4b",
        "a ledger is dropped while an add of it is compared with what is held",
        (
            (
                "embedbk/core/drops.py",
                (
                    "        if self._looks.has_add(row.ledger_id):\n"
                    "            return []  # An add that looks what is held: what it finds "
                    "must still be there when it is acknowledged.\n"
                ),
                "",
            ),
        ),
        ("tests/rules/test_p7_dropping.py::test_an_add_that_looks_keeps_the_ledger",),
    ),
    Mutant(
        "an-older-outcome-settles-a-change",
        "P2.2 P4.3",
        (
            "the outcome of a compare-and-set that was sent again is taken for that of "
            "the one that is in flight"
        ),
        (
            (
                "embedbk/core/publishing.py",
                "        return self.proposed is not None and event.tag[1] == self.number\n",
                "        return self.proposed is not None\n",
            ),
        ),
        (
            "tests/rules/test_p4_crossing_changes.py::test_an_outcome_that_comes_late_says_nothing_of_the_change_behind_it",
        ),
    ),
    Mutant(
        "closed-beside-a-change",
        "P5.1 P4.2",
        ("a writer that has nothing outstanding closes beside its own change that is in flight"),
        (
            (
                "embedbk/core/writer.py",
                (
                    "        if self.in_flight.pending_count or changes.proposal is not None or "
                    "changes.proposed is not None:\n"
                    "            return []\n"
                ),
                ("        if self.in_flight.pending_count:\n            return []\n"),
            ),
        ),
        ("tests/rules/test_p4_ensemble_change.py::test_a_close_does_not_wait_for_one_more_change",),
    ),
    Mutant(
        "shown-before-it-is-of-one-revision",
        "P10.1 I82",
        (
            "a watch is shown with its last page, although pages are of different "
            "revisions and the stream is not there yet"
        ),
        (
            (
                "embedbk/metadata/following.py",
                "self.listing is not None or self.revision < self.whole_at or (",
                "self.listing is not None or (",
            ),
        ),
        ("tests/metadata/test_client.py::test_a_list_of_many_pages_shows_no_mixture",),
    ),
    Mutant(
        "the-oldest-of-a-folder-takes-others-along",
        "P10.1 I82",
        (
            "where one transaction changed two folders, the change of the quiet one "
            "goes with that of the other"
        ),
        (
            (
                "embedbk/metadata/history.py",
                (
                    "        if rest:\n"
                    "            self._changes[revision] = rest\n"
                    "        else:\n"
                    "            del self._changes[revision]\n"
                ),
                (
                    "        assert len(rest) <= len(self._changes[revision])\n"
                    "        del self._changes[revision]\n"
                ),
            ),
        ),
        ("tests/metadata/test_history.py::test_a_part_is_whole_or_said_to_be_gone",),
    ),
    Mutant(
        "what-was-run-is-never-heard-again",
        "I74 P10.1",
        (
            "a request that was run once is passed over when it comes again: its "
            "client, whose answer was lost, waits for ever"
        ),
        (
            (
                "embedbk/metadata/intake.py",
                (
                    "            self._waiting.discard((link, event.request.session, "
                    "event.request.sequence))\n"
                ),
                "            pass\n",
            ),
        ),
        ("tests/metadata/test_intake.py::test_what_is_asked_again_while_it_waits_waits_once",),
    ),
)
