"""What does the metadata quorum cost (`_metadata_quorum.py`), and what do a million ledgers: their memory, a snapshot's
time and its longest slice, the load of it?

A member's catalog with a million records of 250 B is cut slice by slice, as in the turns of a loop, while its thread
writes the file. The ceiling of the snapshot is writing the same bytes to a file of the same disk with the same syncs;
of the load, reading them. The stall is the longest slice; instead of a ceiling it has what encoding in one step takes.
`memory` is what a process grows by that fills such a catalog; its ceiling is the bytes of keys and values.
"""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Row, _metadata_quorum, is_wanted, workplace
from embedbk.cluster import environment
from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import GENERATION_BITS, Record
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import StartMember, encode_command
from embedbk.metadata.loading import load_in_slices
from embedbk.metadata.raft_vocabulary import Entry, Persist
from embedbk.storage.file_in_pieces import SYNC_BYTES
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MetadataStore
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import SNAPSHOT_DIRECTORY, read_header, read_pieces

LEDGER_COUNT = 1_000_000
VALUE_BYTES = 250
FIRST_REVISION = 1 << GENERATION_BITS
RUNS = 3

ROWS = ("metadata/1M/snapshot", "metadata/1M/load", "metadata/1M/stall")
MEMORY = "metadata/1M/memory"
RESIDENT = """
from benchmarks.metadata import filled
from benchmarks.ledgers import resident_bytes
import os
before = resident_bytes(os.getpid())
catalog = filled()
print(resident_bytes(os.getpid()) - before)
"""


def measure() -> Iterator[Row]:
    """The quorum's rows, then `metadata/1M/memory` in MB, `/snapshot`, `/load` in seconds, `/stall` in milliseconds."""
    yield from _metadata_quorum.measure()
    if is_wanted(MEMORY):
        yield memory()
    if not is_wanted(*ROWS):
        return
    with workplace("metadata") as directory:
        catalog = filled()
        began = time.perf_counter()
        catalog.snapshot()
        at_once_s = time.perf_counter() - began
        snapshots, loads, stalls, writes, reads = [], [], [], [], []
        for run in range(RUNS):
            place = directory / str(run)
            snapshot_s, stall_s = snapshot(place, catalog)
            [path] = (place / SNAPSHOT_DIRECTORY).iterdir()
            snapshots.append(snapshot_s)
            stalls.append(stall_s)
            writes.append(write_bytes(directory / "bare", path.stat().st_size))
            loads.append(load(path))
            reads.append(read_bytes(path))
        yield Row(ROWS[0], statistics.median(snapshots), "s", ceiling=statistics.median(writes))
        yield Row(ROWS[1], statistics.median(loads), "s", ceiling=statistics.median(reads))
        yield Row(ROWS[2], statistics.median(stalls) * 1000, "ms", ceiling=at_once_s * 1000)


def memory() -> Row:
    """The memory of a fresh process, which nothing before has filled."""
    line = [sys.executable, "-c", RESIDENT]
    told = subprocess.run(line, check=True, capture_output=True, text=True, env=environment()).stdout
    plain = LEDGER_COUNT * (VALUE_BYTES + len(ledger_key_path(1)))
    return Row(MEMORY, round(int(told) / 1e6, 1), "MB", round(plain / 1e6, 1))


def filled() -> Catalog:
    catalog, keys = Catalog(), sorted(ledger_key_path(number) for number in range(1, LEDGER_COUNT + 1))
    for at in range(0, LEDGER_COUNT, 1000):
        catalog.take_records(
            [
                Record(
                    key, number.to_bytes(VALUE_BYTES, "big"), FIRST_REVISION + number, FIRST_REVISION + number
                )
                for number, key in enumerate(keys[at : at + 1000], at)
            ]
        )
    return catalog


def snapshot(directory: Path, catalog: Catalog) -> tuple[float, float]:
    """Seconds until it counts, and of the longest slice."""
    store: MetadataStore = open_metadata_store(directory)
    entry = Entry(1, FIRST_TERM, encode_command(StartMember(bytes(16))))
    store.persist(Persist(1, FIRST_TERM, None, 0, (entry,)))
    poll = select.poll()
    for fileno in store.filenos():
        poll.register(fileno, select.POLLIN)
    began, stall_s = time.perf_counter(), 0.0
    cut = catalog.cut()
    counts = cut.head.revision, cut.head.records, cut.head.sessions
    snapshots = store.begin_snapshot(1, FIRST_TERM, store.identity.first_configuration, 0, *counts)
    is_cut = False
    while not snapshots.kept:
        turn = time.perf_counter()
        if not is_cut and snapshots.has_room():
            piece = cut.next_piece()
            if piece is not None:
                snapshots.add(piece)
            else:
                is_cut = True
                catalog.end_cut()
                snapshots.end()
        store.durable()
        stall_s = max(stall_s, time.perf_counter() - turn)
        if is_cut or not snapshots.has_room():
            poll.poll(1000)
    took_s = time.perf_counter() - began
    store.close()
    return took_s, stall_s


def load(path: Path) -> float:
    began = time.perf_counter()
    with SnapshotFiles(path.parent).open(path.name) as file:
        slices = load_in_slices(read_pieces(file, read_header(file)))
        for _ in slices:
            pass
    return time.perf_counter() - began


def write_bytes(path: Path, size: int) -> float:
    block = os.urandom(1 << 20)
    began = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for number in range(-(-size // len(block))):
            file.write(block)
            if number % (SYNC_BYTES // len(block)) == 0:
                os.fdatasync(file.fileno())
        os.fdatasync(file.fileno())
    took_s = time.perf_counter() - began
    path.unlink()
    return took_s


def read_bytes(path: Path) -> float:
    began = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 20):
            pass
    return time.perf_counter() - began
