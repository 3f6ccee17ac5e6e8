"""Every decoder against bytes that nobody should send: a value, or its own error, and nothing else (T10)."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import embedbk.codec
from embedbk.codec import kernels, messages
from embedbk.codec.add_messages import AddAnswers
from embedbk.codec.adopted import AdoptedLedger, decode_adopted, encode_adopted
from embedbk.codec.copy_decision import (
    CopyDecision,
    DecidedCopy,
    decode_copy_decisions,
    encode_copy_decisions,
)
from embedbk.codec.frame import decode_frame_header, frame_of
from embedbk.codec.journal_records import decode_explicit_lac, decode_gone, decode_key
from embedbk.codec.lac_messages import ExplicitLacs
from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    LogList,
    LogPages,
    LogSegment,
    decode_changed_metadata,
    decode_ledger_metadata,
    decode_ledgers_left,
    decode_log_list,
    encode_ledger_metadata,
    encode_log_list,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.log_archives import (
    ArchivePlace,
    ArchiveRecord,
    ArchiveState,
    decode_archive_record,
    encode_archive_record,
)
from embedbk.codec.log_cursors import (
    CursorRecord,
    LogCursors,
    NamedCursor,
    decode_cursor,
    decode_log_cursors,
    encode_cursor,
    encode_log_cursors,
)
from embedbk.codec.log_identity import (
    LogIdentity,
    LogIdentityState,
    LogPointer,
    decode_log_identity,
    decode_log_pointer,
    encode_log_identity,
    encode_log_pointer,
)
from embedbk.codec.log_pages import LogPage, decode_log_page, encode_log_page
from embedbk.codec.log_pins import LogPins, PinRecord, decode_log_pins, encode_log_pins
from embedbk.codec.log_settings import RollRecord, SettingsRecord, decode_log_settings, encode_log_settings
from embedbk.codec.log_splices import (
    LogSplices,
    SplicedRecord,
    SpliceRequest,
    StagedRecord,
    decode_log_splices,
    decode_splice_request,
    decode_staged,
    encode_log_splices,
    encode_splice_request,
    encode_staged,
)
from embedbk.codec.messages import decode_message, is_lac_for_good, is_normal_add, split_bundle
from embedbk.codec.registration import (
    Cookie,
    PlacementNote,
    ReadOnlyWord,
    Registration,
    RetiredDirectories,
    decode_cookie,
    decode_placement,
    decode_registration,
    encode_cookie,
    encode_placement,
    encode_registration,
)
from embedbk.codec.repair_mark import RepairMark, decode_repair_mark, encode_repair_mark
from embedbk.codec.repair_state import (
    AuditNote,
    RepairControl,
    Unrepairable,
    decode_audit_note,
    decode_repair_control,
    decode_unrepairable,
    encode_audit_note,
    encode_repair_control,
    encode_unrepairable,
)
from embedbk.codec.tombstone import Tombstone, decode_tombstone, encode_tombstone, tombstone_path
from embedbk.codec.unpacking import unpack
from embedbk.errors import EmbedbkError, PeerError, StorageError
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import Run as RunCommand
from embedbk.metadata.commands import decode_command, encode_command
from embedbk.transports.envelope import decode_envelope, decode_hello, decode_reason

SEATS = (("b1", b"1" * 16), ("b2", b"2" * 16))
METADATA = LedgerMetadata(
    1, 7, 2, 2, 1, LedgerState.CLOSED, 41, 4100, b"v" * 32, 1, {"of": b"a test"},
    (Fragment(0, 0, SEATS), Fragment(40, 4000, SEATS[::-1])),
)  # fmt: skip
LOG_LIST = LogList(
    1, 9, (LogSegment(7, 0, 41), LogSegment(8, 42, None)), LogPages(3, 1, 3, 1, 0, 3, 5, (6, 1))
)
LOG_PAGE = LogPage(1, (LogSegment(7, 0, 41, length=9), LogSegment(8, 42, 42)))
PLACEMENT = PlacementNote(
    1, True, "old", "me", 7, (RetiredDirectories(bytes(16), 8, "you", "dead"),), ReadOnlyWord("us", "hot", 9)
)
REGISTRATION = Registration(1, "b1", bytes(16), ["tcp://127.0.0.1:7"], True, 2**40, "z/r", b"s" * 8)
COOKIE = Cookie(2, bytes(16), 7, b"s" * 8, (41, 0), "host:/d/b1")
TOMBSTONE = Tombstone(1, 7, 1000, 2000, encode_ledger_metadata(METADATA))
REPAIR_MARK = RepairMark(1, ("b1", "b2"), 1000, 3, True)
KINDS = sorted(messages._decoder_of)


def sealed(kind: int, control: bytes) -> bytes:
    """A message of this kind whose sums are right, whatever its control part is."""
    head = messages._HEADER.pack(b"EBKM", 1, kind, 0, len(control), 0, 7, 0, 0)
    crc = kernels.crc32c(control, kernels.crc32c(head[:24]))
    return head[:24] + struct.pack("<II", crc, 0) + control


def unpacked(body: bytes) -> Any:
    """A message with all that its host unpacks of it."""
    parts = split_bundle(memoryview(body))
    found = [decode_message(part) for part in parts]
    for message in found:
        if isinstance(message.control, AddAnswers | ExplicitLacs):
            message.control.unpack()
        for header, frame in message.frames:
            frame_of(frame, header.ledger_id)
    is_normal_add(body)
    is_lac_for_good(body)
    return found


# What decodes what strangers send, or what every client may put into metadata; and what it may raise.
DECODERS: dict[str, tuple[Callable[[bytes], Any], type[EmbedbkError]]] = {
    "decode_message": (unpacked, PeerError),
    "decode_frame_header": (lambda body: decode_frame_header(memoryview(body)), PeerError),
    "decode_envelope": (lambda body: decode_envelope(memoryview(body)), PeerError),
    "decode_hello": (lambda body: decode_hello(memoryview(body)), PeerError),
    "decode_reason": (lambda body: decode_reason(memoryview(body)), PeerError),
    "decode_ledger_metadata": (decode_ledger_metadata, StorageError),
    "decode_changed_metadata": (lambda body: decode_changed_metadata(body, METADATA), StorageError),
    "decode_log_list": (decode_log_list, StorageError),
    "decode_adopted": (decode_adopted, StorageError),
    "decode_copy_decisions": (decode_copy_decisions, StorageError),
    "decode_log_pins": (decode_log_pins, StorageError),
    "decode_log_identity": (lambda data: decode_log_identity(data, "orders"), StorageError),
    "decode_log_pointer": (lambda data: decode_log_pointer(data, "orders"), StorageError),
    "decode_log_cursors": (decode_log_cursors, StorageError),
    "decode_cursor": (decode_cursor, StorageError),
    "decode_staged": (lambda body: decode_staged(body, "orders", 7), StorageError),
    "decode_log_splices": (lambda body: decode_log_splices(body, "orders"), StorageError),
    "decode_splice_request": (lambda body: decode_splice_request(body, "orders"), StorageError),
    "decode_log_settings": (decode_log_settings, StorageError),
    "decode_archive_record": (lambda body: decode_archive_record(body, 7), StorageError),
    "decode_log_page": (lambda body: decode_log_page(body, "orders", 0), StorageError),
    "decode_ledgers_left": (decode_ledgers_left, StorageError),
    "decode_registration": (decode_registration, StorageError),
    "decode_placement": (decode_placement, StorageError),
    "decode_cookie": (decode_cookie, StorageError),
    "decode_repair_mark": (decode_repair_mark, StorageError),
    "decode_repair_control": (decode_repair_control, StorageError),
    "decode_audit_note": (decode_audit_note, StorageError),
    "decode_unrepairable": (decode_unrepairable, StorageError),
    "decode_tombstone": (decode_tombstone, StorageError),
    "decode_command": (decode_command, StorageError),
    "decode_explicit_lac": (decode_explicit_lac, StorageError),
    "decode_gone": (lambda body: decode_gone(3, body), StorageError),
    "decode_key": (decode_key, StorageError),
    "Catalog.restore": (Catalog.restore, StorageError),
}


def tolerate(name: str, body: bytes) -> Any:
    decode, refusal = DECODERS[name]
    try:
        return decode(body)
    except refusal:
        return None


def test_what_a_signal_handler_raises_meanwhile_is_no_damage() -> None:
    """An application may end a call of its own by an exception, as with SIGALRM. Where that meets a decoder, the bytes
    are not called damaged: "cannot tell" is never "no"."""

    class Interrupted:
        def decode(self, data: bytes) -> None:
            raise TimeoutError(f"the application's own time is over, after {len(data)} bytes")

    decoder: Any = Interrupted()
    with pytest.raises(TimeoutError):
        unpack(decoder, b"sound", StorageError, "these bytes")


def test_every_decoder_is_in_this_file() -> None:
    """A decoder that is written later is attacked, too."""
    found = set()
    for module in pkgutil.iter_modules(embedbk.codec.__path__):
        members = vars(importlib.import_module(f"embedbk.codec.{module.name}"))
        found |= {
            name for name, each in members.items() if name.startswith("decode_") and inspect.isfunction(each)
        }
    assert found <= set(DECODERS), found - set(DECODERS)


# --- Directed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [b"\xa3/\xff\xfe", b"\x91" * 5000 + b"\xc0", b"\x81" * 5000, b"\xc1"])
def test_text_that_is_none_and_nesting_without_end_are_refused(kind: int, extra: bytes) -> None:
    """T10: 42 bytes with text that is no UTF-8 ended a metadata member, 5 KB of nested arrays a bookie."""
    for before in range(8):
        control = bytes([0x90 + before + 1]) + b"\x01" * before + extra
        tolerate("decode_message", sealed(kind, control))
        tolerate("decode_message", sealed(kind, b"\x94\x00\x01\x01\x92" + bytes([before + 10]) + extra))


@pytest.mark.parametrize("name", sorted(DECODERS))
@pytest.mark.parametrize(
    "body", [b"", b"\xa3/\xff\xfe", b"\x91" * 5000 + b"\xc0", b"\xdd\xff\xff\xff\xff", bytes(64)]
)
def test_no_decoder_raises_anything_but_its_own_error(name: str, body: bytes) -> None:
    """T10: a value or the decoder's own error, whatever the library under it raises."""
    for prefix in (b"", b"\x01", b"\x9c\x01\x07", b"\x93\x01\x09"):
        tolerate(name, prefix + body)


@pytest.mark.parametrize(
    "changes",
    [
        {"ledger_id": -1},
        {"ledger_id": 8},
        {"ensemble_size": 65},
        {"ensemble_size": 0},
        {"write_quorum": 3},
        {"ack_quorum": 0},
        {"state": 4},
        {"state": LedgerState.OPEN},
        {"last_entry": None},
        {"length": None},
        {"last_entry": -2},
        {"last_entry": 2**63 - 1},
        {"length": -1},
        {"created_ms": -1},
        {"durability": 2},
        {"digest": 77},
        {"fragments": ()},
        {"fragments": (Fragment(0, 0, (("b1", b"1" * 15), SEATS[1])),)},
        {"fragments": (Fragment(0, 0, (("no name/", b"1" * 16), SEATS[1])),)},
        {"fragments": (Fragment(0, -1, SEATS),)},
    ],
)
def test_metadata_that_no_ledger_can_have_is_refused(changes: dict[str, Any]) -> None:
    """P2.1, P2.4: what a core relies on is checked where the bytes become a value."""
    assert decode_ledger_metadata(encode_ledger_metadata(METADATA), 7) == METADATA
    with pytest.raises(StorageError, match="ledger 7"):
        decode_ledger_metadata(encode_ledger_metadata(METADATA.with_changes(**changes)), 7)


@pytest.mark.parametrize(
    "changes",
    [
        {"password_verifier": b"another"},
        {"durability": 1},
        {"digest": 2},
        {"state": LedgerState.OPEN, "last_entry": None, "length": None},
        {"last_entry": 40},
        {"length": 4101},
    ],
)
def test_what_never_changes_is_checked_against_what_was_known(changes: dict[str, Any]) -> None:
    """P2.3: a state never goes back, the end of a closed ledger stays, and what it was made with stays."""
    moved = METADATA.with_changes(fragments=METADATA.fragments[:1])
    assert decode_changed_metadata(encode_ledger_metadata(moved), METADATA) == moved
    impossible = encode_ledger_metadata(METADATA.with_changes(**changes))
    assert decode_ledger_metadata(impossible, 7) is not None
    with pytest.raises(StorageError, match="ledger 7"):
        decode_changed_metadata(impossible, METADATA)


def test_a_list_names_no_ledger_twice_and_a_registration_its_own_bookie() -> None:
    """P8.1: a takeover would recover the first of two again and again, for the second."""
    twice = LogList(1, 9, (LogSegment(7, 0, 41), LogSegment(7, 42, None)))
    with pytest.raises(StorageError, match="names a ledger twice"):
        decode_log_list(encode_log_list(twice), "orders")
    with pytest.raises(StorageError, match="registration of bookie 'b1'"):
        decode_registration(encode_registration(REGISTRATION), "b2")


@pytest.mark.parametrize("ledger_id", [0, 7, 2**63 - 1])
def test_a_key_is_a_ledgers_only_as_it_is_written(ledger_id: int) -> None:
    """P7.7: every client may put a key beside those of ledgers, and a collector reads all of them."""
    assert ledger_of_key(ledger_key_path(ledger_id)) == ledger_id
    assert ledger_of_key(tombstone_path(ledger_id), "/deleted/") == ledger_id
    digits = f"{ledger_id:016x}"
    for key in (
        "/ledgers/zz",
        "/ledgers/",
        f"/ledgers/+{digits[1:]}",
        f"/ledgers/0{digits}",
        f"/ledgers/{digits}x",
    ):
        assert ledger_of_key(key) is None
    assert ledger_of_key("/ledgers/ffffffffffffffff") is None
    assert ledger_of_key("/ledgers/000000000000000A") is None
    assert ledger_of_key(f"/another/{digits}") is None


# --- By chance -------------------------------------------------------------------------------------------

SOUND = {
    "decode_ledger_metadata": encode_ledger_metadata(METADATA),
    "decode_log_list": encode_log_list(LOG_LIST),
    "decode_log_page": encode_log_page(LOG_PAGE),
    "decode_copy_decisions": encode_copy_decisions(
        (
            CopyDecision(
                DecidedCopy("b1", bytes(16), 2**63 + 7),
                (DecidedCopy("b2", bytes(16), 5),),
                "me",
                "why",
                1,
                True,
            ),
        )
    ),
    "decode_adopted": encode_adopted(
        AdoptedLedger(1, 7, 1000, "somebody", 9, (("b1", b"i" * 16),), ((2, 3),), 4, ("b2", "b3"))
    ),
    "decode_log_identity": encode_log_identity(LogIdentity(1, "orders", LogIdentityState.NAMED)),
    "decode_log_pointer": encode_log_pointer(LogPointer(1, "orders")),
    "decode_log_pins": encode_log_pins(LogPins(1, (PinRecord("batch", 7, 9, 1000),))),
    "decode_log_cursors": encode_log_cursors(LogCursors(1, (NamedCursor("billing", 1, 1000, None),))),
    "decode_cursor": encode_cursor(CursorRecord(1, 7, 9, 1000)),
    "decode_staged": encode_staged(StagedRecord(1, 7, "import", 3, b"job", 1000)),
    "decode_log_splices": encode_log_splices(
        LogSplices(1, (SplicedRecord("import", 3, b"job", 0, 9, 1, 1000),))
    ),
    "decode_splice_request": encode_splice_request(SpliceRequest(1, "import", 3, b"job", (7,), False, 1000)),
    "decode_archive_record": encode_archive_record(
        ArchiveRecord(1, 7, ArchiveState.VERIFIED, 9, 1000, 99, b"h" * 32, 11, 1000)
    ),
    "decode_log_settings": encode_log_settings(
        SettingsRecord(
            1, 3, 3, 2, 0, 1, RollRecord(1, None, 5), 9, 0, {"a": b"b"}, ArchivePlace(b"i" * 16, "/archive")
        )
    ),
    "decode_registration": encode_registration(REGISTRATION),
    "decode_placement": encode_placement(PLACEMENT),
    "decode_cookie": encode_cookie(COOKIE),
    "decode_repair_mark": encode_repair_mark(REPAIR_MARK),
    "decode_repair_control": encode_repair_control(RepairControl(1, True, 3, 1000, "somebody", "why")),
    "decode_audit_note": encode_audit_note(AuditNote(1, 7, 3, 1000, 2000, ("b1", "b2"), 9, 1, 0)),
    "decode_unrepairable": encode_unrepairable(
        Unrepairable(1, 0, 17, ("b1",), "no good copy", bytes(16), 1000)
    ),
    "decode_tombstone": encode_tombstone(TOMBSTONE),
}
NUMBERS = st.sampled_from([0, 1, -1, 3, 15, 16, 255, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
VALUES = st.recursive(
    st.one_of(NUMBERS, st.binary(max_size=20), st.text(max_size=5), st.none(), st.booleans(), st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=8,
)


@st.composite
def changed_tree(draw: Any, tree: Any) -> Any:
    """A tree of lists with one place changed, left out or doubled."""
    if not isinstance(tree, list) or not tree or draw(st.integers(0, 3)) == 0:
        return draw(VALUES)
    copy = list(tree)
    at = draw(st.integers(0, len(copy) - 1))
    how = draw(st.integers(0, 4))
    if how == 0:
        del copy[at]
    elif how == 1:
        copy.insert(at, copy[at])
    else:
        copy[at] = draw(changed_tree(copy[at]))
    return copy


@pytest.mark.parametrize("name", sorted(SOUND))
@given(st.data())
def test_a_sound_value_with_one_place_changed(name: str, data: Any) -> None:
    """T10, P2.1: what still decodes can be asked everything that a core asks, and encoded again."""
    tree = data.draw(changed_tree(msgspec.msgpack.decode(SOUND[name])))
    try:
        body = msgspec.msgpack.encode(tree)
    except (OverflowError, UnicodeEncodeError):
        return
    value = tolerate(name, body)
    if isinstance(value, LedgerMetadata):
        decode_changed_metadata(encode_ledger_metadata(value), value)
        assert value.fragment_of(0) == value.fragments[0]
        assert value.quorum.ack_quorum >= 1
        assert all(member.bookie_id for fragment in value.fragments for member in fragment.members)


@given(st.sampled_from(KINDS), VALUES)
def test_any_control_part_under_any_kind(kind: int, value: Any) -> None:
    """T10: right sums, and anything behind them."""
    try:
        control = msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return
    tolerate("decode_message", sealed(kind, control))


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=200))
def test_any_bytes(name: str, body: bytes) -> None:
    """T10."""
    tolerate(name, body)


@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_any_bytes_behind_right_sums(kind: int, control: bytes) -> None:
    """T10."""
    tolerate("decode_message", sealed(kind, control))


@given(VALUES)
def test_any_command(value: Any) -> None:
    try:
        packed = msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return
    found = tolerate("decode_command", b"\x01" + packed)
    if isinstance(found, RunCommand):
        assert decode_command(encode_command(found)) == found
