"""Bookies that give their copies up for files, and readers that go on in these (P8.14)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CORE = "embedbk/core/freeing.py"
_STEPS = "embedbk/core/archiving.py"
_READER = "embedbk/core/reader.py"
_READING = "embedbk/client/reading.py"
_FILES = "embedbk/archive/reading.py"
_JOB = "embedbk/archive/freeing.py"
_KEPT = "embedbk/client/restoring.py"

_RULE = "tests/rules/test_p8_freeing.py::test_"
_FREE = "tests/archive/test_freeing.py::test_"

MUTANTS = (
    Mutant(
        "what-is-only-copied-is-freed",
        "P8.14",
        "bookies give up what nobody has verified",
        (
            (
                _CORE,
                "if record is None or record.state != ArchiveState.VERIFIED or record.manifest",
                "if record is None or record.manifest",
            ),
        ),
        (_RULE + "what_is_unsafe_is_not_freed",),
    ),
    Mutant(
        "a-ledger-is-freed-under-a-cursor",
        "P8.14 P8.8",
        "a cursor that stands in the middle of a ledger keeps nothing",
        ((_CORE, "        if stands < self.terms.end_offset:\n", "        if False:\n"),),
        (_RULE + "what_is_unsafe_is_not_freed",),
    ),
    Mutant(
        "a-pin-that-comes-while-a-ledger-is-freed",
        "P8.14 P8.8",
        "freeing does not compare the pins",
        ((_CORE, "        self._looked_at(log_pins_path(self.log_id), event)\n", ""),),
        (
            _RULE + "freeing_compares_all_that_was_looked_at",
            _RULE + "what_comes_while_it_is_freed_is_not_passed_over",
        ),
    ),
    Mutant(
        "a-ledger-is-freed-by-a-job-without-its-lock",
        "P8.14 P9.1",
        "a job that lost the archive's lock frees what another copies anew",
        ((_CORE, "[*self.when, Compare(self.lock_key, self.epoch)]", "self.when"),),
        (_RULE + "a_job_that_lost_the_lock_frees_nothing",),
    ),
    Mutant(
        "a-clock-that-lags-makes-an-archive-old",
        "P8.14",
        "an archive that was verified in the future of this clock counts as verified for long enough",
        (
            (
                _CORE,
                "        if age_ms < terms.keep_lag_ms:\n",
                "        if 0 < age_ms < terms.keep_lag_ms:\n",
            ),
        ),
        (_RULE + "what_was_verified_in_the_future_is_young",),
    ),
    Mutant(
        "a-cursor-stands-where-an-earlier-round-read-it",
        "P8.14 P8.8",
        "an answer of a round that was given up says where a cursor stands now",
        ((_CORE, "        if number != self.round:\n", "        if False:\n"),),
        (_RULE + "an_answer_of_a_round_before_says_nothing_of_where_a_cursor_stands",),
    ),
    Mutant(
        "freeing-of-unknown-outcome-is-a-no",
        "P8.14 P2.2",
        "a job says that a ledger was certainly not freed, and the transaction may still take effect",
        ((_CORE, "            why.definite = False\n", "            why.definite = True\n"),),
        (_RULE + "freeing_that_may_have_landed_is_no_definite_no",),
    ),
    Mutant(
        "a-freed-ledger-is-copied-anew",
        "P8.14",
        "a job claims a ledger whose files are all there is, so that no manifest counts",
        ((_STEPS, "        if ledger.freed is not None:\n", "        if False:\n"),),
        (_RULE + "nobody_copies_a_freed_ledger_anew",),
    ),
    Mutant(
        "metadata-of-before-a-ledger-was-freed-is-put-back",
        "P8.14 P7.7",
        "kept metadata names bookies that have dropped their copies, in the place of files that are there",
        ((_KEPT, "    if known.freed is not None:\n", "    if False:\n"),),
        (_FREE + "metadata_of_a_freed_ledger_is_not_put_back",),
    ),
    Mutant(
        "a-read-ends-where-a-ledger-was-freed",
        "P8.14 P6.1",
        "a reader that asked bookies when a ledger was freed takes that for its end",
        (
            (
                _READING,
                "if frame is None and core.metadata.freed is not None and first <= last:",
                "if False:",
            ),
        ),
        (_FREE + "a_reader_that_was_reading_goes_on_in_the_files",),
    ),
    Mutant(
        "another-file-of-the-name-is-read",
        "P8.14",
        "a file of sound entries that nobody recorded is read in the place of the archive's",
        ((_FILES, "    if found != part.sha256:\n", "    if False:\n"),),
        (_FREE + "a_file_that_is_missing_or_differs_is_named",),
    ),
    Mutant(
        "a-ledger-is-freed-for-files-that-were-sound-once",
        "P8.14",
        "what was verified is freed without another look at its files",
        ((_JOB, "        if looks.findings:\n", "        if False:\n"),),
        (_FREE + "each_unsafe_case_keeps_the_copies",),
    ),
    Mutant(
        "a-ledger-is-freed-while-its-archive-is-away",
        "P8.14",
        "files that nobody can read just now count as sound",
        ((_JOB, "        if looks.incomplete or manifest is None:\n", "        if False:\n"),),
        (_FREE + "an_archive_that_is_away_frees_nothing",),
    ),
)
