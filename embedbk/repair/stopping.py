"""Whether nodes may stop, or be lost for good, by what the metadata shows (P11.3).

Decides which ledgers would be below their ack quorum: some write set of a fragment would have fewer than Qa bookies
left, so adds wait. It also decides which ledgers may have an acknowledged entry on the stopping nodes alone. An entry
is on any Qa of its write set; if Qa of these are away, perhaps no bookie can serve it and a recovery cannot end, or it
is lost with their disks. A bookie that is away counts as stopped already. A ledger that cannot be read counts as
unsafe. A bookie that lacks entries of a ledger, as one that was away when they were written, counts as without a copy
of it, and so does one that does not say (`seats_lacking`). Of a ledger that is written to, those entries count that its
bookies know to be acknowledged (`as_if_closed`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    ledger_of_key,
)
from embedbk.core.quorum import write_set
from embedbk.errors import StorageError
from embedbk.ids import Member
from embedbk.repair.holdings import Checked

__all__ = ["StopVerdict", "as_if_closed", "ledgers_of", "ledgers_without", "seats_lacking"]

NAMED_MAX = 8  # Ledgers in one reason.
_NONE_LACKS: Mapping[int, Collection[str]] = MappingProxyType({})


class StopVerdict(NamedTuple):
    """is_safe: there is no reason against it. reasons: sentences for people. ledgers: ids of those that would be below
    their ack quorum, or whose entries may be on these nodes alone; at most 1,000."""

    nodes: tuple[str, ...]
    is_safe: bool
    reasons: tuple[str, ...]
    ledgers: tuple[int, ...] = ()

    def __str__(self) -> str:
        who = ", ".join(self.nodes)
        return (
            f"{who}: yes"
            if self.is_safe
            else f"{who}: no\n" + "\n".join(f"  {each}" for each in self.reasons)
        )


def ledgers_without(
    ledgers: Mapping[str, bytes],
    there: Collection[Member],
    stopping: Collection[str],
    *,
    is_for_good: bool,
    lacking: Mapping[int, Collection[str]] = _NONE_LACKS,
) -> tuple[list[int], list[str]]:
    """Ledgers that need these bookies, and why. there: the registered bookies. stopping: bookie ids. lacking: of
    ledgers the bookies without all that they owe."""
    short: list[int] = []
    alone: list[int] = []
    unread: list[int] = []
    without: set[str] = set()
    for key, value in ledgers.items():
        ledger_id = ledger_of_key(key, LEDGERS_PREFIX)
        if ledger_id is None:
            continue  # A stranger's key, which is no ledger's.
        try:
            metadata = decode_ledger_metadata(value, ledger_id)
        except StorageError:
            unread.append(ledger_id)
            continue
        if not any(name in stopping for each in metadata.fragments for name, _ in each.ensemble):
            continue
        without_copy = lacking.get(ledger_id, ())
        fewest = _fewest(metadata, there, {*stopping, *without_copy}, stopping)
        if fewest < metadata.quorum.ack_quorum:
            short.append(ledger_id)
        elif metadata.quorum.write_quorum - fewest >= metadata.quorum.ack_quorum:
            alone.append(ledger_id)
        else:
            continue
        without.update(name for name in without_copy if name not in stopping)
    reasons = [f"{_named(short)} would be below the ack quorum"] if short else []
    if alone:
        what = "would be lost" if is_for_good else "could be neither read nor recovered meanwhile"
        text = f"entries of {_named(alone)} may be on them, and on those that are away, alone, and {what}"
        reasons.append(text)
    if without:
        reasons.append(f"{', '.join(sorted(without))} may lack entries of them: wait until they are repaired")
    if unread:
        reasons.append(f"the metadata of {_named(unread)} cannot be read, so nobody knows who is needed")
    return sorted({*short, *alone, *unread}), reasons


def ledgers_of(ledgers: Mapping[str, bytes], stopping: Collection[str]) -> dict[int, LedgerMetadata]:
    """The ledgers that name one of these bookies."""
    found: dict[int, LedgerMetadata] = {}
    for key, value in ledgers.items():
        with contextlib.suppress(StorageError):
            metadata = decode_ledger_metadata(value, ledger_of_key(key, LEDGERS_PREFIX))
            if any(name in stopping for each in metadata.fragments for name, _ in each.ensemble):
                found[metadata.ledger_id] = metadata
    return found


def as_if_closed(
    open_ledgers: Mapping[int, LedgerMetadata], lacs: Mapping[int, int]
) -> dict[int, LedgerMetadata]:
    """The ledgers as if they ended where their bookies know them to be acknowledged: so much each seat owes by now."""
    return {
        number: each.with_changes(state=LedgerState.CLOSED, last_entry=lacs[number], length=0)
        for number, each in open_ledgers.items()
    }


def seats_lacking(checked: Checked, there: Collection[Member]) -> dict[int, set[str]]:
    """Of each ledger the bookies that are there and lack entries, or did not say."""
    names = {member.bookie_id for member in there}
    found: dict[int, set[str]] = {}
    for told in (checked.short, checked.untold):
        for ledger_id, bookies in told.items():
            if lacks := names.intersection(bookies):
                found.setdefault(ledger_id, set()).update(lacks)
    return found


def _fewest(
    metadata: LedgerMetadata, there: Collection[Member], out: Collection[str], stopping: Collection[str]
) -> int:
    """The fewest bookies that would be left of any write set, over all fragments that name a stopping bookie. out:
    those that do not count."""
    fewest = metadata.quorum.write_quorum
    for each in metadata.fragments:
        members = each.members
        if not any(member.bookie_id in stopping for member in members):
            continue
        stays = [member in there and member.bookie_id not in out for member in members]
        for residue in range(metadata.quorum.ensemble_size):
            fewest = min(fewest, sum(stays[seat] for seat in write_set(residue, metadata.quorum)))
    return fewest


def _named(ledger_ids: list[int]) -> str:
    more = f" and {len(ledger_ids) - NAMED_MAX} more" if len(ledger_ids) > NAMED_MAX else ""
    return f"ledger{'s' if len(ledger_ids) > 1 else ''} {', '.join(map(str, ledger_ids[:NAMED_MAX]))}{more}"
