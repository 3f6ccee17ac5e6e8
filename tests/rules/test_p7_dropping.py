"""P7.3, P7.7: which data a bookie drops, after which reads, and what stays of it for ever."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from embedbk.codec.add_messages import AddRequest, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import ABSENT, Told
from embedbk.codec.read_messages import ReadAnswer
from embedbk.codec.read_messages import ReadRequest as Read
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.tombstone import tombstone_path
from embedbk.core.bookie_words import (
    CollectionBegun,
    DropAllowed,
    DropEntries,
    EntriesRead,
    RequestReceived,
    SharePart,
    ShareTold,
)
from embedbk.core.collector import Collector, CollectorOptions
from embedbk.core.machine import Effect, Event
from embedbk.core.metadata_words import (
    KeyRead,
    KeysListed,
    ListKeys,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.core.upkeep_words import (
    AllowDrop,
    AskMetadata,
    BeginCollection,
    HeldListed,
    ListHeld,
    MetadataTold,
    NameUnread,
)
from embedbk.core.vocabulary import Started, Tick
from embedbk.ids import NO_ENTRY
from tests.rules.world import KEY, Node, Pen, World

OPTIONS = CollectorOptions(interval_ns=1000, pace_ns=10, page_ledgers=4, alone_max=2)
I_DIE = b"b1 of a disk...."
OTHERS = (("b2", b"2" * 16), ("b3", b"3" * 16), ("b4", b"4" * 16))
WITH_US = (("b1", I_DIE), *OTHERS[:2])


def metadata(
    ledger_id: int, state: LedgerState = LedgerState.OPEN, *ensembles: tuple[tuple[str, bytes], ...]
) -> bytes:
    """A ledger of entries 0..9, one fragment per ensemble."""
    fragments = tuple(
        Fragment(3 * number, 0, ensemble) for number, ensemble in enumerate(ensembles or (WITH_US,))
    )
    last = 9 if state == LedgerState.CLOSED else None
    return encode_ledger_metadata(
        LedgerMetadata(
            METADATA_VERSION, ledger_id, 3, 3, 2, state, last, 90 if last else None, b"", 0, {}, fragments
        )
    )


class Quorum:
    """The keys that a collector asks for; answers are changed or refused by its switches."""

    def __init__(self, held: list[int], ids_end: int = 1000) -> None:
        self.keys: dict[str, bytes] = {}
        self.held = held
        self.ids_end = ids_end
        self.count, self.nonce = 3, b"this start......"
        self.spared: list[tuple[int, int]] = []
        self.stale: list[tuple[int, int]] = []
        self.doubt = ""
        self.collector = Collector("b1", OPTIONS)
        self.allowed: list[int] = []
        self.begun: list[int] = []
        self.unread: list[str] = []
        self.asked: list[Effect] = []
        self.change: Callable[[Effect, Event], Event] = lambda effect, event: event
        self.now_ns = 0
        self.run(Started(0))

    def revision(self, key: str) -> int:
        return 7 + len(self.keys[key]) if key in self.keys else ABSENT

    def answer(self, effect: Effect) -> Event | None:
        now = self.now_ns
        if isinstance(effect, ListHeld):
            above = [each for each in self.held if each > effect.after]
            return HeldListed(now, effect.tag, above[: effect.limit], len(above) > effect.limit)
        if isinstance(effect, ListKeys):
            keys = sorted(key for key in self.keys if key.startswith(effect.prefix) and key > effect.after)
            page = [(key, self.keys[key]) for key in keys[: effect.limit]]
            return KeysListed(now, effect.tag, page, len(keys) > effect.limit)
        if isinstance(effect, AskMetadata):
            told = Told(bytes(16), self.count, self.nonce, 9, self.ids_end, self.spared, stale=self.stale)
            return MetadataTold(now, effect.tag, told, self.doubt)
        if isinstance(effect, ReadKey):
            return KeyRead(now, effect.tag, self.keys.get(effect.key), self.revision(effect.key))
        if isinstance(effect, Transact):
            assert effect.then == [], "a collector changes nothing"
            holds = all(self.revision(compare.key) == compare.revision for compare in effect.when)
            return Transacted(now, effect.tag, holds, 1)
        if isinstance(effect, NameUnread):
            self.unread.append(effect.key)
        elif isinstance(effect, AllowDrop):
            self.allowed.append(effect.ledger_id)
        else:
            assert isinstance(effect, BeginCollection)
            self.begun += effect.ledger_ids
        return None

    def run(self, event: Event) -> None:
        for effect in self.collector.step(event):
            self.asked.append(effect)
            answer = self.answer(effect)
            if answer is not None:
                self.run(self.change(effect, answer))

    def round(self) -> list[int]:
        """One round; the ledgers that may be dropped."""
        rounds, self.allowed, self.begun, self.asked = self.collector.round_count, [], [], []
        while self.collector.round_count == rounds and self.collector.deadline_ns is not None:
            self.now_ns = self.collector.deadline_ns
            self.run(Tick(self.now_ns))
        return self.allowed

    def put(self, ledger_id: int, value: bytes) -> None:
        self.keys[ledger_key_path(ledger_id)] = value


def test_only_what_metadata_does_not_know_or_seats_elsewhere_is_dropped() -> None:
    """Rule P7.7, I35: key and tombstone absent; or CLOSED, no fragment names this bookie, no repair mark. OPEN and
    IN_RECOVERY ledgers are never dropped, whoever they name."""
    quorum = Quorum([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    quorum.put(1, metadata(1))
    quorum.put(2, metadata(2, LedgerState.OPEN, OTHERS))
    quorum.put(3, metadata(3, LedgerState.IN_RECOVERY, OTHERS))
    quorum.put(4, metadata(4, LedgerState.CLOSED, OTHERS, WITH_US))
    quorum.put(5, metadata(5, LedgerState.CLOSED, OTHERS))  # Moved away.
    quorum.put(6, metadata(6, LedgerState.CLOSED, OTHERS))
    quorum.keys[repair_mark_path(6)] = b"to b1"
    quorum.keys[tombstone_path(7)] = b"it may come back"
    quorum.put(9, b"of a version that nobody here can read")
    quorum.put(10, metadata(10, LedgerState.CLOSED, (("b1", b"another disk...."), *OTHERS[:2])))
    assert quorum.round() == [5, 8, 11]
    assert quorum.begun == quorum.held


def test_the_bookie_watches_before_metadata_is_asked() -> None:
    """Rule P7.7: the reads are made after it saw the data."""
    quorum = Quorum([8])
    quorum.put(1, metadata(1))
    quorum.round()
    kinds = [type(effect) for effect in quorum.asked]
    assert kinds == [
        ListHeld,
        BeginCollection,
        ListKeys,
        AskMetadata,
        ReadKey,
        Transact,
        AskMetadata,
        AllowDrop,
    ]


def test_a_listing_that_loses_keys_drops_nothing() -> None:
    """Scenario 37 (#865, BK-663, BK-596, BK-193): a listing that ends early, or loses the last item of a range."""
    held = list(range(1, 20))
    for seed in range(40):
        quorum, chance = Quorum(held), random.Random(seed)
        for ledger_id in held:
            if ledger_id != 13:
                quorum.put(ledger_id, metadata(ledger_id))

        def lossy(effect: Effect, event: Event, chance: random.Random = chance) -> Event:
            if isinstance(event, KeysListed) and chance.random() < 0.5:
                kept = event.records[: chance.randrange(len(event.records) + 1)]
                return KeysListed(event.now_ns, event.tag, kept, event.has_more and chance.random() < 0.5)
            return event

        quorum.change = lossy
        assert quorum.round() in ([13], [])


def test_a_wrong_listing_needs_a_second_read_that_agrees() -> None:
    """Scenario 38 (#870): a wrong listing anyway, and the ledger's own key is read; a key that is read wrongly once,
    and the transaction checks it again."""
    quorum = Quorum([1])
    quorum.put(1, metadata(1))
    quorum.put(900, metadata(900))
    quorum.change = lambda effect, event: (
        KeysListed(event.now_ns, event.tag, [], False) if isinstance(event, KeysListed) else event
    )
    assert quorum.round() == []
    quorum.change = lambda effect, event: (
        KeyRead(event.now_ns, event.tag, None, 0) if isinstance(event, KeyRead) else event
    )
    assert quorum.round() == []
    quorum.keys.pop(ledger_key_path(1))
    quorum.change = lambda effect, event: event
    assert quorum.round() == [1]


def test_what_the_reads_say_differently_is_kept() -> None:
    """Scenario 37: the listing races with a deletion or a repair; what it showed and what is read must be alike."""
    quorum = Quorum([1, 2])
    quorum.put(1, metadata(1, LedgerState.CLOSED, OTHERS))

    def race(effect: Effect, event: Event) -> Event:
        if isinstance(effect, ListKeys):
            quorum.keys.pop(ledger_key_path(1), None)
            quorum.put(2, metadata(2, LedgerState.CLOSED, OTHERS))
        return event

    quorum.change = race
    assert quorum.round() == []
    assert quorum.round() == [1, 2]


def test_a_ledger_that_is_brought_back_between_two_reads_is_kept() -> None:
    """Rule P7.7, CL31: its key was read before it came back, its tombstone after: it would be in neither place."""
    quorum = Quorum([1])
    quorum.keys[tombstone_path(1)] = b"deleted"

    def bring_back(effect: Effect, event: Event) -> Event:
        if isinstance(effect, ReadKey):
            del quorum.keys[tombstone_path(1)]
            quorum.put(1, metadata(1))
        return event

    quorum.change = bring_back
    assert quorum.round() == []


def test_a_ledger_that_is_seated_here_between_two_reads_is_kept() -> None:
    """Rule P7.7, I35: a repair that moved its copies here published that, and took its mark away, behind the first
    read: what the last one checks is the very metadata that was read."""
    quorum = Quorum([1])
    quorum.put(1, metadata(1, LedgerState.CLOSED, OTHERS))

    def publish(effect: Effect, event: Event) -> Event:
        if isinstance(effect, ReadKey):
            quorum.put(1, metadata(1, LedgerState.CLOSED, OTHERS, WITH_US))
        return event

    quorum.change = publish
    assert quorum.round() == []


def test_an_empty_listing_concludes_nothing_by_itself() -> None:
    """Rule P7.7, I35: empty, it says nothing; a few ledgers are asked about one by one, by two reads each."""
    quorum = Quorum([1, 2, 3])
    for ledger_id in (1, 3):
        quorum.put(ledger_id, metadata(ledger_id))
    quorum.change = lambda effect, event: (
        KeysListed(event.now_ns, event.tag, [], False) if isinstance(event, KeysListed) else event
    )
    assert quorum.round() == [2]
    assert sum(isinstance(effect, ReadKey) for effect in quorum.asked) == OPTIONS.alone_max


@pytest.mark.parametrize("kind", [ListKeys, AskMetadata, ReadKey, Transact])
def test_a_failed_read_ends_the_round_and_drops_nothing(kind: type) -> None:
    """Rule P7.7: a failed listing drops nothing, and neither does any other answer that did not come."""
    quorum = Quorum([1, 2])
    quorum.put(2, metadata(2))

    def fail(effect: Effect, event: Event) -> Event:
        if isinstance(effect, kind):
            refused = TransactUnknown if kind is Transact else MetadataFailed
            return refused(event.now_ns, event.tag, *([] if kind is Transact else ["no leader"]))  # type: ignore[no-any-return]
        return event

    quorum.change = fail
    assert quorum.round() == []
    quorum.change = lambda effect, event: event
    assert quorum.round() == [1]


def test_a_late_answer_of_a_round_that_was_given_up_counts_for_nothing() -> None:
    """I35: what was asked about one ledger is never taken for an answer about another."""
    quorum = Quorum([1])
    late: list[Event] = []

    def hold(effect: Effect, event: Event) -> Event:
        if isinstance(effect, Transact):
            late.append(event)
            return TransactUnknown(event.now_ns, effect.tag)
        return event

    quorum.change = hold
    assert quorum.round() == []
    quorum.run(late[0])
    assert quorum.allowed == []


def test_metadata_that_is_older_than_the_bookie_drops_nothing() -> None:
    """I35, P10.5: as long as it is; the newer one may be put back, or an operator begin a generation."""
    quorum = Quorum([1, 2])
    quorum.put(1, metadata(1))
    quorum.doubt = "it is an older copy"
    assert quorum.round() == []
    assert quorum.collector.trouble == "it is an older copy"
    assert quorum.collector.deadline_ns is not None
    quorum.doubt = ""
    assert quorum.round() == [2]
    assert not quorum.collector.trouble


@pytest.mark.parametrize(
    "link", [(4, b"this start......"), (3, b"another start..."), (4, b"another start...")]
)
def test_metadata_that_began_anew_in_the_midst_of_a_page_drops_nothing(link: tuple[int, bytes]) -> None:
    """P7.7, P10.5: an older copy took its place between the first question and the last read."""
    quorum = Quorum([1, 2])
    quorum.put(1, metadata(1))

    def change(effect: Effect, event: Event) -> Event:
        if isinstance(effect, ReadKey):
            quorum.count, quorum.nonce = link
        return event

    quorum.change = change
    assert quorum.round() == []
    quorum.change = lambda effect, event: event
    assert quorum.round() == [2]


def test_metadata_that_became_doubtful_in_the_midst_of_a_page_drops_nothing() -> None:
    """P7.7: both questions must be answered without doubt."""
    quorum = Quorum([1, 2])
    quorum.put(1, metadata(1))

    def change(effect: Effect, event: Event) -> Event:
        if isinstance(effect, ReadKey):
            quorum.doubt = "it is an older copy"
        return event

    quorum.change = change
    assert quorum.round() == []


def test_an_id_that_was_never_given_out_keeps_its_ledger_and_nothing_else() -> None:
    """P7.7: it is a client's word, as of a fence of ledger 2**40, and proves nothing: all else is collected."""
    quorum = Quorum([1, 2, 30, 1 << 40], ids_end=30)
    quorum.put(1, metadata(1))
    assert quorum.round() == [2]
    assert not quorum.collector.trouble
    quorum.ids_end = 31
    assert quorum.round() == [2, 30]


def test_ids_that_a_lost_future_may_have_given_out_are_never_collected() -> None:
    """P7.7, P10.5: what a new generation skipped is known to bookies only."""
    quorum = Quorum([1, 2, 3, 10, 19, 20])
    quorum.put(1, metadata(1))
    quorum.put(10, metadata(10, LedgerState.CLOSED, OTHERS))  # Was adopted, and moved away.
    quorum.spared = [(3, 4), (10, 20)]
    assert quorum.round() == [2, 10, 20]


def test_copies_that_a_stale_key_does_not_name_are_never_collected() -> None:
    """P7.7, P10.5: a lost future may have moved them here, away from the bookies that the copy names."""
    quorum = Quorum([1, 2, 3, 4])
    for ledger_id in (1, 2, 3):
        quorum.put(ledger_id, metadata(ledger_id, LedgerState.CLOSED, OTHERS))
    quorum.stale = [(2, 3), (4, 5)]
    assert quorum.round() == [1, 3, 4], "that 4 is absent says what it always says"


def test_pages_go_on_where_the_one_before_ended() -> None:
    """Every ledger has its turn in a round, however many there are, and metadata serves others in between."""
    held = list(range(0, 3000, 7))
    quorum = Quorum(held, ids_end=5000)
    gone = set(held[::9])
    for ledger_id in range(3000):
        if ledger_id not in gone:
            quorum.put(ledger_id, metadata(ledger_id))
    assert quorum.round() == sorted(gone)
    assert quorum.begun == held
    listed = [effect for effect in quorum.asked if isinstance(effect, ListKeys)]
    assert {effect.prefix for effect in listed} == {LEDGERS_PREFIX}


# The bookie's side.


def b1(world: World) -> Node:
    return world.nodes["b1"]


def closed_world() -> World:
    """Ledger 1 with entries 0..2, closed, on b1 b2 b3 b4."""
    world = World(4)
    created, revision = world.create()
    writer, pen = world.writer(created, revision), Pen(created.ledger_id)
    for number in range(3):
        world.add(writer, pen, b"entry %d" % number)
        world.settle()
    world.close(writer)
    world.settle()
    return world


def tell(world: World, event: Any) -> list[Effect]:
    effects = b1(world).core.step(event)
    b1(world).perform(effects)
    return effects


def drop(world: World) -> None:
    tell(world, CollectionBegun(world.now_ns, [1]))
    tell(world, DropAllowed(world.now_ns, 1))
    b1(world).sync()


def recovery_add(world: World, entry_id: int, *, recovery: bool = True) -> Status:
    pen = Pen(1)
    pen.next_entry, pen.length = entry_id, 7 * entry_id
    frame = pen.frame(b"entry %d" % entry_id, lac=entry_id - 1, lac_length=pen.length)
    world.ask("b1", AddRequest(b1(world).member.incarnation, 1, 1, recovery), frame)
    b1(world).sync()
    return Status(world.heard()[-1].status)


def read(world: World) -> tuple[ReadAnswer, list[int]]:
    world.ask("b1", Read(b1(world).member.incarnation, 1, 0, 9, 1 << 20))
    (packet,) = world.packets(world.nobody)
    world.wire.remove(packet)
    assert isinstance(packet.control, ReadAnswer)
    ids = [e for header, _ in packet.frames for e in range(header.first_entry, header.last_entry + 1)]
    return packet.control, ids


def test_entries_go_only_when_the_drop_is_durable() -> None:
    """Rule P7.3, P7.1: gone before its record is, a crash would leave a bookie that says "absent" of what it held."""
    world = closed_world()
    tell(world, CollectionBegun(world.now_ns, [1]))
    assert not any(isinstance(effect, DropEntries) for effect in tell(world, DropAllowed(world.now_ns, 1)))
    assert read(world)[1] == [0, 1, 2]
    b1(world).crash()
    b1(world).restart()
    assert read(world)[1] == [0, 1, 2], "not durable, not dropped"
    drop(world)
    assert b1(world).holds(1) == []


def test_entries_stay_while_only_what_was_queued_before_the_drop_is_durable() -> None:
    """Rule P7.3: a sync that ends before the drop's record says nothing of it."""
    world = closed_world()
    pen = Pen(2)
    world.ask("b1", AddRequest(b1(world).member.incarnation, 1, 1, False), pen.frame(b"of another ledger"))
    queued = len(b1(world).storage.pending)
    tell(world, CollectionBegun(world.now_ns, [1]))
    tell(world, DropAllowed(world.now_ns, 1))
    assert b1(world).sync(queued)
    assert b1(world).holds(1) == [0, 1, 2]
    b1(world).sync()
    assert b1(world).holds(1) == []


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_a_dropped_ledger_stays_fenced_in_limbo_and_without_data(restarts: int) -> None:
    """Rule P7.3, I34, ST42: for ever, through restarts and flushes, as an id in an interval; twice is once."""
    world = closed_world()
    drop(world)
    drop(world)
    for _ in range(restarts):
        b1(world).storage._unflushed_bytes = 1 << 20
        assert b1(world).storage.begin_flush_if_due()
        assert b1(world).storage.finish_flush()
        b1(world).crash()
        b1(world).restart()
        assert b1(world).storage.table.ranges() == [(1, 1)]
        assert len(b1(world).storage.table) == 0
    answer, ids = read(world)
    assert (answer.status, answer.absent, answer.lac, ids) == (Status.OK, [], NO_ENTRY, [])
    assert recovery_add(world, 3, recovery=False) == Status.FENCED
    incarnation = b1(world).member.incarnation
    world.ask("b1", LacRequest(incarnation, 1))
    world.ask("b1", FenceRequest(incarnation, 1, KEY))
    b1(world).sync()
    assert world.heard() == [LacAnswer(Status.IN_LIMBO, 1), FenceAnswer(Status.OK, 1)]
    assert b1(world).core.limbo.ledgers == {}, "its limbo never ends"


def test_what_came_after_the_question_keeps_the_ledger() -> None:
    """Rule P7.7: the read was made before it saw the data. Repair copied entries here, of which this bookie held some
    already, and they were acknowledged."""
    for entry_id in (1, 3):  # Held, and new.
        world = closed_world()
        tell(world, CollectionBegun(world.now_ns, [1]))
        assert recovery_add(world, entry_id) == Status.OK
        tell(world, DropAllowed(world.now_ns, 1))
        b1(world).sync()
        assert set(b1(world).holds(1)) >= {0, 1, 2}
        assert not b1(world).storage.table.get(1).is_dropped  # type: ignore[union-attr]


@pytest.mark.parametrize("finds", ["before the drop", "behind it"])
def test_an_add_that_looks_keeps_the_ledger(finds: str) -> None:
    """Rule P7.7: what the look finds must still be there when the add is acknowledged, also where it was found before
    the drop and is heard of behind it."""
    world = closed_world()
    node = b1(world)
    node.holds_reads = True
    pen = Pen(1)
    frame = pen.frame(b"entry 0")
    world.ask("b1", AddRequest(node.member.incarnation, 1, 1, True), frame)
    (look,) = node.reads
    found = node.storage.read(look.ledger_id, look.first_entry, look.last_entry, look.bytes_max)
    drop(world)
    node.holds_reads = False
    if finds == "behind it":
        node.finish_reads()
    else:
        node.reads.clear()
        tell(world, EntriesRead(world.now_ns, look.read_id, found.frame, found.absent))
    node.sync()
    assert [answer.status for answer in world.heard()] == [Status.OK]
    assert 0 in node.holds(1)


def test_an_add_whose_answer_waits_for_the_disk_keeps_the_ledger() -> None:
    """Rule P7.7, I34: its answer would acknowledge what was dropped before it left. Seed 1068 on native disks."""
    world = closed_world()
    pen = Pen(1)
    pen.next_entry, pen.length = 3, 21
    frame = pen.frame(b"entry 3", lac=2, lac_length=21)
    world.ask("b1", AddRequest(b1(world).member.incarnation, 1, 1, False), frame)
    tell(world, CollectionBegun(world.now_ns, [1]))
    assert tell(world, DropAllowed(world.now_ns, 1)) == []
    b1(world).sync()
    assert [answer.status for answer in world.heard()] == [Status.OK]
    assert b1(world).holds(1) == [0, 1, 2, 3]
    drop(world)
    assert b1(world).holds(1) == []


def test_what_nobody_asked_about_is_not_dropped() -> None:
    """Rule P7.7: an allowance without its question, or for a question of the round before, is none."""
    world = closed_world()
    assert tell(world, DropAllowed(world.now_ns, 1)) == []
    tell(world, CollectionBegun(world.now_ns, [1]))
    tell(world, CollectionBegun(world.now_ns, [2]))
    assert tell(world, DropAllowed(world.now_ns, 1)) == []
    assert tell(world, DropAllowed(world.now_ns, 77)) == []
    assert b1(world).holds(1) == [0, 1, 2]


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_recovery_brings_a_dropped_ledger_back(is_durable: bool, restarts: bool) -> None:
    """Rule P7.3: recovery adds (repair moving it back) pass; it is in limbo until its share is found whole (P7.4)."""
    world = closed_world()
    tell(world, CollectionBegun(world.now_ns, [1]))
    tell(world, DropAllowed(world.now_ns, 1))
    if is_durable:
        b1(world).sync()
        assert b1(world).holds(1) == []
    assert recovery_add(world, 0) == Status.OK
    if restarts:
        b1(world).crash()
        b1(world).restart()
    answer, ids = read(world)
    assert 0 in ids and answer.absent == [] and answer.lac == NO_ENTRY
    assert recovery_add(world, 3, recovery=False) == Status.IN_LIMBO
    for entry_id in (1, 2):
        assert recovery_add(world, entry_id) == Status.OK
    b1(world).look_for_share(1)
    b1(world).sync()
    assert read(world)[0].absent != [], "its share is there: limbo is over"
    assert recovery_add(world, 3, recovery=False) == Status.FENCED


def test_the_last_entry_of_a_ledger_that_came_back_is_among_what_came() -> None:
    """Rule P7.3, P7.1: what was dropped is in no log any more, and is missing to nobody (seed 70672574)."""
    world = closed_world()
    tell(world, CollectionBegun(world.now_ns, [1]))
    tell(world, DropAllowed(world.now_ns, 1))
    assert b1(world).storage.table.get(1).last_entry == 2  # type: ignore[union-attr]
    b1(world).sync()
    assert recovery_add(world, 0) == Status.OK
    assert b1(world).storage.table.get(1).last_entry == 0  # type: ignore[union-attr]


def test_a_share_that_is_looked_for_does_not_end_the_limbo_of_a_dropped_ledger() -> None:
    """P7.3: a dropped ledger is in limbo for ever, also when its share was found just before."""
    world = closed_world()
    row = b1(world).storage.table.get(1)
    assert row is not None
    row.in_limbo = 1
    b1(world).core.limbo.ledgers[1] = None
    b1(world).holds_reads = True
    tell(world, ShareTold(world.now_ns, 1, [SharePart(0, 2, 1, 1)]))
    drop(world)
    assert b1(world).finish_reads()
    tell(world, Tick(world.now_ns + 10**9))
    b1(world).sync()
    assert (row.in_limbo, row.is_dropped) == (1, 1)
    assert b1(world).core.limbo.shares == {}


def test_who_polls_for_the_lac_is_told() -> None:
    """P6.2: a parked long poll of a ledger that is dropped ends, with no LAC."""
    world = closed_world()
    core = b1(world).core
    request = LacRequest(b1(world).member.incarnation, 1, after_lac=50, wait_ms=1000)
    row = b1(world).storage.table.get(1)
    assert row is not None and not row.is_fenced
    assert core.step(RequestReceived(world.now_ns, 1, 99, request)) == []
    core.step(CollectionBegun(world.now_ns, [1]))
    effects = core.step(DropAllowed(world.now_ns, 1))
    assert [getattr(effect, "control", None) for effect in effects][-1] == LacAnswer(Status.IN_LIMBO, 1)
