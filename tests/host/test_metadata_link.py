"""A node's connection with the metadata quorum: every request one outcome, dialling that backs off (P2.2, P10)."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.add_messages import FenceAnswer
from embedbk.codec.bookie_fields import Status
from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.metadata_messages import (
    AllocIds,
    Get,
    KeepAlive,
    MetadataReplies,
    MetadataReply,
    MetadataRequest,
    MetadataRequests,
    OpenSession,
    Operation,
    Put,
    Refusal,
    Result,
    SessionOpened,
    Txn,
    TxnDone,
    Unwatch,
    Value,
    Watch,
)
from embedbk.host.metadata_link import MetadataLink
from embedbk.metadata.client import Client, is_unknown
from embedbk.metadata.levels import LEVEL
from embedbk.metadata.seeking import PAUSE_NS_MAX, PAUSE_NS_MIN
from embedbk.ports.links import Identity, LinkDown, LinkUp, Received
from embedbk.transports.local import LocalTransport
from tests.host.place import MS, SECOND, SESSION_MS, TOKEN, Peer, Place
from tests.host.test_bookie_node import mutated


class Linked:
    """A metadata link as a node of its own, with the outcomes of what it was asked."""

    def __init__(self, place: Place, endpoints: list[str]) -> None:
        self.transport = LocalTransport(Identity("client", "linked", place.fresh(), TOKEN))
        client = Client(ttl_ms=SESSION_MS, label="linked", cluster_token=TOKEN)
        self.sessions: list[int] = []
        self.link = MetadataLink(self.transport, endpoints, client, on_session=self._on_session)
        self.outcomes: list[Result] = []
        self.dials: list[int] = []

    def _on_session(self, now_ns: int, token: bytes) -> None:
        self.sessions.append(now_ns)

    def ask(self, place: Place, operation: Operation) -> int:
        return self.link.request(place.now_ns, operation, lambda _, result: self.outcomes.append(result))

    def step(self, now_ns: int) -> None:
        for event in self.transport.receive(now_ns):
            if isinstance(event, LinkUp):
                self.link.on_link_up(now_ns, event.link, event.peer)
            elif isinstance(event, LinkDown):
                self.dials.append(now_ns)
                self.link.on_link_down(now_ns, event.link, event.reason)
            else:
                assert isinstance(event, Received)
                self.link.on_message(now_ns, event.link, decode_message(event.body))
        self.link.tick(now_ns)

    def close(self) -> None:
        self.link.end("closed")
        self.transport.close()


def linked(place: Place, *endpoints: str) -> Linked:
    made = Linked(place, list(endpoints) or place.metadata.endpoints)
    place.nodes["linked"] = made
    return made


def test_requests_from_within_a_callback_are_behind_it(place: Place) -> None:
    """Callbacks never run inside one another, so each finds the state that the one before left."""
    made = linked(place)
    story: list[str] = []

    def second(_: int, result: Result) -> None:
        story.append(type(result).__name__)

    def first(now_ns: int, result: Result) -> None:
        story.append("first begins")
        made.link.request(now_ns, KeepAlive(), second)  # Refused at once: it is not for hosts to ask.
        story.append("first ends")

    made.link.request(place.now_ns, Get("/x"), first)
    place.until(lambda: len(story) == 3)
    assert story == ["first begins", "first ends", "Refusal"]


def test_the_end_gives_every_request_its_outcome(place: Place) -> None:
    """A transaction that was sent is unknown (P2.2); what is asked later is refused; nothing is told twice."""
    made = linked(place)
    place.until(lambda: made.link.session != 0)
    place.held.add("metadata")
    made.ask(place, Txn([], [Put("/x", b"1")]))
    made.ask(place, Get("/x"))
    place.turns()
    assert made.outcomes == []
    made.link.end("the test is over")
    assert len(made.outcomes) == 2
    assert is_unknown(made.outcomes[0])
    made.ask(place, Get("/x"))
    assert isinstance(made.outcomes[2], Refusal)
    assert made.outcomes[2].text == "the test is over"
    made.link.end("again")
    place.held.clear()
    place.turns()
    assert len(made.outcomes) == 3


def test_a_refused_watch_is_no_end(place: Place) -> None:
    """A prefix that no key can have, and a watch after the close."""
    made = linked(place)
    place.until(lambda: made.link.session != 0)
    made.link.watch(place.now_ns, "/" + "x" * 5000, lambda *_: None)
    made.link.close(place.now_ns)
    place.turns()
    made.link.watch(place.now_ns, "/bookies/", lambda *_: None)
    place.turns()
    made.ask(place, Get("/x"))
    assert isinstance(made.outcomes[0], Refusal)


def test_dialling_backs_off_and_begins_anew_behind_an_answer(place: Place) -> None:
    made = linked(place, "local://nobody-is-here")
    place.run_for(15 * SECOND)
    pauses = [after - before for before, after in zip(made.dials, made.dials[1:], strict=False)]
    assert pauses == sorted(pauses), "longer and longer"
    assert pauses[-1] >= PAUSE_NS_MAX
    assert len(made.dials) < 60  # A tenth of the time in vain, from 50 ms on.
    assert "nobody-is-here" in made.link.trouble
    made.link.client.seek(place.metadata.endpoints)
    place.until(lambda: made.link.session != 0)
    assert made.link.trouble == ""
    made.transport.drop(made.link.link or 0, "cut")
    place.turn()
    assert (made.link.deadline_ns() or 0) - place.now_ns <= PAUSE_NS_MIN


def test_the_next_member_is_dialled_when_one_is_away(place: Place) -> None:
    made = linked(place, "local://nobody-is-here", *place.metadata.endpoints)
    place.until(lambda: made.link.session != 0)


def test_an_address_that_may_not_be_dialled_is_no_end(place: Place) -> None:
    """The transport refuses it by an exception; the reason is kept for whoever waits."""
    made = linked(place, "tcp://192.0.2.1:1")
    place.run_for(SECOND)
    assert "not understood" in made.link.trouble
    assert made.link.session == 0


def test_a_peer_that_is_no_member_is_dropped(place: Place) -> None:
    """A bookie's address given as the cluster's: said by name, not waited for."""
    made = linked(place, place.bookie("b1").endpoints[0])
    place.until(lambda: made.link.trouble != "")
    assert "b1 is a bookie, not a metadata member" in made.link.trouble


def test_a_session_lost_and_found_is_told(place: Place) -> None:
    made = linked(place)
    place.until(lambda: made.link.session != 0)
    del place.nodes["linked"]
    place.run_for(2 * SESSION_MS * MS)
    before = made.link.session
    place.nodes["linked"] = made
    place.until(lambda: made.link.session not in (0, before))
    assert len(made.sessions) == 2


def test_a_message_of_another_kind_ends_the_link_only(place: Place) -> None:
    made = linked(place)
    place.until(lambda: made.link.session != 0)
    member = place.metadata
    [end] = [
        link
        for link, joined in member.transport._ends.items()  # type: ignore[attr-defined]
        if joined.other.owner is made.transport
    ]
    member.transport.send(end, encode_message(1, FenceAnswer(Status.OK, 1)))
    place.turns(3)
    assert "FenceAnswer" in made.link.trouble
    made.ask(place, Txn([], [Put("/x", b"1")]))
    place.until(lambda: bool(made.outcomes))
    assert isinstance(made.outcomes[0], TxnDone)


@pytest.mark.parametrize("seed", range(20))
def test_no_body_ends_the_member(place: Place, seed: int) -> None:
    """What a client says costs it its link at most: the member stays up, and serves others (T10)."""
    chance = random.Random(f"member bodies {seed}")
    good = linked(place)
    place.until(lambda: good.link.session != 0)
    edge = [0, 1, 2, 2**31, 2**63 - 1, -1, 2**64 - 1]
    peer: Peer | None = None
    for _ in range(100):
        peer = peer if peer is not None and peer.down is None else place.peer("metadata")
        operations: list[Operation] = [
            Get("/x" * chance.randrange(1000)),
            OpenSession(chance.choice([0, 1, 2**62]), "label" * chance.randrange(2000)),
            Txn([], [Put("/fuzz", bytes(chance.randrange(400_000)))] * chance.randrange(4)),
            AllocIds(chance.choice([0, 1, 2**40])),
            Watch(chance.choice(edge), "/", chance.choice(edge)),
            Unwatch(chance.choice(edge)),
            KeepAlive(),
        ]
        request = MetadataRequest(
            chance.choice([good.link.session, 0, chance.choice(edge)]),
            chance.choice(edge),
            chance.choice(edge),
            chance.choice(operations),
        )
        several = MetadataRequests([request] * chance.randint(1, 3))
        control = (
            chance.choice([request, several])
            if chance.random() < 0.9
            else MetadataReply(1, 1, Refusal("", ""))
        )
        body = b"".join(bytes(piece) for piece in encode_message(1, control))
        if chance.random() < 0.4:
            body = mutated(chance, body)
        if body:
            peer.send_bytes(body)
        place.turns(2)
        peer.look()
    good.outcomes.clear()
    good.ask(place, Get("/metadata-is-up"))
    place.until(lambda: bool(good.outcomes))
    assert isinstance(good.outcomes[0], Value)
    assert place.metadata.failure is None


def puts(count: int) -> list[Operation]:
    return [Txn([], [Put(f"/together/{number}", b"1")]) for number in range(count)]


def test_what_is_asked_in_one_turn_goes_together(place: Place) -> None:
    """WIRE.md, 5: what waits together goes in one message, and is done in the order in which it was asked. The first
    one leaves at once, since nothing that it could wait for is under way."""
    made = linked(place)
    place.until(lambda: made.link.session != 0)
    for operation in puts(9):
        made.ask(place, operation)
    assert place.metadata.gathered_taken == 0
    place.until(lambda: len(made.outcomes) == 9)
    assert place.metadata.gathered_taken == 1
    revisions = [outcome.revision for outcome in made.outcomes if isinstance(outcome, TxnDone)]
    assert revisions == list(range(revisions[0], revisions[0] + 9))


def test_what_is_asked_behind_the_last_tick_is_not_forgotten(place: Place) -> None:
    """A host that asks for something behind `tick` is told to take a turn at once."""
    made = linked(place)
    place.until(lambda: made.link.session != 0)
    for operation in puts(2):
        made.ask(place, operation)
    assert made.link.deadline_ns() == 0
    made.link.tick(place.now_ns)
    assert made.link.deadline_ns() != 0


def test_what_waits_to_be_sent_is_sent_again_over_another_link(place: Place) -> None:
    """A link that ends takes along what was gathered for it; the core sends it again."""
    made = linked(place)
    place.until(lambda: made.link.session != 0)
    for operation in puts(5):
        made.ask(place, operation)
    assert made.link.link is not None
    made.transport.drop(made.link.link, "the test says so")
    place.until(lambda: len(made.outcomes) == 5)
    assert all(isinstance(outcome, TxnDone) for outcome in made.outcomes)


def test_a_member_that_gathers_nothing_is_asked_one_by_one(place: Place) -> None:
    """P10.8: a build before knows no message of several, so nobody sends it one; nor has it said that it does."""
    member = LocalTransport(Identity("metadata", "m1", b"m" * 16, TOKEN))
    place.transports.append(member)
    made = linked(place, member.listen("local://*"))
    asked: list[MetadataRequest] = []

    def serve() -> None:
        for event in member.receive(place.now_ns):
            if isinstance(event, Received):
                control = decode_message(event.body).control
                assert isinstance(control, MetadataRequest)
                result: Result = TxnDone(True, 1)
                if isinstance(control.operation, OpenSession):
                    result = SessionOpened(7, SESSION_MS, TOKEN, b"s" * 16)
                asked.append(control)
                reply = MetadataReply(control.session, control.sequence, result)
                member.send(event.link, encode_message(control.sequence, reply))

    def is_there() -> bool:
        serve()
        return made.link.session == 7

    place.until(is_there)
    for operation in puts(4):
        made.ask(place, operation)
    place.until(lambda: serve() or len(made.outcomes) == 4)  # type: ignore[func-returns-value]
    assert [request.sequence for request in asked if isinstance(request.operation, Txn)] == [1, 2, 3, 4]


def test_a_client_that_does_not_say_so_is_answered_one_by_one(place: Place) -> None:
    """P10.8: likewise of a client of a build before. Whoever says so in a renewal only is heard, too."""
    peer = place.peer("metadata")
    opened = peer.ask(MetadataRequest(0, 1, 1, OpenSession(SESSION_MS, "older", 1, LEVEL)))
    assert isinstance(opened, MetadataReply)
    assert isinstance(opened.result, SessionOpened)
    session, secret = opened.result.session, opened.result.secret
    for sequence, operation in enumerate(puts(3), 1):
        peer.send(MetadataRequest(session, sequence, 1, operation, secret))
    place.turns(5)
    peer.look()
    assert [type(message.control) for message in peer.messages] == [MetadataReply] * 3
    peer.messages.clear()
    peer.send(MetadataRequest(session, 4, 1, KeepAlive(LEVEL, gathers=True), secret))
    place.turns(5)
    peer.look()
    assert [type(message.control) for message in peer.messages] == [MetadataReplies]


def test_no_event_overtakes_an_answer(place: Place) -> None:
    """I82: what a watch is sent behind an answer comes behind it, whoever gathers answers."""
    peer = place.peer("metadata")
    opening = MetadataRequest(0, 1, 1, OpenSession(SESSION_MS, "watcher", 1, LEVEL, gathers=True))
    peer.send(opening)
    place.turns(5)
    peer.look()
    [opened] = [message.control for message in peer.messages]
    assert isinstance(opened, MetadataReplies)
    [reply] = opened.replies
    assert isinstance(reply.result, SessionOpened)
    session, secret = reply.result.session, reply.result.secret
    peer.messages.clear()
    requests = [
        MetadataRequest(session, 1, 1, Get("/before"), secret),
        MetadataRequest(session, 2, 1, Watch(1, "/", 0), secret),
        MetadataRequest(session, 3, 1, Get("/behind"), secret),
    ]
    peer.send(MetadataRequests(requests))
    place.turns(5)
    peer.look()
    told: list[object] = []
    for message in peer.messages:
        control = message.control
        told += (
            [each.sequence for each in control.replies]
            if isinstance(control, MetadataReplies)
            else ["events"]
        )
    assert told == [1, "events", 2, 3]


def test_a_watch_that_is_refused_tells_who_asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """WATCHES_MAX: nobody was told, and whoever waited for the first sight of a key waited for nothing."""
    monkeypatch.setattr("embedbk.metadata.watching.WATCHES_MAX", 1)
    made = linked(place)
    told: list[str] = []
    made.link.watch(place.now_ns, "/a", lambda *_: None, told.append)
    made.link.watch(place.now_ns, "/b", lambda *_: None, told.append)
    assert told == [
        "1 keys and prefixes are followed, allowed are 1: end some, or use another client",
    ]
    place.until(lambda: made.link.session != 0)
    assert len(told) == 1


def test_what_is_full_stands_in_the_message_of_who_waits(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """METADATA.md, 3: nobody reads "did not answer" where the answer was that there is no room."""
    monkeypatch.setattr("embedbk.metadata.openings.SESSIONS_PER_LINK_MAX", 0)
    made = linked(place)
    place.until(lambda: made.link.trouble != "")
    assert "0 sessions that were opened over this link live, allowed are 0: close some" in made.link.why_late
    monkeypatch.undo()
    place.until(lambda: made.link.session != 0)
    assert made.link.why_late == ""
    monkeypatch.setattr("embedbk.metadata.intake.REQUESTS_WAITING_MAX", 0)
    made.ask(place, Get("/x"))
    place.until(lambda: made.link.why_late != "")
    assert (
        "0 requests wait for the metadata member, 0 of them on this link; allowed are 0" in made.link.why_late
    )
    assert made.outcomes == []
    monkeypatch.undo()
    place.until(lambda: len(made.outcomes) == 1)
    assert made.link.why_late == ""


def test_keep_alives_are_answered_before_what_waits_to_be_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """METADATA.md, 5: however long the crowd that came before it, a session is renewed in the turn that reads it."""
    monkeypatch.setattr("embedbk.host.metadata_node.REQUESTS_PER_STEP", 1)
    crowd, peer = place.peer("metadata"), place.peer("metadata")
    opened = peer.ask(MetadataRequest(0, 1, 1, OpenSession(10_000, "x", 0, LEVEL)))
    assert isinstance(opened, MetadataReply)
    assert isinstance(opened.result, SessionOpened)
    for sequence in range(2, 22):
        crowd.send(MetadataRequest(0, sequence, 1, Get("/x")))
    peer.send(MetadataRequest(opened.result.session, 9, 1, KeepAlive(), opened.result.secret))
    place.metadata.step(place.now_ns)
    peer.look()
    crowd.look()
    assert [message.control.sequence for message in peer.messages][-1] == 9  # type: ignore[union-attr]
    assert len(crowd.messages) <= 1
    assert place.metadata.deadline_ns() == 0, "and the crowd has its turns at once"
    place.turns(30)
    crowd.look()
    assert len(crowd.messages) == 20


def test_what_one_member_takes_is_not_believed_of_the_next(place: Place) -> None:
    """P10.8: the next link may lead to a member of a build before, so it is asked one by one until it says more."""
    made = linked(place)
    place.until(lambda: made.link.session != 0)
    for operation in puts(3):
        made.ask(place, operation)
    place.until(lambda: len(made.outcomes) == 3)
    assert place.metadata.gathered_taken == 1
    assert made.link.link is not None
    made.transport.drop(made.link.link, "the test says so")
    place.until(lambda: not made.link.is_up)
    for operation in puts(3):
        made.ask(place, operation)
    place.until(lambda: made.link.is_up)
    place.held.add("metadata")
    place.turns(3)
    place.held.clear()
    place.until(lambda: len(made.outcomes) == 6)
    assert place.metadata.gathered_taken == 1
