"""The offline verifier of a metadata member's directory: reads every record and chunk and trusts nothing (I31, I42).

Decides what of its log and of its snapshots is damage, and whether they give a catalog together. It writes nothing, and
reads the journal by code of its own (journal_reader).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from embedbk.codec.registration import Cookie, cookie_path, decode_cookie
from embedbk.errors import StorageError
from embedbk.metadata.catalog import Catalog
from embedbk.storage.findings import Findings, Progress, silent
from embedbk.storage.journal_reader import look_at_journal, walk_records
from embedbk.storage.log_use import missing_in
from embedbk.storage.member_notes import MEMBER_FILE, FileNotes, Used, what_is_missing
from embedbk.storage.memory_journal import MemoryJournal, MemoryRecord
from embedbk.storage.metadata_log import read_log
from embedbk.storage.noted import NOTE_BYTES
from embedbk.storage.raw_files import RawDirectory
from embedbk.storage.snapshot_format import (
    SNAPSHOT_DIRECTORY,
    parse_snapshot_name,
    read_header,
    read_pieces,
)
from embedbk.storage.snapshots import names_of

__all__ = ["MetadataFacts", "check_metadata"]


@dataclass(slots=True)
class MetadataFacts:
    records: int = 0
    last_index: int = 0
    revision: int = 0
    cluster_token: bytes = b""
    incarnation: bytes = b""
    cookies: dict[str, Cookie] = field(default_factory=dict)  # By bookie id.


def check_metadata(
    directory: RawDirectory, findings: Findings, *, progress: Progress = silent
) -> MetadataFacts:
    """Check a metadata member's log and snapshots: every record and chunk, and that together they give a catalog."""
    facts = MetadataFacts()
    snapshots = directory.within(SNAPSHOT_DIRECTORY)
    try:
        used = _noted_use(directory)  # First: a member that runs goes on.
        picture = look_at_journal(directory, findings)
        records: list[MemoryRecord] = []
        for record in walk_records(directory, picture, max(0, picture.first_token - 1), findings):
            records.append(MemoryRecord(record.token, record.kind, record.ledger_id, bytes(record.body)))
            progress(directory.path, len(record.body))
    except OSError as refused:
        findings.damage(directory.path, f"it cannot be read: {refused.strerror}")
        return facts
    except StorageError as broken:
        findings.damage(directory.path, str(broken))
        return facts
    facts.records = len(records)
    if used is not None and not records and used.last_token:
        findings.damage(directory.path, f"metadata log: {what_is_missing(used, 0, 0, None)}")
    if not picture.is_sound or not records:
        return facts
    try:
        damaged = _check_snapshots(snapshots, findings, progress)
        found = read_log(MemoryJournal(records), picture.first_token, snapshots)
        missing = missing_in(used, found, records[-1].token)
        catalog = found.replay()
    except StorageError as broken:
        findings.damage(directory.path, str(broken))
        return facts
    for named, reason in found.snapshots.refused:
        if named.name not in damaged:
            findings.damage(f"{snapshots.path}/{named.name}", reason)
    if missing:
        findings.damage(directory.path, f"metadata log: {missing}")
    facts.last_index = found.last_index
    facts.revision = catalog.revision
    if found.identity is not None:
        facts.cluster_token = found.identity.cluster_token
        facts.incarnation = found.identity.incarnation
    facts.cookies = _cookies(directory, catalog, findings)
    return facts


def _check_snapshots(directory: RawDirectory, findings: Findings, progress: Progress) -> set[str]:
    """Check every chunk of every snapshot; returns the names of those that are damaged. They are compared with the log
    later. Raises StorageError: the directory cannot be read."""
    damaged: set[str] = set()
    for name in names_of(directory):
        path = f"{directory.path}/{name}"
        if parse_snapshot_name(name) is None:
            findings.note(path, "not a snapshot that counts; left alone")
            continue
        try:
            with directory.open(name) as file:
                for piece in read_pieces(file, read_header(file)):
                    progress(path, len(piece))
        except (StorageError, OSError) as bad:
            damaged.add(name)
            findings.damage(path, str(bad))
    return damaged


def _cookies(directory: RawDirectory, catalog: Catalog, findings: Findings) -> dict[str, Cookie]:
    prefix = cookie_path("")
    found: dict[str, Cookie] = {}
    after = ""
    while True:
        page = catalog.page(prefix, after, 1000)
        for record in page.records:
            try:
                found[record.key.removeprefix(prefix)] = decode_cookie(bytes(record.value or b""))
            except StorageError as unread:
                findings.note(directory.path, f"{record.key}: {unread}")
        if not page.has_more:
            return found
        after = page.records[-1].key


def _noted_use(directory: RawDirectory) -> Used | None:
    """The note beside the log; None: there is none. Raises StorageError, OSError."""
    if MEMBER_FILE not in directory.names():
        return None
    with directory.open(MEMBER_FILE) as file:
        content = file.read(0, min(file.size(), 2 * NOTE_BYTES))
    return FileNotes(Path(directory.path)).parse(content)
