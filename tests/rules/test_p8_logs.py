"""P8: logs of ledgers. Taking one over: epoch, list, recover and close, create, and one compare-and-set of the list."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.add_messages import FenceRequest
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Begun,
    LogList,
    LogSegment,
    decode_ledgers_left,
    decode_log_list,
    encode_log_list,
    ledger_key_path,
    log_key_path,
    log_left_path,
    log_owner_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.core.creation import NO_PATIENCE, Patience
from embedbk.core.log import LogTakeover
from embedbk.core.log_listing import NewLedger, TakenOver, first_free_offset
from embedbk.core.metadata_words import MetadataFailed, ReadKey, Transact, TransactRefused
from embedbk.errors import (
    LedgerFenced,
    MetadataConflict,
    MetadataUnavailable,
    NotEnoughBookies,
    RecoveryInconclusive,
)
from embedbk.ids import NO_ENTRY
from tests.rules.world import KEY, THREE, Client, Operation, Packet, Pen, World

LOG = "orders"


def takeover(world: World, name: str = "p", patience: Patience = NO_PATIENCE) -> Client:
    new = NewLedger(THREE, bytes(16), 0, Begun.TAKEOVER, patience=patience)
    core = LogTakeover(LOG, name.encode(), new, KEY, world.bookies, world.chance)
    return world.client(name, core)


def taken(client: Client) -> TakenOver:
    assert client.ended.error is None
    assert isinstance(client.ended.result, TakenOver)
    return client.ended.result


def take(world: World, name: str = "p") -> TakenOver:
    client = takeover(world, name)
    client.start()
    world.run(until=lambda: client.has_ended)
    return taken(client)


def write(world: World, over: TakenOver, name: str, count: int) -> tuple[Client, Pen]:
    writer, pen = world.writer(over.metadata, over.revision, name), Pen(over.metadata.ledger_id)
    for number in range(count):
        world.add(writer, pen, b"%s %d" % (name.encode(), number))
        world.settle()
    return writer, pen


def listed(world: World) -> LogList:
    return decode_log_list(world.catalog.values[log_key_path(LOG)][0])


def left(world: World) -> tuple[int, ...]:
    """The ledgers that left the list and are to be deleted."""
    value, _ = world.catalog.values.get(log_left_path(LOG), (None, 0))
    return decode_ledgers_left(value).ledger_ids if value is not None else ()


def put_list(world: World, *segments: LogSegment, epoch: int = 1) -> None:
    value = encode_log_list(LogList(METADATA_VERSION, epoch, segments))
    world.catalog.transact([], [Put(log_key_path(LOG), value)])


def commit_of(world: World) -> Operation:
    """Settle until the list's compare-and-set is the one operation in flight."""
    world.catalog.is_held = True
    for _ in range(1000):
        world.run(until=lambda: bool(world.catalog.waiting))
        (operation,) = world.catalog.waiting
        if isinstance(operation.effect, Transact) and lists(operation.effect):
            return operation
        world.catalog.answer(operation)
    raise AssertionError("no commit")


def lists(effect: Transact) -> bool:
    """Whether it writes the log's list."""
    return any(isinstance(change, Put) and change.key == log_key_path(LOG) for change in effect.then)


# P8.1: the plain way.


def test_the_first_takeover_makes_the_list() -> None:
    """P8.1: an epoch, a ledger, and a list that names it."""
    world = World()
    over = take(world)
    assert listed(world) == over.log_list
    assert over.log_list.epoch == over.epoch == world.catalog.values[log_owner_path(LOG)][1]
    assert over.log_list.segments == (LogSegment(over.metadata.ledger_id, 0, None, 0, Begun.TAKEOVER),)
    assert world.catalog.metadata(over.metadata.ledger_id) == (over.metadata, over.revision)
    assert over.metadata.custom == {"log": LOG.encode()}
    assert over.first_offset == 0


def test_a_takeover_recovers_and_closes_what_is_open_and_goes_on_behind_it() -> None:
    """P8.1, P8.3, I92, I93: offsets are dense; entries of earlier leaders come before those of later ones; a ledger
    that closed empty is not listed any more."""
    world = World(4)
    offset = 0
    for number, count in enumerate((3, 0, 5, 1)):
        over = take(world, f"p{number}")
        assert over.first_offset == offset
        write(world, over, f"w{number}", count)
        offset += count
    segments = listed(world).segments
    assert [(s.first_offset, s.last_entry) for s in segments] == [(0, 2), (3, 4), (8, None)]
    for segment in segments[:-1]:
        assert world.check_end(segment.ledger_id).last_entry == segment.last_entry


def test_epochs_strictly_increase() -> None:
    """P9.2: the revision of one's own put, cluster-wide and never reset."""
    world = World()
    epochs = [take(world, f"p{number}").epoch for number in range(4)]
    assert epochs == sorted(set(epochs))


def test_the_old_leader_is_fenced_when_the_new_one_serves() -> None:
    """P8.4, I94: after the takeover no append of the old one is acknowledged."""
    world = World()
    first = take(world, "p1")
    writer, pen = write(world, first, "w1", 2)
    world.add(writer, pen, b"on its way")
    second = takeover(world, "p2")
    second.start()
    world.run(until=lambda: second.has_ended, hold=lambda packet: packet.client is writer)
    assert taken(second).first_offset == 2
    world.settle()
    assert isinstance(writer.failure, LedgerFenced)
    assert writer.confirmed == 1


def test_nothing_is_served_before_the_list_names_the_ledger() -> None:
    """P8.1, I95: no write is served before that CAS succeeded."""
    world = World()
    client = takeover(world)
    client.start()
    commit = commit_of(world)
    assert not client.has_ended
    assert log_key_path(LOG) not in world.catalog.values
    world.catalog.answer(commit)
    assert client.has_ended


def test_the_commit_checks_list_epoch_and_ledger_together() -> None:
    """P8.1, P8.3: in one transaction: the list as read, the epoch the newest, and the ledger it names is made."""
    world = World()
    write(world, take(world, "p1"), "w1", 1)
    client = takeover(world, "p2")
    client.start()
    commit = commit_of(world)
    assert isinstance(commit.effect, Transact)
    ledger_id = world.catalog.next_id - 1
    created = ledger_key_path(ledger_id)
    values = world.catalog.values
    assert commit.effect.when[:3] == [
        *(Compare(key, values[key][1]) for key in (log_key_path(LOG), log_owner_path(LOG))),
        Compare(created, ABSENT),
    ]
    assert [change.key for change in commit.effect.then] == [created, log_key_path(LOG)]
    world.catalog.is_held = False
    world.settle()
    assert taken(client).metadata.ledger_id == ledger_id


def test_a_ledger_recorded_as_closed_is_not_looked_at_again() -> None:
    """P8.1: only those not recorded as closed are recovered: a takeover does not grow with the log's history."""
    world = World()
    for number in range(6):
        write(world, take(world, f"p{number}"), f"w{number}", 1)
    client = takeover(world, "last")
    client.start()
    world.settle(hold=lambda packet: True)
    assert {packet.control.ledger_id for packet in world.packets(kind=FenceRequest)} == {6}


def test_every_listed_ledger_that_is_not_recorded_as_closed_is_recovered() -> None:
    """P8.1, I91: two are open during a roll; the takeover closes both, in list order."""
    world = World()
    first, second = take(world, "p1"), world.create()
    write(world, first, "w1", 2)
    put_list(
        world,
        LogSegment(first.metadata.ledger_id, 0, None),
        LogSegment(second[0].ledger_id, 99, None),  # The old leader could not know where it begins.
        epoch=first.epoch,
    )
    writer, pen = world.writer(*second, "w2"), Pen(second[0].ledger_id)
    for _ in range(3):
        world.add(writer, pen, b"in the next ledger")
        world.settle()
    over = take(world, "p2")
    assert [(s.first_offset, s.last_entry) for s in over.log_list.segments] == [(0, 1), (2, 2), (5, None)]
    for segment in over.log_list.segments[:-1]:
        world.check_end(segment.ledger_id)


def test_a_truncated_log_keeps_its_offsets() -> None:
    """P8.3, I93: the ledgers before the front are gone from the list; what is left stays where it was."""
    world = World()
    over = take(world, "p1")
    write(world, over, "w1", 2)
    put_list(world, LogSegment(over.metadata.ledger_id, 1000, None), epoch=over.epoch)
    again = take(world, "p2")
    assert [(s.first_offset, s.last_entry) for s in again.log_list.segments] == [(1000, 1), (1002, None)]


def test_the_first_free_offset_is_behind_the_last_closed_segment() -> None:
    assert first_free_offset(()) == 0
    assert first_free_offset((LogSegment(1, 0, 4), LogSegment(2, 5, NO_ENTRY))) == 5
    assert first_free_offset((LogSegment(1, 7, 0),)) == 8


# P8.1: what goes wrong.


def test_a_newer_epoch_ends_the_takeover() -> None:
    """P8.1, P8.4: CAS refused: the epoch is not the newest: somebody else leads. Nothing was appended, for certain."""
    world = World()
    slow = takeover(world, "slow")
    slow.start()
    commit = commit_of(world)
    world.catalog.waiting.remove(commit)
    world.catalog.is_held = False
    fast = take(world, "fast")
    world.catalog.waiting.append(commit)
    world.settle()
    error = slow.ended.error
    assert isinstance(error, LedgerFenced)
    assert error.definite
    assert error.hint
    assert listed(world) == fast.log_list


def test_an_epoch_taken_by_a_rival_that_died_there_ends_the_takeover_too() -> None:
    """P8.1: the epoch is the only thing that says who leads."""
    world = World()
    slow = takeover(world, "slow")
    slow.start()
    commit_of(world)
    world.catalog.transact([], [Put(log_owner_path(LOG), b"rival")])
    world.catalog.is_held = False
    world.settle()
    assert isinstance(slow.ended.error, LedgerFenced)
    assert log_key_path(LOG) not in world.catalog.values


def test_a_refused_commit_under_our_own_epoch_starts_again_after_a_pause() -> None:
    """P8.1: check that the epoch is still the newest, back off, start again; the ledger made is used."""
    world = World()
    client = takeover(world)
    client.start()
    commit_of(world)
    closed, revision = world.create()
    writer, pen = world.writer(closed, revision, "w"), Pen(closed.ledger_id)
    world.add(writer, pen, b"one")
    world.settle()
    put_list(world, LogSegment(closed.ledger_id, 0, None))
    world.catalog.is_held = False
    world.settle()
    assert not client.has_ended
    world.run(until=lambda: client.has_ended)
    over = taken(client)
    assert [s.ledger_id for s in over.log_list.segments] == [closed.ledger_id, over.metadata.ledger_id]
    assert len([key for key in world.catalog.values if key.startswith("/ledgers/")]) == 2


@pytest.mark.parametrize("lands", ["now", "late", "never"])
def test_a_takeover_whose_transaction_has_no_outcome_makes_one_ledger_that_is_listed(lands: str) -> None:
    """P2.2, P8.1, P8.2: made and listed in one transaction: no ledger ever stands beside the list."""
    world = World()
    client = takeover(world)
    client.start()
    commit = commit_of(world)
    world.catalog.tell_unknown(commit, lands={"now": True, "late": None, "never": False}[lands])
    if lands == "late":
        while not _is_listing(world):
            world.catalog.answer(world.catalog.waiting[0])
        world.catalog.land(commit)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    over = taken(client)
    assert listed(world) == over.log_list
    assert over.log_list.segments[-1].ledger_id == over.metadata.ledger_id
    named = {segment.ledger_id for segment in over.log_list.segments} | {*left(world)}
    assert {key for key in world.catalog.values if key.startswith("/ledgers/")} == {
        *map(ledger_key_path, named)
    }


def _is_listing(world: World) -> bool:
    """Whether the operation in flight is the one that writes the list."""
    effect = world.catalog.waiting[0].effect
    return isinstance(effect, Transact) and lists(effect)


def test_a_takeover_that_landed_unheard_is_over_when_another_took_the_log_since() -> None:
    """P8.4: its ledger stands there changed, by who took it over; that is no id that was handed out twice."""
    world = World()
    client = takeover(world)
    client.start()
    commit = commit_of(world)
    world.catalog.tell_unknown(commit, lands=True)
    (reading,) = world.catalog.waiting
    world.catalog.waiting.remove(reading)
    world.catalog.is_held = False
    made = listed(world).segments[-1].ledger_id
    recovery = world.recovery(made)
    recovery.start()
    rival = take(world, "rival")
    world.catalog.waiting.append(reading)
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, LedgerFenced) and client.ended.error.definite
    assert listed(world) == rival.log_list


def test_a_list_rewritten_without_end_by_somebody_who_does_not_own_it_is_an_error() -> None:
    """Bounded: _ROUNDS_MAX."""
    world = World()
    client = takeover(world)
    client.start()
    world.catalog.is_held = True
    rounds = 0
    while not client.has_ended:
        world.run(until=lambda: bool(world.catalog.waiting) or client.has_ended)
        for operation in list(world.catalog.waiting):
            if isinstance(operation.effect, Transact) and lists(operation.effect):
                put_list(world)
                rounds += 1
            world.catalog.answer(operation)
    assert rounds == 50
    assert isinstance(client.ended.error, MetadataConflict)


def test_a_listed_ledger_that_is_gone_means_that_the_list_changed() -> None:
    """P8.1: read the list again. Where it stays, the log cannot be taken over, and the error says so in time."""
    world = World()
    over = take(world, "p1")
    write(world, over, "w1", 1)
    key = ledger_key_path(over.metadata.ledger_id)
    value, _ = world.catalog.values[key]
    world.catalog.transact([], [Delete(key)])
    stuck = takeover(world, "stuck")
    stuck.start()
    world.run(until=lambda: stuck.has_ended, seconds=60)
    assert isinstance(stuck.ended.error, MetadataConflict)

    world.catalog.transact([], [Put(key, value)])
    world.catalog.transact([], [Delete(key)])
    client = takeover(world, "p2")
    client.start()
    world.settle()
    put_list(world, epoch=over.epoch)  # The truncation that deleted it is published now.
    world.run(until=lambda: client.has_ended)
    assert len(taken(client).log_list.segments) == 1


def test_a_ledger_deleted_while_it_is_recovered_means_the_same() -> None:
    """P8.1."""
    world = World()
    over = take(world, "p1")
    client = takeover(world, "p2")
    client.start()
    world.settle(hold=lambda packet: True)
    assert world.packets(kind=FenceRequest)
    world.catalog.transact([], [Delete(ledger_key_path(over.metadata.ledger_id))])
    world.settle()
    put_list(world, epoch=over.epoch)
    world.run(until=lambda: client.has_ended)
    assert len(taken(client).log_list.segments) == 1


def test_an_inconclusive_recovery_ends_the_takeover_and_a_later_one_succeeds() -> None:
    """P8.1, P5.2c: nothing is listed behind a ledger whose end is not known."""
    world = World()
    over = take(world, "p1")
    write(world, over, "w1", 2)
    before = listed(world)
    world.down |= {"b1", "b2"}
    client = takeover(world, "p2")
    client.start()
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, RecoveryInconclusive)
    assert listed(world) == before
    world.down.clear()
    assert take(world, "p3").first_offset == 2


def test_too_few_bookies_for_the_new_ledger() -> None:
    """P8.1: the old one is closed, the list stays as it was; a later takeover finds it closed."""
    world = World()
    over = take(world, "p1")
    write(world, over, "w1", 2)
    world.down.add("b3")
    client = takeover(world, "p2")
    client.start()
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, NotEnoughBookies)
    assert listed(world) == over.log_list
    world.down.clear()
    assert take(world, "p3").first_offset == 2


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_takeover_waits_for_bookies_for_its_new_ledger(comes_back: bool) -> None:
    """P8.1, CL01: one of three is away for a while; the log is taken over when it is back, or the takeover says in
    the end who was missing."""
    world = World(4)
    world.down.add("b4")
    over = take(world, "p1")
    write(world, over, "w1", 2)
    world.down.add("b3")
    until_ns = world.now_ns + 30 * 10**9
    client = takeover(world, "p2", Patience(until_ns, tuple(world.nodes)))
    client.start()
    world.run(until=lambda: client.has_ended, seconds=20)
    assert not client.has_ended
    assert client.core.deadline_ns == until_ns
    if comes_back:
        world.down.remove("b3")
        world.tell_bookies()
    world.run(until=lambda: client.has_ended)
    if comes_back:
        assert taken(client).first_offset == 2
    else:
        assert isinstance(client.ended.error, NotEnoughBookies)
        assert "b3 is not registered, b4 is not registered" in str(client.ended.error)
        assert listed(world) == over.log_list


# P2.2: unknown outcomes.


@pytest.mark.parametrize("lands", [True, False, None])
@pytest.mark.parametrize("read_fails", [False, True])
def test_a_commit_of_unknown_outcome(lands: bool | None, read_fails: bool) -> None:
    """P2.2: it landed, never does, or lands later: the log is taken over once, by us."""
    world = World()
    write(world, take(world, "p1"), "w1", 2)
    client = takeover(world, "p2")
    client.start()
    commit = commit_of(world)
    world.catalog.tell_unknown(commit, lands=lands)
    (read,) = world.catalog.waiting
    if read_fails:
        world.catalog.fail(read)
    else:
        world.catalog.answer(read)
    if lands is None:
        assert world.catalog.land(commit)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    over = taken(client)
    assert listed(world) == over.log_list
    assert [s.first_offset for s in over.log_list.segments] == [0, 2]
    assert over.list_revision == world.catalog.values[log_key_path(LOG)][1]


def test_our_own_commit_is_known_also_when_the_list_is_read_for_a_new_round() -> None:
    """P2.2: sent twice, the first landed, the second is refused, and the read after it fails: the list then names our
    ledger, which must not be recovered as if it were somebody else's."""
    world = World()
    client = takeover(world)
    client.start()
    commit = commit_of(world)
    world.catalog.tell_unknown(commit)
    world.catalog.answer(world.catalog.waiting[0])  # The list: absent still.
    world.catalog.answer(world.catalog.waiting[0])  # The owner: us.
    assert world.catalog.land(commit)
    world.catalog.answer(world.catalog.waiting[0])  # The commit again: refused.
    world.catalog.fail(world.catalog.waiting[0])  # The list: no answer.
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    over = taken(client)
    assert listed(world) == over.log_list
    assert world.catalog.metadata(over.metadata.ledger_id) == (over.metadata, over.revision)


def test_a_commit_that_landed_unheard_and_was_overtaken_is_lost() -> None:
    """P8.4: the rival fenced our new ledger before we knew that we had one; empty, it left the list (P8.3)."""
    world = World()
    slow = takeover(world, "slow")
    slow.start()
    commit = commit_of(world)
    world.catalog.tell_unknown(commit, lands=True)
    reads = list(world.catalog.waiting)
    world.catalog.waiting.clear()
    world.catalog.is_held = False
    fast = take(world, "fast")
    world.catalog.waiting += reads
    world.settle()
    assert isinstance(slow.ended.error, LedgerFenced)
    assert [segment.ledger_id for segment in fast.log_list.segments] == [2]
    assert left(world) == (1,)


@pytest.mark.parametrize("lands", [True, False])
def test_an_epoch_of_unknown_outcome_is_taken_again_after_a_pause(lands: bool) -> None:
    """P9.2: a second put only gives a higher epoch; no running in a circle while nobody answers."""
    world = World()
    world.catalog.is_held = True
    client = takeover(world)
    client.start()
    for _ in range(3):
        (put,) = world.catalog.waiting
        world.catalog.tell_unknown(put, lands=lands)
        assert world.catalog.waiting == []
        assert client.core.deadline_ns is not None
        world.now_ns = client.core.deadline_ns
        world.tick(client)
    world.catalog.is_held = False
    world.settle()
    assert taken(client).epoch == world.catalog.values[log_owner_path(LOG)][1]


@pytest.mark.parametrize("refused", ["epoch", "create"])
def test_a_transaction_that_is_refused_for_good_ends_the_takeover_at_once(refused: str) -> None:
    """P2.2: not run and never to be run, as something is full: definite, with what is full, and no ledger is listed."""
    world = World()
    world.catalog.is_held = True
    client = takeover(world)
    client.start()
    while not client.has_ended:
        world.run(until=lambda: bool(world.catalog.waiting))
        (operation,) = world.catalog.waiting
        tag = operation.effect.tag
        if isinstance(operation.effect, Transact) and refused in (tag, tag[-1]):
            world.catalog.waiting.remove(operation)
            client.step(TransactRefused(world.now_ns, tag, "the catalog holds too much"))
        else:
            world.catalog.answer(operation)
    assert isinstance(client.ended.error, MetadataUnavailable)
    assert client.ended.error.definite
    assert "the catalog holds too much" in str(client.ended.error)
    assert log_key_path(LOG) not in world.catalog.values


def test_reads_without_an_answer_are_asked_again() -> None:
    """P2.2, P10.4: a takeover waits for the metadata, at every stage."""
    world = World()
    write(world, take(world, "p1"), "w1", 1)
    world.catalog.is_held = True
    client = takeover(world, "p2")
    client.start()
    failed: set[str] = set()
    for _ in range(200):
        if client.has_ended:
            break
        world.settle()
        for operation in list(world.catalog.waiting):
            tag = str(operation.effect.tag)
            if isinstance(operation.effect, ReadKey) and tag not in failed:
                failed.add(tag)
                world.catalog.fail(operation)
            else:
                world.catalog.answer(operation)
        if not world.catalog.waiting and not world.wire and not client.has_ended:
            assert client.core.deadline_ns is not None
            world.now_ns = max(world.now_ns, client.core.deadline_ns)
            world.tick(client)
    assert taken(client).first_offset == 1
    assert {"list", "('ledger', 1)"} <= failed
    assert client.step(MetadataFailed(world.now_ns, "list", "late")) == []


# P8.4: any number of processes that believe they lead.


@pytest.mark.parametrize("rivals", [2, 3])
def test_rivals_in_any_order_of_events(rivals: int) -> None:
    """P8.4, I90 to I95: whatever the order, every acknowledged entry is in the log, in order, once, and only the last
    owner's ledger takes more."""
    finished = 0
    for seed in range(150):
        world = World(4, seed)
        chance = random.Random(seed)
        writers: dict[Client, tuple[Client, Pen]] = {}
        first = take(world, "p0")
        write(world, first, "w0", 2)
        clients = [takeover(world, f"p{number + 1}") for number in range(rivals)]
        for client in clients:
            client.start()
        for _ in range(4000):
            for client in clients:
                if client.has_ended and client.ended.error is None and client not in writers:
                    over = taken(client)
                    assert over.log_list.epoch == over.epoch
                    writer = world.writer(over.metadata, over.revision, f"w of {client.name}")
                    writers[client] = (writer, Pen(over.metadata.ledger_id))
            for writer, pen in writers.values():
                if pen.next_entry < 3 and writer.core.wants_frame(is_full=True) and chance.random() < 0.1:
                    world.add(writer, pen, b"%s %d" % (writer.name.encode(), pen.next_entry))
            choices: list[object] = [*world.wire, *world.catalog.waiting]
            choices += [
                node
                for node in world.nodes.values()
                if node.storage.durable() < node.core.records.next_token - 1
            ]
            choices = [c for c in choices if not isinstance(c, Packet) or c.client is not world.nobody]
            if not choices or chance.random() < 0.01:
                due = [c for c in world.clients if c.core.deadline_ns is not None]
                if not due:
                    break
                client = min(due, key=lambda c: c.core.deadline_ns)
                if all(c.has_ended for c in clients) and not choices:
                    break
                world.now_ns = max(world.now_ns, client.core.deadline_ns)
                world.tick(client)
                continue
            choice = chance.choice(choices)
            if isinstance(choice, Packet):
                world.deliver(choice)
            elif isinstance(choice, Operation):
                world.catalog.answer(choice)
            else:
                choice.sync()
        world.settle()
        assert all(client.has_ended for client in clients), seed
        errors = [client.ended.error for client in clients if client.ended.error is not None]
        assert all(isinstance(error, LedgerFenced) and error.definite for error in errors)
        finished += rivals - len(errors)
        # Who was refused has left no ledger behind.
        ledgers = {key for key in world.catalog.values if key.startswith("/ledgers/")}
        known = {segment.ledger_id for segment in listed(world).segments} | set(left(world))
        assert ledgers == {ledger_key_path(ledger_id) for ledger_id in known}
        # Who is last owns the log; a last takeover closes everything, and every acknowledged entry is in it.
        final = take(world, "final")
        segments = final.log_list.segments
        acked = {ledger_id for ledger_id, lac in world.acked.items() if lac >= 0}
        assert acked <= {segment.ledger_id for segment in segments}  # I90
        offset = 0
        for segment in segments[:-1]:
            assert segment.first_offset == offset  # I93
            assert segment.last_entry is not None
            offset += segment.last_entry + 1
            world.check_end(segment.ledger_id)
    assert finished >= 150  # At least one rival of each seed got through.


def _renewal(world: World, over: TakenOver, name: str = "p again") -> Client:
    new = NewLedger(THREE, bytes(16), 0, Begun.REQUEST)
    core = LogTakeover(LOG, name.encode(), new, KEY, world.bookies, world.chance, renews=over.epoch)
    return world.client(name, core)


def test_an_owner_takes_the_log_over_from_itself_only() -> None:
    """P8.1: it "gets its next epoch only while its last one is the newest"."""
    world = World()
    first = take(world)
    renewal = _renewal(world, first)
    renewal.start()
    world.run(until=lambda: renewal.has_ended)
    second = taken(renewal)
    assert second.epoch > first.epoch
    late = _renewal(world, first, "late")
    late.start()
    world.run(until=lambda: late.has_ended)
    assert isinstance(late.ended.error, LedgerFenced)
    assert late.ended.error.definite
    assert str(second.epoch) in str(late.ended.error)
    again = _renewal(world, second, "still")
    again.start()
    world.run(until=lambda: again.has_ended)
    assert taken(again).epoch > second.epoch


def test_an_owner_knows_an_epoch_that_it_put_before() -> None:
    """P8.1: the answer to its put was lost, or it failed half-way: its own word stands there, and it goes on."""
    world = World()
    first = take(world)
    for number in range(2):
        renewal = _renewal(world, first)  # Both with the epoch of before, as if the first had not been heard.
        renewal.start()
        world.run(until=lambda renewal=renewal: renewal.has_ended)  # type: ignore[misc]
        assert taken(renewal).epoch > first.epoch, number
