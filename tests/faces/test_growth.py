"""Nothing grows with the ledgers that are gone: memory, containers, descriptors (faces over a whole cluster)."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import embedbk
from embedbk.client import embedded
from embedbk.cluster import Cluster
from embedbk.metadata import catalog
from embedbk.metadata.history import History
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.snapshot_format import SNAPSHOT_DIRECTORY

HISTORY_CHANGES = 1_000  # Fewer than 2,000 ledgers make, so that it is full at the first look.
SNAPSHOT_DUE_BYTES = 64 << 10
LOOKS = 6  # Of each, the smallest counts: a collection that is just going on holds what it lists.
EVERY = 100
AT_ONCE = 4  # Ledgers in use: each waits for syncs most of its time.
RESIDENT_BYTES_MAX = 24 << 20  # The write cache may fill meanwhile.
# What has a bound fills at its own pace: runs with nothing left behind differed by up to 4 blocks a ledger.
# Whatever remembers a ledger stands in a container, too, and of those none may have an item more for each.
BLOCKS_PER_LEDGER_MAX = 8


class Size(NamedTuple):
    blocks: int  # That Python has allocated.
    items: int  # In all containers that Python knows.
    resident: int


class _ShortHistory(History):
    def __init__(self, floor: int, bytes_max: int, changes_max: int) -> None:
        super().__init__(floor, bytes_max, HISTORY_CHANGES)


def size_now() -> Size:
    gc.collect()
    found = {}
    for each in gc.get_objects():
        # The collector does not know a dict of numbers, but whoever holds it does.
        for held in (each, *gc.get_referents(each)):
            if type(held) in (dict, list, set, deque):
                found[id(held)] = len(held)
    items = sum(found.values())
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return Size(sys.getallocatedblocks(), items, resident)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def lasting_descriptors() -> int:
    """Without that of a snapshot which its thread is just writing or syncing: it comes and goes at any moment."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # Closed meanwhile.
            place = Path(os.readlink(f"/proc/self/fd/{number}"))
            count += SNAPSHOT_DIRECTORY not in (place.name, place.parent.name)
    return count


def _use_and_delete(bk: embedbk.Client) -> None:
    with bk.create_ledger() as ledger:
        ledger.add(b"x")
    with bk.open_ledger(ledger.ledger_id) as reader:
        assert [bytes(entry) for entry in reader.read()] == [b"x"]
    bk.delete_ledger(ledger.ledger_id)


def tell_sizes(path: str, count: int) -> None:
    """In a process of its own, where nobody else allocates: [ledgers, descriptors, size ...] of each look, as JSON."""
    catalog.History = _ShortHistory  # type: ignore[misc]
    # The log in memory reaches back to a snapshot: often enough that what is early has seen some.
    embedded.open_metadata_store = partial(open_metadata_store, snapshot_due_bytes=SNAPSHOT_DUE_BYTES)
    settings = embedbk.Settings(journal_file_bytes=2 << 20, collect_s=1, delete_grace_s=0, open_timeout_s=120)
    looks: list[list[int]] = []
    with embedbk.open(path, bookies=1, settings=settings) as bk, ThreadPoolExecutor(AT_ONCE) as threads:
        for number in range(EVERY, count + 1, EVERY):
            deque(threads.map(_use_and_delete, [bk] * EVERY), maxlen=0)
            bk.forget_deleted()
            if 2_000 - LOOKS * EVERY < number <= 2_000 or number > count - LOOKS * EVERY:
                looks.append([number, lasting_descriptors(), *size_now()])
    print(json.dumps(looks))


@pytest.mark.xdist_group("growth")  # Long: begun first.
@pytest.mark.timeout(1800)
def test_ledgers_that_are_gone_leave_nothing(data: Path, pytestconfig: pytest.Config) -> None:
    """L13: opened, written, closed, read, deleted and collected: the last 6,000 cost no more than the first 2,000."""
    count = pytestconfig.getoption("--gone-ledgers")
    program = "import sys; sys.path.insert(0, '.'); from tests.faces.test_growth import tell_sizes; "
    command = [
        sys.executable,
        "-c",
        f"{program}tell_sizes(sys.argv[1], int(sys.argv[2]))",
        str(data),
        str(count),
    ]
    root = Path(__file__).parent.parent.parent
    told = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True, timeout=1700)
    looks = json.loads(told.stdout)
    early = [look for look in looks if look[0] <= 2_000]
    late = [look for look in looks if look[0] > 2_000]
    opened_before, opened = ({look[1] for look in some} for some in (early, late))
    # The smallest counts, as of memory: a file that is open for a moment is none that stays.
    assert min(opened) <= max(opened_before)
    before, after = (
        Size(*map(min, zip(*(look[2:] for look in some), strict=True))) for some in (early, late)
    )
    gone = count - 2_000
    assert after.items - before.items < gone / 4, (early, late)
    assert after.blocks - before.blocks < BLOCKS_PER_LEDGER_MAX * gone, (early, late)
    assert after.resident - before.resident < RESIDENT_BYTES_MAX


def test_close_gives_back_every_descriptor(data: Path, settings: embedbk.Settings) -> None:
    """Not the collector of Python some time later: an embedded cluster, opened and closed, with a handle left."""
    handles = []
    gc.collect()
    gc.disable()
    try:
        counts = []
        for _ in range(4):
            with embedbk.open(data, settings=settings) as bk:
                ledger = bk.create_ledger()
                ledger.add(b"x")
                handles.append(ledger)
            counts.append(descriptors())
    finally:
        gc.enable()
    assert counts == counts[:1] * 4


def test_close_of_a_client_of_peers_gives_back_every_descriptor(settings: embedbk.Settings) -> None:
    """The same for a client that reaches its cluster over ZeroMQ."""
    with Cluster(bookies=3, settings=settings) as cluster:
        gc.collect()
        gc.disable()
        try:
            counts = []
            for _ in range(4):
                with embedbk.open(cluster.url) as bk, bk.create_ledger() as ledger:
                    ledger.add_many([b"x"] * 100)
                counts.append(descriptors())
        finally:
            gc.enable()
        assert counts[1:] == counts[1:2] * 3
