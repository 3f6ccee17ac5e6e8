"""A reader that follows a log begins with the next ledger before the one that it reads has ended (P6.6, P8.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import embedbk
from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import Get
from embedbk.core.lac_reader import LacRead
from embedbk.testing import Cluster

NAME = "orders"
EACH = embedbk.Roll(bytes=None, entries=10)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=8, bookies=3) as made:
        yield made


class Asked:
    """What a reader asks for by itself: keys of the metadata, and LACs of ledgers."""

    def __init__(self, bk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: list[str] = []
        self.lacs: list[int] = []
        self.is_over = False
        runtime = bk._runtime
        ask, run = runtime.ask, runtime.run

        def note_key(operation: Any, *others: Any) -> Any:
            if isinstance(operation, Get) and not self.is_over:
                self.keys.append(operation.key)
            return ask(operation, *others)

        def note_lac(core: Any, *others: Any) -> Any:
            if isinstance(core, LacRead):
                self.lacs.append(core.metadata.ledger_id)
            return run(core, *others)

        monkeypatch.setattr(runtime, "ask", note_key)
        monkeypatch.setattr(runtime, "run", note_lac)


def followed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, idle_s: float | None
) -> tuple[list[int], list[int], Asked]:
    """(entries that were read, ledgers of the log, what was asked for) over three rolls."""
    reader = cluster.client("reader")
    asked, seen = Asked(reader, monkeypatch), []
    with cluster.client("w").log(NAME).writer(roll=EACH) as writer:
        writer.append(b"0")
        tail = reader.log(NAME).tail(0, idle_s=idle_s)
        for number in range(1, 40):
            seen.append(int(bytes(next(tail))))
            cluster.run_for(0.1)
            writer.append(b"%d" % number)
        seen.append(int(bytes(next(tail))))
        tail.close()
    asked.is_over = True
    return seen, [each.ledger_id for each in reader.log(NAME).segments()], asked


def test_nothing_is_asked_between_the_end_of_one_ledger_and_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list names the next ledger while appends go to the one before (P8.2 i): its metadata is followed from then
    on, and its first entry comes with the answer to a wait."""
    seen, ledgers, asked = followed(cluster, monkeypatch, None)
    assert seen == list(range(40))
    assert len(ledgers) >= 4
    assert [each for each in ledgers if ledger_key_path(each) in asked.keys] == ledgers[:1]
    assert set(asked.lacs) == {ledgers[0]}


def test_a_tail_that_gives_up_soon_asks_all_bookies_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6.6: it ends "when nothing new came for as long as its caller waits"; one silent bookie hides nothing."""
    seen, ledgers, asked = followed(cluster, monkeypatch, 2.0)
    assert seen == list(range(40))
    assert set(asked.lacs) >= set(ledgers[:4])


def test_what_was_begun_ahead_ends_with_the_tail(cluster: Cluster) -> None:
    """Watches do not grow with tails that were left."""
    reader = cluster.client("reader")
    with cluster.client("w").log(NAME).writer(roll=embedbk.Roll(bytes=None, entries=100)) as writer:
        for number in range(89):
            writer.append(b"%d" % number)
        cluster.run_for(1)
        before = {each.key for each in reader._runtime.followed}
        tail = reader.log(NAME).tail(0)
        for _ in range(89):
            next(tail)
        writer.append(b"one more")
        assert bytes(next(tail)) == b"one more"
        ledgers = {each.key for each in reader._runtime.followed if each.key.startswith("/ledgers/")}
        assert len(ledgers) == 2, "the one that it reads, and the one that is prepared"
        tail.close()
        assert {each.key for each in reader._runtime.followed} == before


def test_a_next_ledger_that_left_the_list_again_is_not_waited_for(cluster: Cluster) -> None:
    """P8.3: what was prepared and not used is closed empty, and leaves the list; the reader goes on with what came
    instead."""
    reader = cluster.client("reader")
    with cluster.client("w").log(NAME).writer(roll=EACH) as writer:
        for number in range(10):
            writer.append(b"%d" % number)
        cluster.run_for(1)
        (_, prepared) = [each.ledger_id for each in reader.log(NAME).segments()]
        tail = reader.log(NAME).tail(0)
        seen = [int(bytes(next(tail))) for _ in range(10)]
    with cluster.client("x").log(NAME).writer() as other:
        assert other.ledger_id != prepared
        other.append(b"10")
        seen.append(int(bytes(next(tail))))
        assert prepared not in [each.ledger_id for each in reader.log(NAME).segments()]
    tail.close()
    assert seen == list(range(11))
