"""The journals of one bookie as one: a record goes to the journal of its ledger, and one count of tokens runs over all.

Decides nothing: which journal, and what is durable of all together, is in native/journal/journals.c, which the C add
path shares. Here each record of Python's is handed to its journal, and what was borrowed is let go. Any failure of one
of them is the failure of all (P7.6): a bookie that has lost one device must not go on promising.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from embedbk.errors import StorageError
from embedbk.ports.journal import Buffer
from embedbk.storage.journal import SLOT_COUNT, Journal
from embedbk.storage.native import ffi, lib

__all__ = ["JOURNALS_MAX", "Journals"]

JOURNALS_MAX = 16  # As EBK_JOURNALS_MAX; a test holds them together.


class Journals:
    """parts: open and replayed, all that is in them durable; closed with this. All calls from one thread."""

    def __init__(self, parts: Sequence[Journal]) -> None:
        self.parts = tuple(parts)
        self._one = (
            self.parts[0] if len(self.parts) == 1 else None
        )  # Where one serves, its tokens are the tokens.
        handles = ffi.new("struct ebk_journal *[]", [part.handle() for part in self.parts])
        made = lib.ebk_journals_new(handles, len(self.parts))
        if made == ffi.NULL:
            raise StorageError("no memory for the journals", definite=True)
        self._journals: Any = ffi.gc(made, lib.ebk_journals_free)
        self.known_durable = 0  # What `durable` returned last.

    def next_token(self) -> int:
        """The token that the next record gets, whatever its ledger."""
        return cast(int, lib.ebk_journals_next_token(self.handle()))

    def append(self, kind: int, ledger_id: int, body: Buffer, *, borrowed: bool = False) -> int:
        """Queue one record in the journal of its ledger, as `Journal.append` with kick=False; its token over all.

        Raises:
            StorageError: a journal failed or is closed, or (definite) SLOT_COUNT records wait: nothing was queued.
            UsageError: kind, ledger or size is out of bounds.
        """
        journals = self.handle()
        if self._one is None and not lib.ebk_journals_has_room(journals, 0):
            raise StorageError(f"{SLOT_COUNT} records wait to be written to the journals", definite=True)
        part = lib.ebk_journals_part(journals, ledger_id) if ledger_id >= 0 else 0
        self.parts[part].append(kind, ledger_id, body, borrowed=borrowed, kick=False)
        return cast(int, lib.ebk_journals_note(journals, part))

    def kick(self) -> None:
        """Wake the commit threads for what was appended."""
        lib.ebk_journals_kick(self.handle())

    def show_busy(self, word: Any) -> None:
        """Set this word of an entry store while there are groups to write (native/base/yield.h). Call it before the
        first record."""
        for number, part in enumerate(self.parts):
            part.show_busy(word, number)

    def step(self) -> int:
        """Unthreaded: one group in each journal, if anything is queued; returns the records made durable."""
        return sum(part.step() for part in self.parts)

    def durable(self) -> int:
        """Every record up to this token is on its device. Never falls. Clears the descriptors' readiness."""
        self.known_durable = cast(int, lib.ebk_journals_reap(self.handle()))
        for part in self.parts:
            part.let_go()
        return self.known_durable

    def marks(self) -> list[int]:
        """How far each journal is with what `durable` returned last, in its own tokens; they add up to that (I45)."""
        return [int(lib.ebk_journals_mark(self.handle(), number)) for number in range(len(self.parts))]

    def own_tokens(self, token: int) -> list[int]:
        """For each journal: the last of its own tokens among the records up to `token`, which was given out and is not
        below what `durable` returned last."""
        return [int(lib.ebk_journals_own(self.handle(), number, token)) for number in range(len(self.parts))]

    def notes_used(self) -> bool:
        """Whether all of them note which of their files was used last (JOURNAL.md section 9)."""
        return all(part.used().is_kept for part in self.parts)

    def trim(self, marks: Sequence[int]) -> None:
        """Everything up to these marks, one per journal, is in entry logs and index, synced (P7.5)."""
        for part, mark in zip(self.parts, marks, strict=True):
            part.trim(mark)

    def wait(self, token: int) -> None:
        """Block until the token is durable; for tools and start-up, never on a host's thread.

        Raises:
            StorageError: a journal failed before.
        """
        for part, own in zip(self.parts, self.own_tokens(token), strict=True):
            if own > 0:
                part.wait(own)

    def filenos(self) -> list[int]:
        """One is readable when a group became durable, or a journal failed, since `durable()`; none when unthreaded."""
        return [fileno for part in self.parts if (fileno := part.fileno()) >= 0]

    def queued_bytes(self) -> int:
        return cast(int, lib.ebk_journals_queued_bytes(self.handle()))

    def failed(self) -> str | None:
        """Why one of them stopped for good, or None."""
        if self._one is not None:
            return self._one.failed()
        return next((why for part in self.parts if (why := part.failed()) is not None), None)

    def is_next_refused(self) -> bool:
        """Whether one of them could not prepare its next file, as on a full device."""
        return any(part.is_next_refused() for part in self.parts)

    def why_refused(self) -> list[str]:
        """Why each one that could not has no next file, where its device is not simply full."""
        return [why for part in self.parts if (why := part.next_refusal())]

    def handle(self) -> Any:
        """The journals of C (`struct ebk_journals *`), for the add path; valid until `close`."""
        if self._journals is None:
            raise StorageError("the journals are closed", definite=True)
        return self._journals

    def close(self) -> None:
        """Commit what is queued (if the journals still work), stop their threads, release their directories."""
        self._journals = None
        for part in self.parts:
            part.close()
