"""The entry store: write cache, entry logs, index, compaction; the ledger table."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_COPY = "native/store/store_copy.c"

_BUSY = "tests/rules/test_p7_busy.py::test_"
_COMPACTION = "tests/storage/test_compaction.py::test_"
_DAMAGE = "tests/storage/test_entry_log_damage.py::test_"
_EVERY_CALL = "tests/storage/test_every_call.py::test_"
_ENTRIES = "tests/storage/test_entry_store.py::test_"
_NO_MEMORY = "tests/storage/test_no_memory.py::test_"
_READ_CLASSES = "tests/rules/test_p6_read_classes.py::test_"
_DIRECTORIES = "tests/storage/test_ledger_directories.py::test_"
_STORAGE = "tests/storage/test_bookie_storage.py::test_"

MUTANTS = (
    Mutant(
        "names-of-killed-flushes-believed",
        "I49",
        "a start takes entry logs in whose names a killed process did not make durable, and later ones name them",
        (
            (
                "native/store/store_roll.c",
                "        const int unsynced = store->io->sync_directory(store->io, path);\n",
                "        const int unsynced = 0;\n",
            ),
        ),
        (_EVERY_CALL + "a_kill_before_any_call_and_a_loss_of_power_behind_it_lose_nothing_durable",),
    ),
    Mutant(
        "bad-entry-absent-in-the-store",
        "P7.1 I31",
        "an entry whose bytes fail their sum is told to be absent by the entry store",
        (
            (
                "native/store/store_read.c",
                "            found->size += piece->size;\n        }\n",
                "            found->size += piece->size;\n        } else {\n            add_absent(reading, piece->id, piece->id);\n        }\n",
            ),
        ),
        (_DAMAGE + "no_flipped_byte_gives_a_wrong_byte_or_a_false_absent",),
    ),
    Mutant(
        "half-free-while-the-journal-borrows",
        "I52",
        "a half of the write cache takes puts again as soon as it is flushed, while its records are still to be written",
        (
            (
                "embedbk/storage/flushing.py",
                "        if self.state is FlushState.LOGGED and self.journals.known_durable >= self._frozen_token:\n",
                "        if self.state is FlushState.LOGGED:\n",
            ),
        ),
        (_STORAGE + "a_frozen_half_is_kept_while_the_journal_borrows_it",),
    ),
    Mutant(
        "no-descriptor-puts-a-directory-aside",
        "P7.6 P7.8",
        "a directory takes no more entries because the process had no descriptor or memory for one flush",
        (("native/store/store_log.c", "    if (ebk_is_want(error)) return EBK_WANT;", "    "),),
        (_DIRECTORIES + "a_process_without_descriptors_puts_no_directory_aside",),
    ),
    Mutant(
        "flush-without-a-descriptor-ends-the-bookie",
        "I53 P7.8",
        "puts are let into a full write cache whose flush had no descriptor, and the first ends the bookie for good",
        (
            (
                "embedbk/storage/entry_store.py",
                "_WANTING = (lib.EBK_NO_SPACE, lib.EBK_WANT, lib.EBK_NO_MEMORY)",
                "_WANTING = (lib.EBK_NO_SPACE,)",
            ),
        ),
        (_STORAGE + "a_flush_without_descriptors_waits_as_one_without_room",),
    ),
    Mutant(
        "states-of-a-refused-freeze-forgotten",
        "I53 P7.3",
        "fences whose states left the table for a freeze that got no memory are in no entry log, and the journal goes",
        (("embedbk/storage/flushing.py", "            self._put_back(states)\n", ""),),
        (_NO_MEMORY + "a_freeze_without_memory_waits_and_takes_all_states_later",),
    ),
    Mutant(
        "freeze-without-memory-ends-the-bookie",
        "I53 P7.8",
        "a flush that gets no memory to begin with is a failure, and the bookie acknowledges nothing more",
        (
            (
                "embedbk/storage/flushing.py",
                "        except MemoryRefused as refused:\n            self.failed_count",
                "        except ZeroDivisionError as refused:\n            self.failed_count",
            ),
        ),
        (_NO_MEMORY + "puts_wait_while_memory_for_a_freeze_is_refused",),
    ),
    Mutant(
        "what-cannot-be-read-is-called-damaged",
        "P7.1 P7.3",
        "a start that the system does not let read an entry log says that its bytes are not what was written",
        (
            (
                "native/store/store_load.c",
                "if (refused == EBK_DAMAGED && error < 0)",
                "if (refused == EBK_DAMAGED && error > 0)",
            ),
        ),
        (_DAMAGE + "a_log_that_cannot_be_read_at_a_start_is_not_called_damaged",),
    ),
    Mutant(
        "no-descriptor-makes-an-entry-unreadable",
        "P7.1",
        "an entry of which the process could not open the log is answered as one that cannot be read",
        (
            (
                "native/store/store_read.c",
                "pieces[i].is_want) return true;",
                "pieces[i].is_want) return false;",
            ),
        ),
        ("tests/storage/test_digests.py::test_an_entry_that_no_descriptor_is_left_for_is_not_unreadable",),
    ),
    Mutant(
        "full-device-ends-the-start",
        "I53 P7.8",
        "a start that finds no room for an entry log gives up, although its write cache has room",
        (
            (
                "embedbk/storage/starting.py",
                "            if self.store.active_bytes():\n",
                "            if True:\n",
            ),
        ),
        (_STORAGE + "a_full_device_keeps_no_bookie_from_its_start",),
    ),
    Mutant(
        "add-path-borrows-from-the-link",
        "I52",
        "the add path gives the journal the message of the link instead of the write cache's copy",
        (
            (
                "native/road/add_path.c",
                "EBK_RECORD_FRAME, add->ledger_id, copy, add->body_size,",
                "EBK_RECORD_FRAME, add->ledger_id, add->body, add->body_size,",
            ),
        ),
        (_STORAGE + "who_sent_a_frame_may_use_its_buffer_again_at_once[path]",),
    ),
    Mutant(
        "entry-log-id-used-again",
        "I48",
        "a flush that is tried again, and the one behind it, write under an id that was given out before",
        (
            (
                "native/store/store_flush.c",
                "            .log_id = ++store->log_id_last,",
                "            .log_id = store->log_id_last + 1,",
            ),
        ),
        (_STORAGE + "a_failed_flush_is_tried_again_in_another_file",),
    ),
    Mutant(
        "entry-log-ids-forgotten-at-start",
        "I48 P7.1",
        "after a start the ids of entry logs begin anew, and a new log takes the name of an old one",
        (
            (
                "native/store/store_roll.c",
                "            if (log_id > store->log_id_last) store->log_id_last = log_id;\n",
                "",
            ),
        ),
        (_STORAGE + "an_id_of_an_entry_log_is_never_given_out_twice",),
    ),
    Mutant(
        "entry-log-directory-not-synced",
        "P7.5",
        "a flush counts before its file's name is durable",
        (
            (
                "native/store/store_log.c",
                "    done = flush->io->sync_directory(flush->io, flush->directory);\n",
                "    done = 0;\n",
            ),
        ),
        (
            "tests/storage/test_bookie_storage.py::test_a_fault_at_every_call_and_a_crash_lose_nothing_durable",
        ),
    ),
    Mutant(
        "mark-advanced-by-one-directory",
        "P7.5 I45",
        "the log mark of a flush counts when one of its directories is durable",
        (
            (
                "native/store/store_roll.c",
                "        if (mark == 0 || !is_whole_flush(store, i)) continue;\n",
                "        if (mark == 0) continue;\n",
            ),
        ),
        (_DIRECTORIES + "whichever_logs_of_a_flush_are_durable_the_mark_is_that_of_all_of_them",),
    ),
    Mutant(
        "flush-that-failed-in-one-directory-counts",
        "P7.5 I45",
        "a flush is taken in although one of its directories has nothing of it",
        (
            (
                "native/store/store_flush.c",
                "        if (store->flushes[i].result < 0) return give_up(store, &store->flushes[i]);\n",
                "        if (store->flushes[0].result < 0) return give_up(store, &store->flushes[i]);\n",
            ),
        ),
        (_DIRECTORIES + "a_directory_that_fails_takes_no_new_entries_while_the_other_serves",),
    ),
    Mutant(
        "roll-of-half-a-flush-counts",
        "P7.5 I47",
        "what half a flush says of older logs is believed, and those that it left out are deleted",
        (
            (
                "native/store/store_roll.c",
                "roll_count > 0 && has_all_parts(store, list, places, count, &descriptor);",
                "roll_count > 0 && (count > 0 || has_all_parts(store, list, places, count, &descriptor));",
            ),
        ),
        (_DIRECTORIES + "half_a_flush_takes_no_log_away",),
    ),
    Mutant(
        "stored-state-lifts-a-fence",
        "P5.2f P7.3",
        "a later stored state without the flag lifts a fence",
        (("native/store/table_states.c", "    row->is_fenced |= (flags", "    row->is_fenced = (flags"),),
        ("tests/storage/test_ledger_table.py",),
    ),
    Mutant(
        "compaction-leaves-the-states-behind",
        "P7.3 ST32",
        "an entry log goes, and with it the only state that says a ledger is fenced",
        (
            (
                "embedbk/storage/entry_store.py",
                '        table.touch(bytes(ffi.buffer(pointer[0], size)) if size else b"")\n',
                "",
            ),
        ),
        (_COMPACTION + "a_log_in_which_nothing_lives_goes_whole",),
    ),
    Mutant(
        "compaction-copies-what-it-did-not-check",
        "P7.1 ST35",
        "a damaged entry is copied as it is, and the log that showed the damage goes",
        (
            (
                _COPY,
                "            facts.ledger_id != copy->ledger_id || facts.first_entry != copy->cursor.id)\n            return bad(",
                "            facts.ledger_id != copy->ledger_id || facts.first_entry != copy->cursor.id)\n            if (entry_size == 0) return bad(",
            ),
        ),
        (_COMPACTION + "a_corrupt_log_is_left_alone_and_the_rest_goes_on",),
    ),
    Mutant(
        "compaction-deletes-before-the-flush",
        "I47 ST32",
        "the sources go at once, with any flush that ends, also one that was frozen before",
        ((_COPY, "leaves_with > done) {", "leaves_with > done + 1) {"),),
        (_COMPACTION + "sources_stay_until_a_flush_behind_the_copy_has_ended",),
    ),
    Mutant(
        "scanned-log-is-compacted",
        "P7.1 ST13",
        "a log of which only a scan found something is copied and goes, and with it what it hides",
        (("native/store/store_load.c", "    log->is_damaged = true;", "    log->is_damaged = false;"),),
        (_COMPACTION + "a_log_whose_index_was_lost_is_never_compacted",),
    ),
    Mutant(
        "second-index-is-not-asked",
        "P7.1 ST13",
        "one bit of the first copy of an index, and the log is scanned as if there were no other",
        (
            (
                "native/store/store_load.c",
                "copy = descriptor->version < EBK_LOG_VERSION_TWICE; copy < 2; copy++) {\n        log->index",
                "copy = descriptor->version < EBK_LOG_VERSION_TWICE; copy < 1; copy++) {\n        log->index",
            ),
        ),
        (_DAMAGE + "one_copy_of_an_index_serves_alone_and_the_log_may_be_compacted",),
    ),
    Mutant(
        "runs-of-one-copy-only",
        "P7.1 ST13",
        "where both copies of an index are damaged, the runs that are whole in the second one are not taken",
        (
            (
                "native/store/store_join.c",
                "run_at(&joining, copy = other, at, &ledger_id, &run);",
                "run_at(&joining, copy = one, at, &ledger_id, &run);",
            ),
        ),
        (_DAMAGE + "each_run_is_taken_from_the_copy_where_it_is_whole",),
    ),
    Mutant(
        "hole-ends-before-the-next-run",
        "P7.1 I31",
        "between two runs that are whole only ids of the first one's ledger may have stood; others are told to be absent",
        (
            (
                "native/store/store_load.c",
                "            hole.ledger_behind = ledger_id;\n            hole.id_behind = run.first;\n",
                "            hole.ledger_behind = hole.ledger_before;\n            hole.id_behind = INT64_MAX;\n",
            ),
        ),
        (_DAMAGE + "a_run_that_is_lost_twice_hides_its_own_entries_alone",),
    ),
    Mutant(
        "roll-leaves-out-a-log-one-flush-early",
        "ST32 P7.3",
        "a flush that was frozen before a compaction was taken in leaves its sources out of its roll, and their states nobody has",
        (
            (
                "native/store/store_flush.c",
                "log->leaves_with <= store->freeze_count;",
                "log->leaves_with <= store->freeze_count + 1;",
            ),
        ),
        (
            _COMPACTION + "a_flush_that_is_done_again_behind_a_copy_names_the_sources_still",
            "tests/storage/test_random_orders.py::test_no_order_of_flushes_faults_copies_and_crashes_loses_what_was_durable",
        ),
    ),
    Mutant(
        "adds-use-up-the-queue",
        "P7.8",
        "normal adds are taken until the journal's queue is full, and a fence waits for it",
        (("native/road/add_path.h", "    EBK_ADD_SLOTS_KEPT = 1024 ", "    EBK_ADD_SLOTS_KEPT = 8 "),),
        (_BUSY + "fences_have_a_part_of_the_journal_to_themselves",),
    ),
    Mutant(
        "a-flush-yields-for-ever",
        "RP33",
        "beside a journal that is always busy no flush ends, however full the write cache gets",
        (("native/store/store.c", "        ebk_yield_enough(&store->yield_word);\n    }", "    }"),),
        ("tests/storage/test_yielding.py::test_a_flush_waits_no_more_when_the_cache_wants_its_room",),
    ),
    Mutant(
        "a-range-that-was-cut-is-written-in-part",
        "P7.3",
        "what stands behind a ledger that came back is dropped in no entry log, and forgotten with the journal",
        (
            (
                "native/store/table.c",
                "    if (id < range->last && ebk_table_note_range(table, id + 1) < 0) return EBK_NO_MEMORY;\n",
                "",
            ),
        ),
        (
            "tests/storage/test_ledger_table.py::test_what_stands_behind_a_ledger_that_came_back_is_written_too[make_native]",
            "tests/storage/test_ledger_table.py::test_both_twins_keep_the_same_ranges",
        ),
    ),
    Mutant(
        "memory-speaks-for-the-entry-log",
        "P7.1 P11.4 ST45",
        "a copy that is bad on the disk passes every check while the write cache still has it",
        (
            (
                "native/store/store_read.c",
                "if (!is_active && store->is_flushed && !reading->from_memory) return NULL;",
                "(void)reading->from_memory;",
            ),
        ),
        (_ENTRIES + "what_was_flushed_counts_by_its_entry_log_alone",),
    ),
    Mutant(
        "a-flushed-half-is-given-back-at-once",
        "ST45",
        "behind each flush readers of the newest entries wait for the device",
        (
            (
                "native/store/store.c",
                "if (half->used > kept + kept / KEPT_BEYOND) ebk_cache_reset(half, kept);",
                "ebk_cache_reset(half, kept);",
            ),
        ),
        (_ENTRIES + "the_newest_entries_are_read_from_memory_behind_a_flush_too",),
    ),
    Mutant(
        "a-flushed-half-is-kept-whatever-its-size",
        "ST45",
        "a bookie that was overloaded for a moment keeps the memory of it until the next flush",
        (
            (
                "native/store/store.c",
                "if (half->used > kept + kept / KEPT_BEYOND) ebk_cache_reset(half, kept);",
                "",
            ),
        ),
        (_ENTRIES + "a_half_that_grew_far_beyond_what_is_kept_is_given_back_at_once",),
    ),
    Mutant(
        "a-span-with-gaps-has-all",
        "P7.1 ST45",
        "entries between those of a span in memory are absent, though an entry log has them",
        (
            (
                "native/store/store_read.c",
                "return span->last >= last && span->last - span->first == (int64_t)span->count - 1;",
                "return span->last >= last;",
            ),
        ),
        (_ENTRIES + "the_index_is_asked_for_whatever_no_span_in_memory_has",),
    ),
    Mutant(
        "a-span-that-ends-early-has-all",
        "P7.1 ST45",
        "what stands behind a span in memory is absent, though an entry log has it",
        (
            (
                "native/store/store_read.c",
                "return span->last >= last && span->last - span->first == (int64_t)span->count - 1;",
                "return span->last - span->first == (int64_t)span->count - 1;",
            ),
        ),
        (_ENTRIES + "the_index_is_asked_for_whatever_no_span_in_memory_has",),
    ),
    Mutant(
        "scrubs-read-from-memory",
        "P6.7 ST45",
        "a job that checks copies finds them good, because the write cache answers",
        (
            (
                "embedbk/core/lookups.py",
                "return is_read and self.read_class in (ReadClass.TAIL, ReadClass.CATCH_UP)",
                "return is_read",
            ),
        ),
        (_READ_CLASSES + "readers_get_the_newest_entries_from_memory_and_checks_ask_the_entry_logs",),
    ),
    Mutant(
        "a-copy-is-compared-with-memory",
        "P3.4 P6.7 ST45",
        "repair writes a bad copy again, and the bookie keeps the bad one because its write cache has a good one",
        (
            (
                "embedbk/core/lookups.py",
                "is_read = isinstance(self.request, ReadRequest | Poll)",
                "is_read = self.request is not None",
            ),
        ),
        (_READ_CLASSES + "readers_get_the_newest_entries_from_memory_and_checks_ask_the_entry_logs",),
    ),
    Mutant(
        "an-older-roll-stands-for-one-that-cannot-be-read",
        "I47",
        "where the newest log cannot be read, logs are called missing that were compacted since an older roll named them",
        (
            (
                "native/store/store_roll.c",
                "    if (!open_log(store, &places[0], &source, &descriptor)) {\n        list->unread = &places[0];\n",
                "    if (!open_log(store, &places[0], &source, &descriptor)) {\n",
            ),
        ),
        (_COMPACTION + "where_the_newest_log_cannot_be_read_that_is_said_and_nothing_of_older_ones",),
    ),
    Mutant(
        "a-log-is-blamed-where-descriptors-are-wanting",
        "ST35",
        "a process without descriptors never compacts the log again that it could not open",
        ((_COPY, "    if (!is_want) copy->bad_source = source;", "    copy->bad_source = source;"),),
        (_COMPACTION + "a_process_without_descriptors_blames_no_log",),
    ),
    Mutant(
        "a-close-forgets-a-copying",
        "I47",
        "a store that is closed gives back the names of its directories while a slice of a copying uses them",
        (
            (
                "native/store/store.c",
                "    if (store->copy != NULL) ebk_copy_free(store->copy); /* Its thread needs the names of the directories. */\n",
                "",
            ),
            (
                "native/store/store.c",
                "    free(store->directories);\n",
                "    free(store->directories);\n    if (store->copy != NULL) ebk_copy_free(store->copy);\n",
            ),
        ),
        (_COMPACTION + "a_store_that_is_closed_waits_for_the_slice_that_is_copied",),
    ),
    Mutant(
        "a-flush-that-could-not-begin-runs",
        "P7.6",
        "a flush that could not begin is waited for, for ever",
        (
            (
                "embedbk/storage/flushing.py",
                "            self._fail(refused)  # Nothing runs, so nobody may wait for its end.\n",
                "",
            ),
        ),
        (_STORAGE + "nobody_waits_for_a_flush_that_could_not_begin",),
    ),
    Mutant(
        "a-copying-without-a-thread-stays",
        "ST35",
        "a compaction whose slice got no thread stands in the way of every later one",
        (
            (
                "embedbk/storage/bookie_storage.py",
                "            store.abandon_copy()  # Else it would stand in the way of every later one.\n",
                "",
            ),
        ),
        (_COMPACTION + "a_slice_that_gets_no_thread_ends_its_compaction_and_no_later_one",),
    ),
    Mutant(
        "a-removed-directory-is-written-to",
        "P7.6",
        "a bookie goes on in directories that were removed beneath it",
        (
            (
                "embedbk/storage/bookie_storage.py",
                "        return self._removed or self.flushes.failure or",
                "        return self.flushes.failure or",
            ),
        ),
        (_STORAGE + "a_directory_that_is_removed_beneath_its_bookie_fails_it",),
    ),
)
