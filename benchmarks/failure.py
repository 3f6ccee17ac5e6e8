"""How long does a writer stand still when a bookie of its ensemble dies or hangs, and how long does a takeover take?

A writer keeps a window of appends on their way, and what it waits for is the oldest of them. In the middle of that one
bookie of its ensemble is killed (SIGKILL), or stopped (SIGSTOP): then its connections stay, and say nothing. The value
is the longest time between two moments at which appends were acknowledged, from the fault on; the ceiling is the same
for as long before the fault, because a machine's own pauses are in both. A smaller value is better.

`failure/zmq/kill`, `failure/zmq/stop`: 3/3/2, where the other two acknowledge without it. `.../all`: 3/3/3, where every
append waits for the seat to be another's. `.../replaced`: from the fault until that is so, with 3/3/2: how long entries
have a copy less than was asked for. `failure/zmq/takeover`: another client takes the log over from the writer under
load: fence, read the tail, write it back, close, begin the next ledger. `.../stop`: while one bookie hangs.

Each fault has a cluster of its own, of four bookies; the rows are medians.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import embedbk
from benchmarks import Row, is_wanted, workplace
from benchmarks._load import Load
from embedbk.cluster import Cluster

BOOKIES, COPIES = 4, 3
PAYLOAD = os.urandom(1 << 10)
OUTSTANDING = 64
RUNS = 3
WARM_UP_S = 2.0  # Time for the nodes to measure what is usual.
LOOK_S = 4.0  # Before the fault, and from it on.
FAULTS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
WORK = "failure/zmq"


@dataclass(slots=True)
class Stall:
    """What one fault did."""

    before_ms: float = 0.0  # The longest gap before it.
    after_ms: float = 0.0
    replaced_ms: float | None = None  # None: not while we looked.
    count: int = 0
    load: Load = field(default_factory=Load)


def measure() -> Iterator[Row]:
    with workplace("failure") as directory:
        numbers = itertools.count()
        for fault in FAULTS:
            for acks in (2, 3):
                work = f"{WORK}/{fault}" + ("/all" if acks == COPIES else "")
                wanted = [work] if acks == COPIES else [work, f"{work}/replaced"]
                if is_wanted(*wanted):
                    runs = [stall(directory / f"{next(numbers)}", fault, acks) for _ in range(RUNS)]
                    yield from rows(work, runs, with_replaced=acks != COPIES)
        for work, fault in ((f"{WORK}/takeover", None), (f"{WORK}/takeover/stop", "stop")):
            if is_wanted(work):
                took = [takeover(directory / f"{next(numbers)}", fault) for _ in range(RUNS)]
                yield Row(work, round(statistics.median(took), 1), "ms")


def rows(work: str, runs: list[Stall], *, with_replaced: bool) -> Iterator[Row]:
    after = statistics.median(run.after_ms for run in runs)
    before = statistics.median(run.before_ms for run in runs)
    cpu_us = statistics.median(run.load.cpu_s * 1e6 / run.count for run in runs)
    foreign = statistics.median(run.load.foreign for run in runs)
    yield Row(work, round(after, 1), "ms", round(before, 1), round(cpu_us, 2), foreign=round(foreign, 3))
    replaced = [run.replaced_ms for run in runs if run.replaced_ms is not None]
    if with_replaced and len(replaced) == len(runs):
        yield Row(f"{work}/replaced", round(statistics.median(replaced), 1), "ms", foreign=round(foreign, 3))


def stall(directory: Path, fault: str, acks: int) -> Stall:
    found = Stall()
    with (
        Cluster(directory, bookies=BOOKIES) as cluster,
        embedbk.open(cluster.url) as bk,
        bk.log("failure").writer(ensemble_size=COPIES, write_quorum=COPIES, ack_quorum=acks) as writer,
    ):
        stream = Stream(writer)
        stream.run(WARM_UP_S)
        found.before_ms = stream.run(LOOK_S)
        peer = cluster.processes[victim(bk, writer)]
        pids = [each.pid for each in cluster.processes.values() if each is not peer]
        with Load(directory, pids) as found.load:
            peer.send_signal(FAULTS[fault])
            found.after_ms = stream.run(LOOK_S)
        found.replaced_ms, found.count = stream.replaced_ms, stream.count
        peer.send_signal(signal.SIGKILL)  # Also one that is stopped: nothing waits for it.
    return found


def victim(bk: embedbk.Client, writer: embedbk.LogWriter) -> str:
    """The bookie in the first seat."""
    with bk.open_ledger(writer.ledger_id) as ledger:
        return ledger.metadata.fragments[-1].ensemble[0][0]


class Stream:
    """Appends with a window of them on their way."""

    def __init__(self, writer: embedbk.LogWriter) -> None:
        self.writer = writer
        self.waiting: deque[embedbk.Ticket] = deque()
        self.count = 0  # Appends acknowledged in the last run.
        self.replaced_ms: float | None = (
            None  # From the start of the last run until the ensemble had changed.
        )

    def run(self, seconds: float) -> float:
        """The longest time between two acknowledgements, in milliseconds."""
        longest = 0.0
        began = last = time.perf_counter()
        changes, self.replaced_ms, self.count = self.writer.ensemble_changes, None, 0
        while last < began + seconds:
            while len(self.waiting) < OUTSTANDING:
                self.waiting.append(self.writer.append_nowait(PAYLOAD))
            self.waiting.popleft().result()
            now = time.perf_counter()
            longest, last, self.count = max(longest, now - last), now, self.count + 1
            if self.replaced_ms is None and self.writer.ensemble_changes > changes:
                self.replaced_ms = (now - began) * 1e3
        return longest * 1e3


def takeover(directory: Path, fault: str | None) -> float:
    """Milliseconds until a second client may append."""
    terms = {"ensemble_size": COPIES, "write_quorum": COPIES, "ack_quorum": COPIES - 1}
    with (
        Cluster(directory, bookies=BOOKIES) as cluster,
        embedbk.open(cluster.url) as bk,
        embedbk.open(cluster.url) as other,
    ):
        writer = bk.log("failure").writer(**terms)
        Stream(writer).run(WARM_UP_S)
        peer = cluster.processes[victim(bk, writer)]
        if fault is not None:
            peer.send_signal(FAULTS[fault])
        for _ in range(OUTSTANDING):
            writer.append_nowait(PAYLOAD)
        began = time.perf_counter()
        try:
            other.log("failure").writer(**terms).release()
            return (time.perf_counter() - began) * 1e3
        finally:
            peer.send_signal(signal.SIGCONT)
            writer.release()
