"""What follows a run whose plan asks for it: metadata put back from an older copy (TESTING.md, section 5; P10.5).

The run has ended and every ledger was read; nobody writes any more, so that whatever goes is lost by this alone. Then
the copy that the plan took on the way takes the metadata's place, some bookies are down meanwhile, and somebody lets it
catch up: more starts, more changes, more ids than the newest had. Nothing may be dropped and no ledger begun, until the
newest is put back, or its owner says that something is lost: then what is new must be no id's that was used before.
Two owners may say so, of one copy each: a bookie that met the first follows the second only when the first is given up.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from embedbk.codec.id_ranges import is_within
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.metadata_messages import GENERATION_BITS, Acknowledged, AllocIds, Lineage, Put, Result, Txn
from embedbk.codec.quorum_messages import ForgetIds
from embedbk.config import Quorum
from embedbk.core.collector import CollectorOptions
from embedbk.core.creation import Creation
from embedbk.errors import StorageError, ensure
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.levels import LEVEL_OF_ADOPTION, LEVEL_OF_LINEAGES
from embedbk.metadata.recovering import given_up
from embedbk.storage.member_notes import MemoryNotes
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_store import MetadataStore
from embedbk.storage.raw_files import PictureDirectory
from embedbk.storage.snapshot_format import SNAPSHOT_DIRECTORY
from embedbk.testing import workload
from embedbk.testing.actors import Steps, Until
from embedbk.testing.adopters import Adopters
from embedbk.testing.clocks import SECOND
from embedbk.testing.disks import MetadataCopy
from embedbk.testing.member_directories import CLUSTER_TOKEN
from embedbk.testing.member_names import METADATA
from embedbk.testing.operator import Operator
from embedbk.testing.promises import Promises
from embedbk.testing.raising import Raiser
from embedbk.testing.violation import Violation
from embedbk.testing.world import World
from embedbk.testing.writing_handles import close_writing, write_ledger

__all__ = ["aftermath"]

ROUNDS = CollectorOptions(interval_ns=SECOND, pace_ns=SECOND // 200, page_ledgers=5)
HEARD_NS = 6 * SECOND  # In this time every bookie learns how far metadata is (WitnessOptions.look_ns).
RAISES = 9999  # The number of the operator who raises the level here; steps of plans have lower numbers.
# Changes and ids by which the copy passes the newest, and what it lacked before; more is no news.
CATCH_UP_MAX = 400


def aftermath(
    world: World,
    copy: MetadataCopy,
    chance: random.Random,
    quorum: Quorum,
    read_again: Callable[[], None],
    promises: Promises,
) -> None:
    """Put the copy in the place of the metadata. read_again: reads every ledger, and raises what is wrong. promises:
    of the run."""
    world.mute()
    members = world.members
    world.collector = ROUNDS
    names = [name for name in world.disks if name in world.nodes and name not in world.lost]
    for name in names:
        world.crash(name)
        world.start_bookie(name)
    _until(world, lambda: all(world.nodes[name].is_registered for name in names), "bookies do not register")
    world.run_for(HEARD_NS)
    newest, held = members.take(METADATA), {name: _held(world, name) for name in names}
    catalogs = newest.catalog(), copy.catalog()
    _refuses_what_was_cut_back(world, newest, copy)
    members.put(METADATA, copy)
    late = [name for name in names if chance.random() < 0.4]
    for name in late:
        world.crash(name)
    world.start_client("late")
    actor = world.spawn("late", _catch_up(world, "late", *catalogs))
    _until(world, lambda: actor.is_over, "the copy does not catch up")
    for _ in range(chance.randint(0, 2)):
        members.put(METADATA, members.take(METADATA))
    for name in late:
        world.start_bookie(name)
    _until(
        world, lambda: all(_is_as_far_as_it_may(world, name) for name in names), "no bookie registers again"
    )
    world.run_for(HEARD_NS)
    if _extent(catalogs[0]) == _extent(catalogs[1]):
        return  # Nothing had happened since; but for the starts of others it is the newest.
    for name in names:
        if not world.nodes[name].witnessing.is_doubted:
            raise Violation("P10.5", f"{name} takes an older copy of the metadata for the newest")
        world.sometimes["older metadata met"] += 1
        if gone := held[name] - _held(world, name):
            raise Violation("I35", f"{name} dropped {sorted(gone)} beside older metadata")
    if _creation(world, quorum, chance, 3 * SECOND) is not None:
        raise Violation("P10.5", "a ledger was made beside metadata that every bookie knows to be older")
    if chance.random() < 0.5:
        members.take(METADATA)
        members.put(METADATA, newest)
        _until(world, lambda: not _doubts(world, names), "the newest metadata is doubted")
        read_again()
        return
    if chance.random() < 0.7:
        _put_back_by_two(world, names, chance)
    full = [name for name in names if chance.random() < 0.3]
    for name in full:
        world.disks[name].fill(True)
    members.put(METADATA, members.take(METADATA), may_have_lost=True)
    if full:
        world.run_for(HEARD_NS)
    for name in full:
        _takes_only_what_it_kept(world, name)
        world.disks[name].fill(False)
    _until(world, lambda: not _doubts(world, names), "a new generation is doubted")
    world.sometimes["generation begun"] += 1
    if len(names) >= quorum.ensemble_size:
        _is_nobodys(world, quorum, chance, catalogs[0].next_id)
    world.run_for(HEARD_NS)
    keys = {ledger_id for ids in held.values() for ledger_id in ids if _has_key(catalogs[1], ledger_id)}
    for name in names:
        if gone := held[name] - keys - _held(world, name):
            raise Violation("I35", f"{name} dropped {sorted(gone)} of a lost future in a new generation")
    left = sorted({each for ids in held.values() for each in ids if _is_spared(world, each)} - keys)
    adopters = Adopters(world, names, promises, chance)
    if _newest(world).descent.stale:
        _adopt_stale(world, names, *catalogs, adopters, chance)
    if left and _newest(world).level >= LEVEL_OF_ADOPTION:
        left = _adopt(world, names, left, catalogs[0], adopters, chance)
    if left and _newest(world).level >= LEVEL_OF_LINEAGES:
        _forget(world, names, chance.choice(left), held)


def _adopt(
    world: World,
    names: list[str],
    left: list[int],
    newest: Catalog,
    adopters: Adopters,
    chance: random.Random,
) -> list[int]:
    """P10.5: some are taken back, and nothing that was acknowledged of them is lost by it, also once every bookie has
    collected what it holds. Returns those that are left."""
    known = [each for each in left if _has_key(newest, each)]
    chosen = chance.sample(known, min(len(known), chance.randint(1, 3)))
    for ledger_id in sorted(chosen):
        adopters.adopt(_ledger(newest, ledger_id))
    others = [each for each in left if each not in adopters.adopted]
    before = {name: _held(world, name) & set(others) for name in names}
    world.run_for(HEARD_NS)
    adopters.read_again()
    for name in names:
        if gone := before[name] - _held(world, name):
            raise Violation(
                "I35", f"{name} dropped {sorted(gone)} when {sorted(adopters.adopted)} were adopted"
            )
    if spared := [each for each in adopters.adopted if _is_spared(world, each)]:
        raise Violation("P7.7", f"{spared} are adopted, and spared all the same")
    return others


def _adopt_stale(
    world: World, names: list[str], newest: Catalog, copy: Catalog, adopters: Adopters, chance: random.Random
) -> None:
    """P10.5: for a ledger that was open in the copy it is not known which bookies have its later entries. A recovery,
    which asks the bookies that the copy names, may not end it; adopting it loses nothing that was acknowledged."""
    stale = [
        ledger_id
        for ledger_id in _ledgers_of(copy)
        if not _ledger(copy, ledger_id).is_closed and _has_key(newest, ledger_id)
    ]
    for ledger_id in chance.sample(stale, min(len(stale), 2)):
        client = f"recovers-{ledger_id}"
        world.start_client(client)
        actor = world.spawn(client, _recover_stale(world, client, ledger_id, len(names)))
        _until(world, lambda actor=actor: actor.is_over, "the recovery of a stale ledger does not end")  # type: ignore[misc]
        if isinstance(actor.error, Violation):
            raise actor.error
        if actor.error is None:
            raise Violation(
                "P10.5", f"ledger {ledger_id}, open in an older copy, was recovered from what that says"
            )
        world.leave(client)
        adopters.adopt(_ledger(newest, ledger_id))
        if ledger_id in adopters.adopted:
            world.sometimes["changed in a lost future, and adopted"] += (
                _ledger(newest, ledger_id).fragments != _ledger(copy, ledger_id).fragments
            )


def _recover_stale(world: World, client: str, ledger_id: int, bookies: int) -> Steps:
    node = world.nodes[client]
    yield Until(lambda: node.is_ready and len(node.bookies) >= bookies, 30 * SECOND)
    yield from workload.recover(world, client, ledger_id)


def _ledgers_of(catalog: Catalog) -> list[int]:
    found = catalog.page(LEDGERS_PREFIX, "", 1 << 20)
    return [each for record in found.records if (each := ledger_of_key(record.key)) is not None]


def _ledger(catalog: Catalog, ledger_id: int) -> LedgerMetadata:
    record = catalog.get(ledger_key_path(ledger_id)).record
    assert record is not None
    return decode_ledger_metadata(record.value or b"", ledger_id)


def _forget(world: World, names: list[str], forgotten: int, held: dict[str, set[int]]) -> None:
    """P7.7: an operator's word lets one go, and no other."""
    before = {name: held[name] & _held(world, name) for name in names}
    operator = Operator(world, RAISES + 1, random.Random(forgotten))
    actor = world.spawn(operator.name, _ask_to_forget(operator, forgotten))
    _until(world, lambda: actor.is_over, "nobody says whether ids are forgotten")
    if actor.error is not None:
        raise Violation("P7.7", f"ledger {forgotten} cannot be forgotten: {actor.error}")
    _until(
        world,
        lambda: all(forgotten not in _held(world, name) for name in names),
        "what is forgotten is never dropped",
    )
    world.sometimes["left by a lost future, and forgotten"] += 1
    for name in names:
        if gone := before[name] - {forgotten} - _held(world, name):
            raise Violation("I35", f"{name} dropped {sorted(gone)} when ledger {forgotten} was forgotten")


def _ask_to_forget(operator: Operator, ledger_id: int) -> Steps:
    results = yield from operator.ask([f"sim://{METADATA}"], ForgetIds(((ledger_id, ledger_id + 1),)))
    ensure(
        all(isinstance(each, Acknowledged) for each in results) and bool(results), f"answered with {results}"
    )


def _has_met(world: World, name: str, lineage: Lineage) -> bool:
    met = world.nodes[name].witnessing.core.met
    return met is not None and bool(met.lineage == lineage.name)


def _is_spared(world: World, ledger_id: int) -> bool:
    return is_within(_newest(world).descent.spared, ledger_id)


def _put_back_by_two(world: World, names: list[str], chance: random.Random) -> None:
    """P10.5: one copy is recovered twice, each time as if for the first time. The second recovery has the higher
    generation, so that only the lineage distinguishes it from one that continues the first."""
    members, raiser = world.members, Raiser(world, RAISES, chance)
    raiser.go_on()
    if not world.run_until(lambda: _newest(world).level >= LEVEL_OF_LINEAGES, 30 * SECOND):
        return  # A client of a lost future is in the way, and its session lasts.
    copy = members.take(METADATA)
    away = [name for name in names if chance.random() < 0.3]
    for name in away:
        world.crash(name)
    first = _recover(world, chance, copy)
    there = [name for name in names if name not in away]
    _until(
        world,
        lambda: all(_has_met(world, name, first) for name in there),
        "a lineage that descends is not met",
    )
    members.take(METADATA)
    _recover(world, chance, copy)
    for _ in range(chance.randint(1, 2)):
        _recover(world, chance, members.take(METADATA))
    for name in away:
        world.start_bookie(name)
    _until(world, lambda: all(_is_as_far_as_it_may(world, each) for each in names), "no bookie comes back")
    world.run_for(HEARD_NS)
    for name in there:
        if not world.nodes[name].witnessing.is_doubted:
            raise Violation(
                "P10.5", f"{name} takes a recovery for one that goes on from another, which it met"
            )
        world.sometimes["copy put back by two"] += 1
    if _doubts(world, away):
        raise Violation("P10.5", "a recovery is doubted by whoever met no other")
    heard = [world.nodes[name].witnessing.told() for name in names]
    lost = given_up(_newest(world), CLUSTER_TOKEN, heard)
    if [each.name for each in lost] != [first.name] * bool(there):
        raise Violation("P10.5", f"whoever recovers next hears of {lost}; {there} met {first}")
    _recover(world, chance, members.take(METADATA), *lost)
    _until(
        world,
        lambda: not _doubts(world, names),
        "a lineage is doubted though the one that was met is given up",
    )


def _recover(world: World, chance: random.Random, copy: MetadataCopy, *gives_up: Lineage) -> Lineage:
    """Recover by an operator's word; return the lineage that begins."""
    before = len(copy.catalog().descent.lineages)
    if chance.random() < 0.5:
        world.members.bring_back(METADATA, copy, gives_up)
        world.sometimes["metadata brought back as another member"] += 1
    else:
        world.members.put(METADATA, copy, may_have_lost=True, gives_up=gives_up)
    _until(world, lambda: len(_newest(world).descent.lineages) > before, "no lineage begins")
    return _newest(world).descent.lineages[-1]


def _newest(world: World) -> Catalog:
    catalog: Catalog = world.nodes[METADATA].core.catalog
    return catalog


def _takes_only_what_it_kept(world: World, name: str) -> None:
    """P10.5: a crash would bring it back to what stands on its disk, whatever it did under the new generation."""
    witnessing, storage = world.nodes[name].witnessing, world.nodes[name].storage
    generation = world.nodes[METADATA].core.catalog.revision >> GENERATION_BITS
    assert storage.met is not None
    if storage.met.revision >> GENERATION_BITS == generation:
        return
    if not witnessing.is_doubted:
        raise Violation("P10.5", f"{name} goes on under a generation of which its disk knows nothing")
    world.sometimes["met metadata not kept"] += 1


def _until(world: World, is_reached: Callable[[], bool], what: str) -> None:
    if not world.run_until(is_reached, 60 * SECOND):
        raise Violation("P10.5", what)


def _is_as_far_as_it_may(world: World, name: str) -> bool:
    """Registered; or beside metadata that it doubts it waits for a listing of its ledgers, which it may not believe: as
    a bookie does whose own directories are older than the start that this metadata knows of it."""
    node = world.nodes[name]
    return node.is_registered or (node.witnessing.is_doubted and not node.core.is_serving)


def _held(world: World, name: str) -> set[int]:
    table = world.nodes[name].storage.table
    return {ledger_id for ledger_id in table.ids() if not table.get(ledger_id).is_dropped}


def _doubts(world: World, names: list[str]) -> bool:
    return any(world.nodes[name].witnessing.is_doubted for name in names)


def _extent(catalog: Catalog) -> tuple[int, int, int]:
    return catalog.descent.start_count, catalog.revision, catalog.next_id


def _has_key(catalog: Catalog, ledger_id: int) -> bool:
    return catalog.get(ledger_key_path(ledger_id)).record is not None


def _refuses_what_was_cut_back(world: World, newest: MetadataCopy, copy: MetadataCopy) -> None:
    """P9.2: an older log under the newest note has less than was used."""
    assert newest.used is not None
    last = copy.records[-1].token if copy.records else 0
    if last >= newest.used.last_token:
        return
    notes = MemoryNotes()
    notes.used = newest.used
    journal = MemoryJournal(copy.records)
    try:
        snapshots = PictureDirectory(SNAPSHOT_DIRECTORY, copy.snapshots)
        MetadataStore(journal, journal.first_token(), notes=notes, snapshots=snapshots)
    except StorageError:
        world.sometimes["metadata cut back"] += 1
        return
    raise Violation("P9.2", f"a log that ends at {last} was opened, and {newest.used.last_token} were used")


def _catch_up(world: World, client: str, newest: Catalog, copy: Catalog) -> Steps:
    """Make as many ids and changes as the newest metadata had, and more."""
    node = world.nodes[client]
    yield Until(lambda: node.metadata.session != 0)
    answers: list[Result] = []
    changes = min(CATCH_UP_MAX, max(0, newest.revision - copy.revision) + 20)
    operations = [AllocIds(max(0, newest.next_id - copy.next_id) + 20)]
    operations += [Txn([], [Put("/late", b"%d" % number)]) for number in range(changes)]  # type: ignore[misc]
    for operation in operations:
        node.metadata.request(world.now_of(client), operation, lambda _, result: answers.append(result))
    world.wake(client)
    yield Until(lambda: len(answers) == len(operations))


def _creation(world: World, quorum: Quorum, chance: random.Random, within_ns: int) -> int | None:
    """A ledger that a client makes, if it can."""
    name = f"maker-{chance.getrandbits(20)}"
    node = world.start_client(name)
    _until(world, lambda: node.is_ready and len(node.bookies) > 0, "a client does not get ready")
    core = Creation(quorum, b"", 0, {}, node.bookies, chance)
    operation = world.start(name, core)
    world.run_until(operation.future.done, within_ns)
    made = None
    if operation.future.done() and operation.future.exception() is None:
        made = operation.future.result()[0].ledger_id
    world.leave(name)
    return made


def _is_nobodys(world: World, quorum: Quorum, chance: random.Random, ids_end: int) -> None:
    """P2.1: a ledger of the new generation has an id that was never used, and what its writer wrote."""
    node = world.start_client("new")
    _until(world, lambda: node.is_ready, "a client does not get ready")
    actor = world.spawn("new", _write_and_read(world, "new", quorum, chance, ids_end))
    _until(world, lambda: actor.is_over, "a new ledger is not written")
    if actor.error is not None:
        raise Violation("P10.5", f"a new ledger in a new generation: {actor.error}")


def _write_and_read(world: World, client: str, quorum: Quorum, chance: random.Random, ids_end: int) -> Steps:
    node, payloads = world.nodes[client], [b"new %d" % number for number in range(3)]
    yield Until(lambda: sum(info.is_writable for info in node.bookies) >= quorum.ensemble_size)
    core = Creation(quorum, b"", 0, {}, node.bookies, chance)
    metadata, revision = yield from workload.result_of(world, client, core)
    if metadata.ledger_id < ids_end:
        raise Violation("P2.1", f"id {metadata.ledger_id} was given out again, {ids_end} was the end")
    writing = write_ledger(world, client, metadata, revision)
    for payload in payloads:
        writing.try_append(payload)
    yield Until(lambda: writing.lac >= len(payloads) - 1 or writing.error is not None)
    close_writing(world, client, writing)
    closed = yield from workload.recover(world, client, metadata.ledger_id)
    found = yield from workload.read_range(world, client, closed, 0, closed.last_entry)
    if [payload for _, payload in found] != payloads:
        raise Violation("I7", f"ledger {metadata.ledger_id} shows {found}, not what was written")
