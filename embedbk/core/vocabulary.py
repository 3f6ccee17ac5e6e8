"""The words that every core shares with its host: when it begins, what time it is, and its end.

Words are events and effects: plain data, made fresh, not changed after. The words of certain cores are in
`client_words`, `metadata_words`, `bookie_words` and `upkeep_words`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from embedbk.errors import EmbedbkError

__all__ = ["CloseRequested", "Ended", "Started", "Tag", "Tick"]

# A core's own plain name for a request: a string, or a tuple of strings and numbers. The host hands it back with the
# outcome and never looks inside.
Tag = Any


class Started(Struct):
    """The first event of a core that acts by itself; a passive one (writer, bookie) needs none."""

    now_ns: int


class Tick(Struct):
    now_ns: int


class CloseRequested(Struct):
    """end: what the transaction that closes the ledger records in the list of its log, if it can (EndRecord)."""

    now_ns: int
    end: Any = None


class Ended(Struct):
    """The core is over. error None: it succeeded, with `result`."""

    error: EmbedbkError | None = None
    result: Any = None
