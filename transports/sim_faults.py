"""The faults of a simulated network: what chance deals each body, and what rules do to one by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["CALM", "DROP", "MILLISECOND", "ROUGH", "Faults", "Rule", "Treatment"]

MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that chance deals each body. Delays are uniform; the rest are probabilities."""

    delay_ns_min: int = MILLISECOND // 10
    delay_ns_max: int = MILLISECOND
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    corruption: float = 0.0  # One bit of the body is another one.
    late_ns_max: int = 50 * MILLISECOND  # How much later a doubled or reordered body may come.


CALM = Faults()
ROUGH = Faults(loss=0.01, duplication=0.03, reordering=0.05)


@dataclass(frozen=True, slots=True)
class Treatment:
    """What a rule does to one body, before chance has its turn."""

    drop: bool = False
    delay_ns: int = 0  # Beside the usual delay; what is sent after it may arrive before it.
    copies: int = 1
    body: bytes | None = None  # What arrives instead: damage on the wire.


DROP = Treatment(drop=True)
Rule = Callable[[str, str, bytes], Treatment | None]  # (sender, receiver, body); None: not for this rule.
