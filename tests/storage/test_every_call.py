"""The power goes before every call that a bookie's storage makes, one world per call: what it promised is there (I40 to
I50). The workload rolls and recycles journal files, flushes entry logs and trims, so each of their steps is met.

    ./run test tests/storage/test_every_call.py --crash-seeds 50
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from embedbk.codec.journal_records import RecordKind
from embedbk.errors import EmbedbkError
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.flushing import stored_marks
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.small_bookie import open_disk
from tests.storage.stored_entries import ids_in, make_frame, payload, payloads_in

SIZE = 700
ROUNDS = 24
LEDGERS = (3, 5, 2**63 - 1)
PARTS = 6  # The calls are dealt to so many tests, for as many processes.


Shape = dict[str, list[str]]  # Which directories the bookie has.
ONE: Shape = {}
SEVERAL: Shape = {
    "ledger_directories": ["/b1/entries", "/b1/entries-2"],
    "journal_directories": ["/b1/journal", "/b1/journal-2"],
}


def start(disk: MemoryDisk, shape: Shape = ONE) -> BookieStorage:
    return open_disk(disk, flush_bytes=24_000, **shape)


@dataclass
class Told:
    """What was asked of the storage, and up to which token it said that this is durable."""

    entries: dict[int, tuple[int, range]] = field(default_factory=dict)  # Token -> ledger, ids.
    fences: dict[int, int] = field(default_factory=dict)  # Token -> ledger.
    next_ids: dict[int, int] = field(default_factory=dict)
    durable: int = 0

    def check(self, bookie: BookieStorage) -> None:
        """P3.2, P7.3, I40: all that is durable is held, byte by byte. I7: and nothing else than what was put."""
        for ledger_id in LEDGERS:
            promised = {
                i
                for token, (put, ids) in self.entries.items()
                if put == ledger_id and token <= self.durable
                for i in ids
            }
            found = bookie.read(ledger_id, 0, 10_000, 1 << 24)
            ids = ids_in(found.frame)
            assert promised <= set(ids), f"ledger {ledger_id} lost {sorted(promised - set(ids))}"
            assert payloads_in(found.frame) == {i: payload(ledger_id, i, SIZE) for i in ids}
            assert not any(low <= i <= high for low, high in found.absent for i in promised)
            row = bookie.table.get(ledger_id)
            assert not promised or (row is not None and row.last_entry >= max(promised))
        for token, ledger_id in self.fences.items():
            row = bookie.table.get(ledger_id)
            assert token > self.durable or (row is not None and row.is_fenced), (
                f"ledger {ledger_id} lost its fence"
            )


def work(bookie: BookieStorage, told: Told, rounds: int) -> None:
    """Adds to every ledger, now and then a fence, commits and flushes; each answer is noted when it is given."""
    for number in range(rounds):
        for ledger_id in LEDGERS:
            row = bookie.table.get(ledger_id) or bookie.table.create(ledger_id)
            first = told.next_ids.get(ledger_id, 0)
            ids = range(first, first + 3 + number % 4)
            told.next_ids[ledger_id] = ids.stop
            row.last_entry = ids[-1]
            bookie.table.mark_dirty(row)
            told.entries[bookie.put_frame(make_frame(ledger_id, ids, size=SIZE, lac=first - 1))] = (
                ledger_id,
                ids,
            )
        if number % 5 == 2:
            fenced = 100 + told.durable
            row = bookie.table.create(fenced)
            row.is_fenced = 1
            bookie.table.mark_dirty(row)
            told.fences[bookie.append(RecordKind.FENCE, fenced, b"")] = fenced
        while bookie.step():
            told.durable = bookie.durable()
        told.durable = bookie.durable()
        bookie.finish_flush()
        bookie.begin_flush_if_due()
    bookie.finish_flush()


def crashed_at(call: int, seed: int, shape: Shape = ONE) -> tuple[MemoryDisk, Told]:
    """A disk whose power went before this call of a first start and its work, and what had been told by then."""
    disk, told = MemoryDisk(), Told()
    disk.halt(call)
    bookie: Any = None
    with contextlib.suppress(EmbedbkError):
        bookie = start(disk, shape)
        work(bookie, told, ROUNDS)
    disk.crash(seed)
    with contextlib.suppress(EmbedbkError):
        if bookie is not None:
            bookie.close()
    return disk, told


def call_count(shape: Shape = ONE) -> int:
    disk = MemoryDisk()
    bookie = start(disk, shape)
    work(bookie, Told(), ROUNDS)
    count = disk.calls()
    bookie.close()
    return count


@pytest.mark.parametrize("shape", [ONE, SEVERAL])
def test_the_workload_meets_what_it_should(shape: Shape) -> None:
    """Recycling, flushing and trimming are among the calls; else the tests below would be blind."""
    disk, told = MemoryDisk(), Told()
    bookie = start(disk, shape)
    work(bookie, told, ROUNDS)
    assert told.durable == bookie.next_token() - 1
    assert disk.calls("rename") > 6
    assert disk.calls("sync_directory") > 6
    assert len([name for name in disk.files() if name.endswith(".elog")]) > 3
    for directory in shape.get("ledger_directories", ["/b1/entries"]):
        assert sum(name.startswith(f"{directory}/") for name in disk.files()) > 2
    for directory in shape.get("journal_directories", ["/b1/journal"]):
        assert sum(name.startswith(f"{directory}/journal-") for name in disk.files()) > 1
    assert all(mark > 10 for mark in stored_marks(bookie._open_store(), bookie._open_journals()))
    assert bookie.log_mark() > 20
    bookie.close()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("shape", [ONE, SEVERAL])
def test_power_lost_before_any_call_loses_nothing_durable(
    shape: Shape, part: int, pytestconfig: pytest.Config
) -> None:
    """I40, I45, I46, I48, I49, I53: after each of these crashes, and any subset of unsynced sectors (D1, D14), the
    bookie starts, holds what it told, takes more, and holds that too when the power goes again in that work. Scenarios
    43, 44: also when the logs of one flush stand in several directories, and only some of them are durable, and when
    the journals are cut off at different places."""
    for seed in range(1, pytestconfig.getoption("--crash-seeds") + 1):
        for call in range(1 + part, call_count(shape) + 1, PARTS):
            disk, told = crashed_at(call, seed * 1000 + call, shape)
            bookie = start(disk, shape)
            assert bookie.next_token() > told.durable
            told.check(bookie)
            before = {token: put for token, put in told.entries.items() if token <= told.durable}
            told.entries, told.next_ids = before, dict.fromkeys(LEDGERS, 2_000)
            told.fences = {token: fenced for token, fenced in told.fences.items() if token <= told.durable}
            disk.halt(40 + call % 50)
            with contextlib.suppress(EmbedbkError):
                work(bookie, told, 6)
            disk.crash(seed + call)
            with contextlib.suppress(EmbedbkError):
                bookie.close()
            bookie = start(disk, shape)
            told.check(bookie)
            bookie.close()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("shape", [ONE, SEVERAL])
def test_a_kill_before_any_call_and_a_loss_of_power_behind_it_lose_nothing_durable(
    shape: Shape, part: int
) -> None:
    """I49: a start reads what a killed process wrote and did not sync. What it believes of that is durable before it
    acts on it, so nothing that it tells rests on a file whose name a later loss of power takes back."""
    for call in range(1 + part, call_count(shape) + 1, PARTS):
        disk, told = MemoryDisk(), Told()
        disk.halt(call)
        bookie: Any = None
        with contextlib.suppress(EmbedbkError):
            bookie = start(disk, shape)
            work(bookie, told, ROUNDS)
        with contextlib.suppress(EmbedbkError):
            if bookie is not None:
                bookie.close()
        disk.kill()
        bookie = start(disk, shape)
        told.check(bookie)
        told.entries = {token: put for token, put in told.entries.items() if token <= told.durable}
        told.fences = {token: fenced for token, fenced in told.fences.items() if token <= told.durable}
        told.next_ids = dict.fromkeys(LEDGERS, 2_000)
        disk.halt(20 + call * 7 % 60)
        with contextlib.suppress(EmbedbkError):
            work(bookie, told, 6)
        disk.crash()
        with contextlib.suppress(EmbedbkError):
            bookie.close()
        bookie = start(disk, shape)
        told.check(bookie)
        bookie.close()


def test_power_lost_while_it_starts_again_changes_nothing() -> None:
    """I44: replaying once, twice or up to any call of a start gives the same store (P2)."""
    chance = random.Random(9)
    for _ in range(12):
        disk, told = crashed_at(chance.randint(100, call_count()), chance.randint(1, 999))
        files = disk.files()
        whole = MemoryDisk(files)
        bookie = start(whole)
        calls = whole.calls()
        told.check(bookie)
        bookie.close()
        for call in chance.sample(range(1, calls + 1), 12):
            disk = MemoryDisk(files)
            disk.halt(call)
            with contextlib.suppress(EmbedbkError):
                start(disk).close()
            disk.crash(call)
            bookie = start(disk)
            told.check(bookie)
            bookie.close()
