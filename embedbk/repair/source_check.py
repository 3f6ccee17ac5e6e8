"""Which bookies have other entries of a fragment than its writer published, before any of it is copied (P11.4).

A target keeps the first copy that it got of an entry (P3.4c), so a copy of a wrong one is in the way of the right one.
Decides which seats are asked last. One question on its way for each seat, which its bookie answers from its index. A
bookie that does not tell all of it is neither right nor wrong: the copying itself finds out what it has. Leaves to
others: what is read of whom, and that what was copied is what was published (`fragment_copy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from embedbk.codec.holdings_messages import Digests, HeldRange, HoldingsRequest
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect
from embedbk.errors import PeerError
from embedbk.ids import Member
from embedbk.repair.copy_comparison import parts_of
from embedbk.repair.owed import Owed, held_by, owed_by_seat
from embedbk.repair.published import unlike_published
from embedbk.repair.unanswered import Unanswered

__all__ = ["SOURCE", "SourceCheck"]

SOURCE = "source"  # First part of the tags of its questions.


class SourceCheck:
    """seats: that are asked. numbers: of the last question that this handle asked. The result is None until it is over,
    then the seats whose copies are not what was published."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        number: int,
        seats: Iterable[int],
        numbers: int,
        timeout_ns: int,
        ids_max: int,
    ) -> None:
        self.result: frozenset[int] | None = None
        self._metadata = metadata
        self._members = metadata.fragments[number].members
        self._left = {seat: owed_by_seat(metadata, number, seat, ids_max) for seat in seats}
        self._asked = Unanswered[tuple[int, Owed]](timeout_ns, numbers)  # The seat, and what.
        self._told: dict[tuple[int, int, int, int], dict[Member, int]] = {}

    @property
    def numbers(self) -> int:
        """Of the last question."""
        return self._asked.number

    @property
    def deadline_ns(self) -> int | None:
        return self._asked.deadline_ns

    def begin(self, now_ns: int) -> list[Effect]:
        effects = [effect for seat in self._left for effect in self._ask(seat, now_ns)]
        return [*effects, *self._look()]

    def _ask(self, seat: int, now_ns: int) -> list[Effect]:
        owed = next(self._left[seat], None)
        if owed is None:
            return []
        number = self._asked.ask((seat, owed), now_ns)
        member = self._members[seat]
        ask = HoldingsRequest(member.incarnation, self._metadata.ledger_id, *owed[:4], wants=Digests.BY_INDEX)
        return [Send(member, ask, (SOURCE, number))]

    def _look(self) -> list[Effect]:
        if not self._asked and self.result is None:
            unlike = {each.bookie_id for each in unlike_published(self._metadata, self._told)}
            self.result = frozenset(seat for seat in self._left if self._members[seat].bookie_id in unlike)
        return []

    def on_answered(self, event: Answered) -> list[Effect]:
        asked = self._asked.take(event.tag[1])
        if asked is None:
            return []
        seat, owed = asked
        if not self._take(seat, owed, event.control):
            self._left[seat] = _nothing()
        return [*self._ask(seat, event.now_ns), *self._look()]

    def _take(self, seat: int, owed: Owed, answer: object) -> bool:
        """Whether the bookie told all of it."""
        try:
            count, _ = held_by(answer, self._metadata.ledger_id, owed)
        except PeerError:
            return False
        assert isinstance(answer, HeldRange)
        parts = dict(parts_of(owed.first, owed.last, [], owed.modulus, owed.residues, answer.digests))
        if count < owed.entries or not parts or None in parts.values():
            return False
        for key, digest in parts.items():
            assert digest is not None
            self._told.setdefault(key, {})[self._members[seat]] = digest
        return True

    def on_send_failed(self, event: SendFailed) -> list[Effect]:
        self._asked.take(event.tag[1])
        return self._look()

    def on_tick(self, now_ns: int) -> list[Effect]:
        self._asked.take_late(now_ns)
        return self._look()


def _nothing() -> Iterator[Owed]:
    yield from ()
