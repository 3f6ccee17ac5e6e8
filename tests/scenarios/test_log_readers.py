"""Scenario 31 at the face of a log, where readers move from ledger to ledger."""

from __future__ import annotations

import threading
from pathlib import Path

import embedbk


def test_two_paths_into_the_next_ledger_skip_none(tmp_path: Path) -> None:
    """Scenario 31: #2898. Two followers of one client and a ranged read move on while ledgers end: no ledger of the
    log is skipped, and none is read twice."""
    # Nothing was taken out yet to see it fail: the reader's single path has no line that alone is this fix.
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
