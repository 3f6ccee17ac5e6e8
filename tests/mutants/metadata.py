"""The metadata quorum: its catalog, its member, its client."""

# ruff: noqa: E501, ISC004 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CATALOG = "embedbk/metadata/catalog.py"
_RECORDS = "embedbk/metadata/record_table.py"
_SESSIONS = "embedbk/metadata/session_table.py"
_REQUESTS = "embedbk/metadata/outstanding_requests.py"
_KEYS = "embedbk/metadata/key_space.py"
_PROPOSALS = "embedbk/metadata/proposals.py"
_MEMBER = "embedbk/metadata/member.py"
_ANSWERING = "embedbk/metadata/answering.py"
_LEADING = "embedbk/metadata/leading.py"
_STATE = "embedbk/metadata/raft_state.py"
_AGREED = "embedbk/metadata/agreed_log.py"
_LIFETIMES = "embedbk/metadata/lifetimes.py"
_CLIENT = "embedbk/metadata/client.py"
_WATCHING = "embedbk/metadata/watching.py"
_HISTORY = "embedbk/metadata/history.py"
_CUTTING = "embedbk/metadata/cutting.py"

_CATALOGS = "tests/metadata/test_catalog.py::test_"
_AGREEMENTS = "tests/metadata/test_agreed_log.py::test_"
_MEMBERS = "tests/metadata/test_member.py::test_"
_LOGS = "tests/metadata/test_command_log.py::test_"
_WATCHES = "tests/metadata/test_client.py::test_"
_LOADS = "tests/metadata/test_load.py::test_"
_HISTORIES = "tests/metadata/test_history.py::test_"
_CUTS = "tests/metadata/test_cutting.py::test_"
_IS_THE_CUT = _CUTS + "a_cut_is_the_state_at_the_cut_whatever_was_applied_meanwhile"

MUTANTS = (
    Mutant(
        "catalog-a-changed-record-is-packed-as-new",
        "P2.2",
        "a record that was changed since it was made loses the revision at which it was made",
        (
            (
                "embedbk/metadata/packed_records.py",
                "    if record.created != record.revision:\n",
                "    if False:\n",
            ),
        ),
        ("tests/metadata/test_packed_records.py::test_records_are_what_was_put_whatever_comes_and_goes",),
    ),
    # A member on the log that several agree on.
    Mutant(
        "cut-off-leader-renews",
        "P10.1",
        "who led once renews sessions though nobody has confirmed it for long",
        (
            (
                _AGREED,
                "        return self.raft.is_confirmed(now_ns - self.raft.leased_ns)\n",
                "        return self.term > 0\n",
            ),
        ),
        (_AGREEMENTS + "a_leader_that_is_cut_off_renews_nobody",),
    ),
    Mutant(
        "any-answer-confirms-the-newest-round",
        "C4",
        "an answer to an older question counts for the newest one",
        (
            (
                _LEADING,
                "        self._answered[member] = max(self._answered.get(member, 0), round_)\n",
                "        self._answered[member] = self._round\n",
            ),
        ),
        (_AGREEMENTS + "an_answer_to_an_older_round_confirms_that_round_and_no_later_one",),
    ),
    Mutant(
        "flush-behind-the-event",
        "P10.1",
        "what was gathered in a turn goes in behind what ends it: its indexes are another's",
        (
            (
                _AGREED,
                "        self._flush(event.now_ns, effects, news)\n        if isinstance(event, Tick):\n",
                "        if isinstance(event, TurnEnded):\n            self._flush(event.now_ns, effects, news)\n        if isinstance(event, Tick):\n",
            ),
        ),
        (
            _AGREEMENTS
            + "what_was_proposed_before_leadership_is_lost_in_the_same_turn_stands_where_it_was_promised",
        ),
    ),
    Mutant(
        "leadership-goes-to-who-left",
        "L5",
        "a leader that is left alone waits for ever for a voter that has left, and takes nothing more",
        ((_LEADING, "self.transfer_to not in state.configuration.voters:", "False:"),),
        ("tests/quorum/test_known_accidents.py::test_a_transfer_to_a_voter_that_leaves_is_over",),
    ),
    Mutant(
        "a-level-is-begun-while-leadership-is-handed-over",
        "P10.8",
        "an index is promised for what the Raft refuses, and the member ends",
        ((_PROPOSALS, "        if not self._log.why_full(len(body)):\n", "        if True:\n"),),
        (_AGREEMENTS + "while_leadership_is_handed_over_no_level_is_begun",),
    ),
    Mutant(
        "gathered-bytes-do-not-count",
        "P10.1",
        "what was gathered in a turn is beyond the bound of what is not committed",
        (
            (
                _AGREED,
                "return self.raft.why_full(size, self._gathered_bytes)",
                "return self.raft.why_full(size, 0)",
            ),
        ),
        (_AGREEMENTS + "what_has_no_room_in_the_log_is_put_off_and_not_promised",),
    ),
    Mutant(
        "leader-reads-without-asking",
        "I75",
        "a leader of several answers reads at once, whoever leads by now",
        ((_AGREED, "if self.raft.is_alone and self.raft.has_committed:", "if self.raft.has_committed:"),),
        (
            _AGREEMENTS + "reads_of_one_turn_share_a_round",
            "tests/quorum/test_whole_members.py::test_an_old_leader_that_is_cut_off_shows_nothing_older",
        ),
    ),
    Mutant(
        "new-leader-renews-what-may-have-ended",
        "P7.7",
        "who begins to lead renews sessions before it has applied all that leaders before it promised",
        (
            (
                _MEMBER,
                "        is_known = self._applied_index >= self._started_index and not",
                "        is_known = not",
            ),
        ),
        (_AGREEMENTS + "whoever_begins_to_lead_shows_and_renews_nothing_before_its_own_command_is_applied",),
    ),
    Mutant(
        "deposed-leader-keeps-its-links",
        "P10.1",
        "clients of who leads no more are left to find out",
        (
            (
                _MEMBER,
                "        if before:\n            effects.append(DropLinks",
                "        if before and before < 0:\n            effects.append(DropLinks",
            ),
        ),
        (_AGREEMENTS + "a_read_that_was_asked_in_the_turn_in_which_leadership_is_lost_is_not_answered",),
    ),
    Mutant(
        "put-off-read-ends-the-member",
        "P10.1",
        "a read that was put off while its round was under way is an error",
        (
            (
                "embedbk/metadata/unapplied_reads.py",
                "self._unready.pop(token, None)",
                "self._unready.pop(token)",
            ),
        ),
        (_AGREEMENTS + "a_read_that_was_put_off_is_no_more_when_its_round_comes_back",),
    ),
    # Snapshots that are cut while commands go on.
    Mutant(
        "cut-without-what-was-deleted",
        "I80",
        "a snapshot lacks the records that were deleted while it was cut",
        ((_CUTTING, "in merge(there, gone, key=itemgetter(0)):", "in there:"),),
        (_IS_THE_CUT,),
    ),
    Mutant(
        "cut-parks-the-newest",
        "I80",
        "what is parked of a record is how it was before its last change, not at the cut",
        (
            (
                _CUTTING,
                "        if self._left and key > self._after and key not in self._set_aside:\n",
                "        if self._left and key > self._after:\n            self._set_aside_keys.remove(key) if self._set_aside.get(key) else None\n",
            ),
        ),
        (_IS_THE_CUT,),
    ),
    Mutant(
        "cut-with-what-came-later",
        "I80",
        "a snapshot holds keys that were made while it was cut",
        (
            (
                _CUTTING,
                "            self._set_aside[key] = before\n",
                "            if before is not None:\n                self._set_aside[key] = before\n",
            ),
        ),
        (_IS_THE_CUT,),
    ),
    Mutant(
        "cut-with-answers-of-later",
        "I80 I74",
        "a snapshot holds answers to requests that were run while it was cut",
        (
            (
                _SESSIONS,
                "            self.cut.keep_session(session)\n        if run.done_below",
                "            pass\n        if run.done_below",
            ),
        ),
        (_IS_THE_CUT,),
    ),
    Mutant(
        "half-a-snapshot-is-loaded",
        "I80",
        "pieces that end too early are a catalog",
        (("embedbk/metadata/loading.py", "    if head is None or any(left):\n", "    if head is None:\n"),),
        (_CUTS + "pieces_that_are_no_snapshot_are_refused",),
    ),
    # The watches that open ledgers and lists are followed by.
    Mutant(
        "watch-skips-on-reconnect",
        "P10.1 I82",
        "a watch that missed too much goes on from now",
        (
            (
                _WATCHING,
                "            self._list_again(watch)\n        elif events.after_revision > watch.revision:\n",
                "            watch.revision = events.revision\n            self._follow(watch, now_ns, effects)\n"
                "        elif events.after_revision > watch.revision:\n",
            ),
        ),
        (_WATCHES + "a_watch_that_missed_too_much_lists_again_and_sees_the_deletes",),
    ),
    # Metadata.
    Mutant(
        "metadata-answers-before-sync",
        "P10.1",
        "a quorum of one commits what is on its way to the disk",
        (
            (
                _LEADING,
                "            return self._state.log.durable_index\n",
                "            return self._state.log.last_index\n",
            ),
            (
                _STATE,
                "        end = min(self.commit_index, self.log.durable_index)\n",
                "        end = self.commit_index\n",
            ),
        ),
        (
            _MEMBERS + "an_answer_leaves_in_the_step_that_hears_of_durability",
            _MEMBERS + "a_watch_gets_every_change_once_it_is_durable",
        ),
    ),
    Mutant(
        "applied-when-it-is-logged",
        "P10.1",
        "a change is in the catalog as soon as it is proposed: a deposed leader would have to take it back",
        (
            (
                _MEMBER,
                "        effects = self._HANDLERS.get(type(event), Member._on_log)(self, event)\n",
                "        known = max((each.index for each in self._proposals.queue), default=0)\n"
                "        effects = self._HANDLERS.get(type(event), Member._on_log)(self, event)\n"
                "        for each in self._proposals.queue:\n"
                "            if each.index > known:\n"
                "                self.catalog.apply(each.command, each.index, each.term)\n",
            ),
        ),
        (
            _LOGS + "a_command_is_applied_when_it_is_committed_and_not_before",
            _MEMBERS + "who_asks_again_while_the_disk_stands_still_opens_one_session",
        ),
    ),
    Mutant(
        "answered-when-it-is-proposed",
        "P10.1 I74",
        "whoever asks for a change is told of it before it is committed",
        (
            (
                _MEMBER,
                "            self._proposals.run(asked, operation, effects)\n            return effects\n",
                "            self._proposals.run(asked, operation, effects)\n"
                "            for each in self._proposals.queue:\n"
                "                if asked in each.asked:\n"
                "                    each.asked.remove(asked)\n"
                "                    self._pending.end(asked)\n"
                "                    done = self.catalog.copy().apply(each.command, each.index, each.term)\n"
                "                    self._answer(asked, done, effects)\n"
                "            return effects\n",
            ),
        ),
        (
            _MEMBERS + "an_answer_leaves_in_the_step_that_hears_of_durability",
            _LOGS + "what_was_lost_with_the_leadership_is_answered_by_nobody_and_run_once",
        ),
    ),
    Mutant(
        "a-repeat-is-logged-beside-its-first-run",
        "I74",
        "a request that comes again over another link while it is under way is proposed twice",
        (
            (
                _PROPOSALS,
                "        first = self._runs.get(asked.key)\n",
                "        first = None\n",
            ),
        ),
        (_MEMBERS + "a_repeat_is_not_logged_and_waits_for_its_first_run",),
    ),
    Mutant(
        "a-repeat-is-run-beside-its-first-run",
        "I74",
        "a request that stands in the log twice, as by two leaders, is run twice",
        (
            (
                _CATALOG,
                "        if kept is not None:\n            return kept\n",
                "        if kept is not None and term == 1:\n            return kept\n",
            ),
        ),
        (_LOGS + "a_request_that_two_leaders_logged_is_run_once",),
    ),
    Mutant(
        "an-expiry-counts-in-every-term",
        "METADATA.md",
        "what an ex-leader proposed ends a session that the next one heard",
        ((_CATALOG, "        if command.term not in (0, term):\n", "        if term == 0:\n"),),
        (_LOGS + "an_expiry_that_lands_in_another_term_is_void",),
    ),
    Mutant(
        "what-is-ending-is-renewed",
        "METADATA.md",
        "a keep-alive is answered while the end of its session is on its way",
        (
            (
                _MEMBER,
                "        is_known = self._applied_index >= self._started_index and not self._proposals.is_expiring(session)\n",
                "        is_known = self._applied_index >= self._started_index\n",
            ),
        ),
        (
            _LOGS + "nothing_renews_a_session_whose_end_is_proposed",
            _MEMBERS + "a_silent_session_expires_after_its_ttl_and_a_sixteenth",
        ),
    ),
    Mutant(
        "a-read-from-before-an-answered-write",
        "P10.1 I75",
        "a read is answered as it comes, whatever was committed since by whoever leads",
        (
            (
                _MEMBER,
                "        if index is not None and max(index, self._after(asked)) <= self._applied_index:\n",
                "        if max(index or 0, self._after(asked)) <= self._applied_index:\n",
            ),
        ),
        (
            _LOGS + "a_read_waits_for_what_was_committed_when_it_came_and_for_no_more",
            _LOGS + "reads_that_were_not_confirmed_are_dropped_with_the_leadership",
        ),
    ),
    Mutant(
        "a-read-overtakes-its-sessions-write",
        "P10.1",
        "a read is answered before the write that its session sent in front of it",
        (
            (
                _MEMBER,
                "        return max(self._started_index, self._proposals.last_of(number))\n",
                "        return max(self._started_index, self._proposals.last_of(number) if self._proposals.is_expiring(number) else 0)\n",
            ),
        ),
        (
            _MEMBERS + "a_read_waits_for_the_changes_it_has_seen",
            _LOGS + "a_session_reads_what_it_wrote",
        ),
    ),
    Mutant(
        "shown-before-the-start-is-whole",
        "P10.5",
        "a member answers before its start, or its generation, is committed",
        (
            (
                _MEMBER,
                "        self._started_index = self._proposals.queue[-1].index\n",
                "        self._started_index = 0\n",
            ),
        ),
        (
            _LOGS + "a_generation_is_there_before_anything_is_shown",
            "tests/metadata/test_node.py::test_every_start_is_a_link_that_is_durable_before_anything_is_answered",
        ),
    ),
    Mutant(
        "session-numbers-count-from-each-generation-alike",
        "P9.2",
        "a session of a new generation has the number of one of the lost future",
        (
            (
                _CATALOG,
                "(self.revision >> GENERATION_BITS << GENERATION_BITS) | index\n",
                "index\n",
            ),
        ),
        (_MEMBERS + "a_session_is_numbered_by_its_place_in_the_log",),
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
        "one-put-may-fill-the-reserve",
        "P10.7",
        "a record that comes alone may use the room that is kept for those that are there",
        (
            (
                _KEYS,
                "            if before is not None:\n                allowed += self.limits.catalog_reserve_bytes\n",
                "            allowed += self.limits.catalog_reserve_bytes\n",
            ),
        ),
        (_CATALOGS + "a_put_alone_is_as_one_among_others",),
    ),
    Mutant(
        "one-put-keeps-what-it-replaced",
        "I72",
        "the sum of the records still has what a record took the place of",
        (
            (
                _RECORDS,
                "        if before is not None:\n            self.sum -= record_digest(before)\n",
                "",
            ),
        ),
        (_IS_THE_CUT,),
    ),
    Mutant(
        "answers-of-a-short-jump-are-kept",
        "I74",
        "the last answer that a client says it has is kept",
        (
            (
                _SESSIONS,
                "below = session.kept, range(session.done_below, done_below)\n",
                "below = session.kept, range(session.done_below, done_below - 1)\n",
            ),
        ),
        (_CATALOGS + "answers_that_a_client_has_are_kept_no_longer",),
    ),
    Mutant(
        "snapshot-without-kept-answers",
        "P10.1 I74",
        "a member that was restored from a snapshot runs a repeated request again",
        ((_SESSIONS, "each.done_below, dict(each.kept)", "each.done_below, {}"),),
        (_CATALOGS + "same_commands_same_catalog",),
    ),
    Mutant(
        "one-comparison-is-enough",
        "P10.1 P8.3",
        "a transaction is done when one of its comparisons holds",
        (
            (
                _KEYS,
                "        return all(self._holds(compare) for compare in compares)\n",
                "        return any(self._holds(compare) for compare in compares)\n",
            ),
        ),
        (_CATALOGS + "a_change_is_done_only_if_every_comparison_holds",),
    ),
    Mutant(
        "repeated-request-runs-again",
        "P10.2",
        "a request that is sent again under its sequence is logged again, though its answer is known",
        (
            (
                _MEMBER,
                "        return self.catalog.kept_reply(*key) is None and not",
                "        return key[1] > 0 and not",
            ),
        ),
        (_MEMBERS + "a_repeat_is_not_logged_and_waits_for_its_first_run",),
    ),
    Mutant(
        "a-later-change-overtakes-one-that-waits",
        "METADATA.md",
        "a new leader runs what came when it knew the session before what had come earlier",
        (
            (
                _MEMBER,
                " is None and not self._reads.holds_changes_of(key[0])\n",
                " is None\n",
            ),
        ),
        (_AGREEMENTS + "what_came_before_its_session_was_known_is_run_before_what_came_behind_it",),
    ),
    Mutant(
        "a-stream-that-ended-is-asked-for-again",
        "METADATA.md",
        "a Watch that was put off is sent behind the Unwatch, and its stream is never ended",
        (
            (
                _REQUESTS,
                "                self._forget_watch(stream.operation.watch_id)\n",
                "                pass\n",
            ),
        ),
        (_WATCHES + "a_stream_that_was_ended_is_not_asked_for_again",),
    ),
    Mutant(
        "keep-alive-waits-for-the-disk",
        "METADATA.md",
        "a live session is renewed only when what was applied before is durable",
        (
            (
                _MEMBER,
                "                return self._answering.renew(self.catalog, event)\n",
                "                if not self._proposals:\n"
                "                    return self._answering.renew(self.catalog, event)\n"
                "                asked = PendingRequest(link, request, (number, request.sequence))\n"
                "                self._pending.add(asked)\n"
                "                self._reads.wait_for(self._proposals.queue[-1].index, asked)\n"
                "                return []\n",
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
        (
            (
                _LIFETIMES,
                "        if self._stood_since_ns is None or now_ns - self._stood_since_ns <= AWAY_NS:\n",
                "        if now_ns >= 0:\n",
            ),
            (_LIFETIMES, "        return None if is_still else due_ns\n", "        return due_ns\n"),
        ),
        (_MEMBERS + "nobody_expires_while_nothing_can_be_committed",),
    ),
    Mutant(
        "member-spins-while-its-log-stands-still",
        "L14",
        "a turn that came late while nothing can be committed is followed by another at once, without end",
        ((_LIFETIMES, "then_ns = max(due_ns, self._last_ns)", "then_ns = due_ns"),),
        (
            "tests/metadata/test_member.py::test_a_member_that_turns_late_while_its_log_stands_still_waits_for_its_log",
        ),
    ),
    Mutant(
        "every-stall-is-a-fresh-ttl",
        "METADATA.md",
        "a disk that stands still now and then keeps the keys of dead clients for ever",
        (
            (
                _LIFETIMES,
                "        self._uncounted_ns += self._stood_ns(now_ns)\n",
                "        if self._stood_ns(now_ns):\n            self.grant_all(now_ns)\n",
            ),
        ),
        (_MEMBERS + "a_dead_session_expires_though_the_disk_stands_still_again_and_again",),
    ),
    Mutant(
        "a-sleep-counts-once-something-was-read",
        "P9.1",
        "a member that slept ends whoever is not in the first message that it reads",
        (
            (
                _LIFETIMES,
                "            self._uncounted_ns += now_ns - self._last_ns\n",
                "            self._uncounted_ns += 0\n",
            ),
        ),
        (
            _MEMBERS + "a_member_that_slept_expires_nobody",
            _MEMBERS + "who_was_stopped_hears_what_waited_before_it_ends_anybody",
        ),
    ),
    Mutant(
        "refused-and-run-all-the-same",
        "I74",
        "a refusal is not kept: the repeat of a refused operation runs when there is room again",
        (
            (
                _CATALOG,
                "        if command.rules >= RULES_KEEP_REFUSALS or not isinstance(result, Refusal):\n",
                "        if not isinstance(result, Refusal):\n",
            ),
        ),
        (_CATALOGS + "a_refusal_is_the_answer_for_ever", _WATCHES + "what_was_refused_once_is_never_run"),
    ),
    Mutant(
        "busy-is-taken-for-an-answer",
        "METADATA.md",
        "a client tells its host that a request was refused which may still be run",
        (
            (
                _REQUESTS,
                "        if isinstance(reply.result, Refusal) and reply.result.code == BUSY:\n",
                "        if isinstance(reply.result, Refusal) and reply.result.code == BUSY and not pending.sequence:\n",
            ),
        ),
        (_WATCHES + "what_is_put_off_is_sent_again_later_each_time_and_run_once",),
    ),
    Mutant(
        "refusals-wait-for-the-disk-too",
        "METADATA.md",
        "what has no place to wait waits all the same, and is answered when the disk goes on",
        (
            (
                _PROPOSALS,
                "        full = self._pending.why_full(asked.link) or self._log",
                "        full = self._log",
            ),
        ),
        (_MEMBERS + "commands_that_wait_for_the_disk_are_bounded_in_bytes",),
    ),
    Mutant(
        "a-session-is-its-number",
        "METADATA.md",
        "who reads another's session in a record may ask in its name",
        ((_ANSWERING, " or request.secret == session.secret\n", " or request.session > 0\n"),),
        (_MEMBERS + "a_session_belongs_to_its_link_or_its_secret_and_not_to_its_number",),
    ),
    Mutant(
        "secrets-are-forgotten-by-a-snapshot",
        "METADATA.md",
        "a member that starts from a snapshot knows no session's secret",
        ((_SESSIONS, "dict(each.kept), secret=each.secret\n", "dict(each.kept)\n"),),
        (
            _MEMBERS + "a_session_belongs_to_its_link_or_its_secret_and_not_to_its_number",
            "tests/metadata/test_node.py::test_a_restart_keeps_values_and_sessions",
        ),
    ),
    Mutant(
        "resends-do-not-back-off",
        "METADATA.md",
        "a client asks again as often as it did at first, however long the answers take",
        (
            (
                "embedbk/metadata/pacing.py",
                "        wait_ns = max(first_ns, 2 * self.usual_ns) << min(times, 16)\n",
                "        wait_ns = first_ns\n",
            ),
        ),
        (_WATCHES + "resends_come_later_each_time",),
    ),
    Mutant(
        "the-window-never-closes",
        "METADATA.md",
        "a client has as much under way in a crowd as alone",
        (
            (
                "embedbk/metadata/pacing.py",
                "        if took_ns - min(self._fastest_ns) > SLOW_NS:\n",
                "        if took_ns < 0:\n",
            ),
        ),
        (
            _WATCHES + "the_window_follows_how_long_answers_take",
            _LOADS + "four_times_the_load_that_saturates_takes_nothing_from_what_is_done",
        ),
    ),
    Mutant(
        "late-openings-renew-nothing",
        "METADATA.md",
        "only keep-alives renew: a session whose answers are late by half a ttl is over before the first",
        (
            (
                _CLIENT,
                "            elif opened.session == session.session:\n",
                "            elif opened.session < 0:\n",
            ),
        ),
        (_LOADS + "answers_that_are_late_by_most_of_a_ttl_end_no_session[60]",),
    ),
    Mutant(
        "a-page-of-another-list",
        "I82",
        "an answer that comes late ends a list that began anew, with what the first one had left",
        (
            (
                _WATCHING,
                "isinstance(operation, List) and request.list_count == watch.list_count:\n",
                "isinstance(operation, List) and watch.listing is not None:\n",
            ),
        ),
        (_WATCHES + "a_page_of_a_list_before_is_nobodys",),
    ),
    Mutant(
        "half-a-list-is-shown",
        "I82",
        "a list that ended between two pages is over, and what the stream brings then is shown as all keys",
        (
            (
                _WATCHING,
                "            else:  # It stays a list under way, so that nothing of half a list is shown.\n",
                "            else:\n                watch.listing = None\n",
            ),
        ),
        (_WATCHES + "nothing_of_a_list_that_ended_half_way_is_shown",),
    ),
    Mutant(
        "a-watch-that-was-refused-is-forgotten",
        "METADATA.md",
        "a stream for which the quorum had no room is not among those that are asked for again",
        (
            (
                _WATCHING,
                "                watch.put_off(now_ns)\n                self._put_off[watch.token] = watch\n",
                "                watch.put_off(now_ns)\n",
            ),
        ),
        (_WATCHES + "a_stream_that_is_refused_is_asked_for_less_and_less",),
    ),
    Mutant(
        "the-stream-begins-behind-the-list",
        "METADATA.md",
        "a watch asks for its stream when its list is whole: a long one is forgotten by then",
        (
            (
                _WATCHING,
                "            self._show(watch, effects)\n        self._follow(watch, now_ns, effects)\n",
                "            self._show(watch, effects)\n            self._follow(watch, now_ns, effects)\n",
            ),
        ),
        (_WATCHES + "the_stream_begins_with_the_first_page_and_not_behind_the_last",),
    ),
    Mutant(
        "one-history-for-all",
        "METADATA.md",
        "the oldest changes go first, whoever made them: much written elsewhere ends every quiet watch",
        (
            (
                _HISTORY,
                "            size = folder.bytes if is_heavy else folder.changes\n",
                "            size = 0\n",
            ),
        ),
        (_HISTORIES + "what_is_put_elsewhere_takes_nothing_from_a_quiet_folder",),
    ),
    Mutant(
        "history-forgets-what-nobody-saw",
        "I82",
        "changes leave the history before they are durable and shown",
        (
            (
                _HISTORY,
                "self._newest - 1 if self.hold is None else min(self._newest - 1, self.hold)\n",
                "self._newest - 1\n",
            ),
        ),
        (
            _HISTORIES + "what_is_not_shown_yet_never_goes",
            _MEMBERS + "a_burst_that_outruns_the_history_is_given_whole",
        ),
    ),
    Mutant(
        "a-forgotten-folder-is-whole",
        "I82",
        "a folder of which nothing is known any more counts as one that never changed",
        (
            (
                _HISTORY,
                "            self._others_floor = max(self._others_floor, folder.floor)\n",
                "            self._others_floor = self._others_floor\n",
            ),
        ),
        (_HISTORIES + "folders_that_clients_invent_are_bounded",),
    ),
    Mutant(
        "one-link-takes-every-place",
        "METADATA.md",
        "requests that wait are bounded in all, and one link may have all of them",
        (
            (
                "embedbk/metadata/intake.py",
                "        if self._count >= allowed or of_link >= share:\n",
                "        if self._count >= allowed:\n",
            ),
        ),
        ("tests/metadata/test_intake.py::test_nobody_takes_all_the_places",),
    ),
    Mutant(
        "tombstone-has-no-room-in-a-full-catalog",
        "P10.7",
        "at the bound of the catalog no closed ledger can be deleted, since its tombstone is a new key",
        (("embedbk/metadata/room.py", "            made -= before is not None\n", "            pass\n"),),
        ("tests/metadata/test_catalog.py::test_a_full_catalog_takes_a_tombstone_in_the_place_of_a_ledger",),
    ),
    Mutant(
        "what-was-never-there-makes-way",
        "P10.7",
        "whoever deletes keys that nobody has fills the reserve with new ones",
        (
            (
                "embedbk/metadata/room.py",
                "            made -= before is not None\n",
                "            made -= 1\n",
            ),
        ),
        ("tests/metadata/test_catalog.py::test_a_full_catalog_takes_a_tombstone_in_the_place_of_a_ledger",),
    ),
    Mutant(
        "nobody-hears-that-the-catalog-is-nearly-full",
        "P10.7",
        "a member that nobody asks for its status says nothing before new ledgers are refused",
        (
            (
                "embedbk/host/metadata_node.py",
                "        if self._filling.is_due(now_ns):\n",
                "        if self._filling.is_due(0):\n",
            ),
        ),
        (
            "tests/metadata/test_fullness.py::"
            "test_a_member_says_once_that_its_catalog_is_nearly_full_and_that_there_is_room_again",
        ),
    ),
    Mutant(
        "a-bound-that-is-nearly-reached-chatters",
        "P10.7",
        "what goes to and fro at the mark is said, and taken back, each time",
        (
            (
                "embedbk/host/filling.py",
                "(CALM_PERCENT if each.bound in self._said else WARN_PERCENT)",
                "WARN_PERCENT",
            ),
        ),
        ("tests/metadata/test_fullness.py::test_what_goes_to_and_fro_at_the_mark_is_no_new_word_each_time",),
    ),
)
