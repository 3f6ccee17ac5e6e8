"""Every error that embedbk raises, and for each whether its answer is final.

Decides nothing; the floors above raise these. Two questions matter to a caller: whose fault is it, and
is the answer final? `definite` answers the second: True when what was asked certainly did not happen (or
certainly is not there), False when either may turn out to be so. `hint` says what to do next.
"""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = [
    "AppendConflict",
    "ArchiveUnreadable",
    "CursorLost",
    "EmbedbkError",
    "EntryUnreadable",
    "InvariantError",
    "LedgerClosed",
    "LedgerFenced",
    "LockLost",
    "LogAtBound",
    "LogExists",
    "LogFull",
    "LogSealed",
    "Lost",
    "MetadataConflict",
    "MetadataUnavailable",
    "NoSuchCursor",
    "NoSuchEntry",
    "NoSuchLedger",
    "NotEnoughBookies",
    "NotFreed",
    "NotTruncated",
    "OperationTimeout",
    "PeerError",
    "RecoveryInconclusive",
    "StaleEpoch",
    "StorageError",
    "Truncated",
    "UsageError",
    "WrongPassword",
    "ensure",
]


class EmbedbkError(Exception):
    """Root of all errors a caller may handle.

    Attributes:
        definite: is the answer final? A class has a default; an instance may know better.
        hint: what to do next, one sentence; empty when there is nothing to add.
        ticket: of an append that failed without a final answer: its `fate()` can be asked later (P3.6). None where
            nothing was sent, and beside appends.
    """

    definite: bool = True
    hint: str = ""
    ticket: Any = None

    def __init__(self, message: str, *, definite: bool | None = None, hint: str = "") -> None:
        super().__init__(message)
        if definite is not None:
            self.definite = definite
        if hint:
            self.hint = hint

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.hint})" if self.hint else text


class UsageError(EmbedbkError, ValueError):
    """The caller broke the contract: says what was given and what is allowed. Nothing was done."""


class WrongPassword(UsageError):
    """The ledger has another password (P3.5); nothing was changed."""


class PeerError(EmbedbkError):
    """A peer sent what the protocol forbids: the link is dropped, not the node."""

    definite = False


class LedgerFenced(EmbedbkError):
    """Another client is recovering this ledger; adds in flight may or may not survive (P3.6)."""

    definite = False  # As after a timeout: never add again blindly.
    hint = "read the ledger after its recovery to learn what survived; take the log over to go on writing"


class LedgerClosed(EmbedbkError):
    """The ledger is closed; adds in flight may or may not be below its last entry (P3.6)."""

    definite = False
    hint = "open the ledger for reading to learn its last entry"


class LockLost(EmbedbkError):
    """The lock is not held any more, or this client cannot tell whether it is (P9.3); another may hold it by now."""

    definite = False
    hint = "what was done under its epoch stands where the epoch was compared; acquire it again for a new one"


class CursorLost(EmbedbkError):
    """A consumer has lost the lease of its cursor, or this client cannot tell whether it has; another may consume from
    where it was committed."""

    definite = False
    hint = (
        "what was read since the last commit comes again to the next consumer; call consume() again to be it"
    )


class StaleEpoch(EmbedbkError):
    """A resource has met a higher epoch, so the caller is not its newest holder any more (P9.3); nothing was done."""

    hint = "another took over: stop acting for this resource, or take it over again for a new epoch"


class LogAtBound(EmbedbkError):
    """The log has as many payload bytes as its settings allow (P8.8): what was refused was not appended, nor spliced,
    and may be tried again once the log's front was truncated."""

    byte_count: int = 0  # What the log has now, as its owner counts.
    bytes_max: int = 0  # What it may have.
    held_by: str = ""  # "cursor" or "pin": what holds its oldest ledgers; "": nothing does.
    holder: str = ""  # The name of that cursor or pin.


class LogExists(EmbedbkError):
    """There is a log of this name already; nothing was changed."""


class LogFull(EmbedbkError):
    """The log's list of ledgers has no room for one more, so no client can take it over; nothing was changed (P8.1)."""


class LogSealed(EmbedbkError):
    """The log was sealed for ever (P8.9): the message says why; nothing was changed."""

    hint = "it can be read as ever; write to another log"
    reason: str = ""  # As it was given to `Log.seal`.


class NotEnoughBookies(EmbedbkError):
    """Too few bookies can take part: some write set has fewer than it needs (P4.5); says why of each."""

    definite = False


class OperationTimeout(EmbedbkError, TimeoutError):
    """The caller's own wait ended; what was asked may still happen."""

    definite = False


class AppendConflict(EmbedbkError):
    """A conditional append found another last position than the expected one; nothing was appended."""

    last_position: Any = None  # The position that stands last instead.


class MetadataConflict(EmbedbkError):
    """The compare-and-set lost: another client changed the key. Re-read, then decide (P2.2)."""


class MetadataUnavailable(EmbedbkError):
    """The metadata quorum gave no answer, or the session with it is lost."""

    definite = False
    hint = "open ledgers go on; try again when the metadata members can be reached"


class NoSuchCursor(EmbedbkError, LookupError):
    """The log has no cursor of this name."""


class NoSuchLedger(EmbedbkError, LookupError):
    """Known to be absent; never used for "could not read" (P7.1)."""


class NoSuchEntry(EmbedbkError, LookupError):
    """Known to be absent; never used for "could not read" (P7.1)."""


class NotFreed(EmbedbkError):
    """The bookies of an archived ledger keep their copies: says which fact forbids that they give them up (P8.14).
    Nothing was changed."""

    kept: str = ""  # "unverified", "young", "open", "lost", "pin", "cursor" or "repair".


class NotTruncated(EmbedbkError):
    """A log was to be truncated, and no ledger of it could go: says what held it (P8.8). Nothing was changed."""

    truncation: Any = None  # The `Truncation` that says the same as values.


class Truncated(EmbedbkError, LookupError):
    """The position is below the start of the log's list (P6.6)."""

    first_offset: int | None = None  # Where the log begins now; None: not told.


class Lost(EmbedbkError, LookupError):
    """Entries that were acknowledged, or may have been, are lost for good: an operator gave them up (P11.5). To
    read on behind them, begin at `next_offset`, or pass `skip_lost=True`."""

    ledger_id: int
    first_entry: int  # The gap, in its ledger; both included.
    last_entry: int
    first_offset: int  # The same in its log; of a ledger that is read by itself, entry ids.
    next_offset: int  # Behind the gap.


class EntryUnreadable(EmbedbkError):
    """No bookie of the write set gave a copy with a valid digest (P6.1)."""

    definite = False


class ArchiveUnreadable(EntryUnreadable):
    """Entries whose only copies are files of an archive cannot be read from there (P8.14): says which file, in which
    archive, and what to do."""

    place: str = ""  # The directory of the archive.
    file: str = ""  # In it; "" where it is the archive itself, or what reads it is not installed.


class StorageError(EmbedbkError):
    """A file, a directory or what metadata holds cannot be used as it is: says which, where in it, why, what to do."""

    definite = False


class RecoveryInconclusive(EmbedbkError):
    """Answers were missing, so the end of the ledger is not known; trying again is safe (P5.2c)."""

    definite = False
    hint = "the ledger stays in recovery; try again when more of its bookies answer"


class InvariantError(Exception):
    """A bug in embedbk. Not an `EmbedbkError`, so that no `except` for ordinary errors swallows it."""


def ensure(fact: bool, what: str) -> None:
    """Check a fact whose breach would lose data; holds also under `python -O`."""
    if not fact:
        _breach(what)


def _breach(what: str) -> NoReturn:
    raise InvariantError(what)
