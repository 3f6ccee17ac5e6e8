"""Small worlds of the production core, explored whole: every order of deliveries, failures and clients' wishes.

One ledger, a writer, some recoverers, two or three bookies and a register for the metadata. The cores are the ones
that ship (Writer, Recovery, Bookie on the Python ledger table); the host around them is a few lines here, which do
what the real one may do, in every order: carry a request or let it fail, also one that is still on its way and comes
later; sync a journal now or later; stop a bookie for good. Time stands still at 0 and every pause has the length 0,
so that a time-out is a step like another; how many of them there may be is the bound that makes a world finite.

A machine is stepped once for each (state, event) and remembered, since equal states do equal things: a world is a
tuple of numbers of machine states and two sets of message numbers, and most steps of a world are lookups.

    world = (register, writer, recoverers..., bookies..., requests open, messages in flight, failures, dead bookies)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from embedbk.codec.frame import Frame, decode_frame_header, frame_of, split
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from embedbk.codec.messages import AddAnswer, FenceAnswer, ReadAnswer, Status
from embedbk.codec.packer_twin import TwinPacker
from embedbk.config import Quorum
from embedbk.core.bookie import Bookie
from embedbk.core.ledger_table import LedgerTable
from embedbk.core.machine import Machine
from embedbk.core.recovery import Phase, Recovery, RecoveryOptions
from embedbk.core.vocabulary import (
    Answered,
    BookieInfo,
    CloseRequested,
    EntriesRead,
    FrameSealed,
    JournalDurable,
    KeyRead,
    MetadataFailed,
    ReadEntries,
    ReadKey,
    Reply,
    RequestReceived,
    Send,
    SendFailed,
    Started,
    StoreFrame,
    Tick,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.core.writer import Writer, WriterOptions, WriterState
from embedbk.ids import NO_ENTRY, Member

__all__ = ["Bounds", "SmallWorld"]

LEDGER = 1
KEY = bytes(16)
NEVER_NS = 1 << 60
WRITER_TIMES = WriterOptions(add_timeout_ns=NEVER_NS, retry_ns=0, avoid_ns=0, explicit_lac_ns=NEVER_NS)
RECOVERY_TIMES = RecoveryOptions(
    ask_timeout_ns=NEVER_NS,
    retry_ns=0,
    patience_ns=NEVER_NS,
    write_timeout_ns=NEVER_NS,
    avoid_ns=0,
    read_entries=1,
)

State = tuple[int, ...]


@dataclass(frozen=True)
class Bounds:
    """What makes a world small."""

    bookies: int
    ack_quorum: int
    entries: int
    recoverers: int
    failures: int = (
        0  # Requests that fail for their client, though they may have been, or will be, carried out.
    )
    deaths: int = 0  # Bookies that stop for good.
    lazy_sync: bool = False  # A journal syncs in a step of its own; else before the step ends.
    closes: bool = True  # The writer may close.
    write_quorum: int = 2


class _First:
    """Chance that takes the first. With one bookie outside the ensemble there is no choice anyway."""

    def sample(self, population: Sequence[Member], k: int) -> list[Member]:
        return list(population[:k])

    def getrandbits(self, k: int, /) -> int:
        return 0


class _Storing(NamedTuple):
    """A bookie with its disk. told_fence: a positive answer to a fence, or any to a recovery read, has left it."""

    core: Bookie
    entries: dict[int, bytes]
    stable: frozenset[int]
    told_fence: bool


class _Register(NamedTuple):
    revision: int
    value: bytes


class _Request(NamedTuple):
    client: int
    effect: Any  # Send, Transact or ReadKey.
    bookie: int  # -1: to the metadata.


class _Answer(NamedTuple):
    request: int
    event: Any


class SmallWorld:
    """The specification (initial, steps, broken) of one bounded world, for `tests.spec.explore`."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.members = [
            Member(f"b{number}", bytes(15) + bytes([number])) for number in range(1, bounds.bookies + 1)
        ]
        self.infos = tuple(BookieInfo(member, True) for member in self.members)
        packer = TwinPacker(LEDGER)
        self.frames: list[Frame] = []
        for entry_id in range(bounds.entries):
            packer.append(b"entry %d" % entry_id)
            frame = packer.seal()
            assert frame is not None
            self.frames.append(frame_of(memoryview(bytes(frame.body)), LEDGER))
        self.sent = {frame.first_entry: bytes(frame.body) for frame in self.frames}
        self.quorum = Quorum(bounds.write_quorum, bounds.write_quorum, bounds.ack_quorum)
        self.states: list[Any] = []  # Of machines and of the register, each distinct one once.
        self._state_numbers: dict[Any, int] = {}
        self.messages: list[_Request | _Answer] = []
        self._message_numbers: dict[Any, int] = {}
        self._client_steps: dict[Any, tuple[int, list[Any]]] = {}
        self._bookie_steps: dict[Any, tuple[int, list[tuple[int, Any]], str | None]] = {}
        self._names: dict[int, str] = {}
        self._verdicts: dict[State, str | None] = {}
        self._problem: dict[State, str] = {}  # States that a forbidden step led to.
        self.machine_steps = 0
        self._clients = 1 + bounds.recoverers
        self._first_bookie = 1 + self._clients
        self._open = self._first_bookie + bounds.bookies

    # States as numbers.

    def _number(self, state: Any) -> int:
        if isinstance(state, Machine):
            key = state.digest()
        elif isinstance(state, _Storing):
            key = (state.core.digest(), state.core.table.digest(), tuple(sorted(state.entries.items())))  # type: ignore[attr-defined]
            key += (state.stable, state.told_fence)
        else:
            key = state
        number = self._state_numbers.get(key)
        if number is None:
            number = self._state_numbers[key] = len(self.states)
            self.states.append(state)
        return number

    def _message(self, message: _Request | _Answer, key: Any) -> int:
        number = self._message_numbers.get(key)
        if number is None:
            number = self._message_numbers[key] = len(self.messages)
            self.messages.append(message)
        return number

    def _name(self, number: int) -> str:
        """What the delivery of this message is called; made once, most are never looked at."""
        name = self._names.get(number)
        if name is None:
            message = self.messages[number]
            if isinstance(message, _Answer):
                request = self.messages[message.request]
                assert isinstance(request, _Request)
                name = f"client {request.client} hears {_words(message.event)}"
            else:
                taker = self.members[message.bookie].bookie_id if message.bookie >= 0 else "metadata"
                name = f"{taker} takes {_words(message.effect)} of client {message.client}"
            self._names[number] = name
        return name

    def initial(self) -> State:
        fragment = Fragment(0, 0, tuple(self.members[: self.quorum.ensemble_size]))
        metadata = LedgerMetadata(
            METADATA_VERSION, LEDGER, self.quorum.ensemble_size, self.quorum.write_quorum,
            self.quorum.ack_quorum, LedgerState.OPEN, None, None, b"", 0, {}, (fragment,),
        )  # fmt: skip
        register = self._number(_Register(1, encode_ledger_metadata(metadata)))
        writer = self._number(Writer(metadata, 1, KEY, 1, self.infos, _First(), WRITER_TIMES))
        nobody = self._number(None)
        bookies = [
            self._number(_Storing(Bookie(member.incarnation, LedgerTable(), 1), {}, frozenset(), False))
            for member in self.members
        ]
        return (register, writer, *[nobody] * self.bounds.recoverers, *bookies, 0, 0, 0, 0)

    # Steps of a world.

    def steps(self, state: State) -> list[tuple[str, State]]:
        steps: list[tuple[str, State]] = []
        opened, flight, failures, dead = state[self._open :]
        writer: Writer = self.states[state[1]]
        if writer.state is WriterState.OPEN and writer.lap + 1 < len(self.frames):
            event = FrameSealed(0, self.frames[writer.lap + 1])
            steps.append((f"writer adds {writer.lap + 1}", self._tell(state, 0, ("add",), event)))
        if self.bounds.closes and writer.state in (WriterState.OPEN, WriterState.FAILED):
            steps.append(("writer closes", self._tell(state, 0, ("close",), CloseRequested(0))))
        # Recoverers are alike: it is enough that they start in this order.
        waiting = [client for client in range(1, self._clients) if self.states[state[1 + client]] is None]
        steps += [(f"recoverer {client} starts", self._start(state, client)) for client in waiting[:1]]
        for client in range(self._clients):
            core: Machine | None = self.states[state[1 + client]]
            if core is not None and core.deadline_ns is not None and core.deadline_ns <= 0:
                steps.append((f"client {client} ticks", self._tell(state, client, ("tick",), Tick(0))))
        steps += [self._deliver(state, number) for number in _bits(flight)]
        for number in _bits(opened):
            request = self.messages[number]
            assert isinstance(request, _Request)
            is_dead = request.bookie >= 0 and dead >> request.bookie & 1
            if is_dead or failures < self.bounds.failures:
                steps.append(self._fail(state, number, request, failures + (not is_dead)))
        for bookie in range(self.bounds.bookies):
            if dead >> bookie & 1:
                continue
            if dead.bit_count() < self.bounds.deaths:
                steps.append((f"{self.members[bookie].bookie_id} dies", self._kill(state, bookie)))
            storing: _Storing = self.states[state[self._first_bookie + bookie]]
            if storing.core.next_token - 1 > storing.core.durable:
                steps.append(self._bookie_step(state, bookie, None))
        return steps

    def _tell(self, state: State, client: int, key: Any, event: Any) -> State:
        """The world after a client's machine took an event; what it asks for is under way."""
        before = state[1 + client]
        if self.states[before] is None:
            return state
        known = self._client_steps.get((before, key))
        if known is None:
            core = self.states[before].copy()
            self.machine_steps += 1
            effects = [effect for effect in core.step(event) if isinstance(effect, Send | Transact | ReadKey)]
            known = self._client_steps[before, key] = (self._number(core), effects)
        after, effects = known
        changed = list(state)
        changed[1 + client] = after
        for effect in effects:
            bookie = self.members.index(effect.member) if isinstance(effect, Send) else -1
            # The same request again is another one, so that an answer to the first is none to the second: it comes
            # after a failure, whose number tells it apart, or beside the first (copy).
            copy, bit = 0, 0
            while not bit or (changed[self._open] | changed[self._open + 1]) & bit:
                name = (client, id_of(effect), state[self._open + 2], copy)
                bit = 1 << self._message(_Request(client, effect, bookie), name)
                copy += 1
            changed[self._open] |= bit
            if bookie < 0 or not changed[self._open + 3] >> bookie & 1:
                changed[self._open + 1] |= bit
        if self._is_over(after):
            self._hang_up(changed, client)
        return tuple(changed)

    def _is_over(self, number: int) -> bool:
        core = self.states[number]
        return core.state is WriterState.ENDED if isinstance(core, Writer) else core.phase is Phase.ENDED

    def _hang_up(self, changed: list[int], client: int) -> None:
        """A handle that is over waits for nothing; what it has sent may still arrive."""
        for number in _bits(changed[self._open]):
            request = self.messages[number]
            assert isinstance(request, _Request)
            if request.client == client:
                changed[self._open] &= ~(1 << number)
                self._drop_answers(changed, number)

    def _drop_answers(self, changed: list[int], request: int) -> None:
        for number in _bits(changed[self._open + 1]):
            answer = self.messages[number]
            if isinstance(answer, _Answer) and answer.request == request:
                changed[self._open + 1] &= ~(1 << number)

    def _start(self, state: State, client: int) -> State:
        register: _Register = self.states[state[0]]
        metadata = decode_ledger_metadata(register.value)
        core = Recovery(metadata, register.revision, KEY, client + 1, self.infos, _First(), RECOVERY_TIMES)
        changed = list(state)
        changed[1 + client] = self._number(core)
        return self._tell(tuple(changed), client, ("start",), Started(0))

    def _deliver(self, state: State, number: int) -> tuple[str, State]:
        message = self.messages[number]
        changed = list(state)
        changed[self._open + 1] &= ~(1 << number)
        if isinstance(message, _Answer):
            request = self.messages[message.request]
            assert isinstance(request, _Request)
            changed[self._open] &= ~(1 << message.request)
            after = self._tell(tuple(changed), request.client, number, message.event)
            return self._name(number), after
        if message.bookie >= 0:
            return self._bookie_step(tuple(changed), message.bookie, number)
        return self._commit(tuple(changed), number, message)

    def _fail(self, state: State, number: int, request: _Request, failures: int) -> tuple[str, State]:
        """The client is told that no answer will come; the request may be on its way still."""
        changed = list(state)
        changed[self._open] &= ~(1 << number)
        changed[self._open + 2] = failures
        self._drop_answers(changed, number)
        effect = request.effect
        event: Any
        if isinstance(effect, Send):
            event = SendFailed(0, effect.tag, effect.member, "lost")
        elif isinstance(effect, Transact):
            event = TransactUnknown(0, effect.tag)
        else:
            event = MetadataFailed(0, effect.tag, "lost")
        after = self._tell(tuple(changed), request.client, ("failed", number), event)
        return f"in vain waits {self._name(number)}", after

    def _kill(self, state: State, bookie: int) -> State:
        changed = list(state)
        changed[self._open + 3] |= 1 << bookie
        for number in _bits(changed[self._open + 1]):
            message = self.messages[number]
            request = self.messages[message.request] if isinstance(message, _Answer) else message
            assert isinstance(request, _Request)
            if request.bookie == bookie:
                changed[self._open + 1] &= ~(1 << number)
        return tuple(changed)

    def _commit(self, state: State, number: int, request: _Request) -> tuple[str, State]:
        register: _Register = self.states[state[0]]
        effect = request.effect
        changed, problem = list(state), None
        event: Any
        if isinstance(effect, ReadKey):
            event = KeyRead(0, effect.tag, register.value, register.revision)
        else:
            is_done = effect.when[0].revision == register.revision
            if is_done:
                after = _Register(register.revision + 1, effect.then[0].value)
                problem = _forbidden(register.value, after.value)
                changed[0] = self._number(after)
                register = after
            event = Transacted(0, effect.tag, is_done, register.revision)
        if changed[self._open] >> number & 1:
            answer = self._message(_Answer(number, event), ("answer", number, id_of(event)))
            changed[self._open + 1] |= 1 << answer
        result = tuple(changed)
        if problem is not None:
            self._problem[result] = problem
        return self._name(number), result

    # Bookies.

    def _bookie_step(self, state: State, bookie: int, number: int | None) -> tuple[str, State]:
        """A bookie takes a request, or (None) its journal becomes durable."""
        place = self._first_bookie + bookie
        known = self._bookie_steps.get((state[place], number))
        if known is None:
            known = self._bookie_steps[state[place], number] = self._step_bookie(state[place], number)
        after, replies, problem = known
        changed = list(state)
        changed[place] = after
        for request, event in replies:
            if changed[self._open] >> request & 1:
                answer = self._message(_Answer(request, event), ("answer", request, id_of(event)))
                changed[self._open + 1] |= 1 << answer
        result = tuple(changed)
        if problem is not None:
            self._problem[result] = problem
        if number is None:
            return f"{self.members[bookie].bookie_id} syncs", result
        return self._name(number), result

    def _step_bookie(self, before: int, number: int | None) -> tuple[int, list[tuple[int, Any]], str | None]:
        self.machine_steps += 1
        storing: _Storing = self.states[before]
        core, entries, stable = storing.core.copy(), dict(storing.entries), storing.stable
        events: list[Any] = []
        if number is None:
            stable = frozenset(entries)
            events.append(JournalDurable(0, core.next_token - 1))
        else:
            request = self.messages[number]
            assert isinstance(request, _Request)
            effect: Send = request.effect
            frames = [
                (decode_frame_header(memoryview(header)), frame.body) for header, frame in effect.frames
            ]
            events.append(RequestReceived(0, request.client, number, effect.control, frames))
        replies: list[Reply] = []
        while events:
            for effect_ in core.step(events.pop(0)):
                if isinstance(effect_, Reply):
                    replies.append(effect_)
                elif isinstance(effect_, StoreFrame):
                    entries.update((entry_id, bytes(entry)) for entry_id, entry in split(effect_.frame))
                elif isinstance(effect_, ReadEntries):
                    events.append(_look_up(entries, effect_))
            if not events and not self.bounds.lazy_sync and core.next_token - 1 > core.durable:
                stable = frozenset(entries)
                events.append(JournalDurable(0, core.next_token - 1))
        problem, told = None, storing.told_fence
        answers: list[tuple[int, Any]] = []
        for reply in replies:
            control = reply.control
            is_ok = getattr(control, "status", None) == Status.OK
            if isinstance(control, AddAnswer) and is_ok and not control.recovery and told:
                problem = "fenced means fenced"  # I21
            if (isinstance(control, FenceAnswer) and is_ok) or isinstance(control, ReadAnswer):
                told = True
                row = core.table.get(LEDGER)
                if row is None or not row.is_fenced:
                    problem = "a fence is set before it is told"  # I19
            request = self.messages[reply.request_id]
            assert isinstance(request, _Request)
            pairs = [(decode_frame_header(memoryview(header)), frame.body) for header, frame in reply.frames]
            event = Answered(0, request.effect.tag, request.effect.member, control, pairs)
            answers.append((reply.request_id, event))
        _forget_counts(core)
        return self._number(_Storing(core, entries, stable, told)), answers, problem

    # Invariants.

    def broken(self, state: State) -> str | None:
        """The first invariant that the state breaks; messages have no part in any."""
        if state in self._problem:
            return self._problem[state]
        key = state[: self._open]
        if key not in self._verdicts:
            self._verdicts[key] = self._judge(state)
        return self._verdicts[key]

    def _judge(self, state: State) -> str | None:
        register: _Register = self.states[state[0]]
        writer: Writer = self.states[state[1]]
        metadata = decode_ledger_metadata(register.value)
        disks: list[_Storing] = [self.states[number] for number in state[self._first_bookie : self._open]]
        for disk in disks:
            if any(self.sent[entry_id] != entry for entry_id, entry in disk.entries.items()):
                return "content"  # I7, I8
        last = metadata.last_entry if metadata.is_closed else NO_ENTRY
        assert last is not None
        if metadata.is_closed and writer.lac > last:
            return "no truncation"  # I3
        for entry_id in range(max(writer.lac, last) + 1):
            ensemble = metadata.fragment_of(entry_id).members
            copies = sum(
                disk.core.incarnation in {member.incarnation for member in ensemble}
                and entry_id in disk.stable
                for disk in disks
            )
            if copies < self.bounds.ack_quorum:
                # I4 while it is acknowledged only, I6 when it is part of a closed ledger.
                return "closed is replicated" if entry_id > writer.lac else "acked is kept"
        for client in range(1, self._clients):
            core: Recovery | None = self.states[state[1 + client]]
            has_end = core is not None and core.metadata.is_closed
            if core is not None and has_end and (not metadata.is_closed or core.metadata.last_entry != last):
                return "one end"  # I2
        return None


def _forbidden(before: bytes, after: bytes) -> str | None:
    """What a change of the metadata breaks (I2, I15, I18)."""
    old, new = decode_ledger_metadata(before), decode_ledger_metadata(after)
    if old.is_closed:
        return "one closer"
    if old.state == LedgerState.IN_RECOVERY and new.state == LedgerState.OPEN:
        return "life cycle"
    if old.state == LedgerState.IN_RECOVERY and new.state == LedgerState.IN_RECOVERY:
        return "recovery publishes at close"  # I28
    starts = [fragment.first_entry for fragment in new.fragments]
    if starts != sorted(set(starts)) or new.fragments[: len(old.fragments) - 1] != old.fragments[:-1]:
        return "fragment shape"
    return None


def _look_up(entries: dict[int, bytes], asked: ReadEntries) -> EntriesRead:
    ids = range(asked.first_entry, asked.last_entry + 1)
    held = [entries[entry_id] for entry_id in ids if entry_id in entries]
    frame = frame_of(memoryview(b"".join(held)), LEDGER) if held else None
    absent = [(entry_id, entry_id) for entry_id in ids if entry_id not in entries]
    return EntriesRead(0, asked.read_id, frame, absent)


def _forget_counts(core: Bookie) -> None:
    """Number journal records and lookups from the start again: only their order matters, and states that differ in
    nothing else are the same."""
    assert not core.looks
    core.next_look = 1
    shift, core.durable = core.durable, 0
    core.next_token -= shift
    core.replies = {token - shift: replies for token, replies in core.replies.items()}
    for ledger_id in core.table:  # type: ignore[attr-defined]
        row = core.table.get(ledger_id)
        assert row is not None
        row.last_token = max(0, row.last_token - shift)


def id_of(effect: Any) -> str:
    """Equal for equal effects and events; bodies are told by their bytes."""
    frames = getattr(effect, "frames", ())
    if not frames:
        return repr(effect)
    bodies = [(bytes(header) if isinstance(header, bytes) else repr(header), bytes(getattr(frame, "body", frame)))
              for header, frame in frames]  # fmt: skip
    return repr((type(effect).__name__, effect.tag, effect.member, effect.control, bodies))


def _words(told: Any) -> str:
    if isinstance(told, Send):
        return f"{told.tag}"
    if isinstance(told, Transact):
        value = decode_ledger_metadata(told.then[0].value)
        return f"a change to {LedgerState(value.state).name}, {len(value.fragments)} fragments"
    if isinstance(told, ReadKey):
        return "a read"
    if isinstance(told, Answered):
        status = getattr(told.control, "status", None)
        return f"{told.tag} {Status(status).name if status is not None else '?'}"
    return type(told).__name__


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        bit = mask & -mask
        found.append(bit.bit_length() - 1)
        mask ^= bit
    return found
