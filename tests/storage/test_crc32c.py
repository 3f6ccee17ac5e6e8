"""CRC32C: every kind of kernel against crcmod, which shares no code with it."""

from __future__ import annotations

import random
import re
from pathlib import Path

import crcmod.predefined
import pytest

from embedbk.errors import InvariantError
from embedbk.storage import native
from embedbk.storage.native import ffi, lib

ERRORS = Path(__file__).parents[2] / "native" / "base" / "errors.h"
oracle = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
KINDS = {
    "portable": lib.EBK_CRC32C_PORTABLE,
    "x86": lib.EBK_CRC32C_X86,
    "x86 wide": lib.EBK_CRC32C_X86_WIDE,
    "arm": lib.EBK_CRC32C_ARM,
}

# Around each size at which a kernel changes its way: words of 8, lanes of 128, 512 and 4096 bytes, 64 and 256 folded.
EDGES = sorted(
    {
        max(0, at + step)
        for at in (0, 8, 16, 256, 320, 384, 512, 576, 768, 1088, 1536, 1920, 12288, 14208)
        for step in (-1, 0, 1, 7)
    }
)


def crc_by(kind: str, data: bytes | memoryview, crc: int = 0) -> int | None:
    """By the named kernel; None where the processor lacks it."""
    out = ffi.new("uint32_t *")
    code = lib.ebk_crc32c_with(KINDS[kind], crc, ffi.from_buffer(data), len(data), out)
    return out[0] if code == lib.EBK_OK else None


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    if crc_by(request.param, b"") is None:
        pytest.skip(f"this processor has no {request.param} kernel")
    return str(request.param)


def test_each_kind_gives_the_published_check_value(kind):
    """The catalogue's value for nine digits."""
    assert crc_by(kind, b"123456789") == 0xE3069283


def test_each_kind_agrees_with_the_oracle_at_every_edge(kind):
    """The kernels change their loop at these sizes; the offset makes the start unaligned."""
    for size in EDGES:
        data = random.Random(size).randbytes(size + 3)
        for offset in (0, 3):
            view = memoryview(data)[offset : offset + size]
            assert crc_by(kind, view) == oracle(bytes(view)), size


def test_each_kind_goes_on_from_a_crc(kind):
    """crc32c(b, crc32c(a)) == crc32c(a + b), wherever the bytes are cut."""
    data = random.Random(1).randbytes(5000)
    for cut in (0, 1, 9, 256, 400, 1537, 4744, 4999, 5000):
        assert crc_by(kind, data[cut:], crc_by(kind, data[:cut])) == oracle(data)


def test_the_chosen_kind_is_the_hardware_where_there_is_any():
    others = [kind for kind in ("x86 wide", "x86", "arm") if crc_by(kind, b"") is not None]
    assert lib.ebk_crc32c_kind() == KINDS[others[0] if others else "portable"]


def test_a_kind_of_another_processor_is_refused_by_its_code():
    """The portable kernel may never stand in silently for one that was asked for."""
    missing = [kind for kind in KINDS if crc_by(kind, b"") is None]
    assert missing  # No processor has both families.
    out = ffi.new("uint32_t *")
    assert lib.ebk_crc32c_with(KINDS[missing[0]], 0, b"", 0, out) == lib.EBK_UNSUPPORTED


def test_two_crcs_join_without_reading_the_bytes_again():
    """Zero bits appended are a multiplication; an empty second part changes nothing."""
    data = random.Random(2).randbytes(3000)
    for cut in (0, 1, 8, 1000, 2999, 3000):
        joined = lib.ebk_crc32c_combine(oracle(data[:cut]), oracle(data[cut:]), len(data) - cut)
        assert joined == oracle(data)


def test_every_flipped_bit_changes_the_crc():
    """What a checksum is for: no single bit of a block turns unseen."""
    data = bytearray(random.Random(3).randbytes(96))
    good = lib.ebk_crc32c(0, ffi.from_buffer(data), len(data))
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        assert lib.ebk_crc32c(0, ffi.from_buffer(data), len(data)) != good
        data[bit // 8] ^= 1 << bit % 8


def test_the_start_up_check_passes_here():
    native.self_test()


def test_every_code_has_a_name_a_text_and_a_class():
    """One list: what C returns, Python can raise; a code that is no error or unknown is a bug when raised."""
    listed = re.findall(r"EBK_ERROR\((EBK_\w+), +(-\d+),", ERRORS.read_text())
    assert len({code for _, code in listed}) == len(listed) >= 12
    for name, code in ((name, int(code)) for name, code in listed):
        assert getattr(lib, name) == code
        assert native.code_name(code) == name
        assert native.code_text(code) != native.code_text(-9999)
        with pytest.raises(native.error_class(code)):
            native.check(code, "a file")
    assert native.error_class(-9999) is InvariantError
