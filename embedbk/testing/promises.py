"""The plainest promises, checked beside every run: what was sent, acknowledged and read, as applications received it.

Carries I2 I3 (as reported to applications) I5 I7 I9 (of what readers get) I10 I37 I39. Deeper checks look inside the
nodes: invariants.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.host.writing import Writing
from embedbk.testing.observer import Observer
from embedbk.testing.violation import Violation

__all__ = ["Promises"]


class Promises(Observer):
    """The knowledge of applications, and whether it is consistent."""

    def __init__(self) -> None:
        self.sent: dict[int, dict[int, bytes]] = {}  # Ledger -> entry -> payload.
        self.acked: dict[int, int] = {}  # Ledger -> highest entry acknowledged to its application.
        self.deleted: set[str] = set()  # Keys that were removed, and are not back. Asked, not walked.
        self.brought_back: set[str] = (
            set()
        )  # Keys that were removed, and put again (P8.15). Asked, not walked.
        self.ends: dict[int, tuple[int, int]] = {}  # Ledger -> (last entry, length) as it was closed.

    def on_metadata(self, revision: int, key: str, old: bytes | None, new: bytes | None) -> None:
        if new is None:
            self.deleted.add(key)
        elif key in self.deleted:
            self.deleted.discard(key)
            self.brought_back.add(key)

    def on_sent(self, client: str, writing: Writing, ledger_id: int, entry_id: int, payload: bytes) -> None:
        held = self.sent.setdefault(ledger_id, {})
        if entry_id in held:
            raise Violation("I7", f"two entries {entry_id} of ledger {ledger_id}")
        held[entry_id] = payload

    def on_acked(self, client: str, writing: Writing, ledger_id: int, lac: int) -> None:
        if lac <= self.acked.get(ledger_id, -1):
            raise Violation("I13", f"ledger {ledger_id}: acknowledgements go back to {lac}")
        if lac not in self.sent.get(ledger_id, {}):
            raise Violation("I13", f"entry {lac} of ledger {ledger_id} is acknowledged and was never sent")
        self.acked[ledger_id] = lac
        end = self.ends.get(ledger_id)
        if end is not None and lac > end[0]:
            raise Violation(
                "I3", f"entry {lac} of ledger {ledger_id} is acknowledged beyond its end {end[0]}"
            )

    def on_recovered(
        self, client: str, ledger_id: int, metadata: LedgerMetadata | None, error: Exception | None
    ) -> None:
        if metadata is None:
            return
        assert metadata.last_entry is not None and metadata.length is not None
        end = (metadata.last_entry, metadata.length)
        known = self.ends.setdefault(ledger_id, end)
        if known != end:
            raise Violation("I2", f"ledger {ledger_id} has two ends: {known} and {end}")
        acked = self.acked.get(ledger_id, -1)
        if end[0] < acked:
            raise Violation("I3", f"ledger {ledger_id} ends at {end[0]}, and {acked} was acknowledged")
        held = self.sent.get(ledger_id, {})
        if end[0] >= len(held):
            raise Violation("I7", f"ledger {ledger_id} ends at {end[0]}; only {len(held)} entries were sent")
        length = sum(len(held[entry_id]) for entry_id in range(end[0] + 1))
        if end[1] != length:
            raise Violation("I37", f"ledger {ledger_id} has length {end[1]}, its entries have {length}")

    def on_read(
        self, client: str, ledger_id: int, entries: Sequence[tuple[int, bytes]], is_unconfirmed: bool
    ) -> None:
        held = self.sent.get(ledger_id, {})
        end = self.ends.get(ledger_id)
        for entry_id, payload in entries:
            if held.get(entry_id) != payload:
                raise Violation("I7", f"entry {entry_id} of ledger {ledger_id} has other bytes for {client}")
            # A reader beyond the LAC that does not know of the close may get entries that the close leaves out (P6.3).
            if end is not None and entry_id > end[0] and not is_unconfirmed:
                raise Violation("I38", f"entry {entry_id} of ledger {ledger_id} is beyond its end {end[0]}")
