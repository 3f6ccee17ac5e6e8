"""`embedbk spark import`: files of other programs put into a log, on Spark or in this process.

Decides how it is asked for and what is shown; `archive/importing.py` does it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from embedbk.cli.log import password_of
from embedbk.cli.operators import CommandResult, Commands
from embedbk.cli.spark_archive import add_job, appended, session_of
from embedbk.client.client import Client

__all__ = ["add_import"]


def add_import(commands: Commands) -> None:
    made = add_job(commands, "import", _import, "append the rows of files to a log as records, all at once")
    made.add_argument("into", metavar="LOG", help="the log that gets them")
    made.add_argument(
        "paths", nargs="+", metavar="FILE", help="or a directory: all of its files, by their names"
    )
    made.add_argument(
        "--format",
        default="parquet",
        help="parquet (the default), arrow, csv, or json: an object in each line",
    )
    made.add_argument("--value", default="value", metavar="COLUMN", help="what is appended (default: value)")
    made.add_argument("--key", metavar="COLUMN")
    made.add_argument("--timestamp", metavar="COLUMN", help="ms since 1970, or a time")
    made.add_argument("--headers", metavar="COLUMN", help="a map of text to binary or text")
    made.add_argument("--application", help="with --number: done once, however often it is asked for")
    made.add_argument("--number", type=int, default=0)


def _import(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    from embedbk.archive.importing import RecordColumns, import_files

    given = {
        "file_format": options.format,
        "columns": RecordColumns(options.value, options.key, options.timestamp, options.headers),
        "password": password_of(options),
        "application": options.application,
        "number": options.number,
    }
    with reach() as client:
        if options.no_spark:
            done = import_files(client, options.into, options.paths, **given)
        else:
            from embedbk.spark import archiving

            spark, url = session_of(options, client)
            done = archiving.import_files(spark, url, options.into, options.paths, **given)
    return appended(options.into, "rows", done.rows, done.outcome)
