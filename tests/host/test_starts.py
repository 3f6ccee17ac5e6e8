"""A bookie that has less than it had, or that runs twice, is found out by the count of its starts (P7.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from embedbk.codec.add_messages import AddAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import LacRequest
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.metadata_messages import Delete, Get, Operation, Put, Result, Txn, TxnDone, Value
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.codec.registration import (
    Cookie,
    cookie_path,
    decode_cookie,
    encode_cookie,
    encode_registration,
    registration_path,
)
from embedbk.core.bookie_words import LimboListed
from embedbk.host.bookie_node import BookieNode
from embedbk.host.registering import ALONE_NS, LEAVE_NS, TELL_NS
from embedbk.storage.memory import Survivors
from tests.host.place import KEY, MS, SECOND, Place, add, frame
from tests.host.test_bookie_node import incarnation_of

LEDGER = 7


def put(place: Place, first: int, name: str = "b1") -> Status:
    peer = place.peer(name)
    answer = peer.ask(*add(incarnation_of(place, name), frame(LEDGER, first, [b"data"], 4 * first)))
    peer.close()
    assert isinstance(answer, AddAnswer), answer
    return answer.status


def read(place: Place, last: int, name: str = "b1", ledger_id: int = LEDGER) -> object:
    return place.peer(name).ask(ReadRequest(incarnation_of(place, name), ledger_id, 0, last, 1 << 20))


def cookie(place: Place, name: str = "b1") -> Cookie:
    outcome: list[Result] = []
    client = place.nodes.get("c1") or place.start_client()
    client.metadata.request(place.now_ns, Get(cookie_path(name)), lambda _, result: outcome.append(result))
    place.until(lambda: bool(outcome))
    assert isinstance(outcome[0], Value) and outcome[0].record is not None
    return decode_cookie(outcome[0].record.value or b"")


def registered(place: Place, name: str = "b1") -> bytes | None:
    """What stands in the list of bookies."""
    place.turns()
    record = place.metadata.core.catalog._records.get(registration_path(name))
    return None if record is None else record.value


def change(place: Place, *changes: Put | Delete) -> None:
    outcome: list[Result] = []
    client = place.nodes.get("c1") or place.start_client()
    client.metadata.request(place.now_ns, Txn([], list(changes)), lambda _, result: outcome.append(result))
    place.until(lambda: bool(outcome))


def is_doubted(place: Place, survivors: Survivors) -> bool:
    """Whether the bookie that starts from this enters limbo, before it is registered again."""
    told: list[object] = []
    node = place.start_bookie("b1", survivors)
    node.on_step = lambda core, event, effects: told.append(event)
    place.until(lambda: node.is_registered)
    assert not node.storage.may_have_lost and node.core.is_settled
    return any(isinstance(event, LimboListed) for event in told)


def first_transaction_held(node: BookieNode) -> list[Callable[[], object]]:
    """Of its registration: what sends it at last, once it was asked for."""
    held: list[Callable[[], object]] = []
    request = node.metadata.request

    def hold(now_ns: int, operation: Operation, done: Callable[[int, Result], None]) -> Any:
        if not isinstance(operation, Txn):
            return request(now_ns, operation, done)
        node.metadata.request = request  # type: ignore[method-assign]
        held.append(lambda: request(now_ns, operation, done))
        return 0

    node.metadata.request = hold  # type: ignore[method-assign]
    return held


# --- Less than it had ------------------------------------------------------------------------------------


def test_an_older_copy_is_in_limbo_before_it_serves(place: Place) -> None:
    """P7.9: "a start in the cookie that is none of these directories'"; then limbo as P7.4 has it."""
    assert put(place, 0) == Status.OK
    older = place.crash("b1")
    assert not is_doubted(place, older), "nothing happened since"
    assert put(place, 1) == Status.OK
    place.crash("b1")
    assert is_doubted(place, older)
    row = place.bookie("b1").storage.table.get(LEDGER)
    assert row is not None and row.is_fenced, "a trace of a ledger is fenced again"
    assert cookie(place).starts > 2


def test_after_limbo_the_next_start_is_an_ordinary_one(place: Place) -> None:
    """P7.9: "The count then goes above the cookie's"."""
    older = place.crash("b1")
    assert not is_doubted(place, older)
    place.crash("b1")
    assert is_doubted(place, older)
    assert not is_doubted(place, place.crash("b1"))


def test_a_crash_in_limbo_leads_back_to_it(place: Place) -> None:
    """P7.9: that something may be lost is durable before anything follows from it."""
    older = place.crash("b1")
    assert not is_doubted(place, older)
    place.crash("b1")
    node = place.start_bookie("b1", older)
    place.until(lambda: node.storage.may_have_lost)
    assert is_doubted(place, place.crash("b1"))


def test_fewer_records_than_metadata_was_told_of(place: Place) -> None:
    """P7.9: "a token above what they hold": the same start, but for its last records."""
    assert put(place, 0) == Status.OK
    before = place.disks["b1"].crash()
    assert put(place, 1) == Status.OK
    place.run_for(TELL_NS + SECOND, 100 * MS)
    survivors = place.crash("b1")
    assert cookie(place).tokens == (survivors.records[-1].token,)
    assert not is_doubted(place, survivors)
    place.crash("b1")
    assert is_doubted(place, replace(before, starts=survivors.starts))


def test_a_clean_stop_tells_how_much_is_durable(place: Place) -> None:
    """P7.9: "told ... at a clean stop": what was never told by the clock."""
    assert put(place, 0) == Status.OK
    node = place.bookie("b1")
    tokens = node.storage.durable_tokens()
    assert cookie(place).tokens != tokens
    node.leave(place.now_ns)
    place.until(lambda: node.has_left(place.now_ns))
    assert cookie(place).tokens == tokens
    assert registered(place) is None
    place.nodes.pop("b1")
    place.disks.pop("b1")
    node.close()


def test_the_last_word_is_waited_for_and_not_for_ever(place: Place) -> None:
    """P7.9: metadata's disk stands still: a stop takes a second, and then tells less than there is."""
    assert put(place, 0) == Status.OK
    node = place.bookie("b1")
    assert cookie(place).tokens != node.storage.durable_tokens()
    place.held.add("metadata")
    began_ns = place.now_ns
    node.leave(place.now_ns)
    place.until(lambda: node.has_left(place.now_ns), 10 * MS)
    assert LEAVE_NS <= place.now_ns - began_ns < 2 * LEAVE_NS


def test_without_metadata_nothing_is_waited_for(place: Place) -> None:
    """P7.9: "if it can be reached"."""
    assert put(place, 0) == Status.OK
    node = place.bookie("b1")
    place.nodes.pop("metadata").transport.close()
    place.until(lambda: not node.metadata.is_up)
    node.leave(place.now_ns)
    assert node.has_left(place.now_ns)


def test_the_last_word_comes_behind_one_that_is_under_way(place: Place) -> None:
    """P7.9: the earlier one knows less, and is compared with what the later one would be compared with."""
    node = place.bookie("b1")
    place.held.add("metadata")
    assert put(place, 0) == Status.OK
    node.registering.register(place.now_ns)
    place.turns()
    assert put(place, 1) == Status.OK
    node.leave(place.now_ns)
    place.turns()
    assert not node.has_left(place.now_ns)
    place.held.clear()
    place.until(lambda: node.has_left(place.now_ns))
    assert cookie(place).tokens == node.storage.durable_tokens()


def test_who_leaves_takes_no_more_adds_and_fences_on(place: Place) -> None:
    """P7.9, P7.8: what came behind its last word would be more than metadata was told; a recovery needs it still."""
    assert put(place, 0) == Status.OK
    place.held.add("metadata")
    node = place.bookie("b1")
    node.leave(place.now_ns)
    assert put(place, 1) == Status.BUSY
    tokens = node.storage.durable_tokens()
    assert node.storage.durable_tokens() == tokens
    peer = place.peer("b1")
    fenced = peer.ask(FenceRequest(node.storage.incarnation, 7, KEY))
    assert fenced.status == Status.OK  # type: ignore[union-attr]


def test_a_last_word_that_comes_late_changes_nothing(place: Place) -> None:
    """P7.9, P2.2: what a process says at its stop, which the network still carries when the next one is registered,
    does not take the place of that one's count."""
    assert put(place, 0) == Status.OK
    node, disk = place.nodes.pop("b1"), place.disks.pop("b1")
    words: list[Operation] = []
    node.metadata.request = lambda now_ns, operation, done: words.append(operation)
    survivors = disk.crash()
    node.leave(place.now_ns)
    (word,) = words
    node.close()
    after = place.start_bookie("b1", survivors)
    place.until(lambda: after.is_registered)
    known = cookie(place)
    outcome: list[Result] = []
    place.nodes["c1"].metadata.request(place.now_ns, word, lambda _, result: outcome.append(result))
    place.until(lambda: bool(outcome))
    assert isinstance(outcome[0], TxnDone) and not outcome[0].is_done
    assert cookie(place) == known
    assert (known.starts, known.start) == (after.storage.starts.count, after.storage.starts.id)


def test_a_last_word_that_comes_beside_a_registration_is_heard(place: Place) -> None:
    """P7.9, P2.2: an older copy has read the cookie, and the process before says how much it had. That is no word to be
    written over: it is read again, and what is missing is in limbo before anything is served."""
    assert put(place, 0) == Status.OK
    older = place.disks["b1"].crash()
    assert put(place, 1) == Status.OK
    client = place.start_client()
    node = place.nodes.pop("b1")
    words: list[Operation] = []
    node.metadata.request = lambda now_ns, operation, done: words.append(operation)
    place.disks.pop("b1")
    node.leave(place.now_ns)
    node.close()
    copy = place.start_bookie("b1", older)
    held = first_transaction_held(copy)
    told: list[object] = []
    copy.on_step = lambda core, event, effects: told.append(event)
    place.until(lambda: bool(held))
    outcome: list[Result] = []
    client.metadata.request(place.now_ns, words[0], lambda _, result: outcome.append(result))
    place.until(lambda: bool(outcome))
    assert isinstance(outcome[0], TxnDone) and outcome[0].is_done
    held.pop()()
    place.until(lambda: copy.is_registered)
    assert any(isinstance(event, LimboListed) for event in told)


def test_starts_without_metadata_are_remembered(place: Place) -> None:
    """P7.9: the last 64 starts are known, so that a crash loop beside a lost metadata member is no copy."""
    survivors = place.crash("b1")
    place.held.add("metadata")
    for _ in range(20):
        place.start_bookie("b1", survivors)
        place.turn()
        survivors = place.crash("b1")
    place.held.clear()
    assert not is_doubted(place, survivors)
    assert cookie(place).starts == 22


def test_a_cookie_of_an_older_build_is_read_and_counted_from(place: Place) -> None:
    """P7.9: 16 bytes are an incarnation, of which no start is known."""
    survivors = place.crash("b1")
    change(place, Delete(registration_path("b1")), Put(cookie_path("b1"), survivors.incarnation))
    assert not is_doubted(place, survivors)
    assert cookie(place).starts == 2


@pytest.mark.parametrize("value", [b"", b"\x90", b"\x92\x63\xc4\x01a", b"garbage " * 9, b"\x91" * 5000])
def test_a_cookie_that_cannot_be_read_is_nobodys(place: Place, value: bytes) -> None:
    """What cannot be told is neither its own nor another's: it waits, says so once, and ends nothing."""
    survivors = place.crash("b1")
    known = cookie(place)
    change(place, Put(cookie_path("b1"), value))
    node = place.start_bookie("b1", survivors)
    place.run_for(3 * SECOND, 50 * MS)
    assert not node.is_registered and node.failure is None
    change(place, Put(cookie_path("b1"), encode_cookie(known)))
    place.until(lambda: node.is_registered)


# --- Two with one identity -------------------------------------------------------------------------------


def test_a_copy_beside_the_living_one_is_refused(place: Place) -> None:
    """P7.9: "One that says Hello ... with this identity and another number of its start stays, and this one is refused,
    both places named"."""
    first = place.nodes.pop("b1")
    survivors = place.disks["b1"].crash()
    disk = place.disks.pop("b1")
    copy = place.start_bookie("b1", survivors)
    place.nodes["first"], place.disks["first"] = first, disk
    place.until(lambda: copy.failure is not None)
    assert first.endpoints[0] in str(copy.failure) and copy.endpoints[0] in str(copy.failure)
    assert not copy.is_registered
    client = place.start_client("c2")
    assert client.listed.registrations["b1"].endpoints == first.endpoints
    assert first.is_registered and first.failure is None


def test_one_that_was_taken_over_meanwhile_is_refused(place: Place) -> None:
    """P7.9: it lost its session while nobody reached it; a copy stands in the list, and says Hello there."""
    first, disk = place.nodes.pop("b1"), place.disks.pop("b1")
    change(place, Delete(registration_path("b1")))
    copy = place.start_bookie("b1", disk.crash())
    place.until(lambda: copy.is_registered)
    place.nodes["first"], place.disks["first"] = first, disk
    first.registering.register(place.now_ns)
    place.until(lambda: first.failure is not None)
    assert copy.is_registered and copy.failure is None
    assert copy.endpoints[0] in str(first.failure)


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_living_one_is_found_at_any_of_its_addresses(place: Place, answers: int) -> None:
    """P7.9: "asked before its place is taken": at each of the addresses that stand there. One that refuses, or that
    cannot be dialled, says nothing of the others."""
    first, disk = place.nodes.pop("b1"), place.disks.pop("b1")
    node = place.nodes.get("c1") or place.start_client()
    found = node.listed.registrations["b1"]
    addresses = ["local://nobody", "local://nobody-either"]
    addresses.insert(answers, first.endpoints[0])
    change(
        place, Put(registration_path("b1"), encode_registration(structs.replace(found, endpoints=addresses)))
    )
    copy = place.start_bookie("b1", disk.crash())
    place.nodes["first"], place.disks["first"] = first, disk
    place.until(lambda: copy.failure is not None or copy.is_registered)
    assert copy.failure is not None and first.endpoints[0] in str(copy.failure)


def test_one_that_comes_back_beside_a_registration_stays(place: Place) -> None:
    """P7.9: a copy has seen that nobody is in the list; the one that was away registers anew, and has nothing to say of
    its count. The copy does not take the place that it saw empty."""
    first, disk = place.nodes.pop("b1"), place.disks.pop("b1")
    change(place, Delete(registration_path("b1")))
    known = cookie(place)
    copy = place.start_bookie("b1", disk.crash())
    held = first_transaction_held(copy)
    place.until(lambda: bool(held))
    place.nodes["copy"], place.disks["copy"] = place.nodes.pop("b1"), place.disks.pop("b1")
    place.nodes["b1"], place.disks["b1"] = first, disk
    first.registering.register(place.now_ns)
    client = place.nodes["c1"]
    place.until(lambda: "b1" in client.listed.registrations)
    assert cookie(place) == known
    held.pop()()
    place.until(lambda: copy.failure is not None or copy.is_registered)
    assert copy.failure is not None and first.endpoints[0] in str(copy.failure)
    assert first.is_registered and first.failure is None


def test_that_one_was_dead_says_nothing_of_who_came_after_it(place: Place) -> None:
    """P7.9, P2.2: two copies find that the process before is dead. The one whose registration comes too late looks who
    stands there now, and is refused: that one lives."""
    survivors = place.crash("b1")
    late = place.start_bookie("b1", survivors)
    held = first_transaction_held(late)
    place.until(lambda: bool(held))
    place.nodes["late"], place.disks["late"] = place.nodes.pop("b1"), place.disks.pop("b1")
    first = place.start_bookie("b1", survivors)
    place.until(lambda: first.is_registered)
    held.pop()()
    place.until(lambda: late.failure is not None or late.is_registered)
    assert late.failure is not None and first.endpoints[0] in str(late.failure)
    place.turns()
    assert first.is_registered and first.failure is None


# --- Until the count is settled --------------------------------------------------------------------------


def alone(place: Place) -> None:
    """b1 restarts while metadata answers nobody, and waits no longer."""
    survivors = place.crash("b1")
    member = place.nodes.pop("metadata")
    member.transport.close()
    node = place.start_bookie("b1", survivors)
    place.turn()
    place.now_ns += ALONE_NS
    place.turns()
    assert not node.core.is_waiting and not node.core.is_settled


def test_without_metadata_what_it_holds_is_served_and_nothing_is_denied(place: Place) -> None:
    """P7.9: "it serves the ledgers that it holds ..., gives no negative and takes no ledger that it does not know"."""
    assert put(place, 0) == Status.OK
    alone(place)
    assert put(place, 1) == Status.OK
    answer = read(place, 5)
    assert isinstance(answer, ReadAnswer) and answer.status == Status.OK and not answer.absent
    who, peer = incarnation_of(place), place.peer("b1")
    unknown = LEDGER + 1
    for request in (
        add(who, frame(unknown, 0, [b"data"])),
        add(who, frame(unknown, 0, [b"data"]), recovery=True),
        (FenceRequest(who, unknown, KEY), ()),
        (ReadRequest(who, unknown, 0, 5, 1 << 20), ()),
        (LacRequest(who, unknown, -1, 1000, 0), ()),
    ):
        assert isinstance(peer.ask(*request), ErrorAnswer), request
    assert place.bookie("b1").storage.table.get(unknown) is None


def test_while_metadata_can_be_reached_nothing_is_served_before_it_is_asked(place: Place) -> None:
    """P7.9: an add is answered BUSY, so that its writer does not give the bookie up; all else is an error."""
    assert put(place, 0) == Status.OK
    survivors = place.crash("b1")
    place.held.add("metadata")  # It says Hello and answers nothing.
    place.start_bookie("b1", survivors)
    place.run_for(2 * ALONE_NS)
    assert put(place, 1) == Status.BUSY
    assert isinstance(read(place, 0), ErrorAnswer)
    place.held.clear()
    place.until(lambda: place.bookie("b1").is_registered)
    assert put(place, 1) == Status.OK
