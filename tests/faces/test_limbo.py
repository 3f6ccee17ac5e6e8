"""P7.4 through the whole house: a bookie's directory is restored from an older copy, and the bookie is told so."""

from __future__ import annotations

import shutil
from pathlib import Path

import embedbk
from embedbk.storage.bookie_storage import LOSS_FILE, BookieStorage
from embedbk.storage.identity import IDENTITY_FILE


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
