"""Scenarios 15 to 34: known accidents of ensemble change, closing, repair, deletion and readers, all invariants on.

The comment in each test says what was taken out of the product to see it fail. Scenario 31 (a reader that moves to the
next ledger of a log) is in test_log_readers.py.
"""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import LacRequest
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Begun,
    LogList,
    LogSegment,
    decode_log_list,
    encode_log_list,
    log_key_path,
)
from embedbk.codec.metadata_messages import Put
from embedbk.codec.read_messages import ReadRequest
from embedbk.config import Quorum
from embedbk.core.client_words import SendFailed
from embedbk.core.lac_reader import LacWait
from embedbk.core.log import LogTakeover
from embedbk.core.log_listing import NewLedger
from embedbk.errors import LedgerClosed, LedgerFenced, MetadataConflict, NoSuchLedger, UsageError
from embedbk.testing.actor import Deletion, Repair
from embedbk.testing.violation import Violation
from tests.rules.world import KEY, THREE, Catalog, Client, Packet
from tests.scenarios.watched import Scene, Watched, but, scene


def ended(world: Watched, client: Client, seconds: float = 60) -> object:
    """Start it, run it to its end: its result, or its error raised."""
    client.start()
    world.run(until=lambda: client.has_ended, seconds=seconds)
    if client.ended.error is not None:
        raise client.ended.error
    return client.ended.result


def repair(story: Scene, lost: str, target: str) -> Client:
    world = story.world
    core = Repair(story.ledger_id, world.nodes[lost].member, world.nodes[target].member, KEY, world.nonce())
    return world.client(f"repair {lost}", core)


def is_add(packet: Packet) -> bool:
    return isinstance(packet.control, AddRequest)


def test_repair_waits_for_the_last_fragment_and_skips_nothing_before_it() -> None:
    """Scenario 15: #3917. Right after a change at e2, with the LAC known as 0 by bookies: repair of the open ledger
    leaves the last fragment alone, and copies every entry before it, whatever any LAC says."""
    # Taken out: that copying is independent of the LAC (testing/actor.py, `_copy`: last -= 1), found by I36.
    story = scene(bookies=6)
    world = story.world
    assert ended(world, repair(story, "b1", "b5")) == "deferred"
    for number in range(2):
        story.add(b"entry %d" % number)
        world.settle(hold=lambda packet: packet.bookie_id == "b1" and is_add(packet))
    for packet in world.packets(story.writer, "b1", AddRequest):
        world.fail(packet)
    world.settle()
    assert [f.first_entry for f in story.metadata.fragments] == [0, 2]
    assert ended(world, repair(story, "b1", "b5")) == 1
    assert world.nodes["b5"].holds(story.ledger_id) == [0, 1]
    story.add(b"after")
    world.settle()
    world.close(story.writer)
    world.run()
    world.end(story.ledger_id)


def test_late_errors_acknowledge_nothing_on_an_ensemble_nobody_knows() -> None:
    """Scenario 16: #1591. Metadata cannot be written; b1, b2 and b3 fail one after the other, late."""
    # Taken out: both quorums while a change is in flight (core/writer.py, `_advance`: in_flight.advance(None)).
    story = scene(bookies=6)
    world, writer = story.world, story.writer
    story.add(b"e0")
    world.settle()
    world.catalog.is_held = True
    story.add(b"e1")
    world.deliver(world.packet(writer, "b1", AddRequest))
    world.nodes["b1"].sync()
    world.deliver(world.packet(writer, "b1", AddAnswer))
    story.add(b"e2")
    world.fail(world.packet(writer, "b1", AddRequest))  # b1 has e1, and would be out of its ensemble.
    world.settle(hold=but("b3"))
    assert writer.confirmed == 0
    for packet in world.packets(writer, "b3", AddRequest):
        world.fail(packet)
    assert writer.confirmed == 0
    world.catalog.is_held = False
    world.run(seconds=20)
    assert writer.confirmed == 2
    world.end(story.ledger_id)


def test_overlapping_changes_with_striping_reach_the_named_write_sets() -> None:
    """Scenario 17: #4097, #4194. E 6, Qw 2, Qa 2, several entries pending, a second failure while the first change is
    in flight: every acknowledged entry is where committed metadata says."""
    # Taken out: copies for each new seat (core/in_flight.py, `resend`: only chosen[:1]).
    story = scene(Quorum(6, 2, 2), bookies=10)
    world, writer = story.world, story.writer
    for number in range(8):
        story.add(b"entry %d" % number)
    world.catalog.is_held = True
    for name in ("b2", "b3"):
        for packet in world.packets(writer, name, AddRequest):
            world.fail(packet)
    for packet in world.packets(writer, "b5", AddRequest):
        world.fail(packet)
    world.settle()
    world.catalog.is_held = False
    world.run(seconds=20)
    assert writer.confirmed == 7
    world.end(story.ledger_id)


def test_a_refused_change_is_decided_anew() -> None:
    """Scenario 18: #1886. Somebody else's change comes first: the writer reads again, and an old confirmation of the
    seat that it replaced does not count."""
    # Taken out: reading again after a refusal (core/writer.py, `_on_outcome`: a refusal does nothing).
    story = scene(bookies=5)
    world, writer = story.world, story.writer
    story.add(b"e0")
    world.settle()
    story.add(b"e1")
    late = world.packet(writer, "b1", AddRequest)
    world.catalog.is_held = True
    world.fail(late)
    (operation,) = world.catalog.waiting
    world.catalog.transact(
        [], [Put(operation.effect.then[0].key, world.catalog.values[operation.effect.then[0].key][0])]
    )
    world.catalog.is_held = False
    world.run(seconds=20)
    assert writer.confirmed == 1
    assert "b1" not in {name for name, _ in story.metadata.fragments[-1].ensemble}
    world.end(story.ledger_id)


def test_a_close_and_a_change_that_cross_keep_both() -> None:
    """Scenario 19: BK-584. A recovery closes while the writer's change is on its way: neither overwrites the other."""
    # Taken out: the comparison (core/publishing.py, `put`: no Compare).
    story = scene(bookies=5)
    world, writer = story.world, story.writer
    story.add(b"e0")
    world.settle()
    world.catalog.is_held = True
    story.add(b"e1")
    world.fail(world.packet(writer, "b1", AddRequest))
    (change,) = world.catalog.waiting
    recovery = world.recovery(story.ledger_id)
    recovery.start()
    for _ in range(20):
        world.settle(hold=lambda packet: packet.client is writer)
        for operation in [o for o in world.catalog.waiting if o is not change]:
            world.catalog.answer(operation)
    assert recovery.ended.error is None
    world.catalog.answer(change)
    world.catalog.is_held = False
    world.run(seconds=20)
    assert isinstance(writer.failure, LedgerFenced | LedgerClosed)
    world.end(story.ledger_id)


def test_a_close_beside_repair_ends_at_the_right_entry() -> None:
    """Scenario 20: BK-112. Repair changes an earlier fragment between the writer's close and its outcome."""
    # Taken out: reading again after a refusal (core/writer.py, `_on_outcome`: refused counts as settled).
    story = scene(bookies=6)
    world, writer = story.world, story.writer
    story.add(b"e0")
    world.settle(hold=lambda packet: packet.bookie_id == "b1" and is_add(packet))
    world.fail(world.packet(writer, "b1", AddRequest))
    world.settle()
    story.add(b"e1")
    world.settle()
    world.catalog.is_held = True
    world.close(writer)
    (close,) = world.catalog.waiting
    repairing = repair(story, "b1", "b6")
    repairing.start()
    for _ in range(20):
        world.settle()
        for operation in [o for o in world.catalog.waiting if o is not close]:
            world.catalog.answer(operation)
    assert repairing.ended.result == 1
    world.catalog.answer(close)
    world.catalog.is_held = False
    world.run(seconds=20)
    assert writer.ended.error is None
    assert story.metadata.last_entry == 1
    assert "b6" in {name for name, _ in story.metadata.fragments[0].ensemble}
    world.end(story.ledger_id)


def test_two_members_that_fail_while_repair_edits_are_both_replaced() -> None:
    """Scenario 21: BK-337, BK-667. The writer's change is refused because of repair; both failed seats are replaced."""
    # Taken out: deciding anew (core/writer.py, `_on_outcome`: a refusal does nothing).
    story = scene(bookies=8)
    world, writer = story.world, story.writer
    story.add(b"e0")
    world.settle(hold=lambda packet: packet.bookie_id == "b1" and is_add(packet))
    world.fail(world.packet(writer, "b1", AddRequest))
    world.settle()
    world.catalog.is_held = True
    story.add(b"e1")
    for name in ("b2", "b3"):
        world.fail(world.packet(writer, name, AddRequest))
    (change,) = world.catalog.waiting
    repairing = repair(story, "b1", "b8")
    repairing.start()
    for _ in range(20):
        world.settle(hold=lambda packet: packet.client is writer)
        for operation in [o for o in world.catalog.waiting if o is not change]:
            world.catalog.answer(operation)
    assert repairing.ended.result == 1
    world.catalog.answer(change)
    world.catalog.is_held = False
    world.run(seconds=20)
    assert writer.confirmed == 1
    assert not {"b2", "b3"} & {name for name, _ in story.metadata.fragments[-1].ensemble}
    world.end(story.ledger_id)


def test_an_entry_completed_by_the_end_of_a_change_is_told() -> None:
    """Scenario 22: #1857. Its write set does not hold the replaced bookie; it waited only for the outcome."""
    # Taken out: confirming while a change is in flight (core/writer.py, `_advance`: [] while there is a proposal, and
    # no `_advance` in `_go_on_behind_change`).
    story = scene(Quorum(4, 2, 2), bookies=5)
    world, writer = story.world, story.writer
    world.catalog.is_held = True
    story.add(b"e0")  # b1 b2.
    story.add(b"e1")  # b2 b3.
    story.add(b"e2")  # b3 b4.
    world.fail(next(p for p in world.packets(writer, "b4", AddRequest)))
    world.settle(hold=but("b5"))
    world.catalog.is_held = False
    world.settle(hold=but("b5"))  # The outcome is there, and nothing else comes.
    assert writer.confirmed == 1
    world.run(seconds=20)
    assert writer.confirmed == 2
    world.end(story.ledger_id)


def test_a_fence_that_arrives_during_completion_leaves_no_add_hanging() -> None:
    """Scenario 23: #4557, BK-795. Some adds are answered, some meet the fence: each is acknowledged or failed (L2)."""
    # Taken out: failing all that is outstanding (core/writer.py, `_fail`: no AddFailed).
    story = scene()
    world, writer = story.world, story.writer
    for number in range(6):
        story.add(b"entry %d" % number)
    for packet in world.packets(writer, kind=AddRequest)[:7]:
        world.deliver(packet)
    recovery = world.recovery(story.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: packet.client is writer and is_add(packet))
    world.run(seconds=30)
    assert isinstance(writer.failure, LedgerFenced)
    world.end(story.ledger_id)


def test_a_writer_of_a_deleted_ledger_fails() -> None:
    """Scenario 24: #4462. Another client fenced, closed and deleted it."""
    # Taken out: the refusal behind the fence (core/ledger_standing.py, `refusal_of`: only limbo is refused).
    story = scene()
    world = story.world
    story.add(b"e0")
    world.settle()
    assert story.recover().ended.error is None
    ended(world, world.client("deleter", Deletion(story.ledger_id)))
    story.add(b"late")
    world.run(seconds=20)
    assert story.writer.confirmed == 0
    assert isinstance(story.writer.failure, LedgerFenced | LedgerClosed | NoSuchLedger)


def test_the_first_two_requests_of_a_ledger_make_one_row() -> None:
    """Scenario 25: #4701. An add and a fence of an unknown ledger, in either order: entry, fence and key are one."""
    # Taken out: one table for both (core/fencing.py, `fence`: a new row without the add's).
    for first_is_fence in (False, True):
        story = scene()
        world, node = story.world, story.world.nodes["b1"]
        world.ask(
            "b1", FenceRequest(node.member.incarnation, story.ledger_id, KEY)
        ) if first_is_fence else None
        story.add(b"e0")
        world.deliver(world.packet(story.writer, "b1"))
        world.ask("b1", FenceRequest(node.member.incarnation, story.ledger_id, KEY))
        node.sync()
        row = node.storage.table.get(story.ledger_id)
        assert row is not None
        assert row.is_fenced
        assert node.holds(story.ledger_id) == ([] if first_is_fence else [0])
        assert len(node.storage.table) == 1


def test_empty_bookies_under_old_names_acknowledge_nothing() -> None:
    """Scenario 26: #4812. Both members were replaced by empty ones of the same names; the ledger is closed."""
    # Taken out: the incarnation (core/add_storing.py, `_refusal`: any incarnation is taken).
    story = scene(Quorum(2, 2, 2), bookies=4)
    world = story.world
    assert story.recover().ended.error is None
    for name in ("b1", "b2"):
        world.nodes[name].lose_disk()
        world.disks_lost += 1
    story.add(b"late")
    world.run(seconds=20)
    assert story.writer.confirmed == -1
    assert story.writer.failure is not None


def test_a_bookie_that_may_have_forgotten_a_fence_refuses() -> None:
    """Scenario 27: BP-46, 1. Fenced on b1 and b2, lost to b3; b2 comes back in limbo: it takes no add."""
    # Taken out: refusal in limbo (core/ledger_standing.py, `refusal_of`: FENCED and limbo only by `is_dropped`).
    story = scene()
    world = story.world
    recovery = story.recover(hold=but("b3"))
    assert recovery.ended.error is None
    for packet in world.packets(recovery):
        world.lose(packet)
    world.put_in_limbo("b2", story.ledger_id)
    story.add(b"late")
    world.run(hold=but("b1"), seconds=20)
    assert story.writer.confirmed == -1


def test_a_bookie_that_the_close_took_out_of_the_ledger_stays_fenced() -> None:
    """Scenario 27: fenced on b1 and b2, lost to b3; recovery replaced b1, and the closed ledger does not name it; b1
    loses all it had. The paused writer's next entry must not be acknowledged by b1 and b3: it is behind the end."""
    # Taken out: what becomes of closed ledgers of others (core/limbo_entering.py: no loop over elsewhere).
    story = scene(bookies=4)
    world, writer = story.world, story.writer
    story.add(b"e0")
    world.settle()
    story.add(b"e1")  # Nobody gets it yet.
    recovery = world.recovery(story.ledger_id)
    recovery.start()

    def hold(packet: Packet) -> bool:
        is_write_back = packet.bookie_id == "b1" and is_add(packet)
        return packet.client is writer or packet.bookie_id == "b3" or is_write_back

    world.settle(hold=hold)
    for packet in world.packets(recovery, "b1", AddRequest):
        world.fail(packet)
    world.run(until=lambda: recovery.has_ended, hold=hold, seconds=5)
    assert recovery.ended.error is None
    assert "b1" not in {name for name, _ in story.metadata.fragments[-1].ensemble}
    for packet in world.packets(recovery):
        world.lose(packet)
    node = world.nodes["b1"]
    node.lose()
    node.enter_limbo()
    node.sync()
    world.run(hold=but("b2"), seconds=10)
    assert writer.confirmed == 0
    assert isinstance(writer.failure, LedgerFenced)
    row = node.storage.table.get(story.ledger_id)
    assert row is not None
    assert (row.is_fenced, row.in_limbo, row.is_dropped) == (1, 1, 1)


def test_a_bookie_that_lost_an_entry_says_unknown() -> None:
    """Scenario 28: BP-46, 2. e0 was acknowledged by b1 and b3; b1 lost it and is in limbo; b3 is slow."""
    # Taken out: unknown in limbo (core/ledger_standing.py, `knows_all`: always True).
    story = scene()
    world, writer = story.world, story.writer
    story.add(b"e0")
    world.settle(hold=but("b1", "b2"))
    world.deliver(world.packet(writer, "b1"))
    world.nodes["b1"].holds_syncs = True
    second = world.packet(writer, "b2")
    world.lose(second)
    world.put_in_limbo("b1", story.ledger_id)  # Its copy was never synced, and is gone.
    recovery = story.recover(
        hold=lambda p: p.bookie_id == "b3" and isinstance(p.control, ReadRequest), seconds=30
    )
    assert story.metadata.last_entry is None
    assert recovery.ended.error is not None


def test_the_length_counts_only_what_is_in_the_ledger() -> None:
    """Scenario 29: BK-673. Some adds fail; the closed length is that of the entries up to the last."""
    # Taken out: length at the LAC (core/change_publishing.py, `close`: the length of the last frame sent).
    story = scene(bookies=3)
    world, writer = story.world, story.writer
    for number in range(3):
        story.add(b"x" * (number + 1))
        world.settle()
    story.add(b"y" * 50)
    world.down |= {"b1", "b2", "b3"}
    for packet in world.packets(writer, kind=AddRequest):
        world.fail(packet)
    world.run(seconds=20)
    assert writer.failure is not None
    world.down.clear()
    world.close(writer)
    world.run(seconds=20)
    assert (story.metadata.last_entry, story.metadata.length) == (2, 6)
    world.end(story.ledger_id)


def test_a_reader_of_a_fenced_open_ledger_does_not_spin() -> None:
    """Scenario 30: #2052. It waits for a LAC that never comes: it is told at once that the ledger is fenced, and asks
    nothing more (L12)."""
    # Taken out: the look at the fence (core/lac_answers.py, `on_poll`: `is_idle` also where fenced).
    story = scene()
    world = story.world
    fencing = world.recovery(story.ledger_id, "half")
    fencing.start()
    world.settle(hold=lambda packet: isinstance(packet.control, ReadRequest))
    world.kill(fencing)
    waiting = world.client("reader", LacWait(story.metadata, -1, 300, 0))
    waiting.start()
    world.run(until=lambda: waiting.has_ended, seconds=2)
    assert waiting.ended.error is None
    assert waiting.ended.result[2]
    assert world.now_ns < 300_000_000  # It was not parked until its time was over.
    assert not world.packets(waiting, kind=LacRequest)


@pytest.mark.parametrize("ledger_id", [0, 1])
def test_a_ledger_of_one_entry_and_ledger_zero_are_ledgers_like_others(ledger_id: int) -> None:
    """Scenario 32: majordodo#31, #950. Ledger 0, and a ledger with only entry 0: recovered, repaired, read."""
    # Taken out: zero is an entry (core/recovery.py, `_go_on`: `if self.forward.end` instead of `is not None`).
    world = Watched(5)
    metadata, revision = world.create(THREE, ledger_id=ledger_id)
    story = Scene(world, metadata, world.writer(metadata, revision))
    story.add(b"only")
    world.settle()
    assert story.recover().ended.error is None
    assert story.metadata.last_entry == 0
    assert ended(world, repair(story, "b1", "b5")) == 1
    assert world.nodes["b5"].holds(ledger_id) == [0]
    world.end(ledger_id)


def listed_and_gone(last_entry: int | None) -> tuple[Watched, Client]:
    """A log whose only ledger was deleted by its application, which died before it changed the list; and a leader."""
    world = Watched(4)
    metadata, revision = world.create(THREE)
    story = Scene(world, metadata, world.writer(metadata, revision))
    assert story.recover().ended.error is None
    segments = (LogSegment(story.ledger_id, 0, last_entry),)
    # Past the invariants: no act of ours makes such a list (I90).
    Catalog.transact(
        world.catalog,
        [],
        [Put(log_key_path("log"), encode_log_list(LogList(METADATA_VERSION, 1, segments)))],
    )
    ended(world, world.client("deleter", Deletion(story.ledger_id)))
    core = LogTakeover(
        "log", b"p", NewLedger(THREE, bytes(16), 0, Begun.TAKEOVER), KEY, world.bookies, world.chance
    )
    return world, world.client("leader", core)


def test_a_listed_ledger_that_is_known_to_be_empty_and_gone_blocks_nobody() -> None:
    """Scenario 33: pravega#6030, P8.1. The list knows that it closed empty: the next leader takes over all the same."""
    # Taken out: leaving alone what the list records as closed (mutant closed-in-the-list-asked-for-all-the-same).
    world, leader = listed_and_gone(-1)
    over = ended(world, leader)
    assert over.first_offset == 0  # type: ignore[attr-defined]


def test_a_listed_ledger_that_may_have_entries_and_is_gone_blocks_the_takeover() -> None:
    """Scenario 33: the other half. Nobody knows what it held: the list is read again, and at last given up; no leader
    serves behind entries that may be missing."""
    # Taken out: stopping at it (mutant gone-ledger-skipped).
    world, leader = listed_and_gone(None)
    with pytest.raises(MetadataConflict, match="its list changed"):
        ended(world, leader)
    value, _ = world.catalog.values[log_key_path("log")]
    assert len(decode_log_list(value).segments) == 1  # Nothing was appended to it.


def test_a_resent_request_carries_the_same_bytes_and_late_answers_touch_nothing() -> None:
    """Scenario 34: #4829, #4788, #1230. The seat changes hands; the copy is the same, the old answer counts no more."""
    # Taken out: seat-bound answers (core/in_flight.py, `take_answer`: every number counts for the frame).
    story = scene(bookies=5)
    world, writer = story.world, story.writer
    story.add(b"e0")
    old = world.packet(writer, "b1", AddRequest)
    bytes_sent = bytes(old.frames[0][1])
    world.deliver(old)
    world.nodes["b1"].sync()
    answer = world.packet(writer, "b1", AddAnswer)
    assert answer.control.status == Status.OK
    held = lambda packet: packet is answer or (is_add(packet) and packet.bookie_id != "b4")  # noqa: E731
    writer.step(failed(world, old))
    world.settle(hold=held)
    new = [p for p in world.wire if is_add(p) and p.bookie_id not in ("b1", "b2", "b3")]
    stored = [
        n.storage.store.entries[story.ledger_id][0] for n in world.nodes.values() if n.holds(story.ledger_id)
    ]
    assert all(bytes(p.frames[0][1]) == bytes_sent for p in new)
    assert all(raw == bytes_sent for raw in stored)
    world.deliver(answer)
    assert writer.confirmed == -1
    world.run(seconds=10)
    assert writer.confirmed == 0
    world.end(story.ledger_id)


def failed(world: Watched, packet: Packet) -> object:
    return SendFailed(world.now_ns, packet.tag, packet.member, "link lost")


def test_an_open_ledger_is_deleted_by_nobody() -> None:
    """Scenario 24, the other side: a deletion of an open ledger is refused; forced, it is found (I34)."""
    story = scene()
    story.add(b"e0")
    story.world.settle()
    with pytest.raises(UsageError):
        ended(story.world, story.world.client("deleter", Deletion(story.ledger_id)))
    with pytest.raises(Violation, match=r"^I34"):
        ended(story.world, story.world.client("forced", Deletion(story.ledger_id, is_forced=True)))


def test_a_repair_that_copies_nothing_is_found() -> None:
    """I36: seats that are given over without their entries."""
    story = scene(bookies=5)
    world = story.world
    story.add(b"e0")
    world.settle()
    world.close(story.writer)
    world.settle()
    members = [world.nodes[name].member for name in ("b1", "b5")]
    bad = Repair(story.ledger_id, members[0], members[1], KEY, 9, copies=False)
    with pytest.raises(Violation, match=r"^I36"):
        ended(world, world.client("bad", bad))
