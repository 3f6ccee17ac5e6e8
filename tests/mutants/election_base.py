"""The election base that is applied by an entry, and the timing that follows from it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_BASING = "embedbk/metadata/basing.py"
_LEADING = "embedbk/metadata/leading.py"
_STATE = "embedbk/metadata/raft_state.py"
_REPLICATION = "embedbk/metadata/replication.py"
_MEMBERSHIP = "embedbk/metadata/membership.py"
_CLI = "embedbk/cli/calibrating.py"

_TEST = "tests/quorum/test_election_base.py::test_"

MUTANTS = (
    Mutant(
        "base-renewed-by-what-may-be-taken-back",
        "I74",
        "a leader that is cut off relies on a round for half of a longer base that nobody else has",
        (
            (
                _STATE,
                "        return min(committed_ms, self.configuration.election_base_ms) * 1_000_000\n",
                "        return self.configuration.election_base_ms * 1_000_000\n",
            ),
        ),
        (_TEST + "a_longer_base_that_is_never_committed_renews_nobody_too_long",),
    ),
    Mutant(
        "base-a-shorter-one-waits-for-its-commit",
        "I74",
        "a leader relies on a round for half of the longer base though whoever has its entry gives the shorter one",
        (
            (
                _STATE,
                "        return min(committed_ms, self.configuration.election_base_ms) * 1_000_000\n",
                "        return committed_ms * 1_000_000\n",
            ),
        ),
        (_TEST + "a_shorter_base_holds_for_renewals_at_once",),
    ),
    Mutant(
        "base-heartbeats-at-once-at-the-new-pace",
        "RAFT.md, 8",
        "a follower that has not the entry yet hears nothing for longer than its own base",
        (
            (
                _LEADING,
                "        return min(state.base_ns, state.shortest_base_ns)\n",
                "        return state.base_ns\n",
            ),
        ),
        (_TEST + "heartbeats_follow_and_a_follower_without_the_entry_hears_them_as_before",),
    ),
    Mutant(
        "base-a-follower-waits-by-the-old-one",
        "RAFT.md, 8",
        "what a follower waits for when it hears of a longer base is still of the shorter one",
        (
            (
                _STATE,
                "            if configuration.election_base_ms != self._seen.election_base_ms and self.hears_leader:\n",
                "            if configuration.election_base_ms < self._seen.election_base_ms and self.hears_leader:\n",
            ),
        ),
        (_TEST + "a_follower_waits_by_the_new_base_from_the_entry_on",),
    ),
    Mutant(
        "base-what-the-process-before-measured-counts",
        "RAFT.md, 8",
        "a process that has just begun changes the base by what the one before it measured",
        (
            (
                _REPLICATION,
                "        self.match_index, self.timing = 0, None\n",
                "        self.match_index = 0\n",
            ),
        ),
        (_TEST + "nothing_is_changed_while_a_voter_is_silent",),
    ),
    Mutant(
        "base-who-is-not-known-is-passed-over",
        "RAFT.md, 8",
        "a voter that is silent, or tells nothing, is taken for one that needs nothing",
        (
            (
                _BASING,
                '            return f"nothing is heard of {voter.name}"\n',
                "            continue\n",
            ),
        ),
        (_TEST + "nothing_is_changed_while_a_voter_is_silent",),
    ),
    Mutant(
        "base-a-new-process-forgets-when-it-was-changed",
        "RAFT.md, 8",
        "a base that was changed before this process began may be changed again at once",
        (
            (
                _STATE,
                "        self.base_since_ns = now_ns if log.configuration.base_change is not None else None\n",
                "        self.base_since_ns: int | None = None\n",
            ),
        ),
        (_TEST + "a_process_that_began_since_the_last_change_waits_as_long",),
    ),
    Mutant(
        "base-a-change-of-voters-forgets-who-fixed-it",
        "RAFT.md, 8",
        "a joint change leaves out that an operator has fixed the base, so the next measure changes it",
        (
            (
                _MEMBERSHIP,
                "        base_change=configuration.base_change,\n",
                "        base_change=None,\n",
            ),
        ),
        (_TEST + "a_fixed_base_stays_and_is_given_back",),
    ),
    Mutant(
        "base-lowered-by-a-leader-that-has-just-begun",
        "I74",
        "what the leader before renewed by a longer base is not over when the shorter one holds",
        (
            (
                _LEADING,
                "        if state.now_ns - self._began_ns < SETTLED_BASES * state.base_ns:\n",
                "        if state.now_ns < self._began_ns:\n",
            ),
        ),
        (_TEST + "a_leader_that_has_just_begun_changes_nothing",),
    ),
)
