"""What a node waits for, logged once and then rarely, at WARNING; and when the wait is over.

A node that tries a link, a session or a seat again and again logs that now and then: neither each time nor never.
Decides when it is worth logging. Leaves to others what is waited for, and the words.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

__all__ = ["AGAIN_NS", "AGAIN_NS_MAX", "PATIENCE_NS", "WAITS_MAX", "Reminders"]

SECOND = 1_000_000_000
PATIENCE_NS = 2 * SECOND  # A wait that is over sooner is not worth a line: a peer starts again in less.
AGAIN_NS = 60 * SECOND  # After the first line; doubled each time.
AGAIN_NS_MAX = 3600 * SECOND
WAITS_MAX = 1024  # At a time; beyond it the oldest one begins anew.


@dataclass(slots=True)
class _Wait:
    since_ns: int
    due_ns: int
    pause_ns: int = AGAIN_NS
    is_said: bool = False


class Reminders:
    """The reminders of one node. Each wait has a key; `lasts` is called as often as it likes, `over` when it ended."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._waits: dict[str, _Wait] = {}

    def lasts(self, now_ns: int, key: str, text: str) -> None:
        """Note that the wait goes on; it began with the first call.

        text: which node waits for what, and why it does not come.
        """
        wait = self._waits.get(key)
        if wait is None:
            if len(self._waits) >= WAITS_MAX:
                del self._waits[next(iter(self._waits))]
            self._waits[key] = _Wait(now_ns, now_ns + PATIENCE_NS)
            return
        if now_ns < wait.due_ns:
            return
        self._logger.warning("%s (since %.0f s)", text, (now_ns - wait.since_ns) / SECOND)
        wait.is_said, wait.due_ns = True, now_ns + wait.pause_ns
        wait.pause_ns = min(2 * wait.pause_ns, AGAIN_NS_MAX)

    def over(self, now_ns: int, key: str, text: str) -> None:
        """Note that the wait ended. One that was never logged ends without a log line."""
        wait = self._waits.pop(key, None)
        if wait is not None and wait.is_said:
            self._logger.warning("%s (after %.0f s)", text, (now_ns - wait.since_ns) / SECOND)
