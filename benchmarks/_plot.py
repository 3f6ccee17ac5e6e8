"""`./run bench all --json | tee rows.jsonl`, then `python -m benchmarks._plot rows.jsonl`: a table, and a drawing.

The table goes to standard output, as Markdown. The drawing, beside this file as `results.svg`, has one bar a row: how
far it came of its ceiling, longer being better, with the value behind it. Nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import Any

TIMES = ("us", "ms", "s", "MB", "bytes")  # Units in which less is better: the bar is ceiling over value.
ROW_PX, BAR_PX, LEFT_PX, WIDTH_PX = 22, 300, 270, 860
FOREIGN_MAX = 0.1


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def reached(row: dict[str, Any]) -> float | None:
    """Share of the ceiling, 1 being all of it; None where there is no ceiling."""
    if not row["ceiling"] or not row["value"]:
        return None
    value, ceiling = float(row["value"]), float(row["ceiling"])
    return ceiling / value if row["unit"] in TIMES else value / ceiling


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}"


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| work | value | ceiling in the same run | ratio | CPU per entry | peer | times the peer |",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    for row in rows:
        mark = " (disturbed)" if (row.get("foreign") or 0) > FOREIGN_MAX else ""
        cells = [
            f"`{row['work']}`{mark}",
            f"{number(row['value'])} {row['unit']}",
            number(row["ceiling"]) if row["ceiling"] else "",
            f"{row['ratio']:.2f}" if row["ratio"] else "",
            f"{row['cpu_us_per_entry']:.2f} us" if row["cpu_us_per_entry"] else "",
            row["peer"] or "",
            f"{row['peer_ratio']:.2f}" if row["peer_ratio"] else "absent" if row["peer"] else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def drawing(rows: list[dict[str, Any]]) -> str:
    shown = [(row, share) for row in rows if (share := reached(row)) is not None]
    height = ROW_PX * (len(shown) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{height}">',
        "<style>text { font: 12px monospace }</style>",
        f'<rect width="{WIDTH_PX}" height="{height}" fill="white"/>',
        f'<text x="{LEFT_PX}" y="15">share of the ceiling measured in the same run; the line is all of it</text>',
    ]
    for place, (row, share) in enumerate(shown, 1):
        y = place * ROW_PX
        width = min(share, 1.25) * BAR_PX
        value = f"{share:.2f}  {number(row['value'])} {row['unit']}"
        parts += [
            f'<text x="{LEFT_PX - 8}" y="{y + 15}" text-anchor="end">{escape(row["work"])}</text>',
            f'<rect x="{LEFT_PX}" y="{y + 4}" width="{width:.1f}" height="{ROW_PX - 8}" fill="#4878a8"/>',
            f'<text x="{LEFT_PX + max(width, BAR_PX) + 8:.1f}" y="{y + 15}">{escape(value)}</text>',
        ]
    end = LEFT_PX + BAR_PX
    parts.append(
        f'<line x1="{end}" y1="{ROW_PX}" x2="{end}" y2="{height - ROW_PX}" stroke="black" stroke-dasharray="3 3"/>'
    )
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    found = read(Path(sys.argv[1]))
    print(table(found))
    (Path(__file__).parent / "results.svg").write_text(drawing(found))
