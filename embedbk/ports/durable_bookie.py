"""All of a bookie that outlives its process, as one, and which start of it this is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from embedbk.codec.frame import Frame
from embedbk.codec.holdings_messages import Digests
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.core.upkeep_words import EntryLogKeeper, LogFacts
from embedbk.core.witness import Met
from embedbk.ports.add_path import AddPath
from embedbk.ports.entry_store import EntriesFound, EntriesHeld
from embedbk.ports.journal import Buffer
from embedbk.ports.upkeep import RebuildLeft, RebuildPiece, ScrubDamage, ScrubPiece

__all__ = ["AnyStarts", "DurableBookie"]


class AnyStarts(Protocol):
    """Which start of a node's directories a process is, as these know it (P7.9)."""

    @property
    def count(self) -> int:
        """The number of this start: durable, and above that of every earlier one."""
        ...

    @property
    def id(self) -> bytes:
        """A random number of START_ID_BYTES, of this start alone."""
        ...

    def has(self, count: int, start_id: bytes) -> bool:
        """Whether that was a start of these directories, or is this one; False also where they do not remember."""
        ...

    def pass_by(self, count: int) -> None:
        """Count this start above one that these directories know nothing of, durably. Raises StorageError."""
        ...


class DurableBookie(Protocol):
    """All of a bookie that outlives it, as one: identity, journal, ledger table, entry store, flush and trim.

    Opening has replayed what was durable into `table` and store. All calls from the host's thread.
    """

    incarnation: bytes
    met: Met | None  # The newest metadata that was met, as it was kept (P10.5).
    place: str  # Where it is, for people.
    replayed: tuple[
        int, ...
    ]  # For each journal, in its own tokens: the last record that its start had (P7.9).

    @property
    def may_have_lost(self) -> bool:
        """Something acknowledged may be gone: limbo comes before serving (P7.4)."""
        ...

    @property
    def starts(self) -> AnyStarts:
        """Which start of its directories this is, counted durably."""
        ...

    @property
    def table(self) -> AnyLedgerTable: ...

    @property
    def add_path(self) -> AddPath | None:
        """None: every add goes through the core."""
        ...

    def note_less(self, reason: str) -> None:
        """It has less than it had: `may_have_lost`, also for the next start, durable when this returns."""
        ...

    def durable_tokens(self) -> tuple[int, ...]:
        """For each journal, in its own tokens: the last that `durable` has returned."""
        ...

    def sync(self) -> None:
        """Wait until everything queued is durable, or will never be; call it before closing."""
        ...

    def end_loss(self) -> None:
        """Everything that may be lost is in durable limbo: `may_have_lost` is over, also for the next start."""
        ...

    def keep_met(self, met: Met, *, is_synced: bool) -> None:
        """Keep the newest metadata that was met; durable when this returns if is_synced. Raises StorageError."""
        ...

    def next_token(self) -> int:
        """The journal token that the next `append` or `put_frame` will get."""
        ...

    def append(self, kind: int, ledger_id: int, body: Buffer) -> int:
        """Queue a record that is not a frame (codec/journal_records.py); returns its token."""
        ...

    def put_frame(self, frame: Frame) -> int:
        """Copy a checked frame's body into the write cache and queue it as one record; returns its token."""
        ...

    def drop(self, ledger_id: int) -> None:
        """The ledger's DROP record is durable: forget its entries; on disk they go when it suits (P7.7)."""
        ...

    def kick(self) -> None:
        """End of a turn: let what was queued be committed. Until then it may wait, so that one sync serves it all."""
        ...

    def durable(self) -> int:
        """Every record up to this token is on the device. Never falls. Clears the descriptors' readiness."""
        ...

    def failed(self) -> str | None:
        """Why nothing more becomes durable, or None (P7.6)."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors that become readable when `durable` rose or a flush is ready; the same from open to close."""
        ...

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
        """As EntryStore.read."""
        ...

    def held(
        self,
        ledger_id: int,
        first: int,
        last: int,
        modulus: int = 1,
        residues: int = 1,
        cuts: Sequence[int] = (),
        wants: int = Digests.NONE,
    ) -> EntriesHeld | None:
        """As EntryStore.held, without entries that were found damaged and still are. Returns None if too many
        were. wants: digests along with it, of the parts that begin with first and with each of cuts, which
        ascend."""
        ...

    def block_numbers(self, blocks: Sequence[tuple[int, bytes]]) -> tuple[list[int | None], int]:
        """One number of 64 bits for each block (first ledger, mask), and the highest token of a record that was queued
        for a ledger of one of them. mask: bit i % 8 of byte i // 8 chooses ledger first + i.

        A number is another one, but for a chance of 2^-64, once `held` may return something else for one of these
        ledgers, and with each start. None: damage is known in one of them."""
        ...

    def queued_bytes(self) -> int:
        """Bytes queued and not yet durable, for back pressure."""
        ...

    def cached_bytes(self) -> int:
        """Bytes in the write cache that no entry log holds yet, for back pressure."""
        ...

    def begin_flush_if_due(self) -> bool:
        """Start a flush when the write cache or the journal passed its bound and none is running."""
        ...

    def quiet_bytes(self) -> int:
        """How much the add path may take before this storage has something to do that no descriptor tells of; 0: it has
        now."""
        ...

    def finish_flush(self) -> bool:
        """Take a flush in that is ready, and trim the journal below its mark (P7.5); False when none is."""
        ...

    def begin_scrub(self, bytes_max: int) -> bool:
        """Start reading the next piece of what is stored, about bytes_max bytes, to find what has rotted (I55).
        False when there is nothing to be read, or a piece is being read."""
        ...

    def finish_scrub(self) -> ScrubPiece | None:
        """The piece that was begun, when it is read; None while it is not, or none was begun. Raises StorageError: it
        cannot be read now, which says nothing of what is stored; it is the next one again."""
        ...

    def scrub_damages(self) -> list[ScrubDamage]:
        """What is known to be damaged now: of each file what its last reading has found."""
        ...

    def rebuild_left(self) -> RebuildLeft:
        """Entry logs of which no index is whole, and what of them is still to be looked through (ST38). What may stand
        there is unreadable until then, never absent (P7.1)."""
        ...

    def begin_rebuild(self, bytes_max: int) -> bool:
        """Start looking through the next bytes_max bytes of it, or go on with the piece that is under way. False when
        nothing is left. Raises StorageError: not now."""
        ...

    def finish_rebuild(self) -> RebuildPiece | None:
        """What became of the piece that was begun; None while it is being read, or none was begun. Raises StorageError:
        not now, and the piece is to be begun again."""
        ...

    def has_room(self, *, is_urgent: bool = False) -> bool:
        """Whether `put_frame` takes the largest frame without waiting for a flush or a commit. Asked for each request;
        True also where waiting would not help. is_urgent: of a part that normal adds leave free (P7.8)."""
        ...

    def is_full(self) -> bool:
        """Whether a write found no room on the device, and none of its kind went well since (I53). Asked often."""
        ...

    def why_full(self) -> str:
        """Where that was, and the reason that the system gave, in words: it may be descriptors that are wanting. Empty
        while nothing is."""
        ...

    def note_level(self, level: int) -> None:
        """The cluster's level is this one or higher: what builds that do not know it cannot read may be written
        (P10.8)."""
        ...

    def look_at_directories(self) -> None:
        """Notice a directory that was removed beneath this process, in which nothing is kept any more: from then on
        `failed` says so. Asked now and then."""
        ...

    def read_only_reason(self) -> str | None:
        """Why an operator wants no normal adds taken, perhaps without words; None: no operator does. Asked now and
        then. Raises StorageError: it cannot be told."""
        ...

    def retry_flush(self) -> None:
        """Try a flush that found no room once more, if there is one. Raises StorageError when it cannot be begun."""
        ...

    def log_facts(self) -> list[LogFacts]:
        """Entry logs that could be compacted, oldest first; none where storage is not made of files."""
        ...

    def log_keepers(self, log_id: int, after: int, most: int) -> list[EntryLogKeeper]:
        """Ledgers with ids above `after` that keep this entry log, ascending, at most so many; none: it is not there,
        or nothing of it counts."""
        ...

    def begin_copy(self, log_ids: Sequence[int]) -> None:
        """Plan a new entry log of what lives in these. Raises StorageError."""
        ...

    def copy_slice(self, byte_count: int) -> None:
        """Begin to copy about so much of it, beside the caller where storage has threads. Raises StorageError: nothing
        is copied any more, and nothing changed."""
        ...

    def poll_copy(self) -> tuple[int, bool] | None:
        """For a slice that ended: its bytes, and whether all is copied; then the sources go with the next flush.
        None while none ended. Raises StorageError: nothing is copied any more, and nothing changed."""
        ...

    def close(self) -> None:
        """Make everything durable, flush, release the directory."""
        ...
