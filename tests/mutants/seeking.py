"""Clients of several metadata members: who is asked next, and what is sent again to whom."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CLIENT = "embedbk/metadata/client.py"
_REQUESTS = "embedbk/metadata/outstanding_requests.py"
_SEEKING = "embedbk/metadata/seeking.py"
_HOLDING = "embedbk/metadata/holding.py"
_RAFT_STATE = "embedbk/metadata/raft_state.py"
_NODE = "embedbk/host/metadata_node.py"

_HERE = "tests/metadata/test_seeking.py::test_"
_HOST = "tests/host/test_several_members.py::test_"
_STORIES = _HERE + "a_random_story_comes_out_right"

MUTANTS = (
    Mutant(
        "client-newer-before-what-is-under-way",
        "P10.1",
        "behind a change of leaders a newer operation of a session overtakes those that were under way",
        (
            (
                _REQUESTS,
                "        while self._again and len(self._in_flight) - len(self._again) < self._pace.window:\n",
                "        while self._again and not self._queue and len(self._in_flight) - len(self._again) < self._pace.window:\n",
            ),
            (
                _REQUESTS,
                "        while self._queue and len(self._in_flight) < self._pace.window:\n",
                "        while self._queue and len(self._in_flight) - len(self._again) < self._pace.window:\n",
            ),
        ),
        (_STORIES, _HERE + "the_session_and_all_that_is_under_way_live_through_a_change_of_leaders"),
    ),
    Mutant(
        "client-under-way-waits-for-its-second-time",
        "P10.1",
        "over a new link what was under way is sent again a second later, some at a time",
        (
            (
                _REQUESTS,
                "        self._again = deque(self._in_flight.values())\n        for pending in self._again:\n            pending.due_ns = _NEVER_NS\n        self.resend_ns = None\n",
                "        for pending in self._in_flight.values():\n            pending.due_ns = now_ns + 1_000_000_000\n        self.resend_ns = now_ns\n",
            ),
            (_REQUESTS, "    def send_all_again(self)", "    def send_all_again(self, now_ns: int)"),
            (_CLIENT, "self._requests.send_all_again()", "self._requests.send_all_again(event.now_ns)"),
        ),
        (_HERE + "the_session_and_all_that_is_under_way_live_through_a_change_of_leaders",),
    ),
    Mutant(
        "client-not-leader-is-an-answer",
        "P2.2",
        "a member that does not lead ends the request that it did not run",
        ((_CLIENT, "        elif isinstance(event.message.result, NotLeader):\n", "        elif False:\n"),),
        (_STORIES,),
    ),
    Mutant(
        "client-waits-for-a-silent-leader",
        "P10.1",
        "a leader that says nothing is never left, and its clients lose their sessions",
        ((_CLIENT, "and now_ns >= owed_ns + patience_ns:", "and False:"),),
        (_HERE + "a_leader_that_is_silent_is_left_before_the_session_ends",),
    ),
    Mutant(
        "client-has-no-more-patience",
        "P10.1",
        "a leader that is only slow is left again and again",
        ((_SEEKING, "        return max(first_ns, min(self._in_vain_ns(now_ns) // PATIENCE_SHARE, PATIENCE_NS_MAX))\n", "        return first_ns\n"),),
        (_HERE + "a_member_that_is_only_slow_is_waited_for_in_the_end",),
    ),
    Mutant(
        "client-pauses-by-the-number-of-rounds",
        "P10.1",
        "the pauses of a client double with each round in vain, so the next leader is found long after it leads",
        ((_SEEKING, "in_vain_ns // PAUSE_SHARE)", "in_vain_ns)"),),
        (_HERE + "who_leads_in_the_end_is_found_soon",),
    ),
    Mutant(
        "client-follows-every-name-at-once",
        "P10.1",
        "two members that name each other are asked in a busy loop",
        ((_SEEKING, "        if self._hops < HOPS_MAX:\n", "        if True:\n"),),
        (_HERE + "members_that_name_each_other_are_no_busy_loop",),
    ),
    Mutant(
        "client-a-name-takes-the-turn",
        "P10.1",
        "who names a leader that is gone keeps its clients from everybody else",
        ((_SEEKING, "        self._turns[chosen] = self._count\n", ""),),
        (_HERE + "a_name_is_followed_at_once_and_its_failure_costs_nobody_the_turn",),
    ),
    Mutant(
        "client-turn-by-place-in-what-was-told",
        "P10.1",
        "where members tell different lists of one cluster, the address that leads is never dialled",
        ((_SEEKING, "        chosen = min(waiting, key=self._turns.__getitem__)\n",
          "        chosen = known[(known.index(self._left) + 1) % len(known)] if self._left in known else known[0]\n"),),
        (_HERE + "every_address_has_its_turn_in_whatever_order_members_are_told",),
    ),
    Mutant(
        "client-learns-no-address",
        "P10.1",
        "a client whose first member is gone does not know those that joined it",
        ((_CLIENT, "            if isinstance(reply.result, Acknowledged):\n", "            if False:\n"),),
        (_HERE + "addresses_are_learnt_while_a_session_lives",),
    ),
    Mutant(
        "client-believes-who-does-not-lead",
        "P10.1",
        "a member that was taken out replaces the addresses that a leader told",
        ((_SEEKING, "            self._told = _distinct(members)\n", "            self.learnt = _distinct(members)\n"),),
        (_HERE + "what_a_leader_told_outlives_what_others_say",),
    ),
    Mutant(
        "client-held-while-somebody-leads-already",
        "METADATA.md, 6",
        "what was kept while nobody led waits for its time though a leader is known",
        ((_NODE, "        is_over = bool(self.log.term) or not self.log.raft.awaits_leader(now_ns)\n", "        is_over = False\n"),),
        (_HOST + "who_asks_while_nobody_leads_is_answered_when_somebody_does",),
    ),
    Mutant(
        "client-first-of-what-was-held-is-run-alone",
        "P10.1",
        "whoever was elected runs the first request of each link that it kept, and forgets the others",
        ((_NODE, "            if not self.log.term:\n                del requests[1:]", "            if True:\n                del requests[1:]"),),
        (_HOST + "who_asks_while_nobody_leads_is_answered_when_somebody_does",),
    ),
    Mutant(
        "client-held-by-who-is-cut-off",
        "METADATA.md, 6",
        "a member that has been without a leader for long keeps everybody waiting all the same",
        (
            (
                _RAFT_STATE,
                "        return not self.hears_leader and now_ns - self.led_ns < AWAITED_BASES * self.base_ns\n",
                "        return not self.hears_leader\n",
            ),
        ),
        (_HOST + "who_asks_a_member_that_is_cut_off_for_long_is_told_at_once",),
    ),
    Mutant(
        "client-bytes-of-an-ended-link-stay-counted",
        "METADATA.md, 3",
        "what was kept of a link that ended takes room for ever",
        ((_HOLDING, "        self._bytes -= sum(map(_bytes, events))\n", ""),),
        ("tests/metadata/test_holding.py::test_what_has_no_room_is_not_kept",),
    ),
)  # fmt: skip
