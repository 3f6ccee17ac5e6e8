"""P3: adding. Durability before acknowledgement, order, idempotence behind the fence, whose answer counts."""

from __future__ import annotations

import msgspec
import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest, FenceRequest
from embedbk.codec.attributes import Producer, encode_attributes
from embedbk.codec.bookie_fields import Status
from embedbk.codec.digest import DigestType, encode_tagged
from embedbk.codec.entry import ENTRY_HEADER, encode_entry
from embedbk.codec.frame import Frame, frame_of
from embedbk.codec.kernels import crc32c
from embedbk.codec.lac_messages import ExplicitLacRequest
from embedbk.codec.ledger_metadata import Durability
from embedbk.codec.read_messages import ReadRequest
from embedbk.config import Quorum
from embedbk.core.client_words import AddFailed, Answered, Confirmed, FrameSealed, Received, SendFailed
from embedbk.core.producers import Producers
from embedbk.core.vocabulary import Ended
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import LedgerFenced, PeerError, RecoveryInconclusive, UsageError, WrongPassword
from embedbk.ids import NO_ENTRY, Position
from tests.rules.world import KEY, MS, THREE, Client, Pen, World

OTHER_KEY = bytes(16)


def world_with_writer(quorum: Quorum = THREE, bookies: int = 3) -> tuple[World, Client, Pen]:
    world = World(bookies)
    metadata, revision = world.create(quorum)
    return world, world.writer(metadata, revision), Pen(metadata.ledger_id)


def status(world: World) -> Status:
    """The verdict of the one answer to `ask`."""
    (answer,) = world.heard()
    return Status(answer.status)


def add_request(
    world: World, bookie_id: str, *, recovery: bool = False, incarnation: bytes = b""
) -> AddRequest:
    return AddRequest(incarnation or world.nodes[bookie_id].member.incarnation, 99, 1, recovery)


# P3.1, P3.7: entries, write sets, frames.


def test_entries_go_to_their_write_set_and_nowhere_else() -> None:
    """P3.1, I30: entry e goes to (e + i) mod E; five bookies, three copies."""
    world, writer, pen = world_with_writer(Quorum(5, 3, 2), 5)
    for number in range(7):
        world.add(writer, pen, b"entry %d" % number)
    world.settle()
    held = {bookie_id: node.holds(pen.ledger_id) for bookie_id, node in world.nodes.items()}
    assert held == {
        f"b{seat + 1}": [e for e in range(7) if seat in [(e + i) % 5 for i in range(3)]] for seat in range(5)
    }
    assert writer.confirmed == 6


def test_each_member_of_a_striped_ledger_gets_its_part_of_a_frame() -> None:
    """P3.7: each member's entries are cut out of the frame; its ids ascend with gaps."""
    world, writer, pen = world_with_writer(Quorum(4, 2, 2), 4)
    world.add(writer, pen, *[b"%d" % number for number in range(6)])
    parts = {packet.bookie_id: packet.frames[0][0] for packet in world.packets(kind=AddRequest)}
    assert [(part.first_entry, part.last_entry, part.entry_count) for part in parts.values()] == [
        (0, 4, 3), (0, 5, 4), (1, 5, 3), (2, 3, 2),
    ]  # fmt: skip
    world.settle()
    assert world.nodes["b1"].holds(pen.ledger_id) == [0, 3, 4]
    assert writer.told == [Confirmed(5, 6)]


def test_a_frame_is_done_when_each_of_its_entries_is() -> None:
    """P3.7: entries 0..2 striped over b1 b2 b3, two copies each: two answers cover only one of them."""
    world, writer, pen = world_with_writer(Quorum(3, 2, 2))
    world.add(writer, pen, b"zero", b"one", b"two")
    world.settle(hold=lambda packet: packet.bookie_id == "b3")
    assert writer.told == []
    world.settle()
    assert writer.told == [Confirmed(2, 10)]


def test_entries_are_dense_from_zero() -> None:
    """P3.1: ids are assigned densely; a frame that leaves one out is a bug of whoever packs."""
    world, writer, pen = world_with_writer()
    pen.next_entry = 1
    with pytest.raises(AssertionError):
        writer.step(FrameSealed(0, pen.frame(b"one")))
    assert world.wire == []


@pytest.mark.parametrize("byte", range(0, 60, 7))
def test_a_damaged_entry_is_refused_by_the_bookie_and_nothing_of_it_is_stored(byte: int) -> None:
    """P3.1: checked by the bookie before it stores; the writer replaces a bookie that says so."""
    world, writer, pen = world_with_writer()
    frame = pen.frame(b"payload!")
    body = bytearray(frame.body)
    body[byte] ^= 0x10
    damaged = Frame(frame.ledger_id, 0, 0, 1, 8, memoryview(bytes(body)))
    world.ask("b1", add_request(world, "b1"), damaged)
    assert status(world) == Status.BAD_FRAME
    assert world.nodes["b1"].holds(pen.ledger_id) == []
    assert not writer.told


def test_a_header_that_names_other_entries_than_the_body_is_refused() -> None:
    """P3.1: the header is packaging; what counts are the entries, and both must agree."""
    world, _, pen = world_with_writer()
    seven = encode_entry(pen.ledger_id, 7, 11, b"1234")
    world.ask("b1", add_request(world, "b1"), Frame(pen.ledger_id, 0, 0, 1, 4, memoryview(seven)))
    assert status(world) == Status.BAD_FRAME
    world.ask("b1", add_request(world, "b1"))
    (answer,) = world.heard()
    assert "one frame, not 0" in answer.text


# P3.2: durability.


def test_an_acknowledgement_leaves_only_when_the_entry_is_durable() -> None:
    """P3.2: a bookie acknowledges only after the journal is synced."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.deliver(world.packet(to="b1"))
    assert world.packets(to="b1") == []  # Stored, and silent.
    assert world.nodes["b1"].holds(pen.ledger_id) == [0]
    world.nodes["b1"].sync()
    assert world.packet(to="b1").control.status == Status.OK


def test_what_was_not_synced_is_never_acknowledged_after_a_crash() -> None:
    """P3.2: the power goes between the write and the sync."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.deliver(world.packet(to="b1"))
    world.nodes["b1"].crash()
    world.nodes["b1"].restart()
    world.nodes["b1"].sync()
    assert world.packets(to="b1") == []
    assert world.nodes["b1"].holds(pen.ledger_id) == []


def test_the_birth_is_in_the_journal_before_the_first_entry() -> None:
    """P3.2: a ledger's birth is synced before its first acknowledgement; after a crash the key is known."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.deliver(world.packet(to="b1"))
    assert world.nodes["b1"].storage.commit(1) == 1  # Only the birth.
    world.nodes["b1"].sync()
    world.nodes["b1"].crash()
    row = world.nodes["b1"].storage.table.get(pen.ledger_id)
    assert row is not None
    assert world.nodes["b1"].storage.table.key(row) == KEY


# P3.3: order.


def test_lac_waits_for_the_gap() -> None:
    """P3.3: frame 1 has its ack quorum first; nothing is confirmed until frame 0 has."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.add(writer, pen, b"one")
    world.settle(hold=lambda packet: packet.tag[2] == 0 and not packet.is_request)
    assert writer.told == []
    zero = world.packets()
    assert world.deliver(zero[0]) == []
    assert world.deliver(zero[1]) == [Confirmed(0 + 1, 7)]
    assert world.deliver(zero[2]) == []  # The third copy changes nothing.


def test_qa_acknowledgements_of_distinct_members_are_needed() -> None:
    """P3.3, I13: one bookie's answer, however often it comes, is one."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: packet.bookie_id != "b1" or not packet.is_request)
    answer = world.packets(to="b1")[0]
    assert world.deliver(answer, is_kept=True) == []
    assert world.deliver(answer, is_kept=True) == []
    world.settle()
    assert writer.confirmed == 0


# P3.4: idempotence behind the fence.


def test_a_fenced_bookie_refuses_an_add_of_an_entry_it_holds() -> None:
    """P3.4a: e0 on b1 only; R2 fences b1 b2, reads "no" at b2 b3 and is slow; R1 writes e0 back to b2; W's late e0
    reaches b2. "Already held" would acknowledge it, and R2 closes at -1."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    late = world.packet(to="b2")
    world.lose(world.packet(to="b3"))
    world.settle(hold=lambda packet: packet is late)
    assert world.nodes["b1"].holds(pen.ledger_id) == [0]

    r2 = world.recovery(pen.ledger_id, "r2")
    r2.start()
    # R2 fences b1 and b2, hears "no" from b2 and b3, and is slow with the rest.
    world.settle(
        hold=lambda packet: (
            packet is late
            or (
                packet.client is r2
                and (packet.bookie_id, packet.tag[0]) in (("b3", "fence"), ("b1", "recover"))
            )
            or (packet.client is r2 and packet.tag[0] == "recover" and not packet.is_request)
        )
    )
    r1 = world.recovery(pen.ledger_id, "r1")
    r1.start()
    # R1 is heard by b1 and writes e0 back to b2; it does not come to the closing.
    world.settle(
        hold=lambda packet: packet.client is not r1 or (packet.tag[0] == "add" and not packet.is_request)
    )
    assert world.nodes["b2"].holds(pen.ledger_id) == [0]
    r1.is_gone = True

    world.deliver(late)
    world.settle(hold=lambda packet: packet.client is not writer)
    assert isinstance(writer.failure, LedgerFenced)
    assert writer.confirmed == NO_ENTRY
    world.settle()  # R2 goes on: whatever it closes at, nothing acknowledged is lost.
    assert r2.ended.error is None


def test_every_normal_add_of_a_fenced_ledger_is_refused_and_recovery_adds_pass() -> None:
    """P3.4a, P5.2d, I21: known or new, held or not."""
    world, _, pen = world_with_writer()
    zero, one = pen.frame(b"zero"), pen.frame(b"one")
    world.ask("b1", add_request(world, "b1"), zero)
    world.nodes["b1"].sync()
    assert status(world) == Status.OK
    world.ask("b1", FenceRequest(world.nodes["b1"].member.incarnation, pen.ledger_id, KEY))
    world.nodes["b1"].sync()
    assert status(world) == Status.OK
    for frame in (zero, one):
        world.ask("b1", add_request(world, "b1"), frame)
        assert status(world) == Status.FENCED
        recovery = add_request(world, "b1", recovery=True)
        world.ask("b1", recovery, frame)
        world.nodes["b1"].sync()
        assert status(world) == Status.OK


def test_the_same_entry_again_is_acknowledged_only_when_it_is_durable() -> None:
    """P3.4b: same id, length and payload: acknowledged again, but only once the stored copy is durable."""
    world, _, pen = world_with_writer()
    zero = pen.frame(b"zero")
    for _ in range(2):
        world.ask("b1", add_request(world, "b1"), zero)
    assert world.heard() == []
    world.nodes["b1"].sync()
    assert [answer.status for answer in world.heard()] == [Status.OK, Status.OK]
    assert len(world.nodes["b1"].storage.records) == 2  # Birth and one frame: stored once.


def test_another_payload_for_the_id_never_overwrites() -> None:
    """P3.4c: an error, also when only a later entry of the frame differs, and whatever its length says."""
    world, _, pen = world_with_writer()
    frame = pen.frame(b"zero", b"one")
    world.ask("b1", add_request(world, "b1"), frame)
    world.nodes["b1"].sync()
    assert status(world) == Status.OK
    for payloads in ((b"nought", b"one"), (b"zero", b"two"), (b"zero", b"longer"), (b"nil", b"4567")):
        other = Pen(pen.ledger_id).frame(*payloads)
        for recovery in (False, True):
            request = add_request(world, "b1", recovery=recovery)
            world.ask("b1", request, other)
            world.nodes["b1"].sync()
            assert status(world) == Status.CONFLICT, payloads
    found = world.nodes["b1"].storage.read(pen.ledger_id, 0, 1, 1000)
    assert found.frame is not None
    assert bytes(found.frame.body) == bytes(frame.body)


def test_a_stored_entry_with_another_length_is_a_conflict_and_not_a_hole() -> None:
    """P3.4c: what a lookup leaves out because it does not continue the entry before it is held all the same."""
    world, _, pen = world_with_writer()
    one = frame_of(memoryview(encode_entry(pen.ledger_id, 1, 400, b"one of another history")))
    world.ask("b1", add_request(world, "b1", recovery=True), one)
    zero = pen.frame(b"zero")
    world.ask("b1", add_request(world, "b1", recovery=True), zero)
    world.nodes["b1"].sync()
    world.wire.clear()
    both = Pen(pen.ledger_id).frame(b"zero", b"one")
    world.ask("b1", add_request(world, "b1"), both)
    world.nodes["b1"].sync()
    assert status(world) == Status.CONFLICT


def test_a_valid_copy_replaces_one_that_fails_its_digest() -> None:
    """P3.4c: ... unless the stored copy fails its own digest."""
    world, _, pen = world_with_writer()
    frame = pen.frame(b"zero", b"one", b"two")
    world.ask("b1", add_request(world, "b1"), frame)
    world.nodes["b1"].sync()
    assert status(world) == Status.OK
    world.nodes["b1"].storage.make_unreadable(pen.ledger_id, 1)
    world.ask("b1", add_request(world, "b1", recovery=True), frame)
    assert world.heard() == []  # Stored anew, and durable before it is told.
    world.nodes["b1"].sync()
    assert status(world) == Status.OK
    found = world.nodes["b1"].storage.read(pen.ledger_id, 0, 2, 1000)
    assert found.frame is not None
    assert bytes(found.frame.body) == bytes(frame.body)


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_fence_between_lookup_and_answer_refuses_the_add(is_fenced: bool) -> None:
    """P3.4a: a repeated add is looked up first; when the answer of the store comes, the flag is asked again."""
    world, _, pen = world_with_writer()
    node = world.nodes["b1"]
    zero = pen.frame(b"zero")
    world.ask("b1", add_request(world, "b1"), zero)
    node.sync()
    assert status(world) == Status.OK
    node.holds_reads = True
    world.ask("b1", add_request(world, "b1"), zero)
    if is_fenced:
        world.ask("b1", FenceRequest(node.member.incarnation, pen.ledger_id, KEY))
    node.finish_reads()
    assert status(world) == (Status.FENCED if is_fenced else Status.OK)


# P3.5: password.


def test_a_wrong_password_is_an_error_and_changes_nothing() -> None:
    """P3.5: checked on adds, recovery adds, fences, fenced reads and explicit LACs."""
    world, _, pen = world_with_writer()
    node = world.nodes["b1"]
    incarnation = node.member.incarnation
    zero, one = pen.frame(b"zero"), pen.frame(b"one")
    world.ask("b1", add_request(world, "b1"), zero)
    node.sync()
    assert status(world) == Status.OK
    before = node.storage.table.digest()
    world.ask("b1", add_request(world, "b1"), one, OTHER_KEY)
    assert status(world) == Status.WRONG_KEY
    world.ask("b1", add_request(world, "b1", recovery=True), one, OTHER_KEY)
    assert status(world) == Status.WRONG_KEY
    world.ask("b1", FenceRequest(incarnation, pen.ledger_id, OTHER_KEY))
    assert status(world) == Status.WRONG_KEY
    world.ask("b1", ReadRequest(incarnation, pen.ledger_id, 0, 9, 1000, True, OTHER_KEY))
    assert status(world) == Status.WRONG_KEY
    world.ask("b1", ExplicitLacRequest(incarnation, pen.ledger_id, OTHER_KEY, 0, 4))
    assert status(world) == Status.WRONG_KEY
    assert node.storage.table.digest() == before
    assert node.storage.pending == []


def test_a_fence_of_an_unknown_ledger_binds_no_password() -> None:
    """P3.5, I20: it creates the ledger, fenced; whoever holds the real key may then write back."""
    world, _, pen = world_with_writer()
    node = world.nodes["b1"]
    world.ask("b1", FenceRequest(node.member.incarnation, pen.ledger_id, OTHER_KEY))
    node.sync()
    assert status(world) == Status.OK
    zero = pen.frame(b"zero")
    world.ask("b1", add_request(world, "b1"), zero)
    assert status(world) == Status.FENCED
    world.ask("b1", add_request(world, "b1", recovery=True), zero)
    node.sync()
    assert status(world) == Status.OK


def test_a_wrong_password_fails_the_writer_for_certain() -> None:
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.settle()
    metadata, revision = world.catalog.metadata(pen.ledger_id)
    stranger = world.writer(metadata, revision, "stranger", OTHER_KEY)
    world.acked.clear()  # What the stranger hears is not the first writer's business.
    stranger.step(FrameSealed(0, Pen(pen.ledger_id).frame(b"mine")))
    world.wire, adds = [], world.wire
    for packet in adds:
        world.nodes[packet.bookie_id].receive(packet)
    world.deliver(world.wire[0])
    assert isinstance(stranger.failure, WrongPassword)
    assert stranger.failure.definite


# P3.6: FENCED ends the handle.


def test_fenced_by_any_bookie_ends_the_handle() -> None:
    """P3.6: every outstanding add fails, the LAC is frozen, only close remains; the error says "unknown"."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.settle()
    world.ask("b3", FenceRequest(world.nodes["b3"].member.incarnation, pen.ledger_id, KEY))
    world.settle()
    world.add(writer, pen, b"one")
    world.settle(hold=lambda packet: packet.bookie_id != "b3")
    assert isinstance(writer.failure, LedgerFenced)
    assert not writer.failure.definite
    world.settle()  # The other two acknowledge now: it is too late for the LAC.
    assert writer.confirmed == 0
    assert not writer.core.wants_frame(is_full=True)
    world.close(writer)
    world.settle()
    assert writer.ended.error is None
    assert world.check_end(pen.ledger_id).last_entry == 0


def test_a_conflicting_payload_ends_the_handle() -> None:
    """P3.4c, P3.6: somebody else wrote under this ledger's ids; nothing can be built on that."""
    world, writer, pen = world_with_writer()
    other = Pen(pen.ledger_id).frame(b"other")
    world.ask("b1", add_request(world, "b1"), other)
    world.nodes["b1"].sync()
    world.wire.clear()
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: packet.bookie_id != "b1")
    assert isinstance(writer.failure, PeerError)
    assert not writer.failure.definite


# P3.8: whose answer it is.


@pytest.mark.parametrize("field", ["nonce", "seating", "recovery"])
def test_an_acknowledgement_answers_one_request_of_one_handle(field: str) -> None:
    """P3.8: it carries nonce, seat generation and the kind of add; any other counts for nothing, and the true one
    still counts when it comes."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: not packet.is_request)
    first, second, third = world.packets(kind=AddAnswer)
    world.deliver(first)
    wrong = msgspec.structs.replace(second.control, **{field: getattr(second.control, field) + 7})
    assert writer.step(Answered(0, second.tag, second.member, wrong)) == []
    assert writer.step(Answered(0, ("add", 77, 0), third.member, third.control)) == []
    assert writer.told == []
    assert world.deliver(second) == [Confirmed(0, 4)]


@pytest.mark.parametrize("bad", [Status.FENCED, Status.CONFLICT, Status.WRONG_KEY])
def test_a_refusal_meant_for_another_handle_fails_nothing(bad: Status) -> None:
    """P3.8: an answer with another handle's nonce says nothing to this one, be it yes or no."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: not packet.is_request)
    answer = world.packets(kind=AddAnswer)[0]
    foreign = msgspec.structs.replace(answer.control, status=bad, nonce=12345)
    assert writer.step(Answered(0, answer.tag, answer.member, foreign)) == []
    world.settle()
    assert writer.confirmed == 0


# The window, and what an idle writer tells (P6.2).


def test_frames_are_asked_for_up_to_the_window() -> None:
    """inflight_frames_max: full frames up to the bound, partial ones of as many entries while at most one is out."""
    world = World()
    metadata, revision = world.create()
    writer = world.writer(metadata, revision, options=WriterOptions(inflight_frames_max=4))
    pen = Pen(metadata.ledger_id)
    seen = []
    for _ in range(4):
        seen.append((writer.core.wants_frame(is_full=False), writer.core.wants_frame(is_full=True)))
        world.add(writer, pen, b"x")
    assert seen == [(True, True), (True, True), (False, True), (False, True)]
    assert not writer.core.wants_frame(is_full=True)
    world.settle()
    assert writer.core.wants_frame(is_full=False)


@pytest.mark.parametrize("durability", list(Durability))
def test_a_partial_frame_goes_beside_one_that_is_no_larger(durability: Durability) -> None:
    """P3.7: frames grow with load. What has waited as long as the frame before is on its way goes, and less waits."""
    world, writer, pen = deferred_world() if durability == Durability.DEFERRED else world_with_writer()
    assert writer.core.wants_frame(is_full=False, waiting=1)
    world.add(writer, pen, b"a", b"b", b"c")
    seen = [writer.core.wants_frame(is_full=False, waiting=waiting) for waiting in (1, 2, 3, 4)]
    assert seen == [False, False, True, True]
    assert writer.core.wants_frame(is_full=True, waiting=1)
    world.add(writer, pen, b"d", b"e", b"f")
    assert not writer.core.wants_frame(is_full=False, waiting=9), "two are out"
    world.settle()
    assert writer.core.wants_frame(is_full=False, waiting=1)


def test_a_partial_frame_goes_beside_a_large_one() -> None:
    """The rest of what was appended at once does not wait for its beginning: beside a large frame it costs little."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, *[bytes(1024)] * 70)
    assert writer.core.wants_frame(is_full=False, waiting=1)


def test_bytes_in_flight_are_bounded_and_given_back() -> None:
    """inflight_bytes_max: and a handle that failed holds none."""
    world = World()
    metadata, revision = world.create()
    writer = world.writer(metadata, revision, options=WriterOptions(inflight_bytes_max=100))
    pen = Pen(metadata.ledger_id)
    world.add(writer, pen, b"x" * 60)
    assert not writer.core.wants_frame(is_full=True)
    world.settle()
    assert writer.core.wants_frame(is_full=True)
    world.add(writer, pen, b"x" * 60)
    world.ask("b1", FenceRequest(world.nodes["b1"].member.incarnation, pen.ledger_id, KEY))
    world.settle()
    assert any(isinstance(told, AddFailed) for told in writer.told)
    assert writer.core.in_flight.pending_bytes == 0


def test_an_idle_writer_publishes_its_lac_once() -> None:
    """P6.2: so that readers see the last entries; durable before it is answered (P3.2)."""
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.settle()
    assert writer.confirmed == 0
    row = world.nodes["b1"].storage.table.get(pen.ledger_id)
    assert row is not None
    assert row.lac == NO_ENTRY
    assert writer.core.deadline_ns == 100 * MS
    world.run(seconds=1)
    assert row.lac == 0
    assert row.lac_length == 4
    assert writer.core.deadline_ns is None  # Nothing owed, nothing due: an idle writer sleeps.
    world.nodes["b1"].crash()
    again = world.nodes["b1"].storage.table.get(pen.ledger_id)
    assert again is not None
    assert again.lac == 0


def test_a_closed_handle_wants_nothing_more() -> None:
    world, writer, pen = world_with_writer()
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: packet.bookie_id == "b3")
    world.close(writer)
    world.settle(hold=lambda packet: packet.bookie_id == "b3")
    assert writer.told[-1] == Ended(None, (0, 4))
    world.run(seconds=30, hold=lambda packet: packet.bookie_id == "b3")
    world.down.add("b3")
    world.tell_bookies()
    world.settle()
    assert world.catalog.waiting == []


def test_a_request_of_an_unknown_kind_gets_an_answer() -> None:
    world, _writer, _ = world_with_writer()
    world.nodes["b1"]
    world.ask("b1", AddAnswer(0, 0, 0, False, 0, 0, 0))
    assert "does not take" in world.heard()[0].text


# P3.2: deferred sync.


def deferred_world(quorum: Quorum = THREE, bookies: int = 4) -> tuple[World, Client, Pen]:
    world = World(bookies)
    metadata, revision = world.create(quorum, durability=Durability.DEFERRED)
    return world, world.writer(metadata, revision), Pen(metadata.ledger_id)


def hold_syncs(world: World, *names: str) -> None:
    for name, node in world.nodes.items():
        node.holds_syncs = name in names


def test_with_deferred_sync_there_are_two_marks() -> None:
    """P3.2: received when Qa bookies hold it in memory, and the LAC only when Qa have synced it."""
    world, writer, pen = deferred_world()
    hold_syncs(world, "b1", "b2", "b3")
    world.add(writer, pen, b"zero")
    world.add(writer, pen, b"one")
    world.settle()
    assert writer.told == [Received(0, 4), Received(1, 7)]
    hold_syncs(world, "b2", "b3")
    world.settle()
    assert writer.confirmed == NO_ENTRY  # One disk is no quorum.
    hold_syncs(world)
    world.settle()
    assert writer.confirmed == 1
    assert writer.told[-1] == Confirmed(1, 7)


def test_what_is_received_is_counted_by_write_set_and_in_order() -> None:
    """P3.2, P3.3: E4 Qw2 Qa2: e1's quorum holds it first, and says nothing before e0's does."""
    world, writer, pen = deferred_world(Quorum(4, 2, 2))
    hold_syncs(world, *world.nodes)
    world.add(writer, pen, b"zero")
    world.add(writer, pen, b"one")
    world.settle(hold=lambda packet: packet.bookie_id == "b1")
    assert writer.told == []
    world.settle()
    assert writer.told == [Received(1, 7)]


def test_an_add_of_a_synced_ledger_is_answered_once() -> None:
    """P3.2: nobody is told RECEIVED who did not ask for it."""
    world, writer, pen = world_with_writer()
    hold_syncs(world, *world.nodes)
    world.add(writer, pen, b"zero")
    world.settle()
    assert world.packets() == []
    assert writer.told == []


def test_received_again_after_the_final_answer_counts_for_nothing() -> None:
    """P3.8: a late or doubled RECEIVED, and one to another handle's request."""
    world, writer, pen = deferred_world()
    hold_syncs(world, "b2", "b3")
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: packet.bookie_id in ("b2", "b3") and not packet.is_request)
    (received,) = world.packets(to="b2")
    assert received.control.status == Status.RECEIVED
    other = msgspec.structs.replace(received.control, nonce=received.control.nonce + 1)
    assert writer.step(Answered(0, received.tag, received.member, other)) == []
    assert world.deliver(received, is_kept=True) == [Received(0, 4)]
    assert world.deliver(received) == []


def test_a_change_with_deferred_sync_loses_nothing_that_was_received() -> None:
    """P3.2, P4.4: b1 and b2 hold e0 in memory only, and lose it; the writer has the bytes still, and sends them to
    those that are seated instead. Fragment starts go by the LAC."""
    world, writer, pen = deferred_world(bookies=5)
    hold_syncs(world, *world.nodes)
    world.add(writer, pen, b"zero")
    world.settle()
    assert writer.told == [Received(0, 4)]
    for name in ("b1", "b2"):
        node = world.nodes[name]
        asked = list(node.asked.values())
        node.crash()
        node.restart()
        node.holds_syncs = True
        assert node.holds(pen.ledger_id) == []
        for packet in asked:
            writer.step(SendFailed(0, packet.tag, packet.member, "link lost"))
    world.settle()
    assert writer.confirmed == NO_ENTRY
    metadata, _ = world.catalog.metadata(pen.ledger_id)
    assert [fragment.first_entry for fragment in metadata.fragments] == [0]
    hold_syncs(world)
    world.settle()
    assert writer.confirmed == 0
    assert world.nodes["b4"].holds(pen.ledger_id) == [0]
    assert [type(told) for told in writer.told].count(Received) == 1  # The mark never fell.


def test_close_waits_for_the_lac_and_recovery_goes_by_it() -> None:
    """P3.2: what is received is not durable: a close waits for it, a recovery may find nothing of it."""
    world, writer, pen = deferred_world()
    hold_syncs(world, *world.nodes)
    world.add(writer, pen, b"zero")
    world.close(writer)
    world.settle()
    assert not writer.has_ended
    hold_syncs(world)
    world.settle()
    assert world.check_end(pen.ledger_id).last_entry == 0

    world, writer, pen = deferred_world()
    hold_syncs(world, *world.nodes)
    world.add(writer, pen, b"zero")
    world.settle()
    assert writer.told == [Received(0, 4)]
    for node in world.nodes.values():
        node.crash()
        node.restart()
    hold_syncs(world)
    recovery = world.recovery(pen.ledger_id)
    recovery.start()
    world.run(until=lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert world.check_end(pen.ledger_id).last_entry == NO_ENTRY


def test_a_bookie_that_never_syncs_is_a_failed_one_with_deferred_sync_too() -> None:
    """P3.2, P4.1: the final answer is owed within the add's time limit; frames that are only received go on."""
    world, writer, pen = deferred_world()
    hold_syncs(world, "b3")
    for number in range(4):
        assert writer.core.wants_frame(is_full=False)
        world.add(writer, pen, b"%d" % number)
        world.settle()
    world.run(seconds=6)
    metadata, _ = world.catalog.metadata(pen.ledger_id)
    assert [m.bookie_id for m in metadata.fragments[-1].members] == ["b1", "b2", "b4"]


def test_frames_that_are_received_do_not_hold_back_the_next() -> None:
    """P3.2: a partial frame is sealed while at most one is not received yet; all that is unsynced has its bound."""
    world, writer, pen = deferred_world()
    hold_syncs(world, *world.nodes)
    bound = writer.core.options.inflight_frames_max
    for number in range(bound):
        assert writer.core.wants_frame(is_full=False), number
        world.add(writer, pen, b"%d" % number)
        world.settle()
    assert not writer.core.wants_frame(is_full=False)
    hold_syncs(world)
    world.settle()
    world.add(writer, pen, b"a")
    world.add(writer, pen, b"b")
    assert not writer.core.wants_frame(is_full=False)


# P3.1: who produced an entry.


def test_a_producer_s_window_is_bounded_and_what_fell_out_is_refused() -> None:
    """P3.1: an append that is remembered has its position; below the window nothing can be said, so it is refused."""
    producers = Producers(sequences_max=3, producers_max=2)
    for sequence in range(5):
        assert producers.find(Producer(7, sequence)) is None
        producers.note(Producer(7, sequence), Position(1, sequence))
    assert [producers.find(Producer(7, sequence)) for sequence in (2, 3, 4)] == [(1, 2), (1, 3), (1, 4)]
    with pytest.raises(UsageError, match="producer 7 has appended sequence 4, and 1 is not among the last 3"):
        producers.find(Producer(7, 1))
    producers.note(Producer(7, 4), Position(9, 9))  # Learnt twice: where it stood first is where it stands.
    assert producers.find(Producer(7, 4)) == (1, 4)
    producers.note(Producer(8, 0), Position(1, 5))
    producers.note(Producer(9, 0), Position(1, 6))
    assert producers.find(Producer(7, 1)) is None  # The one that appended longest ago is forgotten whole.
    assert producers.find(Producer(8, 0)) == (1, 5)


def test_a_bookie_stores_attributes_verbatim_and_refuses_what_it_does_not_know() -> None:
    """P3.1: an entry is stored, copied and served verbatim; recovery writes back and closes by payload lengths."""
    world, writer, pen = world_with_writer()
    attributes = encode_attributes([1, 4], Producer(7, 1))
    entry = encode_entry(pen.ledger_id, 0, 4, b"ABCD", attributes=attributes)
    world.sent[pen.ledger_id, 0] = entry
    writer.step(FrameSealed(0, frame_of(memoryview(entry))))
    world.settle(hold=lambda packet: packet.bookie_id != "b1")
    recovery = world.recovery(pen.ledger_id)
    recovery.start()
    world.run(until=lambda: recovery.has_ended, hold=lambda packet: packet.client is writer)
    assert recovery.ended.error is None
    metadata = world.check_end(pen.ledger_id)
    assert (metadata.last_entry, metadata.length) == (0, 4)
    unknown = encode_entry(5, 0, 0, b"", attributes=b"\x63\x00\x00\x00")
    world.ask("b1", add_request(world, "b1"), Frame(5, 0, 0, 1, 0, memoryview(unknown)))
    assert status(world) == Status.BAD_FRAME


@pytest.mark.parametrize("bad_copies", [1, 3])
def test_a_copy_with_a_wrong_tag_is_a_failed_copy(bad_copies: int) -> None:
    """P3.1: one of three bookies holds an entry that somebody else made under a right CRC: readers and recovery go to
    the others; where all do, the read fails and the recovery is inconclusive, never "not there"."""
    world = World(3)
    metadata, revision = world.create(THREE, digest=DigestType.HMAC)
    writer = world.writer(metadata, revision)
    ledger_id = metadata.ledger_id
    good, forged = (
        frame_of(memoryview(encode_tagged(DigestType.HMAC, key, ledger_id, 0, 4, payload)))
        for key, payload in ((b"right", b"zero"), (b"wrong", b"evil"))
    )
    for number, name in enumerate(("b1", "b2", "b3")):
        world.ask(name, add_request(world, name), forged if number < bad_copies else good)
        world.nodes[name].sync()
        assert status(world) == Status.OK
    assert not writer.told
    recovery = world.recovery(ledger_id, mac_key=b"right")
    recovery.start()
    if bad_copies == 3:
        world.run(until=lambda: recovery.has_ended)
        assert isinstance(recovery.ended.error, RecoveryInconclusive)
        return
    world.sent[ledger_id, 0] = bytes(good.body)
    world.down.add("b1")  # It would refuse the write-back: another payload under the id.
    world.run(until=lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert world.catalog.metadata(ledger_id)[0].last_entry == 0
    world.down.clear()
    for seat in range(3):  # Whichever bookie it begins with, b1 is asked first by one of these.
        reader = world.reader(ledger_id, 0, 0, f"reader {seat}", seat=seat, mac_key=b"right")
        reader.start()
        world.run(until=lambda reader=reader: reader.has_ended)  # type: ignore[misc]
        assert reader.ended.error is None
        assert reader.read == [(0, b"zero")]
    assert world.nodes["b1"].storage.store.entries[ledger_id][0] == bytes(forged.body)


@pytest.mark.parametrize("digest", [DigestType.XXH3, DigestType.HMAC])
def test_a_bookie_checks_every_digest_that_it_can_before_it_stores(digest: DigestType) -> None:
    """ST40, P3.1: a right CRC32C over a wrong XXH3 tag is refused, and nothing is stored; of an HMAC, whose key it
    has not, it checks the CRC32C over it."""
    world, writer, pen = world_with_writer()
    ledger_id = pen.ledger_id
    for is_summed in (False, True):
        entry = bytearray(encode_tagged(digest, b"key", ledger_id, 0, 4, b"zero"))
        entry[ENTRY_HEADER.size + 4] ^= 0x10  # In the tag, which is the only attribute.
        if is_summed:
            entry[-4:] = crc32c(bytes(entry[:-4])).to_bytes(4, "little")
        world.ask("b1", add_request(world, "b1"), Frame(ledger_id, 0, 0, 1, 4, memoryview(bytes(entry))))
        if is_summed and digest == DigestType.HMAC:
            world.nodes["b1"].sync()
            assert status(world) == Status.OK
            assert world.nodes["b1"].holds(ledger_id) == [0]
        else:
            assert status(world) == Status.BAD_FRAME
            assert world.nodes["b1"].holds(ledger_id) == []
    assert not writer.told
