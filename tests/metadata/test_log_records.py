"""The bytes of entries, configurations and records: as on the page, and nothing else is believed (T10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedbk.errors import StorageError
from embedbk.metadata import commands, log_records
from embedbk.metadata.log_records import (
    LOG_RECORD_VERSION,
    NUMBER_MAX,
    check_configuration,
    decode_configuration,
    decode_entry,
    decode_persist,
    encode_configuration,
    encode_entry,
    encode_persist,
)
from embedbk.metadata.quorum import BaseChange, Configuration, MemberId, Policy
from embedbk.metadata.raft_vocabulary import Boot, Entry, Persist

PAGE = (Path(commands.__file__).parent / "METADATA.md").read_text()
M1, M2, M3, M4 = (MemberId(f"m{number}", bytes([number]) * 16) for number in range(1, 5))
JOINT = Configuration(
    (M1, M2, M3),
    (M1,),
    (M4,),
    Policy.ROLLBACK_1,
    Policy.MAJORITY,
    250,
    (M4,),
    ((M1, ("tcp://127.0.0.1:7",)),),
)
ENTRIES = (Entry(8, 2, None), Entry(9, 2, b"\x02\x91\x04"), Entry(10, 3, JOINT))
RECORD = Persist(5, 3, Boot(M2, b"n" * 16), 7, ENTRIES)

DECODERS: list[tuple[Callable[[bytes], Any], bytes]] = [
    (decode_persist, encode_persist(RECORD)),
    (decode_entry, encode_entry(ENTRIES[2])),
    (decode_configuration, encode_configuration(JOINT)),
]


def test_the_arrays_have_the_fields_of_the_page() -> None:
    rows = PAGE.split("| array | fields |\n")[1].splitlines()[1:7]
    told = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    kinds = (log_records._Record, Entry, Boot, MemberId, Configuration, BaseChange)
    names = ["record", "Entry", "Boot", "MemberId", "Configuration", "BaseChange"]
    assert told == [
        [name, ", ".join(kind.__struct_fields__)] for name, kind in zip(names, kinds, strict=True)
    ]
    assert f"it is one byte, version {LOG_RECORD_VERSION}, then a MessagePack" in " ".join(PAGE.split())


def test_what_was_written_is_read() -> None:
    assert decode_persist(encode_persist(RECORD)) == Persist(0, 3, RECORD.vote, 7, ENTRIES)
    empty = Persist(1, 0, None, 0, ())
    assert decode_persist(memoryview(encode_persist(empty))) == Persist(0, 0, None, 0, ())
    for entry in ENTRIES:
        assert decode_entry(encode_entry(entry)) == entry
    assert decode_configuration(encode_configuration(JOINT)) == JOINT


def test_the_bytes_are_those_of_the_page() -> None:
    """A change of these bytes is another version (METADATA.md, 2)."""
    assert encode_persist(Persist(9, 3, Boot(M1, b"nn"), 4, (Entry(5, 2, None), Entry(6, 3, b"c")))) == (
        b"\x01\x94\x03\x92\x92\xa2m1\xc4\x10" + b"\x01" * 16 + b"\xc4\x02nn\x04\x92"
        b"\x93\x05\x02\xc0\x93\x06\x03\xc4\x01c"
    )
    assert encode_configuration(Configuration((M1,)))[:30].startswith(b"\x01")


def test_a_later_build_may_append_fields() -> None:
    """METADATA.md, 2: what is appended is read over by a build before it."""
    array = msgspec.msgpack.decode(encode_persist(RECORD)[1:])
    array[3][0].append("of a later build")
    later = bytes([1]) + msgspec.msgpack.encode([*array, 7])
    assert decode_persist(later) == Persist(0, 3, RECORD.vote, 7, ENTRIES)


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused_with_both_numbers(version: int) -> None:
    for decode, body in DECODERS:
        with pytest.raises(StorageError, match=f"version {version}; this embedbk knows 1"):
            decode(bytes([version]) + body[1:])
        with pytest.raises(StorageError, match="version nothing"):
            decode(b"")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Persist(0, 3, None, 7, (Entry(9, 2, None),)), "entry 9 does not follow entry 7"),
        (Persist(0, 3, None, 7, (Entry(8, 2, None), Entry(8, 2, None))), "entry 8 does not follow entry 8"),
        (Persist(0, 3, None, 7, (Entry(8, 3, None), Entry(9, 2, None))), "entry 9 is of term 2"),
        (Persist(0, 3, None, 7, (Entry(8, 4, None),)), "entry 8 is of term 4; allowed are 1 to 3"),
        (Persist(0, 3, None, 7, (Entry(8, 0, None),)), "entry 8 is of term 0"),
        (Persist(0, -1, None, 7, ()), "term -1"),
        (Persist(0, NUMBER_MAX + 1, None, 7, ()), "term 9223372036854775808"),
        (Persist(0, 3, None, -1, ()), "keep_index -1"),
        (Persist(0, 3, None, NUMBER_MAX, (Entry(NUMBER_MAX + 1, 3, None),)), "does not follow"),
        (Persist(0, 3, Boot(M1, b""), 7, ()), "nonce of 0 bytes"),
        (Persist(0, 3, Boot(M1, b"n" * 65), 7, ()), "nonce of 65 bytes"),
        (Persist(0, 3, Boot(MemberId("m1", b"i" * 15), b"n"), 7, ()), "incarnation of 15 bytes"),
        (Persist(0, 3, Boot(MemberId("no/name", b"i" * 16), b"n"), 7, ()), "name 'no/name' is not allowed"),
        (Persist(0, 3, None, 7, (Entry(8, 3, Configuration(())),)), "it has no voters"),
    ],
)
def test_what_no_member_writes_is_refused_with_its_reason(record: Persist, reason: str) -> None:
    """I65: what a start would build on is checked where the bytes become a value."""
    with pytest.raises(StorageError, match=reason):
        decode_persist(encode_persist(record))


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        (Configuration(()), "no voters"),
        (Configuration((M1, M1)), "twice among its voters"),
        (Configuration((M1,), (M2, M2)), "twice among its outgoing voters"),
        (Configuration(tuple(MemberId(f"m{n}", bytes(16)) for n in range(8))), "a quorum of 8 voters"),
        (Configuration((M1,), tuple(MemberId(f"m{n}", bytes(16)) for n in range(8))), "a quorum of 8"),
        (Configuration((M1,), election_base_ms=0), "election base of 0 ms"),
        (Configuration((M1,), election_base_ms=600_001), "election base of 600001 ms"),
        (Configuration((M1,), base_change=BaseChange(True, -1, "m1", "")), "election base -1"),
        (Configuration((M1,), base_change=BaseChange(True, 1, "m1", "y" * 401)), "has 2 and 401 letters"),
        (Configuration((M1,), learners=(MemberId("", bytes(16)),)), "name '' is not allowed"),
        (Configuration((M1,), retired=(MemberId("m9", b""),)), "incarnation of 0 bytes"),
        (Configuration((M1,), addresses=((MemberId("m9", b""), ()),)), "incarnation of 0 bytes"),
    ],
)
def test_a_configuration_that_no_leader_proposes_is_refused(
    configuration: Configuration, reason: str
) -> None:
    """P10.3: a voter is a name and an incarnation, and stands once."""
    with pytest.raises(StorageError, match=reason):
        check_configuration(configuration)
    with pytest.raises(StorageError, match=reason):
        decode_configuration(encode_configuration(configuration))


def test_a_policy_of_a_later_build_is_no_majority() -> None:
    array = msgspec.msgpack.decode(encode_configuration(JOINT)[1:])
    array[3] = "nobody-knows-it"
    with pytest.raises(StorageError, match="not a configuration"):
        decode_configuration(b"\x01" + msgspec.msgpack.encode(array))


# --- Bytes of others ---------------------------------------------------------------------------------------


def tolerate(decode: Callable[[bytes], Any], body: bytes) -> None:
    try:
        decode(body)
    except StorageError:
        return


@pytest.mark.parametrize("at", range(len(DECODERS)))
def test_every_flipped_byte_and_every_cut_is_a_value_or_the_error(at: int) -> None:
    """T10: and what is a value is one that would be written so."""
    decode, body = DECODERS[at]
    encode: Callable[[Any], bytes] = (encode_persist, encode_entry, encode_configuration)[at]
    for place in range(len(body)):
        tolerate(decode, body[:place])
        for bit in range(8):
            flipped = bytearray(body)
            flipped[place] ^= 1 << bit
            try:
                value = decode(bytes(flipped))
            except StorageError:
                continue
            assert decode(encode(value)) == value


NUMBERS = st.sampled_from([0, 1, -1, 7, 8, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
VALUES = st.recursive(
    st.one_of(NUMBERS, st.binary(max_size=20), st.text(max_size=5), st.none(), st.booleans(), st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_any_value_in_any_place_is_a_value_or_the_error(strange: Any) -> None:
    for decode, body in DECODERS:
        tolerate(decode, b"\x01" + msgspec.msgpack.encode(strange))
        array = msgspec.msgpack.decode(body[1:])
        for place in range(len(array)):
            tolerate(decode, b"\x01" + msgspec.msgpack.encode([*array[:place], strange, *array[place + 1 :]]))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_the_error(body: bytes) -> None:
    for decode, _ in DECODERS:
        tolerate(decode, b"\x01" + body)
    for nested in (b"\x91" * 5000 + b"\xc0", b"\xdd\xff\xff\xff\xff", b"\xa3/\xff\xfe"):
        for decode, _ in DECODERS:
            tolerate(decode, b"\x01" + nested + body)
