"""Opening what a later build has raised (P10.8): an error at once, and not when the time for opening is over."""

from __future__ import annotations

import threading
from contextlib import ExitStack
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


def opened(newer: embedbk.Client, settings: embedbk.Settings, level: int) -> Opened:
    """A client that knows this level."""
    assert newer.url is not None

    def know(node: ClientNode) -> None:
        node.metadata.client.level = level

    endpoint = newer.url.replace("embedbk", "tcp")
    transport = open_transport(endpoint, _client_identity(b""))
    return Opened(_client(transport, [endpoint], settings, b"", Loop("older"), "it", know), {}, newer.url)


def test_a_client_that_is_too_old_is_told_so_at_once(data: Path, settings: embedbk.Settings) -> None:
    """METADATA.md, 8: "a session (LACKING; its client ends)": nobody tells it to look whether a member runs."""
    patient = replace(settings, open_timeout_s=FOREVER_S)
    with embedbk.open(data, bookies=1, listen="tcp://127.0.0.1:0", settings=settings) as newer:
        older = opened(newer, patient, LEVEL_FIRST)
        try:
            with pytest.raises(embedbk.MetadataUnavailable, match="knows levels 1 to 1, and the") as refused:
                run_blocking(older.ready(), "ready")
            assert refused.value.definite
            assert "nobody answered" not in str(refused.value)
        finally:
            older.runtime.close()


@pytest.mark.parametrize("waits", ["tail", "tail of no log", "reader", "lost", "watch_logs", "holders"])
def test_who_waits_is_told_when_the_level_was_raised_while_its_client_was_away(
    data: Path, settings: embedbk.Settings, waits: str
) -> None:
    """METADATA.md, 8: its session is gone, and it gets no other. What it followed shows nothing any more: a tail that
    stood at the end of its ledger never heard of the next one, and waited without a word for ever."""
    brief = replace(settings, session_ttl_ms=1000)
    with ExitStack() as stack:
        listen = "tcp://127.0.0.1:0"
        newer = stack.enter_context(embedbk.open(data, bookies=3, listen=listen, settings=settings))
        writer = stack.enter_context(newer.log("orders").writer())
        writer.append(b"one")
        begun = opened(newer, brief, LEVEL)
        run_blocking(begun.ready(), "ready")
        older = stack.enter_context(embedbk.Client(begun))
        runtime, waiting, may_go_on = begun.runtime, threading.Event(), threading.Event()
        stack.callback(may_go_on.set)
        told: list[embedbk.EmbedbkError] = []
        thread = threading.Thread(target=lambda: wait(older, waits, waiting, told))
        if waits == "lost":
            writer.close()
        thread.start()
        assert waiting.wait(settings.open_timeout_s)
        epoch = older.lock("away").acquire()
        runtime.node.metadata.client.level = LEVEL_FIRST
        runtime.call(may_go_on.wait)  # It hears nothing, and says nothing, until its session is over.
        assert newer.lock("away").acquire() > epoch
        may_go_on.set()
        thread.join()
        assert len(told) == 1
        assert isinstance(told[0], embedbk.MetadataUnavailable)
        assert "knows levels 1 to 1, and the cluster's level is" in str(told[0])


def wait(
    older: embedbk.Client, what: str, waiting: threading.Event, told: list[embedbk.EmbedbkError]
) -> None:
    """Wait until something comes, which nothing does."""
    try:
        if what == "lost":
            with older.log("orders").writer() as writer:
                waiting.set()
                writer.lost()
        elif what == "watch_logs":
            for _ in older.watch_logs():
                waiting.set()
        elif what == "holders":
            for _ in older.lock("nobody").holders():
                waiting.set()
        elif what == "reader":
            with older.log("orders").reader("earliest") as reader:
                while reader.read_bulk(wait_s=FOREVER_S):
                    waiting.set()
        elif what == "tail":
            for _ in older.log("orders").tail(0):
                waiting.set()
        else:
            waiting.set()
            for _ in older.log("nothing").tail(0):
                pass
    except embedbk.EmbedbkError as error:
        told.append(error)
