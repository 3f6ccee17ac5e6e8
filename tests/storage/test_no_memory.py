"""The system refuses memory when a flush begins: nothing was promised, so it waits and is tried again (I53, P7.8)."""

from __future__ import annotations

import os
import subprocess
import sys


def run(script: str) -> list[str]:
    """What the script prints, in a process of its own: it bounds that process's memory."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=env)
    return done.stdout.splitlines()


BOUNDED = """
import resource
from contextlib import contextmanager
from embedbk.codec.journal_records import RecordKind
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.small_bookie import commit, held, open_disk
from tests.storage.stored_entries import make_frame

@contextmanager
def bounded(more):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
"""

STATES = """
COUNT = 20_000  # Their states are larger than what the process has at hand.
for more in (0, 1 << 20, 5 << 19, 7 << 19, 9 << 19, 8 << 20):
    disk = MemoryDisk()
    bookie = open_disk(disk, flush_bytes=1 << 20)
    for ledger_id in range(COUNT):
        row = bookie.table.create(ledger_id)
        row.is_fenced = 1
        bookie.table.mark_dirty(row)
        bookie.append(RecordKind.FENCE, ledger_id, b"")
        if ledger_id % 1000 == 0:
            commit(bookie)
    commit(bookie)
    with bounded(more):
        bookie.begin_flush_if_due()
        bookie.finish_flush()
        waits = bookie.is_full()
        again = bookie.begin_flush_if_due()
    assert bookie.failed() is None, bookie.failed()
    assert not (waits and again), "not in each turn"
    if waits:
        assert "memory was refused" in bookie.why_full() or "no descriptor or memory left" in bookie.why_full()
        bookie.retry_flush()
        assert bookie.finish_flush() and not bookie.is_full()
    print("waits" if waits else "is done")
    bookie._release()
    disk.crash()
    bookie = open_disk(disk)
    assert bookie.log_mark() > 0
    assert all(bookie.table.get(ledger_id).is_fenced for ledger_id in range(COUNT))
    bookie._release()
"""

PUTS = """
disk = MemoryDisk()
bookie = open_disk(disk, flush_bytes=1_500_000, cache_bytes_max=2_500_000)
for ledger_id in range(100, 20_100):
    bookie.table.mark_dirty(bookie.table.create(ledger_id))
frames = [make_frame(5, range(first, first + 100), size=500) for first in range(0, 40_000, 100)]
put = 0
with bounded(3 << 19):  # Enough for a put, and not for the states.
    while bookie.has_room() and put < len(frames):
        bookie.put_frame(frames[put])
        put += 1
        bookie.begin_flush_if_due()
    assert bookie.failed() is None
    assert bookie.has_room(is_urgent=True)
assert 0 < put < len(frames) and bookie.is_full()
commit(bookie)
bookie.retry_flush()
assert bookie.finish_flush()
commit(bookie)  # The journal prepares its next file.
bookie.finish_flush()
assert bookie.has_room() and not bookie.is_full()
assert len(held(bookie, 5)) == min(100 * put, 10_001)
print("goes on")
bookie.close()
"""


def test_a_freeze_without_memory_waits_and_takes_all_states_later() -> None:
    """I53, P7.3: whichever of its allocations is refused, the bookie goes on, and no fence is forgotten with the
    journal that a later flush trims."""
    told = run(BOUNDED + STATES)
    assert set(told) == {"waits", "is done"}


def test_puts_wait_while_memory_for_a_freeze_is_refused() -> None:
    """I53, P7.8: the put that filled the write cache ended the bookie for good."""
    assert run(BOUNDED + PUTS) == ["goes on"]
