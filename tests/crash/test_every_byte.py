"""Bytes of a store and of a journal changed one at a time, in C (D4, I31, I41, I42): `sweep_check.c` says how.

Every 97th byte of 256 KiB in the ordinary run; `./run test tests/crash/test_every_byte.py --every-byte` takes every
byte of an entry log of 16 MiB, of a small one and of a journal, in three ways each: 52 million changes, nine
minutes of processor time.
"""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.crash.test_sanitizers import NATIVE, STORE_SOURCES, compiler


@pytest.mark.timeout(14_400)
@pytest.mark.skipif(compiler is None, reason="no C compiler here")
def test_no_changed_byte_gives_a_wrong_answer(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    program = tmp_path / "sweep_check"
    check = Path(__file__).parent / "sweep_check.c"
    command = [compiler, "-std=gnu11", "-O2", "-pthread", f"-I{NATIVE}", check, *STORE_SOURCES, "-o", program]
    built = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    is_whole = request.config.getoption("--every-byte")
    kib, step, parts = ("16384", "1", os.cpu_count() or 1) if is_whole else ("256", "97", 1)

    def sweep(part: int) -> int:
        line = [program, kib, step, str(part), str(parts)]
        run = subprocess.run(line, capture_output=True, text=True, timeout=14_000, check=False)
        assert run.returncode == 0, run.stderr
        return int(run.stdout.split()[0])

    with ThreadPoolExecutor(parts) as pool:
        assert sum(pool.map(sweep, range(parts))) > 10_000
