"""Messages between a client and a bookie, and the envelope that all messages share (WIRE.md section 3).

A message is a 32-byte header, a control part (a MessagePack array whose kind the header names) and frames. The
control part is small and per message, never per entry; bodies travel only as frames (ARCHITECTURE.md, data path).
Requests name the incarnation they are for (P7.2); answers carry the request's id.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import msgspec

from embedbk.codec import kernels
from embedbk.codec.frame import FRAME_HEADER_BYTES, LEDGER_KEY_BYTES, Frame, FrameHeader, decode_frame_header
from embedbk.codec.unpacking import unpack
from embedbk.config import ENSEMBLE_SIZE_MAX, MESSAGE_BYTES_MAX, READ_WAIT_MS_MAX
from embedbk.errors import PeerError
from embedbk.ids import INCARNATION_BYTES, LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "MESSAGE_HEADER_BYTES",
    "MESSAGE_VERSION",
    "ADD_ANSWER_BYTES",
    "AddAnswer",
    "AddAnswers",
    "AddRequest",
    "Bundle",
    "COPIES_MAX",
    "Control",
    "CopiesAnswer",
    "CopyTaken",
    "ENTRY_LOGS_MAX",
    "EntryLogRow",
    "EntryLogsAnswer",
    "EntryLogsRequest",
    "ErrorAnswer",
    "ExplicitLacAnswer",
    "ExplicitLacRequest",
    "ExplicitLacs",
    "EXPLICIT_LACS_MAX",
    "EXPLICIT_LAC_BYTES",
    "FenceAnswer",
    "FenceRequest",
    "BLOCKS_MAX",
    "BLOCK_LEDGERS_MAX",
    "HOLDINGS_IDS_MAX",
    "HOLDINGS_OTHERS_MAX",
    "HeldRange",
    "HoldingsAnswer",
    "HoldingsRange",
    "HoldingsRequest",
    "LedgerBlock",
    "LedgerBlocksAnswer",
    "LedgerBlocksRequest",
    "LAST_LOG_ID",
    "LOG_KEEPERS_MAX",
    "LacAnswer",
    "LogKeeperRow",
    "LogKeepersAnswer",
    "LogKeepersRequest",
    "LacHints",
    "LacRequest",
    "Message",
    "READ_OTHERS_MAX",
    "ReadAnswer",
    "ReadClass",
    "ReadPart",
    "ReadRange",
    "ReadRequest",
    "ReplaceAnswer",
    "ReplaceRequest",
    "Status",
    "MESSAGES_PER_BUNDLE_MAX",
    "decode_message",
    "is_normal_add",
    "encode_add_answers",
    "encode_bundle",
    "encode_control",
    "encode_message",
    "is_answered",
    "is_lac_for_good",
    "pack_explicit_lacs",
    "is_final",
    "register_kind",
    "split_bundle",
]

MESSAGE_MAGIC = b"EBKM"
MESSAGE_VERSION = 1
MESSAGE_HEADER_BYTES = 32
FRAMES_PER_MESSAGE_MAX = 1024
MESSAGES_PER_BUNDLE_MAX = 1024
_KIND_AT = 5  # In the header.

# request_id, nonce, seating, ledger_id, first_entry, last_entry, status, recovery, is_followed, reserved
_ADD_ANSWER = struct.Struct("<QQQQqqBBB5s")
ADD_ANSWER_BYTES = _ADD_ANSWER.size

# ledger_id, lac, lac_length, ledger_key
_EXPLICIT_LAC = struct.Struct("<QqQ16s")
EXPLICIT_LAC_BYTES = _EXPLICIT_LAC.size
EXPLICIT_LACS_MAX = 256
HOLDINGS_CUTS_MAX = 63
_DIGESTS_MAX = (HOLDINGS_CUTS_MAX + 1) * ENSEMBLE_SIZE_MAX  # In one answer.
HOLDINGS_IDS_MAX = 1 << 18  # Ids that one question for holdings may span: its bookie counts them in one go.
ENTRY_LOGS_MAX = 1_024  # In one answer.
LOG_KEEPERS_MAX = 4_096  # Likewise.
LAST_LOG_ID = 2**32 - 1
BLOCK_LEDGERS_MAX = 1_024  # Ids that one block of ledgers spans.
BLOCKS_MAX = 16  # Blocks that one message asks for: their bookie looks at every ledger of them in one go.
HOLDINGS_OTHERS_MAX = 127  # Parts beside its own range, of this ledger or of others.
READ_OTHERS_MAX = 127  # Ranges that one read asks for beside its own, each of another ledger.
COPIES_MAX = 128  # Frames of one message that brings copies.

# magic, version, kind, frame_count, control_size, frames_size, request_id, crc32c, reserved
_HEADER = struct.Struct("<4sBBHIIQII")
assert _HEADER.size == MESSAGE_HEADER_BYTES


class Digests(enum.IntEnum):
    """Which digests are wanted along with a count. Numbers are on the wire: never re-used."""

    NONE = 0
    BY_INDEX = 1  # As the index has them; what it does not have is read, as far as that is little.
    BY_BYTES = 2  # Every entry is read and checked.


class Status(enum.IntEnum):
    """A bookie's verdict on a request. Numbers are on the wire: never re-used."""

    OK = 0
    FENCED = 1  # A normal add of a fenced or dropped ledger (P3.4a).
    IN_LIMBO = 2  # The bookie may have lost entries of this ledger (P7.4).
    WRONG_INCARNATION = 3  # The request is for another disk incarnation (P7.2).
    WRONG_KEY = 4  # Another ledger password (P3.5).
    CONFLICT = 5  # Another payload is stored under this id (P3.4c).
    BAD_FRAME = 6  # A digest or number in the frame is wrong; nothing of it was stored.
    READ_ONLY = 7  # No normal adds here now; fences and recovery adds pass (P7.8).
    NO_SUCH_LEDGER = 8  # An explicit negative: this bookie never stored anything of the ledger (P7.1).
    UNKNOWN = 9  # The bookie cannot tell: I/O error, unreadable entry. Never a negative (P7.1).
    RECEIVED = (
        10  # Answer to a deferred add: held in memory. Another answer follows when it is durable (P3.2).
    )
    # Nothing of the request was done; send it again a little later. More adds wait than are kept (P7.8), or what a
    # class of reads may read in a second is used up (P6.7).
    BUSY = 11


class ReadClass(enum.IntEnum):
    """What entries are read for: a bookie serves the lower numbers first, and bounds the bytes per second of all but
    the first (P6.7). Numbers are on the wire: never re-used."""

    TAIL = 0  # The newest entries, single ones, and everything that a recovery reads: never bounded.
    CATCH_UP = 1  # A reader that goes forward through a ledger.
    BATCH = 2  # A job that reads very much, and that nobody waits for: Spark, archives, exports.
    UPKEEP = 3  # Copies that repair makes, and scrubs.


# Bounds of what a peer may send in these fields; msgspec refuses the rest while it decodes.
_Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
_Key = Annotated[bytes, msgspec.Meta(min_length=LEDGER_KEY_BYTES, max_length=LEDGER_KEY_BYTES)]
_LedgerId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_EntryId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
# Half of the range of entry ids: a range behind a LAC that a lying peer sent still has possible ids.
_Lac = Annotated[int, msgspec.Meta(ge=NO_ENTRY, le=LEDGER_ID_MAX // 2)]
_Modulus = Annotated[int, msgspec.Meta(ge=1, le=ENSEMBLE_SIZE_MAX)]
_Residues = Annotated[int, msgspec.Meta(ge=0)]
_Nonce = Annotated[int, msgspec.Meta(ge=0)]  # Any 64 bits.
_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_ReadClass = Annotated[int, msgspec.Meta(ge=0, le=255)]
_WaitMs = Annotated[int, msgspec.Meta(ge=0, le=READ_WAIT_MS_MAX)]


class AddRequest(msgspec.Struct, frozen=True, array_like=True):
    """One frame to store. The answer comes when all of it is durable, or refuses all of it (P3.2, P3.7). A copy by
    repair may have several frames, of several ledgers, and is answered by `CopiesAnswer`; a build that takes one frame
    answers `ErrorAnswer`."""

    incarnation: _Incarnation
    nonce: _Nonce  # The handle's; an answer counts only for the handle that asked (P3.8).
    seating: _Count  # Rises whenever a seat's holder changes (P1, seat generation).
    recovery: bool  # Passes fences and limbo (P5.2d).
    deferred: bool = False  # Answer RECEIVED at once when it is in memory, and OK when it is durable (P3.2).
    # In a recovery add: a copy that repair makes, which knows no key of a ledger. None is compared, none is bound
    # (P11.2). Only from LEVEL_OF_COPIES on: a bookie of the build before would bind the zeros in its frame's header.
    is_copy: bool = False


class AddAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The whole part first..last of one frame is durable (OK), or why it is not. Never means "all up to" (P3.7)."""

    status: Status
    nonce: _Nonce
    seating: _Count
    recovery: bool
    ledger_id: _LedgerId
    first_entry: _EntryId
    last_entry: _EntryId
    # A reader waits here for a newer LAC, or did lately: it is worth a hint (P6.2). With OK only.
    is_followed: bool = False


class CopyTaken(msgspec.Struct, frozen=True, array_like=True):
    """What became of one frame among several copies: the same words as of an `AddAnswer`."""

    status: Status
    ledger_id: _LedgerId
    first_entry: _EntryId
    last_entry: _EntryId


class CopiesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Every frame whose status is OK is durable (P11.2). copies: in the order of the frames."""

    nonce: _Nonce
    seating: _Count
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


class Bundle(msgspec.Struct, frozen=True, array_like=True):
    """Several messages of one link in one body, which stand whole where frames stand elsewhere. Its request id is 0."""

    sizes: bytes  # The size of each message, a u32; at least two, none of them a bundle.


_STATUSES = frozenset(status.value for status in Status)


class FenceRequest(msgspec.Struct, frozen=True, array_like=True):
    """Fence the ledger and return its LAC (P5.2b)."""

    incarnation: _Incarnation
    ledger_id: _LedgerId
    ledger_key: _Key


class FenceAnswer(msgspec.Struct, frozen=True, array_like=True):
    """OK: the fence is durable. lac is NO_ENTRY where none is known or given (limbo)."""

    status: Status
    ledger_id: _LedgerId
    lac: _Lac = NO_ENTRY
    lac_length: _Count = 0


class ReadRange(msgspec.Struct, frozen=True, array_like=True):
    """A range that a ReadRequest wants beside its own, of another ledger."""

    ledger_id: _LedgerId
    first_entry: _EntryId
    last_entry: _EntryId
    modulus: _Modulus = 1
    residues: _Residues = 1


class ReadRequest(msgspec.Struct, frozen=True, array_like=True):
    """Entries first..last as far as they fit, of those ids with id % modulus in residues (bit r for residue r). others:
    ranges that are wanted as well, without a fence; bytes_max is for all of them together. A build that does not know
    the field answers for its own range alone."""

    incarnation: _Incarnation
    ledger_id: _LedgerId
    first_entry: _EntryId
    last_entry: _EntryId
    bytes_max: _Count
    fence: bool = False  # A recovery read: fences before it looks (P5.2c, P5.2f).
    ledger_key: _Key = bytes(16)  # Checked when fence is set (P3.5).
    modulus: _Modulus = 1
    residues: _Residues = 1
    # A ReadClass; a number beyond those that this build knows counts as the last one.
    reads_as: _ReadClass = ReadClass.TAIL
    others: Annotated[list[ReadRange], msgspec.Meta(max_length=READ_OTHERS_MAX)] = []


class ReadPart(msgspec.Struct, frozen=True, array_like=True):
    """The verdict on one of the other ranges, as of a `ReadAnswer`. BUSY: the others left no room for it."""

    status: Status
    ledger_id: _LedgerId
    absent: list[tuple[int, int]] = []
    wait_ms: _WaitMs = 0


class ReadAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A verdict per id (P5.2c): in the frames = positive; in absent = explicit negative; anything else = unknown.

    absent holds (first, last) ranges, both included. status NO_SUCH_LEDGER makes every asked id absent; a status
    other than OK and NO_SUCH_LEDGER gives no verdict at all. lac is the best this bookie knows. others: of the
    request's other ranges, in their order; each has one frame at most, which names its ledger.
    """

    status: Status
    ledger_id: _LedgerId
    absent: list[tuple[int, int]] = []
    lac: _Lac = NO_ENTRY
    lac_length: _Count = 0
    # With BUSY: the bytes per second of the request's class are used up for so long, and nothing was read (P6.7).
    wait_ms: _WaitMs = 0
    others: Annotated[list[ReadPart], msgspec.Meta(max_length=READ_OTHERS_MAX)] = []


class LacRequest(msgspec.Struct, frozen=True, array_like=True):
    """Tell the LAC without fencing; with wait_ms, answer when it passes after_lac or the ledger is fenced (P6.2)."""

    incarnation: _Incarnation
    ledger_id: _LedgerId
    after_lac: _Lac = NO_ENTRY
    wait_ms: _Count = 0
    bytes_max: _Count = 0  # Above 0: give the entries after_lac + 1 .. LAC along, as far as they fit.


class LacAnswer(msgspec.Struct, frozen=True, array_like=True):
    """With a frame where entries were asked for and are here: positive verdicts only, what is missing is unknown."""

    status: Status
    ledger_id: _LedgerId
    lac: _Lac = NO_ENTRY
    lac_length: _Count = 0
    is_fenced: bool = False


class ExplicitLacRequest(msgspec.Struct, frozen=True, array_like=True):
    """The writer's LAC, sent when it idles so that readers see the last entries (P6.2).

    A hint is kept in memory only and answered at once: it wakes the readers that wait now. The durable LAC follows.
    wants_answer: the bookie answers whether readers wait; else it answers nothing, also if the hint fails.
    """

    incarnation: _Incarnation
    ledger_id: _LedgerId
    ledger_key: _Key
    lac: _Lac
    lac_length: _Count
    is_hint: bool = False
    wants_answer: bool = True


class ExplicitLacs(msgspec.Struct, frozen=True, array_like=True):
    """The LACs of many idle writers, one behind the other: as so many requests that are no hints and want no answer.
    Its request id is 0."""

    incarnation: _Incarnation
    lacs: bytes
    ARE_HINTS: ClassVar[bool] = False

    def unpack(self) -> list[ExplicitLacRequest]:
        """In the order in which they were given.

        Raises:
            PeerError: not whole LACs, too many, or impossible numbers in one.
        """
        count, rest = divmod(len(self.lacs), EXPLICIT_LAC_BYTES)
        if rest or not 1 <= count <= EXPLICIT_LACS_MAX:
            raise PeerError(
                f"LACs of {len(self.lacs)} bytes: allowed are 1 to {EXPLICIT_LACS_MAX} times {EXPLICIT_LAC_BYTES}"
            )
        found: list[ExplicitLacRequest] = []
        for ledger_id, lac, length, key in _EXPLICIT_LAC.iter_unpack(self.lacs):
            if max(ledger_id, length) > LEDGER_ID_MAX or not NO_ENTRY <= lac <= LEDGER_ID_MAX // 2:
                raise PeerError(f"the LAC of ledger {ledger_id} has impossible numbers")
            request = ExplicitLacRequest(
                self.incarnation, ledger_id, key, lac, length, self.ARE_HINTS, wants_answer=False
            )
            found.append(request)
        return found


class LacHints(ExplicitLacs, frozen=True, array_like=True):
    """The LACs of many writers that pause, as so many hints: each is kept in memory only (P6.2)."""

    ARE_HINTS: ClassVar[bool] = True


class ExplicitLacAnswer(msgspec.Struct, frozen=True, array_like=True):
    status: Status
    ledger_id: _LedgerId
    is_awaited: bool = (
        False  # A reader waits here for a newer LAC, or did lately: further ones are worth a hint.
    )


class HoldingsRange(msgspec.Struct, frozen=True, array_like=True):
    """A range that a HoldingsRequest asks for beside its own."""

    ledger_id: _LedgerId
    first_entry: _EntryId
    last_entry: _EntryId
    modulus: _Modulus = 1
    residues: _Residues = 1
    cuts: Annotated[list[_EntryId], msgspec.Meta(max_length=HOLDINGS_CUTS_MAX)] = []


class HoldingsRequest(msgspec.Struct, frozen=True, array_like=True):
    """How many of first..last with id % modulus in residues are durable here (P11.4)? From LEVEL_OF_HOLDINGS on. wants:
    Digests along with it, of the parts that begin with first_entry and with each of cuts; a build that does not know
    these fields answers without digests. others: ranges of which the same is asked; a build that does not know them
    answers for its own range alone."""

    incarnation: _Incarnation
    ledger_id: _LedgerId
    first_entry: _EntryId
    last_entry: _EntryId
    modulus: _Modulus = 1
    residues: _Residues = 1
    cuts: Annotated[list[_EntryId], msgspec.Meta(max_length=HOLDINGS_CUTS_MAX)] = []
    wants: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    others: Annotated[list[HoldingsRange], msgspec.Meta(max_length=HOLDINGS_OTHERS_MAX)] = []


class HeldRange(msgspec.Struct, frozen=True, array_like=True):
    """What is held of one range. OK: so many are durable here. lacking: the first ranges of which none of the ids that
    were asked for is known to be here; that is no negative (P7.1): in limbo, or where something is damaged, more may be
    here than is known. digests: part by part, one for each residue, ascending; None: not known just now; empty: they
    were not asked for, or this build knows none."""

    status: Status
    ledger_id: _LedgerId
    count: _Count = 0
    lacking: Annotated[list[tuple[_EntryId, _EntryId]], msgspec.Meta(max_length=1024)] = []
    digests: Annotated[list[_Nonce | None], msgspec.Meta(max_length=_DIGESTS_MAX)] = []


class HoldingsAnswer(HeldRange, frozen=True, array_like=True):
    """What is held of the request's own range, and of the others, in their order."""

    others: Annotated[list[HeldRange], msgspec.Meta(max_length=HOLDINGS_OTHERS_MAX)] = []


class LedgerBlock(msgspec.Struct, frozen=True, array_like=True):
    """Some ledgers of a range: first_ledger + i for each bit i of mask (bit i % 8 of byte i // 8)."""

    first_ledger: _LedgerId
    mask: Annotated[bytes, msgspec.Meta(min_length=1, max_length=BLOCK_LEDGERS_MAX // 8)]


class LedgerBlocksRequest(msgspec.Struct, frozen=True, array_like=True):
    """One number for the ledgers of each block, which is another one once the answer to a HoldingsRequest about one of
    them may be another one (P11.4)? From LEVEL_OF_BLOCKS on."""

    incarnation: _Incarnation
    blocks: Annotated[list[LedgerBlock], msgspec.Meta(min_length=1, max_length=BLOCKS_MAX)]


class LedgerBlocksAnswer(msgspec.Struct, frozen=True, array_like=True):
    """OK: the numbers, in the order of the blocks; None: it cannot be told whether anything changes there. Numbers of
    this start of the bookie alone are comparable, and mean nothing else."""

    status: Status
    numbers: Annotated[list[_Nonce | None], msgspec.Meta(max_length=BLOCKS_MAX)] = []


class ReplaceRequest(msgspec.Struct, frozen=True, array_like=True):
    """Keep the one entry in the frame instead of the copy whose digest this is (P11.5), by an operator's word alone.
    From LEVEL_OF_CHOICES on."""

    incarnation: _Incarnation
    ledger_id: _LedgerId
    entry_id: _EntryId
    replaces: _Nonce  # The digest of the copy that is held (`entry_digest`). Any 64 bits.


class ReplaceAnswer(msgspec.Struct, frozen=True, array_like=True):
    """OK: the entry of the frame is durable here. CONFLICT: what is held is neither of both; held: its digest, 0 where
    it is not held or cannot be read. Whatever the answer is but OK, nothing was changed by this request."""

    status: Status
    ledger_id: _LedgerId
    entry_id: _EntryId
    held: _Nonce = 0


class EntryLogsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Which entry logs are here, of those with higher ids than `after`? From LEVEL_OF_ENTRY_LOGS on."""

    incarnation: _Incarnation
    after: Annotated[int, msgspec.Meta(ge=-1, le=LAST_LOG_ID)] = -1


class EntryLogRow(msgspec.Struct, frozen=True, array_like=True):
    """One entry log: the number of its ledger directory, what it takes on disk, and how much of that still counts."""

    log_id: Annotated[int, msgspec.Meta(ge=0, le=LAST_LOG_ID)]
    directory: _Count
    file_bytes: _Count
    entries_bytes: _Count
    live_bytes: _Count
    is_damaged: bool = False


class EntryLogsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The next entry logs, by ascending id; has_more: others come behind them."""

    status: Status
    logs: Annotated[list[EntryLogRow], msgspec.Meta(max_length=ENTRY_LOGS_MAX)] = []
    has_more: bool = False


class LogKeepersRequest(msgspec.Struct, frozen=True, array_like=True):
    """Which ledgers, of those with higher ids than `after`, keep this entry log? From LEVEL_OF_KEEPERS on."""

    incarnation: _Incarnation
    log_id: Annotated[int, msgspec.Meta(ge=0, le=LAST_LOG_ID)]
    after: Annotated[int, msgspec.Meta(ge=-1, le=LEDGER_ID_MAX)] = -1


class LogKeeperRow(msgspec.Struct, frozen=True, array_like=True):
    """What of one ledger still counts in an entry log."""

    ledger_id: _LedgerId
    live_entries: _Count
    live_bytes: _Count


class LogKeepersAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The next of those ledgers, by ascending id; has_more: others may come behind them. None: the log is not there any
    more, or nothing of it counts."""

    status: Status
    log_id: Annotated[int, msgspec.Meta(ge=0, le=LAST_LOG_ID)] = 0
    keepers: Annotated[list[LogKeeperRow], msgspec.Meta(max_length=LOG_KEEPERS_MAX)] = []
    has_more: bool = False


class ErrorAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The request could not be understood; nothing was done."""

    text: str


Control = msgspec.Struct


def is_final(answer: Control) -> bool:
    """Every request has one final answer; only a deferred add has another one before it (P3.2)."""
    return not (isinstance(answer, AddAnswer) and answer.status == Status.RECEIVED)


def is_answered(request: Control) -> bool:
    """Every request is answered, except LAC hints that want no answer (P6.2)."""
    if isinstance(request, ExplicitLacRequest):
        return request.wants_answer
    return not isinstance(request, ExplicitLacs)


@dataclass(slots=True)
class Message:
    """One message: control part, and frames with their headers where it carries entries."""

    request_id: int
    control: Control
    frames: list[tuple[FrameHeader, memoryview]] = field(default_factory=list)


_kind_of: dict[type[Control], int] = {}
_decoder_of: dict[int, msgspec.msgpack.Decoder[Control]] = {}
_encode = msgspec.msgpack.Encoder().encode


def register_kind(kind: int, struct_type: type[Control]) -> None:
    """Bind a message kind to its control struct. A number is never re-used (WIRE.md section 3 lists them)."""
    assert kind not in _decoder_of and struct_type not in _kind_of
    _kind_of[struct_type] = kind
    _decoder_of[kind] = msgspec.msgpack.Decoder(struct_type)


for _kind, _struct in (
    (1, AddRequest), (2, AddAnswer), (3, FenceRequest), (4, FenceAnswer), (5, ReadRequest), (6, ReadAnswer),
    (7, LacRequest), (8, LacAnswer), (9, ExplicitLacRequest), (10, ExplicitLacAnswer), (12, AddAnswers), (13, Bundle),
    (15, ErrorAnswer), (16, ExplicitLacs), (17, LacHints), (18, HoldingsRequest), (19, HoldingsAnswer),
    (20, ReplaceRequest), (21, ReplaceAnswer), (22, CopiesAnswer), (23, EntryLogsRequest), (24, EntryLogsAnswer),
    (25, LedgerBlocksRequest), (26, LedgerBlocksAnswer), (27, LogKeepersRequest),
    (28, LogKeepersAnswer),
):  # fmt: skip
    register_kind(_kind, _struct)


_ADD_KIND = _kind_of[AddRequest]
_LAC_KINDS = frozenset({_kind_of[ExplicitLacRequest], _kind_of[ExplicitLacs]})
_BUNDLE_KIND = _kind_of[Bundle]
_bundle_decoder = msgspec.msgpack.Decoder(Bundle)


def encode_add_answers(answers: Sequence[tuple[int, AddAnswer]]) -> list[bytes | memoryview]:
    """One message with the answers to these requests, at most as many as fit: as it is when there is only one."""
    if len(answers) == 1:
        return encode_message(*answers[0])
    packed = b"".join(
        _ADD_ANSWER.pack(
            asked, a.nonce, a.seating, a.ledger_id, a.first_entry, a.last_entry,
            a.status, a.recovery, a.is_followed, b"",
        )
        for asked, a in answers
    )  # fmt: skip
    return encode_message(0, AddAnswers(packed))


def pack_explicit_lacs(requests: Sequence[ExplicitLacRequest]) -> ExplicitLacs:
    """At most `EXPLICIT_LACS_MAX`, of one incarnation, all of them hints or none, and none that wants an answer."""
    pack = _EXPLICIT_LAC.pack
    lacs = [pack(each.ledger_id, each.lac, each.lac_length, each.ledger_key) for each in requests]
    kind = LacHints if requests[0].is_hint else ExplicitLacs
    return kind(requests[0].incarnation, b"".join(lacs))


def encode_control(control: Control) -> bytes:
    """The control part of a message; C writes the rest (native/road/link_adds.h)."""
    return _encode(control)


def encode_message(
    request_id: int, control: Control, frames: Sequence[tuple[bytes, Frame]] = ()
) -> list[bytes | memoryview]:
    """The message as pieces to be sent one after the other as ONE body; frame bodies are borrowed, not copied.

    frames: pairs of an encoded frame header and its frame.
    """
    packed = _encode(control)
    frames_size = sum(FRAME_HEADER_BYTES + len(frame.body) for _, frame in frames)
    assert MESSAGE_HEADER_BYTES + len(packed) + frames_size <= MESSAGE_BYTES_MAX
    pieces = [_head(_kind_of[type(control)], len(frames), packed, frames_size, request_id)]
    for header, frame in frames:
        pieces.append(header)
        pieces.append(frame.body)
    return pieces


def _head(
    kind: int, frame_count: int, control: bytes, frames_size: int, request_id: int
) -> bytes | memoryview:
    """The header and the control part of a message."""
    return kernels.message_head(kind, frame_count, control, frames_size, request_id)


def encode_bundle(messages: Sequence[Sequence[bytes | memoryview]]) -> list[bytes | memoryview]:
    """These messages, each as its pieces, as the pieces of one body; one alone as it is."""
    if len(messages) == 1:
        return list(messages[0])
    sizes = [sum(len(piece) for piece in pieces) for pieces in messages]
    assert 2 <= len(sizes) <= MESSAGES_PER_BUNDLE_MAX
    control = _encode(Bundle(struct.pack(f"<{len(sizes)}I", *sizes)))
    bundled = [_head(_BUNDLE_KIND, 0, control, sum(sizes), 0)]
    for pieces in messages:
        bundled += pieces
    return bundled


def split_bundle(body: memoryview) -> list[memoryview]:
    """The messages that travel in one body: the body itself unless it is a bundle. Their contents are not checked here.

    Raises:
        PeerError: it is marked as a bundle, and is none.
    """
    if len(body) < MESSAGE_HEADER_BYTES or body[_KIND_AT] != _BUNDLE_KIND:
        return [body]
    magic, version, _, frame_count, control_size, size, request_id, crc, reserved = _HEADER.unpack_from(body)
    if magic != MESSAGE_MAGIC or version != MESSAGE_VERSION or frame_count or request_id or reserved:
        raise PeerError(f"no bundle of version {MESSAGE_VERSION}: {magic!r} version {version}")
    begin = MESSAGE_HEADER_BYTES + control_size
    if begin + size != len(body) or len(body) > MESSAGE_BYTES_MAX:
        raise PeerError(f"bundle of {len(body)} bytes claims {control_size} + {size}")
    control = body[MESSAGE_HEADER_BYTES:begin]
    if kernels.crc32c(control, kernels.crc32c(body[:24])) != crc:
        raise PeerError("bundle header or control part fails its digest")
    packed = unpack(_bundle_decoder, control, PeerError, "bundle").sizes
    count = len(packed) // 4
    sizes = struct.unpack_from(f"<{count}I", packed)
    if len(packed) % 4 or not 2 <= count <= MESSAGES_PER_BUNDLE_MAX or sum(sizes) != size:
        raise PeerError(f"bundle of {count} messages whose sizes do not fit its {size} bytes")
    parts: list[memoryview] = []
    for part_size in sizes:
        part = body[begin : begin + part_size]
        if part_size < MESSAGE_HEADER_BYTES or part[_KIND_AT] == _BUNDLE_KIND:
            raise PeerError(f"bundle with a part of {part_size} bytes that is no message")
        parts.append(part)
        begin += part_size
    return parts


def is_lac_for_good(body: bytes | memoryview) -> bool:
    """Whether a body looks like LACs that are no hints, and cost the journal records. Nothing else of it is checked."""
    if len(body) < MESSAGE_HEADER_BYTES or body[_KIND_AT] not in _LAC_KINDS:
        return False
    control_size = _HEADER.unpack_from(body)[4]
    packed = body[MESSAGE_HEADER_BYTES : MESSAGE_HEADER_BYTES + control_size]
    try:
        control = unpack(_decoder_of[body[_KIND_AT]], packed, PeerError, "LAC")
    except PeerError:
        return False
    return not (isinstance(control, ExplicitLacRequest) and control.is_hint)


def is_normal_add(body: bytes | memoryview) -> bool:
    """Whether a body looks like an add that is none of a recovery. Nothing else of it is checked."""
    if len(body) < MESSAGE_HEADER_BYTES or body[_KIND_AT] != _ADD_KIND:
        return False
    control_size = _HEADER.unpack_from(body)[4]
    packed = body[MESSAGE_HEADER_BYTES : MESSAGE_HEADER_BYTES + control_size]
    try:
        control = unpack(_decoder_of[_ADD_KIND], packed, PeerError, "add")
    except PeerError:
        return False
    assert isinstance(control, AddRequest)
    return not control.recovery


def decode_message(body: bytes | memoryview) -> Message:
    """The message in body, its header, control part and frame headers checked; frame bodies are borrowed and
    unchecked (`frame_of` checks every entry).

    Raises:
        PeerError: anything is wrong with it.
    """
    block = memoryview(body)
    if not MESSAGE_HEADER_BYTES <= len(block) <= MESSAGE_BYTES_MAX:
        raise PeerError(
            f"message of {len(block)} bytes: allowed are {MESSAGE_HEADER_BYTES} to {MESSAGE_BYTES_MAX}"
        )
    magic, version, kind, frame_count, control_size, frames_size, request_id, crc, reserved = (
        _HEADER.unpack_from(block)
    )
    if magic != MESSAGE_MAGIC or version != MESSAGE_VERSION or reserved:
        raise PeerError(f"no message of version {MESSAGE_VERSION}: {magic!r} version {version}")
    control_end = MESSAGE_HEADER_BYTES + control_size
    if control_end + frames_size != len(block) or frame_count > FRAMES_PER_MESSAGE_MAX:
        raise PeerError(
            f"message of {len(block)} bytes claims {control_size} + {frames_size} and {frame_count} frames"
        )
    control_part = block[MESSAGE_HEADER_BYTES:control_end]
    if kernels.crc32c(control_part, kernels.crc32c(block[:24])) != crc:
        raise PeerError("message header or control part fails its digest")
    decoder = _decoder_of.get(kind)
    if decoder is None:
        raise PeerError(f"message kind {kind} is not known")
    control = unpack(decoder, control_part, PeerError, f"message kind {kind}")
    frames: list[tuple[FrameHeader, memoryview]] = []
    offset = control_end
    for _ in range(frame_count):
        header = decode_frame_header(block, offset)
        begin = offset + FRAME_HEADER_BYTES
        offset = begin + header.body_size
        if offset > len(block):
            raise PeerError(f"message claims a frame of {header.body_size} bytes beyond its end")
        frames.append((header, block[begin:offset]))
    if offset != len(block):
        raise PeerError(f"message has {len(block) - offset} bytes behind its frames")
    return Message(request_id, control, frames)
