"""Newly naming a bookie in a ledger's metadata, and what that compares: its placement (P10.6).

A bookie is chosen from a list that may be old. So the transaction that names it compares the placement under
which it was listed as writable; a bookie that goes read-only raises it, and nothing lands there afterwards. Decides
what is compared, and which choice is outdated. Leaves to others: choosing (`placement`), publishing (creation, the
writer, recovery's close), raising (`host/registering`).

A refusal means that something was not as compared, but not what: then the placements are read, and behind them the
ledger's own key. Where a placement has another revision than was compared, that transaction will never take effect,
since a revision does not come back; if the key is unchanged then, it did not take effect before either, and the choice
may be made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from embedbk.codec.ledger_metadata import Fragment
from embedbk.codec.metadata_messages import ABSENT, Compare
from embedbk.codec.registration import placement_path
from embedbk.core.client_words import BookieInfo
from embedbk.core.metadata_words import KeyRead, ReadKey
from embedbk.ids import Member

__all__ = ["Naming", "newly_seated"]

_PLACEMENT = "placement"  # First part of the tag of a read.


def newly_seated(before: Sequence[Fragment], after: Sequence[Fragment]) -> set[Member]:
    """The bookies that got a seat in the last fragment; changes of earlier ones by repair are ignored."""
    known = set(before[-1].members) if before else set()
    return {member for each in after[max(0, len(before) - 1) :] for member in each.members} - known


class Naming:
    """The bookies that one handle chose, and the placements it compares."""

    __slots__ = ("_chosen", "_compared", "_outdated", "_unread", "is_confirmed")

    def __init__(self) -> None:
        self._chosen: dict[str, int | None] = {}  # Bookie id -> its placement when it was chosen.
        self._compared: dict[str, int] = {}  # By the transaction that is under way.
        self._unread: set[str] = set()  # Those whose placement is not read yet.
        # (bookie id, placement) of choices that were too late.
        self._outdated: set[tuple[str, int | None]] = set()
        self.is_confirmed = False  # The ledger's key is read again, behind a placement that has changed.

    def usable(self, bookies: tuple[BookieInfo, ...]) -> tuple[BookieInfo, ...]:
        """The bookies, with those marked not writable whose listing is outdated."""
        if not self._outdated:
            return bookies
        return tuple(
            info._replace(is_writable=False) if self._key_of(info) in self._outdated else info
            for info in bookies
        )

    def listed(self, bookies: Iterable[BookieInfo]) -> None:
        """Take a newer list: what it shows anew is not outdated. Of the transaction that is under way that stays known:
        it will not take effect, whoever is listed by now."""
        if self._outdated:
            self._outdated &= {*map(self._key_of, bookies), *self._compared.items()}

    @property
    def has_outdated(self) -> bool:
        return bool(self._outdated)

    def choose(self, members: Iterable[Member], bookies: Iterable[BookieInfo]) -> None:
        """Note that these were chosen from this list. For one that is not writable there the earlier note stays."""
        chosen = set(members)
        for info in bookies:
            if info.is_writable and info.member in chosen:
                self._chosen[info.member.bookie_id] = info.placement

    def compares(self, before: Sequence[Fragment], after: Sequence[Fragment]) -> list[Compare]:
        """The comparisons for the transaction that replaces `before` by `after`. A bookie without a placement, of an
        older build, is not compared."""
        self.is_confirmed = False
        self._unread.clear()
        named = sorted({each.bookie_id for each in newly_seated(before, after)})
        noted = ((bookie_id, self._chosen[bookie_id]) for bookie_id in named)
        self._compared = {bookie_id: number for bookie_id, number in noted if number is not None}
        return [Compare(placement_path(bookie_id), number) for bookie_id, number in self._compared.items()]

    def ask(self) -> list[ReadKey]:
        """After a refused transaction: ask for the placements that it compared, to learn whether one was the reason."""
        self._unread = set(self._compared)
        return [ReadKey((_PLACEMENT, bookie_id), placement_path(bookie_id)) for bookie_id in self._compared]

    @property
    def is_asking(self) -> bool:
        """Whether it is not known yet if one of them was the reason."""
        return bool(self._unread)

    def stop_asking(self) -> None:
        """Wait for no answer any more: the next transaction that is refused asks again."""
        self._unread.clear()

    @staticmethod
    def is_mine(event: KeyRead) -> bool:
        return isinstance(event.tag, tuple) and event.tag[0] == _PLACEMENT

    def take(self, event: KeyRead) -> bool:
        """Take one placement that was read; returns whether it was the last."""
        bookie_id = event.tag[1]
        if bookie_id not in self._unread:
            return False  # It answers an earlier transaction.
        self._unread.discard(bookie_id)
        revision = ABSENT if event.value is None else event.revision
        if self._compared[bookie_id] != revision:
            self._outdated.add((bookie_id, self._compared[bookie_id]))
        return not self._unread

    def withdraw(self) -> None:
        """Forget the transaction: its outcome is known, or decides nothing any more."""
        self._compared, self._unread = {}, set()

    @property
    def is_outdated(self) -> bool:
        """Whether a placement that was compared has changed: then that transaction never comes to pass."""
        return any(pair in self._outdated for pair in self._compared.items())

    @staticmethod
    def _key_of(info: BookieInfo) -> tuple[str, int | None]:
        return info.member.bookie_id, info.placement
