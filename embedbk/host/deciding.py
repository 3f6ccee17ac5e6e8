"""What operators decided about copies, as the metadata has it, for the bookie that is asked to replace one (P11.5).

Decides nothing: what a word allows is `core/copy_replacement.py`'s. A value that cannot be read is no word.
"""

from __future__ import annotations

from collections.abc import Callable

from embedbk.codec.copy_decision import decided_path, decode_copy_decisions
from embedbk.codec.metadata_messages import Get, Result, Value
from embedbk.core.bookie_words import DecisionsRead, ReadDecisions
from embedbk.core.machine import Event
from embedbk.errors import StorageError
from embedbk.host.metadata_link import MetadataLink
from embedbk.host.unread import Unread

__all__ = ["Deciding"]


class Deciding:
    """The questions of one bookie. tell_bookie: steps the bookie's core."""

    def __init__(self, metadata: MetadataLink, tell_bookie: Callable[[Event], None], unread: Unread) -> None:
        self._metadata = metadata
        self._tell_bookie = tell_bookie
        self._unread = unread

    def ask(self, now_ns: int, effect: ReadDecisions) -> None:
        key = decided_path(effect.ledger_id, effect.entry_id)

        def done(now_ns: int, result: Result) -> None:
            decisions = None  # Neither yes nor no (P2.2).
            if isinstance(result, Value):
                value = None if result.record is None else result.record.value
                try:
                    decisions = () if value is None else decode_copy_decisions(value)
                except StorageError as broken:
                    self._unread.name(key, str(broken))
            self._tell_bookie(DecisionsRead(now_ns, effect.read_id, decisions))

        self._metadata.request(now_ns, Get(key), done)
