"""Directories that have less than was used are found out by what they say themselves (P7.9, JOURNAL.md section 9)."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from embedbk.errors import StorageError
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.directory_discovery import check_place, find_places
from embedbk.storage.identity import IDENTITY_FILE, open_identity
from embedbk.storage.journal import Journal
from embedbk.storage.layout import LOSS_FILE
from embedbk.storage.loss_note import LossNote
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.starts import STARTS_KEPT, StartCount, Starts
from tests.storage.journal_pages import BLOCK_BYTES, crc32c, fields, size_of
from tests.storage.stored_entries import make_frame

TOKEN = b"t" * 16
FILE_BYTES = 2 << 20


def open_bookie(path: Path, **settings: object) -> BookieStorage:
    return BookieStorage(path, "b1", TOKEN, journal_file_bytes=FILE_BYTES, **settings)  # type: ignore[arg-type]


def stop(bookie: BookieStorage) -> None:
    """As a killed process: nothing is flushed."""
    bookie._release()


def used(path: Path, records: int = 60) -> list[Path]:
    """A bookie that was killed behind so many large records; its journal's files that have groups, oldest first."""
    bookie = open_bookie(path)
    for number in range(records):
        bookie.put_frame(make_frame(7, [number], size=100_000))
        bookie.kick()
        bookie.sync()
    stop(bookie)
    files = sorted((path / "journal").glob("journal-*"))
    return [file for file in files if any(file.read_bytes()[BLOCK_BYTES : BLOCK_BYTES + 64])]


def journal_of(disk: MemoryDisk, **settings: object) -> Journal:
    return Journal("j", io=disk, threaded=False, file_bytes=65536, identity=b"i" * 16, **settings)  # type: ignore[arg-type]


def filled(disk: MemoryDisk, groups: int) -> None:
    with journal_of(disk) as journal:
        for _ in range(groups):
            journal.append(1, 1, bytes(9000))
            journal.step()


def used_names(files: dict[str, bytes]) -> list[str]:
    """Of the journal's files that hold groups, oldest first."""
    return sorted(
        name for name, content in files.items() if "journal-" in name and any(content[BLOCK_BYTES:])
    )


# --- Journals --------------------------------------------------------------------------------------------


def test_a_note_is_what_the_page_says() -> None:
    """JOURNAL.md section 9, read with nothing else."""
    disk = MemoryDisk()
    filled(disk, 20)
    content = disk.files()["j/USED"]
    notes = [fields("used", content, at) for at in (0, BLOCK_BYTES)]
    for at, note in zip((0, BLOCK_BYTES), notes, strict=True):
        assert note["crc"] == crc32c(content[at + 4 : at + size_of("used")])
        assert (note["magic"], note["version"], note["number"] % 2) == (b"EBKU", 1, at // BLOCK_BYTES)
    newest = max(notes, key=lambda note: note["number"])
    assert newest["generation"] == 4 and f"j/journal-{4:016x}" in disk.files()
    assert len(content) == 2 * BLOCK_BYTES


def test_a_file_is_noted_before_its_first_group() -> None:
    """The power goes at every write: what has a group was noted, and what was noted has its file."""
    disk = MemoryDisk()
    filled(disk, 5)
    for nth in range(1, 40):
        world = MemoryDisk(disk.files())
        world.tear(nth=nth, sectors=0)
        with contextlib.suppress(StorageError), journal_of(world) as journal:
            for _ in range(12):
                journal.append(1, 1, bytes(9000))
                journal.step()
        world.crash(nth)
        with journal_of(world) as journal:
            assert journal.used().lack(0) == "", nth
            newest = sorted(
                name for name, content in world.files().items() if "journal-" in name and any(content[4096:])
            )
            assert f"{journal.used().generation:016x}" >= newest[-1][-16:], nth


@pytest.mark.parametrize("gone", [1, 2, 3, 4])
def test_the_newest_files_are_missed(gone: int) -> None:
    """Also where the blank one behind them is still there, and where all of them are gone."""
    disk = MemoryDisk()
    filled(disk, 20)
    files = disk.files()
    names = used_names(files)
    for name in names[-gone:]:
        del files[name]
    disk = MemoryDisk(files)
    for _ in range(2):
        with journal_of(disk) as journal:
            assert "generation 4, is gone" in journal.used().lack(0)


def test_the_only_file_is_missed_though_the_next_one_is_called_the_same() -> None:
    disk = MemoryDisk()
    filled(disk, 2)
    files = {name: content for name, content in disk.files().items() if "journal-" not in name}
    with journal_of(MemoryDisk(files)) as journal:
        assert "generation 1, is gone" in journal.used().lack(0)


def test_the_file_before_a_blank_one_is_missed() -> None:
    """The newest is there and noted, a crash came before its first group, and the one before it is gone."""
    disk = MemoryDisk()
    filled(disk, 10)
    with journal_of(disk) as journal:
        token = journal.next_token()
    disk = MemoryDisk(disk.files())
    journal = journal_of(disk)
    journal.step()  # The next file is prepared.
    journal.append(1, 1, bytes(9000))
    disk.tear(nth=2, sectors=0)  # The note is the first write, the group the second.
    while journal.step() and not journal.failed():
        pass
    journal.close()
    disk.crash(3)
    files = disk.files()
    with journal_of(MemoryDisk(files)) as journal:
        assert journal.used().lack(0) == "" and journal.next_token() == token
    names = used_names(files)
    del files[names[-1]]
    disk = MemoryDisk(files)
    for _ in range(2):  # A start that ends before anybody has heard of it takes nothing of that away.
        with journal_of(disk) as journal:
            assert "and had" in journal.used().lack(0), "its records are below what was noted"
            assert journal.used().lack(token - 1) == "", "unless entry logs have them"
    with journal_of(disk) as journal:
        journal.accept_used()
    with journal_of(disk) as journal:
        assert journal.used().lack(0) == ""


def test_a_journal_of_an_older_build_is_noted_from_then_on() -> None:
    disk = MemoryDisk()
    filled(disk, 20)
    files = disk.files()
    del files["j/USED"]
    disk = MemoryDisk(files)
    with journal_of(disk) as journal:
        assert not journal.used().is_noted and journal.used().lack(0) == ""
        journal.accept_used()
    with journal_of(disk) as journal:
        assert journal.used().is_noted and journal.used().lack(0) == ""


# --- Bookies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["newest", "all", "newest and note", "all and note"])
def test_a_bookie_without_its_newest_files_may_have_lost(tmp_path: Path, which: str) -> None:
    """P7.9: "by itself where everything else is whole"; once that is in limbo, the next start is as ever."""
    files = used(tmp_path)
    assert len(files) > 2
    for file in files if "all" in which else files[-1:]:
        file.unlink()
    if "note" in which:
        (tmp_path / "journal" / "USED").unlink()
    found = check_place(find_places(tmp_path)[0]).findings
    assert any("less" in each.what for each in found.found if each.is_damage), found.found
    bookie = open_bookie(tmp_path)
    assert bookie.may_have_lost and (tmp_path / LOSS_FILE).exists()
    stop(bookie)
    bookie = open_bookie(tmp_path)
    assert bookie.may_have_lost, "until its limbo is durable"
    bookie.end_loss()
    bookie.close()
    bookie = open_bookie(tmp_path)
    assert not bookie.may_have_lost
    bookie.close()
    assert check_place(find_places(tmp_path)[0]).findings.damage_count == 0


def test_a_journal_that_ends_below_the_log_mark_is_gone_on_behind(tmp_path: Path) -> None:
    """Its entry logs say more than is left of it: with the note that says so too, no word of the owner is needed."""
    files = used(tmp_path)
    bookie = open_bookie(tmp_path, flush_bytes=1 << 20, cache_bytes_max=4 << 20)
    bookie.close()
    for file in (tmp_path / "journal").glob("journal-*"):
        file.unlink()
    bookie = open_bookie(tmp_path)
    assert bookie.may_have_lost and bookie.next_token() > 60
    bookie.close()
    assert files


def test_damage_beside_what_is_missing_still_needs_the_owner(tmp_path: Path) -> None:
    """P7.4: "refuses the start until the owner says": what is whole is gone on from, not what is damaged."""
    files = used(tmp_path)
    files[-1].unlink()
    content = bytearray(files[0].read_bytes())
    content[BLOCK_BYTES + 100] ^= 1
    files[0].write_bytes(content)
    with pytest.raises(StorageError, match="--may-have-lost"):
        open_bookie(tmp_path)
    open_bookie(tmp_path, may_have_lost=True).close()


@pytest.mark.parametrize("purpose", ["journal", "entries"])
def test_a_directory_from_an_older_copy_may_have_lost(tmp_path: Path, purpose: str) -> None:
    """P7.9: "directories that are not of one time": each of them counts the starts."""
    path = tmp_path / "b1"
    open_bookie(path).close()
    shutil.copytree(path / purpose, tmp_path / "old")
    open_bookie(path).close()
    shutil.rmtree(path / purpose)
    shutil.copytree(tmp_path / "old", path / purpose)
    found = check_place(find_places(path)[0]).findings
    assert any("older copy" in each.what for each in found.found if each.is_damage)
    bookie = open_bookie(path)
    assert bookie.may_have_lost
    bookie.close()


def test_a_crash_between_two_directories_is_no_older_copy(tmp_path: Path) -> None:
    """STORAGE.md section 6: directories that differ by one begun start, of which nothing was served."""
    open_bookie(tmp_path).close()
    before = (tmp_path / "entries" / IDENTITY_FILE).read_bytes()
    where = {purpose: tmp_path / purpose for purpose in ("journal", "entries")}
    held = open_identity(where, role="bookie", node_id="b1", cluster_token=TOKEN)
    count = held.count_start().count
    held.close()
    (tmp_path / "entries" / IDENTITY_FILE).write_bytes(before)
    bookie = open_bookie(tmp_path)
    assert not bookie.may_have_lost and bookie.starts.count == count + 1
    bookie.close()


def test_the_count_is_durable_before_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P7.9: a start that ends at any step behind the count is counted."""
    open_bookie(tmp_path).close()
    monkeypatch.setattr(
        BookieStorage, "_load", lambda *arguments: (_ for _ in ()).throw(StorageError("ended"))
    )
    for _ in range(3):
        with pytest.raises(StorageError, match="ended"):
            open_bookie(tmp_path)
    monkeypatch.undo()
    bookie = open_bookie(tmp_path)
    assert bookie.starts.count == 5
    bookie.close()


@pytest.mark.parametrize("is_told", [False, True])
def test_a_note_of_loss_that_is_there_is_durable_before_it_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    """P7.4: a start that was killed may not have synced it, and an operator's `touch` does not; without it the next
    start would be a clean one behind a loss of power, when the journal has begun anew behind its damage."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    assert not LossNote("b1", tmp_path / LOSS_FILE, is_declared=False).may_have_lost
    assert synced == []
    (tmp_path / LOSS_FILE).touch()
    assert LossNote("b1", tmp_path / LOSS_FILE, is_declared=is_told).may_have_lost
    assert synced == [str(tmp_path)]


@pytest.mark.parametrize("act", [lambda starts: starts.pass_by(9), lambda starts: starts.pass_by(10)])
def test_a_count_that_others_went_beyond_goes_above_theirs(act: Callable[[Starts], None]) -> None:
    kept: list[StartCount] = []
    starts = Starts(StartCount(), kept.append, b"a" * 8)
    act(starts)
    assert starts.count in (10, 11) and starts.has(starts.count, b"a" * 8)
    assert kept[-1].count == starts.count
    assert not starts.has(9, b"a" * 8), "that was another's"
    starts.pass_by(3)
    assert starts.count in (10, 11)


def test_of_many_starts_the_last_are_known() -> None:
    count = StartCount()
    for number in range(1, 200):
        count = count.after(number.to_bytes(8, "big"))
    assert count.has(199, (199).to_bytes(8, "big")) and count.has(136, (136).to_bytes(8, "big"))
    assert not count.has(135, (135).to_bytes(8, "big")) and not count.has(199, bytes(8))
    assert not count.has(200, (200).to_bytes(8, "big")) and not count.has(0, b"")
    assert len(count.recent) == STARTS_KEPT


def test_an_identity_with_little_room_keeps_fewer_starts(tmp_path: Path) -> None:
    """No path is so long that one more start is refused."""
    long = tmp_path / ("x" * 200) / ("y" * 200) / ("z" * 200)
    where = {
        "journal": long / "journal",
        **{f"entries-{n}" if n > 1 else "entries": long / f"e{n}" for n in range(1, 5)},
    }
    open_identity(where, role="bookie", node_id="b1", cluster_token=TOKEN).close()
    for number in range(1, 70):
        held = open_identity(where, role="bookie", node_id="b1", cluster_token=b"")
        starts = held.count_start()
        assert starts.count == number and starts.has(number, starts.id)
        held.close()
