"""A journal in plain memory (`ports.Journal`), for the simulator: what becomes durable, and when, is its caller's.

Decides nothing. Records are pending until `commit()`; `crash()` gives what a power cut leaves, from which the next
journal is built. Deterministic and plain data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from embedbk.errors import StorageError
from embedbk.ports.journal import Buffer

__all__ = ["MemoryJournal", "MemoryRecord"]


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    token: int
    kind: int
    ledger_id: int
    body: bytes


class MemoryJournal:
    """One device of one member. survivors: what `crash()` of the journal before it gave."""

    def __init__(self, survivors: Sequence[MemoryRecord] = ()) -> None:
        self.records = list(survivors)  # On the device, above what was trimmed.
        self.pending: list[MemoryRecord] = []  # Queued; a crash forgets them.
        self._durable = self.records[-1].token if self.records else 0
        self._next_token = self._durable + 1
        self._failure: str | None = None

    # --- What the host of a simulation does --------------------------------------------------------------

    def commit(self, count: int | None = None) -> int:
        """Make the next `count` pending records durable, all when None; returns how many that were."""
        if self._failure is not None:
            return 0
        done = self.pending[:count] if count is not None else self.pending
        self.records.extend(done)
        self.pending = self.pending[len(done) :]
        if done:
            self._durable = done[-1].token
        return len(done)

    def crash(self) -> tuple[MemoryRecord, ...]:
        """Lose power: what is on the device."""
        self._failure = "the power is off"
        return tuple(self.records)

    def fail(self, reason: str) -> None:
        """The next sync fails, and with it everything after (P7.6)."""
        self._failure = reason

    def first_token(self) -> int:
        """The oldest record still there, or the one that will be."""
        return self.records[0].token if self.records else self._next_token

    # --- The port ----------------------------------------------------------------------------------------

    def next_token(self) -> int:
        return self._next_token

    def append(
        self, kind: int, ledger_id: int, body: Buffer, *, borrowed: bool = False, kick: bool = True
    ) -> int:
        if self._failure is not None:
            raise StorageError(f"the journal stopped: {self._failure}")
        self.pending.append(MemoryRecord(self._next_token, kind, ledger_id, bytes(body)))
        self._next_token += 1
        return self._next_token - 1

    def kick(self) -> None:
        """Nothing to do: `commit` is called by hand."""

    def durable(self) -> int:
        return self._durable

    def wait(self, token: int) -> None:
        self.commit()
        if self._durable < token:
            raise StorageError(f"the journal stopped: {self._failure}")

    def is_next_refused(self) -> bool:
        return False

    def queued_bytes(self) -> int:
        return sum(len(record.body) for record in self.pending)

    def failed(self) -> str | None:
        return self._failure

    def fileno(self) -> int:
        return -1

    def replay(self, after: int) -> Iterator[tuple[int, int, int, memoryview]]:
        if self.records and after + 1 < self.records[0].token:
            raise StorageError(
                f"records from {after + 1} on were asked for, {self.records[0].token} is the first"
            )
        for record in self.records:
            if record.token > after:
                yield record.token, record.kind, record.ledger_id, memoryview(record.body)

    def trim(self, token: int) -> None:
        self.records = [record for record in self.records if record.token > token]

    def close(self) -> None:
        self.commit()
