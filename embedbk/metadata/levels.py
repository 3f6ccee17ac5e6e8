"""Which formats and commands may be used: a level of the whole cluster, raised by one command when all know it (P10.8).

Decides what belongs to which level, which nodes a level excludes, and which nodes keep it from being raised. A build
knows all levels up to `LEVEL`. A cluster from before there were levels has level 1; until it is raised the earlier
build can come back. A new one begins with the newest level that all its members know (`governing.py`). It is never
lowered.

Members send the level that they know in Hello, bookies and clients when they open a session and with each renewal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from embedbk.codec.metadata_messages import Refusal
from embedbk.metadata.quorum import Configuration, MemberId

__all__ = [
    "LACKING",
    "LEVEL",
    "LEVEL_FIRST",
    "LEVEL_OF_ADOPTION",
    "LEVEL_OF_ARCHIVES",
    "LEVEL_OF_BLOCKS",
    "LEVEL_OF_BOUNDS",
    "LEVEL_OF_CHOICES",
    "LEVEL_OF_COMPRESSION",
    "LEVEL_OF_CURSORS",
    "LEVEL_OF_COPIES",
    "LEVEL_OF_DRAINS",
    "LEVEL_OF_FREED",
    "LEVEL_OF_ENTRY_LOGS",
    "LEVEL_OF_FRONTS",
    "LEVEL_OF_GRACES",
    "LEVEL_OF_HOLDINGS",
    "LEVEL_OF_KEEPERS",
    "LEVEL_OF_LINEAGES",
    "LEVEL_OF_LOGS",
    "LEVEL_OF_LOG_IDS",
    "LEVEL_OF_PAGES",
    "LEVEL_OF_READ_BOUNDS",
    "LEVEL_OF_READ_ONLY_WORDS",
    "LEVEL_OF_RECORDS",
    "LEVEL_OF_REPAIRS",
    "LEVEL_OF_RUN_DIGESTS",
    "LEVEL_OF_RESERVED_MARKS",
    "LEVEL_OF_SHAPES",
    "LEVEL_OF_SPLICES",
    "LEVEL_OF_STALE_KEYS",
    "LEVEL_OF_SUMS",
    "LEVEL_OF_TIMES",
    "LEVEL_OF_WRITERS",
    "Heard",
    "lacking_members",
    "left_out",
    "named",
    "too_new",
]

LEVEL_FIRST = 1  # The level of clusters from before there were levels, and of a node that sends none.
# What each level brings stands in METADATA.md, section 8.
LEVEL_OF_LINEAGES = 3
LEVEL_OF_LOGS = 4
LEVEL_OF_REPAIRS = 5
LEVEL_OF_PAGES = 5
LEVEL_OF_CURSORS = 6
LEVEL_OF_TIMES = 7
LEVEL_OF_COPIES = 8
LEVEL_OF_ADOPTION = 9
LEVEL_OF_HOLDINGS = 10
LEVEL_OF_DRAINS = 11
LEVEL_OF_SPLICES = 12
LEVEL_OF_STALE_KEYS = 13
LEVEL_OF_LOG_IDS = 14
LEVEL_OF_RUN_DIGESTS = 14
LEVEL_OF_RECORDS = 15
LEVEL_OF_CHOICES = 16
LEVEL_OF_ARCHIVES = 17
LEVEL_OF_LOSSES = 18
LEVEL_OF_FREED = 19
LEVEL_OF_BOUNDS = 20
LEVEL_OF_RESERVED_MARKS = 21
LEVEL_OF_READ_ONLY_WORDS = 22
LEVEL_OF_SHAPES = 23
LEVEL_OF_COMPRESSION = 24
LEVEL_OF_WRITERS = 25
LEVEL_OF_READ_BOUNDS = 26
LEVEL_OF_SUMS = 27
LEVEL_OF_FRONTS = 28
LEVEL_OF_ENTRY_LOGS = 29
LEVEL_OF_BLOCKS = 30
LEVEL_OF_GRACES = 31
LEVEL_OF_KEEPERS = 32
LEVEL = 32  # The newest that this build knows.
NAMED_MAX = 8  # In one sentence.
LABEL_CHARS = 80  # Of a client that is named.
LACKING = (
    "LACKING"  # Refusal.code: a build is too old for the level, or the cluster's level for what was asked.
)


def too_new(level: int, known: int) -> str:
    """Why this build serves no cluster of that level."""
    return (
        f"the cluster's level was raised to {level}; this embedbk knows levels {LEVEL_FIRST} to {known}: start the "
        "build that the others run, or a later one; a level is never lowered"
    )


def left_out(who: str, known: int, level: int) -> Refusal:
    """The refusal for a client that knows less than the cluster's level."""
    return Refusal(
        LACKING,
        f"{who} knows levels {LEVEL_FIRST} to {known}, and the cluster's level is {level}: start a build that knows "
        "it; a level is never lowered",
    )


def named(lacking: Sequence[str]) -> str:
    """The first few of them, as text for people."""
    more = len(lacking) - NAMED_MAX
    return ", ".join(lacking[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def lacking_members(
    configuration: Configuration,
    own: MemberId,
    known: Mapping[MemberId, int],
    heard: Iterable[MemberId],
    level: int,
) -> list[str]:
    """Members that keep the level from being raised: voters, of both sets, that do not know it or are silent, and
    learners that are linked and do not know it. known: the level that each linked member sent."""
    there = set(heard)
    lacking: list[str] = []
    for member in configuration.members:
        if member == own:
            continue
        said = known.get(member, 0) if member in there else 0
        if said and said < level:
            lacking.append(f"member {member.name} (knows level {said})")
        elif not said and configuration.is_voter(member):
            lacking.append(f"member {member.name} (not heard)")
    return lacking


class Heard:
    """The levels that a leader's clients, bookies among them, sent. Kept in memory alone: an older build would lose
    them from the state. So a new leader waits until each client has sent its level."""

    def __init__(self) -> None:
        self._levels: dict[int, int] = {}

    def hear(self, session: int, level: int) -> None:
        self._levels[session] = level

    def forget(self, session: int) -> None:
        self._levels.pop(session, None)

    def forget_all(self) -> None:
        self._levels.clear()

    def lacking(self, labels: Iterable[tuple[int, str]], level: int) -> list[str]:
        """Those of these sessions whose client does not know the level, or has not sent its own yet."""
        lacking: list[str] = []
        for session, label in labels:
            said = self._levels.get(session, 0)
            if said < level:
                lacking.append(
                    f"{label[:LABEL_CHARS]} ({f'knows level {said}' if said else 'not heard yet'})"
                )
        return lacking
