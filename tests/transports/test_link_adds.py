"""Adds that a waiting client seals and sends in C: the bytes, what counts, and what the core gets back.

native/SHORTCUTS.md, "Adds in C".

Sockets and bookies' ends are real, the bookies' answers are this file's; nothing depends on how fast anything is.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embedbk._native import lib
from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.answers import Answers
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import Frame, encode_frame_header
from embedbk.codec.messages import Message, decode_message, encode_add_answers, encode_control, encode_message
from embedbk.codec.packer import Packer
from embedbk.core.backlog import FRAME_PRICE
from embedbk.core.writer import LARGE_FRAME_BYTES
from embedbk.core.writer_options import WriterOptions
from embedbk.ports.adds import AddSeat, AddTerms, OwedFrame
from embedbk.ports.links import Received
from embedbk.transports.conformance import PATIENCE_NS
from embedbk.transports.in_flight import FramesInC, SharedBacklog
from tests.transports.arenas import QuietTcpArena
from tests.transports.test_listening import NOW, clock_ns

LEDGER, KEY, NONCE, FIRST_SEATING = 7, b"k" * 16, 99, 5
SEATS = ("b1", "b2", "b3")
SLOTS = (0, 4, 2)  # Where the table counts what they answer; the second took its seat over.
LONG = 20_000  # Bytes of a payload that goes by reference.


class Client:
    """A client's transport that counts, linked to three bookies, with one handle whose entry 0 is acknowledged."""

    def __init__(
        self,
        arena: QuietTcpArena,
        ack_quorum: int = 2,
        bytes_max: int = 16 << 20,
        behind_max: int = 32 << 20,
        backlog: Any = None,
    ) -> None:
        self.arena = arena
        self.node = arena.node("client")
        self.transport: Any = self.node.transport
        self.answers = Answers()
        self.transport.count(self.answers)
        self.bookies = [arena.node(name) for name in SEATS]
        self.links = [
            self.transport.connect(bookie.transport.listen(arena.endpoint())) for bookie in self.bookies
        ]
        arena.run(
            [self.node, *self.bookies],
            lambda: len(self.node.ups()) == 3 and all(bookie.ups() for bookie in self.bookies),
        )
        self.filenos = tuple(self.transport.filenos())
        self.taken = [0, 0, 0]  # Of the bookies' bodies, how many were looked at.
        self.receive()
        self.packer = Packer(LEDGER, next_entry=1, length=4)
        self.table = FramesInC(backlog)
        terms = AddTerms(self.packer, self.table, LEDGER, KEY, NONCE, ack_quorum, 0, 4, bytes_max, behind_max)
        seats = [
            AddSeat(link, FIRST_SEATING + seat, encode_control(self.control(seat)), SLOTS[seat])
            for seat, link in enumerate(self.links)
        ]
        self.adds: Any = self.transport.adds().open_adds(terms, seats)

    @staticmethod
    def control(seat: int) -> AddRequest:
        return AddRequest(SEATS[seat].encode() * 8, NONCE, FIRST_SEATING + seat, recovery=False)

    def receive(self) -> list[Any]:
        events = self.transport.receive(self.arena.now_ns())
        self.transport.deadline_ns()
        return list(events)

    def append(self, *sizes: int) -> int:
        """How often who sends was woken."""
        woken = 0
        for size in sizes:
            _, should_wake = self.packer.append(bytes(size))
            if should_wake:
                self.transport.adds().wake_adds()
            woken += should_wake
        return woken

    def wait(self, until_ns: int = NOW) -> None:
        assert self.transport.listen_for(self.filenos, until_ns, PATIENCE_NS) is not None

    def until(self, is_reached: Callable[[], bool]) -> None:
        give_up_ns = self.arena.now_ns() + PATIENCE_NS
        while not is_reached():
            self.wait()
            assert self.arena.now_ns() < give_up_ns, "never came"

    def bodies(self, seat: int, count: int) -> list[bytes]:
        """The next bodies that a bookie gets."""
        bookie = self.bookies[seat]
        link = bookie.ups()[0].link
        begin = self.taken[seat]
        self.taken[seat] += count
        self.arena.run([bookie], lambda: len(bookie.bodies(link)) >= begin + count)
        return bookie.bodies(link)[begin:]

    def requests(self, seat: int, count: int = 1) -> list[Message]:
        return [decode_message(body) for body in self.bodies(seat, count)]

    def answer(self, seat: int, *requests: Message, **changes: Any) -> None:
        said = []
        for request in requests:
            asked, header = request.control, request.frames[0][0]
            assert isinstance(asked, AddRequest)
            usual = {
                "status": Status.OK, "nonce": asked.nonce, "seating": asked.seating, "recovery": False,
                "ledger_id": LEDGER, "first_entry": header.first_entry, "last_entry": header.last_entry,
            }  # fmt: skip
            said.append((request.request_id, AddAnswer(**{**usual, **changes})))  # type: ignore[arg-type]
        bookie = self.bookies[seat]
        assert bookie.transport.send(bookie.ups()[0].link, encode_add_answers(said))

    def heard(self) -> list[Any]:
        """What is the host's of what came."""
        return [event for event in self.receive() if isinstance(event, Received)]

    @property
    def lac(self) -> int:
        return int(self.adds.lac()[0])

    def end(self) -> list[OwedFrame]:
        return list(self.adds.end())


@pytest.fixture
def client() -> Iterator[Client]:
    arena = QuietTcpArena()
    made = Client(arena)
    yield made
    made.adds.close()
    arena.close()


def test_bookies_get_the_bytes_that_a_core_would_send(client: Client) -> None:
    """P3.1, P3.7 and WIRE.md 2, 3: envelope, header, control part and frame are those of the plain Python form, also of
    a frame that goes by reference, and each carries the newest LAC."""
    lac, length = 0, 4
    for number, sizes in enumerate([(100,), (3, 0, 7), (LONG, 5)]):
        first = client.packer.next_entry
        client.append(*sizes)
        client.wait()
        bodies = [client.bodies(seat, 1)[0] for seat in range(3)]
        frame_body = bytes(decode_message(bodies[0]).frames[0][1])
        last, total = first + len(sizes) - 1, client.packer.length
        frame = Frame(LEDGER, first, last, len(sizes), total, memoryview(frame_body))
        for seat, body in enumerate(bodies):
            header = encode_frame_header(frame, KEY, lac, length)
            request_id = decode_message(body).request_id
            assert request_id == 1 + 3 * number + seat
            assert body == b"".join(encode_message(request_id, client.control(seat), [(header, frame)]))
            client.answer(seat, decode_message(body))
        client.until(lambda last=last: client.lac == last)  # type: ignore[misc]
        lac, length = last, total
    assert client.heard() == []


def test_an_ack_quorum_acknowledges_and_in_order(client: Client) -> None:
    """Rules P3.2, P3.3: one answer is not enough, and the second frame waits for the first."""
    client.append(10)
    client.wait()
    client.append(20)
    client.wait()
    asked = [client.requests(seat, 2) for seat in range(3)]
    for seat in (0, 1):
        client.answer(seat, asked[seat][1])
    client.answer(2, asked[2][0])
    client.until(lambda: client.answers.counted == 3)
    assert client.lac == 0
    client.answer(1, asked[1][0])
    client.until(lambda: client.lac == 2)
    facts = client.adds.tell(clock_ns())
    assert (facts.lac, facts.lac_length, facts.pending, facts.is_ending) == (2, 34, 0, False)
    assert facts.oldest_sent_ns is not None, "seats have not answered"
    assert client.packer.unreleased_bytes > 0
    client.answer(0, asked[0][0])
    client.answer(2, asked[2][1])
    client.until(lambda: client.answers.counted == 6)
    assert client.adds.tell(clock_ns()).oldest_sent_ns is None
    assert client.packer.unreleased_bytes == 0


def test_who_says_behind_the_quorum_that_a_reader_waits_ends_the_wait(client: Client) -> None:
    """Rule P6.2: the hint to the reader is the core's, which hears of it before any other news."""
    client.append(10)
    client.wait()
    asked = [client.requests(seat)[0] for seat in range(3)]
    client.answer(0, asked[0], is_followed=True)
    client.answer(1, asked[1])
    client.until(lambda: client.lac == 1)
    assert client.adds.tell(clock_ns()).followed == 0b001
    client.answer(2, asked[2], is_followed=True)
    until_ns = clock_ns() + PATIENCE_NS
    client.wait(until_ns)
    assert clock_ns() < until_ns
    facts = client.adds.tell(clock_ns())
    assert (facts.lac, facts.followed) == (1, 0b100)
    assert client.adds.tell(clock_ns()).followed == 0, "told once"


@pytest.mark.parametrize(
    "change",
    [
        {"status": Status.BUSY}, {"status": Status.FENCED}, {"nonce": NONCE + 1}, {"seating": FIRST_SEATING + 1},
        {"recovery": True}, {"ledger_id": LEDGER + 1}, {"first_entry": 0}, {"last_entry": 9},
    ],
    ids=str,
)  # fmt: skip
def test_only_what_was_asked_counts(client: Client, change: dict[str, Any]) -> None:
    """Rules P3.7, P3.8: anything but OK to exactly this is the host's, and nothing is acknowledged by it."""
    client.append(10)
    client.wait()
    asked = [client.requests(seat)[0] for seat in range(3)]
    client.answer(0, asked[0], **change)
    client.until(lambda: bool(client.heard()))
    client.answer(2, asked[2])
    client.until(lambda: client.answers.counted == 1)
    assert client.lac == 0
    client.answer(1, asked[1])
    client.until(lambda: client.lac == 1)


def test_the_core_gets_what_is_on_its_way_and_who_answered(client: Client) -> None:
    """P3.3, RP33: an acknowledged frame that a seat owes, one that waits; what all have answered is over. From then on
    answers are the host's."""
    client.append(10)
    client.wait()
    client.append(20)
    client.wait()
    asked = [client.requests(seat, 2) for seat in range(3)]
    for seat in (0, 1, 2):
        client.answer(seat, asked[seat][0])
    client.until(lambda: client.answers.counted == 3)
    client.append(30)
    client.wait()
    for seat in range(3):
        asked[seat] += client.requests(seat)
    client.answer(0, asked[0][1], asked[0][2])
    client.answer(1, asked[1][1])
    client.until(lambda: client.answers.counted == 6)
    assert client.lac == 2
    before = clock_ns()
    owed, waiting = client.end()
    assert (owed.first_entry, owed.asked, owed.unsent) == (2, 0b100, 0)
    assert (waiting.first_entry, waiting.asked, waiting.unsent) == (3, 0b110, 0)
    assert list(client.table.behind) == [2] and list(client.table.pending) == [3]
    assert client.table.pending[3].acked == 1 << SLOTS[0]
    assert list(client.table.owed(SLOTS[1])) == [3]
    for frame, number in ((owed, 1), (waiting, 2)):
        sent = asked[0][number]
        found = client.table.find(frame.first_entry)
        assert found is not None
        assert bytes(found.body) == bytes(sent.frames[0][1])
        assert [frame.first_request + seat for seat in range(3)] == [
            asked[seat][number].request_id for seat in range(3)
        ]
        assert 0 < client.table.owed(SLOTS[2])[frame.first_entry] <= before
    facts = client.adds.tell(clock_ns())
    assert 0 < facts.answered_ns[2] < facts.answered_ns[1] < facts.answered_ns[0] <= before
    client.answer(2, asked[2][1])
    client.until(lambda: bool(client.heard()))
    assert client.lac == 2
    client.append(40)
    client.wait()
    client.adds.close()
    assert client.packer.open_count(), "sealed behind the end"


def test_a_link_that_went_ends_it_before_anything_is_sealed(client: Client) -> None:
    """P4.1: a seat that cannot be asked is the core's, and so is all that was not sealed."""
    client.bookies[1].transport.close()
    client.arena.run([client.node], lambda: bool(client.node.downs()))
    client.append(10)
    client.wait()
    facts = client.adds.tell(clock_ns())
    assert facts.is_ending
    assert facts.pending == 0
    assert client.packer.open_count()


def test_partial_frames_wait_for_answers_and_full_ones_for_room(client: Client) -> None:
    """As `Writer.wants_frame`: two partial frames are out at most; full ones go as far as `bytes_max` allows."""
    for _ in range(4):
        client.append(10)
        client.wait()
    first = [client.requests(seat, 2) for seat in range(3)]
    assert client.adds.tell(clock_ns()).pending == 2
    for seat in (0, 1):
        client.answer(seat, first[seat][0])
    client.until(lambda: client.lac == 1)
    client.until(lambda: client.adds.tell(clock_ns()).pending == 2)
    third = client.requests(0)[0].frames[0][0]
    assert (third.first_entry, third.last_entry) == (3, 4), "what came meanwhile goes as one"


def test_a_partial_frame_waits_until_it_is_as_large_as_the_one_on_its_way(client: Client) -> None:
    """As `Writer.wants_frame`: one more entry than before is no reason to send, or to wake who sends; as many are."""
    client.append(10, 10, 10)
    client.wait()
    assert client.append(10, 10) == 0
    client.wait()
    assert client.adds.tell(clock_ns()).pending == 1
    assert client.append(10) == 1
    client.wait()
    assert client.adds.tell(clock_ns()).pending == 2
    frames = [request.frames[0][0] for request in client.requests(0, 2)]
    assert [(frame.first_entry, frame.last_entry) for frame in frames] == [(1, 3), (4, 6)]
    assert client.append(10, 10, 10, 10) == 0, "two are out"


def test_the_last_frame_of_a_handle_that_takes_no_more_waits_for_nothing(client: Client) -> None:
    """P8.2 (ii): it does not grow, so it goes like a full one, however much is out."""
    for _ in range(2):
        client.append(10, 10, 10)
        client.wait()
    client.append(10)
    client.wait()
    assert client.adds.tell(clock_ns()).pending == 2
    client.packer.stop()
    client.wait()
    assert client.adds.tell(clock_ns()).pending == 3
    client.wait()
    assert client.adds.tell(clock_ns()).pending == 3
    frames = [request.frames[0][0] for request in client.requests(0, 3)]
    assert [(frame.first_entry, frame.last_entry) for frame in frames] == [(1, 3), (4, 6), (7, 7)]


def test_a_partial_frame_does_not_wait_for_a_large_one(client: Client) -> None:
    """As `Writer.wants_frame`: beside a large frame another costs little."""
    assert lib.EBK_LARGE_FRAME_BYTES == LARGE_FRAME_BYTES
    client.append(*[LONG] * 4)
    client.wait()
    assert client.append(10) == 1
    client.wait()
    assert client.adds.tell(clock_ns()).pending == 2


def test_core_and_c_have_the_same_numbers() -> None:
    """P3.3, P4.5: a writer is held to one set of bounds, whichever of the two seals its frames."""
    ring = (Path(__file__).parents[2] / "native" / "road" / "link_adds.c").read_text()
    (out_max,) = re.findall(r"^#define OUT_MAX (\d+)$", ring, re.MULTILINE)
    assert int(out_max) == WriterOptions().inflight_frames_max
    assert lib.EBK_LARGE_FRAME_BYTES == LARGE_FRAME_BYTES
    assert lib.EBK_FLIGHT_FRAME_PRICE == FRAME_PRICE


def test_who_appends_behind_the_end_wakes_the_host_again(client: Client) -> None:
    """While frames are out appends are silent; the core that goes on with them wants to hear of the first."""
    client.append(10, 10, 10)
    client.wait()
    assert client.append(10) == 0
    client.end()
    assert client.packer.seal() is not None
    assert client.append(10) == 1


def test_a_sleeper_is_woken_by_the_acknowledgement_and_by_the_end(client: Client) -> None:
    """A blocked append needs no turn of the host: who waits alone is told of late, at once of the end."""
    heard: list[bool] = []

    def sleep(entry_id: int) -> threading.Thread:
        thread = threading.Thread(target=lambda: heard.append(client.adds.wait(entry_id, is_alone=True)))
        thread.start()
        return thread

    client.append(10)
    thread = sleep(1)
    client.wait()
    for seat in (0, 1):
        client.answer(seat, client.requests(seat)[0])
    give_up_ns = client.arena.now_ns() + PATIENCE_NS
    while thread.is_alive() and client.arena.now_ns() < give_up_ns:
        client.wait(clock_ns() + 1_000_000)
    thread.join()
    assert heard == [True]
    thread = sleep(2)
    client.adds.close()
    thread.join()
    assert heard == [True, False]


def test_a_wake_up_ends_a_long_wait_only_by_what_it_leads_to(client: Client) -> None:
    """An append from another thread is sent, and its acknowledgement is told, within one wait without a turn."""

    def append_and_answer() -> None:
        client.append(10)
        for seat in (0, 1):
            client.answer(seat, client.requests(seat)[0])

    thread = threading.Thread(target=append_and_answer)
    thread.start()
    until_ns = clock_ns() + PATIENCE_NS
    client.wait(until_ns)
    assert clock_ns() < until_ns, "nothing ended it"
    assert client.adds.tell(clock_ns()).lac == 1
    thread.join()


# --- A seat that is behind -------------------------------------------------------------------------------


def without_the_third(client: Client, count: int, size: int = 10) -> list[int]:
    """So many frames, each acknowledged by b1 and b2; their last entries."""
    last: list[int] = []
    for _ in range(count):
        client.append(size)
        client.wait()
        asked = [client.requests(seat)[0] for seat in (0, 1)]
        last.append(asked[0].frames[0][0].last_entry)
        for seat in (0, 1):
            client.answer(seat, asked[seat])
        client.until(lambda: client.lac == last[-1])
    return last


def test_a_late_answer_counts_for_its_own_frame_however_many_went_since(client: Client) -> None:
    """P3.2, P3.8, RP33: b3 owes more frames than the table has places at first; then one bookie of three has the
    newest, and b3 answers all that came before it. Nothing is acknowledged by that, and the newest alone is left."""
    count = lib.EBK_FLIGHT_FRAMES_MIN + 3
    without_the_third(client, count)
    client.append(10)
    client.wait()
    client.answer(0, client.requests(0)[0])
    client.until(lambda: client.answers.counted == 2 * count + 1)
    *owed, newest = client.requests(2, count + 1)
    for number, request in enumerate(owed):
        client.answer(2, request)
        client.until(lambda number=number: client.answers.counted == 2 * count + 2 + number)  # type: ignore[misc]
        facts = client.adds.tell(clock_ns())
        assert (facts.lac, facts.pending) == (count, 1)
    assert client.packer.unreleased_bytes < 100
    client.answer(2, newest)
    client.until(lambda: client.lac == count + 1)


def test_below_the_bound_nothing_waits_for_the_third_and_at_it_everything_does() -> None:
    """P4.5, RP33: the bound counts bodies and a price for each frame, not frames; who waits is told at once since when
    the seat says nothing; its answers make room again."""
    arena = QuietTcpArena()
    client = Client(arena, behind_max=5 * (lib.EBK_FLIGHT_FRAME_PRICE + 1000))
    last = without_the_third(client, 5, 1000)
    client.append(1000)
    until_ns = clock_ns() + PATIENCE_NS
    client.wait(until_ns)
    assert clock_ns() < until_ns, "the host is told"
    facts = client.adds.tell(clock_ns())
    assert facts.is_pressed and not facts.is_ending and facts.pending == 0
    assert facts.silent_ns[:2] == (0, 0) and 0 < facts.silent_ns[2] <= clock_ns()
    assert client.packer.open_count() == 1
    sent_ns = facts.silent_ns[2]
    client.answer(2, *client.requests(2))
    client.until(lambda: client.adds.tell(clock_ns()).pending == 1)
    assert client.packer.open_count() == 0 and client.lac == last[-1]
    assert client.adds.tell(clock_ns()).heard_ns[2] > sent_ns
    client.adds.close()
    arena.close()


def test_who_answers_slowly_at_the_bound_is_not_silent() -> None:
    """P4.5, P4.7: silence counts from the last answer, not from the sending of the oldest frame that it owes."""
    arena = QuietTcpArena()
    client = Client(arena, behind_max=5 * (lib.EBK_FLIGHT_FRAME_PRICE + 1000))
    without_the_third(client, 5, 1000)
    sent_ns = client.adds.tell(clock_ns()).silent_ns[2]
    client.answer(2, client.requests(2)[0])
    client.until(lambda: client.adds.tell(clock_ns()).heard_ns[2] > 0)
    client.append(1000)
    client.until(lambda: client.packer.open_count() == 0)
    for seat in (0, 1):
        client.answer(seat, *client.requests(seat))
    client.until(lambda: client.lac == 6)
    facts = client.adds.tell(clock_ns())
    assert facts.is_pressed
    assert facts.silent_ns[2] == facts.heard_ns[2] > sent_ns
    client.adds.close()
    arena.close()


def test_the_bound_of_the_process_holds_whoever_keeps_something() -> None:
    """RP34: counted in C and by cores alike; what is answered, or let go of, is not kept any more."""
    arena = QuietTcpArena()
    backlog = SharedBacklog(2 * (lib.EBK_FLIGHT_FRAME_PRICE + 1000))
    client = Client(arena, backlog=backlog)
    without_the_third(client, 1, 1000)
    assert lib.EBK_FLIGHT_FRAME_PRICE == FRAME_PRICE
    assert backlog.kept_bytes == client.packer.unreleased_bytes + FRAME_PRICE and not backlog.is_full
    assert not client.adds.tell(clock_ns()).is_pressed
    backlog.add(FRAME_PRICE + 1000)
    until_ns = clock_ns() + PATIENCE_NS
    client.wait(until_ns)
    assert clock_ns() < until_ns, "the host is told, though nothing of these adds has moved"
    assert client.adds.tell(clock_ns()).is_pressed
    client.append(10)
    client.wait()
    assert client.packer.open_count() == 1
    client.answer(2, *client.requests(2))
    client.until(lambda: client.packer.open_count() == 0)
    assert not client.adds.tell(clock_ns()).is_pressed and backlog.kept_bytes == FRAME_PRICE + 1000
    for seat in (0, 1):
        client.answer(seat, *client.requests(seat))
    client.until(lambda: client.lac == 2)
    assert backlog.kept_bytes > FRAME_PRICE + 1000
    client.adds.close()
    assert backlog.kept_bytes > FRAME_PRICE + 1000, "it is the core's"
    client.table.let_go()
    assert backlog.kept_bytes == FRAME_PRICE + 1000
    arena.close()


def test_what_others_keep_stops_nobody_who_keeps_nothing() -> None:
    """RP33, RP34, P4.5: the bound of the process is of those whose bookies are behind; a writer whose bookies have all
    answered goes on beside them."""
    arena = QuietTcpArena()
    backlog = SharedBacklog(1000)
    backlog.add(2 * backlog.bytes_max)
    client = Client(arena, backlog=backlog)
    for entry_id in (1, 2):
        client.append(10)
        client.until(lambda: client.packer.open_count() == 0)
        assert not client.adds.tell(clock_ns()).is_pressed
        for seat in range(3):
            client.answer(seat, client.requests(seat)[0])
        client.until(lambda: client.adds.tell(clock_ns()).oldest_sent_ns is None)
        assert client.lac == entry_id
    client.adds.close()
    arena.close()


def test_nothing_is_kept_for_a_seat_that_has_failed(client: Client) -> None:
    """P4.5: the core is given what others owe as well, and what is not acknowledged."""
    without_the_third(client, 3)
    client.append(10)
    client.wait()
    client.adds.fail(2)
    facts = client.adds.tell(clock_ns())
    assert facts.is_ending
    (waiting,) = client.end()
    assert (waiting.first_entry, waiting.asked, waiting.unsent) == (4, 0b011, 0)
    assert not client.table.behind and list(client.table.pending) == [4]


class Narrow(Client):
    """b3's link has no room, as where its window is full."""

    room = 0

    def wait(self, until_ns: int = NOW) -> None:
        turns = self.transport._dialled
        show_room = turns._show_room

        def show(sender: Any) -> None:
            show_room(sender)
            link = self.transport._ends.links[self.links[2]]
            sender.show(link.number, link.port.socket.underlying, link.data_prefix, self.room)

        turns._show_room = show
        super().wait(until_ns)
        turns._show_room = show_room


@pytest.fixture
def narrow() -> Iterator[Narrow]:
    arena = QuietTcpArena()
    made = Narrow(arena)
    yield made
    made.adds.close()
    arena.close()


def test_where_one_link_is_full_the_others_go_on_and_it_gets_the_same_bytes_later(narrow: Narrow) -> None:
    """P3.2, RP33: acknowledged by two; the third is sent it in order when there is room, with the LAC of then, since a
    frame tells only of what is below it."""
    others = []
    for size in (10, LONG, 10):
        narrow.append(size)
        narrow.wait()
        asked = [narrow.bodies(seat, 1)[0] for seat in (0, 1)]
        others.append(asked[0])
        for seat in (0, 1):
            narrow.answer(seat, decode_message(asked[seat]))
        narrow.until(lambda: narrow.lac == len(others))
    assert not narrow.bookies[2].bodies(narrow.bookies[2].ups()[0].link)
    narrow.room = 1 << 30
    narrow.wait()
    for theirs, body in zip(others, narrow.bodies(2, 3), strict=True):
        request, of_first = decode_message(body), decode_message(theirs)
        assert request.request_id == of_first.request_id + 2
        assert request.frames[0][0] == of_first.frames[0][0]
        assert bytes(request.frames[0][1]) == bytes(of_first.frames[0][1])
        narrow.answer(2, request)
    narrow.until(lambda: narrow.packer.unreleased_bytes == 0)


def test_what_a_full_link_did_not_take_is_told_as_unsent(narrow: Narrow) -> None:
    """P3.2, RP33: no answer to it will come, so the core has to send it; what went before is only owed."""
    narrow.room = 1 << 30
    narrow.append(10)
    narrow.wait()
    narrow.room = 0
    narrow.append(10)
    narrow.wait()
    first, second = narrow.end()
    assert (first.unsent, second.unsent) == (0, 0b100)


def test_an_ack_quorum_of_links_needs_room(narrow: Narrow) -> None:
    """P3.2: where all three must answer, nothing is sealed that one of them cannot be sent."""
    narrow.adds.close()
    terms = AddTerms(narrow.packer, narrow.table, LEDGER, KEY, NONCE, 3, 0, 4, 16 << 20, 32 << 20)
    seats = [
        AddSeat(link, FIRST_SEATING + seat, encode_control(narrow.control(seat)), SLOTS[seat])
        for seat, link in enumerate(narrow.links)
    ]
    narrow.adds = narrow.transport.adds().open_adds(terms, seats)
    narrow.append(10)
    narrow.wait()
    assert narrow.packer.open_count() == 1
    narrow.room = 1 << 30
    narrow.wait()
    assert narrow.packer.open_count() == 0
