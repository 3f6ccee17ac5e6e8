"""What the cluster's bookies are doing, as far as a client can tell: which take new entries, which do not and why,
which are drained, which are away.

Decides nothing: a watch follows the registrations, and the metadata is asked which bookies belong to the cluster.
"""

from __future__ import annotations

from typing import NamedTuple

from embedbk.client.runtime import Runtime
from embedbk.codec.registration import COOKIES_PREFIX
from embedbk.errors import MetadataUnavailable

__all__ = ["AWAY", "DRAINING", "READ_ONLY", "WRITABLE", "BookieState", "bookie_states"]

WRITABLE = "writable"
READ_ONLY = "read-only"  # It serves reads and recoveries, and takes no new entries (P7.8).
DRAINING = "draining"  # It takes no new ledgers, and what it has moves to others (P11.3).
AWAY = "away"  # The cluster knows it, and it is not registered.


class BookieState(NamedTuple):
    """One bookie of the cluster. Only the id is known of a bookie that is away."""

    bookie_id: str
    state: str  # "writable", "read-only", "draining" or "away".
    why: str  # Why it is read-only, or who drains it and why; empty for the others.
    endpoints: tuple[str, ...]
    location: str  # "zone/rack", or nothing.
    free_bytes: int  # As it told last: within 10 s of a change by a twentieth.
    # Entry logs that may hold entries which it cannot find, as damage took their indexes. While there are any, it can
    # say of no entry that it does not have it. Where it looked through them in vain, drain the bookie, and let another
    # one, or empty directories, take its place.
    dark_logs: int = 0


async def bookie_states(runtime: Runtime) -> list[BookieState]:
    """All bookies that the cluster ever had, in the order of their ids.

    While the metadata does not answer: the bookies known before.
    """
    runtime.check()
    try:
        cookies = await runtime.list_keys(COOKIES_PREFIX, "the bookies of the cluster")
        runtime.bookies_known = tuple(cookie.key.removeprefix(COOKIES_PREFIX) for cookie in cookies)
    except MetadataUnavailable:
        runtime.check()  # Raises if the client was closed or has failed.
    registrations = dict(runtime.node.listed.registrations)
    found: list[BookieState] = []
    for bookie_id in sorted({*runtime.bookies_known, *registrations}):
        there = registrations.get(bookie_id)
        if there is None:
            found.append(BookieState(bookie_id, AWAY, "", (), "", 0))
            continue
        state = WRITABLE if there.is_writable else DRAINING if there.is_leaving else READ_ONLY
        endpoints = tuple(there.endpoints)
        found.append(
            BookieState(
                bookie_id, state, there.why, endpoints, there.location, there.free_bytes, there.dark_logs
            )
        )
    return found
