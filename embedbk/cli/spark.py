"""`embedbk spark JOB ...`: the jobs over a whole cluster (spark/SPARK.md).

Decides which job runs, and that arguments which are not understood end with 1: 2 says that a job found something.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.cli.operators import Commands
from embedbk.cli.spark_archive import add_archive
from embedbk.cli.spark_import import add_import
from embedbk.cli.spark_init import add_init
from embedbk.cli.spark_report import add_report
from embedbk.cli.spark_scrub import add_scrub

__all__ = ["run_spark"]


def run_spark(arguments: Sequence[str]) -> int:
    commands = Commands("spark", "Jobs over a whole cluster.")
    add_archive(commands)
    add_import(commands)
    add_scrub(commands)
    add_report(commands)
    add_init(commands)
    try:
        return commands.run(arguments)
    except SystemExit as refused:
        return 1 if refused.code else 0
