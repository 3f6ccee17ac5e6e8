"""A metadata member's log as bytes for one start: what a torn group or a flipped bit does to it (METADATA.md, 2; I42).

Members of a world keep their records as Python values. Here they are written by the real journal onto a disk in memory,
which is harmed, and opened as a starting process opens it; what that makes of them is the member's log from then on.
Decides which bytes go bad, and what a start must not make of that. The plan decides which member, and when.

Harm leaves the last two groups alone: a reader of one journal cannot distinguish a last group that was lost after its
sync from a torn one (JOURNAL.md, 4), and then the one before is the end.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from embedbk.errors import StorageError
from embedbk.ids import START_ID_BYTES
from embedbk.metadata.limits import Limits
from embedbk.storage.journal import Journal
from embedbk.storage.member_notes import MemoryNotes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryRecord
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.testing.violation import Violation

__all__ = ["OpenedMember", "open_behind_a_flip", "open_behind_a_tear"]

PLACE = "/log"
BLOCK_BYTES = 4096
FILE_BYTES = 288 * BLOCK_BYTES  # The largest record fits, and one fills it.
# The kind of records before the log's first one, which are trimmed: tokens never begin again.
FILLER_KIND = 9
FULL_BODY_BYTES = FILE_BYTES - 4184  # After a body of this size nothing more fits into the file.
GROUP_RECORDS_MAX = 4
NOTE_GONE = 0.3  # In this share of the logs with a flipped bit the note is gone, too.


@dataclass(frozen=True, slots=True)
class OpenedMember:
    """The result of a start on these bytes. refusal: why it did not start; then the rest is as it was."""

    records: tuple[MemoryRecord, ...]
    snapshots: dict[str, bytes]
    is_in_doubt: bool = False
    refusal: StorageError | None = None


class _Bytes:
    """One log on a disk. snapshots: its files, by path in the member's directory."""

    def __init__(self, records: Sequence[MemoryRecord], snapshots: Mapping[str, bytes]) -> None:
        self.records, self.snapshots = tuple(records), dict(snapshots)
        self.disk = MemoryDisk({f"{PLACE}/{path}": content for path, content in snapshots.items()})
        self._trimmed: list[str] = []
        self.group_ends: list[int] = []  # Offsets in the file that has all of them.
        if self.records and self.records[0].token > 1:
            self._begin_at(self.records[0].token)

    def _begin_at(self, token: int) -> None:
        journal = Journal(PLACE, io=self.disk, file_bytes=FILE_BYTES, threaded=False)
        for _ in range(token - 2):
            journal.append(FILLER_KIND, 0, b"")
            _step(journal)
        journal.append(FILLER_KIND, 0, bytes(FULL_BODY_BYTES))
        _step(journal)
        journal.close()
        self._trimmed = [path for path, content in self.disk.files().items() if _has_groups(path, content)]

    def write(self, chance: random.Random, torn: Sequence[MemoryRecord] = ()) -> None:
        """All records, in groups; of `torn`, one group, any of its sectors arrive before the power goes."""
        journal = Journal(PLACE, io=self.disk, file_bytes=FILE_BYTES, threaded=False)
        at, left = BLOCK_BYTES, list(self.records)
        while left:
            for record in left[: (count := chance.randint(1, GROUP_RECORDS_MAX))]:
                _append(journal, record)
            del left[:count]
            _step(journal)
            self.group_ends.append(at + journal.facts().group_bytes)
        for record in torn:
            _append(journal, record)
        if torn:
            self.disk.tear(nth=1, sectors=chance.getrandbits(64))
            journal.step()  # The power goes inside it.
        self.disk.crash(chance.getrandbits(63) | 1)
        with contextlib.suppress(StorageError):
            journal.close()  # Its descriptors were cut off: this writes nothing.
        for path in self._trimmed:
            self.disk.drop(path)

    def flip(self, chance: random.Random) -> str:
        """One bit, anywhere but in the last two groups; where, in words. Empty: there is no such place."""
        if len(self.group_ends) < 3:
            return ""
        files = self.disk.files()
        path = max(path for path, content in files.items() if _has_groups(path, content))
        content = bytearray(files[path])
        # Not in the zeros behind a group, which mean nothing.
        at = chance.choice([at for at in range(self.group_ends[-3]) if content[at]])
        content[at] ^= 1 << chance.randrange(8)
        self.disk.put(path, bytes(content))
        return f"{path} at {at}"

    def start(self, notes: MemoryNotes, limits: Limits, start_nonce: bytes) -> OpenedMember:
        """As a process does that starts on it, and stops."""
        try:
            store = open_metadata_store(
                PLACE, io=self.disk, threaded=False, limits=limits, notes=notes, start_nonce=start_nonce
            )
        except StorageError as refusal:
            return OpenedMember(self.records, self.snapshots, refusal=refusal)
        is_in_doubt = store.beginning.doubt is not None
        store.close()
        journal = Journal(PLACE, io=self.disk, threaded=False)
        first = journal.facts().first_token
        records = tuple(MemoryRecord(*row[:3], bytes(row[3])) for row in journal.replay(first - 1))
        journal.close()
        found = {
            path.removeprefix(f"{PLACE}/"): content
            for path, content in self.disk.files().items()
            if path.startswith(f"{PLACE}/snapshots/")
        }
        return OpenedMember(records, found, is_in_doubt)


def open_behind_a_flip(
    records: Sequence[MemoryRecord],
    snapshots: Mapping[str, bytes],
    notes: MemoryNotes,
    limits: Limits,
    chance: random.Random,
) -> OpenedMember | None:
    """A bit of the log is another one, and the note of how far it was used may be gone with it. None: the log is too
    short to have a middle.

    Raises Violation: it is not reported, or it is refused without a hint what helps.
    """
    log = _Bytes(records, snapshots)
    log.write(chance)
    where = log.flip(chance)
    if not where:
        return None
    if chance.random() < NOTE_GONE:
        notes.used = None  # Then nothing shows how much it acknowledged.
    opened = log.start(notes, limits, chance.randbytes(START_ID_BYTES))
    if opened.refusal is None and not opened.is_in_doubt and not _are_all_there(records, opened):
        raise Violation(
            "I42", f"a flipped bit, {where}: records are gone, and the member does not doubt its log"
        )
    if opened.refusal is not None and not opened.refusal.hint:
        raise Violation(
            "I42", f"a flipped bit, {where}: refused, and nobody is told what helps: {opened.refusal}"
        )
    return opened


def open_behind_a_tear(
    records: Sequence[MemoryRecord],
    pending: Sequence[MemoryRecord],
    snapshots: Mapping[str, bytes],
    notes: MemoryNotes,
    limits: Limits,
    chance: random.Random,
) -> OpenedMember:
    """The power went while `pending` were written, which were not acknowledged.

    Raises Violation: the log is refused, or lacks what was durable, or has what was never written; or it is doubted for
    that, or a doubt from before has ended by that.
    """
    was_in_doubt = notes.used is not None and notes.used.has_doubt
    log = _Bytes(records, snapshots)
    log.write(chance, pending)
    opened = log.start(notes, limits, chance.randbytes(START_ID_BYTES))
    if opened.refusal is not None:
        raise Violation("I42", f"a torn group that nobody was told of is refused: {opened.refusal}")
    if opened.is_in_doubt and not was_in_doubt:
        raise Violation("I42", "a member doubts its log for a torn group that it never acknowledged")
    if was_in_doubt and not opened.is_in_doubt:
        raise Violation("I42", "a member that doubted its log trusts it again behind a torn group")
    if not _are_all_there(records, opened):
        raise Violation("I80", f"of {len(records)} durable records some are gone behind a torn group")
    return opened


def _are_all_there(records: Sequence[MemoryRecord], opened: OpenedMember) -> bool:
    return opened.records[: len(records)] == tuple(records)


def _has_groups(path: str, content: bytes) -> bool:
    return "/journal-" in path and any(content[BLOCK_BYTES : 2 * BLOCK_BYTES])


def _append(journal: Journal, record: MemoryRecord) -> None:
    token = journal.append(record.kind, record.ledger_id, record.body)
    assert token == record.token


def _step(journal: Journal) -> None:
    while journal.step():
        pass
