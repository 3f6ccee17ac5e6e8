"""What readers at the end of a ledger cost a bookie: polls and hints taken in C beside the core (native/SHORTCUTS.md).

`test_add_path` lives through the same stories with and without; here is what only one of both has: that it is used, the
counts of requests that both sides keep, and what happens to who waits when it is not common any more.
"""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.add_messages import AddAnswers, AddRequest, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import encode_frame_header
from embedbk.codec.lac_messages import ExplicitLacAnswer, ExplicitLacRequest, LacAnswer, LacRequest
from embedbk.codec.messages import decode_message, encode_message
from embedbk.config import LAC_WAIT_MS_MAX
from tests.host.place import KEY, Peer, add, frame
from tests.host.test_add_path import INCARNATION, Beside, Side, reseal_control

MS = 1_000_000
READER, WRITER, OTHER = range(3)


class Tail(Side):
    """A bookie with an add path, and one entry of ledger 7: 0, of four bytes."""

    def __init__(self) -> None:
        super().__init__(has_add_path=True)
        self.send(WRITER, *add(INCARNATION, frame(7, 0, [b"zero"])))
        self.settle()
        self.clear()

    def send(self, link: int, control: Any, frames: Any = ()) -> int:
        return self.peers[link].send(control, frames)

    def settle(self) -> None:
        self.place.turns(2)
        self.storage.commit()
        self.place.turns(2)

    def clear(self) -> None:
        for peer in self.peers:
            peer.look()
            peer.messages.clear()

    def told(self, link: int) -> list[Any]:
        """What a link was told since the last call: (request, control, payloads' bodies)."""
        peer: Peer = self.peers[link]
        peer.look()
        told = [(m.request_id, m.control, [bytes(body) for _, body in m.frames]) for m in peer.messages]
        peer.messages.clear()
        return told

    def poll(self, *, wait_ms: int = 1000, bytes_max: int = 1000) -> int:
        return self.send(READER, LacRequest(INCARNATION, 7, -1, wait_ms, bytes_max))

    def hint(self, lac: int = 0, *, wants_answer: bool = False) -> int:
        return self.send(
            WRITER, ExplicitLacRequest(INCARNATION, 7, KEY, lac, 4 * lac + 4, True, wants_answer)
        )

    @property
    def open_requests(self) -> list[int]:
        return sorted(self.node.clients.unanswered.values())


@pytest.fixture
def tail() -> Tail:
    return Tail()


def test_a_poll_and_the_hint_that_ends_it_never_reach_the_core(tail: Tail) -> None:
    """Rule P6.2: the reader gets the LAC and the entries that it allows; no step of the core, no lookup of it."""
    steps: list[Any] = []
    looks = tail.node.core.looks.next_id
    tail.node.steps.step = lambda event, now_ns=0: steps.append(event)  # type: ignore[method-assign]
    poll = tail.poll()
    tail.place.turns()
    assert tail.told(READER) == []
    assert tail.storage.add_path is not None
    assert tail.storage.add_path.parked.poll_count == 1
    tail.hint()
    tail.place.turns()
    ((request_id, control, bodies),) = tail.told(READER)
    assert (request_id, control) == (poll, LacAnswer(Status.OK, 7, 0, 4, False))
    assert bodies == [bytes(frame(7, 0, [b"zero"]).body)]
    assert tail.told(WRITER) == []
    assert [event for event in steps if event is not None] == []
    assert tail.node.core.looks.next_id == looks


def test_an_add_that_raises_the_lac_answers_who_waits_and_is_taken(tail: Tail) -> None:
    """Rules P6.2, P3.7: it is stored as if nobody waited, and its LAC wakes them in the same turn."""
    poll = tail.poll()
    tail.place.turns()
    assert tail.storage.add_path is not None
    taken = tail.storage.add_path.taken()
    second = frame(7, 1, [b"one."], 4)
    tail.send(
        WRITER, AddRequest(INCARNATION, 1, 1, False), [(encode_frame_header(second, KEY, 0, 4), second)]
    )
    tail.place.turns()
    assert tail.storage.add_path.taken() == taken + 1
    assert [(told[0], told[1].lac, len(told[2])) for told in tail.told(READER)] == [(poll, 0, 1)]


def test_each_ledgers_readers_are_told_its_own_lac_where_one_turn_wakes_both(tail: Tail) -> None:
    """Rules P6.2, I11: what wakes the readers of one ledger says nothing to those of another, who wait to be
    answered."""
    tail.send(WRITER, *add(INCARNATION, frame(8, 0, [b"eight", b"nine"])))
    tail.settle()
    tail.clear()
    asked = {
        ledger_id: tail.send(READER, LacRequest(INCARNATION, ledger_id, -1, 1000)) for ledger_id in (7, 8)
    }
    tail.place.turns()
    tail.hint(0)
    tail.send(WRITER, ExplicitLacRequest(INCARNATION, 8, KEY, 1, 9, True, False))
    tail.place.turns()
    told = {request_id: control for request_id, control, _ in tail.told(READER)}
    assert told == {
        asked[7]: LacAnswer(Status.OK, 7, 0, 4, False),
        asked[8]: LacAnswer(Status.OK, 8, 1, 9, False),
    }


@pytest.mark.parametrize("adds", [1, 2])
def test_the_answer_to_an_add_says_whether_a_reader_waits(tail: Tail, adds: int) -> None:
    """Rule P6.2: alone or beside others; some time after the reader went, no more."""
    path = tail.storage.add_path
    assert path is not None
    for is_followed in (True, False):
        if is_followed:
            tail.poll(wait_ms=1)
        else:
            tail.place.now_ns += 2000 * MS  # Its time is over, too.
        tail.place.turns()
        for _ in range(adds):
            first = tail.storage.table.get(7).last_entry + 1  # type: ignore[union-attr]
            body = b"".join(
                bytes(piece) for piece in encode_message(first, *add(INCARNATION, frame(7, first, [b"more"])))
            )
            assert path.take(9, body)
        tail.storage.commit()
        ((link, count, body),) = path.answers(tail.storage.durable(), tail.place.now_ns)
        assert (link, count) == (9, adds)
        control = decode_message(body).control
        answers = [answer for _, answer in control.unpack()] if isinstance(control, AddAnswers) else [control]
        assert [answer.is_followed for answer in answers] == [is_followed] * adds  # type: ignore[attr-defined]


def test_readers_are_answered_before_who_gave_the_hint(tail: Tail) -> None:
    """Rule P6.2: and the answer tells whether a reader waited, or was here lately."""
    tail.send(
        WRITER, LacRequest(INCARNATION, 7, 0, 1000)
    )  # On the hint's own link, so that its order is seen.
    tail.place.turns()
    hint = tail.hint(1, wants_answer=True)
    tail.place.turns()
    answers = [told[1] for told in tail.told(WRITER)]
    assert [type(answer) for answer in answers] == [LacAnswer, ExplicitLacAnswer]
    assert answers[1] == ExplicitLacAnswer(Status.OK, 7, True)
    assert hint > 0


@pytest.mark.parametrize("who_parks", ["core", "C"])
@pytest.mark.parametrize("ended_by", ["hint", "fence", "time", "add by recovery", "link"])
def test_requests_stay_counted_whoever_parks_and_whoever_answers(
    tail: Tail, who_parks: str, ended_by: str
) -> None:
    """Rule P6.2, REQUESTS_PER_LINK_MAX: a poll that is answered is not counted any more, whoever answers it."""
    if who_parks == "core":
        tail.node.on_step = lambda core, event, effects: None  # Who is watched takes no polls in C.
    tail.poll()
    tail.place.turns()
    tail.node.on_step = None
    assert tail.open_requests == [0, 0, 0, who_parks == "core"]
    if ended_by == "hint":
        tail.hint()
    elif ended_by == "fence":
        tail.send(OTHER, FenceRequest(INCARNATION, 7, KEY))
    elif ended_by == "time":
        tail.place.now_ns += 1001 * MS
    elif ended_by == "link":
        peer = tail.peers[READER]
        peer.transport.drop(peer.link, "away")
    else:
        second = frame(7, 1, [b"one."], 4)
        header = encode_frame_header(second, KEY, 0, 4)
        tail.send(OTHER, AddRequest(INCARNATION, 1, 1, True), [(header, second)])
        tail.settle()
        assert tail.told(READER) == [], "what recovery brings has no LAC"
        tail.hint()
    tail.settle()
    assert len(tail.told(READER)) == (ended_by != "link")
    assert set(tail.open_requests) == {0}
    assert tail.node.core.parked.poll_count == 0


def test_a_link_without_room_is_told_the_lac_alone(tail: Tail) -> None:
    """RP34: entries for a reader that is slow are not even looked up; it reads them when it can."""
    transport: Any = tail.node.transport
    has_room, transport.has_room = transport.has_room, lambda link, size: False
    tail.poll()
    tail.place.turns()
    tail.hint()
    tail.place.turns()
    transport.has_room = has_room
    assert [told[1:] for told in tail.told(READER)] == [(LacAnswer(Status.OK, 7, 0, 4, False), [])]


def test_entries_that_left_the_write_cache_come_along_too(tail: Tail) -> None:
    """Rules P6.2, I9: as the core finds them, wherever they are, and nothing above the LAC."""
    tail.hint()
    for number in range(1, 40):  # Beyond flush_bytes, several times.
        body = frame(7, number, [b"x" * 4000], 4 + 4000 * (number - 1))
        header = encode_frame_header(body, KEY, 0, 4)
        tail.send(WRITER, AddRequest(INCARNATION, 1, 1, False), [(header, body)])
        tail.settle()
    tail.clear()
    poll = tail.poll(bytes_max=20_000)
    tail.settle()
    ((request_id, control, bodies),) = tail.told(READER)
    assert (request_id, control.lac) == (poll, 0)
    assert bodies == [bytes(frame(7, 0, [b"zero"]).body)]


def test_a_fenced_ledger_keeps_no_reader_waiting(tail: Tail) -> None:
    """Rule P6.2, L12: what comes next is the metadata's to say; the core tells it at once."""
    tail.send(OTHER, FenceRequest(INCARNATION, 7, KEY))
    tail.settle()
    poll = tail.poll()
    tail.settle()
    assert [told[:2] for told in tail.told(READER)] == [(poll, LacAnswer(Status.OK, 7, -1, 0, True))]


def test_no_bit_of_a_poll_or_hint_is_overlooked() -> None:
    """Rules P3.5, P6.2: what is taken in C is what the core takes, with the same outcome; else nothing changes."""
    for request in (
        LacRequest(INCARNATION, 7, 3, 1000, 70_000),
        ExplicitLacRequest(INCARNATION, 7, KEY, 300, 2**40, True, True),
        ExplicitLacRequest(INCARNATION, 7, KEY, 5, 20, True, False),
    ):
        whole = b"".join(bytes(piece) for piece in encode_message(2**40 + 5, request))
        beside = Beside()
        beside.open_for_readers()
        assert beside.judge_reader(whole)
        taken = 0
        for at in range(len(whole)):
            for bit in range(8):
                body = bytearray(whole)
                body[at] ^= 1 << bit
                assert not beside.judge_reader(bytes(body))
                reseal_control(body)
                taken += beside.judge_reader(bytes(body))
        for size in range(len(whole)):
            assert not beside.judge_reader(whole[:size])
        assert not beside.judge_reader(whole + b"\0")
        assert taken > 60  # Request id, LAC, length and times may be other ones.


def test_a_poll_waits_no_longer_than_the_longest(tail: Tail) -> None:
    """Rule P6.2: the bound is the bookie's, whatever was asked."""
    tail.poll(wait_ms=2**31)
    tail.place.turns()
    deadline = tail.node.core.deadline_ns
    assert deadline is not None
    assert deadline - tail.place.now_ns <= LAC_WAIT_MS_MAX * MS
