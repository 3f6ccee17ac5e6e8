"""The client in its place: one outcome per request, links that come and go, liars, the end (P3.6, P3.8, P4)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from embedbk.codec.add_messages import ADD_ANSWER_BYTES, AddAnswer, AddAnswers, AddRequest, FenceAnswer
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import encode_frame_header
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.messages import (
    Control,
    ErrorAnswer,
    Message,
    decode_message,
    encode_add_answers,
    encode_message,
    split_bundle,
)
from embedbk.codec.metadata_messages import Put, Refusal, Result, Txn
from embedbk.codec.read_messages import ReadAnswer
from embedbk.codec.registration import (
    REGISTRATION_VERSION,
    Registration,
    encode_registration,
    registration_path,
)
from embedbk.config import Quorum
from embedbk.core.backlog import Backlog
from embedbk.core.client_words import Answered, BookiesChanged, Send, SendFailed
from embedbk.core.creation import Creation, Patience
from embedbk.core.lac_reader import LacRead, LacWait
from embedbk.core.machine import Machine
from embedbk.core.reader import RangeRead
from embedbk.core.recovery import Recovery
from embedbk.core.vocabulary import Ended, Started
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import EmbedbkError, LedgerClosed, MetadataUnavailable, NotEnoughBookies
from embedbk.host import bookie_links, bookie_requests, client_node
from embedbk.host.client_node import ClientNode
from embedbk.host.deadlines import DUE_SPARE
from embedbk.host.operations import OneResult, Reading
from embedbk.host.writing import Writing
from embedbk.ids import Member
from embedbk.ports.links import Identity, LinkDown, LinkUp, Received
from embedbk.transports.local import LocalTransport
from tests.host.place import KEY, MS, SECOND, TOKEN, Place, add, frame
from tests.host.test_bookie_node import mutated

ONE = Quorum(1, 1, 1)


class Asking(Machine):
    """A core that sends what it is given and writes down what becomes of it."""

    def __init__(self, sends: Sequence[Send]) -> None:
        self.sends = sends
        self.heard: list[tuple[object, str]] = []

    def _on_started(self, event: Started) -> list[Send]:
        return list(self.sends)

    def _on_answered(self, event: Answered) -> list[Send]:
        self.heard.append((event.tag, type(event.control).__name__))
        return []

    def _on_failed(self, event: SendFailed) -> list[Send]:
        self.heard.append((event.tag, event.reason))
        return []

    HANDLERS = {Started: _on_started, Answered: _on_answered, SendFailed: _on_failed}  # type: ignore[assignment]  # noqa: RUF012


def member_of(place: Place, name: str) -> Member:
    return Member(name, place.bookie(name).storage.incarnation)


def lac_request(member: Member, tag: object) -> Send:
    return Send(member, LacRequest(member.incarnation, 7), tag)


class FakeBookie:
    """Somebody who listens where a bookie is said to be, and answers as the test says."""

    def __init__(self, place: Place, name: str, answer: Callable[[Message], list[bytes]]) -> None:
        self.place = place
        self.member = Member(name, place.fresh())
        self.transport = LocalTransport(Identity("bookie", name, self.member.incarnation, TOKEN))
        self.endpoint = self.transport.listen("local://*")
        self.answer = answer
        self.heard: list[Message] = []
        self.links: list[int] = []
        self.lost = self.bodies = 0
        place.nodes[name] = self

    def step(self, now_ns: int) -> None:
        for event in self.transport.receive(now_ns):
            if isinstance(event, LinkUp):
                self.links.append(event.link)
            elif isinstance(event, LinkDown):
                self.lost += 1
            else:
                assert isinstance(event, Received)
                self.bodies += 1
                for part in split_bundle(event.body):
                    message = decode_message(part)
                    self.heard.append(message)
                    for body in self.answer(message):
                        self.transport.send(event.link, [body])

    def close(self) -> None:
        self.transport.close()


def register(place: Place, client: ClientNode, member: Member, *endpoints: str) -> None:
    """Put a registration as its bookie would."""
    registration = Registration(
        REGISTRATION_VERSION, member.bookie_id, member.incarnation, list(endpoints), True, 0
    )
    done: list[Result] = []
    put = Put(registration_path(member.bookie_id), encode_registration(registration))
    client.metadata.request(place.now_ns, Txn([], [put]), lambda _, result: done.append(result))
    place.until(lambda: bool(done))
    place.until(
        lambda: (
            member.bookie_id in client.listed.registrations
            and client.listed.registrations[member.bookie_id].endpoints == list(endpoints)
        )
    )


def encoded(request_id: int, control: Control) -> bytes:
    return b"".join(bytes(piece) for piece in encode_message(request_id, control))


def append(place: Place, writing: Writing, *payloads: bytes) -> None:
    for payload in payloads:
        writing.try_append(payload)
    place.turn()


# --- Links -----------------------------------------------------------------------------------------------


def test_a_lost_link_fails_each_request_once_in_the_order_of_sending(place: Place) -> None:
    """Every Send has exactly one outcome; behind a dial that failed comes a pause, then it is dialled on demand."""
    client = place.start_client()
    b1 = member_of(place, "b1")
    asking = Asking([lac_request(b1, number) for number in range(5)])
    place.start(client, asking)
    place.turns()
    assert asking.heard == [(number, "LacAnswer") for number in range(5)]
    survivors = place.crash("b1")
    client.step(place.now_ns)
    again = Asking([lac_request(b1, number) for number in range(3)])
    place.start(client, again)
    assert again.heard == [], "a link that was up may come up again: it is dialled at once"
    client.step(place.now_ns)
    assert [tag for tag, _ in again.heard] == [0, 1, 2]
    place.start(client, paused := Asking([lac_request(b1, 0)]))
    assert paused.heard == [(0, "link lost")]
    node = place.start_bookie("b1", survivors)
    place.until(lambda: node.is_registered)
    place.run_for(bookie_links.REDIAL_NS + MS, step_ns=MS)
    third = Asking([lac_request(b1, 0)])
    place.start(client, third)
    place.turns()
    assert third.heard == [(0, "LacAnswer")], "the same member over a new link"


def test_a_link_that_dies_with_requests_on_it_answers_none_of_them_twice(place: Place) -> None:
    client = place.start_client()
    b1 = member_of(place, "b1")
    place.start(client, first := Asking([lac_request(b1, "first")]))
    place.turns()
    long_poll = Send(b1, LacRequest(b1.incarnation, 7, -1, 30_000), "poll")
    place.start(client, asking := Asking([long_poll, long_poll]))
    place.turns()
    assert (len(first.heard), asking.heard) == (1, [])
    place.crash("b1")
    place.turns()
    assert [tag for tag, _ in asking.heard] == ["poll", "poll"]
    place.run_for(SECOND)
    assert len(asking.heard) == 2


def test_slowness_is_not_failure(place: Place) -> None:
    """What a full link does not take waits here, in order, up to a bound; beyond it fails at once."""
    client = place.start_client()
    slow = FakeBookie(place, "slow", lambda message: [encoded(message.request_id, LacAnswer(Status.OK, 7))])
    register(place, client, slow.member, slow.endpoint)
    place.start(client, Asking([lac_request(slow.member, "first")]))
    place.turns()
    client._links.slow_bookie_bytes_max = 3_500_000
    del place.nodes["slow"]  # It stands still: its link, 16 MiB, fills up.
    big = add(slow.member.incarnation, frame(7, 0, [bytes(1_000_000)]))
    asking = Asking([Send(slow.member, *big[:1], number, big[1]) for number in range(30)])
    place.start(client, asking)
    place.turns()
    failed = [tag for tag, reason in asking.heard if reason == "its queue is full"]
    assert failed == list(range(19, 30)), "16 are on the link, 3 wait"
    place.nodes["slow"] = slow
    place.turns()
    assert [tag for tag, kind in asking.heard if kind == "LacAnswer"] == list(range(19))
    ids = [message.request_id for message in slow.heard]
    assert ids == sorted(ids)


def test_what_a_slow_bookie_holds_beyond_the_quorum_is_bounded(place: Place) -> None:
    """RP34: b3 stands still and the others acknowledge; what waits for it stays below its bound, and appends go on;
    beyond the bound its seat is given to another."""
    place.start_bookie("b4")
    client = place.start_client()
    client._links.slow_bookie_bytes_max = 3 << 20
    writing = place.write(client)
    seated = writing.core.in_flight.members
    append(place, writing, b"zero")
    place.until(lambda: writing.lac == 0)
    slow = place.nodes.pop(seated[2].bookie_id)  # It neither ends nor reads: its link, 16 MiB, fills up.
    sent = 1
    while writing.ensemble_changes == 0:
        assert sent < 40, "the bound was never reached"
        writing.try_append(bytes(1 << 20))
        place.until(lambda last=sent: writing.lac == last)
        waiting = [peer.waiting_bytes for peer in client._links.by_member.values()]
        assert max(waiting) <= client._links.slow_bookie_bytes_max
        sent += 1
    assert sent > 16, "slowness within the bounds is no failure"
    assert slow.bookie_id not in [member.bookie_id for member in writing.core.in_flight.members]
    assert writing.error is None
    place.nodes[slow.bookie_id] = slow


def test_a_change_of_the_bookies_steps_only_who_needs_it(place: Place) -> None:
    """A turn's cost follows what moves, not what is open. Who is at rest hears of it before what it
    hears next, and chooses among the bookies of that time."""
    client = place.start_client()
    writings = [place.write(client) for _ in range(50)]
    for writing in writings:
        append(place, writing, b"zero")
    place.run_for(SECOND, step_ns=50 * MS)
    stepped: list[Machine] = []
    client.on_step = lambda core, event, effects: stepped.append(core)
    place.start_bookie("b4")
    place.run_for(SECOND, step_ns=50 * MS)
    assert len(client.bookies) == 4
    assert stepped == []
    place.crash("b1")
    append(place, writings[0], b"one")
    place.until(lambda: writings[0].ensemble_changes == 1)
    assert "b4" in [member.bookie_id for member in writings[0].core.in_flight.members]
    assert not any(core is writing.core for core in stepped for writing in writings[1:])


def test_a_turn_sends_each_bookie_one_message_for_many_ledgers(place: Place) -> None:
    """Fifty requests of a turn are one message to their bookie; a long one leaves alone, in order."""
    client = place.start_client()
    ear = FakeBookie(place, "ear", lambda message: [encoded(message.request_id, LacAnswer(Status.OK, 7))])
    register(place, client, ear.member, ear.endpoint)
    place.start(client, Asking([lac_request(ear.member, "first")]))
    place.turns()
    ear.bodies, ear.heard[:] = 0, []
    asking = Asking([lac_request(ear.member, number) for number in range(50)])
    place.start(client, asking)
    place.turns()
    assert ear.bodies == 1
    assert asking.heard == [(number, "LacAnswer") for number in range(50)]
    long = add(ear.member.incarnation, frame(7, 0, [bytes(bookie_links.BUNDLED_BYTES_MAX)]))
    place.start(
        client,
        Asking(
            [
                *(lac_request(ear.member, number) for number in range(3)),
                Send(ear.member, *long[:1], "long", long[1]),
                lac_request(ear.member, "last"),
            ]
        ),
    )
    place.turns()
    assert ear.bodies == 3
    kinds = [type(message.control).__name__ for message in ear.heard[50:]]
    assert kinds == ["LacRequest"] * 3 + ["AddRequest", "LacRequest"]


def test_many_ledgers_of_one_turn_are_acknowledged_by_real_bookies(place: Place) -> None:
    """P3.2, P3.7: what travels together is taken as if it had come alone, by the core as by the add path."""
    client = place.start_client()
    writings = [place.write(client) for _ in range(20)]
    for number in range(3):
        for writing in writings:
            append(place, writing, b"entry %d" % number)
        place.until(lambda number=number: all(writing.lac == number for writing in writings))
    assert all(writing.error is None for writing in writings)


def test_unanswered_requests_have_a_bound(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that takes everything and answers nothing costs no memory without end."""
    monkeypatch.setattr(bookie_requests, "UNANSWERED_MAX", 5)
    client = place.start_client()
    quiet = FakeBookie(place, "quiet", lambda _: [])
    register(place, client, quiet.member, quiet.endpoint)
    asking = Asking([lac_request(quiet.member, number) for number in range(7)])
    place.start(client, asking)
    assert [tag for tag, _ in asking.heard] == [5, 6]


def test_a_bookie_that_moved_gets_what_waited_for_it(place: Place) -> None:
    """P7.2: an id is not an address. Nothing of it was sent before, so nothing is done twice."""
    client = place.start_client()
    bookie = FakeBookie(
        place, "moving", lambda message: [encoded(message.request_id, LacAnswer(Status.OK, 7))]
    )
    away = LocalTransport(Identity("bookie", "moving", bookie.member.incarnation, TOKEN))
    del place.nodes["moving"]
    register(place, client, bookie.member, away.listen("local://*"))
    asking = Asking([lac_request(bookie.member, number) for number in range(3)])
    place.start(client, asking)
    [peer] = [peer for peer in client._links.by_member.values() if peer.member == bookie.member]
    peer.is_up = False  # As over a network: the Hello is on its way.
    client.transport._ends[peer.link].is_up = False  # type: ignore[attr-defined]
    client.transport._inbox.clear()  # type: ignore[attr-defined]
    place.nodes["moving"] = bookie
    register(place, client, bookie.member, bookie.endpoint)
    place.turns()
    assert asking.heard == [(number, "LacAnswer") for number in range(3)]
    assert len(bookie.heard) == 3
    away.close()


@pytest.mark.parametrize("endpoints", [[], ["tcp://192.0.2.1:1"], ["local://nobody"], ["nonsense"]])
def test_a_registration_that_leads_nowhere_is_a_failed_send(place: Place, endpoints: list[str]) -> None:
    """What another bookie says of itself ends no client."""
    client = place.start_client()
    lost = Member("lost", place.fresh())
    register(place, client, lost, *endpoints)
    asking = Asking([lac_request(lost, 0)])
    place.start(client, asking)
    place.turns()
    assert len(asking.heard) == 1
    place.start(client, good := Asking([lac_request(member_of(place, "b1"), 0)]))
    place.turns()
    assert good.heard == [(0, "LacAnswer")]


def test_another_incarnation_is_not_sent_to(place: Place) -> None:
    """P7.2: requests are for (id, incarnation); who is registered under the id now is another member."""
    client = place.start_client()
    place.start(client, asking := Asking([lac_request(Member("b1", bytes(16)), 0)]))
    assert asking.heard == [(0, "registered in another incarnation")]
    place.start(client, unknown := Asking([lac_request(Member("b9", bytes(16)), 0)]))
    assert unknown.heard == [(0, "not registered")]


# --- Hostile bookies -------------------------------------------------------------------------------------


def test_an_answer_counts_once_and_from_whom_was_asked(place: Place) -> None:
    """P3.8: doubled answers, and answers to what another bookie was asked, count for nothing."""
    client = place.start_client()
    others: list[int] = []

    def eager(message: Message) -> list[bytes]:
        guess = range(max(1, message.request_id - 5), message.request_id + 6)
        return [encoded(number, LacAnswer(Status.OK, 7)) for number in (*guess, *guess)]

    def silent(message: Message) -> list[bytes]:
        others.append(message.request_id)
        return []

    liar, asked = FakeBookie(place, "liar", eager), FakeBookie(place, "silent", silent)
    register(place, client, liar.member, liar.endpoint)
    register(place, client, asked.member, asked.endpoint)
    sends = [lac_request(asked.member, "silent"), lac_request(liar.member, "liar")]
    place.start(client, asking := Asking([sends[0], sends[1], sends[0]]))
    place.turns()
    assert len(others) == 2
    assert asking.heard == [("liar", "LacAnswer")]


def test_garbage_from_a_bookie_fails_its_requests_and_nobody_elses(place: Place) -> None:
    client = place.start_client()
    broken = FakeBookie(place, "broken", lambda _: [b"garbage" * 20, encoded(1, LacAnswer(Status.OK, 7))])
    register(place, client, broken.member, broken.endpoint)
    sends = [lac_request(broken.member, 0), lac_request(broken.member, 1)]
    place.start(client, asking := Asking([*sends, lac_request(member_of(place, "b1"), 2)]))
    place.turns()
    outcomes = dict(asking.heard)
    assert len(asking.heard) == len(outcomes) == 3
    assert "no message" in outcomes[0]
    assert "no message" in outcomes[1]
    assert outcomes[2] == "LacAnswer"
    assert broken.lost == 1


def lie(chance: random.Random, message: Message) -> bytes:
    """An answer that is well encoded, and most often wrong."""
    edge = [0, 1, 2, 2**31, 2**63 - 1]
    asked = message.control
    nonce, seating = (asked.nonce, asked.seating) if isinstance(asked, AddRequest) else (1, 1)
    ledger_id = getattr(asked, "ledger_id", chance.choice(edge))
    status = chance.choice([Status.OK, Status.OK, *Status])

    def pick() -> int:
        return chance.choice(edge)

    ranges = [(pick(), pick()) for _ in range(chance.randrange(3))]
    sealed = frame(chance.choice([ledger_id, 6]), chance.choice([0, 1, 2]), [b"p"] * chance.randrange(1, 4))
    frames = [(encode_frame_header(sealed, KEY), sealed)] * chance.randrange(3)
    answers: list[tuple[Control, list[Any]]] = [
        (AddAnswer(status, nonce, seating, chance.random() < 0.5, ledger_id, pick(), pick()), []),
        (ReadAnswer(status, ledger_id, ranges, pick(), pick()), frames),
        (FenceAnswer(status, ledger_id, pick() - 1, pick()), []),
        (LacAnswer(status, ledger_id, pick() - 1, pick(), chance.random() < 0.5), []),
        (ErrorAnswer("no"), []),
        (AddAnswers(chance.randbytes(chance.choice([0, 10, ADD_ANSWER_BYTES]))), []),
        (AddAnswers(_add_answer(message.request_id, status, nonce, seating, ledger_id, pick(), pick())), []),
        (AddRequest(bytes(16), 1, 1, False), frames[:1]),
    ]
    control, told = chance.choice(answers)
    return b"".join(bytes(piece) for piece in encode_message(message.request_id, control, told))


def _add_answer(
    asked: int, status: Status, nonce: int, seating: int, ledger_id: int, first: int, last: int
) -> bytes:
    answer = AddAnswer(status, nonce, seating, False, ledger_id, first, last)
    (message,) = encode_add_answers([(asked, answer), (asked + 1, answer)])
    control = decode_message(message).control
    assert isinstance(control, AddAnswers)
    return control.answers


@pytest.mark.parametrize("quorum", [ONE, Quorum(3, 2, 2)], ids=str)
@pytest.mark.parametrize("seed", range(20))
def test_no_answer_ends_the_client(place: Place, seed: int, quorum: Quorum) -> None:
    """Writers, readers and recoverers of ledgers whose bookies lie: they fail or go on, the client does not end."""
    chance = random.Random(f"answers {seed}")
    client = place.start_client()

    def answer(message: Message) -> list[bytes]:
        body = lie(chance, message)
        return [mutated(chance, body) or b"x"] if chance.random() < 0.1 else [body]

    liars = [FakeBookie(place, f"liar{number}", answer) for number in range(3)]
    for liar in liars:
        register(place, client, liar.member, liar.endpoint)
    client.listed.bookies = tuple(info for info in client.bookies if info.member.bookie_id.startswith("liar"))
    recoveries = []
    for round_ in range(3):
        writing = place.write(client, quorum, WriterOptions(add_timeout_ns=100 * MS))
        append(place, writing, *([b"x"] * 5))
        metadata: LedgerMetadata = writing.core.metadata
        reading = Reading(RangeRead(metadata, 0, 4, round_), lambda *_: None)
        client.run(place.now_ns, reading)
        core = Recovery(
            metadata, writing.core.changes.revision, KEY, 5 + round_, client.bookies, place.chance
        )
        recoveries.append(place.start(client, core))
        asked = [
            place.start(client, LacRead(metadata)),
            place.start(client, LacWait(metadata, 0, 50, round_)),
        ]
        place.run_for(300 * MS)
        assert all(operation.future.done() for operation in asked)
        client.release(reading)
        client.release(writing)
    # Who says BUSY has 30 s for itself (P7.8), behind what was asked before.
    place.run_for(45 * SECOND, step_ns=100 * MS)
    assert all(recovery.future.done() for recovery in recoveries), "a recovery ends, one way or the other"
    honest = place.bookie("b1")
    place.start(client, asking := Asking([lac_request(Member("b1", honest.storage.incarnation), 0)]))
    place.turns()
    assert asking.heard == [(0, "LacAnswer")]


# --- Writers through the host ----------------------------------------------------------------------------


def test_a_restarted_bookie_is_the_same_seat(place: Place) -> None:
    """P7.2: same id, same incarnation, new link and endpoint: the writer goes on, with or without a change."""
    client = place.start_client()
    writing = place.write(client)
    append(place, writing, b"zero")
    place.until(lambda: writing.lac == 0)
    node = place.start_bookie("b2", place.crash("b2"))
    place.until(lambda: node.is_registered)
    append(place, writing, b"one")
    place.until(lambda: writing.lac == 1)
    assert writing.error is None
    client.close_writing(place.now_ns, _stopped(writing))
    place.until(writing.closed.done)
    assert writing.closed.result() == 1


def _stopped(writing: Writing) -> Writing:
    writing.packer.stop()
    return writing


def test_closing_seals_and_waits_for_what_was_appended(place: Place) -> None:
    """P5.1: nothing that was queued before is left behind, however much is in flight."""
    client = place.start_client()
    writing = place.write(client)
    place.held.update({"b1", "b2", "b3"})
    for number in range(50):
        append(place, writing, b"%d" % number)
    assert writing.lac == -1
    client.close_writing(place.now_ns, _stopped(writing))
    place.turns()
    assert not writing.closed.done()
    place.held.clear()
    place.until(writing.closed.done)
    assert writing.closed.result() == 49
    assert writing.lac == 49


def test_an_idle_handle_keeps_little_of_its_core_and_goes_on(place: Place) -> None:
    """P3.1, P3.3, P4.2: what is left of it knows all, bookies that come wake nobody, and who fails is replaced."""
    client = place.start_client()
    writing = place.write(client)
    for number in range(3):
        append(place, writing, b"%d" % number)
        assert not writing.is_shrunk, "its add is on its way"
        place.run_for(SECOND)
        assert writing.is_shrunk
        assert writing.lac == writing.received == number
    assert writing.metadata.ledger_id == writing.packer.ledger_id
    place.start_bookie("b4")
    place.until(lambda: len(client.bookies) == 4)
    assert writing.is_shrunk
    place.crash("b1")
    place.crash("b2")
    append(place, writing, b"3")
    place.run_for(SECOND)
    place.start_bookie("b5")
    place.run_for(20 * SECOND)
    assert writing.lac == 3
    assert writing.core.changes.count == writing.ensemble_changes > 0
    client.close_writing(place.now_ns, _stopped(writing))
    place.until(writing.closed.done)
    assert writing.closed.result() == 3


def test_a_watched_handle_does_not_rest(place: Place) -> None:
    """Whoever follows the steps of a core knows it by its identity."""
    client = place.start_client()
    writing = place.write(client)
    client.on_step = lambda core, event, effects: None
    append(place, writing, b"0")
    core = writing.core
    place.run_for(SECOND)
    assert writing.core is core


def test_past_deadlines_do_not_pile_up(place: Place) -> None:
    """The heap follows the handles that wait for a time, not those that are open, and not what was appended."""
    client = place.start_client()
    writings = [place.write(client) for _ in range(40)]
    for number in range(40):
        for writing in writings:
            append(place, writing, b"%d" % number)
        place.run_for(150 * MS, 10 * MS)
        assert len(client._deadlines) <= 2 * len(writings) + DUE_SPARE
    place.run_for(SECOND)
    append(place, writings[0], b"last")
    assert len(client._deadlines) <= 2 + DUE_SPARE


def test_a_client_that_closes_fails_what_is_on_its_way(place: Place) -> None:
    """P3.6: appends in flight are unknown, every waiting caller is told, later ones are refused."""
    client = place.start_client()
    writing = place.write(client)
    place.held.update({"b1", "b2", "b3"})
    append(place, writing, b"zero")
    poll = Asking([])
    waiting = place.start(client, poll)
    told: list[str] = []
    client.on_closed = lambda: told.append("closed")
    client.close()
    assert told == ["closed"]
    assert writing.is_settled(0)
    assert writing.wait(0, 0), "nobody waits on for what never comes"
    failed = writing.error
    assert isinstance(failed, MetadataUnavailable) and "closed" in str(failed)
    assert not failed.definite
    with pytest.raises(MetadataUnavailable):
        writing.closed.result()
    with pytest.raises(MetadataUnavailable):
        waiting.future.result()
    with pytest.raises(MetadataUnavailable) as refused:
        writing.try_append(b"one")
    assert refused.value.definite
    late = OneResult(Asking([]))
    client.run(place.now_ns, late)
    with pytest.raises(MetadataUnavailable):
        late.future.result()
    outcomes: list[Result] = []
    client.metadata.request(place.now_ns, Txn([], []), lambda _, result: outcomes.append(result))
    assert isinstance(outcomes[0], Refusal)
    del place.nodes["c1"]


def test_a_loop_that_failed_is_told_to_who_waits(place: Place) -> None:
    """Not "closed": what ended it, and that it is worth reporting."""
    client = place.start_client()
    writing = place.write(client)
    append(place, writing, b"zero")
    asked: list[Result] = []
    place.held.add("metadata")
    client.metadata.request(place.now_ns, Txn([], [Put("/x", b"")]), lambda _, result: asked.append(result))
    client.close(ZeroDivisionError("a bug"))
    for waiting in (writing.closed, place.start(client, Asking([])).future):
        with pytest.raises(EmbedbkError, match="a bug") as failed:
            waiting.result()
        assert not isinstance(failed.value, MetadataUnavailable)
        assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert isinstance(asked[0], Refusal)
    assert "a bug" in asked[0].text
    del place.nodes["c1"]


def test_a_released_handle_hears_nothing_more(place: Place) -> None:
    """Answers, failures and news for an operation that ended are nobody's."""
    client = place.start_client()
    writing = place.write(client)
    place.held.update({"b1", "b2", "b3"})
    append(place, writing, b"zero")
    client.release(writing)
    writing.fail(LedgerClosed("released"))
    before = writing.core.digest()
    place.held.clear()
    place.turns()
    place.crash("b3")
    place.run_for(SECOND)
    assert writing.core.digest() == before
    assert writing.lac == -1
    assert writing not in client.operations
    append(place, fresh := place.write(client, Quorum(2, 2, 1)), b"zero")
    place.until(lambda: fresh.lac == 0)


def test_what_a_released_handle_kept_is_not_counted(place: Place) -> None:
    """RP34: what the handles of a process keep for bookies that are behind is that of those which are left."""
    client = place.start_client()
    backlog = client.backlog = Backlog(1 << 30)
    writing = place.write(client)
    place.held.add("b3")
    append(place, writing, b"zero")
    place.until(lambda: writing.lac == 0)
    assert backlog.kept_bytes == writing.core.in_flight.behind_bytes > 0
    client.release(writing)
    assert backlog.kept_bytes == 0


def test_what_is_appended_before_a_handle_is_begun_is_sent_behind_that(place: Place) -> None:
    """RP34: a user's thread may append before the loop comes to begin the handle: what is kept is counted all the same.
    Sent at once it would be kept uncounted, and the process would end when it is let go of."""
    client = place.start_client()
    backlog = client.backlog = Backlog(1 << 30)
    writing = place.unbegun(client)
    place.held.add("b3")
    append(place, writing, b"zero")
    assert writing.core.in_flight.pending_count == 0
    client.run(place.now_ns, writing)
    place.until(lambda: writing.lac == 0)
    assert backlog.kept_bytes == writing.core.in_flight.behind_bytes > 0
    client.release(writing)
    assert backlog.kept_bytes == 0


def test_the_handle_behind_one_that_is_done_is_begun_first(place: Place) -> None:
    """RP34, P8.2: a roll makes the next handle beside the loop, which may find the one before done before it comes to
    begin the next one. Sent at once its frames would be kept uncounted, and the process would end when they go."""
    client = place.start_client()
    backlog = client.backlog = Backlog(1 << 30)
    before, following = place.write(client), place.unbegun(client)
    following.wait_behind(before)
    append(place, following, b"one")
    append(place, before, b"zero")
    place.until(lambda: before.lac == 0)
    place.held.add("b3")
    place.turn()
    assert following.core.in_flight.pending_count == 0
    client.run(place.now_ns, following)
    place.until(lambda: following.lac == 0)
    assert (
        backlog.kept_bytes == before.core.in_flight.behind_bytes + following.core.in_flight.behind_bytes > 0
    )
    client.release(before)
    client.release(following)
    assert backlog.kept_bytes == 0


def test_bookies_are_told_to_operations_in_their_order(place: Place) -> None:
    """Same events, same effects: not in the order of a hash."""
    client = place.start_client()
    told: list[int] = []
    writings = [place.write(client) for _ in range(8)]
    for writing in writings:
        in_flight = writing.core.in_flight
        in_flight.fail(in_flight.seatings[0].number, "it waits for another")
    client.on_step = lambda core, event, _: (
        told.append(core.ledger_id) if isinstance(event, BookiesChanged) else None  # type: ignore[attr-defined]
    )
    place.start_bookie("b4")
    place.until(lambda: len(told) >= 8)
    assert told[:8] == [writing.core.ledger_id for writing in writings]


def test_the_deadlines_of_a_busy_handle_do_not_pile_up(place: Place) -> None:
    """Each idle moment has a deadline before the last one; what it replaced is cleaned up."""
    client = place.start_client()
    writing = place.write(client)
    for number in range(300):
        append(place, writing, b"x")
        place.until(lambda number=number: writing.lac == number)  # type: ignore[misc]
        place.turns(2)
    assert len(client._deadlines) <= 2 * len(client.operations) + DUE_SPARE


def test_a_turn_takes_only_so_many_of_very_many_handles(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 100,000 ledgers no turn may last so long that links are taken for dead."""
    monkeypatch.setattr(client_node, "WRITINGS_PER_TURN_MAX", 2)
    client = place.start_client()
    writings = [place.write(client) for _ in range(5)]
    for writing in writings:
        writing.try_append(b"x")
    for sealed in (2, 4, 5):
        assert client.has_news()
        client.step(place.now_ns)
        assert sum(writing.core.lap == 0 for writing in writings) == sealed
    assert not client.has_news()
    place.turns()
    assert all(writing.lac == 0 for writing in writings)
    place.now_ns += 101 * MS  # They owe their LACs to the bookies.
    for owing in (3, 1, 0):
        due = client.deadline_ns()
        assert due is not None and due <= place.now_ns, "the loop goes on at once"
        client.step(place.now_ns)
        assert sum(writing.core.lac_publishing.published < 0 for writing in writings) == owing


def test_too_few_bookies_is_an_error_of_the_handle_only(place: Place) -> None:
    """P4.5: two of three are gone, nobody can take their seats."""
    client = place.start_client()
    writing = place.write(client, options=WriterOptions(add_timeout_ns=200 * MS))
    append(place, writing, b"zero")
    place.until(lambda: writing.lac == 0)
    place.crash("b1")
    place.crash("b2")
    append(place, writing, b"one")
    place.until(lambda: writing.error is not None, step_ns=10 * MS)
    assert isinstance(writing.error, NotEnoughBookies)
    assert writing.received == 0
    place.start(client, good := Asking([lac_request(member_of(place, "b3"), 0)]))
    place.turns()
    assert good.heard == [(0, "LacAnswer")]


def test_a_core_made_before_the_list_changed_hears_of_it_at_its_start(place: Place) -> None:
    """CL01: a creation that waits would not be told again of bookies that came before it was started."""
    client = place.start_client()
    before = client.bookies[:2]
    patience = Patience(place.now_ns + 60 * SECOND, ("b1", "b2", "b3"))
    creating = place.start(
        client, Creation(Quorum(3, 3, 2), b"", 0, {}, before, place.chance, patience=patience)
    )
    place.until(creating.future.done)
    metadata, _ = creating.future.result()
    assert len(metadata.fragments[0].members) == 3


def test_a_core_that_ends_while_it_is_told_leaves_the_rest_untold(place: Place) -> None:
    """Several outcomes arrive in one turn, the first one ends the core: it hears no other."""

    class First(Asking):
        def _end(self, event: Answered) -> list[Ended]:
            self.heard.append((event.tag, "first"))
            return [Ended(None, event.tag)]

        HANDLERS = {**Asking.HANDLERS, Answered: _end}  # noqa: RUF012

    client = place.start_client()
    core = First([lac_request(member_of(place, name), name) for name in ("b1", "b2", "b3")])
    operation = place.start(client, core)
    place.turns()
    assert len(core.heard) == 1
    assert operation.future.result() == core.heard[0][0]
    assert operation not in client.operations
