"""What a scrub may be told, and what it comes to (SCRUB.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from embedbk.errors import UsageError
from embedbk.scrub.judging import CopyFinding

__all__ = ["EXIT_CLEAN", "EXIT_FINDINGS", "EXIT_INCOMPLETE", "LEVELS", "ScrubOptions", "ScrubResult"]

LEVELS = ("meta", "crc", "compare", "mac")
EXIT_CLEAN, EXIT_FINDINGS, EXIT_INCOMPLETE = 0, 2, 3


@dataclass(frozen=True, slots=True)
class ScrubOptions:
    """level: one of LEVELS, each with all before it. mbps_max: megabytes per second of each bookie; 0: as fast as it
    answers. password: of the ledgers whose HMAC tags are checked at level mac. state: a file of what is done, from
    which the next scrub goes on. queues_repair: what is found is handed to repair. settle_s: between two judgements of
    the same place. rounds: judgements behind the first one, at most. since_ms: ledgers that were closed before
    that time for certain are passed over, in ms since 1970; None: all are read. is_independent: each copy is checked
    and summed up a second time by code that shares nothing with the kernels in C, and is much slower; not at level
    meta, which reads none."""

    level: str = "compare"
    mbps_max: float = 0.0
    password: bytes = b""
    state: Path | None = None
    queues_repair: bool = False
    settle_s: float = 15.0
    rounds: int = 4
    since_ms: int | None = None
    is_independent: bool = False

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise UsageError(f"level {self.level!r}: one of {', '.join(LEVELS)} is allowed")
        if not 0 <= self.mbps_max < 1e6:
            raise UsageError(f"at most {self.mbps_max} MB/s: 0 or more is allowed")
        if not (0 <= self.settle_s <= 3600 and 1 <= self.rounds <= 100):
            raise UsageError(
                f"settle_s={self.settle_s}, rounds={self.rounds}: 0 to 3600, and 1 to 100, are allowed"
            )

        if self.is_independent and self.level == "meta":
            raise UsageError(
                "is_independent at level 'meta': no entry is read there, so nothing is checked",
                hint="level 'crc' reads each copy; nothing was scrubbed",
            )
        if self.since_ms is not None and self.state is not None:
            raise UsageError(
                f"since_ms={self.since_ms} and a state in {self.state}: a state is of a scrub of all ledgers",
                hint="give one of both; nothing was scrubbed",
            )

    @property
    def compares(self) -> bool:
        return self.level in ("compare", "mac")


@dataclass(slots=True)
class ScrubResult:
    """findings: in the order of ledgers. untold: (ledger, bookie) of which something could not be told, and why; ledger
    None: of a list. copies, bytes_read: entries that bookies returned whole, each copy once for each time it was read.
    skipped: ledgers that an earlier scrub of the same state file finished. passed: ledgers that were closed before
    `since_ms`, and not looked at. queued: ledgers handed to repair."""

    findings: list[CopyFinding] = field(default_factory=list)
    untold: dict[tuple[int | None, str], str] = field(default_factory=dict)
    ledgers: int = 0
    skipped: int = 0
    passed: int = 0
    copies: int = 0
    bytes_read: int = 0
    queued: int = 0

    @property
    def is_complete(self) -> bool:
        return not self.untold

    @property
    def exit_code(self) -> int:
        """Findings come before incompleteness: what is known to be wrong is the more urgent of both."""
        if self.findings:
            return EXIT_FINDINGS
        return EXIT_CLEAN if self.is_complete else EXIT_INCOMPLETE

    def __str__(self) -> str:
        more = f"; {self.skipped} were done before" if self.skipped else ""
        more += f"; {self.passed} were closed before, and passed over" if self.passed else ""
        what = (
            f"{self.ledgers} ledgers, {self.copies} copies of entries, {self.bytes_read / 1e6:.1f} MB{more}"
        )
        if self.findings:
            head = f"{len(self.findings)} findings"
        else:
            head = "clean" if self.is_complete else "nothing wrong was seen, but not all could be told"
        if not self.is_complete:
            bookies = sorted({bookie for _, bookie in self.untold if bookie})
            ledgers = len({ledger for ledger, _ in self.untold})
            by = f" by {', '.join(bookies)}" if bookies else ""
            what += f"; incomplete: of {ledgers} ledgers something was not told{by}"
        queued = f"; {self.queued} ledgers handed to repair" if self.queued else ""
        return f"{head}: {what}{queued}"
