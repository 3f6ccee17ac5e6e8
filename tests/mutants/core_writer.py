"""The writer: quorums, frames in flight, ensemble changes, placement, producers."""

# ruff: noqa: E501, ISC004 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CHANGES = "embedbk/core/change_publishing.py"
_CREATION = "embedbk/core/creation.py"
_ENSEMBLE_CHANGE = "embedbk/core/ensemble_change.py"
_ENSEMBLE = "embedbk/core/ensemble_keeping.py"
_FAILED_SEATS = "embedbk/core/failed_seats.py"
_FRAMES = "embedbk/core/frame_table.py"
_IN_FLIGHT = "embedbk/core/in_flight.py"
_LAC_PUBLISHING = "embedbk/core/lac_publishing.py"
_LATENESS = "embedbk/core/lateness.py"
_PLACEMENT = "embedbk/core/placement.py"
_PRODUCERS = "embedbk/core/producers.py"
_QUARANTINE = "embedbk/core/quarantine.py"
_QUORUM = "embedbk/core/quorum.py"
_RESTING = "embedbk/core/idle_form.py"
_STALL = "embedbk/core/stall.py"
_PUBLISHING = "embedbk/core/publishing.py"
_WRITER = "embedbk/core/writer.py"
_CANDIDATES = "embedbk/core/seat_candidates.py"

_BUSY = "tests/rules/test_p7_busy.py::test_"
_P1 = "tests/rules/test_p1_quorum.py::test_"
_P2 = "tests/rules/test_p2_metadata.py::test_"
_P3 = "tests/rules/test_p3_adding.py::test_"
_LATE = "tests/rules/test_p4_lateness.py::test_"
_P4 = "tests/rules/test_p4_ensemble_change.py::test_"
_P4_CROSSING = "tests/rules/test_p4_crossing_changes.py::test_"
_DELAYED = "tests/rules/test_p4_delayed_change.py::test_"
_P2_REFUSED = "tests/rules/test_p2_refused.py::test_"
_P4_SHORTAGE = "tests/rules/test_p4_shortage.py::test_"
_P4_STALL = "tests/rules/test_p4_stall.py::test_"
_P5 = "tests/rules/test_p5_closing.py::test_"
_P5_FENCING = "tests/rules/test_p5_fencing.py::test_"
_P5_READING = "tests/rules/test_p5_reading_forward.py::test_"
_P6_TAIL = "tests/rules/test_p6_tailing.py::test_"
_PLACES = "tests/rules/test_placement.py::test_"
_REST = "tests/rules/test_idle_form.py::test_"
_SCENES = "tests/scenarios/test_fencing_and_recovery.py::test_"
_SCENES_OF_WRITING = "tests/scenarios/test_writing_and_repair.py::test_"
_TERMS = "tests/faces/test_terms.py::test_"

_SILENT = "tests/rules/test_p4_silent_seat.py::test_"
_STALLED = "tests/rules/test_p4_stall.py::test_"
_MISSED = "tests/rules/test_p4_missed_copies.py::test_"

MUTANTS = (
    Mutant(
        "who-has-a-seat-again-is-told-no-lac",
        "P6.2 P4.5 L18",
        "a bookie that goes on in its seat while the writer idles does not hear of the last entries",
        ((_ENSEMBLE, "        if back:\n            self.lac_publishing.note_seated()\n", ""),),
        (_P4_STALL + "who_has_a_seat_behind_the_publication_is_told_the_lac",),
    ),
    Mutant(
        "who-takes-a-seat-is-told-no-lac",
        "P6.2 P4.4 L18",
        "a bookie that takes a seat while the writer idles does not hear of the last entries",
        ((_ENSEMBLE, "        if fresh:\n            self.lac_publishing.note_seated()\n", ""),),
        (_P4_STALL + "who_has_a_seat_behind_the_publication_is_told_the_lac",),
    ),
    Mutant(
        "a-handle-that-rests-fails-in-a-shortage",
        "P4.5 P10.4",
        "open ledgers that nobody appends to fail when a bookie stays away for five seconds",
        (
            (
                "embedbk/core/stall.py",
                "        if is_waited_for:\n            self._count",
                "        if True:\n            self._count",
            ),
        ),
        (_STALLED + "a_handle_that_rests_fails_for_nobody_who_is_away",),
    ),
    Mutant(
        "a-handle-that-rests-fails-without-metadata",
        "P4.5 P10.4",
        "open ledgers that nobody appends to fail when the metadata is away while a bookie is lost",
        (("embedbk/core/stall.py", "or is_usable or not is_waited_for:", "or is_usable:"),),
        (_STALLED + "a_handle_that_rests_fails_for_nobody_who_is_away",),
    ),
    Mutant(
        "an-add-behind-a-rest-waits-for-ever",
        "P4.5",
        "an add that comes in a shortage never fails",
        (
            (
                "embedbk/core/writer.py",
                "            self.stall.note_sent(event.now_ns, self.options.quorum_wait_ns, self.options.retry_ns)\n",
                "            pass\n",
            ),
        ),
        (_STALLED + "a_handle_that_rests_fails_for_nobody_who_is_away",),
    ),
    Mutant(
        "an-add-behind-a-rest-waits-for-metadata-for-ever",
        "P4.5",
        "an add that comes while a change is not settled never fails",
        (
            (
                "embedbk/core/writer.py",
                "        elif self.changes.proposal is not None:\n            self.ensemble.note_stall(event.now_ns)\n",
                "",
            ),
        ),
        (_STALLED + "a_handle_that_rests_fails_for_nobody_who_is_away",),
    ),
    Mutant(
        "the-time-goes-on-behind-the-last-add",
        "P4.5",
        "a handle whose adds are all acknowledged fails as if one waited",
        (("embedbk/core/stall.py", "        if not is_waited_for:\n            self.until_ns = None\n", ""),),
        (_STALLED + "the_time_ends_with_the_last_add_that_waits",),
    ),
    Mutant(
        "an-acknowledgement-prolongs-nothing",
        "P4.5",
        "a handle fails for too few bookies a moment after one of its entries was acknowledged",
        ((_STALL, "max(self.until_ns, now_ns + timeout_ns)", "self.until_ns"),),
        (_STALLED + "an_acknowledgement_begins_the_time_anew",),
    ),
    Mutant(
        "a-shortage-outlives-the-change-that-ends-it",
        "P4.5 P11.3",
        "a handle whose drained bookie gave its seat away in a shortage counts as short of bookies for ever",
        (
            (
                _ENSEMBLE,
                "        self.stall.is_short = False  # Those that failed give",
                "        # Those that failed give",
            ),
        ),
        (_P4_SHORTAGE + "a_shortage_ends_also_by_the_change_that_a_drained_bookie_causes",),
    ),
    Mutant(
        "nobody-hears-of-missed-copies",
        "P4.5 P8.7",
        "an open log keeps fewer copies than it asks for, for as long as its ledger lives",
        (
            (
                _ENSEMBLE,
                "[CopiesMissed()] if has_missed else []\n        in_flight = self.in_flight\n        return effects",
                "[]\n        in_flight = self.in_flight\n        return effects",
            ),
        ),
        (_MISSED + "a_bookie_that_comes_back_after_entries_were_acknowledged_missed_them",),
    ),
    Mutant(
        "a-replaced-bookie-missed-nothing",
        "P4.5 P8.7",
        "what was acknowledged in front of an ensemble change keeps fewer copies",
        ((_ENSEMBLE, "        effects += [CopiesMissed()] if has_missed else []\n", ""),),
        (_MISSED + "a_bookie_that_is_replaced_lacks_what_was_acknowledged_in_its_fragment",),
    ),
    Mutant(
        "who-takes-a-seat-has-what-came-before",
        "P4.2 P4.5 P8.7 P11.3",
        "entries that were acknowledged while a drained bookie was replaced have one copy fewer, for as long as the ledger lives",
        (
            (
                _ENSEMBLE,
                "has_missed or (bool(fresh) and in_flight.done >= proposal.first_entry)",
                "has_missed",
            ),
        ),
        (_MISSED + "who_takes_the_seat_of_a_drained_bookie_lacks_what_was_acknowledged_meanwhile",),
    ),
    Mutant(
        "who-is-tolerated-is-tolerated-for-ever",
        "P4.1 P4.6 P11.2",
        "a bookie whose link broke before its machine was gone for good keeps its seat in open ledgers, and no repair copies what it had",
        (
            (
                _ENSEMBLE,
                "            return self.hear_of_absence(seating.member, now_ns) if stays_away else []\n",
                "            return []\n",
            ),
        ),
        (_DELAYED + "a_tolerated_bookie_that_turns_out_to_stay_away_is_replaced",),
    ),
    Mutant(
        "a-bookie-in-limbo-is-asked-in-vain",
        "P4.6",
        "a tolerated bookie says that it is in limbo, and is asked again and again",
        (
            (
                _ENSEMBLE,
                "        if Status(answer.status).name in _LASTING:\n            return self.hear",
                "        if answer.status == Status.WRONG_INCARNATION:\n            return self.hear",
            ),
        ),
        (_DELAYED + "a_tolerated_bookie_that_turns_out_to_stay_away_is_replaced",),
    ),
    Mutant(
        "what-a-failed-seat-owed-it-has",
        "P4.5 P8.7",
        "entries that were on their way to a bookie when it failed count as its own",
        (
            (
                "embedbk/core/in_flight.py",
                "        return min(self.done, owed - 1)\n",
                "        return max(self.done, owed - 1)\n",
            ),
        ),
        (_MISSED + "what_was_on_its_way_when_it_failed_counts_too",),
    ),
    Mutant(
        "every-bookie-that-comes-back-missed-something",
        "P8.7",
        "each restart of a bookie makes a new ledger of each log that was idle meanwhile",
        (
            (
                "embedbk/core/in_flight.py",
                "            self.done > (each.held_through",
                "            self.done >= (each.held_through",
            ),
        ),
        (_MISSED + "who_was_away_while_nothing_was_acknowledged_missed_nothing",),
    ),
    Mutant(
        "a-log-stays-where-copies-lack",
        "P8.7 P11.2",
        "no repair gives a restarted bookie what it missed of a log that is written on",
        (
            (
                "embedbk/client/keeping.py",
                "has_missed and line.is_writing and",
                "has_missed and not line.is_writing and",
            ),
        ),
        (
            "tests/repair/test_draining.py::test_a_log_leaves_the_ledger_of_which_a_bookie_missed_entries_and_its_copies_are_"
            "made_whole",
        ),
    ),
    Mutant(
        "a-partial-frame-beside-any-other",
        "P3.7",
        "frames do not grow with load: what waits goes beside a frame that is larger",
        ((_WRITER, "return waiting >= newest.entry_count or", "return waiting >= 1 or"),),
        (_P3 + "a_partial_frame_goes_beside_one_that_is_no_larger",),
    ),
    Mutant(
        "a-rest-forgets-a-change",
        "P4.2 P4.6",
        "a writer rests while it avoids a bookie that failed",
        (
            (
                _RESTING,
                "    if _candidates_new(ensemble.candidates) != _CANDIDATES_AS_NEW:\n        return None\n",
                "",
            ),
        ),
        (_REST + "a_bookie_that_failed_lately_keeps_a_writer_up",),
    ),
    Mutant(
        "a-rest-forgets-a-failed-seat",
        "P4.1",
        "a writer rests though a seat has failed, and seats it anew",
        (
            (_RESTING, "if flight._seatings is not None or (", "if ("),
            (_RESTING, '    "_seatings": None,\n', ""),
            (
                _RESTING,
                '    "is_deferred",\n    "times",\n',
                '    "is_deferred",\n    "times",\n    "_seatings",\n',
            ),
        ),
        (_REST + "a_failed_seat_keeps_a_writer_up",),
    ),
    Mutant(
        "a-rest-changes-the-nonce",
        "P3.8",
        "a writer stands up under another nonce",
        (
            (
                _RESTING,
                "revision, self.ledger_key, nonce, terms.bookies",
                "revision, self.ledger_key, nonce + 1, terms.bookies",
            ),
        ),
        (_REST + "an_idle_writer_rests_and_goes_on_where_it_was",),
    ),
    Mutant(
        "idle-writers-share-what-they-do-not-have-in-common",
        "P3.8",
        "a writer is restored with the options and bookies of the one that was shrunk before it",
        (
            (
                _RESTING,
                "    if terms is None or any(a is not b for",
                "    if terms is None or all(a is not b for",
            ),
        ),
        (_REST + "idle_writers_share_only_what_is_the_same",),
    ),
    Mutant(
        "coverage-one-fewer",
        "P1 P5.2b",
        "coverage needs one bookie fewer",
        (
            (
                _QUORUM,
                "need = quorum.write_quorum - quorum.ack_quorum + 1\n    return all(",
                "need = max(1, quorum.write_quorum - quorum.ack_quorum)\n    return all(",
            ),
        ),
        (_P5_FENCING + "coverage_is_judged_on_each_write_set",),
    ),
    Mutant(
        "one-negative-ends-recovery",
        "P5.2c",
        "a single NoSuchEntry ends recovery",
        (
            (
                _QUORUM,
                "(negative & mask).bit_count() >= quorum.write_quorum - quorum.ack_quorum + 1",
                "(negative & mask).bit_count() >= 1",
            ),
        ),
        (
            _P1 + "the_verdict_over_all_answer_vectors",
            _P5_READING + "a_bad_copy_is_unknown_and_never_a_negative",
        ),
        seeds=110,
    ),
    Mutant(
        "writer-closes-without-compare",
        "P5.1 I15",
        "the writer closes without checking version and status",
        (
            (
                _PUBLISHING,
                "[Compare(key, revision), *placements]",
                "placements if proposed.is_closed else [Compare(key, revision), *placements]",
            ),
        ),
        (_P5 + "a_refused_close_reads_again_and_decides",),
        seeds=30,
    ),
    Mutant(
        "lac-jumps-gaps",
        "P3.3 I3",
        "the LAC is the highest entry with an ack quorum, whatever is missing below",
        (
            (
                _IN_FLIGHT,
                "        before, frames = self.done, self.frames\n",
                "        before, frames = self.done, self.frames\n"
                "        acked = [one[0] for one in frames.marks() if self._is_done(one, self.seatings)]\n"
                "        for _ in [one for one in frames.marks() if acked and one[0] < acked[-1]]:\n"
                "            frames.confirm()\n",
            ),
        ),
        (_P3 + "lac_waits_for_the_gap",),
        seeds=30,
    ),
    Mutant(
        "replaced-bookie-stays-confirmed",
        "P4.4 I16",
        "what a replaced bookie acknowledged counts for its successor",
        (
            (
                _FRAMES,
                "            pending.acked &= ~slots\n",
                "            half = len(self._owed) - len(self._owed) // 2\n"
                "            pending.acked |= pending.acked << half | pending.acked >> half\n",
            ),
        ),
        (
            _P4_CROSSING + "a_replaced_seat_counts_no_more",
            _SCENES_OF_WRITING + "late_errors_acknowledge_nothing_on_an_ensemble_nobody_knows",
        ),
        seeds=140,
    ),
    # Quorums.
    Mutant(
        "coverage-by-count",
        "P1 P5.2b",
        "coverage counts answers instead of judging each write set",
        (
            (
                _QUORUM,
                "    return all((mask & seats).bit_count() >= need for mask in _write_set_masks(quorum))",
                "    return seats.bit_count() >= need",
            ),
        ),
        (_P1 + "three_answers_may_cover_nothing", _SCENES + "coverage_is_judged_write_set_by_write_set"),
    ),
    Mutant(
        "verdict-over-the-ensemble",
        "P5.2c",
        "negatives of bookies outside the write set count",
        ((_QUORUM, "(negative & mask).bit_count()", "negative.bit_count()"),),
        (_P1 + "the_verdict_over_all_answer_vectors",),
        seeds=110,
    ),
    Mutant(
        "ack-quorum-by-count",
        "P3.3 I4",
        "acknowledgements are counted over the ensemble, not in the write set",
        (
            (
                _QUORUM,
                "    return all((masks[residue] & acked).bit_count() >= quorum.ack_quorum for residue in residues)",
                "    assert masks\n    return acked.bit_count() >= quorum.ack_quorum",
            ),
        ),
        (_P1 + "an_ack_quorum_is_qa_seats_of_each_write_set",),
        seeds=30,
    ),
    Mutant(
        "ack-quorum-of-the-first-entry",
        "P3.3 I4",
        "a striped frame is done when its first entry is",
        (
            (
                _QUORUM,
                "return tuple(entry_id % size for entry_id in range(first, last + 1))",
                "return (first % size,)",
            ),
        ),
        (_P1 + "residues_stand_for_every_write_set_of_a_run",),
        seeds=30,
    ),
    # The writer.
    Mutant(
        "change-without-compare",
        "P4.1 I15",
        "an ensemble change is published without checking the version",
        (
            (
                _PUBLISHING,
                "[Compare(key, revision), *placements]",
                "placements if proposed.state == base.state else [Compare(key, revision), *placements]",
            ),
        ),
        (_P4_CROSSING + "a_change_refused_because_of_recovery_fails_the_adds_as_fenced",),
        seeds=60,
    ),
    Mutant(
        "acknowledged-before-the-change-is-published",
        "P4.2 I14",
        "while a change is in flight the old ensemble's quorum is enough",
        (
            (
                _WRITER,
                "        if self.error is not None or not self.in_flight.advance(proposal.seatings if proposal else None):\n",
                "        if self.error is not None or not self.in_flight.advance():\n",
            ),
        ),
        (
            _P4 + "an_entry_needs_its_quorum_in_both_ensembles_while_the_change_is_in_flight",
            _SCENES_OF_WRITING + "late_errors_acknowledge_nothing_on_an_ensemble_nobody_knows",
        ),
        seeds=140,
    ),
    Mutant(
        "change-counts-before-it-is-published",
        "P4.2 I14",
        "the new ensemble is used when it is proposed",
        (
            (
                _CHANGES,
                "        return publishing.put(self.metadata, self.revision, changed)\n",
                "        flight, sent_ns = self.in_flight, self.in_flight.oldest_sent_ns() or 0\n"
                "        sends = flight.resend(flight.replace(proposal.seatings), sent_ns, flight.done, flight.done_length)\n"
                "        return [*publishing.put(self.metadata, self.revision, changed), *sends]\n",
            ),
        ),
        (_P4 + "an_entry_needs_its_quorum_in_both_ensembles_while_the_change_is_in_flight",),
        seeds=30,
    ),
    Mutant(
        "one-of-two-replacements-resent",
        "P4.4",
        "what is pending is sent to one of two new bookies only",
        (
            (
                _ENSEMBLE,
                "        effects += in_flight.resend(fresh, now_ns, in_flight.done, in_flight.done_length)\n",
                "        effects += in_flight.resend(fresh[:1], now_ns, in_flight.done, in_flight.done_length)\n",
            ),
        ),
        (
            _P4 + "one_change_of_two_members_sends_what_is_pending_to_both",
            _SCENES_OF_WRITING + "overlapping_changes_with_striping_reach_the_named_write_sets",
        ),
    ),
    Mutant(
        "unknown-change-taken-for-refused",
        "P2.2 P4.2",
        "a change of unknown outcome is forgotten",
        (
            (
                _PUBLISHING,
                "            self.is_unsettled = True\n",
                "            self.drop()\n            return Publication(Settlement.NOT_MADE, [])\n",
            ),
        ),
        (_P4 + "an_unknown_change_that_landed_is_found_by_reading",),
        seeds=30,
    ),
    Mutant(
        "change-below-the-lac",
        "P4.1 P2.3",
        "a new fragment starts at the LAC, not behind it",
        (
            (
                _ENSEMBLE_CHANGE,
                "return Proposal(done + 1, in_flight.done_length",
                "return Proposal(max(0, done), in_flight.done_length",
            ),
        ),
        (_P4 + "a_failed_bookie_is_replaced_from_the_lac_on",),
        seeds=60,
    ),
    Mutant(
        "member-seated-twice",
        "P2.4 P4.1",
        "a member of the ensemble may be chosen as a replacement",
        ((_ENSEMBLE_CHANGE, "{*seated, *left_out}, in_flight.quorum", "{*left_out}, in_flight.quorum"),),
        (_P4 + "the_replacement_is_no_member_and_no_bookie_that_just_failed",),
        seeds=30,
    ),
    Mutant(
        "answers-of-other-handles-count",
        "P3.8",
        "an acknowledgement of another handle's add counts",
        (
            (
                _IN_FLIGHT,
                "        return (answer.nonce, answer.seating, answer.recovery) == asked",
                "        return (answer.seating, answer.recovery) == asked[1:]",
            ),
        ),
        (_P3 + "an_acknowledgement_answers_one_request_of_one_handle",),
    ),
    Mutant(
        "received-counts-as-durable",
        "P3.2",
        "with deferred sync what is in memory moves the LAC",
        (
            (
                _FRAMES,
                "        pending.received |= 1 << slot\n",
                "        pending.acked |= 1 << slot\n",
            ),
        ),
        (_P3 + "with_deferred_sync_there_are_two_marks",),
    ),
    Mutant(
        "close-does-not-wait-for-adds",
        "P5.1",
        "the writer closes while adds are outstanding",
        (
            (
                _WRITER,
                "        if self.in_flight.pending_count or changes.proposal is not None or changes.proposed is not None:\n",
                "        if changes.proposal is not None or changes.proposed is not None:\n",
            ),
        ),
        (_P5 + "outstanding_adds_finish_before_the_close_is_sent",),
        seeds=40,
    ),
    # Idempotent and conditional appends.
    Mutant(
        "producers-known-by-sequence-only",
        "P3",
        "two producers that use the same sequence are one",
        (
            (
                _PRODUCERS,
                "        window = self._windows.get(producer.producer_id)\n",
                "        window = self._windows.get(0)\n",
            ),
            (
                _PRODUCERS,
                "self._windows.setdefault(producer.producer_id, OrderedDict())",
                "self._windows.setdefault(0, OrderedDict())",
            ),
            (
                _PRODUCERS,
                "        self._windows.move_to_end(producer.producer_id)\n",
                "        self._windows.move_to_end(0)\n",
            ),
        ),
        (_TERMS + "an_append_of_the_same_producer_and_sequence_is_done_once",),
    ),
    Mutant(
        "sequence-below-the-window-appended",
        "P3",
        "an append that fell out of the window is done again",
        (
            (
                _PRODUCERS,
                "if held is None and producer.sequence < (newest := next(reversed(window))):",
                "if held is None and producer.sequence < (newest := next(iter(window))) - 2 * self.sequences_max:",
            ),
        ),
        (_P3 + "a_producer_s_window_is_bounded_and_what_fell_out_is_refused",),
    ),
    Mutant(
        "received-over-a-gap",
        "P3.2 P3.3",
        "the mark of what is received passes a frame that is not",
        (
            (
                _IN_FLIGHT,
                "            if not self._has_quorum(held, marks, self.seatings):\n                break\n",
                "            if not self._has_quorum(held, marks, self.seatings):\n                continue\n",
            ),
        ),
        (_P3 + "what_is_received_is_counted_by_write_set_and_in_order",),
    ),
    # Quarantine.
    Mutant(
        "quarantine-forbids-the-last-bookie",
        "RP45",
        "who is in quarantine is not chosen, even where nobody else is left",
        (
            (
                _PLACEMENT,
                "        fit = left if is_level else _by_turn(left, last)[0][1]\n",
                "        fit = [info for info in left if not info.is_quarantined]\n        if not fit:\n            break\n",
            ),
        ),
        (_PLACES + "who_is_in_quarantine_is_chosen_only_where_nobody_else_is_left",),
    ),
    Mutant(
        "quarantine-ends-at-the-first-good-answer",
        "RP45",
        "one good answer lets a bookie out of quarantine",
        (
            (
                _QUARANTINE,
                "return self.good[bookie_id] >= GOOD_ANSWERS and",
                "return self.good[bookie_id] >= 1 and",
            ),
        ),
        (_PLACES + "quarantine_ends_in_time_or_early",),
    ),
    Mutant(
        "quarantine-counts-errors-of-all-time",
        "RP45",
        "errors long ago count as if they were new",
        (
            (
                _QUARANTINE,
                "        if len(when) < ERRORS_MAX or now_ns - when[0] > WITHIN_NS:\n",
                "        if len(when) < ERRORS_MAX:\n",
            ),
        ),
        (_PLACES + "many_errors_in_a_short_time_and_no_new_seat",),
    ),
    Mutant(
        "busy-is-dead",
        "P7.8 L13",
        "a writer takes BUSY for a failure, and replaces a bookie that lives",
        (("embedbk/core/writer.py", "        if answer.status == Status.BUSY:\n", "        if False:\n"),),
        (_BUSY + "a_writer_waits_for_a_bookie_that_is_busy",),
    ),
    Mutant(
        "busy-leaves-a-hole",
        "P7.8 RP34",
        "an entry that others have acknowledged is not sent again to the bookie that was busy",
        ((_FRAMES, "        self._behind[first_entry] = pending\n", "        return\n"),),
        (_BUSY + "a_writer_waits_for_a_bookie_that_is_busy",),
    ),
    Mutant(
        "busy-for-ever",
        "P7.8 P4.1",
        "the time limit of an add begins anew with every try, so that a bookie may be busy without end",
        (
            (
                _FRAMES,
                "        self._owed[slot].setdefault(first_entry, now_ns)\n",
                "        self._owed[slot][first_entry] = now_ns\n",
            ),
        ),
        (_BUSY + "being_busy_is_bounded_by_a_time_limit_of_its_own",),
    ),
    Mutant(
        "shrunk-while-a-change-is-in-flight",
        "P4.7 P4.4",
        "nothing is on its way: seatings are dropped that a proposal has, and what those who stay owe from then on is lost",
        (
            (
                _ENSEMBLE,
                "        if self.changes.proposal is None:\n            self.in_flight.shrink",
                "        if True:\n            self.in_flight.shrink",
            ),
        ),
        (
            "tests/rules/test_p4_lateness.py::"
            "test_what_is_sent_while_the_change_is_in_flight_is_owed_by_those_who_stay",
        ),
    ),
    Mutant(
        "lac-journaled-in-each-pause",
        "P6.2",
        "a short pause is told durably: a sync at each bookie between two adds of a writer at its own pace",
        (
            (
                _LAC_PUBLISHING,
                "        return latest_ns - latest_ns % self.options.explicit_lac_grid_ns\n",
                "        return last_active_ns + 5_000_000\n",
            ),
        ),
        (_P6_TAIL + "a_writer_at_its_own_pace_journals_no_lac_between_its_adds",),
    ),
    Mutant(
        "late-follower-not-told",
        "P6.2",
        "a bookie that says behind the ack quorum that a reader waits is told with the next add only",
        (
            (
                _WRITER,
                "return self.lac_publishing.hint(number) if self.owes_lac else []",
                "return self.lac_publishing.hint(number) if self.in_flight.pending else []",
            ),
        ),
        (_P6_TAIL + "who_says_behind_the_quorum_that_a_reader_waits_is_told_then",),
    ),
    # Too few bookies just now.
    Mutant(
        "creation-waits-for-nobody",
        "CL01 P2.1",
        "a creation fails when too few bookies are writable at that moment",
        (
            (
                _CREATION,
                "        if are_known and now_ns < self.patience.until_ns:\n",
                "        if are_known and now_ns < 0:\n",
            ),
        ),
        (_P2 + "a_creation_waits_for_bookies_that_are_known",),
    ),
    Mutant(
        "a-refused-change-is-tried-again-too-late",
        "P2.2 P4.5",
        "adds that wait for a change which was refused for a moment fail as it is tried again",
        (
            (
                _ENSEMBLE,
                "min(pause_ns, self.options.quorum_wait_ns // 4)",
                "min(pause_ns, self.options.quorum_wait_ns)",
            ),
        ),
        (
            "tests/rules/test_p2_refused.py::test_a_change_that_is_refused_for_a_moment_is_tried_again_while_adds_wait_for_it",
        ),
    ),
    Mutant(
        "creation-puts-an-id-again",
        "P2.1 I18",
        "a creation of unknown outcome puts the same id again, which others may have deleted meanwhile",
        (
            (
                _CREATION,
                "        if self.is_unsettled:\n            return self._take",
                "        if self.naming.is_asking:\n            return self._take",
            ),
        ),
        (_P2 + "a_ledger_that_was_deleted_while_its_creation_was_unknown_does_not_come_back",),
    ),
    Mutant(
        "creation-forgets-what-is-unknown",
        "P2.2",
        "a creation that fails behind an unknown outcome says that nothing was made",
        ((_CREATION, "        self.is_unsettled = True\n        return", "        return"),),
        (_P2 + "a_creation_that_ends_behind_an_unknown_outcome_is_not_definite",),
    ),
    Mutant(
        "creation-waits-for-bookies-that-never-were",
        "CL01 P2.1",
        "a creation waits also when the cluster never had so many bookies",
        (
            (
                _CREATION,
                "        if are_known and now_ns < self.patience.until_ns:\n",
                "        if now_ns < self.patience.until_ns:\n",
            ),
        ),
        (_P2 + "nobody_waits_for_bookies_that_the_cluster_never_had",),
    ),
    Mutant(
        "shortage-waits-for-nobody",
        "P4.5",
        "adds fail as soon as a write set is short of bookies, also when one comes in time",
        (
            (
                _STALL,
                "        return self.until_ns is not None and now_ns >= self.until_ns\n",
                "        return True\n",
            ),
        ),
        (_P4_STALL + "adds_that_are_short_of_bookies_wait_for_one_that_comes",),
    ),
    Mutant(
        "shortage-begins-anew",
        "P4.5",
        "who is listed as writable and fails each time makes adds wait for ever",
        (
            (
                _STALL,
                "        if self.since_ns is None:\n            self.since_ns = now_ns\n",
                "        self.since_ns = now_ns\n",
            ),
        ),
        (_P4_STALL + "without_a_replacement_the_writer_goes_on_while_every_write_set_keeps_qa",),
    ),
    Mutant(
        "shortage-takes-nobody-back",
        "P4.5",
        "a handle whose bookie was full or restarted for a moment fails though it is there again, where all others sit",
        (
            (
                _ENSEMBLE,
                "        back = self.in_flight.forgive(each.bookie_id for each in self.in_flight.members if each in able)\n",
                "        back = self.in_flight.forgive(())\n",
            ),
        ),
        (_P4_STALL + "a_bookie_that_is_writable_again_goes_on_where_it_sits_when_adds_wait_for_one",),
    ),
    Mutant(
        "seat-stays-empty",
        "P4.5",
        "where nobody can take the seat of a bookie that restarted, a ledger goes on with a copy less for as long as "
        "its handle lives",
        (
            (
                _FAILED_SEATS,
                "(info.member.bookie_id in there or info.member.bookie_id not in left_alone)\n",
                "(info.member.bookie_id in there)\n",
            ),
        ),
        (_P4_STALL + "a_bookie_that_restarted_goes_on_where_it_sits_when_nobody_can_take_its_seat",),
    ),
    Mutant(
        "taken-back-at-once",
        "P4.5",
        "a bookie that is listed and gone is tried with every look at who could take its seat",
        (
            (
                _FAILED_SEATS,
                "(info.member.bookie_id in there or info.member.bookie_id not in left_alone)\n",
                "True\n",
            ),
        ),
        (_P4_STALL + "who_is_listed_and_gone_is_tried_once_in_the_avoid_time",),
    ),
    Mutant(
        "nobody-back-at-the-limit",
        "P4.5 RP11",
        "a handle that may change nothing more does not go on with whom it has",
        (
            (
                _ENSEMBLE,
                "        if self.changes.count >= self.options.changes_max:\n            return self.check_usable(now_ns)\n",
                "        if self.changes.count >= self.options.changes_max:\n            self.retry_at = None\n"
                "            return self.check_usable(now_ns)\n",
            ),
        ),
        (_P4_STALL + "at_the_limit_of_changes_a_bookie_that_is_back_gets_its_seat",),
    ),
    Mutant(
        "avoided-for-ever",
        "P4.5",
        "who failed a moment ago is not taken in a shortage, though it answers and nobody else is left",
        (
            (
                _CANDIDATES,
                "        last = failed_seats.come_last(self.failures, self.in_flight, now_ns)\n",
                "        last = ()\n",
            ),
        ),
        (
            _P4_SHORTAGE + "a_bookie_that_failed_a_moment_ago_is_taken_when_nobody_else_is_left",
            _P4_SHORTAGE + "a_bookie_with_a_new_disk_has_its_own_seat_when_nobody_else_is_left",
        ),
    ),
    Mutant(
        "listed-is-there",
        "P4.5 RP11",
        "in a shortage whoever is listed is taken, also who crashed: all changes of a handle go in a moment",
        (
            (
                "embedbk/core/avoided.py",
                "        if known.is_heard and known.until_ns > now_ns\n",
                "        if known.until_ns > now_ns\n",
            ),
        ),
        (_P4_SHORTAGE + "bookies_that_crashed_and_are_listed_cost_a_handle_no_changes",),
    ),
    Mutant(
        "asked-without-pause",
        "P4.5",
        "who is silent is asked with every look",
        (
            (
                "embedbk/core/avoided.py",
                "    asked = before._replace(ask_ns=now_ns + delay_ns, delay_ns=delay_ns, is_heard=False)\n",
                "    asked = before._replace(is_heard=False)\n",
            ),
        ),
        (_P4_SHORTAGE + "each_is_asked_after_200_ms_and_then_ever_later",),
    ),
    Mutant(
        "chance-lost-while-no-add-waits",
        "P4.5",
        "nobody who comes back goes on in the seat of a handle that rests, or whose older adds were acknowledged",
        (
            (
                _STALL,
                "(self.since_ns is None or now_ns < self.since_ns + timeout_ns)",
                "self.since_ns is not None and now_ns < self.since_ns + timeout_ns",
            ),
        ),
        (_STALLED + "a_handle_that_rested_goes_on_when_they_are_back",),
    ),
    Mutant(
        "back-after-the-end-of-a-shortage",
        "L2 P4.5",
        "who comes back and fails again is taken back however long the shortage has lasted: an add never ends",
        (
            (
                _ENSEMBLE,
                "        if is_short and not self.stall.may_take_back(now_ns, self.options.quorum_wait_ns):\n",
                "        if False:\n",
            ),
        ),
        (_P4_SHORTAGE + "a_shortage_that_nobody_ends_ends_by_itself",),
    ),
    Mutant(
        "other-disk-is-tolerated",
        "P4.6",
        "a bookie that lost its disk keeps its seat where change is delayed, unless it says so to an add itself",
        (
            (
                _FAILED_SEATS,
                "            is_gone = info is not None and (info.member != seating.member or not info.is_writable)\n",
                "            is_gone = False\n",
            ),
            (
                _WRITER,
                "        return self.ensemble.seat_failed(number, event.reason, event.now_ns, stays_away=stays_away)\n",
                "        return self.ensemble.seat_failed(number, event.reason, event.now_ns)\n",
            ),
        ),
        (
            _DELAYED + "another_disk_is_replaced_without_delay_by_whatever_way_it_is_heard_of",
            _DELAYED + "a_link_that_leads_to_another_disk_is_no_passing_failure",
        ),
    ),
    Mutant(
        "strict-without-the-last",
        "RP40 RP45",
        "a strict placement that only a bookie in quarantine can keep is not kept",
        (
            (
                "embedbk/core/placement.py",
                "        if drawn.is_adherent and None not in drawn.seats:\n            return drawn.seats\n",
                "        return drawn.seats if drawn.is_adherent else list(seats)\n",
            ),
        ),
        (_PLACES + "a_strict_placement_is_kept_by_those_who_come_last_where_it_cannot_be_kept_without",),
    ),
    Mutant(
        "late-without-the-others",
        "P4.7",
        "a bookie is blamed for what all are slow with, so that a stall of a shared device changes every ensemble",
        ((_LATENESS, "        if 2 * prompt >= len(seatings):\n", "        if True:\n"),),
        (_LATE + "where_most_are_late_alike_nobody_is_to_blame",),
    ),
    Mutant(
        "late-at-first-sight",
        "P4.7",
        "a writer that stood still itself blames who has answered meanwhile",
        ((_LATENESS, " if is_second else []\n", "\n"),),
        (_LATE + "a_writer_that_stood_still_itself_blames_nobody",),
    ),
    Mutant(
        "who-is-not-listed-stands-apart",
        "RP40",
        "a bookie that has a seat and is not listed counts as standing in a rack of its own",
        (
            (
                _PLACEMENT,
                "            locations[member]\n"
                "            for seat in write_set(entry_id, quorum)\n"
                "            if (member := seats[seat]) is not None and member in locations\n",
                '            locations.get(member, "")\n'
                "            for seat in write_set(entry_id, quorum)\n"
                "            if (member := seats[seat]) is not None\n",
            ),
        ),
        (
            "tests/rules/test_placement.py::test_who_has_a_seat_and_is_not_listed_stands_nowhere_unless_it_is_known",
        ),
    ),
    Mutant(
        "where-those-stand-that-left-is-forgotten",
        "RP40",
        "a writer that asks for racks strictly takes nobody while one of its bookies is not listed for a moment",
        (
            (
                _CANDIDATES,
                "{member: stood[member] for member in seated if member in stood} or _NOWHERE",
                "_NOWHERE",
            ),
        ),
        ("tests/rules/test_placement.py::test_a_writer_knows_where_those_stand_that_left_the_list",),
    ),
    Mutant(
        "late-is-failed",
        "P4.7",
        "who is late is given up where nobody can take its seat: entries stay with a copy less",
        (
            (
                _CANDIDATES,
                "        return self._propose(bookies, now_ns, late)\n",
                "        for each in late:\n"
                '            self.in_flight.fail(each.number, "late")\n'
                "        return self._propose(bookies, now_ns, late)\n",
            ),
        ),
        (_LATE + "nobody_is_replaced_where_nobody_can_take_the_seat",),
    ),
    Mutant(
        "busy-is-late",
        "P4.7 P7.8",
        "a bookie that says BUSY loses its seat for being slow",
        (
            (_LATENESS, "        and each.busy is None\n", ""),
            (
                _IN_FLIGHT,
                "            if seating.busy is None:\n                when",
                "            if True:\n                when",
            ),
        ),
        (_LATE + "who_says_busy_is_not_late",),
    ),
    Mutant(
        "late-in-a-storm",
        "P4.7",
        "a change by lateness follows the other without a pause, each as soon as the one before",
        (
            (
                _LATENESS,
                "        self._look_at_ns = now_ns + self.terms.calm_ns\n",
                "        self._look_at_ns = 0\n",
            ),
        ),
        (_LATE + "changes_by_lateness_make_no_storm",),
    ),
    Mutant(
        "busy-and-then-silent",
        "P7.8 P4.1",
        "a bookie that was busy and says nothing more is waited for as long as one that answers",
        (
            (
                "embedbk/core/seating.py",
                "        return at_ns if self.busy.silent_ns is None else min(at_ns, self.busy.silent_ns + timeout_ns)\n",
                "        return at_ns\n",
            ),
        ),
        (_BUSY + "one_that_was_busy_and_says_nothing_more_has_failed",),
    ),
    Mutant(
        "silence-at-the-bound-is-not-looked-for",
        "P4.5",
        "a writer at the bound of what it keeps waits for a silent seat until the time limit of its add",
        (
            (
                _ENSEMBLE,
                "        effects += self._look_for_silent(now_ns)\n",
                "",
            ),
        ),
        (_SILENT + "at_the_bound_who_is_silent_counts_as_failed",),
    ),
    Mutant(
        "silent-at-the-first-look",
        "P4.5 P4.7",
        "a writer that stood still itself takes a seat for silent whose answers have come meanwhile",
        (
            (
                "embedbk/core/backlog.py",
                "    if not 0 < again_ns <= now_ns <= again_ns + _IN_TIME_NS:\n",
                "    if again_ns > now_ns:\n",
            ),
        ),
        (_SILENT + "a_writer_that_stood_still_itself_blames_nobody",),
    ),
    Mutant(
        "silent-seats-that-are-needed-are-failed",
        "P4.5",
        "a seat is gone on without although a write set then lacks its ack quorum",
        (
            (
                "embedbk/core/in_flight.py",
                "            and has_ack_quorum(sitting & ~(1 << each.seat), everyone, self.quorum)\n",
                "",
            ),
        ),
        (_SILENT + "who_is_needed_is_waited_for",),
    ),
    Mutant(
        "small-frames-cost-nothing",
        "RP33",
        "what is kept for a seat counts bodies only, so that small frames are kept without bound",
        (
            (
                _FRAMES,
                "        self._count_behind(len(pending.frame.body) + FRAME_PRICE)\n",
                "        self._count_behind(len(pending.frame.body))\n",
            ),
        ),
        (_SILENT + "below_the_bound_nobody_waits_and_nobody_is_to_blame",),
    ),
    Mutant(
        "what-ended-is-counted-for-ever",
        "RP34",
        "what a handle kept counts for the process after its end",
        (
            (
                "embedbk/host/client_node.py",
                "                operation.core.in_flight.let_go()\n",
                "                pass\n",
            ),
        ),
        ("tests/host/test_client_node.py::test_what_a_released_handle_kept_is_not_counted",),
    ),
    Mutant(
        "refused-and-never-read",
        "P2.2 P4.3",
        "a writer whose change was refused, and whose read of the metadata got no answer, reads it never again",
        (
            (
                _CHANGES,
                "        self.publishing.is_unsettled = True  # Whatever the read was for, only another read tells.\n",
                "",
            ),
        ),
        (_P4_CROSSING + "a_refused_change_whose_read_gets_no_answer_is_read_again",),
    ),
    Mutant(
        "any-answer-is-being-there",
        "P4.5 P7.1",
        "in a shortage a bookie is taken that answers that it can say nothing",
        (
            (
                _ENSEMBLE,
                "        if answer.status not in (Status.OK, Status.NO_SUCH_LEDGER):\n            return []\n",
                "",
            ),
        ),
        (_P4_SHORTAGE + "an_answer_that_cannot_tell_is_none",),
    ),
    Mutant(
        "last-is-first",
        "P4.1 P4.5",
        "a bookie that failed a moment ago takes a seat though the others are enough, and no shortage is there",
        (
            (
                _FAILED_SEATS,
                "        there = [bookie_id for bookie_id in there if bookie_id in failed]\n",
                "        pass\n",
            ),
        ),
        (_P4_SHORTAGE + "who_is_avoided_is_not_taken_where_the_others_are_enough",),
    ),
    Mutant(
        "a-refusal-settles-what-is-unknown",
        "P2.2 P4.2",
        "a change is dropped though one before it may still land: adds are acknowledged where nobody will look",
        (
            (
                _ENSEMBLE,
                "            self.retry_at = until_ns\n            return False\n",
                "            self.retry_at = until_ns\n",
            ),
        ),
        (_P2_REFUSED + "a_refused_change_behind_an_unknown_one_settles_nothing",),
    ),
    Mutant(
        "a-refused-change-is-tried-at-once",
        "P2.2 P4.5",
        "a full catalog is asked for another ensemble again and again, as fast as it refuses",
        (
            (
                _ENSEMBLE,
                "        until_ns = now_ns + pause_ns\n",
                "        until_ns = now_ns\n",
            ),
        ),
        (_P2_REFUSED + "a_change_that_is_refused_is_dropped_where_a_quorum_is_left",),
    ),
    Mutant(
        "contenders-never-wait",
        "P8.1",
        "who lost a log takes it back at once, and two of them do nothing else",
        (("embedbk/core/contending.py", "    if losses == 0:\n", "    if losses >= 0:\n"),),
        (
            "tests/rules/test_p8_contending.py::test_two_who_take_a_log_from_each_other_do_so_ever_more_rarely",
        ),
    ),
    Mutant(
        "a-rest-loses-the-sums",
        "P11.4",
        "a writer that was shrunk and restored publishes no sums any more",
        ((_RESTING, "        flight.sums_through is not no_sums,\n", "        False,\n"),),
        (_REST + "a_writer_that_rested_has_the_sums_of_its_packer",),
    ),
)
