"""Common answers to adds, counted in C beside the cores (native/SHORTCUTS.md, "Answers").

Decides which adds are counted: the first sending of a frame, while nothing but plain adds is under way at its writer;
each thing that is sent again has a reason. Decides when the cores are told of what was counted, and of which writers
every answer is news: from when something beside plain adds is under way, until all that was sent by then is confirmed.
Leaves the counting to `codec.answers`, and to `bookie_requests` every answer that is not counted.
"""

from __future__ import annotations

from collections.abc import Callable

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.answers import Asked, Counting
from embedbk.codec.frame import Frame
from embedbk.core.client_words import AddsAnswered
from embedbk.core.vocabulary import Tag
from embedbk.host.bookie_links import BookieLink, BookieLinks
from embedbk.host.operations import Operation
from embedbk.host.writing import Writing, is_countable
from embedbk.ids import Member

__all__ = ["UNTOLD_NS", "CountedAnswers"]

UNTOLD_NS = 5_000_000  # An answer that no quorum needs is delivered at the latest then: it frees memory.


class CountedAnswers:
    """What is counted of one client's adds. Called on the host's thread only."""

    __slots__ = ("_links", "_note_good", "_tell", "answers", "sealing", "tell_at", "uncommon")

    def __init__(
        self,
        answers: Counting,
        links: BookieLinks,
        note_good: Callable[[str], None],
        tell: Callable[[int], None],
    ) -> None:
        """note_good: a bookie has answered well (RP45). tell: tells the cores what `take` gives, at this time."""
        self.answers = answers
        self._links = links
        self._note_good = note_good
        self._tell = tell
        self.tell_at: int | None = None  # When untold answers are delivered for want of other news.
        # First request (0 before it) and ack quorum of the frame that is being sent, if it is counted.
        self.sealing: tuple[int, int] | None = None
        # Writers whose cores want every answer, and, of those that say so no more, from which LAC on they are counted.
        self.uncommon: dict[Writing, int | None] = {}

    def begin_sending(self, writing: Writing) -> None:
        """Note that what this writer sends next is a new frame."""
        if writing.is_common:
            self.sealing = (0, writing.core.quorum.ack_quorum)

    def expect(self, peer: BookieLink, request_id: int, control: AddRequest, frame: Frame) -> None:
        """Count the answer to this request of the frame that is being sent."""
        assert self.sealing is not None
        first, needed = self.sealing
        group = first or request_id
        self.sealing = (group, needed)
        self.answers.expect(
            Asked(
                peer.link, request_id, group, needed, control.nonce, control.seating, frame.ledger_id,
                frame.first_entry, frame.last_entry,
            )
        )  # fmt: skip

    def is_due(self, now_ns: int) -> bool:
        """Whether what is untold is to be told now: a frame has its quorum, or it has waited long enough."""
        if self.tell_at is None:
            self.tell_at = now_ns + UNTOLD_NS
        return self.answers.is_due or now_ns >= self.tell_at

    def take(self, now_ns: int) -> list[tuple[Operation, AddsAnswered]]:
        """What each core is to be told of the answers that were counted for it, in the order of arrival."""
        self.tell_at = None
        told: dict[Operation, list[tuple[Member, Tag]]] = {}
        followed: dict[Operation, tuple[int, ...]] = {}
        for link, request_id, is_followed in self.answers.tell():
            peer = self._links.by_link.get(link)
            asked = None if peer is None else peer.outstanding.pop(request_id, None)
            if peer is None or asked is None:
                continue  # Its failure was reported meanwhile.
            operation, tag = asked
            self._note_good(peer.member.bookie_id)
            if is_followed:
                followed[operation] = (*followed.get(operation, ()), tag[1])
            if operation in told:
                told[operation].append((peer.member, tag))
            else:
                told[operation] = [(peer.member, tag)]
        return [
            (operation, AddsAnswered(now_ns, answers, followed.get(operation, ())))
            for operation, answers in told.items()
        ]

    def judge(self, now_ns: int, writing: Writing) -> None:
        """Whether its core has to hear of every answer at once."""
        if not is_countable(writing.core):
            return
        if writing.is_over or not writing.core.is_common:
            if not writing.is_over and writing.is_common:
                self._tell(now_ns)
                self.answers.is_eager = True
                self.uncommon[writing] = None
            writing.is_common = False
            if writing in self.uncommon:
                self.uncommon[writing] = None
        elif writing in self.uncommon:
            after = self.uncommon[writing]
            if after is None:
                after = self.uncommon[writing] = writing.core.lap
            if writing.core.lac >= after:
                self.end_uncommon(writing)

    def end_uncommon(self, writing: Writing) -> None:
        del self.uncommon[writing]
        self.answers.is_eager = bool(self.uncommon)
        writing.is_common = not writing.is_over
