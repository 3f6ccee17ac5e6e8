"""What the C kernels and the packer do alone, without disk, network or protocol.

Sketch: a scan reads its bytes once, in cache, and sums them: the ceiling is one CRC32C over the whole body. The packer
copies and sums: its ceiling is that sum and one plain copy. What is between is the work on each entry's header.
Median of five runs; their spread goes to stderr.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks import Row
from embedbk.codec import kernels
from embedbk.codec.packer import Packer

RUNS = 5
SIZES = (("100B", 100, 1700), ("1KiB", 1024, 240))  # Entries of a frame of about FRAME_BLOCK_BYTES.
ROUNDS = 50


def seconds(work: str, call: Callable[[], object]) -> float:
    """Median time of one call, from RUNS runs of ROUNDS calls after one to warm up."""
    call()
    runs = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        for _ in range(ROUNDS):
            call()
        runs.append((time.perf_counter() - begin) / ROUNDS)
    median = statistics.median(runs)
    spread = (max(runs) - min(runs)) / median
    sys.stderr.write(f"{work}: {median * 1e6:.1f} us, spread of {RUNS} runs {spread:.0%}\n")
    return median


def measure() -> Iterator[Row]:
    for name, size, count in SIZES:
        payloads = [bytes([i % 256]) * size for i in range(count)]
        packer = Packer(1)

        def append_many(packer: Packer = packer, payloads: list[bytes] = payloads) -> memoryview:
            packer.append_many(payloads)
            frame = packer.seal()
            assert frame is not None
            return frame.body

        def append(packer: Packer = packer, payloads: list[bytes] = payloads) -> memoryview:
            for payload in payloads:
                packer.append(payload)
            frame = packer.seal()
            assert frame is not None
            return frame.body

        body = append_many()
        assert kernels.scan(body)[2] == count
        sums = seconds(f"crc32c/{name}", lambda body=body: kernels.crc32c(body))  # type: ignore[misc]
        copies = seconds(f"copy/{name}", lambda body=body: bytes(body))  # type: ignore[misc]
        megabytes = len(body) / 1e6
        for work, kernel, bare in (
            ("scan", kernels.scan, sums),
            ("values", kernels.values, copies),
        ):
            taken = seconds(f"{work}/{name}", lambda kernel=kernel, body=body: kernel(body))  # type: ignore[misc]
            yield Row(f"{work}/{name}", megabytes / taken, "MB/s", megabytes / bare)
        for work, call in (("pack/many", append_many), ("pack/one", append)):
            taken = seconds(f"{work}/{name}", call)
            yield Row(f"{work}/{name}", count / taken, "entries/s", count / (sums + copies))
