"""How much a bookie holds of ledgers, with digests of that, and whether this may have changed (P11.4; WIRE.md section
3)."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from embedbk.codec.bookie_fields import (
    Count,
    EntryId,
    Incarnation,
    LedgerId,
    Modulus,
    Nonce,
    Residues,
    Status,
)
from embedbk.config import ENSEMBLE_SIZE_MAX

__all__ = [
    "BLOCKS_MAX",
    "BLOCK_LEDGERS_MAX",
    "HOLDINGS_CUTS_MAX",
    "HOLDINGS_IDS_MAX",
    "HOLDINGS_OTHERS_MAX",
    "Digests",
    "HoldingsRange",
    "HoldingsRequest",
    "HeldRange",
    "HoldingsAnswer",
    "LedgerBlock",
    "LedgerBlocksRequest",
    "LedgerBlocksAnswer",
]

HOLDINGS_CUTS_MAX = 63
_DIGESTS_MAX = (HOLDINGS_CUTS_MAX + 1) * ENSEMBLE_SIZE_MAX  # In one answer.
HOLDINGS_IDS_MAX = 1 << 18  # Ids that one question for holdings may span: its bookie counts them in one go.
HOLDINGS_OTHERS_MAX = 127  # Parts beside its own range, of this ledger or of others.
BLOCK_LEDGERS_MAX = 1_024  # Ids that one block of ledgers spans.
BLOCKS_MAX = 16  # Blocks that one message asks for: their bookie looks at every ledger of them in one go.


class Digests(enum.IntEnum):
    """Which digests are wanted along with a count. Numbers are on the wire: never re-used."""

    NONE = 0
    BY_INDEX = 1  # As the index has them; what it does not have is read, as far as that is little.
    BY_BYTES = 2  # Every entry is read and checked.


class HoldingsRange(msgspec.Struct, frozen=True, array_like=True):
    """A range that a HoldingsRequest asks for beside its own."""

    ledger_id: LedgerId
    first_entry: EntryId
    last_entry: EntryId
    modulus: Modulus = 1
    residues: Residues = 1
    cuts: Annotated[list[EntryId], msgspec.Meta(max_length=HOLDINGS_CUTS_MAX)] = []


class HoldingsRequest(msgspec.Struct, frozen=True, array_like=True):
    """How many of first..last with id % modulus in residues are durable here (P11.4)? From LEVEL_OF_HOLDINGS on. wants:
    Digests along with it, of the parts that begin with first_entry and with each of cuts; a build that does not know
    these fields answers without digests. others: ranges of which the same is asked; a build that does not know them
    answers for its own range alone."""

    incarnation: Incarnation
    ledger_id: LedgerId
    first_entry: EntryId
    last_entry: EntryId
    modulus: Modulus = 1
    residues: Residues = 1
    cuts: Annotated[list[EntryId], msgspec.Meta(max_length=HOLDINGS_CUTS_MAX)] = []
    wants: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    others: Annotated[list[HoldingsRange], msgspec.Meta(max_length=HOLDINGS_OTHERS_MAX)] = []


class HeldRange(msgspec.Struct, frozen=True, array_like=True):
    """What is held of one range. OK: so many are durable here. lacking: the first ranges of which none of the ids that
    were asked for is known to be here; that is no negative (P7.1): in limbo, or where something is damaged, more may be
    here than is known. digests: part by part, one for each residue, ascending; None: not known just now; empty: they
    were not asked for, or this build knows none."""

    status: Status
    ledger_id: LedgerId
    count: Count = 0
    lacking: Annotated[list[tuple[EntryId, EntryId]], msgspec.Meta(max_length=1024)] = []
    digests: Annotated[list[Nonce | None], msgspec.Meta(max_length=_DIGESTS_MAX)] = []


class HoldingsAnswer(HeldRange, frozen=True, array_like=True):
    """What is held of the request's own range, and of the others, in their order."""

    others: Annotated[list[HeldRange], msgspec.Meta(max_length=HOLDINGS_OTHERS_MAX)] = []


class LedgerBlock(msgspec.Struct, frozen=True, array_like=True):
    """Some ledgers of a range: first_ledger + i for each bit i of mask (bit i % 8 of byte i // 8)."""

    first_ledger: LedgerId
    mask: Annotated[bytes, msgspec.Meta(min_length=1, max_length=BLOCK_LEDGERS_MAX // 8)]


class LedgerBlocksRequest(msgspec.Struct, frozen=True, array_like=True):
    """One number for the ledgers of each block, which is another one once the answer to a HoldingsRequest about one of
    them may be another one (P11.4)? From LEVEL_OF_BLOCKS on."""

    incarnation: Incarnation
    blocks: Annotated[list[LedgerBlock], msgspec.Meta(min_length=1, max_length=BLOCKS_MAX)]


class LedgerBlocksAnswer(msgspec.Struct, frozen=True, array_like=True):
    """OK: the numbers, in the order of the blocks; None: it cannot be told whether anything changes there. Numbers of
    this start of the bookie alone are comparable, and mean nothing else."""

    status: Status
    numbers: Annotated[list[Nonce | None], msgspec.Meta(max_length=BLOCKS_MAX)] = []
