"""Whether a bookie that is not registered answers all the same, at the addresses that its cookie names (P11.5)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from embedbk.client.runtime import Runtime
from embedbk.core.presence_query import PresenceQuery
from embedbk.ids import Member

__all__ = ["answers"]


async def answers(runtime: Runtime, member: Member, endpoints: Sequence[str]) -> bool:
    """False where it does not within 2 s, and where nobody knows an address of it: a build before named none."""
    if not endpoints:
        return False
    links = runtime.node.links
    runtime.call(partial(links.hear_of, member, tuple(endpoints)))
    try:
        is_there: bool = await runtime.run(PresenceQuery(member), f"asking whether {member} answers")
    finally:
        runtime.call_if_open(partial(links.forget, member))
    return is_there
