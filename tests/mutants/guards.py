"""Guards of an application's own resources (P9.3)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_GUARDS = "embedbk/guards.py"
_TESTS = "tests/faces/test_guards.py::test_"

MUTANTS = (
    Mutant(
        "guard-takes-any-epoch",
        "P9.3",
        "a file is replaced under an epoch below the highest",
        (
            (
                _GUARDS,
                "            if epoch < highest:\n                raise _stale(str(self.path)",
                "            if False:\n                raise _stale(str(self.path)",
            ),
        ),
        (_TESTS + "a_file_is_replaced_whole_and_by_the_newest_only",),
    ),
    Mutant(
        "guard-notes-the-epoch-behind-the-act",
        "P9.3",
        "a function whose call fails has not met the epoch of that call",
        (
            (
                _GUARDS,
                "                self._highest = epoch\n            return self._act(*arguments, **named)",
                "                pass\n            self._act(*arguments, **named)\n            self._highest = epoch",
            ),
        ),
        (_TESTS + "an_epoch_is_kept_before_anything_is_done_under_it",),
    ),
    Mutant(
        "guard-looks-outside-the-lock",
        "P9.3",
        "a file is compared and replaced without keeping other processes out",
        (
            (
                _GUARDS,
                "                fcntl.flock(lock, fcntl.LOCK_EX | (0 if self._timeout_s is None else fcntl.LOCK_NB))",
                "                pass",
            ),
        ),
        (_TESTS + "a_file_that_another_holds_is_waited_for_and_never_taken",),
    ),
    Mutant(
        "guard-holds-as-long-as-a-child-lives",
        "P9.3",
        "a file stays held behind its act where a child of a fork has it open",
        ((_GUARDS, "            if os.getpid() == holder:\n", "            if False:\n"),),
        (_TESTS + "a_file_is_let_go_though_a_child_lives_on",),
    ),
    Mutant(
        "guard-forgets-the-epoch-of-a-file",
        "P9.3",
        "the note of a file's epoch is not written",
        ((_GUARDS, "                self._note.keep(_EPOCH.pack(epoch))", "                pass"),),
        (_TESTS + "a_file_is_replaced_whole_and_by_the_newest_only",),
    ),
    Mutant(
        "guard-of-a-row-compares-nothing",
        "P9.3",
        "the row takes any epoch",
        ((_GUARDS, " WHERE resource = {} AND epoch <= {}", " WHERE resource = {} AND {} > 0"),),
        (_TESTS + "a_transaction_is_committed_with_its_epoch_or_not_at_all",),
    ),
    Mutant(
        "guard-of-a-row-takes-not-counted-for-changed",
        "P9.3",
        "a driver that cannot tell how many rows were changed is believed to have changed one",
        ((_GUARDS, "        if cursor.rowcount == 1:", "        if cursor.rowcount:"),),
        (_TESTS + "a_driver_that_does_not_count_rows_is_refused",),
    ),
    Mutant(
        "guard-of-a-row-without-a-transaction",
        "P9.3",
        "each statement is committed by itself, and what is done under an epoch comes behind the look at it",
        (
            (
                _GUARDS,
                "        if _commits_alone(connection):",
                "        if False:",
            ),
        ),
        (_TESTS + "a_connection_without_a_transaction_is_refused",),
    ),
)
