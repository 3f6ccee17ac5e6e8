"""One append as its caller sees it: what it asks for, its ticket, and what became of it (P3.6).

A ticket is light: acknowledgements come in entry order (P3.3), so the handle's LAC answers every ticket and none keeps
a future. An entry is followed from the handle that took it (`appending.py`) to those where it stands after a ledger
failed (P8.2). Decides when a caller hears that its entry is acknowledged, with which error it hears that it is not, and
what is known of its fate.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from embedbk.client.runtime import refuse_pickling
from embedbk.client.waiting import Moved, Passed, refuse_in_event_loop, run_async, run_blocking
from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_key_path
from embedbk.config import check_seconds
from embedbk.errors import AppendConflict, EmbedbkError, NoSuchLedger, OperationTimeout, UsageError
from embedbk.ids import NO_ENTRY, Position

if TYPE_CHECKING:
    from embedbk.client.appending import Appending

__all__ = [
    "PLAIN",
    "AppendTerms",
    "Fate",
    "Ticket",
    "acknowledged",
    "all_acknowledged",
    "raise_failed",
    "terms_of",
]


class Fate(enum.Enum):
    """Whether an append survived (P3.6)."""

    SURVIVED = "survived"  # It is in the ledger, for good.
    LOST = "lost"  # It is not, and never will be.
    UNKNOWN = "unknown"  # The ledger is not closed, so either may still happen.


class AppendTerms(NamedTuple):
    """The conditions and limits that a caller gives one append."""

    timeout_s: float | None = None
    entry_id: int | None = None
    after: Position | None = None
    producer: tuple[int, int] | None = None


PLAIN = AppendTerms()


def terms_of(
    timeout_s: float | None, entry_id: int | None, after: Position | None, producer: tuple[int, int] | None
) -> AppendTerms:
    """PLAIN where nothing was asked, which is the fast way."""
    if timeout_s is None and entry_id is None and after is None and producer is None:
        return PLAIN
    check_seconds(timeout_s, "timeout_s")
    return AppendTerms(timeout_s, entry_id, after, producer)


class Ticket:
    """An entry on its way. `result()` blocks until it is acknowledged; under asyncio, await the ticket."""

    __slots__ = ("_appending", "_copies", "_entry_id")

    def __init__(self, appending: Appending, entry_id: int) -> None:
        self._appending = appending
        self._entry_id = entry_id
        self._copies = 0  # That bookies have said since.

    @property
    def entry_id(self) -> int:
        return self._appending.now(self._entry_id)[1]

    @property
    def position(self) -> Position:
        """Where the entry stands if it survives; given before it is acknowledged. Until then it is another one when the
        ledger of a log fails, and what was outstanding goes to the next one (P8.2)."""
        handle, entry_id = self._appending.now(self._entry_id)
        return Position(handle.ledger_id, entry_id)

    @property
    def offset(self) -> int:
        """The dense offset of the entry in its log; of a ledger by itself, its id. As `position`, it may be another one
        until it is acknowledged: what goes to a next ledger closes up where some of it is refused there (P8.2)."""
        handle, entry_id = self._appending.now(self._entry_id)
        return handle.first_offset + entry_id

    @property
    def epoch(self) -> int | None:
        """The fencing token under which it was appended (P9.2); None: to a ledger by itself."""
        return self._appending.now(self._entry_id)[0].epoch

    def done(self) -> bool:
        """Whether `result()` would answer at once."""
        handle, entry_id = self._appending.now(self._entry_id)
        return handle.writing.is_settled(entry_id)

    @property
    def durability(self) -> str | None:
        """ "synced" on the disks of the ack quorum; "received" in its memory only (P3.2); None: not acknowledged."""
        handle, entry_id = self._appending.now(self._entry_id)
        if handle.writing.lac >= entry_id:
            return "synced"
        return "received" if handle.writing.received >= entry_id else None

    @property
    def copies(self) -> int:
        """On so many disks it is, as this ticket knows: 0 before it is synced on its ack quorum, then Qa, and more once
        `at_least` has asked."""
        handle, entry_id = self._appending.now(self._entry_id)
        if handle.writing.lac < entry_id:
            return 0
        return max(self._copies, handle.writing.metadata.quorum.ack_quorum)

    def at_least(self, copies: int, timeout_s: float | None = None) -> int:
        """Wait until the entry is on so many disks, for who wants more than the ack quorum; `copies` then. Its bookies
        are asked, so only who calls it pays for it; the handle may be closed by then.

        Args:
            copies: 1 to the write quorum of its ledger.
            timeout_s: for the whole call; None: no limit.

        Raises:
            UsageError: copies is not allowed, or the cluster's level is below 10 and more than the ack quorum is asked.
            OperationTimeout: so many are not known in time; who lacks it or does not tell is named. The entry is on its
                way or acknowledged as before.
            What `result` raises.
        """
        return run_blocking(self._at_least(copies, timeout_s), "at_least_async of the ticket")

    async def at_least_async(self, copies: int, timeout_s: float | None = None) -> int:
        """As `at_least`, awaited."""
        return await run_async(self._at_least(copies, timeout_s))

    async def _at_least(self, copies: int, timeout_s: float | None) -> int:
        check_seconds(timeout_s, "timeout_s")
        if isinstance(copies, bool) or not isinstance(copies, int) or not 1 <= copies <= self.copies:
            self._copies = await self._appending.on_disks(self._entry_id, copies, timeout_s)
        return self.copies

    def result(self, timeout_s: float | None = None) -> Position:
        """The position, once the entry is acknowledged: durable on its ack quorum, unless sync is deferred.

        Raises:
            LedgerFenced, LedgerClosed, NotEnoughBookies: the handle failed; the entry may or may not survive (P3.6).
            OperationTimeout: timeout_s passed; the entry is still on its way.

        Both carry this ticket again, as `ticket`.
        """
        if timeout_s is None:
            return _wait_blocking(self._appending, self._entry_id, "the ticket itself")
        check_seconds(timeout_s, "timeout_s")
        return run_blocking(acknowledged(self._appending, self._entry_id, timeout_s), "the ticket itself")

    def fate(self) -> Fate:
        """Whether the entry survived, also after an error: definite once the ledger's CLOSED metadata is read (P3.6).

        Raises:
            NoSuchLedger: the ledger was deleted meanwhile.
            MetadataUnavailable: no member could be asked; try again.
        """
        return run_blocking(_fate(self._appending, self._entry_id), "fate_async of the ticket")

    async def fate_async(self) -> Fate:
        """As `fate`, awaited."""
        return await run_async(_fate(self._appending, self._entry_id))

    def __await__(self) -> Generator[Any, None, Position]:
        return (yield from run_async(acknowledged(self._appending, self._entry_id)).__await__())

    def __reduce__(self) -> Any:
        refuse_pickling("a ticket", "send its position")

    def __repr__(self) -> str:
        return f"Ticket({self.position.ledger_id}, {self.entry_id}, {'settled' if self.done() else 'on its way'})"


# An entry that was queued, from the handle that took it on.


async def acknowledged(
    handle: Appending, entry_id: int, timeout_s: float | None = None, *, is_synced: bool = False
) -> Position:
    """Wait until the entry is acknowledged (is_synced: by disks, also where sync is deferred, P3.2) in this ledger or,
    when this one failed, in the next; return where it is. Raises the error that settled it otherwise."""
    runtime = handle.runtime
    if runtime.is_forked:
        runtime.check()
    until_s = None if timeout_s is None else runtime.clock_s() + timeout_s
    handle, entry_id = handle.now(entry_id)
    while not await _passed(handle, entry_id, timeout_s, is_synced=is_synced):
        following, moved = handle.now(entry_id)
        if following is handle:
            raise_failed(handle, entry_id)
        handle, entry_id = following, moved
        timeout_s = None if until_s is None else max(0.0, until_s - runtime.clock_s())
    return Position(handle.ledger_id, entry_id)


async def _passed(handle: Appending, entry_id: int, timeout_s: float | None, *, is_synced: bool) -> bool:
    """Wait until it is acknowledged in this ledger. False: it is not, and will not be."""
    writing = handle.writing
    if writing.lac >= entry_id:
        return True
    passed: Moved | Passed = Passed(writing, entry_id, timeout_s)
    if is_synced:
        passed = Moved(writing.signal, lambda: writing.is_synced(entry_id), timeout_s)
    if not await passed:
        late = OperationTimeout(
            f"{handle.what}: entry {entry_id} was not acknowledged within {timeout_s:g} s; it may still be",
            hint="wait for its ticket again, or ask the ticket for its fate later",
        )
        late.ticket = Ticket(handle, entry_id)
        raise late
    return (writing.lac if is_synced else writing.received) >= entry_id


def _wait_blocking(handle: Appending, entry_id: int, aio_twin: str) -> Position:
    """As `acknowledged` without a time limit, blocking this thread."""
    refuse_in_event_loop(aio_twin)
    if handle.runtime.is_forked:
        handle.runtime.check()
    handle, entry_id = handle.now(entry_id)
    handle.block(entry_id)
    if not handle.writing.is_received(entry_id):
        return run_blocking(acknowledged(handle, entry_id), aio_twin)
    return Position(handle.ledger_id, entry_id)


async def all_acknowledged(
    handle: Appending, timeout_s: float | None = None, *, is_synced: bool = False
) -> int:
    """Wait until everything queued before is acknowledged (is_synced: on the disks of its ack quorum, P3.2); return
    the LAC.

    What was queued on a condition on a ledger that failed may be in no ledger: that is its caller's to hear, and what
    stands before it is waited for all the same (P8.2)."""
    runtime = handle.runtime
    check_seconds(timeout_s, "timeout_s")
    until_s = math.inf if timeout_s is None else runtime.clock_s() + timeout_s
    last = handle.writing.packer.last_entry
    while last != NO_ENTRY:
        left_s = None if timeout_s is None else max(0.0, until_s - runtime.clock_s())
        try:
            await acknowledged(handle, last, left_s, is_synced=is_synced)
            break
        except (UsageError, AppendConflict):
            runtime.check()
            now, moved = handle.now(last)
            if now.heir is None or moved <= now.heir.last_entry:
                raise
            last -= 1
    return handle.now(last)[0].lac


def raise_failed(handle: Appending, entry_id: int) -> NoReturn:
    """All appends share the handle's error; raise one for this append, by which its fate can be asked."""
    failed = handle.writing.error
    assert failed is not None
    if handle.heir is not None and entry_id > handle.heir.last_entry:
        refused = _not_moved(handle, entry_id)
        refused.ticket = Ticket(handle, entry_id)
        raise refused
    again = type(failed)(failed.args[0], definite=failed.definite, hint=failed.hint)
    again.ticket = Ticket(handle, entry_id)
    raise again from failed


def _not_moved(handle: Appending, entry_id: int) -> EmbedbkError:
    """The error of an entry that was appended on a condition on this ledger's ids, and is not in the ledger."""
    bound = handle.past.bound
    if bound and bound.get(entry_id):
        return UsageError(
            f"{handle.what}: ledger {handle.ledger_id} failed before its entry {entry_id}, which was expected by its "
            "id, was in it; nothing was appended",
            hint="ids begin anew in the next ledger: append it on the terms of that one",
        )
    conflict = AppendConflict(
        f"{handle.what}: entry {entry_id - 1} of ledger {handle.ledger_id}, which was expected to stand last, is in no "
        "ledger; nothing was appended",
        hint="read what was appended since, then decide anew",
    )
    conflict.last_position = handle.last_position
    return conflict


async def _fate(handle: Appending, entry_id: int) -> Fate:
    """Whether an entry survived: by the LAC, or by the CLOSED metadata (P3.6)."""
    now, moved = handle.now(entry_id)
    if now is not handle:
        return await _fate(now, moved)
    if handle.lac >= entry_id:
        return Fate.SURVIVED
    ledger_id = handle.ledger_id
    value, _ = await handle.runtime.get(ledger_key_path(ledger_id), f"asking what became of entry {entry_id}")
    if handle.heir is not None and handle.now(entry_id)[0] is not handle:
        return await _fate(handle, entry_id)  # It was handed over meanwhile.
    if value is None:
        tenure = handle.past.tenure
        if tenure is not None and await tenure.owning.has_closed_empty(tenure):
            return Fate.LOST
        raise NoSuchLedger(f"ledger {ledger_id} was deleted; nothing of it can be read any more")
    metadata = decode_ledger_metadata(value, ledger_id)
    if metadata.last_entry is None:
        return Fate.UNKNOWN
    if entry_id <= metadata.last_entry:
        return Fate.SURVIVED
    return Fate.UNKNOWN if handle.writing.is_undecided else Fate.LOST  # It may go to the next ledger yet.
