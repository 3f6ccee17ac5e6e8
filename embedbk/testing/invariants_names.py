"""Names and ids of logs as the metadata has them: I104 (one name, one log), I105 (deleted logs come back as they were).

Both are about whole transactions, so that each is judged when a later revision begins, or at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from embedbk.codec.log_identity import (
    IDENTITIES_PREFIX,
    NAMES_PREFIX,
    LogIdentity,
    LogIdentityState,
    decode_log_identity,
    decode_log_pointer,
    log_deleted_path,
)
from embedbk.codec.log_list import log_key_path
from embedbk.testing.violation import Violation

__all__ = ["LogNames"]


class LogNames:
    """What names point to, what logs say of themselves, and their lists."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._pointers: dict[str, str] = {}  # Name -> id.
        self._identities: dict[str, LogIdentity] = {}  # By id.
        self._lists: dict[str, bytes] = {}  # Lists, and lists that are put aside, by key.
        self._before: dict[str, bytes] = {}  # The same of ids whose lists it changes, as this revision began.
        self._seen: set[str] = set()
        self._revision = 0
        self._touched: dict[
            str, LogIdentityState | None
        ] = {}  # Ids of this revision -> what they were before.

    def take_key(self, revision: int, key: str, new: bytes | None) -> None:
        if revision != self._revision:
            self.settle()
            self._revision = revision
        if key.startswith(NAMES_PREFIX):
            name = key.removeprefix(NAMES_PREFIX)
            before = self._pointers.pop(name, None)
            if new is not None:
                self._pointers[name] = decode_log_pointer(new, name).log_id
            for log_id in (before, self._pointers.get(name)):
                if log_id is not None:
                    self._touch(log_id)
        elif key.startswith(IDENTITIES_PREFIX):
            self._take_identity(key.removeprefix(IDENTITIES_PREFIX), new)
        elif key.startswith("/logs/") and key.endswith(("/list", "/deleted")):
            log_id = key.split("/")[2]
            self._touch(log_id)
            if log_id not in self._seen:
                self._seen.add(log_id)
                both = (log_key_path(log_id), log_deleted_path(log_id))
                self._before |= {each: self._lists[each] for each in both if each in self._lists}
            if new is None:
                self._lists.pop(key, None)
            else:
                self._lists[key] = new

    def _touch(self, log_id: str) -> None:
        known = self._identities.get(log_id)
        self._touched.setdefault(log_id, None if known is None else LogIdentityState(known.state))

    def _take_identity(self, log_id: str, new: bytes | None) -> None:
        self._touch(log_id)
        before = self._identities.pop(log_id, None)
        if new is None:
            self._note("deleted log ended")
            return
        now = self._identities[log_id] = decode_log_identity(new, log_id)
        was = None if before is None else before.state
        if before is not None and was == now.state == LogIdentityState.NAMED and before.name != now.name:
            self._note("log renamed")
        if was == LogIdentityState.NAMED and now.state == LogIdentityState.DELETED:
            self._note("log put aside")
        if was == LogIdentityState.DELETED and now.state == LogIdentityState.NAMED:
            self._note("log brought back")
        if now.state == LogIdentityState.GONE:
            self._note("deleted log ended")

    def settle(self) -> None:
        """All of a revision is there."""
        touched, self._touched = self._touched, {}
        before, self._before = self._before, {}
        self._seen.clear()
        for log_id, was in touched.items():
            self._one_name_one_log(log_id)
            self._comes_back_as_it_was(log_id, was, before)

    def _one_name_one_log(self, log_id: str) -> None:
        """I104: names that point to a log are exactly the one that it says, and none where it is deleted."""
        names = sorted(name for name, to in self._pointers.items() if to == log_id)
        identity = self._identities.get(log_id)
        is_named = identity is not None and identity.state == LogIdentityState.NAMED
        wanted = [identity.name] if identity is not None and is_named else []
        if names != wanted:
            raise Violation("I104", f"log {log_id} says {identity}, and {names} point to it")

    def _comes_back_as_it_was(
        self, log_id: str, was: LogIdentityState | None, before: dict[str, bytes]
    ) -> None:
        """I105: the list of a log that has a name goes only to where it is kept, and comes back from there as it is."""
        identity = self._identities.get(log_id)
        if identity is None and was is None:
            return  # A log from below the level.
        now = LogIdentityState.GONE if identity is None else LogIdentityState(identity.state)
        here, aside = log_key_path(log_id), log_deleted_path(log_id)
        if now == LogIdentityState.DELETED and was == LogIdentityState.NAMED:
            kept = self._lists.get(aside)
            if here in self._lists or (kept is None) != (here not in before) or kept != before.get(here):
                raise Violation("I105", f"the list of log {log_id} is not put aside as it was")
        elif now == LogIdentityState.NAMED and was == LogIdentityState.DELETED:
            if aside in self._lists or self._lists.get(here) != before.get(aside):
                raise Violation("I105", f"the list of log {log_id} comes back as another")
        elif now == was == LogIdentityState.NAMED and here in before and here not in self._lists:
            raise Violation("I105", f"log {log_id} has a name, and its list goes")
        elif now == was == LogIdentityState.DELETED and (
            here in self._lists or before.get(aside) != self._lists.get(aside)
        ):
            raise Violation("I105", f"the list of log {log_id} changes while it is deleted")
