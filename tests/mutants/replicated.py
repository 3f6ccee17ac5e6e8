"""States on several nodes: when a command is applied, who leads, which snapshot counts, what SQLite may run."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_REPLICA = "embedbk/replicated/replica.py"
_SNAPSHOTS = "embedbk/replicated/snapshots.py"
_SQLITE = "embedbk/replicated/sqlite.py"
_STATEMENTS = "embedbk/replicated/statements.py"
_TESTS = "tests/replicated/test_replicated.py::test_"
_IDENTITY = "tests/replicated/test_identity.py::test_"

MUTANTS = (
    Mutant(
        "who-heard-nothing-leads-on",
        "P3.6",
        "a leader appends behind a command of which nobody knows whether it counts, and its state lacks it",
        ((_REPLICA, "                self.ended = error\n", "                pass\n"),),
        (_TESTS + "who_does_not_hear_what_became_of_a_command_leads_no_more",),
    ),
    Mutant(
        "a-command-is-refused-behind-its-append",
        "P8.1",
        "a command counts that its caller was told was refused, and the state of the copy that leads on lacks it",
        (
            (
                _REPLICA,
                '        check_seconds(timeout_s, "timeout_s")\n        refuse_in',
                "        refuse_in",
            ),
        ),
        (_TESTS + "a_command_with_a_time_that_is_none_does_nothing",),
    ),
    Mutant(
        "a-command-is-queued-in-an-event-loop",
        "P8.1",
        "as above, where a coroutine calls it",
        ((_REPLICA, '        refuse_in_event_loop("this call by asyncio.to_thread")\n', ""),),
        (_TESTS + "a_command_that_would_block_an_event_loop_does_nothing",),
    ),
    Mutant(
        "a-leader-begins-before-it-has-read",
        "P8.1",
        "a new leader's state lacks what the one before was told was done",
        ((_REPLICA, "                self._apply_all(writer.first_offset)\n", ""),),
        (_TESTS + "a_leader_has_applied_what_every_leader_before_was_told_was_done",),
    ),
    Mutant(
        "a-failed-copy-goes-on",
        "P8.1",
        "a copy that failed at a command applies the ones behind it, and is another state than all others",
        ((_REPLICA, "            self._broken = error\n", "            pass\n"),),
        (_TESTS + "a_copy_that_failed_at_a_command_says_so_and_another_goes_on",),
    ),
    Mutant(
        "barriers-are-commands",
        "P8.1",
        "machines are given the empty entries of confirmations",
        ((_REPLICA, "if len(entry) > len(_BARRIER):", "if len(entry) >= len(_BARRIER):"),),
        (_TESTS + "reads_behind_a_confirmation_are_linearizable",),
    ),
    Mutant(
        "the-later-hand-counts",
        "P8.8",
        "a leader that slept in its checkpoint puts an older state in the place of a newer one",
        (
            (_SNAPSHOTS, "if there is None or there.offset < offset:", "if there is None or offset:"),
            (_SNAPSHOTS, "key=lambda each: each.offset", "key=lambda each: each.end.begins"),
        ),
        (
            _TESTS + "the_later_state_counts_and_not_the_later_hand",
            _TESTS + "parts_that_look_like_an_end_are_none",
        ),
    ),
    Mutant(
        "any-last-entry-ends-a-snapshot",
        "P8.8",
        "a part of a state is taken for the end of a snapshot",
        ((_SNAPSHOTS, "            if entry.data[:1] != _CONTROL:\n                return None\n", ""),),
        (_TESTS + "parts_that_look_like_an_end_are_none",),
    ),
    Mutant(
        "parts-are-not-checked",
        "I7",
        "a copy becomes a state that nobody saved",
        (
            (
                _SNAPSHOTS,
                "if (count, digest.digest()) != (found.end.parts, found.end.digest):",
                "if count != found.end.parts:",
            ),
        ),
        (_TESTS + "parts_that_look_like_an_end_are_none",),
    ),
    Mutant(
        "the-log-goes-before-the-snapshot",
        "P8.8",
        "a copy that begins finds a log that begins too late, and no snapshot",
        (
            (
                _REPLICA,
                (
                    "        found = replica._snapshots.write(offset, machine.save(), machine.log_id)\n        try:\n"
                    "            self._writer.roll()\n"
                ),
                (
                    "        self._writer.roll()\n        replica._log.truncate(offset, may_do_nothing=True)\n"
                    "        found = replica._snapshots.write(offset, machine.save(), machine.log_id)\n        try:\n"
                    "            pass\n"
                ),
            ),
        ),
        (_TESTS + "a_snapshot_that_was_cut_short_counts_for_nothing",),
    ),
    Mutant(
        "defaults-of-columns-are-not-looked-at",
        "P8.1",
        "each copy has its own time in a column whose default is a clock",
        (
            (
                _STATEMENTS,
                "    for (default,) in found:\n",
                "    for (default,) in found[:0]:\n",
            ),
        ),
        (_TESTS + "what_may_do_something_else_elsewhere_is_refused",),
    ),
    Mutant(
        "the-offset-is-committed-by-itself",
        "P8.1",
        "a crash between two local commits applies a transaction twice",
        (
            (
                _SQLITE,
                '        self.file.execute(f"DELETE FROM {OFFSET_TABLE}")\n',
                (
                    '        self.file.execute("COMMIT")\n        self.file.execute("BEGIN")\n'
                    '        self.file.execute(f"DELETE FROM {OFFSET_TABLE}")\n        self.file.execute("ROLLBACK")\n'
                    '        self.file.execute("BEGIN")\n'
                ),
            ),
        ),
        (_TESTS + "a_file_that_dies_inside_its_commit_has_all_of_it_or_nothing",),
    ),
    Mutant(
        "the-leader-runs-what-it-was-given",
        "P8.1",
        "a list that changes behind the call, or an adapter of the leader's process, gives its file other values than "
        "the log has",
        (
            (
                _SQLITE,
                "statements.attempt(file, *statements.decoded(statement))",
                "statements.attempt(file, sql, values)",
            ),
        ),
        (_TESTS + "every_file_gets_the_values_that_the_log_has",),
    ),
    Mutant(
        "a-failed-statement-leaves-its-rows",
        "P8.1",
        "the leader's file has rows of a statement that failed and is in no entry",
        (
            (
                _STATEMENTS,
                '            file.execute(f"ROLLBACK TO {OFFSET_TABLE}")\n',
                "            pass\n",
            ),
        ),
        (_TESTS + "of_a_statement_that_failed_nothing_is_left",),
    ),
    Mutant(
        "a-transaction-goes-on-behind-its-rollback",
        "P8.1",
        "what was rolled back is appended, and the leader's file lacks it",
        (
            (
                _SQLITE,
                "            if not is_open or not file.in_transaction:\n",
                "            if not is_open:\n",
            ),
        ),
        (_TESTS + "a_transaction_that_a_statement_rolled_back_is_over",),
    ),
    Mutant(
        "a-table-is-made-where-the-text-begins-with-it",
        "P8.1",
        "a comment in front of a statement hides a default of chance, and each copy has its own rows",
        (
            (
                _STATEMENTS,
                "        if is_new and has_columns:\n",
                '        if is_new and sql.lstrip()[:6].upper() in ("CREATE", "ALTER "):\n',
            ),
        ),
        (_TESTS + "what_may_do_something_else_elsewhere_is_refused",),
    ),
    Mutant(
        "the-offset-may-have-a-trigger",
        "P8.1",
        "a trigger of the table that no statement may change does what the commit asks nobody about",
        (
            (
                _STATEMENTS,
                "name = str(second if action in _NAMED_SECOND else what)",
                "name = str(what or second)",
            ),
        ),
        (_TESTS + "what_may_do_something_else_elsewhere_is_refused",),
    ),
    Mutant(
        "a-read-sets-what-commands-do-here",
        "P8.1",
        "a pragma that a read sets makes statements do in one copy what they do in no other",
        (
            (
                _STATEMENTS,
                "        if action not in _ENDURING and not sets:\n",
                "        if action not in _ENDURING:\n",
            ),
        ),
        (_TESTS + "a_read_leaves_the_copy_as_it_is",),
    ),
    Mutant(
        "who-was-interrupted-leads-on",
        "P3.6",
        "a leader goes on behind a command that a signal cut off: it is in the log, and not in its state",
        ((_REPLICA, "        self.ended = interrupted\n", ""),),
        (_TESTS + "who_is_interrupted_in_a_command_leads_no_more",),
    ),
    Mutant(
        "confirmations-are-news-for-ever",
        "L12",
        "a copy behind a confirmation never waits, and asks without end",
        ((_REPLICA, "                        self._read_to = entry.offset + 1\n", ""),),
        (_TESTS + "who_follows_waits_behind_confirmations",),
    ),
    Mutant(
        "a-state-goes-on-with-another-log",
        "P8.12",
        "a copy applies the commands of a log that was begun anew to the state of the former one",
        (
            (
                _REPLICA,
                '            raise self._other(f"log {log_id} has that name")\n',
                "            machine.log_id = log_id\n",
            ),
        ),
        (_IDENTITY + "a_copy_does_not_go_on_with_another_log_of_the_name",),
    ),
    Mutant(
        "a-snapshot-of-another-log-counts",
        "P8.12",
        "a copy begins with the state of a log that was deleted",
        ((_SNAPSHOTS, "                self._check_log(each, log_id)\n", "                pass\n"),),
        (_IDENTITY + "a_snapshot_of_another_log_is_refused",),
    ),
    Mutant(
        "a-state-that-names-no-log-is-of-any",
        "P8.12",
        "a file of the build before goes on with a log that does not reach its offset",
        ((_REPLICA, "        elif is_whole:\n", "        elif not is_whole:\n"),),
        (_IDENTITY + "a_file_of_the_build_before_learns_its_log_where_its_place_fits",),
    ),
    Mutant(
        "a-load-forgets-the-log",
        "P8.12",
        "a copy that loaded a snapshot of the build before does not know of which log its state is",
        ((_SQLITE, "                _put_log(saved, self.log_id)\n", ""),),
        (_IDENTITY + "a_file_keeps_its_log_through_a_load",),
    ),
)
