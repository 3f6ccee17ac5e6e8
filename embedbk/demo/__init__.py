"""`embedbk demo [FILE]`: a replicated log survives kill -9 of a bookie and of its writer, on real input; then Spark.

Decides what is given and what is said at the end; `scenario` has what happens while the log is written, `pipeline` what
is done with it then. Exit code 0 only if all of it held: 1 if something did not, 2 for an input that cannot be used.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from embedbk.demo.lines import LINES_DEFAULT, Lines, copy_file, copy_standard_library
from embedbk.demo.screen import open_screen, print_table
from embedbk.errors import EmbedbkError, UsageError

__all__ = ["run_demo"]

INTERRUPTED = 130


def run_demo(arguments: Sequence[str]) -> int:
    """Run the demonstration; the exit code."""
    options = _parser().parse_args(arguments)
    for number in (
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # So that the processes and the directory are cleared away.
        signal.signal(number, _on_terminate)
    directory = Path(tempfile.mkdtemp(prefix="embedbk-demo-"))
    try:
        return _run(options, directory)
    except EmbedbkError as error:
        print(f"embedbk demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("embedbk demo: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="embedbk demo",
        description="Write the lines of a file to a replicated log while a bookie and the writer are killed.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help=f'its lines are written ("-": standard input); default: {LINES_DEFAULT:,} lines of Python\'s own library',
    )
    parser.add_argument("--lines", type=_positive, metavar="N", help="only the first N lines")
    parser.add_argument(
        "--no-spark", action="store_true", help="leave out what needs Spark: SQL over the log, and its copy"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, no table")
    return parser


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _run(options: argparse.Namespace, directory: Path) -> int:
    began = time.monotonic()
    try:
        lines = _input(options, directory / "lines")
    except UsageError as refused:
        print(f"embedbk demo: {refused}", file=sys.stderr)
        return 2
    # Not before the input is known to be good: Spark and the rest take time to load.
    from embedbk.demo.scenario import run
    from embedbk.demo.sparked import SparkAct, why_no_spark

    lacking = "" if options.no_spark else why_no_spark()
    spark = None if options.no_spark or lacking else SparkAct(directory)
    screen = open_screen()
    try:
        if lacking:
            screen.say(f"{lacking}: SQL over the log and its copy are left out, the rest is shown")
        screen.say(f"{len(lines):,} lines, {lines.byte_count / 1e6:.1f} MB")
        outcome = run(lines, directory, screen, spark)
    finally:
        screen.close()
        if spark is not None:
            spark.close()
    if options.json:
        print(json.dumps(outcome.as_json()))
    else:
        print_table(outcome.rows())
        print(
            f"{'Everything holds' if outcome.holds else 'SOMETHING DOES NOT HOLD'}, {time.monotonic() - began:.1f} s"
        )
    return 0 if outcome.holds else 1


def _input(options: argparse.Namespace, path: Path) -> Lines:
    if options.file is None:
        return copy_standard_library(path, options.lines)
    return copy_file(options.file, path, options.lines)


def _on_terminate(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
