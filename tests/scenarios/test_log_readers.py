"""Scenario 31 at the face of a log, where readers move from ledger to ledger."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import embedbk
from embedbk.testing import Cluster


def test_two_paths_into_the_next_ledger_skip_none(tmp_path: Path) -> None:
    """Scenario 31: #2898. Two followers of one client and a ranged read move on while ledgers end: no ledger of the
    log is skipped, and none is read twice."""
    # What is taken out to see scenario 31 fail is taken out of the two tests below, where nothing is left to chance.
    given = [b"%d" % number for number in range(24)]
    with embedbk.open(tmp_path / "data") as bk:
        log = bk.log("one")
        seen: list[list[bytes]] = [[], []]

        def follow(into: list[bytes]) -> None:
            for entry in log.tail(0, idle_s=20):
                into.append(bytes(entry))
                if len(into) >= len(given):
                    return

        followers = [threading.Thread(target=follow, args=(into,)) for into in seen]
        for follower in followers:
            follower.start()
        for begin in range(0, len(given), 4):  # Six ledgers, each closed as its writer ends.
            with log.writer() as writer:
                writer.append_many(given[begin : begin + 4])
            with log.writer():
                pass  # An empty one between them.
        for follower in followers:
            follower.join(20)
        assert seen == [given, given]
        assert [bytes(entry) for entry in log.read()] == given


def test_a_tail_passes_every_ledger_of_the_list_in_turn() -> None:
    """Scenario 31: #2898. Three ledgers follow each other before the tail looks again: its watch of the list knows the
    newest, its wait for the LAC knows that its own was closed. It goes on behind where it stands, by one."""
    # Taken out: the next one behind the one that was read (mutant tail-goes-to-the-newest-ledger).
    with Cluster(seed=31, bookies=3) as cluster:
        given = [b"%d" % number for number in range(4)]
        with cluster.log("one", client="w0").writer() as writer:
            writer.append(given[0])
        tail = cluster.log("one", client="reader").tail(0, idle_s=5)
        assert bytes(next(tail)) == given[0]
        for number in (1, 2, 3):
            with cluster.log("one", client=f"w{number}").writer() as writer:
                writer.append(given[number])
        assert [bytes(entry) for entry in tail] == given[1:]


def test_a_tail_stays_with_an_empty_ledger_until_it_is_closed() -> None:
    """Scenario 31, I97: an open ledger without an entry is not the end of it, though the list will name others."""
    # Taken out: waiting with the ledger (mutant tail-jumps-an-empty-ledger).
    with Cluster(seed=31, bookies=3) as cluster:
        writer = cluster.log("one", client="w0").writer()
        tail = cluster.log("one", client="reader").tail(0, idle_s=2)
        assert list(tail) == []  # Idle for too long: nothing was there yet.
        tail = cluster.log("one", client="reader").tail(0, idle_s=5)
        cluster.world.after(1_000_000_000, lambda: writer.append_nowait(b"late"))
        assert bytes(next(tail)) == b"late"
        writer.close()


@pytest.mark.parametrize("start", [0, None])
def test_a_tail_waits_for_bookies_that_are_away(start: int | None) -> None:
    """P6.2: two of three are away, so that nobody can tell how far the log may be read: that is no end of a tail, which
    begins or goes on when they are back. A read says who did not answer."""
    with Cluster(seed=31, bookies=3) as cluster:
        writer = cluster.log("one", client="w").writer()
        writer.append(b"zero")
        cluster.run_for(1)
        for name in ("b1", "b2"):
            cluster.crash(name)
            cluster.world.after(8_000_000_000, lambda name=name: cluster.restart(name))
        log = cluster.log("one", client="reader")
        with pytest.raises(embedbk.NotEnoughBookies, match="how far it may be read is not known") as refused:
            list(log.read())
        assert "b1: " in str(refused.value)
        assert "b2: " in str(refused.value)
        assert "recover" not in str(refused.value)
        cluster.world.after(12_000_000_000, lambda: writer._appending.try_append(b"one"))
        expected = [b"zero", b"one"] if start == 0 else [b"one"]
        tail = log.tail(start)
        assert [bytes(next(tail)) for _ in expected] == expected
        tail.close()


def test_a_tail_waits_for_entries_that_nobody_gives_just_now() -> None:
    """P6.1: the ledger is closed, so that all of it must be there, and its bookies are away for a while."""
    with Cluster(seed=31, bookies=3) as cluster:
        with cluster.log("one", client="w").writer() as writer:
            writer.append_many([b"zero", b"one"])
        log = cluster.log("one", client="reader")
        assert [bytes(entry) for entry in log.read()] == [b"zero", b"one"]
        for name in ("b1", "b2", "b3"):
            cluster.crash(name)
            cluster.world.after(5_000_000_000, lambda name=name: cluster.restart(name))
        with pytest.raises(embedbk.EntryUnreadable):
            list(log.read())
        assert [bytes(entry) for entry in log.tail(0, idle_s=10)] == [b"zero", b"one"]


def test_a_tail_whose_bookies_stay_away_ends_in_time() -> None:
    """P6.1, P6.2: nothing new came for idle_s. What is known to be there and cannot be read is an error, no end."""
    with Cluster(seed=31, bookies=3) as cluster:
        with cluster.log("one", client="w").writer() as writer:
            writer.append(b"zero")
        open_writer = cluster.log("open", client="w").writer()
        open_writer.append(b"zero")
        cluster.run_for(1)
        reader = cluster.client("reader")
        for name in ("b1", "b2", "b3"):
            cluster.crash(name)
        for start in (0, None):
            began_s = cluster.now_s
            assert list(reader.log("open").tail(start, idle_s=3)) == []
            assert 3 <= cluster.now_s - began_s < 10
        began_s = cluster.now_s
        with pytest.raises(embedbk.EntryUnreadable):
            list(reader.log("one").tail(0, idle_s=3))
        assert 3 <= cluster.now_s - began_s < 10
        with pytest.raises(embedbk.EntryUnreadable):
            next(reader.log("one").tail(0))
        assert 30 <= cluster.now_s - began_s < 45
