"""Closed ledgers become Parquet files, once, whatever is killed in between (P8.14)."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import embedbk
from embedbk.archive import place as places
from embedbk.archive.columns import SCHEMA
from embedbk.archive.copying import ByteRate, FileCopied, SliceTask, run_copy
from embedbk.archive.files import EntryRun
from embedbk.archive.freeing import free
from embedbk.archive.jobs import archive, archive_lock, directory_of, pin_name, set_place
from embedbk.archive.place import create_place, find_place
from embedbk.archive.restoring_in_place import restore_in_place
from embedbk.archive.restoring_truncated import restore_truncated
from embedbk.archive.verifying import verify_archive
from embedbk.client.archiving import archive_records, forget_archive
from embedbk.client.client import Client
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.reading import Frames
from embedbk.client.truncating import LogPin
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import (
    Fragment,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.log_archives import ARCHIVE_PATH_MAX, ArchiveState
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.errors import LockLost, NotTruncated, OperationTimeout, StorageError, UsageError
from embedbk.metadata.levels import LEVEL_OF_ARCHIVES
from tests.archive.scenes import archived, files_of, records_of, rows_in, write

# --- What stands there --------------------------------------------------------------------------------------


def test_whoever_reads_parquet_has_every_record_once(bk: Client, name: str, place: Path) -> None:
    report = archived(bk, name, place, 40, 25)
    assert [each.outcome for each in report.ledgers] == ["copied", "copied"] and report.is_whole
    assert all(each.files > 1 for each in report.ledgers), "a ledger is cut into slices"
    rows = rows_in(place)
    read = [
        (entry.offset, *entry.position, slot, bytes(part))
        for entry in bk.log(name).read()
        for slot, part in enumerate(entry.parts)
    ]
    columns = [
        rows.column(column).to_pylist() for column in ("offset", "ledgerId", "entryId", "slot", "value")
    ]
    assert list(zip(*columns, strict=True)) == read
    assert set(rows.column("log").to_pylist()) == {bk.log(name).log_id()}
    times = rows.column("time").cast(pa.int64()).to_pylist()
    assert times == [bk.log(name).time_at(offset) for offset in columns[0]]


def test_names_are_the_same_whoever_copies(bk: Client, name: str, place: Path, tmp_path: Path) -> None:
    """ "Deterministic names": of log, ledger, entries and their digest."""
    archived(bk, name, place, 40)
    first = files_of(place)
    log_id, (ledger_id,) = bk.log(name).log_id(), records_of(bk, name)
    assert all(each.startswith(f"log={log_id}/ledger={ledger_id}/") for each in first)
    shutil.rmtree(place / f"log={log_id}")
    archive(bk, name, anew=[ledger_id], slice_bytes=300)
    assert [each for each in files_of(place) if "_manifest" not in each] == [
        each for each in first if "_manifest" not in each
    ]


def test_a_file_says_what_is_in_it_and_its_pages_have_checksums(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 10, slice_bytes=10_000)
    path = next(place.rglob("*.parquet"))
    told = {key.decode(): value.decode() for key, value in pq.read_metadata(path).metadata.items()}
    assert told["embedbk.name"] == name and told["embedbk.entries"] == "0-9"
    assert told["embedbk.rows"] == str(pq.read_metadata(path).num_rows)
    assert pq.read_metadata(path).row_group(0).column(5).compression == "ZSTD"
    whole = bytearray(path.read_bytes())
    values = pq.read_metadata(path).row_group(0).column(SCHEMA.get_field_index("value"))
    whole[values.data_page_offset + values.total_compressed_size // 2] ^= 1
    path.write_bytes(whole)
    with pytest.raises((OSError, pa.ArrowException)):
        pq.ParquetFile(path, page_checksum_verification=True).read()


def test_what_is_archived_is_not_copied_again_and_what_is_open_not_at_all(
    bk: Client, name: str, place: Path
) -> None:
    archived(bk, name, place, 10)
    with bk.log(name).writer() as writer:
        writer.append(b"open")
        report = archive(bk, name)
        assert (report.before, report.ledgers) == (1, [])
    assert [each.entries for each in archive(bk, name).ledgers] == [1]


def test_options_say_which_ledgers_are_due(bk: Client, name: str, place: Path) -> None:
    small, large = write(bk, name, 5, 50)
    create_place(place)
    set_place(bk, name, place)
    planned = archive(bk, name, dry_run=True)
    assert [(each.ledger_id, each.outcome) for each in planned.ledgers] == [
        (small, "planned"),
        (large, "planned"),
    ]
    assert files_of(place) == [] and records_of(bk, name) == {}
    assert archive(bk, name, older_than_s=3600, dry_run=True).ledgers == []
    assert [each.ledger_id for each in archive(bk, name, bytes_min=300).ledgers] == [large]


@pytest.mark.parametrize("what", ["bookies that are away", "metadata of a later build"])
def test_a_ledger_of_which_nobody_can_tell_how_old_it_is_keeps_no_other(
    bk: Client, name: str, place: Path, what: str
) -> None:
    """ "Bookies do not answer: `failed` in the report": of the one ledger. Seen: nothing of the log was archived."""
    lost, other = write(bk, name, 5, 7)
    create_place(place)
    set_place(bk, name, place)
    key = ledger_key_path(lost)
    value, revision = run_blocking(bk._runtime.get(key, "test"), "test")
    assert value is not None
    changed = b"later"
    if what == "bookies that are away":
        metadata = decode_ledger_metadata(value, lost)
        nobody = (Fragment(0, 0, tuple((f"nobody{seat}", bytes(16)) for seat in range(3))),)
        changed = encode_ledger_metadata(metadata.with_changes(fragments=nobody))
    put = bk._runtime.transact([Compare(key, revision)], [Put(key, changed)], "test")
    assert run_blocking(put, "test")
    report = archive(bk, name, older_than_s=0.001)
    assert [(each.ledger_id, each.outcome) for each in report.ledgers] == [
        (lost, "failed"),
        (other, "copied"),
    ]
    assert "nobody can tell whether it is due" in report.ledgers[0].why and not report.is_whole


@pytest.mark.parametrize(
    "wrong",
    [
        {"bytes_per_s": 0},
        {"bytes_per_s": -1.0},
        {"bytes_per_s": float("nan")},
        {"older_than_s": float("nan")},
        {"older_than_s": "1"},
        {"older_than_s": None},
    ],
)
def test_a_number_that_says_nothing_is_refused_before_a_ledger_is_claimed(
    bk: Client, name: str, place: Path, wrong: dict[str, Any]
) -> None:
    """Seen: a rate of 0 ended the job by a division, and other ones were no bound at all."""
    write(bk, name, 5)
    create_place(place)
    set_place(bk, name, place)
    with pytest.raises(UsageError, match=next(iter(wrong))):
        archive(bk, name, **wrong)
    assert records_of(bk, name) == {} and files_of(place) == []


@pytest.mark.parametrize("given", ["no", "", 0, 1, None])
def test_what_is_neither_true_nor_false_lets_nothing_happen(bk: Client, name: str, given: Any) -> None:
    """0, or an empty word from a file of settings, did what was to be planned only."""
    for job in (archive, free, restore_in_place, restore_truncated):
        with pytest.raises(UsageError, match=r"dry_run=.*True and False are allowed"):
            job(bk, name, dry_run=given)
    with pytest.raises(UsageError, match=r"against_bookies=.*True and False are allowed"):
        verify_archive(bk, name, against_bookies=given)


def test_the_rate_is_kept() -> None:
    now, slept = [0.0], list[float]()
    pace = ByteRate(100.0, lambda: now[0], slept.append)
    pace.passed(50)
    now[0] = 2.0
    pace.passed(50)
    pace.passed(200)
    assert slept == [0.5, 1.0]
    ByteRate(None, lambda: now[0], slept.append).passed(10**9)
    assert len(slept) == 2


# --- Killed, beside each other ------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing of the process goes on behind it."""


class Dying:
    """The `os` of a process that is killed at one of its calls that change something; all later ones fail alike."""

    CALLS = ("mkdir", "fsync", "link", "open", "unlink", "rename")

    def __init__(self, at: int) -> None:
        self.left = at

    def __getattr__(self, called: str) -> Any:
        found = getattr(os, called)
        if called not in self.CALLS:
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Killed
            return found(*arguments, **named)

        return call


def test_a_job_that_is_killed_anywhere_is_gone_on_with(
    bk: Client, name: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "Resumable after kill at any point": whatever was done, the next job leaves what an undisturbed one leaves."""
    write(bk, name, 8)
    create_place(place)
    set_place(bk, name, place)
    log_id = bk.log(name).log_id()
    at, is_over = 0, False
    while not is_over:
        run_blocking(forget_archive(bk._runtime, log_id), "archive")
        shutil.rmtree(place / f"log={log_id}", ignore_errors=True)
        with monkeypatch.context() as patch:
            patch.setattr(places, "os", Dying(at))
            try:
                archive(bk, name, slice_bytes=80)
                is_over = True
            except Killed:
                pass
        state = next(iter(records_of(bk, name).values())).state if records_of(bk, name) else None
        if not is_over:
            assert state in (None, ArchiveState.COPYING), "what is not whole is not recorded as copied"
        report = archive(bk, name, slice_bytes=80)
        assert report.is_whole
        names = files_of(place)
        assert not [each for each in names if "_temp" in each or "_aside" in each]
        assert verify_archive(bk, name).findings == []
        assert len([each for each in names if each.endswith(".parquet")]) == 2
        at += 1
    assert at > 20, "every call was the last one once"


def test_files_that_are_there_are_taken_and_not_written_again(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 40)
    before = {path: path.stat().st_ino for path in place.rglob("*.parquet")}
    archive(bk, name, anew=list(records_of(bk, name)), slice_bytes=300)
    assert {path: path.stat().st_ino for path in place.rglob("*.parquet")} == before


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def of_another_program(path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2, 3]}), path)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link(path: Path) -> None:
    path.rename(path.with_name("_elsewhere"))
    path.symlink_to(path.with_name("_elsewhere"))


@pytest.mark.parametrize("damage", [cut_short, of_another_program, a_directory, a_link])
def test_a_file_that_is_damaged_is_set_aside_and_written_anew(
    bk: Client, name: str, place: Path, damage: Callable[[Path], None]
) -> None:
    """P8.14: the job uses what is sound, and puts aside whatever else has a name of its files."""
    archived(bk, name, place, 40)
    path = sorted(place.rglob("*.parquet"))[0]
    sound = path.read_bytes()
    damage(path)
    report = archive(bk, name, anew=list(records_of(bk, name)), slice_bytes=300)
    assert report.is_whole, report.ledgers
    assert path.read_bytes() == sound and not path.is_symlink()
    assert [each.name for each in path.parent.iterdir() if each.name.startswith("_aside")]
    assert verify_archive(bk, name).code == 0


def test_names_are_durable_before_a_file_of_another_task_is_taken(
    bk: Client, name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it may have been killed between the link and the sync of the directory."""
    archived(bk, name, place, 10, slice_bytes=10_000)
    reading, directory = directory_of(bk, name, b"")
    (ledger_id,) = records_of(bk, name)
    run = EntryRun(str(reading.name), ledger_id, 0, 9, 0)
    synced, real = list[str](), os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        task = SliceTask(directory, name, run, 1, pin_name(1), 0, 60.0)
        done = run_copy(reading, task)
    assert done.part is not None and synced[-1].endswith(f"ledger={ledger_id}")
    assert len(synced) == 3, "the two directories on the way there, and then the file's own"


@pytest.mark.parametrize("answers", [0, 1])
def test_a_ledger_whose_tasks_did_not_all_succeed_is_not_copied(
    bk: Client, name: str, place: Path, answers: int
) -> None:
    """ "COPIED: the manifest names all files": one that failed, or of which nobody reports anything."""
    write(bk, name, 40)
    create_place(place)
    set_place(bk, name, place)

    def runs(reading: LogReading, tasks: Sequence[SliceTask]) -> Iterator[FileCopied]:
        for task in tasks[:-1]:
            yield run_copy(reading, task)
        for task in tasks[-1:] * answers:
            yield FileCopied(task.run, None, "no disk")

    report = archive(bk, name, slice_bytes=300, run=runs)
    assert [each.outcome for each in report.ledgers] == ["failed"] and not report.is_whole
    assert [each.state for each in records_of(bk, name).values()] == [ArchiveState.COPYING]
    assert archive(bk, name).is_whole


def test_files_of_other_slices_do_not_stay_beside(bk: Client, name: str, place: Path) -> None:
    """Whoever reads the directory has every record once, also behind a second copying."""
    archived(bk, name, place, 40)
    assert archive(bk, name, anew=list(records_of(bk, name)), slice_bytes=10_000).is_whole
    assert rows_in(place).column("offset").to_pylist() == [
        entry.offset for entry in bk.log(name).read() for _ in entry.parts
    ]
    assert verify_archive(bk, name).code == 0


def test_one_job_at_a_time_works_on_a_logs_archive(bk: Client, name: str, place: Path) -> None:
    write(bk, name, 5)
    create_place(place)
    set_place(bk, name, place)
    assert bk.url is not None
    with embedbk.open(bk.url) as other, archive_lock(LogReading(other._runtime, name, Password(b""))):
        pass
    reading = LogReading(bk._runtime, name, Password(b""))
    reading.name = bk.log(name).log_id()
    with embedbk.open(bk.url) as other:
        of_other = LogReading.of_id(other._runtime, reading.name, name, Password(b""))
        with archive_lock(of_other), pytest.raises(OperationTimeout):
            archive(bk, name)
    assert archive(bk, name).is_whole


def test_a_job_that_was_paused_publishes_nothing_behind_the_next_one(
    bk: Client, name: str, place: Path
) -> None:
    """ "Two archivers at once": the paused one has lost its lock, and its files are those of the next one anyway."""
    write(bk, name, 20)
    create_place(place)
    set_place(bk, name, place)
    assert bk.url is not None

    def paused(reading: LogReading, tasks: Sequence[SliceTask]) -> Iterator[FileCopied]:
        done = [run_copy(reading, task) for task in tasks]
        hold = reading.runtime.holds[f"archive:{reading.name}"]
        reading.runtime.call(hold.let_go)  # Its session is over, say.
        with embedbk.open(bk.url or "") as other:
            with archive_lock(LogReading.of_id(other._runtime, reading.name, name, Password(b"")), 30.0):
                pass  # From now on it is free.
            assert archive(other, name, slice_bytes=80).is_whole
        yield from done

    with pytest.raises(LockLost, match="held under epoch") as lost:
        archive(bk, name, slice_bytes=80, run=paused)
    (record,) = records_of(bk, name).values()
    assert record.state == ArchiveState.COPIED
    assert f"held under epoch {record.epoch}" not in str(lost.value)
    assert not any(
        "_aside-" in each for each in files_of(place)
    )  # Nor has it put anything aside that counts.
    assert verify_archive(bk, name).code == 0


# --- What goes on meanwhile ---------------------------------------------------------------------------------


def between(act: Callable[[], object]) -> Callable[[LogReading, Sequence[SliceTask]], Iterator[FileCopied]]:
    """Something happens between the claim and the copying."""

    def run(reading: LogReading, tasks: Sequence[SliceTask]) -> Iterator[FileCopied]:
        act()
        for task in tasks:
            yield run_copy(reading, task)

    return run


def test_a_log_that_is_renamed_is_the_same_log(bk: Client, name: str, place: Path) -> None:
    write(bk, name, 10)
    create_place(place)
    set_place(bk, name, place)
    other = f"other-{name}"

    def rename() -> None:
        bk.log(name).rename(other)
        write(bk, name, 3)  # Another log gets the name.

    assert archive(bk, name, run=between(rename)).is_whole
    assert rows_in(place).column("log").to_pylist()[0] == bk.log(other).log_id()
    assert verify_archive(bk, other).code == 0
    with pytest.raises(UsageError, match="no archive"):
        archive(bk, name)


def test_a_log_that_is_deleted_meanwhile_is_reported(bk: Client, name: str, place: Path) -> None:
    write(bk, name, 10)
    create_place(place)
    set_place(bk, name, place)
    log_id = bk.log(name).log_id()
    report = archive(bk, name, run=between(lambda: bk.delete_log(name)))
    assert [each.outcome for each in report.ledgers] == ["truncated"] and not report.is_whole
    assert bk.undelete_log(log_id).name == name
    assert archive(bk, name).is_whole


def test_the_pin_holds_and_a_log_that_is_truncated_all_the_same_is_reported(
    bk: Client, name: str, place: Path
) -> None:
    ledgers = write(bk, name, 10, 10, 1)
    create_place(place)
    set_place(bk, name, place)

    def truncate(reading: LogReading, tasks: Sequence[SliceTask]) -> Iterator[FileCopied]:
        yield run_copy(reading, tasks[0])
        (pin,) = bk.log(name).pins()
        with pytest.raises(NotTruncated, match=f"pin {pin.name!r}"):
            bk.log(name).truncate(15)
        assert bk.log(name).unpin(pin.name)
        assert bk.log(name).truncate(15).reached == 10
        for task in tasks[1:]:
            yield run_copy(reading, task)

    report = archive(bk, name, slice_bytes=50, run=truncate)
    assert [each.outcome for each in report.ledgers] == ["truncated"] * 3, (
        "the pin's place is gone with the first"
    )
    assert bk.log(name).pins() == []
    later = archive(bk, name, slice_bytes=50)
    assert [(each.ledger_id, each.outcome) for each in later.ledgers] == [
        (ledgers[1], "copied"),
        (ledgers[2], "copied"),
    ]


def test_pins_of_others_stay_as_they_are(bk: Client, name: str, place: Path) -> None:
    """P8.8. Seen: one of the user's that was called "archive" was moved on by the job, and then taken away."""
    write(bk, name, 5, 5)
    create_place(place)
    set_place(bk, name, place)
    of_user = {bk.log(name).pin(each, 0) for each in ("archive", "mine")}
    seen: set[LogPin] = set()

    def look(reading: LogReading, tasks: Sequence[SliceTask]) -> Iterator[FileCopied]:
        yield from (run_copy(reading, task) for task in tasks)
        seen.update(bk.log(name).pins())

    report = archive(bk, name, run=look)
    assert [(pin.name, pin.offset) for pin in seen - of_user] == [(pin_name(report.epoch), 0)]
    assert report.is_whole and set(bk.log(name).pins()) == of_user


def test_an_ended_logs_records_go_and_its_files_stay(bk: Client, name: str, place: Path) -> None:
    """P8.13: "the records go with a log that is ended, behind its ledgers"."""
    archived(bk, name, place, 10)
    log_id, before = bk.log(name).log_id(), files_of(place)
    assert bk.url is not None
    with embedbk.open(bk.url, settings=embedbk.Settings(delete_grace_s=0.0)) as hasty:
        hasty.delete_log(name)
        assert run_blocking(archive_records(bk._runtime, log_id), "archive"), "it may come back"
        hasty.forget_deleted()
    assert run_blocking(archive_records(bk._runtime, log_id), "archive") == {}
    assert files_of(place) == before


# --- Where it stands ----------------------------------------------------------------------------------------


def test_an_archive_that_is_not_mounted_is_an_error_and_never_made_anew(
    bk: Client, name: str, place: Path
) -> None:
    archived(bk, name, place, 10)
    write(bk, name, 5)
    place.rename(place.with_name("elsewhere"))
    for _ in range(2):
        with pytest.raises(StorageError, match="no archive is in"):
            archive(bk, name)
        place.mkdir(exist_ok=True)  # The mount point alone.
    assert list(place.iterdir()) == []
    place.rmdir()
    place.with_name("elsewhere").rename(place)
    assert archive(bk, name).is_whole


def test_an_archive_that_goes_away_meanwhile_is_reported(bk: Client, name: str, place: Path) -> None:
    write(bk, name, 10)
    create_place(place)
    set_place(bk, name, place)

    def unmount() -> None:
        place.rename(place.with_name("elsewhere"))
        place.mkdir()

    report = archive(bk, name, run=between(unmount))
    assert [each.outcome for each in report.ledgers] == ["failed"]
    assert "no archive is in" in report.ledgers[0].why
    assert list(place.iterdir()) == []
    assert next(iter(records_of(bk, name).values())).state == ArchiveState.COPYING


def test_another_archive_in_its_place_is_refused(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 10)
    place.rename(place.with_name("elsewhere"))
    create_place(place)
    with pytest.raises(StorageError, match="is the archive"):
        archive(bk, name)
    with pytest.raises(UsageError, match="is archived in"):
        set_place(bk, name, place)


def test_where_no_archive_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        create_place(tmp_path / "missing" / "archive")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"somebody's")
    with pytest.raises(UsageError, match="not empty"):
        create_place(tmp_path / "full")
    with pytest.raises(StorageError, match="no archive is in"):
        find_place(tmp_path / "full")
    with pytest.raises(UsageError, match="characters"):
        create_place("/" + "a/" * ARCHIVE_PATH_MAX)
    created = create_place(tmp_path / "new")
    with pytest.raises(UsageError, match="not empty"):
        create_place(tmp_path / "new")
    assert find_place(tmp_path / "new") == created
    (tmp_path / "new" / "_embedbk-archive.json").write_bytes(b'{"version": 2}')
    with pytest.raises(StorageError, match="names no archive"):
        find_place(tmp_path / "new")


def test_a_log_without_an_archive_and_a_level_without_archives(
    bk: Client, name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(bk, name, 3)
    with pytest.raises(UsageError, match="has no archive"):
        archive(bk, name)
    create_place(place)
    with monkeypatch.context() as patch:
        patch.setattr(bk._runtime, "has_level", lambda level: level < LEVEL_OF_ARCHIVES)
        with pytest.raises(UsageError, match=str(LEVEL_OF_ARCHIVES)):
            set_place(bk, name, place)
    assert bk.log(name).settings().archive is None
    bk.log(name).change(properties={"a": b"b"})
    set_place(bk, name, place)
    assert bk.log(name).settings().archive == str(place)
    bk.log(name).change(retention_bytes=1 << 40)
    assert bk.log(name).settings().archive == str(place)
    assert bk.log(name).settings().properties == {"a": b"b"}


def test_bookies_that_are_late_are_no_fault_of_a_file(bk: Client, name: str, place: Path) -> None:
    """Seen: "StorageError: .../ledger=7: entries 0..39: no answer came in time", as a time-out is an OSError, too."""
    write(bk, name, 40)
    create_place(place)
    set_place(bk, name, place)

    class Late(LogReading):
        """Gives some entries; then no bookie answers."""

        async def read(self, *wanted: Any, **how: Any) -> Frames:
            async for each in super().read(*wanted, **how):
                yield each
                raise OperationTimeout("no answer came in time")

    def run(reading: LogReading, tasks: Sequence[SliceTask]) -> Iterator[FileCopied]:
        late = Late.of_id(reading.runtime, str(reading.name), reading.given, reading.password)
        for task in tasks:
            yield run_copy(late, task)

    (ledger,) = archive(bk, name, run=run).ledgers
    assert (ledger.outcome, ledger.why) == ("failed", "OperationTimeout: no answer came in time")
    assert files_of(place) == [] and archive(bk, name).is_whole


# --- Disks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["fsync", "fsync of a directory", "link", "open", "mkdir"])
def test_a_disk_that_is_full_is_said_and_leaves_nothing_that_counts(
    bk: Client, name: str, place: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """ "A failed sync is never retried": its file is given up, and the next job writes another one."""
    write(bk, name, 10)
    create_place(place)
    set_place(bk, name, place)

    function, *_ = call.split()
    real = getattr(os, function)

    def fills(*arguments: Any, **named: Any) -> Any:
        if function == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode) != ("directory" in call):
            return real(*arguments)
        if function == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments, **named)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fills)
        report = archive(bk, name)
    assert [each.outcome for each in report.ledgers] == ["failed"] and "No space left" in report.ledgers[
        0
    ].why
    assert files_of(place) == []
    assert archive(bk, name).is_whole and verify_archive(bk, name).code == 0


@pytest.mark.parametrize("of", ["0-9-", "_manifest-"])
def test_a_file_whose_name_was_not_synced_is_given_up(
    bk: Client, name: str, place: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """ "A failed sync is never retried". Seen: the next job took the file as it was, by one more sync of its name."""
    write(bk, name, 10)
    create_place(place)
    set_place(bk, name, place)
    real, failed = os.fsync, list[int]()

    def fails_once(fd: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        if is_directory and not failed and any(each.startswith(of) for each in os.listdir(fd)):
            failed.append(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails_once)
        (report,) = archive(bk, name).ledgers
    assert report.outcome == "failed" and "Input/output error" in report.why
    assert [path.name for path in place.rglob(f"{of}*")] == []
    (aside,) = place.rglob("_aside-*")
    assert of in aside.name
    assert archive(bk, name).is_whole and verify_archive(bk, name).code == 0


def test_a_log_with_a_password_needs_it(bk: Client, name: str, place: Path) -> None:
    with bk.log(name, password=b"secret").writer() as writer:
        writer.append(b"hidden")
    create_place(place)
    set_place(bk, name, place, password=b"secret")
    with contextlib.suppress(embedbk.errors.WrongPassword):
        assert [each.outcome for each in archive(bk, name).ledgers] == ["failed"]
    assert archive(bk, name, password=b"secret").is_whole
    assert b"verifier" not in next(place.rglob("_manifest-*")).read_bytes()
