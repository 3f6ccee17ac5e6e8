"""Where the cluster keeps that a ledger is being repaired (P7.7, P11): one key per ledger.

While the key is there, some bookie may be getting copies that no fragment names yet.
"""

from __future__ import annotations

__all__ = ["REPAIR_PREFIX", "repair_mark_path"]

REPAIR_PREFIX = "/ur/"


def repair_mark_path(ledger_id: int) -> str:
    return f"{REPAIR_PREFIX}{ledger_id:016x}"
