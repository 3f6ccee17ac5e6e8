"""What embedbk says of itself while it works: what happens at INFO, what is waited for at WARNING, each once."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import embedbk
from embedbk.host import spacing
from embedbk.testing import Cluster
from tests.host.place import Place


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="embedbk")
    return caplog


def lines(said: pytest.LogCaptureFixture, part: str, level: int = logging.INFO) -> list[str]:
    return [
        record.getMessage()
        for record in said.records
        if record.levelno == level and part in record.getMessage()
    ]


def test_starts_takeovers_and_flushes_are_told_with_figures(
    data: Path, settings: embedbk.Settings, said: pytest.LogCaptureFixture
) -> None:
    """One line each, when it happens: what a start replayed, who is registered where, epoch and offset, bytes."""
    with embedbk.open(data, settings=settings) as bk, bk.log("orders").writer() as writer:
        writer.append_many([b"one", b"two"])
    assert len(lines(said, "read its directories: 0 journal records")) == 3
    assert len(lines(said, "is registered at local://")) == 3
    (taken,) = lines(said, "log 'orders' is taken over with epoch")
    assert "offset 0 in ledger 1, behind 0 others" in taken
    assert len(lines(said, "bytes of records (")) == 3  # Each closes with a flush.
    said.clear()
    with embedbk.open(data, settings=settings) as bk:
        bk.log("orders").writer().release()
    (taken,) = lines(said, "log 'orders' is taken over with epoch")
    assert "offset 2 in ledger 2, behind 1 others" in taken


def test_recoveries_and_ensemble_changes_are_told(said: pytest.LogCaptureFixture) -> None:
    with Cluster(seed=5, bookies=4) as cluster:
        ledger = cluster.client("w").create_ledger()
        ledger.add(b"zero")
        victim = ledger._appending.writing.metadata.fragments[-1].members[0].bookie_id
        cluster.crash(victim)
        ledger.add(b"one")
        cluster.run_until(lambda: ledger._appending.writing.ensemble_changes == 1)
        (changed,) = lines(said, "its entries from")
        assert changed.startswith("ledger 1: its entries from ") and victim not in changed
        cluster.client("r").open_ledger(ledger.ledger_id, recover=True).close()
        (recovered,) = lines(said, "is recovered")
        assert recovered.startswith("ledger 1 is recovered: closed at entry 1, 7 bytes")


def test_a_question_that_takes_long_says_what_it_waits_for(said: pytest.LogCaptureFixture) -> None:
    """A creation that is short of bookies names them after five seconds, long before its time is over."""
    with Cluster(seed=5, bookies=3) as cluster:
        client = cluster.client("w")
        client.create_ledger()  # Who is known is known.
        cluster.crash("b2")
        cluster.run_for(10)
        cluster.world.after(12_000_000_000, lambda: cluster.restart("b2"))
        client.create_ledger()
        (waits,) = lines(said, "not done within 5 s", logging.WARNING)
        assert "it waits for bookies: b2 is not registered; up to 30 s are allowed" in waits


def test_appends_that_wait_for_bookies_say_for_which(said: pytest.LogCaptureFixture) -> None:
    """Once, and that it is over; who cannot be reached is named once, too, however often it is tried."""
    settings = embedbk.Settings(quorum_wait_s=600)
    with Cluster(seed=5, bookies=3) as cluster:
        client = cluster.client("w")
        client._runtime.settings = settings
        ledger = client.create_ledger()
        ledger.add(b"zero")
        for name in ("b2", "b3"):
            cluster.crash(name)
        ticket = ledger.add_nowait(b"one")
        cluster.run_for(30)
        (waits,) = lines(said, "ledger 1: appends wait for bookies", logging.WARNING)
        assert "b2: " in waits and "b3: " in waits
        assert len(lines(said, "cannot be reached", logging.WARNING)) <= 2
        for name in ("b2", "b3"):
            cluster.restart(name)
        ticket.result()
        assert len(lines(said, "ledger 1: appends wait no longer", logging.WARNING)) == 1


def test_a_client_without_metadata_says_so_once(said: pytest.LogCaptureFixture) -> None:
    """And when it has a session again."""
    with Cluster(seed=5, bookies=3) as cluster:
        cluster.client("w")
        cluster.crash("metadata")
        cluster.run_for(40)
        assert len(lines(said, "w waits for a metadata member at sim://metadata: ", logging.WARNING)) == 1
        cluster.restart("metadata")
        cluster.run_for(20)
        assert len(lines(said, "w has a session with the metadata", logging.WARNING)) == 1


def test_the_member_tells_its_start_and_sessions_that_expire(said: pytest.LogCaptureFixture) -> None:
    with Cluster(seed=5, bookies=3) as cluster:
        assert len(lines(said, "metadata member m1 serves at sim://metadata: entry 3 of its log")) == 1
        cluster.client("w")
        cluster.crash("w")
        cluster.run_for(30)
        assert len(lines(said, "of 'w' expires: silent for more than")) == 1


def test_space_that_gets_short_is_told_before_it_is_low(said: pytest.LogCaptureFixture) -> None:
    """P7.8: below twice the bound, once, while there is time to make room."""
    place = Place()
    free = [8 << 30]
    place.free_bytes = lambda: free[0]
    place.start_bookie("b4")
    try:
        place.run_for(20_000_000_000, step_ns=1_000_000_000)
        assert lines(said, "free bytes left", logging.WARNING) == []
        free[0] = 400 << 20
        place.run_for(20_000_000_000, step_ns=1_000_000_000)
        (told,) = lines(said, "free bytes left", logging.WARNING)
        assert told == (
            f"bookie b4 has {400 << 20} free bytes left; below {256 << 20} it takes no new entries: "
            "make room or expand it"
        )
        assert place.bookie("b4").core.is_writable
        assert spacing.logger.name == "embedbk.host.spacing"
    finally:
        place.close()


def test_a_bookie_without_its_metadata_says_what_it_waits_for(tmp_path: Path) -> None:
    """On standard error at the default level; it was silent for ever."""
    command = [
        sys.executable, "-m", "embedbk", "bookie", "--id", "b1", "--dir", str(tmp_path / "b1"),
        "--metadata", "tcp://127.0.0.1:1",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as peer:
        assert peer.stderr is not None
        line = peer.stderr.readline()
        peer.terminate()
        peer.stderr.read()
    assert "waiting for a metadata member at tcp://127.0.0.1:1: " in line


@pytest.mark.parametrize("options", [["--log-level", "loud"], ["--log-level"]])
def test_a_log_level_that_is_none_is_refused(tmp_path: Path, options: list[str]) -> None:
    command = [sys.executable, "-m", "embedbk", "metadata", "--dir", str(tmp_path / "m"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--log-level" in done.stderr
    assert not (tmp_path / "m").exists()
