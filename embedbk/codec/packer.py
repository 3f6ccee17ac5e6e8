"""The packer: the open frame of one writing handle, where user threads append and the host thread seals (P3.1, P3.7).

It makes each entry once, in C, in the memory from which the entry is sent and journaled: header, payload, CRC32C. It
gives ids densely and reports when it is full or stopped. The writer core decides when a frame is sealed, and what the
LAC is. Memory only.

The contract is `packing.Packing`; `packer_twin.TwinPacker` is the plain form, and both pass the same tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from embedbk import _native
from embedbk._native import ffi, lib
from embedbk.codec.frame import Frame
from embedbk.codec.packing import (
    PACKER_CONFLICT,
    PACKER_FULL,
    PACKER_STOPPED,
    Buffer,
    Packing,
    check_packer,
    refuse_payload,
    refuse_sizes,
    release_body,
)
from embedbk.config import FRAME_BLOCK_BYTES, PACKER_BYTES_MAX, PACKER_POOL_BYTES_MAX
from embedbk.errors import ensure

__all__ = [
    "PACKER_CONFLICT",
    "PACKER_FULL",
    "PACKER_STOPPED",
    "Packer",
    "Packing",
    "ToldPacker",
    "pool_bytes_used",
]

if lib.ebk_python_calls_install() != 0:
    raise MemoryError("no memory for the calls of the packer")
lib.ebk_pool_set_bytes_max(PACKER_POOL_BYTES_MAX)


_Native: Any = _native.packing_type(refuse_payload)


class Packer(_Native):  # type: ignore[misc]
    """`Packing` in C: append, append_many, append_with, set_lac, stop and what can be looked at are the base's."""

    __slots__ = ("ledger_id",)

    def __init__(
        self,
        ledger_id: int,
        *,
        next_entry: int = 0,
        length: int = 0,
        block_bytes: int = FRAME_BLOCK_BYTES,
        bytes_max: int = PACKER_BYTES_MAX,
    ) -> None:
        check_packer(ledger_id, next_entry, length, block_bytes, bytes_max)
        self.ledger_id = ledger_id
        self._open(ledger_id, next_entry, length, block_bytes, bytes_max)

    @property
    def handle(self) -> Any:
        """The struct of native/wire/packer.h, for C code that seals."""
        return ffi.cast("struct ebk_packer *", self._address)

    def append_buffer(self, data: Buffer, sizes: Buffer) -> tuple[int, int, bool]:
        """As append_many, for payloads that lie behind each other in data; sizes is an array of uint32."""
        done = ffi.new("struct ebk_appended *")
        packer = ffi.cast("struct ebk_packer *", self._address)
        # C adds them up, then goes by them: another thread may change the caller's.
        told = memoryview(sizes).tobytes()
        with ffi.from_buffer(data) as source, ffi.from_buffer("uint32_t[]", told) as counts:
            answer = lib.ebk_packer_append_run(packer, source, len(source), counts, len(counts), done)
        if answer == lib.EBK_USAGE:
            refuse_sizes(data, sizes)
        return done.first_entry, done.taken, bool(done.should_wake)

    def begin_times(self, floor_ms: int, now_ms: Callable[[], int] | None) -> None:
        """now_ms None: as production does it. Else see `ToldPacker`."""
        is_told = now_ms is not None
        lib.ebk_packer_begin_times(ffi.cast("struct ebk_packer *", self._address), floor_ms, is_told)

    @property
    def time_ms(self) -> int:
        return int(lib.ebk_packer_time(ffi.cast("struct ebk_packer *", self._address)))

    def begin_sums(self, modulus: int) -> None:
        if lib.ebk_packer_begin_sums(ffi.cast("struct ebk_packer *", self._address), modulus) != 0:
            raise MemoryError("no memory for the sums of a packer")

    def sums_through(self, entry_id: int) -> tuple[int, ...]:
        found = ffi.new("uint64_t[]", lib.EBK_SUMS_MODULUS_MAX)
        packer = ffi.cast("struct ebk_packer *", self._address)
        return tuple(found[0 : lib.ebk_packer_sums_through(packer, entry_id, found)])

    def append_again(self, frame: Frame, begin: int, count: int) -> int:
        """Append again `count` entries of a frame of another packer, from its `begin`th on (`Packing`)."""
        done = ffi.new("struct ebk_appended *")
        packer = ffi.cast("struct ebk_packer *", self._address)
        with ffi.from_buffer(frame.body) as source:
            answer = lib.ebk_packer_append_again(packer, source, len(source), begin, count, done)
        ensure(answer != lib.EBK_USAGE, "a frame holds its entries whole")
        return int(done.taken)

    @property
    def held_by(self) -> int:
        return int(lib.ebk_packer_held_by(ffi.cast("struct ebk_packer *", self._address)))

    def hold_for(self, caller: int) -> None:
        lib.ebk_packer_hold_for(ffi.cast("struct ebk_packer *", self._address), caller)

    def seal(self) -> Frame | None:
        """The oldest full frame, or else the open one, or None. Its body stays alive as long as it is referenced."""
        found = super().seal()
        if found is None:
            return None
        body, count, first, last, length = found
        return Frame(self.ledger_id, first, last, count, length, body)

    def release(self, frame: Frame) -> None:
        """Give a sealed frame's memory back now and not with its last reference; its body may not be used again."""
        release_body(frame)


class ToldPacker(Packer):
    """The same in a simulated world, whose time is not the wall clock's: each call that appends passes the time."""

    __slots__ = ("_now_ms",)

    def begin_times(self, floor_ms: int, now_ms: Callable[[], int] | None) -> None:
        assert now_ms is not None
        super().begin_times(floor_ms, now_ms)
        self._now_ms = now_ms

    def _tell_time(self) -> None:
        now_ms = getattr(self, "_now_ms", None)
        if now_ms is not None:
            lib.ebk_packer_tell_time(ffi.cast("struct ebk_packer *", self._address), now_ms())

    def append(self, data: Buffer) -> tuple[int, bool]:
        self._tell_time()
        taken: tuple[int, bool] = super().append(data)
        return taken

    def append_many(
        self, payloads: Iterable[Buffer], caller: int = 0, *attributes: Sequence[bytes]
    ) -> tuple[int, int, bool]:
        self._tell_time()
        taken: tuple[int, int, bool] = super().append_many(payloads, caller, *attributes)
        return taken

    def append_buffer(self, data: Buffer, sizes: Buffer) -> tuple[int, int, bool]:
        self._tell_time()
        return super().append_buffer(data, sizes)

    def append_rows(self, *rows: Any) -> tuple[int, int, bool]:
        self._tell_time()
        taken: tuple[int, int, bool] = super().append_rows(*rows)
        return taken

    def append_with(self, *given: Any) -> tuple[int, bool]:
        self._tell_time()
        taken: tuple[int, bool] = super().append_with(*given)
        return taken

    def append_again(self, frame: Frame, begin: int, count: int) -> int:
        self._tell_time()
        return super().append_again(frame, begin, count)


def pool_bytes_used() -> int:
    """Bytes of all blocks that packers of this process have in use."""
    return int(lib.ebk_pool_used_bytes())
