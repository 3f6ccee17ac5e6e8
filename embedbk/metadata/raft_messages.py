"""The bytes of messages between members of a quorum (WIRE.md, 5; RAFT.md).

Decides which messages are accepted before a core sees them: they have the right form, and numbers that a member could
have sent. `host/peers.py` checks that the sender is the one it claims to be, and that the message is meant for this
member; `raft.py` checks the term.
"""

from __future__ import annotations

import enum
from functools import cache
from typing import Annotated

import msgspec
import msgspec.structs

from embedbk.codec.messages import encode_message, register_kind
from embedbk.errors import PeerError, StorageError
from embedbk.metadata.log_records import NONCE_BYTES_MAX, NUMBER_MAX, check_boot, check_entries, check_member
from embedbk.metadata.quorum import MemberId
from embedbk.metadata.raft_vocabulary import (
    Append,
    Body,
    Boot,
    Heartbeat,
    HeartbeatReply,
    Message,
    PreVote,
    RequestVote,
    SnapshotOffer,
    TimeoutNow,
    VoteReply,
)

__all__ = [
    "PIECE_BYTES_MAX",
    "MemberMessage",
    "PullStatus",
    "SnapshotPiece",
    "SnapshotPull",
    "checked",
    "encode_member_message",
]

PIECE_BYTES_MAX = 1 << 20  # Bytes of a snapshot in one message.


_Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]  # msgspec refuses the rest while it decodes.


class MemberMessage(msgspec.Struct, frozen=True, array_like=True):
    """A `Message` on the wire: the sending process, its term, and the receiver."""

    term: int
    sender: Boot
    receiver: MemberId
    body: Body


class SnapshotPull(msgspec.Struct, frozen=True, array_like=True):
    """Send the bytes of this snapshot's file from offset on; the sender has everything before. bytes_max 0: the
    sender needs it no more, and gets no answer; it does not send this if the link ends with the pull."""

    sender: Boot
    receiver: MemberId
    index: _Number
    term: _Number
    offset: _Number
    bytes_max: _Number


class PullStatus(enum.IntEnum):
    """Numbers are on the wire: never re-used."""

    OK = 0
    GONE = 1  # That member keeps no such snapshot; it may have another.
    LATER = 2  # It cannot be read now, or others pull too much: ask again.


class SnapshotPiece(msgspec.Struct, frozen=True, array_like=True):
    """The answer, with the size and the digest that the source's log has for the file."""

    sender: Boot
    receiver: MemberId
    index: _Number
    term: _Number
    offset: _Number
    status: PullStatus
    file_bytes: _Number = 0
    digest: Annotated[bytes, msgspec.Meta(max_length=64)] = b""
    data: bytes = b""


for _kind, _struct in ((80, MemberMessage), (81, SnapshotPull), (82, SnapshotPiece)):
    register_kind(_kind, _struct)


def encode_member_message(message: Message) -> list[bytes | memoryview]:
    """The pieces of one body. Its request id is 0: answers name what they answer by themselves."""
    return encode_message(0, MemberMessage(message.term, message.sender, message.receiver, message.body))


def checked(control: MemberMessage) -> Message:
    """The message, if some member could have sent it.

    Raises:
        PeerError: no member sends this.
    """
    body = control.body
    what = type(body).__name__
    _check_numbers(what, control)
    _check_numbers(what, body)
    if isinstance(body, HeartbeatReply) and body.timing is not None:
        _check_numbers(f"{what}, of what it measured,", body.timing)
    try:
        check_boot(control.sender)
        check_member(control.receiver)
        if isinstance(body, Append):
            check_entries(body.entries, body.previous_index, body.previous_term, control.term)
    except StorageError as refused:
        raise PeerError(f"a member's {what}: {refused}") from refused
    reason = _why_impossible(control.term, body)
    if reason:
        raise PeerError(f"a member's {what} in term {control.term}: {reason}")
    return Message(control.term, control.sender, control.receiver, body)


def _check_numbers(what: str, fields: msgspec.Struct) -> None:
    for name in _numbers_of(type(fields)):
        number = getattr(fields, name)
        if not 0 <= number <= NUMBER_MAX:
            raise PeerError(f"a member's {what} with {name} {number}; allowed are 0 to {NUMBER_MAX}")


@cache
def _numbers_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that are numbers."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.type is int)


def _why_impossible(term: int, body: Body) -> str:
    """Why no member sends this: its term is older than that of its log or of its vote, say; empty: one may."""
    match body:
        case PreVote(next_term, last_index, last_term):
            if next_term != term + 1:
                return f"it asks for term {next_term}"
            return _why_no_place(last_index, last_term, term)
        case RequestVote(last_index, last_term):
            return _why_no_place(last_index, last_term, term - 1)
        case VoteReply(_, nonce):
            return "" if 1 <= len(nonce) <= NONCE_BYTES_MAX else f"a nonce of {len(nonce)} bytes"
        case Append(previous_index, previous_term):
            return _why_no_place(previous_index, previous_term, term)
        case SnapshotOffer(index, snapshot_term):
            return _why_no_place(index, snapshot_term, term) if index else "a snapshot of nothing"
        case TimeoutNow() | Heartbeat():
            return "" if term else "nobody leads it"
    return ""


def _why_no_place(index: int, of_term: int, term_max: int) -> str:
    if of_term > term_max or (index == 0) != (of_term == 0):
        return f"an entry {index} of term {of_term}"
    return ""
