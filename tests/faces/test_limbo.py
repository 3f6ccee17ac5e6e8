"""P7.4 through the whole house: a bookie's directory is restored from an older copy, and the bookie is told so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import embedbk
from embedbk.errors import StorageError
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.identity import IDENTITY_FILE
from embedbk.storage.layout import LOSS_FILE


def rows(directory: Path) -> dict[int, tuple[int, int]]:
    """Ledger -> (is in limbo, is fenced), as the bookie's next start will find it."""
    storage = BookieStorage(directory, directory.name, b"")
    try:
        found = {}
        for ledger_id in storage.table:
            row = storage.table.get(ledger_id)
            assert row is not None
            found[ledger_id] = (row.in_limbo, row.is_fenced)
        return found
    finally:
        storage.close()


def bookie_directory(root: Path) -> Path:
    return sorted(path.parent for path in root.rglob("entries") if (path / IDENTITY_FILE).exists())[0]


def test_a_bookie_restored_from_an_older_copy_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """P7.4, I32, D13: its old copy knows nothing of the ledger; the ledger closes at its true end all the same."""
    root = tmp_path / "data"
    with embedbk.open(root, bookies=3):
        pass
    directory = bookie_directory(root)
    shutil.copytree(directory, tmp_path / "copy")
    with embedbk.open(root) as bk:
        writer = bk.create_ledger()
        writer.add_many([b"%d" % number for number in range(100)])
        ledger_id = writer.ledger_id
        writer.release()
    shutil.rmtree(directory)
    shutil.copytree(tmp_path / "copy", directory)
    storage = BookieStorage(directory, directory.name, b"", may_have_lost=True)
    storage.close()  # Stopped before it could list anything: the note stays.
    assert (directory / LOSS_FILE).exists()
    with embedbk.open(root):
        assert not (directory / LOSS_FILE).exists()
    assert rows(directory) == {ledger_id: (1, 1)}
    with embedbk.open(root) as bk, bk.open_ledger(ledger_id, recover=True) as reader:
        assert [bytes(entry) for entry in reader.read()] == [b"%d" % number for number in range(100)]
    assert rows(directory)[ledger_id][1] == 1


def flip_a_group(directory: Path) -> None:
    """One byte of a group in the middle of the bookie's journal."""
    for path in sorted((directory / "journal").glob("journal-*")):
        content = bytearray(path.read_bytes())
        groups = [at for at in range(4096, len(content), 4096) if content[at + 4 : at + 8] == b"EBKG"]
        if len(groups) > 4:
            content[groups[len(groups) // 2] + 100] ^= 1
            path.write_bytes(content)
            return
    raise AssertionError("no journal with groups to hurt")


def test_a_bookie_with_a_damaged_journal_goes_on_when_its_owner_says_so(tmp_path: Path) -> None:
    """P7.4, I32, I42, scenario 48: refused with a reason and a way out; told, it serves nothing before limbo, and the
    ledger closes at its true end with every entry."""
    root, copy = tmp_path / "data", tmp_path / "killed"
    with embedbk.open(root, bookies=3) as bk:
        writer = bk.create_ledger()
        ledger_id = writer.ledger_id
        for number in range(40):
            writer.add(b"%d" % number)
        # What a power cut would leave now: everything that was acknowledged. Files that are being made have no part.
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns("next-*"))
        writer.release()
    directory = bookie_directory(copy)
    flip_a_group(directory)
    with pytest.raises(StorageError, match="acknowledged records are missing: 1") as refused:
        BookieStorage(directory, directory.name, b"")
    assert LOSS_FILE in refused.value.hint
    (directory / LOSS_FILE).touch()
    with embedbk.open(copy) as bk:
        assert not (directory / LOSS_FILE).exists()
        with bk.open_ledger(ledger_id, recover=True) as reader:
            assert [bytes(entry) for entry in reader.read()] == [b"%d" % number for number in range(40)]
    assert rows(directory)[ledger_id][1] == 1
    assert list((directory / "journal").glob("damaged-*"))
