"""What is written at a bookie, and the answers: adds, copies that repair makes or that an operator chose, and the fence
behind which no normal add passes (WIRE.md section 3)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated

import msgspec

from embedbk.codec.bookie_fields import (
    Count,
    EntryId,
    Incarnation,
    Key,
    Lac,
    LedgerId,
    Nonce,
    Status,
)
from embedbk.errors import PeerError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "ADD_ANSWER_BYTES",
    "COPIES_MAX",
    "AddRequest",
    "AddAnswer",
    "CopyTaken",
    "CopiesAnswer",
    "AddAnswers",
    "FenceAnswer",
    "FenceRequest",
    "ReplaceAnswer",
    "ReplaceRequest",
    "is_final",
    "pack_add_answers",
]

# request_id, nonce, seating, ledger_id, first_entry, last_entry, status, recovery, is_followed, reserved
_ADD_ANSWER = struct.Struct("<QQQQqqBBB5s")
ADD_ANSWER_BYTES = _ADD_ANSWER.size
COPIES_MAX = 128  # Frames of one message that brings copies.
_STATUSES = frozenset(status.value for status in Status)


class AddRequest(msgspec.Struct, frozen=True, array_like=True):
    """One frame to store. The answer comes when all of it is durable, or refuses all of it (P3.2, P3.7). A copy by
    repair may have several frames, of several ledgers, and is answered by `CopiesAnswer`; a build that takes one frame
    answers `ErrorAnswer`."""

    incarnation: Incarnation
    nonce: Nonce  # The handle's; an answer counts only for the handle that asked (P3.8).
    seating: Count  # Rises whenever a seat's holder changes (P1, seat generation).
    recovery: bool  # Passes fences and limbo (P5.2d).
    deferred: bool = False  # Answer RECEIVED at once when it is in memory, and OK when it is durable (P3.2).
    # In a recovery add: a copy that repair makes, which knows no key of a ledger. None is compared, none is bound
    # (P11.2). Only from LEVEL_OF_COPIES on: a bookie of the build before would bind the zeros in its frame's header.
    is_copy: bool = False


class AddAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The whole part first..last of one frame is durable (OK), or why it is not. Never means "all up to" (P3.7)."""

    status: Status
    nonce: Nonce
    seating: Count
    recovery: bool
    ledger_id: LedgerId
    first_entry: EntryId
    last_entry: EntryId
    # A reader waits here for a newer LAC, or did lately: it is worth a hint (P6.2). With OK only.
    is_followed: bool = False


class CopyTaken(msgspec.Struct, frozen=True, array_like=True):
    """What became of one frame among several copies: the same words as of an `AddAnswer`."""

    status: Status
    ledger_id: LedgerId
    first_entry: EntryId
    last_entry: EntryId


class CopiesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Every frame whose status is OK is durable (P11.2). copies: in the order of the frames."""

    nonce: Nonce
    seating: Count
    copies: Annotated[list[CopyTaken], msgspec.Meta(min_length=1, max_length=COPIES_MAX)]


class AddAnswers(msgspec.Struct, frozen=True, array_like=True):
    """Several answers to adds of one link, one behind the other, so that a group commit costs a link one message. Its
    own request id is 0; each answer names the request that it is for."""

    answers: bytes

    def unpack(self) -> list[tuple[int, AddAnswer]]:
        """(request id, answer) in the order in which they were given.

        Raises:
            PeerError: not whole answers, or impossible numbers in one.
        """
        if not self.answers or len(self.answers) % ADD_ANSWER_BYTES:
            raise PeerError(
                f"answers to adds of {len(self.answers)} bytes: allowed are multiples of {ADD_ANSWER_BYTES}"
            )
        found = []
        for record in _ADD_ANSWER.iter_unpack(self.answers):
            asked, nonce, seating, ledger_id, first, last, status, recovery, followed, rest = record
            is_possible = (
                status in _STATUSES
                and max(recovery, followed) <= 1
                and first >= 0
                and last >= 0
                and not any(rest)
            )
            if not is_possible or max(seating, ledger_id) > LEDGER_ID_MAX:
                raise PeerError(f"an answer to an add of ledger {ledger_id} has impossible numbers")
            numbers = (nonce, seating, bool(recovery), ledger_id, first, last)
            found.append((asked, AddAnswer(Status(status), *numbers, bool(followed))))
        return found


class FenceRequest(msgspec.Struct, frozen=True, array_like=True):
    """Fence the ledger and return its LAC (P5.2b)."""

    incarnation: Incarnation
    ledger_id: LedgerId
    ledger_key: Key


class FenceAnswer(msgspec.Struct, frozen=True, array_like=True):
    """OK: the fence is durable. lac is NO_ENTRY where none is known or given (limbo)."""

    status: Status
    ledger_id: LedgerId
    lac: Lac = NO_ENTRY
    lac_length: Count = 0


class ReplaceRequest(msgspec.Struct, frozen=True, array_like=True):
    """Keep the one entry in the frame instead of the copy whose digest this is (P11.5), by an operator's word alone.
    From LEVEL_OF_CHOICES on."""

    incarnation: Incarnation
    ledger_id: LedgerId
    entry_id: EntryId
    replaces: Nonce  # The digest of the copy that is held (`entry_digest`). Any 64 bits.


class ReplaceAnswer(msgspec.Struct, frozen=True, array_like=True):
    """OK: the entry of the frame is durable here. CONFLICT: what is held is neither of both; held: its digest, 0 where
    it is not held or cannot be read. Whatever the answer is but OK, nothing was changed by this request."""

    status: Status
    ledger_id: LedgerId
    entry_id: EntryId
    held: Nonce = 0


def is_final(answer: msgspec.Struct) -> bool:
    """Every request has one final answer; only a deferred add has another one before it (P3.2)."""
    return not (isinstance(answer, AddAnswer) and answer.status == Status.RECEIVED)


def pack_add_answers(answers: Sequence[tuple[int, AddAnswer]]) -> AddAnswers:
    """With the id of the request that each is for."""
    packed = b"".join(
        _ADD_ANSWER.pack(
            asked, a.nonce, a.seating, a.ledger_id, a.first_entry, a.last_entry,
            a.status, a.recovery, a.is_followed, b"",
        )
        for asked, a in answers
    )  # fmt: skip
    return AddAnswers(packed)
