"""The copies that an adopted ledger lacks: each read from one that has it, checked again, and stored by a recovery add,
a frame at a time (P10.5).

Decides which source is asked, what of its answer is a copy, and when it is asked again. Leaves to others which copies
are owed (`adoption_plan`), and until when it may try (`adopting`).

    run of entries -> asked of a source -> checked -> stored at the target -> ... -> the next run -> ... -> none is owed
                        ^    '-- anything fails: the reason is noted, a pause --'
                        '---------------------------'
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import encode_frame_header, frame_of, split
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import FRAME_BLOCK_BYTES
from embedbk.core.adoption_plan import AdoptionCopies
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, earliest
from embedbk.core.survey import Survey
from embedbk.errors import PeerError

__all__ = ["AdoptionCopying"]


class AdoptionCopying:
    """The copying of one adoption, one question at a time. True: copies are owed."""

    __slots__ = (
        "_again_ns",
        "_ask_timeout_ns",
        "_asked",
        "_copied",
        "_ledger_id",
        "_ledger_key",
        "_nonce",
        "_owed",
        "_retry_ns",
        "_source",
        "_survey",
        "_until_ns",
        "stored",
        "trouble",
    )

    def __init__(
        self,
        ledger_id: int,
        ledger_key: bytes,
        nonce: int,
        survey: Survey,
        *,
        ask_timeout_ns: int,
        retry_ns: int,
    ) -> None:
        """survey: it knows what is a copy, and learns who has one now. ask_timeout_ns: an unanswered question failed.
        retry_ns: the pause before the next."""
        self._ledger_id = ledger_id
        self._ledger_key = ledger_key
        self._nonce = nonce
        self._survey = survey
        self._ask_timeout_ns = ask_timeout_ns
        self._retry_ns = retry_ns
        self._owed: list[AdoptionCopies] = []  # The last one is under way.
        self._copied = 0  # Entries of it that are copied.
        self._asked = 0  # Questions that were asked: their number, which answers name (P3.8).
        self._source = 0  # Index of the source that is asked.
        self._again_ns: int | None = None  # When to go on.
        self._until_ns: int | None = None  # When the open question counts as unanswered.
        self.stored = 0  # Entries copied so far.
        self.trouble = ""  # Why it does not get on.

    def getstate(self) -> dict[str, Any]:
        """The state for digests, without the survey, which is the adoption's."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "_survey"}

    def __bool__(self) -> bool:
        return bool(self._owed)

    @property
    def due_ns(self) -> int | None:
        return earliest(self._again_ns, self._until_ns)

    def begin(self, owed: list[AdoptionCopies], now_ns: int) -> list[Effect]:
        self._owed = owed
        return self._ask(now_ns)

    def on_answered(self, event: Answered) -> list[Effect]:
        kind, answer = event.tag[0], event.control
        if event.tag[1] != self._asked:
            return []
        if kind == "source" and isinstance(answer, ReadAnswer):
            return self._on_source(event)
        if kind == "copy" and isinstance(answer, AddAnswer):
            return self._on_copied(event, answer)
        return self._later(getattr(answer, "text", "an answer of the wrong kind"), event.now_ns)

    def on_send_failed(self, event: SendFailed) -> list[Effect]:
        if event.tag[1] != self._asked:
            return []
        self._source += 1
        return self._later(f"{event.member.bookie_id}: {event.reason}", event.now_ns)

    def on_time(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._until_ns is not None and now_ns >= self._until_ns:
            effects += self._later("no answer in time", now_ns)
        if self._again_ns is not None and now_ns >= self._again_ns:
            effects += self._ask(now_ns)
        return effects

    def _ask(self, now_ns: int) -> list[Effect]:
        self._again_ns = self._until_ns = None
        if not self._owed:
            return []
        run = self._owed[-1]
        source = run.sources[self._source % len(run.sources)]
        self._asked += 1
        self._until_ns = now_ns + self._ask_timeout_ns
        request = ReadRequest(
            source.incarnation,
            self._ledger_id,
            run.entry_ids[self._copied],
            run.entry_ids[-1],
            FRAME_BLOCK_BYTES,
            True,
            self._ledger_key,
        )
        return [Send(source, request, ("source", self._asked))]

    def _on_source(self, event: Answered) -> list[Effect]:
        run = self._owed[-1]
        wanted = run.entry_ids[self._copied :]
        entries: list[bytes] = []
        try:
            for _, body in event.frames:
                for entry_id, entry in split(frame_of(body, self._ledger_id)):
                    is_next = len(entries) < len(wanted) and entry_id == wanted[len(entries)]
                    if is_next and self._survey.is_copy(entry_id, entry):
                        entries.append(bytes(entry))
        except PeerError:
            entries = []
        if not entries:
            self._source += 1
            why = f"{event.member.bookie_id} does not give entry {wanted[0]} any more"
            return self._later(why, event.now_ns)
        frame = frame_of(memoryview(b"".join(entries)), self._ledger_id)
        self._asked += 1
        self._until_ns = event.now_ns + self._ask_timeout_ns
        request = AddRequest(run.target.incarnation, self._nonce, self._asked, True)
        header = encode_frame_header(frame, self._ledger_key)
        return [
            Send(
                run.target,
                request,
                ("copy", self._asked, frame.first_entry, frame.last_entry, len(entries)),
                ((header, frame),),
            )
        ]

    def _on_copied(self, event: Answered, answer: AddAnswer) -> list[Effect]:
        _, number, first, last, count = event.tag
        is_ours = answer.nonce == self._nonce and answer.seating == number and answer.recovery
        if not is_ours or (answer.first_entry, answer.last_entry) != (first, last):
            return []  # It answers something else (P3.8).
        if answer.status != Status.OK:
            return self._later(f"{event.member.bookie_id}: {Status(answer.status).name}", event.now_ns)
        run = self._owed[-1]
        for entry_id in run.entry_ids[self._copied : self._copied + count]:
            self._survey.masks[entry_id] |= 1 << run.bit
        self._copied += count
        self.stored += count
        if self._copied == len(run.entry_ids):
            self._owed.pop()
            self._copied = 0
        return self._ask(event.now_ns)

    def _later(self, reason: str, now_ns: int) -> list[Effect]:
        self.trouble = reason
        self._asked += 1  # Answers that still come to earlier questions count for nothing.
        self._again_ns, self._until_ns = now_ns + self._retry_ns, None
        return []
