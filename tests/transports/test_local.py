"""What only the transport inside one process does; what it shares with the others is in test_conformance.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
LISTEN = """
from embedbk.ports import Identity
from embedbk.transports.local import LocalTransport
print(LocalTransport(Identity("bookie", "b1", b"b" * 16, b"")).listen("local://*"))
"""


def test_no_process_gives_a_name_that_one_before_it_gave() -> None:
    """P7.2: what a killed process registered stands in the catalog until its sessions end; a client that
    starts there waits for endpoints (`Runtime.wait_for_bookies`), and would be served by a bookie that is not there."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    given = [
        subprocess.run(
            [sys.executable, "-c", LISTEN], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert all(name.startswith("local://") for name in given)
    assert given[0] != given[1]
