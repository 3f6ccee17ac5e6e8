"""Sealing a log for ever (P8.9): a takeover that lists no further ledger, and puts down why there is none.

Decides that a log which nobody ever wrote to is not sealed. Everything before the commit is a takeover's (P8.1): the
epoch, so that the former owner commits nothing any more, and recovery of every ledger that is not recorded as
closed. What closed empty stays listed: the list keeps a ledger, whose end is the log's.

    EPOCH -> LIST -> RECOVER each ledger not recorded as closed -> COMMIT the list with the seal -> ended
"""

from __future__ import annotations

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.log_list import LogList, LogSeal, log_key_path, log_owner_path
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.core.client_words import BookieInfo
from embedbk.core.log import LogTakeover
from embedbk.core.log_listing import NewLedger, Stage
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import Transact
from embedbk.core.placement import Chance
from embedbk.core.vocabulary import Ended
from embedbk.errors import NoSuchLedger, ensure

__all__ = ["LogSealing"]


class LogSealing(LogTakeover):
    """Ends with the LogSeal, or with an error: LogSealed, if it was sealed before."""

    CANNOT = "cannot be sealed"

    def __init__(
        self,
        name: str,
        owner: bytes,
        new: NewLedger,
        ledger_key: bytes,
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        seal: LogSeal,
        *,
        mac_key: bytes = b"",
        losses: int = 0,
        guard: tuple[Compare, ...] = (),
    ) -> None:
        """new: whose password and placement its ledgers are recovered by; none is made."""
        super().__init__(
            name, owner, new, ledger_key, bookies, chance, mac_key=mac_key, losses=losses, guard=guard
        )
        self.seal = seal

    def _on_segments(self, now_ns: int) -> list[Effect]:
        if not self.segments:
            return self._end(NoSuchLedger(f"there is no log {self.name!r}", hint="check the name"))
        return self._recover_next(now_ns)

    def _all_closed(self, now_ns: int) -> list[Effect]:
        return self._commit()

    def _commit(self) -> list[Effect]:
        """One transaction: the list is as read, and the epoch is the newest."""
        ensure(
            all(segment.last_entry is not None for segment in self.segments),
            "a log is sealed only behind closed ledgers",
        )
        self.stage = Stage.COMMIT
        self.new_list = LogList(METADATA_VERSION, self.epoch, self.segments, self.pages, self.seal)
        when = [
            Compare(log_key_path(self.name), self.list_revision),
            Compare(log_owner_path(self.name), self.epoch),
        ]
        return [Transact("commit", when, [Put(log_key_path(self.name), self._encoded(self.new_list))])]

    def _taken_over(self, list_revision: int) -> list[Effect]:
        self.stage = Stage.ENDED
        return [Ended(None, self.seal)]
