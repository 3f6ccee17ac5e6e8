"""How this client shows that it lives, and that it writes its ledgers (P8.5, P11.2).

Decides under which key: one of its session, made with the first log or ledger that it writes, valid for all of them,
and made again when its session was lost, tried until it is. While the key is absent others take its logs over to splice
into them, and recover its ledgers once that has lasted for the grace.
"""

from __future__ import annotations

import logging

from embedbk.client.runtime import Runtime
from embedbk.client.waiting import Moved
from embedbk.codec.living import LIVING_BYTES, living_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Put, Record
from embedbk.errors import EmbedbkError, MetadataUnavailable
from embedbk.host.metadata_link import WatchCallback
from embedbk.metadata.levels import LEVEL_OF_WRITERS

__all__ = ["living_name", "watch_on", "writer_name"]

logger = logging.getLogger("embedbk.client.log")

_AGAIN_S = 1.0  # From a failure to say it to the next try.


async def living_name(runtime: Runtime) -> str:
    """Its name in `living_path`; empty where the metadata cannot be told."""
    if runtime.living_as is None:
        name = runtime.chance.getrandbits(8 * LIVING_BYTES).to_bytes(LIVING_BYTES, "little").hex()
        try:
            await _say(runtime, name)
        except MetadataUnavailable:
            return ""
        if runtime.living_as is None:
            runtime.living_as = name
            runtime.call_if_open(lambda: _listen(runtime, name))
    return runtime.living_as


async def writer_name(runtime: Runtime) -> str:
    """How a ledger that it makes names it, so that others can tell whether its writer is gone. Empty below the level of
    that: then nobody can tell (P10.8)."""
    return await living_name(runtime) if runtime.has_level(LEVEL_OF_WRITERS) else ""


async def _say(runtime: Runtime, name: str) -> None:
    put = Put(living_path(name), runtime.owner().encode(), is_ephemeral=True)
    await runtime.transact([Compare(put.key, ABSENT)], [put], "saying that this client lives")


async def _say_again(runtime: Runtime, name: str) -> None:
    """Its session was lost, and its logs and ledgers may be its own still."""
    while not runtime.is_closed and not runtime.is_ended:
        try:
            await _say(runtime, name)
            break
        except EmbedbkError as failed:
            if not runtime.is_closed:
                logger.info("that this client lives is not said again yet: %s", failed)
        await Moved(runtime.signal, lambda: runtime.is_ended, _AGAIN_S)


def _listen(runtime: Runtime, name: str) -> None:
    """On the host's thread."""
    key = living_path(name)

    def lives(records: list[Record], revision: int, is_first: bool) -> None:
        own = [record.value for record in records if record.key == key]
        if (is_first or own) and not any(value is not None for value in own):
            runtime.behind(_say_again(runtime, name))

    watch_on(runtime, key, lives)


def watch_on(runtime: Runtime, prefix: str, changed: WatchCallback) -> None:
    """Watch this for as long as the client is there. Where it may follow no further key it is asked for again, as some
    will not be followed any more. On the host's thread."""

    def refused(reason: str) -> None:
        runtime.behind(_watch_later(runtime, prefix, changed))

    runtime.node.metadata.watch(runtime.now_ns(), prefix, changed, refused)


async def _watch_later(runtime: Runtime, prefix: str, changed: WatchCallback) -> None:
    if not await Moved(runtime.signal, lambda: runtime.is_ended, _AGAIN_S):
        runtime.call_if_open(lambda: watch_on(runtime, prefix, changed))
