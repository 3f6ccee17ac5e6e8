"""The kernels in C and their plain twins: one set of tests for both, then both against each other on damaged bytes."""

from __future__ import annotations

import itertools
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from types import ModuleType

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedbk.cluster import environment
from embedbk.codec import kernels, twins
from embedbk.codec.attributes import (
    AttributeKind,
    Producer,
    ZstdClaim,
    encode_attributes,
    encode_claim,
    encode_time,
    value_of,
)
from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES, encode_entry, read_entry
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.entry_records import EntryRecord, encode_records, records_in
from embedbk.codec.frame import frame_of, parts, split
from embedbk.config import ENTRY_BYTES_MAX, STORED_BYTES_MAX
from embedbk.errors import PeerError, UsageError
from embedbk.ids import LEDGER_ID_MAX

LEDGER = 7

crc_oracle = crcmod.predefined.mkPredefinedCrcFun("crc-32c")


def attributes_of(payload: bytes) -> bytes:
    """Some that suit the payload, different ones for different payloads."""
    ends = [len(payload) // 3, len(payload)] if len(payload) % 2 else []
    records = [EntryRecord(b"", b"key"[: len(payload) % 4], 5, {"a": b"1", "ab": payload[:9]})] * (
        len(ends) or 1
    )
    return encode_attributes(
        ends,
        Producer(len(payload), 1) if len(payload) % 3 else None,
        encode_records(records) if len(payload) % 5 else b"",
    )


def records_of(value: bytes) -> bytes:
    """The attribute RECORDS, whatever is in it."""
    return struct.pack("<BBH", AttributeKind.RECORDS, 0, len(value)) + value


def body_of(
    payloads: Iterable[bytes],
    first: int = 0,
    length: int = 0,
    ledger_id: int = LEDGER,
    with_attributes: bool = False,
) -> bytes:
    """Consecutive entries from first on; each carries the LAC two before it."""
    parts = []
    for entry_id, payload in enumerate(payloads, first):
        length += len(payload)
        lac = max(-1, entry_id - 2)
        lac_length = length if lac >= 0 else 0
        attributes = attributes_of(payload) if with_attributes else b""
        parts.append(encode_entry(ledger_id, entry_id, length, payload, lac, lac_length, attributes))
    return b"".join(parts)


def raw_entry(
    entry_id: int,
    length: int,
    payload: bytes = b"",
    *,
    version: int = 1,
    flags: int = 0,
    attributes_size: int = 0,
    payload_size: int | None = None,
    ledger_id: int = LEDGER,
    lac: int = -1,
    lac_length: int = 0,
) -> bytes:
    """An entry with a right digest and whatever else is asked for."""
    size = len(payload) if payload_size is None else payload_size
    head = ENTRY_HEADER.pack(
        version, flags, attributes_size, size, ledger_id, entry_id, length, lac, lac_length
    )
    checked = head + payload
    return checked + struct.pack("<I", crc_oracle(checked))


@pytest.mark.parametrize("kernel", [kernels, twins], ids=["c", "python"])
class TestKernels:
    def test_crc32c_is_the_castagnoli_sum_and_goes_on(self, kernel: ModuleType) -> None:
        assert kernel.crc32c(b"") == 0
        assert kernel.crc32c(b"123456789") == 0xE3069283  # The check value of the CRC catalogues.
        data = random.Random(1).randbytes(100_003)
        assert kernel.crc32c(data) == crc_oracle(data)
        assert kernel.crc32c(memoryview(data)[77:], kernel.crc32c(bytearray(data[:77]))) == crc_oracle(data)

    def test_a_scan_tells_first_last_count_length_and_ledger(self, kernel: ModuleType) -> None:
        body = body_of([b"zero", b"", b"two" * 500], first=40, length=1000)
        assert kernel.scan(body) == (40, 42, 3, 1000 + 4 + 0 + 1500, LEDGER)
        assert kernel.scan(memoryview(bytearray(body))) == kernel.scan(body)

    def test_the_largest_numbers_and_the_largest_payload_are_sound(self, kernel: ModuleType) -> None:
        body = encode_entry(
            LEDGER_ID_MAX, 2**63 - 1, 2**63 - 1, bytes(STORED_BYTES_MAX), 2**63 - 2, 2**63 - 1
        )
        assert kernel.scan(body) == (2**63 - 1, 2**63 - 1, 1, 2**63 - 1, LEDGER_ID_MAX)

    def test_ids_may_ascend_with_gaps_and_lengths_with_them(self, kernel: ModuleType) -> None:
        """P3.7: one member's part of a striped frame; entries 1 to 4 went elsewhere, with 9 bytes."""
        body = encode_entry(LEDGER, 0, 1, b"a") + encode_entry(LEDGER, 5, 12, b"bc")
        assert kernel.scan(body) == (0, 5, 2, 12, LEDGER)

    @pytest.mark.parametrize(
        ("fault", "offset", "body"),
        [
            (twins.Fault.EMPTY, None, b""),
            (twins.Fault.CUT_SHORT, 0, b"\x01"),
            (twins.Fault.CUT_SHORT, 0, raw_entry(0, 0)[:-1]),
            (twins.Fault.CUT_SHORT, 52, raw_entry(0, 0) + raw_entry(1, 0)[:51]),
            (twins.Fault.UNKNOWN, 0, raw_entry(0, 0, version=2)),
            (twins.Fault.UNKNOWN, 0, raw_entry(0, 0, flags=1)),
            (twins.Fault.UNKNOWN, 0, raw_entry(0, 0, attributes_size=1)),
            (twins.Fault.TOO_LONG, 0, raw_entry(0, 9, b"x", payload_size=2)),
            (twins.Fault.TOO_LONG, 0, raw_entry(0, 9, payload_size=2**32 - 1)),
            (twins.Fault.TOO_LONG, 0, raw_entry(0, 2**30, bytes(STORED_BYTES_MAX + 1))),
            (twins.Fault.DIGEST, 0, raw_entry(0, 1, b"x")[:-1] + b"\x00"),
            (twins.Fault.IMPOSSIBLE, 0, raw_entry(-1, 0)),
            (twins.Fault.IMPOSSIBLE, 0, raw_entry(0, 0, ledger_id=2**63)),
            (twins.Fault.IMPOSSIBLE, 0, raw_entry(0, 1, b"xy")),
            (twins.Fault.IMPOSSIBLE, 0, raw_entry(0, 2**63)),
            (twins.Fault.IMPOSSIBLE, 0, raw_entry(3, 0, lac=-2)),
            (twins.Fault.IMPOSSIBLE, 0, raw_entry(3, 0, lac=3)),
            (twins.Fault.IMPOSSIBLE, 0, raw_entry(3, 5, lac=1, lac_length=6)),
            (twins.Fault.ORDER, 52, raw_entry(0, 0) + raw_entry(0, 0)),
            (twins.Fault.ORDER, 52, raw_entry(4, 0) + raw_entry(3, 0)),
            (twins.Fault.ORDER, 52, raw_entry(0, 0) + raw_entry(1, 0, ledger_id=8)),
            (twins.Fault.ORDER, 53, raw_entry(0, 1, b"x") + raw_entry(1, 3, b"y")),
            (twins.Fault.ORDER, 53, raw_entry(0, 5, b"x") + raw_entry(1, 5, b"y")),
            (twins.Fault.ORDER, 53, raw_entry(0, 5, b"x") + raw_entry(9, 5, b"y")),
        ],
    )
    def test_a_scan_refuses_what_is_wrong_and_says_where(
        self, kernel: ModuleType, fault: twins.Fault, offset: int | None, body: bytes
    ) -> None:
        """P3.1: unknown versions and flags are refused; every reader checks every entry."""
        with pytest.raises(PeerError) as refused:
            kernel.scan(body)
        assert str(refused.value) == str(twins.refusal(fault, offset or 0, body))
        assert offset is None or f"offset {offset} " in str(refused.value) + " "

    def test_every_changed_byte_is_refused(self, kernel: ModuleType) -> None:
        """P3.1: whatever byte of a frame's body is changed, the scan notices."""
        body = body_of([b"zero", b"one", b""])
        kernel.scan(body)
        for at in range(len(body)):
            for flip in (0x01, 0x80, 0xFF):
                damaged = bytearray(body)
                damaged[at] ^= flip
                with pytest.raises(PeerError):
                    kernel.scan(damaged)

    def test_every_cut_is_refused(self, kernel: ModuleType) -> None:
        """Only between entries can a body be cut unseen; the frame header's count finds that."""
        body = body_of([b"zero", b"one", b""])
        seams = {56, 56 + 55}
        for size in range(len(body)):
            if size not in seams:
                with pytest.raises(PeerError):
                    kernel.scan(body[:size])

    @pytest.mark.parametrize(("ensemble_size", "write_quorum"), [(1, 1), (3, 2), (3, 3), (5, 3), (64, 1)])
    def test_a_cut_holds_what_the_write_sets_say(
        self, kernel: ModuleType, ensemble_size: int, write_quorum: int
    ) -> None:
        """P1: entry e goes to positions (e + i) mod E for i < Qw, and to no others."""
        first = 11
        payloads = [bytes([i]) * i for i in range(130)]
        entries = [body_of([p], first + i, sum(range(i))) for i, p in enumerate(payloads)]
        seats = range(ensemble_size)
        for seat in seats:
            held = [
                entry
                for entry_id, entry in enumerate(entries, first)
                if seat in {(entry_id + i) % ensemble_size for i in range(write_quorum)}
            ]
            assert kernel.cut(b"".join(entries), ensemble_size, write_quorum, seat) == b"".join(held)

    @pytest.mark.parametrize(("ensemble_size", "write_quorum"), [(1, 1), (3, 2), (5, 3), (64, 1)])
    def test_what_members_hold_is_put_together_again(
        self, kernel: ModuleType, ensemble_size: int, write_quorum: int
    ) -> None:
        """P3.7: the cuts of all seats, or of those that are left while each write set has one, give the whole run."""
        first, payloads = 11, [bytes([i]) * i for i in range(130)]
        whole = body_of(payloads, first)
        parts = [kernel.cut(whole, ensemble_size, write_quorum, seat) for seat in range(ensemble_size)]
        for gone in range(write_quorum):
            merged = kernel.merge(parts[gone:], first, first + 200)
            assert bytes(merged.body) == whole
            assert merged[1:] == (130, sum(map(len, payloads)))
        few = kernel.merge(parts[::-1], first + 40, first + 60)
        assert bytes(few.body) == body_of(payloads[40:61], first + 40, sum(range(40)))
        assert few[1:] == (21, sum(range(61)))

    def test_a_merge_ends_at_the_first_gap(self, kernel: ModuleType) -> None:
        """P6.1: what lies behind a missing entry is not given; nor what does not continue the entry before it."""
        one, two, four = (body_of([b"x" * i], i, 10 * i) for i in (1, 2, 4))
        assert kernel.merge([one, four], 1, 9).entry_count == 1
        assert kernel.merge([one, four], 2, 9) is None
        assert kernel.merge([one, four], 5, 9) is None
        assert kernel.merge([one, four], 1, 0) is None
        assert kernel.merge([one, two], 1, 9)[1:] == (
            1,
            11,
        )  # Entry 2 says another length than goes on from 1.
        assert kernel.merge([b"", one + body_of([b"xx"], 2, 11)], 1, 9)[1:] == (2, 13)
        for count in (0, 65):
            with pytest.raises(UsageError, match=f"{count} bodies"):
                kernel.merge([one] * count, 1, 9)

    def test_a_cut_refuses_seats_and_bodies_that_cannot_be(self, kernel: ModuleType) -> None:
        body = body_of([b"x"])
        for ensemble_size, write_quorum, seat in ((3, 2, 3), (3, 2, -1), (3, 0, 0), (3, 4, 0), (0, 0, 0)):
            with pytest.raises(UsageError, match="no such seat"):
                kernel.cut(body, ensemble_size, write_quorum, seat)
        for broken in (body + b"\x01", raw_entry(-1, 0), raw_entry(0, 9, payload_size=5)):
            with pytest.raises(PeerError):
                kernel.cut(broken, 3, 2, 0)

    def test_offsets_name_every_payload(self, kernel: ModuleType) -> None:
        payloads = [b"zero", b"", b"two" * 500]
        body = memoryview(body_of(payloads, first=40, length=1000))
        ids, spans = kernel.offsets(body)
        assert ids.tolist() == [40, 41, 42]
        assert spans.tolist() == [48, 4, 104, 0, 156, 1500]
        assert [bytes(body[b : b + n]) for b, n in zip(spans[::2], spans[1::2], strict=True)] == payloads

    def test_values_stand_as_arrow_wants_them(self, kernel: ModuleType) -> None:
        ids, ends, data, _ = kernel.values(body_of([b"zero", b"", b"two"], first=40, length=1000))
        assert ids.tolist() == [40, 41, 42]
        assert ends.tolist() == [0, 4, 4, 7]
        assert bytes(data) == b"zerotwo"
        assert (ids.format, ends.format, ends.nbytes) == ("q", "i", 16)

    def test_attributes_are_neither_payload_nor_length(self, kernel: ModuleType) -> None:
        """P3.1: an entry with attributes among others: scan, offsets and values see its payload alone."""
        batch = encode_attributes([3, 3, 7], Producer(9, 1))
        body = memoryview(
            encode_entry(LEDGER, 0, 2, b"up")
            + encode_entry(LEDGER, 1, 9, b"onethree"[:7], attributes=batch)
            + encode_entry(LEDGER, 2, 9, b"", attributes=encode_attributes(producer=Producer(9, 2)))
        )
        assert kernel.scan(body) == (0, 2, 3, 9, LEDGER)
        ids, spans = kernel.offsets(body)
        assert ids.tolist() == [0, 1, 2]
        assert [bytes(body[b : b + n]) for b, n in zip(spans[::2], spans[1::2], strict=True)] == [
            b"up", b"onethre", b"",
        ]  # fmt: skip
        values = kernel.values(body)
        assert values.ids.tolist() == [0, 1, 1, 1, 2]
        assert values.ends.tolist() == [0, 2, 5, 5, 9, 9]
        assert bytes(values.data) == b"uponethre"
        assert len(kernel.cut(body, 1, 1, 0)) == len(body)

    def test_which_entries_have_attributes(self, kernel: ModuleType) -> None:
        for marks in ([], [0], [1, 0, 0, 1], [1] * 5, [0] * 9 + [1]):
            body = b"".join(
                encode_entry(
                    LEDGER, number, number + 1, b"x", attributes=encode_attributes([1]) if mark else b""
                )
                for number, mark in enumerate(marks)
            )
            expected = [number for number, mark in enumerate(marks) if mark]
            assert kernel.attributed(body, len(marks)).tolist() == expected

    def test_compressed_entries_are_counted(self, kernel: ModuleType) -> None:
        """WIRE.md 1, ZSTD: beside other attributes, and with any payload; it is one record, whatever stands in it."""
        claim = encode_claim(ZstdClaim(1 << 20, 65_535))
        marks = [
            b"",
            claim,
            encode_attributes([2]),
            encode_attributes((), Producer(1, 2)) + claim,
            encode_time(7),
        ]
        body = b"".join(
            encode_entry(LEDGER, number, 2 * number + 2, b"ab", attributes=mark)
            for number, mark in enumerate(marks)
        )
        assert kernel.compressed(body, len(marks)) == 2 and kernel.compressed(b"", 0) == 0
        assert kernel.scan(body)[2] == 5
        assert kernel.values(body).ids.tolist() == [0, 1, 2, 3, 4] and not kernel.values(body).has_records

    def test_the_digests_of_entries_add_up_by_residue(self, kernel: ModuleType) -> None:
        """storage/STORAGE.md, section 3: one number of id, size and CRC for each entry, added up modulo 2^64."""
        body = body_of([b"%d" % number * number for number in range(12)], first=5)
        entries = {5 + number: entry for number, (_, entry) in enumerate(split(frame_of(memoryview(body))))}
        for first, last, modulus in ((0, 99, 1), (5, 16, 4), (7, 11, 3), (17, 99, 2), (9, 9, 5)):
            sums, counts = kernel.digests(body, first, last, modulus)
            chosen = [each for each in entries if first <= each <= last]
            for residue in range(modulus):
                mine = [each for each in chosen if each % modulus == residue]
                assert counts[residue] == len(mine)
                assert sums[residue] == sum(entry_digest(entries[each]) for each in mine) % 2**64

    @pytest.mark.parametrize(
        "attributes",
        [
            b"\x01",  # No whole header.
            b"\x00\x00\x00\x00",  # No such kind.
            b"\x03\x00\x00\x00",
            b"\xff\x00\x00\x00",
            b"\x01\x01\x04\x00\x02\x00\x00\x00",  # The byte that is 0.
            b"\x01\x00\x05\x00\x02\x00\x00\x00",  # A value that goes on into the payload.
            b"\x01\x00\x00\x00",  # No part.
            b"\x01\x00\x03\x00\x02\x00\x00",  # Not even whole ends.
            b"\x01\x00\x04\x00\x01\x00\x00\x00",  # The last part is not the payload's end.
            b"\x01\x00\x08\x00\x03\x00\x00\x00\x02\x00\x00\x00",  # Ends that fall.
            b"\x02\x00\x08\x00" + bytes(8),  # Half a producer.
            2 * (b"\x02\x00\x10\x00" + bytes(16)),  # Twice the same.
            b"\x02\x00\x10\x00" + bytes(16) + b"\x01\x00\x04\x00\x02\x00\x00\x00",  # In another order.
            b"\x05\x00\x06\x00" + bytes(6),  # A time of another size.
            b"\x05\x00\x08\x00" + bytes(7) + b"\x80",  # A time before all.
            b"\x05\x00\x08\x00" + bytes(8) + b"\x02\x00\x10\x00" + bytes(16),  # In front of a producer.
            b"\x07\x00\x00\x00",  # What a later build may bring.
            *map(
                records_of,
                (
                    b"",  # Records without a set.
                    b"\x00",
                    b"\x00\x00\x00\x00",  # Two sets for one record.
                    b"\x04\x00",  # A flag without a meaning.
                    b"\x01\x00\x02\x00k",  # A key, cut short.
                    b"\x01\x00\x02",
                    b"\x02\x00" + bytes(7),  # A timestamp, cut short.
                    b"\x02\x00" + bytes(7) + b"\x80",  # One below 0.
                    b"\x00\x01",  # No header where there is one.
                    b"\x00\x01\x00\x00\x00",  # A header without a name.
                    b"\x00\x01\x02a",  # A name, cut short.
                    b"\x00\x01\x01a",  # A header without a value.
                    b"\x00\x01\x01a\x02\x00v",  # A value, cut short.
                    b"\x00\x01\x01 \x00\x00",  # Names that are not printable ASCII.
                    b"\x00\x01\x01\x7f\x00\x00",
                    b"\x00\x01\x01\xe4\x00\x00",
                    b"\x00\x02\x01b\x00\x00\x01a\x00\x00",  # Names that fall.
                    b"\x00\x02\x01a\x00\x00\x01a\x00\x00",  # One twice.
                    b"\x00\x02\x02ab\x00\x00\x01a\x00\x00",
                    b"\x00\x01\x01a\x00\x00\x00",  # One byte more.
                ),
            ),
            encode_attributes([1, 2]) + records_of(b"\x00\x00"),  # One set for two records.
            encode_attributes([1, 2]) + records_of(b"\x00\x00" * 3),
            records_of(b"\x00\x00") + b"\x05\x00\x08\x00" + bytes(8),  # In front of the time.
            # A compressed entry: a claim that is cut short, beyond the bound, of more attributes than bytes.
            b"\x07\x00\x05\x00" + bytes(5),
            b"\x07\x00\x07\x00" + bytes(7),
            encode_claim(ZstdClaim(ENTRY_BYTES_MAX + 1, 0)),
            encode_claim(ZstdClaim(2**32 - 1, 0)),
            encode_claim(ZstdClaim(3, 4)),
            encode_attributes([2]) + encode_claim(ZstdClaim(3, 0)),  # Its parts stand in the frame.
            records_of(b"\x00\x00") + encode_claim(ZstdClaim(3, 0)),  # And so does what its records are.
        ],
    )
    def test_attributes_that_are_not_known_or_not_sound_are_refused(
        self, kernel: ModuleType, attributes: bytes
    ) -> None:
        """P3.1: whoever meets an attribute that it does not know refuses the entry, and reads nothing out of it."""
        body = raw_entry(0, 2, attributes + b"ab", attributes_size=len(attributes))
        for function in (kernel.scan, kernel.offsets, kernel.values):
            with pytest.raises(PeerError, match="attributes that are not known or not sound"):
                function(body)
        with pytest.raises(PeerError, match="attributes"):
            read_entry(memoryview(body))

    @pytest.mark.parametrize(
        "records",
        [
            [EntryRecord(b"ab", b"")],
            [EntryRecord(b"ab", b"k" * 300, 0)],
            [EntryRecord(b"ab", timestamp=2**63 - 1, headers={"b": b"", "ab": b"v" * 300, "a": b"\xff"})],
            [EntryRecord(b"a", b"k", 7), EntryRecord(b""), EntryRecord(b"b", headers={"~" * 255: b"1"})],
            [EntryRecord(b"ab", headers={str(number): b"" for number in range(255)})],
        ],
    )
    def test_what_records_have_beside_their_values_is_read_as_it_was_written(
        self, kernel: ModuleType, records: list[EntryRecord]
    ) -> None:
        """WIRE.md 1, RECORDS: a set for each record; neither payload nor length."""
        values = [bytes(record.value) for record in records]
        ends = list(itertools.accumulate(map(len, values))) if len(records) > 1 else []
        attributes = encode_attributes(ends, Producer(1, 2), encode_records(records))
        body = encode_entry(LEDGER, 4, 2, b"".join(values), attributes=attributes)
        assert kernel.scan(body) == kernel.scan(body_of([b""] * 4 + [b"ab"])[4 * ENTRY_OVERHEAD_BYTES :])
        assert bytes(kernel.values(body).data) == b"ab"
        assert kernel.values(body).has_records
        plain = body_of([b"12345"] * 7, with_attributes=True)
        assert not kernel.values(
            plain + encode_entry(LEDGER, 7, 36, b"y", attributes=encode_attributes([1]))
        ).has_records
        found = value_of(read_entry(memoryview(body)).attributes, AttributeKind.RECORDS)
        assert found is not None
        assert list(records_in(found, [memoryview(value) for value in values])) == records

    def test_a_read_out_of_no_entries_is_empty(self, kernel: ModuleType) -> None:
        assert [part.tolist() for part in kernel.offsets(b"")] == [[], []]
        assert [part.tolist() for part in kernel.values(b"")[:3]] == [[], [0], []]


# --- Both against each other --------------------------------------------------------------------------------


def answer(function: Callable[..., object], *arguments: object) -> object:
    """What comes of a call, in a form that compares: the value, or the refusal's words."""
    try:
        found = function(*arguments)
    except PeerError as refused:
        return str(refused)
    if isinstance(found, tuple):
        return [bytes(part) if isinstance(part, memoryview) else part for part in found]
    return bytes(found) if isinstance(found, bytes | bytearray) else found


def assert_twins_agree(body: bytes) -> None:
    assert answer(kernels.scan, body) == answer(twins.scan, body)
    assert answer(kernels.offsets, body) == answer(twins.offsets, body)
    assert answer(kernels.values, body) == answer(twins.values, body)
    for seat in range(3):
        assert answer(kernels.cut, body, 3, 2, seat) == answer(twins.cut, body, 3, 2, seat)
    if isinstance(found := answer(twins.scan, body), list):
        first, last = found[:2]
        for begin in {first, first + 1, last}:
            assert answer(kernels.merge, [body, body], begin, last) == answer(
                twins.merge, [body, body], begin, last
            )


@given(
    st.integers(0, 2**62),
    st.lists(st.binary(max_size=200), max_size=12),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_damaged_bodies_get_the_same_answer_from_both(
    first: int, payloads: list[bytes], chance: random.Random, with_attributes: bool
) -> None:
    """Flipped, cut, doubled, moved: C and Python refuse the same bytes with the same words."""
    body = bytearray(body_of(payloads, first, first, with_attributes=with_attributes))
    assert_twins_agree(bytes(body))
    for _ in range(chance.randrange(4)):
        begin, end = sorted(chance.randrange(len(body) + 1) for _ in range(2))
        damage = chance.randrange(4)
        if damage == 0 and body:
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        elif damage == 1:
            del body[begin:end]
        elif damage == 2:
            body[end:end] = body[begin:end]
        else:
            body[begin:end] = chance.randbytes(end - begin)
    assert_twins_agree(bytes(body))


_ODD = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 3, 2**63 - 2, 2**63 - 1])
_ODD_COUNT = st.sampled_from([0, 1, 2, 3, 2**31, 2**63 - 1, 2**63, 2**64 - 1])


@given(st.lists(st.tuples(_ODD, _ODD_COUNT, st.binary(max_size=3), _ODD, _ODD_COUNT), min_size=1, max_size=3))
def test_odd_numbers_under_a_right_digest_get_the_same_answer_from_both(
    entries: list[tuple[int, int, bytes, int, int]],
) -> None:
    """The edges of 64 bits: neither kind wraps around where the other does not."""
    assert_twins_agree(
        b"".join(
            raw_entry(entry_id, length, payload, lac=lac, lac_length=lac_length)
            for entry_id, length, payload, lac, lac_length in entries
        )
    )


@pytest.mark.parametrize("first", [40, 41, 47, 59])
@pytest.mark.parametrize("bytes_max", [1, 100, 333, 1_000, 100_000])
def test_a_frame_in_parts_is_the_same_entries(first: int, bytes_max: int) -> None:
    """P5.2d: each part is within the bound, or is one entry, and no part could have taken the next entry too."""
    payloads = [bytes([number]) * (number * 7 % 90) for number in range(20)]
    frame = frame_of(memoryview(body_of(payloads, first=40)), 7)
    found = list(parts(frame, first, bytes_max))
    entries = [entry for part in found for entry in split(part)]
    assert entries == [(entry_id, entry) for entry_id, entry in split(frame) if entry_id >= first]
    for part, following in itertools.pairwise(found):
        assert part.last_entry + 1 == following.first_entry
        (_, entry), *_ = split(following)
        assert len(part.body) + len(entry) > bytes_max
    assert all(len(part.body) <= bytes_max or part.entry_count == 1 for part in found)
    assert found[-1].length == frame.length


def test_one_entry_is_as_large_as_the_kernels_think() -> None:
    assert ENTRY_OVERHEAD_BYTES == len(encode_entry(LEDGER, 0, 0, b"")) == 52


@pytest.mark.parametrize("kernel", [kernels, twins], ids=["C", "twin"])
@pytest.mark.parametrize("sizes", [[], [0], [5, 0, 3], [32, 80, 65536], [1] * 40, [3 << 20, 1]])
def test_pieces_are_gathered_in_their_order(kernel: ModuleType, sizes: list[int]) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    given = tuple(memoryview(piece) if number % 2 else piece for number, piece in enumerate(pieces))
    gathered = kernel.gather(given)
    assert len(gathered) == sum(sizes)
    assert memoryview(gathered).readonly
    assert bytes(gathered) == b"".join(pieces)


def test_what_is_no_buffer_is_not_gathered() -> None:
    for pieces in ((b"a", "b"), (b"a", None), (1,)):
        with pytest.raises(TypeError):
            kernels.gather(pieces)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        kernels.gather([b"a"])  # type: ignore[arg-type]


def test_an_error_that_is_kept_with_the_bytes_it_was_about_ends_no_process() -> None:
    """NATIVE.md, manners: "where one of them still lends out a memoryview, and the error becomes part of a cycle,
    CPython's collector ends the process"."""
    story = """
import gc, sys
from array import array
from embedbk.codec import kernels
from embedbk.codec.packer import Packer
from embedbk.errors import EmbedbkError

packer = Packer(7)
wrong = (
    lambda view: kernels.scan(view),
    lambda view: kernels.cut(view, 3, 2, 0),
    lambda view: kernels.offsets(view),
    lambda view: kernels.values(view),
    lambda view: packer.append_buffer(view, memoryview(array("I", [1]))),
)


def keep(number):
    try:
        wrong[number](memoryview(bytearray(100)))
    except EmbedbkError as error:
        kept = error  # This frame keeps it, and it keeps this frame.
    assert kept


gc.disable()
for number in range(len(wrong)):
    keep(number)
    assert gc.collect() > 0
"""
    subprocess.run([sys.executable, "-c", story], check=True, env=environment())


def test_a_block_is_used_again_when_its_last_view_is_gone() -> None:
    """A message costs its copy, not the clearing of fresh pages; what is kept has a bound."""
    story = """
from embedbk._native import lib
from embedbk.codec.kernels import gather
kept = lib.ebk_gather_kept_bytes
size = 300 << 10
gathered = gather((bytes(size),))
view = memoryview(gathered)[100:200]
del gathered
assert kept() == 0, "a view holds it"
view.release()
assert kept() == 512 << 10
again = gather((b"x" * size,))
assert kept() == 0, "the kept one was taken"
del again
held = [gather((bytes(1 << 20),)) for _ in range(40)]
held.clear()
assert 30 << 20 < kept() <= 32 << 20
before = kept()
huge = gather((bytes(17 << 20),))
del huge
assert kept() == before, "too long to be kept"
"""
    subprocess.run([sys.executable, "-c", story], check=True, env=environment())  # The pool is the process's.


def test_both_make_the_same_head_of_a_message() -> None:
    """WIRE 3: header and control part; every number in its place, in full width."""
    numbers = itertools.product(
        (0, 2, 255), (0, 1, 65535), (b"", b"control" * 30), (0, 4 << 20), (0, 7, 2**64 - 1)
    )
    for kind, count, control, size, request_id in numbers:
        heads = [module.message_head(kind, count, control, size, request_id) for module in (kernels, twins)]
        assert heads[0] == heads[1]
    for wrong in ((1, 0, b"", 0), (1, 0, "text", 0, 1), (-1, 0, b"", 0, 1), (1, 0, b"", 0, 2**64)):
        with pytest.raises((TypeError, OverflowError)):
            kernels.message_head(*wrong)  # type: ignore[arg-type]
