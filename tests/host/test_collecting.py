"""Garbage collection of one bookie in its place, beside a real metadata member (P7.7)."""

from __future__ import annotations

from embedbk.codec.add_messages import FenceRequest
from embedbk.codec.metadata_messages import Acknowledged, MetadataReply, MetadataRequest, Put, Txn
from embedbk.codec.quorum_messages import ForgetIds
from embedbk.core.metadata_words import MetadataFailed
from embedbk.core.space import OLDER_METADATA, UNKEPT_METADATA
from embedbk.core.witness import Met
from embedbk.errors import StorageError
from embedbk.host.bookie_node import BookieNode
from embedbk.host.metadata_node import MetadataNode
from embedbk.metadata.levels import LEVEL_OF_LINEAGES
from embedbk.metadata.vocabulary import MemberStarted
from embedbk.ports.links import Identity
from embedbk.storage.memory_journal import MemoryJournal, MemoryRecord
from embedbk.storage.metadata_store import MetadataStore
from embedbk.transports.local import LocalTransport
from tests.host.place import KEY, SECOND, TOKEN, Place, add, frame


def collect(place: Place, node: BookieNode) -> None:
    """One round of collection."""
    core = node.collecting.core
    rounds, core.due_ns = core.round_count, place.now_ns
    place.until(lambda: core.round_count > rounds)


def test_collection_changes_nothing_of_the_metadata() -> None:
    """P7.7: each round took an id only to learn where they end, so metadata from an older copy caught up by being
    asked, and live ledgers were dropped."""
    place = Place(bookies=1)
    node = place.bookie("b1")
    place.peer("b1").ask(*add(node.storage.incarnation, frame(7, 0, [b"precious"])))
    place.turns()
    before = place.metadata.core.catalog.next_id, place.metadata.core.catalog.revision
    for _ in range(10):
        collect(place, node)
    assert (place.metadata.core.catalog.next_id, place.metadata.core.catalog.revision) == before
    row = node.core.table.get(7)
    assert row is not None
    assert not row.is_dropped


def test_a_fence_of_a_made_up_id_does_not_stop_collection() -> None:
    """P7.7: an id heard from a client proves nothing, neither that metadata is old nor that another ledger lives."""
    place = Place(bookies=1)
    node = place.bookie("b1")
    peer = place.peer("b1")
    peer.ask(*add(node.storage.incarnation, frame(7, 0, [b"deleted"])))
    peer.ask(FenceRequest(node.storage.incarnation, 1 << 40, KEY))
    place.metadata.core.catalog.next_id = 8  # As if ledger 7 had been made and deleted.
    collect(place, node)
    dropped, kept = node.core.table.get(7), node.core.table.get(1 << 40)
    assert dropped is not None
    assert dropped.is_dropped
    assert kept is not None
    assert not kept.is_dropped
    assert node.collecting.core.due_ns is not None


def test_a_new_generation_lets_no_bookie_drop_what_it_skipped() -> None:
    """P7.7, P10.5: ledgers of a lost future are absent in the metadata that was restored, and live on bookies."""
    place = Place(bookies=1)
    node = place.bookie("b1")
    place.peer("b1").ask(*add(node.storage.incarnation, frame(7, 0, [b"precious"])))
    place.metadata._step_core(MemberStarted(place.now_ns, begins_generation=True))
    place.turns()
    assert place.metadata.core.catalog.next_id > 7
    collect(place, node)
    row = node.core.table.get(7)
    assert row is not None
    assert not row.is_dropped


def test_what_is_forgotten_of_a_lost_future_goes_and_nothing_else() -> None:
    """P7.7: "until an operator has decided"; from then on absence proves what it proves of every other id."""
    place = Place(bookies=1)
    node = place.bookie("b1")
    for ledger_id in (7, 8):
        place.peer("b1").ask(*add(node.storage.incarnation, frame(ledger_id, 0, [b"precious"])))
    place.metadata.core.catalog.level = LEVEL_OF_LINEAGES
    place.metadata._step_core(MemberStarted(place.now_ns, begins_generation=True))
    place.turns()
    collect(place, node)
    told = place.peer("metadata").ask(MetadataRequest(0, 1, 1, ForgetIds(((7, 8),))))
    assert isinstance(told, MetadataReply) and isinstance(told.result, Acknowledged)
    for _ in range(4):
        collect(place, node)
    rows = [node.core.table.get(ledger_id) for ledger_id in (7, 8)]
    assert [row is None or bool(row.is_dropped) for row in rows] == [True, False]


def restart_metadata(place: Place, records: list[MemoryRecord], *, begins_generation: bool = False) -> None:
    """The member starts again at its address on these records."""
    place.nodes.pop("metadata").transport.close()
    journal = place.disks["metadata"] = MemoryJournal(records)
    store = MetadataStore(journal, journal.first_token(), may_have_lost=begins_generation)
    transport = LocalTransport(Identity("metadata", "metadata", b"m" * 16, TOKEN))
    place.metadata = MetadataNode(
        store,
        transport,
        place.metadata.endpoints,
        now_ns=place.now_ns,
        chance=place.chance,
    )
    place.nodes = {"metadata": place.metadata, **place.nodes}


def test_a_copy_of_a_member_that_ran_is_told_by_what_happened_since() -> None:
    """P10.5: it has the same starts as the newest, and the session of every bookie, so no session is opened anew; the
    registration in it is still there, too."""
    place = Place(bookies=1)
    node, journal = place.bookie("b1"), place.disks["metadata"]
    copy = list(journal.records)
    client = place.start_client()
    client.metadata.request(place.now_ns, Txn([], [Put("/made", b"")]), lambda *_: None)
    place.run_for(6 * SECOND)  # The bookie hears how far it is.
    session = node.metadata.session
    restart_metadata(place, copy)
    place.until(lambda: node.witnessing.is_doubted)
    assert node.metadata.session == session
    assert node.spacing.core.reasons == (OLDER_METADATA,)
    place.until(lambda: not any(info.is_writable for info in client.bookies))
    newest = list(journal.records)
    restart_metadata(place, newest)
    place.until(lambda: not node.witnessing.is_doubted)
    assert node.spacing.core.is_writable


def test_a_bookie_that_restarts_remembers_what_it_met() -> None:
    """P10.5: durably; an operator's word ends it, and the next copy is older again."""
    place = Place(bookies=1)
    copy = list(place.disks["metadata"].records)
    restart_metadata(place, list(place.disks["metadata"].records))
    place.until(lambda: (met := place.bookie("b1").storage.met) is not None and met.count == 2)
    survivors = place.crash("b1")
    restart_metadata(place, copy)
    node = place.start_bookie("b1", survivors)
    place.until(lambda: node.is_registered)
    assert node.witnessing.is_doubted
    assert not node.core.is_writable, "it never stood in the list as one that takes new ledgers"
    restart_metadata(place, copy, begins_generation=True)
    place.until(lambda: not node.witnessing.is_doubted)
    assert node.core.is_writable


def test_nothing_is_done_under_metadata_that_cannot_be_kept() -> None:
    """P10.5: a start that a bookie cannot keep durably is not met: no normal adds are taken and nothing is dropped
    under it, reads and fences stay possible (P7.8); with room again it is kept, durably before all else."""
    place = Place(bookies=1)
    node, synced = place.bookie("b1"), list[bool]()
    failing, first = [True], place.bookie("b1").witnessing.core.met

    def keep(met: Met, *, is_synced: bool) -> None:
        if failing[0]:
            raise StorageError("data/b1/METADATA_MET cannot be written: no room", hint="make some")
        synced.append(is_synced)

    node.storage.keep_met = keep  # type: ignore[method-assign]
    restart_metadata(place, list(place.disks["metadata"].records))
    client = place.start_client()
    place.until(lambda: node.witnessing.is_doubted)
    place.run_for(6 * SECOND)
    assert first is not None
    assert node.witnessing.core.met is not None
    assert node.witnessing.core.met.count == first.count == 1
    assert node.is_registered
    assert node.spacing.core.reasons == (UNKEPT_METADATA,), "it is no older one"
    assert node.spacing.why() == (
        "which metadata it met cannot be kept (data/b1/METADATA_MET cannot be written: no room (make some))"
    )
    told: list[object] = []
    node.witnessing.ask(place.now_ns, "collector", told.append)
    place.until(lambda: bool(told))
    assert isinstance(told[0], MetadataFailed)
    assert "no room" in told[0].reason
    failing[0] = False
    place.until(lambda: not node.witnessing.is_doubted)
    assert node.witnessing.core.met.count == 2
    assert node.spacing.core.is_writable
    for _ in range(2):
        client.metadata.request(place.now_ns, Txn([], [Put("/made", b"")]), lambda *_: None)
        place.run_for(6 * SECOND)
    assert synced[:2] == [True, False]
