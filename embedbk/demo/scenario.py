"""The scenario: a log is written while a bookie and its writer are killed, and taken over twice; nothing is lost.

Decides which process is killed when, and what is measured; what is done with the log then, `pipeline` has. Line numbers
below are of the input, which has n lines:

    0 ........ n/3 ............. 2n/3 .................. 9n/10 .......... n
    first      a bookie of its   first writer killed,    second stopped,  third is done: the second goes on,
    writer     ensemble and the  second takes over       third takes over and its next append must be refused
               metadata leader
               killed
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import embedbk
from embedbk.client.bookie_states import AWAY
from embedbk.cluster import Cluster
from embedbk.config import Settings
from embedbk.demo.copies import count_copies
from embedbk.demo.lines import Lines
from embedbk.demo.pipeline import PipelineOutcome, run_pipeline
from embedbk.demo.screen import Rows, Screen
from embedbk.demo.sparked import SparkAct
from embedbk.demo.verdict import LogComparison, compare
from embedbk.demo.worker_processes import WorkerProcesses, WriterProcess
from embedbk.demo.writer import LOG
from embedbk.errors import OperationTimeout

__all__ = ["BOOKIES", "ScenarioOutcome", "ScenarioPlan", "run"]

BOOKIES = 4
COPIES = 3  # Copies of every entry on living bookies before it ends.
MEMBERS = 3
LOOK_S = 0.02  # Between two looks at metadata.
# A process that cannot start says so at once; one that is slow shares the machine with whatever else runs there.
# Nobody waits five minutes for a demonstration.
# Bookies look for damage themselves, which the scrub at the end has to find first: they are told not to.
SETTINGS = Settings(open_timeout_s=60.0, repair_grace_s=1.0, session_ttl_ms=3_000, scrub_bytes_per_s=0)
HEALTH_LOOK_S = 0.25  # Between two looks at the health of the cluster.
REFUSAL = "LedgerFenced"


@dataclass(frozen=True, slots=True)
class ScenarioPlan:
    """At how many acknowledged lines something happens, and how far a writer may get until it has."""

    bookie_dies: int
    bookie_dies_limit: int
    first_dies: int
    first_dies_limit: int
    second_stops: int
    second_stops_limit: int

    @classmethod
    def of(cls, count: int) -> ScenarioPlan:
        """The limits leave lines in flight when a signal comes, and something to append afterwards."""
        third, two_thirds = count // 3, 2 * count // 3
        last = max(two_thirds, min(count - 1, 9 * count // 10))
        margin = max(1, count // 25)
        return cls(
            third,
            min(third + margin, two_thirds),
            two_thirds,
            min(two_thirds + margin, last),
            last,
            min(last + margin, count - 1),
        )


@dataclass(slots=True)
class ScenarioOutcome:
    """What came of it."""

    lines: int
    byte_count: int
    seconds: float = 0.0  # From the first writer's start to the last acknowledgement.
    acknowledged: int = 0
    ensemble_changes: int = 0
    bookie_killed: str = ""
    leader_killed: str = ""  # The metadata member killed while the bookie has to be replaced.
    failover_ms: float | None = None  # From the leader's kill until another member leads.
    bookie_kill_ms: float | None = None  # From the kill to the next acknowledged append.
    repaired_ms: float | None = (
        None  # From the bookie's kill until every ledger has its copies on living bookies again.
    )
    recovery_ms: float | None = (
        None  # Fence, recover and close, open a new ledger: the second writer's takeover.
    )
    takeover_ms: float | None = None  # From the kill of the writer to the next acknowledged append.
    third_takeover_ms: float | None = None
    refused: dict[str, Any] | None = None  # What the old writer's next append got.
    verdict: LogComparison | None = None
    ledgers: int = 0
    copies: dict[int, int] = field(default_factory=dict)
    pipeline: PipelineOutcome | None = None

    @property
    def is_old_writer_refused(self) -> bool:
        return self.refused is not None and self.refused["error"] == REFUSAL

    @property
    def holds(self) -> bool:
        """Everything that this demonstration promises."""
        verdict = self.verdict
        return (
            verdict is not None
            and verdict.is_good
            and verdict.entries == self.lines == self.acknowledged
            and self.is_old_writer_refused
            and self.failover_ms is not None
            and self.repaired_ms is not None
            and set(self.copies) <= {COPIES}
            and self.pipeline is not None
            and self.pipeline.holds
        )

    @property
    def lines_per_s(self) -> float:
        return self.lines / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        verdict = self.verdict
        return {
            "holds": self.holds,
            "lines": self.lines,
            "bytes": self.byte_count,
            "read_back": verdict.entries if verdict else None,
            "acknowledged": self.acknowledged,
            "acknowledged_lost": verdict.acknowledged_lost if verdict else None,
            "out_of_order": verdict.out_of_order if verdict else None,
            "duplicated": verdict.duplicated if verdict else None,
            "lines_per_s": round(self.lines_per_s, 1),
            "ensemble_changes": self.ensemble_changes,
            "bookie_killed": self.bookie_killed,
            "metadata_members": MEMBERS,
            "leader_killed": self.leader_killed,
            "failover_ms": _rounded(self.failover_ms),
            "bookie_kill_ms": _rounded(self.bookie_kill_ms),
            "repaired_ms": _rounded(self.repaired_ms),
            "recovery_ms": _rounded(self.recovery_ms),
            "takeover_ms": _rounded(self.takeover_ms),
            "third_takeover_ms": _rounded(self.third_takeover_ms),
            "old_writer_refused": self.is_old_writer_refused,
            "ledgers": self.ledgers,
            "copies": {str(count): entries for count, entries in self.copies.items()},
            **(self.pipeline.as_json() if self.pipeline else {}),
        }

    def rows(self) -> Rows:
        verdict = self.verdict
        assert verdict is not None
        rows = [
            ("lines", f"{self.lines:,}"),
            ("MB", f"{self.byte_count / 1e6:.1f}"),
            ("lines/s", f"{self.lines_per_s:,.0f}"),
            ("acknowledged and lost", f"{verdict.acknowledged_lost}"),
            ("out of order", f"{verdict.out_of_order}"),
            ("duplicated", f"{verdict.duplicated}"),
            ("ensemble changes", f"{self.ensemble_changes}"),
            ("bookie killed, next acknowledged append after", _ms(self.bookie_kill_ms)),
            ("bookie killed, and stays away: its copies on others after", _ms(self.repaired_ms)),
            (f"leader of {MEMBERS} metadata members killed, time without one", _ms(self.failover_ms)),
            ("writer killed, next acknowledged append after", _ms(self.takeover_ms)),
            ("of it to recover: fence, close, new ledger", _ms(self.recovery_ms)),
            ("old writer's next append", self.refused["error"] if self.refused else "was taken!"),
            ("ledgers of the log", f"{self.ledgers}"),
        ]
        rows += [
            (f"entries with {count} {'copy' if count == 1 else 'copies'} on living bookies", f"{entries:,}")
            for count, entries in self.copies.items()
        ]
        return [*rows, *(self.pipeline.rows() if self.pipeline else ())]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def run(lines: Lines, directory: Path, screen: Screen, spark: SparkAct | None) -> ScenarioOutcome:
    """Run it all. directory: empty, for everything that is made.

    Raises:
        EmbedbkError: the scenario cannot go on: a process could not start, or ended where it should not.
    """
    outcome = ScenarioOutcome(len(lines), lines.byte_count)
    with (
        WorkerProcesses(lines.path, ("first", "second", "third")) as workers,
        Cluster(directory / "cluster", BOOKIES, settings=SETTINGS, members=MEMBERS) as cluster,
    ):
        screen.say(f"{BOOKIES} bookies and {MEMBERS} metadata members run: {cluster.url}")
        for writer in workers.writers:
            writer.tell("open", cluster.url)
        with embedbk.open(cluster.url) as bk:
            scenario = _Scenario(lines, screen, cluster, workers, bk, outcome)
            screen.begin("acknowledged lines", len(lines))
            scenario.write()
            scenario.until_repaired()
        with embedbk.open(cluster.url) as bk:  # A reader that knows the log's name and nothing else.
            scenario.read(bk)
            outcome.pipeline = run_pipeline(lines, directory, cluster, bk, screen, spark)
    return outcome


class _Scenario:
    def __init__(
        self,
        lines: Lines,
        screen: Screen,
        cluster: Cluster,
        workers: WorkerProcesses,
        bk: embedbk.Client,
        outcome: ScenarioOutcome,
    ) -> None:
        self.lines = lines
        self.screen = screen
        self.cluster = cluster
        self.workers = workers
        self.bk = bk
        self.outcome = outcome
        self.killed_at: float | None = (
            None  # From when on health is looked at, as long as seats lack bookies.
        )
        self.looked_at = 0.0
        workers.on_news = self._on_news

    def _on_news(self) -> None:
        self.screen.move(self.workers.acknowledged)
        if self.killed_at is not None and time.monotonic() >= self.looked_at + HEALTH_LOOK_S:
            self._look_at_health(self.killed_at)

    def _look_at_health(self, killed: float) -> None:
        """Until every fragment names living bookies only, which have every entry that they owe. The killed one counts
        as living until its session ends."""
        victim = self.outcome.bookie_killed
        is_known = any(each.bookie_id == victim and each.state == AWAY for each in self.bk.bookies())
        if not is_known or not self.bk.health().is_good:
            self.looked_at = time.monotonic()
            return
        self.outcome.repaired_ms, self.killed_at = (time.monotonic() - killed) * 1000, None
        self.screen.say(
            f"what {self.outcome.bookie_killed} had is copied to others, "
            f"{self.outcome.repaired_ms / 1000:.1f} s after it was killed; no ledger names it any more"
        )

    def until_repaired(self) -> None:
        """Also behind the last takeover: a ledger that a recovery closed may lack a copy of its last entries."""
        until = time.monotonic() + SETTINGS.open_timeout_s
        while self.killed_at is not None and time.monotonic() < until:
            self._look_at_health(self.killed_at)
            time.sleep(LOOK_S)
        while not (health := self.bk.health()).is_good and time.monotonic() < until:
            time.sleep(HEALTH_LOOK_S)
        self.screen.say(str(health))

    def write(self) -> None:
        first, second, third = self.workers.writers
        plan = ScenarioPlan.of(len(self.lines))
        outcome = self.outcome
        for writer in (first, second, third):  # Nobody waits for a Python to start.
            self.workers.until_ready(writer)
        began = time.monotonic()
        first.tell("go", plan.bookie_dies_limit)
        self._owned(first)
        self._until_acknowledged(plan.bookie_dies, first)
        self._kill_bookie(first, plan)
        self._until_acknowledged(plan.first_dies, first)
        killed = self._kill_writer(first)
        second.tell("go", plan.second_stops_limit)
        outcome.recovery_ms = self._owned(second)
        outcome.takeover_ms = self._next_acknowledged(second, killed, plan.second_stops_limit)
        self._until_acknowledged(plan.second_stops, second)
        second.stop()
        self.screen.say(f"second writer stopped (SIGSTOP) at line {self.workers.acknowledged:,}")
        third.tell("go", len(self.lines))
        outcome.third_takeover_ms = self._owned(third)
        ended = self.workers.until(lambda: third.is_done or third.refused is not None, third)
        outcome.seconds = ended - began
        self._let_go_on(second)
        outcome.acknowledged = self.workers.acknowledged
        outcome.ensemble_changes = sum(writer.ensemble_changes for writer in self.workers.writers)

    def _until_acknowledged(self, count: int, writer: WriterProcess) -> None:
        self.workers.until(lambda: self.workers.acknowledged >= count, writer)

    def _owned(self, writer: WriterProcess) -> float:
        """Wait until the writer has the log; how long its takeover took, in ms."""
        before = self.workers.acknowledged
        self.workers.until(lambda: writer.owner is not None, writer)
        assert writer.owner is not None
        first = writer.owner["first_offset"]
        self.screen.say(
            f"{writer.name} writer owns the log (epoch {writer.owner['epoch']}) after "
            f"{writer.owner['took_ms']:.1f} ms and goes on with line {first:,}; {before:,} were acknowledged"
        )
        took_ms: float = writer.owner["took_ms"]
        return took_ms

    def _next_acknowledged(self, writer: WriterProcess, since: float, limit: int) -> float | None:
        """Ms from then to the next acknowledged append; None when there is none to come."""
        before = self.workers.acknowledged
        assert writer.owner is not None
        if max(before, writer.owner["first_offset"]) >= limit:
            return None
        return (self.workers.until(lambda: self.workers.acknowledged > before, writer) - since) * 1000

    def _kill_bookie(self, writer: WriterProcess, plan: ScenarioPlan) -> None:
        assert writer.owner is not None
        with self.bk.open_ledger(writer.owner["ledger_id"]) as ledger:
            victim, _ = ledger.metadata.fragments[-1].ensemble[0]
        leader = self.cluster.leader()
        writer.hear_all()
        since = time.monotonic()
        self.cluster.kill(victim)
        killed = time.monotonic()
        self.cluster.kill(leader)
        self.screen.say(
            f"bookie {victim} of the ensemble killed (SIGKILL) at line {self.workers.acknowledged:,}"
        )
        self.outcome.bookie_killed, self.outcome.leader_killed = victim, leader
        limit = (plan.bookie_dies_limit + plan.first_dies_limit) // 2
        writer.tell("limit", limit)
        self.outcome.bookie_kill_ms = self._next_acknowledged(writer, since, limit)
        after = self.cluster.leader()
        self.outcome.failover_ms = (time.monotonic() - killed) * 1000
        self.screen.say(f"metadata leader {leader} killed (SIGKILL) with it; {after} leads")
        if limit > plan.bookie_dies_limit:
            self._until_replaced(writer, victim)
        self.killed_at = since
        writer.tell("limit", plan.first_dies_limit)

    def _until_replaced(self, writer: WriterProcess, victim: str) -> None:
        """The new leader takes the change of the ensemble, which its writer asks for again and again."""
        assert writer.owner is not None
        until = time.monotonic() + SETTINGS.open_timeout_s
        while time.monotonic() < until:
            with self.bk.open_ledger(writer.owner["ledger_id"]) as ledger:
                if victim not in {bookie for bookie, _ in ledger.metadata.fragments[-1].ensemble}:
                    return
            time.sleep(LOOK_S)
        raise OperationTimeout(f"bookie {victim} was not replaced within {SETTINGS.open_timeout_s:g} s")

    def _kill_writer(self, writer: WriterProcess) -> float:
        since = time.monotonic()
        writer.kill()
        self.screen.say(f"{writer.name} writer killed (SIGKILL) at line {self.workers.acknowledged:,}")
        return since

    def _let_go_on(self, writer: WriterProcess) -> None:
        """The old writer wakes up and knows nothing: it appends."""
        writer.tell("limit", len(self.lines))
        writer.go_on()
        self.workers.until(lambda: writer.refused is not None or writer.appended_late is not None, writer)
        self.outcome.refused = writer.refused
        what = f"{writer.refused['error']}" if writer.refused else "was taken!"
        self.screen.say(f"second writer continued (SIGCONT); its next append: {what}")

    def read(self, bk: embedbk.Client) -> None:
        outcome = self.outcome
        self.screen.begin("read back and compared", len(self.lines))
        log = bk.log(LOG)
        outcome.verdict = compare(log, self.lines, outcome.acknowledged, self.screen.move)
        outcome.ledgers = len(log.segments())
        outcome.copies = count_copies(bk, LOG)
