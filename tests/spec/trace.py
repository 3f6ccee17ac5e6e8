"""What happened in a run of the simulator, as plain tuples for `trace_spec`: translation only, it judges nothing.

An event is (name, who, ...). A handle is a number for one writer or one recovery; one that runs inside a log's takeover
has its own. Entries are {id: bytes}; metadata is a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from embedbk.codec.add_messages import AddAnswer, AddRequest, CopiesAnswer, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import Frame, frame_of, split
from embedbk.codec.journal_records import RecordKind, decode_gone
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, LedgerMetadata, decode_ledger_metadata
from embedbk.codec.metadata_messages import ABSENT
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.codec.registration import placement_path
from embedbk.core.bookie_words import (
    DropEntries,
    EntriesRead,
    JournalAppend,
    ReadEntries,
    Reply,
    RequestReceived,
    StoreFrame,
)
from embedbk.core.client_words import AddFailed, AddsAnswered, Answered, Confirmed, FrameSealed, Send
from embedbk.core.metadata_words import KeyRead, Transact, Transacted, TransactRefused
from embedbk.core.several import parts_of, ranges_of
from embedbk.errors import PeerError, StorageError
from embedbk.testing.observer import Observer

__all__ = ["Translator"]

Event = tuple[Any, ...]


class Translator(Observer):
    """Tells every event of a run that the rules speak of."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self.tell = tell
        self._handles: dict[tuple[int, int], int] = {}
        self._cores: list[Any] = []  # Kept, so that no two of them ever have one identity.
        self._lookups: dict[tuple[str, int], list[int]] = {}
        self._compared: dict[int, dict[str, int]] = {}  # By handle, beside the ledger's key.
        self._changes: dict[int, bool] = {}  # By handle: its newest transaction is to change the ensemble.
        self._requests: dict[tuple[str, int, int], tuple[Any, list[dict[int, bytes]]]] = {}

    # Nodes.

    def on_started(
        self, node: str, role: str, incarnation: bytes, last_token: int, may_have_lost: bool
    ) -> None:
        if role == "bookie":
            self._requests = {key: value for key, value in self._requests.items() if key[0] != node}
            self.tell(("started", node, incarnation, last_token))

    def on_durable(self, node: str, token: int) -> None:
        self.tell(("durable", node, token))

    def on_damaged(self, node: str, ledger_id: int, entry_id: int) -> None:
        self.tell(("damaged", node, ledger_id, entry_id))

    def on_disk_lost(self, node: str) -> None:
        self.tell(("disk lost", node))

    def on_disk_doubted(self, node: str) -> None:
        self.tell(("disk doubted", node))

    def on_metadata(self, revision: int, key: str, old: bytes | None, new: bytes | None) -> None:
        if key.startswith(LEDGERS_PREFIX):
            known = new if new is not None else old
            assert known is not None
            try:
                ledger_id = decode_ledger_metadata(known).ledger_id
            except StorageError:
                return  # A stranger's key: no ledger of ours.
            self.tell(("metadata", ledger_id, _plain(new)))

    # Cores.

    def on_step(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        name = type(core).__name__
        if name == "Bookie":
            self._bookie(node, event, effects)
        elif name in ("Writer", "Recovery", "LogTakeover"):
            self._client(core, name, event, effects)

    def _handle(self, core: Any, sub: int) -> int:
        key = (id(core), sub)
        if key not in self._handles:
            self._handles[key] = len(self._handles)
            self._cores.append(core)
        return self._handles[key]

    def _client(self, core: Any, name: str, event: Any, effects: Sequence[Any]) -> None:
        role = "writer" if name == "Writer" else "recovery"
        if isinstance(event, FrameSealed):
            told = ("seal", self._handle(core, 0), event.frame.ledger_id, event.frame.last_entry)
            self.tell(told)
        elif isinstance(event, AddsAnswered):
            for member, (_, seating, first_entry) in event.answers:
                asked = (seating, first_entry, core.in_flight.nonce, False)
                self.tell(("hear add", self._handle(core, 0), tuple(member), asked, Status.OK.name))
        elif isinstance(event, Answered | Transacted | TransactRefused | KeyRead):
            sub, tag = _unwrapped(event.tag)
            if name != "LogTakeover" or sub:
                self._hears(self._handle(core, sub), tag, event)
        for effect in effects:
            if isinstance(effect, Confirmed):
                self.tell(("confirm", self._handle(core, 0), effect.lac))
            elif isinstance(effect, AddFailed):
                self.tell(("fail", self._handle(core, 0)))
            elif isinstance(effect, Send | Transact):
                sub, tag = _unwrapped(effect.tag)
                if name != "LogTakeover" or sub:
                    self._asks(self._handle(core, sub), role, tag, effect)

    def _asks(self, handle: int, role: str, tag: Any, effect: Send | Transact) -> None:
        if isinstance(effect, Transact):
            put, compared = effect.then[0], {each.key: each.revision for each in effect.when}
            # What makes a ledger is no change of one, and may list it as well.
            if put.key.startswith(LEDGERS_PREFIX) and compared.pop(put.key, ABSENT) != ABSENT:
                value = _plain(put.value)
                self._compared[handle] = compared
                self._changes[handle] = value["state"] == "OPEN"
                self.tell(("cas", handle, role, tag, value["ledger"], value))
            return
        control, member = effect.control, tuple(effect.member)
        if isinstance(control, AddRequest):
            frame = effect.frames[0][1]
            entries = _entries(frame)
            asked = (control.seating, tag[2], control.nonce, control.recovery)
            self.tell(("ask add", handle, role, frame.ledger_id, member, asked, entries))
        elif isinstance(control, FenceRequest):
            self.tell(("ask fence", handle, control.ledger_id, member, tag[1]))
        elif isinstance(control, ReadRequest) and tag[0] == "recover":
            asked = (control.first_entry, control.last_entry, control.fence)
            self.tell(("ask read", handle, control.ledger_id, member, tag[1], asked))

    def _hears(self, handle: int, tag: Any, event: Any) -> None:
        if isinstance(event, Transacted):
            self.tell(("cas told", handle, tag, event.is_done))
        elif isinstance(event, TransactRefused):
            self.tell(("cas refused", handle, self._changes.get(handle, False)))
        elif isinstance(event, KeyRead) and isinstance(tag, tuple) and tag[0] == "placement":
            compared = self._compared.get(handle, {}).get(placement_path(tag[1]))
            if compared is not None and compared != (ABSENT if event.value is None else event.revision):
                self.tell(("placement changed", handle))
        elif isinstance(event, KeyRead):
            self.tell(("metadata read", handle, event.revision, _plain(event.value)))
        elif isinstance(event.control, AddAnswer):
            answer = event.control
            asked = (answer.seating, tag[2], answer.nonce, answer.recovery)
            self.tell(("hear add", handle, tuple(event.member), asked, Status(answer.status).name))
        elif isinstance(event.control, FenceAnswer):
            status = Status(event.control.status).name
            self.tell(("hear fence", handle, tuple(event.member), tag[1], status, event.control.lac))
        elif isinstance(event.control, ReadAnswer) and tag[0] == "recover":
            answer = event.control
            found: dict[int, bytes] = {}
            try:
                for _, body in event.frames:
                    found.update(_entries(frame_of(body)))
            except PeerError:
                return  # A copy that fails its check is no verdict (P5.2c).
            absent = [tuple(pair) for pair in answer.absent]
            if answer.status == Status.NO_SUCH_LEDGER:
                absent = [(tag[3], tag[4])]
            elif answer.status != Status.OK:
                return
            self.tell(("hear read", handle, tuple(event.member), tag[1], found, absent))

    def _bookie(self, node: str, event: Any, effects: Iterable[Any]) -> None:
        if isinstance(event, RequestReceived):
            entries = [_sound_entries(body) for _, body in event.frames]
            self._requests[node, event.link, event.request_id] = (event.control, entries)
        elif isinstance(event, EntriesRead):
            # Judged when it was looked up: the answer may wait for the disk, and another recoverer write back since.
            ledgers = self._lookups.pop((node, event.read_id))
            found = [event.absent, *(() if each is None else each[1] for each in event.others)]
            for ledger_id, absent in zip(ledgers, found, strict=True):
                self.tell(("look up", node, ledger_id, [tuple(pair) for pair in absent]))
        for effect in effects:
            if isinstance(effect, ReadEntries):
                ledgers = [effect.ledger_id, *(each.ledger_id for each in effect.others)]
                self._lookups[node, effect.read_id] = ledgers
            elif isinstance(effect, StoreFrame):
                entries = _entries(effect.frame)
                self.tell(("store", node, effect.token, effect.frame.ledger_id, entries))
            elif isinstance(effect, JournalAppend) and effect.kind == RecordKind.FENCE:
                self.tell(("set fence", node, effect.token, effect.ledger_id))
            elif isinstance(effect, JournalAppend) and effect.kind == RecordKind.GONE:
                last = decode_gone(effect.ledger_id, effect.body)
                self.tell(("fence what is gone", node, effect.token, effect.ledger_id, last))
            elif isinstance(effect, JournalAppend) and effect.kind == RecordKind.DROP:
                self.tell(("fence what is gone", node, effect.token, effect.ledger_id, effect.ledger_id))
                self.tell(("decide to drop", node, effect.ledger_id))
            elif isinstance(effect, DropEntries):
                self.tell(("drop", node, effect.ledger_id))
            elif isinstance(effect, Reply):
                self._answers(node, effect)

    def _answers(self, node: str, reply: Reply) -> None:
        asked, entries = self._requests.get((node, reply.link, reply.request_id), (None, []))
        answer = reply.control
        if isinstance(answer, AddAnswer):
            status = Status(answer.status).name
            self.tell(
                ("answer add", node, answer.ledger_id, status, answer.recovery, entries[0] if entries else {})
            )
        elif isinstance(answer, CopiesAnswer):
            for copy, brought in zip(answer.copies, entries, strict=False):
                self.tell(("answer add", node, copy.ledger_id, Status(copy.status).name, True, brought))
        elif isinstance(answer, FenceAnswer):
            self.tell(("answer fence", node, answer.ledger_id, Status(answer.status).name))
        elif isinstance(answer, ReadAnswer) and isinstance(asked, ReadRequest):
            for each, part in zip(ranges_of(asked), parts_of(answer), strict=False):
                if part.status == Status.NO_SUCH_LEDGER:
                    self.tell(("look up", node, part.ledger_id, [(each.first_entry, each.last_entry)]))
                told = part.status in (Status.OK, Status.NO_SUCH_LEDGER)
                self.tell(("answer read", node, part.ledger_id, asked.fence and told))


def _unwrapped(tag: Any) -> tuple[int, Any]:
    """A machine inside a log's takeover has its tags wrapped."""
    if isinstance(tag, tuple) and tag and tag[0] == "sub":
        return tag[1], tag[2]
    return 0, tag


def _sound_entries(body: memoryview) -> dict[int, bytes]:
    """None of a frame that fails its check: nothing of it is stored."""
    try:
        return _entries(frame_of(body))
    except PeerError:
        return {}


def _entries(frame: Frame) -> dict[int, bytes]:
    return {entry_id: bytes(entry) for entry_id, entry in split(frame)}


def _plain(value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {"state": "GONE"}
    metadata: LedgerMetadata = decode_ledger_metadata(value)
    return {
        "ledger": metadata.ledger_id,
        "state": {1: "OPEN", 2: "IN_RECOVERY", 3: "CLOSED"}[metadata.state],
        "last": metadata.last_entry,
        "E": metadata.ensemble_size,
        "Qw": metadata.write_quorum,
        "Qa": metadata.ack_quorum,
        "fragments": [
            (f.first_entry, tuple(tuple(member) for member in f.ensemble)) for f in metadata.fragments
        ],
        "freed": metadata.freed is not None,
    }
