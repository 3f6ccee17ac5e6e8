"""Bookies drop what is archived and verified, and every reader goes on in the files, behind the same handle (P8.14)."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import embedbk
from embedbk.aio import open as open_async
from embedbk.archive import freeing
from embedbk.archive.copying import ByteRate
from embedbk.archive.freeing import FreeReport, free
from embedbk.archive.jobs import archive, set_place
from embedbk.archive.place import ArchiveDirectory, create_place, find_place
from embedbk.archive.reading import archived_frames
from embedbk.archive.restoring import restore
from embedbk.archive.restoring_in_place import restore_in_place
from embedbk.archive.verifying import verify_archive
from embedbk.cli import main
from embedbk.client import archiving
from embedbk.client.client import Client
from embedbk.client.copy_choosing import entry_copies
from embedbk.client.copy_reading import read_copy
from embedbk.client.giving_up import lost_entries
from embedbk.client.password import Password
from embedbk.client.restoring import keep, put_back
from embedbk.client.waiting import run_blocking
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from embedbk.codec.log_archives import ArchiveState
from embedbk.errors import ArchiveUnreadable, StorageError, UsageError, WrongPassword
from embedbk.report import space_report
from embedbk.spark.archive_first import read_archive_first, with_archives
from embedbk.spark.reading import LedgerRange, LogPoint, ReadPlace, Starting, plan, stretch
from tests.archive.scenes import archived, files_of, records_of, write
from tests.archive.test_commands import command
from tests.archive.test_verifying import manifest_of, parts

Seen = list[tuple[int, tuple[int, int], bytes, list[tuple[Any, ...]]]]


@pytest.fixture(scope="module")
def bk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Whose bookies look every moment for what they may drop."""
    settings = embedbk.Settings(
        journal_file_bytes=2 << 20, open_timeout_s=120.0, collect_s=0.1, operation_timeout_s=5.0
    )
    data = tmp_path_factory.mktemp("freed") / "data"
    with embedbk.open(data, bookies=3, listen="tcp://127.0.0.1:0", settings=settings) as client:
        yield client


def seen(bk: Client, name: str) -> Seen:
    return [
        (each.offset, tuple(each.position), bytes(each), [tuple(record) for record in each.records])  # type: ignore[misc]
        for each in bk.log(name).read()
    ]


def copies_of(bk: Client, ledger_id: int, last: int) -> list[str]:
    """Bookies that have something of it, by their own answers."""
    return [
        each.bookie_id
        for each in bk.bookies()
        if any(part.frames for part in read_copy(bk, ledger_id, each.bookie_id, Password(b""), 0, last))
    ]


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def freed(bk: Client, name: str, place: Path, *counts: int, **options: Any) -> FreeReport:
    """A log of so many entries in ledgers, all of them in an archive, verified, and freed."""
    archived(bk, name, place, *counts)
    assert verify_archive(bk, name).code == 0
    report = free(bk, name, keep_lag_s=0, **options)
    assert report.code == 0 and len(report.freed) == len(counts), report
    return report


def test_a_freed_log_is_read_as_before_by_everybody(bk: Client, name: str, place: Path) -> None:
    """Iterated, in bulk, as Arrow, in part, by time, by ledger, by a tail that begins in the past, by both faces."""
    archived(bk, name, place, 40, 25)
    verify_archive(bk, name)
    write(bk, name, 5)  # One that nobody archived stays with its bookies.
    log = bk.log(name)
    before, table = seen(bk, name), pa.table(log.record_batches(with_records=True))
    times = [log.time_at(offset) for offset in (0, 39, 40, 64)]
    held = log.reader()
    held.seek("earliest")
    first = held.read_bulk(max_entries=3)
    report = free(bk, name, keep_lag_s=0)
    ledgers = report.freed
    assert len(ledgers) == 2 and [each.kept for each in report.ledgers if each.outcome == "kept"] == [
        "unverified"
    ]
    assert all(bk.open_ledger(each).metadata.freed is not None for each in ledgers)
    wait_until(lambda: not any(copies_of(bk, *each) for each in zip(ledgers, (39, 24), strict=True)))
    assert seen(bk, name) == before
    assert pa.table(log.record_batches(with_records=True)).equals(table)
    assert [each.offset for each in log.read(38, 43)] == [38, 39, 40, 41, 42]
    assert [log.time_at(offset) for offset in (0, 39, 40, 64)] == times
    assert log.first_at(0) == 0
    rest = held.read_bulk(max_entries=1000)
    assert first.next_offset == 3 and rest.next_offset == 70
    with contextlib.closing(log.tail(start=60, idle_s=0.2)) as tail:
        assert [each.offset for each in tail] == list(range(60, 70))
    with bk.open_ledger(ledgers[0]) as ledger:
        assert ledger.last_entry == 39
        assert [bytes(each) for each in ledger.read(5, 7)] == [row[2] for row in before[5:8]]
        assert bytes(ledger.read_last()) == before[39][2]

    async def by_the_other_face() -> list[bytes]:
        assert bk.url is not None
        async with await open_async(bk.url) as other:
            return [bytes(each) async for each in other.log(name).read()]

    assert asyncio.run(by_the_other_face()) == [row[2] for row in before]
    write(bk, name, 2)  # Its next owner reads the time of the last entry, and goes on.
    assert len(seen(bk, name)) == 72
    health = bk.health()
    assert health.is_good and health.copies == 0 and not health.ledgers, health
    told = bk.explain(ledgers[0])
    assert not told.missing and str(place) in str(told) and told.seats == ()
    code, out, _ = shown(bk, "ledger", "show", ledgers[0])
    assert code == 0 and f"in the archive in {place}" in out
    assert shown(bk, "log", "check", name)[0] == 0
    scrubbed = shown(bk, "spark", "scrub")
    assert scrubbed[0] == 0, scrubbed
    assert bk.can_i_lose(["b1"]).is_safe
    (space,) = (each for each in space_report(bk).logs if each.name == name)
    assert space.entries == 72 and 0 < space.stored_bytes < space.payload_bytes


def test_metadata_of_a_freed_ledger_is_not_put_back(bk: Client, name: str, place: Path) -> None:
    """By what stands there bookies have copies, or they may: only whoever reads the files now says otherwise."""
    archived(bk, name, place, 20)
    verify_archive(bk, name)
    ledger_id = next(iter(records_of(bk, name)))
    before = keep(bk, ledger_id)
    free(bk, name, keep_lag_s=0)
    with pytest.raises(StorageError, match="its copies are files"):
        put_back(bk, ledger_id, before.value, is_dry=False)
    kept_value = keep(bk, ledger_id).value
    assert put_back(bk, ledger_id, kept_value, is_dry=False).freed is not None  # It stands there.
    again = decode_ledger_metadata(kept_value).with_changes(custom={"log": b"other"})
    with pytest.raises(UsageError, match="says so again"):
        put_back(bk, ledger_id, encode_ledger_metadata(again), is_dry=False)
    assert len(seen(bk, name)) == 20


def shown(bk: Client, *arguments: object) -> tuple[int, str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main([*map(str, arguments), "--at", str(bk.url)])
    return code, out.getvalue(), err.getvalue()


def test_a_reader_that_was_reading_goes_on_in_the_files(bk: Client, name: str, place: Path) -> None:
    """P6.1: where all copies failed the metadata is read again; it says that bookies have none any more."""
    archived(bk, name, place, 30)
    verify_archive(bk, name)
    ledger_id = next(iter(records_of(bk, name)))
    before = [row[2] for row in seen(bk, name)]
    with bk.open_ledger(ledger_id) as opened_before:
        assert free(bk, name, keep_lag_s=0).freed == [ledger_id]
        wait_until(lambda: not copies_of(bk, ledger_id, 29))
        assert [bytes(each) for each in opened_before.read()] == before
        assert opened_before.metadata.freed is not None


# --- What keeps copies --------------------------------------------------------------------------------------


def kept(bk: Client, name: str, **options: Any) -> str:
    """The one word for a log of one ledger; which is read as before."""
    report = free(bk, name, **{"keep_lag_s": 0, **options})
    (only,) = report.ledgers
    assert only.outcome != "freed" and report.freed == []
    assert bk.ledger_metadata(only.ledger_id).freed is None
    return only.kept or only.outcome


def test_each_unsafe_case_keeps_the_copies(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 40)
    log = bk.log(name)
    assert kept(bk, name) == "unverified"  # Only copied.
    verify_archive(bk, name)
    assert kept(bk, name, keep_lag_s=3600) == "young"
    assert kept(bk, name, keep_lag_s=None) == "young"
    assert kept(bk, name, dry_run=True) == "planned"
    log.pin("reader", 3, ttl_s=600)
    assert kept(bk, name) == "pin"
    log.unpin("reader")
    cursor = log.cursor("billing")
    cursor.set()
    assert kept(bk, name) == "cursor"
    cursor.delete()
    path = parts(place)[1]
    good = path.read_bytes()
    path.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
    assert kept(bk, name) == "damaged"
    (record,) = records_of(bk, name).values()
    assert record.state == ArchiveState.COPIED  # A finding takes VERIFIED back at once.
    path.write_bytes(good)
    assert kept(bk, name) == "unverified"
    assert verify_archive(bk, name).code == 0
    report = free(bk, name, keep_lag_s=0)
    assert len(report.freed) == 1 and len(seen(bk, name)) == 40
    assert free(bk, name, keep_lag_s=0).before == 1


def test_an_archive_that_is_away_frees_nothing(bk: Client, name: str, place: Path) -> None:
    """ "Cannot tell" is neither a finding nor a reason to free."""
    archived(bk, name, place, 20)
    verify_archive(bk, name)
    (record,) = records_of(bk, name).values()
    ledger = place / f"log={bk.log(name).log_id()}" / f"ledger={record.ledger_id}"
    aside = ledger.with_name("_away")
    ledger.rename(aside)
    ledger.symlink_to(ledger.name)  # Nobody can open it, and nobody can say that it is gone.
    assert kept(bk, name) == "failed"
    (record,) = records_of(bk, name).values()
    assert record.state == ArchiveState.VERIFIED
    ledger.unlink()
    aside.rename(ledger)
    assert len(seen(bk, name)) == 20


def test_what_is_read_of_files_is_paced(
    bk: Client, name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ARCHIVE.md: `--rate BYTES` "bounds what `free` reads of files in a second"."""
    archived(bk, name, place, 20, 10)
    verify_archive(bk, name)
    now, waits = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    paced = partial(ByteRate, now=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(freeing, "ByteRate", paced)
    files = list(place.rglob("*.parquet"))
    read = sum(path.stat().st_size for path in files)
    assert len(free(bk, name, keep_lag_s=0, bytes_per_s=read / 60).freed) == 2
    assert len(waits) == len(files) and sum(waits) == pytest.approx(60)
    restored = restore_in_place(bk, name, bytes_per_s=1e9)
    assert len(restored.restored) == 2
    code, out, _ = command(bk, "free", name, "--keep-lag-s", "0", "--rate", "1e9")
    assert code == 0 and "2 ledgers freed" in out
    code, _, err = command(bk, "restore", f"{name}-2", "--log", name, "--rate", "1e9")
    assert code == 1 and "--rate go with --in-place" in err


def test_what_is_asked_for_is_checked(
    bk: Client, name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(bk, name, place, 4)
    for wrong in (-1, True, "4h", float("nan"), float("inf")):
        with pytest.raises(UsageError, match="keep_lag_s"):
            free(bk, name, keep_lag_s=wrong)  # type: ignore[arg-type]
    for wrong in (0, -1.0, "fast"):
        with pytest.raises(UsageError, match="allowed are bytes above 0"):
            free(bk, name, bytes_per_s=wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="allowed are bytes above 0"):
            restore_in_place(bk, name, bytes_per_s=wrong)  # type: ignore[arg-type]
    monkeypatch.setattr(archiving, "LEVEL_OF_FREED", 1_000)
    with pytest.raises(UsageError, match="level is below 1000"):
        free(bk, name, keep_lag_s=0)


def test_the_command_frees_and_says_what_it_kept(bk: Client, name: str, place: Path) -> None:
    archived(bk, name, place, 20, 10)
    code, out, _ = command(bk, "free", name, "--keep-lag-s", "0")
    assert code == 0 and "0 ledgers freed" in out and out.count("no archive of it is verified") == 2
    verify_archive(bk, name)
    code, _, said = command(bk, "free", name, "--keep-lag-s", "4h")
    assert code == 1 and "seconds are allowed, or never" in said
    code, out, _ = command(bk, "free", name)
    assert code == 0 and "0 ledgers freed" in out and "not verified 14400 s ago" in out
    code, out, _ = command(bk, "free", name, "--keep-lag-s", "never")
    assert code == 0 and "kept for ever" in out
    first = min(records_of(bk, name))
    code, out, _ = command(bk, "free", name, "--keep-lag-s", "0", "--ledger", first, "--json")
    told = json.loads(out)
    assert code == 0 and [(each["ledger_id"], each["outcome"]) for each in told["ledgers"]] == [
        (first, "freed")
    ]
    code, out, _ = command(bk, "free", name, "--keep-lag-s", "0")
    assert code == 0 and "1 ledgers freed, 1 before" in out


# --- What can be wrong with the files -------------------------------------------------------------------------


def unreadable(bk: Client, name: str, file: Path, match: str) -> None:
    """Reading says which file, in which archive, and what to do; iterated, in bulk and by the ledger's own handle."""
    ledger = next(iter(records_of(bk, name)))
    with bk.log(name).reader() as bulk, bk.open_ledger(ledger) as one:
        for read in (
            lambda: seen(bk, name),
            lambda: [bulk.read_bulk() for _ in "ab"],
            lambda: list(one.read()),
        ):
            with pytest.raises(ArchiveUnreadable, match=match) as told:
                read()
            assert told.value.file.endswith(file.name) and not told.value.definite
            assert "put back" in str(told.value) or "mount" in str(told.value)


HARM: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object], str]] = {
    "a file is missing": (lambda place: parts(place)[1], Path.unlink, "No such file"),
    "a file is cut": (
        lambda place: parts(place)[0],
        lambda it: it.write_bytes(it.read_bytes()[:-1]),
        "bytes, want",
    ),
    "a byte of a file differs": (
        lambda place: parts(place)[0],
        lambda it: it.write_bytes(it.read_bytes()[:-9] + b"x" + it.read_bytes()[-8:]),
        "its SHA-256 is",
    ),
    "the manifest is missing": (lambda place: manifest_of(parts(place)[0]), Path.unlink, "No such file"),
    "the manifest differs": (
        lambda place: manifest_of(parts(place)[0]),
        lambda it: it.write_bytes(it.read_bytes().replace(b'"rows": ', b'"rows":  ')),
        "which the ledger's metadata has",
    ),
}


def test_a_file_that_is_missing_or_differs_is_named(bk: Client, name: str, place: Path) -> None:
    """ "A typed error that says file and what to do", never an end and never other entries; mended, it is read."""
    freed(bk, name, place, 40)
    before = seen(bk, name)
    for which, harm, match in HARM.values():
        path = which(place)
        good = path.read_bytes()
        harm(path)
        unreadable(bk, name, path, match)
        path.write_bytes(good)
        assert seen(bk, name) == before


def test_an_archive_that_is_not_mounted_is_said(bk: Client, name: str, place: Path) -> None:
    freed(bk, name, place, 20)
    place.rename(place.with_name("elsewhere"))
    with pytest.raises(ArchiveUnreadable, match="is it mounted") as told:
        seen(bk, name)
    assert told.value.place == str(place)
    assert str(told.value).count("is it mounted") == 1
    create_place(place)  # Another one in its place.
    with pytest.raises(ArchiveUnreadable, match="mount the log's own archive there"):
        seen(bk, name)


@pytest.mark.parametrize(
    "where", [("../elsewhere", "/archive"), ("a\0b", "/archive"), ("orders", "/arch\0ive")]
)
def test_metadata_leads_readers_nowhere_else(place: Path, where: tuple[str, str]) -> None:
    """P2.5: what stands there is somebody's word; a directory beside the archive is none of it."""
    log_id, path = where
    stands = create_place(place)
    freed_there = Freed(stands.archive_id, str(place) if path == "/archive" else path, bytes(32))
    (place.parent / "elsewhere" / "ledger=7").mkdir(parents=True)
    with pytest.raises(ArchiveUnreadable):
        next(archived_frames(freed_there, log_id, 7, 0, 0))
    if log_id != "orders":
        with pytest.raises(StorageError, match="names no log"), ArchiveDirectory(stands).ledger(log_id, 7):
            pass


def test_a_reader_without_pyarrow_is_told_what_to_install(
    bk: Client, name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And at once, also a tail: nothing that comes back changes it."""
    freed(bk, name, place, 20)
    monkeypatch.setitem(sys.modules, "embedbk.archive.reading", None)
    tail = bk.log(name).tail(start=3)
    for read in (lambda: seen(bk, name), lambda: next(iter(tail))):
        with pytest.raises(ArchiveUnreadable, match=r"pip install 'embedbk\[arrow\]'") as told:
            read()
        assert told.value.definite and told.value.place == str(place)


def test_a_file_that_a_job_without_its_lock_put_aside_is_found(bk: Client, name: str, place: Path) -> None:
    """It was paused, and lost the lock before the ledger was freed."""
    (ledger_id,) = freed(bk, name, place, 20).freed
    before = seen(bk, name)
    log_id = bk.log(name).log_id()
    with ArchiveDirectory(find_place(place)).ledger(log_id, ledger_id) as files:
        path = parts(place)[0]
        manifest, good = manifest_of(path), path.read_bytes()
        files.set_aside(path.name)
        path.write_bytes(b"what is this")  # Another one of that name that was put aside before.
        files.set_aside(path.name)
        files.set_aside(manifest.name)
    assert good and seen(bk, name) == before


def test_what_is_freed_stays_as_it_is(bk: Client, name: str, place: Path) -> None:
    """Verified again, restored from, not copied anew, not given up; truncated, its files stay."""
    first, second = freed(bk, name, place, 20, 10).freed
    before = seen(bk, name)
    assert verify_archive(bk, name, against_bookies=True).code == 0
    (failed,) = archive(bk, name, anew=[first]).ledgers
    assert failed.outcome == "failed" and "are all there is" in failed.why
    directory = ArchiveDirectory(find_place(place))
    restore(bk, f"{name}-2", directory, bk.log(name).log_id())
    assert [row[2] for row in seen(bk, f"{name}-2")] == [row[2] for row in before]
    with pytest.raises(UsageError, match="no bookie has to have"):
        run_blocking(entry_copies(bk._runtime, first, 3, Password(b"")), "copies")
    with pytest.raises(UsageError, match="nothing of it is given up"):
        run_blocking(lost_entries(bk._runtime, first, Password(b"")), "lost")
    files = files_of(place)
    write(bk, name, 1)
    assert bk.log(name).truncate(20).reached == 20
    assert files_of(place) == files and second in bk.ledgers() and first not in bk.ledgers()
    assert len(seen(bk, name)) == 11


# --- The way back -----------------------------------------------------------------------------------------------


def test_freed_ledgers_come_back_to_bookies_and_every_reader_goes_on(
    bk: Client, name: str, place: Path
) -> None:
    """Same ids, positions, offsets and bytes; then the archive may be away; then they are freed again."""
    first, second = freed(bk, name, place, 40, 25).freed
    wait_until(lambda: not copies_of(bk, first, 39) and not copies_of(bk, second, 24))
    before, log = seen(bk, name), bk.log(name)
    table = pa.table(log.record_batches(with_records=True))
    held, tail = log.reader(), log.tail(start=30, idle_s=0.2)
    held.seek("earliest")
    assert held.read_bulk(max_entries=3).next_offset == 3 and next(iter(tail)).offset == 30
    ledger = bk.open_ledger(first)
    assert bytes(next(iter(ledger.read(0, 39)))) == before[0][2]

    code, out, _ = shown(bk, "spark", "restore", name, "--in-place", "--dry-run")
    assert code == 0 and out.count("planned") == 2 and bk.open_ledger(first).metadata.freed is not None
    code, out, _ = shown(bk, "spark", "restore", name, "--in-place", "--ledger", first)
    assert code == 0 and "1 ledgers restored in place, bookies had 0" in out
    report = restore_in_place(bk, name)
    assert (report.restored, report.with_bookies, report.code) == ([second], 1, 0)

    place.rename(place.with_name("elsewhere"))
    assert seen(bk, name) == before
    assert pa.table(log.record_batches(with_records=True)).equals(table)
    assert held.read_bulk(max_entries=100).next_offset == 65
    assert [each.offset for each in tail] == list(range(31, 65))
    assert [bytes(each) for each in ledger.read(5, 39)] == [row[2] for row in before[5:40]]
    tail.close()
    ledger.close()
    for ledger_id, last in ((first, 39), (second, 24)):
        assert copies_of(bk, ledger_id, last) == ["b1", "b2", "b3"]
        now = bk.open_ledger(ledger_id).metadata
        assert now.freed is None and all(len(each.ensemble) == 3 for each in now.fragments)
    health = bk.health()
    assert health.is_good and health.marks == 0 and not health.ledgers, health
    assert shown(bk, "log", "check", name)[0] == 0
    code, out, _ = shown(bk, "spark", "scrub", "--settle-s", 0)
    assert code == 3 and out.startswith("nothing wrong was seen")  # The archive cannot be compared with.
    place.with_name("elsewhere").rename(place)
    assert shown(bk, "spark", "scrub")[0] == 0
    assert records_of(bk, name)[first].state == ArchiveState.VERIFIED
    assert free(bk, name, keep_lag_s=0).freed == [first, second] and seen(bk, name) == before


def test_entries_with_a_password_come_back_with_their_tags(bk: Client, name: str, place: Path) -> None:
    """A row group is larger than a message, of which each has its part; whoever has not the password copies nothing."""
    secret = b"open sesame"
    with bk.log(name, password=secret).writer(digest="hmac") as writer:
        for number in range(5):
            writer.append(bytes([number]) * 700_000)
        ledger_id = writer.ledger_id
    create_place(place)
    set_place(bk, name, place, password=secret)
    assert archive(bk, name, password=secret).is_whole and verify_archive(bk, name, password=secret).code == 0
    assert free(bk, name, password=secret, keep_lag_s=0).freed == [ledger_id]
    with pytest.raises(WrongPassword):
        restore_in_place(bk, name, password=b"another")
    assert bk.open_ledger(ledger_id, password=secret).metadata.freed is not None
    assert restore_in_place(bk, name, password=secret).restored == [ledger_id]
    place.rename(place.with_name("elsewhere"))
    read = [bytes(each) for each in bk.log(name, password=secret).read()]
    assert read == [bytes([number]) * 700_000 for number in range(5)]


def test_what_cannot_come_back_stays_in_its_files(bk: Client, name: str, place: Path) -> None:
    """A file that is not what was recorded, one that is gone; a ledger that is truncated; wrong options."""
    first, second = freed(bk, name, place, 20, 10).freed
    before = seen(bk, name)
    path = parts(place)[-1]
    good = path.read_bytes()
    path.write_bytes(good[:-9] + b"x" + good[-8:])
    code, out, _ = shown(bk, "spark", "restore", name, "--in-place", "--json")
    told = json.loads(out)
    outcomes = {each["ledger_id"]: each["outcome"] for each in told["ledgers"]}
    (failed,) = (each for each in told["ledgers"] if each["outcome"] == "failed")
    assert code == 3 and outcomes == {first: "restored", second: "failed"}
    assert path.name in failed["why"] and bk.open_ledger(second).metadata.freed is not None
    assert bk.health().marks == 0  # What was copied may be dropped at once.
    path.write_bytes(good)
    assert seen(bk, name) == before
    write(bk, name, 1)
    bk.log(name).truncate(20)
    code, out, _ = shown(bk, "spark", "restore", name, "--in-place", "--ledger", first)
    assert code == 3 and f"ledger {first}: truncated" in out
    code, _, said = shown(bk, "spark", "restore", name, "--in-place", "--from", 3)
    assert code == 1 and "it takes no --from" in said and "Traceback" not in said
    code, _, said = shown(bk, "spark", "restore", name, "--log", name, "--ledger", first)
    assert code == 1 and "go with --in-place" in said


# --- Batches of Spark, without Spark ----------------------------------------------------------------------------


def test_a_batch_reads_files_first_and_bookies_for_the_rest(
    bk: Client, name: str, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """ "The archive first where it holds the range": of what is verified; what files do not give bookies do."""
    archived(bk, name, place, 40, 25)
    at = ReadPlace(str(bk.url))
    _, end, segments = stretch(at, name, Starting("earliest", {}), Starting("latest", {}))
    planned = plan(name, segments, LogPoint(0), end)
    assert with_archives(at, name, planned) == planned  # Nobody has verified it.
    verify_archive(bk, name)
    ranges = with_archives(at, name, planned)
    assert [each.archived is not None for each in ranges] == [True, True]

    def ids(some: Sequence[LedgerRange]) -> list[tuple[int, bytes]]:
        return [
            (batch.ledger_id * 1000 + entry_id, bytes(batch.data[batch.ends[at] : batch.ends[at + 1]]))
            for each in some
            for batch in read_archive_first(ReadPlace(str(bk.url)), each)
            for at, entry_id in enumerate(batch.ids)
        ]

    before = ids(planned)
    assert ids(ranges) == before and len({each for each, _ in before}) == 65
    cut = [replace(each, first_entry=3, last_entry=21) for each in ranges]
    assert ids(cut) == ids([replace(each, archived=None) for each in cut])
    assert not caplog.records
    path = parts(place)[1]  # Of the first ledger, its second half.
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    assert ids(ranges) == before
    (warned,) = caplog.records
    assert "bookies are asked from entry 20 on" in warned.getMessage() and path.name in warned.getMessage()
    path.write_bytes(good)
    free(bk, name, keep_lag_s=0)
    assert ids(planned) == before  # Planned before it was freed, or by a stream.
