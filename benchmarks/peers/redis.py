"""Redis with `appendfsync always`: one copy, synced before the answer. Its own redis-benchmark is the load."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

from benchmarks.peers.peer import Absent, Peer, Server, free_ports, require, wait_until

__all__ = ["Redis"]

CLIENTS, PIPELINE = 50, 16
BYTES = 64 << 20  # Payload of one `many`.
COUNT = 2000  # Appends in one `depth1`.
SERVING = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--save",
    "",
    "--auto-aof-rewrite-percentage",
    "0",
]


class Redis(Peer):
    copies = 1

    def __init__(self, directory: Path) -> None:
        server = require("redis-server", "redis-server")
        self._load = require("redis-benchmark", "redis-tools")
        [port] = free_ports(1)
        self._port = str(port)
        version = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
        self.name = f"redis {version.split('v=')[1].split()[0]} one copy, appendfsync always"
        directory.mkdir(parents=True)
        line = [server, "--bind", "127.0.0.1", "--port", self._port, "--dir", str(directory), *SERVING]
        self._server = Server(line, directory, "server.log")
        try:
            log = directory / "server.log"
            wait_until(lambda: "Ready to accept connections" in log.read_text(), "a server", [self._server])
        except Absent:
            self.close()
            raise

    def many(self, size: int) -> float:
        clients = ["-c", str(CLIENTS), "-P", str(PIPELINE), "-n", str(BYTES // size)]
        return self._measure(clients, size)["rps"]

    def depth1(self, size: int) -> float:
        return self._measure(["-c", "1", "-P", "1", "-n", str(COUNT)], size)["p50_latency_ms"] * 1000

    def _measure(self, clients: list[str], size: int) -> dict[str, float]:
        payload = ("0123456789abcdef" * (size // 16 + 1))[:size]
        line = [
            self._load,
            "-h",
            "127.0.0.1",
            "-p",
            self._port,
            "--csv",
            *clients,
            "XADD",
            "s",
            "*",
            "f",
            payload,
        ]
        told = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
        [row] = csv.DictReader(told)
        return {name: float(value) for name, value in row.items() if name != "test"}

    def close(self) -> None:
        self._server.close()
