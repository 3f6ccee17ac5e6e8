"""The demo's writer process: takes the log over, appends lines from where it ends, says what is acknowledged.

It is an ordinary user of embedbk: everything here is public interface. It stands by after `open`, and goes when it is
told; which line comes next it learns from the log alone. How far it may go is told too, so that a short input is not
over before a signal arrives.

    told:  open URL | go LIMIT | limit LIMIT      a line each on standard input; its end ends the process
    tells: one JSON object a line on standard output, "event" says which
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import embedbk
from embedbk.client.log_writer import LogWriter
from embedbk.demo.lines import Lines
from embedbk.errors import EmbedbkError

__all__ = ["AFTER_ALL", "LOG", "die_with_starter", "main"]

LOG = "demo"
BATCH = 128  # Lines between two looks at what is acknowledged.
BATCHES_IN_FLIGHT_MAX = 32
AFTER_ALL = b"a writer that was taken over goes on\n"  # What it appends when no line is left.


PR_SET_PDEATHSIG = 1


def die_with_starter() -> None:
    """The kernel kills this process when the one that started it is gone, however that ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


class _Starter:
    """The other end of the pipes."""

    def __init__(self) -> None:
        # The end of the pipe is not enough for a process that may be stopped when its starter is killed.
        die_with_starter()

    def hear(self) -> list[str]:
        line = sys.stdin.readline()
        if not line:
            os._exit(0)  # Gone. Nothing is to be said or closed any more, as after a kill.
        return line.split()

    def tell(self, event: str, **facts: Any) -> None:
        try:
            sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)


def main(path: str) -> None:
    starter = _Starter()
    lines = Lines(Path(path))
    _, url = starter.hear()
    with embedbk.open(url) as bk:
        starter.tell("ready")
        _, limit = starter.hear()
        began = time.monotonic()
        with bk.log(LOG).writer(ensemble_size=3, write_quorum=3, ack_quorum=2) as writer:
            took_ms = (time.monotonic() - began) * 1000
            starter.tell(
                "owner",
                ledger_id=writer.ledger_id,
                first_offset=writer.first_offset,
                epoch=writer.epoch,
                took_ms=took_ms,
            )
            _Writing(writer, lines, starter, int(limit)).run()
    starter.tell("done")


class _Writing:
    def __init__(self, writer: LogWriter, lines: Lines, starter: _Starter, limit: int) -> None:
        self.writer = writer
        self.lines = lines
        self.starter = starter
        self.limit = limit
        self.next_line = writer.first_offset  # One entry a line: the log's end says which comes next.
        self.tickets: deque[embedbk.Ticket] = deque()

    def run(self) -> None:
        try:
            while self.next_line < len(self.lines):
                if self.next_line >= self.limit:
                    self._acknowledge(0)
                    # A takeover may have found the log there: nothing is appended, and the starter waits for a word.
                    self._report()
                    _, limit = self.starter.hear()
                    self.limit = int(limit)
                self._append_batch()
                self._acknowledge(BATCHES_IN_FLIGHT_MAX)
            self._acknowledge(0)
        except EmbedbkError as error:
            self._tell_refusal(error)

    def _append_batch(self) -> None:
        end = min(self.next_line + BATCH, self.limit, len(self.lines))
        ticket = None
        for number in range(self.next_line, end):
            ticket = self.writer.append_nowait(self.lines[number])
            self.next_line = number + 1
        if ticket is not None:
            self.tickets.append(ticket)

    def _acknowledge(self, in_flight_max: int) -> None:
        """Wait until at most so many batches are in flight, and report how far the log is acknowledged."""
        if len(self.tickets) <= in_flight_max:
            return
        while len(self.tickets) > in_flight_max:
            self.tickets.popleft().result()
        while self.tickets and self.tickets[0].done():
            self.tickets.popleft().result()
        self._report()

    def _report(self) -> None:
        writer = self.writer
        self.starter.tell(
            "acknowledged",
            count=writer.first_offset + writer.lac + 1,
            ensemble_changes=writer.ensemble_changes,
        )

    def _tell_refusal(self, in_flight: EmbedbkError) -> None:
        """Somebody took the log over. What was in flight failed; what of the next append?"""
        number = self.next_line
        try:
            self.writer.append(self.lines[number] if number < len(self.lines) else AFTER_ALL)
        except EmbedbkError as refused:
            self.starter.tell(
                "refused",
                error=type(refused).__name__,
                message=str(refused),
                definite=refused.definite,
                in_flight=type(in_flight).__name__,
            )
        else:
            self.starter.tell("appended", count=number)
        self.writer.release()


if __name__ == "__main__":
    main(sys.argv[1])
