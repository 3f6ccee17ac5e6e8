"""Snapshots that somebody keeps elsewhere, and who says which metadata was met (METADATA.md, 10; P10.5)."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from embedbk.codec.metadata_messages import (
    MetadataReply,
    MetadataRequest,
    OpenSession,
    Put,
    Refusal,
    Result,
    Txn,
)
from embedbk.codec.quorum_messages import (
    SNAPSHOT_BYTES_MAX,
    AskHeld,
    AskMet,
    CutSnapshot,
    HeldTold,
    MetTold,
    ReadSnapshot,
    SnapshotBytes,
    SnapshotCut,
)
from embedbk.host import backing_up, telling
from embedbk.host.inquiring import PATIENCE_NS, Inquiry
from embedbk.metadata.governing import REFUSED
from embedbk.metadata.levels import LEVEL
from embedbk.ports.links import Identity
from embedbk.storage.kept_metadata import read_snapshot
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshots import Snapshots
from embedbk.transports.local import LocalTransport
from tests.host.place import TOKEN, add, frame
from tests.host.place import Place as House
from tests.metadata.test_node import Place


@pytest.fixture
def place() -> Place:
    place = Place(MemoryDisk())
    place.do(OpenSession(1000, "x", 0, LEVEL))
    place.do(Txn([], [Put("/a", b"1")]))
    return place


def whole(place: Place, cut: SnapshotCut) -> bytes:
    found = b""
    while True:
        place.ask(ReadSnapshot(cut.index, cut.term, len(found)))
        result = place.messages.pop().result
        assert isinstance(result, SnapshotBytes)
        if not result.data:
            return found
        found += result.data


def settle(place: Place) -> None:
    """It is cut a slice in each turn."""
    for _ in range(6):
        place.sync()


def cut_of(place: Place) -> SnapshotCut:
    place.ask(CutSnapshot())
    settle(place)
    (reply,) = place.messages
    place.messages.clear()
    assert isinstance(reply, MetadataReply) and isinstance(reply.result, SnapshotCut)
    return reply.result


def test_a_copy_has_everything_that_was_applied_when_it_was_asked_for(place: Place, tmp_path: Path) -> None:
    """METADATA.md, 10: it is cut though none is due, and answered when it counts: a crash takes nothing of it back."""
    assert not place.node.store.is_snapshot_due()
    place.ask(CutSnapshot())
    for _ in range(4):
        place.turn()
    assert place.messages == [], "the log does not name it durably yet"
    settle(place)
    cut = place.messages.pop().result
    assert isinstance(cut, SnapshotCut)
    assert cut.index == place.node.core.applied_index
    content = whole(place, cut)
    assert len(content) == cut.file_bytes
    file = tmp_path / "copy"
    file.write_bytes(content)
    assert read_snapshot(file).catalog.digest() == place.node.core.catalog.digest()
    assert cut_of(place) == cut, "nothing changed since"
    place.do(Txn([], [Put("/b", b"1")]))
    assert cut_of(place).index == cut.index + 1
    place.close()


def test_a_file_goes_in_pieces_as_large_as_a_message_takes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backing_up, "SNAPSHOT_BYTES_MAX", 1000)
    cut = cut_of(place)
    assert SNAPSHOT_BYTES_MAX >= 1000 and cut.file_bytes > 1000
    assert len(whole(place, cut)) == cut.file_bytes
    place.ask(ReadSnapshot(cut.index, cut.term, 1 << 40))
    assert place.messages.pop().result == SnapshotBytes(b"")
    place.close()


def test_a_snapshot_that_is_gone_is_refused_and_asked_for_anew(place: Place) -> None:
    """Nothing is pinned: a copy that stands still holds no disk."""
    cut = cut_of(place)
    for number in range(2):
        place.do(Txn([], [Put(f"/{number}", b"")]))
        cut_of(place)
    place.ask(ReadSnapshot(cut.index, cut.term, 0))
    refused = place.messages.pop().result
    assert isinstance(refused, Refusal)
    assert refused.code == REFUSED and "newer ones took its place" in refused.text
    place.close()


def test_copies_that_wait_are_bounded_and_end_with_their_link(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backing_up, "ASKED_MAX", 2)
    for _ in range(3):
        place.ask(CutSnapshot())
    (refused,) = [each.result for each in place.messages]
    assert isinstance(refused, Refusal) and "2 snapshots are asked for already" in refused.text
    place.transport.drop(place.link, "gone")
    place.turn()
    assert place.node._backing_up.wanted_index == 0
    place.close()


def test_a_copy_asked_for_while_a_snapshot_is_written_is_of_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """METADATA.md, 10: it is cut like every other, so one at a time, though the one under way is too old for it."""
    snapshots = place.node.store.snapshots
    assert isinstance(snapshots, Snapshots)
    is_written, may_go_on = threading.Event(), threading.Event()
    rename = SnapshotFiles.rename

    def rename_later(files: SnapshotFiles, name: str, new: str) -> None:
        is_written.set()
        may_go_on.wait()
        rename(files, name, new)

    monkeypatch.setattr(snapshots._files, "threaded", True)
    monkeypatch.setattr(SnapshotFiles, "rename", rename_later)
    place.ask(CutSnapshot())
    while place.node._snapshotting._cut is not None:
        place.turn()
    is_written.wait()
    first = place.node.core.applied_index
    place.do(Txn([], [Put("/b", b"1")]))
    place.ask(CutSnapshot())
    place.turn()
    assert snapshots.is_under_way and place.messages == []
    assert snapshots._writer is not None and snapshots._writer._thread is not None
    monkeypatch.setattr(snapshots._files, "threaded", False)
    may_go_on.set()
    snapshots._writer._thread.join()
    settle(place)
    settle(place)
    results = [each.result for each in place.messages if isinstance(each, MetadataReply)]
    indexes = [each.index for each in results if isinstance(each, SnapshotCut)]
    assert indexes == [first, first + 1]
    place.close()


def test_a_copy_is_asked_for_once_however_long_it_takes_to_write(place: Place) -> None:
    """METADATA.md, 10: asked for again it would be of a later state, and never be had while commands go on."""
    answers: list[Result] = []
    transport = LocalTransport(Identity("client", "quorum", b"q" * 16, b""))
    inquiry = Inquiry(
        transport, place.node.endpoints, CutSnapshot(), lambda _, result: answers.append(result)
    )
    for now_ns in range(0, 3 * PATIENCE_NS, PATIENCE_NS // 10):
        inquiry.step(now_ns)
        place.turn(now_ns)  # The journal stands still, so the snapshot is not named yet.
    (waiting,) = place.node._backing_up._asked
    assert waiting.at_ns < PATIENCE_NS, "it is still the first question"
    settle(place)
    inquiry.step(3 * PATIENCE_NS)
    assert isinstance(answers[0], SnapshotCut)
    inquiry.close()
    place.close()


def test_a_disk_without_room_refuses_whoever_waits(place: Place) -> None:
    """I53: the member goes on; whoever wants a copy is told why there is none."""
    place.disk.break_device("m/snapshots", errno.EDQUOT)
    place.ask(CutSnapshot())
    place.turn()
    settle(place)
    (refused,) = [each.result for each in place.messages]
    assert isinstance(refused, Refusal)
    assert refused.code == REFUSED and "no snapshot can be written" in refused.text
    place.disk.break_device("m/snapshots", 0)
    place.messages.clear()
    assert cut_of(place).index == place.node.core.applied_index, (
        "there is room again, and it is tried at once"
    )
    place.close()


def test_bookies_and_members_say_which_metadata_they_know() -> None:
    """P10.5: whoever recovers metadata asks all of them; a question that changes nothing and needs no session."""
    house = House(bookies=1)
    bookie = house.bookie("b1")
    member = house.metadata
    house.until(lambda: bookie.is_registered)
    question = MetadataRequest(0, 1, 1, AskMet())
    told = house.peer("b1").ask(question)
    met = bookie.storage.met
    assert met is not None
    assert told == MetadataReply(
        0, 1, MetTold("bookie", "b1", met.cluster_token, met.lineage, met.revision, met.ids_end)
    )
    bookie.witnessing.core.met = None
    assert house.peer("b1").ask(question) == MetadataReply(0, 1, MetTold("bookie", "b1"))
    bookie.witnessing.core.met = met
    from_member = house.peer("metadata").ask(question)
    assert isinstance(from_member, MetadataReply) and isinstance(from_member.result, MetTold)
    catalog = member.core.catalog
    assert from_member.result == MetTold("leader", "m1", TOKEN, b"", catalog.revision, catalog.next_id)
    house.close()


def test_a_bookie_names_what_it_holds_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """P7.7: what an operator sees before he lets anything go; a ledger that was dropped is held no more."""
    monkeypatch.setattr(telling, "HELD_IDS_MAX", 2)
    house = House(bookies=1)
    node = house.bookie("b1")
    for ledger_id in (3, 5, 7, 8, 11):
        house.peer("b1").ask(*add(node.storage.incarnation, frame(ledger_id, 0, [b"x"])))
    held: list[int] = []
    first, pages = 4, 0
    while first:
        reply = house.peer("b1").ask(MetadataRequest(0, 1, 1, AskHeld(first, 11)))
        assert isinstance(reply, MetadataReply) and isinstance(reply.result, HeldTold)
        held += reply.result.ids
        first, pages = reply.result.next_id, pages + 1
    assert (held, pages) == ([5, 7, 8], 2)
    row = node.storage.table.get(7)
    assert row is not None
    row.is_dropped = 1
    reply = house.peer("b1").ask(MetadataRequest(0, 1, 1, AskHeld(0, 1 << 62)))
    assert isinstance(reply, MetadataReply) and reply.result == HeldTold("b1", [3, 5], 7)
    house.close()
