"""What a scrub found as one page of HTML: what it comes to, its findings, what could not be told (SCRUB.md).

A page says as much as the JSON lines, but for rows beyond the first of a table, and says how many those are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from embedbk.report.document import ROWS_MAX, document, paragraph, table, when
from embedbk.scrub.judging import CopyFinding
from embedbk.scrub.options import ScrubOptions, ScrubResult

__all__ = ["findings_page"]


def findings_page(result: ScrubResult, options: ScrubOptions, made_ms: int, cluster: str = "") -> str:
    """The whole document."""
    title = f"Scrub of {cluster or 'the cluster'}, {when(made_ms)}"
    what = f"Level {options.level}"
    if options.since_ms is not None:
        what += f"; ledgers that were not closed before {when(options.since_ms)}"
    parts = [paragraph(f"{result!s}."), paragraph(f"{what}; exit status {result.exit_code}.")]
    if result.findings:
        kinds = sorted(Counter(each.kind for each in result.findings).items())
        parts += ["<h2>Findings</h2>", table(["kind", "findings"], kinds)]
        heads = ["kind", "log", "ledger", "entries", "bookie", "what is wrong"]
        parts += [table(heads, map(_row, result.findings)), *_rest(result.findings)]
    if result.untold:
        untold = [(_shown(ledger), bookie, why) for (ledger, bookie), why in result.untold.items()]
        parts += ["<h2>What could not be told</h2>", table(["ledger", "bookie", "why"], untold)]
        parts += _rest(untold)
    return document(title, parts)


def _row(finding: CopyFinding) -> Sequence[str]:
    entries = _shown(finding.first)
    if finding.last != finding.first:
        entries += f" to {finding.last}"
    return finding.kind, finding.log, _shown(finding.ledger_id), entries, finding.bookie, finding.text


def _shown(number: int | None) -> str:
    return "" if number is None else str(number)


def _rest(rows: Sequence[object]) -> list[str]:
    more = len(rows) - ROWS_MAX
    return [paragraph(f"{more} more are in what --json prints.")] if more > 0 else []
