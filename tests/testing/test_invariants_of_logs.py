"""The checks of logs see what they are there for (I91 to I93)."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import METADATA_VERSION, LogList, LogSegment
from embedbk.testing.ghost import Ghost
from embedbk.testing.invariants_bounds import BoundWatch
from embedbk.testing.invariants_logs import Logs
from embedbk.testing.violation import Violation

KEY = "/logs/orders/list"


def log_list(*segments: tuple[int, int | None, int | None]) -> LogList:
    return LogList(METADATA_VERSION, 9, tuple(LogSegment(*each) for each in segments))


def judged(*lists: LogList | None) -> Logs:
    logs = Logs(Ghost())
    for each in lists:
        logs.take(KEY, each)
    return logs


def test_a_log_that_rolls_as_it_should_is_let_through() -> None:
    """P8.2: listed, used, recorded, and once more; deleted, it begins anew."""
    first, second = log_list((1, 0, None)), log_list((1, 0, None), (2, None, None))
    third, fourth = log_list((1, 0, 4), (2, 5, None)), log_list((1, 0, 4), (2, 5, None), (3, None, None))
    judged(first, second, third, fourth, None, first)


def test_three_open_ledgers_are_found() -> None:
    """I91: "at most the last two of a list are open"."""
    with pytest.raises(Violation, match=r"^I91: .*ledger 1 is open"):
        judged(log_list((1, 0, None), (2, None, None), (3, None, None)))


@pytest.mark.parametrize(
    "lists",
    [
        (log_list((1, 0, 4), (2, 6, None)),),
        (log_list((1, 0, None), (2, 7, None)), log_list((1, 0, None), (2, 8, None))),
        (log_list((1, 0, None), (2, 7, None)), log_list((1, 0, None), (2, None, None))),
    ],
    ids=["hole", "moved", "forgotten"],
)
def test_places_that_are_not_dense_or_that_move_are_found(lists: tuple[LogList, ...]) -> None:
    """I93: "positions are dense, and never move"."""
    with pytest.raises(Violation, match=r"^I93: "):
        judged(*lists)


def test_an_append_that_is_told_behind_one_of_the_next_ledger_is_found() -> None:
    """I92: "a log's order is the order of acknowledgement"."""
    ghost = Ghost()
    logs = Logs(ghost)
    logs.take(KEY, log_list((1, 0, None), (2, None, None)))
    logs.on_acked("w1", 1)
    ghost.ledger(2).acked_to["w1"] = 0
    logs.on_acked("w1", 2)
    logs.on_acked("w2", 1)
    with pytest.raises(Violation, match=r"^I92: w1 "):
        logs.on_acked("w1", 1)


def test_an_append_at_the_bound_is_found_by_all_that_its_owner_can_know() -> None:
    """I106, P8.8: "by what the list records of closed ledgers and by all that it queued itself": what a build before
    closed without a length counts while its own writer lives, and for nobody behind it."""
    ghost = Ghost()
    for ledger_id in (1, 2, 3):
        ghost.ledger(ledger_id).given[0] = bytes(20)
    watch = BoundWatch(ghost)
    one, two, three = (LogSegment(1, 0, 0), LogSegment(2, 1, 0, length=20), LogSegment(3, 2, None))
    watch.take_list("orders", LogList(METADATA_VERSION, 9, (LogSegment(1, 0, None),)))
    watch.take_list("orders", LogList(METADATA_VERSION, 9, (one, two, three)))
    watch.on_append("o", "orders", 9, 61)
    with pytest.raises(Violation, match=r"^I106: o appends to log orders of 60 bytes, whose bound is 60"):
        watch.on_append("o", "orders", 9, 60)
    watch.take_list("orders", LogList(METADATA_VERSION, 12, (one, two, three)))
    watch.on_append("o", "orders", 12, 41)
    with pytest.raises(Violation, match=r"^I106: .* of 40 bytes, whose bound is 40"):
        watch.on_append("o", "orders", 12, 40)
    watch.take_list("orders", LogList(METADATA_VERSION, 12, (two, three, LogSegment(4, 3, None))))
    with pytest.raises(Violation, match="of 40 bytes"):
        watch.on_append("o", "orders", 12, 40)
