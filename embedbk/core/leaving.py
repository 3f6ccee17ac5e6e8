"""Deleting the ledgers that closed empty and left the list of their log (P8.3), after this takeover, or the next one.

Decides which of them may go: those that are CLOSED and empty by their own metadata, that the list at the version read
does not name, and whose every seat has answered that it is durably fenced. The last condition is for a writer that was
stopped and knows of nothing: bookies that may have lost their fences put every ledger that metadata knows into limbo
(P7.4), and this one will not be known any more. With a fence on each seat, as many as may be lost (Qa - 1) acknowledge
nothing alone.

    LEFT -> (READ the ledgers of a batch -> FENCE their seats -> DROP, one transaction) as often as it takes -> ended

The next takeover does what stays undone: the same transaction changes the key that names the ledgers that left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from embedbk.codec.add_messages import FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_list import (
    LedgersLeft,
    decode_ledgers_left,
    encode_ledgers_left,
    log_key_path,
    log_left_path,
)
from embedbk.codec.metadata_messages import Compare, Delete, Put
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY

__all__ = ["Leaving"]

_BATCH = 32  # Ledgers of one transaction: two keys are compared and one is changed beside them.
_FENCE_NS = (
    # Time for the seats of a batch; ledgers whose seats have not all answered then stay until the next takeover.
    5_000_000_000
)


@dataclass(slots=True)
class _Candidate:
    """A ledger that is CLOSED and empty, and the seats that have not said that it is fenced there."""

    revision: int
    unfenced: int


class Leaving(Machine):
    """Ends with the ids that it deleted; with an error only where the key of what left cannot be read."""

    def __init__(self, name: str, list_revision: int, listed: frozenset[int], ledger_key: bytes) -> None:
        """listed: what the log's list names at that revision; none of these is ever deleted."""
        self.name = name
        self.list_revision = list_revision
        self.listed = listed
        self.ledger_key = ledger_key
        self.left_revision = 0
        self.waiting: list[int] = []  # Not looked at yet.
        self.staying: list[int] = []  # Looked at, and left for the next takeover.
        self.reading: dict[int, None] = {}  # Ledgers of this batch whose metadata is being read.
        self.candidates: dict[int, _Candidate] = {}
        self.gone: list[int] = []  # Ledgers of this batch that are deleted already, or not ours to delete.
        self.deleted: list[int] = []
        self.dropping: list[int] = []  # The ledgers that the transaction in flight deletes.
        self.fence_until: int | None = None
        self.is_over = False

    @property
    def deadline_ns(self) -> int | None:
        return self.fence_until

    def _on_started(self, event: Started) -> list[Effect]:
        return [ReadKey("left", log_left_path(self.name))]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        if event.tag == "left":
            return self._on_left(event)
        return self._on_ledger(event.tag[1], event)

    def _on_left(self, event: KeyRead) -> list[Effect]:
        if event.value is None:
            return self._end()
        try:
            self.waiting = list(dict.fromkeys(decode_ledgers_left(event.value).ledger_ids))
        except StorageError as unread:
            return self._end(unread)
        self.left_revision = event.revision
        return self._next_batch(event.now_ns)

    def _next_batch(self, now_ns: int) -> list[Effect]:
        batch, self.waiting = self.waiting[:_BATCH], self.waiting[_BATCH:]
        self.candidates.clear()
        self.gone = [ledger_id for ledger_id in batch if ledger_id in self.listed]
        self.reading = dict.fromkeys(ledger_id for ledger_id in batch if ledger_id not in self.listed)
        if not batch:
            return self._end()
        if not self.reading:
            return self._drop(now_ns)
        self.fence_until = now_ns + _FENCE_NS
        return [ReadKey(("ledger", ledger_id), ledger_key_path(ledger_id)) for ledger_id in self.reading]

    def _on_ledger(self, ledger_id: int, event: KeyRead) -> list[Effect]:
        if ledger_id not in self.reading:
            return []
        del self.reading[ledger_id]
        try:
            metadata = self._empty_one(ledger_id, event.value)
        except StorageError:
            self.staying.append(ledger_id)  # Metadata that cannot be read is not judged.
            return self._go_on(event.now_ns)
        if metadata is None:
            self.gone.append(ledger_id)
            return self._go_on(event.now_ns)
        members = metadata.fragments[-1].members
        self.candidates[ledger_id] = _Candidate(event.revision, (1 << len(members)) - 1)
        return [
            Send(
                member,
                FenceRequest(member.incarnation, ledger_id, self.ledger_key),
                ("fence", ledger_id, seat),
            )
            for seat, member in enumerate(members)
        ]

    def _empty_one(self, ledger_id: int, value: bytes | None) -> LedgerMetadata | None:
        """The metadata, if by it the ledger is this log's, CLOSED, and has no entry.

        Raises StorageError for bytes that are no ledger metadata.
        """
        if value is None:
            return None
        metadata = decode_ledger_metadata(value, ledger_id)
        is_ours = metadata.custom.get("log") == self.name.encode()
        return metadata if is_ours and metadata.is_closed and metadata.last_entry == NO_ENTRY else None

    def _on_answered(self, event: Answered) -> list[Effect]:
        answer, (_, ledger_id, seat) = event.control, event.tag
        candidate = self.candidates.get(ledger_id)
        if candidate is None or not isinstance(answer, FenceAnswer) or answer.status != Status.OK:
            return self._give_up(ledger_id, event.now_ns)
        candidate.unfenced &= ~(1 << seat)
        return self._go_on(event.now_ns)

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return self._give_up(event.tag[1], event.now_ns)

    def _give_up(self, ledger_id: int, now_ns: int) -> list[Effect]:
        """Leave a ledger for the next takeover: one of its seats cannot be fenced now."""
        if self.candidates.pop(ledger_id, None) is not None:
            self.staying.append(ledger_id)
        return self._go_on(now_ns)

    def _go_on(self, now_ns: int) -> list[Effect]:
        is_settled = not self.reading and not any(each.unfenced for each in self.candidates.values())
        return self._drop(now_ns) if is_settled and self.fence_until is not None else []

    def _drop(self, now_ns: int) -> list[Effect]:
        """Delete what may go, in one transaction that checks that the list is as it was when it named none of it."""
        self.fence_until = None
        if not self.candidates and not self.gone:
            return self._next_batch(now_ns)
        left = (*self.staying, *self.waiting)
        self.dropping = list(self.candidates)
        when = [
            Compare(log_key_path(self.name), self.list_revision),
            Compare(log_left_path(self.name), self.left_revision),
            *(Compare(ledger_key_path(i), each.revision) for i, each in self.candidates.items()),
        ]
        then: list[Put | Delete] = [Delete(ledger_key_path(ledger_id)) for ledger_id in self.dropping]
        value = encode_ledgers_left(LedgersLeft(METADATA_VERSION, left))
        then.append(Put(log_left_path(self.name), value) if left else Delete(log_left_path(self.name)))
        return [Transact("drop", when, then)]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if not event.is_done:
            return self._end()  # Another owner took the log over: the rest is its own.
        self.deleted += self.dropping
        self.left_revision = event.revision
        return self._next_batch(event.now_ns)

    def _on_unknown(self, event: TransactUnknown | MetadataFailed) -> list[Effect]:
        return self._end()  # It may take effect or not: the next takeover reads what is left.

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.fence_until is None or event.now_ns < self.fence_until:
            return []
        late = [ledger_id for ledger_id, each in self.candidates.items() if each.unfenced]
        self.staying += [*late, *self.reading]
        self.reading.clear()
        for ledger_id in late:
            del self.candidates[ledger_id]
        return self._drop(event.now_ns)

    def _end(self, error: StorageError | None = None) -> list[Effect]:
        if self.is_over:
            return []
        self.is_over = True
        self.fence_until = None
        return [Ended(error, self.deleted)]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        KeyRead: _on_key_read,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Transacted: _on_transacted,
        TransactUnknown: _on_unknown,
        MetadataFailed: _on_unknown,
        Tick: _on_tick,
    }
