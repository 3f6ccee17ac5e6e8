"""Locks and elections of the metadata (P9.3)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_KEYS = "embedbk/metadata/key_space.py"
_LOCKS = "embedbk/metadata/locks.py"
_LOCKING = "embedbk/client/locking.py"
_HOLDING = "tests/scenarios/test_holding_locks.py::test_"
_CLAIMS = "tests/metadata/test_claims.py::test_"

MUTANTS = (
    Mutant(
        "lock-is-free-behind-a-session",
        "P9.3",
        "the end of a session frees its locks, and whoever waits first has no turn",
        (
            (
                _KEYS,
                "            self._hand_over(name, revision, changed)\n        return",
                "            pass\n        return",
            ),
        ),
        (_CLAIMS + "the_end_of_a_session_gives_all_its_locks_and_places_away_at_one_revision",),
    ),
    Mutant(
        "lock-is-free-behind-a-release",
        "P9.3",
        "who releases a lock leaves it to whoever asks next",
        (
            (
                _KEYS,
                "        if planned.frees:\n",
                "        if False:\n",
            ),
        ),
        (_CLAIMS + "a_lock_is_handed_over_in_order_of_asking",),
    ),
    Mutant(
        "lock-goes-to-the-newest",
        "P9.3",
        "places in the queue are written so that ten stands before nine",
        (("embedbk/metadata/claims.py", "{asked:020d}", "{asked}"),),
        (_CLAIMS + "locks_come_out_right_whatever_happens",),
    ),
    Mutant(
        "lock-asked-again-loses-its-place",
        "I74",
        "a session that asks again waits a second time",
        (
            (
                _LOCKS,
                "    if known is not None:\n        stands = Claimed(",
                "    if known is not None and lock_of(known.key):\n        stands = Claimed(",
            ),
        ),
        (_CLAIMS + "a_lock_is_handed_over_in_order_of_asking",),
    ),
    Mutant(
        "late-release-gives-the-next-hold-away",
        "P9.3",
        "Release does not look at the epoch that it names",
        (
            (
                _LOCKS,
                "(asked.epoch and (not lock_of(known.key) or known.revision != asked.epoch))",
                "(asked.epoch and not lock_of(known.key))",
            ),
        ),
        (_CLAIMS + "a_late_release_gives_no_later_hold_away",),
    ),
    Mutant(
        "transactions-take-locks",
        "P9.3",
        "a transaction may put the key of a lock, and so hold it without having asked",
        (("embedbk/metadata/limits.py", "if is_of_locks(change.key):", "if False:"),),
        (_CLAIMS + "a_transaction_does_not_change_the_keys_of_locks",),
    ),
    Mutant(
        "transactions-that-come-alone-take-locks",
        "P9.3",
        "a transaction that is judged at one look may put the key of a lock",
        (("embedbk/metadata/limits.py", "        and not is_of_locks(key)\n", ""),),
        (
            "tests/metadata/test_limits.py::test_a_transaction_that_is_judged_at_one_look_is_judged_as_any_other",
        ),
    ),
    Mutant(
        "transaction-that-comes-alone-has-no-bound",
        "METADATA.md, 3",
        "a value that is put alone may have any size",
        (("embedbk/metadata/limits.py", "        and value_bytes <= limits.value_bytes_max\n", ""),),
        (
            "tests/metadata/test_limits.py::test_a_transaction_that_is_judged_at_one_look_is_judged_as_any_other",
        ),
    ),
    Mutant(
        "lock-queue-without-end",
        "METADATA.md",
        "any number of sessions wait for one lock",
        (
            (
                _LOCKS,
                "    if not is_free and _count_waiting",
                "    if False and _count_waiting",
            ),
        ),
        (_CLAIMS + "only_so_many_wait_for_one_lock",),
    ),
    Mutant(
        "locks-that-begin-alike-are-one",
        "P9.2",
        "names that begin alike share a queue",
        (
            (
                "embedbk/metadata/claims.py",
                '    return f"{_WAITING}{name}/"',
                '    return f"{_WAITING}{name}"',
            ),
        ),
        (_CLAIMS + "names_that_begin_alike_are_different_locks",),
    ),
    Mutant(
        "lock-is-held-though-nobody-can-tell",
        "P9.3",
        "a holder looks at what it was told, not at whether its lease is over",
        (
            (
                _LOCKING,
                "not self.ended and self._is_leased()",
                "not self.ended",
            ),
        ),
        (_HOLDING + "a_holder_that_slept_knows_at_its_first_look",),
    ),
    Mutant(
        "lock-outlives-its-session",
        "P9.3",
        "the end of a session is not told to whoever holds locks under it",
        (
            (
                _LOCKING,
                "        self._metadata.session_ends.add(self._lose)\n",
                "",
            ),
        ),
        (_HOLDING + "who_cannot_reach_the_members_holds_nothing_before_another_does",),
    ),
    Mutant(
        "who-gives-up-keeps-its-place",
        "P9.3",
        "a client that waits no longer stays in the queue, and is handed a lock that nobody uses",
        (
            (
                _LOCKING,
                "            self._metadata.request(now_ns, Release(self._name, self.epoch), self._told)\n",
                "            pass\n",
            ),
        ),
        (_HOLDING + "who_gives_up_while_nobody_answers_leaves_no_place_behind",),
    ),
    Mutant(
        "what-was-lost-unsent-is-sent-in-the-next-session",
        "P9.3",
        "a client whose session ended while its request waited to be sent holds the lock in the next one, for nobody",
        (
            (
                _LOCKING,
                "            self._metadata.cancel(self._runtime.now_ns(), self._request)\n",
                "            pass\n",
            ),
        ),
        (_HOLDING + "who_asked_while_no_member_was_linked_holds_nothing_in_the_next_session",),
    ),
    Mutant(
        "who-cannot-follow-its-lock-keeps-it",
        "P9.3",
        "a client that was told that its lock is lost, as it cannot follow it, holds it until it ends",
        (
            (
                _LOCKING,
                "            self._metadata.request(self._runtime.now_ns(), Release(self._name), self._told)\n",
                "",
            ),
        ),
        (_HOLDING + "a_lock_that_cannot_be_followed_is_given_away",),
    ),
    Mutant(
        "release-of-what-was-lost-waits-for-an-answer",
        "P9.3",
        "a release that finds its lock lost waits for the answer to what was never sent, and says that it may be held",
        ((_LOCKING, "hold.released is not None or hold.was_lost or", "hold.released is not None or"),),
        (_HOLDING + "a_release_that_finds_its_lock_lost_says_so_at_once",),
    ),
)
