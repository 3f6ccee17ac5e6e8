"""The simulator's bookie storage and the one on a disk: the same work, the same answers, before and after crashes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from embedbk.codec.holdings_messages import Digests
from embedbk.codec.journal_records import HELD_AGAIN, RecordKind, encode_explicit_lac
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory import MemoryBookieStorage, Survivors
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.starts import NEVER_STARTED, Starts
from tests.storage.stored_entries import make_frame

TOKEN, INCARNATION, KEY = b"T" * 16, b"I" * 16, bytes(range(16))
FLUSH_BYTES = 8000
LEDGERS = range(6)  # The last two are dropped, and may come back.


class Pair:
    """Both twins, told the same."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.were_dropped: set[int] = set()
        self.real = self.open_real()
        self.twin = MemoryBookieStorage(Survivors(INCARNATION), flush_bytes=FLUSH_BYTES)
        self.told: dict[tuple[int, int], object] = {}  # (ledger, number) -> what was held then.

    def open_real(self) -> BookieStorage:
        return BookieStorage(
            "/b", "b", TOKEN, io=self.disk, incarnation=INCARNATION, threaded=False, flush_bytes=FLUSH_BYTES,
            cache_bytes_max=4 << 20, journal_file_bytes=1 << 16, starts=Starts(NEVER_STARTED, lambda kept: None),
        )  # fmt: skip

    @property
    def both(self) -> tuple[DurableBookie, DurableBookie]:
        return self.real, self.twin

    def put(self, ledger_id: int, ids: list[int]) -> None:
        for storage in self.both:
            row: Any = storage.table.get(ledger_id) or storage.table.create(ledger_id)
            row.last_entry = max(row.last_entry, ids[-1])
            storage.table.mark_dirty(row)
            row.last_token = storage.put_frame(make_frame(ledger_id, ids, size=40, lac=ids[0] - 1))

    def append(self, kind: RecordKind, ledger_id: int, body: bytes) -> None:
        for storage in self.both:
            row: Any = storage.table.get(ledger_id) or storage.table.create(ledger_id)
            if kind == RecordKind.FENCE:
                row.is_fenced = 1
            if kind == RecordKind.DROP:
                row.is_fenced = row.in_limbo = row.is_dropped = 1
            if kind == RecordKind.LIMBO:
                row.is_dropped = 0
            if kind == RecordKind.BIRTH and storage.table.key(row) is None:
                storage.table.set_key(row, body)
            storage.table.mark_dirty(row)
            row.last_token = storage.append(kind, ledger_id, body)

    def drop(self, ledger_id: int) -> None:
        """As a bookie's core does: the entries go when the record is durable."""
        self.were_dropped.add(ledger_id)
        self.append(RecordKind.DROP, ledger_id, b"")
        self.commit()
        for storage in self.both:
            storage.drop(ledger_id)

    def is_dropped(self, ledger_id: int) -> bool:
        row = self.twin.table.get(ledger_id)
        return row is not None and bool(row.is_dropped)

    def commit(self) -> None:
        while self.real.step():
            pass
        assert self.twin.commit() == self.real.durable()

    def flush(self) -> None:
        """The bound is counted in other bytes on both sides: what matters is that both flush at one moment."""
        self.real.flushes.unflushed_bytes = max(self.real.flushes.unflushed_bytes, FLUSH_BYTES)
        self.twin._unflushed_bytes = max(self.twin._unflushed_bytes, FLUSH_BYTES)
        assert self.real.begin_flush_if_due() == self.twin.begin_flush_if_due()
        self.real.finish_flush()
        self.twin.finish_flush()
        assert self.real.log_mark() == self.twin.mark

    def crash(self) -> None:
        self.disk.crash()
        self.real = self.open_real()
        self.twin = MemoryBookieStorage(self.twin.crash(), flush_bytes=FLUSH_BYTES)

    def check_numbers(self) -> None:
        """P11.4: the same number of a ledger says that the same is held of it, whatever came between."""
        for side, storage in enumerate(self.both):
            for ledger_id in LEDGERS:
                (number,), _ = storage.block_numbers([(ledger_id, b"\x01")])
                assert number is not None
                held = storage.held(ledger_id, 0, 300, wants=Digests.BY_INDEX)
                assert self.told.setdefault((2 * ledger_id + side, number), held) == held

    def check(self, chance: random.Random) -> None:
        assert self.real.next_token() == self.twin.next_token()
        for one_state, other_state in zip(states(self.real), states(self.twin), strict=True):
            known = (
                4 if one_state[0] in self.were_dropped else None
            )  # The id and flags: the rest goes with the data.
            assert one_state[:known] == other_state[:known]
        # Of a dropped ledger more or less may be found again when it came back: that depends on when who flushed.
        for ledger_id in (each for each in LEDGERS if each not in self.were_dropped):
            first = chance.randrange(120)
            last, bytes_max = first + chance.randrange(150), chance.choice([50, 300, 5000])
            modulus = chance.randrange(1, 6)
            residues = chance.randrange(1, 1 << modulus)
            one, other = (
                storage.read(
                    ledger_id, first, last, bytes_max, modulus, residues, from_memory=bool(first % 2)
                )
                for storage in self.both
            )
            held = [storage.held(ledger_id, first, last, modulus, residues) for storage in self.both]
            assert held[0] == held[1]
            assert one.absent == other.absent
            assert (one.frame is None) == (other.frame is None)
            if one.frame is not None and other.frame is not None:
                assert bytes(one.frame.body) == bytes(other.frame.body)
                assert (one.frame.first_entry, one.frame.last_entry, one.frame.entry_count, one.frame.length) == (
                    other.frame.first_entry, other.frame.last_entry, other.frame.entry_count, other.frame.length,
                )  # fmt: skip


def states(storage: DurableBookie) -> list[tuple[Any, ...]]:
    """Of every ledger, also of one that is only an id in a range of dropped ones."""
    rows: list[Any] = [storage.table.get(ledger_id) for ledger_id in LEDGERS]
    return [
        (row.ledger_id, row.is_fenced, row.in_limbo, row.is_dropped, row.last_entry, row.lac, row.lac_length,
         storage.table.key(row))
        for row in rows if row is not None
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_the_same_work_gives_the_same_answers(seed: int) -> None:
    """ARCHITECTURE 3: the simulator's backing is a twin, not a guess: what it survives, the disk survives."""
    chance = random.Random(seed)
    pair = Pair()
    for _ in range(150):
        ledger_id = chance.choice(LEDGERS)
        what = chance.random()
        if what < 0.5:
            first = chance.randrange(100)
            count = chance.randrange(1, 25)
            ids = (
                range(first, first + count)
                if chance.random() < 0.6
                else chance.sample(range(first, first + 60), count)
            )
            if pair.is_dropped(ledger_id):
                pair.append(RecordKind.LIMBO, ledger_id, HELD_AGAIN)
            pair.put(ledger_id, sorted(ids))
        elif what < 0.53:
            pair.drop(chance.choice(LEDGERS[-2:]))
        elif what < 0.6:
            kind = chance.choice([RecordKind.FENCE, RecordKind.BIRTH])
            pair.append(kind, ledger_id, KEY if kind == RecordKind.BIRTH else b"")
        elif what < 0.65:
            pair.append(RecordKind.EXPLICIT_LAC, ledger_id, encode_explicit_lac(chance.randrange(50), 10_000))
        elif what < 0.85:
            pair.commit()
        elif what < 0.93:
            pair.commit()
            pair.flush()
        else:
            pair.crash()
        pair.check(chance)
        pair.check_numbers()
    pair.real.close()
