"""Filling up a seat whose bookie is there and lacks entries: only what it lacks, to that same bookie (P11.4).

Decides what the bookie lacks, by the bookie's own answers from its index, part by part; and when it lacks nothing any
more: it is asked once more after the copies, and counts all that the seat owes. `fragment_copy` copies the entries. No
fragment changes: the bookie is named, so its collector leaves the ledger alone (P7.7). If some entries have no good
copy, the first of them is named, and the others are copied all the same.

    next part ──asked──▶ all there ──▶ next part ... none left: done
                  ▲  └──▶ ranges that lack ──▶ copied, one by one ─┐
                  └────────────────────────────────────────────────┘
"""

from __future__ import annotations

from embedbk.codec.holdings_messages import HoldingsRequest
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.client_words import BELOW_LEVEL, Answered, Send, SendFailed
from embedbk.core.machine import Effect
from embedbk.errors import PeerError
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import USUAL_COPYING, CopyOptions, CopyResult, FragmentCopy
from embedbk.repair.holdings import USUAL_CHECK
from embedbk.repair.owed import Owed, held_by, owed_by_seat

__all__ = ["SeatFill"]

LOST_MAX = 50  # Entries without a good copy that one fill passes by; with more, as where all others are away, it ends.


class SeatFill:
    """Fills one seat of one fragment of a CLOSED ledger. away: seats whose bookies are not registered. The result is
    None until it is over, then "done" (also where the cluster's level is too low to ask), "no good copy", "target
    failed" or "cannot tell"."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        number: int,
        seat: int,
        away: frozenset[int],
        nonce: int,
        pace: CopyPace,
        options: CopyOptions = USUAL_COPYING,
        numbers: int = 0,
        ids_max: int = USUAL_CHECK.ids_max,
    ) -> None:
        """numbers: of the last question that this handle asked."""
        self.metadata, self.number, self.seat = metadata, number, seat
        self.fragment = metadata.fragments[number]
        self.member = self.fragment.members[seat]
        self.nonce, self.pace, self.options = nonce, pace, options
        self.numbers = numbers
        self.result: CopyResult | None = None
        self.copies = self.copied_bytes = 0
        self._away = away | {seat}
        self._parts = owed_by_seat(metadata, number, seat, ids_max)
        self._part: Owed | None = None
        self._held = -1  # Entries of this part that it held before copies were made; -1: none were made.
        self._lacking: list[tuple[int, int]] = []
        self._range = (0, -1)  # That is being copied.
        self._lost: CopyResult | None = None  # The first entry without a good copy.
        self._lost_count = 0
        self._asked_ns: int | None = None  # When the question that is out was asked.
        self._copying: FragmentCopy | None = None

    @property
    def deadline_ns(self) -> int | None:
        if self._copying is not None:
            return self._copying.deadline_ns
        return None if self._asked_ns is None else self._asked_ns + self.options.read_timeout_ns

    def begin(self, now_ns: int) -> list[Effect]:
        return self._next_part(now_ns)

    def _next_part(self, now_ns: int) -> list[Effect]:
        self._part, self._held = next(self._parts, None), -1
        if self._part is None:
            self.result = self._lost or CopyResult("done")
            return []
        return self._ask(now_ns)

    def _ask(self, now_ns: int) -> list[Effect]:
        assert self._part is not None
        self.numbers += 1
        self._asked_ns = now_ns
        request = HoldingsRequest(self.member.incarnation, self.metadata.ledger_id, *self._part[:4])
        return [Send(self.member, request, ("held", self.numbers))]

    def _is_asked(self, event: Answered | SendFailed) -> bool:
        return self._asked_ns is not None and event.tag == ("held", self.numbers)

    def on_answered(self, event: Answered) -> list[Effect]:
        if self._copying is not None:
            return self._look_at_copies(event.now_ns, self._copying.on_answered(event))
        if not self._is_asked(event):
            return []
        assert self._part is not None
        self._asked_ns = None
        try:
            count, self._lacking = held_by(event.control, self.metadata.ledger_id, self._part)
        except PeerError as untold:
            return self._end("cannot tell", str(untold))
        if count == self._part.entries:
            return self._next_part(event.now_ns)
        if count <= self._held and self._lost is not None:
            return self._next_part(event.now_ns)
        if count <= self._held:
            return self._end("target failed", "it acknowledged copies, and does not count them")
        self._held = count
        return self._copy_next(event.now_ns)

    def _end(self, kind: str, why: str) -> list[Effect]:
        self.result = CopyResult(kind, f"{self.member.bookie_id}: {why}", target=self.member)
        return []

    def _copy_next(self, now_ns: int) -> list[Effect]:
        if not self._lacking:
            return self._ask(now_ns)
        self._range = self._lacking.pop(0)
        self._copying = FragmentCopy(
            self.metadata,
            self.number,
            {self.seat: self.member},
            self._away,
            self.nonce,
            self.pace,
            self.options,
            self.numbers,
            self._range,
        )
        return self._look_at_copies(now_ns, self._copying.begin(now_ns))

    def _look_at_copies(self, now_ns: int, effects: list[Effect]) -> list[Effect]:
        copying = self._copying
        assert copying is not None
        if copying.result is None:
            return effects
        self._copying, self.numbers = None, copying.numbers
        self.copies += copying.copies
        self.copied_bytes += copying.copied_bytes
        if copying.result.kind == "no good copy":
            self._lost, self._lost_count = self._lost or copying.result, self._lost_count + 1
            if self._lost_count == LOST_MAX:
                self.result = self._lost
                return effects
            if copying.result.entry_id < self._range[1]:
                self._lacking.insert(0, (copying.result.entry_id + 1, self._range[1]))
        if copying.result.kind in ("done", "no good copy"):
            return [*effects, *self._copy_next(now_ns)]
        self.result = copying.result
        return effects

    def on_send_failed(self, event: SendFailed) -> list[Effect]:
        if self._copying is not None:
            return self._look_at_copies(event.now_ns, self._copying.on_send_failed(event))
        if not self._is_asked(event):
            return []
        if event.reason == BELOW_LEVEL:
            self.result = CopyResult(
                "done"
            )  # As at levels without this question: the bookie is registered, so nothing is lost.
            return []
        return self._end("cannot tell", event.reason)

    def on_tick(self, now_ns: int) -> list[Effect]:
        if self._copying is not None:
            return self._look_at_copies(now_ns, self._copying.on_tick(now_ns))
        if self._asked_ns is not None and now_ns >= self._asked_ns + self.options.read_timeout_ns:
            return self._end("cannot tell", "no answer in time")
        return []
