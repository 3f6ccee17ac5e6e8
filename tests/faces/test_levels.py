"""Opening what a later build has raised (P10.8): an error at once, and not when the time for opening is over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import embedbk
from embedbk.client.embedded import Opened, _client, _client_identity
from embedbk.client.waiting import run_blocking
from embedbk.host.client_node import ClientNode
from embedbk.host.loop import Loop, clock_ns
from embedbk.host.metadata_node import MetadataNode
from embedbk.metadata.levels import LEVEL, LEVEL_FIRST
from embedbk.metadata.limits import Limits
from embedbk.ports.links import Identity
from embedbk.storage.metadata_store import open_metadata_store
from embedbk.transports import open_transport

FOREVER_S = 3600.0  # More than a test may take: the error comes at once.


def raise_by_a_later_build(directory: Path) -> None:
    """A build that knows one level more runs the cluster's only member, and begins that level."""
    store = open_metadata_store(directory, file_bytes=4 << 20, limits=Limits(level_known=LEVEL + 1))
    own = store.boot
    token = store.identity.cluster_token
    identity = Identity("metadata", own.member.name, own.member.incarnation, token, own.nonce, LEVEL + 1)
    node = MetadataNode(store, open_transport("local://*", identity), ["local://*"], now_ns=clock_ns())
    loop = Loop()
    loop.add(node)
    while node.core.catalog.level <= LEVEL:
        loop.turn()
    loop.stop()


def test_a_directory_of_a_later_level_is_refused_at_once(data: Path, settings: embedbk.Settings) -> None:
    """METADATA.md, 8: "a member refuses its own log"; whoever waits for its cluster need not wait any longer."""
    embedbk.open(data, bookies=1, settings=settings).close()
    raise_by_a_later_build(data / "metadata")
    patient = replace(settings, open_timeout_s=FOREVER_S)
    with pytest.raises(embedbk.StorageError, match=f"raised to {LEVEL + 1}; this embedbk knows levels 1 to"):
        embedbk.open(data, settings=patient)


def test_a_client_that_is_too_old_is_told_so_at_once(data: Path, settings: embedbk.Settings) -> None:
    """METADATA.md, 8: "a session (LACKING; its client ends)": nobody tells it to look whether a member runs."""

    def be_older(node: ClientNode) -> None:
        node.metadata.client.level = LEVEL_FIRST

    patient = replace(settings, open_timeout_s=FOREVER_S)
    with embedbk.open(data, bookies=1, listen="tcp://127.0.0.1:0", settings=settings) as newer:
        assert newer.url is not None
        endpoint = newer.url.replace("embedbk", "tcp")
        transport = open_transport(endpoint, _client_identity(b""))
        runtime = _client(transport, [endpoint], patient, b"", Loop("older"), "it", be_older)
        try:
            with pytest.raises(embedbk.MetadataUnavailable, match="knows levels 1 to 1, and the") as refused:
                run_blocking(Opened(runtime, {}, newer.url).ready(), "ready")
            assert refused.value.definite
            assert "nobody answered" not in str(refused.value)
        finally:
            runtime.close()
