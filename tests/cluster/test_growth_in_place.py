"""One process with a directory grows to three members and three bookies, without a new log and without stopping."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.config import Settings

pytestmark = pytest.mark.xdist_group("processes")

PATIENT = Settings(open_timeout_s=60.0, operation_timeout_s=60.0, journal_file_bytes=2 << 20)


@contextmanager
def process(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A peer, once it serves; stopped at the end."""
    with (directory / "peers.log").open("ab") as log:
        command = [sys.executable, "-m", "embedbk", *arguments]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=directory)
    assert running.stdout is not None
    try:
        assert json.loads(running.stdout.readline())["endpoints"], (directory / "peers.log").read_text()
        yield running
    finally:
        running.terminate()
        running.wait(60)
        running.stdout.close()


def quorum(*arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "embedbk", "quorum", *arguments, "--json", "--timeout-s", "60"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout)


def test_one_process_grows_to_three_members_and_three_bookies(tmp_path: Path) -> None:
    """Issue 12, 7: "grows to three members and three bookies without a new log and without stopping"; "who opened
    without `listen=` is told so by `join`, and listens from then on by one call"; "appends wait, none fails"."""
    data, failed, told = tmp_path / "data", [], []
    is_over = threading.Event()

    def append() -> None:
        try:
            while not is_over.is_set():
                told.append(writer.append(b"%d" % len(told)))
        except embedbk.EmbedbkError as error:
            failed.append(error)

    with embedbk.open(data, bookies=1, settings=PATIENT) as bk, bk.log("orders").writer() as writer:
        thread = threading.Thread(target=append)
        thread.start()
        try:
            code, refused = quorum("join", "--at", str(data))
            assert code == 1
            assert "client.listen(" in refused["hint"]
            assert bk.listen(f"ipc://{tmp_path}/m1.sock") == bk.url
            seed = f"ipc://{tmp_path}/m1.sock"
            with (
                process(
                    tmp_path,
                    "metadata",
                    "--join",
                    bk.url,
                    "--dir",
                    str(tmp_path / "m2"),
                    "--listen",
                    seed + ".m2",
                ),
                process(
                    tmp_path,
                    "metadata",
                    "--join",
                    bk.url,
                    "--dir",
                    str(tmp_path / "m3"),
                    "--listen",
                    seed + ".m3",
                ),
                process(tmp_path, "bookie", "--id", "b2", "--metadata", seed, "--dir", str(tmp_path / "b2")),
                process(tmp_path, "bookie", "--id", "b3", "--metadata", seed, "--dir", str(tmp_path / "b3")),
            ):
                code, joined = quorum("join", "--at", str(data))
                assert code == 0
                assert [each["role"] for each in joined["members"]] == ["voter"] * 3
                assert (joined["bookies"], joined["open_ledgers_with_fewer_copies"]) == (3, 1)
                before = writer.ledger_id
                writer.renew()
                assert quorum("status", "--at", str(data))[1]["open_ledgers_with_fewer_copies"] == 0
                assert writer.ledger_id != before
                members = writer._appending.writing.metadata.fragments[-1].members
                assert {each.bookie_id for each in members} == {"b1", "b2", "b3"}
                count = len(told)
                while len(told) < count + 20 and not failed:
                    assert thread.is_alive()
                is_over.set()
                thread.join()
                assert not failed
                # From elsewhere, too: every acknowledged entry, in order, of one log.
                with embedbk.open(bk.url, settings=PATIENT) as other:
                    assert [entry.position for entry in other.log("orders").read()] == told
                writer.close()
                bk.close()
                with embedbk.open(
                    data, settings=PATIENT
                ) as again:  # It listens where it did, and nobody asked it to.
                    assert again.url == f"embedbk://ipc:{tmp_path}/m1.sock"
                    assert {each.bookie_id for each in again.bookies()} == {"b1", "b2", "b3"}
                    assert [bytes(each) for each in again.log("orders").read()] == [
                        b"%d" % number for number in range(len(told))
                    ]
                    with again.log("orders").writer() as still:
                        still.append(b"more")
                        ensemble = still._appending.writing.metadata.fragments[-1].members
                        assert len(ensemble) == 3
        finally:
            is_over.set()
            thread.join()


def test_listening_is_refused_with_the_reason_and_tried_again(tmp_path: Path) -> None:
    """Bad input: what was given, what is allowed; nothing is changed, and a second call may do better."""
    with embedbk.open(tmp_path / "data", bookies=1, settings=PATIENT) as bk:
        for wrong in ("local://here", "nowhere", "tcp://127.0.0.1", "tcp://192.0.2.1:1", "ipc:///tmp/\udcff"):
            with pytest.raises(embedbk.UsageError):
                bk.listen(wrong)
        with pytest.raises(embedbk.UsageError, match=r"client\.listen"):
            _ = bk.url
        url = bk.listen()
        assert url == bk.url
        with pytest.raises(embedbk.UsageError, match="already"):
            bk.listen()
        with embedbk.open(url, settings=PATIENT) as other, other.log("orders").writer() as writer:
            writer.append(b"from elsewhere")
        assert [bytes(entry) for entry in bk.log("orders").read()] == [b"from elsewhere"]
    with embedbk.open(tmp_path / "data", settings=PATIENT) as alone, pytest.raises(embedbk.UsageError):
        _ = alone.url  # Nobody else is there: as it is asked for, inside this process only.


def test_a_place_that_is_taken_beside_one_that_is_free_keeps_neither(tmp_path: Path) -> None:
    """Where a bookie cannot listen nobody does, and once the place is free a second call succeeds."""
    place = tmp_path / "socket"
    taken = tmp_path / "socket.b1"
    taken.touch()
    with embedbk.open(tmp_path / "data", bookies=1, settings=PATIENT) as bk:
        for _ in range(2):
            with pytest.raises(embedbk.UsageError, match=r"socket\.b1' is a file that is not a socket"):
                bk.listen(f"ipc://{place}")
        assert not place.exists()
        taken.unlink()
        with embedbk.open(bk.listen(f"ipc://{place}"), settings=PATIENT) as other:
            assert other.logs() == []


def test_bookies_elsewhere_keep_their_names(tmp_path: Path) -> None:
    """A bookie made here later does not take the id of one that lives elsewhere."""
    data = tmp_path / "data"
    seed = f"ipc://{tmp_path}/m.sock"
    with (
        embedbk.open(data, bookies=1, listen=seed, settings=PATIENT),
        process(tmp_path, "bookie", "--id", "b2", "--metadata", seed, "--dir", str(tmp_path / "b2")),
    ):
        pass
    with embedbk.open(data, bookies=2, settings=PATIENT) as bk:
        assert bk.url == f"embedbk://ipc:{tmp_path}/m.sock"
        assert {each.bookie_id for each in bk.bookies() if each.state == "writable"} == {"b1", "b3"}
    assert (data / "BOOKIES").read_text().split() == ["b1", "b3"]


def test_bookies_that_a_cluster_added_in_the_directory_are_opened_too(tmp_path: Path) -> None:
    """The note names who lives here; a directory that another process made beside them is no less at home."""
    with embedbk.open(tmp_path / "data", bookies=1, settings=PATIENT):
        pass
    with Cluster(tmp_path / "data", bookies=2, settings=PATIENT):
        pass
    with embedbk.open(tmp_path / "data", settings=PATIENT) as bk:
        assert {each.bookie_id for each in bk.bookies() if each.state == "writable"} == {"b1", "b2"}
