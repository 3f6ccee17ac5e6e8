"""When the bookies of a writer that pauses get its LAC by a hint, in memory (P6.2): for which writers, and when
together.

A writer that continues sends its LAC with the next frame; one that idles sends it durably, some time later. A reader in
between that does not wait at a bookie would not see the acknowledged entries. Decides how long a pause is, and how many
writers are worth it. Leaves to the core what a hint says (core/writer.py).
"""

from __future__ import annotations

from collections import deque

from embedbk.host.writing import Writing

__all__ = ["HINTED_WRITERS_MAX", "HINT_NS", "Hinting"]

# At the latest so long after its LAC last moved, the bookies of a writer that pauses have it.
HINT_NS = 5_000_000
_TOGETHER_NS = HINT_NS // 2  # Pauses of this length are hinted together with one that is due.
# Writers of this client that pause or idle, and have not sent their LAC durably. With more, each LAC is sent durably
# only: a hint for each short pause of very many would cost more than their adds.
HINTED_WRITERS_MAX = 128


class Hinting:
    """The writers of one client node that owe their bookies a LAC."""

    def __init__(self) -> None:
        self._owing: dict[Writing, tuple[int, int]] = {}  # The LAC that it owes, and since when.
        # (since, LAC, its writer), oldest first; past ones too.
        self._pauses: deque[tuple[int, int, Writing]] = deque()

    def note(self, now_ns: int, writing: Writing) -> None:
        """Note what this writer owes; call it after each step of its core."""
        if writing.is_over or writing.is_shrunk or not writing.core.owes_lac:
            self._owing.pop(writing, None)
            return
        core = writing.core
        known = self._owing.get(writing)
        if known is not None and known[0] == core.lac:
            return
        self._owing[writing] = (core.lac, now_ns)
        if core.owes_hint:
            self._pauses.append((now_ns, core.lac, writing))

    def forget(self, writing: Writing) -> None:
        self._owing.pop(writing, None)

    @property
    def deadline_ns(self) -> int | None:
        return self._pauses[0][0] + HINT_NS if self._pauses else None

    def take(self, now_ns: int) -> list[Writing]:
        """The writers whose cores get `HintDue` now."""
        if not self._pauses or now_ns < self._pauses[0][0] + HINT_NS:
            return []
        due: list[Writing] = []
        while self._pauses and now_ns >= self._pauses[0][0] + _TOGETHER_NS:
            since, lac, writing = self._pauses.popleft()
            if self._owing.get(writing) == (lac, since):
                due.append(writing)
        return due if len(self._owing) <= HINTED_WRITERS_MAX else []
