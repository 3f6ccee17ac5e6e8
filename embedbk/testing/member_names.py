"""The names of the metadata members of a world."""

from __future__ import annotations

__all__ = ["METADATA", "member_names"]

METADATA = "metadata"  # The only member of a quorum of one.


def member_names(count: int) -> tuple[str, ...]:
    return tuple(f"m{number}" for number in range(1, count + 1)) if count > 1 else (METADATA,)
