"""Settings of logs, and owners that follow them and keep retention (P8.7, P8.8)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_SETTINGS = "embedbk/client/log_settings.py"
_BOUNDING = "embedbk/client/bounding.py"
_KEEPING = "embedbk/client/keeping.py"
_JUDGE = "embedbk/core/truncation.py"

_FACE = "tests/scenarios/test_log_settings.py::test_"

MUTANTS = (
    Mutant(
        "an-argument-wins-over-a-setting",
        "P8.7",
        "a writer whose argument differs from a setting takes the log over all the same",
        ((_SETTINGS, "    if differing:\n", "    if differing and not runtime:\n"),),
        (_FACE + "an_argument_that_differs_from_a_setting_is_refused_before_anybody_is_fenced",),
    ),
    Mutant(
        "arguments-differ-from-what-they-have-become",
        "P8.7",
        "an age that is no whole number of ms is refused by the setting that was made of it",
        ((_SETTINGS, "_as_kept(ours) != _as_kept(theirs)", "ours != theirs"),),
        (_FACE + "arguments_are_what_they_have_become",),
    ),
    Mutant(
        "nobodys-arguments-become-settings",
        "P8.7",
        "what the first writer of a log was given is forgotten",
        (
            (
                _SETTINGS,
                "Compare(log_settings_path(name), ABSENT), Compare(log_owner_path(name), epoch)]",
                "Compare(log_settings_path(name), 7), Compare(log_owner_path(name), epoch)]",
            ),
        ),
        (_FACE + "of_a_log_without_settings_the_first_writers_arguments_become_them",),
    ),
    Mutant(
        "settings-are-written-over",
        "P8.7",
        "a change does not compare the settings that it was made from",
        (
            (
                _SETTINGS,
                "        if revision is not None and at != revision:\n",
                "        if revision is not None and at < 0:\n",
            ),
        ),
        (_FACE + "settings_are_changed_by_compare_and_set",),
    ),
    Mutant(
        "an-owner-does-not-look",
        "P8.7",
        "an owner stays with the settings that it was opened by",
        (
            (
                _KEEPING,
                "        if await _follow(line, record):\n",
                "        if revision < 0 and await _follow(line, record):\n",
            ),
        ),
        (_FACE + "an_owner_follows_a_change_at_its_next_entry",),
    ),
    Mutant(
        "an-owner-looks-once",
        "P8.7",
        "what could not be followed yet counts as followed",
        ((_KEEPING, "    return _made_by(line) == wanted\n", "    return True\n"),),
        (_FACE + "an_empty_ledger_stays_until_something_is_in_it",),
    ),
    Mutant(
        "retention-by-either",
        "P8.8",
        "retention lets go of what only its size allows",
        (
            (
                _BOUNDING,
                "    await truncate(reading, None, older_than_s, keep_bytes, may_do_nothing=True, ",
                "    await truncate(reading, None, None, keep_bytes or 0, may_do_nothing=True, ",
            ),
        ),
        (_FACE + "retention_is_off_and_kept_by_the_owner_when_it_is_on",),
    ),
    Mutant(
        "retention-passes-cursors",
        "P8.8 I101",
        "retention goes past cursors that hold",
        (
            (
                _BOUNDING,
                "keep_bytes, may_do_nothing=True, ",
                "keep_bytes, may_do_nothing=True, force=True, ",
            ),
        ),
        (_FACE + "retention_is_off_and_kept_by_the_owner_when_it_is_on",),
    ),
    Mutant(
        "nobody-keeps-retention",
        "P8.8",
        "an owner does not truncate by its log's settings",
        ((_KEEPING, "    if record.has_retention and ", "    if revision < 0 and "),),
        (_FACE + "retention_is_off_and_kept_by_the_owner_when_it_is_on",),
    ),
    Mutant(
        "an-empty-log-is-truncated-for-ever",
        "P8.8",
        "a truncation of a log that nobody wrote to has no end",
        ((_JUDGE, "    if not window:\n", "    if len(window) < 0:\n"),),
        (_FACE + "a_log_that_nobody_wrote_to_is_empty_and_there",),
    ),
    Mutant(
        "renewal-without-sizes-puts-settings-back",
        "P8.7",
        "a change of a log's sizes is undone by its owner, which renewed by the setting of before",
        (
            (
                "embedbk/client/log_writer.py",
                "    if (ensemble_size, write_quorum, ack_quorum) != (None, None, None):\n",
                "    if True:\n",
            ),
        ),
        (_FACE + "a_renewal_that_asks_for_no_sizes_changes_no_setting",),
    ),
    Mutant(
        "renewal-that-was-done-looks-like-none",
        "P8.7",
        "who renews hears that nobody answered, and not that the new ledger is there without its sizes as the setting",
        (
            (
                "embedbk/client/log_writer.py",
                "        except EmbedbkError as failed:\n            sizes",
                "        except MemoryError as failed:\n            sizes",
            ),
        ),
        (_FACE + "a_renewal_whose_sizes_do_not_become_the_setting_says_that_it_was_done",),
    ),
)
