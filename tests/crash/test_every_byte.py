"""Bytes of a store and of a journal changed one at a time, in C (D4, I31, I41, I42): `sweep_check.c` says how.

Every 97th byte of 256 KiB in the ordinary run; `./run test tests/crash/test_every_byte.py --every-byte` takes every
byte of the entries of 16 MiB, and every byte of a small log and of a journal, in three ways each, and some minutes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.crash.test_sanitizers import NATIVE, STORE_SOURCES, compiler


@pytest.mark.timeout(7200)
@pytest.mark.skipif(compiler is None, reason="no C compiler here")
def test_no_changed_byte_gives_a_wrong_answer(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    program = tmp_path / "sweep_check"
    check = Path(__file__).parent / "sweep_check.c"
    command = [compiler, "-std=gnu11", "-O2", "-pthread", f"-I{NATIVE}", check, *STORE_SOURCES, "-o", program]
    built = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    kib, step = ("16384", "1") if request.config.getoption("--every-byte") else ("256", "97")
    run = subprocess.run([program, kib, step], capture_output=True, text=True, timeout=7000, check=False)
    assert run.returncode == 0, run.stderr
    print(run.stdout)
    assert int(run.stdout.split()[0]) > 10_000
