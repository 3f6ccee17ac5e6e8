"""Applications that use the users' interface, the coroutines under `embedbk.Client`: ledgers with every term, logs,
deletion.

Which terms they use is the plan's (`features`): swarm testing for what is asked for, as for what fails. What they are
told goes to the observers; what only they can judge, they judge: an append that was repeated has its old position, a
condition that holds is no conflict, a batch comes back in the parts that were given.

    user     makes ledgers of its own and appends to them
    owner    takes a log over, and repeats what it does not know the fate of
    visitor  opens, recovers, reads, tails
    remover  deletes, brings back, forgets
    mender   repairs as if bookies were lost that live (menders.py)
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from itertools import pairwise
from typing import Any

from embedbk.client import deleting, ledger, log_deleting
from embedbk.client.appending import Appending
from embedbk.client.batches import Located, entries_of
from embedbk.client.compression import SqueezingPacker, is_installed, squeezed
from embedbk.client.log_reading import LogReading
from embedbk.client.owning import Owning
from embedbk.client.password import Password
from embedbk.client.placed import Appended
from embedbk.client.reading import LedgerReading
from embedbk.client.renewing import Succession
from embedbk.client.runtime import Runtime
from embedbk.client.tickets import PLAIN, AppendTerms, Ticket
from embedbk.codec.arrow_rows import Rows
from embedbk.codec.attributes import time_of
from embedbk.codec.frame import Frame, iter_entries
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.packer_twin import Packing
from embedbk.config import NEVER_ROLL, Quorum, Roll, Settings
from embedbk.core.entry_logs_query import EntryLogsQuery
from embedbk.core.log_listing import TakenOver
from embedbk.errors import AppendConflict, EmbedbkError, LogAtBound, UsageError
from embedbk.ids import NO_ENTRY, Position
from embedbk.metadata.levels import LEVEL_OF_COMPRESSION, LEVEL_OF_ENTRY_LOGS
from embedbk.testing.archivers import archives
from embedbk.testing.bounders import settings_drawn
from embedbk.testing.bulk_readers import reads_in_bulk
from embedbk.testing.consumers import uses_cursors
from embedbk.testing.handle_askers import asks_for_handles
from embedbk.testing.menders import mender
from embedbk.testing.plan import MS, SECOND
from embedbk.testing.records import are_records_right, arrow_rows, dressed
from embedbk.testing.renamers import renames
from embedbk.testing.sealers import seals
from embedbk.testing.settlers import changes_settings
from embedbk.testing.sim_runtime import Narrow, SimRuntime, awaited
from embedbk.testing.splicers import splices_in
from embedbk.testing.squeezed import appended_of, note_squeezed, stored_of, varied
from embedbk.testing.truncators import pin_and_read, truncates
from embedbk.testing.violation import Violation
from embedbk.testing.world import KEY, Sleep, Steps, Until, World

__all__ = ["APPLICATIONS", "LOG", "Keys", "keys_of", "sequence_of"]

LOG = "audit"
BRIEF_LOG = "brief"  # The ledgers that removers write, read and delete.
PASSWORDS = (b"", b"sesame", b"open wide")
REMOVED = "app"  # Custom metadata of ledgers that a remover may delete: no log lists them.
GRACE_S = 1.0
READY_NS = 20 * SECOND

Asking = Generator[Sleep | Until, Any, Any]


class Keys:
    """A function that opens a ledger of this world, by any maker."""

    def __init__(self, key: bytes, mac_key: bytes) -> None:
        self.key, self.mac_key = key, mac_key


_BY_VERIFIER = {Password(password).verifier: Password(password) for password in PASSWORDS}


def keys_of(metadata: LedgerMetadata) -> Keys:
    found = _BY_VERIFIER.get(metadata.password_verifier)
    return Keys(KEY, b"") if found is None else Keys(found.key, found.mac_key)


def sequence_of(payload: bytes) -> tuple[bytes, int] | None:
    """The producer and sequence that an owner put in front of a payload."""
    head, found, rest = payload.partition(b"#")
    return (head, int(rest.split(b" ", 1)[0])) if found else None


# --- Parts -------------------------------------------------------------------------------------------------


class _TellingPacker:
    """A packer that reports to the observers what it took."""

    def __init__(
        self,
        packer: Packing,
        tell: Callable[[int, bytes, bytes], None],
        sometimes: Counter[str],
        before: Callable[[], None],
    ) -> None:
        """tell(entry id, what is stored, what was appended). before: called before something is appended that an
        application gave."""
        self._packer, self._on_taken, self._sometimes, self._before = packer, tell, sometimes, before
        self.taken: dict[int, bytes] = {}  # Payloads as they were appended.

    def __getattr__(self, name: str) -> Any:
        return getattr(self._packer, name)

    def _tell(self, entry_id: int, payload: Any, attributes: bytes = b"") -> None:
        """payload, attributes: as they are stored."""
        appended = appended_of(attributes, payload)
        self.taken[entry_id] = appended
        self._on_taken(entry_id, payload, appended)

    def _begin(self, caller: int = 0) -> None:
        """Nothing comes to a packer that is stopped, and the rest of a call that it holds itself for comes anyway."""
        if not self._packer.is_stopped and not (caller and self._packer.held_by == caller):
            self._before()

    def append(self, data: bytes) -> tuple[int, bool]:
        self._begin()
        taken = self._packer.append(data)
        if taken[0] >= 0:
            found = squeezed(b"", data) if isinstance(self._packer, SqueezingPacker) else None
            attributes, payload = found or (b"", data)
            self._tell(taken[0], payload, attributes)
        return taken

    def append_many(self, payloads: list[bytes], caller: int, *attributes: Any) -> tuple[int, int, bool]:
        self._begin(caller)
        first, taken, should_wake = self._packer.append_many(payloads, caller, *attributes)
        for number in range(taken):
            self._tell(first + number, payloads[number], attributes[0][number] if attributes else b"")
        if 0 < taken < len(payloads) and not self._packer.is_stopped:
            self._sometimes["rest waited for room"] += 1
        return first, taken, should_wake

    def append_rows(self, columns: Any, begin: int, caller: int) -> tuple[int, int, bool]:
        self._begin(caller)
        first, taken, should_wake = self._packer.append_rows(columns, begin, caller)
        rows = Rows(columns, begin)
        for number, attribute in zip(range(taken), rows.attributes(), strict=False):
            self._tell(first + number, rows[number], attribute)
        self._sometimes["rows of Arrow appended"] += taken > 0
        return first, taken, should_wake

    def append_again(self, frame: Frame, begin: int, count: int) -> int:
        first = self._packer.next_entry
        taken = self._packer.append_again(frame, begin, count)
        for number, entry in enumerate(list(iter_entries(frame))[begin : begin + taken]):
            self._tell(first + number, bytes(entry.data), bytes(entry.attributes))
        return taken

    def append_with(self, data: bytes, attributes: bytes, expected: int) -> tuple[int, bool]:
        self._begin()
        taken = self._packer.append_with(data, attributes, expected)
        if taken[0] >= 0:
            self._tell(taken[0], data, attributes)
        return taken


def _watch(
    world: World, client: str, appending: Appending, before: Callable[[], None] = lambda: None
) -> Appending:
    writing: Any = appending.writing

    def tell(entry_id: int, payload: bytes, appended: bytes) -> None:
        note_squeezed(world, appending.ledger_id, entry_id, appended, payload)
        world.tell("on_sent", client, writing, appending.ledger_id, entry_id, payload)

    writing.packer = _TellingPacker(writing.packer, tell, world.sometimes, before)
    return appending


def _runtime(world: World, client: str, settings: Settings | None = None) -> SimRuntime:
    return SimRuntime(world, client, world.nodes[client], settings or settings_drawn(world, client))


def _ready(world: World, client: str) -> Asking:
    node = world.nodes[client]
    return (yield Until(lambda: node.is_ready and len(node.bookies) > 0, READY_NS))


def _traits(world: World, runtime: Runtime, chance: random.Random) -> ledger.Traits:
    def maybe(feature: str, *values: Any) -> Any:
        return chance.choice(values) if feature in world.features else values[0]

    can_compress = runtime.has_level(LEVEL_OF_COMPRESSION) and is_installed()
    return ledger.traits_of(
        runtime,
        maybe("deferred", "synced", "deferred"),
        None,
        delays_change=maybe("delayed", False, True),
        digest=maybe("digests", "crc32c", "xxh3", "hmac"),
        compression=maybe("compressed", None, "zstd") if can_compress else None,
    )


def _password(world: World, chance: random.Random) -> Password:
    return Password(chance.choice(PASSWORDS) if "passwords" in world.features else b"")


def _all_ledgers(world: World) -> list[LedgerMetadata]:
    """As a client that lists them would learn."""
    return [decode_ledger_metadata(value) for value in world.committed(LEDGERS_PREFIX).values()]


# --- Writing -----------------------------------------------------------------------------------------------


def _user(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    yield from _ready(world, client)
    runtime = _runtime(world, client, Narrow() if "crowds" in world.features else None)
    for _ in range(chance.randint(1, 3)):
        traits, password = _traits(world, runtime, chance), _password(world, chance)
        custom = {REMOVED: client.encode()}
        if "custom" in world.features:
            custom |= {
                f"note {n}": chance.randbytes(chance.randint(0, 40)) for n in range(chance.randint(0, 4))
            }
        steps = ledger.create(runtime, quorum, password, custom, traits)
        try:
            appending = _watch(world, client, (yield from awaited(runtime, steps)))
            for number in range(2 if "crowds" in world.features else 0):
                world.spawn(client, _append_runs(world, client, runtime, appending, number))
            yield from _append_all(world, client, runtime, appending, chance, {}, 0, password)
        except EmbedbkError as error:
            world.note(f"{client}: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 200) * MS)


def _owner(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    """Appends under one producer id, across takeovers; it repeats appends whose outcome it did not receive."""
    yield from _ready(world, client)
    is_narrow = random.Random(f"room of {client} {world.seed}").random() < 0.5
    runtime = _runtime(world, client, Narrow() if is_narrow and "failures" in world.features else None)
    world.spawn(client, asks_for_handles(world, client, runtime))
    placed: dict[int, Position] = {}
    line: Succession | None = None
    owning_of = ""
    for _ in range(chance.randint(1, 3)):
        password = Password(PASSWORDS[world.seed % len(PASSWORDS)] if "passwords" in world.features else b"")
        traits = _traits(world, runtime, chance)
        try:
            if line is not None and not line.appending.is_over:
                yield from awaited(runtime, line.renew(quorum))  # It takes the log over from itself.
            else:
                owning = _Watched(world, client, runtime, LOG, password, quorum, traits)
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
                yield from _append_all(
                    world, client, runtime, line.appending, chance, placed, int(client[1:]), password
                )
        except EmbedbkError as error:
            world.note(f"{client}: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 300) * MS)
    if line is not None and "settings" in world.features:
        line.release()  # Else it grows old for ever, by bounds that somebody gives its log.


class _Watched(Owning):
    """An owner that reports to the observers what is sent to its ledgers."""

    def __init__(self, world: World, client: str, *terms: Any) -> None:
        super().__init__(*terms)
        self._world, self._client = world, client
        # Ledger -> what its packer took, in the order of beginning.
        self.taken: dict[int, dict[int, bytes]] = {}
        self.line: Succession | None = None
        self.serial = 0  # Numbers the appends; each payload contains its own number.

    def begin(self, taken: TakenOver) -> Appending:
        appending = _watch(self._world, self._client, super().begin(taken), self._before_append)
        packer: Any = appending.writing.packer
        self.taken[appending.ledger_id] = packer.taken
        return appending

    def _before_append(self) -> None:
        line = self.line
        bound = None if line is None else line.log_bytes.bound
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
    """As `_append_all`, with a writer that rolls beside what is appended: by its bounds, and when it is asked to."""
    pause_ns, size = chance.choice([0, 1, 5, 30]) * MS, chance.choice([1, 30, 300])
    owning: Any = line.owning
    arrows = random.Random(f"arrows of {client} {world.seed}") if "arrow" in world.features else None
    strays = random.Random(f"strays of {client} {world.seed}") if "failures" in world.features else None
    beside = _beside(world, client)
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


def _numbered(owning: _Watched, client: str, rest: bytes) -> bytes:
    owning.serial += 1
    return b"%s @%d " % (client.encode(), owning.serial) + rest


def _append_unawaited(
    world: World, runtime: Runtime, line: Succession, owning: _Watched, client: str
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


def _several(payloads: Sequence[bytes]) -> Callable[[Appending, AppendTerms], Coroutine[Any, Any, Any]]:
    return lambda appending, terms: appending.append_many(payloads)


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


def _roll_beside(world: World, client: str, runtime: Runtime, line: Succession) -> Steps:
    try:
        yield from awaited(runtime, line.roll())
    except EmbedbkError as error:
        world.note(f"{client}: {type(error).__name__}: {error}")


def _append_all(
    world: World,
    client: str,
    runtime: Runtime,
    appending: Appending,
    chance: random.Random,
    placed: dict[int, Position],
    producer: int,
    password: Password,
) -> Steps:
    """placed: sequence -> its position, as far as it was returned. producer 0: this ledger's own."""
    # Generators of their own, so that what is appended does not depend on them.
    looks = random.Random(appending.ledger_id)
    beside = _beside(world, client)
    varies = _varies(world, client)
    pause_ns, size = chance.choice([0, 1, 5, 30]) * MS, chance.choice([1, 1, 30, 300])
    is_producing = "producers" in world.features and chance.random() < 0.7
    sequence = min((s for s in range(len(placed) + 1) if s not in placed), default=0)
    if not producer:
        producer = 1_000 + appending.ledger_id
    for _ in range(chance.choice([0, 3, 10, 40])):
        mark = b"%d#%d " % (producer, sequence) if is_producing else b"%s " % client.encode()
        payload = varied(mark + chance.randbytes(4).hex().encode() * chance.randint(1, size), varies)
        if is_producing:
            given = dressed(payload, beside)
            yield from _produce(world, client, runtime, appending, chance, placed, producer, sequence, given)
            sequence += 1
        elif "conditional" in world.features and chance.random() < 0.3:
            is_alone = "crowds" not in world.features
            given = dressed(payload, beside)
            yield from _append_if(runtime, appending, chance, given, is_alone=is_alone)
        elif "batches" in world.features and chance.random() < 0.4:
            parts = [payload[begin : begin + 7] for begin in range(0, len(payload), 7)][:500]
            yield from awaited(runtime, appending.append_batch([dressed(part, beside) for part in parts]))
        elif chance.random() < 0.3:
            many = [payload] * chance.randint(1, 20)
            run = [dressed(payload, beside), *(dressed(each, beside) for each in many[1:])]
            yield from awaited(runtime, appending.append_many(many if run[0] is payload else run))
        else:
            appending.try_append(dressed(payload, beside))
        if pause_ns:
            yield Sleep(chance.randint(0, 2 * pause_ns))
        if chance.random() < 0.1:
            yield from awaited(runtime, chance.choice([appending.force, appending.flush])())
        if looks.random() < 0.1:
            yield from _look_at_own(runtime, appending, password)
    ends = chance.choice(["close", "close", "force", "release"])
    if ends == "release":
        appending.release()
    else:
        yield from awaited(runtime, appending.close() if ends == "close" else appending.force())


def _beside(world: World, client: str) -> random.Random | None:
    """What decides which payloads of this client are records with keys and headers; None: none is."""
    return random.Random(f"records of {client} {world.seed}") if "records" in world.features else None


def _varies(world: World, client: str) -> random.Random | None:
    """What decides how far payloads of this client can be compressed; None: nobody compresses any."""
    return random.Random(f"varied of {client} {world.seed}") if "compressed" in world.features else None


def _append_runs(world: World, client: str, runtime: Runtime, appending: Appending, number: int) -> Steps:
    """Append beside others that use this handle: each run stands together, where its call returned (P3.1)."""
    name = f"{client}.{appending.ledger_id}.{number}"
    chance = random.Random(f"runs {name} {world.seed}")
    sent: Any = appending.writing
    for turn in range(chance.randint(1, 8)):
        size = chance.choice([1, 100, 700])
        run = [b"%s %d %d " % (name.encode(), turn, at) + b"z" * size for at in range(chance.randint(1, 12))]
        try:
            appended = yield from awaited(runtime, appending.append_many(run))
        except EmbedbkError as error:
            world.note(f"{name}: {type(error).__name__}: {error}")
            return
        if sent.lac < appended.last_entry and appending.durability == "synced":
            raise Violation("P3.3", f"{name}: told of {appended.last_entry}, and the LAC is {sent.lac}")
        if [sent.packer.taken.get(at) for at in range(appended.first_entry, appended.last_entry + 1)] != run:
            raise Violation("P3.1", f"{name}: what it appended does not stand at {appended}")
        yield Sleep(chance.randint(0, 20) * MS)


def _look_at_own(runtime: Runtime, appending: Appending, password: Password) -> Steps:
    """Open a ledger that this client writes itself, and read as far as allowed: `promises` checks how far that must be
    (I100)."""
    steps = LedgerReading.open(runtime, appending.ledger_id, password, recover=False)
    reading = yield from awaited(runtime, steps)
    try:
        yield from awaited(runtime, reading.limit())
    finally:
        reading.close()


def _produce(
    world: World,
    client: str,
    runtime: Runtime,
    appending: Appending,
    chance: random.Random,
    placed: dict[int, Position],
    producer: int,
    sequence: int,
    payload: Any,
) -> Steps:
    """Append under a sequence, and now and then once more: it must stand where it stood."""
    terms = AppendTerms(producer=(producer, sequence))
    while True:
        at = yield from awaited(runtime, appending.append(payload, terms))
        if placed.setdefault(sequence, at) != at:
            raise Violation(
                "idempotence", f"{client}: sequence {sequence} stands at {placed[sequence]} and at {at}"
            )
        if chance.random() < 0.8 or "truncates" in world.features:
            return  # A truncated append is not known under its sequence any more.
        earlier = chance.choice(list(placed)[-20:])
        try:
            at = yield from awaited(
                runtime, appending.append(b"again", AppendTerms(producer=(producer, earlier)))
            )
        except UsageError as forgotten:
            world.note(f"{client}: {forgotten}")
            return
        if at != placed[earlier]:
            raise Violation(
                "idempotence", f"{client}: sequence {earlier} stands at {placed[earlier]} and at {at}"
            )


def _append_if(
    runtime: Runtime, appending: Appending, chance: random.Random, payload: Any, *, is_alone: bool
) -> Steps:
    """The condition that holds is no conflict; one that does not appends nothing. Beside others either may come true or
    false meanwhile, and what was appended stands behind what was named."""
    last, is_right = appending.last_position, chance.random() < 0.5
    if not is_right:
        last = Position(appending.ledger_id, appending.writing.packer.last_entry + chance.randint(1, 5))
    try:
        at = yield from awaited(runtime, appending.append(payload, AppendTerms(after=last)))
    except AppendConflict:
        if is_right and is_alone:
            raise Violation("condition", f"not appended behind {last}, which stands there") from None
        return
    # What was named may have been outstanding when its ledger failed: it moved, and what was appended with it (P8.2).
    if last.ledger_id == appending.ledger_id:
        handle, entry_id = appending.now(last.entry_id)
        last = Position(handle.ledger_id, entry_id)
    behind = last.entry_id + 1 if last.ledger_id == at.ledger_id else 0  # The first of a next ledger (P8.2).
    if at.entry_id != behind or (is_alone and not is_right):
        raise Violation("condition", f"appended behind {last}, and stands at {at}")


def _asks_for_entry_logs(world: World, client: str, runtime: Runtime, chance: random.Random) -> Steps:
    """As the view of entry logs does, beside compaction and collection."""
    for _ in range(chance.randint(1, 4)):
        yield Sleep(chance.randint(0, 1_500) * MS)
        bookies = world.nodes[client].bookies
        if not bookies or not runtime.has_level(LEVEL_OF_ENTRY_LOGS):
            continue
        member = chance.choice(bookies).member
        try:
            logs = yield from awaited(runtime, runtime.run(EntryLogsQuery(member), "asking for entry logs"))
        except EmbedbkError as untold:
            world.note(f"{client}: {untold}")
            continue
        world.sometimes["entry logs told"] += 1
        for each in logs:
            if not 0 <= each.live_bytes <= each.entries_bytes <= each.file_bytes:
                raise Violation(
                    "views", f"{member} tells of an entry log that has not what it counts: {each}"
                )


# --- Reading -----------------------------------------------------------------------------------------------


def _visitor(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    yield from _ready(world, client)
    runtime = _runtime(world, client)
    world.spawn(client, asks_for_handles(world, client, runtime))
    truncating = random.Random(f"truncates of {client} {world.seed}")
    settling = random.Random(f"settings of {client} {world.seed}")
    sealing = random.Random(f"seals of {client} {world.seed}")
    consuming = random.Random(f"consumes of {client} {world.seed}")
    own_times = random.Random(f"times of {client} {world.seed}")
    splicing = random.Random(f"splices of {client} {world.seed}")
    renaming = random.Random(f"renames of {client} {world.seed}")
    archiving = random.Random(f"archives of {client} {world.seed}")
    if "archives" in world.features and archiving.random() < 0.8:
        password = PASSWORDS[world.seed % len(PASSWORDS)] if "passwords" in world.features else b""
        reading = LogReading(runtime, LOG, Password(password))
        world.spawn(client, archives(world, client, runtime, reading, archiving))
    if "bulk" in world.features:
        own = random.Random(f"bulk of {client} {world.seed}")
        password = PASSWORDS[world.seed % len(PASSWORDS)] if "passwords" in world.features else b""
        reading = LogReading(runtime, LOG, Password(password))
        world.spawn(client, reads_in_bulk(world, client, runtime, reading, own))
    listing = random.Random(f"entry logs of {client} {world.seed}")
    if listing.random() < 0.3:
        world.spawn(client, _asks_for_entry_logs(world, client, runtime, listing))
    if "renames" in world.features and renaming.random() < 0.7:
        password = PASSWORDS[world.seed % len(PASSWORDS)] if "passwords" in world.features else b""
        reading = LogReading(runtime, LOG, Password(password))
        world.spawn(client, renames(world, client, runtime, reading, renaming))
    for _ in range(chance.randint(1, 6)):
        known = _all_ledgers(world)
        try:
            if known and chance.random() < 0.7:
                yield from _visit(
                    world, client, runtime, chance.choice([known[-1], chance.choice(known)]), chance
                )
            else:
                password = PASSWORDS[world.seed % len(PASSWORDS)] if "passwords" in world.features else b""
                reading = LogReading(runtime, LOG, Password(password))
                if "truncates" in world.features and truncating.random() < 0.7:
                    act = truncating.choice([truncates, truncates, pin_and_read])
                    yield from act(world, client, runtime, reading, truncating)
                    continue
                if "settings" in world.features and settling.random() < 0.4:
                    yield from changes_settings(world, client, runtime, reading, settling, quorum)
                    continue
                if "seals" in world.features and sealing.random() < 0.2:
                    yield from seals(world, client, runtime, reading, quorum)
                    continue
                if "splices" in world.features and splicing.random() < 0.5:
                    yield from splices_in(
                        world,
                        client,
                        runtime,
                        reading,
                        splicing,
                        quorum,
                        lambda made: _watch(world, client, made),
                    )
                    continue
                if "cursors" in world.features and consuming.random() < 0.7:
                    yield from uses_cursors(world, client, runtime, reading, consuming)
                    continue
                if "times" in world.features and own_times.random() < 0.4:
                    yield from _look_for_times(world, client, runtime, reading, own_times)
                    continue
                located = reading.tail(0, 1.0) if chance.random() < 0.3 else reading.read(None, None)
                yield from _take(world, client, runtime, located)
        except EmbedbkError as error:
            world.note(f"{client}: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 300) * MS)


def _visit(
    world: World, client: str, runtime: Runtime, metadata: LedgerMetadata, chance: random.Random
) -> Steps:
    ledger_id = metadata.ledger_id
    password: Any = _BY_VERIFIER.get(metadata.password_verifier)
    if password is None:
        return  # The ledger of a writer below the faces.
    steps = LedgerReading.open(runtime, ledger_id, password, recover=chance.random() < 0.3)
    reading = yield from awaited(runtime, steps)
    try:
        if "unconfirmed" in world.features and chance.random() < 0.4:
            frames = reading.read_unconfirmed(0, None)
            yield from _take(world, client, runtime, frames, lambda: not reading.is_closed)
        elif chance.random() < 0.3:
            yield from awaited(runtime, reading.try_limit())
        yield from _take(world, client, runtime, reading.read(0, None))
    finally:
        reading.close()


def _look_for_times(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random
) -> Steps:
    """P8.11: times never fall along the log, and looking for one finds where they pass it."""
    known: list[tuple[int, int]] = []  # (offset, time), as entries carry them.
    frames = reading.read(None, None)
    while True:
        try:
            located = yield from awaited(runtime, frames.__anext__())
        except StopAsyncIteration:
            break
        for entry in entries_of(located):
            told = time_of(entry._attributes)
            known += [] if told is None else [(entry.offset, told)]
    for (before, one), (offset, other) in pairwise(known):
        if other < one:
            raise Violation(
                "P8.11", f"{client}: offset {before} is of {one} ms, and offset {offset} of {other}"
            )
    if not known:
        return
    wanted = chance.choice(known)[1] + chance.choice([-1, 0, 0, 1])
    found = yield from awaited(runtime, reading.first_at(wanted))
    world.sometimes["time looked for in a log"] += 1
    for offset, told in known:
        if (told >= wanted) != (offset >= found):
            # A log truncated meanwhile begins behind it, whatever its time.
            first = (yield from awaited(runtime, reading.listed())).first_offset
            if offset >= first:
                raise Violation(
                    "P8.11", f"{client}: {wanted} ms begins at {found}, and offset {offset} is of {told}"
                )


def _take(
    world: World,
    client: str,
    runtime: Runtime,
    frames: AsyncGenerator[Located, None],
    is_unconfirmed: Callable[[], bool] = lambda: False,
) -> Steps:
    """Yield everything that comes, reported frame by frame.

    is_unconfirmed: asked with each, since a handle that reads beyond the LAC may learn meanwhile that its ledger was
    closed, and then it ends there like any other (I38).
    """
    while True:
        try:
            located = yield from awaited(runtime, frames.__anext__())
        except StopAsyncIteration:
            return
        entries, ledger_id = list(entries_of(located)), located.frame.ledger_id
        told = [
            (entry.entry_id, stored_of(world, client, ledger_id, entry.entry_id, bytes(entry)))
            for entry in entries
        ]
        world.tell("on_read", client, ledger_id, told, is_unconfirmed())
        for entry in entries:
            if b"".join(entry.parts) != bytes(entry.data):
                raise Violation("batch", f"entry {entry.position}: its parts are not its bytes")
            world.sometimes["record read with its key"] += are_records_right(entry, entry._attributes)


# --- Ending ------------------------------------------------------------------------------------------------


def _remover(world: World, client: str, chance: random.Random, quorum: Quorum) -> Steps:
    yield from _ready(world, client)
    runtime = _runtime(world, client, Settings(delete_grace_s=GRACE_S))
    own_chance = random.Random(f"logs of {client} {world.seed}")
    for _ in range(chance.randint(1, 6)):
        mine = [metadata for metadata in _all_ledgers(world) if REMOVED in metadata.custom]
        try:
            if mine:
                metadata = chance.choice(mine)
                password: Any = _BY_VERIFIER[metadata.password_verifier]
                yield from awaited(
                    runtime, deleting.delete(runtime, metadata.ledger_id, password, force=False)
                )
                yield Sleep(chance.randint(0, 3_000) * MS)
                if chance.random() < 0.5:
                    yield from awaited(runtime, deleting.undelete(runtime, metadata.ledger_id, password))
                else:
                    yield from awaited(runtime, log_deleting.forget_deleted(runtime))
            if own_chance.random() < 0.4:
                yield from _use_and_delete_a_log(world, client, runtime, own_chance, quorum)
        except EmbedbkError as error:
            world.note(f"{client}: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 300) * MS)


def _use_and_delete_a_log(
    world: World, client: str, runtime: Runtime, chance: random.Random, quorum: Quorum
) -> Steps:
    """A log that others take over and delete at the same time; reading it meanwhile."""
    password = Password(b"")
    if chance.random() < 0.7:
        # Each ledger of it is watched: one that fails is followed by another, which takes what was outstanding (P8.2).
        owning = _Watched(
            world, client, runtime, BRIEF_LOG, password, quorum, _traits(world, runtime, chance)
        )
        appending = Succession(owning, (yield from awaited(runtime, owning.take_over()))).appending
        for _ in range(chance.choice([0, 0, 1, 5])):
            yield from awaited(runtime, appending.append(b"%s in brief" % client.encode()))
        yield from awaited(runtime, appending.close())
    if chance.random() < 0.4:
        yield from _take(world, client, runtime, LogReading(runtime, BRIEF_LOG, password).read(None, None))
    if chance.random() < 0.6:
        yield from awaited(runtime, log_deleting.delete_log(runtime, BRIEF_LOG, password, force=False))


APPLICATIONS = {
    "user": _user, "owner": _owner, "visitor": _visitor, "remover": _remover, "mender": mender,
}  # fmt: skip
