"""The packer once more in plain Python, and the contract of both: same ids, same bytes, same frames.

For tests, the simulator and reading by hand; and for ledgers with a second digest, whose tags are made here. Its lock
is given to it, because nothing on this floor waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import repeat
from typing import NoReturn, Protocol

from embedbk.codec.arrow_rows import Rows, ValueColumn
from embedbk.codec.attributes import AttributeKind, encode_time, parted, without
from embedbk.codec.digest import DigestType, encode_tagged, tag_bytes
from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES, encode_entry
from embedbk.codec.entry_digest import DIGEST_MASK, entry_digest
from embedbk.codec.frame import Frame, split
from embedbk.config import ENTRY_BYTES_MAX, FRAME_BLOCK_BYTES, FRAME_BYTES_MAX, PACKER_BYTES_MAX
from embedbk.errors import UsageError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "PACKER_CONFLICT",
    "PACKER_FULL",
    "PACKER_STOPPED",
    "Buffer",
    "Packing",
    "TIME_EVERY",
    "TwinPacker",
    "carries_time",
    "check_packer",
    "refuse_payload",
]

Buffer = bytes | bytearray | memoryview

# Instead of an entry id; the numbers are those of EBK_FULL, EBK_FAILED and EBK_CONFLICT in native/base/errors.h.
PACKER_FULL = -1  # Too many bytes unreleased: nothing was appended, try again when a frame was released.
PACKER_STOPPED = -2  # After stop(): nothing was appended, nor ever will be.
PACKER_CONFLICT = -13  # Another id than the expected one is the next: nothing was appended.

# Where frames end depends on these, so that both kinds cut the same frames; native/wire/packer_inside.h draws them.
_NOTE_BYTES = 48
_NOTE_ALIGN = 8
TIME_EVERY = 64
TIME_PAYLOAD_BYTES = 4096
_CRC_BYTES = ENTRY_OVERHEAD_BYTES - ENTRY_HEADER.size


_TIME_BYTES = len(encode_time(0))
_MADE_ANEW = (AttributeKind.XXH3, AttributeKind.HMAC, AttributeKind.TIME)


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
    if not ENTRY_OVERHEAD_BYTES <= block_bytes - _NOTE_BYTES <= FRAME_BYTES_MAX or bytes_max < 1:
        raise UsageError(
            f"no packer with block_bytes={block_bytes}, bytes_max={bytes_max}: a block holds "
            f"{_NOTE_BYTES + ENTRY_OVERHEAD_BYTES} to {_NOTE_BYTES + FRAME_BYTES_MAX} bytes"
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


class _Body(bytearray):
    """The bytes of a sealed frame. It notifies the packer when the last reference to it is gone."""

    on_release: Callable[[int], None]

    def __del__(self) -> None:
        self.on_release(len(self))


@dataclass(slots=True)
class _OpenFrame:
    first_entry: int
    entries: list[bytes]
    size: int
    length: int


class TwinPacker:
    """`Packing` in plain Python. lock: what makes it safe for threads, where there are any."""

    def __init__(
        self,
        ledger_id: int,
        *,
        next_entry: int = 0,
        length: int = 0,
        block_bytes: int = FRAME_BLOCK_BYTES,
        bytes_max: int = PACKER_BYTES_MAX,
        lock: AbstractContextManager[object] | None = None,
        digest: int = DigestType.CRC32C,
        mac_key: bytes = b"",
    ) -> None:
        """digest, mac_key: of the tag that every entry gets."""
        check_packer(ledger_id, next_entry, length, block_bytes, bytes_max)
        self.ledger_id = ledger_id
        self.next_entry = next_entry
        self.length = length
        self.unreleased_bytes = 0
        self.is_stopped = False
        self._digest, self._mac_key, self._tag_bytes = digest, mac_key, tag_bytes(digest)
        self._lac, self._lac_length = NO_ENTRY, 0
        self.time_ms = self._written_ms = NO_ENTRY
        self._now_ms: Callable[[], int] | None = None  # The clock, if entries have times.
        self._block_bytes = block_bytes
        self._bytes_max = bytes_max
        self._lock = nullcontext() if lock is None else lock
        self._capacity = self._used = 0  # The open block's; capacity 0: there is none.
        self._held_by = 0  # The caller of which only a part was taken.
        self._open: _OpenFrame | None = None
        self._full: list[_OpenFrame] = []
        self._sums: list[int] = []  # By residue; empty: nobody asked for them.
        self._sums_done: tuple[int, tuple[int, ...]] = (NO_ENTRY, ())  # Up to which entry; the sums.
        self._sum_marks: list[tuple[int, tuple[int, ...]]] = []  # The same where later frames end.

    @property
    def last_entry(self) -> int:
        return self.next_entry - 1

    def begin_times(self, floor_ms: int, now_ms: Callable[[], int] | None) -> None:
        assert now_ms is not None, "no clock stands on this floor"
        with self._lock:
            self._now_ms = now_ms
            self.time_ms = max(self.time_ms, floor_ms)

    def begin_sums(self, modulus: int) -> None:
        with self._lock:
            assert not self._sums and self.next_entry == 0
            self._sums = [0] * modulus
            self._sums_done = NO_ENTRY, tuple(self._sums)

    def sums_through(self, entry_id: int) -> tuple[int, ...]:
        with self._lock:
            self._pass_sums(entry_id)
            return self._sums_done[1] if self._sums_done[0] == entry_id else ()

    def _pass_sums(self, entry_id: int) -> None:
        while self._sum_marks and self._sum_marks[0][0] <= entry_id:
            self._sums_done = self._sum_marks.pop(0)

    def _mark_sums(self) -> None:
        """A frame ends here."""
        if self._sums:
            self._sum_marks.append((self.last_entry, tuple(self._sums)))

    def _look_at_clock(self) -> None:
        if self._now_ms is not None:
            self.time_ms = max(self.time_ms, self._now_ms())

    def append(self, data: Buffer) -> tuple[int, bool]:
        payload = self._payload(data)
        with self._lock:
            self._look_at_clock()
            return self._append(payload)

    def append_many(
        self, payloads: Iterable[Buffer], caller: int = 0, attributes: Sequence[bytes] = ()
    ) -> tuple[int, int, bool]:
        checked = [self._payload(data) for data in payloads]
        for payload, beside in zip(checked, attributes, strict=True) if attributes else ():
            self._check_attributes(payload, beside)
        return self._append_each(zip(checked, attributes or repeat(b""), strict=False), len(checked), caller)

    def append_rows(self, columns: tuple[ValueColumn, ...], begin: int, caller: int) -> tuple[int, int, bool]:
        largest = max((column.largest for column in columns), default=0)
        if largest + self._tag_bytes > ENTRY_BYTES_MAX:
            refuse_payload(bytes(largest))
        rows = Rows(columns, begin)
        # One row at a time: what finds no room is not read.
        entries = ((column[row], column.attribute(row)) for column, row in rows.places())
        return self._append_each(entries, len(rows), caller)

    def _append_each(
        self, entries: Iterable[tuple[bytes, bytes]], count: int, caller: int
    ) -> tuple[int, int, bool]:
        """entries: payload and attributes of each."""
        with self._lock:
            self._look_at_clock()
            first, taken, should_wake, entry_id = self.next_entry, 0, False, NO_ENTRY
            for payload, beside in entries:
                entry_id, wakes = self._append(payload, beside, caller)
                should_wake |= wakes
                if entry_id < 0:
                    break
                taken += 1
            if count and taken == count:
                self._let_others(caller)
            elif caller and taken and entry_id == PACKER_FULL:
                self._held_by = caller
            return first, taken, should_wake

    def give_up_rest(self, caller: int) -> None:
        with self._lock:
            self._let_others(caller)

    def _let_others(self, caller: int) -> None:
        if self._held_by == caller:
            self._held_by = 0

    def append_with(
        self, data: Buffer, attributes: bytes, expected: int, told: list[int] | None = None
    ) -> tuple[int, bool]:
        payload = self._payload(data)
        self._check_attributes(payload, attributes)
        with self._lock:
            self._look_at_clock()
            return self._append(payload, attributes, expected=expected, told=told)

    def _check_attributes(self, payload: bytes, attributes: bytes) -> None:
        if len(attributes) > 0xFFFF - self._tag_bytes - _TIME_BYTES:
            refuse_payload(payload)
        if len(attributes) + self._tag_bytes + len(payload) > ENTRY_BYTES_MAX:
            refuse_payload(payload)

    def append_buffer(self, data: Buffer, sizes: Buffer) -> tuple[int, int, bool]:
        counts = memoryview(sizes).cast("B").cast("I").tolist()
        if sum(counts) != memoryview(data).nbytes or max(counts, default=0) > ENTRY_BYTES_MAX:
            refuse_sizes(data, sizes)
        block, begin, payloads = bytes(data), 0, []
        for size in counts:
            payloads.append(block[begin : begin + size])
            begin += size
        return self.append_many(payloads)

    def append_again(self, frame: Frame, begin: int, count: int) -> int:
        taken = 0
        for _, entry in list(split(frame))[begin : begin + count]:
            size = ENTRY_HEADER.unpack_from(entry)[2]
            data = ENTRY_HEADER.size + size
            # Its tag and its time are made anew, as its place is.
            attributes = without(bytes(entry[ENTRY_HEADER.size : data]), *_MADE_ANEW)
            with self._lock:
                if self.is_stopped:
                    break
                self._look_at_clock()
                while self._put(bytes(entry[data:-_CRC_BYTES]), attributes) is None:
                    pass
            taken += 1
        return taken

    @property
    def held_by(self) -> int:
        return self._held_by

    def hold_for(self, caller: int) -> None:
        with self._lock:
            self._held_by = caller

    def set_lac(self, lac: int, lac_length: int) -> None:
        with self._lock:
            assert self._lac <= lac < self.next_entry
            assert self._lac_length <= lac_length <= self.length
            self._lac, self._lac_length = lac, lac_length
            self._pass_sums(lac)

    def seal(self) -> Frame | None:
        with self._lock:
            if self._full:
                taken = self._full.pop(0)
            elif self._open is not None:
                taken, self._open = self._open, None
                self._mark_sums()
            else:
                return None
        body = _Body(b"".join(taken.entries))
        body.on_release = self._on_release
        count = len(taken.entries)
        view = memoryview(body).toreadonly()
        return Frame(
            self.ledger_id, taken.first_entry, taken.first_entry + count - 1, count, taken.length, view
        )

    def release(self, frame: Frame) -> None:
        release_body(frame)

    def stop(self) -> None:
        with self._lock:
            self.is_stopped = True

    def open_count(self) -> int:
        taken = self._open
        return 0 if taken is None else len(taken.entries)

    def has_full(self) -> bool:
        return bool(self._full)

    def _on_release(self, size: int) -> None:
        with self._lock:
            self.unreleased_bytes -= size
            if not self.unreleased_bytes:
                self._capacity = self._used = 0  # In C the block goes back to the pool.

    def _payload(self, data: Buffer) -> bytes:
        payload = _payload(data)
        if len(payload) + self._tag_bytes > ENTRY_BYTES_MAX:
            refuse_payload(data)
        return payload

    def _append(
        self,
        payload: bytes,
        attributes: bytes = b"",
        caller: int = 0,
        expected: int = NO_ENTRY,
        told: list[int] | None = None,
    ) -> tuple[int, bool]:
        while True:
            if self.is_stopped:
                return PACKER_STOPPED, False
            if expected >= 0 and expected != self.next_entry:
                return PACKER_CONFLICT, False
            if self._held_by not in (0, caller):
                return PACKER_FULL, False
            whole = self._whole(payload, attributes)
            if self.unreleased_bytes and self.unreleased_bytes + whole > self._bytes_max:
                return PACKER_FULL, False
            put = self._put(payload, attributes, told)
            if put is not None:
                return put

    def _time(self, size: int) -> bytes:
        """The attribute that the next entry carries."""
        is_as_before = self.time_ms == self._written_ms
        if self._now_ms is None or not carries_time(self.next_entry, size, is_as_before=is_as_before):
            return b""
        return encode_time(self.time_ms)

    def _whole(self, payload: bytes, attributes: bytes) -> int:
        tags = self._tag_bytes + len(self._time(len(payload)))
        return ENTRY_OVERHEAD_BYTES + len(attributes) + tags + len(payload)

    def _put(
        self, payload: bytes, attributes: bytes, told: list[int] | None = None
    ) -> tuple[int, bool] | None:
        """One more entry, for which the bounds have room. None: this thread appended another one meanwhile, in a signal
        handler, and nothing was done.

        All that is called comes first: what a signal handler raises, it raises there, and finds nothing done.
        """
        whole, time = self._whole(payload, attributes), self._time(len(payload))
        was_idle = self._open is None and not self._full
        entry_id, length = self.next_entry, self.length + len(payload)
        given = (self.ledger_id, entry_id, length, payload, self._lac, self._lac_length)
        before, behind = parted(attributes, AttributeKind.TIME)
        behind = time + behind
        if self._tag_bytes:
            entry = encode_tagged(self._digest, self._mac_key, *given, before, behind)
        else:
            entry = encode_entry(*given, before + behind)
        sums = list(self._sums)
        if sums:
            residue = entry_id % len(sums)
            sums[residue] = sums[residue] + entry_digest(entry) & DIGEST_MASK
        fits, capacity, used = self._room(whole)
        ended = [self._open] if self._open is not None and not fits else []
        # Where a frame ends, the sums are as they were before this entry.
        marks = [(entry_id - 1, tuple(self._sums))] if ended and sums else []
        is_new = self._open is None or not fits
        frame = _OpenFrame(entry_id, [], 0, 0) if is_new or self._open is None else self._open
        should_wake, added = was_idle or (bool(ended) and not self._full), [entry]
        tells, ids = [] if told is None else told, [entry_id]
        if self.next_entry != entry_id:
            return None
        self._full += ended
        self._sum_marks += marks
        self._capacity, self._used = capacity, used + whole
        self._open = frame
        frame.entries += added
        frame.length = length
        self._sums = sums
        if time:
            self._written_ms = self.time_ms
        self.unreleased_bytes += whole
        self.next_entry, self.length = entry_id + 1, length
        tells += ids
        return entry_id, should_wake

    def _room(self, whole: int) -> tuple[bool, int, int]:
        """Find the block for the next entry as native/wire/packer_entry.c does: whether the open frame, if there is one, goes
        on in it, its capacity, and how much of that is used."""
        if self._open is not None:
            if self._used + whole <= self._capacity:
                return True, self._capacity, self._used
        elif self._used <= self._capacity // 2:
            begin = -(-self._used // _NOTE_ALIGN) * _NOTE_ALIGN + _NOTE_BYTES
            if begin + whole <= self._capacity:
                return True, self._capacity, begin
        return False, max(self._block_bytes, _NOTE_BYTES + whole), _NOTE_BYTES


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


def _payload(data: Buffer) -> bytes:
    try:
        view = memoryview(data)
    except TypeError:
        refuse_payload(data)
    if not view.c_contiguous or view.nbytes > ENTRY_BYTES_MAX:
        refuse_payload(data)
    return bytes(view)
