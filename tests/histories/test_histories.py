"""A log that real processes write, read, consume and truncate while they, bookies and metadata members are killed and
stopped: what each of them was told fits one log (I99)."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.config import Settings
from embedbk.testing.log_events import AppendAsked, AppendTold, LogEvent, LogTaken
from embedbk.testing.log_history import check_log
from embedbk.testing.violation import Violation
from tests.histories.nemesis import ROLES, Fleet, lanes_of
from tests.histories.payloads import parts_of_text
from tests.histories.process import CURSORS, LOG, HistoryFile, Seeing, read_history

pytestmark = pytest.mark.xdist_group("processes")

PATIENT = Settings(
    open_timeout_s=240.0, operation_timeout_s=120.0, session_ttl_ms=2500, repair_grace_s=5.0, collect_s=5.0
)
ROLL_ENTRIES = 100
LOOK_S = 0.05
STUCK_S = 300.0  # A consumer that is alone, all being healed, and is given nothing for so long, hangs.
# What a long history is for.
LONG_MINUTES = 10.0
HAPPENS = (
    "taken over",
    "acknowledged",
    "refused",
    "unknown",
    "survived",
    "lost",
    "not known, and there",
    "not known, and not there",
    "acknowledged again at its place",
    "read end",
    "tail left",
    "bulk left",
    "consume left",
    "consume failed",
    "committed",
    "cut",
    "truncated entries",
    "write killed",
    "write stopped",
    "consume killed",
    "consume stopped",
    "bookie killed",
    "bookie stopped",
    "bookies swapped",
    "bookies swapped without members",
    "member killed",
    "member stopped",
    "all members stopped",
    "bookies started again beside an owner that was stopped",
)


def begin(bk: embedbk.Client, write: Callable[[LogEvent], None]) -> None:
    """The log with its settings and its cursors, before anybody else knows of it."""
    asked_ns = time.monotonic_ns()
    with bk.log(LOG).writer(roll=embedbk.Roll(entries=ROLL_ENTRIES)) as writer:
        append_one(writer, 1, asked_ns, write)
    for cursor in CURSORS:
        bk.log(LOG).cursor(cursor).set(0)


def append_one(
    writer: embedbk.LogWriter, number: int, asked_ns: int, write: Callable[[LogEvent], None]
) -> None:
    write(LogTaken(asked_ns, time.monotonic_ns(), number, writer.epoch, writer.first_offset))
    text = f"runner.0.{number}"
    write(AppendAsked(time.monotonic_ns(), number, number, (text,)))
    place = writer.append(parts_of_text(text)[0])
    places = ((place.ledger_id, place.entry_id),)
    write(AppendTold(time.monotonic_ns(), number, "acknowledged", places, epoch=writer.epoch))


def end(bk: embedbk.Client, write: Callable[[LogEvent], None]) -> str:
    """The log is taken over, which ends everybody's appends; all of it is read, and consumed. Which cursor does not
    come to its end, as where the list names a place twice."""
    asked_ns, log = time.monotonic_ns(), bk.log(LOG)
    with log.writer() as writer:
        append_one(writer, 2, asked_ns, write)
    seeing = Seeing.begin(write, 1, "final", None)
    seeing.all_of(log.read())
    seeing.ended("end")
    behind = log.end()
    for number, name in enumerate(CURSORS, 2):
        asked_ns = time.monotonic_ns()
        with log.cursor(name).consume(idle_s=STUCK_S) as consumer:
            seeing = Seeing.begin(write, number, "consume", consumer.position, name, asked_ns)
            with seeing.judged():
                for entry in consumer:
                    seeing.see(entry, 1)
                    if entry.offset + 1 == behind:
                        break
                seeing.ended("left")
        seeing.committed(consumer.committed)
        if seeing.next != behind:
            return f"{name} stands at {seeing.next}, and the log ends at {behind}"
    return ""


def run_for(seconds: float, cluster: Cluster, fleet: Fleet, seed: int) -> Counter[str]:
    """Everybody works, and is killed and stopped; then all heals, and everybody comes to an end."""
    for name in ROLES:
        fleet.start(name)
    lanes = lanes_of(cluster, fleet, seed)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        fleet.check()
        for lane in lanes:
            if lane.due_s <= time.monotonic():
                lane.step()
        time.sleep(LOOK_S)
    for lane in lanes:
        lane.heal()
    fleet.end()
    return sum((lane.met for lane in lanes), Counter[str]())


def histories_in(directory: Path) -> dict[str, Sequence[LogEvent]]:
    return {path.stem: read_history(path) for path in sorted(directory.glob("*.history"))}


def test_what_processes_are_told_of_a_log_fits_one_log_while_all_are_killed_and_stopped(
    tmp_path: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """I99, and with it I92 to I97, I100 to I102, P3.6, P8.1, P8.2, P8.8, P8.11: SIGKILL and SIGSTOP of writers,
    consumers, bookies and metadata members, as often as the machine gets to it."""
    minutes, seed = pytestconfig.getoption("--history-minutes"), pytestconfig.getoption("--history-seed")
    said = tmp_path / "histories"
    said.mkdir()
    # Everybody keeps its address: a writer finds a bookie that was started again, and no member need tell it where.
    listen = f"ipc://@embedbk-histories-{os.getpid()}" if seed % 2 else "tcp://127.0.0.1:0"
    with Cluster(tmp_path / "data", bookies=4, members=3, listen=listen, settings=PATIENT) as cluster:
        with embedbk.open(cluster.url, settings=PATIENT) as bk:
            runner = HistoryFile(said / "runner.0.history")
            begin(bk, runner.write)
        fleet = Fleet(cluster.url, seed, said)
        try:
            faults = run_for(60 * minutes, cluster, fleet, seed)
        finally:
            fleet.kill_all()
        with embedbk.open(cluster.url, settings=PATIENT) as bk:
            stuck = end(bk, runner.write)
    runner.close()
    try:
        met = check_log(histories_in(said)) + faults
    except Violation as broken:
        broken.add_note(f"seed {seed}; the histories are in {said}")
        raise
    assert not stuck, stuck
    if minutes >= LONG_MINUTES:
        with capsys.disabled():
            print(
                f"\nseed {seed}, {minutes:g} min: "
                + ", ".join(f"{met[each]:,} {each}" for each in sorted(met))
            )
        assert not [each for each in HAPPENS if not met[each]]
