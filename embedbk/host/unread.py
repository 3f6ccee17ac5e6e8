"""Values in metadata that cannot be read: logged once each, so that an operator learns of them (P7.7).

Decides nothing of what they mean. Every client may write there, so they are neither a failure of this node nor a reason
to end anything: an unreadable value keeps its ledger, and the handle that needs it gets an error of its own.
"""

from __future__ import annotations

import logging

__all__ = ["NAMED_MAX", "Unread"]

logger = logging.getLogger(__name__)

NAMED_MAX = 1024  # Keys of which it is known that they were named; beyond, the oldest may be named again.


class Unread:
    """The values that one node could not read. who: the node's name, for people."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._named: dict[str, str] = {}

    def name(self, key: str, reason: str) -> None:
        """Log it, unless the same was logged for this key before."""
        if self._named.get(key) == reason:
            return
        self._named.pop(key, None)
        self._named[key] = reason
        if len(self._named) > NAMED_MAX:
            del self._named[next(iter(self._named))]
        logger.error(
            "%s cannot read what stands in metadata under %r, and leaves it alone: %s", self._who, key, reason
        )
