"""Plant one mutant in a copy of the tree, and see who finds it.

The copy holds what a test needs and nothing of git: two mutants may be planted beside each other, and the tree that
the command was given is never touched.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.mutants.mutant import Mutant

__all__ = ["DoesNotApply", "Outcome", "copied_tree", "hunt", "plant", "try_mutant", "untouched"]

PROJECT = Path(__file__).resolve().parent.parent.parent
COPIED = ("embedbk", "transports", "native", "tests")
TEST_TIMEOUT_S = 60  # For one directed test: a mutant that hangs is found too.
HUNT_TIMEOUT_S = 300
BUILD_TIMEOUT_S = 300
MEMORY_KIB_MAX = 4 << 20  # A mutant may well allocate for ever.
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class DoesNotApply(Exception):
    """The text that a patch replaces is not in its file exactly once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one mutant."""

    name: str
    rules: str
    what: str
    status: str  # "killed", or what is wrong: "survived", "does not apply", "broken", "not found by seeds".
    killed_by: tuple[str, ...]  # The tests that failed.
    seeds: int | None  # Random seeds to detection; None: not found by them, or not hunted.
    seeds_max: int | None  # Within how many it must be found; None: a deep one, for directed tests only.
    seconds: float
    detail: str = ""

    @property
    def is_killed(self) -> bool:
        return self.status == "killed"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@contextmanager
def copied_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="embedbk-mutant.") as name:
        tree = Path(name)
        ignored = shutil.ignore_patterns("__pycache__", ".*_cache", "build")
        for folder in COPIED:
            shutil.copytree(PROJECT / folder, tree / folder, symlinks=True, ignore=ignored)
        shutil.copy(PROJECT / "pyproject.toml", tree)
        yield tree


def plant(tree: Path, mutant: Mutant) -> None:
    """Make the mutant's edits.

    Raises:
        DoesNotApply: the code has changed since the mutant was written; it must be written anew.
    """
    for path, old, new in mutant.edits:
        file = tree / path
        text = file.read_text() if file.is_file() else ""
        if text.count(old) != 1:
            raise DoesNotApply(f"{path}: found {text.count(old)} times, not once: {old.strip()!r}")
        file.write_text(text.replace(old, new))


def _run(tree: Path, *words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """A Python command in the tree, with bounded memory and time, seeing no other tree."""
    limited = ["sh", "-c", f'ulimit -v {MEMORY_KIB_MAX}; exec "$@"', "sh", sys.executable, *words]
    # The limit is one of addresses: each thread of pyarrow and of a cluster would else reserve an arena of its own.
    words_of_libc = {"MALLOC_ARENA_MAX": "2"}
    environment = {**os.environ, **words_of_libc, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    return subprocess.run(
        limited, cwd=tree, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def limit_of_tests_s(tests: tuple[str, ...]) -> float:
    """For a run of them all: each name stands for one test, or a few, that have a limit of their own."""
    return TEST_TIMEOUT_S * max(4, len(tests))


def run_tests(tree: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    options = (
        "-q",
        "-rfE",
        "--tb=line",
        "--no-header",
        "-p",
        "no:cacheprovider",
        f"--timeout={TEST_TIMEOUT_S}",
    )
    return _run(tree, "-m", "pytest", *options, *tests, timeout_s=limit_of_tests_s(tests))


def hunt(tree: Path, world: str, seeds: int) -> tuple[int | None, str]:
    """How many random seeds it takes until a promise is broken, or None; and what was broken."""
    words = ("-m", "tests.mutants.seeds", world, str(seeds))
    try:
        done = _run(tree, *words, timeout_s=HUNT_TIMEOUT_S)
    except subprocess.TimeoutExpired as late:
        # It reports every seed that it begins: it hangs in the last one.
        said = late.stdout or b""
        begun = said.decode().split() if isinstance(said, bytes) else said.split()
        return len(begun), "hangs"
    if done.returncode == 0:
        return None, ""
    last = done.stderr.strip().splitlines()[-1:] or [""]
    return len(done.stdout.split()), last[0]


def _is_among(test: str, failed: tuple[str, ...]) -> bool:
    """Whether this test failed, in one of its parametrizations at least, or one of this file."""
    return any(name == test or name.startswith((f"{test}[", f"{test}::")) for name in failed)


def build(tree: Path) -> str | None:
    """Compile the copy's C; the last line of the compiler's when it does not."""
    (tree / "embedbk" / "_native.abi3.so").unlink(missing_ok=True)
    done = _run(tree, "native/build_native.py", timeout_s=BUILD_TIMEOUT_S)
    return None if done.returncode == 0 else (done.stderr.strip() or "no word").splitlines()[-1]


def try_mutant(mutant: Mutant, *, with_seeds: bool = True, seeds_max: int | None = None) -> Outcome:
    """Plant it, run its directed tests, then random seeds where it is a shallow one.

    seeds_max: hunt within this many whatever the catalogue says, and only to be told (to find the right number).
    """
    began = time.monotonic()
    killed_by: tuple[str, ...] = ()
    seeds: int | None = None

    def outcome(status: str, detail: str = "") -> Outcome:
        seconds = round(time.monotonic() - began, 1)
        return Outcome(
            mutant.name,
            mutant.rules,
            mutant.what,
            status,
            killed_by,
            seeds,
            mutant.seeds,
            seconds,
            detail,
        )

    with copied_tree() as tree:
        try:
            plant(tree, mutant)
        except DoesNotApply as why:
            return outcome("does not apply", str(why))
        if mutant.is_native and (error := build(tree)) is not None:
            return outcome("broken", error)
        try:
            done = run_tests(tree, mutant.killers)
        except subprocess.TimeoutExpired:
            killed_by = ("(time limit)",)
        else:
            killed_by = tuple(dict.fromkeys(_FAILED.findall(done.stdout)))
            if done.returncode == 0:
                return outcome("survived")
            if done.returncode == -signal.SIGABRT and mutant.is_native:
                killed_by = ("(an assertion in C)",)  # It ends the process, with all tests that come behind.
                return outcome("killed")
            if done.returncode != 1 or not killed_by:  # Nothing collected, or the code cannot be imported.
                return outcome("broken", (done.stdout + done.stderr)[-400:])
            if blind := [test for test in mutant.killers if not _is_among(test, killed_by)]:
                return outcome("survived", f"not found by {', '.join(blind)}")
        limit = seeds_max if seeds_max is not None else mutant.seeds
        if with_seeds and limit is not None:
            seeds, broken = hunt(tree, mutant.world, limit)
            if seeds is None and mutant.seeds is not None:
                return outcome("not found by seeds", f"not within {limit} seeds")
            return outcome("killed", broken)
        return outcome("killed")


def untouched(mutants: tuple[Mutant, ...]) -> str | None:
    """What fails of the same tests on a copy without a mutant, where all must pass; else a kill would mean nothing."""
    with copied_tree() as tree:
        where = _run(tree, "-c", "import embedbk; print(embedbk.__file__)", timeout_s=60)
        if not where.stdout.startswith(str(tree)):
            return f"the copy is not what is tested, but {where.stdout.strip() or where.stderr.strip()}"
        tests = dict.fromkeys(test for mutant in mutants for test in mutant.killers)
        try:
            done = run_tests(tree, tuple(tests))
        except subprocess.TimeoutExpired as late:
            return f"{len(tests)} tests took more than {late.timeout:.0f} s"
        return None if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]
