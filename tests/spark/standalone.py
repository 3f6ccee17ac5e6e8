"""A standalone cluster of Spark on loopback: a master and two workers, each a JVM; executors are further ones.

The package has no scripts that start them, and needs none: `bin/spark-class` starts each of their classes. Run as a
program this file becomes one of them, which the kernel ends with the process that started it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from embedbk.demo.writer import die_with_starter
from embedbk.spark.java import find_java

__all__ = ["WORKER_HOSTS", "StandaloneSpark"]

LOOPBACK = "127.0.0.1"
# A host of its own for each: Spark runs no second attempt of a task beside the first one on the same host.
WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")
START_S = 200.0  # A machine that others use takes its time.
_DEPLOY = "org.apache.spark.deploy"
# The JVMs of a minute or two: they compile less, and collect with one thread.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class StandaloneSpark:
    """Started when it is made; `url` is what a session takes as its master."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._jvms: list[_Jvm] = []
        try:
            told = self._start("master.Master", LOOPBACK, "--port", "0", "--webui-port", "0")
            self.url = told.wait_for(r"Starting Spark master at (spark://\S+)")
            words = ("--cores", "1", "--memory", "512m", "--port", "0", "--webui-port", "0")
            workers = [
                self._start("worker.Worker", host, *words, "--work-dir", str(directory / host), self.url)
                for host in WORKER_HOSTS
            ]
            for each in workers:
                each.wait_for(r"(Successfully registered) with master")
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, host: str, *words: str) -> _Jvm:
        home = find_java()
        assert home is not None, "Spark needs Java"
        import pyspark

        spark_home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(spark_home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA_OPTIONS,
        }
        command = [sys.executable, "-P", __file__, str(spark_home / "bin" / "spark-class")]
        jvm = _Jvm([*command, f"{_DEPLOY}.{name}", "--host", host, *words], environment, self._directory)
        self._jvms.append(jvm)
        return jvm

    def close(self) -> None:
        """End the workers, whose executors end with them, and the master."""
        for jvm in reversed(self._jvms):
            jvm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Jvm:
    """One process; what it says is read as long as it lives."""

    def __init__(self, command: list[str], environment: dict[str, str], directory: Path) -> None:
        self._popen = subprocess.Popen(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._said: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            with self._news:
                self._said.append(line)
                self._news.notify_all()

    def wait_for(self, pattern: str) -> str:
        """What the pattern's group says in a line of it."""
        found: list[str] = []

        def is_said() -> bool:
            found.extend(match[1] for line in self._said if (match := re.search(pattern, line)))
            return bool(found) or not self._reader.is_alive()

        with self._news:
            self._news.wait_for(is_said, START_S)
        assert found, "".join(self._said[-20:])
        return found[0]

    def close(self) -> None:
        self._popen.terminate()
        self._popen.wait()
        self._reader.join()
        assert self._popen.stdout is not None
        self._popen.stdout.close()


if __name__ == "__main__":
    die_with_starter()
    os.execv(sys.argv[1], sys.argv[1:])
