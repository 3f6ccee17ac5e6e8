"""P11.4: one number for many ledgers of a bookie: what has it changed, what does not, and when it leaves."""

from __future__ import annotations

import msgspec
import pytest

from embedbk.codec.add_messages import AddRequest, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import (
    BLOCK_LEDGERS_MAX,
    BLOCKS_MAX,
    HoldingsRequest,
    LedgerBlock,
    LedgerBlocksAnswer,
    LedgerBlocksRequest,
)
from embedbk.codec.messages import ErrorAnswer, Message, decode_message, encode_message
from embedbk.core.bookie_words import CollectionBegun, DropAllowed
from embedbk.errors import PeerError
from tests.rules.test_p7_bookie import STRANGER, add, at, b1, world_with_entries
from tests.rules.world import KEY, World

ONE = [LedgerBlock(0, b"\x02")]  # Ledger 1.


def asked(world: World, blocks: list[LedgerBlock] = ONE, disk: bytes = b"") -> list[object]:
    """What b1 has answered since it was asked something last."""
    world.ask("b1", LedgerBlocksRequest(disk or b1(world).member.incarnation, blocks))
    return list(world.heard())


def number(world: World, blocks: list[LedgerBlock] = ONE) -> int | None:
    (answer,) = asked(world, blocks)
    assert isinstance(answer, LedgerBlocksAnswer) and answer.status == Status.OK
    (told,) = answer.numbers
    return told


def test_the_number_stays_while_nothing_is_stored() -> None:
    """P11.4: "one number for the ledgers of a block": questions, reads and other ledgers leave it as it is."""
    world, _, _ = world_with_entries(3)
    before = number(world)
    assert before is not None
    disk = b1(world).member.incarnation
    world.ask("b1", HoldingsRequest(disk, 1, 0, 9))
    world.ask("b1", FenceRequest(disk, 5, KEY))
    b1(world).sync()
    list(world.heard())
    assert number(world) == before
    assert number(world, [LedgerBlock(1, b"\x01")]) == before


def test_an_entry_changes_it_also_a_copy_that_repair_brings() -> None:
    world, _, _ = world_with_entries(2)
    numbers = [number(world)]
    assert add(world, at(2)) == Status.OK
    numbers.append(number(world))
    assert add(world, at(5), recovery=True) == Status.OK
    numbers.append(number(world))
    assert len(set(numbers)) == 3


def test_it_leaves_when_what_was_accepted_is_durable_and_not_before() -> None:
    """P11.4, I40: a copy that a power cut takes is none, so no number may stand for it."""
    world, _, _ = world_with_entries(3)
    before = number(world)
    frame = at(3).frame(b"entry 3", lac=2, lac_length=21)
    world.ask("b1", AddRequest(b1(world).member.incarnation, 1, 1, False), frame)
    assert asked(world) == []
    b1(world).sync()
    answer = world.heard()[-1]
    assert isinstance(answer, LedgerBlocksAnswer) and answer.numbers != [before]


def test_of_what_will_never_be_durable_nothing_is_told() -> None:
    """P7.6: behind a failed sync it is unknown, for the question that waits and for the next one."""
    world, _, _ = world_with_entries(3)
    frame = at(3).frame(b"entry 3", lac=2, lac_length=21)
    world.ask("b1", AddRequest(b1(world).member.incarnation, 1, 1, False), frame)
    assert asked(world) == []
    b1(world).storage.fail_next_sync("a bad sector")
    b1(world).sync()
    assert world.heard()[-1] == LedgerBlocksAnswer(Status.UNKNOWN)
    assert asked(world) == [LedgerBlocksAnswer(Status.UNKNOWN)]


def test_a_drop_changes_it_and_the_answer_waits_for_its_record() -> None:
    """P7.7, P11.4: what the collector drops is held no more; also once its row is retired."""
    world, _, _ = world_with_entries(3)
    numbers = [number(world)]
    for event in (CollectionBegun(world.now_ns, [1]), DropAllowed(world.now_ns, 1)):
        b1(world).perform(b1(world).core.step(event))
    assert asked(world) == []
    b1(world).sync()
    (answer,) = world.heard()
    assert isinstance(answer, LedgerBlocksAnswer)
    numbers.append(answer.numbers[0])
    b1(world).core.table.retire(b1(world).storage.durable())
    numbers.append(number(world))
    assert len(set(numbers)) == 3


def test_what_a_scrubber_found_bad_has_no_number() -> None:
    """P11.4: "cannot tell" is an answer of its own, and the block is looked at."""
    world, _, _ = world_with_entries(3)
    storage = b1(world).storage
    storage.make_unreadable(1, 1)
    assert number(world) is not None  # Nobody has read it.
    storage._flush_now()
    assert storage.begin_scrub(1 << 20) and storage.finish_scrub() is not None
    (answer,) = asked(world, [LedgerBlock(0, b"\x01"), *ONE])
    assert isinstance(answer, LedgerBlocksAnswer) and answer.numbers == [0, None]


def test_a_start_changes_every_number() -> None:
    """P11.4: what the disk lost while nobody looked is found by a look; with less on it, and with the same."""
    world, _, _ = world_with_entries(3)
    numbers = [number(world)]
    b1(world).crash()
    b1(world).restart()
    numbers.append(number(world))
    b1(world).lose(1)
    b1(world).enter_limbo()
    b1(world).sync()
    numbers.append(number(world))
    assert len(set(numbers)) == 3


def test_another_disk_tells_none_and_an_older_copy_cannot_tell() -> None:
    """P7.2, P7.9."""
    world, _, _ = world_with_entries(1)
    assert asked(world, disk=STRANGER) == [LedgerBlocksAnswer(Status.WRONG_INCARNATION)]
    b1(world).core.is_settled = False
    assert asked(world) == [LedgerBlocksAnswer(Status.UNKNOWN)]


def test_nothing_is_told_before_a_bookie_serves() -> None:
    """P7.4."""
    world, _, _ = world_with_entries(3)
    b1(world).lose(1)
    (answer,) = asked(world)
    assert isinstance(answer, ErrorAnswer)


def test_asking_makes_no_row() -> None:
    world, _, _ = world_with_entries(1)
    asked(world, [LedgerBlock(0, b"\xff" * 128)])
    assert b1(world).core.table.get(7) is None


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [(0, b"")],
        [(0, bytes(BLOCK_LEDGERS_MAX // 8 + 1))],
        [(-1, b"\x01")],
        [(0, b"\x01")] * (BLOCKS_MAX + 1),
    ],
)
def test_a_message_has_a_bound_of_blocks_and_of_ledgers(blocks: list[tuple[int, bytes]]) -> None:
    """P11.4: what its bookie looks at in one go is bounded; the largest question passes."""
    largest = LedgerBlocksRequest(
        STRANGER, [LedgerBlock(2**63 - 1, bytes(BLOCK_LEDGERS_MAX // 8))] * BLOCKS_MAX
    )
    assert round_trip(largest) == largest
    with pytest.raises(PeerError):
        round_trip(LedgerBlocksRequest(STRANGER, [LedgerBlock(*each) for each in blocks]))


def round_trip(control: msgspec.Struct) -> msgspec.Struct:
    message: Message = decode_message(memoryview(b"".join(encode_message(3, control))))
    return message.control


def test_an_answer_is_read_as_it_was_written() -> None:
    for answer in (
        LedgerBlocksAnswer(Status.OK, [0, None, 2**64 - 1]),
        LedgerBlocksAnswer(Status.UNKNOWN),
    ):
        assert round_trip(answer) == answer
    with pytest.raises(PeerError):
        round_trip(LedgerBlocksAnswer(Status.OK, [1] * (BLOCKS_MAX + 1)))
