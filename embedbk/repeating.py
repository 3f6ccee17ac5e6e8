"""Failures that repeat: logged once and then rarely, with their number.

Decides which occurrences of one failure are logged: the first, then each time that their number has grown tenfold, and
its end. Another key (the text itself, if none is given) is another failure. Counted, not timed: so virtual time gives
the same.
"""

from __future__ import annotations

import logging

__all__ = ["Repeating"]


class Repeating:
    """Failures of one thing of one node. level: at which a failure is logged; the end is logged at INFO."""

    def __init__(self, logger: logging.Logger, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._key = ""
        self._count = 0
        self._next = 1

    def met(self, text: str, key: str = "") -> None:
        """key: where the text names what is another one each time."""
        if (key or text) != self._key:
            self._key, self._count, self._next = key or text, 0, 1
        self._count += 1
        if self._count == self._next:
            self._next *= 10
            again = f" (met {self._count} times)" if self._count > 1 else ""
            self._logger.log(self._level, "%s%s", text, again)

    def ended(self, text: str) -> None:
        """The operation works again: logged if it had failed."""
        if self._count:
            self._logger.info("%s, after it was met %d times", text, self._count)
        self._key, self._count, self._next = "", 0, 1
