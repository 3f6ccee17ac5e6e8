"""A space report as one page of HTML with its own drawings: nothing is loaded, no script runs (REPORT.md).

Every name comes from metadata, which any client may write: all of it is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from embedbk.report.document import document, table, when
from embedbk.report.figures import KeptLog, SpaceReport

__all__ = ["kept_text", "page_of", "room_text", "size_text"]

_BARS_MAX = 20
_YEARS_SHOWN = 10
_WIDTH, _BAR, _LABEL = 720, 22, 220


def size_text(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} PiB"


def room_text(days_left: float) -> str:
    """For people, and no further than growth of one week tells anything."""
    many = days_left > _YEARS_SHOWN * 365
    return f"more than {_YEARS_SHOWN} years" if many else f"{days_left:.0f} days"


def _bars(title: str, rows: Sequence[tuple[str, int]]) -> str:
    """Horizontal bars, each with its size."""
    shown = rows[:_BARS_MAX]
    most = max((size for _, size in shown), default=0) or 1
    room = _WIDTH - _LABEL - 90
    parts = [
        f'<svg role="img" aria-label="{escape(title)}" width="{_WIDTH}" height="{_BAR * len(shown) + 4}">'
    ]
    for place, (label, size) in enumerate(shown):
        top, width = place * _BAR, max(1, room * size // most) if size else 0
        text = escape(label if len(label) <= 32 else label[:31] + "…")
        parts.append(f'<text x="{_LABEL - 8}" y="{top + 15}" text-anchor="end">{text}</text>')
        parts.append(f'<rect x="{_LABEL}" y="{top + 3}" width="{width}" height="{_BAR - 6}" fill="#4878a8"/>')
        parts.append(f'<text x="{_LABEL + width + 6}" y="{top + 15}">{size_text(size)}</text>')
    return "".join([*parts, "</svg>"])


def _columns(title: str, rows: Sequence[tuple[str, int]]) -> str:
    """Upright bars over time, with the first, the last and the highest named."""
    most, height = max((size for _, size in rows), default=0) or 1, 120
    step = (_WIDTH - 20) // max(1, len(rows))
    parts = [f'<svg role="img" aria-label="{escape(title)}" width="{_WIDTH}" height="{height + 40}">']
    for place, (label, size) in enumerate(rows):
        tall = height * size // most
        left = 10 + place * step
        parts.append(
            f'<rect x="{left}" y="{height - tall + 16}" width="{max(1, step - 4)}" height="{tall}" fill="#6a9a58">'
            f"<title>{escape(label)}: {size_text(size)}</title></rect>"
        )
        if place in (0, len(rows) - 1):
            parts.append(f'<text x="{left}" y="{height + 32}">{escape(label[:10])}</text>')
    parts.append(f'<text x="10" y="12">{size_text(most)} a day at most</text>')
    return "".join([*parts, "</svg>"])


def kept_text(kept: KeptLog) -> str:
    """One entry log and what keeps it, as a sentence for people."""
    named = ", ".join(
        f"ledger {ledger_id} of {log or 'no log'} ({size_text(live)})"
        for ledger_id, log, live in kept.keepers
    )
    more = kept.keeper_count - len(kept.keepers)
    return (
        f"entry log {kept.entry_log:08x} of bookie {kept.bookie_id}: {size_text(kept.dead_bytes)} of "
        f"{size_text(kept.file_bytes)} dead, kept by {named}{f' and {more} more' if more else ''}"
    )


def page_of(report: SpaceReport, cluster: str = "") -> str:
    """The whole document."""
    title = f"Space of {cluster or 'the cluster'}, {when(report.made_ms)}"
    name = {"": "(ledgers of no log)"}
    stored, payload = size_text(report.stored_bytes), size_text(report.payload_bytes)
    parts = [
        f"<p>{stored} stored, {payload} without copies, in {len(report.logs)} logs.</p>",
        "<h2>Space by log</h2>",
        _bars(
            "stored bytes by log",
            [(name.get(each.name, each.name), each.stored_bytes) for each in report.logs],
        ),
        table(
            ["log", "owner", "state", "ledgers", "open", "entries", "stored", "last day", "begun", "newest"],
            (
                (
                    name.get(each.name, each.name),
                    each.owner,
                    each.state,
                    each.ledgers,
                    each.open_ledgers,
                    each.entries,
                    size_text(each.stored_bytes),
                    size_text(each.day_bytes),
                    when(each.oldest_ms),
                    when(each.newest_ms),
                )
                for each in report.logs
            ),
        ),
        "<h2>Space by owner</h2>",
        _bars("stored bytes by owner", [(who or "(nobody)", size) for who, size in report.owners]),
        "<h2>What could be freed</h2>",
        table(
            ["what", "stored", "how"],
            ((each.what, size_text(each.stored_bytes), each.how) for each in report.reclaimable),
        ),
        "<h2>Age</h2>",
        _bars(
            "stored bytes by age",
            [(age if age == "older" else f"up to {age}", size) for age, size in report.ages],
        ),
        "<h2>Growth by day</h2>",
        _columns("payload bytes by day", [(when(begin), size) for begin, size in report.growth]),
        "<h2>Hot ledgers</h2>",
        table(
            ["ledger", "log", "entries a second", "a second", "how it is known"],
            (
                (
                    str(each.ledger_id),
                    each.log,
                    f"{each.entries_per_s:.1f}",
                    size_text(each.bytes_per_s),
                    "measured" if each.is_measured else "on the average since it was begun",
                )
                for each in report.hot
            ),
        ),
        "<h2>Bookies</h2>",
        table(
            ["bookie", "state", "ledgers", "payload of its seats", "in entry logs", "dead in them", "free"],
            (
                (
                    each.bookie_id,
                    each.state,
                    each.ledgers,
                    size_text(each.owed_bytes),
                    "not told" if each.disk_bytes is None else size_text(each.disk_bytes),
                    "not told" if each.dead_bytes is None else size_text(each.dead_bytes),
                    size_text(each.free_bytes),
                )
                for each in report.bookies
            ),
        ),
    ]
    if report.kept:
        parts.append("<h2>Entry logs with the most dead bytes, and what keeps them</h2>")
        parts.append(
            "<ul>" + "".join(f"<li>{escape(kept_text(each))}</li>" for each in report.kept) + "</ul>"
        )
    if report.days_left is not None:
        parts.append(
            f"<p>Free room for {room_text(report.days_left)}, if it grows on as in the last week.</p>"
        )
    if report.untold:
        named = ", ".join(map(str, report.untold[:20]))
        parts.append(f"<p>No bookie told how long {len(report.untold)} open ledgers are: {named}.</p>")
    if report.unread:
        parts.append(f"<p>Keys that cannot be read: {escape(', '.join(report.unread[:20]))}.</p>")
    return document(title, parts)
