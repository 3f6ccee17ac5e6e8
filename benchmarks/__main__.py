"""`./run bench NAME [--json]`: run one benchmark; one line per row, nothing else, on standard output."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from benchmarks import Row


def names() -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def as_json(row: Row) -> str:
    fields = {
        "work": row.work,
        "value": row.value,
        "unit": row.unit,
        "ceiling": row.ceiling,
        "ratio": row.ratio,
    }
    return json.dumps(fields)


def as_text(row: Row) -> str:
    value, ceiling = f"{row.value:,.1f}", f"{row.ceiling:,.1f}"
    return f"{row.work:<28}{value:>14} {row.unit:<10}{ceiling:>14} ceiling{row.ratio:>8.2f}x"


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
