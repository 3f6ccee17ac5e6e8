"""Ledgers to repair, their marks, and the wait until all are repaired: what the rows of `repair` share."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

import embedbk
from benchmarks._load import Load
from embedbk import aio
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, decode_ledger_metadata, ledger_of_key
from embedbk.codec.metadata_messages import List, Listed
from embedbk.codec.repair_mark import REPAIR_PREFIX
from embedbk.codec.repair_messages import REPAIRS_MAX, MarkRepairs, RepairsMarked
from embedbk.host.bookie_node import BookieNode
from embedbk.metadata.claims import REPAIRING_PREFIX

__all__ = ["MIB", "Marked", "entry_lost", "fill_with", "made", "wait_until"]

MIB = 1 << 20
ENTRY = os.urandom(64 << 10)
WHAT = "a benchmark of repair"
LOOK_S = 0.05  # Looks cost, too.
REPAIRED_S = 600.0  # No row takes so long; then it ends by an error.

Fill = Callable[[aio.LedgerWriter], Awaitable[object]]


def fill_with(byte_count: int) -> Fill:
    """So many bytes in entries of 64 KiB; or one small entry."""
    if byte_count < len(ENTRY):
        return lambda ledger: ledger.add(ENTRY[:byte_count])
    items = [ENTRY] * (byte_count // len(ENTRY))
    return lambda ledger: ledger.add_many(items)


def made(bk: embedbk.Client, count: int, at_a_time: int, fill: Fill) -> None:
    """So many closed ledgers."""
    client = aio.Client(bk)
    numbers = iter(range(count))

    async def make_some() -> None:
        for _ in numbers:
            async with client.create_ledger() as ledger:
                await fill(ledger)

    async def make_all() -> None:
        await asyncio.gather(*(make_some() for _ in range(at_a_time)))

    asyncio.run(make_all())


class Marked:
    """All ledgers that name a bookie which is gone, or drained. They are marked."""

    def __init__(self, bk: embedbk.Client, bookie_id: str) -> None:
        self._bk = bk
        self._runtime = bk._runtime
        self.count = self.payload_bytes = 0
        found: list[int] = []
        for record in run_blocking(self._runtime.list_keys(LEDGERS_PREFIX, WHAT), WHAT):
            ledger_id = ledger_of_key(record.key)
            assert ledger_id is not None
            metadata = decode_ledger_metadata(record.value or b"", ledger_id)
            names = {member.bookie_id for fragment in metadata.fragments for member in fragment.members}
            if metadata.is_closed and bookie_id in names:
                found.append(ledger_id)
                self.payload_bytes += metadata.length or 0
        self.count = len(found)
        for at in range(0, len(found), REPAIRS_MAX):
            marks = MarkRepairs(
                tuple((ledger_id, (bookie_id,)) for ledger_id in found[at : at + REPAIRS_MAX])
            )
            result = run_blocking(self._runtime.ask(marks, WHAT), WHAT)
            assert isinstance(result, RepairsMarked), result

    def is_any(self, prefix: str) -> bool:
        found = run_blocking(self._runtime.ask(List(prefix, "", 1), WHAT), WHAT)
        assert isinstance(found, Listed), found
        return bool(found.records)

    @property
    def are_left(self) -> bool:
        return self.is_any(REPAIR_PREFIX)

    def begin(self) -> None:
        """Repair is switched on, and somebody has taken a mark."""
        self._bk.start_repair()
        wait_until(lambda: self.is_any(REPAIRING_PREFIX) or not self.are_left)

    def stop(self) -> None:
        """Repair is switched off, and what had been begun is done."""
        self._bk.stop_repair(WHAT)
        wait_until(lambda: not self.is_any(REPAIRING_PREFIX))

    def repaired(self, load: Load) -> Load:
        """Until no mark is left."""
        self.begin()
        with load:
            wait_until(lambda: not self.are_left)
        return load


def wait_until(is_so: Callable[[], bool], limit_s: float = REPAIRED_S) -> None:
    end = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > end:
            raise RuntimeError(f"{WHAT}: it is not so after {limit_s:g} s")
        time.sleep(LOOK_S)


def entry_lost(bk: embedbk.Client, bookie_id: str, ledger_id: int) -> None:
    """Take the only entry of a ledger out of the index of one bookie of this process, which learns nothing of it."""
    runtime = bk._runtime
    (node,) = (
        place.node
        for place in runtime.loop._places
        if isinstance(place.node, BookieNode) and place.node.bookie_id == bookie_id
    )
    gone: list[bool] = []

    def drop() -> None:
        node.storage._open_store().drop(ledger_id)
        gone.append(True)

    runtime.call(drop)
    wait_until(lambda: bool(gone))
