"""How far a metadata member's log may be trimmed behind an index, though later records take entries back.

snapshots.py decides when that is done. A mark (index, token, peak) means: no record up to this token holds an entry
behind this index that is still valid, the next record continues from this index or before, and no record up to it went
beyond the entry `peak`, also one that was taken back. Between two marks this need not hold: a record may continue from
an entry that was taken back later. Files are removed as wholes, so any record up to the mark may be the first that is
left; none of them may continue from behind the snapshot. There are few marks, however long the log is.
"""

from __future__ import annotations

from collections import deque

__all__ = ["MARKS_MAX", "LogMarks"]

MARKS_MAX = 4096  # Then every second one goes: less is trimmed by one mark at most.


class LogMarks:
    """Indexes and tokens rise from mark to mark, and peaks do not fall."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int, int]] = deque()

    def note(self, keep_index: int, last_index: int, token: int) -> None:
        """Note a record: it takes back what follows keep_index, and holds the entries from there to last_index."""
        marks, cut_token = self._marks, 0
        peak = marks[-1][2] if marks else 0
        while marks and marks[-1][0] > keep_index:
            cut_token = max(cut_token, marks.pop()[1])
        if cut_token:
            marks.append((keep_index, cut_token, peak))
        if marks and marks[-1][0] == last_index:
            marks.pop()
        marks.append((last_index, token, max(peak, last_index)))
        if len(marks) > MARKS_MAX:
            # The newest stays: the next record goes on from it, or takes back what it stands for.
            self._marks = deque(reversed(list(marks)[::-2]))

    def token_of(self, index: int, below: int) -> int:
        """The last record before `below` up to which nothing stands behind index or did, and behind which the next one
        goes on from index or before; 0: no such record is known. Marks before it are forgotten: later questions are not
        lower."""
        marks = self._marks
        while len(marks) > 1 and marks[1][2] <= index and marks[1][1] < below:
            marks.popleft()
        return marks[0][1] if marks and marks[0][2] <= index and marks[0][1] < below else 0
