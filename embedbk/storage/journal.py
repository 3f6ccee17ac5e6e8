"""The journal: records made durable in order by group commit (P3.2, P7.5, P7.6; `ports.Journal`).

Decides who owns the bytes meanwhile (they are kept alive here until durable) and which error a refusal becomes. What
is written, when, and what counts as damage is decided in native/journal*.c; the format is JOURNAL.md beside this file.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from embedbk.errors import StorageError, UsageError
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.native import (
    SYSTEM_HINTS,
    TOO_MANY_FILES,
    TOO_MANY_FILES_HINT,
    ffi,
    lib,
    raise_code,
    system_reason,
)

__all__ = [
    "FILE_BYTES",
    "FILE_BYTES_MIN",
    "FIRST_FILE_BYTES",
    "DamagedJournal",
    "Journal",
    "JournalFacts",
    "JournalUsed",
    "UnreadableJournal",
]

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

FILE_BYTES = 64 << 20  # Size of a file under load.
FIRST_FILE_BYTES = (
    2 << 20
)  # Size of the first one: an idle journal costs little room and little time to make.
FILE_BYTES_MIN: int = lib.EBK_JOURNAL_FILE_BYTES_MIN
COPY_BYTES_MAX: int = (
    lib.EBK_JOURNAL_COPY_BYTES_MAX
)  # Smaller bodies are copied at once, larger ones kept alive.
SLOT_COUNT: int = lib.EBK_JOURNAL_SLOT_COUNT  # Records queued and not yet durable.
REPLAY_COUNT_MAX = 256  # Records fetched from C in one call.

_FAIL_HINTS = {
    lib.EBK_LOCKED: "stop the other one first; each directory serves one bookie or member at a time",
    lib.EBK_DAMAGED: "acknowledged records may be lost: replace this bookie or member, do not repair the file by hand",
    lib.EBK_FOREIGN: "move files that are not this journal's out of its directory; if all are another's, give the "
    "directory that this journal was made in, or an empty one",
    lib.EBK_VERSION: "open it with the release that wrote it, or a newer one",
    lib.EBK_NO_SPACE: "make room on the device, then open it again",
    lib.EBK_IO: "look at the device and at the directory's permissions, then open it again",
}


class DamagedJournal(StorageError):
    """Stored bytes are not what was written: something acknowledged may be lost (I42). A `JournalSalvage` reads the
    rest."""


class UnreadableJournal(StorageError):
    """The system refused a call on its files or its directory; another try may do better."""


# By: past the page cache, O_DSYNC.
_SYNC_METHODS = {
    (True, True): "O_DIRECT|O_DSYNC",
    (True, False): "O_DIRECT and fdatasync",
    (False, False): "fdatasync",
}


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """Figures of one journal, for `embedbk.doctor()` and the metrics."""

    direct: bool  # Past the page cache; False: buffered writes and fdatasync.
    sync_method: str  # For people: what a commit is on this file system.
    realtime: bool  # The commit thread got its real-time class.
    is_file_ready: bool  # The next file is prepared.
    prepare_failure: (
        str | None
    )  # Why it could not be (as a full device): a reserve of the current file is left.
    generation: int
    file_count: int
    trimmed_count: int
    first_token: int  # Oldest record still there; 0: none.
    group_count: int  # Commits since open.
    group_bytes: int  # Bytes written by them, padding included.
    overlap_count: int  # How many of them were built while another one was written.


@dataclass(frozen=True, slots=True)
class JournalUsed:
    """The note of the file that was written last, and what the start found (JOURNAL.md section 9)."""

    is_kept: bool  # It can be noted: the device had room for the file of the notes.
    is_noted: bool
    is_there: bool  # That file is there, or was set aside behind damage.
    generation: int
    first_token: int  # The first token of its first group: every record below was durable before it.
    opened_token: int  # The last record that was there at open.

    def lack(self, after: int) -> str:
        """What is missing of the journal, in words; empty: nothing that was noted is. after: up to there it is not
        needed."""
        if not self.is_noted:
            return ""
        if not self.is_there:
            return f"its newest file, of generation {self.generation}, is gone"
        if max(self.opened_token, after) + 1 < self.first_token:
            return f"it ends at record {self.opened_token}, and had {self.first_token - 1} at least"
        return ""


class Journal:
    """One directory of records, open in one handle at a time.

    Args:
        directory: made if its parent is there; files of others in it are left alone.
        io: a `MemoryDisk` to live on instead of the real disk.
        file_bytes: size of files made from now on, a multiple of 4096 of at least 64 KiB.
        first_file_bytes: begin with this size and double it from file to file up to file_bytes; 0: all of one size.
        threaded: commit in a native thread; else the journal's owner calls `step`.
        file_count_max: bound on files that are not trimmed yet.
        sync_apart: with direct I/O, a sync behind each write rather than O_DSYNC (`probe.choose_sync`).
        identity: 16 bytes that no other journal has; random unless a simulation gives them.

    Raises:
        StorageError: the directory or a file cannot be used: says which, where, why, and what to do.
        UsageError: an argument is out of its bounds.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        io: MemoryDisk | None = None,
        file_bytes: int = FILE_BYTES,
        first_file_bytes: int = 0,
        threaded: bool = True,
        file_count_max: int = 0,
        sync_apart: bool = False,
        identity: bytes | None = None,
    ) -> None:
        self.directory = os.fspath(directory)
        self.threaded = threaded
        self._disk = io  # Keeps the table of calls alive.
        self._journal: Any = None
        self._failure_found: Any = ffi.new("struct ebk_journal_fault *")
        self._facts: Any = ffi.new("struct ebk_journal_facts *")
        self._kept: deque[tuple[int, Any]] = (
            deque()
        )  # (token, pinned buffer) of what C has borrowed, in order.
        self._replays: set[Any] = set()  # Open ones, which use the journal's memory.
        settings = journal_settings(file_bytes, threaded, file_count_max, identity)
        settings.sync_apart = sync_apart
        if first_file_bytes:
            settings.file_bytes, settings.file_bytes_max = min(first_file_bytes, file_bytes), file_bytes
        out = ffi.new("struct ebk_journal **")
        fault = ffi.new("struct ebk_journal_fault *")
        table = lib.ebk_io_disk() if io is None else io.io
        code = lib.ebk_journal_open(table, os.fsencode(self.directory), settings, out, fault)
        if code < 0:
            raise_fault(fault, f"journal {self.directory} cannot be opened")
        self._journal = out[0]
        self.direct = self.facts().direct
        if not self.direct:
            logger.warning(
                "journal %s: the file system refuses direct I/O; commits use buffered writes and fdatasync, "
                "which is slower beside other writers",
                self.directory,
            )

    # --- Writing -----------------------------------------------------------------------------------------

    def next_token(self) -> int:
        """The token that the next append gets; 1 in an empty journal."""
        return cast(int, lib.ebk_journal_next_token(self.handle()))

    def append(
        self, kind: int, ledger_id: int, body: Buffer, *, borrowed: bool = False, kick: bool = True
    ) -> int:
        """Queue one record; returns its token, which is durable when `durable()` has reached it.

        Args:
            kind, ledger_id: what the record is and of which ledger; 0 <= kind < 65536, 0 <= ledger_id.
            body: its bytes. Kept alive until durable, never copied by Python when it is `bytes` or borrowed.
            borrowed: the caller promises not to change a mutable body before it is durable.
            kick: wake the commit thread; leave it to the last append of a batch, or to `kick()`.

        Raises:
            StorageError: the journal failed or is closed, or (definite) its queue is full: nothing was queued.
            UsageError: kind, ledger or size is out of bounds.
        """
        journal = self.handle()
        if ledger_id < 0 or kind < 0:
            raise UsageError(f"kind {kind} and ledger {ledger_id} of a journal record must not be negative")
        size = len(body) if not isinstance(body, memoryview) else body.nbytes
        if size <= COPY_BYTES_MAX:
            token = lib.ebk_journal_submit_copy(journal, kind, ledger_id, ffi.from_buffer(body), size)
        else:
            pinned = ffi.from_buffer(body if borrowed or isinstance(body, bytes) else bytes(body))
            token = lib.ebk_journal_submit(journal, kind, ledger_id, pinned, size, ffi.NULL, 0)
            if token > 0:
                self._kept.append((token, pinned))
        if token < 0:
            self._raise_refusal(token, kind, size)
        if kick:
            lib.ebk_journal_kick(journal)
        return cast(int, token)

    def kick(self) -> None:
        """Wake the commit thread for what was appended with kick=False."""
        lib.ebk_journal_kick(self.handle())

    def show_busy(self, word: Any, number: int) -> None:
        """Set this word of an entry store while there are groups to write (native/base/yield.h). Call it before the
        first record."""
        lib.ebk_journal_show_busy(self.handle(), word, number)

    def step(self) -> int:
        """Unthreaded: write one group of what is queued, or prepare a file if nothing is. Returns its records.

        A failure shows in `failed()`, as it does with a thread; want of room in `is_next_refused()`.
        """
        if self.threaded:
            raise UsageError("step() is for a journal opened with threaded=False; this one commits by itself")
        return max(0, cast(int, lib.ebk_journal_step(self.handle())))

    def trim(self, token: int) -> None:
        """Records up to token are in entry logs and index, synced (P7.5): files wholly below are used again."""
        lib.ebk_journal_trim(self.handle(), max(0, token))

    # --- Completions -------------------------------------------------------------------------------------

    def durable(self) -> int:
        """Every record up to this token is on the device. Never falls. Clears the descriptor's readiness."""
        token = cast(int, lib.ebk_journal_reap(self.handle()))
        self._let_go(token)
        return token

    def let_go(self) -> None:
        """Release what C has borrowed and is durable now; for a caller that reaps several journals at once."""
        if self._kept:
            self._let_go(cast(int, lib.ebk_journal_durable(self.handle())))

    def _let_go(self, token: int) -> None:
        while self._kept and self._kept[0][0] <= token:
            self._kept.popleft()

    def wait(self, token: int, *, kick: bool = True) -> None:
        """Block until the token is durable; for tools and start-up, never on a host's thread.

        Raises:
            StorageError: the journal failed before; or it has no room, and goes on by itself when there is.
        """
        journal = self.handle()
        if token >= self.next_token():
            raise UsageError(f"token {token} was not given out yet; the next is {self.next_token()}")
        if not self.threaded:
            while lib.ebk_journal_durable(journal) < token:
                self._refuse_wait(lib.ebk_journal_step(journal))
            return
        if kick:
            lib.ebk_journal_kick(journal)
        self._refuse_wait(lib.ebk_journal_wait(journal, token))

    def _refuse_wait(self, code: int) -> None:
        if code == lib.EBK_NO_SPACE:
            raise StorageError(
                f"journal {self.directory} has no room for what is queued: it waits"
                f" ({self.facts().prepare_failure or 'there is some again'})",
                hint="make room on the device, or raise the limit of open files (ulimit -n), whichever is wanting; "
                "nothing that was acknowledged is concerned",
            )
        if code < 0:
            raise StorageError(f"journal {self.directory} stopped: {self.failed()}")

    def fileno(self) -> int:
        """Readable when a group became durable, or the journal failed, since `durable()`; -1 when unthreaded."""
        return cast(int, lib.ebk_journal_event(self.handle()))

    def queued_bytes(self) -> int:
        """Bytes of bodies queued and not yet durable, for back pressure."""
        return cast(int, lib.ebk_journal_queued_bytes(self.handle()))

    def failed(self) -> str | None:
        """Why the journal stopped for good, or None. It is never tried again: open it anew (P7.6)."""
        # Asked in every turn of a host: the room for an answer is made once.
        fault = self._failure_found
        return None if lib.ebk_journal_failure(self.handle(), fault) == lib.EBK_OK else fault_text(fault)

    # --- Reading back ------------------------------------------------------------------------------------

    def replay(self, after: int) -> Iterator[tuple[int, int, int, memoryview]]:
        """(token, kind, ledger_id, body) of the records above `after` that were there at open, in order.

        Begins at once: what is missing is found by the call, not by the first step of the loop.

        Raises:
            StorageError: records above `after` are missing, or the journal is damaged before its tail (I42).
        """
        out = ffi.new("struct ebk_replay **")
        fault = ffi.new("struct ebk_journal_fault *")
        code = lib.ebk_replay_open(self.handle(), max(0, after), out, fault)
        replay = ffi.gc(out[0], lib.ebk_replay_close) if out[0] != ffi.NULL else None
        if code < 0:
            raise_fault(fault, f"journal {self.directory} cannot be replayed")
        self._replays.add(replay)
        return self._records(replay)

    def _records(self, replay: Any) -> Iterator[tuple[int, int, int, memoryview]]:
        records = ffi.new("struct ebk_record[]", REPLAY_COUNT_MAX)
        fault = ffi.new("struct ebk_journal_fault *")
        try:
            while True:
                self.handle()
                count = lib.ebk_replay_next(replay, records, REPLAY_COUNT_MAX, fault)
                if count < 0:
                    raise_fault(fault, f"journal {self.directory} cannot be replayed")
                if count == 0:
                    return
                batch = [
                    (
                        cast(int, record.token),
                        cast(int, record.kind),
                        cast(int, record.ledger_id),
                        memoryview(bytes(ffi.buffer(record.data, record.size))),
                    )
                    for record in records[0:count]
                ]
                yield from batch
        finally:
            self._replays.discard(replay)
            ffi.release(replay)

    # --- What was used -----------------------------------------------------------------------------------

    def used(self) -> JournalUsed:
        """The note, made before this open, of the journal file that was written last (P7.9)."""
        used = ffi.new("struct ebk_journal_used *")
        lib.ebk_journal_used(self.handle(), used)
        return JournalUsed(
            used.is_kept, used.is_noted, used.is_there, used.generation, used.first_token, used.opened_token
        )

    def accept_used(self) -> None:
        """Note durably that what is there counts from now on. Call it before the first record is queued.

        Raises:
            StorageError: it cannot be written.
        """
        fault = ffi.new("struct ebk_journal_fault *")
        if lib.ebk_journal_accept(self.handle(), fault) < 0:
            raise_fault(fault, f"journal {self.directory} cannot be used")

    # --- Whole -------------------------------------------------------------------------------------------

    def is_next_refused(self) -> bool:
        """Whether the next file could not be prepared, as on a full device, or what is queued found no room. `trim`
        lets it be tried again."""
        lib.ebk_journal_facts(self.handle(), self._facts)
        return bool(self._facts.prepare_error)

    def next_refusal(self) -> str:
        """Why the next file cannot be made, where the device is not simply full: how much is free tells nothing of it.
        Empty where it is full, or where no file is refused."""
        lib.ebk_journal_facts(self.handle(), self._facts)
        error = self._facts.prepare_error
        if error in (0, errno.ENOSPC):
            return ""
        hint = f" ({SYSTEM_HINTS[error]})" if error in SYSTEM_HINTS else ""
        return f"journal {self.directory}: the next file cannot be made{system_reason(error)}{hint}"

    def facts(self) -> JournalFacts:
        """The figures of the journal at this moment."""
        facts = ffi.new("struct ebk_journal_facts *")
        lib.ebk_journal_facts(self.handle(), facts)
        error = facts.prepare_error
        return JournalFacts(
            direct=facts.direct,
            sync_method=_SYNC_METHODS[facts.direct, facts.dsync],
            realtime=facts.realtime,
            is_file_ready=facts.is_file_ready,
            prepare_failure=f"the next file cannot be made{system_reason(error)}" if error else None,
            generation=facts.generation,
            file_count=facts.file_count,
            trimmed_count=facts.trimmed_count,
            first_token=facts.first_token,
            group_count=facts.group_count,
            group_bytes=facts.group_bytes,
            overlap_count=facts.overlap_count,
        )

    def close(self) -> None:
        """Commit what is queued (if the journal still works), stop its threads, release the directory."""
        journal, self._journal = self._journal, None
        if journal is not None:
            while self._replays:  # A loop over records was left, and a traceback still holds it.
                ffi.release(self._replays.pop())
            lib.ebk_journal_close(journal)
            self._kept.clear()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_journal", None) is not None:
            self.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a journal belongs to one process and cannot be pickled; open its directory there instead"
        )

    def handle(self) -> Any:
        """The journal of C (`struct ebk_journal *`), for the other handles of this floor: the add path, the probe."""
        if self._journal is None:
            raise StorageError(f"journal {self.directory} is closed", definite=True)
        return self._journal

    def _raise_refusal(self, code: int, kind: int, size: int) -> None:
        if code == lib.EBK_FULL:
            raise StorageError(
                f"journal {self.directory}: {SLOT_COUNT} records wait to be written",
                definite=True,
                hint="wait for durable() to rise before appending more",
            )
        if code == lib.EBK_FAILED:
            raise StorageError(f"journal {self.directory} stopped: {self.failed()}")
        facts = ffi.new("struct ebk_journal_facts *")
        lib.ebk_journal_facts(self._journal, facts)
        raise UsageError(
            f"a journal record of kind {kind} with {size} bytes is refused: allowed are kinds up to 65535 and "
            f"{facts.record_bytes_max} bytes in files of this size"
        )


def journal_settings(file_bytes: int, threaded: bool, file_count_max: int, identity: bytes | None) -> Any:
    """The settings as C takes them; what is out of bounds there is refused by C."""
    if not 0 <= file_bytes < 1 << 63 or not 0 <= file_count_max < 1 << 32:
        raise UsageError(f"file_bytes={file_bytes}, file_count_max={file_count_max}: out of range")
    settings = ffi.new("struct ebk_journal_settings *")
    settings.file_bytes = file_bytes
    settings.file_count_max = file_count_max
    settings.threaded = threaded
    settings.identity = identity if identity is not None else os.urandom(lib.EBK_JOURNAL_IDENTITY_BYTES)
    return settings


def fault_text(fault: Any) -> str:
    """Says where and why a fault is; with an offset only where one inside a file is meant."""
    path = ffi.string(fault.path).decode(errors="replace")
    place = f"{path} at offset {fault.offset}: " if fault.offset else f"{path}: " if path else ""
    return f"{place}{ffi.string(fault.reason).decode(errors='replace')}{system_reason(fault.system_error)}"


def raise_fault(fault: Any, what: str) -> NoReturn:
    text = f"{what}: {fault_text(fault)}"
    hint = SYSTEM_HINTS.get(fault.system_error) or _FAIL_HINTS.get(fault.code, "")
    if (
        fault.system_error in TOO_MANY_FILES
    ):  # Says nothing of the journal: nothing is missing, nothing to salvage.
        raise StorageError(text, hint=TOO_MANY_FILES_HINT)
    if fault.code == lib.EBK_DAMAGED:
        raise DamagedJournal(text, hint=hint)
    if fault.code == lib.EBK_IO:
        raise UnreadableJournal(text, hint=hint)
    raise_code(fault.code, text, hint=hint)
