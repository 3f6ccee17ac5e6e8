"""Nothing grows with the ledgers that are gone: memory, containers, descriptors (faces over a whole cluster)."""

from __future__ import annotations

import gc
import os
import sys
from collections import deque
from pathlib import Path
from typing import NamedTuple

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.metadata import catalog
from embedbk.metadata.history import History

HISTORY_CHANGES = 1_000  # Fewer than 2,000 ledgers make, so that it is full at the first look.
LOOKS = 6  # Of each, the smallest counts: a collection that is just going on holds what it lists.
EVERY = 100
RESIDENT_BYTES_MAX = 24 << 20  # The write cache may fill meanwhile.


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


@pytest.mark.xdist_group("growth")  # Long: begun first.
@pytest.mark.timeout(1800)
def test_ledgers_that_are_gone_leave_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """L13: opened, written, closed, read, deleted and collected: the last 6,000 cost no more than the first 2,000."""
    monkeypatch.setattr(catalog, "History", _ShortHistory)
    count = pytestconfig.getoption("--gone-ledgers")
    settings = embedbk.Settings(journal_file_bytes=2 << 20, collect_s=1, delete_grace_s=0, open_timeout_s=30)
    sizes: dict[int, Size] = {}
    with embedbk.open(data, bookies=1, settings=settings) as bk:
        for number in range(1, count + 1):
            with bk.create_ledger() as ledger:
                ledger.add(b"x")
            with bk.open_ledger(ledger.ledger_id) as reader:
                assert [bytes(entry) for entry in reader.read()] == [b"x"]
            bk.delete_ledger(ledger.ledger_id)
            if number % EVERY == 0:
                bk.forget_deleted()
                if number in (2_000, count):
                    opened = descriptors()
                if 2_000 - LOOKS * EVERY < number <= 2_000 or number > count - LOOKS * EVERY:
                    sizes[number] = size_now()
                if number == 2_000:
                    opened_before = opened
    early = [size for number, size in sizes.items() if number <= 2_000]
    late = [size for number, size in sizes.items() if number > 2_000]
    gone = count - 2_000
    assert opened == opened_before
    assert min(size.items for size in late) - min(size.items for size in early) < gone / 4, (early, late)
    assert min(size.blocks for size in late) - min(size.blocks for size in early) < gone, (early, late)
    assert min(size.resident for size in late) - min(size.resident for size in early) < RESIDENT_BYTES_MAX


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


def test_close_of_a_client_of_peers_gives_back_every_descriptor() -> None:
    """The same for a client that reaches its cluster over ZeroMQ."""
    with Cluster(bookies=3) as cluster:
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
