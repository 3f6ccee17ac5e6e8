"""A page of HTML that stands alone: nothing is loaded, no script runs. The space report and a scrub make such pages.

What is shown comes from metadata, which any client may write: all text that is handed over here is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from embedbk.host.loop import utc_text

__all__ = ["ROWS_MAX", "document", "paragraph", "table", "when"]

ROWS_MAX = 200  # Rows shown of a table; the rest is in the JSON.
_STYLE = (
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:60em;color:#222}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:left}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}h2{margin-top:2em}svg text{font-size:12px}"
)


def when(unix_ms: int) -> str:
    return utc_text(unix_ms, "%Y-%m-%d %H:%M UTC") if unix_ms else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    """Whole numbers stand to the right."""
    lines = ["<table><tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"]
    for row in list(rows)[:ROWS_MAX]:
        cells = (
            f'<td class="n">{cell:,}</td>' if isinstance(cell, int) else f"<td>{escape(cell)}</td>"
            for cell in row
        )
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "".join([*lines, "</table>"])


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def document(title: str, parts: Sequence[str]) -> str:
    """The whole page: a title, which becomes its heading, and parts of HTML below it."""
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )
