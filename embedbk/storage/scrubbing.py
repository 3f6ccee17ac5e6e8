"""The scrubber of a bookie's entry logs: everything is read again and again, so that rot is found while other copies
are good (I55, ST36).

Decides which piece comes next, keeps what was found and where it is, also over a restart. Leaves to others: when a
piece is read (host/scrub_pace.py), the reading and all sums (native/store/scrub.c), repair. Records that are only in
the journal are not read: they are in memory too, and in an entry log soon.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from embedbk.codec.kernels import crc32c
from embedbk.errors import StorageError
from embedbk.ports.upkeep import ScrubDamage, ScrubPiece
from embedbk.repeating import Repeating
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.native import TOO_MANY_FILES_HINT, check, ffi, lib, system_reason

__all__ = ["SCRUB_FILE", "LogScrubber", "ScrubState", "read_scrub_state"]

logger = logging.getLogger(__name__)

SCRUB_FILE = "SCRUB"
SCRUB_VERSION = 1
DAMAGES_MAX = 1000  # Kept; a file with more is bad enough.
SAVE_BYTES = 256 << 20  # Read between two notes of where it is; each log's end is noted too.

_WHAT = {
    lib.EBK_SCRUB_FILE: "the file cannot be read, or is another's",
    lib.EBK_SCRUB_DESCRIPTOR: "a descriptor is damaged",
    lib.EBK_SCRUB_STATES: "a copy of the ledger states is damaged",
    lib.EBK_SCRUB_INDEX: "the index is damaged",
    lib.EBK_SCRUB_ENTRIES: "entries are damaged",
    lib.EBK_SCRUB_UNKNOWN: "entries are damaged, and no index says which",
}


@dataclass(slots=True)
class ScrubState:
    """Where the scrubber is and what it knows; survives restarts as well as it can."""

    log_id: int = 0  # The log being read; 0 before the first.
    offset: int = 0  # In it.
    passes: int = 0  # How often everything was read.
    pass_bytes: int = 0  # Read in this pass.
    damages: dict[int, list[ScrubDamage]] = field(default_factory=dict)  # By log.

    def encode(self) -> bytes:
        """`SCRUB`: a CRC32C in 8 hexadecimal digits, a line feed, and JSON that it sums."""
        body = msgspec.json.encode({"version": SCRUB_VERSION, **msgspec.to_builtins(self, str_keys=True)})
        return b"%08x\n" % crc32c(body) + body + b"\n"


def read_scrub_state(content: bytes) -> ScrubState | None:
    """The state in the bytes of a SCRUB file; None when they are none of this version, whole."""
    head, _, body = content.rstrip(b"\n").partition(b"\n")
    try:
        if int(head, 16) != crc32c(body):
            return None
        fields = msgspec.json.decode(body)
        if fields.pop("version") != SCRUB_VERSION:
            return None
        return msgspec.convert(fields, type=ScrubState, str_keys=True)
    except (ValueError, KeyError, AttributeError, msgspec.MsgspecError):
        return None


class LogScrubber:
    """Reads the entry logs of a bookie in order of their ids, over and over. All calls from one thread.

    Args:
        directories: where they are; a log is reported with the number of its directory.
        state_path: where it notes how far it is; None keeps that in memory only.
    """

    def __init__(
        self,
        directories: Sequence[str],
        cluster_token: bytes,
        incarnation: bytes,
        *,
        io: MemoryDisk | None = None,
        threaded: bool = True,
        state_path: Path | None = None,
    ) -> None:
        self.directories = list(directories)
        self.threaded = threaded
        self._disk = io  # Keeps the table of calls alive.
        self._state_path = state_path
        self._unsaved_bytes = 0
        self._unwritten = Repeating(logger)
        self._running: Any = None  # The handle that reads a piece.
        self._path = ""  # The path of the log that it reads.
        self._piece: Any = ffi.new("struct ebk_scrub_piece *")
        table = lib.ebk_io_disk() if io is None else io.io
        self._scrubs: list[Any] = []
        for directory in self.directories:
            scrub = lib.ebk_scrub_open(table, os.fsencode(directory), cluster_token, incarnation)
            if scrub == ffi.NULL:
                self._close_all()
                raise StorageError(f"{directory}: the scrubber cannot be made{system_reason(ffi.errno)}")
            self._scrubs.append(scrub)
        self.state = self._load()

    def begin(self, logs: Mapping[int, int], bytes_max: int) -> bool:
        """Start on the next piece; logs: id to directory of all, ascending. False when there is none, or one
        is read."""
        log_ids = list(logs)
        if self._running is not None or not log_ids:
            return False
        state = self.state
        if state.log_id not in log_ids:  # Before the first piece, or its log is gone: the next one.
            state.log_id = next((log_id for log_id in log_ids if log_id > state.log_id), log_ids[0])
            state.offset = 0
        if state.offset == 0:
            state.damages = {log_id: found for log_id, found in state.damages.items() if log_id in log_ids}
        start = lib.ebk_scrub_start if self.threaded else lib.ebk_scrub_now
        directory = logs[state.log_id]
        self._path = f"{self.directories[directory]}/{state.log_id:08x}.elog"
        check(start(self._scrubs[directory], state.log_id, state.offset, bytes_max), f"scrub of {self._path}")
        self._running = self._scrubs[directory]
        return True

    def finish(self, log_ids: Iterable[int]) -> ScrubPiece | None:
        """The piece that was begun, once it is read. log_ids: of all logs now, ascending.

        Raises:
            StorageError: there was no descriptor or no memory to read it with; it is the next one again.
        """
        code = lib.EBK_END if self._running is None else lib.ebk_scrub_finish(self._running, self._piece)
        if code in (lib.EBK_FULL, lib.EBK_END):
            return None
        self._running = None
        if code < 0:
            raise StorageError(
                f"{self._path} is not read now: too many open files, or no memory",
                hint=TOO_MANY_FILES_HINT,
            )
        log_ids = list(log_ids)
        piece, state = self._piece, self.state
        bytes_read = int(piece.bytes)
        damages: tuple[ScrubDamage, ...] = ()
        if state.log_id in log_ids:  # Else it was deleted meanwhile, and nothing of it counts.
            damages = tuple(self._damage(each) for each in piece.damages[0 : _kept(piece.damage_count)])
            known = state.damages.pop(state.log_id, [])
            if not state.offset:
                known = []  # Damage that the reading before this one found.
            if known or damages:
                state.damages[state.log_id] = [*known, *damages][:DAMAGES_MAX]
        state.pass_bytes += bytes_read
        state.offset = 0 if piece.is_end else int(piece.offset)
        is_pass_end = bool(piece.is_end) and not any(log_id > state.log_id for log_id in log_ids)
        if is_pass_end:
            state.passes += 1
            state.pass_bytes = 0
            state.log_id = 0
        elif piece.is_end:
            state.log_id = next(log_id for log_id in log_ids if log_id > state.log_id)
        self._unsaved_bytes += bytes_read
        if piece.is_end or damages or self._unsaved_bytes >= SAVE_BYTES:
            self._save()
        return ScrubPiece(bytes_read, damages, is_pass_end)

    def damages(self) -> list[ScrubDamage]:
        """The findings of the last reading of each log, in order of the logs."""
        return [damage for log_id in sorted(self.state.damages) for damage in self.state.damages[log_id]]

    def filenos(self) -> list[int]:
        """One is readable when a piece that a thread reads has ended."""
        return [int(lib.ebk_scrub_event_file(scrub)) for scrub in self._scrubs]

    def close(self) -> None:
        """Wait for a piece that is being read, note how far it is, give everything back. Twice is harmless."""
        if self._scrubs:
            self._close_all()
            if self._unsaved_bytes:
                self._save()

    def _close_all(self) -> None:
        self._running = None
        while self._scrubs:
            lib.ebk_scrub_close(self._scrubs.pop())

    def __del__(self) -> None:
        if getattr(self, "_scrubs", None):
            self._close_all()

    def _damage(self, found: Any) -> ScrubDamage:
        what = _WHAT[found.part] + system_reason(found.system_error)
        path = self._path
        if found.part != lib.EBK_SCRUB_ENTRIES:
            return ScrubDamage(path, int(found.offset), what)
        return ScrubDamage(
            path,
            int(found.offset),
            what,
            int(found.ledger_id),
            int(found.first_entry),
            int(found.last_entry),
        )

    # --- Where it is -------------------------------------------------------------------------------------

    def _load(self) -> ScrubState:
        if self._state_path is None:
            return ScrubState()
        try:
            state = read_scrub_state(self._state_path.read_bytes())
        except FileNotFoundError:
            return ScrubState()
        except OSError as refused:
            logger.warning("%s cannot be read: %s; the scrubber begins anew", self._state_path, refused)
            return ScrubState()
        if state is None:
            logger.warning("%s is damaged; the scrubber begins anew", self._state_path)
        return state or ScrubState()

    def _save(self) -> None:
        """Note the state without a promise: the note is not synced, and what it lacks is only read once more."""
        self._unsaved_bytes = 0
        if self._state_path is None:
            return
        fresh = self._state_path.with_name(SCRUB_FILE + ".tmp")
        try:
            fresh.write_bytes(self.state.encode())
            fresh.replace(self._state_path)
        except OSError as refused:
            self._unwritten.met(f"{self._state_path} cannot be written: {refused.strerror}")
        else:
            self._unwritten.ended(f"{self._state_path} is written again")


def _kept(count: int) -> int:
    return min(count, int(lib.EBK_SCRUB_DAMAGES_MAX))
