"""Staging in other processes, and the awaited face (P8.5)."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import embedbk
from embedbk import aio
from embedbk.client.client import Client
from embedbk.metadata.levels import LEVEL_OF_SPLICES

TASK = """
import pickle, sys
import embedbk

url, terms, number = sys.argv[1], pickle.loads(bytes.fromhex(sys.argv[2])), int(sys.argv[3])
with embedbk.open(url) as bk, bk.log(terms.log).stage(terms) as part:
    part.add_many([b"%d/%d" % (number, entry) for entry in range(1000)])
print(part.ledger_id)
"""


@pytest.fixture
def bk(tmp_path: Path) -> Iterator[Client]:
    with embedbk.open(tmp_path / "data", bookies=3, listen="tcp://127.0.0.1:0") as client:
        yield client


def test_processes_stage_and_one_splices_beside_a_writer_of_another(bk: Client) -> None:
    assert bk.url is not None
    with bk.log("orders").writer() as writer, embedbk.open(bk.url) as driver:
        writer.append(b"before")
        log = driver.log("orders")
        terms = log.staging("import", 1)
        packed = pickle.dumps(terms).hex()
        tasks = [
            subprocess.Popen(
                [sys.executable, "-c", TASK, bk.url, packed, str(number)], stdout=subprocess.PIPE, text=True
            )
            for number in range(2)
        ]
        ids = [int(task.communicate(timeout=120)[0]) for task in tasks]
        assert [task.returncode for task in tasks] == [0, 0]
        done = log.splice(terms, ids)
        writer.append(b"behind")
        assert (done.first_offset, done.end, done.is_replay) == (1, 2001, False)
        assert log.splice(terms, ids) == done._replace(is_replay=True)
    expected = [b"%d/%d" % (number, entry) for number in range(2) for entry in range(1000)]
    assert [bytes(entry) for entry in bk.log("orders").read()] == [b"before", *expected, b"behind"]


def test_the_awaited_face_has_the_same_names(tmp_path: Path) -> None:
    async def steps() -> None:
        async with aio.open(tmp_path / "data", bookies=1) as bk:
            log = bk.log("orders")
            while not log._runtime.has_level(LEVEL_OF_SPLICES):  # A new cluster raises it by itself.
                await bk.ledgers()
            terms = log.staging("import", 1)
            async with log.stage(terms) as part:
                await part.add_many([b"one", b"two"])
            async with log.stage(terms) as left:
                await left.add(b"left")
            assert await log.spliced("import") is None
            done = await log.splice(terms, [part.ledger_id])
            assert await log.spliced("import") == done
            assert (done.first_offset, done.end) == (0, 2)
            assert await log.unstage(terms) == 0  # What was left is given up already.
            assert [bytes(entry) async for entry in log.read()] == [b"one", b"two"]
            assert await log.forget_application("import")
            assert not await log.forget_application("import")

    asyncio.run(steps())
