"""P11.4: a bookie says how many entries it holds durably, and what it does not say."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import (
    HOLDINGS_IDS_MAX,
    Digests,
    HeldRange,
    HoldingsAnswer,
    HoldingsRange,
    HoldingsRequest,
)
from embedbk.codec.messages import ErrorAnswer
from embedbk.core.bookie_words import EntriesCounted, RequestReceived
from tests.rules.test_p7_bookie import STRANGER, add, at, b1, world_with_entries
from tests.rules.world import Node, Pen, World


def asked(world: World, first: int = 0, last: int = 9, ledger_id: int = 1, disk: bytes = b"") -> list[object]:
    """What b1 has answered so far to a question for its holdings."""
    world.ask("b1", HoldingsRequest(disk or b1(world).member.incarnation, ledger_id, first, last))
    return list(world.heard())


def test_what_is_durable_is_counted_and_the_rest_is_named() -> None:
    """P11.4: "a bookie answers count of (ledger, residue, first, last) from its own index"."""
    world, _, _ = world_with_entries(3)
    assert asked(world) == [HoldingsAnswer(Status.OK, 1, 3, [(3, 9)])]
    assert asked(world, 1, 2) == [HoldingsAnswer(Status.OK, 1, 2, [])]


def test_what_was_accepted_is_counted_when_it_is_durable_and_not_before() -> None:
    """P11.4, I40: a copy that a power cut takes is none."""
    world, _, _ = world_with_entries(3)
    pen = at(3)
    frame = pen.frame(b"entry 3", lac=2, lac_length=21)
    world.ask("b1", _add(b1(world)), frame)
    assert asked(world) == []
    b1(world).sync()
    assert world.heard()[-1] == HoldingsAnswer(Status.OK, 1, 4, [(4, 9)])


def _add(node: Node) -> AddRequest:
    return AddRequest(node.member.incarnation, 1, 1, False)


def test_what_will_never_be_durable_is_not_counted() -> None:
    """P7.6: behind a failed sync it is unknown, for who waits and for who asks then."""
    world, _, _ = world_with_entries(3)
    world.ask("b1", _add(b1(world)), at(3).frame(b"entry 3", lac=2, lac_length=21))
    assert asked(world) == []
    b1(world).storage.fail_next_sync("a bad sector")
    b1(world).sync()
    assert world.heard()[-1] == HoldingsAnswer(Status.UNKNOWN, 1)
    assert asked(world) == [HoldingsAnswer(Status.UNKNOWN, 1)]


def test_another_disk_and_an_unknown_ledger_are_told() -> None:
    """P7.2: a bookie answers only as the incarnation that it is asked for."""
    world, _, _ = world_with_entries(1)
    assert asked(world, disk=STRANGER) == [HoldingsAnswer(Status.WRONG_INCARNATION, 1)]
    assert asked(world, ledger_id=77) == [HoldingsAnswer(Status.NO_SUCH_LEDGER, 77)]


@pytest.mark.parametrize(("first", "last"), [(5, 4), (0, HOLDINGS_IDS_MAX), (0, 2**63 - 1)])
def test_a_range_that_is_none_or_too_wide_is_refused(first: int, last: int) -> None:
    world, _, _ = world_with_entries(1)
    (answer,) = asked(world, first, last)
    assert isinstance(answer, ErrorAnswer)


def test_asking_changes_nothing_and_fences_nobody() -> None:
    world, _, _ = world_with_entries(2)
    asked(world)
    asked(world, ledger_id=77)
    assert b1(world).core.table.get(77) is None
    assert add(world, at(2)) == Status.OK


def test_limbo_tells_what_is_there_and_no_negative_follows() -> None:
    """P7.4: what is there is counted, what is missing stays unknown: the question is not that of a recovery."""
    world, _, _ = world_with_entries(3)
    b1(world).lose(1)
    b1(world).enter_limbo()
    b1(world).sync()
    (answer,) = asked(world)
    assert isinstance(answer, HoldingsAnswer)
    assert (answer.status, answer.count) == (Status.OK, 2)


def test_nothing_is_told_before_a_bookie_serves() -> None:
    """P7.4."""
    world, _, _ = world_with_entries(3)
    b1(world).lose(1)
    (answer,) = asked(world)
    assert isinstance(answer, ErrorAnswer)


def test_a_count_that_cannot_be_told_is_unknown() -> None:
    """P7.1: never a number, and never "no"."""
    world, _, _ = world_with_entries(1)
    node = b1(world)
    request = HoldingsRequest(node.member.incarnation, 1, 0, 9)
    (look,) = node.core.step(RequestReceived(0, 1, 5, request, []))
    (reply,) = node.core.step(EntriesCounted(0, look.read_id, None, []))  # type: ignore[attr-defined]
    assert reply.control == HoldingsAnswer(Status.UNKNOWN, 1)  # type: ignore[attr-defined]
    assert node.core.step(EntriesCounted(0, look.read_id, 1, [])) == []  # type: ignore[attr-defined]


def test_a_copy_that_repair_brings_is_counted() -> None:
    """P11.2: entry by entry, behind the fence, from whoever has it."""
    world, _, _ = world_with_entries(1)
    assert add(world, at(4), recovery=True) == Status.OK
    assert asked(world, 0, 4) == [HoldingsAnswer(Status.OK, 1, 2, [(1, 3)])]


def test_digests_come_along_where_they_are_asked_for() -> None:
    """P11.4: "of those that it holds it tells digests, by part and residue, where it is asked"."""
    world, _, _ = world_with_entries(9)
    disk = b1(world).member.incarnation
    for wants in (Digests.BY_INDEX, Digests.BY_BYTES):
        world.ask("b1", HoldingsRequest(disk, 1, 0, 8, 3, 0b101, [3, 7], wants))
    first, second = world.heard()
    assert first == second and isinstance(first, HoldingsAnswer)
    store = b1(world).storage.store
    parts = [store.sums(1, *bounds, 3, 0b101, 1 << 20).digests for bounds in ((0, 2), (3, 6), (7, 8))]
    assert (first.count, first.digests) == (6, [each for part in parts for each in part])


@pytest.mark.parametrize(("cuts", "residues"), [([0], 1), ([10], 1), ([5, 5], 1), ([6, 5], 1), ([], 0b10)])
def test_parts_that_are_none_are_refused(cuts: list[int], residues: int) -> None:
    """Bytes that no client sends."""
    world, _, _ = world_with_entries(3)
    disk = b1(world).member.incarnation
    world.ask("b1", HoldingsRequest(disk, 1, 0, 9, 1, residues, cuts, Digests.BY_INDEX))
    assert isinstance(world.heard()[-1], ErrorAnswer)


# Several ranges in one question.


def ask_several(world: World, *parts: HoldingsRange, wants: int = 0) -> list[object]:
    """What b1 has answered so far to a question for 0..9 of ledger 1 and these."""
    disk = b1(world).member.incarnation
    world.ask("b1", HoldingsRequest(disk, 1, 0, 9, wants=wants, others=list(parts)))
    return list(world.heard())


def test_several_are_answered_in_the_order_of_the_question() -> None:
    """P11.4: each range by itself; one ledger that is unknown changes nothing of the others."""
    world, _, _ = world_with_entries(3)
    assert ask_several(world, HoldingsRange(77, 0, 9), HoldingsRange(1, 1, 1), HoldingsRange(1, 2, 5)) == [
        HoldingsAnswer(
            Status.OK,
            1,
            3,
            [(3, 9)],
            others=[
                HeldRange(Status.NO_SUCH_LEDGER, 77),
                HeldRange(Status.OK, 1, 1),
                HeldRange(Status.OK, 1, 1, [(3, 5)]),
            ],
        )
    ]


@pytest.mark.parametrize("is_own_first", [True, False])
def test_an_answer_for_several_ledgers_waits_for_all_of_them(is_own_first: bool) -> None:
    """P11.4, I40, P7.6: it leaves when what was accepted of each is durable; behind a failed sync each is unknown."""
    for fails in (False, True):
        world, _, _ = world_with_entries(3)
        disk = b1(world).member.incarnation
        world.ask("b1", _add(b1(world)), at(3).frame(b"entry 3", lac=2, lac_length=21))
        b1(world).sync()
        world.ask("b1", AddRequest(disk, 1, 1, False), Pen(5).frame(b"another", lac=-1, lac_length=0))
        first, other = (1, 5) if is_own_first else (5, 1)
        world.heard()
        world.ask("b1", HoldingsRequest(disk, first, 0, 0, others=[HoldingsRange(other, 0, 0)]))
        assert list(world.heard()) == []
        if fails:
            b1(world).storage.fail_next_sync("a bad sector")
        b1(world).sync()
        status, count = (Status.UNKNOWN, 0) if fails else (Status.OK, 1)
        others = [HeldRange(status, other, count)]
        assert world.heard()[-1] == HoldingsAnswer(status, first, count, others=others)


def test_several_ranges_that_are_none_or_too_wide_are_refused() -> None:
    """P11.4: so many ids for one question, however they are divided; bytes are read for one range at a time."""
    world, _, _ = world_with_entries(1)
    for parts, wants in (
        ([HoldingsRange(1, 5, 4)], 0),
        ([HoldingsRange(1, 0, HOLDINGS_IDS_MAX - 10)], 0),
        ([HoldingsRange(2, 0, 5), HoldingsRange(3, 0, HOLDINGS_IDS_MAX - 15)], 0),
        ([HoldingsRange(1, 0, 9, 1, 1, [3, 3])], Digests.BY_INDEX),
        ([HoldingsRange(1, 0, 9)], Digests.BY_BYTES),
    ):
        answer = ask_several(world, *parts, wants=wants)[-1]
        assert isinstance(answer, ErrorAnswer), parts
    assert ask_several(world, HoldingsRange(1, 0, HOLDINGS_IDS_MAX - 11))[-1] == HoldingsAnswer(
        Status.OK, 1, 1, [(1, 9)], others=[HeldRange(Status.OK, 1, 1, [(1, HOLDINGS_IDS_MAX - 11)])]
    )
