"""The writer of a log goes over to a new ledger: it takes the log over from itself (P8.1)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import embedbk
from embedbk import aio


def _members(writer: embedbk.LogWriter | aio.LogWriter) -> int:
    return len(writer._appending.writing.metadata.fragments[-1].members)


def test_a_writer_goes_over_to_a_ledger_of_more_copies(bk: embedbk.Client, log_name: str) -> None:
    """P8.1: "a log's open ledger goes over when its writer takes the log over from itself"."""
    with bk.log(log_name).writer(ensemble_size=1) as writer:
        first, epoch = writer.append(b"one"), writer.epoch
        assert _members(writer) == 1
        writer.renew(ensemble_size=3)
        assert _members(writer) == 3
        assert writer.epoch > epoch
        assert writer.first_offset == 1
        assert writer.last_position == first
        second = writer.append(b"two", after=first)
        assert second.ledger_id == writer.ledger_id != first.ledger_id
    assert [bytes(entry) for entry in bk.log(log_name).read()] == [b"one", b"two"]
    assert [segment.ledger_id for segment in bk.log(log_name).segments()] == [
        first.ledger_id,
        second.ledger_id,
    ]


def test_appends_of_other_threads_wait_and_none_fails(bk: embedbk.Client, log_name: str) -> None:
    """P8.1: appends wait meanwhile, and none fails; what one call appends is in one ledger."""
    failed: list[BaseException] = []
    told: list[list[embedbk.Position]] = [[] for _ in range(4)]
    is_over = threading.Event()

    def append(number: int) -> None:
        done = told[number]
        try:
            while not is_over.is_set() or len(done) < 20:
                text = b"%d %d" % (number, len(done))
                if number == 0:
                    done.append(writer.append(text))
                elif number == 1:
                    done.append(writer.append(text, timeout_s=60))
                elif number == 2:
                    many = writer.append_many([b"2 %d" % (len(done) + at) for at in range(5)])
                    done.extend(embedbk.Position(many.ledger_id, many.first_entry + at) for at in range(5))
                else:
                    done.append(writer.append_nowait(text).result())
        except BaseException as error:  # noqa: BLE001  Shown by the test.
            failed.append(error)

    with bk.log(log_name).writer(ensemble_size=1) as writer:
        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        ledgers = {writer.ledger_id}
        for _ in range(5):
            writer.renew(ensemble_size=3)
            ledgers.add(writer.ledger_id)
        is_over.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert len(ledgers) == 6
    entries = {entry.position: bytes(entry) for entry in bk.log(log_name).read()}
    assert len(entries) == sum(map(len, told))
    for number, positions in enumerate(told):
        assert positions == sorted(positions)
        assert [entries[each] for each in positions] == [
            b"%d %d" % (number, at) for at in range(len(positions))
        ]


def test_tasks_append_while_the_log_goes_over(bk: embedbk.Client, log_name: str) -> None:
    """P8.1: the same, awaited."""

    async def run() -> int:
        client = aio.Client(bk)
        count = 0
        async with client.log(log_name).writer(ensemble_size=1) as writer:

            async def append() -> None:
                nonlocal count
                for _ in range(30):
                    await writer.append(b"entry")
                    await writer.append_batch([b"a", b"b"], timeout_s=60)
                    count += 2

            tasks = [asyncio.create_task(append()) for _ in range(3)]
            for _ in range(3):
                await writer.renew(ensemble_size=3)
            await asyncio.gather(*tasks)
            assert _members(writer) == 3
        return count

    assert asyncio.run(run()) == len(list(bk.log(log_name).read()))


def test_too_few_bookies_leave_the_writer_where_it_is(bk: embedbk.Client, log_name: str) -> None:
    """CL01: nothing is closed for a ledger that cannot be made."""
    with bk.log(log_name).writer() as writer:
        ledger_id = writer.ledger_id
        with pytest.raises(embedbk.NotEnoughBookies, match="4 bookies are asked for, and 3 take entries"):
            writer.renew(ensemble_size=4)
        assert writer.append(b"one").ledger_id == ledger_id


def test_a_writer_that_lost_its_log_does_not_get_it_back(bk: embedbk.Client, log_name: str) -> None:
    """P8.4: who was fenced stays fenced; going over to a new ledger takes the log from nobody else."""
    writer = bk.log(log_name).writer()
    with bk.log(log_name).writer() as other:
        other.append(b"theirs")
        for _ in range(2):
            with pytest.raises(embedbk.LedgerFenced):
                writer.renew()
        with pytest.raises(embedbk.LedgerFenced) as refused:
            writer.append(b"ours", timeout_s=10)
        assert refused.value.definite
        with pytest.raises(embedbk.LedgerFenced):
            writer.append(b"ours")
        other.append(b"still theirs")
    writer.release()
    assert [bytes(entry) for entry in bk.log(log_name).read()] == [b"theirs", b"still theirs"]


def test_a_closed_writer_is_not_renewed(bk: embedbk.Client, log_name: str) -> None:
    writer = bk.log(log_name).writer()
    writer.close()
    with pytest.raises(embedbk.UsageError, match="was closed"):
        writer.renew()
    with pytest.raises(embedbk.UsageError, match="was closed"):
        writer.append(b"one")
    assert writer.close().entry_id == -1


def test_producers_are_known_behind_the_change(bk: embedbk.Client, log_name: str) -> None:
    """A repeated append is answered with its old position, in the ledger before."""
    with bk.log(log_name).writer(ensemble_size=1) as writer:
        at = writer.append(b"one", producer=(7, 1))
        writer.renew()
        assert writer.append(b"one", producer=(7, 1)) == at


def test_a_new_ledger_uses_the_bookies_that_came(data: Path, settings: embedbk.Settings) -> None:
    """Issue 12, 7: new ledgers use the new E/Qw/Qa, and the log is the same one."""
    with embedbk.open(data, bookies=1, settings=settings) as alone, alone.log("orders").writer() as writer:
        writer.append(b"one")
        assert _members(writer) == 1
    with embedbk.open(data, bookies=3, settings=settings) as grown, grown.log("orders").writer() as writer:
        writer.append(b"two")
        assert _members(writer) == 3
        assert [bytes(entry) for entry in grown.log("orders").read()] == [b"one", b"two"]
