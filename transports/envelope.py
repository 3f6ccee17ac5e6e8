"""The bytes around every body on a link, and the Hello that opens it (TRANSPORTS.md has the tables; P7.2).

Decides what a node sends first, which peers it accepts, and which bodies belong to a link. Leaves to the transports how
bytes travel and when a silent peer is given up. No I/O here: bytes to values and back.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from embedbk.codec.kernels import crc32c
from embedbk.config import MESSAGE_BYTES_MAX
from embedbk.errors import PeerError, UsageError
from embedbk.ids import INCARNATION_BYTES, START_ID_BYTES, check_bookie_id
from embedbk.ports.links import WRONG_INCARNATION, Identity

__all__ = [
    "CREDIT_BYTES",
    "ENVELOPE_BYTES",
    "ENVELOPE_VERSION",
    "LINK_BYTES_MAX",
    "NONCE_BYTES",
    "PROTOCOL_VERSIONS",
    "WINDOW_BYTES_MIN",
    "Envelope",
    "Hello",
    "Kind",
    "check_settings",
    "decode_envelope",
    "decode_hello",
    "decode_reason",
    "encode_hello",
    "encode_reason",
    "envelope_prefix",
    "foreign_nonces",
    "objection",
    "seal",
    "stranger",
]

ENVELOPE_MAGIC = b"EBKL"
ENVELOPE_VERSION = 1
ENVELOPE_BYTES = 32
NONCE_BYTES = 8  # Each side has one; a link is known by both.
LINK_BYTES_MAX = ENVELOPE_BYTES + MESSAGE_BYTES_MAX  # The largest thing that may stand on a link.

PROTOCOL_VERSIONS = (1, 1)  # Oldest and newest protocol that this code speaks.
CLUSTER_TOKEN_BYTES_MAX = 64
NODE_ID_BYTES_MAX = 127
REASON_BYTES_MAX = 512

# A receiver reports what it has received at least this often, and a sender's bound is larger by the largest
# body: so there is always room again for one body, however large, once the receiver has read what is there.
CREDIT_BYTES = 1 << 20
WINDOW_BYTES_MIN = MESSAGE_BYTES_MAX + CREDIT_BYTES

# magic, version, kind, reserved, dialler's nonce, listener's nonce | length | crc32c of all before it
_PREFIX = struct.Struct("<4sBBH8s8s")
_LENGTH = struct.Struct("<I")
_TAIL = struct.Struct("<II")
assert _PREFIX.size + _TAIL.size == ENVELOPE_BYTES

# protocol min and max, role, size of node id, size of cluster token, incarnation; then node id, cluster token
_HELLO = struct.Struct("<HHBBH16s")
_LEVEL = struct.Struct("<H")

ROLES = {"bookie": 1, "metadata": 2, "client": 3}  # On the wire: never re-used.
_ROLE_NAMES = {number: name for name, number in ROLES.items()}


class Kind(IntEnum):
    """What an envelope holds. Numbers are on the wire: never re-used."""

    HELLO = 1  # The dialler's first: its identity. The listener's nonce is still zero.
    HELLO_ACK = 2  # The listener's answer: its identity. From here on both nonces stand in every envelope.
    DATA = 3  # One body.
    PING = 4  # Nothing was heard for a while: are you there?
    PONG = 5  # I am here, and this many bytes of bodies have reached me on this link.
    BYE = 6  # The link is refused or over, and why.


@dataclass(frozen=True, slots=True)
class Envelope:
    kind: int
    dialler_nonce: bytes
    listener_nonce: bytes
    body: memoryview


@dataclass(frozen=True, slots=True)
class Hello:
    """What each side sends first."""

    identity: Identity
    protocols: tuple[int, int] = PROTOCOL_VERSIONS


# --- Envelope --------------------------------------------------------------------------------------------


def envelope_prefix(kind: Kind, dialler_nonce: bytes, listener_nonce: bytes) -> bytes:
    """The part of the envelope that is the same for all bodies of a kind on a link: made once, then sealed."""
    return _PREFIX.pack(ENVELOPE_MAGIC, ENVELOPE_VERSION, kind, 0, dialler_nonce, listener_nonce)


def seal(prefix: bytes, body_bytes: int) -> bytes:
    """The 32 bytes that stand before a body of this size."""
    length = _LENGTH.pack(body_bytes)
    return b"".join((prefix, length, _LENGTH.pack(crc32c(prefix + length))))


def decode_envelope(block: memoryview) -> Envelope:
    """Raises PeerError, saying what is wrong, for bytes that are not one whole envelope with its body."""
    if len(block) < ENVELOPE_BYTES:
        raise PeerError(f"{len(block)} bytes on a link; an envelope has {ENVELOPE_BYTES}")
    magic, version, kind, reserved, dialler, listener = _PREFIX.unpack_from(block)
    if magic != ENVELOPE_MAGIC:
        raise PeerError(f"bytes on a link begin with {bytes(magic)!r}, not {ENVELOPE_MAGIC!r}")
    if version != ENVELOPE_VERSION:
        raise PeerError(f"envelope version {version} of the peer; this node knows {ENVELOPE_VERSION}")
    length, crc = _TAIL.unpack_from(block, _PREFIX.size)
    if crc != crc32c(block[: ENVELOPE_BYTES - _LENGTH.size]):
        raise PeerError("envelope fails its checksum")
    if length != len(block) - ENVELOPE_BYTES or reserved:
        raise PeerError(f"envelope claims {length} bytes, {len(block) - ENVELOPE_BYTES} came")
    return Envelope(kind, dialler, listener, block[ENVELOPE_BYTES:])


def foreign_nonces(block: memoryview) -> tuple[bytes, bytes] | None:
    """The nonces of a Hello in an envelope version we do not know, to refuse it with a reason; else None.

    The first 24 bytes stay as they are in every version, so that versions can refuse each other.
    """
    if len(block) < _PREFIX.size:
        return None
    magic, version, kind, _, dialler, listener = _PREFIX.unpack_from(block)
    is_foreign = magic == ENVELOPE_MAGIC and version != ENVELOPE_VERSION and kind == Kind.HELLO
    return (dialler, listener) if is_foreign else None


# --- Hello -----------------------------------------------------------------------------------------------


def encode_hello(hello: Hello) -> bytes:
    who, (oldest, newest) = hello.identity, hello.protocols
    node_id = who.node_id.encode("ascii")
    sizes = (len(node_id), len(who.cluster_token))
    header = _HELLO.pack(oldest, newest, ROLES[who.role], *sizes, who.incarnation)
    level = _LEVEL.pack(who.level) if who.start else b""
    return b"".join((header, node_id, who.cluster_token, who.start, level))


def decode_hello(body: memoryview) -> Hello:
    """Raises PeerError for a Hello that is cut short or says what no node says. What is appended is for later."""
    if len(body) < _HELLO.size:
        raise PeerError(f"Hello of {len(body)} bytes; it has at least {_HELLO.size}")
    oldest, newest, role, id_bytes, token_bytes, incarnation = _HELLO.unpack_from(body)
    if token_bytes > CLUSTER_TOKEN_BYTES_MAX or _HELLO.size + id_bytes + token_bytes > len(body):
        raise PeerError(f"Hello claims a node id of {id_bytes} and a token of {token_bytes} bytes")
    if role not in _ROLE_NAMES or oldest > newest:
        raise PeerError(f"Hello with role {role} and protocol versions {oldest}..{newest}")
    end = _HELLO.size + id_bytes
    try:
        node_id = check_bookie_id(bytes(body[_HELLO.size : end]).decode("ascii"))
    except (UnicodeDecodeError, UsageError) as broken:
        raise PeerError("Hello with a node id that is not a name") from broken
    token = bytes(body[end : end + token_bytes])
    start = bytes(body[end + token_bytes : end + token_bytes + START_ID_BYTES])
    if len(start) < START_ID_BYTES:
        start = b""  # A build from before this field sent it.
    end += token_bytes + START_ID_BYTES
    level = _LEVEL.unpack_from(body, end)[0] if end + _LEVEL.size <= len(body) else 0
    return Hello(Identity(_ROLE_NAMES[role], node_id, incarnation, token, start, level), (oldest, newest))


def objection(own: Hello, peer: Hello) -> str | None:
    """Why these two may not have a link, or None: no common protocol version, or another cluster (P7.2)."""
    ours, theirs = own.identity, peer.identity
    if peer.protocols[0] > own.protocols[1] or own.protocols[0] > peer.protocols[1]:
        here, there = "{}..{}".format(*own.protocols), "{}..{}".format(*peer.protocols)
        return f"protocol versions do not meet: {ours.node_id} speaks {here}, {theirs.node_id} speaks {there}"
    if ours.cluster_token and theirs.cluster_token and ours.cluster_token != theirs.cluster_token:
        # It goes to a stranger, too: our own token is not told.
        there = theirs.cluster_token.hex()
        return f"wrong cluster: {theirs.node_id} belongs to {there}, and {ours.node_id} to another one"
    return None


def stranger(expect: Identity | None, peer: Identity) -> str | None:
    """Why the peer is not the member that was dialled, or None. Empty fields are not compared."""
    if expect is None:
        return None
    if expect.role and expect.role != peer.role:
        return f"wrong role: expected a {expect.role}, found {peer.node_id}, a {peer.role}"
    same_id = not expect.node_id or expect.node_id == peer.node_id
    if same_id and (not expect.incarnation or expect.incarnation == peer.incarnation):
        return None
    return (
        f"{WRONG_INCARNATION}: expected {expect.node_id or 'any node'}/{expect.incarnation.hex() or 'any'}, "
        f"found {peer.node_id}/{peer.incarnation.hex()}"
    )


def encode_reason(reason: str) -> bytes:
    return reason.encode("utf-8", "backslashreplace")[:REASON_BYTES_MAX]


def decode_reason(body: memoryview) -> str:
    """What the peer gave as its reason, safe to print: bounded, with everything unprintable escaped (T25)."""
    text = bytes(body[:REASON_BYTES_MAX]).decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


# --- What a transport is opened with ---------------------------------------------------------------------


def check_settings(identity: Identity, protocols: tuple[int, int], window_bytes: int) -> None:
    """Raises UsageError for an identity that Hello cannot carry, versions the wrong way round, too small a window."""
    if identity.role not in ROLES:
        raise UsageError(f"role {identity.role!r} is not allowed: one of {', '.join(ROLES)}")
    check_bookie_id(identity.node_id)
    if len(identity.incarnation) != INCARNATION_BYTES:
        raise UsageError(f"incarnation has {len(identity.incarnation)} bytes; it has {INCARNATION_BYTES}")
    if len(identity.start) not in (0, START_ID_BYTES):
        raise UsageError(f"the number of a start has {len(identity.start)} bytes; it has {START_ID_BYTES}")
    if not 0 <= identity.level < 1 << 16 or (identity.level and not identity.start):
        raise UsageError(
            f"level {identity.level}: allowed are 0 to 65535, and only beside the number of a start"
        )
    if len(identity.cluster_token) > CLUSTER_TOKEN_BYTES_MAX:
        raise UsageError(
            f"cluster token has {len(identity.cluster_token)} bytes; at most {CLUSTER_TOKEN_BYTES_MAX}"
        )
    if not 0 < protocols[0] <= protocols[1] < 1 << 16:
        raise UsageError(f"protocol versions {protocols}: allowed is 1 <= oldest <= newest < 65536")
    if window_bytes < WINDOW_BYTES_MIN:
        raise UsageError(
            f"window_bytes={window_bytes}: at least {WINDOW_BYTES_MIN} (one body and one report)"
        )
