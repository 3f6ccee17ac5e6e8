"""What a clean stop leaves in the metadata: how much its bookies hold, and none of their registrations (P7.9)."""

from __future__ import annotations

from pathlib import Path

import embedbk
from embedbk.cluster import Cluster
from embedbk.codec.registration import cookie_path, decode_cookie, registration_path
from embedbk.host.bookie_node import BookieNode
from embedbk.storage.metadata_opening import open_metadata_store
from tests.storage.solo import replayed


def told(metadata: Path, bookie_id: str) -> tuple[int, ...]:
    """Durable tokens, as the metadata of a stopped cluster knows them; whoever left is not registered."""
    store = open_metadata_store(str(metadata))
    try:
        assert replayed(store).get(registration_path(bookie_id)).record is None
        record = replayed(store).get(cookie_path(bookie_id)).record
        assert record is not None and record.value is not None
        return decode_cookie(record.value).tokens
    finally:
        store.close()


def test_a_closed_cluster_knows_all_that_its_bookies_hold(data: Path, settings: embedbk.Settings) -> None:
    """P7.9: "told ... at a clean stop": else what is lost before the next start is lost without a trace."""
    with embedbk.open(data, settings=settings) as bk, bk.log("orders").writer() as writer:
        for number in range(20):
            writer.append(b"%d" % number)
    known = {name: told(data / "metadata", name) for name in ("b1", "b2", "b3")}
    with embedbk.open(data, settings=settings) as bk:
        nodes = [place.node for place in bk._runtime.loop._places if isinstance(place.node, BookieNode)]
        assert {node.bookie_id: tuple(node.storage.replayed) for node in nodes} == known


def test_a_bookie_process_says_it_before_it_ends(tmp_path: Path, settings: embedbk.Settings) -> None:
    """P7.9: over sockets, where what is not sent when the process ends is never sent."""
    with (
        Cluster(tmp_path / "data", bookies=1, settings=settings) as cluster,
        embedbk.open(cluster.url, settings=settings) as bk,
        bk.create_ledger(ensemble_size=1) as ledger,
    ):
        for number in range(20):
            ledger.add(b"%d" % number)
    (tokens,) = told(tmp_path / "data" / "metadata", "b1")
    assert tokens >= 20
