"""Bookies that failed lately: how long each is avoided, and in which order they come when no other bookie is left.

Decides nothing of an ensemble. A bookie that is avoided comes last instead of never: behind all others, the one that
failed longest ago first, and only once it has answered a question again (P4.1, P4.5). A bookie that crashed stays
listed until its session ends, so a handle that took any listed bookie would spend all its changes on it in a moment.

The known failures are a mapping that is replaced and never changed, so that very many handles share the empty one.
Pure: the times come with events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "ASK_FIRST_NS",
    "Failed",
    "Failures",
    "ask",
    "avoided",
    "came_back",
    "heard",
    "in_turn",
    "note",
    "is_due",
]

ASK_FIRST_NS = 200_000_000  # So long after it failed a bookie is asked first, ...
ASK_MOST_NS = 10_000_000_000  # ... and then each time after twice as long, up to this.


class Failed(NamedTuple):
    """One bookie that failed under this handle."""

    failed_ns: int  # When it did so last.
    until_ns: int  # Until then others are preferred.
    ask_ns: int  # Not before this is it asked whether it is there again.
    delay_ns: int  # Between two such questions; doubled with each, and with each failure.
    is_heard: bool = False  # It has answered since.


Failures = Mapping[str, Failed]  # By bookie id.


def note(failures: Failures, bookie_id: str, now_ns: int, avoid_ns: int) -> Failures:
    """Note that the bookie failed, perhaps not for the first time."""
    before = failures.get(bookie_id)
    is_again = before is not None and now_ns < before.until_ns
    delay_ns = min(2 * before.delay_ns, ASK_MOST_NS) if before is not None and is_again else ASK_FIRST_NS
    return {**failures, bookie_id: Failed(now_ns, now_ns + avoid_ns, now_ns + delay_ns, delay_ns)}


def ask(failures: Failures, bookie_id: str, now_ns: int) -> Failures:
    """Note that the bookie is asked now; it counts as silent until it answers."""
    before = failures[bookie_id]
    delay_ns = min(2 * before.delay_ns, ASK_MOST_NS)
    asked = before._replace(ask_ns=now_ns + delay_ns, delay_ns=delay_ns, is_heard=False)
    return {**failures, bookie_id: asked}


def heard(failures: Failures, bookie_id: str) -> Failures:
    """Note that the bookie answered: it may be taken where no other is left."""
    before = failures.get(bookie_id)
    return failures if before is None else {**failures, bookie_id: before._replace(is_heard=True)}


def came_back(failures: Failures, bookie_id: str, now_ns: int) -> Failures:
    """Note that the bookie was registered anew, or found room: it is asked at once, then as if never asked before."""
    before = failures[bookie_id]
    delay_ns = min(before.delay_ns, ASK_FIRST_NS)
    return {**failures, bookie_id: before._replace(ask_ns=now_ns, delay_ns=delay_ns)}


def is_due(failures: Failures, bookie_id: str, now_ns: int) -> bool:
    """Whether it may be asked now."""
    known = failures.get(bookie_id)
    return known is not None and known.ask_ns <= now_ns


def avoided(failures: Failures, now_ns: int) -> list[str]:
    """The ids of bookies that are not taken while another one is there."""
    return [bookie_id for bookie_id, known in failures.items() if known.until_ns > now_ns]


def in_turn(failures: Failures, now_ns: int) -> list[str]:
    """The avoided bookies that have answered since they failed, in the order of their failures."""
    there = [
        (known.failed_ns, bookie_id)
        for bookie_id, known in failures.items()
        if known.is_heard and known.until_ns > now_ns
    ]
    return [bookie_id for _, bookie_id in sorted(there)]
