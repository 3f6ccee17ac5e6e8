"""What does going on in a next ledger cost those who append, and who follows the log?

`log/rolling`: one call an entry of 1 KiB, with two thousand outstanding, into a log that rolls after each 10,000
entries. Its ceiling is the same log without rolls. At most 5 % is the aim. A roll that is not ready in time comes
later, so stderr says how many there were.

`log/rolling_p99`: the 99.9th percentile of appends on a schedule, ten thousand a second (`latency`), with a roll in
each second. Its ceiling is the same schedule without rolls; a smaller value is better, and twice as much is the aim.

`log/tail_roll`: from the moment in which an append returned until a reader in another process, which follows the log,
has the entry: the median of entries that are the first of their ledger. Its ceiling is the median of all others of the
same run; a smaller value is better, and at most 2 ms more is the aim. Rolls come by themselves, beside the appends.

Both sides of the first two take turns, A B B A; the row is the pair with the median ratio.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from array import array

import embedbk
from benchmarks import Row
from benchmarks._bare_reads import NUMBER, arrivals, ended
from benchmarks.append import (
    PIPELINED_COUNT,
    Measured,
    Place,
    alternate,
    append_pipelined,
    median_row,
)
from benchmarks.latency import RATE, on_schedule
from benchmarks.reading import started

__all__ = ["ROLLING", "ROLLING_P99", "TAIL_ROLL", "rolling_p99_row", "rolling_row", "tail_roll_row"]

ROLLING, ROLLING_P99, TAIL_ROLL = "log/rolling", "log/rolling_p99", "log/tail_roll"
PAYLOAD = os.urandom(1 << 10)
EACH = embedbk.Roll(bytes=None, entries=10_000)
NONE = embedbk.Roll(bytes=None)
PAIRS = 7
RUN_S = 4.0  # On the schedule.
TAIL_EACH = embedbk.Roll(bytes=None, entries=25)
TAIL_COUNT = 2_000
TAIL_PAUSE_S = 0.002
TAIL_SKIPPED = 100  # The first ones: links are dialled, memory is touched.


def rolling_row(bk: embedbk.Client, place: Place) -> Row:
    ledgers = []
    with bk.log("rolling").writer(roll=EACH) as rolling, bk.log("not-rolling").writer(roll=NONE) as other:

        def ours() -> Measured:
            before = len(bk.log("rolling").segments())
            measured = append_pipelined(rolling, PAYLOAD, place)
            ledgers.append(len(bk.log("rolling").segments()) - before)
            return measured

        pairs = alternate(PAIRS, ours, lambda: append_pipelined(other, PAYLOAD, place).value)
    print(f"{ROLLING}: rolls in {PIPELINED_COUNT} entries: {' '.join(map(str, ledgers))}", file=sys.stderr)
    return median_row(ROLLING, "entries/s", pairs)


def rolling_p99_row(bk: embedbk.Client, place: Place) -> Row:
    with bk.log("rolling-p99").writer(roll=EACH) as rolling, bk.log("p99").writer(roll=NONE) as other:

        def ours() -> Measured:
            first = rolling.ledger_id
            with place.load() as load:
                taken = on_schedule(rolling, PAYLOAD, RUN_S)
            load.check_flushes(int(RUN_S))
            if rolling.ledger_id == first:
                raise RuntimeError(f"no roll within {RUN_S:g} s at {RATE} appends a second")
            return Measured(p999_us(taken), load.cpu_s * 1e6 / len(taken), load.foreign)

        return median_row(
            ROLLING_P99,
            "us",
            alternate(PAIRS, ours, lambda: p999_us(on_schedule(other, PAYLOAD, RUN_S))),
        )


def p999_us(taken: array[int]) -> float:
    return sorted(taken)[int(0.999 * len(taken))] / 1000


def tail_roll_row(bk: embedbk.Client, url: str, place: Place) -> Row:
    acked, firsts = [], []
    with bk.log("tail-roll").writer(roll=TAIL_EACH) as writer:
        writer.append(NUMBER.pack(0))
        reader = started(["tail", url, "tail-roll", str(TAIL_COUNT)])
        filler = bytes(len(PAYLOAD) - NUMBER.size)
        with Place(place.directory, [*place.pids, reader.pid]).load() as load:
            for number in range(TAIL_COUNT):
                time.sleep(TAIL_PAUSE_S)
                position = writer.append(NUMBER.pack(number) + filler)
                acked.append(time.perf_counter_ns())
                firsts.append(position.entry_id == 0)
            got = arrivals(reader)
    ended(reader)
    # What came before its own acknowledgement took no time.
    took = [(max(0, when - acked[number]) / 1000, firsts[number]) for number, when in got[TAIL_SKIPPED:]]
    across = sorted(us for us, is_first in took if is_first)
    others = sorted(us for us, is_first in took if not is_first)
    print(f"{TAIL_ROLL}: {len(across)} rolls, longest {across[-1] / 1e3:.1f} ms", file=sys.stderr)
    return Row(
        TAIL_ROLL,
        round(statistics.median(across), 1),
        "us",
        round(statistics.median(others), 1),
        round(load.cpu_s * 1e6 / TAIL_COUNT, 2),
        foreign=round(load.foreign, 3),
    )
