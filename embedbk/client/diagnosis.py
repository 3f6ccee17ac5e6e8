"""`embedbk.doctor()`: what this machine offers embedbk, and what it lacks, as data and as text.

Decides nothing and changes nothing; a directory that is looked at gets a small journal in a temporary folder, which is
removed again.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedbk.errors import EmbedbkError, InvariantError
from embedbk.spark.java import find_java, java_version
from embedbk.storage.journal import FILE_BYTES_MIN, Journal, JournalFacts
from embedbk.storage.native import self_test
from embedbk.storage.probe import choose_sync
from embedbk.storage.scrubbing import SCRUB_FILE, read_scrub_state

__all__ = ["DiagnosisFinding", "Diagnosis", "doctor"]

_PYTHON_MIN = (3, 11)
_CLOCK_STEP_NS_MAX = 1_000_000  # A clock that moves in larger steps than this makes timeouts coarse.


@dataclass(frozen=True, slots=True)
class DiagnosisFinding:
    """One finding. is_good False: embedbk works less well, or not at all, and `advice` explains why."""

    subject: str
    value: str
    is_good: bool = True
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `doctor` found; `str()` is the text for people."""

    findings: tuple[DiagnosisFinding, ...]

    @property
    def is_good(self) -> bool:
        return all(finding.is_good for finding in self.findings)

    def as_data(self) -> list[dict[str, Any]]:
        """Plain values, for JSON."""
        return [
            {
                "subject": finding.subject,
                "value": finding.value,
                "is_good": finding.is_good,
                "advice": finding.advice,
            }
            for finding in self.findings
        ]

    def __str__(self) -> str:
        width = max(len(finding.subject) for finding in self.findings)
        lines: list[str] = []
        for finding in self.findings:
            lines.append(
                f"{'ok  ' if finding.is_good else 'note'}  {finding.subject:<{width}}  {finding.value}"
            )
            if finding.advice:
                lines.append(f"      {'':<{width}}  {finding.advice}")
        return "\n".join(lines)


def doctor(*directories: str | os.PathLike[str]) -> Diagnosis:
    """Look at Python, the C module, the clock, Java, and each directory (none: the present one)."""
    return Diagnosis(
        (
            _python(),
            _checksum(),
            _clock(),
            _java(),
            *(found for path in directories or (".",) for found in _directory(Path(path))),
        )
    )


def _python() -> DiagnosisFinding:
    value = f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()}"
    is_good = sys.version_info >= _PYTHON_MIN and sys.platform == "linux"
    return DiagnosisFinding(
        "python", value, is_good, "" if is_good else "CPython 3.11 or newer on Linux is what is tested"
    )


def _checksum() -> DiagnosisFinding:
    try:
        self_test()
    except InvariantError as wrong:
        return DiagnosisFinding(
            "crc32c", str(wrong), False, "nothing may be stored with it: report this machine"
        )
    return DiagnosisFinding("crc32c", "agrees with crcmod")


def _clock() -> DiagnosisFinding:
    step_ns = int(time.clock_getres(time.CLOCK_BOOTTIME) * 1e9)
    is_good = step_ns <= _CLOCK_STEP_NS_MAX
    advice = "" if is_good else "timeouts are as coarse as that"
    return DiagnosisFinding("clock", f"CLOCK_BOOTTIME in steps of {step_ns} ns", is_good, advice)


def _java() -> DiagnosisFinding:
    home = find_java(may_install=False)
    if home is None:
        return DiagnosisFinding(
            "java", "none found", True, "only Spark needs it: pip install 'embedbk[jdk]', or set JAVA_HOME"
        )
    return DiagnosisFinding("java", f"{java_version(home)} at {home}")


def _directory(path: Path) -> Iterator[DiagnosisFinding]:
    subject = f"directory {path}"
    if not path.is_dir():
        yield DiagnosisFinding(subject, "does not exist", False, "make it, or give its parent")
        return
    try:
        with tempfile.TemporaryDirectory(dir=path, prefix=".embedbk-doctor-") as scratch:
            facts, sync_ns = _try_journal(Path(scratch))
            choice = choose_sync(scratch)
    except (OSError, EmbedbkError) as refused:
        yield DiagnosisFinding(
            subject, f"cannot hold a journal: {refused}", False, "check the disk and the permissions"
        )
        return
    advice = ""
    if not facts.direct:
        advice = (
            "the file system refuses O_DIRECT: commits use fdatasync, which is slower beside other writers"
        )
    yield DiagnosisFinding(subject, f"commits by {facts.sync_method}", facts.direct, advice)
    yield DiagnosisFinding(f"{subject}, one commit", f"{sync_ns / 1000:.0f} us")
    yield DiagnosisFinding(f"{subject}, ways to sync", str(choice))
    yield _realtime(subject, facts)
    yield from _scrubs(path)


def _scrubs(path: Path) -> Iterator[DiagnosisFinding]:
    """The damage that the scrubbers of the bookies in a directory have found (I55)."""
    for note in sorted([*path.glob(SCRUB_FILE), *path.glob(f"*/{SCRUB_FILE}")]):
        try:
            state = read_scrub_state(note.read_bytes())
        except OSError:
            continue
        if state is None:
            continue  # The scrubber begins anew at the next start.
        damages = [damage for found in state.damages.values() for damage in found]
        value = (
            f"{len(damages)} damaged places known, {state.passes} passes, then {state.pass_bytes >> 20} MiB"
        )
        advice = ""
        if damages:
            advice = f"the first is {damages[0].path} at offset {damages[0].offset}: {damages[0].what}"
        yield DiagnosisFinding(f"scrub of {note.parent}", value, not damages, advice)


def _realtime(subject: str, facts: JournalFacts) -> DiagnosisFinding:
    """Whether the commit thread runs in the real-time class; if not, a commit takes up to a scheduler tick longer while
    the processors are busy."""
    if facts.realtime:
        return DiagnosisFinding(f"{subject}, commit thread", "real-time class (SCHED_RR)")
    return DiagnosisFinding(
        f"{subject}, commit thread",
        "no real-time class",
        True,
        "beside a busy application commits are slower: give the process CAP_SYS_NICE, or an rtprio limit of 1",
    )


def _try_journal(scratch: Path) -> tuple[Any, int]:
    with Journal(scratch / "journal", file_bytes=FILE_BYTES_MIN) as journal:
        return journal.facts(), _best_of(5, lambda: journal.wait(journal.append(1, 1, b"doctor")))


def _best_of(count: int, work: Callable[[], None]) -> int:
    times: list[int] = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - begin)
    return min(times)
