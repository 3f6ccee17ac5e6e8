"""A compaction beside a flush of newer copies of the same ids: the newest copy wins, now and later (I47)."""

from __future__ import annotations

import itertools

import pytest

from embedbk.codec.frame import frame_of
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.small_bookie import INCARNATION, TOKEN
from tests.storage.test_lost_indexes import STATE, copies, other_frame

# In whatever order they come: a flush of newer copies is frozen, written, taken in; a copy is begun, made, taken in.
_ORDERS = [
    order
    for order in itertools.permutations(("freeze", "write", "finish", "begin", "copy", "commit"))
    if [each for each in order if each in ("freeze", "write", "finish")] == ["freeze", "write", "finish"]
    and [each for each in order if each in ("begin", "copy", "commit")] == ["begin", "copy", "commit"]
]


def opened(disk: MemoryDisk) -> NativeEntryStore:
    return NativeEntryStore(["/e"], TOKEN, INCARNATION, io=disk, half_bytes_max=1 << 20)


def flush(store: NativeEntryStore, mark: int) -> None:
    assert store.freeze(STATE, mark)
    store.flush(threaded=False)
    assert store.finish_flush()
    store.release()
    store.remove_left()


@pytest.mark.parametrize("order", _ORDERS, ids="-".join)
def test_a_newer_copy_wins_in_whatever_order_a_flush_and_a_copy_end(order: tuple[str, ...]) -> None:
    """I47, P3.4, P11.5: what is put again while its log is compacted stays the newest copy. Else an entry that an
    operator chose gave way to the one that it replaced."""
    assert len(_ORDERS) == 20
    disk = MemoryDisk({"/e/.made": b""})
    store, table = opened(disk), NativeLedgerTable(10)
    store.put(frame_of(other_frame(7, range(4), 1)))
    store.put(frame_of(other_frame(8, range(3), 1)))
    flush(store, 1)
    store.put(frame_of(other_frame(7, range(1, 6, 2), 2)))
    store.put(frame_of(other_frame(9, range(2), 2)))
    steps = {
        "freeze": lambda: store.freeze(STATE, 2),
        "write": lambda: store.flush(threaded=False),
        "finish": store.finish_flush,
        "begin": lambda: store.begin_copy([1]),
        "copy": lambda: store.copy_slice(1 << 20, threaded=False) or store.poll_copy(),
        "commit": lambda: store.commit_copy(table),
    }
    expected = {each: copies(store, each) for each in (7, 8, 9)}
    assert {entry_id: data[:3] for entry_id, data in expected[7].items()} == {
        0: b"001", 1: b"002", 2: b"001", 3: b"002", 5: b"002"
    }  # fmt: skip
    for step in order:
        steps[step]()
        assert {each: copies(store, each) for each in (7, 8, 9)} == expected, step
    store.release()
    flush(store, 3)
    for _ in range(2):
        assert {each: copies(store, each) for each in (7, 8, 9)} == expected
        store.close()
        assert "/e/00000001.elog" not in disk.files(stable=False)
        store = opened(disk)
    store.close()
