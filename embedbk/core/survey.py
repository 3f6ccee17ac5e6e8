"""What bookies hold of one ledger, entry by entry, and where the ledger ends for all of them (P5.2c, P10.5).

This ledger has no metadata, or an older state of it, so it is not known which bookies have its entries: every bookie is
asked for every entry. Decides whether an entry is there, which bookies have it, and what follows where they cannot
tell. Leaves to others: asking (`adopting`), and which bookies are waited for.

Up to the highest LAC that any bookie reported every entry was acknowledged: one that no bookie has is lost, and is
reported so. Behind it the ledger ends before the first entry that every bookie denies.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from embedbk.codec.digest import check_tags, digest_of_entry
from embedbk.codec.entry import ENTRY_HEADER
from embedbk.codec.frame import Frame, frame_of, split
from embedbk.errors import PeerError, StorageError
from embedbk.ids import NO_ENTRY, Member

__all__ = ["ENTRIES_MAX", "HOLDERS_MAX", "SurveyedBookie", "Survey"]

ENTRIES_MAX = 1 << 24  # Entries of a ledger that is surveyed; each takes 28 bytes here.
HOLDERS_MAX = 64  # Bookies that hold entries of one ledger, or get some; each is a bit.

_Ranges = list[tuple[int, int]]  # first..last, both included.


@dataclass(slots=True)
class SurveyedBookie:
    """The answers of one bookie."""

    member: Member
    is_needed: bool  # False: an operator said that it is not waited for.
    is_fenced: bool = False
    is_silent: bool = False  # It does not answer, and is not waited for.
    failing_ns: int | None = None  # Since when it cannot tell; None: its last answer was definite.
    next_entry: int = 0  # It has answered for every entry before.
    absent: _Ranges = field(default_factory=list)  # Explicit negatives, not decided yet.
    unknown: _Ranges = field(default_factory=list)  # Ranges that it did not mention.
    reason: str = ""  # Why it cannot tell, for people.

    def says_no(self, entry_id: int) -> bool:
        return any(first <= entry_id <= last for first, last in self.absent)

    def ask_again(self, entry_id: int) -> None:
        """Ask a bookie again: its answers from this entry on count for nothing."""
        self.next_entry = entry_id
        self.absent = [(first, min(last, entry_id - 1)) for first, last in self.absent if first < entry_id]
        self.unknown = [(first, min(last, entry_id - 1)) for first, last in self.unknown if first < entry_id]

    def forget_before(self, entry_id: int) -> None:
        self.absent = [pair for pair in self.absent if pair[1] >= entry_id]
        self.unknown = [pair for pair in self.unknown if pair[1] >= entry_id]


class Survey:
    """The survey of one ledger."""

    def __init__(self, ledger_id: int, mac_key: bytes, holdings: Sequence[SurveyedBookie]) -> None:
        self.ledger_id = ledger_id
        self.mac_key = mac_key
        self.holdings = {each.member.bookie_id: each for each in holdings}
        self.digest: int | None = None  # By the first entry that was seen.
        self.bits: dict[str, int] = {}  # The bit of each bookie that holds something, or will.
        # By entry id: bits of the bookies that have it, payload bytes of the ledger before and up to it, the CRC32C of
        # its bytes.
        self.masks, self.begins, self.lengths, self.sums = array("Q"), array("Q"), array("Q"), array("I")
        self.lac, self.lac_length = NO_ENTRY, 0
        self.decided = 0  # For every entry before this one it is known whether it is there.
        self.lost: list[int] = []  # Acknowledged, and no bookie has it.
        self.end: int | None = None  # The last entry.
        self.closed_at: int | None = None  # Where it was closed, if that is known: a ledger ends once (I2).

    @property
    def answering(self) -> list[SurveyedBookie]:
        return [each for each in self.holdings.values() if not each.is_silent]

    def learn_lac(self, lac: int, length: int) -> None:
        """Raises StorageError: the ledger is larger than what is looked at."""
        if lac >= ENTRIES_MAX:
            raise StorageError(
                f"ledger {self.ledger_id} has more than {ENTRIES_MAX} entries: its LAC is {lac}"
            )
        if lac > self.lac:
            self.lac, self.lac_length = lac, length

    def bit_of(self, bookie_id: str) -> int:
        """Raises StorageError: too many bookies."""
        if bookie_id not in self.bits and len(self.bits) == HOLDERS_MAX:
            raise StorageError(f"ledger {self.ledger_id}: more than {HOLDERS_MAX} bookies hold entries of it")
        return self.bits.setdefault(bookie_id, len(self.bits))

    def hear(
        self, holding: SurveyedBookie, first: int, last: int, frames: Iterable[memoryview], absent: _Ranges
    ) -> None:
        """Take a bookie's answer for first..last. Entries neither returned nor denied are unknown.

        Raises:
            PeerError: the answer is no entry of this ledger; nothing of it counts.
            StorageError: it has another entry under an id than another bookie, or too many of them.
        """
        tops: list[int] = []
        spoken = [(max(low, first), min(high, last)) for low, high in absent if low <= last and high >= first]
        for frame in [frame_of(body, self.ledger_id) for body in frames]:
            if self._is_tagged(frame):
                spoken += self._take(holding, frame, first, last)
            elif frame.last_entry >= first:
                tops.append(min(frame.last_entry, last))  # Failed copies (P3.1): neither yes nor no.
        spoken.sort()
        top = max(tops + [high for _, high in spoken], default=last)
        holding.absent += [
            pair for pair in ((max(a, first), min(b, last)) for a, b in absent) if pair[0] <= pair[1]
        ]
        expected = first
        for low, high in [*spoken, (top + 1, top + 1)]:
            if expected < low:
                holding.unknown.append((expected, low - 1))
            expected = max(expected, high + 1)
        holding.next_entry = top + 1

    def _is_tagged(self, frame: Frame) -> bool:
        if self.digest is None:
            self.digest = digest_of_entry(next(split(frame))[1])
        try:
            check_tags(frame, self.digest, self.mac_key)
        except PeerError:
            return False
        return True

    def _take(self, holding: SurveyedBookie, frame: Frame, first: int, last: int) -> _Ranges:
        """Note the entries of a sound frame; return the ranges that it covers."""
        said: _Ranges = []
        for entry_id, entry in split(frame):
            if not first <= entry_id <= last:
                continue  # It was not asked for, so no decision waits for it.
            self._note(holding.member.bookie_id, entry_id, entry)
            if said and said[-1][1] == entry_id - 1:
                said[-1] = (said[-1][0], entry_id)
            else:
                said.append((entry_id, entry_id))
        return said

    def _note(self, bookie_id: str, entry_id: int, entry: memoryview) -> None:
        if entry_id >= ENTRIES_MAX:
            raise StorageError(f"ledger {self.ledger_id} has more than {ENTRIES_MAX} entries")
        if entry_id >= len(self.masks):
            more = entry_id + 1 - len(self.masks)
            for numbers in (self.masks, self.begins, self.lengths, self.sums):
                numbers.extend([0] * more)
        _, _, attributes, size, _, _, length, lac, lac_length = ENTRY_HEADER.unpack_from(entry)
        total = _sum(entry)
        if self.masks[entry_id] and (self.sums[entry_id], self.lengths[entry_id]) != (total, length):
            others = ", ".join(name for name, bit in self.bits.items() if self.masks[entry_id] >> bit & 1)
            raise StorageError(
                f"ledger {self.ledger_id}: {bookie_id} has another entry {entry_id} than {others}, and both are sound",
                hint="two writers used one id; nothing was changed, and nobody can know which one is right",
            )
        self.learn_lac(lac, lac_length)
        self.masks[entry_id] |= 1 << self.bit_of(bookie_id)
        self.begins[entry_id], self.lengths[entry_id] = length - (size - attributes), length
        self.sums[entry_id] = total

    def is_copy(self, entry_id: int, entry: memoryview) -> bool:
        """Whether these are the bytes that were seen."""
        return bool(self.masks[entry_id]) and self.sums[entry_id] == _sum(entry)

    def decide(self) -> list[SurveyedBookie]:
        """Decide as far as every bookie has answered. Returns the bookies to ask again, since they cannot tell about an
        entry that no other has: "cannot tell" is never "no" (P5.2c).

        Raises StorageError: entries do not continue from each other.
        """
        limit = min((each.next_entry for each in self.answering), default=0)
        again: list[SurveyedBookie] = []
        while self.end is None:
            entry_id = self.decided
            if self.closed_at is not None and entry_id > self.closed_at:
                self.end = self.closed_at
            if self.end is not None or entry_id >= limit:
                break
            if entry_id < len(self.masks) and self.masks[entry_id]:
                self._follow(entry_id)
            else:
                again = [each for each in self.answering if each.is_needed and not each.says_no(entry_id)]
                if again:
                    break
                if entry_id > self.lac:
                    self.end = entry_id - 1
                    break
                self.lost.append(entry_id)
            self.decided += 1
        for each in again:
            each.ask_again(self.decided)
        for each in self.answering:
            each.forget_before(self.decided)
        return again

    def _follow(self, entry_id: int) -> None:
        is_known = entry_id > 0 and self.masks[entry_id - 1]
        before = self.lengths[entry_id - 1] if is_known else 0
        if self.begins[entry_id] != before and (is_known or entry_id == 0):
            raise StorageError(
                f"ledger {self.ledger_id}: entry {entry_id} begins behind {self.begins[entry_id]} bytes, and {before} "
                "stand before it",
                hint="entries of two ledgers have one id; nothing was changed",
            )

    def found(self) -> Sequence[int]:
        """The bits of the bookies that have it, for each entry up to the end; 0 for one that is lost."""
        assert self.end is not None
        masks = self.masks[: self.end + 1]
        masks.extend([0] * (self.end + 1 - len(masks)))
        return masks

    def length(self) -> int:
        """Payload bytes up to the end."""
        assert self.end is not None
        if self.end < len(self.masks) and self.end >= 0 and self.masks[self.end]:
            return int(self.lengths[self.end])
        return self.lac_length  # The last entry is lost, and the LAC.

    def lost_ranges(self) -> _Ranges:
        ranges: _Ranges = []
        for entry_id in self.lost:
            if ranges and ranges[-1][1] == entry_id - 1:
                ranges[-1] = (ranges[-1][0], entry_id)
            else:
                ranges.append((entry_id, entry_id))
        return ranges


def _sum(entry: memoryview) -> int:
    """The CRC32C at its end, which the scan of its frame has checked."""
    return int.from_bytes(entry[-4:], "little")
