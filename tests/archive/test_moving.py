"""An archive that stands under another path (P8.14): its freed ledgers are read there, once all of them is there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import embedbk
from embedbk.archive.freeing import free
from embedbk.archive.jobs import archive, archive_lock, directory_of, set_place
from embedbk.archive.place import create_place, find_place
from embedbk.archive.restoring_in_place import restore_in_place
from embedbk.archive.verifying import verify_archive
from embedbk.client.archiving import follow_archive
from embedbk.client.client import Client
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.errors import ArchiveUnreadable, LockLost, NoSuchLedger, StorageError, UsageError
from tests.archive.scenes import archived, write
from tests.archive.test_freeing import freed, seen, shown
from tests.archive.test_verifying import parts


@pytest.fixture(scope="module")
def bk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = embedbk.Settings(
        journal_file_bytes=2 << 20, open_timeout_s=120.0, collect_s=0.1, operation_timeout_s=5.0
    )
    data = tmp_path_factory.mktemp("moved") / "data"
    with embedbk.open(data, bookies=3, listen="tcp://127.0.0.1:0", settings=settings) as client:
        yield client


def test_freed_ledgers_are_read_where_the_archive_stands_now(bk: Client, name: str, place: Path) -> None:
    """P8.14: the path may become another one, archive and manifest do not. Handles that knew the old one go on."""
    ledgers = freed(bk, name, place, 20, 10).freed
    before, log = seen(bk, name), bk.log(name)
    held = log.reader()
    held.seek("earliest")
    assert held.read_bulk(max_entries=3).next_offset == 3
    moved = place.with_name("moved")
    place.rename(moved)
    with pytest.raises(ArchiveUnreadable):
        seen(bk, name)
    code, out, said = shown(bk, "spark", "archive", name, "--place", moved, "--no-spark")
    assert code == 0, (out, said)
    assert seen(bk, name) == before
    assert held.read_bulk(max_entries=100).next_offset == 30
    for ledger_id in ledgers:
        named = bk.open_ledger(ledger_id).metadata.freed
        assert (
            named is not None
            and named.path == str(moved)
            and named.archive_id == find_place(moved).archive_id
        )
    set_place(bk, name, moved)  # There is nothing to do.
    write(bk, name, 4)
    assert [each.outcome for each in archive(bk, name).ledgers] == ["copied"]
    assert verify_archive(bk, name).code == 0 and len(free(bk, name, keep_lag_s=0).freed) == 1
    assert restore_in_place(bk, name).restored[:2] == ledgers


def test_a_ledger_whose_files_are_not_there_yet_stays_where_it_was(
    bk: Client, name: str, place: Path
) -> None:
    """A copy that is not whole: what is there is read there, and the rest where it was, until it comes."""
    first, second = freed(bk, name, place, 20, 10).freed
    before, copy = seen(bk, name), place.with_name("copy")
    shutil.copytree(place, copy)
    short = next(each for each in parts(copy) if f"ledger={second}/" in str(each))
    short.write_bytes(short.read_bytes()[:-1])
    with pytest.raises(StorageError, match=f"1 freed ledgers of log .* ledger {second}: {short.name} has"):
        set_place(bk, name, copy)
    paths = {each: bk.open_ledger(each).metadata.freed.path for each in (first, second)}  # type: ignore[union-attr]
    assert paths == {first: str(copy), second: str(place)} and seen(bk, name) == before
    shutil.copytree(place, copy, dirs_exist_ok=True)
    set_place(bk, name, copy)
    shutil.rmtree(place)
    assert seen(bk, name) == before


def test_files_that_were_put_aside_move_along(bk: Client, name: str, place: Path) -> None:
    """P8.14: readers find them by their hashes. Seen: their ledger stayed for good where nothing is any more."""
    (ledger_id,) = freed(bk, name, place, 20).freed
    before, moved = seen(bk, name), place.with_name("moved")
    for path in (parts(place)[0], next(place.rglob("_manifest-*"))):
        path.rename(path.with_name(f"_aside-00000000-{path.name}"))
    assert seen(bk, name) == before
    place.rename(moved)
    set_place(bk, name, moved)
    assert seen(bk, name) == before
    named = bk.open_ledger(ledger_id).metadata.freed
    assert named is not None and named.path == str(moved)


def test_a_ledger_that_cannot_be_read_keeps_no_other_where_it_was(bk: Client, name: str, place: Path) -> None:
    """P2.5: what a later build wrote stays as it is, and is named. Seen: no ledger of the log followed its archive."""
    (ledger_id,) = freed(bk, name, place, 20).freed
    strange, _ = write(bk, name, 5, 3)  # Of the last one the list does not say where it ends.
    key, runtime = ledger_key_path(strange), bk._runtime
    _, revision = run_blocking(runtime.get(key, "test"), "test")
    put = runtime.transact([Compare(key, revision)], [Put(key, b"later")], "test")
    assert run_blocking(put, "test")
    moved = place.with_name("moved")
    place.rename(moved)
    with pytest.raises(StorageError, match=f"1 freed ledgers of log .* ledger {strange}: "):
        set_place(bk, name, moved)
    named = bk.open_ledger(ledger_id).metadata.freed
    assert named is not None and named.path == str(moved)


def test_another_archive_is_refused_and_a_job_without_its_lock_moves_nothing(
    bk: Client, name: str, place: Path
) -> None:
    (ledger_id,) = freed(bk, name, place, 5).freed
    other = create_place(place.with_name("other"))
    with pytest.raises(UsageError, match="is archived in"):
        set_place(bk, name, other.path)
    reading, directory = directory_of(bk, name, b"")
    moved = find_place(place)
    moved = type(moved)(moved.archive_id, str(place.with_name("moved")))
    log_id, runtime = bk.log(name).log_id(), bk._runtime
    with archive_lock(reading) as lock:
        with pytest.raises(LockLost):
            run_blocking(follow_archive(runtime, log_id, ledger_id, moved, lock.epoch + 1), "test")
        with pytest.raises(NoSuchLedger):
            run_blocking(follow_archive(runtime, log_id, ledger_id, other, lock.epoch), "test")
    named = bk.open_ledger(ledger_id).metadata.freed
    assert named is not None and named.path == directory.place.path == str(place)
    (kept,) = [each.ledger_id for each in archived(bk, name + "-2", other_place(place), 3).ledgers]
    with pytest.raises(NoSuchLedger, match="no file of that archive is its copy"):
        run_blocking(follow_archive(runtime, log_id, kept, moved, 1), "test")


def other_place(place: Path) -> Path:
    return place.with_name("archive-2")
