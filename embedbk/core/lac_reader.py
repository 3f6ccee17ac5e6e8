"""The LAC of a ledger that is not closed, without fencing it (P6.2): asked once, or waited for.

Decides: whose answers are enough, and what a reader may take from a long poll. Leaves to others: reading the entries up
to it (`core/reader.py`), which ledger is to be followed, and when.
"""

from __future__ import annotations

from typing import ClassVar

from embedbk.codec.bookie_fields import Status
from embedbk.codec.digest import check_tags
from embedbk.codec.frame import Frame, frame_of
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.quorum import has_coverage
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import NotEnoughBookies, PeerError
from embedbk.ids import NO_ENTRY

__all__ = ["LacRead", "LacWait"]

_MS = 1_000_000
_TIMEOUT_NS = 5_000 * _MS  # After so long without an answer a bookie counts as silent.


class LacRead(Machine):
    """Asks the last fragment's bookies for the LAC without fencing, until coverage (P6.2).

    Ends with (lac, length up to it, is any of them fenced). The result is a lower bound of the true LAC, and not below
    any LAC that was published to an ack quorum before it began. With `above` it ends with the first answer beyond that
    LAC (CL26).
    """

    def __init__(self, metadata: LedgerMetadata, *, above: int | None = None) -> None:
        self.metadata = metadata
        self.above = above
        fragment = metadata.fragments[-1]
        self.best = (fragment.first_entry - 1, fragment.length_before)
        self.is_fenced = False
        self.answered = 0
        self.failed: dict[int, str] = {}
        self.until_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.until_ns

    def _on_started(self, event: Started) -> list[Effect]:
        self.until_ns = event.now_ns + _TIMEOUT_NS
        return [
            Send(member, LacRequest(member.incarnation, self.metadata.ledger_id), ("lac", seat))
            for seat, member in enumerate(self.metadata.fragments[-1].members)
        ]

    def _on_answered(self, event: Answered) -> list[Effect]:
        seat, answer = event.tag[1], event.control
        if self.until_ns is None:
            return []
        known = isinstance(answer, LacAnswer) and answer.status in (Status.OK, Status.NO_SUCH_LEDGER)
        if not known or not isinstance(answer, LacAnswer):
            return self._seat_failed(seat, Status(getattr(answer, "status", Status.UNKNOWN)).name)
        if answer.lac > self.best[0]:
            self.best = (answer.lac, answer.lac_length)
        self.is_fenced = self.is_fenced or answer.is_fenced
        self.answered |= 1 << seat
        is_news = self.above is not None and self.best[0] > self.above
        if not is_news and not has_coverage(self.answered, self.metadata.quorum):
            return []
        self.until_ns = None
        return [Ended(None, (*self.best, self.is_fenced))]

    def _seat_failed(self, seat: int, reason: str) -> list[Effect]:
        self.failed[seat] = reason
        left = (1 << self.metadata.ensemble_size) - 1 & ~sum(1 << failed for failed in self.failed)
        return [] if has_coverage(left, self.metadata.quorum) else self._too_few()

    def _too_few(self) -> list[Effect]:
        self.until_ns = None
        quorum = self.metadata.quorum
        told = ", ".join(
            f"{member.bookie_id}: {self.failed.get(seat, 'no answer in time')}"
            for seat, member in enumerate(self.metadata.fragments[-1].members)
            if not self.answered >> seat & 1
        )
        return [
            Ended(
                NotEnoughBookies(
                    f"ledger {self.metadata.ledger_id}: how far it may be read is not known: "
                    f"{quorum.write_quorum - quorum.ack_quorum + 1} of the {quorum.write_quorum} bookies of each write "
                    f"set have to answer, and too few did ({told})",
                    hint="try again when more of these bookies answer; its writer is not disturbed by that",
                )
            )
        ]

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return self._seat_failed(event.tag[1], event.reason) if self.until_ns is not None else []

    def _on_tick(self, event: Tick) -> list[Effect]:
        due = self.until_ns is not None and event.now_ns >= self.until_ns
        return self._too_few() if due else []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }


class LacWait(Machine):
    """Waits until the LAC of an open ledger passes a value, or the ledger is fenced, or the time is over (P6.2).

    One bookie's answer is enough to raise the LAC, so one is asked at a time, and another when it does not answer. Ends
    with (lac, length, is_fenced); lac is NO_ENTRY where no bookie had news. `frame` then holds the entries behind
    after_lac, as far as they came along: the others are read as usual.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        after_lac: int,
        wait_ms: int,
        chance_seat: int,
        *,
        bytes_max: int = 0,
        mac_key: bytes = b"",
    ) -> None:
        """
        Args:
            bytes_max: above 0, the entries themselves are wanted along, up to so many bytes of them. Not of a striped
                ledger: there no bookie has a run of them.
            mac_key: of the ledger's tags, where it has any.
        """
        self.metadata = metadata
        self.after_lac = after_lac
        self.wait_ms = wait_ms
        self.bytes_max = 0 if metadata.ensemble_size > metadata.write_quorum else bytes_max
        self.mac_key = mac_key
        self.frame: Frame | None = None
        self.turn = chance_seat
        self.tries = 0
        self.ask_until_ns: int | None = None
        self.is_over = False

    @property
    def deadline_ns(self) -> int | None:
        return None if self.is_over else self.ask_until_ns

    def _on_started(self, event: Started) -> list[Effect]:
        return self._ask(event.now_ns)

    def _ask(self, now_ns: int) -> list[Effect]:
        members = self.metadata.fragments[-1].members
        if self.tries >= len(members):
            return self._end(NO_ENTRY, 0, is_fenced=False)
        member = members[(self.turn + self.tries) % len(members)]
        self.tries += 1
        self.ask_until_ns = now_ns + self.wait_ms * _MS + _TIMEOUT_NS
        request = LacRequest(
            member.incarnation, self.metadata.ledger_id, self.after_lac, self.wait_ms, self.bytes_max
        )
        return [Send(member, request, ("wait", self.tries))]

    def _on_answered(self, event: Answered) -> list[Effect]:
        answer = event.control
        if self.is_over or event.tag[1] != self.tries:
            return []
        if not isinstance(answer, LacAnswer) or answer.status not in (Status.OK, Status.NO_SUCH_LEDGER):
            return self._ask(event.now_ns)
        if event.frames and self.bytes_max:
            self._take(event.frames[0][1], answer.lac)
        return self._end(answer.lac, answer.lac_length, is_fenced=answer.is_fenced)

    def _take(self, body: memoryview, lac: int) -> None:
        """Keep the entries that continue without a gap and may be read. A faulty copy is left to the range read, which
        asks another bookie and has this one repaired."""
        try:
            frame = frame_of(body, self.metadata.ledger_id)
            check_tags(frame, self.metadata.digest, self.mac_key)
        except PeerError:
            return
        if frame.first_entry == self.after_lac + 1 and frame.last_entry <= lac and not frame.has_gaps:
            self.frame = frame

    def _end(self, lac: int, length: int, *, is_fenced: bool) -> list[Effect]:
        self.is_over = True
        return [Ended(None, (lac, length, is_fenced))]

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return [] if self.is_over or event.tag[1] != self.tries else self._ask(event.now_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        due = not self.is_over and self.ask_until_ns is not None and event.now_ns >= self.ask_until_ns
        return self._ask(event.now_ns) if due else []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
