"""One process that uses the log of the histories: its history, its chance, and when it is time to end."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import embedbk
from embedbk.client.batches import Entry
from embedbk.codec.attributes import time_of
from embedbk.errors import EmbedbkError, Truncated
from embedbk.testing.log_events import (
    CursorCommitted,
    EntriesSeen,
    LogEvent,
    ReadAsked,
    ReadEnded,
    events_in,
    line_of,
)
from tests.histories.payloads import text_of_parts

__all__ = ["CURSORS", "LOG", "HistoryFile", "Process", "Seeing", "read_history"]

LOG = "histories"
CURSORS = ("first", "second")
# Sessions are short, so that a process that is stopped is given up now and then.
SETTINGS = embedbk.Settings(
    open_timeout_s=60.0, operation_timeout_s=20.0, session_ttl_ms=2500, delete_grace_s=0.0
)
END_S = 300.0  # A process that is told to end and has not ended by then hangs: its stacks show where.
RUN_ENTRIES = 200  # Of one line.


class HistoryFile:
    """Where one process writes its events. What was written stays when the process is killed; nothing is synced."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, event: LogEvent) -> None:
        rest = memoryview(line_of(event))
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def close(self) -> None:
        os.close(self._fd)


def read_history(path: Path) -> list[LogEvent]:
    return events_in(path.read_bytes(), str(path))


class Process:
    """What all roles have: the log, the history, chance, and whether it is time to end."""

    def __init__(self, url: str, name: str, incarnation: int, seed: int, directory: Path) -> None:
        self.name, self.incarnation, self.directory = name, incarnation, directory
        self.chance = random.Random(f"{seed} {name} {incarnation}")
        self.history = HistoryFile(directory / f"{name}.{incarnation}.history")
        self.ends = threading.Event()
        threading.Thread(target=self._watch_input, daemon=True).start()
        self.client = self._open(url)
        self.log = self.client.log(LOG)
        self._readings = 0

    def _watch_input(self) -> None:
        """Whoever started this process holds the other end; it ends with them, too."""
        while os.read(sys.stdin.fileno(), 1):
            pass
        faulthandler.dump_traceback_later(END_S, exit=True)
        self.ends.set()

    def _open(self, url: str) -> embedbk.Client:
        # Of those that wait for a second, ledgers fail now and then, and their logs go on (P8.2).
        settings = replace(SETTINGS, quorum_wait_s=self.chance.choice([1.0, 5.0]))
        while True:
            try:
                return embedbk.open(url, settings=settings)
            except EmbedbkError:
                if self.ends.wait(0.1):
                    raise SystemExit(0) from None

    def write(self, event: LogEvent) -> None:
        self.history.write(event)

    def pause(self, seconds_max: float) -> None:
        self.ends.wait(self.chance.uniform(0, seconds_max))

    def rounds(self) -> Iterator[None]:
        """One for each turn of a role's loop, until it is time to end. What fails is tried again soon."""
        while not self.ends.is_set():
            yield

    def reading(self, kind: str, start: int | None, cursor: str = "", asked_ns: int | None = None) -> Seeing:
        self._readings += 1
        return Seeing.begin(self.write, self._readings, kind, start, cursor, asked_ns)


class Seeing:
    """One reading: gathers entries that follow each other in one ledger into one line."""

    def __init__(self, write: Callable[[LogEvent], None], number: int) -> None:
        self._write, self._number = write, number
        self._run: list[Entry] = []
        self.next: int | None = None

    @classmethod
    def begin(
        cls,
        write: Callable[[LogEvent], None],
        number: int,
        kind: str,
        start: int | None,
        cursor: str = "",
        asked_ns: int | None = None,
    ) -> Self:
        """asked_ns: when a consumer asked for its cursor, which it has now."""
        now_ns = time.monotonic_ns()
        write(ReadAsked(asked_ns or now_ns, now_ns, number, kind, start, cursor))
        return cls(write, number)

    def see(self, entry: Entry, at_most: int = RUN_ENTRIES) -> None:
        last = self._run[-1] if self._run else None
        if last is not None and (
            entry.ledger_id != last.ledger_id
            or entry.entry_id != last.entry_id + 1
            or entry.offset != last.offset + 1
        ):
            self.flush()
        self._run.append(entry)
        if len(self._run) >= at_most:
            self.flush()

    def flush(self) -> None:
        if not self._run:
            return
        first, times = self._run[0], []
        for number, entry in enumerate(self._run):
            told = time_of(entry._attributes)
            if told is not None:
                times.append((number, told))
        texts = tuple(text_of_parts([bytes(part) for part in entry.parts]) for entry in self._run)
        self.next = self._run[-1].offset + 1
        self._run.clear()
        seen = EntriesSeen(
            time.monotonic_ns(),
            self._number,
            first.offset,
            first.ledger_id,
            first.entry_id,
            texts,
            tuple(times),
        )
        self._write(seen)

    def all_of(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.see(entry)
        self.flush()

    def ended(self, how: str, first_offset: int | None = None, why: str = "") -> None:
        self._write(ReadEnded(time.monotonic_ns(), self._number, how, first_offset, why))

    def committed(self, offset: int) -> None:
        self._write(CursorCommitted(time.monotonic_ns(), self._number, offset))

    @contextlib.contextmanager
    def judged(self) -> Iterator[None]:
        """Whatever ends the reading is written down; what is left of its entries first."""
        try:
            yield
        except Truncated as gone:
            self.flush()
            self.ended("truncated", gone.first_offset)
        except EmbedbkError as failed:
            self.flush()
            self.ended("failed", why=f"{type(failed).__name__}: {failed}")
