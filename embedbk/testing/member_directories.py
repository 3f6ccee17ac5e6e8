"""The directory of a simulated metadata member: its log, notes and snapshots, which outlive its process, and what may
become of them while it is down."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.limits import Limits
from embedbk.metadata.quorum import Configuration
from embedbk.metadata.raft_vocabulary import Entry, Persist
from embedbk.storage.kept_metadata import KeptMetadata, take_state, write_state
from embedbk.storage.member_notes import MemoryNotes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import SNAPSHOT_DIRECTORY, parse_snapshot_name
from embedbk.storage.snapshots import Named, Origin
from embedbk.testing.disks import MetadataCopy
from embedbk.testing.member_bytes import OpenedMember

__all__ = ["CLUSTER_TOKEN", "MemberDirectory"]

CLUSTER_TOKEN = bytes(15) + b"\x01"
SNAPSHOT_CALLS = ("open", "write", "sync", "rename", "sync_directory")


@dataclass(slots=True)
class MemberDirectory:
    """The parts of a member that outlive its process."""

    incarnation: bytes
    chance: random.Random  # The chance in its snapshots.
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    notes: MemoryNotes = field(default_factory=MemoryNotes)
    disk: MemoryDisk = field(default_factory=MemoryDisk)  # The disk of its snapshots.
    snapshots: list[Named] = field(default_factory=list)
    fails: bool = False  # That disk refuses what snapshots need.
    starts: int = 0

    def form(self, name: str, configuration: Configuration, nonce: bytes) -> None:
        """Its log begins with the configuration of all."""
        journal = self.journal
        store = MetadataStore(
            journal,
            journal.first_token(),
            new_identity=MemberIdentity(CLUSTER_TOKEN, self.incarnation, name, is_founder=False),
            notes=self.notes,
            start_nonce=nonce,
        )
        store.persist(Persist(1, FIRST_TERM, None, 0, (Entry(1, FIRST_TERM, configuration),)))
        journal.commit()
        store.durable()
        store.close()
        self.journal = MemoryJournal(journal.records)

    def crash(self, chance: random.Random) -> None:
        """Of what was not synced, some is on its disk all the same."""
        journal = self.journal
        journal.commit(chance.randint(0, len(journal.pending)))
        self.journal = MemoryJournal(journal.crash())

    def copy(self, limits: Limits) -> MetadataCopy:
        """All of it as it is now."""
        return MetadataCopy(tuple(self.journal.records), self.notes.used, self.disk.files(), limits)

    def put(self, copy: MetadataCopy) -> None:
        """This is in its place now."""
        self.journal, self.notes = MemoryJournal(copy.records), MemoryNotes()
        self.notes.used = copy.used
        self.disk, self.snapshots = MemoryDisk(copy.snapshots), []

    def beside(self, chance: random.Random) -> MemberDirectory:
        """A copy for another process, which has this chance in its snapshots."""
        laid = MemberDirectory(self.incarnation, chance, starts=self.starts)
        laid.journal = MemoryJournal(self.journal.records)
        laid.notes.used, laid.disk = self.notes.used, MemoryDisk(self.disk.files())
        return laid

    def take_over(self, opened: OpenedMember) -> None:
        """A start on damaged bytes left this."""
        self.journal = MemoryJournal(opened.records)
        self.disk, self.snapshots = MemoryDisk(opened.snapshots), []
        self.starts += 1

    def fill(self, kept: KeptMetadata, nonce: bytes) -> None:
        """Another member begins in it, empty as it is, with what a copy has, as `embedbk quorum recover` makes it."""
        identity = MemberIdentity(CLUSTER_TOKEN, self.incarnation)
        files = SnapshotFiles(SNAPSHOT_DIRECTORY, io=self.disk)
        write_state(kept, identity, files)
        journal = self.journal
        store = MetadataStore(
            journal,
            journal.first_token(),
            snapshots=files,
            new_identity=identity,
            notes=self.notes,
            start_nonce=nonce,
        )
        take_state(kept, store)
        store.close()
        self.journal = MemoryJournal(journal.crash())

    def mend(self) -> None:
        """Its disk has room for snapshots, and fails no call."""
        self.fails = False
        self.disk.break_device(SNAPSHOT_DIRECTORY, 0)
        for call in SNAPSHOT_CALLS:
            self.disk.fail(call, nth=0)

    def harm_snapshot(self) -> None:
        """75: the newest snapshot of two is damaged now and then while the member is down; that must cost nothing. One
        that was put in the place of the log has nothing before it: its member would not start (METADATA.md, 2). Nor is
        the one before the newest damaged, as it would be where the last process had not heard yet that a newer one
        counts: the next start reads it no more, and the start behind that may find both damaged (seed 17019002)."""
        kept, chance = self.snapshots, self.chance
        if len(kept) < 2 or chance.random() < 0.7 or kept[-1].origin is Origin.FETCHED_INSTEAD:
            return
        names = (path.rpartition("/")[2] for path in self.disk.files())
        if max(filter(parse_snapshot_name, names), default="") != kept[-1].name:
            return
        path = f"{SNAPSHOT_DIRECTORY}/{kept[-1].name}"
        content = bytearray(self.disk.read(path))
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        self.disk.put(path, bytes(content))
