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
        "rounds-leave-writers-no-turn",
        "AR08",
        "where a round is due at each look, nobody asks whether writers live",
        ((_AUDITOR, "(now_ns >= self.round_due_ns and self.has_looked)", "now_ns >= self.round_due_ns"),),
        (_TESTS + "rounds_that_follow_each_other_closely_leave_writers_their_turn",),
    ),
    Mutant(
        "a-drained-bookie-keeps-what-writers-left",
        "P11.3 AR08",
        "a drain waits for ever for a ledger that nobody writes to any more",
        ((_AUDITOR, "member in self.away.gone or member in self.leaving\n", "member in self.away.gone\n"),),
        (_TESTS + "a_ledger_that_its_writer_left_is_closed_for_a_bookie_that_is_drained",),
    ),
    Mutant(
        "no-mark-for-what-writers-left-on-a-drained-bookie",
        "P11.3 AR08",
        "the auditor knows that nobody closes the ledger, and no worker hears of it",
        ((_AUDITOR, "is_left=self.orphans.is_orphan(ledger_id, now_ns)", "is_left=False"),),
        (_TESTS + "a_ledger_that_its_writer_left_is_closed_for_a_bookie_that_is_drained",),
    ),
    Mutant(
        "a-mark-made-later-lacks-the-word",
        "P11.3 AR08",
        "a ledger without a mark counts as told, and stays so when it gets one",
        ((_AUDITOR, "            self.orphans.untell(ledger_id)\n", ""),),
        (_TESTS + "a_ledger_that_its_writer_left_is_closed_for_a_bookie_that_is_drained",),
    ),
    Mutant(
        "a-worker-closes-only-where-a-bookie-is-away",
        "P11.3 AR08",
        "the mark says that nobody closes the ledger, and the worker finds all of its bookies there",
        (
            (
                _REPAIR,
                "        return any(member not in staying for member in last.members if",
                "        return any(member not in self.bookies.there for member in last.members if",
            ),
        ),
        (_TESTS + "a_ledger_that_its_writer_left_is_closed_for_a_bookie_that_is_drained",),
    ),
    Mutant(
        "every-open-ledger-on-a-drained-bookie-is-marked",
        "P11.3 AR08",
        "a drain marks each ledger that is written to, though its writer moves the seat",
        ((_AUDITOR, "is_left=self.orphans.is_orphan(ledger_id, now_ns)", "is_left=True"),),
        (_TESTS + "a_living_writer_that_cannot_move_its_seat_from_a_drained_bookie_is_not_fenced",),
    ),
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
                _ORPHANS,
                "            when.append(Compare(living_path(left.writer), ABSENT))\n",
                "            pass\n",
            ),
        ),
        (_TESTS + "an_idle_writer_that_lives_is_never_fenced",),
    ),
    Mutant(
        "orphan-without-a-grace",
        "AR08",
        "a session that is lost for a moment counts as gone",
        ((_ORPHANS, "now_ns - since >= self.grace_ns", "now_ns >= since"),),
        (_TESTS + "a_writer_whose_session_comes_back_within_the_grace_is_never_fenced",),
    ),
    Mutant(
        "orphan-for-ever",
        "AR08",
        "the word in the mark stays, though the writer shows life again",
        (
            (
                _ORPHANS,
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
        ((_ORPHANS, "        left.told = None  # Perhaps: it is being written.\n", ""),),
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
    Mutant(
        "who-may-follow-no-further-key-dies-unsaid",
        "P8.5 P11.2",
        "a writer's client that followed too many keys for a moment never shows again that it lives",
        ((_LIVING, "        runtime.behind(_watch_later(runtime, prefix, changed))\n", "        pass\n"),),
        (
            "tests/scenarios/test_splicing.py::test_an_owner_that_may_follow_no_further_key_shows_that_it_lives_once_it_may",
        ),
    ),
)
