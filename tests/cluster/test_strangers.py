"""Every role as a process, and an embedded cluster, against strangers at its socket: none of them ends (T10)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.codec.add_messages import FenceRequest
from embedbk.codec.lac_messages import LacRequest
from embedbk.codec.messages import encode_message
from embedbk.codec.metadata_messages import Get, MetadataRequest, OpenSession
from embedbk.config import Settings
from embedbk.testing.stranger import nearly_a_message
from embedbk.transports.envelope import Kind, envelope_prefix, seal
from tests.transports.zmtp import VERSIONS, Stranger, hello, play

SETTINGS = Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("strangers"), bookies=1, settings=SETTINGS) as made:
        yield made


def attack(endpoint: str, seed: int) -> None:
    """Sockets that play any script, and linked ones that say nearly what a peer says."""
    chance = random.Random(seed)
    bodies = [b"".join(encode_message(1, each)) for each in (
        MetadataRequest(0, 1, 1, OpenSession(5000, "x")), MetadataRequest(0, 1, 1, Get("/a")),
        FenceRequest(bytes(16), 1, bytes(16)), LacRequest(bytes(16), 1),
    )]  # fmt: skip
    with contextlib.ExitStack() as opened:
        for version in VERSIONS:  # The eight bytes.
            stranger = opened.enter_context(Stranger(endpoint, version))
            stranger.say(b"x", b"y")
        for _ in range(60):
            played = play(endpoint, chance, bodies)
            if played is not None:
                opened.callback(played.close)
        for _ in range(60):
            linked = opened.enter_context(Stranger(endpoint))
            linked.say(hello())
            nonces = _nonces(linked)
            if nonces is None:
                continue
            for _ in range(3):
                body = nearly_a_message(chance, bytes(16))
                block = seal(envelope_prefix(Kind.DATA, *nonces), len(body)) + body
                linked.say(block[:40], block[40:]) if chance.random() < 0.3 else linked.say(block)


def _nonces(stranger: Stranger) -> tuple[bytes, bytes] | None:
    """Of the link, once the other end has said Hello; None: it hung up."""
    stranger.socket.settimeout(20)
    while b"EBKL" not in stranger.heard or len(stranger.heard.partition(b"EBKL")[2]) < 20:
        part = stranger.socket.recv(1 << 16)
        if not part:
            return None
        stranger.heard += part
    stranger.socket.setblocking(False)
    at = stranger.heard.index(b"EBKL")
    return stranger.heard[at + 8 : at + 16], stranger.heard[at + 16 : at + 24]


@pytest.mark.parametrize("role", ["m1", "b1"])
@pytest.mark.parametrize("seed", range(2))
def test_a_process_outlives_every_stranger(cluster: Cluster, role: str, seed: int) -> None:
    """T10: a metadata member and a bookie, each by itself; a client is served beside."""
    with embedbk.open(cluster.url, settings=SETTINGS) as bk, bk.create_ledger(ensemble_size=1) as ledger:
        ledger.add(b"before")
        attack(cluster.processes[role].endpoints[0], seed)
        ledger.add(b"after")
    assert {name: process.is_running for name, process in cluster.processes.items()} == {
        "m1": True,
        "b1": True,
    }


def test_an_embedded_cluster_outlives_every_stranger(tmp_path: Path) -> None:
    """T10: with `listen=` all of an application is behind that socket."""
    listening = embedbk.open(tmp_path / "data", settings=SETTINGS, listen="tcp://127.0.0.1:0")
    with listening as bk, bk.create_ledger() as ledger:
        ledger.add(b"before")
        attack("tcp://" + bk.url.removeprefix("embedbk://"), 7)
        ledger.add(b"after")
        with embedbk.open(bk.url, settings=SETTINGS) as other:
            assert other.ledgers() == [ledger.ledger_id]
