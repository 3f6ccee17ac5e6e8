"""The metadata quorum: its catalog, its member, its client."""

# ruff: noqa: E501, ISC004 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CATALOG = "embedbk/metadata/catalog.py"
_MEMBER = "embedbk/metadata/member.py"

_CATALOGS = "tests/metadata/test_catalog.py::test_"
_MEMBERS = "tests/metadata/test_member.py::test_"
_WATCHES = "tests/metadata/test_client.py::test_"

MUTANTS = (
    # The watches that open ledgers and lists are followed by.
    Mutant(
        "watch-skips-on-reconnect",
        "P10.1 I82",
        "a watch that missed too much goes on from now",
        (
            (
                "embedbk/metadata/client.py",
                "            self._list_again(watch)\n            return\n        if events.after_revision > watch.revision:\n",
                "            watch.revision = events.revision\n            self._follow(watch)\n            return\n"
                "        if events.after_revision > watch.revision:\n",
            ),
        ),
        (_WATCHES + "a_watch_that_missed_too_much_lists_again_and_sees_the_deletes",),
    ),
    # Metadata.
    Mutant(
        "metadata-answers-before-sync",
        "P10.1",
        "the metadata service answers when a change is applied, not when it is durable",
        (
            (
                _MEMBER,
                "self._waiting[0][0] <= self._durable_index:",
                "self._waiting[0][0] <= self._applied_index:",
            ),
        ),
        (_MEMBERS + "an_answer_leaves_in_the_step_that_hears_of_durability",),
    ),
    Mutant(
        "watch-shows-what-is-not-durable",
        "P10.1",
        "a watch tells changes that a crash may take back",
        (
            (
                _MEMBER,
                "        while self._revisions and self._revisions[0][0] <= self._durable_index:\n",
                "        while self._revisions:\n",
            ),
        ),
        (_MEMBERS + "a_watch_gets_every_change_once_it_is_durable",),
    ),
    Mutant(
        "answers-kept-by-sequence-only",
        "P10.1 I74",
        "a request is answered with what another session was told under the same sequence",
        (
            (
                _CATALOG,
                "        kept = session.kept.get(command.sequence)\n",
                "        kept = next((s.kept[command.sequence] for s in self.sessions.values() if command.sequence in s.kept), None)\n",
            ),
        ),
        (_CATALOGS + "sequences_are_counted_by_session",),
    ),
    Mutant(
        "snapshot-without-kept-answers",
        "P10.1 I74",
        "a member that was restored from a snapshot runs a repeated request again",
        ((_CATALOG, "session.done_below, dict(session.kept)", "session.done_below, {}"),),
        (_CATALOGS + "same_commands_same_catalog",),
    ),
    Mutant(
        "one-comparison-is-enough",
        "P10.1 P8.3",
        "a transaction is done when one of its comparisons holds",
        (
            (
                _CATALOG,
                "        if not all(self._holds(compare) for compare in txn.when):\n",
                "        if txn.when and not any(self._holds(compare) for compare in txn.when):\n",
            ),
        ),
        (_CATALOGS + "a_change_is_done_only_if_every_comparison_holds",),
    ),
    Mutant(
        "repeated-request-runs-again",
        "P10.2",
        "a request that is sent again under its sequence runs again",
        (
            (
                _MEMBER,
                "        if kept is not None:\n            return kept",
                "        if kept is not None and request.sequence < 0:\n            return kept",
            ),
        ),
        (_MEMBERS + "a_repeat_is_not_logged_and_waits_for_its_first_run",),
    ),
    Mutant(
        "keep-alive-waits-for-the-disk",
        "METADATA.md",
        "a live session is renewed only when what was applied before is durable",
        (
            (
                _MEMBER,
                "        return [*self._watches.marks(event.link), Reply(event.link, answer)]\n",
                "        self._waiting.append((self._applied_index, Reply(event.link, answer)))\n        return self._release()\n",
            ),
        ),
        (
            _MEMBERS + "a_session_lives_through_a_disk_that_stands_still",
            _WATCHES + "no_session_is_lost_while_the_disk_of_the_member_stands_still",
        ),
    ),
    Mutant(
        "sessions-expire-while-the-disk-stands-still",
        "METADATA.md",
        "the member ends sessions by its clock while it can commit nothing",
        ((_MEMBER, "        if is_late or self._stands_still(event.now_ns):\n", "        if is_late:\n"),),
        (_MEMBERS + "nobody_expires_while_nothing_can_be_committed",),
    ),
)
