"""Acts of a bookie's storage in orders of chance: puts, fences, drops, commits, flushes that fail and are done again,
compactions taken in between, scrubs, power cuts. What was durable is there behind every start (P3.2, P7.3, I45, I47).

The world of one storage; whole clusters on the same code are in embedbk/testing.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable

import pytest

from embedbk.errors import StorageError
from embedbk.storage.checking import check_bookie
from embedbk.storage.entry_log_reader import Whose
from embedbk.storage.findings import Findings
from embedbk.storage.flushing import FlushState
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.raw_files import PictureDirectory
from tests.storage.small_bookie import INCARNATION, TOKEN
from tests.storage.test_bookie_storage import commit, fence, held, is_fenced, on_memory, put
from tests.storage.test_dropping import drop, is_dropped

ACTS = 150
LEDGERS = 6
FLUSH_CALLS = ("open", "allocate", "write", "sync", "rename", "sync_directory")


class World:
    """One bookie, and what it must not lose. Tokens say what is durable: those of a crash before a commit are not."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = MemoryDisk()
        self.bookie = on_memory(self.disk)
        self.met: Counter[str] = Counter()
        self.entries: dict[int, int] = {}  # Ledger: how many, from 0 on, are durable.
        self.fences: set[int] = set()
        self.dropped: set[int] = set()
        self.pending: list[tuple[int, str, int, int]] = []  # Token, what, ledger, number.
        self.next_entry: Counter[int] = Counter()
        self.is_copying = self.has_copied = self.has_failed = False

    def live(self) -> int:
        """A ledger that takes entries; when the old ones are dropped, new ones follow."""
        return self.chance.choice([i for i in range(1, 400) if i not in self.dropped][:LEDGERS])

    # Acts.

    def put(self) -> None:
        ledger_id = self.live()
        first = self.next_entry[ledger_id]
        count = self.chance.randint(1, 8)
        self.next_entry[ledger_id] += count
        token = put(self.bookie, ledger_id, range(first, first + count))
        self.pending.append((token, "entries", ledger_id, first + count))

    def fence(self) -> None:
        ledger_id = 1000 + self.chance.randrange(40)  # Of these nothing else is ever said.
        if ledger_id not in self.fences:
            self.pending.append((fence(self.bookie, ledger_id), "fence", ledger_id, 0))

    def drop(self) -> None:
        ledger_id = self.live()
        drop(self.bookie, ledger_id)
        self.settle()
        self.dropped.add(ledger_id)
        self.entries.pop(ledger_id, None)

    def commit(self) -> None:
        commit(self.bookie)
        self.settle()

    def settle(self) -> None:
        durable = self.bookie.durable()
        for token, what, ledger_id, number in self.pending:
            if token > durable:
                continue
            if what == "fence":
                self.fences.add(ledger_id)
            elif ledger_id not in self.dropped:
                self.entries[ledger_id] = max(self.entries.get(ledger_id, 0), number)
        self.pending = [each for each in self.pending if each[0] > durable]

    def flush(self) -> None:
        """Due or due again; in a third of the cases something refuses."""
        bookie = self.bookie
        self.has_failed = bookie.flushes.state is FlushState.FAILED
        bookie.flushes.unflushed_bytes = max(bookie.flushes.unflushed_bytes, bookie.flushes.due_bytes)
        if self.chance.random() < 0.35:
            self.disk.fail(self.chance.choice(FLUSH_CALLS), nth=self.chance.choice((1, 1, 2)))
        if bookie.begin_flush_if_due():
            if self.has_failed and self.has_copied:
                self.met["a flush done again behind a compaction"] += 1
            self.has_copied = False
            self.met["flush"] += 1
        for call in FLUSH_CALLS:
            self.disk.fail(call, nth=0)

    def finish(self) -> None:
        self.bookie.finish_flush()
        self.met["a flush failed"] += self.bookie.flushes.state is FlushState.FAILED

    def copy(self) -> None:
        bookie = self.bookie
        if not self.is_copying:
            usable = [log.log_id for log in bookie.log_facts() if not log.is_damaged]
            if len(usable) < 2:
                return
            bookie.begin_copy(sorted(self.chance.sample(usable, self.chance.randint(1, min(4, len(usable))))))
            self.is_copying = True
        bookie.copy_slice(self.chance.choice((1, 5000, 1 << 20)))
        ended = bookie.poll_copy()
        if ended is not None and ended[1]:
            self.is_copying = False
            self.has_copied = True
            self.met["a compaction taken in"] += 1

    def scrub(self) -> None:
        if self.bookie.begin_scrub(1 << 20):
            piece = self.bookie.finish_scrub()
            assert piece is not None
            assert piece.damages == ()

    def crash(self) -> None:
        seed = self.chance.choice((0, self.chance.getrandbits(62) | 1))
        if self.chance.random() < 0.3:
            self.disk.halt(self.chance.randint(1, 12))  # In the middle of what comes next.
            self.met["power lost inside an act"] += 1
            self.try_to(self.chance.choice((self.commit, self.flush, self.finish, self.copy)))
        else:
            self.settle()
        self.disk.crash(seed)
        self.try_to(self.bookie.close)
        self.check()
        self.bookie = on_memory(self.disk)
        for _, what, ledger_id, _ in self.pending:  # Durable or not: nobody was told.
            if what == "entries":
                self.next_entry[ledger_id] = max(held(self.bookie, ledger_id), default=-1) + 1
        self.pending = []
        self.is_copying = self.has_copied = False
        self.met["crash"] += 1
        self.judge()

    @staticmethod
    def try_to(act: Callable[[], None]) -> None:
        with contextlib.suppress(StorageError):  # Its disk is off.
            act()

    def check(self) -> None:
        """I31: nothing that a bookie leaves behind is called damage by who checks it."""
        findings = Findings()
        files = self.disk.files()
        places = [PictureDirectory(f"/b1/{part}", files) for part in ("journal", "entries")]
        check_bookie(places[:1], places[1:], Whose(TOKEN, INCARNATION), findings)
        assert [str(each) for each in findings.found if each.is_damage] == []

    def judge(self) -> None:
        bookie = self.bookie
        for ledger_id, count in self.entries.items():
            assert held(bookie, ledger_id)[:count] == list(range(count)), ledger_id
        for ledger_id in self.fences:
            assert is_fenced(bookie, ledger_id), ledger_id
        for ledger_id in self.dropped:
            assert is_dropped(bookie, ledger_id) and held(bookie, ledger_id) == [], ledger_id

    def run(self) -> None:
        acts = (
            *(self.put,) * 8, *(self.fence,) * 2, *(self.commit,) * 4, *(self.flush,) * 4, *(self.finish,) * 4,
            *(self.copy,) * 4, self.scrub, self.crash,
        )  # fmt: skip
        for number in range(ACTS):
            act = self.drop if number % 40 == 39 else self.chance.choice(acts)
            act()
        self.crash()
        self.bookie.close()
        self.check()


@pytest.mark.parametrize("part", range(4))
def test_no_order_of_flushes_faults_copies_and_crashes_loses_what_was_durable(part: int) -> None:
    """P3.2, P7.3, ST32, I45, I47: each seed one order of 150 acts."""
    met: Counter[str] = Counter()
    for seed in range(part * 15, part * 15 + 15):
        world = World(seed)
        world.run()
        met += world.met
    assert min(met.values()) > 0 and len(met) == 6, met
    assert met["a flush done again behind a compaction"] > 3
