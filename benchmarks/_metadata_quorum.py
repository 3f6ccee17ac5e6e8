"""What does the metadata quorum cost, beside etcd with as many members, in one run?

Three member processes with journals of their own, every put synced by a majority before its answer; the load is a
process of its own, in Python, over ZeroMQ, with as many sessions as the outstanding operations need. `put/N` and
`read/N` are a closed loop of so many outstanding (values of 250 B, 1,000 keys in turn; reads are linearizable),
`read/1_p50` the median wait for one alone, `create/pipelined` ledger records under ids that come in blocks. The ceiling
is the bare loop of `_bare_quorum.py`; for reads it is our own puts, as many at a time.

`failover`: SIGKILL of the leader to the next acknowledged put. The ceiling is the election base: the ratio is how many
bases it took (etcd's base is 1,000 ms, so compare the ratios). `solo` is a quorum of one process.

Sides take turns, after the disk has settled; a row is the round with the median ratio to etcd.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import Row, is_wanted, workplace
from benchmarks._bare_quorum import BareQuorum
from benchmarks._load import Load
from benchmarks._metadata_load import MetadataLoad, get, put
from benchmarks._settle import settle
from benchmarks.peers.etcd_metadata import EtcdMetadata
from benchmarks.peers.peer import Absent, Failed
from embedbk.cluster import Cluster
from embedbk.metadata.quorum import Configuration

__all__ = ["measure"]

VALUE = os.urandom(250)
ROUNDS = 3
TURN_S = 2.0
WARM_UP_S = 0.5
ALONE = 300  # Operations of one `read/1_p50`.
KILLS = 15
PEER_KILLS = 5
QUORUM = ("put/1", "put/64", "put/256", "read/64", "read/1_p50", "create/pipelined")
SOLO = ("solo/put/1", "solo/put/64")
FAILOVER = ("failover_p50", "failover_p95")
TOOL_OUTSTANDING = (
    256  # etcd's own load tool keeps 500 under way: it may only be better than this row's client.
)

Turn = Callable[[], float]


@dataclass
class Sides:
    """The sides that take turns: our cluster, the bare loop, and etcd, or why it is not there."""

    directory: Path
    cluster: Cluster
    bare: BareQuorum
    etcd: EtcdMetadata | None
    absent: str

    @property
    def endpoints(self) -> list[str]:
        return [
            endpoint for name in self.cluster.members for endpoint in self.cluster.processes[name].endpoints
        ]

    @property
    def pids(self) -> list[int]:
        return [peer.pid for peer in self.cluster.processes.values()]


def measure() -> Iterator[Row]:
    for members, works in ((3, (*QUORUM, *FAILOVER)), (1, SOLO)):
        works = tuple(work for work in works if is_wanted(f"metadata/{work}"))
        if not works:
            continue
        with workplace("metadata-quorum") as directory, ExitStack() as stack:
            sides = started(directory, members, stack)
            for work in works:
                if work not in FAILOVER:
                    yield in_turns(sides, work)
            if set(works) & set(FAILOVER):
                yield from failover(sides)


def started(directory: Path, members: int, stack: ExitStack) -> Sides:
    etcd, absent = None, ""
    try:
        etcd = EtcdMetadata(directory / "etcd", members)
        stack.callback(etcd.close)
    except (Absent, Failed) as missing:
        absent = f"etcd ({missing})"
        print(f"metadata: no {absent}", file=sys.stderr)
    bare = stack.enter_context(BareQuorum(directory / "bare", members))
    cluster = stack.enter_context(Cluster(directory / "ours", bookies=1, members=members))
    cluster.leader()
    return Sides(directory, cluster, bare, etcd, absent)


def in_turns(sides: Sides, work: str) -> Row:
    what, outstanding = what_and_how_many(work)
    is_wait = work.endswith("_p50")
    rounds: list[tuple[float, float, float, Load]] = []
    with MetadataLoad(sides.endpoints, outstanding) as load:
        ours, ceiling, theirs = turns(sides, load, what, outstanding, is_wait=is_wait)
        load.rate(put, WARM_UP_S, VALUE)
        for _ in range(ROUNDS):
            settle(sides.directory)
            with Load(sides.directory, sides.pids) as spent:
                value = ours()
            if what != "read":
                spent.check_flushes(int(value * TURN_S / outstanding / 2))
            settle(sides.directory)
            most = ceiling()
            settle(sides.directory)
            rounds.append((value, most, theirs() if theirs else 0.0, spent))
    by_ratio = sorted(rounds, key=lambda each: each[0] / (each[2] or each[1]))
    value, most, peer_value, spent = by_ratio[len(by_ratio) // 2]
    print(
        f"metadata/{work}: ours, ceiling, etcd: "
        + "; ".join(f"{a:,.0f} {b:,.0f} {c:,.0f}" for a, b, c, _ in rounds),
        file=sys.stderr,
    )
    if sides.etcd is not None and what == "put" and outstanding == TOOL_OUTSTANDING:
        tool = by_its_tool(sides.etcd)
        print(f"metadata/{work}: etcd's own tool: {tool:,.0f}", file=sys.stderr)
        peer_value = max(peer_value, tool)
    return Row(
        f"metadata/{work}",
        round(value, 1),
        "us" if is_wait else "ops/s",
        round(most, 1),
        None if is_wait else round(spent.cpu_s * 1e6 / (value * TURN_S), 2),
        peer=sides.etcd.name if sides.etcd else sides.absent,
        peer_value=round(peer_value, 1) if sides.etcd else None,
        foreign=round(spent.foreign, 3),
    )


def what_and_how_many(work: str) -> tuple[str, int]:
    *_, what, last = work.split("/")
    return (what, 256) if last == "pipelined" else (what, int(last.removesuffix("_p50")))


def turns(
    sides: Sides, load: MetadataLoad, what: str, outstanding: int, *, is_wait: bool
) -> tuple[Turn, Turn, Turn | None]:
    """Ours, the ceiling's, etcd's."""
    etcd = sides.etcd
    order = "read" if what == "read" else "put"
    if is_wait:
        theirs = (lambda: etcd.p50(order, ALONE, len(VALUE))) if etcd else None
        return lambda: load.p50(get, ALONE, VALUE), lambda: load.p50(put, ALONE, VALUE), theirs
    theirs = (lambda: etcd.rate(order, outstanding, TURN_S, len(VALUE))) if etcd else None
    if what == "read":
        return lambda: load.rate(get, TURN_S, VALUE), lambda: load.rate(put, TURN_S, VALUE), theirs
    ceiling = lambda: sides.bare.rate(outstanding, TURN_S, VALUE)  # noqa: E731
    if what == "create":
        return lambda: load.create_rate(TURN_S, VALUE), ceiling, theirs
    return lambda: load.rate(put, TURN_S, VALUE), ceiling, theirs


def by_its_tool(etcd: EtcdMetadata) -> float:
    """`etcdctl check perf`: 1 KiB values, at most 15,000 a second."""
    try:
        return etcd.many(1024)
    except Failed as failed:
        print(f"metadata: etcd's own tool gives no figure: {failed}", file=sys.stderr)
        return 0.0


def failover(sides: Sides) -> Iterator[Row]:
    cluster, took = sides.cluster, []
    with MetadataLoad(sides.endpoints, 1) as load:
        for number in range(KILLS):
            leader = cluster.leader()
            load.p50(put, ALONE, VALUE)
            took.append(
                load.after(lambda peer=cluster.processes[leader]: peer.send_signal(9), put(number, VALUE))
            )
            cluster.restart(leader)
    theirs: list[float] = []
    if sides.etcd is not None:
        theirs = [sides.etcd.failover_ms() for _ in range(PEER_KILLS)]
    for name, values in (("ours", took), ("etcd", theirs)):
        print(
            f"metadata/failover: {name}: {' '.join(f'{each:.0f}' for each in sorted(values))} ms",
            file=sys.stderr,
        )
    base_ms = Configuration(()).election_base_ms
    for work, at in zip(FAILOVER, (0.5, 0.95), strict=True):
        yield Row(
            f"metadata/{work}",
            round(quantile(took, at), 1),
            "ms",
            base_ms,
            peer=f"{sides.etcd.name}, base 1000 ms" if sides.etcd else sides.absent,
            peer_value=round(quantile(theirs, at), 1) if theirs else None,
        )


def quantile(values: list[float], at: float) -> float:
    """The nearest one that was measured, the worse of two."""
    return (
        statistics.median(values)
        if at == 0.5
        else sorted(values)[min(len(values) - 1, int(at * len(values)))]
    )
