"""When each operation of a client gets its next tick: one heap for all of them.

Decides nothing: a core shows its deadline, and one that is later than the heap's entry is found when the entry has
come. So an operation has one entry that counts, not later than its deadline, however often that moves.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from embedbk.host.operations import Operation

__all__ = ["DUE_SPARE", "Deadlines"]

DUE_SPARE = 64  # Entries on the heap beside two for each operation there, before it is cleaned.


class Deadlines:
    """The deadlines of the operations of one node. Its length is that of the heap, past entries included."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Operation]] = []
        self._numbers = itertools.count()
        self._count = 0  # Operations that are on it, each perhaps with past entries too.

    def __len__(self) -> int:
        return len(self._due)

    @property
    def next_ns(self) -> int | None:
        """The next time at which something may be due."""
        return self._due[0][0] if self._due else None

    def keep(self, operation: Operation, deadline_ns: int) -> None:
        """Have the operation come up at its deadline, or earlier if it would have anyway."""
        if operation.due_ns is not None and deadline_ns >= operation.due_ns:
            return
        self._count += operation.due_ns is None
        operation.due_ns = deadline_ns
        heapq.heappush(self._due, (deadline_ns, next(self._numbers), operation))
        self._clean()

    def end(self, operation: Operation) -> None:
        """Forget an operation that is over, so that its entry does not keep it alive until its time."""
        if operation.due_ns is not None:
            operation.due_ns = None
            self._count -= 1
            self._clean()

    def _clean(self) -> None:
        if len(self._due) > 2 * self._count + DUE_SPARE:
            self._forget_past()

    def _forget_past(self) -> None:
        """Entries of operations that are over, or for which an earlier one was made since."""
        self._due = [entry for entry in self._due if not entry[2].is_over and entry[2].due_ns == entry[0]]
        heapq.heapify(self._due)
        self._count = len(self._due)

    def take(self, now_ns: int, count_max: int) -> Iterator[Operation]:
        """Remove and return the operations whose time here has come; their deadline may be later meanwhile.

        count_max: of entries looked at.
        """
        for _ in range(count_max):
            if not self._due or self._due[0][0] > now_ns:
                return
            due_ns, _, operation = heapq.heappop(self._due)
            if operation.due_ns == due_ns:
                operation.due_ns = None
                self._count -= 1
                yield operation
