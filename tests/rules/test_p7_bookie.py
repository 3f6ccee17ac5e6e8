"""P7: what a bookie must never do."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.journal_records import RecordKind
from embedbk.codec.lac_messages import ExplicitLacRequest, LacAnswer, LacRequest
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.metadata_messages import Told
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import Quorum
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import JournalDurable, LimboListed, SharePart
from embedbk.core.ledger_table import LedgerTable
from embedbk.core.limbo import share_of
from embedbk.errors import InvariantError, LedgerFenced, NotEnoughBookies
from embedbk.ids import NO_ENTRY
from embedbk.storage.journal import DamagedJournal
from embedbk.storage.memory import MemoryBookieStorage
from tests.rules.world import KEY, Client, Node, Pen, World

STRANGER = b"another disk...."


def world_with_entries(count: int = 3) -> tuple[World, Client, Pen]:
    world = World(4)
    metadata, revision = world.create()
    writer, pen = world.writer(metadata, revision), Pen(metadata.ledger_id)
    for number in range(count):
        world.add(writer, pen, b"entry %d" % number)
        world.settle()
    return world, writer, pen


def b1(world: World) -> Node:
    return world.nodes["b1"]


def read(world: World, first: int, last: int, *, fence: bool = False) -> tuple[ReadAnswer, list[int]]:
    """b1's answer to a read: the control part, and the ids that came."""
    request = ReadRequest(b1(world).member.incarnation, 1, first, last, 1 << 20, fence, KEY)
    world.ask("b1", request)
    b1(world).sync()
    (packet,) = world.packets(world.nobody)
    world.wire.remove(packet)
    assert isinstance(packet.control, ReadAnswer)
    ids = [e for header, _ in packet.frames for e in range(header.first_entry, header.last_entry + 1)]
    return packet.control, ids


def add(world: World, pen: Pen, *, recovery: bool = False) -> Status:
    """b1's verdict on the pen's next entry."""
    payload = b"entry %d" % pen.next_entry
    frame = pen.frame(payload, lac=pen.next_entry - 1, lac_length=pen.length)
    world.ask("b1", AddRequest(b1(world).member.incarnation, 1, 1, recovery), frame)
    b1(world).sync()
    (answer,) = world.heard()
    return Status(answer.status)


def at(entry_id: int) -> Pen:
    """A pen before the entry; lengths as `world_with_entries` makes them."""
    pen = Pen(1)
    pen.next_entry, pen.length = entry_id, 7 * entry_id
    return pen


# P7.1: honest negatives.


@pytest.mark.parametrize("fence", [False, True])
def test_what_cannot_be_read_is_neither_there_nor_absent(fence: bool) -> None:
    """P7.1, I31: an index that names an entry that cannot be read answers unknown, never NoSuchEntry."""
    world, _, _ = world_with_entries()
    b1(world).storage.make_unreadable(1, 1)
    answer, _ = read(world, 0, 5, fence=fence)
    assert answer.status == Status.OK
    assert not any(first <= 1 <= last for first, last in answer.absent)
    answer, ids = read(world, 1, 1, fence=fence)
    assert (answer.status, answer.absent, ids) == (Status.OK, [], [])


def test_absent_is_only_what_was_never_stored() -> None:
    """P7.1: a ledger nobody wrote here is NO_SUCH_LEDGER; an entry that is not here is in `absent`."""
    world, _, _ = world_with_entries()
    answer, ids = read(world, 1, 9)
    assert ids == [1, 2]
    assert [tuple(pair) for pair in answer.absent] == [(3, 9)]
    world.ask("b4", ReadRequest(world.nodes["b4"].member.incarnation, 1, 0, 9, 1000))
    assert [answer.status for answer in world.heard()] == [Status.NO_SUCH_LEDGER]


def test_an_acknowledged_entry_is_there_after_a_crash() -> None:
    """P7.1, P3.2, I40: durable means durable; twice in a row as well (I44)."""
    world, _, _ = world_with_entries()
    for _ in range(2):
        b1(world).crash()
        b1(world).restart()
        assert read(world, 0, 2)[1] == [0, 1, 2]


# P7.2: identity.


def test_a_request_for_another_incarnation_is_answered_so_and_changes_nothing() -> None:
    """P7.2: every request names the incarnation it is for."""
    world, _, pen = world_with_entries()
    before = b1(world).storage.table.digest()
    world.ask("b1", AddRequest(STRANGER, 1, 1, True), pen.frame(b"x"))
    world.ask("b1", FenceRequest(STRANGER, 1, KEY))
    world.ask("b1", ReadRequest(STRANGER, 1, 0, 9, 1000))
    world.ask("b1", ReadRequest(STRANGER, 1, 0, 9, 1000, True, KEY))
    world.ask("b1", LacRequest(STRANGER, 1))
    world.ask("b1", ExplicitLacRequest(STRANGER, 1, KEY, 2, 21))
    assert [answer.status for answer in world.heard()] == [Status.WRONG_INCARNATION] * 6
    assert b1(world).storage.table.digest() == before


def test_two_bookies_that_lost_their_disks_acknowledge_nothing_of_a_paused_writer() -> None:
    """P7.2, scenario 26 (#4812): both bookies of an open ledger replaced by empty ones under their old names."""
    world = World(2)
    metadata, revision = world.create(Quorum(2, 2, 2))
    writer, pen = world.writer(metadata, revision), Pen(metadata.ledger_id)
    world.add(writer, pen, b"zero")
    world.settle()
    world.disks_lost = 2
    for node in world.nodes.values():
        node.lose_disk()
    world.add(writer, pen, b"one")
    world.run(seconds=6)
    assert writer.confirmed == 0
    assert isinstance(writer.failure, NotEnoughBookies)
    assert all(node.holds(pen.ledger_id) == [] for node in world.nodes.values())


# P7.3: fences for ever.


def test_a_fence_is_in_the_states_that_a_flush_keeps() -> None:
    """P7.3, P7.5, scenario 10 (BK-815): the state was stored without it; then the journal that knows it goes."""
    world, _, _ = world_with_entries()
    storage = b1(world).storage

    def flush() -> None:
        storage._unflushed_bytes = storage.flush_bytes
        assert storage.begin_flush_if_due()
        assert storage.finish_flush()

    flush()
    world.ask("b1", FenceRequest(b1(world).member.incarnation, 1, KEY))
    b1(world).sync()
    assert [answer.status for answer in world.heard()] == [Status.OK]
    flush()
    assert storage.records == []  # Trimmed: the states are all that is left of it.
    b1(world).crash()
    b1(world).restart()
    assert add(world, at(3)) == Status.FENCED


def test_a_fence_outlives_crashes_and_is_never_lifted() -> None:
    """P7.3, I19: also where it was set twice, and where recovery wrote entries behind it."""
    world, writer, _ = world_with_entries()
    incarnation = b1(world).member.incarnation
    for _ in range(2):
        world.ask("b1", FenceRequest(incarnation, 1, KEY))
        b1(world).sync()
        assert [answer.status for answer in world.heard()] == [Status.OK]
        assert add(world, at(3), recovery=True) == Status.OK
        b1(world).crash()
        b1(world).restart()
        assert add(world, at(3)) == Status.FENCED
        assert add(world, at(4)) == Status.FENCED
    assert writer.failure is None


def test_a_dropped_ledger_stays_fenced_and_in_limbo_for_ever() -> None:
    """P7.3: "fenced, in limbo, no data": no normal add, no negative, no LAC; recovery adds pass."""
    world, _, _ = world_with_entries()
    row = b1(world).storage.table.get(1)
    assert row is not None
    row.is_fenced = row.in_limbo = row.is_dropped = 1
    b1(world).storage.store.entries[1].clear()
    b1(world).storage.store.ids[1].clear()
    assert add(world, at(0)) == Status.FENCED
    answer, ids = read(world, 0, 9, fence=True)
    assert (answer.status, answer.absent, answer.lac, ids) == (Status.OK, [], NO_ENTRY, [])
    world.ask("b1", LacRequest(b1(world).member.incarnation, 1))
    assert world.heard() == [LacAnswer(Status.IN_LIMBO, 1)]
    world.ask("b1", FenceRequest(b1(world).member.incarnation, 1, KEY))
    b1(world).sync()
    assert world.heard() == [FenceAnswer(Status.OK, 1)]
    assert add(world, at(0), recovery=True) == Status.OK
    assert read(world, 0, 9)[1] == [0]


# P7.4: limbo.


def test_in_limbo_what_is_there_is_served_and_what_is_missing_is_unknown() -> None:
    """P7.4, I32, scenarios 27 and 28: normal adds answer InLimbo, an ordinary failure for the writer and not FENCED,
    although the ledger is fenced as well."""
    world, writer, pen = world_with_entries()
    row = b1(world).storage.table.get(1)
    assert row is not None
    row.in_limbo = row.is_fenced = 1
    assert add(world, at(1)) == Status.IN_LIMBO
    assert add(world, at(9)) == Status.IN_LIMBO
    answer, ids = read(world, 1, 9, fence=True)
    assert (answer.status, answer.absent, answer.lac, ids) == (Status.OK, [], NO_ENTRY, [1, 2])
    assert add(world, at(2), recovery=True) == Status.OK
    assert add(world, at(3), recovery=True) == Status.OK
    world.add(writer, pen, b"entry 3")
    world.settle()
    assert writer.failure is None
    assert writer.confirmed == 3
    names = [m.bookie_id for m in world.catalog.metadata(1)[0].fragments[-1].members]
    assert names == ["b4", "b2", "b3"]


@pytest.mark.parametrize("flag", ["in_limbo", "is_dropped"])
def test_limbo_that_begins_during_a_lookup_is_seen_by_the_answer(flag: str) -> None:
    """P7.4, P3.4a: the store was asked before; the row is asked again when it answers."""
    world, _, _ = world_with_entries()
    node = b1(world)
    node.holds_reads = True
    world.ask("b1", ReadRequest(node.member.incarnation, 1, 0, 9, 1000))
    world.ask("b1", AddRequest(node.member.incarnation, 1, 1, False), at(1).frame(b"entry 1"))
    row = node.storage.table.get(1)
    assert row is not None
    setattr(row, flag, 1)
    node.finish_reads()
    answers = world.heard()
    assert answers[0].absent == []
    assert answers[1].status == (Status.IN_LIMBO if flag == "in_limbo" else Status.FENCED)


# P7.6: a failed sync.


def test_after_a_failed_sync_nothing_is_promised_any_more() -> None:
    """P7.6, I50: "every pending answer, and every new add, fence and fenced read that is not durable already, is
    UNKNOWN; it still serves plain reads"."""
    world, _, _ = world_with_entries()
    node = b1(world)
    incarnation = node.member.incarnation
    world.ask("b1", AddRequest(incarnation, 1, 1, False), at(3).frame(b"entry 3"))
    world.ask("b1", ExplicitLacRequest(incarnation, 1, KEY, 2, 21))
    node.storage.fail_next_sync("input/output error")
    node.sync()
    assert [answer.status for answer in world.heard()] == [Status.UNKNOWN] * 2
    assert add(world, at(3)) == Status.UNKNOWN
    assert add(world, at(3), recovery=True) == Status.UNKNOWN
    world.ask("b1", ExplicitLacRequest(incarnation, 1, KEY, 2, 21))
    world.ask("b1", FenceRequest(incarnation, 1, KEY))
    assert [answer.status for answer in world.heard()] == [Status.UNKNOWN] * 2
    assert read(world, 0, 2)[1] == [0, 1, 2]
    assert node.core.replies.by_token == {}


def test_a_repeated_add_whose_lookup_outlives_the_journal_is_unknown() -> None:
    """P7.6, P3.4b: the stored copy may not be durable, and never will be."""
    world, _, _ = world_with_entries()
    node = b1(world)
    node.holds_reads = True
    world.ask("b1", AddRequest(node.member.incarnation, 1, 1, False), at(2).frame(b"entry 2"))
    node.storage.fail_next_sync("input/output error")
    node.sync()
    node.finish_reads()
    assert [answer.status for answer in world.heard()] == [Status.UNKNOWN]


def test_a_journal_that_makes_durable_what_was_never_queued_stops_the_bookie() -> None:
    """P3.2: checked also under python -O."""
    core = Bookie(bytes(16), LedgerTable(), 5)
    core.step(JournalDurable(0, 4))
    with pytest.raises(InvariantError):
        core.step(JournalDurable(0, 5))


# P7.8: too full.


def test_a_read_only_bookie_still_fences_and_takes_recovery_adds() -> None:
    """P7.8, scenario 11 (#208)."""
    world, _, _ = world_with_entries()
    b1(world).core.is_writable = False
    assert add(world, at(3)) == Status.READ_ONLY
    assert add(world, at(3), recovery=True) == Status.OK
    for ledger_id in (1, 77):
        world.ask("b1", FenceRequest(b1(world).member.incarnation, ledger_id, KEY))
        b1(world).sync()
        assert [answer.status for answer in world.heard()] == [Status.OK]
    assert read(world, 0, 3)[1] == [0, 1, 2, 3]


def test_a_full_ledger_table_is_an_answer_and_not_a_crash() -> None:
    """The table's bound and its reserve: nothing was done, the bookie goes on with the ledgers it knows."""
    world, _, _ = world_with_entries()
    node = b1(world)
    node.storage.table.ledgers_max = 0
    incarnation = node.member.incarnation
    world.ask("b1", AddRequest(incarnation, 1, 1, False), Pen(2).frame(b"x"))
    world.ask("b1", FenceRequest(incarnation, 2, KEY))
    world.ask("b1", ReadRequest(incarnation, 2, 0, 9, 1000, True, KEY))
    world.ask("b1", ExplicitLacRequest(incarnation, 2, KEY, 0, 1))
    answers = world.heard()
    assert [type(answer) for answer in answers] == [ErrorAnswer] * 4
    assert "full" in answers[0].text
    assert node.storage.pending == []
    assert add(world, at(3)) == Status.OK


def test_fenced_bookies_tell_a_paused_writer() -> None:
    """P7.3, scenario 27: fenced on b1 b2, the fence of b3 was lost; b2 restarts; the old writer adds."""
    world, writer, pen = world_with_entries()
    for name in ("b1", "b2"):
        world.ask(name, FenceRequest(world.nodes[name].member.incarnation, 1, KEY))
        world.nodes[name].sync()
    world.heard()
    world.nodes["b2"].crash()
    world.nodes["b2"].restart()
    world.add(writer, pen, b"entry 3")
    world.settle(hold=lambda packet: packet.bookie_id == "b1")
    assert isinstance(writer.failure, LedgerFenced)
    assert writer.confirmed == 2


def lost_world() -> tuple[World, Client, Pen, Node]:
    """Entries 0..2 are acknowledged by all three; then b1 loses everything and knows that it may have."""
    world, writer, pen = world_with_entries()
    node = b1(world)
    node.lose()
    return world, writer, pen, node


def test_nothing_is_served_before_limbo_is_durable() -> None:
    """P7.4, I32: neither yes nor no while the ledgers are listed, and while their limbo is on its way to the disk."""
    world, _, pen, node = lost_world()
    requests = [
        AddRequest(node.member.incarnation, 1, 1, True),
        FenceRequest(node.member.incarnation, 1, KEY),
        ReadRequest(node.member.incarnation, 1, 0, 9, 1000, True, KEY),
        LacRequest(node.member.incarnation, 1),
    ]

    def verdicts() -> list[type]:
        for request in requests:
            world.ask("b1", request, at(0).frame(b"entry 0") if isinstance(request, AddRequest) else None)
        return [type(answer) for answer in world.heard()]

    assert verdicts() == [ErrorAnswer] * 4
    node.enter_limbo()
    assert verdicts() == [ErrorAnswer] * 4
    node.sync()
    assert node.core.is_serving
    assert ErrorAnswer not in verdicts()
    assert pen.next_entry == 3


def test_every_ledger_that_names_it_is_in_limbo_with_or_without_a_trace() -> None:
    """P7.4, scenario 28 (BP-46): no negative and no LAC of a ledger that it knows nothing of any more."""
    world, _, _, node = lost_world()
    assert list(node.storage.table) == []
    node.enter_limbo()
    node.sync()
    assert list(node.core.limbo.ledgers) == [1]
    answer, ids = read(world, 0, 9, fence=True)
    assert (answer.status, answer.absent, answer.lac, ids) == (Status.OK, [], NO_ENTRY, [])
    world.ask("b1", LacRequest(node.member.incarnation, 1))
    assert world.heard() == [LacAnswer(Status.IN_LIMBO, 1)]
    assert add(world, at(3)) == Status.IN_LIMBO
    assert add(world, at(3), recovery=True) == Status.OK


def test_limbo_and_its_fence_outlive_crashes_and_a_crash_on_the_way_begins_again() -> None:
    """P7.4, P7.3: limbo is durable before it is served; a crash before that finds the loss noted."""
    _, _, _, node = lost_world()
    node.enter_limbo()
    node.crash()
    node.restart()
    assert not node.core.is_serving
    node.enter_limbo()
    node.sync()
    node.storage.end_loss()
    node.crash()
    node.restart()
    assert node.core.is_serving
    row = node.storage.table.get(1)
    assert row is not None
    assert (row.in_limbo, row.is_fenced) == (1, 1)
    assert list(node.core.limbo.ledgers) == [1]


def test_recovery_does_not_truncate_what_one_bookie_lost() -> None:
    """P7.4, P5.2c, scenario 28: e0..e2 on b1 b2 of Qa 2; b1 lost its copy, b3 never had one. Its silence is no "no"."""
    world = World(3)
    metadata, revision = world.create()
    writer, pen = world.writer(metadata, revision), Pen(1)
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: packet.bookie_id == "b3")
    assert writer.confirmed == 0
    for packet in world.packets(to="b3"):
        world.lose(packet)
    writer.is_gone = True
    node = b1(world)
    node.lose()
    node.enter_limbo()
    recovery = world.recovery(1)
    recovery.start()
    world.run(lambda: recovery.has_ended, seconds=1, hold=lambda packet: packet.bookie_id == "b2")
    assert not recovery.has_ended  # b1: unknown, b3: no. No verdict before b2 is heard.
    world.run(lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert world.check_end(1).last_entry == 0


def test_behind_a_damaged_journal_nothing_is_absent() -> None:
    """P7.4, I42, scenario 48: e0 on b1 b2, e1 on b1 only; b1's record of e0 rots, that of e1 does not. Without its
    owner's word b1 does not start; with it, e1 is there again, and the silence about e0 is no "no"."""
    world = World(3)
    metadata, revision = world.create()
    writer, pen = world.writer(metadata, revision), Pen(1)
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: packet.bookie_id == "b3")
    world.add(writer, pen, b"one")
    world.settle(hold=lambda packet: packet.bookie_id != "b1")
    for bookie_id in ("b2", "b3"):
        for packet in world.packets(to=bookie_id):
            world.lose(packet)
    assert writer.confirmed == 0
    writer.is_gone = True
    node = b1(world)
    zero = next(record for record in node.storage.records if record.kind == RecordKind.FRAME)
    survivors = node.storage.damage(node.storage.crash(), zero.token)
    with pytest.raises(DamagedJournal, match=f"record {zero.token} is not what was written"):
        MemoryBookieStorage(survivors)
    next_token = node.storage.next_token()
    node.boot(survivors, may_have_lost=True)
    world.disks_lost += 1
    assert node.storage.next_token() == next_token
    assert node.storage.read(1, 0, 9, 1000).absent == [
        (0, 0),
        (2, 9),
    ]  # What the limbo below keeps it from telling.
    node.enter_limbo()
    recovery = world.recovery(1)
    recovery.start()
    world.run(lambda: recovery.has_ended, seconds=1, hold=lambda packet: packet.bookie_id == "b2")
    assert not recovery.has_ended
    world.run(lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert world.check_end(1).last_entry in (0, 1)


def test_the_writer_replaces_a_bookie_in_limbo_and_goes_on() -> None:
    """P7.4, P4.1: for the writer an ordinary failure of one bookie, not FENCED; its explicit LAC is refused alike."""
    world, writer, pen, node = lost_world()
    node.enter_limbo()
    world.settle()
    world.ask("b1", ExplicitLacRequest(node.member.incarnation, 1, KEY, 1, 14))
    assert [answer.status for answer in world.heard()] == [Status.IN_LIMBO]
    world.add(writer, pen, b"entry 3")
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 3)
    names = [m.bookie_id for m in world.catalog.metadata(1)[0].fragments[-1].members]
    assert "b1" not in names


def test_a_closed_ledger_is_fenced_again() -> None:
    """P7.3, P5.3: its writer may be paused still. Fenced on b1 b2 and closed; b1 forgets; b3 was never fenced."""
    world, writer, pen = world_with_entries()
    recovery = world.recovery(1)
    recovery.start()
    world.run(lambda: recovery.has_ended, hold=lambda packet: packet.bookie_id == "b3")
    for packet in world.packets(to="b3"):
        world.lose(packet)
    node = b1(world)
    node.lose()
    node.enter_limbo()
    world.settle()
    assert list(node.core.limbo.ledgers) == []
    world.add(writer, pen, b"entry 3")
    world.settle()
    assert writer.confirmed == 2
    assert isinstance(writer.failure, LedgerFenced)


def test_a_ledger_that_names_it_no_longer_is_fenced_again() -> None:
    """P7.3, P5.3: recovery fenced b1 b2, then closed with another bookie in the seat of b1: no listing names b1. Its
    forgotten fence would let it acknowledge the paused writer, as long as anything here tells of the ledger."""
    world, _, pen = world_with_entries()
    node = b1(world)
    node.boot(node.storage.crash(), may_have_lost=True)
    node.perform(node.core.step(LimboListed(world.now_ns, [], [])))
    node.sync()
    assert node.core.is_serving
    assert add(world, pen) == Status.FENCED


@pytest.mark.parametrize("is_known", [False, True])
def test_a_ledger_that_is_gone_takes_no_adds_from_who_forgot_it(is_known: bool) -> None:
    """P7.4, P8.3 (seed 17015858): the ledger of a paused writer was closed empty, fenced on every seat, and deleted;
    b1 forgets its fence, and no listing names the ledger. Its id was given out: b1 takes no add of it, nor of one
    that a lost future may have made. What metadata has not given out yet, or others have, is none that is gone."""
    world, _, _ = world_with_entries(0)
    node = b1(world)
    told = Told(b"t" * 16, 1, b"n", 9, 30, [(20, 25)])
    node.boot(node.storage.crash(), may_have_lost=True)
    elsewhere, others = ([1], [2]) if is_known else ([], [])
    node.perform(node.core.step(LimboListed(world.now_ns, [], [], elsewhere, others, told)))
    assert not node.core.is_serving, "before it is durable"
    node.sync()
    assert node.core.is_serving
    expected = [(1, 1), (3, 29)] if is_known else [(1, 29)]
    node.storage.table.retire(node.core.records.next_token)
    assert node.storage.table.ranges() == expected
    assert add(world, at(0)) == Status.FENCED
    assert add(world, Pen(2)) == (Status.OK if is_known else Status.FENCED)
    assert [add(world, Pen(each)) for each in (19, 20, 24, 25, 29, 30)] == [
        Status.FENCED, Status.FENCED, Status.FENCED, Status.FENCED, Status.FENCED, Status.OK,
    ]  # fmt: skip
    answer, ids = read(world, 0, 9, fence=True)
    assert (answer.status, answer.absent, answer.lac, ids) == (Status.OK, [], NO_ENTRY, [])
    assert add(world, at(0), recovery=True) == Status.OK
    node.storage.end_loss()
    node.crash()
    assert add(world, Pen(19)) == Status.FENCED, "and so it is behind a clean start"


def test_limbo_ends_when_the_ledger_is_closed_and_the_share_is_found_again() -> None:
    """P7.4: not while an entry is missing or unreadable; then it stays ended through a crash, and the fence stays."""
    world, _, _, node = lost_world()
    node.enter_limbo()
    node.sync()
    recovery = world.recovery(1)
    recovery.start()
    world.run(lambda: recovery.has_ended)
    assert world.catalog.metadata(1)[0].last_entry == 2
    node.storage.end_loss()
    node.look_for_share(1)
    row = node.storage.table.get(1)
    assert row is not None
    assert row.in_limbo == 1  # Recovery wrote back only what was above the LAC.
    for entry_id in range(3):
        assert add(world, at(entry_id), recovery=True) == Status.OK
    node.storage.make_unreadable(1, 1)
    node.look_for_share(1)
    assert row.in_limbo == 1
    assert add(world, at(1), recovery=True) == Status.OK  # Its bad copy is replaced (P3.4c).
    node.look_for_share(1)
    assert (row.in_limbo, row.is_fenced) == (0, 1)
    assert list(node.core.limbo.ledgers) == []
    node.sync()
    node.crash()
    node.restart()
    answer, ids = read(world, 0, 9)
    assert (ids, [tuple(pair) for pair in answer.absent]) == ([0, 1, 2], [(3, 9)])


def test_the_share_of_a_striped_bookie_is_its_own_entries_only() -> None:
    """P7.4, P1: E 3, Qw 2: seat 0 stands in the write sets of residues 0 and 2."""
    world = World(3)
    metadata, revision = world.create(Quorum(3, 2, 2))
    writer, pen = world.writer(metadata, revision), Pen(1)
    for number in range(6):
        world.add(writer, pen, b"entry %d" % number)
    world.close(writer)
    world.settle()
    closed, _ = world.catalog.metadata(1)
    assert share_of(closed, b1(world).member) == [SharePart(0, 5, 3, 0b101)]
    row = b1(world).storage.table.get(1)
    assert row is not None
    row.in_limbo = row.is_fenced = 1
    b1(world).core.limbo.ledgers[1] = None
    b1(world).look_for_share(1)
    assert row.in_limbo == 0


def test_a_journal_that_fails_on_the_way_into_limbo_serves_nothing() -> None:
    """P7.4, P7.6."""
    _, _, _, node = lost_world()
    node.enter_limbo()
    node.storage.fail_next_sync("input/output error")
    node.sync()
    assert not node.core.is_serving


def test_a_table_too_small_for_limbo_serves_nothing() -> None:
    """P7.4: a ledger that cannot be put into limbo would answer "no" for what it lost."""
    _, _, _, node = lost_world()
    node.storage.table.ledgers_max = -16
    node.enter_limbo()
    node.sync()
    assert not node.core.is_serving
    assert "full" in (node.core.failure or "")
