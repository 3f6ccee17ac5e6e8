"""What the metadata members of a world are called."""

from __future__ import annotations

__all__ = ["METADATA", "member_names"]

METADATA = "metadata"  # Of a quorum of one.


def member_names(count: int) -> tuple[str, ...]:
    return tuple(f"m{number}" for number in range(1, count + 1)) if count > 1 else (METADATA,)
