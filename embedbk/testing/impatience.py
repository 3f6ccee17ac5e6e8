"""Callers that give up: an application interrupts its own call while that waits, as Ctrl-C or asyncio's `cancel` does.

Decides when. The call itself is interrupted where it waits, and may clean up; whoever made it knows nothing of the
outcome, as behind a time-out.
"""

from __future__ import annotations

import random

__all__ = ["GaveUp", "Impatience"]

MS = 1_000_000


class GaveUp(BaseException):
    """What a call that is given up is interrupted with: nothing that catches an `Exception` catches it, as it does not
    catch KeyboardInterrupt and CancelledError."""


class Impatience:
    """Of all clients of a world: which give up now, and how long they wait before."""

    def __init__(self) -> None:
        self._clients: dict[str, tuple[random.Random, float]] = {}

    def begin(self, client: str, chance: random.Random, share: float) -> None:
        """share: of the waits, those that may become too long for it."""
        self._clients[client] = (chance, share)

    def end(self, client: str) -> None:
        self._clients.pop(client, None)

    def end_all(self) -> None:
        self._clients.clear()

    def patience_ns(self, client: str) -> int | None:
        """How long its caller bears the wait that begins now. None: as long as it takes."""
        found = self._clients.get(client)
        if found is None:
            return None
        chance, share = found
        if chance.random() >= share:
            return None
        return chance.choice([1, 1, 5, 20, 100, 500]) * chance.randint(MS // 10, MS)
