"""How long does an append take while others are on their way? Open loop: ten thousand appends a second, on a schedule.

An append that cannot be sent in time because something stands still is counted from when it should have been sent, so
a pause of ours is in the figures of all that it delayed. One thread keeps the schedule, another takes the time at which
appends are acknowledged; p50, p99 and p99.9 are of all appends of all runs together. The ceiling is the bare probe
(`_bare.py`) under the same schedule: the same processes, threads, sockets and syncs, and no protocol.

A smaller value is better; the ratio is ours over the probe's.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator

import embedbk
from benchmarks import Row, is_wanted, workplace
from benchmarks._bare import Bare, BareLocal, BareProcesses
from benchmarks._load import Load
from embedbk.cluster import Cluster

COPIES, ACKS = 3, 2
RATE = 10_000  # Appends a second.
RUN_S = 4.0
RUNS = 3  # Runs of each side, in turns.
WARM_UP_S = 1.0
PAYLOAD_BYTES = 1 << 10
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}

_PR_SET_TIMERSLACK = 29


def measure() -> Iterator[Row]:
    with workplace("latency") as directory:
        if is_wanted(*works("open_loop/zmq/1KiB")):
            with Cluster(directory / "zmq", bookies=COPIES) as cluster, embedbk.open(cluster.url) as bk:
                bare = BareProcesses(directory / "bare-zmq", COPIES, acks=ACKS)
                pids = [peer.pid for peer in cluster.processes.values()]
                yield from rows("open_loop/zmq/1KiB", bk, bare, lambda: Load(directory, pids))
        if is_wanted(*works("open_loop/local/1KiB")):
            with embedbk.open(directory / "local", bookies=COPIES) as bk:
                bare = BareLocal(directory / "bare", COPIES, acks=ACKS)
                yield from rows("open_loop/local/1KiB", bk, bare, lambda: Load(directory))


def works(work: str) -> list[str]:
    return [f"{work}/{name}" for name in QUANTILES]


def rows(work: str, bk: embedbk.Client, bare: Bare, make_load: Callable[[], Load]) -> Iterator[Row]:
    payload = os.urandom(PAYLOAD_BYTES)
    ours, ceiling = array("q"), array("q")
    loads: list[Load] = []
    try:
        with bk.log("open-loop").writer() as writer:

            def run_ours(seconds: float) -> array[int]:
                return on_schedule(writer, payload, seconds)

            def run_bare(seconds: float) -> array[int]:
                first = bare.done_count
                return latencies(
                    lambda: bare.submit(payload),
                    lambda number: bare.wait(first + number + 1),
                    lambda: bare.done_count - first,
                    seconds,
                )

            run_ours(WARM_UP_S), run_bare(WARM_UP_S)
            for number in range(RUNS):
                if number % 2:
                    ceiling += run_bare(RUN_S)
                with make_load() as load:
                    ours += run_ours(RUN_S)
                loads.append(load)
                if not number % 2:
                    ceiling += run_bare(RUN_S)
                load.check_flushes(int(RUN_S))
    finally:
        bare.close()
    count = int(RATE * RUN_S)
    cpu_us = statistics.median(load.cpu_s for load in loads) * 1e6 / count
    foreign = statistics.median(load.foreign for load in loads)
    ours_sorted, ceiling_sorted = sorted(ours), sorted(ceiling)
    print(
        f"{work}: longest {ours_sorted[-1] / 1e6:.1f} ms, probe {ceiling_sorted[-1] / 1e6:.1f} ms",
        file=sys.stderr,
    )
    for name, quantile in QUANTILES.items():
        value, bare_value = (
            side[min(len(side) - 1, int(quantile * len(side)))] / 1000
            for side in (ours_sorted, ceiling_sorted)
        )
        yield Row(
            f"{work}/{name}",
            round(value, 1),
            "us",
            round(bare_value, 1),
            round(cpu_us, 2),
            foreign=round(foreign, 3),
        )


def on_schedule(writer: embedbk.LogWriter, payload: bytes, seconds: float) -> array[int]:
    """`latencies` of a log's writer, which may roll meanwhile."""
    first = writer.first_offset + writer.lac + 1
    # Let go of when it is over: forty thousand that are kept are a collection of Python's by themselves, whose pause
    # (14 to 38 ms here) would be taken for ours. The probe keeps nothing either.
    tickets: deque[embedbk.Ticket] = deque()
    oldest = 0

    def wait(number: int) -> None:
        nonlocal oldest
        while oldest < number:
            tickets.popleft()
            oldest += 1
        tickets[0].result()

    def done_count() -> int:
        # The offset comes first, so that a roll in between makes it too small; but the one that was waited for is done.
        begins_at = writer.first_offset
        return max(oldest + 1, begins_at + writer.lac + 1 - first)

    return latencies(lambda: tickets.append(writer.append_nowait(payload)), wait, done_count, seconds)


def latencies(
    send: Callable[[], object], wait: Callable[[int], object], done_count: Callable[[], int], seconds: float
) -> array[int]:
    """Nanoseconds from when each append should have been sent to when it was seen to be done.

    wait: until this append of the run, counted from 0, is done. done_count: how many of them are done, in order.
    """
    count = int(RATE * seconds)
    interval_ns = 1_000_000_000 // RATE
    begin_ns = time.perf_counter_ns() + 10_000_000
    found = array("q", bytes(8 * count))
    sent = 0

    def watch() -> None:
        seen = 0
        fine_sleep()
        while seen < count:
            while sent <= seen:  # Nothing is on its way: the next is sent at the next beat.
                time.sleep(interval_ns / 1e9)
            wait(seen)
            done, now_ns = done_count(), time.perf_counter_ns() - begin_ns
            for number in range(seen, done):
                found[number] = now_ns - number * interval_ns
            seen = done

    watcher = threading.Thread(target=watch)
    watcher.start()
    fine_sleep()
    while sent < count:
        due = min(count, (time.perf_counter_ns() - begin_ns) // interval_ns + 1)
        while sent < due:
            send()
            sent += 1
        time.sleep(max(0, begin_ns + sent * interval_ns - time.perf_counter_ns()) / 1e9)
    watcher.join()
    return found


def fine_sleep() -> None:
    """Have this thread's sleeps end when they should, not up to 50 microseconds later."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
