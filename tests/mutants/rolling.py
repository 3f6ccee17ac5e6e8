"""Logs that roll: when the next ledger is listed, what is sent to it (P8.2); and logs that are lost (P8.4)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_RENEWING = "embedbk/client/renewing.py"
_OUTLIVING = "embedbk/client/outliving.py"
_PASSAGE = "embedbk/client/passage.py"
_APPENDING = "embedbk/client/appending.py"
_OWNING = "embedbk/client/owning.py"
_ROLLING = "embedbk/core/log_rolling.py"

_FACES = "tests/faces/test_rolling.py::test_"
_P8 = "tests/rules/test_p8_rolling.py::test_"
_ENDS = "tests/rules/test_p8_end_recording.py::test_"
_PUBLISHING = "embedbk/core/publishing.py"

_LIFE = "tests/faces/test_lifecycle.py::test_"
_BEHIND = "tests/faces/test_rolling_behind.py::test_"
_WRITING = "embedbk/host/writing.py"
_TIMES = "tests/scenarios/test_times.py::test_"

_CREATION = "embedbk/core/creation.py"
_LOGS = "tests/rules/test_p8_logs.py::test_"

MUTANTS = (
    Mutant(
        "a-creation-goes-on-behind-a-list-that-has-changed",
        "P8.2 P2.2",
        "a ledger that cannot be listed is tried again and again, against a list that is gone",
        (
            (
                _CREATION,
                "        if self.is_refused and self.compares_beside and",
                "        if self.is_refused and not self.compares_beside and",
            ),
        ),
        (_P8 + "a_list_that_changed_under_its_owner_is_read_again",),
    ),
    Mutant(
        "a-landed-takeover-takes-its-ledger-for-a-doubled-id",
        "P8.4",
        "a takeover that landed unheard, and that another one followed, says that an id was handed out twice",
        (
            (
                _CREATION,
                "        if self.compares_beside and self.is_unsettled:\n",
                "        if self.compares_beside and self.is_refused:\n",
            ),
        ),
        (_LOGS + "a_takeover_that_landed_unheard_is_over_when_another_took_the_log_since",),
    ),
    Mutant(
        "a-known-list-is-written-over",
        "P8.2",
        "the list is put as its owner knew it when the ledger before is closed, whatever others wrote into it since",
        (
            (
                "embedbk/core/end_recording.py",
                "    when = (Compare(list_key, revision), Compare(log_owner_path(name), epoch))\n",
                "    when = (Compare(log_owner_path(name), epoch),)\n",
            ),
        ),
        (_ENDS + "another_list_or_epoch_keeps_no_ledger_from_being_closed",),
    ),
    Mutant(
        "the-next-ledger-is-sent-at-once",
        "P8.2 I92",
        "what is appended while the ledger before is not done is sent",
        ((_WRITING, "        if not before.is_done:\n            return False\n", ""),),
        (_FACES + "nothing_is_sent_to_the_next_ledger_before_all_adds_are_done",),
    ),
    Mutant(
        "a-failed-ledger-is-done",
        "P8.2",
        "a handle that failed with nothing on its way counts as done, and the next one sends",
        (
            (
                _WRITING,
                "return self.failure is None and self.error is None and self.lac >= self.packer.last_entry",
                "return self.core.in_flight.pending_count == 0",
            ),
        ),
        (_BEHIND + "what_was_kept_goes_behind_what_was_outstanding",),
    ),
    Mutant(
        "what-was-kept-stands-where-it-was-put",
        "P8.2",
        "an entry that went behind what was outstanding is looked for where it would have stood without that",
        ((_APPENDING, "tuple(refused), first)", "tuple(refused))"),),
        (_BEHIND + "what_was_kept_goes_behind_what_was_outstanding",),
    ),
    Mutant(
        "what-was-kept-goes-first",
        "P8.2 I93",
        "what was kept goes to the next ledger ahead of what is outstanding",
        (
            (
                _OUTLIVING,
                "            if not before.hand_over_to(following.appending, last_entry):\n",
                (
                    "            if kept is not None:\n"
                    "                kept.hand_over_to(following.appending, NO_ENTRY, front=before)\n"
                    "            if not before.hand_over_to(following.appending, last_entry):\n"
                ),
            ),
            (
                _OUTLIVING,
                (
                    "            if kept is not None:\n"
                    "                kept.hand_over_to(following.appending, NO_ENTRY, front=before)\n"
                    "                self._decide(kept"
                ),
                "            if kept is not None:\n                self._decide(kept",
            ),
        ),
        (_BEHIND + "what_was_kept_goes_behind_what_was_outstanding",),
    ),
    Mutant(
        "what-was-kept-takes-the-prepared-ledger",
        "P8.2",
        "what was kept goes to the ledger that it was kept for, behind other entries",
        (
            (
                _OUTLIVING,
                "self._before_failed is not None or kept is not None or",
                "self._before_failed is not None or",
            ),
        ),
        (_BEHIND + "what_was_kept_goes_behind_what_was_outstanding",),
    ),
    Mutant(
        "what-was-kept-waits-for-ever",
        "P8.2 L2",
        "the handle of the next ledger is looked at when something is appended, and not when the one before is done",
        (
            (
                _RENEWING,
                "            before.runtime.wake_writing(owned.appending.writing)  # All may be done by now.\n",
                "",
            ),
            (
                "embedbk/host/client_node.py",
                "if following is not None and following in self.own_lacs and writing.is_done:",
                "if False:",
            ),
        ),
        (_FACES + "nothing_is_sent_to_the_next_ledger_before_all_adds_are_done",),
    ),
    Mutant(
        "appended-before-is-acknowledged",
        "P3.1 P3.2",
        "a producer's repeat is answered while what it repeats is on its way in the ledger before",
        ((_APPENDING, "                    await front_is_done(self, terms.timeout_s, until_s)\n", ""),),
        (_BEHIND + "a_repeat_waits_for_what_it_repeats",),
    ),
    Mutant(
        "who-waits-where-nothing-was-kept-waits-for-ever",
        "P8.2 L2",
        "the handle of the next ledger, which took nothing yet, is set aside, and nobody is told",
        ((_OUTLIVING, "        kept.runtime.call_if_open(lambda: kept.writing.hand_over(NO_ENTRY))\n", ""),),
        (_BEHIND + "a_repeat_waits_for_what_it_repeats",),
    ),
    Mutant(
        "behind-a-refused-one-of-the-ledger-before",
        "P8.2",
        "an append on the place of one that is in no ledger goes to the next one",
        (
            (
                _APPENDING,
                "follows_refused=front is not None and front.has_refused_last",
                "follows_refused=False",
            ),
        ),
        (_BEHIND + "what_was_to_stand_behind_a_refused_one_is_refused",),
    ),
    Mutant(
        "flush-looks-at-the-next-ledger",
        "P8.2",
        "flush waits for the ledger that is about to be written, which is empty",
        ((_PASSAGE, "return self._draining if is_empty and", "return self._draining if not is_empty and"),),
        (_BEHIND + "flush_waits_for_the_ledger_before_while_the_next_one_is_empty",),
    ),
    Mutant(
        "release-leaves-the-ledger-before",
        "P3.6",
        "a writer that is released goes on with the ledger that it was about to leave",
        ((_RENEWING, "            draining.abandon()\n", "            pass\n"),),
        (_BEHIND + "who_lets_go_meanwhile_sends_nothing_of_what_was_kept",),
    ),
    Mutant(
        "a-ticket-counts-from-its-ledger",
        "P8.2 I93",
        "a ticket of the next ledger forgets what stands before it in the log",
        (
            (
                _APPENDING,
                "            tenure=own.tenure,\n",
                "            tenure=past.tenure,\n",
            ),
        ),
        ("tests/faces/test_log.py::test_a_ticket_says_where_in_the_log_and_under_which_epoch",),
    ),
    Mutant(
        "next-ledger-has-a-time-of-its-own",
        "P8.11",
        "the next ledger of a writer goes on by the clock alone",
        (
            (
                "embedbk/client/owning.py",
                "self._begin_times(appending, before.writing.packer.time_ms)",
                "self._begin_times(appending, NO_ENTRY)",
            ),
        ),
        (_TIMES + "no_time_is_below_the_one_before_it_across_takeovers_and_rolls",),
    ),
    Mutant(
        "new-owner-has-a-time-of-its-own",
        "P8.11",
        "who takes a log over does not read the time of its last entry",
        (
            (
                "embedbk/client/owning.py",
                "return await last_time(reading, taken.log_list, taken.first_offset)",
                "return NO_ENTRY",
            ),
        ),
        (_TIMES + "no_time_is_below_the_one_before_it_across_takeovers_and_rolls",),
    ),
    Mutant(
        "times-below-their-level",
        "P8.11 P10.8",
        "entries carry times before the cluster's level allows it, which bookies of the build before refuse",
        (
            (
                "embedbk/client/owning.py",
                "        if floor_ms != NO_ENTRY or self.runtime.has_level(LEVEL_OF_TIMES):\n",
                "        if appending:\n",
            ),
        ),
        (_TIMES + "below_its_level_no_entry_carries_a_time",),
    ),
    Mutant(
        "who-was-not-told-writes-without-times",
        "P8.11 P10.8",
        "an owner that was not told of the level yet goes on without times behind a ledger that has them",
        (
            (
                "embedbk/client/owning.py",
                "        if floor_ms != NO_ENTRY or self.runtime.has_level(LEVEL_OF_TIMES):\n",
                "        if self.runtime.has_level(LEVEL_OF_TIMES):\n",
            ),
        ),
        (_TIMES + "an_owner_that_was_not_told_of_the_level_yet_sees_it_by_what_stands_there",),
    ),
    Mutant(
        "first-at-stops-one-early",
        "P8.11",
        "an entry at the very time that is looked for is passed over",
        (
            (
                "embedbk/client/entry_times.py",
                "if found is None or found < time_ms:",
                "if found is None or found <= time_ms:",
            ),
        ),
        (_TIMES + "the_first_entry_at_or_behind_a_time_is_found",),
    ),
    Mutant(
        "a-lost-log-grows-old",
        "P8.2 P8.4",
        "a writer that has lost its log asks for a roll again and again by age",
        (
            (
                "embedbk/client/roll_bounds.py",
                "not appending.is_over and self._line.is_writing:",
                "not appending.is_over:",
            ),
        ),
        (_FACES + "a_writer_that_lost_its_log_behind_a_roll_grows_no_older",),
    ),
    Mutant(
        "idle-logs-hold-two-ledgers",
        "P8.2",
        "the next ledger is listed when half of a bound is used",
        (("embedbk/client/roll_bounds.py", "PREPARE_AT = 0.8\n", "PREPARE_AT = 0.5\n"),),
        (_FACES + "the_next_ledger_is_listed_at_four_fifths_of_a_bound_and_not_before",),
    ),
    Mutant(
        "prepared-ledgers-are-left-open",
        "P8.2 I91",
        "a writer that closes leaves the ledger that it had listed to whoever comes next",
        ((_RENEWING, "            await self._close_prepared()\n", ""),),
        (_FACES + "the_next_ledger_is_listed_at_four_fifths_of_a_bound_and_not_before",),
    ),
    Mutant(
        "takes-a-rivals-ledger-for-its-own",
        "P8.2 P8.4",
        "a ledger that a rival listed behind ours is written to as if we had listed it",
        ((_ROLLING, " or self.segments[-1].first_offset is not None:", ":"),),
        (_P8 + "who_was_taken_over_lists_nothing_and_leaves_nothing",),
    ),
    Mutant(
        "takes-a-ledger-that-somebody-recovers",
        "P8.2 P8.4",
        "a listed ledger that a rival recovers is written to",
        ((_ROLLING, "if metadata.state != LedgerState.OPEN:", "if metadata.state is None:"),),
        (_P8 + "a_listed_ledger_that_somebody_has_is_not_taken[recovered]",),
    ),
    Mutant(
        "an-end-without-the-next-place",
        "P8.2 I93",
        "the end of a ledger is recorded, and not where the next one begins",
        (
            (
                "embedbk/core/end_recording.py",
                "segments[index + 1] = replace(behind[0], first_offset=first_offset)",
                "segments[index + 1] = replace(behind[0], first_offset=None and first_offset)",
            ),
        ),
        (_P8 + "an_end_is_recorded_with_the_place_of_the_next_one",),
    ),
    Mutant(
        "rolls-below-its-level",
        "P10.8 P8.2",
        "a ledger without a place is listed where builds are that cannot read it",
        ((_OWNING, "return self.runtime.has_level(LEVEL_OF_LOGS)", "return True"),),
        (_FACES + "below_its_level_a_roll_is_a_takeover_from_itself",),
    ),
    Mutant(
        "empty-ledgers-roll",
        "P8.2",
        "a ledger to which nothing was appended is followed by the next one",
        ((_RENEWING, "(is_empty and self._failure is None)", "(is_empty and self._failure is not None)"),),
        (_FACES + "a_roll_on_request_keeps_epoch_order_and_places",),
    ),
    Mutant(
        "a-lost-log-is-not-told",
        "P8.4",
        "an idle owner does not hear that another process has its log",
        ((_RENEWING, "followed.revision > self.taken.epoch", "followed.revision > 2**62"),),
        ("tests/faces/test_losing.py::test_an_idle_owner_hears_that_its_log_was_taken_over",),
    ),
    Mutant(
        "producers-stay-with-the-ledger-before",
        "P3.1 P8.2",
        "a next ledger does not know what producers appended to the one before it",
        ((_APPENDING, "            noted=noted,\n", "            noted=None,\n"),),
        (_FACES + "a_roll_on_request_keeps_epoch_order_and_places",),
    ),
    Mutant(
        "steps-that-were-not-begun-are-left",
        "P8.2",
        "what was to be done beside a client that goes is dropped unended, and named on stderr",
        (("embedbk/client/behind.py", "        task.add_done_callback(lambda _: steps.close())\n", ""),),
        ("tests/host/test_signal.py::test_steps_that_were_not_begun_when_their_client_goes_are_ended",),
    ),
    Mutant(
        "what-no-thread-was-there-for-is-left",
        "P8.2",
        "the system gave no thread for a moment, and a log never rolls again",
        (
            (
                "embedbk/client/runtime.py",
                "        pause.future.add_done_callback(self._try_behind)\n",
                "",
            ),
        ),
        (_LIFE + "where_no_thread_can_begin_what_is_done_beside_calls_waits_for_one",),
    ),
    Mutant(
        "a-ticket-of-the-ledger-of-now",
        "P8.2",
        "a task's ticket names the ledger that the log has come to since, where its entry does not stand",
        (
            (
                "embedbk/aio/writers.py",
                "        return Ticket(appending, entry_id)\n",
                "        return Ticket(self._appending, entry_id)\n",
            ),
        ),
        ("tests/faces/test_rolling.py::test_a_ticket_is_of_the_ledger_that_took_the_entry",),
    ),
    Mutant(
        "an-interrupted-takeover-goes-on",
        "P8.4",
        "a caller was interrupted, and its takeover fences the log's owner when the metadata can be reached again",
        (
            (
                "embedbk/client/runtime.py",
                "            if not operation.future.done():\n",
                "            if False:\n",
            ),
        ),
        ("tests/faces/test_losing.py::test_who_gives_a_takeover_up_takes_nothing_later[False]",),
    ),
    Mutant(
        "what-was-given-up-is-sent-again",
        "P8.4",
        "a takeover is forgotten, and its request is sent all the same when the metadata can be reached again",
        (
            (
                "embedbk/host/client_node.py",
                "            self._asking.forget(now_ns, operation)\n",
                "            pass\n",
            ),
        ),
        ("tests/faces/test_losing.py::test_who_gives_a_takeover_up_takes_nothing_later[True]",),
    ),
    Mutant(
        "a-key-is-followed-for-nobody",
        "L13",
        "a caller that is interrupted before it is shown a key leaves the watch behind",
        (
            (
                "embedbk/client/runtime.py",
                "        except BaseException:\n            followed.end()\n            raise\n",
                "        except EmbedbkError:\n            followed.end()\n            raise\n",
            ),
        ),
        ("tests/faces/test_losing.py::test_a_change_that_was_given_up_is_not_asked_for_again",),
    ),
    Mutant(
        "a-writer-that-nobody-got-stays",
        "P8.7 L13",
        "a caller was interrupted behind its takeover, and its client looks after the log for ever",
        (
            (
                "embedbk/client/log_writer.py",
                "        line.release()  # Its caller was interrupted, and nobody else would ever let go of it.\n",
                "        pass\n",
            ),
        ),
        ("tests/faces/test_losing.py::test_a_writer_that_nobody_got_is_let_go",),
    ),
    Mutant(
        "the-list-is-known-as-it-was-before-the-end-was-recorded",
        "P8.2",
        "the next ledger is listed behind the list of before the record, and takes the end out of it again",
        (
            (
                _ROLLING,
                "        self.recorded = recorded = with_end(",
                "        self.recorded, recorded = log_list, with_end(",
            ),
        ),
        (_P8 + "the_next_ledger_is_listed_behind_the_list_that_its_owner_knows",),
    ),
    Mutant(
        "a-list-that-changed-is-waited-for",
        "P8.2",
        "an owner whose list somebody else changed pauses before it reads it, as if it had read it just now",
        (
            (
                _ROLLING,
                "        if self.known is None or not isinstance(ended.error, AlongsideChanged):\n",
                "        if True:\n",
            ),
        ),
        (_P8 + "the_next_ledger_is_listed_behind_the_list_that_its_owner_knows",),
    ),
    Mutant(
        "a-list-of-before-is-gone-by",
        "P8.2",
        "a list that names a ledger last which failed since is taken for the present one until it is refused",
        (
            (
                _ROLLING,
                "        if self.known is None or self.known[0].segments[-1].ledger_id != self.ledger_id:\n",
                "        if self.known is None:\n",
            ),
        ),
        (_P8 + "a_list_from_before_the_ledger_of_now_is_not_gone_by",),
    ),
    Mutant(
        "the-list-of-an-idle-log-is-kept",
        "P8.2",
        "every log that rolled once keeps its list, however long that is, in its writer",
        (("embedbk/client/keeping.py", "            line.owning.forget_list()\n", ""),),
        (_FACES + "a_writer_keeps_the_list_of_its_log_only_while_it_rolls",),
    ),
    Mutant(
        "a-close-without-room-for-the-list-tries-that-again",
        "P5.1 P8.2",
        "a transaction that was not run, as the list has no room, is sent as it was, for ever",
        (
            (
                "embedbk/core/change_publishing.py",
                "        end, self.end = self.end, None\n",
                "        end = self.end\n",
            ),
        ),
        (_ENDS + "a_list_without_room_keeps_no_ledger_from_being_closed",),
    ),
    Mutant(
        "a-list-without-room-keeps-its-ledger-open",
        "P5.1 P8.2",
        "the close ends with an error, as the list beside it has no room",
        (
            (
                "embedbk/core/writer.py",
                "        if self.changes.has_recorded:\n",
                "        if False:\n",
            ),
        ),
        (_ENDS + "a_list_without_room_keeps_no_ledger_from_being_closed",),
    ),
    Mutant(
        "who-closed-it-alike-recorded-its-end",
        "P2.2 P8.2",
        "a ledger that is found closed has its end in the list, as far as its writer knows: nobody records it",
        (
            (
                _PUBLISHING,
                "        self.has_beside = False  # What the ledger's key tells says nothing of that.\n",
                "",
            ),
        ),
        (_ENDS + "a_ledger_that_somebody_closed_at_the_same_entry_is_not_recorded_by_us",),
    ),
    Mutant(
        "a-closed-ledger-tells-of-the-list",
        "P2.2 P8.2",
        "what a read shows as it was proposed was put by the one transaction that put the list as well",
        (
            (
                _PUBLISHING,
                "            self.has_beside = False  # Another client may have put the same, alone.\n",
                "",
            ),
        ),
        (_ENDS + "a_ledger_that_somebody_closed_alike_says_nothing_of_the_list",),
    ),
    Mutant(
        "an-end-is-recorded-under-any-epoch",
        "P8.2 P8.4",
        "who lost the log writes into the list of its new owner, who has not changed it yet",
        (
            (
                "embedbk/core/end_recording.py",
                "    when = (Compare(list_key, revision), Compare(log_owner_path(name), epoch))\n",
                "    when = (Compare(list_key, revision),)\n",
            ),
        ),
        (_ENDS + "another_list_or_epoch_keeps_no_ledger_from_being_closed",),
    ),
    Mutant(
        "the-last-frame-waits-for-more",
        "P8.2",
        "the last frame of a ledger that is left waits for an answer, and the next ledger for one more",
        (
            (
                "embedbk/host/client_node.py",
                "            is_full = packer.has_full() or packer.is_stopped\n",
                "            is_full = packer.has_full()\n",
            ),
        ),
        (_FACES + "the_last_frame_of_a_ledger_that_is_left_waits_for_no_answer",),
    ),
    Mutant(
        "nobody-sends-the-last-frame",
        "P8.2",
        "who sends is not told that the last frame of a ledger grows no more",
        (
            (
                _APPENDING,
                "self.runtime.wake_writing(self.writing)  # Its last frame",
                "pass  # Its last frame",
            ),
        ),
        (_FACES + "the_last_frame_of_a_ledger_that_is_left_waits_for_no_answer",),
    ),
    Mutant(
        "the-last-frame-waits-for-more-in-c",
        "P8.2",
        "the last frame of a ledger that is left waits for an answer, where C seals it",
        (
            (
                "native/road/link_adds.c",
                "    if (__atomic_load_n(&state->is_stopped, __ATOMIC_RELAXED)) return",
                "    if (false) return",
            ),
        ),
        (
            "tests/transports/test_link_adds.py::test_the_last_frame_of_a_handle_that_takes_no_more_waits_for_nothing",
        ),
    ),
)
