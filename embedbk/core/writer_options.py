"""The times and bounds of one writing handle. `writer` decides by them; whoever opens a handle may set them."""

from __future__ import annotations

from dataclasses import dataclass

from embedbk.config import ANYWHERE, BEHIND_BYTES_MAX, QUORUM_WAIT_S, Placement
from embedbk.core.lateness import USUALLY_LATE, LateTerms

__all__ = ["WriterOptions"]

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Times and bounds of one writing handle."""

    add_timeout_ns: int = 5_000 * _MS  # An unanswered add makes its bookie a failed one.
    # A bookie that answers BUSY lives: so long it may go on before an add that it did not take makes it a failed one.
    busy_timeout_ns: int = 30_000 * _MS
    # Before that, a bookie that is late against the others (P4.7). With None, the writer looks for none.
    late: LateTerms | None = USUALLY_LATE
    retry_ns: int = 200 * _MS  # Pause before replacement, or an unsettled compare-and-set, is tried again.
    refused_ns: int = 5_000 * _MS  # The same where metadata refused it, which has enough to do.
    # A bookie that failed is not chosen again for this long, unless no other is left (core/avoided.py).
    avoid_ns: int = 10_000 * _MS
    # Without Qa usable bookies in some write set adds stand still so long, then the handle fails (P4.5).
    quorum_wait_ns: int = int(QUORUM_WAIT_S * 1000) * _MS
    # Idle for this long with an unpublished LAC: tell the bookies durably (P6.2). A sync at each of them, so not in
    # every pause of a writer at its own pace.
    explicit_lac_ns: int = 100 * _MS
    # Or a little sooner: when this goes into the time. So many idle writers of one host do it together.
    explicit_lac_grid_ns: int = 20 * _MS
    # For so long after a bookie said that a reader waits there, it gets each LAC at once, by a hint.
    awaited_ns: int = 1_000 * _MS
    inflight_frames_max: int = 64
    inflight_bytes_max: int = 16 << 20
    # Bytes of acknowledged frames, kept for bookies that are behind, each with its price. Then nothing is sent until
    # they catch up; a seat that has answered nothing for 200 ms counts as failed.
    behind_bytes_max: int = BEHIND_BYTES_MAX
    delays_change: bool = (
        False  # Tolerate failed bookies while every write set keeps Qa unfailed ones (P4.6).
    )
    # What is outstanding when the handle fails is given to its host, for a next ledger of the same log (P8.2).
    hands_over: bool = False
    placement: Placement = ANYWHERE  # How bookies are chosen for failed seats.
    changes_max: int = 100  # Ensemble changes of one handle; metadata that only grows is somebody's outage.
