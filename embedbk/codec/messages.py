"""The envelope that all messages share, and the kinds of those between clients and bookies (WIRE.md section 3).

A message is a 32-byte header, a control part (a MessagePack array whose kind the header names) and frames. The
control part is small and per message, never per entry; bodies travel only as frames (ARCHITECTURE.md, data path).
Requests name the incarnation they are for (P7.2); answers carry the request's id.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from embedbk.codec import kernels
from embedbk.codec.add_messages import (
    AddAnswer,
    AddAnswers,
    AddRequest,
    CopiesAnswer,
    FenceAnswer,
    FenceRequest,
    ReplaceAnswer,
    ReplaceRequest,
    pack_add_answers,
)
from embedbk.codec.entry_log_messages import (
    EntryLogsAnswer,
    EntryLogsRequest,
    LogKeepersAnswer,
    LogKeepersRequest,
)
from embedbk.codec.frame import FRAME_HEADER_BYTES, Frame, FrameHeader, decode_frame_header
from embedbk.codec.holdings_messages import (
    HoldingsAnswer,
    HoldingsRequest,
    LedgerBlocksAnswer,
    LedgerBlocksRequest,
)
from embedbk.codec.lac_messages import (
    ExplicitLacAnswer,
    ExplicitLacRequest,
    ExplicitLacs,
    LacAnswer,
    LacHints,
    LacRequest,
)
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.codec.unpacking import unpack
from embedbk.config import MESSAGE_BYTES_MAX
from embedbk.errors import PeerError

__all__ = [
    "Bundle",
    "Control",
    "ErrorAnswer",
    "MESSAGES_PER_BUNDLE_MAX",
    "MESSAGE_HEADER_BYTES",
    "MESSAGE_VERSION",
    "Message",
    "decode_message",
    "encode_add_answers",
    "encode_bundle",
    "encode_control",
    "encode_message",
    "is_lac_for_good",
    "is_normal_add",
    "register_kind",
    "split_bundle",
]

MESSAGE_MAGIC = b"EBKM"
MESSAGE_VERSION = 1
MESSAGE_HEADER_BYTES = 32
FRAMES_PER_MESSAGE_MAX = 1024
MESSAGES_PER_BUNDLE_MAX = 1024
_KIND_AT = 5  # In the header.

# magic, version, kind, frame_count, control_size, frames_size, request_id, crc32c, reserved
_HEADER = struct.Struct("<4sBBHIIQII")
assert _HEADER.size == MESSAGE_HEADER_BYTES


class Bundle(msgspec.Struct, frozen=True, array_like=True):
    """Several messages of one link in one body, which stand whole where frames stand elsewhere. Its request id is 0."""

    sizes: bytes  # The size of each message, a u32; at least two, none of them a bundle.


class ErrorAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The request could not be understood; nothing was done."""

    text: str


Control = msgspec.Struct


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
    return encode_message(0, pack_add_answers(answers))


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
