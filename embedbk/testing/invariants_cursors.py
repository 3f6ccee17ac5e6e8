"""Durable cursors, by the metadata: I101 (entries that a cursor holds are there), I102 (who may commit, and only
forward) and I107 (a log's bound lets go of a cursor only where its settings say so).

Each check is about one change of one key; `Invariants` calls them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from embedbk.codec.log_cursors import (
    CursorHold,
    CursorRecord,
    NamedCursor,
    cursor_lease_name,
    decode_cursor,
    decode_log_cursors,
)
from embedbk.codec.log_settings import AtBound, decode_log_settings
from embedbk.errors import StorageError
from embedbk.metadata.claims import lock_path
from embedbk.testing.sometimes import Sometimes
from embedbk.testing.violation import Violation

__all__ = ["CursorWatch"]

_LEASES = lock_path("cursor:")


class CursorWatch:
    """The cursors of each log, who consumes by them, and where the log begins."""

    def __init__(self, sometimes: Sometimes) -> None:
        self._sometimes = sometimes
        self._first: dict[str, int] = {}  # Log -> its first offset.
        self._named: dict[str, dict[str, NamedCursor]] = {}
        self._records: dict[tuple[str, str], CursorRecord] = {}
        self._lets_go: dict[str, bool] = {}  # Log -> whether its settings let go of cursors at its bound.
        self._leases: dict[str, int] = {}  # Key of a lease -> its epoch.

    def take_list(self, log: str, first_offset: int | None) -> None:
        """first_offset None: the log was deleted."""
        if first_offset is None:
            self._first.pop(log, None)
        else:
            self._first[log] = first_offset
            self._nothing_held_is_gone(log)

    def take_key(self, revision: int, key: str, new: bytes | None) -> None:
        if key.startswith(_LEASES):
            if new is None:
                self._leases.pop(key, None)
            else:
                self._leases[key] = revision
        elif key.startswith("/log-cursors/"):
            _, _, log, name = key.split("/")
            self._take_cursor(log, name, new)
        elif key.startswith("/logs/") and key.endswith("/settings"):
            log = key.split("/")[2]
            self._lets_go[log] = False
            with contextlib.suppress(StorageError):  # A stranger's.
                settings = None if new is None else decode_log_settings(new, log)
                self._lets_go[log] = settings is not None and settings.at_bytes_max == AtBound.LET_GO
        elif key.startswith("/logs/") and key.endswith("/cursors"):
            self._take_named(key.split("/")[2], new)

    def _take_named(self, log: str, new: bytes | None) -> None:
        before = self._named.get(log, {})
        now = {each.name: each for each in decode_log_cursors(new).cursors} if new is not None else {}
        self._named[log] = now
        for name, cursor in now.items():
            was = before.get(name)
            if was is not None and was.hold == CursorHold.HOLDS and cursor.hold > CursorHold.HOLDS:
                self._sometimes.note("hold of a cursor ended")
                if cursor.hold == CursorHold.ENDED_BY_BOUND:
                    self._sometimes.note("bound let go of a cursor")
                    if not self._lets_go.get(log):
                        raise Violation("I107", f"{log}: its bound passed cursor {name}, and is to refuse")
        self._nothing_held_is_gone(log)

    def _take_cursor(self, log: str, name: str, new: bytes | None) -> None:
        before = self._records.pop((log, name), None)
        if new is None:
            return
        record = self._records[log, name] = decode_cursor(new, log, name)
        if record.epoch:
            key = lock_path(cursor_lease_name(log, name))
            if self._leases.get(key) != record.epoch:
                raise Violation(
                    "I102",
                    f"cursor {name} of {log} is committed under epoch {record.epoch}, and {self._leases.get(key)} has "
                    "its lease",
                )
            if before is None or before.offset >= record.offset:
                raise Violation("I102", f"cursor {name} of {log} is committed at {record}, behind {before}")
            self._sometimes.note("cursor committed")
            if before.epoch not in (0, record.epoch):
                self._sometimes.note("cursor committed by its next consumer")
        self._nothing_held_is_gone(log)

    def holding(self, log: str) -> Iterator[tuple[str, int]]:
        """The cursors that hold the log, and where each stands."""
        for name, cursor in self._named.get(log, {}).items():
            record = self._records.get((log, name))
            if cursor.hold == CursorHold.HOLDS and record is not None:
                yield name, record.offset

    def _nothing_held_is_gone(self, log: str) -> None:
        """I101: at every revision a cursor that holds stands at or behind the log's start."""
        first = self._first.get(log)
        if first is None:
            return
        for name, offset in self.holding(log):
            if offset < first:
                raise Violation(
                    "I101",
                    f"{log} begins at {first}, and its cursor {name} holds what is behind offset {offset}",
                )
