"""Whether the copies of a CLOSED ledger are the same, by their digests; and in which entries they are not (P11.4).

Decides what is compared with what, how a difference is narrowed down to entries, and what an entry is whose copies
differ: **bad** on a bookie that has read it and found that it fails its own check, which lacks it then; or a
**conflict**, where each copy is whole by itself. A conflict is named, and nothing is ever copied over it: nobody here
knows which copy is right. What was not told is not compared.

    digests by (fragment, residue) ── all equal ──▶ nothing more
        └── differ ──▶ 64 parts of that ── differ ──▶ 64 parts of those ... ──▶ one entry: read by each of its bookies
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from embedbk.codec.holdings_messages import HOLDINGS_CUTS_MAX, Digests
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.ids import Member

__all__ = [
    "CONFLICTS_MAX",
    "Compared",
    "Conflict",
    "Difference",
    "LedgerCopies",
    "compare",
    "cuts_of",
    "parts_of",
]

CONFLICTS_MAX = 64  # Entries of one ledger that are named; with more, nobody looks for the rest.


class Conflict(NamedTuple):
    """Copies of one entry that differ, each of them whole. copies: (bookie, digest of its copy)."""

    entry_id: int
    copies: tuple[tuple[str, int], ...]


class Difference(NamedTuple):
    """Entries of one residue of which these bookies told different digests, or none yet."""

    first: int  # Of that residue, like last.
    last: int
    modulus: int
    residue: int
    members: tuple[Member, ...]

    @property
    def is_one(self) -> bool:
        return self.first == self.last

    @property
    def cuts(self) -> list[int]:
        """Where the parts begin, into which it is divided, but the first."""
        ids = (self.last - self.first) // self.modulus + 1
        step = -(-ids // (HOLDINGS_CUTS_MAX + 1)) * self.modulus
        return list(range(self.first + step, self.last + 1, step))

    @property
    def wants(self) -> Digests:
        return Digests.BY_BYTES if self.is_one else Digests.BY_INDEX


class Compared(NamedTuple):
    """differing: what is to be narrowed down. conflict: the one entry, where it is one. unclear: bookies whose index
    and bytes tell different digests."""

    differing: list[Difference]
    conflict: Conflict | None = None
    unclear: tuple[str, ...] = ()


def cuts_of(metadata: LedgerMetadata, first: int, last: int) -> list[int]:
    """Where fragments begin in a range that is asked for in one question: what bookies owe alike is comparable."""
    begins = [each.first_entry for each in metadata.fragments if first < each.first_entry <= last]
    return sorted(set(begins))[:HOLDINGS_CUTS_MAX]


def parts_of(
    first: int, last: int, cuts: list[int], modulus: int, residues: int, digests: list[int | None]
) -> Iterator[tuple[tuple[int, int, int, int], int | None]]:
    """Each digest of an answer with (first, last, modulus, residue) of what it is of; nothing where they do not fit."""
    bounds = [first, *cuts, last + 1]
    chosen = [residue for residue in range(modulus) if residues >> residue & 1]
    keys = [
        (begin, end - 1, modulus, residue)
        for begin, end in zip(bounds[:-1], bounds[1:], strict=True)
        for residue in chosen
    ]
    if len(keys) == len(digests):
        yield from zip(keys, digests, strict=True)


@dataclass(slots=True)
class LedgerCopies:
    """What bookies said of one ledger so far."""

    questions: int = 0  # That are out, or will be asked.
    told: dict[tuple[int, int, int, int], dict[Member, int]] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    is_told: bool = True  # Every bookie so far holds all that it was asked for, and told all digests of it.

    def take(self, member: Member, parts: Iterable[tuple[tuple[int, int, int, int], int | None]]) -> None:
        for key, digest in parts:
            if digest is not None:
                self.told.setdefault(key, {})[member] = digest

    def differences(self) -> list[Difference]:
        """Of everything that several bookies told of, what is not the same."""
        found: list[Difference] = []
        for (first, last, modulus, residue), digests in self.told.items():
            if len(set(digests.values())) > 1:
                found += _difference(first, last, modulus, residue, tuple(digests))
        self.told = {}
        return found


def _difference(
    first: int, last: int, modulus: int, residue: int, members: tuple[Member, ...]
) -> list[Difference]:
    """From the first id of the residue to its last one in the range; nothing where it has none."""
    first += (residue - first) % modulus
    last -= (last - residue) % modulus
    return [Difference(first, last, modulus, residue, members)] if first <= last else []


def compare(difference: Difference, answers: Mapping[Member, list[int | None]]) -> Compared:
    """What the answers of its members say of a difference; answers: of those that told."""
    if difference.is_one:
        copies = {member: told[0] for member, told in answers.items() if told and told[0] is not None}
        named = tuple(sorted((member.bookie_id, digest) for member, digest in copies.items()))
        if len(set(copies.values())) > 1:
            return Compared([], Conflict(difference.first, named))
        is_all = len(copies) == len(difference.members)
        return Compared([], None, tuple(name for name, _ in named) if is_all else ())
    bounds = [difference.first, *difference.cuts, difference.last + 1]
    found: list[Difference] = []
    for place, (begin, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        told = {m: a[place] for m, a in answers.items() if len(a) == len(bounds) - 1}
        known = {digest for digest in told.values() if digest is not None}
        if len(told) > 1 and (len(known) > 1 or None in told.values()):
            found += _difference(begin, end - 1, difference.modulus, difference.residue, tuple(told))
    return Compared(found)
