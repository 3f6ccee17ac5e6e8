"""Closing a ledger that its writer left: the worker's step before it repairs it like any closed one (P11.2, AR08).

Decides whether the ledger may be fenced. Its mark says that it is an orphan, which was true when the auditor wrote it;
what counts is the transaction that puts it IN_RECOVERY: it compares that the writer shows no life, as well as the hold
and the mark. One that is IN_RECOVERY already was fenced by somebody's word, and is recovered at once. The rest is a
recovery like any other's (P5.2), beside which others may recover it, too.

    OPEN --IN_RECOVERY, if no life is shown--> Recovery --> "closed" | "failed"
      '--refused--> does it live? --> "lives" | "changed"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.living import living_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.config import Placement
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, Send, SendFailed
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.placement import Chance
from embedbk.core.recovery import Recovery, RecoveryOptions
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import NoSuchLedger

__all__ = ["ORPHAN", "LedgerKey", "OrphanClosing"]

ORPHAN = "orphan"  # What the tags of its questions begin with.

Answer = (
    Answered | SendFailed | KeyRead | Transacted | TransactUnknown | TransactRefused | MetadataFailed
)  # To a question of it.


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """What opens the ledgers without a password: of others a worker knows nothing."""

    verifier: bytes
    key: bytes
    mac_key: bytes = b""


class OrphanClosing:
    """One try. result: None while it goes on; then "closed", "lives", "changed", or why it failed."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        revision: int,
        when: list[Compare],
        opener: LedgerKey,
        nonce: int,
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        placement: Placement,
        number: int,
    ) -> None:
        """when: the hold and the mark, as they are compared. number: of this try, so that answers to another count for
        nothing."""
        self.metadata = metadata
        self.revision = revision
        self.when = when
        self.opener = opener
        self.nonce = nonce
        self.bookies = bookies
        self.chance = chance
        self.placement = placement
        self.number = number
        self.recovery: Recovery | None = None
        self.result: str | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.recovery.deadline_ns if self.recovery is not None else None

    def begin(self, now_ns: int) -> list[Effect]:
        metadata = self.metadata
        if metadata.state != LedgerState.OPEN:
            return self._recover(now_ns)
        self.metadata = metadata.with_changes(state=LedgerState.IN_RECOVERY)
        key = ledger_key_path(metadata.ledger_id)
        when = [
            *self.when,
            Compare(key, self.revision),
            Compare(living_path(metadata.writer), ABSENT),
        ]
        return [Transact(self._tag("begin"), when, [Put(key, encode_ledger_metadata(self.metadata))])]

    def _tag(self, of: Any) -> Any:
        return (ORPHAN, self.number, of)

    def _recover(self, now_ns: int) -> list[Effect]:
        opener, options = self.opener, RecoveryOptions(placement=self.placement)
        self.recovery = Recovery(
            self.metadata,
            self.revision,
            opener.key,
            self.nonce,
            self.bookies,
            self.chance,
            options,
            opener.mac_key,
        )
        return self._drive(self.recovery.step(Started(now_ns)))

    def _drive(self, effects: list[Effect]) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Ended):
                self._end(effect)
            elif isinstance(effect, Send | ReadKey | Transact):
                out.append(replace(effect, tag=self._tag(effect.tag)))
        return out

    def _end(self, ended: Ended) -> None:
        self.recovery = None
        if ended.error is None:
            self.result = "closed"
        else:
            self.result = (
                "changed" if isinstance(ended.error, NoSuchLedger) else f"its recovery failed: {ended.error}"
            )

    def on_answer(self, event: Answer) -> list[Effect]:
        """The outcome of a question of this try; of another it counts for nothing."""
        if self.result is not None or event.tag[1] != self.number:
            return []
        of = event.tag[2]
        if self.recovery is not None:
            return self._drive(self.recovery.step(replace(event, tag=of)))
        if of == "begin" and isinstance(event, Transacted):
            if event.is_done:
                self.revision = event.revision
                return self._recover(event.now_ns)
            return [ReadKey(self._tag("lives"), living_path(self.metadata.writer))]
        is_seen = of == "lives" and isinstance(event, KeyRead) and event.value is not None
        self.result = "lives" if is_seen else "changed"
        return []

    def on_event(self, event: Tick | BookiesChanged) -> list[Effect]:
        if isinstance(event, BookiesChanged):
            self.bookies = event.bookies
        return self._drive(self.recovery.step(event)) if self.recovery is not None else []
