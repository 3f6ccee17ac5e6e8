"""What the copies of one ledger amount to: findings, by kind and place (SCRUB.md). Pure: no reads, no time.

Decides which tasks cover what each seat owes, what a finding is, and which blocks of two bookies are compared. What a
bookie could not tell is neither good nor bad.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from embedbk.codec.digest import DigestType
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.ids import Member
from embedbk.repair.copy_check import CopyBlock, CopyTask, Ranges, ranges_of
from embedbk.repair.owed import Owed, owed_by_seat

__all__ = [
    "BLOCK_IDS",
    "CopyFinding",
    "KINDS",
    "Unit",
    "differing_entries",
    "judge_copies",
    "strays",
    "strays_found",
    "tasks_by_entry",
    "tasks_of",
    "units_of",
]

BLOCK_IDS = 4096  # Ids of one task, whose digests are one sum for each residue.
UNIT_IDS = 16 * BLOCK_IDS  # Ids of one ledger that are judged at once.

KINDS = (
    "missing",
    "crc",
    "mac",
    "replicas-differ",
    "beyond-ensemble",
    "under-Qw",
    "under-Qa",
    "unreadable-bookie",
    "lac-regress",
    "orphan-ledger",
    "dangling-segment",
    "archive-differs",
)


class Unit(NamedTuple):
    """Entries first..last of a ledger. metadata: its last_entry is where reading ends, also where it is not closed."""

    metadata: LedgerMetadata
    first: int
    last: int

    @property
    def ledger_id(self) -> int:
        return self.metadata.ledger_id


class CopyFinding(NamedTuple):
    """One thing that is wrong. ledger_id: None of a list. first, last: the entries; None: of no entries alone. entries:
    how many of first..last. bookie: whose copy; empty: of no single one. log: whose list; empty: of none."""

    kind: str
    ledger_id: int | None
    first: int | None
    last: int | None
    entries: int
    bookie: str
    text: str
    log: str = ""

    def __str__(self) -> str:
        where = [f"log {self.log}"] if self.log else []
        where += [f"ledger {self.ledger_id}"] if self.ledger_id is not None else []
        if self.first is not None:
            where.append(
                f"entry {self.first}" if self.first == self.last else f"entries {self.first} to {self.last}"
            )
        where += [f"on {self.bookie}"] if self.bookie else []
        return f"{self.kind}: {', '.join(where)}: {self.text}"


def units_of(metadata: LedgerMetadata, last: int, first: int = 0) -> Iterator[Unit]:
    """From entry first to last, cut at the same ids always."""
    view = metadata.with_changes(last_entry=last)
    while first <= last:
        end = min(last, first - first % UNIT_IDS + UNIT_IDS - 1)
        yield Unit(view, first, end)
        first = end + 1


def tasks_of(unit: Unit, digest: int, mac_key: bytes) -> Iterator[CopyTask]:
    """What every seat owes of the unit, seat by seat. Bookies of one fragment have the same cuts."""
    for number, fragment in enumerate(unit.metadata.fragments):
        for seat, member in enumerate(fragment.members):
            for owed in owed_by_seat(unit.metadata, number, seat, BLOCK_IDS):
                if owed.last >= unit.first and owed.first <= unit.last:
                    yield CopyTask(unit.ledger_id, member, owed, digest, mac_key)


def _ids(ranges: Ranges, owed: Owed) -> Iterator[int]:
    for first, last in ranges:
        yield from (each for each in range(first, last + 1) if owed.residues >> each % owed.modulus & 1)


def _named(kind: str, unit: Unit, block: CopyBlock, ranges: Ranges, text: str) -> Iterator[CopyFinding]:
    for first, last in ranges:
        count = sum(1 for _ in _ids(((first, last),), block.task.owed))
        yield CopyFinding(kind, unit.ledger_id, first, last, count, block.task.member.bookie_id, text)


def judge_copies(unit: Unit, blocks: Iterable[CopyBlock]) -> list[CopyFinding]:
    """The findings that need no comparison. What a bookie lacks of a ledger that is not closed may be on its way, or
    left to repair behind the close (P4.5): only that fewer than Qa have an entry is wrong there (I4)."""
    found: list[CopyFinding] = []
    lacking: Counter[int] = Counter()
    quorum, is_closed, end = unit.metadata.quorum, unit.metadata.is_closed, unit.metadata.last_entry
    assert end is not None
    for block in blocks:
        bookie_id, owed = block.task.member.bookie_id, block.task.owed
        if is_closed:
            found += _named("missing", unit, block, block.missing, "its bookie does not have it")
        found += _named("crc", unit, block, block.unreadable, "the copy cannot be read, or fails its check")
        kind = "mac" if unit.metadata.digest == DigestType.HMAC else "crc"
        found += _named(kind, unit, block, block.untrue, "the copy fails its tag")
        for ranges in (block.missing, block.unreadable, block.untrue):
            lacking.update(_ids(ranges, owed))
        if block.is_faulty:
            found.append(
                CopyFinding("unreadable-bookie", unit.ledger_id, None, None, 0, bookie_id, block.untold)
            )
        if is_closed and block.lac > end:
            text = f"the bookie knows a LAC of {block.lac}, and the ledger ends at {end}"
            found.append(CopyFinding("lac-regress", unit.ledger_id, None, None, 0, bookie_id, text))
    few = {entry_id: quorum.write_quorum - count for entry_id, count in lacking.items()}
    at_risk = [each for each, left in sorted(few.items()) if left < quorum.ack_quorum]
    under = [each for each, left in sorted(few.items()) if quorum.ack_quorum <= left] if is_closed else []
    every = Owed(unit.first, unit.last, 1, 1, 0)
    for kind, ids, bound in (
        ("under-Qa", at_risk, quorum.ack_quorum),
        ("under-Qw", under, quorum.write_quorum),
    ):
        for first, last in ranges_of(ids, every):
            text = f"at most {max(few[each] for each in range(first, last + 1))} good copies, and {bound} are due"
            found.append(CopyFinding(kind, unit.ledger_id, first, last, last - first + 1, "", text))
    return list(dict.fromkeys(found))


def tasks_by_entry(blocks: Iterable[CopyBlock]) -> list[CopyTask]:
    """For blocks of one unit whose copies may differ: the same reads once more, entry by entry. Copies are compared
    residue by residue, between all bookies that told; one that lacks entries is compared in those that it has."""
    by_range: dict[tuple[int, int], list[CopyBlock]] = defaultdict(list)
    for block in blocks:
        if not block.untold:
            by_range[block.task.owed.first, block.task.owed.last].append(block)
    found: dict[CopyTask, None] = {}
    for several in by_range.values():
        modulus = several[0].task.owed.modulus
        for residue in range(modulus):
            owing = [each for each in several if each.task.owed.residues >> residue & 1]
            is_whole = all(each.is_whole for each in owing)
            if len(owing) > 1 and not (is_whole and len({each.sums[residue] for each in owing}) == 1):
                for each in owing:
                    found[each.task._replace(is_by_entry=True)] = None
    return list(found)


def differing_entries(unit: Unit, blocks: Iterable[CopyBlock]) -> list[CopyFinding]:
    """From the answers to `tasks_by_entry`: entries of which bookies hold copies that differ, each sound by itself."""
    copies: dict[int, dict[str, int]] = defaultdict(dict)
    for block in blocks:
        bad = set(_ids(block.untrue, block.task.owed))
        for entry_id, digest in block.entries:
            if entry_id not in bad:
                copies[entry_id][block.task.member.bookie_id] = digest
    found = []
    for entry_id, held in sorted(copies.items()):
        if len(set(held.values())) > 1:
            text = ", ".join(f"{name}: {digest:016x}" for name, digest in sorted(held.items()))
            found.append(CopyFinding("replicas-differ", unit.ledger_id, entry_id, entry_id, 1, "", text))
    return found


def strays(unit: Unit, findings: Iterable[CopyFinding], there: Mapping[str, Member]) -> list[CopyTask]:
    """Where entries are missing: whether a bookie has them that no seat names for them."""
    tasks: dict[CopyTask, None] = {}
    for finding in findings:
        if finding.kind != "missing" or finding.first is None or finding.last is None:
            continue
        for entry_id in {finding.first, finding.last}:
            named = {member.bookie_id for member in unit.metadata.fragment_of(entry_id).members}
            for name, member in sorted(there.items()):
                if name not in named:
                    last = min(finding.last, finding.first + BLOCK_IDS - 1)
                    owed = Owed(finding.first, last, 1, 1, last - finding.first + 1)
                    tasks[CopyTask(unit.ledger_id, member, owed, is_by_entry=True)] = None
    return list(tasks)


def strays_found(unit: Unit, blocks: Iterable[CopyBlock]) -> list[CopyFinding]:
    found = []
    for block in blocks:
        ids = [entry_id for entry_id, _ in block.entries]
        for first, last in ranges_of(ids, block.task.owed):
            text = "the bookie has it, and has no seat for it, while a bookie that has one lacks it"
            bookie_id = block.task.member.bookie_id
            found.append(
                CopyFinding("beyond-ensemble", unit.ledger_id, first, last, last - first + 1, bookie_id, text)
            )
    return found
