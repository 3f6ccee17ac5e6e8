"""What must hold in every state of a small world, and across every change of its metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState, decode_ledger_metadata
from embedbk.core.bookie import Bookie
from embedbk.core.recovery import Recovery
from embedbk.ids import NO_ENTRY

__all__ = ["Register", "Storing", "forbidden", "judge"]


class Storing(NamedTuple):
    """A bookie with its disk. told_fence: a positive answer to a fence, or any to a recovery read, has left it."""

    core: Bookie
    entries: dict[int, bytes]
    stable: frozenset[int]
    told_fence: bool


class Register(NamedTuple):
    revision: int
    value: bytes


def judge(
    metadata: LedgerMetadata,
    acked: int,
    disks: Sequence[Storing],
    recoveries: Sequence[Recovery],
    sent: dict[int, bytes],
) -> str | None:
    """The first invariant that is broken. acked: what the writer was told; sent: entries as they were made."""
    for disk in disks:
        if any(sent[entry_id] != entry for entry_id, entry in disk.entries.items()):
            return "content"  # I7, I8
    last = metadata.last_entry if metadata.is_closed else NO_ENTRY
    assert last is not None
    if metadata.is_closed and acked > last:
        return "no truncation"  # I3
    for entry_id in range(max(acked, last) + 1):
        ensemble = {member.incarnation for member in metadata.fragment_of(entry_id).members}
        copies = sum(disk.core.incarnation in ensemble and entry_id in disk.stable for disk in disks)
        if copies < metadata.ack_quorum:
            # I4 while it is acknowledged only, I6 when it is part of a closed ledger.
            return "closed is replicated" if entry_id > acked else "acked is kept"
    for core in recoveries:
        if core.metadata.is_closed and (not metadata.is_closed or core.metadata.last_entry != last):
            return "one end"  # I2
    return None


def forbidden(before: bytes, after: bytes) -> str | None:
    """What a change of the metadata breaks (I2, I15, I18)."""
    old, new = decode_ledger_metadata(before), decode_ledger_metadata(after)
    if old.is_closed:
        return "one closer"
    if old.state == LedgerState.IN_RECOVERY and new.state == LedgerState.OPEN:
        return "life cycle"
    if old.state == LedgerState.IN_RECOVERY and new.state == LedgerState.IN_RECOVERY:
        return "recovery publishes at close"  # I28
    starts = [fragment.first_entry for fragment in new.fragments]
    if starts != sorted(set(starts)) or new.fragments[: len(old.fragments) - 1] != old.fragments[:-1]:
        return "fragment shape"
    return None
