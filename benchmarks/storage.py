"""How long does a bookie's entry store take to be there again, and what does compaction move?

The store is written once: ten million entries of a thousand ledgers, of sizes that differ, so that the index has to be
decoded entry by entry when it is checked. Loading reads the footers of all entry logs; the ceiling is reading the same
bytes of the same files with nothing made of them. Compaction copies what half of the ledgers hold, the others dropped,
at full speed; its ceiling is copying the files that it reads.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Row, is_wanted, workplace
from embedbk.codec.packer import Packer
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.ledger_table import NativeLedgerTable

ENTRY_COUNT = 10_000_000
LEDGER_COUNT = 1_000
ENTRIES_AT_ONCE = 1_000  # Entries of one ledger in a row, before the next ledger's turn.
FLUSH_BYTES = 64 << 20
LOAD_COUNT = 5
TOKEN, INCARNATION = bytes(range(16)), bytes(range(16, 32))
INDEX_AT = struct.Struct("<QQQQ")  # States, entries, entry count and index of a descriptor, at offset 56.


def measure() -> Iterator[Row]:
    """`store/index_load/10M`, `store/compaction`."""
    if not is_wanted("store/index_load/10M", "store/compaction"):
        return
    with workplace("storage") as directory:
        write(directory)
        if is_wanted("store/index_load/10M"):
            yield index_load(directory)
        if is_wanted("store/compaction"):
            yield compaction(directory)


def opened(directory: Path) -> NativeEntryStore:
    return NativeEntryStore([directory], TOKEN, INCARNATION)


def flush(store: NativeEntryStore) -> None:
    assert store.freeze(b"", 0)
    store.flush(threaded=False)
    assert store.finish_flush()
    store.release()


def write(directory: Path) -> None:
    chance = random.Random(1)
    bodies = [bytes(chance.randrange(24)) for _ in range(ENTRIES_AT_ONCE)]
    packers = [Packer(ledger_id) for ledger_id in range(LEDGER_COUNT)]
    store = opened(directory)
    for number in range(ENTRY_COUNT // ENTRIES_AT_ONCE):
        packer = packers[number % LEDGER_COUNT]
        packer.append_many(bodies)
        while (frame := packer.seal()) is not None:
            store.put(frame)
            packer.release(frame)
        if store.active_bytes() >= FLUSH_BYTES:
            flush(store)
    flush(store)
    store.close()


def index_load(directory: Path) -> Row:
    took, bare = [], []
    for _ in range(LOAD_COUNT):
        bare.append(read_indexes(directory))
        begun, cpu = time.perf_counter(), time.process_time()
        store = opened(directory)
        took.append((time.perf_counter() - begun, time.process_time() - cpu))
        store.close()
    seconds, cpu_s = statistics.median_low(took)
    return Row(
        "store/index_load/10M",
        round(seconds, 3),
        "s",
        round(statistics.median(bare), 3),
        cpu_us_per_entry=cpu_s * 1e6 / ENTRY_COUNT,
    )


def read_indexes(directory: Path) -> float:
    """Seconds for the bytes that a load needs: descriptors and indexes."""
    begun = time.perf_counter()
    for path in sorted(directory.glob("*.elog")):
        with open(path, "rb") as file:
            states, entries, _, index = INDEX_AT.unpack_from(file.read(128), 56)
            file.seek(4096 + states + entries)
            assert len(file.read(index)) == index
    return time.perf_counter() - begun


def compaction(directory: Path) -> Row:
    store, table = opened(directory), NativeLedgerTable()
    for ledger_id in range(0, LEDGER_COUNT, 2):
        store.drop(ledger_id)
    entry_bytes = sum(log.entries_bytes for log in store.log_facts()) / ENTRY_COUNT
    sources = [log.log_id for log in store.log_facts()][:4]
    begun, cpu = time.perf_counter(), time.process_time()
    store.begin_copy(sources)
    copied, is_over = 0, False
    while not is_over:
        store.copy_slice(8 << 20, threaded=False)
        ended = store.poll_copy()
        assert ended is not None
        copied, is_over = copied + ended[0], ended[1]
    store.commit_copy(table)
    seconds, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    store.close()
    return Row(
        "store/compaction",
        round(copied / seconds / 1e6, 1),
        "MB/s",
        round(copy_rate(directory, sources), 1),
        cpu_us_per_entry=cpu_s * 1e6 * entry_bytes / copied,
    )


def copy_rate(directory: Path, sources: list[int]) -> float:
    """MB of live bytes a second, if the files were only copied and synced: half of each lives."""
    copy, total = directory / "copy", 0
    begun = time.perf_counter()
    for log_id in sources:
        path = directory / f"{log_id:08x}.elog"
        shutil.copyfile(path, copy)
        with open(copy, "rb") as file:
            os.fsync(file.fileno())
        total += path.stat().st_size
    return total / 2 / (time.perf_counter() - begun) / 1e6
