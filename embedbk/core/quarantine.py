"""Which bookies failed so often lately that new seats go to others (RP45).

Decides nothing of the protocol: a bookie in quarantine is still written to, read and, if no other is left, chosen. It
is released early when it answers well again, or registers anew: half an hour is long for a cable put back.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Quarantine"]

_S = 1_000_000_000
ERRORS_MAX = 100  # So many ...
WITHIN_NS = 60 * _S  # ... within this time, and no new seat ...
HELD_NS = 1_800 * _S  # ... for so long, or until ...
GOOD_ANSWERS = 10  # ... so many good answers in a row.
BOOKIES_MAX = 4096


class Quarantine:
    """Plain data of one client; times are the host's. Each call returns whether a bookie was added or released."""

    def __init__(self) -> None:
        self.errors: dict[str, deque[int]] = {}  # Bookie -> when it failed, the newest ERRORS_MAX of them.
        self.held: dict[str, int] = {}  # Bookie -> until when.
        self.good: dict[str, int] = {}  # By bookie that is held: good answers in a row.

    @property
    def is_idle(self) -> bool:
        """Whether no bookie is held, so that good answers need not be reported."""
        return not self.held

    @property
    def deadline_ns(self) -> int | None:
        return min(self.held.values(), default=None)

    def note_error(self, bookie_id: str, now_ns: int) -> bool:
        if bookie_id in self.held:
            self.good[bookie_id] = 0
            return False
        if bookie_id not in self.errors and len(self.errors) >= BOOKIES_MAX:
            del self.errors[next(iter(self.errors))]
        when = self.errors.setdefault(bookie_id, deque(maxlen=ERRORS_MAX))
        when.append(now_ns)
        if len(when) < ERRORS_MAX or now_ns - when[0] > WITHIN_NS:
            return False
        del self.errors[bookie_id]
        self.held[bookie_id] = now_ns + HELD_NS
        self.good[bookie_id] = 0
        return True

    def note_good(self, bookie_id: str) -> bool:
        if bookie_id not in self.held:
            return False
        self.good[bookie_id] += 1
        return self.good[bookie_id] >= GOOD_ANSWERS and self.release(bookie_id)

    def release(self, bookie_id: str) -> bool:
        self.errors.pop(bookie_id, None)
        self.good.pop(bookie_id, None)
        return self.held.pop(bookie_id, None) is not None

    def expire(self, now_ns: int) -> bool:
        over = [bookie_id for bookie_id, until in self.held.items() if until <= now_ns]
        return bool([bookie_id for bookie_id in over if self.release(bookie_id)])
