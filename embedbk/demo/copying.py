"""The log is copied to another one by a streaming query, whose driver is killed between two commits and started again.

A micro-batch is committed twice: first the sink puts its rows into the log, then Spark notes in the checkpoint that it
is done. A driver that is killed in between runs the same micro-batch again when it is started again. Decides what the
query is, and how its first driver is brought to that point: `copy_driver` runs there, in a process of its own, whose
sink reports that it has committed and then does not return. Whether it is that point, the checkpoint tells.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from embedbk.cluster import environment
from embedbk.demo.writer import LOG
from embedbk.errors import EmbedbkError, OperationTimeout

__all__ = ["COPY", "CopyDriver", "begin_copy", "is_between_commits"]

COPY = "demo-copy"
BATCHES = 3  # Micro-batches, about.
HELD = 1  # The one behind whose commit the first driver is killed; of a single one the first.
SILENCE_S_MAX = 400.0  # Without a commit: something is wrong. A machine that others use takes its time.


def begin_copy(spark: Any, url: str, checkpoint: Path, rows_per_batch: int) -> Any:
    """The query that copies what the log has by now, and ends; it continues where its checkpoint says."""
    lines = spark.readStream.format("embedbk").option("cluster", url).option("log", LOG)
    lines = lines.option("startingOffsets", "earliest").option("maxRowsPerTrigger", str(rows_per_batch))
    query = lines.load().select("value").writeStream.format("embedbk")
    query = query.option("cluster", url).option("log", COPY).option("checkpointLocation", str(checkpoint))
    return query.trigger(availableNow=True).start()


def rows_per_batch_of(line_count: int) -> int:
    return -(-line_count // BATCHES)


def held_batch_of(line_count: int) -> int:
    batches = -(-line_count // rows_per_batch_of(line_count))
    return min(HELD, batches - 1)


def is_between_commits(checkpoint: Path, batch: int) -> bool:
    """Whether Spark has begun this micro-batch, and not noted that it is done."""
    return (checkpoint / "offsets" / str(batch)).exists() and not (
        checkpoint / "commits" / str(batch)
    ).exists()


class CopyDriver:
    """The first driver: a process with a JVM of its own, one process group with it."""

    def __init__(self, directory: Path) -> None:
        """It starts at once, and waits for `copy_until_held`."""
        self._fifo = directory / "committed"
        os.mkfifo(self._fifo)
        # Opened before its writer is there, so that neither end waits for the other.
        self._committed = os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK)
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "embedbk.demo.copy_driver", str(self._fifo)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            process_group=0,
        )
        assert self._popen.stdout is not None
        self._out = self._popen.stdout.fileno()  # Its JVM holds it, too: at its end both are gone.

    def copy_until_held(
        self, url: str, checkpoint: Path, line_count: int, on_wait: Callable[[], None]
    ) -> int:
        """Let it copy until the sink has committed a micro-batch, whose number is returned.

        Raises:
            EmbedbkError: it ended before.
            OperationTimeout: it has not come so far within SILENCE_S_MAX.
        """
        held = held_batch_of(line_count)
        words = [url, str(checkpoint), str(rows_per_batch_of(line_count)), str(held)]
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It ended; its silence is noticed.
            self._popen.stdin.write(("\n".join(words) + "\n").encode())
            self._popen.stdin.flush()
        until = time.monotonic() + SILENCE_S_MAX
        while time.monotonic() < until:
            ready, _, _ = select.select([self._committed, self._out], [], [], 0.2)
            if self._committed in ready and os.read(self._committed, 100):
                return held
            if self._out in ready and not os.read(self._out, 1 << 16):
                raise EmbedbkError("the driver of the copy ended before its time; its message stands above")
            on_wait()
        raise OperationTimeout(f"the driver of the copy committed nothing for {SILENCE_S_MAX:g} s")

    def kill(self) -> None:
        """SIGKILL the driver, Python and JVM, and wait until both are gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        while os.read(self._out, 1 << 16):
            pass
        self._popen.wait()

    def close(self) -> None:
        if self._popen.poll() is None:
            self.kill()
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        self._popen.stdout.close()
        os.close(self._committed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
