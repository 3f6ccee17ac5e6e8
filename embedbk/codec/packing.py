"""What a packer is to a writing handle and its host: the contract of the one in C and of its twin (P3.1, P8.11).

Decides what callers may rely on, what no packer takes, and which entries carry their time. `packer` has the one in C,
`packer_twin` the plain form; both pass the same tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol

from embedbk.codec.arrow_rows import ValueColumn
from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES
from embedbk.codec.frame import Frame
from embedbk.config import ENTRY_BYTES_MAX, FRAME_BYTES_MAX
from embedbk.errors import UsageError
from embedbk.ids import LEDGER_ID_MAX

__all__ = [
    "NOTE_BYTES",
    "PACKER_CONFLICT",
    "PACKER_FULL",
    "PACKER_STOPPED",
    "TIME_EVERY",
    "Buffer",
    "Packing",
    "carries_time",
    "check_packer",
    "refuse_payload",
    "refuse_sizes",
    "release_body",
]

Buffer = bytes | bytearray | memoryview

# Instead of an entry id; the numbers are those of EBK_FULL, EBK_FAILED and EBK_CONFLICT in native/base/errors.h.
PACKER_FULL = -1  # Too many bytes unreleased: nothing was appended, try again when a frame was released.
PACKER_STOPPED = -2  # After stop(): nothing was appended, nor ever will be.
PACKER_CONFLICT = -13  # Another id than the expected one is the next: nothing was appended.

NOTE_BYTES = 48  # In front of every frame in a block, as EBK_NOTE_BYTES.
TIME_EVERY = 64
TIME_PAYLOAD_BYTES = 4096


class Packing(Protocol):
    """The packer as a writing handle and its host use it. Any thread may call anything.

    append(data) copies one payload and returns (entry id, should_wake), or (PACKER_FULL or PACKER_STOPPED,
    should_wake). should_wake: there is a first entry or a first full frame, so the host must be woken; only then.
    Raises UsageError for a payload over ENTRY_BYTES_MAX or no bytes.

    append_many(payloads) appends as many as fit, one behind the other, and returns (first id, taken, should_wake);
    fewer taken than given: the packer is full, or is_stopped. A payload that is refused means none was appended.
    append_many(payloads, caller), caller a number above 0: when only some were taken, every other append finds the
    packer full until the same caller has appended the rest, so that the ids of all it appends are dense. A caller that
    does not go on calls give_up_rest(caller), which does nothing for other callers.

    append_many(payloads, caller, attributes): the same with attributes, one for each payload, as for append_with; with
    any caller, 0 among them.

    append_rows(columns, begin, caller): as append_many with a caller, of the rows of a tuple of columns, one column
    behind the other, from the row `begin` of all of them on (codec.arrow_columns).

    append_with(data, attributes, expected): as append, of an entry with attributes (codec.attributes), which count for
    the limit; unless expected is below 0, only as entry `expected`, or PACKER_CONFLICT.

    append_with(data, attributes, expected, told): the same, and the list `told` gets the id as the entry is appended:
    what a signal handler raises finds both, or neither.

    begin_times(floor_ms, now_ms): entries have times from now on (P8.11): ms since 1970, none below floor_ms, nor below
    that of the entry before. now_ms: returns the time, and is called by each call that appends; None: the packer reads
    the wall clock itself. An entry carries its time if `carries_time` is true; that counts for bytes_max, and not
    for the limit of a payload. time_ms: that of the last entry, or floor_ms; -1 before either.

    set_lac(lac, lac_length): what entries carry that are appended from now on; it never falls.

    begin_sums(modulus): before the first append; digests of all entries (`entry_digest`) are added up from then on, by
    residue of their ids (P11.4).
    """

    ledger_id: int

    @property
    def append(self) -> Callable[[Buffer], tuple[int, bool]]: ...
    @property
    def append_many(self) -> Callable[..., tuple[int, int, bool]]: ...
    @property
    def give_up_rest(self) -> Callable[[int], None]: ...
    @property
    def append_rows(self) -> Callable[[tuple[ValueColumn, ...], int, int], tuple[int, int, bool]]: ...
    @property
    def append_with(self) -> Callable[..., tuple[int, bool]]: ...
    @property
    def set_lac(self) -> Callable[[int, int], None]: ...

    def begin_times(self, floor_ms: int, now_ms: Callable[[], int] | None) -> None: ...

    def begin_sums(self, modulus: int) -> None: ...

    def sums_through(self, entry_id: int) -> tuple[int, ...]:
        """By residue the sum of all entries up to this one, at which a frame ends; every frame up to it is done, and
        no earlier one is asked for any more. Empty: that cannot be told."""
        ...

    @property
    def time_ms(self) -> int: ...

    def append_buffer(self, data: Buffer, sizes: Buffer) -> tuple[int, int, bool]:
        """As append_many, for payloads that lie behind each other in data; sizes is an array of uint32."""
        ...

    def append_again(self, frame: Frame, begin: int, count: int) -> int:
        """Append again `count` entries of a frame of another packer, from its `begin`th on: attributes and payload as
        they are there, all else as this one gives it, their times among that. What counted for the bounds there has
        room here, so that only stop() and a want of memory take fewer. How many were appended; the caller releases that
        frame next."""
        ...

    @property
    def held_by(self) -> int:
        """The caller that the packer waits for to append the rest of its items (append_many); 0: none."""
        ...

    def hold_for(self, caller: int) -> None:
        """Wait for the rest of this caller's items from now on; 0: for none."""
        ...

    def seal(self) -> Frame | None:
        """The oldest full frame, or else the open one, or None. Its body stays alive as long as it is referenced."""
        ...

    def release(self, frame: Frame) -> None:
        """Give a sealed frame's memory back now and not with its last reference; its body may not be used again."""
        ...

    def stop(self) -> None:
        """Refuse appends from now on; what was appended can still be sealed."""
        ...

    def open_count(self) -> int:
        """Entries in the frame that is not full."""
        ...

    def has_full(self) -> bool: ...

    @property
    def is_stopped(self) -> bool: ...
    @property
    def next_entry(self) -> int: ...
    @property
    def last_entry(self) -> int:
        """The last id that was given (the last add pushed), NO_ENTRY before the first."""
        ...

    @property
    def length(self) -> int:
        """Payload bytes of the ledger up to and including last_entry."""
        ...

    @property
    def unreleased_bytes(self) -> int:
        """Bytes of entries that are not in a released frame: what bytes_max bounds."""
        ...


def carries_time(entry_id: int, size: int, *, is_as_before: bool) -> bool:
    """Whether an entry with a payload of so many bytes carries its time: if that differs from the time of the entry
    before it, and now and then in any case, so that a search for the time of an entry reads only a few before it."""
    return not is_as_before or entry_id % TIME_EVERY == 0 or size >= TIME_PAYLOAD_BYTES


def check_packer(ledger_id: int, next_entry: int, length: int, block_bytes: int, bytes_max: int) -> None:
    """Raises UsageError when no packer can be made of these numbers."""
    if not 0 <= ledger_id <= LEDGER_ID_MAX or next_entry < 0 or length < 0:
        raise UsageError(f"no packer for ledger {ledger_id}, entry {next_entry}, length {length}")
    if not ENTRY_OVERHEAD_BYTES <= block_bytes - NOTE_BYTES <= FRAME_BYTES_MAX or bytes_max < 1:
        raise UsageError(
            f"no packer with block_bytes={block_bytes}, bytes_max={bytes_max}: a block holds "
            f"{NOTE_BYTES + ENTRY_OVERHEAD_BYTES} to {NOTE_BYTES + FRAME_BYTES_MAX} bytes"
        )


def refuse_payload(data: object) -> NoReturn:
    """Raise for a payload that no entry can hold."""
    try:
        size = memoryview(data).nbytes  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(
            f"an entry is bytes or a buffer of them, not {type(data).__name__}",
            hint="of many items the first says what all are: payloads, or records",
        ) from None
    if size <= ENTRY_BYTES_MAX and not memoryview(data).c_contiguous:  # type: ignore[arg-type]
        raise UsageError("the buffer of an entry must be contiguous")
    what = "" if size > ENTRY_BYTES_MAX else " and its attributes"
    raise UsageError(f"an entry of {size} bytes{what}: at most {ENTRY_BYTES_MAX} are allowed")


def release_body(frame: Frame) -> None:
    """Let go of a frame's bytes, unless an export of them is still held: then releasing the last export does it."""
    try:
        frame.body.release()
    except BufferError:
        return


def refuse_sizes(data: Buffer, sizes: Buffer) -> NoReturn:
    """Raise for an append_buffer whose sizes do not add up to its bytes."""
    raise UsageError(
        f"{memoryview(data).nbytes} bytes with {memoryview(sizes).nbytes // 4} sizes: the sizes are uint32, sum up to "
        f"the bytes, and none is above {ENTRY_BYTES_MAX}"
    )
