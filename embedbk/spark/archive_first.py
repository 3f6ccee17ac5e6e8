"""Batches that read a log's archive where it holds a range, and bookies for the rest (P8.14). Nothing here needs Spark.

Decides on the driver which ranges are verified in files, and in the executors that bookies are asked for whatever the
files do not give. An archive that executors do not find costs one warning of each range, never a row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

from embedbk.archive.reading import archived_frames
from embedbk.client.archiving import archive_place, archive_records
from embedbk.client.batches import Batch, Located, batch_of
from embedbk.client.compression import plain
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.waiting import run_blocking
from embedbk.codec.digest import check_tags
from embedbk.codec.freed_ledger import LOG_OF_LEDGER, Freed
from embedbk.codec.log_archives import ArchiveState
from embedbk.errors import EmbedbkError
from embedbk.spark import reading
from embedbk.spark.clients import client_of
from embedbk.spark.reading import LedgerRange, ReadPlace

__all__ = ["read_archive_first", "with_archives"]

logger = logging.getLogger("embedbk.spark")


def with_archives(place: ReadPlace, name: str, ranges: Iterable[LedgerRange]) -> list[LedgerRange]:
    """Each with the manifest of its ledger's archive, if that is verified. Where nobody can tell, without."""
    whole = list(ranges)
    try:
        log = LogReading(client_of(place.cluster)._runtime, name, Password(place.password))
        stands = run_blocking(archive_place(log), "spark")
        if stands is None or not whole:
            return whole
        records = run_blocking(archive_records(log.runtime, str(log.name)), "spark")
    except EmbedbkError as untold:
        logger.warning(
            "log %r: bookies are asked for all of it, as its archive is not known: %s", name, untold
        )
        return whole
    verified = {
        ledger_id: Freed(stands.archive_id, stands.path, record.manifest)
        for ledger_id, record in records.items()
        if record.state == ArchiveState.VERIFIED
    }
    return [replace(each, archived=verified.get(each.ledger_id)) for each in whole]


def read_archive_first(place: ReadPlace, part: LedgerRange) -> Iterator[Batch]:
    """As `reading.read`: all entries of one range, in order; from files as far as these give them, then from
    bookies."""
    following = part.first_entry
    if part.archived is not None:
        try:
            for batch in _of_files(place, part, part.archived):
                following = batch.ids[-1] + 1
                yield batch
        except (EmbedbkError, OSError) as unread:
            logger.warning(
                "log %r, ledger %d: bookies are asked from entry %d on: %s",
                part.log,
                part.ledger_id,
                following,
                unread,
            )
    if following <= part.last_entry:
        yield from reading.read(place, replace(part, first_entry=following))


def _of_files(place: ReadPlace, part: LedgerRange, archived: Freed) -> Iterator[Batch]:
    """Read the archived files of a ledger that is still there, under its password; entries that were truncated end it
    as they do with bookies."""
    metadata = client_of(place.cluster).ledger_metadata(part.ledger_id)
    password = Password(place.password)
    password.check(metadata)
    log_id = metadata.custom.get(LOG_OF_LEDGER, b"").decode(errors="replace")
    for frame in archived_frames(archived, log_id, part.ledger_id, part.first_entry, part.last_entry):
        check_tags(frame, metadata.digest, password.mac_key)
        yield from map(batch_of, plain(Located(frame, part.first_offset)))
