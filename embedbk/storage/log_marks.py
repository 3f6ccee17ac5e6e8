"""How far a metadata member's log may be trimmed behind an index, though later records take entries back.

snapshots.py decides when that is done. A mark (index, token) means: no record up to this token holds an entry behind
this index that is still valid, and the next record continues from this index or before. Between two marks this need not
hold: a record may continue from an entry that was taken back later. There are few marks, however long the log is, since
files are removed as wholes anyway.
"""

from __future__ import annotations

from collections import deque

__all__ = ["MARKS_MAX", "LogMarks"]

MARKS_MAX = 4096  # Then every second one goes: less is trimmed by one mark at most.


class LogMarks:
    """Indexes and tokens rise from mark to mark."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()

    def note(self, keep_index: int, last_index: int, token: int) -> None:
        """Note a record: it takes back what follows keep_index, and holds the entries from there to last_index."""
        marks, cut_token = self._marks, 0
        while marks and marks[-1][0] > keep_index:
            cut_token = max(cut_token, marks.pop()[1])
        if cut_token:
            marks.append((keep_index, cut_token))
        if marks and marks[-1][0] == last_index:
            marks.pop()
        marks.append((last_index, token))
        if len(marks) > MARKS_MAX:
            # The newest stays: a record that takes entries back needs to know the token right before its own.
            self._marks = deque(reversed(list(marks)[::-2]))

    def token_of(self, index: int, below: int) -> int:
        """The last record before `below` up to which nothing stands behind index, and behind which the next one goes on
        from index or before; 0: no such record is known. Marks before it are forgotten: later questions are not
        lower."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= index and marks[1][1] < below:
            marks.popleft()
        return marks[0][1] if marks and marks[0][0] <= index and marks[0][1] < below else 0
