"""Ledgers that a round of the auditor asks nobody about, since nothing about them changed (P11.4).

Ledgers of 1,024 ids are a block. Decides what is remembered of a block, and when that is enough to pass over it: its
metadata and all numbers of its bookies (codec/WIRE.md, LedgerBlocksRequest) are what they were before the last look at
all of its ledgers, in which nothing lacked, differed or stayed untold. Leaves to others: asking for numbers
(`block_questions`), the look itself (`holdings`), and which rounds pass over nothing (`copies_look`).

    metadata of a block, in full ──▶ its bookies' numbers ──▶ the same as remembered? ── yes ─▶ passed over
                                                                     └── no ─▶ forgotten ─▶ look ── clean ─▶ remembered

What must hold:
- Metadata comes first, numbers second, the look last. A change between them has other numbers, or other metadata, in
  the next round, and is looked at then. Were the numbers asked for behind the look, they would hide it.
- A number is remembered of a bookie that named it, in the incarnation that the ledgers name, and of nobody else. One
  bookie that does not tell its number has the block looked at.
- What a look finds in one ledger, of whatever occasion, has its block forgotten.
- Nothing is written down: a new auditor begins without memory, and looks at everything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from embedbk.codec.holdings_messages import BLOCK_LEDGERS_MAX
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.ids import Member

__all__ = ["USUAL_BLOCKS", "BlockOptions", "UnchangedBlocks"]

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class BlockOptions:
    ledgers: int = BLOCK_LEDGERS_MAX  # Ids of one block.
    worth_ledgers: int = 16  # A block with fewer to ask about is asked about by ledgers: that costs less.
    full_rounds: int = 24  # One of so many rounds passes over nothing.
    blocks_max: int = 16_384  # That are remembered; those beyond are looked at in each round.


USUAL_BLOCKS = BlockOptions()


def _digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)


@dataclass(slots=True)
class _MetBlock:
    """What a round has met of one block so far."""

    metadata: hashlib.blake2b = field(default_factory=_digest)
    masks: dict[Member, bytearray] = field(default_factory=dict)  # Ledgers that name the bookie.
    to_check: int = 0
    is_whole: bool = True  # All of its CLOSED ledgers are to be looked at.

    def state(self, numbers: Mapping[Member, int]) -> bytes | None:
        """A digest of the metadata and of the numbers; None: a bookie did not tell its own, or not all is looked at."""
        if not self.is_whole or not self.masks or any(member not in numbers for member in self.masks):
            return None
        state = self.metadata.copy()
        for member in sorted(self.masks):
            state.update(repr((member.bookie_id, member.incarnation, numbers[member])).encode())
        return state.digest()


class UnchangedBlocks:
    """The memory of one auditor: 16 bytes for each block."""

    def __init__(self, options: BlockOptions) -> None:
        self._options = options
        self._clean: dict[
            int, bytes
        ] = {}  # Blocks whose last look found nothing, with their state before it.
        self._looked_at: dict[int, bytes] = {}  # Blocks that are looked at now, likewise.
        self._met: dict[int, _MetBlock] = {}  # What this round met and has not judged yet.
        self._round: set[int] = set()  # Blocks that this round judged. Asked by key only.
        self.is_below_level = False  # The cluster's level does not allow the question; known for this round.

    def block_of(self, ledger_id: int) -> int:
        return ledger_id // self._options.ledgers

    def begin_round(self) -> None:
        self._met, self._round, self._looked_at = {}, set(), {}
        self.is_below_level = False

    def end_round(self) -> None:
        """A round met all ledgers that there are: what it did not meet is gone."""
        self._clean = {block: state for block, state in self._clean.items() if block in self._round}

    def meet(
        self, ledger_id: int, value: bytes, metadata: LedgerMetadata | None, *, is_to_check: bool
    ) -> None:
        """The round met a ledger, in the order of their ids. metadata: None: its value cannot be read."""
        block, place = divmod(ledger_id, self._options.ledgers)
        met = self._met.setdefault(block, _MetBlock())
        met.metadata.update(ledger_id.to_bytes(8, "big") + len(value).to_bytes(8, "big"))
        met.metadata.update(value)
        if metadata is None or not metadata.is_closed:
            return  # No bookie is asked about it. When that changes, so does its value.
        met.is_whole &= is_to_check
        met.to_check += is_to_check
        for fragment in metadata.fragments:
            for member in fragment.members:
                mask = met.masks.setdefault(member, bytearray(-(-self._options.ledgers // 8)))
                mask[place // 8] |= 1 << place % 8

    def met_until(self, ledger_id: int | None) -> list[int]:
        """Blocks of which this round has met everything, when it came to that ledger; None: to the end."""
        return [block for block in self._met if ledger_id is None or block < self.block_of(ledger_id)]

    def to_ask(self, blocks: Iterable[int]) -> dict[int, tuple[int, dict[Member, bytes]]]:
        """Of blocks that are worth it: the first ledger id, and for each bookie the mask of ledgers to ask about."""
        if self.is_below_level:
            return {}
        asked: dict[int, tuple[int, dict[Member, bytes]]] = {}
        for block in blocks:
            met = self._met[block]
            if met.is_whole and met.to_check >= self._options.worth_ledgers:
                masks = {member: bytes(mask) for member, mask in met.masks.items()}
                asked[block] = block * self._options.ledgers, masks
        return asked

    def judge(
        self, blocks: Iterable[int], numbers: Mapping[int, Mapping[Member, int]], *, is_full: bool
    ) -> set[int]:
        """The blocks of these that are passed over; the others are looked at next. numbers: that were asked for by
        `to_ask`, as far as they were told. is_full: nothing is passed over."""
        passed: set[int] = set()
        self._looked_at = {}
        for block in blocks:
            self._round.add(block)
            state = self._met.pop(block).state(numbers.get(block, {}))
            if state is not None and not is_full and self._clean.get(block) == state:
                passed.add(block)
                continue
            self._clean.pop(block, None)
            if state is not None:
                self._looked_at[block] = state
        return passed

    def take_look(self, ledgers: Iterable[int], sound: AbstractSet[int]) -> None:
        """A look at these ledgers is over. sound: those of which every bookie told that it holds all, and the same as
        the others. A block with another ledger among them is not remembered."""
        unclean = {self.block_of(ledger_id) for ledger_id in ledgers if ledger_id not in sound}
        for block in unclean:
            self._clean.pop(block, None)
            self._looked_at.pop(block, None)

    def end_look(self) -> None:
        """All ledgers of the blocks that `judge` left to a look were looked at: what is sound is remembered."""
        for block, state in self._looked_at.items():
            if len(self._clean) < self._options.blocks_max:
                self._clean[block] = state
        self._looked_at = {}
