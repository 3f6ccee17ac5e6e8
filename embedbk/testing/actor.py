"""Scripted actors: requests and metadata changes that parts not in this world would make: repair, deletion.

Each is a core, so any world can run it in a client (`World.start(client, Repair(...))`), with the faults that strike
everybody else. They keep the rules that the real part will have to keep (P7.7, P8.3, P11.2), unless a switch takes one
away; then the invariants must find it (I34, I35, I36).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, ClassVar

from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import Frame, encode_frame_header, frame_of, split
from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Event, Handlers, Machine
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.core.quorum import write_set
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import (
    EmbedbkError,
    EntryUnreadable,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedger,
    PeerError,
    UsageError,
)
from embedbk.ids import Member

__all__ = ["Deletion", "Repair", "Script"]

Steps = Generator[Effect, Any, Any]


class Script(Machine, ABC):
    """Asks one thing at a time and waits for its outcome. Ends with what `run` returns, or the error it raises."""

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.asked = 0  # Number of the question that is open; its tag.
        self._steps = self.run()

    @abstractmethod
    def run(self) -> Steps: ...

    def _on_started(self, event: Started) -> list[Effect]:
        return self._go_on(None)

    def _on_outcome(self, event: Any) -> list[Effect]:
        return self._go_on(event) if event.tag == self.asked else []

    def _go_on(self, event: Event | None) -> list[Effect]:
        try:
            effect = self._steps.send(event)
        except StopIteration as end:
            return [Ended(None, end.value)]
        except EmbedbkError as error:
            return [Ended(error)]
        self.asked += 1
        effect.tag = self.asked  # type: ignore[union-attr]
        return [effect]

    def metadata(self) -> Generator[Effect, Any, tuple[LedgerMetadata, int]]:
        """The ledger's metadata and revision, by a linearizable read."""
        found = yield ReadKey(None, ledger_key_path(self.ledger_id))
        if not isinstance(found, KeyRead):
            raise MetadataUnavailable(f"ledger {self.ledger_id}: the metadata does not answer")
        if found.value is None:
            raise NoSuchLedger(f"ledger {self.ledger_id} does not exist")
        return decode_ledger_metadata(found.value), found.revision

    def change(self, revision: int, then: Put | Delete, *also: Put | Delete) -> Generator[Effect, Any, None]:
        done = yield Transact(None, [Compare(then.key, revision)], [then, *also])
        if not isinstance(done, Transacted) or not done.is_done:
            raise MetadataConflict(
                f"ledger {self.ledger_id}: the change was refused, or its outcome is unknown"
            )

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_outcome,
        SendFailed: _on_outcome,
        KeyRead: _on_outcome,
        MetadataFailed: _on_outcome,
        Transacted: _on_outcome,
        TransactUnknown: _on_outcome,
    }


class Repair(Script):
    """Gives the seats of `lost` in every fragment to `target`: copies all that they owe, then publishes (P11.2).

    The last fragment of a ledger that is not CLOSED is left alone: result "deferred". Otherwise the number of seats
    given over.
    """

    def __init__(
        self,
        ledger_id: int,
        lost: Member,
        target: Member,
        ledger_key: bytes,
        nonce: int,
        *,
        copies: bool = True,
        respects_last_fragment: bool = True,
    ) -> None:
        """copies=False publishes without copying, respects_last_fragment=False moves seats that a writer uses: both
        are wrong, and tests see that they are found."""
        self.lost, self.target, self.ledger_key, self.nonce = lost, target, ledger_key, nonce
        self.copies, self.respects_last_fragment = copies, respects_last_fragment
        super().__init__(ledger_id)

    def run(self) -> Steps:
        mark = repair_mark_path(self.ledger_id)
        yield from self.change(ABSENT, Put(mark, self.target.bookie_id.encode()))
        try:
            outcome = yield from self._give_over(mark)
        except EmbedbkError:
            yield Transact(None, [], [Delete(mark)])
            raise
        return outcome

    def _give_over(self, mark: str) -> Steps:
        """Under the mark, which keeps collectors from what is copied and not published yet (P7.7)."""
        metadata, revision = yield from self.metadata()
        fragments, given_over, is_deferred = list(metadata.fragments), 0, False
        for number, fragment in enumerate(metadata.fragments):
            if self.lost not in fragment.members:
                continue
            is_last = number == len(metadata.fragments) - 1
            if is_last and not metadata.is_closed and self.respects_last_fragment:
                is_deferred = True
                continue
            if self.target in fragment.members:
                raise UsageError(
                    f"ledger {self.ledger_id}: {self.target} has a seat in fragment {number} already"
                )
            if self.copies:
                yield from self._copy(metadata, number)
            seats = tuple(tuple(self.target) if m == self.lost else tuple(m) for m in fragment.members)
            fragments[number] = Fragment(fragment.first_entry, fragment.length_before, seats)  # type: ignore[arg-type]
            given_over += 1
        if given_over:
            value = encode_ledger_metadata(metadata.with_changes(fragments=tuple(fragments)))
            yield from self.change(revision, Put(ledger_key_path(self.ledger_id), value), Delete(mark))
        else:
            yield Transact(None, [], [Delete(mark)])
        return "deferred" if is_deferred and not given_over else given_over

    def _copy(self, metadata: LedgerMetadata, number: int) -> Steps:
        """Every entry that the seat owes, independent of any LAC; stops at one without a good copy."""
        fragment, fragments = metadata.fragments[number], metadata.fragments
        if number + 1 < len(fragments):
            last = fragments[number + 1].first_entry - 1
        else:
            last = metadata.last_entry if metadata.last_entry is not None else fragment.first_entry - 1
        seat = fragment.members.index(self.lost)
        for entry_id in range(fragment.first_entry, last + 1):
            seats = write_set(entry_id, metadata.quorum)
            if seat in seats:
                frame = yield from self._good_copy(
                    entry_id, [fragment.members[s] for s in seats if s != seat]
                )
                request = AddRequest(self.target.incarnation, self.nonce, entry_id, True)
                header = encode_frame_header(frame, self.ledger_key)
                told = yield Send(self.target, request, None, ((header, frame),))
                answer = told.control if isinstance(told, Answered) else None
                if not isinstance(answer, AddAnswer) or answer.status != Status.OK:
                    raise EntryUnreadable(
                        f"ledger {self.ledger_id}: entry {entry_id} was not taken by {self.target}"
                    )

    def _good_copy(self, entry_id: int, holders: list[Member]) -> Generator[Effect, Any, Frame]:
        for member in holders:
            request = ReadRequest(member.incarnation, self.ledger_id, entry_id, entry_id, FRAME_BYTES_MAX)
            told = yield Send(member, request, None)
            if isinstance(told, Answered) and isinstance(told.control, ReadAnswer):
                for _, body in told.frames:
                    try:
                        frame = frame_of(body, self.ledger_id)
                    except PeerError:
                        continue  # A bad copy is no copy.
                    if [found for found, _ in split(frame)] == [entry_id]:
                        return frame
        raise EntryUnreadable(f"ledger {self.ledger_id}: entry {entry_id} has no good copy")


class Deletion(Script):
    """Removes a ledger's key, only of a CLOSED ledger and at the version read (CL30, P8.3)."""

    def __init__(self, ledger_id: int, *, is_forced: bool = False) -> None:
        """is_forced: delete also an open one; the invariants must find that (I34)."""
        self.is_forced = is_forced
        super().__init__(ledger_id)

    def run(self) -> Steps:
        metadata, revision = yield from self.metadata()
        if not metadata.is_closed and not self.is_forced:
            raise UsageError(f"ledger {self.ledger_id} is not closed; recover it first")
        yield from self.change(revision, Delete(ledger_key_path(self.ledger_id)))
        return None
