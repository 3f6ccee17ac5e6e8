"""A simulated bookie's disk with bytes: the production storage in C on a disk in memory. What each call does: disks.py.

The harm that is done to its bytes stands in harm.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import random
from collections.abc import Callable
from typing import Any

from embedbk.core.witness import Met
from embedbk.errors import StorageError
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.checking import check_bookie
from embedbk.storage.entry_log_reader import Whose
from embedbk.storage.findings import Findings
from embedbk.storage.journal_reader import file_name
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.raw_files import PictureDirectory
from embedbk.storage.starts import StartCount, Starts
from embedbk.storage.used_reader import read_used
from embedbk.testing.disks import NO_START_ID
from embedbk.testing.harm import harm, lay_lie

__all__ = ["OFTEN_FLUSH_BYTES", "NativeDisk"]

NATIVE_FLUSH_BYTES = 64 << 10
OFTEN_FLUSH_BYTES = 2 << 10
NATIVE_JOURNAL_BYTES = 4 << 20  # The largest frame must fit as one record.
NATIVE_CACHE_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class NativeCopy:
    """All that is durable on a native disk, and the content of the identity files beside it."""

    files: dict[str, bytes]
    starts: StartCount
    notes_used: bool
    may_have_lost: bool
    met: Met | None


class NativeDisk:
    """The storage that ships, stepped by hand on a disk in memory."""

    def __init__(self, name: str, incarnation: bytes, cluster_token: bytes, devices: int = 1) -> None:
        """devices: so many journals and ledger directories."""
        self.storage: BookieStorage | None = None
        self._devices = devices
        self.incarnation = incarnation
        self.is_harmed = self.is_less = False
        self._may_have_lost = False
        self._met: Met | None = None
        self._starts, self._notes_used = StartCount(), False  # As an identity file keeps them.
        # Tokens of the process before, from its durable token on: (token, the same in the journals' own tokens).
        self._ends: list[tuple[int, list[int]]] = []
        self._name = name
        self._cluster_token = cluster_token
        self._disk = MemoryDisk()
        self._is_full = self._opens_nothing = False

    def start(self, start_id: bytes = NO_START_ID) -> BookieStorage:
        starts = Starts(self._starts, self._keep, start_id)
        self.storage = BookieStorage(
            f"/{self._name}",
            self._name,
            self._cluster_token,
            flush_bytes=NATIVE_FLUSH_BYTES,
            cache_bytes_max=NATIVE_CACHE_BYTES,
            journal_file_bytes=NATIVE_JOURNAL_BYTES,
            threaded=False,
            may_have_lost=self._may_have_lost,
            may_go_back=True,
            io=self._disk,
            incarnation=self.incarnation,
            journal_directories=self._places("journal"),
            ledger_directories=self._places("entries"),
            starts=starts,
            notes_used=self._notes_used,
        )
        self.storage.met = self._met
        self._notes_used = True
        return self.storage

    def _keep(self, starts: StartCount) -> None:
        self._starts = starts

    def survived(self) -> int:
        """Several journals count their tokens together, and anew after a crash that took the ends of some: so it is
        asked of each journal, in its own tokens, which never change."""
        assert self.storage is not None
        replayed, survived = self.storage.replayed, 0
        for token, ends in self._ends:
            if all(end <= last for end, last in zip(ends, replayed, strict=True)):
                survived = token
        return survived

    def found_by_a_check(self) -> list[str]:
        """What the offline verifier takes for damage in what a power cut would leave now."""
        files, findings = self._disk.files(), Findings()
        journals, entries = (
            [PictureDirectory(place, files) for place in self._places(kind)]
            for kind in ("journal", "entries")
        )
        check_bookie(journals, entries, Whose(self._cluster_token, self.incarnation), findings)
        return [str(each) for each in findings.found if each.is_damage]

    def _places(self, kind: str) -> list[str]:
        more = [f"/{self._name}/{kind}-{number}" for number in range(2, self._devices + 1)]
        return [f"/{self._name}/{kind}", *more]

    def is_pending(self) -> bool:
        storage = self.storage
        if storage is None or storage.failed() is not None:
            return False
        if storage.next_token() - 1 > storage.durable():  # Tokens, not bytes: a fence has none.
            return True
        # Room is back: a journal whose next file found none makes it when it is stepped, as its thread would.
        return not (self._is_full or self._opens_nothing) and storage.is_full()

    def sync(self) -> int:
        assert self.storage is not None
        try:
            self.storage.step()
        except StorageError:
            return self.storage.durable()  # The bookie notices the failure in its next turn.
        return self.storage.durable()

    def crash(self, chance: random.Random) -> None:
        storage, self.storage = self.storage, None
        if storage is None:
            return
        self._may_have_lost, self._met = storage.may_have_lost, storage.met
        self.is_less = self.is_less and not storage.may_have_lost
        tokens = range(storage.durable(), storage.next_token())
        self._ends = [(token, storage.own_tokens(token)) for token in tokens]
        if (
            storage.failed() is None
            and storage.next_token() - 1 > storage.durable()
            and chance.random() < 0.5
        ):
            self._disk.tear(nth=1, sectors=chance.getrandbits(64))  # D2, in the middle of a group commit.
            self._try(storage.step)
        self._disk.crash(chance.getrandbits(63) | 1)
        self._try(storage.close)  # Its descriptors were cut off: this writes nothing.

    def fail_sync(self, chance: random.Random) -> None:
        self._disk.fail("write", error=errno.EIO)

    def damage(self, chance: random.Random) -> tuple[int, int] | None:
        """The next read of an entry log is an I/O error; nothing durable is hurt."""
        self._disk.fail("read", error=errno.EIO)
        return None

    def harm(self, kind: str, chance: random.Random, before: Any) -> str:
        self._disk.limit(0)  # Harm to a file needs no room.
        done = harm(self._disk, kind, chance, before.files)
        self.fill(self._is_full)
        self.is_harmed |= done != ""
        return done

    def lie(self, kind: str, chance: random.Random) -> bool:
        is_laid = lay_lie(self._disk, kind, chance)
        self.is_harmed |= is_laid
        return is_laid

    def remember(self) -> NativeCopy:
        return NativeCopy(self._disk.files(), self._starts, self._notes_used, self._may_have_lost, self._met)

    def doubt(self, before: NativeCopy | None) -> None:
        if before is not None:
            self.restore(before)
        self.is_less, self._may_have_lost = False, True

    def restore(self, before: NativeCopy) -> None:
        self._disk = MemoryDisk(before.files)
        self._is_full = self._opens_nothing = False
        self._starts, self._notes_used = before.starts, before.notes_used
        self._may_have_lost, self.is_less, self._met = before.may_have_lost, True, before.met

    def drop_newest(self) -> bool:
        # Not by its name: harm may have put bytes into a file that was not used yet, and one that a start has set aside
        # is no file of its journal any more. Without these nothing is lost, and no loss is declared.
        files = self._disk.files()
        noted = [(place, read_used(PictureDirectory(place, files))) for place in self._places("journal")]
        names = [f"{place}/{file_name(note.generation)}" for place, note in noted if note is not None]
        used = [name for name in names if any(files.get(name, b"")[4096:8192])]
        if not used:
            return False
        del files[used[0]]
        self._disk = MemoryDisk(files)
        self.is_less = True
        return True

    def copy(self) -> NativeDisk:
        other = NativeDisk(self._name, self.incarnation, self._cluster_token, self._devices)
        other.restore(self.remember())
        other.is_less, other.is_harmed = False, self.is_harmed
        return other

    def fill(self, is_full: bool) -> None:
        self._is_full = is_full
        self._disk.limit(1 if is_full else 0)

    def open_nothing(self, is_so: bool) -> None:
        """The process has no descriptor left: it opens no file."""
        self._opens_nothing = is_so
        self._disk.fail("open", nth=int(is_so), error=errno.EMFILE, stays=is_so)

    def fail_flush(self) -> None:
        # Allocating an entry log, or the journal's next file, fails.
        self._disk.fail("allocate", error=errno.EIO)
        self.flush_often(OFTEN_FLUSH_BYTES)  # So that one comes, and more behind it.

    def flush_often(self, flush_bytes: int) -> None:
        """The process that runs writes an entry log whenever so much was journaled."""
        if self.storage is not None:
            self.storage.flushes.flush_bytes = flush_bytes

    def is_short(self) -> bool:
        return self.storage is not None and self.storage.is_full()

    def failed_flushes(self) -> int:
        return 0 if self.storage is None else self.storage.flushes.failed_count

    def calm(self) -> None:
        self.open_nothing(False)
        for call in ("read", "write", "allocate"):
            self._disk.fail(call, nth=0)
            if call != "allocate":
                self._disk.lie(call, "flipped", nth=0)

    def lose(self, incarnation: bytes) -> None:
        self.storage = None
        self.incarnation = incarnation
        self.is_harmed = self.is_less = self._may_have_lost = False
        self._starts, self._notes_used = StartCount(), False
        self._met, self._ends = None, []
        self._disk = MemoryDisk()
        self._is_full = self._opens_nothing = False

    def close(self) -> None:
        storage, self.storage = self.storage, None
        if storage is not None:  # While its disk is there: what is open on it must not outlive it.
            self._disk.crash()
            self._try(storage.close)

    @staticmethod
    def _try(act: Callable[[], object]) -> None:
        with contextlib.suppress(StorageError):  # As it should be on a disk without power.
            act()
