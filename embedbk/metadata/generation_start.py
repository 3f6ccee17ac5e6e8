"""A generation that an operator has a member begin, since entries of its log may be lost (METADATA.md, 4). Pure.

Decides by which command it begins: as a lineage, which names those that are given up, if the cluster's level has
lineages. Knows when that is done. Leaves to `member` when it leads, and to `commands` what a generation changes.
"""

from __future__ import annotations

from embedbk.codec.lineages import LINEAGE_BYTES
from embedbk.codec.metadata_messages import Lineage
from embedbk.metadata.commands import BeginGeneration, BeginLineage
from embedbk.metadata.levels import LEVEL_OF_LINEAGES
from embedbk.metadata.vocabulary import MemberStarted, RandomBits

__all__ = ["GenerationStart"]


class GenerationStart:
    """What the operator asked of this start of the member."""

    __slots__ = ("_at", "_gives_up", "_is_whole", "_level_behind_log", "is_due")

    def __init__(self, level: int) -> None:
        """level: of the catalog."""
        self.is_due = False  # An operator asked for it; it begins when this member leads.
        self._gives_up: tuple[Lineage, ...] = ()  # The lineages that the operator gives up for it.
        self._is_whole = False  # The operator declared that nothing was lost.
        self._level_behind_log = level  # The cluster's level when it started.
        self._at = (0, 0)  # (index, term) of the entry by which it begins.

    def ask(self, event: MemberStarted) -> None:
        self.is_due, self._gives_up = event.begins_generation, event.gives_up
        self._is_whole = event.is_whole
        self._level_behind_log = event.level

    def command(self, level: int, chance: RandomBits) -> BeginGeneration | BeginLineage | str:
        """The command that begins it; or why the member has to stop. level: of the catalog, as far as the log is
        applied."""
        level = max(level, self._level_behind_log)
        if level >= LEVEL_OF_LINEAGES:
            name = chance.getrandbits(8 * LINEAGE_BYTES).to_bytes(LINEAGE_BYTES, "big")
            return BeginLineage(name, self._gives_up, self._is_whole)
        if self._gives_up:
            return (
                f"lineages are given up at level {LEVEL_OF_LINEAGES}, and the cluster's level is {level}: start it "
                "without naming any, then embedbk quorum raise"
            )
        return BeginGeneration()

    def note_proposed(self, index: int, term: int) -> None:
        self._at = index, term

    def take_applied(self, index: int, term: int) -> bool:
        """Whether this entry is the one by which it begins; it is due no longer then."""
        if (index, term) != self._at:
            return False
        self.is_due = False
        return True
