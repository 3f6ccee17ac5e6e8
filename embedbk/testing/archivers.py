"""Jobs that archive the log that owners write, and verify what others archived, beside them (P8.14).

Decides what is asked for. Files are values in memory here, under the hash of what stands in them; what is judged is
what the metadata says of them: whatever counts is there, whole, and what the log's readers read. Some ledgers are freed
then: readers of all kinds go on in these values (`archived`). Some of these come back to bookies, where readers read
them again.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Generator
from typing import Any

from embedbk.archive.manifest import MANIFEST_VERSION, FilePart, Manifest, ledger_facts, metadata_of
from embedbk.client.archiving import (
    ArchiveLock,
    archive_records,
    change_archive,
    follow_archive,
    free_ledger,
)
from embedbk.client.batches import Segment
from embedbk.client.log_reading import LogReading
from embedbk.client.restoring_in_place import restore_ledger_in_place
from embedbk.client.runtime import Runtime
from embedbk.client.truncating import truncate
from embedbk.client.undeleting_files import Filed, next_in_front, put_in_front
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_archives import ArchivePlace, ArchiveRecord, ArchiveState
from embedbk.codec.log_list import LogSegment
from embedbk.codec.metadata_messages import Delete
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.tombstone import tombstone_path
from embedbk.core.archiving import Claim, Copied, Doubted, Verified
from embedbk.core.freeing import FreeTerms
from embedbk.errors import (
    ArchiveUnreadable,
    EmbedbkError,
    LockLost,
    MetadataConflict,
    NoSuchLedger,
    NotEnoughBookies,
    NotFreed,
    OperationTimeout,
    Truncated,
)
from embedbk.ids import Position
from embedbk.metadata.levels import LEVEL_OF_ARCHIVES, LEVEL_OF_FREED
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.plan import MS
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.truncators import noted
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["archives"]

Read = Generator[Sleep | Until, Any, bytes | None]

_PLACE = ArchivePlace(b"in memory" + bytes(7), "in memory")


def archives(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random
) -> Steps:
    """A job or several, each under a hold of its own; some stand still in the middle, and find that out."""
    if not runtime.has_level(LEVEL_OF_ARCHIVES):
        return
    # Behind an older copy of the metadata a ledger is not freed any more whose bookies have dropped it.
    may_free = runtime.has_level(LEVEL_OF_FREED) and not world.goes_back
    in_order = [_copy, _verify, _free] if may_free else [_copy, _verify]
    acts = [*in_order, _bring_back] if may_free else in_order
    for number in range(chance.randint(2, 10)):
        yield Sleep(chance.randint(0, 500) * MS)
        lock: ArchiveLock | None = None
        try:
            log_id = yield from awaited(runtime, reading.log_id())
            lock = ArchiveLock(runtime, log_id)
            epoch = yield from awaited(runtime, lock.acquire(chance.choice([0.0, 1.0])))
            if chance.random() < 0.2:
                lock.let_go()  # It goes on without knowing that it has lost it.
            act = in_order[number % len(in_order)] if chance.random() < 0.7 else chance.choice(acts)
            yield from act(world, client, runtime, reading, chance, epoch)
            if act is _free and chance.random() < 0.5:
                yield from _bring_back(world, client, runtime, reading, chance, epoch)
            if act is _free and chance.random() < 0.3:
                yield from _move(runtime, reading, chance, epoch)
            # Its own chance leaves what the others do as it was.
            fronting = random.Random(f"{client} {number} in front")
            if may_free and "truncates" in world.features and fronting.random() < 0.7:
                yield from _put_in_front(world, client, runtime, reading, fronting, epoch)
        except (LockLost, MetadataConflict) as refused:
            world.sometimes["archive step refused"] += 1
            world.note(f"{client}: archiving: {refused}")
        except (OperationTimeout, NoSuchLedger, Truncated) as busy:
            world.note(f"{client}: archiving: {busy}")
        except EmbedbkError as error:
            world.note(f"{client}: archiving: {type(error).__name__}: {error}")
        finally:
            if lock is not None:
                lock.let_go()


def _copy(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random, epoch: int
) -> Steps:
    log_id = str(reading.name)
    segments = yield from awaited(runtime, reading.segments())
    for segment in segments:
        if not segment.is_closed or segment.last_entry < 0 or chance.random() < 0.2:
            continue
        claim = Claim(chance.randint(1, 9), anew=chance.random() < 0.3)
        record = yield from awaited(runtime, change_archive(runtime, log_id, segment.ledger_id, claim, epoch))
        if record.state != ArchiveState.COPYING:
            continue
        content = yield from _entries(runtime, reading, segment)
        manifest = yield from _manifest(runtime, log_id, segment)
        if content is None or manifest is None:
            continue
        sha256 = hashlib.sha256(content).digest()
        world.archived[log_id, segment.ledger_id, sha256] = content
        world.manifests[log_id, segment.ledger_id, sha256] = manifest
        world.tell("on_archived", log_id, segment.ledger_id, sha256, content)
        yield Sleep(chance.choice([0, 0, 10, 300]) * MS)
        step = Copied(sha256)
        yield from awaited(runtime, change_archive(runtime, log_id, segment.ledger_id, step, epoch))
        world.sometimes["ledger archived"] += 1


def _verify(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random, epoch: int
) -> Steps:
    log_id = str(reading.name)
    segments = {each.ledger_id: each for each in (yield from awaited(runtime, reading.segments()))}
    records = yield from awaited(runtime, archive_records(runtime, log_id))
    for ledger_id, record in sorted(records.items()):
        if record.state == ArchiveState.COPYING:
            continue
        segment = segments.get(ledger_id)
        content = None if segment is None else (yield from _entries(runtime, reading, segment))
        _is_sound(world, client, log_id, record, content)
        step = Doubted(record.manifest) if chance.random() < 0.2 else Verified(record.manifest)
        after = yield from awaited(runtime, change_archive(runtime, log_id, ledger_id, step, epoch))
        if after.state == ArchiveState.VERIFIED:
            world.sometimes["archive verified"] += 1


def _free(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random, epoch: int
) -> Steps:
    """Free the archived ledgers; for one that is not verified, or held, or young, the core says so."""
    log_id = str(reading.name)
    segments = yield from awaited(runtime, reading.segments())
    records = yield from awaited(runtime, archive_records(runtime, log_id))
    keep_lag_ms = chance.choice([0, 0, 0, 500])
    for segment in segments:
        record = records.get(segment.ledger_id)
        if record is None or record.state == ArchiveState.COPYING or chance.random() < 0.2:
            continue
        end_offset = segment.first_offset + segment.last_entry + 1
        terms = FreeTerms(record.manifest, _PLACE, end_offset, keep_lag_ms, client)
        yield Sleep(chance.choice([0, 0, 10, 300]) * MS)
        try:
            yield from awaited(runtime, free_ledger(runtime, log_id, segment.ledger_id, terms, epoch))
        except NotFreed as kept:
            world.sometimes["ledger not freed"] += 1
            world.note(f"{client}: {kept}")


def _move(runtime: Runtime, reading: LogReading, chance: random.Random, epoch: int) -> Steps:
    """The archive stands under another path, at which the freed ledgers are read one by one."""
    place = ArchivePlace(_PLACE.archive_id, f"{_PLACE.path}, moved {chance.randint(1, 3)} times")
    for segment in (yield from awaited(runtime, reading.segments())):
        with contextlib.suppress(NoSuchLedger):
            steps = follow_archive(runtime, str(reading.name), segment.ledger_id, place, epoch)
            yield from awaited(runtime, steps)


def _bring_back(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random, epoch: int
) -> Steps:
    """Restore in place; then all readers, also those whose files are away, get every entry as it was written."""
    log_id = str(reading.name)
    segments = yield from awaited(runtime, reading.segments())
    for segment in segments:
        value, _ = yield from awaited(runtime, runtime.get(ledger_key_path(segment.ledger_id), "looking"))
        known = None if value is None else decode_ledger_metadata(value, segment.ledger_id)
        if known is None or known.freed is None or chance.random() < 0.3:
            continue
        yield Sleep(chance.choice([0, 0, 10, 300]) * MS)
        if chance.random() < 0.3:
            delay_ms = chance.choice([5, 20, 100])
            world.spawn(client, _mark_taken_away(runtime, segment.ledger_id, delay_ms))
        steps = restore_ledger_in_place(runtime, log_id, segment.ledger_id, epoch, reading.password)
        try:
            yield from awaited(runtime, steps)
        except (ArchiveUnreadable, NotEnoughBookies, MetadataConflict) as left:
            world.sometimes["freed ledger not brought back"] += 1
            world.note(f"{client}: {left}")
            continue
        content = yield from _entries(runtime, reading, segment)
        if content not in (None, world.archived[log_id, segment.ledger_id, known.freed.manifest]):
            raise Violation("P8.14", f"{client}: ledger {segment.ledger_id} came back, and reads otherwise")


def _put_in_front(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random, epoch: int
) -> Steps:
    """Put truncated ledgers back by their files (P8.16), as far as they can be had or for some of them. Often some are
    let go just before, and forgotten."""
    log_id = str(reading.name)
    records = yield from awaited(runtime, archive_records(runtime, log_id))
    segments = yield from awaited(runtime, reading.segments())
    verified = [
        each
        for each in segments
        if each.ledger_id in records and records[each.ledger_id].state == ArchiveState.VERIFIED
    ]
    if verified and chance.random() < 0.7:
        yield from _let_go(world, runtime, reading, chance, chance.choice(verified))
    listed = {each.ledger_id for each in (yield from awaited(runtime, reading.segments()))}
    filed = {}
    for ledger_id, record in records.items():
        if ledger_id not in listed and record.state == ArchiveState.VERIFIED:
            manifest = world.manifests[log_id, ledger_id, record.manifest]
            freed = Freed(_PLACE.archive_id, _PLACE.path, record.manifest, runtime.wall_ms(), client)
            metadata = metadata_of(manifest, reading.password.verifier, freed)
            segment = LogSegment(
                ledger_id, manifest.first_offset, manifest.last_entry, length=metadata.length
            )
            filed[ledger_id] = Filed(segment, metadata)
    while chance.random() < 0.9:
        due = yield from awaited(runtime, next_in_front(reading, filed))
        yield Sleep(chance.choice([0, 0, 10, 300]) * MS)
        yield from awaited(runtime, put_in_front(reading, filed, due.segment.ledger_id, epoch))


def _let_go(
    world: World, runtime: Runtime, reading: LogReading, chance: random.Random, last: Segment
) -> Steps:
    """Truncate up to the end of this ledger; at times its tombstone goes at once, as behind its grace."""
    end = last.first_offset + last.last_entry + 1
    yield from noted(world, runtime, truncate(reading, end, None, None, may_do_nothing=True))
    if chance.random() < 0.5:
        kept = Delete(tombstone_path(last.ledger_id))
        yield from awaited(runtime, runtime.transact([], [kept], "forgetting"))


def _manifest(
    runtime: Runtime, log_id: str, segment: Segment
) -> Generator[Sleep | Until, Any, Manifest | None]:
    """What the job's manifest would say of the ledger; None: it is gone."""
    ledger_id = segment.ledger_id
    value, _ = yield from awaited(runtime, runtime.get(ledger_key_path(ledger_id), "describing"))
    if value is None:
        return None
    metadata = decode_ledger_metadata(value, ledger_id)
    facts, length = ledger_facts(metadata), metadata.length or 0
    whole = FilePart("", 0, "", 0, segment.last_entry, segment.last_entry + 1, length, "")
    return Manifest(
        MANIFEST_VERSION, log_id, "", ledger_id, segment.first_offset, segment.last_entry, facts, (whole,)
    )


def _mark_taken_away(runtime: Runtime, ledger_id: int, delay_ms: int) -> Steps:
    """By an operator, or by a worker that took it while the job stood still: bookies may drop what was copied."""
    yield Sleep(delay_ms * MS)
    try:
        yield from awaited(runtime, runtime.transact([], [Delete(repair_mark_path(ledger_id))], "unmarking"))
    except EmbedbkError:
        return


def _is_sound(world: World, client: str, log_id: str, record: ArchiveRecord, content: bytes | None) -> None:
    """What the metadata counts was written before, whole; what readers read of a closed ledger never changes."""
    written = world.archived.get((log_id, record.ledger_id, record.manifest))
    if written is None:
        raise Violation("P8.14", f"{client}: {record} counts, and nobody wrote that")
    if content is not None and content != written:
        raise Violation("P8.14", f"{client}: {record} counts, and readers read something else")
    if record.state == ArchiveState.VERIFIED and record.verified_epoch <= record.epoch:
        raise Violation("P8.14", f"{client}: {record} was verified by its writer")


def _entries(runtime: Runtime, reading: LogReading, segment: Segment) -> Read:
    """All of a closed ledger; None: the log does not list it any more."""
    content, following = b"", 0
    begin, end = Position(segment.ledger_id, 0), Position(segment.ledger_id, segment.last_entry + 1)
    frames = reading.read(begin, end, is_stored=True)
    while following <= segment.last_entry:
        try:
            located = yield from awaited(runtime, frames.__anext__())
        except (StopAsyncIteration, Truncated, NoSuchLedger):
            return None
        frame = located.frame
        if (frame.ledger_id, frame.first_entry) != (segment.ledger_id, following):
            return None  # The log was truncated up to there meanwhile.
        content += frame.body
        following = frame.last_entry + 1
    return content
