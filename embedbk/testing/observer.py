"""The hooks by which a world notifies observers: for ghost state, invariants, traces and users' own checks.

Decides nothing. Every hook has an empty body here, so that an observer overrides what it wants; the world skips hooks
that are not overridden, so they cost nothing. A hook that finds something wrong raises `Violation`.

Order within one turn: what became durable (`on_durable`, `on_metadata`), then steps (`on_step`: the core has taken the
event, its effects are *not yet* carried out), then what applications receive (`on_acked` and the like).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

from embedbk.codec.frame import Frame
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.client_words import Send
from embedbk.core.writer import Writer
from embedbk.host.writing import Writing
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.testing.violation import Violation

__all__ = ["Observer", "Violation"]


class Observer:
    """Override the hooks that you want. `node` is a name: "metadata" (of several "m1"..), "b1", or a client's."""

    # Cores.

    def on_step(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        """A core took an event. type(core) is one of: core.bookie.Bookie, core.writer.Writer, core.recovery.Recovery,
        core.reader.RangeRead, core.lac_reader.LacRead and LacWait, core.log.LogTakeover, core.creation.Creation,
        metadata.member.Member.
        Writers and the like are one object per handle: id by `core` itself (hashable by identity)."""

    def on_add_sent(self, client: str, core: Writer, frame: Frame, send: Send) -> None:
        """This client sent a frame to a seat past its writer's core, which receives it later: as if it had now."""

    def on_add_answered(self, client: str, core: Writer, send: Send) -> None:
        """OK to exactly what was sent so, from whom it was sent to, is there."""

    def on_archived(self, log_id: str, ledger_id: int, manifest: bytes, content: bytes) -> None:
        """A job wrote all entries of a ledger to files, which the manifest of this hash names: `content`, verbatim."""

    # Nodes and their disks.

    def on_started(
        self, node: str, role: str, incarnation: bytes, last_token: int, may_have_lost: bool
    ) -> None:
        """role: "metadata", "bookie" or "client". A bookie that replayed its disk: journal records up to last_token, as
        the process before counted them, were read; those above are gone, except what `on_found` reports next.
        may_have_lost: an unclean start, after which durable records may be gone too; the bookie must enter limbo before
        it serves (P7.4)."""

    def on_found(self, node: str, ledger_id: int, is_fenced: bool, entry_ids: Sequence[int]) -> None:
        """Behind `on_started` of a bookie that starts again: what it found on its disk, ledger by ledger. An entry or a
        fence may have survived in an entry log although its journal record did not."""

    def on_found_late(self, node: str, ledger_id: int, is_fenced: bool, entry_ids: Sequence[int]) -> None:
        """As `on_found`, of a bookie that serves and looks through entry logs whose indexes it lost (ST38): what it
        can read now, entries that are still on their way to the disk too."""

    def on_found_dropped(self, node: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Behind `on_found`: ledgers (first, last) that it found to be dropped for ever, and so fenced (P7.3)."""

    def on_stopped(self, node: str) -> None:
        """The process ended without a word (crash); its volatile state is gone, its disk keeps what is durable."""

    def on_durable(self, node: str, token: int) -> None:
        """Every journal record of this bookie up to token (the tokens of StoreFrame and JournalAppend effects) is what
        a power cut now would leave: it joins STABLE. Called before the core receives it."""

    def on_disk_lost(self, node: str) -> None:
        """All that the bookie had stored is gone for good (LOSTDISK); it never comes back as this incarnation."""

    def on_disk_harmed(self, node: str) -> None:
        """Bytes that the bookie had stored are or will be wrong: any copy may be bad, and it may refuse to start.
        It held these entries all the same: it must not answer that any of them is absent."""

    def on_disk_doubted(self, node: str) -> None:
        """While it is down: what it held and promised may be gone, and its owner declares that at the next start
        (`on_started` with may_have_lost)."""

    def on_disk_copied(self, node: str) -> None:
        """Its directories were copied as they are: what it owes for what it may have lost, the copy owes too (P7.9)."""

    def on_copy_doubted(self, node: str) -> None:
        """The process on the copy found out that it may lack something, and lists now what must be in limbo: what comes
        to be behind that, nobody can have given it (P7.4, P7.9)."""

    def on_places_changed(self, node: str) -> None:
        """Before `on_started`: the bookie is the process on the other copy of its disk from now on. What one of the two
        lost or learnt after the copy was made tells nothing about the other."""

    def on_damaged(self, node: str, ledger_id: int, entry_id: int) -> None:
        """The bookie's stored bytes of this entry are unreadable from now on, until a valid copy replaces them."""

    def on_paused(self, node: str, is_paused: bool) -> None:
        """The process stops (SIGSTOP), or continues."""

    # Metadata.

    def on_metadata(self, revision: int, key: str, old: bytes | None, new: bytes | None) -> None:
        """A change became durable; no node can have seen it before. In order of revisions; new None: deleted. Ledger
        metadata stands under codec.ledger_metadata.ledger_key_path, logs under log_key_path."""

    # What applications do and receive.

    def on_sent(self, client: str, writing: Writing, ledger_id: int, entry_id: int, payload: bytes) -> None:
        """An application gave an entry to append."""

    def on_append(self, client: str, log: str, epoch: int, bytes_max: int) -> None:
        """The owner of a log that may have so many bytes is about to queue what an application gave it."""

    def on_acked(self, client: str, writing: Writing, ledger_id: int, lac: int) -> None:
        """The creator's handle reports to its application that everything up to lac is acknowledged; lac rose."""

    def on_failed(
        self, client: str, writing: Writing, ledger_id: int, first_entry: int, error: Exception
    ) -> None:
        """The handle reports that every entry from first_entry on ends with this error."""

    def on_read(
        self, client: str, ledger_id: int, entries: Sequence[tuple[int, bytes]], is_unconfirmed: bool
    ) -> None:
        """A reader was given (entry id, payload) pairs, in order."""

    def on_read_failed(self, client: str, ledger_id: int, entry_id: int, error: Exception) -> None:
        """A reader got the error that entry_id cannot be read, or is not there (NoSuchEntry)."""

    def on_reader_lac(self, client: str, ledger_id: int, lac: int, is_closed: bool, handle: Hashable) -> None:
        """A reader's handle showed up to where may be read: a LAC, or the end of a closed ledger. handle: which of the
        client's, the same object or name for as long as it is the same handle."""

    def on_copies(self, client: str, ledger_id: int, entry_id: int, count: int) -> None:
        """A ticket showed on how many disks its entry is at least."""

    def on_forgotten(self, client: str, core: Any) -> None:
        """The call that this core carries out was given up: it takes no more events."""

    def on_recovered(
        self, client: str, ledger_id: int, metadata: LedgerMetadata | None, error: Exception | None
    ) -> None:
        """A recovery ended: with the closed metadata, or an error."""

    # The whole.

    def on_healed(self) -> None:
        """Faults have stopped, everything is up: from here on the world must come to rest (liveness)."""

    def at_end(self, storages: dict[str, DurableBookie], wanted: Collection[int]) -> None:
        """The run is over: every ledger was recovered and read. storages: bookies by name, as far as they are up.
        wanted: the ledgers that clients wanted closed."""
