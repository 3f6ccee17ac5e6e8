"""P11.2: reads and copies of several ledgers in one message: each has a verdict of its own, and one answer has all."""

from __future__ import annotations

import random
import struct

import pytest

from embedbk.codec import messages
from embedbk.codec.add_messages import COPIES_MAX, AddRequest, CopiesAnswer, CopyTaken
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import Frame, encode_frame_header, frame_of
from embedbk.codec.kernels import crc32c
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.read_messages import (
    READ_OTHERS_MAX,
    ReadAnswer,
    ReadClass,
    ReadPart,
    ReadRange,
    ReadRequest,
)
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.bookie_words import ReadBoundsSet
from embedbk.errors import PeerError
from tests.rules.test_p7_bookie import STRANGER, b1, world_with_entries
from tests.rules.world import Pen, World

NO_KEY = bytes(16)
SECOND = 1_000_000_000


def copied(world: World, *frames: Frame, disk: bytes = b"", **other: object) -> None:
    """Ask b1 to store copies of several ledgers."""
    incarnation = disk or b1(world).member.incarnation
    terms = {"recovery": True, "is_copy": True, **other}
    world.ask("b1", AddRequest(incarnation, 7, 3, **terms), list(frames), NO_KEY)  # type: ignore[arg-type]


def one(ledger_id: int, payload: bytes = b"one") -> Frame:
    return Pen(ledger_id).frame(payload)


def taken(*statuses: tuple[int, Status]) -> CopiesAnswer:
    return CopiesAnswer(7, 3, [CopyTaken(status, ledger_id, 0, 0) for ledger_id, status in statuses])


def read(world: World, *ledgers: int, **other: object) -> tuple[object, list[Frame]]:
    """What b1 answers to a read of entry 0 of these ledgers."""
    first, *others = ledgers
    terms = {"bytes_max": FRAME_BYTES_MAX, "reads_as": ReadClass.UPKEEP, **other}
    disk = terms.pop("disk", b1(world).member.incarnation)
    ranges = [ReadRange(each, 0, 0) for each in others]
    world.ask("b1", ReadRequest(disk, first, 0, 0, others=ranges, **terms))  # type: ignore[arg-type]
    (packet,) = world.packets(world.nobody)
    world.heard()
    return packet.control, [frame_of(body) for _, body in packet.frames]


def with_ledgers(*ledgers: int, size: int = 3) -> World:
    world, _, _ = world_with_entries(1)
    copied(world, *(one(each, bytes(size)) for each in ledgers))
    b1(world).sync()
    world.heard()
    return world


def test_the_answer_leaves_when_every_copy_is_durable_and_not_before() -> None:
    """I36, I40: "an answer to a copy leaves only when every entry in it is durable"."""
    world, _, _ = world_with_entries(1)
    copied(world, one(5), one(6), one(7))
    assert world.heard() == []
    b1(world).sync()
    assert world.heard() == [taken((5, Status.OK), (6, Status.OK), (7, Status.OK))]
    assert {(5, 0), (6, 0), (7, 0)} <= b1(world).durable_entries().keys()


def test_behind_a_failed_sync_nothing_of_them_is_known() -> None:
    """P7.6: neither of those that were stored nor of those that were held before."""
    world = with_ledgers(5)
    copied(world, one(5, bytes(3)), one(6))
    b1(world).storage.fail_next_sync("a bad sector")
    b1(world).sync()
    assert world.heard() == [taken((5, Status.UNKNOWN), (6, Status.UNKNOWN))]
    copied(world, one(7), one(8))
    assert world.heard() == [taken((7, Status.UNKNOWN), (8, Status.UNKNOWN))]


def test_one_that_is_refused_or_bad_changes_nothing_of_the_others() -> None:
    """P3.4c, P3.7: another payload is held of 5, and the body of 7 is damaged."""
    world = with_ledgers(5)
    bad = one(7)
    body = memoryview(bytes(bad.body[:-1]) + b"?")
    damaged = Frame(7, bad.first_entry, bad.last_entry, bad.entry_count, bad.length, body)
    copied(world, one(5, b"another"), one(6), damaged, one(8))
    b1(world).sync()
    conflict, ok, broken = Status.CONFLICT, Status.OK, Status.BAD_FRAME
    assert world.heard() == [taken((5, conflict), (6, ok), (7, broken), (8, ok))]
    assert {(6, 0), (8, 0)} <= b1(world).durable_entries().keys()
    assert b1(world).core.table.get(7) is None


def test_one_that_is_refused_last_lets_the_others_wait_for_their_records() -> None:
    """I40: a refusal is known at once; what it travelled with is not durable yet."""
    world = with_ledgers(5)
    copied(world, one(6), one(5, b"another"))
    assert world.heard() == []
    b1(world).sync()
    assert world.heard() == [taken((6, Status.OK), (5, Status.CONFLICT))]


def test_what_is_held_already_waits_for_the_record_that_stored_it() -> None:
    """P3.4b: a repeated copy is acknowledged when the first one is durable; the others with it."""
    world, _, _ = world_with_entries(1)
    copied(world, one(5), one(6))
    copied(world, one(5), one(6))
    assert world.heard() == []
    b1(world).sync()
    assert world.heard() == [taken((5, Status.OK), (6, Status.OK))] * 2


def test_copies_of_another_disk_are_refused_each() -> None:
    """P7.2."""
    world, _, _ = world_with_entries(1)
    copied(world, one(5), one(6), disk=STRANGER)
    assert world.heard() == [taken((5, Status.WRONG_INCARNATION), (6, Status.WRONG_INCARNATION))]


@pytest.mark.parametrize("other", [{"is_copy": False}, {"recovery": False}, {"deferred": True}])
def test_only_copies_by_repair_have_several_frames(other: dict[str, object]) -> None:
    """P3.2: every other add has one; nothing of it is stored."""
    world, _, _ = world_with_entries(1)
    copied(world, one(5), one(6), **other)
    assert world.heard() == [ErrorAnswer("an add has one frame, not 2")]
    assert b1(world).core.table.get(5) is None


def test_copies_without_a_frame_are_refused() -> None:
    """WIRE.md 3: an answer without copies is none, and would end the link of who asked."""
    world, _, _ = world_with_entries(1)
    copied(world)
    assert world.heard() == [ErrorAnswer("an add has one frame, not 0")]


def test_a_message_has_a_bound_of_copies_and_of_ranges() -> None:
    world, _, _ = world_with_entries(1)
    copied(world, *(one(each) for each in range(10, 11 + COPIES_MAX)))
    (answer,) = world.heard()
    assert answer == ErrorAnswer(f"copies in {COPIES_MAX + 1} frames: at most {COPIES_MAX} are allowed")
    asked = ReadRequest(bytes(16), 1, 0, 0, 9, others=[ReadRange(2, 0, 0)] * (READ_OTHERS_MAX + 1))
    with pytest.raises(PeerError):
        messages.decode_message(b"".join(messages.encode_message(1, asked)))


def test_each_range_of_a_read_has_a_verdict_of_its_own() -> None:
    """P5.2c, P7.1: 77 is unknown here, 6 lacks the entry, 5 and 8 have it."""
    world = with_ledgers(5, 8)
    world.ask("b1", AddRequest(b1(world).member.incarnation, 1, 1, True), Pen(6).frame(b"0"), NO_KEY)
    b1(world).sync()
    world.heard()
    b1(world).storage.drop(6)
    answer, frames = read(world, 77, 5, 6, 8)
    assert answer == ReadAnswer(
        Status.NO_SUCH_LEDGER,
        77,
        others=[ReadPart(Status.OK, 5), ReadPart(Status.OK, 6, [(0, 0)]), ReadPart(Status.OK, 8)],
    )
    assert [frame.ledger_id for frame in frames] == [5, 8]


def test_what_may_have_been_lost_is_called_absent_in_no_part() -> None:
    """P7.4, P7.9: in limbo, and where the directories may be an older copy, what is missing is unknown."""
    world = with_ledgers(5, 6)
    for each in (5, 6):
        b1(world).storage.drop(each)
    row = b1(world).core.table.get(6)
    assert row is not None
    row.in_limbo = 1
    answer, _ = read(world, 5, 6)
    assert answer == ReadAnswer(Status.OK, 5, [(0, 0)], others=[ReadPart(Status.OK, 6)])
    b1(world).core.is_settled = False
    answer, _ = read(world, 77, 5, 78)
    unknown = [ReadPart(Status.OK, 5), ReadPart(Status.UNKNOWN, 78)]
    assert answer == ReadAnswer(Status.UNKNOWN, 77, others=unknown)


def test_all_ranges_together_have_the_room_of_the_request() -> None:
    """P11.2: what finds no room is BUSY, which is no verdict, and is not read beyond the message's bound."""
    world = with_ledgers(5, 6, 7, size=1000)
    answer, frames = read(world, 5, 6, 7, bytes_max=2500)
    assert [frame.ledger_id for frame in frames] == [5, 6]
    wait = ReadPart(Status.BUSY, 7, wait_ms=1)
    assert answer == ReadAnswer(Status.OK, 5, others=[ReadPart(Status.OK, 6), wait])
    answer, frames = read(world, 5, 6, 7, bytes_max=1)
    assert [frame.ledger_id for frame in frames] == [5]  # The first is read whole, however large.
    assert [part.status for part in answer.others] == [Status.BUSY, Status.BUSY]  # type: ignore[attr-defined]


def test_beyond_the_budget_of_its_class_all_of_them_are_told_to_wait() -> None:
    """P6.7: one read of the budget; what it found is counted whole."""
    world = with_ledgers(5, 6, size=1000)
    core = b1(world).core
    core.step(ReadBoundsSet(world.now_ns, (0, 0, 0, 1000)))
    _, frames = read(world, 5, 6)
    assert len(frames) == 2
    answer, frames = read(world, 5, 6)
    assert not frames
    assert [answer.status, answer.others[0].status] == [Status.BUSY] * 2  # type: ignore[attr-defined]
    assert 2000 < answer.wait_ms < 2300  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "asked",
    [
        ReadRequest(bytes(16), 5, 0, 0, 9, fence=True, others=[ReadRange(6, 0, 0)]),
        ReadRequest(bytes(16), 5, 0, 0, 9, others=[ReadRange(5, 0, 0)]),
        ReadRequest(bytes(16), 5, 0, 0, 9, others=[ReadRange(6, 1, 0)]),
    ],
)
def test_a_read_of_several_fences_nothing_and_names_each_ledger_once(asked: ReadRequest) -> None:
    """P5.2f: else an answer could leave before a fence is durable."""
    world = with_ledgers(5, 6)
    world.ask("b1", asked)
    (answer,) = world.heard()
    assert isinstance(answer, ErrorAnswer)
    row = b1(world).core.table.get(5)
    assert row is not None
    assert not row.is_fenced


def test_reads_of_another_disk_are_refused_each() -> None:
    """P7.2."""
    answer, _ = read(with_ledgers(5, 6), 5, 6, disk=STRANGER)
    wrong = Status.WRONG_INCARNATION
    assert answer == ReadAnswer(wrong, 5, others=[ReadPart(wrong, 6)])


def nearly(chance: random.Random, request: ReadRequest | AddRequest, frames: list[Frame]) -> bytes:
    """The message with some bytes of its control part changed, under a digest that fits."""
    sent = [(encode_frame_header(each, NO_KEY), each) for each in frames]
    whole = bytearray(b"".join(messages.encode_message(1, request, sent)))
    (size,) = struct.unpack_from("<I", whole, 8)
    for _ in range(chance.randint(1, 4)):
        whole[messages.MESSAGE_HEADER_BYTES + chance.randrange(size)] = chance.choice(
            [0, 1, 0x90, 0xFF, 0x93]
        )
    control = bytes(whole[messages.MESSAGE_HEADER_BYTES : messages.MESSAGE_HEADER_BYTES + size])
    struct.pack_into("<I", whole, 24, crc32c(control, crc32c(bytes(whole[:24]))))
    return bytes(whole)


def test_what_is_nearly_such_a_request_harms_nothing() -> None:
    """P11.2: each body is refused by the codec, or answered; what is held stays as it was."""
    world, chance, refused = with_ledgers(5, 6), random.Random(15), 0
    disk = b1(world).member.incarnation
    asked = ReadRequest(disk, 5, 0, 0, 99, others=[ReadRange(6, 0, 0), ReadRange(77, 0, 3, 3, 5)])
    copies = AddRequest(disk, 7, 3, recovery=True, is_copy=True)
    held = b1(world).durable_entries()
    for _ in range(400):
        request, frames = chance.choice([(asked, []), (copies, [one(5), one(6)])])
        try:
            message = messages.decode_message(nearly(chance, request, frames))
        except PeerError:
            refused += 1
            continue
        world.ask("b1", message.control, [frame_of(body) for _, body in message.frames], NO_KEY)
        b1(world).sync()
        assert len(world.heard()) == 1
    assert 50 < refused < 400
    assert b1(world).durable_entries() == held
