"""The LACs that idle writers tell for good, many in one message: taken in C beside the core (native/road/lac_path.h).

`test_add_path` lives through the same stories with and without; here is what only the shortcut has.
"""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.add_messages import FenceRequest
from embedbk.codec.lac_messages import (
    EXPLICIT_LACS_MAX,
    ExplicitLacRequest,
    ExplicitLacs,
    LacHints,
    pack_explicit_lacs,
)
from embedbk.codec.messages import MESSAGE_HEADER_BYTES, Control, decode_message, encode_message
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import RequestReceived
from embedbk.errors import PeerError
from embedbk.ids import NO_ENTRY
from embedbk.storage.journal import SLOT_COUNT
from embedbk.storage.native import lib
from tests.host.place import KEY, add, frame
from tests.host.test_add_path import INCARNATION, Beside, reseal_control, with_control
from tests.host.test_tail_path import OTHER, READER, WRITER, Tail

OTHER_KEY = b"other key, 16 B."


def lac_of(ledger_id: int, lac: int = 0, key: bytes = KEY, *, is_hint: bool = False) -> ExplicitLacRequest:
    return ExplicitLacRequest(INCARNATION, ledger_id, key, lac, 4 * lac + 4, is_hint, wants_answer=False)


@pytest.fixture
def tail() -> Tail:
    """Ledgers 7 to 9, with one entry each."""
    tail = Tail()
    for ledger_id in (8, 9):
        tail.send(WRITER, *add(INCARNATION, frame(ledger_id, 0, [b"zero"])))
    tail.settle()
    tail.clear()
    return tail


def lacs(tail: Tail) -> list[int]:
    return [tail.storage.table.get(ledger_id).lac for ledger_id in (7, 8, 9)]  # type: ignore[union-attr]


def requests_of_the_core(tail: Tail) -> list[Control]:
    """What the core is asked from now on."""
    asked: list[Control] = []
    step = tail.node.steps.step

    def note(event: Any, now_ns: int = 0) -> None:
        if isinstance(event, RequestReceived):
            asked.append(event.control)
        step(event, now_ns)

    tail.node.steps.step = note  # type: ignore[method-assign]
    return asked


def test_the_lacs_of_many_ledgers_are_durable_and_never_reach_the_core(tail: Tail) -> None:
    """Rule P6.2: what an idle writer tells for good lives through a loss of power; nobody is answered."""
    asked = requests_of_the_core(tail)
    tail.send(WRITER, pack_explicit_lacs([lac_of(7), lac_of(8), lac_of(9)]))
    tail.settle()
    assert (asked, lacs(tail), tail.told(WRITER)) == ([], [0, 0, 0], [])
    rows = [row for row in tail.stored() if len(row) == 8]
    assert [(row[0], row[5], row[6]) for row in rows] == [(7, 0, 4), (8, 0, 4), (9, 0, 4)]


def test_one_that_is_known_by_a_hint_is_made_durable(tail: Tail) -> None:
    """Rule P6.2, I11: a hint is in memory only; an older LAC behind it says nothing."""
    tail.hint(3)
    tail.send(WRITER, pack_explicit_lacs([lac_of(7, 2), lac_of(7, 3), lac_of(7, 1)]))
    tail.settle()
    (row,) = [row for row in tail.stored() if len(row) == 8 and row[0] == 7]
    assert (row[5], row[6]) == (3, 16)


def test_who_waits_is_woken(tail: Tail) -> None:
    """Rule P6.2: a reader that began to wait behind the last add."""
    poll = tail.poll()
    tail.place.turns()
    tail.send(WRITER, pack_explicit_lacs([lac_of(8), lac_of(7)]))
    tail.place.turns()
    assert [(request_id, control.lac) for request_id, control, _ in tail.told(READER)] == [(poll, 0)]


def test_hints_of_many_ledgers_raise_their_lacs_in_memory_only(tail: Tail) -> None:
    """Rule P6.2: a hint wakes who waits, is shown to who asks, and costs no record."""
    asked, poll = requests_of_the_core(tail), tail.poll()
    tail.place.turns()
    told = [lac_of(8, is_hint=True), lac_of(7, is_hint=True)]
    message = pack_explicit_lacs(told)
    assert isinstance(message, LacHints) and message.unpack() == told
    tail.send(WRITER, message)
    tail.settle()
    assert (asked, lacs(tail), tail.told(WRITER)) == ([], [0, 0, NO_ENTRY], [])
    assert [(request_id, control.lac) for request_id, control, _ in tail.told(READER)] == [(poll, 0)]
    assert [row for row in tail.stored() if len(row) == 8 and row[5] != NO_ENTRY] == []


@pytest.mark.parametrize("odd", ["fenced", "other key", "unknown"])
def test_hints_that_are_not_all_common_are_the_cores(tail: Tail, odd: str) -> None:
    """Rules P3.4a, P3.5: each is judged for itself, and one of a ledger that is not here makes none."""
    if odd == "fenced":
        tail.send(OTHER, FenceRequest(INCARNATION, 8, KEY))
        tail.settle()
    asked = requests_of_the_core(tail)
    key = OTHER_KEY if odd == "other key" else KEY
    told = [lac_of(7, is_hint=True), lac_of(88 if odd == "unknown" else 8, key=key, is_hint=True)]
    tail.send(WRITER, pack_explicit_lacs(told))
    tail.settle()
    assert asked == told
    assert lacs(tail) == [0, NO_ENTRY, NO_ENTRY]
    assert tail.storage.table.get(88) is None


@pytest.mark.parametrize("odd", ["fenced", "other key", "unknown"])
def test_with_one_that_is_not_common_all_are_the_cores(tail: Tail, odd: str) -> None:
    """Rules P3.4a, P3.5: each is judged for itself; no half of a message is taken here and half there."""
    if odd == "fenced":
        tail.send(OTHER, FenceRequest(INCARNATION, 8, KEY))
        tail.settle()
    asked = requests_of_the_core(tail)
    second = lac_of(88) if odd == "unknown" else lac_of(8, key=OTHER_KEY if odd == "other key" else KEY)
    told = [lac_of(7), second, lac_of(9)]
    tail.send(WRITER, pack_explicit_lacs(told))
    tail.settle()
    assert asked == told
    assert lacs(tail) == [0, NO_ENTRY, 0]
    row = tail.storage.table.get(88)
    assert (row is not None and row.lac == 0) == (odd == "unknown")


def test_lacs_leave_a_part_of_the_journal_to_fences(tail: Tail) -> None:
    """Rules P7.8, RP34: LACs that are told for good, in C or by the core, never use up the journal's queue; those
    without room wait in their order, and none is passed over."""
    begin, last = tail.storage.next_token(), 0
    tail.place.held.add("b1")
    while last < SLOT_COUNT + 2 * EXPLICIT_LACS_MAX:
        tail.send(WRITER, pack_explicit_lacs([lac_of(7, last + each) for each in range(EXPLICIT_LACS_MAX)]))
        tail.place.turn()
        last += EXPLICIT_LACS_MAX
    queued = tail.storage.next_token() - begin
    assert abs(queued - (SLOT_COUNT - lib.EBK_ADD_SLOTS_KEPT)) < EXPLICIT_LACS_MAX
    tail.send(OTHER, FenceRequest(INCARNATION, 99, KEY))
    tail.place.turns(2)
    assert tail.storage.table.get(99) is not None
    tail.place.held.clear()
    tail.place.until(lambda: lacs(tail)[0] == last - 1)


def test_impossible_ones_end_the_link(tail: Tail) -> None:
    """Rule P7.2: and nothing of the message is learnt."""
    with pytest.raises(PeerError, match="allowed are 1 to"):
        ExplicitLacs(INCARNATION, b"").unpack()
    with pytest.raises(PeerError, match="allowed are 1 to"):
        ExplicitLacs(INCARNATION, bytes(40 * (EXPLICIT_LACS_MAX + 1))).unpack()
    whole = pack_explicit_lacs([lac_of(7), lac_of(8)])
    broken = ExplicitLacs(INCARNATION, whole.lacs[:40] + b"\xff" * 8 + whole.lacs[48:])
    with pytest.raises(PeerError, match="impossible numbers"):
        broken.unpack()
    tail.send(WRITER, broken)
    tail.settle()
    assert tail.peers[WRITER].down or not tail.node.clients.unanswered.get(WRITER)
    assert lacs(tail) == [NO_ENTRY] * 3


@pytest.mark.parametrize("are_hints", [False, True])
def test_no_bit_of_a_lac_is_overlooked(are_hints: bool) -> None:
    """Rules P3.5, P6.2: what is taken in C is what the core takes, with the same row and records, or nothing."""
    message = pack_explicit_lacs([lac_of(7, 300, is_hint=are_hints), lac_of(7, 5, is_hint=are_hints)])
    whole = b"".join(bytes(piece) for piece in encode_message(0, message))
    beside = Beside()
    beside.open_for_readers()
    assert judge(beside, whole)
    taken = 0
    for at in range(len(whole)):
        for bit in range(8):
            body = bytearray(whole)
            body[at] ^= 1 << bit
            assert not judge(beside, bytes(body))
            reseal_control(body)
            taken += judge(beside, bytes(body))
    for size in range(len(whole)):
        assert not judge(beside, whole[:size])
    assert not judge(beside, whole + b"\0")
    assert taken > 300  # Request id, LACs and lengths may be other ones.


def test_one_that_is_cut_short_is_the_cores() -> None:
    """Rule P6.2: records come whole, whatever sums and lengths of the message say."""
    message = pack_explicit_lacs([lac_of(7, 3), lac_of(7, 5)])
    whole = b"".join(bytes(piece) for piece in encode_message(0, message))
    beside = Beside()
    beside.open_for_readers()
    control = whole[MESSAGE_HEADER_BYTES:]
    head, lacs = control[: -len(message.lacs)], message.lacs
    assert head[-2:] == bytes([0xC4, len(lacs)])
    assert judge(beside, with_control(whole, control))
    for size in range(len(lacs)):
        cut = with_control(whole, head[:-1] + bytes([size]) + lacs[:size])
        assert judge(beside, cut) == (size == len(lacs) // 2)


def judge(beside: Beside, body: bytes) -> bool:
    """Was it taken? If so the core would have queued as many records, with the same row."""
    path, rows = beside.storage.add_path, [beside.storage.table.get(7), beside.table.get(7)]
    assert path is not None
    for row in rows:
        assert row is not None
        row.lac, row.lac_length, row.is_awaited = NO_ENTRY, 0, 0
    queued = path.taken()
    if not path.take(1, body):
        assert rows[0].lac == NO_ENTRY and path.taken() == queued  # type: ignore[union-attr]
        return False
    control = decode_message(body).control
    assert isinstance(control, ExplicitLacs)
    core = Bookie(INCARNATION, beside.table, 1)  # type: ignore[arg-type]
    records = [
        effect for request in control.unpack() for effect in core.step(RequestReceived(0, 1, 0, request, []))
    ]
    assert path.taken() - queued == len(records)
    ours, cores = ((row.lac, row.lac_length, row.is_awaited) for row in rows if row is not None)
    assert ours == cores
    beside.storage.commit()
    return True
