"""Whether the records that a transaction adds have room in the catalog (P10.7). Pure.

Existing keys may grow into a reserve, so that ledgers close in a full catalog; each session has a share that needs no
room, so that every client with a session can register. Decides by what is held and by the limits, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from embedbk.codec.metadata_messages import Put, Record, Refusal, Txn
from embedbk.metadata.limits import Limits, put_bytes, record_bytes

__all__ = ["RecordOwner", "no_room", "why_no_room", "why_no_room_before"]


class RecordOwner(Protocol):
    """A session, as far as its ephemeral records go."""

    session: int
    keys: dict[str, None]
    ephemeral_bytes: int


RecordOf = Callable[[str], Record | None]


def why_no_room(
    record_of: RecordOf,
    sessions: Mapping[int, RecordOwner],
    session: RecordOwner,
    txn: Txn,
    held: int,
    limits: Limits,
    *,
    makes_way: bool,
    is_reserved: bool = False,
) -> Refusal | None:
    """Why a transaction is refused; None: what it adds has room. A session's first ephemeral records
    (`session_share_bytes`) need none. Existing keys may grow into a reserve, and with makes_way so may a transaction
    that deletes as many keys as it makes. is_reserved: what it makes may use half of that.

    held: bytes of all records beyond the shares of their sessions.
    """
    growth = made = 0
    ephemeral = {session.session: session.ephemeral_bytes}  # By session, in bytes after the transaction.
    count = len(session.keys)
    for change in txn.then:
        before = record_of(change.key)
        if before is not None:
            growth -= record_bytes(before)
            if before.session:
                owned = ephemeral.get(before.session, sessions[before.session].ephemeral_bytes)
                ephemeral[before.session] = owned - record_bytes(before)
                count -= before.session == session.session
        if isinstance(change, Put):
            growth += put_bytes(change)
            if change.is_ephemeral:
                ephemeral[session.session] += put_bytes(change)
                count += 1
            made += before is None
        elif makes_way:
            made -= before is not None
    if count > max(limits.ephemeral_keys_max, len(session.keys)):
        return Refusal(
            "BAD_REQUEST",
            f"{count} ephemeral keys in one session, allowed are {limits.ephemeral_keys_max}",
        )
    share = limits.session_share_bytes
    for number, owned in ephemeral.items():
        growth -= min(share, owned) - min(share, sessions[number].ephemeral_bytes)
    reserve = limits.catalog_reserve_bytes
    if made > 0:
        reserve = reserve // 2 if is_reserved else 0
    allowed = limits.catalog_bytes_max + reserve
    return no_room(held, growth, allowed) if growth > 0 and held + growth > allowed else None


def why_no_room_before(
    record_of: RecordOf, session: RecordOwner, txn: Txn, held: int, limits: Limits
) -> Refusal | None:
    """As `why_no_room`, by the first rules, for commands that were logged under them.

    held: bytes of all records, those within the shares of sessions included.
    """
    growth, ephemeral = 0, len(session.keys)
    for change in txn.then:
        before = record_of(change.key)
        growth -= record_bytes(before) if before else 0
        if isinstance(change, Put):
            growth += put_bytes(change)
            ephemeral += change.is_ephemeral and change.key not in session.keys
    if growth > 0 and held + growth > limits.catalog_bytes_max:
        return no_room(held, growth, limits.catalog_bytes_max)
    if ephemeral > limits.ephemeral_keys_max:
        return Refusal(
            "BAD_REQUEST",
            f"{ephemeral} ephemeral keys in one session, allowed are {limits.ephemeral_keys_max}",
        )
    return None


def no_room(held: int, growth: int, allowed: int) -> Refusal:
    """The refusal of so many bytes more."""
    return Refusal(
        "UNAVAILABLE",
        f"the catalog holds {held} bytes and {growth} more were asked for, allowed are {allowed}: "
        "delete ledgers or logs that nobody needs",
    )
