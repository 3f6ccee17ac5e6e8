"""Closed ledgers in files: what is recorded of them, and what counts as sound (P8.14)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CORE = "embedbk/core/archiving.py"
_JOBS = "embedbk/archive/jobs.py"
_COPYING = "embedbk/archive/copying.py"
_FILES = "embedbk/archive/files.py"
_PLACE = "embedbk/archive/place.py"
_VERIFYING = "embedbk/archive/verifying.py"
_RESTORING = "embedbk/archive/restoring.py"
_DELETING = "embedbk/client/log_deleting.py"

_RULE = "tests/rules/test_p8_archives.py::test_"
_COPY = "tests/archive/test_copying.py::test_"
_VERIFY = "tests/archive/test_verifying.py::test_"
_RESTORE = "tests/archive/test_restoring.py::test_"

MUTANTS = (
    Mutant(
        "an-archive-without-its-lock",
        "P8.14 P9.1",
        "a step of an archive does not compare the lock's epoch",
        ((_CORE, "            Compare(self.lock_key, self.epoch),\n", ""),),
        (
            _RULE + "each_step_compares_record_ledger_and_lock",
            _RULE + "a_job_that_lost_the_lock_records_nothing",
        ),
    ),
    Mutant(
        "an-archive-of-a-ledger-that-is-gone",
        "P8.14 P8.13",
        "a step of an archive does not compare the ledger's metadata",
        ((_CORE, "            Compare(ledger_key_path(self.ledger_id), event.revision),\n", ""),),
        (_RULE + "a_ledger_that_goes_while_it_is_recorded_stays_unrecorded",),
    ),
    Mutant(
        "a-writer-verifies-its-own-archive",
        "P8.14",
        "the job that wrote an archive says that it is verified",
        ((_CORE, "    if record.epoch >= epoch:\n", "    if record.epoch > epoch:\n"),),
        (_RULE + "whoever_wrote_it_does_not_verify_it",),
    ),
    Mutant(
        "an-archive-step-of-unknown-outcome-is-a-no",
        "P8.14 P2.2",
        "a job that lost the lock behind a change of unknown outcome says that it certainly did not happen",
        ((_CORE, "            why.definite = False\n", "            why.definite = True\n"),),
        (_RULE + "a_change_that_may_have_landed_is_no_definite_no",),
    ),
    Mutant(
        "copying-goes-on-with-other-slices",
        "P8.14",
        "a job that goes on with copying cuts slices of its own, so that files are there twice",
        (
            (
                _CORE,
                "record.slice_entries if record is not None and goes_on else step.slice_entries\n",
                "step.slice_entries\n",
            ),
        ),
        (_RULE + "whoever_goes_on_with_copying_cuts_the_same_slices",),
    ),
    Mutant(
        "a-ledger-is-copied-without-all-its-files",
        "P8.14",
        "a ledger of which a file could not be written is recorded as copied",
        ((_JOBS, "        if len(parts) < len(done):\n", "        if not parts:\n"),),
        (_COPY + "a_ledger_whose_tasks_did_not_all_succeed_is_not_copied",),
    ),
    Mutant(
        "a-name-that-may-be-lost-counts",
        "P8.14",
        "a file is taken whose name was never synced, as whoever wrote it was killed",
        ((_COPYING, "    ledger.sync()\n", ""),),
        (_COPY + "names_are_durable_before_a_file_of_another_task_is_taken",),
    ),
    Mutant(
        "an-archive-file-has-its-name-before-it-is-synced",
        "P8.14",
        "a file gets its name when its sync failed",
        ((_PLACE, "        os.fsync(file.fileno())\n", ""),),
        (_COPY + "a_disk_that_is_full_is_said_and_leaves_nothing_that_counts",),
    ),
    Mutant(
        "an-archive-is-made-anew-where-none-is-mounted",
        "P8.14",
        "another archive in the place of the log's own is taken for it",
        ((_PLACE, "            if found != self.place.archive_id:\n", "            if not found:\n"),),
        (_COPY + "another_archive_in_its_place_is_refused",),
    ),
    Mutant(
        "files-of-other-slices-stay-in-an-archive",
        "P8.14",
        "files that the manifest does not name stay beside those that it names, and are read by others",
        ((_JOBS, "                        ledger.set_aside(other)\n", "                        pass\n"),),
        (_COPY + "files_of_other_slices_do_not_stay_beside",),
    ),
    Mutant(
        "an-archived-ledger-without-a-pin",
        "P8.14 P8.8",
        "nothing holds the log while its ledgers are copied",
        (
            (
                _COPYING,
                '    run_blocking(pin(log, task.pin_name, task.pin_offset, task.pin_s), "archive")\n',
                "",
            ),
        ),
        (_COPY + "the_pin_holds_and_a_log_that_is_truncated_all_the_same_is_reported",),
    ),
    Mutant(
        "wrong-columns-beside-right-entries",
        "P8.14",
        "columns that no CRC covers are not compared with the entries",
        (
            (
                _FILES,
                "            if not (_is(anew, there) or ",
                "            if not (True or ",
            ),
        ),
        (_VERIFY + "columns_that_no_crc_covers_are_found_without_the_hash",),
    ),
    Mutant(
        "columns-are-asked-for-of-a-file-that-may-be-damaged",
        "P8.14",
        "statistics of a column are read of a file whose hash is another, where pyarrow may end the process",
        (
            (
                _FILES,
                "            if first is None or last is None or _may_have(parquet, number, first, last):\n",
                "            if _may_have(parquet, number, first or 0, last or 1 << 62):\n",
            ),
        ),
        (
            _COPY + "a_file_that_is_damaged_is_set_aside_and_written_anew",
            _VERIFY + "every_kind_of_damage_is_found_and_named",
        ),
    ),
    Mutant(
        "cannot-tell-is-verified",
        "P8.14",
        "a ledger of which a file could not be read counts as verified",
        (
            (
                _VERIFYING,
                "            if looked.findings or looked.incomplete:\n",
                "            if looked.findings:\n",
            ),
        ),
        (_VERIFY + "a_task_that_cannot_tell_verifies_nothing",),
    ),
    Mutant(
        "a-finding-leaves-an-archive-verified",
        "P8.14",
        "what was verified stays so when something is found",
        (
            (
                _VERIFYING,
                "            if ledger_id in doubted:\n",
                "            if ledger_id in doubted and not bad:\n",
            ),
        ),
        (_VERIFY + "every_kind_of_damage_is_found_and_named",),
    ),
    Mutant(
        "a-manifest-that-does-not-count-is-believed",
        "P8.14",
        "the manifest is not compared with the hash that the metadata has",
        (
            (
                _VERIFYING,
                "        if manifest_hash(data) != record.manifest:\n",
                "        if manifest_hash(data) == b'':\n",
            ),
        ),
        (_VERIFY + "every_kind_of_damage_is_found_and_named",),
    ),
    Mutant(
        "a-gap-in-an-archive-is-restored-over",
        "P8.14",
        "ledgers that are not archived are left out of what is restored",
        ((_RESTORING, "        if each.first_offset > following:\n            break\n", ""),),
        (_RESTORE + "nothing_is_left_out_in_the_middle",),
    ),
    Mutant(
        "a-ledger-of-unknown-age-ends-the-job",
        "P8.14",
        "nothing of a log is archived while the time of one ledger's last entry cannot be read",
        (
            (
                _JOBS,
                "        except EmbedbkError as untold:  # It keeps no other ledger from being copied.\n",
                "        except Truncated as untold:\n",
            ),
        ),
        (_COPY + "a_ledger_of_which_nobody_can_tell_how_old_it_is_keeps_no_other",),
    ),
    Mutant(
        "a-recorded-ledger-without-a-directory-is-left-out",
        "P8.14",
        "a restore of all passes over ledgers that are recorded and not there",
        ((_RESTORING, "    if there and not is_bounded and (", "    if not there and not is_bounded and ("),),
        (_RESTORE + "nothing_is_left_out_at_an_end",),
    ),
    Mutant(
        "records-of-an-archive-stay-behind-their-log",
        "P8.14 P8.13",
        "the records of an archive stay for ever when their log is ended",
        ((_DELETING, "    await forget_archive(runtime, log_id)\n", ""),),
        (_COPY + "an_ended_logs_records_go_and_its_files_stay",),
    ),
)
