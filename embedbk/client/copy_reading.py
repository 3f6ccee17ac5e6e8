"""One bookie's copy of a ledger, for people (P7.1): which entries it has, which it lacks, which it cannot tell.

Decides how far one question asks. Nothing is fenced, and no other bookie is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from embedbk.client.client import Client
from embedbk.client.ledger_ids import check_ledger_id, no_such_ledger
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.core.copy_read import CopyPart, CopyRead
from embedbk.errors import UsageError
from embedbk.ids import Member

__all__ = ["ASKED_ENTRIES", "read_copy"]

ASKED_ENTRIES = 4096  # Entries per question.


def read_copy(
    client: Client, ledger_id: int, bookie_id: str, password: Password, first: int, last: int
) -> Iterator[CopyPart]:
    """What the bookie has of the entries first..last, in runs that follow each other.

    Raises:
        UsageError: there is no such bookie now, or no entry of such an id. NoSuchLedger, WrongPassword: as opening the
            ledger does.
        NotEnoughBookies: it does not answer.
    """
    runtime = client._runtime
    if first < 0:  # The bookie would get it otherwise, and end the link.
        raise UsageError(f"entries {first}..{last} were asked for: the first entry of a ledger is 0")
    metadata, member = run_blocking(_copy_of(runtime, ledger_id, bookie_id, password), "embedbk ledger read")
    while first <= last:
        until = min(last, first + ASKED_ENTRIES - 1)
        core = CopyRead(metadata, member, first, until, password.mac_key)
        part: CopyPart = run_blocking(runtime.run(core, f"reading from {bookie_id}"), "embedbk ledger read")
        yield part
        first = part.next_entry


async def _copy_of(
    runtime: Runtime, ledger_id: int, bookie_id: str, password: Password
) -> tuple[LedgerMetadata, Member]:
    check_ledger_id(ledger_id)
    value, _ = await runtime.get(ledger_key_path(ledger_id), f"reading ledger {ledger_id}")
    if value is None:
        raise no_such_ledger(ledger_id)
    metadata = decode_ledger_metadata(value, ledger_id)
    password.check(metadata)
    known = {info.member.bookie_id: info.member for info in runtime.bookies}
    if bookie_id not in known:
        raise UsageError(
            f"--bookie {bookie_id}: no bookie of that name is there now; there are {', '.join(sorted(known))}",
            hint="embedbk bookie list",
        )
    return metadata, known[bookie_id]
