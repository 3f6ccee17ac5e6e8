"""Whether a cluster has more members or bookies than it uses, and the words that offer them. Pure.

A cluster that grew and whose settings stayed keeps fewer copies than it could, and its operator may not notice: so the
status reports it. Leaves to others whom to report it to, and when (`cli/quorum.py`, `client/embedded.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerState,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.registration import BOOKIES_PREFIX
from embedbk.config import quorum_for
from embedbk.errors import StorageError
from embedbk.metadata.catalog import Catalog

__all__ = ["NEWEST_LEDGERS", "Growth", "growth_of", "offers"]

NEWEST_LEDGERS = 200  # A question about a cluster's status must not slow down its other clients.
BOOKIES_COUNTED = 1000


class Growth(NamedTuple):
    """bookies: registered. fewer: of the newest ledgers, those that are open and keep fewer copies than a new one with
    default settings would."""

    bookies: int = 0
    fewer: int = 0


def growth_of(catalog: Catalog) -> Growth:
    bookies = len(catalog.page(BOOKIES_PREFIX, "", BOOKIES_COUNTED).records)
    copies = quorum_for(bookies).write_quorum
    after = ledger_key_path(max(0, catalog.next_id - NEWEST_LEDGERS - 1))
    fewer = 0
    for record in catalog.page(LEDGERS_PREFIX, after, NEWEST_LEDGERS).records:
        ledger_id = ledger_of_key(record.key)
        if ledger_id is None:
            continue  # Anybody may put a key there.
        try:
            metadata = decode_ledger_metadata(record.value or b"", ledger_id)
        except StorageError:
            continue  # A later build wrote it: its readers report it.
        fewer += metadata.state == LedgerState.OPEN and metadata.quorum.write_quorum < copies
    return Growth(bookies, fewer)


def offers(learners: Sequence[str], growth: Growth) -> list[str]:
    """Unused members and bookies, each with the command that uses them; empty: none. learners: members without a
    vote."""
    said = []
    if learners:
        names, verb = ", ".join(learners), "learns and has" if len(learners) == 1 else "learn and have"
        said.append(f"{names} {verb} no vote: embedbk quorum join lets all of them vote")
    if growth.fewer:
        copies = quorum_for(growth.bookies).write_quorum
        said.append(
            f"{growth.bookies} bookies are there, and {growth.fewer} of the newest open ledgers keep fewer than "
            f"{copies} copies: writer.renew() goes over to one of as many, and so does whoever opens the log next"
        )
    return said
