"""What the row of a ledger lets a bookie say and take (P3.4a, P7.3, P7.4).

Pure functions of the row's flags: they change nothing, and ask nothing else.
"""

from __future__ import annotations

from embedbk.codec.bookie_fields import Status
from embedbk.core.ledger_table import AnyLedgerRow

__all__ = ["knows_all", "refusal_of"]


def knows_all(row: AnyLedgerRow) -> bool:
    """Whether nothing of the ledger may have been lost here. Else no entry is absent for certain (P7.4)."""
    return not row.in_limbo and not row.is_dropped


def refusal_of(row: AnyLedgerRow) -> Status | None:
    """Why no normal add of this ledger is taken, be the entry held already or not (P3.4a).

    Limbo comes first: it is fenced as well, but for the writer it is an ordinary failure of one bookie (P7.4).
    """
    if row.in_limbo and not row.is_dropped:
        return Status.IN_LIMBO
    return Status.FENCED if row.is_fenced or row.is_dropped else None
