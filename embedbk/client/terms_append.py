"""One append on terms: behind a place that is expected to stand last, with the id that its caller expects, under a
producer's sequence, within a time; or of a batch, whose parts are one entry (P3.1).

Finds an append that was done before, and queues one that was not; finding and queueing are one step for all callers.
Leaves to `past` what the terms mean in this ledger, to the packer whether the entry that is expected is the next one,
and to the handle (`appending`) whether appends are taken at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from embedbk.client.compression import squeezed
from embedbk.client.past import PRODUCERS_LOCK, pair
from embedbk.client.tickets import AppendTerms
from embedbk.client.waiting import Moved
from embedbk.codec.attributes import Producer, encode_attributes
from embedbk.codec.packer import PACKER_CONFLICT
from embedbk.codec.packing import Buffer
from embedbk.errors import AppendConflict, OperationTimeout, UsageError
from embedbk.ids import NO_ENTRY, Position

if TYPE_CHECKING:
    from embedbk.client.appending import Appending

__all__ = ["front_is_done", "queue_on"]


async def queue_on(
    handle: Appending,
    terms: AppendTerms,
    data: Buffer,
    part_ends: Sequence[int],
    records: bytes,
    until_s: float,
    told: list[int],
) -> Position:
    """Queue one entry on these terms, or find its position if it was appended already.

    told: gets the id as the entry is queued."""
    producer = Producer(*pair(terms.producer, "producer")) if terms.producer is not None else None
    attributes = encode_attributes(part_ends, producer, records)
    if handle.compression is not None:
        attributes, data = squeezed(attributes, data) or (attributes, data)
    expected = handle.past.expected(terms, handle.ledger_id)
    if producer is not None and not handle.past.are_producers_known:
        await handle.past.learn(handle.what, handle.runtime.clock_s, terms.timeout_s, until_s)
    writing = handle.writing
    while True:
        if handle.is_over or handle.runtime.is_forked:
            handle.refuse()
        if handle.bar is not None and producer is not None:  # The log has what it appended before.
            with PRODUCERS_LOCK:
                known = handle.producers.find(producer)
            if known is not None:
                return known
        if handle.bar is not None and handle.is_barred():
            entry_id = NO_ENTRY
        elif producer is None and expected < 0:
            entry_id = writing.try_append_with(data, attributes, expected, told)
        else:
            with PRODUCERS_LOCK:
                found = _find_or_queue(handle, terms, producer, expected, (data, attributes), told)
            if isinstance(found, Position):
                return found
            entry_id = found
        if entry_id >= 0:
            return Position(handle.ledger_id, entry_id)
        if entry_id == PACKER_CONFLICT:
            _conflict(handle, terms)
        if handle.runtime.clock_s() >= until_s:
            raise OperationTimeout(
                f"{handle.what}: no room within {terms.timeout_s:g} s for one more append; nothing was appended",
                definite=True,
                hint="as many bytes are in flight, or in the log, as are allowed: try again in a moment",
            )
        await handle.room()


def _find_or_queue(
    handle: Appending,
    terms: AppendTerms,
    producer: Producer | None,
    expected: int,
    entry: tuple[Buffer, bytes],
    told: list[int],
) -> Position | int:
    """Where the entry stands already; else queue it, and note it: its id, or why not. Held locked, by a lock that lets
    a signal handler of this thread in."""
    producers = handle.producers
    before = producers.begun
    try:
        if producer is not None:
            producers.begin(producer)
            held = producers.find(producer)
            if held is not None:
                return held
        entry_id = handle.writing.try_append_with(*entry, expected, told)
        _note(handle, terms, producer, expected, told)
        return entry_id
    except BaseException:
        # A signal handler raised behind the append: the entry that is queued is found by the next try.
        _note(handle, terms, producer, expected, told)
        raise
    finally:
        producers.begun = before


def _note(
    handle: Appending, terms: AppendTerms, producer: Producer | None, expected: int, told: list[int]
) -> None:
    """What is to be found of an entry that was queued; noted twice, it is noted once. Held locked."""
    if told and producer is not None:
        handle.producers.note(producer, Position(handle.ledger_id, told[0]))
    if told and expected >= 0 and handle.writing.on_failed is not None:
        handle.past.note_bound(told[0], handle.writing.lac, names_id=terms.entry_id is not None)


def _conflict(handle: Appending, terms: AppendTerms) -> NoReturn:
    last = handle.last_position
    if terms.after is None:
        raise UsageError(
            f"{handle.what}: entry_id={terms.entry_id} was expected, the next is {handle.writing.packer.next_entry}; "
            "nothing was appended"
        )
    conflict = AppendConflict(
        f"{handle.what}: after={tuple(terms.after)} was expected to stand last, {tuple(last)} does; nothing was "
        "appended",
        hint="read what was appended since, then decide anew",
    )
    conflict.last_position = last
    raise conflict


async def front_is_done(handle: Appending, timeout_s: float | None, until_s: float) -> None:
    """Wait until all that was appended to the ledger before is acknowledged (P8.2): what an append found there may be
    on its way yet. Raises HandedOver where that ledger failed: what was appended there stands elsewhere by now, or
    nowhere."""
    writing = handle.writing
    left_s = None if timeout_s is None else max(0.0, until_s - handle.runtime.clock_s())
    is_settled = Moved(writing.signal, lambda: writing.behind is None or writing.error is not None, left_s)
    if not await is_settled:
        raise OperationTimeout(
            f"{handle.what}: what was appended under this sequence was not acknowledged within {timeout_s:g} s",
            hint="append it again: it is there once",
        )
    if writing.behind is not None:
        raise writing.stop_error()
