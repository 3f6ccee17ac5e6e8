"""Who joins the metadata members, and what an operator's request becomes."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_GOVERNING = "embedbk/metadata/governing.py"
_MEMBERSHIP = "embedbk/metadata/membership.py"
_JOINING = "embedbk/metadata/joining.py"
_ELECTION = "embedbk/metadata/election.py"
_NODE = "embedbk/host/metadata_node.py"
_MEMBERS = "tests/host/test_several_members.py::test_"

_REPLACING = "embedbk/metadata/replacing.py"
_REPLACED = "tests/quorum/test_replacing.py::test_"
_ASKED = "tests/quorum/test_governing.py::test_"
_CATCHING_UP = "tests/quorum/test_catching_up.py::test_"
_BLANK = "tests/quorum/test_joining.py::test_"

MUTANTS = (
    Mutant(
        "join-a-learner-that-hears-nobody-waits",
        "L7",
        "a learner whose entry the leader has lost tells nobody that it is there",
        ((_NODE, "return configuration.is_voter(own) or raft.hears_leader", "return True"),),
        (_MEMBERS + "a_learner_that_hears_no_leader_is_known_to_nobody_and_a_voter_stands_for_election",),
    ),
    Mutant(
        "join-a-voter-that-hears-nobody-is-not-known",
        "L7",
        "a voter that hears no leader asks to be let in, as if it were a learner",
        ((_NODE, "return configuration.is_voter(own) or raft.hears_leader", "return raft.hears_leader"),),
        (_MEMBERS + "a_learner_that_hears_no_leader_is_known_to_nobody_and_a_voter_stands_for_election",),
    ),
    Mutant(
        "join-whoever-begins-empty-takes-out-its-like-for-ever",
        "RAFT.md",
        "a learner in a loop of restarts with an empty directory fills the configuration until no snapshot holds it",
        ((_GOVERNING, "if size > TAKEN_OUT_BYTES_MAX:", "if size > 4 * TAKEN_OUT_BYTES_MAX:"),),
        (_ASKED + "a_learner_that_begins_empty_again_and_again_fills_no_snapshot",),
    ),
    Mutant(
        "join-whoever-is-taken-out-has-room-in-any-case",
        "RAFT.md",
        "an operator takes out so many learners that no snapshot holds the configuration which names them",
        ((_MEMBERSHIP, 'reason = _why_too_large(changed) if gone else ""', 'reason = ""'),),
        (_ASKED + "no_change_makes_a_configuration_that_no_snapshot_could_hold",),
    ),
    Mutant(
        "join-a-joint-configuration-has-room-in-any-case",
        "RAFT.md",
        "a change of the voters makes a configuration that no snapshot holds",
        ((_MEMBERSHIP, "        or _why_too_large(joint)\n", ""),),
        (_ASKED + "no_change_makes_a_configuration_that_no_snapshot_could_hold",),
    ),
    Mutant(
        "join-half-of-the-voters-is-enough",
        "P10.3",
        "a blank member takes a token that half of the voters have told",
        ((_JOINING, "if 2 * len(answered) > len(voters)", "if 2 * len(answered) >= len(voters)"),),
        (_BLANK + "whoever_has_no_vote_and_whoever_asks_again_counts_for_nobody",),
    ),
    Mutant(
        "join-anybody-says-who-votes",
        "P10.3",
        "a blank member believes the configuration of whoever has no vote in it",
        ((_JOINING, " if told.member in _voters(told)]", "]"),),
        (_BLANK + "whoever_has_no_vote_and_whoever_asks_again_counts_for_nobody",),
    ),
    Mutant(
        "join-the-oldest-configuration-counts",
        "P10.3",
        "a machine that was alone once lures a blank member into a cluster that has gone on",
        ((_JOINING, "        return max(own, key=lambda", "        return min(own, key=lambda"),),
        (_BLANK + "a_machine_that_was_taken_out_lures_nobody",),
    ),
    Mutant(
        "join-two-clusters-are-one",
        "P10.3",
        "a blank member that hears of two clusters takes one of them",
        ((_JOINING, "        if len(clusters) < 2:\n", "        if True:\n"),),
        (_BLANK + "two_clusters_are_told_and_none_is_joined",),
    ),
    Mutant(
        "join-while-the-voters-change",
        "P10.3",
        "a token is taken from a configuration of two sets of voters",
        ((_JOINING, "if newest is None or self.conflict or newest.is_joint:", "if newest is None or self.conflict:"),),
        (_BLANK + "whoever_has_no_vote_and_whoever_asks_again_counts_for_nobody",),
    ),
    Mutant(
        "join-with-another-token",
        "P10.3",
        "the member of another cluster is let in",
        ((_GOVERNING, "        if asked.cluster_token != self._token:\n", "        if asked.cluster_token and asked.cluster_token == b'':\n"),),
        (_ASKED + "who_must_not_join_is_told_why_and_what_to_do",),
    ),
    Mutant(
        "join-a-copy-of-a-directory",
        "P7.9",
        "a second process of a member that is heard is let in beside it",
        ((_GOVERNING, "        if is_heard and nonce != asked.nonce:\n", "        if False:\n"),),
        (_ASKED + "who_must_not_join_is_told_why_and_what_to_do",),
    ),
    Mutant(
        "join-takes-a-name-that-is-heard",
        "P10.3",
        "two members that run have one name",
        ((_GOVERNING, "if other.name == name and other != member and raft.knows(other)[0]:", "if False:"),),
        (_ASKED + "who_must_not_join_is_told_why_and_what_to_do",),
    ),
    Mutant(
        "join-forgets-the-other-learners",
        "P10.3",
        "who joins while another one learns takes that one out for good",
        ((_GOVERNING, "tuple(each for each in configuration.learners if each.name != member.name)", "()"),),
        (_ASKED + "one_grows_to_three_by_one_change_and_everybody_can_be_asked_how_it_stands",),
    ),
    Mutant(
        "govern-a-lost-leader-says-done",
        "P10.3",
        "a change whose leader leads no more is answered twice",
        ((_GOVERNING, "        waiting, self._waiting = self._waiting, {}\n        return [", "        waiting = self._waiting\n        return ["),),
        (_ASKED + "a_change_that_is_refused_says_why_and_one_under_a_lost_leadership_is_asked_elsewhere",),
    ),
    Mutant(
        "govern-hands-over-to-the-silent",
        "P10.3",
        "leadership is handed to a voter that is not heard",
        ((_GOVERNING, "                if not raft.knows(member)[0]:\n", "                if False:\n"),),
        (_ASKED + "a_change_that_is_refused_says_why_and_one_under_a_lost_leadership_is_asked_elsewhere",),
    ),
    Mutant(
        "govern-a-refusal-is-an-acknowledgement",
        "P10.3",
        "who asked for a change that was refused is told that it is so",
        ((_GOVERNING, "Refusal(REFUSED, ended.refusal) if ended.refusal else Acknowledged(0)", "Acknowledged(0)"),),
        (_ASKED + "a_change_that_is_refused_says_why_and_one_under_a_lost_leadership_is_asked_elsewhere",),
    ),
    Mutant(
        "learner-that-was-taken-out-hears-nothing",
        "I78",
        "who has no vote asks nobody, and waits for a leader that left it for ever",
        ((_ELECTION, "    if not state.is_retired:\n", "    if state.may_stand:\n"),),
        ("tests/quorum/test_scenarios.py::test_a_learner_that_was_taken_out_hears_so",),
    ),
    Mutant(
        "two-voters-replaced-within-an-hour",
        "P10.3",
        "a script that wipes machine after machine has each of them replaced by itself",
        ((_REPLACING, "now_ns < last_ns + REST_NS", "now_ns < last_ns"),),
        (
            _REPLACED + "one_voter_an_hour",
            _REPLACED + "whoever_leads_by_then_remembers_the_first_replacement",
        ),
    ),
    Mutant(
        "only-who-led-remembers-a-replacement",
        "P10.3",
        "when the leader changes, the hour between two replacements is forgotten",
        (
            (
                "embedbk/metadata/raft_state.py",
                "            if replaced(self._seen.voters, configuration.voters):\n",
                "            if self.is_leader and replaced(self._seen.voters, configuration.voters):\n",
            ),
        ),
        (_REPLACED + "whoever_leads_by_then_remembers_the_first_replacement",),
    ),
    Mutant(
        "a-living-voter-is-replaced",
        "P10.3",
        "a member that is there loses its vote for good to another one of its name",
        ((_REPLACING, "        if is_heard(old):\n", "        if is_heard(old) and not accepts_risk:\n"),),
        (_REPLACED + "who_is_heard_keeps_its_place_whatever_is_accepted",),
    ),
    Mutant(
        "who-keeps-up-has-to-be-lucky",
        "P10.3",
        "while others write, a newcomer may vote only if it has everything at the very moment of asking",
        (
            (
                "embedbk/metadata/membership.py",
                "peers.durable_index(member) >= min(state.commit_index, peers.settled_index)",
                "peers.durable_index(member) >= state.commit_index",
            ),
        ),
        (_CATCHING_UP + "who_joins_votes_when_it_keeps_up_with_the_writers",),
    ),
    Mutant(
        "who-falls-behind-votes",
        "P10.3",
        "a newcomer that gets further behind all the time votes, and the others wait for it",
        (
            (
                "embedbk/metadata/leading.py",
                "        return self._state.commit_index if self._is_mark_old else self._settled_index\n",
                "        return self._settled_index if self._is_mark_old else self.first_index\n",
            ),
        ),
        (_CATCHING_UP + "who_joins_votes_when_it_keeps_up_with_the_writers",),
    ),
    Mutant(
        "the-first-newcomer-needs-nothing",
        "P10.3",
        "who was alone for long lets a newcomer vote that has nothing yet, and stops until it has",
        (
            (
                "embedbk/metadata/leading.py",
                "        return self._state.now_ns >= self._mark_ns + self._state.base_ns\n",
                "        return False\n",
            ),
        ),
        (_CATCHING_UP + "who_joins_one_that_was_alone_for_long_has_to_have_everything_first",),
    ),
    Mutant(
        "join-nobody-learns",
        "METADATA.md, 2",
        "whoever names a learner that can be no member lets no member start again",
        ((_GOVERNING, "if wrong := _why_none(given):", 'if wrong := "":'),),
        (_ASKED + "what_can_be_no_member_is_refused_before_it_is_logged",),
    ),
    Mutant(
        "join-whoever-lags-is-handed-leadership",
        "RAFT.md, 7",
        "an operator who asks again and again for a transfer to a slow member keeps everybody from committing",
        ((_GOVERNING, "if not raft.keeps_up(member):", "if False:"),),
        (_ASKED + "leadership_goes_to_nobody_that_lags",),
    ),
)  # fmt: skip
