"""`embedbk spark archive | verify-archive | restore` without Spark; processes where one is limited or killed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from embedbk.cli import main
from embedbk.client.client import Client
from tests.archive.scenes import files_of, write

RUN = "import sys; from embedbk.cli import main; sys.exit(main(sys.argv[1:]))"


def command(bk: Client, *arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and error, by a client of its own."""
    given = ["spark", *map(str, arguments), "--at", bk.url, "--no-spark"]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(given)
    return code, out.getvalue(), err.getvalue()


def process(bk: Client, *arguments: object, before: Any) -> tuple[int, str, str]:
    """The same in a process, which calls `before` first. What it limits must not cut off the bytecode of all tests."""
    given = ["spark", *map(str, arguments), "--at", bk.url, "--no-spark"]
    done = subprocess.run(
        [sys.executable, "-B", "-c", RUN, *given],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=before,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_three_commands_in_their_turn(bk: Client, name: str, place: Path) -> None:
    write(bk, name, 40, 25)
    code, _, said = command(bk, "archive", name)
    assert code == 1 and "has no archive" in said and "Traceback" not in said
    code, out, _ = command(bk, "archive", name, "--create", place, "--json")
    told = json.loads(out)
    assert code == 0 and [each["outcome"] for each in told["ledgers"]] == ["copied", "copied"]
    assert told["place"] == str(place) and told["log_id"] == bk.log(name).log_id()
    code, out, said = command(bk, "verify-archive", name, "--against-bookies")
    assert (code, out) == (0, "") and "2 ledgers verified, 0 findings" in said
    into = f"into-{name}"
    options = ("--log", name, "--application", "backfill", "--number", 1)
    code, out, _ = command(bk, "restore", into, *options)
    assert code == 0 and "65 entries appended" in out
    code, out, _ = command(bk, "restore", into, *options)
    assert code == 0 and "done before" in out
    assert [bytes(each) for each in bk.log(into).read()] == [bytes(each) for each in bk.log(name).read()]

    path = next(place.rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    code, out, said = command(bk, "verify-archive", name)
    kinds = {json.loads(line)["kind"] for line in out.splitlines()}
    assert code == 2 and kinds == {"size", "hash", "file"} and "1 ledgers verified" in said
    place.rename(place.with_name("elsewhere"))
    code, out, said = command(bk, "verify-archive", name)
    assert code == 1 and "mounted" in said and "Traceback" not in said
    code, _, said = command(bk, "restore", into)
    assert code == 1 and "which archive" in said
    assert command(bk, "verify-archive", name, "--sample", "2")[0] == 1


def test_a_disk_that_is_full_in_the_middle_of_a_file(bk: Client, name: str, place: Path) -> None:
    """A real limit: no file of the job's process may be larger."""
    resource = pytest.importorskip("resource")
    with bk.log(name).writer() as writer:
        writer.append_many([os.urandom(1000) for _ in range(100)])

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    code, out, said = process(bk, "archive", name, "--create", place, before=limited)
    assert code == 3 and "failed" in out and "File too large" in out and "Traceback" not in said
    assert files_of(place) == []
    code, out, _ = command(bk, "archive", name)
    assert code == 0 and "copied" in out


def test_a_job_that_is_killed_by_its_system_is_gone_on_with(bk: Client, name: str, place: Path) -> None:
    """`kill -9` where it stands, with its session still alive; the next job waits for nothing but that."""
    with bk.log(name).writer() as writer:
        writer.append_many([os.urandom(1000) for _ in range(3000)])
    assert command(bk, "archive", name, "--create", place, "--min-size", 1 << 40)[0] == 0
    assert bk.url is not None
    given = ["spark", "archive", name, "--rate", "1000", "--at", bk.url, "--no-spark"]
    job = subprocess.Popen([sys.executable, "-c", RUN, *given])
    while not list(place.rglob("_temp-*")):  # Bounded by the test's time.
        assert job.poll() is None
    job.kill()
    job.wait()
    code, out, _ = command(bk, "archive", name)
    while code == 1:  # Its session is not over yet.
        code, out, _ = command(bk, "archive", name)
    assert code == 0 and "copied" in out
    assert not list(place.rglob("_temp-*"))
    assert command(bk, "verify-archive", name)[0] == 0
