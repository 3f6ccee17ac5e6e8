"""The placement of a bookie: who raises it, who compares it (P10.6)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_REGISTERING = "embedbk/host/registering.py"
_NAMING = "embedbk/core/naming.py"

_RULES = "tests/rules/test_p10_placement.py::test_"
_LISTED = "tests/host/test_placements.py::test_"
_BESIDE = "tests/scenarios/test_read_only_beside_a_choice.py::test_"

MUTANTS = (
    Mutant(
        "a-creation-compares-no-placement",
        "P10.6",
        "a ledger is made on a bookie that went read-only since it was chosen",
        (
            (
                "embedbk/core/creation.py",
                "        when = [Compare(key, ABSENT), *self.naming",
                "        when = [Compare(key, ABSENT)] or [*self.naming",
            ),
        ),
        (_RULES + "a_creation_does_not_land_on_a_bookie_that_went_read_only_behind_the_choice",),
    ),
    Mutant(
        "a-change-compares-no-placement",
        "P10.6",
        "an ensemble change seats a bookie that went read-only since it was chosen",
        (
            (
                "embedbk/core/publishing.py",
                "[Compare(key, revision), *placements]",
                "[Compare(key, revision), *(placements if proposed.is_closed else [])]",
            ),
        ),
        (_BESIDE + "an_ensemble_change_seats_another_one",),
    ),
    Mutant(
        "a-change-is-sent-again-for-an-older-read",
        "P10.6 P2.2",
        "a change that was refused is sent again for what was read before it",
        (("embedbk/core/publishing.py", "_open([]) if self.naming.is_asking else ", ""),),
        (_RULES + "what_was_read_before_a_change_was_refused_does_not_send_it_again",),
    ),
    Mutant(
        "a-close-compares-no-placement",
        "P10.6",
        "a recovery closes with a bookie that went read-only since it was chosen",
        (
            (
                "embedbk/core/publishing.py",
                "[Compare(key, revision), *placements]",
                "[Compare(key, revision), *([] if proposed.is_closed else placements)]",
            ),
        ),
        (_RULES + "recovery_closes_on_nobody_who_went_read_only_behind_the_choice",),
    ),
    Mutant(
        "who-is-brought-back-compares-no-placement",
        "P10.6",
        "a ledger comes back on bookies of which nobody looked whether they are to be removed",
        (("embedbk/client/deleting.py", "transact([*when, *placements], then", "transact([*when], then"),),
        (_BESIDE + "a_ledger_is_brought_back_beside_a_bookie_that_goes_read_only",),
    ),
    Mutant(
        "read-only-raises-nothing",
        "P10.6",
        "a bookie is listed as read-only, and whoever chose it before names it all the same",
        (
            (
                _REGISTERING,
                "            if not is_writable and not was_raised and not note.takes_nothing_new:\n",
                "            if is_writable and not was_raised and False:\n",
            ),
        ),
        (_LISTED + "read_only_raises_it_once_and_writable_shows_the_new_one",),
    ),
    Mutant(
        "each-word-of-a-read-only-bookie-raises-it",
        "P10.6",
        "a read-only bookie raises its placement each time it tells how much is durable: a removal never ends",
        ((_REGISTERING, "not is_writable and not was_raised and", "not is_writable and"),),
        (_LISTED + "read_only_raises_it_once_and_writable_shows_the_new_one",),
    ),
    Mutant(
        "the-build-before-counts-as-raised",
        "P10.6 P10.8",
        "a registration of a build that raises nothing is taken for one behind a raise",
        ((_REGISTERING, "not there.is_writable and there.placement is not None", "not there.is_writable"),),
        (_LISTED + "behind_a_registration_of_the_build_before_it_is_raised",),
    ),
    Mutant(
        "no-room-for-a-placement-no-bookie",
        "P10.6 P10.7",
        "a bookie that finds no room for its placement in a full catalog is never listed",
        (
            (
                _REGISTERING,
                '                go_on(now_ns, None, b"")\n',
                "                self._again(now_ns)\n",
            ),
        ),
        (_LISTED + "in_a_full_catalog_a_bookie_without_one_is_listed_without",),
    ),
    Mutant(
        "a-newer-list-revives-a-choice",
        "P10.6",
        "a change that never lands is sent again, as the bookie that it names left the list meanwhile",
        (
            (
                _NAMING,
                "{*map(self._key_of, bookies), *self._compared.items()}",
                "set(map(self._key_of, bookies))",
            ),
        ),
        (
            _RULES
            + "a_change_that_never_lands_is_not_sent_again_though_a_newer_list_does_not_show_its_choice",
        ),
    ),
    Mutant(
        "an-outdated-choice-is-made-again",
        "P10.6",
        "who was found to have gone is chosen again from the same list, without end",
        (
            (
                _NAMING,
                "        if not self._outdated:\n            return bookies\n",
                "        if self is not None:\n            return bookies\n",
            ),
        ),
        (_RULES + "a_creation_for_which_too_few_are_left_says_so_and_made_nothing",),
    ),
)
