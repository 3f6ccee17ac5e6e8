"""Ledgers through the blocking face: what one writes, others read (P3, P5, P6)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import ClassVar

import pytest

import embedbk
from embedbk import aio
from embedbk.config import ENTRY_BYTES_MAX, PACKER_BYTES_MAX
from embedbk.host.writing import Writing


def payloads(count: int) -> list[bytes]:
    return [b"payload %d" % number for number in range(count)]


def test_what_was_added_is_read_back_in_order(bk: embedbk.Client) -> None:
    """P6.1: a closed ledger gives every entry up to its last, and its length."""
    given = payloads(1000)
    with bk.create_ledger(custom={"kind": b"test"}) as writer:
        assert writer.add(given[0]) == 0
        appended = writer.add_many(given[1:])
        assert (appended.first_entry, appended.last_entry, appended.entry_count) == (1, 999, 999)
        assert writer.lac == 999
        assert writer.length == sum(map(len, given))
    with bk.open_ledger(writer.ledger_id) as reader:
        assert reader.is_closed
        assert reader.last_entry == 999
        assert reader.length == sum(map(len, given))
        assert reader.metadata.custom == {"kind": b"test"}
        entries = list(reader.read())
        assert [bytes(entry) for entry in entries] == given
        assert entries[7].position == (writer.ledger_id, 7)
        assert [bytes(entry) for entry in reader.read(10, 12)] == given[10:13]
        assert sum(batch.entry_count for batch in reader.read_batches(5, 994)) == 990


def test_what_one_call_appends_stands_together_however_many_append_and_wherever_there_is_room(
    tmp_path: Path,
) -> None:
    """P3.1, P3.3: `append_many` of more than there is room for waits for more, and another thread's entries do not come
    in between: else its range has others' entries, and it answers before its own last one is durable."""
    begun = threading.Barrier(3)
    settings = embedbk.Settings(append_bytes_max=ENTRY_BYTES_MAX)
    answers: dict[bytes, embedbk.Appended] = {}

    def append(who: int, orders: embedbk.LogWriter) -> None:
        begun.wait()
        for turn in range(3):
            name = b"%d %d" % (who, turn)
            answers[name] = orders.append_many([b"%s %d " % (name, at) + bytes(1000) for at in range(2500)])
            assert orders.lac >= answers[name].last_entry
            orders.append(b"alone")

    with embedbk.open(tmp_path / "cluster", bookies=1, settings=settings) as bk:
        with bk.log("orders").writer() as orders:
            threads = [threading.Thread(target=append, args=(who, orders)) for who in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        found = [bytes(entry).rstrip(b"\0") for entry in bk.log("orders").read()]
    assert len(answers) == 9
    for name, appended in answers.items():
        there = found[appended.first_entry : appended.last_entry + 1]
        assert there == [b"%s %d " % (name, at) for at in range(2500)]


def test_an_entry_outlives_its_reader(bk: embedbk.Client) -> None:
    """Read blocks live as long as a memoryview on them."""
    with bk.create_ledger() as writer:
        writer.add(b"kept")
    with bk.open_ledger(writer.ledger_id) as reader:
        entry = next(reader.read())
    assert isinstance(entry.data, memoryview)
    assert bytes(entry.data) == b"kept"


def test_a_striped_ledger_is_read_back_whole(bk: embedbk.Client) -> None:
    """P1: with E > Qw each bookie has its part; readers see one order (P6.4)."""
    given = payloads(500)
    with bk.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2) as writer:
        writer.add_many(given)
    assert [bytes(entry) for entry in bk.open_ledger(writer.ledger_id).read()] == given


def test_an_open_ledger_is_read_up_to_its_lac_without_recovery(bk: embedbk.Client) -> None:
    """P6.2: a reader without recovery changes nothing: the writer goes on."""
    writer = bk.create_ledger()
    writer.add(b"zero")
    with bk.open_ledger(writer.ledger_id) as reader:
        assert reader.last_entry is None
        while reader.last_add_confirmed() < 0:
            pass  # The writer tells its LAC a few milliseconds after it falls idle.
        assert [bytes(entry) for entry in reader.read()] == [b"zero"]
        with pytest.raises(embedbk.UsageError, match=r"last add confirmed"):
            list(reader.read(0, 1))
        writer.add(b"one")
        writer.close()
        assert reader.last_add_confirmed() == 1
        assert [bytes(entry) for entry in reader.read()] == [b"zero", b"one"]


def test_recovery_closes_a_ledger_and_fences_its_writer(bk: embedbk.Client) -> None:
    """P5.2, P3.6: what was acknowledged is below the last entry; the writer is told that it is fenced."""
    writer = bk.create_ledger()
    writer.add_many(payloads(50))
    with bk.open_ledger(writer.ledger_id, recover=True) as reader:
        assert reader.is_closed
        assert reader.last_entry == 49
        assert [bytes(entry) for entry in reader.read()] == payloads(50)
    with pytest.raises(embedbk.LedgerFenced) as refused:
        writer.add(b"late")
    assert not refused.value.definite
    with pytest.raises(embedbk.LedgerFenced) as refused:
        writer.add(b"later")
    assert refused.value.definite, "nothing of this one was sent"
    writer.release()


def test_tickets_are_acknowledged_in_order(bk: embedbk.Client) -> None:
    """P3.3: the LAC alone answers every ticket."""
    with bk.create_ledger() as writer:
        tickets = [writer.add_nowait(data) for data in payloads(200)]
        assert tickets[-1].result() == (writer.ledger_id, 199)
        assert all(ticket.done() for ticket in tickets)
        assert [ticket.entry_id for ticket in tickets] == list(range(200))


class Counted(Writing):
    """A handle that counts who heard of an entry before it was published."""

    __slots__ = ()
    heard_first: ClassVar[list[int]] = []

    def wait_locally(self, entry_id: int) -> bool:
        has_heard = super().wait_locally(entry_id)
        if has_heard:
            self.heard_first.append(entry_id)
        return has_heard


def test_a_ticket_blocks_where_acknowledgements_are_known_first(bk: embedbk.Client) -> None:
    """native/SHORTCUTS.md, "Near seats": who blocks in `result()` sleeps on the LAC as C shows it and not on what is
    published, so it costs the host's thread no turn; what it hears is the same, the end of the handle too."""
    with bk.create_ledger() as writer:
        writer._appending.writing.__class__ = Counted
        for number in range(
            5000
        ):  # While disks are slow adds may go by messages, so not each of them counts.
            ticket = writer.add_nowait(b"one")
            assert ticket.result() == (writer.ledger_id, number)
            if len(Counted.heard_first) >= 20:
                break
        assert len(Counted.heard_first) >= 20, "adds go past the messages, and their waits by way of them"

    async def block() -> None:
        ticket.result()

    with pytest.raises(embedbk.UsageError, match="await the ticket itself"):
        asyncio.run(block())
    writer = bk.create_ledger()
    writer.add(b"one")
    writer.release()
    lost = embedbk.Ticket(writer._appending, 1)  # As if entry 1 had been on its way.
    with pytest.raises(embedbk.LedgerClosed) as ended:
        lost.result()
    assert ended.value.ticket is not None and ended.value.ticket.entry_id == 1


def test_leaving_by_an_exception_touches_no_cluster_state(bk: embedbk.Client) -> None:
    """A block that fails releases its ledger: it stays open until somebody recovers it."""
    writer = bk.create_ledger()

    def fail() -> None:
        with writer:
            writer.add(b"before")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with bk.open_ledger(writer.ledger_id) as reader:
        assert not reader.is_closed
    with bk.open_ledger(writer.ledger_id, recover=True) as reader:
        assert [bytes(entry) for entry in reader.read()] == [b"before"]


def test_an_empty_ledger_reads_as_empty(bk: embedbk.Client) -> None:
    with bk.create_ledger() as writer:
        pass
    with bk.open_ledger(writer.ledger_id) as reader:
        assert reader.last_entry == embedbk.NO_ENTRY
        assert list(reader.read()) == []


def test_a_closed_ledger_is_deleted_and_an_open_one_only_by_force(bk: embedbk.Client) -> None:
    """P2.3, CL30: an open ledger is refused unless it is forced; then it is gone at once."""
    with bk.create_ledger() as writer:
        writer.add(b"x")
    bk.delete_ledger(writer.ledger_id)
    assert writer.ledger_id not in bk.ledgers()
    with pytest.raises(embedbk.NoSuchLedger):
        bk.open_ledger(writer.ledger_id)
    open_one = bk.create_ledger()
    open_one.add(b"x")
    with pytest.raises(embedbk.UsageError, match=r"is OPEN.*force=True") as refused:
        bk.delete_ledger(open_one.ledger_id)
    assert refused.value.definite
    assert open_one.add(b"y") == 1
    bk.delete_ledger(open_one.ledger_id, force=True)
    assert open_one.ledger_id not in bk.ledgers()
    with pytest.raises(embedbk.NoSuchLedger, match="deleted_ledgers"):
        bk.undelete_ledger(open_one.ledger_id)
    open_one.release()


def test_a_deleted_ledger_is_brought_back_while_its_grace_lasts(bk: embedbk.Client) -> None:
    """CL31, CL32: two steps; in between it is gone for everybody, and its tombstone decides, not a clock."""
    with bk.create_ledger(password=b"p") as writer:
        writer.add_many([b"a", b"b"])
    ledger_id = writer.ledger_id
    bk.delete_ledger(ledger_id, password=b"p")
    (found,) = [each for each in bk.deleted_ledgers() if each.ledger_id == ledger_id]
    assert found.until_ms - found.deleted_ms == pytest.approx(86_400_000, abs=1000)
    assert ledger_id not in bk.forget_deleted()
    with pytest.raises(embedbk.WrongPassword):
        bk.undelete_ledger(ledger_id)
    bk.undelete_ledger(ledger_id, password=b"p")
    assert [bytes(entry) for entry in bk.open_ledger(ledger_id, password=b"p").read()] == [b"a", b"b"]
    with pytest.raises(embedbk.NoSuchLedger):
        bk.undelete_ledger(ledger_id, password=b"p")


def test_a_deleted_ledger_is_forgotten_after_its_grace(data: Path) -> None:
    """CL31: the second step; then nobody brings it back."""
    settings = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0, delete_grace_s=0)
    with embedbk.open(data, bookies=1, settings=settings) as bk:
        with bk.create_ledger() as writer:
            writer.add(b"x")
        bk.delete_ledger(writer.ledger_id)
        assert bk.forget_deleted() == [writer.ledger_id]
        assert bk.deleted_ledgers() == []
        with pytest.raises(embedbk.NoSuchLedger):
            bk.undelete_ledger(writer.ledger_id)


def test_the_largest_entry_is_taken(bk: embedbk.Client) -> None:
    largest = bytes(ENTRY_BYTES_MAX)
    with bk.create_ledger() as writer:
        writer.add(largest)
    assert [len(entry) for entry in bk.open_ledger(writer.ledger_id).read()] == [ENTRY_BYTES_MAX]


def test_a_password_opens_and_is_kept_nowhere(bk: embedbk.Client) -> None:
    """P3.5: the metadata holds a digest of a digest."""
    with bk.create_ledger(password=b"correct horse") as writer:
        writer.add(b"secret")
    with bk.open_ledger(writer.ledger_id, password=b"correct horse") as reader:
        assert [bytes(entry) for entry in reader.read()] == [b"secret"]
        assert b"correct horse" not in reader.metadata.password_verifier
    for wrong in (b"", b"battery staple"):
        with pytest.raises(embedbk.WrongPassword) as refused:
            bk.open_ledger(writer.ledger_id, password=wrong, recover=True)
        assert "battery" not in str(refused.value)
    with pytest.raises(embedbk.WrongPassword):
        bk.delete_ledger(writer.ledger_id)


def test_a_full_packer_makes_writers_wait_and_tasks_choose(bk: embedbk.Client) -> None:
    """Back pressure: bytes in flight have a bound (`PACKER_BYTES_MAX`); who may not block is told."""
    payload = bytes(ENTRY_BYTES_MAX)
    count = PACKER_BYTES_MAX // ENTRY_BYTES_MAX + 5
    writer = bk.create_ledger()
    stopped, go_on = threading.Event(), threading.Event()

    def hold_host() -> None:
        stopped.set()
        go_on.wait(30)

    bk._runtime.call(hold_host)
    assert stopped.wait(30)
    awaited = aio.LedgerWriter(writer._appending)
    with pytest.raises(embedbk.OperationTimeout, match="nothing was appended") as refused:
        _ = [awaited.add_nowait(payload) for _ in range(count)]
    assert refused.value.definite
    queued = writer._appending.writing.packer.next_entry
    assert queued < count
    adding = threading.Thread(target=writer.add, args=(b"waited for room",))
    adding.start()
    go_on.set()
    adding.join(30)
    assert writer.close() == queued


def test_threads_share_one_writer(bk: embedbk.Client) -> None:
    """Ids are given once each, and each thread's entries stand in its own order."""
    with bk.create_ledger() as writer:

        def add(thread: int) -> None:
            for number in range(100):
                writer.add(b"%d %d" % (thread, number))

        threads = [threading.Thread(target=add, args=(thread,)) for thread in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
    found = [tuple(map(int, bytes(entry).split())) for entry in bk.open_ledger(writer.ledger_id).read()]
    assert len(found) == 400
    for thread in range(4):
        assert [number for who, number in found if who == thread] == list(range(100))


def test_the_last_entry_and_what_is_beyond_it(bk: embedbk.Client) -> None:
    """CL24, CL26, P6.3: the last that may be read; the LAC at the first word of it; nothing unconfirmed of a closed
    ledger."""
    with bk.create_ledger() as writer, bk.open_ledger(writer.ledger_id) as reader:
        assert reader.last_add_confirmed() == -1
        with pytest.raises(embedbk.NoSuchEntry):
            reader.read_last()
        writer.add_many([b"a", b"b", b"c"])
        assert [bytes(entry) for entry in reader.read_unconfirmed()] == [b"a", b"b", b"c"]
        assert reader.try_last_add_confirmed() >= -1
    with bk.open_ledger(writer.ledger_id) as reader:
        assert bytes(reader.read_last()) == b"c"
        assert reader.read_last().entry_id == 2
        assert [bytes(entry) for entry in reader.read_unconfirmed(1)] == [b"b", b"c"]
        assert list(reader.read_unconfirmed(3, 99)) == []
        assert reader.try_last_add_confirmed() == 2


def test_what_metadata_holds_of_a_ledger_is_read_without_opening_it(bk: embedbk.Client) -> None:
    """CL33: "metadata by id without a handle": no password, and no bookie is asked; what is not there says so."""
    with bk.create_ledger(password=b"p", custom={"why": b"shown"}) as writer:
        ledger_id = writer.ledger_id
        writer.add(b"one")
        metadata = bk.ledger_metadata(ledger_id)
        assert (metadata.ledger_id, metadata.last_entry, metadata.custom) == (
            ledger_id,
            None,
            {"why": b"shown"},
        )
        assert bk.is_closed(ledger_id) is False
    assert bk.ledger_metadata(ledger_id).last_entry == 0
    assert bk.is_closed(ledger_id) is True
    bk.delete_ledger(ledger_id, password=b"p")
    for call in (bk.ledger_metadata, bk.is_closed):
        with pytest.raises(embedbk.NoSuchLedger):
            call(ledger_id)
        for strange in (-1, True, "1", None, 2**63):
            with pytest.raises(embedbk.UsageError, match="ledger id"):
                call(strange)  # type: ignore[arg-type]
