"""Reading forward: which entries of a ledger under recovery are there, and where it ends (P5.2c).

Entry by entry from the start on. Decides whether each is there: one valid copy is enough; where so many seats of its
write set say that they do not have it that no ack quorum can, it is not, and the ledger ends in front of it. An answer
that says neither decides nothing. Decides also in which frames the entries are written back.
Leaves to recovery whom to ask, which copies are sound, and the write-back itself. Pure, and without time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from embedbk.codec.frame import Frame, frame_of, parts, split
from embedbk.config import FRAME_BLOCK_BYTES, Quorum
from embedbk.core.quorum import Verdict, recovery_verdict

__all__ = ["ForwardReading"]


class ForwardReading:
    """What the seats of the last fragment answered, of the entries that are not decided yet."""

    __slots__ = ("absent", "end", "found", "ledger_id", "next_entry", "quorum")

    def __init__(self, ledger_id: int, quorum: Quorum, first: int) -> None:
        self.ledger_id = ledger_id
        self.quorum = quorum
        self.absent: dict[int, list[tuple[int, int]]] = {}  # Seat -> explicit negatives, as ranges.
        self.found: dict[int, bytes] = {}  # Valid copies of entries not decided yet.
        self.next_entry = first  # The next entry to decide.
        self.end: int | None = None  # The last entry, once one after it is known to be absent.

    def note_absent(self, seat: int, ranges: Iterable[Sequence[int]]) -> None:
        """Note that this seat says that it does not have these entries."""
        self.absent.setdefault(seat, []).extend((first, last) for first, last in ranges)

    def has_negative(self, seat: int, entry_id: int) -> bool:
        return any(first <= entry_id <= last for first, last in self.absent.get(seat, ()))

    def take(self, frames: Iterable[Frame]) -> list[Frame]:
        """Take copies, each entry of them checked. Returns what is to be written back of them as it is: a frame that
        goes on without gaps from the next entry is not taken apart."""
        there: list[Frame] = []
        for frame in frames:
            if frame.first_entry <= self.next_entry <= frame.last_entry and not frame.has_gaps:
                there += parts(frame, self.next_entry, FRAME_BLOCK_BYTES)
                self.next_entry = frame.last_entry + 1
                self.found = {key: entry for key, entry in self.found.items() if key >= self.next_entry}
                continue
            for entry_id, entry in split(frame):
                if entry_id >= self.next_entry:
                    self.found.setdefault(entry_id, bytes(entry))
        return there

    def decide(self) -> list[Frame]:
        """Decide what can be decided, in entry order. Returns what is to be written back."""
        there: list[Frame] = []
        run: list[bytes] = []
        size = 0
        while self.end is None:
            entry = self.found.pop(self.next_entry, None)
            if entry is None:
                positive, negative = 0, self._negative_seats(self.next_entry)
                if recovery_verdict(self.next_entry, positive, negative, self.quorum) is Verdict.NOT_THERE:
                    self.end = self.next_entry - 1
                break
            if run and size + len(entry) > FRAME_BLOCK_BYTES:
                there.append(self._frame_of(run))
                run, size = [], 0
            run.append(entry)
            size += len(entry)
            self.next_entry += 1
        if run:
            there.append(self._frame_of(run))
        return there

    def forget_decided(self) -> None:
        """Negatives below the next entry decide nothing any more; a striped ledger has one for every gap."""
        for seat, ranges in self.absent.items():
            self.absent[seat] = [pair for pair in ranges if pair[1] >= self.next_entry]

    def _negative_seats(self, entry_id: int) -> int:
        return sum(1 << seat for seat in self.absent if self.has_negative(seat, entry_id))

    def _frame_of(self, run: list[bytes]) -> Frame:
        return frame_of(memoryview(b"".join(run)), self.ledger_id)
