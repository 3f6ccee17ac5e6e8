"""The journal, and what is left of a damaged one."""

# ruff: noqa: E501, ISC004 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_JOURNAL = "native/journal/journal.c"
_JOURNAL_COMMIT = "native/journal/journal_commit.c"
_JOURNAL_THREADS = "native/journal/journal_threads.c"
_JOURNAL_FILES = "native/journal/journal_files.c"
_JOURNAL_OPEN = "native/journal/journal_open.c"
_JOURNAL_REPLAY = "native/journal/journal_replay.c"
_JOURNAL_GROUPS = "native/journal/journal_groups.c"
_JOURNAL_SALVAGE = "native/journal/journal_salvage.c"

_JOURNALS = "tests/storage/test_journals.py::test_"
_SALVAGE = "tests/crash/test_journal_salvage.py::test_"
_STORAGE = "tests/storage/test_bookie_storage.py::test_"
_TAIL = "tests/crash/test_journal_tail.py::test_"

MUTANTS = (
    # In C: the copy is built in its own folder.
    Mutant(
        "names-of-a-killed-journal-believed",
        "I49",
        "a journal goes on in a file whose name a killed process did not make durable",
        (
            (
                _JOURNAL_FILES,
                '    int error = io->sync_directory(io, journal->directory);\n    if (error < 0) return ebk_fault_set(fault, EBK_IO, -error, journal->directory, 0, "the directory cannot be synced");\n    char *names',
                "    char *names",
            ),
        ),
        (
            "tests/storage/test_journal_scenarios.py::test_a_file_of_a_killed_process_has_its_name_for_good_before_it_is_used",
        ),
    ),
    Mutant(
        "file-of-a-killed-first-start-not-named",
        "I49 P7.2",
        "the directory of a file that is there already is not synced before other directories rest on it",
        (
            (
                "embedbk/storage/identity.py",
                "        if not each.is_named:",
                "        if each.state is None and not each.is_named:",
            ),
        ),
        (
            "tests/storage/test_identity.py::"
            "test_a_kill_and_then_a_loss_of_power_in_a_first_start_leave_no_directory_that_looks_wiped",
        ),
    ),
    Mutant(
        "journal-record-sums-unchecked",
        "P7.1 I42",
        "replay takes records that fail their checksum",
        (
            (
                _JOURNAL_GROUPS,
                "        if (record->crc != ebk_journal_record_crc(seed, offset + at, record)) return false;\n",
                "",
            ),
        ),
        (_TAIL + "every_byte_of_the_last_group_may_rot_and_never_gives_wrong_records",),
    ),
    Mutant(
        "journal-generation-ignored",
        "P7.1 I43",
        "replay takes groups of an earlier use of a recycled file",
        (
            (_JOURNAL_GROUPS, "group->generation != generation || group->position", "group->position"),
            (
                _JOURNAL_GROUPS,
                "    return ebk_crc32c(ebk_crc32c(0, identity, EBK_JOURNAL_IDENTITY_BYTES), &generation, sizeof generation);",
                "    return ebk_crc32c(0, identity, EBK_JOURNAL_IDENTITY_BYTES) + 0 * (uint32_t)generation;",
            ),
        ),
        (_TAIL + "bytes_of_an_earlier_use_are_never_replayed",),
    ),
    Mutant(
        "journal-durable-before-sync",
        "P3.2 I40",
        "a group counts as durable when it is written, before it is synced",
        (
            (
                _JOURNAL_COMMIT,
                "int synced = journal->dsync ? 0 : journal->io->sync(journal->io, journal->file);",
                "int synced = 0;",
            ),
        ),
        (_TAIL + "any_life_of_crashes_keeps_what_was_durable",),
    ),
    Mutant(
        "journal-sync-error-ignored",
        "P7.6",
        "a sync that failed counts as done",
        ((_JOURNAL_COMMIT, "    if (synced < 0)\n", "    if (synced > 0)\n"),),
        ("tests/storage/test_journal.py::test_a_failed_sync_is_final_and_not_retried",),
    ),
    Mutant(
        "journal-ends-at-damage-in-the-middle",
        "P7.1 I44",
        "a bad group before good ones is taken for the end of the journal, and what is behind it is lost",
        (
            (
                _JOURNAL_OPEN,
                "    if (later > 0)\n        return",
                "    if (later > 0 && has_any && !has_any)\n        return",
            ),
        ),
        (_TAIL + "every_byte_of_an_earlier_group_that_rots_is_damage",),
    ),
    Mutant(
        "journal-chain-unchecked",
        "P7.1 I44",
        "a valid group is taken whether it follows the one before it or not",
        (
            (
                _JOURNAL_OPEN,
                "        if (has_any && (group.sequence",
                "        if (has_any && !has_any && (group.sequence",
            ),
            (
                _JOURNAL_REPLAY,
                "    if (!replay->has_any) return true;\n",
                "    if (group != NULL) return true;\n    if (!replay->has_any) return true;\n",
            ),
        ),
        (_TAIL + "a_valid_group_that_does_not_follow_is_damage",),
    ),
    Mutant(
        "journal-gap-is-no-loss",
        "P7.4 I42",
        "records that are missing between groups of a damaged journal are not counted as lost",
        ((_JOURNAL_SALVAGE, "        salvage->facts.missing_count += group->first_token - needed;\n", ""),),
        (_SALVAGE + "whichever_group_is_damaged_the_others_are_read_and_the_loss_is_counted",),
    ),
    Mutant(
        "journal-starts-below-the-mark",
        "P7.5 I45",
        "behind damage, tokens go on below the log mark, so that new records are never replayed",
        (
            (
                _JOURNAL_SALVAGE,
                "(salvage->token > salvage->after ? salvage->token : salvage->after) + 1",
                "salvage->token + 1",
            ),
        ),
        (_SALVAGE + "a_journal_that_ends_below_the_mark_goes_on_above_it",),
    ),
    Mutant(
        "journal-old-group-is-believed",
        "P7.1 I42",
        "a group whose follower was written behind another one counts as what was acknowledged",
        (
            (
                _JOURNAL_SALVAGE,
                "group->previous_crc != salvage->crc)) {",
                "group->previous_crc != salvage->crc) && valid < 0) {",
            ),
        ),
        (_SALVAGE + "an_old_version_of_a_group_is_a_loss_although_no_token_is_missing",),
    ),
    Mutant(
        "damaged-journal-served-unasked",
        "P7.4 I32",
        "a bookie goes on behind a damaged journal without limbo and without its owner's word",
        (
            (
                "embedbk/storage/starting.py",
                "if facts.may_have_lost and not (self.may_have_lost or is_short):",
                "if facts.may_have_lost and not self.may_have_lost and not facts:",
            ),
        ),
        (_SALVAGE + "scenario_48",),
    ),
    Mutant(
        "note-of-loss-believed-unsynced",
        "P7.4",
        "a note of a loss that was there before counts as durable, whoever made it",
        (
            (
                "embedbk/storage/loss_note.py",
                "        sync_directory(path.parent)",
                "        if not is_there:\n            sync_directory(path.parent)",
            ),
        ),
        (
            "tests/storage/test_less_than_used.py::test_a_note_of_loss_that_is_there_is_durable_before_it_is_believed",
        ),
    ),
    Mutant(
        "damage-judged-by-another-reading",
        "P7.4 I32",
        "what a second reading of a damaged journal cannot read is given up, although the first one found it whole",
        (
            (
                "embedbk/storage/starting.py",
                "        if next(expected, None) != record[0]:\n            raise _changed(path)\n        yield record\n    if next(expected, None) is not None:\n",
                "        yield record\n    if False:\n",
            ),
        ),
        (_SALVAGE + "a_call_that_fails_once_while_it_goes_on_gives_up_nothing_that_is_whole",),
    ),
    Mutant(
        "damage-passed-before-it-is-flushed",
        "P7.5 I46",
        "a journal begins behind its damage before entry logs hold what was read of it",
        (
            (
                "embedbk/storage/starting.py",
                "            self._flush_behind_damage()\n            salvage.finish()\n",
                "            salvage.finish()\n            self._flush_behind_damage()\n",
            ),
        ),
        (_SALVAGE + "a_bookie_that_dies_while_it_goes_on_starts_as_unclean_again",),
    ),
    Mutant(
        "no-room-ends-the-journal",
        "I53 P7.8",
        "a group that finds no room ends the bookie for good, although nothing of it was promised",
        (
            (
                _JOURNAL_COMMIT,
                "    if (wrote < 0 && ebk_code_of((int)-wrote) == EBK_NO_SPACE) return stall(journal, (int)-wrote);\n",
                "",
            ),
        ),
        ("tests/storage/test_journal.py::test_what_finds_no_room_waits_and_goes_on_when_there_is_some",),
    ),
    Mutant(
        "group-without-room-is-passed-over",
        "P3.2 I53",
        "the group behind one that found no room is written, and both count as durable",
        (
            (
                _JOURNAL_COMMIT,
                "    if (journal->held != NULL) return journal->held->count;\n",
                "",
            ),
        ),
        ("tests/storage/test_journal.py::test_a_thread_that_finds_no_room_goes_on_by_itself",),
    ),
    Mutant(
        "journal-trims-a-file-too-many",
        "P7.5",
        "a file that begins below the mark is used again, though it holds records above it",
        (
            (
                _JOURNAL,
                "journal->files[count + 1].first_token - 1 <= token)",
                "journal->files[count].first_token - 1 <= token)",
            ),
        ),
        ("tests/storage/test_journal.py::test_a_file_with_a_record_above_the_mark_is_never_used_again",),
    ),
    Mutant(
        "group-built-ahead-unchained",
        "P7.1 I44",
        "a group that is built while another is written does not name the one before",
        ((_JOURNAL_COMMIT, "    next->previous_crc = job->header.crc;\n", "    next->previous_crc = 0;\n"),),
        ("tests/storage/test_journal.py::test_groups_that_are_built_ahead_keep_their_order",),
    ),
    Mutant(
        "copied-body-borrowed",
        "I52",
        "a small body is taken from the caller's buffer when it is written, not when it was handed over",
        (
            (
                _JOURNAL,
                "        if (copied && head_size > 0) head = memcpy(journal->copies[token % SLOT_COUNT], head, head_size);\n",
                "        (void)copied;\n",
            ),
        ),
        ("tests/storage/test_journal_scenarios.py::test_a_caller_may_use_its_buffer_again_at_once",),
    ),
    Mutant(
        "frame-borrowed-from-its-sender",
        "I52",
        "the journal writes a frame from the buffer in which it came, which may hold another one by then",
        (
            (
                "embedbk/storage/queueing.py",
                "append(RecordKind.FRAME, frame.ledger_id, view, borrowed=True)",
                "append(RecordKind.FRAME, frame.ledger_id, frame.body, borrowed=True)",
            ),
        ),
        (_STORAGE + "who_sent_a_frame_may_use_its_buffer_again_at_once[core]",),
    ),
    Mutant(
        "replay-goes-on-past-a-bad-group",
        "P7.1 I42 I44",
        "a group of an older journal file that is not what was written is stepped over, and what is behind it replayed",
        (
            (
                "native/journal/journal_replay.c",
                "    if (!valid)\n        return ebk_fault_set",
                "    while (valid == 0 && replay->offset + BLOCK_BYTES < entry->bytes) {\n"
                "        replay->offset += BLOCK_BYTES;\n"
                "        valid = ebk_group_read(replay->journal->io, replay->file,\n"
                "                               ebk_journal_seed(replay->journal->identity, entry->generation),\n"
                "                               entry->generation, replay->offset, entry->bytes, replay->buffer, &group);\n"
                "    }\n"
                "    if (valid <= 0)\n        return ebk_fault_set",
            ),
            (
                "native/journal/journal_replay.c",
                "    if (!replay->has_any) return true;\n",
                "    return true;\n",
            ),
        ),
        (
            "tests/crash/test_journal_tail.py::test_a_group_in_the_middle_of_an_older_file_that_rots_is_damage",
        ),
    ),
    Mutant(
        "slow-journal-not-waited-for",
        "P3.2 I40",
        "an add is acknowledged when another journal has come far enough, and its own has not",
        (
            (
                "native/journal/journals.c",
                "        if (journals->parts[owner].mark == own[owner]) break;",
                "        if (journals->parts[owner].mark == own[owner] && owner == 0) break;",
            ),
        ),
        (_JOURNALS + "durable_is_the_largest_token_up_to_which_every_journal_is_through",),
    ),
    Mutant(
        "journal-trimmed-by-another-ones-mark",
        "P7.5 I45",
        "a journal gives up records of which no entry log has anything, because another one is further",
        (
            (
                "embedbk/storage/journals.py",
                "            part.trim(mark)\n",
                "            part.trim(max(marks))\n",
            ),
        ),
        (_JOURNALS + "a_journal_is_not_trimmed_by_the_mark_of_another",),
    ),
    Mutant(
        "failed-journal-among-several-forgiven",
        "P7.6 I50",
        "the first journal works, so the bookie goes on",
        (
            (
                "embedbk/storage/journals.py",
                "for part in self.parts if (why := part.failed())",
                "for part in self.parts[:1] if (why := part.failed())",
            ),
        ),
        (_JOURNALS + "a_failed_sync_of_one_journal_ends_all_promises",),
    ),
    Mutant(
        "a-try-is-a-success",
        "P7.8",
        "while a journal's next file is tried again, the bookie says that it has room",
        (
            (
                "native/journal/journal.c",
                ".prepare_error = stalled != 0 ? stalled : journal->next_error,",
                ".prepare_error = stalled != 0 ? stalled : journal->next_state == NEXT_REFUSED ? journal->next_error : 0,",
            ),
        ),
        ("tests/storage/test_journal.py::test_a_next_file_stays_refused_while_it_is_tried_again",),
    ),
    Mutant(
        "a-failed-sync-of-a-note-is-made-again",
        "P7.6",
        "where the sync of the note of a file finds no room, it is made once more",
        (
            (
                _JOURNAL_COMMIT,
                "if (error < 0 && !is_written && ebk_code_of(-error)",
                "if (error < 0 && ebk_code_of(-error)",
            ),
        ),
        ("tests/storage/test_journal.py::test_a_failed_sync_of_a_note_is_final_whatever_its_error",),
    ),
    Mutant(
        "a-journal-ends-where-descriptors-are-wanting",
        "I53 P7.6",
        "a journal whose next file finds no descriptor has failed for good",
        (
            (
                _JOURNAL_COMMIT,
                "EBK_NO_SPACE || ebk_is_want(-system_error)) return stall(",
                "EBK_NO_SPACE) return stall(",
            ),
        ),
        ("tests/storage/test_journal.py::test_what_finds_no_descriptor_for_the_next_file_waits_as_well",),
    ),
    Mutant(
        "a-failed-journal-stays-busy",
        "P7.6",
        "what a journal that failed still had cannot be flushed into entry logs",
        (
            (
                _JOURNAL_THREADS,
                "        if (journal->busy_word != NULL) ebk_yield_idle(",
                "        if (count == 0 && journal->busy_word != NULL) ebk_yield_idle(",
            ),
        ),
        ("tests/storage/test_yielding.py::test_a_journal_that_fails_holds_nobody_up",),
    ),
)
