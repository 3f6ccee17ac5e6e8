"""Putting truncated ledgers back in front of their log by their files (P8.16)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_UNDELETING = "embedbk/client/undeleting_files.py"
_JOB = "embedbk/archive/restoring_truncated.py"
_MANIFEST = "embedbk/archive/manifest.py"
_SCENES = "tests/archive/test_truncated.py::test_"
_BESIDE = _SCENES + "one_transaction_compares_all_that_was_looked_at"
_SOUND = _SCENES + "what_is_not_sound_or_not_verified_ends_the_run_and_is_named"
_WHOLE = _SCENES + "ledgers_come_back_in_their_files_and_then_to_bookies"

MUTANTS = (
    Mutant(
        "moved-files-are-not-looked-at",
        "P8.14",
        "a freed ledger is read where not all of its files are",
        (("embedbk/archive/moving.py", "        if lack:\n", "        if False:\n"),),
        ("tests/archive/test_moving.py::test_a_ledger_whose_files_are_not_there_yet_stays_where_it_was",),
    ),
    Mutant(
        "moving-does-not-compare-the-lock",
        "P8.14",
        "a job that lost the archive's lock names another path over what another job made of it",
        (("embedbk/client/archiving.py", "revision), Compare(lock_key, epoch)]", "revision)]"),),
        (
            "tests/archive/test_moving.py::test_another_archive_is_refused_and_a_job_without_its_lock_moves_nothing",
        ),
    ),
    Mutant(
        "front-by-files-does-not-compare-the-lock",
        "P8.16",
        "a job that lost the archive's lock puts a ledger back, whose files another job puts aside",
        ((_UNDELETING, "            Compare(lock_key, epoch),\n", ""),),
        (_BESIDE,),
    ),
    Mutant(
        "front-by-files-does-not-compare-the-record",
        "P8.16",
        "a ledger comes back whose archive was doubted or copied anew since it was looked at",
        ((_UNDELETING, "            await _verified(reading, filed[ledger_id]),\n", ""),),
        (_BESIDE,),
    ),
    Mutant(
        "front-by-files-leaves-the-tombstone",
        "P8.16",
        "a ledger that stands in its log has a tombstone, which puts its key over it later",
        ((_UNDELETING, "            then.append(Delete(tombstone_path(ledger_id)))\n", ""),),
        (_WHOLE,),
    ),
    Mutant(
        "front-by-files-does-not-read-them",
        "P8.16",
        "a ledger comes back whose files are damaged or gone",
        ((_JOB, "                if looks.findings:\n", "                if False:\n"),),
        (_SOUND,),
    ),
    Mutant(
        "front-by-files-takes-any-end",
        "P8.16",
        "a ledger comes back whose tombstone says that it is longer than its files",
        ((_UNDELETING, "    if not fits or was.lost or", "    if was.lost or"),),
        (_BESIDE,),
    ),
    Mutant(
        "front-by-files-asks-no-password",
        "P8.16",
        "whoever has not the log's password puts a ledger back under another one",
        ((_UNDELETING, "        await _check_password(reading, log_list)\n", ""),),
        (_SCENES + "a_log_with_a_password_needs_it_and_keeps_it",),
    ),
    Mutant(
        "a-manifest-gives-bytes-that-are-no-text",
        "P8.16",
        "what was attached to a ledger comes back as other bytes",
        (
            (
                _MANIFEST,
                "    if made.custom.get(LOG_OF_LEDGER) != manifest.log_id.encode() or any(",
                "    if any(",
            ),
        ),
        (_SCENES + "a_manifest_that_says_too_little_brings_nothing_back",),
    ),
)
