"""`embedbk quorum replace`: a member that lost its disk votes again, as operators do it (RAFT.md, 7)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.cluster import Cluster
from tests.cluster.test_members import PATIENT, embedbk_command, status

pytestmark = pytest.mark.xdist_group("processes")


@contextmanager
def joined(name: str, home: Path, seeds: str) -> Iterator[None]:
    """A member with an empty directory, once it serves; stopped at the end."""
    command = [
        "metadata",
        "--join",
        seeds,
        "--dir",
        str(home),
        "--name",
        name,
        "--listen",
        "tcp://127.0.0.1:0",
    ]
    with home.with_suffix(".log").open("wb") as log:
        line = [sys.executable, "-m", "embedbk", *command]
        running = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log)
    assert running.stdout is not None
    try:
        assert json.loads(running.stdout.readline())["endpoints"]
        yield
    finally:
        running.terminate()
        running.wait(60)
        running.stdout.close()


def replace(name: str, at: str, *more: str) -> tuple[int, dict[str, Any]]:
    said = embedbk_command("quorum", "replace", name, "--at", at, "--json", "--timeout-s", "40", *more)
    return said[0], json.loads(said[1])


def test_a_member_that_lost_its_disk_is_replaced_and_the_next_one_only_at_a_risk_that_is_accepted(
    tmp_path: Path,
) -> None:
    """RAFT.md, 7: "one replacement an hour, unless the risk is accepted by name"."""
    data = tmp_path / "data"
    with Cluster(data, bookies=1, members=3, settings=PATIENT) as cluster, ExitStack() as fresh:
        at = cluster.url
        code, said = replace("m3", at)
        assert code == 1
        assert said["message"] == "nobody waits to take the place of m3"
        for name in ("m3", "m2"):
            cluster.kill(name)
            shutil.rmtree(data / name)
            fresh.enter_context(joined(name, tmp_path / f"new-{name}", at.removeprefix("embedbk://")))
            if name == "m3":
                code, said = replace(name, at)
                assert code == 0, said
        said_so = embedbk_command("quorum", "status", "--at", at)[1]
        assert "m2 lost its disk and learns again: embedbk quorum replace m2" in said_so
        code, said = replace("m2", at, "--timeout-s", "3")
        assert code == 1
        assert "m2 would be the second within an hour" in said["message"]
        code, said = replace("m2", at, "--accept-risk", "00")
        assert code == 1
        assert "this cluster's token is another one" in said["message"]
        token = status(at)["cluster_token"]
        code, said = replace("m2", at, "--accept-risk", token)
        assert code == 0, said
        votes = sorted((each["name"], each["role"], each["answers"]) for each in status(at)["members"])
        assert votes == [(name, "voter", True) for name in ("m1", "m2", "m3")]
        with embedbk.open(at, settings=PATIENT) as bk, bk.log("orders").writer() as orders:
            orders.append(b"on")
