"""The README's Python runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import embedbk
from embedbk.cli import main

README = Path(__file__).parents[1] / "README.md"


def test_the_twenty_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first Python block, in an empty directory; what it prints is what a newcomer should see."""
    block = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(block.group(1), str(README), "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["0", "1", "2", "3"]
    assert [line.rsplit(" ", 1)[1] for line in printed] == ["b'first'", "b'second'", "b'third'", "b'fourth'"]


def test_the_lines_for_production_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second Python block; then nothing new is made where the directory is gone."""
    _, block, *_ = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    program = compile(block, str(README), "exec")
    exec(program, {})
    exec(program, {})
    (tmp_path / "production").rename(tmp_path / "away")
    (tmp_path / "production").mkdir()
    with pytest.raises(embedbk.StorageError, match="holds no cluster"):
        embedbk.open("production", create=False)
    assert not list((tmp_path / "production").iterdir())


def test_the_guards_run_under_rising_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The third Python block, twice: each time the lock has a higher epoch."""
    _, _, block, _ = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    program = compile(block, str(README), "exec")
    epochs = []
    for _ in range(2):
        exec(program, {})
        epochs.append(embedbk.FileGuard("report.json").highest())
    assert 0 < epochs[0] < epochs[1] and capsys.readouterr().out == "paid\npaid\n"


def test_the_state_on_several_nodes_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fourth Python block: the second time it goes on behind the first."""
    *_, block = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(compile(block, str(README), "exec"), {})
    assert capsys.readouterr().out == "[('alice', 100)] 1\n[('alice', 100)] 2\n"


def test_every_file_it_names_is_there() -> None:
    """A path in the reading order is a path in the tree."""
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
    for named in re.findall(r"`(tests/[\w./]+)`", README.read_text()):
        assert (README.parent / named).exists(), named


def test_each_command_is_one_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """As it is typed: the words lead to the command that they name, and not to another one."""
    nouns = "bookie|cluster|ledger|log|quorum|repair"
    named = set(re.findall(rf"embedbk ({nouns}) ([a-z][a-z-]+)", README.read_text()))
    assert len(named) > 20
    for words in [*sorted(named), ("health",), ("audit",), ("sql",)]:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        told = capsys.readouterr().out
        assert ended.value.code == 0 and told.startswith(f"usage: embedbk {' '.join(words)} ["), words
