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

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from embedbk.codec.add_messages import AddAnswer, FenceAnswer
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import Frame, decode_frame_header, frame_of, split
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from embedbk.codec.packer_twin import TwinPacker
from embedbk.codec.read_messages import ReadAnswer
from embedbk.config import Quorum
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import (
    EntriesRead,
    JournalDurable,
    ReadEntries,
    Reply,
    RequestReceived,
    StoreFrame,
)
from embedbk.core.client_words import Answered, BookieInfo, FrameSealed, Send, SendFailed
from embedbk.core.ledger_table import LedgerTable
from embedbk.core.machine import Machine
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.core.recovery import Phase, Recovery, RecoveryOptions
from embedbk.core.upkeep_words import AskMetadata, MetadataTold
from embedbk.core.vocabulary import CloseRequested, Started, Tick
from embedbk.core.writer import Writer, WriterState
from embedbk.core.writer_options import WriterOptions
from embedbk.ids import Member
from tests.rules.world import TOLD
from tests.worlds.judge import Register, Storing, forbidden, judge
from tests.worlds.messages import Answer, Messages, Request, bits, id_of
from tests.worlds.reductions import canonical, is_awaited, is_final

__all__ = ["Bounds", "SmallWorld"]

LEDGER = 1
KEY = bytes(16)
NEVER_NS = 1 << 60
WRITER_TIMES = WriterOptions(
    add_timeout_ns=NEVER_NS, quorum_wait_ns=NEVER_NS, retry_ns=0, avoid_ns=0, explicit_lac_ns=NEVER_NS
)
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


class SmallWorld:
    """The specification (initial, steps, broken) of one bounded world, for `tests.spec.explore`."""

    def __init__(self, bounds: Bounds, *, reduces: bool = True) -> None:
        """reduces: worlds that differ in nothing that can still matter are one (reductions.py)."""
        self.bounds = bounds
        self.reduces = reduces
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
        self.messages = Messages(1 + bounds.recoverers, self.members)
        self.states: list[Any] = []  # Of machines and of the register, each distinct one once.
        self._state_numbers: dict[Any, int] = {}
        self._client_steps: dict[Any, tuple[int, list[Any]]] = {}
        self._bookie_steps: dict[Any, tuple[int, list[tuple[int, Any]], str | None]] = {}
        self._given_up: dict[tuple[int, int], list[int]] = {}
        # Above: (state of a client's machine, its open requests) -> those that it waits for no longer.
        self._ticks: dict[
            int, bool
        ] = {}  # State of a client's machine -> whether time can make it do something.
        self._settled_answers: dict[
            tuple[int, int], int
        ] = {}  # (state of the receiver, request) -> bit, or 0.
        # States of the recoverers' machines -> new names of the clients, by which they are in order.
        self._orders: dict[tuple[int, ...], list[tuple[int, ...] | None]] = {}
        self._without: dict[
            tuple[int, int], int
        ] = {}  # (state of a bookie, replies that nobody hears) -> state.
        self._verdicts: dict[State, str | None] = {}
        self._problem: dict[State, str] = {}  # States that a forbidden step led to.
        self.machine_steps = 0
        self._clients = 1 + bounds.recoverers
        self._first_bookie = 1 + self._clients
        self._open = self._first_bookie + bounds.bookies
        self._labels_failures = bounds.lazy_sync or not self.reduces

    # States as numbers.

    def _number(self, state: Any) -> int:
        if isinstance(state, Machine):
            if self.reduces:
                canonical(state)
            key = state.digest()
        elif isinstance(state, Storing):
            key = (state.core.digest(), state.core.table.digest(), tuple(sorted(state.entries.items())))  # type: ignore[attr-defined]
            key += (state.stable, state.told_fence)
        else:
            key = state
        number = self._state_numbers.get(key)
        if number is None:
            number = self._state_numbers[key] = len(self.states)
            self.states.append(state)
        return number

    def initial(self) -> State:
        fragment = Fragment(0, 0, tuple(self.members[: self.quorum.ensemble_size]))
        metadata = LedgerMetadata(
            METADATA_VERSION, LEDGER, self.quorum.ensemble_size, self.quorum.write_quorum,
            self.quorum.ack_quorum, LedgerState.OPEN, None, None, b"", 0, {}, (fragment,),
        )  # fmt: skip
        register = self._number(Register(1, encode_ledger_metadata(metadata)))
        writer = self._number(Writer(metadata, 1, KEY, 1, self.infos, _First(), WRITER_TIMES))
        nobody = self._number(None)
        bookies = [
            self._number(Storing(Bookie(member.incarnation, LedgerTable(), 1), {}, frozenset(), False))
            for member in self.members
        ]
        return (register, writer, *[nobody] * self.bounds.recoverers, *bookies, 0, 0, 0, 0)

    # Steps of a world.

    def steps(self, state: State) -> list[tuple[str, State]]:
        if self.reduces:
            for client in range(self._clients):
                steps = self._steps_that_can_go_first(state, client)
                if steps:
                    return steps
        steps = []
        flight, dead = state[self._open + 1], state[self._open + 3]
        for client in range(self._clients):
            steps += self._client_steps_of(state, client)
        # Recoverers are alike: it is enough that they start in this order.
        waiting = [client for client in range(1, self._clients) if self.states[state[1 + client]] is None]
        steps += [(f"recoverer {client} starts", self._start(state, client)) for client in waiting[:1]]
        steps += [
            self._deliver(state, number) for number in bits(flight) if not self.messages.is_answer[number]
        ]
        for bookie in range(self.bounds.bookies):
            if dead >> bookie & 1:
                continue
            if dead.bit_count() < self.bounds.deaths:
                steps.append((f"{self.members[bookie].bookie_id} dies", self._kill(state, bookie)))
            storing: Storing = self.states[state[self._first_bookie + bookie]]
            if storing.core.records.next_token - 1 > storing.core.replies.durable:
                steps.append(self._bookie_step(state, bookie, None))
        return steps

    def _client_steps_of(self, state: State, client: int) -> list[tuple[str, State]]:
        """Everything that this client alone may do next, but for its start."""
        steps: list[tuple[str, State]] = []
        opened, flight, failures, dead = state[self._open :]
        machine = state[1 + client]
        if client == 0:
            writer: Writer = self.states[machine]
            if writer.state is WriterState.OPEN and writer.lap + 1 < len(self.frames):
                event = FrameSealed(0, self.frames[writer.lap + 1])
                steps.append((f"writer adds {writer.lap + 1}", self._tell(state, 0, ("add",), event)))
            if self.bounds.closes and writer.state in (WriterState.OPEN, WriterState.FAILED):
                steps.append(("writer closes", self._tell(state, 0, ("close",), CloseRequested(0))))
        if self._wants_tick(machine):
            steps.append((f"client {client} ticks", self._tell(state, client, ("tick",), Tick(0))))
        mine = self.messages.of_client[client]
        steps += [
            self._deliver(state, number) for number in bits(flight & mine) if self.messages.is_answer[number]
        ]
        for number in bits(opened & mine):
            request = self.messages.request(number)
            is_dead = request.bookie >= 0 and dead >> request.bookie & 1
            if is_dead or failures < self.bounds.failures:
                steps.append(self._fail(state, number, request, failures + (not is_dead)))
        return steps

    def _wants_tick(self, machine: int) -> bool:
        wants = self._ticks.get(machine)
        if wants is None:
            core: Machine | None = self.states[machine]
            wants = core is not None and core.deadline_ns is not None and core.deadline_ns <= 0
            self._ticks[machine] = wants
        return wants

    def _steps_that_can_go_first(self, state: State, client: int) -> list[tuple[str, State]]:
        """The client's steps, when nobody else can bring it another one and no promise is about what they change.

        All it has asked is answered, and the answers are on their way: whatever others do meanwhile, these are the
        steps it will have, and the world is the same in whichever order. So they are taken first, and the other orders
        are left out. A bookie that may die would take answers back; what fails is told apart by numbers in some worlds.
        """
        opened, flight, _, dead = state[self._open :]
        machine = state[1 + client]
        if self.states[machine] is None or (self._labels_failures and self.bounds.failures):
            return []
        for number in bits(opened & self.messages.of_client[client]):
            bookie = self.messages.bookie_of[number]
            if bookie >= 0 and dead >> bookie & 1:
                continue
            if not flight & self.messages.answers_to.get(number, 0):
                return []
            if bookie >= 0 and dead.bit_count() < self.bounds.deaths:
                return []
        steps = self._client_steps_of(state, client)
        shown = self._shown(machine)
        for _, after in steps:
            if after == state or any(self._shown(m) != shown for m in self._came(state, after, client)):
                return []
        return steps

    def _came(self, state: State, after: State, client: int) -> list[int]:
        """States of machines of the kind of this client that are there now and were not before."""
        if client == 0:
            return [after[1]]
        before = state[2 : self._first_bookie]
        return [machine for machine in after[2 : self._first_bookie] if machine not in before]

    def _shown(self, machine: int) -> Any:
        """What promises are about, of a client."""
        core = self.states[machine]
        if isinstance(core, Writer):
            return core.lac
        return core.metadata.last_entry if core.metadata.is_closed else None

    def _tell(self, state: State, client: int, key: Any, event: Any) -> State:
        """The world after a client's machine took an event; what it asks for is under way."""
        before = state[1 + client]
        if self.states[before] is None:
            return state
        known = self._client_steps.get((before, key))
        if known is None:
            core = self.states[before].copy()
            self.machine_steps += 1
            effects = [
                (effect, self.members.index(effect.member) if isinstance(effect, Send) else -1, id_of(effect))
                for effect in core.step(event)
                if isinstance(effect, Send | Transact | ReadKey)
            ]
            known = self._client_steps[before, key] = (self._number(core), effects)
        after, effects = known
        changed = list(state)
        changed[1 + client] = after
        for effect, bookie, identity in effects:
            # The same request again is another one, so that an answer to the first is none to the second: it comes
            # beside the first (copy), or after a failure. Then its number tells it apart, where the first is not
            # an orphan by now.
            copy, bit = 0, 0
            while not bit or (changed[self._open] | changed[self._open + 1]) & bit:
                name = (client, identity, state[self._open + 2] if self._labels_failures else 0, copy)
                bit = 1 << self.messages.number(Request(client, effect, bookie), name)
                copy += 1
            changed[self._open] |= bit
            if bookie < 0 or not changed[self._open + 3] >> bookie & 1:
                changed[self._open + 1] |= bit
        self._hang_up(changed, client)
        return self._settled(changed)

    def _is_over(self, number: int) -> bool:
        core = self.states[number]
        return core.state is WriterState.ENDED if isinstance(core, Writer) else core.phase is Phase.ENDED

    def _hang_up(self, changed: list[int], client: int) -> None:
        """A handle that is over waits for nothing; what it has sent may still arrive."""
        machine, opened = changed[1 + client], changed[self._open] & self.messages.of_client[client]
        given_up = self._given_up.get((machine, opened))
        if given_up is None:
            core = self.states[machine]
            is_over = self._is_over(machine)
            given_up = [
                number
                for number in bits(opened)
                if is_over or (self.reduces and not is_awaited(core, self.messages.request(number).effect))  # type: ignore[union-attr]
            ]
            self._given_up[machine, opened] = given_up
        for number in given_up:
            self._give_up(changed, number)

    def _give_up(self, changed: list[int], number: int) -> None:
        """Nobody waits for the request any more; it may still arrive."""
        changed[self._open] &= ~(1 << number)
        self._drop_answers(changed, number)
        if self.reduces and changed[self._open + 1] >> number & 1:
            changed[self._open + 1] &= ~(1 << number)
            changed[self._open + 1] |= self.messages.orphan(number)

    def _settled(self, changed: list[int]) -> State:
        """The world, one for all that differ in nothing that can still matter."""
        if self.reduces:
            flight = changed[self._open + 1]
            for number in bits(flight & self.messages.orphans):
                if self._is_idle(changed, number):
                    changed[self._open + 1] &= ~(1 << number)
            for number in bits(flight & changed[self._open]):
                answer = self._answer_for_good(changed, number)
                if answer:
                    changed[self._open + 1] ^= 1 << number | answer
            if self.bounds.lazy_sync:
                self._forget_replies(changed)
            if self.bounds.recoverers > 1:
                self._rename(changed)
        return tuple(changed)

    def _is_idle(self, changed: list[int], number: int) -> bool:
        """An orphan that changes nothing now never will: fences and entries stay, and revisions rise."""
        request = self.messages.request(number)
        if request.bookie < 0:
            register: Register = self.states[changed[0]]
            return bool(request.effect.when[0].revision != register.revision)
        place = changed[self._first_bookie + request.bookie]
        known = self._bookie_steps.get((place, number))
        if known is None:
            known = self._bookie_steps[place, number] = self._step_bookie(place, number)
        return known[0] == place and known[2] is None

    def _answer_for_good(self, changed: list[int], number: int) -> int:
        """The bit of the answer that this request gets now and would get at any later time, while it changes nothing
        where it arrives; 0: it may be another later. Such a one is answered at once."""
        request = self.messages.request(number)
        place = changed[self._first_bookie + request.bookie] if request.bookie >= 0 else changed[0]
        bit = self._settled_answers.get((place, number))
        if bit is None:
            bit = 0
            if request.bookie < 0:
                register: Register = self.states[place]
                event = _answer_of_register(register, request.effect)
                if event is not None:
                    bit = 1 << self.messages.answer(number, event)
            else:
                known = self._bookie_steps.get((place, number))
                if known is None:
                    known = self._bookie_steps[place, number] = self._step_bookie(place, number)
                after, replies, problem = known
                if after == place and problem is None and len(replies) == 1:
                    storing: Storing = self.states[place]
                    row = storing.core.table.get(LEDGER)
                    is_fenced = row is not None and bool(row.is_fenced)
                    if is_final(request.effect.control, replies[0][1].control, is_fenced, len(self.frames)):
                        bit = 1 << self.messages.answer(*replies[0])
            self._settled_answers[place, number] = bit
        return bit

    def _forget_replies(self, changed: list[int]) -> None:
        """Replies that wait for a sync, to requests that nobody waits for."""
        for place in range(self._first_bookie, self._open):
            key = (changed[place], changed[self._open])
            after = self._without.get(key)
            if after is None:
                storing: Storing = self.states[changed[place]]
                after = changed[place]
                if any(
                    not key[1] >> r.request_id & 1
                    for replies in storing.core.replies.by_token.values()
                    for r in replies
                ):
                    core = storing.core.copy()
                    heard = {
                        token: [reply for reply in replies if key[1] >> reply.request_id & 1]
                        for token, replies in core.replies.by_token.items()
                    }
                    core.replies.by_token = {token: replies for token, replies in heard.items() if replies}
                    after = self._number(storing._replace(core=core))
                self._without[key] = after
            changed[place] = after

    def _rename(self, changed: list[int]) -> None:
        """Recoverers are alike: put them in the order of their states."""
        machines = tuple(changed[2 : self._first_bookie])
        orders = self._orders.get(machines)
        if orders is None:
            orders = self._orders[machines] = _ways_to_sort(machines)
        if len(orders) == 1 and orders[0] is None:
            return
        requests, flight = changed[self._open], changed[self._open + 1]
        changed[2 : self._first_bookie] = sorted(machines)
        changed[self._open], changed[self._open + 1] = min(
            (self.messages.with_names(requests, names), self.messages.with_names(flight, names))
            for names in orders
        )

    def _drop_answers(self, changed: list[int], request: int) -> None:
        changed[self._open + 1] &= ~self.messages.answers_to.get(request, 0)

    def _start(self, state: State, client: int) -> State:
        register: Register = self.states[state[0]]
        metadata = decode_ledger_metadata(register.value)
        # One nonce for all of them: an answer finds its client by its request here.
        core = Recovery(metadata, register.revision, KEY, 2, self.infos, _First(), RECOVERY_TIMES)
        changed = list(state)
        changed[1 + client] = self._number(core)
        return self._tell(tuple(changed), client, ("start",), Started(0))

    def _deliver(self, state: State, number: int) -> tuple[str, State]:
        message = self.messages[number]
        changed = list(state)
        changed[self._open + 1] &= ~(1 << number)
        if isinstance(message, Answer):
            request = self.messages[message.request]
            assert isinstance(request, Request)
            changed[self._open] &= ~(1 << message.request)
            after = self._tell(tuple(changed), request.client, number, message.event)
            return self.messages.name(number), after
        if message.bookie >= 0:
            return self._bookie_step(tuple(changed), message.bookie, number)
        return self._commit(tuple(changed), number, message)

    def _fail(self, state: State, number: int, request: Request, failures: int) -> tuple[str, State]:
        """The client is told that no answer will come; the request may be on its way still."""
        changed = list(state)
        changed[self._open + 2] = failures
        self._give_up(changed, number)
        effect = request.effect
        event: Any
        if isinstance(effect, Send):
            event = SendFailed(0, effect.tag, effect.member, "lost")
        elif isinstance(effect, Transact):
            event = TransactUnknown(0, effect.tag)
        else:
            event = MetadataFailed(0, effect.tag, "lost")
        after = self._tell(tuple(changed), request.client, ("failed", number), event)
        return f"in vain waits {self.messages.name(number)}", after

    def _kill(self, state: State, bookie: int) -> State:
        changed = list(state)
        changed[self._open + 3] |= 1 << bookie
        for number in bits(changed[self._open + 1]):
            if self.messages.bookie_of[number] == bookie:
                changed[self._open + 1] &= ~(1 << number)
        if self.reduces:  # Only what is on its disk is looked at.
            disk: Storing = self.states[changed[self._first_bookie + bookie]]
            kept = {entry_id: entry for entry_id, entry in disk.entries.items() if entry_id in disk.stable}
            dead = Storing(Bookie(disk.core.incarnation, LedgerTable(), 1), kept, disk.stable, False)
            changed[self._first_bookie + bookie] = self._number(dead)
        return self._settled(changed)

    def _commit(self, state: State, number: int, request: Request) -> tuple[str, State]:
        register: Register = self.states[state[0]]
        effect = request.effect
        changed, problem = list(state), None
        event: Any
        if isinstance(effect, ReadKey):
            event = KeyRead(0, effect.tag, register.value, register.revision)
        elif effect.when[0].revision == register.revision:
            after = Register(register.revision + 1, effect.then[0].value)
            problem = forbidden(register.value, after.value)
            changed[0] = self._number(after)
            event = Transacted(0, effect.tag, True, after.revision)
        else:
            event = _refused(effect)
        if changed[self._open] >> number & 1:
            changed[self._open + 1] |= 1 << self.messages.answer(number, event)
        result = self._settled(changed)
        if problem is not None:
            self._problem[result] = problem
        return self.messages.name(number), result

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
                changed[self._open + 1] |= 1 << self.messages.answer(request, event)
        result = self._settled(changed)
        if problem is not None:
            self._problem[result] = problem
        if number is None:
            return f"{self.members[bookie].bookie_id} syncs", result
        return self.messages.name(number), result

    def _step_bookie(self, before: int, number: int | None) -> tuple[int, list[tuple[int, Any]], str | None]:
        self.machine_steps += 1
        storing: Storing = self.states[before]
        core, entries, stable = storing.core.copy(), dict(storing.entries), storing.stable
        events: list[Any] = []
        if number is None:
            stable = frozenset(entries)
            events.append(JournalDurable(0, core.records.next_token - 1))
        else:
            request = self.messages.request(number)
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
                elif isinstance(effect_, AskMetadata):
                    events.append(MetadataTold(0, effect_.tag, TOLD))
            if (
                not events
                and not self.bounds.lazy_sync
                and core.records.next_token - 1 > core.replies.durable
            ):
                stable = frozenset(entries)
                events.append(JournalDurable(0, core.records.next_token - 1))
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
            assert isinstance(request, Request)
            pairs = [(decode_frame_header(memoryview(header)), frame.body) for header, frame in reply.frames]
            event = Answered(0, request.effect.tag, request.effect.member, control, pairs)
            answers.append((reply.request_id, event))
        _forget_counts(core)
        return self._number(Storing(core, entries, stable, told)), answers, problem

    # Invariants.

    def broken(self, state: State) -> str | None:
        """The first invariant that the state breaks; messages have no part in any."""
        if state in self._problem:
            return self._problem[state]
        key = state[: self._open]
        if key not in self._verdicts:
            machines = [self.states[machine] for machine in state[2 : self._first_bookie]]
            self._verdicts[key] = judge(
                decode_ledger_metadata(self.states[state[0]].value),
                self.states[state[1]].lac,
                [self.states[number] for number in state[self._first_bookie : self._open]],
                [core for core in machines if core is not None],
                self.sent,
            )
        return self._verdicts[key]


def _refused(effect: Transact) -> Transacted:
    """Nobody asks which revision it was that won."""
    return Transacted(0, effect.tag, False, 0)


def _answer_of_register(register: Register, effect: Any) -> Any | None:
    """What it answers for good: a comparison with what is over fails, and a closed ledger stays as it is."""
    if isinstance(effect, Transact):
        return _refused(effect) if effect.when[0].revision != register.revision else None
    if decode_ledger_metadata(register.value).is_closed:
        return KeyRead(0, effect.tag, register.value, register.revision)
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
    assert not core.looks.open
    core.looks.next_id = 1
    shift, core.replies.durable = core.replies.durable, 0
    core.records.next_token -= shift
    core.replies.by_token = {token - shift: replies for token, replies in core.replies.by_token.items()}
    for ledger_id in core.table:  # type: ignore[attr-defined]
        row = core.table.get(ledger_id)
        assert row is not None
        row.last_token = max(0, row.last_token - shift)


def _ways_to_sort(machines: tuple[int, ...]) -> list[tuple[int, ...] | None]:
    """New names of clients 0, 1.. that put these machines of clients 1, 2.. in order; None: as they are."""
    ways: list[tuple[int, ...] | None] = []
    for order in itertools.permutations(range(len(machines))):
        sorted_so = [machines[place] for place in order]
        if sorted_so == sorted(machines):
            names = (0, *(order.index(place) + 1 for place in range(len(order))))
            ways.append(None if names == tuple(range(len(names))) else names)
    return ways
