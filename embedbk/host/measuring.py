"""The measurements of a metadata member: turns, syncs, heartbeats, its log, snapshots (RAFT.md, 8).

Decides which moments are compared. `metadata/calibration.py` decides what follows from the numbers.
"""

from __future__ import annotations

from collections import deque

from embedbk.metadata.calibration import FETCH_NS, LOAD_NS, Cost, Measured, Often
from embedbk.metadata.patience import Patience
from embedbk.metadata.raft_vocabulary import Body, Heartbeat, HeartbeatReply, Timing

__all__ = ["Measuring"]

ROUNDS_KEPT_MAX = 64  # Heartbeats that are not answered; older ones are not measured.
RECORDS_KEPT_MAX = 1024  # Records that are not durable.
SECOND = 1_000_000_000
PROBE_NS = 250_000_000


class Measuring:
    """The measurements of one process of a member."""

    def __init__(self, now_ns: int) -> None:
        self._began_ns = now_ns
        self.timing_ns = now_ns + SECOND  # When `timing` has new figures.
        self.probe_ns = now_ns  # When a turn is due for nothing but to see how late it is.
        self._stall, self._sync, self._round_trip, self._rate = Often(), Often(), Often(), Often()
        self._fetch, self._load = Cost(FETCH_NS), Cost(LOAD_NS)
        self._rounds: dict[int, int] = {}  # When each began.
        self._records: deque[tuple[int, int]] = deque(maxlen=RECORDS_KEPT_MAX)  # (sequence, when).
        self._second_ns, self._second_bytes = 0, 0  # The second that is summed up, and how much so far.
        self._load_ns: int | None = None  # When the one under way began.

    def measured(self, snapshot_bytes: int, patience: Patience | None) -> Measured:
        """snapshot_bytes: of this member's newest. patience: of what it pulls, or has pulled last."""
        fetch: Cost = patience if patience is not None else self._fetch
        return Measured(
            self._stall.below(999), self._stall.samples,
            self._sync.below(990), self._sync.samples,
            self._round_trip.below(990), self._round_trip.samples,
            self._rate.below(950), self._rate.samples,
            int(fetch.cost_ns), int(fetch.deviation_ns), fetch.samples,
            int(self._load.cost_ns), int(self._load.deviation_ns), self._load.samples,
            snapshot_bytes,
        )  # fmt: skip

    def timing(self, now_ns: int) -> Timing | None:
        """The figures for an election base, once a second."""
        if now_ns < self.timing_ns:
            return None
        self.timing_ns = now_ns + SECOND
        return Timing(
            self._stall.below(999), self._stall.samples,
            self._sync.below(990), self._sync.samples,
            self._round_trip.below(990), self._round_trip.samples,
            now_ns - self._began_ns,
        )  # fmt: skip

    def turn(self, now_ns: int, due_ns: int | None) -> None:
        """A turn begins, for which something was due then at the latest (None: nothing was). A leader wakes
        its followers before anything of theirs is due; so they ask for turns that are."""
        if now_ns >= self.probe_ns:
            self.probe_ns = now_ns + PROBE_NS
        if due_ns and now_ns >= due_ns:
            self._stall.note(now_ns - due_ns)

    def persist(self, now_ns: int, sequence: int, size: int) -> None:
        """A record is queued, with so many bytes of entries."""
        self._records.append((sequence, now_ns))
        self._sum_up(now_ns)
        self._second_bytes += size

    def durable(self, now_ns: int, sequence: int) -> None:
        """Everything up to this record is durable."""
        while self._records and self._records[0][0] <= sequence:
            self._sync.note(now_ns - self._records.popleft()[1])

    def sent(self, now_ns: int, body: Body) -> None:
        if type(body) is Heartbeat and body.round not in self._rounds:
            self._rounds[body.round] = now_ns
            if len(self._rounds) > ROUNDS_KEPT_MAX:
                del self._rounds[next(iter(self._rounds))]

    def heard(self, now_ns: int, body: Body) -> None:
        """Note a member's answer: each answer to a round measures one round trip."""
        if type(body) is HeartbeatReply and body.round in self._rounds:
            self._round_trip.note(now_ns - self._rounds[body.round])

    def lost_leadership(self) -> None:
        """Forget open rounds: another leadership uses the same numbers."""
        self._rounds.clear()

    def load_began(self, now_ns: int) -> None:
        self._load_ns = now_ns

    def loaded(self, now_ns: int, size: int) -> None:
        """The snapshot of so many bytes is this member's state."""
        if self._load_ns is not None:
            self._load.note(size, now_ns - self._load_ns)
        self._load_ns = None

    def _sum_up(self, now_ns: int) -> None:
        if now_ns < self._second_ns + SECOND:
            return
        if self._second_bytes:
            self._rate.note(self._second_bytes)
        self._second_ns, self._second_bytes = now_ns, 0
