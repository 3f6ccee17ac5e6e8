"""System calls that are interrupted or do less than asked, and the alignment of direct I/O, on the real disk (I51)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.crash.test_sanitizers import NATIVE, SOURCES, compiler


def test_interrupted_and_short_calls_are_carried_on_and_direct_ones_are_aligned(tmp_path: Path) -> None:
    """I51, D10, D16: whatever part of a call the system does, what was appended is read back, byte by byte."""
    if compiler is None:
        pytest.skip("no C compiler here")
    program = tmp_path / "short_transfers"
    wrapped = [f"-Wl,--wrap={name}" for name in ("pread", "pwrite", "open")]
    command = [compiler, "-std=gnu11", "-g", "-O1", "-pthread", f"-I{NATIVE}", *wrapped]
    command += [Path(__file__).with_name("short_transfers.c"), *SOURCES, "-o", program]
    built = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    run = subprocess.run(
        [program, tmp_path / "direct", tmp_path / "buffered"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.strip() in ("direct", "buffered only")  # A temporary directory may know no direct I/O.
