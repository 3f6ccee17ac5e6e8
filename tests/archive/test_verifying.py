"""Whatever is wrong with an archive is found, named, and takes its ledger back from VERIFIED (P8.14)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from embedbk.archive.copying import FileCopied, part_of
from embedbk.archive.files import EntryRun, summed, write_rows
from embedbk.archive.freeing import free
from embedbk.archive.jobs import archive, directory_of, set_place
from embedbk.archive.manifest import MANIFEST_BYTES_MAX, file_name, manifest_hash, manifest_name
from embedbk.archive.place import create_place
from embedbk.archive.verifying import Looked, VerifyTask, look, run_look, verify_archive
from embedbk.client.batches import Located
from embedbk.client.client import Client
from embedbk.client.waiting import run_blocking
from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import Frame
from embedbk.codec.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata, ledger_key_path
from embedbk.codec.log_archives import ArchiveState
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.errors import PeerError, StorageError, UsageError
from tests.archive.scenes import archived, records_of, write


def parts(place: Path) -> list[Path]:
    """By ledger: the names of 9 and 10 are in another order."""
    return sorted(place.rglob("*.parquet"), key=lambda path: (len(path.parent.name), path))


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Sound Parquet, of other rows."""
    pq.write_table(
        change(pq.read_table(path, partitioning=None)), path, compression="zstd", write_page_checksum=True
    )


def with_column(column: str, change: Callable[[pa.ChunkedArray], pa.Array]) -> Callable[[pa.Table], pa.Table]:
    def changed(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index(column)
        return rows.set_column(at, rows.schema.field(at), change(rows.column(at)))

    return changed


# --- Sound --------------------------------------------------------------------------------------------------


def test_what_is_sound_is_verified_by_a_later_epoch(bk: Client, name: str, place: Path) -> None:
    report = archived(bk, name, place, 40, 25)
    found = verify_archive(bk, name, against_bookies=True)
    assert (found.code, found.findings, found.incomplete) == (0, [], [])
    assert found.entries == 65 and found.files == sum(each.files for each in report.ledgers)
    assert found.verified == [each.ledger_id for each in report.ledgers]
    records = records_of(bk, name).values()
    assert {(each.state, each.epoch, each.verified_epoch) for each in records} == {
        (ArchiveState.VERIFIED, report.epoch, found.epoch)
    }
    assert found.epoch > report.epoch


def test_a_sample_reads_some_files_and_verifies_none(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 60, slice_bytes=50)
    whole = verify_archive(bk, name, sample=0.999999)
    some = verify_archive(bk, name, sample=0.3)
    assert some.code == 0 and some.verified == whole.verified == []
    assert 0 < some.entries < whole.entries
    assert verify_archive(bk, name, sample=0.3).entries == some.entries, "the same ones each time"
    assert {each.state for each in records_of(bk, name).values()} == {ArchiveState.COPIED}
    for wrong in (0, 1.5, True, "all"):
        with pytest.raises(UsageError):
            verify_archive(bk, name, sample=wrong)  # type: ignore[arg-type]


def test_what_is_being_copied_is_no_finding(bk: Client, name: str, place: Path) -> None:
    write(bk, name, 10)
    create_place(place)
    set_place(bk, name, place)
    archive(bk, name, run=lambda _, tasks: [FileCopied(task.run, None, "not now") for task in tasks])
    assert verify_archive(bk, name).code == 0


# --- Planted ------------------------------------------------------------------------------------------------

Damage = Callable[[Path], object]


def flip(path: Path, at: int) -> None:
    whole = bytearray(path.read_bytes())
    whole[at] ^= 1
    path.write_bytes(whole)


def swap(one: Path, other: Path) -> None:
    between = one.with_name("_between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def link_to_elsewhere(path: Path) -> None:
    elsewhere = path.parent.parent.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def into_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def manifest_of(path: Path) -> Path:
    return next(path.parent.glob("_manifest-*"))


def rewrite_manifest(path: Path) -> None:
    """A sound one, that the metadata does not know."""
    found = manifest_of(path)
    told = json.loads(found.read_bytes())
    told["files"][0]["rows"] += 1
    data = json.dumps(told).encode()
    found.write_bytes(data)
    path.with_name(manifest_name(manifest_hash(data))).write_bytes(data)


def replayed(path: Path) -> None:
    """The file of other entries, under its name."""
    shutil.copyfile(parts(path.parent)[1], path)


DAMAGES: dict[str, tuple[Damage, set[str]]] = {
    "a flipped bit": (lambda path: flip(path, path.stat().st_size // 3), {"hash", "file"}),
    "a flipped bit in the footer": (lambda path: flip(path, path.stat().st_size - 20), {"hash", "file"}),
    "cut short": (lambda path: os.truncate(path, path.stat().st_size // 2), {"size", "hash", "file"}),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"x"), {"size", "hash", "file"}),
    "empty": (lambda path: path.write_bytes(b""), {"size", "hash", "file"}),
    "gone": (lambda path: path.unlink(), {"missing"}),
    "its directory gone": (lambda path: shutil.rmtree(path.parent), {"missing"}),
    "swapped with another": (lambda path: swap(path, parts(path.parent)[1]), {"hash", "file"}),
    "another's in its place": (replayed, {"hash", "file"}),
    "a link": (link_to_elsewhere, {"file"}),
    "a directory": (into_a_directory, {"file"}),
    "a foreign file beside": (lambda path: shutil.copyfile(path, path.with_name("x.parquet")), {"foreign"}),
    "a foreign ledger beside": (
        lambda path: shutil.copytree(path.parent, path.parent.with_name("ledger=999999")),
        {"unrecorded"},
    ),
    "another spelling of its ledger": (
        lambda path: shutil.copytree(path.parent, path.parent.with_name(path.parent.name.replace("=", "=0"))),
        {"foreign"},
    ),
    "a manifest with a flipped bit": (lambda path: flip(manifest_of(path), 40), {"manifest"}),
    "no manifest": (lambda path: manifest_of(path).unlink(), {"missing"}),
    "a manifest that is a directory": (lambda path: into_a_directory(manifest_of(path)), {"manifest"}),
    "a manifest that is a link": (lambda path: link_to_elsewhere(manifest_of(path)), {"manifest"}),
    "a manifest that is far too long": (
        lambda path: os.truncate(manifest_of(path), MANIFEST_BYTES_MAX + 1),
        {"manifest"},
    ),
    "another manifest": (rewrite_manifest, {"manifest"}),
    "a row less": (lambda path: rewritten(path, lambda rows: rows.slice(1)), {"hash", "file"}),
    "a value of another": (
        lambda path: rewritten(
            path, with_column("value", lambda column: pc.binary_replace_slice(column, 0, 0, b"!"))
        ),
        {"hash", "file"},
    ),
    "other CRCs": (
        lambda path: rewritten(
            path, with_column("crc32c", lambda column: pc.bit_wise_xor(column, pa.scalar(1, pa.uint32())))
        ),
        {"hash", "file"},
    ),
    "other offsets": (
        lambda path: rewritten(path, with_column("offset", lambda column: pc.add(column, 1))),
        {"hash", "file"},
    ),
    "other times": (
        lambda path: rewritten(
            path,
            with_column("time", lambda column: pc.add(column.cast(pa.int64()), 1).cast(column.type)),
        ),
        {"hash", "file"},
    ),
    "another ledger's id": (
        lambda path: rewritten(path, with_column("ledgerId", lambda column: pc.add(column, 1))),
        {"hash", "file"},
    ),
    "other columns": (lambda path: rewritten(path, lambda rows: rows.drop(["lac"])), {"hash", "file"}),
    "a file of another program": (
        lambda path: pq.write_table(pa.table({"x": [1, 2, 3]}), path),
        {"hash", "file"},
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_every_kind_of_damage_is_found_and_named(bk: Client, name: str, place: Path, what: str) -> None:
    archived(bk, name, place, 40)
    ledger_id = next(iter(records_of(bk, name)))
    assert verify_archive(bk, name).code == 0
    damage, kinds = DAMAGES[what]
    first = parts(place)[0]
    damage(first)
    found = verify_archive(bk, name)
    assert found.code == 2
    told = {each.kind for each in found.findings}
    assert told and told <= kinds | {"size"}, found.findings
    assert kinds & told == kinds or "size" in told, found.findings
    if what not in ("a foreign ledger beside", "another spelling of its ledger"):
        assert {each.ledger_id for each in found.findings} == {ledger_id}
        assert records_of(bk, name)[ledger_id].state == ArchiveState.COPIED, "it is doubted"
        assert found.verified == []


def test_each_flipped_byte_of_a_file_is_found(bk: Client, name: str, place: Path) -> None:
    """By the hash alone; also in what no checksum of a page covers."""
    archived(bk, name, place, 3, slice_bytes=10_000)
    path, sound = parts(place)[0], parts(place)[0].read_bytes()
    for at in range(0, len(sound), max(1, len(sound) // 25)):
        flip(path, at)
        assert verify_archive(bk, name).code == 2, f"byte {at}"
        path.write_bytes(sound)
    assert verify_archive(bk, name).code == 0


@pytest.mark.parametrize("column", ["offset", "time", "slot", "log"])
def test_columns_that_no_crc_covers_are_found_without_the_hash(
    bk: Client, name: str, place: Path, column: str
) -> None:
    """A writer that put wrong columns beside right entries would have hashed them, too."""
    archived(bk, name, place, 40, slice_bytes=10_000)
    path, (ledger_id,) = parts(place)[0], records_of(bk, name)
    run = EntryRun(bk.log(name).log_id(), ledger_id, 0, 39, 0)
    with path.open("rb") as file:
        assert summed(file, run).rows > 40

    def changed(values: pa.ChunkedArray) -> pa.Array:
        if column == "log":
            return pa.repeat(pa.scalar("other"), len(values))
        if column == "slot":  # The last part of a batch becomes its first, say.
            return pc.if_else(pc.equal(values, 2), pa.scalar(1, pa.int32()), values)
        return pc.add(values.cast(pa.int64()), 1).cast(values.type)

    rewritten(path, with_column(column, changed))
    with path.open("rb") as file, pytest.raises(PeerError, match="columns"):
        summed(file, run)


def test_a_ledger_that_is_mended_is_verified_again(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 40)
    ledger_id = next(iter(records_of(bk, name)))
    parts(place)[0].unlink()
    assert verify_archive(bk, name).code == 2
    assert archive(bk, name, anew=[ledger_id]).is_whole
    assert verify_archive(bk, name).verified == [ledger_id]


def test_a_file_that_differs_from_bookies_is_found(bk: Client, name: str, place: Path) -> None:
    """Sound by itself, with its own sum: another history of the same entries."""
    archived(bk, name, place, 3, slice_bytes=10_000)
    (ledger_id,) = records_of(bk, name)
    reading, directory = directory_of(bk, name, b"")
    run = EntryRun(str(reading.name), ledger_id, 0, 2, 0)
    lengths = [5, 10, 15]
    body = b"".join(
        encode_entry(ledger_id, number, length, b"other", number - 1, length - 5)
        for number, length in enumerate(lengths)
    )
    frame = Frame(ledger_id, 0, 2, 3, 15, memoryview(body))
    with directory.ledger(run.log_id, ledger_id) as ledger:
        with ledger.writing() as (file, temp):
            written = write_rows(file, run, [Located(frame, 0)], None, {})
            other = file_name(0, 2, written.digest)
            ledger.settle(file, temp, other)
        wrong = part_of(ledger, other, run)
    assert [each.kind for each in look(reading, VerifyTask(directory, run, wrong, True, True))] == ["differs"]
    assert list(look(reading, VerifyTask(directory, run, wrong, True, False))) == []


def publish_other(bk: Client, ledger_id: int, by: int) -> None:
    """As if its writer had written something else than bookies have: what it published is larger by so much."""
    key = ledger_key_path(ledger_id)
    value, revision = run_blocking(bk._runtime.get(key, "a test"), "test")
    assert value is not None
    found = decode_ledger_metadata(value, ledger_id)
    (first, *others) = found.sums
    other = msgspec.structs.replace(first, digests=((first.digests[0] + by) % 2**64, *first.digests[1:]))
    changed = encode_ledger_metadata(found.with_changes(sums=(other, *others)))
    assert run_blocking(bk._runtime.transact([Compare(key, revision)], [Put(key, changed)], "a test"), "test")


def test_what_is_not_what_its_writer_published_is_not_archived(bk: Client, name: str, place: Path) -> None:
    """P11.4, P8.14: "nothing else is recorded as copied"; the files, sound by themselves, are not taken next time."""
    (ledger_id,) = write(bk, name, 40)
    publish_other(bk, ledger_id, 1)
    create_place(place)
    set_place(bk, name, place)
    report = archive(bk, name, slice_bytes=300)
    assert [(each.outcome, each.ledger_id) for each in report.ledgers] == [("failed", ledger_id)]
    assert "what its writer published" in report.ledgers[0].why and not report.is_whole
    assert records_of(bk, name)[ledger_id].state == ArchiveState.COPYING
    assert all(part.name.startswith("_aside-") for part in parts(place)) and len(parts(place)) > 1
    publish_other(bk, ledger_id, -1)  # An operator's choice of another copy makes them equal (P11.5).
    assert archive(bk, name, slice_bytes=300).is_whole
    assert verify_archive(bk, name).verified == [ledger_id]


def test_an_archive_that_is_not_what_was_published_frees_nothing(bk: Client, name: str, place: Path) -> None:
    """P11.4, P8.14: nor as verified or freed, whatever a build before recorded."""
    archived(bk, name, place, 40)
    (ledger_id,) = records_of(bk, name)
    assert verify_archive(bk, name).verified == [ledger_id]
    publish_other(bk, ledger_id, 1)
    report = free(bk, name, keep_lag_s=0)
    assert [(each.outcome, each.kept) for each in report.ledgers] == [("kept", "damaged")]
    assert "what its writer published" in report.ledgers[0].why
    assert records_of(bk, name)[ledger_id].state == ArchiveState.COPIED
    found = verify_archive(bk, name)
    assert ([each.kind for each in found.findings], found.verified) == (["written"], [])


# --- Cannot tell --------------------------------------------------------------------------------------------


def test_what_cannot_be_told_is_incomplete_and_no_finding(bk: Client, name: str, place: Path) -> None:
    """ "Cannot tell" is never "no": the archive goes away in the middle."""
    archived(bk, name, place, 40)
    assert verify_archive(bk, name).code == 0

    def unmounted(reading, tasks):  # type: ignore[no-untyped-def]
        yield run_look(reading, tasks[0])
        place.rename(place.with_name("elsewhere"))
        for task in tasks[1:]:
            yield run_look(reading, task)

    found = verify_archive(bk, name, run=unmounted)
    assert (found.code, found.findings, found.verified) == (3, [], [])
    assert found.incomplete
    assert next(iter(records_of(bk, name).values())).state == ArchiveState.VERIFIED, "nothing was found"
    with pytest.raises(StorageError, match="no archive is in"):
        verify_archive(bk, name)
    place.with_name("elsewhere").rename(place)


def test_a_task_that_cannot_tell_verifies_nothing(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 40)
    found = verify_archive(bk, name, run=lambda _, tasks: [Looked(task.run, (), "no disk") for task in tasks])
    assert (found.code, found.verified) == (3, [])
    assert next(iter(records_of(bk, name).values())).state == ArchiveState.COPIED
    assert verify_archive(bk, name).code == 0


def test_a_task_without_an_answer_verifies_nothing(bk: Client, name: str, place: Path) -> None:
    """P8.14: VERIFIED says that all of it was read. Seen: a file that nobody had read counted as sound."""
    archived(bk, name, place, 40)
    found = verify_archive(bk, name, run=lambda reading, tasks: [run_look(reading, tasks[0])])
    assert (found.code, found.verified) == (3, []) and "gave no answer" in found.incomplete[0][1]
    assert next(iter(records_of(bk, name).values())).state == ArchiveState.COPIED
    assert verify_archive(bk, name).code == 0


def test_what_was_truncated_stays_in_the_archive_and_is_read(bk: Client, name: str, place: Path) -> None:
    """ "Truncation takes an archived range off the list and leaves the file"."""
    archived(bk, name, place, 10, 10)
    bk.log(name).truncate(10)
    found = verify_archive(bk, name, against_bookies=True)
    assert found.code == 0 and found.entries == 20
