"""Bounds of the bytes of logs (P8.8)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_BOUNDING = "embedbk/client/bounding.py"
_APPENDING = "embedbk/client/appending.py"
_RENEWING = "embedbk/client/renewing.py"
_JUDGE = "embedbk/core/truncation.py"
_CORE = "embedbk/core/truncating.py"

_FACE = "tests/scenarios/test_log_bound.py::test_"
_RULES = "tests/rules/test_p8_truncating.py::test_"

MUTANTS = (
    Mutant(
        "a-new-bound-leaves-the-rolls-as-they-are",
        "P8.8 I106",
        "an owner that a splice tells of a bound looks at it only at its keeper's next round",
        (
            (
                _RENEWING,
                "            self.roll_by(self._asked_roll)\n",
                "",
            ),
        ),
        (_FACE + "an_owner_that_learns_of_a_bound_keeps_to_it_at_once",),
    ),
    Mutant(
        "a-bound-is-not-kept",
        "P8.8 I106",
        "an owner appends behind the bound of its log",
        (
            (
                _BOUNDING,
                "                appending.shut_out(self.refused)\n",
                "                appending.let_in()\n",
            ),
        ),
        (_FACE + "at_its_bound_a_log_refuses_appends_and_says_what_holds_it",),
    ),
    Mutant(
        "ledgers-that-were-left-count-nothing",
        "P8.8 I106",
        "an owner counts the ledger of now and what it once read of the list, and nothing of what it left since",
        (
            (
                _BOUNDING,
                "            self._unrecorded[before.ledger_id] = before.writing.packer.length\n",
                "            self._unrecorded[before.ledger_id] = 0\n",
            ),
        ),
        (_FACE + "at_its_bound_a_log_refuses_appends_and_says_what_holds_it",),
    ),
    Mutant(
        "the-next-owner-counts-from-nothing",
        "P8.8 I106",
        "an owner does not count what was there when it took the log over",
        (
            (
                _BOUNDING,
                "        self._recorded = tenure.recorded_bytes  # Bytes by the list, as last looked at.\n",
                "        self._recorded = 0\n",
            ),
        ),
        (_FACE + "the_next_owner_counts_what_is_there",),
    ),
    Mutant(
        "runs-pass-the-bound",
        "P8.8 I106",
        "calls that append many are not refused",
        (
            (
                _APPENDING,
                "        if self.bar is not None and not self.is_over and self.is_barred(has_begun=has_begun):\n",
                "        if self.bar is not None and self.ledger_id < 0 and self.is_barred(has_begun=has_begun):\n",
            ),
        ),
        (_FACE + "every_way_to_append_meets_the_bound",),
    ),
    Mutant(
        "a-full-log-stays-full",
        "P8.8",
        "refused appends do not have the list looked at again",
        (
            (
                _BOUNDING,
                "            elif self._full_since_s is not None and since_s < _AGAIN_S:\n",
                "            elif self._full_since_s is not None:\n",
            ),
        ),
        (_FACE + "appends_go_on_once_there_is_room",),
    ),
    Mutant(
        "who-cannot-look-finds-room",
        "P8.8",
        "settings that cannot be read are no bound",
        (
            (
                _BOUNDING,
                '        bound, found, why = self.bound, None, ""\n',
                '        bound, found, why = None, None, ""\n',
            ),
        ),
        (_FACE + "who_cannot_look_is_refused_and_told_why",),
    ),
    Mutant(
        "a-bound-that-refuses-lets-go",
        "P8.8 I107",
        "what a cursor holds goes although the settings say refuse",
        (
            (
                _BOUNDING,
                "        if bound.lets_go and beside <= bound.bytes_max:",
                "        if beside <= bound.bytes_max:",
            ),
        ),
        (_FACE + "at_its_bound_a_log_refuses_appends_and_says_what_holds_it",),
    ),
    Mutant(
        "what-does-not-fit-lets-all-go",
        "P8.8",
        "a splice that is larger than the bound has the whole log let go, and is refused then",
        (
            (
                _BOUNDING,
                "        if bound.lets_go and beside <= bound.bytes_max:",
                "        if bound.lets_go:",
            ),
        ),
        (_FACE + "a_splice_that_is_too_much_is_refused_whole",),
    ),
    Mutant(
        "who-waits-at-the-bound-keeps-the-ledger",
        "P8.8",
        "an append waits in a ledger for the room that comes when the ledger is left",
        ((_BOUNDING, "        if self._line.is_held:\n", "        if False:\n"),),
        (_FACE + "an_append_that_waits_for_room_keeps_no_ledger_from_being_left",),
    ),
    Mutant(
        "an-older-list-counts",
        "P8.8 I106",
        "a list in which a ledger does not stand yet says that it is gone",
        (
            (
                _BOUNDING,
                "            self.note(taken.log_list, taken.list_revision)\n        self.look()\n",
                "        self.look()\n",
            ),
        ),
        (_FACE + "what_no_list_records_yet_counts",),
    ),
    Mutant(
        "an-owner-splices-whatever-comes",
        "P8.8 I106",
        "only who asks for a splice judges whether there is room, and knows nothing of what is in flight",
        (
            (
                _RENEWING,
                "        if bound is not None:\n            await self.log_bytes.check_room(",
                "        if bound is None:\n            await self.log_bytes.check_room(",
            ),
        ),
        (_FACE + "a_splice_that_is_too_much_is_refused_whole",),
    ),
    Mutant(
        "more-is-let-go-than-must",
        "P8.8",
        "a bound lets all of a log go but its last ledger",
        (
            (
                _JUDGE,
                "        if terms.fits_bytes is not None and bytes_behind <= terms.fits_bytes:\n",
                "        if terms.fits_bytes is not None and bytes_behind < 0:\n",
            ),
        ),
        (
            _RULES + "so_many_bytes_may_stay_and_cursors_do_not_hold_more",
            _FACE + "a_log_may_let_go_of_its_slowest_cursor_and_its_consumer_is_told",
        ),
    ),
    Mutant(
        "settings-are-not-compared",
        "P8.8 I107",
        "a truncation goes on by settings that were changed since it looked",
        (
            (
                _CORE,
                "            when.append(Compare(log_settings_path(self.name), self.terms.settings_at))\n",
                "            assert self.terms.settings_at >= 0\n",
            ),
        ),
        (_RULES + "settings_that_are_others_by_now_let_nothing_go",),
    ),
    Mutant(
        "a-large-last-ledger-is-never-left",
        "P8.8",
        "a log all of whose bytes are in its last ledger is full for ever",
        (
            (
                _BOUNDING,
                "        if appending.writing.packer.length >= bound.bytes_max // _ROLLS_AT:\n",
                "        if appending.writing.packer.length < 0:\n",
            ),
        ),
        (_FACE + "a_bound_below_what_is_there_is_reached_at_once",),
    ),
    Mutant(
        "a-bound-hides-a-fence",
        "P8.8 P8.4",
        "an owner at the bound of its log never learns that another client has the log",
        (
            (
                _BOUNDING,
                "            if bound is not None and is_ours and count",
                "            if bound is not None and count",
            ),
        ),
        (_FACE + "who_lost_the_log_is_told_that_and_not_of_its_bound",),
    ),
    Mutant(
        "ledgers-left-before-there-was-a-bound-count-nothing",
        "P8.8 I106",
        "a log that gets a bound later has forgotten what it appended to ledgers that no list records yet",
        (
            (
                _RENEWING,
                "            self.log_bytes.follow(before, owned.taken)\n",
                "            if self.bound is not None:\n                self.log_bytes.follow(before, owned.taken)\n",
            ),
        ),
        (_FACE + "what_no_list_records_yet_counts",),
    ),
)
