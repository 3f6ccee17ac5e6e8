"""Closed ledgers get the numbers of copies that their log's settings name (P2.6)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, astuple, replace

import msgspec
import pytest

from embedbk.client.log import Log
from embedbk.client.password import NO_PASSWORD
from embedbk.client.roll_bounds import Roll
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_changed_metadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.log_settings import SettingsRecord, encode_log_settings, log_settings_path
from embedbk.codec.lost_entries import Losses
from embedbk.codec.metadata_messages import Put
from embedbk.codec.registration import placement_path
from embedbk.codec.repair_mark import (
    RepairMark,
    decode_repair_mark,
    encode_repair_mark,
    progress_of,
    repair_mark_path,
)
from embedbk.config import Quorum
from embedbk.core.client_words import BookieInfo
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import KeyRead, ReadKey, Transact, Transacted
from embedbk.core.quorum import write_set
from embedbk.core.repair_words import AskQuorum
from embedbk.core.vocabulary import Started
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY, Member
from embedbk.metadata.claims import repairing_path
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.ledger_repair import LedgerRepair
from embedbk.repair.log_keeping import LogKeeperOptions
from embedbk.testing.differing_copies import copies_owed
from tests.repair.healed import OPTIONS as REPAIRS
from tests.repair.healed import Healed, healed

SECOND = 1_000_000_000
KEEPING = LogKeeperOptions(NO_PASSWORD, round_ns=2 * SECOND, look_ns=SECOND // 5, logs_per_s=100_000)
OPTIONS = replace(REPAIRS, logs=KEEPING)


@pytest.fixture
def world() -> Iterator[Healed]:
    with healed(bookies=5) as world:
        yield world


def made(world: Healed, quorum: Quorum, entries: int = 8, each: int = 2) -> Log:
    """A log whose closed ledgers have this shape, so many entries each."""
    client = world.cluster.client("a")
    client.create_log("jobs", roll=Roll(bytes=None, entries=each), **asdict(quorum))
    log = client.log("jobs")
    with log.writer() as writer:
        for number in range(entries):
            writer.append(b"entry %d" % number)
            world.cluster.run_for(0.1)
    return log


def change(log: Log, quorum: Quorum) -> None:
    log.change(**asdict(quorum))


def closed(world: Healed) -> list[LedgerMetadata]:
    found = (decode_ledger_metadata(value) for value in world.world.committed(LEDGERS_PREFIX).values())
    return [each for each in found if each.is_closed and each.last_entry != NO_ENTRY]


def shapes(world: Healed) -> set[Quorum]:
    return {each.quorum for each in closed(world)}


def lacking(world: Healed) -> list[str]:
    """Entries that a bookie of their write set does not hold, read from its storage."""
    storages = {name: node.storage for name, node in world.world.nodes.items() if hasattr(node, "storage")}
    return [
        f"{member.bookie_id} lacks {entry_id} of {metadata.ledger_id}"
        for metadata in closed(world)
        for entry_id, members in copies_owed(metadata)
        for member in members
        if storages[member.bookie_id].read(metadata.ledger_id, entry_id, entry_id, 1).frame is None
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Quorum(1, 1, 1), Quorum(3, 3, 2)),
        (Quorum(3, 3, 2), Quorum(1, 1, 1)),
        (Quorum(3, 2, 2), Quorum(5, 3, 2)),
        (Quorum(4, 2, 2), Quorum(3, 3, 3)),
        (Quorum(3, 3, 2), Quorum(3, 3, 3)),
        (Quorum(2, 2, 1), Quorum(5, 2, 2)),
    ],
    ids=lambda quorum: "-".join(map(str, astuple(quorum))),
)
def test_closed_ledgers_get_the_numbers_of_copies_that_the_settings_name(
    world: Healed, before: Quorum, after: Quorum
) -> None:
    """P2.6: "of a CLOSED ledger all fragments and E, Qw, Qa change in one compare-and-set, when every entry is durable
    on the write set that it then has"."""
    log = made(world, before, entries=14, each=7)
    assert shapes(world) == {before}
    starts = {each.ledger_id: [part.first_entry for part in each.fragments] for each in closed(world)}
    tail = log.tail(0, idle_s=1.0)
    assert next(tail).data == b"entry 0"
    host = world.repairer(options=OPTIONS)
    world.cluster.run_for(5.0)
    assert host.outcomes.total() == 0, "nothing is looked into that has its shape"
    change(log, after)
    assert world.cluster.run_until(lambda: shapes(world) == {after} and not world.marks())
    assert lacking(world) == []
    assert {each.ledger_id: [part.first_entry for part in each.fragments] for each in closed(world)} == starts
    world.cluster.run_for(1.0)
    assert host.outcomes.keys() <= {"repaired", "nothing missing"}, "the last ledger is empty"
    assert [entry.data for entry in log.read()] == [b"entry %d" % number for number in range(14)]
    assert [entry.data for entry in tail] == [b"entry %d" % number for number in range(1, 14)]


def test_a_ledger_with_a_password_or_several_fragments_is_copied_too(world: Healed) -> None:
    """P2.6: "all fragments"; P11.2: nobody needs a key for a copy."""
    client = world.cluster.client("a")
    client.create_log("jobs", roll=Roll(bytes=None, entries=6), ensemble_size=2, write_quorum=2, ack_quorum=2)
    with client.log("jobs", password=b"sesame").writer() as writer:
        for number in range(12):
            writer.append(b"entry %d" % number)
            if number in (2, 4):
                metadata = decode_ledger_metadata(list(world.world.committed(LEDGERS_PREFIX).values())[-1])
                world.cluster.crash(metadata.fragments[-1].members[0].bookie_id)
    assert max(len(each.fragments) for each in closed(world)) == 3
    for name in ("b1", "b2", "b3", "b4", "b5"):
        if name not in world.world.nodes:
            world.cluster.restart(name)
    world.cluster.run_for(2.0)
    world.repairer(options=OPTIONS)
    log = client.log("jobs", password=b"sesame")
    change(log, Quorum(3, 3, 2))
    assert world.cluster.run_until(lambda: shapes(world) == {Quorum(3, 3, 2)})
    assert lacking(world) == []
    assert len(list(log.read())) == 12


def test_a_handle_reads_on_when_the_bookies_of_before_have_dropped_their_copies(world: Healed) -> None:
    """P2.6: "the bookies of before keep theirs until they collect"; P6.1: the reader reads the metadata again, and asks
    the write sets that stand there."""
    log = made(world, Quorum(1, 1, 1))
    first = closed(world)[0]
    reader = world.cluster.client("a").open_ledger(first.ledger_id)
    (holder,) = first.fragments[0].members
    assert [each.data for each in reader.read(0, 0)] == [b"entry 0"]
    world.repairer(options=OPTIONS)
    for _ in range(6):  # Until it has no seat any more.
        for quorum in (Quorum(4, 3, 2), Quorum(1, 1, 1)):
            change(log, quorum)
            assert world.cluster.run_until(lambda: shapes(world) == {quorum})  # noqa: B023
        if holder not in world.metadata(first.ledger_id).fragments[0].members:
            break
    storage = world.world.nodes[holder.bookie_id].storage
    dropped = world.cluster.run_until(lambda: storage.read(first.ledger_id, 0, 0, 1).frame is None, 3_600.0)
    assert dropped
    change(log, Quorum(3, 2, 2))
    assert world.cluster.run_until(lambda: shapes(world) == {Quorum(3, 2, 2)})
    assert [each.data for each in reader.read(0, 1)] == [b"entry 0", b"entry 1"]


def test_nothing_is_published_before_every_copy_is_durable(world: Healed) -> None:
    """P2.6: "when every entry is durable"; a bookie that takes no copy gives its place to another."""
    log = made(world, Quorum(1, 1, 1), entries=4)
    holders = {each.fragments[0].members[0].bookie_id for each in closed(world)}
    silent = sorted({"b1", "b2", "b3", "b4", "b5"} - holders)[0]
    world.cluster.pause(silent)
    world.repairer(options=OPTIONS)
    change(log, Quorum(4, 4, 3))
    assert world.cluster.run_until(lambda: shapes(world) == {Quorum(4, 4, 3)}, 600.0)
    assert all(silent not in world.named(each.ledger_id) for each in closed(world))
    world.cluster.resume(silent)
    assert lacking(world) == []


def test_an_entry_without_a_good_copy_keeps_its_ledger_as_it_is(world: Healed) -> None:
    """P2.6: "every entry"; the mark says which has none, and the other ledgers get their shape."""
    log = made(world, Quorum(1, 1, 1), entries=4)
    first, second = closed(world)
    world.cluster.damage(first.fragments[0].members[0].bookie_id, first.ledger_id, 1)
    world.repairer(options=OPTIONS)
    change(log, Quorum(3, 3, 2))
    assert world.cluster.run_until(lambda: world.metadata(second.ledger_id).quorum == Quorum(3, 3, 2))
    world.cluster.run_for(30.0)
    assert world.metadata(first.ledger_id).quorum == Quorum(1, 1, 1)
    (mark,) = world.world.committed("/ur/").values()
    assert "entry 1 has no good copy" in progress_of(decode_repair_mark(mark)).why


def test_too_few_bookies_are_waited_for(world: Healed) -> None:
    """P2.6: "where bookies are there": nothing is marked before; nobody has to ask again behind it."""
    log = made(world, Quorum(1, 1, 1), entries=4)
    for name in ("b1", "b2", "b3", "b4", "b5"):
        if name not in {each.fragments[0].members[0].bookie_id for each in closed(world)}:
            world.cluster.crash(name)
    world.cluster.run_for(20.0)  # Their sessions end.
    away = {"b1", "b2", "b3", "b4", "b5"} - set(world.world.nodes)
    host = world.repairer(options=OPTIONS)
    change(log, Quorum(5, 3, 2))
    world.cluster.run_for(20.0)
    assert shapes(world) == {Quorum(1, 1, 1)} and host.outcomes.total() == 0
    for name in away:
        world.cluster.restart(name)
    assert world.cluster.run_until(lambda: shapes(world) == {Quorum(5, 3, 2)}, 600.0)
    assert lacking(world) == []


def test_fewer_copies_heal_a_ledger_for_which_too_few_bookies_are_left(world: Healed) -> None:
    """P2.6, before P11.2: nobody can take the seats of bookies that are gone for good, and fewer need none."""
    log = made(world, Quorum(5, 5, 3), entries=4)
    for name in ("b1", "b2"):
        world.cluster.crash(name)
    world.repairer(options=OPTIONS)
    assert world.cluster.run_until(lambda: bool(world.given_up()), 600.0)
    change(log, Quorum(3, 3, 2))
    assert world.cluster.run_until(
        lambda: shapes(world) == {Quorum(3, 3, 2)} and not world.given_up(), 4_000.0
    )
    assert not {"b1", "b2"} & set().union(*(world.named(each.ledger_id) for each in closed(world)))


def test_only_a_closed_ledger_may_have_other_numbers(world: Healed) -> None:
    """P2.6, P2.3: a handle of an open ledger ends with an error, of a closed one goes on."""
    made(world, Quorum(3, 3, 2), entries=2)
    metadata = closed(world)[0]
    seats = metadata.fragments[0].ensemble[:1]
    changed = metadata.with_changes(
        ensemble_size=1, write_quorum=1, ack_quorum=1,
        fragments=tuple(msgspec.structs.replace(each, ensemble=seats) for each in metadata.fragments),
    )  # fmt: skip
    assert decode_changed_metadata(encode_ledger_metadata(changed), metadata) == changed
    opened = {"state": LedgerState.OPEN, "last_entry": None, "length": None}
    with pytest.raises(StorageError, match="it was made with"):
        decode_changed_metadata(
            encode_ledger_metadata(changed.with_changes(**opened)), metadata.with_changes(**opened)
        )
    assert set(write_set(1, changed.quorum)) == {0}


def test_health_is_never_good_while_a_log_keeps_fewer_copies_than_its_settings_name(world: Healed) -> None:
    """P2.6: "where so many bookies take some"; more copies than that are no lack."""
    log = made(world, Quorum(1, 1, 1))
    bk = world.cluster.client("a")
    host = world.repairer(options=replace(OPTIONS, logs=None))
    world.cluster.run_for(5.0)
    assert bk.health().is_good
    change(log, Quorum(3, 3, 2))
    told = bk.health()
    assert (told.is_good, told.fewer) == (False, 4)
    assert str(told).startswith("every entry of 5 closed ledgers has all of its copies")
    assert "4 closed ledgers have fewer copies than the settings of their logs name" in str(told)
    change(log, Quorum(9, 3, 2))
    assert bk.health().is_good, "there are no nine bookies"
    change(log, Quorum(1, 1, 1))
    assert bk.health().is_good
    change(log, Quorum(3, 3, 2))
    assert host.outcomes.total() == 0
    world.cluster.crash("healer")
    world.repairer("another", OPTIONS)
    assert world.cluster.run_until(lambda: shapes(world) == {Quorum(3, 3, 2)} and not world.marks(), 600.0)
    assert bk.health().is_good and bk.health().fewer == 0


def test_what_is_published_compares_all_that_it_was_decided_by() -> None:
    """P2.6: "publishes while hold, mark, ledger, settings and the placements stand as it read them"; below the level a
    worker asks for no settings."""
    seat = (("b1", bytes(16)),)
    metadata = LedgerMetadata(
        METADATA_VERSION,
        1,
        1,
        1,
        1,
        LedgerState.CLOSED,
        NO_ENTRY,
        0,
        b"",
        1,
        {"log": b"jobs"},
        (Fragment(0, 0, seat),),
    )
    stored = {
        repairing_path(1): (b"me", 7),
        repair_mark_path(1): (encode_repair_mark(RepairMark(1, ("b1",))), 8),
        ledger_key_path(1): (encode_ledger_metadata(metadata), 9),
        log_settings_path("jobs"): (encode_log_settings(SettingsRecord(1, 3, 3, 2)), 5),
    }
    bookies = tuple(BookieInfo(Member(f"b{n}", bytes(16)), True, placement=20 + n) for n in (1, 2, 3))

    def begun(may_reshape: bool) -> tuple[LedgerRepair, list[str], list[Effect]]:
        core = LedgerRepair(1, 7, 8, bookies, 9, random.Random(1), CopyPace(0), may_reshape=may_reshape)
        effects, asked = core.step(Started(0)), list[str]()
        while isinstance(reading := effects[0], ReadKey):
            asked.append(reading.key)
            effects = core.step(KeyRead(0, reading.tag, *stored[reading.key]))
        return core, asked, effects

    assert log_settings_path("jobs") not in begun(False)[1]
    core, _, (named,) = begun(True)
    assert isinstance(named, Transact) and named.then[0].key == repair_mark_path(1)
    (published,) = core.step(Transacted(0, named.tag, True, 10))
    assert isinstance(published, Transact)
    assert {(each.key, each.revision) for each in published.when} == {
        (repairing_path(1), 7),
        (repair_mark_path(1), 10),
        (ledger_key_path(1), 9),
        (log_settings_path("jobs"), 5),
        *((placement_path(f"b{n}"), 20 + n) for n in (1, 2, 3)),
    }


@pytest.mark.parametrize("wanted", [Quorum(4, 3, 2), Quorum(2, 2, 1), Quorum(3, 3, 2)])
@pytest.mark.parametrize("step", [1, 3])
def test_a_ledger_whose_losses_other_numbers_cannot_name_keeps_its_own(wanted: Quorum, step: int) -> None:
    """P11.5: "ranges, who, when and why ... stay"; of stripes they are every E-th entry. Seen: metadata with another E
    was published, which nobody could read any more, and the process that repaired ended by it."""
    seats = tuple((f"b{number}", bytes(16)) for number in (1, 2, 3))
    runs = tuple((each, each, step) for each in range(3))
    metadata = LedgerMetadata(
        METADATA_VERSION, 1, 3, 2, 2, LedgerState.CLOSED, 2, 9, b"", 1, {"log": b"jobs"},
        (Fragment(0, 0, seats),), lost=(Losses(runs, (), 1, "", "", False),),
    )  # fmt: skip
    settings = SettingsRecord(1, wanted.ensemble_size, wanted.write_quorum, wanted.ack_quorum)
    stored = {
        repairing_path(1): (b"me", 7),
        repair_mark_path(1): (encode_repair_mark(RepairMark(1, ("b1",))), 8),
        ledger_key_path(1): (encode_ledger_metadata(metadata), 9),
        log_settings_path("jobs"): (encode_log_settings(settings), 5),
    }
    bookies = tuple(BookieInfo(Member(f"b{number}", bytes(16)), True) for number in (1, 2, 3, 4))
    core = LedgerRepair(1, 7, 8, bookies, 9, random.Random(1), CopyPace(0), may_reshape=True)
    effects = core.step(Started(0))
    while not isinstance(asked := effects[0], AskQuorum):
        if isinstance(asked, ReadKey):
            effects = core.step(KeyRead(0, asked.tag, *stored[asked.key]))
            continue
        assert isinstance(asked, Transact)
        put = asked.then[0]
        assert isinstance(put, Put)
        stored[put.key] = put.value, 10
        effects = core.step(Transacted(0, asked.tag, True, 10))
    now = decode_ledger_metadata(stored[ledger_key_path(1)][0], 1)
    assert now.quorum == (wanted if step in (1, wanted.ensemble_size) else metadata.quorum)
    assert now.lost == metadata.lost
