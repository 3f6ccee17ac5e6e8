"""What a host is built from: transport, journal, entry store, durable bookie. Contracts only; no code of their own.

Real, in-memory and simulated implementations stand behind the same words. Nothing here reads a clock: the caller
passes `now_ns`. Shown here are the words of a transport of one's own (TRANSPORTS.md, "One of your own"); all others
stand in their modules.
"""

from __future__ import annotations

from embedbk.ports.add_path import AddPath, WaitEnd, WaitTerms
from embedbk.ports.adds import AddSending
from embedbk.ports.links import (
    WRONG_INCARNATION,
    Buffer,
    Identity,
    LinkDown,
    LinkUp,
    Received,
    TransportEvent,
)
from embedbk.ports.transport import Transport

__all__ = [
    "WRONG_INCARNATION",
    "AddPath",
    "AddSending",
    "Buffer",
    "Identity",
    "LinkDown",
    "LinkUp",
    "Received",
    "Transport",
    "TransportEvent",
    "WaitEnd",
    "WaitTerms",
]
