"""What is archived comes back into a log, once, or not at all (P8.5, P8.14)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

import embedbk
from embedbk.archive.jobs import archive, directory_of, set_place
from embedbk.archive.manifest import Manifest, encode_manifest, manifest_hash, manifest_name
from embedbk.archive.place import ArchiveDirectory, find_place
from embedbk.archive.restoring import RestoreTask, restore, stage_files
from embedbk.client.client import Client
from embedbk.client.log import Log
from embedbk.codec.entry_records import EntryRecord
from embedbk.codec.log_archives import ArchiveState
from embedbk.core.log_splicing import SPLICE_LEDGERS_MAX
from embedbk.errors import EmbedbkError, OperationTimeout, StorageError, UsageError
from tests.archive.scenes import Late, archived, records_of, write


def parts_in(bk: Client, name: str) -> list[list[EntryRecord]]:
    return [entry.records for entry in bk.log(name).read()]


def source(bk: Client, name: str) -> tuple[ArchiveDirectory, str]:
    reading, directory = directory_of(bk, name, b"")
    return directory, str(reading.name)


def parts_of(ledger: Path) -> Manifest:
    (path,) = ledger.glob("_manifest-*")
    return msgspec.json.decode(path.read_bytes(), type=Manifest)


def test_every_record_comes_back_as_it_was_and_batches_as_batches(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 40, 25)
    into = f"into-{name}"
    with bk.log(into).writer() as writer:
        writer.append(b"before")
        done = restore(bk, into, *source(bk, name))  # Beside a writer that lives.
        writer.append(b"behind")
    assert done.outcome is not None and (done.entries, done.outcome.first_offset, done.outcome.end) == (
        65,
        1,
        66,
    )
    assert parts_in(bk, into) == [[EntryRecord(b"before")], *parts_in(bk, name), [EntryRecord(b"behind")]]


def test_a_transaction_comes_back_once(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 10)
    into = f"into-{name}"
    first = restore(bk, into, *source(bk, name), application="backfill", number=4)
    again = restore(bk, into, *source(bk, name), application="backfill", number=4)
    older = restore(bk, into, *source(bk, name), application="backfill", number=3)
    assert first.outcome is not None and not first.outcome.is_replay
    assert again.outcome == older.outcome == first.outcome._replace(is_replay=True)
    assert (again.entries, older.entries) == (0, 0)
    assert parts_in(bk, into) == parts_in(bk, name)


def test_a_task_without_an_answer_restores_nothing(bk: Client, name: str, place: Path) -> None:
    """P8.5: all of it, or nothing. Seen: the entries of the other files were appended."""
    archived(bk, name, place, 40)
    into = f"into-{name}"
    with pytest.raises(EmbedbkError, match=r"^1 answers came of \d+ tasks; nothing was appended"):
        restore(bk, into, *source(bk, name), run=lambda log, tasks: [stage_files(log, tasks[0])])
    assert parts_in(bk, into) == []


def test_a_job_that_another_one_of_its_transaction_overtakes_has_restored_nothing(
    bk: Client, name: str, place: Path
) -> None:
    """Seen: it told that its entries came back, which are in the log once."""
    archived(bk, name, place, 10)
    into = f"into-{name}"

    def run(log: Log, tasks: Sequence[RestoreTask]) -> Iterator[int]:
        yield from [stage_files(log, task) for task in tasks]
        assert restore(bk, into, *source(bk, name), application="backfill", number=4).entries == 10

    done = restore(bk, into, *source(bk, name), run=run, application="backfill", number=4)
    assert done.outcome is not None and (done.outcome.is_replay, done.entries) == (True, 0)
    assert parts_in(bk, into) == parts_in(bk, name)


def test_a_ledger_that_stands_there_twice_comes_back_once(bk: Client, name: str, place: Path) -> None:
    """P8.14: another spelling of its number is no other ledger. Seen: every entry of it came back twice."""
    archived(bk, name, place, 10, 5)
    for path in list(place.glob("log=*/ledger=*")):
        shutil.copytree(path, path.with_name(path.name.replace("=", "=0")))
    assert restore(bk, f"into-{name}", *source(bk, name)).entries == 15
    assert parts_in(bk, f"into-{name}") == parts_in(bk, name)


def test_an_offset_that_two_ledgers_have_is_an_error(bk: Client, name: str, place: Path) -> None:
    """P8.14: nothing comes back twice. The second manifest is sound, and no record says which of them counts."""
    archived(bk, name, place, 10, 5)
    (path,) = (each for each in place.glob("log=*/ledger=*") if parts_of(each).first_offset == 10)
    other = path.with_name("ledger=999999")
    other.mkdir()
    data = encode_manifest(msgspec.structs.replace(parts_of(path), ledger_id=999_999, first_offset=12))
    (other / manifest_name(manifest_hash(data))).write_bytes(data)
    with pytest.raises(StorageError, match="and 999999 both have offset 12"):
        restore(bk, f"into-{name}", *source(bk, name))
    assert not bk.log_exists(f"into-{name}")


@pytest.mark.parametrize("what", ["a file", "a link to nowhere", "a manifest that is a link"])
def test_what_cannot_be_read_is_an_error_of_storage(bk: Client, name: str, place: Path, what: str) -> None:
    """Never the system's own: it would say nothing of the ledger."""
    archived(bk, name, place, 3)
    (logs,) = place.glob("log=*")
    strange = logs / "ledger=999999"
    if what == "a file":
        strange.write_bytes(b"")
    elif what == "a link to nowhere":
        strange.symlink_to("nowhere")
    else:
        strange.mkdir()
        (strange / "_manifest-000000000000.json").symlink_to("nowhere")
    with pytest.raises(StorageError, match=r"ledger 999999 of log .* manifests cannot be read"):
        restore(bk, f"into-{name}", *source(bk, name))


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (3, 4), (5, 33), (39, 41), (12, None), (None, 7)])
def test_a_stretch_comes_back_by_its_offsets(
    bk: Client, name: str, place: Path, begin: int | None, end: int | None
) -> None:
    archived(bk, name, place, 40, 25)
    into = f"into-{name}"
    done = restore(bk, into, *source(bk, name), begin=begin, end=end)
    assert parts_in(bk, into) == parts_in(bk, name)[begin:end]
    assert done.entries == len(parts_in(bk, into))


@pytest.mark.parametrize("lost", [0, 2])
def test_nothing_is_left_out_at_an_end(bk: Client, name: str, place: Path, lost: int) -> None:
    """P8.14: a ledger that is recorded, and whose directory is not there, was left out in silence."""
    archived(bk, name, place, 5, 6, 7)
    ledger_id = sorted(records_of(bk, name))[lost]
    (path,) = place.glob(f"log=*/ledger={ledger_id}")
    path.rename(place / "_elsewhere")
    into, bounds = f"into-{name}", {0: (5, None), 2: (None, 11)}[lost]
    for begin, end in ((None, None), bounds):
        with pytest.raises(StorageError, match=f"the first of them ledger {ledger_id}:"):
            restore(bk, into, *source(bk, name), begin=begin, end=end)
    with pytest.raises(UsageError, match="is not archived"):
        restore(bk, into, *source(bk, name), begin=0, end=18)
    assert not bk.log_exists(into)
    begin, end = {0: (5, 18), 2: (0, 11)}[lost]
    assert restore(bk, into, *source(bk, name), begin=begin, end=end).entries == end - begin
    assert parts_in(bk, into) == parts_in(bk, name)[begin:end]


def test_a_range_that_ends_in_front_of_its_beginning_is_refused(bk: Client, name: str, place: Path) -> None:
    """Seen: the call ended well and had appended nothing, so a user who mixed the two up took it for done."""
    archived(bk, name, place, 5)
    for begin, end in ((4, 2), (7, None), (None, -1)):
        with pytest.raises(UsageError, match="lies behind offset"):
            restore(bk, f"into-{name}", *source(bk, name), begin=begin, end=end)
    assert not bk.log_exists(f"into-{name}")
    assert restore(bk, f"into-{name}", *source(bk, name), begin=3, end=3).entries == 0


@pytest.mark.parametrize("anew", [0, 1])
def test_a_ledger_that_is_copied_anew_is_not_left_out_at_an_end(
    bk: Client, name: str, place: Path, anew: int
) -> None:
    """P8.14: it was archived, and no manifest of it counts now. Seen: the others came back, and nothing was said."""
    archived(bk, name, place, 5, 6)
    ledger_id = sorted(records_of(bk, name))[anew]
    (died,) = archive(bk, name, anew=[ledger_id], run=lambda _, __: ()).ledgers
    assert died.outcome == "failed" and records_of(bk, name)[ledger_id].state == ArchiveState.COPYING
    into = f"into-{name}"
    with pytest.raises(StorageError, match=f"ledger {ledger_id} is being copied anew"):
        restore(bk, into, *source(bk, name))
    with pytest.raises(UsageError, match="is not archived"):
        restore(bk, into, *source(bk, name), begin=0, end=11)
    assert not bk.log_exists(into)
    begin, end = [(5, 11), (0, 5)][anew]
    assert restore(bk, into, *source(bk, name), begin=begin, end=end).entries == end - begin
    assert archive(bk, name).is_whole
    assert restore(bk, f"{into}-all", *source(bk, name)).entries == 11


def test_nothing_is_left_out_in_the_middle(bk: Client, name: str, place: Path) -> None:
    """ "A gap in the archive is an error that names the first offset that lacks"."""
    write(bk, name, 10, 2, 10)
    archived(bk, name, place, 4)
    ledgers = sorted(records_of(bk, name))
    directory, log_id = source(bk, name)
    other = f"other-{name}"
    write(bk, other, 10, 2, 10)
    set_place(bk, other, place)
    assert [each.entries for each in archive(bk, other, bytes_min=60).ledgers] == [10, 10]
    into = f"into-{name}"
    with pytest.raises(UsageError, match="offset 10 is not archived"):
        restore(bk, into, *source(bk, other))
    with pytest.raises(UsageError, match="offset 26 is not archived"):
        restore(bk, into, directory, log_id, end=30)
    with pytest.raises(UsageError, match="nothing of log"):
        restore(bk, into, directory, "~0000000000000000")
    assert restore(bk, into, *source(bk, other), begin=12).entries == 10
    assert restore(bk, into, directory, log_id).entries == 26 and len(ledgers) == 4


def test_damage_in_any_file_appends_nothing(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 40, 25)
    into = f"into-{name}"
    with bk.log(into).writer() as writer:
        writer.append(b"before")
    for path in [*sorted(place.rglob("*.parquet")), *sorted(place.rglob("_manifest-*"))]:
        sound = path.read_bytes()
        for damaged in (sound[:-1], sound[: len(sound) // 2] + b"?" + sound[len(sound) // 2 + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(StorageError):
                restore(bk, into, *source(bk, name))
        path.unlink()
        with pytest.raises(StorageError):
            restore(bk, into, *source(bk, name))
        path.write_bytes(sound)
    assert parts_in(bk, into) == [[EntryRecord(b"before")]]
    assert bk._runtime is not None and restore(bk, into, *source(bk, name)).entries == 65


def test_a_job_that_dies_between_its_tasks_and_the_splice_appends_nothing(
    bk: Client, name: str, place: Path
) -> None:
    archived(bk, name, place, 40)
    into = f"into-{name}"

    class Killed(BaseException):
        pass

    def dies(log: Log, tasks: Sequence[RestoreTask]) -> Iterator[int]:
        yield stage_files(log, tasks[0])
        raise Killed

    with pytest.raises(Killed):
        restore(bk, into, *source(bk, name), application="backfill", number=1, run=dies)
    assert restore(bk, into, *source(bk, name), application="backfill", number=1).entries == 40
    assert parts_in(bk, into) == parts_in(bk, name)


def test_bookies_that_are_late_are_no_fault_of_a_file(bk: Client, name: str, place: Path) -> None:
    """Seen: "StorageError: ledger 7, 0-39-....parquet: no answer came in time", as a time-out is an OSError, too."""
    archived(bk, name, place, 40)

    def run(log: Log, tasks: Sequence[RestoreTask]) -> Iterator[int]:
        return (stage_files(Late.of(log), task) for task in tasks)

    with pytest.raises(OperationTimeout, match=r"^no answer came in time$"):
        restore(bk, f"into-{name}", *source(bk, name), run=run)
    assert parts_in(bk, f"into-{name}") == []


def test_a_log_that_is_gone_comes_back_by_its_files(name: str, place: Path, tmp_path: Path) -> None:
    """Another cluster knows no record of it: the manifests that are sound count."""
    settings = embedbk.Settings(journal_file_bytes=2 << 20)
    with embedbk.open(tmp_path / "old", bookies=1, settings=settings) as old:
        archived(old, name, place, 20, 5)
        log_id, was = old.log(name).log_id(), parts_in(old, name)
    with embedbk.open(tmp_path / "new", bookies=1, settings=settings) as new:
        directory = ArchiveDirectory(find_place(place))
        assert directory.logs() == [log_id]
        assert restore(new, name, directory, log_id).entries == 25
        assert parts_in(new, name) == was
        manifest = next(place.rglob("_manifest-*"))
        manifest.write_bytes(manifest.read_bytes().replace(b'"rows"', b'"rowz"'))
        with pytest.raises(StorageError, match="0 of them sound"):
            restore(new, "again", directory, log_id)


def test_more_files_than_a_transaction_has_ledgers(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, SPLICE_LEDGERS_MAX + 5, slice_bytes=1)
    into = f"into-{name}"
    assert len(list(place.rglob("*.parquet"))) == SPLICE_LEDGERS_MAX + 5
    done = restore(bk, into, *source(bk, name))
    assert done.entries == SPLICE_LEDGERS_MAX + 5 and len(bk.log(into).segments()) <= SPLICE_LEDGERS_MAX
    assert parts_in(bk, into) == parts_in(bk, name)
