"""Several metadata members, as users start them: processes of their own, joined, killed, started again (P10.3)."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.client.address import endpoints_of
from embedbk.cluster import Cluster
from embedbk.codec.metadata_messages import Operation
from embedbk.codec.quorum_messages import ChangeBase, QuorumTold
from embedbk.config import Settings
from embedbk.errors import UsageError
from embedbk.metadata.levels import LEVEL
from embedbk.quorum import Quorum
from tests.transports.zmtp import wait_until

pytestmark = pytest.mark.xdist_group("processes")

PATIENT = Settings(open_timeout_s=60.0, operation_timeout_s=60.0)


def embedbk_command(*arguments: object) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "embedbk", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, done.stdout, done.stderr


def status(at: object) -> dict[str, Any]:
    code, said, wrong = embedbk_command("quorum", "status", "--at", at, "--json")
    assert code == 0, wrong
    found: dict[str, Any] = json.loads(said)
    return found


def restart_all_beside_appends(cluster: Cluster) -> None:
    """P11.3: each process is another one behind it, and no append fails or is lost."""
    pids = {name: each.pid for name, each in cluster.processes.items()}
    with (
        embedbk.open(cluster.url, settings=PATIENT) as bk,
        ThreadPoolExecutor(1) as others,
        bk.log("meanwhile").writer(roll=embedbk.Roll(entries=100)) as meanwhile,
    ):
        restarted, count = others.submit(cluster.restart_all), 0
        while not restarted.done():
            meanwhile.append(b"%d" % count)
            count += 1
        restarted.result()
        assert [bytes(entry) for entry in bk.log("meanwhile").read()] == [
            b"%d" % each for each in range(count)
        ]
    assert not [name for name, pid in pids.items() if cluster.processes[name].pid == pid]


def test_a_cluster_grows_to_three_members_and_outlives_each_of_its_leaders(tmp_path: Path) -> None:
    """RAFT.md, 7: one becomes three by one change; every leader in turn is killed; no call fails, nothing is lost."""
    data = tmp_path / "data"
    with (
        Cluster(data, bookies=3, settings=PATIENT) as cluster,
        embedbk.open(cluster.url, settings=PATIENT) as bk,
    ):
        with bk.log("orders").writer() as orders:
            orders.append(b"of one")
        assert cluster.leader() == "m1"
    with Cluster(data, bookies=3, members=3, settings=PATIENT) as cluster:
        assert sorted(cluster.processes) == ["b1", "b2", "b3", "m1", "m2", "m3"]
        url = cluster.url
        assert url.count(",") == 2
        with embedbk.open(url, settings=PATIENT) as bk:
            killed = []
            for _ in range(3):
                leader = cluster.leader()
                cluster.kill(leader)
                killed.append(leader)
                with bk.log("orders").writer() as orders:  # Two ledgers and several changes of the metadata.
                    orders.append(leader.encode())
                cluster.restart(leader)
            assert [bytes(entry) for entry in bk.log("orders").read()] == [
                b"of one",
                *(each.encode() for each in killed),
            ]
        told = status(data)
        measured = told["calibration"]["measured"]
        assert all(each["syncs"] for each in measured.values()), measured
        assert any(each["round_trips"] and each["stalls"] for each in measured.values()), measured
        members = [(each["name"], each["role"], each["answers"]) for each in told["members"]]
        assert sorted(members) == [(name, "voter", True) for name in ("m1", "m2", "m3")]
        assert told["tolerance"] == "of 3 voters 2 commit and 2 elect: 1 may fail"
        to = next(name for name in cluster.members if name != told["leader"])
        code, _, wrong = embedbk_command("quorum", "transfer", "--to", to, "--at", url)
        assert code == 0, wrong
        assert cluster.leader() == to
        restart_all_beside_appends(cluster)
    with pytest.raises(UsageError, match=r"has 3 metadata members: m1, m2, m3 \(give members=3\)"):
        Cluster(data, bookies=3).start()
    with Cluster(data, bookies=3, members=3, settings=PATIENT) as cluster:
        assert cluster.url == url, "each where it was"
        with embedbk.open(cluster.url, settings=PATIENT) as bk:
            assert len(list(bk.log("orders").read())) == 4


def test_a_cluster_is_opened_again_where_others_took_the_ports_of_its_members(tmp_path: Path) -> None:
    """RAFT.md, 11: members that all moved find each other by `--join`. The ports were any free ones, so while the
    cluster is stopped any program may get them."""
    data = tmp_path / "data"
    with Cluster(data, bookies=1, members=3, settings=PATIENT) as cluster:
        before = endpoints_of(cluster.url)
        with embedbk.open(cluster.url, settings=PATIENT) as bk:
            bk.create_log("orders", ensemble_size=1, write_quorum=1, ack_quorum=1)
    with ExitStack() as others:
        for endpoint in before:
            other = others.enter_context(socket.socket())
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", int(endpoint.rpartition(":")[2])))
            other.listen()
        with Cluster(data, bookies=1, members=3, settings=PATIENT) as cluster:
            assert not set(before) & set(endpoints_of(cluster.url))
            with embedbk.open(cluster.url, settings=PATIENT) as bk:
                assert bk.logs() == ["orders"]


def test_whoever_must_not_join_is_told_why_and_nothing_is_made(tmp_path: Path) -> None:
    """P10.3: seeds of two clusters, a used directory, a copy of a member's directory beside it, nobody to let vote."""
    here, there, new = tmp_path / "here", tmp_path / "there", tmp_path / "new"
    with (
        Cluster(here, bookies=1, members=3, settings=PATIENT) as one,
        Cluster(there, bookies=1, settings=PATIENT) as other,
    ):
        both = ",".join(address.removeprefix("embedbk://") for address in (one.url, other.url))
        code, _, said = embedbk_command("metadata", "--join", both, "--dir", new)
        assert code == 1
        assert "belong to different clusters" in said
        assert not new.exists()
        code, _, said = embedbk_command("metadata", "--new", "--dir", here / "m2")
        assert code == 1
        assert "holds a member's log already; nothing was changed" in said
        code, _, said = embedbk_command("metadata", "--dir", here / "m2", "--name", "m9")
        assert code == 1
        follower = next(name for name in ("m2", "m3") if name != one.leader())
        copy = tmp_path / "copy"
        shutil.copytree(here / follower, copy)
        (copy / "OWNER").unlink(missing_ok=True)
        code, _, said = embedbk_command("metadata", "--dir", copy, "--listen", "tcp://127.0.0.1:0")
        assert code == 1, said
        assert "another process runs as" in said or "in use" in said or "copy" in said
        code, _, said = embedbk_command("quorum", "join", "--at", other.url)
        assert code == 1
        assert "nobody waits to join" in said
        assert status(here)["is_joint"] is False
        assert one.leader() in one.members


def test_a_new_cluster_has_the_newest_level_and_it_stays(tmp_path: Path) -> None:
    """P10.8: the level holds for who was away, and over a restart of all; it is never lowered."""
    data = tmp_path / "data"
    with Cluster(data, bookies=1, members=3, settings=PATIENT) as cluster:
        found = status(data)
        assert (found["level"], found["level_known"]) == (LEVEL, LEVEL)
        away = next(name for name in ("m2", "m3") if name != cluster.leader())
        cluster.kill(away)
        assert status(data)["level_lacking"] == []
        code, _, said = embedbk_command("quorum", "raise", "--to", str(LEVEL + 1), "--at", data)
        assert code == 1
        assert f"knows levels 1 to {LEVEL}" in said
        cluster.restart(away)
        code, shown, said = embedbk_command("quorum", "raise", "--at", data, "--timeout-s", "60")
        assert code == 0, said
        assert f"level {LEVEL}" in shown.splitlines()
        code, _, said = embedbk_command("quorum", "raise", "--to", "1", "--at", data)
        assert code == 1
        assert "never lowered" in said
    with (
        Cluster(data, bookies=1, members=3, settings=PATIENT) as cluster,
        embedbk.open(cluster.url, settings=PATIENT) as bk,
    ):
        assert status(data)["level"] == LEVEL
        with bk.log("orders").writer() as orders:
            orders.append(b"after")


def test_a_learner_that_is_taken_out_is_told_so_and_never_comes_back(tmp_path: Path) -> None:
    """P10.3, I78: `reconfigure --learners` names who goes on learning; a name that is not there changes nothing."""
    words = tmp_path / "words"
    with Cluster(tmp_path / "data", bookies=1, settings=PATIENT) as cluster, words.open("wb") as log:
        at = ["--at", cluster.url]
        seed = cluster.url.removeprefix("embedbk://")
        learner = [sys.executable, "-m", "embedbk", "metadata", "--join", seed, "--name", "m2"]
        learner += ["--dir", str(tmp_path / "m2"), "--listen", "tcp://127.0.0.1:0"]
        process = subprocess.Popen(learner, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            process.stdout.readline()  # It says so when it receives the log.
            code, _, said = embedbk_command("quorum", "reconfigure", "--learners", "m2,m9", *at)
            assert code == 1
            assert "there is no learner 'm9'; these are: m2" in said
            code, _, said = embedbk_command(
                "quorum", "reconfigure", "--voters", "m2", "--learners", "m2", *at
            )
            assert code == 1
            assert "m2 cannot both vote and learn" in said
            code, _, said = embedbk_command("quorum", "reconfigure", "--learners", "m2", *at)
            assert code == 0, said
            assert len(status(cluster.url)["members"]) == 2
            for _ in range(2):  # Who repeats it changes nothing.
                code, _, said = embedbk_command("quorum", "reconfigure", "--learners", "", *at)
                assert code == 0, said
            assert [each["name"] for each in status(cluster.url)["members"]] == ["m1"]
            wait_until(lambda: "m2 was taken out, says m1" in words.read_text(), 30)
        finally:
            process.kill()
            process.communicate()
        done = subprocess.run(learner, capture_output=True, text=True, check=False, timeout=100)
        assert done.returncode == 1
        assert "was taken out and never comes back" in done.stderr


def test_an_operator_fixes_the_election_base_and_gives_it_back(tmp_path: Path) -> None:
    """RAFT.md, 8: all members of a running cluster take it by one entry; `status` says who and when."""
    with Cluster(tmp_path / "data", bookies=1, members=3, settings=PATIENT) as cluster:
        cluster.leader()
        before = status(cluster.url)
        for asked, base_ms, is_fixed in (("1.2s", 1200, True), ("1200ms", 1200, True), ("auto", 1200, False)):
            code, _, said = embedbk_command(
                "quorum", "reconfigure", "--election-base", asked, "--at", cluster.url
            )
            assert code == 0, said
            seen = status(cluster.url)
            shown = seen["calibration"]["election_base_ms"]
            assert (shown["in_force"], shown["is_fixed"], shown["changed_by"]) == (
                base_ms,
                is_fixed,
                "an operator",
            )
            assert shown["changed_at"].startswith("20")
        assert seen["term"] == before["term"]
        assert seen["configuration"] > before["configuration"]
        code, _, said = embedbk_command(
            "quorum", "reconfigure", "--election-base", "50ms", "--at", cluster.url
        )
        assert code != 0
        assert "allowed are 150 to 10000" in said


def test_a_start_lets_all_vote_whom_an_earlier_one_only_let_in(tmp_path: Path) -> None:
    """RAFT.md, 7: a start of three members that was ended before all voted leaves learners; with the only voter's disk
    everything would be lost."""
    with Cluster(tmp_path, bookies=1, settings=PATIENT) as cluster:
        seed = cluster.url.removeprefix("embedbk://")
        for name in ("m2", "m3"):
            learner = [sys.executable, "-m", "embedbk", "metadata", "--join", seed, "--name", name]
            learner += ["--dir", str(tmp_path / name), "--listen", "tcp://127.0.0.1:0"]
            with subprocess.Popen(learner, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.readline()  # It says so when it receives the log.
                process.terminate()
    with Cluster(tmp_path, bookies=1, members=3, settings=PATIENT) as cluster:
        assert [each["role"] for each in status(cluster.url)["members"]] == ["voter"] * 3


def test_a_change_goes_on_at_the_next_leader_when_the_one_that_was_seen_is_gone(tmp_path: Path) -> None:
    """RAFT.md, 7: whoever asks the leader for a change asks the next one, too, while there is time."""
    with Cluster(tmp_path, bookies=1, members=3, settings=PATIENT) as cluster:
        endpoints = [each for name in cluster.members for each in cluster.processes[name].endpoints]
        ended: list[str] = []

        def wanted(leader: QuorumTold) -> Operation | None:
            if not ended:
                ended.append(leader.member.name)
                cluster.processes[leader.member.name].send_signal(signal.SIGSTOP)
                return ChangeBase(leader.configuration, 700)
            return None if leader.election_base_ms == 700 else ChangeBase(leader.configuration, 700)

        seen = Quorum(endpoints, PATIENT.open_timeout_s).change(wanted, "the change of the base")
        cluster.kill(ended[0])
        assert seen.leader is not None and seen.leader.member.name != ended[0]


def test_a_bookie_finds_the_members_when_the_one_it_was_given_has_left(tmp_path: Path) -> None:
    """P10.1: it notes what the leader told it; at a noted address only its own cluster counts."""
    with Cluster(tmp_path / "data", bookies=1, members=3, settings=PATIENT) as cluster:
        given = next(name for name in cluster.members if name != cluster.leader())
        endpoint = cluster.processes[given].endpoints[0]
        home = tmp_path / "b9"
        command = [sys.executable, "-m", "embedbk", "bookie", "--id", "b9", "--metadata", endpoint]
        command += ["--dir", str(home)]
        for _ in range(2):
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            try:
                assert process.stdout is not None
                assert b'"b9"' in process.stdout.readline()
                wait_until(lambda: (home / "MEMBERS").exists(), 30)
            finally:
                process.kill()
                process.communicate()
            assert len((home / "MEMBERS").read_text().split()) == 4
            if given in cluster.processes:
                cluster.kill(given)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["status"], "which cluster? no --at was given"),
        (["status", "--at", "nowhere"], "no metadata member listened from this directory"),
        (["status", "--at", "embedbk://127.0.0.1:1"], "no metadata member answers"),
        (["transfer", "--to", "m2", "--at", "embedbk://127.0.0.1:1"], "no metadata member answers"),
        (["status", "--at", "embedbk://nonsense"], "is no member"),
    ],
)
def test_a_command_that_finds_no_cluster_says_what_to_give(arguments: list[str], says: str) -> None:
    code, said, wrong = embedbk_command("quorum", *arguments, "--json", "--timeout-s", "3")
    assert code == 1
    assert says in wrong
    assert "Traceback" not in wrong
    assert says in json.loads(said)["message"]


@pytest.mark.parametrize("members", [0, 2, 4, 9, True, "3"])
def test_a_number_of_members_that_bears_no_more_is_refused(members: Any) -> None:
    with pytest.raises(UsageError, match="1, 3, 5 and 7 are allowed"):
        Cluster(members=members)
