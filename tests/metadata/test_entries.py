"""How many entries of the agreed log each procedure costs, counted on whole clusters (METADATA.md, 12)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embedbk.codec.metadata_messages import Acquire, Refusal, Release, Result
from embedbk.codec.repair_messages import EndRepairs, FailRepairs, MarkRepairs, RepairsTaken, TakeRepairs
from embedbk.metadata import commands
from embedbk.metadata.commands import Run, decode_command
from embedbk.testing import Cluster

PAGE = (Path(commands.__file__).parent / "METADATA.md").read_text()
ROWS = dict(re.findall(r"^\| ([a-z][^|]*) \| (\d) \|", PAGE.split("## 12.")[1], re.MULTILINE))


class Entries:
    """Of one node's session, between two moments, as the leader has applied them."""

    def __init__(self, cluster: Cluster, who: str) -> None:
        self.cluster, self.who = cluster, who
        self.member: Any = cluster.world.nodes[cluster.leader()].core
        self.begun = self.member.applied_index

    @property
    def operations(self) -> list[str]:
        session = self.cluster.world.nodes[self.who].metadata.session
        between = self.member.log.raft.log.between(self.begun + 1, self.member.applied_index)
        found = [decode_command(entry.body) for entry in between if isinstance(entry.body, bytes)]
        return [
            type(each.operation).__name__
            for each in found
            if isinstance(each, Run) and each.session == session
        ]


def counted(cluster: Cluster, procedure: str, act: Callable[[], Any], who: str = "client") -> list[str]:
    """What it is made of; as many as the page says."""
    entries = Entries(cluster, who)
    act()
    found = entries.operations
    assert len(found) == int(ROWS[procedure]), (procedure, found)
    return found


@pytest.fixture(params=[1, 3], ids=["one member", "three members"])
def cluster(request: pytest.FixtureRequest) -> Any:
    with Cluster(seed=5, bookies=4, members=request.param) as found:
        found.client()
        yield found


def test_ledgers_cost_what_the_page_says(cluster: Cluster) -> None:
    """METADATA.md, 12: creating, closing, recovering and deleting a ledger."""
    client = cluster.client()
    made: list[Any] = []
    create = "create a ledger"
    entries = Entries(cluster, "client")
    made.append(client.create_ledger())
    first = entries.operations
    assert first == ["Txn", "AllocIds", "Txn"]
    assert len(first) == int(ROWS["say that a client lives, once"]) + int(ROWS[create])
    assert counted(cluster, create, lambda: made.append(client.create_ledger())) == ["AllocIds", "Txn"]
    made[0].add(b"zero")
    counted(cluster, "change, close or delete one", made[0].close)
    counted(cluster, "change, close or delete one", lambda: client.delete_ledger(made[0].ledger_id))
    left = client.create_ledger()
    left.add(b"zero")
    other = cluster.client("other")
    counted(cluster, "recover one", lambda: other.open_ledger(left.ledger_id, recover=True), "other")


def test_logs_cost_what_the_page_says(cluster: Cluster) -> None:
    """METADATA.md, 12: a takeover is its epoch, and a ledger made and listed; a roll is three, as P8.2 has it."""
    log = cluster.log("orders")
    writers: list[Any] = []
    entries = Entries(cluster, "client")
    writers.append(log.writer())
    parts = [
        ROWS[each]
        for each in (
            "make a log",
            "say that a client lives, once",
            "take a log over: its epoch",
            "list a new ledger behind it",
        )
    ]
    assert len(entries.operations) == sum(map(int, parts)) == 5
    again = Entries(cluster, "client")
    writers.append(cluster.log("others").writer())
    assert len(again.operations) == 4
    client, row = cluster.client("client"), "rename, delete or bring back a log"
    counted(cluster, "make a log", lambda: client.create_log("third", ack_quorum=None))
    counted(cluster, row, lambda: client.log("third").rename("fourth"))
    counted(cluster, row, lambda: client.delete_log("fourth"))
    counted(cluster, row, lambda: client.undelete_log("fourth"))
    writers[0].append(b"zero")

    def roll() -> None:
        writers[0].roll()
        writers[0].append(b"one")
        cluster.run_for(5)

    found = counted(cluster, "roll a log", roll)
    assert found == ["AllocIds", "Txn", "Txn"]


def test_bookies_cost_what_the_page_says(cluster: Cluster) -> None:
    """METADATA.md, 12: P7.9 and P10.6 in one transaction."""
    world = cluster.world
    mode = "read-only and back"

    def become(is_writable: bool) -> None:
        core = world.nodes["b1"].core
        core.is_writable = is_writable
        world.wake("b1")
        cluster.run_for(1)

    counted(cluster, mode, lambda: become(False), "b1")
    counted(cluster, mode, lambda: become(True), "b1")
    cluster.crash("b1")
    cluster.run_for(1)

    def restart() -> None:
        cluster.restart("b1")
        assert cluster.run_until(lambda: world.nodes["b1"].is_registered)

    entries = Entries(cluster, "b1")
    restart()
    assert len(entries.operations) == int(ROWS["register a bookie"])


@pytest.mark.parametrize("members", [1, 3])
def test_claims_and_repairs_cost_one_entry_each(members: int) -> None:
    """METADATA.md, 12: "mark, take, end, fail up to 40 repairs"; METADATA.md, 7."""
    with Cluster(seed=6, bookies=3, members=members) as cluster:
        cluster.client()
        link = cluster.world.nodes["client"].metadata
        told: list[Result] = []

        def ask(operation: Any) -> None:
            before = len(told)
            link.request(cluster.world.now_of("client"), operation, lambda _, result: told.append(result))
            cluster.world.wake("client")
            assert cluster.run_until(lambda: len(told) > before)
            assert not isinstance(told[-1], Refusal), told[-1]

        lock, repairs = "acquire or release a lock", "mark, take, end, fail up to 40 repairs"
        counted(cluster, lock, lambda: ask(Acquire("l")))
        counted(cluster, lock, lambda: ask(Release("l")))
        counted(cluster, repairs, lambda: ask(MarkRepairs(tuple((n, ("b1",)) for n in range(40)))))
        counted(cluster, repairs, lambda: ask(TakeRepairs(40)))
        taken = told[-1]
        assert isinstance(taken, RepairsTaken)
        assert len(taken.marks) == 40
        half = taken.marks[:20]
        counted(
            cluster, repairs, lambda: ask(EndRepairs(tuple((n, taken.epoch, mark) for n, mark, _ in half)))
        )
        rest = tuple((n, taken.epoch) for n, _, _ in taken.marks[20:])
        counted(cluster, repairs, lambda: ask(FailRepairs(rest)))
