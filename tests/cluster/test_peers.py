"""The peer commands by themselves: what they report, how they end, and what they say when they cannot serve."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import embedbk
from embedbk.client.beginning import holds_log
from tests.transports.zmtp import wait_until

pytestmark = pytest.mark.xdist_group("processes")

TIMEOUT_S = 120


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


class Started:
    """A peer started by hand, with both of its pipes."""

    def __init__(self, stack: ExitStack, *arguments: str) -> None:
        child_parent, self.parent_fd = os.pipe()
        self.ready_fd, child_ready = os.pipe()
        fds = ["--parent-fd", str(child_parent), "--ready-fd", str(child_ready)]
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "embedbk", *arguments, *fds],
            pass_fds=(child_parent, child_ready),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        stack.enter_context(self.popen)
        stack.callback(self.popen.kill)
        os.close(child_parent)
        os.close(child_ready)

    def report(self) -> dict[str, object]:
        """The one line on the ready pipe, which is closed behind it."""
        with os.fdopen(self.ready_fd) as ready:
            assert select.select([ready], [], [], TIMEOUT_S)[0]
            said = ready.read()
        assert said.count("\n") == 1
        return json.loads(said)

    def end(self) -> tuple[int, str]:
        _, stderr = self.popen.communicate(timeout=TIMEOUT_S)
        # What it says of every new directory is test_beginning.py's.
        said = [line for line in stderr.splitlines(keepends=True) if " begins in " not in line]
        return self.popen.returncode, "".join(said)


def metadata(stack: ExitStack, directory: Path, *more: str) -> Started:
    begins = ["--new"] if not holds_log(directory) else []
    return Started(stack, "metadata", *begins, "--dir", str(directory), *more)


def bookie(stack: ExitStack, directory: Path, endpoints: object, *more: str) -> Started:
    return Started(
        stack, "bookie", "--id", "b1", "--dir", str(directory), "--metadata", str(endpoints), *more
    )


def run(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """A peer that serves nobody, in a process of its own: it hears signals in its own way for as long as it lasts."""
    return subprocess.run(
        [sys.executable, "-m", "embedbk", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def test_a_member_reports_the_port_it_got_and_ends_with_its_parents_pipe(
    tmp_path: Path, stack: ExitStack
) -> None:
    peer = metadata(stack, tmp_path / "m")
    report = peer.report()
    assert report["role"] == "metadata"
    assert report["pid"] == peer.popen.pid
    [endpoint] = report["endpoints"]
    socket.create_connection(("127.0.0.1", int(endpoint.rpartition(":")[2])), TIMEOUT_S).close()
    os.close(peer.parent_fd)
    assert peer.end() == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_peer_in_order(tmp_path: Path, stack: ExitStack, number: int) -> None:
    peer = metadata(stack, tmp_path / "m")
    peer.report()
    peer.popen.send_signal(number)
    assert peer.end() == (0, "")


def test_a_bookie_reports_when_it_is_registered_and_ends_while_it_waits_for_that(
    tmp_path: Path, stack: ExitStack
) -> None:
    member = metadata(stack, tmp_path / "m")
    endpoint = member.report()["endpoints"][0]
    peer = bookie(stack, tmp_path / "b", endpoint)
    report = peer.report()
    assert report["id"] == "b1"
    assert len(bytes.fromhex(report["incarnation"])) == 16
    peer.popen.terminate()
    assert peer.end() == (0, "")
    member.popen.kill()
    member.popen.wait(TIMEOUT_S)
    alone = bookie(stack, tmp_path / "b", endpoint)  # Nobody is there now.
    waiting = bookie(stack, tmp_path / "c", "-")  # And this one has not been told where.
    for each in (alone, waiting):
        os.close(each.parent_fd)
        assert each.end() == (0, "")


def test_a_starter_may_have_very_many_open_files(tmp_path: Path) -> None:
    """Its pipe has a descriptor above 1,023 then, which a peer waits for like any other."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(before[1], 2048)), before[1]))
        low, parent_fd = os.pipe()
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1024)
        arguments = ["bookie", "--id", "b1", "--dir", str(tmp_path / "b1"), "--metadata", "-"]
        waiting = subprocess.Popen(
            [sys.executable, "-m", "embedbk", *arguments, "--parent-fd", str(high)],
            pass_fds=(high,),
            stderr=subprocess.PIPE,
            text=True,
        )
        for fd in (low, high, parent_fd):
            os.close(fd)
    with waiting:
        _, said = waiting.communicate(timeout=TIMEOUT_S)
    assert (waiting.returncode, said) == (0, "")


def test_a_stopped_bookie_is_replaced_by_a_copy_of_its_directories(tmp_path: Path, stack: ExitStack) -> None:
    """P7.9: its socket accepts connections and says nothing; beside one that answers a copy is refused."""
    [endpoint] = metadata(stack, tmp_path / "m").report()["endpoints"]
    first = bookie(stack, tmp_path / "b", endpoint)
    assert "error" not in first.report()
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    beside = bookie(stack, tmp_path / "c", endpoint)
    assert "runs already at" in str(beside.report()["message"])
    assert beside.end()[0] == 1
    first.popen.send_signal(signal.SIGSTOP)
    copy = bookie(stack, tmp_path / "c", endpoint)
    assert "error" not in copy.report()
    first.popen.send_signal(signal.SIGCONT)
    copy.popen.terminate()
    assert copy.end()[0] == 0


def test_an_embedded_cluster_that_lost_a_bookie_for_good_is_whole_again_by_the_advice_of_its_error(
    tmp_path: Path, stack: ExitStack
) -> None:
    """P7.2: nothing takes the place of a bookie by itself. So the error, which also says what to do where the directory
    cannot be put back, is followed by its letter."""
    data = tmp_path / "data"
    with embedbk.open(data, bookies=3) as bk, bk.log("orders").writer() as orders:
        orders.append_many([b"%d" % each for each in range(100)])
    shutil.rmtree(data / "b2")
    with pytest.raises(embedbk.StorageError, match="embedbk bookie replace ID"):
        embedbk.open(data)
    member = metadata(stack, data / "metadata")
    [endpoint] = member.report()["endpoints"]
    at = ["--at", str(endpoint).replace("tcp://", "embedbk://")]
    quick = ("--repair-grace-s", "1", "--audit-s", "2")
    peers = {name: bookie(stack, data / name, endpoint, "--id", name, *quick) for name in ("b1", "b3")}
    assert all("error" not in each.report() for each in peers.values())
    replaced = run(["bookie", "replace", "b2", "--yes", *at], tmp_path)
    assert replaced.returncode == 0, replaced.stderr
    peers["b2"] = bookie(stack, data / "b2", endpoint, "--id", "b2", *quick)
    assert "error" not in peers["b2"].report()
    wait_until(lambda: run(["audit", *at], tmp_path).returncode == 0, TIMEOUT_S)
    for peer in (*peers.values(), member):
        peer.popen.terminate()
        assert peer.end()[0] == 0
    with embedbk.open(data, create=False) as bk:
        assert [each.state for each in bk.bookies()] == ["writable"] * 3
        assert [bytes(entry) for entry in bk.log("orders").read()] == [b"%d" % each for each in range(100)]


def devices(root: Path, ledger_count: int) -> list[str]:
    """A bookie's arguments for two journals and so many ledger directories, each where another device could be."""
    journals = [str(root / f"journal{number}") for number in (1, 2)]
    ledgers = [str(root / f"ledgers{number}") for number in range(1, ledger_count + 1)]
    return [
        *(part for path in journals for part in ("--journal-dir", path)),
        *(part for path in ledgers for part in ("--ledger-dir", path)),
    ]


def test_a_bookie_over_several_devices_keeps_what_it_acknowledged_when_it_is_killed(
    tmp_path: Path, stack: ExitStack
) -> None:
    """I40, P7.2: two journals and two ledger directories under one bookie, killed twice; then a third one joins."""
    [endpoint] = metadata(stack, tmp_path / "m").report()["endpoints"]
    client = "embedbk://" + endpoint.removeprefix("tcp://")
    ids: list[int] = []
    for round_, more in enumerate(
        ([*devices(tmp_path, 2)], [*devices(tmp_path, 2)], [*devices(tmp_path, 3), "--expand"])
    ):
        peer = bookie(stack, tmp_path / "b", endpoint, *more)
        assert "error" not in peer.report()
        with embedbk.open(client) as bk:
            for ledger_id in ids:
                with bk.open_ledger(ledger_id, recover=True) as ledger:
                    found = [bytes(entry.data) for entry in ledger.read()]
                assert found == [b"%d %d" % (ledger_id, number) for number in range(100)]
            for _ in range(4):
                writer = bk.create_ledger()
                ids.append(writer.ledger_id)
                writer.add_many([b"%d %d" % (writer.ledger_id, number) for number in range(100)])
        if round_ < 2:
            peer.popen.kill()
            peer.popen.wait(TIMEOUT_S)
    peer.popen.terminate()
    assert peer.end() == (0, "")
    for path in ("journal1", "journal2", "ledgers1", "ledgers2", "ledgers3"):
        assert len(list((tmp_path / path).iterdir())) > 2, path
    fewer = bookie(stack, tmp_path / "b", endpoint, *devices(tmp_path, 2))
    assert "bookie 'b1' has directories for ['entries', 'entries-2', 'entries-3'" in str(
        fewer.report()["message"]
    )
    assert fewer.end()[0] == 1


def test_a_port_in_use_is_said_in_a_sentence_and_on_the_ready_pipe(tmp_path: Path, stack: ExitStack) -> None:
    taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
    peer = metadata(stack, tmp_path / "m", "--listen", endpoint)
    report = peer.report()
    code, said = peer.end()
    assert code == 1
    assert report["error"] == "UsageError"
    assert report["message"] == f"endpoint '{endpoint}' is in use"
    assert report["hint"]
    assert said == f"embedbk metadata: {report['message']} ({report['hint']})\n"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--listen", "tcp://0.0.0.0:0"], "leaves this machine"),
        (["--listen", "udp://127.0.0.1:0"], "not understood"),
        (["--listen", "ipc://relative"], "absolute path"),
        (["--journal-file-bytes", "5000000"], "journal_file_bytes=5000000"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, stack: ExitStack, more: list[str], says: str) -> None:
    peer = metadata(stack, tmp_path / "m", *more)
    report = peer.report()
    code, said = peer.end()
    assert code in (1, 2)
    assert report["error"] == "UsageError"
    assert said.count("\n") == 1
    assert says in said


def test_a_directory_is_served_by_one_process(tmp_path: Path, stack: ExitStack) -> None:
    first = metadata(stack, tmp_path / "m")
    first.report()
    second = metadata(stack, tmp_path / "m")
    assert "process has it open" in str(second.report()["message"])
    code, said = second.end()
    assert code == 1
    assert "Traceback" not in said
    assert first.popen.poll() is None


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path, stack: ExitStack) -> None:
    (tmp_path / "m").write_text("a file")
    peer = metadata(stack, tmp_path / "m")
    assert "is not a directory" in str(peer.report()["message"])
    assert peer.end()[0] == 1


def test_a_member_does_not_begin_in_a_bookies_directory(tmp_path: Path, stack: ExitStack) -> None:
    """P7.2, P10.3: a new cluster in the midst of its files would hide them from whoever looks."""
    (tmp_path / "b1" / "entries").mkdir(parents=True)
    peer = metadata(stack, tmp_path / "b1")
    assert "holds entries: it is a bookie's" in str(peer.report()["message"])
    assert peer.end()[0] == 1
    assert [path.name for path in (tmp_path / "b1").iterdir()] == ["entries"]


def test_a_bookie_that_no_parent_tells_of_its_metadata_is_refused(tmp_path: Path) -> None:
    ended = run(["bookie", "--dir", str(tmp_path / "b1"), "--id", "b1", "--metadata", "-"], tmp_path)
    assert ended.returncode == 1
    assert "--parent-fd names none" in ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["bookie"],
        ["bookie", "--id", "no/name", "--dir", "x", "--metadata", "tcp://127.0.0.1:1"],
        ["metadata", "--nonsense"],
        ["metadata", "--dir", "x", "--ready-fd", "three"],
        ["nonsense"],
        [],
    ],
)
def test_arguments_that_are_not_understood_end_with_2(tmp_path: Path, arguments: list[str]) -> None:
    ended = run(arguments, tmp_path)
    assert ended.returncode == 2
    assert "usage: embedbk" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not list(tmp_path.iterdir())


def test_without_a_ready_pipe_the_report_goes_to_standard_output(tmp_path: Path, stack: ExitStack) -> None:
    command = [sys.executable, "-m", "embedbk", "metadata", "--new", "--dir", str(tmp_path / "m")]
    popen = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(popen.kill)
    assert popen.stdout is not None
    assert json.loads(popen.stdout.readline())["role"] == "metadata"
    popen.terminate()
    assert popen.wait(TIMEOUT_S) == 0


def test_a_peer_loads_nothing_that_it_does_not_use() -> None:
    """Start-up is measured in imports: asyncio, rich and Spark are for others."""
    probe = (
        "import sys, embedbk.cli.peer, embedbk.host.bookie_node, embedbk.host.metadata_node;"
        "import embedbk.storage.bookie_storage, embedbk.metadata.client, embedbk.transports.zmq;"
        "print(*sorted({'asyncio', 'rich', 'typer', 'pyspark', 'pyarrow', 'concurrent.futures'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert said.split() == []
