"""Agreement of several metadata members: votes, commits, reads, changes of the voters, snapshots."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_RAFT = "embedbk/metadata/"
_ELECTION = _RAFT + "election.py"
_LEADING = _RAFT + "leading.py"
_LOG = _RAFT + "raft_log.py"
_MEMBERSHIP = _RAFT + "membership.py"
_QUORUM = _RAFT + "quorum.py"
_READS = _RAFT + "reads.py"
_REPLICATION = _RAFT + "replication.py"
_STATE = _RAFT + "raft_state.py"
_CORE = _RAFT + "raft.py"

_STORY = "tests/quorum/test_scenarios.py::test_"
_ACCIDENT = "tests/quorum/test_known_accidents.py::test_"
_SIZES = "tests/quorum/test_quorum_sizes.py::test_"

MUTANTS = (
    Mutant(
        "raft-voters-change-before-the-own-entry",
        "I76",
        "a leader that has committed nothing in its own term takes a change of the voters",
        ((_MEMBERSHIP, "    if not peers.has_committed:\n", "    if False:\n"),),
        (_ACCIDENT + "a_leader_changes_no_voters_before_it_has_committed_in_its_own_term",),
    ),
    Mutant(
        "raft-entries-are-acknowledged-before-they-are-durable",
        "I68",
        "a follower says that it has what its disk may still forget",
        (
            (
                _REPLICATION,
                "    state.send(leader, AppendReply(True, previous + len(entries)), waits=True)\n",
                "    state.send(leader, AppendReply(True, previous + len(entries)))\n",
            ),
        ),
        (_ACCIDENT + "a_leader_that_lost_what_it_had_not_synced_does_not_lead_on",),
    ),
    Mutant(
        "raft-unknown-log-is-filled-up-unasked",
        "P10.3",
        "a process on an older image is sent what it lacks by its answer to a heartbeat, so that nobody hears of the loss",
        (
            (
                _REPLICATION,
                "        progress.probe(progress.next_index if progress.asks_for_known else reply.received_index + 1)\n",
                "        progress.probe(reply.received_index + 1)\n",
            ),
        ),
        (_STORY + "a_disk_with_less_than_it_said_is_named_though_the_first_question_was_lost",),
    ),
    Mutant(
        "raft-several-read-as-one-alone-does",
        "I75",
        "a leader of several answers a read at its commit index, though another may lead by then",
        (
            (
                _RAFT + "agreed_log.py",
                "        if self.raft.is_alone and self.raft.has_committed:\n",
                "        if self.raft.has_committed:\n",
            ),
        ),
        ("tests/sim/test_members.py::test_a_leader_that_wakes_up_answers_no_read_that_lay_there",),
    ),
    Mutant(
        "raft-a-dead-leader-is-waited-for",
        "RAFT.md 4",
        "whoever loses the last link with its leader waits for one to two election bases all the same",
        ((_CORE, "        if event.boot == self._state.leader:\n", "        if False:\n"),),
        (
            _STORY + "a_leader_whose_process_is_gone_is_not_waited_for",
            _STORY + "the_next_leader_comes_within_a_base_when_the_last_one_is_killed",
        ),
    ),
    Mutant(
        "raft-any-lost-link-is-the-leaders",
        "I78",
        "a follower that loses the link with another follower, or with a process before, helps to depose its leader",
        ((_CORE, "        if event.boot == self._state.leader:\n", "        if True:\n"),),
        (_STORY + "a_leader_whose_process_is_gone_is_not_waited_for",),
    ),
    Mutant(
        "raft-vote-is-told-before-it-is-durable",
        "I61",
        "a granted vote leaves before term and vote are on the disk",
        (
            (
                _STATE,
                "            self._held.append((self._sequence if waits else self._term_sequence, message))\n",
                "            self._held.append((0, message))\n",
            ),
        ),
        (_STORY + "a_vote_is_told_when_it_is_durable", _STORY + "an_acknowledgement_waits_for_the_disk"),
    ),
    Mutant(
        "raft-vote-is-free-after-a-step-down",
        "I61",
        "who steps down in a term forgets the vote that it gave in it",
        (
            (
                _STATE,
                "        self.role = Role.FOLLOWER\n        self.leader = leader\n",
                "        if self.role is Role.CANDIDATE:\n            self.vote = None\n        self.role = Role.FOLLOWER\n        self.leader = leader\n",
            ),
        ),
        (_STORY + "a_vote_outlives_a_step_down_in_its_term",),
    ),
    Mutant(
        "raft-vote-is-repeated-to-the-next-process",
        "C3",
        "a vote is granted again to another process of the same member",
        (
            (
                _ELECTION,
                "        and state.vote in (None, message.sender)\n",
                "        and (state.vote is None or state.vote.member == message.sender.member)\n",
            ),
        ),
        (_STORY + "one_vote_in_a_term_and_its_repeat_to_the_same_process_only",),
    ),
    Mutant(
        "raft-vote-for-the-process-before-counts",
        "C3",
        "an answer to the candidate's earlier process elects this one",
        (
            (
                _CORE,
                "        is_own = body.candidate_nonce == self._state.boot.nonce\n",
                "        is_own = True\n",
            ),
        ),
        (_STORY + "a_vote_for_the_process_before_elects_nobody",),
    ),
    Mutant(
        "raft-shorter-log-is-voted-for",
        "I67",
        "logs are compared by their length alone",
        (
            (
                _LOG,
                "        return (last_term, last_index) >= (self.last_term, self.last_index)\n",
                "        return last_index >= self.last_index\n",
            ),
        ),
        (_STORY + "a_newer_log_is_never_voted_down",),
    ),
    Mutant(
        "raft-doubtful-disk-votes",
        "I79 I81",
        "a member whose disk may have lost what it acknowledged grants votes",
        (
            (
                _ELECTION,
                "        and state.leader is None\n        and state.doubt is None\n",
                "        and state.leader is None\n",
            ),
        ),
        (_STORY + "a_doubtful_disk_votes_for_nobody_until_it_has_all_again",),
    ),
    Mutant(
        "raft-doubt-ends-with-any-commit",
        "I81",
        "a doubtful disk is trusted as soon as it holds any committed entry",
        (
            (
                _CORE,
                "        is_newer = newest is not None and newest > doubt.term\n",
                "        is_newer = newest is not None and newest >= doubt.term\n",
            ),
        ),
        (_STORY + "a_doubtful_disk_votes_for_nobody_until_it_has_all_again",),
    ),
    Mutant(
        "raft-pre-vote-raises-the-term",
        "I78",
        "a question without consequences is taken as a newer term",
        (
            (
                _CORE,
                "        if isinstance(body, PreVote | Retired) or",
                "        if isinstance(body, PreVote) and body.next_term > state.term + 0:\n            state.adopt_term(body.next_term)\n            return True\n        if isinstance(body, PreVote | Retired) or",
            ),
            (
                _CORE,
                "        if message.term > state.term and not self._follow_term(message):\n",
                "        if (message.term > state.term or isinstance(message.body, PreVote)) and not self._follow_term(message):\n",
            ),
        ),
        (_STORY + "a_question_without_consequences_raises_no_term",),
    ),
    Mutant(
        "raft-candidates-are-followed-beside-a-leader",
        "I78",
        "a candidate's newer term is taken though a leader is heard",
        (
            (
                _CORE,
                "        if isinstance(body, RequestVote) and state.hears_leader and not body.is_transfer:\n",
                "        if isinstance(body, RequestVote) and state.is_leader and not body.is_transfer:\n",
            ),
        ),
        (_STORY + "who_hears_a_leader_helps_nobody_else",),
    ),
    Mutant(
        "raft-old-terms-are-committed-by-counting",
        "I70",
        "an entry of an earlier term is committed because a majority has it",
        (
            (
                _LEADING,
                "        if index > state.commit_index and state.log.term_at(index) == state.term:\n",
                "        if index > state.commit_index:\n",
            ),
        ),
        (_STORY + "entries_of_earlier_terms_are_committed_by_one_of_the_own",),
    ),
    Mutant(
        "raft-leader-counts-itself-before-its-sync",
        "I69",
        "the leader counts what its own disk may still forget",
        (
            (
                _LEADING,
                "            return self._state.log.durable_index\n",
                "            return self._state.log.last_index\n",
            ),
        ),
        (_STORY + "a_leader_counts_itself_when_its_own_disk_has_it",),
    ),
    Mutant(
        "raft-learner-counts",
        "I78",
        "what a learner has is counted for the commit",
        (
            (
                _QUORUM,
                "        yield self.voters, sizes_of(self.policy, len(self.voters))\n",
                "        yield (*self.voters, *self.learners), sizes_of(self.policy, len(self.voters))\n",
            ),
        ),
        (_STORY + "a_learner_counts_nowhere",),
    ),
    Mutant(
        "raft-joint-counts-the-new-voters-only",
        "I76",
        "during a change the new voters decide alone",
        (
            (
                _QUORUM,
                "        if self.outgoing:\n            yield",
                "        if not self.voters:\n            yield",
            ),
        ),
        (_SIZES + "joint_needs_both_halves",),
    ),
    Mutant(
        "raft-elections-take-a-majority-always",
        "C1 C2",
        "`rollback-1` elects by a majority, too",
        (
            (
                _QUORUM,
                "    return Sizes(voters, majority, voters + 2 - majority, 1)\n",
                "    return Sizes(voters, majority, majority, 1)\n",
            ),
        ),
        (
            _SIZES + "every_policy_is_safe",
            _SIZES + "any_two_quorums_share_a_voter_that_remembers",
            _STORY + "larger_quorums_remember_for_a_voter_that_was_put_back",
        ),
    ),
    Mutant(
        "raft-read-is-confirmed-by-an-older-answer",
        "I75",
        "an answer that was on its way before a read came confirms it",
        ((_READS, "        if round_ >= self._round:\n", "        if round_ >= self._round - 1:\n"),),
        (_STORY + "a_read_is_answered_when_others_say_that_nobody_newer_leads",),
    ),
    Mutant(
        "raft-state-runs-ahead-of-its-log",
        "I72",
        "what is committed is applied before it is durable here",
        (
            (
                _STATE,
                "        end = min(self.commit_index, self.log.durable_index)\n",
                "        end = self.commit_index\n",
            ),
        ),
        ("tests/quorum/test_random_quorums.py::test_what_is_committed_stays",),
    ),
    Mutant(
        "raft-cut-keeps-its-configuration",
        "I77",
        "a configuration that was cut from the log goes on to hold",
        (
            (
                _LOG,
                "        while self._configurations[-1][0] > keep_index:\n",
                "        while self._configurations[-1][0] > keep_index + len(self._entries) + 1:\n",
            ),
        ),
        (_STORY + "what_a_cut_takes_back_takes_its_configuration_back",),
    ),
    Mutant(
        "raft-retired-comes-back",
        "P10.3",
        "an incarnation that was taken out is admitted again",
        (
            (
                _MEMBERSHIP,
                "        if member in configuration.retired:\n",
                "        if member in configuration.outgoing:\n",
            ),
        ),
        (_STORY + "a_wiped_incarnation_is_never_admitted_again",),
    ),
    Mutant(
        "raft-change-takes-who-is-not-there",
        "I76",
        "a change is begun though too few of the new voters are there",
        ((_MEMBERSHIP, "    if newcomers or len(current) < needed:\n", "    if newcomers:\n"),),
        (_STORY + "a_change_without_those_it_needs_is_refused",),
    ),
    Mutant(
        "raft-leader-hands-over-for-what-is-refused",
        "RAFT.md",
        "a change that cannot begin takes leadership from the member that would leave by it",
        (
            (
                _CORE,
                "not in event.voters and not why_not_changed(state, leading, event):",
                "not in event.voters and event.voters:",
            ),
        ),
        (_STORY + "a_leader_hands_over_for_a_change_that_can_begin_only",),
    ),
    Mutant(
        "raft-messages-to-who-was-here-before-are-taken",
        "P10.3",
        "a message for another incarnation is taken",
        (
            (
                _CORE,
                "        if message.receiver != state.member or message.sender.member == state.member:\n",
                "        if message.receiver.name != state.member.name or message.sender.member == state.member:\n",
            ),
        ),
        (_STORY + "a_message_for_another_incarnation_is_nobodys",),
    ),
    Mutant(
        "raft-copy-of-a-disk-takes-its-place",
        "P7.9",
        "a second process of one member is heard at once",
        (
            (
                _CORE,
                "            if state.now_ns - heard_ns < state.base_ns:\n                return False\n",
                "",
            ),
        ),
        (
            _STORY + "of_two_processes_of_one_member_the_one_that_is_heard_stays",
            _ACCIDENT + "a_copy_of_a_directory_adds_nothing_to_a_quorum",
        ),
    ),
    Mutant(
        "raft-late-snapshot-is-thrown-away",
        "L6",
        "a snapshot that arrives when another leader leads, or late, is not installed",
        (
            (
                _REPLICATION,
                "    if event.index <= state.commit_index or not state.is_installed or state.is_leader:\n",
                "    if state.heard_leader_ns is None or event.now_ns - state.base_ns > 0:\n",
            ),
        ),
        (_STORY + "a_snapshot_that_takes_long_counts_however_late",),
    ),
    Mutant(
        "raft-slow-disk-keeps-the-lead",
        "L8",
        "a leader whose disk makes nothing durable leads on",
        (
            (
                _LEADING,
                "            if to is not None:\n                self.begin_transfer(to)\n",
                "            del to\n",
            ),
        ),
        (_STORY + "a_leader_whose_disk_stands_lets_another_lead",),
    ),
    Mutant(
        "raft-leader-nobody-hears-leads-on",
        "I75 L5",
        "a leader that hears no quorum goes on",
        (
            (
                _LEADING,
                "        if not self._state.configuration.has_commit_quorum(heard):\n",
                "        if not heard:\n",
            ),
        ),
        (_STORY + "a_leader_that_nobody_hears_stops_leading",),
    ),
    Mutant(
        "log-in-memory-without-a-bound",
        "RAFT.md",
        "every entry back to the older snapshot stays in memory",
        (
            (
                "embedbk/metadata/raft_log.py",
                "max(first_index, self._first_retained(snapshot_index))",
                "first_index",
            ),
        ),
        ("tests/metadata/test_raft_log.py::test_behind_a_snapshot_no_more_stays_than_the_bound",),
    ),
    Mutant(
        "what-is-worth-keeping-has-no-bound",
        "RAFT.md",
        "a log that is worth keeping by rate and time takes all memory that it needs",
        (
            (
                "embedbk/metadata/raft_log.py",
                "        self._retained_bytes = min(size, self.retained_bytes_max)\n",
                "        self._retained_bytes = size\n",
            ),
        ),
        ("tests/metadata/test_raft_log.py::test_what_is_worth_keeping_stays_and_never_more_than_is_allowed",),
    ),
    Mutant(
        "round-trips-of-another-leadership",
        "RAFT.md",
        "an answer to a round of an earlier leadership is a round trip of this one",
        (
            (
                "embedbk/host/measuring.py",
                "        self._rounds.clear()\n",
                "        pass\n",
            ),
        ),
        ("tests/metadata/test_calibration.py::test_a_round_trip_is_of_this_leaderships_rounds",),
    ),
    Mutant(
        "bound-of-the-log-eats-what-no-snapshot-has",
        "RAFT.md I80",
        "entries that no snapshot stands for go from memory: a follower can never be given them",
        (
            (
                "embedbk/metadata/raft_log.py",
                "held = snapshot_index + 1 - self.first_index",
                "held = len(self._entries)",
            ),
        ),
        ("tests/metadata/test_raft_log.py::test_behind_a_snapshot_no_more_stays_than_the_bound",),
    ),
    Mutant(
        "divergence-is-not-looked-for",
        "I72",
        "no leader ever proposes that the members compare their states",
        (
            (
                "embedbk/metadata/timed_commands.py",
                "if due_ns is not None and now_ns >= due_ns and not self._is_log_full:",
                "if False:",
            ),
        ),
        ("tests/sim/test_members.py::test_a_member_whose_state_differs_is_found_and_stops_serving",),
    ),
    Mutant(
        "divergence-compared-with-the-state-of-now",
        "I72",
        "what a member has now is compared with what the leader had at the comparison before",
        (
            (
                "embedbk/metadata/divergence.py",
                "before.index != command.index or before.digest == command.digest",
                "before.index != command.index or self._noted.digest == command.digest",
            ),
        ),
        ("tests/sim/test_members.py::test_seeds_with_several_members_keep_everything",),
    ),
    Mutant(
        "divergence-found-and-served-on",
        "I72",
        "a member that knows that its state differs goes on",
        (("embedbk/metadata/member.py", "            effects.append(Halted(differs))\n", ""),),
        ("tests/sim/test_members.py::test_a_member_whose_state_differs_is_found_and_stops_serving",),
    ),
    Mutant(
        "lost-answer-behind-a-snapshot-is-never-had",
        "L6",
        "a follower whose answer was lost, and whose entry is gone from the leader's log, is sent nothing any more",
        (
            (
                "embedbk/metadata/replication.py",
                "        progress.probe(reply.received_index + 1)\n        return\n    state.send",
                "        return\n    state.send",
            ),
        ),
        (
            "tests/quorum/test_scenarios.py::test_a_lost_answer_is_had_again_though_its_entry_went_behind_a_snapshot",
        ),
    ),
    Mutant(
        "raft-split-vote-waits-as-for-a-silent-leader",
        "L5",
        "a candidate that did not win asks again after one to two bases",
        ((_ELECTION, "    state.retry_election()\n", "    state.delay_election()\n"),),
        (_STORY + "a_split_vote_is_over_within_a_base",),
    ),
    Mutant(
        "raft-puts-itself-off-for-who-cannot-win",
        "L5",
        "whoever asks keeps a member from standing, though that one has entries which the other lacks",
        (
            (
                _ELECTION,
                "    if is_granted:\n        state.yield_election()\n",
                "    state.yield_election()\n",
            ),
        ),
        (_STORY + "who_refuses_to_help_another_waits_no_longer_for_it",),
    ),
)
