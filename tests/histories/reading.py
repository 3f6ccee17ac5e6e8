"""Readers, tails, consumers and whoever truncates: the processes of the histories that do not append."""

from __future__ import annotations

import contextlib
import time

from embedbk.client.batches import Entry
from embedbk.errors import EmbedbkError, NotTruncated, Truncated
from embedbk.testing.log_events import CutAsked, LogCut
from tests.histories.process import CURSORS, Process, Seeing

__all__ = ["consume", "cut", "read", "recover"]


def read(process: Process) -> None:
    """Readers read from the beginning, or from a place; tails go on from where they are."""
    known, chance, log = 0, process.chance, process.log
    for _ in process.rounds():
        process.pause(1.0)
        match chance.choice(["read", "read", "from", "tail", "tail", "bulk"]):
            case "read" | "from" as how:
                start = None if how == "read" else chance.randint(0, known)
                seeing = process.reading("read", start)
                with seeing.judged():
                    seeing.all_of(log.read(start))
                    seeing.ended("end")
            case "tail":
                seeing = process.reading("tail", known)
                with seeing.judged():
                    left = chance.randint(1, 3000)
                    with contextlib.closing(log.tail(known, idle_s=chance.uniform(0.2, 2.0))) as entries:
                        for entry in entries:
                            seeing.see(entry)
                            left -= 1
                            if not left or process.ends.is_set():
                                break
                    seeing.flush()
                    seeing.ended("left")
            case _:
                seeing = read_bulk(process, known)
        if seeing.next is not None:
            known = seeing.next


def read_bulk(process: Process, known: int) -> Seeing:
    """The same without an object for each entry, by several calls of one reader."""
    chance = process.chance
    start = chance.choice([None, known])
    seeing = process.reading("bulk", start)
    with seeing.judged(), process.log.reader("earliest" if start is None else start) as reader:
        for _ in range(chance.randint(1, 20)):
            bulk = reader.read_bulk(max_entries=chance.choice([1, 50, 5000]), wait_s=chance.choice([0, 0.5]))
            for batch in bulk.batches:
                records: dict[int, list[memoryview]] = {}
                for number, entry_id in enumerate(batch.ids):
                    part = batch.data[batch.ends[number] : batch.ends[number + 1]]
                    records.setdefault(entry_id, []).append(part)
                for entry_id, parts in records.items():
                    seeing.see(BulkEntry(batch.ledger_id, entry_id, batch.first_offset + entry_id, parts))
            seeing.flush()
            if process.ends.is_set():
                break
        seeing.ended("left")
    return seeing


class BulkEntry(Entry):
    """An entry of a bulk, by its parts alone."""

    def __init__(self, ledger_id: int, entry_id: int, offset: int, parts: list[memoryview]) -> None:
        super().__init__(ledger_id, entry_id, offset, parts[0])
        self._parts = parts

    @property
    def parts(self) -> list[memoryview]:
        return self._parts


def consume(process: Process) -> None:
    """Consumers take one of two cursors, whichever they draw; an entry is written down before the next is asked for."""
    chance = process.chance
    for _ in process.rounds():
        process.pause(0.3)
        name, asked_ns = chance.choice(CURSORS), time.monotonic_ns()
        commit_s = chance.choice([0.0, 0.2, 1.0, float("inf")])
        cursor, left = process.log.cursor(name), chance.randint(1, 4000)
        seeing = None
        try:
            with cursor.consume(timeout_s=1.0, idle_s=0.3, commit_s=commit_s) as consumer:
                seeing = process.reading("consume", consumer.position, name, asked_ns)
                for entry in consumer:
                    left -= 1
                    if not left or process.ends.is_set():
                        break  # It is not consumed, so it comes again.
                    seeing.see(entry, 1)
                    if left % 500 == 0:
                        consumer.commit()
                        seeing.committed(consumer.committed)
            seeing.committed(consumer.committed)
            seeing.ended("left")
        except Truncated as gone:
            assert seeing is not None
            seeing.ended("truncated", gone.first_offset)
        except EmbedbkError as failed:
            if seeing is not None:
                seeing.ended("failed", why=f"{type(failed).__name__}: {failed}")


def cut(process: Process) -> None:
    """Somebody truncates whatever may go, and leaves some of what is behind the cursors now and then."""
    chance = process.chance
    for _ in process.rounds():
        process.pause(2.0)
        try:
            before = max(0, process.log.end() - chance.choice([0, 300, 3000]))
            process.write(CutAsked(time.monotonic_ns(), before))
            reached = process.log.truncate(before).reached
        except NotTruncated as held:
            reached = held.truncation.reached
        except EmbedbkError:
            continue
        process.write(LogCut(time.monotonic_ns(), reached))


def recover(process: Process) -> None:
    """Somebody recovers the newest ledger by its id. Its writer goes on in another one, with all that was outstanding
    (P8.2)."""
    for _ in process.rounds():
        process.pause(4.0)
        with contextlib.suppress(EmbedbkError):
            for segment in process.log.segments()[-1:]:
                process.client.open_ledger(segment.ledger_id, recover=True).close()
