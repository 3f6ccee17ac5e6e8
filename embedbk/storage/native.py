"""The handle of the durable floor on the compiled module: `ffi`, `lib`, and codes turned into errors.

Decides which exception a C code becomes; the list itself stands in native/base/errors.h. Other modules of
`storage/` take `ffi` and `lib` from here and from nowhere else (tests/test_floors.py).
"""

from __future__ import annotations

import errno
import os
from typing import NoReturn, cast

from embedbk import errors
from embedbk._native import ffi, lib
from embedbk.codec import twins

__all__ = [
    "SYSTEM_HINTS",
    "TOO_MANY_FILES",
    "TOO_MANY_FILES_HINT",
    "check",
    "code_name",
    "code_text",
    "error_class",
    "ffi",
    "lib",
    "raise_code",
    "self_test",
    "system_reason",
]

_CHECK_VALUE = 0xE3069283  # CRC-32C of "123456789", as its catalogue gives it.


def code_name(code: int) -> str:
    """The name of a code in the list of native/base/errors.h, as "EBK_DAMAGED"."""
    return cast(bytes, ffi.string(lib.ebk_error_name(code))).decode()


def code_text(code: int) -> str:
    """The text of an error code, one clause."""
    return cast(bytes, ffi.string(lib.ebk_error_text(code))).decode()


def system_reason(number: int) -> str:
    """The system's own words for an errno, or nothing for 0."""
    return f": {os.strerror(number)} (errno {number})" if number else ""


TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
TOO_MANY_FILES_HINT = (
    "raise the limit of open files (ulimit -n) of this process, or close some, then open it again"
)


# What helps where neither the device is full nor its permissions are in the way.
SYSTEM_HINTS = {
    errno.EFBIG: "raise the limit of file sizes (ulimit -f) of this process",
    errno.EROFS: "the file system was mounted read-only, or became so when its device failed: look at the system's log",
    errno.EDQUOT: "raise this user's quota on the device",
}


def error_class(code: int) -> type[Exception]:
    """The class that the list names for `code`; `InvariantError` for a code that is never raised."""
    name = cast(bytes, ffi.string(lib.ebk_error_exception(code))).decode()
    return cast(type[Exception], getattr(errors, name, errors.InvariantError))


def raise_code(code: int, what: str, *, hint: str = "") -> NoReturn:
    """Raise the exception of `code`. what: the file or handle, and what was found."""
    kind = error_class(code)
    if not issubclass(kind, errors.EmbedbkError):
        raise errors.InvariantError(f"{what} [{code_name(code)}: {code_text(code)}]")
    raise kind(what, hint=hint)


def self_test() -> None:
    """Check the module's CRC32C against an oracle written by others, before the first byte is trusted to it.

    Raises:
        InvariantError: it computes wrong values on this machine; nothing may be stored with it.
    """
    oracle = twins.crc32c  # In plain Python over crcmod.
    errors.ensure(lib.ebk_crc32c(0, b"123456789", 9) == _CHECK_VALUE, "crc32c gives a wrong check value")
    # 1,600 bytes pass every path of the x86 kernel but its longest lane, which has the same loop.
    sample = bytes((i * 167 + (i >> 3)) & 0xFF for i in range(1600))
    for size in (0, 1, 7, 8, 383, 384, 1535, 1536, 1600):
        part = sample[:size]
        errors.ensure(lib.ebk_crc32c(0, part, size) == oracle(part), f"crc32c is wrong over {size} bytes")
    first, second = oracle(sample[:700]), oracle(sample[700:])
    joined = lib.ebk_crc32c_combine(first, second, len(sample) - 700)
    errors.ensure(joined == oracle(sample), "crc32c_combine is wrong")


def check(code: int, what: str, *, hint: str = "") -> int:
    """Return `code` if it is no error, else raise its exception about `what`."""
    if code < 0:
        raise_code(code, f"{what}: {code_text(code)}", hint=hint)
    return code
