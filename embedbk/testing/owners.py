"""Applications that own the log of a world: they take it over, append to it across ledgers, and roll it.

An owner repeats what it does not know the fate of, under its own producer, and numbers everything else that it appends,
so that it can judge: nothing stands twice, nothing out of order, each run where its call returned (I99, P3.1, P8.2).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any

from embedbk.client.appending import Appending
from embedbk.client.log_reading import LogReading
from embedbk.client.owning import Owning
from embedbk.client.placed import Appended
from embedbk.client.reading import LedgerReading
from embedbk.client.renewing import Succession
from embedbk.client.runtime import Runtime
from embedbk.client.tickets import PLAIN, AppendTerms, Ticket
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, decode_ledger_metadata, ledger_key_path
from embedbk.config import NEVER_ROLL, Quorum, Roll
from embedbk.core.log_listing import TakenOver
from embedbk.errors import EmbedbkError, LogAtBound, OperationTimeout
from embedbk.ids import NO_ENTRY, Position
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.consumers import uses_cursors
from embedbk.testing.drawn_terms import log_password, ready, records_of, runtime_of, traits_drawn
from embedbk.testing.handle_askers import asks_for_handles
from embedbk.testing.network_faults import rule_for
from embedbk.testing.plan import MS, SECOND
from embedbk.testing.records import arrow_rows, dressed
from embedbk.testing.settlers import changes_settings
from embedbk.testing.sim_runtime import Narrow, awaited
from embedbk.testing.told_appends import watched
from embedbk.testing.truncators import truncates
from embedbk.testing.users import append_all
from embedbk.testing.violation import Violation
from embedbk.testing.world import World
from embedbk.transports.sim_faults import Treatment

__all__ = ["LOG", "WatchedOwner", "owner", "sequence_of"]

LOG = "audit"


def sequence_of(payload: bytes) -> tuple[bytes, int] | None:
    """The producer and sequence that an owner put in front of a payload."""
    head, found, rest = payload.partition(b"#")
    return (head, int(rest.split(b" ", 1)[0])) if found else None


def owner(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    """Appends under one producer id, across takeovers; it repeats appends whose outcome it did not receive."""
    yield from ready(world, client)
    is_narrow = random.Random(f"room of {client} {world.seed}").random() < 0.5
    runtime = runtime_of(world, client, Narrow() if is_narrow and "failures" in world.features else None)
    world.spawn(client, asks_for_handles(world, client, runtime))
    placed: dict[int, Position] = {}
    line: Succession | None = None
    owning_of = ""
    for _ in range(chance.randint(1, 3)):
        password = log_password(world)
        traits = traits_drawn(world, runtime, chance)
        try:
            if line is not None and not line.appending.is_over:
                yield from awaited(runtime, line.renew(quorum))  # It takes the log over from itself.
            else:
                if line is not None:
                    line.release()  # Its handle was over for a moment only, if it is about to go on in a next ledger.
                owning = WatchedOwner(world, client, runtime, LOG, password, quorum, traits)
                rolls = (
                    random.Random(f"rolls of {client} {world.seed}") if "rolls" in world.features else None
                )
                line = Succession(owning, (yield from awaited(runtime, owning.take_over())), _bounds(rolls))
                owning.line = line
            if owning_of != line.owning.name:
                owning_of, placed = line.owning.name, {}  # Another log has the name by now (P8.12).
            if "truncates" in world.features:
                reading, own = (
                    LogReading(runtime, LOG, password),
                    random.Random(f"lets go {client} {world.seed}"),
                )
                world.spawn(client, truncates(world, client, runtime, reading, own))
            if "cursors" in world.features:
                reading, own = (
                    LogReading(runtime, LOG, password),
                    random.Random(f"cursors {client} {world.seed}"),
                )
                world.spawn(client, uses_cursors(world, client, runtime, reading, own))
            if "settings" in world.features:
                reading, own = (
                    LogReading(runtime, LOG, password),
                    random.Random(f"own settings of {client} {world.seed}"),
                )
                world.spawn(client, changes_settings(world, client, runtime, reading, own, quorum))
            if {"rolls", "failures"} & {*world.features}:
                yield from _append_over(world, client, runtime, line, chance, placed, int(client[1:]))
            else:
                yield from append_all(
                    world, client, runtime, line.appending, chance, placed, int(client[1:]), password
                )
        except EmbedbkError as error:
            world.note(f"{client}: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 300) * MS)
    if line is not None and "settings" in world.features:
        line.release()  # Else it grows old for ever, by bounds that somebody gives its log.


class WatchedOwner(Owning):
    """An owner that reports to the observers what is sent to its ledgers."""

    def __init__(self, world: World, client: str, *terms: Any) -> None:
        super().__init__(*terms)
        self._world, self._client = world, client
        # Ledger -> what its packer took, in the order of beginning.
        self.taken: dict[int, dict[int, bytes]] = {}
        self.handles: dict[int, Appending] = {}  # By ledger.
        self.line: Succession | None = None
        self.serial = 0  # Numbers the appends; each payload contains its own number.

    def begin(self, taken: TakenOver) -> Appending:
        appending = watched(self._world, self._client, super().begin(taken), self._before_append)
        packer: Any = appending.writing.packer
        self.taken[appending.ledger_id] = packer.taken
        self.handles[appending.ledger_id] = appending
        return appending

    def _before_append(self) -> None:
        line = self.line
        bound = None if line is None else line.bound
        if line is not None and bound is not None:
            epoch, log = line.taken.epoch, str(self.name)
            self._world.tell("on_append", self._client, log, epoch, bound.bytes_max)

    def is_run(self, told: Appended, run: list[bytes]) -> bool:
        """Whether the entries of one call stand where it returned, with no others in between (P3.1)."""
        parts = [(part.ledger_id, range(part.first_entry, part.last_entry + 1)) for part in told.parts]
        ledgers = list(self.taken)
        for (one, there), (other, here) in pairwise(parts):
            if (
                here.start != 0
                or ledgers.index(other) <= ledgers.index(one)
                or self._end_of(one) not in (None, there.stop - 1)  # None: it was truncated meanwhile.
            ):
                return False
        return [self.taken[ledger_id].get(at) for ledger_id, ids in parts for at in ids] == run

    def _end_of(self, ledger_id: int) -> int | None:
        """None: it is gone. One that is not closed counts as empty."""
        value = self._world.committed(LEDGERS_PREFIX).get(ledger_key_path(ledger_id))
        if value is None:
            return None
        last_entry = decode_ledger_metadata(value, ledger_id).last_entry
        return NO_ENTRY if last_entry is None else last_entry

    def look(self, name: str) -> None:
        """In this owner's closed ledgers nothing stands twice, and everything as it was appended (I92, I99)."""
        mark, serials = b"%s @" % name.encode(), []
        for ledger_id, taken in self.taken.items():
            end = self._end_of(ledger_id)
            for at in range(0 if end is None else end + 1):
                payload = taken[at]
                serials += [int(payload[len(mark) :].split(b" ", 1)[0])] if payload.startswith(mark) else []
        if serials != sorted(set(serials)):
            raise Violation("I99", f"{name}: appends stand twice or out of order: {serials}")


def _bounds(rolls: random.Random | None) -> Roll:
    if rolls is None:
        return NEVER_ROLL
    return Roll(
        bytes=rolls.choice([None, 50, 2_000]),
        entries=rolls.choice([None, 1, 3, 20]),
        age_s=rolls.choice([None, None, 0.05, 0.5]),
    )


def _append_over(
    world: World,
    client: str,
    runtime: Runtime,
    line: Succession,
    chance: random.Random,
    placed: dict[int, Position],
    producer: int,
) -> Steps:
    """As `append_all`, with a writer that rolls beside what is appended: by its bounds, and when it is asked to."""
    pause_ns, size = chance.choice([0, 1, 5, 30]) * MS, chance.choice([1, 30, 300])
    owning: Any = line.owning
    arrows = random.Random(f"arrows of {client} {world.seed}") if "arrow" in world.features else None
    strays = random.Random(f"strays of {client} {world.seed}") if "failures" in world.features else None
    beside = records_of(world, client)
    refused_before = False
    try:
        for _ in range(chance.choice([3, 10, 40])):
            if strays is not None and strays.random() < 0.15:
                world.spawn(client, _recover_beside(world, client, runtime, line, strays.random()))
            try:
                yield from _append_some(
                    world, client, runtime, line, (chance, arrows, strays, beside), placed, producer, size
                )
                if refused_before:
                    world.sometimes["append went on behind a bound"] += 1
                refused_before = False
            except LogAtBound as full:
                world.sometimes["append refused at a bound"] += 1
                refused_before = True
                world.note(f"{client}: {full}")
                yield Sleep(400 * MS)  # Somebody may truncate it meanwhile.
            if "rolls" in world.features and chance.random() < 0.15:
                world.spawn(client, _roll_beside(world, client, runtime, line))
                if strays is not None:
                    yield from _fail_behind_a_roll(world, client, runtime, line, strays)
            if pause_ns:
                yield Sleep(chance.randint(0, 2 * pause_ns))
        if chance.random() < 0.7:
            yield from awaited(runtime, line.close())
    finally:
        line.release()
        owning.look(client)


def _append_some(
    world: World,
    client: str,
    runtime: Runtime,
    line: Succession,
    chances: tuple[random.Random, random.Random | None, random.Random | None, random.Random | None],
    placed: dict[int, Position],
    producer: int,
    size: int,
) -> Steps:
    """One entry under the producer's next sequence, or a run of others; some more that nobody waits for."""
    chance, arrows, strays, beside = chances
    owning: Any = line.owning
    sequence = min(s for s in range(len(placed) + 1) if s not in placed)
    payload = b"%d#%d " % (producer, sequence) + b"x" * chance.randint(0, size)
    if chance.random() < 0.5:
        given = dressed(payload, beside)
        if strays is not None and strays.random() < 0.4:
            yield from _give_up_waiting(world, runtime, line, given, (producer, sequence), strays)
        yield from _produce_over(runtime, line, placed, producer, sequence, given, client)
    else:
        count = chance.randint(1, 5) * (1 if strays is None else strays.choice([1, 1, 4]))
        payloads = [_numbered(owning, client, b"y" * size) for _ in range(count)]
        given = arrow_rows(payloads, arrows, beside) if arrows else payloads
        told = yield from awaited(runtime, line.through(_several(given), PLAIN))
        if not owning.is_run(told, payloads):
            raise Violation("P3.1", f"{client}: what it appended does not stand at {told.parts}")
    if strays is not None and strays.random() < 0.3:
        yield from _append_unawaited(world, runtime, line, owning, client)


def _numbered(owning: WatchedOwner, client: str, rest: bytes) -> bytes:
    owning.serial += 1
    return b"%s @%d " % (client.encode(), owning.serial) + rest


def _append_unawaited(
    world: World, runtime: Runtime, line: Succession, owning: WatchedOwner, client: str
) -> Steps:
    """Tickets that are looked at later, or never; some are asked for more copies than the ack quorum, beside."""

    async def queue(now: Appending, _: AppendTerms) -> Ticket:
        return Ticket(now, await now.queue(payload))

    payload = _numbered(owning, client, b"z")
    ticket = yield from awaited(runtime, line.through(queue, PLAIN))
    if ticket.done() and owning.taken[ticket.position.ledger_id].get(ticket.position.entry_id) != payload:
        raise Violation("P8.2", f"{client}: {payload!r} does not stand at {ticket.position}")
    if owning.serial % 3 == 0:
        world.spawn(client, _wait_for_copies(world, client, runtime, ticket, line.owning.quorum.write_quorum))


def _wait_for_copies(world: World, client: str, runtime: Runtime, ticket: Ticket, copies: int) -> Steps:
    try:
        yield from awaited(runtime, ticket._at_least(copies, 0.5))
        world.sometimes["all copies of an entry known"] += 1
    except EmbedbkError as error:
        world.note(f"{client}: waiting for copies: {type(error).__name__}: {error}")
    world.tell("on_copies", client, ticket.position.ledger_id, ticket.entry_id, ticket.copies)


def _recover_beside(world: World, client: str, runtime: Runtime, line: Succession, share: float) -> Steps:
    """Another client recovers the owner's ledger, and does not own the log; any client may."""
    owning: Any = line.owning
    appending = line.appending
    yield Sleep(int(share * 20 * MS))
    steps = LedgerReading.open(runtime, appending.ledger_id, owning.password, recover=True)
    try:
        reading = yield from awaited(runtime, steps)
        reading.close()
    except EmbedbkError as error:
        world.note(f"{client}: {type(error).__name__}: {error}")
    yield Until(lambda: appending.is_over or appending.writing.error is not None, 5 * SECOND)
    if appending.writing.is_handed_over:
        heir = appending.heir
        if heir is not None and appending.writing.packer.last_entry > heir.last_entry:
            world.sometimes["outstanding sent again"] += 1


def _fail_behind_a_roll(
    world: World, client: str, runtime: Runtime, line: Succession, chance: random.Random
) -> Steps:
    """What is on its way when the owner rolls comes late, it appends meanwhile, and another client recovers the ledger
    that it leaves: before, behind or while that comes."""
    late = Treatment(delay_ns=chance.randint(1, 60) * MS)
    rule = rule_for(late, kind="AddRequest", sender=client, ledger_id=line.appending.ledger_id)
    world.network.add_rule(rule)
    world.spawn(client, _recover_beside(world, client, runtime, line, chance.random()))
    try:
        for _ in range(chance.choice([2, 6])):
            yield from _append_unawaited(world, runtime, line, line.owning, client)  # type: ignore[arg-type]
            yield Sleep(chance.randint(0, 10) * MS)
    finally:
        world.network.remove_rule(rule)


def _several(payloads: Sequence[bytes]) -> Callable[[Appending, AppendTerms], Coroutine[Any, Any, Any]]:
    return lambda appending, terms: appending.append_many(payloads)


def _give_up_waiting(
    world: World,
    runtime: Runtime,
    line: Succession,
    payload: Any,
    producer: tuple[int, int],
    chance: random.Random,
) -> Steps:
    """An append whose caller waits for a moment only, and that may be on its way when it is repeated."""
    terms = AppendTerms(timeout_s=chance.choice([0.001, 0.01, 0.1]), producer=producer)
    try:
        yield from awaited(
            runtime, line.through(lambda appending, left: appending.append(payload, left), terms)
        )
    except OperationTimeout:
        world.sometimes["append repeated that was given up"] += 1


def _produce_over(
    runtime: Runtime,
    line: Succession,
    placed: dict[int, Position],
    producer: int,
    sequence: int,
    payload: Any,
    client: str,
) -> Steps:
    terms = AppendTerms(producer=(producer, sequence))
    at = yield from awaited(
        runtime, line.through(lambda appending, left: appending.append(payload, left), terms)
    )
    if placed.setdefault(sequence, at) != at:
        raise Violation(
            "idempotence", f"{client}: sequence {sequence} stands at {placed[sequence]} and at {at}"
        )
    owning: Any = line.owning
    handle = owning.handles.get(at.ledger_id)  # None: another owner's, closed before this one began.
    if handle is not None and not handle.writing.is_received(at.entry_id):
        raise Violation(
            "P3.2", f"{client}: {at} is told, and nothing behind {handle.writing.received} is acknowledged"
        )


def _roll_beside(world: World, client: str, runtime: Runtime, line: Succession) -> Steps:
    try:
        yield from awaited(runtime, line.roll())
    except EmbedbkError as error:
        world.note(f"{client}: {type(error).__name__}: {error}")
