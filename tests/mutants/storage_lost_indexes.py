"""Lost indexes that are made again while the bookie serves (ST38)."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_HOLES, _REBUILD = "native/store/store_holes.c", "native/store/store_rebuild.c"
_INDEX, _SCAN = "native/store/store_index.c", "native/store/store_scan.c"
_ORDER = "tests/storage/test_compaction_order.py::test_"
_LOST = "tests/storage/test_lost_indexes.py::test_"
_PACE = "tests/host/test_rebuild_pace.py::test_"

_LISTED = _PACE + "the_list_of_bookies_says_how_many_logs_hide_something"

MUTANTS = (
    Mutant(
        "a-log-that-is-whole-again-hides-something",
        "ST38",
        "the list of bookies counts logs of which everything was found",
        (
            (
                "embedbk/host/rebuild_pace.py",
                "return self.left.logs - self.whole_logs",
                "return self.left.logs",
            ),
        ),
        (_LISTED,),
    ),
    Mutant(
        "dark-logs-are-counted-once",
        "ST38",
        "the list of bookies says how many logs hid something at the start, for ever",
        (
            (
                "embedbk/host/registering.py",
                " or self._dark_logs() != self._told_dark",
                "",
            ),
        ),
        (_LISTED,),
    ),
    Mutant(
        "what-is-looked-for-is-absent",
        "P7.1 I31 ST38",
        "a start leaves no hole where an index is lost, and what stands there is absent until it is found",
        (
            (
                "native/store/store_load.c",
                "            if (ebk_store_add_hole(store, &hole) < 0) return EBK_NO_MEMORY;\n",
                "            if (joined == 0 && ebk_store_add_hole(store, &hole) < 0) return EBK_NO_MEMORY;\n",
            ),
        ),
        (_LOST + "runs_around_a_hole_are_told_meanwhile",),
    ),
    Mutant(
        "found-late-is-newest",
        "P3.4 ST38",
        "what is found of an old log stands above the copies of newer ones",
        (
            (
                _INDEX,
                "    if (one_id != other_id) return one_id < other_id ? -1 : 1;\n",
                "    if (one_id != other_id) return one_id < other_id ? 1 : -1;\n",
            ),
        ),
        (
            _LOST + "the_newest_copy_wins_in_whatever_order_it_is_found",
            _LOST + "no_order_of_logs_losses_and_puts_gives_another_copy",
        ),
    ),
    Mutant(
        "found-late-is-merged-over-others",
        "P7.1 ST38",
        "runs that overlap others are put into their chain, where a search passes over some",
        (
            (
                _INDEX,
                "        if (at < chain->count && chain->runs[at].first <= runs[i].last) return false;\n",
                "        if (at > chain->count) return false;\n",
            ),
        ),
        (
            _LOST + "the_newest_copy_wins_in_whatever_order_it_is_found",
            _LOST + "no_order_of_logs_losses_and_puts_gives_another_copy",
        ),
    ),
    Mutant(
        "dropped-ledger-is-found-again",
        "P7.3 ST38",
        "entries of a ledger that was dropped while its log was looked through come back",
        (
            (
                _REBUILD,
                "    if (table == NULL || !ebk_table_is_dropped(table, ledger_id)) {\n",
                "    if (run_count > 0) {\n",
            ),
        ),
        (_LOST + "a_ledger_that_is_dropped_meanwhile_stays_out",),
    ),
    Mutant(
        "hole-that-is-not-filled-ends",
        "P7.1 I31 ST38",
        "a log of which one entry is damaged counts as whole once it was looked through",
        (
            (
                _REBUILD,
                "    rescue->is_whole = rescue->is_filled && rescue->entries == descriptor->entry_count;\n",
                "    rescue->is_whole = rescue->entries <= descriptor->entry_count;\n",
            ),
        ),
        (_LOST + "a_log_that_keeps_something_dark_stays_as_it_is",),
    ),
    Mutant(
        "number-of-entries-is-not-looked-at",
        "P7.1 I31 ST38",
        "a hole that a misdirected entry fills in order counts as whole, with an entry less",
        (
            (
                _REBUILD,
                "rescue->is_filled && rescue->entries == descriptor->entry_count;\n",
                "rescue->is_filled;\n",
            ),
        ),
        (_LOST + "one_large_entry_in_the_place_of_two_is_noticed",),
    ),
    Mutant(
        "order-of-what-fills-a-hole-is-not-looked-at",
        "P7.1 I31 ST38",
        "a valid entry of elsewhere over another one of the same size, and the log counts as whole",
        ((_SCAN, "scan->good == scan->hole.end && scan->is_ordered;", "scan->good == scan->hole.end;"),),
        (
            "tests/storage/test_entry_log_damage.py::test_a_misdirected_entry_hides_nothing_when_the_index_is_lost",
        ),
    ),
    Mutant(
        "tail-need-not-reach-the-end",
        "P7.1 I7 ST38",
        "entries behind damage are believed wherever they end, also those inside a payload",
        (
            (
                _SCAN,
                "    if (size == 0) {\n        scan->at += 1;\n        scan->tail = scan->hole.end;\n        if (scan->entries > 0) forget_found(scan);\n",
                "    if (size == 0) {\n        scan->at += 1;\n",
            ),
        ),
        ("tests/storage/test_entry_log_damage.py::test_entries_inside_a_payload_are_not_taken_for_entries",),
    ),
    Mutant(
        "older-logs-are-copied-beneath-the-dark",
        "P3.4 ST38",
        "a log older than one that is still looked through is copied, and its old copies win at the next start",
        (
            (
                "native/store/store_copy.c",
                "log->leaves_with != 0 || ebk_store_is_held_back(store, log_ids[i]) ||",
                "log->leaves_with != 0 ||",
            ),
        ),
        (_LOST + "a_log_beneath_one_that_is_looked_through_is_not_copied",),
    ),
    Mutant(
        "compactor-asks-for-what-is-held-back",
        "ST38",
        "the compactor chooses logs that storage refuses, and fails with each look",
        (("embedbk/core/compactor.py", "            and not log.is_held_back\n", ""),),
        (
            "tests/storage/test_compaction.py::test_the_compactor_takes_rescued_logs_first_and_none_that_is_held_back",
        ),
    ),
    Mutant(
        "rescued-log-waits-for-its-share",
        "ST38",
        "a log of which everything lives is never written anew, and each start looks it through",
        (
            (
                "embedbk/core/compactor.py",
                "and (log.is_rescued or not log.live_bytes",
                "and (not log.live_bytes",
            ),
        ),
        (
            "tests/storage/test_compaction.py::test_the_compactor_takes_rescued_logs_first_and_none_that_is_held_back",
        ),
    ),
    Mutant(
        "what-is-in-the-dark-is-told-as-lacking",
        "P11.4 P7.1 ST38",
        "a bookie says that it lacks what it has not found yet, and repair copies all of it",
        (
            (
                "embedbk/storage/bookie_storage.py",
                "        if self._open_lost().may_find(ledger_id, first, last):\n            return None",
                "        if self._store is None:\n            return None",
            ),
        ),
        (_LOST + "what_cannot_be_told_yet_is_no_lack",),
    ),
    Mutant(
        "block-in-the-dark-has-a-number",
        "P11.4 ST38",
        "the number of a block is the same before and behind the search, though what the bookie says is not",
        (
            (
                "embedbk/storage/holding.py",
                "                _has_chosen(low, high, first, mask) for low, high in unsure\n",
                "                _has_chosen(low, high, first, mask) for low, high in unsure[:0]\n",
            ),
        ),
        (_LOST + "what_cannot_be_told_yet_is_no_lack", _LOST + "runs_around_a_hole_are_told_meanwhile"),
    ),
    Mutant(
        "failing-read-costs-the-whole-window",
        "P7.1 ST38",
        "where one read fails, a MiB of whole entries stays in the dark",
        (
            (
                _SCAN,
                "        ebk_log_read_blocks(&source, scan->window + kept, end - from, from);\n",
                "        memset(scan->window + kept, 0, end - from);\n",
            ),
        ),
        (_LOST + "one_read_that_fails_is_made_again_block_by_block",),
    ),
    Mutant(
        "refused-descriptor-is-damage",
        "P7.1 ST38",
        "a process without descriptors for a moment leaves a whole log in the dark until its next start",
        ((_SCAN, "if (ebk_is_want(-error)) {", "if (false) {"),),
        (_LOST + "a_descriptor_that_is_refused_is_asked_for_later",),
    ),
    Mutant(
        "all-that-was-found-is-taken-in-at-once",
        "ST38",
        "the loop's thread puts every run of a slice into the index before it looks at requests again",
        (
            (
                _REBUILD,
                "scan->taken < found->size && count < RUNS_PER_POLL) {",
                "scan->taken < found->size) {\n        count = 0;",
            ),
        ),
        (_LOST + "what_is_found_is_taken_in_a_part_at_a_time",),
    ),
    Mutant(
        "sums-do-not-bound-a-slice",
        "ST38",
        "one slice over bytes that look like entries sums a MiB for each of them",
        (
            (
                _SCAN,
                "scan->bytes_summed >= SUMMED_PER_BYTE * scan->slice_bytes + EBK_SCAN_ENTRY_BYTES_MAX ||",
                "scan->bytes_summed == UINT64_MAX ||",
            ),
        ),
        (_LOST + "damage_that_looks_like_entries_ends_a_slice_early",),
    ),
    Mutant(
        "no-pause-between-slices",
        "ST38",
        "the search takes all of the device's rate from clients",
        (
            (
                "embedbk/host/rebuild_pace.py",
                "        self._due_ns = max(now_ns, self._began_ns + pause_ns)\n",
                "        self._due_ns = max(now_ns, self._began_ns + pause_ns * 0)\n",
            ),
        ),
        (_PACE + "no_more_is_looked_through_than_the_rate_allows",),
    ),
    Mutant(
        "refusal-ends-the-search",
        "ST38",
        "memory was refused once, and the rest of the logs stays in the dark",
        (
            (
                "embedbk/host/rebuild_pace.py",
                "        self._due_ns = now_ns + RETRY_NS\n",
                "        self._due_ns = None\n",
            ),
        ),
        (_PACE + "a_refusal_costs_time_and_nothing_else",),
    ),
    Mutant(
        "nobody-wakes-for-a-slice",
        "ST38",
        "the loop hears nothing of a slice that a thread has ended",
        (("embedbk/storage/bookie_storage.py", "lost.fileno(), ", ""),),
        (_LOST + "a_thread_reads_beside_the_loop",),
    ),
    Mutant(
        "compaction-passes-over-a-running-flush",
        "P3.4 P11.5 I47",
        "an entry is copied though the flush that runs has a newer copy of it, and wins over that at the next start",
        (
            (
                "native/store/store_copy_plan.c",
                "    if (!store->is_frozen || store->is_flushed) return NULL;\n",
                "    if (!store->is_frozen || store->is_flushed || ledger_id > 0) return NULL;\n",
            ),
        ),
        (_ORDER + "a_newer_copy_wins_in_whatever_order_a_flush_and_a_copy_end",),
    ),
    Mutant(
        "compaction-stands-above-a-newer-flush",
        "P3.4 P11.5",
        "what a compaction copied is found before what was put and flushed while it copied, until the next start",
        (
            (
                _INDEX,
                "had && run_count > 0 ? ebk_index_insert(index, ledger_ids[i], runs, run_count) : EBK_OK;\n",
                "EBK_OK;\n        for (uint32_t j = 0; had && j < run_count; j++) (void)ebk_index_add(index, ledger_ids[i], &runs[j]);\n",
            ),
        ),
        (_ORDER + "a_newer_copy_wins_in_whatever_order_a_flush_and_a_copy_end",),
    ),
)
