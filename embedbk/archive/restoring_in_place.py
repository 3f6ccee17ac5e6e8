"""Bringing freed ledgers back to bookies, in place (P8.14): same ids, same positions and offsets, same bytes.

Decides which ledgers of a log are due. Each file is checked before an entry of it is copied, and no ledger is changed
before all of it is durable on its bookies (`client/restoring_in_place.py`). Each ledger that is brought back, and each
that is not, is one line of the log "embedbk.archive".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from embedbk.archive.copying import check_rate
from embedbk.archive.jobs import archive_lock, directory_of
from embedbk.client.client import Client
from embedbk.client.password import Password
from embedbk.client.restoring_in_place import restore_ledger_in_place
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.config import check_flag
from embedbk.errors import EmbedbkError, LockLost, NoSuchLedger, WrongPassword

__all__ = ["InPlaceReport", "LedgerBack", "restore_in_place"]

logger = logging.getLogger("embedbk.archive")


@dataclass(frozen=True)
class LedgerBack:
    """What became of one ledger: "restored", "planned" (of a dry run), "truncated" (it is gone, or no closed ledger of
    the log's list) or "failed", as `why` says: its files are read as before."""

    ledger_id: int
    entries: int
    payload_bytes: int
    outcome: str
    why: str = ""


@dataclass
class InPlaceReport:
    log_id: str
    place: str
    epoch: int
    with_bookies: int = 0  # Ledgers that were never freed.
    ledgers: list[LedgerBack] = field(default_factory=list)

    @property
    def restored(self) -> list[int]:
        return [each.ledger_id for each in self.ledgers if each.outcome == "restored"]

    @property
    def code(self) -> int:
        """The exit code of a command: 0 all is well, 3 some ledgers are still in files only."""
        return 3 if any(each.outcome not in ("restored", "planned") for each in self.ledgers) else 0


def restore_in_place(
    client: Client,
    name: str,
    *,
    password: bytes = b"",
    ledgers: Sequence[int] | None = None,
    dry_run: bool = False,
    bytes_per_s: float | None = None,
) -> InPlaceReport:
    """Bring the freed ledgers of a log back to bookies, oldest first; then they may be freed again, as their archive
    stays verified. Open handles read on, from the files or from bookies.

    Args:
        ledgers: only these; None: all.
        dry_run: nothing is changed, and no file is read; what is due is "planned".
        bytes_per_s: so much is read and copied in a second, on the average; each bookie of a ledger gets as much.

    Raises:
        UsageError: the log has no archive. WrongPassword.
        StorageError: the archive is not there, or another one.
        OperationTimeout: another job works on the archive of this log.
        LockLost: the session ended meanwhile; ledgers already brought back stay so.
    """
    check_flag(dry_run, "dry_run")
    check_rate(bytes_per_s)
    reading, directory = directory_of(client, name, password)
    runtime = reading.runtime
    with archive_lock(reading) as lock:
        report = InPlaceReport(str(reading.name), directory.place.path, lock.epoch)
        listed = [each.ledger_id for each in run_blocking(reading.segments(), "archive") if each.is_closed]
        for ledger_id in [each for each in listed if ledgers is None or each in ledgers]:
            lock.check()
            metadata: LedgerMetadata | None = None
            try:
                what = f"reading ledger {ledger_id}"
                value, _ = run_blocking(runtime.get(ledger_key_path(ledger_id), what), "archive")
                if value is None:
                    raise NoSuchLedger(f"ledger {ledger_id} of log {name!r} is gone")
                metadata = decode_ledger_metadata(value, ledger_id)
                if metadata.freed is None:
                    report.with_bookies += 1
                    continue
                if not dry_run:
                    steps = restore_ledger_in_place(
                        runtime, report.log_id, ledger_id, lock.epoch, Password(password), bytes_per_s
                    )
                    run_blocking(steps, "archive")
                _note(report, name, ledger_id, metadata, "planned" if dry_run else "restored")
            except (LockLost, WrongPassword):
                raise
            except NoSuchLedger as gone:
                _note(report, name, ledger_id, metadata, "truncated", str(gone))
            except (EmbedbkError, OSError) as failed:
                _note(report, name, ledger_id, metadata, "failed", f"{type(failed).__name__}: {failed}")
        for ledger_id in ledgers or ():
            if ledger_id not in listed:
                _note(report, name, ledger_id, None, "truncated", "it is no closed ledger of the log's list")
    return report


def _note(
    report: InPlaceReport,
    name: str,
    ledger_id: int,
    metadata: LedgerMetadata | None,
    outcome: str,
    why: str = "",
) -> None:
    entries = 0 if metadata is None or metadata.last_entry is None else metadata.last_entry + 1
    length = 0 if metadata is None else metadata.length or 0
    report.ledgers.append(LedgerBack(ledger_id, entries, length, outcome, why))
    level = logging.WARNING if outcome == "failed" else logging.INFO
    logger.log(level, "log %r: ledger %d is %s%s", name, ledger_id, outcome, f": {why}" if why else "")
