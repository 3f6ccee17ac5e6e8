"""A member logs that its disk makes nothing of its log durable any more, and when it goes on (I53).

Without room on its device a log waits, and with it everybody who waits for a commit; nothing has failed. Decides when
that is looked at, and what counts as standing still; the member's status tells that too. `reminders` decides how often
it is said.
"""

from __future__ import annotations

import logging

from embedbk.host.reminders import Reminders

__all__ = ["LOOK_NS", "Standing"]

LOOK_NS = 1_000_000_000
_KEY = "log"


class Standing:
    """The log of one member."""

    def __init__(self, logger: logging.Logger, member: str) -> None:
        self._reminders = Reminders(logger)
        self._member = member
        self._look_ns = 0
        self.why = ""  # Why nothing more becomes durable, as of the last look; empty: it does.
        self._durable = -1  # The sequence of the last durable record at the last look.

    def is_due(self, now_ns: int) -> bool:
        return now_ns >= self._look_ns

    def look(self, now_ns: int, durable: int, why: str) -> None:
        """durable: the sequence of the last durable record. why: why what is queued behind it waits; empty: nothing
        is."""
        self._look_ns = now_ns + LOOK_NS
        stands, self._durable = bool(why) and durable == self._durable, durable
        self.why = why if stands else ""
        if stands:
            text = f"metadata member {self._member}: nothing more of its log is durable: {why}"
            self._reminders.lasts(now_ns, _KEY, text)
        else:
            self._reminders.over(now_ns, _KEY, f"metadata member {self._member}: its log goes on")
