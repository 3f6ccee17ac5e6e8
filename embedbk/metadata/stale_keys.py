"""Which transactions may change the key of a ledger that a lost future may have changed (P10.5).

After metadata was brought back from a copy, every ledger in it may have changed since the copy: another ensemble wrote
its later entries, a recovery closed it, repair moved its copies. Decides which transactions such a **stale** key
refuses. Leaves to others: which keys are stale (catalog.py), and the adoption, which asks all bookies
(core/adopting.py).

A recovery asks the ensemble that the key names. If that is an older one, none of its bookies has the entries of the
later one, and all of them answer "no": the ledger would end before acknowledged entries. So only an adoption closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embedbk.codec.id_ranges import is_within
from embedbk.codec.ledger_metadata import LedgerState, decode_ledger_metadata, ledger_of_key
from embedbk.codec.metadata_messages import Put, Record, Refusal, Txn
from embedbk.errors import StorageError

__all__ = ["why_refused"]


def why_refused(
    stale: Sequence[tuple[int, int]], asked: Txn, record_of: Callable[[str], Record | None]
) -> Refusal | None:
    """None: the change is allowed. A value that cannot be read (P2.5) has no state, so no transition is refused."""
    for change in asked.then:
        if not isinstance(change, Put):
            continue
        ledger_id = ledger_of_key(change.key)
        if ledger_id is None or not is_within(stale, ledger_id):
            continue
        before, after = _state_of(record_of(change.key), ledger_id), _state(change.value, ledger_id)
        if before in (LedgerState.OPEN, LedgerState.IN_RECOVERY) and after != before:
            return Refusal(
                "UNAVAILABLE",
                f"ledger {ledger_id} was {LedgerState(before).name} in the copy that the metadata was brought back "
                f"from, and who has its later entries is not known: embedbk ledger adopt {ledger_id} asks all bookies",
            )
    return None


def _state_of(record: Record | None, ledger_id: int) -> int | None:
    return None if record is None or record.value is None else _state(record.value, ledger_id)


def _state(value: bytes, ledger_id: int) -> int | None:
    try:
        return decode_ledger_metadata(value, ledger_id).state
    except StorageError:
        return None
