"""The script of the two commands, as far as it goes without installing anything."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parent.parent / "run"
COMMANDS = ("demo", "test", "check", "sim", "mutants", "bench", "clean")


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", RUN, *words], cwd=cwd, capture_output=True, text=True, check=False)


def test_help_names_every_command(tmp_path: Path) -> None:
    done = run("help", cwd=tmp_path)
    assert done.returncode == 0
    assert [line.split()[1] for line in done.stdout.splitlines()] == list(COMMANDS)


@pytest.mark.parametrize("words", [(), ("prove",)])
def test_anything_else_is_a_usage_error(words: tuple[str, ...], tmp_path: Path) -> None:
    """EX_USAGE, with what is allowed on stderr; nothing is made where the user stands."""
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 64
    assert all(f"./run {command}" in done.stderr for command in COMMANDS)
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_what_it_installs_is_one_word_each() -> None:
    """`$(requirements dev)`: "One requirement a word". Seen: a marker with blanks, which pip took for five names."""
    project = tomllib.loads((RUN.parent / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    named = [line for name in ("dev", "spark", "spark-connect", "jdk") for line in extras[name]]
    for line in [*project["build-system"]["requires"], *named]:
        assert line.split() == [line]
