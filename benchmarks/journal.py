"""What does the journal cost beyond the device? Submitted and awaited, streamed and replayed from C.

The ceiling is a raw probe in the same run: synced writes into a zero-filled file, each handed to a thread of the same
scheduling class and back, without records, sums and file changes. Both sides are measured in alternation (A B B A)
because the device's own figure moves within a minute; the row is the pair with the median ratio.

At depth 1 both threads that write stand on one processor and the caller on another: left to the scheduler, each side
draws its place once and keeps it, and the draw alone made ratios from 0.75 to 1.4 between runs of two equal sides. A
stream needs both processors for building and submitting beside the writes, so there nothing is pinned.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import Row, is_wanted, workplace
from embedbk.storage.journal import Journal
from embedbk.storage.probe import DeviceProbe, journal_replay, journal_stream, journal_writes

BLOCK_BYTES = 4096
HEADERS_BYTES = 64 + 24  # The headers of a group and of a record.
BODY_BYTES = BLOCK_BYTES - HEADERS_BYTES  # Exactly one block.
PAIR_COUNT = 11
WRITE_COUNT = 1500
FILE_BYTES = 16 << 20
WARM_UP_COUNT = 3 * FILE_BYTES // BLOCK_BYTES  # From then on every file is a recycled one.

GROUP_BYTES = 1 << 20
STREAM_BODY_BYTES = 1024
GROUP_RECORDS = (GROUP_BYTES - 64) // (24 + STREAM_BODY_BYTES)
STREAM_COUNT = 200 * GROUP_RECORDS
REPLAY_BYTES = 256 << 20


def measure() -> Iterator[Row]:
    """`journal/depth1`, `journal/saturated/1KiB`, `journal/replay`."""
    for work, question in (
        ("journal/depth1", depth1),
        ("journal/saturated/1KiB", saturated),
        ("journal/replay", replay),
    ):
        if is_wanted(work):
            with workplace("journal") as directory:
                yield question(directory)


def depth1(directory: Path) -> Row:
    processors = os.sched_getaffinity(0)
    body = (bytes(range(256)) * 16)[:BODY_BYTES]
    os.sched_setaffinity(0, {max(processors)})  # Inherited by the threads that are made now.
    journal = Journal(directory / "journal", file_bytes=FILE_BYTES)
    probe = DeviceProbe(
        directory / "probe", write_bytes=BLOCK_BYTES, direct=journal.direct, dsync=journal.direct
    )
    try:
        os.sched_setaffinity(0, {min(processors)})
        pairs = list(alternate(journal, probe, body))
    finally:
        os.sched_setaffinity(0, processors)
        probe.close()
        facts = journal.facts()
        journal.close()
    print(f"journal: {facts.sync_method}, real-time class: {facts.realtime}", file=sys.stderr)
    value, ceiling, cpu_us = median_pair(pairs)
    return Row("journal/depth1", round(value, 1), "writes/s", round(ceiling, 1), cpu_us_per_entry=cpu_us)


def saturated(directory: Path) -> Row:
    """Records of 1 KiB as fast as the queue takes them, against raw writes of the largest group, two handed over."""
    body = os.urandom(STREAM_BODY_BYTES)
    journal = Journal(directory / "journal", file_bytes=4 * FILE_BYTES)
    probe = DeviceProbe(
        directory / "probe", write_bytes=GROUP_BYTES, direct=journal.direct, dsync=journal.direct
    )
    try:
        for _ in range(2):
            journal_stream(journal, body, STREAM_COUNT)  # Then every file is a recycled one.
        pairs = []
        for number in range(PAIR_COUNT):
            sides: list[Callable[[], None]] = [
                lambda: journal_stream(journal, body, STREAM_COUNT),
                lambda: probe.stream(STREAM_COUNT // GROUP_RECORDS),
            ]
            value, ceiling = measured(sides, STREAM_COUNT, reverse=number % 2 == 1)
            pairs.append((value, ceiling))
        facts = journal.facts()
    finally:
        probe.close()
        journal.close()
    print(f"journal: {facts.overlap_count} of {facts.group_count} groups built ahead", file=sys.stderr)
    value, ceiling, cpu_us = median_pair(pairs)
    return Row("journal/saturated/1KiB", round(value), "entries/s", round(ceiling), cpu_us_per_entry=cpu_us)


def replay(directory: Path) -> Row:
    """Bytes of bodies per second, sums checked, of a journal of frames of 64 KiB that no cache holds."""
    body = os.urandom(64 << 10)
    with Journal(directory / "journal", file_bytes=4 * FILE_BYTES) as journal:
        for number in range(REPLAY_BYTES // len(body)):
            token = journal.append(1, 1, body, kick=False)
            if number % 256 == 0:
                journal.wait(token)
    rates, cpu_us = [], []
    for _ in range(5):
        with Journal(directory / "journal", file_bytes=4 * FILE_BYTES) as journal:
            begin, begin_cpu = time.perf_counter_ns(), time.process_time_ns()
            size = journal_replay(journal, 0)
            rates.append(size * 1e3 / (time.perf_counter_ns() - begin))
            cpu_us.append((time.process_time_ns() - begin_cpu) / 1e3 / (size // len(body)))
    print("MB/s: " + " ".join(f"{rate:.0f}" for rate in rates), file=sys.stderr)
    return Row(
        "journal/replay",
        round(statistics.median(rates)),
        "MB/s",
        cpu_us_per_entry=round(statistics.median(cpu_us), 2),
    )


Side = tuple[float, float]  # Per second; processor time per entry in us.


def median_pair(pairs: list[tuple[Side, Side]]) -> tuple[float, float, float]:
    """Value and ceiling of the pair with the median ratio; the median processor time per entry of all values."""
    ratios = [value[0] / ceiling[0] for value, ceiling in pairs]
    print("ratios: " + " ".join(f"{ratio:.3f}" for ratio in ratios), file=sys.stderr)
    value, ceiling = pairs[ratios.index(statistics.median_low(ratios))]
    return value[0], ceiling[0], round(statistics.median(each[0][1] for each in pairs), 3)


def alternate(journal: Journal, probe: DeviceProbe, body: bytes) -> Iterator[tuple[Side, Side]]:
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
        yield measured([by_journal, by_probe], WRITE_COUNT, reverse=number % 2 == 1)


def measured(sides: list[Callable[[], None]], count: int, *, reverse: bool) -> tuple[Side, Side]:
    """Both sides, one behind the other, in this order or the other."""
    results: dict[int, Side] = {}
    for index in (1, 0) if reverse else (0, 1):
        begin, begin_cpu = time.perf_counter_ns(), time.process_time_ns()
        sides[index]()
        taken, cpu = time.perf_counter_ns() - begin, time.process_time_ns() - begin_cpu
        results[index] = (count * 1e9 / taken, cpu / 1e3 / count)
    return results[0], results[1]
