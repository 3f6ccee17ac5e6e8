"""P7.8: a bookie without room takes no normal adds, still fences and takes recovery adds, and comes back by itself."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.registration import decode_registration, registration_path
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.space import LOW_SPACE, NO_ROOM, OPERATOR, Space, SpaceOptions
from embedbk.core.upkeep_words import OperatorAsked, RetryWrites, SetWritable, SpaceSeen
from embedbk.errors import StorageError
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.read_only_marker import end_read_only, keep_read_only, read_only_reason
from tests.host.place import KEY, MS, SECOND, TOKEN, DiskStorage, Peer, Place, add, frame

OPTIONS = SpaceOptions(low_bytes=100, back_bytes=150, look_ns=1000, retry_ns=10, again_ns=2)


def seen(free: int | None, *, refused: bool = False, due: bool = True) -> SpaceSeen:
    return SpaceSeen(0, free, refused, due)


def test_it_is_read_only_below_one_bound_and_back_above_another() -> None:
    """Rule P7.8, ST26, L11: automatic return, and one flush does not turn it back and forth."""
    space = Space(OPTIONS)
    assert space.step(seen(100)) == [] and space.is_writable
    assert space.step(seen(99)) == [SetWritable(False)]
    assert space.reasons == (LOW_SPACE,)
    assert space.step(seen(149)) == []
    assert space.step(seen(150)) == [SetWritable(True)] and space.is_writable


def test_what_cannot_be_told_concludes_nothing() -> None:
    """ST26: "cannot tell" is neither low nor back."""
    space = Space(OPTIONS)
    assert space.step(seen(None)) == [] and space.is_writable
    space.step(seen(0))
    assert space.step(seen(None)) == [] and not space.is_writable


def test_it_looks_before_the_reserve_could_be_eaten() -> None:
    """Rule P7.8, ST28: the nearer the bound, the sooner it looks; never so late that a fast writer passes it unseen."""
    space = Space(replace(OPTIONS, look_ns=5 * SECOND, again_ns=MS, fill_bytes_per_s=1000))
    for free, due_ns in (
        (10**9, 5 * SECOND),
        (100 + 3000, 3 * SECOND),
        (100 + 30, 30 * MS),
        (100, MS),
        (None, 5 * SECOND),
    ):
        assert space.step(seen(free)) == []
        assert space.deadline_ns == due_ns


def test_every_reason_must_be_gone() -> None:
    """ST27 (#2374, #4640, #4225): one state machine: an operator's word, low space and a refused write do not undo each
    other."""
    space = Space(OPTIONS)
    assert space.step(OperatorAsked(0, True)) == [SetWritable(False)]
    assert space.step(seen(10, refused=True)) == [RetryWrites()]
    assert space.step(seen(10, refused=True)) == [RetryWrites()]
    assert space.reasons == (OPERATOR, LOW_SPACE, NO_ROOM)
    assert space.step(OperatorAsked(0, False)) == []
    assert space.step(seen(500, refused=True)) == [RetryWrites()]
    assert space.step(seen(500)) == [SetWritable(True)]
    assert space.step(OperatorAsked(0, False)) == []


def test_what_found_no_room_is_tried_again_by_time() -> None:
    """L11: a read-only bookie gets no adds that would make it flush; it tries by itself, not in every turn."""
    space = Space(OPTIONS)
    assert space.step(seen(None, refused=True, due=False)) == [RetryWrites()] and space.is_writable
    assert space.deadline_ns == OPTIONS.again_ns
    assert space.step(seen(None, refused=True)) == [SetWritable(False), RetryWrites()]
    assert space.deadline_ns == OPTIONS.retry_ns
    assert space.step(seen(None, refused=True)) == [RetryWrites()]
    space.step(seen(None))
    assert space.deadline_ns == OPTIONS.look_ns


def test_one_write_without_room_is_no_reason_yet() -> None:
    """Rule P7.8, ST27: the second try at once finds room, and nobody hears that there was none: each word of the list
    of bookies moves seats of every writer (P4.1)."""
    space = Space(OPTIONS)
    for _ in range(3):
        assert space.step(seen(None, refused=True, due=False)) == [RetryWrites()]
        assert space.step(seen(None, due=False)) == []
        assert space.is_writable


# In its place.


class RealStorage(BookieStorage):
    """On the real disk, likewise."""

    def commit(self) -> None:
        while self.step():
            pass


def registered_writable(place: Place) -> bool:
    record = place.metadata.core.catalog.get(registration_path("b1")).record
    return record is not None and decode_registration(record.value or b"").is_writable


def ask_add(place: Place, peer: Peer, entry_id: int, *, recovery: bool = False) -> Status:
    request, *frames = add(place.bookie("b1").storage.incarnation, frame(7, entry_id, [b"x" * 3000]))
    assert isinstance(request, AddRequest)
    if recovery:
        request = AddRequest(request.incarnation, request.nonce, request.seating, True)
    answer = peer.ask(request, *frames)
    assert isinstance(answer, AddAnswer)
    return answer.status


@pytest.mark.parametrize("what", ["flush", "device", "operator"])
def test_a_full_bookie_is_registered_so_fences_and_comes_back(what: str) -> None:
    """Rule P7.8, I53, L11, D9, scenario 11 (#208): no room for an entry log, little on the device, or an operator's
    word: normal adds are refused and the list of bookies says so; a fence and a recovery add are durable; nothing that
    was acknowledged is lost; with room again it is writable again."""
    disk, free = MemoryDisk(), [1 << 40]
    place = Place(bookies=0)
    place.free_bytes = lambda: free[0]
    node = place.start_bookie("b1", storage=DiskStorage(disk))
    place.until(lambda: node.is_registered)
    peer = place.peer("b1")
    assert ask_add(place, peer, 0) == Status.OK
    entry_id = 1
    if what == "flush":
        disk.fail("allocate", error=errno.ENOSPC, stays=True)
    elif what == "device":
        free[0] = 1000
    else:
        node.spacing.set_read_only(place.now_ns, True)
    while (status := ask_add(place, peer, entry_id)) == Status.OK:
        entry_id += 1
        place.now_ns += SECOND
        assert entry_id < 200
    assert status == Status.READ_ONLY
    place.until(lambda: not registered_writable(place))
    answer = peer.ask(FenceRequest(node.storage.incarnation, 99, KEY))
    assert isinstance(answer, FenceAnswer) and answer.status == Status.OK
    assert ask_add(place, peer, entry_id, recovery=True) == Status.OK
    assert node.failure is None

    disk.fail("allocate", nth=0)
    free[0] = 1 << 40
    node.spacing.set_read_only(place.now_ns, False)
    place.until(lambda: registered_writable(place), 50 * MS)
    assert ask_add(place, peer, entry_id + 1) == Status.OK
    place.close()
    disk.crash()
    storage = DiskStorage(disk)
    for each in range(entry_id + 2):
        assert storage.read(7, each, each, 1 << 20).frame is not None
    row = storage.table.get(99)
    assert row is not None and row.is_fenced
    storage.close()


def test_a_bookie_that_is_busy_stays_in_the_list_of_those_who_take_adds() -> None:
    """Rule P7.8, RP34: a write cache that is full because the disk is slow is no lack of room. Requests wait, the list
    of bookies says what it said, no add is refused as read-only; when the disk is back, all are answered."""
    disk = MemoryDisk()
    place = Place(bookies=0)
    place.free_bytes = lambda: 1 << 40
    node = place.start_bookie("b1", storage=DiskStorage(disk))
    place.until(lambda: node.is_registered)
    peer = place.peer("b1")
    place.held.add("b1")
    count = 2 * 2 * FRAME_BYTES_MAX // 500_000  # Twice what both halves of the write cache take.
    for entry_id in range(count):
        peer.send(*add(node.storage.incarnation, frame(7, entry_id, [bytes(500_000)])))
        place.turn()
        assert registered_writable(place)
    assert not node.storage.has_room()
    for _ in range(100):
        place.turns(2)
        place.now_ns += 100 * MS
        assert registered_writable(place) and not node.spacing.core.reasons
    place.held.clear()
    place.until(lambda: peer.look() or len(peer.messages) == count)
    assert {message.control.status for message in peer.messages} == {Status.OK}
    place.close()


def test_a_flush_that_finds_room_at_its_second_try_changes_nothing() -> None:
    """Rule P7.8, I53, D9: a device without room for a moment."""
    disk = MemoryDisk()
    place = Place(bookies=0)
    node = place.start_bookie("b1", storage=DiskStorage(disk))
    place.until(lambda: node.is_registered)
    peer = place.peer("b1")
    disk.fail("allocate", error=errno.ENOSPC)
    for entry_id in range(60):
        assert ask_add(place, peer, entry_id) == Status.OK
        assert registered_writable(place)
        place.now_ns += 10 * MS
    assert disk.calls("allocate") > 1 and node.storage.cached_bytes() < 64 << 10
    place.close()


def test_an_operators_word_is_heard_by_a_running_bookie_and_lives_through_restarts(tmp_path: Path) -> None:
    """Rule P7.8, ST26, ST27: while the word stands normal adds are refused, also by the next process and however much
    room there is; a fence passes; when it is taken back the bookie is writable by itself."""
    place = Place(bookies=0)
    place.free_bytes = lambda: 1 << 40

    def storage() -> RealStorage:
        return RealStorage(tmp_path / "b1", "b1", TOKEN, journal_file_bytes=2 << 20, threaded=False)

    node = place.start_bookie("b1", storage=storage())
    place.until(lambda: node.is_registered)
    peer = place.peer("b1")
    assert ask_add(place, peer, 0) == Status.OK
    keep_read_only(tmp_path / "b1", "a new disk")
    place.until(lambda: not registered_writable(place), 50 * MS)
    assert ask_add(place, peer, 1) == Status.READ_ONLY
    place.nodes.pop("b1").close()
    place.disks.pop("b1")
    place.run_for(5 * SECOND, step_ns=100 * MS)
    node = place.start_bookie("b1", storage=storage())
    place.until(lambda: node.is_registered)
    assert not registered_writable(place)
    peer = place.peer("b1")
    assert ask_add(place, peer, 1) == Status.READ_ONLY
    answer = peer.ask(FenceRequest(node.storage.incarnation, 99, KEY))
    assert isinstance(answer, FenceAnswer) and answer.status == Status.OK
    assert end_read_only(tmp_path / "b1")
    place.until(lambda: registered_writable(place), 50 * MS)
    assert ask_add(place, peer, 1) == Status.OK
    place.close()


def test_a_word_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    """ST26: "cannot tell" is neither yes nor no."""
    (tmp_path / "READ_ONLY").mkdir()
    with pytest.raises(StorageError, match="cannot be read"):
        read_only_reason(tmp_path)
