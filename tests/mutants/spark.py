"""Bugs in what Spark reads, writes and scrubs; tests against a fake of Spark find each of them, without a JVM."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_SOURCE = "embedbk/spark/source.py"
_PARTITIONS = "embedbk/spark/partitions.py"
_STREAMING = "embedbk/spark/streaming.py"
_READING = "embedbk/spark/reading.py"
_PRUNING = "embedbk/spark/pruning.py"
_SINKING = "embedbk/spark/sinking.py"
_SINKER = "embedbk/spark/sink.py"
_SCRUBBING = "embedbk/spark/scrubbing.py"
_READ = "tests/spark/test_source.py::test_"
_STREAM = "tests/spark/test_streaming.py::test_"
_RANGES = "tests/spark/test_reading.py::test_"
_SINK = "tests/spark/test_sink.py::test_"
_SCRUB = "tests/spark/test_scrubbing.py::test_"

MUTANTS = (
    Mutant(
        "a-plan-without-a-pin",
        "P8.8",
        "retention takes rows away that a batch has planned",
        (
            (
                _SOURCE,
                "            if start.offset < end.offset:\n",
                "            if start.offset > end.offset:\n",
            ),
        ),
        (_READ + "a_read_pins_where_it_begins_and_truncation_stops_there",),
    ),
    Mutant(
        "a-late-task-renews-no-pin",
        "P8.8",
        "a read that begins late loses the pin under it",
        ((_PARTITIONS, "options.pin_s / 4:", "options.pin_s:"),),
        (_READ + "a_task_that_begins_late_renews_the_pin_of_its_read",),
    ),
    Mutant(
        "a-stream-without-a-pin",
        "P8.8",
        "retention takes away what a stream has not read",
        (
            (
                _STREAMING,
                "            reading.pin(self.options.place, name, self._pin_name, point, self.options.pin_s)\n",
                "",
            ),
        ),
        (_STREAM + "a_stream_holds_what_it_has_not_read",),
    ),
    Mutant(
        "a-micro-batch-that-runs-again-reads-another-log",
        "P6.2",
        "a micro-batch that was planned before the log was begun anew has rows of the new one",
        ((_STREAMING, " or not (is_new or self._still_stands(name, last)):", ":"),),
        (_STREAM + "a_micro_batch_that_runs_again_has_no_rows_of_a_log_that_was_begun_anew",),
    ),
    Mutant(
        "a-deleted-log-ends-the-stream-of-the-others",
        "P6.2",
        "a stream that may lose entries ends when one of its logs is deleted",
        (
            (
                _STREAMING,
                "                if not options.may_lose:\n",
                "                if options.names or name:\n",
            ),
        ),
        (_STREAM + "a_deleted_log_of_several_ends_a_stream_only_where_losses_do",),
    ),
    Mutant(
        "a-plan-goes-one-too-far",
        "P6.2",
        "a batch plans an entry behind its end",
        (
            (
                _READING,
                "start.offset - each.first_offset), end.offset - 1 - each.first_offset\n",
                "start.offset - each.first_offset), end.offset - each.first_offset\n",
            ),
        ),
        (
            _RANGES + "ranges_are_planned_for_what_is_there_and_read_whole",
            _RANGES + "a_stretch_begins_and_ends_inside_ledgers",
        ),
    ),
    Mutant(
        "an-offset-of-a-stream-is-one-short",
        "P6.2",
        "a stream's offset names the entry, not the place behind it",
        (
            (
                _READING,
                "LogPoint(segment.first_offset + entry_id + 1, ",
                "LogPoint(segment.first_offset + entry_id, ",
            ),
        ),
        (_RANGES + "ranges_are_planned_for_what_is_there_and_read_whole",),
    ),
    Mutant(
        "a-split-loses-its-last-entry",
        "P6.2",
        "each part of a long ledger lacks its last entry",
        ((_PARTITIONS, "whole.first_entry + end - 1)", "whole.first_entry + end - 2)"),),
        (_READ + "the_parts_of_a_range_are_the_range",),
    ),
    Mutant(
        "a-short-read-is-whole",
        "P6.2",
        "a task leaves out rows that were planned, in silence",
        ((_READING, "if seen != part.last_entry:", "if seen > part.last_entry:"),),
        (_RANGES + "fewer_rows_than_were_planned_are_an_error",),
    ),
    Mutant(
        "a-plan-with-a-gap-is-whole",
        "P6.2",
        "a plan leaves out entries that no listed ledger has",
        (
            (
                _READING,
                "if sum(each.entry_count for each in ranges) != end.offset - start.offset:",
                "if not ranges:",
            ),
        ),
        (_RANGES + "a_plan_that_misses_entries_is_an_error",),
    ),
    Mutant(
        "a-limit-of-rows-drops-that-of-bytes",
        "SPARK",
        "of both limits of a micro-batch one holds",
        (
            (
                _STREAMING,
                "return limit.max_rows, self.options.bytes_per_trigger",
                "return limit.max_rows, None",
            ),
        ),
        (_STREAM + "limits_of_rows_and_bytes_hold_together",),
    ),
    Mutant(
        "a-limit-of-bytes-begins-anew-in-ledgers",
        "SPARK",
        "a micro-batch of many small ledgers is as large as all of them",
        ((_READING, "            bytes_left -= count * size\n", ""),),
        (_RANGES + "a_micro_batch_keeps_both_limits_and_takes_at_least_one_entry",),
    ),
    Mutant(
        "a-large-entry-stops-a-stream",
        "SPARK",
        "an entry above the limit of bytes is never read",
        ((_READING, "if count == 0 and reached.offset == start.offset:", "if count < 0:"),),
        (_RANGES + "a_micro_batch_keeps_both_limits_and_takes_at_least_one_entry",),
    ),
    Mutant(
        "a-filter-forgets-where-a-ledger-begins",
        "SPARK",
        "push-down leaves out rows of later ledgers",
        ((_PRUNING, 'self._least("offset") - whole.first_offset)', 'self._least("offset"))'),),
        (_READ + "filters_leave_out_what_no_row_can_come_from",),
    ),
    Mutant(
        "a-filter-of-several-begins-at-the-greatest",
        "SPARK",
        "push-down of IN leaves out the smaller values",
        ((_PRUNING, "least = min(values)", "least = max(values)"),),
        (_READ + "filters_leave_out_what_no_row_can_come_from",),
    ),
    Mutant(
        "filters-are-not-given-back",
        "SPARK",
        "Spark applies no filter, and ranges are coarser",
        ((_SOURCE, "        return filters\n", "        return []\n"),),
        (_READ + "filters_leave_out_what_no_row_can_come_from",),
    ),
    Mutant(
        "a-log-begun-anew-is-read-on",
        "SPARK",
        "a stream reads another log's entries as its own",
        (
            (
                _READING,
                "return (each.ledger_id, point.offset - 1 - each.first_offset) == (point.ledger_id, point.entry_id)",
                "return True",
            ),
        ),
        (_RANGES + "a_log_that_was_begun_anew_is_told_from_the_one_that_was_read",),
    ),
    Mutant(
        "a-log-of-another-id-is-read-on",
        "SPARK P8.12",
        "a checkpoint in front of its first row is taken for one of whichever log has the name",
        ((_READING, "    found = not _is_of_another(point, log) and _stands_at", "    found = _stands_at"),),
        (_STREAM + "a_checkpoint_in_front_of_its_first_row_is_of_one_log_too",),
    ),
    Mutant(
        "a-plan-ends-in-another-log",
        "SPARK",
        "a micro-batch has rows of a log that was begun anew since its end was looked up",
        (
            (
                _READING,
                "    if ranges and end.ledger_id not in (",
                "    if not ranges and end.ledger_id not in (",
            ),
        ),
        (_RANGES + "a_plan_whose_end_another_ledger_has_is_none",),
    ),
    Mutant(
        "a-new-log-begins-where-it-does-now",
        "SPARK",
        "a micro-batch that runs again has fewer rows of a log that was new in it",
        (
            (
                _STREAMING,
                "            name: replace(point, begin=point.offset)\n",
                "            name: point\n",
            ),
        ),
        (_STREAM + "a_log_that_was_new_in_a_micro_batch_has_the_same_rows_when_that_runs_again",),
    ),
    Mutant(
        "a-checkpoint-of-another-log-is-taken",
        "SPARK",
        "a stream reads another log from its start",
        ((_STREAMING, "and not points.keys() & set(self.options.names)", "and not points.keys()"),),
        (_STREAM + "a_checkpoint_of_another_log_is_refused",),
    ),
    Mutant(
        "a-replayed-micro-batch-is-news",
        "P8.5",
        "a replay is staged anew, and no error although `onReplay` says so",
        ((_SINKING, "done.number >= staging.number:", "done.number > staging.number:"),),
        (_SINK + "a_number_that_is_not_new_may_be_an_error",),
    ),
    Mutant(
        "a-version-is-ignored",
        "P8.5",
        "batches of one application all have number 0",
        ((_SINKER, "application, options.number, job,", "application, 0, job,"),),
        (_SINK + "a_batch_with_an_application_and_a_version_is_written_once",),
    ),
    Mutant(
        "another-query-has-the-application",
        "P8.5",
        "rows of a query are lost as replays of another",
        ((_SINKING, "if done.job == job_of(done.number):", "if done.job:"),),
        (_SINK + "an_application_that_another_query_holds_is_refused",),
    ),
    Mutant(
        "queries-have-the-same-jobs",
        "P8.5",
        "a micro-batch is taken for that of another query",
        ((_SINKER, 'f"{query}/{batch}".encode()', 'f"{batch}".encode()'),),
        (_SINK + "an_application_that_another_query_holds_is_refused",),
    ),
    Mutant(
        "messages-of-tasks-go-backwards",
        "P8.5",
        "rows that travel stand in another order than the partitions",
        ((_SINKING, "        run.append(output)\n", "        run.insert(0, output)\n"),),
        (_SINK + "a_batch_stands_in_partition_order_whatever_travels_in_messages",),
    ),
    Mutant(
        "overlapping-tasks-are-spliced",
        "P8.5",
        "rows of an ordering column are not in its order",
        ((_SINKING, "if other.first < one.last:", "if other.first < one.first:"),),
        (_SINK + "an_ordering_column_orders_all_rows",),
    ),
    Mutant(
        "a-job-that-is-called-off-leaves-ledgers",
        "P8.5",
        "staged ledgers stay until their time is over",
        ((_SINKER, "        sinking.call_off(self.options, self.staging)\n", "        pass\n"),),
        (_SINK + "a_failed_attempt_leaves_nothing_behind",),
    ),
    Mutant(
        "a-task-loses-what-no-longer-fits-a-message",
        "P8.5",
        "batches behind the first large one are not staged",
        (
            (
                _SINKING,
                "        for batch in todo:\n            append_rows(writer, batch)\n",
                "        for batch in todo:\n",
            ),
        ),
        (_SINK + "a_task_of_several_batches_is_written_whole",),
    ),
    Mutant(
        "tasks-of-a-bookie-do-not-share-its-rate",
        "SCRUB",
        "a scrub reads a bookie twice as fast as allowed",
        (
            (
                _SCRUBBING,
                "shared = replace(options, bytes_per_s=-(-options.bytes_per_s // len(parts)))",
                "shared = options",
            ),
        ),
        (_SCRUB + "the_tasks_of_a_bookie_share_its_rate_and_go_by_ledger",),
    ),
)
