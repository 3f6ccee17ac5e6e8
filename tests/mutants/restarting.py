"""Nodes that are restarted one after another (P11.3)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_RULES = "embedbk/repair/restarting.py"
_DRIVER = "embedbk/client/restarting.py"
_GOVERNING = "embedbk/metadata/governing.py"

_STORY = "tests/repair/test_restarting.py::test_"

MUTANTS = (
    Mutant(
        "a-node-that-was-not-restarted-is-whole",
        "P11.3",
        "a command that ends before the old process does: the next node stops beside it",
        ((_RULES, "        return was != now\n", "        return True\n"),),
        (_STORY + "a_node_is_whole_when_it_is_again_what_it_was_in_another_start",),
    ),
    Mutant(
        "who-says-no-start-is-whole-at-once",
        "P11.3 P10.8",
        "a member of an older build that has not stopped yet is taken for one that came back",
        ((_RULES, "    return since_ns >= UNTOLD_NS\n", "    return True\n"),),
        (_STORY + "where_a_start_is_not_told_a_node_that_stays_long_enough_was_restarted",),
    ),
    Mutant(
        "a-look-that-failed-gives-leave",
        "P11.3",
        "nobody answers, and the node is restarted all the same",
        (
            (
                _RULES,
                "        assert self._begun\n",
                "        if self._was is None:\n            return [Restart(self._current, BOOKIE)]\n",
            ),
        ),
        (_STORY + "where_it_cannot_be_told_nothing_stops_and_nobody_is_whole",),
    ),
    Mutant(
        "a-leader-is-restarted-as-it-leads",
        "P11.3",
        "an election, in which nothing is created or closed, where a hand-over would do",
        ((_RULES, "if not why and node.is_leader and not", "if False and node.is_leader and not"),),
        (_STORY + "a_leader_hands_over_until_it_follows_and_to_one_that_was_restarted",),
    ),
    Mutant(
        "an-accepted-outage-is-of-ledgers-too",
        "P11.3",
        "a bookie whose ledgers need it is stopped, since the metadata may pause",
        (
            (
                _RULES,
                "options.accepts_outage and node.kind == MEMBER and _is_only_voter(node, seen)",
                "options.accepts_outage",
            ),
        ),
        (_STORY + "the_only_voter_is_restarted_when_the_outage_is_accepted_and_hands_over_to_nobody",),
    ),
    Mutant(
        "a-member-without-what-is-committed-is-whole",
        "P11.3 P10.3",
        "the next one stops, and what this one lacks is on too few",
        ((_RULES, "now.member.log_end < commit_index", "False"),),
        (
            _STORY + "a_members_log_is_to_have_what_was_committed_when_it_came_back",
            _STORY + "a_node_is_whole_when_it_is_again_what_it_was_in_another_start",
        ),
    ),
    Mutant(
        "two-runs-at-once",
        "P11.3",
        "each stops another node, of which each alone might stop",
        ((_DRIVER, "        lock.acquire(0)\n", "        lock.holder()\n"),),
        (_STORY + "all_nodes_are_restarted_while_a_log_is_written_and_no_append_fails",),
    ),
    Mutant(
        "a-leader-tells-no-start",
        "P11.3",
        "each member is waited for as of an older build",
        ((_GOVERNING, "known, is_heard, index, start)", "known, is_heard, index)"),),
        (_STORY + "a_leader_tells_which_start_of_each_member_it_hears",),
    ),
)
