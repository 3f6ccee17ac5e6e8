"""`./run bench NAME [--json]`: run one benchmark; one line per row, nothing else, on standard output."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import Row


def names() -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def as_json(row: Row) -> str:
    return json.dumps({**asdict(row), "ratio": row.ratio, "peer_ratio": row.peer_ratio})


def as_text(row: Row) -> str:
    text = f"{row.work:<30}{row.value:>14,.1f} {row.unit:<10}"
    if row.ceiling is not None:
        text += f"{row.ceiling:>14,.1f} ceiling{row.ratio:>8.2f}x"
    if row.cpu_us_per_entry is not None:
        text += f"{row.cpu_us_per_entry:>10.2f} us of CPU an entry"
    if row.peer_value is not None:
        text += f"{row.peer_value:>14,.1f} {row.peer}{row.peer_ratio:>8.2f}x"
    elif row.peer is not None:
        text += f"  absent here: {row.peer}"
    return text


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run bench", description="Measure one question of benchmarks/.")
    parser.add_argument("name", choices=names(), help="the question")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    options = parser.parse_args(argv)
    write = as_json if options.json else as_text
    for row in importlib.import_module(f"benchmarks.{options.name}").measure():
        print(write(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
