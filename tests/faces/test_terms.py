"""Appends on terms: time limits and fates, expected ids, conditions, batches, producers (P3.1, P3.6)."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import embedbk
from embedbk import aio
from embedbk.codec.attributes import PARTS_MAX
from embedbk.config import ENTRY_BYTES_MAX
from embedbk.testing import Cluster

Fate = embedbk.Fate


# P3.6: time limits, fates, cancellation.


def late(append: Callable[[], Any]) -> embedbk.OperationTimeout:
    """What a call without any time raises. Where this thread had to wait for a processor, it may have been in time."""
    for _ in range(100):
        try:
            append()
        except embedbk.OperationTimeout as timeout:
            return timeout
    raise AssertionError("nothing ever takes time")


def test_an_append_whose_time_is_over_says_unknown_and_can_be_asked_later(
    bk: embedbk.Client, log_name: str
) -> None:
    """P3.6: a caller's own expired wait fails nothing; by its ticket the fate is learnt."""
    with bk.log(log_name).writer() as writer:
        one = late(lambda: writer.append(b"zero", timeout_s=0))
        last = writer.last_position.entry_id
        assert f"entry {last} was not acknowledged within 0 s" in str(one)
        assert not one.definite
        assert one.ticket.result() == (writer.ledger_id, last)
        assert one.ticket.fate() is Fate.SURVIVED
        many = late(lambda: writer.append_many([b"one", b"two"], timeout_s=0))
        last = writer.last_position.entry_id
        assert many.ticket.position == (writer.ledger_id, last)
        assert writer.append(b"three", timeout_s=30) == (writer.ledger_id, last + 1)
    with bk.create_ledger() as ledger:
        late(lambda: ledger.add(b"zero", timeout_s=0))
        assert ledger.add(b"one", timeout_s=30.0) > 0


def test_the_fate_of_what_a_fence_refused_is_definite_once_the_ledger_is_closed(
    bk: embedbk.Client, log_name: str
) -> None:
    """P3.6: the writer of a log has read where its ledger was closed; the error can be asked, and the log agrees."""
    log = bk.log(log_name)
    first = log.writer()
    first.append(b"kept")
    second = log.writer()
    with pytest.raises(embedbk.LedgerFenced) as refused:
        first.append(b"refused")
    assert refused.value.definite
    ticket = refused.value.ticket
    assert ticket.position == (first.ledger_id, 1)
    fate = ticket.fate()
    second.append(b"next")
    second.close()
    read = [bytes(entry) for entry in log.read()]
    assert fate is (Fate.SURVIVED if b"refused" in read else Fate.LOST)
    with pytest.raises(embedbk.LedgerFenced) as again:  # Nothing was sent: definite, and no ticket.
        first.append(b"after")
    assert again.value.definite
    assert again.value.ticket is None


def test_the_fate_is_unknown_while_the_ledger_is_open(bk: embedbk.Client) -> None:
    """P3.6: the metadata says nothing before it is CLOSED; a deleted ledger says that it was."""
    writer = bk.create_ledger()
    writer.add(b"zero")
    ticket = embedbk.Ticket(writer._appending, 5)  # As if entry 5 were on its way.
    assert ticket.fate() is Fate.UNKNOWN
    writer.close()
    assert ticket.fate() is Fate.LOST
    assert asyncio.run(ticket.fate_async()) is Fate.LOST
    bk.delete_ledger(writer.ledger_id)
    with pytest.raises(embedbk.NoSuchLedger):
        ticket.fate()


def test_who_is_cancelled_is_told_what_was_queued(bk: embedbk.Client, log_name: str) -> None:
    """P3.6: cancelling a wait takes nothing back, and says so."""
    is_held, go_on = threading.Event(), threading.Event()

    def hold_host() -> None:
        is_held.set()
        go_on.wait(60)

    async def run() -> None:
        async with aio.Client(bk).log(log_name).writer() as writer:
            stopped: list[asyncio.CancelledError] = []

            async def append() -> None:
                try:
                    await writer.append(b"zero")
                except asyncio.CancelledError as error:
                    stopped.append(error)
                    raise

            bk._runtime.call(hold_host)  # Or the append may be acknowledged before it can be cancelled.
            assert is_held.wait(60)
            task = asyncio.create_task(append())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            go_on.set()
            (error,) = stopped
            ticket = error.ticket  # type: ignore[attr-defined]
            assert "entry 0 was queued and may survive" in error.__notes__[0]
            assert await ticket == (writer.ledger_id, 0)

    asyncio.run(run())
    assert [bytes(entry) for entry in bk.log(log_name).read()] == [b"zero"]


# Expected ids and conditions.


def test_another_id_than_the_expected_one_appends_nothing(bk: embedbk.Client) -> None:
    """The caller states the id that it expects: any other is a UsageError."""
    with bk.create_ledger() as writer:
        assert writer.add(b"zero", entry_id=0) == 0
        for wrong in (0, 2):
            with pytest.raises(embedbk.UsageError, match=f"entry_id={wrong} was expected, the next is 1"):
                writer.add(b"x", entry_id=wrong)
        for wrong in (-1, True, 1.0):
            with pytest.raises(embedbk.UsageError, match="a whole number from 0 on"):
                writer.add(b"x", entry_id=wrong)  # type: ignore[arg-type]
        assert writer.add(b"one", entry_id=1) == 1
        with pytest.raises(embedbk.UsageError, match="give one"):
            writer.add(b"x", entry_id=2, after=embedbk.Position(writer.ledger_id, 1))
    with pytest.raises(embedbk.UsageError, match="closed or released"):
        writer.add(b"x", entry_id=2)


def test_a_conditional_append_is_done_only_behind_the_expected_position(
    bk: embedbk.Client, log_name: str
) -> None:
    """Fails unless the current last position is the expected one, also across takeovers."""
    log = bk.log(log_name)
    with log.writer() as writer:
        assert writer.last_position == embedbk.NO_POSITION
        zero = writer.append(b"zero", after=embedbk.NO_POSITION)
        one = writer.append(b"one", after=zero)
        with pytest.raises(embedbk.AppendConflict, match="nothing was appended") as conflict:
            writer.append(b"x", after=zero)
        assert conflict.value.definite
        assert conflict.value.last_position == one
    log.writer().close()  # A ledger in which nothing was written.
    with log.writer() as writer:
        assert writer.last_position == one
        for wrong in (zero, embedbk.NO_POSITION, embedbk.Position(writer.ledger_id, 0)):
            with pytest.raises(embedbk.AppendConflict):
                writer.append(b"x", after=wrong)
        two = writer.append(b"two", after=one)
        with pytest.raises(embedbk.AppendConflict):
            writer.append(b"x", after=one)
        with pytest.raises(embedbk.UsageError, match="a pair of whole numbers"):
            writer.append(b"x", after=2)  # type: ignore[arg-type]
        assert writer.last_position == two
    assert [bytes(entry) for entry in log.read()] == [b"zero", b"one", b"two"]


def test_of_many_threads_with_one_condition_one_appends(bk: embedbk.Client) -> None:
    with bk.create_ledger() as writer:
        won: list[int] = []

        def race(thread: int) -> None:
            for number in range(20):
                try:
                    writer.add(b"%d" % thread, entry_id=number)
                except embedbk.UsageError:
                    continue
                won.append(number)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == list(range(len(won)))
        assert writer.lac == len(won) - 1


# P3.1: atomic batches.


def test_an_atomic_batch_is_one_entry_with_parts(bk: embedbk.Client, log_name: str) -> None:
    """P3.1: all of it or nothing, one position; its payload is the records one behind the other."""
    log = bk.log(log_name)
    parts = [b"one", b"", bytearray(b"three"), memoryview(b"four")]
    with log.writer() as writer:
        writer.append(b"zero")
        position = writer.append_batch(parts)
        assert position == (writer.ledger_id, 1)
        writer.append(b"five")
        assert writer.length == 4 + 12 + 4
        writer.append_batch([b"alone"], after=writer.last_position)
    read = list(log.read())
    assert [bytes(entry) for entry in read] == [b"zero", b"onethreefour", b"five", b"alone"]
    assert [[bytes(part) for part in entry.parts] for entry in read] == [
        [b"zero"],
        [b"one", b"", b"three", b"four"],
        [b"five"],
        [b"alone"],
    ]
    assert [bytes(part) for part in pickle.loads(pickle.dumps(read[1])).parts] == list(map(bytes, parts))
    batches = list(log.read_batches())
    assert [entry_id for batch in batches for entry_id in batch.ids] == [0, 1, 1, 1, 1, 2, 3]
    ends = [end - begin for b in batches for begin, end in zip(b.ends, b.ends[1:], strict=False)]
    assert ends == [4, 3, 0, 5, 4, 4, 5]


def test_a_batch_that_no_entry_can_hold_is_refused_whole(bk: embedbk.Client) -> None:
    with bk.create_ledger() as writer:
        for nothing in ([], b"bytes", "text"):
            with pytest.raises(embedbk.UsageError, match="a list of at least one record"):
                writer.add_batch(nothing)  # type: ignore[arg-type]
        with pytest.raises(embedbk.UsageError, match="not int"):
            writer.add_batch([b"x", 5])  # type: ignore[list-item]
        with pytest.raises(embedbk.UsageError, match=f"at most {PARTS_MAX} are allowed"):
            writer.add_batch([b"x"] * (PARTS_MAX + 1))
        with pytest.raises(embedbk.UsageError, match=f"at most {ENTRY_BYTES_MAX} are allowed"):
            writer.add_batch([bytes(ENTRY_BYTES_MAX // 2)] * 2)
        assert writer.add_batch([b"x"] * PARTS_MAX) == 0
    (entry,) = bk.open_ledger(writer.ledger_id).read()
    assert len(entry.parts) == PARTS_MAX


def test_batches_of_a_striped_ledger_are_read_back(bk: embedbk.Client) -> None:
    with bk.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2) as writer:
        for number in range(20):
            writer.add_batch([b"%d" % number, b"!"])
    read = [[bytes(part) for part in entry.parts] for entry in bk.open_ledger(writer.ledger_id).read()]
    assert read == [[b"%d" % number, b"!"] for number in range(20)]


# Idempotent appends.


def test_an_append_of_the_same_producer_and_sequence_is_done_once(bk: embedbk.Client, log_name: str) -> None:
    """The duplicate gets the old position: from this writer, and from one that took over (by reading back)."""
    log = bk.log(log_name)
    with log.writer() as writer:
        one = writer.append(b"one", producer=(7, 1))
        assert writer.append(b"one", producer=(7, 1)) == one
        five = writer.append_batch([b"five", b"!"], producer=(7, 5))  # Sequences rise, with gaps if wanted.
        assert writer.append(b"one", producer=(7, 1)) == one
        other = writer.append(b"other", producer=(8, 1))
    with log.writer() as writer:
        assert writer.append(b"one", producer=(7, 1)) == one
        assert writer.append(b"five", producer=(7, 5)) == five
        assert writer.append(b"other", producer=(8, 1), after=embedbk.NO_POSITION) == other
        six = writer.append(b"six", producer=(7, 6))
        assert writer.append(b"six", producer=(7, 6)) == six
        with pytest.raises(embedbk.UsageError, match="has appended sequence 6, and 3 is not among the last"):
            writer.append(b"late", producer=(7, 3))
    read = list(log.read())
    assert [bytes(entry) for entry in read] == [b"one", b"five!", b"other", b"six"]
    assert [entry.producer for entry in read] == [(7, 1), (7, 5), (8, 1), (7, 6)]


def test_a_writer_that_is_renewed_appends_nothing_again(bk: embedbk.Client, log_name: str) -> None:
    """P3.1: the writer itself keeps what it knows of its producers, also where the log does not tell it any more."""
    log = bk.log(log_name)
    with log.writer() as writer:
        one = writer.append(b"one", producer=(7, 1))
        writer.renew()
        two = writer.append(b"two", producer=(8, 3))
        log.truncate(1)
        writer.renew()
        assert writer.append(b"one", producer=(7, 1)) == one
        assert writer.append(b"two", producer=(8, 3)) == two
        writer.append(b"three", producer=(7, 2))
    assert [bytes(entry) for entry in log.read()] == [b"two", b"three"]


def test_a_later_writer_appends_again_what_was_truncated(bk: embedbk.Client, log_name: str) -> None:
    """P3.1: "What was truncated [...] it does not find, and appends again." """
    log = bk.log(log_name)
    with log.writer() as writer:
        one = writer.append(b"one", producer=(7, 1))
        writer.renew()
        writer.append(b"two")
        log.truncate(1)
    with log.writer() as writer:
        assert writer.append(b"one", producer=(7, 1)) != one
    assert [bytes(entry) for entry in log.read()] == [b"two", b"one"]


def test_a_duplicate_after_a_crash_of_the_writer_finds_what_recovery_kept(
    bk: embedbk.Client, log_name: str
) -> None:
    """It survives recovery, as it stands in the entry: the writer is let go of, the next one recovers."""
    log = bk.log(log_name)
    writer = log.writer()
    position = writer.append(b"one", producer=(7, 1))
    writer.release()
    with log.writer() as writer:
        assert writer.append(b"one", producer=(7, 1)) == position
    assert [bytes(entry) for entry in log.read()] == [b"one"]


def test_many_threads_that_repeat_each_other_append_once(bk: embedbk.Client, log_name: str) -> None:
    with bk.log(log_name).writer() as writer:
        found: list[embedbk.Position] = []

        def repeat() -> None:
            found.extend(writer.append(b"x", producer=(1, number)) for number in range(30))

        threads = [threading.Thread(target=repeat) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Who is behind another thread finds what is remembered, so that nobody is refused.
        assert len(found) == 90
        assert len(set(found)) == 30
        assert writer.lac == 29


@pytest.mark.parametrize("producer", [(7,), (7, -1), (2**63, 1), 7, (7, 1.5), (True, 1)])
def test_a_producer_is_a_pair_of_numbers(bk: embedbk.Client, producer: object) -> None:
    with bk.create_ledger() as writer:
        with pytest.raises(embedbk.UsageError, match="whole numbers"):
            writer.add(b"x", producer=producer)  # type: ignore[arg-type]
        assert writer.add(b"x", producer=(0, 0)) == 0


def test_the_awaited_face_takes_the_same_terms(bk: embedbk.Client, log_name: str) -> None:
    is_held, go_on = threading.Event(), threading.Event()

    def hold_host() -> None:
        is_held.set()
        go_on.wait(60)

    async def run() -> None:
        async with aio.Client(bk).log(log_name).writer() as writer:
            zero = await writer.append(b"zero", timeout_s=30, after=embedbk.NO_POSITION, producer=(1, 1))
            assert await writer.append(b"zero", producer=(1, 1)) == zero
            one = await writer.append_batch([b"a", b"b"], entry_id=1)
            assert writer.last_position == one
            with pytest.raises(embedbk.AppendConflict):
                await writer.append(b"x", after=zero)
        async with aio.Client(bk).create_ledger() as ledger:
            assert await ledger.add_batch([b"a", b"b"]) == 0
            assert await ledger.add(b"x", entry_id=1) == 1
            bk._runtime.call(hold_host)  # Or it may be acknowledged before anybody looks at the time.
            assert is_held.wait(60)
            try:
                with pytest.raises(embedbk.OperationTimeout):
                    await ledger.add_many([b"x"], timeout_s=0)
            finally:
                go_on.set()

    asyncio.run(run())


# What a new writer reads back: within the caller's time, and nothing is sent before.


def produced(cluster: Cluster, name: str, count: int) -> None:
    with cluster.log(name, client="before").writer() as writer:
        for sequence in range(count):
            writer.append(bytes(20_000), producer=(7, sequence))


def test_an_append_with_a_producer_keeps_its_time_and_the_next_one_goes_on_from_there() -> None:
    """P3.1: what producers appended before is read back first. Each append waits for that no longer than it has time;
    nothing of it was sent then, and what was read is not read again."""
    with Cluster(seed=5, bookies=3) as cluster:
        produced(cluster, "one", 300)
        writer = cluster.log("one").writer()
        told: list[embedbk.OperationTimeout] = []
        while True:
            began_s = cluster.now_s
            try:
                found = writer.append(b"again", timeout_s=0.002, producer=(7, 299))
                break
            except embedbk.OperationTimeout as late:
                told.append(late)
            assert cluster.now_s - began_s < 0.004
            assert len(told) < 200
        assert len(told) > 2  # No one call had the time for all of it.
        assert all(late.definite and late.ticket is None for late in told)
        assert all("nothing was appended" in str(late) for late in told)
        assert found.entry_id == 299
        assert found.ledger_id != writer.ledger_id
        assert writer.append(b"new", producer=(7, 300)) == (writer.ledger_id, 0)
        writer.close()


def test_what_keeps_a_producer_s_past_from_being_read_is_told_and_nothing_was_sent() -> None:
    """P3.1, P3.6: the error is the one of reading, definite; when the bookies are back the append is done, once."""
    with Cluster(seed=5, bookies=2) as cluster:
        log = cluster.log("one")
        with log.writer(ensemble_size=1) as before:
            before.append(b"zero", producer=(7, 0))
            (member,) = before._appending.writing.metadata.fragments[-1].members
        while True:
            writer = log.writer(ensemble_size=1)
            if writer._appending.writing.metadata.fragments[-1].members != (member,):
                break
        cluster.crash(member.bookie_id)
        for _ in range(2):
            with pytest.raises(embedbk.EntryUnreadable, match="nothing was appended") as failed:
                writer.append(b"zero", producer=(7, 0))
            assert failed.value.definite
        cluster.restart(member.bookie_id)
        cluster.run_for(1)
        assert writer.append(b"zero", producer=(7, 0)) == (before.ledger_id, 0)
        assert writer.append(b"one", producer=(7, 1)) == (writer.ledger_id, 0)
        writer.close()


def test_appends_of_many_threads_read_a_producer_s_past_back_together(
    bk: embedbk.Client, log_name: str
) -> None:
    """P3.1: whoever is first takes it further, the others wait for that; all find what was appended."""
    log = bk.log(log_name)
    with log.writer() as before:
        positions = [before.append(bytes(10_000), producer=(7, sequence)) for sequence in range(50)]
    with log.writer() as writer:
        found: dict[int, embedbk.Position] = {}
        told: list[embedbk.OperationTimeout] = []

        def append(sequence: int) -> None:
            while sequence not in found:
                try:
                    found[sequence] = writer.append(b"again", timeout_s=0.02, producer=(7, sequence))
                except embedbk.OperationTimeout as late:
                    told.append(late)

        threads = [threading.Thread(target=append, args=(sequence,)) for sequence in range(0, 50, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == {sequence: positions[sequence] for sequence in range(0, 50, 7)}
        assert all(late.definite for late in told)
        assert writer.last_position == positions[-1]


def test_a_cancelled_append_leaves_a_producer_s_past_to_the_next_one(
    bk: embedbk.Client, log_name: str
) -> None:
    """P3.1: also from one event loop to another, and to a thread; a writer that is closed meanwhile lets go of it."""
    log = bk.log(log_name)
    with log.writer() as before:
        position = before.append(bytes(100), producer=(7, 0))
    is_held, go_on = threading.Event(), threading.Event()

    def hold_host() -> None:
        is_held.set()
        go_on.wait(60)

    async def cancelled(writer: Any) -> None:
        task = asyncio.ensure_future(writer.append(b"again", producer=(7, 0)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for is_closed in (True, False):
        writer = aio.LogWriter(log_name, _line(log.writer()))
        is_held.clear()
        go_on.clear()
        bk._runtime.call(hold_host)
        assert is_held.wait(60)
        try:
            asyncio.run(cancelled(writer))
            learning = writer._appending.past.learning
            assert learning is not None
            if is_closed:
                writer._appending.release()
                assert learning.is_over
        finally:
            go_on.set()
        if not is_closed:
            assert asyncio.run(writer.append(b"again", producer=(7, 0))) == position
            writer._appending.release()


def _line(writer: embedbk.LogWriter) -> Any:
    return writer._line
