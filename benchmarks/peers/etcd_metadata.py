"""etcd as a store of metadata: puts and linearizable reads by a Python gRPC client, and the loss of its leader.

The client stands in a virtual environment of its own (`.run/etcd-client`, with the package grpcio), since nothing of
ours needs gRPC. It speaks to the leader, as ours does.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.peer import Absent, Driver, Failed, Server, wait_until

__all__ = ["EtcdMetadata"]

HERE = Path(__file__).parent
CLIENT = HERE.parents[1] / ".run" / "etcd-client"
TRY_S = 0.1  # Limit of one attempt while there may be no leader: a put sent to a dead leader gets no answer.
FAILOVER_S = 30.0


class EtcdMetadata(Etcd):
    def __init__(self, directory: Path, members: int = 3) -> None:
        python = _client_python()
        super().__init__(directory, members)
        try:
            port = self._clients[self._leader()]
            self._driver = Driver([python, str(HERE / "etcd_driver.py"), str(port)], directory)
        except BaseException:
            super().close()
            raise

    def rate(self, order: str, outstanding: int, seconds: float, size: int) -> float:
        """Operations a second; order: "put" or "read"."""
        return self._driver.ask(f"{order} {outstanding} {seconds} {size}")

    def p50(self, order: str, count: int, size: int) -> float:
        """Microseconds of one operation, nothing else outstanding."""
        return self._driver.ask(f"{order}_p50 {count} {size}")

    def failover_ms(self) -> float:
        """From SIGKILL of the leader to the next write that another member acknowledges. It is started again."""
        leader = self._leader()
        other = self._clients[(leader + 1) % len(self._clients)]
        self._put(other, 5.0)
        self._servers[leader].kill()
        began = time.perf_counter()
        while not self._put(other, TRY_S):
            if time.perf_counter() - began > FAILOVER_S:
                raise Failed(f"it acknowledged nothing for {FAILOVER_S:g} s")
        took_ms = (time.perf_counter() - began) * 1e3
        self._servers[leader].close()
        self._servers[leader] = Server(self._lines[leader], self._directory, f"e{leader}.log")
        wait_until(self._is_healthy, "all its members again", self._servers)
        return took_ms

    def _leader(self) -> int:
        """The number of the member that leads."""
        told = self._etcdctl("endpoint", "status", "--cluster", "-w", "json")
        for member in json.loads(told.stdout or "[]"):
            if member["Status"]["header"]["member_id"] == member["Status"].get("leader"):
                return self._clients.index(int(member["Endpoint"].rsplit(":", 1)[1]))
        raise Failed(f"nobody leads: {told.stderr[-200:]}")

    def _put(self, port: int, timeout_s: float) -> bool:
        began = time.perf_counter()
        body = json.dumps({"key": base64.b64encode(b"k").decode(), "value": ""})
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        try:
            link.request("POST", "/v3/kv/put", body)
            answer = link.getresponse()
            answer.read()
            return answer.status == 200
        except OSError:
            time.sleep(max(0.0, TRY_S / 10 - (time.perf_counter() - began)))
            return False
        finally:
            link.close()

    def close(self) -> None:
        self._driver.close()
        super().close()


def _client_python() -> str:
    """An interpreter that has grpcio; made once."""
    python = CLIENT / "bin" / "python"

    def has_grpc() -> bool:
        return (
            python.exists()
            and not subprocess.run([python, "-c", "import grpc"], capture_output=True).returncode
        )

    if not has_grpc():
        subprocess.run([sys.executable, "-m", "venv", str(CLIENT)], check=False, capture_output=True)
        line = [str(python), "-m", "pip", "install", "-q", "grpcio"]
        if python.exists():
            subprocess.run(line, check=False, capture_output=True, env={**os.environ, "PIP_NO_INPUT": "1"})
    if not has_grpc():
        raise Absent(f"no grpcio in {CLIENT}")
    return str(python)
