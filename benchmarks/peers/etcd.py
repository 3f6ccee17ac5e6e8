"""etcd, three members unless said otherwise, every write synced: its own `check perf` for throughput (1 KiB values, a
minute), its gateway's JSON over one kept connection for one write at a time."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import os
import re
import statistics
import subprocess
import time
from pathlib import Path

from benchmarks.peers.peer import Failed, Peer, Server, free_ports, require, wait_until

__all__ = ["Etcd"]

COUNT = 500  # Appends in one `depth1`.
COUNTED = {1: "one member", 3: "three members"}


class Etcd(Peer):
    sizes = (1024,)  # What `check perf` writes.

    def __init__(self, directory: Path, members: int = 3) -> None:
        server = require("etcd", "etcd-server")
        self._control = require("etcdctl", "etcd-client")
        version = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
        self.name = f"etcd {version.split()[2]} {COUNTED[members]}"
        directory.mkdir(parents=True)
        names = [f"e{number}" for number in range(members)]
        ports = free_ports(2 * members)
        clients, peers = ports[:members], ports[members:]
        self._port = clients[0]
        self._rate: float | None = None
        initial = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, peers, strict=True))
        self._clients, self._directory = clients, directory
        self._servers: list[Server] = []
        self._lines: list[list[str]] = []
        try:
            for number, name in enumerate(names):
                client, peer = f"http://127.0.0.1:{clients[number]}", f"http://127.0.0.1:{peers[number]}"
                line = [
                    server, "--name", name, "--data-dir", str(directory / name), "--logger", "zap",
                    "--listen-client-urls", client, "--advertise-client-urls", client,
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                    "--initial-cluster", initial, "--initial-cluster-state", "new",
                    "--quota-backend-bytes", str(8 << 30),
                ]  # fmt: skip
                self._lines.append(line)
                self._servers.append(Server(line, directory, f"{name}.log"))
            wait_until(self._is_healthy, COUNTED[members], self._servers)
        except BaseException:
            self.close()
            raise

    def _etcdctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [self._control, f"--endpoints=http://127.0.0.1:{self._port}", *words]
        return subprocess.run(line, capture_output=True, text=True, env={**os.environ, "ETCDCTL_API": "3"})

    def _is_healthy(self) -> bool:
        return self._etcdctl("endpoint", "health", "--cluster").returncode == 0

    def many(self, size: int) -> float:
        """Its check takes a minute, so it is run once; the same figure is given to every pair."""
        if self._rate is None:
            told = self._etcdctl("check", "perf", "--load=xl")
            found = re.search(r"hroughput (?:is|too low:) (\d+)", told.stdout + told.stderr)
            if found is None:
                raise Failed(
                    f"its check does not say how fast it was: {told.stdout[-200:]}{told.stderr[-200:]}"
                )
            self._rate = float(found[1])
        return self._rate

    def depth1(self, size: int) -> float:
        body = {"key": base64.b64encode(b"k").decode(), "value": base64.b64encode(os.urandom(size)).decode()}
        text = json.dumps(body)
        link = http.client.HTTPConnection("127.0.0.1", self._port)
        times = [time.perf_counter_ns()]
        for _ in range(COUNT):
            link.request("POST", "/v3/kv/put", text)
            answer = link.getresponse()
            answer.read()
            if answer.status != 200:
                raise Failed(f"it answered {answer.status}")
            times.append(time.perf_counter_ns())
        link.close()
        return statistics.median(after - before for before, after in itertools.pairwise(times)) / 1000

    def close(self) -> None:
        for server in self._servers:
            server.close()
