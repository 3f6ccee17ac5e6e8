"""`./run bench NAME [--only PATTERN] [--json]`: run one benchmark, or all; one line per row on standard output."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks import Row, is_wanted, want

EVERYTHING = "all"
FOREIGN_MAX = 0.1  # A row measured while others had more than this is no result.


def names() -> list[str]:
    here = Path(__file__).parent
    files = [path.stem for path in here.glob("*.py")] + [
        path.parent.name for path in here.glob("*/__init__.py")
    ]
    return sorted(name for name in files if not name.startswith("_"))


def as_json(row: Row) -> str:
    return json.dumps({**asdict(row), "ratio": row.ratio, "peer_ratio": row.peer_ratio})


def as_text(row: Row) -> str:
    parts = [f"{row.work:<34}{row.value:>14,.1f} {row.unit:<10}"]
    parts.append(f"{row.ceiling:>14,.1f} ceiling{row.ratio:>7.2f}x" if row.ceiling else " " * 30)
    if row.cpu_us_per_entry is not None:
        parts.append(f"{row.cpu_us_per_entry:>10.2f} us CPU")
    if row.peer_value is not None:
        parts.append(f"  {row.peer}: {row.peer_value:,.1f}, {row.peer_ratio:.2f}x")
    elif row.peer is not None:
        parts.append(f"  absent here: {row.peer}")
    if row.foreign is not None and row.foreign > FOREIGN_MAX:
        parts.append(f"  no result: others had {row.foreign:.0%}")
    return "".join(parts).rstrip()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run bench", description="Measure one question of benchmarks/.")
    parser.add_argument("name", choices=[*names(), EVERYTHING], help="the question, or all of them")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="rows whose name matches: 'append/zmq/*'",
    )
    parser.add_argument(
        "--without", action="append", default=[], choices=names(), help="with all: a question to leave out"
    )
    options = parser.parse_args(argv)
    if options.name == EVERYTHING:
        # Each in a process of its own, which no other has warmed or filled; one that fails does not hide the others.
        rest = ["--json"] * options.json + [f"--only={pattern}" for pattern in options.only]
        asked = [name for name in names() if name not in options.without]
        return max(subprocess.call([sys.executable, "-m", "benchmarks", name, *rest]) for name in asked)
    want(options.only)
    write = as_json if options.json else as_text
    began = time.monotonic()
    for row in importlib.import_module(f"benchmarks.{options.name}").measure():
        if is_wanted(row.work):
            print(write(row), flush=True)
    print(f"bench {options.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
