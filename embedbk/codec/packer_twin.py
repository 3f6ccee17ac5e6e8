"""The packer once more in plain Python: same ids, same bytes, same frames. `packing` has the contract of both.

For tests, the simulator and reading by hand; and for ledgers with a second digest, whose tags are made here. Its lock
is given to it, because nothing on this floor waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import repeat

from embedbk.codec.arrow_rows import Rows, ValueColumn
from embedbk.codec.attributes import AttributeKind, encode_time, parted, without
from embedbk.codec.digest import DigestType, encode_tagged, tag_bytes
from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES, encode_entry
from embedbk.codec.entry_digest import DIGEST_MASK, entry_digest
from embedbk.codec.frame import Frame, split
from embedbk.codec.packing import (
    NOTE_BYTES,
    PACKER_CONFLICT,
    PACKER_FULL,
    PACKER_STOPPED,
    TIME_EVERY,
    Buffer,
    Packing,
    carries_time,
    check_packer,
    refuse_payload,
    refuse_sizes,
    release_body,
)
from embedbk.config import ENTRY_BYTES_MAX, FRAME_BLOCK_BYTES, PACKER_BYTES_MAX
from embedbk.ids import NO_ENTRY

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

# Where frames end depends on this, so that both kinds cut the same frames; native/wire/packer_inside.h draws them.
_NOTE_ALIGN = 8
_CRC_BYTES = ENTRY_OVERHEAD_BYTES - ENTRY_HEADER.size
_TIME_BYTES = len(encode_time(0))
_MADE_ANEW = (AttributeKind.XXH3, AttributeKind.HMAC, AttributeKind.TIME)


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
        """Find the block for the next entry as native/wire/packer_entry.c does: whether the open frame, if there is
        one, goes on in it, its capacity, and how much of that is used."""
        if self._open is not None:
            if self._used + whole <= self._capacity:
                return True, self._capacity, self._used
        elif self._used <= self._capacity // 2:
            begin = -(-self._used // _NOTE_ALIGN) * _NOTE_ALIGN + NOTE_BYTES
            if begin + whole <= self._capacity:
                return True, self._capacity, begin
        return False, max(self._block_bytes, NOTE_BYTES + whole), NOTE_BYTES


def _payload(data: Buffer) -> bytes:
    try:
        view = memoryview(data)
    except TypeError:
        refuse_payload(data)
    if not view.c_contiguous or view.nbytes > ENTRY_BYTES_MAX:
        refuse_payload(data)
    return bytes(view)
