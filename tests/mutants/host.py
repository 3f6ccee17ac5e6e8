"""What carries effects out: nodes, requests that wait, adds to bookies of the same loop."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_TICKETS = "embedbk/client/tickets.py"
_WRITING = "embedbk/host/writing.py"

_BUSY = "tests/rules/test_p7_busy.py::test_"
_NODE = "tests/host/test_bookie_node.py::test_"
_LIMBO = "tests/host/test_limbo_asking.py::test_"
_LOCAL = "tests/host/test_local_adds.py::test_"
_LINKS = "tests/transports/test_link_adds.py::test_"
_LINKS_STORIES = "tests/host/test_link_adds.py::test_"
_FLIGHT = "tests/transports/test_in_flight.py::test_"
_LENT = "tests/rules/test_p3_lent.py::test_"
_TAIL = "native/road/tail_path.c"
_LACS = "native/road/lac_path.c"
_LACS_TESTS = "tests/host/test_lac_path.py::test_"
_TAIL_TESTS = "tests/host/test_tail_path.py::test_"
_OWN = "tests/faces/test_own_appends.py::test_"
_TWIN = "tests/host/test_tail_path.py::test_a_fenced_ledger_keeps_no_reader_waiting"

MUTANTS = (
    Mutant(
        "readers-that-wait-are-told-without-end",
        "L14",
        "a course tells its core of a waiting reader each time that it is looked at, and that is why it is looked at",
        (("embedbk/host/courses.py", "        seats &= ~course.followed\n", ""),),
        (_LOCAL + "a_turn_ends_where_a_reader_waits_and_answers_of_before_are_missing",),
    ),
    # Deferred sync.
    Mutant(
        "force-waits-for-what-is-received",
        "P3.2",
        "force returns when the bookies have it in memory",
        (
            (
                _WRITING,
                "        return self.lac >= entry_id or self.error is not None",
                "        return self.received >= entry_id or self.error is not None",
            ),
            (
                _TICKETS,
                "    return (writing.lac if is_synced else writing.received) >= entry_id",
                "    return writing.received >= entry_id",
            ),
        ),
        ("tests/scenarios/test_deferred_sync.py::test_force_waits_for_the_disks",),
    ),
    Mutant(
        "fences-wait-behind-adds",
        "P7.8 P5.2f",
        "a bookie that is busy lets fences and reads wait behind the adds that wait for room",
        (
            (
                "embedbk/host/waiting.py",
                "        return not self._urgent and _is_urgent(event.body) and self.has_room(True)\n",
                "        return False\n",
            ),
            (
                "embedbk/host/waiting.py",
                "        (self._urgent if _is_urgent(event.body) else self._plain).append(event)\n",
                "        self._plain.append(event)\n",
            ),
        ),
        (_BUSY + "fences_reads_and_recovery_pass_the_adds_that_wait",),
    ),
    Mutant(
        "stored-is-durable-nearby",
        "P3.2 I40",
        "what a bookie of the same loop has stored, and its journal has not, is acknowledged",
        (
            (
                "native/road/link_adds.c",
                "->tokens[seat] <= durable)",
                "->tokens[seat] <= UINT64_MAX - (durable & 1))",
            ),
        ),
        (_LOCAL + "an_append_is_acknowledged_when_an_ack_quorum_is_durable",),
    ),
    Mutant(
        "fenced-ledgers-are-added-to-nearby",
        "P5.2f I13",
        "a writer on the bookies' loop stores into a ledger that was fenced there",
        (
            (
                "native/road/seat.c",
                "return ebk_add_path_is_common(path, &stored) ? ebk_add_path_store(path, &stored) : 0;",
                "return ebk_add_path_store(path, &stored);",
            ),
        ),
        (_LOCAL + "a_fence_ends_it",),
    ),
    Mutant(
        "who-is-not-durable-is-asked-by-nobody-nearby",
        "P3.1 P3.6",
        "what a bookie of the same loop has stored, and not durable yet, is never asked of it by a message",
        (
            (
                "native/road/link_adds.c",
                "adds->next[seat] > looked && adds->settings.seats[seat].near == NULL",
                "adds->next[seat] > looked",
            ),
        ),
        (_LOCAL + "another_event_finds_the_core_as_if_it_had_waited",),
    ),
    Mutant(
        "core-hears-late-nearby",
        "P4.2",
        "a core hears that a seat failed before it is told of what is on its way past it",
        (("embedbk/host/courses.py", "        self.end(event.now_ns, writing)\n", "        pass\n"),),
        (_LOCAL + "another_event_finds_the_core_as_if_it_had_waited",),
    ),
    Mutant(
        "append-beside-the-end-nearby",
        "P3.1",
        "what is appended while the adds past all messages end is sealed by nobody",
        (
            (
                "embedbk/host/courses.py",
                "        self._look_again(writing)  # Who appended meanwhile has woken the course, and nobody else.\n",
                "",
            ),
        ),
        (_LOCAL + "a_bookie_that_is_read_only_stores_nothing",),
    ),
    Mutant(
        "a-frame-beside-any-other-over-links",
        "P3.7",
        "frames that are sealed in C do not grow with load",
        (("native/road/pace.h", "? 1 : newest_count;", "? 1 : 1;"),),
        (_LINKS + "a_partial_frame_waits_until_it_is_as_large_as_the_one_on_its_way",),
    ),
    Mutant(
        "appends-stay-silent-behind-a-course",
        "P3.7",
        "who appends behind the end of what was sent from C wakes nobody",
        (
            (
                "native/road/link_adds.c",
                "    be_deaf(adds);\n    ebk_packer_want(adds->settings.packer, 1);\n",
                "    be_deaf(adds);\n",
            ),
        ),
        (_LINKS + "who_appends_behind_the_end_wakes_the_host_again",),
    ),
    Mutant(
        "one-answer-is-enough-over-links",
        "P3.2",
        "an add that was sent from C is acknowledged when one of three bookies has answered",
        (
            (
                "native/road/link_adds.c",
                ">=\n                                      adds->settings.ack_quorum) {",
                ">= 1) {",
            ),
        ),
        (_LINKS + "an_ack_quorum_acknowledges_and_in_order",),
    ),
    Mutant(
        "acknowledged-frame-is-let-go-over-links",
        "P7.8 RP33",
        "a frame that was sent from C is let go of at its ack quorum, so a seat that is busy never gets it",
        (
            (
                "native/road/in_flight.c",
                "    if (flying->owed == 0) drop(table, place);\n    retire(table);\n",
                "    drop(table, place);\n    retire(table);\n",
            ),
        ),
        (_LINKS + "the_core_gets_what_is_on_its_way_and_who_answered",),
    ),
    Mutant(
        "late-answer-counts-for-who-has-its-place",
        "P3.2 P3.8",
        "a late answer counts for the frame that would have its place in a ring which did not grow",
        (
            (
                "native/road/link_adds.c",
                "    EBK_ASSERT(!adds->is_deaf && place >= adds->begin && place < adds->flight->end);\n",
                (
                    "    if (place + 4 < adds->flight->end &&"
                    " !(at(adds, place + 4)->acked >> slot_of(adds, seat) & 1)) place += 4;\n"
                ),
            ),
        ),
        (_LINKS + "a_late_answer_counts_for_its_own_frame_however_many_went_since",),
    ),
    Mutant(
        "what-a-link-refused-is-noted-as-sent",
        "P3.2 RP33",
        "a frame that a link did not take waits for an answer that cannot come",
        (
            (
                "native/road/link_adds.c",
                "        adds->is_ending = true; /* Its link is over or slow, or its core decides: so does ours. */",
                "        adds->is_ending = true;\n        adds->next[seat] = place + 1;",
            ),
        ),
        ("tests/sim/test_courses.py::test_what_a_link_refuses_is_sent_by_the_core",),
    ),
    Mutant(
        "unsent-frames-are-not-told",
        "P3.2 RP33",
        "the core is not told which seats were never sent a frame",
        (
            (
                "native/road/link_adds.c",
                "adds->next[seat] > looked && adds->settings.seats[seat].near == NULL",
                "adds->settings.seats[seat].near == NULL",
            ),
        ),
        (_LINKS + "what_a_full_link_did_not_take_is_told_as_unsent",),
    ),
    Mutant(
        "unsent-frames-are-not-sent",
        "P3.2 RP33",
        "a core that is told of a frame which a link did not take waits for its answer",
        (
            (
                "embedbk/core/in_flight.py",
                "is_again=True)\n\n    def resend",
                "is_again=True)[:0]\n\n    def resend",
            ),
        ),
        ("tests/sim/test_courses.py::test_what_a_link_refuses_is_sent_by_the_core",),
    ),
    Mutant(
        "late-frames-carry-the-newest-lac",
        "P3.7 WIRE",
        "a seat that is behind is sent a frame with a LAC that the frame itself is below",
        (
            (
                "native/road/link_adds.c",
                "&at(adds, place)->packed, .lac = sent->lac, ",
                "&at(adds, place)->packed, .lac = adds->lac, ",
            ),
        ),
        (_LINKS + "where_one_link_is_full_the_others_go_on_and_it_gets_the_same_bytes_later",),
    ),
    Mutant(
        "a-full-link-holds-everybody",
        "P4.5 RP33",
        "nothing is sealed while any of the links has no room",
        (
            (
                "native/road/link_adds.c",
                "return !adds->is_ending && count >= adds->settings.ack_quorum;",
                "return !adds->is_ending && count >= adds->settings.seat_count;",
            ),
        ),
        (_LINKS + "where_one_link_is_full_the_others_go_on_and_it_gets_the_same_bytes_later",),
    ),
    Mutant(
        "the-host-hears-late-of-the-bound",
        "P4.5",
        "at the bound of what is kept the wait goes on, and nobody looks who is silent",
        (
            (
                "native/road/link_adds.c",
                "    if (is_pressed(adds) && !adds->is_pressed_told) return now_ns;\n",
                "",
            ),
        ),
        (_LINKS + "the_bound_of_the_process_holds_whoever_keeps_something",),
    ),
    Mutant(
        "a-seat-that-failed-at-the-bound-is-not-told",
        "P4.5 P4.1",
        "nothing is kept for a silent seat any more, and the core goes on as if it had all",
        (
            (
                "embedbk/host/link_adds.py",
                "        self.end(now_ns, writing)\n        for seat in found:\n",
                "        self.end(now_ns, writing)\n        for seat in found[:0]:\n",
            ),
        ),
        ("tests/host/test_link_adds.py::test_at_the_bound_who_is_silent_is_gone_on_without",),
    ),
    Mutant(
        "a-failed-seat-owes-on-over-links",
        "P4.5 RP33",
        "what a seat owed that failed at the bound is kept for it, and asked of it by the core",
        (
            (
                "native/road/link_adds.c",
                "    ebk_in_flight_excuse(adds->settings.table, slot_of(adds, seat));\n",
                "",
            ),
        ),
        (_LINKS + "nothing_is_kept_for_a_seat_that_has_failed",),
    ),
    Mutant(
        "the-core-confirms-beside-a-course",
        "P3.3",
        "an answer to what the core had sent moves the LAC of a core whose table a course has",
        (
            (
                "embedbk/core/writer.py",
                "        if self.in_flight.is_lent:\n            return []  # The course confirms.\n",
                "",
            ),
        ),
        (_LENT + "while_a_course_has_the_table_the_core_only_counts",),
    ),
    Mutant(
        "the-core-judges-beside-a-course",
        "P4.1 P4.7",
        "a tick fails a seat for what it owes a course that goes on",
        (
            (
                "embedbk/core/writer.py",
                "        if self.in_flight.is_lent:\n            return self._publish_if_idle(event.now_ns)\n",
                "",
            ),
        ),
        (_LENT + "while_a_course_has_the_table_the_core_judges_nobody",),
    ),
    Mutant(
        "the-core-forgets-a-table-that-is-lent",
        "P3.3 P4.5",
        "a core at rest drops the table of frames that a course goes on with",
        (
            (
                "embedbk/core/in_flight.py",
                "        if self.is_lent or self._seatings is None or",
                "        if self._seatings is None or",
            ),
        ),
        (_LENT + "while_a_course_has_the_table_the_core_keeps_it",),
    ),
    Mutant(
        "answers-counted-beside-a-course-confirm-nothing",
        "P3.3 L15",
        "what was answered while the course had the table is confirmed with the next answer only",
        (
            (
                "embedbk/core/writer.py",
                "        effects = self._advance(event.now_ns)\n        for first_entry, numbers in event.unsent:\n",
                "        effects: list[Effect] = []\n        for first_entry, numbers in event.unsent:\n",
            ),
        ),
        (_LENT + "what_was_answered_meanwhile_is_confirmed_at_the_end",),
    ),
    Mutant(
        "a-course-sees-other-slots-than-the-core",
        "P4.2 P4.4",
        "answers to a course are counted as those of whoever was seated first",
        (
            (
                "embedbk/transports/adds.py",
                "            place.slot = seat.slot\n",
                "            place.slot = seat.slot % 3\n",
            ),
        ),
        (_LINKS + "the_core_gets_what_is_on_its_way_and_who_answered",),
    ),
    Mutant(
        "who-was-replaced-has-answered-in-c",
        "P4.4 I16",
        "acknowledgements of a bookie that lost its seat count for the frames that are not done",
        (("native/road/in_flight.c", "->flying.acked &= ~slots;", "->flying.acked &= ~0u;"),),
        (
            _FLIGHT
            + "a_slot_that_is_excused_owes_nothing_and_one_that_is_emptied_has_answered_nothing[FramesInC]",
        ),
    ),
    Mutant(
        "sent-again-counts-anew-in-c",
        "P4.1 P7.8",
        "what is sent to a seat again counts from then on, so that it may be busy without end",
        (
            (
                "native/road/in_flight.c",
                "    if (it->flying.owed >> slot & 1) return;\n",
                "    if (it->flying.owed >> slot & 1) {\n        it->sent_ns[slot] = now_ns;\n        return;\n    }\n",
            ),
        ),
        (_FLIGHT + "who_owes_since_when[FramesInC]",),
    ),
    Mutant(
        "an-answer-nobody-owes-counts-in-c",
        "P3.8",
        "a seat that was sent nothing, or answered before, counts for a frame",
        (
            (
                "native/road/in_flight.c",
                "    if (!(it->flying.owed >> slot & 1)) return 0;\n    *sent_ns",
                (
                    "    if (!(it->flying.owed >> slot & 1)) {\n        it->flying.acked |= 1u << slot;\n"
                    "        return 0;\n    }\n    *sent_ns"
                ),
            ),
        ),
        (_FLIGHT + "an_answer_counts_once_and_only_where_one_is_owed[FramesInC]",),
    ),
    Mutant(
        "the-oldest-that-is-owed-is-the-newest-in-c",
        "P4.1 P4.7",
        "behind an answer a seat seems to owe only what is behind that",
        (
            (
                "native/road/in_flight.c",
                "    if (table->first_owed[slot] == place) note_first_owed(table, slot, place);\n",
                "    note_first_owed(table, slot, place);\n",
            ),
        ),
        (_FLIGHT + "who_owes_since_when[FramesInC]",),
    ),
    Mutant(
        "a-frame-is-freed-under-who-sends-it",
        "P7.8 T10",
        "the bytes of a frame are used again while a message to a busy seat refers to them",
        (
            (
                "native/python/frame_body.c",
                "    ebk_packer_retain(frame.body);\n    return ebk_frame_body_view(&frame);\n",
                "    return ebk_frame_body_view(&frame);\n",
            ),
        ),
        (_FLIGHT + "a_frame_that_somebody_looks_at_stays_as_it_is[FramesInC]",),
    ),
    Mutant(
        "what-is-dropped-is-counted-on-in-c",
        "RP34 RP33",
        "a frame that is let go of counts for the process for ever",
        (
            (
                "native/road/in_flight.c",
                "        count_behind(table, packed, false);\n    else {\n",
                "        table->state.behind_count -= 1;\n    else {\n",
            ),
        ),
        (_FLIGHT + "a_frame_is_pending_then_behind_then_gone[FramesInC]",),
    ),
    Mutant(
        "old-answers-are-no-sign-of-life",
        "P4.5",
        "a bookie that answers one older frame after the other is silent at the bound",
        (
            (
                "embedbk/host/link_adds.py",
                "        max(heard_ns, course.heard_ns.get(member, 0))\n",
                "        heard_ns\n",
            ),
        ),
        (_LINKS_STORIES + "at_the_bound_who_answers_what_the_core_had_sent_is_not_silent",),
    ),
    Mutant(
        "counted-old-answers-are-no-sign-of-life",
        "P4.5",
        "the same where those answers were counted beside the core",
        (
            (
                "embedbk/host/courses.py",
                "            course.heard_ns.update(dict.fromkeys(members, now_ns))\n",
                "            pass\n",
            ),
        ),
        (_LINKS_STORIES + "at_the_bound_who_answers_counted_frames_is_not_silent",),
    ),
    Mutant(
        "who-answers-well-stays-in-quarantine",
        "RP45",
        "answers that are counted in C let nobody out of quarantine",
        (
            (
                "embedbk/host/courses.py",
                "                if heard_ns > then_ns:\n",
                "                if False:\n",
            ),
        ),
        (_LINKS_STORIES + "who_answers_well_here_is_let_out_of_quarantine",),
    ),
    Mutant(
        "courses-wait-for-every-answer",
        "P4.5",
        "a writer whose table is never empty is left to its core, though an ack quorum waits for nobody else",
        (
            (
                "embedbk/host/courses.py",
                "        if core.in_flight.is_pressed() or",
                "        if not core.in_flight.is_at_rest or",
            ),
        ),
        ("tests/host/test_link_adds.py::test_a_course_begins_beside_what_a_seat_owes",),
    ),
    Mutant(
        "courses-begin-beside-a-silent-seat",
        "P4.7",
        "adds go past the core again and again although it is about to judge a seat that owes it an answer",
        (("embedbk/host/courses.py", " or _is_slow(now_ns, writing):", ":"),),
        ("tests/host/test_link_adds.py::test_who_owes_for_long_keeps_the_core_at_work",),
    ),
    Mutant(
        "an-answer-from-before-ends-a-course",
        "P4.5",
        "an OK to what the core had sent ends the course beside it",
        (("embedbk/host/courses.py", " or _is_yes(event)):", "):"),),
        ("tests/host/test_link_adds.py::test_an_answer_from_before_leaves_a_course_alone",),
    ),
    Mutant(
        "core-hears-nothing-of-what-a-seat-owes",
        "P4.1 RP33",
        "at the end of a course nothing is owed any more of frames that are acknowledged",
        (
            (
                "embedbk/core/in_flight.py",
                "        assert self.is_lent\n        self.is_lent = False\n",
                (
                    "        self.is_lent = False\n        for first_entry in list(self.behind):\n"
                    "            for seating in self.seatings:\n"
                    "                self.frames.answered(seating.slot, first_entry)\n"
                ),
            ),
        ),
        (
            "tests/host/test_link_adds.py::test_what_an_ack_quorum_has_is_acknowledged_and_the_third_is_kept_for",
        ),
    ),
    Mutant(
        "open-requests-of-links-are-nobodys",
        "P3.8",
        "answers to what was sent from C come after its end, and are taken for answers that were there before",
        (
            (
                "embedbk/host/bookie_links.py",
                "            peer.outstanding[request_id] = (operation, tag)\n",
                "            pass\n",
            ),
        ),
        ("tests/host/test_link_adds.py::test_another_event_finds_the_core_as_if_it_had_sent_all",),
    ),
    Mutant(
        "answers-among-others-are-forgotten",
        "P3.3",
        "an answer in a message that was passed does not count for its frame, which then waits for one more",
        (
            (
                "embedbk/host/bookie_requests.py",
                "                    self._counted.answers.answered(request_id)\n",
                "                    pass\n",
            ),
        ),
        ("tests/host/test_counted_answers.py::test_the_same_acknowledgements_with_and_without",),
    ),
    Mutant(
        "answers-wait-beside-a-change",
        "P4.2",
        "while a change is under way, answers beyond the old quorum are still held back",
        (
            (
                "embedbk/host/counted_answers.py",
                "                self.answers.is_eager = True\n",
                "",
            ),
        ),
        ("tests/host/test_counted_answers.py::test_while_a_change_is_under_way_every_answer_is_news",),
    ),
    # Readers at the end, in C.
    Mutant(
        "poll-parked-on-a-fenced-ledger",
        "P6.2 L12",
        "a poll of a ledger that is fenced is parked in C: its reader hears of the fence by its time limit",
        (
            (
                _TAIL,
                "row == NULL || row->is_fenced || row->in_limbo",
                "row == NULL || row->in_limbo",
            ),
        ),
        (_TWIN,),
    ),
    Mutant(
        "answers-in-c-silent-of-readers",
        "P6.2",
        "an answer that is made in C never says that a reader waits",
        (
            (
                "native/road/add_path.c",
                "path->status == EBK_STATUS_OK && path->settings.tail != NULL &&",
                "path->status != EBK_STATUS_OK &&",
            ),
        ),
        (_TAIL_TESTS + "the_answer_to_an_add_says_whether_a_reader_waits",),
    ),
    Mutant(
        "late-follower-not-told-of-a-course",
        "P6.2",
        "an answer behind the ack quorum of adds past the core says that a reader waits, and the core hears of it late",
        (
            (
                "native/road/link_adds.c",
                " && (adds->followed & ~adds->followed_told) == 0) return",
                ") return",
            ),
        ),
        (
            "tests/transports/test_link_adds.py::test_who_says_behind_the_quorum_that_a_reader_waits_ends_the_wait",
        ),
    ),
    Mutant(
        "lacs-with-any-key",
        "P3.5",
        "a durable LAC among others raises the row whatever ledger key it has",
        (
            (
                _LACS,
                "row != NULL && row->has_key && memcmp(row->key, from + AT_KEY, EBK_KEY_BYTES) == 0 &&",
                "row != NULL &&",
            ),
        ),
        (_LACS_TESTS + "with_one_that_is_not_common_all_are_the_cores",),
    ),
    Mutant(
        "lacs-of-a-fenced-ledger-in-c",
        "P3.4a",
        "a durable LAC of a fenced ledger is taken in C",
        ((_LACS, "!row->is_fenced && !row->in_limbo", "!row->in_limbo"),),
        (_LACS_TESTS + "with_one_that_is_not_common_all_are_the_cores",),
    ),
    Mutant(
        "known-lac-not-journaled-in-c",
        "P6.2 I11",
        "a LAC that a hint told is not made durable by the one that follows it",
        ((_LACS, "if (lac < row->lac) continue;", "if (lac <= row->lac) continue;"),),
        (_LACS_TESTS + "one_that_is_known_by_a_hint_is_made_durable",),
    ),
    Mutant(
        "lacs-in-c-wake-nobody",
        "P6.2",
        "a durable LAC that is taken in C answers no poll",
        ((_LACS, "        ebk_tail_wake(terms->tail, row);\n", ""),),
        (_LACS_TESTS + "who_waits_is_woken",),
    ),
    Mutant(
        "hint-with-any-key",
        "P3.5",
        "a hint raises the LAC whatever ledger key it has",
        ((_TAIL, "!row->has_key || memcmp(row->key, key, EBK_KEY_BYTES) != 0", "!row->has_key"),),
        (_TAIL_TESTS + "no_bit_of_a_poll_or_hint_is_overlooked",),
    ),
    Mutant(
        "entries-beyond-the-lac-in-c",
        "P6.2 I9",
        "the entries that come along with a LAC are all that the bookie holds",
        (
            (
                _TAIL,
                "poll->after_lac + 1, poll->lac, poll->bytes_max",
                "poll->after_lac + 1, INT64_MAX, poll->bytes_max",
            ),
        ),
        (_TAIL_TESTS + "entries_that_left_the_write_cache_come_along_too",),
    ),
    Mutant(
        "answered-polls-stay-open",
        "P6.2",
        "a poll of the core that C answers is counted as open for ever: in the end a reader loses its link",
        ((_TAIL, "        if (poll.is_counted) note_settled(tail, poll.link);\n", ""),),
        (_TAIL_TESTS + "requests_stay_counted_whoever_parks_and_whoever_answers",),
    ),
    Mutant(
        "woken-readers-wait-for-the-next-turn",
        "P6.2",
        "who is woken by what a wait in C received is answered when that wait ends",
        (
            (
                "native/road/loop_wait.c",
                "!is_dry(run->wait) || (run->readers != NULL && ebk_tail_next(run->readers, &link))",
                "!is_dry(run->wait) || (run->readers != NULL && ebk_tail_next(run->readers, &link) && false)",
            ),
        ),
        (
            "tests/transports/test_waiting.py::test_who_is_woken_by_what_a_wait_received_is_told_before_it_goes_on",
        ),
    ),
    # A bookie's start.
    Mutant(
        "adds-in-c-before-limbo",
        "P7.4 I32",
        "the shortcut in C takes adds of known ledgers before everything that may be lost is in durable limbo",
        (
            (
                "embedbk/host/bookie_node.py",
                "core.is_writable and core.is_serving and not core.is_waiting",
                "core.is_writable and not core.is_waiting",
            ),
        ),
        (_LIMBO + "no_add_of_a_known_ledger_is_taken_while_limbo_is_not_durable",),
    ),
    Mutant(
        "listed-while-it-is-deleted",
        "P7.4 I32",
        "of the listings for limbo the last is left out: a ledger that is deleted between them is in none",
        (
            (
                "embedbk/host/limbo.py",
                "_LIMBO_PREFIXES = (DELETED_PREFIX, LEDGERS_PREFIX, DELETED_PREFIX)",
                "_LIMBO_PREFIXES = (DELETED_PREFIX, LEDGERS_PREFIX)",
            ),
        ),
        (_LIMBO + "a_ledger_that_moves_while_they_are_listed_is_not_missed",),
    ),
    Mutant(
        "listed-while-it-comes-back",
        "P7.4 I32",
        "of the listings for limbo the first is left out: a ledger that is brought back between them is in none",
        (
            (
                "embedbk/host/limbo.py",
                "_LIMBO_PREFIXES = (DELETED_PREFIX, LEDGERS_PREFIX, DELETED_PREFIX)",
                "_LIMBO_PREFIXES = (LEDGERS_PREFIX, DELETED_PREFIX)",
            ),
        ),
        (_LIMBO + "a_ledger_that_moves_while_they_are_listed_is_not_missed",),
    ),
    Mutant(
        "registered-over-any-other",
        "P7.2",
        "a registration is put whatever stands there: the last words of a dead process take the living one's place",
        (
            (
                "embedbk/host/registering.py",
                "            Compare(key, ABSENT if record is None else record.revision),\n",
                "",
            ),
            (
                "embedbk/host/registering.py",
                "            Compare(place, ABSENT if registered is None else registered.revision),\n",
                "",
            ),
        ),
        (_NODE + "the_last_words_of_a_process_before_do_not_replace_a_registration",),
    ),
    # What readers see of writers.
    Mutant(
        "a-last-word-is-written-over",
        "P7.9 P2.2",
        "an older copy registers over the last word of the process before, which came since it read the cookie",
        (
            (
                "embedbk/host/registering.py",
                "            Compare(key, ABSENT if record is None else record.revision),\n",
                "",
            ),
        ),
        ("tests/host/test_starts.py::test_a_last_word_that_comes_beside_a_registration_is_heard",),
    ),
    Mutant(
        "a-place-that-was-empty-is-taken",
        "P7.9 P2.2",
        "a copy registers over the living one, which came back since it looked and has nothing new to say of itself",
        (
            (
                "embedbk/host/registering.py",
                "            Compare(place, ABSENT if registered is None else registered.revision),\n",
                "",
            ),
        ),
        ("tests/host/test_starts.py::test_one_that_comes_back_beside_a_registration_stays",),
    ),
    Mutant(
        "own-lac-forgotten-at-the-end",
        "P6.2 I100",
        "what a handle had acknowledged is gone for its client's readers when the handle is",
        (
            (
                "embedbk/host/own_lacs.py",
                "        self.note_end(ledger_id, writing.lac)",
                "        self.note_end(ledger_id, NO_ENTRY)",
            ),
        ),
        (_OWN + "what_a_writer_that_is_gone_had_acknowledged_stays_readable[release]",),
    ),
    Mutant(
        "own-writer-not-asked",
        "P6.2 I100",
        "a reader goes by what bookies say although the writer is in its client",
        (
            (
                "embedbk/client/reading.py",
                "        self._hear(self.runtime.own_lac(self.ledger_id).lac)",
                "        self._hear(NO_ENTRY)",
            ),
        ),
        (
            _OWN + "an_append_is_shown_also_where_most_bookies_do_not_know_its_lac",
            "tests/testing/test_reader_handles.py::test_a_client_may_read_what_it_was_acknowledged",
        ),
    ),
    Mutant(
        "failed-writer-taken-for-the-newest",
        "P6.2 P5.2",
        "a handle that failed is believed to know the newest LAC",
        (
            (
                "embedbk/host/own_lacs.py",
                "return OwnLac(writing.lac, writing.error is None and writing.failure is None)",
                "return OwnLac(writing.lac, True)",
            ),
        ),
        (_OWN + "a_writer_that_failed_does_not_speak_for_the_ledger",),
    ),
    Mutant(
        "hint-for-one-seat",
        "P6.2",
        "a writer that pauses gives its LAC to its first bookie only",
        (
            (
                "embedbk/core/lac_publishing.py",
                "        self.hinted = self.in_flight.done\n",
                "        self.hinted = self.in_flight.done\n        del self.in_flight.seatings[1:]\n",
            ),
        ),
        ("tests/rules/test_p6_tailing.py::test_who_pauses_hints_all_its_bookies_once",),
    ),
    Mutant(
        "hints-made-durable",
        "P6.2",
        "each hint of a writer that pauses costs its bookies a sync",
        ((_LACS, "        if (!are_hints) {", "        if (true) {"),),
        (_LACS_TESTS + "hints_of_many_ledgers_raise_their_lacs_in_memory_only",),
    ),
    Mutant(
        "pauses-never-told",
        "P6.2",
        "nobody is hinted while a LAC moved since the pause began, however long ago",
        (
            (
                "embedbk/host/hinting.py",
                "        self._owing[writing] = (core.lac, now_ns)\n",
                "        self._owing.setdefault(writing, (core.lac, now_ns))\n",
            ),
        ),
        ("tests/host/test_hinting.py::test_a_writer_that_goes_on_is_not_told",),
    ),
    Mutant(
        "nobody-hears-the-last-word",
        "P7.9",
        "a bookie is closed before metadata has its last word, which then says less than there was",
        (
            (
                "embedbk/host/loop.py",
                "        while not all(each.has_left(self.now_ns()) for each in leavers):\n",
                "        while not leavers:\n",
            ),
        ),
        ("tests/host/test_loop.py::test_who_has_a_last_word_hears_its_answer_before_anybody_is_closed",),
    ),
    Mutant(
        "who-leaves-takes-adds",
        "P7.9",
        "a bookie acknowledges adds behind its last word to the metadata",
        (("embedbk/host/bookie_node.py", "            self.is_leaving = True\n", "            pass\n"),),
        ("tests/host/test_starts.py::test_who_leaves_takes_no_more_adds_and_fences_on",),
    ),
    Mutant(
        "a-handle-is-sent-for-before-it-is-begun",
        "RP34",
        "what a thread appends before the loop begins its handle is sent at once, and kept uncounted",
        (
            (
                "embedbk/host/client_node.py",
                "            if writing in self.own_lacs or writing.is_over:\n",
                "            if True:\n",
            ),
        ),
        (
            "tests/host/test_client_node.py::test_what_is_appended_before_a_handle_is_begun_is_sent_behind_that",
        ),
    ),
    Mutant(
        "the-next-handle-is-sent-for-before-it-is-begun",
        "RP34 P8.2",
        "the handle behind one that is done is looked at before the loop begins it, and what it keeps is not counted",
        (
            (
                "embedbk/host/client_node.py",
                "if following is not None and following in self.own_lacs and writing.is_done:",
                "if following is not None and writing.is_done:",
            ),
        ),
        ("tests/host/test_client_node.py::test_the_handle_behind_one_that_is_done_is_begun_first",),
    ),
    Mutant(
        "who-is-interrupted-before-asking-ends-the-host",
        "P8.4",
        "a question that was interrupted before it was asked is given up by a token that it lacks, and the host ends",
        (
            (
                "embedbk/client/runtime.py",
                "                self.node.metadata.cancel(self.now_ns(), token)\n",
                "                pass\n            self.node.metadata.cancel(self.now_ns(), tokens[0])\n",
            ),
        ),
        ("tests/faces/test_losing.py::test_who_is_interrupted_before_it_has_asked_ends_no_host",),
    ),
    Mutant(
        "a-lost-link-takes-lacs-along",
        "P6.2",
        "a LAC that was on its way when its link was lost is not told again, and the writer idles",
        (
            (
                "embedbk/host/kept_lacs.py",
                "        self.doubt(now_ns, member)\n",
                "",
            ),
        ),
        ("tests/host/test_kept_lacs.py::test_what_no_bookie_had_made_durable_is_told_again",),
    ),
    Mutant(
        "a-bookie-that-starts-is-taken-to-take-lacs",
        "P6.2 P7.9",
        "a LAC over the link to a bookie that starts is refused without an answer, and not told again",
        (("embedbk/host/kept_lacs.py", "        return True\n", "        return False\n"),),
        ("tests/host/test_kept_lacs.py::test_a_bookie_that_starts_takes_it_when_it_serves",),
    ),
    Mutant(
        "a-lac-is-told-into-a-full-queue",
        "P6.2 RP34",
        "a LAC for which a slow bookie's queue has no room is passed over",
        (
            (
                "embedbk/host/bookie_links.py",
                "                    self._kept_lacs.doubt(now_ns, peer.member)\n",
                "                    pass\n",
            ),
        ),
        ("tests/host/test_kept_lacs.py::test_what_finds_no_room_in_a_queue_is_told_again",),
    ),
    Mutant(
        "limbo-settles-a-lac",
        "P6.2 P7.4",
        "a bookie that cannot tell yet is taken to know the LAC",
        (("embedbk/core/lac_retelling.py", ", Status.UNKNOWN, Status.IN_LIMBO}", ", Status.UNKNOWN}"),),
        ("tests/rules/test_p6_retelling.py::test_what_is_not_known_yet_is_no_answer",),
    ),
    Mutant(
        "the-answer-to-an-older-lac-settles-a-newer-one",
        "P6.2 P3.3",
        "a writer went on and paused again while its LAC was told again, and the newer one is forgotten",
        (
            (
                "embedbk/core/lac_retelling.py",
                "if known is not None and known.lac <= told:",
                "if known is not None:",
            ),
        ),
        ("tests/rules/test_p6_retelling.py::test_a_newer_lac_takes_the_place_of_the_one_before",),
    ),
    Mutant(
        "a-bookie-is-given-up-with-what-it-was-just-told",
        "P6.2 P4.1",
        "a bookie without a substitute is away for long, and its newest LAC is forgotten with the oldest",
        (
            (
                "embedbk/core/lac_retelling.py",
                "        self.given_up_ns = event.now_ns + GIVEN_UP_NS\n        for lac in",
                (
                    "        if not self.lacs:\n"
                    "            self.given_up_ns = event.now_ns + GIVEN_UP_NS\n        for lac in"
                ),
            ),
        ),
        ("tests/rules/test_p6_retelling.py::test_a_bookie_is_not_given_up_beside_a_fresh_doubt",),
    ),
)
