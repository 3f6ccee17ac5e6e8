"""What the files of an archive hold, for a scrub that compares copies with it (SCRUB.md).

Decides which manifest counts, by the hash in the record, and what of it can be had without pyarrow: the sums that it
has of each file. The entries of a file are read as readers of freed ledgers read them, file and entries checked.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from embedbk.archive.manifest import MANIFEST_BYTES_MAX, decode_manifest, manifest_hash, manifest_name
from embedbk.archive.place import ArchiveDirectory
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.frame import split
from embedbk.codec.freed_ledger import Freed
from embedbk.errors import StorageError
from embedbk.scrub.archived import ArchivedLedger, ArchivedPart

__all__ = ["FilesOfArchives"]


class FilesOfArchives:
    """The directories that the settings of logs name, as they are mounted here."""

    def parts(self, archived: ArchivedLedger) -> Sequence[ArchivedPart]:
        place = archived.place
        if place is None:
            raise StorageError(archived.why)
        name = manifest_name(archived.manifest)
        try:
            with ArchiveDirectory(place).ledger(archived.log_id, archived.ledger_id) as files:
                data = files.read(files.standing_as(name, archived.manifest), MANIFEST_BYTES_MAX)
        except OSError as failed:
            raise StorageError(
                f"{name} of the archive in {place.path!r} cannot be read: {failed}"
            ) from failed
        if manifest_hash(data) != archived.manifest:
            raise StorageError(
                f"{name} of the archive in {place.path!r} is not the manifest that counts",
                hint="embedbk spark verify-archive says what is wrong with an archive",
            )
        manifest = decode_manifest(data, archived.log_id, archived.ledger_id)
        return [
            ArchivedPart(part.name, part.first_entry, part.last_entry, int(part.digest, 16))
            for part in manifest.files
        ]

    def digests(self, archived: ArchivedLedger, part: ArchivedPart) -> array[int]:
        from embedbk.archive.reading import archived_frames

        assert archived.place is not None
        freed = Freed(archived.place.archive_id, archived.place.path, archived.manifest)
        bounds = (archived.log_id, archived.ledger_id, part.first_entry, part.last_entry)
        frames = archived_frames(freed, *bounds)
        return array("Q", (entry_digest(entry) for frame in frames for _, entry in split(frame)))
