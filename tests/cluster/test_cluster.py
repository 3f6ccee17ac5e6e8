"""`embedbk.cluster`: processes that start together, end together, and come back on request with what they promised."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import embedbk
from embedbk.cli import main
from embedbk.cluster import Cluster
from embedbk.config import Settings
from embedbk.errors import LedgerFenced, OperationTimeout, StorageError, UsageError

pytestmark = pytest.mark.xdist_group("processes")

# Quick to make; and how long a busy machine takes to start a process is not what is asked.
QUICK = Settings(journal_file_bytes=2 << 20, open_timeout_s=60.0)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_cluster_serves_and_leaves_nothing_behind() -> None:
    settings = replace(QUICK, scrub_bytes_per_s=0)  # Bookies are told what was set.
    with Cluster(bookies=3, settings=settings) as cluster:
        told = Path(f"/proc/{cluster.processes['b1'].pid}/cmdline").read_bytes().split(b"\0")
        assert told[told.index(b"--scrub-bytes-per-s") + 1] == b"0"
        directory, url = cluster.directory, cluster.url
        pids = [peer.pid for peer in cluster.processes.values()]
        assert sorted(cluster.processes) == ["b1", "b2", "b3", "m1"]
        with embedbk.open(url) as bk, bk.log("orders").writer() as orders:
            assert orders.append(b"hello").entry_id == 0
    assert not any(is_alive(pid) for pid in pids)
    assert not directory.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(url)), timeout=5)
    cluster.stop()  # Twice is harmless.


def test_a_clean_stop_ends_every_process_with_0_and_keeps_the_entries(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data", bookies=3, settings=QUICK).start()
    peers = list(cluster.processes.values())
    with embedbk.open(cluster.url) as bk, bk.log("orders").writer() as orders:
        orders.append_many([b"%d" % number for number in range(1000)])
    cluster.stop()
    assert [peer.exit_code for peer in peers] == [0, 0, 0, 0]
    for log in (tmp_path / "data").glob("*.log"):  # Nothing was worth a line, but that it is new.
        assert " begins in " in log.read_text()
        assert log.read_text().count("\n") == 1
    with Cluster(tmp_path / "data", bookies=3, settings=QUICK) as again, embedbk.open(again.url) as bk:
        assert [bytes(entry) for entry in bk.log("orders").read()] == [
            b"%d" % number for number in range(1000)
        ]
    assert not list((tmp_path / "data").glob("*.log"))


def test_a_killed_bookie_serves_what_it_acknowledged_when_it_is_started_again() -> None:
    """P3.2: acknowledged is durable. The only copy is on a bookie that gets SIGKILL with appends in flight."""
    with Cluster(bookies=1, settings=QUICK) as cluster, embedbk.open(cluster.url) as bk:
        writer = bk.log("orders").writer()
        tickets = [writer.append_nowait(b"%d" % number) for number in range(5000)]
        tickets[2000].result()
        acknowledged = writer.lac
        cluster.kill("b1")
        assert cluster.processes["b1"].exit_code == -signal.SIGKILL
        writer.release()
        cluster.restart("b1")
        with bk.log("orders").writer() as again:  # Recovers what the first left.
            assert again.first_offset > acknowledged
        found = [bytes(entry) for entry in bk.log("orders").read()]
        assert found == [b"%d" % number for number in range(len(found))]


def test_a_writer_whose_log_was_taken_over_is_fenced_also_when_it_reaches_no_bookie_any_more() -> None:
    """P3.6, P4.5: the takeover is the news, not the lost links; a restarted bookie says it, else the metadata."""
    with Cluster(bookies=1, settings=QUICK) as cluster, embedbk.open(cluster.url) as bk:
        old, older = bk.log("orders").writer(), bk.log("invoices").writer()
        with embedbk.open(cluster.url) as other:
            for name, writer in (("orders", old), ("invoices", older)):
                writer.append(b"mine")
                with other.log(name).writer() as new:
                    new.append(b"yours")
        cluster.restart("b1")
        # On a busy machine the metadata may be heard before the bookie is up again.
        with pytest.raises(LedgerFenced, match=r"bookie b1 says so|log 'orders' was taken over"):
            old.append(b"mine again")
        cluster.kill("b1")
        with pytest.raises(LedgerFenced, match="log 'invoices' was taken over"):
            older.append(b"mine again")


def test_restarting_the_metadata_member_keeps_its_address_and_its_sessions() -> None:
    with Cluster(bookies=3, settings=QUICK) as cluster, embedbk.open(cluster.url) as bk:
        url = cluster.url
        with bk.log("orders").writer() as orders:
            orders.append(b"before")
            cluster.kill("m1")
            orders.append(b"without")  # Open ledgers need no metadata.
            cluster.restart("m1")
            orders.append(b"after")
        assert cluster.url == url
        assert [bytes(entry) for entry in bk.log("orders").read()] == [b"before", b"without", b"after"]


def test_a_member_that_did_not_start_keeps_its_address_for_the_next_time(tmp_path: Path) -> None:
    """Its bookies and clients look for it there."""
    with Cluster(tmp_path, bookies=1, settings=QUICK) as cluster, embedbk.open(cluster.url) as bk:
        url = cluster.url
        cluster.kill("m1")
        (tmp_path / "metadata").rename(tmp_path / "away")
        (tmp_path / "metadata").touch()
        with pytest.raises(StorageError, match="not a directory"):
            cluster.restart("m1")
        assert cluster.url == url
        (tmp_path / "metadata").unlink()
        (tmp_path / "away").rename(tmp_path / "metadata")
        cluster.restart("m1")
        assert cluster.url == url
        assert bk.logs() == []


def test_a_restart_that_cannot_begin_closes_nothing_of_others(tmp_path: Path) -> None:
    """The descriptors of a process that ended are closed once: later their numbers are those of other files."""
    others = []
    with Cluster(tmp_path, bookies=1, settings=QUICK) as cluster:
        cluster.kill("b1")
        (tmp_path / "b1.log").unlink(missing_ok=True)
        (tmp_path / "b1.log").mkdir()
        for _ in range(2):
            with pytest.raises(StorageError, match="Is a directory"):
                cluster.restart("b1")
            others += [os.open(tmp_path, os.O_RDONLY) for _ in range(3)]
        assert not cluster.processes["b1"].is_running
    for each in others:
        os.close(each)  # Each is still there.


def test_a_running_bookie_is_stopped_in_order_before_it_is_started_again() -> None:
    with Cluster(bookies=1, settings=QUICK) as cluster:
        old = cluster.processes["b1"]
        pid, incarnation = old.pid, old.incarnation
        cluster.restart("b1")
        assert old.exit_code == 0
        assert cluster.processes["b1"].pid != pid
        assert cluster.processes["b1"].incarnation == incarnation  # The same directories.


def test_local_sockets_do_as_well(tmp_path: Path) -> None:
    with Cluster(bookies=1, listen=f"ipc://{tmp_path}/socket", settings=QUICK) as cluster:
        assert sorted(path.name for path in tmp_path.iterdir()) == ["socket.b1", "socket.m1"]
        with embedbk.open(cluster.url) as bk, bk.log("orders").writer() as orders:
            orders.append(b"hello")
        cluster.kill("b1")  # Leaves its socket's file behind, which its successor takes.
        cluster.restart("b1")
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_in_use_is_refused_and_its_cluster_goes_on(tmp_path: Path) -> None:
    with Cluster(tmp_path, bookies=1, settings=QUICK) as cluster:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises((UsageError, StorageError), match=r"in use|has it open"):
            Cluster(tmp_path, bookies=1, settings=QUICK).start()
        assert len(os.listdir("/proc/self/fd")) == before
        with embedbk.open(cluster.url) as bk, bk.log("orders").writer() as orders:
            orders.append(b"hello")


def test_commands_reach_its_processes_by_its_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--at DIRECTORY: through the members that run, whichever those are; where none does, it is opened."""
    at = ["--at", str(tmp_path), "--timeout-s", "60"]
    with Cluster(tmp_path, bookies=1, members=3, settings=QUICK) as cluster:
        assert main(["log", "create", "orders", *at]) == 0
        with embedbk.open(cluster.url) as bk:
            assert bk.logs() == ["orders"]
        cluster.kill("m1")
        capsys.readouterr()
        assert main(["log", "list", *at]) == 0
        assert capsys.readouterr().out == "orders\n"


def test_a_wiped_bookie_is_not_let_in_under_its_old_name(tmp_path: Path) -> None:
    """P7.2: what it acknowledged is gone, so it must not answer as the one that acknowledged it."""
    with Cluster(tmp_path, bookies=1, settings=QUICK):
        pass
    shutil.rmtree(tmp_path / "b1")
    with pytest.raises(StorageError, match=r"b1.*known to the cluster with other directories") as refused:
        Cluster(tmp_path, bookies=1, settings=QUICK).start()
    assert refused.value.hint


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        with Cluster(tmp_path / name, bookies=1, settings=QUICK):
            pass
    shutil.rmtree(tmp_path / "ours" / "b1")
    shutil.copytree(tmp_path / "theirs" / "b1", tmp_path / "ours" / "b1")
    with pytest.raises((UsageError, StorageError), match=r"b1.*cluster"):
        Cluster(tmp_path / "ours", bookies=1, settings=QUICK).start()


def test_a_damaged_directory_is_refused_with_its_name(tmp_path: Path) -> None:
    with Cluster(tmp_path, bookies=1, settings=QUICK):
        pass
    (tmp_path / "b1" / "entries" / "IDENTITY").write_bytes(b"not an identity" * 1000)
    with pytest.raises(StorageError, match=r"b1.*entries"):
        Cluster(tmp_path, bookies=1, settings=QUICK).start()


def test_a_start_that_takes_too_long_is_ended_and_leaves_no_process(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, bookies=2, settings=Settings(open_timeout_s=0.001))
    with pytest.raises(OperationTimeout, match=r"not serving within 0\.001 s"):
        cluster.start()
    assert not cluster.processes
    with Cluster(tmp_path, bookies=2, settings=QUICK):
        pass  # What the first attempt left half-made is no obstacle.


def test_what_is_not_allowed_is_refused_before_anything_starts(tmp_path: Path) -> None:
    for bookies in (0, -1, 65, "3", True, 1.5):
        with pytest.raises(UsageError, match="whole number from 1 to 64"):
            Cluster(tmp_path, bookies=bookies)  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="not a directory"):
        Cluster(tmp_path / "file").start()
    cluster = Cluster(tmp_path / "data", bookies=1)
    with pytest.raises(UsageError, match="not started"):
        _ = cluster.directory
    with pytest.raises(UsageError, match="no process 'b7'"):
        cluster.kill("b7")
    with Cluster(bookies=1, settings=QUICK) as running:
        with pytest.raises(UsageError, match="runs already"):
            running.start()
        with pytest.raises(UsageError, match="no process 'b2'; there are m1, b1"):
            running.restart("b2")


@pytest.mark.parametrize(("executable", "frozen"), [(sys.executable, True), ("", False), (None, False)])
def test_an_application_that_is_frozen_or_embeds_python_is_refused_before_it_starts_itself_again(
    executable: str | None, frozen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen application would start itself for each peer, and each of those would again."""
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    with pytest.raises(UsageError, match=r"sys\.executable"):
        Cluster(tmp_path / "c", bookies=1).start()
    assert not (tmp_path / "c").exists()


def test_a_process_that_cannot_be_watched_is_ended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`start` leaves nothing running where it fails, also where the system refuses `pidfd_open`."""
    begun: list[int] = []

    def refuse(pid: int, flags: int = 0) -> int:
        begun.append(pid)
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    cluster = Cluster(tmp_path / "data", bookies=1, settings=QUICK)
    open_files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(
        StorageError, match="m1 cannot be watched, and was ended again: Operation not permitted"
    ):
        cluster.start()
    assert len(begun) == 1 and not is_alive(begun[0])
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_a_start_that_cannot_write_a_log_says_so(tmp_path: Path) -> None:
    """`start` raises what it promises, also for what the system refuses it; nothing is left running."""
    (tmp_path / "data" / "b1.log").mkdir(parents=True)
    cluster = Cluster(tmp_path / "data", bookies=1, settings=QUICK)
    with pytest.raises(
        StorageError, match=r"b1 cannot be started with its log .*b1\.log: Is a directory"
    ) as refused:
        cluster.start()
    assert refused.value.definite
    assert not cluster.processes
