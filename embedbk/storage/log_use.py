"""How far a metadata member's log was used: what a start must find again, and what is noted while it runs
(P9.2, P10.3).

Decides whether a log has less than was noted beside it, and when the next note is due: after the noted records are
durable, and before anything about them is sent. member_notes.py has the format of a note.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from embedbk.codec.lineages import lineage_text
from embedbk.codec.metadata_messages import Lineage
from embedbk.errors import StorageError
from embedbk.metadata.raft_vocabulary import Doubt
from embedbk.storage.layout import LOSS_FILE, WHOLE
from embedbk.storage.member_notes import MemberNotes, Used, what_is_missing
from embedbk.storage.metadata_log import LogFound, LogStart, MemberIdentity, Salvaged
from embedbk.storage.noted import make_durable, replace_durably

__all__ = ["JOIN_AGAIN", "NOTE_SYNCED_BYTES", "LogUse", "UseVerdict", "check_used", "is_of", "missing_in"]

logger = logging.getLogger(__name__)

JOIN_AGAIN = "let it join again from an empty directory (embedbk metadata --join)"

NOTE_SYNCED_BYTES = (
    4 << 20
)  # Bytes of entries after which the note is synced again; each start and each stop syncs it.


@dataclass(frozen=True, slots=True)
class UseVerdict:
    """What a start knows. used: the note; None: there is none yet, or its owner declared that it does not count."""

    used: Used | None
    begins_generation: bool = (
        False  # Its owner asks for it: above everything that a lost part may have given out (P9.2).
    )
    doubt: Doubt | None = None


def check_used(
    notes: MemberNotes | None, found: LogFound, last_token: int, *, may_have_lost: bool
) -> UseVerdict:
    """Whether the member may continue with this log.

    One of several members that has less than it was used for continues in doubt: it does not vote until it has what it
    may have acknowledged. The only member of a cluster cannot get it from others.

    Raises:
        StorageError: the log has less than it was used for, or another log's note beside it, and its owner has not
            declared a loss; or it is one of several, and how much it may have acknowledged is unknown.
    """
    is_several = found.identity is not None and not found.is_alone
    if is_several and may_have_lost:
        raise StorageError(
            "metadata log: one of several members cannot begin a generation, and how much an older copy of it "
            "acknowledged since cannot be told",
            hint=f"start it without --may-have-lost; or {JOIN_AGAIN}",
        )
    begins_generation = may_have_lost and found.last_index > 0
    if notes is None:
        return UseVerdict(None, begins_generation)
    try:
        used = notes.read()
    except StorageError:
        if not begins_generation:
            raise
        return UseVerdict(None, True)
    if used is not None and found.identity is not None and not is_of(used, found.identity):
        own = found.identity
        raise StorageError(
            f"metadata log: it is of {own.name}, incarnation {own.incarnation.hex()}, of the cluster "
            f"{own.cluster_token.hex()}, and what was noted beside it of {used.cluster_token.hex()}, "
            f"incarnation {used.incarnation.hex()}",
            hint="give the member its own directory back, whole",
        )
    missing = missing_in(used, found, last_token)
    if is_several and found.salvaged is not None:
        return UseVerdict(used, doubt=_doubt_behind_damage(used, found, found.salvaged, missing))
    if is_several:
        return UseVerdict(used, doubt=_doubt_of(used, found, missing))
    if missing and found.last_index == 0:
        raise StorageError(
            f"metadata log: {missing}; nothing of it is left",
            hint="put a copy of the whole directory in its place; an older one is started with --may-have-lost. "
            f"One of several members: {JOIN_AGAIN}",
        )
    if missing and not may_have_lost:
        raise StorageError(
            f"metadata log: {missing}; who goes on from here gives out ids and epochs twice",
            hint="put the directory back whole; or, if there is no better copy, start it with --may-have-lost, or "
            f"with an empty file {LOSS_FILE} in its directory, which begins a new generation",
        )
    if missing:
        logger.warning("metadata log: %s; its owner says to go on", missing)
    return UseVerdict(None if begins_generation else used, begins_generation)


def _doubt_of(used: Used | None, found: LogFound, missing: str) -> Doubt | None:
    """How much one of several members may have acknowledged and lost; None: nothing."""
    if missing and (used is None or not used.is_of_log):
        raise StorageError(
            f"metadata log: {missing}; how much it acknowledged cannot be told",
            hint=f"put the directory back whole; or {JOIN_AGAIN}",
        )
    if used is None or not (missing or used.has_doubt):
        return None
    doubt = Doubt(max(used.term, found.term), max(used.last_index, found.last_index))
    logger.warning(
        "metadata log: %s; this member votes for nobody before it has everything up to entry %d of term %d again",
        missing or "it had less than it was used for",
        doubt.acknowledged_index,
        doubt.term,
    )
    return doubt


def _doubt_behind_damage(
    used: Used | None, found: LogFound, salvaged: Salvaged, missing: str
) -> Doubt | None:
    """The doubt of a log that begins behind a damaged one, as long as no later start has noted anything."""
    later = _doubt_of(used, found, missing)
    if used is not None and used.start_count > salvaged.start_count:
        return later
    known = salvaged.doubt
    if later is None:
        return known
    return Doubt(
        max(known.term, later.term), max(known.acknowledged_index, later.acknowledged_index, found.last_index)
    )


def missing_in(used: Used | None, found: LogFound, last_token: int) -> str:
    """What the log lacks of its noted use; empty: nothing."""
    if used is None:
        older_count, _ = found.older_starts(0)
        return what_is_missing(None, last_token, max(found.start_count, older_count), None)
    if used.is_of_log:
        return what_is_missing(used, last_token, found.start_count, found.starts.get(used.start_count))
    return what_is_missing(used, last_token, *found.older_starts(used.start_count))


def is_of(used: Used | None, identity: MemberIdentity) -> bool:
    """Whether the note exists and is this member's."""
    own = identity.cluster_token, identity.incarnation
    return used is not None and (used.cluster_token, used.incarnation) == own


class LogUse:
    """Writes the notes of one process. word: the file by which its owner may have declared a loss."""

    def __init__(
        self,
        notes: MemberNotes,
        word: Path | None,
        identity: MemberIdentity,
        start: LogStart,
        verdict: UseVerdict,
    ) -> None:
        self._notes = notes
        self._word = word if verdict.begins_generation else None
        self._doubt = verdict.doubt
        self._identity, self._start = identity, start
        self._noted_token = 0
        self._failure = ""
        self._unsynced_bytes = 0
        self.is_start_noted = False

    def begin(self) -> None:
        """From the first record on, a log without a note has lost it. Raises StorageError: nothing can be noted."""
        self._write(
            Used(self._identity.cluster_token, self._identity.incarnation, 0, b"", 0, True), is_synced=True
        )
        if self._failure:
            raise StorageError(f"metadata log: nothing can be noted beside it: {self._failure}")

    def keep_doubt(self, used: Used) -> None:
        """Before the first record of a start that found less than was used: with that record the log may look whole
        again. used: the note so far. Raises StorageError: it cannot be noted."""
        doubt = self._doubt
        assert doubt is not None
        noted = replace(used, term=doubt.term, last_index=doubt.acknowledged_index, has_doubt=True)
        self._write(noted, is_synced=True)
        self._noted_token = 0
        if self._failure:
            raise StorageError(f"metadata log: its doubt cannot be noted: {self._failure}")

    def keep_word(self, gives_up: tuple[Lineage, ...], *, is_whole: bool) -> None:
        """Keep the owner's declaration of a loss, before the first record of the start that is told of it: with that
        record the log may look whole again, and a start behind a crash must be told so, too. The first note ends it.
        Raises StorageError: it cannot be kept."""
        if self._word is None:
            return
        said = WHOLE if is_whole else " ".join(lineage_text(each.name, each.generation) for each in gives_up)
        try:
            if self._word.exists() and self._word.read_text("ascii", "replace").strip() == said:
                make_durable(self._word)
            else:
                replace_durably(self._word, f"{said}\n".encode())
        except OSError as refused:
            raise StorageError(
                f"metadata log: {self._word}, by which its owner declares a loss, cannot be written: {refused}",
                hint="check the permissions of the directory, its disk and the room on it",
            ) from refused

    def add(self, size: int) -> None:
        """Count bytes that were queued."""
        self._unsynced_bytes += size

    def end_doubt(self) -> None:
        """Note that the member has everything again that it may have acknowledged."""
        self._doubt = None

    def note(self, token: int, term: int, last_index: int) -> None:
        """Note that the log is durable up to token, where it has this term and this end. The first note of a start also
        ends the owner's declaration of a loss."""
        if token <= self._noted_token:
            return
        is_first = not self.is_start_noted
        used = self._used(token, term, last_index)
        self._write(used, is_synced=is_first or self._unsynced_bytes >= NOTE_SYNCED_BYTES)
        self.is_start_noted = not is_first or not self._failure
        if is_first and self.is_start_noted and self._word is not None:
            try:
                self._word.unlink(missing_ok=True)
            except OSError as refused:
                logger.error(
                    "%s cannot be removed, and says to begin another generation: %s", self._word, refused
                )

    def end(self, token: int, term: int, last_index: int) -> None:
        """Note a clean stop, after the last record."""
        self._write(self._used(token, term, last_index), is_synced=True)

    def _used(self, token: int, term: int, last_index: int) -> Used:
        whose, start, doubt = self._identity, self._start, self._doubt
        if doubt is not None:
            term, last_index = max(term, doubt.term), max(last_index, doubt.acknowledged_index)
        return Used(
            *(whose.cluster_token, whose.incarnation, start.count, start.nonce, token, True),
            *(term, last_index, doubt is not None),
        )

    def _write(self, used: Used, *, is_synced: bool) -> None:
        """A note that cannot be written changes nothing, but the next start knows less."""
        try:
            self._notes.write(used, is_synced=is_synced)
        except StorageError as refused:
            if str(refused) != self._failure:
                logger.error("metadata member: %s", refused)
            self._failure = str(refused)
            return
        self._noted_token, self._failure = used.last_token, ""
        if is_synced:
            self._unsynced_bytes = 0
