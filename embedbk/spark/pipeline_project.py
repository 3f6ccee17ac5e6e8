"""A project for Spark's Declarative Pipelines that has a log as source and another as sink (`embedbk spark init DIR`).

Decides what stands in it. Needs no Spark: `spark-pipelines`, which runs it, comes with the extra `spark-pipelines`.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from embedbk.errors import StorageError, UsageError

__all__ = ["SPEC_NAME", "project_files", "run_command", "write_project"]

SPEC_NAME = "spark-pipeline.yml"
STORAGE = "pipeline-storage"

SPEC = """\
name: {name}
# Checkpoints: a run continues behind the one before, so that each entry is read and written once.
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""

TRANSFORMATIONS = '''\
"""A table that grows with a log, a view over it, and another log. The pipeline provides `spark`."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

CLUSTER = {cluster}
LOG = {log}
INTO = {into}


def new_entries() -> DataFrame:
    """What the log has and the run before has not taken."""
    stream = spark.readStream.format("embedbk").option("cluster", CLUSTER).option("log", LOG)
    return stream.option("startingOffsets", "earliest").load()


@dp.table
def entries() -> DataFrame:
    """Every entry of the log, once."""
    return new_entries().select("ledgerId", "entryId", "offset", "value")


@dp.materialized_view
def ledgers() -> DataFrame:
    """How many entries and bytes each ledger of the log has."""
    size = sql.sum(sql.octet_length("value")).alias("bytes")
    return spark.read.table("entries").groupBy("ledgerId").agg(sql.count("*").alias("entries"), size)


dp.create_sink("into", "embedbk", {{"cluster": CLUSTER, "log": INTO}})


@dp.append_flow(target="into", name="long_entries")
def long_entries() -> DataFrame:
    """Entries of ten bytes and more go to the other log: each once, in order, whichever process is killed."""
    return new_entries().where("octet_length(value) >= 10").select("value")
'''

README = """\
# {title}

A pipeline of Spark over logs of embedbk: `{spec}` says where checkpoints stand, `transformations/` what is
made of what.

    pip install 'embedbk[spark-pipelines]'
    cd {directory}
    {run}

A run takes what the log has by then, and continues where the one before ended. `dry-run` instead of `run` only checks.
"""


def run_command(python: str) -> str:
    """Spark's workers take the first `python3` of PATH, unless they are given another one. Its catalog of tables is
    kept in memory, and a second run would not know those of the first, unless it has one on disk."""
    environment = f"PYSPARK_PYTHON={shlex.quote(python)} SPARK_LOCAL_IP=127.0.0.1"
    return f"{environment} spark-pipelines run --conf spark.sql.catalogImplementation=hive"


def project_files(directory: Path, cluster: str, log: str, into: str, python: str) -> dict[str, str]:
    """Paths below the directory, which is absolute, and what stands there."""
    return {
        SPEC_NAME: SPEC.format(
            name=_literal(directory.name), storage=_literal((directory / STORAGE).as_uri())
        ),
        "transformations/entries.py": TRANSFORMATIONS.format(
            cluster=_literal(cluster), log=_literal(log), into=_literal(into)
        ),
        "README.md": README.format(
            title=directory.name,
            spec=SPEC_NAME,
            directory=shlex.quote(str(directory)),
            run=run_command(python),
        ),
    }


def _literal(text: str) -> str:
    """A string of JSON is one of YAML and of Python, too."""
    return json.dumps(text, ensure_ascii=False)


def write_project(directory: Path, cluster: str, log: str, into: str, python: str) -> Path:
    """Write the project to a directory that is not there, or empty; its absolute path. python: of Spark's workers.

    Raises:
        UsageError: something is there already, or log and into are the same. Nothing was written.
        StorageError: it cannot be written.
    """
    if log == into:
        raise UsageError(
            f"log {log!r} would be copied to itself without end; nothing was written",
            hint="--into another log",
        )
    directory = directory.absolute()
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise UsageError(f"{directory} is there and not empty; nothing was written")
        for name, text in project_files(directory, cluster, log, into, python).items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        (directory / STORAGE).mkdir()
    except OSError as refused:
        raise StorageError(f"{directory} cannot be written: {refused.strerror}") from refused
    return directory
