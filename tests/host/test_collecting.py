"""Garbage collection of one bookie in its place, beside a real metadata member (P7.7)."""

from __future__ import annotations

from embedbk.codec.messages import FenceRequest
from embedbk.host.bookie_node import BookieNode
from embedbk.metadata.vocabulary import MemberStarted
from tests.host.place import KEY, Place, add, frame


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
