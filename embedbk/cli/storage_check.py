"""`embedbk storage check`: read all of some directories, and say what is damaged."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack

from embedbk.cli.offline import CLEAN, DAMAGED, Shown
from embedbk.storage.directory_discovery import DirectoryReport, check_place, find_places, hold_place
from embedbk.storage.metadata_checking import MetadataFacts

__all__ = ["check"]

_TELL_S = 1.0  # A check that takes longer prints its progress.


def check(options: argparse.Namespace) -> int:
    shown = Shown(options.json)
    damages = 0
    reports: list[DirectoryReport] = []
    places = find_places(options.path, options.journal_dir, options.ledger_dir)
    with ExitStack() as stack:
        if not options.in_use:
            for place in places:
                hold_place(place, stack)
        for place in places:
            report = check_place(place, progress=_Progress())
            reports.append(report)
            if place is places[-1]:
                _check_cookies(reports)
                _note_missing(reports)
    for report in reports:
        for finding in report.findings.found:
            if finding.is_damage or not options.quiet:
                shown.finding(finding)
        shown.line({"result": "check", **report.as_data()}, _summary(report))
        damages += report.findings.damage_count
    return DAMAGED if damages else CLEAN


def _check_cookies(reports: list[DirectoryReport]) -> None:
    """The metadata's record of each bookie, where both are here (P7.2, P7.9)."""
    for facts in [each.facts for each in reports if isinstance(each.facts, MetadataFacts)]:
        for report in reports:
            if report.place.kind != "bookie" or not report.incarnation:
                continue
            known = facts.cookies.get(report.node_id)
            if facts.cluster_token and report.cluster_token != facts.cluster_token:
                report.findings.damage(
                    str(report.place.root),
                    f"it belongs to the cluster {report.cluster_token.hex()}, the metadata beside it to "
                    f"{facts.cluster_token.hex()}",
                )
            elif known is not None and known.incarnation != report.incarnation:
                report.findings.damage(
                    str(report.place.root),
                    f"the cluster knows {report.node_id!r} with incarnation {known.incarnation.hex()}: wiped or "
                    "swapped disks?",
                )
            elif known is not None and known.starts and not report.starts.has(known.starts, known.start):
                report.findings.damage(
                    str(report.place.root),
                    f"the cluster knows start number {known.starts} of {report.node_id!r} at {known.place}, which is "
                    "none of these directories': an older copy, or copied (P7.9)",
                )


def _note_missing(reports: list[DirectoryReport]) -> None:
    """Bookies that the metadata knows and that are not here: elsewhere, or gone (P7.2)."""
    here = {report.node_id for report in reports if report.place.kind == "bookie"}
    for report in reports if here else ():
        if isinstance(report.facts, MetadataFacts):
            for bookie_id in sorted(report.facts.cookies.keys() - here):
                report.findings.note(
                    str(report.place.root),
                    f"the cluster knows bookie {bookie_id!r}, whose directory is not here",
                )


def _summary(report: DirectoryReport) -> str:
    facts, findings = report.facts, report.findings
    if isinstance(facts, MetadataFacts):
        read = f"{facts.records} records, revision {facts.revision}"
    else:
        read = (
            f"{facts.entries} entries in {facts.entry_logs} entry logs, {facts.journal_records} journal records above "
            f"the log mark {facts.log_mark}, {facts.ledgers} ledgers, {facts.fenced} fenced"
        )
    state = f"{findings.damage_count} DAMAGED" if findings.damage_count else "clean"
    name = (
        f"{report.place.kind} {report.node_id}" if report.node_id != report.place.kind else report.place.kind
    )
    return f"{name} in {report.place.root}: {state}; {read}"


class _Progress:
    """Says on a terminal's standard error where a long check is."""

    def __init__(self) -> None:
        self._bytes = 0
        self._told_at = time.monotonic()

    def __call__(self, path: str, size: int) -> None:
        self._bytes += size
        if time.monotonic() - self._told_at >= _TELL_S and sys.stderr.isatty():
            self._told_at = time.monotonic()
            print(f"embedbk storage check: {self._bytes >> 20} MiB read, in {path}", file=sys.stderr)
