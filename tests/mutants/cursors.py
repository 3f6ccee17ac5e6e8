"""Durable cursors of logs (P8.8): what they hold, who commits, whom a consumer obeys."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_JUDGE = "embedbk/core/truncation.py"
_TRUNCATING = "embedbk/core/truncating.py"
_COMMIT = "embedbk/core/cursor_commit.py"
_CURSORS = "embedbk/client/cursors.py"
_CONSUMING = "embedbk/client/consuming.py"
_CONSUMER = "embedbk/client/consumer.py"
_DELETING_LOGS = "embedbk/client/log_deleting.py"

_RULE = "tests/rules/test_p8_cursors.py::test_"
_FACE = "tests/scenarios/test_cursors.py::test_"

MUTANTS = (
    Mutant(
        "a-cursor-holds-nothing",
        "P8.8 I101",
        "a truncation goes past cursors that hold, and says nothing of them",
        (
            (
                _JUDGE,
                "            if why is None and holder.name not in ended:\n",
                "            if why == 7:\n",
            ),
        ),
        (
            _RULE + "which_ledgers_a_cursor_holds",
            _FACE + "a_cursor_that_holds_is_not_passed_and_one_that_does_not_is[pages]",
        ),
    ),
    Mutant(
        "the-ledger-that-a-cursor-is-in-goes",
        "P8.8 I101",
        "a ledger goes although the cursor stands inside of it",
        ((_JUDGE, "            if holder.offset >= end:\n", "            if holder.offset + 1 >= end:\n"),),
        (_RULE + "which_ledgers_a_cursor_holds",),
    ),
    Mutant(
        "a-hold-ends-at-its-bound",
        "P8.8",
        "a cursor holds no more when as many bytes are behind it as it was told, and not when more are",
        ((_JUDGE, "bytes_behind > holder.bytes_behind:", "bytes_behind >= holder.bytes_behind:"),),
        (_RULE + "which_ledgers_a_cursor_holds",),
    ),
    Mutant(
        "cursors-that-come-between-are-passed",
        "P8.8 I101",
        "the transaction that truncates compares no cursors",
        (
            (
                _TRUNCATING,
                "            Compare(log_cursors_path(self.name), self.cursors_revision),\n",
                "",
            ),
        ),
        (_RULE + "a_cursor_that_comes_between_holds",),
    ),
    Mutant(
        "a-hold-ends-in-silence",
        "P8.8 I101",
        "what a truncation takes from a cursor is put down nowhere",
        ((_TRUNCATING, "        if ended:\n", "        if ended == 7:\n"),),
        (
            _FACE + "a_cursor_that_holds_is_not_passed_and_one_that_does_not_is[pages]",
            _RULE + "an_idle_cursor_that_moves_just_then_is_looked_at_again",
        ),
    ),
    Mutant(
        "an-idle-cursor-is-judged-by-yesterday",
        "P8.8",
        "a hold ends by time although its cursor was moved since anybody looked",
        (
            (
                _TRUNCATING,
                "[Compare(cursor_path(self.name, each), self.holders[each][1]) for each in ended]",
                "[]",
            ),
        ),
        (_RULE + "an_idle_cursor_that_moves_just_then_is_looked_at_again",),
    ),
    Mutant(
        "a-cursor-that-stands-nowhere-holds-nothing",
        "P2.5 P8.8",
        "a cursor that is named and cannot be found is passed",
        (
            (
                _TRUNCATING,
                "            return self._pause(event)  # Deleted since it was named.\n",
                "            return self._read_front()\n",
            ),
        ),
        (_FACE + "a_cursor_that_is_named_and_stands_nowhere_stops_truncation_and_nothing_else[pages]",),
    ),
    Mutant(
        "who-lost-the-lease-commits",
        "P8.8 P9.1 I102",
        "a commit does not compare the lease",
        (
            (
                _COMMIT,
                "when = [Compare(path, self.revision), Compare(self.lease_key, self.epoch)]",
                "when = [Compare(path, self.revision)]",
            ),
        ),
        (_RULE + "who_lost_the_lease_commits_nothing[nobody]",),
    ),
    Mutant(
        "a-commit-writes-over-a-move",
        "P8.8",
        "a commit does not compare the cursor: where somebody put it is lost",
        (
            (
                _COMMIT,
                "when = [Compare(path, self.revision), Compare(self.lease_key, self.epoch)]",
                "when = [Compare(self.lease_key, self.epoch)]",
            ),
        ),
        (
            _RULE + "a_cursor_that_was_set_by_hand_is_obeyed_and_stays",
            _FACE + "a_commit_that_meets_a_move_is_not_made[pages]",
        ),
    ),
    Mutant(
        "an-unknown-commit-counts-as-done",
        "P2.2 P8.8",
        "a commit whose outcome nobody knows is told as one that was made",
        (
            (
                _COMMIT,
                "        self.is_unknown = True\n        return self._look()\n",
                "        self.is_unknown = True\n        return self._done(self.revision)\n",
            ),
        ),
        (_RULE + "a_commit_of_unknown_outcome_is_settled_by_what_stands_there[False]",),
    ),
    Mutant(
        "a-refused-commit-is-the-end-of-the-lease",
        "P2.2 P8.8",
        "a commit that was refused beside an earlier one of its own is taken for another consumer's",
        (
            (
                _COMMIT,
                "        if event.value == encode_cursor(self.record):\n",
                "        if event.value == b'':\n",
            ),
            (
                _COMMIT,
                "        if event.revision != self.revision and record.epoch == self.epoch:\n",
                "        if event.revision != self.revision and record.epoch == -1:\n",
            ),
            (
                _COMMIT,
                "        if event.value is None or event.revision != self.epoch:\n",
                "        if event.value is None or self.revision >= 0:\n",
            ),
        ),
        (_RULE + "a_commit_of_unknown_outcome_is_settled_by_what_stands_there[True]",),
    ),
    Mutant(
        "a-cursor-goes-back-unseen",
        "P8.8 I101",
        "a cursor that goes back compares and changes nothing but itself",
        ((_CURSORS, " or cursor != wanted or offset < record.offset:", " or cursor != wanted:"),),
        (_FACE + "a_cursor_that_comes_or_goes_back_beside_a_truncation_is_seen_or_sees_it[pages]",),
    ),
    Mutant(
        "a-cursor-comes-without-the-list",
        "P8.8 I101",
        "a cursor that goes back does not compare the list: it holds what is gone already",
        ((_CURSORS, "                    Compare(log_key_path(reading.name), list_revision),\n", ""),),
        (_FACE + "a_cursor_that_comes_or_goes_back_beside_a_truncation_is_seen_or_sees_it[pages]",),
    ),
    Mutant(
        "a-hold-that-ended-does-not-come-back",
        "P8.8",
        "a cursor that was passed, and is put elsewhere, holds nothing although it says so",
        ((_CURSORS, " or cursor != wanted or offset < record.offset:", " or offset < record.offset:"),),
        (_FACE + "a_cursor_that_holds_is_not_passed_and_one_that_does_not_is[pages]",),
    ),
    Mutant(
        "a-running-consumer-goes-its-way",
        "P8.8",
        "a consumer that runs does not obey a cursor that another moves",
        (
            (
                _CONSUMING,
                "            if record.epoch == 0:\n",
                "            if record.epoch == -1:\n",
            ),
        ),
        (_FACE + "a_consumer_obeys_a_cursor_that_another_moves[pages]",),
    ),
    Mutant(
        "what-is-given-out-counts-as-consumed",
        "P8.8",
        "entries count as consumed when they are handed out: who dies at one of them skips it",
        (
            (
                _CONSUMING,
                "            self._wanted = first + located.frame.entry_count\n",
                "            self._wanted = self._consumed = first + located.frame.entry_count\n",
            ),
        ),
        (_FACE + "a_consumer_goes_on_behind_what_was_committed[pages]",),
    ),
    Mutant(
        "a-waiting-consumer-commits-nothing",
        "P8.8",
        "what was consumed is not committed as long as nothing new comes",
        ((_CONSUMING, "self._due_s if self._consumed > self._committed else math.inf", "math.inf"),),
        (_FACE + "what_was_consumed_is_committed_while_the_loop_waits[pages]",),
    ),
    Mutant(
        "what-the-loop-was-at-counts-behind-a-move",
        "P8.8",
        "a commit in the loop finds the cursor moved, and the loop goes on where it was and commits that",
        ((_CONSUMING, "        if not self._is_elsewhere:\n", "        if True:\n"),),
        (_FACE + "a_commit_in_the_loop_that_meets_a_move_goes_on_there[pages-0]",),
    ),
    Mutant(
        "an-exception-commits",
        "P8.8",
        "a block that is left by an exception commits all that its loop went past",
        (
            (
                _CONSUMER,
                "            self._consuming.let_go()\n",
                '            run_blocking(self._consuming.end(), "aio.Consumer")\n',
            ),
        ),
        (_FACE + "an_exception_commits_nothing_more[pages]",),
    ),
    Mutant(
        "a-dead-lease-is-a-lease",
        "P8.8 P9.3",
        "a consumer whose session ended goes on giving out entries",
        ((_CONSUMING, "        if lease.hold.ended:\n", "        if lease.hold.ended == 'x':\n"),),
        (_FACE + "a_consumer_that_slept_commits_nothing_and_is_told[pages]",),
    ),
    Mutant(
        "the-cursors-of-a-deleted-log-stay",
        "P8.3 P8.8",
        "a log is deleted without its cursors",
        (
            (
                _DELETING_LOGS,
                "        *(Delete(cursor_path(name, cursor.name)) for cursor in cursors),\n",
                "",
            ),
        ),
        (_FACE + "a_log_has_a_bounded_number_of_cursors[pages]",),
    ),
    Mutant(
        "a-pin-that-nobody-can-read",
        "P8.8",
        "an offset that no value holds is put among the pins, which nobody reads or changes again",
        (
            (
                "embedbk/client/log_places.py",
                "            if not _is_number(place, 0):\n",
                "            if not isinstance(place, int) or place < 0:\n",
            ),
        ),
        ("tests/faces/test_bad_input.py::test_what_no_list_of_pins_or_cursors_could_hold_is_not_put_there",),
    ),
    Mutant(
        "lag-in-time-of-what-was-truncated",
        "P8.8 P8.11",
        "the time of an entry that is gone is asked for, so that how far a cursor is behind is not known",
        ((_CURSORS, "each.offset: max(each.offset, end.begins)", "each.offset: each.offset"),),
        (_FACE + "lag_is_told_in_time",),
    ),
    Mutant(
        "lag-in-time-that-nobody-tells-is-none",
        "P8.8",
        "an entry behind a cursor that cannot be read counts as appended just now",
        ((_CURSORS, "times.get(oldest[state.offset]) if", "times.get(oldest[state.offset], now_ms) if"),),
        (_FACE + "lag_is_told_in_time",),
    ),
)
