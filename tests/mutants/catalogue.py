"""All mutants: one file per floor of the house, the largest floors in parts. A new one is added to its floor's file."""

from __future__ import annotations

from tests.mutants import (
    between_two,
    cannot_tell,
    clones,
    codec,
    core_bookie,
    core_reader,
    core_recovery,
    core_writer,
    faces,
    formation,
    host,
    member_links,
    metadata,
    metadata_disk,
    older_metadata,
    placements,
    raft,
    seeking,
    snapshots,
    storage_entries,
    storage_journal,
    strangers,
    transports,
    who_joins,
)

__all__ = ["MUTANTS"]

MUTANTS = (
    *codec.MUTANTS,
    *core_writer.MUTANTS,
    *core_recovery.MUTANTS,
    *core_reader.MUTANTS,
    *core_bookie.MUTANTS,
    *metadata.MUTANTS,
    *metadata_disk.MUTANTS,
    *older_metadata.MUTANTS,
    *placements.MUTANTS,
    *raft.MUTANTS,
    *seeking.MUTANTS,
    *formation.MUTANTS,
    *who_joins.MUTANTS,
    *member_links.MUTANTS,
    *clones.MUTANTS,
    *storage_journal.MUTANTS,
    *storage_entries.MUTANTS,
    *snapshots.MUTANTS,
    *transports.MUTANTS,
    *strangers.MUTANTS,
    *host.MUTANTS,
    *faces.MUTANTS,
    *between_two.MUTANTS,
    *cannot_tell.MUTANTS,
)
