"""Builds before and behind the cluster's level (P10.8): who is told what, and what the one before can read."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import embedbk
from embedbk.client.embedded import Opened, _client, _client_identity
from embedbk.client.waiting import run_blocking
from embedbk.codec.metadata_messages import AllocIds
from embedbk.host.client_node import ClientNode
from embedbk.host.loop import Loop, clock_ns
from embedbk.host.metadata_node import MetadataNode
from embedbk.metadata.levels import LEVEL, LEVEL_FIRST, LEVEL_OF_RUN_DIGESTS
from embedbk.metadata.limits import Limits
from embedbk.ports.links import Identity
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MemberIdentity
from embedbk.transports import open_transport

FOREVER_S = 3600.0  # More than a test may take: the error comes at once.


def run_by_a_build(
    directory: Path, level: int, settings: embedbk.Settings, new: MemberIdentity | None = None
) -> None:
    """A build that knows levels up to this one runs the cluster's only member until the cluster has that level, as one
    that has no ledger yet begins it. Then it gives an id out, so that none begins another level."""
    limits = Limits(level_known=level)
    store = open_metadata_store(directory, file_bytes=4 << 20, limits=limits, new_identity=new)
    own = store.boot
    token = store.identity.cluster_token
    identity = Identity("metadata", own.member.name, own.member.incarnation, token, own.nonce, level)
    node = MetadataNode(store, open_transport("local://*", identity), ["local://*"], now_ns=clock_ns())
    loop = Loop()
    loop.add(node)
    while node.core.catalog.level < level:
        loop.turn()
    loop.start()
    with ExitStack() as stack:
        stack.callback(loop.stop)
        client = opened(node.endpoints[0], settings, level)
        stack.callback(client.runtime.close)
        run_blocking(client.ready(), "ready")
        run_blocking(client.runtime.ask(AllocIds(1), "an id"), "ask")


def test_a_directory_of_a_later_level_is_refused_at_once(data: Path, settings: embedbk.Settings) -> None:
    """METADATA.md, 8: "a member refuses its own log"; whoever waits for its cluster need not wait any longer."""
    embedbk.open(data, bookies=1, settings=settings).close()
    run_by_a_build(data / "metadata", LEVEL + 1, settings)
    patient = replace(settings, open_timeout_s=FOREVER_S)
    with pytest.raises(embedbk.StorageError, match=f"raised to {LEVEL + 1}; this embedbk knows levels 1 to"):
        embedbk.open(data, settings=patient)


def opened(endpoint: str, settings: embedbk.Settings, level: int) -> Opened:
    """A client that knows this level."""

    def know(node: ClientNode) -> None:
        node.metadata.client.level = level

    transport = open_transport(endpoint, _client_identity(b""))
    return Opened(_client(transport, [endpoint], settings, b"", Loop("older"), "it", know), {}, "it")


def endpoint_of(client: embedbk.Client) -> str:
    assert client.url is not None
    return client.url.replace("embedbk", "tcp")


def test_a_client_that_is_too_old_is_told_so_at_once(data: Path, settings: embedbk.Settings) -> None:
    """METADATA.md, 8: "a session (LACKING; its client ends)": nobody tells it to look whether a member runs."""
    patient = replace(settings, open_timeout_s=FOREVER_S)
    with embedbk.open(data, bookies=1, listen="tcp://127.0.0.1:0", settings=settings) as newer:
        older = opened(endpoint_of(newer), patient, LEVEL_FIRST)
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
        begun = opened(endpoint_of(newer), brief, LEVEL)
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


@pytest.mark.parametrize("level", [LEVEL_OF_RUN_DIGESTS - 1, LEVEL_OF_RUN_DIGESTS])
def test_entry_logs_are_what_builds_read_that_may_come_back(
    data: Path, settings: embedbk.Settings, level: int
) -> None:
    """P10.8: "Until it is raised the build before can come back", with what this one has flushed beneath it."""
    data.mkdir()
    run_by_a_build(data / "metadata", level, settings, MemberIdentity(os.urandom(16), os.urandom(16)))
    for number in (1, 2):
        with embedbk.open(data, bookies=1, settings=settings) as bk, bk.log("orders").writer() as writer:
            writer.append(b"%d" % number)
        newest = max((data / "b1" / "entries").glob("*.elog"))
        assert newest.read_bytes()[4] == (3 if level < LEVEL_OF_RUN_DIGESTS else 4)
