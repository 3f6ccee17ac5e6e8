"""P10.5, P7.7: a ledger that a lost future made is taken back into the metadata from what bookies hold."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from embedbk.codec.add_messages import AddRequest, FenceAnswer, FenceRequest
from embedbk.codec.adopted import LOST_RANGES_MAX, adopted_path, decode_adopted
from embedbk.codec.bookie_fields import Status
from embedbk.codec.digest import DigestType, encode_tagged
from embedbk.codec.frame import decode_frame_header, encode_frame_header, frame_of
from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Put, Told
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.codec.tombstone import tombstone_path
from embedbk.config import Quorum
from embedbk.core.adopting import AdoptionOptions, LedgerAdoption
from embedbk.core.adoption_plan import AdoptionPlan
from embedbk.core.bookie_words import LimboListed
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, SendFailed
from embedbk.core.fitting import FRAGMENTS_MAX, fit, guess_quorum, lacking
from embedbk.core.metadata_words import Transact
from embedbk.core.survey import ENTRIES_MAX, HOLDERS_MAX, Survey, SurveyedBookie
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import (
    EntryUnreadable,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    RecoveryInconclusive,
    StorageError,
    WrongPassword,
)
from tests.rules.scenes import Scene, but, scene
from tests.rules.world import KEY, MS, THREE, Client, Pen, World, member

VERIFIER = bytes(32)


def lose(it: Scene) -> None:
    """Metadata is brought back as it was before the ledger was made."""
    world = it.world
    world.catalog.values.pop(ledger_key_path(it.ledger_id))
    world.catalog.history.clear()
    world.catalog.spared.add(it.ledger_id)
    it.writer.is_gone = True
    world.wire.clear()


def written(quorum: Quorum = THREE, bookies: int = 3, entries: int = 5) -> Scene:
    """A ledger whose writer was told of all of its entries."""
    it = scene(quorum, bookies)
    for number in range(entries):
        it.world.add(it.writer, it.pen, b"entry %d" % number)
        it.world.settle()
    assert it.world.acked.get(it.ledger_id, -1) == entries - 1
    return it


def adoption(
    world: World, ledger_id: int, gone: Sequence[str] = (), key: bytes = KEY, **options: object
) -> Client:
    """One of every bookie of the world; not started."""
    asked = [(node.member, name not in gone) for name, node in world.nodes.items()]
    core = LedgerAdoption(
        ledger_id, key, b"", VERIFIER, asked, world.nonce(), world.bookies, world.chance,
        AdoptionOptions(by="somebody", wall_ms=5, **options),  # type: ignore[arg-type]
    )  # fmt: skip
    return world.client("a", core)


def adopt(it: Scene, gone: Sequence[str] = (), **options: object) -> Client:
    """From its start to its end."""
    client = adoption(it.world, it.ledger_id, gone, **options)
    client.start()
    it.world.run(until=lambda: client.has_ended)
    return client


def plan_of(client: Client) -> AdoptionPlan:
    assert client.ended.error is None, client.ended.error
    plan: AdoptionPlan = client.ended.result
    return plan


def seats_of(metadata: LedgerMetadata) -> list[tuple[int, list[str]]]:
    return [(each.first_entry, [name for name, _ in each.ensemble]) for each in metadata.fragments]


def reads_all(it: Scene) -> list[tuple[int, bytes]]:
    metadata, _ = it.world.catalog.metadata(it.ledger_id)
    assert metadata.last_entry is not None
    reader = it.world.reader(it.ledger_id, 0, metadata.last_entry)
    reader.start()
    it.world.run(until=lambda: reader.has_ended)
    assert reader.ended.error is None
    return reader.read


def test_what_was_acknowledged_is_in_the_metadata_again() -> None:
    """P5.3, P10.5: "An acknowledged entry is never beyond the last entry of its closed ledger" """
    it = written()
    lose(it)
    plan = plan_of(adopt(it))
    metadata, _ = it.world.catalog.metadata(it.ledger_id)
    assert metadata == plan.metadata
    assert (metadata.state, metadata.last_entry, metadata.length) == (
        LedgerState.CLOSED,
        4,
        5 * len(b"entry 0"),
    )
    assert (metadata.quorum, seats_of(metadata)) == (THREE, [(0, ["b1", "b2", "b3"])])
    assert reads_all(it) == [(number, b"entry %d" % number) for number in range(5)]
    record = decode_adopted(it.world.catalog.values[adopted_path(it.ledger_id)][0])
    assert (record.by, record.adopted_ms, record.gone, record.lost, record.copied) == (
        "somebody",
        5,
        (),
        (),
        0,
    )
    assert record.heard == ("b1", "b2", "b3")
    assert it.world.catalog.spared == set(), "its id is spared no more, by the same command"


def test_its_writer_is_acknowledged_nothing_more() -> None:
    """P5.2f: every bookie is fenced before the first of them is asked what it has."""
    it = written()
    lose(it)
    it.writer.is_gone = False
    client = adoption(it.world, it.ledger_id)
    client.start()
    assert len(it.world.packets(client, kind=FenceRequest)) == 3
    it.world.settle(hold=but("b3"))
    assert it.world.packets(client, kind=ReadRequest) == [], "b3 may still store what nobody will find"
    it.world.add(it.writer, it.pen, b"late")
    it.world.run(until=lambda: client.has_ended)
    assert plan_of(client).metadata.last_entry == 4
    assert it.writer.failure is not None and it.world.acked[it.ledger_id] == 4


@pytest.mark.parametrize("away", ["b1", "b2", "b3", "b4"])
def test_who_does_not_answer_has_not_said_no(away: str) -> None:
    """P10.5: ""cannot tell" is never "no"": whoever may have an entry is asked, also where the others have all."""
    it = written(bookies=4)
    lose(it)
    it.world.down.add(away)
    client = adopt(it)
    assert isinstance(client.ended.error, RecoveryInconclusive)
    assert f"{away}: no link" in str(client.ended.error)
    assert ledger_key_path(it.ledger_id) not in it.world.catalog.values
    assert it.ledger_id in it.world.catalog.spared


def test_whom_an_operator_calls_gone_is_not_waited_for_and_that_is_recorded() -> None:
    """P11.5: "a bookie is *gone* only when somebody says so of one incarnation"."""
    it = written(bookies=4)
    lose(it)
    it.world.down.add("b1")
    plan = plan_of(adopt(it, gone=["b1"]))
    assert plan.silent == ["b1"]
    assert plan.record.gone == (tuple(it.world.nodes["b1"].member),)
    assert plan.record.heard == ("b2", "b3", "b4")
    assert seats_of(plan.metadata) == [(0, ["b2", "b3"])], "two copies were seen, and as many are there"
    assert len(reads_all(it)) == 5


@pytest.mark.parametrize("kind", [FenceRequest, ReadRequest])
def test_who_is_called_gone_and_answers_late_is_heard(kind: type) -> None:
    """P5.2c: "One valid copy: the entry is **there**": b2 alone has entry 5; it is in limbo, so it is called gone, and
    its first answer is lost."""
    it = written()
    it.world.add(it.writer, it.pen, b"alone")
    it.world.deliver(it.world.packets(to="b2", kind=AddRequest)[0])
    it.world.settle(hold=lambda packet: packet.client is it.writer)
    it.world.nodes["b2"].storage.table.get(it.ledger_id).in_limbo = 1  # type: ignore[union-attr]
    lose(it)
    client = adoption(it.world, it.ledger_id, ["b2"])
    client.start()
    it.world.settle(hold=lambda packet: packet.bookie_id == "b2" and isinstance(packet.control, kind))
    it.world.fail(it.world.packet(client, to="b2", kind=kind))
    it.world.run(until=lambda: client.has_ended)
    plan = plan_of(client)
    assert (plan.metadata.last_entry, plan.silent) == (5, [])


def test_copies_that_lack_are_made_before_the_key() -> None:
    """I6, P5.2d: "every entry of a closed ledger is on Qa of its write set"; here on Qw."""
    it = written(bookies=4)
    lose(it)
    it.world.down.add("b1")
    it.world.catalog.is_held = True
    client = adoption(it.world, it.ledger_id, ["b1"], quorum=THREE)
    client.start()
    it.world.run(until=lambda: bool(it.world.catalog.waiting))
    assert it.world.nodes["b4"].holds(it.ledger_id) == [0, 1, 2, 3, 4]
    (operation,) = it.world.catalog.waiting
    it.world.catalog.answer(operation)
    plan = plan_of(client)
    assert (seats_of(plan.metadata), plan.record.copied) == ([(0, ["b2", "b3", "b4"])], 5)
    it.world.down |= {"b2", "b3"}
    assert len(reads_all(it)) == 5, "b4 alone has all"


def test_a_copy_counts_when_it_is_durable() -> None:
    """P3.2: "A bookie acknowledges what is durable"; no key before that."""
    it = written(bookies=4)
    lose(it)
    it.world.down.add("b1")
    it.world.nodes["b4"].holds_syncs = True
    client = adoption(it.world, it.ledger_id, ["b1"], quorum=THREE)
    client.start()
    it.world.settle()
    assert not client.has_ended
    it.world.nodes["b4"].holds_syncs = False
    it.world.run(until=lambda: client.has_ended)
    assert plan_of(client).record.copied == 5


def test_an_entry_that_one_bookie_has_is_kept() -> None:
    """P5.2c: "One valid copy: the entry is **there**"; nobody knows how many were told of it."""
    it = written()
    it.world.add(it.writer, it.pen, b"alone")
    it.world.deliver(it.world.packets(to="b2", kind=AddRequest)[0])
    it.world.settle(hold=lambda packet: packet.client is it.writer)
    lose(it)
    plan = plan_of(adopt(it))
    assert plan.metadata.last_entry == 5
    assert plan.record.copied == 2
    assert reads_all(it)[-1] == (5, b"alone")


def test_what_stands_behind_a_gap_was_never_acknowledged() -> None:
    """P3.3: "acknowledgements are in entry order", so behind an entry that nobody has there is none."""
    it = written()
    world = it.world
    world.add(it.writer, it.pen, b"nowhere")
    for packet in world.packets(kind=AddRequest):
        world.lose(packet)
    world.add(it.writer, it.pen, b"behind it")
    world.settle(hold=lambda packet: packet.client is it.writer and not packet.is_request)
    lose(it)
    plan = plan_of(adopt(it))
    assert plan.metadata.last_entry == 4
    assert 6 in world.nodes["b1"].holds(it.ledger_id)


def test_limbo_cannot_tell_and_is_not_taken_for_no() -> None:
    """P7.4: "no LAC and no negative is given" in limbo; so nobody knows where the ledger ends."""
    it = written()
    it.world.nodes["b2"].lose()
    it.world.nodes["b2"].enter_limbo()
    it.world.settle()
    lose(it)
    client = adopt(it)
    assert isinstance(client.ended.error, RecoveryInconclusive)
    assert "whether entry 5 exists could not be settled (b2: it cannot tell about entry 5" in str(
        client.ended.error
    )
    plan = plan_of(adopt(it, gone=["b2"]))
    assert plan.metadata.last_entry == 4
    assert plan.record.heard == ("b1", "b2", "b3"), "what it has counts all the same"


def test_an_entry_that_is_unreadable_where_it_lies_is_not_absent() -> None:
    """P7.1: "what it cannot read counts as unknown": b1 and b3 deny entry 5, b2 has it and cannot read it."""
    it = written()
    it.world.add(it.writer, it.pen, b"alone")
    it.world.deliver(it.world.packets(to="b2", kind=AddRequest)[0])
    it.world.settle(hold=lambda packet: packet.client is it.writer)
    lose(it)
    unreadable = it.world.nodes["b2"].storage.store.unreadable
    unreadable.add((it.ledger_id, 5))
    client = adopt(it)
    assert isinstance(client.ended.error, RecoveryInconclusive)
    unreadable.clear()
    assert plan_of(adopt(it)).metadata.last_entry == 5


def test_acknowledged_entries_that_nobody_has_are_given_up_by_name_only() -> None:
    """P11.5: "Giving up is a verb, never an inference": the LAC says that they were there. Nothing behind is lost."""
    it = written(entries=6)
    for node in it.world.nodes.values():
        node.storage.store.entries[it.ledger_id].pop(2)
        node.storage.store.ids[it.ledger_id].remove(2)
    lose(it)
    client = adopt(it)
    assert isinstance(client.ended.error, EntryUnreadable)
    assert "everything up to entry 4 was acknowledged, and nobody has 2;" in str(client.ended.error)
    assert ledger_key_path(it.ledger_id) not in it.world.catalog.values
    plan = plan_of(adopt(it, accepts_loss=True))
    assert (plan.record.lost, plan.record.lac, plan.metadata.last_entry) == (((2, 2),), 4, 5)
    assert plan.metadata.length == 6 * len(b"entry 0")
    reader = it.world.reader(it.ledger_id, 3, 5)
    reader.start()
    it.world.run(until=lambda: reader.has_ended)
    assert [payload for _, payload in reader.read] == [b"entry 3", b"entry 4", b"entry 5"]


def test_the_last_entry_may_be_lost_and_its_length_is_known() -> None:
    """I37: "the length of a closed ledger is the sum of its payloads", also where its last one is lost."""
    holding = SurveyedBookie(member("b1"), True)
    survey = Survey(7, b"", [holding])
    pen = Pen(7)
    survey.learn_lac(2, 40)
    survey.hear(holding, 0, 9, [pen.frame(b"zero", b"one").body], [(2, 9)])
    assert survey.decide() == []
    assert (survey.end, survey.lost, survey.length()) == (2, [2], 40)
    assert list(survey.found()) == [1, 1, 0]


def test_seats_follow_who_has_the_entries() -> None:
    """P2.4: b4 took the seat of b2 behind entry 20, which two have; the fragments show it, and one copy is made."""
    it = written(bookies=4, entries=20)
    it.world.down.add("b2")
    for number in range(20):
        it.world.add(it.writer, it.pen, b"later %d" % number)
        it.world.settle()
    it.world.down.clear()
    lose(it)
    plan = plan_of(adopt(it))
    seats = [(first, sorted(names)) for first, names in seats_of(plan.metadata)]
    assert seats == [(0, ["b1", "b2", "b3"]), (20, ["b1", "b3", "b4"])]
    assert plan.metadata.fragments[1].length_before == sum(len(b"entry %d" % each) for each in range(20))
    assert plan.record.copied == 1
    assert len(reads_all(it)) == 40


@pytest.mark.parametrize("quorum", [Quorum(5, 3, 2), Quorum(4, 2, 2), Quorum(3, 2, 1), Quorum(5, 1, 1)])
def test_stripes_are_found_again(quorum: Quorum) -> None:
    """P1: "write set of e: seats (e + i) mod E for i < Qw"; who sits where shows in what each has."""
    it = written(quorum, bookies=5, entries=40)
    lose(it)
    plan = plan_of(adopt(it))
    found = plan.metadata.quorum
    assert (found.ensemble_size, found.write_quorum) == (quorum.ensemble_size, quorum.write_quorum)
    assert plan.record.copied == 0
    assert len(reads_all(it)) == 40


def test_another_is_named_only_as_it_was_listed_when_it_was_chosen() -> None:
    """P10.6: "Whoever newly names a bookie compares what the list showed when it was chosen": b4 goes read-only."""
    it = written(bookies=4)
    lose(it)
    for name in it.world.nodes:
        it.world.catalog.raise_placement(name)
    it.world.down.add("b1")
    it.world.catalog.is_held = True
    client = adoption(it.world, it.ledger_id, ["b1"], quorum=THREE)
    client.start()
    it.world.run(until=lambda: bool(it.world.catalog.waiting))
    (operation,) = it.world.catalog.waiting
    assert isinstance(operation.effect, Transact)
    assert {each.key for each in operation.effect.when} >= {
        "/placements/b2",
        "/placements/b3",
        "/placements/b4",
    }
    it.world.catalog.raise_placement("b4")
    client.step(BookiesChanged(it.world.now_ns, it.world.bookies))
    it.world.catalog.is_held = False
    it.world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, RecoveryInconclusive)
    assert "went read-only since it was asked" in str(client.ended.error)


def test_another_that_goes_read_only_while_it_gets_its_copies_is_not_named() -> None:
    """P10.6: the same, heard of before the transaction: that b4 has the copies by now is no reason to name it."""
    it = written(bookies=4)
    lose(it)
    for name in it.world.nodes:
        it.world.catalog.raise_placement(name)
    it.world.down.add("b1")
    client = adoption(it.world, it.ledger_id, ["b1"], quorum=THREE)
    client.start()
    copies = lambda: it.world.packets(client, to="b4", kind=AddRequest)  # noqa: E731
    it.world.run(until=lambda: bool(copies()), hold=lambda packet: packet in copies())
    it.world.catalog.raise_placement("b4")
    client.step(BookiesChanged(it.world.now_ns, it.world.bookies))
    it.world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, RecoveryInconclusive)
    assert "went read-only since it was asked" in str(client.ended.error)
    for name in ("b2", "b3"):  # They have the copies: these may be named as they are now.
        it.world.catalog.raise_placement(name)
    client = adoption(it.world, it.ledger_id, ["b1"])
    client.start()
    it.world.catalog.raise_placement("b2")
    client.step(BookiesChanged(it.world.now_ns, it.world.bookies))
    it.world.run(until=lambda: client.has_ended)
    assert plan_of(client).metadata.last_entry == 4


def test_what_copying_got_over_is_no_reason_for_a_refusal() -> None:
    """P10.6: a source that failed was left for another; the ledger is not adopted since b4 goes read-only."""
    it = written(bookies=4)
    lose(it)
    for name in it.world.nodes:
        it.world.catalog.raise_placement(name)
    it.world.down.add("b1")
    client = adoption(it.world, it.ledger_id, ["b1"], quorum=THREE)
    client.start()
    _lose_the_first_source(it, client)
    it.world.catalog.is_held = True
    it.world.run(until=lambda: bool(it.world.catalog.waiting))
    it.world.catalog.raise_placement("b4")
    it.world.catalog.is_held = False
    it.world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, RecoveryInconclusive)
    assert "went read-only since it was asked" in str(client.ended.error)


@pytest.mark.parametrize("lands", [True, False, None])
def test_an_unknown_outcome_is_settled_before_anything_is_said(lands: bool | None) -> None:
    """P2.2: "**Unknown is still in flight**"; adopted once, whatever became of the first try."""
    it = written()
    lose(it)
    it.world.catalog.is_held = True
    client = adoption(it.world, it.ledger_id)
    client.start()
    it.world.run(until=lambda: bool(it.world.catalog.waiting))
    (operation,) = it.world.catalog.waiting
    it.world.catalog.tell_unknown(operation, lands=lands)
    if lands is None:
        it.world.catalog.answer(it.world.catalog.waiting[0])  # The key is not there yet.
        it.world.catalog.land(operation)
    it.world.catalog.is_held = False
    it.world.run(until=lambda: client.has_ended)
    assert plan_of(client).metadata == it.world.catalog.metadata(it.ledger_id)[0]
    assert len(it.world.catalog.history[ledger_key_path(it.ledger_id)]) == 1


def test_who_adopts_what_another_adopted_hears_so() -> None:
    """P2.2: the transaction finds a key; with the same content it is done, with another it is another's."""
    it = written()
    lose(it)
    it.world.catalog.is_held = True
    clients = [
        adoption(it.world, it.ledger_id),
        adoption(it.world, it.ledger_id),
        adoption(it.world, it.ledger_id, quorum=Quorum(3, 3, 3)),
    ]
    for client in clients:
        client.start()
    it.world.run(until=lambda: len(it.world.catalog.waiting) == 3)
    it.world.catalog.is_held = False
    it.world.run(until=lambda: all(client.has_ended for client in clients))
    assert [client.ended.error is None for client in clients] == [True, True, False]
    assert isinstance(clients[2].ended.error, MetadataConflict)


def test_what_was_forgotten_meanwhile_is_not_adopted() -> None:
    """P7.7: an id that is spared no more proves that its ledger is gone: bookies drop it already."""
    it = written()
    lose(it)
    it.world.catalog.spared.clear()
    client = adopt(it)
    assert isinstance(client.ended.error, MetadataUnavailable)
    assert client.ended.error.definite and "it is spared no more" in str(client.ended.error)


def test_a_deleted_ledger_is_not_adopted() -> None:
    """CL32: it can be brought back, with all that is known of it."""
    it = written()
    lose(it)
    it.world.catalog.transact([], [Put(tombstone_path(it.ledger_id), b"stone")])
    client = adopt(it)
    assert isinstance(client.ended.error, MetadataConflict)
    assert "embedbk ledger undelete" in str(client.ended.error)


def test_a_ledger_of_which_nobody_has_an_entry_is_not_adopted() -> None:
    it = scene()
    lose(it)
    assert isinstance(adopt(it).ended.error, NoSuchLedger)


def test_another_password_adopts_nothing() -> None:
    """P3.5: "a wrong one changes nothing"."""
    it = written()
    lose(it)
    assert isinstance(adopt(it, key=bytes(16)).ended.error, WrongPassword)
    assert all(not node.storage.table.get(it.ledger_id).is_fenced for node in it.world.nodes.values())


def test_a_look_changes_nothing() -> None:
    """`--dry-run`: nobody is fenced, nothing is copied, no key is made; the plan is the same."""
    it = written(bookies=4)
    lose(it)
    dry = adopt(it, is_dry=True)
    plan = plan_of(dry)
    assert not it.world.catalog.waiting and ledger_key_path(it.ledger_id) not in it.world.catalog.values
    for node in it.world.nodes.values():
        row = node.storage.table.get(it.ledger_id)
        assert row is None or not row.is_fenced
    assert plan.metadata == plan_of(adopt(it)).metadata


def test_a_bookie_that_comes_meanwhile_is_asked_too() -> None:
    """P10.5: it may have been of the lost future, and the copy of the metadata does not know it."""
    it = written(bookies=4)
    lose(it)
    client = adoption(it.world, it.ledger_id)
    core = client.core
    assert isinstance(core, LedgerAdoption)
    del core.survey.holdings["b4"]
    client.start()
    client.step(BookiesChanged(it.world.now_ns, it.world.bookies))
    assert isinstance(client.ended.error, RecoveryInconclusive)
    assert "bookie b4 came meanwhile" in str(client.ended.error)


def test_too_few_bookies_for_the_seats_that_are_asked_for() -> None:
    it = written()
    lose(it)
    assert isinstance(adopt(it, quorum=Quorum(4, 3, 2)).ended.error, NotEnoughBookies)


def test_different_entries_under_one_id_are_never_chosen_between() -> None:
    """I8: "two copies of one entry are equal"; where they are not, nobody knows which one is right."""
    it = written()
    other = Pen(it.ledger_id)
    frame = other.frame(b"another", b"one")
    lose(it)
    store = it.world.nodes["b2"].storage.store
    store.drop(it.ledger_id)
    store.put(frame)
    client = adopt(it)
    assert isinstance(client.ended.error, StorageError)
    assert "has another entry 0 than" in str(client.ended.error)


def _lose_the_first_source(it: Scene, client: Client) -> None:
    """The bookie that is asked for the first copies is down."""
    asked = lambda: [  # noqa: E731
        packet for packet in it.world.packets(client, kind=ReadRequest) if packet.tag[0] == "source"
    ]
    it.world.run(until=lambda: bool(asked()), hold=lambda packet: packet in asked())
    it.world.down.add(asked()[0].member.bookie_id)


def test_a_source_that_fails_is_left_for_another() -> None:
    """P6.1: "a failed or slow copy is passed over"."""
    it = written(bookies=4)
    lose(it)
    it.world.down.add("b1")
    client = adoption(it.world, it.ledger_id, ["b1"], quorum=THREE)
    client.start()
    _lose_the_first_source(it, client)
    it.world.run(until=lambda: client.has_ended)
    assert plan_of(client).record.copied == 5


def test_a_late_answer_counts_for_nothing() -> None:
    """P3.8: an answer to a question that was given up; the entry may be asked for by now, or decided."""
    it = written()
    lose(it)
    client = adoption(it.world, it.ledger_id)
    client.start()
    (fence,) = it.world.packets(client, to="b1")
    it.world.now_ns += 2_000 * MS
    it.world.run(until=lambda: client.has_ended)
    assert plan_of(client).metadata.last_entry == 4
    assert client.core.step(SendFailed(it.world.now_ns, fence.tag, fence.member, "late")) == []
    fenced = FenceAnswer(Status.OK, it.ledger_id, 9, 9)
    assert client.core.step(Answered(it.world.now_ns, fence.tag, fence.member, fenced)) == []
    assert (
        client.core.step(Answered(it.world.now_ns, fence.tag, fence.member, ReadAnswer(Status.OK, 1))) == []
    )


def test_a_key_that_was_put_by_a_stranger_is_named() -> None:
    it = written()
    lose(it)
    it.world.catalog.is_held = True
    client = adoption(it.world, it.ledger_id)
    client.start()
    it.world.run(until=lambda: bool(it.world.catalog.waiting))
    metadata = plan_of(adopt_dry(it)).metadata.with_changes(custom={"a": b"b"})
    it.world.catalog.transact([], [Put(ledger_key_path(it.ledger_id), encode_ledger_metadata(metadata))])
    it.world.catalog.is_held = False
    it.world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, MetadataConflict)
    assert "CLOSED, last entry 4" in str(client.ended.error)


def adopt_dry(it: Scene) -> Client:
    return adopt(it, is_dry=True)


def test_more_is_lost_than_one_word_gives_up() -> None:
    """adopted.LOST_RANGES_MAX: the record of it has a bound, and so has what is given up."""
    holding = SurveyedBookie(member("b1"), True)
    bookies = (BookieInfo(member("b1"), True),)
    options = AdoptionOptions(accepts_loss=True, read_entries=4096)
    core = LedgerAdoption(
        7, KEY, b"", VERIFIER, [(member("b1"), True)], 1, bookies, random.Random(0), options
    )
    core.survey.holdings = {"b1": holding}
    core.step(Started(0))
    core.step(
        Answered(1, ("fence", "b1"), member("b1"), FenceAnswer(Status.OK, 7, 2 * LOST_RANGES_MAX + 1, 9))
    )
    pen, body = Pen(7), b""
    for _ in range(LOST_RANGES_MAX + 2):
        body += bytes(pen.frame(b"x").body)
        pen.next_entry, pen.length = pen.next_entry + 1, pen.length + 1
    frame = frame_of(memoryview(body))
    absent = [(each, each) for each in range(1, 2 * LOST_RANGES_MAX + 4, 2)]
    header = decode_frame_header(memoryview(encode_frame_header(frame, bytes(16))))
    tag = ("read", "b1", 0, 4095)
    rest = [(2 * LOST_RANGES_MAX + 3, 4095)]
    ended = core.step(
        Answered(2, tag, member("b1"), ReadAnswer(Status.OK, 7, [*absent, *rest]), [(header, frame.body)])
    )
    (end,) = ended
    assert isinstance(end, Ended) and isinstance(end.error, EntryUnreadable)
    assert "too many entries are lost to be given up by one word: 1, 3, 5" in str(end.error)


def test_a_copy_with_a_wrong_tag_is_a_failed_copy() -> None:
    """P3.1: "A copy without a right one is a failed copy": b2 has what its writer did not make; b1 is right."""
    survey = Survey(7, b"key", [SurveyedBookie(member("b1"), True), SurveyedBookie(member("b2"), True)])
    right, wrong = (encode_tagged(DigestType.HMAC, key, 7, 0, 1, b"x") for key in (b"key", b"another"))
    one, two = survey.holdings.values()
    survey.hear(one, 0, 9, [memoryview(right)], [(1, 9)])
    survey.hear(two, 0, 9, [memoryview(wrong)], [])
    assert (survey.digest, list(survey.masks)) == (DigestType.HMAC, [1])
    assert two.unknown == [(0, 0)] and two.next_entry == 1
    survey.hear(two, 1, 9, [], [(1, 9)])
    assert survey.decide() == [] and survey.end == 0


def test_entries_that_do_not_go_on_from_each_other_are_of_two_ledgers() -> None:
    """P2.1: an id that is "never used twice" was used twice: entry 1 does not begin where entry 0 ends."""
    survey = Survey(7, b"", [SurveyedBookie(member("b1"), True), SurveyedBookie(member("b2"), True)])
    one, two = survey.holdings.values()
    first, second = Pen(7), Pen(7)
    second.next_entry, second.length = 1, 40
    survey.hear(one, 0, 9, [first.frame(b"zero").body], [(1, 9)])
    survey.hear(two, 0, 9, [second.frame(b"one").body], [(0, 0), (2, 9)])
    with pytest.raises(StorageError, match="entry 1 begins behind 40 bytes, and 4 stand before it"):
        survey.decide()


def test_what_an_answer_does_not_mention_is_unknown() -> None:
    """P5.2c: "ids an answer does not mention" are unknown, and nothing follows from them."""
    holding = SurveyedBookie(member("b1"), True)
    survey = Survey(7, b"", [holding])
    survey.hear(holding, 0, 9, [], [])
    assert (holding.unknown, holding.next_entry) == ([(0, 9)], 10)
    assert survey.decide() == [holding] and holding.next_entry == 0, "asked again"
    pen = Pen(7)
    pen.next_entry = 2
    survey.hear(holding, 0, 9, [pen.frame(b"two").body], [(5, 6)])
    assert holding.unknown == [(0, 1), (3, 4)]
    assert (holding.next_entry, holding.absent) == (7, [(5, 6)])


def test_more_entries_than_are_looked_at_are_refused() -> None:
    survey = Survey(7, b"", [SurveyedBookie(member("b1"), True)])
    with pytest.raises(StorageError, match=f"more than {ENTRIES_MAX} entries"):
        survey.learn_lac(ENTRIES_MAX, 9)
    survey.bits = {f"b{number}": number for number in range(HOLDERS_MAX)}
    with pytest.raises(StorageError, match=f"more than {HOLDERS_MAX} bookies"):
        survey.bit_of("one more")


@pytest.mark.parametrize("seed", range(40))
def test_seats_show_every_copy_that_they_claim(seed: int) -> None:
    """P2.4, I17: whatever the copies look like, each fragment has E distinct seats and rises, and with what is lacking
    each entry is on its whole write set."""
    chance = random.Random(seed)
    bookies = chance.randint(1, 7)
    size = chance.randint(1, bookies)
    copies = chance.randint(1, size)
    quorum = Quorum(size, copies, chance.randint(1, copies))
    seats = chance.sample(range(bookies), size)
    masks: list[int] = []
    for entry_id in range(chance.choice([0, 1, 30, 400])):
        if chance.random() < 0.02:
            seats = chance.sample(range(bookies), size)
        mask = sum(1 << seats[(entry_id + number) % size] for number in range(copies))
        masks.append(mask & ~(1 << chance.randrange(bookies)) if chance.random() < 0.1 else mask)
    fragments = fit(masks, quorum, (1 << bookies) - 1, ())
    assert [each.first for each in fragments] == sorted({each.first for each in fragments})
    assert fragments[0].first == 0 and all(len(set(each.bits)) == size for each in fragments)
    made = list(masks)
    for entry_id, bit in lacking(masks, fragments, quorum):
        assert masks[entry_id] and not made[entry_id] >> bit & 1
        made[entry_id] |= 1 << bit
    for entry_id, mask in enumerate(made):
        bits = [each for each in fragments if each.first <= entry_id][-1].bits
        owing = {bits[(entry_id + number) % size] for number in range(copies)}
        assert not mask or all(mask >> bit & 1 for bit in owing)
    guessed = guess_quorum(masks, (1 << bookies) - 1, bookies)
    assert guessed.ensemble_size >= guessed.write_quorum >= guessed.ack_quorum >= 1
    assert len(fit(masks, guessed, (1 << bookies) - 1, ())) >= 1


def test_more_fragments_than_metadata_has_room_for_are_not_made() -> None:
    """fitting.FRAGMENTS_MAX: beyond it copies are made instead."""
    masks = [0b011 if number // 20 % 2 else 0b110 for number in range(20 * 2 * FRAGMENTS_MAX)]
    fragments = fit(masks, Quorum(2, 2, 1), 0b111, ())
    assert len(fragments) == FRAGMENTS_MAX
    assert sum(1 for _ in lacking(masks, fragments, Quorum(2, 2, 1))) > 0


@pytest.mark.parametrize("has_trace", [False, True])
def test_a_bookie_that_forgot_the_ledger_does_not_deny_it(has_trace: bool) -> None:
    """P7.4, P7.1: b1 and b2 acknowledged entry 1. b1 is gone; b2 comes back without it, under metadata that does not
    know the ledger. Whoever adopts it must not hear "no" from b2 and b3, and end it before entry 1."""
    it = written(entries=1)
    world = it.world
    world.add(it.writer, it.pen, b"on two")
    world.settle(hold=but("b3"))
    assert world.acked[it.ledger_id] == 1
    lose(it)
    node = world.nodes["b2"]
    node.lose(1 if has_trace else None)
    assert (node.storage.table.get(it.ledger_id) is not None) == has_trace
    told = Told(b"t" * 16, 1, b"n", 9, 30, [(it.ledger_id, 20)])
    node.perform(node.core.step(LimboListed(world.now_ns, [], [], [], [], told)))
    world.settle()
    assert node.core.is_serving
    world.down.add("b1")
    client = adopt(it, gone=["b1"])
    assert isinstance(client.ended.error, RecoveryInconclusive)
    assert "could not be settled (b2: it cannot tell about entry" in str(client.ended.error)
