"""Common answers to adds, read and counted in C for a client's cores (native/road/answers.h).

The contract is `answers_twin.Counting`; `TwinAnswers` there is the plain form, and both pass the same tests.
"""

from __future__ import annotations

import struct
from typing import Any

from embedbk._native import ffi, lib
from embedbk.codec.answers_twin import Asked, Buffer, Counting

__all__ = ["Answers", "Asked", "Counting"]

_COUNTED = struct.Struct("=QQ?7x")
assert ffi.sizeof("struct ebk_counted") == _COUNTED.size


class Answers:
    """`Counting` in C."""

    __slots__ = ("_asked", "_state", "handle")

    def __init__(self) -> None:
        answers = lib.ebk_answers_new()
        if answers == ffi.NULL:
            raise MemoryError("no memory to count answers")
        self.handle: Any = ffi.gc(answers, lib.ebk_answers_free)  # For transports that offer from C.
        self._state = lib.ebk_answers_state(answers)
        self._asked = ffi.new("struct ebk_asked *")

    @property
    def is_eager(self) -> bool:
        return bool(self._state.is_eager)

    @is_eager.setter
    def is_eager(self, is_eager: bool) -> None:
        self._state.is_eager = is_eager

    @property
    def is_due(self) -> bool:
        return bool(self._state.is_due)

    @property
    def untold(self) -> int:
        return int(self._state.untold)

    @property
    def counted(self) -> int:
        return int(self._state.counted)

    def next_request(self) -> int:
        request_id = int(self._state.next_request)
        self._state.next_request = request_id + 1
        return request_id

    def expect(self, asked: Asked) -> None:
        self._asked[0] = asked
        lib.ebk_answers_expect(self.handle, self._asked)

    def answered(self, request_id: int) -> None:
        lib.ebk_answers_answered(self.handle, request_id)

    def take(self, link: int, message: Buffer) -> bool:
        with ffi.from_buffer(message) as source:
            return bool(lib.ebk_answers_take(self.handle, link, source, len(source)))

    def tell(self) -> list[tuple[int, int, bool]]:
        count = self._state.untold
        told = lib.ebk_answers_tell(self.handle)
        return list(_COUNTED.iter_unpack(ffi.buffer(told, count * _COUNTED.size)))
