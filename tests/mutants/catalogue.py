"""The mutants: bugs that this protocol must not have, one at a time, each with the tests that must find it.

An edit is (file, exact text, other text); the text must stand in the file exactly once, so that a mutant that no
longer means anything fails instead of passing for found. Nothing is listed that changes nothing: every mutant breaks
a promise, and its directed test says which.
"""

# ruff: noqa: E501, ISC004 - It quotes lines of our own code as they stand.

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTANTS", "Mutant"]

Edit = tuple[str, str, str]

_APPENDING = "embedbk/appending.py"
_BOOKIE = "embedbk/core/bookie.py"
_CATALOG = "embedbk/metadata/catalog.py"
_COLLECTOR = "embedbk/core/collector.py"
_COPY = "native/store_copy.c"
_DELETING = "embedbk/deleting.py"
_ENSEMBLE_CHANGE = "embedbk/core/ensemble_change.py"
_IN_FLIGHT = "embedbk/core/in_flight.py"
_JOURNAL = "native/journal.c"
_JOURNAL_OPEN = "native/journal_open.c"
_JOURNAL_REPLAY = "native/journal_replay.c"
_JOURNAL_SALVAGE = "native/journal_salvage.c"
_LOG = "embedbk/core/log.py"
_MEMBER = "embedbk/metadata/member.py"
_OPERATIONS = "embedbk/host/operations.py"
_PLACEMENT = "embedbk/core/placement.py"
_PRODUCERS = "embedbk/core/producers.py"
_QUARANTINE = "embedbk/core/quarantine.py"
_QUORUM = "embedbk/core/quorum.py"
_READER = "embedbk/core/reader.py"
_READING = "embedbk/reading.py"
_RECOVERY = "embedbk/core/recovery.py"
_WAIT = "native/zmq_turn.c"
_WRITER = "embedbk/core/writer.py"

_P1, _P3, _P4, _P5, _P6, _P7, _P8 = (
    f"tests/rules/test_{page}.py::test_"
    for page in (
        "p1_quorum",
        "p3_adding",
        "p4_ensemble_change",
        "p5_closing",
        "p6_reading",
        "p7_bookie",
        "p8_logs",
    )
)
_CATALOGS = "tests/metadata/test_catalog.py::test_"
_COUNTED = "tests/codec/test_answers.py::test_"
_DROPPING = "tests/rules/test_p7_dropping.py::test_"
_PLACES = "tests/rules/test_placement.py::test_"
_LEDGERS = "tests/faces/test_ledger.py::test_"
_LOGS = "tests/faces/test_log.py::test_"
_TERMS = "tests/faces/test_terms.py::test_"
_WAITING = "tests/transports/test_waiting.py::test_"
_WATCHES = "tests/metadata/test_client.py::test_"
_COMPACTION = "tests/storage/test_compaction.py::test_"
_BUSY = "tests/rules/test_p7_busy.py::test_"
_SPACE = "tests/rules/test_p7_space.py::test_"
_UNCLEAN = "tests/testing/test_unclean_starts.py::test_"
_JOURNALS = "tests/storage/test_journals.py::test_"
_DIRECTORIES = "tests/storage/test_ledger_directories.py::test_"
_LOCAL = "tests/host/test_local_adds.py::test_"
_DAMAGE = "tests/storage/test_entry_log_damage.py::test_"
_P6_TAIL = "tests/rules/test_p6_tailing.py::test_"
_STORAGE = "tests/storage/test_bookie_storage.py::test_"
_MEMBERS = "tests/metadata/test_member.py::test_"
_SCENES = "tests/scenarios/test_fencing_and_recovery.py::test_"
_SCENES_OF_WRITING = "tests/scenarios/test_writing_and_repair.py::test_"
_TAIL = "tests/crash/test_journal_tail.py::test_"
_SALVAGE = "tests/crash/test_journal_salvage.py::test_"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    rules: str  # What it breaks, in the page's numbers.
    what: str
    edits: tuple[Edit, ...]
    killers: tuple[str, ...]  # Directed tests; each of them must fail.
    seeds: int | None = (
        None  # A shallow one: random worlds find it within so many seeds too. None: a deep one.
    )
    world: str = "ledger"  # Of these random worlds: "ledger" or "log" (tests/mutants/seeds.py).

    @property
    def is_native(self) -> bool:
        """Its edits are in C, so that the copy must be built."""
        return any(path.startswith("native/") for path, _, _ in self.edits)


MUTANTS = (
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
        (_P5 + "coverage_is_judged_on_each_write_set",),
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
                "            self.absent.setdefault(event.tag[2], []).append(event.tag[3:])\n"
                "            return self._go_on(event.now_ns)\n"
                "        return self._unknown(event.tag[2], event.reason, event.now_ns)",
            ),
        ),
        (_P5 + "without_a_verdict_recovery_is_inconclusive_and_may_be_tried_again",),
        seeds=210,
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
            _P5 + "a_bad_copy_is_unknown_and_never_a_negative",
        ),
        seeds=110,
    ),
    Mutant(
        "writer-closes-without-compare",
        "P5.1 I15",
        "the writer closes without checking version and status",
        (
            (
                _WRITER,
                "[Compare(key, self.revision)], [put])",
                "[] if metadata.is_closed else [Compare(key, self.revision)], [put])",
            ),
        ),
        (_P5 + "a_refused_close_reads_again_and_decides",),
        seeds=30,
    ),
    Mutant(
        "fence-ignored-where-ledger-is-unknown",
        "P5.2b I20",
        "a bookie that does not know the ledger says fenced and is not",
        (
            (
                _BOOKIE,
                "        row = self.table.get(ledger_id) or self.table.create(ledger_id, from_reserve=True)\n"
                "        bound = self.table.key(row)\n",
                "        if self.table.get(ledger_id) is None:\n"
                "            self.table.create(ledger_id)\n"
                "            return Status.OK, []\n"
                "        row = self.table.get(ledger_id) or self.table.create(ledger_id, from_reserve=True)\n"
                "        bound = self.table.key(row)\n",
            ),
        ),
        (_P5 + "a_fence_creates_the_ledger_and_outlives_a_crash",),
        seeds=30,
    ),
    Mutant(
        "add-accepted-on-a-fenced-ledger",
        "P3.4a I19",
        "a normal add is taken though the ledger is fenced",
        (
            (
                _BOOKIE,
                "return Status.FENCED if row.is_fenced or row.is_dropped else None",
                "return Status.FENCED if row.is_dropped else None",
            ),
        ),
        (_P3 + "every_normal_add_of_a_fenced_ledger_is_refused_and_recovery_adds_pass",),
        seeds=130,
    ),
    Mutant(
        "recovery-closes-before-write-backs",
        "P5.2d I25",
        "recovery closes before its write-backs are confirmed",
        (
            (
                _RECOVERY,
                "        if not self.in_flight.pending:\n            return effects + self._close()\n        return effects\n",
                "        return effects + ([] if self.phase is Phase.CLOSING else self._close())\n",
            ),
            (
                _RECOVERY,
                '        ensure(self.in_flight.done == self.end, "recovery closes only what is written back")\n',
                "        for pending in self.in_flight.pending.values():\n"
                "            self.in_flight.done_length = pending.frame.length\n",
            ),
        ),
        (_P5 + "the_close_waits_for_qa_acknowledgements_of_every_write_back",),
        seeds=250,
    ),
    Mutant(
        "lac-jumps-gaps",
        "P3.3 I3",
        "the LAC is the highest entry with an ack quorum, whatever is missing below",
        (
            (
                _IN_FLIGHT,
                "        before = self.done\n        while self.pending:\n",
                "        before = self.done\n"
                "        acked = [first for first, one in self.pending.items() if self._is_done(one, self.seatings)]\n"
                "        for first in [first for first in self.pending if acked and first < acked[-1]]:\n"
                "            self.pending_bytes -= len(self.pending.pop(first).frame.body)\n"
                "        while self.pending:\n",
            ),
        ),
        (_P3 + "lac_waits_for_the_gap",),
        seeds=30,
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
        (_P5 + "fragments_of_recovery_are_published_only_with_the_close",),
        seeds=520,
    ),
    Mutant(
        "recovery-closes-without-compare",
        "P5.2e I15",
        "recovery closes without checking the version",
        (
            (
                _RECOVERY,
                '"cas", [Compare(key, self.revision)], [Put',
                '"cas", [] if proposed.is_closed else [Compare(key, self.revision)], [Put',
            ),
        ),
        (_P5 + "recoverers_converge",),
        seeds=120,
    ),
    Mutant(
        "recovery-reads-do-not-fence",
        "P5.2c I24",
        "a recovery read does not carry the fence (BookKeeper #2614)",
        ((_RECOVERY, "FRAME_BYTES_MAX, True, self.ledger_key", "FRAME_BYTES_MAX, False, self.ledger_key"),),
        (
            _P5 + "every_recovery_read_carries_the_fence_and_goes_to_the_ensemble_it_started_from",
            _SCENES + "a_delayed_add_does_not_slip_past_a_recovery_that_read_no",
        ),
    ),
    Mutant(
        "replaced-bookie-stays-confirmed",
        "P4.4 I16",
        "what a replaced bookie acknowledged counts for its successor",
        (
            (
                _IN_FLIGHT,
                "            pending.acked &= kept\n",
                "            pending.acked |= {\n"
                "                new.number\n"
                "                for new, was in zip(seatings, self.seatings, strict=True)\n"
                "                if was.number in pending.acked\n"
                "            }\n",
            ),
        ),
        (
            _P4 + "a_replaced_seat_counts_no_more",
            _SCENES_OF_WRITING + "late_errors_acknowledge_nothing_on_an_ensemble_nobody_knows",
        ),
        seeds=140,
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
            _P5 + "every_recovery_read_carries_the_fence_and_goes_to_the_ensemble_it_started_from",
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
                "            return self._begin_fencing(now_ns)\n        return self._end(None)\n",
                "            return self._begin_fencing(now_ns)\n"
                "        if self.phase is Phase.READING:\n"
                "            return self._go_on(now_ns)\n"
                "        return self._end(None)\n",
            ),
        ),
        (
            _P5 + "a_recovery_that_replaced_a_bookie_and_died_leaves_the_ensemble_as_it_was",
            _SCENES + "a_recovery_that_died_leaves_the_copies_where_the_next_one_looks",
        ),
        seeds=30,
    ),
    # Bookies.
    Mutant(
        "fence-not-journalled",
        "P5.2f I20",
        "a fence is set in memory only",
        (
            (
                _BOOKIE,
                '        effects: list[Effect] = [self._append(row, RecordKind.FENCE, bound or b"")]\n',
                "        effects: list[Effect] = []\n",
            ),
        ),
        (
            _P7 + "a_fence_outlives_crashes_and_is_never_lifted",
            _SCENES + "a_fence_outlives_its_journal_record",
        ),
        seeds=30,
    ),
    Mutant(
        "fence-acknowledged-before-sync",
        "P5.2b I20",
        "a fence is acknowledged before its record is durable",
        (
            (
                _BOOKIE,
                "        self._reply_when(row.last_token, Reply(event.link, event.request_id, answer), effects)\n"
                "        return effects\n\n    def _fence(",
                "        effects.append(Reply(event.link, event.request_id, answer))\n"
                "        return effects\n\n    def _fence(",
            ),
        ),
        (_P5 + "only_durable_fences_count",),
        seeds=80,
    ),
    Mutant(
        "fence-unseen-by-a-lookup",
        "P3.4a P5.2f",
        "an add whose comparison began before the fence is taken after it",
        (
            (
                _BOOKIE,
                "refusal = None if request.recovery else _refusal(row)  # It may have been fenced since.",
                "refusal: Status | None = None",
            ),
        ),
        (_P3 + "a_fence_between_lookup_and_answer_refuses_the_add",),
    ),
    Mutant(
        "add-acknowledged-before-sync",
        "P3.2 I21",
        "an add is acknowledged when it is queued",
        (
            (
                _BOOKIE,
                "            self._reply_when(\n                row.last_token,\n"
                "                self._add_reply(event.link, event.request_id, request, header, Status.OK),\n"
                "                effects,\n            )\n",
                "            effects.append(self._add_reply(event.link, event.request_id, request, header, Status.OK))\n",
            ),
        ),
        (_P3 + "what_was_not_synced_is_never_acknowledged_after_a_crash",),
        seeds=30,
    ),
    Mutant(
        "repeated-add-acknowledged-before-sync",
        "P3.4b I21",
        "an add that is held already is acknowledged though the first is not durable yet",
        (
            (
                _BOOKIE,
                "        self._reply_when(row.last_token, reply, effects)\n        return effects\n\n    def _on_taken",
                "        effects.append(reply)\n        return effects\n\n    def _on_taken",
            ),
        ),
        (_P3 + "the_same_entry_again_is_acknowledged_only_when_it_is_durable",),
        seeds=30,
    ),
    Mutant(
        "conflict-acknowledged",
        "P3.4c I22",
        "another payload under a stored id is acknowledged",
        (
            (
                _BOOKIE,
                "                if stored != entry:\n",
                "                if len(stored) != len(entry):\n",
            ),
        ),
        (_P3 + "another_payload_for_the_id_never_overwrites",),
    ),
    Mutant(
        "negative-before-fence-is-durable",
        "P5.2f I24",
        "a fenced read is answered before the fence is durable",
        (
            (
                _BOOKIE,
                "        wait_token = row.last_token if request.fence else 0\n",
                "        wait_token = 0\n",
            ),
        ),
        (_P5 + "a_negative_leaves_only_when_the_fence_is_durable",),
    ),
    Mutant(
        "lac-may-fall",
        "P6.2 I11",
        "a bookie takes any LAC that it is told, also a lower one",
        (
            (
                _BOOKIE,
                "        if lac <= row.lac:\n            return []\n",
                "        if lac == row.lac:\n            return []\n",
            ),
        ),
        (_P6 + "the_lac_of_a_bookie_never_falls",),
        seeds=30,
    ),
    Mutant(
        "write-backs-carry-a-lac",
        "P5.2d I12",
        "a recovery add moves the LAC of a bookie",
        (
            (
                _RECOVERY,
                "        return list(self.in_flight.send(frame, now_ns, None, 0))",
                "        return list(self.in_flight.send(frame, now_ns, frame.last_entry, frame.length))",
            ),
            (_BOOKIE, "        if header.has_lac and not request.recovery:", "        if header.has_lac:"),
        ),
        (
            _P5 + "write_backs_are_verbatim_without_a_lac_and_pass_fences",
            _SCENES + "two_recoverers_move_no_lac",
        ),
        seeds=30,
    ),
    Mutant(
        "another-incarnation-is-served",
        "P2.4 P7.2",
        "a bookie that lost its disk takes adds that were meant for the disk before",
        (
            (
                _BOOKIE,
                "        if request.incarnation != self.incarnation:\n"
                "            return Status.WRONG_INCARNATION\n"
                "        if self.failure is not None:\n"
                "            return Status.UNKNOWN\n"
                "        row = self.table.get(header.ledger_id)\n",
                "        if self.failure is not None:\n"
                "            return Status.UNKNOWN\n"
                "        row = self.table.get(header.ledger_id)\n",
            ),
        ),
        (
            _P7 + "two_bookies_that_lost_their_disks_acknowledge_nothing_of_a_paused_writer",
            _SCENES_OF_WRITING + "empty_bookies_under_old_names_acknowledge_nothing",
        ),
    ),
    Mutant(
        "failed-journal-says-yes",
        "P7.6",
        "what waited for a journal that failed is acknowledged all the same",
        (
            (
                _BOOKIE,
                "            effects += [_as_unknown(reply) for reply in self.replies[token]]\n",
                "            effects += self.replies[token]\n",
            ),
        ),
        (_P7 + "after_a_failed_sync_nothing_is_promised_any_more",),
    ),
    Mutant(
        "limbo-not-entered",
        "P7.4 I32",
        "a bookie serves at once after an unclean start",
        ((_BOOKIE, "        self.is_serving = not may_have_lost\n", "        self.is_serving = True\n"),),
        (_P7 + "nothing_is_served_before_limbo_is_durable",),
    ),
    Mutant(
        "limbo-served-before-it-is-durable",
        "P7.4 I32",
        "a bookie serves when limbo is queued, not when it is durable",
        (
            (
                _BOOKIE,
                "        if effects:\n            self.limbo_token = self.next_token - 1\n        else:\n"
                "            self.is_serving = True\n",
                "        self.is_serving = True\n",
            ),
        ),
        (_P7 + "nothing_is_served_before_limbo_is_durable",),
    ),
    Mutant(
        "limbo-leaves-the-fence-open",
        "P7.4 I32",
        "a ledger in limbo is not fenced, so that a forgotten fence stays forgotten",
        (
            (
                _BOOKIE,
                "                if not row.is_fenced:\n",
                "                if not row.is_fenced and number >= len(event.not_closed):\n",
            ),
            (_BOOKIE, "    if row.in_limbo and not row.is_dropped:\n        return Status.IN_LIMBO\n", ""),
        ),
        (_P7 + "every_ledger_that_names_it_is_in_limbo_with_or_without_a_trace",),
    ),
    Mutant(
        "limbo-says-absent",
        "P7.4 P7.1",
        "in limbo what is missing is absent instead of unknown",
        (
            (
                _BOOKIE,
                "            (event.absent, row.lac, row.lac_length) if _knows_all(row) else ([], NO_ENTRY, 0)\n",
                "            (event.absent, row.lac, row.lac_length) if _knows_all(row) else (event.absent, NO_ENTRY, 0)\n",
            ),
        ),
        (
            _P7 + "in_limbo_what_is_there_is_served_and_what_is_missing_is_unknown",
            _SCENES_OF_WRITING + "a_bookie_that_lost_an_entry_says_unknown",
        ),
    ),
    Mutant(
        "limbo-cleared-early",
        "P7.4",
        "limbo ends when the ledger is closed, before its share is found again",
        (
            (
                _BOOKIE,
                "        if not self.shares[ledger_id]:\n            row.in_limbo = 0\n",
                "        if ledger_id in self.shares:\n            row.in_limbo = 0\n",
            ),
        ),
        (_P7 + "limbo_ends_when_the_ledger_is_closed_and_the_share_is_found_again",),
    ),
    Mutant(
        "dropped-ledger-not-fenced",
        "P7.3 I33",
        "a deleted ledger takes adds again",
        (
            (
                _BOOKIE,
                "return Status.FENCED if row.is_fenced or row.is_dropped else None",
                "return Status.FENCED if row.is_fenced and not row.is_dropped else None",
            ),
        ),
        (_P7 + "a_dropped_ledger_stays_fenced_and_in_limbo_for_ever",),
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
                _WRITER,
                "[Compare(key, self.revision)], [put])",
                "[Compare(key, self.revision)] if metadata.is_closed else [], [put])",
            ),
        ),
        (_P4 + "a_change_refused_because_of_recovery_fails_the_adds_as_fenced",),
        seeds=60,
    ),
    Mutant(
        "acknowledged-before-the-change-is-published",
        "P4.2 I14",
        "while a change is in flight the old ensemble's quorum is enough",
        (
            (
                _WRITER,
                "        if self.error is not None or not self.in_flight.advance(\n"
                "            self.proposal.seatings if self.proposal else None\n"
                "        ):\n",
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
                _WRITER,
                "        self.proposed = self.metadata.with_changes(fragments=fragments)\n"
                "        return [self._compare_and_set(self.proposed)]\n",
                "        self.proposed = self.metadata.with_changes(fragments=fragments)\n"
                "        fresh = self.in_flight.replace(self.proposal.seatings)\n"
                "        sends = self.in_flight.resend(fresh, self.last_active_ns, self.lac, self.in_flight.done_length)\n"
                "        return [self._compare_and_set(self.proposed), *sends]\n",
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
                _WRITER,
                "        effects += self.in_flight.resend(fresh, now_ns, self.lac, self.in_flight.done_length)\n"
                "        effects += self._advance(now_ns)\n",
                "        effects += self.in_flight.resend(fresh[:1], now_ns, self.lac, self.in_flight.done_length)\n"
                "        effects += self._advance(now_ns)\n",
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
                _WRITER,
                "        self.unsettled = True\n        return self._read_metadata()\n",
                "        self.proposed = self.proposal = None\n        return []\n",
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
                "return Proposal(in_flight.done + 1, in_flight.done_length, seatings)",
                "return Proposal(max(0, in_flight.done), in_flight.done_length, seatings)",
            ),
        ),
        (_P4 + "a_failed_bookie_is_replaced_from_the_lac_on",),
        seeds=60,
    ),
    Mutant(
        "member-seated-twice",
        "P2.4 P4.1",
        "a member of the ensemble may be chosen as a replacement",
        ((_ENSEMBLE_CHANGE, "{*seated, *avoid}, in_flight.quorum", "{*avoid}, in_flight.quorum"),),
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
                _IN_FLIGHT,
                "            pending.received.add(seating_number)\n",
                "            pending.acked.add(seating_number)\n",
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
                "        if self.in_flight.pending or self.proposal is not None or self.proposed is not None:\n",
                "        if self.proposal is not None or self.proposed is not None:\n",
            ),
        ),
        (_P5 + "outstanding_adds_finish_before_the_close_is_sent",),
        seeds=40,
    ),
    # Recovery.
    Mutant(
        "unknown-taken-for-absent",
        "P5.2c",
        "any answer but OK is a negative",
        (
            (
                _RECOVERY,
                "        if answer.status == Status.NO_SUCH_LEDGER:\n            self.absent",
                "        if answer.status != Status.OK:\n            self.absent",
            ),
        ),
        (_P5 + "unknowns_are_asked_again_within_the_same_recovery",),
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
                "                self.absent.setdefault(seat, []).append((first, last))\n",
            ),
        ),
        (_P5 + "a_copy_that_fails_its_digest_on_the_way_is_unknown",),
    ),
    Mutant(
        "unmentioned-taken-for-absent",
        "P5.2c",
        "what a range answer does not mention is a negative",
        (
            (
                _RECOVERY,
                "            self.absent.setdefault(seat, []).extend(tuple(pair) for pair in answer.absent)  # type: ignore[misc]\n",
                "            self.absent.setdefault(seat, []).append((first, last))\n",
            ),
        ),
        (_P5 + "a_range_answer_says_nothing_of_ids_it_does_not_mention",),
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
        (_P5 + "in_recovery_is_published_before_anything_is_fenced",),
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
            _P5 + "the_start_is_never_below_the_last_fragment",
            _SCENES + "recovery_of_an_empty_last_fragment_stays_above_it",
        ),
    ),
    Mutant(
        "recovery-closes-at-the-lac",
        "P5.2e P5.3",
        "recovery closes at the LAC it heard instead of the last entry it recovered",
        ((_RECOVERY, "                last_entry=self.end,\n", "                last_entry=self.start,\n"),),
        (_P5 + "recovery_closes_at_the_last_entry_that_anybody_may_have_been_told_of",),
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
        (_P5 + "recovery_closes_at_the_last_entry_that_anybody_may_have_been_told_of",),
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
        (_P5 + "an_acknowledgement_of_the_first_round_counts_for_nothing_in_the_second",),
    ),
    # Reading.
    Mutant(
        "reader-ends-at-a-missing-copy",
        "P6.1 P6.4",
        "an entry that one bookie does not hold is the end of the ledger",
        (
            (
                _READER,
                "            return self._no_copy(chunk, part, seat, first, answer, now_ns)\n",
                "            self.is_over = True\n            return [Ended()]\n",
            ),
        ),
        (_P6 + "a_failed_copy_is_skipped",),
    ),
    Mutant(
        "lac-of-one-bookie",
        "P6.2 I13",
        "the LAC is what the first bookie says",
        (
            (
                _READER,
                "        if not is_news and not has_coverage(self.answered, self.metadata.quorum):\n",
                "        if not is_news and not self.answered:\n",
            ),
        ),
        (_P6 + "a_lac_that_was_published_to_an_ack_quorum_is_never_missed",),
    ),
    Mutant(
        "tail-beyond-the-lac",
        "P6.2 I9",
        "entries that come along with a LAC are given whatever it allows",
        (
            (
                _READER,
                "        if frame.first_entry == self.after_lac + 1 and frame.last_entry <= lac and not frame.has_gaps:\n",
                "        if frame.first_entry == self.after_lac + 1 and not frame.has_gaps:\n",
            ),
        ),
        (_P6_TAIL + "what_comes_along_is_checked_like_every_answer",),
    ),
    Mutant(
        "hint-as-publication",
        "P6.2 I11",
        "a LAC that came as a hint is not made durable by the one that follows it",
        (
            (
                _BOOKIE,
                "        if request.lac >= row.lac:  # Also of one that is known by a hint: that is in memory only.\n",
                "        if request.lac > row.lac:\n",
            ),
        ),
        (_P6_TAIL + "a_hint_is_no_publication",),
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
        "producers-forgotten-by-a-takeover",
        "P3",
        "a writer that takes over does not learn what producers appended before it",
        (
            (
                _APPENDING,
                "        self._are_producers_known = history is None\n",
                "        self._are_producers_known = True\n",
            ),
        ),
        (_TERMS + "a_duplicate_after_a_crash_of_the_writer_finds_what_recovery_kept",),
    ),
    Mutant(
        "producers-found-and-appended-in-two-steps",
        "P3",
        "two threads may both find that an append is not there yet",
        (
            (
                _APPENDING,
                "                with _PRODUCERS:\n                    held = self.producers.find(producer)\n",
                "                held = self.producers.find(producer)\n"
                "                await Moved(self.writing.signal, lambda: False, 0.02)\n"
                "                with _PRODUCERS:\n",
            ),
        ),
        (_TERMS + "many_threads_that_repeat_each_other_append_once",),
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
        "condition-of-another-ledger-met",
        "P3.1",
        "a position of another ledger is compared by its entry id alone",
        (
            (
                _APPENDING,
                "            is_here = terms.after[0] == self.ledger_id and terms.after[1] < _NEVER_NEXT\n",
                "            is_here = terms.after[1] < _NEVER_NEXT\n",
            ),
        ),
        (_TERMS + "a_conditional_append_is_done_only_behind_the_expected_position",),
    ),
    Mutant(
        "condition-judged-before-the-append",
        "P3.1",
        "the expected id is looked at before the append, not in it",
        (
            (
                _APPENDING,
                "                entry_id = self.writing.try_append_with(data, attributes, expected)\n            else:\n",
                "                is_next = expected < 0 or self.writing.packer.next_entry == expected\n"
                "                await Moved(self.writing.signal, lambda: False, 0.02)\n"
                "                entry_id = PACKER_CONFLICT\n"
                "                if is_next:\n"
                "                    entry_id = self.writing.try_append_with(data, attributes, NO_ENTRY)\n"
                "            else:\n",
            ),
        ),
        (_TERMS + "of_many_threads_with_one_condition_one_appends",),
    ),
    # Deferred sync.
    Mutant(
        "force-waits-for-what-is-received",
        "P3.2",
        "force returns when the bookies have it in memory",
        (
            (
                _OPERATIONS,
                "        return self.lac >= entry_id or self.error is not None",
                "        return self.received >= entry_id or self.error is not None",
            ),
            (
                _APPENDING,
                "        if (writing.lac if is_synced else writing.received) < entry_id:",
                "        if writing.received < entry_id:",
            ),
        ),
        ("tests/scenarios/test_deferred_sync.py::test_force_waits_for_the_disks",),
    ),
    Mutant(
        "received-over-a-gap",
        "P3.2 P3.3",
        "the mark of what is received passes a frame that is not",
        (
            (
                _IN_FLIGHT,
                "            if not self._has_quorum(held, pending, self.seatings):\n                break\n",
                "            if not self._has_quorum(held, pending, self.seatings):\n                continue\n",
            ),
        ),
        (_P3 + "what_is_received_is_counted_by_write_set_and_in_order",),
    ),
    # Digests.
    Mutant(
        "tags-unchecked-by-readers",
        "P3.1",
        "a reader takes copies whose tag is wrong",
        (
            (
                _READER,
                "                check_tags(frame, self.metadata.digest, self.mac_key)\n",
                "                assert frame\n",
            ),
        ),
        (_P3 + "a_copy_with_a_wrong_tag_is_a_failed_copy",),
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
        "bad-entry-said-absent",
        "P7.1 I31",
        "an entry whose bytes fail their sum on the disk is told to be absent",
        (
            (
                _BOOKIE,
                "        answer = ReadAnswer(Status.OK, row.ledger_id, absent, lac, length)\n",
                "        if event.frame is None and not absent and _knows_all(row) and isinstance(look.request, ReadRequest):\n            absent = [(look.request.first_entry, look.request.last_entry)]\n        answer = ReadAnswer(Status.OK, row.ledger_id, absent, lac, length)\n",
            ),
        ),
        (_P7 + "what_cannot_be_read_is_neither_there_nor_absent",),
    ),
    # Read repair.
    Mutant(
        "read-repair-as-a-normal-add",
        "P6.1 RP32",
        "a reader repairs by an add that fences refuse",
        (
            (
                _READER,
                "AddRequest(member.incarnation, 0, 0, recovery=True)",
                "AddRequest(member.incarnation, 0, 0, recovery=False)",
            ),
        ),
        (_P6 + "a_bad_copy_is_written_again_from_a_good_one",),
    ),
    Mutant(
        "read-repair-without-a-bound",
        "RP32",
        "one read repairs as many copies as it finds bad",
        (
            (
                _READER,
                "                if self.repairs_asked < self.options.repairs_max:\n",
                "                if self.repairs_asked >= 0:\n",
            ),
        ),
        (_P6 + "only_the_bad_copy_is_written_and_only_with_the_key",),
    ),
    Mutant(
        "read-repair-is-waited-for",
        "P6.1 RP32",
        "a repair that fails is a failed copy of the read",
        (
            (
                _READER,
                '        chunk, part = self._find(number, residue) if kind == "read" else (None, None)\n',
                '        if kind == "repair":\n'
                "            return self._fail(EntryUnreadable(event.reason))\n"
                "        chunk, part = self._find(number, residue)\n",
            ),
        ),
        (_P6 + "a_repair_that_fails_fails_no_read",),
    ),
    Mutant(
        "reader-handle-goes-back",
        "P6.2 I11",
        "a handle shows what it heard last, not the highest that it heard",
        ((_READING, "        self.lac = max(self.lac, lac)\n", "        self.lac = lac\n"),),
        ("tests/testing/test_reader_handles.py::test_a_handle_shows_the_newest_that_it_heard",),
    ),
    Mutant(
        "tail-goes-to-the-newest-ledger",
        "P6.6 I97",
        "a tailing reader goes on with the last ledger of the list, not with the one behind where it stands (#2898)",
        ((_READING, "                return segments[number]\n", "                return segments[-1]\n"),),
        ("tests/scenarios/test_log_readers.py::test_a_tail_passes_every_ledger_of_the_list_in_turn",),
    ),
    Mutant(
        "tail-jumps-an-empty-ledger",
        "P6.6 I97",
        "a tailing reader leaves a ledger that has no entry yet, open or not",
        (
            (
                _READING,
                "            if first is None:\n                first = limit + 1\n",
                "            if first is None:\n                first = limit + 1\n"
                "            if limit == NO_ENTRY:\n                return\n",
            ),
        ),
        ("tests/scenarios/test_log_readers.py::test_a_tail_stays_with_an_empty_ledger_until_it_is_closed",),
    ),
    # Quarantine.
    Mutant(
        "quarantine-forbids-the-last-bookie",
        "RP45",
        "who is in quarantine is not chosen, even where nobody else is left",
        (
            (
                _PLACEMENT,
                "        fit = [info for info in left if not info.is_quarantined] or left\n",
                "        fit = [info for info in left if not info.is_quarantined]\n",
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
    # Limbo, more of it.
    Mutant(
        "limbo-gives-its-lac",
        "P5.2b P7.4",
        "a bookie in limbo gives the LAC that it still knows to a fence",
        (
            (
                _BOOKIE,
                "        lac, length = (row.lac, row.lac_length) if _knows_all(row) else (NO_ENTRY, 0)\n",
                "        lac, length = row.lac, row.lac_length\n",
            ),
        ),
        (_P5 + "limbo_counts_for_coverage_and_gives_no_lac",),
    ),
    Mutant(
        "closed-ledgers-not-fenced-again",
        "P7.3 P7.4",
        "after an unclean start ledgers that were closed meanwhile stay without their fence",
        (
            (
                _BOOKIE,
                "            for number, ledger_id in enumerate([*named, *others]):\n",
                "            for number, ledger_id in enumerate(event.not_closed):\n",
            ),
        ),
        (_P7 + "a_closed_ledger_is_fenced_again",),
    ),
    Mutant(
        "closed-ledgers-of-others-not-fenced-again",
        "P7.3 P7.4",
        "after an unclean start a ledger that was closed with another in this bookie's seat stays without its fence",
        (
            (
                _BOOKIE,
                "            for ledger_id in event.elsewhere:\n",
                "            for ledger_id in event.elsewhere[:0]:\n",
            ),
        ),
        (_SCENES_OF_WRITING + "a_bookie_that_the_close_took_out_of_the_ledger_stays_fenced",),
    ),
    Mutant(
        "limbo-of-known-ledgers-only",
        "P7.4 I32",
        "only ledgers that left a trace on the disk enter limbo",
        (
            (
                _BOOKIE,
                "                row = self.table.get(ledger_id) or self.table.create(ledger_id, from_reserve=True)\n"
                "                if not row.is_fenced:\n",
                "                row = self.table.get(ledger_id)\n"
                "                if row is None:\n"
                "                    continue\n"
                "                if not row.is_fenced:\n",
            ),
        ),
        (
            _P7 + "every_ledger_that_names_it_is_in_limbo_with_or_without_a_trace",
            _UNCLEAN + "a_bookie_that_enters_limbo_first_breaks_nothing",
        ),
    ),
    Mutant(
        "duplicate-answers-cover",
        "P5.2b I23",
        "the same bookie's answer counts as often as it comes",
        ((_RECOVERY, "        self.fenced |= 1 << seat\n", "        self.fenced = self.fenced << 1 | 1\n"),),
        (_P5 + "an_answer_that_comes_twice_covers_no_more_than_once",),
    ),
    # Collecting.
    Mutant(
        "collector-believes-the-listing",
        "P7.7 I35",
        "a ledger that the listing does not show is dropped, whatever its own key says",
        (
            (
                _COLLECTOR,
                "        return self._leave(event.now_ns)  # The two do not agree.\n",
                '        return [Transact(self._ask("check", ledger_id), [], [])]\n',
            ),
        ),
        (_DROPPING + "a_listing_that_loses_keys_drops_nothing",),
    ),
    Mutant(
        "dropped-in-its-grace",
        "P7.7 I35",
        "a deleted ledger loses its bytes while its tombstone says that it can be brought back",
        (
            (
                _COLLECTOR,
                "            when = [Compare(key, ABSENT), Compare(tombstone_path(ledger_id), ABSENT)]\n",
                "            when = [Compare(key, ABSENT), Compare(tombstone_path(ledger_id), ABSENT)][:1]\n",
            ),
        ),
        (_DROPPING + "only_what_metadata_does_not_know_or_seats_elsewhere_is_dropped",),
    ),
    Mutant(
        "dropped-while-it-is-repaired",
        "P7.7 I35",
        "copies that a repair is making are dropped, since no fragment names them yet",
        (
            (
                _COLLECTOR,
                "            when = [Compare(key, event.revision), Compare(repair_mark_path(ledger_id), ABSENT)]\n",
                "            when = [Compare(key, event.revision), Compare(repair_mark_path(ledger_id), ABSENT)][:1]\n",
            ),
        ),
        (_DROPPING + "only_what_metadata_does_not_know_or_seats_elsewhere_is_dropped",),
    ),
    Mutant(
        "dropped-though-something-came",
        "P7.7 I35",
        "a ledger is dropped though entries of it came since metadata was asked",
        (
            (
                _BOOKIE,
                "        if token is None or row is None or row.last_token != token or row.is_dropped:\n",
                "        if token is None or row is None or row.is_dropped:\n",
            ),
            (
                _BOOKIE,
                "        self.collected.pop(\n            row.ledger_id, None\n        )  # Metadata was read before this: it says nothing of it (P7.7).\n",
                "",
            ),
        ),
        (_DROPPING + "what_came_after_the_question_keeps_the_ledger",),
    ),
    Mutant(
        "dropped-before-it-is-durable",
        "P7.3 I35",
        "entries go when their drop is queued; a crash finds the ledger, and not its entries",
        ((_BOOKIE, "[each for each in self.drops if each <= token]", "list(self.drops)"),),
        (_DROPPING + "entries_stay_while_only_what_was_queued_before_the_drop_is_durable",),
    ),
    # What the disk of a bookie keeps.
    Mutant(
        "fence-left-out-of-stored-states",
        "P7.3 I19",
        "a ledger's row is not written again when it was fenced, and the journal that knows it is trimmed",
        (
            (
                _BOOKIE,
                "        self.table.mark_dirty(row)\n        token = self.next_token\n",
                "        token = self.next_token\n",
            ),
        ),
        (_P7 + "a_fence_is_in_the_states_that_a_flush_keeps",),
    ),
    Mutant(
        "bad-entry-absent-in-the-store",
        "P7.1 I31",
        "an entry whose bytes fail their sum is told to be absent by the entry store",
        (
            (
                "native/store_read.c",
                "            found->size += piece->size;\n        }\n",
                "            found->size += piece->size;\n        } else {\n            add_absent(reading, piece->id, piece->id);\n        }\n",
            ),
        ),
        (_DAMAGE + "no_flipped_byte_gives_a_wrong_byte_or_a_false_absent",),
    ),
    # Deleting.
    Mutant(
        "open-ledger-deleted",
        "P2.3 I34",
        "a ledger that is not closed is deleted without being forced",
        (
            (
                _DELETING,
                "        if not metadata.is_closed and not force:\n",
                "        if not metadata.is_closed and not force and not password:\n",
            ),
        ),
        (_LEDGERS + "a_closed_ledger_is_deleted_and_an_open_one_only_by_force",),
    ),
    Mutant(
        "listed-ledger-deleted",
        "P8.3 I90",
        "a ledger that a log lists is deleted",
        (
            (
                _DELETING,
                "    if any(segment.ledger_id == metadata.ledger_id for segment in decode_log_list(value).segments):\n",
                "    if any(segment.ledger_id < 0 for segment in decode_log_list(value).segments):\n",
            ),
        ),
        (_LOGS + "a_ledger_of_a_log_is_not_deleted_under_it",),
    ),
    Mutant(
        "deleted-without-a-tombstone",
        "CL31 CL32",
        "a deleted ledger cannot be brought back, and may lose its bytes at once",
        ((_DELETING, "        if metadata.is_closed:\n", "        if not metadata.is_closed:\n"),),
        (_LEDGERS + "a_deleted_ledger_is_brought_back_while_its_grace_lasts",),
    ),
    Mutant(
        "tombstone-taken-away-early",
        "CL31 P7.7",
        "tombstones are forgotten before their grace is over",
        ((_DELETING, "        if stone.until_ms > runtime.wall_ms():\n            continue\n", ""),),
        (_LEDGERS + "a_deleted_ledger_is_brought_back_while_its_grace_lasts",),
    ),
    Mutant(
        "undelete-keeps-the-tombstone",
        "CL32 P7.7",
        "a ledger is back and its tombstone still says that it is deleted",
        (
            (
                _DELETING,
                "[Delete(key), Put(ledger_key_path(ledger_id), metadata)]",
                "[Put(ledger_key_path(ledger_id), metadata)]",
            ),
        ),
        (_LEDGERS + "a_deleted_ledger_is_brought_back_while_its_grace_lasts",),
    ),
    Mutant(
        "deleted-without-compare",
        "P2.2 P8.3",
        "a ledger is deleted whatever became of it since it was looked at",
        (
            (
                _DELETING,
                "        when = [Compare(key, revision), *await _unlisted(runtime, metadata, what)]\n",
                "        when = list(await _unlisted(runtime, metadata, what))[:0]\n",
            ),
        ),
        ("tests/scenarios/test_deleting.py::test_what_changed_since_it_was_looked_at_is_looked_at_again",),
    ),
    Mutant(
        "undelete-over-what-is-there",
        "CL32 P2.1",
        "a ledger is brought back though its key is there",
        (
            (
                _DELETING,
                "    when = [Compare(key, revision), Compare(ledger_key_path(ledger_id), ABSENT)]\n",
                "    when = [Compare(key, revision)][:0]\n",
            ),
        ),
        ("tests/scenarios/test_deleting.py::test_of_two_that_bring_a_ledger_back_one_does",),
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
                "            # Gone meanwhile: the list must have changed. Read it again (P8.1).\n            self.retry_at = event.now_ns + _RETRY_NS\n            return []\n",
                "            self.segments = tuple(each for each in self.segments if each.ledger_id != event.tag[1])\n"
                "            return self._recover_next()\n",
            ),
        ),
        (
            _P8 + "a_listed_ledger_that_is_gone_means_that_the_list_changed",
            _SCENES_OF_WRITING + "a_listed_ledger_that_may_have_entries_and_is_gone_blocks_the_takeover",
        ),
        world="log",
    ),
    # The watches that open ledgers and lists are followed by.
    Mutant(
        "watch-skips-on-reconnect",
        "P10.1 I82",
        "a watch that missed too much goes on from now",
        (
            (
                "embedbk/metadata/client.py",
                "            self._list_again(watch)\n            return\n        if events.after_revision > watch.revision:\n",
                "            watch.revision = events.revision\n            self._follow(watch)\n            return\n"
                "        if events.after_revision > watch.revision:\n",
            ),
        ),
        (_WATCHES + "a_watch_that_missed_too_much_lists_again_and_sees_the_deletes",),
    ),
    # Logs.
    Mutant(
        "list-without-compare",
        "P8.3 I91",
        "a new list is published without checking the one that was read",
        ((_LOG, "            Compare(log_key_path(self.name), self.list_revision),\n", ""),),
        (_P8 + "the_commit_checks_list_epoch_and_ledger_together",),
        world="log",
    ),
    Mutant(
        "commit-without-epoch",
        "P8.3 P9.2",
        "a leader that was overtaken may still publish its list",
        ((_LOG, "            Compare(log_owner_path(self.name), self.epoch),\n", ""),),
        (_P8 + "the_commit_checks_list_epoch_and_ledger_together",),
        world="log",
    ),
    Mutant(
        "serves-before-the-list-names-it",
        "P8.2 P8.3",
        "a new leader serves before its ledger is in the list",
        (
            (
                _LOG,
                '        return [Transact("commit", when, [Put(log_key_path(self.name), encode_log_list(self.new_list))])]',
                '        commit = Transact("commit", when, [Put(log_key_path(self.name), encode_log_list(self.new_list))])\n'
                "        return [commit, *self._taken_over(self.list_revision)]",
            ),
        ),
        (_P8 + "nothing_is_served_before_the_list_names_the_ledger",),
        world="log",
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
    # Metadata.
    Mutant(
        "metadata-answers-before-sync",
        "P10.1",
        "the metadata service answers when a change is applied, not when it is durable",
        (
            (
                _MEMBER,
                "self._waiting[0][0] <= self._durable_index:",
                "self._waiting[0][0] <= self._applied_index:",
            ),
        ),
        (_MEMBERS + "an_answer_leaves_in_the_step_that_hears_of_durability",),
    ),
    Mutant(
        "watch-shows-what-is-not-durable",
        "P10.1",
        "a watch tells changes that a crash may take back",
        (
            (
                _MEMBER,
                "        while self._revisions and self._revisions[0][0] <= self._durable_index:\n",
                "        while self._revisions:\n",
            ),
        ),
        (_MEMBERS + "a_watch_gets_every_change_once_it_is_durable",),
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
        "snapshot-without-kept-answers",
        "P10.1 I74",
        "a member that was restored from a snapshot runs a repeated request again",
        ((_CATALOG, "session.done_below, dict(session.kept)", "session.done_below, {}"),),
        (_CATALOGS + "same_commands_same_catalog",),
    ),
    Mutant(
        "one-comparison-is-enough",
        "P10.1 P8.3",
        "a transaction is done when one of its comparisons holds",
        (
            (
                _CATALOG,
                "        if not all(self._holds(compare) for compare in txn.when):\n",
                "        if txn.when and not any(self._holds(compare) for compare in txn.when):\n",
            ),
        ),
        (_CATALOGS + "a_change_is_done_only_if_every_comparison_holds",),
    ),
    Mutant(
        "repeated-request-runs-again",
        "P10.2",
        "a request that is sent again under its sequence runs again",
        (
            (
                _MEMBER,
                "        if kept is not None:\n            return kept",
                "        if kept is not None and request.sequence < 0:\n            return kept",
            ),
        ),
        (_MEMBERS + "a_repeat_is_not_logged_and_waits_for_its_first_run",),
    ),
    # In C: the copy is built in its own folder.
    Mutant(
        "journal-record-sums-unchecked",
        "P7.1 I42",
        "replay takes records that fail their checksum",
        (
            (
                _JOURNAL_REPLAY,
                "        if (record->crc != ebk_journal_record_crc(seed, offset + at, record)) return false;\n",
                "",
            ),
        ),
        (_TAIL + "every_byte_of_the_last_group_may_rot_and_never_gives_wrong_records",),
    ),
    Mutant(
        "journal-generation-ignored",
        "P7.1 I43",
        "replay takes groups of an earlier use of a recycled file",
        (
            (_JOURNAL_REPLAY, "group->generation != generation || group->position", "group->position"),
            (
                _JOURNAL_REPLAY,
                "    return ebk_crc32c(ebk_crc32c(0, identity, EBK_JOURNAL_IDENTITY_BYTES), &generation, sizeof generation);",
                "    return ebk_crc32c(0, identity, EBK_JOURNAL_IDENTITY_BYTES) + 0 * (uint32_t)generation;",
            ),
        ),
        (_TAIL + "bytes_of_an_earlier_use_are_never_replayed",),
    ),
    Mutant(
        "wait-tells-before-durable",
        "P3.2 I40",
        "a bookie that waits in C answers what it took, durable or not",
        ((_WAIT, "ebk_add_path_reap(path, durable) > 0", "ebk_add_path_reap(path, UINT64_MAX) > 0"),),
        (_WAITING + "an_answer_leaves_when_its_record_is_durable_and_not_before",),
    ),
    Mutant(
        "wait-outlasts-what-the-core-waits-for",
        "P5.2f",
        "a bookie that waits in C keeps from its core that a fence has become durable",
        ((_WAIT, "(terms->awaits_journal && durable > terms->durable) || ", ""),),
        (_WAITING + "durability_that_others_wait_for_ends_it",),
    ),
    Mutant(
        "wait-outlasts-a-failed-journal",
        "P7.6",
        "a bookie whose journal has failed waits on in C, and nobody hears that its adds are unknown",
        ((_WAIT, " || ebk_add_path_has_failed(path)) return", ") return"),),
        (_WAITING + "a_failed_journal_ends_it_and_nothing_is_answered",),
    ),
    Mutant(
        "wait-offers-behind-an-event",
        "P3.4 P3.7",
        "what came behind a message that ended a wait is taken before the core has seen that message",
        (
            (
                "transports/zmq.py",
                "            if self._ends.events:\n                self._accepted.add_path = None\n",
                "",
            ),
        ),
        (_WAITING + "a_message_that_is_not_taken_is_the_next_event",),
    ),
    Mutant(
        "journal-durable-before-sync",
        "P3.2 I40",
        "a group counts as durable when it is written, before it is synced",
        (
            (
                _JOURNAL,
                "int synced = journal->dsync ? 0 : journal->io->sync(journal->io, journal->file);",
                "int synced = 0;",
            ),
        ),
        (_TAIL + "any_life_of_crashes_keeps_what_was_durable",),
    ),
    Mutant(
        "journal-sync-error-ignored",
        "P7.6",
        "a sync that failed counts as done",
        ((_JOURNAL, "    if (synced < 0)\n", "    if (synced > 0)\n"),),
        ("tests/storage/test_journal.py::test_a_failed_sync_is_final_and_not_retried",),
    ),
    Mutant(
        "journal-ends-at-damage-in-the-middle",
        "P7.1 I44",
        "a bad group before good ones is taken for the end of the journal, and what is behind it is lost",
        (
            (
                _JOURNAL_OPEN,
                "    if (later > 0)\n        return",
                "    if (later > 0 && has_any && !has_any)\n        return",
            ),
        ),
        (_TAIL + "every_byte_of_an_earlier_group_that_rots_is_damage",),
    ),
    Mutant(
        "journal-chain-unchecked",
        "P7.1 I44",
        "a valid group is taken whether it follows the one before it or not",
        (
            (
                _JOURNAL_OPEN,
                "        if (has_any && (group.sequence",
                "        if (has_any && !has_any && (group.sequence",
            ),
            (
                _JOURNAL_REPLAY,
                "    if (!replay->has_any) return true;\n",
                "    if (group != NULL) return true;\n    if (!replay->has_any) return true;\n",
            ),
        ),
        (_TAIL + "a_valid_group_that_does_not_follow_is_damage",),
    ),
    Mutant(
        "journal-gap-is-no-loss",
        "P7.4 I42",
        "records that are missing between groups of a damaged journal are not counted as lost",
        ((_JOURNAL_SALVAGE, "        salvage->facts.missing_count += group->first_token - needed;\n", ""),),
        (_SALVAGE + "whichever_group_is_damaged_the_others_are_read_and_the_loss_is_counted",),
    ),
    Mutant(
        "journal-starts-below-the-mark",
        "P7.5 I45",
        "behind damage, tokens go on below the log mark, so that new records are never replayed",
        (
            (
                _JOURNAL_SALVAGE,
                "(salvage->token > salvage->after ? salvage->token : salvage->after) + 1",
                "salvage->token + 1",
            ),
        ),
        (_SALVAGE + "a_journal_that_ends_below_the_mark_goes_on_above_it",),
    ),
    Mutant(
        "journal-old-group-is-believed",
        "P7.1 I42",
        "a group whose follower was written behind another one counts as what was acknowledged",
        (
            (
                _JOURNAL_SALVAGE,
                "group->previous_crc != salvage->crc)) {",
                "group->previous_crc != salvage->crc) && valid < 0) {",
            ),
        ),
        (_SALVAGE + "an_old_version_of_a_group_is_a_loss_although_no_token_is_missing",),
    ),
    Mutant(
        "damaged-journal-served-unasked",
        "P7.4 I32",
        "a bookie goes on behind a damaged journal without limbo and without its owner's word",
        (
            (
                "embedbk/storage/starting.py",
                "if facts.may_have_lost and not self.may_have_lost:",
                "if facts.may_have_lost and not self.may_have_lost and not facts:",
            ),
        ),
        (_SALVAGE + "scenario_48",),
    ),
    Mutant(
        "damage-passed-before-it-is-flushed",
        "P7.5 I46",
        "a journal begins behind its damage before entry logs hold what was read of it",
        (
            (
                "embedbk/storage/starting.py",
                "            self._flush()\n            salvage.finish()\n",
                "            salvage.finish()\n            self._flush()\n",
            ),
        ),
        (_SALVAGE + "a_bookie_that_dies_while_it_goes_on_starts_as_unclean_again",),
    ),
    Mutant(
        "group-built-ahead-unchained",
        "P7.1 I44",
        "a group that is built while another is written does not name the one before",
        ((_JOURNAL, "    next->previous_crc = job->header.crc;\n", "    next->previous_crc = 0;\n"),),
        ("tests/storage/test_journal.py::test_groups_that_are_built_ahead_keep_their_order",),
    ),
    Mutant(
        "copied-body-borrowed",
        "I52",
        "a small body is taken from the caller's buffer when it is written, not when it was handed over",
        (
            (
                _JOURNAL,
                "        if (copied && head_size > 0) head = memcpy(journal->copies[token % SLOT_COUNT], head, head_size);\n",
                "        (void)copied;\n",
            ),
        ),
        ("tests/storage/test_journal_scenarios.py::test_a_caller_may_use_its_buffer_again_at_once",),
    ),
    Mutant(
        "frame-borrowed-from-its-sender",
        "I52",
        "the journal writes a frame from the buffer in which it came, which may hold another one by then",
        (
            (
                "embedbk/storage/bookie_storage.py",
                "append(RecordKind.FRAME, frame.ledger_id, view, borrowed=True)",
                "append(RecordKind.FRAME, frame.ledger_id, frame.body, borrowed=True)",
            ),
        ),
        (_STORAGE + "who_sent_a_frame_may_use_its_buffer_again_at_once[core]",),
    ),
    Mutant(
        "add-path-borrows-from-the-link",
        "I52",
        "the add path gives the journal the message of the link instead of the write cache's copy",
        (
            (
                "native/add_path.c",
                "EBK_RECORD_FRAME, add->ledger_id, copy, add->body_size,",
                "EBK_RECORD_FRAME, add->ledger_id, add->body, add->body_size,",
            ),
        ),
        (_STORAGE + "who_sent_a_frame_may_use_its_buffer_again_at_once[path]",),
    ),
    Mutant(
        "entry-log-id-used-again",
        "I48",
        "a flush that is tried again, and the one behind it, write under an id that was given out before",
        (
            (
                "native/store_flush.c",
                "            .log_id = ++store->log_id_last,",
                "            .log_id = store->log_id_last + 1,",
            ),
        ),
        (_STORAGE + "a_failed_flush_is_tried_again_in_another_file",),
    ),
    Mutant(
        "entry-log-ids-forgotten-at-start",
        "I48 P7.1",
        "after a start the ids of entry logs begin anew, and a new log takes the name of an old one",
        (
            (
                "native/store_roll.c",
                "            if (log_id > store->log_id_last) store->log_id_last = log_id;\n",
                "",
            ),
        ),
        (_STORAGE + "an_id_of_an_entry_log_is_never_given_out_twice",),
    ),
    Mutant(
        "replay-goes-on-past-a-bad-group",
        "P7.1 I42 I44",
        "a group of an older journal file that is not what was written is stepped over, and what is behind it replayed",
        (
            (
                "native/journal_replay.c",
                "    if (!valid)\n        return ebk_fault_set",
                "    while (valid == 0 && replay->offset + BLOCK_BYTES < entry->bytes) {\n"
                "        replay->offset += BLOCK_BYTES;\n"
                "        valid = ebk_group_read(replay->journal->io, replay->file,\n"
                "                               ebk_journal_seed(replay->journal->identity, entry->generation),\n"
                "                               entry->generation, replay->offset, entry->bytes, replay->buffer, &group);\n"
                "    }\n"
                "    if (valid <= 0)\n        return ebk_fault_set",
            ),
            ("native/journal_replay.c", "    if (!replay->has_any) return true;\n", "    return true;\n"),
        ),
        (
            "tests/crash/test_journal_tail.py::test_a_group_in_the_middle_of_an_older_file_that_rots_is_damage",
        ),
    ),
    Mutant(
        "metadata-log-trimmed-early",
        "P7.5 P10.1",
        "a member's log is trimmed when its snapshot is queued, before it is durable",
        (
            (
                "embedbk/storage/metadata_store.py",
                "        if not snapshot.chunks and durable_token >= snapshot.last_token:\n",
                "        if not snapshot.chunks:\n",
            ),
        ),
        ("tests/crash/test_metadata_power.py::test_no_acknowledged_change_is_lost_when_the_power_goes",),
    ),
    Mutant(
        "entry-log-directory-not-synced",
        "P7.5",
        "a flush counts before its file's name is durable",
        (
            (
                "native/store_log.c",
                "    done = flush->io->sync_directory(flush->io, flush->directory);\n",
                "    done = 0;\n",
            ),
        ),
        (
            "tests/storage/test_bookie_storage.py::test_a_fault_at_every_call_and_a_crash_lose_nothing_durable",
        ),
    ),
    Mutant(
        "slow-journal-not-waited-for",
        "P3.2 I40",
        "an add is acknowledged when another journal has come far enough, and its own has not",
        (
            (
                "native/journals.c",
                "        if (journals->parts[owner].mark == own[owner]) break;",
                "        if (journals->parts[owner].mark == own[owner] && owner == 0) break;",
            ),
        ),
        (_JOURNALS + "durable_is_the_largest_token_up_to_which_every_journal_is_through",),
    ),
    Mutant(
        "journal-trimmed-by-another-ones-mark",
        "P7.5 I45",
        "a journal gives up records of which no entry log has anything, because another one is further",
        (
            (
                "embedbk/storage/journals.py",
                "            part.trim(mark)\n",
                "            part.trim(max(marks))\n",
            ),
        ),
        (_JOURNALS + "a_journal_is_not_trimmed_by_the_mark_of_another",),
    ),
    Mutant(
        "failed-journal-among-several-forgiven",
        "P7.6 I50",
        "the first journal works, so the bookie goes on",
        (
            (
                "embedbk/storage/journals.py",
                "for part in self.parts if (why := part.failed())",
                "for part in self.parts[:1] if (why := part.failed())",
            ),
        ),
        (_JOURNALS + "a_failed_sync_of_one_journal_ends_all_promises",),
    ),
    Mutant(
        "mark-advanced-by-one-directory",
        "P7.5 I45",
        "the log mark of a flush counts when one of its directories is durable",
        (
            (
                "native/store_roll.c",
                "        if (mark == 0 || !is_whole_flush(store, i)) continue;\n",
                "        if (mark == 0) continue;\n",
            ),
        ),
        (_DIRECTORIES + "whichever_logs_of_a_flush_are_durable_the_mark_is_that_of_all_of_them",),
    ),
    Mutant(
        "flush-that-failed-in-one-directory-counts",
        "P7.5 I45",
        "a flush is taken in although one of its directories has nothing of it",
        (
            (
                "native/store_flush.c",
                "        if (store->flushes[i].result < 0) return give_up(store, &store->flushes[i]);\n",
                "        if (store->flushes[0].result < 0) return give_up(store, &store->flushes[i]);\n",
            ),
        ),
        (_DIRECTORIES + "a_directory_that_fails_takes_no_new_entries_while_the_other_serves",),
    ),
    Mutant(
        "roll-of-half-a-flush-counts",
        "P7.5 I47",
        "what half a flush says of older logs is believed, and those that it left out are deleted",
        (
            (
                "native/store_roll.c",
                "        has_all_parts(store, places, count, &descriptor))\n",
                "        (count > 0 || has_all_parts(store, places, count, &descriptor)))\n",
            ),
        ),
        (_DIRECTORIES + "half_a_flush_takes_no_log_away",),
    ),
    Mutant(
        "stored-state-lifts-a-fence",
        "P5.2f P7.3",
        "a later stored state without the flag lifts a fence",
        (("native/table.c", "    row->is_fenced |= (flags", "    row->is_fenced = (flags"),),
        ("tests/storage/test_ledger_table.py",),
    ),
    Mutant(
        "compaction-leaves-the-states-behind",
        "P7.3 ST32",
        "an entry log goes, and with it the only state that says a ledger is fenced",
        (
            (
                "embedbk/storage/entry_store.py",
                '        table.touch(bytes(ffi.buffer(pointer[0], size)) if size else b"")\n',
                "",
            ),
        ),
        (_COMPACTION + "a_log_in_which_nothing_lives_goes_whole",),
    ),
    Mutant(
        "compaction-copies-what-it-did-not-check",
        "P7.1 ST35",
        "a damaged entry is copied as it is, and the log that showed the damage goes",
        (
            (
                _COPY,
                "            facts.ledger_id != copy->ledger_id || facts.first_entry != copy->cursor.id)\n            return bad(",
                "            facts.ledger_id != copy->ledger_id || facts.first_entry != copy->cursor.id)\n            if (entry_size == 0) return bad(",
            ),
        ),
        (_COMPACTION + "a_corrupt_log_is_left_alone_and_the_rest_goes_on",),
    ),
    Mutant(
        "compaction-deletes-before-the-flush",
        "I47 ST32",
        "the sources go at once, with any flush that ends, also one that was frozen before",
        ((_COPY, "leaves_with > done) {", "leaves_with > done + 1) {"),),
        (_COMPACTION + "sources_stay_until_a_flush_behind_the_copy_has_ended",),
    ),
    Mutant(
        "scanned-log-is-compacted",
        "P7.1 ST13",
        "a log of which only a scan found something is copied and goes, and with it what it hides",
        (("native/store_load.c", "        log->is_damaged = true;", "        log->is_damaged = false;"),),
        (_COMPACTION + "a_log_whose_index_was_lost_is_never_compacted",),
    ),
    Mutant(
        "full-is-for-ever",
        "P7.8",
        "a bookie whose flush found no room never tries again, and stays read-only",
        (
            (
                "embedbk/core/space.py",
                "        return [*effects, RetryWrites()] if is_retry else effects\n",
                "        return effects\n",
            ),
        ),
        (_SPACE + "what_found_no_room_is_tried_again_by_time",),
    ),
    Mutant(
        "fences-wait-behind-adds",
        "P7.8 P5.2f",
        "a bookie that is busy lets fences and reads wait behind the adds that wait for room",
        (
            (
                "embedbk/host/waiting.py",
                "        return not self._urgent and not is_normal_add(event.body) and self.has_room(True)\n",
                "        return False\n",
            ),
            (
                "embedbk/host/waiting.py",
                "        is_urgent = not is_normal_add(event.body)\n",
                "        is_urgent = False\n",
            ),
        ),
        (_BUSY + "fences_reads_and_recovery_pass_the_adds_that_wait",),
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
        (("embedbk/core/in_flight.py", "            self._keep_behind(first, pending)\n", ""),),
        (_BUSY + "a_writer_waits_for_a_bookie_that_is_busy",),
    ),
    Mutant(
        "busy-for-ever",
        "P7.8 P4.1",
        "the time limit of an add begins anew with every try, so that a bookie may be busy without end",
        (
            (
                "embedbk/core/in_flight.py",
                "            seating.unanswered.setdefault(frame.first_entry, now_ns)\n",
                "            seating.unanswered[frame.first_entry] = now_ns\n",
            ),
        ),
        (_BUSY + "being_busy_is_bounded_by_the_time_limit_of_an_add",),
    ),
    Mutant(
        "adds-use-up-the-queue",
        "P7.8",
        "normal adds are taken until the journal's queue is full, and a fence waits for it",
        (("native/add_path.h", "    EBK_ADD_SLOTS_KEPT = 1024 ", "    EBK_ADD_SLOTS_KEPT = 8 "),),
        (_BUSY + "fences_have_a_part_of_the_journal_to_themselves",),
    ),
    Mutant(
        "silence-has-no-end",
        "T11",
        "a connection on which no Hello is said is kept for ever",
        (
            (
                "transports/zmq_strangers.py",
                "            if descriptor in self.silent:\n                self._hang_up(descriptor)\n",
                "            self.silent.pop(descriptor, None)\n",
            ),
        ),
        ("tests/transports/test_zmq.py::test_a_connection_that_never_says_hello_is_hung_up_on",),
    ),
    Mutant(
        "busy-is-read-only",
        "P7.8",
        "the first write that finds no room takes the bookie out of the list of those who take adds",
        (
            (
                "embedbk/core/space.py",
                "(NO_ROOM in self.reasons or (self.is_retried and event.is_due))",
                "True",
            ),
        ),
        (_SPACE + "one_write_without_room_is_no_reason_yet",),
    ),
    Mutant(
        "a-try-is-a-success",
        "P7.8",
        "while a journal's next file is tried again, the bookie says that it has room",
        (
            (
                "native/journal.c",
                ".prepare_error = journal->next_error,",
                ".prepare_error = journal->next_state == NEXT_REFUSED ? journal->next_error : 0,",
            ),
        ),
        ("tests/storage/test_journal.py::test_a_next_file_stays_refused_while_it_is_tried_again",),
    ),
    Mutant(
        "one-reason-undoes-the-others",
        "P7.8 ST27",
        "space on the device makes a bookie writable that an operator made read-only",
        (
            (
                "embedbk/core/space.py",
                "for reason in (OPERATOR, LOW_SPACE, NO_ROOM)} | changes",
                "for reason in ()} | changes",
            ),
        ),
        (_SPACE + "every_reason_must_be_gone",),
    ),
    Mutant(
        "one-journal-is-enough-nearby",
        "P3.2 I40",
        "an add to bookies of the same loop is acknowledged when one of three journals has it",
        (("native/local_adds.c", "return count >= adds->settings.ack_quorum;", "return count >= 1;"),),
        (_LOCAL + "an_append_is_acknowledged_when_an_ack_quorum_is_durable",),
    ),
    Mutant(
        "fenced-ledgers-are-added-to-nearby",
        "P5.2f I13",
        "a writer on the bookies' loop stores into a ledger that was fenced there",
        (
            (
                "native/local_adds.c",
                "if (!ebk_add_path_is_common(ebk_near_path(settings->nears[seat]), &add)) return false;",
                ";",
            ),
        ),
        (_LOCAL + "a_fence_ends_it",),
    ),
    Mutant(
        "held-frame-is-lost-nearby",
        "P3.1 P3.6",
        "the frame that no bookie takes as common is not given back to the writer's core",
        (("native/local_adds.c", "    *frame = adds->held;\n", "    return 0;\n"),),
        (_LOCAL + "a_fence_ends_it",),
    ),
    Mutant(
        "core-hears-late-nearby",
        "P4.2",
        "a core hears that a seat failed before it is told of what is on its way past it",
        (("embedbk/host/local_adds.py", "        self.end(event.now_ns, writing)\n", "        pass\n"),),
        (_LOCAL + "another_event_finds_the_core_as_if_it_had_waited",),
    ),
    Mutant(
        "append-beside-the-end-nearby",
        "P3.1",
        "what is appended while the adds past all messages end is sealed by nobody",
        (
            (
                "embedbk/host/local_adds.py",
                "        self._look_again(writing)  # Who appended meanwhile has woken the course, and nobody else.\n",
                "",
            ),
        ),
        (_LOCAL + "a_bookie_that_is_read_only_stores_nothing",),
    ),
    Mutant(
        "sent-bytes-are-not-held",
        "P3.1 P3.7",
        "a frame that was released is written over while a socket still sends it",
        (
            (
                "native/packer.c",
                "    block_ref(note->block);\n    return note->block;",
                "    return note->block;",
            ),
            ("native/packer.c", "    block_unref(held);", "    (void)held;"),
        ),
        ("tests/transports/test_zmq_send.py::test_a_frame_on_its_way_stays_as_it_is",),
    ),
    Mutant(
        "two-parts-have-no-bound",
        "T10",
        "a body of two parts may be twice as long as one may be",
        (
            (
                "transports/zmq_intake.py",
                "        if len(part.buffer) + len(tail.buffer) > LINK_BYTES_MAX:\n            return HeldPart(part.buffer, True, -1)  # Never joined.\n",
                "",
            ),
        ),
        ("tests/transports/test_zmq.py::test_two_parts_are_together_no_longer_than_one_may_be",),
    ),
    Mutant(
        "a-flush-yields-for-ever",
        "RP33 T9",
        "beside a journal that is always busy no flush ends, however full the write cache gets",
        (("native/store.c", "        ebk_yield_enough(&store->yield_word);\n    }", "    }"),),
        ("tests/storage/test_yielding.py::test_a_flush_waits_no_more_when_the_cache_wants_its_room",),
    ),
    Mutant(
        "a-failed-journal-stays-busy",
        "P7.6",
        "what a journal that failed still had cannot be flushed into entry logs",
        (
            (
                _JOURNAL,
                "        if (journal->busy_word != NULL) ebk_yield_idle(",
                "        if (count == 0 && journal->busy_word != NULL) ebk_yield_idle(",
            ),
        ),
        ("tests/storage/test_yielding.py::test_a_journal_that_fails_holds_nobody_up",),
    ),
    Mutant(
        "answers-count-for-any-seating",
        "P3.8 P4.4",
        "an answer to a request of a seat that was replaced is counted for the one that holds it now",
        (("native/answers.c", " && asked->seating == said->seating &&", " &&"),),
        (_COUNTED + "any_other_answer_is_passed",),
    ),
    Mutant(
        "answers-among-others-are-forgotten",
        "P3.3",
        "an answer in a message that was passed does not count for its frame, which then waits for one more",
        (
            (
                "embedbk/host/client_node.py",
                "                    self._answers.answered(request_id)\n",
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
                "embedbk/host/client_node.py",
                "                self._answers.is_eager = True\n",
                "",
            ),
        ),
        ("tests/host/test_counted_answers.py::test_while_a_change_is_under_way_every_answer_is_news",),
    ),
)
