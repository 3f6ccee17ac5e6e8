"""SIGKILL at any moment: every token that a process told as durable is found by the next one (I40)."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from embedbk.storage.journal import Journal

FILE_BYTES = 65536  # Rolls, trims and recycles many times a second.
WRITER = """
import sys
from embedbk.storage.journal import Journal

journal = Journal(sys.argv[1], file_bytes=65536)
told = 0
while True:
    for size in (10, 200, 3000, 9000):
        token = journal.append(size % 7, size, size.to_bytes(2, "little") * (size // 2), kick=False)
    journal.kick()
    journal.wait(token - 1)
    durable = journal.durable()
    if durable > told:
        print(durable, flush=True)
        told = durable
    journal.trim(durable - 50)
"""


@pytest.mark.parametrize("lines", [1, 40, 300])
def test_a_killed_writer_loses_nothing_it_told(tmp_path, lines):
    """The kill falls anywhere in a commit, a roll or the preparation of a file; three lives on one directory."""
    told = 0
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path / "j"], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(lines):
            told = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split("\n")[:-1]  # A last line without its end was cut by the kill.
        told = int(rest[-1]) if rest else told
        writer.stdout.close()
        writer.wait()
        with Journal(tmp_path / "j", file_bytes=FILE_BYTES) as journal:
            first = max(1, told - 50)
            records = list(journal.replay(first - 1))
            assert [token for token, *_ in records] == list(range(first, journal.next_token()))
            assert journal.next_token() > told
            assert all(
                bytes(body) == size.to_bytes(2, "little") * (size // 2) for _, _, size, body in records
            )
