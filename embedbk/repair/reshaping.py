"""Giving a CLOSED ledger of a log the numbers of copies that the log's settings name (P2.6).

Decides which ledger has other numbers than its log's settings, which bookies get its seats then, and what one
compare-and-set publishes. Leaves to others: who looks for such ledgers (`misfits.py`), the copies
(`fragment_copy.py`), and the mark that keeps these where they are meanwhile (`ledger_repair.py`).

All fragments, E, Qw and Qa change at once, when every entry is durable on the write set that it has then; the starts of
the fragments stay. Every seat gets its copies by the same road, also where its bookie had a seat before: a bookie that
holds an entry acknowledges it once more (P3.4b), and so nothing is inferred. The bookies of before keep theirs until
they collect (P7.7); a reader that finds them gone reads the metadata again (P6.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from embedbk.codec.freed_ledger import LOG_OF_LEDGER
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.log_settings import decode_log_settings
from embedbk.codec.lost_entries import runs_of
from embedbk.config import Quorum
from embedbk.errors import StorageError
from embedbk.ids import Member
from embedbk.repair.fragment_copy import Shape
from embedbk.repair.owed import owed_up_to

__all__ = ["Reshape", "is_misfit", "log_of", "shape_of_settings"]


def log_of(metadata: LedgerMetadata) -> str | None:
    """The id of the log that the ledger names; None: it names none."""
    try:
        return metadata.custom.get(LOG_OF_LEDGER, b"").decode() or None
    except UnicodeDecodeError:
        return None  # Somebody's word (P2.5).


def shape_of_settings(value: bytes | None, log_id: str) -> Quorum | None:
    """The E, Qw and Qa of a log's settings. None: they name none, or cannot be read (P2.5)."""
    try:
        return None if value is None else decode_log_settings(value, log_id).quorum
    except StorageError:
        return None


def is_misfit(metadata: LedgerMetadata, wanted: Quorum | None) -> bool:
    """Whether its copies are to be others. A ledger in files has none on bookies (P8.14). One of which every E-th entry
    was given up keeps its E: the words stay as they are (P11.5), and metadata with another E would be none."""
    if wanted is None or not metadata.is_closed or metadata.freed is not None or metadata.quorum == wanted:
        return False
    return all(step in (1, wanted.ensemble_size) for _, _, step in runs_of(metadata.lost))


@dataclass(slots=True)
class Reshape:
    """One ledger on its way to another shape. settings: the key that names it, compared at this revision. revision: of
    the ledger's metadata that is copied. copied: numbers of the fragments whose copies are durable."""

    shape: Shape
    settings: str
    settings_revision: int
    revision: int
    copied: set[int] = field(default_factory=set)

    def next_fragment(self, metadata: LedgerMetadata) -> int | None:
        """The next fragment with entries that are not copied yet."""
        for number, fragment in enumerate(metadata.fragments):
            if number not in self.copied and owed_up_to(metadata, number) >= fragment.first_entry:
                return number
        return None

    def published(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """One ensemble in all fragments: an entry's write set follows from its id and E alone (P1)."""
        quorum = self.shape.quorum
        seats = tuple((member.bookie_id, member.incarnation) for member in self.shape.ensemble)
        return metadata.with_changes(
            ensemble_size=quorum.ensemble_size,
            write_quorum=quorum.write_quorum,
            ack_quorum=quorum.ack_quorum,
            fragments=tuple(replace(each, ensemble=seats) for each in metadata.fragments),
        )

    def names(self, members: set[Member]) -> bool:
        return not members.isdisjoint(self.shape.ensemble)
