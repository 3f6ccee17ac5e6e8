"""The work of a sink in a task and on the driver, for batches and for micro-batches; needs no Spark.

Decides which rows are staged and which are sent in a message, their order in the log, and that a transaction which was
done is not written again. The splice decides that it is done once (P8.5).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from embedbk.archive.record_rows import VALUE, append_rows
from embedbk.client.log import Log
from embedbk.client.splicing import SpliceOutcome, Staging
from embedbk.core.log_splicing import SPLICE_LEDGERS_MAX
from embedbk.errors import EmbedbkError, UsageError
from embedbk.spark.clients import client_of
from embedbk.spark.merging import grouped, staged_rows
from embedbk.spark.sink_options import SinkOptions

__all__ = ["VALUE", "Output", "call_off", "commit", "log_of", "write"]

logger = logging.getLogger("embedbk.spark")


@dataclass(frozen=True, slots=True)
class Output:
    """The rows of one task, in their order in the log: none, a staged ledger, or rows few enough to be sent. first,
    last: of the ordering column. size: bytes in memory, about."""

    rows: int = 0
    ledger_id: int | None = None
    inline: bytes = b""  # An Arrow stream.
    first: Any = None
    last: Any = None
    size: int = 0


def log_of(options: SinkOptions) -> Log:
    return client_of(options.cluster).log(options.log, password=options.password)


def write(options: SinkOptions, staging: Staging, batches: Iterable[pa.RecordBatch]) -> Output:
    """In a task: its rows into a ledger of their own, durable when this returns, or into the message."""
    first = last = None
    if options.order_by:
        table = _sorted(options, batches)
        if table is None:
            return Output()
        order = table.column(options.order_by)
        first, last = order[0].as_py(), order[-1].as_py()
        batches = table.to_batches()
    held: list[pa.RecordBatch] = []
    rows = held_bytes = 0
    todo: Iterator[pa.RecordBatch] = (batch for batch in batches if batch.num_rows)
    for batch in todo:
        held.append(batch)
        rows += batch.num_rows
        held_bytes += batch.nbytes
        if held_bytes > options.inline_bytes_max:
            break
    else:
        return Output(rows, None, _packed(held), first, last, held_bytes) if held else Output()
    with log_of(options).stage(staging) as writer:
        for batch in held:
            append_rows(writer, batch)
        held.clear()
        for batch in todo:
            append_rows(writer, batch)
            rows += batch.num_rows
            held_bytes += batch.nbytes
    return Output(rows, writer.ledger_id, b"", first, last, held_bytes)


def commit(
    options: SinkOptions,
    staging: Staging,
    outputs: Sequence[Output],
    job_of: Callable[[int], bytes] | None = None,
) -> SpliceOutcome | None:
    """On the driver: put all rows of the tasks into the log, once. None: there were none.

    job_of: which job a query has at each of its numbers, so that a transaction of another query is never taken for a
    replay of its own; None: the same number always means the same transaction.
    """
    made = [output for output in outputs if output.rows]
    if not made:
        return None
    log = log_of(options)
    done = None if staging.is_once else log.spliced(staging.application)
    if done is not None and job_of is not None:
        _check_holder(options, staging, done, job_of)
    if done is not None and done.number >= staging.number:
        call_off(options, staging)
        if not options.may_replay:
            raise _replayed(options, staging)
        logger.info(
            "log %r has transaction %d of %r already: nothing is written again",
            options.log,
            staging.number,
            staging.application,
        )
        return done._replace(is_replay=True)
    ids = [
        run[0].ledger_id
        if run[0].ledger_id is not None and len(run) == 1
        else _stage_again(options, staging, run)
        for run in _few_enough(options, list(_runs(_in_order(options, made))))
    ]
    done = log.splice(staging, ids, timeout_s=options.commit_s)
    if job_of is not None:
        _check_holder(options, staging, done, job_of)
    # By this very job: it was done, and its answer was lost.
    if done.is_replay and done.job != staging.job and not options.may_replay:
        raise _replayed(options, staging)
    return done


def _replayed(options: SinkOptions, staging: Staging) -> UsageError:
    return UsageError(
        f"log {options.log!r} has transaction {staging.number} of {staging.application!r}, or a later one, already; "
        "nothing was written again",
        hint='a larger txnVersion for other rows; option("onReplay", "skip") passes over what was written',
    )


def _check_holder(
    options: SinkOptions, staging: Staging, done: SpliceOutcome, job_of: Callable[[int], bytes]
) -> None:
    if done.job == job_of(done.number):
        return
    call_off(options, staging)
    raise UsageError(
        f"log {options.log!r}: another query writes as application {staging.application!r}, up to transaction "
        f"{done.number}; nothing of this one was written",
        hint="another txnAppId, or none: then it is the query's id; Log.forget_application() if that query is gone",
    )


def call_off(options: SinkOptions, staging: Staging) -> None:
    """Give up what was staged; what cannot be now is, when its time is over."""
    try:
        log_of(options).unstage(staging)
    except EmbedbkError as failed:
        logger.warning(
            "log %r: what was staged for transaction %d of %r is not given up yet: %s",
            options.log,
            staging.number,
            staging.application,
            failed,
        )


def _in_order(options: SinkOptions, outputs: list[Output]) -> list[Output]:
    """By the ordering column, which is total: rows of staged ledgers stay where they are, so their ranges must not
    overlap; those that travelled are put together. Without one as Spark gives them, in partition order."""
    if not options.order_by:
        return outputs
    if all(output.ledger_id is None for output in outputs):
        table = _sorted(options, (batch for output in outputs for batch in _unpacked(output)))
        assert table is not None
        return [Output(table.num_rows, None, _packed(table.to_batches()), size=table.nbytes)]
    ordered = sorted(outputs, key=lambda output: (output.first, output.last))
    for one, other in zip(ordered, ordered[1:], strict=False):
        if other.first < one.last:
            raise UsageError(
                f"log {options.log!r}: two tasks have rows of the same range of {options.order_by!r}, {one.first!r} to "
                f"{one.last!r} and from {other.first!r} on; nothing was written",
                hint=f'df.repartitionByRange("{options.order_by}") before it is written',
            )
    return ordered


def _runs(outputs: list[Output]) -> Iterator[list[Output]]:
    """Each staged ledger by itself, and what travelled together, as long as no ledger stands in between."""
    run: list[Output] = []
    for output in outputs:
        if run and (output.ledger_id is not None or run[0].ledger_id is not None):
            yield run
            run = []
        run.append(output)
    if run:
        yield run


def _few_enough(options: SinkOptions, runs: list[list[Output]]) -> list[list[Output]]:
    """As many as a transaction takes: neighbours are put together where there are more."""
    if len(runs) <= SPLICE_LEDGERS_MAX:
        return runs
    sizes = [sum(output.size for output in run) for run in runs]
    groups = grouped(sizes, SPLICE_LEDGERS_MAX)
    logger.warning(
        "log %r: %d tasks have made ledgers, and a transaction has at most %d: about %d bytes of them are put together "
        "on the driver; df.coalesce(%d) before it is written spares that",
        options.log,
        len(runs),
        SPLICE_LEDGERS_MAX,
        sum(sizes[number] for group in groups if len(group) > 1 for number in group),
        SPLICE_LEDGERS_MAX,
    )
    return [[output for number in group for output in runs[number]] for group in groups]


def _stage_again(options: SinkOptions, staging: Staging, outputs: list[Output]) -> int:
    """What travelled, and ledgers that are put together, as one ledger."""
    with log_of(options).stage(staging) as writer:
        for output in outputs:
            for batch in _rows_of(options, output):
                append_rows(writer, batch)
    return writer.ledger_id


def _rows_of(options: SinkOptions, output: Output) -> Iterator[pa.RecordBatch]:
    if output.ledger_id is None:
        return _unpacked(output)
    return staged_rows(client_of(options.cluster), output.ledger_id, options.password)


def _sorted(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    there = [batch for batch in batches if batch.num_rows]
    if not there:
        return None
    table = pa.Table.from_batches(there)
    if table.column(options.order_by).null_count:
        raise UsageError(
            f"column {options.order_by!r} says the order, and has a null; nothing was written",
            hint="filter those rows, or give them a place",
        )
    order = table.column(options.order_by)
    if pa.types.is_floating(order.type) and pc.any(pc.is_nan(order)).as_py():
        # Compared with a bound of another task it is neither below nor above.
        raise UsageError(
            f"column {options.order_by!r} says the order, and has a NaN; nothing was written",
            hint="filter those rows, or give them a place",
        )
    return table.sort_by(options.order_by).combine_chunks()


def _packed(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(output: Output) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(output.inline) as stream:
        yield from stream
