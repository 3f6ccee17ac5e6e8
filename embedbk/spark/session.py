"""A Spark session that knows `format("embedbk")`: Java found, workers' interpreter set, loopback.

It is this machine's, one of a cluster of Spark, or one of Spark Connect, which may be elsewhere. A session made in
another way (a notebook's) needs only `spark.dataSource.register(EmbedbkSource)`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from embedbk.errors import UsageError
from embedbk.spark.java import APT_PACKAGES, JAVA_MIN, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SHORT_LIVED", "session"]

LOOPBACK = "127.0.0.1"
QUIET = Path(__file__).with_name("log4j2.properties")
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_CONNECT = "sc://"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# For a session of a minute or two, as its `config`: a JVM spends most of its first minute on compiling what runs often,
# which pays off later. Without the second compiler it starts with three fifths of the processor time, and stays slower.
SHORT_LIVED = {_JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def session(
    app_name: str = "embedbk",
    *,
    master: str = "local[*]",
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
    may_install_java: bool = True,
) -> SparkSession:
    """A running session with the embedbk data source registered; the present one where there is one.

    Args:
        app_name, master: as Spark takes them; a cluster's is `spark://host:port`.
        remote: instead of a master, for a session of Spark Connect: `sc://host:port` of its server, or `local[2]`, say,
            for a server that is started on this machine.
        config: further Spark settings; they win over ours, but for the JVM's options, which stand behind ours.
        may_install_java: as root on a Debian system without Java, install one with apt-get.

    Raises:
        UsageError: pyspark, what its Connect needs or a Java that it runs on is missing; the hint says how to get it.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise UsageError(
            f"Spark cannot be imported: {missing}", hint="pip install 'embedbk[spark]' brings it"
        ) from missing
    from embedbk.spark.source import EmbedbkSource

    if remote is not None:
        spark = _connected(app_name, remote, config or {}, may_install_java)
    else:
        if SparkSession.getActiveSession() is None:
            _prepare_environment(may_install_java)
        builder = SparkSession.builder.appName(app_name).master(master)
        for key, value in _settings(config or {}).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    spark.dataSource.register(EmbedbkSource)
    return spark


def _connected(app_name: str, remote: str, config: Mapping[str, str], may_install_java: bool) -> SparkSession:
    """A server elsewhere has a Java, and settings of its own: only those of a session are made there."""
    from pyspark.sql import SparkSession

    try:
        import pyspark.sql.connect.session  # noqa: F401
    except ImportError as missing:
        raise UsageError(
            f"Spark Connect cannot be imported: {missing}",
            hint="pip install 'embedbk[spark-connect]' brings it",
        ) from missing
    is_elsewhere = remote.startswith(_CONNECT)
    if not is_elsewhere:
        _prepare_environment(may_install_java)
    settings = {_PUSHDOWN: "true", **config} if is_elsewhere else _settings(config)
    builder = SparkSession.builder.appName(app_name).remote(remote)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # The server has been started with all of them, and is told all of them once more, which it may refuse.
        warnings.filterwarnings("ignore", message="Failed to set spark", category=UserWarning)
        return builder.getOrCreate()


def _prepare_environment(may_install_java: bool) -> None:
    """Set the environment that the JVM and its Python workers read when they start."""
    java_home = find_java(may_install=may_install_java)
    if java_home is None:
        raise UsageError(
            f"Spark needs Java {JAVA_MIN} or newer and none was found in JAVA_HOME, PATH or /usr/lib/jvm",
            hint=f"install one (apt-get install {', or '.join(APT_PACKAGES)}), or pip install 'embedbk[jdk]'",
        )
    os.environ["JAVA_HOME"] = str(java_home)
    # Workers would take the first python3 of PATH, which has neither pyarrow nor embedbk.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def _settings(more: Mapping[str, str]) -> dict[str, str]:
    """Ours, and then more of them."""
    ours = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        _PUSHDOWN: "true",  # For option("pushdown", "true"); else Spark refuses it.
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={QUIET.as_uri()}",
        # For the few groups of a local question, not for a cluster of 200 cores.
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    }
    if _JAVA_OPTIONS in more:
        more = {**more, _JAVA_OPTIONS: f"{ours[_JAVA_OPTIONS]} {more[_JAVA_OPTIONS]}"}
    return {**ours, **more}
