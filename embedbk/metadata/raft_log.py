"""The log of one member in memory: entries behind the snapshot, and which configuration holds (RAFT.md, section 3).

Decides where two logs agree and which of two is newer. It writes nothing; its owner reports what is durable.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from embedbk.errors import ensure
from embedbk.metadata.quorum import Configuration
from embedbk.metadata.raft_vocabulary import Entry

__all__ = ["RETAINED_BYTES_MAX", "RaftLog"]

# Entries that the newest snapshot replaces are kept up to so many bytes, for members that lag a little; members that
# lag more get the snapshot.
RETAINED_BYTES_MAX = 64 << 20
_OBJECTS_BYTES = 96  # Memory of an entry beside its bytes in a message.


class RaftLog:
    """Entries first_index..last_index. (first_index - 1, previous_term) stands before them: nothing, or the last entry
    that a snapshot replaced."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        snapshot_index: int = 0,
        snapshot_term: int = 0,
        configuration_index: int = 0,
        entries: Sequence[Entry] = (),
        retained_bytes_max: int = RETAINED_BYTES_MAX,
    ) -> None:
        """configuration: that of snapshot_index. entries: those behind it, all durable. retained_bytes_max: bytes of
        entries that are kept although a snapshot stands for them."""
        self.snapshot_index = snapshot_index
        self.first_index = snapshot_index + 1
        self.previous_term = snapshot_term
        self.durable_index = snapshot_index
        self._entries: list[Entry] = []
        self._ends = array("Q", [0])  # Bytes of memory up to each entry; the first number: before them.
        self.retained_bytes_max = self._retained_bytes = retained_bytes_max
        # (index, configuration), rising. The first is committed; each other stands in the log, the last one holds.
        self._configurations = [(configuration_index, configuration)]
        self.last_index = snapshot_index
        self.configuration = configuration  # The newest that stands in the log, committed or not.
        self.append(entries)
        self.durable_index = self.last_index

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.previous_term

    @property
    def configuration_index(self) -> int:
        return self._configurations[-1][0]

    def configuration_at(self, index: int) -> Configuration:
        """The configuration in force behind entry index, which is not older than the last snapshot."""
        return next(held for begin, held in reversed(self._configurations) if begin <= index)

    def configuration_index_at(self, index: int) -> int:
        """The index of the entry with that configuration."""
        return next(begin for begin, _ in reversed(self._configurations) if begin <= index)

    @property
    def shortest_base_ms(self) -> int:
        """The shortest base of the configurations in memory: that of the newest snapshot, and all behind it."""
        return min(held.election_base_ms for _, held in self._configurations)

    def term_at(self, index: int) -> int | None:
        """The term of an entry; None: it is not here, or no more."""
        if index == self.first_index - 1:
            return self.previous_term
        if self.first_index <= index <= self.last_index:
            return self._entries[index - self.first_index].term
        return None

    def between(self, first: int, last: int) -> tuple[Entry, ...]:
        """Entries first..last, both included, all of them here."""
        assert self.first_index <= first
        assert last <= self.last_index
        return tuple(self._entries[first - self.first_index : last + 1 - self.first_index])

    def taken(self, first: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from first on, as many as bytes_max hold, at least one."""
        begin, size = first - self.first_index, 0
        if self.bytes_between(first, self.last_index) <= bytes_max:
            return tuple(self._entries[begin:])
        end = begin
        while end < len(self._entries):
            size += entry_bytes(self._entries[end])
            end += 1
            if size >= bytes_max:
                break
        return tuple(self._entries[begin:end])

    def bytes_between(self, first: int, last: int) -> int:
        """The bytes of entries first..last (`entry_bytes`), without a look at each."""
        begin, end = first - self.first_index, last + 1 - self.first_index
        return self._ends[end] - self._ends[begin] - _OBJECTS_BYTES * (end - begin)

    def is_at_most(self, last_index: int, last_term: int) -> bool:
        """Whether a log that ends so is newer than this one, or ends alike: then its member may be voted for."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def append(self, entries: Sequence[Entry]) -> None:
        last, term, end = self.last_index, self.last_term, self._ends[-1]
        for entry in entries:
            assert entry.index == last + 1
            assert entry.term >= term
            last, term, end = entry.index, entry.term, end + memory_bytes(entry)
            self._entries.append(entry)
            self._ends.append(end)
            if isinstance(entry.body, Configuration):
                self._configurations.append((entry.index, entry.body))
                self.configuration = entry.body
        self.last_index = last

    def cut(self, keep_index: int) -> None:
        """Forget everything behind keep_index; the configuration before it holds again."""
        ensure(keep_index >= self.snapshot_index, "what a snapshot stands for is never taken back")
        kept = max(0, keep_index + 1 - self.first_index)
        del self._entries[kept:]
        del self._ends[kept + 1 :]
        while self._configurations[-1][0] > keep_index:
            self._configurations.pop()
        self.configuration = self._configurations[-1][1]
        self.last_index = self.first_index - 1 + len(self._entries)
        self.durable_index = min(self.durable_index, keep_index)

    def retain(self, size: int) -> None:
        """Keep so many bytes from the next snapshot on; never more than is allowed."""
        self._retained_bytes = min(size, self.retained_bytes_max)

    def let_go(self, snapshot_index: int, first_index: int) -> None:
        """A durable snapshot stands for everything up to snapshot_index; entries before first_index go, and more of
        those that it stands for while they take more memory than is allowed."""
        assert first_index <= snapshot_index + 1
        self.snapshot_index = max(self.snapshot_index, snapshot_index)
        first_index = max(first_index, self._first_retained(snapshot_index))
        if first_index > self.first_index:
            term = self.term_at(first_index - 1)
            assert term is not None
            del self._entries[: first_index - self.first_index]
            del self._ends[: first_index - self.first_index]
            self.first_index, self.previous_term = first_index, term
        while len(self._configurations) > 1 and self._configurations[1][0] <= self.snapshot_index:
            self._configurations.pop(0)

    def restart_from(self, index: int, term: int, configuration: Configuration) -> bool:
        """Take the place of everything up to a snapshot of another member. True: what follows it here agrees with it
        and stays; False: the log is empty behind it."""
        agrees = self.term_at(index) == term
        if agrees:
            self.let_go(index, index + 1)
            self.durable_index = max(self.durable_index, index)
            return True
        self._entries.clear()
        self._ends = array("Q", [0])
        self.first_index, self.previous_term = index + 1, term
        self.snapshot_index = self.durable_index = self.last_index = index
        self._configurations, self.configuration = [(index, configuration)], configuration
        return False

    @property
    def memory_bytes(self) -> int:
        """The bytes of all entries in memory, about."""
        return self._ends[-1] - self._ends[0]

    def _first_retained(self, snapshot_index: int) -> int:
        """The oldest entry that may stay."""
        held = snapshot_index + 1 - self.first_index  # Entries here that the snapshot stands for.
        if held <= 0:
            return self.first_index
        return self.first_index + bisect_left(self._ends, self._ends[held] - self._retained_bytes, 0, held)

    def place_of_agreement(self, index: int, term: int) -> tuple[int, int]:
        """The last entry at or before index whose term is at most term: (index, term). Behind it the logs differ."""
        index = min(index, self.last_index)
        while index >= self.first_index:
            own = self._entries[index - self.first_index].term
            if own <= term:
                return index, own
            index -= 1
        return self.first_index - 1, self.previous_term


def entry_bytes(entry: Entry) -> int:
    body = entry.body
    return 32 + (len(body) if type(body) is bytes else 512)


def memory_bytes(entry: Entry) -> int:
    return _OBJECTS_BYTES + entry_bytes(entry)
