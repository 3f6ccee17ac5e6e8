"""How long until embedbk is there, and what does it weigh when nothing happens? Three bookies in one process.

`start/local/first` and `/existing`: from the call of `embedbk.open` to its return, on an empty directory and on one
that was used and closed, each in a process of its own; three bookies and a metadata member, journals opened,
identities checked, bookies registered, and the modules imported that `import embedbk` leaves for later. `/import`: the
import before it, whose ceiling is the import of what embedbk stands on.

`memory/idle`: resident memory of a process with such a cluster open, a second after a log was written and closed. Its
ceiling is a process that has imported the same packages and nothing of ours. A smaller value is better in all rows.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Row, is_wanted, workplace
from embedbk.cluster import environment

RUNS = 7

DEPENDENCIES = "import asyncio, ssl, zmq, msgspec, cffi, xxhash, concurrent.futures, logging"
OPEN = """
import json, sys, time
from pathlib import Path
began = time.perf_counter()
import embedbk
imported, cpu = time.perf_counter(), time.process_time()
bk = embedbk.open(sys.argv[1], bookies=3)
opened, cpu = time.perf_counter(), time.process_time() - cpu
with bk.log("events").writer() as writer:
    writer.append(b"one entry")
time.sleep(1)
pages = int(Path("/proc/self/statm").read_text().split()[1])
bk.close()
print(json.dumps([(imported - began) * 1e3, (opened - imported) * 1e3, cpu * 1e3, pages * 4096 / 1e6]))
"""
BARE = f"""
import json, time
from pathlib import Path
began = time.perf_counter()
{DEPENDENCIES}
imported = time.perf_counter()
pages = int(Path("/proc/self/statm").read_text().split()[1])
print(json.dumps([(imported - began) * 1e3, pages * 4096 / 1e6]))
"""
WORKS = ("start/local/first", "start/local/existing", "start/local/import", "memory/idle")


def measure() -> Iterator[Row]:
    if not is_wanted(*WORKS):
        return
    firsts, existings, cpus, imports, sizes, bare_imports, bare_sizes = ([] for _ in range(7))
    with workplace("start") as directory:
        # Compiled once and kept, as after any first start; kept apart, whatever the environment says of bytecode.
        cache = {"PYTHONPYCACHEPREFIX": str(directory / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}

        def run(program: str, *arguments: Path) -> list[float]:
            command = [sys.executable, "-c", program, *map(str, arguments)]
            done = subprocess.run(command, check=True, capture_output=True, env={**environment(), **cache})
            found: list[float] = json.loads(done.stdout)
            return found

        run(OPEN, directory / "warm")
        run(BARE)
        for number in range(RUNS):
            place = directory / f"{number}"
            _, first, _, _ = run(OPEN, place)
            imported, existing, cpu, size = run(OPEN, place)
            bare_imported, bare_size = run(BARE)
            for found, value in (
                (firsts, first),
                (existings, existing),
                (cpus, cpu),
                (imports, imported),
                (sizes, size),
                (bare_imports, bare_imported),
                (bare_sizes, bare_size),
            ):
                found.append(value)
    middle = statistics.median
    print(
        f"start/local/existing: {' '.join(f'{value:.0f}' for value in existings)} ms; processor time "
        f"{middle(cpus):.0f} ms, the import of what is needed included",
        file=sys.stderr,
    )
    yield Row("start/local/first", round(middle(firsts), 1), "ms")
    yield Row("start/local/existing", round(middle(existings), 1), "ms")
    yield Row("start/local/import", round(middle(imports), 1), "ms", round(middle(bare_imports), 1))
    yield Row("memory/idle", round(middle(sizes), 1), "MB", round(middle(bare_sizes), 1))
