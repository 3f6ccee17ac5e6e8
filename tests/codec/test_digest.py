"""Tags: what they cover, and what a copy without a right one is (P3.1)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

import pytest
import xxhash

from embedbk._native import lib
from embedbk.codec import kernels, twins
from embedbk.codec.attributes import Producer, encode_attributes, encode_time
from embedbk.codec.digest import DigestType, check_tags, digest_of_entry, encode_tagged, tag_bytes
from embedbk.codec.entry import ENTRY_HEADER, encode_entry, read_entry
from embedbk.codec.frame import frame_of
from embedbk.codec.kernels import crc32c
from embedbk.errors import PeerError

KEY = b"key of the tags"
TAGGED = [DigestType.XXH3, DigestType.HMAC]


def body_of(digest: DigestType, key: bytes = KEY) -> bytes:
    attributes = encode_attributes([1, 5], Producer(7, 1))
    zero = encode_tagged(digest, key, 7, 0, 4, b"zero")
    return zero + encode_tagged(digest, key, 7, 1, 9, b"aaaaa", 0, 4, attributes)


@pytest.mark.parametrize("digest", TAGGED)
def test_a_tag_covers_all_of_its_entry_but_itself(digest: DigestType) -> None:
    """P3.1: as WIRE.md says: the entry without the tag's value and without the CRC32C."""
    entry = encode_tagged(digest, KEY, 7, 0, 4, b"zero")
    size = tag_bytes(digest) - 4
    covered = entry[: 48 + 4] + b"zero"
    want = {
        DigestType.XXH3: xxhash.xxh3_64(covered).digest(),
        DigestType.HMAC: hmac.new(KEY, covered, hashlib.sha256).digest(),
    }[digest]
    assert entry[48 + 4 : 48 + 4 + size] == want
    assert len(entry) == 52 + tag_bytes(digest) + 4
    check_tags(frame_of(memoryview(body_of(digest))), digest, KEY)


@pytest.mark.parametrize("digest", [*TAGGED, DigestType.CRC32C])
@pytest.mark.parametrize(
    "behind", [b"", encode_time(1_234), bytes((6, 0, 1, 0, 9))], ids=["last", "time", "records"]
)
def test_the_digest_of_a_ledger_is_known_by_any_entry(digest: DigestType, behind: bytes) -> None:
    """P10.5, P3.1: whoever adopts a ledger learns its digest from its entries. One of a log carries its time behind the
    tag; a ledger adopted as one without tags is never checked by them again."""
    attributes = encode_attributes([4], Producer(7, 1))
    if digest == DigestType.CRC32C:
        entry = encode_entry(7, 0, 4, b"zero", attributes=attributes + behind)
    else:
        entry = encode_tagged(digest, KEY, 7, 0, 4, b"zero", attributes=attributes, behind=behind)
    assert digest_of_entry(memoryview(entry)) == digest


@pytest.mark.parametrize("digest", TAGGED)
def test_damage_under_a_right_crc_is_found(digest: DigestType) -> None:
    """P3.1: every byte of header, attributes, tag and payload. The scan of a bookie finds it by XXH3; by HMAC only a
    client does, who has the key."""
    sound = encode_tagged(digest, KEY, 7, 3, 9, b"four", 1, 4)
    scanned = found = 0
    for at in range(len(sound) - 4):
        damaged = bytearray(sound[:-4])
        damaged[at] ^= 0x01
        body = bytes(damaged) + crc32c(damaged).to_bytes(4, "little")
        try:
            frame = frame_of(memoryview(body))
        except PeerError:
            scanned += 1  # The tag, or an impossible header.
            continue
        with pytest.raises(PeerError, match=rf"entry \d+ fails its {digest.name} tag"):
            check_tags(frame, digest, KEY)
        found += 1
    assert scanned + found == len(sound) - 4
    assert scanned == len(sound) - 4 if digest == DigestType.XXH3 else found > tag_bytes(digest)


def test_no_tag_and_the_other_kind_of_tag_are_failed_copies() -> None:
    plain = frame_of(memoryview(encode_entry(7, 0, 4, b"zero")))
    check_tags(plain, DigestType.CRC32C, b"")
    for digest, body in ((DigestType.XXH3, DigestType.HMAC), (DigestType.HMAC, DigestType.XXH3)):
        with pytest.raises(PeerError, match="entry 0 fails"):
            check_tags(frame_of(memoryview(body_of(body))), digest, KEY)
        with pytest.raises(PeerError, match="entry 0 fails"):
            check_tags(plain, digest, KEY)


def test_an_hmac_of_another_key_is_a_failed_copy() -> None:
    """P3.1: who does not know the password made it."""
    frame = frame_of(memoryview(body_of(DigestType.HMAC, b"another")))
    with pytest.raises(PeerError, match="ledger 7, entry 0 fails its HMAC tag"):
        check_tags(frame, DigestType.HMAC, KEY)


@pytest.mark.parametrize("size", [*range(260), 300, 1023, 1024, 1025, 5000, 70_000])
def test_the_kernel_gives_what_the_xxhash_package_gives(size: int) -> None:
    """XXH3 of 64 bits in C, over two pieces cut anywhere."""
    data = bytes((i * 167 + (i >> 3)) & 0xFF for i in range(size))
    for cut in {0, size // 3, min(size, 64), min(size, 100), size}:
        head, tail = data[:cut], data[cut:]
        found = lib.ebk_xxh3(head, len(head), tail, len(tail))
        assert found == xxhash.xxh3_64_intdigest(data), cut


@pytest.mark.parametrize("scan", [kernels.scan, twins.scan, lambda body: read_entry(memoryview(body))])
@pytest.mark.parametrize("attributes", [b"", encode_attributes([3, 5], Producer(7, 1))])
def test_a_scan_checks_the_xxh3_tag(scan: Callable[[bytes], object], attributes: bytes) -> None:
    """ST40, P3.1: a bookie checks it before it stores, a reader before it believes; the CRC alone is not enough."""
    entry = encode_tagged(DigestType.XXH3, b"", 3, 0, 5, b"hello", attributes=attributes)
    scan(entry)
    begin = ENTRY_HEADER.size + ENTRY_HEADER.unpack_from(entry)[2] - 8
    for at in (0, 7):
        wrong = bytearray(entry)
        wrong[begin + at] ^= 1
        wrong[-4:] = crc32c(bytes(wrong[:-4])).to_bytes(4, "little")
        with pytest.raises(PeerError, match=r"fails its (digest|XXH3 tag)"):
            scan(bytes(wrong))
