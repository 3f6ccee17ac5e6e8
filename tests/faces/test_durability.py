"""Deferred sync through the faces: what an append waits for, and how to wait for disks (P3.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import embedbk
from embedbk import aio


def test_an_append_of_a_deferred_ledger_says_which_durability_it_has(bk: embedbk.Client) -> None:
    """P3.2: per call: a ticket is received, then synced; force makes it so, and the metadata says what was chosen."""
    with bk.create_ledger(durability="deferred") as writer:
        assert writer.durability == "deferred"
        ticket = writer.add_nowait(b"zero")
        ticket.result()
        assert ticket.durability in ("received", "synced")
        assert writer.force() == 0
        assert ticket.durability == "synced"
        assert writer.add_many([b"entry"] * 1000).last_entry == 1000
    with bk.open_ledger(writer.ledger_id) as reader:
        assert reader.metadata.durability == 1
        assert reader.last_entry == 1000
        assert len(list(reader.read())) == 1001


def test_a_synced_ledger_is_synced_when_an_append_returns(bk: embedbk.Client, log_name: str) -> None:
    with bk.log(log_name).writer() as writer:
        ticket = writer.append_nowait(b"zero")
        ticket.result()
        assert (ticket.durability, writer.durability, writer.force()) == ("synced", "synced", 0)


def test_a_log_can_be_deferred_for_one_writer(bk: embedbk.Client, log_name: str) -> None:
    """P3.2: it is a property of the writer's ledger; the next one chooses anew. Both options in the awaited face."""

    async def write() -> None:
        log = aio.Client(bk).log(log_name)
        async with log.writer(durability="deferred", delays_change=True) as writer:
            assert writer.durability == "deferred"
            await writer.append(b"zero")
            assert await writer.force() == 0

    asyncio.run(write())
    with bk.log(log_name).writer() as writer:
        assert writer.durability == "synced"
    assert [bytes(entry) for entry in bk.log(log_name).read()] == [b"zero"]


def test_another_durability_is_refused_with_what_is_allowed(bk: embedbk.Client) -> None:
    with pytest.raises(embedbk.UsageError, match="'eventual': allowed are 'synced', 'deferred'"):
        bk.create_ledger(durability="eventual")


def test_an_idle_cluster_of_one_bookie_syncs_by_itself(data: Path, settings: embedbk.Settings) -> None:
    """P3.2: nobody has to call force for the LAC to follow."""
    with (
        embedbk.open(data, bookies=1, settings=settings) as bk,
        bk.create_ledger(durability="deferred") as writer,
    ):
        ticket = writer.add_nowait(b"zero")
        assert writer.force(timeout_s=20) == 0
        assert ticket.durability == "synced"
