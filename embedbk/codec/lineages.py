"""Lineages as people read and write them: `NAME:GENERATION`, as in `9f2c4a1be07d5533:3` (P10.5).

A bookie names the lineage that it met in its log lines; an operator who gives that up types it in again. The first
lineage of a cluster has no name, and every other descends from it; `first:3` means that a bookie met it in generation
3, which happened at levels that know no lineages.
"""

from __future__ import annotations

import re

from embedbk.codec.metadata_messages import GENERATION_BITS, Lineage
from embedbk.errors import UsageError

__all__ = ["LINEAGES_NAMED_MAX", "LINEAGE_BYTES", "lineage_text", "parse_lineages"]

LINEAGE_BYTES = 8  # Random: few are ever begun, and people write them down.
LINEAGES_NAMED_MAX = 64  # In one argument of a command.
_GENERATION_MAX = (1 << (63 - GENERATION_BITS)) - 1
_FIRST = "first"
_ONE = re.compile(rf"({_FIRST}|[0-9a-f]{{{2 * LINEAGE_BYTES}}}):([0-9]{{1,5}})", re.ASCII)


def lineage_text(name: bytes, generation: int) -> str:
    return f"{name.hex() or _FIRST}:{generation}"


def parse_lineages(text: str) -> tuple[Lineage, ...]:
    """The lineages of a list with commas or white space between; each once.

    Raises UsageError: it is none, or of too many.
    """
    words = dict.fromkeys(text.replace(",", " ").split())
    if len(words) > LINEAGES_NAMED_MAX:
        raise UsageError(f"{len(words)} lineages are named, allowed are {LINEAGES_NAMED_MAX}")
    lineages: list[Lineage] = []
    for word in words:
        match = _ONE.fullmatch(word)
        if match is None or not 0 < int(match[2]) <= _GENERATION_MAX:
            raise UsageError(
                f"{word[:80]!r} is no lineage",
                hint=f"write it as bookies name it in their logs: {2 * LINEAGE_BYTES} hexadecimal digits, a colon and "
                "the generation, as in 9f2c4a1be07d5533:3",
            )
        name = b"" if match[1] == _FIRST else bytes.fromhex(match[1])
        lineages.append(Lineage(name, int(match[2])))
    return tuple(lineages)
