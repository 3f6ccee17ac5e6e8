"""The checker of a log's histories: a true one passes, and each planted lie is found (I99)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from embedbk.errors import UsageError
from embedbk.testing.log_events import (
    AppendAsked,
    AppendTold,
    CursorCommitted,
    CutAsked,
    EntriesSeen,
    LogCut,
    LogEvent,
    LogTaken,
    ReadAsked,
    ReadEnded,
    events_in,
    line_of,
)
from embedbk.testing.log_history import check_log
from embedbk.testing.violation import Violation

Told = dict[str, list[LogEvent]]


def true_history() -> Told:
    """A log of three owners and three ledgers, 7, 9 and 11:

    offset  0    1    2    3    4    5    6    7
    text    a    b1   b2   b3   p    c    d    end
    place   7,0  7,1  7,2  7,3  7,4  9,0  9,1  11,0

    `lost` is nowhere, `no` was refused. c was never answered; p is a producer's, which the first owner did not know the
    outcome of, and asked the second for.
    """
    return {
        "w1": [
            LogTaken(0, 10, 1, 5, 0),
            AppendAsked(11, 1, 1, ("a",)),
            AppendTold(20, 1, "acknowledged", ((7, 0),), (0,), 5),
            AppendAsked(21, 2, 1, ("b1", "b2", "b3")),
            AppendTold(30, 2, "acknowledged", ((7, 1), (7, 2), (7, 3))),
            ReadAsked(31, 31, 1, "read", 1),
            EntriesSeen(33, 1, 1, 7, 1, ("b1", "b2", "b3")),
            ReadEnded(34, 1, "end"),
            AppendAsked(35, 3, 1, ("p",), True),
            AppendTold(36, 3, "unknown"),
            AppendAsked(37, 4, 1, ("lost",)),
            AppendTold(38, 4, "unknown"),
            AppendTold(70, 4, "lost"),
        ],
        "w2": [
            LogTaken(40, 50, 1, 8, 5),
            AppendAsked(51, 1, 1, ("p",), True),
            AppendTold(52, 1, "acknowledged", ((7, 4),)),
            AppendAsked(53, 2, 1, ("no",)),
            AppendTold(54, 2, "refused"),
            AppendAsked(55, 3, 1, ("c",)),
            AppendAsked(56, 4, 1, ("d",)),
            AppendTold(60, 4, "acknowledged", ((9, 1),), (6,), 8),
        ],
        "r": [
            ReadAsked(61, 61, 1, "read", None),
            EntriesSeen(62, 1, 0, 7, 0, ("a", "b1", "b2", "b3", "p"), ((0, 100), (2, 101))),
            EntriesSeen(63, 1, 5, 9, 0, ("c",)),
            ReadEnded(64, 1, "end"),
            ReadAsked(90, 90, 2, "tail", 3),
            ReadEnded(91, 2, "truncated", 5),
        ],
        "c1": [
            ReadAsked(39, 41, 1, "consume", 0, "cursor"),
            EntriesSeen(42, 1, 0, 7, 0, ("a", "b1", "b2"), ((0, 100), (2, 101))),
            CursorCommitted(43, 1, 2),
        ],
        "c2": [
            ReadAsked(44, 45, 1, "consume", 2, "cursor"),
            EntriesSeen(61, 1, 2, 7, 2, ("b2", "b3", "p"), ((0, 101),)),
            EntriesSeen(66, 1, 5, 9, 0, ("c",), ((0, 103),)),
            CursorCommitted(67, 1, 6),
        ],
        "t": [CutAsked(80, 5), LogCut(82, 5)],
        "last": [
            LogTaken(100, 110, 1, 12, 7),
            AppendAsked(111, 1, 1, ("end",)),
            AppendTold(112, 1, "acknowledged", ((11, 0),), epoch=12),
            ReadAsked(113, 113, 1, "final", None),
            EntriesSeen(114, 1, 5, 9, 0, ("c", "d"), ((0, 103), (1, 104))),
            EntriesSeen(115, 1, 7, 11, 0, ("end",), ((0, 104),)),
            ReadEnded(116, 1, "end"),
        ],
    }


def change(told: Told, process: str, number: int, **changes: Any) -> None:
    told[process][number] = msgspec.structs.replace(told[process][number], **changes)


def test_a_true_history_passes() -> None:
    """I99: also where outcomes are not known, an entry comes twice to consumers, and the front is truncated."""
    met = check_log(true_history())
    assert met["entries"] == 8
    assert met["truncated entries"] == 5
    assert (met["not known, and there"], met["not known, and not there"]) == (1, 1)


# Each lie: the promise that it breaks, what it is, and how it comes into the true history.
Lie = tuple[str, str, Callable[[Told], Any]]
LIES: list[Lie] = [
    ("I99", "nobody appended it", lambda told: told["w2"].pop(5)),
    (
        "I99",
        "acknowledged, and lost",
        lambda told: told["w2"].extend(
            [AppendAsked(61, 9, 1, ("x",)), AppendTold(62, 9, "acknowledged", ((9, 2),))]
        ),
    ),
    (
        "I99",
        "the last owner finds nothing",
        lambda told: (told.pop("c1"), told.pop("c2"), told["last"].pop(5), told["last"].pop(4)),
    ),
    (
        "I97",
        "the last owner finds nothing of what was consumed",
        lambda told: (told["last"].pop(5), told["last"].pop(4)),
    ),
    ("I99", "refused, and there", lambda told: told["w2"].insert(6, AppendTold(56, 3, "refused"))),
    ("I39", "told that it is lost, and there", lambda told: told["w2"].append(AppendTold(99, 3, "lost"))),
    ("I39", "told that it survived, and nowhere", lambda told: change(told, "w1", 12, outcome="survived")),
    (
        "I39",
        "acknowledged, and told that it is lost",
        lambda told: told["w2"].append(AppendTold(99, 4, "lost")),
    ),
    ("I93", "at another place than was told", lambda told: change(told, "w1", 2, places=((7, 1),))),
    ("I93", "at another offset than was told", lambda told: change(told, "w2", 7, offsets=(7,))),
    ("I93", "the last owner is shown another entry", lambda told: change(told, "c2", 2, texts=("d",))),
    ("I93", "an entry of a ledger is missing", lambda told: change(told, "last", 5, entry=1)),
    ("I93", "an offset is missing", lambda told: change(told, "last", 5, offset=8)),
    ("I93", "a ledger comes again", lambda told: change(told, "last", 5, ledger=7, entry=5)),
    ("I97", "a reader is shown another entry", lambda told: change(told, "r", 2, texts=("d",))),
    ("I97", "a reader skips one", lambda told: change(told, "r", 1, texts=("a", "b1", "b2", "b3"))),
    (
        "I97",
        "a reader is given one twice",
        lambda told: change(told, "r", 2, offset=4, ledger=7, entry=4, texts=("p",)),
    ),
    ("I97", "a reader begins elsewhere", lambda told: change(told, "r", 0, start=1)),
    (
        "I97",
        "a reader sees what a recovery dropped",
        lambda told: told["r"].insert(3, EntriesSeen(64, 1, 6, 9, 1, ("lost",))),
    ),
    (
        "I97",
        "a consumer sees what a recovery dropped",
        lambda told: told["c2"].append(EntriesSeen(68, 1, 7, 11, 0, ("end", "x"))),
    ),
    (
        "I97",
        "who read to the end lacks what owners before left",
        lambda told: told["r"].pop(2) and change(told, "r", 1, texts=("a",)),
    ),
    (
        "I100",
        "a process does not see its own appends",
        lambda told: change(told, "w1", 6, texts=("b1", "b2")),
    ),
    ("I101", "truncated, and nobody has consumed it", lambda told: change(told, "c2", 1, texts=("b2", "b3"))),
    ("I101", "a consumer is given less than was left", lambda told: change(told, "c1", 1, texts=("a",))),
    ("I101", "a cursor stands behind what was consumed", lambda told: change(told, "c2", 0, start=5)),
    (
        "I101",
        "truncated beyond a cursor",
        lambda told: (change(told, "t", 0, asked_ns=55), change(told, "t", 1, at_ns=56)),
    ),
    ("I101", "truncated beyond what was asked", lambda told: change(told, "t", 0, before=4)),
    (
        "I101",
        "a reader from the start is given less than there is",
        lambda told: change(told, "r", 1, offset=1, entry=1, texts=("b1", "b2", "b3", "p")),
    ),
    ("I96", "told of a truncation behind which it stands", lambda told: change(told, "r", 4, start=5)),
    ("I102", "a cursor goes back", lambda told: change(told, "c2", 0, start=1)),
    ("I102", "committed, and not consumed", lambda told: change(told, "c1", 2, offset=4)),
    (
        "P3.1",
        "the end of a call without its middle",
        lambda told: (
            change(told, "w1", 3, texts=("b1", "x", "b2", "b3")),
            change(told, "w1", 4, outcome="unknown"),
        ),
    ),
    (
        "P3.1",
        "another's entry in a call",
        lambda told: (
            change(told, "w1", 3, texts=("b1", "b3")),
            change(told, "w1", 4, outcome="unknown"),
            told["w1"].insert(5, AppendAsked(21, 9, 1, ("b2",))),
        ),
    ),
    (
        "I92",
        "one is left out in front of another",
        lambda told: told["w2"].insert(5, AppendAsked(55, 9, 1, ("x",))),
    ),
    (
        "I92",
        "not in the order in which a handle was given them",
        lambda told: told["w2"].insert(5, told["w2"].pop(6)),
    ),
    (
        "I92",
        "acknowledged before another was asked for, and behind it",
        lambda told: change(told, "w2", 6, asked_ns=1) or change(told, "w2", 7, at_ns=2),
    ),
    (
        "I94",
        "an old owner's entry behind the place of the new one",
        lambda told: change(told, "w2", 0, first_offset=3),
    ),
    ("I94", "an owner's entry before its place", lambda told: change(told, "w2", 0, first_offset=6)),
    ("I94", "owners that begin in another order", lambda told: change(told, "last", 0, epoch=6)),
    (
        "I94",
        "acknowledged under an older epoch behind a newer one",
        lambda told: change(told, "w1", 2, epoch=20),
    ),
    ("P8.11", "a time that goes back", lambda told: change(told, "last", 5, times=((0, 102),))),
]


@pytest.mark.parametrize(("promise", "what", "lie"), LIES, ids=[f"{lie[0]} {lie[1]}" for lie in LIES])
def test_each_lie_is_found(promise: str, what: str, lie: Callable[[Told], Any]) -> None:
    """I99, by its parts: one thing in a history is not true; the checker says which promise that breaks."""
    told = true_history()
    lie(told)
    with pytest.raises(Violation) as found:
        check_log(told)
    assert found.value.invariant == promise, f"{what}: {found.value}"


def test_what_a_producer_appends_twice_is_found_while_the_log_has_the_first() -> None:
    """P3.1: "appending it again, also under a later writer, finds it"; behind its truncation nobody finds it."""
    told = true_history()
    change(told, "last", 5, texts=("p",))
    told["last"][1:3] = [
        AppendAsked(111, 1, 1, ("p",), True),
        AppendTold(112, 1, "acknowledged", ((11, 0),), epoch=12),
    ]
    assert check_log(told)["appended again behind its truncation"] == 1
    change(told, "t", 0, before=4)
    change(told, "t", 1, reached=4)
    change(told, "r", 5, first_offset=4)
    with pytest.raises(Violation, match=r"I99: p of w1, tenure 1 stands at offset 4 and at offset 7"):
        check_log(told)


def test_two_calls_of_one_text_are_no_history() -> None:
    """A text must say who appended it; a history without an end says nothing."""
    told = true_history()
    told["w2"].append(AppendAsked(61, 9, 1, ("a",)))
    with pytest.raises(UsageError, match="two calls append 'a'"):
        check_log(told)
    told = true_history()
    del told["last"]
    with pytest.raises(UsageError, match="nobody read the log in the end"):
        check_log(told)


def test_a_history_is_read_as_it_was_written_without_a_line_that_is_half() -> None:
    """I99: a process is killed within a line; any other line that is none is an error that names it."""
    events = [each for events in true_history().values() for each in events]
    whole = b"".join(map(line_of, events))
    assert events_in(whole) == events
    for size in range(len(whole) - 40, len(whole)):
        assert events_in(whole[:size]) == events[: whole[:size].count(b"\n")]
    with pytest.raises(UsageError, match="one, line 1 is no event of a log"):
        events_in(whole[:5] + b"\n" + whole[5:], "one")
