"""Records that are made durable in order: what a bookie and a metadata member write first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

__all__ = ["Journal"]

Buffer = bytes | bytearray | memoryview


class Journal(Protocol):
    """An append-only sequence of records made durable by group commit. Tokens rise by one per record, for ever."""

    def next_token(self) -> int:
        """The token that the next append will get; token 1 is the first of an empty journal."""
        ...

    def append(
        self, kind: int, ledger_id: int, body: Buffer, *, borrowed: bool = False, kick: bool = True
    ) -> int:
        """Queue one record; returns its token. borrowed: body stays unchanged and alive until the token is durable.
        kick: wake the journal's thread; else call `kick()` soon.

        Raises StorageError when the journal has failed (it never works again) or is closed.
        """
        ...

    def kick(self) -> None:
        """Wake the journal's thread for what was appended with kick=False. Raises StorageError: it is closed."""
        ...

    def durable(self) -> int:
        """Every record up to this token is on the device. Never falls. Clears the descriptor's readiness."""
        ...

    def wait(self, token: int) -> None:
        """Block until the token is durable; at a start or a stop only. Raises StorageError: it will not be."""
        ...

    def queued_bytes(self) -> int:
        """Bytes queued and not yet durable, for back pressure."""
        ...

    def failed(self) -> str | None:
        """Why the journal stopped for good, or None (P7.6)."""
        ...

    def is_next_refused(self) -> bool:
        """Whether there is no room for what is queued, or for the next file."""
        ...

    def fileno(self) -> int: ...

    def replay(self, after: int) -> Iterator[tuple[int, int, int, memoryview]]:
        """(token, kind, ledger_id, body) of the records above `after`, in order, before the first append."""
        ...

    def trim(self, token: int) -> None:
        """Records up to token are in entry logs and index, synced (P7.5): their space may be used again."""
        ...

    def close(self) -> None: ...
