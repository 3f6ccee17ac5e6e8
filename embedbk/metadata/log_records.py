"""The bytes of what members of a quorum agree on: entries, configurations, and the record of a step (METADATA.md, 2).

Decides what is believed of them: a record that a member could not have written has a reason and no value. One record
holds all that a step changed (`Persist`), so that a crash keeps it whole or forgets it whole.

Like a command each begins with a version byte, then comes a MessagePack array; fields are only ever appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec

from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError, UsageError
from embedbk.ids import INCARNATION_BYTES, check_bookie_id
from embedbk.metadata.quorum import VOTERS_MAX, Configuration, MemberId, sizes_of
from embedbk.metadata.raft_vocabulary import Boot, Entry, Persist

__all__ = [
    "LOG_RECORD_VERSION",
    "check_boot",
    "check_configuration",
    "check_entries",
    "check_member",
    "decode_configuration",
    "decode_entry",
    "decode_persist",
    "encode_configuration",
    "encode_entry",
    "encode_persist",
]

LOG_RECORD_VERSION = 1
NUMBER_MAX = 2**63 - 1  # The largest index or term.
NONCE_BYTES_MAX = 64
ELECTION_BASE_MS_MAX = 600_000
PROCESSES_KEPT = 64  # Processes found sound lately are remembered: each message names two.
SAID_CHARS_MAX = 400  # Characters of a configuration's texts for people.


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """A `Persist` without its sequence, which belongs to the process that wrote it."""

    term: int
    vote: Boot | None
    keep_index: int
    entries: tuple[Entry, ...]


_encode = msgspec.msgpack.Encoder().encode
_record_decoder = msgspec.msgpack.Decoder(_Record)
_entry_decoder = msgspec.msgpack.Decoder(Entry)
_configuration_decoder = msgspec.msgpack.Decoder(Configuration)

_Value = TypeVar("_Value")


def encode_entry(entry: Entry) -> bytes:
    return bytes([LOG_RECORD_VERSION]) + _encode(entry)


def decode_entry(body: bytes | memoryview) -> Entry:
    """Raises StorageError for bytes that are no entry of a version this code knows."""
    entry = _unpack(_entry_decoder, body, "an entry")
    check_entries((entry,), entry.index - 1, 0, NUMBER_MAX)
    return entry


def encode_configuration(configuration: Configuration) -> bytes:
    return bytes([LOG_RECORD_VERSION]) + _encode(configuration)


def decode_configuration(body: bytes | memoryview) -> Configuration:
    """Raises StorageError for bytes that are no configuration of a version this code knows."""
    configuration = _unpack(_configuration_decoder, body, "a configuration")
    check_configuration(configuration)
    return configuration


def encode_persist(record: Persist) -> bytes:
    """The bytes of a record, without its sequence."""
    fields = _Record(record.term, record.vote, record.keep_index, record.entries)
    return bytes([LOG_RECORD_VERSION]) + _encode(fields)


def decode_persist(body: bytes | memoryview) -> Persist:
    """The record as it was written, with sequence 0.

    Raises:
        StorageError: the bytes are no record of a version this code knows, or one that no member writes: its entries
            are not consecutive, or have a later term than the record.
    """
    record = _unpack(_record_decoder, body, "a step's record")
    _check_number(record.term, "term", 0)
    _check_number(record.keep_index, "keep_index", 0)
    if record.vote is not None:
        check_boot(record.vote)
    check_entries(record.entries, record.keep_index, 0, record.term)
    return Persist(0, record.term, record.vote, record.keep_index, record.entries)


# --- What is believed -------------------------------------------------------------------------------------


def check_entries(entries: Sequence[Entry], after_index: int, after_term: int, term_max: int) -> None:
    """Check that they follow an entry (after_index, after_term) without a gap, and that none has a later term than
    term_max.

    Raises:
        StorageError: one does not; the message names it.
    """
    _check_number(after_index, "index", 0)
    term, term_max = max(1, after_term), min(term_max, NUMBER_MAX)
    for entry in entries:
        if entry.index != after_index + 1 or entry.index > NUMBER_MAX:
            raise StorageError(f"metadata log: entry {entry.index} does not follow entry {after_index}")
        if not term <= entry.term <= term_max:
            raise StorageError(
                f"metadata log: entry {entry.index} is of term {entry.term}; allowed are {term} to {term_max}"
            )
        if isinstance(entry.body, Configuration):
            check_configuration(entry.body)
        after_index, term = entry.index, entry.term


def check_configuration(configuration: Configuration) -> None:
    """Raises StorageError if no leader would propose it (RAFT.md, sections 2 and 7)."""
    for what, members in (("voters", configuration.voters), ("outgoing voters", configuration.outgoing)):
        if len(set(members)) != len(members):
            raise StorageError(f"metadata configuration: a member stands twice among its {what}")
    told = [member for member, _ in configuration.addresses]
    for member in (*configuration.members, *configuration.retired, *told):
        check_member(member)
    if not configuration.voters:
        raise StorageError(f"metadata configuration: it has no voters; allowed are 1 to {VOTERS_MAX}")
    try:
        for voters, policy in (
            (configuration.voters, configuration.policy),
            (configuration.outgoing or configuration.voters, configuration.outgoing_policy),
        ):
            sizes_of(policy, len(voters))
    except UsageError as refused:
        raise StorageError(f"metadata configuration: {refused}") from refused
    if not 1 <= configuration.election_base_ms <= ELECTION_BASE_MS_MAX:
        raise StorageError(
            f"metadata configuration: an election base of {configuration.election_base_ms} ms; allowed are 1 to "
            f"{ELECTION_BASE_MS_MAX}"
        )
    if (change := configuration.base_change) is not None:
        _check_number(change.unix_ms, "time of a change of the election base", 0)
        if max(len(change.by), len(change.why)) > SAID_CHARS_MAX:
            raise StorageError(
                f"metadata configuration: who changed the election base, and why, has {len(change.by)} and "
                f"{len(change.why)} letters; allowed are {SAID_CHARS_MAX}"
            )


@lru_cache(PROCESSES_KEPT)
def check_boot(boot: Boot) -> None:
    """Raises StorageError if it names no process of a member."""
    check_member(boot.member)
    if not 1 <= len(boot.nonce) <= NONCE_BYTES_MAX:
        raise StorageError(
            f"metadata member {boot.member.name}: a nonce of {len(boot.nonce)} bytes; allowed are 1 to "
            f"{NONCE_BYTES_MAX}"
        )


@lru_cache(PROCESSES_KEPT)
def check_member(member: MemberId) -> None:
    """Raises StorageError if it names no member."""
    try:
        check_bookie_id(member.name)
    except UsageError as refused:
        raise StorageError(f"metadata member: {str(refused).replace('bookie id', 'name')}") from refused
    if len(member.incarnation) != INCARNATION_BYTES:
        raise StorageError(
            f"metadata member {member.name}: an incarnation of {len(member.incarnation)} bytes, it has "
            f"{INCARNATION_BYTES}"
        )


def _check_number(number: int, what: str, least: int) -> None:
    if not least <= number <= NUMBER_MAX:
        raise StorageError(f"metadata log: {what} {number}; allowed are {least} to {NUMBER_MAX}")


def _unpack(decoder: msgspec.msgpack.Decoder[_Value], body: bytes | memoryview, what: str) -> _Value:
    block = memoryview(body)
    if not block or block[0] != LOG_RECORD_VERSION:
        found = block[0] if block else "nothing"
        raise StorageError(
            f"metadata log: {what} has version {found}; this embedbk knows {LOG_RECORD_VERSION}"
        )
    return unpack(decoder, block[1:], StorageError, f"metadata log: these {len(block)} bytes are not {what}")
