"""P7.4 through the whole house: a bookie's directory is restored from an older copy, and the bookie is told so."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import embedbk
from embedbk.errors import StorageError
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.identity import IDENTITY_FILE
from embedbk.storage.layout import LOSS_FILE

PROJECT = Path(__file__).parents[2]


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


def bookie_directories(root: Path) -> list[Path]:
    return sorted(path.parent for path in root.rglob("entries") if (path / IDENTITY_FILE).exists())


def test_a_bookie_restored_from_an_older_copy_loses_nothing_that_was_acknowledged(
    tmp_path: Path, settings: embedbk.Settings
) -> None:
    """P7.4, I32, D13: its old copy knows nothing of the ledger; the ledger closes at its true end all the same."""
    root = tmp_path / "data"
    with embedbk.open(root, bookies=3, settings=settings):
        pass
    directory = bookie_directories(root)[0]
    shutil.copytree(directory, tmp_path / "copy")
    with embedbk.open(root, settings=settings) as bk:
        writer = bk.create_ledger()
        writer.add_many([b"%d" % number for number in range(100)])
        ledger_id = writer.ledger_id
        writer.release()
    shutil.rmtree(directory)
    shutil.copytree(tmp_path / "copy", directory)
    storage = BookieStorage(directory, directory.name, b"", may_have_lost=True)
    storage.close()  # Stopped before it could list anything: the note stays.
    assert (directory / LOSS_FILE).exists()
    with embedbk.open(root, settings=settings):
        assert not (directory / LOSS_FILE).exists()
    assert rows(directory) == {ledger_id: (1, 1)}
    with embedbk.open(root, settings=settings) as bk, bk.open_ledger(ledger_id, recover=True) as reader:
        assert [bytes(entry) for entry in reader.read()] == [b"%d" % number for number in range(100)]
    assert rows(directory)[ledger_id][1] == 1


def journal_groups(directory: Path) -> dict[Path, list[int]]:
    """Where the groups of each file of the bookie's journal begin."""
    found = {}
    for path in sorted((directory / "journal").glob("journal-*")):
        content = path.read_bytes()
        found[path] = [at for at in range(4096, len(content), 4096) if content[at + 4 : at + 8] == b"EBKG"]
    return found


def flip_a_group(path: Path, at: int) -> None:
    """One byte of its first record."""
    content = bytearray(path.read_bytes())
    content[at + 100] ^= 1
    path.write_bytes(content)


ADD_AND_DIE = """
import os, signal, sys
import embedbk
bk = embedbk.open(sys.argv[1], bookies=3, settings=embedbk.Settings(open_timeout_s=60.0))
writer = bk.create_ledger()
for number in range(40):
    writer.add(b"%d" % number)
print(writer.ledger_id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_bookie_with_a_damaged_journal_goes_on_when_its_owner_says_so(
    tmp_path: Path, settings: embedbk.Settings
) -> None:
    """P7.4, I32, I42, scenario 48: refused with a reason and a way out; told, it serves nothing before limbo, and the
    ledger closes at its true end with every entry."""
    root = tmp_path / "data"
    # Killed, so that nothing moves any more: a copy of files in use is no state that they ever had.
    killed = subprocess.run(
        [sys.executable, "-c", ADD_AND_DIE, str(root)],
        env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ledger_id = int(killed.stdout)
    # Each add waited for a group of its own at two of the three, so one of them has many.
    directory, path, groups = max(
        ((directory, path, groups) for directory in bookie_directories(root)
         for path, groups in journal_groups(directory).items()),
        key=lambda found: len(found[2]),
    )  # fmt: skip
    assert len(groups) > 20
    flip_a_group(path, groups[len(groups) // 2])
    with pytest.raises(StorageError, match=r"acknowledged records are missing: \d") as refused:
        BookieStorage(directory, directory.name, b"")
    assert LOSS_FILE in refused.value.hint
    (directory / LOSS_FILE).touch()
    with embedbk.open(root, settings=settings) as bk:
        assert not (directory / LOSS_FILE).exists()
        with bk.open_ledger(ledger_id, recover=True) as reader:
            assert [bytes(entry) for entry in reader.read()] == [b"%d" % number for number in range(40)]
    assert rows(directory)[ledger_id][1] == 1
    assert list((directory / "journal").glob("damaged-*"))
