"""P8.1: contenders for one log back off, and one of them gets to write."""

from __future__ import annotations

import random

from embedbk.core import contending
from embedbk.core.contending import FORGET_NS, WAIT_NS, WAIT_NS_MAX, Contending, back_off_ns
from embedbk.errors import LedgerFenced
from embedbk.log import LogWriter
from embedbk.testing import Cluster


def test_a_wait_doubles_with_each_loss_up_to_a_bound_and_no_two_are_alike() -> None:
    """P8.1: the first takeover waits for nothing."""
    assert back_off_ns(0, random.Random(1)) == 0
    for losses in range(1, 80):
        most = min(WAIT_NS * 2 ** (losses - 1), WAIT_NS_MAX)
        waits = {back_off_ns(losses, random.Random(seed)) for seed in range(50)}
        assert len(waits) > 40
        assert all(most // 2 <= wait < most for wait in waits)


def test_losses_of_long_ago_are_no_contention() -> None:
    """P8.1: a takeover behind a quiet time is at once, whatever was before."""
    known = Contending()
    for number in range(5):
        known.note_lost("orders", number)
    assert known.losses("orders", 5) == 5
    assert known.losses("others", 5) == 0
    assert known.losses("orders", 4 + FORGET_NS) == 0
    known.note_lost("orders", 4 + FORGET_NS)
    assert known.losses("orders", 5 + FORGET_NS) == 1


def test_what_is_remembered_is_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The one whose loss is longest ago is forgotten."""
    monkeypatch.setattr(contending, "LOGS_MAX", 2)
    known = Contending()
    for name in ("one", "two", "one", "three"):
        known.note_lost(name, 1)
    assert [known.losses(name, 2) for name in ("one", "two", "three")] == [2, 0, 1]


def test_two_who_take_a_log_from_each_other_do_so_ever_more_rarely() -> None:
    """P8.1: each asks for it again as soon as it lost it. Without a wait they did nothing else, at full speed."""
    with Cluster(seed=31, bookies=3) as cluster:
        names = ("one", "two")
        logs = [cluster.log("orders", client=name) for name in names]
        writers: list[LogWriter | None] = [None, None]
        taken_s: list[float] = []
        appended = [0, 0]
        for turn in range(24):
            mine, theirs = turn % 2, 1 - turn % 2
            writers[mine] = logs[mine].writer()
            taken_s.append(cluster.now_s)
            writers[mine].append(b"mine")  # type: ignore[union-attr]
            appended[mine] += 1
            loser = writers[theirs]
            if loser is not None:
                try:
                    loser.append(b"is this still mine?")
                except LedgerFenced:
                    continue
                raise AssertionError("two owners of one log")
        assert appended == [12, 12]
        assert taken_s[-1] - taken_s[-11] > 8.0  # Ten takeovers; 0.3 s before.
        quiet = cluster.now_s
        cluster.run_for(11.0)
        logs[1].writer().append(b"after a quiet time")
        assert cluster.now_s - quiet - 11.0 < 1.0
