"""What does the journal cost beyond the device? One record at a time, submitted and awaited from C.

The ceiling is a raw probe in the same run: synced writes of the same 4 KiB into a zero-filled file, each handed to a
thread of the same scheduling class and back, without records, sums and file changes. Both sides are measured in
alternation (A B B A) because the device's own figure moves within a minute; the row is the pair with the median ratio.

Both threads that write stand on one processor and the caller on another: left to the scheduler, each side draws its
place once and keeps it, and the draw alone made ratios from 0.75 to 1.4 between runs of two equal sides.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import Row, workplace
from embedbk.storage.journal import Journal
from embedbk.storage.probe import DeviceProbe, journal_writes

BLOCK_BYTES = 4096
BODY_BYTES = BLOCK_BYTES - 64 - 24  # With the headers of group and record: exactly one block.
PAIR_COUNT = 11
WRITE_COUNT = 1500
WARM_UP_COUNT = 3 * 4096  # Three files of 16 MiB: from then on every file is a recycled one.


def measure() -> Iterator[Row]:
    """The row `journal/depth1`: synced records per second against synced raw writes per second."""
    with workplace("journal") as directory:
        yield depth1(directory)


def depth1(directory: Path) -> Row:
    processors = os.sched_getaffinity(0)
    body = (bytes(range(256)) * 16)[:BODY_BYTES]
    os.sched_setaffinity(0, {max(processors)})  # Inherited by the threads that are made now.
    journal = Journal(directory / "journal")
    probe = DeviceProbe(directory / "probe", write_bytes=BLOCK_BYTES, direct=journal.direct)
    try:
        os.sched_setaffinity(0, {min(processors)})
        pairs = list(alternate(journal, probe, body))
    finally:
        os.sched_setaffinity(0, processors)
        probe.close()
        facts = journal.facts()
        journal.close()
    print(f"journal: {facts.sync_method}, real-time class: {facts.realtime}", file=sys.stderr)
    ratios = [value / ceiling for value, ceiling in pairs]
    print("ratios: " + " ".join(f"{ratio:.3f}" for ratio in ratios), file=sys.stderr)
    value, ceiling = pairs[ratios.index(statistics.median_low(ratios))]
    return Row("journal/depth1", round(value, 1), "writes/s", round(ceiling, 1))


def alternate(journal: Journal, probe: DeviceProbe, body: bytes) -> Iterator[tuple[float, float]]:
    """(journal, probe) in writes per second, pair after pair, in the order A B B A."""

    def by_journal() -> None:
        journal_writes(journal, body, WRITE_COUNT)
        journal.trim(journal.durable())

    def by_probe() -> None:
        probe.writes(WRITE_COUNT)

    for _ in range(WARM_UP_COUNT // WRITE_COUNT):
        by_journal()
    by_probe()
    for number in range(PAIR_COUNT):
        if number % 2:
            ceiling, value = rate(by_probe), rate(by_journal)
        else:
            value, ceiling = rate(by_journal), rate(by_probe)
        yield value, ceiling


def rate(work: Callable[[], None]) -> float:
    begin = time.perf_counter_ns()
    work()
    return WRITE_COUNT * 1e9 / (time.perf_counter_ns() - begin)
