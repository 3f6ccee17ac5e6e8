"""Ledgers that their writers left: who says so, what is compared, and which are closed (P11.2, AR08)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_ORPHANS = "embedbk/repair/orphans.py"
_CLOSING = "embedbk/repair/orphan_closing.py"
_REPAIR = "embedbk/repair/ledger_repair.py"
_AUDITOR = "embedbk/repair/auditor.py"
_LIVING = "embedbk/client/living.py"
_TESTS = "tests/repair/test_orphans.py::test_"

MUTANTS = (
    Mutant(
        "orphan-though-its-writer-lives",
        "AR08",
        "the auditor takes each open ledger with a bookie that is gone for one that nobody closes, and the worker too",
        (
            (
                _ORPHANS,
                "None if lives else now_ns if since is None else since",
                "now_ns if since is None else since",
            ),
            (_CLOSING, "            Compare(living_path(metadata.writer), ABSENT),\n", ""),
            (
                _AUDITOR,
                "            when.append(Compare(living_path(writer), ABSENT))\n",
                "            pass\n",
            ),
        ),
        (_TESTS + "an_idle_writer_that_lives_is_never_fenced",),
    ),
    Mutant(
        "orphan-without-a-grace",
        "AR08",
        "a session that is lost for a moment counts as gone",
        ((_ORPHANS, "now_ns - since >= self._grace_ns", "now_ns >= since"),),
        (_TESTS + "a_writer_whose_session_comes_back_within_the_grace_is_never_fenced",),
    ),
    Mutant(
        "orphan-for-ever",
        "AR08",
        "the word in the mark stays, though the writer shows life again",
        (
            (
                _AUDITOR,
                "if mark is None or is_orphan(mark) == is_so:",
                "if mark is None or is_orphan(mark) >= is_so:",
            ),
        ),
        (_TESTS + "a_writer_that_shows_life_again_takes_the_word_from_the_mark",),
    ),
    Mutant(
        "orphan-word-taken-for-told",
        "P2.2",
        "what was being written into the mark counts as what it said before",
        ((_AUDITOR, "        self.orphans.tell(ledger_id, None)\n", ""),),
        (_TESTS + "a_writer_that_shows_life_again_takes_the_word_from_the_mark",),
    ),
    Mutant(
        "orphan-fenced-without-a-look",
        "AR08",
        "the transaction that puts it IN_RECOVERY does not compare that the writer shows no life",
        ((_CLOSING, "            Compare(living_path(metadata.writer), ABSENT),\n", ""),),
        (_TESTS + "the_transaction_that_fences_compares_that_the_writer_shows_no_life",),
    ),
    Mutant(
        "orphan-by-a-guess",
        "AR08",
        "a ledger that names no writer counts as one whose writer is gone",
        (
            (
                _ORPHANS,
                "is_told = metadata.state == LedgerState.IN_RECOVERY or metadata.writer",
                "is_told = True",
            ),
            (_REPAIR, "if metadata.state == LedgerState.OPEN and not metadata.writer:", "if False:"),
            (_CLOSING, "            Compare(living_path(metadata.writer), ABSENT),\n", ""),
        ),
        (_TESTS + "what_a_worker_may_not_or_cannot_close_stays_and_is_told",),
    ),
    Mutant(
        "half-a-recovery-left-to-nobody",
        "AR08",
        "a ledger in recovery that nobody ends is left as it is",
        (
            (
                _ORPHANS,
                "is_told = metadata.state == LedgerState.IN_RECOVERY or metadata.writer",
                "is_told = metadata.state == LedgerState.OPEN and metadata.writer",
            ),
        ),
        (_TESTS + "a_recovery_that_stopped_half_way_is_ended",),
    ),
    Mutant(
        "life-said-once",
        "P11.2",
        "a client whose session was lost does not say again that it lives, and its ledgers are taken for left",
        ((_LIVING, "            runtime.behind(_say_again(runtime, name))\n", "            pass\n"),),
        (_TESTS + "a_writer_that_shows_life_again_takes_the_word_from_the_mark",),
    ),
)
