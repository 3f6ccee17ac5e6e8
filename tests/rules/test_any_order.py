"""The promises under chance: a writer, recoverers and readers, bookies that crash, messages lost, doubled and late.

The world checks its promises after every step (`World.check`). At the end everything is healed, the ledger is closed by
one more recovery, and a reader that knows nothing gets every acknowledged entry, byte for byte (P5.3, I2, I3, I5).
"""

from __future__ import annotations

from collections import Counter

import pytest

from embedbk.codec.ledger_metadata import Begun, decode_log_list, ledger_key_path, log_key_path
from embedbk.config import Quorum
from embedbk.core.lac_reader import LacRead
from embedbk.core.leaving import Leaving
from embedbk.core.log import LogTakeover
from embedbk.core.log_listing import NewLedger, TakenOver
from embedbk.core.reader import RangeRead
from embedbk.errors import (
    EmbedbkError,
    LedgerClosed,
    LedgerFenced,
    MetadataUnavailable,
    NotEnoughBookies,
    RecoveryInconclusive,
)
from embedbk.ids import NO_ENTRY
from tests.rules.weather import Weather
from tests.rules.world import KEY, Client, Pen

QUORUMS = [
    Quorum(3, 3, 2),
    Quorum(2, 2, 1),
    Quorum(3, 2, 2),
    Quorum(4, 3, 2),
    Quorum(5, 3, 2),
    Quorum(3, 3, 3),
]
ENTRIES = 14
STEPS = 900
PARTS = 12  # So that more than one worker has something to do.
SEEDS = 600
LOG = "orders"


class Storm(Weather):
    """One ledger: its writer, who recovers it, who reads it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, QUORUMS)
        metadata, revision = self.world.create(self.quorum)
        self.ledger_id = metadata.ledger_id
        self.writer = self.world.writer(metadata, revision)
        self.pen = Pen(self.ledger_id)
        self.recoveries: list[Client] = []
        self.readers: list[Client] = []
        self.start_at = sorted(self.chance.randrange(STEPS) for _ in range(self.chance.randrange(3)))

    def run(self) -> None:
        for step in range(STEPS):
            if self.start_at and step >= self.start_at[0]:
                self.start_at.pop(0)
                self.recover()
            self.step()
            if step % 50 == 0:
                self.world.tell_bookies()
        self.heal()
        self.check()

    def recover(self) -> Client:
        recovery = self.world.recovery(self.ledger_id, f"r{len(self.recoveries)}")
        self.recoveries.append(recovery)
        recovery.start()
        return recovery

    def act(self) -> bool:
        dice = self.chance.random()
        if dice < 0.85 and self.writer.core.wants_frame(is_full=True) and self.pen.next_entry < ENTRIES:
            count = 1 + self.chance.randrange(3)
            self.world.add(
                self.writer, self.pen, *[b"%d" % self.chance.getrandbits(30) for _ in range(count)]
            )
        elif dice < 0.89 and self.pen.next_entry >= ENTRIES:
            self.world.close(self.writer)
        elif dice > 0.89:
            self.read_up_to_the_lac()
        else:
            return False
        return True

    def read_up_to_the_lac(self) -> None:
        """A reader without recovery learns the LAC, then reads up to it; I9: nothing above what was acknowledged."""
        for reader in self.readers:
            if reader.has_ended and isinstance(reader.core, LacRead) and reader.ended.error is None:
                lac = reader.ended.result[0]
                self.readers.remove(reader)
                closed_at = self.world.catalog.metadata(self.ledger_id)[0].last_entry
                assert lac <= max(self.world.acked.get(self.ledger_id, NO_ENTRY), closed_at or NO_ENTRY)
                if lac >= 0:
                    self.readers.append(self.world.reader(self.ledger_id, 0, lac))
                    self.readers[-1].start()
                return
        if len(self.readers) < 3:
            metadata, _ = self.world.catalog.metadata(self.ledger_id)
            self.readers.append(self.world.client("lac", LacRead(metadata)))
            self.readers[-1].start()

    # The end.

    def heal(self) -> None:
        world = self.world
        self.clear_up()
        clients = [*self.recoveries, *self.readers]
        world.run(until=lambda: all(client.has_ended for client in clients))
        assert all(client.has_ended for client in clients), "somebody waits for ever"
        if not world.catalog.metadata(self.ledger_id)[0].is_closed:
            last = self.recover()
            world.run(until=lambda: last.has_ended)
            assert last.ended.error is None, last.ended.error

    def check(self) -> None:
        world = self.world
        closed = world.check_end(self.ledger_id)
        world.run(seconds=30)
        world.close(self.writer)
        world.run(until=lambda: self.writer.has_ended)
        assert world.check_end(self.ledger_id) == closed
        for recovery in self.recoveries:
            error = recovery.ended.error
            assert error is None or isinstance(error, RecoveryInconclusive)
            assert (
                error is not None or recovery.ended.result[0] == closed
            )  # One end, told to everybody alike.
        for reader in self.readers:
            if isinstance(reader.core, RangeRead):
                entries = [self.world.sent[self.ledger_id, entry_id] for entry_id, _ in reader.read]
                assert all(payload in entry for entry, (_, payload) in zip(entries, reader.read, strict=True))
                self.seen["read"] += 1
        self.check_what_the_writer_was_told(closed.last_entry)
        self.seen["recovered"] += any(r.ended.error is None for r in self.recoveries)
        self.seen["inconclusive"] += any(r.ended.error is not None for r in self.recoveries)
        self.seen["changed"] += len(closed.fragments) > 1

    def check_what_the_writer_was_told(self, last_entry: int) -> None:
        """P3.6, I39: a failed add may survive or not; a close that succeeded names the true end."""
        ended = self.writer.ended
        if ended.error is None:
            assert ended.result[0] == last_entry
        else:
            assert isinstance(ended.error, EmbedbkError)
        if self.writer.failure is not None:
            assert isinstance(self.writer.failure, LedgerFenced | LedgerClosed | NotEnoughBookies)
            assert not self.writer.failure.definite
            self.seen[type(self.writer.failure).__name__] += 1


class LogStorm(Weather):
    """One log: processes that take it over again and again, each believing that it leads, and append."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, [quorum for quorum in QUORUMS if quorum.ensemble_size < 5])
        self.takeovers: list[Client] = []
        self.leaving: dict[Client, Client] = {}  # What deletes ledgers behind a takeover (P8.3).
        self.writers: dict[int, tuple[Client, Pen]] = {}  # By ledger.
        self.acks: list[int] = []  # Ledgers, in the order in which anything of them was acknowledged.

    def run(self) -> None:
        for step in range(STEPS):
            self.step()
            self.note()
            if step % 50 == 0:
                self.world.tell_bookies()
        self.check()

    def take_over(self) -> Client:
        name = f"p{len(self.takeovers)}"
        world = self.world
        core = LogTakeover(
            LOG,
            name.encode(),
            NewLedger(self.quorum, bytes(16), 0, Begun.TAKEOVER),
            KEY,
            world.bookies,
            world.chance,
        )
        self.takeovers.append(world.client(name, core))
        self.takeovers[-1].start()
        return self.takeovers[-1]

    def act(self) -> bool:
        if self.chance.random() < 0.04 and sum(not t.is_over for t in self.takeovers) < 3:
            self.take_over()
            return True
        if self.chance.random() < 0.01 and self.takeovers:
            dead = self.chance.choice(self.takeovers)  # A process dies on its way.
            dead.is_gone = self.leaving.get(dead, dead).is_gone = True
            return True
        writing = [each for each in self.writers.values() if each[0].core.wants_frame(is_full=True)]
        if not writing:
            return False
        writer, pen = self.chance.choice(writing)
        self.world.add(writer, pen, b"%d" % self.chance.getrandbits(30))
        return True

    def note(self) -> None:
        """Who took the log over begins to append; and the order of acknowledgements is remembered."""
        for takeover in self.takeovers:
            if takeover.has_ended and takeover.ended.error is None:
                over = takeover.ended.result
                assert isinstance(over, TakenOver)
                if takeover not in self.leaving and not takeover.is_gone:
                    listed = frozenset(segment.ledger_id for segment in over.log_list.segments)
                    core = Leaving(LOG, over.list_revision, listed, KEY)
                    self.leaving[takeover] = self.world.client(f"left behind {takeover.name}", core)
                    self.leaving[takeover].start()
                if over.metadata.ledger_id not in self.writers:
                    writer = self.world.writer(over.metadata, over.revision, f"w of {takeover.name}")
                    self.writers[over.metadata.ledger_id] = (writer, Pen(over.metadata.ledger_id))
        acked = {ledger_id: lac for ledger_id, lac in self.world.acked.items() if lac >= 0}
        for ledger_id, lac in acked.items():
            if self.seen[f"lac {ledger_id}"] != lac + 1:
                self.seen[f"lac {ledger_id}"] = lac + 1
                self.acks.append(ledger_id)

    def check(self) -> None:
        self.clear_up()
        world = self.world
        world.run(until=lambda: all(takeover.is_over for takeover in self.takeovers))
        assert all(takeover.is_over for takeover in self.takeovers), "somebody waits for ever"
        final = self.take_over()
        world.run(until=lambda: final.has_ended)
        assert final.ended.error is None, final.ended.error
        self.note()
        world.run(until=lambda: self.leaving[final].has_ended)
        for leaving in self.leaving.values():
            if leaving.has_ended:
                assert leaving.ended.error is None
                self.seen["empty ledgers deleted"] += len(leaving.ended.result)
        segments = decode_log_list(world.catalog.values[log_key_path(LOG)][0]).segments
        order = [segment.ledger_id for segment in segments]
        assert all(ledger_key_path(ledger_id) in world.catalog.values for ledger_id in order)  # P8.3
        assert set(self.acks) <= set(order)  # I90
        places = [order.index(ledger_id) for ledger_id in self.acks]
        assert places == sorted(places), "an older leader was acknowledged after a newer one (I92, I94)"
        offset = 0
        for segment in segments[:-1]:
            assert segment.last_entry is not None  # I91
            assert segment.first_offset == offset  # I93
            offset += segment.last_entry + 1
            assert world.check_end(segment.ledger_id).last_entry == segment.last_entry
        for takeover in self.takeovers:
            if takeover.has_ended and takeover.ended.error is not None:
                self.check_error(takeover)
        self.seen["leaders that appended"] += len(set(self.acks))

    def check_error(self, takeover: Client) -> None:
        error = takeover.ended.error
        expected = LedgerFenced | RecoveryInconclusive | NotEnoughBookies | MetadataUnavailable
        assert isinstance(error, expected)
        is_certain = isinstance(error, LedgerFenced | NotEnoughBookies | MetadataUnavailable)
        if takeover.is_unsure and isinstance(error, NotEnoughBookies):
            is_certain = error.definite  # Its ledger may be listed still (P2.2).
        assert error.definite == is_certain
        self.seen[type(error).__name__] += 1


def weather_of(kind: type[Storm] | type[LogStorm], part: int) -> Counter[str]:
    """Every PARTS-th seed; what was seen in them."""
    seen: Counter[str] = Counter()
    for seed in range(part, SEEDS, PARTS):
        storm = kind(seed)
        try:
            storm.run()
        except BaseException as broken:
            broken.add_note(str(storm))
            raise
        seen += storm.seen
    return seen


@pytest.mark.parametrize("part", range(PARTS))
def test_a_ledger_keeps_its_promises_whatever_happens(part: int) -> None:
    """P5.3: *the* property, with I2 I3 I4 I5 I9 I11 I12 I19 I21 I28 at every step."""
    seen = weather_of(Storm, part)
    # Else the part was blind to something (S2).
    for what in ("crash", "unknown", "landed late", "disk lost", "bad copy", "read", "recovered", "changed"):
        assert seen[what], f"never seen: {what}"


@pytest.mark.parametrize("part", range(PARTS))
def test_a_log_keeps_its_promises_whatever_happens(part: int) -> None:
    """P8.1, P8.4, I90 to I95: any number of leaders; what was acknowledged is there, in order, once."""
    seen = weather_of(LogStorm, part)
    for what in (
        "crash",
        "unknown",
        "landed late",
        "LedgerFenced",
        "leaders that appended",
        "empty ledgers deleted",
    ):
        assert seen[what], f"never seen: {what}"


def test_the_same_seed_gives_the_same_story() -> None:
    """S1: same events, same effects: two runs of one seed end in equal states, core by core."""
    digests = []
    for _ in range(2):
        storm = Storm(7)
        storm.run()
        digests.append([client.core.digest() for client in storm.world.clients])
        digests[-1] += [node.core.digest() for node in storm.world.nodes.values()]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) > 3


def test_a_copied_core_goes_its_own_way() -> None:
    """Machine.copy and digest: at any moment of any core, the copy is equal, and then independent."""
    storm = Storm(11)
    for _ in range(300):
        storm.step()
        for client in storm.world.clients:
            assert client.core.digest() == client.core.copy().digest(), client.name
    twin = storm.writer.core.copy()
    before = twin.digest()
    storm.run()
    assert twin.digest() == before
