"""The newest changes by revision, for watches that resume (METADATA.md, 1; I82). Not part of the state.

Bounded in changes and in bytes of memory. When it is full, the oldest changes of the *folder* with most bytes are
removed (`/ledgers/`, `/logs/`, ...), so that many writes elsewhere take nothing from a watch of a quiet folder: each
folder knows from which revision on it is whole. Changes that were not sent to watchers yet are never removed (`hold`).
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from embedbk.codec.metadata_messages import Record
from embedbk.metadata.sorted_keys import SortedKeys

__all__ = ["CHANGE_BYTES", "FOLDERS_MAX", "History", "HistoryPart"]

CHANGE_BYTES = 640  # Memory of a change beside its key and value: measured, with its places in the indexes.
FOLDERS_MAX = 256  # Keys name their own folders: beyond this, the emptiest folders' history is dropped.
LOOKED_UP_MAX = 256  # For a watch of more changed keys than this, the changes are gone through instead.
SCANNED_MAX = 4000  # Changes that are gone through at a time: some milliseconds.


@dataclass(slots=True)
class _Folder:
    floor: int  # Every change in it above this revision is held.
    bytes: int = 0
    changes: int = 0
    revisions: deque[int] = field(default_factory=deque)
    by_key: dict[str, list[int]] = field(default_factory=dict)  # Revisions of each key that changed.
    keys: SortedKeys = field(default_factory=SortedKeys)  # Those of by_key.


@dataclass(slots=True)
class HistoryPart:
    """Changes under a prefix, all of those up to `revision`. cost: how many changes were looked at for it."""

    revision: int
    records: list[Record]
    cost: int


class History:
    """`floor`: every change above it is held; below, those of some folders still are."""

    def __init__(self, floor: int, bytes_max: int, changes_max: int) -> None:
        self.floor = floor
        self.hold: int | None = None  # Changes above this revision never go; None: any may.
        self.bytes = 0
        self.count = 0
        self._bytes_max = bytes_max
        self.changes_max = changes_max
        self._newest = floor
        self._others_floor = floor  # The floor of every folder that is not in _folders.
        self._changes: dict[int, tuple[Record, ...]] = {}
        self._folders: dict[str, _Folder] = {}

    def add(self, revision: int, records: tuple[Record, ...]) -> None:
        assert revision == self._newest + 1, "revisions are dense"
        self._newest = revision
        self._changes[revision] = records
        for record in records:
            name = _folder_of(record.key)
            folder = self._folders.get(name)
            if folder is None:
                folder = self._folders[name] = _Folder(self._others_floor)
            weight = _weight(record)
            folder.bytes += weight
            folder.changes += 1
            self.bytes += weight
            self.count += 1
            if not folder.revisions or folder.revisions[-1] != revision:
                folder.revisions.append(revision)
            known = folder.by_key.get(record.key)
            if known is None:
                folder.by_key[record.key] = [revision]
                folder.keys.add(record.key)
            else:
                known.append(revision)
        self.trim()

    def trim(self) -> None:
        """Drop changes beyond the bounds, as far as that is allowed."""
        while self.bytes > self._bytes_max or self.count > self.changes_max:
            found = self._fullest(is_heavy=self.bytes > self._bytes_max)
            if found is None:
                break
            self._let_go(found)
        while len(self._folders) > FOLDERS_MAX:
            name, folder = min(self._folders.items(), key=lambda item: (item[1].changes, item[1].floor))
            if folder.revisions and self.hold is not None and folder.revisions[-1] > self.hold:
                break
            if folder.revisions and folder.revisions[-1] == self._newest:
                break
            while folder.revisions:
                self._let_go(folder)
            self._others_floor = max(self._others_floor, folder.floor)
            self.floor = max(self.floor, self._others_floor)
            del self._folders[name]

    def _fullest(self, *, is_heavy: bool) -> _Folder | None:
        """The folder with most changes, or bytes, whose oldest change may go; of equal ones the one that holds the
        oldest."""
        may_go = self._newest - 1 if self.hold is None else min(self._newest - 1, self.hold)
        fullest: _Folder | None = None
        most = oldest = 0
        chosen = ""
        for name, folder in self._folders.items():
            if not folder.revisions or (first := folder.revisions[0]) > may_go:
                continue
            size = folder.bytes if is_heavy else folder.changes
            if fullest is None or size > most or (size == most and (-first, name) > (-oldest, chosen)):
                fullest, most, oldest, chosen = folder, size, first, name
        return fullest

    def _let_go(self, folder: _Folder) -> None:
        """Drop the oldest revision of a folder."""
        revision = folder.revisions.popleft()
        rest: tuple[Record, ...] = ()
        for record in self._changes[revision]:
            known = folder.by_key.get(record.key)
            if known is None:
                rest += (record,)  # It is in another folder.
                continue
            weight = _weight(record)
            folder.bytes -= weight
            folder.changes -= 1
            self.bytes -= weight
            self.count -= 1
            del known[0]
            if not known:
                del folder.by_key[record.key]
                folder.keys.remove(record.key)
        if rest:
            self._changes[revision] = rest
        else:
            del self._changes[revision]
        folder.floor = revision
        self.floor = max(self.floor, revision)

    # --- Reading -----------------------------------------------------------------------------------------

    def at(self, revision: int) -> tuple[Record, ...]:
        """The records that changed at a revision above `floor`."""
        return self._changes[revision]

    def after(self, revision: int, until: int) -> Iterator[tuple[int, tuple[Record, ...]]]:
        """(revision, its records) for every revision above `revision`, up to `until` included."""
        assert revision >= self.floor, "compacted"
        return ((number, self._changes[number]) for number in range(revision + 1, until + 1))

    def part(self, prefix: str, revision: int, until: int, bytes_max: int) -> HistoryPart | None:
        """The changes of keys under prefix above `revision`, up to `until` at most and about bytes_max; whole
        revisions, at least one. None: some of them are gone."""
        folders = self._under(prefix)
        floor = max([self._floor_of_others(prefix), *(folder.floor for folder in folders)])
        if revision < floor:
            return None
        wanted = self._look_up(folders, prefix, revision, until)
        scanned = until if wanted is not None else min(until, revision + SCANNED_MAX)
        numbers: Sequence[int] = wanted if wanted is not None else range(revision + 1, scanned + 1)
        records: list[Record] = []
        size = 0
        for number in numbers:
            if size > bytes_max:
                return HistoryPart(number - 1, records, len(numbers))
            for record in self._changes.get(number, ()):
                if record.key.startswith(prefix):
                    records.append(record)
                    size += _weight(record)
        return HistoryPart(scanned, records, len(numbers) + len(folders))

    def _look_up(self, folders: list[_Folder], prefix: str, revision: int, until: int) -> list[int] | None:
        """The revisions that changed keys under prefix; None: too many keys for that."""
        each: list[list[int]] = []
        for folder in folders:
            for key in folder.keys.begin(prefix):
                if not key.startswith(prefix):
                    break
                if len(each) == LOOKED_UP_MAX:
                    return None
                known = folder.by_key[key]
                each.append(known[bisect_right(known, revision) : bisect_right(known, until)])
        found: list[int] = []
        for number in heapq.merge(*each):
            if not found or found[-1] != number:
                found.append(number)
        return found

    def _under(self, prefix: str) -> list[_Folder]:
        """The folders that may hold keys under prefix."""
        own = _folder_of(prefix)
        if own != "/":
            folder = self._folders.get(own)
            return [folder] if folder is not None else []
        return [folder for name, folder in self._folders.items() if name == "/" or name.startswith(prefix)]

    def _floor_of_others(self, prefix: str) -> int:
        own = _folder_of(prefix)
        return 0 if own != "/" and own in self._folders else self._others_floor


def _folder_of(key: str) -> str:
    """`/a/` of `/a/b/c`; `/` of a key that is in no folder."""
    end = key.find("/", 1)
    return key[: end + 1] if end > 0 else "/"


def _weight(record: Record) -> int:
    return CHANGE_BYTES + len(record.key) + len(record.value or b"")
