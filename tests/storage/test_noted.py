"""Small notes on a real file system, and what a bookie keeps in one: whole, newer, torn, damaged (P10.5)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from embedbk.core.witness import Met
from embedbk.errors import StorageError
from embedbk.storage import member_notes, met_metadata, noted
from embedbk.storage.met_metadata import MET_FILE, keep_met, read_met
from embedbk.storage.noted import NOTE_BYTES, NoteFile

MET = Met(b"t" * 16, 3, b"n" * 16, 20, 30)


def test_what_is_kept_is_there_and_what_was_hinted_stands_behind_it(tmp_path: Path) -> None:
    note = NoteFile(tmp_path / "NOTE", b"TEST")
    assert note.read() == []
    note.keep(b"one")
    assert note.read() == [b"one"]
    note.hint(b"two")
    note.hint(b"three")
    assert note.read() == [b"one", b"three"]
    note.keep(b"four")
    assert note.read() == [b"four"], "what was hinted before is older"
    assert [path.name for path in tmp_path.iterdir()] == ["NOTE"]


def test_a_torn_hint_counts_for_nothing_and_damage_of_what_was_kept_is_said(tmp_path: Path) -> None:
    """P10.5: cannot tell is never "none was met"."""
    path = tmp_path / "NOTE"
    note = NoteFile(path, b"TEST")
    note.keep(b"one")
    note.hint(b"two")
    whole = path.read_bytes()
    used = [*range(19), *range(NOTE_BYTES, NOTE_BYTES + 19)]
    for at in used:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        if at < NOTE_BYTES:
            with pytest.raises(StorageError, match="damaged"):
                note.read()
        else:
            assert note.read() == [b"one"]
    path.write_bytes(whole[:NOTE_BYTES])
    assert note.read() == [b"one"]
    path.write_bytes(b"")
    with pytest.raises(StorageError, match="damaged"):
        note.read()


def test_a_bookie_reads_the_newest_that_it_met(tmp_path: Path) -> None:
    """P10.5: how far a start came is written without a sync; a newer start replaces both."""
    assert read_met(tmp_path) is None
    keep_met(tmp_path, MET, is_synced=True)
    further = Met(MET.cluster_token, MET.count, MET.nonce, 25, 31)
    keep_met(tmp_path, further, is_synced=False)
    assert read_met(tmp_path) == further
    later = Met(MET.cluster_token, 4, b"m" * 16, 25, 31)
    keep_met(tmp_path, later, is_synced=True)
    assert read_met(tmp_path) == later


def test_a_note_is_durable_before_it_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I49, P10.5: the process that kept or hinted it may have been killed before it was durable; what its reader does
    would outlive it. Where there is none, nothing is synced."""
    synced: list[str] = []
    assert NoteFile(tmp_path / "NOTE", b"TEST").read() == []
    NoteFile(tmp_path / "NOTE", b"TEST").keep(b"one")
    NoteFile(tmp_path / "NOTE", b"TEST").hint(b"two")
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    assert NoteFile(tmp_path / "NONE", b"TEST").read() == []
    assert synced == []
    assert NoteFile(tmp_path / "NOTE", b"TEST").read() == [b"one", b"two"]
    assert synced == [str(tmp_path / "NOTE"), str(tmp_path)]


def test_a_note_that_cannot_be_made_durable_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I50: cannot tell whether it is there for good."""
    NoteFile(tmp_path / "NOTE", b"TEST").keep(b"one")

    def refuse(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match="cannot be read or synced"):
        NoteFile(tmp_path / "NOTE", b"TEST").read()


def test_a_note_lies_as_the_page_says() -> None:
    page = (Path(noted.__file__).parent / "STORAGE.md").read_text()
    rows = page.split("<!-- table: note -->\n")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    codes = {"u16": "H", "u32": "I", "4 B": "4s"}
    assert "<" + "".join(codes[row[2]] for row in cells) == noted._HEAD.format
    ends = [int(row[0]) + int(row[1]) for row in cells]
    assert [int(row[0]) for row in cells] == [0, *ends[:-1]]
    assert ends[-1] == noted._HEAD.size
    assert f"of {NOTE_BYTES} bytes" in page
    assert met_metadata._MAGIC.decode() in cells[0][4]
    assert member_notes._MAGIC.decode() in cells[0][4]


def test_a_note_of_something_else_is_refused(tmp_path: Path) -> None:
    NoteFile(tmp_path / MET_FILE, b"EBKW").keep(b"\x91\xa3\xff\xff\xff")
    with pytest.raises(StorageError, match="no note of this kind"):
        read_met(tmp_path)
    NoteFile(tmp_path / MET_FILE, b"ELSE").keep(b"")
    with pytest.raises(StorageError, match="damaged"):
        read_met(tmp_path)


def test_where_a_note_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        keep_met(tmp_path / "missing", MET, is_synced=True)
    with pytest.raises(StorageError, match="cannot be written"):
        keep_met(tmp_path, MET, is_synced=False)
