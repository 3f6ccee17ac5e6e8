"""Reads and copies of several ledgers that travel together: one message for each bookie, instead of one for each ledger
(P11.2).

Decides which requests leave in one message, and which request each part of an answer is for. What was asked within one
step of `small_repairs` leaves together: reads of one bookie, and copies for one bookie, so many bytes and so many
requests in one message. Each `FragmentCopy` sees requests and answers of its own alone, so its checks, its verdicts and
its failures are those of a copy that goes by itself.

    FragmentCopies ──reads, adds──▶ one message for each bookie ──▶ bookie ──one answer──▶ part by part, to each its own
          ▲                                                                                  │
          └── what a bookie of the build before did not answer is asked for by itself ◀──────┘

A bookie of a build before answers a read of several ledgers for the first one alone, and refuses a message with several
frames, of which it stores nothing. What it did not answer is sent again, each by itself, and so is all else that it is
asked from then on. A message that gets no answer costs what a single request costs: each `FragmentCopy` has time limits
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from embedbk.codec.add_messages import COPIES_MAX, AddAnswer, AddRequest, CopiesAnswer, CopyTaken
from embedbk.codec.frame import FrameHeader
from embedbk.codec.messages import Control, ErrorAnswer
from embedbk.codec.read_messages import READ_OTHERS_MAX, ReadAnswer, ReadRange, ReadRequest
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect
from embedbk.core.several import parts_of
from embedbk.ids import Member
from embedbk.repair.fragment_copy import USUAL_COPYING, CopyOptions

__all__ = ["CopyGathering"]

_Frames = list[tuple[FrameHeader, memoryview]]

assert USUAL_COPYING.together <= min(COPIES_MAX, READ_OTHERS_MAX + 1)


class CopyGathering:
    """One message has a number, by which its answer is known. Tags of what was gathered are those of `FragmentCopy`."""

    def __init__(self, nonce: int, options: CopyOptions = USUAL_COPYING) -> None:
        """nonce: of the repairs whose copies are gathered."""
        self.nonce = nonce
        self.options = options
        self.numbers = 0
        self.out: dict[int, list[Send]] = {}  # Number of a message that is out -> what it asks.
        self.one_by_one: set[Member] = set()  # Bookies that do not take several in one message.

    def gathered(self, asked: Iterable[tuple[Effect, int]]) -> list[Effect]:
        """The same reads and copies in few messages; all else stays as it is. With each the bytes that a read may find
        at most."""
        effects: list[Effect] = []
        groups: dict[tuple[Member, bool], list[tuple[Send, int]]] = {}
        for effect, size in asked:
            if not isinstance(effect, Send) or effect.member in self.one_by_one:
                effects.append(effect)
                continue
            if not isinstance(effect.control, ReadRequest | AddRequest):
                effects.append(effect)
                continue
            is_read = isinstance(effect.control, ReadRequest)
            size = size if is_read else sum(len(frame.body) for _, frame in effect.frames)
            groups.setdefault((effect.member, is_read), []).append((effect, size))
        for group in groups.values():
            effects += map(self._message, self._cut(group))
        return effects

    def _cut(self, group: list[tuple[Send, int]]) -> list[list[Send]]:
        """Parts of these, each of which fits into one message."""
        parts: list[list[Send]] = []
        ledgers, byte_count = set[int](), 0
        for send, size in group:
            ledger_id = send.control.ledger_id if isinstance(send.control, ReadRequest) else -1
            is_full = not parts or (
                len(parts[-1]) >= self.options.together
                or byte_count + size > self.options.together_bytes
                or ledger_id in ledgers  # Which range a frame is of is known by its ledger.
            )
            if is_full:
                parts.append([])
                ledgers, byte_count = set(), 0
            parts[-1].append(send)
            byte_count += size
            if ledger_id >= 0:
                ledgers.add(ledger_id)
        return parts

    def _message(self, asked: list[Send]) -> Send:
        if len(asked) == 1:
            return asked[0]
        self.numbers += 1
        self.out[self.numbers] = asked
        member, control = asked[0].member, asked[0].control
        if not isinstance(control, ReadRequest):
            copies = AddRequest(member.incarnation, self.nonce, self.numbers, recovery=True, is_copy=True)
            return Send(member, copies, ("copies", self.numbers), [each.frames[0] for each in asked])
        others = [_range_of(each.control) for each in asked[1:]]
        read = ReadRequest(
            member.incarnation,
            control.ledger_id,
            control.first_entry,
            control.last_entry,
            self.options.together_bytes,
            modulus=control.modulus,
            residues=control.residues,
            reads_as=control.reads_as,
            others=others,
        )
        return Send(member, read, ("reads", self.numbers))

    def taken_apart(self, event: Answered | SendFailed) -> tuple[list[Answered | SendFailed], Sequence[Send]]:
        """What the event says of each request that it is about; and what was not answered, to be sent by itself."""
        if event.tag[0] not in ("reads", "copies"):
            return [event], ()
        asked = self.out.pop(event.tag[1], [])
        if isinstance(event, SendFailed):
            return [
                SendFailed(event.now_ns, each.tag, event.member, event.reason, event.is_other_disk)
                for each in asked
            ], ()
        control, told = event.control, list[tuple[Control, _Frames]]()
        if event.tag[0] == "reads" and isinstance(control, ReadAnswer):
            told = _reads_of(asked, control, event.frames)
        elif event.tag[0] == "copies" and isinstance(control, CopiesAnswer):
            if (control.nonce, control.seating) == (self.nonce, event.tag[1]):
                told = [
                    (self._add_answer(copy, send), [])
                    for copy, send in zip(control.copies, asked, strict=False)
                ]
            else:
                asked = []  # It answers another message (P3.8).
        left = asked[len(told) :]
        if left:
            self.one_by_one.add(event.member)
        events: list[Answered | SendFailed] = [
            Answered(event.now_ns, send.tag, event.member, part, frames)
            for send, (part, frames) in zip(asked, told, strict=False)
        ]
        return events, left

    def _add_answer(self, copy: CopyTaken, send: Send) -> AddAnswer:
        """As if the frame had been sent by itself; whether it is about this frame its `FragmentCopy` checks."""
        number = send.control.seating if isinstance(send.control, AddRequest) else -1
        return AddAnswer(
            copy.status, self.nonce, number, True, copy.ledger_id, copy.first_entry, copy.last_entry
        )


def _range_of(control: Control) -> ReadRange:
    assert isinstance(control, ReadRequest)
    return ReadRange(
        control.ledger_id, control.first_entry, control.last_entry, control.modulus, control.residues
    )


def _reads_of(asked: list[Send], answer: ReadAnswer, frames: _Frames) -> list[tuple[Control, _Frames]]:
    """The verdict on each range, with the frames that are of its ledger."""
    by_ledger: dict[int, _Frames] = {}
    for header, body in frames:
        by_ledger.setdefault(header.ledger_id, []).append((header, body))
    told: list[tuple[Control, _Frames]] = []
    for send, part in zip(asked, parts_of(answer), strict=False):
        if getattr(send.control, "ledger_id", None) != part.ledger_id:
            told.append(
                (ErrorAnswer(f"it answered for ledger {part.ledger_id}, which was not asked for"), [])
            )
            continue
        verdict = ReadAnswer(part.status, part.ledger_id, part.absent, wait_ms=part.wait_ms)
        told.append((verdict, by_ledger.get(part.ledger_id, [])))
    return told
