"""Every invariant fails when it should: a history made by hand, or a core with its rule taken out, breaks each."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import embedbk.testing.invariants as invariants
from embedbk.codec.add_messages import AddAnswer, AddRequest, FenceAnswer, FenceRequest, ReplaceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import FrameHeader, frame_of
from embedbk.codec.journal_records import HELD_AGAIN, LIMBO_ENDS, RecordKind
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Begun,
    Fragment,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, MetadataRequest, Put, Txn
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.codec.registration import placement_path
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.tombstone import tombstone_path
from embedbk.config import Placement, Quorum
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import (
    CollectionBegun,
    DecisionsRead,
    DropEntries,
    EntriesRead,
    JournalAppend,
    ReadDecisions,
    ReadEntries,
    Reply,
    RequestReceived,
    StoreFrame,
)
from embedbk.core.client_words import (
    AddFailed,
    AddsAnswered,
    Answered,
    BookieInfo,
    Confirmed,
    EnsembleChanged,
    FrameSealed,
    Send,
)
from embedbk.core.denials import DENIAL
from embedbk.core.lac_reader import LacWait
from embedbk.core.ledger_table import LedgerTable
from embedbk.core.log import LogTakeover
from embedbk.core.log_listing import NewLedger
from embedbk.core.metadata_words import Transact, Transacted, TransactUnknown
from embedbk.core.recovery import Recovery
from embedbk.core.upkeep_words import AskMetadata, MetadataTold
from embedbk.core.vocabulary import Started, Tick
from embedbk.core.writer import Writer
from embedbk.errors import LedgerFenced, NoSuchEntry, NotEnoughBookies
from embedbk.ids import NO_ENTRY, Member
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import Run, StartSession
from embedbk.metadata.member import Member as MetadataMember
from embedbk.metadata.raft_vocabulary import Durable as MetadataDurable
from embedbk.metadata.vocabulary import RequestReceived as MetadataRequestReceived
from embedbk.metadata.vocabulary import TurnEnded as MetadataTurnEnded
from embedbk.storage.memory import MemoryBookieStorage, Survivors
from embedbk.testing.invariants import Invariants
from embedbk.testing.invariants_placement import StrictPlacements
from embedbk.testing.sometimes import Sometimes
from embedbk.testing.violation import Violation
from tests.metadata.alone import log_of_one
from tests.rules.world import TOLD

LEDGER = 1
KEY = bytes(16)


def member(name: str) -> Member:
    return Member(name, name.encode().ljust(16, b"."))


def version(
    state: LedgerState = LedgerState.OPEN,
    last: int | None = None,
    length: int | None = None,
    starts: dict[int, str] | None = None,
    quorum: tuple[int, int, int] = (3, 3, 2),
) -> LedgerMetadata:
    """Metadata; starts: first entry -> names of the ensemble, "123" for b1 b2 b3."""
    fragments = tuple(
        Fragment(first, first, tuple(tuple(member(f"b{digit}")) for digit in names))  # type: ignore[misc]
        for first, names in (starts or {0: "123"}).items()
    )
    return LedgerMetadata(METADATA_VERSION, LEDGER, *quorum, state, last, length, bytes(16), 0, {}, fragments)


def frame(first: int, *payloads: bytes) -> Any:
    """Entries of one byte each before them, so that lengths add up."""
    length, entries = first, []
    for number, payload in enumerate(payloads):
        length += len(payload)
        entries.append(encode_entry(LEDGER, first + number, length, payload))
    return frame_of(memoryview(b"".join(entries)))


class History:
    """What the world would tell, written by hand."""

    def __init__(self, *versions: LedgerMetadata) -> None:
        self.watch = Invariants()
        self.revision = 0
        self.tokens: dict[str, int] = {}
        self.requests = 0
        self.cores: dict[str, Bookie] = {}
        for name in ("b1", "b2", "b3", "b4"):
            self.start(name)
        for one in versions or (version(),):
            self.publish(one)
        self.writer = Writer(version(), 1, KEY, 5, tuple(BookieInfo(member(f"b{n}"), True) for n in (1, 2, 3, 4)), random.Random(0))  # fmt: skip  # noqa: E501

    def start(self, name: str, last_token: int = 0, *, may_have_lost: bool = False) -> None:
        incarnation = member(name).incarnation
        self.cores[name] = Bookie(incarnation, LedgerTable(), last_token + 1)
        self.watch.on_started(name, "bookie", incarnation, last_token, may_have_lost)

    def publish(self, value: LedgerMetadata | None) -> None:
        self.revision += 1
        data = None if value is None else encode_ledger_metadata(value)
        self.watch.on_metadata(self.revision, ledger_key_path(LEDGER), None, data)

    def seal(self, first: int, *payloads: bytes) -> None:
        sealed = frame(first, *payloads)
        request = AddRequest(KEY, 5, 1, False)
        sends = [
            Send(member(f"b{n}"), AddRequest(KEY, 5, n, False), ("add", n, first), ((bytes(80), sealed),))
            for n in (1, 2, 3)
        ]
        assert request.recovery is False
        self.watch.on_step("w", self.writer, FrameSealed(0, sealed), sends)

    def store(self, name: str, first: int, *payloads: bytes, is_recovery: bool = False) -> None:
        """The bookie takes the entries, syncs, and answers OK."""
        self.take(name, first, *payloads, is_recovery=is_recovery)
        self.sync(name)
        self.answer_add(name, first, first + len(payloads) - 1, is_recovery=is_recovery)

    def take(
        self, name: str, first: int, *payloads: bytes, is_recovery: bool = False, lac: int = NO_ENTRY
    ) -> None:
        taken = frame(first, *payloads)
        header = FrameHeader(LEDGER, first, taken.last_entry, len(payloads), 1, lac, 0, lac != NO_ENTRY, KEY)
        self.requests += 1
        request = AddRequest(member(name).incarnation, 5, int(name[1]), is_recovery)
        event = RequestReceived(0, 1, self.requests, request, [(header, memoryview(b""))])
        self.step(name, event, StoreFrame(self.token(name), taken))

    def answer_add(self, name: str, first: int, last: int, *, is_recovery: bool = False) -> None:
        answer = AddAnswer(Status.OK, 5, int(name[1]), is_recovery, LEDGER, first, last)
        self.step(name, Tick(0), Reply(1, self.requests, answer))

    def ask(self, name: str, request: Any, answer: Any) -> None:
        """A request and, in the same step, its answer."""
        self.requests += 1
        self.step(name, RequestReceived(0, 1, self.requests, request), Reply(1, self.requests, answer))

    def fence(self, name: str, *, is_durable: bool = True) -> None:
        self.step(name, Tick(0), JournalAppend(self.token(name), RecordKind.FENCE, LEDGER, b""))
        row = self.cores[name].table.get(LEDGER) or self.cores[name].table.create(LEDGER)
        row.is_fenced = 1
        if is_durable:
            self.sync(name)
        request = FenceRequest(member(name).incarnation, LEDGER, KEY)
        self.ask(name, request, FenceAnswer(Status.OK, LEDGER))

    def read(self, name: str, answer: ReadAnswer, *, fence: bool = False) -> None:
        request = ReadRequest(member(name).incarnation, LEDGER, 0, 9, 99, fence)
        if not fence:
            return self.ask(name, request, answer)
        self.requests += 1
        self.step(name, RequestReceived(0, 1, self.requests, request), AskMetadata(DENIAL))
        self.step(name, MetadataTold(0, DENIAL, TOLD), Reply(1, self.requests, answer))
        return None

    def token(self, name: str) -> int:
        self.tokens[name] = self.tokens.get(name, 0) + 1
        return self.tokens[name]

    def sync(self, name: str) -> None:
        self.watch.on_durable(name, self.tokens.get(name, 0))

    def step(self, name: str, event: Any, *effects: Any) -> None:
        self.watch.on_step(name, self.cores[name], event, list(effects))

    def heard(self, name: str, first: int, last: int) -> None:
        """The writer hears an OK of the seat that the bookie held first."""
        answer = AddAnswer(Status.OK, self.writer.in_flight.nonce, int(name[1]), False, LEDGER, first, last)
        event = Answered(0, ("add", int(name[1]), first), member(name), answer)
        self.watch.on_step("w", self.writer, event, [])

    def confirm(self, lac: int) -> None:
        self.watch.on_step("w", self.writer, Tick(0), [Confirmed(lac, lac + 1)])

    def acked(self, *payloads: bytes, on: tuple[str, ...] = ("b1", "b2")) -> History:
        """Entries from 0 that were sent, stored, and acknowledged as they should be."""
        for entry_id, payload in enumerate(payloads):
            self.seal(entry_id, payload)
            for name in on:
                self.store(name, entry_id, payload)
                self.heard(name, entry_id, entry_id)
            self.confirm(entry_id)
        return self

    def propose(self, proposed: LedgerMetadata, *others: Compare) -> None:
        key = ledger_key_path(LEDGER)
        put = Put(key, encode_ledger_metadata(proposed))
        change = Transact("cas", [Compare(key, self.revision), *others], [put])
        self.watch.on_step("w", self.writer, Tick(0), [change])


class Recovering:
    """A recoverer's steps, by hand; the core only lends its name and its round."""

    def __init__(self, history: History, base: LedgerMetadata) -> None:
        self.history, self.base = history, base
        self.core = Recovery(base, history.revision, KEY, 7, (), random.Random(0))
        fences = [
            Send(m, FenceRequest(m.incarnation, LEDGER, KEY), ("fence", self.core.round, seat))
            for seat, m in enumerate(base.fragments[-1].members)
        ]
        self.step(Tick(0), *fences)

    def step(self, event: Any, *effects: Any) -> None:
        self.history.watch.on_step("r", self.core, event, list(effects))

    def fenced(self, *names: str, lac: int = NO_ENTRY) -> Recovering:
        for name in names:
            answer = FenceAnswer(Status.OK, LEDGER, lac)
            self.step(Answered(0, ("fence", self.core.round, 0), member(name), answer))
        return self

    def read(self, name: str, first: int = 0, absent: int | None = None, found: Any = None) -> Recovering:
        """Ask the bookie, and hear that everything from `absent` on is not there, or a copy."""
        tag = ("recover", self.core.round, int(name[1]), first, 9)
        self.step(
            Tick(0),
            Send(member(name), ReadRequest(member(name).incarnation, LEDGER, first, 9, 99, True), tag),
        )
        answer = ReadAnswer(Status.OK, LEDGER, [] if absent is None else [(absent, 9)])
        frames = [] if found is None else [(None, found.body)]
        self.step(Answered(0, tag, member(name), answer, frames))  # type: ignore[arg-type]
        return self

    def decide(self, end: int) -> Recovering:
        self.core.forward.end = end
        self.step(Tick(0))
        return self

    def publish(self, proposed: LedgerMetadata) -> None:
        key = ledger_key_path(LEDGER)
        put = Put(key, encode_ledger_metadata(proposed))
        self.step(Tick(0), Transact("cas", [Compare(key, self.history.revision)], [put]))


CLOSED = LedgerState.CLOSED
RECOVERING = LedgerState.IN_RECOVERY
Broken = dict[str, Callable[[], object]]


def i2() -> None:
    history = History(version(), version(CLOSED, -1, 0))
    history.publish(version(CLOSED, 0, 1))


def i4() -> None:
    history = History()
    history.seal(0, b"a")
    for name in ("b1", "b2"):
        history.store(name, 0, b"a")
        history.heard(name, 0, 0)
    history.watch.ghost.ledger(LEDGER).stable[0] &= ~history.watch.ghost.bookies["b2"].bit
    history.confirm(0)


def i5() -> None:
    history = History().acked(b"a", b"b")
    history.publish(version(CLOSED, 1, 2))
    history.watch.on_healed()
    history.watch.on_read("c", LEDGER, [(0, b"a")], False)
    history.watch.at_end({}, {LEDGER})


def i8() -> None:
    history = History()
    history.take("b1", 0, b"a")
    history.take("b2", 0, b"z")


def i10() -> None:
    history = History().acked(b"a")
    history.watch.on_read("c", LEDGER, [(0, b"a")], False)
    history.watch.on_read_failed("c", LEDGER, 0, NoSuchEntry("gone"))


def i11() -> None:
    history = History().acked(b"a", b"b")
    row = history.cores["b1"].table.create(LEDGER)
    for row.lac in (1, 0):
        history.ask("b1", LacRequest(member("b1").incarnation, LEDGER), LacAnswer(Status.OK, LEDGER, 1))


def i11_reader() -> None:
    history = History().acked(b"a", b"b")
    for lac, handle in ((1, "old"), (0, "fresh"), (1, "fresh"), (0, "old")):
        history.watch.on_reader_lac("c", LEDGER, lac, False, handle)


def i11_end() -> None:
    history = History().acked(b"a", b"b")
    history.watch.on_reader_lac("c", LEDGER, 1, False, "handle")
    history.watch.ghost.ledger(LEDGER).closed = version(CLOSED, 0, 1)  # As if I2 and I3 had not seen it.
    history.watch.on_reader_lac("c", LEDGER, 0, True, "handle")


def i12_row() -> None:
    history = History().acked(b"a")
    history.cores["b1"].table.create(LEDGER).lac = 3
    history.ask("b1", LacRequest(member("b1").incarnation, LEDGER), LacAnswer(Status.OK, LEDGER, 3))


def i13_quorum() -> None:
    history = History()
    history.seal(0, b"a")
    history.store("b1", 0, b"a")
    history.heard("b1", 0, 0)
    history.heard("b1", 0, 0)  # The same one twice is still one (a duplicated answer).
    history.confirm(0)


def i14(placement: int = 7) -> None:
    """placement: of b4, in the metadata; the change compares 7."""
    history = History()
    history.seal(0, b"a")
    history.watch.on_metadata(placement, placement_path("b4"), None, b"")
    history.propose(version(starts={0: "143"}), Compare(placement_path("b4"), 7))
    for name in ("b1", "b2"):
        history.store(name, 0, b"a")
        history.heard(name, 0, 0)
    history.confirm(0)  # b2 would be out of it, and b3 and b4 do not have it.


def i16_forget() -> None:
    history = History()
    history.seal(0, b"a")
    for name in ("b1", "b2"):
        history.store(name, 0, b"a")
        history.heard(name, 0, 0)
    for names in ("143", "123"):  # b2 loses its seat and comes back.
        history.publish(version(starts={0: names}))
        ensemble = tuple(member(f"b{digit}") for digit in names)
        sends = [
            Send(m, AddRequest(KEY, 5, 9, False), ("add", 9, 0), ((b"", frame(0, b"a")),)) for m in ensemble
        ]
        history.writer.changes.metadata = version(starts={0: names})
        history.watch.on_step("w", history.writer, Tick(0), [EnsembleChanged(0, ensemble), *sends])
    history.confirm(0)


def i16_resend() -> None:
    history = History()
    history.seal(0, b"a")
    history.publish(version(starts={0: "143"}))
    ensemble = tuple(member(f"b{digit}") for digit in "143")
    history.watch.on_step("w", history.writer, Tick(0), [EnsembleChanged(0, ensemble)])


def proposing(*acts: str) -> None:
    """The writer gives the seat of b2 to b4 while this happens to b4, to its change, or to the ledger."""
    history = History()
    for act in acts:
        if act == "read-only":
            history.writer.changes.bookies = tuple(BookieInfo(member(f"b{n}"), n != 4) for n in (1, 2, 3, 4))
        elif act == "propose":
            history.propose(version(starts={0: "143"}))
        elif act == "propose another":
            history.propose(version(starts={0: "124"}))
        elif act == "unknown":
            history.watch.on_step("w", history.writer, TransactUnknown(0, "cas"), [])
        elif act == "not done":
            history.watch.on_step("w", history.writer, Transacted(0, "cas", False, history.revision), [])
        else:
            assert act == "another version"
            history.publish(version(starts={0: "321"}))


def i18_gone() -> None:
    history = History(version(), version(CLOSED, -1, 0))
    history.publish(None)
    history.publish(version())


def i19_restart() -> None:
    history = History()
    history.fence("b1")
    history.watch.on_stopped("b1")
    history.start("b1", 1)  # Its table comes back without the row.
    history.step("b1", Tick(0))


def i21() -> None:
    history = History()
    history.seal(0, b"a")
    history.fence("b1")
    history.store("b1", 0, b"a")


def i22() -> None:
    history = History()
    history.seal(0, b"a")
    history.fence("b1")
    history.read("b1", ReadAnswer(Status.OK, LEDGER, [(0, 9)]), fence=True)
    history.take("b1", 0, b"a")


def replaced_copy(chosen: bytes, *, by_operator: bool) -> None:
    """b1 told a recovery that it has no entry 0, repair brought a copy, and another one takes its place (P11.5)."""
    history = History()
    history.seal(0, b"a")
    history.fence("b1")
    history.read("b1", ReadAnswer(Status.OK, LEDGER, [(0, 9)]), fence=True)
    history.store("b1", 0, b"a", is_recovery=True)
    history.requests += 1
    request = ReplaceRequest(member("b1").incarnation, LEDGER, 0, 7)
    history.step("b1", RequestReceived(0, 1, history.requests, request), ReadDecisions(3, LEDGER, 0))
    if by_operator:
        history.step("b1", DecisionsRead(0, 3, ()), ReadEntries(4, LEDGER, 0, 0, 1000))
    history.step(
        "b1", EntriesRead(0, 4, frame(0, b"a"), []), StoreFrame(history.token("b1"), frame(0, chosen))
    )


def i31() -> None:
    history = History().acked(b"a")
    history.read("b1", ReadAnswer(Status.OK, LEDGER, [(0, 9)]))


def i31_unknown_ledger() -> None:
    History().acked(b"a").read("b1", ReadAnswer(Status.NO_SUCH_LEDGER, LEDGER))


def restarted(last_token: int) -> History:
    """b1 acknowledged entry 0 (record 1); entry 1 (record 2) was queued, and maybe written, when it crashed."""
    history = History().acked(b"a")
    history.seal(1, b"b")
    history.take("b1", 1, b"b")
    history.watch.on_stopped("b1")
    history.start("b1", last_token)
    return history


def i31_restarted(last_token: int) -> None:
    """Durable before: it is held, whatever the start read."""
    restarted(last_token).read("b1", ReadAnswer(Status.OK, LEDGER, [(0, 0)]))


def i32_lac() -> None:
    history = History().acked(b"a")
    history.cores["b1"].table.create(LEDGER).in_limbo = 1
    history.ask("b1", FenceRequest(member("b1").incarnation, LEDGER, KEY), FenceAnswer(Status.OK, LEDGER, 0))


def i32_ends() -> None:
    history = History().acked(b"a")
    history.step("b3", Tick(0), JournalAppend(1, RecordKind.LIMBO, LEDGER, LIMBO_ENDS))


def unclean(*, fenced: bool = True, limbo: bool = True, synced: bool = True) -> History:
    """b1 held an entry and comes back with nothing; what it does before it serves is in the parameters."""
    history = History().acked(b"a")
    history.watch.on_stopped("b1")
    history.start("b1", 0, may_have_lost=True)
    row = history.cores["b1"].table.create(LEDGER)
    row.is_fenced, row.in_limbo = int(fenced), int(limbo)
    kinds = [RecordKind.FENCE] * fenced + [RecordKind.LIMBO] * limbo
    history.step("b1", Tick(0), *(JournalAppend(history.token("b1"), kind, LEDGER, b"\1") for kind in kinds))
    if synced:
        history.sync("b1")
    return history


def serve(history: History) -> None:
    """The first request that anybody is answered."""
    history.ask("b1", LacRequest(member("b1").incarnation, LEDGER), LacAnswer(Status.IN_LIMBO, LEDGER))


def served_by_the_next_start(history: History, *, keeps: bool = True) -> None:
    """b1 crashes behind its unclean start before anybody was served, and comes back by a clean one. keeps: with what it
    had of the ledger."""
    before = history.cores["b1"].table.get(LEDGER)
    history.watch.on_stopped("b1")
    history.start("b1", history.tokens["b1"])
    if before is not None and keeps:
        row = history.cores["b1"].table.create(LEDGER)
        row.is_fenced, row.in_limbo = before.is_fenced, before.in_limbo
        history.watch.on_found("b1", LEDGER, bool(row.is_fenced), [])
    serve(history)


def fence_forgotten(*, is_deleted: bool) -> History:
    """b1 held nothing of a closed ledger but its fence, which is gone with the newest file of its journal."""
    history = History()
    history.fence("b1")
    history.publish(version(CLOSED, -1, 0))
    if is_deleted:
        history.publish(None)
    history.watch.on_stopped("b1")
    history.start("b1", 0, may_have_lost=True)
    return history


def i32_closed_meanwhile() -> None:
    history = unclean(fenced=False, limbo=False)
    history.publish(version(CLOSED, 0, 1))
    serve(history)


def taken_out_while_it_starts(*, has_trace: bool = False) -> History:
    """b1 starts uncleanly, loses its seat, gets one again, and has a row that was never in limbo."""
    history = History()
    history.watch.on_stopped("b1")
    history.start("b1", 0, may_have_lost=True)
    if has_trace:
        history.watch.on_found("b1", LEDGER, False, [])
    history.publish(version(starts={0: "234"}))
    history.publish(version(starts={0: "123"}))
    history.cores["b1"].table.create(LEDGER)
    return history


def i19_forgotten() -> None:
    history = History()
    history.fence("b1")
    history.publish(version(CLOSED, -1, 0))
    history.watch.on_stopped("b1")
    history.start("b1", 0, may_have_lost=True)
    serve(history)  # It was closed before, so that limbo is not owed, but its fence was told.


def i35_gone() -> None:
    history = History().acked(b"a")
    history.publish(version(CLOSED, 0, 1))
    history.watch.ghost.ledger(LEDGER).read_healed.add(0)
    empty: dict[str, Any] = {"b1": MemoryBookieStorage(Survivors(member("b1").incarnation))}
    history.watch.at_end(empty, {LEDGER})


def i56() -> None:
    """b2 gives another entry 0 than was sent: of a compaction that mixed them up, say."""
    history = History().acked(b"a")
    history.publish(version(CLOSED, 0, 1))
    history.watch.ghost.ledger(LEDGER).read_healed.add(0)
    storages: dict[str, Any] = {}
    for name, payload in (("b1", b"a"), ("b2", b"b"), ("b3", b"a")):
        storages[name] = MemoryBookieStorage(Survivors(member(name).incarnation))
        storages[name].put_frame(frame(0, payload))
    history.watch.at_end(storages, {LEDGER})


def i33() -> None:
    history = History()
    history.ask("b1", FenceRequest(bytes(16), LEDGER, KEY), FenceAnswer(Status.OK, LEDGER))


def i34_dropped() -> None:
    history = History()
    history.seal(0, b"a")
    history.cores["b1"].table.create(LEDGER).is_dropped = 1
    history.store("b1", 0, b"a")


def dropped_in_its_grace(at_the_end: LedgerMetadata | None = None) -> None:
    history = History(version(), at_the_end or version(CLOSED, -1, 0))
    history.watch.on_metadata(3, tombstone_path(LEDGER), None, b"as it stood")
    history.publish(None)
    history.watch.ghost.ledger(LEDGER).stable[0] = history.watch.ghost.bookies["b1"].bit
    history.step("b1", Tick(0), JournalAppend(1, RecordKind.DROP, LEDGER, b""))


def dropped(*versions: LedgerMetadata, sign: str = "") -> None:
    """b1 drops an entry of the ledger as things stand. sign: another key that stands beside its metadata."""
    history = History(*(versions or (version(),)))
    history.watch.ghost.ledger(LEDGER).stable[0] = history.watch.ghost.bookies["b1"].bit
    if sign:
        history.watch.on_metadata(2, sign, None, b"b1")
    history.step("b1", Tick(0), JournalAppend(1, RecordKind.DROP, LEDGER, b""))


def collected(*steps: str) -> None:
    """b1 drops an entry of a closed ledger that names others, behind these steps: it begins to ask, a check finds what
    marks stand, a repair marks it."""
    history = History(version(), version(CLOSED, -1, 0, starts={0: "234"}))
    history.watch.ghost.ledger(LEDGER).stable[0] = history.watch.ghost.bookies["b1"].bit
    catalog, mark = Catalog(), repair_mark_path(LEDGER)
    core = MetadataMember(
        catalog, log=log_of_one(), now_ns=0, cluster_token=bytes(16), chance=random.Random(0)
    )
    catalog.apply(StartSession(1, 1_000, "b1"), 1, 1)
    check = MetadataRequest(1, 2, 1, Txn([Compare(mark, ABSENT)], []))
    for step in steps:
        if step == "begins":
            history.step("b1", CollectionBegun(0, [LEDGER]))
        elif step == "checks":
            for event in (MetadataRequestReceived(0, 1, check), MetadataTurnEnded(0), MetadataDurable(0, 2)):
                history.watch.on_step("m", core, event, core.step(event))
        else:
            catalog.apply(Run(1, 1, 1, Txn([], [Put(mark, b"b1")])), 2, 1)
            history.watch.on_metadata(2, mark, None, b"b1")
    history.step("b1", Tick(0), JournalAppend(1, RecordKind.DROP, LEDGER, b""))


def i36() -> None:
    history = History().acked(b"a")
    history.publish(version(CLOSED, 0, 1))
    history.publish(version(CLOSED, 0, 1, starts={0: "143"}))  # b4 was never given the entry.


def repaired(*acts: str) -> None:
    """b4 is copied entry 0 for the seat of b2, which is then given to it, and something happens to b4 on the way."""
    history = History().acked(b"a")
    history.publish(version(CLOSED, 0, 1))
    mark = repair_mark_path(LEDGER)
    for act in acts:
        if act == "mark":
            history.watch.on_metadata(history.revision + 1, mark, None, b"b4")
            history.revision += 1
        elif act == "unmark":
            history.watch.on_metadata(history.revision + 1, mark, b"b4", None)
            history.revision += 1
        elif act == "copy":
            history.store("b4", 0, b"a", is_recovery=True)
        elif act == "drop":
            history.step("b4", Tick(0), JournalAppend(history.token("b4"), RecordKind.DROP, LEDGER, b""))
        elif act == "turn bad":
            history.watch.on_damaged("b4", LEDGER, 0)
        else:
            assert act == "destroy"
            history.watch.on_stopped("b4")
            history.start("b4", history.tokens.get("b4", 0), may_have_lost=True)
    history.publish(version(CLOSED, 0, 1, starts={0: "143"}))


def i39() -> None:
    history = History()
    history.seal(0, b"a")
    history.watch.on_step("w", history.writer, Tick(0), [AddFailed(LedgerFenced("fenced"))])
    for name in ("b1", "b2"):
        history.store(name, 0, b"a")
        history.heard(name, 0, 0)
    history.confirm(0)


def i40() -> None:
    history = History()
    history.seal(0, b"a")
    history.take("b1", 0, b"a")
    history.answer_add("b1", 0, 0)


def held_again(*acts: str) -> History:
    """b1 drops a ledger, is asked to hold its entry 0 again, finds it, and says OK; its store takes nothing."""
    history = History(version(), version(CLOSED, -1, 0, starts={0: "234"}))
    history.watch.ghost.ledger(LEDGER).stable[0] = history.watch.ghost.bookies["b1"].bit
    for act in acts:
        if act == "drop":
            history.step("b1", Tick(0), JournalAppend(history.token("b1"), RecordKind.DROP, LEDGER, b""))
        elif act == "carry it out":
            history.step("b1", Tick(0), DropEntries(LEDGER))
        elif act == "hold again":
            record = JournalAppend(history.token("b1"), RecordKind.LIMBO, LEDGER, HELD_AGAIN)
            history.step("b1", Tick(0), record)
        elif act == "sync":
            history.sync("b1")
        elif act == "turn bad":
            history.watch.on_damaged("b1", LEDGER, 0)
        else:
            assert act == "start"
            history.watch.on_stopped("b1")
            history.start("b1", history.tokens["b1"] - 1)
    history.requests += 1
    header = FrameHeader(LEDGER, 0, 0, 1, 1, NO_ENTRY, 0, False, KEY)
    request = AddRequest(member("b1").incarnation, 5, 1, True)
    history.step("b1", RequestReceived(0, 1, history.requests, request, [(header, memoryview(b""))]))
    history.answer_add("b1", 0, 0, is_recovery=True)
    return history


def recovering(*versions: LedgerMetadata) -> Recovering:
    base = version(RECOVERING)
    return Recovering(History(*(versions or (version(), base))), base)


def i23() -> None:
    recovering().fenced("b1", "b1").read("b1")  # Twice the same bookie covers nothing.


def i24() -> None:
    recovering().fenced("b1", "b2").read("b1", absent=0).read("b2").decide(-1)  # b2 could not tell.


def i25() -> None:
    recovering().fenced("b1", "b2").read("b3", found=frame(0, b"a")).read("b1", absent=0).read(
        "b2", absent=0
    ).decide(-1)


def i26() -> None:
    recovering().fenced("b1", "b2").read("b4")


def i27() -> None:
    recovering().fenced("b1", "b2", lac=3).read("b1", first=2)


def i28() -> None:
    history = History()
    Recovering(history, version()).publish(version(RECOVERING, starts={0: "143"}))


def i28_published() -> None:
    History(version(), version(RECOVERING)).publish(version(RECOVERING, starts={0: "143"}))


def i29() -> None:
    history = History(version(), version(RECOVERING))
    history.seal(0, b"a")
    steps = Recovering(history, version(RECOVERING)).fenced("b1", "b2")
    steps.read("b1", found=frame(0, b"a")).read("b1", first=1, absent=1).read("b2", first=1, absent=1).decide(
        0
    )
    steps.publish(version(CLOSED, 0, 1))  # Before anybody confirmed the write-back.


def l2() -> None:
    history = History()
    history.seal(0, b"a")
    history.watch.on_started("w", "client", b"", 0, False)
    history.publish(version(CLOSED, -1, 0))
    history.watch.at_end({}, {LEDGER})


def runs_out(*ticks: tuple[str, int]) -> None:
    """All heals, clocks show so many seconds, and in the last of them the writer on node "w" finds too few bookies."""
    history = History()
    history.watch.on_step("fast", LacWait(version(), -1, 300, 0), Tick(1_000_000_000), [])
    history.watch.on_healed()
    for node, second in ticks:
        core = history.writer if node == "w" else LacWait(version(), -1, 300, 0)
        history.watch.on_step(node, core, Tick(second * 1_000_000_000), [])
    second = ticks[-1][1]
    failed = AddFailed(NotEnoughBookies("none"))
    history.watch.on_step("w", history.writer, Tick(second * 1_000_000_000), [failed])


def l4() -> None:
    steps = recovering(version(), version(RECOVERING), version(CLOSED, -1, 0))
    steps.history.watch.on_started("r", "client", b"", 0, False)
    steps.history.watch.at_end({}, {LEDGER})


def l4_of_a_log() -> None:
    history = History(version(), version(RECOVERING), version(CLOSED, -1, 0))
    history.watch.on_started("r", "client", b"", 0, False)
    new = NewLedger(Quorum(3, 3, 2), bytes(32), 0, Begun.TAKEOVER)
    takeover = LogTakeover("orders", b"r", new, KEY, (), random.Random(0))
    history.watch.on_step("r", takeover, Started(0), takeover.step(Started(0)))
    history.watch.at_end({}, {LEDGER})


def l12() -> None:
    history = History()
    core = LacWait(version(), -1, 300, 0)
    send = Send(member("b1"), LacRequest(KEY, LEDGER), "ask")
    for _ in range(1_000):
        history.watch.on_step("c", core, Tick(5), [send])


def l13() -> None:
    history = History()
    history.writer.in_flight.frames._pending = dict.fromkeys(range(100))  # type: ignore[assignment]
    history.seal(0, b"a")


def l14() -> None:
    history = History()
    for _ in range(2_000):
        history.step("b1", Tick(5))


def l14_of_a_turn() -> None:
    history = History()
    for _ in range(200_000):
        history.watch.on_step("w", history.writer, AddsAnswered(5, []), [])


def acked_then(*versions: LedgerMetadata) -> None:
    history = History().acked(b"a", b"b")
    for one in versions:
        history.publish(one)


BROKEN: dict[str, list[Callable[[], object]]] = {
    "I1": [
        lambda: History(version(CLOSED, None, None)),
        lambda: History(version(last=3, length=3)),
        lambda: History(version(quorum=(3, 2, 3))),
    ],
    "I2": [i2],
    "I3": [lambda: acked_then(version(CLOSED, 0, 1))],
    "I4": [i4],
    "I5": [i5],
    "I6": [lambda: acked_then(version(CLOSED, 2, 3))],
    "I7": [
        lambda: (history := History(), history.seal(0, b"a"), history.take("b1", 0, b"z")),
        lambda: (
            history := History(),
            history.watch.on_sent("w", None, LEDGER, 0, b"z"),
            history.seal(0, b"a"),
        ),
    ],
    "I8": [i8],
    "I9": [lambda: History().acked(b"a").watch.on_read("c", LEDGER, [(0, b"a"), (1, b"b")], False)],
    "I10": [i10],
    "I11": [i11, i11_reader, i11_end],
    "I12": [
        i12_row,
        lambda: History().take("b1", 0, b"a", lac=4),
        lambda: History().acked(b"a").take("b3", 0, b"a", lac=0, is_recovery=True),
        lambda: History().acked(b"a").watch.on_reader_lac("c", LEDGER, 1, False, "handle"),
    ],
    "I13": [
        i13_quorum,
        lambda: (history := History().acked(b"a"), history.confirm(0)),
        lambda: History().seal(1, b"a"),
    ],
    "I14": [i14],
    "I15": [
        lambda: History().propose(version(starts={0: "123", 2: "143"})),
        lambda: History().acked(b"a").propose(version(starts={0: "143"})),
        lambda: acked_then(version(starts={0: "123", 4: "143"})),
        lambda: acked_then(version(starts={0: "143", 2: "124"})),
    ],
    "I16": [i16_resend],
    "I17": [
        lambda: proposing("read-only", "propose"),
        lambda: proposing("propose", "not done", "read-only", "propose"),  # Chosen again behind a no.
        lambda: proposing("propose", "unknown", "read-only", "propose another"),  # Another change.
        lambda: proposing("propose", "unknown", "another version", "read-only", "propose"),
        # That ensembles are distinct and starts rise, and E >= Qw >= Qa, is refused by the decoder, as I1.
    ],
    "I18": [i18_gone, lambda: (h := History(version(), version(RECOVERING)), h.publish(version()))],
    "I19": [
        i19_restart,
        i19_forgotten,
        lambda: serve(fence_forgotten(is_deleted=False)),
        lambda: served_by_the_next_start(fence_forgotten(is_deleted=False)),
        lambda: History().fence("b1", is_durable=False),
    ],
    "I20": [
        lambda: History().ask(
            "b1",
            FenceRequest(member("b1").incarnation, LEDGER, KEY),
            FenceAnswer(Status.NO_SUCH_LEDGER, LEDGER),
        )
    ],
    "I21": [i21],
    "I22": [i22, lambda: replaced_copy(b"a", by_operator=False)],
    "I23": [i23],
    "I24": [i24],
    "I25": [i25],
    "I26": [i26],
    "I27": [i27],
    "I28": [i28, i28_published],
    "I29": [i29],
    "I30": [
        lambda: History().watch.on_step(
            "w",
            History().writer,
            Tick(0),
            [Send(member("b4"), AddRequest(KEY, 5, 1, False), ("add", 1, 0), ((b"", frame(0, b"a")),))],
        )
    ],
    "I31": [i31, i31_unknown_ledger, *[partial(i31_restarted, last_token) for last_token in (0, 1)]],
    "I32": [
        i32_lac,
        i32_ends,
        i32_closed_meanwhile,
        lambda: serve(unclean(fenced=False)),
        lambda: serve(taken_out_while_it_starts(has_trace=True)),
        lambda: serve(unclean(limbo=False)),
        lambda: serve(unclean(synced=False)),
        lambda: served_by_the_next_start(unclean(limbo=False)),  # A clean start pays no debt.
        lambda: served_by_the_next_start(unclean(), keeps=False),
    ],
    "I33": [i33],
    "I34": [i34_dropped, lambda: History().acked(b"a").publish(None)],
    "I35": [
        dropped,  # Open.
        dropped_in_its_grace,
        lambda: dropped(version(CLOSED, -1, 0, starts={0: "234"}), sign=repair_mark_path(LEDGER)),
        lambda: collected("begins", "is marked", "checks"),
        lambda: collected("checks", "begins", "is marked"),  # A check of another round.
        lambda: dropped(version(CLOSED, -1, 0)),  # Closed, and names the bookie.
        lambda: dropped(version(RECOVERING, starts={0: "234"})),  # Not closed, whomever it names.
        i35_gone,
    ],
    "I36": [
        i36,
        lambda: repaired("mark"),  # Nothing was copied.
        lambda: repaired("mark", "destroy"),
        lambda: repaired("copy", "destroy", "mark"),  # What it held before this repair is not there any more.
        lambda: repaired("mark", "copy", "unmark", "destroy", "mark"),  # A repair that gave up; the next one.
        lambda: repaired("copy", "mark", "destroy"),  # Nobody heard under this mark that it is there.
        lambda: repaired(
            "mark", "copy", "turn bad", "unmark", "drop"
        ),  # Its holder gave it up; no fault did.
    ],
    "I37": [lambda: acked_then(version(CLOSED, 1, 7))],
    "I38": [
        lambda: (
            h := History(version(), version(CLOSED, -1, 0)),
            h.watch.on_read("c", LEDGER, [(0, b"a")], False),
        )
    ],
    "I39": [i39, lambda: History().acked(b"a").watch.on_failed("w", None, LEDGER, 0, LedgerFenced("late"))],
    "I40": [
        i40,
        lambda: held_again("drop", "sync"),
        lambda: held_again("drop", "sync", "carry it out", "hold again", "sync"),  # It was gone by then.
        lambda: held_again("drop", "hold again"),  # The answer must wait for that record.
        lambda: held_again("drop", "sync", "hold again", "start"),  # Which the crash took; its drop stands.
    ],
    "I56": [i56],
    "L1": [lambda: History().watch.at_end({}, {LEDGER})],
    "L2": [l2],
    "L3": [
        lambda: runs_out(("w", 1), ("w", 17)),
        lambda: runs_out(("fast", 2), ("fast", 18), ("w", 500)),  # It came later.
        lambda: runs_out(("fast", 900), ("w", 1), ("fast", 902), ("w", 17)),
    ],
    "L4": [l4, l4_of_a_log],
    "L12": [l12],
    "L13": [l13],
    "L14": [l14, l14_of_a_turn],
}


@pytest.mark.parametrize(
    ("invariant", "number"), [(name, n) for name, made in BROKEN.items() for n in range(len(made))]
)
def test_a_broken_history_is_found(invariant: str, number: int) -> None:
    """S3: every invariant ships with something that makes it fail; this one is named in the parameters."""
    with pytest.raises(Violation) as found:
        BROKEN[invariant][number]()
    assert found.value.invariant == invariant


@pytest.mark.parametrize(
    ("last_token", "is_found", "is_held"), [(1, False, False), (2, False, True), (1, True, True)]
)
def test_what_was_queued_is_held_if_the_start_read_or_found_it(
    last_token: int, is_found: bool, is_held: bool
) -> None:
    """I31: a record that was never acknowledged and is gone may be called absent, also where the journal goes on above
    it (the last group was torn, and damage below the log mark let the start token pass it)."""
    history = restarted(last_token)
    if is_found:  # In an entry log, whose journal record did not survive.
        history.watch.on_found("b1", LEDGER, False, [0, 1])
    answer = ReadAnswer(Status.OK, LEDGER, [(1, 9)])
    if is_held:
        with pytest.raises(Violation, match="I31"):
            history.read("b1", answer)
    else:
        history.read("b1", answer)


def found_again(*, is_told: bool, queued: bytes = b"") -> None:
    """b1 started uncleanly, and its entry 0 was in a log whose index it lost. queued: an entry behind it that it takes
    meanwhile. It serves, reads them, and ends its limbo."""
    history = unclean()
    if queued:
        history.seal(1, queued)
        history.store("b2", 1, queued)
        history.store("b3", 1, queued)
    history.publish(version(CLOSED, len(queued), 1 + len(queued)))
    serve(history)
    if queued:
        history.take("b1", 1, queued, is_recovery=True)
    if is_told:
        history.watch.on_found_late("b1", LEDGER, True, range(1 + len(queued)))
    history.step("b1", Tick(0), JournalAppend(history.token("b1"), RecordKind.LIMBO, LEDGER, LIMBO_ENDS))


def test_entries_of_a_lost_index_count_again_when_it_is_made_again() -> None:
    """I32, ST38: limbo ends where the entries came back by their log; one that is only in memory does not count."""
    found_again(is_told=True)
    with pytest.raises(Violation, match="I32"):
        found_again(is_told=False)
    with pytest.raises(Violation, match="without entry 1"):
        found_again(is_told=True, queued=b"b")


def test_what_is_rightly_done_breaks_nothing() -> None:
    """L3, I32, I35, I17, I40, I36, I11: served from durable limbo, dropped where metadata names others, a change that
    is sent again, a drop taken back, a copy destroyed behind its acknowledgement, a fresh handle that hears less."""
    serve(unclean())
    served_by_the_next_start(unclean())
    serve(fence_forgotten(is_deleted=True))
    served_by_the_next_start(fence_forgotten(is_deleted=True))
    serve(taken_out_while_it_starts())
    history = History(version(starts={0: "123"}), version(CLOSED, -1, 0, starts={0: "234"}))
    history.step("b1", Tick(0), JournalAppend(1, RecordKind.DROP, LEDGER, b""))
    collected("begins", "checks", "is marked")  # While the answer is on its way.
    dropped_in_its_grace(version(CLOSED, -1, 0, starts={0: "234"}))  # The same; it names others.
    history = History(version(), version(CLOSED, -1, 0))
    history.publish(None)
    history.step("b1", Tick(0), JournalAppend(1, RecordKind.DROP, LEDGER, b""))
    history = History(version(), version(CLOSED, -1, 0))
    history.publish(None)
    history.watch.on_metadata(9, tombstone_path(LEDGER), b"as it stood", None)
    history.revision = 8
    history.publish(version(CLOSED, -1, 0))  # Brought back, in the transaction that took its tombstone.
    runs_out(("w", 1), ("w", 15))
    runs_out(("fast", 1), ("w", 99), ("w", 113))  # Another clock than those that were heard before.
    proposing("propose", "unknown", "read-only", "propose")  # Sent again: it is chosen already.
    held_again("drop", "hold again", "sync")  # Taken back before it was carried out: nothing went.
    held_again("drop", "sync", "hold again", "sync")
    repaired("mark", "copy")
    repaired("mark", "copy", "destroy")  # While its seat was on its way to the metadata.
    repaired("mark", "copy", "destroy", "copy")
    repaired("copy", "destroy", "mark", "copy")
    history = History().acked(b"a", b"b")
    for handle, lac in (("old", 1), ("fresh", 0), ("fresh", 1)):
        history.watch.on_reader_lac("c", LEDGER, lac, False, handle)


def test_a_copy_that_an_operator_has_chosen_is_no_normal_add() -> None:
    """I22, P11.5: it takes the place of a copy that repair has brought behind the negative."""
    replaced_copy(b"a", by_operator=True)


def test_a_change_under_a_placement_that_has_changed_never_comes_to_pass() -> None:
    """I14, P10.6: "a revision does not come back": also where its outcome was never told."""
    with pytest.raises(Violation, match=r"^I14: "):
        i14()
    i14(placement=8)


def test_a_change_that_never_comes_to_pass_may_name_whoever_it_named() -> None:
    """I17, P10.6 (seed 70667869): refused, and sent again before the writer could read that the placement changed."""

    def propose_read_only(placement: int) -> None:
        history = History()
        history.watch.on_metadata(placement, placement_path("b4"), None, b"")
        history.writer.changes.bookies = tuple(BookieInfo(member(f"b{n}"), n != 4) for n in (1, 2, 3, 4))
        history.propose(version(starts={0: "143"}), Compare(placement_path("b4"), 7))

    with pytest.raises(Violation, match=r"^I17: "):
        propose_read_only(placement=7)
    propose_read_only(placement=8)


@pytest.mark.parametrize("maker", ["creation", "change", "next ledger of a log"])
def test_an_ensemble_in_too_few_racks_is_found(maker: str) -> None:
    """RP40: by a client that asks for two racks strictly; and for a ledger that it only closes it is as it is."""
    key, wanted = ledger_key_path(LEDGER), Placement("rack", is_strict=True)
    core: Any = SimpleNamespace(placement=wanted)
    if maker == "change":
        core = History().writer
        core.options = dataclasses.replace(core.options, placement=wanted)
    elif maker == "next ledger of a log":
        core = SimpleNamespace(new=SimpleNamespace(placement=wanted))

    def named(third: str, state: LedgerState = LedgerState.OPEN, revision: int = 0) -> None:
        strict = StrictPlacements(Sometimes())
        strict.locations |= {"b1": "z/1", "b2": "z/1", "b3": third}
        ends = (0, 1) if state == CLOSED else (None, None)
        put = Put(key, encode_ledger_metadata(version(state, *ends)))
        revision = 4 if maker == "change" else revision
        strict.look(core, [Transact("cas", [Compare(key, revision)], [put])])

    named("z/2")
    named("z/1", CLOSED)
    with pytest.raises(Violation, match=r"^RP40: ledger 1: a write set stands in \['z/1', 'z/1', 'z/1'\]"):
        named("z/1")
    if maker != "change":
        named("z/1", revision=4)
    wanted_less = Placement("rack")
    core = SimpleNamespace(placement=wanted_less)
    named("z/1")


def test_a_confirmation_of_a_lost_seat_counts_no_more() -> None:
    """I16, seen through I13: b2 confirmed, lost its seat and came back; without it the entry has one confirmation."""
    with pytest.raises(Violation, match=r"^I13: .*without 2"):
        i16_forget()


def test_a_drop_that_is_taken_back_makes_no_copy_better() -> None:
    """I40, I4: an unreadable copy stays one; only what is stored anew is good."""
    ghost = held_again("drop", "turn bad", "hold again", "sync").watch.ghost
    assert ghost.ledger(LEDGER).damaged[0] == ghost.bookies["b1"].bit


def denied(*, asks_before: bool = False, asks: bool = True, doubt: str = "") -> None:
    """b1 denies entries to a recovery; asks_before, asks: a question is sent before the request comes, or behind it."""
    history = History()
    history.fence("b1")
    if asks_before:
        history.step("b1", Tick(0), AskMetadata(DENIAL))
    request = ReadRequest(member("b1").incarnation, LEDGER, 0, 9, 99, True)
    history.step("b1", RequestReceived(0, 1, 99, request), *([AskMetadata(DENIAL)] if asks else []))
    if asks_before or asks:
        history.step("b1", MetadataTold(0, DENIAL, TOLD, doubt))
    history.step("b1", Tick(0), Reply(1, 99, ReadAnswer(Status.OK, LEDGER, [(0, 9)])))


def test_what_is_denied_without_a_question_is_found() -> None:
    """P10.5: "behind a question to metadata that was sent when its request had come"."""
    denied()
    for broken in (
        partial(denied, asks=False),
        partial(denied, asks=False, asks_before=True),
        partial(denied, doubt="it is older"),
    ):
        with pytest.raises(Violation, match="whether metadata is an older copy") as found:
            broken()
        assert found.value.invariant == "P10.5"


def test_every_checker_says_its_invariant_and_every_invariant_has_one() -> None:
    """I1 to I40, I56 and the liveness properties of this issue: each is named by a docstring of a checker."""
    folder = Path(str(invariants.__file__)).parent
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    named = set(re.findall(r"^\s*(?:\"\"\")?([IL]\d+): ", text, re.MULTILINE))
    wanted = {f"I{number}" for number in range(1, 41)} | {"I56", "L1", "L2", "L3", "L4", "L12", "L13", "L14"}
    assert wanted <= named
    assert set(BROKEN) == wanted
