"""The entry store in C: write cache, entry logs and index behind one handle (port `EntryStore`; P7.1, P7.5).

Decides nothing about durability: the journal does that. This module hands bytes over, turns verdicts and codes into
Python's, and keeps memory alive as long as a view on it. The format is STORAGE.md beside this file.
"""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from embedbk.codec.frame import Frame
from embedbk.core.upkeep_words import EntryLogKeeper, LogFacts
from embedbk.errors import StorageError, UsageError
from embedbk.ids import INCARNATION_BYTES
from embedbk.ports.entry_store import DeviceFull, EntriesFound, EntriesHeld, EntrySums, MemoryRefused
from embedbk.storage.directories import Directories
from embedbk.storage.journals import Journals
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.native import check, code_text, ffi, lib

__all__ = [
    "CLUSTER_TOKEN_BYTES",
    "HALF_BYTES_MAX",
    "HALF_BYTES_KEPT",
    "MODULUS_MAX",
    "NativeEntryStore",
]

CLUSTER_TOKEN_BYTES = 16
HALF_BYTES_MAX = 1 << 30  # Address space of each half of the write cache; puts beyond are refused.
HALF_BYTES_KEPT = 64 << 20  # Memory that a half keeps between flushes.
MODULUS_MAX = 64  # Residues of a read are bits of one word.
_TEXT_BYTES = 512

_HINT = (
    "restore the file from a copy; if there is none, start a new bookie under a new id in an empty directory "
    "(python -m embedbk bookie --id NEW-ID --dir EMPTY-DIRECTORY --metadata ...) and leave this one down"
)
_HINTS = {  # Nothing was found damaged.
    lib.EBK_IO: "look at the device, at permissions and at the limit of open files (ulimit -n), then open it again",
    lib.EBK_NO_MEMORY: "give this process more memory, then open it again",
}


# A flush that ended so waits, and is made again: there may be room, a descriptor, a thread or memory in a moment.
_WANTING = (lib.EBK_NO_SPACE, lib.EBK_WANT, lib.EBK_NO_MEMORY)


class NativeEntryStore:
    """Entries by (ledger, entry); all calls from one thread. A flush runs in C, in a thread of its own.

    Args:
        directories: where the entry logs are, one or several; they exist.
        cluster_token, incarnation: 16 bytes each; an entry log with others is refused.
        io: a `MemoryDisk` to live on instead of the real disk.

    Raises:
        StorageError: an entry log is damaged beyond its second copies, foreign, of another version, or missing.
    """

    def __init__(
        self,
        directories: Sequence[str | Path],
        cluster_token: bytes,
        incarnation: bytes,
        *,
        io: MemoryDisk | None = None,
        half_bytes_max: int = HALF_BYTES_MAX,
        half_bytes_kept: int = HALF_BYTES_KEPT,
    ) -> None:
        if len(cluster_token) != CLUSTER_TOKEN_BYTES or len(incarnation) != INCARNATION_BYTES:
            raise UsageError(
                f"cluster token of {len(cluster_token)} and incarnation of {len(incarnation)} bytes: "
                f"{CLUSTER_TOKEN_BYTES} and {INCARNATION_BYTES} are allowed"
            )
        self.directories = Directories([str(path) for path in directories])
        settings = ffi.new("struct ebk_store_settings *")
        settings.cluster_token = cluster_token
        settings.incarnation = incarnation
        settings.half_bytes_max = half_bytes_max
        settings.half_bytes_kept = half_bytes_kept
        opened = ffi.new("struct ebk_store **")
        text = ffi.new("char[]", _TEXT_BYTES)
        self._disk = io  # Keeps the table of calls alive.
        table = lib.ebk_io_disk() if io is None else io.io
        paths = [ffi.new("char[]", os.fsencode(each.path)) for each in self.directories.all]
        code = lib.ebk_store_open(table, paths, len(paths), settings, opened, text, _TEXT_BYTES)
        if code < 0:
            said = cast(bytes, ffi.string(text)).decode(errors="replace")
            raise StorageError(f"{self._where()}: {said}: {code_text(code)}", hint=_HINTS.get(code, _HINT))
        self._store: Any = opened[0]
        self._copy: Any = ffi.new("const uint8_t **")
        self._copy_target = 0  # The directory that a compaction writes to.
        self._borrower: Journals | None = None
        self._found: Any = ffi.new("struct ebk_found *")
        self._held: Any = ffi.new("struct ebk_held *")
        self._sums: Any = ffi.new("struct ebk_sums *")

    def set_may_go_back(self, *, may_go_back: bool) -> None:
        """Whether builds may come back that read entry logs up to version 3: then new ones are of that version."""
        lib.ebk_store_set_may_go_back(self._store, may_go_back)

    # --- What was found at the start ---------------------------------------------------------------------

    def reports(self) -> list[str]:
        """Damage that was met and could be worked around, one sentence each."""
        found: list[str] = []
        while (line := lib.ebk_store_report(self._store, len(found))) != ffi.NULL:
            found.append(cast(bytes, ffi.string(line)).decode(errors="replace"))
        return found

    def take_states(self) -> list[memoryview]:
        """The ledger states of the entry logs, oldest first, for `table.load`; to be taken once."""
        states = []
        pointer = ffi.new("const uint8_t **")
        for log in range(lib.ebk_store_log_count(self._store)):
            size = lib.ebk_store_states(self._store, log, pointer)
            states.append(memoryview(bytes(ffi.buffer(pointer[0], size)) if size else b""))
        lib.ebk_store_forget_states(self._store)
        return states

    def log_mark(self) -> int:
        """Every journal record up to this token is in entry logs (P7.5)."""
        return int(lib.ebk_store_mark(self._store))

    def journal_marks(self) -> list[int]:
        """The log mark in the own tokens of several journals; empty if there is one journal."""
        marks = ffi.new("uint64_t[]", lib.EBK_MARKS_MAX)
        return [int(mark) for mark in marks[0 : lib.ebk_store_journal_marks(self._store, marks)]]

    def entry_log_count(self) -> int:
        return int(lib.ebk_store_log_count(self._store))

    def entry_logs(self) -> dict[int, int]:
        """The number of the directory of each entry log, by its id, ascending."""
        return {
            int(lib.ebk_store_log_id(self._store, number)): int(
                lib.ebk_store_log_directory(self._store, number)
            )
            for number in range(lib.ebk_store_log_count(self._store))
        }

    # --- The port ----------------------------------------------------------------------------------------

    def put(self, frame: Frame) -> memoryview:
        """As `EntryStore.put`. The view is valid until the half it stands in is released, or the store closed.

        Raises:
            StorageError: the write cache has no room; nothing was taken.
        """
        body = frame.body
        code = lib.ebk_store_put(
            self._store,
            frame.ledger_id,
            frame.first_entry,
            frame.last_entry,
            frame.entry_count,
            ffi.from_buffer(body),
            len(body),
            self._copy,
        )
        if code < 0:
            self._refuse_put(code, frame)
        return memoryview(ffi.buffer(self._copy[0], len(body)))

    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        bytes_max: int,
        modulus: int = 1,
        residues: int = 1,
        *,
        from_memory: bool = False,
    ) -> EntriesFound:
        """As `EntryStore.read`; the frame's body is one block in C memory, kept by the views on it."""
        if first < 0 or not 1 <= modulus <= MODULUS_MAX:
            raise UsageError(
                f"read of entries {first}..{last} modulo {modulus}: allowed is first >= 0, modulus 1 to {MODULUS_MAX}"
            )
        found = self._found
        asked = (
            self._store,
            ledger_id,
            first,
            last,
            bytes_max,
            modulus,
            residues & (2**64 - 1),
            from_memory,
            found,
        )
        code = lib.ebk_store_read_memory(*asked)
        if code == lib.EBK_END:  # It waits for a device: this call gives the GIL away.
            code = lib.ebk_store_read(*asked)
        what = f"read of ledger {ledger_id}, entries {first}..{last}"
        if code in (lib.EBK_NO_MEMORY, lib.EBK_WANT):
            raise MemoryRefused(f"{what}: {code_text(code)}")
        check(code, what)
        frame = None
        if found.body != ffi.NULL:
            block = ffi.gc(found.body, lib.ebk_found_free, found.size)
            body = memoryview(ffi.buffer(block, found.size)).toreadonly()
            frame = Frame(ledger_id, found.first, found.last, found.count, found.length, body)
        bounds = ffi.unpack(found.absent, 2 * found.absent_count)
        return EntriesFound(frame, list(zip(bounds[::2], bounds[1::2], strict=True)))

    def held(self, ledger_id: int, first: int, last: int, modulus: int = 1, residues: int = 1) -> EntriesHeld:
        """As `EntryStore.held`."""
        if first < 0 or not 1 <= modulus <= MODULUS_MAX:
            raise UsageError(
                f"count of entries {first}..{last} modulo {modulus}: allowed is first >= 0, modulus 1 to {MODULUS_MAX}"
            )
        held = self._held
        code = lib.ebk_store_held(self._store, ledger_id, first, last, modulus, residues & (2**64 - 1), held)
        check(code, f"count of ledger {ledger_id}, entries {first}..{last}")
        bounds = ffi.unpack(held.lacking, 2 * held.lacking_count)
        return EntriesHeld(int(held.count), list(zip(bounds[::2], bounds[1::2], strict=True)))

    def sums(
        self,
        ledger_id: int,
        first: int,
        last: int,
        modulus: int,
        residues: int,
        bytes_max: int,
        *,
        by_bytes: bool = False,
    ) -> EntrySums:
        """As `EntryStore.sums`."""
        if first < 0 or not 1 <= modulus <= MODULUS_MAX or not 0 <= residues < 1 << modulus:
            raise UsageError(
                f"digests of entries {first}..{last}, residues {residues:#x} modulo {modulus}: allowed is first >= 0, "
                f"modulus 1 to {MODULUS_MAX}, residues below it"
            )
        sums = self._sums
        asked = (ledger_id, first, last, modulus, residues, bytes_max, by_bytes)
        check(
            lib.ebk_store_sum(self._store, *asked, sums),
            f"digests of ledger {ledger_id}, entries {first}..{last}",
        )
        digests = ffi.unpack(sums.digests, residues.bit_count()) if sums.is_told else None
        return EntrySums(digests, ffi.unpack(sums.bad, sums.bad_count), int(sums.bytes_read))

    def drop(self, ledger_id: int) -> None:
        """Forget the ledger's entries; their bytes on disk go with their entry logs."""
        lib.ebk_store_drop(self._store, ledger_id)

    def drop_dead(self, table: NativeLedgerTable) -> None:
        """Drop every ledger that the table knows as dropped: after a start."""
        lib.ebk_store_drop_dead(self._store, table.handle)

    def cached_bytes(self) -> int:
        return int(lib.ebk_store_cached_bytes(self._store))

    def active_bytes(self) -> int:
        """Bytes put since the last freeze."""
        return int(lib.ebk_store_active_bytes(self._store))

    def yield_word(self, bytes_max: int) -> Any:
        """For `Journal.show_busy`: while a journal writes, a flush lets it go first, until bytes_max were put since the
        freeze. Valid until `close`, which comes behind that of the journals."""
        return lib.ebk_store_yield_word(self._store, bytes_max)

    @property
    def handle(self) -> Any:
        """For the C add path, and for what looks lost indexes through; valid until `close`."""
        return self._store

    def lend_to(self, journals: Journals) -> None:
        """Keep these journals until the store's memory is given back: they write from views of `put`, so they must be
        closed first, in whatever order their owner lets both go."""
        self._borrower = journals

    def close(self) -> None:
        """Wait for a running flush and give everything back; views of `put` are invalid then. Twice is harmless."""
        borrower, self._borrower = self._borrower, None
        if borrower is not None:
            borrower.close()
        if self._store is not None:
            lib.ebk_store_close(self._store)
            self._store = None

    def __del__(self) -> None:
        if getattr(self, "_store", None) is not None:
            self.close()

    # --- Flush -------------------------------------------------------------------------------------------

    def freeze(self, states: bytes | memoryview, mark: int, journal_marks: Sequence[int] = ()) -> bool:
        """Freeze this half: puts go to the other one from now on. False while the last frozen half is not released.

        states: of the ledgers that changed since the last freeze. mark: every journal record up to it is durable;
        journal_marks: how far each journal is then, where there are several.

        Raises:
            MemoryRefused: nothing was frozen, and it may be tried again.
        """
        marks = ffi.new("uint64_t[]", list(journal_marks))
        code = lib.ebk_store_freeze(
            self._store, ffi.from_buffer(states), len(states), mark, marks, len(marks)
        )
        if code == lib.EBK_FULL:
            return False
        if code == lib.EBK_NO_MEMORY:
            raise MemoryRefused(f"write cache: {code_text(code)}")
        check(code, "write cache")
        return True

    def flush(self, *, threaded: bool = True) -> None:
        """Write the frozen half, one entry log in each directory that takes part; `fileno` becomes readable when all
        of them ended. After a failure it may be called again, and writes other files.

        Raises:
            DeviceFull: it had no memory, and nothing was begun.
        """
        start = lib.ebk_store_flush_start if threaded else lib.ebk_store_flush_now
        chosen = sum(1 << number for number in self.directories.choose())
        code = start(self._store, chosen)
        if code == lib.EBK_NO_MEMORY:
            raise DeviceFull(f"flush in {self._where()}: {code_text(code)}")
        check(code, f"flush in {self._where()}")

    def flush_until_done(self, *, threaded: bool = True) -> None:
        """Write the frozen half, in other directories where one fails, and wait for it; for a start.

        Raises:
            StorageError: it failed in all of them.
        """
        self.flush(threaded=threaded)
        while True:
            try:
                if self.finish_flush():
                    return
            except StorageError:
                if not self.directories.has_others():
                    raise
                self.flush(threaded=threaded)
            else:
                self.wait_for_flush()

    def wait_for_flush(self) -> None:
        """Block until a flush that was started has ended."""
        poll = select.poll()  # Not select.select, which takes no descriptor above 1,023.
        poll.register(self.fileno(), select.POLLIN)
        poll.poll()

    def finish_flush(self) -> bool:
        """Take over an ended flush: its entries enter the index, the mark rises. False when none ended.

        Raises:
            StorageError: it failed in one directory, so none of its logs counts; nothing is lost, the frozen half and
                the journal still hold everything.
        """
        code = lib.ebk_store_flush_finish(self._store)
        if code in (lib.EBK_FULL, lib.EBK_END):
            return False
        if code < 0:
            said = cast(bytes, ffi.string(lib.ebk_store_failure(self._store))).decode(errors="replace")
            for number in range(len(self.directories.all)):
                met = lib.ebk_store_flush_code(self._store, number)
                if met == lib.EBK_NO_SPACE:
                    self.directories.saw_full(number)
                elif met == lib.EBK_IO:
                    self.directories.saw_failure(number, f"{said}: {code_text(met)}")
            kind = DeviceFull if code in _WANTING else StorageError
            raise kind(f"{self._where()}: {said}: {code_text(code)}")
        return True

    def release(self) -> None:
        """Free the frozen half for the next freeze: it is in an entry log, and no view on it is borrowed any more.
        Reads with from_memory find its entries until then."""
        lib.ebk_store_release(self._store)

    def fileno(self) -> int:
        return int(lib.ebk_store_event_file(self._store))

    # --- Compaction --------------------------------------------------------------------------------------

    def log_facts(self) -> list[LogFacts]:
        """Facts of every entry log that does not leave already, oldest first."""
        found: list[LogFacts] = []
        facts = ffi.new("struct ebk_log_facts *")
        for number in range(lib.ebk_store_log_count(self._store)):
            lib.ebk_store_log_facts(self._store, number, facts)
            if not facts.is_leaving:
                found.append(
                    LogFacts(
                        facts.log_id,
                        facts.file_bytes,
                        facts.entries_bytes,
                        facts.live_bytes,
                        bool(facts.is_damaged),
                        int(lib.ebk_store_log_directory(self._store, number)),
                        bool(facts.is_held_back),
                        bool(facts.is_rescued),
                    )
                )
        return found

    def log_keepers(self, log_id: int, after: int, most: int) -> list[EntryLogKeeper]:
        """As `DurableBookie.log_keepers`."""
        found = ffi.new("struct ebk_log_keeper[]", most)
        count = lib.ebk_store_log_keepers(self._store, log_id, after, found, most)
        return [EntryLogKeeper(each.ledger_id, each.live_entries, each.live_bytes) for each in found[0:count]]

    def begin_copy(self, log_ids: Sequence[int]) -> None:
        """Plan which entries of these logs are copied into a new one."""
        ids = ffi.new("uint32_t[]", list(log_ids))
        wished = self.entry_logs().get(log_ids[0], 0) if log_ids else 0
        self._copy_target = self.directories.choose_one(wished)
        begun = lib.ebk_store_copy_begin(self._store, ids, len(ids), self._copy_target)
        if begun == lib.EBK_FAILED:
            said = cast(bytes, ffi.string(lib.ebk_store_failure(self._store))).decode(errors="replace")
            raise StorageError(f"{self._where()}: compaction: {said}")
        check(begun, f"compaction in {self._where()}")

    def copy_slice(self, byte_count: int, *, threaded: bool = True) -> None:
        """Copy about so much more; `copy_fileno` becomes readable when it is done."""
        check(lib.ebk_store_copy_slice(self._store, byte_count, threaded), f"compaction in {self._where()}")

    def copy_fileno(self) -> int:
        return int(lib.ebk_store_copy_event_file(self._store))

    def poll_copy(self) -> tuple[int, bool] | None:
        """(bytes of the slice that ended, whether all is copied); None while none has ended.

        Raises:
            StorageError: the copying ended with an error and is forgotten; the logs are as they were.
        """
        copied = ffi.new("uint64_t *")
        code = lib.ebk_store_copy_poll(self._store, copied)
        if code in (lib.EBK_FULL, lib.EBK_END):
            return None
        if code < 0:
            said = cast(bytes, ffi.string(lib.ebk_store_failure(self._store))).decode(errors="replace")
            if code == lib.EBK_NO_SPACE:
                self.directories.saw_full(self._copy_target)
            kind = DeviceFull if code == lib.EBK_NO_SPACE else StorageError
            raise kind(f"{self._where()}: compaction: {said}: {code_text(code)}")
        return int(copied[0]), bool(code)

    def commit_copy(self, table: NativeLedgerTable) -> None:
        """All is copied: the newest states of the sources' ledgers go into the next freeze, and the sources leave with
        its flush (ST32)."""
        pointer = ffi.new("const uint8_t **")
        size = lib.ebk_store_copy_states(self._store, pointer)
        table.touch(bytes(ffi.buffer(pointer[0], size)) if size else b"")
        check(lib.ebk_store_copy_commit(self._store), f"compaction in {self._where()}")

    def abandon_copy(self) -> None:
        lib.ebk_store_copy_abandon(self._store)

    def leaving(self) -> int:
        """How many entry logs are not needed once the next flush has ended."""
        return int(lib.ebk_store_leaving(self._store))

    def remove_left(self) -> int:
        """Delete the files that a finished flush has made useless; returns how many."""
        return int(lib.ebk_store_remove_left(self._store))

    def _where(self) -> str:
        return ", ".join(each.path for each in self.directories.all)

    def _refuse_put(self, code: int, frame: Frame) -> None:
        what = f"ledger {frame.ledger_id}, entries {frame.first_entry}..{frame.last_entry}"
        if code == lib.EBK_FULL:
            raise StorageError(
                f"{what}: the write cache is full", definite=True, hint="flushes are slower than adds"
            )
        check(code, what)
