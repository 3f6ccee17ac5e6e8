"""What members send each other, as bytes: what is believed of them, and what any byte of a stranger comes to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedbk.codec import kernels
from embedbk.codec.messages import decode_message
from embedbk.config import MESSAGE_BYTES_MAX
from embedbk.errors import PeerError
from embedbk.metadata.limits import DEFAULT_LIMITS
from embedbk.metadata.log_records import NUMBER_MAX
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_messages import MemberMessage, checked, encode_member_message
from embedbk.metadata.raft_vocabulary import (
    APPEND_ENTRIES_MAX,
    Append,
    AppendReply,
    Body,
    Boot,
    Entry,
    Heartbeat,
    HeartbeatReply,
    Message,
    PreVote,
    PreVoteReply,
    RequestVote,
    Retired,
    SnapshotOffer,
    TimeoutNow,
    Timing,
    VoteReply,
)
from embedbk.metadata.replication import APPEND_BYTES_MAX

M1, M2 = (MemberId(f"m{number}", bytes([number]) * 16) for number in (1, 2))
SENDER = Boot(M1, b"12345678")
WIDE = Configuration((M1, M2), (M1,), retired=(M1,), addresses=((M2, ("tcp://127.0.0.1:7",)),))
BODIES: tuple[Body, ...] = (
    PreVote(8, 5, 3),
    PreVoteReply(8, is_granted=True),
    RequestVote(5, 3, is_transfer=False),
    VoteReply(True, b"87654321"),
    TimeoutNow(),
    Append(5, 3, (Entry(6, 3, None), Entry(7, 4, b"command"), Entry(8, 7, WIDE)), 6),
    Append(0, 0, (), 0),
    AppendReply(is_accepted=False, index=4, hint_term=2),
    Heartbeat(6, 9),
    HeartbeatReply(9, 8, is_installing=True),
    HeartbeatReply(9, 8, is_installing=False, timing=Timing(1, 2, 3, 4, 5, 6, 7)),
    SnapshotOffer(5, 3),
    Retired(12),
)


def said(body: Body, term: int = 7) -> bytes:
    return b"".join(encode_member_message(Message(term, SENDER, M2, body)))


def heard(body: bytes) -> Message:
    control = decode_message(body).control
    assert isinstance(control, MemberMessage)
    return checked(control)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_what_was_said_is_heard(body: Body) -> None:
    assert heard(said(body)) == Message(7, SENDER, M2, body)


def test_a_later_build_may_append_fields() -> None:
    """WIRE.md: unknown fields at the end are passed over."""
    array = msgspec.to_builtins(MemberMessage(7, SENDER, M2, BODIES[5]), builtin_types=(bytes,))
    array[3].append("later")
    array.append(7)
    later = msgspec.convert(array, MemberMessage)
    assert checked(later) == Message(7, SENDER, M2, BODIES[5])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (PreVote(9, 5, 3), "asks for term 9"),
        (PreVote(8, 5, 8), "an entry 5 of term 8"),
        (PreVote(8, 5, 0), "an entry 5 of term 0"),
        (PreVote(8, -1, 0), "last_index -1"),
        (RequestVote(5, 7, is_transfer=False), "an entry 5 of term 7"),
        (RequestVote(0, 3, is_transfer=False), "an entry 0 of term 3"),
        (VoteReply(True, b""), "a nonce of 0 bytes"),
        (VoteReply(True, bytes(65)), "a nonce of 65 bytes"),
        (Append(5, 8, (), 0), "an entry 5 of term 8"),
        (Append(5, 3, (Entry(7, 3, None),), 0), "entry 7 does not follow entry 5"),
        (Append(5, 3, (Entry(6, 2, None),), 0), "entry 6 is of term 2"),
        (Append(5, 3, (Entry(6, 8, None),), 0), "entry 6 is of term 8"),
        (Append(5, 3, (Entry(6, 3, Configuration(())),), 0), "no voters"),
        (Append(-1, 3, (), 0), "previous_index -1"),
        (Append(NUMBER_MAX, 3, (Entry(NUMBER_MAX + 1, 3, None),), 0), "does not follow"),
        (Append(5, 3, (), NUMBER_MAX + 1), "commit_index"),
        (AppendReply(is_accepted=True, index=NUMBER_MAX + 1), "index 92233"),
        (Heartbeat(0, -1), "round -1"),
        (HeartbeatReply(9, 8, is_installing=False, timing=Timing(stalls=-1)), "measured, with stalls -1"),
        (
            HeartbeatReply(9, 8, is_installing=False, timing=Timing(sync_ns=NUMBER_MAX + 1)),
            "with sync_ns 92233",
        ),
        (SnapshotOffer(0, 0), "a snapshot of nothing"),
        (SnapshotOffer(5, 8), "an entry 5 of term 8"),
    ],
)
def test_what_no_member_sends_is_refused_with_its_reason(body: Body, reason: str) -> None:
    """T10: a core believes numbers; what cannot be is refused where the bytes become a value."""
    with pytest.raises(PeerError, match=reason):
        heard(said(body))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(-1, SENDER, M2, Retired(1)), "term -1"),
        (Message(NUMBER_MAX + 1, SENDER, M2, Retired(1)), "term 92233"),
        (Message(0, SENDER, M2, TimeoutNow()), "nobody leads it"),
        (Message(7, Boot(M1, b""), M2, Retired(1)), "nonce of 0 bytes"),
        (Message(7, Boot(MemberId("m1", b""), b"n"), M2, Retired(1)), "incarnation of 0 bytes"),
        (Message(7, SENDER, MemberId("m 2", bytes(16)), Retired(1)), "name 'm 2' is not allowed"),
    ],
)
def test_a_message_names_a_process_and_a_member(message: Message, reason: str) -> None:
    """P10.3: a frame says who sends it, to whom, and in which term."""
    with pytest.raises(PeerError, match=reason):
        heard(b"".join(encode_member_message(message)))


def test_the_largest_append_fits_into_a_message() -> None:
    """RAFT.md, 9: 256 KiB of entries, and the largest command that a client can ask for behind them."""
    largest = DEFAULT_LIMITS.txn_bytes_max + 2 * DEFAULT_LIMITS.txn_operations_max * (
        DEFAULT_LIMITS.key_bytes_max + 64
    )
    log = RaftLog(Configuration((M1,)))
    log.append([Entry(1, 7, bytes(APPEND_BYTES_MAX - 33)), Entry(2, 7, bytes(largest))])
    entries = log.taken(1, APPEND_BYTES_MAX)
    assert len(entries) == 2
    assert len(said(Append(0, 0, entries, 0))) < MESSAGE_BYTES_MAX
    log.append([Entry(index, 7, b"") for index in range(3, 3 + 2 * APPEND_ENTRIES_MAX)])
    smallest = log.taken(3, APPEND_BYTES_MAX)
    assert len(smallest) == APPEND_ENTRIES_MAX
    assert heard(said(Append(2, 7, smallest, 0))).body == Append(2, 7, smallest, 0)
    with pytest.raises(PeerError, match="length <= 8192"):
        heard(said(Append(2, 7, log.between(3, 3 + APPEND_ENTRIES_MAX), 0)))


# --- Bytes of others ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_every_flipped_byte_and_every_cut_is_a_message_or_the_error(body: Body) -> None:
    """T10: past the checksum, too, which is no defence against malice."""
    packed = msgspec.msgpack.encode(MemberMessage(7, SENDER, M2, body))
    decoder = msgspec.msgpack.Decoder(MemberMessage)
    for place in range(len(packed)):
        for bit in range(9):
            changed = bytearray(packed)
            if bit == 8:
                del changed[place:]
            else:
                changed[place] ^= 1 << bit
            try:
                control = decoder.decode(bytes(changed))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # `decode_message` makes the error of it (codec/unpacking.py).
            try:
                message = checked(control)
            except PeerError:
                continue
            assert heard(b"".join(encode_member_message(message))) == message


NUMBERS = st.sampled_from([0, 1, -1, 7, 8, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
VALUES = st.recursive(
    st.one_of(NUMBERS, st.binary(max_size=20), st.text(max_size=5), st.none(), st.booleans(), st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_any_value_in_any_place_is_a_message_or_the_error(strange: Any) -> None:
    for body in BODIES:
        whole = msgspec.to_builtins(MemberMessage(7, SENDER, M2, body), builtin_types=(bytes,))
        for place in (*range(4), *((3, at) for at in range(len(whole[3])))):
            array = [*whole[:3], list(whole[3])]
            if isinstance(place, tuple):
                array[3][place[1]] = strange
            else:
                array[place] = strange
            try:
                heard(_as_a_message(array))
            except PeerError:
                continue


def _as_a_message(array: list[Any]) -> bytes:
    """A whole message with right sums, whatever stands in its control part."""
    return bytes(kernels.message_head(80, 0, msgspec.msgpack.encode(array), 0, 0))
