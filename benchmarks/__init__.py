"""Benchmarks, one file per question: `./run bench NAME [--json]`.

A file `benchmarks/NAME.py` has `measure() -> Iterator[Row]` and yields each row once it is measured. What a row
is compared with (a bare probe, the device, a peer) is this machine's own, measured in the same run, and stands
only in the fields of the row. Progress belongs on stderr.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Row"]


@dataclass(frozen=True, slots=True)
class Row:
    work: str  # What was done: append/zmq/1KiB/many.
    value: float
    unit: str  # entries/s, us, MB/s.
    ceiling: float | None = None  # What the machine can do, in the same unit.
    cpu_us_per_entry: float | None = None  # User and system time of all processes of ours.
    peer: str | None = (
        None  # Another system that did the same work in the same run: "nats 2.15 R3 sync always".
    )
    peer_value: float | None = None  # None with a peer: it could not be had here.

    @property
    def ratio(self) -> float | None:
        return self.value / self.ceiling if self.ceiling else None

    @property
    def peer_ratio(self) -> float | None:
        return self.value / self.peer_value if self.peer_value else None
