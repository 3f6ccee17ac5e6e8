"""Opens the directory of a metadata member: its log and its snapshots, and what its owner declares about them.

Decides what is refused before anything is opened, what a file MAY_HAVE_LOST declares, and when a damaged log is
salvaged. `metadata_store` then reads the log, and decides whether it has less than it was used for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embedbk.codec.lineages import parse_lineages
from embedbk.codec.metadata_messages import Lineage
from embedbk.errors import StorageError, UsageError
from embedbk.metadata.catalog import DEFAULT_LIMITS, Limits
from embedbk.storage.journal import FILE_BYTES, FIRST_FILE_BYTES, DamagedJournal
from embedbk.storage.journal import Journal as DiskJournal
from embedbk.storage.layout import LOSS_FILE, WHOLE
from embedbk.storage.log_salvage import finish_salvage, salvage_log
from embedbk.storage.log_use import JOIN_AGAIN
from embedbk.storage.member_notes import FileNotes, MemberNotes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.metadata_log import MemberIdentity
from embedbk.storage.metadata_store import SNAPSHOT_DUE_BYTES, MetadataStore
from embedbk.storage.probe import choose_sync
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import SNAPSHOT_DIRECTORY

__all__ = ["open_metadata_store"]

_WORD_BYTES_MAX = 4096


def open_metadata_store(
    directory: str | os.PathLike[str],
    *,
    io: MemoryDisk | None = None,
    file_bytes: int = FILE_BYTES,
    threaded: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    snapshot_due_bytes: int = SNAPSHOT_DUE_BYTES,
    new_identity: MemberIdentity | None = None,
    may_have_lost: bool = False,
    gives_up: tuple[Lineage, ...] = (),
    notes: MemberNotes | None = None,
    start_nonce: bytes | None = None,
) -> MetadataStore:
    """The store in a directory, made if its parent is there: a new cluster in an empty one.

    may_have_lost: its owner declares that the log may be older than answers that others got, or shorter than it was. A
    file MAY_HAVE_LOST in the directory declares the same; it is removed once that is done. gives_up: the owner also
    declares these lineages lost, which nodes met (P10.5); the file may name some, or declare that certainly nothing was
    lost. notes: of a log that is not on a real disk; None: none are kept there. start_nonce: as `MetadataStore` has it.

    Raises:
        StorageError: the directory cannot be used, is in use, or holds a damaged log or another kind of journal, or one
            that has less than it was used for.
        UsageError: file_bytes cannot hold a transaction of the largest size; or the directory is a bookie's; or
            lineages are given up though nothing may be lost, or MAY_HAVE_LOST names something that is no lineage.
    """
    file_bytes_min = 2 * (limits.txn_bytes_max + limits.txn_operations_max * limits.key_bytes_max)
    if file_bytes < file_bytes_min:
        raise UsageError(f"file_bytes={file_bytes}: a metadata log needs at least {file_bytes_min}")
    if io is None:
        _refuse_a_bookies(directory)
    if io is None:
        directory = os.path.abspath(directory)  # The process may change its working directory.
    word: Path | None = None
    is_whole = False
    if io is None:
        notes, word = FileNotes(Path(directory)), Path(directory) / LOSS_FILE
        named, is_whole = _said_in(word)
        is_whole = is_whole and not may_have_lost
        may_have_lost, gives_up = may_have_lost or word.exists(), (*gives_up, *named)
    if gives_up and not may_have_lost:
        raise UsageError(
            f"{len(gives_up)} lineages are given up in {os.fspath(directory)}, and nothing may be lost there",
            hint="say --may-have-lost, too: then this member begins a lineage that goes on in their place",
        )
    sync_apart = io is None and choose_sync(os.path.dirname(directory)).is_apart
    first_file_bytes = max(FIRST_FILE_BYTES, -(-file_bytes_min // 4096) * 4096)
    place = os.fspath(directory)
    files = SnapshotFiles(os.path.join(place, SNAPSHOT_DIRECTORY), io=io, threaded=threaded and io is None)

    def open_journal() -> DiskJournal:
        return DiskJournal(
            place,
            io=io,
            file_bytes=file_bytes,
            first_file_bytes=first_file_bytes,
            threaded=threaded,
            sync_apart=sync_apart,
        )

    def opened() -> MetadataStore:
        journal = open_journal()
        try:
            if finish_salvage(place, journal, io):
                journal.close()
                journal = open_journal()
            store = MetadataStore(
                journal,
                journal.facts().first_token,
                limits=limits,
                snapshot_due_bytes=snapshot_due_bytes,
                snapshots=files,
                new_identity=new_identity,
                notes=notes,
                may_have_lost=may_have_lost,
                gives_up=gives_up,
                is_whole=is_whole,
                word=word,
                start_nonce=start_nonce,
            )
            journal.wait(
                journal.next_token() - 1
            )  # An identity that a crash could take back must not be sent.
            return store
        except BaseException:
            journal.close()
            raise

    with _hinting_at_copies():
        try:
            return opened()
        except DamagedJournal as damage:
            if may_have_lost:
                raise
            salvage_log(
                place,
                damage,
                io=io,
                file_bytes=min(first_file_bytes, file_bytes),
                limits=limits,
                snapshots=files,
                notes=notes,
            )
        return opened()


@contextmanager
def _hinting_at_copies() -> Iterator[None]:
    """Add the hint that no other node heals damage of the only member's log."""
    try:
        yield
    except DamagedJournal as damaged:
        raise DamagedJournal(
            damaged.args[0],
            hint="of the only member nobody else has these records: restore its directory from a copy and start it "
            "with --may-have-lost; without a copy, begin a new cluster in an empty directory. One of several members: "
            f"{JOIN_AGAIN}",
        ) from damaged


def _refuse_a_bookies(directory: str | os.PathLike[str]) -> None:
    """Refuse a bookie's directory: a new cluster's files could not be told apart from the bookie's."""
    try:
        names = os.listdir(directory)
    except OSError:
        return  # Not there yet; or the journal reports the fault.
    held = sorted({"IDENTITY", "entries", "journal"} & set(names))
    if held and not any(name.startswith("journal-") for name in names):  # It has no log of its own there yet.
        raise UsageError(
            f"directory {os.fspath(directory)} holds {', '.join(held)}: it is a bookie's, not a metadata member's",
            hint="give the member a directory of its own",
        )


def _said_in(word: Path) -> tuple[tuple[Lineage, ...], bool]:
    """The lineages that an owner's file names, and whether it declares that nothing was lost. Raises StorageError,
    UsageError: it cannot be read, or names something that is no lineage."""
    try:
        text = word.read_bytes()[:_WORD_BYTES_MAX].decode("ascii", "replace")
    except FileNotFoundError:
        return (), False
    except OSError as refused:
        raise StorageError(f"{word} cannot be read: {refused}", definite=True) from refused
    if text.strip() == WHOLE:
        return (), True
    try:
        return parse_lineages(text), False
    except UsageError as unknown:
        raise UsageError(f"{word}: {unknown.args[0]}", hint=unknown.hint) from unknown
