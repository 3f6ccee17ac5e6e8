"""Recovery of a ledger, and the takeover of a log of ledgers."""

# ruff: noqa: E501, ISC004 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_LEAVING = "embedbk/core/leaving.py"
_LOG = "embedbk/core/log.py"
_LISTING = "embedbk/core/log_listing.py"
_PUBLISHING = "embedbk/core/publishing.py"
_RECOVERY = "embedbk/core/recovery.py"

_P3 = "tests/rules/test_p3_adding.py::test_"
_P5_CONVERGENCE = "tests/rules/test_p5_convergence.py::test_"
_P5_FENCING = "tests/rules/test_p5_fencing.py::test_"
_P5_READING = "tests/rules/test_p5_reading_forward.py::test_"
_P5_RECOVERY = "tests/rules/test_p5_recovery.py::test_"
_P8 = "tests/rules/test_p8_logs.py::test_"
_P8_LEAVING = "tests/rules/test_p8_leaving.py::test_"
_P8_SPLICING = "tests/rules/test_p8_splicing.py::test_"
_SCENES = "tests/scenarios/test_fencing_and_recovery.py::test_"
_SCENES_OF_WRITING = "tests/scenarios/test_writing_and_repair.py::test_"

MUTANTS = (
    Mutant(
        "renewal-takes-the-log-from-others",
        "P8.1 P8.4",
        "who takes a log over from itself gets it also when another has it by now",
        (
            (
                _LOG,
                "        when = [*self.guard] if self.renews is None else [Compare(path, self.renews)]\n",
                "        when = [*self.guard] if self.renews is None else [Compare(path, self.renews)][1:]\n",
            ),
        ),
        (_P8 + "an_owner_takes_the_log_over_from_itself_only",),
    ),
    Mutant(
        "renewal-forgets-its-own-epoch",
        "P8.1",
        "an owner whose put was not answered takes its own epoch for another's",
        (
            (
                _LOG,
                "        if event.value == self.owner:\n            self.renews = event.revision\n            return self._take_epoch()\n",
                "",
            ),
        ),
        (_P8 + "an_owner_knows_an_epoch_that_it_put_before",),
    ),
    Mutant(
        "timeout-is-absent",
        "P5.2c",
        "recovery takes a read that failed on the way for NoSuchEntry",
        (
            (
                _RECOVERY,
                "        return self._unknown(event.tag[2], event.reason, event.now_ns)",
                '        if event.tag[0] == "recover" and self.phase is Phase.READING:\n'
                "            self.forward.note_absent(event.tag[2], [event.tag[3:]])\n"
                "            return self._go_on(event.now_ns)\n"
                "        return self._unknown(event.tag[2], event.reason, event.now_ns)",
            ),
        ),
        (_P5_READING + "without_a_verdict_recovery_is_inconclusive_and_may_be_tried_again",),
        seeds=210,
    ),
    Mutant(
        "recovery-closes-before-write-backs",
        "P5.2d I25",
        "recovery closes before its write-backs are confirmed",
        (
            (
                _RECOVERY,
                "        if not self.in_flight.pending_count:\n            return effects + self._close()\n        return effects\n",
                "        return effects + ([] if self.phase is Phase.CLOSING else self._close())\n",
            ),
            (
                _RECOVERY,
                '        ensure(self.in_flight.done == end, "recovery closes only what is written back")\n',
                "        for pending in self.in_flight.pending.values():\n"
                "            self.in_flight.done_length = pending.frame.length\n",
            ),
        ),
        (_P5_RECOVERY + "the_close_waits_for_qa_acknowledgements_of_every_write_back",),
        seeds=250,
    ),
    Mutant(
        "recovery-keeps-its-fragments-to-itself",
        "P5.2d I28",
        "what recovery replaced is not published by its close",
        (
            (
                _RECOVERY,
                "                fragments=fragments,\n",
                "                fragments=self.metadata.fragments,\n",
            ),
        ),
        (_P5_RECOVERY + "fragments_of_recovery_are_published_only_with_the_close",),
        seeds=520,
    ),
    Mutant(
        "recovery-closes-without-compare",
        "P5.2e I15",
        "recovery closes without checking the version",
        (
            (
                _PUBLISHING,
                "[Compare(key, revision), *placements]",
                "[*([] if base.state == LedgerState.IN_RECOVERY else [Compare(key, revision)]), *placements]",
            ),
        ),
        (_P5_CONVERGENCE + "recoverers_converge",),
        seeds=120,
    ),
    Mutant(
        "recovery-reads-do-not-fence",
        "P5.2c I24",
        "a recovery read does not carry the fence (BookKeeper #2614)",
        ((_RECOVERY, "FRAME_BYTES_MAX, True, self.ledger_key", "FRAME_BYTES_MAX, False, self.ledger_key"),),
        (
            _P5_READING + "every_recovery_read_carries_the_fence_and_goes_to_the_ensemble_it_started_from",
            _SCENES + "a_delayed_add_does_not_slip_past_a_recovery_that_read_no",
        ),
    ),
    Mutant(
        "recovery-reads-from-its-own-ensemble",
        "P5.2c I26",
        "recovery reads follow the ensemble that it changed itself",
        (
            (
                _RECOVERY,
                "            member = self.base.members[seat]\n            last =",
                "            member = self.in_flight.members[seat]\n            last =",
            ),
        ),
        (
            _P5_READING + "every_recovery_read_carries_the_fence_and_goes_to_the_ensemble_it_started_from",
            _SCENES + "a_recovery_that_died_leaves_the_copies_where_the_next_one_looks",
        ),
    ),
    Mutant(
        "recovery-publishes-changes-at-once",
        "P5.2d I28",
        "an ensemble change of recovery is published before its close",
        (
            (
                _RECOVERY,
                "        return list(self.in_flight.resend(fresh, now_ns, None, 0))",
                "        published = self._publish(self.metadata.with_changes(fragments=self.fragments))\n"
                "        return [*published, *self.in_flight.resend(fresh, now_ns, None, 0)]",
            ),
            (
                _RECOVERY,
                "        return self._begin_fencing(now_ns) if self.phase is Phase.MARKING else self._end(None)\n",
                "        if self.phase is Phase.READING:\n"
                "            return self._go_on(now_ns)\n"
                "        return self._begin_fencing(now_ns) if self.phase is Phase.MARKING else self._end(None)\n",
            ),
        ),
        (
            _P5_READING + "a_recovery_that_replaced_a_bookie_and_died_leaves_the_ensemble_as_it_was",
            _SCENES + "a_recovery_that_died_leaves_the_copies_where_the_next_one_looks",
        ),
        seeds=30,
    ),
    Mutant(
        "write-backs-carry-a-lac",
        "P5.2d I12",
        "a recovery add moves the LAC of a bookie",
        (
            (
                _RECOVERY,
                "            effects += self.in_flight.send(frame, now_ns, None, 0)\n",
                "            effects += self.in_flight.send(frame, now_ns, frame.last_entry, frame.length)\n",
            ),
            (
                "embedbk/core/add_storing.py",
                "        if header.has_lac and not request.recovery:",
                "        if header.has_lac:",
            ),
        ),
        (
            _P5_RECOVERY + "write_backs_are_verbatim_without_a_lac_and_pass_fences",
            _SCENES + "two_recoverers_move_no_lac",
        ),
        seeds=30,
    ),
    # Recovery.
    Mutant(
        "unknown-taken-for-absent",
        "P5.2c",
        "any answer but OK is a negative",
        (
            (
                _RECOVERY,
                "        if answer.status == Status.NO_SUCH_LEDGER:\n            forward.note_absent",
                "        if answer.status != Status.OK:\n            forward.note_absent",
            ),
        ),
        (_P5_READING + "unknowns_are_asked_again_within_the_same_recovery",),
        seeds=570,
    ),
    Mutant(
        "bad-copy-taken-for-absent",
        "P5.2c P7.1",
        "a copy that fails its digest is a negative",
        (
            (
                _RECOVERY,
                "                return self._unknown(seat, str(broken), event.now_ns)\n",
                "                forward.note_absent(seat, [(first, last)])\n",
            ),
        ),
        (_P5_READING + "a_copy_that_fails_its_digest_on_the_way_is_unknown",),
    ),
    Mutant(
        "unmentioned-taken-for-absent",
        "P5.2c",
        "what a range answer does not mention is a negative",
        (
            (
                _RECOVERY,
                "            forward.note_absent(seat, answer.absent)\n",
                "            forward.note_absent(seat, [(first, last)])\n",
            ),
        ),
        (_P5_READING + "a_range_answer_says_nothing_of_ids_it_does_not_mention",),
    ),
    Mutant(
        "fenced-without-marking",
        "P5.2a",
        "bookies are fenced before IN_RECOVERY is published",
        (
            (
                _RECOVERY,
                "        if self.metadata.state == LedgerState.IN_RECOVERY:\n            return self._begin_fencing(now_ns)\n",
                "        if not self.metadata.is_closed:\n            return self._begin_fencing(now_ns)\n",
            ),
        ),
        (_P5_RECOVERY + "in_recovery_is_published_before_anything_is_fenced",),
    ),
    Mutant(
        "recovery-floor-ignored",
        "P5.2b",
        "recovery may start below the last fragment",
        (
            (
                _RECOVERY,
                "        self.start = self.base.first_entry - 1\n        self.start_length = self.base.length_before\n",
                "        self.start, self.start_length = -1, 0\n",
            ),
        ),
        (
            _P5_FENCING + "the_start_is_never_below_the_last_fragment",
            _SCENES + "recovery_of_an_empty_last_fragment_stays_above_it",
        ),
    ),
    Mutant(
        "recovery-closes-at-the-lac",
        "P5.2e P5.3",
        "recovery closes at the LAC it heard instead of the last entry it recovered",
        ((_RECOVERY, "                last_entry=end,\n", "                last_entry=self.start,\n"),),
        (_P5_RECOVERY + "recovery_closes_at_the_last_entry_that_anybody_may_have_been_told_of",),
    ),
    Mutant(
        "recovery-length-off",
        "P5.2e I37",
        "the length at close is the one at the start of recovery",
        (
            (
                _RECOVERY,
                "                length=self.in_flight.done_length,\n",
                "                length=self.start_length,\n",
            ),
        ),
        (_P5_RECOVERY + "recovery_closes_at_the_last_entry_that_anybody_may_have_been_told_of",),
    ),
    Mutant(
        "verdicts-outlive-a-changed-fragment",
        "P5.2e",
        "a close refused because the last fragment changed is sent again with the old verdicts",
        (
            (
                _RECOVERY,
                "        if self.phase is Phase.CLOSING and self.metadata.fragments[-1] == before.fragments[-1]:\n",
                "        if self.phase is Phase.CLOSING and before is not None:\n",
            ),
        ),
        (_P5_RECOVERY + "an_acknowledgement_of_the_first_round_counts_for_nothing_in_the_second",),
    ),
    Mutant(
        "tags-unchecked-by-recovery",
        "P3.1 P5.2c",
        "recovery writes back copies whose tag is wrong",
        (
            (
                _RECOVERY,
                "            check_tags(frame, self.metadata.digest, self.mac_key)\n",
                "            assert check_tags\n",
            ),
        ),
        (_P3 + "a_copy_with_a_wrong_tag_is_a_failed_copy",),
    ),
    Mutant(
        "duplicate-answers-cover",
        "P5.2b I23",
        "the same bookie's answer counts as often as it comes",
        ((_RECOVERY, "        self.fenced |= 1 << seat\n", "        self.fenced = self.fenced << 1 | 1\n"),),
        (_P5_FENCING + "an_answer_that_comes_twice_covers_no_more_than_once",),
    ),
    Mutant(
        "closed-in-the-list-asked-for-all-the-same",
        "P8.1 CL30",
        "a takeover looks at ledgers that the list records as closed and empty (pravega#6030)",
        (
            (
                _LOG,
                "            if segment.last_entry is None:\n                return [ReadKey",
                "            if segment.last_entry is None or segment.last_entry < 0:\n                return [ReadKey",
            ),
        ),
        (_SCENES_OF_WRITING + "a_listed_ledger_that_is_known_to_be_empty_and_gone_blocks_nobody",),
        seeds=30,
        world="log",
    ),
    Mutant(
        "gone-ledger-skipped",
        "P8.1 I90",
        "a takeover goes on without a listed ledger that is gone",
        (
            (
                _LOG,
                "            # Gone meanwhile: the list must have changed. Read it again (P8.1).\n            self.retry_at = event.now_ns + RETRY_NS\n            return []\n",
                "            self.segments = tuple(each for each in self.segments if each.ledger_id != event.tag[1])\n"
                "            return self._recover_next(event.now_ns)\n",
            ),
        ),
        (
            _P8 + "a_listed_ledger_that_is_gone_means_that_the_list_changed",
            _SCENES_OF_WRITING + "a_listed_ledger_that_may_have_entries_and_is_gone_blocks_the_takeover",
        ),
        world="log",
    ),
    # Logs.
    Mutant(
        "list-without-compare",
        "P8.3 I91",
        "a new list is published without checking the one that was read",
        ((_LISTING, "            Compare(log_key_path(self.name), self.list_revision),\n", ""),),
        (_P8 + "the_commit_checks_list_epoch_and_ledger_together",),
        world="log",
    ),
    Mutant(
        "commit-without-epoch",
        "P8.3 P9.2",
        "a leader that was overtaken may still publish its list",
        ((_LISTING, "            Compare(log_owner_path(self.name), self.epoch),\n", ""),),
        (_P8 + "the_commit_checks_list_epoch_and_ledger_together",),
        world="log",
    ),
    Mutant(
        "serves-before-the-list-names-it",
        "P8.2 P8.3",
        "a new leader serves before its ledger is in the list",
        (
            (
                _LISTING,
                "        return Alongside(when + more_when, then + more_then)\n",
                "        return Alongside(when + more_when, then[:-1] + more_then)\n",
            ),
        ),
        (_P8 + "nothing_is_served_before_the_list_names_the_ledger",),
        world="log",
    ),
    # What leaves the list.
    Mutant(
        "empty-ledger-deleted-without-its-fences",
        "P8.3 P7.4",
        "a ledger that left its list is deleted as soon as one of its seats is fenced",
        (
            (
                _LEAVING,
                "        is_settled = not self.reading and not any(each.unfenced for each in self.candidates.values())\n",
                "        is_settled = not self.reading\n",
            ),
        ),
        (_P8_LEAVING + "a_seat_that_says_nothing_holds_up_nothing_else",),
    ),
    Mutant(
        "ledger-deleted-whatever-the-list-says",
        "P8.3 I90",
        "the list is not checked in the transaction that deletes what left it",
        ((_LEAVING, "            Compare(log_key_path(self.name), self.list_revision),\n", ""),),
        (_P8_LEAVING + "a_ledger_that_the_list_names_again_is_not_deleted",),
    ),
    Mutant(
        "ledger-with-entries-deleted",
        "P8.3 I90",
        "whatever is CLOSED may be deleted where somebody says that it left the list",
        (
            (
                _LEAVING,
                "metadata.is_closed and metadata.last_entry == NO_ENTRY else None\n",
                "metadata.is_closed else None\n",
            ),
        ),
        (_P8_LEAVING + "only_what_metadata_itself_calls_closed_and_empty_is_deleted",),
    ),
    Mutant(
        "left-ledgers-forgotten",
        "P8.3",
        "what left the list before a crash is overwritten by what leaves it now",
        ((_LOG, "(*self.left, *sorted(self.leaving))", "tuple(sorted(self.leaving))"),),
        (_P8_LEAVING + "what_a_crash_left_is_deleted_behind_the_next_takeover",),
    ),
    Mutant(
        "refused-owner-leaves-its-ledger",
        "P8.1 P8.3",
        "each owner that loses the log beside a splice leaves the ledger that it made in the metadata, for ever",
        (
            (
                _LISTING,
                "            definite=True,\n        )\n        return self._undo()\n",
                "            definite=True,\n        )\n        return self._end(self.refusal)\n",
            ),
        ),
        (_P8_SPLICING + "an_owner_that_lost_the_log_leaves_no_ledger_behind_its_splice",),
    ),
    Mutant(
        "offset-of-an-empty-front-forgotten",
        "P8.3 I93",
        "where the new ledger begins is counted without those that leave",
        (
            (
                _LOG,
                "first_offset = first_free_offset(self.segments)\n",
                "first_offset = first_free_offset(tuple(self._staying))\n",
            ),
        ),
        (_P8_LEAVING + "a_log_whose_front_was_truncated_keeps_its_offsets_when_what_is_left_was_empty",),
    ),
    Mutant(
        "full-list-found-too-late",
        "P8.1",
        "whether the list has room is looked at when the writer before was fenced already",
        (
            (
                _LOG,
                "        if full is not None:\n            return self._end(full)  # Before anything",
                "        if full is None:\n            return self._recover_next(now_ns)  # Before anything",
            ),
        ),
        (_P8_LEAVING + "a_full_list_is_an_error_of_its_own_before_anything_is_touched",),
    ),
    Mutant(
        "fences-only-the-last-ledger",
        "P8.1",
        "a takeover recovers only the last ledger of the list",
        ((_LOG, "        for segment in self.segments:\n", "        for segment in self.segments[-1:]:\n"),),
        (_P8 + "every_listed_ledger_that_is_not_recorded_as_closed_is_recovered",),
        world="log",
    ),
    Mutant(
        "offsets-count-from-zero",
        "P8.3 I93",
        "a recovered segment's first offset forgets the segments before it",
        (
            (
                _LOG,
                "first_offset = first_free_offset(self.segments[:index]) if index else segments[0].first_offset",
                "first_offset = segments[0].first_offset",
            ),
        ),
        (_P8 + "every_listed_ledger_that_is_not_recorded_as_closed_is_recovered",),
        world="log",
    ),
    Mutant(
        "recovery-undoes-a-repair",
        "P5.2e P2.2",
        "a recovery that closes over a repair publishes the earlier fragments as it had read them before",
        (
            (
                _RECOVERY,
                "        fragments = (*self.metadata.fragments[:-1], *self.fragments[first_changed:])\n",
                "        fragments = (*self.fragments[:first_changed], *self.fragments[first_changed:])\n",
            ),
        ),
        (_P5_RECOVERY + "a_close_of_recovery_keeps_what_repair_did_to_earlier_fragments",),
    ),
    Mutant(
        "recovery-never-goes-back",
        "P5.2d P4.5",
        "a seat whose write-back failed is written to no more, though its bookie is there again and nobody else can sit there",
        (
            (
                _RECOVERY,
                "        back = self.in_flight.forgive(able)\n",
                "        back = self.in_flight.forgive(())\n",
            ),
        ),
        (_P5_RECOVERY + "a_recovery_goes_back_to_a_bookie_that_is_there_again",),
    ),
    Mutant(
        "recovery-goes-back-to-writable-ones-only",
        "P5.2d P7.8",
        "a recovery waits for a bookie that is read-only, though what recovery writes passes that",
        (
            (
                _RECOVERY,
                "        listed = {info.member for info in self.bookies}\n",
                "        listed = {info.member for info in self.bookies if info.is_writable}\n",
            ),
        ),
        (_P5_RECOVERY + "a_recovery_goes_back_to_a_bookie_that_is_there_again",),
    ),
    Mutant(
        "recovery-remembers-the-process-before",
        "P4.5 P5.2d",
        "a bookie that registers anew is left alone by a recovery for what its process before did",
        (
            (
                _RECOVERY,
                "                self.avoid_until.pop(info.member.bookie_id, None)  # It came back just now.\n",
                "                pass\n",
            ),
        ),
        (_P5_RECOVERY + "a_recovery_goes_back_at_once_to_a_bookie_that_registers_anew",),
    ),
    Mutant(
        "verdicts-of-another-round",
        "P5.2c P5.2e",
        "an answer to a read of the first round is a verdict in the second, for whoever sits there then",
        (
            (
                _RECOVERY,
                '        if event.tag[1] != self.round:\n            return []\n        if kind == "fence"',
                '        if kind == "fence"',
            ),
        ),
        (_P5_RECOVERY + "a_negative_of_the_first_round_counts_for_nothing_in_the_second",),
    ),
)
