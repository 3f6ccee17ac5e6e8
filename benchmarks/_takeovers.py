"""How long after a writer's death may another append? 3/3/2 over three bookie processes, and the death is known.

`log/takeover`: from the call that takes the log over (fence, recover, close, list the next ledger) until its first
append is acknowledged; the median of some deaths. The writer is a process of its own. Two of the three bookies are
stopped (SIGSTOP) before it appends 1,000 entries of 1 KiB, so that these stand on one bookie and none is acknowledged;
then it is killed (SIGKILL) and waited for, the two go on, and only then is the log taken over: all bookies answer, and
the 1,000 must be found, written back to all and closed behind. That they were found is checked. What the two were sent
while they stood still may be on its way to them even then, as it may be after any death.

The ceiling is the same with nothing to find: a log whose writer closed it, in turns with the others. A smaller value is
better.

`python -m benchmarks._takeovers URL LOG COUNT` is the writer: it says "LEDGER\\n", waits for a line, appends, says
"sent\\n", and waits for its end.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import embedbk
from benchmarks import Row
from benchmarks.append import Measured, Place
from embedbk.client.copy_reading import read_copy
from embedbk.client.password import Password
from embedbk.cluster import Cluster
from embedbk.config import FRAME_BLOCK_BYTES

__all__ = ["TAKEOVER", "takeover_row"]

TAKEOVER = "log/takeover"
UNCONFIRMED = 1_000
PAYLOAD = os.urandom(1 << 10)
DEATHS = 15
HAS_IT, STOPPED = "b1", ("b2", "b3")
ARRIVED_S = 10.0  # Until the bookie that is not stopped has all of them; far more than it takes.
SETTLING = 20  # Appends acknowledged by all three bookies before the takeover: they have gone on.
_PARENT = Path(__file__).parents[1]


def takeover_row(cluster: Cluster, bk: embedbk.Client, place: Place) -> Row:
    numbers = itertools.count()
    with bk.log("takeover-settling").writer(ack_quorum=3) as all_answer:

        def settled() -> None:
            for _ in range(SETTLING):
                all_answer.append(PAYLOAD)

        def after_death() -> Measured:
            name = f"takeover-{next(numbers)}"
            die(cluster, bk, name)
            settled()
            return taken(bk, name, place, 1 + UNCONFIRMED)

        def after_close() -> float:
            name = f"takeover-{next(numbers)}"
            with bk.log(name).writer() as writer:
                writer.append(PAYLOAD)
            settled()
            return taken(bk, name, place, 1).value

        after_death(), after_close()
        pairs = [(after_death(), after_close()) for _ in range(DEATHS)]
    took, nothing = [each.value for each, _ in pairs], [ceiling for _, ceiling in pairs]
    print(f"{TAKEOVER}: {' '.join(f'{value:.0f}' for value in took)} ms", file=sys.stderr)
    return Row(
        TAKEOVER,
        round(statistics.median(took), 1),
        "ms",
        round(statistics.median(nothing), 1),
        foreign=round(statistics.median(each.foreign for each, _ in pairs), 3),
    )


def die(cluster: Cluster, bk: embedbk.Client, name: str) -> None:
    """A writer whose last UNCONFIRMED entries stand on one bookie; it is killed, and all bookies go on."""
    command = [sys.executable, "-m", "benchmarks._takeovers", cluster.url, name, str(UNCONFIRMED)]
    popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_PARENT)
    assert popen.stdin is not None
    assert popen.stdout is not None
    with popen, popen.stdin, popen.stdout:
        try:
            ledger_id = int(popen.stdout.readline())
            for bookie_id in STOPPED:
                cluster.processes[bookie_id].send_signal(signal.SIGSTOP)
            popen.stdin.write(b"\n")
            popen.stdin.flush()
            assert popen.stdout.readline() == b"sent\n"
            wait_for(lambda: has_entry(bk, ledger_id, UNCONFIRMED))
        finally:
            popen.kill()
            popen.wait()
            for bookie_id in STOPPED:
                cluster.processes[bookie_id].send_signal(signal.SIGCONT)


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + ARRIVED_S
    while not is_so():
        if time.monotonic() > until:
            raise RuntimeError(f"{HAS_IT} has not all of {UNCONFIRMED} entries after {ARRIVED_S:g} s")
        time.sleep(0.002)


def has_entry(bk: embedbk.Client, ledger_id: int, entry_id: int) -> bool:
    parts = read_copy(bk, ledger_id, HAS_IT, Password(b""), entry_id, entry_id)
    return any(part.frames for part in parts)


def taken(bk: embedbk.Client, name: str, place: Place, entries: int) -> Measured:
    """Milliseconds until the first append of a new writer is acknowledged. entries: what it finds in the log."""
    with place.load() as load:
        writer = bk.log(name).writer()
        writer.append(PAYLOAD)
    found = writer.first_offset
    writer.close()
    if found != entries:
        raise RuntimeError(f"{found} entries were found in log {name!r}, where {entries} were appended")
    return Measured(load.wall_s * 1e3, load.cpu_s * 1e6, load.foreign)


def main(url: str, name: str, count: str) -> None:
    """The writer that dies."""
    bk = embedbk.open(url)
    writer = bk.log(name).writer()
    writer.append(PAYLOAD)
    print(writer.ledger_id, flush=True)
    sys.stdin.readline()
    tickets = [writer.append_nowait(PAYLOAD) for _ in range(int(count))]
    # It finds no room in the frame that the last ones stand in, so that this one leaves; it stays here itself.
    tickets.append(writer.append_nowait(bytes(FRAME_BLOCK_BYTES - 2 * len(PAYLOAD))))
    print("sent", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
