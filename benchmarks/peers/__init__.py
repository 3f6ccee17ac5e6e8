"""How do we stand against the systems that people would take instead, on this machine, in this run, synced?

Three bookies, 3/3/2. Each row is ours beside one peer: the pair with the median ratio, both measured in turns. `many`
is the highest rate of a closed loop, `depth1_p50` the median wait for one entry of 1 KiB (there a smaller value and
ratio is better). Peers with one copy (Redis, SQLite) do a third of the work; the row says so in the peer's name.

What a peer needs is fetched by its own client into `.run` (artifacts, a wheel) or, as root, from Debian. One that
cannot be had gives a row without its value, and the reason in its name; nothing is ever guessed.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import embedbk
from benchmarks import Row
from benchmarks.append import append_rate, p50_us
from benchmarks.peers.bookkeeper import BookKeeper
from benchmarks.peers.etcd import Etcd
from benchmarks.peers.nats import Nats
from benchmarks.peers.peer import Absent, Peer
from benchmarks.peers.redis import Redis
from benchmarks.peers.sqlite import Sqlite
from embedbk.cluster import Cluster

__all__ = ["measure"]

PEERS: list[tuple[str, Callable[[Path], Peer]]] = [
    ("bookkeeper-tuned", partial(BookKeeper, is_tuned=True)),
    ("bookkeeper-default", partial(BookKeeper, is_tuned=False)),
    ("nats", Nats),
    ("etcd", Etcd),
    ("redis", Redis),
    ("sqlite", Sqlite),
]
SIZES = {100: "100B", 1024: "1KiB", 4096: "4KiB", 65536: "64KiB"}
MANY_PAIRS = 3
DEPTH1_PAIRS = 5
Pairs = list[tuple[float, float]]


def measure() -> Iterator[Row]:
    place = Path(__file__).parents[2] / ".run"  # In the project: a temporary directory may be no real disk.
    place.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-peers-", dir=place))
    try:
        with (
            Cluster(directory / "zmq", bookies=3) as cluster,
            embedbk.open(cluster.url) as far,
            embedbk.open(directory / "local", bookies=3) as near,
        ):
            for name, start in PEERS:
                yield from _against(name, start, directory / name, far, near)
    finally:
        shutil.rmtree(directory)


def _against(
    name: str, start: Callable[[Path], Peer], directory: Path, far: embedbk.Client, near: embedbk.Client
) -> Iterator[Row]:
    print(f"peers: {name} starts", file=sys.stderr)
    try:
        peer = start(directory)
    except Absent as absent:
        print(f"peers: no {name}: {absent}", file=sys.stderr)
        with far.log(f"many-{name}").writer() as writer:
            yield Row(
                "append/zmq/1KiB/many", append_rate(writer, 1024), "entries/s", peer=f"{name} ({absent})"
            )
        return
    try:
        with far.log(f"many-{name}").writer() as writer:
            for size in peer.sizes:
                pairs = [(append_rate(writer, size), peer.many(size)) for _ in range(MANY_PAIRS)]
                yield _row(f"append/zmq/{SIZES[size]}/many", "entries/s", pairs, peer)
        for place, bk in (("zmq", far), ("local", near)):
            with bk.log(f"depth1-{name}").writer() as writer:
                if (pairs := _depth1(writer, peer)) is not None:
                    yield _row(f"append/{place}/1KiB/depth1_p50", "us", pairs, peer)
    finally:
        peer.close()
        shutil.rmtree(directory, ignore_errors=True)


def _depth1(writer: embedbk.LogWriter, peer: Peer) -> Pairs | None:
    payload = bytes(1024)
    pairs: Pairs = []
    for _ in range(DEPTH1_PAIRS):
        theirs = peer.depth1(len(payload))
        if theirs is None:
            return None
        pairs.append((p50_us(lambda: writer.append(payload)), theirs))
    return pairs


def _row(work: str, unit: str, pairs: Pairs, peer: Peer) -> Row:
    """The pair with the median ratio."""
    ratios = [ours / theirs for ours, theirs in pairs]
    value, peer_value = pairs[ratios.index(statistics.median_low(ratios))]
    return Row(work, round(value, 1), unit, peer=peer.name, peer_value=round(peer_value, 1))
