"""What people use: appending, reading, deleting."""

# ruff: noqa: E501, ISC004 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_BULK = "embedbk/client/bulk.py"
_APPENDING = "embedbk/client/appending.py"
_DELETING = "embedbk/client/deleting.py"
_DELETING_LOG = "embedbk/client/log_deleting.py"
_EMBEDDED = "embedbk/client/embedded.py"
_AHEAD = "tests/scenarios/test_following_ahead.py::test_"
_FOLLOWING = "embedbk/client/log_following.py"
_LOG_PLACES = "embedbk/client/log_places.py"
_PAST = "embedbk/client/past.py"
_PRODUCERS = "embedbk/core/producers.py"
_READING = "embedbk/client/reading.py"
_RENEWING = "embedbk/client/renewing.py"
_PASSAGE = "embedbk/client/passage.py"

_BULKS = "tests/scenarios/test_reading_in_bulk.py::test_"
_BEGINNING = "tests/faces/test_beginning.py::test_"
_DELETING_LOGS = "tests/scenarios/test_deleting_logs.py::test_"
_GROWING = "tests/cluster/test_growth_in_place.py::test_"
_LEDGERS = "tests/faces/test_ledger.py::test_"
_LOGS = "tests/faces/test_log.py::test_"
_NO_EMPTIES = "tests/scenarios/test_log_without_empties.py::test_"
_RENEWALS = "tests/faces/test_renewing.py::test_"
_TERMS_APPEND = "embedbk/client/terms_append.py"
_TERMS = "tests/faces/test_terms.py::test_"

MUTANTS = (
    Mutant(
        "a-read-beyond-the-lac-ends-at-an-ensemble-change",
        "P6.3",
        "who reads beyond the LAC is not given what was acknowledged by the bookies that took the seats meanwhile",
        (
            (
                "embedbk/client/reading.py",
                "if frame is None and is_unconfirmed and self.metadata.fragments != metadata.fragments:",
                "if False:",
            ),
        ),
        (
            "tests/testing/test_reader_handles.py::test_a_read_beyond_the_lac_goes_on_with_the_bookies_that_took_over_meanwhile",
        ),
    ),
    Mutant(
        "bulk-loses-what-it-had-gathered",
        "I97 CL22",
        "an error behind the first entries of a call is raised, and what was read before it is given to nobody",
        (
            (
                _BULK,
                "            if not gathered:\n                raise  # Else it shortens the answer, and the next call meets it.\n",
                "            self._place = self._place if not gathered else gathered[-1].first_offset + gathered[-1].ids[-1] + 1\n            raise\n",
            ),
        ),
        (_BULKS + "an_error_behind_the_first_entry_shortens_the_answer",),
    ),
    Mutant(
        "bulk-interrupted-goes-on-behind",
        "I97",
        "who is interrupted finds what was gathered for that call nowhere",
        (
            (
                _BULK,
                "        except BaseException:\n            self._drop()\n            raise\n",
                "        except MemoryError:\n            raise\n",
            ),
        ),
        (_BULKS + "who_is_interrupted_has_missed_nothing",),
    ),
    Mutant(
        "bulk-cuts-an-atomic-batch",
        "CL22 P3.1",
        "a bound falls between the parts of one entry",
        (
            (
                _BULK,
                "        rows = bisect_left(ids, ids[rows])  # Not within an atomic batch.\n",
                "        pass\n",
            ),
        ),
        (_BULKS + "an_atomic_batch_is_given_whole",),
    ),
    Mutant(
        "bulk-never-asks",
        "P6.2",
        "a call that does not wait gives what was heard before, and asks no bookie",
        ((_BULK, "        pull.asks = count == 0 and left_s == 0.0\n", "        pull.asks = False\n"),),
        (_BULKS + "without_waiting_it_asks_for_what_is_new",),
    ),
    Mutant(
        "bulk-from-latest-begins-anew",
        "I97",
        "a reader that begins with what comes forgets where that was when a call ends by an error",
        (
            (
                _FOLLOWING,
                "                    pull.begins = note.place\n",
                "                    pass\n",
            ),
        ),
        (_BULKS + "latest_gives_what_comes_from_the_first_call_on",),
    ),
    Mutant(
        "append-fails-while-the-log-goes-over",
        "P8.1",
        "an append that finds the ledger of before closed is refused instead of waiting for the next one",
        (
            (
                _PASSAGE,
                "        return is_left and is_before and not self._has_ended\n",
                "        return is_left and is_before and self._has_ended\n",
            ),
        ),
        (_RENEWALS + "appends_of_other_threads_wait_and_none_fails",),
    ),
    Mutant(
        "grown-directory-listens-nowhere",
        "P10.3",
        "a directory whose cluster has other members is opened where none of them finds it",
        (
            (
                _EMBEDDED,
                "            self.listen = noted[0]  # Others look for it there.\n",
                "            assert noted\n",
            ),
        ),
        (_GROWING + "one_process_grows_to_three_members_and_three_bookies",),
    ),
    Mutant(
        "bookies-elsewhere-are-missed-here",
        "P7.2",
        "a directory is refused since bookies of other processes have none in it",
        (
            (
                _EMBEDDED,
                "        known = [each for each in everywhere if noted is None or each in noted or (self.root / each).is_dir()]\n",
                "        known = [each for each in everywhere if noted is None or each]\n",
            ),
        ),
        (_GROWING + "one_process_grows_to_three_members_and_three_bookies",),
    ),
    Mutant(
        "ledger-closed-for-one-that-cannot-be-made",
        "P8.1 CL01",
        "a writer closes its ledger though there are too few bookies for the next one",
        (
            (
                _RENEWING,
                "        if there < quorum.ensemble_size:\n",
                "        if there < 0:\n",
            ),
        ),
        (_RENEWALS + "too_few_bookies_leave_the_writer_where_it_is",),
    ),
    Mutant(
        "producers-forgotten-by-a-takeover",
        "P3",
        "a writer that takes over does not learn what producers appended before it",
        (
            (
                _APPENDING,
                "        is_known = history is None  # Then nothing stands there.\n",
                "        is_known = True\n",
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
                _TERMS_APPEND,
                "            with PRODUCERS_LOCK:\n                found = ",
                "            held = None if producer is None else handle.producers.find(producer)\n"
                "            await Moved(writing.signal, lambda: False, 0.02)\n"
                "            if held is not None:\n"
                "                return held\n"
                "            with PRODUCERS_LOCK:\n                found = ",
            ),
            (_TERMS_APPEND, "            held = producers.find(producer)\n", "            held = None\n"),
        ),
        (_TERMS + "many_threads_that_repeat_each_other_append_once",),
    ),
    Mutant(
        "condition-of-another-ledger-met",
        "P3.1",
        "a position of another ledger is compared by its entry id alone",
        (
            (
                _PAST,
                "            is_here = after[0] == ledger_id and after[1] < _NEVER_NEXT\n",
                "            is_here = after[1] < _NEVER_NEXT\n",
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
                _TERMS_APPEND,
                "            entry_id = writing.try_append_with(data, attributes, expected, told)\n        else:\n",
                "            is_next = expected < 0 or writing.packer.next_entry == expected\n"
                "            await Moved(writing.signal, lambda: False, 0.02)\n"
                "            entry_id = PACKER_CONFLICT\n"
                "            if is_next:\n"
                "                entry_id = writing.try_append_with(data, attributes, NO_ENTRY, told)\n"
                "        else:\n",
            ),
        ),
        (_TERMS + "of_many_threads_with_one_condition_one_appends",),
    ),
    Mutant(
        "reader-handle-goes-back",
        "P6.2 I11",
        "a handle shows what it heard last, not the highest that it heard",
        ((_READING, "        if lac > self.lac or ", "        if True or "),),
        ("tests/testing/test_reader_handles.py::test_a_handle_shows_the_newest_that_it_heard",),
    ),
    Mutant(
        "unconfirmed-past-the-end",
        "P6.3 I38",
        "a read beyond the LAC gives what lies beyond the end of a ledger that its own handle shows as closed",
        (
            (
                _READING,
                "                if end is None or located.frame.last_entry <= end:\n",
                "                if True:\n",
            ),
        ),
        (
            "tests/testing/test_reader_handles.py::"
            "test_a_read_beyond_the_lac_ends_where_its_handle_heard_that_the_ledger_does",
        ),
    ),
    Mutant(
        "tail-goes-to-the-newest-ledger",
        "P6.6 I97",
        "a tailing reader goes on with the last ledger of the list, not with the one behind where it stands (#2898)",
        (
            (
                _FOLLOWING,
                "return Place(shown.segments, index + 1) if index",
                "return Place(shown.segments, len(shown.segments) - 1) if index",
            ),
        ),
        ("tests/scenarios/test_log_readers.py::test_a_tail_passes_every_ledger_of_the_list_in_turn",),
    ),
    Mutant(
        "tail-jumps-an-empty-ledger",
        "P6.6 I97",
        "a tailing reader leaves a ledger that has no entry yet, open or not",
        (
            (
                _FOLLOWING,
                "            if first is None:\n                first = limit + 1\n",
                "            if first is None:\n                first = limit + 1\n"
                "            if limit < 0:\n                return\n",
            ),
        ),
        ("tests/scenarios/test_log_readers.py::test_a_tail_stays_with_an_empty_ledger_until_it_is_closed",),
    ),
    Mutant(
        "tail-from-now-one-entry-late",
        "P6.6",
        "a tail that begins now leaves out the first entry that comes",
        (
            (
                _FOLLOWING,
                "            if first is None:\n                first = limit + 1\n",
                "            if first is None:\n                first = limit + 2\n",
            ),
        ),
        (_NO_EMPTIES + "a_tail_from_now_on_begins_with_the_next_entry",),
    ),
    Mutant(
        "offset-below-the-start-read-from-the-start",
        "P6.6",
        "an offset below the start of a log is read from somewhere else, not Truncated",
        (
            (
                _LOG_PLACES,
                "        if start < log_list.first_offset or place is None:\n",
                "        place = place or Place(log_list.segments, 0)\n        if start < 0:\n",
            ),
        ),
        (_NO_EMPTIES + "a_place_below_the_start_of_a_log_is_truncated",),
    ),
    Mutant(
        "truncation-taken-for-an-empty-ledger",
        "P6.6 P8.3",
        "a tail whose ledger is not listed any more goes on with the next, whatever stood between",
        ((_LOG_PLACES, "max(wanted, begins + first):\n", "max(wanted, begins + first) + 10:\n"),),
        (_NO_EMPTIES + "a_tail_that_truncation_overtakes_is_told",),
    ),
    Mutant(
        "planned-rows-not-counted",
        "P6.1",
        "Spark's executors give as many rows as there happen to be, not as were planned",
        (
            (
                "embedbk/spark/reading.py",
                "    if seen != part.last_entry:\n",
                "    if seen > part.last_entry:\n",
            ),
        ),
        ("tests/spark/test_reading.py::test_fewer_rows_than_were_planned_are_an_error",),
    ),
    # Where a cluster may begin.
    Mutant(
        "empty-directory-taken-for-a-cluster",
        "P7.2",
        "create=False begins a new cluster in an empty directory",
        (
            (
                "embedbk/client/embedded.py",
                "        if begins and not self.create:\n",
                "        if begins and self.create is None:\n",
            ),
        ),
        (_BEGINNING + "what_is_missing_or_empty_is_refused_where_nothing_is_to_be_made",),
    ),
    Mutant(
        "missing-parent-not-seen",
        "P7.2",
        "nobody looks whether the parent of a directory is there",
        (
            (
                "embedbk/client/beginning.py",
                "    if not parent.is_dir():\n",
                "    if not parent.is_absolute():\n",
            ),
        ),
        (_BEGINNING + "parents_are_never_made",),
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
                "    if await ListWalk(runtime, name).holding(log_list, metadata.ledger_id) is not None:\n",
                "    if metadata.ledger_id < 0:\n",
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
        (
            (
                _DELETING,
                "        if stone is None or stone.until_ms > runtime.wall_ms():\n",
                "        if stone is None:\n",
            ),
        ),
        (_LEDGERS + "a_deleted_ledger_is_brought_back_while_its_grace_lasts",),
    ),
    Mutant(
        "undelete-keeps-the-tombstone",
        "CL32 P7.7",
        "a ledger is back and its tombstone still says that it is deleted",
        (
            (
                _DELETING,
                "[Delete(key), Put(ledger_key_path(ledger_id), metadata), *raised]",
                "[Put(ledger_key_path(ledger_id), metadata), *raised]",
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
        "log-deleted-under-its-new-owner",
        "P8.1 P8.3",
        "a log is deleted whatever became of its list since it was read",
        (
            (
                _DELETING_LOG,
                "        when.append(Compare(log_key_path(name), revision))\n",
                "        assert revision\n",
            ),
            (
                _DELETING_LOG,
                "        when.append(Compare(log_owner_path(name), ABSENT if owner is None else owner_revision))\n",
                "        assert owner_revision >= 0\n",
            ),
        ),
        (_DELETING_LOGS + "a_takeover_on_its_way_finds_that_the_log_is_gone",),
    ),
    Mutant(
        "log-deleted-and-its-ledgers-forgotten",
        "P8.3",
        "the ids of a deleted log's ledgers are not kept where a second call finds them",
        (
            (
                _DELETING_LOG,
                "        Put(log_deleting_path(name), ending),\n",
                "        Put(log_deleting_path(name + '-'), ending),\n",
            ),
        ),
        (_DELETING_LOGS + "a_log_goes_with_its_ledgers",),
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
        "undelete-behind-the-forgetting",
        "CL32 P7.7",
        "a ledger is brought back though its tombstone was taken away since it was looked at: its bytes may be gone",
        (
            (
                "embedbk/client/deleting.py",
                "    when = [Compare(key, revision), Compare(ledger_key_path(ledger_id), ABSENT)]\n",
                "    assert revision\n    when = [Compare(ledger_key_path(ledger_id), ABSENT)]\n",
            ),
        ),
        ("tests/scenarios/test_deleting.py::test_a_ledger_that_is_forgotten_beside_it_is_not_brought_back",),
    ),
    Mutant(
        "tail-ends-with-its-bookies",
        "P6.6 P6.2",
        "a tail ends with an error while two bookies are away",
        (
            (
                "embedbk/client/reading.py",
                "            except NotEnoughBookies:\n                if not is_exact:\n",
                "            except NotEnoughBookies:\n                raise\n                if not is_exact:\n",
            ),
        ),
        ("tests/scenarios/test_log_readers.py::test_a_tail_waits_for_bookies_that_are_away",),
    ),
    Mutant(
        "tail-takes-what-is-unreadable-for-its-end",
        "P6.6 P6.1",
        "a tail that cannot read what must be there ends quietly when its time is over",
        (
            (
                "embedbk/client/reading.py",
                "                if waited.is_over():\n                    raise\n",
                "                if waited.is_over():\n                    return\n",
            ),
        ),
        ("tests/scenarios/test_log_readers.py::test_a_tail_whose_bookies_stay_away_ends_in_time",),
    ),
    Mutant(
        "tail-from-now-begins-at-what-is-known",
        "P6.6 P6.2",
        "a tail from now on that finds too few bookies begins with the first entry of the ledger",
        ((_FOLLOWING, "idle_s, is_exact=first is None)", "idle_s, is_exact=False)"),),
        ("tests/scenarios/test_log_readers.py::test_a_tail_waits_for_bookies_that_are_away",),
    ),
    Mutant(
        "a-renewed-writer-forgets-its-producers",
        "P3.1",
        "a writer that takes its log over from itself appends again what was truncated since",
        ((_RENEWING, "            owned.appending.remember_producers_of(before)\n", ""),),
        (_TERMS + "a_writer_that_is_renewed_appends_nothing_again",),
    ),
    Mutant(
        "producer-past-without-end",
        "P3.1 P3.6",
        "an append with a producer and a time limit waits for what was appended before as long as that takes",
        (
            (
                _PAST,
                "is_over = await learning.within(until_s)",
                "is_over = await learning.within(math.inf)",
            ),
        ),
        (
            "tests/faces/test_terms.py::test_an_append_with_a_producer_keeps_its_time_and_the_next_one_goes_on_from_there",
        ),
    ),
    Mutant(
        "producer-past-begun-anew",
        "P3.1 P3.6",
        "each append begins anew with what the one before had no time for: short ones never get there",
        (
            (
                _PAST,
                "            if not is_over:\n                raise OperationTimeout(\n",
                "            if not is_over:\n                self.learning = None\n                raise OperationTimeout(\n",
            ),
        ),
        (
            "tests/faces/test_terms.py::test_an_append_with_a_producer_keeps_its_time_and_the_next_one_goes_on_from_there",
        ),
    ),
    Mutant(
        "producer-past-unknown-is-indefinite",
        "P3.6",
        "an append that was never sent, because its producer's past could not be read, says that it may survive",
        (
            (
                _PAST,
                "                    definite=True,\n                    hint=failed.hint,\n",
                "                    definite=failed.definite,\n                    hint=failed.hint,\n",
            ),
        ),
        (
            "tests/faces/test_terms.py::test_what_keeps_a_producer_s_past_from_being_read_is_told_and_nothing_was_sent",
        ),
    ),
    Mutant(
        "close-that-timed-out-is-done",
        "P5.1",
        "who calls close again after it timed out is told at once that the ledger is closed",
        ((_APPENDING, "        if self.is_over and not self._is_closing:\n", "        if self.is_over:\n"),),
        ("tests/faces/test_lifecycle.py::test_a_close_that_timed_out_can_be_called_again",),
    ),
    Mutant(
        "entries-of-others-within-one-call",
        "P3.1 P3.3",
        "a call that appends more than there is room for lets others append before its rest",
        (
            (
                "embedbk/client/many_append.py",
                "first, done = handle.try_append_many(items, self._caller, has_begun=has_begun)",
                "first, done = handle.try_append_many(items, 0, has_begun=has_begun)",
            ),
            (
                "embedbk/client/many_append.py",
                '            ensure(begin == first + done or not taken, "another call\'s entry came between those of one call")\n',
                "",
            ),
        ),
        (
            "tests/faces/test_ledger.py"
            "::test_what_one_call_appends_stands_together_however_many_append_and_wherever_there_is_room",
        ),
    ),
    Mutant(
        "next-ledger-is-asked-for-late",
        "P6.6 P8.2",
        "behind each roll a reader waits for two answers more before it reads on",
        (
            (
                _FOLLOWING,
                "                self._look_ahead(stands, followed)\n",
                "",
            ),
        ),
        (_AHEAD + "nothing_is_asked_between_the_end_of_one_ledger_and_the_next",),
    ),
    Mutant(
        "tail-that-gives-up-soon-asks-one-bookie",
        "P6.6",
        "a tail ends at a roll because one bookie is silent, though others have what comes next",
        (
            (
                _FOLLOWING,
                " < _ASKS_FIRST_S",
                " < 0",
            ),
        ),
        (_AHEAD + "a_tail_that_gives_up_soon_asks_all_bookies_first",),
    ),
    Mutant(
        "what-was-begun-ahead-stays",
        "L13",
        "each tail that is left leaves a watch behind",
        (
            (
                _FOLLOWING,
                "                stands.ahead.end()\n",
                "                pass\n",
            ),
        ),
        (_AHEAD + "what_was_begun_ahead_ends_with_the_tail",),
    ),
    Mutant(
        "what-was-opened-for-nobody-stays-open",
        "L13",
        "a task that opens a directory is cancelled, and the directory is taken until the process ends",
        (("embedbk/aio/client.py", "        if is_given_up:\n", "        if False:\n"),),
        ("tests/faces/test_aio.py::test_a_directory_that_nobody_got_is_free_again",),
    ),
)
