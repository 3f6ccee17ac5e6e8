"""Contenders for one log: a client that lost it a moment ago waits before it takes it again, so that one of them can
write.

Decides how long, from how often it was lost lately: doubling, with chance, so that two that lost at the same moment do
not meet again. Pure. Leaves to others what a loss is (an epoch above ours, P8.1), and that the application asks again.
"""

from __future__ import annotations

from typing import NamedTuple

from embedbk.core.placement import Chance

__all__ = ["FORGET_NS", "LOGS_MAX", "WAIT_NS", "WAIT_NS_MAX", "Contending", "back_off_ns"]

_MS = 1_000_000
WAIT_NS = 50 * _MS  # At most, after the first loss; doubled by each further one.
WAIT_NS_MAX = 2_000 * _MS
FORGET_NS = 10_000 * _MS  # Without a loss for so long no other client contends.
LOGS_MAX = 1024  # So many are remembered; beyond, the one whose loss is longest ago is forgotten.


class _Lost(NamedTuple):
    times: int
    at_ns: int


def back_off_ns(losses: int, chance: Chance) -> int:
    """How long to wait after so many losses one after the other; nothing after none."""
    if losses == 0:
        return 0
    most = min(WAIT_NS << min(losses - 1, 30), WAIT_NS_MAX)
    return most // 2 + (chance.getrandbits(31) * (most // 2) >> 31)


class Contending:
    """The losses of one process, by log."""

    def __init__(self) -> None:
        self._lost: dict[str, _Lost] = {}

    def note_lost(self, name: str, now_ns: int) -> None:
        """Another owner has taken it over."""
        count = self.losses(name, now_ns)
        self._lost.pop(name, None)
        self._lost[name] = _Lost(count + 1, now_ns)
        if len(self._lost) > LOGS_MAX:
            del self._lost[next(iter(self._lost))]

    def losses(self, name: str, now_ns: int) -> int:
        """How many losses came one after the other, the last of them lately."""
        lost = self._lost.get(name)
        return lost.times if lost is not None and now_ns - lost.at_ns < FORGET_NS else 0
