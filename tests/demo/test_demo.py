"""The demonstration itself, small, with real processes: everything is killed as in the long one, nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.demo.lines import copy_file
from embedbk.demo.worker_processes import WorkerProcesses
from embedbk.demo.writer import LOG

pytestmark = pytest.mark.xdist_group("processes")


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "embedbk", "demo", "--no-spark", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("count", [1, 6000])
def test_nothing_is_lost_when_a_bookie_and_two_writers_go(count: int) -> None:
    """P3.2, P3.3, P4, P5.2, P8.1, on the first lines of Python's own library."""
    ended = demo("--lines", str(count), "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["holds"]
    assert told["lines"] == told["read_back"] == told["acknowledged"] == count
    assert (told["acknowledged_lost"], told["out_of_order"], told["duplicated"]) == (0, 0, 0)
    assert told["old_writer_refused"]
    assert told["ledgers"] == min(count, 3)  # Those that closed empty left the list (P8.3).
    assert told["spark_rows"] is told["copied_rows"] is None
    assert told["archived_rows"] in (None, count)  # Where pyarrow is installed.
    assert told["scrub_found"] == 1
    assert told["metadata_members"] == 3
    assert told["leader_killed"] in ("m1", "m2", "m3")
    assert told["failover_ms"] > 0
    assert told["copies"] == {"3": count}  # On living bookies (P11.4).
    if count > 2:
        assert told["ensemble_changes"] >= 1
        assert told["takeover_ms"] > told["recovery_ms"] > 0
        assert told["lines_per_s"] > 0


def test_lines_are_kept_as_they_are_and_the_table_stands_on_standard_output(tmp_path: Path) -> None:
    """Empty lines, carriage returns, bytes that are no text, and an end without a newline are entries like any.
    Progress is shown on standard error."""
    file = tmp_path / "odd"
    file.write_bytes(b"\n\n\r\n\x00\xff\rnot a line end\n" + b"x" * (1 << 20) + b"\nlast, no newline")
    assert demo(str(file), "--json").returncode == 2  # The long line and its newline are one byte too many.
    file.write_bytes(b"\n\n\r\n\x00\xff\rnot a line end\n" + b"x" * ((1 << 20) - 1) + b"\nlast, no newline")
    ended = demo(str(file))
    assert ended.returncode == 0, ended.stderr
    table = dict(line.rsplit("  ", 1) for line in ended.stdout.splitlines() if "  " in line)
    told = {name.strip(): value.strip() for name, value in table.items()}
    assert (told["lines"], told["acknowledged and lost"], told["duplicated"]) == ("6", "0", "0")
    assert told["damaged copies found by the scrub, of 1 planted"] == "1"
    assert "Everything holds" in ended.stdout
    assert "killed (SIGKILL)" in ended.stderr
    assert "killed (SIGKILL)" not in ended.stdout


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "cannot be read: No such file or directory"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"ok\n" + b"x" * ((1 << 20) + 1)), "line 2 of"),
    ],
    ids=["missing", "directory", "empty", "long-line"],
)
def test_an_input_that_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, make, says: str) -> None:
    file = tmp_path / "input"
    make(file)
    ended = demo(str(file))
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("embedbk demo: ")
    assert ended.stderr.count("\n") == 1
    assert str(file) in ended.stderr
    assert says in ended.stderr


@pytest.mark.parametrize("arguments", [["--lines", "0"], ["--lines", "x"], ["--nonsense"], ["a", "b"]])
def test_arguments_that_are_not_understood_end_with_2(arguments: list[str]) -> None:
    ended = demo(*arguments)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_a_writer_that_finds_the_log_at_its_limit_says_so(tmp_path: Path) -> None:
    """A takeover keeps lines that were in flight. They may be all that the next writer was to append, and its starter
    waits until it hears of them."""
    (tmp_path / "given").write_bytes(b"one\ntwo\nthree\n")
    file = copy_file(str(tmp_path / "given"), tmp_path / "lines", None).path
    with WorkerProcesses(file, ("only",)) as workers, Cluster(tmp_path / "cluster", bookies=3) as cluster:
        with embedbk.open(cluster.url) as client, client.log(LOG).writer() as before:
            before.append_many([b"one\n", b"two\n"])
        (writer,) = workers.writers
        writer.tell("open", cluster.url)
        workers.until_ready(writer)
        writer.tell("go", 2)
        workers.until(lambda: workers.acknowledged == 2, writer)
