"""The acts behind the writing: the log is asked, copied, archived and scrubbed; all paths have the same rows.

    asked      Spark SQL counts the rows and answers a question about the input, which Python answers too
    copied     a streaming query, whose driver is killed between the sink's commit and Spark's own, and started again
    archived   to Parquet, verified by another job, and counted by a reader of Parquet
    scrubbed   one copy of one entry is damaged on its disk; a scrub has to find that, and repair puts it right

Decides what is asked and what must come out. Without Spark the first two are left out, and the jobs of the others run
in this process.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import embedbk
from embedbk.cluster import Cluster
from embedbk.demo.copies import count_copies
from embedbk.demo.copying import COPY, is_between_commits, rows_per_batch_of
from embedbk.demo.damage import damage_copy
from embedbk.demo.lines import Lines
from embedbk.demo.screen import Rows, Screen
from embedbk.demo.sparked import SeenRows, SparkAct, spark_errors
from embedbk.demo.verdict import LogComparison, compare
from embedbk.demo.writer import LOG
from embedbk.errors import EmbedbkError, OperationTimeout
from embedbk.scrub import ScrubOptions, scrub
from embedbk.scrub.judging import CopyFinding

__all__ = ["PipelineOutcome", "run_pipeline"]

SETTLE_S = 0.5  # Between two looks of the scrub: nothing else writes or repairs.
LOOK_S = 0.25
STOP_S = 30.0  # For a bookie to write out what it has.
MEND_S = 60.0


@dataclass(slots=True)
class PipelineOutcome:
    """What came of it; None where an act was left out."""

    lines: int
    is_with_spark: bool
    is_with_archive: bool
    spark: SeenRows | None = None
    words: list[tuple[str, int]] = field(default_factory=list)
    word_lines: int | None = None  # In how many lines Python finds the first of them.
    killed_at: int | None = None  # Rows of the copy when its driver was killed.
    was_between_commits: bool = False
    copied: LogComparison | None = None
    copied_seen: SeenRows | None = None
    archived_rows: int | None = None
    archived_seen: SeenRows | None = None
    is_verified: bool = False
    planted: tuple[int, int, str] | None = None  # Ledger, entry, and the bookie whose copy it is.
    findings: list[CopyFinding] = field(default_factory=list)
    is_scrub_complete: bool = False
    is_mended: bool = False

    @property
    def scrub_found(self) -> int:
        """Damaged copies."""
        return sum(each.kind == "crc" for each in self.findings)

    @property
    def is_word_right(self) -> bool:
        return self.word_lines == (self.words[0][1] if self.words else 0)

    @property
    def holds(self) -> bool:
        return (
            (not self.is_with_spark or self._is_read_and_copied)
            and (not self.is_with_archive or self._is_archived)
            and self._is_scrubbed
        )

    @property
    def _is_read_and_copied(self) -> bool:
        spark, copied, seen = self.spark, self.copied, self.copied_seen
        return (
            spark is not None
            and spark.row_count == self.lines
            and self.is_word_right
            and self.was_between_commits
            and copied is not None
            and copied.is_good
            and copied.entries == self.lines
            and seen is not None
            and (seen.row_count, seen.fingerprint) == (spark.row_count, spark.fingerprint)
        )

    @property
    def _is_archived(self) -> bool:
        seen, spark = self.archived_seen, self.spark
        is_same = (
            seen is None
            or spark is None
            or (seen.row_count, seen.fingerprint) == (spark.row_count, spark.fingerprint)
        )
        return self.is_verified and self.archived_rows == self.lines and is_same

    @property
    def _is_scrubbed(self) -> bool:
        """The planted one is found, with what follows from it, and nothing else; and it is mended."""
        if self.planted is None:
            return False
        ledger_id, entry_id, bookie = self.planted
        wanted = {
            ("crc", ledger_id, entry_id, entry_id, bookie),
            ("under-Qw", ledger_id, entry_id, entry_id, ""),
        }
        found = {(each.kind, each.ledger_id, each.first, each.last, each.bookie) for each in self.findings}
        return self.is_scrub_complete and found == wanted and self.is_mended

    def as_json(self) -> dict[str, Any]:
        return {
            "spark_rows": self.spark.row_count if self.spark else None,
            "spark_words": dict(self.words) if self.spark else None,
            "copied_rows": self.copied.entries if self.copied else None,
            "copied_duplicated": self.copied.duplicated if self.copied else None,
            "copied_when_killed": self.killed_at,
            "archived_rows": self.archived_rows,
            "scrub_found": self.scrub_found,
        }

    def rows(self) -> Rows:
        rows = []
        if self.spark is not None:
            rows.append(("rows counted by Spark SQL", f"{self.spark.row_count:,}"))
        if self.words:
            word, lines = self.words[0]
            python = "as Python counts" if self.is_word_right else f"Python counts {self.word_lines:,}"
            rows.append((f'lines with its most frequent word, "{word}" ({python})', f"{lines:,}"))
        if self.copied is not None:
            rows += [
                ("rows of the copy, its driver killed between both commits", f"{self.copied.entries:,}"),
                ("of them duplicated", f"{self.copied.duplicated}"),
            ]
        if self.archived_rows is not None:
            rows.append(("rows in the archive (Parquet)", f"{self.archived_rows:,}"))
        rows.append(("damaged copies found by the scrub, of 1 planted", f"{self.scrub_found}"))
        return rows


def run_pipeline(
    lines: Lines,
    directory: Path,
    cluster: Cluster,
    bk: embedbk.Client,
    screen: Screen,
    spark: SparkAct | None,
) -> PipelineOutcome:
    """All acts that this machine can show, each with a line of its own.

    Raises:
        EmbedbkError: one cannot go on.
    """
    has_pyarrow = find_spec("pyarrow") is not None
    outcome = PipelineOutcome(len(lines), spark is not None, has_pyarrow)
    acts = _Acts(lines, directory, cluster, bk, screen, outcome)
    with contextlib.nullcontext() if spark is None else spark_errors():
        if spark is not None:
            acts.ask(spark)
            acts.copy(spark)
        if has_pyarrow:
            acts.archive(spark)
        else:
            hint = "pip install 'embedbk[arrow]' brings it"
            screen.say(f"the archive is left out: pyarrow is not installed ({hint})")
        acts.scrub(spark)
    return outcome


@dataclass(slots=True)
class _Acts:
    lines: Lines
    directory: Path
    cluster: Cluster
    bk: embedbk.Client
    screen: Screen
    outcome: PipelineOutcome

    def ask(self, spark: SparkAct) -> None:
        self.screen.say("Spark SQL counts and groups the lines")
        seen = self.outcome.spark = spark.rows(self.cluster.url, LOG)
        for group in seen.groups:
            entries, byte_count = f"{group.entries:,} lines", f"{group.byte_count:,} bytes"
            self.screen.say(
                f"  ledger {group.ledger_id}: {entries}, {byte_count}, from offset {group.first_offset:,} on"
            )
        if seen.byte_count != self.lines.byte_count:
            raise EmbedbkError(f"Spark counted {seen} for {self.lines.byte_count} bytes")
        self.screen.say("Spark SQL looks for the words that stand in the most lines")
        words = self.outcome.words = spark.commonest_words(self.cluster.url, LOG)
        self.outcome.word_lines = lines_with(self.lines, words[0][0]) if words else 0
        for word, count in words:
            self.screen.say(f'  "{word}" in {count:,} lines')

    def copy(self, spark: SparkAct) -> None:
        """The first driver is killed where a sink that is not transactional would double rows."""
        count, checkpoint = len(self.lines), self.directory / "checkpoint"
        copy = self.bk.log(COPY)
        self.screen.begin("copied by a streaming query", count)
        held = spark.driver.copy_until_held(self.cluster.url, checkpoint, count, self._show_copied)
        spark.driver.kill()
        self.outcome.killed_at = copy.end()
        self.outcome.was_between_commits = is_between_commits(checkpoint, held)
        self.screen.move(self.outcome.killed_at)
        self.screen.say(
            f"driver of the copy killed (SIGKILL): the sink has committed micro-batch {held}, Spark has not; "
            f"the copy has {self.outcome.killed_at:,} rows"
        )
        query = spark.begin_copy(self.cluster.url, checkpoint, rows_per_batch_of(count))
        self.screen.say(f"another driver begins, with micro-batch {held} once more")
        while not query.awaitTermination(1):
            self._show_copied()
        if is_between_commits(checkpoint, held):
            raise EmbedbkError(f"micro-batch {held} was not run again")
        self.outcome.copied = compare(copy, self.lines, count, self.screen.move)
        self.outcome.copied_seen = spark.rows(self.cluster.url, COPY)

    def _show_copied(self) -> None:
        if self.bk.log_exists(COPY):
            self.screen.move(self.bk.log(COPY).end())

    def archive(self, spark: SparkAct | None) -> None:
        """Its closed ledgers are all of it: nobody writes any more."""
        from embedbk.archive.jobs import archive, set_place
        from embedbk.archive.place import create_place
        from embedbk.archive.verifying import verify_archive

        place = self.directory / "archive"
        create_place(place)
        set_place(self.bk, LOG, place)
        self.screen.say(
            f"the log is archived to Parquet {'by tasks of Spark' if spark else 'in this process'}"
        )
        if spark is None:
            report = archive(self.bk, LOG)
            found = verify_archive(self.bk, LOG, against_bookies=True)
        else:
            from embedbk.spark import archiving

            report = archiving.archive(spark.session, self.cluster.url, LOG)
            found = archiving.verify_archive(spark.session, self.cluster.url, LOG, against_bookies=True)
            self.outcome.archived_seen = spark.archived_rows(place)
        seen = self.outcome.archived_seen
        self.outcome.archived_rows = found.entries if seen is None else seen.row_count
        self.outcome.is_verified = report.is_whole and found.code == 0
        payload, stored = (
            sum(getattr(each, name) for each in report.ledgers) for name in ("payload_bytes", "file_bytes")
        )
        self.screen.say(
            f"  {found.files} files of {stored / 1e6:.1f} MB for {payload / 1e6:.1f} MB; read again by another job, "
            f"and compared with what bookies hold: {len(found.findings)} findings"
        )

    def scrub(self, spark: SparkAct | None) -> None:
        """Repair is held, and bookies have no scrubber of their own here (SETTINGS): they may not mend it first."""
        self.bk.stop_repair("the demo damages a copy")
        self._plant()
        options = ScrubOptions(settle_s=SETTLE_S, queues_repair=True)
        self.screen.say(
            f"every copy of every entry is read {'by tasks of Spark' if spark else 'in this process'}"
        )
        if spark is None:
            result = scrub(self.bk, options)
        else:
            from embedbk.spark.scrubbing import scrub_on

            result = scrub_on(spark.session, self.bk, options)
        self.outcome.findings, self.outcome.is_scrub_complete = result.findings, result.is_complete
        self.screen.say(f"scrub: {result}")
        for finding in result.findings:
            self.screen.say(f"  {finding}")
        self.bk.start_repair()
        until = time.monotonic() + MEND_S
        while not self.outcome.is_mended and time.monotonic() < until:
            time.sleep(LOOK_S)
            self.outcome.is_mended = len(count_copies(self.bk, LOG)) == 1
        if self.outcome.is_mended:
            self.screen.say("repair goes on, and has put the copy right")

    def _plant(self) -> None:
        position = self._middle()
        metadata = self.bk.ledger_metadata(position.ledger_id)
        fragment = next(
            each for each in reversed(metadata.fragments) if each.first_entry <= position.entry_id
        )
        bookie, _ = fragment.ensemble[0]
        peer = self.cluster.processes[bookie]
        peer.send_signal(signal.SIGTERM)
        if not peer.wait(STOP_S):
            raise OperationTimeout(f"bookie {bookie} did not stop within {STOP_S:g} s")
        damage_copy(self.cluster.directory / bookie, position.ledger_id, position.entry_id)
        self.cluster.restart(bookie)
        self.outcome.planted = position.ledger_id, position.entry_id, bookie
        self.screen.say(
            f"a byte of entry {position.entry_id:,} of ledger {position.ledger_id} is changed on the disk of bookie "
            f"{bookie}, which was stopped for that; repair is held"
        )

    def _middle(self) -> embedbk.Position:
        """The position of the line in the middle."""
        offset = len(self.lines) // 2
        segment = next(each for each in reversed(self.bk.log(LOG).segments()) if each.first_offset <= offset)
        return embedbk.Position(segment.ledger_id, offset - segment.first_offset)


def lines_with(lines: Lines, word: str) -> int:
    """In how many lines a word stands, as `sparked` cuts words."""
    pattern = re.compile(rb"(?<![A-Za-z_])" + re.escape(word.encode("ascii")) + rb"(?![A-Za-z_])")
    return sum(pattern.search(lines[number]) is not None for number in range(len(lines)))
