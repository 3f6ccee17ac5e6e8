"""A Spark session on this machine that knows `format("embedbk")`: Java found, workers' interpreter set, loopback.

A session made elsewhere (a cluster's, a notebook's) needs only `spark.dataSource.register(EmbedbkSource)`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from embedbk.errors import UsageError
from embedbk.spark.java import JAVA_MIN, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SHORT_LIVED", "session"]

LOOPBACK = "127.0.0.1"
QUIET = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# For a session of a minute or two, as its `config`: a JVM spends most of its first minute on compiling what runs often,
# which pays off later. Without the second compiler it starts with three fifths of the processor time, and stays slower.
SHORT_LIVED = {_JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def session(
    app_name: str = "embedbk",
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    may_install_java: bool = True,
) -> SparkSession:
    """A running session with the embedbk data source registered; the present one where there is one.

    Args:
        app_name, master: as Spark takes them.
        config: further Spark settings; they win over ours, but for the JVM's options, which stand behind ours.
        may_install_java: as root on a Debian system without Java, install one with apt-get.

    Raises:
        UsageError: pyspark or a Java that it runs on is missing; the hint says how to get it.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise UsageError(
            f"Spark cannot be imported: {missing}", hint="pip install 'embedbk[spark]' brings it"
        ) from missing
    from embedbk.spark.source import EmbedbkSource

    if SparkSession.getActiveSession() is None:
        _prepare_environment(may_install_java)
    builder = SparkSession.builder.appName(app_name).master(master)
    settings = {**_settings(), **(config or {})}
    if config and _JAVA_OPTIONS in config:
        settings[_JAVA_OPTIONS] = f"{_settings()[_JAVA_OPTIONS]} {config[_JAVA_OPTIONS]}"
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(EmbedbkSource)
    return spark


def _prepare_environment(may_install_java: bool) -> None:
    """Set the environment that the JVM and its Python workers read when they start."""
    java_home = find_java(may_install=may_install_java)
    if java_home is None:
        raise UsageError(
            f"Spark needs Java {JAVA_MIN} or newer and none was found in JAVA_HOME, PATH or /usr/lib/jvm",
            hint="install one (apt-get install openjdk-17-jre-headless), or pip install 'embedbk[jdk]'",
        )
    os.environ["JAVA_HOME"] = str(java_home)
    # Workers would take the first python3 of PATH, which has neither pyarrow nor embedbk.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def _settings() -> dict[str, str]:
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.python.filterPushdown.enabled": "true",  # For option("pushdown", "true"); else Spark refuses it.
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={QUIET.as_uri()}",
        # For the few groups of a local question, not for a cluster of 200 cores.
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    }
