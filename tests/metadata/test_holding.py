"""What is kept while nobody leads: the machine alone (METADATA.md, 6)."""

from __future__ import annotations

from embedbk.codec.metadata_messages import Get, MetadataRequest, Put, Txn
from embedbk.metadata.holding import (
    HELD_BYTES_MAX,
    HELD_MAX,
    HELD_OF_LINK_MAX,
    HOLD_NS,
    LINKS_AT_ONCE,
    Holding,
)
from embedbk.metadata.vocabulary import RequestReceived


def asked(link: int, sequence: int, *, at_ns: int = 0, size: int = 0) -> RequestReceived:
    operation = Txn([], [Put("/a", bytes(size))]) if size else Get("/a")
    return RequestReceived(at_ns, link, MetadataRequest(1, sequence, 1, operation))


def sequences(taken: list[list[RequestReceived]]) -> list[list[int]]:
    return [[event.request.sequence for event in of_link] for of_link in taken]


def test_a_link_is_let_go_as_a_whole_and_in_order() -> None:
    """The operations of a session stand in the log in its order."""
    holding = Holding()
    for link, sequence in ((1, 1), (2, 7), (1, 2), (1, 3)):
        assert holding.put(asked(link, sequence))
    assert 1 in holding
    assert sequences(holding.take(1, is_over=True)) == [[1, 2, 3], [7]]
    assert len(holding) == 0
    assert 1 not in holding
    assert holding.due_ns() is None


def test_nobody_waits_for_longer_than_is_said() -> None:
    """Of a link its first request counts; its client leaves who says nothing for a second."""
    holding = Holding()
    holding.put(asked(1, 1, at_ns=100))
    holding.put(asked(2, 1, at_ns=200))
    holding.put(asked(1, 2, at_ns=300))
    assert holding.due_ns() == 100 + HOLD_NS
    assert holding.take(99 + HOLD_NS, is_over=False) == []
    assert sequences(holding.take(100 + HOLD_NS, is_over=False)) == [[1, 2]]
    assert holding.due_ns() == 200 + HOLD_NS


def test_a_thousand_clients_are_let_go_some_at_a_time() -> None:
    """1,000 clients make no storm."""
    holding = Holding()
    for link in range(1000):
        assert holding.put(asked(link, 1))
    assert len(holding.take(1, is_over=True)) == LINKS_AT_ONCE
    assert len(holding) == 1000 - LINKS_AT_ONCE


def test_what_has_no_room_is_not_kept() -> None:
    """Everything has a bound: a link's share, all of them, the bytes."""
    holding = Holding()
    assert all(holding.put(asked(1, sequence)) for sequence in range(HELD_OF_LINK_MAX))
    assert not holding.put(asked(1, HELD_OF_LINK_MAX))
    others = [holding.put(asked(2 + number // 128, number)) for number in range(HELD_MAX)]
    assert sum(others) == HELD_MAX - HELD_OF_LINK_MAX == len(holding) - HELD_OF_LINK_MAX
    holding = Holding()
    assert holding.put(asked(1, 1, size=HELD_BYTES_MAX))
    assert not holding.put(asked(2, 1, size=1))
    assert [event.request.sequence for event in holding.end_link(1)] == [1]
    assert holding.put(asked(2, 1, size=1)), "what a link that ended had is given back"
