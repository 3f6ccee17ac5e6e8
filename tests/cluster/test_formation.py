"""Blank members that begin a cluster together: processes of their own and `embedbk quorum init` (RAFT.md, 11)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.client.address import url_of
from embedbk.config import Settings

pytestmark = pytest.mark.xdist_group("processes")

PATIENT = Settings(open_timeout_s=60.0, operation_timeout_s=60.0)


class Blanks:
    """Members in empty directories, each of which is told of the others."""

    def __init__(self, directory: Path, *names: str) -> None:
        self.directory = directory
        self.at = {name: f"ipc://{directory}/{name}.sock" for name in names}
        self._running: list[subprocess.Popen[bytes]] = []
        for name in names:
            self.start(name)

    def start(self, name: str, *, seeds: str = "", called: str = "") -> None:
        seeds = seeds or self.url(*self.at)
        command = [sys.executable, "-m", "embedbk", "metadata", "--dir", str(self.directory / name)]
        command += ["--join", seeds, "--listen", self.at[name], "--name", called or name]
        self._running.append(
            subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.directory
            )
        )

    def url(self, *names: str) -> str:
        return url_of([self.at[name] for name in names])

    def stop(self) -> None:
        for each in self._running:
            each.terminate()
        for each in self._running:
            each.wait(60)


@contextmanager
def blanks(directory: Path, *names: str) -> Iterator[Blanks]:
    made = Blanks(directory, *names)
    try:
        yield made
    finally:
        made.stop()


def quorum(*arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "embedbk", "quorum", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def test_three_blank_members_begin_one_cluster_and_serve_it(tmp_path: Path) -> None:
    """2.10 "Formation": when all have promised the founder begins, the others join, and all of them vote."""
    with blanks(tmp_path, "m1", "m2", "m3") as members:
        everybody = members.url("m2", "m1", "m3", "m1")  # An address said twice is one.
        code, found = quorum("init", "--at", everybody, "--timeout-s", "90")
        assert code == 0, found
        assert {each["name"]: each["role"] for each in found["members"]} == dict.fromkeys(members.at, "voter")
        code, again = quorum("init", "--at", everybody)
        assert code == 1
        assert found["cluster_token"] in again["message"] and "nothing was begun" in again["message"]


def test_a_member_of_another_cluster_or_one_that_is_silent_makes_it_fail_and_nothing_begins(
    tmp_path: Path,
) -> None:
    """RAFT.md, 11: `init` against a member of an older database is refused and names it; all must answer."""
    older = tmp_path / "older"
    with (
        embedbk.open(older, settings=PATIENT, listen=f"ipc://{tmp_path}/older.sock"),
        blanks(tmp_path, "m1", "m2") as members,
    ):
        both = members.url("m1", "m2")
        code, found = quorum("init", "--at", f"{both},ipc:{tmp_path}/older.sock", "--timeout-s", "60")
        assert (code, found["error"]) == (1, "UsageError"), found
        assert "nothing was begun" in found["message"] and "already" in found["message"]
        code, found = quorum("init", "--at", f"{both},ipc:{tmp_path}/nobody.sock", "--timeout-s", "15")
        assert (code, found["error"]) == (1, "OperationTimeout"), found
        assert "nobody.sock" in found["message"] and "nothing was begun" in found["message"]
        assert not list(tmp_path.glob("m?/*"))
        code, found = quorum("status", "--at", both)
        assert (code, found["leader"]) == (1, None)
