"""Names and numbers by which things are known: ledgers, entries, bookies, incarnations, positions."""

from __future__ import annotations

import re
from typing import NamedTuple

from embedbk.errors import UsageError

__all__ = [
    "INCARNATION_BYTES",
    "LEDGER_ID_MAX",
    "NAME_PATTERN",
    "NO_ENTRY",
    "NO_POSITION",
    "START_ID_BYTES",
    "Member",
    "Position",
    "check_bookie_id",
    "check_cursor_name",
    "check_lock_name",
    "check_log_name",
    "check_member_name",
    "check_why",
    "is_text",
]

NO_ENTRY = -1  # "Before the first entry": the LAC of a ledger in which nothing is confirmed.
LEDGER_ID_MAX = 2**63 - 1
INCARNATION_BYTES = 16
START_ID_BYTES = 8  # Random, of each start of a process on its directories (P7.9).

NAME_PATTERN = r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,126}\Z"  # Names of bookies, metadata members and logs.
_NAME = re.compile(NAME_PATTERN)


class Member(NamedTuple):
    """One seat's holder: a bookie in one disk incarnation (P1). A bookie that lost its disk is another member."""

    bookie_id: str
    incarnation: bytes  # INCARNATION_BYTES random bytes, minted with empty directories.

    def __repr__(self) -> str:
        return f"{self.bookie_id}/{self.incarnation[:3].hex()}"


class Position(NamedTuple):
    """Where an entry of a log stands: (ledger, entry). Ordered within one log."""

    ledger_id: int
    entry_id: int


NO_POSITION = Position(-1, NO_ENTRY)  # Where a log ends that nothing was ever written to.


def check_bookie_id(bookie_id: str) -> str:
    """A bookie id is a name, never an address (RP47)."""
    return _check_name(bookie_id, "bookie id")


def check_cursor_name(name: str) -> str:
    return _check_name(name, "cursor name")


def check_lock_name(name: str) -> str:
    return _check_name(name, "lock name")


def check_log_name(name: str) -> str:
    return _check_name(name, "log name")


def check_member_name(name: str) -> str:
    """Check the name of a metadata member; it is never an address."""
    return _check_name(name, "member name")


def is_text(text: str) -> bool:
    """Whether it can be sent and stored: half of a surrogate pair is no text."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_why(why: str, *, is_needed: bool = False) -> str:
    """Check what people are told of a decision, before it is made."""
    if not isinstance(why, str) or not is_text(why):
        raise UsageError(f"why={why!r:.300}: text in UTF-8 is allowed; nothing was changed")
    if is_needed and not why.strip():
        raise UsageError("a decision needs its reason, for whoever reads it later; nothing was changed")
    return why


def _check_name(name: str, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{what} {name!r} is not allowed: 1 to 127 letters, digits, '.', '_' or '-', the first a letter or digit"
        )
    return name
