"""Many small ledgers repaired side by side: what they ask at once, and what becomes of one that fails (P11.2, I36)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest, CopiesAnswer, CopyTaken
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import FrameHeader, decode_frame_header, encode_frame_header, frame_of
from embedbk.codec.freed_ledger import LOG_OF_LEDGER
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.log_settings import SettingsRecord, encode_log_settings, log_settings_path
from embedbk.codec.lost_entries import Losses
from embedbk.codec.messages import Control, ErrorAnswer
from embedbk.codec.metadata_messages import Put, Refusal
from embedbk.codec.read_messages import ReadAnswer, ReadPart, ReadRequest
from embedbk.codec.registration import placement_path
from embedbk.codec.repair_mark import (
    RepairMark,
    decode_repair_mark,
    encode_repair_mark,
    progress_of,
    repair_mark_path,
)
from embedbk.codec.repair_messages import EndRepairs, RepairsEnded
from embedbk.core.client_words import Answered, BookieInfo, Send
from embedbk.core.machine import Effect, Event
from embedbk.core.metadata_words import (
    KeyRead,
    KeysListed,
    ListKeys,
    ReadKey,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.core.repair_words import AskQuorum, HeldMark, QuorumAnswered, SmallRepaired
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member
from embedbk.metadata.claims import repairing_path
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import CopyOptions
from embedbk.repair.small_repairs import SmallRepairs
from tests.repair.healed import OPTIONS, healed
from tests.repair.test_repaired import closed, holders_hold

SECOND = 1_000_000_000
EPOCH = 7
PAYLOAD = b"0123456789"
MEMBERS = tuple(Member(f"b{number}", bytes([number]) * 16) for number in range(1, 7))


def ledger(ledger_id: int, **other: object) -> LedgerMetadata:
    """The copies of one entry, on b1, b2 and b3."""
    fragment = Fragment(0, 0, tuple((each.bookie_id, each.incarnation) for each in MEMBERS[:3]))
    metadata = LedgerMetadata(
        METADATA_VERSION, ledger_id, 3, 3, 2, LedgerState.CLOSED, 0, len(PAYLOAD), b"v", 1, {}, (fragment,)
    )
    return metadata.with_changes(**other) if other else metadata


class Shelf:
    """The keys, and bookies that have every entry, for repairs by events. What is told otherwise is set by a test."""

    def __init__(self, ledgers: list[LedgerMetadata], pace: int = 0, **options: object) -> None:
        self.now_ns, self.revision = 0, 100
        self.keys: dict[str, tuple[bytes, int]] = {placement_path("b4"): (b"", 9)}
        for each in ledgers:
            self.put(repairing_path(each.ledger_id), b"", EPOCH)
            self.put(repair_mark_path(each.ledger_id), encode_repair_mark(RepairMark(1, ("b1",))), 8)
            self.put(ledger_key_path(each.ledger_id), encode_ledger_metadata(each), 50 + each.ledger_id)
        bookies = tuple(BookieInfo(each, True, placement=9) for each in MEMBERS[1:4])
        held = [HeldMark(each.ledger_id, EPOCH, 8) for each in ledgers]
        self.core = SmallRepairs(
            held,
            bookies,
            5,
            random.Random(1),
            CopyPace(pace),
            options=CopyOptions(**options),
            may_reshape=True,
        )  # type: ignore[arg-type]
        self.asked: list[Effect] = []  # Everything, in order.
        self.waiting = list(self.core.step(Started(0)))
        self.result: SmallRepaired | None = None
        self.answer_of: Callable[[Effect], Event | None] = lambda effect: None  # What a test answers instead.
        self.is_silent: Callable[[Effect], bool] = lambda effect: False
        # What bookies say otherwise: of a read or a copy of a ledger; ledgers whose entry is not there, or is damaged;
        # bookies of the build before, which take one ledger at a time.
        self.verdicts: dict[tuple[str, int], Status] = {}
        self.gone: set[int] = set()
        self.rotten: set[int] = set()
        self.older: set[Member] = set()

    def put(self, key: str, value: bytes, revision: int) -> None:
        self.keys[key] = value, revision

    def run(self) -> Shelf:
        """Until nothing is asked that is answered."""
        while self.waiting:
            effect = self.waiting.pop(0)
            self.asked.append(effect)
            if isinstance(effect, Ended):
                self.result = effect.result
            elif not self.is_silent(effect):
                self.tell(self.answer_of(effect) or self.answer(effect))
        return self

    def tell(self, event: Event) -> None:
        self.waiting += self.core.step(event)

    def tick(self, now_ns: int) -> Shelf:
        self.now_ns = now_ns
        self.tell(Tick(now_ns))
        return self.run()

    def of(self, kind: type) -> list[Effect]:
        return [each for each in self.asked if isinstance(each, kind)]

    def changes(self, prefix: str) -> list[Transact]:
        return [each for each in self.of(Transact) if each.then[0].key.startswith(prefix)]

    def answer(self, effect: Effect) -> Event:
        now = self.now_ns
        match effect:
            case ReadKey(tag, key):
                return KeyRead(now, tag, *self.keys.get(key, (None, 0)))
            case ListKeys(tag, prefix, after, limit):
                found = sorted(key for key in self.keys if key.startswith(prefix) and key > after)
                page = [(key, self.keys[key][0]) for key in found[:limit]]
                return KeysListed(now, tag, page, len(found) > limit, [self.keys[key][1] for key, _ in page])
            case Transact(tag, when, then):
                is_done = all(self.keys.get(each.key, (b"", 0))[1] == each.revision for each in when)
                self.revision += is_done
                for change in then if is_done else ():
                    assert isinstance(change, Put)
                    self.put(change.key, change.value, self.revision)
                return Transacted(now, tag, is_done, self.revision)
            case AskQuorum(tag, EndRepairs(ended)):
                return QuorumAnswered(now, tag, RepairsEnded(self.revision, (1,) * len(ended)))
            case Send():
                return self.bookie(effect)
        raise AssertionError(effect)

    def bookie(self, effect: Send) -> Answered:
        request, frames = effect.control, list[tuple[FrameHeader, memoryview]]()
        answer: Control
        if isinstance(request, ReadRequest):
            wanted = [request.ledger_id, *(each.ledger_id for each in request.others)]
            if effect.member in self.older:
                wanted = wanted[:1]
            own, *others = (ReadPart(self.verdicts.get(("read", each), Status.OK), each) for each in wanted)
            answer = ReadAnswer(own.status, own.ledger_id, others=others)
            for part in (own, *others):
                if part.status == Status.OK and part.ledger_id not in self.gone:
                    frames.append(self.entry(part.ledger_id))
            return Answered(self.now_ns, effect.tag, effect.member, answer, frames)
        assert isinstance(request, AddRequest)
        brought = [frame for _, frame in effect.frames]
        copies = [
            CopyTaken(self.verdicts.get(("copy", frame.ledger_id), Status.OK), frame.ledger_id, 0, 0)
            for frame in brought
        ]
        if len(copies) == 1:
            answer = AddAnswer(
                copies[0].status, request.nonce, request.seating, True, brought[0].ledger_id, 0, 0
            )
        elif effect.member in self.older:
            answer = ErrorAnswer(f"an add has one frame, not {len(copies)}")
        else:
            answer = CopiesAnswer(request.nonce, request.seating, copies)
        return Answered(self.now_ns, effect.tag, effect.member, answer)

    def entry(self, ledger_id: int) -> tuple[FrameHeader, memoryview]:
        """As a bookie sends it; of a rotten one a bit has turned."""
        body = bytearray(encode_entry(ledger_id, 0, len(PAYLOAD), PAYLOAD))
        header = decode_frame_header(encode_frame_header(frame_of(memoryview(bytes(body))), bytes(16)), 0)
        body[-1] ^= ledger_id in self.rotten
        return header, memoryview(bytes(body))

    def has_moved(self, ledger_id: int) -> bool:
        metadata = decode_ledger_metadata(self.keys[ledger_key_path(ledger_id)][0], ledger_id)
        return MEMBERS[3] in metadata.fragments[0].members

    @property
    def ended(self) -> list[int]:
        """Ledgers whose marks it asked to be ended."""
        return [held[0] for each in self.of(AskQuorum) for held in each.operation.ended]

    @property
    def alone(self) -> list[int]:
        assert self.result is not None
        return [each.ledger_id for each in self.result.alone]


def is_copy_of(effect: Effect, ledger_id: int) -> bool:
    return (
        isinstance(effect, Send)
        and isinstance(effect.control, AddRequest)
        and ledger_id in [frame.ledger_id for _, frame in effect.frames]
    )


def keys_of(ledger_ids: range) -> Iterator[str]:
    for ledger_id in ledger_ids:
        yield from (repairing_path(ledger_id), repair_mark_path(ledger_id), ledger_key_path(ledger_id))


def test_forty_are_marked_published_and_ended_by_one_transaction_each() -> None:
    """Issue 15: "marks are taken, given a target and published up to 40 to a transaction, each still with its own epoch
    and comparison"."""
    shelf = Shelf([ledger(each) for each in range(1, 41)]).run()
    (targets,), (published,), (ending,) = (
        shelf.changes("/ur/"),
        shelf.changes("/ledgers/"),
        shelf.of(AskQuorum),
    )
    compared = {each.key: each.revision for each in published.when}
    assert compared.keys() == {*keys_of(range(1, 41)), placement_path("b4")}
    assert {compared[repairing_path(each)] for each in range(1, 41)} == {EPOCH}
    assert {each.key for each in targets.when} == {
        path(each) for each in range(1, 41) for path in (repairing_path, repair_mark_path)
    }
    assert {each.revision for each in targets.when if each.key.startswith("/repairing/")} == {EPOCH}
    assert shelf.ended == list(range(1, 41))
    assert all(shelf.has_moved(each) for each in range(1, 41))
    assert len(shelf.of(ListKeys)) == 2  # Ids that follow each other are read by pages.
    assert not shelf.of(ReadKey)
    assert shelf.result is not None
    assert {(each.kind, each.copies) for each in shelf.result.outcomes} == {("repaired", 1)}
    assert isinstance(ending.operation, EndRepairs)


def test_no_copy_is_sent_before_the_target_stands_in_its_mark() -> None:
    """Scenario 57: else the target's collector drops the copy, since no fragment names it yet (P7.7)."""
    shelf = Shelf([ledger(each) for each in range(1, 6)])
    named: list[bool] = []

    def look(effect: Effect) -> None:
        if isinstance(effect, Send) and isinstance(effect.control, AddRequest):
            for _, frame in effect.frames:
                value, _ = shelf.keys[repair_mark_path(frame.ledger_id)]
                targets = progress_of(decode_repair_mark(value)).targets
                named.append((effect.member.bookie_id, effect.member.incarnation) in targets)

    shelf.answer_of = look  # type: ignore[assignment]
    shelf.run()
    assert named == [True] * 5


def test_nothing_is_published_before_its_copy_is_durable() -> None:
    """I36: a target that answered nothing, or refused, has nothing; the others are published without its ledger."""
    for status in (None, Status.UNKNOWN):
        shelf = Shelf([ledger(each) for each in range(1, 6)], together=1 if status is None else 64)
        if status is None:
            shelf.is_silent = lambda effect: is_copy_of(effect, 3)
            shelf.run()
            assert not shelf.changes("/ledgers/")
            shelf.tick(CopyOptions().write_timeout_ns)
        else:
            shelf.verdicts["copy", 3] = status
            shelf.run()
        assert [each for each in range(1, 6) if shelf.has_moved(each)] == [1, 2, 4, 5] == shelf.ended
        assert shelf.alone == [3]


@pytest.mark.parametrize("phase", ["/ur/", "/ledgers/"])
@pytest.mark.parametrize("lost", [repairing_path, repair_mark_path])
def test_one_that_changed_keeps_none_of_the_others_back(phase: str, lost: Callable[[int], str]) -> None:
    """P9.1, P7.7: its hold was lost, or its mark is another by now; behind a refusal halves are asked for."""
    shelf = Shelf([ledger(each) for each in range(1, 41)])

    def change(effect: Effect) -> None:
        if isinstance(effect, Transact) and effect.then[0].key.startswith(phase):
            value, _ = shelf.keys[lost(17)]
            shelf.put(lost(17), value, 99)

    shelf.answer_of = change  # type: ignore[assignment]
    shelf.run()
    others = [each for each in range(1, 41) if each != 17]
    assert [each for each in range(1, 41) if shelf.has_moved(each)] == others == shelf.ended
    assert shelf.alone == [17]
    assert len(shelf.changes(phase)) < 14


def test_if_everything_is_refused_the_single_road_is_taken_soon() -> None:
    """P10.6: the target was put to read-only. What is tried in halves has an end."""
    shelf = Shelf([ledger(each) for each in range(1, 41)])
    shelf.put(placement_path("b4"), b"", 10)
    shelf.run()
    assert not any(shelf.has_moved(each) for each in range(1, 41))
    assert shelf.alone == list(range(1, 41))
    assert not shelf.ended
    assert len(shelf.changes("/ledgers/")) < 30


def test_what_is_not_known_to_be_published_is_not_ended() -> None:
    """P2.2: the single road reads what came of it."""
    shelf = Shelf([ledger(each) for each in range(1, 6)])
    shelf.answer_of = lambda effect: (
        TransactUnknown(0, effect.tag)
        if isinstance(effect, Transact) and effect.then[0].key.startswith("/ledgers/")
        else None
    )
    shelf.run()
    assert (shelf.alone, shelf.ended) == ([1, 2, 3, 4, 5], [])


def test_a_refused_end_is_asked_for_again() -> None:
    """P11.1: else the ledgers stay locked for as long as the session lives."""
    shelf = Shelf([ledger(1), ledger(2)])
    shelf.answer_of = lambda effect: (
        QuorumAnswered(0, effect.tag, Refusal("UNAVAILABLE", "later"))
        if isinstance(effect, AskQuorum)
        else None
    )
    shelf.run()
    assert shelf.result is None
    shelf.answer_of = lambda effect: None
    assert shelf.core.deadline_ns == SECOND
    shelf.tick(SECOND)
    assert shelf.result is not None
    assert shelf.ended == [1, 2, 1, 2]


def test_copies_keep_to_the_bytes_per_second_of_the_process() -> None:
    """AR12: all of them together, behind the first reads, which are small."""
    size = len(encode_entry(1, 0, len(PAYLOAD), PAYLOAD))
    shelf = Shelf([ledger(each) for each in range(1, 11)], pace=16 * size)  # It begins with a sixteenth.
    shelf.core.pace.note(0, 5 * size)  # Read by another repair of the process.
    shelf.run()
    assert not shelf.of(Send)
    shelf.tick(4 * SECOND)
    assert not shelf.of(Send)
    shelf.tick(5 * SECOND)
    assert shelf.of(Send)
    rate = shelf.core.pace.rate  # These reads were in time, so it has risen once.
    assert rate == 2 * size
    assert shelf.core.pace.free_ns(0) == 5 * SECOND + 10 * size * SECOND // rate


def not_small() -> Iterator[tuple[str, LedgerMetadata]]:
    (first,) = ledger(3).fragments
    others = tuple((each.bookie_id, each.incarnation) for each in MEMBERS[1:4])
    yield "open", ledger(3, state=LedgerState.OPEN, last_entry=None, length=None)
    yield "too large", ledger(3, length=1 << 30)
    yield "too many entries", ledger(3, last_entry=10_000)
    yield "given up in part", ledger(3, lost=(Losses(((0, 0, 1),), ()),))
    yield "none lost", ledger(3, fragments=(Fragment(0, 0, others),))
    yield "two fragments", ledger(3, last_entry=1, fragments=(first, Fragment(1, 10, first.ensemble)))


@pytest.mark.parametrize(
    ("why", "other"), list(not_small()), ids=lambda each: each if isinstance(each, str) else ""
)
def test_what_is_not_small_goes_the_single_road(why: str, other: LedgerMetadata) -> None:
    """P11.2: and the others do not wait for it."""
    shelf = Shelf([ledger(1), ledger(2), other, ledger(4)]).run()
    assert shelf.alone == [3]
    assert shelf.ended == [1, 2, 4]
    assert decode_ledger_metadata(shelf.keys[ledger_key_path(3)][0], 3) == other


def test_a_mark_that_names_who_is_there_or_is_another_goes_the_single_road() -> None:
    """P11.4: b2 may lack entries, which only its own answer tells."""
    shelf = Shelf([ledger(each) for each in range(1, 5)])
    shelf.put(repair_mark_path(2), encode_repair_mark(RepairMark(1, ("b1", "b2"))), 8)
    shelf.put(repair_mark_path(3), encode_repair_mark(RepairMark(1, ("b1",))), 77)
    shelf.run()
    assert (shelf.alone, shelf.ended) == ([2, 3], [1, 4])


def test_a_ledger_that_is_to_have_another_shape_goes_the_single_road() -> None:
    """P2.6: the settings of each log are read once."""
    custom = {LOG_OF_LEDGER: b"jobs"}
    shelf = Shelf([ledger(each, custom=custom) for each in (1, 2)] + [ledger(3)])
    shelf.put(log_settings_path("jobs"), encode_log_settings(SettingsRecord(1, 2, 2, 2)), 9)
    shelf.run()
    assert (shelf.alone, shelf.ended) == ([1, 2], [3])
    assert len(shelf.of(ReadKey)) == 1


def test_small_ledgers_of_a_lost_bookie_are_repaired_side_by_side() -> None:
    """P11.2, I36: in a whole cluster; each seat has its entries, and no mark and no hold is left."""
    with healed(bookies=5) as story:
        ledgers = [closed(story, 3) for _ in range(8)]
        service = story.repairer()
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: all(story.is_healed(each, "b1") for each in ledgers))
        for ledger_id in ledgers:
            holders_hold(story, ledger_id, 3)
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] == len(ledgers))
        assert service.beside >= 2
        assert not story.world.committed("/repairing/")


def test_one_rotten_copy_among_those_of_one_message_is_read_elsewhere_and_the_others_go_through() -> None:
    """P11.2: in a whole cluster; each ledger has a verdict of its own, and gets all of its copies."""
    with healed(bookies=4) as story:
        ledgers = [closed(story, 1) for _ in range(12)]
        # The first seat that is there is read first; that of several ledgers has a rotten copy of one of them.
        of_source: dict[str, list[int]] = {}
        for each in ledgers:
            seats = [name for name, _ in story.metadata(each).fragments[0].ensemble]
            if "b1" in seats:
                of_source.setdefault(next(name for name in seats if name != "b1"), []).append(each)
        source, several = max(of_source.items(), key=lambda item: len(item[1]))
        assert len(several) > 2
        story.cluster.damage(source, several[1], 0)
        options = replace(OPTIONS, auditor=replace(OPTIONS.auditor, page_ledgers=100))
        service = story.repairer(options=options)
        story.cluster.crash("b1")
        marked = [each for each in ledgers if "b1" in story.named(each)]
        assert story.cluster.run_until(lambda: all(story.is_healed(each, "b1") for each in marked))
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] >= len(marked))
        assert service.beside == len(marked)
        assert story.reached["several ledgers copied in one message"]
        assert story.reached["one of several ledgers refused"]
