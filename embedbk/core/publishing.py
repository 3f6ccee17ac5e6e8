"""Publishing one ledger's metadata: one compare-and-set at a time, until its outcome is known (P2.2, P4.3, P5.2e).

Both the writer (an ensemble change, the close) and recovery (its mark, the close) publish so. Decides whether what was
proposed stands in the metadata, surely never will, or is overtaken by another version; what each of these means, the
handle decides. An unknown outcome is never taken for a no: only a newer version settles it, or winning from the same
one.

    put --> IN FLIGHT --done-----------------------------------------------> published
              ^  |
              |  '--not done, unknown--> READING --what was proposed---------> published
              |                          |  |  |---another version-----------> overtaken
              '----the same version------'  |  '---no key--------------------> deleted
                                            '------the same, and a bookie that it names may not be named any more:
                                                   read once more, then -----> not made
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    decode_changed_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import (
    NOTHING,
    Alongside,
    KeyRead,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.naming import Naming
from embedbk.errors import StorageError

__all__ = ["Publication", "Publishing", "Settlement"]


class Settlement(enum.Enum):
    OPEN = "open"  # Not known yet; the effects ask on.
    PUBLISHED = "published"  # The proposal stands there.
    NOT_MADE = "not made"  # Nor will it be: others have to be named (P10.6).
    OVERTAKEN = "overtaken"  # Another version stands there; the handle drops its proposal, or puts it again.
    DELETED = "deleted"
    UNREADABLE = "unreadable"  # The key holds no metadata of this ledger.


class Publication(NamedTuple):
    """The state of the proposal after an event. found and revision: the metadata that stands there, PUBLISHED or
    OVERTAKEN. error: why that is UNREADABLE."""

    verdict: Settlement
    effects: list[Effect]
    found: LedgerMetadata | None = None
    revision: int = 0
    error: StorageError | None = None


class Publishing:
    """The compare-and-sets of one handle."""

    __slots__ = (
        "base",
        "has_beside",
        "is_reading",
        "is_unsettled",
        "naming",
        "number",
        "proposed",
        "revision",
    )

    def __init__(self, number: int = 0) -> None:
        """number: how many compare-and-sets this handle has sent before."""
        self.naming = Naming()
        self.proposed: LedgerMetadata | None = None  # From its compare-and-set until the outcome is settled.
        self.base: LedgerMetadata | None = None  # The metadata that it replaces, and that one's revision.
        self.revision = 0
        self.number = number  # The compare-and-set in flight; an outcome of another one decides nothing.
        self.is_unsettled = False  # One came back unknown: it is still in flight (P2.2).
        self.is_reading = False
        # The compare-and-set in flight puts more than the ledger; behind its outcome: that has been put with it.
        self.has_beside = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is proposed, asked or known but the number."""
        return not (self.proposed or self.is_reading or self.is_unsettled or self.naming.has_outdated)

    def put(
        self, base: LedgerMetadata, revision: int, proposed: LedgerMetadata, beside: Alongside = NOTHING
    ) -> list[Effect]:
        """Publish `proposed` where `base` stands with this revision. beside: what else this one transaction compares
        and puts; one that follows it does not, as what is compared there may be what refused it."""
        self.base, self.revision, self.proposed = base, revision, proposed
        self.number += 1
        self.has_beside = bool(beside.then)
        key = ledger_key_path(base.ledger_id)
        placements = self.naming.compares(base.fragments, proposed.fragments)
        put = Put(key, encode_ledger_metadata(proposed))
        when = [Compare(key, revision), *placements]
        return [Transact(("cas", self.number), [*when, *beside.when], [put, *beside.then])]

    def drop(self) -> None:
        """Drop the proposal."""
        self.base = self.proposed = None
        self.is_unsettled = False
        self.naming.withdraw()

    def settle(self) -> None:
        """Note that the proposal is published, and that the chosen bookies are named."""
        self.drop()
        self.naming = Naming()

    def read(self, ledger_id: int) -> list[Effect]:
        """The ledger's key, unless it is being read."""
        if self.is_reading:
            return []
        self.is_reading = True
        return [ReadKey("read", ledger_key_path(ledger_id))]

    def note_unread(self) -> None:
        """Metadata gave no answer to what was read."""
        self.is_reading = False
        self.naming.stop_asking()

    def is_outcome(self, event: Transacted | TransactRefused | TransactUnknown) -> bool:
        return self.proposed is not None and event.tag[1] == self.number

    def hear(self, event: Transacted | TransactUnknown | KeyRead) -> Publication:
        if isinstance(event, KeyRead):
            return self._hear_key(event)
        if self.proposed is None or not self.is_outcome(event):
            return _open([])
        if isinstance(event, Transacted) and event.is_done:
            return self._published(self.proposed, event.revision)
        self.has_beside = False  # What the ledger's key tells says nothing of that.
        if isinstance(event, TransactUnknown):
            self.is_unsettled = True
        elif asked := self.naming.ask():
            return _open([*asked])
        return _open(self.read(self.proposed.ledger_id))

    def _hear_key(self, event: KeyRead) -> Publication:
        if self.naming.is_mine(event):
            is_last = self.proposed is not None and self.naming.take(event)
            return _open(self.read(self.proposed.ledger_id) if self.proposed is not None and is_last else [])
        self.is_reading = False
        if self.proposed is None or self.base is None:
            return _open([])
        if event.value is None:
            return Publication(Settlement.DELETED, [])
        if event.revision == self.revision:
            # A read from before the refusal says nothing of the reason. The placements do, and behind them the key is
            # read anew.
            return _open([]) if self.naming.is_asking else self._unchanged(self.base, self.proposed)
        if event.value == encode_ledger_metadata(self.proposed):
            self.has_beside = False  # Another client may have put the same, alone.
            return self._published(self.proposed, event.revision)
        try:
            found = decode_changed_metadata(event.value, self.base)
        except StorageError as unread:
            return Publication(Settlement.UNREADABLE, [], error=unread)
        return Publication(Settlement.OVERTAKEN, [], found, event.revision)

    def _unchanged(self, base: LedgerMetadata, proposed: LedgerMetadata) -> Publication:
        """The same old version proves nothing: the same compare-and-set again either wins or is refused. But one that
        names a bookie whose placement has changed never wins, and the old version, read behind that, proves that it
        did not either (P10.6)."""
        if not self.naming.is_outdated:
            return _open(self.put(base, self.revision, proposed))
        if self.naming.is_confirmed:
            self.drop()
            return Publication(Settlement.NOT_MADE, [])
        self.naming.is_confirmed = True
        return _open(self.read(base.ledger_id))

    def _published(self, metadata: LedgerMetadata, revision: int) -> Publication:
        self.settle()
        return Publication(Settlement.PUBLISHED, [], metadata, revision)


def _open(effects: list[Effect]) -> Publication:
    return Publication(Settlement.OPEN, effects)
