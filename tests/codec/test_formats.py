"""Entries, frames, messages and metadata values: what goes in comes out, and what is wrong is refused whole."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedbk.codec import kernels
from embedbk.codec.add_messages import AddAnswer, AddAnswers, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES, encode_entry, read_entry
from embedbk.codec.frame import (
    FRAME_HEADER_BYTES,
    Frame,
    cut,
    decode_frame_header,
    encode_frame_header,
    frame_of,
    iter_entries,
)
from embedbk.codec.journal_records import (
    decode_explicit_lac,
    decode_gone,
    decode_key,
    encode_explicit_lac,
    encode_gone,
)
from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgersLeft,
    LedgerState,
    LogList,
    LogSegment,
    decode_ledger_metadata,
    decode_ledgers_left,
    decode_log_list,
    encode_ledger_metadata,
    encode_ledgers_left,
    encode_log_list,
    log_left_path,
)
from embedbk.codec.messages import (
    ErrorAnswer,
    decode_message,
    encode_add_answers,
    encode_bundle,
    encode_message,
    split_bundle,
)
from embedbk.codec.metadata_messages import Compare, Get, MetadataRequest, Put, Txn
from embedbk.codec.read_messages import ReadAnswer
from embedbk.codec.registration import (
    Registration,
    decode_registration,
    encode_registration,
    registration_path,
)
from embedbk.codec.tombstone import Tombstone, decode_tombstone, encode_tombstone, tombstone_path
from embedbk.config import MESSAGE_BYTES_MAX, STORED_BYTES_MAX
from embedbk.errors import PeerError, StorageError
from embedbk.ids import LEDGER_ID_MAX

LEDGER = 7
KEY = bytes(range(16))
NONCE = 2**63 + 1


def body_of(*payloads: bytes, first: int = 0) -> memoryview:
    length, parts = 0, []
    for entry_id, payload in enumerate(payloads, first):
        length += len(payload)
        parts.append(encode_entry(LEDGER, entry_id, length, payload))
    return memoryview(b"".join(parts))


class TestEntry:
    @given(st.binary(max_size=300), st.integers(0, 2**40), st.integers(0, 2**63 - 1))
    def test_what_goes_in_comes_out(self, payload: bytes, before: int, entry_id: int) -> None:
        """P1: the entry carries its length and the LAC that its writer knew."""
        length = before + len(payload)
        block = b"..." + encode_entry(LEDGER, entry_id, length, payload, entry_id - 1, before)
        found = read_entry(memoryview(block), 3)
        assert found == (LEDGER, entry_id, length, entry_id - 1, before, payload, len(block) - 3, b"")

    def test_every_changed_or_missing_byte_is_refused(self) -> None:
        """P3.1: every reader checks the entry whole."""
        made = encode_entry(LEDGER, 5, 100, b"payload", 3, 80)
        for at in range(len(made)):
            with pytest.raises(PeerError):
                read_entry(memoryview(made[:at]))
            damaged = bytearray(made)
            damaged[at] ^= 0x40
            with pytest.raises(PeerError):
                read_entry(memoryview(damaged))

    def test_the_largest_payload_passes_and_one_more_byte_does_not(self) -> None:
        largest = encode_entry(LEDGER, 0, STORED_BYTES_MAX, bytes(STORED_BYTES_MAX))
        assert read_entry(memoryview(largest)).size == STORED_BYTES_MAX + ENTRY_OVERHEAD_BYTES
        larger = encode_entry(LEDGER, 0, STORED_BYTES_MAX + 1, bytes(STORED_BYTES_MAX + 1))
        with pytest.raises(PeerError, match="payload bytes"):
            read_entry(memoryview(larger))

    def test_an_unknown_version_is_refused_with_its_number(self) -> None:
        made = bytearray(encode_entry(LEDGER, 0, 1, b"x"))
        made[0] = 9
        with pytest.raises(PeerError, match="version 9"):
            read_entry(memoryview(made))


class TestFrame:
    def test_a_frame_tells_what_its_body_holds(self) -> None:
        frame = frame_of(body_of(b"zero", b"one", first=4), LEDGER)
        assert (frame.first_entry, frame.last_entry, frame.entry_count, frame.length) == (4, 5, 2, 7)
        assert not frame.has_gaps
        assert [bytes(entry.data) for entry in iter_entries(frame)] == [b"zero", b"one"]

    def test_a_frame_of_another_ledger_is_refused(self) -> None:
        with pytest.raises(PeerError, match="ledger 7 where ledger 8"):
            frame_of(body_of(b"x"), LEDGER + 1)

    @pytest.mark.parametrize(("lac", "lac_length"), [(None, 0), (-1, 0), (3, 17)])
    def test_its_header_comes_back(self, lac: int | None, lac_length: int) -> None:
        frame = frame_of(body_of(b"zero", b"one", first=4))
        packed = encode_frame_header(frame, KEY, lac, lac_length)
        header = decode_frame_header(memoryview(b"!" + packed), 1)
        assert (header.ledger_id, header.first_entry, header.last_entry, header.entry_count) == (7, 4, 5, 2)
        assert (header.body_size, header.ledger_key) == (len(frame.body), KEY)
        assert (header.has_lac, header.lac, header.lac_length) == (
            lac is not None,
            -1 if lac is None else lac,
            lac_length,
        )

    def test_every_changed_or_missing_byte_of_a_header_is_refused(self) -> None:
        packed = encode_frame_header(frame_of(body_of(b"x")), KEY, -1, 0)
        for at in range(FRAME_HEADER_BYTES):
            with pytest.raises(PeerError):
                decode_frame_header(memoryview(packed[:at]))
            damaged = bytearray(packed)
            damaged[at] ^= 0x10
            with pytest.raises(PeerError):
                decode_frame_header(memoryview(damaged))

    @pytest.mark.parametrize(
        ("offset", "code", "value"),
        [
            (5, "B", 4),  # An unknown flag.
            (5, "B", 2),  # Gaps, though the count is dense.
            (8, "I", 0),  # No entries.
            (8, "I", 3),  # More entries than ids.
            (8, "I", 1),  # Gaps, and no flag for them.
            (12, "I", 2**31),  # Body over the limit.
            (16, "Q", 2**63),
            (24, "q", -1),
            (32, "q", 3),  # Last before first.
            (40, "q", 2),  # A LAC without its flag.
            (48, "Q", 1),
            (72, "I", 1),  # Reserved.
        ],
    )
    def test_impossible_headers_are_refused_under_a_right_digest(
        self, offset: int, code: str, value: int
    ) -> None:
        packed = bytearray(encode_frame_header(frame_of(body_of(b"x", b"y", first=4)), KEY))
        struct.pack_into("<" + code, packed, offset, value)
        packed[76:] = kernels.crc32c(packed[:76]).to_bytes(4, "little")
        with pytest.raises(PeerError):
            decode_frame_header(memoryview(packed))

    @pytest.mark.parametrize(
        ("first", "lac", "lac_length"), [(2**62, 1, 1), (4, 3, 2**63), (2**63 - 1, 2**62, 1)]
    )
    def test_what_no_answer_could_say_is_refused(self, first: int, lac: int, lac_length: int) -> None:
        """WIRE.md 2: a bookie that took it would answer each reader of the ledger with what ends the link."""
        frame = Frame(LEDGER, first, first, 1, 1, memoryview(body_of(b"x")))
        packed = encode_frame_header(frame, KEY, lac, lac_length)
        with pytest.raises(PeerError, match="impossible"):
            decode_frame_header(memoryview(packed))

    def test_a_cut_is_a_frame_with_gaps_and_says_so(self) -> None:
        """P3.7: striped over 3 with Qw 2, seat 0 holds every id but 1 mod 3."""
        whole = frame_of(body_of(*[b"x" * i for i in range(7)]))
        part = cut(whole, 3, 2, 0)
        assert part is not None
        assert [entry.entry_id for entry in iter_entries(part)] == [0, 2, 3, 5, 6]
        assert part.has_gaps
        assert decode_frame_header(memoryview(encode_frame_header(part, KEY))).entry_count == 5

    def test_a_seat_that_holds_nothing_gets_no_frame(self) -> None:
        assert cut(frame_of(body_of(b"x")), 3, 1, 1) is None


class TestMessage:
    def test_control_part_and_frames_come_back(self) -> None:
        frames = [frame_of(body_of(b"zero", b"one")), frame_of(body_of(b"nine", first=9))]
        request = AddRequest(bytes(16), NONCE, 2, True)
        pieces = encode_message(
            31, request, [(encode_frame_header(frame, KEY, -1, 0), frame) for frame in frames]
        )
        message = decode_message(b"".join(pieces))
        assert (message.request_id, message.control) == (31, request)
        for frame, (header, body) in zip(frames, message.frames, strict=True):
            assert header.first_entry == frame.first_entry
            assert frame_of(body, header.ledger_id) == frame

    def test_bodies_are_borrowed_both_ways(self) -> None:
        """No copy between the packer's block and the socket, nor between the socket and the journal."""
        frame = frame_of(body_of(b"zero"))
        pieces = encode_message(1, ErrorAnswer(""), [(encode_frame_header(frame, KEY), frame)])
        assert pieces[2] is frame.body
        received = bytearray(b"".join(pieces))
        (_, body), *_ = decode_message(received).frames
        received[-5] ^= 1
        assert body[-5] == received[-5]

    def test_every_changed_or_missing_byte_is_refused_or_stands_in_a_body(self) -> None:
        frame = frame_of(body_of(b"zero", b"one"))
        absent = [(3, 9)]
        sent = b"".join(
            encode_message(5, ReadAnswer(0, LEDGER, absent), [(encode_frame_header(frame, bytes(16)), frame)])
        )
        body_begin = len(sent) - len(frame.body)
        for at in range(len(sent)):
            with pytest.raises(PeerError):
                decode_message(sent[:at])
            damaged = bytearray(sent)
            damaged[at] ^= 0x04
            if at < body_begin:
                with pytest.raises(PeerError):
                    decode_message(damaged)
            else:
                (_, body), *_ = decode_message(damaged).frames
                with pytest.raises(PeerError):
                    frame_of(body)

    def test_bytes_behind_the_frames_and_oversize_are_refused(self) -> None:
        (sent,) = encode_message(1, ErrorAnswer("x"))
        with pytest.raises(PeerError):
            decode_message(sent + b"\x00")
        with pytest.raises(PeerError, match="allowed are 32 to"):
            decode_message(bytes(MESSAGE_BYTES_MAX + 1))

    def test_a_control_part_of_another_shape_is_refused(self) -> None:
        (sent,) = encode_message(1, ErrorAnswer("x"))
        body = bytearray(sent)
        body[5] = 1  # As if it were an AddRequest.
        body[24:28] = kernels.crc32c(body[32:], kernels.crc32c(body[:24])).to_bytes(4, "little")
        with pytest.raises(PeerError, match="message kind 1: "):
            decode_message(body)

    def test_answers_to_adds_travel_together_and_impossible_ones_are_refused(self) -> None:
        given = [
            (9, AddAnswer(Status.OK, 2**64 - 1, 3, False, LEDGER, 4, 5)),
            (2**64 - 1, AddAnswer(Status.CONFLICT, 1, 2, True, LEDGER_ID_MAX, 0, LEDGER_ID_MAX)),
        ]
        assert encode_add_answers(given[:1]) == encode_message(*given[0])
        (sent,) = encode_add_answers(given)
        control = decode_message(sent).control
        assert isinstance(control, AddAnswers)
        assert control.unpack() == given
        wrong = [b"", control.answers[:-1]]
        for at, value in ((23, 0x80), (31, 0x80), (39, 0x80), (47, 0x80), (48, 99), (49, 2), (55, 1)):
            damaged = bytearray(control.answers)
            damaged[at] = value
            wrong.append(bytes(damaged))
        for answers in wrong:
            with pytest.raises(PeerError, match="answer"):
                AddAnswers(answers).unpack()

    def test_messages_travel_together_and_come_apart_as_they_were(self) -> None:
        alone = [[b"".join(encode_message(number, ErrorAnswer("x" * number)))] for number in range(5)]
        assert split_bundle(memoryview(alone[3][0])) == [alone[3][0]]
        assert encode_bundle(alone[:1]) == alone[0]
        body = b"".join(encode_bundle(alone))
        parts = split_bundle(memoryview(body))
        assert [bytes(part) for part in parts] == [message for (message,) in alone]
        assert [decode_message(part).request_id for part in parts] == [0, 1, 2, 3, 4]
        with pytest.raises(PeerError):
            decode_message(body)

    def test_a_bundle_that_is_none_is_refused(self) -> None:
        """T10: every byte of what is read of it counts; sizes that do not fit, parts that are none, one in another."""
        messages = [[b"".join(encode_message(number, ErrorAnswer("no")))] for number in range(3)]
        body = b"".join(encode_bundle(messages))
        for at in range(len(body) - sum(len(message) for (message,) in messages)):
            damaged = bytearray(body)
            damaged[at] ^= 0x40
            try:
                parts = split_bundle(memoryview(damaged))
            except PeerError:
                continue
            assert parts == [damaged], "another kind, which is then looked at as a message"
        inner = encode_bundle(messages)
        for wrong in (body[:-1], body + b"x", b"".join(encode_bundle([messages[0], inner]))):
            with pytest.raises(PeerError, match="bundle"):
                split_bundle(memoryview(wrong))
        short = b"".join(encode_bundle([messages[0], [b"short"]]))
        with pytest.raises(PeerError, match="bundle"):
            split_bundle(memoryview(short))

    def test_metadata_operations_come_back_as_what_they_are(self) -> None:
        for operation in (Get("/a"), Txn([Compare("/a", 0)], [Put("/a", b"x")])):
            (sent,) = encode_message(1, MetadataRequest(3, 1, 1, operation))
            assert decode_message(sent).control == MetadataRequest(3, 1, 1, operation)


class TestMetadataValues:
    seats = (("b1", bytes(16)), ("b2", bytes(16)))

    def metadata(self, *fragments: Fragment) -> LedgerMetadata:
        return LedgerMetadata(
            version=1,
            ledger_id=LEDGER,
            ensemble_size=2,
            write_quorum=2,
            ack_quorum=1,
            state=LedgerState.OPEN,
            last_entry=None,
            length=None,
            password_verifier=b"",
            created_ms=1,
            custom={"made by": b"a test"},
            fragments=fragments,
        )

    def test_ledger_metadata_comes_back(self) -> None:
        metadata = self.metadata(Fragment(0, 0, self.seats), Fragment(40, 4000, self.seats[::-1]))
        assert decode_ledger_metadata(encode_ledger_metadata(metadata)) == metadata
        assert metadata.fragment_of(39).first_entry == 0
        assert metadata.fragment_of(40).members[0].bookie_id == "b2"

    def test_impossible_fragments_are_refused(self) -> None:
        """P2.4: E distinct bookies; the first fragment starts at 0; first entries rise."""
        sound = Fragment(0, 0, self.seats)
        for fragments in (
            (),
            (Fragment(1, 0, self.seats),),
            (sound, Fragment(0, 0, self.seats)),
            (Fragment(0, 0, (self.seats[0], self.seats[0])),),
            (Fragment(0, 0, self.seats[:1]),),
        ):
            with pytest.raises(StorageError, match=r"P2\.4"):
                decode_ledger_metadata(encode_ledger_metadata(self.metadata(*fragments)))

    def test_another_version_and_garbage_are_refused(self) -> None:
        metadata = self.metadata(Fragment(0, 0, self.seats))
        with pytest.raises(StorageError, match="version 2"):
            decode_ledger_metadata(encode_ledger_metadata(metadata.with_changes(version=2)))
        with pytest.raises(StorageError, match="log list"):
            decode_log_list(b"\x93\x01")

    def test_a_log_list_comes_back(self) -> None:
        value = LogList(1, 9, (LogSegment(7, 0, 41), LogSegment(8, 42, None)))
        assert decode_log_list(encode_log_list(value)) == value

    def test_ledgers_that_left_come_back_and_others_are_refused(self) -> None:
        value = LedgersLeft(1, (7, 2**40))
        assert decode_ledgers_left(encode_ledgers_left(value)) == value
        assert log_left_path("orders") == "/logs/orders/left"
        with pytest.raises(StorageError, match="version 9"):
            decode_ledgers_left(encode_ledgers_left(LedgersLeft(9, ())))
        with pytest.raises(StorageError, match="left their log"):
            decode_ledgers_left(b"\xc1")

    def test_a_registration_comes_back(self) -> None:
        value = Registration(1, "b1", bytes(16), ["tcp://127.0.0.1:7"], True, 2**40)
        assert decode_registration(encode_registration(value)) == value
        assert registration_path("b1") == "/bookies/b1"
        with pytest.raises(StorageError, match="version 9"):
            decode_registration(encode_registration(Registration(9, "b1", bytes(16), [], True, 0)))
        with pytest.raises(StorageError, match="no bookie registration"):
            decode_registration(b"\xc1")


class TestTombstones:
    def test_a_tombstone_comes_back_and_others_are_refused(self) -> None:
        value = Tombstone(1, 7, 1000, 2000, b"metadata")
        assert decode_tombstone(encode_tombstone(value)) == value
        assert tombstone_path(7) == "/deleted/0000000000000007"
        with pytest.raises(StorageError, match="version 9"):
            decode_tombstone(encode_tombstone(Tombstone(9, 7, 1000, 2000, b"")))
        with pytest.raises(StorageError, match="no tombstone"):
            decode_tombstone(b"\xc1")

    def test_a_registration_without_a_location_is_read(self) -> None:
        older = msgspec.msgpack.encode([1, "b1", bytes(16), [], True, 5])
        assert decode_registration(older) == Registration(1, "b1", bytes(16), [], True, 5, "")


class TestJournalRecords:
    def test_an_explicit_lac_comes_back_and_others_are_refused(self) -> None:
        assert decode_explicit_lac(encode_explicit_lac(-1, 0)) == (-1, 0)
        assert decode_explicit_lac(memoryview(encode_explicit_lac(2**62, 2**63))) == (2**62, 2**63)
        for body in (b"", bytes(15), bytes(17), encode_explicit_lac(-2, 0)):
            with pytest.raises(StorageError, match="explicit LAC record"):
                decode_explicit_lac(body)

    def test_ledgers_that_are_gone_are_a_range(self) -> None:
        """P7.4: the record's ledger is the first of them."""
        assert decode_gone(5, encode_gone(5)) == 5
        assert decode_gone(1, memoryview(encode_gone(2**63 - 1))) == 2**63 - 1
        for body in (b"", bytes(7), bytes(9), encode_gone(4), encode_gone(2**63)):
            with pytest.raises(StorageError, match="ledgers that are gone"):
                decode_gone(5, body)

    def test_a_key_is_whole_or_none(self) -> None:
        """P3.5: a fence of an unknown ledger binds no password."""
        assert decode_key(memoryview(KEY)) == KEY
        assert decode_key(b"") is None
        with pytest.raises(StorageError, match="15 bytes"):
            decode_key(KEY[:15])


def test_frames_compare_by_what_they_hold() -> None:
    body = body_of(b"x")
    assert frame_of(body) == Frame(LEDGER, 0, 0, 1, 1, memoryview(bytes(body)))
