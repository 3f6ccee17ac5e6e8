"""The add path in C beside the core: the same requests, the same answers, the same bytes stored (native/SHORTCUTS.md).

Two places live through the same story, one with the add path and one without; both are compared after every turn, and
what their disks hold at the end. The core is the definition.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from embedbk.codec import add_messages, kernels, lac_messages, messages
from embedbk.codec.add_messages import AddAnswer, AddAnswers, AddRequest, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import FRAME_HEADER_BYTES, cut, encode_frame_header
from embedbk.codec.journal_records import RecordKind
from embedbk.codec.lac_messages import (
    ExplicitLacAnswer,
    ExplicitLacRequest,
    ExplicitLacs,
    LacAnswer,
    LacRequest,
    pack_explicit_lacs,
)
from embedbk.codec.messages import MESSAGE_HEADER_BYTES, Control, decode_message, encode_message
from embedbk.codec.read_messages import ReadRequest
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import JournalDurable, Reply, RequestReceived, StoreFrame
from embedbk.core.ledger_table import LedgerTable
from embedbk.host.client_links import ANSWERS_PER_MESSAGE_MAX
from embedbk.ids import NO_ENTRY
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.native import lib
from tests.host.place import KEY, TOKEN, DiskStorage, Place, add, frame

INCARNATION = b"d" * 16
LEDGERS = range(5)
OTHER_KEY = b"other key, 16 B."


class Side:
    """One bookie, and the links of four clients to it."""

    def __init__(self, *, has_add_path: bool) -> None:
        self.disk = MemoryDisk()
        self.storage = DiskStorage(self.disk, flush_bytes=32 << 10, incarnation=INCARNATION)
        if not has_add_path:
            self.storage.add_path = None
        self.place = Place(bookies=0)
        self.node = self.place.start_bookie("b1", storage=self.storage)
        self.place.until(lambda: self.node.is_registered)
        self.peers = [self.place.peer("b1") for _ in range(4)]

    def heard(self) -> list[Any]:
        """What each link was told since the last call; the order of different requests is nobody's promise."""
        told = []
        for peer in self.peers:
            peer.look()
            answers = [
                (
                    message.request_id,
                    message.control,
                    [(header, bytes(body)) for header, body in message.frames],
                )
                for message in peer.messages
            ]
            peer.messages.clear()
            told.append((peer.down, sorted(answers, key=lambda told: (told[0], repr(told[1])))))
        return told

    def stored(self) -> list[Any]:
        """Rows, journal and entries after a loss of power."""
        self.disk.crash()
        storage = BookieStorage(
            "d", "b1", TOKEN, flush_bytes=1 << 20, cache_bytes_max=4 << 20, journal_file_bytes=2 << 20,
            threaded=False, io=self.disk, incarnation=INCARNATION,
        )  # fmt: skip
        rows: list[Any] = [storage.table.get(ledger_id) for ledger_id in storage.table]
        found: list[Any] = [
            (row.ledger_id, row.is_fenced, row.in_limbo, row.is_dropped, row.last_entry, row.lac, row.lac_length,
             storage.table.key(row))
            for row in rows
        ]  # fmt: skip
        for row in rows:
            held = storage.read(row.ledger_id, 0, 2**62, FRAME_BYTES_MAX)
            found.append((held.absent, bytes(held.frame.body) if held.frame is not None else b""))
        storage.close()
        return found


class Twice:
    """The same story with the add path and without."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.sides = [Side(has_add_path=True), Side(has_add_path=False)]
        self.next_entry = dict.fromkeys(LEDGERS, 0)
        self.length = dict.fromkeys(LEDGERS, 0)
        self.sent: list[bytes] = []
        self.request_id = 100

    @property
    def taken(self) -> int:
        path = self.sides[0].storage.add_path
        return path.taken() if path is not None else 0

    def send(self, link: int, body: bytes) -> None:
        for side in self.sides:
            side.peers[link].send_bytes(body)

    def ask(
        self, link: int, control: Control, frames: Any = (), damage: Callable[[bytearray], None] | None = None
    ) -> None:
        self.request_id += 1
        body = bytearray(b"".join(bytes(piece) for piece in encode_message(self.request_id, control, frames)))
        if damage is not None:
            damage(body)
        elif isinstance(control, AddRequest):
            self.sent.append(bytes(body))
        self.send(link, bytes(body))

    def turn(self) -> None:
        for side in self.sides:
            side.place.turn()
        ours, core = (side.heard() for side in self.sides)
        assert ours == core
        for link, (down, _) in enumerate(ours):
            if down is not None:
                for side in self.sides:
                    side.peers[link] = side.place.peer("b1")

    # What clients do.

    def add(self, *, damage: Callable[[bytearray], None] | None = None, **changes: Any) -> None:
        """The next entries of a ledger. damage: done to the message, which is no add of these entries then."""
        ledger_id = self.chance.choice(LEDGERS)
        first = self.next_entry[ledger_id]
        payloads = [
            self.chance.randbytes(self.chance.choice([0, 1, 40, 3000]))
            for _ in range(self.chance.randint(1, 6))
        ]
        sealed: Any = frame(ledger_id, first, payloads, self.length[ledger_id])
        if self.chance.random() < 0.2:
            sealed = cut(sealed, 3, 2, self.chance.randrange(3)) or sealed  # Striped: ids with gaps.
        lac = self.chance.choice([None, first - 1, max(-1, first - self.chance.randint(1, 9))])
        if damage is None:
            self.next_entry[ledger_id] = sealed.last_entry + 1
            self.length[ledger_id] = sealed.length
        request = AddRequest(
            changes.get("incarnation", INCARNATION),
            self.chance.choice([0, 127, 128, 255, 256, 65535, 65536, 2**32, 2**64 - 1]),
            self.chance.choice([0, 1, 200, 70000, 2**63 - 1]),
            changes.get("recovery", False),
            changes.get("deferred", False),
        )
        if request.recovery:
            lac = None
        header = encode_frame_header(
            sealed, changes.get("key", KEY), lac, 0 if lac is None else max(0, lac) * 3
        )
        self.ask(self.chance.randrange(4), request, [(header, sealed)], damage)

    def strange(self) -> None:
        """An add that the common path must not take."""
        odd: list[dict[str, Any]] = [
            {"recovery": True}, {"deferred": True}, {"key": OTHER_KEY}, {"incarnation": bytes(16)},
        ]  # fmt: skip
        self.add(**self.chance.choice(odd))

    def again(self) -> None:
        """Sent before: equal, late, or to be refused."""
        if self.sent:
            self.send(self.chance.randrange(4), self.chance.choice(self.sent[-30:]))

    def conflict(self) -> None:
        """Other content under ids that are held, or across their end."""
        ledger_id = self.chance.choice(LEDGERS)
        first = max(0, self.next_entry[ledger_id] - self.chance.randint(0, 3))
        sealed = frame(ledger_id, first, [b"other"] * self.chance.randint(1, 4), self.length[ledger_id])
        header = encode_frame_header(sealed, KEY)
        self.ask(self.chance.randrange(4), AddRequest(INCARNATION, 1, 1, False), [(header, sealed)])

    def damaged(self) -> None:
        """One bit of an add is wrong; sometimes its sums were made anew, so that the fields speak."""

        def damage(body: bytearray) -> None:
            control_end = MESSAGE_HEADER_BYTES + int.from_bytes(body[8:12], "little")
            head = control_end + FRAME_HEADER_BYTES
            body[self.chance.choice([self.chance.randrange(len(body)), self.chance.randrange(head)])] ^= (
                1 << self.chance.randrange(8)
            )
            if self.chance.random() < 0.7:
                reseal(body, control_end)

        self.add(damage=damage)

    def cut_short(self) -> None:
        if self.sent:
            body = self.chance.choice(self.sent[-10:])
            self.send(self.chance.randrange(4), body[: self.chance.randrange(len(body))])

    def fence(self) -> None:
        key = self.chance.choice([KEY, KEY, OTHER_KEY])
        self.ask(self.chance.randrange(4), FenceRequest(INCARNATION, self.chance.choice(LEDGERS), key))

    def read(self) -> None:
        ledger_id = self.chance.choice(LEDGERS)
        first = self.chance.randint(0, self.next_entry[ledger_id] + 2)
        is_fenced = self.chance.random() < 0.1
        request = ReadRequest(INCARNATION, ledger_id, first, first + 5, 10_000, is_fenced, KEY)
        self.ask(self.chance.randrange(4), request)

    def poll(self) -> None:
        ledger_id = self.chance.choice(LEDGERS)
        after = self.next_entry[ledger_id] - self.chance.randint(0, 4)
        wait_ms = self.chance.choice([0, 1, 1000])
        incarnation = self.chance.choice([INCARNATION] * 5 + [bytes(16)])
        bytes_max = self.chance.choice([0, 1, 100, 2000, 2**32])
        self.ask(
            self.chance.randrange(4), LacRequest(incarnation, ledger_id, max(-1, after), wait_ms, bytes_max)
        )

    def explicit_lac(self) -> None:
        ledger_id = self.chance.choice(LEDGERS)
        lac = self.next_entry[ledger_id] - 1
        self.ask(
            self.chance.randrange(4), ExplicitLacRequest(INCARNATION, ledger_id, KEY, lac, max(0, lac) * 3)
        )

    def explicit_lacs(self) -> None:
        """Of several ledgers, also of one that is not known, and of older ones."""
        lacs: list[ExplicitLacRequest] = []
        for ledger_id in self.chance.choices(LEDGERS, k=self.chance.randint(1, 4)):
            lac = max(0, self.next_entry[ledger_id] - self.chance.randint(0, 4))
            key = self.chance.choice([KEY] * 9 + [OTHER_KEY])
            lacs.append(ExplicitLacRequest(INCARNATION, ledger_id, key, lac, lac * 3, wants_answer=False))
        self.ask(self.chance.randrange(4), pack_explicit_lacs(lacs))

    def hint(self) -> None:
        """Also of an entry that is not here, and of an older one."""
        ledger_id = self.chance.choice(LEDGERS)
        lac = max(0, self.next_entry[ledger_id] - self.chance.randint(-1, 4))
        key = self.chance.choice([KEY] * 5 + [OTHER_KEY])
        wants_answer = self.chance.random() < 0.5
        self.ask(
            self.chance.randrange(4),
            ExplicitLacRequest(INCARNATION, ledger_id, key, lac, lac * 3, True, wants_answer),
        )

    def hold(self) -> None:
        for side in self.sides:
            side.place.held.symmetric_difference_update({"b1"})

    def hang_up(self) -> None:
        link = self.chance.randrange(4)
        for side in self.sides:
            peer = side.peers[link]
            peer.transport.drop(peer.link, "away")
            side.peers[link] = side.place.peer("b1")

    def pass_time(self) -> None:
        for side in self.sides:
            side.place.now_ns += 2_000_000


def reseal_control(body: bytearray, control_end: int | None = None) -> None:
    """Make the sum of a message right again."""
    crc = kernels.crc32c(bytes(body[MESSAGE_HEADER_BYTES:control_end]), kernels.crc32c(bytes(body[:24])))
    body[24:28] = crc.to_bytes(4, "little")


def reseal(body: bytearray, control_end: int) -> None:
    """Make the sums of message and frame header right again."""
    reseal_control(body, control_end)
    header = body[control_end : control_end + FRAME_HEADER_BYTES - 4]
    body[control_end + FRAME_HEADER_BYTES - 4 : control_end + FRAME_HEADER_BYTES] = kernels.crc32c(
        bytes(header)
    ).to_bytes(4, "little")


@pytest.mark.parametrize("ends_badly", [False, True], ids=["", "the journal fails"])
@pytest.mark.parametrize("seed", range(6))
def test_the_same_requests_have_the_same_answers(seed: int, ends_badly: bool) -> None:
    """P3.2, P3.4, P3.7: whatever is asked, core alone and core with add path say and store the same."""
    chance = random.Random(f"add path {seed}")
    twice = Twice(chance)
    story: list[tuple[int, Callable[[], None]]] = [
        (60, twice.add), (5, twice.strange), (5, twice.again), (3, twice.conflict), (6, twice.damaged),
        (1, twice.cut_short), (1, twice.fence), (4, twice.read), (4, twice.poll), (2, twice.explicit_lac),
        (3, twice.explicit_lacs),
        (2, twice.hold), (1, twice.hang_up), (2, twice.pass_time), (25, twice.turn), (16, twice.hint), (24, twice.poll),
    ]  # fmt: skip
    weights, acts = zip(*story, strict=True)
    for act in chance.choices(acts, weights, k=500):
        act()
    for side in twice.sides:
        side.place.held.clear()
        if ends_badly:
            side.disk.fail("write", stays=True)
    for _ in range(10):
        twice.add()
    for _ in range(6):
        twice.turn()
    assert twice.taken > 60, "the story hardly used the add path"
    ours, core = twice.sides
    assert ours.node.core.records.next_token <= ours.storage.next_token() == core.storage.next_token()
    assert (ours.node.failure is not None) == (core.node.failure is not None) == ends_badly
    if not ends_badly:
        ours.storage.commit()
        core.storage.commit()
    assert ours.stored() == core.stored()


class Beside:
    """One add path and one core on rows of the same state; asked about one message at a time."""

    def __init__(self) -> None:
        self.storage = DiskStorage(MemoryDisk(), incarnation=INCARNATION)
        self.table = LedgerTable()
        for table in (self.storage.table, self.table):
            table.set_key(table.create(7), KEY)

    def judge(self, body: bytes) -> bool:
        """Was it taken? If so the core would have stored it, with the same row after."""
        rows: list[Any] = [self.storage.table.get(7), self.table.get(7)]
        for row in rows:
            row.last_entry, row.lac, row.lac_length, row.is_awaited = NO_ENTRY, NO_ENTRY, 0, 0
        assert self.storage.add_path is not None
        if not self.storage.add_path.take(1, body):
            assert (rows[0].last_entry, rows[0].lac) == (NO_ENTRY, NO_ENTRY)
            return False
        message = decode_message(body)
        core = Bookie(INCARNATION, self.table, 1)
        (stored,) = core.step(RequestReceived(0, 1, message.request_id, message.control, message.frames))
        assert isinstance(stored, StoreFrame)
        ours, cores = ((row.last_entry, row.lac, row.lac_length) for row in rows)
        assert ours == cores
        self.storage.commit()
        ((link, count, answer),) = self.storage.add_path.answers(self.storage.durable(), 0)
        assert (link, count) == (1, 1)
        (reply,) = core.step(JournalDurable(0, 1))
        assert isinstance(reply, Reply)
        assert answer == b"".join(encode_message(reply.request_id, reply.control))
        return True

    def open_for_readers(self) -> None:
        assert self.storage.add_path is not None
        self.storage.add_path.begin(0, takes_polls=True)

    def judge_reader(self, body: bytes) -> bool:
        """Was this poll or hint taken? If so the core would have answered or parked it alike, with the same row."""
        path, rows = self.storage.add_path, [self.storage.table.get(7), self.table.get(7)]
        assert path is not None
        for row in rows:
            assert row is not None
            row.last_entry, row.lac, row.lac_length, row.is_awaited = NO_ENTRY, NO_ENTRY, 0, 0
        path.parked.expire(2**62)
        if not path.take(1, body):
            assert (rows[0].lac, path.parked.poll_count) == (NO_ENTRY, 0)  # type: ignore[union-attr]
            return False
        message = decode_message(body)
        core = Bookie(INCARNATION, self.table, 1)
        effects = core.step(RequestReceived(0, 1, message.request_id, message.control, message.frames))
        told = [
            b"".join(encode_message(each.request_id, each.control))
            for each in effects
            if isinstance(each, Reply)
        ]
        assert len(told) == len(effects)
        assert [answer for _, answer in path.reader_answers(lambda _: 0)] == told
        ours, cores = ((row.lac, row.lac_length, row.is_awaited) for row in rows if row is not None)
        assert ours == cores
        assert path.parked.poll_count == core.parked.poll_count
        assert path.parked.deadline_ns == core.parked.deadline_ns
        return True


@pytest.mark.parametrize("is_resealed", [False, True])
def test_no_bit_is_overlooked(is_resealed: bool) -> None:
    """P3.1, P3.4: with any bit of an add turned over it is the core's, unless its sums were made anew and it is an add
    that the core would store."""
    sealed = frame(7, 3, [b"payload", b"another"], 20)
    header = encode_frame_header(sealed, KEY, 2, 20)
    pieces = encode_message(2**40 + 5, AddRequest(INCARNATION, 300, 70000, False), [(header, sealed)])
    whole = b"".join(bytes(piece) for piece in pieces)
    control_end = MESSAGE_HEADER_BYTES + int.from_bytes(whole[8:12], "little")
    beside = Beside()
    assert beside.judge(whole)
    taken = 0
    for at in range(len(whole)):
        for bit in range(8):
            body = bytearray(whole)
            body[at] ^= 1 << bit
            if is_resealed:
                reseal(body, control_end)
            taken += beside.judge(bytes(body))
    for size in range(len(whole)):
        assert not beside.judge(whole[:size])
    assert not beside.judge(whole + b"\0")
    # Request id, nonce, seating and both LACs may be other ones that an add may have.
    assert (taken > 100) if is_resealed else (taken == 0)


@pytest.mark.parametrize("flag", ["is_fenced", "in_limbo", "is_dropped"])
def test_each_word_against_normal_adds_is_enough(flag: str) -> None:
    """Rule P3.4a, P7.3, P7.4: the core sets the fence with the two others; the add path relies on none of it."""
    beside = Beside()
    pieces = encode_message(1, *add(INCARNATION, frame(7, 0, [b"x"])))
    body = b"".join(bytes(piece) for piece in pieces)
    row: Any = beside.storage.table.get(7)
    setattr(row, flag, 1)
    assert not beside.judge(body)
    setattr(row, flag, 0)
    assert beside.judge(body)


def test_numbers_travel_in_any_width() -> None:
    """WIRE 3: MessagePack's numbers have many lengths; each is read, and answered as the core writes it."""
    beside, sealed = Beside(), frame(7, 0, [b"x"])
    edges = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1]
    for nonce in [*edges, 2**63, 2**64 - 1]:
        for seating in edges:
            request = AddRequest(INCARNATION, nonce, seating, False)
            pieces = encode_message(nonce, request, [(encode_frame_header(sealed, KEY), sealed)])
            assert beside.judge(b"".join(bytes(piece) for piece in pieces))
    pieces = encode_message(
        1, AddRequest(INCARNATION, 1, 2**63, False), [(encode_frame_header(sealed, KEY), sealed)]
    )
    assert not beside.judge(b"".join(bytes(piece) for piece in pieces))  # No count may be so high.


def with_control(whole: bytes, control: bytes) -> bytes:
    """A message with another control part: whole, and sound, as far as its header says."""
    body = bytearray(whole[:MESSAGE_HEADER_BYTES] + control)
    end = MESSAGE_HEADER_BYTES + int.from_bytes(whole[8:12], "little")
    body[8:12] = len(control).to_bytes(4, "little")
    reseal_control(body)
    return bytes(body) + whole[end:]


def test_bytes_behind_the_last_field_are_the_cores() -> None:
    """WIRE 3, P3.7: a control part is read to its end; who writes more fields means more than we know."""
    beside, sealed = Beside(), frame(7, 0, [b"x"])
    pieces = encode_message(
        1, AddRequest(INCARNATION, 1, 1, False), [(encode_frame_header(sealed, KEY), sealed)]
    )
    whole = b"".join(bytes(piece) for piece in pieces)
    control = whole[MESSAGE_HEADER_BYTES : MESSAGE_HEADER_BYTES + int.from_bytes(whole[8:12], "little")]
    assert beside.judge(with_control(whole, control))
    for beyond in (b"\0", b"\xc2", b"\xc0\xc0"):
        assert not beside.judge(with_control(whole, control + beyond))


def test_a_message_may_come_in_two_pieces() -> None:
    """Within a process the body of a frame is handed over as it lies in the writer's block; only there it is cut."""
    beside, sealed = Beside(), frame(7, 0, [b"x", b"y"])
    pieces = encode_message(
        1, AddRequest(INCARNATION, 1, 1, False), [(encode_frame_header(sealed, KEY), sealed)]
    )
    head, body = b"".join(bytes(piece) for piece in pieces[:-1]), pieces[-1]
    path = beside.storage.add_path
    assert path is not None
    assert not path.take(1, head, bytes(body)[:-1])
    assert not path.take(1, head + bytes(body)[:5], bytes(body)[5:])
    assert path.take(1, head, body)


def test_answers_of_one_commit_are_the_cores_byte_for_byte() -> None:
    """One message for each link, in the order of its adds."""
    twice = Twice(random.Random(1))
    for ledger_id in range(3):  # Their births are the core's.
        twice.ask(ledger_id, *add(INCARNATION, frame(ledger_id, 0, [b"x"])))
    twice.turn()
    for side in twice.sides:
        side.place.held.add("b1")
    for number in range(3, 44):
        twice.ask(number % 2, *add(INCARNATION, frame(number % 3, number // 3, [b"x"], number // 3)))
    twice.turn()
    assert twice.taken == 41
    told = []
    for side in twice.sides:
        side.place.held.clear()
        side.place.turns(2)
        told.append([[bytes(event.body) for event in peer.transport.receive(0)] for peer in side.peers])  # type: ignore[union-attr]
    assert told[0] == told[1]
    assert [len(bodies) for bodies in told[0]] == [1, 1, 0, 0]


@pytest.mark.parametrize("told_before", [1, 2, 3])
def test_telling_that_was_cut_short_goes_on_when_more_is_due(told_before: int) -> None:
    """P3.4: an error may stop the host between any two answers that it tells (memory is refused, a handler of a signal
    raises). It tells the rest the next time, and nothing twice, also where meanwhile more became due for a link that
    had been told all of its answers."""
    beside = Beside()
    path = beside.storage.add_path
    assert path is not None
    number, told = 0, []

    def ask(links: list[int]) -> Any:
        nonlocal number
        for link in links:
            control, frames = add(INCARNATION, frame(7, number, [b"x"], number))
            pieces = encode_message(100 + number, control, frames)
            assert path.take(link, b"".join(bytes(piece) for piece in pieces))
            number += 1
        beside.storage.commit()
        return path.answers(beside.storage.durable(), 0)

    first = ask([1, 2, 3])
    told += [each[:2] for each in itertools.islice(first, told_before)]
    told += [(link, count) for link, count, _ in ask([1, 1, 2, 3])]
    told += [(link, count) for link, count, _ in ask([2])]
    assert sorted(link for link, count in told for _ in range(count)) == [1, 1, 1, 2, 2, 2, 3, 3]
    assert told[:told_before] == [(link, 1) for link in range(1, 1 + told_before)]


def test_who_waits_for_a_ledger_that_is_yet_to_come_is_woken_by_its_first_lac() -> None:
    """Rule P6.2, L12: the poll was parked before there was a row that could say so to the add path."""
    twice = Twice(random.Random(1))
    twice.ask(3, LacRequest(INCARNATION, 9, NO_ENTRY, 20_000))
    twice.turn()
    first, second = frame(9, 0, [b"x"]), frame(9, 1, [b"y"], 1)
    twice.ask(0, *add(INCARNATION, first))
    twice.turn()
    header = encode_frame_header(second, KEY, 0, 1)
    twice.ask(0, AddRequest(INCARNATION, 1, 1, False), [(header, second)])
    for side in twice.sides:
        side.place.turns(2)
    for heard in [side.heard() for side in twice.sides]:
        assert [answer for _, answer, _ in heard[3][1]] == [LacAnswer(Status.OK, 9, 0, 1, False)]


def test_the_bounds_of_the_c_code_are_ours() -> None:
    """Numbers that stand on both sides."""
    kinds = [messages._kind_of[each] for each in (AddRequest, AddAnswer, AddAnswers)]
    assert kinds == [lib.EBK_KIND_ADD_REQUEST, lib.EBK_KIND_ADD_ANSWER, lib.EBK_KIND_ADD_ANSWERS]
    kinds = [
        messages._kind_of[each] for each in (LacRequest, LacAnswer, ExplicitLacRequest, ExplicitLacAnswer)
    ]
    assert kinds == [
        lib.EBK_KIND_LAC_REQUEST, lib.EBK_KIND_LAC_ANSWER, lib.EBK_KIND_EXPLICIT_LAC_REQUEST,
        lib.EBK_KIND_EXPLICIT_LAC_ANSWER,
    ]  # fmt: skip
    assert (messages._kind_of[ExplicitLacs], RecordKind.EXPLICIT_LAC) == (
        lib.EBK_KIND_EXPLICIT_LACS,
        lib.EBK_RECORD_EXPLICIT_LAC,
    )
    assert (lac_messages.EXPLICIT_LAC_BYTES, lac_messages.EXPLICIT_LACS_MAX) == (
        lib.EBK_LAC_BYTES,
        lib.EBK_LACS_MAX,
    )
    assert (lib.EBK_RECORD_FRAME, lib.EBK_ADD_ANSWER_BYTES) == (
        RecordKind.FRAME,
        add_messages.ADD_ANSWER_BYTES,
    )
    assert lib.EBK_ADD_ANSWERS_MAX == ANSWERS_PER_MESSAGE_MAX
    assert lib.EBK_ADD_PENDING_MAX >= lib.EBK_JOURNAL_SLOT_COUNT
