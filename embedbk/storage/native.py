"""The handle of the durable floor on the compiled module: `ffi`, `lib`, and codes turned into errors.

Decides which exception a C code becomes; the list itself stands in native/errors.h. Other modules of
`storage/` take `ffi` and `lib` from here and from nowhere else (tests/test_floors.py).
"""

from __future__ import annotations

import os
from typing import Any, NoReturn, cast

from embedbk import errors
from embedbk._native import ffi, lib

__all__ = ["check", "code_name", "code_text", "ffi", "lib", "raise_code", "system_reason"]


def code_name(code: int) -> str:
    """The name of a code in the list of native/errors.h, as "EBK_DAMAGED"."""
    return cast(bytes, ffi.string(lib.ebk_error_name(code))).decode()


def code_text(code: int) -> str:
    """What the list says of a code, one clause."""
    return cast(bytes, ffi.string(lib.ebk_error_text(code))).decode()


def system_reason(errno: int) -> str:
    """The system's own words for an errno, or nothing for 0."""
    return f": {os.strerror(errno)} (errno {errno})" if errno else ""


def raise_code(code: int, what: str, *, hint: str = "") -> NoReturn:
    """Raise the exception that the list names for `code`; `what` says on which file or handle."""
    name = cast(bytes, ffi.string(lib.ebk_error_exception(code))).decode()
    kind: Any = getattr(errors, name, errors.InvariantError)
    message = f"{what}: {code_text(code)}"
    if not issubclass(kind, errors.EmbedbkError):
        raise errors.InvariantError(f"{message} [{code_name(code)}]")
    raise kind(message, hint=hint)


def check(code: int, what: str, *, hint: str = "") -> int:
    """Return `code` when it is no error, else raise as `raise_code` does."""
    if code < 0:
        raise_code(code, what, hint=hint)
    return code
