"""How a client shows that it lives: an ephemeral key of its session, under a name of its own (P8.5, P11.2).

The name lasts as long as the client, the key as long as its session; in its next session it puts the key again.
"""

from __future__ import annotations

__all__ = ["LIVING_BYTES", "LIVING_PATTERN", "living_path"]

LIVING_BYTES = 8
LIVING_PATTERN = r"^([0-9a-f]{16})?\Z"  # Of a name, or of none.


def living_path(name: str) -> str:
    return f"/living/{name}"
