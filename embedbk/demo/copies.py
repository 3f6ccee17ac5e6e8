"""How many copies of each entry are really there: every bookie of every write set is asked for what it holds.

A copy counts when its bookie answers with it and its digest is right. The metadata is asked only where to look.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from embedbk.client import Client
from embedbk.client.waiting import run_blocking
from embedbk.codec import kernels
from embedbk.codec.frame import frame_of
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.quorum import write_set_mask
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import PeerError
from embedbk.ids import Member

__all__ = ["count_copies"]

CHUNK_BYTES = 1 << 20


def count_copies(bk: Client, log: str) -> dict[int, int]:
    """Number of copies -> how many entries of the log have so many, ascending."""
    total: Counter[int] = Counter()
    for segment in bk.log(log).segments():
        if segment.last_entry < 0:
            continue
        with bk.open_ledger(segment.ledger_id) as ledger:
            core = CopyCount(ledger.metadata, segment.last_entry)
        what = f"counting the copies of ledger {segment.ledger_id}"
        copies: bytearray = run_blocking(bk._runtime.run(core, what), "the demo's own")
        total.update(copies)
    return dict(sorted(total.items()))


class CopyCount(Machine):
    """Reads a ledger from all its bookies, each by itself. Ends with a byte per entry: how many hold it."""

    def __init__(self, metadata: LedgerMetadata, last_entry: int) -> None:
        self.metadata = metadata
        self.last_entry = last_entry
        self.copies = bytearray(last_entry + 1)
        self.asked: dict[tuple[int, int], int] = {}  # (fragment, seat) -> the entry it was asked from.

    def _on_started(self, event: Started) -> list[Effect]:
        effects: list[Effect] = []
        for number, fragment in enumerate(self.metadata.fragments):
            for seat in range(len(fragment.ensemble)):
                effects += self._ask(number, seat, fragment.first_entry)
        return effects or [Ended(None, self.copies)]

    def _fragment_last(self, number: int) -> int:
        fragments = self.metadata.fragments
        last = fragments[number + 1].first_entry - 1 if number + 1 < len(fragments) else self.last_entry
        return min(last, self.last_entry)

    def _ask(self, number: int, seat: int, first: int) -> list[Effect]:
        """The next chunk of one bookie; nothing when the fragment is at its end."""
        last = self._fragment_last(number)
        if first > last:
            return []
        quorum, fragment = self.metadata.quorum, self.metadata.fragments[number]
        size = quorum.ensemble_size
        residues = sum(1 << residue for residue in range(size) if write_set_mask(residue, quorum) >> seat & 1)
        member = Member(*fragment.ensemble[seat])
        request = ReadRequest(
            member.incarnation,
            self.metadata.ledger_id,
            first,
            last,
            CHUNK_BYTES,
            modulus=size,
            residues=residues,
        )
        self.asked[number, seat] = first
        return [Send(member, request, (number, seat))]

    def _on_answered(self, event: Answered) -> list[Effect]:
        number, seat = event.tag
        del self.asked[number, seat]
        next_entry = None
        if isinstance(event.control, ReadAnswer):
            for _, body in event.frames:
                next_entry = self._count(body)
        effects = self._ask(number, seat, next_entry) if next_entry is not None else []
        return effects or self._end()

    def _count(self, body: memoryview) -> int | None:
        """Count the entries of one answer; where to go on, None when its bytes are not in order."""
        try:
            frame = frame_of(body, self.metadata.ledger_id)
        except PeerError:
            return None  # No valid copies: none are counted.
        ids, _ = kernels.offsets(body)
        for entry_id in ids.tolist():
            self.copies[entry_id] += 1
        return frame.last_entry + 1

    def _on_failed(self, event: SendFailed) -> list[Effect]:
        number, seat = event.tag
        del self.asked[number, seat]
        return self._end()

    def _end(self) -> list[Effect]:
        return [] if self.asked else [Ended(None, self.copies)]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_failed,
    }
