"""A question for what a bookie holds: whether it can be counted, and its answer, gathered range by range (P11.4)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from embedbk.codec.holdings_messages import (
    HOLDINGS_IDS_MAX,
    Digests,
    HeldRange,
    HoldingsAnswer,
    HoldingsRange,
    HoldingsRequest,
)

__all__ = ["HeldCount", "why_not_counted"]


@dataclass(slots=True)
class HeldCount:
    """The answer to a question whose ranges are counted one by one."""

    parts: list[HeldRange]  # In the order of the question.
    wait_token: int  # The highest of the records that its answer waits for.
    left: int = 0  # Ranges that are not counted yet.

    def take(self, place: int, part: HeldRange, wait_token: int) -> None:
        self.parts[place] = part
        self.wait_token = max(self.wait_token, wait_token)
        self.left -= 1

    @property
    def answer(self) -> HoldingsAnswer:
        own, *others = self.parts
        return HoldingsAnswer(own.status, own.ledger_id, own.count, own.lacking, own.digests, others)


def why_not_counted(request: HoldingsRequest) -> str:
    """Why nothing is counted for this question; empty: it is."""
    asked: tuple[HoldingsRequest | HoldingsRange, ...] = (request, *request.others)
    if len(asked) > 1 and request.wants == Digests.BY_BYTES:
        return f"a question for digests of the bytes of {len(asked)} ranges: one is allowed"
    ids = 0
    for part in asked:
        span = part.last_entry - part.first_entry + 1
        ids += max(span, 0)
        if span < 1 or ids > HOLDINGS_IDS_MAX:
            return f"a question for holdings in {span if span < 1 else ids} ids: 1 to {HOLDINGS_IDS_MAX} are allowed"
        bounds = [part.first_entry, *part.cuts, part.last_entry + 1]
        are_parts = all(one < other for one, other in itertools.pairwise(bounds))
        if not are_parts or (request.wants and part.residues >> part.modulus):
            return "a question for holdings whose parts or residues are not those of its range"
    return ""
