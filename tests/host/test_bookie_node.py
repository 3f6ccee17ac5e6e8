"""The bookie in its place: durability before answers, storage that refuses, registration, hostile links (P3.2, P7)."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import ExplicitLacRequest, LacAnswer, LacRequest, pack_explicit_lacs
from embedbk.codec.messages import Control, ErrorAnswer, encode_message
from embedbk.codec.metadata_messages import (
    Delete,
    MetadataReply,
    Operation,
    Put,
    Refusal,
    Result,
    Txn,
    TxnDone,
)
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.codec.registration import cookie_path, registration_path
from embedbk.host import bookie_node, client_links
from embedbk.metadata.levels import LEVEL_FIRST
from embedbk.storage.memory import MemoryBookieStorage, Survivors
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.transports.envelope import WINDOW_BYTES_MIN
from tests.host.place import KEY, MS, SECOND, SESSION_MS, DiskStorage, Peer, Place, add, frame


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def on_disk(disk: MemoryDisk) -> Place:
    place = Place(bookies=0)
    place.start_bookie("b1", storage=DiskStorage(disk, flush_bytes=256 << 10))
    place.until(lambda: place.bookie("b1").is_registered)
    return place


def incarnation_of(place: Place, name: str = "b1") -> bytes:
    incarnation: bytes = place.bookie(name).storage.incarnation
    return incarnation


def status_of(answer: Control) -> Status:
    assert isinstance(answer, AddAnswer | FenceAnswer | ReadAnswer | LacAnswer), answer
    return answer.status


# --- Durability ------------------------------------------------------------------------------------------


def test_a_lookup_without_memory_is_made_again_and_ends_no_bookie(on_disk: Place) -> None:
    """ "Cannot tell" is never "no": nothing is broken by it. No empty outcome is told, by which a repeated add would be
    stored unseen (P3.4b)."""
    place, incarnation = on_disk, incarnation_of(on_disk)
    node, peer = place.bookie("b1"), place.peer("b1")
    held, other = frame(7, 0, [b"held"]), frame(7, 0, [b"other"])
    peer.ask(*add(incarnation, held))
    storage: Any = node.storage
    storage.refuses_memory = True
    asked = peer.send(*add(incarnation, other))
    read = peer.send(ReadRequest(incarnation, 7, 0, 0, 1 << 20))
    place.run_for(50 * MS)
    peer.look()
    assert not peer.messages and peer.down is None and node.failure is None
    storage.refuses_memory = False
    place.run_for(50 * MS)
    peer.look()
    told = {message.request_id: message for message in peer.messages}
    refused, answer = told[asked].control, told[read].control
    assert isinstance(refused, AddAnswer) and refused.status == Status.CONFLICT
    assert isinstance(answer, ReadAnswer) and len(told[read].frames) == 1


def test_nothing_is_acknowledged_before_it_is_durable(place: Place) -> None:
    """P3.2: the answer leaves in the step that hears of durability."""
    peer = place.peer("b1")
    place.held.add("b1")
    peer.send(*add(incarnation_of(place), frame(7, 0, [b"zero"])))
    place.turns()
    peer.look()
    assert peer.messages == []
    place.held.clear()
    place.turns(2)
    peer.look()
    assert [status_of(message.control) for message in peer.messages] == [Status.OK]


def test_readers_that_a_hint_wakes_are_answered_before_who_gave_it(place: Place) -> None:
    """P6.2: somebody waits for the entries; nobody waits for the word that the hint was taken."""
    incarnation = incarnation_of(place)
    peer = place.peer("b1")
    peer.ask(*add(incarnation, frame(7, 0, [b"zero"])))
    poll = peer.send(LacRequest(incarnation, 7, -1, 30_000, 1000))
    place.turns(2)
    hint = peer.send(ExplicitLacRequest(incarnation, 7, KEY, 0, 4, True))
    place.turns(2)
    peer.look()
    assert [message.request_id for message in peer.messages] == [poll, hint]
    assert [b"zero" in bytes(body) for _, body in peer.messages[0].frames] == [True]


def test_a_hint_that_wants_no_answer_is_no_unanswered_request(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6.2: a writer may give hints for ever; what a link may leave open is bounded."""
    monkeypatch.setattr(bookie_node, "REQUESTS_PER_LINK_MAX", 10)
    incarnation = incarnation_of(place)
    peer = place.peer("b1")
    peer.ask(*add(incarnation, frame(7, 0, [b"zero"])))
    for _ in range(20):
        peer.send(ExplicitLacRequest(incarnation, 7, KEY, 0, 4, True, False))
        place.turns()
    assert peer.ask(LacRequest(incarnation, 7)) == LacAnswer(Status.OK, 7, 0, 4, False)


@pytest.mark.parametrize("why", ["not serving", "waiting", "beside older metadata", "no room for a ledger"])
def test_a_lac_that_wants_no_answer_gets_none_either_where_it_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """P6.2, L13: an answer to it would count as one to another request, and the link would have no bound any more."""
    monkeypatch.setattr(bookie_node, "REQUESTS_PER_LINK_MAX", 10)
    incarnation, core = incarnation_of(place), place.bookie("b1").core
    peer = place.peer("b1")
    core.entering.is_serving, core.is_waiting = why != "not serving", why == "waiting"
    core.is_beside_older = why == "beside older metadata"
    table = place.bookie("b1").storage.table
    if why == "no room for a ledger":
        monkeypatch.setattr(table, "ledgers_max", 0)
    for ledger_id in range(20):
        lac = ExplicitLacRequest(incarnation, ledger_id, KEY, 0, 4, False, wants_answer=False)
        peer.send(pack_explicit_lacs([lac, lac]))
        place.turns()
    place.held.add("b1")
    core.entering.is_serving, core.is_waiting, core.is_beside_older = True, False, False
    monkeypatch.setattr(table, "ledgers_max", 100)
    for ledger_id in range(11):
        peer.send(FenceRequest(incarnation, ledger_id, KEY))
        place.turns()
    peer.look()
    assert not peer.messages
    assert "10 requests are unanswered" in str(peer.down)


@pytest.mark.parametrize("split", [3, 16], ids=["in several messages", "in one message"])
def test_a_commit_costs_a_link_one_message(place: Place, monkeypatch: pytest.MonkeyPatch, split: int) -> None:
    """What one sync made durable is told each link at once, every request by its own id."""
    monkeypatch.setattr(client_links, "ANSWERS_PER_MESSAGE_MAX", split)
    one, other = place.peer("b1"), place.peer("b1")
    place.held.add("b1")
    asked = [one.send(*add(incarnation_of(place), frame(7, entry, [b"x"], entry))) for entry in range(7)]
    alone = other.send(*add(incarnation_of(place), frame(8, 0, [b"y"])))
    place.turns()
    place.held.clear()
    place.turns(2)
    one.look()
    other.look()
    assert [(message.request_id, status_of(message.control)) for message in one.messages] == [
        (request_id, Status.OK) for request_id in asked
    ]
    assert [message.control.first_entry for message in one.messages] == list(range(7))  # type: ignore[attr-defined]
    assert one.bodies == -(-7 // split)
    assert [(message.request_id, type(message.control)) for message in other.messages] == [(alone, AddAnswer)]


def test_a_failed_journal_answers_unknown_and_serves_reads(place: Place) -> None:
    """P7.6: nothing is acknowledged any more, and nothing is denied; what was stored is read on, and the list of
    bookies says that this one takes no adds."""
    client = place.start_client()
    incarnation = incarnation_of(place)
    peer = place.peer("b1")
    assert status_of(peer.ask(*add(incarnation, frame(7, 0, [b"zero"])))) == Status.OK
    place.disks["b1"].fail_next_sync("medium error")
    assert status_of(peer.ask(*add(incarnation, frame(7, 1, [b"one"], 4)))) == Status.UNKNOWN
    assert "medium error" in str(place.bookie("b1").failure)
    assert status_of(peer.ask(*add(incarnation, frame(7, 2, [b"two"], 7)))) == Status.UNKNOWN
    assert status_of(peer.ask(FenceRequest(incarnation, 7, KEY))) == Status.UNKNOWN
    answer = peer.ask(ReadRequest(incarnation, 7, 0, 0, 1000))
    assert status_of(answer) == Status.OK
    place.turns()
    assert {info.member.bookie_id: info.is_writable for info in client.bookies} == {
        "b1": False,
        "b2": True,
        "b3": True,
    }


def test_a_journal_that_fails_while_a_denial_is_held_ends_no_node(place: Place) -> None:
    """P7.6, P10.5: entry 0 was found, and that there is no other waits for metadata, which is silent. Meanwhile the
    journal fails. The fence is durable, so the answer leaves, with the entry and without the "no"."""
    incarnation, peer = incarnation_of(place), place.peer("b1")
    assert status_of(peer.ask(*add(incarnation, frame(7, 0, [b"zero"])))) == Status.OK
    metadata = place.nodes.pop("metadata")
    peer.send(ReadRequest(incarnation, 7, 0, 5, 1000, True, KEY))
    place.turns(5)
    peer.look()
    assert not peer.messages
    place.disks["b1"].fail_next_sync("medium error")
    other = place.peer("b1")
    assert status_of(other.ask(*add(incarnation, frame(8, 0, [b"x"])))) == Status.UNKNOWN
    assert place.bookie("b1").failure is not None
    place.run_for(600 * MS, 50 * MS)
    peer.look()
    (message,) = peer.messages
    assert isinstance(message.control, ReadAnswer)
    assert (message.control.status, message.control.absent) == (Status.OK, [])
    assert [b"zero" in bytes(body) for _, body in message.frames] == [True]
    assert status_of(peer.ask(ReadRequest(incarnation, 7, 0, 0, 1000))) == Status.OK
    place.nodes["metadata"] = metadata


def test_the_list_of_bookies_follows_whether_one_takes_adds(place: Place) -> None:
    """P7.8, L11: a bookie that was registered while it was too full is chosen again once it is not."""
    client = place.start_client()
    for is_writable in (False, True):
        place.bookie("b2").core.is_writable = is_writable
        place.turns()
        assert {info.member.bookie_id for info in client.bookies if info.is_writable} == (
            {"b1", "b2", "b3"} if is_writable else {"b1", "b3"}
        )


def test_a_full_write_cache_keeps_nobody_waiting(on_disk: Place) -> None:
    """RP33, RP34: a request whose put would wait for a flush waits by itself, and the loop goes on; all are answered
    when there is room, and slow is not dead: the link stays."""
    incarnation = incarnation_of(on_disk)
    peer, other = on_disk.peer("b1"), on_disk.peer("b1")
    size = 500_000
    on_disk.held.add("b1")  # The journal does not get on, so that the frozen half is not free.
    for entry in range(12):
        peer.send(*add(incarnation, frame(7, entry, [bytes(size)], entry * size)))
        on_disk.turn()
    other.send(LacRequest(incarnation, 7))
    on_disk.turns(20)
    storage = on_disk.bookie("b1").storage
    assert storage.durable() == 0, "nothing waited for a commit inside a turn"
    assert storage.cached_bytes() < 12 * size
    peer.look()
    assert peer.messages == [] and peer.down is None
    other.look()
    assert len(other.messages) == 1, "who writes nothing waits for no room (P7.8)"
    on_disk.held.clear()
    on_disk.until(lambda: (peer.look(), len(peer.messages) == 12)[1])
    assert {status_of(message.control) for message in peer.messages} == {Status.OK}
    assert sorted(message.control.first_entry for message in peer.messages) == list(range(12))
    assert on_disk.bookie("b1").failure is None
    on_disk.close()


def test_a_refused_record_ends_the_promises_at_once(on_disk: Place, disk: MemoryDisk) -> None:
    """P7.6, P5.2f: a put that the storage refuses was counted by the core and not by the journal. Had the bookie gone
    on, every later token would have meant two records, and a fence could have been answered for another's sync."""
    incarnation = incarnation_of(on_disk)
    peer = on_disk.peer("b1")
    assert status_of(peer.ask(FenceRequest(incarnation, 8, KEY))) == Status.OK
    disk.fail("open", error=errno.EIO, stays=True)  # No entry log can be written: the cache fills up.
    big = [bytes(500_000)]
    answers = [
        status_of(peer.ask(*add(incarnation, frame(7, entry, big, entry * 500_000)))) for entry in range(8)
    ]
    assert answers[0] == Status.OK
    assert answers[-1] == Status.UNKNOWN
    assert sorted(answers) == answers, "OK until the storage refused, unknown from then on"
    # In one turn: a put that is refused, and a fence that the journal itself would take.
    assert status_of(peer.ask(FenceRequest(incarnation, 9, KEY))) == Status.UNKNOWN
    assert "failed" in str(on_disk.bookie("b1").failure)
    on_disk.close()


def test_a_refusal_and_a_fence_in_one_turn(on_disk: Place, disk: MemoryDisk) -> None:
    """The same with both requests in one batch: the fence behind the refused put is not answered OK."""
    incarnation = incarnation_of(on_disk)
    peer = on_disk.peer("b1")
    disk.fail("open", error=errno.EIO, stays=True)
    size = 500_000
    entry = 0
    while on_disk.bookie("b1").failure is None:
        _, *frames = add(incarnation, frame(7, entry, [bytes(size)], entry * size))
        peer.send(AddRequest(incarnation, 1, 1, True), *frames)
        peer.send(FenceRequest(incarnation, 100 + entry, KEY))
        on_disk.turn()
        peer.look()
        entry += 1
        assert entry < 10
    on_disk.turns()
    peer.look()
    by_ledger = {
        message.control.ledger_id: message.control.status
        for message in peer.messages
        if isinstance(message.control, FenceAnswer)
    }
    assert by_ledger[100] == Status.OK
    assert by_ledger[100 + entry - 1] == Status.UNKNOWN
    on_disk.close()


def test_a_journal_that_cannot_be_written_is_no_end_of_the_node(on_disk: Place, disk: MemoryDisk) -> None:
    """P7.6 on the journal that ships: the device refuses a write, every answer from then on is unknown."""
    incarnation = incarnation_of(on_disk)
    peer = on_disk.peer("b1")
    assert status_of(peer.ask(*add(incarnation, frame(7, 0, [b"zero"])))) == Status.OK
    disk.fail("write", error=errno.EIO, stays=True)
    for entry in (1, 2, 3):
        assert status_of(peer.ask(*add(incarnation, frame(7, entry, [b"x"], 3 + entry)))) == Status.UNKNOWN
    assert status_of(peer.ask(ReadRequest(incarnation, 7, 0, 0, 1000))) == Status.OK
    on_disk.close()


def test_a_full_ledger_table_refuses_and_serves_on(on_disk: Place) -> None:
    """P7.8: a bound that is reached answers, a sixteenth and one is kept for fences, and what is known is served."""
    incarnation = incarnation_of(on_disk)
    peer = on_disk.peer("b1")
    for ledger_id in range(64):
        assert status_of(peer.ask(FenceRequest(incarnation, ledger_id, KEY))) == Status.OK
    assert isinstance(peer.ask(*add(incarnation, frame(100, 0, [b"zero"]))), ErrorAnswer)
    for ledger_id in range(64, 69):
        assert status_of(peer.ask(FenceRequest(incarnation, ledger_id, KEY))) == Status.OK
    assert isinstance(peer.ask(FenceRequest(incarnation, 69, KEY)), ErrorAnswer)
    assert status_of(peer.ask(FenceRequest(incarnation, 63, KEY))) == Status.OK
    on_disk.close()


# --- Links -----------------------------------------------------------------------------------------------


def test_a_link_that_is_dropped_takes_what_follows_along(place: Place) -> None:
    """A PeerError costs the peer its link, with what it sent behind, and nobody else anything."""
    other, peer = place.peer("b1"), place.peer("b1")
    incarnation = incarnation_of(place)
    peer.send_bytes(b"no message" * 10)
    peer.send(*add(incarnation, frame(7, 0, [b"zero"])))
    place.turns()
    peer.look()
    assert peer.down is not None
    assert place.bookie("b1").storage.table.get(7) is None
    assert status_of(other.ask(*add(incarnation, frame(7, 0, [b"zero"])))) == Status.OK


def test_unanswered_requests_of_a_link_are_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long polls are parked, so their number must have an end: the link's."""
    monkeypatch.setattr(bookie_node, "REQUESTS_PER_LINK_MAX", 10)
    incarnation = incarnation_of(place)
    peer, other = place.peer("b1"), place.peer("b1")
    for _ in range(10):
        peer.send(LacRequest(incarnation, 7, -1, 30_000))
    place.turns()
    assert peer.down is None
    peer.send(LacRequest(incarnation, 7, -1, 30_000))
    place.turns()
    peer.look()
    assert "10 requests are unanswered" in str(peer.down)
    assert place.bookie("b1").core.parked.poll_count == 0, "its polls went with it"
    for _ in range(30):  # Answered ones do not count.
        assert status_of(other.ask(FenceRequest(incarnation, 7, KEY))) == Status.OK


def test_a_peer_that_takes_no_answers_loses_its_link(place: Place) -> None:
    """An answer that was dropped silently would leave its client waiting; a lost link it understands."""
    storage = MemoryBookieStorage(Survivors(b"b" * 16))
    node = place.start_bookie("b9", storage=storage, window_bytes=WINDOW_BYTES_MIN)
    place.until(lambda: node.is_registered)
    peer = place.peer("b9")
    # No request at all: what it is told of that is as long as any small answer.
    for number in range(WINDOW_BYTES_MIN // 60):
        peer.send(ErrorAnswer(""))
        if number % 10_000 == 0:
            place.turn()
    place.turns()
    peer.look()
    assert "queue of answers is full" in str(peer.down)
    assert status_of(place.peer("b9").ask(FenceRequest(b"b" * 16, 7, KEY))) == Status.OK


def mutated(chance: random.Random, body: bytes) -> bytes:
    """A body as a broken or hostile peer may send it."""
    kind = chance.randrange(5)
    mutable = bytearray(body)
    if kind == 0:
        return chance.randbytes(chance.randrange(0, 200))
    if kind == 1:
        return body[: chance.randrange(len(body))]
    if kind == 2:
        return body + chance.randbytes(chance.randrange(1, 64))
    for _ in range(chance.randrange(1, 4)):
        mutable[chance.randrange(len(mutable))] = chance.randrange(256)
    return bytes(mutable)


def hostile(chance: random.Random, incarnation: bytes) -> tuple[Control, list[object]]:
    """A request that is well encoded and says what no client says."""
    edge = [0, 1, 63, 64, 2**31, 2**62, 2**63 - 1]

    def pick() -> int:
        return chance.choice(edge)

    who = chance.choice([incarnation, bytes(16), b"x" * 16])
    sealed = frame(chance.choice([5, 6]), chance.choice([0, 1, 2**40]), [b"p" * chance.randrange(3)] * 2)
    requests: list[tuple[Control, list[object]]] = [
        (ReadRequest(who, pick(), pick(), pick(), pick(), chance.random() < 0.5, KEY, 1 + pick() % 64, pick()), []),
        (FenceRequest(who, pick(), chance.randbytes(16)), []),
        (LacRequest(who, pick(), pick(), pick()), []),
        (ExplicitLacRequest(who, pick(), chance.choice([KEY, b"k" * 16]), pick(), pick()), []),
        (AddRequest(who, pick(), pick(), chance.random() < 0.5), add(who, sealed)[1] * chance.randrange(3)),
        (LacAnswer(Status.OK, 1), []),
        (MetadataReply(1, 1, Refusal("BAD_REQUEST", "")), []),
    ]  # fmt: skip
    return chance.choice(requests)


@pytest.mark.parametrize("seed", range(20))
def test_no_body_ends_the_node(on_disk: Place, seed: int) -> None:
    """Whatever a client says, it costs it its link at most: the bookie stays up and serves others."""
    chance = random.Random(f"bookie bodies {seed}")
    incarnation = incarnation_of(on_disk)
    good = on_disk.peer("b1")
    peer: Peer | None = None
    for _ in range(150):
        peer = peer if peer is not None and peer.down is None else on_disk.peer("b1")
        control, frames = hostile(chance, incarnation)
        body = b"".join(bytes(piece) for piece in encode_message(1, control, frames))  # type: ignore[arg-type]
        if chance.random() < 0.4:
            body = mutated(chance, body)
        if body:
            peer.send_bytes(body)
        on_disk.turns(2)
        peer.look()
    for entry in range(3):
        answer = good.ask(*add(incarnation, frame(50, entry, [b"good"], 4 * entry)))
        assert status_of(answer) == Status.OK
    assert on_disk.bookie("b1").failure is None
    on_disk.close()


# --- Registration (P7.2) ---------------------------------------------------------------------------------


def test_a_lost_session_is_opened_again_and_the_bookie_listed_anew(place: Place) -> None:
    """I74: silent beyond its ttl (it was stopped, say), the bookie is given up; back again, it registers again."""
    client = place.start_client()
    stopped = place.nodes.pop("b1")
    place.run_for(2 * SESSION_MS * MS)
    assert [info.member.bookie_id for info in client.bookies] == ["b2", "b3"]
    assert stopped.is_registered, "it does not know better yet"
    place.nodes["b1"] = stopped
    place.turn()
    assert not stopped.is_registered
    place.until(lambda: stopped.is_registered)
    place.turns()
    assert [info.member.bookie_id for info in client.bookies] == ["b1", "b2", "b3"]


def test_a_restarted_bookie_takes_its_registration_over(place: Place) -> None:
    """The session of the process before it lives on for a while; the new endpoint counts, and stays."""
    client = place.start_client()
    before = client.listed.registrations["b1"].endpoints
    node = place.start_bookie("b1", place.crash("b1"))
    place.until(lambda: node.is_registered)
    place.turns()
    assert client.listed.registrations["b1"].endpoints == node.endpoints != before
    place.run_for(2 * SESSION_MS * MS)
    assert client.listed.registrations["b1"].endpoints == node.endpoints, (
        "the old session's end takes nothing away"
    )


def test_the_last_words_of_a_process_before_do_not_replace_a_registration(place: Place) -> None:
    """P7.2: a bookie's registration is put over the one that it read, and over no other. What the process before it
    had sent reaches the member when the next one stands in the list already: it would go with a session that ends."""
    client = place.start_client()
    held: list[tuple[Operation, Callable[[int, Result], None]]] = []
    before = place.bookie("b1")
    request = before.metadata.request

    def hold(now_ns: int, operation: Operation, done: Callable[[int, Result], None]) -> int:
        if not isinstance(operation, Txn):
            return request(now_ns, operation, done)
        held.append((operation, done))
        return 0

    before.metadata.request = hold  # type: ignore[method-assign]
    before.core.is_writable = False  # It has something new to say of itself.
    place.until(lambda: bool(held))
    after = place.start_bookie("b1", place.crash("b1"))  # What it sent is under way.
    place.until(lambda: after.is_registered)
    outcome: list[Result] = []
    client.metadata.request(place.now_ns, held[0][0], lambda _, result: outcome.append(result))
    place.until(lambda: bool(outcome))
    assert isinstance(outcome[0], TxnDone) and not outcome[0].is_done
    place.run_for(3 * SESSION_MS * MS)
    assert client.listed.registrations["b1"].endpoints == after.endpoints, "and it stays"


def test_a_bookie_that_does_not_know_the_level_ends_and_serves_nobody(place: Place) -> None:
    """P10.8: "a node that does not know the level in force ... refuses to go on": it says which build to start."""
    node = place.start_bookie("b1", place.crash("b1"), level=LEVEL_FIRST)
    peer = place.peer("b1")
    told: list[str] = []
    node.on_failed = lambda: told.append(str(node.failure))
    place.until(lambda: node.failure is not None)
    assert told == [str(node.failure)]
    assert told[0].startswith("b1 knows levels 1 to 1, and the cluster's level is")
    assert "start a build that knows it" in told[0]
    place.turns()
    peer.look()
    assert peer.down is not None


def test_a_wiped_bookie_is_refused_and_serves_nobody(place: Place) -> None:
    """P7.2: empty directories under a known id: it says why and what to do, and takes no link."""
    client = place.start_client()
    known = client.listed.registrations["b1"].incarnation
    place.crash("b1")
    node = place.start_bookie("b1", Survivors(place.fresh()))
    peer = place.peer("b1")
    place.until(lambda: node.failure is not None)
    assert known.hex() in str(node.failure)
    assert "new bookie id" in str(node.failure)
    place.turns()
    peer.look()
    assert peer.down is not None
    late = place.peer("b1")
    assert "other directories" in str(late.down)
    assert not node.is_registered
    place.run_for(2 * SESSION_MS * MS)
    assert [info.member.bookie_id for info in client.bookies] == ["b2", "b3"]


def test_registration_is_tried_again_until_the_metadata_answers(place: Place) -> None:
    """A transaction that lost against another change of the cookie, or was refused, is no end."""
    client = place.start_client()
    results: list[object] = []
    client.metadata.request(
        place.now_ns,
        Txn([], [Delete(registration_path("b1")), Put(cookie_path("b1"), incarnation_of(place))]),
        lambda _, result: results.append(result),
    )
    place.until(lambda: bool(results))
    place.turns()
    assert [info.member.bookie_id for info in client.bookies] == ["b2", "b3"]
    place.held.add("metadata")  # The member's disk stands still: nothing is answered.
    node = place.start_bookie("b1", place.crash("b1"))
    place.run_for(SECOND)
    assert not node.is_registered
    place.held.clear()
    place.until(lambda: node.is_registered)


def test_free_space_that_cannot_be_told_is_no_end(place: Place) -> None:
    def gone() -> int:
        raise OSError(errno.ENOENT, "gone")

    survivors = place.crash("b1")
    node = place.start_bookie("b1", survivors)
    node._free_bytes = gone
    place.until(lambda: node.is_registered)


def test_a_slow_reader_is_read_for_as_fast_as_it_takes_the_answers(place: Place) -> None:
    """P6.1: bytes for a reader that does not take them are not looked up; its link stays, and its adds are answered
    meanwhile. Other links are not hurt."""
    incarnation = incarnation_of(place)
    peer, other = place.peer("b1"), place.peer("b1")
    for number in range(4):
        sealed = frame(7, number, [bytes(1 << 20)], number << 20)
        assert status_of(other.ask(*add(incarnation, sealed))) == Status.OK
    wanted = {peer.send(ReadRequest(incarnation, 7, 0, 3, 1 << 20)) for _ in range(60)}
    added = peer.send(*add(incarnation, frame(8, 0, [b"x"])))
    place.turns(20)
    assert status_of(other.ask(ReadRequest(incarnation, 7, 0, 0, 100))) == Status.OK
    node = place.bookie("b1")
    held = len(node.looking_up.waiting)
    assert held > 40, "16 MiB are on their way to it, and no more was read"
    assert len(node.core.looks.open) == held
    assert node.deadline_ns() is not None
    for _ in range(200):
        peer.look()
        place.turn()
    peer.look()
    assert peer.down is None
    answered = {message.request_id: message for message in peer.messages}
    assert wanted <= set(answered)
    assert all(answered[each].frames[0][0].entry_count == 1 for each in wanted)
    assert status_of(answered[added].control) == Status.OK
    assert not node.looking_up.waiting
    assert not node.core.looks.open


def test_what_a_lost_link_had_asked_for_is_forgotten(place: Place) -> None:
    """P6.1: nothing is kept for a reader that is gone."""
    incarnation = incarnation_of(place)
    peer, other = place.peer("b1"), place.peer("b1")
    for number in range(2):
        sealed = frame(7, number, [bytes(1 << 20)], number << 20)
        assert status_of(other.ask(*add(incarnation, sealed))) == Status.OK
    for _ in range(40):
        peer.send(ReadRequest(incarnation, 7, 0, 1, 1 << 20))
    place.turns(5)
    node = place.bookie("b1")
    assert node.looking_up.waiting
    peer.close()
    place.turns(5)
    assert not node.looking_up.waiting
    assert not node.core.looks.open
    assert node.looking_up.deadline_ns is None


def test_answers_that_wait_for_a_fence_count_as_well(place: Place) -> None:
    """P5.2f, P6.1: recoveries of many ledgers through one link; what was found waits for the journal, and when that
    comes back the link has room for all of it."""
    incarnation = incarnation_of(place)
    peer = place.peer("b1")
    for ledger_id in range(30):
        assert status_of(peer.ask(*add(incarnation, frame(ledger_id, 0, [bytes(1 << 20)])))) == Status.OK
    place.held.add("b1")
    for ledger_id in range(30):
        peer.send(ReadRequest(incarnation, ledger_id, 0, 0, 1 << 20, fence=True, ledger_key=KEY))
    place.turns(5)
    node = place.bookie("b1")
    assert 0 < sum(node.looking_up.waiting._found.values()) < 16 << 20
    assert node.looking_up.waiting
    place.held.clear()
    for _ in range(100):
        peer.look()
        place.turn()
    assert peer.down is None
    assert len([message for message in peer.messages if message.frames]) == 30
    assert not any(node.looking_up.waiting._found.values())


def test_a_bookie_that_metadata_has_no_room_for_says_so_once_and_registers_when_there_is(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """P2.2: what is full is not waited for in silence."""
    catalog = place.metadata.core.catalog
    catalog.key_space.limits = replace(catalog.limits, catalog_bytes_max=0, catalog_reserve_bytes=0)
    node = place.start_bookie("b9")
    place.run_for(5 * SECOND, 50 * MS)
    said = [record.getMessage() for record in caplog.records if "b9 cannot register" in record.getMessage()]
    assert len(said) == 1
    assert "the catalog holds" in said[0]
    assert not node.is_registered
    catalog.key_space.limits = replace(catalog.limits, catalog_bytes_max=1 << 30)
    place.until(lambda: node.is_registered)
