"""MessagePack that others wrote, as values: what a peer sent, and what stands in metadata or in a file.

Decides nothing but this: a value leaves, or the error that the caller named. Whatever the library under it raises is
that error, so that no byte of a stranger's raises anything else to a host (T10).
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from embedbk.errors import EmbedbkError

__all__ = ["unpack"]

_Value = TypeVar("_Value")


def unpack(
    decoder: msgspec.msgpack.Decoder[_Value],
    data: bytes | bytearray | memoryview,
    refusal: type[EmbedbkError],
    what: str,
) -> _Value:
    """The value in data. Raises `refusal`, its text beginning with `what`, for bytes that hold none."""
    try:
        return decoder.decode(data)
    except Exception as broken:
        # The decoder is C and calls no Python. What comes out of another frame was raised by a signal handler of the
        # application, which ran here by chance, and says nothing of these bytes.
        if broken.__traceback__ is not None and broken.__traceback__.tb_next is not None:
            raise
        # Text that is no UTF-8 is a UnicodeDecodeError, arrays in arrays in arrays are a RecursionError: a list of what
        # a decoder may raise would be another promise that somebody else keeps.
        raise refusal(f"{what}: {broken}") from broken
