"""A cluster's metadata apart from the member that had it: out of a snapshot's file or a survivor's directory, into a
new directory (METADATA.md, 10; P10.5).

Decides which parts of a file or a directory are believed, which of several survivors has most, whether entries that a
quorum committed may be missing, and what a new member begins with: all of the state, none of the old configuration, and
the owner's note that something may be lost, so that its first start begins a lineage. Directories that are read stay
unchanged; a new directory appears whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from embedbk.codec.lineages import lineage_text
from embedbk.codec.metadata_messages import Lineage
from embedbk.errors import StorageError, UsageError
from embedbk.ids import INCARNATION_BYTES
from embedbk.metadata.catalog import DEFAULT_LIMITS, Catalog
from embedbk.metadata.loading import load
from embedbk.metadata.log_records import encode_configuration
from embedbk.metadata.quorum import Configuration, MemberId, Policy
from embedbk.metadata.raft_vocabulary import Persist
from embedbk.metadata.recovering import why_uncertain
from embedbk.storage.directory_discovery import NodeDirectory, hold_place
from embedbk.storage.findings import Findings
from embedbk.storage.journal_reader import look_at_journal, walk_records
from embedbk.storage.layout import LOSS_FILE, WHOLE
from embedbk.storage.log_use import missing_in
from embedbk.storage.member_notes import FileNotes
from embedbk.storage.memory_journal import MemoryJournal, MemoryRecord
from embedbk.storage.metadata_log import FIRST_MEMBER, LogFound, MemberIdentity, read_log
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MetadataStore
from embedbk.storage.noted import sync_directory
from embedbk.storage.raw_files import DiskDirectory
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import (
    FETCHED_SUFFIX,
    SNAPSHOT_DIRECTORY,
    SnapshotHeader,
    read_header,
    read_pieces,
    snapshot_name,
)
from embedbk.storage.snapshot_writer import SnapshotWriter
from embedbk.storage.snapshots import configuration_of

__all__ = [
    "KeptMetadata",
    "begin_anew",
    "freshest",
    "kept_in",
    "read_snapshot",
    "read_survivor",
    "take_state",
    "why_may_be_lost",
    "write_state",
]

PART_SUFFIX = ".part"


@dataclass(frozen=True, slots=True)
class KeptMetadata:
    """Metadata from a file or a directory. index, term: of the last entry that the catalog has. member: the owner of
    the directory; None: it is a snapshot's file. missing: why it may have less than that member had."""

    where: str
    cluster_token: bytes
    catalog: Catalog
    configuration: Configuration
    index: int
    term: int
    member: MemberId | None = None
    missing: str = ""


def read_snapshot(path: Path) -> KeptMetadata:
    """A snapshot's file: every byte is compared with its sums, every record with the catalog's digest.

    Raises:
        StorageError: it is no whole snapshot, or cannot be read.
    """
    try:
        with DiskDirectory(path.absolute().parent).open(path.name) as file:
            header = read_header(file)
            catalog = load(read_pieces(file, header))
            configuration = configuration_of(header)
    except OSError as refused:
        raise StorageError(f"{path} cannot be read: {refused.strerror}", definite=True) from refused
    except StorageError as broken:
        raise StorageError(
            f"{path} is no snapshot that can be used: {broken.args[0]}",
            definite=True,
            hint="take another copy: embedbk quorum verify FILE says which are whole",
        ) from broken
    return KeptMetadata(str(path), header.cluster_token, catalog, configuration, header.index, header.term)


def read_survivor(directory: Path) -> KeptMetadata:
    """A stopped member's directory: its newest snapshot, and every entry of its log, committed or not.

    Raises:
        UsageError: a process has it in use; or it is no metadata member's.
        StorageError: it is damaged, or cannot be read.
    """
    raw, findings = DiskDirectory(directory), Findings()
    with ExitStack() as held:
        hold_place(NodeDirectory("metadata", directory, {}), held)
        try:
            picture = look_at_journal(raw, findings)
            records = [
                MemoryRecord(record.token, record.kind, record.ledger_id, bytes(record.body))
                for record in walk_records(raw, picture, max(0, picture.first_token - 1), findings)
            ]
            used = FileNotes(directory).read()
        except OSError as refused:
            raise StorageError(f"{directory} cannot be read: {refused.strerror}", definite=True) from refused
        if findings.damage_count:
            raise StorageError(
                f"{directory} is damaged: {next(each.what for each in findings.found if each.is_damage)}",
                definite=True,
                hint="embedbk storage check DIR says what and where; take another survivor, or a snapshot's file",
            )
        snapshots = raw.within(SNAPSHOT_DIRECTORY)
        found = read_log(MemoryJournal(records), picture.first_token, snapshots, DEFAULT_LIMITS)
        if found.identity is None or not found.last_index:
            raise UsageError(
                f"{directory} holds no metadata of a member",
                hint="give the directory that embedbk metadata was started with",
            )
        missing = missing_in(used, found, records[-1].token)
        if used is not None and used.has_doubt:
            missing = missing or "it had less than it was used for, and had not everything again"
        return kept_in(found, str(directory), missing)


def kept_in(found: LogFound, where: str, missing: str = "") -> KeptMetadata:
    """The state of a member's whole log, which has an identity and an entry. It takes over the log's catalog."""
    assert found.identity is not None
    identity, index = found.identity, found.last_index
    term = found.entries[-1].term if found.entries else found.base_term
    held = [entry.body for entry in found.entries if isinstance(entry.body, Configuration)]
    configuration = held[-1] if held else found.configuration or identity.first_configuration
    catalog, token = found.replay(), identity.cluster_token
    return KeptMetadata(where, token, catalog, configuration, index, term, identity.member, missing)


def freshest(survivors: Sequence[KeptMetadata]) -> KeptMetadata:
    """The state that has all that was committed, if any of them has that: the later term, then the longer log, as in an
    election (RAFT.md, 3).

    Raises UsageError: they are of different clusters.
    """
    tokens = {each.cluster_token: each.where for each in survivors}
    if len(tokens) > 1:
        sides = "; ".join(f"{where} to {token.hex()}" for token, where in tokens.items())
        raise UsageError(f"these belong to different clusters: {sides}", hint="name members of one only")
    return max(survivors, key=lambda each: (each.term, each.index))


def why_may_be_lost(survivors: Sequence[KeptMetadata]) -> str:
    """Why something that was committed may be in none of these; empty: it is certain that nothing is."""
    best = freshest(survivors)
    if best.member is None:
        return "what was changed behind the snapshot is in no file"
    whole = [each.member for each in survivors if each.member is not None and not each.missing]
    why = why_uncertain(best.configuration, whole)
    broken = "".join(f"; {each.where}: {each.missing}" for each in survivors if each.missing)
    return f"{why}{broken}" if why else ""


def begin_anew(
    kept: KeptMetadata,
    directory: Path,
    gives_up: Sequence[Lineage],
    *,
    name: str = FIRST_MEMBER,
    is_whole: bool = False,
    draw: Callable[[int], bytes] = os.urandom,
) -> MemberIdentity:
    """A directory in which the state continues with one voter, a new member; the old ones may never come back.
    Its first start begins a lineage that goes on from the state's and from those that are given up. is_whole: it is
    certain that the state lacks nothing that was committed.

    Raises:
        UsageError: the directory is there and not empty, or its parent is not there.
        StorageError: the disk refuses; what was made stays beside it under another name, and can be removed.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(
            f"{directory} is there and not empty: nothing is written into it", hint="name a new directory"
        )
    part = directory.with_name(directory.name + PART_SUFFIX)
    if part.exists():
        raise UsageError(
            f"{part} is there, of an attempt that did not end", hint="remove it, and say the command again"
        )
    identity = MemberIdentity(kept.cluster_token, draw(INCARNATION_BYTES), name)
    try:
        part.mkdir()
        write_state(kept, identity, SnapshotFiles(part / SNAPSHOT_DIRECTORY))
        store = open_metadata_store(part, threaded=False, new_identity=identity)
        try:
            take_state(kept, store)
        finally:
            store.close()
        word = " ".join(lineage_text(each.name, each.generation) for each in gives_up)
        if is_whole and not word:
            word = WHOLE
        with (part / LOSS_FILE).open("w") as file:
            file.write(f"{word}\n")
            file.flush()
            os.fsync(file.fileno())
        if directory.exists():
            directory.rmdir()
        part.rename(directory)
        for path in (directory, directory.absolute().parent):
            sync_directory(path)
    except FileNotFoundError as gone:
        raise UsageError(
            f"{directory.absolute().parent} is not there: {gone.strerror}",
            hint="make it first, or name another",
        ) from gone
    except OSError as refused:
        raise StorageError(f"{directory} cannot be written: {refused}", definite=True) from refused
    return identity


def write_state(kept: KeptMetadata, identity: MemberIdentity, files: SnapshotFiles) -> None:
    """The state as a snapshot in these files, which have none, with a configuration in which only the new member votes
    and all before it are taken out. Raises OSError: the disk refuses."""
    before = kept.configuration
    retired = tuple(dict.fromkeys((*before.retired, *before.members)))
    configuration = Configuration(
        (identity.member,),
        retired=retired,
        policy=Policy.MAJORITY,
        outgoing_policy=Policy.MAJORITY,
        election_base_ms=before.election_base_ms,
        base_change=before.base_change,
    )
    cut = kept.catalog.cut()
    header = SnapshotHeader(
        kept.cluster_token,
        identity.incarnation,
        kept.index,
        kept.term,
        cut.head.revision,
        cut.head.records,
        cut.head.sessions,
        encode_configuration(configuration),
        kept.index,
    )
    writer = SnapshotWriter(files, header, lambda: None)
    while (piece := cut.next_piece()) is not None:
        writer.add(piece)
    writer.finish()
    kept.catalog.end_cut()
    failure, written = writer.failure, writer.written
    writer.stop()
    if failure is not None or written is None:
        raise failure or OSError("the snapshot was not written")
    name = snapshot_name(kept.index, kept.term)
    files.rename(name, name + FETCHED_SUFFIX)


def take_state(kept: KeptMetadata, store: MetadataStore) -> None:
    """Let an empty log, of the member of `write_state`, begin behind that snapshot."""
    store.install(kept.index, kept.term, keeps_entries=False)
    # The old members may have written behind it in this term; this one never votes in it, either.
    store.persist(Persist(1, kept.term + 1, None, kept.index, ()))
