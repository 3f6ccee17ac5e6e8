"""The jobs of an archive on Spark (P8.14): the tasks of `embedbk.archive`, each in an executor, straight from bookies.

Decides which function a task runs. All that is recorded is recorded by the driver. Executors find the archive's
directory under the same path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from embedbk.archive.copying import FileCopied, SliceTask, run_copy
from embedbk.archive.freeing import FreeReport
from embedbk.archive.freeing import free as free_log
from embedbk.archive.importing import Imported, ImportTask, stage_rows
from embedbk.archive.importing import import_files as import_into
from embedbk.archive.jobs import ArchiveReport
from embedbk.archive.jobs import archive as archive_log
from embedbk.archive.place import ArchiveDirectory
from embedbk.archive.restoring import Restored, RestoreTask, stage_files
from embedbk.archive.restoring import restore as restore_log
from embedbk.archive.verifying import Looked, VerifyReport, VerifyTask, run_look
from embedbk.archive.verifying import verify_archive as verify_log
from embedbk.client.log import Log
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.spark.clients import client_of
from embedbk.spark.tasks import each

__all__ = ["archive", "free", "import_files", "restore", "verify_archive"]


def archive(spark: Any, cluster: str, name: str, *, password: bytes = b"", **options: Any) -> ArchiveReport:
    """As `embedbk.archive.jobs.archive`, with each file written by a task of Spark. cluster: its address."""
    run = partial(_copied, spark, cluster, password)
    return archive_log(client_of(cluster), name, password=password, run=run, **options)


def verify_archive(
    spark: Any, cluster: str, name: str, *, password: bytes = b"", **options: Any
) -> VerifyReport:
    """As `embedbk.archive.verifying.verify_archive`, with each file read by a task of Spark."""
    run = partial(_looked, spark, cluster, password)
    return verify_log(client_of(cluster), name, password=password, run=run, **options)


def free(spark: Any, cluster: str, name: str, *, password: bytes = b"", **options: Any) -> FreeReport:
    """As `embedbk.archive.freeing.free`, with each file read by a task of Spark."""
    run = partial(_looked, spark, cluster, password)
    return free_log(client_of(cluster), name, password=password, run=run, **options)


def restore(
    spark: Any,
    cluster: str,
    into: str,
    directory: ArchiveDirectory,
    log_id: str,
    *,
    password: bytes = b"",
    **options: Any,
) -> Restored:
    """As `embedbk.archive.restoring.restore`, with each ledger staged by a task of Spark."""
    run = partial(_staged, spark, cluster, into, password)
    return restore_log(client_of(cluster), into, directory, log_id, password=password, run=run, **options)


def import_files(
    spark: Any,
    cluster: str,
    into: str,
    paths: Sequence[str | os.PathLike[str]],
    *,
    password: bytes = b"",
    **options: Any,
) -> Imported:
    """As `embedbk.archive.importing.import_files`, with each ledger staged by a task of Spark, which finds the files
    under the same paths."""
    run = partial(_imported, spark, cluster, into, password)
    return import_into(client_of(cluster), into, paths, password=password, run=run, **options)


def _copied(
    spark: Any, cluster: str, password: bytes, reading: LogReading, tasks: Sequence[SliceTask]
) -> Iterator[FileCopied]:
    return each(spark, partial(_copy, cluster, reading.given, password), tasks)


def _copy(cluster: str, name: str, password: bytes, task: SliceTask) -> FileCopied:
    return run_copy(_of_id(cluster, task.run.log_id, name, password), task)


def _looked(
    spark: Any, cluster: str, password: bytes, reading: LogReading, tasks: Sequence[VerifyTask]
) -> Iterator[Looked]:
    return each(spark, partial(_look, cluster, reading.given, password), tasks)


def _look(cluster: str, name: str, password: bytes, task: VerifyTask) -> Looked:
    return run_look(_of_id(cluster, task.run.log_id, name, password), task)


def _staged(
    spark: Any, cluster: str, into: str, password: bytes, log: Log, tasks: Sequence[RestoreTask]
) -> Iterator[int]:
    return each(spark, partial(_stage, cluster, into, password), tasks)


def _stage(cluster: str, into: str, password: bytes, task: RestoreTask) -> int:
    return stage_files(client_of(cluster).log(into, password=password), task)


def _imported(
    spark: Any, cluster: str, into: str, password: bytes, log: Log, tasks: Sequence[ImportTask]
) -> Iterator[tuple[int, int]]:
    return each(spark, partial(_stage_rows, cluster, into, password), tasks)


def _stage_rows(cluster: str, into: str, password: bytes, task: ImportTask) -> tuple[int, int]:
    return stage_rows(client_of(cluster).log(into, password=password), task)


def _of_id(cluster: str, log_id: str, name: str, password: bytes) -> LogReading:
    return LogReading.of_id(client_of(cluster)._runtime, log_id, name, Password(password))
