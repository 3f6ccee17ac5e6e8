"""Apache BookKeeper from its official artifacts: ZooKeeper and three bookies in one JVM, the load in another.

`default` is what it ships with, over its third wire protocol; `tuned` is what its operators arrive at for latency and
throughput on one disk: flush on an empty queue, 1 ms group wait, 1 MiB buffers, 4 KiB alignment, DbLedgerStorage,
second wire protocol. Journal synced in both. Needs a JDK and Maven.
"""

from __future__ import annotations

import socket
from pathlib import Path

from benchmarks.peers.maven import jars_of
from benchmarks.peers.peer import Absent, Driven, Driver, Server, require, wait_until

__all__ = ["BookKeeper"]

HERE = Path(__file__).parent
VERSION = "4.17.3"
ZOOKEEPER_PORT = 2181  # LocalBookKeeper knows no other.
OPENED = ("java.io", "java.nio", "java.util.zip", "jdk.internal.misc")
JAVA = [
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=10",
    "-XX:MaxDirectMemorySize=4g",
    "-Xms1g",
    "-Xmx2g",
]  # fmt: skip
LOGGING = """<Configuration>
<Appenders><Console name="c" target="SYSTEM_ERR"><PatternLayout pattern="%p %m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="c"/></Root></Loggers>
</Configuration>
"""
COMMON = """
journalDirectory={place}/journal
ledgerDirectories={place}/ledgers
allowLoopback=true
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
"""
TUNED = """
journalMaxGroupWaitMSec=1
journalFlushWhenQueueEmpty=true
journalWriteBufferSizeKB=1024
journalBufferedWritesThreshold=1048576
journalAlignmentSize=4096
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
dbStorage_writeCacheMaxSizeMb=256
dbStorage_readAheadCacheMaxSizeMb=64
numAddWorkerThreads=0
"""


class BookKeeper(Driven):
    WARM_UP = 4  # Rounds of `many`: the compilers of both JVMs want to have seen it.

    def __init__(self, directory: Path, *, is_tuned: bool) -> None:
        super().__init__()
        self.name = f"bookkeeper {VERSION} {'tuned' if is_tuned else 'default'}"
        java = require("java", "default-jdk-headless")
        jars = jars_of("bookkeeper", VERSION)
        if _answers(ZOOKEEPER_PORT):
            raise Absent(f"port {ZOOKEEPER_PORT} is taken, and its local mode knows no other")
        directory.mkdir(parents=True)
        (directory / "log4j2.xml").write_text(LOGGING)
        (directory / "bookie.conf").write_text(COMMON.format(place=directory) + (TUNED if is_tuned else ""))
        run = [java, *JAVA, f"-Dlog4j2.configurationFile={directory}/log4j2.xml", "-cp", f"{jars}/*"]
        try:
            main = "org.apache.bookkeeper.util.LocalBookKeeper"
            server = Server([*run, main, "3", "bookie.conf", "zookeeper", "conf"], directory, "server.log")
            self._parts.append(server)
            # Its last step writes the configuration of all.
            wait_until((directory / "conf" / "baseconf.conf").exists, "three bookies", [server])
            wire = "v2" if is_tuned else "v3"
            source = str(HERE / "BookKeeperDriver.java")
            self._parts.append(Driver([*run, source, f"127.0.0.1:{ZOOKEEPER_PORT}", wire], directory))
            for _ in range(self.WARM_UP):
                self.many(1024)
                self.depth1(1024)
        except BaseException:
            self.close()
            raise


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
