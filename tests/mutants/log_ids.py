"""Ids and names of logs, and logs that are deleted and come back (P8.12, P8.13)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_IDENTITY = "embedbk/client/log_identity.py"
_DELETING = "embedbk/client/log_deleting.py"
_NAMES = "embedbk/client/log_names.py"
_SCENE = "tests/scenarios/test_log_identity.py::test_"
_CHECK = "tests/scenarios/test_log_checking.py::test_"

MUTANTS = (
    Mutant(
        "log-check-believes-every-pointer",
        "P8.12",
        "a name that points to a log which is called otherwise is called sound",
        (
            (
                "embedbk/client/log_checking.py",
                "    if identity.name != log_id.called:\n",
                "    if not log_id.called:\n",
            ),
        ),
        (_CHECK + "a_name_that_points_to_a_log_which_does_not_say_so_is_found",),
    ),
    Mutant(
        "an-epoch-of-a-log-that-was-deleted",
        "P8.12",
        "a takeover does not compare the identity with its epoch",
        (("embedbk/core/log.py", "when = [*self.guard] if", "when = [] if"),),
        (_SCENE + "a_takeover_meets_a_rename_or_a_deletion_before_anybody_is_fenced",),
    ),
    Mutant(
        "a-log-made-over-one-from-below-the-level",
        "P8.12",
        "a log from below the level has no identity yet, and its name counts as free",
        (
            (
                _IDENTITY,
                "        if (listed is None and owner is None) or not carries:\n",
                "        if listed is None or listed is not None:\n",
            ),
            (
                _IDENTITY,
                "            return None  # From below the level, and not carried over yet.\n",
                "            continue\n",
            ),
        ),
        (_SCENE + "a_log_from_below_the_level_goes_on_as_it_is",),
    ),
    Mutant(
        "the-identity-of-an-old-log-goes",
        "P8.12",
        "an id that is a name is free again when its log has ended",
        ((_DELETING, "    if not is_minted(log_id):\n", "    if is_minted(log_id):\n"),),
        (_SCENE + "a_log_from_below_the_level_goes_on_as_it_is",),
    ),
    Mutant(
        "a-name-that-left-its-first-log-leads-there",
        "P8.12",
        "whoever finds no pointer takes the name for the id, also where that log is called otherwise",
        (
            (
                _IDENTITY,
                "            return None\n        # It has got",
                "            return name\n        # It has got",
            ),
        ),
        (_SCENE + "a_rename_leaves_nothing_behind_under_the_first_name",),
    ),
    Mutant(
        "an-untold-client-makes-a-second-log",
        "P8.12 P10.8",
        "below the level an epoch does not compare that the name points nowhere",
        (
            (
                _IDENTITY,
                "            return ClaimedLog(LogId(name, name), found)\n",
                "            return ClaimedLog(LogId(name, name), ())\n",
            ),
        ),
        (_SCENE + "who_was_not_told_of_the_level_makes_no_second_log",),
    ),
    Mutant(
        "a-rename-over-another-log",
        "P8.12 I104",
        "a rename does not compare that the new name is free",
        ((_IDENTITY, "transact([*found.when, *free], then, what)", "transact([*found.when], then, what)"),),
        (_SCENE + "of_a_rename_and_what_comes_between_one_sees_the_other[create]",),
    ),
    Mutant(
        "a-rename-of-what-was-renamed",
        "P8.12 I104",
        "a rename does not compare where the old name leads",
        ((_IDENTITY, "transact([*found.when, *free], then, what)", "transact([*free], then, what)"),),
        (_SCENE + "of_a_rename_and_what_comes_between_one_sees_the_other[rename]",),
    ),
    Mutant(
        "a-rename-that-was-not-heard-of-counts-as-done",
        "P2.2",
        "a rename of unknown outcome is taken for done",
        (
            (
                _IDENTITY,
                "        now is not None\n        and revision >",
                "        True\n        or revision >",
            ),
        ),
        (_SCENE + "a_rename_of_which_nobody_hears_is_told_by_the_identity[False]",),
    ),
    Mutant(
        "a-deletion-leaves-its-log-an-owner",
        "P8.13",
        "the owner's epoch stays, so that its writer rolls in a log that was deleted",
        (
            (
                _DELETING,
                "            Delete(log_owner_path(log_id)),\n",
                "",
            ),
        ),
        (_SCENE + "a_writer_that_lives_is_deleted_only_by_force_and_loses_nothing",),
    ),
    Mutant(
        "a-list-put-aside-protects-nothing",
        "P8.13 P8.3",
        "a ledger of a deleted log is deleted, and its log comes back without it",
        (
            (
                "embedbk/client/deleting.py",
                "    if await ListWalk(runtime, name).holding(log_list, ledger_id) is not None:\n",
                "    if log_list is None:\n",
            ),
        ),
        (_SCENE + "a_deleted_log_comes_back_as_it_was",),
    ),
    Mutant(
        "brought-back-behind-the-end",
        "P8.13",
        "an undelete does not compare the identity nor what is put aside: its ledgers are going",
        (
            (
                _DELETING,
                (
                    "            Compare(log_identity_path(log_id), revision),\n"
                    "            Compare(log_deleted_path(log_id), list_revision),\n"
                ),
                "",
            ),
        ),
        (_SCENE + "of_a_log_that_is_brought_back_and_forgotten_at_once_one_comes_to_pass",),
    ),
    Mutant(
        "ended-though-it-came-back",
        "P8.13",
        "whoever forgets does not compare the identity that it looked at",
        (
            (
                _DELETING,
                (
                    "            Compare(log_identity_path(log_id), revision),\n"
                    "            Compare(log_deleted_path(log_id), ABSENT"
                ),
                "            Compare(log_key_path('x'), ABSENT",
            ),
        ),
        (_SCENE + "of_a_log_that_is_brought_back_and_forgotten_at_once_one_comes_to_pass",),
    ),
    Mutant(
        "ended-before-its-grace",
        "P8.13",
        "a deleted log ends at once when somebody forgets",
        ((_DELETING, "identity.until_ms <= runtime.wall_ms()", "identity.until_ms > 0"),),
        (_SCENE + "a_deleted_log_comes_back_as_it_was",),
    ),
    Mutant(
        "a-deletion-that-was-cut-short-stays",
        "P8.13",
        "whoever forgets passes over logs whose end was begun by another",
        (
            (
                _DELETING,
                "        if not is_over and identity.state != LogIdentityState.ENDING:\n",
                "        if not is_over:\n",
            ),
        ),
        (_SCENE + "behind_its_grace_a_log_goes_with_all_that_is_its",),
    ),
    Mutant(
        "a-name-of-others-by-force",
        "P8.13 I104",
        "a log is brought back under a name that another one got meanwhile",
        ((_DELETING, "transact([*when, *free], then, what)", "transact([*when], then, what)"),),
        (_SCENE + "a_log_is_not_brought_back_over_one_that_is_made_beside_it",),
    ),
    Mutant(
        "who-watches-logs-misses-old-ones",
        "P8.12 P10.8",
        "a log that is made below the level is no news",
        ((_NAMES, "        if is_first or now != self._listed:\n", "        if is_first:\n"),),
        (_SCENE + "logs_are_watched_by_what_is_there",),
    ),
)
