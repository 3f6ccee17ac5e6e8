"""Asks all bookies for their entry logs, and for the ledgers that keep one of them. Reads alone, for views and reports.

A bookie that does not tell is named with the reason: what is missing is no bookie without entry logs.
"""

from __future__ import annotations

from typing import NamedTuple

from embedbk.client.bookie_states import bookie_states
from embedbk.client.runtime import Runtime
from embedbk.codec.entry_log_messages import EntryLogRow, LogKeeperRow
from embedbk.core.entry_logs_query import EntryLogsQuery, LogKeepersQuery
from embedbk.errors import NotEnoughBookies
from embedbk.ids import Member

__all__ = ["BookieLogs", "entry_logs", "log_keepers"]


class BookieLogs(NamedTuple):
    """The entry logs of one bookie, by ascending id. why: it does not tell them; empty: it did. member: None where it
    is away."""

    bookie_id: str
    member: Member | None
    logs: tuple[EntryLogRow, ...] = ()
    why: str = ""


async def entry_logs(runtime: Runtime) -> list[BookieLogs]:
    """Of each bookie that the cluster ever had."""
    found: list[BookieLogs] = []
    members = {info.member.bookie_id: info.member for info in runtime.bookies}
    for each in await bookie_states(runtime):
        member = members.get(each.bookie_id)
        if member is None:
            found.append(BookieLogs(each.bookie_id, None, why="it is away"))
            continue
        try:
            logs: tuple[EntryLogRow, ...] = await runtime.run(EntryLogsQuery(member), "asking for entry logs")
        except NotEnoughBookies as untold:
            found.append(BookieLogs(each.bookie_id, member, why=str(untold.args[0])))
        else:
            found.append(BookieLogs(each.bookie_id, member, logs))
    return found


async def log_keepers(runtime: Runtime, member: Member, log_id: int) -> tuple[LogKeeperRow, ...]:
    """Ledgers that keep this entry log, by ascending id; none where it went meanwhile.

    Raises:
        NotEnoughBookies: the bookie does not tell.
    """
    told: tuple[LogKeeperRow, ...] = await runtime.run(
        LogKeepersQuery(member, log_id), "asking for what keeps an entry log"
    )
    return told
