"""The bookie: fences, limbo, repeated adds, what it drops, when it is full."""

# ruff: noqa: E501, ISC004 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_BOOKIE = "embedbk/core/bookie.py"
_DROPS = "embedbk/core/drops.py"
_COLLECTOR = "embedbk/core/collector.py"
_ADDS = "embedbk/core/add_storing.py"
_FENCING = "embedbk/core/fencing.py"
_LACS = "embedbk/core/lac_answers.py"
_READS = "embedbk/core/read_answering.py"
_STANDING = "embedbk/core/ledger_standing.py"
_ENTERING = "embedbk/core/limbo_entering.py"

_DROPPING = "tests/rules/test_p7_dropping.py::test_"
_P3 = "tests/rules/test_p3_adding.py::test_"
_P5_FENCING = "tests/rules/test_p5_fencing.py::test_"
_P6 = "tests/rules/test_p6_reading.py::test_"
_P6_TAIL = "tests/rules/test_p6_tailing.py::test_"
_P7 = "tests/rules/test_p7_bookie.py::test_"
_SCENES = "tests/scenarios/test_fencing_and_recovery.py::test_"
_SCENES_OF_WRITING = "tests/scenarios/test_writing_and_repair.py::test_"
_SPACE = "tests/rules/test_p7_space.py::test_"
_UNCLEAN = "tests/testing/test_unclean_starts.py::test_"

MUTANTS = (
    Mutant(
        "a-storage-fault-beside-a-held-denial-ends-the-loop",
        "P7.6 P10.5",
        "a journal that fails while a recovery waits for its last answer ends all nodes of the process",
        (
            (
                "embedbk/host/reading.py",
                "max(0, self._found.get(link, 0) - byte_count)",
                "self._found[link] - byte_count",
            ),
        ),
        ("tests/host/test_bookie_node.py::test_a_journal_that_fails_while_a_denial_is_held_ends_no_node",),
    ),
    Mutant(
        "beside-older-metadata-it-lacks-whole-ledgers",
        "P10.5 P11.4",
        "a bookie that cannot tell counts as one that lacks every entry, if the ledger was not the first that was asked about",
        (
            (
                "embedbk/core/holdings_counting.py",
                "Status.NO_SUCH_LEDGER if may_deny else Status.UNKNOWN\n",
                "Status.NO_SUCH_LEDGER\n",
            ),
        ),
        (
            "tests/rules/test_p10_beside_older.py::test_in_a_question_for_many_ledgers_each_without_a_trace_is_unknown",
        ),
    ),
    Mutant(
        "full-table-ends-a-bookie-beside-older-metadata",
        "P7.3 P10.5",
        "a bookie that must not deny, and has no row left for a dropped ledger, ends with all nodes of its loop",
        (
            (
                "embedbk/core/bookie.py",
                "        try:\n            if not self._may_deny and self._is_unknown(event):\n"
                "                return _refused(event, _UNSETTLED if not self.is_settled else _BESIDE_OLDER)\n",
                "        if not self._may_deny and self._is_unknown(event):\n"
                "            return _refused(event, _UNSETTLED if not self.is_settled else _BESIDE_OLDER)\n        try:\n",
            ),
        ),
        (
            "tests/rules/test_p10_beside_older.py::test_a_full_ledger_table_is_an_answer_to_who_asks_beside_older_metadata",
        ),
    ),
    Mutant(
        "a-refused-lac-is-answered-though-nobody-asked",
        "P6.2 L13",
        "a link of idle writers owes fewer answers than none, and is never bounded again",
        (("embedbk/core/bookie.py", "    if not is_answered(event.control):\n        return []\n", ""),),
        (
            "tests/host/test_bookie_node.py::test_a_lac_that_wants_no_answer_gets_none_either_where_it_is_refused",
        ),
    ),
    Mutant(
        "fence-ignored-where-ledger-is-unknown",
        "P5.2b I20",
        "a bookie that does not know the ledger says fenced and is not",
        (
            (
                _FENCING,
                "        row = self._table.get(ledger_id) or self._table.create(ledger_id, from_reserve=True)\n"
                "        bound = self._table.key(row)\n",
                "        if self._table.get(ledger_id) is None:\n"
                "            self._table.create(ledger_id)\n"
                "            return Status.OK, []\n"
                "        row = self._table.get(ledger_id) or self._table.create(ledger_id, from_reserve=True)\n"
                "        bound = self._table.key(row)\n",
            ),
        ),
        (_P5_FENCING + "a_fence_creates_the_ledger_and_outlives_a_crash",),
        seeds=30,
    ),
    Mutant(
        "add-accepted-on-a-fenced-ledger",
        "P3.4a I19",
        "a normal add is taken though the ledger is fenced",
        (
            (
                _STANDING,
                "return Status.FENCED if row.is_fenced or row.is_dropped else None",
                "return Status.FENCED if row.is_dropped else None",
            ),
        ),
        (_P3 + "every_normal_add_of_a_fenced_ledger_is_refused_and_recovery_adds_pass",),
        seeds=130,
    ),
    # Bookies.
    Mutant(
        "fence-not-journalled",
        "P5.2f I20",
        "a fence is set in memory only",
        (
            (
                _FENCING,
                '        effects: list[Effect] = [self._records.append(row, RecordKind.FENCE, bound or b"")]\n',
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
                _FENCING,
                "        self._replies.reply_when(\n"
                "            row.last_token, Reply(event.link, event.request_id, answer), effects, event.now_ns\n        )\n",
                "        effects.append(Reply(event.link, event.request_id, answer))\n",
            ),
        ),
        (_P5_FENCING + "only_durable_fences_count",),
        seeds=80,
    ),
    Mutant(
        "fence-unseen-by-a-lookup",
        "P3.4a P5.2f",
        "an add whose comparison began before the fence is taken after it",
        (
            (
                _ADDS,
                "refusal = None if request.recovery else refusal_of(row)  # It may have been fenced since.",
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
                _ADDS,
                "            self._replies.reply_when(\n                row.last_token,\n"
                "                add_reply(event.link, event.request_id, request, header, Status.OK),\n"
                "                effects,\n                event.now_ns,\n            )\n",
                "            effects.append(add_reply(event.link, event.request_id, request, header, Status.OK))\n",
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
                _ADDS,
                "        self._replies.reply_when(wait_token, reply, effects, now_ns)\n",
                "        effects.append(reply)\n",
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
                _ADDS,
                "                if not is_same(stored, entry):\n",
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
                _READS,
                "        wait_token = row.last_token if request.fence else 0\n",
                "        wait_token = 0\n",
            ),
        ),
        (_P5_FENCING + "a_negative_leaves_only_when_the_fence_is_durable",),
    ),
    Mutant(
        "lac-may-fall",
        "P6.2 I11",
        "a bookie takes any LAC that it is told, also a lower one",
        (
            (
                _LACS,
                "        if lac <= row.lac:\n            return []\n",
                "        if lac == row.lac:\n            return []\n",
            ),
        ),
        (_P6 + "the_lac_of_a_bookie_never_falls",),
        seeds=30,
    ),
    Mutant(
        "another-incarnation-is-served",
        "P2.4 P7.2",
        "a bookie that lost its disk takes adds that were meant for the disk before",
        (
            (
                _ADDS,
                "        if request.incarnation != self._incarnation:\n"
                "            return Status.WRONG_INCARNATION\n"
                "        if self._replies.failure is not None:\n"
                "            return Status.UNKNOWN\n"
                "        row = self._table.get(header.ledger_id)\n",
                "        if self._replies.failure is not None:\n"
                "            return Status.UNKNOWN\n"
                "        row = self._table.get(header.ledger_id)\n",
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
                "embedbk/core/pending_replies.py",
                "            effects += [_as_unknown(reply) for reply in self.by_token[token]]\n",
                "            effects += self.by_token[token]\n",
            ),
        ),
        (_P7 + "after_a_failed_sync_nothing_is_promised_any_more",),
    ),
    Mutant(
        "limbo-not-entered",
        "P7.4 I32",
        "a bookie serves at once after an unclean start",
        ((_ENTERING, "        self.is_serving = not may_have_lost\n", "        self.is_serving = True\n"),),
        (_P7 + "nothing_is_served_before_limbo_is_durable",),
    ),
    Mutant(
        "limbo-served-before-it-is-durable",
        "P7.4 I32",
        "a bookie serves when limbo is queued, not when it is durable",
        (
            (
                _ENTERING,
                "        if effects:\n            self.token = self._records.next_token - 1\n        else:\n"
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
                _ENTERING,
                "        if not row.is_fenced:\n",
                "        if not row.is_fenced and number >= len(listed.not_closed):\n",
            ),
            (_STANDING, "    if row.in_limbo and not row.is_dropped:\n        return Status.IN_LIMBO\n", ""),
        ),
        (_P7 + "every_ledger_that_names_it_is_in_limbo_with_or_without_a_trace",),
    ),
    Mutant(
        "limbo-says-absent",
        "P7.4 P7.1",
        "in limbo what is missing is absent instead of unknown",
        (
            (
                _READS,
                "    return absent if knows_all(row) and may_deny else []\n",
                "    return absent if may_deny else []\n",
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
                "embedbk/core/limbo_search.py",
                "        if part is None:\n            row.in_limbo = 0\n",
                "        if ledger_id is not None:\n            row.in_limbo = 0\n",
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
                _STANDING,
                "return Status.FENCED if row.is_fenced or row.is_dropped else None",
                "return Status.FENCED if row.is_fenced and not row.is_dropped else None",
            ),
        ),
        (_P7 + "a_dropped_ledger_stays_fenced_and_in_limbo_for_ever",),
    ),
    Mutant(
        "silent-hint-answered",
        "P6.2",
        "a hint that wants no answer gets one: the writer pays for it with each add that somebody reads",
        (
            (
                _LACS,
                "            return [*woken, reply] if request.wants_answer else woken\n",
                "            return [*woken, reply]\n",
            ),
        ),
        (_P6_TAIL + "where_a_reader_waits_the_lac_is_told_at_once",),
    ),
    Mutant(
        "answers-silent-of-readers",
        "P6.2",
        "the answer to an add never says that a reader waits: it hears of the last entry an idleness later",
        (
            (
                "embedbk/core/pending_replies.py",
                "request_id, replace(answer, is_followed=True)",
                "request_id, replace(answer, is_followed=False)",
            ),
        ),
        (_P6_TAIL + "where_a_reader_waits_the_lac_is_told_at_once",),
    ),
    Mutant(
        "readers-looked-for-too-early",
        "P6.2",
        "whether a reader waits is judged when the add is taken, not when its answer leaves",
        (
            (
                "embedbk/core/pending_replies.py",
                "[self._leaving(reply, now_ns) for reply in self.by_token.pop(each, ())]",
                "self.by_token.pop(each, ())",
            ),
            (
                "embedbk/core/pending_replies.py",
                "            self.by_token.setdefault(token, []).append(reply)",
                "            self.by_token.setdefault(token, []).append(self._leaving(reply, now_ns))",
            ),
        ),
        (_P6_TAIL + "who_begins_to_wait_is_found_when_the_answer_leaves",),
    ),
    Mutant(
        "hint-as-publication",
        "P6.2 I11",
        "a LAC that came as a hint is not made durable by the one that follows it",
        (
            (
                _LACS,
                "        if request.lac >= row.lac:  # Also of one that is known by a hint: that is in memory only.\n",
                "        if request.lac > row.lac:\n",
            ),
        ),
        (_P6_TAIL + "a_hint_is_no_publication",),
    ),
    Mutant(
        "bad-entry-said-absent",
        "P7.1 I31",
        "an entry whose bytes fail their sum on the disk is told to be absent",
        (
            (
                _READS,
                "        absent = _absent(row, event.absent, may_deny=may_deny)\n",
                "        absent = _absent(row, event.absent, may_deny=may_deny)\n        if event.frame is None and not absent and knows_all(row):\n            absent = [(request.first_entry, request.last_entry)]\n",
            ),
        ),
        (_P7 + "what_cannot_be_read_is_neither_there_nor_absent",),
    ),
    # Limbo, more of it.
    Mutant(
        "limbo-gives-its-lac",
        "P5.2b P7.4",
        "a bookie in limbo gives the LAC that it still knows to a fence",
        (
            (
                _FENCING,
                "        lac, length = (row.lac, row.lac_length) if knows_all(row) else (NO_ENTRY, 0)\n",
                "        lac, length = row.lac, row.lac_length\n",
            ),
        ),
        (_P5_FENCING + "limbo_counts_for_coverage_and_gives_no_lac",),
    ),
    Mutant(
        "closed-ledgers-not-fenced-again",
        "P7.3 P7.4",
        "after an unclean start ledgers that were closed meanwhile stay without their fence",
        (
            (
                _ENTERING,
                "    for number, ledger_id in enumerate([*named, *others]):\n",
                "    for number, ledger_id in enumerate(listed.not_closed):\n",
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
                _ENTERING,
                "    for ledger_id in listed.elsewhere:\n",
                "    for ledger_id in listed.elsewhere[:0]:\n",
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
                _ENTERING,
                "        row = table.get(ledger_id) or table.create(ledger_id, from_reserve=True)\n"
                "        if not row.is_fenced:\n",
                "        row = table.get(ledger_id)\n"
                "        if row is None:\n"
                "            continue\n"
                "        if not row.is_fenced:\n",
            ),
        ),
        (
            _P7 + "every_ledger_that_names_it_is_in_limbo_with_or_without_a_trace",
            _UNCLEAN + "a_bookie_that_enters_limbo_first_breaks_nothing",
        ),
    ),
    # Collecting.
    Mutant(
        "collector-believes-the-listing",
        "P7.7 I35",
        "a ledger that the listing does not show is dropped, whatever its own key says",
        (
            (
                _COLLECTOR,
                "        return [*effects, *self._leave(event.now_ns)]  # The two do not agree.\n",
                '        return [*effects, Transact(self._ask("check", ledger_id), [], [])]\n',
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
                "                Compare(repair_mark_path(ledger_id), ABSENT),\n",
                "",
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
                _DROPS,
                "        if token is None or row is None or row.last_token != token or row.is_dropped:\n",
                "        if token is None or row is None or row.is_dropped:\n",
            ),
            (
                _DROPS,
                "        self._asked.pop(row.ledger_id, None)\n",
                "",
            ),
        ),
        (_DROPPING + "what_came_after_the_question_keeps_the_ledger",),
    ),
    Mutant(
        "dropped-before-it-is-durable",
        "P7.3 I35",
        "entries go when their drop is queued; a crash finds the ledger, and not its entries",
        ((_DROPS, "[each for each in self._queued if each <= self._replies.durable]", "list(self._queued)"),),
        (_DROPPING + "entries_stay_while_only_what_was_queued_before_the_drop_is_durable",),
    ),
    # What the disk of a bookie keeps.
    Mutant(
        "fence-left-out-of-stored-states",
        "P7.3 I19",
        "a ledger's row is not written again when it was fenced, and the journal that knows it is trimmed",
        (
            (
                "embedbk/core/record_tokens.py",
                "        self._table.mark_dirty(row)\n        token = self.next_token\n",
                "        token = self.next_token\n",
            ),
        ),
        (_P7 + "a_fence_is_in_the_states_that_a_flush_keeps",),
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
        "one-reason-undoes-the-others",
        "P7.8 ST27",
        "space on the device makes a bookie writable that an operator made read-only",
        (
            (
                "embedbk/core/space.py",
                "reason: reason in before for reason in _REASONS",
                "reason: reason in before for reason in ()",
            ),
        ),
        (_SPACE + "every_reason_must_be_gone",),
    ),
    Mutant(
        "ledgers-that-are-gone-are-new",
        "P7.4 P8.3",
        "a bookie that forgot its fence takes adds of a ledger that was deleted meanwhile",
        (
            (
                _ENTERING,
                "    if told is not None:\n",
                "    if told is not None and told.ids_end < 0:\n",
            ),
        ),
        (_P7 + "a_ledger_that_is_gone_takes_no_adds_from_who_forgot_it",),
    ),
    Mutant(
        "open-ledgers-of-others-are-gone",
        "P7.4",
        "a bookie that may have lost something takes no seat in ledgers that others have",
        (
            (
                _ENTERING,
                "*listed.elsewhere, *listed.open_elsewhere,",
                "*listed.elsewhere,",
            ),
        ),
        (_P7 + "a_ledger_that_is_gone_takes_no_adds_from_who_forgot_it[True]",),
    ),
)
