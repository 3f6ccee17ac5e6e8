"""Nothing outlives whoever started it: SIGKILL of the parent leaves no process, in whatever state it was."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("processes")

TIMEOUT_S = 120

STARTER = """
import json, sys
from embedbk.cluster import Cluster
from embedbk.config import Settings

cluster = Cluster(sys.argv[1], bookies=2, settings=Settings(open_timeout_s=60.0)).start()
print(json.dumps([peer.pid for peer in cluster.processes.values()]), flush=True)
sys.stdin.read()
"""


def children(pid: int) -> list[int]:
    """Of all its threads, and theirs in turn."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # It has ended since it was listed.
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # So has this thread.
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *children(child)]
    return found


def pidfds(pids: list[int]) -> list[int]:
    return [os.pidfd_open(pid) for pid in pids]


def assert_all_end(fds: list[int]) -> None:
    for fd in fds:
        ready, _, _ = select.select([fd], [], [], TIMEOUT_S)
        os.close(fd)
        assert ready, "a process outlived its parent"


def wait_for(demo: subprocess.Popen[str], moment: str) -> None:
    assert demo.stderr is not None
    said: list[str] = []
    for line in demo.stderr:
        said.append(line)
        if moment in line:
            return
    raise AssertionError(f"the demo ended with {demo.wait()} before {moment!r}: {''.join(said)}")


def test_peers_end_when_their_starter_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pids = json.loads(starter.stdout.readline())
        assert sorted(pids) == sorted(children(starter.pid))
        fds = pidfds(pids)
        starter.kill()
        assert_all_end(fds)


@pytest.mark.parametrize("moment", ["owns the log", "bookie", "stopped (SIGSTOP)", "continued (SIGCONT)"])
def test_a_killed_demo_leaves_no_process_also_none_that_is_stopped(tmp_path: Path, moment: str) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "embedbk", "demo", "--no-spark", "--lines", "2000", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as demo:
        wait_for(demo, moment)
        demo.send_signal(signal.SIGSTOP)  # So that its children stay what they are while they are counted.
        fds = pidfds(children(demo.pid))
        assert len(fds) >= 6
        demo.kill()
        assert_all_end(fds)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_demo_that_is_told_to_end_clears_everything_away(tmp_path: Path, number: int) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    # However this was started: a job in the background ignores SIGINT, one under nohup SIGHUP, and so do its children.
    heard = ["env", "--default-signal=INT,HUP"]
    command = [*heard, sys.executable, "-m", "embedbk", "demo", "--no-spark", "--lines", "100000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as demo:
        wait_for(demo, "owns the log")
        fds = pidfds(children(demo.pid))
        demo.send_signal(number)
        _, said = demo.communicate(timeout=TIMEOUT_S)
        assert_all_end(fds)
    assert demo.returncode == 128 + number
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())
