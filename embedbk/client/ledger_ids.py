"""Ledgers by their ids: which there are, what the metadata says of one, and what is said of one that is not there."""

from __future__ import annotations

from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.errors import NoSuchLedger, UsageError
from embedbk.ids import LEDGER_ID_MAX

__all__ = ["check_ledger_id", "ledger_ids", "metadata_of", "no_such_ledger"]


def check_ledger_id(ledger_id: int) -> None:
    if not isinstance(ledger_id, int) or isinstance(ledger_id, bool) or not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise UsageError(f"ledger id {ledger_id!r} is not allowed: a whole number of 0 to {LEDGER_ID_MAX}")


def no_such_ledger(ledger_id: int) -> NoSuchLedger:
    return NoSuchLedger(f"there is no ledger {ledger_id}", hint="bk.ledgers() lists those that exist")


async def metadata_of(runtime: Runtime, ledger_id: int) -> LedgerMetadata:
    """The metadata of a ledger, read just now; no bookie is asked (CL33)."""
    check_ledger_id(ledger_id)
    value, _ = await runtime.get(ledger_key_path(ledger_id), f"reading the metadata of ledger {ledger_id}")
    if value is None:
        raise no_such_ledger(ledger_id)
    return decode_ledger_metadata(value, ledger_id)


async def ledger_ids(runtime: Runtime) -> list[int]:
    records = await runtime.list_keys(LEDGERS_PREFIX, "listing the ledgers")
    found = (ledger_of_key(record.key) for record in records)  # Every client may put other keys there.
    return [ledger_id for ledger_id in found if ledger_id is not None]
