"""How do we stand against the systems that people would take instead, on this machine, in this run, synced?

Three bookies, 3/3/2. Each row is ours beside one peer: the pair with the median ratio, both measured in turns. `many`
is the highest rate of a closed loop, `depth1_p50` the median wait for one entry of 1 KiB (there a smaller value and
ratio is better), `pipelined` one call an entry of ours with two thousand outstanding. Peers with one copy (Redis,
SQLite) do a third of the work; the row says so in the peer's name, and the rows `one_copy` have ours with one copy.

Before each turn of either side the disk is left to settle, outside both clocks (`_settle.py`): whatever a side has
written and not synced is on the device before the other begins. That is generous to peers that write through the page
cache: the time their own writeback takes is never counted. Ours is in files past the page cache.

What a peer needs is fetched by its own client into `.run` (artifacts, a wheel) or, as root, from Debian. One that
cannot be had gives a row without its value, and the reason in its name; nothing is ever guessed.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import embedbk
from benchmarks import Row, is_wanted, workplace
from benchmarks._settle import settled
from benchmarks.append import (
    MANY_BYTES,
    MANY_ENTRIES_MAX,
    PIPELINED_WORK,
    SIZES,
    Pairs,
    Place,
    alternate,
    append_each,
    append_many,
    append_pipelined,
    median_row,
)
from benchmarks.peers.bookkeeper import BookKeeper
from benchmarks.peers.etcd import Etcd
from benchmarks.peers.nats import Nats
from benchmarks.peers.peer import Absent, Failed, Peer
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
MANY_PAIRS = 3
DEPTH1_PAIRS = 5


def measure() -> Iterator[Row]:
    with (
        workplace("peers") as directory,
        Cluster(directory / "zmq", bookies=3) as cluster,
        embedbk.open(cluster.url) as far,
        embedbk.open(directory / "local", bookies=3) as near,
        embedbk.open(directory / "one", bookies=1) as one,
    ):
        place = Place(directory, [process.pid for process in cluster.processes.values()])
        for name, start in PEERS:
            yield from _against(name, start, place, far, near, one)


def _against(
    name: str,
    start: Callable[[Path], Peer],
    place: Place,
    far: embedbk.Client,
    near: embedbk.Client,
    one: embedbk.Client,
) -> Iterator[Row]:
    print(f"peers: {name} starts", file=sys.stderr)
    directory = place.directory / name
    try:
        peer = start(directory)
    except Absent as absent:
        print(f"peers: no {name}: {absent}", file=sys.stderr)
        with far.log(f"many-{name}").writer() as writer:
            ours = append_many(writer, _items(1024), place)
        yield Row("append/zmq/1KiB/many", round(ours.value, 1), "entries/s", peer=f"{name} ({absent})")
        return
    try:
        with far.log(f"many-{name}").writer() as writer:
            for label, size in SIZES.items():
                work = f"append/zmq/{label}/many"
                if size in peer.sizes and is_wanted(work):
                    yield _beside(peer, work, "entries/s", _many(writer, peer, size, place))
            if is_wanted(PIPELINED_WORK):
                yield _beside(peer, PIPELINED_WORK, "entries/s", _pipelined(writer, peer, place))
        for kind, bk in (("zmq", far), ("local", near)):
            work = f"append/{kind}/1KiB/depth1_p50"
            if is_wanted(work):
                with bk.log(f"depth1-{name}").writer() as writer:
                    yield _beside(peer, work, "us", _depth1(writer, peer, place))
        if peer.copies == 1:
            with one.log(f"one-{name}").writer() as writer:
                if is_wanted("append/one_copy/1KiB/many"):
                    yield _beside(
                        peer, "append/one_copy/1KiB/many", "entries/s", _many(writer, peer, 1024, place)
                    )
                if is_wanted("append/one_copy/1KiB/depth1_p50"):
                    yield _beside(peer, "append/one_copy/1KiB/depth1_p50", "us", _depth1(writer, peer, place))
    except Failed as failed:
        print(f"peers: {peer.name} gives no more rows: {failed}", file=sys.stderr)
    finally:
        peer.close()
        shutil.rmtree(directory, ignore_errors=True)


def _many(writer: embedbk.LogWriter, peer: Peer, size: int, place: Place) -> Pairs:
    items = _items(size)
    return alternate(
        MANY_PAIRS,
        settled(place.directory, lambda: append_many(writer, items, place)),
        settled(place.directory, lambda: peer.many(size)),
    )


def _pipelined(writer: embedbk.LogWriter, peer: Peer, place: Place) -> Pairs:
    """One call an entry of ours; the peer's own way of having many on their way."""
    payload = os.urandom(1024)
    return alternate(
        MANY_PAIRS,
        settled(place.directory, lambda: append_pipelined(writer, payload, place)),
        settled(place.directory, lambda: peer.many(len(payload))),
    )


def _depth1(writer: embedbk.LogWriter, peer: Peer, place: Place) -> Pairs:
    payload = os.urandom(1024)
    return alternate(
        DEPTH1_PAIRS,
        settled(place.directory, lambda: append_each(writer, payload, place)),
        settled(place.directory, lambda: peer.depth1(len(payload))),
    )


def _items(size: int) -> list[bytes]:
    return [os.urandom(size)] * min(MANY_BYTES // size, MANY_ENTRIES_MAX)


def _beside(peer: Peer, work: str, unit: str, pairs: Pairs) -> Row:
    """The row of the pair with the median ratio. Foreign is what others had in our turns, also the peer that rests."""
    row = median_row(work, unit, pairs)
    return dataclasses.replace(row, ceiling=None, peer=peer.name, peer_value=row.ceiling)
