"""The simulator itself: plans, clocks, disks, targeted rules, traces, shrinking, campaigns."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from embedbk.cli.simulation import run_sim, sigterm_interrupts
from embedbk.codec.journal_records import RecordKind
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.testing import Cluster, Observer, Trace, Violation, make_plan, run_plan, shrink
from embedbk.testing.campaign import collect, run_campaign, run_seed, within_cpu
from embedbk.testing.clocks import Clock
from embedbk.testing.faults import BEGIN
from embedbk.testing.native_disk import NativeDisk
from embedbk.testing.plan import FAULT_KINDS, LATER_KINDS
from embedbk.testing.run import replay_line
from embedbk.testing.twin_disk import TwinDisk
from embedbk.transports.sim_faults import Treatment
from tests.storage.journal_pages import read_file
from tests.storage.stored_entries import make_frame
from tests.storage.test_journals import FIRST, SECOND, flush

# --- Plans -------------------------------------------------------------------------------------------------


def test_every_kind_of_fault_is_drawn_and_can_begin() -> None:
    """TESTING.md, section 5: no kind of the catalogue is a word only."""
    drawn = {step.kind for seed in range(400) for step in make_plan(seed).steps if step.is_fault}
    on_the_network = {"loss", "duplication", "reordering", "corruption", "drift"}
    assert drawn == set(FAULT_KINDS) - on_the_network
    assert drawn == set(BEGIN)


def test_the_atlas_never_takes_an_ack_quorum_of_copies() -> None:
    """S4: fewer bookies than the ack quorum lose copies for good, in every plan."""
    for seed in range(2_000):
        plan = make_plan(seed)
        victims = {
            step.target
            for step in plan.steps
            if step.kind in ("lost-disk", "wipe", "unreadable", "torn", *LATER_KINDS)
        }
        assert len(victims) < plan.quorum.ack_quorum, seed


def test_a_step_left_out_changes_no_other_step() -> None:
    """Shrinking needs that: everybody's chance is their own."""
    plan = make_plan(11)
    smaller = plan.without([step.number for step in plan.steps[1::2]])
    assert [step for step in plan.steps if step in smaller.steps] == list(smaller.steps)
    assert smaller.steps == plan.steps[::2]


# --- Clocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drift_ppm", [0, 300_000, -300_000])
def test_a_clock_never_falls_and_its_inverse_is_never_early(drift_ppm: int) -> None:
    """C2: a timer that is due by the node's clock is due by the world's."""
    clock = Clock(5_000_000_000, drift_ppm)
    chance = random.Random(1)
    now, shown = 0, clock.local(0)
    for _ in range(1_000):
        now += chance.randint(0, 10_000_000)
        if chance.random() < 0.01:
            clock.jump(now, chance.randint(0, 1_000_000_000))
        assert clock.local(now) >= shown
        shown = clock.local(now)
        due = shown + chance.randint(0, 1_000_000)
        assert clock.local(clock.time(due)) >= due


# --- Disks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TwinDisk, NativeDisk])
def test_what_was_synced_survives_every_crash(kind: Any) -> None:
    """D1, D2: whatever chance tears, no durable record is lost, and nothing comes back that was never queued."""
    for seed in range(20):
        chance = random.Random(seed)
        disk = TwinDisk(bytes(16)) if kind is TwinDisk else NativeDisk("b1", bytes(16), bytes(16))
        durable = queued = 0
        for _ in range(6):
            storage = disk.start()
            assert durable <= storage.next_token() - 1 <= queued, seed
            for ledger_id in range(chance.randint(0, 20)):
                queued = storage.append(RecordKind.FENCE, ledger_id + 1, b"")
                if chance.random() < 0.2:
                    durable = disk.sync()
            durable = max(durable, storage.durable())
            queued = storage.next_token() - 1
            assert disk.is_pending() == (durable < queued)
            disk.crash(chance)
        disk.close()


def put(disk: NativeDisk, ledger_id: int, entry_id: int) -> None:
    storage = disk.storage
    assert storage is not None
    if storage.table.get(ledger_id) is None:
        storage.table.create(ledger_id)
    storage.put_frame(make_frame(ledger_id, [entry_id], size=3_000))


def whole_or_not() -> random.Random:
    """Chance by which a crash writes nothing more, not even in part."""
    return random.Random(2)


def cut_off(disk: NativeDisk) -> BookieStorage:
    """The power goes, with nothing of what was not written; what starts on what is left."""
    disk.crash(whole_or_not())
    return disk.start()


def test_what_a_start_did_not_read_has_not_survived() -> None:
    """I31, I42: the last group is torn and nobody was answered; damage below the log mark lets the journal go on above
    its tokens, which says nothing about them (seed 910545)."""
    disk = NativeDisk("b1", bytes(16), bytes(16))
    storage = disk.start()
    for entry_id in range(4):
        put(disk, 1, entry_id)
        disk.sync()
    flush(storage)
    put(disk, 1, 4)
    assert disk.sync() == 5
    for entry_id in (5, 6):
        put(disk, 1, entry_id)
    path = next(path for path in disk.remember().files if "/journal/journal-" in path)
    last_group = read_file(disk.remember().files[path])[1][-1]
    disk._disk.tear(nth=1, sectors=1)  # Its header is there, not its records.
    disk.sync()
    disk.crash(whole_or_not())
    content = bytearray(disk.remember().files[path])
    assert content[last_group.end : last_group.end + 64].strip(b"\0")
    content[8192 + 600] ^= 1  # In the second group, which entry logs cover.
    disk._disk.put(path, bytes(content))
    storage = disk.start()
    assert storage.replayed == (5,) and not storage.may_have_lost
    assert storage.next_token() == 8
    assert disk.survived() == 5
    disk.close()


@pytest.mark.parametrize(
    ("written", "next_token", "survived"), [((), 1, 0), ((1,), 2, 0), ((0,), 3, 1), ((0, 1), 4, 3)]
)
def test_what_survived_is_told_in_the_tokens_of_the_process_before(
    written: tuple[int, ...], next_token: int, survived: int
) -> None:
    """I31, P7.3: tokens over several journals are counted anew after a crash; who queued token n asks about that."""
    disk = NativeDisk("b1", bytes(16), bytes(16), devices=2)
    storage = disk.start()
    for ledger_id, entry_id in [(FIRST, 0), (SECOND, 0), (FIRST, 1)]:
        put(disk, ledger_id, entry_id)
    for number in written:
        storage._open_journals().parts[number].step()
    assert cut_off(disk).next_token() == next_token
    assert disk.survived() == survived
    assert cut_off(disk).next_token() == next_token
    assert disk.survived() == next_token - 1  # The same tokens as long as nothing is lost.
    disk.close()


@pytest.mark.parametrize("number", [0, 1])
def test_a_newest_file_that_is_gone_is_missed(number: int) -> None:
    """D12, P7.9: it is the one that its journal noted as used last, whichever of several journals that is."""
    disk = NativeDisk("b1", bytes(16), bytes(16), devices=2)
    disk.start()
    put(disk, (FIRST, SECOND)[number], 0)
    disk.sync()
    disk.crash(whole_or_not())
    before = disk.remember().files
    assert disk.drop_newest()
    (gone,) = before.keys() - disk.remember().files.keys()
    assert gone == f"/b1/journal{('', '-2')[number]}/journal-0000000000000001"
    assert disk.start().may_have_lost
    disk.close()


def test_a_file_of_which_its_journal_says_nothing_is_no_newest_one() -> None:
    """P7.9: who loses bytes that rot put into a file without groups, or what a start has set aside, loses nothing, and
    says nothing (seed 13206948, which lost `journal-2/damaged-1`)."""
    disk = NativeDisk("b1", bytes(16), bytes(16), devices=2)
    disk.start()
    for ledger_id in (FIRST, SECOND):
        put(disk, ledger_id, 0)
    disk.sync()
    disk.crash(whole_or_not())
    files = disk.remember().files
    for place in ("journal", "journal-2"):
        name = f"/b1/{place}/journal-0000000000000001"
        disk._disk.put(f"/b1/{place}/damaged-0000000000000001", files[name])
        disk._disk.put(f"/b1/{place}/journal-0000000000000009", b"\1" * 8192)
        disk._disk.drop(name)
    before = disk.remember().files
    assert not disk.drop_newest()
    assert disk.remember().files == before
    disk.close()


def test_a_copy_of_a_disk_that_was_harmed_is_harmed() -> None:
    """D4, P7.9: what a check finds there, somebody did (seed 70665542)."""
    disk = NativeDisk("b1", bytes(16), bytes(16))
    disk.start()
    put(disk, FIRST, 0)
    disk.sync()
    assert not disk.copy().is_harmed
    before = disk.remember()
    disk.crash(whole_or_not())
    assert disk.harm("file-harm", random.Random(3), before)
    assert disk.copy().is_harmed
    disk.close()


# --- Rules, traces -----------------------------------------------------------------------------------------


def test_a_rule_hits_exactly_one_message() -> None:
    """N1, targeted: the second add answer of b2 is lost, and nothing else."""
    with Cluster(seed=4, bookies=3) as cluster:
        cluster.drop_messages("AddAnswer", sender="b2", nth=2)
        with cluster.log("orders").writer() as orders:
            for number in range(5):
                orders.append(b"%d" % number)
        assert cluster.network.lost_bodies == 1


def test_a_body_that_is_damaged_on_the_wire_is_refused() -> None:
    """N9: the frame's digest is wrong, so nothing of it is stored, and the entry is acknowledged by the others."""
    with Cluster(seed=4, bookies=4) as cluster:
        cluster.drop_messages("AddRequest", receiver="b1", nth=1, verdict=Treatment(body=b"EBKM" + bytes(60)))
        with cluster.log("orders").writer() as orders:
            orders.append(b"one")
        assert [bytes(entry.data) for entry in cluster.log("orders").read()] == [b"one"]


def test_a_trace_is_read_by_people(tmp_path: Path) -> None:
    """Issue 3, 10: who sent what to whom in virtual time; and a chart of it."""
    trace = Trace()
    outcome = run_plan(make_plan(3), prepare=trace.attach)
    assert not outcome.violation
    lines = list(trace.lines())
    assert any("AddRequest" in line and "──▶" in line for line in lines)
    assert any("fault [" in line for line in lines)
    path = tmp_path / "chart.svg"
    shown = trace.save_chart(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<svg") and text.endswith("</svg>\n")
    assert 0 < shown <= text.count("<text")


# --- Failures ----------------------------------------------------------------------------------------------


class _NoFences(Observer):
    """A promise that nobody gives, so that it breaks."""

    def __init__(self) -> None:
        self.crashed = 0

    def on_stopped(self, node: str) -> None:
        if node.startswith("b"):
            self.crashed += 1
        if self.crashed == 2:
            raise Violation("X1", "two bookies have crashed")


def _no_fences(seen: Counter[str]) -> Sequence[Observer]:
    return [_NoFences()]


def test_a_failure_shrinks_to_what_it_needs_and_replays() -> None:
    """Issue 3, 10: the steps that do not matter go, and what is left breaks the same promise every time."""
    failed = next(
        outcome
        for outcome in (run_plan(make_plan(seed), make_observers=_no_fences) for seed in range(200))
        if outcome.invariant == "X1" and len(outcome.plan.steps) > 10
    )
    best, without = shrink(failed, make_observers=_no_fences)
    assert best.invariant == "X1"
    assert len(best.plan.steps) <= 2
    again = run_plan(make_plan(failed.plan.seed).without(without), make_observers=_no_fences)
    assert (again.violation, again.digest) == (best.violation, best.digest)
    assert f"--first-seed {failed.plan.seed} --seeds 1 --without " in replay_line(failed.plan, without)


# --- Campaigns ---------------------------------------------------------------------------------------------


def test_a_seed_that_never_ends_is_told() -> None:
    """L14: a circle inside one step of a node ends the seed, by processor time, and the campaign goes on."""

    def turn_in_a_circle() -> None:
        give_up = time.process_time() + 60
        while time.process_time() < give_up:
            pass

    with pytest.raises(Violation, match="L14"), within_cpu(0.05):
        turn_in_a_circle()
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_campaign_over_processes_is_the_sum_of_its_seeds() -> None:
    """Which process runs a seed changes nothing."""
    one, two = run_campaign(8, 50, processes=1), run_campaign(8, 50, processes=2)
    told_one, told_two = one.as_json(), two.as_json()
    for told in (told_one, told_two):
        told.pop("real_s")
        told["simulated_s"] = round(told["simulated_s"], 1)
    assert told_one == told_two


def test_a_campaign_goes_on_behind_a_violation() -> None:
    """Each seed that breaks a promise is told as it is found, and all of them stand in the report."""
    found = [run_seed(seed) for seed in range(50, 54)]
    for number in (1, 3):
        found[number]["violation"], found[number]["invariant"] = "an entry is gone", "I1"
    said: list[str] = []
    report = collect((each for each in found), len(found), progress=said.append)
    assert (report.seeds, report.violations) == (4, 2)
    assert [failure["seed"] for failure in report.failures] == [51, 53]
    assert [line for line in said if "gone" in line] == [
        "seed 51: an entry is gone",
        "seed 53: an entry is gone",
    ]
    assert report.verdict(is_blind=True) == "FAILED: 2 of 4 seeds break a promise: 51, 53"
    assert report.verdict(is_blind=False) == report.verdict(is_blind=True)
    first = collect((each for each in found), len(found), ends_at_first=True)
    assert (first.seeds, [failure["seed"] for failure in first.failures]) == (2, [51])


def test_a_campaign_that_is_interrupted_reports_what_ran() -> None:
    """Hours of seeds: also by SIGTERM, as a process in the background ignores Ctrl-C."""

    def results() -> Generator[dict[str, Any], None, None]:
        yield run_seed(50)
        yield run_seed(51)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with sigterm_interrupts():
        report = collect(results(), 100)
    assert (report.seeds, report.is_cut_off) == (2, True)
    assert report.verdict(is_blind=False) == "CUT OFF: 2 seeds, no violation in these"
    assert report.as_json()["is_cut_off"] and not collect((run_seed(seed) for seed in (50,)), 1).is_cut_off
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_command_reports_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 3, 16: the words of the JSON line."""
    assert run_sim(["--seeds", "3", "--processes", "1", "--json"]) == 0
    out, said = capsys.readouterr()
    assert said.splitlines()[-1] == "sim: passed: 3 seeds, no violation"
    assert out.count("\n") == 1
    told = json.loads(out)
    assert {"seeds", "violations", "events", "simulated_s", "real_s", "faults", "sometimes"} <= set(told)
    assert set(told["sometimes"]) == {"reached", "missed"}
    assert (told["seeds"], told["violations"]) == (3, 0)


def test_the_command_shows_one_seed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`./run sim --trace N`: the trace to read, and with --chart drawn."""
    chart = tmp_path / "chart.svg"
    assert run_sim(["--trace", "3", "--chart", str(chart)]) == 0
    assert "──▶" in capsys.readouterr().out
    assert chart.exists()
