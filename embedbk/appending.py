"""What every writing handle does, whichever face shows it: append, wait for the LAC, close, release (P3, P5.1).

A ticket is light: acknowledgements come in entry order (P3.3), so the handle's LAC answers every ticket and none keeps
a future. Nothing here decides when something is acknowledged; `core.writer` does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, NoReturn

from embedbk.codec.ledger_metadata import Durability
from embedbk.codec.packer import Packer
from embedbk.codec.packer_twin import Buffer
from embedbk.core.writer import Writer
from embedbk.errors import EmbedbkError, LedgerClosed, OperationTimeout, UsageError
from embedbk.host.operations import Writing
from embedbk.ids import NO_ENTRY, Position
from embedbk.runtime import Runtime, refuse_pickling
from embedbk.waiting import Moved, Outcome, run_async, run_blocking

__all__ = ["Appended", "Appending", "Ticket"]

_ROOM_POLL_S = (
    0.01  # Freed blocks are noticed at the latest after this: a socket's thread may free the last one.
)


class Appended(NamedTuple):
    """The entries first_entry..last_entry of one ledger, both included: what one call appended."""

    ledger_id: int
    first_entry: int
    last_entry: int

    @property
    def entry_count(self) -> int:
        return self.last_entry - self.first_entry + 1

    @property
    def first(self) -> Position:
        return Position(self.ledger_id, self.first_entry)

    @property
    def last(self) -> Position:
        return Position(self.ledger_id, self.last_entry)


class Ticket:
    """An entry on its way. `result()` blocks until it is acknowledged; under asyncio, await the ticket."""

    __slots__ = ("_appending", "entry_id")

    def __init__(self, appending: Appending, entry_id: int) -> None:
        self._appending = appending
        self.entry_id = entry_id

    @property
    def position(self) -> Position:
        """Where the entry stands if it survives; given before it is acknowledged."""
        return Position(self._appending.ledger_id, self.entry_id)

    def done(self) -> bool:
        """Whether `result()` would answer at once."""
        return self._appending.writing.is_settled(self.entry_id)

    @property
    def durability(self) -> str | None:
        """ "synced" on the disks of the ack quorum; "received" in its memory only (P3.2); None: not acknowledged."""
        writing = self._appending.writing
        if writing.lac >= self.entry_id:
            return "synced"
        return "received" if writing.received >= self.entry_id else None

    def result(self, timeout_s: float | None = None) -> Position:
        """The position, once the entry is acknowledged: durable on its ack quorum, unless sync is deferred.

        Raises:
            LedgerFenced, LedgerClosed, NotEnoughBookies: the handle failed; the entry may or may not survive (P3.6).
            OperationTimeout: timeout_s passed; the entry is still on its way.
        """
        run_blocking(self._appending.acknowledged(self.entry_id, timeout_s), "the ticket itself")
        return self.position

    def __await__(self) -> Generator[Any, None, Position]:
        yield from run_async(self._appending.acknowledged(self.entry_id)).__await__()
        return self.position

    def __reduce__(self) -> Any:
        refuse_pickling("a ticket", "send its position")

    def __repr__(self) -> str:
        return f"Ticket({self.position.ledger_id}, {self.entry_id}, {'settled' if self.done() else 'on its way'})"


class Appending:
    """The creator's handle of one ledger: the logic under `LedgerWriter`, `LogWriter` and their aio twins."""

    def __init__(
        self,
        runtime: Runtime,
        core: Writer,
        what: str,
        explain: Callable[[EmbedbkError], EmbedbkError] = lambda error: error,
    ) -> None:
        """what: how messages name the handle, as "the writer of log 'orders'". explain: as `Writing` takes it."""
        self.runtime = runtime
        self.what = what
        self.ledger_id = core.ledger_id
        self._durability = Durability(core.metadata.durability).name.lower()
        self.writing = Writing(core, Packer(core.ledger_id), runtime.node.wake_writing, explain)
        self.is_over = False  # Closed or released by its owner.
        runtime.start(self.writing)

    @property
    def lac(self) -> int:
        return self.writing.lac

    @property
    def durability(self) -> str:
        """What an append waits for: "synced" or "deferred" (P3.2)."""
        return self._durability

    # Appending. Payloads are copied before a call returns.

    def try_append(self, data: Buffer) -> int:
        """Queue one entry: its id, or NO_ENTRY when so much is in flight that the caller must wait for room.

        Raises:
            UsageError: not bytes, over the limit, or the handle was closed; nothing was queued.
            EmbedbkError: what ended the handle, definite, as nothing of this was sent.
        """
        if self.is_over or self.runtime.is_forked:
            self._refuse()
        return self.writing.try_append(data)

    async def queue(self, data: Buffer) -> int:
        """Queue one entry, waiting for room."""
        while (entry_id := self.try_append(data)) == NO_ENTRY:
            await self._room()
        return entry_id

    async def queue_many(self, items: Sequence[Buffer]) -> Appended:
        """Queue all items as consecutive entries, waiting for room; no object per entry is made.

        Items after a refused one, and the rest when the handle fails half-way, are not queued.
        """
        if self.is_over or self.runtime.is_forked:
            self._refuse()
        if isinstance(items, bytes | bytearray | memoryview | str):
            raise UsageError(
                f"append_many takes a list of payloads; this is one {type(items).__name__}",
                hint="append takes one",
            )
        items = items if isinstance(items, list | tuple) else list(items)
        first, done = self.writing.try_append_many(items)
        while done < len(items):
            await self._room()
            begin, taken = self.writing.try_append_many(items[done:])
            first = begin if done == 0 else first
            done += taken
        return Appended(self.ledger_id, first, first + done - 1)

    async def _room(self) -> None:
        packer, writing = self.writing.packer, self.writing
        before = packer.unreleased_bytes
        has_room = Moved(
            writing.signal,
            lambda: writing.error is not None or packer.unreleased_bytes < before,
            _ROOM_POLL_S,
        )
        await has_room

    async def acknowledged(
        self, entry_id: int, timeout_s: float | None = None, *, is_synced: bool = False
    ) -> None:
        """Until the entry is acknowledged, with is_synced by disks also where sync is deferred (P3.2); raises what
        became of it otherwise."""
        if self.runtime.is_forked:
            self.runtime.check()
        writing = self.writing
        if writing.lac >= entry_id:
            return
        is_so = writing.is_synced if is_synced else writing.is_settled
        if not await Moved(writing.signal, lambda: is_so(entry_id), timeout_s):
            raise OperationTimeout(
                f"{self.what}: entry {entry_id} was not acknowledged within {timeout_s:g} s; it may still be",
                hint="wait for it again, or read the ledger later to learn its fate",
            )
        writing.check_settled(entry_id, is_synced=is_synced)

    async def append(self, data: Buffer) -> Position:
        entry_id = await self.queue(data)
        await self.acknowledged(entry_id)
        return Position(self.ledger_id, entry_id)

    async def append_many(self, items: Sequence[Buffer]) -> Appended:
        appended = await self.queue_many(items)
        if appended.entry_count:
            await self.acknowledged(appended.last_entry)
        return appended

    async def flush(self, timeout_s: float | None = None) -> int:
        """Until everything queued before is acknowledged; gives the LAC."""
        last = self.writing.packer.last_entry
        if last != NO_ENTRY:
            await self.acknowledged(last, timeout_s)
        return self.lac

    async def force(self, timeout_s: float | None = None) -> int:
        """Until everything queued before is on the disks of its ack quorum; gives the LAC (P3.2)."""
        last = self.writing.packer.last_entry
        if last != NO_ENTRY:
            await self.acknowledged(last, timeout_s, is_synced=True)
        return self.lac

    # Ending.

    async def close(self) -> int:
        """Wait for what was queued, close the ledger behind it (P5.1); gives its last entry. Twice is allowed."""
        if self.is_over:
            return self.lac
        self.runtime.check()
        self.is_over = True
        self.writing.packer.stop()
        self.runtime.call(lambda: self.runtime.node.close_writing(self.runtime.now_ns(), self.writing))
        limit = self.runtime.settings.operation_timeout_s
        last: int = await Outcome(self.writing.closed, limit, f"closing {self.what}")
        return last

    def release(self) -> None:
        """Let go without touching cluster state: the next opener recovers the ledger. Twice is allowed."""
        if not self.is_over:
            self.is_over = True
            self.writing.packer.stop()
            self.runtime.call_if_open(self._release)

    def _release(self) -> None:
        self.runtime.node.release(self.writing)
        self.writing.fail(
            LedgerClosed(
                f"{self.what} was released; adds in flight may or may not survive",
                hint="open the ledger with recover=True, or take the log over, to learn what survived",
            )
        )

    def _refuse(self) -> NoReturn:
        self.runtime.check()
        raise UsageError(
            f"{self.what} was closed or released; nothing was appended", hint="open a new writer to append"
        )
