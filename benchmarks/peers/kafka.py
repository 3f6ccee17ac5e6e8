"""One broker of Apache Kafka, and the connector by which Spark reads and writes its topics.

The broker is a process of its own on the loopback, and its own controller (KRaft). All its settings but addresses and
directories are those that it ships with, so it has one copy of each record, and answers before that copy is synced.
What it does is a ceiling for a log of three synced copies, and no bar. Needs a JDK and Maven.
"""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from benchmarks.peers.maven import jars_of
from benchmarks.peers.peer import Absent, Server, free_ports, require, wait_until

__all__ = ["Kafka", "connector_jars"]

VERSION, CONNECTOR = "4.1.0", "4.2.0"
CLUSTER_ID = "ZW1iZWRiay1iZW5jaC0xNg"  # Sixteen bytes, which a broker takes from who makes its directories.
JAVA = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]  # Its own scripts start it with these.
LOGGING = """<Configuration>
<Appenders><Console name="c" target="SYSTEM_ERR"><PatternLayout pattern="%p %m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="c"/></Root></Loggers>
</Configuration>
"""
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
log.dirs={place}/topics
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Kafka:
    """A topic of it has one partition, whose rows have one order, as those of a log have."""

    def __init__(self, directory: Path) -> None:
        self.name = f"kafka {VERSION} one copy, not synced (connector {CONNECTOR})"
        java = require("java", "default-jdk-headless")
        jars = jars_of("kafka", VERSION)
        directory.mkdir(parents=True)
        broker, controller = free_ports(2)
        self.address = f"127.0.0.1:{broker}"
        settings = directory / "server.properties"
        settings.write_text(SETTINGS.format(place=directory, broker=broker, controller=controller))
        (directory / "log4j2.xml").write_text(LOGGING)
        run = [java, *JAVA, f"-Dlog4j2.configurationFile={directory}/log4j2.xml", "-cp", f"{jars}/*"]
        make = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(settings)]
        made = subprocess.run([*run, *make], cwd=directory, capture_output=True, text=True, check=False)
        if made.returncode:
            raise Absent(f"its directories cannot be made: {(made.stderr or made.stdout).strip()[-300:]}")
        self._server = Server([*run, "kafka.Kafka", str(settings)], directory, "server.log")
        try:
            wait_until(lambda: _answers(broker), "its broker", [self._server])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._server.close()


def connector_jars() -> Path:
    """The directory of what a session of Spark needs on its class path.

    Raises:
        Absent: there is no Maven, or it cannot fetch them.
    """
    return jars_of("spark-kafka", CONNECTOR)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
